//! Connections accepted but not yet identified by a `Hello`: at most 4 per process and 512 in
//! total, each for 1 s.
//!
//! Well-behaved programs send it at once. Others may connect and be silent, or connect as often as
//! they can. The limits leave room for the others.

use std::{
    collections::BTreeMap,
    os::fd::AsFd,
    time::{Duration, Instant},
};

use tompion_os::{PacketSocket, Peer, Poller};

/// Time within which a process that connected must send its `Hello`.
const HELLO_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of pending connections.
const MAX_PENDING: usize = 512;
/// Maximum number of pending connections of one process.
const MAX_PENDING_PER_PID: usize = 4;

/// Connection that waits for its `Hello`.
#[derive(Debug)]
pub struct Connection {
    /// Socket of the connection.
    pub socket: PacketSocket,
    /// Process at the other end, as the kernel tells.
    pub peer: Peer,
    since: Instant,
}

impl Connection {
    /// A connection that was accepted now.
    pub fn new(socket: PacketSocket, peer: Peer) -> Self {
        Self { socket, peer, since: Instant::now() }
    }
}

/// Pending connections, by their keys, which rise.
#[derive(Debug, Default)]
pub struct PendingHandshakes(BTreeMap<u64, Connection>);

impl PendingHandshakes {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keys of all, the first to come first.
    pub fn keys(&self) -> Vec<u64> {
        self.0.keys().copied().collect()
    }

    /// Whether this is the key of a pending connection.
    pub fn has(&self, key: u64) -> bool {
        self.0.contains_key(&key)
    }

    /// Whether there is room for one more of this process.
    pub fn has_room_for(&self, peer: Peer) -> bool {
        self.0.values().filter(|connection| connection.peer.pid == peer.pid).count() < MAX_PENDING_PER_PID
    }

    /// Returns the connection that has been silent for the longest time, if there are too many.
    pub fn oldest_excess(&self) -> Option<u64> {
        self.0.keys().next().copied().filter(|_| self.0.len() > MAX_PENDING)
    }

    /// Adds a connection that has not sent anything yet.
    pub fn add(&mut self, key: u64, connection: Connection) {
        self.0.insert(key, connection);
    }

    /// Takes a connection out, which is no longer waited for.
    pub fn take(&mut self, key: u64, poller: &Poller) -> Option<Connection> {
        let connection = self.0.remove(&key)?;
        poller.remove(connection.socket.as_fd());
        Some(connection)
    }

    /// Time at which the first connection times out.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.0.values().next().map(|connection| connection.since + HELLO_TIMEOUT)
    }

    /// The first one, if it has been silent for too long.
    pub fn late(&self) -> Option<u64> {
        let late = |connection: &Connection| connection.since.elapsed() >= HELLO_TIMEOUT;
        self.0.iter().next().filter(|(_, connection)| late(connection)).map(|(key, _)| *key)
    }
}
