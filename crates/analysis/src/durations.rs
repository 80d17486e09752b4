//! Durations of jobs, spans and system calls, by name.
//!
//! ```text
//! TraceSet ──facts, losses──► state::Engine ──intervals──► a histogram for each name ──► Durations
//! ```
//!
//! Only what was seen whole counts. What was open at the trace's end, or may have been cut by a
//! loss, has no known duration: it is counted apart, as unfinished, and is in no other number.
//! Calls that never return are left out.
//! Memory is bounded, whatever the trace says: a histogram for each of at most [`MAX_NAMES`] names.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use serde::Serialize;
use tompion_reader::calls::never_returns;
use tompion_reader::coverage::Coverage;
use tompion_reader::{Event, EventCollector, Loss, Place, Selection, TraceSet, manifest};
use tompion_schema::Kind;

use crate::histogram::Histogram;
use crate::quick::QuickMap;
use crate::state::{Engine, FactExtractor, Facts, Interval, Role, State, ThreadId, Track, Visitor};

/// Maximum number of names of each kind; further ones are counted together.
pub const MAX_NAMES: usize = 4096;
/// Name under which durations of further names are counted.
const OTHERS: &str = "(others)";
/// Maximum number of open jobs with a known deadline. The lateness of further ones is unknown.
const MAX_OPEN_JOBS: usize = 1 << 16;
/// Field of a job with its deadline.
const DEADLINE: &str = "deadline_ns";

/// Durations of a trace, each list sorted by total duration, longest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Durations {
    /// Jobs.
    pub jobs: Vec<Duration>,
    /// Spans that are no jobs.
    pub spans: Vec<Duration>,
    /// System calls.
    pub syscalls: Vec<Duration>,
}

/// Durations of one name in nanoseconds. Percentiles are at most 1/128 above the exact values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Duration {
    /// Name of the job, span or system call.
    pub name: String,
    /// Number of durations with an observed begin and end.
    pub count: u64,
    /// Number of jobs among them that took longer than their deadline; `None` for others, and for
    /// jobs without a deadline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late: Option<u64>,
    /// Sum of all durations.
    pub total_ns: u64,
    /// Median.
    pub p50_ns: Option<u64>,
    /// Duration that 99 % don't exceed.
    pub p99_ns: Option<u64>,
    /// Longest duration.
    pub max_ns: Option<u64>,
    /// Number of durations without an observed begin or end. Their lengths are unknown.
    pub unfinished: u64,
}

/// Reads traces and measures durations.
///
/// `open` opens the traces, which may happen twice. `events` are globs over names of events; spans
/// and calls count of which one event's name matches. An empty list accepts all.
pub fn measure<E>(open: &dyn Fn() -> Result<TraceSet, E>, events: &[String]) -> Result<Durations, E> {
    let mut traces = open()?;
    let plan = Plan::new(&traces, events);
    if plan.is_empty() {
        return Ok(Durations::default());
    }
    // Where nothing was lost and all calls state their threads, switches tell nothing about
    // durations.
    if let Some(events) = &plan.enough {
        traces.select(Selection { events: events.clone(), ..Selection::default() });
        let durations = run(&mut traces, &plan);
        if traces.losses().is_empty() {
            return Ok(durations);
        }
        traces = open()?;
    }
    Ok(run(&mut traces, &plan))
}

/// Choice of the events to read and of the names to measure.
struct Plan {
    /// Names of spans and of calls that count.
    spans: HashSet<Arc<str>>,
    syscalls: HashSet<Arc<str>>,
    /// Names of spans that are jobs.
    jobs: HashSet<Arc<str>>,
    /// Classes of jobs' begins, with the position of their deadline and the job's name.
    deadlines: Arc<HashMap<Place, (usize, Arc<str>)>>,
    /// Names of events that are enough for a trace without losses; `None` if all are needed.
    enough: Option<Vec<String>>,
    overwrites: Vec<bool>,
}

