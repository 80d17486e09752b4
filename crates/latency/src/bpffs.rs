//! Pinned programs and maps of a monitor: files of the BPF file system, which outlive their loader.
//!
//! ```text
//! /sys/fs/bpf/NAME/       array-control, array-processors, …, program-waking, link-waking, …
//! /sys/fs/bpf/NAME:PID/   the same, while process PID creates or removes it; leftovers are removed
//!
//! Names in that file system have no dots. A rename publishes or withdraws everything at once, so
//! that a reader never finds a part.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

use crate::Error;

/// Mount point. Source: `Documentation/bpf` and `mount(8)`; systemd, libbpf and bpftool use it too.
const FILE_SYSTEM: &str = "/sys/fs/bpf";
const RUN: &str = "/run";

/// Files of a monitor.
#[derive(Clone, Debug)]
pub struct Pins {
    name: String,
    folder: PathBuf,
}

impl Pins {
    /// Finds the files of a name.
    pub fn of(name: &str) -> Result<Self, Error> {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
        if name.is_empty() || name.len() > 64 || !name.chars().all(is_plain) {
            return Err(Error::Name(name.into()));
        }
        Ok(Self { name: name.into(), folder: place_of(Path::new(FILE_SYSTEM), name) })
    }

    /// Folder of the pinned files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Path of the snapshot from which reports begin.
    pub fn since(&self) -> PathBuf {
        Path::new(RUN).join(&self.name).join("since.json")
    }

    /// Creates a temporary folder for this process.
    pub fn prepare(&self) -> Result<PathBuf, Error> {
        mount()?;
        self.sweep();
        let fresh = self.own();
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&fresh)
            .map_err(|error| Error::file("can't make", &fresh, error))?;
        Ok(fresh)
    }

    fn own(&self) -> PathBuf {
        Path::new(FILE_SYSTEM).join(format!("{}:{}", self.name, std::process::id()))
    }

    /// Publishes a prepared folder. Returns false, and removes it, if another one exists.
    pub fn publish(&self, fresh: &Path) -> Result<bool, Error> {
        // The file system replaces empty folders and refuses others.
        match fs::rename(fresh, &self.folder) {
            Ok(()) => Ok(true),
            Err(_) if self.folder.exists() => {
                remove(fresh);
                Ok(false)
            }
            Err(error) => {
                remove(fresh);
                Err(Error::file("can't make", &self.folder, error))
            }
        }
    }

    /// Removes all files. Returns false if there were none.
    pub fn withdraw(&self) -> Result<bool, Error> {
        let aside = self.own();
        match fs::rename(&self.folder, &aside) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(Error::file("can't remove", &self.folder, error)),
        }
        remove(&aside);
        let since = self.since();
        let _ = fs::remove_file(&since);
        let _ = since.parent().map(fs::remove_dir);
        self.sweep();
        Ok(true)
    }

    /// Removes the temporary folders of killed processes.
    fn sweep(&self) {
        let Ok(entries) = fs::read_dir(FILE_SYSTEM) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let pid = name.to_str().and_then(|name| name.strip_prefix(&self.name)?.strip_prefix(':'));
            if pid.is_some_and(|pid| pid.parse::<u32>().is_ok() && !Path::new("/proc").join(pid).exists()) {
                remove(&entry.path());
            }
        }
    }
}

/// Maximum number of folders tried for one name that other users have taken.
const MAX_PLACES: u32 = 16;

/// Returns the existing or future folder of a name. If the file system is writable for other users,
/// they may have taken the name; then the next one with a number is used.
fn place_of(file_system: &Path, name: &str) -> PathBuf {
    let numbered = (2..=MAX_PLACES).map(|number| format!("{name}-{number}"));
    let places: Vec<PathBuf> =
        std::iter::once(name.to_owned()).chain(numbered).map(|name| file_system.join(name)).collect();
    let own = tompion_os::effective_user();
    let owner = |place: &PathBuf| fs::symlink_metadata(place).ok().map(|found| found.uid());
    let ours = places.iter().find(|place| owner(place) == Some(own));
    let free = || places.iter().find(|place| owner(place).is_none());
    ours.or_else(free).or(places.first()).cloned().unwrap_or_default()
}

/// Removes a folder of pinned files. The next process retries what could not be removed.
pub fn remove(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let _ = fs::remove_file(entry.path());
    }
    let _ = fs::remove_dir(folder);
}

/// Mounts the file system if needed: only there, programs outlive their loader.
fn mount() -> Result<(), Error> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let is_there = mounts.lines().any(|line| {
        let mut words = line.split(' ').skip(1);
        words.next() == Some(FILE_SYSTEM) && words.next() == Some("bpf")
    });
    if is_there {
        return Ok(());
    }
    tompion_os::mount(c"bpf", c"/sys/fs/bpf", c"mode=0700").map_err(|error| Error::Obstacle {
        found: format!("the BPF file system is not mounted on {FILE_SYSTEM}, and can't be: {error}"),
        mend: "as root: mount -t bpf bpf /sys/fs/bpf",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_nowhere_else() {
        for name in ["", "../x", "a/b", "a.1", "ä", &"x".repeat(65)] {
            assert!(matches!(Pins::of(name), Err(Error::Name(_))), "{name}");
        }
        assert_eq!(Pins::of("robot-2").unwrap().folder(), Path::new("/sys/fs/bpf/robot-2"));
    }

    #[test]
    fn a_name_that_another_user_has_taken_is_gone_round() {
        if tompion_os::effective_user() != 0 {
            eprintln!("SKIPPED, only root can give folders away");
            return;
        }
        let desk = tempfile::tempdir().unwrap();
        let place = |name: &str| desk.path().join(name);
        assert_eq!(place_of(desk.path(), "watch"), place("watch"));
        fs::create_dir(place("watch")).unwrap();
        std::os::unix::fs::chown(place("watch"), Some(65534), None).unwrap();
        assert_eq!(place_of(desk.path(), "watch"), place("watch-2"));
        // Also after the other user leaves.
        fs::create_dir(place("watch-2")).unwrap();
        fs::remove_dir(place("watch")).unwrap();
        assert_eq!(place_of(desk.path(), "watch"), place("watch-2"));
    }
}
