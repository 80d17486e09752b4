//! The segments of a latency, each charged to a cause.
//!
//! Between intended expiry and the timer's handler nothing but the CPU's state counts: what ran when no interrupt was taken.
//! Between the wake-up and the switch whatever ran instead. Rules, and why they are these, are in `docs/design/blame.md`.

use std::collections::BTreeMap;

use super::{
    Cause, History, Noted, Question, Segment,
    firmware::interrupts,
    moments::{Moment, Thread, What},
    timeline::{Piece, SOFT_INTERRUPTS, State, pieces},
};

/// What the kernel needs at most to take an interrupt, to wake a thread or to switch to it, in nanoseconds: in shorter
/// pieces nobody was in the way.
const OWN_PATH: u64 = 10_000;
/// Shorter silences of all CPUs mean nothing, in nanoseconds.
const SILENCE: u64 = 50_000;
/// A stack belongs to a moment if it was noted so soon after it, in nanoseconds.
const SOON: u64 = 200_000;
/// What two programs note of one event is not farther apart, in nanoseconds, but where the processor was taken away between them.
const NEAR: u64 = 20_000;
/// The handler of the timer that gives a thread with a deadline its next period (`kernel/sched/deadline.c`).
const REPLENISHES: &str = "dl_task_timer";

/// Charges each nanosecond of a latency to a cause. The segments are in order, and their sum is the latency, whatever the
/// history says.
pub fn charge(question: &Question, history: &History) -> Vec<Segment> {
    let case = Case::new(question, history);
    let mut segments = Vec::new();
    case.timer_is_late(&mut segments);
    case.handler_runs(&mut segments);
    case.thread_waits(&mut segments);
    merged(segments)
}

/// What a piece is charged to.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Charge {
    cause: Cause,
    who: String,
    tid: u32,
    code: Vec<String>,
}

impl Charge {
    fn nobody(cause: Cause) -> Self {
        Self { cause, who: String::new(), tid: 0, code: Vec::new() }
    }
}

/// What an interrupt has interrupted.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Interrupted {
    /// A program, in which interrupts and preemption are always on.
    Program,
    /// The kernel: functions, the innermost first.
    Kernel(Vec<String>),
    /// That isn't known.
    Unknown,
}

struct Case<'a> {
    question: &'a Question,
    history: &'a History,
    /// The CPU on which the thread was woken, and its timer went off.
    waker: u32,
    begin: u64,
    fired: u64,
    woken: u64,
    end: u64,
}

impl<'a> Case<'a> {
    fn new(question: &'a Question, history: &'a History) -> Self {
        let (begin, end) = (question.begin(), question.end);
        let fired = if question.intended == 0 { begin } else { question.fired.clamp(begin, end) };
        let woken = question.woken.clamp(fired, end);
        let waker = waker(question, history);
        Self { question, history, waker, begin, fired, woken, end }
    }

