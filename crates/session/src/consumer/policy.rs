//! Policy of the consumer: how long it sleeps, and what of the backlog it converts. Pure functions
//! of what it has observed; the consumer acts on them.

use std::time::Duration;

/// Shortest and longest sleep. The longest one bounds how much a sudden burst may bring before the
/// consumer polls.
pub(super) const SLEEP: (Duration, Duration) = (Duration::from_micros(200), Duration::from_millis(4));
/// Sleep while no process is recorded. The next one that joins ends it.
pub(super) const IDLE_SLEEP: Duration = Duration::from_millis(100);
/// Longest sleep while events come, and for some time after a burst: a program that had to wait for
/// a CPU makes up for it in a burst, at a gigabyte or two a second.
const BUSY_SLEEP: Duration = Duration::from_millis(1);
/// Percentage of a ring that was filled in one sleep, from which on it is a burst.
pub(super) const BURST_PERCENT: u64 = 2;
/// Bytes that may wait for clock samples; more are converted at once.
const MAX_PENDING_BYTES: u64 = 8 << 20;
/// The same while the consumer is overloaded. Caches still have such bytes, and few buffers
/// suffice: fresh memory costs more than the conversion of its content.
const MAX_PENDING_IN_OVERLOAD: u64 = 1 << 20;

/// Observations of one poll.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Observation {
    /// Bytes of all processes that wait to be converted.
    pub pending: u64,
    /// Whether so much comes between two clock samples that nothing may wait.
    pub is_overloaded: bool,
    /// Whether a ring in a backing file is so full that its bytes must be written.
    pub is_backpressured: bool,
    /// Whether the clock was sampled in its turn.
    pub is_sampled: bool,
}

/// Conversion that follows a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conversion {
    /// Nothing: the backlog waits for the next clock samples.
    None,
    /// The bytes between two clock samples.
    ClockBracketed,
    /// All bytes, behind a sample out of turn.
    All,
    /// All bytes; those of backpressured processes are written, too.
    AllAndFlush,
}

/// Returns the conversion that follows a poll.
pub(super) fn conversion(observed: Observation) -> Conversion {
    let most = if observed.is_overloaded { MAX_PENDING_IN_OVERLOAD } else { MAX_PENDING_BYTES };
    if observed.is_backpressured {
        Conversion::AllAndFlush
    } else if observed.pending > most {
        Conversion::All
    } else if observed.is_sampled {
        Conversion::ClockBracketed
    } else {
        Conversion::None
    }
}

/// Returns the sleep before the next poll. `percent` is the fill of the fullest ring since the last
/// poll.
pub(super) fn next_sleep(sleep: Duration, percent: u64, is_burst: bool) -> Duration {
    match percent {
        10.. => SLEEP.0,
        3.. => sleep.min(BUSY_SLEEP),
        1.. => (sleep * 3 / 2).min(BUSY_SLEEP),
        _ if is_burst => (sleep * 3 / 2).min(BUSY_SLEEP),
        _ => (sleep * 3 / 2).min(SLEEP.1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_backlog_is_converted_by_pressure_amount_and_samples() {
        const MIB: u64 = 1 << 20;
        let cases = [
            // pending, overloaded, backpressured, sampled
            ((0, false, false, false), Conversion::None),
            ((0, false, false, true), Conversion::ClockBracketed),
            ((8 * MIB, false, false, false), Conversion::None),
            ((8 * MIB, false, false, true), Conversion::ClockBracketed),
            ((8 * MIB + 1, false, false, false), Conversion::All),
            ((8 * MIB + 1, false, false, true), Conversion::All),
            ((MIB, true, false, false), Conversion::None),
            ((MIB + 1, true, false, false), Conversion::All),
            ((0, false, true, false), Conversion::AllAndFlush),
            ((9 * MIB, true, true, true), Conversion::AllAndFlush),
        ];
        for ((pending, is_overloaded, is_backpressured, is_sampled), expected) in cases {
            let observed = Observation { pending, is_overloaded, is_backpressured, is_sampled };
            assert_eq!(conversion(observed), expected, "{observed:?}");
        }
    }

    #[test]
    fn the_fuller_the_rings_the_shorter_the_sleep() {
        let us = Duration::from_micros;
        let cases = [
            // sleep, percent, burst
            ((4000, 100, false), 200),
            ((4000, 10, false), 200),
            ((4000, 9, false), 1000),
            ((600, 3, true), 600),
            ((600, 2, true), 900),
            ((900, 1, false), 1000),
            ((600, 0, true), 900),
            ((1000, 0, true), 1000),
            ((600, 0, false), 900),
            ((3000, 0, false), 4000),
        ];
        for ((sleep, percent, is_burst), expected) in cases {
            assert_eq!(
                next_sleep(us(sleep), percent, is_burst),
                us(expected),
                "{sleep} {percent} {is_burst}"
            );
        }
    }
}
