//! Slots of connections: how many each peer may have, and which one makes room for a new one.
//!
//! Connections of this program's own user are counted apart from all others, so others never take
//! their slots. A connection *waits* once its thread has found that it has no whole request. Where
//! a limit is reached, the one that has waited longest is closed: of the same peer if that peer has
//! all it may have, else of the peer that has the most. One whose request came with it doesn't
//! wait, and so is answered whatever comes behind it.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr, Shutdown, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use crate::{
    Limits,
    socket_owner::{Endpoints, SocketOwner},
};

/// Bits of an IPv6 address that its holder doesn't choose at will.
const IPV6_PREFIX: u32 = 64;
/// Maximum number of waits for new connections' threads to look for a request.
const MAX_LOOK_WAITS: u32 = 20;
/// Duration of one such wait.
const LOOK_WAIT: Duration = Duration::from_millis(1);

/// Peer at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    /// The user who runs this program, also through sudo, on the same machine.
    OwnUser,
    /// Another user of the machine.
    OtherUser(u32),
    /// Another machine, by its address; by the first 64 bits of one of IPv6.
    Machine(IpAddr),
    /// A peer that can't be told: the connection is over, or comes from another network namespace
    /// of this machine.
    Unknown,
}

impl Peer {
    /// The peer of a connection.
    pub fn of(stream: &TcpStream) -> Self {
        let Some(endpoints) = Endpoints::new(stream) else { return Self::Unknown };
        match endpoints.owner() {
            SocketOwner::OwnUser => Self::OwnUser,
            SocketOwner::OtherUser(user) => Self::OtherUser(user),
            SocketOwner::Unknown if endpoints.are_local() => Self::Unknown,
            SocketOwner::Unknown => Self::Machine(match endpoints.remote.ip().to_canonical() {
                IpAddr::V6(ip) => Ipv6Addr::from(u128::from(ip) & (u128::MAX << (128 - IPV6_PREFIX))).into(),
                ip => ip,
            }),
        }
    }
}

/// Longest body that is not counted, in bytes: connections are few, and each has at most one.
const SMALL_BODY: usize = 16 << 10;

/// Memory for bodies, by the peers that have it.
#[derive(Debug)]
struct Memory {
    max: usize,
    max_per_peer: usize,
    taken: Mutex<BTreeMap<Peer, usize>>,
}

impl Memory {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Peer, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes of bodies of one connection, out of those that all may have.
#[derive(Debug)]
pub(crate) struct Bodies {
    memory: Arc<Memory>,
    peer: Peer,
    taken: usize,
}

impl Bodies {
    #[cfg(test)]
    pub(crate) fn new(max: usize) -> Self {
        let memory = Memory { max, max_per_peer: max, taken: Mutex::default() };
        Self { memory: Arc::new(memory), peer: Peer::Unknown, taken: 0 }
    }

    #[cfg(test)]
    pub(crate) fn with_max_per_peer(self, max_per_peer: usize) -> Self {
        let memory = Memory { max: self.memory.max, max_per_peer, taken: Mutex::default() };
        Self { memory: Arc::new(memory), peer: self.peer, taken: 0 }
    }

    #[cfg(test)]
    pub(crate) fn another(&self) -> Self {
        self.of_peer(self.peer)
    }

    #[cfg(test)]
    pub(crate) fn of_peer(&self, peer: Peer) -> Self {
        Self { memory: self.memory.clone(), peer, taken: 0 }
    }

    /// Takes memory for a body. False if there is not enough.
    #[must_use]
    pub(crate) fn take(&mut self, length: usize) -> bool {
        if length <= SMALL_BODY {
            return true;
        }
        let mut taken = self.memory.lock();
        let all = taken.values().fold(length, |sum, taken| sum.saturating_add(*taken));
        let of_peer = taken.get(&self.peer).map_or(length, |taken| taken.saturating_add(length));
        if all > self.memory.max || of_peer > self.memory.max_per_peer {
            return false;
        }
        taken.insert(self.peer, of_peer);
        self.taken += length;
        true
    }
}

impl Drop for Bodies {
    fn drop(&mut self) {
        if self.taken == 0 {
            return;
        }
        let mut taken = self.memory.lock();
        let left = taken.get(&self.peer).map_or(0, |of_peer| of_peer.saturating_sub(self.taken));
        match left {
            0 => drop(taken.remove(&self.peer)),
            left => drop(taken.insert(self.peer, left)),
        }
    }
}

/// All connections that have a slot.
#[derive(Debug)]
pub(crate) struct Slots {
    table: Mutex<Table<Arc<TcpStream>>>,
    memory: Arc<Memory>,
}

impl Slots {
    pub(crate) fn new(limits: Limits) -> Self {
        let Limits { max_bodies: max, max_bodies_per_peer: max_per_peer, .. } = limits;
        let memory = Arc::new(Memory { max, max_per_peer, taken: Mutex::default() });
        Self { table: Mutex::new(Table::new(limits)), memory }
    }

