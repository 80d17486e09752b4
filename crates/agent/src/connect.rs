//! Connections to sessions: those of the environment, those that are open to all programs of the
//! user, those that request the process, and those of its parent.
//!
//! Only a program whose environment names a session waits at its start, and for half a second at
//! most.

use std::{
    borrow::Cow,
    io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::PathBuf,
    sync::OnceLock,
    time::{Duration, Instant},
};

use tompion_os::PacketSocket;
use tompion_protocol::{
    MAX_RECORDINGS,
    message::{Hello, Origin, ToSession},
    names,
};

use crate::{
    debug_log::{self, debug},
    event, fork, heap, launch,
    pending::{MAX_PENDING, MAX_RETRIES, Pending, RETRY_INTERVAL, RETRY_TIMEOUT, RetryLater},
    recording::{InheritedConnection, ParentEvents},
    registry::{self, Registry},
    session,
    thread_state::move_fd_out_of_the_way,
    trust::{self, is_secure_exec},
};

/// Maximum wait of a program's start for all its sessions together. A session that has ended, or is
/// another user's, is known at once. A running one answers within a millisecond, unless it does not
/// get the CPU. The program's user or root has asked for the events, which are worth the wait.
const START_TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum wait of a running program: the child of a fork, which should do its work at once.
const JOIN_TIMEOUT: Duration = Duration::from_millis(50);
/// The same if the session keeps its rings in files, which it makes for each process: these rings
/// were asked to outlast it. Children that come faster than they are admitted slow down their
/// parent.
const PERSISTENT_JOIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum wait of a program's start for all recorders that have not started it. Only those that
/// run and do not get the CPU take so long.
const OPEN_JOIN_TIMEOUT: Duration = Duration::from_millis(100);
/// Maximum number of sockets of a folder that are tried.
const MAX_JOIN_SOCKETS: usize = 32;

/// Returns whether the environment disables the agent in this process.
fn is_disabled() -> bool {
    std::env::var_os(names::DISABLE_VARIABLE).is_some_and(|value| value == "1")
}

/// Joins the sessions that the environment names, when the library is loaded.
pub fn connect_from_env() {
    let mut registry = registry::lock();
    if is_disabled() {
        registry.disabled = true;
        return;
    }
    if is_secure_exec() {
        return;
    }
    debug_log::init_from_env();
    // Fork handlers that are registered first run last before a fork. The program's own may wait
    // for threads that load modules, which needs the agent's lock.
    fork::follow();
    let deadline = Instant::now() + START_TIMEOUT;
    if let Some(names) = std::env::var_os(names::SESSION_VARIABLE) {
        let names = names.to_string_lossy().into_owned();
        for name in names.split(':').filter(|name| !name.is_empty()).take(MAX_RECORDINGS) {
            // If the session is gone, another user's or of another version, the program runs on.
            let _ = join_by(&mut registry, name, Origin::Exec, deadline);
        }
    } else if let Some(folder) = std::env::var_os(names::RECORD_VARIABLE).filter(|name| !name.is_empty()) {
        record_into(&mut registry, PathBuf::from(folder), deadline);
    }
}

/// Returns whether sessions may request a process that loads a module with events. A preloaded
/// library's module doesn't allow it: its program may need to have one thread only, and expects no
/// second one.
pub fn accepts_attach(is_passive: bool) -> bool {
    match std::env::var_os(names::ATTACH_VARIABLE) {
        Some(value) if value == "0" => false,
        Some(value) if value == "1" => true,
        _ => !is_passive,
    }
}

/// Waits once more for sessions that have not answered, when a preloaded library's module is
/// loaded. A process that has only such modules has no thread that could take a late answer.
pub fn wait_for_late_answers(registry: &mut Registry) {
    if registry.reachable {
        return;
    }
    let deadline = Instant::now() + START_TIMEOUT;
    for pending in std::mem::take(&mut registry.pending) {
        finish_by(registry, pending, deadline);
    }
    retry_sessions(registry);
}

/// Makes the process reachable, when a module with events is loaded. Returns whether the background
/// thread must run now: it binds the attach socket and probes the open sessions. Doesn't wait.
pub fn listen_for_attach(registry: &mut Registry) -> bool {
    if registry.disabled || std::mem::replace(&mut registry.reachable, true) {
        return false;
    }
    registry.probe_due = !is_secure_exec() && !registry.has_own_folder;
    follow_forks(registry);
    true
}

