//! Where programs and arrays stay when nobody has them open: files of the BPF file system.
//!
//! ```text
//! /sys/fs/bpf/NAME/       array-control, array-processors, …, program-waking, link-waking, …
//! /sys/fs/bpf/NAME:PID/   the same, while process PID makes or removes it: what it leaves behind is removed
//! /run/NAME/since.json    the snapshot from which reports begin, after a reset
//! ```
//!
//! Names in that file system have no dots. A rename puts all in its place or takes it away at once, so that nobody finds a half.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

use crate::Error;

/// Source: `Documentation/bpf` and `mount(8)`; where systemd, libbpf and bpftool have it, too.
const FILE_SYSTEM: &str = "/sys/fs/bpf";
const RUN: &str = "/run";

/// The files of a monitor.
#[derive(Clone, Debug)]
pub struct Pins {
    name: String,
    folder: PathBuf,
}

impl Pins {
    /// Those of a name.
    pub fn of(name: &str) -> Result<Self, Error> {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
        if name.is_empty() || name.len() > 64 || !name.chars().all(is_plain) {
            return Err(Error::Name(name.into()));
        }
        Ok(Self { name: name.into(), folder: place_of(Path::new(FILE_SYSTEM), name) })
    }

    /// The folder with all of it.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where the snapshot stands from which reports begin.
    pub fn since(&self) -> PathBuf {
        Path::new(RUN).join(&self.name).join("since.json")
    }

    /// A folder for this process to fill.
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

    /// Puts what was prepared in its place. False if somebody else's is there: then it is gone.
    pub fn publish(&self, fresh: &Path) -> Result<bool, Error> {
        // The file system replaces folders that are empty, and refuses others.
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

    /// Removes all of it. False if there was nothing.
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

    /// Removes what processes have left that were killed while they made or removed it.
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

/// Folders of one name that are looked at, where other users have some.
const MAX_PLACES: u32 = 16;

/// Where the monitor of a name is, or would be. Where everybody may write to the file system, other users can have taken
/// the name: then it is the next one, with a number.
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

/// Removes a folder of pins. What can't be removed is tried again by the next one who looks.
pub fn remove(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let _ = fs::remove_file(entry.path());
    }
    let _ = fs::remove_dir(folder);
}

/// Mounts the file system where it belongs, unless that was done: it is the only place where programs outlive who has
/// loaded them.
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
        // Also when the other user leaves again.
        fs::create_dir(place("watch-2")).unwrap();
        fs::remove_dir(place("watch")).unwrap();
        assert_eq!(place_of(desk.path(), "watch"), place("watch-2"));
    }
}
