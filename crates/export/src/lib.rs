//! Traces written anew: in another version of the format, in part, or several in one folder.
//!
//! ```text
//! folders ──reader::open──► TraceSet ──walk──► ctf::transcribe ──► folders of the same names
//! folders ───────────────────copy────────────────────────────────► one folder
//! ```
//!
//! [`rewrite()`] keeps the names of folders and files below the path that was opened: each stream file becomes a
//! stream file, each packet a packet, with its times, its number and the losses that it counts. [`merge()`] copies
//! files as they are.
#![forbid(unsafe_code)]

mod merge;
mod output;
mod rewrite;

use std::path::PathBuf;

pub use merge::{Merged, merge};
pub use rewrite::{Plan, Rewritten, rewrite};

/// Why traces could not be written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The folder is there already.
    #[error("{} exists already; choose another folder with -o, or remove it", .0.display())]
    Exists(PathBuf),
    /// A file could not be read or written.
    #[error("cannot write {}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The new format cannot say what a trace is.
    #[error("{}: {reason}", path.display())]
    Inexpressible {
        /// The trace's folder.
        path: PathBuf,
        /// What is the matter.
        reason: tompion_ctf::transcribe::Inexpressible,
    },
    /// A value is none of its type.
    #[error("{}: event {event}: {reason}", path.display())]
    Misfit {
        /// The stream's file.
        path: PathBuf,
        /// The event's name.
        event: String,
        /// What is the matter.
        reason: tompion_ctf::transcribe::Misfit,
    },
    /// A trace was named twice.
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
