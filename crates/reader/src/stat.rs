//! Summarizes traces: events, losses, times, processes.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use serde::Serialize;
use tompion_ctf::decode::Fields;
use tompion_ctf::metadata::EnvironmentValue;

use crate::dropped::{DroppedChunk, dropped_chunks};
use crate::manifest::{self, RUNNING};
use crate::merge::tally::{Counter, Run};
use crate::{Error, LossKind, Place, Trace, TraceSet};

/// Result of [`summarize`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Number of events read.
    pub events: u64,
    /// Events that could not be recorded.
    pub lost: Lost,
    /// Number of events of vfork children. They run on their parent's memory, where nothing can be
    /// recorded, so they are no losses.
    #[serde(skip_serializing_if = "is_zero")]
    pub not_traced: u64,
    /// Whether more events were lost, in unknown number: a recording was killed or its machine
    /// stopped.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub losses_unknown: bool,
    /// Number of processes with impossible loss counters. Their losses are unknown.
    #[serde(skip_serializing_if = "is_zero")]
    pub losses_unknown_of: u64,
    /// Number of processes that asked to take part in the recording and could not. Their events are
    /// not counted anywhere.
    #[serde(rename = "left_out", skip_serializing_if = "is_zero")]
    pub rejected_processes: u64,
    /// Counts of what programs sent beyond the limits of a recording, by kind; it was not kept.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub beyond_limits: BTreeMap<String, u64>,
    /// Changes of the rules that chose events of programs while they were recorded. Events that the
    /// rules left out are in no count.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rule_changes: Vec<manifest::RuleChange>,
    /// Changes of the triggers while programs were recorded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub trigger_changes: Vec<manifest::TriggerChange>,
    /// Firings of triggers, in the order of time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub firings: Vec<manifest::Firing>,
    /// Processes that ran already and were named to be recorded, and their descendants of that
    /// time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<manifest::Target>,
    /// Chunks that were removed before all of them was sent here. The number of their events is
    /// unknown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dropped_chunks: Vec<DroppedChunk>,
    /// Number of missing packets, by their sequence numbers. The number of their events is unknown.
    pub lost_packets: u64,
    /// Number of events that a flight recorder overwrote by design.
    pub overwritten: u64,
    /// Number of times between snapshots in which a flight recorder overwrote events of a stream.
    #[serde(skip_serializing_if = "is_zero")]
    pub overwritten_gaps: u64,
    /// Time of the first event, in nanoseconds since the epoch.
    pub begin_ns: Option<i64>,
    /// Time of the last event, in nanoseconds since the epoch.
    pub end_ns: Option<i64>,
    /// Number of events by name; names without events are absent.
    pub by_event: BTreeMap<String, u64>,
    /// Commands that recordings started.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<Command>,
    /// Programs that the recorded processes and their descendants executed, as far as recordings
    /// state them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<manifest::ExecutedProgram>,
    /// Descendants of the recorded processes, as far as the kernel's events told of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<manifest::Child>,
    /// Processes that were recorded.
    pub processes: Vec<Process>,
    /// Streams with timestamp regressions, a line each.
    #[serde(rename = "disorders", skip_serializing_if = "Vec::is_empty")]
    pub timestamp_regressions: Vec<String>,
    /// Corruptions, a line each.
    #[serde(rename = "damages")]
    pub corruptions: Vec<String>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Numbers of lost events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lost {
    /// Total number.
    pub total: u64,
    /// Number by cause; `discarded` for traces without causes.
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

/// Command that a recording started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Command {
    /// Its words.
    pub command_line: Vec<String>,
    /// Process id, if the recording waited for its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<i64>,
    /// Its end in words, if the recording waited for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
}

/// Recorded process.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Process {
    /// Process id.
    pub pid: i64,
    /// Name, empty if the trace does not state it.
    pub name: String,
    /// Path of the program, if the trace states it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executable: Option<String>,
    /// Parent when the process joined the recording, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<i64>,
    /// Command line when the process joined, cut to a bounded length; empty if unknown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command_line: Vec<String>,
    /// State at the end of the recording, if the trace states it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// Write protocol, if the trace states it: `rseq`, or `reserve` where restartable sequences
    /// were unavailable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub producer: Option<String>,
}