impl Plan {
    fn new(traces: &TraceSet, events: &[String]) -> Self {
        let extractor = FactExtractor::new(traces.traces());
        let selection = Selection { events: events.to_vec(), ..Selection::default() };
        let (mut spans, mut syscalls, mut jobs) = (HashSet::new(), HashSet::new(), HashSet::new());
        let (mut deadlines, mut names, mut has_threads) = (HashMap::new(), BTreeSet::new(), true);
        for (place, class) in classes(traces) {
            match extractor.role(place) {
                Role::Syscall { name, has_thread } => {
                    has_threads &= has_thread;
                    if selection.takes_name(class) {
                        syscalls.insert(name);
                    }
                }
                Role::Span { name } => {
                    if class.kind_info().kind == Kind::Job {
                        jobs.insert(name.clone());
                        let fields = class.payload.as_ref().map(|payload| payload.fields.iter());
                        let deadline =
                            fields.and_then(|mut it| it.position(|field| &*field.name == DEADLINE));
                        deadlines.extend(deadline.map(|deadline| (place, (deadline, name.clone()))));
                    }
                    if selection.takes_name(class) {
                        spans.insert(name);
                    }
                }
                Role::Lifetime => {}
                Role::None | Role::Other => continue,
            }
            names.insert(class.name.clone());
        }
        let overwrites = manifest::overwrites(traces);
        let is_enough = has_threads && !overwrites.contains(&true);
        let enough = is_enough.then(|| names.into_iter().collect());
        Self { spans, syscalls, jobs, deadlines: Arc::new(deadlines), enough, overwrites }
    }

    fn is_empty(&self) -> bool {
        self.spans.is_empty() && self.syscalls.is_empty()
    }
}

/// Returns all event classes with their places.
fn classes(traces: &TraceSet) -> impl Iterator<Item = (Place, &tompion_ctf::metadata::Event)> {
    traces.traces().iter().enumerate().flat_map(|(trace, of)| {
        of.metadata().streams.iter().enumerate().flat_map(move |(stream, of)| {
            let place = move |class| Place { trace, stream, class };
            of.events.iter().enumerate().map(move |(class, of)| (place(class), of))
        })
    })
}

fn run(traces: &mut TraceSet, plan: &Plan) -> Durations {
    let coverage = Coverage::read(traces);
    let mut engine = Engine::new(traces.traces());
    engine.recorded(coverage.recorded().to_vec());
    engine.overwritten(coverage.overwritten(&|trace| plan.overwrites.get(trace).copied().unwrap_or(false)));
    let mut meter = Meter::new(plan);
    let collector = Collector {
        extractor: engine.fact_extractor().clone(),
        deadlines: plan.deadlines.clone(),
        batch: Batch::default(),
    };
    traces.collect(&|| collector.clone(), &mut |batch| {
        batch.apply(&mut engine, &mut meter);
        true
    });
    engine.finish(&mut meter);
    meter.into_durations()
}

/// Facts, losses and deadlines in the order of the trace.
#[derive(Clone, Debug, Default)]
struct Batch {
    facts: Facts,
    /// Each with the number of facts before it.
    losses: Vec<(usize, Loss)>,
    deadlines: Vec<JobDeadline>,
}

/// Deadline of a job that begins.
#[derive(Clone, Debug)]
struct JobDeadline {
    /// Index of the fact that begins it.
    fact: usize,
    trace: usize,
    name: Arc<str>,
    ns: u64,
}

impl Batch {
    fn apply(&self, engine: &mut Engine, meter: &mut Meter<'_>) {
        let mut losses = self.losses.iter().peekable();
        let mut deadlines = self.deadlines.iter().peekable();
        for (index, fact) in self.facts.list().iter().enumerate() {
            while let Some((_, loss)) = losses.next_if(|(before, _)| *before <= index) {
                engine.loss(loss);
            }
            if let Some(deadline) = deadlines.next_if(|deadline| deadline.fact == index) {
                let thread = fact.thread().zip(engine.machine_of(deadline.trace));
                // The engine's times never go back.
                let time = fact.time().map(|time| engine.now().map_or(time, |now| now.max(time)));
                if let Some(((tid, machine), time)) = thread.zip(time) {
                    let job = (ThreadId { machine, tid }, time, deadline.name.clone());
                    meter.job_begins(job, deadline.ns);
                }
            }
            engine.fact(&self.facts, fact, meter);
        }
        losses.for_each(|(_, loss)| engine.loss(loss));
    }
}

/// Collector of batches.
#[derive(Clone)]
struct Collector {
    extractor: FactExtractor,
    deadlines: Arc<HashMap<Place, (usize, Arc<str>)>>,
    batch: Batch,
}

impl EventCollector for Collector {
    type Output = Batch;

    fn loss(&mut self, loss: &Loss) {
        self.batch.losses.push((self.batch.facts.list().len(), loss.clone()));
    }

