//! Can a thread of higher priority interrupt one of lower priority, and how fast?
//!
//! Two threads on one CPU. The lower one never gives up the CPU by itself while it waits; the
//! higher one sleeps, and is woken in two ways:
//!
//! ```text
//! by the lower one   lower:  reads the clock ─ wakes ─┆                     ┆─ goes on
//!                    higher:                          ┆ reads the clock ─ ok┆
//! by a timer         lower:  spins ───────────────────┆                     ┆─ spins
//!                    higher:        (timer is due)    ┆ reads the clock ─ ok┆
//! ```
//!
//! It was preempted if the higher one ran before the lower one went on. In a kernel that doesn't
//! preempt, the lower one goes on, and gives up in the end.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tompion_os::{futex_wait, futex_wake_one, monotonic_ns, sleep_until};

use crate::{
    Error,
    accumulator::{Accumulator, Summary},
    prepare::{PrepareOptions, Prepared, prepare},
};

/// Configuration of the test.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The CPU for both threads.
    pub cpu: u32,
    /// SCHED_FIFO's priority of the lower one, 1 to 98; the other's is one more.
    pub priority: u32,
    /// Number of rounds, in each way.
    pub rounds: u64,
}

/// Result of one of the two ways.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Way {
    /// Number of rounds.
    pub rounds: u64,
    /// Number of rounds in which the higher one ran before the lower one went on.
    pub preempted: u64,
    /// From the wake-up, or the time that the timer was set to, until the higher one ran.
    pub until_running: Summary,
}

/// Result of the measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// Settings that the lower one got, and the higher one.
    pub threads: [Prepared; 2],
    /// Woken by the lower one.
    pub by_thread: Way,
    /// Woken by a timer.
    pub by_timer: Way,
}

/// Time for which the lower one waits for the higher one to interrupt it, before it gives way.
const WAIT_TIMEOUT: Duration = Duration::from_millis(20);
/// Time ahead at which the timer is set.
const AHEAD_NS: u64 = 100_000;
/// Between two rounds both sleep, so that the machine breathes.
const REST_NS: u64 = 100_000;

/// Way in which a round wakes: by the other thread, or by a timer.
const BY_THREAD: u32 = 0;
const BY_TIMER: u32 = 1;

/// State that the two threads share. Each word has one writer.
#[derive(Debug, Default)]
struct Table {
    /// The lower one's: the round that the higher one is to wait for, the way in its lowest bit;
    /// the largest number ends it.
    round: AtomicU32,
    /// The lower one's: when the round's wake-up is due.
    due: AtomicU64,
    /// The lower one's: the round in which it went on after waking, before it saw that the other
    /// one had run.
    went_on: AtomicU32,
    /// The higher one's: the round that it is ready for.
    ready: AtomicU32,
    /// The higher one's: the round in which it has run.
    ran: AtomicU32,
}

const END: u32 = u32::MAX;

/// Tries it.
///
/// # Errors
/// [`Error::Failed`] if the threads can't be held on one CPU.
pub fn run(config: Config) -> Result<Outcome, Error> {
    let table = Arc::new(Table::default());
    let both = Arc::clone(&table);
    let higher = std::thread::spawn(move || higher(&both, config));
    let both = Arc::clone(&table);
    let lower = std::thread::spawn(move || lower(&both, config));
    let died = |_| Error::Failed("a thread that measured has died".into());
    let lower = lower.join().map_err(died)?;
    let (higher, [by_thread, by_timer]) = higher.join().map_err(died)?;
    for prepared in [&lower, &higher] {
        if !prepared.pinned {
            return Err(Error::Failed(format!("can't {}", prepared.could_not.join("; "))));
        }
    }
    Ok(Outcome { threads: [lower, higher], by_thread, by_timer })
}

