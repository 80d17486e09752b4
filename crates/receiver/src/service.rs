//! The service: requests become questions to the store.
//!
//! | request | answer |
//! |---|---|
//! | `PUT /v1/HOST/BOOT/SESSION/CHUNK/FILE/SEQUENCE` | 201 stored, 200 there already, 412 another one is there, 409 others must come before, 507 no room |
//! | `GET /v1/HOST/BOOT/SESSION/CHUNK` | state of the chunk as JSON: last segment of each file |
//! | `HEAD /v1/HOST/BOOT/SESSION/CHUNK/FILE` | sequence number of the last segment, and the file's length |
//! | the same with `?contents=1` | sums of the contents of its files |
//! | the same as `HEAD`, with `?from=BYTE` | bytes of the file from there on |
//! | `GET /v1/HOST/BOOT/SESSION` | chunks of the session, and their ends |
//! | `GET /v1`, with `?sessions=1` | counts of requests as JSON, sessions that may be read |

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde_json::json;
use tompion_http::{Limits, Peer, Request, Response, Server, ServerConfig};
use tompion_segments::{Conflict, FilePath, MAX_ENCODED, Name, Place, Segment, SessionPlace};

use crate::{Refusal, Right, Store, StoreLimits, Taken, Tokens};

const JSON: &str = "application/json";
/// Maximum number of bytes of segments in memory at one time, as they came; each is also there
/// decompressed while it is stored.
const MAX_BODIES: usize = 64 << 20;

/// Slowest rate at which a body may come, in bytes per second. Senders on slow links send small
/// segments.
const MIN_RATE: u64 = 1 << 10;

/// Limits on connections.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// Maximum number of connections.
    pub all: usize,
    /// Maximum number of connections of one address, or of another user of this machine.
    pub per_peer: usize,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self { all: 512, per_peer: 128 }
    }
}

/// Limits of the server.
fn server_limits(connections: ConnectionLimits) -> Limits {
    Limits {
        max_connections: connections.all,
        max_per_peer: connections.per_peer,
        request_timeout: Duration::from_secs(30),
        idle_timeout: Some(Duration::from_secs(60)),
        answer_timeout: Duration::from_secs(30),
        min_bytes_per_second: Some(MIN_RATE),
        min_body_bytes_per_second: Some(MIN_RATE),
        max_body: MAX_ENCODED,
        max_bodies: MAX_BODIES,
        // So that one address alone keeps no others out.
        max_bodies_per_peer: MAX_BODIES / 2,
    }
}

/// Rule by which peers have access.
#[derive(Clone, Debug)]
pub enum Access {
    /// Peers with one of these tokens.
    Tokens(Tokens),
    /// Peers with a certificate, which TLS has checked; in the clear, all.
    Everyone,
    /// Programs of the receiver's own user on this machine.
    OwnUser,
}

/// Configuration of a receiver.
#[derive(Debug)]
pub struct Config {
    /// Address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Folder of the store.
    pub store: PathBuf,
    /// Limits of the store.
    pub limits: StoreLimits,
    /// Limits on connections.
    pub connections: ConnectionLimits,
    /// TLS; in the clear without.
    pub tls: Option<Arc<ServerConfig>>,
    /// Access.
    pub access: Access,
}

/// Reason why a receiver can't begin.
#[derive(Debug, thiserror::Error)]
pub enum ReceiverError {
    /// The address can't be listened on.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, io::Error),
    /// The store can't be opened.
    #[error("{0}: {1}")]
    Store(PathBuf, io::Error),
}

/// Receiver that listens.
#[derive(Debug)]
pub struct Receiver {
    server: Server,
    service: Service,
}

/// Answers to requests.
#[derive(Debug)]
struct Service {
    store: Store,
    access: Access,
    counts: Mutex<Counts>,
}

/// Counts since the receiver began.
#[derive(Debug, Default)]
struct Counts {
    stored: u64,
    known: u64,
    bytes: u64,
    /// Refused requests by the status of their answer.
    refused: BTreeMap<u16, u64>,
}

impl Receiver {
    /// Listens, and opens the store.
    ///
    /// # Errors
    /// If one of them fails.
    pub fn bind(config: Config) -> Result<Self, ReceiverError> {
        let Config { listen, store, limits, connections, tls, access } = config;
        let opened = Store::open(&store, limits).map_err(|error| ReceiverError::Store(store, error))?;
        let server = Server::bind(listen, server_limits(connections));
        let server = server.map_err(|error| ReceiverError::Listen(listen, error))?;
        let server = match tls {
            Some(tls) => server.with_tls(tls),
            None => server,
        };
        Ok(Self { server, service: Service { store: opened, access, counts: Mutex::default() } })
    }

