//! Loop under test, in a process of its own.
//!
//! ```text
//!        ┌────────────── iteration n ──────────────┐┌───────────── n + 1 ─
//!   asks begin      event       end   accounts n−1  asks begin
//!  ──┼─────┼─────────────────────┼──────────────────┼─────┼──────────────
//!          └──────── gap ────────┘└──── aside ────────────┘
//! ```
//!
//! A gap is what lies between two readings of the counter, with the event in it and nothing else.
//! The accounting is done aside, one iteration later. An interrupt may come then as well, and would
//! be seen in no gap: so the time aside is measured, too, and where it is longer than [`LONG_NS`],
//! which accounting never is, it is added to the gap before it. At the beginning of each iteration
//! the loop asks whether it was interrupted since the last time: whatever comes while the counter
//! is read is taken at its end, after the number was, and so belongs to what follows.

use serde::{Deserialize, Serialize};
use tompion_os::{LoopEvent, tsc, tsc_in_place};

use crate::{
    accumulator::{Accumulator, Counts},
    witness::{Cause, Witness},
};

/// Gaps that are longer have a cause, in nanoseconds.
pub const LONG_NS: f64 = 1000.0;

/// So many loops at the end of each warm-up follow each other without a pause: they make caches
/// warm.
pub const WARM: u64 = 64;

/// The event in the loop.
pub trait Event: Copy {
    /// Records it: the number of the iteration from 1 on, 0 in the warm-up, and the ticks of the
    /// gap before.
    fn record(self, number: u64, gap: u64);
}

/// No event.
#[derive(Clone, Copy)]
pub struct NoEvent;

impl Event for NoEvent {
    #[inline(always)]
    fn record(self, number: u64, gap: u64) {
        // The loop has something to do with both, as with an event.
        std::hint::black_box((number, gap));
    }
}

/// No event, but a reading of the clock, as each recorder makes one.
#[derive(Clone, Copy)]
pub struct ClockRead;

impl Event for ClockRead {
    #[inline(always)]
    fn record(self, number: u64, gap: u64) {
        std::hint::black_box((number, gap, tsc()));
    }
}

impl Event for LoopEvent {
    #[inline(always)]
    fn record(self, number: u64, gap: u64) {
        LoopEvent::record(self, number, gap);
    }
}

/// Gaps of one cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// Number of gaps.
    pub gaps: u64,
    /// The longest one, in ticks.
    pub longest: u64,
    /// All together, in ticks.
    pub together: u64,
}

/// Pace of the loop, in ticks of the counter.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Minimum interval between the begins of two bursts.
    pub period: u64,
    /// Time for which the loop runs without a rest.
    pub spin: u64,
    /// Gaps that are longer have a cause.
    pub long: u64,
}

/// Measurement in progress.
pub struct Measurement {
    pace: Pace,
    witness: Witness,
    /// Gaps that are the program's own.
    own: Accumulator,
    /// Gaps that the machine made.
    machine: Accumulator,
    tallies: [Tally; Cause::ALL.len()],
}

/// Result of a burst loop that has ended.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Gaps {
    /// Gaps that are the program's own.
    pub own: Counts,
    /// Gaps in which an interrupt came, another thread ran, or the hypervisor let the CPU stand
    /// still.
    pub machine: Counts,
    /// Gaps that have a cause.
    pub causes: Vec<(Cause, Tally)>,
}

impl Measurement {
    /// Nothing measured yet.
    pub fn new(pace: Pace, witness: Witness) -> Self {
        let (own, machine) = (Accumulator::new(), Accumulator::new());
        Self { pace, witness, own, machine, tallies: Default::default() }
    }

    /// Iterates `warm` times without accounting, then from the number `next` to `last`, or until a
    /// rest is due, but once at least. Returns the number that is next.
    #[inline(never)]
    pub fn burst<E: Event>(&mut self, event: E, warm: u64, (next, last): (u64, u64)) -> u64 {
        self.witness.begin();
        let Pace { period, spin, long } = self.pace;
        let (mut warm, mut number) = (warm, next);
        let (mut gap, mut is_counted) = (0, false);
        let mut ended = tsc_in_place();
        let rest_at = ended.wrapping_add(spin);
        loop {
            let interrupted = self.witness.was_interrupted();
            let begin = tsc_in_place();
            let this = if warm == 0 { number } else { 0 };
            event.record(this, gap);
            let end = tsc_in_place();
            let aside = begin.wrapping_sub(ended);
            // While the loop waited for its time, the end of the wait was the end: then `begin` may
            // lie before it.
            let aside = if aside > long && aside < u64::MAX / 2 { aside } else { 0 };
            ended = end;
            if is_counted && self.account(gap + aside, interrupted) {
                ended = tsc_in_place();
            }
            (gap, is_counted) = (end.wrapping_sub(begin), warm == 0);
            warm = warm.saturating_sub(1);
            number += u64::from(is_counted);
            if number > last || (is_counted && end.wrapping_sub(rest_at) < u64::MAX / 2) {
                break;
            }
            if !is_counted && warm < WARM {
                continue;
            }
            let due = begin.wrapping_add(period);
            while due.wrapping_sub(tsc_in_place()) < u64::MAX / 2 {
                ended = due;
            }
        }
        let interrupted = self.witness.was_interrupted();
        if is_counted {
            self.account(gap, interrupted);
        }
        number
    }

