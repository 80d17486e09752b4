//! Kernel as a source of events: a thread that drains its rings and writes the trace `kernel/`.
//!
//! It stands beside the consumer, whose rings are other people's: programs in the kernel read no
//! TSC, so nothing waits for clock samples, and a storm of interrupts delays no application's
//! events. What a ring looks like is `tompion_kernel`'s business.

mod classes;

use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc,
        mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use tompion_ctf::{
    encode::{self, Record, Tally},
    metadata::Uuid,
};
use tompion_kernel::{
    Error, Options, Recorder, Selection,
    context::{Contexts, STACK, Values},
    decode::{Class, Decoder, Vocabulary},
    filter::Filter,
    records::Records,
    ring::{Geometry, Opening, Span, Taken},
    state::{self, State},
    switch_gaps::{Findings, SwitchGapDetector},
    syscalls::Calls,
};
use tompion_kernel_context::{
    context,
    filter::{Head, KernelFilter},
    stacks::Stacks,
};
use tompion_layout::loss::Cause;
use tompion_lineage::{
    proc_files::process_of,
    untraced::{ExecutionLog, Family},
};
use tompion_manifest::{self as manifest, KERNEL};
use tompion_os::DirHandle;
use tompion_writer::{HostInfo, Mark, Pushed, SourceWriter, WriteMode, environment};

use crate::{
    consumer::MAX_UNSAVED_PERCENT, messages::reason, session_config::SessionConfig, target::ProcessTree,
};
use classes::Classes;

/// Shortest and longest sleep between two looks at the rings.
const MIN_SLEEP: Duration = Duration::from_micros(200);
const MAX_SLEEP: Duration = Duration::from_millis(4);
/// Sleep of a flight recorder: nothing waits in its rings, and commands end a sleep.
const OVERWRITE_SLEEP: Duration = Duration::from_millis(50);
/// Backlog of a ring, in percent, that is to be filled after a sleep. Each sleep preempts the
/// recorded programs once, and a burst needs the rest of the ring.
const TARGET_FILL: u32 = 15;
/// A packet is written at the latest after this time, unless it counts losses.
const FLUSH_INTERVAL: Duration = Duration::from_millis(500);
/// Time for which a packet that counts losses may wait for an event behind them.
const MAX_PACKET_WAIT: Duration = Duration::from_secs(2);
/// Time for which programs may run on after they were detached.
const DETACH_TIMEOUT: Duration = Duration::from_millis(200);

/// Choice of the kernel's events.
#[derive(Clone, Debug)]
pub struct KernelChoice {
    /// Events to record.
    pub selection: Selection,
    /// The system calls of this machine.
    pub calls: Calls,
    /// Filter, compiled for this selection from the filter of the recording's rules.
    pub filter: Option<Filter>,
    /// Context of events.
    pub contexts: Contexts,
}

/// Size of the kernel's rings, and destination of their events.
pub struct Plan<'a> {
    /// Choice of events.
    pub choice: &'a KernelChoice,
    /// Configuration of the session.
    pub session_config: &'a SessionConfig,
    /// Bytes of a CPU's ring.
    pub ring_size: u64,
    /// Processes whose system calls are recorded, with their children's; none for all processes'.
    pub follow: ProcessTree,
    /// Tells the user something at once.
    pub notice: fn(&str),
}

enum KernelCommand {
    /// Save what the flight recorder holds; the answer is how many events that were, and how many
    /// there are in all.
    Snapshot(Sender<(u64, u64)>),
    /// Save what comes until this time, before it is overwritten.
    KeepSaving(Instant),
    /// Complete everything.
    Finish,
}

/// Result of recording the kernel.
#[derive(Debug)]
pub struct Outcome {
    /// Source as the manifest lists it.
    pub source: manifest::Source,
    /// Problems for users.
    pub problems: Vec<String>,
    /// Remarks for the manifest alone: users can't act on them.
    pub remarks: Vec<String>,
    /// The command's descendants, and the programs that were executed.
    pub family: Family,
    /// Reason why writing stopped early, if it did. It was reported when it happened.
    pub stopped: Option<String>,
}