    fn noted(&self, cpu: u32) -> &'a Noted {
        static NOTHING: Noted = Noted { moments: Vec::new(), known_from: u64::MAX, stacks: BTreeMap::new() };
        self.history.cpus.get(cpu as usize).unwrap_or(&NOTHING)
    }

    /// From the intended expiry to the handler.
    fn timer_is_late(&self, segments: &mut Vec<Segment>) {
        let noted = self.noted(self.waker);
        let pieces = pieces(noted, self.begin, self.fired);
        let own_interrupt =
            pieces.last().and_then(|piece| innermost(piece.state.as_ref()?)).map(|hard| hard.1);
        let interrupted = self.interrupted(self.waker, self.fired);
        let is_soft = noted.moments.iter().any(|moment| {
            matches!(moment.what, What::TimerEntry { soft: true, .. })
                && moment.time.abs_diff(self.fired) < OWN_PATH
        });
        for piece in pieces {
            let Some(state) = &piece.state else {
                segments.push(self.segment(self.waker, &piece, Charge::nobody(Cause::Unknown)));
                continue;
            };
            let is_own = innermost(state).is_some_and(|hard| Some(hard.1) == own_interrupt);
            let charge = if is_own {
                self.of_own_interrupt(state, &piece)
            } else if let Some(charge) = self.of_interrupt(state, is_soft) {
                charge
            } else if self.is_silent_everywhere(self.waker, &piece) {
                Charge::nobody(Cause::LateTimer)
            } else {
                self.of_no_interrupt(state, &interrupted)
            };
            segments.push(self.segment(self.waker, &piece, charge));
        }
    }

    /// No interrupt was taken, though one was due.
    fn of_no_interrupt(&self, state: &State, interrupted: &Interrupted) -> Charge {
        let soft = state.soft_here();
        match &state.thread {
            None => Charge::nobody(Cause::Unknown),
            Some(Thread { tid: 0, .. }) if soft.is_none() => Charge::nobody(Cause::IdleExit),
            Some(_) if *interrupted == Interrupted::Program && soft.is_none() => {
                Charge::nobody(Cause::LateTimer)
            }
            Some(thread) => {
                let code = match interrupted {
                    Interrupted::Kernel(code) => code.clone(),
                    Interrupted::Program | Interrupted::Unknown => Vec::new(),
                };
                let who =
                    soft.map_or_else(|| name(thread), |soft| format!("soft interrupt {}", soft_name(soft)));
                Charge { cause: Cause::InterruptsOff, who, tid: thread.tid, code }
            }
        }
    }

    /// In the interrupt that is about the thread itself.
    fn of_own_interrupt(&self, state: &State, piece: &Piece) -> Charge {
        let is_long = piece.end - piece.begin >= OWN_PATH;
        let charge = is_long.then(|| self.of_interrupt(state, false)).flatten();
        charge.unwrap_or(Charge::nobody(Cause::OwnPath))
    }

    /// Whatever interrupt runs, hard or soft. A soft one lets hard ones through.
    fn of_interrupt(&self, state: &State, soft_counts: bool) -> Option<Charge> {
        if let Some((name, _)) = innermost(state) {
            let who = match state.timer {
                Some(function) => format!("{name}: {}", self.function(function)),
                None => name.clone(),
            };
            return Some(Charge { who, ..Charge::nobody(Cause::HardInterrupt) });
        }
        let soft = state.soft_here().filter(|_| soft_counts)?;
        let tid = state.thread.as_ref().map_or(0, |thread| thread.tid);
        Some(Charge { cause: Cause::SoftInterrupt, who: soft_name(soft), tid, code: Vec::new() })
    }

    /// From the handler to the wake-up.
    fn handler_runs(&self, segments: &mut Vec<Segment>) {
        let pieces = pieces(self.noted(self.waker), self.fired, self.woken);
        let own = pieces.first().and_then(|piece| innermost(piece.state.as_ref()?)).map(|hard| hard.1);
        for piece in pieces {
            let charge = match &piece.state {
                None => Charge::nobody(Cause::Unknown),
                Some(state) if innermost(state).map(|hard| hard.1) == own => {
                    self.of_own_interrupt(state, &piece)
                }
                Some(state) => self.of_interrupt(state, false).unwrap_or(Charge::nobody(Cause::OwnPath)),
            };
            segments.push(self.segment(self.waker, &piece, charge));
        }
    }

    /// From the wake-up to the switch.
    fn thread_waits(&self, segments: &mut Vec<Segment>) {
        for (cpu, from, to) in self.queues() {
            let noted = self.noted(cpu);
            let pieces = pieces(noted, from, to);
            let wait = Wait::new(self, (cpu, from, to), &pieces);
            for piece in &pieces {
                let charge = match &piece.state {
                    None => Charge::nobody(Cause::Unknown),
                    Some(state) => self.of_waiting(state, piece, &wait),
                };
                segments.push(self.segment(cpu, piece, charge));
            }
        }
    }

    /// The CPUs on which the thread waited, and from when to when.
    fn queues(&self) -> Vec<(u32, u64, u64)> {
        let mut moves: Vec<(u64, u32, u32)> = Vec::new();
        for moment in self.history.cpus.iter().flat_map(|cpu| &cpu.moments) {
            if let What::Migration { thread, from, to } = &moment.what {
                if thread.tid == self.question.tid && moment.time > self.woken && moment.time < self.end {
                    moves.push((moment.time, *from, *to));
                }
            }
        }
        moves.sort_unstable();
        let mut queues = Vec::new();
        let mut at = self.woken;
        for (time, from, _) in &moves {
            queues.push((*from, at, *time));
            at = *time;
        }
        queues.push((self.question.cpu, at, self.end));
        queues
    }

    fn of_waiting(&self, state: &State, piece: &Piece, wait: &Wait) -> Charge {
        let woke_it = |hard: &(String, u64)| wait.cpu == self.waker && hard.1 <= self.woken;
        if innermost(state).is_some_and(woke_it) {
            return self.of_own_interrupt(state, piece);
        }
        if let Some(charge) = self.of_interrupt(state, true) {
            return charge;
        }
        match &state.thread {
            None => Charge::nobody(Cause::Unknown),
            Some(thread) if thread.tid == self.question.tid => Charge::nobody(Cause::OwnPath),
            Some(Thread { tid: 0, .. }) => self.of_idle(piece, wait),
            Some(thread) if thread.priority <= self.question.priority => {
                Charge { cause: Cause::HigherPriority, who: name(thread), tid: thread.tid, code: Vec::new() }
            }
            Some(thread) => self.of_lower_one(thread, piece, wait),
        }
    }

    fn of_idle(&self, piece: &Piece, wait: &Wait) -> Charge {
        Charge::nobody(if wait.idle < OWN_PATH {
            Cause::OwnPath
        } else if self.is_silent_everywhere(wait.cpu, piece) {
            Cause::LateTimer
        } else {
            Cause::IdleExit
        })
    }

    /// A thread runs that should have been preempted.
    fn of_lower_one(&self, thread: &Thread, piece: &Piece, wait: &Wait) -> Charge {
        if wait.lower < OWN_PATH {
            return Charge::nobody(Cause::OwnPath);
        }
        let before_interrupt = wait.interrupt.is_some_and(|time| piece.begin < time);
        if wait.interrupted == Interrupted::Program || self.is_silent_everywhere(wait.cpu, piece) {
            return Charge::nobody(Cause::LateTimer);
        }
        let cause = if before_interrupt { Cause::InterruptsOff } else { Cause::PreemptionOff };
        let code = match &wait.interrupted {
            Interrupted::Kernel(code) => code.clone(),
            _ => switched_in(&self.question.stack),
        };
        Charge { cause, who: name(thread), tid: thread.tid, code }
    }

    fn others(&self, cpu: u32) -> impl Iterator<Item = &'a Noted> {
        self.history.cpus.iter().zip(0..).filter(move |(_, other)| *other != cpu).map(|(noted, _)| noted)
    }

    /// Whether no other CPU did anything.
    fn is_quiet_elsewhere(&self, cpu: u32, piece: &Piece) -> bool {
        let tenth = (piece.end - piece.begin) / 10;
        let middle = piece.begin + tenth..piece.end - tenth;
        self.others(cpu).all(|noted| {
            noted.known_from <= piece.begin
                && !noted.moments.iter().any(|moment| middle.contains(&moment.time))
        })
    }

    /// What firmware has done, if it came in a piece in which the CPU seemed to stand still, or to let no interrupt through. It stops
    /// all CPUs at once, so there must be signs of that on others, unless nothing else explains the piece; and code that is known to have
    /// run is evidence, of which the counter has none.
    fn or_firmware(&self, cpu: u32, piece: &Piece, charge: Charge) -> Charge {
        let may_be = match charge.cause {
            Cause::LateTimer => true,
            Cause::InterruptsOff | Cause::PreemptionOff | Cause::IdleExit => {
                charge.code.is_empty() && piece.end - piece.begin >= OWN_PATH && self.stands_still(cpu, piece)
            }
            _ => false,
        };
        let count = if may_be { interrupts(self.noted(cpu), piece.begin, piece.end) } else { 0 };
        let smis = match count {
            0 => return charge,
            1 => "1 SMI".to_owned(),
            _ => format!("{count} SMIs"),
        };
        let who = if charge.who.is_empty() { smis } else { format!("{smis} while {} ran", charge.who) };
        Charge { cause: Cause::Firmware, who, ..charge }
    }

    /// Whether no CPU did anything for long enough to mean something, and timers of others were late, too.
    fn is_silent_everywhere(&self, cpu: u32, piece: &Piece) -> bool {
        piece.end - piece.begin >= SILENCE && self.stands_still(cpu, piece)
    }

    /// Whether no other CPU did anything, and timers there were late.
    fn stands_still(&self, cpu: u32, piece: &Piece) -> bool {
        let length = piece.end - piece.begin;
        let has_late_timer = |noted: &Noted| {
            noted.moments.iter().any(|Moment { time, what }| match what {
                What::TimerEntry { intended, .. } => {
                    let both = (*time).min(piece.end).saturating_sub((*intended).max(piece.begin));
                    both >= length / 2
                }
                _ => false,
            })
        };
        self.is_quiet_elsewhere(cpu, piece) && self.others(cpu).any(has_late_timer)
    }

    /// What was interrupted on a CPU at a time, by the stack that was noted there.
    fn interrupted(&self, cpu: u32, at: u64) -> Interrupted {
        let noted = self.noted(cpu);
        let first = noted.moments.partition_point(|moment| moment.time < at);
        let soon =
            noted.moments.iter().skip(first).take_while(|moment| moment.time <= at.saturating_add(SOON));
        let stack = soon.filter_map(|moment| match &moment.what {
            What::Stack(number) => noted.stacks.get(number),
            _ => None,
        });
        stack
            .map(|stack| interrupted(stack))
            .find(|found| *found != Interrupted::Unknown)
            .unwrap_or(Interrupted::Unknown)
    }

    fn segment(&self, cpu: u32, piece: &Piece, charge: Charge) -> Segment {
        let Charge { cause, who, tid, code } = self.or_firmware(cpu, piece, charge);
        Segment { begin: piece.begin, end: piece.end, cpu, cause, who, tid, code }
    }

    fn function(&self, address: u64) -> String {
        self.history.functions.get(&address).cloned().unwrap_or_else(|| format!("timer {address:#x}"))
    }
}

