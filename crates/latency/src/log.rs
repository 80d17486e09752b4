//! Wake-ups one by one, in the order in which they ended: for who compares them with what others measured, as the
//! benchmark of the monitor's accuracy does. Drawn in `src/bpf/monitor.h` (`struct logged`).

use std::{
    io,
    os::fd::BorrowedFd,
    sync::atomic::Ordering::{Acquire, Relaxed},
};

use tompion_os::SharedMap;

use crate::kinds::Kind;

/// The array's name.
pub(crate) const ARRAY: &str = "logged_wakes";

const ENTRY: usize = 32;

/// A wake-up that has ended. Times are CLOCK_MONOTONIC, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wakeup {
    /// The thread.
    pub tid: u32,
    /// Where it ran.
    pub cpu: u32,
    /// The intended expiry of the timer that woke it, if one did.
    pub intended_ns: Option<u64>,
    /// When it was woken.
    pub woken_ns: u64,
    /// When it ran.
    pub running_ns: u64,
    /// Whether it had the highest priority on its CPU meanwhile.
    pub highest: bool,
}

/// The wake-ups that were kept.
pub struct Log {
    array: SharedMap,
    entries: usize,
}

impl Log {
    pub(crate) fn map(array: BorrowedFd<'_>, entries: u32) -> io::Result<Self> {
        let entries = entries as usize;
        Ok(Self { array: SharedMap::of_bpf_array(array, (entries * ENTRY) as u64)?, entries })
    }

    /// How many there was room for.
    pub fn room(&self) -> u64 {
        self.entries.saturating_sub(1) as u64
    }

    /// How many have ended, also of those for which there was no room.
    pub fn ended(&self) -> u64 {
        // Pairs with the programs' addition, which precedes an entry's fields: the last ones may be written still.
        self.array.word(0).load(Acquire)
    }

    /// All that were kept. One that ends meanwhile may be told in part: read when what is measured has ended.
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
