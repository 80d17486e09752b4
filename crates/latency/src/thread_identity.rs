//! Identity of threads by number and start time, from `/proc`: a number alone may be reused.

use std::fs;

use crate::mapped_counters::BEGUN_BITS;

/// Unit of times in `/proc/TID/stat` (`USER_HZ`; `proc_pid_stat(5)`): 10 ms on all supported
/// architectures.
const TICK_NS: u64 = 10_000_000;
/// Skew between two readings of a thread's clocks.
const CLOCK_SLACK_NS: u64 = 1_000_000;

/// Name and start time of a running thread.
#[derive(Debug, PartialEq, Eq)]
pub struct ThreadIdentity {
    /// Current name.
    pub name: String,
    /// Start time in ticks of CLOCK_BOOTTIME.
    begun: u64,
}

impl ThreadIdentity {
    /// Reads the thread that has this number now, if there is one.
    pub fn read(tid: u32) -> Option<Self> {
        // A name may have any bytes.
        Self::parse(&String::from_utf8_lossy(&fs::read(format!("/proc/{tid}/stat")).ok()?))
    }

    /// Source: `proc_pid_stat(5)`: the name is in parentheses and may contain some; fields count
    /// from 1.
    fn parse(stat: &str) -> Option<Self> {
        const FIELDS_BEFORE: usize = 3;
        const BEGUN: usize = 22;
        let (head, rest) = stat.rsplit_once(')')?;
        let (_, name) = head.split_once('(')?;
        let begun = rest.split_ascii_whitespace().nth(BEGUN - FIELDS_BEFORE)?.parse().ok()?;
        Some(Self { name: name.into(), begun })
    }

    /// Returns whether the thread started at this time, of which the programs store the lowest
    /// bits.
    pub fn has_begun_at(&self, begun: u64) -> bool {
        let suspended = tompion_os::boottime_ns().saturating_sub(tompion_os::monotonic_ns());
        self.may_have_begun_at(begun, suspended)
    }

    /// `suspended` is the time for which the machine was suspended until now, in nanoseconds. It is
    /// unknown how much of it was before the start.
    fn may_have_begun_at(&self, begun: u64, suspended: u64) -> bool {
        // At most one tick later, on CLOCK_BOOTTIME; earlier on CLOCK_MONOTONIC.
        let latest = self.begun.wrapping_add(1).wrapping_mul(TICK_NS).wrapping_add(CLOCK_SLACK_NS);
        let earlier = latest.wrapping_sub(begun) & ((1 << BEGUN_BITS) - 1);
        earlier <= TICK_NS.saturating_add(2 * CLOCK_SLACK_NS).saturating_add(suspended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_any_name_then_it_and_the_beginning_are_read() {
        let stat = |name: &str| {
            let zeros = "0 ".repeat(18);
            ThreadIdentity::parse(&format!("71 ({name}) S {zeros}4711 0 0\n"))
        };
        for name in ["ctl", "a) S 1 (b", "", "two\nlines"] {
            assert_eq!(stat(name), Some(ThreadIdentity { name: name.into(), begun: 4711 }), "{name}");
        }
        assert_eq!(ThreadIdentity::parse("71 (ctl) S 0"), None);
        assert_eq!(ThreadIdentity::parse(""), None);
    }

    #[test]
    fn given_a_number_that_is_used_again_then_it_is_another_thread() {
        let thread = ThreadIdentity { name: "stranger".into(), begun: 1_000_000 };
        let at = |ns: u64| ns & ((1 << BEGUN_BITS) - 1);
        let begun = 1_000_000 * TICK_NS + 3_000_000;
        assert!(thread.may_have_begun_at(at(begun), 0));
        for other in [begun - 60_000_000_000, begun - 2 * TICK_NS, begun + 2 * TICK_NS] {
            assert!(!thread.may_have_begun_at(at(other), 0), "{other}");
        }
        // Suspended for an hour before it started, or after.
        let hour = 3_600_000_000_000;
        assert!(thread.may_have_begun_at(at(begun - hour), hour));
        assert!(thread.may_have_begun_at(at(begun), hour));
    }

    #[test]
    fn given_this_thread_then_it_lives() {
        let builder = std::thread::Builder::new().name("thread".into());
        let found = builder.spawn(|| ThreadIdentity::read(tompion_os::gettid())).expect("a thread").join();
        assert_eq!(found.expect("it ends").map(|thread| thread.name).as_deref(), Some("thread"));
        assert_eq!(ThreadIdentity::read(u32::MAX), None);
    }
}
