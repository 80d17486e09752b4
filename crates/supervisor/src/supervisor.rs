//! The supervisor: its loop, and its place beside the service manager.

use std::{
    io,
    os::{fd::AsFd as _, unix::net::UnixListener},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use sd_notify::NotifyState;
use tompion_control::{ControlSocket, PlaceError, Server, control_folder};
use tompion_os::{DirHandle, Poller, Signals};

use crate::{
    files::SessionFiles,
    recorder::{Launcher, Recorder},
    service::SupervisorService,
    session_file::Start,
    state::State,
};

/// SIGINT and SIGTERM, at which the supervisor ends.
const END_SIGNALS: [i32; 2] = [2, 15];
/// SIGHUP, at which new sessions with `start = "boot"` begin.
const RELOAD_SIGNAL: i32 = 1;
/// Number of the signals among the things that the loop waits for. Recorders have 0.
const SIGNAL: u64 = 1;

/// Reason why there is no supervisor.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Its socket can't be.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// A call of the system failed.
    #[error("can't supervise sessions: {0}")]
    System(#[from] io::Error),
}

/// Data that the loop and the calls share.
#[derive(Debug)]
pub struct Shared {
    /// Starts recorders.
    pub launcher: Launcher,
    /// Descriptions of sessions.
    pub files: SessionFiles,
    /// Folder of files that last until the machine starts again.
    pub transient: PathBuf,
    /// Held for the whole of an operation that changes sessions: one follows the other.
    pub operation: Mutex<()>,
    state: Mutex<State>,
}

impl Shared {
    /// The sessions. Held for moments only.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a session down for the next supervisor.
    pub fn save(&self, state: &State, name: &str) {
        if let Err(error) = state.save(name, &self.launcher.runtime) {
            (self.launcher.report)(&format!(
                "{name}: can't be written down for the next supervisor: {error}"
            ));
        }
    }
}

/// Supervisor of a user's sessions.
#[derive(Debug)]
pub struct Supervisor {
    shared: Arc<Shared>,
    signals: Signals,
    socket: ControlSocket,
}

impl Supervisor {
    /// Listens for calls, takes the recorders of an earlier supervisor over, and starts the
    /// sessions that begin with it. `program` is `tompion`; `report` tells of failures later on.
    ///
    /// # Errors
    /// If the user has a supervisor already, or the system refuses something.
    pub fn start(program: &Path, report: fn(&str)) -> Result<Self, ServeError> {
        // Before any descriptor is made, which could have its number.
        let inherited = inherited_socket()?;
        // Before there are threads: all have them blocked.
        let signals = Signals::take(&[&END_SIGNALS[..], &[RELOAD_SIGNAL]].concat())?;
        let (socket, listener) = ControlSocket::listen_as_supervisor(inherited)?;
        let poller = Poller::new()?;
        poller.add(signals.as_fd(), SIGNAL)?;
        let (program, runtime) = (program.to_owned(), socket.folder().clone());
        let launcher = Launcher { program, runtime, poller, report };
        let transient = control_folder();
        let state = Mutex::new(State::load(&launcher));
        let files = SessionFiles::of_user(&transient);
        let shared = Shared { launcher, files, transient, operation: Mutex::default(), state };
        let supervisor = Self { shared: Arc::new(shared), signals, socket };
        supervisor.listen(listener)?;
        supervisor.start_boot_sessions();
        Ok(supervisor)
    }

    fn listen(&self, listener: UnixListener) -> io::Result<()> {
        let server = Server::new(listener, Arc::new(SupervisorService::new(Arc::clone(&self.shared))));
        thread::Builder::new().name("control".into()).spawn(move || server.run()).map(drop)
    }

    /// Folders in which sessions are described, the lowest priority first.
    pub fn folders(&self) -> &[PathBuf] {
        self.shared.files.folders()
    }

    /// Watches the recorders until SIGINT or SIGTERM. They run on afterwards.
    ///
    /// # Errors
    /// If nothing can be waited for any more.
    pub fn run(self) -> io::Result<()> {
        notify(&[NotifyState::Ready]);
        let watchdog = sd_notify::watchdog_enabled().map(|limit| limit / 2);
        loop {
            self.look();
            notify(&[NotifyState::Watchdog, NotifyState::Status(&self.summary())]);
            let due = self.shared.state().due();
            let until_due =
                due.map(|due| due.saturating_duration_since(Instant::now()) + Duration::from_millis(1));
            let timeout = [watchdog, until_due].into_iter().flatten().min();
            let ready = self.shared.launcher.poller.wait(timeout)?;
            if ready.contains(&SIGNAL) {
                while let Some((signal, _)) = self.signals.next() {
                    if END_SIGNALS.contains(&signal) {
                        notify(&[NotifyState::Stopping]);
                        return Ok(());
                    }
                    self.start_boot_sessions();
                }
            }
        }
    }

    fn look(&self) {
        let mut state = self.shared.state();
        let changed = state.look(&self.shared.launcher);
        changed.iter().for_each(|name| self.shared.save(&state, name));
    }

    /// Starts the sessions that begin with the supervisor and have no recorder yet. A failure is
    /// tried again: a disk may be mounted later.
    fn start_boot_sessions(&self) {
        let _operation = self.shared.operation.lock().unwrap_or_else(PoisonError::into_inner);
        for name in self.shared.files.names() {
            let Some(described) = self.shared.files.read(&name) else { continue };
            let session = match described.session {
                Ok(session) if session.start == Start::Boot => session,
                Ok(_) => continue,
                Err(problem) => {
                    (self.shared.launcher.report)(&format!("{name}: {problem}"));
                    continue;
                }
            };
            let mut state = self.shared.state();
            if state.sessions.contains_key(&name) {
                continue;
            }
            let start = |channel: &String| {
                let mut recorder = Recorder::new(&name, channel, session.clone());
                recorder.start_now_or_later(&self.shared.launcher);
                (channel.clone(), recorder)
            };
            let recorders = session.channel.keys().map(start).collect();
            state.sessions.insert(name.clone(), recorders);
            self.shared.save(&state, &name);
        }
    }

    /// Says in a line what runs, for the service manager.
    fn summary(&self) -> String {
        let state = self.shared.state();
        let recorders = || state.sessions.values().flat_map(|recorders| recorders.values());
        let running = recorders().filter(|recorder| recorder.pid().is_some()).count();
        match recorders().filter(|recorder| recorder.due().is_some()).count() {
            0 => format!("{running} recorders run"),
            waiting => format!("{running} recorders run, {waiting} failed and will be started again"),
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        // Messages of recorders that have ended are of no use any more. Running ones go on writing.
        let state = self.shared.state();
        let recorders = state.sessions.values().flat_map(|recorders| recorders.values());
        let running: Vec<&str> =
            recorders.filter(|it| it.is_active()).map(|recorder| recorder.recording.as_str()).collect();
        let folder: &DirHandle = self.socket.folder();
        for name in folder.names().unwrap_or_default() {
            let recording = name.to_str().and_then(|name| name.strip_suffix(".log"));
            if recording.is_some_and(|recording| !running.contains(&recording)) {
                let _ = folder.remove(&name);
            }
        }
    }
}

/// Takes the socket that the service manager has opened. Source: `sd_listen_fds(3)`.
fn inherited_socket() -> io::Result<Option<UnixListener>> {
    let Some(number) = sd_notify::listen_fds()?.next() else { return Ok(None) };
    let listener = tompion_os::take_inherited(number).map(UnixListener::from);
    let checked = listener.and_then(|listener| listener.local_addr().map(|_| listener));
    let explain = |error: io::Error| {
        let problem = format!("expected the service manager's socket as descriptor {number}: {error}");
        io::Error::new(error.kind(), problem)
    };
    checked.map(Some).map_err(explain)
}

/// Tells the service manager, if there is one.
fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        log::debug!("the service manager can't be reached: {error}");
    }
}
