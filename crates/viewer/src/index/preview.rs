//! What was seen of a trace before its turn came: all of what is looked at closely, else the first events of parts.
//!
//! ```text
//! index   ████████████▏ known                                 every event so far
//! scout                 ▌   ▌   ▌   ▌██████▌   ▌   ▌   ▌      all of what is looked at, of others the beginning
//!                       └───┤ a cell: what was seen at its beginning stands for it
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::LaneKind;
use super::entry::Entry;
use super::lane::Merge;
use crate::slice_kind;

/// What was seen from one moment to another, in the order of lanes. Before the entries of each lane stands one for all of
/// them, with what took most of the time.
#[derive(Debug)]
pub struct Preview {
    /// From when, in nanoseconds from the index's base.
    pub from: i64,
    /// To when.
    pub to: i64,
    /// Lanes, and where their entries begin.
    lanes: Vec<(u32, u32)>,
    bytes: Vec<u8>,
    /// When it was asked for last.
    used: AtomicU64,
}

impl Preview {
    /// Of entries with their lanes, those of one lane in their order.
    pub fn new((from, to): (i64, i64), mut entries: Vec<(u32, Entry)>) -> Self {
        // What ended before was seen to learn what went on.
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

    /// Bytes that it takes.
    pub fn size(&self) -> usize {
        size_of::<Self>() + self.bytes.len() + size_of_val(self.lanes.as_slice())
    }

    /// Remembers that it was asked for.
    pub fn use_at(&self, stamp: u64) {
        self.used.store(stamp, Ordering::Relaxed);
    }

    /// When it was asked for last.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// What stands for a lane, and the bytes of its entries.
    fn lane(&self, lane: u32) -> Option<(Entry, &[u8])> {
        let place = self.lanes.binary_search_by_key(&lane, |(lane, _)| *lane).ok()?;
        let begin = self.lanes.get(place).map_or(0, |(_, begin)| *begin as usize);
        let end = self.lanes.get(place + 1).map_or(self.bytes.len(), |(_, begin)| *begin as usize);
        let mut rest = self.bytes.get(begin..end).unwrap_or_default();
        Some((Entry::read(&mut 0, &mut rest)?, rest))
    }

    /// What took most of a lane's time; it stands for none.
    pub fn most(&self, lane: u32) -> Option<Entry> {
        self.lane(lane).map(|(most, _)| most)
    }

    /// Calls with the entries of a lane in their order.
    pub fn each(&self, lane: u32, visit: &mut dyn FnMut(&Entry)) {
        let Some((_, mut rest)) = self.lane(lane) else { return };
        let mut last = 0;
        while let Some(entry) = Entry::read(&mut last, &mut rest) {
            visit(&entry);
        }
    }
}

/// A while, and what was seen of it.
#[derive(Clone, Debug)]
pub struct PreviewCell {
    /// From when.
    pub begin: i64,
    /// To when.
    pub end: i64,
    /// Whether all of it was seen: else what was seen at its beginning stands for it.
    pub is_exact: bool,
    /// What was seen.
    pub preview: Arc<Preview>,
}

/// What is known of a window behind the time up to which the index knows everything.
#[derive(Clone, Debug, Default)]
pub struct PreviewRange {
    /// Up to when the index knows everything.
    pub known: i64,
    /// In order of time.
    pub cells: Vec<PreviewCell>,
}

impl PreviewRange {
    /// Calls with the entries of a lane that touch a window, narrow ones made one a pixel. Of a cell of which only the
    /// beginning was seen comes one that stands for none: what took most of that beginning, as long as the cell. Where a
    /// lane of states has none although all was seen, what went on began before that: unknown ones stand there, for none.
    ///
    /// Spans that began before are not known, so those within them stand too high: they are samples, never what all is.
    pub fn merged(
        &self,
        (lane, kind): (u32, LaneKind),
        (from, to): (i64, i64),
        (pixel, give): (i64, &mut dyn FnMut(Entry)),
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
                // What ended before is in the index; what goes on is in the next cell, too.
                let cut = Entry { begin: entry.begin.max(begin), end: entry.end.min(cell.end), ..*entry };
                if cut.begin <= cut.end && cut.end >= from && cut.begin <= to {
                    merge.push(&cut, pixel, &mut give_all);
                }
            });
            merge.finish(&mut give_all);
            unknown((at, cell.end.min(to))).map(&mut *give);
        }
    }

    /// Every entry of a lane that was seen around a time and that the index does not know.
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
