//! The user at the other end of a connection from this machine, by the kernel's tables of sockets.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpStream};

/// The kernel's tables of sockets. One that was made for IPv6 may be connected by IPv4.
const TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];
/// Their word for a connection whose both ends are open. Of others, no user is known, and they say
/// it is root.
const ESTABLISHED: &str = "01";
/// Maximum number of readings of a table without the socket: a table that changes may leave it out.
const MAX_READINGS: usize = 3;

/// The ends of a connection, as this one of them sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Endpoints {
    /// Address of the peer.
    pub(crate) remote: SocketAddr,
    /// The address that was asked.
    pub(crate) local: SocketAddr,
}

/// Owner of the other end's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketOwner {
    /// The user that runs this program, also through sudo.
    OwnUser,
    /// Another user of the machine.
    OtherUser(u32),
    /// No known user of this machine.
    Unknown,
}

impl Endpoints {
    /// Returns both addresses of a connection; `None` if it is closed.
    pub(crate) fn new(stream: &TcpStream) -> Option<Self> {
        Some(Self { remote: stream.peer_addr().ok()?, local: stream.local_addr().ok()? })
    }

    /// Returns the owner of the other end.
    pub(crate) fn owner(self) -> SocketOwner {
        // No table has the other end of a connection from another machine.
        let readings = if self.are_local() { MAX_READINGS } else { 0 };
        match (0..readings).find_map(|_| TABLES.iter().find_map(|table| self.find(table))) {
            Some(user) if is_own(user) => SocketOwner::OwnUser,
            Some(user) => SocketOwner::OtherUser(user),
            None => SocketOwner::Unknown,
        }
    }

    /// Says whether both ends are of this machine. The kernel chooses one address for both unless a
    /// peer insists.
    pub(crate) fn are_local(self) -> bool {
        let (remote, local) = (self.remote.ip().to_canonical(), self.local.ip().to_canonical());
        remote.is_loopback() || remote == local
    }

    fn find(self, table: &str) -> Option<u32> {
        let lines = BufReader::new(File::open(table).ok()?).lines();
        lines.map_while(Result::ok).find_map(|line| self.user(&line))
    }

    /// The user of a table's line, if that is the other end's socket:
    ///
    /// ```text
    /// 3: 0100007F:D2F0 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 ...
    ///    its address   the other's   state                                      user
    /// ```
    fn user(self, line: &str) -> Option<u32> {
        let mut words = line.split_ascii_whitespace();
        let (its, others, state) = (words.nth(1)?, words.next()?, words.next()?);
        let user = words.nth(3)?;
        let is_it = state == ESTABLISHED
            && address(its)? == plain(self.remote)
            && address(others)? == plain(self.local);
        user.parse().ok().filter(|_| is_it)
    }
}

/// Says whether a user runs this program, also through sudo.
fn is_own(user: u32) -> bool {
    let own = rustix::process::getuid();
    let of_sudo = || std::env::var("SUDO_UID").ok()?.parse().ok();
    user == own.as_raw() || own.is_root() && of_sudo() == Some(user)
}

/// An address of a table: its bytes as numbers of 32 bits each in the order of this machine.
fn address(text: &str) -> Option<(IpAddr, u16)> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| Some(u32::from_str_radix(ip.get(8 * at..8 * at + 8)?, 16).ok()?.to_ne_bytes());
    let ip = match ip.len() {
        8 => IpAddr::from(word(0)?),
        32 => {
            let mut bytes = [0; 16];
            for (at, four) in bytes.chunks_exact_mut(4).enumerate() {
                four.copy_from_slice(&word(at)?);
            }
            Ipv6Addr::from(bytes).to_canonical()
        }
        _ => return None,
    };
    Some((ip, port))
}

/// An address as those of tables are: what is IPv4 within IPv6 is IPv4.
fn plain(address: SocketAddr) -> (IpAddr, u16) {
    (address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn ends(other: &str, own: &str) -> Endpoints {
        Endpoints { remote: other.parse().unwrap(), local: own.parse().unwrap() }
    }

    /// A line of a table, with addresses as this machine writes them.
    fn line(its: &str, others: &str, state: &str) -> String {
        let written = |address: &str| {
            let address: SocketAddr = address.parse().unwrap();
            let bytes = match address.ip() {
                IpAddr::V4(ip) => ip.octets().to_vec(),
                IpAddr::V6(ip) => ip.octets().to_vec(),
            };
            let word = |four: &[u8]| format!("{:08X}", u32::from_ne_bytes(four.try_into().unwrap()));
            format!("{}:{:04X}", bytes.chunks(4).map(word).collect::<String>(), address.port())
        };
        let (its, others) = (written(its), written(others));
        format!("   3: {its} {others} {state} 00000000:00000000 00:00000000 00000000  1000        0 7 1 0")
    }

    #[test]
    fn a_line_tells_whose_the_other_end_is() {
        let ends = ends("127.0.0.1:54000", "127.0.0.1:8080");
        assert_eq!(ends.user(&line("127.0.0.1:54000", "127.0.0.1:8080", "01")), Some(1000));
        // Our own end, another connection, and one that is over, which has no user.
        assert_eq!(ends.user(&line("127.0.0.1:8080", "127.0.0.1:54000", "01")), None);
        assert_eq!(ends.user(&line("127.0.0.1:54001", "127.0.0.1:8080", "01")), None);
        assert_eq!(ends.user(&line("127.0.0.2:54000", "127.0.0.1:8080", "01")), None);
        assert_eq!(ends.user(&line("127.0.0.1:54000", "127.0.0.1:8080", "06")), None);
        for odd in
            ["", "sl  local_address rem_address   st", "1: x:y z:1 01 a b c 7", "1: 0:0 0:0 01 a b c 7"]
        {
            assert_eq!(ends.user(odd), None, "{odd}");
        }
    }

    #[test]
    fn addresses_of_both_kinds_are_known() {
        let both = ends("[::1]:54000", "[::1]:8080");
        assert_eq!(both.user(&line("[::1]:54000", "[::1]:8080", "01")), Some(1000));
        // A server on all addresses sees those of IPv4 so, and the table has them either way.
        let mapped = ends("[::ffff:127.0.0.1]:54000", "[::ffff:127.0.0.1]:8080");
        assert_eq!(mapped.user(&line("127.0.0.1:54000", "127.0.0.1:8080", "01")), Some(1000));
        let written = line("[::ffff:127.0.0.1]:54000", "[::ffff:127.0.0.1]:8080", "01");
        assert_eq!(mapped.user(&written), Some(1000));
    }

    #[test]
    fn a_connection_of_this_program_is_its_own() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        assert_eq!(Endpoints::new(&server).unwrap().owner(), SocketOwner::OwnUser);
        drop(client);
        assert_eq!(
            Endpoints::new(&server).map_or(SocketOwner::Unknown, Endpoints::owner),
            SocketOwner::Unknown
        );
    }
}
