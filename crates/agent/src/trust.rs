//! Sessions that this process believes: the kernel tells which user listens under a name.
//!
//! A session gets what the program records, and its memory becomes the program's. So it may belong
//! to root and to the user who could debug the program, and to no other. Every connection begins
//! here, whatever named the session: the environment, a parent, a request, a number.
//!
//! The user whose recorder put a name into the environment is always one of the two. Between two
//! other users stands a program that changed its user by rights that its starter doesn't have. Its
//! own children may not notice, and must not follow the starter.

use std::{
    io,
    time::{Duration, Instant},
};

use tompion_os::PacketSocket;

/// Time between two attempts to connect where the session's queue is full.
const RETRY_INTERVAL: Duration = Duration::from_millis(1);

/// Returns whether this program was started with more rights than its starter has. It follows
/// nothing that the starter says, and only root records it.
pub fn is_secure_exec() -> bool {
    tompion_os::is_privileged_start()
}

/// Returns whether this process takes part in a session of the user: root's, and those of the user
/// that it has been since its start.
pub fn believes(user: u32) -> bool {
    user == 0 || !is_secure_exec() && tompion_os::steady_user() == Some(user) && tompion_os::is_one_user(user)
}

/// Connects to a session that this process believes, without waiting.
///
/// # Errors
/// - `ConnectionRefused`: no socket listens there.
/// - `PermissionDenied`: another user has the name.
/// - `WouldBlock`: so many connections wait there that one more has no room. Which user has the
///   name can't be told then.
pub fn connect(name: &str) -> io::Result<PacketSocket> {
    let socket = PacketSocket::connect_at_once(name)?;
    if believes(socket.peer()?.uid) {
        return Ok(socket);
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, "another user has the session's name"))
}

/// As [`connect`], but waits until then for room in the queue. Only for names that no other user
/// can have: it would decide how long this takes.
pub fn connect_by(name: &str, deadline: Instant) -> io::Result<PacketSocket> {
    loop {
        match connect(name) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline => {
                std::thread::sleep(RETRY_INTERVAL);
            }
            result => return result,
        }
    }
}
