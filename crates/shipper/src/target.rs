//! Targets of segments.

use std::collections::BTreeMap;

use tompion_segments::{Checksum, ChunkState, FilePath, Place, Segment};

/// Place to which segments are sent.
pub trait Target: Sync {
    /// State of a chunk: the last contiguous segment of each file.
    ///
    /// # Errors
    /// If it can't be told now.
    fn chunk_state(&self, place: &Place) -> Result<ChunkState, Trouble>;

    /// Gives it a segment, which is durable there on return. Giving one twice is harmless.
    ///
    /// # Errors
    /// If it was not taken, or may not have been.
    fn put(&self, segment: &Segment) -> Result<(), Trouble>;

    /// Contents of a chunk's files, by which a sender finds those that differ.
    ///
    /// # Errors
    /// If they can't be told now.
    fn contents(&self, place: &Place) -> Result<BTreeMap<FilePath, Checksum>, Trouble>;
}

/// Reason why a segment was not acknowledged. None of them is final.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// The target has other segments than this sender believes: its state is asked for again.
    #[error("{0}")]
    Conflict(String),
    /// The target answers, and takes nothing of this now: it is busy, full or wrongly set up, or
    /// the recording can't be read. Others may be taken; this is sent again later.
    #[error("{0}")]
    Refused(String),
    /// The link is broken: all is sent again later.
    #[error("{0}")]
    Broken(String),
}
