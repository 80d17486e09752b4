//! Recording from start to end, as `tompion record` runs it.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{Child, ExitStatus},
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use tompion_calls::Requests;
use tompion_control::PlaceError;
use tompion_counts::Rule;
use tompion_firings::AfterSave;
use tompion_jobs::JobSink;
use tompion_kernel_trace::{Kernel, KernelChoice};
use tompion_layout::ring::{Geometry, GeometryError};
use tompion_lineage::{
    self as lineage,
    untraced::{self, Expectation, Looks},
};
use tompion_manifest::{CommandEnd, Manifest};
use tompion_os::{
    DirHandle, Inheritance, Poller, ProcessWatch, Signals, User,
    signal::{SIGCHLD, SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM, SIGUSR1, SIGXFSZ},
};
use tompion_programs::ProgramSets;
use tompion_protocol::rules::Rules;
use tompion_triggers::{Abilities, Trigger};

use crate::{
    acceptor::{ClientAcceptor, Ended, Interest},
    attach::ProgramSearch,
    consumer::{CommandSender, Consumer, ConsumerCommand, RecordingSummary},
    context::Context,
    messages,
    newcomers::NewcomerSearch,
    pace::BATCH_INTERVAL,
    process::TracePlace,
    ring_budget::{MemoryError, RingMemory},
    rseq,
    session_config::SessionConfig,
    target::Target,
};

mod begin;
mod kernel;
mod reach;
mod requests;
mod resume;
mod triggers;

use begin::{Left, Start, begin, create_backing, create_folder, session_config};
pub(crate) use kernel::plan as kernel_plan;
use kernel::{leave_out_kernel, prepare_kernel, start_kernel};
use resume::Unfinished;
use triggers::Triggers;

use reach::{Reached, ask_again, reach, watch, watch_all};

/// Time within which the command may end after it was asked to.
const GRACE: Duration = Duration::from_secs(5);
/// Time within which a running process may answer when it is asked to take part.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for which the session of a folder waits for the next program when it has none.
const SHARED_FOLDER_TIMEOUT: Duration = Duration::from_secs(2);

/// Treatment of new events when a ring is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// They are lost, and counted; everything recorded goes to disk.
    Discard,
    /// They replace the oldest; the newest history is saved at the end, and on request.
    Overwrite,
}

/// Configuration of a recording.
#[derive(Clone, Debug)]
pub struct Config {
    /// Folder of the trace; must not exist.
    pub folder: PathBuf,
    /// Rules that enable events.
    pub rules: Rules,
    /// Treatment of new events when a ring is full.
    pub mode: Mode,
    /// Bytes of a sub-buffer.
    pub subbuf_size: u64,
    /// Sub-buffers of each CPU's ring.
    pub subbufs: u64,
    /// Limit of the memory of all rings, if there is one.
    pub ring_limit: Option<RingLimit>,
    /// Whether all pages of the rings are made present before the first event of a program.
    pub prefault: bool,
    /// Whether events carry the id of their thread.
    pub tid: bool,
    /// Further context in the trace.
    pub contexts: Vec<Context>,
    /// Whether events carry the contexts that applications define.
    pub application_contexts: bool,
    /// Libraries to preload.
    pub preload: Vec<PathBuf>,
    /// Folder with a module that Python imports at its start, and that records the interpreter.
    pub python_start: Option<PathBuf>,
    /// Folder of libraries that the command loads before others of their names.
    pub library_folder: Option<PathBuf>,
    /// Variables of the command's environment, by which it finds further libraries.
    pub variables: Vec<(String, PathBuf)>,
    /// The library, for programs that load it by themselves.
    pub library: Option<PathBuf>,
    /// End the recording, and the command, after this time.
    pub time: Option<Duration>,
    /// Choice of the kernel's events, if any.
    pub kernel: Option<KernelChoice>,
    /// Processes to record.
    pub target: Target,
    /// Sets of programs to record besides a command, or alone: those that run, and those that start
    /// later.
    pub programs: Option<ProgramSets>,
    /// Folder in which to keep the rings, so that they outlast the session and the machine; must
    /// not exist.
    pub backing: Option<PathBuf>,
    /// Rules of a recording in chunks.
    pub chunks: Option<tompion_chunks::Policy>,
    /// Triggers.
    pub triggers: Vec<Trigger>,
    /// Whether triggers that run commands are refused: the grant has none.
    pub refuses_commands: bool,
    /// Rules by which events are counted in place.
    pub counts: Vec<Rule>,
    /// Sink of jobs' begins and ends as they happen; then nothing is written, and nothing is left
    /// of the folder.
    pub jobs: Option<JobSink>,
    /// A mappable array of programs in the kernel whose first word says, by its lowest bit, which
    /// of two buffers is written. Both are saved. Recorded programs get it, and should be able to
    /// read it alone.
    pub selector: Option<Arc<OwnedFd>>,
    /// User that runs the command, where that is not the user of this process.
    pub user: Option<User>,
    /// Name under which other programs find the recording; else the process id.
    pub session: Option<String>,
    /// Time for which programs go on writing to their rings when the recorder was killed, until
    /// another one continues the recording; none to end it then.
    pub linger: Option<Duration>,
    /// Continue the recording in the folder, if its recorder was killed.
    pub resume: bool,
    /// Tompion's own command line, for the manifest.
    pub invocation: Vec<String>,
}

