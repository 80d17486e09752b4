//! File of the index: blocks, followed by a directory of everything else.
//!
//! ```text
//! 0         "tompview", version, position, size and hash of the directory    8 bytes each
//! 4096      blocks …
//! position  directory: the trace's files, numbers, labels, tracks, lanes, levels, parts
//! ```
//!
//! A file of another version or of other trace files, or a damaged one, is rejected. A forged file
//! can contain wrong data, but can't make a reader fail: all numbers are checked where they are
//! used.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::entry::{MIN_BYTES, read_number, write_number};
use super::index_storage::{HEAD, hash};
use super::labels::Labels;
use super::lane::{Block, LEVELS, Level, Levels, Widths};
use super::store::{MAX_BLOCK, Store};
use super::{Index, Lane, LaneKind, NO_RANGE, PartRows, Track, TrackKind};

const MAGIC: u64 = u64::from_le_bytes(*b"tompview");
/// Version of the format, increased by each change.
const VERSION: u64 = 9;
/// Maximum size of the directory in bytes.
const MAX_SIZE: u64 = 2 << 30;
/// Maximum number of entries in a block. Deflated, an entry may take less than a byte.
const MAX_ENTRIES: u32 = MAX_BLOCK / MIN_BYTES;

/// Writes the directory of a finished index.
///
/// # Errors
///
/// If the file cannot be written.
pub fn write(index: &Index, fingerprint: &str) -> io::Result<()> {
    let mut writer = Writer(Vec::new());
    writer.text(fingerprint);
    writer.index(index);
    let bytes = writer.0;
    let place = index.store.write_end(&bytes)?;
    let head = [MAGIC, VERSION, place, bytes.len() as u64, hash(&bytes, VERSION)];
    let head: Vec<u8> = head.iter().flat_map(|number| number.to_le_bytes()).collect();
    index.store.write_at(&head, 0)
}

/// Reads an index; `None` if it is of other files or invalid.
pub fn read(file: File, fingerprint: &str) -> Option<Index> {
    let mut head = [0; 40];
    file.read_exact_at(&mut head, 0).ok()?;
    let mut numbers =
        head.chunks_exact(8).filter_map(|bytes| Some(u64::from_le_bytes(*bytes.first_chunk()?)));
    let mut number = || numbers.next();
    let (magic, version, place, size, sum) = (number()?, number()?, number()?, number()?, number()?);
    let whole = file.metadata().ok()?.len();
    let end = place.checked_add(size)?;
    if magic != MAGIC || version != VERSION || size > MAX_SIZE || place < HEAD || end > whole {
        return None;
    }
    let mut bytes = vec![0; usize::try_from(size).ok()?];
    file.read_exact_at(&mut bytes, place).ok()?;
    if hash(&bytes, VERSION) != sum {
        return None;
    }
    let mut reader = Reader { bytes: &bytes, blocks: place, in_blocks: [0; LEVELS + 1] };
    if reader.text()? != fingerprint {
        return None;
    }
    reader.index(Store::new(file, place))
}

/// Returns the size of the directory of a finished index in bytes.
pub fn size(index: &Index) -> u64 {
    let mut writer = Writer(Vec::new());
    writer.index(index);
    writer.0.len() as u64
}

struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, number: u64) {
        write_number(number, &mut self.0);
    }

    fn signed(&mut self, number: i64) {
        self.number(number as u64);
    }

    fn float(&mut self, number: f64) {
        self.0.extend(number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
    }

    fn list<T>(&mut self, list: &[T], mut write: impl FnMut(&mut Self, &T)) {
        self.number(list.len() as u64);
        list.iter().for_each(|it| write(self, it));
    }

    fn index(&mut self, index: &Index) {
        self.signed(index.base);
        self.signed(index.end);
        index.widths.0.iter().for_each(|width| self.signed(*width));
        self.list(index.labels.texts(), |writer, text| writer.text(text));
        self.list(&index.tracks, Self::track);
        self.list(&index.lanes, Self::lane);
        self.levels(&index.arrows);
        self.list(&index.parts, |writer, part| {
            writer.number(part.first);
            writer.list(&part.counts, |writer, (class, count)| {
                writer.number((*class).into());
                writer.number(*count);
            });
        });
        self.list(&index.classes, |writer, name| writer.text(name));
        self.list(&index.events, |writer, count| writer.number(*count));
        self.list(&index.machines, |writer, machine| writer.number((*machine).into()));
        self.list(&index.bounds, |writer, bounds| {
            writer.number(bounds.is_some().into());
            let (first, last) = bounds.unwrap_or_default();
            writer.signed(first);
            writer.signed(last);
        });
        index.losses.iter().for_each(|count| self.number(*count));
        self.list(&index.damages, |writer, line| writer.text(line));
        self.list(&index.disorders, |writer, line| writer.text(line));
    }

    fn track(&mut self, track: &Track) {
        self.number(track.parent.map_or(0, |parent| u64::from(parent) + 1));
        self.number(track.kind as u64);
        self.number(track.name.into());
        self.number(track.machine.into());
        self.signed(track.number);
        self.number(track.pid.map_or(0, |pid| u64::from(pid as u32) + 1));
        self.list(&track.lanes, |writer, lane| writer.number((*lane).into()));
        self.signed(track.busy);
    }

    fn lane(&mut self, lane: &Lane) {
        self.number(lane.track.into());
        self.number(lane.kind as u64);
        self.number(lane.depth.into());
        self.number(lane.trace.into());
        if lane.kind == LaneKind::Counter {
            self.float(lane.range.0);
            self.float(lane.range.1);
        }
        self.levels(&lane.levels);
    }

    fn levels(&mut self, levels: &Levels) {
        self.list(&levels.0, |writer, level| {
            let mut last = (0i64, 0u64);
            writer.list(&level.blocks, |writer, block| {
                // Positions and times are relative to the previous block.
                writer.signed(block.begin.wrapping_sub(last.0));
                writer.signed(block.end.wrapping_sub(block.begin));
                writer.number(block.place.wrapping_sub(last.1));
                writer.number(block.bytes.into());
                writer.number(block.count.into());
                last = (block.end, block.place);
            });
        });
    }
}

struct Reader<'b> {
    bytes: &'b [u8],
    /// End of the blocks in the file.
    blocks: u64,
    /// Sums of block sizes by level so far: at each level, a byte belongs to one block.
    in_blocks: [u64; LEVELS + 1],
}

