//! The kinds of latencies that are counted, one histogram for each CPU and kind.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What is measured. The order is that of `enum kind` in `monitor.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// From woken to running, of threads that had the highest priority on their CPU all the while.
    Wakeup,
    /// The same, where a thread of the same priority ran meanwhile.
    Shared,
    /// The same, where a thread of a higher priority ran meanwhile.
    Preempted,
    /// From a timer's intended expiry to its handler.
    MissedTimer,
    /// From a timer's intended expiry to the thread that runs, where the wake-up is of the first kind.
    TimerWakeup,
    /// The same for all wake-ups by timers.
    TimerWakeupAll,
}

impl Kind {
    /// All of them, in the order of the programs.
    pub const ALL: [Self; 6] = [
        Self::Wakeup,
        Self::Shared,
        Self::Preempted,
        Self::MissedTimer,
        Self::TimerWakeup,
        Self::TimerWakeupAll,
    ];

    /// Its number in the programs.
    pub const fn number(self) -> usize {
        self as usize
    }

    /// What users type and programs read.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wakeup => "wakeup",
            Self::Shared => "shared",
            Self::Preempted => "preempted",
            Self::MissedTimer => "missed-timer",
            Self::TimerWakeup => "timer-wakeup",
            Self::TimerWakeupAll => "timer-wakeup-all",
        }
    }

    /// What people read.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Wakeup => "wakeup latency",
            Self::Shared => "  same priority",
            Self::Preempted => "  preempted",
            Self::MissedTimer => "timer interrupt",
            Self::TimerWakeup => "timer → running",
            Self::TimerWakeupAll => "  all wakeups",
        }
    }

    /// What people read who see no other kinds beside it.
    pub const fn long_words(self) -> &'static str {
        match self {
            Self::Wakeup => "wakeup latency, highest priority",
            Self::Shared => "wakeup latency, same-priority contention",
            Self::Preempted => "wakeup latency, preempted by higher priority",
            Self::MissedTimer => "timer interrupt",
            Self::TimerWakeup => "timer → running, highest priority",
            Self::TimerWakeupAll => "timer → running, all",
        }
    }

    /// The one of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// A set of kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kinds(u32);

impl Kinds {
    /// Every kind.
    pub const ALL: Self = Self((1 << Kind::ALL.len()) - 1);

    /// As the programs have it: a bit for each number.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// From the programs' bits; those that mean nothing are left out.
    pub const fn of_bits(bits: u32) -> Self {
        Self(bits & Self::ALL.0)
    }

    /// Whether a kind is among them.
    pub const fn has(self, kind: Kind) -> bool {
        self.0 >> kind.number() & 1 == 1
    }
}

impl FromIterator<Kind> for Kinds {
    fn from_iter<I: IntoIterator<Item = Kind>>(kinds: I) -> Self {
        Self(kinds.into_iter().fold(0, |bits, kind| bits | 1 << kind.number()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_their_numbers_and_names() {
        for (number, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!((kind.number(), Kind::of_name(kind.name())), (number, Some(kind)));
            assert!(Kinds::ALL.has(kind));
        }
        let some: Kinds = [Kind::Shared, Kind::TimerWakeupAll].into_iter().collect();
        assert_eq!(some.bits(), 0b10_0010);
        assert_eq!(Kinds::of_bits(u32::MAX), Kinds::ALL);
        assert!(!some.has(Kind::Wakeup) && some.has(Kind::Shared));
    }
}
