//! Accounting of wakeups: each counted wakeup must end in exactly one of the counted classes, or be
//! pending.

use serde::{Deserialize, Serialize};

use crate::mapped_counters::{COUNTS, MappedCounters};

/// Wakeups by outcome. `woken` is the sum of all that follow, up to `difference`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WakeupAccounting {
    /// Number of wakeups.
    pub woken: u64,
    /// The thread ran, and always had the highest priority.
    pub wakeup: u64,
    /// The thread ran, and one of equal priority ran meanwhile.
    pub shared: u64,
    /// The thread ran, and one of higher priority ran meanwhile.
    pub preempted: u64,
    /// The thread was still running: woken before it slept.
    pub not_slept: u64,
    /// The thread was woken again before its switch was seen.
    pub replaced: u64,
    /// Another thread evicted its entry.
    pub displaced: u64,
    /// The thread doesn't run yet.
    pub open: u64,
    /// Accounting error. Non-zero is a bug of the monitor.
    pub difference: i64,
    /// Wakeups without a slot for their thread, among all of these: counted by CPU alone.
    #[serde(default)]
    pub without_row: u64,
}

/// Maximum number of readings until the sums agree: threads are woken during a reading.
const MAX_ATTEMPTS: usize = 20;

impl WakeupAccounting {
    pub(crate) fn of(counts: &[u64; COUNTS], open: u64) -> Self {
        let [woken, wakeup, shared, preempted, not_slept, replaced, displaced, _, without_row] = *counts;
        let ended = wakeup + shared + preempted + not_slept + replaced + displaced;
        let difference = woken as i64 - ended as i64 - open as i64;
        Self {
            woken,
            wakeup,
            shared,
            preempted,
            not_slept,
            replaced,
            displaced,
            open,
            difference,
            without_row,
        }
    }

    /// Reads all sums repeatedly until they agree. A difference explained by wakeups between two
    /// readings is no error.
    pub(crate) fn read(memory: &MappedCounters) -> Self {
        let mut best = None;
        for _ in 0..MAX_ATTEMPTS {
            let before = memory.counts();
            let open = memory.open_wakes();
            let after = memory.counts();
            let mut balance = Self::of(&after, open);
            let happened: u64 = after.iter().zip(before).map(|(after, before)| after - before).sum();
            // A program may be in progress on each CPU.
            let allowed = happened + if happened > 0 { memory.cpus() as u64 } else { 0 };
            if balance.difference.unsigned_abs() <= allowed {
                balance.difference = 0;
                return balance;
            }
            best = best.into_iter().chain([balance]).min_by_key(|it: &Self| it.difference.unsigned_abs());
        }
        best.unwrap_or_default()
    }

    /// Changes since an earlier reading; `open` and `difference` are current.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            woken: self.woken.saturating_sub(earlier.woken),
            wakeup: self.wakeup.saturating_sub(earlier.wakeup),
            shared: self.shared.saturating_sub(earlier.shared),
            preempted: self.preempted.saturating_sub(earlier.preempted),
            not_slept: self.not_slept.saturating_sub(earlier.not_slept),
            replaced: self.replaced.saturating_sub(earlier.replaced),
            displaced: self.displaced.saturating_sub(earlier.displaced),
            open: self.open,
            difference: self.difference,
            without_row: self.without_row.saturating_sub(earlier.without_row),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_began_has_ended_or_goes_on() {
        let counts = [100, 80, 5, 5, 6, 2, 1, 70, 9];
        assert_eq!(WakeupAccounting::of(&counts, 1).difference, 0);
        assert_eq!(WakeupAccounting::of(&counts, 0).difference, 1);
        assert_eq!(WakeupAccounting::of(&counts, 3).difference, -2);
        let earlier = WakeupAccounting::of(&[60, 50, 5, 2, 3, 0, 0, 0, 2], 0);
        let since = WakeupAccounting::of(&counts, 1).since(&earlier);
        assert_eq!((since.woken, since.wakeup, since.shared, since.not_slept), (40, 30, 0, 3));
        assert_eq!(since.without_row, 7);
    }
}
