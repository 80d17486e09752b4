//! Firings of a recording's triggers.
//!
//! ```text
//! memory of a program ──MatchCounts──► Matches ──Sightings──► Occurrence ──Observations──► Firing
//! losses, rates, the command's end, calls ───────────────────────┘
//! ```
//!
//! The consumer of a recording looks at the memory in each round, and leaves what it finds to the
//! control thread ([`Sightings`]). That one decides which triggers fire ([`Observations`]) and does
//! what they ask for.
#![forbid(unsafe_code)]

mod decode;
mod hook;
mod matches;
mod observations;
mod sightings;
mod watchers;

pub use hook::Hook;
pub use matches::{EventSource, MatchCounts, Matches};
pub use observations::{Observations, Occurrence, Which, is_incident};
pub use sightings::Sightings;
pub use watchers::Watchers;
