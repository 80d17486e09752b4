//! One recorder: started, watched, and started again after a failure.

use std::{
    fs::File,
    io,
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use tompion_manifest::Manifest;
use tompion_os::{DirHandle, Inheritance, Poller};

use crate::{
    disk::Disks,
    process::{Process, ProcessEnd, ProcessIdentity},
    session_file::SessionFile,
    types::{ChannelStatus, RecorderState},
};

/// Pause before a recorder is started again. It doubles with each failure, up to the maximum.
const FIRST_DELAY: Duration = Duration::from_millis(100);
const MAX_DELAY: Duration = Duration::from_secs(30);
/// A recorder that ran for this long has started well: the next pause is the first one again.
const SOUND_TIME: Duration = Duration::from_secs(60);
/// A recorder that continued a trace for this long was able to.
const CONTINUED_TIME: Duration = Duration::from_secs(2);
/// Maximum size of the end of a recorder's messages that is searched for the reason of its end.
const MAX_MESSAGES: u64 = 256 << 10;
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
    session_name: String,
    channel: String,
    state: State,
    folder: Option<PathBuf>,
    restarts: u32,
    failure: Option<String>,
    delay: Duration,
    /// The next start continues the trace of the recorder that failed.
    continues: bool,
    /// A caller waits for its start: a failure is reported to it, and not tried again.
    is_awaited: bool,
}

#[derive(Debug)]
enum State {
    Stopped,
    Running(Process),
    Waiting(Instant),
    Failed,
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
    pub fn new(name: &str, channel: &str, session: SessionFile) -> Self {
        Self {
            recording: session.recording(name, channel),
            session,
            session_name: name.to_owned(),
            channel: channel.to_owned(),
            state: State::Stopped,
            folder: None,
            restarts: 0,
            failure: None,
            delay: FIRST_DELAY,
            continues: false,
            is_awaited: false,
        }
    }

    /// Takes a recorder over that another supervisor has started, or notes its end.
    pub fn adopt(&mut self, saved: SavedRecorder, launcher: &Launcher) {
        let SavedRecorder { process, folder, restarts } = saved;
        (self.folder, self.restarts) = (folder, restarts);
        // Also one that is stopped and answers nothing, or does not listen yet.
        let adopted = process.and_then(|process| Process::adopted(process, &launcher.poller).ok());
        match adopted {
            Some(process) => self.state = State::Running(process),
            None if process.is_some() && self.has_whole_trace(launcher) => {}
            None => {
                self.continues = self.can_continue();
                let when = if process.is_some() { "ended while no" } else { "had failed before this" };
                self.fail(format!("it {when} supervisor ran"));
            }
        }
    }

