//! One recorder: started, watched, and started again after a failure.

use std::{
    fs::File,
    io,
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use tompion_grants::Grant;
use tompion_manifest::Manifest;
use tompion_os::{DirHandle, Inheritance, Poller};

use crate::{
    disk::{Answer, Disks, Reply, Unasked},
    grantee::{Grantee, Used, check},
    intent::{self, Intent},
    key::SessionKey,
    process::{Process, ProcessEnd, ProcessIdentity},
    session_file::SessionFile,
    types::{ChannelStatus, RecorderState},
};

/// Time within which a recorder has to end when its grant is taken back; then it is killed.
const REVOKED_TIME: Duration = Duration::from_secs(60);
/// Pause before a recorder is started again. It doubles with each failure, up to the maximum.
const FIRST_DELAY: Duration = Duration::from_millis(100);
const MAX_DELAY: Duration = Duration::from_secs(30);
/// A recorder that ran for this long has started well: the next pause is the first one again.
const SOUND_TIME: Duration = Duration::from_secs(60);
/// A recorder that continued a trace for this long was able to.
const CONTINUED_TIME: Duration = Duration::from_secs(2);
/// Interval between two tries to watch a process, or to ask a disk that hangs for a trace.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Pause before a disk is asked that answers another question.
const BUSY_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum size of the end of a recorder's messages that is searched for the reason of its end.
const MAX_MESSAGES: u64 = 256 << 10;
/// Longest reason for the end of a recorder, in characters: others choose its text.
const MAX_REASON: usize = 1000;
/// Signal that ends a recording.
const END_SIGNAL: i32 = 15;
/// Signal that ends a process at once.
const KILL_SIGNAL: i32 = 9;
/// Reason for the end of a recorder without a known exit status.
const INCOMPLETE: &str = "it ended, and its trace is incomplete";
/// Begin of its messages, and of those about its command line.
const MESSAGE: &str = "tompion: ";
const USAGE_ERROR: &str = "error: ";
/// Variables that the service manager has set for the supervisor alone.
/// Source: `sd_notify(3)`, `sd_watchdog_enabled(3)`, `sd_listen_fds(3)`.
const MANAGER_VARIABLES: [&str; 6] =
    ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"];

/// Means to start recorders.
#[derive(Debug)]
pub struct Launcher {
    /// The program `tompion`.
    pub program: PathBuf,
    /// Folder for recorders' messages.
    pub runtime: DirHandle,
    /// Waits for recorders' ends.
    pub poller: Poller,
    /// Asks the disks of traces.
    pub disks: Disks,
    /// Settings of the supervisor's start, which recorders and their commands get.
    pub inheritance: Inheritance,
    /// Reports failures.
    pub report: fn(&str),
}

/// A channel's recorder.
#[derive(Debug)]
pub struct Recorder {
    /// Name of the recording.
    pub recording: String,
    /// The session as the recorder follows it.
    pub session: SessionFile,
    key: SessionKey,
    channel: String,
    /// The user that it records for, if that is by a grant.
    pub grantee: Option<Grantee>,
    state: State,
    folder: Option<PathBuf>,
    restarts: u32,
    failure: Option<String>,
    delay: Duration,
    /// The next start continues the trace of the recorder that failed.
    continues: bool,
    /// A caller waits for its start: a failure is reported to it, and not tried again.
    is_awaited: bool,
    /// Reason why it was ended, without a call.
    revoked: Option<String>,
    /// Instant at which it is killed, if it has not ended by then: its grant was taken back.
    kill_at: Option<Instant>,
}

#[derive(Debug)]
enum State {
    Stopped,
    Running(Process),
    Unwatched(Unwatched),
    Ended(Ended),
    Waiting(Instant),
    Preparing(Preparation),
    Failed,
}

/// A process of an earlier supervisor that can't be watched yet.
#[derive(Debug)]
struct Unwatched {
    identity: ProcessIdentity,
    is_stopping: bool,
    /// Instant of the next try.
    next: Instant,
}

/// A process of an earlier supervisor that has ended. Its exit status is not known: its trace says
/// whether the end was in order.
#[derive(Debug)]
struct Ended {
    identity: ProcessIdentity,
    /// The next start may continue its trace.
    may_continue: bool,
    /// Reason of the failure, if it is one.
    reason: &'static str,
    /// Answer of the trace's disk, if it was asked.
    is_whole: Option<Answer<bool>>,
    /// Instant at which it is asked again.
    next: Instant,
}

/// A start that waits until its folder is created.
#[derive(Debug)]
struct Preparation {
    output: PathBuf,
    made: Answer<io::Result<()>>,
}

/// A recorder as an earlier supervisor has written it down.
#[derive(Debug)]
pub struct SavedRecorder {
    /// Its process, if it ran.
    pub process: Option<ProcessIdentity>,
    /// Folder of its trace.
    pub folder: Option<PathBuf>,
    /// Number of its failures.
    pub restarts: u32,
}

impl Recorder {
    /// A recorder of a session's channel, which does not run yet.
    pub fn new(key: &SessionKey, channel: &str, session: SessionFile) -> Self {
        Self {
            recording: session.recording(&key.name, channel),
            session,
            key: key.clone(),
            channel: channel.to_owned(),
            grantee: None,
            state: State::Stopped,
            folder: None,
            restarts: 0,
            failure: None,
            delay: FIRST_DELAY,
            continues: false,
            is_awaited: false,
            revoked: None,
            kill_at: None,
        }
    }

    /// The same, for a user with a grant.
    pub fn for_grantee(self, grantee: Option<Grantee>) -> Self {
        Self { grantee, ..self }
    }

    /// Takes a recorder over that another supervisor has started, or notes its end.
    pub fn adopt(&mut self, saved: SavedRecorder, launcher: &Launcher) {
        let SavedRecorder { process, folder, restarts } = saved;
        (self.folder, self.restarts) = (folder, restarts);
        // Also one that is stopped and answers nothing, or does not listen yet.
        if let Some(identity) = process {
            let adopted = Process::adopted(identity, &launcher.poller);
            return self.watch(identity, adopted, "it ended while no supervisor ran", launcher);
        }
        self.continues = self.can_continue();
        self.fail("it had failed before this supervisor ran".into());
    }

    /// Takes over what was found of a process that an earlier supervisor has started.
    fn watch(
        &mut self,
        identity: ProcessIdentity,
        adopted: io::Result<Option<Process>>,
        reason: &'static str,
        launcher: &Launcher,
    ) {
        let is_stopping = matches!(&self.state, State::Unwatched(before) if before.is_stopping);
        self.state = match adopted {
            Ok(Some(mut process)) => {
                process.is_stopping = is_stopping;
                State::Running(process)
            }
            Ok(None) if is_stopping => State::Stopped,
            Ok(None) => State::Ended(Ended::new(identity, self.can_continue(), reason)),
            Err(error) => {
                if !matches!(self.state, State::Unwatched(_)) {
                    (launcher.report)(&format!("{}: can't be watched yet: {error}", self.recording));
                }
                let next = Instant::now() + RETRY_INTERVAL;
                State::Unwatched(Unwatched { identity, is_stopping, next })
            }
        };
        self.look_at_trace(launcher);
    }

    /// Starts the recorder. A disk may let this wait.
    ///
    /// # Errors
    /// If the program can't be started, or the folder for its traces can't be made.
    fn start(&mut self, launcher: &Launcher) -> io::Result<()> {
        if self.folder_to_continue().is_some() {
            return self.launch(None, launcher);
        }
        let output = self.output()?;
        if self.grantee.is_some() {
            // Another user's disk is that of its recorder alone.
            return self.launch(Some(&output), launcher);
        }
        let made = launcher.disks.ask(&output, make_folder(&output));
        made.ok_or_else(|| does_not_answer(&output))??;
        self.launch(Some(&output), launcher)
    }

    /// Starts the recorder, with a new folder in this one, or with that of the trace to continue.
    fn launch(&mut self, output: Option<&Path>, launcher: &Launcher) -> io::Result<()> {
        let is_second = output.is_none();
        // Milliseconds make it new.
        let time = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S%.3f");
        let new = output.map(|output| output.join(format!("{}-{time}", self.recording)));
        let folder = new.or_else(|| self.folder.clone()).ok_or(io::ErrorKind::NotFound)?;
        let messages = launcher.runtime.recreate(self.messages_name())?;
        // First: a supervisor that is killed from here on leaves a recorder for the next one.
        self.intent(&folder).write(&self.intent_name(), &launcher.runtime)?;
        let started = self
            .spawn(launcher, &folder, &messages)
            .and_then(|child| Process::started(child, is_second, &launcher.poller));
        let process = started.inspect_err(|_| {
            let _ = launcher.runtime.remove(self.intent_name());
        })?;
        // Not before: a start that has failed is tried again, with the same trace.
        self.continues = false;
        self.folder = Some(folder);
        self.state = State::Running(process);
        Ok(())
    }

    fn intent(&self, folder: &Path) -> Intent {
        Intent {
            user: self.key.user,
            name: self.key.name.clone(),
            channel: self.channel.clone(),
            session: self.session.clone(),
            folder: folder.to_owned(),
            restarts: self.restarts,
            grantee: self.grantee.clone(),
        }
    }

    /// Name of the file in which a start is written down.
    pub fn intent_name(&self) -> String {
        self.key.file(&format!("{}{}", self.recording, intent::ENDING))
    }

    /// Name of the recording, with its user.
    fn title(&self) -> String {
        let user = self.key.user.map(|user| format!(" of user {user}")).unwrap_or_default();
        format!("{}{user}", self.recording)
    }

    fn folder_to_continue(&self) -> Option<&Path> {
        self.folder.as_deref().filter(|_| self.continues)
    }

    fn spawn(&self, launcher: &Launcher, folder: &Path, messages: &File) -> io::Result<Child> {
        let mut command = Command::new(&launcher.program);
        command.args(["record", "--session", &self.recording, "--output"]).arg(folder);
        command.args(
            self.session.channel.get(&self.channel).map(|it| self.session.options(it)).unwrap_or_default(),
        );
        if self.can_linger() {
            command.arg("--resume");
        }
        self.grantee.iter().for_each(|grantee| grantee.confine(&mut command));
        command.stdin(Stdio::null()).stdout(messages.try_clone()?).stderr(messages.try_clone()?);
        // Ctrl-C in the supervisor's terminal does not concern it, nor does the service manager's
        // watchdog.
        command.process_group(0);
        for name in MANAGER_VARIABLES {
            command.env_remove(name);
        }
        // The supervisor has blocked the signals that it takes.
        launcher.inheritance.hand_on(&mut command);
        command.spawn()
    }

    /// Whether the next recorder can go on where this one was killed: programs write on meanwhile.
    fn can_continue(&self) -> bool {
        self.folder.is_some() && self.can_linger()
    }

    fn can_linger(&self) -> bool {
        self.session.channel.get(&self.channel).is_some_and(|channel| channel.linger.is_some())
    }

    /// Name of the file with the recorder's messages.
    pub fn messages_name(&self) -> String {
        self.key.file(&format!("{}.log", self.recording))
    }

    /// Returns the folder for the traces, if it can be one.
    fn output(&self) -> io::Result<PathBuf> {
        let output = self.output_folder().ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "expected `output` in the session's file, or HOME")
        })?;
        if !output.is_absolute() {
            let found = output.display();
            let problem = format!("expected an absolute path as `output`, found {found}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        Ok(output)
    }

    /// Returns the folder for the traces as the session names it.
    fn output_folder(&self) -> Option<PathBuf> {
        let Some(output) = &self.session.output else {
            return self.grantee.as_ref().map_or_else(default_output, Grantee::output);
        };
        let host = tompion_os::host_name().unwrap_or_default().replace('/', "_");
        Some(output.replace("{name}", &self.key.name).replace("{host}", &host).into())
    }

    /// Looks whether the recorder has ended, and decides what follows. Waits for nothing.
    pub fn look(&mut self, launcher: &Launcher) {
        self.kill_if_due(launcher);
        match &mut self.state {
            State::Unwatched(Unwatched { identity, next, .. }) if *next <= Instant::now() => {
                let identity = *identity;
                let adopted = Process::adopted(identity, &launcher.poller);
                self.watch(identity, adopted, INCOMPLETE, launcher);
            }
            State::Running(process) => {
                let Some(ProcessEnd { status, ran }) = process.end(&launcher.poller) else { return };
                let (identity, is_stopping) = (process.identity, process.is_stopping);
                let was_killed = status.is_some_and(|status| status.signal() == Some(KILL_SIGNAL));
                // One that could not continue a trace will not be able to later.
                let was_able = !process.is_second || was_killed || ran >= CONTINUED_TIME;
                let may_continue = was_able && self.can_continue();
                self.note_run(ran, may_continue);
                match status {
                    _ if is_stopping => self.end_in_order(),
                    Some(status) if status.success() => self.end_in_order(),
                    Some(status) => {
                        let reason = self.reason(status, launcher);
                        self.end_by_failure(reason, may_continue, launcher);
                    }
                    None => self.state = State::Ended(Ended::new(identity, may_continue, INCOMPLETE)),
                }
            }
            _ => {}
        }
        self.look_at_trace(launcher);
    }

    /// Decides about the next pause, by the time for which a recorder has run. Where its trace is
    /// continued, events wait in rings that are soon full.
    fn note_run(&mut self, ran: Duration, may_continue: bool) {
        if ran >= SOUND_TIME || may_continue && ran >= CONTINUED_TIME {
            self.delay = FIRST_DELAY;
        }
    }

    /// Kills a recorder that was to end long ago: it may wait for a disk of its user's.
    fn kill_if_due(&mut self, launcher: &Launcher) {
        if self.kill_at.is_none_or(|at| at > Instant::now()) {
            return;
        }
        self.kill_at = None;
        if let Err(error) = self.signal_end(true) {
            (launcher.report)(&format!("{}: can't be killed: {error}", self.key));
        }
    }

    fn end_in_order(&mut self) {
        self.state = State::Stopped;
        self.kill_at = None;
        self.failure = self.revoked.take();
    }

    /// Ends it without a call to its socket, which another user can hold up.
    ///
    /// # Errors
    /// If it can't be asked.
    pub fn signal_end(&self, is_at_once: bool) -> io::Result<()> {
        let signal = if is_at_once { KILL_SIGNAL } else { END_SIGNAL };
        match &self.state {
            State::Running(process) => process.send_signal(signal),
            State::Unwatched(unwatched) => unwatched.identity.send_signal(signal),
            _ => Ok(()),
        }
    }

    /// Returns what it has beyond a grant of its user, if anything. What it takes is apart.
    pub fn beyond(&self, grant: &Grant, user: u32) -> Option<String> {
        let mut session = self.session.clone();
        session.channel.retain(|name, _| *name == self.channel);
        let is_kept = self.grantee.as_ref().is_some_and(|grantee| grantee.is_within(grant));
        match check(&session, grant, user, Used::default()) {
            Ok(()) if is_kept => None,
            Ok(()) => Some(format!("its recorder may do more than {} grants", grant.file.display())),
            Err(refusal) => Some(refusal.to_string()),
        }
    }

    /// Ends it for a reason, which its user sees. Waits for nothing.
    pub fn revoke(&mut self, reason: &str, launcher: &Launcher) {
        (launcher.report)(&format!("{}: ends: {reason}", self.key));
        self.revoked = Some(reason.to_owned());
        if self.begin_stop() {
            self.kill_at.get_or_insert(Instant::now() + REVOKED_TIME);
            let ended = self.signal_end(false);
            ended
                .unwrap_or_else(|error| (launcher.report)(&format!("{}: can't be ended: {error}", self.key)));
        } else {
            self.end_in_order();
        }
    }

    fn end_by_failure(&mut self, reason: String, may_continue: bool, launcher: &Launcher) {
        self.continues = may_continue;
        (launcher.report)(&format!("{}: {reason}", self.title()));
        self.fail(reason);
    }

    /// Asks the disk of the trace of a process whose exit status is not known, and looks whether
    /// it has answered.
    fn look_at_trace(&mut self, launcher: &Launcher) {
        let State::Ended(ended) = &mut self.state else { return };
        if self.grantee.is_some() {
            // Its trace lies on another user's disk, which may hang or say anything.
            self.state = State::Failed;
            self.failure = Some("it ended, and how is not known".into());
            return;
        }
        let Some(folder) = &self.folder else { return self.end_in_order() };
        let reply = match &ended.is_whole {
            Some(answer) => answer.reply(),
            None if ended.next > Instant::now() => return,
            None => {
                let (of, parent) = (folder.clone(), folder.parent().unwrap_or(folder));
                match launcher.disks.put(parent, move || is_whole_trace(&of)) {
                    Ok(answer) => return ended.is_whole = Some(answer),
                    Err(Unasked::Busy(_)) => return ended.next = Instant::now() + BUSY_INTERVAL,
                    Err(Unasked::Hung) => Reply::Late,
                }
            }
        };
        match reply {
            Reply::Pending => {}
            Reply::Given(true) => self.end_in_order(),
            Reply::Given(false) => {
                let (reason, may_continue) = (ended.reason.to_owned(), ended.may_continue);
                self.end_by_failure(reason, may_continue, launcher);
            }
            Reply::Late => {
                ended.is_whole = None;
                ended.next = Instant::now() + RETRY_INTERVAL;
                self.failure = Some(format!("it ended, and {}", does_not_answer(folder)));
            }
        }
    }

    /// Waits before the recorder is started again, unless a caller waits for it.
    fn fail(&mut self, reason: String) {
        self.failure = Some(reason);
        if self.is_awaited {
            self.state = State::Failed;
            return;
        }
        self.state = State::Waiting(Instant::now() + self.delay);
        self.delay = (self.delay * 2).min(MAX_DELAY);
    }

    /// Starts the recorder for a caller, which sees a failure and tries again itself.
    ///
    /// # Errors
    /// As of [`Recorder::start_now_or_later`].
    pub fn start_for_caller(&mut self, launcher: &Launcher) -> io::Result<()> {
        self.is_awaited = true;
        let started = self.start(launcher);
        if let Err(error) = &started {
            self.fail(error.to_string());
        }
        started
    }

    /// The caller waits no more: from now on, a recorder that fails is started again.
    pub fn end_wait(&mut self) {
        self.is_awaited = false;
    }

    /// Starts the recorder again if its pause is over. Waits for nothing.
    pub fn start_again(&mut self, launcher: &Launcher) {
        let started = match &self.state {
            State::Waiting(until) if *until <= Instant::now() => match self.folder_to_continue() {
                Some(_) => self.launch(None, launcher),
                None if self.grantee.is_some() => {
                    self.output().and_then(|output| self.launch(Some(&output), launcher))
                }
                None => self.prepare(launcher),
            },
            State::Preparing(Preparation { output, made }) => match made.reply() {
                Reply::Pending => return,
                Reply::Given(Ok(())) => self.launch(Some(&output.clone()), launcher),
                Reply::Given(Err(error)) => Err(error),
                Reply::Late => Err(does_not_answer(output)),
            },
            _ => return,
        };
        if matches!(self.state, State::Preparing(_) | State::Waiting(_)) && started.is_ok() {
            return;
        }
        self.restarts = self.restarts.saturating_add(1);
        if let Err(error) = started {
            self.fail(error.to_string());
        }
    }

    /// Has the folder for the next trace made.
    fn prepare(&mut self, launcher: &Launcher) -> io::Result<()> {
        let output = self.output()?;
        self.state = match launcher.disks.put(&output, make_folder(&output)) {
            Ok(made) => State::Preparing(Preparation { output, made }),
            Err(Unasked::Busy(_)) => State::Waiting(Instant::now() + BUSY_INTERVAL),
            Err(Unasked::Hung) => return Err(does_not_answer(&output)),
        };
        Ok(())
    }

    /// Starts the recorder; if that fails, it is tried again like one that has ended. A disk may
    /// let this wait.
    pub fn start_now_or_later(&mut self, launcher: &Launcher) {
        if let Err(error) = self.start(launcher) {
            self.fail(error.to_string());
        }
    }

    /// Instant at which it is to be looked at again, apart from its end and the answers of disks.
    pub fn due(&self) -> Option<Instant> {
        match &self.state {
            State::Waiting(until) => Some(*until),
            State::Unwatched(unwatched) => {
                Some(self.kill_at.map_or(unwatched.next, |at| at.min(unwatched.next)))
            }
            State::Ended(ended) => Some(ended.is_whole.as_ref().map_or(ended.next, |it| it.deadline)),
            State::Preparing(preparation) => Some(preparation.made.deadline),
            State::Running(_) => self.kill_at,
            State::Stopped | State::Failed => None,
        }
    }

    /// Begins to end it: its end is in order from now on. Returns whether it runs.
    pub fn begin_stop(&mut self) -> bool {
        match &mut self.state {
            State::Running(process) => {
                process.is_stopping = true;
                true
            }
            State::Unwatched(unwatched) => {
                unwatched.is_stopping = true;
                true
            }
            _ => {
                self.state = State::Stopped;
                false
            }
        }
    }

    /// The end was refused: it is watched as before.
    pub fn cancel_stop(&mut self) {
        match &mut self.state {
            State::Running(process) => process.is_stopping = false,
            State::Unwatched(unwatched) => unwatched.is_stopping = false,
            _ => {}
        }
    }

    /// Whether it runs, or will be started again.
    pub fn is_active(&self) -> bool {
        !matches!(self.state, State::Stopped | State::Failed)
    }

    /// Process id, if it runs.
    pub fn pid(&self) -> Option<u32> {
        match &self.state {
            State::Running(_) | State::Unwatched(_) => self.process().map(|process| process.pid),
            _ => None,
        }
    }

    /// Its process, if it runs, or has ended and nothing is known yet about its end.
    pub fn process(&self) -> Option<ProcessIdentity> {
        match &self.state {
            State::Running(process) => Some(process.identity),
            State::Unwatched(unwatched) => Some(unwatched.identity),
            State::Ended(ended) => Some(ended.identity),
            _ => None,
        }
    }

    /// Whether it has ended, and its trace's disk is still to say whether that was in order.
    pub fn has_open_end(&self) -> bool {
        matches!(self.state, State::Ended(_))
    }

    /// Whether it waits to continue the trace of a recorder that was killed.
    pub fn is_to_continue(&self) -> bool {
        self.continues && matches!(self.state, State::Waiting(_))
    }

    /// Folder of the newest trace.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Number of times that it was started again.
    pub fn restarts(&self) -> u32 {
        self.restarts
    }

    /// Reason of the last failure.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Returns its state as callers see it.
    pub fn state(&self) -> RecorderState {
        match &self.state {
            State::Stopped => RecorderState::Stopped,
            State::Running(_) | State::Unwatched(_) => RecorderState::Running,
            State::Ended(_) | State::Waiting(_) | State::Preparing(_) => RecorderState::Waiting,
            State::Failed => RecorderState::Failed,
        }
    }

    /// Returns its part of a reply.
    pub fn status(&self) -> ChannelStatus {
        let left = |until: Instant| until.saturating_duration_since(Instant::now());
        let state = self.state();
        let retry = self.due().filter(|_| state == RecorderState::Waiting).map(left);
        ChannelStatus {
            name: self.channel.clone(),
            recording: self.recording.clone(),
            state,
            pid: self.pid(),
            folder: self.folder.as_ref().map(|folder| folder.to_string_lossy().into_owned()),
            restarts: self.restarts,
            failure: self.failure.clone(),
            retry_ns: retry.map(|left| u64::try_from(left.as_nanos()).unwrap_or(u64::MAX)),
        }
    }

    /// Reason of its end: its last message, or the signal.
    fn reason(&self, status: ExitStatus, launcher: &Launcher) -> String {
        if let Some(signal) = status.signal() {
            return format!("it was killed by signal {signal}");
        }
        let messages = launcher.runtime.read_tail(self.messages_name(), MAX_MESSAGES).unwrap_or_default();
        let messages = String::from_utf8_lossy(&messages);
        // A wrong command line has its error first, and advice behind it.
        let usage = messages.lines().find(|line| line.starts_with(USAGE_ERROR));
        let last = messages.lines().rev().find(|line| !line.trim().is_empty());
        match usage.or(last) {
            Some(message) => {
                let message = message.trim_start_matches(MESSAGE).trim_start_matches(USAGE_ERROR);
                message.chars().take(MAX_REASON).collect()
            }
            None => format!("it ended with exit status {}", status.code().unwrap_or_default()),
        }
    }
}

