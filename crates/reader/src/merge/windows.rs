//! A trace in windows of time, each of which can be read without the ones before it.
//!
//! ```text
//! source 0   │ packet        │ packet        │ packet      │
//! source 1        │ packet   │ packet   │ packet      │
//! window      0            ┊ 1                     ┊ 2
//!                 └────────┘ passed over to find where window 1 begins
//! ```
//!
//! In the merged order an event stands where the latest time so far of its stream belongs. So a window that begins at
//! a time takes up each stream at its first event of this time or a later one, whatever times follow behind that.
//! Where this event is can only be guessed from the times of packets: the packet that was begun last before the time,
//! or the next one if that packet was ended before it. So a guess is believed only if the window before ended where
//! this one begins ([`Joint`]): each source at the same event, with everything that is remembered the same.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use super::pieces::Files;
use super::source::{Before, Place, Source};
use super::{Damage, LATE, Loss, Selection, TraceSet, window_size};
use crate::discover::Trace;
use crate::file::MAX_DAMAGES;

/// How much is read at once where nothing but packets' headers is of interest.
pub(super) const HEADERS: usize = 4096;
/// A window is at least so many times as large as the packets that it begins in, of which all before its beginning is
/// read in vain.
const PACKETS: u64 = 2;

/// Passed damages in one file that may come near to what is too much; two windows together don't.
const MUCH_DAMAGE: u32 = MAX_DAMAGES / 4;

/// A window of time.
pub(crate) struct Window {
    /// Its number, from 0 on.
    pub number: u64,
    /// Bytes of the packets that begin in it.
    pub bytes: u64,
    from: Option<i64>,
    until: Option<i64>,
    starts: Vec<Start>,
}

impl Window {
    /// From which time on events belong to it.
    pub fn begin(&self) -> Option<i64> {
        self.from
    }
}

/// Where to take up a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Start {
    /// Index of the file.
    pub file: usize,
    /// The packet's place in it.
    pub packet: u64,
    /// What the packet before said.
    pub before: Option<Before>,
}

/// Where sources wait at the border of two windows.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Joint(Vec<Option<Head>>);

/// The event at which a source waits.
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

/// Finds windows, by packets' headers.
pub(crate) struct Windows {
    traces: Arc<[Trace]>,
    selection: Selection,
    scans: Vec<Scan>,
    /// Times at which sources' next packets begin.
    next: BinaryHeap<Reverse<(i64, usize)>>,
    /// Bytes of the packets in which sources are.
    current: u64,
    /// The window to be found next.
    number: u64,
    from: Option<i64>,
    starts: Vec<Start>,
    is_over: bool,
}

/// A source of which only packets' headers are read.
pub(super) struct Scan {
    source: Source,
    /// Packets that are early by this need not be looked at.
    selection: Selection,
    /// The packet in which it is.
    current: Option<Packet>,
    /// The packet behind.
    next: Option<Packet>,
}

#[derive(Clone, Copy)]
struct Packet {
    start: Start,
    size: u64,
    begin: i64,
    end: Option<i64>,
    /// What it said, and in which file the next one is to be looked for.
    behind: Option<Before>,
}

/// What distinguishes a packet from others of its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Mark {
    pub begin: i64,
    end: Option<i64>,
    size: u64,
    sequence: Option<u64>,
}

impl Start {
    /// The packet's place.
    pub fn place(&self) -> Place {
        (self.file, self.packet)
    }
}

impl Scan {
    pub fn new(files: &Arc<Files>) -> Self {
        Self::of(Source::new(files.clone()))
    }

    /// From this time on, if anything knows where that is.
    fn from(files: &Arc<Files>, from: Option<i64>) -> Self {
        Self { selection: Selection { from, ..Selection::default() }, ..Self::new(files) }
    }

    /// Of a source, where it is.
    pub fn of(source: Source) -> Self {
        Self { source, selection: Selection::default(), current: None, next: None }
    }

    /// When the latest packet of a stream was begun.
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

    /// Goes to the next packet; returns when it was ended, or at least begun.
    pub fn next_time(&mut self, traces: &[Trace]) -> Option<i64> {
        self.step(traces);
        self.next.map(|next| next.end.unwrap_or(next.begin))
    }

    /// Goes to the next packet; returns what distinguishes it and where it begins.
    pub fn next_mark(&mut self, traces: &[Trace]) -> Option<(Mark, u64)> {
        self.step(traces);
        let next = self.next?;
        let sequence = next.behind.and_then(|behind| behind.sequence);
        let mark = Mark { begin: next.begin, end: next.end, size: next.size, sequence };
        Some((mark, next.start.packet))
    }

    /// Where the next packet is, and its size in bytes.
    pub fn ahead(&self) -> Option<(Start, u64)> {
        self.next.map(|next| (next.start, next.size))
    }

    /// Beginning, end and bytes of the packet to which [`Self::next_time`] went.
    pub fn summary(&self) -> Option<(Option<i64>, Option<i64>, u64)> {
        let next = self.next?;
        Some((Some(next.begin).filter(|&begin| begin > i64::MIN), next.end, next.size))
    }

    /// The trace of the file that is being read.
    pub fn trace(&self) -> usize {
        self.source.trace
    }

    /// The CPU of its packets, if they say one.
    pub fn cpu(&self) -> Option<u64> {
        self.source.file.as_ref().and_then(|file| file.cpu)
    }

