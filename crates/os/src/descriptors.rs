//! Descriptor tables: which numbers a thread may use, and what stands behind them.

use std::{
    io,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
        unix::process::CommandExt,
    },
    process::Command,
};

use crate::check;

/// Lets a command have a descriptor of this process, under the number that is returned. See
/// [`take_inherited`].
pub fn hand_down(command: &mut Command, descriptor: OwnedFd) -> RawFd {
    let number = descriptor.as_raw_fd();
    // SAFETY: the closure runs in the forked child and makes one system call, which is
    // async-signal-safe. It owns the descriptor, which therefore is open there.
    unsafe {
        command.pre_exec(move || check(libc::fcntl(descriptor.as_raw_fd(), libc::F_SETFD, 0)).map(drop));
    }
    number
}

/// A descriptor of one's own of what this process was given under a number, see [`hand_down`].
///
/// # Errors
/// If nothing is open there.
pub fn take_inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: plain system calls on a number; an open descriptor there is only kept from the
    // programs that this one starts.
    let copy = unsafe {
        check(libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC))?;
        check(libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3))?
    };
    // SAFETY: new, and without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Gives the calling thread a table of descriptors of its own, which has only those of the process
/// that are to be kept, under the same numbers. From then on neither its opens and closes nor those
/// of other threads concern each other. False, and nothing has changed, where the kernel can't or
/// may not do so.
///
/// Source: `CLOSE_RANGE_UNSHARE` in `close_range(2)`, Linux 5.9.
pub fn take_own_table(keep: &mut [RawFd]) -> bool {
    keep.sort_unstable();
    // From below, where most descriptors are: what is in the first range is never copied (before
    // Linux 6.12: copied and closed at once, unless the range reaches to the end).
    let mut flags = libc::CLOSE_RANGE_UNSHARE;
    let mut first = 0;
    for next in keep.iter().map(|number| *number as u32).chain([u32::MAX]) {
        if first < next {
            let last = if next == u32::MAX { next } else { next - 1 };
            // SAFETY: with the flag, the call touches the calling thread's descriptors only, and
            // later calls find a table that no other thread has.
            let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
            if flags != 0 && result != 0 {
                return false;
            }
            flags = 0;
        }
        first = next.saturating_add(1);
    }
    true
}

#[cfg(test)]
mod tests {
    use tompion_testing::TestDir;

    use std::{
        fs::File,
        os::fd::{AsRawFd, FromRawFd},
    };

    use super::*;

    fn is_open(number: RawFd) -> bool {
        // SAFETY: a plain question.
        unsafe { libc::fcntl(number, libc::F_GETFD) >= 0 }
    }

    #[test]
    fn a_command_has_what_was_handed_down_to_it_and_others_have_not() {
        let file = tempfile();
        let others = file.try_clone().unwrap();
        let read = |command: &mut Command, number: RawFd| {
            let output = command.args(["-c", "cat <&$0", &number.to_string()]).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        let mut command = Command::new("bash");
        let number = hand_down(&mut command, file.into());
        assert_eq!(read(&mut command, number), "words");
        assert_eq!(read(&mut Command::new("bash"), others.as_raw_fd()), "");
    }

    /// A file without a name, with words in it.
    fn tempfile() -> File {
        let folder = TestDir::new("handed");
        let path = folder.join("file");
        std::fs::write(&path, "words").unwrap();
        File::open(&path).unwrap()
    }

    #[test]
    fn what_was_inherited_is_ones_own() {
        let file = File::open("/dev/null").unwrap();
        let taken = take_inherited(file.as_raw_fd()).unwrap();
        assert_ne!(taken.as_raw_fd(), file.as_raw_fd());
        assert!(take_inherited(RawFd::MAX).is_err());
    }

    #[test]
    fn a_thread_with_its_own_table_keeps_what_it_wants_and_disturbs_no_other() {
        let files: Vec<File> = (0..5).map(|_| File::open("/dev/null").unwrap()).collect();
        let numbers: Vec<RawFd> = files.iter().map(AsRawFd::as_raw_fd).collect();
        for kept in [&[1, 3][..], &[0, 1, 4], &[]] {
            let (numbers, kept) = (numbers.clone(), kept.to_vec());
            let inside = numbers.clone();
            std::thread::spawn(move || {
                let mut keep: Vec<RawFd> = kept.iter().rev().map(|index| inside[*index]).collect();
                assert!(take_own_table(&mut keep));
                for (index, number) in inside.iter().enumerate() {
                    assert_eq!(is_open(*number), kept.contains(&index), "{index}");
                }
                for number in keep {
                    // SAFETY: this thread's own copy, closed once.
                    drop(unsafe { File::from_raw_fd(number) });
                }
            })
            .join()
            .unwrap();
            assert!(numbers.iter().all(|number| is_open(*number)));
        }
    }
}
