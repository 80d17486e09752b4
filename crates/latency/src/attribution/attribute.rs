//! Attribution of a latency: splits it into segments, each with a cause.
//!
//! Between intended expiry and the timer's handler, the state of the CPU is the cause: what ran
//! while no interrupt was taken. Between wakeup and switch it is whatever ran instead.
//! `docs/design/blame.md` has the rules and their reasons.

use std::collections::BTreeMap;

use super::{
    Cause, CpuLog, EventLog, LatencyInterval, Segment,
    firmware::interrupts,
    sched_events::{EventKind, SchedEvent, Thread},
    timeline::{Piece, SOFT_INTERRUPTS, State, pieces},
};

/// Maximum time that the kernel itself needs to take an interrupt, to wake a thread or to switch to
/// it, in nanoseconds. Shorter pieces have no other cause.
const MAX_KERNEL_PATH_NS: u64 = 10_000;
/// Minimum length of a silence of all CPUs that counts as one, in nanoseconds.
const MIN_SILENCE_NS: u64 = 50_000;
/// Maximum delay between an event and its stack, in nanoseconds.
const MAX_STACK_DELAY_NS: u64 = 200_000;
/// Maximum skew between two BPF programs that record one event, vCPU preemption aside, in
/// nanoseconds.
const PROBE_SKEW_NS: u64 = 20_000;
/// Handler of the timer that replenishes a deadline thread (`kernel/sched/deadline.c`).
const REPLENISHES: &str = "dl_task_timer";

/// Attributes each nanosecond of a latency to a cause. The segments are in order and add up to the
/// latency, whatever the log contains.
pub fn attribute(question: &LatencyInterval, history: &EventLog) -> Vec<Segment> {
    let case = Attribution::new(question, history);
    let mut segments = Vec::new();
    case.timer_is_late(&mut segments);
    case.handler_runs(&mut segments);
    case.thread_waits(&mut segments);
    merged(segments)
}

/// Cause of a piece, with the thread or interrupt and its code.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Charge {
    cause: Cause,
    who: String,
    tid: u32,
    code: Vec<String>,
}

impl Charge {
    fn anonymous(cause: Cause) -> Self {
        Self { cause, who: String::new(), tid: 0, code: Vec::new() }
    }
}

/// Code that an interrupt interrupted.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Interrupted {
    /// A program in user space, where interrupts and preemption are always enabled.
    Program,
    /// The kernel: functions, the innermost first.
    Kernel(Vec<String>),
    /// Unknown code.
    Unknown,
}

struct Attribution<'a> {
    question: &'a LatencyInterval,
    history: &'a EventLog,
    /// CPU of the timer and of the wakeup.
    waker: u32,
    begin: u64,
    fired: u64,
    woken: u64,
    end: u64,
}

impl<'a> Attribution<'a> {
    fn new(question: &'a LatencyInterval, history: &'a EventLog) -> Self {
        let (begin, end) = (question.begin(), question.end);
        let fired = if question.intended == 0 { begin } else { question.fired.clamp(begin, end) };
        let woken = question.woken.clamp(fired, end);
        let waker = waker(question, history);
        Self { question, history, waker, begin, fired, woken, end }
    }

