//! Index files that tracers write beside their streams. They give the position of each packet, so
//! that packets before the selected time need not be read.
//!
//! ```text
//! index/NAME.idx
//!   4 bytes each, big-endian:   magic 0xc1f1dcc1 │ major │ minor │ bytes of an entry
//!   8 bytes each, per packet:   offset (bytes) │ size │ content (bits) │ begin │ end (cycles)
//!                               │ discarded │ stream class │ (1.1) stream │ number
//! ```
//!
//! An index repeats what the packets say. It is trusted under three conditions, otherwise the
//! problem is reported and the packets are read:
//!
//! - its entries follow each other in the file without a gap
//! - its entries are in order of time
//! - it agrees with the packet to which it leads, the last one that is too early
//!
//! Packets before which something was lost are always read.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tompion_ctf::decode::{Decoder, Packet};

use super::PACKET_END_SLACK_NS;
use super::pieces::Files;
use super::source::{Before, Source};
use crate::Corruption;
use crate::discover::Trace;
use crate::file::StreamFile;

const MAGIC: u32 = 0xc1f1_dcc1;
const HEADER: usize = 16;
/// Size in bytes of the smallest entry, that of version 1.0, and of an entry with a sequence
/// number.
const MIN_ENTRY: usize = 56;
const NUMBERED_ENTRY: usize = 72;
/// Number of entries read at once.
const ENTRIES_PER_READ: usize = 64;

/// Index entry of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Position in the stream file.
    pub place: u64,
    /// Size in bytes.
    size: u64,
    /// Begin time in cycles.
    pub begin: u64,
    /// End time in cycles.
    pub end: u64,
    pub discarded: u64,
    /// Number of the stream class.
    stream: u64,
    pub sequence: Option<u64>,
}

impl Entry {
    /// Returns the position behind the packet, or `None` if the entry is invalid.
    fn end_place(&self) -> Option<u64> {
        self.place.checked_add(self.size).filter(|_| self.size > 0)
    }

    /// Whether the entry agrees with the packet's own header.
    pub fn is_of(&self, packet: &Packet, class: u64) -> bool {
        let same = |indexed: u64, found: Option<u64>| found.is_none_or(|found| found == indexed);
        packet.packet_bits == self.size.checked_mul(8)
            && same(self.begin, packet.begin)
            && same(self.end, packet.end)
            && same(self.discarded, packet.discarded)
            && self.sequence.is_none_or(|sequence| same(sequence, packet.sequence))
            && self.stream == class
    }
}

/// Returns the path of a stream file's index.
pub(super) fn path_of(stream: &Path) -> Option<PathBuf> {
    let mut name = stream.file_name()?.to_owned();
    name.push(".idx");
    Some(stream.parent()?.join("index").join(name))
}

/// Index file that is being read.
pub(super) struct Index {
    file: File,
    /// Size of an entry in bytes.
    entry: usize,
    entries: u64,
}

impl Index {
    /// Opens the index of a stream file, if it has one.
    ///
    /// # Errors
    ///
    /// Fails with a message if the file is not a valid index.
    pub fn open(stream: &Path) -> Result<Option<Self>, String> {
        let Some(path) = path_of(stream) else { return Ok(None) };
        let problem = |error: io::Error| error.to_string();
        // A pipe or another special file may never end.
        if !path.is_file() {
            return Ok(None);
        }
        let mut file = tompion_os::open_regular(&path).map_err(problem)?;
        let size = file.metadata().map_err(problem)?.len();
        let mut header = [0; HEADER];
        file.read_exact(&mut header).map_err(problem)?;
        let word = |place: usize| {
            header
                .get(place..)
                .and_then(|rest| rest.first_chunk())
                .map_or(0, |word| u32::from_be_bytes(*word))
        };
        let (magic, major, entry) = (word(0), word(4), word(12) as usize);
        if magic != MAGIC || major != 1 || !(MIN_ENTRY..=4096).contains(&entry) {
            return Err(format!(
                "expected an index of version 1, found {magic:#x}, version {major}, entries of {entry} bytes"
            ));
        }
        let entries = size.saturating_sub(HEADER as u64) / entry as u64;
        Ok(Some(Self { file, entry, entries }))
    }

