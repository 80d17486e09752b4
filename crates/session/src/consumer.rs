//! Consumer: takes events out of the rings by an adaptive timer and writes them to disk.
//!
//! No application ever wakes it. It wakes itself: the fuller it finds the rings, the sooner the
//! next time. What it copied waits until the clock has been sampled after it, twice, so that a
//! change of the clock's rate can be seen from both sides.

mod chunks;
mod command;
mod completion;
mod keeping;
mod policy;
mod status;
mod triggers;

use std::{
    collections::BTreeSet,
    fs::File,
    io,
    sync::{Arc, mpsc::Sender},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use tompion_clock::ClockMap;
use tompion_counting::{Collector, Document};
use tompion_firings::FiringTrace;
use tompion_jobs::JobSink;
use tompion_manifest::{self as manifest, Manifest};
use tompion_os::{DirHandle, sample_clocks};
use tompion_ring::idle_pages::MAX_PIECES;
use tompion_triggers::Counts;
use tompion_watchdog::StallWatchdog;
use tompion_writer::{HostInfo, NameCounts, SourceWriter, disk};

use crate::messages::{reason, summarize_names};
use crate::{
    backing::{ClockFile, ProcessEntry},
    process::{Backlog, Process},
};
use chunks::Chunks;
pub use command::{CommandSender, ConsumerCommand};
use command::{CommandServer, Commands};
use policy::{BURST_PERCENT, Conversion, IDLE_SLEEP, Observation, SLEEP};
pub use triggers::{EventWatch, NewTriggers};

/// Time for which events count as a burst after the last one.
const BURST_TIMEOUT: Duration = Duration::from_millis(500);
/// While bytes are converted, rings are looked after this often.
const COLLECT_INTERVAL: Duration = Duration::from_micros(500);
/// Interval of clock samples, two of which precede the conversion of copied bytes.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(25);
/// Time between two samples of the clock that are kept, at least, if they are taken out of turn.
const KEEP_INTERVAL: Duration = Duration::from_millis(5);
/// A packet is written at the latest after this time.
const FLUSH_INTERVAL: Duration = Duration::from_millis(500);
/// Programs that ask for snapshots are heard this often at most.
const SAVE_INTERVAL: Duration = Duration::from_millis(50);
/// Bytes of all processes that may wait; of more, each process has its share.
const MAX_PENDING_OF_ALL: u64 = 256 << 20;
/// Bytes between two samples of the clock from which on the consumer is overloaded.
const OVERLOAD_BYTES: u64 = 4 << 20;
/// Complete processes whose backing files are removed together, or those of this time.
const MANY_FINISHED: usize = 64;
const RETIRE_INTERVAL: Duration = Duration::from_millis(100);
/// Polling interval where jobs are sent: soon enough for the receiver of a late one, and cheap.
const JOB_INTERVAL: Duration = Duration::from_millis(10);
/// So many processes get traces of their own at once; of the others, those that don't end soon.
const MAX_TRACES_AT_ONCE: usize = 16;
/// Descriptions in the trace that short processes share, beyond which none more take part in it:
/// they stay there for good.
const MAX_SHARED_CLASSES: usize = 4096;
/// Maximum number of notices of one kind; programs can cause any number.
const MAX_NOTICES: usize = 100;

/// Bytes of the disk that are kept for the manifest at the end.
const MANIFEST_ROOM: u64 = 256 << 10;

/// Summary of a recording.
#[derive(Debug)]
pub struct RecordingSummary {
    /// The manifest as it was written last.
    pub manifest: Manifest,
    /// Names of all events that the processes had.
    pub known: Vec<(String, String)>,
    /// Reason why writing stopped early, if it did.
    pub stopped: Option<String>,
    /// Whether the manifest on disk says that the recording is complete: else there may be
    /// something to recover.
    pub is_complete: bool,
    /// Counts of events that were counted in place.
    pub counts: Option<Document>,
}

/// The consumer's state.
pub struct Consumer {
    folder: DirHandle,
    /// Folder of the backing files.
    backing: Option<DirHandle>,
    /// Tells the user something at once.
    notice: fn(&str),
    manifest: Manifest,
    processes: Vec<Process>,
    /// The recording's chunks, if it is in chunks.
    chunks: Option<Chunks>,
    /// Time until which flight recorders save what comes.
    saves_until: Option<Instant>,
    /// Triggers on events, if there are any.
    event_watch: Option<EventWatch>,
    /// The machine, for the recorder's own events.
    host: HostInfo,
    /// Trace of firings, once there is one.
    firing_trace: Option<FiringTrace>,
    /// Number of lines about silences that are not looked for any more.
    reported_silences: usize,
    /// Counts for triggers, if one asks for them.
    counts: Option<Arc<Counts>>,
    /// Largest share of a ring that waited since the last count, in percent.
    fullest: u64,
    /// Events that rings of processes have taken that have ended.
    appended_by_ended: u64,
    clock: ClockMap,
    /// The samples in a file, where the rings are kept.
    clock_file: Option<ClockFile>,
    known: BTreeSet<(String, String)>,
    /// Bytes of these names, and of the processes in the manifest.
    known_bytes: usize,
    source_bytes: usize,
    stopped: Option<String>,
    /// Room for the manifest on the disk, in a file without a name.
    reserve: Option<File>,
    /// Reason why the kernel's trace ends early, if it does. Those of the processes go on.
    kernel_stopped: Option<String>,
    /// Processes that are complete, whose kept rings go once the manifest on the medium tells of
    /// them.
    finished: Vec<Process>,
    /// Entries of processes that have lost their rings, which go then, too.
    lost: Vec<ProcessEntry>,
    /// Time at which the ones before them went.
    retired: Instant,
    /// Processes that were given up alone, whose rings are kept for recovery.
    left: Vec<manifest::Source>,
    /// Time of the clock's last sample in its turn, and of the last sample that was kept.
    sampled: Instant,
    kept: Instant,
    /// Up to where all rings together had been read at the last turn, and whether so much came that
    /// nothing may wait.
    read: u64,
    is_overloaded: bool,
    /// Time of the last burst of events.
    last_burst: Option<Instant>,
    /// Watchdog that moves this thread when its CPU stalls; none before it runs.
    stall_watchdog: Option<StallWatchdog>,
    flushed: Instant,
    /// Time at which a program's request was last followed.
    saved: Option<Instant>,
    /// Programs that have asked since.
    askers: BTreeSet<String>,
    /// Number of notices about such requests.
    reported_saves: usize,
    /// Sink of jobs; then nothing is written.
    jobs: Option<JobSink>,
    /// Counts of events, if some are counted in place.
    counting: Option<Arc<Collector>>,
    /// Events of traces that are complete, by name.
    ended_names: NameCounts,
    /// The trace that short processes share, once there is one.
    shared: Option<SourceWriter>,
    /// Number of processes that got traces of their own.
    traces: usize,
}

impl Consumer {
    /// A consumer for a trace folder; `manifest` is what is known before anything was recorded, or
    /// what the recorder before this one has left, as is `clock`.
    ///
    /// # Errors
    /// If the rings are to be kept, and the clock's samples can't be written beside them.
    pub fn new(
        folder: DirHandle,
        backing: Option<DirHandle>,
        manifest: Manifest,
        clock: ClockMap,
        notice: fn(&str),
    ) -> io::Result<Self> {
        let is_durable = manifest.session.is_durable();
        let clock_file =
            backing.as_ref().map(|backing| ClockFile::create(backing, clock.samples(), is_durable));
        let source_bytes = manifest.sources.iter().map(manifest::Source::size_in_manifest).sum();
        let now = Instant::now();
        Ok(Self {
            backing,
            notice,
            manifest,
            processes: Vec::new(),
            chunks: None,
            saves_until: None,
            event_watch: None,
            host: HostInfo::read(),
            firing_trace: None,
            reported_silences: 0,
            counts: None,
            fullest: 0,
            appended_by_ended: 0,
            clock,
            clock_file: clock_file.transpose()?,
            known: Default::default(),
            known_bytes: 0,
            source_bytes,
            stopped: None,
            // Some file systems have no such files; then the manifest has the room that is left.
            reserve: keeping::reserve_room(&folder).ok(),
            folder,
            kernel_stopped: None,
            finished: Vec::new(),
            lost: Vec::new(),
            retired: now,
            left: Vec::new(),
            sampled: now,
            kept: now,
            read: 0,
            is_overloaded: false,
            last_burst: None,
            stall_watchdog: None,
            flushed: now,
            saved: None,
            askers: BTreeSet::new(),
            reported_saves: 0,
            jobs: None,
            counting: None,
            ended_names: NameCounts::default(),
            shared: None,
            traces: 0,
        })
    }

    /// Tells jobs, if anywhere, instead of writing.
    pub fn with_jobs(self, jobs: Option<JobSink>) -> Self {
        Self { jobs, ..self }
    }

    /// Has the last counts of each process taken when it ends.
    pub fn with_counting(self, counting: Option<Arc<Collector>>) -> Self {
        Self { counting, ..self }
    }

    /// Starts the thread that runs until it is told to finish, or all senders of commands are gone.
    ///
    /// # Errors
    /// The thread can't be started.
    pub fn start(self) -> io::Result<(CommandSender, JoinHandle<()>)> {
        command::start(|commands| self.run(&commands))
    }

    fn run(mut self, commands: &Commands) {
        tompion_os::prefer_this_thread();
        // Before the watchdog moves this thread: a new thread inherits its affinity.
        disk::start();
        self.stall_watchdog = Some(StallWatchdog::for_this_thread());
        // The disk's thread has as much to do; whichever program runs, rings must not wait for the
        // scheduler's next tick.
        tompion_os::ask_for_short_slices();
        if let Some(done) = command::serve(commands, &mut self) {
            let _ = done.send(self.finish());
        }
    }
}

impl CommandServer for Consumer {
    fn follow(&mut self, command: ConsumerCommand) -> Option<Sender<RecordingSummary>> {
        match command {
            ConsumerCommand::Joined(process) => self.join(*process),
            ConsumerCommand::Disconnected(key) => self.disconnect(key),
            ConsumerCommand::Ended(key, how) => self.complete(key, how),
            ConsumerCommand::ProcessRejected(more) => {
                self.manifest.rejected_processes =
                    self.manifest.rejected_processes.saturating_add_signed(more);
            }
            ConsumerCommand::Executed(end, programs, children) => {
                self.manifest.command_end = end;
                (self.manifest.programs, self.manifest.children) = (programs.items, children.items);
                let beyond = &mut self.manifest.beyond_limits;
                (beyond.programs, beyond.children) = (programs.more, children.more);
            }
            ConsumerCommand::ProblemSuppressed => self.manifest.beyond_limits.problems += 1,
            ConsumerCommand::Snapshot(done) => {
                let before = self.events();
                self.save_histories();
                let total = self.events();
                // The thread that asked may have gone.
                let _ = done.send((total - before, total));
            }
            ConsumerCommand::KeepSaving(until) => self.saves_until = self.saves_until.max(Some(until)),
            ConsumerCommand::Clear(done) => {
                self.clear();
                let _ = done.send(());
            }
            ConsumerCommand::NoteFiring(firing) => self.note_firing(*firing),
            ConsumerCommand::NoteSuppressed(count) => self.manifest.beyond_limits.occurrences = count,
            ConsumerCommand::NoteSnapshot(snapshot) => self.note_snapshot(snapshot),
            // The program that asked may have gone.
            ConsumerCommand::Rotate(done) => drop(self.rotate().map(|chunk| done.send(chunk))),
            // The program that asked may have gone.
            ConsumerCommand::Status(known, done) => drop(done.send(self.complete_status(*known))),
            // The program that asked may have gone.
            ConsumerCommand::CountEvents(done) => drop(done.send(self.count_events())),
            ConsumerCommand::SetRules(rules) => self.set_rules(&rules),
            ConsumerCommand::SetTriggers(new) => self.set_triggers(*new),
            ConsumerCommand::NoteKernelEvents(rules, words) => self.note_rules(&rules, Some(words)),
            ConsumerCommand::Lost(lost, entry) => {
                self.manifest.losses_unknown = true;
                lost.problems.into_iter().for_each(|problem| self.report_once(problem));
                self.add_source(lost.source);
                self.lost.extend(entry);
            }
            ConsumerCommand::TakenOver => self.chunks.iter_mut().for_each(Chunks::release),
            // The thread that asked may have gone.
            ConsumerCommand::CountLosses(done) => drop(done.send(self.lost_events())),
            ConsumerCommand::CompleteProcesses(done) => {
                self.complete_all();
                let _ = done.send(self.lost_events());
            }
            ConsumerCommand::KernelBegins(kernel) => {
                if let Some(chunks) = &mut self.chunks {
                    chunks.begin_kernel(kernel);
                }
            }
            ConsumerCommand::Recorded(kernel) => {
                self.manifest.sources.push(kernel.source);
                if let (Some(chunks), Some(part)) = (&mut self.chunks, kernel.chunk) {
                    chunks.end_kernel(part);
                }
                self.manifest.session.problems.extend(kernel.problems);
                self.manifest.session.problems.extend(kernel.remarks);
                self.manifest.session.problems.extend(kernel.stopped.clone());
                self.kernel_stopped = kernel.stopped;
            }
            ConsumerCommand::Finish(done) => return Some(done),
        }
        None
    }

    fn poll(&mut self, sleep: Duration) -> Duration {
        self.look_for_matches();
        if self.stopped.is_some() {
            if self.flushed.elapsed() >= FLUSH_INTERVAL {
                self.flushed = Instant::now();
                self.count_for_triggers();
            }
            return SLEEP.1;
        }
        if self.jobs.is_some() {
            return self.poll_jobs();
        }
        self.save_on_request();
        if self.finished.len() >= MANY_FINISHED || self.retired.elapsed() >= RETIRE_INTERVAL {
            self.retire_finished();
        }
        let most = self.pending_limit();
        self.note_fill();
        let fullest = self.processes.iter_mut().map(|process| process.collect(most)).max().unwrap_or(0);
        let pending: u64 = self.processes.iter().map(Process::pending_bytes).sum();
        let is_sampled = self.sampled.elapsed() >= SAMPLE_INTERVAL;
        if is_sampled {
            self.detect_overload();
            self.sampled = Instant::now();
            self.processes.iter_mut().for_each(Process::look_at_threads);
            self.sample_in_turn();
            self.processes.iter_mut().for_each(Process::advance_clock_bracket);
            if !self.is_overloaded && !self.is_burst() {
                let mut pieces = MAX_PIECES;
                self.processes.iter_mut().for_each(|process| process.give_pages_back(&mut pieces));
            }
        }
        let is_backpressured = self.processes.iter().any(Process::is_backpressured);
        let is_overloaded = self.is_overloaded;
        match policy::conversion(Observation { pending, is_overloaded, is_backpressured, is_sampled }) {
            Conversion::None => {}
            Conversion::ClockBracketed => {
                self.place_waiting();
                self.convert(Backlog::ClockBracketed);
            }
            Conversion::All => {
                self.place_all();
                self.sample();
                self.convert(Backlog::All);
            }
            Conversion::AllAndFlush => self.flush_under_pressure(),
        }
        if self.flushed.elapsed() >= FLUSH_INTERVAL {
            self.flushed = Instant::now();
            if self.counting.is_some() {
                self.processes.iter_mut().for_each(Process::read_catalog);
            }
            self.attempt(|process, _| process.flush());
            self.check_shared();
            self.keep_clock(|file, _| file.sync());
            self.count_for_triggers();
        }
        self.rotate_when_due(is_sampled);
        self.save_what_comes();
        if fullest >= BURST_PERCENT {
            self.last_burst = Some(Instant::now());
        }
        let sleep = match self.is_idle() {
            true => IDLE_SLEEP,
            false => policy::next_sleep(sleep, fullest, self.is_burst()),
        };
        self.arm_watchdog(sleep);
        sleep
    }
}

impl Consumer {
    /// The same where jobs are sent. Nothing waits for a second sample of the clock: a change of
    /// its rate between two samples, 10 ms apart, makes an error of microseconds at most.
    fn poll_jobs(&mut self) -> Duration {
        let before = sample_clocks();
        self.collect();
        self.processes.iter_mut().for_each(|process| process.note_copied_jobs(before));
        let has_more = self.processes.iter().any(|process| process.pending_bytes() > 0);
        self.place_all();
        if has_more || self.sampled.elapsed() >= SAMPLE_INTERVAL {
            self.sampled = Instant::now();
            self.processes.iter_mut().for_each(Process::look_at_threads);
            self.sample();
            self.convert(Backlog::All);
        }
        let is_due = self.flushed.elapsed() >= FLUSH_INTERVAL;
        if is_due {
            self.flushed = Instant::now();
        }
        let around = (before, sample_clocks());
        self.processes.iter_mut().for_each(|process| process.note_converted_jobs(around, is_due));
        let now = sample_clocks();
        self.processes.iter_mut().for_each(|process| process.tell_due_jobs(now));
        self.flush_jobs();
        self.arm_watchdog(JOB_INTERVAL);
        JOB_INTERVAL
    }

    /// Sends the messages about jobs to their receiver, if there is one.
    fn flush_jobs(&mut self) {
        if let Some(Err(error)) = self.jobs.as_ref().map(JobSink::flush) {
            self.stop(&error);
        }
    }

    /// Whether there is nothing to look at before the next command. Chunks end by time and size.
    fn is_idle(&self) -> bool {
        self.processes.is_empty() && self.finished.is_empty() && self.chunks.is_none() && !self.is_burst()
    }

    /// Whether events come in a rush, or did a short time ago.
    fn is_burst(&self) -> bool {
        self.last_burst.is_some_and(|time| time.elapsed() < BURST_TIMEOUT)
    }

    /// Says when the rings are to be looked at again.
    fn arm_watchdog(&mut self, time: Duration) {
        let is_burst = self.is_burst();
        if let Some(stall_watchdog) = &mut self.stall_watchdog {
            stall_watchdog.arm_deadline(time, is_burst);
        }
    }

    /// Looks how much has come since the clock's last turn.
    fn detect_overload(&mut self) {
        let read = self.processes.iter().map(Process::read_bytes).fold(0, u64::wrapping_add);
        let turns = (self.sampled.elapsed().as_millis() / SAMPLE_INTERVAL.as_millis()).max(1) as u64;
        // Less than before if a process has ended: the next turn tells.
        let came = read.saturating_sub(self.read);
        self.is_overloaded = came / turns > OVERLOAD_BYTES;
        self.read = read;
    }

    fn join(&mut self, mut process: Process) {
        if process.is_durable() {
            process.place_apart();
        }
        if let Some(chunks) = self.chunks.as_ref().filter(|_| !process.is_in_chunk()) {
            process.begin_chunk(chunks.open());
        }
        self.processes.push(process);
    }

    /// Gives traces of their own to processes whose events have waited for their end long enough,
    /// or to the first ones.
    fn place_waiting(&mut self) {
        let is_few = self.traces < MAX_TRACES_AT_ONCE;
        for process in self.processes.iter_mut().filter(|process| process.is_undecided()) {
            if process.must_be_placed() || is_few && process.pending_bytes() != 0 {
                process.place_apart();
                self.traces += 1;
            }
        }
    }

    /// Gives all processes traces of their own.
    fn place_all(&mut self) {
        for process in self.processes.iter_mut().filter(|process| process.is_undecided()) {
            process.place_apart();
            self.traces += 1;
        }
    }

    /// Writes what rings hold that are kept and a quarter full, so that their room can be given
    /// back.
    fn flush_under_pressure(&mut self) {
        self.sample();
        self.convert(Backlog::All);
        self.attempt(|process, _| if process.is_backpressured() { process.flush() } else { Ok(()) });
    }

    /// Samples the clock out of turn. Where that is often, most samples give way to the next.
    fn sample(&mut self) {
        if self.kept.elapsed() >= KEEP_INTERVAL {
            self.sample_in_turn()
        } else {
            self.clock.add_for_now(sample_clocks())
        }
    }

    /// Samples the clock, for what was copied before to ripen.
    fn sample_in_turn(&mut self) {
        self.kept = Instant::now();
        let sample = sample_clocks();
        self.clock.add(sample);
        if self.clock.newest() == sample {
            self.keep_clock(|file, clock| file.add(clock.newest()));
        }
        if self.clock.samples().len() % 1024 == 0 {
            self.clock.thin_out();
            self.keep_clock(|file, clock| file.replace(clock.samples()));
        }
    }

    /// Does something with the clock's samples in their file, if they are kept.
    fn keep_clock(&mut self, step: impl FnOnce(&mut ClockFile, &ClockMap) -> io::Result<()>) {
        let Some(file) = self.clock_file.as_mut().filter(|_| self.stopped.is_none()) else { return };
        if let Err(error) = step(file, &self.clock) {
            self.stop(&error);
        }
    }

    /// Converts what was copied, in short steps, and goes on collecting between them. The processes
    /// take turns, so that none keeps the others waiting.
    ///
    /// What is collected meanwhile waits for the next time, unless it comes so fast that it must
    /// not.
    fn convert(&mut self, share: Backlog) {
        let mut collected = Instant::now();
        let mut waiting: Vec<u64> =
            self.processes.iter().map(|process| process.convertible_bytes(share)).collect();
        while self.stopped.is_none() && waiting.iter().any(|bytes| *bytes != 0) {
            for (index, bytes) in waiting.iter_mut().enumerate().filter(|(_, bytes)| **bytes != 0) {
                match self.processes[index].convert_some(share, &mut self.clock) {
                    Ok(0) => *bytes = 0,
                    Ok(done) => *bytes = bytes.saturating_sub(done),
                    Err(error) => {
                        *bytes = 0;
                        self.fail(index, &error);
                    }
                }
                collected = self.collect_again(collected);
                while disk::is_full() {
                    collected = self.collect_after_pause(collected);
                }
            }
        }
        // What the lists hold by now is not much later than the newest sample.
        if self.kept.elapsed() >= SAMPLE_INTERVAL {
            self.sample();
        }
        self.attempt(|process, clock| match process.is_undecided() {
            true => Ok(()),
            false => process.convert_initial(clock),
        });
    }

    /// Copies what is new in all rings, as far as there is room for it.
    fn collect(&mut self) {
        let most = self.pending_limit();
        for process in &mut self.processes {
            process.collect(most);
        }
    }

    /// Maximum number of bytes of each process that may wait to be converted: where many have much
    /// that waits, each has its share.
    fn pending_limit(&self) -> u64 {
        let all = self.processes.iter().map(Process::pending_bytes).fold(0, u64::saturating_add);
        match all {
            ..MAX_PENDING_OF_ALL => u64::MAX,
            _ => MAX_PENDING_OF_ALL / (self.processes.len() as u64).max(1),
        }
    }

    /// Looks after the rings if the last time is a while ago; returns when the last time was.
    fn collect_again(&mut self, last: Instant) -> Instant {
        if last.elapsed() < COLLECT_INTERVAL {
            return last;
        }
        self.collect();
        self.copy_what_comes();
        self.arm_watchdog(2 * COLLECT_INTERVAL);
        // A slow disk may have taken long: what was collected must not be much later than the
        // newest sample.
        if self.kept.elapsed() >= SAMPLE_INTERVAL {
            self.sample();
        }
        Instant::now()
    }

    /// Collects again after a pause, while the caller waits for the disk.
    fn collect_after_pause(&mut self, last: Instant) -> Instant {
        std::thread::sleep(SLEEP.0);
        self.collect_again(last)
    }

    /// Waits until all packets are written.
    fn wait_for_disk(&mut self) {
        let mut collected = Instant::now();
        while !self.processes.iter().all(Process::is_written) {
            collected = self.collect_after_pause(collected);
        }
    }

    /// Converts all that a process has left, which isn't among the others any more.
    fn convert_last(&mut self, process: &mut Process) -> io::Result<()> {
        let mut collected = Instant::now();
        while process.convert_some(Backlog::All, &mut self.clock)? != 0 {
            collected = self.collect_again(collected);
        }
        process.convert_initial(&mut self.clock)?;
        process.flush()?;
        while !process.is_written() {
            collected = self.collect_after_pause(collected);
        }
        process.finish()
    }

    /// The same for a process that may end in the trace that short ones share.
    fn convert_ended(&mut self, process: &mut Process) -> io::Result<()> {
        let is_full = self.shared.as_ref().is_some_and(|shared| shared.classes_count() >= MAX_SHARED_CLASSES);
        if self.traces < MAX_TRACES_AT_ONCE || is_full || !process.may_share() {
            if process.is_undecided() {
                process.place_apart();
                self.traces += 1;
            }
            return self.convert_last(process);
        }
        process.enter_shared(&mut self.shared, self.chunks.as_ref().map_or(&self.folder, Chunks::open));
        let mut collected = Instant::now();
        let mut result = Ok(1);
        while result.as_ref().is_ok_and(|done| *done != 0) {
            result = process.convert_some(Backlog::All, &mut self.clock);
            collected = self.collect_again(collected);
        }
        let result = result.and_then(|_| process.finish_shared());
        process.leave_shared(&mut self.shared);
        result
    }

    /// Looks whether the shared trace can be written.
    fn check_shared(&mut self) {
        if let Some(Err(error)) = self.shared.as_ref().map(SourceWriter::check) {
            self.stop(&error);
        }
    }

    /// A process's events can't be written, so it is given up.
    fn fail(&mut self, index: usize, error: &io::Error) {
        let process = &mut self.processes[index];
        process.give_up();
        let text = no_longer(process, error) + &self.kept_rings();
        self.report_failure(text, error);
    }

    /// Text for people about the backing files of a process that was given up.
    fn kept_rings(&self) -> String {
        let durable = self.manifest.session.backing.as_ref().filter(|_| self.manifest.session.is_durable());
        let Some(backing) = durable else { return String::new() };
        let (backing, folder) = (backing.display(), self.folder.path().display());
        format!("; what the rings hold stays in {backing}: tompion recover {folder}")
    }

    /// The failure of a process that was given up is the end of the whole recording, unless it only
    /// wants a file too many.
    fn report_failure(&mut self, text: String, error: &io::Error) {
        if is_of_one(error) {
            self.report_once(text);
        } else {
            self.stop(error);
        }
    }

    fn stop(&mut self, error: &io::Error) {
        if self.stopped.is_none() {
            let mut text =
                format!("recording to {} stopped: {}", self.folder.path().display(), reason(error));
            text += &self.kept_rings();
            (self.notice)(&text);
            self.stopped = Some(text);
            self.processes.iter_mut().for_each(Process::give_up);
        }
    }

    /// Does something with each process; the first failure stops writing for good.
    fn attempt(&mut self, mut step: impl FnMut(&mut Process, &mut ClockMap) -> io::Result<()>) {
        for index in 0..self.processes.len() {
            if self.stopped.is_some() {
                return;
            }
            if let Err(error) = step(&mut self.processes[index], &mut self.clock) {
                self.fail(index, &error);
            }
        }
    }

    fn events(&self) -> u64 {
        let running = self.processes.iter().map(|process| process.summary(self.root().path()).events);
        running.chain(self.manifest.sources.iter().map(|source| source.events)).sum()
    }

    /// Saves what the flight recorders hold if a program has asked for it.
    fn save_on_request(&mut self) {
        let who = self.processes.iter_mut().filter_map(|process| {
            process.wants_snapshot().then(|| format!("{} ({})", process.hello.name, process.pid))
        });
        self.askers.extend(who);
        if !self.askers.is_empty() && self.saved.is_none_or(|saved| saved.elapsed() >= SAVE_INTERVAL) {
            let before = self.events();
            self.save_histories();
            let saved = self.events() - before;
            let askers: Vec<String> = std::mem::take(&mut self.askers).into_iter().collect();
            let askers = summarize_names(&askers);
            self.reported_saves += 1;
            match self.reported_saves {
                ..MAX_NOTICES => (self.notice)(&format!("saved {saved} events, as {askers} asked")),
                MAX_NOTICES => (self.notice)("programs ask for more, which is saved without a word"),
                _ => {}
            }
            self.saved = Some(Instant::now());
        }
    }

    fn save_histories(&mut self) {
        if self.manifest.session.channel.mode == manifest::OVERWRITE {
            self.processes.iter_mut().for_each(Process::save_history);
        } else {
            self.collect();
        }
        self.place_all();
        self.sample();
        self.convert(Backlog::All);
        self.attempt(|process, _| process.flush());
        self.wait_for_disk();
        self.attempt(|process, _| process.check_written());
    }
}

/// Whether a failure to write concerns one process only: there are too many open files for one
/// more. Source: `errno(3)`.
fn is_of_one(error: &io::Error) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    matches!(error.raw_os_error(), Some(ENFILE | EMFILE))
}

fn no_longer(process: &Process, error: &io::Error) -> String {
    format!("{} ({}) is no longer recorded: {error}", process.hello.name, process.pid)
}
