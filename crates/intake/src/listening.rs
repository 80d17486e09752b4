//! Listening under names that programs know beforehand, where other users may have taken some.

use std::{
    io, thread,
    time::{Duration, Instant},
};

use tompion_os::{Listener, PacketSocket, Peer};

/// Time for which a name that is taken may be without a listening socket: a session that is being
/// set up has the name for a moment before it listens.
const SETUP_TIMEOUT: Duration = Duration::from_millis(20);
/// Time between two looks at such a name.
const SETUP_INTERVAL: Duration = Duration::from_millis(1);

/// Holder of a name that is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A session that the programs believe.
    Session,
    /// A process of another user, or a socket of which the kernel doesn't tell the user.
    Stranger(Option<Peer>),
}

/// Result of the search for a free name.
#[derive(Debug)]
pub struct Search {
    /// The name that was free, with its listening socket.
    pub found: Option<(String, Listener)>,
    /// Names that sessions have which the programs believe.
    pub sessions: u32,
    /// Names that other users have.
    pub strangers: u32,
    /// Program of another user that was met, as far as the kernel tells.
    pub stranger: Option<Peer>,
}

impl Search {
    /// Describes the strangers: `user 1000, process 42`.
    pub fn describe_stranger(&self) -> String {
        self.stranger.map_or_else(
            || "by a user that the kernel can't name".to_owned(),
            |peer| format!("by user {}, process {}", peer.uid, peer.pid),
        )
    }
}

/// Listens under the first name that is free. Names are looked at in order, until `max_sessions`
/// have a session that programs of `user` believe.
pub fn listen(names: impl Iterator<Item = String>, user: u32, max_sessions: u32) -> io::Result<Search> {
    let mut search = Search { found: None, sessions: 0, strangers: 0, stranger: None };
    for name in names {
        match Listener::bind(&name) {
            Ok(listener) => {
                search.found = Some((name, listener));
                return Ok(search);
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => match holder(&name, user) {
                Holder::Session => search.sessions += 1,
                Holder::Stranger(peer) => {
                    search.strangers += 1;
                    search.stranger = search.stranger.or(peer);
                }
            },
            Err(error) => return Err(error),
        }
        if search.sessions == max_sessions {
            break;
        }
    }
    Ok(search)
}

/// Asks the kernel whose socket has a name. Programs of a user believe root and that user.
fn holder(name: &str, user: u32) -> Holder {
    let began = Instant::now();
    loop {
        match PacketSocket::connect_at_once(name).and_then(|socket| socket.peer()) {
            Ok(peer) if peer.uid == 0 || peer.uid == user && tompion_os::is_one_user(user) => {
                return Holder::Session;
            }
            Ok(peer) => return Holder::Stranger(Some(peer)),
            Err(error)
                if error.kind() == io::ErrorKind::ConnectionRefused && began.elapsed() < SETUP_TIMEOUT =>
            {
                thread::sleep(SETUP_INTERVAL);
            }
            Err(_) => return Holder::Stranger(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Any user's number but this process's and root's.
    const OTHER: u32 = 12345;

    fn names(what: &str) -> Vec<String> {
        (0..4).map(|number| format!("tompion-test-{what}-{}-{number}", std::process::id())).collect()
    }

    #[test]
    fn a_free_name_is_taken_and_sessions_are_counted() {
        let (names, own) = (names("free"), tompion_os::effective_user());
        let first = listen(names.iter().cloned(), own, 4).unwrap();
        assert_eq!(first.found.as_ref().unwrap().0, names[0]);
        let second = listen(names.iter().cloned(), own, 4).unwrap();
        assert_eq!((second.found.as_ref().unwrap().0.as_str(), second.sessions), (&*names[1], 1));
        let third = listen(names.iter().cloned(), own, 2).unwrap();
        assert_eq!((third.found.is_none(), third.sessions, third.strangers), (true, 2, 0));
    }

    #[test]
    fn strangers_are_passed_over_and_described() {
        let names = names("strangers");
        let own = tompion_os::effective_user();
        if own == 0 {
            // Programs of every user believe root.
            return eprintln!("SKIPPED, root is no stranger");
        }
        let _taken = Listener::bind(&names[0]).unwrap();
        let search = listen(names.iter().cloned(), OTHER, 1).unwrap();
        assert_eq!((search.found.as_ref().unwrap().0.as_str(), search.strangers), (&*names[1], 1));
        assert_eq!(search.describe_stranger(), format!("by user {own}, process {}", std::process::id()));
    }
}
