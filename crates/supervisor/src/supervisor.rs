//! The supervisor: its loop, and its place beside the service manager.

use std::{
    collections::BTreeMap,
    io::{self, Read as _, Write as _},
    os::{
        fd::AsFd as _,
        unix::net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{self, SyncSender},
    },
    thread,
    time::{Duration, Instant},
};

use sd_notify::NotifyState;
use tompion_control::{ControlSocket, PlaceError, Server, SystemSocket, control_folder};
use tompion_grants::Grants;
use tompion_os::{DirHandle, Inheritance, Poller, Signals, User};

use crate::{
    disk::Disks,
    files::SessionFiles,
    grant_service::{GrantService, MAX_PER_USER},
    grantee::Grantee,
    key::SessionKey,
    recorder::{Launcher, Recorder},
    service::SupervisorService,
    session_file::{SessionFile, Start},
    start_triggers::StartTriggers,
    state::State,
    types::RecorderState,
};

/// SIGINT and SIGTERM, at which the supervisor ends.
const END_SIGNALS: [i32; 2] = [2, 15];
/// SIGHUP, at which new sessions with `start = "boot"` begin.
const RELOAD_SIGNAL: i32 = 1;
/// Numbers of the signals and of other threads' news among the things that the loop waits for.
/// Recorders have 0.
const SIGNAL: u64 = 1;
const NEWS: u64 = 2;

/// Reason why there is no supervisor.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// It was started by sudo: recorders would be root's, and sessions and traces the user's.
    #[error(
        "tompion serve is for one user, not for sudo: run it as user {0} without sudo, or as root by \
         `systemctl start tompion` or `sudo env -u SUDO_UID tompion serve`"
    )]
    BySudo(u32),
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
    /// Locks by sessions. Each is held for the whole of an operation on its session: one follows
    /// the other, and other sessions don't wait.
    operations: Mutex<BTreeMap<String, Arc<Mutex<()>>>>,
    state: Mutex<State>,
    /// Grants of users other than root.
    grants: Mutex<Arc<Grants>>,
    grant_folders: Vec<PathBuf>,
    /// Sessions that begin by triggers of others.
    pub start_triggers: StartTriggers,
    /// Wakes the loop.
    waker: UnixStream,
}

impl Shared {
    /// The sessions. Held for moments only.
    pub fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Does something that changes a session, after what changes it already.
    pub fn operate<T>(&self, name: &str, operation: impl FnOnce() -> T) -> T {
        let own = Arc::clone(lock(&self.operations).entry(name.to_owned()).or_default());
        let result = {
            let _turn = lock(&own);
            operation()
        };
        drop(own);
        // Those that others wait for have a second owner. They get it under the lock of the table.
        lock(&self.operations).retain(|_, operation| Arc::strong_count(operation) > 1);
        self.wake();
        result
    }

    /// Has the loop look again: a recorder may be due earlier.
    pub fn wake(&self) {
        // Where there is no room, it has not looked since.
        let _ = (&self.waker).write(&[0]);
    }

    /// Starts the sessions that begin with the supervisor and have no recorder yet. A failure is
    /// tried again: a disk may be mounted later.
    fn start_boot_sessions(&self) {
        for name in self.files.names() {
            self.operate(&name, || self.start_boot_session(&name));
        }
    }

    fn start_boot_session(&self, name: &str) {
        let Some(described) = self.files.read(name) else { return };
        let session = match described.session {
            Ok(session) if session.start == Start::Boot => session,
            Ok(_) => return,
            Err(problem) => return (self.launcher.report)(&format!("{name}: {problem}")),
        };
        let key = SessionKey::own(name);
        if !self.state().sessions.contains_key(&key) {
            self.start_channels(&key, &session);
        }
    }

