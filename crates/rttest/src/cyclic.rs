//! Periodic wakeups: how late does a thread go on that wanted to be woken at a time?
//!
//! A thread on each CPU sleeps until the next multiple of an interval, reads the clock, and
//! accounts how late it is. The cost of a wakeup depends on its source: all ways that programs use
//! are there ([`Wakeup`]).

use std::{
    fs::File,
    io::{self, Write},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    thread::JoinHandle,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tompion_os::{FileRights, SignalTimer, TimerDescriptor, monotonic_ns};

use crate::{
    Error,
    accumulator::{Accumulator, Summary},
    prepare::{PrepareOptions, Prepared, lock_memory, prepare, reason},
};

/// Way in which a thread is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wakeup {
    /// The thread sleeps until a time (`clock_nanosleep`).
    Nanosleep,
    /// The thread reads a timer (`timerfd_create`).
    Timerfd,
    /// The thread waits for a timer's signal (`timer_create`).
    Timer,
    /// It waits for a word to change until a time (`futex`), as condition variables do.
    Futex,
}

/// Scheduling policy of the threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// `SCHED_FIFO` with this priority.
    Fifo(u32),
    /// `SCHED_RR` with this priority.
    RoundRobin(u32),
    /// `SCHED_DEADLINE` with so much time in each interval; on any CPU that the kernel chooses.
    Deadline,
    /// `SCHED_OTHER`, as ordinary programs have it.
    Other,
}

/// Configuration of the measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Config {
    /// A thread on each of these CPUs.
    pub cpus: Vec<u32>,
    /// Interval between two wakeups.
    pub interval: Duration,
    /// Number of wakeups on each CPU; unlimited without one.
    pub loops: Option<u64>,
    /// Duration; the test never ends without one.
    pub duration: Option<Duration>,
    /// Way in which they are woken.
    pub wakeup: Wakeup,
    /// Their scheduler.
    pub policy: Policy,
    /// A wake-up that is later ends the test.
    pub break_at: Option<Duration>,
    /// Process that gets [`SNAPSHOT`] when that happens.
    pub recorder: Option<u32>,
}

/// The signal at which a recording saves what it has (SIGUSR1).
pub const SNAPSHOT: i32 = 10;
/// Time to the first wakeup, so that all threads are there.
const HEAD_START_NS: u64 = 20_000_000;

/// A wake-up that was too late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Break {
    /// The CPU of its thread.
    pub cpu: u32,
    /// Latency.
    pub late_ns: u64,
    /// Expected time, on CLOCK_MONOTONIC.
    pub expected_ns: u64,
    /// The recording that was asked to save what led to it.
    pub asked: Option<u32>,
}

/// Progress of a thread while it measures. Written by the thread alone, read by the display.
#[derive(Debug)]
struct Slot {
    count: AtomicU64,
    sum: AtomicU64,
    min: AtomicU64,
    last: AtomicU64,
    max: AtomicU64,
    missed: AtomicU64,
}

impl Default for Slot {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            count: zero(),
            sum: zero(),
            min: AtomicU64::new(u64::MAX),
            last: zero(),
            max: zero(),
            missed: zero(),
        }
    }
}

/// A thread's measurements so far, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// The CPU that was asked for.
    pub cpu: u32,
    /// Wake-ups.
    pub count: u64,
    /// The least late.
    pub min_ns: u64,
    /// Latency of the last wakeup, in nanoseconds.
    pub last_ns: u64,
    /// Their mean.
    pub mean_ns: f64,
    /// Maximum latency, in nanoseconds.
    pub max_ns: u64,
}

impl Slot {
    fn take(&self, late: u64) {
        // One writer: a load and a store are enough.
        let add = |place: &AtomicU64, value| place.store(place.load(Relaxed).wrapping_add(value), Relaxed);
        add(&self.sum, late);
        add(&self.count, 1);
        self.min.store(self.min.load(Relaxed).min(late), Relaxed);
        self.max.store(self.max.load(Relaxed).max(late), Relaxed);
        self.last.store(late, Relaxed);
    }

