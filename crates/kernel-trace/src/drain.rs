//! Thread that drains the kernel's rings: takes records, converts them, writes packets.

use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use tompion_ctf::{
    encode::{self, Record},
    metadata::Uuid,
};
use tompion_kernel::{
    Recorder,
    context::{Contexts, STACK, Values},
    decode::{Decoder, Vocabulary},
    records::{Records, UntrustedRecord},
    ring::{Opening, Span, Taken},
    state::State,
    switch_gaps::SwitchGapDetector,
};
use tompion_kernel_context::{
    context,
    filter::{Head, KernelFilter},
    stacks::Stacks,
};
use tompion_lineage::untraced::ExecutionLog;
use tompion_manifest::KERNEL;
use tompion_os::DirHandle;
use tompion_writer::{HostInfo, Mark, Pushed, SourceWriter, WriteMode, environment, reason};

use crate::{
    account::RingAccount,
    change::Changing,
    chunks::ChunkState,
    classes::Classes,
    keeping::Keeping,
    losses::{KnownLosses, lost_of, lost_otherwise},
    outcome::Outcome,
    recording::{KernelCommand, Plan},
    takeover::LeftTrace,
};

/// Shortest and longest sleep between two looks at the rings.
pub const MIN_SLEEP: Duration = Duration::from_micros(200);
const MAX_SLEEP: Duration = Duration::from_millis(4);
/// Sleep of a flight recorder: nothing waits in its rings, and commands end a sleep.
const OVERWRITE_SLEEP: Duration = Duration::from_millis(50);
/// Backlog of a ring, in percent, that is to be filled after a sleep. Each sleep preempts the
/// recorded programs once, and a burst needs the rest of the ring.
const TARGET_FILL: u32 = 15;
/// A packet is written at the latest after this time, unless it counts losses.
const FLUSH_INTERVAL: Duration = Duration::from_millis(500);
/// Time for which programs may run on after they were detached.
const DETACH_TIMEOUT: Duration = Duration::from_millis(200);
/// Share of a flight recorder's ring, in percent, that may be unsaved while a snapshot goes on.
pub const MAX_UNSAVED_PERCENT: u64 = 25;

/// The thread's state.
pub struct Drain {
    pub recorder: Recorder,
    pub decoder: Decoder,
    pub vocabulary: Arc<Vocabulary>,
    inbox: Receiver<KernelCommand>,
    /// The state at the start, as far as it was read; none when all of it was taken, or if it isn't
    /// recorded.
    pub state: Option<Receiver<Vec<State>>>,
    /// Whether the trace has an initial state, and whether all of it is written.
    pub has_state: bool,
    pub is_state_complete: bool,
    /// Change of the events that is being made.
    pub changing: Option<Changing>,
    pub folder: DirHandle,
    pub overwrite: bool,
    /// The keeper, if the recording outlasts its recorder.
    pub keeping: Option<Keeping>,
    /// Trace of a recorder that was killed, until it is continued.
    pub left: Option<LeftTrace>,
    pub writer: SourceWriter,
    pub classes: Classes,
    pub contexts: Contexts,
    pub stacks: Stacks,
    /// Context of the events that the recorder itself writes.
    pub own: Values,
    /// Position up to which each ring was read.
    pub read: Vec<u64>,
    /// Position up to which each ring was converted.
    pub converted: Vec<u64>,
    /// Position up to which each ring's room was given back.
    pub released: Vec<u64>,
    /// Account of each ring up to where it was converted.
    pub accounts: Vec<RingAccount>,
    /// Known losses of each ring.
    pub losses: Vec<KnownLosses>,
    /// Events that each ring had when a flight recorder's history was last saved.
    pub committed_at_save: Vec<u64>,
    /// Events that were overwritten, as far as they were counted.
    pub overwritten: u64,
    /// None where a filter leaves switches out, so that nothing follows from those that are there.
    pub switch_gaps: Option<SwitchGapDetector>,
    pub executions: ExecutionLog,
    /// Positions of rings that can't be.
    pub refused: u64,
    /// Part of the filter that the programs leave to this thread.
    pub filter: Option<KernelFilter>,
    /// Reason why writing stopped, if it did.
    pub stopped: Option<String>,
    /// Problems of the recorders before this one, and of taking over from them.
    pub problems: Vec<String>,
    /// Whether more was lost than is counted.
    pub losses_unknown: bool,
    /// Tells the user something at once.
    notice: fn(&str),
    pub flushed: Instant,
    /// Time until which a flight recorder saves what comes.
    saves_until: Option<Instant>,
    /// Whether what is read is passed over.
    drops: bool,
    /// Bytes of the initial state in its stream.
    pub state_bytes: u64,
    /// State of a recording in chunks.
    pub chunks: Option<ChunkState>,
    bytes: Vec<u8>,
    /// An event's context.
    context: Vec<u8>,
}

