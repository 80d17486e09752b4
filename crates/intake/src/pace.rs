//! Pace at which children come, by which the control thread sleeps instead of being woken.
//!
//! Each wakeup of this thread is paid by the process that causes it: a child's connection, its
//! `Hello` and its end took it three interrupts of another CPU. Children that record into prepared
//! memory wait for nothing. While only such children come, one after the other, the thread looks
//! after them all once in a [`BATCH_INTERVAL`].
//!
//! A program that waits for an answer ends that, and is at most one interval late itself: a process
//! in `QUIET_CHILDREN` at most. Without children the thread sleeps until something happens.

use std::time::{Duration, Instant};

/// Time between two looks while children come. Short beside all waits of agents and users; shorter
/// than what a process needs to fork as many children as memory is prepared for.
pub const BATCH_INTERVAL: Duration = Duration::from_millis(1);
/// Children in a row that must have waited for nothing.
const QUIET_CHILDREN: u32 = 16;
/// Time after the last child in which the next one is expected.
const NEXT_CHILD_TIMEOUT: Duration = Duration::from_millis(3);

/// Pace at which processes introduce themselves.
#[derive(Debug, Default)]
pub struct Pace {
    /// Processes in a row that have waited for no answer.
    quiet: u32,
    /// Time of the last one.
    last: Option<Instant>,
}

impl Pace {
    /// Notes a `Hello`, and whether its process waits for an answer.
    pub fn note(&mut self, waits: bool, now: Instant) {
        self.quiet = if waits { 0 } else { self.quiet.saturating_add(1) };
        self.last = Some(now);
    }

    /// Whether children come one after the other, none of which waits for anything.
    pub fn is_steady(&self, now: Instant) -> bool {
        let follows = |last| now.saturating_duration_since(last) < NEXT_CHILD_TIMEOUT;
        self.quiet >= QUIET_CHILDREN && self.last.is_some_and(follows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_row_of_children_that_wait_for_nothing_is_steady() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        for _ in 0..QUIET_CHILDREN {
            assert!(!pace.is_steady(now));
            pace.note(false, now);
        }
        assert!(pace.is_steady(now));
        assert!(!pace.is_steady(now + NEXT_CHILD_TIMEOUT), "an idle session sleeps without a timer");
        pace.note(true, now);
        pace.note(false, now);
        assert!(!pace.is_steady(now), "a program has waited");
    }
}