/// Joins the recordings whose join sockets are there, when the first module with events of the
/// program's own is loaded. Without a recorder this takes one system call that fails, or two.
pub fn join_open_recordings(registry: &mut Registry) {
    if registry.disabled || is_secure_exec() || std::mem::replace(&mut registry.has_looked, true) {
        return;
    }
    let user = tompion_os::effective_user();
    let deadline = Instant::now() + OPEN_JOIN_TIMEOUT;
    let mut join = |folder: &str| join_folder_sockets(registry, folder, deadline);
    // Behind root's own, which are never hidden. Root's programs are in no grant.
    let join_with_granted = |join: &mut dyn FnMut(&str) -> bool, folder: &str| {
        let is_there = join(folder);
        if is_there && user != 0 {
            join(&names::granted_join_folder(folder, user));
        }
        is_there
    };
    // The recorders of a folder of the user's own have no other names that are worth a look.
    let has_own_folder = match std::env::var_os(names::SOCKET_VARIABLE).filter(|path| !path.is_empty()) {
        Some(path) => path.to_str().is_some_and(|path| join_with_granted(&mut join, path)),
        None => {
            let of_root = join_with_granted(&mut join, &names::join_folder(0));
            if user == 0 { of_root } else { join(&names::join_folder(user)) }
        }
    };
    registry.has_own_folder = has_own_folder;
}

/// Joins the recordings that have sockets in a folder, or the one that has this socket. Returns
/// whether the path leads to either, and no other user could have made it.
fn join_folder_sockets(registry: &mut Registry, path: &str, deadline: Instant) -> bool {
    let join = |registry: &mut Registry, path: &str| {
        // A recording that is gone, another user's, or for other programs: the next one.
        let _ = join_by(registry, path, Origin::Exec, deadline);
    };
    match tompion_os::list_folder(path) {
        Ok(list) if trust::believes(list.owner) => {
            for name in list.names.iter().take(MAX_JOIN_SOCKETS) {
                join(registry, &format!("{path}/{name}"));
            }
            true
        }
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            join(registry, path);
            true
        }
        _ => false,
    }
}

/// Sends `Hello` to the sessions that are open to all programs of the user.
pub fn probe_open_sessions(registry: &mut Registry) {
    let user = tompion_os::effective_user();
    for number in 0..names::MAX_OPEN_SESSIONS {
        let name = names::open_session(user, number);
        if registry.pending.len() < MAX_PENDING {
            let hello = hello(Origin::Exec, registry);
            let begun = trust::connect(&name).and_then(|socket| send_hello(socket, &name, hello));
            registry.pending.extend(begun);
        }
    }
}

/// Follows forks from now on, so that children join the sessions, too.
fn follow_forks(registry: &mut Registry) {
    if !std::mem::replace(&mut registry.follows_forks, true) {
        fork::follow();
    }
}

/// In the child of a fork: joins its parent's sessions as a process of its own. The child still has
/// one thread.
pub fn rejoin_in_child(registry: &mut Registry) {
    registry.is_fork_child = true;
    let unanswered = forget_pending(registry);
    let inherited = registry.forget_recordings();
    for connection in &inherited {
        // With several, the sites would be changed for one before another one begins.
        let parent = (inherited.len() == 1).then(|| connection.events());
        let _ = join_inherited(registry, connection, parent)
            .inspect_err(|error| connection.report_failure(error));
    }
    for slot in inherited.iter().map(|connection| connection.events().slot()) {
        if registry.recordings[slot].is_none() {
            registry.disable(slot);
        }
    }
    for (name, is_folder_session) in &unanswered {
        let now = Instant::now();
        match is_folder_session {
            true => _ = join_folder(registry, name, Origin::Fork, now),
            false => _ = join_by(registry, name, Origin::Fork, now),
        }
    }
    if !registry.reachable {
        // No thread takes a late answer. The session counts a process that has closed the
        // connection; children of this one try again.
        for pending in std::mem::take(&mut registry.pending) {
            let (name, deadline) = (pending.name.clone(), Instant::now());
            let origin = Origin::Fork;
            registry.retries.push(RetryLater { name, origin, is_folder_session: false, deadline });
            pending.close();
        }
    }
    export_sessions(registry);
    // The open connections have told the session until now to wait for this child.
    inherited.into_iter().for_each(InheritedConnection::close);
}

