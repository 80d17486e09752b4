//! Admission: which processes may take part, by what the kernel says of them.

use tompion_os::{PacketSocket, Peer};
use tompion_programs::{Program, process_user};

use super::ClientAcceptor;
use crate::entrances::{Entrance, Refusal};
use crate::target::{self, Admission};

impl ClientAcceptor {
    /// Whether a process would be let in.
    pub fn would_admit(&self, pid: u32) -> bool {
        match &self.config.programs {
            Some(sets) => process_user(pid).is_some_and(|user| sets.want(Program { pid, user })),
            None => target::is_of(pid, &self.config.users) && self.config.admission.admits(pid),
        }
    }

    /// Reason why a process that has connected is refused, if it is.
    pub(super) fn refusal(&self, entrance: Entrance, socket: &PacketSocket, peer: Peer) -> Option<Refusal> {
        let Some(sets) = &self.config.programs else {
            let is_wanted = || self.config.admission.admits(peer.pid) || target::is_gone(peer.pid);
            return match self.is_permitted(socket, peer) {
                false => Some(Refusal::OtherUser),
                true if entrance == Entrance::Public && !is_wanted() => Some(Refusal::NotWanted),
                true => None,
            };
        };
        // The name is known to the command, and to programs that it starts.
        if entrance == Entrance::OwnName && self.config.has_command && self.is_permitted(socket, peer) {
            return None;
        }
        let own = tompion_os::effective_user();
        if peer.pid == 0 {
            return Some(Refusal::Invisible);
        }
        if own != 0 && peer.uid != own || !tompion_os::is_one_user(peer.uid) {
            return Some(Refusal::OtherUser);
        }
        let is_wanted = sets.want(Program { pid: peer.pid, user: peer.uid });
        // If it is alive now, the facts are its own, and not those of a later process of its id.
        let is_alive = || socket.peer_watch().is_ok_and(|process| !process.has_ended());
        (!(is_wanted && is_alive())).then_some(Refusal::NotWanted)
    }

    /// Whether a process is a living client or descends from one: it has changed its user, and is
    /// recorded on.
    fn is_descendant(&self, pid: u32) -> bool {
        Admission::ProcessTree(self.clients.values().map(|client| client.pid).collect()).admits(pid)
    }

    /// Whether a process is one of the session's users', or descends from one that is recorded.
    ///
    /// A descendant is known by its number, which another process may have got since: the one that
    /// connected has to be alive, so the number is still its own.
    fn is_permitted(&self, socket: &PacketSocket, peer: Peer) -> bool {
        let is_user = self.config.users.contains(&peer.uid) && tompion_os::is_one_user(peer.uid);
        let is_alive = || socket.peer_watch().is_ok_and(|process| !process.has_ended());
        is_user || self.is_descendant(peer.pid) && is_alive()
    }
}

/// Whether a process descends from this one, which has started the command.
pub(super) fn is_own_descendant(pid: u32) -> bool {
    Admission::ProcessTree(vec![std::process::id()]).admits(pid)
}