impl Process {
    /// Whether the process wrote its events without restartable sequences.
    pub fn is_without_rseq(&self) -> bool {
        self.producer.as_deref() == Some("reserve")
    }
}

impl From<(Vec<String>, Option<manifest::CommandEnd>)> for Command {
    fn from((command_line, end): (Vec<String>, Option<manifest::CommandEnd>)) -> Self {
        let (pid, end) = end.map(|end| (end.pid, end.end)).unzip();
        Self { command_line, pid, end }
    }
}

/// Reads all selected events and summarizes them.
///
/// Losses of sources listed in the recording's `tompion.json` are taken from there; losses of
/// others from the counters of their packets.
pub fn summarize(traces: &mut TraceSet) -> Summary {
    let threads = traces.threads();
    summarize_with(traces, threads)
}

/// Works like [`summarize`] with a number of threads.
/// Reads all traces below a folder and summarizes them; an empty summary if there are none.
///
/// # Errors
///
/// Fails if no description can be read.
pub fn read(folder: &Path) -> Result<Summary, Error> {
    match crate::open(&[folder.into()]) {
        Ok(mut traces) => Ok(summarize(&mut traces)),
        Err(Error::NoTrace(_)) => Ok(Summary::default()),
        Err(error) => Err(error),
    }
}

fn summarize_with(traces: &mut TraceSet, threads: usize) -> Summary {
    let mut summary = Summary::default();
    let info = manifest::read_all(traces);
    (summary.losses_unknown, summary.rejected_processes) = (info.losses_unknown, info.rejected_processes);
    summary.dropped_chunks = dropped_chunks(traces);
    summary.losses_unknown |= !summary.dropped_chunks.is_empty();
    summary.beyond_limits = info.beyond_limits;
    (summary.rule_changes, summary.targets) = (info.rule_changes, info.targets);
    (summary.trigger_changes, summary.firings) = (info.trigger_changes, info.firings);
    (summary.programs, summary.children) = (info.programs, info.children);
    summary.commands = info.commands.into_iter().map(Command::from).collect();
    let (sources, corruptions) = (info.sources, info.corruptions);
    summary.corruptions = corruptions.iter().map(ToString::to_string).collect();
    let known = among(traces, sources.iter().map(|(path, _)| path));
    let is_known = |trace: usize| known.get(trace).copied().unwrap_or(false);
    // A killed recorder leaves the trace that short-lived processes share without their names. Its
    // events have them.
    let named = sources.iter().filter(|(_, source)| manifest::names_processes(source));
    let named = among(traces, named.map(|(path, _)| path));
    let is_named = |trace: usize| named.get(trace).copied().unwrap_or(false);
    let overwrites = sources.iter().filter(|(_, source)| source.overwritten > 0);
    let overwrites = among(traces, overwrites.map(|(path, _)| path));
    let overwrites = |trace: usize| overwrites.get(trace).copied().unwrap_or(false);

    let processes = count(traces, &mut summary, &is_named, threads);
    summary.processes = processes.into_iter().collect();
    let mut running = HashMap::new();
    for (_, source) in sources {
        for (cause, count) in source.lost.iter().filter(|(_, count)| **count > 0) {
            match cause.as_str() {
                manifest::VFORK_CHILD => summary.not_traced = summary.not_traced.saturating_add(*count),
                cause => summary.lost.add(cause, *count),
            }
        }
        summary.overwritten = summary.overwritten.saturating_add(source.overwritten);
        summary.losses_unknown_of += u64::from(source.losses_unknown);
        if let Some(pid) = source.pid {
            let name = source.name.unwrap_or_default();
            let manifest::Source { executable, end, producer, parent, command_line, .. } = source;
            let parent = Some(parent).filter(|parent| *parent > 0);
            let process = Process { pid, name, executable, parent, command_line, end, producer };
            add_process(&mut summary.processes, &mut running, process);
        }
    }
    summary.processes.sort();
    for loss in traces.losses() {
        match loss.kind {
            LossKind::Packets if overwrites(loss.trace) => {
                summary.overwritten_gaps = summary.overwritten_gaps.saturating_add(1);
            }
            LossKind::Packets => summary.lost_packets = summary.lost_packets.saturating_add(loss.count),
            LossKind::Events if !is_known(loss.trace) => summary.lost.add("discarded", loss.count),
            // They may have been discarded before the first packet present.
            LossKind::Events | LossKind::EventsAtMost => {}
            LossKind::EventsUnknown => summary.losses_unknown |= !is_known(loss.trace),
        }
    }
    summary.timestamp_regressions = traces.timestamp_regressions().map(ToString::to_string).collect();
    summary.timestamp_regressions.sort_unstable();
    summary.corruptions.extend(traces.corruptions().iter().map(ToString::to_string));
    summary
}

