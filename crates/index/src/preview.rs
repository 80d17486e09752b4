//! Previews of a trace before it is indexed: everything in small windows, else the first events of
//! parts.
//!
//! ```text
//! index     ████████████▏ known                             every event so far
//! previews                ▌   ▌   ▌   ▌██████▌   ▌   ▌   ▌  small windows, and samples of others
//!                         └───┤ cell: its first events stand for all of it
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::LaneKind;
use super::entry::Entry;
use super::lane::Merge;
use crate::slice_kind;

/// Entries of a time range, sorted by lane. Before each lane's entries is one for all of them, of
/// the kind that takes most of the time.
#[derive(Debug)]
pub struct Preview {
    /// Begin in nanoseconds from the index's base.
    pub from: i64,
    /// End in nanoseconds from the index's base.
    pub to: i64,
    /// Lanes, each with the position of its entries.
    lanes: Vec<(u32, u32)>,
    bytes: Vec<u8>,
    /// Stamp of the last request.
    used: AtomicU64,
}

impl Preview {
    /// Makes a preview of entries with their lanes, in the order of each lane.
    pub fn new((from, to): (i64, i64), mut entries: Vec<(u32, Entry)>) -> Self {
        // Entries that ended before the range were read to derive its first states.
        entries.retain(|(_, entry)| entry.end > from || entry.begin >= from);
        entries.sort_by_key(|(lane, _)| *lane);
        let (mut lanes, mut bytes) = (Vec::new(), Vec::new());
        for of_lane in entries.chunk_by(|(one, _), (other, _)| one == other) {
            let Some((lane, _)) = of_lane.first() else { continue };
            lanes.push((*lane, bytes.len() as u32));
            let (mut merge, mut most) = (Merge::default(), Entry::default());
            let mut take = |merged: Entry| most = Entry { count: 0, seen: 0, ..merged };
            of_lane.iter().for_each(|(_, entry)| merge.push(entry, i64::MAX, &mut take));
            merge.finish(&mut take);
            most.write(&mut 0, &mut bytes);
            let mut last = 0;
            of_lane.iter().for_each(|(_, entry)| entry.write(&mut last, &mut bytes));
        }
        bytes.shrink_to_fit();
        Self { from, to, lanes, bytes, used: AtomicU64::new(0) }
    }

    /// Returns its size in bytes.
    pub fn size(&self) -> usize {
        size_of::<Self>() + self.bytes.len() + size_of_val(self.lanes.as_slice())
    }

    /// Marks it as requested, for eviction.
    pub fn use_at(&self, stamp: u64) {
        self.used.store(stamp, Ordering::Relaxed);
    }

    /// Returns the stamp of its last request.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns the summary of a lane and the bytes of its entries.
    fn lane(&self, lane: u32) -> Option<(Entry, &[u8])> {
        let place = self.lanes.binary_search_by_key(&lane, |(lane, _)| *lane).ok()?;
        let begin = self.lanes.get(place).map_or(0, |(_, begin)| *begin as usize);
        let end = self.lanes.get(place + 1).map_or(self.bytes.len(), |(_, begin)| *begin as usize);
        let mut rest = self.bytes.get(begin..end).unwrap_or_default();
        Some((Entry::read(&mut 0, &mut rest)?, rest))
    }

    /// Returns the summary of a lane, with a count of 0.
    pub fn most(&self, lane: u32) -> Option<Entry> {
        self.lane(lane).map(|(most, _)| most)
    }

    /// Visits the entries of a lane in order.
    pub fn each(&self, lane: u32, visit: &mut dyn FnMut(&Entry)) {
        let Some((_, mut rest)) = self.lane(lane) else { return };
        let mut last = 0;
        while let Some(entry) = Entry::read(&mut last, &mut rest) {
            visit(&entry);
        }
    }
}

/// Interval with its preview.
#[derive(Clone, Debug)]
pub struct PreviewCell {
    /// Begin of the interval.
    pub begin: i64,
    /// End of the interval.
    pub end: i64,
    /// Whether all of it was read; else its first events stand for it.
    pub is_exact: bool,
    /// Entries that were read.
    pub preview: Arc<Preview>,
}

/// Previews of a window behind the indexed part.
#[derive(Clone, Debug, Default)]
pub struct PreviewRange {
    /// Time up to which the index is complete.
    pub known: i64,
    /// Cells in time order.
    pub cells: Vec<PreviewCell>,
}

/// Time window with the width of a pixel, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Begin.
    pub from: i64,
    /// End.
    pub to: i64,
    /// Width of a pixel.
    pub pixel: i64,
}

impl PreviewRange {
    /// Emits the entries of a lane that touch a window, narrow ones merged one per pixel. A sampled
    /// cell yields one entry with a count of 0: the summary of its sample, as long as the cell.
    /// Where an exact cell of a state lane has no entry, the state began before it, so an unknown
    /// one with a count of 0 is emitted.
    ///
    /// Spans that began earlier are missing, so those within them stand too high. They are emitted
    /// as samples only.
    pub fn merged(
        &self,
        (lane, kind): (u32, LaneKind),
        Window { from, to, pixel }: Window,
        give: &mut dyn FnMut(Entry),
    ) {
        let from = from.max(self.known);
        let has_states = matches!(kind, LaneKind::Cpu | LaneKind::Thread);
        for cell in self.cells.iter().filter(|cell| cell.end > from && cell.begin <= to) {
            let begin = cell.begin.max(self.known);
            if !cell.is_exact {
                if let Some(most) = cell.preview.most(lane) {
                    give(Entry { begin, end: cell.end, ..most });
                }
                continue;
            }
            if kind == LaneKind::Span {
                continue;
            }
            let mut merge = Merge::default();
            let unknown = |(begin, end): (i64, i64)| {
                let is_seen = has_states && end.saturating_sub(begin) >= pixel;
                is_seen.then(|| Entry { begin, end, style: slice_kind::UNKNOWN, ..Entry::default() })
            };
            let mut at = begin.max(from);
            let mut give_all = |entry: Entry| {
                unknown((at, entry.begin)).map(&mut *give);
                at = at.max(entry.end);
                give(entry);
            };
            cell.preview.each(lane, &mut |entry| {
                // Earlier entries are in the index; entries that go on are in the next cell, too.
                let cut = Entry { begin: entry.begin.max(begin), end: entry.end.min(cell.end), ..*entry };
                if cut.begin <= cut.end && cut.end >= from && cut.begin <= to {
                    merge.push(&cut, pixel, &mut give_all);
                }
            });
            merge.finish(&mut give_all);
            unknown((at, cell.end.min(to))).map(&mut *give);
        }
    }

    /// Returns the entries of a lane that were read around a time and are not indexed.
    pub fn around(&self, (lane, kind): (u32, LaneKind), time: i64) -> Vec<Entry> {
        let mut entries = Vec::new();
        let is_there = |cell: &&PreviewCell| {
            cell.is_exact && kind != LaneKind::Span && cell.begin <= time && time <= cell.end
        };
        for cell in self.cells.iter().filter(is_there) {
            cell.preview.each(lane, &mut |entry| {
                if entry.end > self.known || entry.begin >= self.known {
                    entries.push(*entry);
                }
            });
        }
        entries
    }
}
