//! Attribution of a job's response time, from its release to its end.
//!
//! ```text
//!  release       runs               leaves CPU     woken         runs               end
//!     │ attribute() │ work, interrupts │    waits   │ attribute() │ work, interrupts │
//!
//! Until the job runs first, and whenever it is runnable but not running, the interval is a latency
//! like any other ([`attribute()`]).

use super::{
    Cause, CpuLog, EventLog, LatencyInterval, Segment,
    attribute::{attribute, merged, soft_name},
    sched_events::EventKind,
    timeline::{Piece, pieces},
};
use crate::jobs::Wake;

/// Tolerance between the time of a switch and the time other programs know of it, in nanoseconds.
const SWITCH_SLACK_NS: u64 = 100_000;

/// Splits an activation into segments, each with its cause. `interval` is about release and end;
/// `wake` is the wakeup that was the release, if there was one. The segments are in order and add
/// up to the response time, whatever the log contains.
pub fn attribute_job(question: &LatencyInterval, wake: Option<&Wake>, history: &EventLog) -> Vec<Segment> {
    let (begin, end) = (question.begin(), question.end);
    let steps = steps(question.tid, history);
    let mut course = Course { question, history, segments: Vec::new(), at: begin };
    let mut now = state_at(&steps, begin).unwrap_or(Now::Runs(question.cpu));
    if let Some(wake) = wake {
        // A late job was busy until it set the timer.
        if wake.intended != 0 && wake.intended > begin {
            let armed = wake.intended.min(end);
            now = course.go(now, &steps, armed);
            course.finish(now, armed);
        }
        let (time, cpu) = switch_at(&steps, wake.running).unwrap_or((wake.running, question.cpu));
        let time = time.clamp(course.at, end);
        let intended = if wake.intended == 0 { 0 } else { course.at };
        course.latency(LatencyInterval {
            intended,
            woken: wake.woken.max(course.at),
            end: time,
            cpu,
            ..question.clone()
        });
        now = Now::Runs(cpu);
    }
    now = course.go(now, &steps, end);
    course.finish(now, end);
    merged(course.segments)
}

/// Time and CPU of the switch to the thread, if one was recorded near a time.
fn switch_at(steps: &[Step<'_>], time: u64) -> Option<(u64, u32)> {
    let switches = steps.iter().filter(|step| matches!(step.kind, Kind::Runs));
    let near = switches.filter(|step| step.time.abs_diff(time) <= SWITCH_SLACK_NS);
    near.min_by_key(|step| step.time.abs_diff(time)).map(|step| (step.time, step.cpu))
}

/// Returns the thread's last CPU and priority at a time, as far as recorded.
pub fn place_of(tid: u32, at: u64, history: &EventLog) -> Option<(u32, i32)> {
    let mut last = None;
    for (noted, cpu) in history.cpus.iter().zip(0..) {
        for event in noted.events.iter().filter(|event| event.time <= at) {
            if let EventKind::Switch { next, previous, .. } = &event.kind {
                let thread = [next, previous].into_iter().find(|thread| thread.tid == tid);
                let found = thread.map(|thread| (event.time, cpu, thread.priority));
                last = last.max(found);
            }
        }
    }
    last.map(|(_, cpu, priority)| (cpu, priority))
}

/// Change of the thread's state.
enum Kind<'a> {
    Runs,
    /// Runnable, but taken off the CPU.
    Preempted,
    Sleeps,
    /// Name and number of the waking thread; an interrupt has the number 0.
    Woken(&'a str, u32),
}

struct Step<'a> {
    time: u64,
    cpu: u32,
    kind: Kind<'a>,
}

/// Current state of the thread.
enum Now {
    Runs(u32),
    /// Begin, and the CPU of its queue.
    Waits(u64, u32),
    Sleeps(u32),
}

