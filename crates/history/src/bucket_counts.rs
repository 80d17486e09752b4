//! Histogram for arithmetic: an array of counts, one per bucket. A bucket of a CPU's latencies is
//! one microsecond wide.
//!
//! Reports over ten years add some hundred thousand histograms; with a tree this would take
//! seconds.

use tompion_latency::{BUCKETS, Histogram, length_bounds};

use super::bytes::{Damaged, Reader, Writer};

/// Counts per bucket; the last bucket has all longer latencies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BucketCounts(Vec<u64>);

impl BucketCounts {
    /// Adds to a bucket. A bucket beyond the last one counts as the last one.
    pub fn add(&mut self, place: usize, count: u64) {
        let place = place.min(BUCKETS - 1);
        if count == 0 {
            return;
        }
        if place >= self.0.len() {
            self.0.resize(place + 1, 0);
        }
        if let Some(number) = self.0.get_mut(place) {
            *number = number.saturating_add(count);
        }
    }

    /// Adds all counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        other.filled().for_each(|(place, count)| self.add(place, count));
    }

    /// Returns the counts added since an earlier state of the same histogram.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |place: usize| earlier.0.get(place).copied().unwrap_or(0);
        let mut new = Self::default();
        self.filled().for_each(|(place, count)| new.add(place, count.saturating_sub(before(place))));
        new
    }

    /// Sum of all counts.
    pub fn count(&self) -> u64 {
        self.0.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Last bucket that is not empty.
    pub fn last(&self) -> Option<usize> {
        self.filled().last().map(|(place, _)| place)
    }

    /// Buckets that are not empty, with their counts.
    pub fn filled(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.0.iter().copied().enumerate().filter(|place| place.1 != 0)
    }

    /// Converts buckets of one microsecond into a [`Histogram`].
    pub fn histogram(&self) -> Histogram {
        self.by(bounds)
    }

    /// Converts log-linear buckets ([`length_place`](tompion_latency::length_place)) into a
    /// [`Histogram`].
    pub fn lengths(&self) -> Histogram {
        self.by(length_bounds)
    }

    fn by(&self, bounds: fn(usize) -> (u64, u64)) -> Histogram {
        let mut histogram = Histogram::default();
        for (place, count) in self.filled() {
            let (begin, end) = bounds(place);
            histogram.add(begin, end, count);
        }
        histogram
    }

    /// Writes runs of filled buckets: the gap before each run, its length and its counts.
    pub fn write(&self, writer: &mut Writer) {
        let is_filled = |count: &u64| *count != 0;
        let runs: Vec<&[u64]> = self.0.chunk_by(|one, other| is_filled(one) == is_filled(other)).collect();
        let filled = runs.iter().filter(|run| run.first().is_some_and(is_filled)).count();
        writer.number(filled as u64);
        let mut gap = 0;
        for run in runs {
            if !run.first().is_some_and(is_filled) {
                gap = run.len();
                continue;
            }
            writer.number(gap as u64);
            writer.number(run.len() as u64);
            run.iter().for_each(|count| writer.number(*count));
            gap = 0;
        }
    }

    /// Adds counts that [`BucketCounts::write`] wrote.
    ///
    /// # Errors
    /// If the bytes can't have been written by it.
    pub fn add_written(&mut self, reader: &mut Reader<'_>) -> Result<(), Damaged> {
        const OUTSIDE: &str = "a histogram has more places than there are";
        let runs = reader.up_to(BUCKETS as u64, OUTSIDE)?;
        let mut place = 0;
        for _ in 0..runs {
            place += reader.up_to(BUCKETS as u64, OUTSIDE)? as usize;
            let length = reader.up_to(BUCKETS as u64, OUTSIDE)? as usize;
            if place + length > BUCKETS {
                return Err(Damaged(OUTSIDE));
            }
            for _ in 0..length {
                self.add(place, reader.number()?);
                place += 1;
            }
        }
        Ok(())
    }
}

/// Begin and end of a bucket of one microsecond, in nanoseconds; the last bucket is unbounded.
pub const fn bounds(place: usize) -> (u64, u64) {
    let begin = place as u64 * 1000;
    (begin, if place >= BUCKETS - 1 { u64::MAX } else { begin + 1000 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::Dice;

    fn written(places: &BucketCounts) -> Vec<u8> {
        let mut writer = Writer::default();
        places.write(&mut writer);
        writer.into_bytes()
    }

    fn read(bytes: &[u8]) -> Result<BucketCounts, Damaged> {
        let mut places = BucketCounts::default();
        let mut reader = Reader::new(bytes);
        places.add_written(&mut reader)?;
        reader.end()?;
        Ok(places)
    }

    fn random(dice: &mut Dice) -> BucketCounts {
        let mut places = BucketCounts::default();
        for _ in 0..dice.below(300) {
            let (spread, size) = (1 + dice.below(BUCKETS as u64), dice.below(40));
            places.add(dice.below(spread) as usize, dice.below(1 << size));
        }
        places
    }

    #[test]
    fn whatever_is_written_comes_back() {
        let mut dice = Dice::new(7);
        for round in 0..500 {
            let places = random(&mut dice);
            assert_eq!(read(&written(&places)).as_ref(), Ok(&places), "round {round}");
        }
        let mut all = BucketCounts::default();
        (0..BUCKETS).for_each(|place| all.add(place, u64::MAX));
        assert_eq!(read(&written(&all)).unwrap(), all);
        assert_eq!(written(&BucketCounts::default()), [0]);
    }

    #[test]
    fn what_came_since_and_what_was_before_are_all() {
        let mut dice = Dice::new(8);
        for _ in 0..100 {
            let (before, more) = (random(&mut dice), random(&mut dice));
            let mut now = before.clone();
            now.merge(&more);
            let since = now.since(&before);
            assert_eq!((since.count(), since.histogram()), (more.count(), more.histogram()));
            assert_eq!(before.since(&now).count(), 0);
        }
    }

    #[test]
    fn the_last_place_has_no_end() {
        let mut places = BucketCounts::default();
        places.add(usize::MAX, 2);
        places.add(3, 5);
        let histogram = places.histogram();
        assert_eq!((histogram.overflow(), histogram.count(), places.last()), (2, 7, Some(BUCKETS - 1)));
        assert_eq!(histogram.below(700), Some(4000));
    }

    #[test]
    fn damaged_bytes_are_refused_or_harmless() {
        let mut dice = Dice::new(9);
        let good = written(&random(&mut dice));
        for _ in 0..2000 {
            let mut bytes = good.clone();
            for _ in 0..=dice.below(3) {
                let place = dice.below(bytes.len() as u64) as usize;
                bytes[place] = dice.below(256) as u8;
            }
            bytes.truncate(1 + dice.below(good.len() as u64) as usize);
            if let Ok(places) = read(&bytes) {
                assert!(places.0.len() <= BUCKETS);
            }
        }
        // More buckets than exist, by their number and by their gaps.
        assert!(read(&[0xff, 0xff, 0x7f]).is_err());
        assert!(read(&[1, 0x81, 0x50, 0x82, 0x50]).is_err());
        assert!(read(&[2, 0x81, 0x50, 1, 1, 1, 1, 1]).is_err());
    }
}
