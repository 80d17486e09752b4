//! Running recordings, and snapshots of their flight recorders on request of another process.
//!
//! A recorder writes its process id and start time into the manifest of its trace, and takes
//! SIGUSR1 as the request for a snapshot. When the snapshot is on disk, the manifest says so. A
//! process is only sent the signal if three things agree: it is a `tompion`, it has the trace's
//! folder or a file in it open, and the manifest names it. So neither a forged manifest nor a
//! reused process id leads the signal to another process.
#![forbid(unsafe_code)]

use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use tompion_lineage::proc_files::{all_processes, stat_field};
use tompion_manifest::{self as manifest, Manifest, Recorder};
use tompion_os::{DirHandle, FileRights, ProcessWatch, signal::SIGUSR1, users_of};

/// Words in the invocation of recorders that another command starts for itself; `tell-jobs` is the
/// earlier name of `job-agent`.
const COMPANION_WORDS: [&str; 3] = ["--selector", "job-agent", "tell-jobs"];
/// Name of the command that records.
const COMMAND: &str = "tompion";
/// Levels between a file that a recorder has open and the trace's folder.
const MAX_DEPTH: usize = 4;
/// Time for a recorder to save what it holds.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval between two looks at the manifest.
const MANIFEST_INTERVAL: Duration = Duration::from_millis(5);

/// Returns the calling process, as manifests name it.
pub fn own_recorder() -> Option<Recorder> {
    recorder_of("self")
}

/// Returns a process by its name below `/proc`, as manifests name it.
fn recorder_of(process: &str) -> Option<Recorder> {
    let start_ticks = stat_field(Path::new(&format!("/proc/{process}")), 22)?;
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let pids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    Some(Recorder { pid: pids.split_whitespace().next_back()?.parse().ok()?, start_ticks })
}

/// Reason why there is no snapshot.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// There is no such process.
    #[error("there is no process {0}")]
    NoProcess(u32),
    /// The process doesn't record.
    #[error("process {0} is not a running recorder; tompion snapshot without an argument lists them")]
    NoRecorder(u32),
    /// The process may not be asked.
    #[error(
        "process {pid} belongs to user {user}, and the calling user may not signal it; try: sudo tompion snapshot {pid}"
    )]
    OtherUser {
        /// The process.
        pid: u32,
        /// Its user.
        user: u32,
    },
    /// The folder has no manifest that can be read.
    #[error("{0}")]
    NoManifest(String),
    /// The recording is over.
    #[error("{0} is no longer being recorded; all of it is on disk")]
    Ended(PathBuf),
    /// The recorder was killed, and the trace was not completed.
    #[error("{0} is no longer recorded, and its recorder did not finish; next: tompion recover {0}")]
    Killed(PathBuf),
    /// Nothing is held back that could be saved.
    #[error(
        "{0} is recorded in discard mode, which writes everything as it comes; snapshots are for --mode overwrite"
    )]
    NoFlightRecorder(PathBuf),
    /// The recorder didn't say that it was done.
    #[error("the recorder (process {0}) has not saved a snapshot within {timeout} s", timeout = SNAPSHOT_TIMEOUT.as_secs())]
    Timeout(u32),
    /// The signal could not be sent.
    #[error("can't ask process {0}: {1}")]
    Signal(u32, io::Error),
}

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saved {
    /// A snapshot with this many events is on disk.
    Events(u64),
    /// The recording ended in order meanwhile: all that it held is on disk.
    Ended,
}

/// A recording that goes on.
#[derive(Debug)]
pub struct Running {
    /// The recorder's process id, as the caller sees it.
    pub pid: u32,
    /// Folder of the trace.
    pub folder: PathBuf,
    /// The manifest, as it was a moment ago.
    pub manifest: Manifest,
    process: ProcessWatch,
    /// The folder, held open: its owner may put something else in its place.
    directory: DirHandle,
}

impl Running {
    /// Finds the recordings of some users, without those that another command of Tompion's has
    /// begun for itself.
    pub fn of_users(users: &[u32]) -> Vec<Self> {
        let of_users = all_processes().filter(|pid| user_of(*pid).is_some_and(|user| users.contains(&user)));
        let recordings = of_users.filter_map(|pid| Self::of_process(pid).ok());
        recordings.filter(|running| !running.is_companion()).collect()
    }

    /// Finds what a process records.
    ///
    /// # Errors
    /// If it records nothing, or the caller may not look.
    pub fn of_process(pid: u32) -> Result<Self, SnapshotError> {
        // Held from here on: whatever is found out is of this process, and the signal goes to no
        // other.
        let process = ProcessWatch::new(pid).map_err(|_| SnapshotError::NoProcess(pid))?;
        let user = user_of(pid).ok_or(SnapshotError::NoProcess(pid))?;
        if tompion_os::name_of(&pid.to_string()).is_none_or(|name| name != COMMAND) {
            return Err(SnapshotError::NoRecorder(pid));
        }
        // The recorder may be root's. Of what its descriptors lead to, a manifest alone is read.
        let _rights = FileRights::of_the_process().ok();
        let proc = PathBuf::from(format!("/proc/{pid}"));
        let files = fs::read_dir(proc.join("fd"));
        let files = files.map_err(|_| SnapshotError::OtherUser { pid, user })?;
        let open = files.flatten().filter_map(|file| fs::read_link(file.path()).ok());
        let places = open.filter(|path| path.is_absolute());
        let folders: BTreeSet<PathBuf> = places
            .flat_map(|path| path.ancestors().take(MAX_DEPTH).map(Path::to_owned).collect::<Vec<_>>())
            .collect();
        let recorder = recorder_of(&pid.to_string()).ok_or(SnapshotError::NoProcess(pid))?;
        let in_its_view =
            |folder: &PathBuf| proc.join("root").join(folder.strip_prefix("/").unwrap_or(folder));
        let recorded = |folder: PathBuf| {
            let directory = DirHandle::open(&folder).ok()?;
            let manifest = Manifest::read(&directory).ok()?;
            (manifest.is_recording() && manifest.session.recorder == Some(recorder))
                .then_some((directory, manifest))
        };
        // In a container it may be somewhere else.
        let mut candidates = folders.iter().flat_map(|folder| [folder.clone(), in_its_view(folder)]);
        let (directory, manifest) = candidates.find_map(recorded).ok_or(SnapshotError::NoRecorder(pid))?;
        if process.has_ended() || !takes_signal(pid, SIGUSR1) {
            return Err(SnapshotError::NoRecorder(pid));
        }
        Ok(Self { pid, folder: directory.path().to_owned(), manifest, process, directory })
    }

