//! `--listen`: pages for Prometheus and other clients, until Ctrl-C.

use std::{
    io::{self, Read as _, Write as _},
    net::SocketAddr,
    os::{fd::AsFd as _, unix::net::UnixStream},
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Receiver, Sender, SyncSender},
    },
    thread,
    time::Duration,
};

use anyhow::Context as _;
use clap::Args;
use tompion_history::{Choice, Span, Store, plot::Maxima};
use tompion_http::{Answer, Request, Response, Server};
use tompion_latency::{
    Monitor, Report,
    exporter::{self, JSON, METRICS, Names, PAGES, Page, TEXT},
};
use tompion_os::Interest;

use super::{background_tasks::BackgroundTasks, stop_signals::StopSignals};

/// Interest of the poller in requests.
const REQUEST: Interest = 1;
/// Time that a request waits for the thread that owns the monitor.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Args)]
#[group(skip)]
pub struct ServeArgs {
    /// Serve metrics to Prometheus at this address, until Ctrl-C. Everyone with access to it can
    /// read thread names
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address, conflicts_with_all = ["once", "duration", "json"])]
    pub listen: Option<SocketAddr>,
    /// With --listen, also accept requests for this host name. IP addresses, localhost and the
    /// machine's own name are always accepted (repeatable)
    #[arg(long = "host", value_name = "NAME", requires = "listen")]
    hosts: Vec<String>,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "expected an address and a port, such as 127.0.0.1:9464".into())
}

/// Serves pages from threads of their own, and runs the background tasks in this one. This thread
/// saves incidents, so it never waits for a client. It makes only the pages that need the monitor,
/// after incidents are saved.
pub fn run(
    monitor: &mut Monitor,
    mut tasks: BackgroundTasks<'_, '_>,
    address: SocketAddr,
    args: &ServeArgs,
    stop: &StopSignals,
) -> anyhow::Result<()> {
    let server = Server::bind(address, exporter::LIMITS);
    let server = server.with_context(|| format!("can't listen at {address}"))?;
    let (notifier, requests) = notification_pair().context("can't wait for requests")?;
    stop.poller.add(requests.as_fd(), REQUEST).context("can't wait for requests")?;
    let (queue, inbox) = mpsc::channel();
    let history = tasks.history.as_ref().map(|history| history.store().path().to_owned());
    let site = Site { names: Names::new(&args.hosts), queue, notifier, history: history.map(Mutex::new) };
    let mut output = io::stdout().lock();
    writeln!(output, "http://{}/metrics", server.address())?;
    output.flush()?;
    let answer: Answer = Arc::new(move |request| site.answer(request));
    let accept = move || server.run(&answer);
    thread::Builder::new().name("accept".into()).spawn(accept).context("can't answer requests")?;
    // The first look is the base of the comparison with the scheduler's count.
    monitor.look();
    while !tasks.is_complete() {
        stop.poller.wait(Some(tasks.time_until_due())).context("can't wait")?;
        if stop.is_received() {
            break;
        }
        tasks.run_due(monitor)?;
        // Notifications are only drained: the queue has the requests.
        let _ = (&requests).read(&mut [0; 64]);
        answer_all(&inbox, monitor, &tasks);
    }
    Ok(())
}

/// Makes a pair of non-blocking sockets, by which server threads wake this one.
fn notification_pair() -> io::Result<(UnixStream, UnixStream)> {
    let (notifier, requests) = UnixStream::pair()?;
    notifier.set_nonblocking(true)?;
    requests.set_nonblocking(true)?;
    Ok((notifier, requests))
}

/// Page that needs the monitor.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LivePage {
    Metrics,
    Report,
}

/// Request to the thread that owns the monitor.
struct PageRequest {
    page: LivePage,
    reply: SyncSender<Arc<Reply>>,
}

/// Reply of the thread that owns the monitor.
enum Reply {
    Metrics(String),
    Report(Box<Report>),
}

