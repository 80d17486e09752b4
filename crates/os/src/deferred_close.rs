//! Closing of descriptors whose end makes the kernel wait.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd, RawFd},
    thread,
};

use crate::check;

/// Most threads that close at a time.
const MAX_THREADS: usize = 64;

/// Closes descriptors side by side, where each close waits until no CPU uses the object, and one
/// such wait serves all of them. Returns when all are closed.
pub fn close_in_parallel(descriptors: Vec<OwnedFd>) {
    let share = descriptors.len().div_ceil(MAX_THREADS).max(1);
    let mut descriptors = descriptors.into_iter();
    let mut threads = Vec::new();
    loop {
        let some: Vec<OwnedFd> = descriptors.by_ref().take(share).collect();
        if some.is_empty() {
            break;
        }
        // Where no thread can be had, what it would have closed is closed here, as it is dropped.
        threads.extend(thread::Builder::new().name("close".into()).spawn(move || drop(some)));
    }
    threads.into_iter().for_each(|thread| drop(thread.join()));
}

/// Gives descriptors to a process of their own, which closes them and ends: for those whose closing
/// takes long, one after the other, and has no result. The process has no parent, has no other
/// descriptor, and does nothing else.
///
/// # Errors
/// If there can be no such process; then they are closed here.
pub fn close_in_background(descriptors: Vec<OwnedFd>) -> io::Result<()> {
    if descriptors.is_empty() {
        return Ok(());
    }
    let others = gaps(descriptors.iter().map(AsRawFd::as_raw_fd).collect());
    // Nothing of the caller's may run in the new process, so no libc fork with its handlers.
    // SAFETY: without flags and stack this is a fork; the child only makes system calls.
    let child = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) };
    match check(child as libc::c_int)? {
        0 => close_and_end(&others),
        child => {
            let mut status = 0;
            // SAFETY: the child, which has no exit signal, is waited for here and nowhere else.
            unsafe { libc::waitpid(child, &raw mut status, libc::__WCLONE) };
        }
    }
    Ok(())
}

/// Runs of numbers, first and last, that are not among these.
fn gaps(mut kept: Vec<RawFd>) -> Vec<(u32, u32)> {
    kept.sort_unstable();
    let mut next = 0;
    let mut gaps = Vec::new();
    for kept in kept.into_iter().map(|kept| kept as u32) {
        if kept > next {
            gaps.push((next, kept - 1));
        }
        next = kept + 1;
    }
    gaps.push((next, u32::MAX));
    gaps
}

/// In the new process: starts one without a parent, which closes all others at once, so that no
/// pipe waits for it, and ends. As it ends the kernel closes those that are left.
fn close_and_end(others: &[(u32, u32)]) -> ! {
    // SAFETY: only system calls, on a copy of the caller's memory that no other thread uses.
    unsafe {
        libc::syscall(libc::SYS_setsid);
        if libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) == 0 {
            libc::syscall(libc::SYS_chdir, c"/".as_ptr());
            for (first, last) in others {
                libc::syscall(libc::SYS_close_range, *first, *last, 0);
            }
        }
        libc::syscall(libc::SYS_exit_group, 0);
        loop {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read, os::unix::net::UnixStream};

    use super::*;

    #[test]
    fn gaps_are_all_the_others() {
        assert_eq!(gaps(vec![7, 3, 4]), [(0, 2), (5, 6), (8, u32::MAX)]);
        assert_eq!(gaps(vec![0]), [(1, u32::MAX)]);
    }

    /// Pairs of sockets: one is at its end when all have closed the other.
    fn pairs(count: usize) -> (Vec<UnixStream>, Vec<OwnedFd>) {
        let pairs = (0..count).map(|_| UnixStream::pair().unwrap());
        pairs.map(|(ours, theirs)| (ours, OwnedFd::from(theirs))).unzip()
    }

    #[test]
    fn descriptors_given_away_are_closed() {
        for close in [close_in_parallel, |all| close_in_background(all).unwrap()] {
            let (readers, writers) = pairs(100);
            close(writers);
            for mut reader in readers {
                assert_eq!(reader.read(&mut [0]).unwrap(), 0);
            }
        }
    }
}
