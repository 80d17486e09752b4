//! Who brings the consumer to another processor when its own doesn't run it.
//!
//! The consumer sleeps for a millisecond, but may wake much later: a hypervisor stops a processor for tens of
//! milliseconds, and what waits in its queue or for its timer stands still with it, beside others that run. In that time
//! small rings are full. So while events come in a rush, watchmen on two processors look whether the consumer is late,
//! and the one that finds it so takes it to its own. Whoever stands still himself finds nothing, and does no harm.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    thread::{self, Thread},
    time::Duration,
};

use tompion_os::{affinity, allowed_cpus, monotonic_ns, set_affinity};

/// How many there are: more than one processor rarely stands still.
const WATCHMEN: usize = 2;
/// How often they look.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// How late the consumer may be, in nanoseconds.
const PATIENCE: u64 = 1_000_000;
/// After so many calls the consumer is called no more rarely.
const MOST_DOUBLED: u32 = 8;
/// Nobody need look.
const AT_REST: u64 = u64::MAX;

/// What the consumer and the watchmen know of each other.
#[derive(Debug)]
struct Shared {
    /// When the consumer wants to have looked at the rings again, in CLOCK_MONOTONIC nanoseconds.
    due: AtomicU64,
    /// Whether it was taken to another processor and has not been let go since.
    moved: AtomicBool,
    /// Where it might run before that.
    before: Mutex<Option<Vec<u32>>>,
    /// How often it was, since it looked last: it may wait for a disk, which a processor doesn't help.
    calls: AtomicU32,
    /// Whether there is nobody to watch any more.
    ended: AtomicBool,
    consumer: Thread,
    tid: u32,
}

/// The watchmen, as the consumer sees them.
#[derive(Debug)]
pub struct Watchmen {
    shared: Arc<Shared>,
    threads: Vec<Thread>,
    is_watched: bool,
}

impl Watchmen {
    /// Has the calling thread watched, where it may run on more than one processor.
    pub fn of_this_thread() -> Self {
        let cpus = allowed_cpus();
        let shared = Arc::new(Shared {
            due: AtomicU64::new(AT_REST),
            moved: AtomicBool::new(false),
            before: Mutex::default(),
            calls: AtomicU32::new(0),
            ended: AtomicBool::new(false),
            consumer: thread::current(),
            tid: tompion_os::gettid(),
        });
        let count = if cpus.len() > 1 { WATCHMEN } else { 0 };
        let begin = |cpu: u32| {
            let shared = shared.clone();
            let started = thread::Builder::new().name("watchman".into()).spawn(move || shared.watch(cpu));
            // Fewer of them are no failure.
            Some(started.ok()?.thread().clone())
        };
        let threads = cpus.into_iter().take(count).filter_map(begin).collect();
        Self { shared, threads, is_watched: false }
    }

    /// The consumer is going to look at the rings again after this time, and whether it matters when.
    pub fn expect(&mut self, within: Duration, matters: bool) {
        let due = if matters { monotonic_ns().saturating_add(within.as_nanos() as u64) } else { AT_REST };
        // Ordering: numbers by themselves; a watchman who sees them late looks again soon.
        self.shared.calls.store(0, Ordering::Relaxed);
        self.shared.due.store(due, Ordering::Relaxed);
        if matters && !self.is_watched {
            self.threads.iter().for_each(Thread::unpark);
        }
        self.is_watched = matters;
        self.shared.release();
    }
}

impl Drop for Watchmen {
    fn drop(&mut self) {
        // Ordering: a watchman who sees it late looks once more, for nothing; unparking him orders both before it.
        self.shared.ended.store(true, Ordering::Relaxed);
        self.shared.due.store(AT_REST, Ordering::Relaxed);
        self.threads.iter().for_each(Thread::unpark);
    }
}

impl Shared {
    fn watch(self: Arc<Self>, cpu: u32) {
        tompion_os::prefer_this_thread();
        if set_affinity(0, &[cpu]).is_err() {
            return;
        }
        // Ordering: both pair with nothing. Numbers by themselves, and who parks sees what came before he is called.
        while !self.ended.load(Ordering::Relaxed) {
            let due = self.due.load(Ordering::Relaxed);
            if due == AT_REST {
                thread::park();
                continue;
            }
            thread::sleep(LOOK_EVERY);
            self.look(due, cpu);
        }
    }

    /// Takes the consumer here if it is late.
    fn look(&self, due: u64, cpu: u32) {
        let now = monotonic_ns();
        // Each call is waited for twice as long as the one before it.
        // Ordering: the counter pairs with nothing; a number of before makes a wait longer or shorter.
        let calls = self.calls.load(Ordering::Relaxed).min(MOST_DOUBLED);
        let next = now.saturating_add(PATIENCE << calls);
        let is_late = due != AT_REST && now > due.saturating_add(PATIENCE);
        // One of them is enough; and if the consumer has looked meanwhile, nobody.
        // Ordering: pairs with nothing; who may move the consumer is decided by the exchange itself.
        let take = || self.due.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if is_late && take() && self.bring(cpu) {
            // Ordering: as above.
            self.calls.fetch_add(1, Ordering::Relaxed);
            self.consumer.unpark();
        }
    }

    /// Lets the consumer run on this processor alone, and keeps where it might before: somebody may have bound it anew
    /// (`taskset`), but what it has from a watchman is not to last.
    fn bring(&self, cpu: u32) -> bool {
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let cpus = before.take().unwrap_or_else(|| affinity(self.tid));
        let is_brought = set_affinity(self.tid, &[cpu]).is_ok();
        // Ordering: a hint for the consumer; the lock orders what matters.
        if is_brought || self.moved.load(Ordering::Relaxed) {
            *before = Some(cpus);
            self.moved.store(true, Ordering::Relaxed);
        }
        is_brought
    }

    /// Lets the consumer run wherever it might before. It waits for nobody: a watchman who holds the lock may stand
    /// still, and it is let go the next time.
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

    /// Sleeps for as long as nobody calls, at most half a minute.
    fn sleep_until_called(watchmen: &Watchmen) -> bool {
        let begin = Instant::now();
        while !watchmen.shared.moved.load(Ordering::Relaxed) && begin.elapsed() < Duration::from_secs(30) {
            thread::park_timeout(Duration::from_secs(30));
        }
        watchmen.shared.moved.load(Ordering::Relaxed)
    }

    #[test]
    fn who_oversleeps_is_woken_on_another_processor() {
        let watched = || {
            let cpus = allowed_cpus();
            let mut watchmen = Watchmen::of_this_thread();
            if cpus.len() < 2 {
                return assert!(watchmen.threads.is_empty());
            }
            for _ in 0..3 {
                watchmen.expect(Duration::from_millis(1), true);
                assert!(sleep_until_called(&watchmen), "nobody called");
                assert_eq!(allowed_cpus().len(), 1);
                watchmen.expect(Duration::from_secs(60), true);
                assert_eq!(allowed_cpus(), cpus);
            }
            // Nobody waits for it: nobody calls.
            watchmen.expect(Duration::ZERO, false);
            thread::sleep(Duration::from_millis(50));
            assert!(!watchmen.shared.moved.load(Ordering::Relaxed));
        };
        thread::spawn(watched).join().unwrap();
    }
}
