//! Events that programs count in place: the session's side.
//!
//! ```text
//! programs ──count files──► Collector ──► Document ──► JSON, Prometheus, table
//!                              └ sums of processes that have ended
//! ```
//!
//! [`Collector`] makes the count files of a recording, reads them, and keeps the sums of processes
//! that have ended; [`SavedCounts`] are those sums for a recorder that comes back. [`Document`] is
//! what it knows at one moment; a trace's folder has the last one as `counts.json`. Count files are
//! written by programs: nothing in them is trusted.
#![forbid(unsafe_code)]

mod collector;
mod document;
mod file;
mod prometheus;
mod saved;
mod sums;
mod table;

pub use collector::{Collector, ProcessCounts};
pub use document::{Aggregation, Bucket, Document, Entry, FILE_NAME, KeyValue, Processes};
pub use file::CountFile;
pub use saved::SavedCounts;
