//! Hierarchy of the machine's cgroups.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use crate::Error;

/// Mounted unified hierarchy (cgroup v2).
#[derive(Clone, Debug)]
pub struct Cgroups {
    top: PathBuf,
}

impl Cgroups {
    /// Finds its mount point.
    ///
    /// If there is none: the machine has only cgroup v1, or none.
    pub fn find() -> Result<Self, Error> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let top = mounted(&mounts).ok_or_else(|| Error::Obstacle {
            found: "cgroups of version 2 are not mounted here: expected a file system `cgroup2` in \
                    /proc/self/mountinfo, found none"
                .into(),
            mend: "as root: mkdir -p /run/cgroup2 && mount -t cgroup2 cgroup2 /run/cgroup2",
        })?;
        Ok(Self { top })
    }

    /// Path of a cgroup within the hierarchy, also for an absolute path: `/sys/fs/cgroup/robot` is
    /// `/robot`.
    pub fn path_in(&self, text: &str) -> String {
        let stripped = Path::new(text).strip_prefix(&self.top).ok().and_then(Path::to_str);
        stripped.map_or_else(|| text.to_owned(), |rest| format!("/{rest}"))
    }

    /// Passes the path and number of each cgroup, with the bits of its parent, to `visit`, parents
    /// first; `visit` returns its own bits.
    pub(super) fn walk(&self, mut visit: impl FnMut(&str, u64, u32) -> u32) {
        let mut waiting = vec![(self.top.clone(), String::from("/"), 0)];
        while let Some((folder, path, above)) = waiting.pop() {
            // Cgroups come and go.
            let Ok(found) = fs::metadata(&folder) else { continue };
            // Source: `kernfs_id_ino` in the kernel's `include/linux/kernfs.h`: 64-bit inode
            // numbers are these.
            let bits = visit(&path, found.ino(), above);
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
                let (true, Ok(name)) = (is_folder, entry.file_name().into_string()) else { continue };
                let below = format!("{}/{name}", path.trim_end_matches('/'));
                waiting.push((entry.path(), below, bits));
            }
        }
    }
}

/// Mount point of the whole hierarchy. Source: `proc_pid_mountinfo(5)`.
fn mounted(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut words = before.split(' ').skip(3);
        let (root, top) = (words.next()?, words.next()?);
        (after.split(' ').next() == Some("cgroup2") && root == "/").then(|| PathBuf::from(top))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_version_is_found_beside_the_first() {
        let first = "30 22 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
        let part = "31 22 0:27 /docker/7 /box rw,nosuid - cgroup2 cgroup rw\n";
        let whole = "32 22 0:27 / /sys/fs/cgroup/unified rw shared:7 - cgroup2 cgroup2 rw\n";
        assert_eq!(mounted(&format!("{first}{part}{whole}")).unwrap(), Path::new("/sys/fs/cgroup/unified"));
        assert_eq!(mounted(&format!("{first}{part}torn -\n\n")), None);
    }

    #[test]
    fn paths_may_say_where_the_tree_is_mounted() {
        let tree = Cgroups { top: "/sys/fs/cgroup".into() };
        let paths = ["/sys/fs/cgroup/a/b*", "/a", "a", "/sys/fs/cgroupie", "/sys/fs/cgroup"];
        assert_eq!(paths.map(|path| tree.path_in(path)), ["/a/b*", "/a", "a", "/sys/fs/cgroupie", "/"]);
    }

    #[test]
    fn bits_are_handed_down() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("a/b/c")).unwrap();
        fs::create_dir(folder.path().join("d")).unwrap();
        let mut visited = Vec::new();
        Cgroups { top: folder.path().into() }.walk(|path, _, above| {
            let bits = above | u32::from(path == "/a/b");
            visited.push((path.to_owned(), bits));
            bits
        });
        visited.sort();
        let expected = [("/", 0), ("/a", 0), ("/a/b", 1), ("/a/b/c", 1), ("/d", 0)];
        assert_eq!(visited, expected.map(|(path, bits)| (path.to_owned(), bits)));
    }
}