/// In the child of a fork: drops handshakes without an answer. Returns the names of their sessions,
/// and whether each is a folder session's first name.
fn forget_pending(registry: &mut Registry) -> Vec<(String, bool)> {
    let retries = registry.retries.drain(..);
    let mut names: Vec<_> = retries.map(|retry| (retry.name, retry.is_folder_session)).collect();
    for pending in std::mem::take(&mut registry.pending) {
        if !names.iter().any(|(name, _)| *name == pending.name) {
            names.push((pending.name.clone(), false));
        }
        pending.close();
    }
    names
}

/// In the child of a fork: adds to the environment the sessions that joined the process while it
/// ran, so that programs that the child starts find them. They find join sockets by themselves.
fn export_sessions(registry: &Registry) {
    // SAFETY: the child of a fork has one thread, and changes the variable at the end.
    let known = unsafe { tompion_os::environment_variable(names::SESSION_VARIABLE) }.unwrap_or_default();
    let known = known.to_str().map_or_else(|_| known.to_string_lossy(), Cow::Borrowed);
    let mut all: Vec<&str> = known.split(':').filter(|name| !name.is_empty()).collect();
    let count = all.len();
    for recording in registry.recordings.iter().flatten() {
        let is_shared_folder = registry.shared_folder_session.as_deref() == Some(&recording.name);
        let is_known = is_shared_folder || recording.name.starts_with('/');
        if !is_known && !all.contains(&recording.name.as_str()) {
            all.push(&recording.name);
        }
    }
    if all.len() != count {
        // SAFETY: the child of a fork has one thread.
        unsafe { tompion_os::put_into_environment(names::SESSION_VARIABLE, &all.join(":")) };
    }
}

/// Sends `Hello` on a new connection.
fn send_hello(socket: PacketSocket, name: &str, hello: Hello) -> io::Result<Pending> {
    let socket = move_fd_out_of_the_way(socket);
    // An answer is only received once poll reports it. The timeout is for a kernel that does so too
    // early.
    socket.set_timeout(JOIN_TIMEOUT.as_millis() as u32)?;
    let origin = hello.origin;
    socket.send(&ToSession::Hello(hello).encode(), &[])?;
    Ok(Pending::new(socket, name, origin))
}

/// Joins the session that listens under a name. Waits for it as long as a running program may.
pub fn join(registry: &mut Registry, name: &str, origin: Origin) {
    let _ = join_by(registry, name, origin, Instant::now() + JOIN_TIMEOUT);
}

/// Milliseconds until then, at least one: none would wait without a limit.
fn milliseconds_until(deadline: Instant) -> u32 {
    (deadline.saturating_duration_since(Instant::now()).as_millis() as u32).max(1)
}

/// Joins the session of a name that another user may have. Returns whether the process takes part
/// by then.
///
/// If the session has no room, the background thread tries again: another user could have filled
/// its own queue to make this process wait.
///
/// # Errors
/// The session can't be reached; else it knows of this process.
fn join_by(registry: &mut Registry, name: &str, origin: Origin, deadline: Instant) -> io::Result<bool> {
    let result = join_on(registry, trust::connect, name, origin, deadline);
    if let Err(error) = &result {
        debug(format_args!("session {name}: not joined: {error}"));
    }
    if result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
        let deadline = Instant::now() + RETRY_TIMEOUT;
        retry_later(
            registry,
            RetryLater { name: name.to_owned(), origin, is_folder_session: false, deadline },
        );
    }
    result
}