    /// Address that is listened on.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Serves for ever.
    pub fn run(self) -> ! {
        let Self { server, service } = self;
        let service = Arc::new(service);
        let checked = service.clone();
        let gate: tompion_http::Gate = Arc::new(move |request: &Request| checked.check_head(request));
        let answer: tompion_http::Answer = Arc::new(move |request: &Request| service.answer(request));
        server.run_with_gate(&gate, &answer)
    }
}

impl Service {
    fn answer(&self, request: &Request) -> Response {
        let response = self.respond(request).unwrap_or_else(|refused| refused);
        self.count_refused(response.status);
        response
    }

    fn count_refused(&self, status: u16) {
        if status >= 400 && status != 404 {
            *self.counts().refused.entry(status).or_default() += 1;
        }
    }

    /// Checks a request before its body is read, which takes memory.
    fn check_head(&self, request: &Request) -> Result<(), Response> {
        let check = || match request.method.as_str() {
            "PUT" => self.check_put(request).map(drop),
            _ if request.header("content-length").is_none_or(|length| length == "0") => Ok(()),
            _ => Err(Response::error(413, "expected a request without a body")),
        };
        check().inspect_err(|refused| self.count_refused(refused.status))
    }

    fn check_put(&self, request: &Request) -> Result<Name, Response> {
        let name = Name::parse(&request.path).map_err(|error| Response::error(400, &error.to_string()))?;
        self.check_access(request, Right::Write, name.place.session.host.as_str())?;
        if request.header("if-none-match").is_some_and(|value| value != "*") {
            return Err(Response::error(400, "expected If-None-Match: *: a segment never changes"));
        }
        Ok(name)
    }

    fn counts(&self) -> std::sync::MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn respond(&self, request: &Request) -> Result<Response, Response> {
        match request.method.as_str() {
            "PUT" => self.put(request),
            "GET" | "HEAD" if request.path == "/v1" => match request.query.text("sessions") {
                Some(_) => self.sessions(request),
                None => self.totals(request),
            },
            "GET" | "HEAD" => {
                if let Ok(session) = SessionPlace::parse(&request.path) {
                    return self.chunks(request, &session);
                }
                match Place::parse(&request.path) {
                    Ok(place) => self.chunk(request, &place),
                    Err(_) => self.file(request),
                }
            }
            _ => Err(Response::error(405, "expected PUT, GET or HEAD")),
        }
    }

    fn totals(&self, request: &Request) -> Result<Response, Response> {
        self.check_access(request, Right::Write, "")?;
        let Counts { stored, known, bytes, refused } = &*self.counts();
        let page = json!({ "stored": stored, "known": known, "bytes": bytes, "refused": refused });
        Ok(Response::new(200, JSON, page.to_string()))
    }

    /// Sessions of hosts on which the peer may read or follow.
    fn sessions(&self, request: &Request) -> Result<Response, Response> {
        let may = |place: &SessionPlace| self.check_reader(request, place.host.as_str());
        let (mut sessions, mut refused) = (Vec::new(), None);
        for place in self.store.session_places() {
            match may(&place) {
                Ok(()) => sessions.push(place.to_string()),
                Err(response) => drop(refused.get_or_insert(response)),
            }
        }
        match refused {
            // A peer without any right is told so, and not that there is nothing.
            Some(response) if sessions.is_empty() => Err(response),
            _ => Ok(Response::new(200, JSON, json!({ "sessions": sessions }).to_string())),
        }
    }

    fn chunks(&self, request: &Request, session: &SessionPlace) -> Result<Response, Response> {
        self.check_reader(request, session.host.as_str())?;
        let chunks = self.store.chunks(session).map_err(|refusal| refuse(&refusal))?;
        Ok(Response::new(200, JSON, json!({ "chunks": chunks }).to_string()))
    }

