//! A trace's numbers: events, losses, times, processes.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::PathBuf;

use serde::Serialize;
use tompion_ctf::decode::Fields;
use tompion_ctf::metadata::EnvironmentValue;

use crate::merge::tally::{Counter, Run};
use crate::{LossKind, Place, Trace, TraceSet, manifest};

/// What [`summarize`] finds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Events read.
    pub events: u64,
    /// Events that could not be recorded.
    pub lost: Lost,
    /// Whether more was lost than that, which nobody can know: a recording was killed or its machine stopped.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub losses_unknown: bool,
    /// Packets that are missing, by their numbers. How many events they held is unknown.
    pub lost_packets: u64,
    /// Events that a flight recorder overwrote by design.
    pub overwritten: u64,
    /// Time of the first event, in nanoseconds since the epoch.
    pub begin_ns: Option<i64>,
    /// Time of the last event.
    pub end_ns: Option<i64>,
    /// Events by their names, as far as there are any.
    pub by_event: BTreeMap<String, u64>,
    /// Processes that were recorded.
    pub processes: Vec<Process>,
    /// Streams in which time goes back.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub disorders: Vec<String>,
    /// Places that could not be read.
    pub damages: Vec<String>,
}

/// Lost events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lost {
    /// All of them.
    pub total: u64,
    /// By cause; `discarded` for traces that say no more.
    #[serde(flatten)]
    pub causes: BTreeMap<String, u64>,
}

impl Lost {
    fn add(&mut self, cause: &str, count: u64) {
        self.total = self.total.saturating_add(count);
        let total = self.causes.entry(cause.into()).or_default();
        *total = total.saturating_add(count);
    }
}

/// A process.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Process {
    /// Its number.
    pub pid: i64,
    /// Its name, if the trace tells.
    pub name: String,
    /// Its program's file, if the trace tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executable: Option<String>,
    /// How it ended, if the trace tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// How it wrote its events, if the trace tells: `rseq`, or `reserve` where there were no restartable sequences.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub producer: Option<String>,
}

impl Process {
    /// Whether it wrote its events without restartable sequences.
    pub fn is_without_rseq(&self) -> bool {
        self.producer.as_deref() == Some("reserve")
    }
}

/// Reads everything that is selected and sums it up.
///
/// Sources that stand in the recording's `tompion.json` are reported with the losses that it tells;
/// others with the counters of their packets.
pub fn summarize(traces: &mut TraceSet) -> Summary {
    let mut summary = Summary::default();
    let manifest::Told { sources, losses_unknown, damages } = manifest::told(traces);
    summary.losses_unknown = losses_unknown;
    summary.damages = damages.iter().map(ToString::to_string).collect();
    let known: HashSet<PathBuf> = sources.iter().map(|(path, _)| path.clone()).collect();
    let known: Vec<bool> =
        traces.traces().iter().map(|trace| known.contains(&manifest::plain(&trace.path))).collect();
    let is_known = |trace: usize| known.get(trace).copied().unwrap_or(false);

    let processes = count(traces, &mut summary, &is_known);
    summary.processes = processes.into_iter().collect();
    for (_, source) in sources {
        source
            .lost
            .iter()
            .filter(|(_, count)| **count > 0)
            .for_each(|(cause, count)| summary.lost.add(cause, *count));
        summary.overwritten = summary.overwritten.saturating_add(source.overwritten);
        if let Some(pid) = source.pid {
            let name = source.name.unwrap_or_default();
            let manifest::Source { executable, end, producer, .. } = source;
            summary.processes.push(Process { pid, name, executable, end, producer });
        }
    }
    summary.processes.sort();
    for loss in traces.losses() {
        match loss.kind {
            LossKind::Packets => summary.lost_packets = summary.lost_packets.saturating_add(loss.count),
            LossKind::Events if !is_known(loss.trace) => summary.lost.add("discarded", loss.count),
            LossKind::Events => {}
        }
    }
    summary.disorders = traces.disorders().map(ToString::to_string).collect();
    summary.disorders.sort_unstable();
    summary.damages.extend(traces.damages().iter().map(ToString::to_string));
    summary
}

/// What one reader finds in its streams.
struct Counted {
    /// For each trace, stream class and event class: how many events.
    counts: Vec<Vec<Vec<u64>>>,
    begin: Option<i64>,
    end: Option<i64>,
    /// Names of processes by trace and number, each as of the earliest event.
    processes: Named,
}

type Named = BTreeMap<(usize, i64), (Option<i64>, String)>;

