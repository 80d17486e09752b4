//! Which sessions the process takes part in: those of its environment, those that are open to all
//! programs of its user, those that ask, and those of its parent.
//!
//! Only a program whose environment asks for it ever waits at its start, and for half a second at
//! most.

use std::{
    io,
    os::{
        fd::{AsFd, AsRawFd},
        unix::ffi::OsStrExt,
    },
    path::PathBuf,
    time::{Duration, Instant},
};

use tompion_os::{Identity, PacketSocket};
use tompion_protocol::{
    MAX_RECORDINGS,
    message::{Hello, Origin, ToSession},
    names,
};

use crate::{
    event, fork, launch, listener,
    registry::{self, Registry},
    session,
    trust::{self, is_secure_exec},
};

/// Longest wait of a program's start for all its sessions together. A session that has ended, or is
/// another user's, is known at once. A running one answers within a millisecond, unless it does not
/// get the CPU. The program's user or root has asked for the events, which are worth the wait.
const START_TIMEOUT: Duration = Duration::from_millis(500);
/// Longest wait of a running program: the child of a fork, which should do its work at once.
const JOIN_TIMEOUT: Duration = Duration::from_millis(50);
/// The same where the session keeps its rings in files, which it makes for each process: these
/// rings were asked to outlast it. Children that come faster than they are admitted slow down their
/// parent.
const KEPT_JOIN_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for which a session that did not answer in time is looked for afterwards.
const LATE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time between two looks.
const LATE_STEP: Duration = Duration::from_millis(10);
/// Most sessions that are looked for afterwards at a time.
const MAX_LATE: usize = MAX_RECORDINGS;

/// A conversation that has begun, without a welcome yet.
#[derive(Debug)]
pub struct Pending {
    socket: PacketSocket,
    identity: Option<Identity>,
    name: String,
}

/// A session that is being started, or that had no room for one more connection.
#[derive(Debug)]
pub struct Late {
    name: String,
    origin: Origin,
    /// Whether the name is the first one of a folder's session, which may have a further one.
    is_folders: bool,
    until: Instant,
}

impl Pending {
    /// Its socket, as long as the descriptor is ours.
    pub fn socket(&self) -> Option<&PacketSocket> {
        let ours = self.identity.is_some() && self.socket.identity() == self.identity;
        ours.then_some(&self.socket)
    }

    /// Takes the conversation over in the calling thread's table of descriptors, unless it is
    /// there.
    pub fn take_back(&mut self, socket: PacketSocket) {
        if socket.identity() == self.identity && self.socket().is_none() {
            std::mem::forget(std::mem::replace(&mut self.socket, socket.move_away()));
        }
    }

    /// Closes it, unless the program has done so.
    pub fn let_go(self) {
        self.socket.close_if_still(self.identity);
    }
}

/// Whether the agent must keep out of this process.
fn must_stay_out() -> bool {
    std::env::var_os(names::DISABLE_VARIABLE).is_some_and(|value| value == "1")
}

/// When the library is loaded: joins what the environment names.
pub fn at_start() {
    let mut registry = registry::lock();
    if must_stay_out() {
        registry.stays_out = true;
        return;
    }
    if is_secure_exec() {
        return;
    }
    // Handlers that are there first run last before a fork: the program's own may wait for threads
    // that load modules, which needs the agent's lock.
    fork::follow();
    let deadline = Instant::now() + START_TIMEOUT;
    if let Some(names) = std::env::var_os(names::SESSION_VARIABLE) {
        let names = names.to_string_lossy().into_owned();
        for name in names.split(':').filter(|name| !name.is_empty()).take(MAX_RECORDINGS) {
            // Without a session that is gone, another user's or of another version, the program
            // runs on.
            let _ = join_by(&mut registry, name, Origin::Exec, deadline);
        }
    } else if let Some(folder) = std::env::var_os(names::RECORD_VARIABLE).filter(|name| !name.is_empty()) {
        record_into(&mut registry, PathBuf::from(folder), deadline);
    }
}