/// Adds a process, or takes its end if it was running at the end of an earlier chunk. `running` has
/// the places of such processes by their ids.
fn add_process(processes: &mut Vec<Process>, running: &mut HashMap<i64, usize>, process: Process) {
    let is_running = process.end.as_deref() == Some(RUNNING);
    let known = running.get(&process.pid).and_then(|place| processes.get_mut(*place));
    let is_same = |known: &Process| Process { end: process.end.clone(), ..known.clone() } == process;
    match known.filter(|known| is_same(known)) {
        Some(known) => {
            if !is_running {
                running.remove(&process.pid);
            }
            known.end = process.end;
        }
        None => {
            if is_running {
                running.insert(process.pid, processes.len());
            }
            processes.push(process);
        }
    }
}

/// Returns for each trace whether its folder is among these.
fn among<'a>(traces: &TraceSet, folders: impl Iterator<Item = &'a PathBuf>) -> Vec<bool> {
    let folders: HashSet<&PathBuf> = folders.collect();
    traces.traces().iter().map(|trace| folders.contains(&manifest::plain(&trace.path))).collect()
}

/// Result of one reader.
struct Counted {
    /// Number of events by trace, stream class and event class.
    counts: Vec<Vec<Vec<u64>>>,
    begin: Option<i64>,
    end: Option<i64>,
    /// Names of processes by trace and process id, each from its earliest event.
    processes: Named,
}

type Named = BTreeMap<(usize, i64), (Option<i64>, String)>;

/// Counts events, and collects the processes of traces whose processes no manifest names.
fn count(
    traces: &mut TraceSet,
    summary: &mut Summary,
    is_named: &dyn Fn(usize) -> bool,
    threads: usize,
) -> BTreeSet<Process> {
    let of_traces = traces.traces().iter().enumerate().filter(|(index, _)| !is_named(*index));
    let mut processes: BTreeSet<Process> = of_traces.filter_map(|(_, trace)| process_of(trace)).collect();
    let of_traces = traces.traces().iter().enumerate();
    let has_pid: Vec<bool> =
        of_traces.map(|(index, trace)| !is_named(index) && names_processes(trace)).collect();
    let mut all = Counted::new(traces);
    if traces.can_tally(&Processes::new(&has_pid)) {
        for (processes, runs) in traces.tally(threads, &|| Processes::new(&has_pid)) {
            runs.iter().for_each(|run| all.add_run(run));
            all.name_processes(processes.named);
        }
    } else {
        let mut parts = traces.split(threads);
        let counted: Vec<Counted> = match parts.as_mut_slice() {
            [part] => vec![count_part(part, &has_pid)],
            parts => std::thread::scope(|scope| {
                let threads: Vec<_> =
                    parts.iter_mut().map(|part| scope.spawn(|| count_part(part, &has_pid))).collect();
                threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
            }),
        };
        traces.join(parts);
        counted.into_iter().for_each(|counted| all.join(counted));
    }
    (summary.begin_ns, summary.end_ns) = (all.begin, all.end);
    for (trace, streams) in traces.traces().iter().zip(all.counts) {
        for (stream, counts) in trace.metadata().streams.iter().zip(streams) {
            for (event, count) in stream.events.iter().zip(counts).filter(|(_, count)| *count > 0) {
                summary.events += count;
                *summary.by_event.entry(event.name.clone()).or_default() += count;
            }
        }
    }
    let process = |((_, pid), (_, name))| Process { pid, name, ..Process::default() };
    processes.extend(all.processes.into_iter().map(process));
    processes
}

