//! Log of single wakeups, in the order of their ends, for comparisons with other measurements, as
//! the accuracy benchmark does. Drawn in `src/bpf/monitor.h` (`struct logged`).

use std::{
    io,
    os::fd::BorrowedFd,
    sync::atomic::Ordering::{Acquire, Relaxed},
};

use tompion_os::SharedMap;

use crate::kinds::Kind;

/// Name of the array.
pub(crate) const ARRAY: &str = "logged_wakes";

const ENTRY: usize = 32;

/// Finished wakeup. Times are CLOCK_MONOTONIC, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wakeup {
    /// Number of the thread.
    pub tid: u32,
    /// CPU on which it ran.
    pub cpu: u32,
    /// Intended expiry of its timer, if a timer woke it.
    pub intended_ns: Option<u64>,
    /// Time of the wakeup.
    pub woken_ns: u64,
    /// Time at which it ran.
    pub running_ns: u64,
    /// Whether it always had the highest priority on its CPU.
    pub highest: bool,
}

/// Mapped log.
pub struct Log {
    array: SharedMap,
    entries: usize,
}

impl Log {
    pub(crate) fn map(array: BorrowedFd<'_>, entries: u32) -> io::Result<Self> {
        let entries = entries as usize;
        Ok(Self { array: SharedMap::of_bpf_array(array, (entries * ENTRY) as u64)?, entries })
    }

    /// Maximum number of wakeups.
    pub fn room(&self) -> u64 {
        self.entries.saturating_sub(1) as u64
    }

    /// Number of finished wakeups, including those that did not fit.
    pub fn ended(&self) -> u64 {
        // Pairs with the programs' atomic addition. An entry is written after it, so the last ones
        // may be incomplete.
        self.array.word(0).load(Acquire)
    }

    /// Reads all entries. A wakeup that ends meanwhile may be incomplete: read after the
    /// measurement.
    pub fn wakeups(&self) -> Vec<Wakeup> {
        let kept = self.ended().min(self.room()) as usize;
        (1..=kept).map(|entry| self.wakeup(entry * ENTRY)).collect()
    }

    fn wakeup(&self, at: usize) -> Wakeup {
        let word = |offset| self.array.word(at + offset).load(Relaxed);
        let place = self.array.half(at + 28).load(Relaxed);
        let (cpu, slot) = (place & 0xffff, (place >> 16) as usize);
        Wakeup {
            tid: self.array.half(at + 24).load(Relaxed),
            cpu,
            intended_ns: Some(word(0)).filter(|intended| *intended != 0),
            woken_ns: word(8),
            running_ns: word(16),
            highest: slot == Kind::Wakeup.number() || slot == Kind::TimerWakeup.number(),
        }
    }
}
