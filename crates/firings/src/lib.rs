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

mod change;
mod decode;
mod hook;
mod limits;
mod matches;
mod observations;
mod saved_numbers;
mod saves;
mod sightings;
mod silence;
mod trace;
mod watchers;

pub use change::{ChangeError, TriggerChange};
pub use hook::Hook;
pub use limits::{has_room_for_change, has_room_for_firing};
pub use matches::{EventSource, MatchCounts, Matches, Silent};
pub use observations::{Observations, Occurrence, Which, is_incident};
pub use saved_numbers::SavedNumbers;
pub use saves::{AfterSave, MAX_SAVES, Saved, Snapshots, Window};
pub use sightings::Sightings;
pub use trace::{FiringTrace, Origin};
pub use watchers::Watchers;
