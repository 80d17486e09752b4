//! Tombstone of a chunk that its sender removed before all of it was sent: a file in the chunk's
//! folder at the receiver.

use std::io;

use serde::{Deserialize, Serialize};
use tompion_os::DirHandle;

/// Name of the hidden folder by which the copy of a recording is known that a receiver makes. No
/// recorder writes to it, so none of them is missed.
pub const RECEIVED_FOLDER: &str = ".segments";
/// Name of the file in a chunk's folder.
pub const DROPPED_FILE: &str = "tompion-dropped.json";
/// Largest file that is read, in bytes.
const MAX_FILE: u64 = 64 << 10;

/// Chunk that was dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DroppedChunk {
    /// Its number, from 1 on.
    pub number: u64,
    /// Reason, in words.
    #[serde(default)]
    pub reason: String,
}

impl DroppedChunk {
    /// Writes the file; the medium has it on return.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn write(&self, folder: &DirHandle) -> io::Result<()> {
        folder.replace(DROPPED_FILE, &serde_json::to_vec(self)?, true)
    }

    /// Reads the file; `None` if there is none that can be read.
    pub fn read(folder: &DirHandle) -> Option<Self> {
        let mut dropped: Self =
            serde_json::from_slice(&folder.read_bounded(DROPPED_FILE, MAX_FILE).ok()?).ok()?;
        dropped.reason.retain(|character| !character.is_control());
        Some(dropped)
    }
}

#[cfg(test)]
mod tests {
    use tompion_testing::TestDir;

    use super::*;

    #[test]
    fn tombstones_are_read_and_nonsense_is_none() {
        let dir = TestDir::new("dropped");
        let folder = DirHandle::open(&dir).unwrap();
        assert_eq!(DroppedChunk::read(&folder), None);
        let dropped = DroppedChunk { number: 3, reason: "removed before all of it was sent".into() };
        dropped.write(&folder).unwrap();
        assert_eq!(DroppedChunk::read(&folder), Some(dropped));
        std::fs::write(dir.join(DROPPED_FILE), r#"{"number":1,"reason":"a\u001b[31m"}"#).unwrap();
        assert_eq!(DroppedChunk::read(&folder).unwrap().reason, "a[31m");
        std::fs::write(dir.join(DROPPED_FILE), "nonsense").unwrap();
        assert_eq!(DroppedChunk::read(&folder), None);
    }
}