/// Makes each page once for all requests that wait for it, so that many cost no more than one.
fn answer_all(inbox: &Receiver<PageRequest>, monitor: &mut Monitor, tasks: &BackgroundTasks<'_, '_>) {
    let requests: Vec<PageRequest> = inbox.try_iter().collect();
    for page in [LivePage::Metrics, LivePage::Report] {
        let mut waiting = requests.iter().filter(|request| request.page == page).peekable();
        if waiting.peek().is_none() {
            continue;
        }
        let reply = Arc::new(match page {
            LivePage::Metrics => Reply::Metrics(monitor.exposition(&tasks.process_state())),
            LivePage::Report => Reply::Report(Box::new(monitor.report(None))),
        });
        // There is room for one reply, and a request that timed out needs none.
        waiting.for_each(|request| drop(request.reply.try_send(reply.clone())));
    }
}

/// State of the server's threads.
struct Site {
    names: Names,
    queue: Sender<PageRequest>,
    /// Wakes the thread that owns the monitor.
    notifier: UnixStream,
    /// Path of the history. One request reads it at a time, so that its writer never waits long.
    history: Option<Mutex<PathBuf>>,
}

impl Site {
    fn answer(&self, request: &Request) -> Response {
        let mut is_busy = false;
        let page = |request: &Request| match request.path.as_str() {
            "/" => Ok(Some(Page { kind: TEXT, body: format!("counts are at {PAGES}\n") })),
            "/metrics" | "/api/report" => {
                let page = if request.path == "/metrics" { LivePage::Metrics } else { LivePage::Report };
                match self.request(page).as_deref() {
                    Some(Reply::Metrics(body)) => Ok(Some(Page { kind: METRICS, body: body.clone() })),
                    Some(Reply::Report(report)) => json(report),
                    None => {
                        is_busy = true;
                        Ok(None)
                    }
                }
            }
            "/api/history" => {
                let span = span(request)?;
                self.history_page(|store| {
                    let period = store.period(&Choice::of(span)).map_err(|error| error.to_string())?;
                    json(&period.report())
                })
            }
            "/api/maxima" => {
                let span = span(request)?;
                self.history_page(|store| {
                    let mut found = Maxima::of(span);
                    let read = store.maxima(&Choice::of(span), |longest| found.add(&longest));
                    read.map_err(|error| error.to_string())?;
                    json(&found.series())
                })
            }
            _ => Ok(None),
        };
        let response = exporter::respond(request, &self.names, page);
        if is_busy { Response::new(503, TEXT, "the monitor is busy or shutting down\n") } else { response }
    }

    /// Requests a page from the thread that owns the monitor. Returns none if that is busy for too
    /// long, or ends.
    fn request(&self, page: LivePage) -> Option<Arc<Reply>> {
        let (reply, answer) = mpsc::sync_channel(1);
        self.queue.send(PageRequest { page, reply }).ok()?;
        // If the socket is full, the thread is awake already.
        let _ = (&self.notifier).write(&[0]);
        answer.recv_timeout(REPLY_TIMEOUT).ok()
    }

    /// Makes a page from the history, on a database connection of its own.
    fn history_page(
        &self,
        page: impl FnOnce(&Store) -> Result<Option<Page>, String>,
    ) -> Result<Option<Page>, String> {
        let history = self.history.as_ref();
        let history =
            history.ok_or("no history; start one: tompion monitor --history --listen ADDRESS:PORT")?;
        let path = history.lock().unwrap_or_else(PoisonError::into_inner);
        page(&Store::open_to_read(&path).map_err(|error| error.to_string())?)
    }
}

fn json(value: &impl serde::Serialize) -> Result<Option<Page>, String> {
    let body = serde_json::to_string(value).map_err(|error| error.to_string())?;
    Ok(Some(Page { kind: JSON, body }))
}

/// Parses `from=` and `to=` in milliseconds since 1970; the default is the last day.
fn span(request: &Request) -> Result<Span, String> {
    const DAY: i64 = 86_400_000;
    let time = |name: &str| match request.query.text(name) {
        None => Ok(None),
        Some(text) => match text.parse::<i64>() {
            Ok(time) if (0..=Span::ALL.to_ms).contains(&time) => Ok(Some(time)),
            _ => Err(format!("expected {name}= with milliseconds since 1970")),
        },
    };
    let to_ms = time("to")?.unwrap_or((tompion_os::realtime_ns() / 1_000_000) as i64);
    let from_ms = time("from")?.unwrap_or(to_ms - DAY);
    if from_ms >= to_ms { Err("expected from= before to=".into()) } else { Ok(Span { from_ms, to_ms }) }
}
