//! Bytes that were copied wait until the clock has been sampled twice: then they can be converted whatever its rate did
//! meanwhile.

use super::{Process, RingState, Span};

/// Which of the bytes that were copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// Those that were there before the clock's last two samples: a change of its rate shows on both sides.
    Ripe,
    /// All of them.
    All,
}

impl RingState {
    /// What waits of this share. What was copied together ripens together.
    pub(super) fn waiting(&self, share: Share) -> impl Iterator<Item = Span> + '_ {
        let spans = self.pending.iter().map(|(span, _)| *span);
        spans.take_while(move |span| share == Share::All || span.begin < self.ripe)
    }
}

impl Process {
    /// The clock was sampled: what was copied before the last time has a sample between itself and this one.
    pub fn ripen(&mut self) {
        for state in &mut self.states {
            state.ripe = state.sampled;
            state.sampled = state.read;
        }
    }

    /// How many bytes of all rings were read, as their positions tell; programs may claim any.
    pub fn read_bytes(&self) -> u64 {
        self.states.iter().map(|state| state.read).fold(0, u64::wrapping_add)
    }

    /// How many bytes wait to be converted.
    pub fn pending_bytes(&self) -> u64 {
        self.waiting_bytes(Share::All)
    }

    /// How many bytes of this share can be converted: it must be known where to.
    pub fn convertible_bytes(&self, share: Share) -> u64 {
        if self.is_undecided() { 0 } else { self.waiting_bytes(share) }
    }

    /// How many bytes of this share wait to be converted.
    pub fn waiting_bytes(&self, share: Share) -> u64 {
        let waiting = self.states.iter().flat_map(|state| state.waiting(share));
        waiting.map(|span| span.end - span.begin).sum()
    }
}
