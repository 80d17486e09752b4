//! Starts that are written down before they are made: a supervisor that is killed while it starts a
//! recorder leaves one that the next supervisor finds.
//!
//! ```text
//! .supervisor/RECORDING.starting        until the session's own file has the recorder
//! .supervisor/UID.RECORDING.starting    one of a user with a grant
//! ```
//!
//! The recorder's process is found by the folder of its trace, which no other recorder has in its
//! command line.

use std::{
    fs, io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use tompion_os::DirHandle;

use crate::{grantee::Grantee, key::SessionKey, process::ProcessIdentity, session_file::SessionFile};

/// Largest file that is read.
const MAX_FILE: u64 = 1 << 20;
pub const ENDING: &str = ".starting";
/// Time for a process that was just made to execute the recorder, and interval between two looks.
const EXECUTION_TIME: Duration = Duration::from_millis(500);
const INTERVAL: Duration = Duration::from_millis(10);

/// Start of a channel's recorder.
#[derive(Debug, Serialize, Deserialize)]
pub struct Intent {
    /// The user with the grant, if the session is one's.
    pub user: Option<u32>,
    /// Name of the session.
    pub name: String,
    pub channel: String,
    pub session: SessionFile,
    pub folder: PathBuf,
    /// Number of failures before it.
    pub restarts: u32,
    /// The user that it records for, if that is by a grant.
    pub grantee: Option<Grantee>,
}

impl Intent {
    /// Writes it down.
    ///
    /// # Errors
    /// If the file can't be written: then nothing may be started.
    pub fn write(&self, file: &str, runtime: &DirHandle) -> io::Result<()> {
        runtime.replace(file, &serde_json::to_vec(self)?, false)
    }

    /// Its session.
    pub fn key(&self) -> SessionKey {
        SessionKey { user: self.user, name: self.name.clone() }
    }

    /// Returns the recorder that was started, if it runs. The process may have been made a moment
    /// ago.
    pub fn process(&self) -> Option<ProcessIdentity> {
        let deadline = Instant::now() + EXECUTION_TIME;
        loop {
            match find(&self.folder) {
                None if Instant::now() < deadline => thread::sleep(INTERVAL),
                found => return found,
            }
        }
    }
}

/// Reads what an earlier supervisor has left, with the files' names.
pub fn read_all(runtime: &DirHandle) -> Vec<(String, Result<Intent, String>)> {
    let names = runtime.names().unwrap_or_default();
    let files = names.iter().filter_map(|name| name.to_str().filter(|name| name.ends_with(ENDING)));
    let read = |file: &str| {
        let bytes = runtime.read_bounded(file, MAX_FILE).map_err(|error| error.to_string())?;
        serde_json::from_slice(&bytes).map_err(|error| error.to_string())
    };
    files.map(|file| (file.to_owned(), read(file))).collect()
}

/// Finds the recorder of a trace among this user's processes. Its keeper, which may have the same
/// command line, has begun later.
fn find(folder: &Path) -> Option<ProcessIdentity> {
    let own = tompion_os::effective_user();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let recorders = pids.filter(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        // Another user's process can have any command line.
        records_into(&line, folder) && tompion_os::users_of(*pid).first() == Some(&own)
    });
    let known = recorders.filter_map(|pid| {
        let start_ticks = tompion_os::start_ticks(pid)?;
        Some(ProcessIdentity { pid, start_ticks })
    });
    known.min_by_key(|process| (process.start_ticks, process.pid))
}

/// Whether a command line is that of a recorder of this folder, as supervisors start it.
fn records_into(line: &[u8], folder: &Path) -> bool {
    let mut words = line.split(|byte| *byte == 0).skip(1);
    words.next() == Some(b"record")
        && words.any(|word| word == b"--output")
        && words.next() == Some(folder.as_os_str().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorder_is_known_by_the_folder_in_its_command_line() {
        let line = b"/usr/bin/tompion\0record\0--session\0a\0--output\0/traces/a-1\0--mode\0overwrite\0";
        assert!(records_into(line, Path::new("/traces/a-1")));
        assert!(!records_into(line, Path::new("/traces/a")) && !records_into(b"", Path::new("/traces/a-1")));
        let other = b"sh\0-c\0record --output /traces/a-1\0";
        assert!(!records_into(other, Path::new("/traces/a-1")));
    }
}
