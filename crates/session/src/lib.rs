//! Recording: a private session for one command and its children.
//!
//! ```text
//! record ─┬─ control thread: starts the command, welcomes processes, hears signals, knows who lives
//!         └─ consumer thread: drains rings by timer, converts time, makes packets
//!            ├─ watchmen: take it to another processor when its own stands still
//!            └─ disk thread: writes them
//! ```
//!
//! The two talk by `consumer::Order`s only. The control thread answers an agent within microseconds,
//! because programs wait for it when they start; the consumer may take its time. Reading traces is
//! somebody else's business, and so is what a ring looks like inside.
#![forbid(unsafe_code)]

mod attach;
mod backing;
mod budget;
mod clock;
mod consumer;
mod context;
mod control;
mod disk;
mod files;
mod filter;
mod guests;
mod jobs;
mod kernel;
mod kernel_filter;
mod listening;
mod manifest;
mod process;
mod record;
mod recover;
mod resume;
mod rseq;
mod running;
mod source;
mod target;
mod told;
mod untraced;
mod untrusted_text;
mod watchmen;

pub use budget::BeyondLimits;
pub use clock::ClockMap;
pub use consumer::Report;
pub use context::Context;
pub use filter::{check_filter, filter_contexts, unknown_contexts};
pub use jobs::{JobMessage, JobMessages, JobTeller, OTHER_JOBS, SEVERAL_USERS};
pub use kernel::KernelChoice;
pub use manifest::{FILE as MANIFEST_FILE, Manifest, Source};
pub use record::{Config, Error, Mode, Outcome, record};
pub use recover::{Recovered, incomplete, recover};
pub use running::{Recorder, Running, Saved, Snapshot, SnapshotError};
pub use target::{Family, Target, process_names, processes_named};
pub use told::{Told, ToldBy, ToldEvent, write_told};
