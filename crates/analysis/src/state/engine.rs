//! State engine: converts events to states.

use tompion_ctf::metadata::EnvironmentValue;
use tompion_reader::coverage::{Overwritten, Recorded};
use tompion_reader::{Event, Loss, LossKind, Trace, TraceSet};

use super::classes::Action;
use super::facts::{Fact, FactExtractor, Facts, number};
use super::machine::{Machine, Moment};
use super::numbered_spans::NumberedSpans;
use super::spans::{Ended, Spans};
use super::{Happening, Instant, MachineId, OpenState, State, ThreadId, Visitor};

/// Reads all remaining events, and calls the visitor with their states.
///
/// ```no_run
/// use tompion_analysis::state::{self, Interval, Visitor};
///
/// struct Printer;
///
/// impl Visitor for Printer {
///     fn interval(&mut self, interval: &Interval) {
///         println!("{:?} {:?} until {}", interval.track, interval.state, interval.end);
///     }
/// }
///
/// let mut traces = tompion_reader::open(&["my-trace".into()])?;
/// state::run(&mut traces, &mut Printer);
/// # Ok::<(), tompion_reader::Error>(())
/// ```
pub fn run(traces: &mut TraceSet, visitor: &mut dyn Visitor) {
    let mut engine = Engine::new(traces.traces());
    let mut known = traces.losses().len();
    loop {
        let is_there = traces.step();
        let losses = traces.losses().get(known..).unwrap_or_default();
        losses.iter().for_each(|loss| engine.loss(loss));
        known += losses.len();
        match traces.current().filter(|_| is_there) {
            Some(event) => engine.event(&event, visitor),
            None => break,
        }
    }
    engine.finish(visitor);
}

/// Current states of all machines in some traces.
///
/// Events must come in order of time. A late event is processed as if it happened at the latest
/// time before.
pub struct Engine {
    machines: Vec<Machine>,
    /// Machine of each trace.
    machine_of: Vec<usize>,
    extractor: FactExtractor,
    /// Facts of the current event.
    facts: Facts,
    spans: Spans,
    numbered_spans: NumberedSpans,
    now: Option<i64>,
    /// Future times at which knowledge ends.
    pending: Vec<Pending>,
    overwritten: Vec<Overwritten>,
    /// Interval in which each trace was recorded, if known.
    recorded: Vec<Recorded>,
}

/// Time at which knowledge ends.
#[derive(Clone)]
struct Pending {
    at: i64,
    trace: usize,
    what: Bound,
}

#[derive(Clone)]
enum Bound {
    /// Border of an interval with lost events.
    Loss(Border, Happening),
    /// End of the overwritten part on a CPU.
    Overwritten(Option<u32>),
    /// End of a kernel trace that is not continued at once by another one.
    End,
}

/// Border of an interval with lost events.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Border {
    /// Beginning of a gap, from which a CPU has no events at all.
    GapBegin,
    /// End of a gap.
    GapEnd,
    /// Beginning of an interval in which single events were lost, or the only known time of it.
    Begin,
    /// End of such an interval.
    End,
}

impl Engine {
    /// Creates an engine for events of these traces, which are identified by their indexes.
    pub fn new(traces: &[Trace]) -> Self {
        let mut engine = Self {
            machines: Vec::new(),
            machine_of: Vec::new(),
            extractor: FactExtractor::new(traces),
            facts: Facts::default(),
            spans: Spans::default(),
            numbered_spans: NumberedSpans::default(),
            now: None,
            pending: Vec::new(),
            overwritten: Vec::new(),
            recorded: Vec::new(),
        };
        for (number, trace) in traces.iter().enumerate() {
            let machine = engine.machine(trace);
            engine.machine_of.push(machine);
            if let Some(machine) = engine.machines.get_mut(machine) {
                machine.tells_timers |= engine.extractor.tells_timers(number);
            }
        }
        engine
    }

    /// Returns the machine of a trace, by its hostname.
    fn machine(&mut self, trace: &Trace) -> usize {
        let host = trace.metadata().environment_value("hostname").and_then(EnvironmentValue::as_text);
        let host = host.unwrap_or_default();
        if let Some(known) = self.machines.iter().position(|machine| machine.host == host) {
            return known;
        }
        let index = self.machines.len();
        self.machines.push(Machine::new(MachineId(index as u16), host.into()));
        index
    }

    /// Returns an engine with the same traces and settings that has seen no event, for a reader
    /// that begins elsewhere.
    pub fn fresh(&self) -> Self {
        let machines = self.machines.iter().map(Machine::fresh);
        let mut fresh = Self {
            machines: machines.collect(),
            machine_of: self.machine_of.clone(),
            extractor: self.extractor.clone(),
            facts: Facts::default(),
            spans: Spans::default(),
            numbered_spans: NumberedSpans::default(),
            now: None,
            pending: self
                .pending
                .iter()
                .filter(|pending| !matches!(pending.what, Bound::Loss(..)))
                .cloned()
                .collect(),
            overwritten: self.overwritten.clone(),
            recorded: self.recorded.clone(),
        };
        fresh.begin_in_gaps();
        fresh
    }

