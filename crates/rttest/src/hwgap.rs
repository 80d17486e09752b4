//! Gaps that no software explains: the time that firmware (SMI) or a hypervisor takes from a
//! processor.
//!
//! A thread on each CPU reads the counter again and again. Between two readings lie some
//! nanoseconds; where there lies more, something came in between. What the kernel knows of
//! (interrupts, switches, page faults) is recognized by [`crate::witness`]; the rest is a gap of
//! the hardware, or of a hypervisor. User space can't turn interrupts off, so a gap of the hardware
//! inside an interrupt is not seen as such: the kernel's own tracers can ([`tracer`]).
//!
//! The threads rest for a part of each window: real-time threads that never sleep would be
//! throttled, and would keep all else from running.

pub mod tracer;

use std::{
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tompion_os::{Counter, monotonic_ns, sleep_until, tsc_in_place};

use crate::{
    Error,
    prepare::{PrepareOptions, Prepared, prepare},
    ticks::Calibrator,
    witness::{Cause, Disturbance, Witness},
};

/// Configuration of the search.
#[derive(Clone, Debug)]
pub struct Config {
    /// A thread on each of these CPUs, all at the same time.
    pub cpus: Vec<u32>,
    /// Duration of the test.
    pub duration: Duration,
    /// Minimum length of a gap that is reported.
    pub threshold: Duration,
    /// Interval between two turns.
    pub window: Duration,
    /// So much of each window is looked at.
    pub width: Duration,
    /// SCHED_FIFO's priority.
    pub priority: u32,
}

/// Something that came between two readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// Its CPU.
    pub cpu: u32,
    /// Begin, on CLOCK_MONOTONIC.
    pub begin_ns: u64,
    /// Duration.
    pub ns: u64,
    /// Cause.
    pub cause: Cause,
}

impl Gap {
    /// Whether no software explains it: the hypervisor has said that it was there, or the cause is
    /// unknown.
    pub fn is_unexplained(&self) -> bool {
        matches!(self.cause, Cause::Steal | Cause::Unknown)
    }
}

/// Measurements of a CPU.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Settings that its thread got.
    pub prepared: Prepared,
    /// Time of the search, in nanoseconds.
    pub looked_ns: u64,
    /// Gaps that are longer than the threshold, by their cause.
    pub causes: Vec<Disturbance>,
    /// System management interrupts meanwhile, where the processor counts them and the count can be
    /// read.
    pub smi: Option<u64>,
}

/// A time at which all CPUs had an unexplained gap at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AtOnce {
    /// Begin of the last of the CPUs' gaps, on CLOCK_MONOTONIC in nanoseconds.
    pub begin_ns: u64,
    /// Time for which all CPUs had a gap at once, in nanoseconds.
    pub ns: u64,
}

/// Result of the measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// Results of each CPU.
    pub cpus: Vec<Measured>,
    /// The unexplained gaps, in the order of time; the first [`MOST`] of each CPU.
    pub gaps: Vec<Gap>,
    /// Times at which all CPUs had one.
    pub at_once: Vec<AtOnce>,
    /// Facts that could not be found out.
    pub could_not: Vec<String>,
}

/// So many gaps are kept of each CPU; all are counted.
pub const MOST: usize = 10_000;

