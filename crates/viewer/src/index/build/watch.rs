//! The thread that reads events.

use std::collections::HashSet;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;

use tompion_analysis::state::{Engine, Instant, Interval, MachineId, ThreadId, Visitor};
use tompion_ctf::decode::Value;
use tompion_ctf::metadata::EnvironmentValue;
use tompion_reader::{AddressNames, Event, Loss, TraceSet};

use super::classes::{Class, Show, classes};
use super::{BATCH, Outline};
use crate::index::PartRows;
use crate::index::apply::{Finding, Where};
use crate::index::lane::Widths;

/// Most threads, functions and interrupts that are remembered to have been told of.
const MOST_MET: usize = 1 << 20;
/// Events after which is looked whether to stop, and told how far it went.
const PACE: u64 = 1 << 14;

/// Finds what there is to know of events, and hands it over in batches.
pub struct Watch<'t> {
    outline: &'t Outline,
    classes: Vec<Vec<Vec<Class>>>,
    machines: Vec<MachineId>,
    names: Option<AddressNames>,
    batch: Batch,
    met: HashSet<(usize, i32)>,
    interrupts: HashSet<i64>,
    functions: HashSet<(usize, u64)>,
    /// For each channel, the cell of the last events.
    cells: Vec<Cell>,
    /// Width of those cells in nanoseconds.
    cell: i64,
    /// The part that is read, its first row, and events by class.
    part: usize,
    first: u64,
    counts: Vec<u64>,
    rows: u64,
    now: i64,
    /// For each trace: events, first and last time.
    bounds: Vec<(u64, Option<(i64, i64)>)>,
}

/// Events of a channel that are told of together.
#[derive(Clone, Copy, Default)]
struct Cell {
    number: i64,
    first: i64,
    last: i64,
    count: u64,
}

/// Findings that are handed over together.
struct Batch {
    findings: Vec<Finding>,
    sender: SyncSender<Vec<Finding>>,
    is_over: bool,
}

impl Batch {
    fn push(&mut self, finding: Finding) {
        self.findings.push(finding);
        if self.findings.len() >= BATCH {
            self.send();
        }
    }

    fn send(&mut self) {
        let batch = mem::replace(&mut self.findings, Vec::with_capacity(BATCH));
        // Nobody listens any more if the index could not be written.
        self.is_over |= self.sender.send(batch).is_err();
    }
}

impl Visitor for Batch {
    fn interval(&mut self, interval: &Interval) {
        self.push(Finding::Interval(interval.clone()));
    }

    fn instant(&mut self, instant: &Instant) {
        self.push(Finding::Instant(instant.clone()));
    }
}

impl<'t> Watch<'t> {
    /// Of traces of which nothing was read.
    pub fn new(traces: &TraceSet, outline: &'t Outline, sender: SyncSender<Vec<Finding>>) -> Self {
        let classes = classes(traces);
        let count = classes.iter().flatten().flatten().count();
        let cell = Widths::new(outline.duration).0.first().copied().unwrap_or(1);
        Self {
            names: AddressNames::read(traces),
            outline,
            classes,
            machines: Vec::new(),
            batch: Batch { findings: Vec::with_capacity(BATCH), sender, is_over: false },
            met: HashSet::new(),
            interrupts: HashSet::new(),
            functions: HashSet::new(),
            cells: vec![Cell::default(); outline.channels.len()],
            cell: (cell / 8).max(1),
            part: 0,
            first: 0,
            counts: vec![0; count],
            rows: 0,
            now: i64::MIN,
            bounds: vec![(0, None); traces.traces().len()],
        }
    }

    /// Reads everything.
    pub fn run(mut self, traces: &mut TraceSet, stop: &AtomicBool) {
        let mut engine = Engine::new(traces.traces());
        let machines = (0..traces.traces().len()).map(|trace| engine.machine_of(trace).unwrap_or_default());
        self.machines = machines.collect();
        let streams = traces.streams();
        let mut known = 0;
        loop {
            let is_there = traces.step();
            for loss in traces.losses().get(known..).unwrap_or_default() {
                engine.loss(loss);
                self.loss(loss, &streams);
                known += 1;
            }
            let Some(event) = traces.current().filter(|_| is_there) else { break };
            self.event(&event);
            engine.event(&event, &mut self.batch);
            self.rows += 1;
            if self.rows % PACE == 0 {
                self.tell();
                if self.batch.is_over || stop.load(Ordering::Relaxed) {
                    return;
                }
            }
        }
        engine.finish(&mut self.batch);
        for channel in 0..self.cells.len() {
            self.end_cell(channel);
        }
        self.end_part();
        self.tell();
        self.batch.send();
    }

