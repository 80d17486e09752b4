//! Durability of a process whose memory and trace are to outlast the session, and the machine: what
//! is on the medium, and when.
//!
//! In this order, for each ring:
//!
//! 1. the catalog that describes the records,       `Process::sync_catalog`
//! 2. the metadata with their classes,               `SourceWriter::flush`
//! 3. the packet with the records,                   `SourceWriter::flush`, `sync`
//! 4. `consumed`: the program may overwrite them.    `Process::give_back`
//!
//! So at any moment a record is in a whole packet on the medium, or its bytes in the ring are not
//! overwritten.

use std::io;

use tompion_writer::Mark;

use super::Process;
use crate::backing::ProcessBacking;

/// A ring with at least this share of its room not given back is taken care of at once.
const PRESSED_SHARE: u64 = 4;
/// A ring of which everything is left out is told to have been passed when this share of it was.
const PASSED_SHARE: u64 = 8;

impl Process {
    /// Whether the process's memory is kept.
    pub fn is_durable(&self) -> bool {
        self.kept_in.is_some()
    }

    /// Whether a ring that is kept is a quarter full of what is not on the medium.
    pub fn is_backpressured(&self) -> bool {
        let limit = self.geometry.ring_size() / PRESSED_SHARE;
        self.is_durable()
            && !self.overwrite
            && !self.given_up
            && self.states.iter().any(|state| state.read.saturating_sub(state.consumed) >= limit)
    }

    /// Whether the program has cut off a part of a file that it shares with the session.
    pub fn was_cut(&self) -> bool {
        self.control.was_cut() || self.rings.was_cut()
    }

    /// Sees to it that the medium has the files of a process that is kept, before anything else of
    /// it does. One that has ended needs them no more: all it has is in the trace, or stays in
    /// files that recovery finds as long as the machine runs.
    fn settle_files(&mut self) -> io::Result<()> {
        if !self.files_settled && self.end.is_none() {
            self.kept_in.as_ref().map_or(Ok(()), ProcessBacking::settle)?;
            self.files_settled = true;
        }
        Ok(())
    }

    /// Takes away the files of a process whose trace is complete.
    pub fn remove_files(&self) -> io::Result<()> {
        self.kept_in.as_ref().map_or(Ok(()), ProcessBacking::remove)
    }

    /// Sees to it that the medium has the catalog and the events that are kept as far as they were
    /// read: nothing in the trace is older than its description.
    pub(super) fn sync_catalog(&mut self) -> io::Result<()> {
        if let Some(backing) = &self.kept_in {
            if self.catalog_synced < self.catalog_read || self.kept_synced < self.kept_read {
                backing.sync_control()?;
                (self.catalog_synced, self.kept_synced) = (self.catalog_read, self.kept_read);
            }
        }
        Ok(())
    }

    /// Sees to it that the medium has all packets that were written, then gives back the room of
    /// what they hold.
    pub(super) fn settle(&mut self) -> io::Result<()> {
        if !self.is_durable() {
            return Ok(());
        }
        self.settle_files()?;
        // What each chunk repeats must be there before the room in its ring is given back.
        self.writer.sync(self.writer.initial_stream())?;
        for stream in 0..self.states.len() {
            self.say_passed(stream)?;
            if let Some(end) = self.writer.sync(stream)? {
                self.give_back(stream, end);
            }
        }
        Ok(())
    }

    /// Writes a packet now and then where the filter rejects everything.
    fn say_passed(&mut self, stream: usize) -> io::Result<()> {
        let Some(state) = self.states.get(stream) else { return Ok(()) };
        let Mark { ring_end, .. } = state.mark;
        let passed = ring_end.saturating_sub(self.writer.mark(stream).ring_end.max(state.consumed));
        if self.overwrite || passed < self.geometry.ring_size() / PASSED_SHARE {
            return Ok(());
        }
        self.writer.say_passed(stream, self.mark(stream))
    }

    /// Lets the program have a ring's room up to a position.
    pub(super) fn give_back(&mut self, ring: usize, position: u64) {
        let state = &mut self.states[ring];
        if position > state.consumed && !self.overwrite {
            state.consumed = position;
            self.reader(ring).release(position);
        }
    }
}
