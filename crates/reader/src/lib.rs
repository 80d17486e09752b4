//! Reads traces of any CTF producer: opens them, merges their events by time, prints and
//! summarizes.
//!
//! ```text
//! folders ──discover──► traces, stream files ──► TraceSet ──merge──► Event ──► text, json, csv
//!                                                    └─ packets alone ──► stat
//! ```
//!
//! A [`TraceSet`] reads each stream through one window and merges all streams by time. Its memory
//! does not grow with the size of the traces. A corrupt stream is read up to the corruption, which
//! is recorded as a [`Corruption`] for the caller to report. Traces and folders that cannot be
//! opened are recorded the same way as long as others can. Lost events are recorded as [`Loss`].
//!
//! Decoding is the job of `tompion-ctf`. Analyses of events belong above this crate.
#![forbid(unsafe_code)]

pub mod calls;
mod collect;
pub mod coverage;
mod discover;
pub mod dropped;
mod event;
mod file;
pub mod filter;
pub mod follow;
pub mod json;
mod lines;
pub mod manifest;
mod merge;
pub mod message;
mod parallel;
pub mod stat;
mod symbols;
mod syscall_decode;
#[cfg(test)]
mod test_traces;
pub mod text;

use std::path::PathBuf;

pub use collect::EventCollector;
pub use discover::Trace;
pub use event::{Event, Place};
pub use tompion_ctf::metadata::Version;

pub use merge::{
    EventPredicate, IndexProblem, Loss, LossKind, PacketSummary, PacketView, Parts, Selection,
    TimestampRegression, TraceSet, Visitor, open,
};
pub use symbols::AddressNames;

/// Reason why traces could not be opened or printed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No trace exists at or below a path.
    #[error("expected a trace at or below {}, found no file named `metadata`", .0.display())]
    NoTrace(PathBuf),
    /// A file or folder could not be read.
    #[error("cannot read {}", path.display())]
    Io {
        /// File or folder.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// The description of a trace is invalid.
    #[error("{}: {reason}", path.display())]
    Metadata {
        /// Path of the `metadata` file.
        path: PathBuf,
        /// Problem that the parser found.
        reason: tompion_ctf::DescriptionError,
    },
    /// The description of a trace is valid, but cannot be decoded.
    #[error("{}: {reason}", path.display())]
    Description {
        /// Path of the `metadata` file.
        path: PathBuf,
        /// Reason why it cannot be decoded.
        reason: tompion_ctf::decode::CompileError,
    },
    /// The output could not be written.
    #[error("cannot write the output")]
    Output(#[from] std::io::Error),
}

/// Part of the input that cannot be read: a place in a stream, or a whole trace or folder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {}{message}", path.display(), offset.map(|offset| format!("byte {offset}: ")).unwrap_or_default())]
pub struct Corruption {
    /// Path of the stream file, the description or the folder.
    pub path: PathBuf,
    /// Position in a stream file, in bytes from its beginning.
    pub offset: Option<u64>,
    /// Expected and actual content.
    pub message: String,
}
