//! Whether the sums agree: each wake-up that began has ended in one of the ways that are counted, or goes on.

use serde::{Deserialize, Serialize};

use crate::memory::{COUNTS, Memory};

/// Wake-ups, by how they ended. The first is the sum of all that follow, but for the difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Balance {
    /// Threads that were woken.
    pub woken: u64,
    /// They ran, and had the highest priority all the while.
    pub wakeup: u64,
    /// They ran, and one of the same priority ran meanwhile.
    pub shared: u64,
    /// They ran, and one of a higher priority ran meanwhile.
    pub preempted: u64,
    /// They were running still: woken before they got to sleep.
    pub not_slept: u64,
    /// They were woken again before somebody saw them run.
    pub replaced: u64,
    /// Another thread took the place where they are remembered.
    pub displaced: u64,
    /// They don't run yet.
    pub open: u64,
    /// What the sums disagree by. Anything but 0 is a mistake of the monitor's.
    pub difference: i64,
    /// Of all these, how many are in no thread's row, because there was none left: they are counted by CPU alone.
    #[serde(default)]
    pub without_row: u64,
}

/// How often the sums are read if they don't agree: threads are woken while they are read.
const MOST_ATTEMPTS: usize = 20;

impl Balance {
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

    /// Reads all sums, again and again until they agree. While threads are woken, what happened between two readings is
    /// no disagreement.
    pub(crate) fn read(memory: &Memory) -> Self {
        let mut best = None;
        for _ in 0..MOST_ATTEMPTS {
            let before = memory.counts();
            let open = memory.open_wakes();
            let after = memory.counts();
            let mut balance = Self::of(&after, open);
            let happened: u64 = after.iter().zip(before).map(|(after, before)| after - before).sum();
            // Each CPU may be within a program.
            let allowed = happened + if happened > 0 { memory.cpus() as u64 } else { 0 };
            if balance.difference.unsigned_abs() <= allowed {
                balance.difference = 0;
                return balance;
            }
            best = best.into_iter().chain([balance]).min_by_key(|it: &Self| it.difference.unsigned_abs());
        }
        best.unwrap_or_default()
    }

    /// What has come since an earlier reading; open ones and the difference are those of now.
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
        assert_eq!(Balance::of(&counts, 1).difference, 0);
        assert_eq!(Balance::of(&counts, 0).difference, 1);
        assert_eq!(Balance::of(&counts, 3).difference, -2);
        let earlier = Balance::of(&[60, 50, 5, 2, 3, 0, 0, 0, 2], 0);
        let since = Balance::of(&counts, 1).since(&earlier);
        assert_eq!((since.woken, since.wakeup, since.shared, since.not_slept), (40, 30, 0, 3));
        assert_eq!(since.without_row, 7);
    }
}
