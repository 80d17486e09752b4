//! The background thread: receives messages of sessions, and requests to join them.
//!
//! A process has one, however many recordings it is part of. It sleeps in `poll` nearly always.
//! When a session is gone it ends the recording, so that the program runs on as if it had never
//! been recorded.
//!
//! Programs close and reuse descriptors that aren't theirs, and may depend on the numbers that they
//! get. So the thread has a descriptor table of its own, and what it opens and closes is invisible
//! to the program. If the kernel doesn't allow that, the thread checks before each wait and each
//! read whether its descriptors are still its own, and forgets those that aren't.
//!
//! ```text
//! descriptor                     in the program's table          in the thread's
//! connections made at the start  as long as the program likes    copies
//! all other connections          while the thread is paused      yes
//! the attach socket              while the thread is paused      yes
//! memory files, requests         never                           while they are in use
//! ```

use std::{
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use tompion_os::{Heard, Listener, PacketSocket};
use tompion_protocol::{
    MAX_RECORDINGS,
    message::{MAX_MESSAGE, Origin, ToAgent},
};

use crate::{
    connect,
    debug_log::debug,
    event, fork, heap,
    host::protect_host,
    lock,
    pending::MAX_PENDING,
    recording::JoinedRecording,
    registry::{self, Registry},
    state_dump,
    thread_state::{AttachSocket, Background, OWN_TABLE, PAUSED, THREAD, has_own_table},
    trust,
};

/// Time in which a peer must send its request, in milliseconds.
const REQUEST_TIMEOUT_MS: u32 = 50;
/// First and maximum pause of the thread in milliseconds if the program may open no more files. It
/// can then neither wait for its descriptors nor accept requests, and would retry without a pause.
const IDLE_INTERVAL_MS: u32 = 10;
const MAX_IDLE_INTERVAL_MS: u32 = 1000;
/// Time that [`pause`] waits for the thread to end.
const PAUSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval of the checks in [`pause`].
const PAUSE_INTERVAL: Duration = Duration::from_micros(50);

/// Starts the thread, unless it runs, in a process that can be asked to take part. No other gets a
/// thread.
pub fn ensure(registry: &mut Registry) {
    if !registry.reachable {
        return;
    }
    let background = &mut registry.background;
    // Ordering: only changed under the registry's lock, which the caller has.
    if background.running || PAUSED.load(Ordering::Relaxed) || !fork::may_start_threads() {
        return;
    }
    background.ready = false;
    event::note_starter();
    // Without the thread, events are recorded all the same; only later changes are not heard of.
    background.running = tompion_os::spawn_background(run).is_ok();
    if background.running && registry.acknowledge_listening() {
        // They have changed while the process could not be told.
        registry.enable_all();
    }
}

/// In the child of a fork, where the thread doesn't exist and the attach socket is the parent's.
pub fn forget_in_child(registry: &mut Registry) {
    event::forget_probe_thread();
    let background = std::mem::replace(&mut registry.background, Background::new());
    if !registry.reachable {
        // The parent has had no thread. Stores would copy one more page.
        return;
    }
    lock::forget_agent_thread();
    THREAD.store(0, Ordering::Relaxed);
    PAUSED.store(false, Ordering::Relaxed);
    OWN_TABLE.store(false, Ordering::Relaxed);
    if let Some(attach_socket) = background.attach_socket {
        attach_socket.close();
    }
}

/// Makes a call while the thread is away. None, and no call, where that can't be, or where the
/// program has other threads: those are none of our business. `errno` is the call's.
pub fn with_thread_stopped<T>(call: impl FnOnce() -> T) -> Option<T> {
    let is_alone_with_us = || {
        let began = Instant::now();
        while event::probe_thread_exists() && began.elapsed() < PAUSE_TIMEOUT {
            std::thread::sleep(PAUSE_INTERVAL);
        }
        let registry = registry::lock();
        let own_threads = 1 + u64::from(registry.state_dumps.has_thread());
        registry.background.running && tompion_os::thread_count() == Some(1 + own_threads)
    };
    if fork::is_untracked_child() || lock::is_mine() || protect_host(true, state_dump::is_calling) {
        return None;
    }
    if !protect_host(false, is_alone_with_us) {
        return None;
    }
    let result = protect_host(false, pause).then(call);
    protect_host((), resume);
    result
}

/// Has the thread look at once what there is to do.
pub fn wake(registry: &Registry) {
    // A thread that isn't ready yet looks anyway.
    if let Some(attach_socket) =
        registry.background.attach_socket.as_ref().filter(|_| registry.background.ready)
    {
        drop(attach_socket.connect());
    }
}

/// Ends the thread, and that of state dumps, and waits until the kernel has none of them left, so
/// that a program may do what only one with a single thread may. Returns whether there was a
/// background thread, and no thread of the agent is left. Recordings go on meanwhile.
///
/// Every call needs one of [`resume`], whatever it returned.
pub fn pause() -> bool {
    let has_no_dumps = state_dump::pause(PAUSE_TIMEOUT);
    pause_background() && has_no_dumps
}

fn pause_background() -> bool {
    let began = Instant::now();
    let keep_waiting = || {
        std::thread::sleep(PAUSE_INTERVAL);
        began.elapsed() < PAUSE_TIMEOUT
    };
    let wakeup = loop {
        let registry = registry::lock();
        if !registry.background.running {
            PAUSED.store(true, Ordering::Relaxed);
            return false;
        }
        if registry.background.ready {
            let socket = registry.background.attach_socket.as_ref();
            let wakeup = socket.and_then(|socket| socket.connect().ok());
            // Ordering: pairs with the loads in `collect_sources` and `answer_attach_socket`, under
            // the same lock.
            PAUSED.store(true, Ordering::Relaxed);
            break wakeup;
        }
        drop(registry);
        if !keep_waiting() {
            return false;
        }
    };
    let Some(wakeup) = wakeup else { return false };
    // Ordering: pairs with the release in `run`, which the thread did before it was ready.
    let thread = THREAD.load(Ordering::Acquire);
    while registry::lock().background.running || tompion_os::thread_exists(thread) {
        if !keep_waiting() {
            return false;
        }
    }
    take_back(&mut registry::lock(), &wakeup);
    true
}

/// Takes back the descriptors of a thread that has ended.
fn take_back(registry: &mut Registry, wakeup: &PacketSocket) {
    let mut message = [0; 2];
    while let Ok(mut received) = wakeup.receive(&mut message) {
        let Some(descriptor) = received.descriptors.pop().filter(|_| received.len == message.len()) else {
            return;
        };
        let index = usize::from(message[1]);
        match Source::from_bytes(message) {
            Source::AttachSocket => {
                if let Some(attach_socket) = registry
                    .background
                    .attach_socket
                    .as_mut()
                    .filter(|attach_socket| !attach_socket.is_ours())
                {
                    attach_socket.take_back(Listener::from(descriptor));
                }
            }
            Source::Recording(_) => {
                if let Some(joined) = registry.recordings.get_mut(index).and_then(Option::as_mut) {
                    joined.take_back(descriptor.into());
                }
            }
            Source::Pending(_) => {
                if let Some(pending) = registry.pending.get_mut(index) {
                    pending.take_back(descriptor.into());
                }
            }
        }
    }
}

/// Starts the thread again.
pub fn resume() {
    let mut registry = registry::lock();
    PAUSED.store(false, Ordering::Relaxed);
    ensure(&mut registry);
    state_dump::resume(&mut registry);
}

/// Source of messages that the thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    AttachSocket,
    Recording(usize),
    Pending(usize),
}

