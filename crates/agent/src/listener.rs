//! The background thread: waits for what sessions have to say, and for being asked to take part.
//!
//! A process has one, however many recordings it is part of. It sleeps in the kernel nearly always,
//! in `poll`. It notices when a session is gone and then ends the recording, so that the program
//! runs on as if it had never been recorded.
//!
//! Programs close and reuse descriptors that aren't theirs, and may count on the numbers that they
//! get. So the thread has a table of descriptors of its own: what it opens and closes is nobody
//! else's business. Where the kernel doesn't allow that, it looks before each wait, and again
//! before it reads, whether its descriptors still are what they were, and forgets those that
//! aren't.
//!
//! ```text
//! descriptor                    in the program's table           in the thread's
//! conversations begun at start  as long as the program likes     copies
//! all other conversations       while the thread is paused       yes
//! the bell                      while the thread is paused       yes
//! memory files, who rings       never                            while they are looked at
//! ```

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    time::{Duration, Instant},
};

use tompion_os::{Heard, Identity, Listener, PacketSocket};
use tompion_protocol::{
    MAX_RECORDINGS,
    message::{MAX_MESSAGE, Origin, ToAgent},
    names,
};

use crate::{
    event, fork, joining, lock,
    registry::{self, Registry},
    session::{self, Joined},
    shielded, trust,
};

/// Most conversations that have begun without a welcome yet.
pub const MAX_PENDING: usize = 8;
/// How long somebody who rings may take to say what he wants, in milliseconds.
const RING_TIMEOUT_MS: u32 = 50;
/// How many milliseconds the thread rests, first and at most, where the program may open no more
/// files: it can neither wait for its descriptors then, nor let in who rings, and would try for
/// ever.
const REST_MS: u32 = 10;
const LONGEST_REST_MS: u32 = 1000;
/// How often the thread looks for memory that can be unmapped behind a recording's end, and the
/// time between two looks.
const MAX_LOOKS: u32 = 20;
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// How long [`pause`] waits for the thread to be gone.
const PAUSE_TIMEOUT: Duration = Duration::from_secs(2);
/// How often [`pause`] looks.
const PAUSE_STEP: Duration = Duration::from_micros(50);

/// The id of the thread while there is one; 0 without.
static THREAD: AtomicU32 = AtomicU32::new(0);
/// Whether the thread is to end.
static PAUSED: AtomicBool = AtomicBool::new(false);
/// Whether the thread has descriptors of its own.
static OWN_TABLE: AtomicBool = AtomicBool::new(false);

/// What the registry knows of the thread.
#[derive(Debug)]
pub struct Background {
    /// Whether the thread was started and has not said goodbye.
    running: bool,
    /// Whether it has come so far that it waits, or is about to.
    ready: bool,
    /// Where the process can be asked to take part, and by which the thread is woken.
    bell: Option<Bell>,
    /// When the thread should look for its late sessions again.
    retry: Option<Instant>,
    /// How often it looks again, at most, for memory that can be unmapped: a thread that never
    /// comes back from an append keeps it for ever.
    looks_left: u32,
}

impl Background {
    /// There is none yet.
    pub const fn new() -> Self {
        Self { running: false, ready: false, bell: None, retry: None, looks_left: MAX_LOOKS }
    }
}

/// Names that are tried for the bell: each has a random part, so the first one is free.
const BELL_NAMES: u64 = 16;

/// The bell, as it was made.
#[derive(Debug)]
struct Bell {
    listener: Listener,
    identity: Option<Identity>,
    name: String,
}

impl Bell {
    fn hang() -> io::Result<Self> {
        let (namespace, pid) = (tompion_os::pid_namespace().unwrap_or(0), std::process::id());
        // Where the loader has put things is random, and so is the moment.
        let seed = tompion_os::tsc() ^ (&raw const THREAD as u64).rotate_left(32);
        let mut names = (0..BELL_NAMES).map(|number| {
            names::attach_socket(namespace, pid, names::fingerprint(&(seed ^ number).to_le_bytes()))
        });
        let bind = |name: String| Listener::bind(&name).ok().map(|listener| (listener, name));
        let (listener, name) = names.find_map(bind).ok_or(io::ErrorKind::AddrInUse)?;
        let listener = if has_own_table() { listener.move_off_streams() } else { listener.move_away() };
        Ok(Self { identity: listener.identity(), listener, name })
    }