/// The recorded kernel, before and while its thread runs.
pub struct Kernel {
    /// State that the thread gets when it starts.
    idle: Option<Drain>,
    commands: Sender<KernelCommand>,
    thread: Option<JoinHandle<Outcome>>,
}

impl Kernel {
    /// Loads the programs and attaches them.
    pub fn prepare(plan: &Plan<'_>) -> Result<Self, Error> {
        let Plan { choice, session_config, ring_size, follow, notice } = plan;
        let geometry = Geometry::of_size(tompion_os::online_cpus(), *ring_size);
        let options = Options {
            selection: choice.selection.clone(),
            overwrite: session_config.overwrite,
            geometry,
            follow: follow.members().collect(),
            filter: choice.filter.clone(),
            contexts: choice.contexts,
        };
        let mut recorder = Recorder::load(&options, &choice.calls)?;
        recorder.attach()?;
        follow_newcomers(&recorder, follow)?;
        let (commands, inbox) = mpsc::channel();
        let KernelChoice { selection, calls, filter, contexts } = choice;
        let vocabulary = Vocabulary {
            calls: calls.clone(),
            tracepoints: selection.tracepoints.clone(),
            probes: selection.probes.clone(),
        };
        let mut drain = Drain::new(recorder, Arc::new(vocabulary), (session_config, *contexts), inbox);
        drain.notice = *notice;
        drain.executions = ExecutionLog::new(&follow.named);
        if let (Some(filter), Some(text)) = (filter, &session_config.rules.filter) {
            drain.filter = Some(KernelFilter::new(text, filter.clone(), drain.vocabulary.clone()));
            drain.switch_gaps = None;
        }
        if choice.selection.state {
            drain.state = Some(read_state()?);
        }
        Ok(Self { idle: Some(drain), commands, thread: None })
    }

    /// Starts the thread.
    pub fn start(&mut self) -> io::Result<()> {
        let Some(drain) = self.idle.take() else { return Ok(()) };
        self.thread = Some(thread::Builder::new().name(KERNEL.into()).spawn(move || drain.run())?);
        Ok(())
    }

    /// Saves what the flight recorder holds. Returns the number of events, and of all that were
    /// ever saved.
    pub fn snapshot(&self) -> (u64, u64) {
        let (sender, receiver) = mpsc::channel();
        match self.commands.send(KernelCommand::Snapshot(sender)) {
            Ok(()) => receiver.recv().unwrap_or_default(),
            Err(_) => (0, 0),
        }
    }

    /// Has what comes until this time saved before it is overwritten.
    pub fn keep_saving(&self, until: Instant) {
        let _ = self.commands.send(KernelCommand::KeepSaving(until));
    }

    /// Detaches the programs and completes the trace.
    pub fn finish(mut self) -> Option<Outcome> {
        let _ = self.commands.send(KernelCommand::Finish);
        self.thread.take()?.join().ok()
    }
}

/// Follows descendants that were made after the family was counted and before the programs were
/// attached. From then on the programs follow each child of a process that they know.
fn follow_newcomers(recorder: &Recorder, family: &ProcessTree) -> Result<(), Error> {
    let mut family = family.clone();
    loop {
        let found = family.find_more();
        if found.is_empty() {
            return Ok(());
        }
        recorder.follow(&found)?;
        family.descendants.extend(found);
    }
}

/// Losses of a ring in discard mode, as far as their place is known.
#[derive(Clone, Default)]
struct KnownLosses {
    /// Sub-buffers that were taken and whose first record is still to be converted.
    openings: VecDeque<Opening>,
    /// Events lost for want of room before the last sub-buffer that was converted.
    full: u64,
    /// Events lost for other causes.
    others: u64,
    /// The packet waits for an event behind the losses that it counts.
    packet_end: Option<PacketEnd>,
}