/// What is known of a thread's waiting on a CPU.
struct Wait {
    cpu: u32,
    /// How long the CPU was idle altogether, and how long threads of lower priority ran.
    idle: u64,
    lower: u64,
    /// When the CPU took the interrupt that told it of the thread, where another one had woken it.
    interrupt: Option<u64>,
    interrupted: Interrupted,
}

impl Wait {
    fn new(case: &Case<'_>, (cpu, from, to): (u32, u64, u64), pieces: &[Piece]) -> Self {
        let (mut idle, mut lower) = (0, 0);
        for piece in pieces {
            let Some(State { hard, thread: Some(thread), .. }) = &piece.state else { continue };
            if !hard.is_empty() || thread.tid == case.question.tid {
                continue;
            }
            let length = piece.end - piece.begin;
            if thread.tid == 0 {
                idle += length;
            } else if thread.priority > case.question.priority {
                lower += length;
            }
        }
        let is_remote = cpu != case.waker || from != case.woken;
        let entry = |moment: &&Moment| {
            moment.time > from && moment.time <= to && matches!(moment.what, What::HardEntry { .. })
        };
        let interrupt =
            case.noted(cpu).moments.iter().find(entry).map(|moment| moment.time).filter(|_| is_remote);
        let interrupted = case.interrupted(cpu, interrupt.unwrap_or(from));
        Self { cpu, idle, lower, interrupt, interrupted }
    }
}

