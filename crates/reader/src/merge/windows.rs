//! Splits a trace into windows of time, each of which can be read without its predecessors.
//!
//! ```text
//! source 0   │ packet        │ packet        │ packet      │
//! source 1        │ packet   │ packet   │ packet      │
//! window      0            ┊ 1                     ┊ 2
//!                 └────────┘ passed over to find where window 1 begins
//! ```
//!
//! In the merged order, an event is placed at the latest time so far of its stream. A window
//! therefore starts each stream at the first event of its begin time or later, whatever times
//! follow.
//!
//! The position of this event can only be guessed from the times of packets. It is in the packet
//! that began last before the time, or in the next one if that packet ended before. The guess is
//! accepted only if the preceding window ended exactly where this one begins ([`SplicePoint`]):
//! each source is at the same event, with the same state.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use super::pieces::Files;
use super::source::{Before, Place, Source};
use super::{Corruption, Loss, PACKET_END_SLACK_NS, Selection, TraceSet, window_size};
use crate::discover::Trace;
use crate::file::MAX_CORRUPTIONS;

/// Number of bytes read at once where only packet headers matter.
pub(super) const HEADERS: usize = 4096;
/// Minimum ratio of a window's size to the packets in which it begins. The part of these packets
/// before the window is read and discarded.
const PACKETS: u64 = 2;

/// Number of skipped corruptions in one file above which speculation stops. Two windows together
/// stay below the limit of a file.
const SPECULATION_MAX_CORRUPTIONS: u32 = MAX_CORRUPTIONS / 4;

/// Window of time.
pub(crate) struct Window {
    /// Number of the window, from 0 on.
    pub number: u64,
    /// Total size of the packets that begin in it.
    pub bytes: u64,
    from: Option<i64>,
    until: Option<i64>,
    starts: Vec<Start>,
}

impl Window {
    /// Returns the time from which on events belong to the window.
    pub fn begin(&self) -> Option<i64> {
        self.from
    }
}

/// Position at which a source starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Start {
    /// Index of the file.
    pub file: usize,
    /// Position of the packet in the file.
    pub packet: u64,
    /// State after the preceding packet.
    pub before: Option<Before>,
}

/// Positions of all sources at the border between two windows.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SplicePoint(Vec<Option<Head>>);

/// Event at which a source waits.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    file: usize,
    packet: u64,
    bit: u64,
    cycles: u64,
    timestamp: Option<i64>,
    latest: i64,
    before: Option<Before>,
}

/// Iterator that finds windows by packet headers.
pub(crate) struct Windows {
    traces: Arc<[Trace]>,
    selection: Selection,
    scans: Vec<Scan>,
    /// Begin times of the sources' next packets.
    next: BinaryHeap<Reverse<(i64, usize)>>,
    /// Total size of the sources' current packets.
    current: u64,
    /// Number of the next window.
    number: u64,
    from: Option<i64>,
    starts: Vec<Start>,
    is_over: bool,
}

/// Source of which only packet headers are read.
pub(super) struct Scan {
    source: Source,
    /// Start time before which packets need not be read.
    selection: Selection,
    /// Current packet.
    current: Option<Packet>,
    /// Following packet.
    next: Option<Packet>,
}

#[derive(Clone, Copy)]
struct Packet {
    start: Start,
    size: u64,
    begin: i64,
    end: Option<i64>,
    /// State that the following packet depends on.
    behind: Option<Before>,
}

/// Properties that distinguish a packet from others of its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Mark {
    pub begin: i64,
    end: Option<i64>,
    size: u64,
    sequence: Option<u64>,
}

impl Start {
    /// Returns the position of the packet.
    pub fn place(&self) -> Place {
        (self.file, self.packet)
    }
}

impl Scan {
    pub fn new(files: &Arc<Files>) -> Self {
        Self::of(Source::new(files.clone()))
    }

    /// Scans from this time on, if an index gives its position.
    fn from(files: &Arc<Files>, from: Option<i64>) -> Self {
        Self { selection: Selection { from, ..Selection::default() }, ..Self::new(files) }
    }

