//! Identity of a process: users, namespaces, threads by number, objects in its memory.

use std::{
    ffi::CStr,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::PathBuf,
};

/// Inode of the calling process's pid namespace, which identifies it.
pub fn pid_namespace() -> Option<u64> {
    pid_namespace_of("self")
}

/// Inode of another process's pid namespace, if the caller may look.
pub fn pid_namespace_of(pid: &str) -> Option<u64> {
    std::fs::metadata(format!("/proc/{pid}/ns/pid")).ok().map(|metadata| metadata.ino())
}

/// A process's id in its own (innermost) pid namespace. Source: `NSpid` in `proc_pid_status(5)`.
pub fn innermost_pid(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_whitespace().next_back()?.parse().ok()
}

/// The calling process's effective user id.
pub fn effective_user() -> u32 {
    // SAFETY: a plain system call without arguments.
    unsafe { libc::geteuid() }
}

/// Number by which the kernel shows every user that has none in the caller's user namespace.
/// Source: `/proc/sys/kernel/overflowuid` in `user_namespaces(7)`.
const OVERFLOW_USER: u32 = 65534;

/// Returns whether a user id that the kernel has told stands for one user only. In a user namespace
/// that doesn't have all users, one number stands for all that are missing.
pub fn is_one_user(user: u32) -> bool {
    if user != OVERFLOW_USER {
        return true;
    }
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// Returns the user that this program was started as, if it still is that user.
///
/// A process that was another user at its start may have memory of that user's, and may be it
/// again. Source: `AT_UID`, `AT_EUID` in `getauxval(3)`; `ptrace(2)` asks for the same, with more
/// care.
pub fn steady_user() -> Option<u32> {
    // SAFETY: plain calls.
    let (real, effective) = unsafe { (libc::getauxval(libc::AT_UID), libc::getauxval(libc::AT_EUID)) };
    let user = effective_user();
    (real == u64::from(user) && effective == u64::from(user)).then_some(user)
}

/// `unshare(2)`, by the system call itself: 0, or -1 with `errno` set.
pub fn unshare(flags: libc::c_int) -> libc::c_int {
    // SAFETY: what it changes belongs to the process, which asks for it.
    unsafe { libc::syscall(libc::SYS_unshare, flags) as libc::c_int }
}

/// `setns(2)`, by the system call itself: 0, or -1 with `errno` set.
pub fn set_namespace(descriptor: libc::c_int, kind: libc::c_int) -> libc::c_int {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_setns, descriptor, kind) as libc::c_int }
}

/// Whether the last call failed as those do that need a process with a single thread. Sources:
/// `unshare(2)`, `setns(2)`, `time_namespaces(7)`.
pub fn failed_for_threads() -> bool {
    matches!(crate::last_error().raw_os_error(), Some(libc::EINVAL | libc::EUSERS))
}

/// Whether the kernel still has this thread of the calling process.
pub fn thread_exists(tid: u32) -> bool {
    // SAFETY: signal 0 is only a question.
    tid != 0 && unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, 0) } == 0
}

/// Path of the executable or library that has this address; none in one that was linked statically.
pub fn object_of(address: *const ()) -> Option<PathBuf> {
    // SAFETY: all-zero bytes are a valid answer structure.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: `dladdr` compares the address and doesn't follow it.
    if unsafe { libc::dladdr(address.cast(), &raw mut found) } == 0 || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's own text, which lives as long as the object.
    let path = unsafe { CStr::from_ptr(found.dli_fname) };
    let path = std::ffi::OsStr::from_bytes(path.to_bytes());
    std::fs::canonicalize(path).ok()
}

/// Keeps the library that has this address loaded for good, whatever `dlclose` is called. Does
/// nothing for the executable, which is never unloaded. Source: `RTLD_NODELETE` in `dlopen(3)`.
///
/// Takes the loader's lock.
pub fn never_unload(address: *const ()) {
    // SAFETY: all-zero bytes are a valid answer structure.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: `dladdr` compares the address and doesn't follow it.
    if unsafe { libc::dladdr(address.cast(), &raw mut found) } == 0 || found.dli_fname.is_null() {
        return;
    }
    let flags = libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
    // SAFETY: the loader's own text; a library is not loaded by this, so that no code of it runs.
    // The handle is kept for good.
    unsafe { libc::dlopen(found.dli_fname, flags) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_knows_itself() {
        assert!(pid_namespace().is_some());
        assert!(innermost_pid(std::process::id()).is_some());
        let tid = std::thread::spawn(crate::gettid).join().unwrap();
        while thread_exists(tid) {
            std::thread::yield_now();
        }
        assert!(thread_exists(crate::gettid()));
        assert!(!thread_exists(0));
        assert_eq!(steady_user(), Some(effective_user()));
    }

    #[test]
    fn one_number_stands_for_all_users_that_a_namespace_lacks() {
        assert!(is_one_user(0) && is_one_user(1000));
        let ask = || i32::from(is_one_user(OVERFLOW_USER));
        if ask() == 0 {
            return eprintln!("SKIPPED, this is a user namespace that lacks users already");
        }
        // SAFETY: the child makes system calls and allocates, which it may: the parent's other
        // threads don't hold the allocator's lock for long, and glibc gives it up on fork.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let is_alone = unshare(libc::CLONE_NEWUSER) != 0 || ask() == 0;
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!is_alone)) };
        }
        let mut status = 0;
        // SAFETY: `status` is a live integer.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    }
}
