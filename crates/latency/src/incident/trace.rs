//! Trace of an incident: the recorded events as kernel events, and the segments as spans of the
//! late thread, so that every reader shows both.

use tompion_kernel::events::{KNOWN, WAKER_CONTEXTS};
use tompion_schema::{Event, Field, Integer, Kind, Level, Type};
use tompion_writer::{Origin, SyntheticEvent, SyntheticSource};

use super::Incident;
use crate::{
    attribution::{Cause, EventKind, Thread},
    threshold::Capture,
};

/// Offset of priorities in kernel events.
const NO_PRIORITY: i32 = 100;

/// Kernel events in the order of [`KernelClass`].
const NAMES: [&str; 9] = [
    "sched_switch",
    "irq_handler_entry",
    "irq_handler_exit",
    "irq_softirq_entry",
    "irq_softirq_exit",
    "timer_hrtimer_expire_entry",
    "timer_hrtimer_expire_exit",
    "sched_waking",
    "sched_migrate_task",
];

/// Event classes as indices into [`NAMES`].
enum KernelClass {
    Switch,
    HardEntry,
    HardExit,
    SoftEntry,
    SoftExit,
    TimerEntry,
    TimerExit,
    Waking,
    Migration,
}

/// Makes the sources of an incident's trace.
pub fn of(incident: &Incident, caught: &Capture) -> Vec<SyntheticSource> {
    vec![kernel(caught), spans(incident)]
}

/// Encoder of an event's payload.
#[derive(Default)]
struct Payload {
    fixed: Vec<u8>,
    tails: Vec<u8>,
}

impl Payload {
    fn half(mut self, number: i32) -> Self {
        self.fixed.extend(number.to_le_bytes());
        self
    }

    fn word(mut self, number: u64) -> Self {
        self.fixed.extend(number.to_le_bytes());
        self
    }

    /// Appends a name of 16 bytes.
    fn name(mut self, name: &str) -> Self {
        let mut bytes = name.as_bytes().iter().copied().take(15).collect::<Vec<u8>>();
        bytes.resize(16, 0);
        self.tails.extend(bytes);
        self
    }

    fn text(mut self, text: &str) -> Self {
        self.fixed.extend((text.len() as u32).to_le_bytes());
        self.tails.extend(text.as_bytes());
        self
    }

    fn done(mut self) -> Vec<u8> {
        self.fixed.append(&mut self.tails);
        self.fixed
    }
}

fn kernel(caught: &Capture) -> SyntheticSource {
    let known = |name: &&str| KNOWN.iter().find(|known| known.name == *name);
    let classes = NAMES.iter().filter_map(known).map(|known| known.event()).collect();
    let mut events = Vec::new();
    for (noted, cpu) in caught.history.cpus.iter().zip(0..) {
        // The previous thread of the first switch ran before.
        let first = noted.events.iter().find_map(|event| match &event.kind {
            EventKind::Switch { previous, .. } => Some(previous.clone()),
            _ => None,
        });
        let mut thread = first.unwrap_or_default();
        let mut context = Context::default();
        for event in &noted.events {
            context.follow(&event.kind);
            let converted = event_of(&event.kind, event.time, (&thread, &context));
            if let Some((class, payload)) = converted {
                events.push(SyntheticEvent {
                    class: class as usize,
                    time: event.time,
                    cpu,
                    tid: thread.tid,
                    payload,
                });
            }
            if let EventKind::Switch { next, .. } = &event.kind {
                thread = next.clone();
            }
        }
    }
    events.sort_by_key(|event| event.time);
    SyntheticSource { origin: Origin::Kernel, classes, events, overwritten: caught.overwritten.iter().sum() }
}

/// State of a thread as kernel events report it (`__task_state_index`).
fn reported(state: u32) -> u64 {
    const UNINTERRUPTIBLE: u32 = 0x2;
    const DEAD: u32 = 0x80;
    const IDLE: u32 = UNINTERRUPTIBLE | 0x400;
    const WAITS_FOR_LOCK: u32 = 0x1000;
    match state {
        // EXIT_DEAD, which the kernel adds elsewhere.
        _ if state & DEAD != 0 => 0x10,
        _ if state & IDLE == IDLE => 0x80,
        _ if state & WAITS_FOR_LOCK != 0 => UNINTERRUPTIBLE.into(),
        _ => (state & 0x7f).checked_ilog2().map_or(0, |bit| 1 << bit),
    }
}

