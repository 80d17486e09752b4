//! Batch of entries on their way to their lanes.
//!
//! CPUs switch between threads, and the open blocks of thousands of lanes don't fit into a cache.
//! Adding single entries would mostly wait for memory. So entries are collected and then added lane
//! by lane, with enough CPUs by several threads.

use std::{io, mem, thread};

use super::Lane;
use super::entry::{Entry, Values};
use super::extra::Extra;
use super::lane::Widths;
use super::store::Store;

/// Maximum number of entries: of thousands of lanes, each gets several.
const MAX_ENTRIES: usize = 1 << 17;
/// Number of entries that each thread adds in one step.
const STEP_ENTRIES: usize = 1 << 14;
/// Maximum number of threads that add entries.
const MAX_THREADS: usize = 8;

/// Entries in the order of arrival.
#[derive(Clone, Debug, Default)]
pub struct WriteBatch {
    entries: Vec<PackedEntry>,
    /// Counts and values of the few entries that are merged or have values.
    more: Vec<(u64, Values)>,
    /// Number of entries of each lane.
    counts: Vec<u32>,
    /// Lanes with entries.
    lanes: Vec<u32>,
    /// Positions of the entries, lane by lane.
    order: Vec<u32>,
    /// Runs of each lane in `order` while they are added, and the number of lanes that are done.
    runs: Vec<LaneRun>,
    added: usize,
}

/// Entry in half its usual memory, since reading it from there takes longest.
#[derive(Clone, Copy, Debug)]
struct PackedEntry {
    begin: i64,
    end: i64,
    extra: u64,
    label: u32,
    lane: u32,
    style: u8,
    seen: u8,
    /// Position in `more` plus 1; 0 for a single entry without values.
    more: u32,
}

impl PackedEntry {
    fn entry(&self, more: &[(u64, Values)]) -> Entry {
        let Self { begin, end, extra, label, style, seen, .. } = *self;
        let rest = (self.more as usize).checked_sub(1).and_then(|place| more.get(place));
        let (count, values) = rest.copied().unwrap_or((1, Values::default()));
        // It was encoded for the same kind.
        let extra = Extra::decode(style, extra).unwrap_or_default();
        Entry { begin, end, style, seen, label, extra, count, values }
    }
}

/// Entries of a lane, as a range of `order`.
#[derive(Clone, Debug)]
struct LaneRun {
    lane: usize,
    begin: usize,
    end: usize,
}

impl WriteBatch {
    /// Whether it is time to [write](Self::write).
    pub fn is_full(&self) -> bool {
        self.entries.len() >= MAX_ENTRIES
    }

    /// Adds an entry. Not allowed between the steps of [writing](Self::write).
    pub fn push(&mut self, lane: u32, entry: &Entry) {
        let place = lane as usize;
        if self.counts.len() <= place {
            self.counts.resize(place + 1, 0);
        }
        if let Some(count) = self.counts.get_mut(place) {
            if *count == 0 {
                self.lanes.push(lane);
            }
            *count += 1;
        }
        let Entry { begin, end, style, seen, label, extra, count, values } = *entry;
        let extra = extra.encode(style);
        let has_more = count != 1 || values != Values::default();
        if has_more {
            self.more.push((count, values));
        }
        // There are at most `MAX_ENTRIES`.
        let more = if has_more { self.more.len() as u32 } else { 0 };
        self.entries.push(PackedEntry { begin, end, extra, label, lane, style, seen, more });
    }

    /// Returns the begin of a lane's first entry.
    pub fn first_of(&self, lane: u32) -> Option<i64> {
        self.entries.iter().find(|entry| entry.lane == lane).map(|entry| entry.begin)
    }

