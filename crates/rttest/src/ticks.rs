//! Calibration of the counter that gaps are measured with, against the clock.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tompion_os::{ClockPair, sample_clocks, tsc, tsc_in_place};

use crate::Error;

/// Time for which the clocks are compared before anything is measured.
const COMPARE_FOR: Duration = Duration::from_millis(50);
/// Readings from which the cost of one is found.
const READINGS: u32 = 100_000;
/// They are made in parts, of which the fastest one counts: the others were interrupted.
const PARTS: u32 = 20;

/// Calibration of the counter.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Ticks of the counter in a nanosecond of CLOCK_MONOTONIC.
    pub ticks_per_ns: f64,
    /// Time of reading the counter, in nanoseconds.
    pub read_ns: f64,
    /// Time of reading it where the program's order is kept, as at both ends of a gap.
    pub read_in_place_ns: f64,
    /// The smallest step by which it advances, in nanoseconds.
    pub step_ns: f64,
}

/// From the first reading of both clocks on; the longer ago it was, the better is the rate known.
#[derive(Clone, Copy, Debug)]
pub struct Calibrator {
    first: ClockPair,
}

impl Calibrator {
    /// Reads both clocks.
    ///
    /// # Errors
    /// [`Error::Counter`] where the program can't read the counter, or the kernel doesn't trust it.
    pub fn begin() -> Result<Self, Error> {
        if !tompion_os::tsc_is_usable() {
            return Err(Error::Counter("this process may not read it".into()));
        }
        tompion_os::tsc_state().map_err(Error::Counter)?;
        Ok(Self { first: sample_clocks() })
    }

    /// The counter's rate since the beginning, in ticks a nanosecond. Waits if that was a moment
    /// ago.
    pub fn rate(&self) -> f64 {
        let spent = Duration::from_nanos(tompion_os::monotonic_ns().saturating_sub(self.first.ns));
        if let Some(rest) = COMPARE_FOR.checked_sub(spent) {
            std::thread::sleep(rest);
        }
        let last = sample_clocks();
        let (ticks, ns) = (last.tsc.wrapping_sub(self.first.tsc), last.ns.saturating_sub(self.first.ns));
        ticks as f64 / ns.max(1) as f64
    }

    /// All that is to be known.
    pub fn finish(&self) -> Calibration {
        let ticks_per_ns = self.rate();
        let ns = |ticks: f64| ticks / ticks_per_ns;
        Calibration {
            ticks_per_ns,
            read_ns: ns(cost(tsc)),
            read_in_place_ns: ns(cost(tsc_in_place)),
            step_ns: ns(step()),
        }
    }
}

/// Ticks that one reading takes, one after the other.
fn cost(read: impl Fn() -> u64) -> f64 {
    let part = || {
        let begin = read();
        let mut last = begin;
        for _ in 0..READINGS / PARTS {
            last = std::hint::black_box(read());
        }
        last.wrapping_sub(begin) as f64 / f64::from(READINGS / PARTS)
    };
    (0..PARTS).map(|_| part()).fold(f64::INFINITY, f64::min)
}

/// The smallest difference between two readings that differ, in ticks.
fn step() -> f64 {
    let mut last = tsc();
    let mut smallest = u64::MAX;
    for _ in 0..READINGS {
        let now = tsc();
        if now != last {
            smallest = smallest.min(now.wrapping_sub(last));
        }
        last = now;
    }
    if smallest == u64::MAX { 0.0 } else { smallest as f64 }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn the_counter_is_held_against_the_clock() {
        // Where the kernel keeps time by something else, there is nothing to measure with.
        let Ok(calibrator) = Calibrator::begin() else { return };
        let found = calibrator.finish();
        assert!((0.1..20.0).contains(&found.ticks_per_ns), "{found:?}");
        assert!(found.read_ns > 0.0 && found.read_in_place_ns >= found.read_ns / 2.0, "{found:?}");
        assert!(found.step_ns > 0.0, "{found:?}");
    }
}