/// Bytes that were taken from a ring and are still to be converted.
pub struct CopiedBytes {
    cpu: usize,
    span: Span,
    pub bytes: Vec<u8>,
    openings: VecDeque<Opening>,
    /// Events that the ring had lost by then for other causes than want of room, and a position
    /// behind those losses.
    others: u64,
    behind: u64,
}

impl Drain {
    pub fn new(
        recorder: Recorder,
        vocabulary: Arc<Vocabulary>,
        plan: &Plan<'_>,
        (uuid, inbox): (Uuid, Receiver<KernelCommand>),
    ) -> Self {
        let cpus = recorder.geometry().cpus as usize;
        let contexts = plan.choice.contexts;
        let folder = plan.folder.join(KERNEL);
        let writer = SourceWriter::new(folder.clone(), description(plan, uuid), cpus, WriteMode::Immediate);
        Self {
            recorder,
            decoder: Decoder::new(vocabulary.clone()),
            vocabulary,
            inbox,
            state: None,
            has_state: false,
            is_state_complete: false,
            changing: None,
            overwrite: plan.overwrite,
            keeping: None,
            left: None,
            writer,
            folder,
            classes: Classes::new(),
            contexts,
            stacks: Stacks::new(contexts, cpus),
            own: context::of_recorder(),
            context: Vec::new(),
            read: vec![0; cpus],
            converted: vec![0; cpus],
            released: vec![0; cpus],
            accounts: vec![RingAccount::default(); cpus],
            losses: vec![KnownLosses::default(); cpus],
            committed_at_save: vec![0; cpus],
            overwritten: 0,
            switch_gaps: Some(SwitchGapDetector::new(cpus)),
            executions: ExecutionLog::new(&[]),
            refused: 0,
            filter: None,
            stopped: None,
            problems: Vec::new(),
            losses_unknown: false,
            notice: plan.notice,
            flushed: Instant::now(),
            saves_until: None,
            drops: false,
            state_bytes: 0,
            chunks: None,
            bytes: Vec::new(),
        }
    }

