//! Server of the trace viewer.
//!
//! ```text
//! trace ─reader, analysis─► index (levels of detail) ─► answers in JSON ─HTTP─► page in a browser
//!   └────reader, from any time on───────► events, search, export ──┘
//! ```
//!
//! [`Server::bind`] finds traces and begins to index them. [`Server::run`] answers the page that is
//! embedded here. The page's drawing and keys are in `web/`; the meaning of events is in
//! `tompion-analysis`.
#![forbid(unsafe_code)]

mod api;
mod auth;
mod incident;
mod page;
mod picture_link;
mod recording;
mod workspace;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use auth::Auth;
pub use picture_link::PictureRange;
use tompion_http::{Answer, Limits, Request, Response};
use workspace::{PendingOpen, Workspace};

/// Limits of connections. Exports may be long, and networks slow.
const LIMITS: Limits = Limits {
    max_connections: 64,
    max_per_peer: 16,
    request_timeout: Duration::from_secs(5),
    idle_timeout: Some(Duration::from_secs(60)),
    answer_timeout: Duration::from_secs(60),
    min_bytes_per_second: Some(16 << 10),
    min_body_bytes_per_second: None,
    max_body: tompion_http::MAX_BODY,
    max_bodies: tompion_http::MAX_BODIES,
    max_bodies_per_peer: tompion_http::MAX_BODIES,
};

/// Traces to show, and the address.
#[derive(Clone, Debug)]
pub struct Config {
    /// Folders with traces.
    pub paths: Vec<PathBuf>,
    /// Address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The user's cache, for files that can't be kept beside a trace; `None` for the one that the
    /// environment names.
    pub cache: Option<PathBuf>,
    /// Receives warnings for the user, in one line each, while browsers are answered.
    pub say: fn(&str),
}

/// Reason why nothing can be shown.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A trace cannot be opened.
    #[error(transparent)]
    Read(#[from] tompion_reader::Error),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// Address to listen on.
        address: SocketAddr,
        /// Error of the system.
        source: io::Error,
    },
    /// There is no space for the index.
    #[error("cannot write an index, neither beside the trace nor in the cache nor among temporary files")]
    Index(#[source] io::Error),
}

/// Server of the page.
pub struct Server {
    http: tompion_http::Server,
    shared: Arc<Shared>,
    remark: Option<String>,
}

struct Shared {
    guard: Auth,
    /// Traces to open; taken by the first caller that needs them.
    pending: Mutex<Option<PendingOpen>>,
    /// Open traces, or the reason why they can't be opened.
    workspace: OnceLock<Result<Arc<Workspace>, String>>,
}

impl Server {
    /// Finds traces, listens, and begins to index them.
    ///
    /// # Errors
    ///
    /// If there is no trace, the address is taken, or an index can be written nowhere.
    pub fn bind(config: &Config) -> Result<Self, Error> {
        let pending = PendingOpen::new(&config.paths, config.cache.as_deref())?;
        let remark = pending.storage().remark().map(str::to_owned);
        let listen = |source| Error::Listen { address: config.listen, source };
        let http = tompion_http::Server::bind(config.listen, LIMITS).map_err(listen)?;
        let guard = Auth::new(http.address(), config.say).map_err(listen)?;
        let (pending, workspace) = (Mutex::new(Some(pending)), OnceLock::new());
        let shared = Arc::new(Shared { guard, pending, workspace });
        let opening = shared.clone();
        let watch = move || {
            let Ok(workspace) = opening.workspace().map(Arc::downgrade) else { return };
            // From here on the workspace is watched only while the server holds it.
            drop(opening);
            Workspace::watch(&workspace);
        };
        thread::Builder::new().name("watch".into()).spawn(watch).map_err(Error::Index)?;
        Ok(Self { http, shared, remark })
    }

    /// Returns the address of the page, with the token that every request needs.
    pub fn url(&self) -> String {
        self.shared.guard.url()
    }

    /// Returns an address that opens the page once, for a browser of the user that started this
    /// program: other users can see its arguments.
    ///
    /// # Errors
    ///
    /// If the system gives no random numbers.
    pub fn url_for_once(&self) -> io::Result<String> {
        self.shared.guard.url_for_once()
    }

    /// Returns a line about where files are kept, where that is unusual, as when another user
    /// replaced the folder.
    pub fn remark(&self) -> Option<&str> {
        self.remark.as_deref()
    }

    /// Returns the reason why the index can't be completed.
    pub fn failure(&self) -> Option<String> {
        self.shared
            .workspace()
            .map_or_else(|line| Some(line.to_owned()), |workspace| workspace.opened().index().error.clone())
    }

    /// Returns the indexed share of the traces: 1 when complete.
    pub fn progress(&self) -> f64 {
        self.shared.workspace().map_or(0.0, |workspace| workspace.progress())
    }

    /// Returns the part of the address after `#` that makes the page draw a picture of a range.
    ///
    /// # Errors
    ///
    /// In one line, if the trace cannot be shown, or has no such range or track.
    pub fn picture_fragment(&self, range: &PictureRange) -> Result<String, String> {
        picture_link::fragment(self.shared.workspace()?, range)
    }

    /// Answers until the program ends.
    pub fn run(&self) -> ! {
        let shared = self.shared.clone();
        let answer: Answer = Arc::new(move |request| shared.answer(request));
        self.http.run(&answer)
    }
}

impl Shared {
    /// Returns the open traces. Callers wait while they are being opened.
    fn workspace(&self) -> Result<&Arc<Workspace>, &str> {
        let open = || {
            let pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner).take();
            let pending = pending.ok_or("the trace can't be shown, since the thread that opens it failed")?;
            Workspace::open(pending).map(Arc::new).map_err(|error| error.to_string())
        };
        self.workspace.get_or_init(open).as_ref().map_err(String::as_str)
    }

    fn answer(&self, request: &Request) -> Response {
        let mut response = self.guard.refuse(request).unwrap_or_else(|| self.allowed(request));
        response.headers.extend(auth::headers().map(|(name, value)| (name, value.to_owned())));
        response
    }

    fn allowed(&self, request: &Request) -> Response {
        let is_given = request.query.text("token").is_some();
        if is_given && request.path == "/" && request.method == "GET" {
            return self.guard.welcome();
        }
        // Scripts that send the token with each request need no folder.
        let path = self.guard.below(&request.path).unwrap_or(&request.path);
        if let Some(name) = path.strip_prefix("/api/") {
            return match self.workspace() {
                Ok(workspace) => api::answer(workspace, name, request),
                Err(line) => Response::error(500, line),
            };
        }
        if request.method != "GET" {
            return Response::error(405, "expected GET");
        }
        if path == "/" {
            // While packets are searched, the workspace does not exist yet.
            self.workspace.get().into_iter().flatten().for_each(|workspace| workspace.opening());
        }
        page::file(path).unwrap_or_else(|| Response::error(404, "there is nothing of this name"))
    }
}