/// In the child of a fork: joins the session of an inherited connection.
///
/// While that is open, the session has the name, and no other user makes this process wait.
/// `parent`: events that need not be described again if the session has prepared memory.
fn join_inherited(
    registry: &mut Registry,
    connection: &InheritedConnection,
    parent: Option<&ParentEvents>,
) -> io::Result<bool> {
    // Where a thread receives messages, they are the parent's.
    let prepared = if registry.reachable { None } else { connection.take_prepared() };
    if let Some((number, files)) = prepared.filter(|_| !heap::is_short()) {
        let hello = Hello { prepared: Some(number), ..hello(Origin::Fork, registry) };
        let slot = begin_prepared(registry, connection.name(), hello, &files)?;
        let resumed = slot.zip(parent).is_some_and(|(slot, parent)| registry.resume_events(slot, parent));
        return Ok(resumed || finish_join(registry, slot));
    }
    let timeout = if connection.has_persistent_rings() { PERSISTENT_JOIN_TIMEOUT } else { JOIN_TIMEOUT };
    let deadline = Instant::now() + if connection.is_open() { timeout } else { Duration::ZERO };
    let connect = |name: &str| trust::connect_by(name, deadline);
    join_on(registry, connect, connection.name(), Origin::Fork, deadline)
}

/// In the child of a fork: begins a recording in memory that its session has prepared. Returns the
/// slot.
///
/// The session sends no answer, so the connection gets no timeouts. Until it has the `Hello`, it
/// reads none of the memory.
fn begin_prepared(
    registry: &mut Registry,
    name: &str,
    hello: Hello,
    files: &[OwnedFd],
) -> io::Result<Option<usize>> {
    // Only a full queue has to be waited for, so only then the clock is looked at.
    let socket = trust::connect(name).or_else(|error| match error.kind() {
        io::ErrorKind::WouldBlock => trust::connect_by(name, Instant::now() + JOIN_TIMEOUT),
        _ => Err(error),
    })?;
    let socket = move_fd_out_of_the_way(socket);
    socket.send(&ToSession::Hello(hello).encode(), &[])?;
    let begin = |()| session::begin_with(registry, socket, name.to_owned(), files);
    Ok(event::prepare().ok().and_then(begin))
}

