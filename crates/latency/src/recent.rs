//! Maxima of the last minutes, which fall again, unlike the maximum since a reset.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use crate::{
    kinds::Kind,
    mapped_counters::{MappedCounters, MaxSample},
    report::by_kind,
    snapshot::{Snapshot, State},
};

/// Minimum time covered, in nanoseconds; at most twice as much if asked often enough. Rare readings
/// miss nothing.
const WINDOW_NS: u64 = Duration::from_secs(300).as_nanos() as u64;

/// Longest latencies in microseconds, by CPU and kind.
pub type Longest = BTreeMap<u32, BTreeMap<Kind, f64>>;

/// Reading of the counters.
#[derive(Debug)]
struct Look {
    /// CLOCK_MONOTONIC, in nanoseconds.
    time: u64,
    cpus: Vec<[State; Kind::ALL.len()]>,
}

/// Earlier readings, the oldest first; later latencies are recent.
#[derive(Debug, Default)]
pub struct Recent {
    looks: VecDeque<Look>,
}

impl Recent {
    /// Returns the recent maxima. `kept` has other known maxima of a CPU and kind beside that since
    /// the reset.
    pub fn longest(
        &mut self,
        now: &Snapshot,
        kept: impl Fn(usize, Kind) -> [Option<MaxSample>; 2],
    ) -> Longest {
        while self.looks.get(1).is_some_and(|look| look.time + WINDOW_NS <= now.time) {
            self.looks.pop_front();
        }
        let longest = self.looks.front().map(|since| since_then(since, now, kept)).unwrap_or_default();
        if self.looks.back().is_none_or(|look| look.time + WINDOW_NS <= now.time) {
            self.looks.push_back(Look { time: now.time, cpus: now.cpus.clone() });
        }
        longest
    }
}

/// Maxima stored for the history: of its current and previous interval.
pub fn of_intervals(memory: &MappedCounters) -> impl Fn(usize, Kind) -> [Option<MaxSample>; 2] {
    let interval = memory.interval();
    move |cpu, kind| {
        let before = interval.checked_sub(1).and_then(|before| memory.worst_of_interval(cpu, kind, before));
        [memory.worst_of_interval(cpu, kind, interval), before]
    }
}

fn since_then(since: &Look, now: &Snapshot, kept: impl Fn(usize, Kind) -> [Option<MaxSample>; 2]) -> Longest {
    let mut longest = Longest::new();
    for (cpu, states) in now.cpus.iter().enumerate() {
        let with_longest = |(kind, state): (Kind, &State)| {
            let all = kept(cpu, kind).into_iter().flatten().chain(state.worst.clone());
            let worst = all.filter(|worst| worst.end >= since.time).max_by_key(|worst| worst.latency);
            State { worst, ..state.clone() }
        };
        let states: Vec<State> = Kind::ALL.into_iter().zip(states).map(with_longest).collect();
        let found = by_kind(since.cpus.get(cpu), &states, (since.time, now.ahead));
        if !found.is_empty() {
            longest.insert(cpu as u32, found.into_iter().map(|(kind, it)| (kind, it.max_us)).collect());
        }
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000_000_000;

    fn worst(us: u64, end: u64) -> MaxSample {
        MaxSample { woken: end - 1, ..MaxSample::made_up(us * 1000, end) }
    }

    /// Makes a snapshot of one CPU with counts by length in microseconds, whose maximum is stored.
    fn snapshot(time: u64, latencies: &[(u64, u64)], kept: MaxSample) -> Snapshot {
        let mut states: [State; Kind::ALL.len()] = Default::default();
        let state = &mut states[Kind::Wakeup.number()];
        latencies.iter().for_each(|(us, count)| state.histogram.add(us * 1000, us * 1000 + 1000, *count));
        state.worst = Some(kept);
        Snapshot { time, cpus: vec![states], ..Snapshot::default() }
    }

    fn of(longest: &Longest) -> Option<f64> {
        longest.get(&0)?.get(&Kind::Wakeup).copied()
    }

    #[test]
    fn given_one_long_latency_then_it_is_recent_for_minutes() {
        let mut recent = Recent::default();
        let nothing = |_, _| [None, None];
        let before = snapshot(100 * MINUTE, &[(3, 10)], worst(3, 99 * MINUTE));
        assert_eq!(of(&recent.longest(&before, nothing)), None, "its time is unknown");
        let mut reported = Vec::new();
        for minute in 101..125 {
            // Every minute a latency of 5 µs, in the third one of 900.
            let of_5 = minute - 100;
            let late = u64::from(minute >= 103);
            let kept = if late == 1 { worst(900, 103 * MINUTE - 1) } else { worst(5, minute * MINUTE - 1) };
            let now = snapshot(minute * MINUTE, &[(3, 10), (5, of_5), (900, late)], kept);
            reported.push(of(&recent.longest(&now, nothing)).expect("one each minute"));
        }
        let count = reported.iter().filter(|us| **us == 900.0).count();
        assert!((5..=10).contains(&count), "{reported:?}");
        assert_eq!((reported[0], reported[2], reported.last()), (5.0, 900.0, Some(&6.0)), "{reported:?}");
    }

    #[test]
    fn given_rare_readings_then_all_since_the_last_one_is_recent() {
        let mut recent = Recent::default();
        let nothing = |_, _| [None, None];
        for hour in 1..5 {
            let all: Vec<(u64, u64)> = (0..hour).map(|hour| (100 * (5 - hour), 1)).collect();
            let now = snapshot(hour * 60 * MINUTE, &all, worst(500, 1));
            let expected = (hour > 1).then(|| (100 * (6 - hour)) as f64 + 1.0);
            assert_eq!(of(&recent.longest(&now, nothing)), expected, "{hour}");
        }
    }

    #[test]
    fn given_what_the_history_keeps_then_it_is_exact_and_old_ones_are_not_taken() {
        let mut recent = Recent::default();
        let old = worst(30_000, MINUTE - 1);
        recent.longest(&snapshot(MINUTE, &[(3, 1), (10_241, 1)], old.clone()), |_, _| [None, None]);
        let now = snapshot(2 * MINUTE, &[(3, 1), (10_241, 2)], old.clone());
        let kept = |_, _| [Some(worst(20_000, 2 * MINUTE - 1)), Some(old.clone())];
        assert_eq!(of(&recent.longest(&now, kept)), Some(20_000.0));
    }
}
