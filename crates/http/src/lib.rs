//! HTTP/1.1 server for hostile surroundings: every connection counts for its peer, and every wait
//! has an end.
//!
//! ```text
//! accept thread ──peer?──► Slots ──room──► thread per connection ──Request──► program's function
//!                            │ full: the peer's longest waiting connection is closed
//! ```
//!
//! [`Server::run`] accepts in the calling thread, which does nothing else. A connection has a
//! thread while it has a slot. It loses the slot when no whole request arrives in time, or when
//! the answer isn't taken in time. It loses it, too, when a new connection needs the slot while
//! this one has no request. So silent and slow connections keep no others out, and one user's never
//! take the slots of another's. With [`Server::with_tls`], connections speak TLS; its handshake is
//! part of the time for the first request. The meaning of requests, and permissions, are left to
//! the program.
#![forbid(unsafe_code)]

mod connection;
mod message;
mod slots;
mod socket_owner;

use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    sync::Arc,
    thread,
    time::Duration,
};

pub use message::{Body, Query, Request, Response};
pub use rustls::ServerConfig;
pub use slots::Peer;
use slots::Slots;

/// Pause after a connection could not be accepted: descriptors may be given back meanwhile.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Bounds on what peers may use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of connections of this program's own user, and again of all other peers
    /// together.
    pub max_connections: usize,
    /// Maximum number of connections of one other user of this machine, or of one address.
    pub max_per_peer: usize,
    /// Time for a whole request, from the connection's beginning or from the request's first byte.
    pub request_timeout: Duration,
    /// Time that a connection stays open between two requests. Without it, each connection has one
    /// request.
    pub idle_timeout: Option<Duration>,
    /// Time for an answer to be taken, beside what its length allows.
    pub answer_timeout: Duration,
    /// Slowest rate at which an answer may be taken; a peer gets that much more time. Without it,
    /// it gets none.
    pub min_bytes_per_second: Option<u64>,
    /// Slowest rate at which a request's body may come; a request with a body gets that much more
    /// time. Without it, it gets none.
    pub min_body_bytes_per_second: Option<u64>,
    /// Maximum length of a request's body in bytes.
    pub max_body: usize,
    /// Maximum number of bytes of all bodies that are in memory at one time. A request beyond it is
    /// answered with 503.
    pub max_bodies: usize,
    /// Maximum number of bytes of the bodies of one peer among them.
    pub max_bodies_per_peer: usize,
}

/// Maximum length of a body that programs for browsers and scrapers need, in bytes.
pub const MAX_BODY: usize = 1 << 20;
/// Maximum number of bytes of all their bodies at one time.
pub const MAX_BODIES: usize = 64 * MAX_BODY;

/// Function that answers requests.
pub type Answer = Arc<dyn Fn(&Request) -> Response + Send + Sync>;

/// Check of a request by its head, before its body is read: an answer to one that is refused.
pub type Gate = Arc<dyn Fn(&Request) -> Result<(), Response> + Send + Sync>;

/// Program's part in a connection.
#[derive(Clone)]
pub(crate) struct Program {
    pub(crate) gate: Option<Gate>,
    pub(crate) answer: Answer,
}

/// Listening socket and the connections that came of it.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    limits: Limits,
    slots: Arc<Slots>,
    tls: Option<Arc<ServerConfig>>,
}

impl Server {
    /// Listens at an address; port 0 takes one that is free.
    ///
    /// # Errors
    /// If the address can't be listened on.
    pub fn bind(address: SocketAddr, limits: Limits) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address, limits, slots: Arc::new(Slots::new(limits)), tls: None })
    }

    /// Has all connections speak TLS.
    #[must_use]
    pub fn with_tls(self, config: Arc<ServerConfig>) -> Self {
        Self { tls: Some(config), ..self }
    }

    /// The address that is listened on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts connections and has their requests answered, for ever.
    pub fn run(&self, answer: &Answer) -> ! {
        self.run_program(&Program { gate: None, answer: answer.clone() })
    }

    /// The same; requests are checked by their heads before their bodies are read.
    pub fn run_with_gate(&self, gate: &Gate, answer: &Answer) -> ! {
        self.run_program(&Program { gate: Some(gate.clone()), answer: answer.clone() })
    }

    fn run_program(&self, program: &Program) -> ! {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => self.admit(stream, program.clone()),
                Err(_) => thread::sleep(ACCEPT_RETRY_INTERVAL),
            }
        }
    }

    /// Begins a connection's thread if its peer may have one more.
    fn admit(&self, stream: TcpStream, program: Program) {
        let Some(slot) = self.slots.enter(Peer::of(&stream), stream) else { return };
        let limits = self.limits;
        let tls = self.tls.clone();
        let serve = move || connection::serve(&slot, &limits, tls, &program);
        // Where no thread can be begun, the slot is given up with the closure.
        let _ = thread::Builder::new().name("http".into()).spawn(serve);
    }
}
