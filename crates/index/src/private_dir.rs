//! Directory of this user that is held open: files are found in it even if another directory takes
//! its place.

use std::fs::{DirBuilder, File, Metadata};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags};

/// Permissions of its files.
const OWN: Mode = Mode::RUSR.union(Mode::WUSR);
/// Flags for opening files: no links, no waiting.
const FILE: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);

/// Open directory to which no other user may write.
#[derive(Clone, Debug)]
pub struct PrivateDir(Arc<OwnedFd>);

impl PrivateDir {
    /// Opens the directory and creates it if it is missing, but not its parents.
    ///
    /// # Errors
    ///
    /// If it is not a directory, has another owner, is writable by others, or is not writable.
    pub fn open(path: &Path) -> io::Result<Self> {
        if path.symlink_metadata().is_err() {
            DirBuilder::new().mode(0o700).create(path)?;
        }
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(CWD, path, flags, Mode::empty());
        let opened = opened.map_err(|error| match error {
            rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR => {
                io::Error::other("expected a folder, found a link or a file; remove it")
            }
            other => other.into(),
        })?;
        let file = File::from(opened);
        if !is_ours(&file.metadata()?) {
            return Err(io::Error::other(
                "expected a folder that is yours alone, found one of another user, or that others may write to",
            ));
        }
        let folder = Self(Arc::new(file.into()));
        // The user's own directory may be on a read-only medium.
        let probe = format!("probe.{}", std::process::id());
        let _ = folder.remove(&probe);
        folder.create(&probe)?;
        folder.remove(&probe)?;
        Ok(folder)
    }

    /// Returns its current path.
    pub fn path(&self) -> Option<PathBuf> {
        std::fs::read_link(format!("/proc/self/fd/{}", self.0.as_raw_fd())).ok()
    }

    /// Creates a file.
    ///
    /// # Errors
    ///
    /// If it can't be created, or exists.
    pub fn create(&self, name: &str) -> io::Result<File> {
        let flags = FILE | OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        Ok(rustix::fs::openat(&*self.0, name, flags, OWN)?.into())
    }

    /// Creates a file without a name, which vanishes when it is closed unless it is named.
    ///
    /// # Errors
    ///
    /// If the file system has no such files, or none can be created.
    pub fn create_nameless(&self) -> io::Result<File> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&*self.0, ".", flags, OWN)?.into())
    }

    /// Gives a name to a file without one.
    ///
    /// # Errors
    ///
    /// If the name exists, or the file was removed.
    pub fn name(&self, file: &File, name: &str) -> io::Result<()> {
        let own = format!("/proc/self/fd/{}", file.as_raw_fd());
        Ok(rustix::fs::linkat(CWD, own, &*self.0, name, AtFlags::SYMLINK_FOLLOW)?)
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    ///
    /// If it can't be opened, or other users may write to it.
    pub fn read(&self, name: &str) -> io::Result<File> {
        let file: File = rustix::fs::openat(&*self.0, name, FILE | OFlags::RDONLY, Mode::empty())?.into();
        let metadata = file.metadata()?;
        match metadata.is_file() && is_ours(&metadata) {
            true => Ok(file),
            false => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }

    /// Renames a file and replaces an existing one.
    ///
    /// # Errors
    ///
    /// If it can't be renamed.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&*self.0, from, &*self.0, to)?)
    }

    /// Removes a file.
    ///
    /// # Errors
    ///
    /// If it can't be removed.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&*self.0, name, AtFlags::empty())?)
    }

    /// Returns the names of its files that are valid UTF-8.
    ///
    /// # Errors
    ///
    /// If it can't be read.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let entries = Dir::read_from(&*self.0)?;
        let name = |entry: rustix::fs::DirEntry| Some(entry.file_name().to_str().ok()?.to_owned());
        Ok(entries.filter_map(|entry| name(entry.ok()?)).collect())
    }
}

/// Whether it belongs to this user, and no other user may write to it.
fn is_ours(metadata: &Metadata) -> bool {
    // Under sudo, the user that called it.
    tompion_os::file_user() == metadata.uid() && metadata.mode() & 0o022 == 0
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::PrivateDir;

    #[test]
    fn a_link_that_is_put_in_its_place_later_leads_nowhere() {
        let desk = tempfile::tempdir().unwrap();
        let (path, elsewhere) = (desk.path().join("kept"), desk.path().join("elsewhere"));
        std::fs::create_dir(&elsewhere).unwrap();
        let folder = PrivateDir::open(&path).unwrap();
        std::fs::rename(&path, desk.path().join("moved")).unwrap();
        symlink(&elsewhere, &path).unwrap();
        folder.create("index").unwrap();
        folder.create("notes.new").unwrap();
        folder.rename("notes.new", "notes").unwrap();
        assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
        let mut names = folder.names().unwrap();
        names.sort();
        assert_eq!(names, [".", "..", "index", "notes"]);
        // A new open fails as well, with one line.
        let error = PrivateDir::open(&path).unwrap_err().to_string();
        assert!(error.contains("found a link") && !error.contains('\n'), "{error}");
    }

    #[test]
    fn a_link_in_the_place_of_a_file_is_not_followed() {
        let desk = tempfile::tempdir().unwrap();
        let folder = PrivateDir::open(&desk.path().join("kept")).unwrap();
        let secret = desk.path().join("secret");
        std::fs::write(&secret, "mine").unwrap();
        symlink(&secret, desk.path().join("kept/notes")).unwrap();
        assert!(folder.read("notes").is_err());
        assert!(folder.create("notes").is_err());
        assert_eq!(std::fs::read(&secret).unwrap(), b"mine");
    }

    #[test]
    fn a_file_without_a_name_leaves_nothing_unless_it_gets_one() {
        let desk = tempfile::tempdir().unwrap();
        let folder = PrivateDir::open(desk.path()).unwrap();
        // Not every file system has such files.
        let Ok(file) = folder.create_nameless() else { return };
        assert_eq!(std::fs::read_dir(desk.path()).unwrap().count(), 0);
        folder.name(&file, "index").unwrap();
        assert!(folder.read("index").is_ok());
    }
}