fn lower(table: &Table, config: Config) -> Prepared {
    let prepared = prepare(PrepareOptions { cpu: config.cpu, priority: Some(config.priority) });
    for number in 1..=config.rounds.min(u64::from(END) / 2 - 1) as u32 {
        for way in [BY_THREAD, BY_TIMER] {
            if !prepared.pinned {
                break;
            }
            let round = number << 1 | way;
            // The higher one sleeps, or is about to: it has the CPU whenever it wants, if it is
            // preferred at all.
            wait_for(&table.ready, round);
            sleep_until(monotonic_ns() + REST_NS);
            let now = monotonic_ns();
            table.due.store(if way == BY_TIMER { now + AHEAD_NS } else { now }, SeqCst);
            table.round.store(round, SeqCst);
            futex_wake_one(&table.round);
            if way == BY_THREAD {
                go_on(table, round);
            } else {
                spin_until_due(table, round);
            }
            wait_for(&table.ran, round);
        }
    }
    table.round.store(END, SeqCst);
    futex_wake_one(&table.round);
    prepared
}

/// Says that this thread goes on, if the other one has not run yet.
fn go_on(table: &Table, round: u32) {
    if table.ran.load(SeqCst) != round {
        table.went_on.store(round, SeqCst);
    }
    spin(table, round, monotonic_ns());
}

/// Holds the CPU until the timer is due, and then until the other one has run.
fn spin_until_due(table: &Table, round: u32) {
    let due = table.due.load(SeqCst);
    spin(table, round, due);
    if table.ran.load(SeqCst) != round {
        table.went_on.store(round, SeqCst);
    }
}

/// Holds the CPU until the other one has run, or for too long.
fn spin(table: &Table, round: u32, from: u64) {
    let limit = from + WAIT_TIMEOUT.as_nanos() as u64;
    while table.ran.load(SeqCst) != round && monotonic_ns() < limit {
        std::hint::spin_loop();
    }
}

/// Sleeps until the other one has said this.
fn wait_for(word: &AtomicU32, value: u32) {
    while word.load(SeqCst) != value {
        sleep_until(monotonic_ns() + REST_NS);
    }
}

fn higher(table: &Table, config: Config) -> (Prepared, [Way; 2]) {
    let prepared = prepare(PrepareOptions { cpu: config.cpu, priority: Some(config.priority + 1) });
    let mut ways = [(); 2].map(|()| (Accumulator::new(), 0_u64));
    let mut seen = 0;
    loop {
        let mut round = table.round.load(SeqCst);
        while round == seen {
            // Ready for the round after this one.
            table.ready.store(next(seen), SeqCst);
            futex_wait(&table.round, seen);
            round = table.round.load(SeqCst);
        }
        let woken = monotonic_ns();
        if round == END {
            break;
        }
        seen = round;
        let due = table.due.load(SeqCst);
        let now = if round & 1 == BY_TIMER {
            sleep_until(due);
            monotonic_ns()
        } else {
            woken
        };
        let is_preempted = table.went_on.load(SeqCst) != round;
        table.ran.store(round, SeqCst);
        if let Some((late, preempted)) = ways.get_mut((round & 1) as usize) {
            late.record(now.saturating_sub(due));
            *preempted += u64::from(is_preempted);
        }
    }
    let ways = ways.map(|(late, preempted)| {
        let until_running = late.counts().summary(1.0);
        Way { rounds: until_running.count, preempted, until_running }
    });
    (prepared, ways)
}

/// The round that follows.
fn next(round: u32) -> u32 {
    if round == 0 { 1 << 1 | BY_THREAD } else { round + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_are_tried_as_often_as_asked() {
        let cpu = *tompion_os::allowed_cpus().last().unwrap();
        let outcome = run(Config { cpu, priority: 1, rounds: 30 }).unwrap();
        for way in [&outcome.by_thread, &outcome.by_timer] {
            assert_eq!((way.rounds, way.until_running.count), (30, 30));
            assert!(way.preempted <= way.rounds);
        }
        let [lower, higher] = &outcome.threads;
        if (lower.fifo, higher.fifo) == (Some(1), Some(2)) {
            // Linux lets a woken thread of higher priority run before the waker's system call
            // returns.
            assert!(outcome.by_thread.preempted >= 1 && outcome.by_timer.preempted >= 1, "{outcome:?}");
        } else {
            assert!(!lower.could_not.is_empty());
        }
    }

    #[test]
    fn a_cpu_that_is_not_there_is_an_error() {
        let error = run(Config { cpu: 8191, priority: 1, rounds: 1 }).unwrap_err().to_string();
        assert!(error.contains("stay on CPU 8191"), "{error}");
    }

    #[test]
    fn rounds_follow_each_other() {
        assert_eq!((next(0), next(2), next(3)), (2, 3, 4));
    }
}
