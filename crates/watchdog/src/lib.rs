//! Watchdog threads on two CPUs. When the consumer misses its deadline by 1 ms, one of them moves
//! it to its own CPU and wakes it.
//!
//! The consumer sleeps for a millisecond, but may wake much later. A hypervisor may stop a CPU for
//! tens of milliseconds, and what waits in its queue or for its timer stands still with it, beside
//! others that run. In that time small rings are full. So while events come in a burst, watchdogs
//! on two CPUs poll whether the consumer is late. A watchdog whose own CPU stands still finds
//! nothing, and does no harm.

#![forbid(unsafe_code)]

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    thread::{self, Thread},
    time::Duration,
};

use tompion_os::{affinity, allowed_cpus, monotonic_ns, set_affinity};

/// Number of watchdogs: more than one CPU rarely stands still.
const WATCHDOGS: usize = 2;
/// Interval of their polls.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Time by which the consumer may be late, in nanoseconds.
const STALL_SLACK_NS: u64 = 1_000_000;
/// Maximum number of doublings of the interval at which a stalled consumer is called.
const MAX_DOUBLINGS: u32 = 8;
/// No deadline is armed.
const DISARMED: u64 = u64::MAX;

/// State that the consumer and the watchdogs share.
#[derive(Debug)]
struct Shared {
    /// Deadline of the consumer's next poll, in CLOCK_MONOTONIC nanoseconds.
    due: AtomicU64,
    /// Whether it was taken to another processor and has not been let go since.
    moved: AtomicBool,
    /// Its CPUs before that.
    before: Mutex<Option<Vec<u32>>>,
    /// Number of moves since its last poll: it may wait for a disk, which a CPU doesn't help.
    calls: AtomicU32,
    /// Whether the consumer is gone.
    ended: AtomicBool,
    consumer: Thread,
    tid: u32,
}

/// Watchdogs, as the consumer sees them.
#[derive(Debug)]
pub struct StallWatchdog {
    shared: Arc<Shared>,
    threads: Vec<Thread>,
    is_armed: bool,
}

impl StallWatchdog {
    /// Has the calling thread watched, where it may run on more than one processor.
    pub fn for_this_thread() -> Self {
        let cpus = allowed_cpus();
        let shared = Arc::new(Shared {
            due: AtomicU64::new(DISARMED),
            moved: AtomicBool::new(false),
            before: Mutex::default(),
            calls: AtomicU32::new(0),
            ended: AtomicBool::new(false),
            consumer: thread::current(),
            tid: tompion_os::gettid(),
        });
        let count = if cpus.len() > 1 { WATCHDOGS } else { 0 };
        let begin = |cpu: u32| {
            let shared = shared.clone();
            let started = thread::Builder::new().name("watchdog".into()).spawn(move || shared.run(cpu));
            // Fewer of them are no failure.
            Some(started.ok()?.thread().clone())
        };
        let threads = cpus.into_iter().take(count).filter_map(begin).collect();
        Self { shared, threads, is_armed: false }
    }

    /// The consumer is going to look at the rings again after this time, and whether it matters
    /// when.
    pub fn arm_deadline(&mut self, within: Duration, matters: bool) {
        let due = if matters { monotonic_ns().saturating_add(within.as_nanos() as u64) } else { DISARMED };
        // Ordering: numbers by themselves; a watchdog that sees them late polls again soon.
        self.shared.calls.store(0, Ordering::Relaxed);
        self.shared.due.store(due, Ordering::Relaxed);
        if matters && !self.is_armed {
            self.threads.iter().for_each(Thread::unpark);
        }
        self.is_armed = matters;
        self.shared.release();
    }
}

impl Drop for StallWatchdog {
    fn drop(&mut self) {
        // Ordering: a watchdog that sees it late polls once more, for nothing; unparking it orders
        // both before it.
        self.shared.ended.store(true, Ordering::Relaxed);
        self.shared.due.store(DISARMED, Ordering::Relaxed);
        self.threads.iter().for_each(Thread::unpark);
    }
}