impl Reader<'_> {
    fn number(&mut self) -> Option<u64> {
        read_number(&mut self.bytes)
    }

    fn small(&mut self) -> Option<u32> {
        self.number()?.try_into().ok()
    }

    fn signed(&mut self) -> Option<i64> {
        Some(self.number()? as i64)
    }

    fn float(&mut self) -> Option<f64> {
        let (bytes, rest) = self.bytes.split_first_chunk::<8>()?;
        self.bytes = rest;
        Some(f64::from_le_bytes(*bytes))
    }

    fn text(&mut self) -> Option<String> {
        let size = usize::try_from(self.number()?).ok()?;
        let (text, rest) = self.bytes.split_at_checked(size)?;
        self.bytes = rest;
        String::from_utf8(text.to_vec()).ok()
    }

    fn list<T>(&mut self, mut read: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = usize::try_from(self.number()?).ok()?;
        // Each item takes at least a byte, so a forged count can't request more memory than the
        // file has bytes.
        if count > self.bytes.len() {
            return None;
        }
        let mut list = Vec::new();
        for _ in 0..count {
            list.push(read(self)?);
        }
        Some(list)
    }

    fn index(&mut self, store: Store) -> Option<Index> {
        let (base, end) = (self.signed()?, self.signed()?);
        let mut index = Index::new((base, end.max(1)), store);
        let mut widths = [1i64; LEVELS];
        for width in &mut widths {
            *width = Some(self.signed()?).filter(|width| *width > 0)?;
        }
        index.widths = Widths(widths);
        index.labels = Labels::of(self.list(Self::text)?)?;
        index.tracks = self.list(Self::track)?;
        index.lanes = self.list(Self::lane)?;
        index.arrows = self.levels()?;
        index.parts = self.list(|reader| {
            let first = reader.number()?;
            Some(PartRows { first, counts: reader.list(|reader| Some((reader.small()?, reader.number()?)))? })
        })?;
        index.classes = self.list(|reader| Some(Arc::from(reader.text()?)))?;
        index.events = self.list(Self::number)?;
        index.machines = self.list(|reader| reader.number()?.try_into().ok())?;
        index.bounds = self.list(|reader| {
            let is_there = reader.number()? != 0;
            let bounds = (reader.signed()?, reader.signed()?);
            Some(is_there.then_some(bounds))
        })?;
        for count in &mut index.losses {
            *count = self.number()?;
        }
        index.damages = self.list(Self::text)?;
        index.disorders = self.list(Self::text)?;
        index.progress = 1.0;
        let lanes = index.lanes.len();
        let are_there = |track: &Track| track.lanes.iter().all(|lane| (*lane as usize) < lanes);
        index.tracks.iter().all(are_there).then_some(index)
    }

    fn track(&mut self) -> Option<Track> {
        Some(Track {
            parent: self.number()?.checked_sub(1).map(u32::try_from).transpose().ok()?,
            kind: *TrackKind::ALL.get(usize::try_from(self.number()?).ok()?)?,
            name: self.small()?,
            machine: self.number()?.try_into().ok()?,
            number: self.signed()?,
            pid: self.number()?.checked_sub(1).map(|pid| pid as u32 as i32),
            lanes: self.list(Self::small)?,
            busy: self.signed()?,
        })
    }

    fn lane(&mut self) -> Option<Lane> {
        let track = self.small()?;
        let kind = *LaneKind::ALL.get(usize::try_from(self.number()?).ok()?)?;
        let depth = self.number()?.try_into().ok()?;
        let trace = self.small()?;
        let range = match kind {
            LaneKind::Counter => (self.float()?, self.float()?),
            _ => NO_RANGE,
        };
        Some(Lane { track, kind, depth, trace, range, levels: self.levels()? })
    }

    fn levels(&mut self) -> Option<Levels> {
        let count = usize::try_from(self.number()?).ok().filter(|count| *count <= LEVELS + 1)?;
        (0..count).map(|index| self.level(index)).collect::<Option<_>>().map(Levels)
    }

    fn level(&mut self, index: usize) -> Option<Level> {
        let mut last = (0i64, 0u64);
        let blocks = self.list(|reader| {
            let begin = last.0.wrapping_add(reader.signed()?);
            let end = begin.wrapping_add(reader.signed()?);
            let place = last.1.wrapping_add(reader.number()?);
            let block = Block { begin, end, place, bytes: reader.small()?, count: reader.small()? };
            last = (end, place);
            let in_blocks = reader.in_blocks.get_mut(index)?;
            *in_blocks = in_blocks.checked_add(block.bytes.into())?;
            let is_within = *in_blocks <= reader.blocks.checked_sub(HEAD)?
                && place >= HEAD
                && place.checked_add(block.bytes.into())? <= reader.blocks;
            let is_possible = block.bytes <= MAX_BLOCK && block.count <= MAX_ENTRIES;
            (is_within && is_possible).then_some(block)
        })?;
        Some(Level::of(blocks))
    }
}

#[cfg(test)]
mod tests {
    use super::super::apply::new_track;
    use super::super::entry::Entry;
    use super::*;

    #[test]
    fn entries_of_less_than_a_byte_are_read_again() {
        let file = tempfile::tempfile().unwrap();
        let mut index = Index::new((0, 1 << 40), Store::new(file.try_clone().unwrap(), HEAD));
        let track = index.add_track(new_track((TrackKind::Thread, None), (0, 0, 1)));
        let lane = index.lane(track, (LaneKind::Marks, 0), 0).unwrap();
        for number in 0..10_000 {
            index.push(lane, &Entry { begin: number, end: number, count: 1, ..Entry::default() });
        }
        while index.finish_some().unwrap() {}
        write(&index, "files").unwrap();
        let blocks = |index: &Index| index.lanes[0].levels.0[0].blocks.clone();
        let first = blocks(&index)[0];
        assert!(first.count > first.bytes, "{first:?}");
        let again = read(file, "files").expect("the index is valid");
        assert_eq!(blocks(&again), blocks(&index));
    }
}
