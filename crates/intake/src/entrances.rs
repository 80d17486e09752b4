//! Sockets by which programs find a session, and refusals there.

use std::{collections::BTreeMap, io, os::fd::AsFd as _, sync::Arc};

use tompion_control as control;
use tompion_keeper::Keeper;
use tompion_os::{Listener, PacketSocket, Poller};
use tompion_programs::JoinSocket;
use tompion_protocol::names;

use crate::listening;

/// Kind of a listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entrance {
    /// Under the session's own name, which stands in the environment of its command, and which
    /// running programs are given.
    OwnName,
    /// Under a name or in a folder where all programs look.
    Public,
}

/// Reason why a program is refused before it says anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// It is none that the recording wants.
    NotWanted,
    /// It belongs to another user.
    OtherUser,
    /// It is in a pid namespace that the recorder doesn't see.
    Invisible,
}

impl Refusal {
    /// The reason, for the program and for users.
    pub const fn text(self) -> &'static str {
        match self {
            Self::NotWanted => "not among the programs to record",
            Self::OtherUser => "another user's session",
            Self::Invisible => "in a pid namespace that the recorder does not see",
        }
    }
}

/// Sockets by which programs find the session.
#[derive(Debug)]
pub struct Entrances {
    listeners: Vec<(Entrance, Listener)>,
    /// Those in folders where programs look: one, or by a grant one for each user.
    join_sockets: Vec<JoinSocket>,
    refusals: BTreeMap<Refusal, u64>,
    /// Keeper of the sockets.
    keeper: Option<Arc<Keeper>>,
    /// Number by which the poller tells of connections.
    interest: u64,
}

impl Entrances {
    /// Begins with the socket that has the session's own name. `keeper` holds all of them, if there
    /// is one; the poller tells of connections by the number `interest`.
    ///
    /// # Errors
    /// The system refuses to watch the socket.
    pub fn new(
        own: Listener,
        keeper: Option<Arc<Keeper>>,
        poller: &Poller,
        interest: u64,
    ) -> io::Result<Self> {
        let (listeners, refusals) = (Vec::new(), BTreeMap::new());
        let mut entrances = Self { listeners, join_sockets: Vec::new(), refusals, keeper, interest };
        entrances.add(Entrance::OwnName, own, poller)?;
        Ok(entrances)
    }

    fn add(&mut self, entrance: Entrance, listener: Listener, poller: &Poller) -> io::Result<()> {
        listener.refuse_descriptors();
        poller.add(listener.as_fd(), self.interest)?;
        if let Some(keeper) = &self.keeper {
            let _ = keeper.hold_listener(self.listeners.len() as u64, &listener);
        }
        self.listeners.push((entrance, listener));
        Ok(())
    }

    /// Adds a socket of a recorder that was killed, where all programs look.
    ///
    /// # Errors
    /// The system refuses to watch it.
    pub fn adopt(&mut self, listener: Listener, poller: &Poller) -> io::Result<()> {
        self.add(Entrance::Public, listener, poller)
    }

    /// Takes over the socket of a recorder that was killed in the folder where programs look.
    ///
    /// # Errors
    /// No listener was bound there, or the folder is not where programs look.
    pub fn adopt_join_socket(&mut self, name: &str, listeners: &[Listener]) -> io::Result<()> {
        self.join_sockets = vec![JoinSocket::adopt(name, listeners)?];
        Ok(())
    }

    /// Name of the socket in the folder where programs look. One by a grant is not taken over.
    pub fn join_socket(&self) -> Option<&str> {
        self.join_sockets.first().map(JoinSocket::name)
    }

    /// Number of sockets.
    pub fn count(&self) -> usize {
        self.listeners.len()
    }

    /// Returns the next connection at a socket, if one waits.
    ///
    /// # Errors
    /// The system has no descriptors or memory for it.
    pub fn accept(&self, index: usize) -> io::Result<Option<(Entrance, PacketSocket)>> {
        let Some((entrance, listener)) = self.listeners.get(index) else { return Ok(None) };
        Ok(listener.accept()?.map(|socket| (*entrance, socket)))
    }

    /// Lets no program find the session any more.
    pub fn close(&mut self) {
        self.listeners.clear();
        self.join_sockets.clear();
    }

    /// Counts a program that is refused.
    pub fn refuse(&mut self, refusal: Refusal) {
        let count = self.refusals.entry(refusal).or_default();
        *count = count.saturating_add(1);
    }

    /// Number of refused programs by reason.
    pub fn refusals(&self) -> Vec<control::Refusal> {
        let refusals = self.refusals.iter();
        refusals
            .map(|(refusal, count)| control::Refusal { reason: refusal.text().into(), programs: *count })
            .collect()
    }

    /// Listens in the folder where all programs look, or where those of some users look for
    /// recorders by grants. Returns why that can't be.
    pub fn open_join_sockets(
        &mut self,
        label: &str,
        granted: Option<&[u32]>,
        poller: &Poller,
    ) -> Option<String> {
        let random = uuid::Uuid::new_v4().as_u64_pair().0;
        let mut add = |opened: io::Result<(JoinSocket, Listener)>| {
            let (socket, listener) = opened?;
            self.add(Entrance::Public, listener, poller)?;
            self.join_sockets.push(socket);
            Ok(())
        };
        let opened: io::Result<()> = match granted {
            None => add(JoinSocket::listen(label, random)),
            Some(users) => {
                users.iter().try_for_each(|user| add(JoinSocket::listen_by_grant(label, random, *user)))
            }
        };
        opened.err().map(|error| error.to_string())
    }

    /// Listens under the first free name where programs of a user look. Returns what is in the way,
    /// where other users have all those names.
    ///
    /// # Errors
    /// Sessions of that user have them, or the system refuses a socket.
    pub fn open_numbered(&mut self, user: u32, poller: &Poller) -> io::Result<Option<String>> {
        const MAX: u32 = names::MAX_OPEN_SESSIONS;
        let names = (0..MAX).map(|number| names::open_session(user, number));
        let search = listening::listen(names, user, MAX)?;
        let stranger = search.describe_stranger();
        match search.found {
            Some((_, listener)) => self.add(Entrance::Public, listener, poller).map(|()| None),
            None if search.strangers == 0 => {
                let text = format!("{MAX} sessions already record the programs of user {user}");
                Err(io::Error::other(text))
            }
            None => {
                let first = names::open_session(user, 0);
                let count = search.strangers;
                Ok(Some(format!(
                    "{count} of the {MAX} names where programs of user {user} look for sessions ({first} to {}) are \
                     taken {stranger}",
                    MAX - 1
                )))
            }
        }
    }
}
