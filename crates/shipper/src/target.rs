//! Targets of segments.

use tompion_segments::{ChunkState, Place, Segment};

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
}

/// Reason why a segment was not acknowledged. None of them is final.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// The target has other segments than this sender believes: its state is asked for again.
    #[error("{0}")]
    Conflict(String),
    /// The link is broken, or the target is busy, full or wrongly set up: the segment is sent again
    /// later.
    #[error("{0}")]
    Broken(String),
}