    /// Says how far it went.
    fn tell(&mut self) {
        let gone = self.now.saturating_sub(self.outline.base) as f64 / self.outline.duration.max(1) as f64;
        self.batch.push(Finding::Progress(gone, self.bounds.clone()));
        self.batch.send();
    }

    fn event(&mut self, event: &Event<'_>) {
        let place = event.place();
        let time = event.timestamp().unwrap_or(self.now.max(self.outline.base));
        self.now = self.now.max(time);
        while self.outline.parts.begin(self.part + 1).is_some_and(|begin| self.now >= begin) {
            self.end_part();
        }
        let time = time.saturating_sub(self.outline.base);
        if let Some((events, bounds)) = self.bounds.get_mut(place.trace) {
            *events += 1;
            let (first, last) = bounds.unwrap_or((time, time));
            *bounds = Some((first.min(time), last.max(time)));
        }
        let channel = self.outline.channel_of.get(event.source()).copied().unwrap_or(0);
        self.density(channel, time);
        let class =
            self.classes.get(place.trace).and_then(|streams| streams.get(place.stream)?.get(place.class));
        let Some(class) = class.cloned() else { return };
        if let Some(count) = self.counts.get_mut(class.number as usize) {
            *count += 1;
        }
        if class.is_of_program {
            self.of_program(event, &class, (time, channel));
        } else {
            self.of_kernel(event, &class, time);
        }
    }

    fn of_kernel(&mut self, event: &Event<'_>, class: &Class, time: i64) {
        match class.show {
            Show::CpuMark => {
                let machine = self.machines.get(event.trace_index()).copied().unwrap_or_default();
                if let Some(cpu) = event.cpu().and_then(|cpu| cpu.try_into().ok()) {
                    self.batch.push(Finding::Mark(Where::Cpu(machine, cpu), time, class.name.clone()));
                }
            }
            Show::Interrupt => {
                let payload = event.payload();
                let number = payload.get("irq").and_then(|number| i64::try_from(number.as_integer()?).ok());
                let Some(number) = number.filter(|number| !self.interrupts.contains(number)) else { return };
                if self.interrupts.len() < MOST_MET {
                    self.interrupts.insert(number);
                    if let Some(name) = payload.get("name").and_then(|name| name.as_text()) {
                        let name = String::from_utf8_lossy(name).into_owned();
                        self.batch.push(Finding::InterruptName(number, name));
                    }
                }
            }
            _ => {}
        }
    }

    fn of_program(&mut self, event: &Event<'_>, class: &Class, (time, channel): (i64, u32)) {
        let thread = self.thread(event);
        let name = class.name.clone();
        let trace = event.trace_index();
        match (class.show, thread) {
            (Show::Counter, _) => {
                let value = event.payload().find_map(|(_, value)| number(&value));
                if let Some(value) = value {
                    let finding = Finding::Counter((class.number, trace as u32), name, (time, value));
                    self.batch.push(finding);
                }
            }
            (Show::Flow, Some(thread)) => {
                let flow = event.payload().find_map(|(_, value)| value.as_integer());
                self.batch.push(Finding::Mark(Where::Thread(thread, trace as u32), time, name.clone()));
                if let Some(flow) = flow {
                    self.batch.push(Finding::Flow(thread, time, (name, flow)));
                }
            }
            (Show::Mark, Some(thread)) => {
                self.batch.push(Finding::Mark(Where::Thread(thread, trace as u32), time, name));
            }
            (Show::Mark | Show::Flow, None) => {
                self.batch.push(Finding::Mark(Where::Channel(channel), time, name));
            }
            (Show::Job, Some(thread)) => {
                let deadline =
                    event.payload().get("deadline_ns").and_then(|it| it.as_integer()?.try_into().ok());
                let time = event.timestamp().unwrap_or(self.now);
                self.batch.push(Finding::Job(thread, time, deadline.unwrap_or(0)));
            }
            (Show::Function, _) => self.function(event),
            _ => {}
        }
    }