    /// Gives a connection a slot, which another one may lose for it. Without room, the connection
    /// is closed.
    pub(crate) fn enter(self: &Arc<Self>, peer: Peer, stream: TcpStream) -> Option<Slot> {
        let stream = Arc::new(stream);
        for _ in 0..MAX_LOOK_WAITS {
            if self.lock().has_room(peer) {
                break;
            }
            thread::sleep(LOOK_WAIT);
        }
        let entered = self.lock().enter(peer, stream.clone())?;
        if let Some(evicted) = entered.evicted {
            // Its thread finds the end of the connection.
            let _ = evicted.shutdown(Shutdown::Both);
        }
        Some(Slot { slots: self.clone(), number: entered.number, peer, stream })
    }

    fn lock(&self) -> MutexGuard<'_, Table<Arc<TcpStream>>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Slot of one connection, given up when this is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    slots: Arc<Slots>,
    number: u64,
    pub(crate) peer: Peer,
    pub(crate) stream: Arc<TcpStream>,
}

impl Slot {
    /// Memory for the body of the next request.
    pub(crate) fn bodies(&self) -> Bodies {
        Bodies { memory: self.slots.memory.clone(), peer: self.peer, taken: 0 }
    }

    /// Notes what the connection does. False if its slot went to another connection meanwhile.
    #[must_use]
    pub(crate) fn set_state(&self, state: State) -> bool {
        self.slots.lock().set_state(self.number, state)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.lock().leave(self.number);
    }
}

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    /// No whole request has arrived, and nothing more can be read now.
    Waiting,
    /// Its thread has not looked for a request yet.
    New,
    /// Its request is answered.
    Answering,
}

/// Connections by the order of their coming.
#[derive(Debug)]
struct Table<C> {
    limits: Limits,
    next: u64,
    entries: BTreeMap<u64, Entry<C>>,
}

#[derive(Debug)]
struct Entry<C> {
    peer: Peer,
    connection: C,
    state: State,
    /// Begin of the state, as a number that grows.
    since: u64,
}

/// A slot that was given.
struct Entered<C> {
    number: u64,
    /// The connection that lost its own for it.
    evicted: Option<C>,
}

impl<C> Table<C> {
    fn new(limits: Limits) -> Self {
        Self { limits, next: 0, entries: BTreeMap::new() }
    }

    fn enter(&mut self, peer: Peer, connection: C) -> Option<Entered<C>> {
        let evicted = match self.crowded_peer(peer) {
            None => None,
            Some(crowded) => {
                let oldest = self.longest_waiting(crowded?)?;
                self.entries.remove(&oldest).map(|entry| entry.connection)
            }
        };
        let number = self.tick();
        self.entries.insert(number, Entry { peer, connection, state: State::New, since: number });
        Some(Entered { number, evicted })
    }

    /// Says whether a connection of this peer can come in without the loss of a new one.
    fn has_room(&self, peer: Peer) -> bool {
        let is_waiting =
            |number| self.entries.get(&number).is_some_and(|entry| entry.state == State::Waiting);
        match self.crowded_peer(peer) {
            None => true,
            Some(crowded) => {
                let slot = crowded.and_then(|peer| self.longest_waiting(peer));
                slot.is_none_or(is_waiting)
            }
        }
    }

    /// Returns the peer that is to give up a slot, where there is no room for another connection
    /// of a peer.
    fn crowded_peer(&self, peer: Peer) -> Option<Option<Peer>> {
        let is_own = peer == Peer::OwnUser;
        let max = if is_own { self.limits.max_connections } else { self.limits.max_per_peer };
        if self.count(|other| other == peer) >= max {
            return Some(Some(peer));
        }
        let is_full = self.count(|other| (other == Peer::OwnUser) == is_own) >= self.limits.max_connections;
        let others = self.entries.values().filter(|entry| entry.peer != Peer::OwnUser);
        let waiting = others.filter(|entry| entry.state != State::Answering).map(|entry| entry.peer);
        is_full.then(|| waiting.max_by_key(|peer| self.count(|other| other == *peer)))
    }