    fn progress(&self, cpu: u32) -> Option<Progress> {
        let count = self.count.load(Relaxed);
        (count != 0).then(|| Progress {
            cpu,
            count,
            min_ns: self.min.load(Relaxed),
            last_ns: self.last.load(Relaxed),
            mean_ns: self.sum.load(Relaxed) as f64 / count as f64,
            max_ns: self.max.load(Relaxed),
        })
    }
}

/// Measurements of a CPU.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Settings that its thread got.
    pub prepared: Prepared,
    /// Latencies of its wakeups.
    pub late: Summary,
    /// Intervals that passed while an earlier wake-up was still late.
    pub missed: u64,
}

/// Result of the measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// Results of each CPU.
    pub cpus: Vec<Measured>,
    /// Wakeup that ended it, if one was too late.
    pub broken: Option<Break>,
    /// Settings that could not be had for all threads together.
    pub could_not: Vec<String>,
}

/// State that all threads share.
#[derive(Debug)]
struct Shared {
    config: Config,
    start_ns: u64,
    stop: AtomicBool,
    broken: OnceLock<Break>,
    slots: Vec<Slot>,
}

/// A test that runs.
#[derive(Debug)]
pub struct Running {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Result<Measured, Error>>>,
    could_not: Vec<String>,
    /// Keeps processors from sleeping deeply, as long as it is open.
    _awake: Option<File>,
}

/// Starts a thread on each CPU.
pub fn start(config: Config) -> Running {
    let mut could_not = Vec::new();
    let awake = stay_awake().map_err(|error| {
        could_not.push(format!("keep processors from deep sleep (/dev/cpu_dma_latency): {}", reason(&error)));
    });
    let slots = config.cpus.iter().map(|_| Slot::default()).collect();
    let start_ns = monotonic_ns() + HEAD_START_NS;
    let shared =
        Arc::new(Shared { config, start_ns, stop: AtomicBool::new(false), broken: OnceLock::new(), slots });
    let threads = (0..shared.slots.len()).map(|place| {
        let shared = Arc::clone(&shared);
        std::thread::spawn(move || shared.measure(place))
    });
    Running { threads: threads.collect(), shared, could_not, _awake: awake.ok() }
}

/// Asks that no processor sleeps so that it takes longer than 0 µs to wake up.
///
/// Source: `Documentation/power/pm_qos_interface.rst`.
fn stay_awake() -> io::Result<File> {
    let _rights = FileRights::of_the_process().ok();
    let mut file = File::options().write(true).open("/dev/cpu_dma_latency")?;
    file.write_all(&0_i32.to_ne_bytes())?;
    Ok(file)
}

impl Running {
    /// Whether a thread still measures.
    pub fn goes_on(&self) -> bool {
        self.threads.iter().any(|thread| !thread.is_finished())
    }

    /// Returns the measurements so far, of each CPU that has begun.
    pub fn progress(&self) -> Vec<Progress> {
        let cpus = self.shared.config.cpus.iter();
        cpus.zip(&self.shared.slots).filter_map(|(cpu, slot)| slot.progress(*cpu)).collect()
    }

    /// Ends it, if it hasn't ended by itself.
    ///
    /// # Errors
    /// [`Error::Failed`] if a thread could not measure at all.
    pub fn finish(self) -> Result<Outcome, Error> {
        self.shared.stop.store(true, Relaxed);
        let cpus = self.threads.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| Err(Error::Failed("a thread that measured has died".into())))
        });
        let cpus = cpus.collect::<Result<Vec<_>, _>>()?;
        Ok(Outcome { cpus, broken: self.shared.broken.get().copied(), could_not: self.could_not })
    }
}

