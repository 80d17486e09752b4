//! Puts the begins and ends of one process in order of time.
//!
//! A thread that migrates begins a job in one CPU's ring and ends it in another's. Rings are copied
//! one after the other, so what one round has read is in no order. Events wait until all rings are
//! known to have been read up to their time: what a thread recorded before an event is complete
//! before that event's time, so none of it can come afterwards.

use std::mem;

use super::JobMessage;

/// Time for which a ring may stay unread, in nanoseconds, because of a record that is not
/// completed. Then the others wait no longer, and everything since then counts as a loss.
const HOLD_TIMEOUT_NS: u64 = 1_000_000_000;
/// Events of one process that wait.
const MAX_HELD: usize = 1 << 16;
/// Tolerance of the events' converted times, in nanoseconds: the clock's newest line has no sample
/// behind it yet.
const CONVERSION_SLACK_NS: u64 = 100_000;

/// A moment, as rings have it and in nanoseconds of CLOCK_MONOTONIC. Rings' times are exact, and
/// decide the order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Time in the ring's unit: ticks, or nanoseconds.
    pub raw: u64,
    /// Time in nanoseconds.
    pub ns: u64,
}

/// Copied bytes that are to be converted.
#[derive(Debug)]
struct Copied {
    /// All that was recorded before this moment is in them.
    before: Moment,
    /// Ends of the copied bytes, by ring.
    ends: Vec<u64>,
}

/// Interval in which begins or ends were lost.
#[derive(Clone, Copy, Debug)]
struct Gap {
    begin: Moment,
    end: Moment,
}

#[derive(Debug)]
struct Held {
    raw: u64,
    message: JobMessage,
}

/// Events of one process that wait for those before them.
#[derive(Debug)]
pub struct JobOrder {
    pid: u32,
    held: Vec<Held>,
    /// All that was recorded before it has been taken in.
    complete: Moment,
    copied: Option<Copied>,
    gap: Option<Gap>,
}

impl JobOrder {
    /// Nothing yet, of a process that takes part from this moment on.
    pub(super) fn new(pid: u32, begin: Moment) -> Self {
        Self { pid, held: Vec::new(), complete: begin, copied: None, gap: None }
    }

    /// Takes in an event. False if too many wait; that is a loss.
    pub(super) fn push(&mut self, moment: Moment, message: JobMessage) -> bool {
        if self.held.len() >= MAX_HELD {
            self.lose(moment, moment);
            return false;
        }
        self.held.push(Held { raw: moment.raw, message });
        true
    }

    /// Notes that everything before a moment was copied: up to these positions of the rings.
    pub fn note_copied(&mut self, before: Moment, ends: impl Iterator<Item = u64>) {
        if self.copied.is_none() {
            self.copied = Some(Copied { before, ends: ends.collect() });
        }
    }

    /// Notes up to where the rings were converted.
    pub fn note_converted(&mut self, mut positions: impl Iterator<Item = u64>) {
        let is_reached =
            |copied: &Copied| copied.ends.iter().all(|end| positions.next().is_some_and(|it| it >= *end));
        if self.copied.as_ref().is_some_and(is_reached) {
            self.complete = self.copied.take().map_or(self.complete, |copied| copied.before);
        }
    }

    /// Notes that begins or ends were lost between two moments.
    pub(super) fn lose(&mut self, begin: Moment, end: Moment) {
        let gap = self.gap.get_or_insert(Gap { begin, end });
        if begin.raw < gap.begin.raw {
            gap.begin = begin;
        }
        if end.raw > gap.end.raw {
            gap.end = end;
        }
    }

    /// Whether something waits.
    pub(super) fn is_waiting(&self) -> bool {
        !self.held.is_empty() || self.gap.is_some()
    }

    /// Takes the messages that nothing can precede any more, in order.
    pub(super) fn release(&mut self, now: Moment) -> Vec<JobMessage> {
        if now.ns.saturating_sub(self.complete.ns) > HOLD_TIMEOUT_NS {
            if self.is_waiting() {
                self.lose(self.complete, now);
            }
            (self.complete, self.copied) = (now, None);
        }
        // What a program says of the future is put off to now, not for ever.
        self.held.iter_mut().for_each(|held| held.raw = held.raw.min(now.raw));
        let complete = self.complete.raw;
        self.take(|raw| raw < complete)
    }

    /// Takes everything, in order: nothing follows.
    pub(super) fn release_all(&mut self) -> Vec<JobMessage> {
        self.take(|_| true)
    }

    fn take(&mut self, is_due: impl Fn(u64) -> bool) -> Vec<JobMessage> {
        let gap = mem::take(&mut self.gap).map(|gap| Held { raw: gap.begin.raw, message: self.message(gap) });
        let (mut due, waiting) =
            mem::take(&mut self.held).into_iter().partition::<Vec<_>, _>(|held| is_due(held.raw));
        self.held = waiting;
        // What was overtaken has its place behind the loss that made it doubtful.
        due.splice(..0, gap);
        // Stable: events of one thread and time stay as their ring has them.
        due.sort_by_key(|held| held.raw);
        due.into_iter().map(|held| held.message).collect()
    }

