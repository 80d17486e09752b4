//! One data stream: its files, one after the other, and how far they have been read.

use std::sync::Arc;

use tompion_ctf::decode::Packet;
use tompion_ctf::metadata::Clock;

use super::index::{Jump, Known};
use super::pieces::Files;
use super::{Disorder, LATE, Loss, LossKind, Selection};
use crate::Damage;
use crate::discover::Trace;
use crate::file::StreamFile;

/// A stream's files, and how far they have been read.
pub(super) struct Source {
    pub files: Arc<Files>,
    /// Index of the next file to open.
    pub next: usize,
    pub trace: usize,
    pub file: Option<StreamFile>,
    pub time: TimeBase,
    /// Time of the event that waits.
    pub timestamp: Option<i64>,
    /// Time of the latest event so far.
    pub latest: i64,
    /// The time by which the event that waits is put among those of others.
    pub order: i64,
    /// Up to which time nothing in the packet looks odd.
    sound: i64,
    /// Whether the packet is known to be damaged somewhere.
    is_damaged: bool,
    /// What was found of events that are not in the order of time.
    pub disorder: Option<Disorder>,
    /// What the packet that was begun last said.
    pub before: Option<Before>,
    /// How many packets were begun.
    pub packets: u64,
    /// Whether its files are being written.
    pub is_growing: bool,
    /// The file that was read last, and the byte up to which.
    pub end: Option<Place>,
    /// Where the part of the stream ends that is to be read: before this packet.
    pub limit: Option<Place>,
    /// The file's index.
    pub index: Known,
    /// Where it led last, until it is known whether that was right.
    pub jump: Option<Jump>,
}

/// A packet's place in a stream: the index of its file, and its first byte in it.
pub(super) type Place = (usize, u64);

/// What is remembered of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Before {
    /// The clock's value behind the packet, from which the next one may go on; until all of it was read, that at its
    /// beginning.
    pub clock: u64,
    pub discarded: Option<u64>,
    pub sequence: Option<u64>,
    pub end: Option<i64>,
}

/// From a clock's cycles to nanoseconds, quickly where a cycle is a nanosecond.
pub(super) enum TimeBase {
    None,
    Nanoseconds(i64),
    Clock(Clock),
}

impl TimeBase {
    pub fn new(clock: Option<&Clock>) -> Self {
        match clock {
            None => Self::None,
            Some(clock) if clock.frequency == 1_000_000_000 => Self::Nanoseconds(clock.to_nanoseconds(0)),
            Some(clock) => Self::Clock(clock.clone()),
        }
    }

    #[inline]
    pub fn nanoseconds(&self, cycles: u64) -> Option<i64> {
        match self {
            Self::None => None,
            Self::Nanoseconds(offset) => Some(offset.saturating_add_unsigned(cycles)),
            Self::Clock(clock) => Some(clock.to_nanoseconds(cycles)),
        }
    }
}

impl Source {
    /// At the beginning of a stream.
    pub fn new(files: Arc<Files>) -> Self {
        let trace = files.get(0).map_or(0, |(_, trace)| trace);
        Self {
            files,
            next: 0,
            trace,
            file: None,
            time: TimeBase::None,
            timestamp: None,
            latest: i64::MIN,
            order: i64::MIN,
            sound: i64::MAX,
            is_damaged: false,
            disorder: None,
            before: None,
            packets: 0,
            is_growing: false,
            end: None,
            limit: None,
            index: Known::default(),
            jump: None,
        }
    }

    /// The time by which an event of this time is put among those of others. It is remembered as the latest one.
    #[inline]
    pub fn order(&mut self, time: i64, window: usize) -> i64 {
        if time > self.sound && self.is_odd(window) {
            return self.order;
        }
        if time < self.latest {
            self.step_back();
        }
        self.latest = self.latest.max(time);
        time
    }

    /// Whether times in the packet that lie far behind its end mean nothing, for there is damage in it. Without damage
    /// the end is wrong.
    #[cold]
    fn is_odd(&mut self, window: usize) -> bool {
        if !self.is_damaged {
            self.is_damaged = self.find_damage(window).unwrap_or(false);
            self.sound = if self.is_damaged { self.sound } else { i64::MAX };
        }
        self.is_damaged
    }

    /// Whether the packet is damaged anywhere.
    fn find_damage(&self, window: usize) -> Option<bool> {
        let file = self.file.as_ref()?;
        let opened = self.files.open(self.next.checked_sub(1)?, &file.path).ok()?;
        let mut ahead = StreamFile::new(file.path.clone(), opened, file.decoder.clone(), window).ok()?;
        ahead.go_to(file.packet_start());
        let mut step = ahead.next_packet().and_then(|_| ahead.next_header());
        while let Ok(true) = step {
            step = ahead.finish_event(false).and_then(|()| ahead.next_header());
        }
        Some(step.is_err())
    }

    /// Remembers that the event whose header was decoded last happened before one that stands before it.
    #[cold]
    pub fn step_back(&mut self) {
        let (Some(file), Some(time)) = (&self.file, self.timestamp) else { return };
        let back = self.latest.saturating_sub(time);
        let found = Disorder { path: file.path.clone(), offset: file.offset(), events: 1, back };
        found.add_to(&mut self.disorder);
    }