impl Shared {
    fn measure(&self, place: usize) -> Result<Measured, Error> {
        let (Some(cpu), Some(slot)) = (self.config.cpus.get(place), self.slots.get(place)) else {
            return Err(Error::Failed("a thread without a CPU".into()));
        };
        let mut late = Accumulator::new();
        let prepared = self.prepare(*cpu);
        let interval = self.interval_ns();
        let mut next = self.start_ns;
        let failed = |error: io::Error| Error::Failed(format!("CPU {cpu} has no timer: {error}"));
        let mut waiter = Waiter::new(self.config.wakeup, next, interval).map_err(failed)?;
        let end = self.config.duration.map(|time| next + time.as_nanos() as u64);
        let mut left = self.config.loops.unwrap_or(u64::MAX);
        while left != 0 && !self.stop.load(Relaxed) && end.is_none_or(|end| next < end) {
            let expired = waiter.wait(next).map_err(failed)?;
            let now = monotonic_ns();
            let this = now.saturating_sub(next);
            if self.config.break_at.is_some_and(|limit| u128::from(this) > limit.as_nanos()) {
                self.tell(Break { cpu: *cpu, late_ns: this, expected_ns: next, asked: None });
            }
            late.record(this);
            slot.take(this);
            left -= 1;
            // Timers go on by themselves, and say how far; the others begin again at the next
            // multiple.
            let passed = expired.unwrap_or(1 + this / interval);
            next += passed * interval;
            slot.missed.store(slot.missed.load(Relaxed) + passed - 1, Relaxed);
        }
        let missed = slot.missed.load(Relaxed);
        Ok(Measured { prepared, late: late.counts().summary(1.0), missed })
    }

    fn interval_ns(&self) -> u64 {
        (self.config.interval.as_nanos() as u64).max(1)
    }

    /// The first one that is too late ends it for all, and has the recording saved at once.
    #[cold]
    fn tell(&self, found: Break) {
        if self.stop.swap(true, Relaxed) {
            return;
        }
        let asked = self.config.recorder.filter(|pid| tompion_os::kill(*pid, SNAPSHOT).is_ok());
        let _ = self.broken.set(Break { asked, ..found });
    }

    /// Gets a thread its CPU, its scheduler, and memory that stays.
    fn prepare(&self, cpu: u32) -> Prepared {
        if self.config.policy == Policy::Deadline {
            return self.prepare_deadline(cpu);
        }
        let fifo = if let Policy::Fifo(priority) = self.config.policy { Some(priority) } else { None };
        let mut prepared = prepare(PrepareOptions { cpu, priority: fifo });
        if let Policy::RoundRobin(priority) = self.config.policy {
            if let Err(error) = tompion_os::run_round_robin(priority) {
                prepared.could_not.push(format!("run under SCHED_RR {priority}: {}", reason(&error)));
            }
        }
        prepared
    }

    /// The kernel promises time only to threads that may run on all CPUs.
    fn prepare_deadline(&self, cpu: u32) -> Prepared {
        let mut prepared = Prepared { cpu, ..Prepared::default() };
        lock_memory(&mut prepared);
        let interval = self.interval_ns();
        // The kernel promises no less than a microsecond.
        let runtime = (interval / DEADLINE_SHARE).max(2000).min(interval);
        if let Err(error) = tompion_os::run_deadline(runtime, interval) {
            prepared.could_not.push(format!("run under SCHED_DEADLINE: {}", reason(&error)));
        }
        prepared
    }
}

/// Each thread asks for this part of its interval.
const DEADLINE_SHARE: u64 = 10;

/// The way in which a thread waits.
enum Waiter {
    Nanosleep,
    Timerfd(TimerDescriptor),
    Timer(SignalTimer),
    /// A word that never changes.
    Futex(AtomicU32),
}

