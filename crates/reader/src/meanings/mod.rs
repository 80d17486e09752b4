//! What numbers in events of system calls mean: flags, commands and errors by their names in C.
//!
//! ```text
//! syscall_entry_openat: { dfd = -100, …, flags = 0x80000, … } # dfd = AT_FDCWD, flags = O_RDONLY|O_CLOEXEC
//! syscall_exit_openat: { ret = -2 } # ret = ENOENT
//! ```
//!
//! By the names that the kernel's own definitions give to calls and arguments, which our traces and LTTng's have alike.
//! A call of a 32-bit program has other numbers in places and is left alone, and so is a number without a name.

mod errors;
mod values;

use std::fmt::Write;

use crate::Event;

/// Bits that have a name: those under the mask have this value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bits {
    mask: u64,
    value: u64,
    name: &'static str,
}

/// A number that has a name.
pub(crate) type Named = (i64, &'static str);

/// How a number is to be read.
#[derive(Clone, Copy, Debug)]
enum Reading {
    /// As bits, several at a time.
    Bits(&'static [Bits]),
    /// As the bits of both tables; where both have some, the first one's.
    Either(&'static [Bits], &'static [Bits]),
    /// As a whole.
    Named(&'static [Named]),
    /// As an error, if it is less than 0.
    Error,
}

use Reading::{Bits as Flags, Either, Named as One};

/// Arguments that mean the same in all calls.
const EVERYWHERE: &[(&str, Reading)] = &[
    ("dfd", One(values::FOLDER)),
    ("olddfd", One(values::FOLDER)),
    ("newdfd", One(values::FOLDER)),
    ("prot", Flags(values::PROTECTION)),
    ("sig", One(values::SIGNAL)),
    ("which_clock", One(values::CLOCK)),
    ("clockid", One(values::CLOCK)),
    ("policy", One(values::POLICY)),
    ("clone_flags", Flags(values::CLONE)),
    ("unshare_flags", Flags(values::CLONE)),
    ("family", One(values::FAMILY)),
    ("whence", One(values::SEEK)),
    ("behavior", One(values::ADVICE)),
    ("flag", Flags(values::AT_FLAGS)),
];

/// Arguments by the calls that they belong to.
const OF_CALLS: &[(&[&str], &str, Reading)] = &[
    (&["open", "openat", "open_by_handle_at", "mq_open"], "flags", Flags(values::OPEN)),
    (
        &[
            "pipe2",
            "dup3",
            "eventfd2",
            "inotify_init1",
            "signalfd4",
            "epoll_create1",
            "timerfd_create",
            "accept4",
        ],
        "flags",
        Flags(values::DESCRIPTOR),
    ),
    (&["unlinkat"], "flag", Either(values::UNLINK, values::AT_FLAGS)),
    (
        &["statx", "linkat", "execveat", "faccessat2", "utimensat", "fchmodat2"],
        "flags",
        Flags(values::AT_FLAGS),
    ),
    (&["renameat2"], "flags", Flags(values::RENAME)),
    (&["access", "faccessat", "faccessat2"], "mode", Flags(values::ACCESS)),
    (&["fcntl"], "cmd", One(values::FCNTL)),
    (&["flock"], "cmd", Flags(values::LOCK)),
    (&["mmap"], "flags", Flags(values::MAP)),
    (&["mremap"], "flags", Flags(values::REMAP)),
    (&["msync"], "flags", Flags(values::SYNC)),
    (&["mlockall"], "flags", Flags(values::LOCK_ALL)),
    (&["setns"], "flags", Flags(values::CLONE)),
    (&["wait4", "waitid"], "options", Flags(values::WAIT)),
    (&["waitid"], "which", One(values::WAIT_FOR)),
    (&["futex"], "op", Flags(values::FUTEX)),
    (&["clock_nanosleep", "timer_settime", "timerfd_settime"], "flags", Flags(values::TIMER)),
    (&["rt_sigprocmask"], "how", One(values::SIGNAL_MASK)),
    (&["socket", "socketpair"], "type", Flags(values::SOCKET)),
    (&["sendto", "recvfrom", "sendmsg", "recvmsg", "sendmmsg", "recvmmsg"], "flags", Flags(values::MESSAGE)),
    (&["shutdown"], "how", One(values::SHUTDOWN)),
    (&["epoll_ctl"], "op", One(values::EPOLL)),
    (&["memfd_create"], "flags", Flags(values::MEMFD)),
    (&["getrandom"], "flags", Flags(values::RANDOM)),
    (&["fallocate"], "mode", Flags(values::ALLOCATE)),
    (&["membarrier"], "cmd", One(values::BARRIER)),
];

/// The fields of a kind of event whose numbers mean something.
#[derive(Clone, Debug)]
pub(crate) struct Meanings(
    /// Of two for one field, the first holds.
    Vec<(&'static str, Reading)>,
);

impl Meanings {
    /// Of the events of this name. Nothing if they are no system call's.
    pub fn of(event: &str) -> Option<Self> {
        if event.starts_with("syscall_exit_") {
            return Some(Self(vec![("ret", Reading::Error)]));
        }
        let call = event.strip_prefix("syscall_entry_")?;
        let own = OF_CALLS.iter().filter(|(calls, ..)| calls.contains(&call));
        let own = own.map(|&(_, field, reading)| (field, reading));
        Some(Self(own.chain(EVERYWHERE.iter().copied()).collect()))
    }

    /// What an event's numbers mean, in the order of its fields. Nothing of those that have no name.
    pub fn explain<'a>(&self, event: &Event<'a>) -> Vec<(&'a str, String)> {
        let reading =
            |name: &str| self.0.iter().find(|(field, _)| *field == name).map(|(_, reading)| *reading);
        let explained = event.payload().filter_map(|(name, value)| {
            let reading = reading(name)?;
            Some((name, reading.explain(i64::try_from(value.as_integer()?).ok()?)?))
        });
        explained.collect()
    }

    /// Writes them behind the event, ` # flags = O_RDONLY|O_CLOEXEC`.
    pub fn write_text(&self, event: &Event<'_>, line: &mut Vec<u8>) {
        let mut start: &[u8] = b" # ";
        for (name, meaning) in self.explain(event) {
            for part in [start, name.as_bytes(), b" = ", meaning.as_bytes()] {
                line.extend_from_slice(part);
            }
            start = b", ";
        }
    }
}

impl Reading {
    fn explain(self, value: i64) -> Option<String> {
        match self {
            Self::Bits(table) => names_of_bits(value as u64, &[table]),
            Self::Either(first, second) => names_of_bits(value as u64, &[first, second]),
            Self::Named(table) => {
                table.iter().find(|(number, _)| *number == value).map(|(_, name)| (*name).into())
            }
            Self::Error => errors::name(u32::try_from(value.checked_neg()?).ok()?).map(Into::into),
        }
    }
}

/// `O_WRONLY|O_CREAT|0x40000000`: what has a name, then the rest. Nothing if nothing has one.
///
/// Entries with more bits stand for those with less: `O_SYNC` has the bit of `O_DSYNC`.
fn names_of_bits(value: u64, tables: &[&[Bits]]) -> Option<String> {
    let (mut rest, mut text) = (value, String::new());
    let all = || tables.iter().copied().flatten();
    let is_there = |bits: &Bits| value & bits.mask == bits.value;
    let is_part = |bits: &Bits| {
        all().any(|more| {
            is_there(more) && more.mask != bits.mask && more.mask & bits.mask == bits.mask && more.value != 0
        })
    };
    let mut taken = 0;
    for bits in all().filter(|bits| is_there(bits) && !is_part(bits)) {
        if bits.mask & taken == bits.mask {
            continue;
        }
        taken |= bits.mask;
        rest &= !bits.mask;
        text.push_str(if text.is_empty() { "" } else { "|" });
        text.push_str(bits.name);
    }
    if text.is_empty() {
        return None;
    }
    if rest != 0 {
        // It can't fail.
        let _ = write!(text, "|{rest:#x}");
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meaning(event: &str, field: &str, value: i64) -> Option<String> {
        let meanings = Meanings::of(event)?;
        let (_, reading) = meanings.0.into_iter().find(|(name, _)| *name == field)?;
        reading.explain(value)
    }

    #[test]
    fn flags_have_the_names_of_their_call() {
        let said = |event, field, value| meaning(event, field, value).unwrap();
        assert_eq!(said("syscall_entry_openat", "flags", 0o2_000_000), "O_RDONLY|O_CLOEXEC");
        assert_eq!(said("syscall_entry_open", "flags", 0o1101), "O_WRONLY|O_CREAT|O_TRUNC");
        assert_eq!(said("syscall_entry_openat", "flags", 0o4_010_002), "O_RDWR|O_SYNC");
        assert_eq!(said("syscall_entry_openat", "flags", 0o20_200_001), "O_WRONLY|O_TMPFILE");
        assert_eq!(said("syscall_entry_openat", "flags", 1 << 40), "O_RDONLY|0x10000000000");
        assert_eq!(said("syscall_entry_mmap", "flags", 0x22), "MAP_PRIVATE|MAP_ANONYMOUS");
        assert_eq!(said("syscall_entry_mmap", "prot", 0), "PROT_NONE");
        assert_eq!(said("syscall_entry_futex", "op", 0x81), "FUTEX_WAKE|FUTEX_PRIVATE_FLAG");
        assert_eq!(said("syscall_entry_unlinkat", "flag", 0x200), "AT_REMOVEDIR");
        assert_eq!(said("syscall_entry_faccessat", "mode", 0), "F_OK");
        assert_eq!(meaning("syscall_entry_pipe2", "flags", 0), None);
    }

    #[test]
    fn numbers_have_names_and_errors_are_negative() {
        assert_eq!(meaning("syscall_entry_openat", "dfd", -100).as_deref(), Some("AT_FDCWD"));
        assert_eq!(meaning("syscall_entry_openat", "dfd", 3), None);
        assert_eq!(meaning("syscall_entry_fcntl", "cmd", 1030).as_deref(), Some("F_DUPFD_CLOEXEC"));
        assert_eq!(meaning("syscall_exit_openat", "ret", -2).as_deref(), Some("ENOENT"));
        assert_eq!(meaning("syscall_exit_nanosleep", "ret", -516).as_deref(), Some("ERESTART_RESTARTBLOCK"));
        for nothing in [0, 2, -4095, i64::MIN] {
            assert_eq!(meaning("syscall_exit_openat", "ret", nothing), None, "{nothing}");
        }
        assert!(Meanings::of("sched_switch").is_none());
        assert!(Meanings::of("compat_syscall_entry_open").is_none());
    }

    #[test]
    fn errors_stand_in_order() {
        assert_eq!(errors::name(11), Some("EAGAIN"));
        assert_eq!(errors::name(133), Some("EHWPOISON"));
        assert_eq!(errors::name(41), None);
    }
}