impl Shared {
    fn run(self: Arc<Self>, cpu: u32) {
        tompion_os::prefer_this_thread();
        if set_affinity(0, &[cpu]).is_err() {
            return;
        }
        // Ordering: both pair with nothing. Numbers by themselves, and a parked thread sees what
        // came before it was unparked.
        while !self.ended.load(Ordering::Relaxed) {
            let due = self.due.load(Ordering::Relaxed);
            if due == DISARMED {
                thread::park();
                continue;
            }
            thread::sleep(POLL_INTERVAL);
            self.poll(due, cpu);
        }
    }

    /// Takes the consumer here if it is late.
    fn poll(&self, due: u64, cpu: u32) {
        let now = monotonic_ns();
        // Each call is waited for twice as long as the one before it. Ordering: the counter pairs
        // with nothing; a number of before makes a wait longer or shorter.
        let calls = self.calls.load(Ordering::Relaxed).min(MAX_DOUBLINGS);
        let next = now.saturating_add(STALL_SLACK_NS << calls);
        let is_late = due != DISARMED && now > due.saturating_add(STALL_SLACK_NS);
        // One of them is enough; and if the consumer has polled meanwhile, none. Ordering: pairs
        // with nothing; the exchange itself decides which watchdog moves the consumer.
        let take = || self.due.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if is_late && take() && self.migrate_here(cpu) {
            // Ordering: as above.
            self.calls.fetch_add(1, Ordering::Relaxed);
            self.consumer.unpark();
        }
    }

    /// Lets the consumer run on this CPU alone, and keeps the ones before: a user may have changed
    /// its affinity (`taskset`), but what it has from a watchdog is not to last.
    fn migrate_here(&self, cpu: u32) -> bool {
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let cpus = before.take().unwrap_or_else(|| affinity(self.tid));
        let is_migrated = set_affinity(self.tid, &[cpu]).is_ok();
        // Ordering: a hint for the consumer; the lock orders what matters.
        if is_migrated || self.moved.load(Ordering::Relaxed) {
            *before = Some(cpus);
            self.moved.store(true, Ordering::Relaxed);
        }
        is_migrated
    }

    /// Lets the consumer run wherever it might before. It doesn't wait: a watchdog that holds the
    /// lock may stand still, and it is let go the next time.
    fn release(&self) {
        // Ordering: a hint; the lock orders what matters.
        if !self.moved.load(Ordering::Relaxed) {
            return;
        }
        let Ok(mut before) = self.before.try_lock() else { return };
        self.moved.store(false, Ordering::Relaxed);
        if let Some(cpus) = before.take() {
            // If that is refused, it stays where it is.
            let _ = set_affinity(0, &cpus);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// Sleeps until a watchdog has moved it, at most half a minute.
    fn sleep_until_moved(stall_watchdog: &StallWatchdog) -> bool {
        let begin = Instant::now();
        while !stall_watchdog.shared.moved.load(Ordering::Relaxed)
            && begin.elapsed() < Duration::from_secs(30)
        {
            thread::park_timeout(Duration::from_secs(30));
        }
        stall_watchdog.shared.moved.load(Ordering::Relaxed)
    }

    #[test]
    fn a_late_consumer_is_woken_on_another_cpu() {
        let watched = || {
            let cpus = allowed_cpus();
            let mut stall_watchdog = StallWatchdog::for_this_thread();
            if cpus.len() < 2 {
                return assert!(stall_watchdog.threads.is_empty());
            }
            for _ in 0..3 {
                stall_watchdog.arm_deadline(Duration::from_millis(1), true);
                assert!(sleep_until_moved(&stall_watchdog), "no watchdog moved it");
                assert_eq!(allowed_cpus().len(), 1);
                stall_watchdog.arm_deadline(Duration::from_secs(60), true);
                assert_eq!(allowed_cpus(), cpus);
            }
            // No deadline is armed: no watchdog moves it.
            stall_watchdog.arm_deadline(Duration::ZERO, false);
            thread::sleep(Duration::from_millis(50));
            assert!(!stall_watchdog.shared.moved.load(Ordering::Relaxed));
        };
        thread::spawn(watched).join().unwrap();
    }
}