    /// Takes a gap in. True if that took long.
    #[inline(always)]
    fn account(&mut self, gap: u64, interrupted: bool) -> bool {
        if gap <= self.pace.long && !interrupted {
            self.own.record(gap);
            return false;
        }
        self.judge(gap, interrupted);
        true
    }

    #[cold]
    #[inline(never)]
    fn judge(&mut self, gap: u64, interrupted: bool) {
        let cause = self.witness.cause(gap, interrupted);
        if cause.is_machines() {
            self.machine.record(gap)
        } else {
            self.own.record(gap)
        }
        let place = Cause::ALL.iter().position(|other| *other == cause);
        if let Some(tally) = place.and_then(|place| self.tallies.get_mut(place)) {
            tally.gaps += 1;
            tally.longest = tally.longest.max(gap);
            tally.together += gap;
        }
    }

    /// Returns the gaps.
    pub fn finish(self) -> Gaps {
        let causes = Cause::ALL.into_iter().zip(self.tallies).filter(|(_, tally)| tally.gaps != 0).collect();
        Gaps { own: self.own.counts(), machine: self.machine.counts(), causes }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    thread_local! {
        static NUMBERS: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    }

    #[derive(Clone, Copy)]
    struct Noted;

    impl Event for Noted {
        fn record(self, number: u64, _gap: u64) {
            NUMBERS.with_borrow_mut(|numbers| numbers.push(number));
        }
    }

    fn measurement(pace: Pace) -> Measurement {
        Measurement::new(pace, Witness::new(tompion_os::current_cpu(), 1.0))
    }

    const NO_REST: u64 = u64::MAX / 4;

    #[test]
    fn each_loop_is_recorded_and_counted_once() {
        let mut measurement = measurement(Pace { period: 0, spin: NO_REST, long: 5000 });
        let mut next = 1;
        while next <= 5000 {
            next = measurement.burst(Noted, 3, (next, 5000));
        }
        let numbers = NUMBERS.take();
        assert_eq!(numbers[..4], [0, 0, 0, 1]);
        assert!(numbers.iter().filter(|number| **number != 0).copied().eq(1..=5000));
        let gaps = measurement.finish();
        assert_eq!(gaps.own.count() + gaps.machine.count(), 5000);
    }

    #[test]
    fn a_rest_comes_when_it_is_due_and_loops_go_on_where_they_were() {
        let mut measurement = measurement(Pace { period: 0, spin: 1, long: 5000 });
        assert_eq!(measurement.burst(NoEvent, 0, (1, 10)), 2);
        assert_eq!(measurement.burst(NoEvent, 0, (2, 10)), 3);
        let gaps = measurement.finish();
        assert_eq!(gaps.own.count() + gaps.machine.count(), 2);
    }

    #[test]
    fn the_loop_waits_for_its_time() {
        let period = 20_000;
        let mut measurement = measurement(Pace { period, spin: NO_REST, long: u64::MAX / 4 });
        let begin = tsc_in_place();
        assert_eq!(measurement.burst(NoEvent, 0, (1, 100)), 101);
        assert!(tsc_in_place() - begin >= 99 * period);
    }

    #[derive(Clone, Copy)]
    struct Slow;

    impl Event for Slow {
        fn record(self, number: u64, _gap: u64) {
            if number == 7 {
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
        }
    }

    #[test]
    fn a_thread_that_sleeps_was_switched_away() {
        let long = 10_000;
        let mut measurement = measurement(Pace { period: 0, spin: NO_REST, long });
        measurement.burst(Slow, 0, (1, 10));
        let gaps = measurement.finish();
        let switches = gaps.causes.iter().find(|(cause, _)| *cause == Cause::Switches);
        let (_, tally) = switches.expect("a switch");
        assert!(tally.gaps >= 1 && tally.longest > long, "{tally:?}");
    }
}