    pub fn run(mut self) -> Outcome {
        tompion_os::prefer_this_thread();
        self.begin_trace();
        let mut sleep = MIN_SLEEP;
        loop {
            match self.inbox.recv_timeout(sleep) {
                Ok(KernelCommand::Finish) | Err(RecvTimeoutError::Disconnected) => return self.finish(),
                Ok(command) => self.follow(command),
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.look_at_change();
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
            self.tell_bytes();
        }
    }

    fn follow(&mut self, command: KernelCommand) {
        match command {
            KernelCommand::Snapshot(done) => {
                let before = self.writer.written_of_rings();
                self.save_history();
                self.flush();
                // The thread that asked may have gone.
                let total = self.writer.written_of_rings();
                let _ = done.send((total - before, total));
            }
            KernelCommand::KeepSaving(until) => {
                self.saves_until = self.saves_until.max(Some(until));
            }
            KernelCommand::DropHistory if self.overwrite => self.drop_history(),
            KernelCommand::DropHistory => {}
            KernelCommand::Change(change) => self.begin_change(change),
            KernelCommand::EndChunk(end) => self.end_chunk(end),
            KernelCommand::Finish => {}
        }
    }

    /// Takes what is new in all rings. Returns the largest share of a ring that was filled, in
    /// percent.
    pub fn collect(&mut self) -> u64 {
        let (begin, mut fullest) = (tompion_os::monotonic_ns(), 0);
        for cpu in 0..self.read.len() {
            let buffer = std::mem::take(&mut self.bytes);
            let Some(copied) = self.copy(cpu, buffer) else { continue };
            let share = (copied.span.end - copied.span.begin) * 100 / self.recorder.geometry().ring_size();
            fullest = fullest.max(share);
            self.bytes = self.convert_copied(copied);
        }
        self.give_room_back();
        self.executions.settle(begin);
        fullest
    }

    /// Takes what is new in a ring into a buffer; none if the ring says what can't be.
    pub fn copy(&mut self, cpu: usize, mut bytes: Vec<u8>) -> Option<CopiedBytes> {
        bytes.clear();
        let ring = self.recorder.ring(cpu as u32);
        // A recording that outlasts its recorder gives room back behind its packets.
        let taken = match self.is_kept() {
            true => ring.look(self.read[cpu], &mut bytes),
            false => ring.take(self.read[cpu], &mut bytes),
        };
        let Ok(Taken { span, openings }) = taken else {
            self.refused += 1;
            return None;
        };
        self.read[cpu] = span.end;
        let others = lost_otherwise(&self.recorder, cpu as u32);
        let behind = self.recorder.ring(cpu as u32).written();
        Some(CopiedBytes { cpu, span, bytes, openings: openings.into(), others, behind })
    }

    /// Converts what was taken, and returns the buffer.
    pub fn convert_copied(&mut self, copied: CopiedBytes) -> Vec<u8> {
        let CopiedBytes { cpu, span, bytes, openings, others, behind } = copied;
        self.losses[cpu].openings = openings;
        // They came behind the bytes that were taken before. Programs may have gone on since this
        // take, so only what is written from then on is behind them.
        self.losses[cpu].others = others;
        self.note_losses(cpu, behind);
        self.convert(cpu, span, &bytes);
        bytes
    }

    /// Takes the history of a flight recorder, behind what was saved before.
    fn save_history(&mut self) {
        (0..self.read.len()).for_each(|cpu| self.save_ring(cpu));
    }

    /// Passes over the history of a flight recorder. It is read for what it says of stacks and
    /// programs.
    fn drop_history(&mut self) {
        self.drops = true;
        self.save_history();
        self.drops = false;
        self.note_passed();
        if let Some(switch_gaps) = &mut self.switch_gaps {
            (0..self.read.len()).for_each(|cpu| switch_gaps.interrupt(cpu));
        }
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
        let ring = self.recorder.ring(cpu as u32);
        // Before it is copied: what comes meanwhile counts with the next history.
        self.committed_at_save[cpu] = ring.events();
        ring.copy_history(self.read[cpu], &mut history);
        for (span, bytes) in history {
            if span.begin != self.read[cpu] && !self.drops {
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
            let next = records.next();
            let end = records.position();
            let Some(record) = next else { return self.pass(cpu, end) };
            // A record ends in the sub-buffer in which it begins, and padding ends its sub-buffer.
            self.enter_subbuf(cpu, end - 1);
            match record {
                Ok(record) => self.convert_record(cpu, Span { begin: position, end }, &record),
                Err(_) => {
                    self.interrupt(cpu);
                    self.accounts[cpu].refused += 1;
                }
            }
            self.pass(cpu, end);
        }
    }

    /// Notes that a ring is converted up to a position. What packets say from then on has it.
    fn pass(&mut self, cpu: usize, end: u64) {
        self.converted[cpu] = end;
        self.accounts[cpu].full = self.losses[cpu].full;
    }

    fn convert_record(&mut self, cpu: usize, span: Span, record: &UntrustedRecord<'_>) {
        if record.number == STACK {
            self.accounts[cpu].refused += u64::from(!self.stacks.learn(cpu, span.begin, record));
            return;
        }
        self.executions.note(record);
        if self.drops {
            return;
        }
        self.accounts[cpu].records += 1;
        if let Some(switch_gaps) = &mut self.switch_gaps {
            switch_gaps.note(cpu, record);
        }
        if self.stopped.is_some() {
            return;
        }
        let Ok((class, payload)) = self.decoder.decode(record) else {
            self.accounts[cpu].refused += 1;
            return;
        };
        self.stacks.follow(class, record);
        let head = Head { tid: record.tid, pid: record.pid, cpu: cpu as u32 };
        if self.filter.as_mut().is_some_and(|filter| !filter.passes(class, head, payload)) {
            self.accounts[cpu].unwanted += 1;
            return;
        }
        let id = self.classes.id(class, &mut self.writer, &self.vocabulary);
        let values = self.contexts.read(record.context);
        let stacks = self.stacks.numbers(cpu, record, &values);
        self.context.clear();
        let of_record = context::EventContext { tid: record.tid, pid: record.pid, values: &values, stacks };
        context::encode(self.contexts, &of_record, &mut self.context);
        let encoded = Record { id, time: record.time, tid: 0, context: &self.context, payload };
        let pushed = self.writer.push(cpu, cpu as u32, span.begin, &encoded);
        self.pass(cpu, span.end);
        let ends_packet = self.losses[cpu].packet_end.is_some_and(|end| span.end > end.position);
        match pushed {
            Ok(Pushed::Taken) if !ends_packet => {}
            Ok(Pushed::Taken | Pushed::Full) => {
                self.losses[cpu].packet_end = None;
                self.describe_first();
                self.attempt(|drain| drain.writer.flush(cpu, drain.mark(cpu)));
            }
            Ok(Pushed::Misfit) => self.accounts[cpu].refused += 1,
            Err(error) => self.stop(&error),
        }
    }

    /// Records of a CPU are missing before those that come next.
    pub fn interrupt(&mut self, cpu: usize) {
        self.describe_first();
        self.attempt(|drain| drain.writer.interrupt(cpu, drain.mark(cpu)));
        if let Some(switch_gaps) = &mut self.switch_gaps {
            switch_gaps.interrupt(cpu);
        }
    }

    /// Up to where a ring was converted, and what became of its records.
    pub fn mark(&self, cpu: usize) -> Mark {
        self.accounts[cpu].mark(self.converted[cpu])
    }

    pub fn attempt(&mut self, step: impl FnOnce(&mut Self) -> io::Result<()>) {
        if self.stopped.is_none() {
            if let Err(error) = step(self) {
                self.stop(&error);
            }
        }
    }

    /// The trace ends with the last whole packet; what comes is counted.
    pub fn stop(&mut self, error: &io::Error) {
        if self.stopped.is_none() {
            let text = format!("recording to {} stopped: {}", self.folder.path().display(), reason(error));
            (self.notice)(&text);
            self.stopped = Some(text);
        }
    }

    /// No chunk can begin: the trace ends, and what comes is counted. The consumer has said so.
    pub fn stop_at_chunk(&mut self) {
        let folder = self.folder.path().display();
        let text = format!("recording to {folder} stopped: its chunk could not be committed");
        self.stopped.get_or_insert(text);
    }

    pub fn finish(mut self) -> Outcome {
        self.end_change();
        // First there: the programs end when no process has their links any more.
        self.keeping.iter().for_each(Keeping::release_links);
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
        let rings = 0..self.recorder.geometry().cpus;
        self.committed_at_save = rings.map(|cpu| self.recorder.ring(cpu).events()).collect();
        self.outcome()
    }
}

/// Returns the next sleep, behind one that filled a ring to so many percent: as long as it takes to
/// fill the target at that rate, at most half as long again as the last one.
fn next_sleep(last: Duration, filled_percent: u64) -> Duration {
    let filled = u32::try_from(filled_percent).unwrap_or(u32::MAX).max(1);
    let wanted = last.saturating_mul(TARGET_FILL) / filled;
    wanted.min(last * 3 / 2).clamp(MIN_SLEEP, MAX_SLEEP)
}

/// Description of the trace: the names by which readers' analyses know LTTng's kernel traces.
fn description(plan: &Plan<'_>, uuid: Uuid) -> encode::Source {
    encode::Source {
        uuid,
        environment: environment::of_kernel(plan.hostname, &HostInfo::read().kernel),
        clock_uuid: Uuid::parse(plan.boot_id),
        clock_offset_ns: plan.clock_offset_ns,
        clock_precision_ns: 1,
        numbers_streams: plan.is_in_chunks,
        tid: false,
        context: context::fields(plan.choice.contexts),
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
