//! Entries of a lane at several levels of detail.
//!
//! ```text
//! entries ──► level 0   every entry           blocks in the file, the last one in memory
//!               └ merge ──► level 1   entries narrower than a cell become one per cell
//!                             └ merge ──► level 2   cells eight times as wide …
//! ```
//!
//! All levels have one format, so a window is answered from the level whose cells are at most a
//! pixel wide. A level is fed when a block of the level below is full. Entries that have not
//! reached it are read from the levels below.
//!
//! A block of which merging leaves more than half of the entries is not copied: the level above has
//! the same block. So most upper levels of a lane with long slices take no bytes, and a window
//! reads at most twice the entries.

use std::io;

use super::columns;
use super::entry::{Entry, Values};
use super::store::Store;
use crate::extra::Extra;
use crate::slice_kind;

/// Bytes of entries at which a block is compressed and written.
const BLOCK: usize = 8192;
/// Number of levels above the first one.
pub const LEVELS: usize = 4;
/// Ratio of the cell widths of two levels.
pub const RATIO: i64 = 8;
/// Number of the narrowest cells in a trace.
const CELLS: i64 = 1 << 20;
/// Maximum number of kinds that are distinguished within a cell.
const KINDS: usize = 8;

/// Cell widths in nanoseconds of each level above level 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Widths(pub [i64; LEVELS]);

impl Widths {
    /// Computes the widths for a trace's duration in nanoseconds.
    pub fn new(duration: i64) -> Self {
        let narrowest = (duration / CELLS).max(1);
        let mut widths = [narrowest; LEVELS];
        for level in 1..LEVELS {
            widths[level] = widths[level - 1].saturating_mul(RATIO);
        }
        Self(widths)
    }

    /// Returns the highest level whose cells are at most this wide; 0 has every entry.
    pub fn level(&self, width: i64) -> usize {
        self.0.iter().take_while(|&&cell| cell <= width).count()
    }
}

/// Block in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Begin of its first entry.
    pub begin: i64,
    /// Latest end of its entries.
    pub end: i64,
    /// Position in the file.
    pub place: u64,
    /// Size in bytes.
    pub bytes: u32,
    /// Number of entries.
    pub count: u32,
}

/// Entries of one level of detail.
#[derive(Clone, Debug, Default)]
pub struct Level {
    /// Blocks in the file.
    pub blocks: Vec<Block>,
    open: Open,
    /// Merger that feeds the level above; `None` if there is no level above.
    merge: Option<Box<Merge>>,
}

impl Level {
    /// Makes a complete level.
    pub fn of(blocks: Vec<Block>) -> Self {
        Self { blocks, ..Self::default() }
    }

    fn add(&mut self, block: Block) {
        if self.blocks.is_empty() {
            self.blocks.reserve_exact(1);
        }
        self.blocks.push(block);
    }
}

/// Block that is being filled.
#[derive(Clone, Debug, Default)]
struct Open {
    bytes: Vec<u8>,
    begin: i64,
    end: i64,
    last: i64,
    count: u32,
}

impl Open {
    fn push(&mut self, entry: &Entry) {
        if self.bytes.is_empty() {
            (self.begin, self.end, self.last) = (entry.begin, entry.end, 0);
        }
        entry.write(&mut self.last, &mut self.bytes);
        self.begin = self.begin.min(entry.begin);
        self.end = self.end.max(entry.end);
        self.count += 1;
    }
}

/// Levels of a lane.
#[derive(Clone, Debug, Default)]
pub struct Levels(pub Vec<Level>);

/// Source of a lane's window: blocks in the file, and copies of unwritten entries.
#[derive(Debug, Default)]
pub struct Slice {
    parts: Vec<Part>,
    /// Maximum number of entries.
    pub count: u64,
}

#[derive(Debug)]
enum Part {
    Block(Block),
    Bytes(Vec<u8>),
    Entry(Entry),
}