/// Counts events and gathers the processes of traces that no manifest tells about; streams side by side, as far as
/// there are processors.
fn count(
    traces: &mut TraceSet,
    summary: &mut Summary,
    is_known: &dyn Fn(usize) -> bool,
) -> BTreeSet<Process> {
    let of_traces = traces.traces().iter().enumerate().filter(|(index, _)| !is_known(*index));
    let mut processes: BTreeSet<Process> = of_traces.filter_map(|(_, trace)| process_of(trace)).collect();
    let of_traces = traces.traces().iter().enumerate();
    let has_pid: Vec<bool> =
        of_traces.map(|(index, trace)| !is_known(index) && names_processes(trace)).collect();
    let mut parts = traces.split(std::thread::available_parallelism().map_or(1, usize::from));
    let counted: Vec<Counted> = match parts.as_mut_slice() {
        [part] => vec![count_part(part, &has_pid)],
        parts => std::thread::scope(|scope| {
            let threads: Vec<_> =
                parts.iter_mut().map(|part| scope.spawn(|| count_part(part, &has_pid))).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
        }),
    };
    traces.join(parts);
    let mut named = Named::new();
    for counted in counted {
        summary.begin_ns = summary.begin_ns.into_iter().chain(counted.begin).min();
        summary.end_ns = summary.end_ns.into_iter().chain(counted.end).max();
        for (key, (time, name)) in counted.processes {
            name_process(&mut named, key, time, || name);
        }
        for (trace, streams) in traces.traces().iter().zip(counted.counts) {
            for (stream, counts) in trace.metadata().streams.iter().zip(streams) {
                for (event, count) in stream.events.iter().zip(counts).filter(|(_, count)| *count > 0) {
                    summary.events += count;
                    *summary.by_event.entry(event.name.clone()).or_default() += count;
                }
            }
        }
    }
    let process = |((_, pid), (_, name))| Process { pid, name, ..Process::default() };
    processes.extend(named.into_iter().map(process));
    processes
}

/// Remembers a process's name if none of an earlier time is known.
fn name_process(named: &mut Named, key: (usize, i64), time: Option<i64>, name: impl FnOnce() -> String) {
    if named.get(&key).is_none_or(|(known, _)| time < *known) {
        named.insert(key, (time, name()));
    }
}

fn count_part(traces: &mut TraceSet, has_pid: &[bool]) -> Counted {
    let shape = |trace: &Trace| {
        trace.metadata().streams.iter().map(|stream| vec![0u64; stream.events.len()]).collect()
    };
    let counts = traces.traces().iter().map(shape).collect();
    let counted = Counted { counts, begin: None, end: None, processes: Named::new() };
    let mut counting = Counting { counted, has_pid };
    if traces.can_tally(&counting) {
        traces.tally(&mut counting);
    } else {
        let has_pid = |trace: usize| has_pid.get(trace).copied().unwrap_or(false);
        traces.for_each_unordered(&has_pid, &mut |event| {
            let Place { trace, stream, class } = event.place();
            counting.add(trace, stream, (class, 1));
            counting.extend(event.timestamp());
            if has_pid(trace) {
                counting.first(trace, event.timestamp(), event.stream_context());
            }
        });
    }
    counting.counted
}

/// What is being counted.
struct Counting<'t> {
    counted: Counted,
    /// Of which traces the events say their process.
    has_pid: &'t [bool],
}

impl Counting<'_> {
    fn add(&mut self, trace: usize, stream: usize, (class, count): (usize, u64)) {
        let streams = self.counted.counts.get_mut(trace).and_then(|streams| streams.get_mut(stream));
        if let Some(sum) = streams.and_then(|classes| classes.get_mut(class)) {
            *sum += count;
        }
    }

    fn extend(&mut self, time: Option<i64>) {
        let Counted { begin, end, .. } = &mut self.counted;
        *begin = (*begin).into_iter().chain(time).min();
        *end = (*end).into_iter().chain(time).max();
    }
}

impl Counter for Counting<'_> {
    fn watched(&self, trace: usize) -> Option<&'static str> {
        self.has_pid.get(trace).copied().unwrap_or(false).then_some("vpid")
    }

    fn first(&mut self, trace: usize, time: Option<i64>, context: Fields<'_>) {
        let pid = context.get("vpid").and_then(|pid| i64::try_from(pid.as_integer()?).ok());
        let Some(pid) = pid else { return };
        name_process(&mut self.counted.processes, (trace, pid), time, || {
            let name = context.get("procname").and_then(|name| name.as_text()).unwrap_or_default();
            String::from_utf8_lossy(name).into_owned()
        });
    }

    fn run(&mut self, run: &Run<'_>) {
        let counts = run.counts.iter().copied().enumerate();
        counts.for_each(|counted| self.add(run.trace, run.stream, counted));
        self.extend(run.times.map(|(begin, _)| begin));
        self.extend(run.times.map(|(_, end)| end));
    }
}

/// The process of a trace that has but one.
fn process_of(trace: &Trace) -> Option<Process> {
    let pid = trace.metadata().environment_value("vpid").and_then(EnvironmentValue::as_integer)?;
    let name = trace.metadata().environment_value("procname").and_then(EnvironmentValue::as_text);
    let producer = trace.metadata().environment_value("ring_producer").and_then(EnvironmentValue::as_text);
    let producer = producer.map(str::to_owned);
    Some(Process { pid, name: name.unwrap_or_default().into(), producer, ..Process::default() })
}

/// Whether the events of a trace say by which process they were recorded.
fn names_processes(trace: &Trace) -> bool {
    let contexts = trace.metadata().streams.iter().filter_map(|stream| stream.event_context.as_ref());
    contexts.into_iter().any(|context| context.field("vpid").is_some())
}