    /// Starts the recorders of a session that has none. A failure is tried again.
    pub fn start_channels(&self, key: &SessionKey, session: &SessionFile) {
        for channel in session.channel.keys() {
            // Without the lock: a disk may let it wait, which nothing else is to.
            let mut recorder = Recorder::new(key, channel, session.clone());
            recorder.start_now_or_later(&self.launcher);
            let mut state = self.state();
            state.insert(key, channel, recorder);
            self.save(&state, key);
        }
    }

    /// Writes a session down for the next supervisor.
    pub fn save(&self, state: &State, key: &SessionKey) {
        if let Err(error) = state.save(key, &self.launcher.runtime) {
            (self.launcher.report)(&format!("{key}: can't be written down for the next supervisor: {error}"));
        }
    }
}

impl Shared {
    /// Removes a session that has ended from those that are known, with its recorders' messages.
    pub fn forget(&self, state: &mut State, key: &SessionKey) {
        let recorders = state.sessions.remove(key).unwrap_or_default();
        self.save(state, key);
        for recorder in recorders.values() {
            let _ = self.launcher.runtime.remove(recorder.messages_name());
        }
    }

    /// Reads the grants again, and ends the sessions that are beyond them.
    pub fn read_grants(&self) {
        let grants = Grants::read(&self.grant_folders);
        grants.problems.iter().for_each(|problem| (self.launcher.report)(problem));
        *lock(&self.grants) = Arc::new(grants);
        self.enforce_grants();
    }

    /// The grants, as they were read last.
    pub fn grants(&self) -> Arc<Grants> {
        Arc::clone(&lock(&self.grants))
    }

    /// Ends sessions of users that are beyond their grants.
    pub fn enforce_grants(&self) {
        let grants = self.grants();
        let keys: Vec<SessionKey> =
            self.state().sessions.keys().filter(|key| key.user.is_some()).cloned().collect();
        for key in keys {
            let grantees: Vec<Grantee> = {
                let state = self.state();
                let recorders = state.sessions.get(&key).into_iter().flat_map(BTreeMap::values);
                recorders.filter_map(|recorder| recorder.grantee.clone()).collect()
            };
            // The data base of users is asked without the lock.
            let Some(grant) = grantees.first().map(|grantee| grants.of(&grantee.member())) else { continue };
            let mut state = self.state();
            let problem = match grant {
                Some(grant) => state.beyond(&key, grant),
                None => Some("it has no grant any more".to_owned()),
            };
            let Some(problem) = problem else { continue };
            let recorders = state.sessions.get_mut(&key).into_iter().flat_map(BTreeMap::values_mut);
            recorders.filter(|it| it.is_active()).for_each(|it| it.revoke(&problem, &self.launcher));
            self.save(&state, &key);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Supervisor of a user's sessions.
#[derive(Debug)]
pub struct Supervisor {
    shared: Arc<Shared>,
    signals: Signals,
    socket: ControlSocket,
    /// Socket for users with grants, if this is root's supervisor.
    _system: Option<SystemSocket>,
    /// Readable when another thread has changed something.
    news: UnixStream,
    /// Asks for a look at the sessions' files.
    reload: SyncSender<()>,
}

impl Supervisor {
    /// Listens for calls, takes the recorders of an earlier supervisor over, and starts the
    /// sessions that begin with it. `program` is `tompion`; `report` tells of failures later on.
    ///
    /// # Errors
    /// If the user has a supervisor already, sudo has started this one, or the system refuses
    /// something.
    pub fn start(program: &Path, report: fn(&str)) -> Result<Self, ServeError> {
        if let Some(user) = User::behind_sudo() {
            return Err(ServeError::BySudo(user.uid()));
        }
        // Before any descriptor is made, which could have its number.
        let inherited = inherited_socket()?;
        let inheritance = Inheritance::current();
        // Before there are threads: all have them blocked.
        let signals = Signals::take(&[&END_SIGNALS[..], &[RELOAD_SIGNAL]].concat())?;
        let (socket, listener) = ControlSocket::listen_as_supervisor(inherited)?;
        let (news, waker) = UnixStream::pair()?;
        news.set_nonblocking(true)?;
        waker.set_nonblocking(true)?;
        let poller = Poller::new()?;
        poller.add(signals.as_fd(), SIGNAL)?;
        poller.add(news.as_fd(), NEWS)?;
        let disks = Disks::new(Some(waker.try_clone()?));
        let (program, runtime) = (program.to_owned(), socket.folder().clone());
        let launcher = Launcher { program, runtime, poller, disks, inheritance, report };
        let transient = control_folder();
        let state = Mutex::new(State::load(&launcher));
        let files = SessionFiles::of_user(&transient);
        let operations = Mutex::default();
        let system = SystemSocket::listen()?;
        let grant_folders = system.as_ref().map(|_| Grants::folders()).unwrap_or_default();
        let (grants, start_triggers) = Default::default();
        let shared = Shared {
            launcher,
            files,
            transient,
            operations,
            state,
            grants,
            grant_folders,
            start_triggers,
            waker,
        };
        let shared = Arc::new(shared);
        shared.read_grants();
        let reload = start_reloader(&shared)?;
        let (_system, for_users) = system.unzip();
        let supervisor = Self { shared, signals, socket, _system, news, reload };
        supervisor.listen(listener)?;
        for_users.map_or(Ok(()), |listener| supervisor.listen_for_users(listener))?;
        supervisor.shared.read_start_triggers();
        supervisor.shared.start_boot_sessions();
        Ok(supervisor)
    }

    fn listen(&self, listener: UnixListener) -> io::Result<()> {
        let server = Server::new(listener, Arc::new(SupervisorService::new(Arc::clone(&self.shared))));
        thread::Builder::new().name("control".into()).spawn(move || server.run()).map(drop)
    }

    fn listen_for_users(&self, listener: UnixListener) -> io::Result<()> {
        let service = GrantService::new(Arc::clone(&self.shared));
        let server = Server::new(listener, Arc::new(service)).with_connections_per_user(MAX_PER_USER);
        thread::Builder::new().name("grants".into()).spawn(move || server.run()).map(drop)
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
                    // One that waits there already will see the same files.
                    let _ = self.reload.try_send(());
                }
            }
            while (&self.news).read(&mut [0; 64]).is_ok_and(|size| size != 0) {}
        }
    }

