//! Backlog: copied bytes wait until the clock has been sampled twice. Then they can be converted
//! whatever its rate did meanwhile.

use super::{Process, RingState, Span};

/// Part of the copied bytes that wait to be converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backlog {
    /// Those that were there before the clock's last two samples: a change of its rate shows on
    /// both sides.
    ClockBracketed,
    /// All bytes.
    All,
}

impl RingState {
    /// Spans of this part. What was copied together is converted together.
    pub(super) fn waiting(&self, share: Backlog) -> impl Iterator<Item = Span> + '_ {
        let spans = self.pending.iter().map(|(span, _)| *span);
        spans.take_while(move |span| share == Backlog::All || span.begin < self.bracketed_until)
    }
}

impl Process {
    /// The clock was sampled: what was copied before the last time has a sample between itself and
    /// this one.
    pub fn advance_clock_bracket(&mut self) {
        for state in &mut self.states {
            state.bracketed_until = state.sampled_until;
            state.sampled_until = state.read;
        }
    }

    /// Number of bytes of all rings that were read, as their positions tell; programs may claim
    /// any.
    pub fn read_bytes(&self) -> u64 {
        self.states.iter().map(|state| state.read).fold(0, u64::wrapping_add)
    }

    /// Number of bytes that wait to be converted.
    pub fn pending_bytes(&self) -> u64 {
        self.waiting_bytes(Backlog::All)
    }

    /// Number of bytes of this part that can be converted: their trace must be known.
    pub fn convertible_bytes(&self, share: Backlog) -> u64 {
        if self.is_undecided() { 0 } else { self.waiting_bytes(share) }
    }

    /// Number of bytes of this part that wait to be converted.
    pub fn waiting_bytes(&self, share: Backlog) -> u64 {
        let waiting = self.states.iter().flat_map(|state| state.waiting(share));
        waiting.map(|span| span.end - span.begin).sum()
    }
}