    fn is_ours(&self) -> bool {
        self.identity.is_some() && self.listener.identity() == self.identity
    }

    fn take_down(self) {
        self.listener.close_if_still(self.identity);
    }
}

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
}

/// In the child of a fork, where the thread doesn't exist and the bell is the parent's.
pub fn forget_in_child(registry: &mut Registry) {
    lock::there_is_no_agents_thread();
    THREAD.store(0, Ordering::Relaxed);
    event::forget_asked_thread();
    PAUSED.store(false, Ordering::Relaxed);
    OWN_TABLE.store(false, Ordering::Relaxed);
    let background = std::mem::replace(&mut registry.background, Background::new());
    if let Some(bell) = background.bell {
        bell.take_down();
    }
}

/// Has the thread look soon whether a session that was late has come.
pub fn look_again_at(registry: &mut Registry, when: Instant) {
    registry.background.retry = Some(when);
}

/// Has the thread look a few times whether memory of ended recordings can be unmapped.
pub fn look_for_retired(registry: &mut Registry) {
    if registry.retired.is_empty() {
        registry.background.looks_left = MAX_LOOKS;
    } else if let Some(left) = registry.background.looks_left.checked_sub(1) {
        registry.background.looks_left = left;
        look_again_at(registry, Instant::now() + LOOK_INTERVAL);
    }
}

/// Makes a call while the thread is away. None, and no call, where that can't be, or where the
/// program has other threads: those are none of our business. `errno` is the call's.
pub fn while_away<T>(call: impl FnOnce() -> T) -> Option<T> {
    let is_alone_with_us = || {
        let began = Instant::now();
        while event::is_asked_thread_here() && began.elapsed() < PAUSE_TIMEOUT {
            std::thread::sleep(PAUSE_STEP);
        }
        registry::lock().background.running && tompion_os::thread_count() == Some(2)
    };
    if fork::is_stray() || lock::is_mine() || !shielded(false, is_alone_with_us) {
        return None;
    }
    let result = shielded(false, pause).then(call);
    shielded((), resume);
    result
}

/// Whether the calling thread is the agent's own and has its own descriptors.
fn has_own_table() -> bool {
    // Ordering: only changed by the thread itself, and in the child of a fork, which doesn't have
    // it.
    lock::is_the_agents_thread() && OWN_TABLE.load(Ordering::Relaxed)
}

/// Moves a socket to where it is in nobody's way.
pub fn put_away(socket: PacketSocket) -> PacketSocket {
    if has_own_table() { socket.move_off_streams() } else { socket.move_away() }
}

/// Has the thread look at once what there is to do.
pub fn wake(registry: &Registry) {
    // A thread that isn't ready yet looks anyway.
    if let Some(bell) = registry.background.bell.as_ref().filter(|_| registry.background.ready) {
        drop(PacketSocket::connect_at_once(&bell.name));
    }
}

/// Ends the thread and waits until the kernel has none of it left, so that a program may do what
/// only one with a single thread may. Returns whether there was one, and is none now. Recordings go
/// on meanwhile.
///
/// Every call needs one of [`resume`], whatever it returned.
pub fn pause() -> bool {
    let began = Instant::now();
    let patient = || {
        std::thread::sleep(PAUSE_STEP);
        began.elapsed() < PAUSE_TIMEOUT
    };
    let ring = loop {
        let registry = registry::lock();
        if !registry.background.running {
            PAUSED.store(true, Ordering::Relaxed);
            return false;
        }
        if registry.background.ready {
            let name = registry.background.bell.as_ref().map(|bell| bell.name.as_str());
            let ring = name.and_then(|name| PacketSocket::connect_at_once(name).ok());
            // Ordering: pairs with the loads in `watch_all` and `answer_bell`, under the same lock.
            PAUSED.store(true, Ordering::Relaxed);
            break ring;
        }
        drop(registry);
        if !patient() {
            return false;
        }
    };
    let Some(ring) = ring else { return false };
    // Ordering: pairs with the release in `run`, which the thread did before it was ready.
    let thread = THREAD.load(Ordering::Acquire);
    while registry::lock().background.running || tompion_os::thread_exists(thread) {
        if !patient() {
            return false;
        }
    }
    take_back(&mut registry::lock(), &ring);
    true
}