    /// Scans a source from its current position.
    pub fn of(mut source: Source) -> Self {
        source.reads_headers_only = true;
        Self { source, selection: Selection::default(), current: None, next: None }
    }

    /// Returns the latest begin time among the packets of a stream.
    pub fn latest_begin(files: &Arc<Files>, traces: &[Trace]) -> Option<i64> {
        let mut scan = Self::new(files);
        let mut latest = None;
        scan.step(traces);
        while let Some(next) = scan.next {
            latest = latest.max(Some(next.begin));
            scan.step(traces);
        }
        latest
    }

    /// Moves to the next packet; returns its end time, or its begin time if it has no end.
    pub fn next_time(&mut self, traces: &[Trace]) -> Option<i64> {
        self.step(traces);
        self.next.map(|next| next.end.unwrap_or(next.begin))
    }

    /// Moves to the next packet; returns its distinguishing properties and its position.
    pub fn next_mark(&mut self, traces: &[Trace]) -> Option<(Mark, u64)> {
        self.step(traces);
        let next = self.next?;
        let sequence = next.behind.and_then(|behind| behind.sequence);
        let mark = Mark { begin: next.begin, end: next.end, size: next.size, sequence };
        Some((mark, next.start.packet))
    }

    /// Returns the position of the next packet and its size in bytes.
    pub fn peek(&self) -> Option<(Start, u64)> {
        self.next.map(|next| (next.start, next.size))
    }

    /// Returns begin, end and size of the packet that [`Self::next_time`] reached.
    pub fn summary(&self) -> Option<(Option<i64>, Option<i64>, u64)> {
        let next = self.next?;
        Some((Some(next.begin).filter(|&begin| begin > i64::MIN), next.end, next.size))
    }

    /// Returns the trace of the file that is being read.
    pub fn trace(&self) -> usize {
        self.source.trace
    }

    /// Returns the sequence number of the packet, if it states one.
    pub fn sequence(&self) -> Option<u64> {
        self.source.file.as_ref()?.packet.as_ref()?.sequence
    }

    /// Returns the CPU of the packets, if they state one.
    pub fn cpu(&self) -> Option<u64> {
        self.source.file.as_ref().and_then(|file| file.cpu)
    }

    /// Moves to the next packet.
    pub fn step(&mut self, traces: &[Trace]) {
        self.current = self.next.take();
        let source = &mut self.source;
        let (mut losses, mut corruptions): (Vec<Loss>, Vec<Corruption>) = (Vec::new(), Vec::new());
        loop {
            if source.file.is_none() && !source.open_next(traces, HEADERS, &mut corruptions) {
                return;
            }
            source.end_packet();
            let before = source.before;
            let is_sound = match source.next_packet(&self.selection, &mut losses) {
                Ok(true) => {
                    self.next = source.scanned(before);
                    if self.next.is_some() {
                        return;
                    }
                    false
                }
                Ok(false) => false,
                Err(_) => source.file.as_mut().is_some_and(|file| matches!(file.recover(), Ok(true))),
            };
            if !is_sound {
                source.file = None;
            }
        }
    }

    /// Returns the position at which to start for events of this time.
    fn start(&self, from: i64) -> Start {
        let Some(current) = self.current else {
            return self.next.map_or(Start::default(), |next| next.start);
        };
        if current.end.is_none_or(|end| end >= from) {
            return current.start;
        }
        let behind = Start { file: usize::MAX, packet: 0, before: current.behind };
        self.next.map_or(behind, |next| next.start)
    }
}

impl Source {
    /// Returns the packet that was just begun.
    fn scanned(&mut self, before: Option<Before>) -> Option<Packet> {
        let file = self.file.as_mut()?;
        let begin = match file.packet.as_ref()?.begin {
            Some(cycles) => self.time.nanoseconds(cycles),
            None => {
                let has_event = matches!(file.next_header(), Ok(true));
                has_event.then(|| self.time.nanoseconds(file.decoder.cycles(&file.state))).flatten()
            }
        };
        Some(Packet {
            start: Start { file: self.next - 1, packet: file.packet_start(), before },
            size: file.packet_size(),
            begin: begin.unwrap_or(i64::MIN),
            end: self.before.and_then(|before| before.end),
            behind: self.before,
        })
    }