    fn count(&self, is_counted: impl Fn(Peer) -> bool) -> usize {
        self.entries.values().filter(|entry| is_counted(entry.peer)).count()
    }

    /// Returns the connection of a peer that makes room, if one may: the first to wait, else the
    /// first to come.
    fn longest_waiting(&self, peer: Peer) -> Option<u64> {
        let of_peer = self.entries.iter().filter(|(_, entry)| entry.peer == peer);
        let idle = of_peer.filter(|(_, entry)| entry.state != State::Answering);
        idle.min_by_key(|(_, entry)| (entry.state, entry.since)).map(|(number, _)| *number)
    }

    fn set_state(&mut self, number: u64, state: State) -> bool {
        let now = self.tick();
        let Some(entry) = self.entries.get_mut(&number) else { return false };
        // A byte more of a request doesn't make it younger.
        if entry.state != state {
            (entry.state, entry.since) = (state, now);
        }
        true
    }

    fn leave(&mut self, number: u64) {
        self.entries.remove(&number);
    }

    fn tick(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MAX: usize = 8;
    const MAX_PER_PEER: usize = 3;

    fn table() -> Table<u32> {
        Table::new(Limits {
            max_connections: MAX,
            max_per_peer: MAX_PER_PEER,
            request_timeout: Duration::ZERO,
            idle_timeout: None,
            answer_timeout: Duration::ZERO,
            min_bytes_per_second: None,
            min_body_bytes_per_second: None,
            max_body: 0,
            max_bodies: 0,
            max_bodies_per_peer: 0,
        })
    }

    #[test]
    fn given_a_peer_with_all_its_places_then_its_longest_waiting_connection_makes_room() {
        let mut table = table();
        let peer = Peer::OtherUser(7);
        let numbers: Vec<u64> = (0..3).map(|name| table.enter(peer, name).unwrap().number).collect();
        // The first has a request by now, and the second waits again.
        assert!(table.set_state(numbers[0], State::Answering));
        assert!(table.set_state(numbers[2], State::Waiting) && table.set_state(numbers[1], State::Waiting));
        // It sends another byte.
        assert!(table.set_state(numbers[2], State::Waiting));
        assert_eq!(table.enter(peer, 3).unwrap().evicted, Some(2));
        assert!(table.has_room(peer));
        assert_eq!(table.enter(peer, 4).unwrap().evicted, Some(1));
        assert!(!table.set_state(numbers[1], State::Answering), "its slot is another one's");
        assert!(!table.has_room(peer), "all that are left are new");
        assert_eq!(table.enter(peer, 5).unwrap().evicted, Some(3));
        assert_eq!(table.count(|other| other == peer), MAX_PER_PEER);
    }

    #[test]
    fn given_a_peer_whose_requests_are_all_answered_then_it_gets_no_more() {
        let mut table = table();
        let peer = Peer::Machine([10, 0, 0, 1].into());
        for name in 0..3 {
            let number = table.enter(peer, name).unwrap().number;
            assert!(table.set_state(number, State::Answering));
        }
        assert!(table.enter(peer, 3).is_none());
        assert!(table.enter(Peer::OtherUser(1), 4).unwrap().evicted.is_none());
    }

    #[test]
    fn given_very_many_peers_then_the_one_with_most_places_makes_room_and_never_our_user() {
        let mut table = table();
        (0..MAX as u32).for_each(|name| assert!(table.enter(Peer::OwnUser, name).is_some()));
        for name in 100..103 {
            table.enter(Peer::OtherUser(1), name).unwrap();
        }
        (0..200).for_each(|user| assert!(table.enter(Peer::OtherUser(1000 + user), user).is_some()));
        assert_eq!(table.count(|peer| peer == Peer::OwnUser), MAX);
        assert_eq!(table.count(|peer| peer != Peer::OwnUser), MAX);
        assert_eq!(table.count(|peer| peer == Peer::OtherUser(1)), 1, "it had the most");
        // And the other way round: our own user takes no slot of theirs.
        assert_eq!(table.enter(Peer::OwnUser, 300).unwrap().evicted, Some(0));
        assert_eq!(table.count(|peer| peer != Peer::OwnUser), MAX);
    }

    #[test]
    fn given_a_place_that_is_given_up_then_another_connection_has_it() {
        let mut table = table();
        let numbers: Vec<u64> = (0..3).map(|name| table.enter(Peer::Unknown, name).unwrap().number).collect();
        table.leave(numbers[1]);
        assert!(table.enter(Peer::Unknown, 3).unwrap().evicted.is_none());
    }
}