/// The CPU that woke the thread: where that was noted, next to the time. A thread with a deadline that waits by `sched_yield` is woken by
/// nobody: its timer lets it go on, where that went off.
fn waker(question: &Question, history: &History) -> u32 {
    let wakes = |what: &What| matches!(what, What::Woken { thread, .. } if thread.tid == question.tid);
    let replenishes = |what: &What| match what {
        What::TimerEntry { function, .. } => {
            history.functions.get(function).is_some_and(|name| name == REPLENISHES)
        }
        _ => false,
    };
    let noted = nearest(history, question.woken, wakes);
    let by_timer = || nearest(history, question.fired, replenishes).filter(|(far, _)| *far < NEAR);
    let found = noted.filter(|(far, _)| *far < NEAR).or_else(by_timer).or(noted);
    found.map_or(question.cpu, |(_, cpu)| cpu)
}

/// How far from a time something happened that is like this, and where.
fn nearest(history: &History, time: u64, is_it: impl Fn(&What) -> bool) -> Option<(u64, u32)> {
    let cpus = history.cpus.iter().zip(0..);
    let moments = cpus.flat_map(|(noted, cpu)| noted.moments.iter().map(move |moment| (moment, cpu)));
    let those = moments.filter(|(moment, _)| is_it(&moment.what));
    those.map(|(moment, cpu)| (moment.time.abs_diff(time), cpu)).min()
}