    fn look(&self) {
        {
            let mut state = self.shared.state();
            let changed = state.look(&self.shared.launcher);
            changed.iter().for_each(|name| self.shared.save(&state, name));
        }
        self.shared.watch_start_triggers();
    }

    /// Says in a line what runs, for the service manager.
    fn summary(&self) -> String {
        let state = self.shared.state();
        let recorders = || state.sessions.values().flat_map(|recorders| recorders.values());
        let running = recorders().filter(|recorder| recorder.pid().is_some()).count();
        match recorders().filter(|recorder| recorder.state() == RecorderState::Waiting).count() {
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
        let running: Vec<String> =
            recorders.filter(|it| it.is_active()).map(Recorder::messages_name).collect();
        let folder: &DirHandle = self.socket.folder();
        for name in folder.names().unwrap_or_default() {
            let messages = name.to_str().filter(|name| name.ends_with(".log"));
            if messages.is_some_and(|messages| running.iter().all(|running| running != messages)) {
                let _ = folder.remove(&name);
            }
        }
    }
}

/// Starts the thread that looks at the sessions' files when it is asked to: they may be on a disk
/// that hangs.
fn start_reloader(shared: &Arc<Shared>) -> io::Result<SyncSender<()>> {
    let (sender, requests) = mpsc::sync_channel(1);
    let shared = Arc::clone(shared);
    let reload = move |()| {
        shared.read_grants();
        shared.read_start_triggers();
        shared.start_boot_sessions();
    };
    let run = move || requests.iter().for_each(reload);
    thread::Builder::new().name("reload".into()).spawn(run)?;
    Ok(sender)
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