    fn event(&mut self, event: &Event<'_>) {
        if !self.deadlines.is_empty() {
            if let Some((position, name)) = self.deadlines.get(&event.place()) {
                let field = event.payload().nth(*position);
                let deadline = field.and_then(|(_, value)| u64::try_from(value.as_integer()?).ok());
                let (fact, trace) = (self.batch.facts.list().len(), event.trace_index());
                let begun = |ns| JobDeadline { fact, trace, name: name.clone(), ns };
                self.batch.deadlines.extend(deadline.map(begun));
            }
        }
        self.extractor.add(event, &mut self.batch.facts);
    }

    fn size(&self) -> usize {
        let Batch { facts, losses, deadlines } = &self.batch;
        facts.size() + size_of_val(losses.as_slice()) + size_of_val(deadlines.as_slice())
    }

    fn take(&mut self) -> Batch {
        std::mem::take(&mut self.batch)
    }
}

/// Durations of one name while they are measured.
#[derive(Default)]
struct Measured {
    histogram: Histogram,
    unfinished: u64,
    with_deadline: u64,
    late: u64,
}

type ByName = HashMap<Arc<str>, Measured>;

/// Visitor that measures intervals.
struct Meter<'p> {
    plan: &'p Plan,
    /// Deadlines of open jobs, by thread, time of their begin and name.
    open: QuickMap<(ThreadId, i64, Arc<str>), u64>,
    jobs: ByName,
    spans: ByName,
    syscalls: ByName,
}

impl<'p> Meter<'p> {
    fn new(plan: &'p Plan) -> Self {
        Self {
            plan,
            open: QuickMap::default(),
            jobs: ByName::new(),
            spans: ByName::new(),
            syscalls: ByName::new(),
        }
    }

    fn job_begins(&mut self, job: (ThreadId, i64, Arc<str>), deadline: u64) {
        if self.open.len() < MAX_OPEN_JOBS {
            self.open.insert(job, deadline);
        }
    }

    fn into_durations(self) -> Durations {
        Durations { jobs: sorted(self.jobs), spans: sorted(self.spans), syscalls: sorted(self.syscalls) }
    }
}

impl Visitor for Meter<'_> {
    fn interval(&mut self, interval: &Interval) {
        let (kind, name, deadline) = match (&interval.state, interval.track) {
            // What never returns has no duration that could be missing.
            (State::Syscall(name), _) if !interval.seen.end && never_returns(name) => return,
            (State::Syscall(name), Track::Syscall(_)) if self.plan.syscalls.contains(name) => {
                (&mut self.syscalls, name, None)
            }
            (State::Span(name), Track::Span(thread, _)) => {
                let is_job = self.plan.jobs.contains(name);
                let key = || (thread, interval.begin, name.clone());
                let deadline = if is_job { self.open.remove(&key()) } else { None };
                if !self.plan.spans.contains(name) {
                    return;
                }
                (if is_job { &mut self.jobs } else { &mut self.spans }, name, deadline)
            }
            _ => return,
        };
        let is_full = kind.len() >= MAX_NAMES && !kind.contains_key(name);
        let measured = kind.entry(if is_full { OTHERS.into() } else { name.clone() }).or_default();
        if !interval.seen.begin || !interval.seen.end {
            measured.unfinished += 1;
            return;
        }
        let duration = interval.end.saturating_sub(interval.begin).max(0) as u64;
        measured.histogram.count(duration);
        if let Some(deadline) = deadline.filter(|deadline| *deadline > 0) {
            measured.with_deadline += 1;
            measured.late += u64::from(duration > deadline);
        }
    }
}

fn sorted(by_name: ByName) -> Vec<Duration> {
    let mut durations: Vec<_> = by_name.iter().map(|(name, measured)| measured.duration(name)).collect();
    durations.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then_with(|| a.name.cmp(&b.name)));
    durations
}

impl Measured {
    fn duration(&self, name: &str) -> Duration {
        let percentiles = self.histogram.percentiles([50, 99]);
        Duration {
            name: name.into(),
            count: self.histogram.len(),
            late: (self.with_deadline > 0).then_some(self.late),
            total_ns: self.histogram.total(),
            p50_ns: percentiles.map(|[median, _]| median),
            p99_ns: percentiles.map(|[_, last]| last),
            max_ns: self.histogram.max(),
            unfinished: self.unfinished,
        }
    }
}
