//! Running recordings as text: their state, and rates from one look to the next.
//!
//! ```text
//! recorders ──GetStatus─┬─► text
//!                       └─► Look, Look ─► Table ─► text, JSON
//! ```
#![forbid(unsafe_code)]

mod look;
mod recording;
mod table;
mod text;

pub use look::{Look, Silent, ask};
pub use recording::{describe_rules, write_recording};
pub use table::{Process, Recording, Table};
pub use text::frame;
