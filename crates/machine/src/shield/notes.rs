//! Notes of changes, written before each change is made; the changes are undone from them alone.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use tompion_os::{DirHandle, Lock};

use super::{Error, threads};
use crate::{CpuSet, Root, root::words_of};

/// Folder of the notes. A restart of the machine empties `/run`, and undoes the changes.
pub const FOLDER: &str = "/run/tompion/shield";
const CHANGES: &str = "/run/tompion/shield/changes";
const HOLDER: &str = "/run/tompion/shield/holder";

/// Time to wait for another holder of the notes: the guardian of a shield that was just lowered
/// reads them, and a program that was just started has its copy of the lock until it executes.
const HOLDER_TIMEOUT: Duration = Duration::from_secs(1);
/// Time in which a group must become empty.
const WAIT_TIMEOUT: Duration = Duration::from_secs(5);

/// A change, with what undoes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Change {
    /// A file gets another text.
    Setting { path: String, before: String },
    /// The controller of CPUs is turned on for the groups in this folder.
    Controller { folder: String },
    /// A control group is made. When it is removed, its threads move to another one; both by files
    /// of this name.
    Group { folder: String, home: String, members: String },
    /// A thread may run on other CPUs. It is the one that started then, in the kernel's ticks.
    Thread { tid: u32, started: u64, before: String },
}

/// The name of a file in the folder.
fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The notes, held by this process alone.
#[derive(Debug)]
pub(super) struct Notes {
    root: Root,
    folder: DirHandle,
    file: File,
    _lock: Lock,
}

impl Notes {
    /// Opens the notes, unless another process keeps them locked.
    pub(super) fn lock(root: &Root) -> Result<Self, Error> {
        let unwritten = |error| Error::Unwritten(FOLDER.into(), error);
        let folder = DirHandle::open_or_create(&root.place(FOLDER)).map_err(unwritten)?;
        let begin = Instant::now();
        let mut lock = tompion_os::try_lock(&folder).map_err(unwritten)?;
        while lock.is_none() && begin.elapsed() < HOLDER_TIMEOUT {
            thread::sleep(Duration::from_millis(10));
            lock = tompion_os::try_lock(&folder).map_err(unwritten)?;
        }
        let Some(lock) = lock else {
            let holder = root.read_if_any(HOLDER).filter(|holder| holder.parse::<u32>().is_ok());
            return Err(Error::Busy(holder.unwrap_or_else(|| "of unknown number".into())));
        };
        let holder = std::process::id().to_string();
        folder.replace(name_of(HOLDER), holder.as_bytes(), false).map_err(unwritten)?;
        let file = folder.append(name_of(CHANGES)).map_err(unwritten)?;
        Ok(Self { root: root.clone(), folder, file, _lock: lock })
    }

    /// Notes a change that is about to be made.
    pub(super) fn add(&mut self, change: &Change) -> Result<(), Error> {
        let unwritten = |error| Error::Unwritten(CHANGES.into(), error);
        let mut line = serde_json::to_vec(change).map_err(|error| unwritten(error.into()))?;
        line.push(b'\n');
        // In one call, so that a kill leaves no half of it.
        self.file.write_all(&line).map_err(unwritten)
    }

    /// Notes that a file changes, and changes it.
    pub(super) fn set(&mut self, path: &str, before: &str, after: &str) -> Result<(), Error> {
        self.add(&Change::Setting { path: path.to_owned(), before: before.to_owned() })?;
        self.root.write(path, after).map_err(|error| Error::Unwritten(path.to_owned(), error))
    }

    /// Whether there is nothing to undo.
    pub(super) fn are_empty(&self) -> bool {
        self.changes().is_empty()
    }

    /// Changes noted so far. A line that a kill cut short notes a change that was not made.
    fn changes(&self) -> Vec<Change> {
        let text = self.root.read_if_any(CHANGES).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Undoes all changes, the last one first. What could not be undone stays noted, and is
    /// returned as a line each.
    pub(super) fn undo(&mut self) -> Vec<String> {
        let (mut problems, mut kept) = (Vec::new(), Vec::new());
        for change in self.changes().into_iter().rev() {
            if let Err(problem) = self.undo_one(&change) {
                problems.push(problem);
                kept.push(change);
            }
        }
        kept.reverse();
        problems.extend(self.keep(&kept).err().map(|error| format!("can't write {CHANGES}: {error}")));
        problems
    }

    /// Leaves only these noted, at no instant fewer.
    fn keep(&mut self, changes: &[Change]) -> io::Result<()> {
        let lines = changes.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
        let text: String = lines.into_iter().map(|line| line + "\n").collect();
        self.folder.replace(name_of(CHANGES), text.as_bytes(), false)?;
        self.file = self.folder.append(name_of(CHANGES))?;
        Ok(())
    }

    fn undo_one(&self, change: &Change) -> Result<(), String> {
        match change {
            Change::Setting { path, before } => {
                let now = self.root.read(path);
                match now {
                    Ok(now) if now == *before => Ok(()),
                    // A device that is gone has no settings.
                    Err(unread) if unread.is_missing() => Ok(()),
                    _ => self.root.write(path, before).map_err(|error| {
                        format!("{path} stays {}: {}", now.unwrap_or_default(), words_of(&error))
                    }),
                }
            }
            Change::Controller { folder } => {
                let path = format!("{folder}/cgroup.subtree_control");
                self.root.write(&path, "-cpuset").map_err(|error| {
                    format!("the controller cpuset stays on in {path}: {}", words_of(&error))
                })
            }
            Change::Group { folder, home, members } => self.dissolve(folder, home, members),
            Change::Thread { tid, started, before } => {
                if threads::start_of(&self.root, *tid) != Some(*started) {
                    return Ok(());
                }
                let cpus = CpuSet::from_list(before).map_err(|error| format!("thread {tid}: {error}"))?;
                match threads::set_affinity(&self.root, *tid, &cpus) {
                    Err(error) if !threads::is_gone(&error) => {
                        Err(format!("thread {tid} does not get CPUs {before} back: {}", words_of(&error)))
                    }
                    _ => Ok(()),
                }
            }
        }
    }

    /// Moves all threads out of a group and removes it.
    fn dissolve(&self, folder: &str, home: &str, members: &str) -> Result<(), String> {
        let place = self.root.place(folder);
        let begin = Instant::now();
        loop {
            for member in self.root.read_if_any(&format!("{folder}/{members}")).unwrap_or_default().lines() {
                // Those that have ended, or that can't be moved, are seen when the group is
                // removed.
                let _ = self.root.write(&format!("{home}/{members}"), member);
            }
            match self.remove(&place) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) if begin.elapsed() >= WAIT_TIMEOUT => {
                    return Err(format!("control group {folder} stays: {}", words_of(&error)));
                }
                Err(_) => thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    /// A control group is removed although there are files in it; in a made-up tree they are
    /// removed first.
    fn remove(&self, place: &PathBuf) -> io::Result<()> {
        if self.root.is_real() { fs::remove_dir(place) } else { fs::remove_dir_all(place) }
    }
}