/// Whether a module with events makes the process one that can be asked. A preloaded library
/// doesn't: the program that it is loaded into may need to have one thread only, and nobody has
/// prepared it for a second one.
pub fn may_be_attached(is_passive: bool) -> bool {
    match std::env::var_os(names::ATTACH_VARIABLE) {
        Some(value) if value == "0" => false,
        Some(value) if value == "1" => true,
        _ => !is_passive,
    }
}

/// Waits once more for sessions that have not answered, when a preloaded library's module is
/// loaded. In a process that has only such modules, no thread takes a late answer.
pub fn wait_again(registry: &mut Registry) {
    if registry.reachable {
        return;
    }
    let deadline = Instant::now() + START_TIMEOUT;
    for pending in std::mem::take(&mut registry.pending) {
        enter_by(registry, pending, deadline);
    }
    look_for_late_sessions(registry);
}

/// When a module with events is loaded: has the background thread hang up the bell, and knock where
/// a session is open to all programs of the user. Doesn't wait.
pub fn be_reachable(registry: &mut Registry) {
    if registry.stays_out || std::mem::replace(&mut registry.reachable, true) {
        return;
    }
    registry.knocks = !is_secure_exec();
    settle(registry);
    listener::wake(registry);
}

/// Says hello where a session is open to all programs of the user.
pub fn knock(registry: &mut Registry) {
    let user = tompion_os::effective_user();
    for number in 0..names::MAX_OPEN_SESSIONS {
        let name = names::open_session(user, number);
        if registry.pending.len() < listener::MAX_PENDING {
            let begun = trust::connect(&name).and_then(|socket| begin(socket, &name, Origin::Exec));
            registry.pending.extend(begun);
        }
    }
}

/// Follows forks, and has the background thread run in a process that can be asked. Others record
/// what their sessions wanted when they joined.
fn settle(registry: &mut Registry) {
    if !std::mem::replace(&mut registry.follows_forks, true) {
        fork::follow();
    }
    listener::ensure(registry);
}

/// In the child of a fork: takes part in what its parent took part in, as a process of its own.
pub fn in_child() {
    let mut registry = registry::lock();
    listener::forget_in_child(&mut registry);
    let unheard = forget_pending(&mut registry);
    let inherited = registry.forget_recordings();
    for conversation in &inherited {
        let _ =
            join_inherited(&mut registry, conversation).inspect_err(|error| conversation.tell_failed(error));
    }
    for (name, is_folders) in &unheard {
        let now = Instant::now();
        match is_folders {
            true => _ = join_folder(&mut registry, name, Origin::Fork, now),
            false => _ = join_by(&mut registry, name, Origin::Fork, now),
        }
    }
    if !registry.reachable {
        // No thread takes a late answer. The session counts a process that has closed the
        // conversation; children of this one try again.
        for pending in std::mem::take(&mut registry.pending) {
            let (name, until) = (pending.name.clone(), Instant::now());
            registry.late.push(Late { name, origin: Origin::Fork, is_folders: false, until });
            pending.let_go();
        }
    }
    tell_programs_of(&registry);
    // Until now they have told the session that there is somebody to wait for.
    inherited.into_iter().for_each(session::Inherited::close);
    listener::ensure(&mut registry);
}

/// In the child of a fork: lets go of conversations without an answer. Returns the names of their
/// sessions, and whether each is a folder session's first name.
fn forget_pending(registry: &mut Registry) -> Vec<(String, bool)> {
    let mut names: Vec<_> = registry.late.drain(..).map(|late| (late.name, late.is_folders)).collect();
    for pending in std::mem::take(&mut registry.pending) {
        if !names.iter().any(|(name, _)| *name == pending.name) {
            names.push((pending.name.clone(), false));
        }
        pending.let_go();
    }
    names
}

