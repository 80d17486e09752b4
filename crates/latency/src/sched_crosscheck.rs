//! Crosscheck of wakeups with an independent count: how often threads slept, by the scheduler.
//!
//! Some kernels run no BPF programs while certain processes run, and no counter shows it
//! (docs/design/kernel.md, "What no counter tells"). A bug of the monitor would also show here.

use std::{collections::BTreeMap, fs};

use serde::Serialize;

use crate::mapped_counters::MappedCounters;

/// Sleeps counted by the scheduler whose wakeups were missed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MissedWakeups {
    /// Number of sleeps by the scheduler, since the first counted wakeup of each thread.
    pub slept: u64,
    /// Number of these without a counted wakeup.
    pub unseen: u64,
}

impl MissedWakeups {
    const fn and(self, other: Self) -> Self {
        Self { slept: self.slept + other.slept, unseen: self.unseen + other.unseen }
    }
}

/// Crosscheck of all threads.
#[derive(Debug, Default)]
pub struct SchedCrosscheck {
    threads: BTreeMap<u64, ThreadCounts>,
    /// Sum of the threads whose slots were released.
    gone: MissedWakeups,
}

#[derive(Debug)]
struct ThreadCounts {
    /// Counted wakeups and sleeps of the thread when the comparison began.
    first: (u64, u64),
    unseen: MissedWakeups,
}

impl ThreadCounts {
    /// A sleeping thread has slept once more than it was woken.
    fn compare(&mut self, seen: u64, slept: u64) {
        let slept = slept.saturating_sub(self.first.1);
        let seen = seen.saturating_sub(self.first.0);
        self.unseen = MissedWakeups { slept, unseen: slept.saturating_sub(seen + 1) };
    }
}

impl SchedCrosscheck {
    /// Restarts the comparison from now on.
    pub(crate) fn restart(&mut self, memory: &MappedCounters) {
        *self = Self::default();
        for row in memory.slept() {
            let Some(slept) = times_slept(row.tid) else { continue };
            self.threads
                .insert(row.key, ThreadCounts { first: (row.seen, slept), unseen: MissedWakeups::default() });
        }
    }

    /// Compares all threads, each since its first counted wakeup.
    pub(crate) fn compare(&mut self, memory: &MappedCounters) -> MissedWakeups {
        let before: BTreeMap<u64, u32> = memory.slept().map(|row| (row.key, row.tid)).collect();
        let slept: BTreeMap<u64, u64> =
            before.iter().filter_map(|(key, tid)| Some((*key, times_slept(*tid)?))).collect();
        // Wakeups are read after the scheduler's count, so that the order of reading causes no
        // miss.
        for row in memory.slept() {
            let Some(slept) = slept.get(&row.key) else { continue };
            let first = (0, row.before);
            let seen = self.threads.entry(row.key);
            seen.or_insert(ThreadCounts { first, unseen: MissedWakeups::default() })
                .compare(row.seen, *slept);
        }
        let gone = &mut self.gone;
        self.threads.retain(|key, seen| {
            let stays = before.contains_key(key);
            if !stays {
                *gone = gone.and(seen.unseen);
            }
            stays
        });
        self.threads.values().map(|seen| seen.unseen).fold(self.gone, MissedWakeups::and)
    }
}

/// Returns how often a thread slept; none for an ordinary thread, which is counted only while it
/// inherits a real-time priority. Source: `policy` in `proc_pid_stat(5)`, `voluntary_ctxt_switches`
/// in `proc_pid_status(5)`.
fn times_slept(tid: u32) -> Option<u64> {
    /// Index after the name, which ends with the last parenthesis.
    const POLICY: usize = 38;
    const REAL_TIME: [&str; 3] = ["1", "2", "6"];
    let stat = fs::read_to_string(format!("/proc/{tid}/stat")).ok()?;
    let policy = stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(POLICY)?;
    if !REAL_TIME.contains(&policy) {
        return None;
    }
    let text = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_without_wakeups_are_missed() {
        let mut seen = ThreadCounts { first: (10, 30), unseen: MissedWakeups::default() };
        // A thread that sleeps now was not missed.
        seen.compare(110, 131);
        assert_eq!(seen.unseen, MissedWakeups { slept: 101, unseen: 0 });
        seen.compare(110, 136);
        assert_eq!(seen.unseen, MissedWakeups { slept: 106, unseen: 5 });
        // A thread that yields runs without having slept.
        seen.compare(500, 136);
        assert_eq!(seen.unseen.unseen, 0);
    }

    #[test]
    fn the_kernel_counts_how_often_a_thread_slept() {
        assert_eq!((times_slept(tompion_os::gettid()), times_slept(u32::MAX)), (None, None));
        let sleeper = std::thread::spawn(|| {
            if let Err(error) = tompion_os::run_fifo(1) {
                return eprintln!("SKIPPED, no real-time priority here: {error}");
            }
            let before = times_slept(tompion_os::gettid()).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(1));
            assert!(times_slept(tompion_os::gettid()).unwrap() > before);
        });
        sleeper.join().unwrap();
    }
}
