//! Losses of a ring in discard mode, and where they are in the trace.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use crate::drain::Drain;
use tompion_kernel::{Recorder, ring::Opening};
use tompion_layout::loss::Cause;

/// Time for which a packet that counts losses may wait for an event behind them.
const MAX_PACKET_WAIT: Duration = Duration::from_secs(2);

/// Losses of a ring in discard mode, as far as their place is known.
#[derive(Clone, Default)]
pub struct KnownLosses {
    /// Sub-buffers that were taken and whose first record is still to be converted.
    pub openings: VecDeque<Opening>,
    /// Events lost for want of room before the last sub-buffer that was converted.
    pub full: u64,
    /// Events lost for other causes.
    pub others: u64,
    /// The packet waits for an event behind the losses that it counts.
    pub packet_end: Option<PacketEnd>,
}

/// End of a packet that counts losses.
#[derive(Clone, Copy)]
pub struct PacketEnd {
    /// Position behind which the next event ends the packet: the losses came before.
    pub position: u64,
    /// Time since which it waits.
    since: Instant,
}

impl Drain {
    /// Ends the packet if the ring lost events that it doesn't count. The next one counts them and
    /// ends with the first event behind a position, so the losses lie between two known times. One
    /// that counts losses already goes on, since those may lie behind these.
    pub fn note_losses(&mut self, cpu: usize, position: u64) {
        let lost = self.losses[cpu].full.saturating_add(self.losses[cpu].others);
        if lost <= self.writer.discarded(cpu) {
            return;
        }
        if self.losses[cpu].packet_end.is_none() {
            self.describe_first();
            self.attempt(|drain| {
                drain.writer.flush(cpu, drain.mark(cpu))?;
                drain.writer.set_discarded(cpu, lost, drain.mark(cpu))
            });
        }
        self.writer.raise_discarded(cpu, lost);
        let end = self.losses[cpu].packet_end.get_or_insert(PacketEnd { position, since: Instant::now() });
        end.position = end.position.max(position);
    }

    /// Notes the losses before a sub-buffer whose first record is to be converted. It has a byte at
    /// this position.
    pub fn enter_subbuf(&mut self, cpu: usize, position: u64) {
        let losses = &mut self.losses[cpu];
        let Some(&Opening { position: begin, lost }) = losses.openings.front() else { return };
        if begin <= position {
            losses.openings.pop_front();
            losses.full = losses.full.saturating_add(lost);
            self.note_losses(cpu, begin);
        }
    }

    /// Writes all packets but those that wait for an event behind their losses, for a while:
    /// without it they say that the losses came before their last event.
    pub fn flush(&mut self) {
        self.flushed = Instant::now();
        self.describe_first();
        for stream in 0..self.read.len() {
            let waits = |end: &mut PacketEnd| end.since.elapsed() < MAX_PACKET_WAIT;
            if !self.losses[stream].packet_end.as_mut().is_some_and(waits) {
                self.losses[stream].packet_end = None;
                self.attempt(|drain| drain.writer.flush(stream, drain.mark(stream)));
            }
        }
    }

    /// Writes all packets. Those that wait say that the losses came before their last event.
    pub fn flush_all(&mut self) {
        self.losses.iter_mut().for_each(|losses| losses.packet_end = None);
        self.flush();
        // The state at the start may still be read.
        let initial = self.writer.initial_stream();
        self.attempt(|drain| drain.writer.flush(initial, drain.initial_mark()));
    }
}

/// Number of events that a ring lost so far for other causes than want of room.
pub fn lost_otherwise(recorder: &Recorder, cpu: u32) -> u64 {
    let ring = recorder.ring(cpu);
    let others = Cause::ALL.into_iter().filter(|cause| *cause != Cause::Full);
    others.map(|cause| ring.lost(cause)).fold(0, u64::saturating_add)
}

/// Number of events that a ring lost so far.
pub fn lost_of(recorder: &Recorder, cpu: u32) -> u64 {
    let ring = recorder.ring(cpu);
    Cause::ALL.into_iter().map(|cause| ring.lost(cause)).fold(0, u64::saturating_add)
}
