//! What programs say they do: spans, and functions that call each other.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Going, State, ThreadId, Track, Visitor};

/// How deep spans are reported; deeper ones are counted alone, so that their ends are not taken for others'.
const MAX_DEPTH: usize = 1024;

/// Open spans of all threads, by the trace that tells of them.
#[derive(Default)]
pub(super) struct Spans(BTreeMap<(ThreadId, usize), Stack>);

#[derive(Default)]
struct Stack {
    open: Vec<Going>,
    /// Spans below the deepest that is reported.
    beyond: u64,
}

/// What ends.
pub(super) enum Ended<'n> {
    /// The innermost span of this name.
    Span(&'n Arc<str>),
    /// The innermost function.
    Function,
}

impl Ended<'_> {
    fn is(&self, going: &Going) -> bool {
        match (self, &going.state) {
            (Self::Span(name), State::Span(open)) => *name == open,
            (Self::Function, State::Function(_)) => true,
            _ => false,
        }
    }
}

impl Stack {
    /// Ends spans from a depth on.
    fn cut(&mut self, thread: ThreadId, (depth, time): (usize, i64), visitor: &mut dyn Visitor) {
        while self.open.len() > depth {
            let Some(going) = self.open.pop() else { break };
            visitor.interval(&going.end(Track::Span(thread, self.open.len() as u16), time, false));
        }
    }
}

impl Spans {
    pub fn begin(&mut self, (thread, trace): (ThreadId, usize), state: State, time: i64) {
        let stack = self.0.entry((thread, trace)).or_default();
        if stack.open.len() >= MAX_DEPTH {
            stack.beyond += 1;
        } else {
            stack.open.push(Going { state, since: time, seen: true });
        }
    }

    /// Ends a span, and those within it whose ends were not seen.
    pub fn end(
        &mut self,
        (thread, trace): (ThreadId, usize),
        ended: &Ended<'_>,
        time: i64,
        visitor: &mut dyn Visitor,
    ) {
        let Some(stack) = self.0.get_mut(&(thread, trace)) else { return };
        if stack.beyond > 0 {
            stack.beyond -= 1;
            return;
        }
        let Some(depth) = stack.open.iter().rposition(|going| ended.is(going)) else { return };
        stack.cut(thread, (depth + 1, time), visitor);
        if let Some(going) = stack.open.pop() {
            visitor.interval(&going.end(Track::Span(thread, depth as u16), time, true));
        }
        if stack.open.is_empty() {
            self.0.remove(&(thread, trace));
        }
    }

    /// Events of a trace were lost: what its threads do is unknown.
    pub fn forget(&mut self, lost: usize, time: i64, visitor: &mut dyn Visitor) {
        self.0.retain(|&(thread, trace), stack| {
            if trace == lost {
                stack.cut(thread, (0, time), visitor);
            }
            trace != lost
        });
    }

    /// A thread has ended: so has what it did.
    pub fn forget_thread(&mut self, thread: ThreadId, time: i64, visitor: &mut dyn Visitor) {
        let traces: Vec<_> = self.0.range((thread, 0)..=(thread, usize::MAX)).map(|(key, _)| *key).collect();
        for key in traces {
            if let Some(mut stack) = self.0.remove(&key) {
                stack.cut(thread, (0, time), visitor);
            }
        }
    }

    /// Reports what is open at the end.
    pub fn finish(&mut self, now: i64, visitor: &mut dyn Visitor) {
        for ((thread, _), mut stack) in std::mem::take(&mut self.0) {
            stack.cut(thread, (0, now), visitor);
        }
    }
}
