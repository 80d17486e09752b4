//! The service: requests become questions to the store.
//!
//! | request | answer |
//! |---|---|
//! | `PUT /v1/HOST/BOOT/SESSION/CHUNK/FILE/SEQUENCE` | 201 stored, 200 there already, 412 another one is there, 409 others must come before, 507 no room |
//! | `GET /v1/HOST/BOOT/SESSION/CHUNK` | state of the chunk as JSON: last segment of each file |
//! | `HEAD /v1/HOST/BOOT/SESSION/CHUNK/FILE` | sequence number of the last segment, and the file's length |
//! | `GET /v1` | counts of requests as JSON |

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
use tompion_segments::{Conflict, FilePath, MAX_ENCODED, Name, Place, Segment};

use crate::{Refusal, Right, Store, StoreLimits, Taken, Tokens};

const JSON: &str = "application/json";
/// Maximum number of bytes of segments in memory at one time, as they came; each is also there
/// decompressed while it is stored.
const MAX_BODIES: usize = 64 << 20;

/// Limits of connections.
const LIMITS: Limits = Limits {
    max_connections: 512,
    max_per_peer: 128,
    request_timeout: Duration::from_secs(30),
    idle_timeout: Some(Duration::from_secs(60)),
    answer_timeout: Duration::from_secs(30),
    min_bytes_per_second: Some(16 << 10),
    max_body: MAX_ENCODED,
    max_bodies: MAX_BODIES,
};

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
        let Config { listen, store, limits, tls, access } = config;
        let opened = Store::open(&store, limits).map_err(|error| ReceiverError::Store(store, error))?;
        let server = Server::bind(listen, LIMITS).map_err(|error| ReceiverError::Listen(listen, error))?;
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
        let answer: tompion_http::Answer = Arc::new(move |request: &Request| service.answer(request));
        server.run(&answer)
    }
}

impl Service {
    fn answer(&self, request: &Request) -> Response {
        let response = self.respond(request).unwrap_or_else(|refused| refused);
        if response.status >= 400 && response.status != 404 {
            let mut counts = self.counts();
            *counts.refused.entry(response.status).or_default() += 1;
        }
        response
    }

    fn counts(&self) -> std::sync::MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn respond(&self, request: &Request) -> Result<Response, Response> {
        match request.method.as_str() {
            "PUT" => self.put(request),
            "GET" | "HEAD" if request.path == "/v1" => {
                self.check_access(request, Right::Write, "")?;
                let Counts { stored, known, bytes, refused } = &*self.counts();
                let page = json!({ "stored": stored, "known": known, "bytes": bytes, "refused": refused });
                Ok(Response::new(200, JSON, page.to_string()))
            }
            "GET" | "HEAD" => match Place::parse(&request.path) {
                Ok(place) => self.chunk(request, &place),
                Err(_) => self.file(request),
            },
            _ => Err(Response::error(405, "expected PUT, GET or HEAD")),
        }
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
        let name = Name::parse(&request.path).map_err(|error| wrong(&error))?;
        self.check_access(request, Right::Write, name.place.session.host.as_str())?;
        if request.header("if-none-match").is_some_and(|value| value != "*") {
            return Err(Response::error(400, "expected If-None-Match: *: a segment never changes"));
        }
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

    fn check_reader(&self, request: &Request, place: &Place) -> Result<(), Response> {
        let host = place.session.host.as_str();
        self.check_access(request, Right::Write, host)
            .or_else(|_| self.check_access(request, Right::Read, host))
    }

    fn chunk(&self, request: &Request, place: &Place) -> Result<Response, Response> {
        self.check_reader(request, place)?;
        let state = self.store.chunk_state(place).map_err(|refusal| refuse(&refusal))?;
        let page = serde_json::to_vec(&state).map_err(|error| Response::error(500, &error.to_string()))?;
        Ok(Response::new(200, JSON, page))
    }

    fn file(&self, request: &Request) -> Result<Response, Response> {
        let (place, path): (Place, FilePath) =
            Name::parse_file(&request.path).map_err(|error| Response::error(400, &error.to_string()))?;
        self.check_reader(request, &place)?;
        let state = self.store.chunk_state(&place).map_err(|refusal| refuse(&refusal))?;
        let Some(file) = state.files.get(&path) else {
            return Err(Response::error(404, "expected a file of which a segment came"));
        };
        let page = serde_json::to_vec(file).map_err(|error| Response::error(500, &error.to_string()))?;
        let mut response = Response::new(200, JSON, page);
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