    fn noted(&self, cpu: u32) -> &'a CpuLog {
        static NOTHING: CpuLog = CpuLog { events: Vec::new(), known_from: u64::MAX, stacks: BTreeMap::new() };
        self.history.cpus.get(cpu as usize).unwrap_or(&NOTHING)
    }

    /// Attributes the time from the intended expiry to the handler.
    fn timer_is_late(&self, segments: &mut Vec<Segment>) {
        let noted = self.noted(self.waker);
        let pieces = pieces(noted, self.begin, self.fired);
        let own_interrupt =
            pieces.last().and_then(|piece| innermost(piece.state.as_ref()?)).map(|hard| hard.1);
        let interrupted = self.interrupted(self.waker, self.fired);
        let is_soft = noted.events.iter().any(|event| {
            matches!(event.kind, EventKind::TimerEntry { soft: true, .. })
                && event.time.abs_diff(self.fired) < MAX_KERNEL_PATH_NS
        });
        for piece in pieces {
            let Some(state) = &piece.state else {
                segments.push(self.segment(self.waker, &piece, Charge::anonymous(Cause::Unknown)));
                continue;
            };
            let is_own = innermost(state).is_some_and(|hard| Some(hard.1) == own_interrupt);
            let charge = if is_own {
                self.of_own_interrupt(state, &piece)
            } else if let Some(charge) = self.of_interrupt(state, is_soft) {
                charge
            } else if self.is_silent_everywhere(self.waker, &piece) {
                Charge::anonymous(Cause::LateTimer)
            } else {
                self.of_no_interrupt(state, &interrupted)
            };
            segments.push(self.segment(self.waker, &piece, charge));
        }
    }

    /// Attributes a piece in which no interrupt was taken, though one was due.
    fn of_no_interrupt(&self, state: &State, interrupted: &Interrupted) -> Charge {
        let soft = state.soft_here();
        match &state.thread {
            None => Charge::anonymous(Cause::Unknown),
            Some(Thread { tid: 0, .. }) if soft.is_none() => Charge::anonymous(Cause::IdleExit),
            Some(_) if *interrupted == Interrupted::Program && soft.is_none() => {
                Charge::anonymous(Cause::LateTimer)
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

    /// Attributes a piece within the interrupt that concerns the thread itself.
    fn of_own_interrupt(&self, state: &State, piece: &Piece) -> Charge {
        let is_long = piece.end - piece.begin >= MAX_KERNEL_PATH_NS;
        let charge = is_long.then(|| self.of_interrupt(state, false)).flatten();
        charge.unwrap_or(Charge::anonymous(Cause::KernelOverhead))
    }

    /// Attributes a piece in which an interrupt or softirq runs. A softirq doesn't delay
    /// interrupts.
    fn of_interrupt(&self, state: &State, soft_counts: bool) -> Option<Charge> {
        if let Some((name, _)) = innermost(state) {
            let who = match state.timer {
                Some(function) => format!("{name}: {}", self.function(function)),
                None => name.clone(),
            };
            return Some(Charge { who, ..Charge::anonymous(Cause::IrqInterference) });
        }
        let soft = state.soft_here().filter(|_| soft_counts)?;
        let tid = state.thread.as_ref().map_or(0, |thread| thread.tid);
        Some(Charge { cause: Cause::SoftirqInterference, who: soft_name(soft), tid, code: Vec::new() })
    }

    /// Attributes the time from the handler to the wakeup.
    fn handler_runs(&self, segments: &mut Vec<Segment>) {
        let pieces = pieces(self.noted(self.waker), self.fired, self.woken);
        let own = pieces.first().and_then(|piece| innermost(piece.state.as_ref()?)).map(|hard| hard.1);
        for piece in pieces {
            let charge = match &piece.state {
                None => Charge::anonymous(Cause::Unknown),
                Some(state) if innermost(state).map(|hard| hard.1) == own => {
                    self.of_own_interrupt(state, &piece)
                }
                Some(state) => {
                    self.of_interrupt(state, false).unwrap_or(Charge::anonymous(Cause::KernelOverhead))
                }
            };
            segments.push(self.segment(self.waker, &piece, charge));
        }
    }

    /// Attributes the time from the wakeup to the switch.
    fn thread_waits(&self, segments: &mut Vec<Segment>) {
        for (cpu, from, to) in self.queues() {
            let noted = self.noted(cpu);
            let pieces = pieces(noted, from, to);
            let wait = Wait::new(self, (cpu, from, to), &pieces);
            for piece in &pieces {
                let charge = match &piece.state {
                    None => Charge::anonymous(Cause::Unknown),
                    Some(state) => self.of_waiting(state, piece, &wait),
                };
                segments.push(self.segment(cpu, piece, charge));
            }
        }
    }

    /// Returns the CPUs on which the thread was queued, with begin and end.
    fn queues(&self) -> Vec<(u32, u64, u64)> {
        let mut moves: Vec<(u64, u32, u32)> = Vec::new();
        for event in self.history.cpus.iter().flat_map(|cpu| &cpu.events) {
            if let EventKind::Migration { thread, from, to } = &event.kind {
                if thread.tid == self.question.tid && event.time > self.woken && event.time < self.end {
                    moves.push((event.time, *from, *to));
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
            None => Charge::anonymous(Cause::Unknown),
            Some(thread) if thread.tid == self.question.tid => Charge::anonymous(Cause::KernelOverhead),
            Some(Thread { tid: 0, .. }) => self.of_idle(piece, wait),
            Some(thread) if thread.priority <= self.question.priority => Charge {
                cause: Cause::ThreadInterference,
                who: name(thread),
                tid: thread.tid,
                code: Vec::new(),
            },
            Some(thread) => self.of_lower_one(thread, piece, wait),
        }
    }

    fn of_idle(&self, piece: &Piece, wait: &Wait) -> Charge {
        Charge::anonymous(if wait.idle < MAX_KERNEL_PATH_NS {
            Cause::KernelOverhead
        } else if self.is_silent_everywhere(wait.cpu, piece) {
            Cause::LateTimer
        } else {
            Cause::IdleExit
        })
    }

    /// Attributes a piece in which a thread ran that should have been preempted.
    fn of_lower_one(&self, thread: &Thread, piece: &Piece, wait: &Wait) -> Charge {
        if wait.lower < MAX_KERNEL_PATH_NS {
            return Charge::anonymous(Cause::KernelOverhead);
        }
        let before_interrupt = wait.interrupt.is_some_and(|time| piece.begin < time);
        if wait.interrupted == Interrupted::Program || self.is_silent_everywhere(wait.cpu, piece) {
            return Charge::anonymous(Cause::LateTimer);
        }
        let cause = if before_interrupt { Cause::InterruptsOff } else { Cause::PreemptionOff };
        let code = match &wait.interrupted {
            Interrupted::Kernel(code) => code.clone(),
            _ => switched_in(&self.question.stack),
        };
        Charge { cause, who: name(thread), tid: thread.tid, code }
    }

    fn others(&self, cpu: u32) -> impl Iterator<Item = &'a CpuLog> {
        self.history.cpus.iter().zip(0..).filter(move |(_, other)| *other != cpu).map(|(noted, _)| noted)
    }

    /// Returns whether no other CPU recorded an event.
    fn is_quiet_elsewhere(&self, cpu: u32, piece: &Piece) -> bool {
        let tenth = (piece.end - piece.begin) / 10;
        let middle = piece.begin + tenth..piece.end - tenth;
        self.others(cpu).all(|noted| {
            noted.known_from <= piece.begin && !noted.events.iter().any(|event| middle.contains(&event.time))
        })
    }

    /// Replaces the cause by firmware if system management interrupts occurred in a piece in which
    /// the CPU stood still or took no interrupt. They stop all CPUs at once, so other CPUs must
    /// show it too, unless nothing else explains the piece. Known code is evidence against
    /// firmware; the counter alone has no times.
    fn or_firmware(&self, cpu: u32, piece: &Piece, charge: Charge) -> Charge {
        let may_be = match charge.cause {
            Cause::LateTimer => true,
            Cause::InterruptsOff | Cause::PreemptionOff | Cause::IdleExit => {
                charge.code.is_empty()
                    && piece.end - piece.begin >= MAX_KERNEL_PATH_NS
                    && self.stands_still(cpu, piece)
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

    /// Returns whether no CPU did anything for long enough to be significant, and timers of others
    /// were late.
    fn is_silent_everywhere(&self, cpu: u32, piece: &Piece) -> bool {
        piece.end - piece.begin >= MIN_SILENCE_NS && self.stands_still(cpu, piece)
    }

    /// Returns whether no other CPU did anything, and timers there were late.
    fn stands_still(&self, cpu: u32, piece: &Piece) -> bool {
        let length = piece.end - piece.begin;
        let has_late_timer = |noted: &CpuLog| {
            noted.events.iter().any(|SchedEvent { time, kind }| match kind {
                EventKind::TimerEntry { intended, .. } => {
                    let both = (*time).min(piece.end).saturating_sub((*intended).max(piece.begin));
                    both >= length / 2
                }
                _ => false,
            })
        };
        self.is_quiet_elsewhere(cpu, piece) && self.others(cpu).any(has_late_timer)
    }

    /// Returns the code interrupted on a CPU at a time, by the stack recorded there.
    fn interrupted(&self, cpu: u32, at: u64) -> Interrupted {
        let noted = self.noted(cpu);
        let first = noted.events.partition_point(|event| event.time < at);
        let soon = noted
            .events
            .iter()
            .skip(first)
            .take_while(|event| event.time <= at.saturating_add(MAX_STACK_DELAY_NS));
        let stack = soon.filter_map(|event| match &event.kind {
            EventKind::Stack(number) => noted.stacks.get(number),
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

/// Facts about a thread's wait on one CPU.
struct Wait {
    cpu: u32,
    /// Time for which the CPU was idle, and for which threads of lower priority ran.
    idle: u64,
    lower: u64,
    /// Time of the interrupt that notified the CPU of the thread, if another CPU woke it.
    interrupt: Option<u64>,
    interrupted: Interrupted,
}

impl Wait {
    fn new(case: &Attribution<'_>, (cpu, from, to): (u32, u64, u64), pieces: &[Piece]) -> Self {
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
        let entry = |event: &&SchedEvent| {
            event.time > from && event.time <= to && matches!(event.kind, EventKind::HardEntry { .. })
        };
        let interrupt =
            case.noted(cpu).events.iter().find(entry).map(|event| event.time).filter(|_| is_remote);
        let interrupted = case.interrupted(cpu, interrupt.unwrap_or(from));
        Self { cpu, idle, lower, interrupt, interrupted }
    }
}

/// Returns the CPU that woke the thread: that of the nearest recorded wakeup. A deadline thread
/// that waits in `sched_yield` has no wakeup: its timer lets it continue, on the CPU of the timer.
fn waker(question: &LatencyInterval, history: &EventLog) -> u32 {
    let wakes =
        |kind: &EventKind| matches!(kind, EventKind::Woken { thread, .. } if thread.tid == question.tid);
    let replenishes = |kind: &EventKind| match kind {
        EventKind::TimerEntry { function, .. } => {
            history.functions.get(function).is_some_and(|name| name == REPLENISHES)
        }
        _ => false,
    };
    let noted = nearest(history, question.woken, wakes);
    let by_timer = || nearest(history, question.fired, replenishes).filter(|(far, _)| *far < PROBE_SKEW_NS);
    let found = noted.filter(|(far, _)| *far < PROBE_SKEW_NS).or_else(by_timer).or(noted);
    found.map_or(question.cpu, |(_, cpu)| cpu)
}

/// Distance and CPU of the event nearest to a time that fulfils a condition.
fn nearest(history: &EventLog, time: u64, is_it: impl Fn(&EventKind) -> bool) -> Option<(u64, u32)> {
    let cpus = history.cpus.iter().zip(0..);
    let events = cpus.flat_map(|(noted, cpu)| noted.events.iter().map(move |event| (event, cpu)));
    let those = events.filter(|(event, _)| is_it(&event.kind));
    those.map(|(event, cpu)| (event.time.abs_diff(time), cpu)).min()
}

fn name(thread: &Thread) -> String {
    if thread.name.is_empty() { format!("thread {}", thread.tid) } else { thread.name.clone() }
}

/// Innermost interrupt.
fn innermost(state: &State) -> Option<&(String, u64)> {
    state.hard.last()
}

/// Name of a softirq.
pub(super) fn soft_name(number: u32) -> String {
    SOFT_INTERRUPTS.get(number as usize).map_or_else(|| "one of the kernel's".into(), |name| (*name).into())
}

/// Returns whether a function is an entry of interrupts (`arch/x86/entry/entry_64.S`,
/// `arch/arm64/kernel/entry.S`).
fn is_entry(function: &str) -> bool {
    ["asm_sysvec_", "asm_common_interrupt", "el1h_64_irq", "el0t_64_irq"]
        .iter()
        .any(|entry| function.starts_with(entry))
}

/// Returns the code below the interrupt's entry in a stack.
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

/// Returns the code that finally allowed the switch: what lies below the scheduler in its stack.
fn switched_in(stack: &[String]) -> Vec<String> {
    let is_scheduler = |function: &String| {
        ["schedule", "__schedule", "preempt_schedule", "__cond_resched"]
            .iter()
            .any(|name| function.starts_with(name))
    };
    let below = stack.iter().rposition(is_scheduler).map_or(stack.len(), |last| last + 1);
    stack.get(below..).unwrap_or_default().to_vec()
}

/// Returns the code that occupied a CPU by its stack: the interrupted code, else what lies below
/// the scheduler. Empty for a program.
pub(crate) fn code_of(stack: &[String]) -> Vec<String> {
    match interrupted(stack) {
        Interrupted::Kernel(code) => code,
        Interrupted::Program => Vec::new(),
        Interrupted::Unknown => switched_in(stack),
    }
}

/// Merges neighbouring segments with equal causes.
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
#[path = "attribute_tests.rs"]
mod tests;