/// Joins a session by a connection that is made only if it is needed.
fn join_on(
    registry: &mut Registry,
    connect: impl FnOnce(&str) -> io::Result<PacketSocket>,
    name: &str,
    origin: Origin,
    deadline: Instant,
) -> io::Result<bool> {
    if heap::is_short() {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    if registry.recordings.iter().flatten().any(|recording| recording.name == name) {
        return Ok(true);
    }
    let pending = send_hello(connect(name)?, name, hello(origin, registry))?;
    Ok(finish_by(registry, pending, deadline))
}

/// Makes the background thread retry a session.
fn retry_later(registry: &mut Registry, retry: RetryLater) {
    if registry.retries.len() < MAX_RETRIES {
        registry.retries.push(retry);
        registry.background.retry_at(Instant::now() + RETRY_INTERVAL);
        follow_forks(registry);
    }
}

/// Waits for the session's answer until then. A later one is left to the background thread.
///
/// A recorder may be killed before it answers. Another one that continues the recording listens on
/// the same socket, so the process introduces itself again.
fn finish_by(registry: &mut Registry, mut pending: Pending, deadline: Instant) -> bool {
    loop {
        let Some(socket) = pending.socket() else { return false };
        let descriptor = socket.as_fd().as_raw_fd();
        let ready = tompion_os::wait_readable(&[descriptor], Some(milliseconds_until(deadline)));
        if ready.unwrap_or(0) == 0 {
            break;
        }
        if socket.is_open() || Instant::now() >= deadline {
            return finish_handshake(registry, pending);
        }
        let (name, origin) = (pending.name.clone(), pending.origin);
        let hello = hello(origin, registry);
        let again = trust::connect(&name).and_then(|socket| send_hello(socket, &name, hello));
        pending.close();
        let Ok(again) = again else { return false };
        debug(format_args!("session {name}: ended the connection without an answer, tried again"));
        pending = again;
        tompion_os::wait_readable(&[], Some(RETRY_INTERVAL.as_millis() as u32));
    }
    if registry.pending.len() < MAX_PENDING {
        debug(format_args!("session {}: no answer yet", pending.name));
        registry.pending.push(pending);
        follow_forks(registry);
    }
    false
}

/// Finishes a pending handshake whose answer has come, or whose session is gone.
pub fn finish_pending(registry: &mut Registry, index: usize) {
    if registry.pending.get(index).is_some_and(|pending| pending.socket().is_some()) {
        let pending = registry.pending.remove(index);
        finish_handshake(registry, pending);
    }
}

/// Receives the session's answer to `Hello` and begins the recording. Returns whether it began.
fn finish_handshake(registry: &mut Registry, pending: Pending) -> bool {
    let (socket, name) = pending.into_parts();
    if heap::is_short() {
        return false;
    }
    let slot = event::prepare().ok().and_then(|()| session::accept_session(registry, socket, name));
    finish_join(registry, slot)
}

/// Records what a recording that has begun in a slot should know. Returns whether there is one.
fn finish_join(registry: &mut Registry, slot: Option<usize>) -> bool {
    if let Some(slot) = slot {
        registry.record_objects(slot);
        registry.contexts_changed();
        follow_forks(registry);
    }
    slot.is_some()
}

fn hello(origin: Origin, registry: &Registry) -> Hello {
    // A forked child has its parent's.
    static EXECUTABLE: OnceLock<String> = OnceLock::new();
    let executable = || {
        let path = tompion_os::executable_of("self");
        path.map(|path| path.to_string_lossy().into_owned()).unwrap_or_default()
    };
    let name = if tompion_os::is_main_thread() { tompion_os::thread_name() } else { None };
    Hello {
        pid: std::process::id(),
        origin,
        // Without a barrier no thread could leave a ring, so its events take the other protocol,
        // too.
        rseq: tompion_os::rseq_area().is_some() && tompion_os::prepare_section_barrier().is_ok(),
        tsc: tompion_os::tsc_is_usable(),
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        name: name.or_else(|| tompion_os::name_of("self")).unwrap_or_default(),
        executable: EXECUTABLE.get_or_init(executable).clone(),
        has_listener: registry.reachable,
        prepared: None,
        cpu: Some(tompion_os::current_cpu()),
        control_size: tompion_layout::control::FILE_SIZE,
        counts: true,
        follows_triggers: true,
        notices_withdrawal: true,
    }
}

/// Joins the session of a folder, and starts it if there is none.
fn record_into(registry: &mut Registry, folder: PathBuf, deadline: Instant) {
    let Ok(folder) = std::path::absolute(folder) else { return };
    let name = names::folder_session(tompion_os::effective_user(), folder.as_os_str().as_bytes());
    if join_folder(registry, &name, Origin::Exec, deadline) {
        return;
    }
    if let Some(ready) = launch::start_session(&folder, &name) {
        // If it has ended at once, another program has started one that was quicker.
        ready.wait(deadline);
    }
    if join_folder(registry, &name, Origin::Exec, deadline) {
        return;
    }
    // It may come too late for the program's start, but not for the rest.
    let deadline = Instant::now() + RETRY_TIMEOUT;
    retry_later(registry, RetryLater { name, origin: Origin::Exec, is_folder_session: true, deadline });
}

/// Joins the session of a folder under the first of its names that this process trusts. Returns
/// whether the process takes part by then.
fn join_folder(registry: &mut Registry, first: &str, origin: Origin, deadline: Instant) -> bool {
    for number in 0..names::MAX_FOLDER_NAMES {
        let name = names::numbered(first, number);
        if let Ok(takes_part) = join_on(registry, trust::connect, &name, origin, deadline) {
            registry.shared_folder_session = Some(name);
            return takes_part;
        }
    }
    false
}

/// Retries the sessions that were not there in time.
pub fn retry_sessions(registry: &mut Registry) {
    let now = Instant::now();
    for retry in std::mem::take(&mut registry.retries) {
        let RetryLater { name, origin, is_folder_session, deadline } = &retry;
        let is_pending = registry.pending.iter().any(|pending| pending.name == *name);
        let is_joined = |registry: &Registry| registry.recordings.iter().flatten().any(|it| it.name == *name);
        let done = is_joined(registry)
            || now >= *deadline
            || !is_pending
                && match is_folder_session {
                    true => join_folder(registry, name, *origin, now),
                    false => join_on(registry, trust::connect, name, *origin, now)
                        .is_ok_and(|takes_part| takes_part),
                };
        if !done {
            registry.retries.push(retry);
        }
    }
    if !registry.retries.is_empty() {
        registry.background.retry_at(now + RETRY_INTERVAL);
    }
}
