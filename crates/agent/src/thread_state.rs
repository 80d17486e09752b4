//! State of the background thread: whether it runs, its attach socket, and its descriptor table.

use std::{
    io,
    os::fd::AsFd,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    time::{Duration, Instant},
};

use tompion_os::{Identity, Listener, PacketSocket};
use tompion_protocol::names;

use crate::lock;

/// Maximum number of checks whether memory can be unmapped after a recording's end.
const MAX_UNMAP_CHECKS: u32 = 20;
/// Time between two such checks.
const UNMAP_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// The id of the thread while there is one; 0 without.
pub static THREAD: AtomicU32 = AtomicU32::new(0);
/// Whether the thread must end.
pub static PAUSED: AtomicBool = AtomicBool::new(false);
/// Whether the thread has a descriptor table of its own.
pub static OWN_TABLE: AtomicBool = AtomicBool::new(false);

/// State of the background thread that the registry's lock guards.
#[derive(Debug)]
pub struct Background {
    /// Whether the thread was started and has not ended.
    pub running: bool,
    /// Whether it waits for messages, or is about to.
    pub ready: bool,
    /// Socket by which sessions request the process, and by which the thread is woken.
    pub attach_socket: Option<AttachSocket>,
    /// Time of the next retry of sessions and unmapping.
    pub retry: Option<Instant>,
    /// Remaining checks for memory that can be unmapped. They are limited because a thread that
    /// never returns from an append keeps the memory for good.
    unmap_checks_left: u32,
}

impl Background {
    /// State without a thread.
    pub const fn new() -> Self {
        Self {
            running: false,
            ready: false,
            attach_socket: None,
            retry: None,
            unmap_checks_left: MAX_UNMAP_CHECKS,
        }
    }

    /// Schedules a retry of pending work.
    pub fn retry_at(&mut self, when: Instant) {
        self.retry = Some(when);
    }

    /// Schedules a check for memory that can be unmapped, unless none is left (`is_done`) or too
    /// many were made.
    pub fn schedule_unmap_check(&mut self, is_done: bool) {
        if is_done {
            self.unmap_checks_left = MAX_UNMAP_CHECKS;
        } else if let Some(left) = self.unmap_checks_left.checked_sub(1) {
            self.unmap_checks_left = left;
            self.retry_at(Instant::now() + UNMAP_CHECK_INTERVAL);
        }
    }
}

/// Number of names tried for the attach socket: each has a random part, so the first is free.
const ATTACH_SOCKET_NAMES: u64 = 16;

/// Socket on which sessions ask a running process to join.
#[derive(Debug)]
pub struct AttachSocket {
    listener: Listener,
    identity: Option<Identity>,
    name: String,
}

impl AttachSocket {
    /// Binds the socket under a name that contains the process's id.
    ///
    /// # Errors
    /// All names are taken, or the program may open no more files.
    pub fn bind() -> io::Result<Self> {
        let (namespace, pid) = (tompion_os::pid_namespace().unwrap_or(0), std::process::id());
        // Random: the addresses that the loader chose, and the time.
        let seed = tompion_os::tsc() ^ (&raw const THREAD as u64).rotate_left(32);
        let mut names = (0..ATTACH_SOCKET_NAMES).map(|number| {
            names::attach_socket(namespace, pid, names::fingerprint(&(seed ^ number).to_le_bytes()))
        });
        let bind = |name: String| Listener::bind(&name).ok().map(|listener| (listener, name));
        let (listener, name) = names.find_map(bind).ok_or(io::ErrorKind::AddrInUse)?;
        let listener = if has_own_table() { listener.move_off_streams() } else { listener.move_away() };
        Ok(Self { identity: listener.identity(), listener, name })
    }

    /// Returns whether the descriptor is still the agent's.
    pub fn is_ours(&self) -> bool {
        self.identity.is_some() && self.listener.identity() == self.identity
    }

    /// Its listening socket.
    pub fn listener(&self) -> &Listener {
        &self.listener
    }

    /// Its descriptor.
    pub fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Connects to the socket, which wakes the thread.
    pub fn connect(&self) -> io::Result<PacketSocket> {
        PacketSocket::connect_at_once(&self.name)
    }

    /// Takes the socket over into the calling thread's descriptor table.
    pub fn take_back(&mut self, listener: Listener) {
        std::mem::forget(std::mem::replace(&mut self.listener, listener.move_away()));
    }

    /// Closes the socket, unless the program has done so.
    pub fn close(self) {
        self.listener.close_if_still(self.identity);
    }
}

/// Returns whether the calling thread is the agent's own and has its own descriptor table.
pub fn has_own_table() -> bool {
    // Ordering: only changed by the thread itself, and in the child of a fork, which doesn't have
    // it.
    lock::is_agent_thread() && OWN_TABLE.load(Ordering::Relaxed)
}

/// Moves a socket to a descriptor number that programs don't expect to be free.
pub fn move_fd_out_of_the_way(socket: PacketSocket) -> PacketSocket {
    if has_own_table() { socket.move_off_streams() } else { socket.move_away() }
}
