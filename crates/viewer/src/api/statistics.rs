//! Durations of slices with the same name: number, percentiles and the longest one.

use std::collections::HashMap;

use super::answers::{DurationStats, SliceLocation};
use tompion_index::Index;
use tompion_index::entry::Entry;

/// Durations by label.
#[derive(Debug, Default)]
pub struct Durations(HashMap<u32, Group>);

/// Value of [`Entry::seen`] if both ends were observed.
const ALL_SEEN: u8 = 3;

/// Durations of one label.
#[derive(Debug, Default)]
struct Group {
    /// Durations in nanoseconds, each with its lane and begin.
    all: Vec<(u64, u32, i64)>,
    /// Number of slices merged in narrow cells, of unknown duration.
    merged: u64,
    /// Time inside the area of the slices with known duration.
    total: u64,
    /// Number of slices with an unobserved begin or end, of unknown duration.
    unfinished: u64,
    /// Minimum time of these inside the area.
    unfinished_total: u64,
}

impl Durations {
    /// Adds a slice of a lane. A merged one is only counted, since it contains gaps. `time` is how
    /// much of a slice is inside the area, and is added to the total.
    pub fn add(&mut self, lane: u32, (entry, time): (&Entry, i64), offset: i64) {
        let group = self.0.entry(entry.label).or_default();
        if entry.count > 1 {
            group.merged = group.merged.saturating_add(entry.count);
            return;
        }
        let inside = time.max(0) as u64;
        if entry.seen != ALL_SEEN {
            group.unfinished += 1;
            group.unfinished_total = group.unfinished_total.saturating_add(inside);
            return;
        }
        let whole = entry.duration().max(0) as u64;
        group.all.push((whole, lane, entry.begin.saturating_add(offset)));
        group.total = group.total.saturating_add(inside);
    }

    /// Leaves out the unfinished slices of some labels, whose ends can't be observed.
    pub fn leave_out_unfinished(&mut self, is_endless: impl Fn(u32) -> bool) {
        self.0.retain(|label, group| {
            if is_endless(*label) {
                (group.unfinished, group.unfinished_total) = (0, 0);
            }
            group.count() + group.unfinished > 0
        });
    }

    /// Returns the number of labels.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the description for the page: `most` groups, those with merged slices first, then by
    /// total time. Merged slices are narrower than `narrow` nanoseconds. Percentiles, totals and
    /// `count` are of slices with both ends observed. `unfinished` counts the others, which take at
    /// least `unfinished_total` nanoseconds.
    pub fn into_stats(self, index: &Index, (most, narrow): (usize, i64)) -> Vec<DurationStats> {
        let mut groups: Vec<(u32, Group)> = self.0.into_iter().collect();
        let merged = |group: &Group| if group.merged > 0 { group.count() } else { 0 };
        groups.sort_by_key(|(label, group)| {
            (
                std::cmp::Reverse(merged(group)),
                std::cmp::Reverse(group.total.saturating_add(group.unfinished_total)),
                *label,
            )
        });
        let stats = groups.into_iter().take(most).map(|(label, group)| {
            let name = index.label(label).map(ToString::to_string).unwrap_or_default();
            group.into_stats(name, narrow.max(0) as u64)
        });
        stats.collect()
    }
}

impl Group {
    fn count(&self) -> u64 {
        self.merged.saturating_add(self.all.len() as u64)
    }

    fn into_stats(mut self, name: String, narrow: u64) -> DurationStats {
        self.all.sort_unstable();
        let mut stats = DurationStats {
            name,
            count: self.count(),
            merged: self.merged,
            unfinished: self.unfinished,
            unfinished_total: self.unfinished_total,
            ..DurationStats::default()
        };
        let Some((first, last)) = self.all.first().copied().zip(self.all.last().copied()) else {
            return stats;
        };
        // Slices at least as long as a cell are never merged, so the longest of these is the
        // longest of all.
        if self.merged == 0 || last.0 >= narrow {
            (stats.max, stats.longest) = (Some(last.0), Some(location(last)));
        }
        if self.merged > 0 {
            return stats;
        }
        let bin = |bin: Bin| {
            let longest = (bin.count > 0).then(|| location(bin.longest));
            (bin.low, behind(bin.low), bin.count, longest)
        };
        DurationStats {
            min: Some(first.0),
            p50: Some(self.at(50)),
            p90: Some(self.at(90)),
            p99: Some(self.at(99)),
            total: Some(self.total),
            histogram: self.bins().into_iter().map(bin).collect(),
            ..stats
        }
    }

