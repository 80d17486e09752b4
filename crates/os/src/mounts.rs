//! Mounts of the kernel's file systems, for this process alone or for all.

use std::{
    ffi::CStr,
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    ptr,
};

use crate::{check, last_error};

/// Source: `linux/mount.h`.
const FSOPEN_CLOEXEC: libc::c_uint = 1;
const FSCONFIG_CMD_CREATE: libc::c_uint = 6;
const FSMOUNT_CLOEXEC: libc::c_uint = 1;
/// Attributes of the mount: read only, and no devices, programs or privileges in it.
const ATTRIBUTES: libc::c_uint = 1 | 2 | 4 | 8;

/// Mounts a file system that needs no disk, such as `tracefs`, in no folder: no other process sees
/// it, its files stand below `/proc/self/fd/N`, and it goes with the descriptor.
///
/// # Errors
/// `EPERM` without CAP_SYS_ADMIN, `ENODEV` where the kernel has no such file system, `ENOSYS`
/// before Linux 5.2.
pub fn mount_detached(file_system: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: the name is a string that ends with NUL; the call reads nothing else.
    let context = unsafe { libc::syscall(libc::SYS_fsopen, file_system.as_ptr(), FSOPEN_CLOEXEC) };
    let context = owned(context)?;
    let nothing = ptr::null::<libc::c_void>();
    // SAFETY: this command takes neither key nor value, and both are null.
    let created = unsafe {
        libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), FSCONFIG_CMD_CREATE, nothing, nothing, 0)
    };
    if created < 0 {
        return Err(last_error());
    }
    // SAFETY: numbers only; the descriptor is open.
    let mount = unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), FSMOUNT_CLOEXEC, ATTRIBUTES) };
    owned(mount)
}

/// Mounts a file system that needs no disk, such as `bpf`, in a folder, for all processes, without
/// devices, programs and privileges in it. Options are the file system's own, `mode=0700` for
/// example.
///
/// # Errors
/// `EPERM` without CAP_SYS_ADMIN, `ENOENT` where the folder isn't there, `ENODEV` where the kernel
/// has no such file system.
pub fn mount(file_system: &CStr, folder: &CStr, options: &CStr) -> io::Result<()> {
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    let name = file_system.as_ptr();
    // SAFETY: names and options are strings that end with NUL.
    check(unsafe { libc::mount(name, folder.as_ptr(), name, flags, options.as_ptr().cast()) }).map(drop)
}

/// Takes the descriptor that a call returned.
fn owned(returned: libc::c_long) -> io::Result<OwnedFd> {
    match RawFd::try_from(returned) {
        // SAFETY: the kernel has just opened it for us, and no other code knows it.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(last_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_without_a_place_can_be_read() {
        let mount = match mount_detached(c"proc") {
            Ok(mount) => mount,
            Err(error) => return eprintln!("SKIPPED: {error}"),
        };
        let path = format!("/proc/self/fd/{}/version", mount.as_raw_fd());
        assert_eq!(std::fs::read(path).unwrap(), std::fs::read("/proc/version").unwrap());
        assert_eq!(mount_detached(c"no such thing").unwrap_err().raw_os_error(), Some(libc::ENODEV));
    }

    #[test]
    fn nothing_is_mounted_where_there_is_no_folder() {
        assert!(mount(c"proc", c"/proc/no such folder", c"").is_err());
    }
}
