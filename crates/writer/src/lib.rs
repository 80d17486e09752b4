//! Writer of traces: one CTF trace for each source of events, with its packets, index and metadata.
//!
//! ```text
//! events ─► SourceWriter ─┬─ StreamWriter (one per ring): the packet in the making
//!                         └─ metadata                     │
//!                                                         ▼ whole packets
//!                                        disk thread, or the calling thread ─► files
//! ```
//!
//! - [`SourceWriter`] writes the trace of one process, of several short ones, or of the kernel.
//! - [`resume`] continues a trace that a killed session left behind.
//! - [`write_synthetic_trace`] writes a whole recording from events in memory.
//!
//! Where events come from, and what a ring is, is left to others: they give positions in a ring's
//! byte stream, which packets state.
#![forbid(unsafe_code)]

pub mod disk;
pub mod environment;
mod failure;
mod name_counts;
pub mod resume;
mod source;
mod stream_writer;
mod synthetic_trace;

pub use environment::HostInfo;
pub use failure::reason;
pub use name_counts::NameCounts;
pub use source::{
    ClassId, IdentityFields, OpenPacket, Pushed, ResumedTrace, SavedState, SavedTrace, SourceWriter,
};
pub use stream_writer::{InitialMark, Mark, StreamWriter, WriteMode};
pub use synthetic_trace::{Origin, SyntheticEvent, SyntheticSource, write_synthetic_trace};
