//! Processes that have ended: the manifest of the open chunk is to name them, and that of the
//! recording has no sources.

use std::io;

use serde::{Deserialize, Serialize};
use tompion_manifest::{BeyondLimits, Source};
use tompion_os::DirHandle;

use crate::files;

const FILE: &str = "ended.json";

/// Processes that have ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Number of the chunk that was open.
    pub number: u64,
    /// Those that ended in it, with what they recorded in it.
    pub in_chunk: Vec<Source>,
    /// Those that its manifest has no room for.
    pub beyond_limits: BeyondLimits,
    /// Bytes of their packets in the chunk.
    pub bytes: u64,
    /// All that ended since the recording began, with all that they recorded.
    pub in_all: Vec<Source>,
}

impl Ended {
    /// Reads the file; of another chunk, only what counts for all. Errors are lines for people.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn read(backing: &DirHandle, number: u64) -> Result<Self, String> {
        let found = files::read::<Self>(backing, FILE)?.unwrap_or_default();
        Ok(if found.number == number {
            found
        } else {
            Self { number, in_all: found.in_all, ..Self::default() }
        })
    }

    /// Writes the file.
    ///
    /// # Errors
    /// It can't be written.
    pub fn write(&self, backing: &DirHandle, is_durable: bool) -> io::Result<()> {
        files::write(backing, FILE, self, is_durable)
    }

    /// Forgets what was recorded in the open chunk, which is dropped.
    pub fn drop_chunk(&mut self) {
        drop_from(&mut self.in_all, self.in_chunk.drain(..));
        (self.beyond_limits, self.bytes) = (BeyondLimits::default(), 0);
    }
}

/// Takes the events of a chunk that is dropped from the counts of the whole.
pub fn drop_from(in_all: &mut [Source], in_chunk: impl Iterator<Item = Source>) {
    for dropped in in_chunk {
        let is_it = |source: &&mut Source| (source.pid, &source.path) == (dropped.pid, &dropped.path);
        if let Some(source) = in_all.iter_mut().rev().find(is_it) {
            source.events = source.events.saturating_sub(dropped.events);
        }
    }
}