    /// Adds some entries to their lanes, and clears the batch when all are added. Returns the
    /// growth of memory in bytes, and whether some are left.
    ///
    /// # Errors
    ///
    /// If a block can't be written.
    pub fn write(
        &mut self,
        lanes: &mut [Lane],
        (widths, store): (&Widths, &Store),
    ) -> io::Result<(usize, bool)> {
        let threads = thread::available_parallelism().map_or(1, usize::from) / 2;
        // Together with the reading threads, these are as many as there are CPUs.
        let threads = if self.entries.len() < MAX_ENTRIES / 2 { 1 } else { threads.clamp(1, MAX_THREADS) };
        if self.runs.is_empty() {
            self.sort();
        }
        let left = self.runs.get(self.added..).unwrap_or_default();
        let first = left.first().map_or(0, |run| run.begin);
        let runs = left
            .get(..left.partition_point(|run| run.begin < first + STEP_ENTRIES * threads))
            .unwrap_or_default();
        let (count, last) = (runs.len(), runs.last().map_or(first, |run| run.end));
        let (entries, more, order) = (&self.entries, &self.more, &self.order);
        let add = |runs: &[LaneRun], lanes: &mut [Lane], first: usize| -> io::Result<usize> {
            let mut bytes = 0;
            for run in runs {
                let Some(lane) = run.lane.checked_sub(first).and_then(|lane| lanes.get_mut(lane)) else {
                    continue;
                };
                for place in order.get(run.begin..run.end).unwrap_or_default() {
                    let Some(entry) = entries.get(*place as usize) else { continue };
                    bytes += lane.levels.push(&entry.entry(more), (widths, store))?;
                }
            }
            Ok(bytes)
        };
        let written = if threads == 1 {
            add(runs, lanes, 0)
        } else {
            thread::scope(|scope| {
                let mut adding = Vec::new();
                let (mut runs, mut lanes, mut first) = (runs, lanes, 0);
                for left in (1..=threads).rev() {
                    // Each thread gets about as many entries.
                    let begin = runs.first().map_or(last, |run| run.begin);
                    let share = begin + (last - begin).div_ceil(left);
                    let of_it = runs.partition_point(|run| run.begin < share);
                    let (its, rest) = runs.split_at(of_it);
                    let behind = its.last().map_or(first, |run| run.lane + 1);
                    let cut = (behind - first).min(lanes.len());
                    let (its_lanes, others) = mem::take(&mut lanes).split_at_mut(cut);
                    let add = &add;
                    adding.push(scope.spawn(move || add(its, its_lanes, first)));
                    (runs, lanes, first) = (rest, others, behind);
                }
                let failed = |_| Err(io::Error::other("a thread that writes the index failed"));
                adding.into_iter().try_fold(0, |sum, one| Ok(sum + one.join().unwrap_or_else(failed)?))
            })
        };
        self.added += count;
        let is_left = self.added < self.runs.len();
        if !is_left {
            self.entries.clear();
            self.more.clear();
            self.runs.clear();
            self.added = 0;
        }
        Ok((written?, is_left))
    }

    /// Sorts the entries by lane, and keeps the order within each.
    fn sort(&mut self) {
        self.lanes.sort_unstable();
        let mut end = 0;
        for &lane in &self.lanes {
            let Some(count) = self.counts.get_mut(lane as usize) else { continue };
            let begin = end;
            end += *count as usize;
            self.runs.push(LaneRun { lane: lane as usize, begin, end });
            // From here on it is the position of the lane's next entry.
            *count = begin as u32;
        }
        self.order.clear();
        self.order.resize(self.entries.len(), 0);
        for (index, entry) in self.entries.iter().enumerate() {
            let Some(next) = self.counts.get_mut(entry.lane as usize) else { continue };
            if let Some(place) = self.order.get_mut(*next as usize) {
                *place = index as u32;
            }
            *next += 1;
        }
        for lane in self.lanes.drain(..) {
            if let Some(count) = self.counts.get_mut(lane as usize) {
                *count = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LaneKind, NO_RANGE, lane::Levels};
    use super::*;

    #[test]
    fn every_lane_gets_its_own_in_their_order() {
        let store = Store::new(tempfile::tempfile().unwrap(), 0);
        let lane = |track| Lane {
            track,
            kind: LaneKind::Marks,
            depth: 0,
            trace: 0,
            range: NO_RANGE,
            levels: Levels::default(),
        };
        let mut lanes: Vec<Lane> = (0..1000).map(lane).collect();
        let widths = Widths::new(1 << 30);
        let mut batch = WriteBatch::default();
        // More than one batch, most of them in few lanes.
        let of = |number: u32| (number.wrapping_mul(2_654_435_761) >> 22).min(number % 1024).min(999);
        let count = 3 * MAX_ENTRIES as u32 / 2;
        for number in 0..count {
            let time = i64::from(number);
            // Some are merged.
            let entry =
                Entry { begin: time, end: time, count: 1 + u64::from(number % 7 == 0), ..Entry::default() };
            batch.push(of(number), &entry);
            if batch.is_full() || number == count - 1 {
                while batch.write(&mut lanes, (&widths, &store)).unwrap().1 {}
            }
        }
        for (number, lane) in lanes.iter().enumerate() {
            let expected: Vec<u32> = (0..count).filter(|it| of(*it) as usize == number).collect();
            let mut found = Vec::new();
            let slice = lane.levels.slice((i64::MIN, i64::MAX), (0, &widths));
            slice
                .read(&store, (i64::MIN, i64::MAX), &mut |entry| {
                    assert_eq!(entry.count, 1 + u64::from(entry.begin % 7 == 0));
                    found.push(entry.begin as u32);
                    true
                })
                .unwrap();
            assert_eq!(found, expected, "lane {number}");
        }
    }
}