/// Counts by decoding events, where counting without decoding is not possible.
fn count_part(traces: &mut TraceSet, has_pid: &[bool]) -> Counted {
    let mut counted = Counted::new(traces);
    let mut processes = Processes::new(has_pid);
    let has_pid = |trace: usize| has_pid.get(trace).copied().unwrap_or(false);
    traces.for_each_unordered(&has_pid, &mut |event| {
        let Place { trace, stream, class } = event.place();
        counted.add(trace, stream, (class, 1));
        counted.extend(event.timestamp());
        if has_pid(trace) {
            processes.first(trace, event.timestamp(), event.stream_context());
        }
    });
    counted.name_processes(processes.named);
    counted
}

impl Counted {
    fn new(traces: &TraceSet) -> Self {
        let shape = |trace: &Trace| {
            trace.metadata().streams.iter().map(|stream| vec![0u64; stream.events.len()]).collect()
        };
        let counts = traces.traces().iter().map(shape).collect();
        Self { counts, begin: None, end: None, processes: Named::new() }
    }

    fn add(&mut self, trace: usize, stream: usize, (class, count): (usize, u64)) {
        let streams = self.counts.get_mut(trace).and_then(|streams| streams.get_mut(stream));
        if let Some(sum) = streams.and_then(|classes| classes.get_mut(class)) {
            *sum += count;
        }
    }

    fn add_run(&mut self, run: &Run) {
        let counts = run.counts.iter().copied().enumerate();
        counts.for_each(|counted| self.add(run.trace, run.stream, counted));
        self.extend(run.times.map(|(begin, _)| begin));
        self.extend(run.times.map(|(_, end)| end));
    }

    fn extend(&mut self, time: Option<i64>) {
        self.begin = self.begin.into_iter().chain(time).min();
        self.end = self.end.into_iter().chain(time).max();
    }

    fn name_processes(&mut self, named: Named) {
        for (key, (time, name)) in named {
            name_process(&mut self.processes, key, time, || name);
        }
    }

    fn join(&mut self, other: Self) {
        for (trace, streams) in other.counts.into_iter().enumerate() {
            for (stream, counts) in streams.into_iter().enumerate() {
                counts.into_iter().enumerate().for_each(|counted| self.add(trace, stream, counted));
            }
        }
        self.extend(other.begin);
        self.extend(other.end);
        self.name_processes(other.processes);
    }
}

/// Stores a process's name if no name of an earlier time is known.
fn name_process(named: &mut Named, key: (usize, i64), time: Option<i64>, name: impl FnOnce() -> String) {
    if named.get(&key).is_none_or(|(known, _)| time < *known) {
        named.insert(key, (time, name()));
    }
}

/// Collector of processes.
struct Processes<'t> {
    named: Named,
    /// Whether the events of each trace state their process.
    has_pid: &'t [bool],
}

impl<'t> Processes<'t> {
    fn new(has_pid: &'t [bool]) -> Self {
        Self { named: Named::new(), has_pid }
    }
}

impl Counter for Processes<'_> {
    fn watched(&self, trace: usize) -> Option<&'static str> {
        self.has_pid.get(trace).copied().unwrap_or(false).then_some("vpid")
    }

    fn first(&mut self, trace: usize, time: Option<i64>, context: Fields<'_>) {
        let pid = context.get("vpid").and_then(|pid| i64::try_from(pid.as_integer()?).ok());
        let Some(pid) = pid else { return };
        name_process(&mut self.named, (trace, pid), time, || {
            let name = context.get("procname").and_then(|name| name.as_text()).unwrap_or_default();
            String::from_utf8_lossy(name).into_owned()
        });
    }
}

/// Returns the process of a trace that has a single one.
fn process_of(trace: &Trace) -> Option<Process> {
    let pid = trace.metadata().environment_value("vpid").and_then(EnvironmentValue::as_integer)?;
    let name = trace.metadata().environment_value("procname").and_then(EnvironmentValue::as_text);
    let producer = trace.metadata().environment_value("ring_producer").and_then(EnvironmentValue::as_text);
    let producer = producer.map(str::to_owned);
    Some(Process { pid, name: name.unwrap_or_default().into(), producer, ..Process::default() })
}

/// Whether the events of a trace state their process.
fn names_processes(trace: &Trace) -> bool {
    let contexts = trace.metadata().streams.iter().filter_map(|stream| stream.event_context.as_ref());
    contexts.into_iter().any(|context| context.field("vpid").is_some())
}

#[cfg(test)]
mod tests;
