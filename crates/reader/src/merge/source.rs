//! One data stream: its files, one after the other, and the position of its reader.

use std::io;
use std::path::Path;
use std::sync::Arc;

use tompion_ctf::decode::Packet;
use tompion_ctf::metadata::Clock;

use super::growing::Followed;
use super::index::{IndexState, Jump};
use super::pieces::Files;
use super::{Loss, LossKind, PACKET_END_SLACK_NS, Selection, TimestampRegression};
use crate::Corruption;
use crate::discover::Trace;
use crate::file::StreamFile;

/// Maximum number of discarded events in a time that is unknown.
const MAX_DISCARDED: u64 = 1 << 62;
/// Tolerance in nanoseconds for the times between which events were discarded.
const CLOCK_SLACK_NS: u64 = 1_000_000_000;

/// Files of a stream and the position of its reader.
pub(super) struct Source {
    pub files: Arc<Files>,
    /// Index of the next file to open.
    pub next: usize,
    pub trace: usize,
    pub file: Option<StreamFile>,
    pub time: TimeBase,
    /// Time of the pending event.
    pub timestamp: Option<i64>,
    /// Time of the latest event so far.
    pub latest: i64,
    /// Time by which the pending event is merged with those of other sources.
    pub order: i64,
    /// Time up to which events of the packet are plausible.
    plausible_until: i64,
    /// Whether the packet is known to be corrupt somewhere.
    is_corrupt: bool,
    /// Timestamp regressions found so far.
    pub regression: Option<TimestampRegression>,
    /// Properties of the packet that was begun last.
    pub before: Option<Before>,
    /// Number of packets begun.
    pub packets: u64,
    /// Whether the files are still being written.
    pub is_growing: bool,
    /// Positions up to which it was read before, if the files are read again and again.
    pub followed: Option<Box<Followed>>,
    /// Whether only packet headers are read, so that packets are not checked.
    pub reads_headers_only: bool,
    /// File that was read last, and position up to which it was read.
    pub end: Option<Place>,
    /// Packet before which reading stops, if only a part of the stream is read.
    pub limit: Option<Place>,
    /// Index of the file.
    pub index: IndexState,
    /// Last jump by the index, until the target is verified.
    pub jump: Option<Jump>,
}

/// Position of a packet in a stream: the index of its file, and its first byte in it.
pub(super) type Place = (usize, u64);

/// Properties of a packet that its successor depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Before {
    /// Clock value behind the packet, from which the next one may continue. Until all of the packet
    /// was read, it is the value at its beginning.
    pub clock: u64,
    pub discarded: Option<u64>,
    pub sequence: Option<u64>,
    pub end: Option<i64>,
}

/// Conversion of a clock's cycles to nanoseconds, fast where a cycle is a nanosecond.
pub(super) enum TimeBase {
    None,
    Nanoseconds(i64),
    Clock(Box<Clock>),
}

impl TimeBase {
    pub fn new(clock: Option<&Clock>) -> Self {
        match clock {
            None => Self::None,
            Some(clock) if clock.frequency == 1_000_000_000 => Self::Nanoseconds(clock.to_nanoseconds(0)),
            Some(clock) => Self::Clock(Box::new(clock.clone())),
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
    /// Creates a source at the beginning of a stream.
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
            plausible_until: i64::MAX,
            is_corrupt: false,
            regression: None,
            before: None,
            packets: 0,
            is_growing: false,
            followed: None,
            reads_headers_only: false,
            end: None,
            limit: None,
            index: IndexState::default(),
            jump: None,
        }
    }

    /// Returns the time by which an event is merged with those of other sources. It is stored as
    /// the latest time.
    #[inline]
    pub fn order(&mut self, time: i64, window: usize) -> i64 {
        if time > self.plausible_until && self.has_meaningless_times(window) {
            return self.order;
        }
        if time < self.latest {
            self.step_back();
        }
        self.latest = self.latest.max(time);
        time
    }

    /// Whether times far behind the packet's end are meaningless, because the packet is corrupt.
    /// Without corruption, the end is wrong.
    #[cold]
    fn has_meaningless_times(&mut self, window: usize) -> bool {
        if !self.is_corrupt {
            self.is_corrupt = self.has_corruption(window).unwrap_or(false);
            self.plausible_until = if self.is_corrupt { self.plausible_until } else { i64::MAX };
        }
        self.is_corrupt
    }

