//! Spans of programs, and nested function calls.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{OpenState, State, ThreadId, Track, Visitor};

/// Maximum depth of reported spans. Deeper ones are only counted, so that their ends are matched.
const MAX_DEPTH: usize = 1024;

/// Open spans of all threads, by thread and trace.
#[derive(Default)]
pub(super) struct Spans(BTreeMap<(ThreadId, usize), Stack>);

#[derive(Default)]
struct Stack {
    open: Vec<OpenState>,
    /// Number of spans below the deepest reported one.
    beyond: u64,
    /// Time of the latest event about these spans, at which the open ones were open for certain.
    latest: i64,
}

/// Span that ends.
pub(super) enum Ended<'n> {
    /// Innermost span with this name.
    Span(&'n Arc<str>),
    /// Innermost function.
    Function,
}

impl Ended<'_> {
    fn is(&self, open_state: &OpenState) -> bool {
        match (self, &open_state.state) {
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
            let Some(open_state) = self.open.pop() else { break };
            visitor.interval(&open_state.end(Track::Span(thread, self.open.len() as u16), time, false));
        }
    }
}

impl Spans {
    pub fn begin(&mut self, (thread, trace): (ThreadId, usize), state: State, time: i64) {
        let stack = self.0.entry((thread, trace)).or_default();
        stack.latest = time;
        if stack.open.len() >= MAX_DEPTH {
            stack.beyond += 1;
        } else {
            stack.open.push(OpenState { state, since: time, seen: true });
        }
    }

    /// Ends a span, and spans within it whose ends were not observed.
    pub fn end(
        &mut self,
        (thread, trace): (ThreadId, usize),
        ended: &Ended<'_>,
        time: i64,
        visitor: &mut dyn Visitor,
    ) {
        let Some(stack) = self.0.get_mut(&(thread, trace)) else { return };
        stack.latest = time;
        if stack.beyond > 0 {
            stack.beyond -= 1;
            return;
        }
        let Some(depth) = stack.open.iter().rposition(|open_state| ended.is(open_state)) else { return };
        stack.cut(thread, (depth + 1, time), visitor);
        if let Some(open_state) = stack.open.pop() {
            visitor.interval(&open_state.end(Track::Span(thread, depth as u16), time, true));
        }
        if stack.open.is_empty() {
            self.0.remove(&(thread, trace));
        }
    }

    /// Forgets the spans of a trace after lost events. They end at this time or, if they may have
    /// ended before, at the latest event about them.
    pub fn forget(&mut self, lost: usize, (time, may_have_ended): (i64, bool), visitor: &mut dyn Visitor) {
        self.0.retain(|&(thread, trace), stack| {
            if trace == lost {
                let end = if may_have_ended { stack.latest.min(time) } else { time };
                stack.cut(thread, (0, end), visitor);
            }
            trace != lost
        });
    }

    /// Ends the spans of a thread that has ended.
    pub fn forget_thread(&mut self, thread: ThreadId, time: i64, visitor: &mut dyn Visitor) {
        let traces: Vec<_> = self.0.range((thread, 0)..=(thread, usize::MAX)).map(|(key, _)| *key).collect();
        for key in traces {
            if let Some(mut stack) = self.0.remove(&key) {
                stack.cut(thread, (0, time), visitor);
            }
        }
    }

    /// Reports the spans that are open at the end.
    pub fn finish(&mut self, now: i64, visitor: &mut dyn Visitor) {
        for ((thread, _), mut stack) in std::mem::take(&mut self.0) {
            stack.cut(thread, (0, now), visitor);
        }
    }
}
