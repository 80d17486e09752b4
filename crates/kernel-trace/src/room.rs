//! Room of the rings of a recording that outlasts its recorder: it is given back behind packets.
//!
//! ```text
//! consumed ── released ──────── last packet's end ───── converted ──── read ──── written
//!             room that packets account for │ in the packet in the making │ copied
//! ```
//!
//! A recorder that takes over goes on at the last packet's end. What is behind that is still in the
//! ring, and so are the counts of losses there.

use tompion_kernel::ring::Span;

use crate::drain::Drain;

/// A ring's packet is written at once where this share of the ring waits for it.
const PRESSED_SHARE: u64 = 4;
/// A ring from which nothing is taken is said to have been passed when this share of it was.
const PASSED_SHARE: u64 = 8;

impl Drain {
    /// Whether the recording outlasts its recorder.
    pub fn is_kept(&self) -> bool {
        self.keeping.is_some()
    }

    /// Writes what stacks' numbers mean before packets that have the numbers, if another recorder
    /// may go on behind those.
    pub fn describe_first(&mut self) {
        if self.is_kept() && self.contexts.has_stacks() {
            self.write_definitions();
        }
    }

    /// Gives back the room of what packets account for, in discard mode. Writes them where much
    /// waits, and some without events where nothing was taken.
    pub fn give_room_back(&mut self) {
        if !self.is_kept() || self.overwrite || self.left.is_some() {
            return;
        }
        let size = self.recorder.geometry().ring_size();
        for cpu in 0..self.converted.len() {
            let waits = |drain: &Self| {
                let end = drain.writer.mark(cpu).ring_end.max(drain.released[cpu]);
                drain.converted[cpu].saturating_sub(end)
            };
            if waits(self) >= size / PRESSED_SHARE {
                self.losses[cpu].packet_end = None;
                self.describe_first();
                self.attempt(|drain| drain.writer.flush(cpu, drain.mark(cpu)));
            }
            if waits(self) >= size / PASSED_SHARE {
                self.attempt(|drain| drain.writer.say_passed(cpu, drain.mark(cpu)));
            }
            self.release(cpu);
        }
    }

    fn release(&mut self, cpu: usize) {
        // Without packets what is converted is lost, and counted.
        let end = match self.stopped {
            Some(_) => self.converted[cpu],
            None => self.writer.mark(cpu).ring_end,
        };
        if end > self.released[cpu] {
            self.recorder.ring(cpu as u32).release(Span { begin: self.released[cpu], end });
            self.released[cpu] = end;
        }
    }

    /// Has packets say that a flight recorder's history was passed over: another recorder would
    /// save it.
    pub fn note_passed(&mut self) {
        if !self.is_kept() {
            return;
        }
        self.flush_all();
        for cpu in 0..self.converted.len() {
            if self.writer.mark(cpu).ring_end < self.converted[cpu] {
                self.attempt(|drain| drain.writer.say_passed(cpu, drain.mark(cpu)));
            }
        }
    }
}