    /// Reads up to `count` entries, starting at `first`.
    fn read(&self, first: u64, count: usize) -> Result<Vec<Entry>, String> {
        let count = usize::try_from(self.entries.saturating_sub(first)).unwrap_or(usize::MAX).min(count);
        let mut bytes = vec![0; count * self.entry];
        let place = HEADER as u64 + first * self.entry as u64;
        let read = self.file.read_exact_at(&mut bytes, place);
        read.map_err(|error| error.to_string())?;
        let entry = |bytes: &[u8]| {
            let word = |number: usize| {
                bytes
                    .get(number * 8..)
                    .and_then(|rest| rest.first_chunk())
                    .map_or(0, |it| u64::from_be_bytes(*it))
            };
            Entry {
                place: word(0),
                size: word(1) / 8,
                begin: word(3),
                end: word(4),
                discarded: word(5),
                stream: word(6),
                sequence: (self.entry >= NUMBERED_ENTRY).then(|| word(8)),
            }
        };
        Ok(bytes.chunks_exact(self.entry).map(entry).collect())
    }

    /// Finds the entry of the packet at a position by binary search. Returns `None` if there is
    /// none, or if entries are not ordered by position.
    fn find(&self, place: u64) -> Result<Option<u64>, String> {
        let (mut low, mut high) = (0, self.entries);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.read(middle, 1)?.first() {
                Some(entry) if entry.place == place => return Ok(Some(middle)),
                Some(entry) if entry.place < place => low = middle + 1,
                _ => high = middle,
            }
        }
        Ok(None)
    }

    /// Calls a function with the entries from `first` on, each with its predecessor, until it
    /// returns a value.
    ///
    /// # Errors
    ///
    /// Fails with a message if entries don't follow each other.
    fn search<T>(
        &self,
        first: u64,
        mut visit: impl FnMut(Option<Entry>, Entry) -> Option<T>,
    ) -> Result<Option<T>, String> {
        let (mut number, mut before) = (first, None::<Entry>);
        loop {
            let entries = self.read(number, ENTRIES_PER_READ)?;
            if entries.is_empty() {
                return Ok(None);
            }
            for entry in entries {
                let expected = before.map(|before| before.end_place().unwrap_or(u64::MAX));
                if let Some(expected) = expected.filter(|&expected| expected != entry.place) {
                    return Err(format!(
                        "entry {number}: expected a packet at byte {expected}, found one at {}",
                        entry.place
                    ));
                }
                if let Some(found) = visit(before, entry) {
                    return Ok(Some(found));
                }
                before = Some(entry);
                number += 1;
            }
        }
    }

    /// Finds the last skippable packet behind the one at a position, and its predecessor. Returns
    /// `None` if only the very next packet is skippable. `is_skippable` gets a packet and its
    /// predecessor.
    ///
    /// The packet is checked again when it is read. All packets before it ended before it began.
    fn pass_over(
        &self,
        place: u64,
        is_skippable: impl Fn(&Entry, &Entry) -> bool,
    ) -> Result<Option<(Entry, Entry)>, String> {
        let Some(first) = self.find(place)? else { return Ok(None) };
        let (mut last, mut skipped) = (None, 0);
        self.search(first, |before, entry| {
            let before = before?;
            if !is_skippable(&entry, &before) {
                return Some(());
            }
            last = Some((before, entry));
            skipped += 1;
            None
        })?;
        Ok(last.filter(|_| skipped > 1))
    }

    /// Returns the latest begin time among the packets of a file of this size, or `None` if the
    /// index does not cover all of the file.
    fn latest_begin(&self, size: u64, decoder: &Decoder) -> Result<Option<i64>, String> {
        let streams = &decoder.trace().streams;
        let (mut latest, mut end) = (None, None);
        self.search(0, |before, entry| {
            end = entry.end_place().filter(|_| before.is_some() || entry.place == 0);
            let stream = streams.iter().position(|stream| stream.id == entry.stream);
            latest = latest.max(stream.and_then(|it| Some(decoder.clock(it)?.to_nanoseconds(entry.begin))));
            None::<()>
        })?;
        Ok(latest.filter(|_| end == Some(size)))
    }
}