impl Ended {
    fn new(identity: ProcessIdentity, may_continue: bool, reason: &'static str) -> Self {
        Self { identity, may_continue, reason, is_whole: None, next: Instant::now() }
    }
}

/// Returns what makes a folder for traces.
fn make_folder(output: &Path) -> impl FnOnce() -> io::Result<()> + Send + use<> {
    let output = output.to_owned();
    move || {
        let made = DirHandle::open_or_create(&output).map(drop);
        made.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", output.display())))
    }
}

fn does_not_answer(folder: &Path) -> io::Error {
    let problem = format!("{} does not answer; its disk may hang", folder.display());
    io::Error::new(io::ErrorKind::TimedOut, problem)
}

/// Whether the manifest of a trace says that it is complete. Without a folder, nothing was
/// recorded.
fn is_whole_trace(folder: &Path) -> bool {
    match DirHandle::open(folder) {
        Ok(folder) => Manifest::read(&folder).is_ok_and(|manifest| !manifest.is_recording()),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Folder for traces of sessions that name none.
fn default_output() -> Option<PathBuf> {
    if tompion_os::file_user() == 0 {
        return Some("/var/lib/tompion/traces".into());
    }
    tompion_os::user_folder("XDG_STATE_HOME", ".local/state").map(|state| state.join("tompion"))
}

#[cfg(test)]
mod tests;
