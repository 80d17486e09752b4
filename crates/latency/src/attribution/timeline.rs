//! Timeline of a CPU: pieces of time, each with what ran, reconstructed from its events.

use std::collections::{BTreeMap, VecDeque};

use super::{
    CpuLog,
    sched_events::{EventKind, SchedEvent, Thread},
};

/// Names of softirqs by number (`include/linux/interrupt.h`).
pub const SOFT_INTERRUPTS: [&str; 10] =
    ["hi", "timer", "net_tx", "net_rx", "block", "irq_poll", "tasklet", "sched", "hrtimer", "rcu"];

/// State of a CPU: everything that runs or is interrupted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Interrupts whose handlers run, the outermost first: name and start (0 if before all events).
    pub hard: Vec<(String, u64)>,
    /// Address of the running timer handler.
    pub timer: Option<u64>,
    /// Running softirqs by the thread that they run in.
    pub soft: BTreeMap<u32, u32>,
    /// Current thread; none if unknown.
    pub thread: Option<Thread>,
}

impl State {
    /// Softirq that runs in the current thread.
    pub fn soft_here(&self) -> Option<u32> {
        let thread = self.thread.as_ref().map_or(0, |thread| thread.tid);
        self.soft.get(&thread).copied()
    }

    /// Updates the priority of the current thread.
    fn update_priority(&mut self, priority: Option<i32>) {
        if let (Some(thread), Some(priority)) = (&mut self.thread, priority) {
            thread.priority = priority;
        }
    }

    fn apply(&mut self, time: u64, kind: &EventKind) {
        match kind {
            EventKind::Switch { next, .. } => {
                self.thread = Some(next.clone());
                // The scheduler never switches within them.
                self.hard.clear();
                self.timer = None;
            }
            EventKind::HardEntry { name, runs, .. } => {
                // It doesn't nest: its end was not recorded, nor were those of interrupts nested in
                // it.
                if let Some(at) = self.hard.iter().position(|(before, _)| before == name) {
                    self.hard.truncate(at);
                }
                self.hard.push((name.clone(), time));
                self.update_priority(*runs);
            }
            EventKind::HardExit(_) => drop(self.hard.pop()),
            EventKind::SoftEntry(number) => {
                let thread = self.thread.as_ref().map_or(0, |thread| thread.tid);
                self.soft.insert(thread, *number);
            }
            EventKind::SoftExit(_) => {
                let thread = self.thread.as_ref().map_or(0, |thread| thread.tid);
                self.soft.remove(&thread);
            }
            EventKind::TimerEntry { function, .. } => self.timer = Some(*function),
            EventKind::TimerExit => self.timer = None,
            EventKind::Woken { runs, .. } => self.update_priority(*runs),
            EventKind::Migration { .. }
            | EventKind::Idle(_)
            | EventKind::Stack(_)
            | EventKind::Firmware { .. } => {}
        }
    }
}

/// Piece of time with an unchanged state; no state if it is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Begin of the piece.
    pub begin: u64,
    /// End of the piece and begin of the next one.
    pub end: u64,
    /// State of the CPU.
    pub state: Option<State>,
}

/// Pieces between two times, without a gap. Empty if the interval is empty.
pub fn pieces(noted: &CpuLog, from: u64, to: u64) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut at = from;
    if at < noted.known_from {
        let end = noted.known_from.min(to);
        push(&mut pieces, at..end, None);
        at = end;
    }
    let mut state = initial(noted);
    for SchedEvent { time, kind } in &noted.events {
        if *time > at {
            let end = (*time).min(to);
            push(&mut pieces, at..end, Some(&state));
            at = at.max(end);
        }
        if *time >= to {
            break;
        }
        state.apply(*time, kind);
    }
    push(&mut pieces, at..to, Some(&state));
    pieces
}

fn push(pieces: &mut Vec<Piece>, time: std::ops::Range<u64>, state: Option<&State>) {
    if !time.is_empty() {
        pieces.push(Piece { begin: time.start, end: time.end, state: state.cloned() });
    }
}

