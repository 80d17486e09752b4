//! Spans that belong to a piece of work and not to a thread: their events have a number, in the
//! context field `span`. Programs with tasks that move between threads record them.
//!
//! They may overlap, and end on another thread. Each is reported on the thread that began it, on a
//! track that no other one has at that time.

use std::collections::{BTreeMap, BTreeSet};

use super::{MachineId, OpenState, ThreadId, Track, Visitor};

/// Depth of the first track. Spans of the thread itself have those before.
pub(super) const FIRST_DEPTH: u16 = 1024;
/// Maximum number of open spans that one thread has begun. Further ones are not reported.
const MAX_OPEN: u16 = 4096;

/// Number of a span in a trace of a machine.
type Key = (MachineId, usize, i64);

/// Open spans of all programs.
#[derive(Default)]
pub(super) struct NumberedSpans {
    open: BTreeMap<Key, Open>,
    /// Depths in use, by thread and trace.
    depths: BTreeMap<(ThreadId, usize), BTreeSet<u16>>,
    /// Time of the latest event about these spans, by trace.
    latest: BTreeMap<usize, i64>,
}

struct Open {
    state: OpenState,
    thread: ThreadId,
    /// Depth of its track, counted from the first one.
    depth: u16,
}

impl NumberedSpans {
    pub fn begin(&mut self, at: (ThreadId, usize), id: i64, state: OpenState, visitor: &mut dyn Visitor) {
        let ((thread, trace), time) = (at, state.since);
        self.latest.insert(trace, time);
        let key = (thread.machine, trace, id);
        if let Some(open) = self.open.remove(&key) {
            // A number is given once: this span's end was not observed.
            self.report(trace, open, (time, false), visitor);
        }
        let used = self.depths.entry((thread, trace)).or_default();
        if let Some(depth) = (0..MAX_OPEN).find(|depth| !used.contains(depth)) {
            used.insert(depth);
            self.open.insert(key, Open { state, thread, depth });
        }
    }

    /// Ends a span, on whichever thread that happens.
    pub fn end(&mut self, key: Key, time: i64, visitor: &mut dyn Visitor) {
        self.latest.insert(key.1, time);
        if let Some(open) = self.open.remove(&key) {
            self.report(key.1, open, (time, true), visitor);
        }
    }

    fn report(&mut self, trace: usize, open: Open, (time, seen): (i64, bool), visitor: &mut dyn Visitor) {
        let track = Track::Span(open.thread, FIRST_DEPTH + open.depth);
        visitor.interval(&open.state.end(track, time, seen));
        if let Some(used) = self.depths.get_mut(&(open.thread, trace)) {
            used.remove(&open.depth);
        }
    }

    /// Forgets the spans of a trace after lost events, as [`super::spans::Spans::forget`].
    pub fn forget(&mut self, lost: usize, (time, may_have_ended): (i64, bool), visitor: &mut dyn Visitor) {
        let latest = self.latest.get(&lost).copied().unwrap_or(time);
        let end = if may_have_ended { latest.min(time) } else { time };
        let is_lost = |key: &&Key| key.1 == lost;
        for key in self.open.keys().filter(is_lost).copied().collect::<Vec<_>>() {
            if let Some(open) = self.open.remove(&key) {
                self.report(lost, open, (end, false), visitor);
            }
        }
    }

    /// Reports the spans that are open at the end.
    pub fn finish(&mut self, now: i64, visitor: &mut dyn Visitor) {
        for ((_, trace, _), open) in std::mem::take(&mut self.open) {
            self.report(trace, open, (now, false), visitor);
        }
    }
}