    /// The thread of a program's event; tells of it when it is the first one.
    fn thread(&mut self, event: &Event<'_>) -> Option<ThreadId> {
        let (trace, contexts) = (event.trace_index(), [event.stream_context(), event.context()]);
        let find = |name: &str| contexts.iter().find_map(|fields| fields.get(name));
        let number = |value: Value<'_>| value.as_integer().and_then(|number| i32::try_from(number).ok());
        let tid = find("vtid").or_else(|| find("tid")).and_then(number)?;
        let thread = ThreadId { machine: self.machines.get(trace).copied().unwrap_or_default(), tid };
        if self.met.len() < MOST_MET && self.met.insert((trace, tid)) {
            let environment = |name: &str| event.trace().metadata().environment_value(name);
            let of_trace = || environment("vpid").and_then(EnvironmentValue::as_integer)?.try_into().ok();
            let pid = find("vpid").or_else(|| find("pid")).and_then(number).or_else(of_trace);
            let text = |value: Value<'_>| Some(String::from_utf8_lossy(value.as_text()?).into_owned());
            let of_trace = || environment("procname").and_then(EnvironmentValue::as_text).map(str::to_owned);
            let name = find("procname").and_then(text).or_else(of_trace);
            self.batch.push(Finding::Meet { thread, pid, name, trace: trace as u32 });
        }
        Some(thread)
    }

    fn function(&mut self, event: &Event<'_>) {
        let address = event.payload().get("addr").and_then(|address| address.as_integer()?.try_into().ok());
        let (Some(address), Some(names)) = (address, &mut self.names) else { return };
        if self.functions.len() < MOST_MET && self.functions.insert((event.trace_index(), address)) {
            let named = names.of(event).into_iter().find(|(field, _)| *field == "addr");
            if let Some((_, name)) = named {
                self.batch.push(Finding::FunctionName(address, name));
            }
        }
    }

    fn density(&mut self, channel: u32, time: i64) {
        let Some(cell) = self.cells.get_mut(channel as usize) else { return };
        let number = time.div_euclid(self.cell);
        if cell.number != number {
            self.end_cell(channel as usize);
        }
        if let Some(cell) = self.cells.get_mut(channel as usize) {
            if cell.count == 0 {
                *cell = Cell { number, first: time, last: time, count: 0 };
            }
            cell.first = cell.first.min(time);
            cell.last = cell.last.max(time);
            cell.count += 1;
        }
    }

    fn end_cell(&mut self, channel: usize) {
        let Some(cell) = self.cells.get_mut(channel) else { return };
        let Cell { first, last, count, .. } = mem::take(cell);
        if count > 0 {
            self.batch.push(Finding::Density(channel as u32, (first, last), count));
        }
    }

    fn loss(&mut self, loss: &Loss, streams: &[(usize, Vec<std::path::PathBuf>)]) {
        let is_it = |(_, paths): &(usize, Vec<std::path::PathBuf>)| paths.contains(&loss.path);
        let Some(source) = streams.iter().position(is_it) else { return };
        let channel = self.outline.channel_of.get(source).copied().unwrap_or(0);
        let (from, to) = loss.between;
        let base = self.outline.base;
        let to = to.or(from).unwrap_or(base);
        let from = from.unwrap_or(to).min(to);
        let times = (from.saturating_sub(base), to.saturating_sub(base));
        self.batch.push(Finding::Lost(channel, times, loss.count));
    }

    fn end_part(&mut self) {
        let counts = self.counts.iter_mut().enumerate().filter(|(_, count)| **count > 0);
        let counts = counts.map(|(class, count)| (class as u32, mem::take(count))).collect();
        self.batch.push(Finding::Part(self.part, PartRows { first: self.first, counts }));
        self.part += 1;
        self.first = self.rows;
    }
}

/// A value as a number, if it is one.
fn number(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Float(number) => Some(*number).filter(|number| number.is_finite()),
        other => other.as_integer().map(|number| number as f64),
    }
}
