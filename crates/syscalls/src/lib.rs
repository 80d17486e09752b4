//! Decodes numbers in system call events: flags, commands and errors by their C names.
//!
//! ```text
//! syscall_entry_openat: { dfd = -100, …, flags = 0x80000 } # dfd = AT_FDCWD, flags = O_CLOEXEC
//! syscall_exit_openat: { ret = -2 } # ret = ENOENT
//! ```
//!
//! Calls and arguments are identified by their names in the kernel's own definitions, which
//! Tompion's and LTTng's traces share. Calls of 32-bit programs are not decoded, because some of
//! their numbers differ. Numbers without a name are left as they are.
//!
//! This crate knows nothing of traces: the reader passes it the fields of its events.
#![forbid(unsafe_code)]

mod errors;
mod options;
mod values;

use std::fmt::Write;

pub use errors::name as error_name;

/// Named bits: those under the mask have this value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bits {
    mask: u64,
    value: u64,
    name: &'static str,
}

/// Named number.
pub(crate) type Named = (i64, &'static str);

/// Interpretation of a number.
#[derive(Clone, Copy, Debug)]
enum Interpretation {
    /// Bit set.
    Bits(&'static [Bits]),
    /// Bit set with two tables; where both name a bit, the first one applies.
    Either(&'static [Bits], &'static [Bits]),
    /// Whole number with names from this table.
    Named(&'static [Named]),
    /// Whole number with names from a table that another field selects.
    NamedBy(&'static str, &'static [(i64, &'static [Named])]),
    /// Bit set whose table depends on another field.
    BitsBy(&'static str, &'static [(i64, &'static [Bits])]),
    /// Error, if the number is negative.
    Error,
}

use Interpretation::{Bits as Flags, BitsBy, Either, Named as One, NamedBy};

/// Arguments with the same interpretation in all calls.
const ANY_CALL: &[(&str, Interpretation)] = &[
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

/// Arguments with an interpretation by call.
const BY_CALL: &[(&[&str], &str, Interpretation)] = &[
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
    (&["setsockopt", "getsockopt"], "level", One(options::LEVEL)),
    (&["setsockopt", "getsockopt"], "optname", NamedBy("level", options::OPTIONS)),
    (&["socket", "socketpair"], "protocol", NamedBy("family", options::PROTOCOLS)),
    (&["prctl"], "option", One(options::PRCTL)),
    (&["arch_prctl"], "option", One(options::ARCH_PRCTL)),
    (&["prlimit64", "getrlimit", "setrlimit"], "resource", One(options::RESOURCE)),
    (&["ioctl"], "cmd", One(options::IOCTL)),
    (&["fcntl"], "arg", BitsBy("cmd", options::FCNTL_ARGUMENTS)),
];

/// Fields of an event class with their interpretations.
#[derive(Clone, Debug)]
pub struct SyscallDecoder(
    /// Of two entries for one field, the first applies.
    Vec<(&'static str, Interpretation)>,
);

impl SyscallDecoder {
    /// Creates the decoder for events of this name; `None` if it is not a system call's.
    pub fn of(event: &str) -> Option<Self> {
        if event.starts_with("syscall_exit_") {
            return Some(Self(vec![("ret", Interpretation::Error)]));
        }
        let call = event.strip_prefix("syscall_entry_")?;
        let own = BY_CALL.iter().filter(|(calls, ..)| calls.contains(&call));
        let own = own.map(|&(_, field, interpretation)| (field, interpretation));
        Some(Self(own.chain(ANY_CALL.iter().copied()).collect()))
    }

    /// Returns the name of a signal.
    pub fn signal(number: i64) -> Option<&'static str> {
        values::SIGNAL.iter().find(|(known, _)| *known == number).map(|(_, name)| *name)
    }

    /// Decodes the number in the field `name` of an event; `None` if it has no name. `other`
    /// returns the event's other fields, since a few tables depend on one of them.
    pub fn decode(&self, name: &str, number: i64, other: &dyn Fn(&str) -> Option<i64>) -> Option<String> {
        let (_, interpretation) = self.0.iter().find(|(field, _)| *field == name)?;
        let resolved = match *interpretation {
            NamedBy(field, tables) => One(table_of(tables, other(field)?)?),
            BitsBy(field, tables) => Flags(table_of(tables, other(field)?)?),
            resolved => resolved,
        };
        resolved.explain(number)
    }
}

impl Interpretation {
    fn explain(self, value: i64) -> Option<String> {
        match self {
            Self::Bits(table) => names_of_bits(value as u64, &[table]),
            Self::Either(first, second) => names_of_bits(value as u64, &[first, second]),
            Self::Named(table) => {
                table.iter().find(|(number, _)| *number == value).map(|(_, name)| (*name).into())
            }
            // They were resolved to a table.
            Self::NamedBy(..) | Self::BitsBy(..) => None,
            Self::Error => errors::name(u32::try_from(value.checked_neg()?).ok()?).map(Into::into),
        }
    }
}

/// Returns the table for a value of another field.
fn table_of<T>(tables: &'static [(i64, &'static [T])], value: i64) -> Option<&'static [T]> {
    tables.iter().find(|(of, _)| *of == value).map(|(_, table)| *table)
}

/// Formats a bit set: `O_WRONLY|O_CREAT|0x40000000`. Named bits come first, then the rest. Returns
/// `None` if no bit has a name.
///
/// Entries with more bits replace those with fewer: `O_SYNC` includes the bit of `O_DSYNC`.
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
        // Writing to a string cannot fail.
        let _ = write!(text, "|{rest:#x}");
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(event: &str, field: &str, value: i64) -> Option<String> {
        let decoder = SyscallDecoder::of(event)?;
        let (_, interpretation) = decoder.0.into_iter().find(|(name, _)| *name == field)?;
        interpretation.explain(value)
    }

    #[test]
    fn flags_have_the_names_of_their_call() {
        let decoded_name = |event, field, value| decoded(event, field, value).unwrap();
        assert_eq!(decoded_name("syscall_entry_openat", "flags", 0o2_000_000), "O_RDONLY|O_CLOEXEC");
        assert_eq!(decoded_name("syscall_entry_open", "flags", 0o1101), "O_WRONLY|O_CREAT|O_TRUNC");
        assert_eq!(decoded_name("syscall_entry_openat", "flags", 0o4_010_002), "O_RDWR|O_SYNC");
        assert_eq!(decoded_name("syscall_entry_openat", "flags", 0o20_200_001), "O_WRONLY|O_TMPFILE");
        assert_eq!(decoded_name("syscall_entry_openat", "flags", 1 << 40), "O_RDONLY|0x10000000000");
        assert_eq!(decoded_name("syscall_entry_mmap", "flags", 0x22), "MAP_PRIVATE|MAP_ANONYMOUS");
        assert_eq!(decoded_name("syscall_entry_mmap", "prot", 0), "PROT_NONE");
        assert_eq!(decoded_name("syscall_entry_futex", "op", 0x81), "FUTEX_WAKE|FUTEX_PRIVATE_FLAG");
        assert_eq!(decoded_name("syscall_entry_unlinkat", "flag", 0x200), "AT_REMOVEDIR");
        assert_eq!(decoded_name("syscall_entry_faccessat", "mode", 0), "F_OK");
        assert_eq!(decoded("syscall_entry_pipe2", "flags", 0), None);
    }

    #[test]
    fn numbers_have_names_and_errors_are_negative() {
        assert_eq!(decoded("syscall_entry_openat", "dfd", -100).as_deref(), Some("AT_FDCWD"));
        assert_eq!(decoded("syscall_entry_openat", "dfd", 3), None);
        assert_eq!(decoded("syscall_entry_fcntl", "cmd", 1030).as_deref(), Some("F_DUPFD_CLOEXEC"));
        assert_eq!(decoded("syscall_exit_openat", "ret", -2).as_deref(), Some("ENOENT"));
        assert_eq!(decoded("syscall_exit_nanosleep", "ret", -516).as_deref(), Some("ERESTART_RESTARTBLOCK"));
        for nothing in [0, 2, -4095, i64::MIN] {
            assert_eq!(decoded("syscall_exit_openat", "ret", nothing), None, "{nothing}");
        }
        assert!(SyscallDecoder::of("sched_switch").is_none());
        assert!(SyscallDecoder::of("compat_syscall_entry_open").is_none());
    }

    #[test]
    fn options_depend_on_their_level() {
        let decoder = SyscallDecoder::of("syscall_entry_setsockopt").unwrap();
        let option = |level, number| decoder.decode("optname", number, &|_| level);
        assert_eq!(option(Some(1), 2).as_deref(), Some("SO_REUSEADDR"));
        assert_eq!(option(Some(6), 1).as_deref(), Some("TCP_NODELAY"));
        assert_eq!((option(Some(9999), 1), option(None, 1)), (None, None));
        let decoder = SyscallDecoder::of("syscall_entry_fcntl").unwrap();
        let argument = |command, number| decoder.decode("arg", number, &|_| Some(command));
        assert_eq!(argument(2, 1).as_deref(), Some("FD_CLOEXEC"));
        assert_eq!(argument(4, 0o4002).as_deref(), Some("O_RDWR|O_NONBLOCK"));
        assert_eq!(argument(1, 1), None);
        assert_eq!(decoded("syscall_entry_prctl", "option", 15).as_deref(), Some("PR_SET_NAME"));
        assert_eq!(decoded("syscall_entry_prlimit64", "resource", 7).as_deref(), Some("RLIMIT_NOFILE"));
        assert_eq!(decoded("syscall_entry_ioctl", "cmd", 0x5401).as_deref(), Some("TCGETS"));
    }

    #[test]
    fn errors_are_sorted() {
        assert_eq!(errors::name(11), Some("EAGAIN"));
        assert_eq!(errors::name(133), Some("EHWPOISON"));
        assert_eq!(errors::name(41), None);
    }
}
