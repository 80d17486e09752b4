//! Kinds of latencies, each with one histogram per CPU.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Kind of latency, in the order of `enum kind` in `monitor.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Wakeup to running, while the thread had the highest priority on its CPU.
    Wakeup,
    /// Wakeup to running, while a thread of equal priority ran.
    Shared,
    /// Wakeup to running, while a thread of higher priority ran.
    Preempted,
    /// Intended expiry of a timer to its handler.
    MissedTimer,
    /// Intended expiry of a timer to running, for wakeups of the first kind.
    TimerWakeup,
    /// Intended expiry of a timer to running, for all wakeups by timers.
    TimerWakeupAll,
}

impl Kind {
    /// All kinds, in the order of the programs.
    pub const ALL: [Self; 6] = [
        Self::Wakeup,
        Self::Shared,
        Self::Preempted,
        Self::MissedTimer,
        Self::TimerWakeup,
        Self::TimerWakeupAll,
    ];

    /// Number in the programs.
    pub const fn number(self) -> usize {
        self as usize
    }

    /// Name in commands and files.
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

    /// Name for people, beside other kinds.
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

    /// Name for people, without other kinds.
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

    /// Returns the kind with this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// Set of kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kinds(u32);

impl Kinds {
    /// Every kind.
    pub const ALL: Self = Self((1 << Kind::ALL.len()) - 1);

    /// Bitmask in the programs: a bit per number.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Decodes a bitmask; unknown bits are ignored.
    pub const fn of_bits(bits: u32) -> Self {
        Self(bits & Self::ALL.0)
    }

    /// Returns whether it contains a kind.
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
