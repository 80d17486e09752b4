//! Opening of files below a directory that is held open, without following a symbolic link.
//!
//! `openat2(2)` does it in one call. A seccomp filter may refuse that call, since it can't see the
//! flags in memory: systemd does with `RestrictSUIDSGID=`, and so do older container runtimes.
//! Linux before 5.6 hasn't got it. Then [`open_stepwise`] opens one directory after the other.

use std::{
    ffi::{CString, OsStr},
    io,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
        unix::ffi::OsStrExt,
    },
    path::{Component, Path},
};

use crate::{check, dir_handle::file_mode, last_error};

/// Flags of every descriptor: no link as the last component, no controlling terminal, no waiting
/// for a FIFO.
const SAFE: libc::c_int = libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;

/// Adds the safe flags. `O_PATH` neither needs nor permits all of them.
pub(crate) fn with_safe(flags: libc::c_int) -> libc::c_int {
    flags | if flags & libc::O_PATH != 0 { SAFE & (libc::O_NOFOLLOW | libc::O_CLOEXEC) } else { SAFE }
}

/// Opens one name in a directory, or `.`, `..` or `/`.
pub(crate) fn open_one(directory: RawFd, name: &OsStr, flags: libc::c_int) -> io::Result<OwnedFd> {
    let name = CString::new(name.as_bytes())?;
    let mode = libc::c_uint::from(file_mode());
    // SAFETY: the name is live and ends with a NUL.
    let descriptor = check(unsafe { libc::openat(directory, name.as_ptr(), with_safe(flags), mode) })?;
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Opens a relative path below a directory. No component may be a link or lead out of it.
pub(crate) fn open_below(directory: RawFd, place: &Path, flags: libc::c_int) -> io::Result<OwnedFd> {
    match open_at_once(directory, place, flags) {
        // EPERM: what filters answered before ENOSYS became the custom. The steps fail with it
        // again if it is the file's own answer.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
            open_stepwise(directory, place, flags)
        }
        result => result,
    }
}

/// [`open_below`] by one system call. Source: `openat2(2)`.
fn open_at_once(directory: RawFd, place: &Path, flags: libc::c_int) -> io::Result<OwnedFd> {
    let place = CString::new(place.as_os_str().as_bytes())?;
    // SAFETY: all-zero bytes are a valid structure.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = with_safe(flags) as u64;
    how.mode = if flags & libc::O_CREAT != 0 { file_mode().into() } else { 0 };
    how.resolve = libc::RESOLVE_BENEATH | libc::RESOLVE_NO_SYMLINKS;
    let size = size_of::<libc::open_how>();
    // SAFETY: the place is live and ends with a NUL; the structure is live and has this size.
    let descriptor =
        unsafe { libc::syscall(libc::SYS_openat2, directory, place.as_ptr(), &raw const how, size) };
    if descriptor < 0 {
        return Err(last_error());
    }
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as RawFd) })
}

/// [`open_below`] by one `openat` for each component. Each is opened in the directory that the step
/// before has opened, and none is a link, so renames in between can't lead anywhere else. `..` is
/// refused with the error of `openat2`.
fn open_stepwise(directory: RawFd, place: &Path, flags: libc::c_int) -> io::Result<OwnedFd> {
    let mut components = place.components().peekable();
    if components.peek().is_none() {
        return Err(io::Error::from_raw_os_error(libc::ENOENT));
    }
    let mut held: Option<OwnedFd> = None;
    while let Some(component) = components.next() {
        if !matches!(component, Component::Normal(_) | Component::CurDir) {
            return Err(io::Error::from_raw_os_error(libc::EXDEV));
        }
        let is_last = components.peek().is_none();
        let flags = if is_last { flags } else { libc::O_DIRECTORY | libc::O_PATH };
        let parent = held.as_ref().map_or(directory, OwnedFd::as_raw_fd);
        let name = component.as_os_str();
        let next = open_one(parent, name, flags);
        held = Some(next.map_err(|error| if is_last { error } else { step_error(error, parent, name) })?);
    }
    held.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))
}

/// The error of `openat2` for a link on the way: `ELOOP`, where a step fails with `ENOTDIR`.
fn step_error(error: io::Error, parent: RawFd, name: &OsStr) -> io::Error {
    let is_link = || {
        let found = open_one(parent, name, libc::O_PATH).map(std::fs::File::from);
        found.and_then(|file| file.metadata()).is_ok_and(|metadata| metadata.is_symlink())
    };
    match error.raw_os_error() {
        Some(libc::ENOTDIR) if is_link() => io::Error::from_raw_os_error(libc::ELOOP),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use tompion_testing::TestDir;

    use std::{fs, os::fd::AsFd, os::unix::fs::symlink};

    use super::*;

    const PLACES: [&str; 16] = [
        ".",
        "file",
        "dir",
        "dir/file",
        "dir/dir",
        "./dir/./file",
        "missing",
        "missing/file",
        "file/file",
        "link",
        "link/file",
        "dir/link",
        "dangling",
        "..",
        "dir/../file",
        "dir/../../file",
    ];

    fn outcome(opened: io::Result<OwnedFd>) -> Result<std::path::PathBuf, Option<i32>> {
        let opened = opened.map_err(|error| error.raw_os_error())?;
        let link = format!("/proc/self/fd/{}", opened.as_fd().as_raw_fd());
        fs::read_link(link).map_err(|error| error.raw_os_error())
    }

    #[test]
    fn one_call_and_single_steps_open_the_same() {
        let root = TestDir::new("beneath");
        fs::create_dir_all(root.join("dir/dir")).unwrap();
        for file in ["file", "dir/file"] {
            fs::write(root.join(file), "").unwrap();
        }
        for (target, link) in [("dir", "link"), ("/etc/passwd", "dir/link"), ("nowhere", "dangling")] {
            symlink(target, root.join(link)).unwrap();
        }
        let directory = open_one(libc::AT_FDCWD, root.as_os_str(), libc::O_DIRECTORY).unwrap();
        let directory = directory.as_raw_fd();
        let kinds = [
            libc::O_RDONLY,
            libc::O_PATH,
            libc::O_DIRECTORY,
            libc::O_DIRECTORY | libc::O_PATH,
            libc::O_RDWR | libc::O_CREAT | libc::O_EXCL,
        ];
        for flags in kinds {
            for place in PLACES.map(Path::new) {
                let is_climbing = place.components().any(|part| part == Component::ParentDir);
                // Steps refuse every `..`, also one that stays inside. Nothing here uses one.
                let expected = match is_climbing {
                    true => Err(Some(libc::EXDEV)),
                    false => outcome(open_at_once(directory, place, flags)),
                };
                let made_it = flags & libc::O_CREAT != 0 && expected.is_ok();
                if made_it {
                    fs::remove_file(root.join(place)).unwrap();
                }
                let found = outcome(open_stepwise(directory, place, flags));
                assert_eq!(found, expected, "{} with {flags:#o}", place.display());
                if made_it {
                    fs::remove_file(root.join(place)).unwrap();
                }
            }
        }
    }
}
