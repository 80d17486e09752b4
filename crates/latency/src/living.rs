//! Threads that live, by what `/proc` says: a number alone is no thread, because the next one may get it.

use std::fs;

use crate::memory::BEGUN_BITS;

/// What `/proc/TID/stat` counts in (`USER_HZ`; `proc_pid_stat(5)`): a hundredth of a second on everything that Linux runs on here.
const TICK_NS: u64 = 10_000_000;
/// Both of a thread's clocks are read one after the other.
const TOLERANCE_NS: u64 = 1_000_000;

/// A thread that lives.
#[derive(Debug, PartialEq, Eq)]
pub struct Living {
    /// Its name now.
    pub name: String,
    /// When it began, in ticks of CLOCK_BOOTTIME.
    begun: u64,
}

impl Living {
    /// The thread that has this number now, if there is one.
    pub fn read(tid: u32) -> Option<Self> {
        // A name may be of any bytes.
        Self::parse(&String::from_utf8_lossy(&fs::read(format!("/proc/{tid}/stat")).ok()?))
    }

    /// Source: `proc_pid_stat(5)`: the name is in parentheses and may have some itself; fields are counted from 1.
    fn parse(stat: &str) -> Option<Self> {
        const FIELDS_BEFORE: usize = 3;
        const BEGUN: usize = 22;
        let (head, rest) = stat.rsplit_once(')')?;
        let (_, name) = head.split_once('(')?;
        let begun = rest.split_ascii_whitespace().nth(BEGUN - FIELDS_BEFORE)?.parse().ok()?;
        Some(Self { name: name.into(), begun })
    }

    /// Whether it is the thread that began at this time, of which the programs keep the lowest bits.
    pub fn has_begun_at(&self, begun: u64) -> bool {
        let suspended = tompion_os::boottime_ns().saturating_sub(tompion_os::monotonic_ns());
        self.may_have_begun_at(begun, suspended)
    }

    /// `suspended`: for how long the machine was suspended until now, in nanoseconds; how much of it was before the thread began
    /// is not known.
    fn may_have_begun_at(&self, begun: u64, suspended: u64) -> bool {
        // One tick behind it at the latest, on CLOCK_BOOTTIME; earlier on CLOCK_MONOTONIC.
        let latest = self.begun.wrapping_add(1).wrapping_mul(TICK_NS).wrapping_add(TOLERANCE_NS);
        let earlier = latest.wrapping_sub(begun) & ((1 << BEGUN_BITS) - 1);
        earlier <= TICK_NS.saturating_add(2 * TOLERANCE_NS).saturating_add(suspended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_any_name_then_it_and_the_beginning_are_read() {
        let stat = |name: &str| {
            let zeros = "0 ".repeat(18);
            Living::parse(&format!("71 ({name}) S {zeros}4711 0 0\n"))
        };
        for name in ["ctl", "a) S 1 (b", "", "two\nlines"] {
            assert_eq!(stat(name), Some(Living { name: name.into(), begun: 4711 }), "{name}");
        }
        assert_eq!(Living::parse("71 (ctl) S 0"), None);
        assert_eq!(Living::parse(""), None);
    }

    #[test]
    fn given_a_number_that_is_used_again_then_it_is_another_thread() {
        let living = Living { name: "stranger".into(), begun: 1_000_000 };
        let at = |ns: u64| ns & ((1 << BEGUN_BITS) - 1);
        let begun = 1_000_000 * TICK_NS + 3_000_000;
        assert!(living.may_have_begun_at(at(begun), 0));
        for other in [begun - 60_000_000_000, begun - 2 * TICK_NS, begun + 2 * TICK_NS] {
            assert!(!living.may_have_begun_at(at(other), 0), "{other}");
        }
        // An hour's suspension before it began, or behind that.
        let hour = 3_600_000_000_000;
        assert!(living.may_have_begun_at(at(begun - hour), hour));
        assert!(living.may_have_begun_at(at(begun), hour));
    }

    #[test]
    fn given_this_thread_then_it_lives() {
        let thread = std::thread::Builder::new().name("living".into());
        let found = thread.spawn(|| Living::read(tompion_os::gettid())).expect("a thread").join();
        assert_eq!(found.expect("it ends").map(|living| living.name).as_deref(), Some("living"));
        assert_eq!(Living::read(u32::MAX), None);
    }
}
