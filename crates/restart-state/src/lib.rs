//! State of a recording that outlasts its recorder: samples of its clocks, its processes, the chunk
//! in which it is, and the steps by which a chunk ends.
//!
//! ```text
//! .restart/, or the folder of --backing
//! ├── clock                  samples: "TOMPCLK1", then tsc, ns and check for each
//! ├── ended.json             processes that have ended: in the open chunk, and in all
//! ├── chunk-000003.json      what the open chunk began with
//! ├── chunk-000004.json      what the next one is to begin with, while the chunk ends
//! ├── cleared-000003.json    what it is to begin with again, while it is dropped
//! └── server-4711/           process.json, and copies of what each chunk repeats of a process
//! ```
//!
//! A rotation has these steps. The recorder may be killed between any two:
//!
//! 1. all packets are written, and the rings' room is given back
//! 2. `ended.json` has all processes that ended; their rings go      [`Ended::write`]
//! 3. the state of the next chunk is written                         [`ChunkBegin::write`]
//! 4. the chunk's manifest is written
//! 5. its folder is renamed
//! 6. the next folder is made
//! 7. the state of the chunk before is removed                       [`forget`]
//!
//! With the manifest of step 4 the chunk is complete, so the next recorder only renames it. Before,
//! it goes on in the chunk, and the state of step 3 is void. To drop a chunk has these steps:
//!
//! 1. and 2. as above
//! 3. the state with which it begins again is written                [`ChunkBegin::write_cleared`]
//! 4. its folder gets a hidden name
//! 5. that state takes the place of the chunk's, and `ended.json` forgets the chunk
//! 6. the hidden folder is removed, and a new one made
//!
//! From step 4 on, the next recorder does the rest. What is in a trace is left to others.
#![forbid(unsafe_code)]

mod clock;
mod ended;
mod files;
mod policy;
mod process;
mod takeover;

use std::{collections::BTreeMap, io};

use serde::{Deserialize, Serialize};
use tompion_manifest::Counts;
use tompion_os::DirHandle;
use tompion_writer::SavedTrace;

pub use clock::{ClockFile, has_clock, read_clock};
pub use ended::{Ended, drop_from};
pub use policy::SavedPolicy;
pub use process::{PROCESS_FILE, SavedIdentity, SavedProcess, processes};
pub use takeover::{TakeOver, take_over};

/// State with which a chunk begins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkBegin {
    /// Number of the chunk.
    pub number: u64,
    /// Time of its begin, by CLOCK_MONOTONIC in nanoseconds; none if it is not known.
    pub begin_ns: Option<u64>,
    /// Processes that were recorded then, by their numbers in the session.
    pub processes: BTreeMap<u64, ProcessBegin>,
    /// The kernel, if it is recorded and has begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<ProcessBegin>,
}

/// State of a process, or of the kernel, at the begin of a chunk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessBegin {
    /// Counts that earlier chunks have.
    pub counts: Counts,
    /// State of its trace.
    pub trace: SavedTrace,
}

impl ChunkBegin {
    /// Writes the state of the chunk that is to come.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn write(&self, backing: &DirHandle, is_durable: bool) -> io::Result<()> {
        files::write(backing, &files::begin_of(self.number), self, is_durable)
    }

    /// Writes the state with which the open chunk begins again once it is dropped.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn write_cleared(&self, backing: &DirHandle, is_durable: bool) -> io::Result<()> {
        files::write(backing, &files::cleared(self.number), self, is_durable)
    }

    /// Has that state take the place of the one before.
    ///
    /// # Errors
    /// The file can't be renamed.
    pub fn confirm_cleared(&self, backing: &DirHandle) -> io::Result<()> {
        backing.rename(files::cleared(self.number), backing, files::begin_of(self.number))
    }
}

/// Removes the state of a chunk that is committed.
pub fn forget(backing: &DirHandle, number: u64) {
    // What stays is removed by the next recorder, or with the folder.
    let _ = backing.remove(files::begin_of(number));
}