/// Takes back the descriptors of a thread that has ended.
fn take_back(registry: &mut Registry, ring: &PacketSocket) {
    let mut message = [0; 2];
    while let Ok(mut received) = ring.receive(&mut message) {
        let Some(descriptor) = received.descriptors.pop().filter(|_| received.len == message.len()) else {
            return;
        };
        let index = usize::from(message[1]);
        match Source::from_bytes(message) {
            Source::Bell => {
                if let Some(bell) = registry.background.bell.as_mut().filter(|bell| !bell.is_ours()) {
                    let listener = Listener::from(descriptor).move_away();
                    std::mem::forget(std::mem::replace(&mut bell.listener, listener));
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
}

/// What the thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Bell,
    Recording(usize),
    Pending(usize),
}

impl Source {
    fn to_bytes(self) -> [u8; 2] {
        match self {
            Self::Bell => [0, 0],
            Self::Recording(slot) => [1, slot as u8],
            Self::Pending(index) => [2, index as u8],
        }
    }

    fn from_bytes([kind, index]: [u8; 2]) -> Self {
        match kind {
            0 => Self::Bell,
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
        const MOST: usize = MAX_RECORDINGS + MAX_PENDING + 1;
        Self { descriptors: [-1; MOST], sources: [Source::Bell; MOST], count: 0 }
    }

    /// All that the registry has.
    fn add_all(&mut self, registry: &mut Registry) {
        if let Some(bell) = registry.background.bell.as_ref().filter(|bell| bell.is_ours()) {
            self.add(bell.listener.as_fd().as_raw_fd(), Source::Bell);
        }
        for (slot, joined) in registry.recordings.iter_mut().enumerate() {
            if let Some(socket) = joined.as_mut().and_then(Joined::conversation) {
                self.add(socket.as_fd().as_raw_fd(), Source::Recording(slot));
            }
        }
        for (index, pending) in registry.pending.iter().enumerate() {
            if let Some(socket) = pending.socket() {
                self.add(socket.as_fd().as_raw_fd(), Source::Pending(index));
            }
        }
    }

    /// Those that can be asked without waiting, one bit each.
    fn unawaited(&self) -> u32 {
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

/// The thread.
fn run() {
    lock::this_is_the_agents_thread();
    // Ordering: pairs with the acquire in `pause`.
    THREAD.store(tompion_os::gettid(), Ordering::Release);
    begin(&mut registry::lock());
    let mut buffer = [0; MAX_MESSAGE / 4];
    let mut rest = REST_MS;
    loop {
        let mut watched = Watched::new();
        let mut registry = registry::lock();
        if !watch_all(&mut registry, &mut watched) {
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
        let ready = ready.unwrap_or_else(|| watched.unawaited());
        // From the last: a pending conversation that is over leaves the list.
        for index in (0..watched.count).rev().filter(|index| ready & (1 << index) != 0) {
            match watched.sources[index] {
                Source::Bell => is_able &= answer_bell(&mut registry),
                Source::Recording(slot) => hear(&mut registry, slot, &mut buffer),
                Source::Pending(index) => joining::be_welcomed(&mut registry, index),
            }
        }
        if registry.background.retry.is_some_and(|when| when <= Instant::now()) {
            registry.background.retry = None;
            joining::look_for_late_sessions(&mut registry);
            session::unmap_retired(&mut registry);
            look_for_retired(&mut registry);
        }
        drop(registry);
        if is_able {
            rest = REST_MS;
        } else {
            // Not by a system call that the thread doesn't make anyway: the program may forbid
            // itself others.
            tompion_os::wait_readable(&[], Some(rest));
            rest = (rest * 2).min(LONGEST_REST_MS);
        }
    }
}

/// Begins the thread's work: from now on its descriptors are its own.
fn begin(registry: &mut Registry) {
    let mut ours = Watched::new();
    ours.add_all(registry);
    // Ordering: see `has_own_table`.
    OWN_TABLE.store(tompion_os::take_own_table(&mut ours.descriptors[..ours.count]), Ordering::Relaxed);
    if registry.background.bell.is_none() {
        // Without a bell the process can't be asked, and nothing else is missing.
        registry.background.bell = Bell::hang().ok();
    }
    registry.background.ready = true;
}

/// Ends the thread's work. What only it has goes to who waits for that.
fn end(registry: &mut Registry) {
    if has_own_table() {
        let own = std::process::id();
        let next =
            || registry.background.bell.as_ref().and_then(|bell| bell.listener.accept().ok().flatten());
        let waiting = std::iter::from_fn(next).find(|socket| socket.peer().is_ok_and(|peer| peer.pid == own));
        if let Some(socket) = waiting {
            let mut ours = Watched::new();
            ours.add_all(registry);
            for index in 0..ours.count {
                // SAFETY: the registry's lock is held, and the thread's descriptors are nobody
                // else's.
                let descriptor = unsafe { BorrowedFd::borrow_raw(ours.descriptors[index]) };
                let _ = socket.send(&ours.sources[index].to_bytes(), &[descriptor]);
            }
        }
    }
    lock::there_is_no_agents_thread();
    registry.background.running = false;
}

/// Collects what there is to wait for. False if the thread is to end.
fn watch_all(registry: &mut Registry, watched: &mut Watched) -> bool {
    if PAUSED.load(Ordering::Relaxed) {
        return false;
    }
    if let Some(bell) = registry.background.bell.take_if(|bell| !bell.is_ours()) {
        bell.take_down();
    }
    if std::mem::take(&mut registry.knocks) {
        joining::knock(registry);
    }
    watched.add_all(registry);
    // With nothing to wait for, only a retry gives the thread a reason to stay.
    watched.count != 0 || registry.background.retry.is_some()
}

/// Somebody rings: a session that wants the process, the program that has something to do, or
/// [`pause`], which stays in the queue. False if whoever it is can't be let in.
fn answer_bell(registry: &mut Registry) -> bool {
    // Ordering: pairs with the store in `pause`, under the same lock.
    if PAUSED.load(Ordering::Relaxed) {
        return true;
    }
    let socket = match &registry.background.bell {
        Some(bell) if bell.is_ours() => bell.listener.accept(),
        _ => return true,
    };
    let socket = match socket {
        Ok(Some(socket)) => socket,
        Ok(None) => return true,
        Err(_) => return false,
    };
    let believed = socket.peer().is_ok_and(|peer| trust::believes(peer.uid));
    if !believed || socket.set_timeout(RING_TIMEOUT_MS).is_err() {
        return true;
    }
    let mut buffer = [0; 512];
    let Some(len) = socket.receive_bare(&mut buffer) else { return true };
    if let Some(Ok(ToAgent::Join(name))) = buffer.get(..len).map(ToAgent::decode) {
        joining::join(registry, &name, Origin::Request);
    }
    true
}

/// A session has said something, or is gone.
fn hear(registry: &mut Registry, slot: usize, buffer: &mut [u8]) {
    let Some(joined) = &mut registry.recordings[slot] else { return };
    let Some(heard) = joined.conversation().map(|socket| socket.hear(buffer)) else { return };
    let message = match heard {
        Heard::Nothing => return,
        Heard::Packet(len) => buffer.get(..len).and_then(|packet| ToAgent::decode(packet).ok()),
        Heard::End => None,
    };
    match message {
        // Who has no memory for the new rules goes on with the old ones.
        Some(ToAgent::RulesChanged) if crate::is_short_of_memory() => {}
        Some(ToAgent::RulesChanged) => {
            joined.refresh_rules();
            registry.enable_all();
        }
        Some(ToAgent::Populate { offset, len }) => joined.populate(offset, len),
        Some(ToAgent::Welcome | ToAgent::Refused(_) | ToAgent::Join(_)) => {}
        None => registry.end(slot),
    }
}
