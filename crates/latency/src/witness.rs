//! An independent count: how often threads slept, as the scheduler counts it, against how often we saw them run again.
//!
//! There are kernels that start no programs while certain processes run, and count nothing of that
//! (docs/design/kernel.md, "What no counter tells"); a mistake of ours would be seen here, too.

use std::{collections::BTreeMap, fs};

use serde::Serialize;

use crate::memory::Memory;

/// What the scheduler counted and we did not see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Unseen {
    /// Times that threads slept, by the scheduler, since the first wake-up of each that was counted.
    pub slept: u64,
    /// Of these without a wake-up that we saw.
    pub unseen: u64,
}

impl Unseen {
    const fn and(self, other: Self) -> Self {
        Self { slept: self.slept + other.slept, unseen: self.unseen + other.unseen }
    }
}

/// Threads and what was known of them.
#[derive(Debug, Default)]
pub struct Witness {
    threads: BTreeMap<u64, Seen>,
    /// Of threads whose rows were given back.
    gone: Unseen,
}

#[derive(Debug)]
struct Seen {
    /// Wake-ups that we had seen, and times that it had slept, when comparing begins.
    first: (u64, u64),
    unseen: Unseen,
}

impl Seen {
    /// A thread that sleeps has slept once more than it was woken.
    fn look(&mut self, seen: u64, slept: u64) {
        let slept = slept.saturating_sub(self.first.1);
        let seen = seen.saturating_sub(self.first.0);
        self.unseen = Unseen { slept, unseen: slept.saturating_sub(seen + 1) };
    }
}

impl Witness {
    /// Forgets what was unseen until now: what comes from now on is compared.
    pub(crate) fn begin_anew(&mut self, memory: &Memory) {
        *self = Self::default();
        for row in memory.slept() {
            let Some(slept) = times_slept(row.tid) else { continue };
            self.threads.insert(row.key, Seen { first: (row.seen, slept), unseen: Unseen::default() });
        }
    }

    /// Looks at all threads, and says what is known of them: of each since its first wake-up that was counted, whoever looks when.
    pub(crate) fn look(&mut self, memory: &Memory) -> Unseen {
        let before: BTreeMap<u64, u32> = memory.slept().map(|row| (row.key, row.tid)).collect();
        let slept: BTreeMap<u64, u64> =
            before.iter().filter_map(|(key, tid)| Some((*key, times_slept(*tid)?))).collect();
        // What we have seen is read later than what the scheduler has: nothing is called unseen because of when we looked.
        for row in memory.slept() {
            let Some(slept) = slept.get(&row.key) else { continue };
            let first = (0, row.before);
            let seen = self.threads.entry(row.key);
            seen.or_insert(Seen { first, unseen: Unseen::default() }).look(row.seen, *slept);
        }
        let gone = &mut self.gone;
        self.threads.retain(|key, seen| {
            let stays = before.contains_key(key);
            if !stays {
                *gone = gone.and(seen.unseen);
            }
            stays
        });
        self.threads.values().map(|seen| seen.unseen).fold(self.gone, Unseen::and)
    }
}

/// How often a thread has slept; none of one that is ordinary: it is counted only while it inherits a real-time priority, and sleeps at
/// other times. Source: `policy` in `proc_pid_stat(5)`, `voluntary_ctxt_switches` in `proc_pid_status(5)`.
fn times_slept(tid: u32) -> Option<u64> {
    /// Behind the name, which ends with the last parenthesis.
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
    fn what_was_slept_and_not_seen_is_told() {
        let mut seen = Seen { first: (10, 30), unseen: Unseen::default() };
        // One that sleeps now is not late.
        seen.look(110, 131);
        assert_eq!(seen.unseen, Unseen { slept: 101, unseen: 0 });
        seen.look(110, 136);
        assert_eq!(seen.unseen, Unseen { slept: 106, unseen: 5 });
        // A thread that yields is seen to run without having slept.
        seen.look(500, 136);
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
