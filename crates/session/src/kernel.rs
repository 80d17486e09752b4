//! The kernel as a source of events: a thread that drains its rings and writes the trace `kernel/`.
//!
//! It stands beside the consumer, whose rings are other people's: programs in the kernel read no TSC, so nothing
//! waits for clock samples, and a storm of interrupts delays no application's events. What a ring looks like is
//! `tompion_kernel`'s business.

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use tompion_ctf::{
    encode::{self, ContextField, Record, Tally},
    metadata::{EnvironmentValue, Uuid},
};
use tompion_kernel::{
    Error, Options, Recorder, Selection,
    decode::{Class, Decoder},
    records::Records,
    ring::{Geometry, Span},
    syscalls::Calls,
};
use tompion_layout::loss::Cause;

use crate::{
    control::Terms,
    manifest,
    source::{ClassId, Mark, Pushed, SourceWriter},
};

/// Name of the trace's folder, and of the source in the manifest.
const NAME: &str = "kernel";
/// How long the thread sleeps between two looks: the fuller the rings, the shorter.
const SLEEP: (Duration, Duration) = (Duration::from_micros(200), Duration::from_millis(4));
/// A packet is written at the latest after this time.
const FLUSH_EVERY: Duration = Duration::from_millis(500);
/// How long programs may take to come to their end after they were detached.
const PATIENCE: Duration = Duration::from_millis(200);

/// What to record of the kernel.
#[derive(Clone, Debug)]
pub struct KernelChoice {
    /// Which events.
    pub selection: Selection,
    /// The system calls of this machine.
    pub calls: Calls,
}

/// How the kernel's rings are to be, and where what is in them goes.
pub struct Plan<'a> {
    /// What to record.
    pub choice: &'a KernelChoice,
    /// What the session says to all its sources.
    pub terms: &'a Terms,
    /// Bytes of a CPU's ring.
    pub ring_size: u64,
    /// Processes whose system calls are recorded, with their children's; none for all processes'.
    pub follow: Vec<u32>,
}

enum Order {
    /// Save what the flight recorder holds; the answer is how many events that were.
    Snapshot(Sender<u64>),
    /// Complete everything.
    Finish,
}

/// What became of it.
pub struct Outcome {
    /// For the manifest.
    pub source: manifest::Source,
    /// What users should know.
    pub problems: Vec<String>,
}

/// The recorded kernel, before and while its thread runs.
pub struct Kernel {
    /// What the thread gets when it starts.
    idle: Option<Drain>,
    orders: Sender<Order>,
    thread: Option<JoinHandle<Outcome>>,
}

impl Kernel {
    /// Loads the programs and attaches them.
    pub fn prepare(plan: &Plan<'_>) -> Result<Self, Error> {
        let Plan { choice, terms, ring_size, follow } = plan;
        let geometry = Geometry::of_size(tompion_os::online_cpus(), *ring_size);
        let options = Options {
            selection: choice.selection.clone(),
            overwrite: terms.overwrite,
            geometry,
            follow: follow.clone(),
        };
        let mut recorder = Recorder::load(&options, &choice.calls)?;
        recorder.attach()?;
        let (orders, inbox) = mpsc::channel();
        let drain = Drain::new(recorder, choice.calls.clone(), terms, inbox);
        Ok(Self { idle: Some(drain), orders, thread: None })
    }

    /// Starts the thread.
    pub fn start(&mut self) -> io::Result<()> {
        let Some(drain) = self.idle.take() else { return Ok(()) };
        self.thread = Some(thread::Builder::new().name(NAME.into()).spawn(move || drain.run())?);
        Ok(())
    }

    /// Saves what the flight recorder holds. Returns the number of events.
    pub fn snapshot(&self) -> u64 {
        let (sender, receiver) = mpsc::channel();
        match self.orders.send(Order::Snapshot(sender)) {
            Ok(()) => receiver.recv().unwrap_or(0),
            Err(_) => 0,
        }
    }

    /// Detaches the programs and completes the trace.
    pub fn finish(mut self) -> Option<Outcome> {
        let _ = self.orders.send(Order::Finish);
        self.thread.take()?.join().ok()
    }
}

/// The thread's state.
struct Drain {
    recorder: Recorder,
    decoder: Decoder,
    calls: Calls,
    inbox: Receiver<Order>,
    folder: PathBuf,
    overwrite: bool,
    writer: SourceWriter,
    classes: HashMap<Class, ClassId>,
    /// Up to where each ring was read.
    read: Vec<u64>,
    /// Up to where each ring was converted.
    converted: Vec<u64>,
    /// Records that were read.
    records: u64,
    refused: u64,
    /// Why writing stopped, if it did.
    stopped: Option<String>,
    flushed: Instant,
    bytes: Vec<u8>,
}