/// In the child of a fork: programs that it starts find the sessions that the environment doesn't
/// name yet, because they asked for the process while it ran.
fn tell_programs_of(registry: &Registry) {
    let known = std::env::var_os(names::SESSION_VARIABLE).unwrap_or_default();
    let known = known.to_string_lossy();
    let mut all: Vec<&str> = known.split(':').filter(|name| !name.is_empty()).collect();
    let count = all.len();
    for joined in registry.recordings.iter().flatten() {
        let gathers = registry.gathers_in.as_deref() == Some(&joined.name);
        if !gathers && !all.contains(&joined.name.as_str()) {
            all.push(&joined.name);
        }
    }
    if all.len() != count {
        // SAFETY: the child of a fork has one thread.
        unsafe { tompion_os::put_into_environment(names::SESSION_VARIABLE, &all.join(":")) };
    }
}

/// Introduces the process on a fresh connection.
fn begin(socket: PacketSocket, name: &str, origin: Origin) -> io::Result<Pending> {
    let socket = listener::put_away(socket);
    // Nothing is received before it is there; this is for a kernel that says so too early.
    socket.set_timeout(JOIN_TIMEOUT.as_millis() as u32)?;
    socket.send(&ToSession::Hello(introduce(origin)).encode(), &[])?;
    Ok(Pending { identity: socket.identity(), socket, name: name.to_owned() })
}

/// Joins the session that listens under a name, waiting for it as long as a running program may.
pub fn join(registry: &mut Registry, name: &str, origin: Origin) {
    let _ = join_by(registry, name, origin, Instant::now() + JOIN_TIMEOUT);
}

/// Milliseconds until then, at least one: none would be for ever.
fn milliseconds_until(deadline: Instant) -> u32 {
    (deadline.saturating_duration_since(Instant::now()).as_millis() as u32).max(1)
}

/// Joins the session of a name that another user may have. Returns whether the process takes part
/// by then.
///
/// Where the session has no room, the background thread tries again: another user could have filled
/// its own queue to make this process wait.
///
/// # Errors
/// The session can't be reached; else it knows of this process.
fn join_by(registry: &mut Registry, name: &str, origin: Origin, deadline: Instant) -> io::Result<bool> {
    let result = join_on(registry, trust::connect, name, origin, deadline);
    if result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
        let late =
            Late { name: name.to_owned(), origin, is_folders: false, until: Instant::now() + LATE_TIMEOUT };
        look_later_for(registry, late);
    }
    result
}

/// In the child of a fork: joins the session of the parent's conversation.
///
/// While that is open, the session has the name, and no other user makes this process wait.
fn join_inherited(registry: &mut Registry, conversation: &session::Inherited) -> io::Result<bool> {
    let timeout = if conversation.is_kept() { KEPT_JOIN_TIMEOUT } else { JOIN_TIMEOUT };
    let deadline = Instant::now() + if conversation.is_open() { timeout } else { Duration::ZERO };
    let connect = |name: &str| trust::connect_by(name, deadline);
    join_on(registry, connect, conversation.name(), Origin::Fork, deadline)
}