    /// Opens a gap on each CPU whose first events were overwritten.
    fn begin_in_gaps(&mut self) {
        for &Overwritten { trace, cpu, .. } in &self.overwritten {
            let machine = self.machine_of.get(trace).and_then(|&machine| self.machines.get_mut(machine));
            if let Some(machine) = machine.filter(|_| self.extractor.is_of_kernel(trace)) {
                machine.open_gap(cpu);
            }
        }
    }

    /// Returns the hostname of a machine; empty if its traces don't state one.
    pub fn host(&self, machine: MachineId) -> Option<&str> {
        self.machines.get(usize::from(machine.0)).map(|machine| machine.host.as_str())
    }

    /// Returns the machine of a trace.
    pub fn machine_of(&self, trace: usize) -> Option<MachineId> {
        Some(self.machines.get(*self.machine_of.get(trace)?)?.id)
    }

    /// Returns the latest time of an event so far, in nanoseconds since the epoch.
    pub fn now(&self) -> Option<i64> {
        self.now
    }

    /// Returns the extractor of facts, for callers that extract them elsewhere.
    pub fn fact_extractor(&self) -> &FactExtractor {
        &self.extractor
    }

    /// Processes the next event. Events without a time are ignored.
    pub fn event(&mut self, event: &Event<'_>, visitor: &mut dyn Visitor) {
        let mut facts = std::mem::take(&mut self.facts);
        facts.clear();
        self.extractor.add(event, &mut facts);
        facts.list().iter().for_each(|fact| self.fact(&facts, fact, visitor));
        self.facts = facts;
    }

    /// Processes the next event, given as one of these facts.
    pub fn fact(&mut self, facts: &Facts, fact: &Fact, visitor: &mut dyn Visitor) {
        let Some(time) = fact.time() else { return };
        let time = self.now.map_or(time, |now| now.max(time));
        if !self.pending.is_empty() {
            self.forget_until(time, visitor);
        }
        self.now = Some(time);
        let trace = fact.trace as usize;
        let (Some(action), Some(&machine)) = (self.extractor.action(fact.class), self.machine_of.get(trace))
        else {
            return;
        };
        let Some(machine) = self.machines.get_mut(machine) else { return };
        let (view, id) = (facts.view(fact), machine.id);
        let thread = || Some((ThreadId { machine: id, tid: view.thread()? }, trace));
        match action {
            Action::SpanBegin(name) => {
                let state = State::Span(name.clone());
                match (thread(), view.number(number::SPAN)) {
                    (Some(key), Some(span)) => {
                        let state = OpenState { state, since: time, seen: true };
                        self.numbered_spans.begin(key, span, state, visitor);
                    }
                    (Some(key), None) => self.spans.begin(key, state, time),
                    (None, _) => {}
                }
            }
            Action::FunctionEntry => {
                if let Some((key, address)) = thread().zip(view.number(number::OTHER)) {
                    self.spans.begin(key, State::Function(address as u64), time);
                }
            }
            Action::SpanEnd(name) => {
                if let Some(span) = view.number(number::SPAN) {
                    self.numbered_spans.end((id, trace, span), time, visitor);
                } else if let Some(key) = thread() {
                    self.spans.end(key, &Ended::Span(name), time, visitor);
                }
            }
            Action::FunctionExit => {
                if let Some(key) = thread() {
                    self.spans.end(key, &Ended::Function, time, visitor);
                }
            }
            of_kernel => {
                let moment = Moment { time, cpu: fact.cpu() };
                let is_before = |it: &Overwritten| {
                    it.trace == trace
                        && time < it.until
                        && (it.cpu.is_none()
                            || it.cpu == moment.cpu
                            || matches!(of_kernel, Action::ProcessState))
                };
                if self.overwritten.iter().any(is_before) {
                    machine.event_before_gap(view, of_kernel, moment, visitor);
                    return;
                }
                machine.event(view, of_kernel, moment, visitor);
                if let (Action::Exit, Some(tid)) = (of_kernel, view.id(number::THREAD)) {
                    self.spans.forget_thread(ThreadId { machine: id, tid }, time, visitor);
                }
            }
        }
    }

    /// Processes a loss, as soon as it is known and before the next event: it may begin or end
    /// before the latest event.
    pub fn loss(&mut self, loss: &Loss) {
        let (from, to) = loss.between;
        let to = to.filter(|_| to != from);
        let borders = match loss.kind {
            LossKind::Packets if from.is_some() && to.is_some() => [Border::GapBegin, Border::GapEnd],
            _ => [Border::Begin, Border::End],
        };
        let cpu = loss.cpu.and_then(|cpu| cpu.try_into().ok());
        for (at, border) in [from, to].into_iter().zip(borders) {
            let Some(at) = at else { continue };
            let what = Happening::Loss { cpu, since: from.unwrap_or(at), count: loss.count };
            self.pending.push(Pending { at, trace: loss.trace, what: Bound::Loss(border, what) });
        }
        self.sort_pending();
    }

