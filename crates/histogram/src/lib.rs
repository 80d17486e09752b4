//! Log-linear buckets: the arithmetic under every histogram of durations.
//!
//! ```text
//! values          0 … 2^exact_bits   one bucket for each unit
//!        2^exact_bits …              2^step_bits buckets for each power of two
//! ```
//!
//! So the width of a bucket is at most one 2^step_bits-th of its values. How counts are stored, and
//! what they count, is for the caller: [`LogLinear`] says only which bucket a value has, and which
//! values a bucket has. Bucket numbers of one layout never change, because files have them.
#![forbid(unsafe_code)]

/// Layout of log-linear buckets over all values of a `u64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLinear {
    unit_bits: u32,
    exact_bits: u32,
    step_bits: u32,
    max_bits: u32,
}

impl LogLinear {
    /// Returns a layout with one bucket for each value below `2^exact_bits`, and `2^step_bits`
    /// buckets for each power of two from there on.
    ///
    /// # Panics
    /// If `step_bits` is not below `exact_bits`: buckets would be narrower than a unit.
    pub const fn new(exact_bits: u32, step_bits: u32) -> Self {
        assert!(step_bits < exact_bits && exact_bits < 64);
        Self { unit_bits: 0, exact_bits, step_bits, max_bits: 64 }
    }

    /// Makes units of `2^unit_bits`: no bucket is narrower.
    ///
    /// # Panics
    /// If no value would be left for buckets wider than a unit.
    #[must_use]
    pub const fn with_unit(self, unit_bits: u32) -> Self {
        assert!(unit_bits + self.exact_bits < self.max_bits);
        Self { unit_bits, ..self }
    }

    /// Counts values from `2^max_bits` on in the last bucket.
    ///
    /// # Panics
    /// If `2^max_bits` is among the exact values, or beyond a `u64`.
    #[must_use]
    pub const fn up_to(self, max_bits: u32) -> Self {
        assert!(max_bits <= 64 && self.unit_bits + self.exact_bits < max_bits);
        Self { max_bits, ..self }
    }

    /// Number of buckets.
    pub const fn buckets(self) -> usize {
        let powers = self.max_bits - self.unit_bits - self.exact_bits;
        (1 << self.exact_bits) + ((powers as usize) << self.step_bits)
    }

    /// Number of the bucket that a value is counted in.
    #[inline(always)]
    pub const fn bucket(self, value: u64) -> usize {
        let units = value >> self.unit_bits;
        if units < 1 << self.exact_bits {
            return units as usize;
        }
        let power = units.ilog2();
        if power >= self.max_bits - self.unit_bits {
            return self.buckets() - 1;
        }
        // Between 2^step_bits and twice that.
        let digits = (units >> (power - self.step_bits)) as usize;
        let begin = (1 << self.exact_bits) + (((power - self.exact_bits) as usize) << self.step_bits);
        begin + digits - (1 << self.step_bits)
    }

    /// Smallest value of a bucket. A bucket beyond the last one counts as the last one.
    pub const fn first(self, bucket: usize) -> u64 {
        let bucket = if bucket < self.buckets() { bucket } else { self.buckets() - 1 };
        let exact = 1 << self.exact_bits;
        if bucket < exact {
            return (bucket as u64) << self.unit_bits;
        }
        let (power, step) = ((bucket - exact) >> self.step_bits, (bucket - exact) % (1 << self.step_bits));
        let shift = power as u32 + self.exact_bits - self.step_bits;
        (((1 << self.step_bits) + step) as u64) << shift << self.unit_bits
    }

    /// Largest value of a bucket; that of the last one is unbounded.
    pub const fn last(self, bucket: usize) -> u64 {
        if bucket + 1 >= self.buckets() { u64::MAX } else { self.first(bucket + 1) - 1 }
    }
}

/// Rank of a quantile among `count` sorted values, from 1: that of the value which `share` of
/// `whole` values don't exceed.
pub fn rank(count: u64, share: u64, whole: u64) -> u128 {
    (u128::from(count) * u128::from(share)).div_ceil(u128::from(whole)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Layouts of the crates that use this one.
    const LAYOUTS: [LogLinear; 3] =
        [LogLinear::new(5, 4).with_unit(7), LogLinear::new(8, 7), LogLinear::new(12, 10).up_to(48)];

    #[test]
    fn buckets_have_no_gap_and_are_narrow() {
        for (layout, buckets) in LAYOUTS.into_iter().zip([864, 7424, 40_960]) {
            assert_eq!(layout.buckets(), buckets);
            assert_eq!((layout.first(0), layout.last(buckets - 1)), (0, u64::MAX));
            for bucket in 0..buckets {
                let (first, last) = (layout.first(bucket), layout.last(bucket));
                assert_eq!((layout.bucket(first), layout.bucket(last)), (bucket, bucket), "{layout:?}");
                let width = (first >> layout.step_bits).max(1 << layout.unit_bits);
                assert!(bucket + 1 == buckets || last - first < width, "{layout:?} {bucket}");
                if bucket > 0 {
                    assert_eq!(layout.last(bucket - 1) + 1, first, "{layout:?} {bucket}");
                }
            }
        }
    }

    #[test]
    fn bucket_numbers_are_those_of_files() {
        let [jobs, durations, tests] = LAYOUTS;
        assert_eq!(
            [0, 127, 128, 2048, 2175, 2176, 1 << 40].map(|ns| jobs.bucket(ns)),
            [0, 0, 1, 16, 16, 17, 480]
        );
        assert_eq!([255, 256, 257, 258, 1 << 40].map(|ns| durations.bucket(ns)), [255, 256, 256, 257, 4352]);
        assert_eq!([4095, 4096, 4100, 1 << 47].map(|value| tests.bucket(value)), [4095, 4096, 4097, 39_936]);
        assert_eq!([1 << 48, u64::MAX].map(|value| tests.bucket(value)), [40_959; 2]);
    }

    #[test]
    fn ranks_begin_at_one() {
        assert_eq!([0, 1, 500, 501, 1000].map(|share| rank(2, share, 1000)), [1, 1, 1, 2, 2]);
        assert_eq!(rank(u64::MAX, 10, 10), u128::from(u64::MAX));
    }
}
