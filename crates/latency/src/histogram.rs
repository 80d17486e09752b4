//! Histograms of latencies.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tompion_histogram::{LogLinear, rank};

/// Begin of the last bucket of a CPU's histogram, in microseconds.
#[cfg(test)]
pub(crate) const OVERFLOW_US: u64 = 10_241;

/// Steps for people: 1, 2, 5, 10, 20, 50 … times the first.
pub const fn steps<const COUNT: usize>(first: u64) -> [u64; COUNT] {
    let mut steps = [0; COUNT];
    let mut place = 0;
    while place < COUNT {
        steps[place] = first * [1, 2, 5][place % 3] * 10u64.pow(place as u32 / 3);
        place += 1;
    }
    steps
}

/// Buckets of lengths: at most a sixteenth of the length wide, and 128 ns below 4096 ns.
const LENGTHS: LogLinear = LogLinear::new(5, 4).with_unit(7);

/// Number of log-linear buckets: see [`length_place`].
pub const LENGTH_PLACES: usize = LENGTHS.buckets();

/// Index of a length in log-linear buckets.
pub const fn length_place(ns: u64) -> usize {
    LENGTHS.bucket(ns)
}

/// Begin and end of a log-linear bucket, in nanoseconds; the last one is unbounded.
pub const fn length_bounds(place: usize) -> (u64, u64) {
    (LENGTHS.first(place), LENGTHS.last(place).saturating_add(1))
}

/// Histogram without empty buckets: counts of lengths from a bucket's begin until before its end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Histogram {
    /// End and count by the begin of the bucket.
    places: BTreeMap<u64, (u64, u64)>,
}

impl Histogram {
    /// Adds to the bucket from `begin` until before `end`, in nanoseconds.
    pub fn add(&mut self, begin: u64, end: u64, count: u64) {
        if count != 0 {
            self.places.entry(begin).or_insert((end, 0)).1 += count;
        }
    }

    /// Counts a length in its log-linear bucket.
    pub fn count_length(&mut self, ns: u64) {
        let (begin, end) = length_bounds(length_place(ns));
        self.add(begin, end, 1);
    }

    /// Adds another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (begin, (end, count)) in &other.places {
            self.add(*begin, *end, *count);
        }
    }

    /// Returns the counts added since an earlier state of the same histogram.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut new = Self::default();
        for (begin, (end, count)) in &self.places {
            let before = earlier.places.get(begin).map_or(0, |place| place.1);
            new.add(*begin, *end, count.saturating_sub(before));
        }
        new
    }

    /// Sum of all counts.
    pub fn count(&self) -> u64 {
        self.places.values().map(|place| place.1).sum()
    }

    /// Upper bound of a quantile in nanoseconds: the end of its bucket. None if empty; `u64::MAX`
    /// if unbounded.
    ///
    /// `share` is in thousandths.
    pub fn below(&self, share: u64) -> Option<u64> {
        self.below_millionths(share * 1000)
    }

    /// Upper bound of a quantile in millionths.
    pub fn below_millionths(&self, share: u64) -> Option<u64> {
        let rank = rank(self.count(), share, 1_000_000);
        let mut seen = 0u128;
        for (end, count) in self.places.values() {
            seen += u128::from(*count);
            if seen >= rank {
                return Some(*end);
            }
        }
        None
    }

    /// Upper bound of all lengths: the end of the last bucket, in nanoseconds.
    pub fn bound(&self) -> Option<u64> {
        self.places.last_key_value().map(|(_, (end, _))| *end)
    }

    /// Count of the unbounded bucket.
    pub fn overflow(&self) -> u64 {
        self.places.values().filter(|place| place.0 == u64::MAX).map(|place| place.1).sum()
    }

    /// Begins, in nanoseconds, and counts of all buckets that are not empty.
    pub fn places(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.places.iter().map(|(begin, (_, count))| (*begin, *count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(places: &[(u64, u64, u64)]) -> Histogram {
        let mut histogram = Histogram::default();
        places.iter().for_each(|(begin, end, count)| histogram.add(*begin, *end, *count));
        histogram
    }

    #[test]
    fn quantiles_are_ends_of_buckets() {
        let histogram = of(&[(1000, 2000, 998), (5000, 6000, 1), (10_241_000, u64::MAX, 1)]);
        assert_eq!((histogram.count(), histogram.overflow()), (1000, 1));
        assert_eq!(histogram.below(500), Some(2000));
        assert_eq!(histogram.below(998), Some(2000));
        assert_eq!(histogram.below(999), Some(6000));
        assert_eq!(histogram.below(1000), Some(u64::MAX));
        assert_eq!(Histogram::default().below(999), None);
        // A single length is every quantile.
        assert_eq!(of(&[(0, 1000, 1)]).below(1), Some(1000));
    }

    #[test]
    fn places_of_single_lengths_are_narrow() {
        for ns in [0, 1, 127, 128, 2047, 2048, 2175, 2176, 5_000_000, 1 << 40, u64::MAX] {
            let mut histogram = Histogram::default();
            histogram.count_length(ns);
            let (begin, end) = (histogram.places().next().unwrap().0, histogram.bound().unwrap());
            assert!(begin <= ns && (ns < end || end == u64::MAX), "{ns}: {begin} {end}");
            assert!(end - begin <= (ns / 16).max(128), "{ns}: {begin} {end}");
        }
        // Indices have no gap.
        assert_eq!((length_place(0), length_place(u64::MAX)), (0, LENGTH_PLACES - 1));
        for place in 1..LENGTH_PLACES {
            let (begin, end) = length_bounds(place);
            assert_eq!(
                (length_bounds(place - 1).1, length_place(begin), length_place(end - 1)),
                (begin, place, place)
            );
        }
    }

    #[test]
    fn what_came_since_and_what_was_before_are_all() {
        let before = of(&[(0, 1000, 5), (3000, 4000, 2)]);
        let now = of(&[(0, 1000, 9), (3000, 4000, 2), (7000, 8000, 1)]);
        let since = now.since(&before);
        assert_eq!(since, of(&[(0, 1000, 4), (7000, 8000, 1)]));
        let mut all = before.clone();
        all.merge(&since);
        assert_eq!(all, now);
        assert_eq!(since.bound(), Some(8000));
        // Never negative, whatever the file contains.
        assert_eq!(before.since(&now).count(), 0);
    }
}