impl Levels {
    /// Adds an entry. Returns the growth of memory in bytes.
    ///
    /// # Errors
    ///
    /// If a block cannot be written.
    pub fn push(&mut self, entry: &Entry, (widths, store): (&Widths, &Store)) -> io::Result<usize> {
        if self.0.is_empty() {
            // Most lanes have a single level, and there may be hundreds of thousands.
            self.0.reserve_exact(1);
            self.0.push(Level::default());
        }
        let Some(level) = self.0.first_mut() else { return Ok(0) };
        let before = level.open.bytes.len();
        level.open.push(entry);
        let after = level.open.bytes.len();
        if after >= BLOCK {
            self.close(0, true, (widths, store))?;
        }
        Ok(after - before)
    }

    /// Writes the open block of a level, and feeds the level above if `feeds`.
    fn close(&mut self, index: usize, feeds: bool, (widths, store): (&Widths, &Store)) -> io::Result<()> {
        let Some(level) = self.0.get_mut(index) else { return Ok(()) };
        let Open { bytes: rows, begin, end, count, .. } = std::mem::take(&mut level.open);
        if rows.is_empty() {
            return Ok(());
        }
        let (place, bytes) = store.append(&columns::split(&rows))?;
        let block = Block { begin, end, place, bytes, count };
        level.add(block);
        if feeds { self.feed(index, (&block, &rows), (widths, store)) } else { Ok(()) }
    }

    /// Feeds the level above with a block: with its merged entries, or with the block itself where
    /// merging leaves more than half of the entries.
    fn feed(
        &mut self,
        index: usize,
        (block, rows): (&Block, &[u8]),
        (widths, store): (&Widths, &Store),
    ) -> io::Result<()> {
        let Some(&width) = widths.0.get(index) else { return Ok(()) };
        if self.0.len() <= index + 1 {
            self.0.reserve_exact(1);
            self.0.push(Level::default());
        }
        let mut before = self.0.get_mut(index).and_then(|level| level.merge.take()).unwrap_or_default();
        let mut merge = before.clone();
        let mut merged = Vec::new();
        let (mut rest, mut last) = (rows, 0);
        while let Some(entry) = Entry::read(&mut last, &mut rest) {
            merge.push(&entry, width, &mut |entry| merged.push(entry));
        }
        if merged.len() > block.count as usize / 2 {
            if let Some(above) = self.0.get_mut(index + 1) {
                before.finish(&mut |entry| above.open.push(&entry));
            }
            self.close(index + 1, true, (widths, store))?;
            if let Some(above) = self.0.get_mut(index + 1) {
                above.add(*block);
            }
            return self.feed(index + 1, (block, rows), (widths, store));
        }
        for entry in &merged {
            let Some(above) = self.0.get_mut(index + 1) else { break };
            above.open.push(entry);
            if above.open.bytes.len() >= BLOCK {
                self.close(index + 1, true, (widths, store))?;
            }
        }
        if let Some(level) = self.0.get_mut(index) {
            level.merge = Some(merge);
        }
        Ok(())
    }

    /// Writes all unwritten entries, to free memory.
    ///
    /// # Errors
    ///
    /// If a block cannot be written.
    pub fn flush(&mut self, place: (&Widths, &Store)) -> io::Result<()> {
        self.close(0, true, place)?;
        // For hundreds of thousands of lanes, mergers take more memory than merged entries.
        let merge = self.0.first_mut().and_then(|level| level.merge.take());
        if let (Some(above), Some(mut merge)) = (self.0.get_mut(1), merge) {
            merge.finish(&mut |merged| above.open.push(&merged));
        }
        Ok(())
    }

    /// Writes everything.
    ///
    /// # Errors
    ///
    /// If a block cannot be written.
    pub fn finish(&mut self, (widths, store): (&Widths, &Store)) -> io::Result<()> {
        let mut index = 0;
        while index < self.0.len() {
            // A lane of a single block needs no levels.
            let feeds = index + 1 < self.0.len();
            self.close(index, feeds, (widths, store))?;
            let merge = self.0.get_mut(index).and_then(|level| level.merge.take());
            if let (Some(above), Some(mut merge)) = (self.0.get_mut(index + 1), merge) {
                merge.finish(&mut |merged| above.open.push(&merged));
            }
            index += 1;
        }
        Ok(())
    }