    /// Opens the next of its files that can be opened; false if there is none.
    pub fn open_next(&mut self, traces: &[Trace], window: usize, damages: &mut Vec<Damage>) -> bool {
        while let Some(piece) = self.files.piece(self.next) {
            let (path, trace) = (&piece.path, piece.trace);
            let index = self.next;
            if self.limit.is_some_and(|limit| limit <= (index, 0)) {
                // The end of a file is the beginning of the next one.
                self.end = self.end.max(self.limit);
                return false;
            }
            self.next += 1;
            let Some(decoder) = traces.get(trace).map(|trace| trace.decoder.clone()) else { continue };
            let opened = self.files.open(index, path);
            match opened.and_then(|file| StreamFile::new(path.clone(), file, decoder, window)) {
                Ok(mut file) => {
                    file.narrow(piece.from, piece.to);
                    file.is_growing = self.is_growing;
                    self.trace = trace;
                    self.file = Some(file);
                    (self.index, self.jump) = (Known::default(), None);
                    return true;
                }
                Err(error) => {
                    damages.push(Damage { path: path.clone(), offset: None, message: error.to_string() });
                }
            }
        }
        false
    }

    /// Leaves the packet, if there is one, as far as the next one doesn't depend on it.
    pub fn end_packet(&mut self) {
        let Some((file, before)) = self.file.as_mut().zip(self.before.as_mut()) else { return };
        if file.carries_clock() {
            file.leave_packet();
            before.clock = file.state.clock();
        }
    }

    /// Goes to the next packet and counts what was lost before it.
    pub fn next_packet(&mut self, selection: &Selection, losses: &mut Vec<Loss>) -> Result<bool, Damage> {
        self.end_packet();
        let Some(file) = &mut self.file else { return Ok(false) };
        file.state.set_clock(self.before.map_or(0, |before| before.clock));
        if let Some((limit, place)) = self.limit.zip(file.next_place()) {
            let next = (self.next.saturating_sub(1), place);
            if limit <= next {
                self.end = Some(next);
                return Ok(false);
            }
        }
        if !self.next_packet_of_file()? {
            let Some(file) = &self.file else { return Ok(false) };
            self.end = Some((self.next.saturating_sub(1), file.packet_start()));
            return Ok(false);
        }
        let Some(file) = &mut self.file else { return Ok(false) };
        self.packets += 1;
        file.packets = self.packets;
        let stream = file.stream();
        self.time = TimeBase::new(file.decoder.clock(stream));
        self.count_losses(losses);
        let end = self.before.and_then(|before| before.end);
        if let (Some(end), Some(from)) = (end, selection.from) {
            if end < from.saturating_sub(LATE) {
                self.file.iter_mut().for_each(StreamFile::leave_packet);
                self.pass_over_early(from);
            }
        }
        Ok(true)
    }

    fn count_losses(&mut self, losses: &mut Vec<Loss>) {
        let Some(file) = &self.file else { return };
        let Some(packet) = &file.packet else { return };
        let nanoseconds = |cycles: Option<u64>| cycles.and_then(|cycles| self.time.nanoseconds(cycles));
        let (begin, end) = (nanoseconds(packet.begin), nanoseconds(packet.end));
        let class = file.decoder.stream(packet.stream).map_or(0, |stream| stream.id);
        let cpu = file.cpu;
        // Where a tracer had no time left to end the packet, there is no end, or one before the beginning.
        let end = end.filter(|&end| begin.is_none_or(|begin| end >= begin));
        let mut lose = |kind, count, to| {
            if count > 0 {
                losses.push(Loss {
                    kind,
                    count,
                    between: (self.before.and_then(|before| before.end).or(begin), to),
                    trace: self.trace,
                    path: file.path.clone(),
                    stream_class: class,
                    stream: packet.instance,
                    cpu,
                });
            }
        };
        lose(LossKind::Packets, missing_packets(self.before, packet), begin);
        let (kind, count) = discarded_events(self.before, packet);
        lose(kind, count, end.or(begin));
        self.sound = end.map_or(i64::MAX, |end| end.saturating_add(LATE));
        self.is_damaged = false;
        let clock = file.state.clock();
        self.before = Some(Before { clock, discarded: packet.discarded, sequence: packet.sequence, end });
    }
}

/// Packets between the one before and this one.
fn missing_packets(before: Option<Before>, packet: &Packet) -> u64 {
    match (before.and_then(|before| before.sequence), packet.sequence) {
        (Some(before), Some(now)) => now.saturating_sub(before).saturating_sub(1),
        _ => 0,
    }
}

/// Events discarded since the packet before. A counter that went back was begun anew.
///
/// The counter of a stream's first packet counts since the stream was begun. Unless that is where the packet is, nobody
/// knows when that was: of a flight recorder's snapshot, or one of the files that a stream was cut into.
fn discarded_events(before: Option<Before>, packet: &Packet) -> (LossKind, u64) {
    let now = packet.discarded.unwrap_or(0);
    match before.and_then(|before| before.discarded) {
        Some(before) => (LossKind::Events, now.checked_sub(before).unwrap_or(now)),
        None if packet.sequence == Some(0) => (LossKind::Events, now),
        None => (LossKind::EventsAtMost, now),
    }
}
