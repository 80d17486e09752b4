//! Statistics of very many values: smallest, mean, largest, variance, percentiles, histogram.
//!
//! The memory is there from the beginning, a third of a megabyte, of which a loop with even gaps
//! touches a few lines. Values have no unit here; [`Counts::summary`] is told how many of them a
//! nanosecond has.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tompion_histogram::{LogLinear, rank};

/// Buckets of one value each below 4096, then 1024 for each power of two: a value is off by a
/// thousandth at most. Values from 2^48 on are in the last bucket.
const BUCKETS: LogLinear = LogLinear::new(12, 10).up_to(48);

/// Takes values in, a few instructions each, without allocating.
#[derive(Clone, Debug)]
pub struct Accumulator {
    places: Box<[u64]>,
    sum: u128,
    squares: u128,
    min: u64,
    max: u64,
}

impl Default for Accumulator {
    fn default() -> Self {
        Self { places: vec![0; BUCKETS.buckets()].into(), sum: 0, squares: 0, min: u64::MAX, max: 0 }
    }
}

impl Accumulator {
    /// Makes an accumulator that has touched its memory already.
    pub fn new() -> Self {
        let mut new = Self::default();
        // Fresh memory is present once it was written to.
        new.places.fill(1);
        std::hint::black_box(&mut new.places);
        new.places.fill(0);
        new
    }

    /// Takes a value.
    #[inline(always)]
    pub fn record(&mut self, value: u64) {
        if let Some(count) = self.places.get_mut(BUCKETS.bucket(value)) {
            *count += 1;
        }
        self.sum += u128::from(value);
        self.squares += u128::from(value) * u128::from(value);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Counts of the values so far.
    pub fn counts(&self) -> Counts {
        let filled = self.places.iter().enumerate().filter(|(_, count)| **count != 0);
        let places: BTreeMap<u64, u64> =
            filled.map(|(place, count)| (BUCKETS.first(place), *count)).collect();
        let count: u64 = places.values().sum();
        if count == 0 {
            return Counts::default();
        }
        let mean = self.sum as f64 / count as f64;
        let spread = (self.squares as f64 - self.sum as f64 * mean).max(0.0);
        Counts { places, count, mean, spread, min: self.min, max: self.max }
    }
}

/// Counts of values, in as little space as it takes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Number of values, by the smallest one of their place.
    places: BTreeMap<u64, u64>,
    count: u64,
    mean: f64,
    /// The sum of all squares of distances from the mean.
    spread: f64,
    min: u64,
    max: u64,
}

/// Shares of all values, in ten-millionths, and what they are called.
const SHARES: [(&str, u64); 8] = [
    ("50", 5_000_000),
    ("90", 9_000_000),
    ("99", 9_900_000),
    ("99.9", 9_990_000),
    ("99.99", 9_999_000),
    ("99.999", 9_999_900),
    ("99.9999", 9_999_990),
    ("99.99999", 9_999_999),
];
const WHOLE: u64 = 10_000_000;