/// Joins a session by a connection that is made only if there is a need.
fn join_on(
    registry: &mut Registry,
    connect: impl FnOnce(&str) -> io::Result<PacketSocket>,
    name: &str,
    origin: Origin,
    deadline: Instant,
) -> io::Result<bool> {
    if crate::is_short_of_memory() {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    if registry.recordings.iter().flatten().any(|joined| joined.name == name) {
        return Ok(true);
    }
    let pending = begin(connect(name)?, name, origin)?;
    Ok(enter_by(registry, pending, deadline))
}

/// Has the background thread look for a session again.
fn look_later_for(registry: &mut Registry, late: Late) {
    if registry.late.len() < MAX_LATE {
        registry.late.push(late);
        listener::look_again_at(registry, Instant::now() + LATE_STEP);
        settle(registry);
    }
}

/// Waits for the welcome until then. If it takes longer, the background thread takes it up.
fn enter_by(registry: &mut Registry, pending: Pending, deadline: Instant) -> bool {
    let Some(socket) = pending.socket() else { return false };
    let descriptor = socket.as_fd().as_raw_fd();
    let ready = tompion_os::wait_readable(&[descriptor], Some(milliseconds_until(deadline)));
    if ready.unwrap_or(0) != 0 {
        return enter(registry, pending);
    }
    if registry.pending.len() < listener::MAX_PENDING {
        registry.pending.push(pending);
        settle(registry);
    }
    false
}

/// The welcome for a pending conversation is there, or its end.
pub fn be_welcomed(registry: &mut Registry, index: usize) {
    if registry.pending.get(index).is_some_and(|pending| pending.socket().is_some()) {
        let pending = registry.pending.remove(index);
        enter(registry, pending);
    }
}

/// Takes part in a session that was told hello, once it has welcomed the process.
fn enter(registry: &mut Registry, pending: Pending) -> bool {
    let Pending { socket, name, .. } = pending;
    if crate::is_short_of_memory() {
        return false;
    }
    let slot = event::prepare().ok().and_then(|()| session::be_let_in(registry, socket, name));
    if let Some(slot) = slot {
        registry.tell_objects(slot);
        registry.contexts_changed();
        settle(registry);
    }
    slot.is_some()
}

fn introduce(origin: Origin) -> Hello {
    Hello {
        pid: std::process::id(),
        origin,
        // Without a barrier nobody could leave a ring, so its events go the other way, too.
        rseq: tompion_os::rseq_area().is_some() && tompion_os::prepare_section_barrier().is_ok(),
        tsc: tompion_os::tsc_is_usable(),
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        name: tompion_os::name_of("self").unwrap_or_default(),
        executable: tompion_os::executable_of("self")
            .map(|path| path.to_string_lossy().into_owned())
            .unwrap_or_default(),
    }
}

/// Joins the session of a folder, which is started if it isn't there.
fn record_into(registry: &mut Registry, folder: PathBuf, deadline: Instant) {
    let Ok(folder) = std::path::absolute(folder) else { return };
    let name = names::folder_session(tompion_os::effective_user(), folder.as_os_str().as_bytes());
    if join_folder(registry, &name, Origin::Exec, deadline) {
        return;
    }
    if let Some(ready) = launch::start_session(&folder, &name) {
        // Should it have ended at once, another program has started one that was quicker.
        ready.wait(deadline);
    }
    if join_folder(registry, &name, Origin::Exec, deadline) {
        return;
    }
    // It may come too late for the start, but not for the rest.
    let until = Instant::now() + LATE_TIMEOUT;
    look_later_for(registry, Late { name, origin: Origin::Exec, is_folders: true, until });
}

/// Joins the session of a folder under the first of its names that this process believes. Returns
/// whether the process takes part by then.
fn join_folder(registry: &mut Registry, first: &str, origin: Origin, deadline: Instant) -> bool {
    for number in 0..names::MAX_FOLDER_NAMES {
        let name = names::numbered(first, number);
        if let Ok(takes_part) = join_on(registry, trust::connect, &name, origin, deadline) {
            registry.gathers_in = Some(name);
            return takes_part;
        }
    }
    false
}

/// Looks for the sessions that were not there in time.
pub fn look_for_late_sessions(registry: &mut Registry) {
    let now = Instant::now();
    for late in std::mem::take(&mut registry.late) {
        let Late { name, origin, is_folders, until } = &late;
        let is_pending = registry.pending.iter().any(|pending| pending.name == *name);
        let is_joined = |registry: &Registry| registry.recordings.iter().flatten().any(|it| it.name == *name);
        let done = is_joined(registry)
            || now >= *until
            || !is_pending
                && match is_folders {
                    true => join_folder(registry, name, *origin, now),
                    false => join_on(registry, trust::connect, name, *origin, now)
                        .is_ok_and(|takes_part| takes_part),
                };
        if !done {
            registry.late.push(late);
        }
    }
    if !registry.late.is_empty() {
        listener::look_again_at(registry, now + LATE_STEP);
    }
}
