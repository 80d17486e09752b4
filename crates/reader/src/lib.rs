//! Reads traces of any CTF producer: opens, merges by time, prints, sums up.
//!
//! ```text
//! folders ──discover──► traces, stream files ──► TraceSet ──merge──► Event ──► text, json, csv
//!                                                    └─ packets alone ──► stat
//! ```
//!
//! A [`TraceSet`] reads each stream through one window and merges all streams by time, so its memory
//! does not grow with the size of the traces. What is damaged is read up to the damage, which is kept
//! as a [`Damage`] for the caller to report, and so are traces and folders that cannot be opened beside
//! others that can; lost events are kept as [`Loss`].
//!
//! Decoding is `tompion-ctf`'s work; what an analysis makes of events belongs above this crate.
#![forbid(unsafe_code)]

mod ahead;
mod discover;
mod event;
mod file;
pub mod filter;
pub mod follow;
mod gather;
pub mod json;
mod lines;
pub mod manifest;
mod meanings;
mod merge;
pub mod message;
#[cfg(test)]
mod odd;
pub mod stat;
mod symbols;
pub mod text;

use std::path::PathBuf;

pub use discover::Trace;
pub use event::{Event, Place};
pub use gather::Gather;
pub use tompion_ctf::metadata::Version;

pub use merge::{
    Disorder, IndexProblem, Loss, LossKind, Only, PacketSummary, PacketView, Parts, Selection, TraceSet,
    Visitor, open,
};
pub use symbols::AddressNames;

/// Why traces could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no trace at or below a path.
    #[error("expected a trace at or below {}, found no file named `metadata`", .0.display())]
    NoTrace(PathBuf),
    /// A file or folder could not be read.
    #[error("cannot read {}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A description is wrong.
    #[error("{}: {reason}", path.display())]
    Metadata {
        /// The `metadata` file.
        path: PathBuf,
        /// What is wrong.
        reason: tompion_ctf::DescriptionError,
    },
    /// A description cannot be decoded by.
    #[error("{}: {reason}", path.display())]
    Description {
        /// The `metadata` file.
        path: PathBuf,
        /// What is wrong.
        reason: tompion_ctf::decode::CompileError,
    },
    /// The output could not be written.
    #[error("cannot write the output")]
    Output(#[from] std::io::Error),
}

/// What cannot be read: a place in a stream, or a whole trace or folder beside others that can.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {}{message}", path.display(), offset.map(|offset| format!("byte {offset}: ")).unwrap_or_default())]
pub struct Damage {
    /// The stream file, the description or the folder.
    pub path: PathBuf,
    /// Where in a stream file, in bytes from its beginning.
    pub offset: Option<u64>,
    /// What was expected and what was found.
    pub message: String,
}