    /// Whether the packet is corrupt anywhere.
    fn has_corruption(&self, window: usize) -> Option<bool> {
        let file = self.file.as_ref()?;
        let opened = self.files.open(self.next.checked_sub(1)?, &file.path).ok()?;
        let mut probe = StreamFile::new(file.path.clone(), opened, file.decoder.clone(), window).ok()?;
        probe.go_to(file.packet_start());
        let mut step = probe.next_packet().and_then(|_| probe.next_header());
        while let Ok(true) = step {
            step = probe.finish_event(false).and_then(|()| probe.next_header());
        }
        Some(step.is_err())
    }

    /// Records that the event whose header was decoded last is older than a predecessor.
    #[cold]
    pub fn step_back(&mut self) {
        let (Some(file), Some(time)) = (&self.file, self.timestamp) else { return };
        let back = self.latest.saturating_sub(time);
        let found = TimestampRegression { path: file.path.clone(), offset: file.offset(), events: 1, back };
        found.add_to(&mut self.regression);
    }

    /// Opens the next file that can be opened; returns false if there is none.
    pub fn open_next(&mut self, traces: &[Trace], window: usize, corruptions: &mut Vec<Corruption>) -> bool {
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
                    if piece.to.is_none() {
                        file.expect_size(self.files.seen_size(index, file.size()));
                    }
                    if !self.files.keeps_open {
                        file.close_between_reads();
                    }
                    file.is_growing = self.is_growing;
                    self.trace = trace;
                    self.file = Some(file);
                    (self.index, self.jump) = (IndexState::default(), None);
                    self.resume(index);
                    return true;
                }
                // It was moved away, and is somewhere else in the next round.
                Err(error) if self.is_growing && error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    corruptions.push(Corruption {
                        path: path.clone(),
                        offset: None,
                        message: not_opened(path, &error),
                    });
                }
            }
        }
        false
    }

    /// Finishes the current packet, as far as the next one depends on it.
    pub fn end_packet(&mut self) {
        let Some((file, before)) = self.file.as_mut().zip(self.before.as_mut()) else { return };
        if file.carries_clock() {
            file.leave_packet();
            before.clock = file.state.clock();
        }
    }

    /// Moves to the next packet and counts what was lost before it.
    pub fn next_packet(&mut self, selection: &Selection, losses: &mut Vec<Loss>) -> Result<bool, Corruption> {
        self.end_packet();
        self.finish_packet();
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
            let place = file.packet_start();
            self.end = Some((self.next.saturating_sub(1), place));
            self.note_progress(place, 0);
            return Ok(false);
        }
        let Some(file) = &mut self.file else { return Ok(false) };
        self.packets += 1;
        file.packets = self.packets;
        let stream = file.stream();
        self.time = TimeBase::new(file.decoder.clock(stream));
        self.check_packet(selection)?;
        self.count_losses(selection, losses);
        let end = self.before.and_then(|before| before.end);
        if let (Some(end), Some(from)) = (end, selection.from) {
            if end < from.saturating_sub(PACKET_END_SLACK_NS) {
                self.file.iter_mut().for_each(StreamFile::leave_packet);
                self.pass_over_early(from);
            }
        }
        Ok(true)
    }

    /// Checks the packet that was just begun, unless none of its events will be read.
    fn check_packet(&mut self, selection: &Selection) -> Result<(), Corruption> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let Some(packet) = file.packet.as_ref().filter(|_| !self.reads_headers_only) else { return Ok(()) };
        let nanoseconds = |cycles: Option<u64>| cycles.and_then(|cycles| self.time.nanoseconds(cycles));
        let (begin, end) = (nanoseconds(packet.begin), nanoseconds(packet.end));
        let is_early = |from: i64| end < Some(from.saturating_sub(PACKET_END_SLACK_NS)) && end >= begin;
        let is_late = |to: i64| begin > Some(to.saturating_add(PACKET_END_SLACK_NS));
        if selection.from.is_some_and(|from| end.is_some() && is_early(from))
            || selection.to.is_some_and(is_late)
        {
            return Ok(());
        }
        let sequence = packet.sequence;
        let result = file.check_packet();
        if let Some(before) = self.before.as_mut().filter(|_| result.is_err()) {
            // The packet is there: it is not reported once more as missing.
            let next = before.sequence.map(|number| number.wrapping_add(1));
            before.sequence = if next == sequence { sequence } else { before.sequence };
        }
        result
    }

    fn count_losses(&mut self, selection: &Selection, losses: &mut Vec<Loss>) {
        let Some(file) = &self.file else { return };
        let Some(packet) = &file.packet else { return };
        let nanoseconds = |cycles: Option<u64>| cycles.and_then(|cycles| self.time.nanoseconds(cycles));
        let (begin, end) = (nanoseconds(packet.begin), nanoseconds(packet.end));
        // A tracer that could not end its packet wrote no end, or one before the beginning.
        let end = end.filter(|&end| begin.is_none_or(|begin| end >= begin));
        let compared = match &self.followed {
            Some(followed) => followed.compared(self.before, packet),
            None => Some(self.before),
        };
        let now =
            Before { clock: file.state.clock(), discarded: packet.discarded, sequence: packet.sequence, end };
        let from = compared.flatten().and_then(|before| before.end).or(begin);
        let loss = |kind, count, to| Loss {
            kind,
            count,
            between: (from, to),
            trace: self.trace,
            path: file.path.clone(),
            stream_class: file.decoder.stream(packet.stream).map_or(0, |stream| stream.id),
            stream: packet.instance,
            cpu: file.cpu,
        };
        let mut lose = |kind, count, to| {
            if count > 0 && selection.takes_interval((from, to)) {
                losses.push(loss(kind, count, to));
            }
        };
        let other_files = self.followed.as_ref().is_some_and(|followed| followed.has_other_files());
        if let Some(before) = compared {
            if !other_files {
                lose(LossKind::Packets, missing_packets(before, packet), begin);
            }
            let (kind, count) = discarded_events(before, packet);
            let is_possible = count <= max_discarded(from, end.or(begin));
            lose(if is_possible { kind } else { LossKind::EventsUnknown }, count, end.or(begin));
        }
        let missing = loss(LossKind::Packets, 0, begin);
        self.followed.iter_mut().for_each(|followed| followed.begin(now, missing.clone()));
        self.plausible_until = end.map_or(i64::MAX, |end| end.saturating_add(PACKET_END_SLACK_NS));
        self.is_corrupt = false;
        self.before = Some(now);
    }
}