impl Waiter {
    fn new(wakeup: Wakeup, first: u64, interval: u64) -> io::Result<Self> {
        Ok(match wakeup {
            Wakeup::Nanosleep => Self::Nanosleep,
            Wakeup::Timerfd => Self::Timerfd(TimerDescriptor::new(first, interval)?),
            Wakeup::Timer => Self::Timer(SignalTimer::new(first, interval)?),
            Wakeup::Futex => Self::Futex(AtomicU32::new(0)),
        })
    }

    /// Waits until the time has come. For timers: how many intervals are over.
    fn wait(&mut self, time: u64) -> io::Result<Option<u64>> {
        match self {
            Self::Nanosleep => tompion_os::sleep_until(time),
            Self::Timerfd(timer) => return timer.wait().map(Some),
            Self::Timer(timer) => return timer.wait().map(Some),
            Self::Futex(word) => {
                while monotonic_ns() < time {
                    tompion_os::futex_wait_until(word, 0, time);
                }
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(wakeup: Wakeup, policy: Policy) -> Config {
        Config {
            cpus: tompion_os::allowed_cpus(),
            interval: Duration::from_micros(500),
            loops: Some(100),
            duration: None,
            wakeup,
            policy,
            break_at: None,
            recorder: None,
        }
    }

    #[test]
    fn every_way_of_waking_wakes_as_often_as_asked() {
        for wakeup in [Wakeup::Nanosleep, Wakeup::Timerfd, Wakeup::Timer, Wakeup::Futex] {
            let config = config(wakeup, Policy::Other);
            let cpus = config.cpus.clone();
            let outcome = start(config).finish_later();
            assert_eq!(outcome.cpus.len(), cpus.len());
            for (measured, cpu) in outcome.cpus.iter().zip(cpus) {
                assert_eq!(measured.late.count, 100, "{wakeup:?}");
                assert!(measured.prepared.cpu == cpu && measured.prepared.pinned, "{measured:?}");
                assert!(
                    measured.late.min_ns <= measured.late.mean_ns
                        && measured.late.mean_ns <= measured.late.max_ns
                );
            }
            assert_eq!(outcome.broken, None);
        }
    }

    impl Running {
        /// Waits until the measurement has ended by itself.
        fn finish_later(self) -> Outcome {
            while self.goes_on() {
                std::thread::sleep(Duration::from_millis(2));
            }
            self.finish().unwrap()
        }
    }

    #[test]
    fn every_scheduler_is_had_or_its_lack_is_said() {
        for policy in [Policy::Fifo(1), Policy::RoundRobin(1), Policy::Deadline] {
            let outcome = start(config(Wakeup::Nanosleep, policy)).finish_later();
            for measured in outcome.cpus {
                assert_eq!(measured.late.count, 100);
                for line in measured.prepared.could_not {
                    assert!(line.contains(": "), "{line}");
                }
            }
        }
    }

    #[test]
    fn a_wake_up_that_is_too_late_ends_it() {
        let config = Config {
            break_at: Some(Duration::ZERO),
            loops: None,
            ..config(Wakeup::Nanosleep, Policy::Other)
        };
        let outcome = start(config).finish_later();
        let broken = outcome.broken.expect("every wake-up is later than not at all");
        assert!(broken.late_ns > 0 && broken.asked.is_none());
        assert!(outcome.cpus.iter().all(|measured| measured.late.count < 1000));
    }

    #[test]
    fn it_ends_after_its_time_and_on_request() {
        let timed = Config {
            loops: None,
            duration: Some(Duration::from_millis(50)),
            ..config(Wakeup::Timerfd, Policy::Other)
        };
        let outcome = start(timed).finish_later();
        for measured in outcome.cpus {
            // Each interval was one wake-up, or was missed.
            assert!(measured.late.count + measured.missed >= 100, "{measured:?}");
        }
        let endless = Config { loops: None, ..config(Wakeup::Futex, Policy::Other) };
        let running = start(endless);
        while running.progress().is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(running.progress()[0].count > 0);
        assert!(running.finish().unwrap().cpus.iter().all(|measured| measured.late.count < 1_000_000));
    }
}
