//! Visits all files, packets and selected events, stream after stream, for exporters.

use std::path::Path;

use tompion_ctf::decode::{Fields, Packet};

use super::source::Source;
use super::windows::Scan;
use super::{Selection, TraceSet};
use crate::Event;
use crate::file::StreamFile;

/// Visitor that [`TraceSet::walk`] calls.
pub trait Visitor {
    /// Error that stops the walk.
    type Error;

    /// Begins or resumes a file: files whose times overlap are visited alternately. `stream`
    /// numbers the streams. The files of a rotated stream have the same number and come in order of
    /// time. `trace` is the index in [`TraceSet::traces`].
    ///
    /// # Errors
    ///
    /// An error ends the walk.
    fn file(&mut self, stream: usize, trace: usize, path: &Path) -> Result<(), Self::Error>;

    /// Begins a packet of the file; returns false if its events need not be read.
    ///
    /// # Errors
    ///
    /// An error ends the walk.
    fn packet(&mut self, packet: &PacketView<'_>) -> Result<bool, Self::Error>;

    /// Visits a selected event of the packet.
    ///
    /// # Errors
    ///
    /// An error ends the walk.
    fn event(&mut self, event: &Event<'_>) -> Result<(), Self::Error>;
}

/// Packet that is being visited.
pub struct PacketView<'a> {
    /// Header and context as decoded.
    pub packet: &'a Packet,
    /// Begin time in nanoseconds since the epoch.
    pub begin: Option<i64>,
    /// End time in nanoseconds since the epoch.
    pub end: Option<i64>,
    /// All fields of the packet context.
    pub context: Fields<'a>,
}

impl TraceSet {
    /// Visits all files, packets and selected events, stream after stream. Must be called before
    /// the first event is read.
    ///
    /// # Errors
    ///
    /// Returns the visitor's error.
    pub fn walk<V: Visitor>(&mut self, visitor: &mut V) -> Result<(), V::Error> {
        (0..self.sources.len()).try_for_each(|index| self.walk_source(index, visitor))
    }

    /// Returns the time of the last selected event, in nanoseconds since the epoch. If everything
    /// is selected, only late packets are read: those that ended less than a second before the
    /// latest one began, or after.
    pub fn end(&mut self) -> Option<i64> {
        if self.takes_all && !self.selection.looks_into_events() {
            let begin = |source: &Source| {
                let indexed = source.files.indexed_begin(&self.traces);
                indexed.or_else(|| Scan::latest_begin(&source.files, &self.traces))
            };
            let from = self.sources.iter().filter_map(begin).max();
            let mut late = self.unread();
            late.select(Selection { from, ..Selection::default() });
            if let Some(end) = late.latest() {
                return Some(end);
            }
        }
        self.latest()
    }

    fn latest(&mut self) -> Option<i64> {
        let mut latest = None;
        self.for_each_unordered(&|_| false, &mut |event| latest = latest.max(event.timestamp()));
        latest
    }

    fn walk_source<V: Visitor>(&mut self, index: usize, visitor: &mut V) -> Result<(), V::Error> {
        while let Some(source) = self.sources.get_mut(index) {
            if source.file.is_none() {
                if !source.open_next(&self.traces, self.window, &mut self.corruptions) {
                    break;
                }
                if let Some(file) = &source.file {
                    visitor.file(index, source.trace, &file.path)?;
                }
            }
            let Some(file) = source.file.as_mut() else { break };
            let step = match file.next_header() {
                Ok(true) => match self.finish(index) {
                    Ok(false) => Ok(true),
                    Ok(true) => {
                        self.event(index).map_or(Ok(()), |event| visitor.event(&event))?;
                        Ok(true)
                    }
                    Err(corruption) => Err(corruption),
                },
                // The visitor decides which packets matter.
                Ok(false) => match source.next_packet(&Selection::default(), &mut self.losses) {
                    Ok(true) => {
                        self.visit_packet(index, visitor)?;
                        Ok(true)
                    }
                    other => other,
                },
                Err(corruption) => Err(corruption),
            };
            match step {
                Ok(true) => {}
                Ok(false) => self.sources.get_mut(index).into_iter().for_each(|source| source.file = None),
                Err(corruption) => self.pass_over(index, corruption),
            }
        }
        Ok(())
    }

    /// Decodes the event whose header was just decoded; returns false if it is not selected.
    fn finish(&mut self, index: usize) -> Result<bool, crate::Corruption> {
        let Some(source) = self.sources.get_mut(index) else { return Ok(false) };
        let Some(file) = source.file.as_mut() else { return Ok(false) };
        source.timestamp = source.time.nanoseconds(file.decoder.cycles(&file.state));
        if source.timestamp.is_some_and(|time| time < source.latest) {
            source.step_back();
        }
        source.latest = source.latest.max(source.timestamp.unwrap_or(i64::MIN));
        let Some(file) = source.file.as_mut() else { return Ok(false) };
        let streams = self.selected.get(source.trace);
        let classes = streams.and_then(|streams| streams.get(file.stream())?.get(file.class));
        let taken = classes.is_none_or(|&taken| taken) && self.selection.takes_time(source.timestamp);
        file.finish_event(taken)?;
        Ok(taken && !self.is_filtered_out(index))
    }

    fn visit_packet<V: Visitor>(&mut self, index: usize, visitor: &mut V) -> Result<(), V::Error> {
        let Some(source) = self.sources.get_mut(index) else { return Ok(()) };
        let Some(file) = source.file.as_mut() else { return Ok(()) };
        let Some(packet) = &file.packet else { return Ok(()) };
        let time = |cycles: Option<u64>| cycles.and_then(|cycles| source.time.nanoseconds(cycles));
        let context = file.decoder.packet_context(packet, file.packet_input());
        let view = PacketView { packet, begin: time(packet.begin), end: time(packet.end), context };
        if !visitor.packet(&view)? {
            StreamFile::leave_packet(file);
        }
        Ok(())
    }
}