    /// Moves to the packet at a start position.
    pub fn take_up(&mut self, start: &Start, set: (&[Trace], usize), corruptions: &mut Vec<Corruption>) {
        self.next = start.file;
        self.before = start.before;
        if self.open_next(set.0, set.1, corruptions) && self.next == start.file + 1 {
            self.file.iter_mut().for_each(|file| file.go_to(start.packet));
        }
    }

    fn head(&self) -> Option<Head> {
        let file = self.file.as_ref()?;
        Some(Head {
            file: self.next,
            packet: file.packet_start(),
            bit: file.bit(),
            cycles: file.decoder.cycles(&file.state),
            timestamp: self.timestamp,
            latest: self.latest,
            before: self.before,
        })
    }
}

impl Windows {
    /// Starts before the first event of a set of which nothing was read.
    pub fn new(set: &TraceSet) -> Self {
        let mut windows = Self {
            traces: set.traces.clone(),
            selection: set.selection.clone(),
            scans: set.sources.iter().map(|source| Scan::from(&source.files, set.selection.from)).collect(),
            next: BinaryHeap::new(),
            current: 0,
            number: 0,
            from: None,
            starts: vec![Start::default(); set.sources.len()],
            is_over: false,
        };
        for index in 0..windows.scans.len() {
            windows.step(index);
        }
        windows
    }

    fn step(&mut self, index: usize) {
        let Some(scan) = self.scans.get_mut(index) else { return };
        self.current -= scan.current.map_or(0, |packet| packet.size);
        scan.step(&self.traces);
        self.current += scan.current.map_or(0, |packet| packet.size);
        if let Some(next) = &scan.next {
            self.next.push(Reverse((next.begin, index)));
        }
    }

    /// Returns the next window, of at least this many bytes if the trace has them; `None` behind
    /// the last one.
    pub fn next(&mut self, bytes: u64) -> Option<Window> {
        if self.is_over {
            return None;
        }
        let starts = std::mem::take(&mut self.starts);
        let mut window = Window { number: self.number, bytes: 0, from: self.from, until: None, starts };
        self.number += 1;
        while let Some(&Reverse((begin, index))) = self.next.peek() {
            // A small first window wastes little at its beginning.
            let least = if window.number == 0 { 0 } else { self.current.saturating_mul(PACKETS) };
            let is_full = window.bytes >= bytes.max(least);
            if is_full && self.is_border(begin) {
                // A packet often begins at the very time at which its predecessor ended.
                let border = begin.saturating_add(1);
                (window.until, self.from) = (Some(border), Some(border));
                self.starts = self.scans.iter().map(|scan| scan.start(border)).collect();
                return Some(window);
            }
            self.next.pop();
            self.step(index);
            let entered = self.scans.get(index).and_then(|scan| scan.current);
            window.bytes = window.bytes.saturating_add(entered.map_or(0, |packet| packet.size));
        }
        self.is_over = true;
        Some(window)
    }

    /// Whether a window may end at this time: after the previous border, and among selected events.
    fn is_border(&self, time: i64) -> bool {
        let is_later = self.from.is_none_or(|from| time >= from) && time > i64::MIN;
        let selected = &self.selection;
        is_later
            && selected.from.is_none_or(|from| time >= from)
            && selected.to.is_none_or(|to| time <= to.saturating_add(PACKET_END_SLACK_NS))
    }
}

impl TraceSet {
    /// Whether nothing was read so far.
    pub(crate) fn is_new(&self) -> bool {
        !self.started
    }

