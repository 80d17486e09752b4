//! Who has knocked and not said anything yet.
//!
//! Sound programs introduce themselves at once. Others may connect and be silent, or connect as often as they
//! can: each process has a few places, and nobody keeps one for long, so that there is room for the others.

use std::{
    collections::BTreeMap,
    os::fd::AsFd,
    time::{Duration, Instant},
};

use tompion_os::{PacketSocket, Peer, Poller};

/// How long a process that connected may take to say hello.
const PATIENCE: Duration = Duration::from_secs(1);
/// How many guests there are at most.
const MOST_GUESTS: usize = 512;
/// How many of them are of one process at most.
const MOST_OF_ONE: usize = 4;

/// One that has knocked.
#[derive(Debug)]
pub struct Guest {
    /// The conversation.
    pub socket: PacketSocket,
    /// Who it is, as the kernel says.
    pub peer: Peer,
    since: Instant,
}

/// All that have knocked, by their keys, which rise.
#[derive(Debug, Default)]
pub struct Guests(BTreeMap<u64, Guest>);

impl Guests {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keys of all, the first to come first.
    pub fn keys(&self) -> Vec<u64> {
        self.0.keys().copied().collect()
    }

    /// Whether this is a guest's key.
    pub fn has(&self, key: u64) -> bool {
        self.0.contains_key(&key)
    }

    /// Whether there is room for one more of this process.
    pub fn have_room_for(&self, peer: Peer) -> bool {
        self.0.values().filter(|guest| guest.peer.pid == peer.pid).count() < MOST_OF_ONE
    }

    /// The one who has been silent for the longest time, if there are too many.
    pub fn one_too_many(&self) -> Option<u64> {
        self.0.keys().next().copied().filter(|_| self.0.len() > MOST_GUESTS)
    }

    /// Lets one in.
    pub fn add(&mut self, key: u64, socket: PacketSocket, peer: Peer) {
        self.0.insert(key, Guest { socket, peer, since: Instant::now() });
    }

    /// Puts one back who has not said anything after all.
    pub fn put_back(&mut self, key: u64, guest: Guest) {
        self.0.insert(key, guest);
    }

    /// Takes one out, who is no longer waited for.
    pub fn take(&mut self, key: u64, poller: &Poller) -> Option<Guest> {
        let guest = self.0.remove(&key)?;
        poller.remove(guest.socket.as_fd());
        Some(guest)
    }

    /// When the first one has been silent for too long.
    pub fn patience_ends(&self) -> Option<Instant> {
        self.0.values().next().map(|guest| guest.since + PATIENCE)
    }

    /// The first one, if it has been silent for too long.
    pub fn late(&self) -> Option<u64> {
        let late = |guest: &Guest| guest.since.elapsed() >= PATIENCE;
        self.0.iter().next().filter(|(_, guest)| late(guest)).map(|(key, _)| *key)
    }
}