impl Counts {
    /// Number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Takes what another one has.
    ///
    /// Source of the sum of squares: Chan, Golub and LeVeque, 1979.
    pub fn add(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            self.clone_from(other);
            return;
        }
        let (own, theirs) = (self.count as f64, other.count as f64);
        let distance = other.mean - self.mean;
        self.spread += other.spread + distance * distance * own * theirs / (own + theirs);
        self.mean += distance * theirs / (own + theirs);
        self.count += other.count;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        for (value, count) in &other.places {
            *self.places.entry(*value).or_default() += count;
        }
    }

    /// The value that this share (in ten-millionths) of all values does not exceed.
    fn at_most(&self, share: u64) -> u64 {
        let rank = rank(self.count, share, WHOLE);
        let mut seen = 0;
        for (value, count) in &self.places {
            seen += u128::from(*count);
            if seen >= rank {
                // The largest one of its place.
                return BUCKETS.last(BUCKETS.bucket(*value)).clamp(self.min, self.max);
            }
        }
        self.max
    }

    /// Summarizes the values in nanoseconds; each has this many units.
    pub fn summary(&self, units_per_ns: f64) -> Summary {
        let ns = |value: u64| value as f64 / units_per_ns;
        let variance = if self.count == 0 {
            0.0
        } else {
            self.spread / self.count as f64 / (units_per_ns * units_per_ns)
        };
        let mut histogram = BTreeMap::<u64, u64>::new();
        for (value, count) in &self.places {
            *histogram.entry(ns(*value) as u64).or_default() += count;
        }
        Summary {
            count: self.count,
            min_ns: ns(self.min),
            mean_ns: self.mean / units_per_ns,
            max_ns: ns(self.max),
            variance,
            deviation_ns: variance.sqrt(),
            percentiles: SHARES
                .iter()
                .map(|(name, share)| ((*name).into(), ns(self.at_most(*share))))
                .collect(),
            histogram: histogram.into_iter().collect(),
        }
    }
}

/// Statistics in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Number of values.
    pub count: u64,
    /// The smallest one.
    pub min_ns: f64,
    /// Their mean.
    pub mean_ns: f64,
    /// The largest one.
    pub max_ns: f64,
    /// Their variance, in square nanoseconds.
    pub variance: f64,
    /// Its root.
    pub deviation_ns: f64,
    /// Values that so many per cent of all values don't exceed.
    pub percentiles: BTreeMap<String, f64>,
    /// Histogram: whole nanoseconds, and the number of values from there to the next entry.
    pub histogram: Vec<(u64, u64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(values: impl IntoIterator<Item = u64>) -> Counts {
        let mut accumulator = Accumulator::new();
        values.into_iter().for_each(|value| accumulator.record(value));
        accumulator.counts()
    }

    #[test]
    fn statistics_are_those_of_the_values() {
        let summary = counts([10, 20, 30, 40]).summary(1.0);
        assert_eq!((summary.count, summary.min_ns, summary.mean_ns, summary.max_ns), (4, 10.0, 25.0, 40.0));
        assert!((summary.variance - 125.0).abs() < 1e-9, "{}", summary.variance);
        assert_eq!(summary.percentiles["50"], 20.0);
        assert_eq!(summary.percentiles["99.99999"], 40.0);
        assert_eq!(summary.histogram, [(10, 1), (20, 1), (30, 1), (40, 1)]);
    }

    #[test]
    fn percentiles_are_found_to_the_last_of_ten_millions() {
        let mut accumulator = Accumulator::new();
        (0..9_999_999).for_each(|_| accumulator.record(7));
        accumulator.record(1_000_003);
        let summary = accumulator.counts().summary(1.0);
        assert_eq!(summary.percentiles["99.99999"], 7.0);
        assert_eq!(summary.max_ns, 1_000_003.0);
        accumulator.record(1_000_003);
        assert_eq!(accumulator.counts().summary(1.0).percentiles["99.99999"], 1_000_003.0);
    }

    #[test]
    fn units_become_nanoseconds() {
        let summary = counts([26, 52, 5200]).summary(2.6);
        assert_eq!(summary.histogram, [(10, 1), (20, 1), (2000, 1)]);
        assert_eq!((summary.min_ns, summary.max_ns), (10.0, 2000.0));
    }

    #[test]
    fn two_halves_are_the_whole() {
        let (mut half, other) = (counts(0..5000), counts(5000..90_000));
        half.add(&other);
        let whole = counts(0..90_000);
        let (found, expected) = (half.summary(1.0), whole.summary(1.0));
        assert!((found.variance / expected.variance - 1.0).abs() < 1e-9);
        assert_eq!((found.histogram, found.percentiles), (expected.histogram, expected.percentiles));
        let mut nothing = Counts::default();
        nothing.add(&whole);
        assert_eq!(nothing, whole);
        assert_eq!(Counts::default().summary(2.0).max_ns, 0.0);
    }
}