impl Config {
    /// Abilities of the recording that triggers need.
    pub fn abilities(&self) -> Abilities {
        Abilities {
            is_flight_recorder: self.mode == Mode::Overwrite,
            is_in_chunks: self.chunks.is_some(),
            refuses_commands: self.refuses_commands,
        }
    }

    /// Whether another user records by a grant: that user's commands get no file of this process.
    pub(crate) fn is_granted(&self) -> bool {
        self.programs.as_ref().is_some_and(ProgramSets::is_limited)
    }
}

/// Limit of the memory of all programs' rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingLimit {
    /// Number of bytes.
    pub bytes: u64,
    /// Whether the rings keep the sizes of the configuration; else programs get shares.
    pub keeps_sizes: bool,
}

/// Reason why nothing was recorded. Nothing half-made is left behind.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The sizes can't be.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// The memory can't be shared out.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The folder is there already.
    #[error("{0} exists already; choose another folder with -o, or remove it")]
    FolderExists(PathBuf),
    /// The folder can't be made.
    #[error("can't create the folder {0}: {1}")]
    Folder(PathBuf, io::Error),
    /// The user who is to own the trace can't make the folder.
    #[error(
        "user {user}, who started sudo and is to own the trace, can't create the folder {folder}: {error}; choose \
         another with -o, or record as root: sudo env -u SUDO_UID tompion record …"
    )]
    UsersFolder {
        /// The user's number.
        user: u32,
        /// The folder.
        folder: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// The folder for the rings is there already.
    #[error(
        "{0} exists already; if a recording was killed there, tompion recover {0} completes it; else choose another \
         name or remove it"
    )]
    BackingExists(PathBuf),
    /// The folder for the rings can't be made.
    #[error("can't keep the rings in {0}: {1}")]
    Backing(PathBuf, io::Error),
    /// Not one of the processes can be recorded.
    #[error("{0}")]
    Unreachable(String),
    /// The command can't be run.
    #[error("can't run `{0}`: {1}")]
    Command(String, io::Error),
    /// The session can't be found by its name.
    #[error(transparent)]
    Name(#[from] PlaceError),
    /// The keeper can't be started.
    #[error("can't start the keeper of the recording (--linger): {0}")]
    Keeper(io::Error),
    /// The recording can't be continued.
    #[error("can't continue {0}: {1}")]
    Resume(PathBuf, String),
    /// The system refused something that a session needs.
    #[error("can't set up the session")]
    Session(#[from] io::Error),
}

/// Outcome of a recording.
#[derive(Debug)]
pub struct Outcome {
    /// Summary of the recording.
    pub report: RecordingSummary,
    /// The command's exit status, if it ended.
    pub status: Option<ExitStatus>,
    /// Whether the command was asked to end because the time was up.
    pub time_was_up: bool,
    /// Problems for users, one line each.
    pub problems: Vec<String>,
    /// Number of processes that took part.
    pub processes: u64,
    /// The trace's folder.
    pub folder: DirHandle,
}

impl Outcome {
    /// Returns how the command ended, if it failed. One that ended by the session's own signal,
    /// because the time was up, did not fail.
    pub fn failure(&self) -> Option<ExitStatus> {
        let is_ours = |status: &ExitStatus| matches!(status.signal(), Some(SIGTERM | SIGKILL));
        self.status.filter(|status| !(status.success() || self.time_was_up && is_ours(status)))
    }
}

/// Records the target until all of it has ended (a command and its recorded children, processes and
/// theirs), the time is up, or the user interrupts. `notice` gets what users should know meanwhile,
/// a line at a time.
pub fn record(config: &Config, notice: fn(&str)) -> Result<Outcome, Error> {
    let buffers = if config.selector.is_some() { 2 } else { 1 };
    let cpus = tompion_os::possible_cpus();
    let chosen = Geometry::new(config.subbuf_size, config.subbufs, cpus, buffers)?;
    let memory = config.ring_limit.map(|RingLimit { bytes, keeps_sizes }| {
        let fixed = keeps_sizes.then_some(chosen);
        RingMemory { bytes, fixed, cpus, buffers }
    });
    let geometry = memory.map_or(Ok(chosen), |memory| memory.first())?;
    if let Some(unfinished) = if config.resume { Unfinished::find(config)? } else { None } {
        return unfinished.record(config, notice);
    }
    let folder = create_folder(config)?;
    let result = create_backing(config, &folder, notice).and_then(|backing| {
        let session_config = session_config(config, geometry, (folder.clone(), backing.clone()))?;
        let session_config = SessionConfig { memory, ..session_config };
        record_into(config, session_config, None, notice).inspect_err(|_| {
            backing.iter().for_each(|backing| drop(backing.remove_all()));
        })
    });
    if result.is_err() || config.jobs.is_some() {
        let _ = folder.remove_all();
    }
    result
}

/// Records into a folder that is there; `unfinished` is what a killed recorder has left of it.
fn record_into(
    config: &Config,
    mut session_config: SessionConfig,
    unfinished: Option<Unfinished>,
    notice: fn(&str),
) -> Result<Outcome, Error> {
    let inheritance = Inheritance::current();
    tompion_os::raise_file_limit();
    let folder = session_config.folder.clone();
    // With SIGXFSZ among them, so that a limit on the size of files is told and doesn't kill.
    let signals = Signals::take(&[SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGTERM, SIGCHLD, SIGXFSZ])?;
    // It looks at processes by a thread, which must not get these signals. Until this process is
    // gone, readers of the trace know by the lock that it is still being recorded.
    let (start, _lock) = match unfinished {
        Some(unfinished) => {
            unfinished.begin(config, &session_config, notice).map(|(start, lock)| (start, Some(lock)))?
        }
        None => {
            let lock = tompion_os::try_lock(&folder).ok().flatten();
            (begin(config, &mut session_config)?, lock)
        }
    };
    let Start { mut manifest, clock, name, listener, mut left, chunk, kernel } = start;
    restore_counts(&session_config, left.as_ref(), &manifest)
        .map_err(|text| Error::Resume(config.folder.clone(), text))?;
    tell_costs(&session_config, notice);
    let poller = Poller::new()?;
    poller.add(signals.as_fd(), Interest::Signals.to_number())?;
    let mut kernel = match kernel {
        None if manifest.session.kernel => prepare_kernel(config, &session_config, notice),
        taken_over => taken_over,
    };
    if manifest.session.kernel && kernel.is_none() {
        leave_out_kernel(&mut manifest, &folder)?;
    }
    let choice = config.kernel.as_ref().filter(|_| kernel.is_some());
    let requests = requests::listen(config, &session_config, choice)?;
    requests.iter().try_for_each(|requests| poller.add(requests.as_fd(), Interest::Calls.to_number()))?;
    let backing = session_config.backing.clone();
    let begin_ns = clock.samples().first().map_or(0, |sample| sample.ns);
    let consumer =
        Consumer::new(folder.clone(), backing, manifest, clock, notice)?.with_jobs(config.jobs.clone());
    let mut triggers = Triggers::new((config, &session_config), inheritance, &poller)?;
    let begin = chunk.as_ref().map(|chunk| chunk.begin.clone());
    let consumer = consumer.with_chunks(config.chunks, chunk)?.with_counts(triggers.observations.counts());
    let root = consumer.root().clone();
    let counting = session_config.counting.clone();
    let consumer = consumer.with_event_watch(triggers.event_watch()).with_counting(counting);
    let (commands, consumer) = consumer.start()?;
    let mut acceptor = ClientAcceptor::open(listener, session_config, commands.clone(), &poller)?;
    if kernel.is_some() {
        acceptor.keep_memory_for_kernel();
    }
    let command = left.as_mut().and_then(|left| left.command.take());
    let reached = match left {
        Some(left) => {
            let place = TracePlace { root: &root, begin: begin.as_ref() };
            take_over(left, &mut acceptor, place, begin_ns, &poller)?;
            // Before a chunk can end.
            start_kernel(kernel.as_mut(), &commands)?;
            let _ = commands.send(ConsumerCommand::TakenOver);
            triggers.begin_losses(&commands);
            Reached { search: ask_again(config, &name, &acceptor), ..Reached::default() }
        }
        None => reach(config, &name, &mut acceptor, &poller, inheritance)?,
    };
    let Reached { child, search, obstacle } = reached;
    if let Some(obstacle) = obstacle {
        notice(&format!("{obstacle}; programs are recorded up to 0.1 s after they start"));
    }
    if let Target::Processes(family) = &config.target {
        family.describe_members().iter().for_each(|line| notice(line));
    }
    config.jobs.iter().try_for_each(JobSink::tell_listening)?;
    start_kernel(kernel.as_mut(), &commands)?;
    let watched = match (command, kernel.is_some()) {
        (Some(command), _) => watch_all(vec![command], &poller)?,
        (None, true) => watch(&config.target, &poller)?,
        (None, false) => Vec::new(),
    };
    // Programs wait for this thread when they start, and not for long.
    tompion_os::prefer_this_thread();
    let deadline = config.time.map(|time| Instant::now() + time);
    let mut control = Control {
        name,
        acceptor,
        signals,
        poller,
        commands,
        kernel,
        target: config.target.clone(),
        search,
        command: child.as_ref().map_or(0, Child::id),
        looks: child.as_ref().map(|child| Looks::new(child.id())),
        child,
        status: None,
        deadline,
        alone_since: Instant::now(),
        watched,
        ending: false,
        end_signal: None,
        timed: false,
        requests,
        rule_changes: 0,
        triggers,
        abilities: config.abilities(),
    };
    control.run(notice);
    control.leave_command(notice);
    control.follow_last_triggers(notice);
    close(control, config, consumer, folder)
}

/// Says what makes events cost more than elsewhere.
fn tell_costs(config: &SessionConfig, notice: fn(&str)) {
    if let (false, Err(reason)) = (config.tsc, tompion_os::tsc_state()) {
        notice(&format!("timestamps come from clock_gettime, at a higher cost per event: {reason}"));
    }
    rseq::problem().iter().for_each(|problem| notice(problem));
}

/// Ends a recording: completes the trace.
fn close(
    control: Control,
    config: &Config,
    consumer: JoinHandle<()>,
    folder: DirHandle,
) -> Result<Outcome, Error> {
    let (sender, receiver) = mpsc::channel();
    let Control {
        mut acceptor, commands, status, kernel, looks, command, timed: time_was_up, requests, ..
    } = control;
    let keeper = acceptor.keeper();
    // The name is free once the trace is complete.
    let _socket = requests.map(Requests::close);
    let end = status.map(|status| CommandEnd { pid: command.into(), end: lineage::describe_end(status) });
    acceptor.close();
    let ClientAcceptor { mut problems, admitted, introductions, .. } = acceptor;
    let mut looked = looks.map(Looks::finish).unwrap_or_default();
    let (mut programs, mut children) = (looked.programs(), looked.children());
    let expectation = Expectation {
        preloads: !config.preload.is_empty(),
        user: config.user.as_ref().map_or_else(tompion_os::effective_user, User::uid),
        has_kernel: kernel.is_some(),
    };
    if let Some(mut outcome) = kernel.and_then(Kernel::finish) {
        problems.extend(outcome.problems.iter().cloned());
        // Looks tell the same programs by other names where there are links.
        let family = &mut outcome.family;
        programs = Some(family.programs()).filter(|it| !it.items.is_empty()).unwrap_or(programs);
        children = family.children();
        looked.executions.append(&mut family.executions);
        let _ = commands.send(ConsumerCommand::Recorded(Box::new(outcome)));
    }
    let _ = commands.send(ConsumerCommand::Executed(end, programs, children));
    problems.extend(untraced::describe(&looked.executions, &introductions, expectation));
    let _ = commands.send(ConsumerCommand::Finish(sender));
    let report = receiver.recv().map_err(|_| io::Error::other("the consumer ended early"))?;
    let _ = consumer.join();
    // All is in the trace. Else the next recorder, or a recovery, has what is left.
    keeper.iter().filter(|_| report.is_complete).for_each(|keeper| keeper.end());
    Ok(Outcome { report, status, time_was_up, problems, processes: admitted, folder })
}

/// Goes on with the counts of processes that have ended. Those of processes with memory that is
/// still there are read again.
fn restore_counts(session: &SessionConfig, left: Option<&Left>, manifest: &Manifest) -> Result<(), String> {
    let (Some(left), Some(backing), Some(counting)) = (left, &session.backing, &session.counting) else {
        return Ok(());
    };
    let has_memory = |key| left.kept.processes.contains_key(&key);
    let is_there = |key| left.processes.iter().any(|process| process.key == key) && has_memory(key);
    counting.resume(backing, manifest.session.is_durable(), is_there)
}

/// Takes over the programs of a recorder that was killed. `begin_ns` is when the recording began.
fn take_over(
    left: Left,
    acceptor: &mut ClientAcceptor,
    place: TracePlace<'_>,
    begin_ns: u64,
    poller: &Poller,
) -> Result<(), Error> {
    let Left { mut kept, processes, join_socket, ended, .. } = left;
    acceptor.note_folders(place.root, &ended);
    acceptor.adopt_listeners(&mut kept, join_socket.as_deref(), poller)?;
    acceptor.adopt(kept, processes, (place, begin_ns), poller);
    Ok(())
}

/// The control thread's state.
struct Control {
    /// The session's name, which programs find in their environment.
    name: String,
    acceptor: ClientAcceptor,
    signals: Signals,
    poller: Poller,
    commands: CommandSender,
    /// The kernel, if it is recorded.
    kernel: Option<Kernel>,
    /// Processes that the session records.
    target: Target,
    /// The search for programs that can't find the session.
    search: Option<ProgramSearch>,
    /// The command, until it was waited for.
    child: Option<Child>,
    /// Its process id.
    command: u32,
    /// Observer of the programs that the command and its descendants execute.
    looks: Option<Looks>,
    status: Option<ExitStatus>,
    deadline: Option<Instant>,
    /// Time at which the session last began to have no client.
    alone_since: Instant,
    /// With the kernel's events: processes that were named, until they have ended. Of a recorder
    /// that came back: the command.
    watched: Vec<ProcessWatch>,
    /// Whether the command was asked to end.
    ending: bool,
    /// Signal by which it was asked.
    end_signal: Option<i32>,
    /// Whether that was because the time was up.
    timed: bool,
    /// Requests of other programs.
    requests: Option<Requests>,
    /// Number of times that the rules were changed.
    rule_changes: u32,
    triggers: Triggers,
    /// Abilities of the recording that triggers need.
    abilities: Abilities,
}

impl Control {
    /// Runs until there is no process left to record, or the recording is to end.
    fn run(&mut self, notice: fn(&str)) {
        let mut is_reported = false;
        loop {
            let mut leave_at = None;
            self.acceptor.drop_timed_out(&self.poller);
            self.watched.retain(|process| !process.has_ended());
            if self.child.is_none() {
                // A child that was just made may be connecting.
                self.acceptor.accept_pending(&self.poller);
                self.acceptor.read_handshakes(&self.poller);
                if self.acceptor.expects_events() {
                    self.alone_since = Instant::now();
                    is_reported = is_reported || self.tell_who_is_left(notice);
                } else {
                    match self.wait_timeout() {
                        None => {}
                        Some(wait_timeout) if self.alone_since.elapsed() < wait_timeout => {
                            leave_at = Some(self.alone_since + wait_timeout);
                        }
                        Some(_) if self.newcomers_come() => {}
                        Some(_) => return,
                    }
                }
            }
            let search_at = self.ask_new_programs();
            self.follow_saves(false, notice);
            let look_at = self.looks.as_mut().filter(|_| self.child.is_some()).map(Looks::look);
            if self.follow_triggers(notice) {
                return;
            }
            let now = Instant::now();
            if self.deadline.is_some_and(|deadline| deadline <= now) && self.time_is_up() {
                return;
            }
            // Milliseconds are rounded up, so as not to spin at the end.
            let others =
                leave_at.into_iter().chain(search_at).chain(look_at).chain(self.acceptor.next_timeout());
            let others = others.chain(self.triggers.next_look(now));
            let until = self.deadline.into_iter().chain(others).min();
            if self.acceptor.pace.is_steady(now) {
                // What comes meanwhile wakes no thread.
                thread::sleep(BATCH_INTERVAL);
            }
            let timeout = until.map(|until| until.saturating_duration_since(now) + Duration::from_millis(1));
            let Ok(ready) = self.poller.wait(timeout) else { return };
            for interest in ready {
                match Interest::from_number(interest) {
                    Interest::Listener => self.acceptor.accept_pending(&self.poller),
                    Interest::Signals if self.take_signals(notice) => return,
                    Interest::Signals => {}
                    Interest::Calls if self.follow_request(notice) => return,
                    Interest::Calls | Interest::Matches => {}
                    Interest::Socket(key) => self.acceptor.handle_message(key, &self.poller),
                    Interest::Watch(key) => self.client_exited(key),
                }
            }
        }
    }

    /// Asks programs that have started, where they can't find the session. Returns when to ask
    /// again.
    fn ask_new_programs(&mut self) -> Option<Instant> {
        let search = self.search.as_mut()?;
        if search.next() <= Instant::now() {
            search.ask_new(&self.name, |pid| self.acceptor.would_admit(pid));
        }
        Some(search.next())
    }

    /// Time for which the session stays without a client; none if until it is told to end.
    fn wait_timeout(&self) -> Option<Duration> {
        match self.target {
            Target::Command(_) if !self.watched.is_empty() => None,
            Target::Command(_) => Some(Duration::ZERO),
            Target::Processes(_) if !self.watched.is_empty() => None,
            Target::Processes(_) if self.acceptor.admitted == 0 && self.kernel.is_none() => {
                Some(ANSWER_TIMEOUT)
            }
            Target::Processes(_) => Some(Duration::ZERO),
            Target::SharedFolder(_) => Some(SHARED_FOLDER_TIMEOUT),
            Target::Everything => None,
        }
    }

    /// Reports once which processes the session still records after its command has ended.
    fn tell_who_is_left(&self, notice: fn(&str)) -> bool {
        let living = self.acceptor.living();
        if living.is_empty() || self.ending || self.command == 0 {
            return false;
        }
        let some = messages::summarize_names(&living);
        notice(&format!("the command has ended; still recording {some} (Ctrl-C ends it)"));
        true
    }

    /// Whether a program connects that was still being started when the last client ended.
    fn newcomers_come(&mut self) -> bool {
        let mut search = NewcomerSearch::new(&self.name);
        while !self.ending && search.may_join() {
            self.acceptor.accept_pending(&self.poller);
            self.acceptor.read_handshakes(&self.poller);
            if self.acceptor.expects_events() {
                return true;
            }
        }
        false
    }

    /// Leaves a command running that did not end when it was asked to.
    fn leave_command(&mut self, notice: fn(&str)) {
        let Some(child) = &mut self.child else { return };
        if self.timed {
            notice("the command did not exit on SIGTERM; killing it");
            let _ = tompion_os::kill(child.id(), SIGKILL);
            self.status = child.wait().ok();
        } else {
            notice(&format!("the command ({}) continues, no longer recorded", child.id()));
        }
    }

    /// The time is up: asks the command to end. True when it was asked before.
    fn time_is_up(&mut self) -> bool {
        let is_over = self.stop();
        self.timed |= !is_over;
        is_over
    }

    /// Asks the command to end, and with it the recording. True when the recording is to end at
    /// once: there is no command, or it was asked before.
    fn stop(&mut self) -> bool {
        let Some(child) = self.child.as_ref().filter(|_| !self.ending) else { return true };
        let _ = tompion_os::kill(child.id(), SIGTERM);
        self.expect_end(SIGTERM);
        false
    }

    /// Expects the command's end by a signal that it was sent.
    fn expect_end(&mut self, signal: i32) {
        (self.ending, self.end_signal) = (true, Some(signal));
        self.deadline = Some(Instant::now() + GRACE);
    }

    /// Handles what has arrived. True when the recording is to end at once.
    fn take_signals(&mut self, notice: fn(&str)) -> bool {
        while let Some((signal, from_terminal)) = self.signals.next() {
            match signal {
                SIGCHLD => self.reap(),
                SIGUSR1 => self.save(None, AfterSave::Nothing, notice),
                // A file has reached its limit: the write that failed has said so.
                SIGXFSZ => {}
                _ if self.ending => return true,
                signal => {
                    let Some(child) = &self.child else { return true };
                    // The terminal has sent it to the command as well.
                    let _ = (!from_terminal).then(|| tompion_os::kill(child.id(), signal));
                    self.expect_end(signal);
                }
            }
        }
        false
    }

    fn reap(&mut self) {
        if let Some(child) = &mut self.child {
            if let Ok(Some(status)) = child.try_wait() {
                self.status = Some(status);
                self.child = None;
                self.triggers.observations.note_end(status);
            }
        }
    }

    fn client_exited(&mut self, key: u64) {
        self.reap();
        let (command, status) = (self.command, self.status);
        let own = |pid| status.filter(|_| pid == command);
        if let Some(ended) = self.acceptor.client_exited(key, &self.poller, own) {
            let Ended { name, pid, status } = ended;
            self.triggers.note_end((&name, pid), status, self.end_signal);
        }
    }
}
