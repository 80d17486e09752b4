//! What a CPU did, from the moments that were noted on it: pieces of time, in each of which one thing ran.

use std::collections::{BTreeMap, VecDeque};

use super::{
    Noted,
    moments::{Moment, Thread, What},
};

/// Names of soft interrupts, by number (`include/linux/interrupt.h`).
pub const SOFT_INTERRUPTS: [&str; 10] =
    ["hi", "timer", "net_tx", "net_rx", "block", "irq_poll", "tasklet", "sched", "hrtimer", "rcu"];

/// What runs on a CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Interrupts whose handlers run, the outermost first: the name, and when it began (0 if that was before all moments).
    pub hard: Vec<(String, u64)>,
    /// The timer whose handler runs: its address.
    pub timer: Option<u64>,
    /// The soft interrupts that run, by the thread in which they do.
    pub soft: BTreeMap<u32, u32>,
    /// The thread; none if that isn't known.
    pub thread: Option<Thread>,
}

impl State {
    /// The soft interrupt that runs, interrupts aside.
    pub fn soft_here(&self) -> Option<u32> {
        let thread = self.thread.as_ref().map_or(0, |thread| thread.tid);
        self.soft.get(&thread).copied()
    }

    /// The thread that runs has this priority by now.
    fn see_priority(&mut self, priority: Option<i32>) {
        if let (Some(thread), Some(priority)) = (&mut self.thread, priority) {
            thread.priority = priority;
        }
    }

    fn take(&mut self, time: u64, what: &What) {
        match what {
            What::Switch { next, .. } => {
                self.thread = Some(next.clone());
                // Nobody switches amidst them.
                self.hard.clear();
                self.timer = None;
            }
            What::HardEntry { name, runs, .. } => {
                // It doesn't come amidst itself: its end was not noted, nor those of what came amidst it.
                if let Some(at) = self.hard.iter().position(|(before, _)| before == name) {
                    self.hard.truncate(at);
                }
                self.hard.push((name.clone(), time));
                self.see_priority(*runs);
            }
            What::HardExit(_) => drop(self.hard.pop()),
            What::SoftEntry(number) => {
                let thread = self.thread.as_ref().map_or(0, |thread| thread.tid);
                self.soft.insert(thread, *number);
            }
            What::SoftExit(_) => {
                let thread = self.thread.as_ref().map_or(0, |thread| thread.tid);
                self.soft.remove(&thread);
            }
            What::TimerEntry { function, .. } => self.timer = Some(*function),
            What::TimerExit => self.timer = None,
            What::Woken { runs, .. } => self.see_priority(*runs),
            What::Migration { .. } | What::Idle(_) | What::Stack(_) | What::Firmware { .. } => {}
        }
    }
}

/// A piece of time in which one thing ran; none if that isn't known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// When it begins.
    pub begin: u64,
    /// When it ends, and the next one begins.
    pub end: u64,
    /// What ran.
    pub state: Option<State>,
}

/// What a CPU did from one time to another, without a gap. Empty if there is no time between.
pub fn pieces(noted: &Noted, from: u64, to: u64) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut at = from;
    if at < noted.known_from {
        let end = noted.known_from.min(to);
        push(&mut pieces, at..end, None);
        at = end;
    }
    let mut state = initial(noted);
    for Moment { time, what } in &noted.moments {
        if *time > at {
            let end = (*time).min(to);
            push(&mut pieces, at..end, Some(&state));
            at = at.max(end);
        }
        if *time >= to {
            break;
        }
        state.take(*time, what);
    }
    push(&mut pieces, at..to, Some(&state));
    pieces
}

fn push(pieces: &mut Vec<Piece>, time: std::ops::Range<u64>, state: Option<&State>) {
    if !time.is_empty() {
        pieces.push(Piece { begin: time.start, end: time.end, state: state.cloned() });
    }
}

/// What ran before the first moment: what ends in a later one without a beginning.
fn initial(noted: &Noted) -> State {
    let mut state = State::default();
    let mut open = VecDeque::new();
    let (mut depth, mut told) = (0u32, false);
    for Moment { what, .. } in &noted.moments {
        match what {
            What::HardEntry { .. } => depth += 1,
            What::HardExit(_) if depth > 0 => depth -= 1,
            What::HardExit(_) => open.push_front(("an interrupt".to_owned(), 0)),
            What::SoftEntry(_) => told = true,
            // Whose it was is not known: the thread's that is known below.
            What::SoftExit(number) if !told => {
                state.soft.insert(u32::MAX, *number);
                told = true;
            }
            What::Switch { previous, .. } => {
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

    fn switch(next: u32, previous: u32) -> What {
        let thread = |tid| Thread { tid, priority: 120, name: String::new() };
        What::Switch { next: thread(next), previous: thread(previous), state: 0 }
    }

    fn noted(known_from: u64, moments: &[(u64, What)]) -> Noted {
        let moments = moments.iter().map(|(time, what)| Moment { time: *time, what: what.clone() }).collect();
        Noted { moments, known_from, ..Noted::default() }
    }

    fn shown(pieces: &[Piece]) -> Vec<String> {
        let state = |state: &State| {
            let hard: Vec<&str> = state.hard.iter().map(|hard| hard.0.as_str()).collect();
            let thread = state.thread.as_ref().map_or("?".into(), |thread| thread.tid.to_string());
            format!("{thread} {} {:?}", hard.join("+"), state.soft_here())
        };
        let piece = |piece: &Piece| {
            let what = piece.state.as_ref().map_or("unknown".into(), state);
            format!("{}..{} {what}", piece.begin, piece.end)
        };
        pieces.iter().map(piece).collect()
    }

    #[test]
    fn what_ran_before_is_what_ends_later() {
        let noted = noted(
            5,
            &[(20, What::HardExit(1)), (30, What::SoftEntry(3)), (40, What::SoftExit(3)), (50, switch(2, 1))],
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
            &[(10, What::SoftEntry(1)), (20, switch(9, 5)), (30, switch(5, 9)), (40, What::SoftExit(1))],
        );
        assert_eq!(
            shown(&pieces(&noted, 15, 45)),
            ["15..20 5  Some(1)", "20..30 9  None", "30..40 5  Some(1)", "40..45 5  None"]
        );
    }

    #[test]
    fn an_interrupt_whose_end_was_not_noted_ends_when_it_comes_again() {
        let entry = |name: &str| What::HardEntry { number: 1, name: name.into(), runs: None };
        let noted = noted(
            0,
            &[
                (0, switch(4, 1)),
                (10, entry("disk")),
                (20, entry("net")),
                (30, entry("disk")),
                (40, What::HardExit(1)),
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