    /// Returns the bytes of unwritten entries in memory.
    pub fn open_bytes(&self) -> usize {
        self.0.iter().map(|level| level.open.bytes.len()).sum()
    }

    /// Returns the source of a window, for cells of `width` nanoseconds.
    pub fn slice(&self, (from, to): (i64, i64), (width, widths): (i64, &Widths)) -> Slice {
        let top = widths.level(width).min(self.0.len().saturating_sub(1));
        let mut slice = Slice::default();
        let Some(level) = self.0.get(top) else { return slice };
        let first = level.blocks.partition_point(|block| block.end < from);
        let behind = level.blocks.get(first..).unwrap_or_default();
        for block in behind.iter().take_while(|block| block.begin <= to) {
            slice.count += u64::from(block.count);
            slice.parts.push(Part::Block(*block));
        }
        self.open_parts(top, (from, to), &mut slice);
        slice
    }

    /// Returns all entries around a time: at least the ones before and after it.
    pub fn slice_around(&self, time: i64) -> Slice {
        let mut slice = Slice::default();
        let Some(level) = self.0.first() else { return slice };
        let at = level.blocks.partition_point(|block| block.end < time);
        let around = at.saturating_sub(1)..at.saturating_add(3).min(level.blocks.len());
        for block in level.blocks.get(around).unwrap_or_default() {
            slice.count += u64::from(block.count);
            slice.parts.push(Part::Block(*block));
        }
        if at.saturating_add(3) >= level.blocks.len() {
            self.open_parts(0, (i64::MIN, i64::MAX), &mut slice);
        }
        slice
    }

    /// Returns the source of a window where entries overlap and are ordered by their end.
    pub fn slice_unordered(&self, (from, to): (i64, i64), (width, widths): (i64, &Widths)) -> Slice {
        let top = widths.level(width).min(self.0.len().saturating_sub(1));
        let mut slice = Slice::default();
        let Some(level) = self.0.get(top) else { return slice };
        for block in level.blocks.iter().filter(|block| block.end >= from && block.begin <= to) {
            slice.count += u64::from(block.count);
            slice.parts.push(Part::Block(*block));
        }
        self.open_parts(top, (from, to), &mut slice);
        slice
    }

    /// Adds the unwritten entries of a level, and of the levels below that have not reached it.
    fn open_parts(&self, top: usize, (from, to): (i64, i64), slice: &mut Slice) {
        for index in (0..=top).rev() {
            let Some(level) = self.0.get(index) else { continue };
            let open = &level.open;
            if !open.bytes.is_empty() && open.end >= from && open.begin <= to {
                slice.count += u64::from(open.count);
                slice.parts.push(Part::Bytes(open.bytes.clone()));
            }
            let below = index.checked_sub(1).and_then(|below| self.0.get(below));
            if let Some(entry) = below.and_then(|below| below.merge.as_ref()?.peek()) {
                if entry.end >= from && entry.begin <= to {
                    slice.count += 1;
                    slice.parts.push(Part::Entry(entry));
                }
            }
        }
    }

    /// Returns the begin of the first and the end of the last entry.
    pub fn bounds(&self) -> Option<(i64, i64)> {
        let level = self.0.first()?;
        let open = (!level.open.bytes.is_empty()).then_some((level.open.begin, level.open.end));
        let first = level.blocks.first().map(|block| block.begin).or(open.map(|(begin, _)| begin))?;
        let last = open.map(|(_, end)| end).or(level.blocks.last().map(|block| block.end))?;
        Some((first, last))
    }

