//! Locks on folders, which the kernel opens when their holder is gone, however it went.

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd, OwnedFd},
    path::Path,
};

use crate::check;

/// A folder that is locked until this is dropped.
#[derive(Debug)]
pub struct Lock(#[allow(dead_code, reason = "the descriptor holds the lock")] OwnedFd);

/// Locks a folder for the caller alone; `None` if somebody else has. Source: `flock(2)`.
///
/// Children don't inherit the lock: its descriptor is closed when they execute a program.
pub fn try_lock(folder: &Path) -> io::Result<Option<Lock>> {
    lock(folder, libc::LOCK_EX)
}

/// Whether nobody has locked a folder for himself alone, as far as can be told.
pub fn is_unlocked(folder: &Path) -> bool {
    lock(folder, libc::LOCK_SH).is_ok_and(|lock| lock.is_some())
}

fn lock(folder: &Path, how: libc::c_int) -> io::Result<Option<Lock>> {
    let file = File::open(folder)?;
    // SAFETY: a plain system call on an open descriptor.
    match check(unsafe { libc::flock(file.as_raw_fd(), how | libc::LOCK_NB) }) {
        Ok(_) => Ok(Some(Lock(file.into()))),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_locked_by_one_at_a_time() {
        let folder = std::env::temp_dir().join(format!("tompion-lock-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let first = try_lock(&folder).unwrap();
        assert!(first.is_some() && try_lock(&folder).unwrap().is_none());
        assert!(!is_unlocked(&folder));
        drop(first);
        assert!(is_unlocked(&folder));
        assert!(try_lock(&folder).unwrap().is_some());
        std::fs::remove_dir(&folder).unwrap();
    }
}