impl Source {
    fn to_bytes(self) -> [u8; 2] {
        match self {
            Self::AttachSocket => [0, 0],
            Self::Recording(slot) => [1, slot as u8],
            Self::Pending(index) => [2, index as u8],
        }
    }

    fn from_bytes([kind, index]: [u8; 2]) -> Self {
        match kind {
            0 => Self::AttachSocket,
            1 => Self::Recording(index.into()),
            _ => Self::Pending(index.into()),
        }
    }
}

/// Descriptors and what they are, without a heap.
struct Watched {
    descriptors: [RawFd; MAX_RECORDINGS + MAX_PENDING + 1],
    sources: [Source; MAX_RECORDINGS + MAX_PENDING + 1],
    count: usize,
}

impl Watched {
    const fn new() -> Self {
        const COUNT: usize = MAX_RECORDINGS + MAX_PENDING + 1;
        Self { descriptors: [-1; COUNT], sources: [Source::AttachSocket; COUNT], count: 0 }
    }

    /// All that the registry has.
    fn add_all(&mut self, registry: &mut Registry) {
        if let Some(attach_socket) =
            registry.background.attach_socket.as_ref().filter(|attach_socket| attach_socket.is_ours())
        {
            self.add(attach_socket.as_fd().as_raw_fd(), Source::AttachSocket);
        }
        for (slot, joined) in registry.recordings.iter_mut().enumerate() {
            if let Some(socket) = joined.as_mut().and_then(JoinedRecording::connection) {
                self.add(socket.as_fd().as_raw_fd(), Source::Recording(slot));
            }
        }
        for (index, pending) in registry.pending.iter().enumerate() {
            if let Some(socket) = pending.socket() {
                self.add(socket.as_fd().as_raw_fd(), Source::Pending(index));
            }
        }
    }