fn name(thread: &Thread) -> String {
    if thread.name.is_empty() { format!("thread {}", thread.tid) } else { thread.name.clone() }
}

/// The innermost interrupt.
fn innermost(state: &State) -> Option<&(String, u64)> {
    state.hard.last()
}

/// The name of a soft interrupt.
pub(super) fn soft_name(number: u32) -> String {
    SOFT_INTERRUPTS.get(number as usize).map_or_else(|| "one of the kernel's".into(), |name| (*name).into())
}

/// Where interrupts enter the kernel (`arch/x86/entry/entry_64.S`, `arch/arm64/kernel/entry.S`).
fn is_entry(function: &str) -> bool {
    ["asm_sysvec_", "asm_common_interrupt", "el1h_64_irq", "el0t_64_irq"]
        .iter()
        .any(|entry| function.starts_with(entry))
}

/// What lies below the interrupt in a stack.
fn interrupted(stack: &[String]) -> Interrupted {
    let Some(entry) = stack.iter().position(|function| is_entry(function)) else {
        return Interrupted::Unknown;
    };
    match stack.get(entry + 1..) {
        Some([]) | None => Interrupted::Program,
        Some(_) if stack.get(entry).is_some_and(|entry| entry.starts_with("el0")) => Interrupted::Program,
        Some(code) => Interrupted::Kernel(code.to_vec()),
    }
}

/// The code that let the switch happen at last: what lies below the scheduler in the stack of the switch.
fn switched_in(stack: &[String]) -> Vec<String> {
    let is_scheduler = |function: &String| {
        ["schedule", "__schedule", "preempt_schedule", "__cond_resched"]
            .iter()
            .any(|name| function.starts_with(name))
    };
    let below = stack.iter().rposition(is_scheduler).map_or(stack.len(), |last| last + 1);
    stack.get(below..).unwrap_or_default().to_vec()
}

/// The code that a stack says had a CPU: what an interrupt interrupted, else what lies below the scheduler. Empty of a program.
pub(crate) fn code_of(stack: &[String]) -> Vec<String> {
    match interrupted(stack) {
        Interrupted::Kernel(code) => code,
        Interrupted::Program => Vec::new(),
        Interrupted::Unknown => switched_in(stack),
    }
}

/// Neighbours of one charge are one segment.
pub(super) fn merged(segments: Vec<Segment>) -> Vec<Segment> {
    let mut merged: Vec<Segment> = Vec::new();
    for segment in segments {
        match merged.last_mut() {
            Some(last)
                if (last.cause, last.cpu, last.tid, &last.who)
                    == (segment.cause, segment.cpu, segment.tid, &segment.who) =>
            {
                last.end = segment.end;
                if last.code.is_empty() {
                    last.code = segment.code;
                }
            }
            _ => merged.push(segment),
        }
    }
    merged
}

#[cfg(test)]
#[path = "charge_tests.rs"]
mod tests;
