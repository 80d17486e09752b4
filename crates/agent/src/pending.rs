//! Sessions that the process has not joined yet: handshakes without an answer, and retries.

use std::time::{Duration, Instant};

use tompion_os::{Identity, PacketSocket};
use tompion_protocol::{MAX_RECORDINGS, message::Origin};

/// Maximum number of handshakes without an answer.
pub const MAX_PENDING: usize = 8;
/// Time for which the background thread retries a session that did not answer in time.
pub const RETRY_TIMEOUT: Duration = Duration::from_secs(5);
/// Time between two retries.
pub const RETRY_INTERVAL: Duration = Duration::from_millis(10);
/// Maximum number of sessions that are retried at a time.
pub const MAX_RETRIES: usize = MAX_RECORDINGS;

/// Connection on which `Hello` was sent and no answer has come yet.
#[derive(Debug)]
pub struct Pending {
    socket: PacketSocket,
    identity: Option<Identity>,
    /// The name under which the session listens.
    pub name: String,
    /// Origin of the connection.
    pub origin: Origin,
}

/// Session that is being started, or that had no room for one more connection.
#[derive(Debug)]
pub struct RetryLater {
    /// The name under which it listens.
    pub name: String,
    /// Origin of the connection.
    pub origin: Origin,
    /// Whether the name is the first one of a folder's session, which may have further ones.
    pub is_folder_session: bool,
    /// Time at which the retries end.
    pub deadline: Instant,
}

impl Pending {
    /// Remembers a connection whose `Hello` was sent.
    pub fn new(socket: PacketSocket, name: &str, origin: Origin) -> Self {
        Self { identity: socket.identity(), socket, name: name.to_owned(), origin }
    }

    /// The socket, as long as the descriptor is still the agent's.
    pub fn socket(&self) -> Option<&PacketSocket> {
        let ours = self.identity.is_some() && self.socket.identity() == self.identity;
        ours.then_some(&self.socket)
    }

    /// Takes the connection over into the calling thread's descriptor table, unless it is there.
    pub fn take_back(&mut self, socket: PacketSocket) {
        if socket.identity() == self.identity && self.socket().is_none() {
            std::mem::forget(std::mem::replace(&mut self.socket, socket.move_away()));
        }
    }

    /// The connection and the session's name.
    pub fn into_parts(self) -> (PacketSocket, String) {
        (self.socket, self.name)
    }

    /// Closes the connection, unless the program has done so.
    pub fn close(self) {
        self.socket.close_if_still(self.identity);
    }
}