/// End of a packet that counts losses.
#[derive(Clone, Copy)]
struct PacketEnd {
    /// Position behind which the next event ends the packet: the losses came before.
    position: u64,
    /// Time since which it waits.
    since: Instant,
}

/// The thread's state.
struct Drain {
    recorder: Recorder,
    decoder: Decoder,
    vocabulary: Arc<Vocabulary>,
    inbox: Receiver<KernelCommand>,
    /// The state at the start, as far as it was read; none when all of it was taken, or if it isn't
    /// recorded.
    state: Option<Receiver<Vec<State>>>,
    folder: DirHandle,
    overwrite: bool,
    writer: SourceWriter,
    classes: Classes,
    contexts: Contexts,
    stacks: Stacks,
    /// Context of the events that the recorder itself writes.
    own: Values,
    /// Position up to which each ring was read.
    read: Vec<u64>,
    /// Position up to which each ring was converted.
    converted: Vec<u64>,
    /// Known losses of each ring.
    losses: Vec<KnownLosses>,
    /// Records that were read.
    records: u64,
    /// None where a filter leaves switches out, so that nothing follows from those that are there.
    switch_gaps: Option<SwitchGapDetector>,
    executions: ExecutionLog,
    refused: u64,
    /// Part of the filter that the programs leave to this thread.
    filter: Option<KernelFilter>,
    /// Records that did not pass it.
    unwanted: u64,
    /// Reason why writing stopped, if it did.
    stopped: Option<String>,
    /// Tells the user something at once.
    notice: fn(&str),
    flushed: Instant,
    /// Time until which a flight recorder saves what comes.
    saves_until: Option<Instant>,
    bytes: Vec<u8>,
    /// An event's context.
    context: Vec<u8>,
}

impl Drain {
    fn new(
        recorder: Recorder,
        vocabulary: Arc<Vocabulary>,
        (session_config, contexts): (&SessionConfig, Contexts),
        inbox: Receiver<KernelCommand>,
    ) -> Self {
        let cpus = recorder.geometry().cpus as usize;
        let folder = session_config.folder.join(KERNEL);
        Self {
            recorder,
            decoder: Decoder::new(vocabulary.clone()),
            vocabulary,
            inbox,
            state: None,
            overwrite: session_config.overwrite,
            writer: SourceWriter::new(
                folder.clone(),
                description(session_config, contexts),
                cpus,
                WriteMode::Immediate,
            ),
            folder,
            classes: Classes::new(),
            contexts,
            stacks: Stacks::new(contexts, cpus),
            own: context::of_recorder(),
            context: Vec::new(),
            read: vec![0; cpus],
            converted: vec![0; cpus],
            losses: vec![KnownLosses::default(); cpus],
            records: 0,
            switch_gaps: Some(SwitchGapDetector::new(cpus)),
            executions: ExecutionLog::new(&[]),
            refused: 0,
            filter: None,
            unwanted: 0,
            stopped: None,
            notice: |_| {},
            flushed: Instant::now(),
            saves_until: None,
            bytes: Vec::new(),
        }
    }

