//! Recordings as text: the state of running ones, rates from one look to the next, and the outcome
//! of those that have ended.
//!
//! ```text
//! recorders ──GetStatus─┬─► text
//!                       └─► Look, Look ─► Table ─► text, JSON
//! ```
#![forbid(unsafe_code)]

mod look;
mod outcome;
mod recording;
mod table;
mod text;

pub use look::{Look, Silent, ask};
pub use outcome::{NOT_WRITTEN, describe_sources, losses, none_fired, suggestion, total};
pub use recording::{describe_all_rules, describe_rules, describe_words, write_recording};
pub use table::{Process, Recording, Table};
pub use text::frame;