fn steps(tid: u32, history: &EventLog) -> Vec<Step<'_>> {
    let mut steps = Vec::new();
    for (noted, cpu) in history.cpus.iter().zip(0..) {
        let mut runs = Party::NONE;
        let mut interrupts: Vec<&str> = Vec::new();
        for event in &noted.events {
            let time = event.time;
            let mut add = |kind| steps.push(Step { time, cpu, kind });
            match &event.kind {
                EventKind::Switch { next, previous, state } => {
                    if previous.tid == tid {
                        add(if *state == 0 { Kind::Preempted } else { Kind::Sleeps });
                    }
                    if next.tid == tid {
                        add(Kind::Runs);
                    }
                    runs = Party { name: &next.name, tid: next.tid };
                    interrupts.clear();
                }
                EventKind::HardEntry { name, .. } => interrupts.push(name),
                EventKind::HardExit(_) => drop(interrupts.pop()),
                EventKind::Woken { thread, .. } if thread.tid == tid => {
                    // The interrupted thread has no part in it.
                    let Party { name: who, tid: by } =
                        interrupts.last().map_or(runs, |interrupt| Party { name: interrupt, tid: 0 });
                    add(Kind::Woken(who, by));
                }
                _ => {}
            }
        }
    }
    steps.sort_by_key(|step| step.time);
    steps
}

/// State of the thread at a time: from the last step before it, else from the first step after it.
fn state_at(steps: &[Step<'_>], at: u64) -> Option<Now> {
    let first = steps.partition_point(|step| step.time <= at);
    match steps.get(..first).and_then(<[_]>::last) {
        Some(step) => Some(match step.kind {
            Kind::Runs => Now::Runs(step.cpu),
            Kind::Preempted | Kind::Woken(..) => Now::Waits(at, step.cpu),
            Kind::Sleeps => Now::Sleeps(step.cpu),
        }),
        None => steps.first().map(|step| match step.kind {
            Kind::Preempted | Kind::Sleeps => Now::Runs(step.cpu),
            Kind::Runs => Now::Waits(at, step.cpu),
            Kind::Woken(..) => Now::Sleeps(step.cpu),
        }),
    }
}

/// Thread or interrupt to which a segment is attributed.
#[derive(Clone, Copy)]
struct Party<'a> {
    name: &'a str,
    tid: u32,
}

impl Party<'_> {
    /// Party of which nothing is known.
    const NONE: Self = Self { name: "", tid: 0 };
}

/// Segments up to a time, and the inputs for further ones.
struct Course<'a> {
    question: &'a LatencyInterval,
    history: &'a EventLog,
    segments: Vec<Segment>,
    at: u64,
}