/// State before the first event, derived from ends without a begin.
fn initial(noted: &CpuLog) -> State {
    let mut state = State::default();
    let mut open = VecDeque::new();
    let (mut depth, mut has_softirq) = (0u32, false);
    for SchedEvent { kind, .. } in &noted.events {
        match kind {
            EventKind::HardEntry { .. } => depth += 1,
            EventKind::HardExit(_) if depth > 0 => depth -= 1,
            EventKind::HardExit(_) => open.push_front(("an interrupt".to_owned(), 0)),
            EventKind::SoftEntry(_) => has_softirq = true,
            // Its thread is unknown; the thread known below is assumed.
            EventKind::SoftExit(number) if !has_softirq => {
                state.soft.insert(u32::MAX, *number);
                has_softirq = true;
            }
            EventKind::Switch { previous, .. } => {
                state.thread = Some(previous.clone());
                break;
            }
            _ => {}
        }
    }
    state.hard = open.into();
    if let Some(number) = state.soft.remove(&u32::MAX) {
        state.soft.insert(state.thread.as_ref().map_or(0, |thread| thread.tid), number);
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switch(next: u32, previous: u32) -> EventKind {
        let thread = |tid| Thread { tid, priority: 120, name: String::new() };
        EventKind::Switch { next: thread(next), previous: thread(previous), state: 0 }
    }

    fn noted(known_from: u64, events: &[(u64, EventKind)]) -> CpuLog {
        let events =
            events.iter().map(|(time, kind)| SchedEvent { time: *time, kind: kind.clone() }).collect();
        CpuLog { events, known_from, ..CpuLog::default() }
    }

    fn shown(pieces: &[Piece]) -> Vec<String> {
        let state = |state: &State| {
            let hard: Vec<&str> = state.hard.iter().map(|hard| hard.0.as_str()).collect();
            let thread = state.thread.as_ref().map_or("?".into(), |thread| thread.tid.to_string());
            format!("{thread} {} {:?}", hard.join("+"), state.soft_here())
        };
        let piece = |piece: &Piece| {
            let kind = piece.state.as_ref().map_or("unknown".into(), state);
            format!("{}..{} {kind}", piece.begin, piece.end)
        };
        pieces.iter().map(piece).collect()
    }

    #[test]
    fn what_ran_before_is_what_ends_later() {
        let noted = noted(
            5,
            &[
                (20, EventKind::HardExit(1)),
                (30, EventKind::SoftEntry(3)),
                (40, EventKind::SoftExit(3)),
                (50, switch(2, 1)),
            ],
        );
        assert_eq!(
            shown(&pieces(&noted, 0, 60)),
            [
                "0..5 unknown",
                "5..20 1 an interrupt None",
                "20..30 1  None",
                "30..40 1  Some(3)",
                "40..50 1  None",
                "50..60 2  None",
            ]
        );
    }

    #[test]
    fn a_soft_interrupt_in_a_thread_is_preempted_with_it() {
        let noted = noted(
            0,
            &[
                (10, EventKind::SoftEntry(1)),
                (20, switch(9, 5)),
                (30, switch(5, 9)),
                (40, EventKind::SoftExit(1)),
            ],
        );
        assert_eq!(
            shown(&pieces(&noted, 15, 45)),
            ["15..20 5  Some(1)", "20..30 9  None", "30..40 5  Some(1)", "40..45 5  None"]
        );
    }

    #[test]
    fn an_interrupt_whose_end_was_not_noted_ends_when_it_comes_again() {
        let entry = |name: &str| EventKind::HardEntry { number: 1, name: name.into(), runs: None };
        let noted = noted(
            0,
            &[
                (0, switch(4, 1)),
                (10, entry("disk")),
                (20, entry("net")),
                (30, entry("disk")),
                (40, EventKind::HardExit(1)),
            ],
        );
        assert_eq!(
            shown(&pieces(&noted, 5, 50)),
            [
                "5..10 4  None",
                "10..20 4 disk None",
                "20..30 4 disk+net None",
                "30..40 4 disk None",
                "40..50 4  None"
            ]
        );
    }

    #[test]
    fn no_time_has_no_pieces() {
        assert!(pieces(&noted(0, &[(1, switch(1, 2))]), 7, 7).is_empty());
        assert!(pieces(&noted(0, &[]), 9, 3).is_empty());
    }
}