    /// Goes to the next packet.
    pub fn step(&mut self, traces: &[Trace]) {
        self.current = self.next.take();
        let source = &mut self.source;
        let (mut losses, mut damages): (Vec<Loss>, Vec<Damage>) = (Vec::new(), Vec::new());
        loop {
            if source.file.is_none() && !source.open_next(traces, HEADERS, &mut damages) {
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

    /// Where to begin with events of this time.
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
    /// The packet that was just begun.
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

    /// Goes to a packet.
    pub fn take_up(&mut self, start: &Start, set: (&[Trace], usize), damages: &mut Vec<Damage>) {
        self.next = start.file;
        self.before = start.before;
        if self.open_next(set.0, set.1, damages) && self.next == start.file + 1 {
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
    /// Before anything of the set was read.
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

    /// The next window, of at least so many bytes if the trace has them. Nothing behind the last one.
    pub fn next(&mut self, bytes: u64) -> Option<Window> {
        if self.is_over {
            return None;
        }
        let starts = std::mem::take(&mut self.starts);
        let mut window = Window { number: self.number, bytes: 0, from: self.from, until: None, starts };
        self.number += 1;
        while let Some(&Reverse((begin, index))) = self.next.peek() {
            // What is lost at the beginning of a small first window is little.
            let least = if window.number == 0 { 0 } else { self.current.saturating_mul(PACKETS) };
            let is_full = window.bytes >= bytes.max(least);
            if is_full && self.is_border(begin) {
                // A packet is often begun in the very moment in which the one before it was ended.
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

    /// Whether a window may end with this time: later than the one before it, and among events that are selected.
    fn is_border(&self, time: i64) -> bool {
        let is_later = self.from.is_none_or(|from| time >= from) && time > i64::MIN;
        let selected = &self.selection;
        is_later
            && selected.from.is_none_or(|from| time >= from)
            && selected.to.is_none_or(|to| time <= to.saturating_add(LATE))
    }
}

impl TraceSet {
    /// Whether nothing was read so far.
    pub(crate) fn is_new(&self) -> bool {
        !self.started
    }

    /// Bytes of all streams, about.
    pub(crate) fn size(&self) -> u64 {
        self.sources.iter().map(|source| source.files.size()).sum()
    }

    /// The same traces, to be read in this window alone. `readers` is how many of these there are at a time; `room` is
    /// used for what is read, as far as it goes.
    pub(crate) fn take_up(&self, window: &Window, readers: usize, room: &mut Vec<Vec<u8>>) -> Self {
        let mut part = self.unread();
        part.window = window_size(part.sources.len().saturating_mul(readers));
        for source in &mut part.sources {
            // Text is kept from packet to packet by their numbers.
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
            source.take_up(start, (&part.traces, part.window), &mut part.damages);
            if let Some((file, buffer)) = source.file.as_mut().zip(room.pop()) {
                file.use_buffer(buffer);
            }
            if let Some(time) = part.pass_by(index, from) {
                part.heap.push(Reverse((time, index as u32)));
            }
        }
        // All that was found so far is found by those who read what is before.
        part.damages.clear();
        part.losses.clear();
        for source in &mut part.sources {
            source.disorder = None;
            source.file.iter_mut().for_each(|file| file.damages = 0);
        }
        part.most_damages = MUCH_DAMAGE as usize;
        part
    }

    /// Moves a source to its first selected event of this time or a later one; returns that event's time.
    fn pass_by(&mut self, index: usize, from: i64) -> Option<i64> {
        let mut time = self.advance(index)?;
        while time < from {
            if let Some(Err(damage)) =
                self.sources.get_mut(index)?.file.as_mut().map(|file| file.finish_event(false))
            {
                self.pass_over(index, damage);
            }
            time = self.advance(index)?;
        }
        Some(time)
    }

    /// The room of what is in memory, which is read again if that is necessary.
    pub(crate) fn take_room(&mut self) -> Vec<Vec<u8>> {
        self.sources.iter_mut().filter_map(|source| Some(source.file.as_mut()?.take_buffer())).collect()
    }

    /// Where the sources wait.
    pub(crate) fn joint(&self) -> Joint {
        Joint(self.sources.iter().map(Source::head).collect())
    }

    /// Goes on to the end of another window, or to the end.
    pub(crate) fn extend(&mut self, window: Option<&Window>) {
        self.until = window.and_then(|window| window.until);
        self.resume();
    }

    /// Goes on whatever the damage.
    pub(crate) fn resume(&mut self) {
        self.most_damages = usize::MAX;
        self.is_halted = false;
    }

    /// Whether so much of a file is damaged that its rest may have to be left, which nobody can tell who has not read
    /// all that is before.
    pub(crate) fn is_much_damaged(&self) -> bool {
        let damages = |source: &Source| source.file.as_ref().map_or(0, |file| file.damages);
        self.sources.iter().any(|source| damages(source) > MUCH_DAMAGE)
    }

    /// Takes over what is to be remembered of the window before.
    pub(crate) fn follow(&mut self, before: &Self) {
        for (source, before) in self.sources.iter_mut().zip(&before.sources) {
            let Some(damages) = before.file.as_ref().map(|file| file.damages) else { continue };
            if let Some(file) = source.file.as_mut().filter(|_| source.next == before.next) {
                file.damages += damages;
            }
        }
    }

    /// The same, not read so far.
    pub(crate) fn unread(&self) -> Self {
        let sources = self.sources.iter().map(|source| Source::new(source.files.clone())).collect();
        self.part(sources)
    }

    /// Leaves nothing to read.
    pub(crate) fn leave(&mut self) {
        self.started = true;
        self.heap.clear();
        self.given = false;
    }

    /// Adds what was found in a window to what was found in those before; the window can be extended afterwards.
    pub(crate) fn take_findings(&mut self, window: &mut Self) {
        self.damages.append(&mut window.damages);
        self.losses.append(&mut window.losses);
        for (all, found) in self.sources.iter_mut().zip(&mut window.sources) {
            if let Some(found) = found.disorder.take() {
                found.add_to(&mut all.disorder);
            }
        }
    }
}