    /// Returns the approximate number of entries at level 0.
    pub fn count(&self) -> u64 {
        let Some(level) = self.0.first() else { return 0 };
        level.blocks.iter().map(|block| u64::from(block.count)).sum::<u64>() + u64::from(level.open.count)
    }
}

impl Slice {
    /// Visits each entry that touches the window, in order. Stops when the visitor returns false.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn read(
        &self,
        store: &Store,
        (from, to): (i64, i64),
        visit: &mut dyn FnMut(&Entry) -> bool,
    ) -> io::Result<()> {
        for part in &self.parts {
            let goes_on = match part {
                Part::Block(block) => {
                    let rows = columns::join(&store.read(block.place, block.bytes)?);
                    let rows = rows.ok_or(io::ErrorKind::InvalidData)?;
                    read_bytes(&rows, (from, to), visit)
                }
                Part::Bytes(bytes) => read_bytes(bytes, (from, to), visit),
                Part::Entry(entry) => visit(entry),
            };
            if !goes_on {
                break;
            }
        }
        Ok(())
    }
}

fn read_bytes(mut bytes: &[u8], (from, to): (i64, i64), visit: &mut dyn FnMut(&Entry) -> bool) -> bool {
    let mut last = 0;
    while let Some(entry) = Entry::read(&mut last, &mut bytes) {
        if entry.end >= from && entry.begin <= to && !visit(&entry) {
            return false;
        }
    }
    true
}

/// Merger of narrow entries, one per cell.
#[derive(Clone, Debug, Default)]
pub struct Merge {
    cell: i64,
    merged: Option<Entry>,
    /// Kinds in the cell, each with the time that it takes.
    kinds: Vec<Kind>,
}

/// Entries of a kind and label within a cell.
#[derive(Clone, Copy, Debug)]
struct Kind {
    style: u8,
    label: u32,
    extra: Extra,
    /// Their total time in nanoseconds, plus 1 for each.
    weight: i64,
}

impl Merge {
    /// Adds the next entry, and emits completed ones.
    pub fn push(&mut self, entry: &Entry, width: i64, give: &mut dyn FnMut(Entry)) {
        if entry.duration() >= width && entry.count == 1 {
            self.finish(give);
            give(*entry);
            return;
        }
        let cell = entry.begin.div_euclid(width.max(1));
        if self.merged.is_some() && self.cell != cell {
            self.finish(give);
        }
        self.cell = cell;
        match &mut self.merged {
            None => {
                self.kinds.clear();
                self.merged = Some(*entry);
            }
            Some(merged) => {
                merged.begin = merged.begin.min(entry.begin);
                merged.end = merged.end.max(entry.end);
                merged.count = merged.count.saturating_add(entry.count);
                merged.values = Values {
                    last: entry.values.last,
                    min: merged.values.min.min(entry.values.min),
                    max: merged.values.max.max(entry.values.max),
                };
            }
        }
        self.count_kind(entry);
    }

    fn count_kind(&mut self, entry: &Entry) {
        let weight = entry.duration().saturating_add(entry.count.min(1 << 32) as i64);
        let is_same = |kind: &&mut Kind| (kind.style, kind.label) == (entry.style, entry.label);
        if let Some(known) = self.kinds.iter_mut().find(is_same) {
            known.weight = known.weight.saturating_add(weight);
            return;
        }
        let kind = Kind { style: entry.style, label: entry.label, extra: entry.extra, weight };
        if self.kinds.len() < KINDS {
            self.kinds.push(kind);
        } else if let Some(least) = self.kinds.iter_mut().min_by_key(|kind| kind.weight) {
            if least.weight < weight {
                *least = kind;
            }
        }
    }

    /// Returns the entry that is being merged.
    fn peek(&self) -> Option<Entry> {
        let merged = self.merged?;
        let kind = self.kinds.iter().max_by_key(|kind| kind.weight)?;
        let seen = if merged.count == 1 { merged.seen } else { 0 };
        Some(Entry { style: kind.style, label: kind.label, extra: kind.extra, seen, ..merged })
    }