impl Course<'_> {
    /// Processes the steps until a time.
    fn go(&mut self, mut now: Now, steps: &[Step<'_>], until: u64) -> Now {
        for step in steps.iter().filter(|step| step.time > self.at && step.time < until).collect::<Vec<_>>() {
            now = self.step(now, step);
        }
        now
    }

    fn step(&mut self, now: Now, step: &Step<'_>) -> Now {
        match (now, &step.kind) {
            (Now::Runs(cpu), Kind::Preempted) => {
                self.runs(cpu, step.time);
                Now::Waits(step.time, cpu)
            }
            (Now::Runs(cpu), Kind::Sleeps) => {
                self.runs(cpu, step.time);
                Now::Sleeps(cpu)
            }
            (Now::Sleeps(cpu), Kind::Woken(who, tid)) => {
                self.push(step.time, cpu, Cause::Waiting, Party { name: who, tid: *tid });
                Now::Waits(step.time, cpu)
            }
            (Now::Waits(since, _), Kind::Runs) => {
                self.waited(since, step.time, step.cpu);
                Now::Runs(step.cpu)
            }
            // Its wakeup was not recorded.
            (Now::Sleeps(cpu), Kind::Runs) => {
                self.push(step.time, cpu, Cause::Waiting, Party::NONE);
                Now::Runs(step.cpu)
            }
            // Its migration was not recorded.
            (Now::Runs(cpu), Kind::Runs) if cpu != step.cpu => {
                self.push(step.time, cpu, Cause::Unknown, Party::NONE);
                Now::Runs(step.cpu)
            }
            (now, _) => now,
        }
    }

    fn finish(&mut self, now: Now, end: u64) {
        match now {
            Now::Runs(cpu) => self.runs(cpu, end),
            // A job can't end in this state.
            Now::Waits(_, cpu) | Now::Sleeps(cpu) => self.push(end, cpu, Cause::Unknown, Party::NONE),
        }
    }

    /// Attributes a latency that ends when the thread runs.
    fn latency(&mut self, question: LatencyInterval) {
        self.at = question.end;
        self.segments.extend(attribute(&question, self.history));
    }

    fn waited(&mut self, since: u64, until: u64, cpu: u32) {
        let LatencyInterval { tid, priority, .. } = *self.question;
        let question =
            LatencyInterval { woken: since, end: until, tid, priority, cpu, ..LatencyInterval::default() };
        self.latency(question);
    }

    /// Adds the time for which it ran, without interrupts.
    fn runs(&mut self, cpu: u32, until: u64) {
        static NOTHING: CpuLog =
            CpuLog { events: Vec::new(), known_from: u64::MAX, stacks: std::collections::BTreeMap::new() };
        let noted = self.history.cpus.get(cpu as usize).unwrap_or(&NOTHING);
        for piece in pieces(noted, self.at, until) {
            let (cause, who) = self.of_running(&piece);
            self.push(piece.end, cpu, cause, Party { name: &who, tid: self.question.tid });
        }
    }

    fn of_running(&self, piece: &Piece) -> (Cause, String) {
        let Some(state) = &piece.state else { return (Cause::Unknown, String::new()) };
        if let Some((name, _)) = state.hard.last() {
            return (Cause::IrqInterference, name.clone());
        }
        match (&state.thread, state.soft_here()) {
            (Some(thread), Some(soft)) if thread.tid == self.question.tid => {
                (Cause::SoftirqInterference, soft_name(soft))
            }
            (Some(thread), None) if thread.tid == self.question.tid => (Cause::Running, thread.name.clone()),
            _ => (Cause::Unknown, String::new()),
        }
    }

    /// Adds the segment from the last one's end to this time.
    fn push(&mut self, end: u64, cpu: u32, cause: Cause, party: Party<'_>) {
        if end > self.at {
            let (begin, who, code) = (self.at, party.name.to_owned(), Vec::new());
            self.segments.push(Segment { begin, end, cpu, cause, who, tid: party.tid, code });
            self.at = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::sched_events::{SchedEvent, Thread};
    use super::*;
    use Cause::{IrqInterference, KernelOverhead, Running, ThreadInterference, Unknown, Waiting};

    const JOB: u32 = 7;
    const URGENT: u32 = 5;

    fn thread(tid: u32) -> Thread {
        let (priority, name) = match tid {
            JOB => (49, "ctl"),
            URGENT => (9, "urgent"),
            _ => (120, "swapper"),
        };
        Thread { tid, priority, name: name.into() }
    }

    fn switch(next: u32, previous: u32, state: u32) -> EventKind {
        EventKind::Switch { next: thread(next), previous: thread(previous), state }
    }

    fn woken() -> EventKind {
        EventKind::Woken { thread: thread(JOB), cpu: 0, runs: None }
    }

    fn history(cpus: &[&[(u64, EventKind)]]) -> EventLog {
        let noted = |events: &&[(u64, EventKind)]| CpuLog {
            events: events
                .iter()
                .map(|(time, kind)| SchedEvent { time: time * 1000, kind: kind.clone() })
                .collect(),
            known_from: 0,
            stacks: BTreeMap::new(),
        };
        EventLog { cpus: cpus.iter().map(noted).collect(), ..EventLog::default() }
    }

    /// Released at 100; result as (cause, length in microseconds, name).
    fn charged(running: Option<u64>, end: u64, history: &EventLog) -> Vec<(Cause, u64, String)> {
        let question = LatencyInterval {
            woken: 100_000,
            end: end * 1000,
            tid: JOB,
            priority: 49,
            ..LatencyInterval::default()
        };
        let wake = running.map(|time| Wake { running: time * 1000, woken: 100_000, ..Wake::default() });
        let segments = attribute_job(&question, wake.as_ref(), history);
        let mut at = question.begin();
        for segment in &segments {
            assert!(segment.begin == at && segment.end > at, "{segments:?}");
            at = segment.end;
        }
        assert_eq!(at, question.end, "{segments:?}");
        segments.iter().map(|it| (it.cause, it.length() / 1000, it.who.clone())).collect()
    }

    fn expected(segments: &[(Cause, u64, &str)]) -> Vec<(Cause, u64, String)> {
        segments.iter().map(|(cause, length, who)| (*cause, *length, (*who).to_owned())).collect()
    }

    #[test]
    fn given_a_job_that_is_preempted_then_who_ran_is_named() {
        let events = history(&[&[
            (50, switch(0, JOB, 1)),
            (100, woken()),
            (103, switch(JOB, 0, 0)),
            (200, switch(URGENT, JOB, 0)),
            (500, switch(JOB, URGENT, 1)),
            (600, switch(0, JOB, 1)),
        ]]);
        assert_eq!(
            charged(Some(103), 580, &events),
            expected(&[
                (KernelOverhead, 3, ""),
                (Running, 97, "ctl"),
                (ThreadInterference, 300, "urgent"),
                (Running, 80, "ctl")
            ])
        );
        assert_eq!(place_of(JOB, 580_000, &events), Some((0, 49)));
    }

    #[test]
    fn given_a_job_that_waits_then_who_woke_it_is_named_and_interrupts_are_not_its_work() {
        let interrupt = EventKind::HardEntry { number: 1, name: "disk".into(), runs: None };
        let first: &[(u64, EventKind)] = &[
            (90, switch(JOB, 0, 0)),
            (150, interrupt),
            (160, EventKind::HardExit(1)),
            (200, switch(0, JOB, 1)),
        ];
        // It continues where it was woken.
        let second: &[(u64, EventKind)] =
            &[(80, switch(URGENT, 0, 0)), (300, woken()), (304, switch(JOB, URGENT, 1))];
        assert_eq!(
            charged(None, 350, &history(&[first, second])),
            expected(&[
                (Running, 50, "ctl"),
                (IrqInterference, 10, "disk"),
                (Running, 40, "ctl"),
                (Waiting, 100, "urgent"),
                (ThreadInterference, 4, "urgent"),
                (Running, 46, "ctl"),
            ])
        );
    }

    #[test]
    fn given_a_job_behind_its_plan_then_what_it_did_before_is_its_own() {
        // Due at 100; the timer was set at 300 and expired at once.
        let events = history(&[&[
            (50, switch(JOB, 0, 0)),
            (150, switch(0, JOB, 1)),
            (249, EventKind::HardEntry { number: 1, name: "disk".into(), runs: None }),
            (250, woken()),
            (250, EventKind::HardExit(1)),
            (251, switch(JOB, 0, 0)),
            (302, switch(0, JOB, 1)),
            (310, woken()),
            (312, switch(JOB, 0, 0)),
        ]]);
        let question = LatencyInterval {
            intended: 100_000,
            fired: 309_000,
            woken: 310_000,
            end: 400_000,
            tid: JOB,
            priority: 49,
            ..LatencyInterval::default()
        };
        let wake =
            Wake { running: 312_000, woken: 310_000, asked: 100_000, intended: 300_000, fired: 309_000 };
        let segments = attribute_job(&question, Some(&wake), &events);
        let sum = |cause| -> u64 {
            segments.iter().filter(|it| it.cause == cause).map(|it| it.length() / 1000).sum()
        };
        assert_eq!((sum(Running), sum(Waiting)), (50 + 49 + 88, 100), "{segments:?}");
        let waited = segments.iter().find(|it| it.cause == Waiting);
        assert_eq!(waited.map(|it| (it.who.as_str(), it.tid)), Some(("disk", 0)));
        assert_eq!(segments.iter().map(Segment::length).sum::<u64>(), 300_000);
    }

    #[test]
    fn missing_events_are_unknown() {
        assert_eq!(charged(None, 150, &history(&[])), expected(&[(Unknown, 50, "")]));
        assert_eq!(charged(Some(120), 150, &history(&[&[]])).iter().map(|it| it.1).sum::<u64>(), 50);
        // It left the CPU, but is reported to have ended there.
        let events = history(&[&[(90, switch(JOB, 0, 0)), (120, switch(0, JOB, 1))]]);
        assert_eq!(charged(None, 150, &events), expected(&[(Running, 20, "ctl"), (Unknown, 30, "")]));
        assert_eq!(place_of(9, 1_000_000, &events), None);
    }
}
