//! The trace viewer's server.
//!
//! ```text
//! trace ──reader, analysis──► index (levels of detail, in a file) ──► answers in JSON ──HTTP──► page in a browser
//!   └──────reader, from any moment on────────────► events, search, export ──┘
//! ```
//!
//! [`Server::bind`] finds traces and begins to read them; [`Server::run`] answers the page that is embedded here. What
//! the page draws and which keys it knows is the business of `web/`; what events mean is `tompion-analysis`'s.
#![forbid(unsafe_code)]

mod api;
mod auth;
pub mod foreground_gate;
mod incident;
pub mod index;
mod page;
mod picture_link;
mod recording;
pub mod slice_kind;
mod wakeup_source;
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

/// Bounds on what browsers and strangers may use. Exports may be long, and lines slow.
const LIMITS: Limits = Limits {
    max_connections: 64,
    max_per_peer: 16,
    request_timeout: Duration::from_secs(5),
    idle_timeout: Some(Duration::from_secs(60)),
    answer_timeout: Duration::from_secs(60),
    min_bytes_per_second: Some(16 << 10),
};

/// What to show, and where.
#[derive(Clone, Debug)]
pub struct Config {
    /// Folders with traces.
    pub paths: Vec<PathBuf>,
    /// The address to listen on; port 0 takes one that is free.
    pub listen: SocketAddr,
    /// The user's cache, for what can't be kept beside a trace; nothing for the one that the environment says.
    pub cache: Option<PathBuf>,
    /// Who is told, in one line, of what the user should know while browsers are answered.
    pub say: fn(&str),
}

/// Why nothing can be shown.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A trace cannot be opened.
    #[error(transparent)]
    Read(#[from] tompion_reader::Error),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// There is no room for the index.
    #[error("cannot write an index, neither beside the trace nor in the cache nor among temporary files")]
    Index(#[source] io::Error),
}

/// Answers browsers.
pub struct Server {
    http: tompion_http::Server,
    shared: Arc<Shared>,
    remark: Option<String>,
}

struct Shared {
    guard: Auth,
    /// What is to be opened, until somebody does.
    pending: Mutex<Option<PendingOpen>>,
    /// What is shown, or why it can't be.
    workspace: OnceLock<Result<Arc<Workspace>, String>>,
}

impl Server {
    /// Finds traces, listens, and begins to read the traces.
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
            // It is looked after for as long as somebody else has it.
            drop(opening);
            Workspace::watch(&workspace);
        };
        thread::Builder::new().name("watch".into()).spawn(watch).map_err(Error::Index)?;
        Ok(Self { http, shared, remark })
    }

    /// Where the page is, with the token without which nobody is answered.
    pub fn url(&self) -> String {
        self.shared.guard.url()
    }

    /// The same for a browser of the user who started this program, once: for its arguments, which other users can see.
    ///
    /// # Errors
    ///
    /// If the system gives no random numbers.
    pub fn url_for_once(&self) -> io::Result<String> {
        self.shared.guard.url_for_once()
    }

    /// One line on where things are kept, where that is odd: somebody put something else in the folder's place.
    pub fn remark(&self) -> Option<&str> {
        self.remark.as_deref()
    }

    /// Why the index can't be completed.
    pub fn failure(&self) -> Option<String> {
        self.shared
            .workspace()
            .map_or_else(|line| Some(line.to_owned()), |workspace| workspace.opened().index().error.clone())
    }

    /// How much of the traces is indexed: 1 is all.
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
    /// What is shown. Whoever asks while it is being opened waits.
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
        // Scripts that send the token with each question need no folder.
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
            // While the packets are looked for, it is there before they are.
            self.workspace.get().into_iter().flatten().for_each(|workspace| workspace.opening());
        }
        page::file(path).unwrap_or_else(|| Response::error(404, "there is nothing of this name"))
    }
}