    fn run(mut self) -> Outcome {
        tompion_os::prefer_this_thread();
        let mut sleep = MIN_SLEEP;
        loop {
            match self.inbox.recv_timeout(sleep) {
                Ok(KernelCommand::Snapshot(done)) => {
                    let before = self.writer.written_of_rings();
                    self.save_history();
                    self.flush();
                    // The thread that asked may have gone.
                    let total = self.writer.written_of_rings();
                    let _ = done.send((total - before, total));
                }
                Ok(KernelCommand::KeepSaving(until)) => {
                    self.saves_until = self.saves_until.max(Some(until));
                }
                Ok(KernelCommand::Finish) | Err(RecvTimeoutError::Disconnected) => return self.finish(),
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.take_state(false);
            self.write_definitions();
            if self.overwrite {
                sleep = OVERWRITE_SLEEP;
                if self.saves_until.is_some_and(|until| Instant::now() < until) {
                    sleep = MAX_SLEEP;
                    self.save_full_rings();
                }
            } else {
                sleep = next_sleep(sleep, self.collect());
            }
            if self.flushed.elapsed() >= FLUSH_INTERVAL {
                if self.overwrite {
                    self.stacks.look_at_all(tompion_os::monotonic_ns());
                }
                self.flush();
            }
        }
    }

    /// Takes what was read of the state at the start. It is in a stream of its own, which no ring's
    /// history overwrites.
    fn take_state(&mut self, to_its_end: bool) {
        let Some(source) = self.state.take() else { return };
        let stream = self.writer.initial_stream();
        loop {
            let next = if to_its_end { source.recv().map_err(TryRecvError::from) } else { source.try_recv() };
            match next {
                Ok(states) => states.iter().for_each(|state| self.write_state(stream, state)),
                Err(TryRecvError::Disconnected) => break,
                Err(TryRecvError::Empty) => return self.state = Some(source),
            }
        }
        self.attempt(|drain| drain.writer.flush(stream, Mark::default()));
    }

    fn write_state(&mut self, stream: usize, state: &State) {
        let class = Class::State(state.place);
        let id = self.classes.id(class, &mut self.writer, &self.vocabulary);
        let mut context = Vec::new();
        let of_state =
            context::EventContext { tid: state.tid, pid: state.pid, values: &self.own, stacks: [0; 2] };
        context::encode(self.contexts, &of_state, &mut context);
        let State { time, payload, .. } = state;
        let encoded = Record { id, time: *time, tid: 0, context: &context, payload };
        self.attempt(|drain| match drain.writer.push(stream, 0, 0, &encoded)? {
            Pushed::Full => drain.writer.flush(stream, Mark::default()),
            Pushed::Taken | Pushed::Misfit => Ok(()),
        });
    }

    /// Writes what stacks' numbers mean, behind the state at the start, where nothing overwrites
    /// it.
    fn write_definitions(&mut self) {
        if self.state.is_some() {
            return;
        }
        let definitions = self.stacks.definitions();
        if definitions.is_empty() {
            return;
        }
        let stream = self.writer.initial_stream();
        let mut context = Vec::new();
        let (tid, pid) = (tompion_os::gettid(), std::process::id());
        let own = context::EventContext { tid, pid, values: &self.own, stacks: [0; 2] };
        context::encode(self.contexts, &own, &mut context);
        for definition in &definitions {
            let id = self.classes.id(definition.class, &mut self.writer, &self.vocabulary);
            let payload = &definition.payload;
            let encoded = Record { id, time: definition.time, tid: 0, context: &context, payload };
            self.attempt(|drain| match drain.writer.push(stream, 0, 0, &encoded)? {
                Pushed::Full => drain.writer.flush(stream, Mark::default()),
                Pushed::Taken | Pushed::Misfit => Ok(()),
            });
        }
        self.attempt(|drain| drain.writer.flush(stream, Mark::default()));
    }

    /// Takes what is new in all rings. Returns the largest share of a ring that was filled, in
    /// percent.
    fn collect(&mut self) -> u64 {
        let (begin, mut fullest) = (tompion_os::monotonic_ns(), 0);
        for cpu in 0..self.read.len() {
            let mut bytes = std::mem::take(&mut self.bytes);
            bytes.clear();
            let taken = self.recorder.ring(cpu as u32).take(self.read[cpu], &mut bytes);
            match taken {
                Ok(Taken { span, openings }) => {
                    self.read[cpu] = span.end;
                    let share = (span.end - span.begin) * 100 / self.recorder.geometry().ring_size();
                    fullest = fullest.max(share);
                    self.losses[cpu].openings = openings.into();
                    // They came behind the bytes that were taken before. Programs may have gone on
                    // since this take, so only what is written from now on is behind them.
                    self.losses[cpu].others = lost_otherwise(&self.recorder, cpu as u32);
                    let behind = self.recorder.ring(cpu as u32).written();
                    self.note_losses(cpu, behind);
                    self.convert(cpu, span, &bytes);
                }
                Err(_) => self.refused += 1,
            }
            self.bytes = bytes;
        }
        self.executions.settle(begin);
        fullest
    }

    /// Ends the packet if the ring lost events that it doesn't count. The next one counts them and
    /// ends with the first event behind a position, so the losses lie between two known times. One
    /// that counts losses already goes on, since those may lie behind these.
    fn note_losses(&mut self, cpu: usize, position: u64) {
        let lost = self.losses[cpu].full.saturating_add(self.losses[cpu].others);
        if lost <= self.writer.discarded(cpu) {
            return;
        }
        if self.losses[cpu].packet_end.is_none() {
            self.attempt(|drain| {
                drain.writer.flush(cpu, drain.mark(cpu))?;
                drain.writer.set_discarded(cpu, lost, drain.mark(cpu))
            });
        }
        self.writer.raise_discarded(cpu, lost);
        let end = self.losses[cpu].packet_end.get_or_insert(PacketEnd { position, since: Instant::now() });
        end.position = end.position.max(position);
    }

    /// Notes the losses before a sub-buffer whose first record is to be converted. It has a byte at
    /// this position.
    fn enter_subbuf(&mut self, cpu: usize, position: u64) {
        let losses = &mut self.losses[cpu];
        let Some(&Opening { position: begin, lost }) = losses.openings.front() else { return };
        if begin <= position {
            losses.openings.pop_front();
            losses.full = losses.full.saturating_add(lost);
            self.note_losses(cpu, begin);
        }
    }

    /// Takes the history of a flight recorder, behind what was saved before.
    fn save_history(&mut self) {
        (0..self.read.len()).for_each(|cpu| self.save_ring(cpu));
    }

    /// Saves rings of which much was written since they were last saved.
    fn save_full_rings(&mut self) {
        let size = self.recorder.geometry().ring_size();
        for cpu in 0..self.read.len() {
            let written = self.recorder.ring(cpu as u32).written();
            let unsaved = written.saturating_sub(self.read[cpu]).min(size);
            if unsaved.saturating_mul(100) / size >= MAX_UNSAVED_PERCENT {
                self.save_ring(cpu);
            }
        }
    }

    fn save_ring(&mut self, cpu: usize) {
        let mut history = Vec::new();
        self.recorder.ring(cpu as u32).copy_history(self.read[cpu], &mut history);
        for (span, bytes) in history {
            if span.begin != self.read[cpu] {
                self.interrupt(cpu);
            }
            self.convert(cpu, span, &bytes);
            self.read[cpu] = span.end;
        }
    }

    fn convert(&mut self, cpu: usize, span: Span, bytes: &[u8]) {
        let mut records = Records::new(bytes, span.begin).with_context(self.contexts.size());
        loop {
            let position = records.position();
            let Some(record) = records.next() else { return };
            // A record ends in the sub-buffer in which it begins, and padding ends its sub-buffer.
            self.enter_subbuf(cpu, records.position() - 1);
            let Ok(record) = record else {
                self.refused += 1;
                self.interrupt(cpu);
                continue;
            };
            if record.number == STACK {
                self.refused += u64::from(!self.stacks.learn(cpu, position, &record));
                continue;
            }
            self.records += 1;
            if let Some(switch_gaps) = &mut self.switch_gaps {
                switch_gaps.note(cpu, &record);
            }
            self.executions.note(&record);
            if self.stopped.is_some() {
                continue;
            }
            let Ok((class, payload)) = self.decoder.decode(&record) else {
                self.refused += 1;
                continue;
            };
            self.stacks.follow(class, &record);
            let head = Head { tid: record.tid, pid: record.pid, cpu: cpu as u32 };
            if self.filter.as_mut().is_some_and(|filter| !filter.passes(class, head, payload)) {
                self.unwanted += 1;
                self.converted[cpu] = records.position();
                continue;
            }
            let id = self.classes.id(class, &mut self.writer, &self.vocabulary);
            let values = self.contexts.read(record.context);
            let stacks = self.stacks.numbers(cpu, &record, &values);
            self.context.clear();
            let of_record =
                context::EventContext { tid: record.tid, pid: record.pid, values: &values, stacks };
            context::encode(self.contexts, &of_record, &mut self.context);
            let encoded = Record { id, time: record.time, tid: 0, context: &self.context, payload };
            let pushed = self.writer.push(cpu, cpu as u32, position, &encoded);
            self.converted[cpu] = records.position();
            let ends_packet =
                self.losses[cpu].packet_end.is_some_and(|end| records.position() > end.position);
            match pushed {
                Ok(Pushed::Taken) if ends_packet => {
                    self.losses[cpu].packet_end = None;
                    self.attempt(|drain| drain.writer.flush(cpu, drain.mark(cpu)));
                }
                Ok(Pushed::Taken) => {}
                Ok(Pushed::Full) => {
                    self.losses[cpu].packet_end = None;
                    self.attempt(|drain| drain.writer.flush(cpu, drain.mark(cpu)));
                }
                Ok(Pushed::Misfit) => self.refused += 1,
                Err(error) => self.stop(&error),
            }
        }
    }

    /// Records of a CPU are missing before those that come next.
    fn interrupt(&mut self, cpu: usize) {
        self.attempt(|drain| drain.writer.interrupt(cpu, drain.mark(cpu)));
        if let Some(switch_gaps) = &mut self.switch_gaps {
            switch_gaps.interrupt(cpu);
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
        if self.stopped.is_none() {
            let text = format!("recording to {} stopped: {}", self.folder.path().display(), reason(error));
            (self.notice)(&text);
            self.stopped = Some(text);
        }
    }

    /// Writes all packets but those that wait for an event behind their losses, for a while:
    /// without it they say that the losses came before their last event.
    fn flush(&mut self) {
        self.flushed = Instant::now();
        for stream in 0..self.read.len() {
            let waits = |end: &mut PacketEnd| end.since.elapsed() < MAX_PACKET_WAIT;
            if !self.losses[stream].packet_end.as_mut().is_some_and(waits) {
                self.losses[stream].packet_end = None;
                self.attempt(|drain| drain.writer.flush(stream, drain.mark(stream)));
            }
        }
    }

    fn finish(mut self) -> Outcome {
        self.recorder.detach();
        self.take_state(true);
        let until = Instant::now() + DETACH_TIMEOUT;
        loop {
            if self.overwrite {
                // Programs that still run have a moment.
                thread::sleep(MAX_SLEEP);
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
            thread::sleep(MIN_SLEEP);
        }
        self.write_definitions();
        for cpu in 0..self.read.len() {
            let lost = lost_of(&self.recorder, cpu as u32);
            self.attempt(|drain| drain.writer.finish(cpu, lost, drain.mark(cpu)));
        }
        self.outcome()
    }

    fn outcome(self) -> Outcome {
        let rings = || (0..self.recorder.geometry().cpus).map(|cpu| self.recorder.ring(cpu));
        let committed: u64 = rings().map(|ring| ring.events()).sum();
        let mut problems = Vec::new();
        if !self.recorder.missing().is_empty() {
            let names = self.recorder.missing().join(", ");
            problems.push(format!("this kernel has no {names}"));
        }
        let missed = self.stacks.missed();
        if missed > 0 {
            problems.push(format!(
                "{missed} kernel event{} without a stack: it could not be captured, or was overwritten first",
                if missed == 1 { " is" } else { "s are" }
            ));
        }
        problems.extend(self.recorder.refused().iter().map(|line| format!("not recorded: {line}")));
        let written = self.writer.written();
        let known = [self.writer.written_of_rings(), self.unwanted, self.refused];
        let not_written = self.records.saturating_sub(known.into_iter().fold(0, u64::saturating_add));
        let overwritten = committed.saturating_sub(self.records);
        let nested = self.recorder.misses();
        let cpus = self.recorder.geometry().cpus;
        let in_rings = |cause| (0..cpus).map(|cpu| self.recorder.ring(cpu).lost(cause)).sum::<u64>();
        let lost = manifest::losses(|cause| match cause {
            Cause::Invalid => self.refused,
            Cause::NotWritten => not_written,
            Cause::Reentrant => nested + in_rings(cause),
            cause => in_rings(cause),
        });
        let lost_in_all = lost.values().sum();
        let is_wanted = |tid| self.recorder.follows(process_of(tid).unwrap_or(tid));
        let switch_gaps =
            self.switch_gaps.as_ref().map(|switch_gaps| switch_gaps.findings(lost_in_all, is_wanted));
        let Findings { problem, remark } = switch_gaps.unwrap_or_default();
        problems.extend(problem);
        let source = manifest::Source {
            path: KERNEL.into(),
            kind: KERNEL.into(),
            name: Some(KERNEL.into()),
            producer: Some("bpf".into()),
            events: written,
            lost,
            overwritten,
            ..manifest::Source::default()
        };
        Outcome {
            source,
            problems,
            remarks: remark.into_iter().collect(),
            family: self.executions.finish(),
            stopped: self.stopped,
        }
    }
}

/// Returns the next sleep, behind one that filled a ring to so many percent: as long as it takes to
/// fill the target at that rate, at most half as long again as the last one.
fn next_sleep(last: Duration, filled_percent: u64) -> Duration {
    let filled = u32::try_from(filled_percent).unwrap_or(u32::MAX).max(1);
    let wanted = last.saturating_mul(TARGET_FILL) / filled;
    wanted.min(last * 3 / 2).clamp(MIN_SLEEP, MAX_SLEEP)
}

/// Starts a thread that reads the state of the machine. It has this thread's rights to look into
/// processes.
fn read_state() -> io::Result<Receiver<Vec<State>>> {
    let (sender, receiver) = mpsc::channel();
    let read = move || {
        // Without a receiver recording has ended early, and the rest is not needed.
        state::read(&mut |states| drop(sender.send(states)));
    };
    thread::Builder::new().name("state".into()).spawn(read)?;
    Ok(receiver)
}

/// Number of events that a ring lost so far for other causes than want of room.
fn lost_otherwise(recorder: &Recorder, cpu: u32) -> u64 {
    let ring = recorder.ring(cpu);
    let others = Cause::ALL.into_iter().filter(|cause| *cause != Cause::Full);
    others.map(|cause| ring.lost(cause)).fold(0, u64::saturating_add)
}

/// Number of events that a ring lost so far.
fn lost_of(recorder: &Recorder, cpu: u32) -> u64 {
    let ring = recorder.ring(cpu);
    Cause::ALL.into_iter().map(|cause| ring.lost(cause)).fold(0, u64::saturating_add)
}

/// Description of the trace: the names by which readers' analyses know LTTng's kernel traces.
fn description(session_config: &SessionConfig, contexts: Contexts) -> encode::Source {
    encode::Source {
        uuid: Uuid(uuid::Uuid::new_v4().into_bytes()),
        environment: environment::of_kernel(&session_config.hostname, &HostInfo::read().kernel),
        clock_uuid: Uuid::parse(&session_config.boot_id),
        clock_offset_ns: session_config.clock_offset_ns,
        clock_precision_ns: 1,
        numbers_streams: false,
        tid: false,
        context: context::fields(contexts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_follows_the_rate_within_its_bounds() {
        let millis = Duration::from_millis;
        // 30 % after 2 ms: the target is reached in half the time.
        assert_eq!(next_sleep(millis(2), 30), millis(1));
        assert_eq!(next_sleep(millis(2), 15), millis(2));
        // A quiet ring lets the sleep grow, but slowly.
        assert_eq!(next_sleep(millis(2), 0), millis(3));
        assert_eq!(next_sleep(MAX_SLEEP, 0), MAX_SLEEP);
        assert_eq!(next_sleep(MIN_SLEEP, u64::MAX), MIN_SLEEP);
    }
}