    /// Returns the approximate size of all streams in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.sources.iter().map(|source| source.files.size()).sum()
    }

    /// Returns the same traces, restricted to this window. `readers` is the number of windows that
    /// are read at the same time. The buffers in `room` are reused as far as they go.
    pub(crate) fn take_up(&self, window: &Window, readers: usize, room: &mut Vec<Vec<u8>>) -> Self {
        let mut part = self.unread();
        part.window = window_size(part.sources.len().saturating_mul(readers));
        for source in &mut part.sources {
            // Text output caches parts by packet number, so numbers must differ between windows.
            source.packets = window.number << 32;
        }
        part.until = window.until;
        let Some(from) = window.from else {
            part.start();
            return part;
        };
        part.started = true;
        for (index, start) in window.starts.iter().enumerate() {
            let Some(source) = part.sources.get_mut(index) else { break };
            source.take_up(start, (&part.traces, part.window), &mut part.corruptions);
            if let Some((file, buffer)) = source.file.as_mut().zip(room.pop()) {
                file.use_buffer(buffer);
            }
            if let Some(time) = part.pass_by(index, from) {
                part.heap.push(Reverse((time, index as u32)));
            }
        }
        // Findings up to here are reported by the reader of the preceding window.
        part.corruptions.clear();
        part.losses.clear();
        for source in &mut part.sources {
            source.regression = None;
            source.file.iter_mut().for_each(|file| file.corruptions = 0);
        }
        part.max_corruptions = SPECULATION_MAX_CORRUPTIONS as usize;
        part
    }

    /// Moves a source to its first selected event of this time or later; returns that event's time.
    fn pass_by(&mut self, index: usize, from: i64) -> Option<i64> {
        let mut time = self.advance(index)?;
        while time < from {
            if let Some(Err(corruption)) =
                self.sources.get_mut(index)?.file.as_mut().map(|file| file.finish_event(false))
            {
                self.pass_over(index, corruption);
            }
            time = self.advance(index)?;
        }
        Some(time)
    }

    /// Returns the buffers of all sources for reuse. Their content is read again if necessary.
    pub(crate) fn take_room(&mut self) -> Vec<Vec<u8>> {
        self.sources.iter_mut().filter_map(|source| Some(source.file.as_mut()?.take_buffer())).collect()
    }

    /// Returns the positions of the sources.
    pub(crate) fn splice_point(&self) -> SplicePoint {
        SplicePoint(self.sources.iter().map(Source::head).collect())
    }

    /// Continues to the end of another window, or to the end of the trace.
    pub(crate) fn extend(&mut self, window: Option<&Window>) {
        self.until = window.and_then(|window| window.until);
        self.resume();
    }

    /// Continues whatever the number of corruptions.
    pub(crate) fn resume(&mut self) {
        self.max_corruptions = usize::MAX;
        self.is_halted = false;
    }

    /// Whether so much of a file is corrupt that its rest may have to be skipped. Only a reader
    /// that has read everything before can decide that.
    pub(crate) fn is_too_corrupt(&self) -> bool {
        let corruptions = |source: &Source| source.file.as_ref().map_or(0, |file| file.corruptions);
        self.sources.iter().any(|source| corruptions(source) > SPECULATION_MAX_CORRUPTIONS)
    }

    /// Takes over the counts of the preceding window.
    pub(crate) fn follow(&mut self, before: &Self) {
        for (source, before) in self.sources.iter_mut().zip(&before.sources) {
            let Some(corruptions) = before.file.as_ref().map(|file| file.corruptions) else { continue };
            if let Some(file) = source.file.as_mut().filter(|_| source.next == before.next) {
                file.corruptions += corruptions;
            }
        }
    }

    /// Returns the same traces, unread.
    pub(crate) fn unread(&self) -> Self {
        let sources = self.sources.iter().map(|source| Source::new(source.files.clone())).collect();
        self.part(sources)
    }

    /// Marks everything as read.
    pub(crate) fn leave(&mut self) {
        self.started = true;
        self.heap.clear();
        self.given = false;
    }

    /// Adds the findings of a window to those of its predecessors; the window can be extended
    /// afterwards.
    pub(crate) fn take_findings(&mut self, window: &mut Self) {
        self.corruptions.append(&mut window.corruptions);
        self.losses.append(&mut window.losses);
        for (all, found) in self.sources.iter_mut().zip(&mut window.sources) {
            if let Some(found) = found.regression.take() {
                found.add_to(&mut all.regression);
            }
        }
    }
}
