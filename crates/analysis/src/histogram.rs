//! Histogram of durations in bounded memory.
//!
//! ```text
//! buckets   0 … 255   one nanosecond each
//!           256 …     128 for each power of two: a value is off by less than 1/128
//! ```

use crate::quick::QuickMap;

/// Buckets for each power of two, as a power of two.
const STEP_BITS: u32 = 7;
/// Values below this have a bucket each.
const EXACT: u64 = 2 << STEP_BITS;

/// Histogram of durations in nanoseconds. It takes at most 7,424 buckets.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    buckets: QuickMap<u16, u64>,
    count: u64,
    total: u128,
    max: u64,
}

fn bucket_of(ns: u64) -> u16 {
    if ns < EXACT {
        return ns as u16;
    }
    let shift = ns.ilog2() - STEP_BITS;
    ((u64::from(shift) << STEP_BITS) + (ns >> shift)) as u16
}

/// Returns the largest value of a bucket.
fn last_of(bucket: u16) -> u64 {
    let bucket = u64::from(bucket);
    if bucket < EXACT {
        return bucket;
    }
    let shift = (bucket >> STEP_BITS) - 1;
    let digit = bucket - (shift << STEP_BITS);
    ((digit + 1) << shift).wrapping_sub(1)
}

impl Histogram {
    /// Counts a duration.
    pub fn count(&mut self, ns: u64) {
        *self.buckets.entry(bucket_of(ns)).or_default() += 1;
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
                let rank = (u128::from(self.count) * u128::from(*percentage)).div_ceil(100).max(1);
                if seen < rank {
                    break;
                }
                if let Some(slot) = found.get_mut(next) {
                    *slot = last_of(*bucket).min(max);
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
    fn buckets_have_no_gap_and_are_narrow() {
        let last = bucket_of(u64::MAX);
        assert_eq!((last_of(last), last), (u64::MAX, 7423));
        for bucket in 0..last {
            let begin = last_of(bucket) + 1;
            assert_eq!((bucket_of(begin), bucket_of(begin - 1)), (bucket + 1, bucket));
            assert!(last_of(bucket + 1) - begin <= begin / 128, "{bucket}");
        }
    }

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
