//! Recordings as text: the state of running ones, rates from one look to the next, and the outcome
//! of those that have ended.
//!
//! ```text
//! recorders ──GetStatus─┬─► text
//!                       └─► Look, Look ─► Table ─► text, JSON
//! recorders ──GetEventCounts──► EventLook, EventLook ─► EventTable ─► text, JSON
//! ```
#![forbid(unsafe_code)]

mod by_event;
mod change;
mod compared;
mod firing;
mod grants;
mod look;
mod outcome;
mod recording;
mod sessions;
mod table;
mod text;

pub use by_event::{EventLook, EventRate, EventTable, RecordingEvents};
pub use change::describe_change;
pub use compared::Compared;
pub use firing::{describe_firing, write_triggers};
pub use grants::write_grants;
pub use look::{Look, Silent, ask};
pub use outcome::{NOT_WRITTEN, describe_sources, losses, none_fired, suggestion, total};
pub use recording::{describe_all_rules, describe_rules, describe_words, write_recording};
pub use sessions::{sessions_of, write_sessions};
pub use table::{Process, Recording, Table};
pub use text::frame;
