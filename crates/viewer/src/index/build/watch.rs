//! The thread that makes states of what others found in events.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};

use tompion_analysis::quick::QuickSet;
use tompion_analysis::state::{Engine, Fact, Instant, Interval, MachineId, ThreadId, Visitor};
use tompion_reader::{AddressNames, Loss, TraceSet};

use super::classes::{Class, Classes, Show};
use super::seen::{Finder, Found, MOST_MET, More, Seen};
use super::{BATCH, Outline};
use crate::index::PartRows;
use crate::index::apply::{Finding, Where};
use crate::index::lane::Widths;

/// Events after which is looked whether to stop, and told how far it went.
const PACE: u64 = 1 << 14;

/// Finds what there is to know of events, and hands it over in batches.
pub struct Watch<'t> {
    outline: &'t Outline,
    classes: Arc<Classes>,
    /// The streams' files, each with its trace.
    streams: Vec<(usize, Vec<std::path::PathBuf>)>,
    machines: Vec<MachineId>,
    batch: Batch,
    met: QuickSet<(usize, i32)>,
    interrupts: QuickSet<i64>,
    functions: QuickSet<(u32, u64)>,
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
        let classes = Arc::new(Classes::new(traces));
        let count = classes.count();
        let cell = Widths::new(outline.duration).0.first().copied().unwrap_or(1);
        Self {
            outline,
            classes,
            streams: traces.streams(),
            machines: Vec::new(),
            batch: Batch { findings: Vec::with_capacity(BATCH), sender, is_over: false },
            met: QuickSet::default(),
            interrupts: QuickSet::default(),
            functions: QuickSet::default(),
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
        let names = AddressNames::read(traces).map(|names| Arc::new(Mutex::new(names)));
        let (says, classes) = (engine.says().clone(), self.classes.clone());
        let new = || Finder::new(says.clone(), classes.clone(), names.clone());
        traces.gather(&new, &mut |found| {
            self.found(found, &mut engine);
            !self.batch.is_over && !stop.load(Ordering::Relaxed)
        });
        if self.batch.is_over || stop.load(Ordering::Relaxed) {
            return;
        }
        engine.finish(&mut self.batch);
        for channel in 0..self.cells.len() {
            self.end_cell(channel);
        }
        self.end_part();
        self.tell();
        self.batch.send();
    }

    /// Takes what was found in some events.
    fn found(&mut self, found: Found, engine: &mut Engine) {
        let Found { facts, events, more } = found;
        let classes = self.classes.clone();
        let mut more = more.into_iter().peekable();
        for (index, (event, fact)) in events.iter().zip(facts.list()).enumerate() {
            let (mut thread, mut of_event) = (None, None);
            while let Some((_, more)) = more.next_if(|(of, _)| *of <= index) {
                match more {
                    More::Loss(loss) => self.loss(&loss, engine),
                    More::Thread(pid, name) => thread = Some((pid, name)),
                    other => of_event = Some(other),
                }
            }
            let time = fact.time().unwrap_or(self.now.max(self.outline.base));
            let channel = self.count(event, time);
            if let Some(class) = event.class.and_then(|class| classes.get(class)) {
                if let Some(count) = self.counts.get_mut(class.number as usize) {
                    *count += 1;
                }
                let time = time.saturating_sub(self.outline.base);
                if class.is_of_program {
                    self.meet(event, fact, thread);
                    self.of_program((event, fact), (class, of_event), (time, channel));
                } else {
                    self.of_kernel((event, fact), (class, of_event), time);
                }
            }
            engine.fact(&facts, fact, &mut self.batch);
            self.rows += 1;
            if self.rows % PACE == 0 {
                self.tell();
            }
        }
        // What was lost behind the last event.
        for (_, more) in more {
            if let More::Loss(loss) = more {
                self.loss(&loss, engine);
            }
        }
    }

    /// Says how far it went.
    fn tell(&mut self) {
        let gone = self.now.saturating_sub(self.outline.base) as f64 / self.outline.duration.max(1) as f64;
        self.batch.push(Finding::Progress(gone, self.bounds.clone()));
        self.batch.send();
    }

    /// Counts an event; returns its channel.
    fn count(&mut self, event: &Seen, time: i64) -> u32 {
        self.now = self.now.max(time);
        while self.outline.parts.begin(self.part + 1).is_some_and(|begin| self.now >= begin) {
            self.end_part();
        }
        let time = time.saturating_sub(self.outline.base);
        if let Some((events, bounds)) = self.bounds.get_mut(event.trace as usize) {
            *events += 1;
            let (first, last) = bounds.unwrap_or((time, time));
            *bounds = Some((first.min(time), last.max(time)));
        }
        let channel = self.outline.channel_of.get(event.source as usize).copied().unwrap_or(0);
        self.density(channel, time);
        channel
    }

    fn machine(&self, trace: u32) -> MachineId {
        self.machines.get(trace as usize).copied().unwrap_or_default()
    }

    fn of_kernel(&mut self, (event, fact): (&Seen, &Fact), (class, more): (&Class, Option<More>), time: i64) {
        if class.show == Show::CpuMark {
            if let Some(cpu) = fact.cpu() {
                let place = Where::Cpu(self.machine(event.trace), cpu);
                self.batch.push(Finding::Mark(place, time, class.name.clone()));
            }
        }
        if let Some(More::Interrupt(number, name)) = more {
            if self.interrupts.len() < MOST_MET && self.interrupts.insert(number) {
                self.batch.push(Finding::InterruptName(number, name));
            }
        }
    }

    fn of_program(
        &mut self,
        (event, fact): (&Seen, &Fact),
        (class, more): (&Class, Option<More>),
        (time, channel): (i64, u32),
    ) {
        let machine = self.machine(event.trace);
        let thread = fact.thread().map(|tid| ThreadId { machine, tid });
        let name = || class.name.clone();
        match (class.show, thread) {
            (Show::Flow | Show::Mark, Some(thread)) => {
                self.batch.push(Finding::Mark(Where::Thread(thread, event.trace), time, name()));
            }
            (Show::Mark | Show::Flow, None) => {
                self.batch.push(Finding::Mark(Where::Channel(channel), time, name()));
            }
            _ => {}
        }
        match (more, thread) {
            (Some(More::Counter(value)), _) => {
                let counter = (class.number, event.trace);
                self.batch.push(Finding::Counter(counter, name(), (time, value)));
            }
            (Some(More::Flow(flow)), Some(thread)) => {
                self.batch.push(Finding::Flow(thread, time, (name(), flow)));
            }
            (Some(More::Job(deadline)), Some(thread)) => {
                let time = fact.time().unwrap_or(self.now);
                self.batch.push(Finding::Job(thread, time, deadline));
            }
            (Some(More::Function(address, name)), _)
                if self.functions.len() < MOST_MET && self.functions.insert((event.trace, address)) =>
            {
                self.batch.push(Finding::FunctionName(address, name));
            }
            _ => {}
        }
    }

    /// Tells of the thread of a program's event when it is the first one.
    fn meet(&mut self, event: &Seen, fact: &Fact, told: Option<(Option<i32>, Option<String>)>) {
        let (Some(tid), Some((pid, name))) = (fact.thread(), told) else { return };
        if self.met.len() < MOST_MET && self.met.insert((event.trace as usize, tid)) {
            let thread = ThreadId { machine: self.machine(event.trace), tid };
            self.batch.push(Finding::Meet { thread, pid, name, trace: event.trace });
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

    fn loss(&mut self, loss: &Loss, engine: &mut Engine) {
        engine.loss(loss);
        let is_it = |(_, paths): &(usize, Vec<std::path::PathBuf>)| paths.contains(&loss.path);
        let Some(source) = self.streams.iter().position(is_it) else { return };
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