    /// Returns which descriptors can be read without waiting, one bit each.
    fn readable_without_waiting(&self) -> u32 {
        let sources = self.sources.iter().take(self.count).enumerate();
        sources.map(|(index, source)| u32::from(!matches!(source, Source::Pending(_))) << index).sum()
    }

    fn add(&mut self, descriptor: RawFd, source: Source) {
        if self.count < self.descriptors.len() {
            self.descriptors[self.count] = descriptor;
            self.sources[self.count] = source;
            self.count += 1;
        }
    }
}

/// Runs the agent's thread.
fn run() {
    lock::mark_agent_thread();
    // Ordering: pairs with the acquire in `pause`.
    THREAD.store(tompion_os::gettid(), Ordering::Release);
    begin(&mut registry::lock());
    let mut buffer = [0; MAX_MESSAGE / 4];
    let mut idle_ms = IDLE_INTERVAL_MS;
    loop {
        let mut watched = Watched::new();
        let mut registry = registry::lock();
        if !collect_sources(&mut registry, &mut watched) {
            return end(&mut registry);
        }
        let timeout = registry
            .background
            .retry
            .map(|when| when.saturating_duration_since(Instant::now()).as_millis().min(60_000) as u32 + 1);
        drop(registry);
        let ready = tompion_os::wait_readable(&watched.descriptors[..watched.count], timeout);
        let mut registry = registry::lock();
        let mut is_able = ready.is_some();
        let ready = ready.unwrap_or_else(|| watched.readable_without_waiting());
        // From the last: a pending conversation that is over leaves the list.
        for index in (0..watched.count).rev().filter(|index| ready & (1 << index) != 0) {
            match watched.sources[index] {
                Source::AttachSocket => is_able &= answer_attach_socket(&mut registry),
                Source::Recording(slot) => receive(&mut registry, slot, &mut buffer),
                Source::Pending(index) => connect::finish_pending(&mut registry, index),
            }
        }
        if registry.background.retry.is_some_and(|when| when <= Instant::now()) {
            registry.background.retry = None;
            connect::retry_sessions(&mut registry);
            registry.unmap_retired();
            registry.schedule_unmap_check();
        }
        drop(registry);
        if is_able {
            idle_ms = IDLE_INTERVAL_MS;
        } else {
            // Not by a system call that the thread doesn't make anyway: the program may forbid
            // itself others.
            tompion_os::wait_readable(&[], Some(idle_ms));
            idle_ms = (idle_ms * 2).min(MAX_IDLE_INTERVAL_MS);
        }
    }
}

/// Begins the thread's work: from now on its descriptors are its own.
fn begin(registry: &mut Registry) {
    let mut ours = Watched::new();
    ours.add_all(registry);
    // Ordering: see `has_own_table`.
    OWN_TABLE.store(tompion_os::take_own_table(&mut ours.descriptors[..ours.count]), Ordering::Relaxed);
    if registry.background.attach_socket.is_none() {
        // Without an attach socket the process can't be asked, and nothing else is missing.
        registry.background.attach_socket = AttachSocket::bind().ok();
    }
    registry.background.ready = true;
    debug(format_args!("background thread: started"));
}