    fn message(&self, gap: Gap) -> JobMessage {
        let begin = gap.begin.ns.saturating_sub(CONVERSION_SLACK_NS);
        JobMessage::Gap { pid: self.pid, begin, end: gap.end.ns.saturating_add(CONVERSION_SLACK_NS) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PID: u32 = 7;

    fn at(time: u64) -> Moment {
        Moment { raw: time, ns: time }
    }

    fn order() -> JobOrder {
        JobOrder::new(PID, at(0))
    }

    fn push(order: &mut JobOrder, time: u64) -> bool {
        order.push(at(time), JobMessage::Ended { job: 0, pid: PID, tid: 1, time })
    }

    /// One round that has read both rings to these positions.
    fn round(order: &mut JobOrder, before: u64, positions: [u64; 2]) -> Vec<JobMessage> {
        order.note_copied(at(before), positions.into_iter());
        order.note_converted(positions.into_iter());
        order.release(at(before + 50))
    }

    fn times(messages: &[JobMessage]) -> Vec<u64> {
        let time = |message: &JobMessage| match message {
            JobMessage::Ended { time, .. } => *time,
            JobMessage::Gap { .. } => 0,
            other => panic!("{other:?}"),
        };
        messages.iter().map(time).collect()
    }

    #[test]
    fn events_of_several_rings_come_in_order_of_time() {
        let mut order = order();
        for time in [20, 40, 10, 30] {
            push(&mut order, time);
        }
        assert_eq!(times(&round(&mut order, 100, [8, 8])), [10, 20, 30, 40]);
    }

    #[test]
    fn an_event_waits_while_another_ring_may_have_an_earlier_one() {
        let mut order = order();
        // Recorded after the first ring was read: what led to it may be behind that place.
        push(&mut order, 120);
        push(&mut order, 90);
        assert_eq!(times(&round(&mut order, 100, [8, 8])), [90]);
        push(&mut order, 110);
        assert_eq!(times(&round(&mut order, 200, [16, 8])), [110, 120]);
    }

    #[test]
    fn nothing_is_complete_before_what_was_copied_is_converted() {
        let mut order = order();
        push(&mut order, 50);
        order.note_copied(at(100), [64, 64].into_iter());
        order.note_converted([64, 32].into_iter());
        assert!(order.release(at(101)).is_empty());
        // What is copied meanwhile does not put it off.
        order.note_copied(at(200), [96, 96].into_iter());
        order.note_converted([64, 64].into_iter());
        assert_eq!(times(&order.release(at(201))), [50]);
    }

    #[test]
    fn a_ring_that_is_never_completed_becomes_a_loss() {
        let mut order = order();
        push(&mut order, 50);
        assert!(order.release(at(HOLD_TIMEOUT_NS)).is_empty());
        let messages = order.release(at(HOLD_TIMEOUT_NS + 1));
        let end = HOLD_TIMEOUT_NS + 1 + CONVERSION_SLACK_NS;
        assert_eq!(messages[0], JobMessage::Gap { pid: PID, begin: 0, end });
        assert_eq!(times(&messages), [0, 50]);
        // An idle process has lost nothing.
        assert!(order.release(at(9 * HOLD_TIMEOUT_NS)).is_empty());
    }

    #[test]
    fn a_loss_comes_before_all_that_it_makes_uncertain() {
        let mut order = order();
        for time in [30, 10, 20] {
            push(&mut order, time);
        }
        order.lose(at(25), at(28));
        order.lose(at(20), at(22));
        let messages = round(&mut order, 100, [8, 8]);
        assert_eq!(times(&messages), [10, 0, 20, 30]);
        assert_eq!(messages[1], JobMessage::Gap { pid: PID, begin: 0, end: 28 + CONVERSION_SLACK_NS });
    }

    #[test]
    fn what_a_program_says_of_the_future_waits_for_one_round() {
        let mut order = order();
        push(&mut order, u64::MAX);
        assert!(round(&mut order, 100, [8, 8]).is_empty());
        assert_eq!(times(&round(&mut order, 200, [8, 8])), [u64::MAX]);
    }

    #[test]
    fn too_many_events_that_wait_are_a_loss() {
        let mut order = order();
        let taken = (0..MAX_HELD as u64 + 5).filter(|time| push(&mut order, 1000 + time)).count();
        assert_eq!(taken, MAX_HELD);
        let messages = order.release_all();
        assert_eq!(messages.len(), MAX_HELD + 1);
        assert!(matches!(messages.last(), Some(JobMessage::Gap { .. })));
    }
}