    /// Starts the recorder.
    ///
    /// # Errors
    /// If the program can't be started, or the folder for its traces can't be made.
    fn start(&mut self, launcher: &Launcher) -> io::Result<()> {
        let is_second = self.continues;
        let folder = match self.folder.clone().filter(|_| is_second) {
            Some(folder) => folder,
            None => self.new_folder(launcher)?,
        };
        let messages = launcher.runtime.recreate(self.messages_name())?;
        let child = self.spawn(launcher, &folder, &messages)?;
        let process = Process::started(child, is_second, &launcher.poller)?;
        // Not before: a start that has failed is tried again, with the same trace.
        self.continues = false;
        self.folder = Some(folder);
        self.state = State::Running(process);
        Ok(())
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
    fn messages_name(&self) -> String {
        format!("{}.log", self.recording)
    }

    /// Chooses the folder of the next trace.
    fn new_folder(&self, launcher: &Launcher) -> io::Result<PathBuf> {
        let output = self.output_folder().ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "expected `output` in the session's file, or HOME")
        })?;
        if !output.is_absolute() {
            let found = output.display();
            let problem = format!("expected an absolute path as `output`, found {found}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        let parent = output.clone();
        match launcher.disks.ask(&output, move || DirHandle::open_or_create(&parent).map(drop)) {
            Some(made) => {
                made.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", output.display())))?
            }
            None => {
                let problem = format!("{} does not answer; its disk may hang", output.display());
                return Err(io::Error::new(io::ErrorKind::TimedOut, problem));
            }
        }
        // Milliseconds make it new.
        let time = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S%.3f");
        Ok(output.join(format!("{}-{time}", self.recording)))
    }

    /// Returns the folder for the traces.
    fn output_folder(&self) -> Option<PathBuf> {
        let Some(output) = &self.session.output else { return default_output() };
        let host = tompion_os::host_name().unwrap_or_default().replace('/', "_");
        Some(output.replace("{name}", &self.session_name).replace("{host}", &host).into())
    }

    /// Looks whether the recorder has ended, and decides what follows.
    pub fn look(&mut self, launcher: &Launcher) {
        let State::Running(process) = &mut self.state else { return };
        let Some(ProcessEnd { status, ran }) = process.end(&launcher.poller) else { return };
        let (is_stopping, is_second) = (process.is_stopping, process.is_second);
        let in_order = is_stopping
            || match status {
                Some(status) => status.success(),
                None => self.has_whole_trace(launcher),
            };
        if in_order {
            self.state = State::Stopped;
            self.failure = None;
            return;
        }
        // One that could not continue a trace will not be able to later.
        let may_continue = !is_second || ran >= CONTINUED_TIME;
        if ran >= SOUND_TIME {
            self.delay = FIRST_DELAY;
        }
        self.continues = may_continue && self.can_continue();
        let reason = self.reason(status, launcher);
        (launcher.report)(&format!("{}: {reason}", self.recording));
        self.fail(reason);
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

    /// Starts the recorder again if its pause is over.
    pub fn start_again(&mut self, launcher: &Launcher) {
        if matches!(self.state, State::Waiting(until) if until <= Instant::now()) {
            self.restarts = self.restarts.saturating_add(1);
            self.start_now_or_later(launcher);
        }
    }

    /// Starts the recorder; if that fails, it is tried again like one that has ended.
    pub fn start_now_or_later(&mut self, launcher: &Launcher) {
        if let Err(error) = self.start(launcher) {
            self.fail(error.to_string());
        }
    }

    /// Instant at which it is to be started again.
    pub fn due(&self) -> Option<Instant> {
        match self.state {
            State::Waiting(until) => Some(until),
            _ => None,
        }
    }

    /// Begins to end it: its end is in order from now on. Returns whether it runs.
    pub fn begin_stop(&mut self) -> bool {
        match &mut self.state {
            State::Running(process) => {
                process.is_stopping = true;
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
        if let State::Running(process) = &mut self.state {
            process.is_stopping = false;
        }
    }

    /// Whether it runs, or will be started again.
    pub fn is_active(&self) -> bool {
        matches!(self.state, State::Running(_) | State::Waiting(_))
    }

    /// Process id, if it runs.
    pub fn pid(&self) -> Option<u32> {
        self.process().map(|process| process.pid)
    }

    /// Its process, if it runs.
    pub fn process(&self) -> Option<ProcessIdentity> {
        match &self.state {
            State::Running(process) => Some(process.identity),
            _ => None,
        }
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

    /// Returns its part of a reply.
    pub fn status(&self) -> ChannelStatus {
        let (state, retry_ns) = match &self.state {
            State::Stopped => (RecorderState::Stopped, None),
            State::Running(_) => (RecorderState::Running, None),
            State::Waiting(until) => {
                let left = until.saturating_duration_since(Instant::now());
                (RecorderState::Waiting, Some(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX)))
            }
            State::Failed => (RecorderState::Failed, None),
        };
        ChannelStatus {
            name: self.channel.clone(),
            recording: self.recording.clone(),
            state,
            pid: self.pid(),
            folder: self.folder.as_ref().map(|folder| folder.to_string_lossy().into_owned()),
            restarts: self.restarts,
            failure: self.failure.clone(),
            retry_ns,
        }
    }

    /// Whether its trace was completed, as far as its disk says so in time.
    fn has_whole_trace(&self, launcher: &Launcher) -> bool {
        let Some(folder) = self.folder.clone() else { return true };
        let parent = folder.parent().unwrap_or(&folder).to_owned();
        launcher.disks.ask(&parent, move || is_whole_trace(&folder)).unwrap_or(false)
    }

    /// Reason of its end: its last message, or the signal.
    fn reason(&self, status: Option<ExitStatus>, launcher: &Launcher) -> String {
        let signal = status.and_then(|status| status.signal());
        if let Some(signal) = signal {
            return format!("it was killed by signal {signal}");
        }
        let messages = launcher.runtime.read_tail(self.messages_name(), MAX_MESSAGES).unwrap_or_default();
        let messages = String::from_utf8_lossy(&messages);
        // A wrong command line has its error first, and advice behind it.
        let usage = messages.lines().find(|line| line.starts_with(USAGE_ERROR));
        let last = messages.lines().rev().find(|line| !line.trim().is_empty());
        match (usage.or(last), status.and_then(|status| status.code())) {
            (Some(message), Some(_)) => {
                message.trim_start_matches(MESSAGE).trim_start_matches(USAGE_ERROR).to_owned()
            }
            (None, Some(code)) => format!("it ended with exit status {code}"),
            (_, None) => "it ended, and its trace is incomplete".into(),
        }
    }
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
mod tests {
    use tompion_testing::TestDir;

    use super::*;

    #[test]
    fn the_output_has_the_name_of_the_session_with_all_its_dots() {
        let session = |channels: &str| {
            SessionFile::parse(&format!("output = '/traces/{{name}}'\n{channels}")).expect("a session")
        };
        for channels in ["[channel.main]", "[channel.main]\n[channel.other]"] {
            let recorder = Recorder::new("a.b", "main", session(channels));
            assert_eq!(recorder.output_folder(), Some("/traces/a.b".into()), "{channels}");
        }
    }

    #[test]
    fn a_failure_is_tried_again_unless_a_caller_waits_for_it() {
        let mut recorder = Recorder::new("a", "main", SessionFile::default());
        recorder.is_awaited = true;
        recorder.fail("first".into());
        assert_eq!((recorder.status().state, recorder.due()), (RecorderState::Failed, None));
        recorder.end_wait();
        recorder.fail("second".into());
        assert_eq!(recorder.status().state, RecorderState::Waiting);
        assert!(recorder.due().is_some());
    }

    /// Launcher of a program that need not exist.
    fn launcher(dir: &Path, program: &str) -> Launcher {
        Launcher {
            program: program.into(),
            runtime: DirHandle::open(dir).expect("a folder"),
            poller: Poller::new().expect("a poller"),
            disks: Disks::default(),
            inheritance: Inheritance::current(),
            report: |_| {},
        }
    }

    #[test]
    fn a_start_that_fails_is_tried_again_with_the_same_trace() {
        let dir = TestDir::new("continues");
        let launcher = launcher(&dir, "/no/such/program");
        let session = SessionFile::parse("[channel.main]\nlinger = '20s'").expect("a session");
        let mut recorder = Recorder::new("a", "main", session);
        (recorder.folder, recorder.continues) = (Some("/traces/a".into()), true);
        recorder.start_now_or_later(&launcher);
        assert!(recorder.is_to_continue());
        assert_eq!(recorder.folder(), Some(Path::new("/traces/a")));
    }
}