/// Returns the reason why a file was not opened.
fn not_opened(path: &Path, error: &io::Error) -> String {
    match path.read_link() {
        Ok(target) if error.kind() == io::ErrorKind::NotFound => {
            format!("{error}: the link leads to {}, which does not exist", target.display())
        }
        _ => error.to_string(),
    }
}

/// Returns the number of packets missing between two packets.
fn missing_packets(before: Option<Before>, packet: &Packet) -> u64 {
    match (before.and_then(|before| before.sequence), packet.sequence) {
        (Some(before), Some(now)) => now.saturating_sub(before).saturating_sub(1),
        _ => 0,
    }
}

/// Returns the number of events that a stream can have discarded between two times: to count one
/// takes more than a nanosecond.
fn max_discarded(from: Option<i64>, to: Option<i64>) -> u64 {
    let span = from.zip(to).map(|(from, to)| to.saturating_sub(from).max(0).unsigned_abs());
    span.map_or(MAX_DISCARDED, |span| span.saturating_add(CLOCK_SLACK_NS))
}

/// Returns the number of events discarded since the previous packet. A counter that decreased was
/// restarted.
///
/// The counter of a stream's first packet counts from the beginning of the stream. Unless the
/// packet has sequence number 0, the time of that beginning is unknown. This happens with a flight
/// recorder's snapshot, or with one of several files that a stream was split into.
fn discarded_events(before: Option<Before>, packet: &Packet) -> (LossKind, u64) {
    let now = packet.discarded.unwrap_or(0);
    match before.and_then(|before| before.discarded) {
        Some(before) => (LossKind::Events, now.checked_sub(before).unwrap_or(now)),
        None if packet.sequence == Some(0) => (LossKind::Events, now),
        None => (LossKind::EventsAtMost, now),
    }
}
