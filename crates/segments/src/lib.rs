//! Segments of traces: immutable, numbered, checksummed pieces of the files of a recording, as they
//! are sent to other machines and stored there.
//!
//! ```text
//! trace folder ──Recording──► files ──Cursor──► Segment ──encode──► bytes of a request or object
//!                                                  │
//! the same folder elsewhere ◄── Ledger (which segments are there) ◄── decode ──┘
//! ```
//!
//! A file is the sequence of its segments. Each says at which offset it continues the file, or that
//! the file begins again. Bytes are in a segment only if recovery never cuts them off: whole
//! packets with a correct checksum. So sending behind a writer, and after its death, is safe.
//! segments travel, and permissions, are left to others.
#![forbid(unsafe_code)]

mod content;
mod cursor;
mod journal;
mod ledger;
mod name;
mod packets;
mod recording;
mod segment;

pub use content::{ContentSum, digest};
pub use cursor::{Cursor, MAX_PIECE};
pub use journal::{JOURNAL_FOLDER, Journal, JournalError};
pub use ledger::{Admission, ChunkState, Conflict, End, FileState};
pub use name::{FilePath, Label, MAX_DEPTH, Name, NameError, Place, SessionPlace};
pub use recording::{LocalChunk, LocalFile, Look, Recording, WHOLE, find_recordings};
pub use segment::{Checksum, HEADER_SIZE, Header, Kind, MAX_ENCODED, MAX_RAW, Segment, SegmentError};