    fn sort_pending(&mut self) {
        self.pending.sort_by_key(|pending| std::cmp::Reverse(pending.at));
    }

    /// Announces that events of a trace were overwritten, before any event is processed. A state
    /// dump within such a time is valid only at its own time; later changes may have been
    /// overwritten.
    pub fn overwritten(&mut self, overwritten: Vec<Overwritten>) {
        self.pending.extend(overwritten.iter().map(|it| Pending {
            at: it.until,
            trace: it.trace,
            what: Bound::Overwritten(it.cpu),
        }));
        self.sort_pending();
        self.overwritten = overwritten;
        self.begin_in_gaps();
    }

    /// Forgets states that may have changed unseen up to a time.
    fn forget_until(&mut self, time: i64, visitor: &mut dyn Visitor) {
        // The last event of a trace happens at its end.
        let is_there = |pending: &Pending| match pending.what {
            Bound::End => pending.at < time,
            Bound::Loss(..) | Bound::Overwritten(_) => pending.at <= time,
        };
        while self.pending.last().is_some_and(is_there) {
            let Some(Pending { at, trace, what }) = self.pending.pop() else { break };
            self.overwritten.retain(|it| it.until > at);
            // States already reported are not revised.
            let at = self.now.map_or(at, |now| now.max(at));
            let Some(machine) =
                self.machine_of.get(trace).and_then(|&machine| self.machines.get_mut(machine))
            else {
                continue;
            };
            let is_kernels = self.extractor.is_of_kernel(trace);
            let cpu = match &what {
                Bound::Loss(_, Happening::Loss { cpu, .. }) | Bound::Overwritten(cpu) => *cpu,
                Bound::Loss(..) | Bound::End => None,
            };
            if is_kernels {
                machine.forget(cpu, at, visitor);
                match &what {
                    Bound::Loss(Border::GapBegin, _) => machine.open_gap(cpu),
                    Bound::Loss(Border::GapEnd, _) | Bound::Overwritten(_) => machine.close_gap(cpu),
                    Bound::Loss(..) | Bound::End => {}
                }
            }
            // At the end of a loss, a span that began within it may have ended within it.
            let may_have_ended =
                matches!(what, Bound::Loss(Border::GapEnd | Border::End, _) | Bound::Overwritten(_));
            self.spans.forget(trace, (at, may_have_ended), visitor);
            self.numbered_spans.forget(trace, (at, may_have_ended), visitor);
            if let Bound::Loss(_, what) = what {
                visitor.instant(&Instant { time: at, machine: machine.id, what });
            }
        }
    }

    /// Announces the interval in which each trace was recorded, according to its packets, before
    /// any event is processed. States of a kernel outside of its traces are unknown, whatever other
    /// traces contain.
    pub fn recorded(&mut self, recorded: Vec<Recorded>) {
        for (trace, &(_, end)) in recorded.iter().enumerate() {
            let Some(end) = end.filter(|_| self.extractor.is_of_kernel(trace)) else { continue };
            let is_other = |&(other, _): &(usize, &Recorded)| {
                other != trace
                    && self.machine_of.get(other) == self.machine_of.get(trace)
                    && self.extractor.is_of_kernel(other)
            };
            let others = || recorded.iter().enumerate().filter(is_other).map(|(_, range)| *range);
            let goes_on = |(begin, other_end): Recorded| {
                begin.is_none_or(|begin| begin <= end) && other_end.is_none_or(|other_end| other_end > end)
            };
            let begins_later = |(begin, _): Recorded| begin.is_some_and(|begin| begin > end);
            if others().any(begins_later) && !others().any(goes_on) {
                self.pending.push(Pending { at: end, trace, what: Bound::End });
            }
        }
        self.sort_pending();
        self.recorded = recorded;
    }

    /// Reports all states that are open at the end, after which nothing is known.
    pub fn finish(&mut self, visitor: &mut dyn Visitor) {
        let Some(now) = self.now else { return };
        // Nothing is reported beyond the last event.
        self.forget_until(now, visitor);
        self.spans.finish(now, visitor);
        self.numbered_spans.finish(now, visitor);
        for (number, machine) in self.machines.iter_mut().enumerate() {
            let traces = self.machine_of.iter().enumerate().filter(|(_, of)| **of == number);
            let kernels = traces.filter(|(trace, _)| self.extractor.is_of_kernel(*trace));
            let ends = kernels.map(|(trace, _)| self.recorded.get(trace).and_then(|(_, end)| *end));
            let until = ends.collect::<Option<Vec<_>>>().and_then(|ends| ends.into_iter().max());
            machine.finish(until, now, visitor);
        }
    }
}