/// Looks for gaps until the time is over, or `stop` says so.
///
/// # Errors
/// [`Error::Counter`] if there is no counter to be read.
pub fn run(config: &Config, stop: &Arc<AtomicBool>) -> Result<Outcome, Error> {
    let calibrator = Calibrator::begin()?;
    let rate = calibrator.rate();
    let together = Arc::new(Barrier::new(config.cpus.len().max(1)));
    let threads: Vec<_> = config
        .cpus
        .iter()
        .map(|cpu| {
            let (cpu, config, together, stop) =
                (*cpu, config.clone(), Arc::clone(&together), Arc::clone(stop));
            std::thread::spawn(move || look(cpu, &config, rate, (&together, &stop)))
        })
        .collect();
    let mut outcome =
        Outcome { cpus: Vec::new(), gaps: Vec::new(), at_once: Vec::new(), could_not: Vec::new() };
    for thread in threads {
        let died = |_| Error::Failed("a thread that measured has died".into());
        let (measured, gaps) = thread.join().map_err(died)?;
        outcome.cpus.push(measured);
        outcome.gaps.extend(gaps);
    }
    outcome.gaps.sort_by_key(|gap| gap.begin_ns);
    outcome.at_once = at_once(&outcome.gaps, config.cpus.len());
    if outcome.cpus.iter().any(|measured| measured.smi.is_none()) {
        outcome.could_not.push(
            "count system management interrupts: the processor has no such counter, is a hypervisor's, or perf doesn't give it \
             (as root it does)"
                .into(),
        );
    }
    Ok(outcome)
}

/// Gaps that a thread keeps. All memory is there from the beginning.
struct Found {
    gaps: Vec<Gap>,
    causes: [Disturbance; Cause::ALL.len()],
}

impl Found {
    fn new() -> Self {
        let none = |cause| Disturbance { cause, gaps: 0, longest_ns: 0.0, together_ns: 0.0 };
        Self { gaps: Vec::with_capacity(MOST), causes: Cause::ALL.map(none) }
    }

    fn add(&mut self, gap: Gap) {
        if let Some(sum) = self.causes.iter_mut().find(|sum| sum.cause == gap.cause) {
            sum.gaps += 1;
            sum.longest_ns = sum.longest_ns.max(gap.ns as f64);
            sum.together_ns += gap.ns as f64;
        }
        if gap.is_unexplained() && self.gaps.len() < MOST {
            self.gaps.push(gap);
        }
    }
}

fn look(
    cpu: u32,
    config: &Config,
    rate: f64,
    (together, stop): (&Barrier, &AtomicBool),
) -> (Measured, Vec<Gap>) {
    let mut found = Found::new();
    let mut witness = Witness::new(cpu, rate);
    let prepared = prepare(PrepareOptions { cpu, priority: Some(config.priority) });
    let firmware = Counter::of_firmware(cpu).ok();
    let smi_count = || firmware.as_ref()?.read().ok();
    let smi = smi_count();
    together.wait();
    let begin = monotonic_ns();
    let end = begin + config.duration.as_nanos() as u64;
    let (window, width) = (config.window.as_nanos() as u64, config.width.as_nanos() as u64);
    let (mut turn, mut looked_ns) = (begin, 0);
    while turn < end && !stop.load(Relaxed) {
        sleep_until(turn);
        looked_ns += turn_of(cpu, (width, config.threshold), rate, (&mut witness, &mut found));
        turn += window.max(1);
    }
    let smi = smi.zip(smi_count()).map(|(before, after)| after.wrapping_sub(before));
    let causes = found.causes.into_iter().filter(|sum| sum.gaps != 0).collect();
    (Measured { prepared, looked_ns, causes, smi }, found.gaps)
}

/// Looks for gaps for this long, in nanoseconds. Returns the time for which it looked.
fn turn_of(
    cpu: u32,
    (width, threshold): (u64, Duration),
    rate: f64,
    (witness, found): (&mut Witness, &mut Found),
) -> u64 {
    let limit = (threshold.as_nanos() as f64 * rate) as u64;
    let width_ticks = (width as f64 * rate) as u64;
    witness.begin();
    let (begin, begin_ns) = (tsc_in_place(), monotonic_ns());
    let mut last = tsc_in_place();
    loop {
        let now = tsc_in_place();
        let gap = now.wrapping_sub(last);
        if gap > limit {
            let interrupted = witness.was_interrupted();
            let cause = witness.cause(gap, interrupted);
            let since = last.saturating_sub(begin) as f64 / rate;
            let ns = (gap as f64 / rate) as u64;
            found.add(Gap { cpu, begin_ns: begin_ns + since as u64, ns, cause });
            last = tsc_in_place();
        } else {
            // An interrupt that took less than the threshold explains no later gap.
            witness.was_interrupted();
            last = now;
        }
        if last.wrapping_sub(begin) >= width_ticks {
            return (last.wrapping_sub(begin) as f64 / rate) as u64;
        }
    }
}

