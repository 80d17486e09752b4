//! Everything that there is, stream after stream: for those who write it somewhere else.

use std::path::Path;

use tompion_ctf::decode::{Fields, Packet};

use super::source::Source;
use super::windows::Scan;
use super::{Selection, TraceSet};
use crate::Event;
use crate::file::StreamFile;

/// What [`TraceSet::walk`] comes by.
pub trait Visitor {
    /// Why it had to stop.
    type Error;

    /// A file is begun, or gone on with: files whose times overlap come in turns. `stream` numbers the streams: files of
    /// one that was rotated have the same number and come in order of time. `trace` is the index in [`TraceSet::traces`].
    ///
    /// # Errors
    ///
    /// Ends the walk.
    fn file(&mut self, stream: usize, trace: usize, path: &Path) -> Result<(), Self::Error>;

    /// A packet of the file is begun; false if its events need not be read.
    ///
    /// # Errors
    ///
    /// Ends the walk.
    fn packet(&mut self, packet: &PacketView<'_>) -> Result<bool, Self::Error>;

    /// An event of the packet that the selection takes.
    ///
    /// # Errors
    ///
    /// Ends the walk.
    fn event(&mut self, event: &Event<'_>) -> Result<(), Self::Error>;
}

/// A packet.
pub struct PacketView<'a> {
    /// What it says of itself.
    pub packet: &'a Packet,
    /// When it was begun, in nanoseconds since the epoch.
    pub begin: Option<i64>,
    /// When it was ended.
    pub end: Option<i64>,
    /// All fields of its context.
    pub context: Fields<'a>,
}

impl TraceSet {
    /// Passes by all files, packets and selected events, stream after stream. To be called before the first event
    /// is read.
    ///
    /// # Errors
    ///
    /// The visitor's.
    pub fn walk<V: Visitor>(&mut self, visitor: &mut V) -> Result<(), V::Error> {
        (0..self.sources.len()).try_for_each(|index| self.walk_source(index, visitor))
    }

    /// When the last event happened that is selected, in nanoseconds since the epoch. Where everything is selected,
    /// only packets are read that were ended when the latest one was begun, or up to a second before.
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
                if !source.open_next(&self.traces, self.window, &mut self.damages) {
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
                    Err(damage) => Err(damage),
                },
                // Which packets are of interest is the visitor's business.
                Ok(false) => match source.next_packet(&Selection::default(), &mut self.losses) {
                    Ok(true) => {
                        self.visit_packet(index, visitor)?;
                        Ok(true)
                    }
                    other => other,
                },
                Err(damage) => Err(damage),
            };
            match step {
                Ok(true) => {}
                Ok(false) => self.sources.get_mut(index).into_iter().for_each(|source| source.file = None),
                Err(damage) => self.pass_over(index, damage),
            }
        }
        Ok(())
    }

    /// Decodes the event whose header was just decoded; false if it is not selected.
    fn finish(&mut self, index: usize) -> Result<bool, crate::Damage> {
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
