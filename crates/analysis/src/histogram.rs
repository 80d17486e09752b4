//! Histogram of durations in bounded memory.

use tompion_histogram::{LogLinear, rank};

use crate::quick::QuickMap;

/// Buckets of one nanosecond below 256, then 128 for each power of two: a value is off by less than
/// 1/128.
const BUCKETS: LogLinear = LogLinear::new(8, 7);

/// Histogram of durations in nanoseconds. It takes at most 7,424 buckets.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    buckets: QuickMap<u16, u64>,
    count: u64,
    total: u128,
    max: u64,
}

impl Histogram {
    /// Counts a duration.
    pub fn count(&mut self, ns: u64) {
        *self.buckets.entry(BUCKETS.bucket(ns) as u16).or_default() += 1;
        self.count += 1;
        self.total += u128::from(ns);
        self.max = self.max.max(ns);
    }

    /// Returns the number of durations.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Whether no duration was counted.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the sum of all durations.
    pub fn total(&self) -> u64 {
        u64::try_from(self.total).unwrap_or(u64::MAX)
    }

    /// Returns the longest duration; `None` if there is none.
    pub fn max(&self) -> Option<u64> {
        (!self.is_empty()).then_some(self.max)
    }

    /// Returns the durations that these percentages of all don't exceed, at most 1/128 above the
    /// exact values; `None` if there are no durations. Percentages must ascend.
    pub fn percentiles<const COUNT: usize>(&self, percentages: [u64; COUNT]) -> Option<[u64; COUNT]> {
        let max = self.max()?;
        let mut buckets: Vec<_> = self.buckets.iter().collect();
        buckets.sort_unstable();
        let (mut found, mut seen, mut next) = ([max; COUNT], 0, 0);
        for (bucket, count) in buckets {
            seen += u128::from(*count);
            while let Some(percentage) = percentages.get(next) {
                if seen < rank(self.count, *percentage, 100) {
                    break;
                }
                if let Some(slot) = found.get_mut(next) {
                    *slot = BUCKETS.last(usize::from(*bucket)).min(max);
                }
                next += 1;
            }
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_sorted_values() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.percentiles([50]), None);
        (1..=200u64).for_each(|ns| histogram.count(ns));
        assert_eq!(histogram.percentiles([50, 99, 100]), Some([100, 198, 200]));
        assert_eq!((histogram.len(), histogram.total(), histogram.max()), (200, 20_100, Some(200)));
        histogram.count(1_000_000);
        let [median, last] = histogram.percentiles([50, 100]).unwrap();
        assert_eq!((median, last), (101, 1_000_000));
    }
}