    /// Finds the process that records into a folder.
    ///
    /// # Errors
    /// If there is none, or the caller may not ask.
    pub fn of_trace(folder: &Path) -> Result<Self, SnapshotError> {
        let missing = |error| SnapshotError::NoManifest(format!("{}: {error}", folder.display()));
        let directory = DirHandle::open(folder).map_err(missing)?;
        let manifest = Manifest::read(&directory).map_err(SnapshotError::NoManifest)?;
        if !manifest.is_recording() {
            return Err(SnapshotError::Ended(folder.into()));
        }
        let killed = || SnapshotError::Killed(folder.into());
        let recorder = manifest.session.recorder.ok_or_else(killed)?;
        let identity =
            |directory: &DirHandle| directory.metadata().map(|found| (found.dev(), found.ino())).ok();
        let is_it = |running: &Self| identity(&running.directory) == identity(&directory);
        let as_named = |running| Self { folder: folder.into(), ..running };
        match Self::of_process(recorder.pid) {
            Ok(running) if is_it(&running) => return Ok(as_named(running)),
            Err(error @ SnapshotError::OtherUser { .. })
                if recorder_of(&recorder.pid.to_string()) == Some(recorder) =>
            {
                return Err(error);
            }
            _ => {}
        }
        // In a container, the recorder has another number there than here.
        let mut running = all_processes().filter_map(|pid| Self::of_process(pid).ok());
        running.find(is_it).map(as_named).ok_or_else(killed)
    }

    /// Says whether another command of Tompion's has begun it for itself, and saves what it holds
    /// in its own time.
    fn is_companion(&self) -> bool {
        self.manifest.session.invocation.iter().any(|word| COMPANION_WORDS.contains(&word.as_str()))
    }

    /// Says whether there is something to save.
    pub fn is_flight_recorder(&self) -> bool {
        self.manifest.session.channel.mode == manifest::OVERWRITE
    }

    /// Has what the flight recorder holds saved, and waits until it is on disk.
    ///
    /// # Errors
    /// If there is no flight recorder, the recorder may not be asked, or doesn't do it.
    pub fn save(&self) -> Result<Saved, SnapshotError> {
        if !self.is_flight_recorder() {
            return Err(SnapshotError::NoFlightRecorder(self.folder.clone()));
        }
        let asked = tompion_os::monotonic_ns();
        match self.process.send_signal(SIGUSR1) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let user = user_of(self.pid).unwrap_or_default();
                return Err(SnapshotError::OtherUser { pid: self.pid, user });
            }
            Err(_) if self.process.has_ended() => {}
            sent => sent.map_err(|error| SnapshotError::Signal(self.pid, error))?,
        }
        let _rights = FileRights::of_the_process().ok();
        let until = Instant::now() + SNAPSHOT_TIMEOUT;
        loop {
            // In this order: what it wrote before its end is seen.
            let has_ended = self.process.has_ended();
            if let Ok(manifest) = Manifest::read(&self.directory) {
                let saved = manifest.session.snapshot.as_ref().filter(|snapshot| snapshot.begun_ns >= asked);
                if let Some(snapshot) = saved {
                    return Ok(Saved::Events(snapshot.events));
                }
                if !manifest.is_recording() {
                    return Ok(Saved::Ended);
                }
            }
            if has_ended {
                return Err(SnapshotError::Killed(self.folder.clone()));
            }
            if Instant::now() > until {
                return Err(SnapshotError::Timeout(self.pid));
            }
            thread::sleep(MANIFEST_INTERVAL);
        }
    }
}

/// Returns the real user of a process, which may signal it.
fn user_of(pid: u32) -> Option<u32> {
    users_of(pid).first().copied()
}

/// Says whether a process's first thread takes a signal by a descriptor, as recorders do: others
/// would be killed by it.
fn takes_signal(pid: u32, signal: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
    let blocked = blocked.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
    blocked.is_some_and(|blocked| blocked & (1 << (signal - 1)) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_records_nothing_is_never_signalled() {
        let own = std::process::id();
        assert!(matches!(Running::of_process(own), Err(SnapshotError::NoRecorder(pid)) if pid == own));
        assert!(matches!(Running::of_process(u32::MAX / 2), Err(SnapshotError::NoProcess(_))));
        assert!(!takes_signal(own, SIGUSR1));
        assert_eq!(own_recorder(), recorder_of(&own.to_string()));
    }
}