/// Ends the thread's work. Descriptors of its own table go to the waiting [`pause`].
fn end(registry: &mut Registry) {
    if has_own_table() {
        let own = std::process::id();
        let next = || {
            registry
                .background
                .attach_socket
                .as_ref()
                .and_then(|attach_socket| attach_socket.listener().accept().ok().flatten())
        };
        let waiting = std::iter::from_fn(next).find(|socket| socket.peer().is_ok_and(|peer| peer.pid == own));
        if let Some(socket) = waiting {
            let mut ours = Watched::new();
            ours.add_all(registry);
            for index in 0..ours.count {
                // SAFETY: the registry's lock is held, and no other thread uses the thread's
                // descriptors.
                let descriptor = unsafe { BorrowedFd::borrow_raw(ours.descriptors[index]) };
                let _ = socket.send(&ours.sources[index].to_bytes(), &[descriptor]);
            }
        }
    }
    debug(format_args!("background thread: ends"));
    lock::forget_agent_thread();
    registry.background.running = false;
}

/// Collects what there is to wait for. False if the thread is to end.
fn collect_sources(registry: &mut Registry, watched: &mut Watched) -> bool {
    if PAUSED.load(Ordering::Relaxed) {
        return false;
    }
    if let Some(attach_socket) =
        registry.background.attach_socket.take_if(|attach_socket| !attach_socket.is_ours())
    {
        attach_socket.close();
    }
    if std::mem::take(&mut registry.probe_due) {
        connect::probe_open_sessions(registry);
    }
    watched.add_all(registry);
    // With nothing to wait for, only a retry gives the thread a reason to stay.
    watched.count != 0 || registry.background.retry.is_some()
}

/// Serves the attach socket: a session that requests the process, a wakeup by the program, or
/// [`pause`], whose connection stays in the queue. False if the connection can't be accepted.
fn answer_attach_socket(registry: &mut Registry) -> bool {
    // Ordering: pairs with the store in `pause`, under the same lock.
    if PAUSED.load(Ordering::Relaxed) {
        return true;
    }
    let socket = match &registry.background.attach_socket {
        Some(attach_socket) if attach_socket.is_ours() => attach_socket.listener().accept(),
        _ => return true,
    };
    let socket = match socket {
        Ok(Some(socket)) => socket,
        Ok(None) => return true,
        Err(_) => return false,
    };
    let peer = socket.peer();
    let believed = peer.as_ref().is_ok_and(|peer| trust::believes(peer.uid));
    if !believed || socket.set_timeout(REQUEST_TIMEOUT_MS).is_err() {
        debug(format_args!("attach socket: connection refused, from {peer:?}"));
        return true;
    }
    let mut buffer = [0; 512];
    let Some(len) = socket.receive_bare(&mut buffer) else { return true };
    if let Some(Ok(ToAgent::Join(name))) = buffer.get(..len).map(ToAgent::decode) {
        debug(format_args!("session {name}: asks to be joined"));
        connect::join(registry, &name, Origin::Request);
    }
    true
}

/// A session has said something, or is gone.
fn receive(registry: &mut Registry, slot: usize, buffer: &mut [u8]) {
    let Some(joined) = &mut registry.recordings[slot] else { return };
    let Some(heard) = joined.connection().map(|socket| socket.hear(buffer)) else { return };
    let message = match heard {
        Heard::Nothing => return,
        Heard::Packet(len) => buffer.get(..len).and_then(|packet| ToAgent::decode(packet).ok()),
        Heard::End => None,
    };
    match message {
        // Without memory for the new rules, the old ones stay.
        Some(ToAgent::RulesChanged) if heap::is_short() => {}
        Some(ToAgent::RulesChanged) => {
            joined.refresh_rules();
            registry.enable_all();
        }
        Some(ToAgent::Populate { offset, len }) => joined.populate(offset, len),
        // Memory for a child that found none: it has its own by now.
        Some(ToAgent::Prepared { .. }) => {}
        Some(ToAgent::Welcome | ToAgent::Refused(_) | ToAgent::Join(_)) => {}
        None => {
            debug(format_args!("session {}: its connection has ended", joined.name));
            registry.end(slot);
        }
    }
}
