//! Index files, which tracers write beside their streams: where each packet is, so that those before the times of
//! interest need not be looked at.
//!
//! ```text
//! index/NAME.idx   magic 0xc1f1dcc1 │ major │ minor │ bytes of an entry     4 bytes each, big-endian
//!                  offset (bytes) │ size │ content (bits) │ begin │ end (cycles) │ discarded │ stream class
//!                  │ (1.1) stream │ number                                    8 bytes each, an entry for each packet
//! ```
//!
//! An index says nothing that the packets don't. It is believed as far as its entries follow each other without a gap
//! in the file, in the order of time, and the packet to which it leads, the last one that is too early, is what it says;
//! else it is told and the packets are read. Packets before which something was lost are always read.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tompion_ctf::decode::{Decoder, Packet};

use super::LATE;
use super::pieces::Files;
use super::source::{Before, Source};
use crate::Damage;
use crate::discover::Trace;
use crate::file::StreamFile;

const MAGIC: u32 = 0xc1f1_dcc1;
const HEADER: usize = 16;
/// Bytes of the least entry, that of version 1.0, and of one that has a packet's number.
const LEAST_ENTRY: usize = 56;
const NUMBERED_ENTRY: usize = 72;
/// Entries that are read at once.
const AT_ONCE: usize = 64;

/// What an index says of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Its place in the stream file.
    pub place: u64,
    /// Bytes.
    size: u64,
    /// Cycles.
    pub begin: u64,
    /// Cycles.
    pub end: u64,
    pub discarded: u64,
    /// The number of its stream class.
    stream: u64,
    pub sequence: Option<u64>,
}

impl Entry {
    /// Where the packet ends; nothing if that is nowhere.
    fn end_place(&self) -> Option<u64> {
        self.place.checked_add(self.size).filter(|_| self.size > 0)
    }

    /// Whether it is what the packet says of itself.
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

/// Where the index of a stream file is.
pub(super) fn path_of(stream: &Path) -> Option<PathBuf> {
    let mut name = stream.file_name()?.to_owned();
    name.push(".idx");
    Some(stream.parent()?.join("index").join(name))
}

/// An index that is being read.
pub(super) struct Index {
    file: File,
    /// Bytes of an entry.
    entry: usize,
    entries: u64,
}

impl Index {
    /// Opens the index of a stream file, if it has one.
    ///
    /// # Errors
    ///
    /// If it is none, with what is wrong.
    pub fn open(stream: &Path) -> Result<Option<Self>, String> {
        let Some(path) = path_of(stream) else { return Ok(None) };
        let problem = |error: io::Error| error.to_string();
        // Whatever else stands there, like a pipe, may never end.
        if !path.is_file() {
            return Ok(None);
        }
        let mut file = File::open(&path).map_err(problem)?;
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
        if magic != MAGIC || major != 1 || !(LEAST_ENTRY..=4096).contains(&entry) {
            return Err(format!(
                "expected an index of version 1, found {magic:#x}, version {major}, entries of {entry} bytes"
            ));
        }
        let entries = size.saturating_sub(HEADER as u64) / entry as u64;
        Ok(Some(Self { file, entry, entries }))
    }

    /// Reads some entries from one on.
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

    /// The number of the entry of the packet at a place, if that has one and entries are in the order of places.
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

    /// Calls a function with the entries from one on, each with the one before, until it returns something.
    ///
    /// # Errors
    ///
    /// If entries don't follow each other, with what is wrong.
    fn search<T>(
        &self,
        first: u64,
        mut visit: impl FnMut(Option<Entry>, Entry) -> Option<T>,
    ) -> Result<Option<T>, String> {
        let (mut number, mut before) = (first, None::<Entry>);
        loop {
            let entries = self.read(number, AT_ONCE)?;
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

    /// The last dull packet behind the one at a place, with the one before it; nothing if there is none but the very
    /// next one. `is_dull` says of a packet and the one before it that nothing of the former is of interest.
    ///
    /// That the packet is dull will be seen when it is read. Those before it were ended when it was begun.
    fn pass_over(
        &self,
        place: u64,
        is_dull: impl Fn(&Entry, &Entry) -> bool,
    ) -> Result<Option<(Entry, Entry)>, String> {
        let Some(first) = self.find(place)? else { return Ok(None) };
        let (mut last, mut skipped) = (None, 0);
        self.search(first, |before, entry| {
            let before = before?;
            if !is_dull(&entry, &before) {
                return Some(());
            }
            last = Some((before, entry));
            skipped += 1;
            None
        })?;
        Ok(last.filter(|_| skipped > 1))
    }

    /// When the packet of a file of this size was begun that was begun last; nothing if the index isn't of all of it.
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
    /// When the latest packet of a stream was begun, as far as all of its files have indexes that say so.
    pub(super) fn indexed_begin(&self, traces: &[Trace]) -> Option<i64> {
        let begin = |file: usize| {
            let (path, trace) = self.get(file)?;
            let (size, decoder) = (path.metadata().ok()?.len(), &traces.get(trace)?.decoder);
            self.index(file)?.latest_begin(size, decoder).unwrap_or_else(|problem| {
                self.leave_index(file, problem);
                None
            })
        };
        (0..self.count()).map(begin).try_fold(None, |latest, begin| Some(latest.max(Some(begin?))))?
    }
}

/// The index of the file that is being read, as far as it was asked for.
#[derive(Default)]
pub(super) enum Known {
    /// Nobody asked.
    #[default]
    Nothing,
    /// It is of no use, or not there.
    None,
    /// It is there.
    Index(Index),
}

/// A place to which an index led, and what to go back to if that was wrong.
pub(super) struct Jump {
    pub to: Entry,
    /// Where the packet is that would have been next.
    pub back: u64,
    pub before: Option<Before>,
}

impl Source {
    /// Passes over packets that were ended before this time, from the one on that was just begun.
    pub(super) fn pass_over_early(&mut self, from: i64) {
        // Packets that are passed over say nothing of the clock.
        let has_times = |file: &&mut StreamFile| !file.is_growing && !file.carries_clock();
        let Some(file) = self.file.as_mut().filter(has_times) else { return };
        let (Some(packet), Some(back)) = (&file.packet, file.next_place()) else { return };
        if let Known::Nothing = self.index {
            self.index = match self.files.index(self.next.saturating_sub(1)) {
                Some(index) => Known::Index(index),
                None => Known::None,
            };
        }
        let Known::Index(index) = &self.index else { return };
        let class = file.decoder.stream(packet.stream).map_or(0, |stream| stream.id);
        let is_dull = |entry: &Entry, before: &Entry| {
            let end = self.time.nanoseconds(entry.end).filter(|_| entry.end >= entry.begin);
            let next = before.sequence.map(|sequence| sequence.saturating_add(1));
            end.is_some_and(|end| end < from.saturating_sub(LATE))
                && before.end <= entry.begin
                && entry.stream == class
                && entry.discarded == before.discarded
                && (packet.sequence.is_none() || entry.sequence == next)
        };
        match index.pass_over(file.packet_start(), is_dull) {
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
            Err(problem) => self.leave_index(problem),
        }
    }

    /// Goes to the next packet of the file, or back to where an index led astray.
    pub(super) fn next_packet_of_file(&mut self) -> Result<bool, Damage> {
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
        self.leave_index(format!("expected what the index says, found another packet at byte {}", to.place));
        self.file.as_mut().map_or(Ok(false), StreamFile::next_packet)
    }

    /// Uses the file's index no more.
    fn leave_index(&mut self, problem: String) {
        self.index = Known::None;
        self.files.leave_index(self.next.saturating_sub(1), problem);
    }
}