    /// Returns the histogram of the sorted durations.
    fn bins(&self) -> Vec<Bin> {
        let mut bins: Vec<Bin> = Vec::new();
        for &(duration, lane, begin) in &self.all {
            // Each bin is twice as wide as the one before.
            let low = if duration == 0 { 0 } else { 1u64 << duration.ilog2() };
            // Empty bins are listed, too, so that bars of equal width stand for equal ratios.
            while let Some(before) = bins.last().map(|bin| bin.low).filter(|before| behind(*before) < low) {
                bins.push(Bin { low: behind(before), count: 0, longest: (0, 0, 0) });
            }
            match bins.last_mut().filter(|bin| bin.low == low) {
                Some(bin) => (bin.count, bin.longest) = (bin.count + 1, (duration, lane, begin)),
                None => bins.push(Bin { low, count: 1, longest: (duration, lane, begin) }),
            }
        }
        bins
    }

    /// Returns a percentile of the sorted durations.
    fn at(&self, percent: usize) -> u64 {
        let rank = (self.all.len() * percent).div_ceil(100);
        self.all.get(rank.saturating_sub(1)).map_or(0, |it| it.0)
    }
}

struct Bin {
    low: u64,
    count: u64,
    longest: (u64, u32, i64),
}

/// Returns the end of a bin, where the next one begins.
fn behind(low: u64) -> u64 {
    low.saturating_mul(2).max(1)
}

fn location((duration, lane, begin): (u64, u32, i64)) -> SliceLocation {
    SliceLocation { lane, begin, end: begin.saturating_add_unsigned(duration) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn durations(entries: &[(i64, i64, u64)]) -> DurationStats {
        let mut durations = Durations::default();
        for &(begin, end, count) in entries {
            let entry = Entry { begin, end, count, label: 1, seen: ALL_SEEN, ..Entry::default() };
            durations.add(7, (&entry, entry.duration()), 0);
        }
        stats(durations)
    }

    fn stats(mut durations: Durations) -> DurationStats {
        durations.0.remove(&1).unwrap().into_stats("read".into(), 100)
    }

    #[test]
    fn what_was_merged_is_counted_and_has_no_durations() {
        let stats = durations(&[(0, 99, 40), (100, 102, 1)]);
        assert_eq!((stats.count, stats.merged), (41, 40));
        assert_eq!([stats.min, stats.p50, stats.p90, stats.p99, stats.max, stats.total], [None; 6]);
        assert_eq!(stats.longest, None);
        assert_eq!(stats.histogram, []);
    }

    #[test]
    fn the_longest_is_known_where_it_is_longer_than_anything_that_was_merged() {
        let stats = durations(&[(0, 99, 40), (200, 350, 1), (400, 500, 1)]);
        assert_eq!(stats.max, Some(150));
        assert_eq!(stats.longest, Some(SliceLocation { lane: 7, begin: 200, end: 350 }));
        assert_eq!(stats.total, None);
    }

    #[test]
    fn what_did_not_end_has_no_duration() {
        let mut durations = Durations::default();
        for (begin, end, seen) in
            [(0, 2, ALL_SEEN), (10, 14, ALL_SEEN), (0, 5, 2), (20, 1000, 1), (0, 1000, 0)]
        {
            let entry = Entry { begin, end, count: 1, label: 1, seen, ..Entry::default() };
            durations.add(7, (&entry, entry.duration()), 0);
        }
        let found = stats(durations);
        assert_eq!((found.count, found.max, found.total), (2, Some(4), Some(6)));
        assert_eq!((found.unfinished, found.unfinished_total), (3, 1985));
        let mut durations = Durations::default();
        let entry = Entry { end: 9, count: 1, label: 1, seen: 1, ..Entry::default() };
        durations.add(7, (&entry, 9), 0);
        let found = stats(durations);
        assert_eq!((found.count, found.unfinished, found.p50), (0, 1, None));
    }

    #[test]
    fn what_cannot_end_is_not_unfinished() {
        let mut durations = Durations::default();
        for (label, seen) in [(1, 1), (2, 1), (2, ALL_SEEN), (3, 1)] {
            let entry = Entry { end: 9, count: 1, label, seen, ..Entry::default() };
            durations.add(7, (&entry, 9), 0);
        }
        durations.leave_out_unfinished(|label| label < 3);
        assert_eq!((durations.len(), durations.0.contains_key(&1)), (2, false));
        assert_eq!((durations.0[&2].unfinished, durations.0[&3].unfinished), (0, 1));
        let found = durations.0.remove(&2).unwrap().into_stats("exit".into(), 100);
        assert_eq!((found.count, found.unfinished_total), (1, 0));
    }

    #[test]
    fn what_was_read_one_by_one_has_all_of_them() {
        let stats = durations(&[(0, 2, 1), (10, 14, 1), (20, 28, 1), (30, 130, 1)]);
        assert_eq!((stats.p50, stats.p99, stats.total), (Some(4), Some(100), Some(114)));
        assert_eq!(stats.merged, 0);
    }
}