/// The times at which all of several CPUs had a gap at once, from gaps in the order of their begin.
fn at_once(gaps: &[Gap], cpus: usize) -> Vec<AtOnce> {
    let mut found = Vec::new();
    if cpus < 2 {
        return found;
    }
    for (place, last) in gaps.iter().enumerate() {
        // Those that began before and have not ended: the latest one of each CPU.
        let mut open: Vec<&Gap> = vec![last];
        for gap in gaps.iter().take(place).rev().take(cpus * LOOK_BACK) {
            if gap.begin_ns + gap.ns > last.begin_ns && open.iter().all(|other| other.cpu != gap.cpu) {
                open.push(gap);
            }
        }
        if open.len() == cpus {
            let end = open.iter().map(|gap| gap.begin_ns + gap.ns).min().unwrap_or(last.begin_ns);
            found.push(AtOnce { begin_ns: last.begin_ns, ns: end.saturating_sub(last.begin_ns) });
        }
    }
    found
}

/// So many gaps of each CPU are looked at for those that are still open.
const LOOK_BACK: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(cpu: u32, begin_ns: u64, ns: u64) -> Gap {
        Gap { cpu, begin_ns, ns, cause: Cause::Unknown }
    }

    #[test]
    fn gaps_of_all_cpus_at_once_are_found() {
        let gaps = [
            gap(0, 100, 50),
            gap(1, 120, 100),
            gap(0, 300, 10),
            gap(1, 305, 1),
            gap(0, 400, 10),
            gap(1, 410, 5),
        ];
        let found: Vec<_> = at_once(&gaps, 2).iter().map(|time| (time.begin_ns, time.ns)).collect();
        assert_eq!(found, [(120, 30), (305, 1)]);
        assert!(at_once(&gaps, 3).is_empty() && at_once(&gaps, 1).is_empty());
        assert!(at_once(&[gap(0, 1, 9), gap(0, 2, 9)], 2).is_empty(), "one CPU twice");
    }

    #[test]
    fn every_gap_has_a_cause_and_explained_ones_are_not_kept() {
        let config = Config {
            cpus: tompion_os::allowed_cpus(),
            duration: Duration::from_millis(60),
            threshold: Duration::from_nanos(200),
            window: Duration::from_millis(20),
            width: Duration::from_millis(10),
            priority: 1,
        };
        // Where the kernel keeps time by something else, there is nothing to measure with.
        let Ok(outcome) = run(&config, &Arc::new(AtomicBool::new(false))) else { return };
        assert_eq!(outcome.cpus.len(), config.cpus.len());
        for measured in &outcome.cpus {
            assert!(measured.looked_ns >= 29_000_000, "{measured:?}");
            for sum in &measured.causes {
                assert!(sum.gaps > 0 && sum.longest_ns <= sum.together_ns, "{measured:?}");
                assert!(sum.longest_ns >= 199.0, "{measured:?}");
            }
        }
        assert!(outcome.gaps.iter().all(Gap::is_unexplained));
        assert!(outcome.gaps.is_sorted_by_key(|gap| gap.begin_ns));
    }

    #[test]
    fn it_ends_on_request() {
        let config = Config {
            cpus: vec![*tompion_os::allowed_cpus().last().unwrap()],
            duration: Duration::from_secs(3600),
            threshold: Duration::from_micros(10),
            window: Duration::from_millis(20),
            width: Duration::from_millis(1),
            priority: 1,
        };
        let Ok(outcome) = run(&config, &Arc::new(AtomicBool::new(true))) else { return };
        assert_eq!(outcome.cpus[0].looked_ns, 0);
    }
}
