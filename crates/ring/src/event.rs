//! Event to be appended, and the outcome of an append.

use tompion_layout::loss::Cause;

/// Most tails of one event, context included.
pub const MAX_TAILS: usize = 80;

/// A field's bytes that are copied from where they are.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Tail {
    /// First byte.
    pub data: *const u8,
    /// Number of bytes.
    pub size: usize,
}

/// An event to append.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// [`FIRST_EVENT`](tompion_layout::record::FIRST_EVENT) + the event's number.
    pub id: u16,
    /// The writing thread.
    pub tid: u32,
    /// Timestamp, for recordings with `given_time`.
    pub time: u64,
    /// Address of the fixed part. Readable up to the next multiple of 8 bytes.
    pub image: *const u8,
    /// Length of the fixed part in bytes.
    pub image_len: usize,
    /// Variable parts that follow the image.
    pub tails: &'a [Tail],
    /// Place where it is stored.
    pub retention: Retention,
}

/// Place where an event is stored, and how long it stays there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// In the ring.
    Ring,
    /// In the list of pinned events if the ring is overwritten and the list has room; else in the
    /// ring.
    Pinned,
    /// In the list of pinned events, in its first [`STATE_DUMP_ROOM`] bytes; else nowhere.
    ///
    /// [`STATE_DUMP_ROOM`]: tompion_layout::pinned::STATE_DUMP_ROOM
    StateDump,
}

impl Event<'_> {
    /// Bytes of the fixed part and the tails.
    pub(crate) fn payload_len(&self) -> usize {
        self.tails.iter().fold(self.image_len, |sum, tail| sum.saturating_add(tail.size))
    }
}

/// Outcome of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// The record is in the ring, whatever happens from now on.
    Written,
    /// The event was lost, and counted.
    Lost(Cause),
    /// There is no recording.
    NotRecording,
}

#[cfg(not(loom))]
impl Outcome {
    /// Codes that sections return, too.
    const WRITTEN: u32 = 0;
    const NOT_RECORDING: u32 = 1;
    const LOST: u32 = 2;

    /// The outcome as the section returns it: 0 is the one that it decides itself.
    pub(crate) fn from_number(number: u32) -> Self {
        match number {
            Self::WRITTEN => Self::Written,
            Self::NOT_RECORDING => Self::NotRecording,
            lost => {
                let cause = Cause::ALL.get((lost - Self::LOST) as usize);
                cause.map_or(Self::NotRecording, |&cause| Self::Lost(cause))
            }
        }
    }

    pub(crate) fn to_number(self) -> u32 {
        match self {
            Self::Written => Self::WRITTEN,
            Self::NotRecording => Self::NOT_RECORDING,
            Self::Lost(cause) => Self::LOST + cause as u32,
        }
    }
}