impl Files {
    /// Returns the latest begin time among the packets of a stream, if indexes cover all of its
    /// files.
    pub(super) fn indexed_begin(&self, traces: &[Trace]) -> Option<i64> {
        let begin = |file: usize| {
            let (path, trace) = self.get(file)?;
            let (size, decoder) = (path.metadata().ok()?.len(), &traces.get(trace)?.decoder);
            self.index(file)?.latest_begin(size, decoder).unwrap_or_else(|problem| {
                self.disable_index(file, problem);
                None
            })
        };
        (0..self.count()).map(begin).try_fold(None, |latest, begin| Some(latest.max(Some(begin?))))?
    }
}

/// State of the current file's index.
#[derive(Default)]
pub(super) enum IndexState {
    /// The index was not looked for yet.
    #[default]
    Unchecked,
    /// The index is absent or unusable.
    Unusable,
    /// The index is open.
    Index(Index),
}

/// Jump to a packet found by the index, with the state to return to if it was wrong.
pub(super) struct Jump {
    pub to: Entry,
    /// Position of the packet that would have been next.
    pub back: u64,
    pub before: Option<Before>,
}

impl Source {
    /// Skips packets that ended before this time, starting at the packet that was just begun.
    pub(super) fn pass_over_early(&mut self, from: i64) {
        // Skipped packets cannot update the clock.
        let has_times = |file: &&mut StreamFile| !file.is_growing && !file.carries_clock();
        let Some(file) = self.file.as_mut().filter(has_times) else { return };
        let (Some(packet), Some(back)) = (&file.packet, file.next_place()) else { return };
        if let IndexState::Unchecked = self.index {
            self.index = match self.files.index(self.next.saturating_sub(1)) {
                Some(index) => IndexState::Index(index),
                None => IndexState::Unusable,
            };
        }
        let IndexState::Index(index) = &self.index else { return };
        let class = file.decoder.stream(packet.stream).map_or(0, |stream| stream.id);
        let is_skippable = |entry: &Entry, before: &Entry| {
            let end = self.time.nanoseconds(entry.end).filter(|_| entry.end >= entry.begin);
            let next = before.sequence.map(|sequence| sequence.saturating_add(1));
            end.is_some_and(|end| end < from.saturating_sub(PACKET_END_SLACK_NS))
                && before.end <= entry.begin
                && entry.stream == class
                && entry.discarded == before.discarded
                && (packet.sequence.is_none() || entry.sequence == next)
        };
        match index.pass_over(file.packet_start(), is_skippable) {
            Ok(Some((before, to))) => {
                self.jump = Some(Jump { to, back, before: self.before });
                let end = self.time.nanoseconds(before.end).filter(|_| before.end >= before.begin);
                self.before = Some(Before {
                    clock: before.end,
                    discarded: packet.discarded.map(|_| before.discarded),
                    sequence: packet.sequence.and(before.sequence),
                    end,
                });
                file.go_to(to.place);
            }
            Ok(None) => {}
            Err(problem) => self.disable_index(problem),
        }
    }

    /// Moves to the next packet of the file, or back if the index was wrong.
    pub(super) fn next_packet_of_file(&mut self) -> Result<bool, Corruption> {
        let Some(file) = &mut self.file else { return Ok(false) };
        let Some(Jump { to, back, before }) = self.jump.take() else { return file.next_packet() };
        let is_found = matches!(file.next_packet(), Ok(true));
        let found = file.packet.as_ref().filter(|_| is_found);
        let class = found.and_then(|packet| file.decoder.stream(packet.stream)).map(|stream| stream.id);
        if found.zip(class).is_some_and(|(packet, class)| to.is_of(packet, class)) {
            return Ok(true);
        }
        file.go_to(back);
        self.before = before;
        self.disable_index(format!(
            "expected what the index says, found another packet at byte {}",
            to.place
        ));
        self.file.as_mut().map_or(Ok(false), StreamFile::next_packet)
    }

    /// Stops using the file's index.
    fn disable_index(&mut self, problem: String) {
        self.index = IndexState::Unusable;
        self.files.disable_index(self.next.saturating_sub(1), problem);
    }
}