    /// Checks that the peer has a right on a host's recordings.
    fn check_access(&self, request: &Request, right: Right, host: &str) -> Result<(), Response> {
        match &self.access {
            Access::Everyone => Ok(()),
            Access::OwnUser if request.peer == Peer::OwnUser => Ok(()),
            Access::OwnUser => Err(Response::error(403, "expected a program of the receiver's own user")),
            Access::Tokens(tokens) => {
                let header = request.header("authorization").unwrap_or_default();
                let token = header.strip_prefix("Bearer ").unwrap_or_default();
                match tokens.allow(token, right, host) {
                    Some(true) => Ok(()),
                    Some(false) => Err(Response::error(403, "expected a token with this right on this host")),
                    None => Err(Response::error(401, "expected a token that the receiver knows")),
                }
            }
        }
    }

    fn put(&self, request: &Request) -> Result<Response, Response> {
        let wrong = |error: &dyn std::fmt::Display| Response::error(400, &error.to_string());
        let name = self.check_put(request)?;
        let segment = Segment::decode(name, &request.body).map_err(|error| wrong(&error))?;
        let taken = self.store.put(&segment).map_err(|refusal| {
            log::debug!("{}: {refusal}", segment.name.to_key());
            refuse(&refusal)
        })?;
        let mut counts = self.counts();
        match taken {
            Taken::Stored => {
                counts.stored += 1;
                counts.bytes = counts.bytes.saturating_add(segment.content.len() as u64);
                Ok(Response::new(201, JSON, "{}"))
            }
            Taken::Known => {
                counts.known += 1;
                Ok(Response::new(200, JSON, "{}"))
            }
        }
    }

    /// Checks that the peer may know what there is of a host.
    fn check_reader(&self, request: &Request, host: &str) -> Result<(), Response> {
        let check = |right| self.check_access(request, right, host);
        check(Right::Write).or_else(|_| check(Right::Read)).or_else(|_| check(Right::Live))
    }

    fn chunk(&self, request: &Request, place: &Place) -> Result<Response, Response> {
        self.check_reader(request, place.session.host.as_str())?;
        if request.query.text("contents").is_some() {
            let contents = self.store.contents(place).map_err(|refusal| refuse(&refusal))?;
            let sums: BTreeMap<&str, String> =
                contents.iter().map(|(path, sum)| (path.as_str(), sum.to_string())).collect();
            return Ok(Response::new(200, JSON, json!({ "contents": sums }).to_string()));
        }
        let state = self.store.chunk_state(place).map_err(|refusal| refuse(&refusal))?;
        let page = serde_json::to_vec(&state).map_err(|error| Response::error(500, &error.to_string()))?;
        Ok(Response::new(200, JSON, page))
    }

    fn file(&self, request: &Request) -> Result<Response, Response> {
        let (place, path): (Place, FilePath) =
            Name::parse_file(&request.path).map_err(|error| Response::error(400, &error.to_string()))?;
        self.check_reader(request, place.session.host.as_str())?;
        let state = self.store.chunk_state(&place).map_err(|refusal| refuse(&refusal))?;
        let missing = || Response::error(404, "expected a file of which a segment came");
        let file = state.files.get(&path).ok_or_else(missing)?;
        let mut response = match request.query.text("from") {
            None => {
                let page =
                    serde_json::to_vec(file).map_err(|error| Response::error(500, &error.to_string()))?;
                Response::new(200, JSON, page)
            }
            Some(from) => {
                // What goes on is followed; what has ended is read.
                let right = if state.end.is_some() { Right::Read } else { Right::Live };
                self.check_access(request, right, place.session.host.as_str())?;
                let from = from.parse().map_err(|_| Response::error(400, "expected ?from=BYTE"))?;
                let bytes = self.store.read(&place, &path, from).map_err(|refusal| refuse(&refusal))?;
                Response::new(200, "application/octet-stream", bytes.ok_or_else(missing)?)
            }
        };
        response.headers.push(("Tompion-Sequence", file.sequence.to_string()));
        response.headers.push(("Tompion-Length", file.total().to_string()));
        Ok(response)
    }
}

/// Answer to a segment that is not taken.
fn refuse(refusal: &Refusal) -> Response {
    let status = match refusal {
        Refusal::Conflict(
            Conflict::Gap { .. } | Conflict::Offset { .. } | Conflict::Ended | Conflict::Digest,
        ) => 409,
        Refusal::Different => 412,
        Refusal::Full | Refusal::TooMany(_) => 507,
        Refusal::Journal(_) | Refusal::Io(_) => 500,
    };
    if status == 500 {
        log::warn!("{refusal}");
    }
    Response::error(status, &refusal.to_string())
}