    /// Emits the entry that is being merged.
    pub fn finish(&mut self, give: &mut dyn FnMut(Entry)) {
        if let Some(entry) = self.peek() {
            give(entry);
        }
        self.merged = None;
    }
}

/// Whether an entry only counts events.
pub fn is_density(entry: &Entry) -> bool {
    matches!(entry.style, slice_kind::DENSITY | slice_kind::LOST | slice_kind::OVERWRITTEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes slices of a width, one after another, into a lane.
    fn lane_of(count: i64, width: i64) -> (Levels, Store, Widths) {
        let store = Store::new(tempfile::tempfile().unwrap(), 0);
        let (mut levels, widths) = (Levels::default(), Widths([10, 80, 640, 5120]));
        for number in 0..count {
            let (begin, end) = (number * width, (number + 1) * width);
            let entry = Entry { begin, end, style: slice_kind::RUNNING, count: 1, ..Entry::default() };
            levels.push(&entry, (&widths, &store)).unwrap();
        }
        levels.finish((&widths, &store)).unwrap();
        (levels, store, widths)
    }

    /// Returns the number of entries of a window at a level, and of the slices in them.
    fn read((levels, store, widths): &(Levels, Store, Widths), window: (i64, i64), width: i64) -> (u64, u64) {
        let (mut entries, mut slices) = (0, 0);
        let mut visit = |entry: &Entry| {
            (entries, slices) = (entries + 1, slices + entry.count);
            true
        };
        levels.slice(window, (width, widths)).read(store, window, &mut visit).unwrap();
        (entries, slices)
    }

    #[test]
    fn wide_slices_take_bytes_once() {
        let lane = lane_of(20_000, 700);
        let level_bytes = |level: &Level| level.blocks.iter().map(|block| u64::from(block.bytes)).sum();
        let sizes: Vec<u64> = lane.0.0.iter().map(level_bytes).collect();
        // Cells of 5120 ns have some seven slices each, narrower ones have none.
        assert_eq!(sizes[..4], [sizes[0]; 4]);
        assert!(sizes[4] < sizes[0] / 2, "{sizes:?}");
        assert_eq!(lane.1.end(), sizes[0] + sizes[4]);
        for width in [0, 10, 80, 640] {
            assert_eq!(read(&lane, (0, i64::MAX), width), (20_000, 20_000), "cells of {width}");
        }
        let (entries, slices) = read(&lane, (0, i64::MAX), 5120);
        assert!(slices == 20_000 && entries < 3000, "{entries} entries of {slices}");
    }

    #[test]
    fn slices_of_any_width_are_merged_to_twice_the_cells() {
        // Long stretches of narrow and of wide slices alternate.
        let store = Store::new(tempfile::tempfile().unwrap(), 0);
        let (mut levels, widths) = (Levels::default(), Widths([10, 80, 640, 5120]));
        let mut time = 0;
        for number in 0..100_000i64 {
            let width = if number / 3000 % 2 == 0 { 3 } else { 300 };
            let entry = Entry { begin: time, end: time + width, count: 1, ..Entry::default() };
            levels.push(&entry, (&widths, &store)).unwrap();
            time += width;
        }
        levels.finish((&widths, &store)).unwrap();
        let lane = (levels, store, widths);
        for width in [0, 10, 80, 640, 5120] {
            let (entries, slices) = read(&lane, (0, i64::MAX), width);
            assert_eq!(slices, 100_000, "cells of {width}");
            let most = if width == 0 { 100_000 } else { 4 * (time / width) as u64 };
            assert!(entries <= most.min(100_000), "{entries} entries in cells of {width}");
        }
        let mut last = 0;
        let mut visit = |entry: &Entry| {
            assert!(entry.begin >= last, "{} after {last}", entry.begin);
            last = entry.begin;
            true
        };
        lane.0.slice((0, time), (640, &lane.2)).read(&lane.1, (0, time), &mut visit).unwrap();
    }
}
