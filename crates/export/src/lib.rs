//! Writes traces to new folders: in another version of the format, in part, or several in one
//! folder.
//!
//! ```text
//! folders ──reader::open──► TraceSet ──walk──► transcribe ───────► folders of the same names
//! folders ───────────────────copy────────────────────────────────► one folder
//! ```
//!
//! [`rewrite()`] keeps the names of folders and files below the opened path. Each stream file
//! becomes a stream file, each packet a packet, with its times, its sequence number and its count
//! of losses. [`merge()`] copies files unchanged.
#![forbid(unsafe_code)]

mod merge;
mod output;
mod rewrite;
pub mod transcribe;

use std::path::PathBuf;

pub use merge::{Merged, merge};
pub use rewrite::{Plan, Rewritten, rewrite};

/// Reason why traces could not be written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The output folder exists already.
    #[error("{} exists already; choose another folder with -o, or remove it", .0.display())]
    Exists(PathBuf),
    /// A file could not be read or written.
    #[error("cannot write {}", path.display())]
    Io {
        /// File or folder.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// The new format cannot express a trace.
    #[error("{}: {reason}", path.display())]
    Inexpressible {
        /// Folder of the trace.
        path: PathBuf,
        /// Problem.
        reason: transcribe::Inexpressible,
    },
    /// A value does not have its type.
    #[error("{}: event {event}: {reason}", path.display())]
    Misfit {
        /// Stream file.
        path: PathBuf,
        /// Name of the event.
        event: String,
        /// Problem.
        reason: transcribe::Misfit,
    },
    /// A trace was given twice.
    #[error("expected each trace once, found {} twice", .0.display())]
    Twice(PathBuf),
    /// A trace could not be read.
    #[error(transparent)]
    Read(#[from] tompion_reader::Error),
}

impl Error {
    fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        |source| Self::Io { path, source }
    }
}