impl Drain {
    fn new(recorder: Recorder, calls: Calls, terms: &Terms, inbox: Receiver<Order>) -> Self {
        let cpus = recorder.geometry().cpus as usize;
        let folder = terms.folder.join(NAME);
        Self {
            recorder,
            decoder: Decoder::new(calls.clone()),
            calls,
            inbox,
            overwrite: terms.overwrite,
            writer: SourceWriter::new(folder.clone(), description(terms), cpus, false),
            folder,
            classes: HashMap::new(),
            read: vec![0; cpus],
            converted: vec![0; cpus],
            records: 0,
            refused: 0,
            stopped: None,
            flushed: Instant::now(),
            bytes: Vec::new(),
        }
    }

    fn run(mut self) -> Outcome {
        tompion_os::prefer_this_thread();
        let mut sleep = SLEEP.0;
        loop {
            match self.inbox.recv_timeout(sleep) {
                Ok(Order::Snapshot(done)) => {
                    let before = self.writer.written();
                    self.save_history();
                    self.flush();
                    // Whoever asked may have gone.
                    let _ = done.send(self.writer.written() - before);
                }
                Ok(Order::Finish) | Err(RecvTimeoutError::Disconnected) => return self.finish(),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let fullest = if self.overwrite { 0 } else { self.collect() };
            if self.flushed.elapsed() >= FLUSH_EVERY {
                self.flush();
            }
            sleep = match fullest {
                10.. => SLEEP.0,
                3.. => sleep.min(SLEEP.1 / 4),
                _ => (sleep * 3 / 2).min(SLEEP.1),
            };
        }
    }

    /// Takes what is new in all rings. Returns the largest share of a ring that was filled, in percent.
    fn collect(&mut self) -> u64 {
        let mut fullest = 0;
        for cpu in 0..self.read.len() {
            let mut bytes = std::mem::take(&mut self.bytes);
            bytes.clear();
            let ring = self.recorder.ring(cpu as u32);
            let lost = lost_of(&self.recorder, cpu as u32);
            match ring.take(self.read[cpu], &mut bytes) {
                Ok(span) => {
                    self.read[cpu] = span.end;
                    let share = (span.end - span.begin) * 100 / self.recorder.geometry().ring_size();
                    fullest = fullest.max(share);
                    self.attempt(|drain| drain.writer.set_discarded(cpu, lost, drain.mark(cpu)));
                    self.convert(cpu, span, &bytes);
                }
                Err(_) => self.refused += 1,
            }
            self.bytes = bytes;
        }
        fullest
    }

    /// Takes the history of a flight recorder, behind what was saved before.
    fn save_history(&mut self) {
        for cpu in 0..self.read.len() {
            let mut history = Vec::new();
            self.recorder.ring(cpu as u32).copy_history(self.read[cpu], &mut history);
            for (span, bytes) in history {
                self.convert(cpu, span, &bytes);
                self.read[cpu] = span.end;
            }
        }
    }

    fn convert(&mut self, cpu: usize, span: Span, bytes: &[u8]) {
        let mut records = Records::new(bytes, span.begin);
        loop {
            let position = records.position();
            let Some(record) = records.next() else { return };
            let Ok(record) = record else {
                self.refused += 1;
                continue;
            };
            self.records += 1;
            if self.stopped.is_some() {
                continue;
            }
            let Ok((class, payload)) = self.decoder.decode(&record) else {
                self.refused += 1;
                continue;
            };
            let event = (!self.classes.contains_key(&class)).then(|| class.event(&self.calls));
            let id = match event {
                Some(event) => *self.classes.entry(class).or_insert(self.writer.add_class(&event)),
                None => self.classes[&class],
            };
            let mut context = [0; 8];
            context[..4].copy_from_slice(&record.tid.to_le_bytes());
            context[4..].copy_from_slice(&record.pid.to_le_bytes());
            let encoded = Record { id, time: record.time, tid: 0, context: &context, payload };
            let pushed = self.writer.push(cpu, cpu as u32, position, &encoded);
            self.converted[cpu] = records.position();
            match pushed {
                Ok(Pushed::Taken) => {}
                Ok(Pushed::Full) => self.attempt(|drain| drain.writer.flush(cpu, drain.mark(cpu))),
                Ok(Pushed::Misfit) => self.refused += 1,
                Err(error) => self.stop(&error),
            }
        }
    }

    /// Up to where a ring was converted. (What became of its events, the manifest says.)
    fn mark(&self, cpu: usize) -> Mark {
        Mark { ring_end: self.converted[cpu], tally: Tally::default() }
    }

    fn attempt(&mut self, step: impl FnOnce(&mut Self) -> io::Result<()>) {
        if self.stopped.is_none() {
            if let Err(error) = step(self) {
                self.stop(&error);
            }
        }
    }

    /// The trace ends with the last whole packet; what comes is counted.
    fn stop(&mut self, error: &io::Error) {
        let text = format!("recording to {} stopped: {error}", self.folder.display());
        self.stopped.get_or_insert(text);
    }

    fn flush(&mut self) {
        self.flushed = Instant::now();
        let streams = self.read.len();
        self.attempt(|drain| {
            (0..streams).try_for_each(|stream| drain.writer.flush(stream, drain.mark(stream)))
        });
    }

    fn finish(mut self) -> Outcome {
        self.recorder.detach();
        let until = Instant::now() + PATIENCE;
        loop {
            if self.overwrite {
                // Programs that still run have a moment.
                thread::sleep(SLEEP.1);
                self.save_history();
                break;
            }
            self.collect();
            let cpus = self.read.iter().enumerate();
            let mut behind =
                cpus.filter(|(cpu, read)| self.recorder.ring(*cpu as u32).written() != **read).peekable();
            if behind.peek().is_none() || Instant::now() >= until {
                break;
            }
            drop(behind);
            thread::sleep(SLEEP.0);
        }
        for cpu in 0..self.read.len() {
            let lost = lost_of(&self.recorder, cpu as u32);
            self.attempt(|drain| drain.writer.finish(cpu, lost, drain.mark(cpu)));
        }
        self.outcome()
    }

    fn outcome(mut self) -> Outcome {
        let rings = || (0..self.recorder.geometry().cpus).map(|cpu| self.recorder.ring(cpu));
        let committed: u64 = rings().map(|ring| ring.events()).sum();
        let mut problems: Vec<String> = self.stopped.clone().into_iter().collect();
        if !self.recorder.missing().is_empty() {
            let names = self.recorder.missing().join(", ");
            problems.push(format!("this kernel has no {names}"));
        }
        let written = self.writer.written();
        let not_written = self.records.saturating_sub(written).saturating_sub(self.refused);
        let overwritten = committed.saturating_sub(self.records);
        let nested = self.recorder.misses();
        let lost = manifest::losses(|cause| match cause {
            Cause::Refused => self.refused,
            Cause::NotWritten => not_written,
            Cause::Nested => nested,
            cause => (0..self.recorder.geometry().cpus).map(|cpu| self.recorder.ring(cpu).lost(cause)).sum(),
        });
        let source = manifest::Source {
            path: NAME.into(),
            kind: NAME.into(),
            pid: 0,
            name: NAME.into(),
            executable: String::new(),
            producer: "bpf".into(),
            end: String::new(),
            events: written,
            lost,
            overwritten,
        };
        Outcome { source, problems }
    }
}

/// What a ring lost so far.
fn lost_of(recorder: &Recorder, cpu: u32) -> u64 {
    let ring = recorder.ring(cpu);
    Cause::ALL.into_iter().map(|cause| ring.lost(cause)).fold(0, u64::saturating_add)
}

/// What the trace says of itself: what readers' analyses know LTTng's kernel traces by.
fn description(terms: &Terms) -> encode::Source {
    let read = |name: &str| {
        let text = fs::read_to_string(Path::new("/proc/sys/kernel").join(name)).unwrap_or_default();
        EnvironmentValue::Text(text.trim().to_owned())
    };
    let text = |value: &str| EnvironmentValue::Text(value.to_owned());
    let environment = vec![
        ("hostname", text(&terms.hostname)),
        ("domain", text("kernel")),
        ("sysname", read("ostype")),
        ("kernel_release", read("osrelease")),
        ("kernel_version", read("version")),
        ("tracer_name", text("lttng-modules")),
        ("tracer_major", EnvironmentValue::Integer(2)),
        ("tracer_minor", EnvironmentValue::Integer(13)),
        ("producer", text(concat!("tompion ", env!("CARGO_PKG_VERSION")))),
    ];
    encode::Source {
        uuid: Uuid(uuid::Uuid::new_v4().into_bytes()),
        environment: environment.into_iter().map(|(name, value)| (name.into(), value)).collect(),
        clock_uuid: Uuid::parse(&terms.boot_id),
        clock_offset_ns: terms.clock_offset_ns,
        clock_precision_ns: 1,
        tid: false,
        context: vec![ContextField::signed("tid", 32), ContextField::signed("pid", 32)],
    }
}