/// Interrupt context of a CPU, from which wakeups come. Unknown until a switch, which no interrupt
/// does, or the start of a handler.
#[derive(Debug, Default)]
struct Context {
    is_known: bool,
    hard: u32,
    soft: bool,
    timer: bool,
}

impl Context {
    fn follow(&mut self, kind: &EventKind) {
        match kind {
            EventKind::Switch { .. } => *self = Self { is_known: true, ..Self::default() },
            EventKind::HardEntry { .. } => self.hard += 1,
            EventKind::HardExit(_) => self.hard = self.hard.saturating_sub(1),
            EventKind::SoftEntry(_) => self.soft = true,
            EventKind::SoftExit(_) => self.soft = false,
            EventKind::TimerEntry { .. } => self.timer = true,
            EventKind::TimerExit => self.timer = false,
            _ => {}
        }
    }

    /// Index in [`tompion_kernel::events::WAKER_CONTEXTS`].
    fn number(&self) -> i32 {
        let name = match self {
            _ if self.timer => "timer",
            _ if self.hard > 0 => "interrupt",
            _ if self.soft => "softirq",
            _ if self.is_known => "thread",
            _ => "unknown",
        };
        WAKER_CONTEXTS.iter().zip(0..).find(|(known, _)| **known == name).map_or(0, |(_, number)| number)
    }
}

/// Converts an event to a kernel event. Interrupts of the CPU are shown as device interrupts by
/// their vectors, so that readers show all alike.
fn event_of(
    kind: &EventKind,
    time: u64,
    (thread, context): (&Thread, &Context),
) -> Option<(KernelClass, Vec<u8>)> {
    let payload = Payload::default();
    Some(match kind {
        EventKind::Switch { next, previous, state } => {
            let from = payload
                .half(previous.tid as i32)
                .half(previous.priority - NO_PRIORITY)
                .word(reported(*state));
            let to = from.half(next.tid as i32).half(next.priority - NO_PRIORITY);
            (KernelClass::Switch, to.name(&thread.name).name(&next.name).done())
        }
        EventKind::HardEntry { number, name, .. } => {
            // The number has a field of its own.
            let name = name.strip_prefix(&format!("irq {number} ")).unwrap_or(name);
            (KernelClass::HardEntry, payload.half(*number as i32).text(name).done())
        }
        EventKind::HardExit(number) => (KernelClass::HardExit, payload.half(*number as i32).half(1).done()),
        EventKind::SoftEntry(number) => (KernelClass::SoftEntry, payload.half(*number as i32).done()),
        EventKind::SoftExit(number) => (KernelClass::SoftExit, payload.half(*number as i32).done()),
        EventKind::TimerEntry { function, .. } => {
            (KernelClass::TimerEntry, payload.word(0).word(time).word(*function).done())
        }
        EventKind::TimerExit => (KernelClass::TimerExit, payload.word(0).done()),
        EventKind::Woken { thread, cpu, .. } => {
            let woken = payload.half(thread.tid as i32).half(thread.priority - NO_PRIORITY).half(*cpu as i32);
            (KernelClass::Waking, woken.half(context.number()).name(&thread.name).done())
        }
        EventKind::Migration { thread, from, to } => {
            let moved = payload.half(thread.tid as i32).half(thread.priority - NO_PRIORITY);
            (KernelClass::Migration, moved.half(*from as i32).half(*to as i32).name(&thread.name).done())
        }
        EventKind::Idle(_) | EventKind::Stack(_) | EventKind::Firmware { .. } => return None,
    })
}

/// Makes an event class of the incident; begins have a text and a length in nanoseconds.
fn class(name: String, kind: Kind, length: &str) -> Event {
    let fields = match kind {
        Kind::End => Vec::new(),
        _ => vec![Field::new(length, Type::Integer(Integer::unsigned(64))), Field::new("why", Type::String)],
    };
    Event {
        provider: "late".into(),
        name,
        level: Level::DEFAULT,
        kind,
        init: false,
        format: None,
        attributes: Default::default(),
        fields,
    }
}

