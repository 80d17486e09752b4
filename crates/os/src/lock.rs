//! Locks on directories, which the kernel opens when their holder is gone, however it went.
//!
//! The lock is on a file in the directory that only its owner can open. A user that may read a
//! directory can lock the directory itself, and keep all others out.

use std::{
    ffi::OsStr,
    fs::File,
    io,
    os::{fd::AsRawFd, unix::fs::MetadataExt},
    path::Path,
};

use crate::{DirHandle, check};

/// The file in a locked directory.
const NAME: &str = ".tompion-lock";

/// A lock on a directory. The lock and its file go when this is dropped.
#[derive(Debug)]
pub struct Lock {
    directory: DirHandle,
    file: File,
}

/// Locks a directory for the caller alone; `None` if another program has. Source: `flock(2)`.
///
/// Children don't inherit the lock: its descriptor is closed when they execute a program.
///
/// # Errors
/// If the directory can't be written to, or the file system has no locks.
pub fn try_lock(directory: &DirHandle) -> io::Result<Option<Lock>> {
    loop {
        let file = directory.lock_file(OsStr::new(NAME))?;
        if !flock(&file, libc::LOCK_EX)? {
            return Ok(None);
        }
        // Its last holder may have removed it in between: then no other process would find this
        // lock.
        if file.metadata()?.nlink() != 0 {
            return Ok(Some(Lock { directory: directory.clone(), file }));
        }
    }
}

/// Locks a directory itself, where no file can be made. Only for one that no other user may open.
///
/// # Errors
/// As [`try_lock`].
pub fn try_lock_directory(directory: &Path) -> io::Result<Option<File>> {
    let file = File::open(directory)?;
    Ok(flock(&file, libc::LOCK_EX)?.then_some(file))
}

/// Whether no program has locked a directory, as far as can be told.
pub fn is_unlocked(directory: &Path) -> bool {
    let file = DirHandle::open(directory).and_then(|directory| directory.read(NAME));
    match file {
        Ok(file) => flock(&file, libc::LOCK_SH).unwrap_or(false),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// False if another program has locked the file.
fn flock(file: &File, how: libc::c_int) -> io::Result<bool> {
    // SAFETY: a plain system call on an open descriptor.
    match check(unsafe { libc::flock(file.as_raw_fd(), how | libc::LOCK_NB) }) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // While it is locked: a process that opens the file now finds that it has no name, and
        // opens it again.
        if self.file.metadata().is_ok_and(|file| file.nlink() != 0) {
            let _ = self.directory.remove(NAME);
        }
    }
}

#[cfg(test)]
mod tests {
    use tompion_testing::TestDir;

    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_directory_is_locked_by_one_at_a_time() {
        let dir = TestDir::new("lock");
        let path = dir.join("locked");
        let directory = DirHandle::create(&path).unwrap();
        let first = try_lock(&directory).unwrap();
        assert!(first.is_some() && try_lock(&directory).unwrap().is_none());
        assert!(!is_unlocked(&path));
        let mode = std::fs::metadata(path.join(NAME)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        drop(first);
        assert!(is_unlocked(&path) && !directory.has(NAME));
        // A user that may only read the directory can't keep others out.
        let looks = File::open(&path).unwrap();
        assert!(flock(&looks, libc::LOCK_EX).unwrap());
        assert!(try_lock(&directory).unwrap().is_some());
    }
}