/// Makes spans of the thread: the latency, or a job's response with its deadline, and the segments.
/// The begin of a job's code is an event in between.
fn spans(incident: &Incident) -> SyntheticSource {
    let (latency, limit) = (incident.latency_ns / 1000, incident.limit_ns / 1000);
    let (whole, kind, first, number, why) = match &incident.job {
        Some(job) => {
            let why = format!("{} took {latency} µs; the deadline is {limit} µs", job.name);
            ("response", Kind::Job, "deadline_ns", incident.limit_ns, why)
        }
        None => {
            let why = format!("ran {latency} µs late; limit {limit} µs");
            ("latency", Kind::Begin, "ns", incident.latency_ns, why)
        }
    };
    let mut classes =
        vec![class(format!("{whole}_begin"), kind, first), class(format!("{whole}_end"), Kind::End, "")];
    for cause in Cause::ALL {
        let name = name_of(cause);
        classes.push(class(format!("{name}_begin"), Kind::Begin, "ns"));
        classes.push(class(format!("{name}_end"), Kind::End, ""));
    }
    let (tid, cpu) = (incident.thread.tid, incident.question.cpu);
    let span_event = |class, time, payload| SyntheticEvent { class, time, cpu, tid, payload };
    let (begin, end) = (incident.question.begin(), incident.question.end);
    let mut events = vec![span_event(0, begin, Payload::default().word(number).text(&why).done())];
    for segment in &incident.segments {
        let place = Cause::ALL.iter().position(|cause| *cause == segment.cause).unwrap_or_default();
        let payload = Payload::default().word(segment.length()).text(&segment.in_words()).done();
        events.push(span_event(2 + place * 2, segment.begin, payload));
        events.push(span_event(3 + place * 2, segment.end, Vec::new()));
    }
    events.push(span_event(1, end, Vec::new()));
    if let Some(job) = &incident.job {
        let time = job.begin_ns.clamp(begin, end);
        let payload = Payload::default().word(time - begin).text(&format!("{} begins", job.name)).done();
        let place = events.partition_point(|event| event.time <= time).clamp(1, events.len() - 1);
        events.insert(place, span_event(classes.len(), time, payload));
        classes.push(class("job_begins".into(), Kind::Instant, "after_ns"));
    }
    let origin = Origin::Program(incident.pid, incident.thread.name.clone());
    SyntheticSource { origin, classes, events, overwritten: 0 }
}

/// Name of a cause as an identifier: `interrupts_off`.
fn name_of(cause: Cause) -> String {
    cause.name().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_reported_as_the_kernels_events_do() {
        // As reported: running, sleep, disk, stopped, parked, idle, dead, a lock.
        let states = [(0, 0), (1, 1), (2, 2), (4, 4), (0x40, 0x40), (0x402, 0x80), (0x80, 0x10), (0x1000, 2)];
        for (own, expected) in states {
            assert_eq!(reported(own), expected, "{own:#x}");
        }
    }

    #[test]
    fn wake_ups_come_from_what_runs() {
        let mut context = Context::default();
        assert_eq!(context.number(), 0, "the start is unknown");
        let entry = EventKind::HardEntry { number: 1, name: "eth0".into(), runs: None };
        let timer = EventKind::TimerEntry { intended: 0, function: 1, soft: false };
        let thread = Thread::default();
        let switch = EventKind::Switch { next: thread.clone(), previous: thread, state: 0 };
        let steps = [
            (EventKind::HardExit(1), 0),
            (switch, 1),
            (EventKind::SoftEntry(1), 2),
            (entry, 3),
            (timer, 4),
            (EventKind::TimerExit, 3),
            (EventKind::HardExit(1), 2),
            (EventKind::SoftExit(1), 1),
        ];
        for (kind, expected) in steps {
            context.follow(&kind);
            assert_eq!(context.number(), expected, "{kind:?}");
        }
    }
}
