//! Pages for Prometheus and other programs, until Ctrl-C.

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

use super::{End, keep::Beside};

/// By which requests are told from the user's wish to end.
const REQUEST: Interest = 1;
/// How long one who asks waits for the thread that has the monitor.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Args)]
#[group(skip)]
pub struct Wish {
    /// Serve metrics to Prometheus at this address, until Ctrl-C. Everyone with access to it can
    /// read thread names
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with_all = ["once", "duration", "json"])]
    pub listen: Option<SocketAddr>,
    /// With --listen, also accept requests for this host name. IP addresses, localhost and the
    /// machine's own name are always accepted (repeatable)
    #[arg(long = "host", value_name = "NAME", requires = "listen")]
    hosts: Vec<String>,
}

/// Serves pages by threads of their own, and does here what is done beside it. This thread catches
/// late wake-ups, so no client is ever waited for in it: it makes those pages alone that need the
/// monitor, after what was late is kept.
pub fn run(
    monitor: &mut Monitor,
    mut beside: Beside<'_, '_>,
    (address, wish, end): (SocketAddr, &Wish, &End),
) -> anyhow::Result<()> {
    let server = Server::bind(address, exporter::LIMITS);
    let server = server.with_context(|| format!("can't listen at {address}"))?;
    let (bell, requests) = bell().context("can't wait for requests")?;
    end.poller.add(requests.as_fd(), REQUEST).context("can't wait for requests")?;
    let (questions, inbox) = mpsc::channel();
    let history = beside.keeping.as_ref().map(|keeping| keeping.store().path().to_owned());
    let site = Site { names: Names::new(&wish.hosts), questions, bell, history: history.map(Mutex::new) };
    let mut output = io::stdout().lock();
    writeln!(output, "http://{}/metrics", server.address())?;
    output.flush()?;
    let answer: Answer = Arc::new(move |request| site.answer(request));
    let accept = move || server.run(&answer);
    thread::Builder::new().name("accept".into()).spawn(accept).context("can't answer requests")?;
    // The scheduler's count is compared from the first look on.
    monitor.look();
    while !beside.has_enough() {
        end.poller.wait(Some(beside.rest())).context("can't wait")?;
        if end.has_come() {
            break;
        }
        beside.look(monitor)?;
        // How often it rang is of no interest.
        let _ = (&requests).read(&mut [0; 64]);
        answer_all(&inbox, monitor, &beside);
    }
    Ok(())
}

/// Both ends of what wakes this thread when there are questions; neither ever waits.
fn bell() -> io::Result<(UnixStream, UnixStream)> {
    let (bell, requests) = UnixStream::pair()?;
    bell.set_nonblocking(true)?;
    requests.set_nonblocking(true)?;
    Ok((bell, requests))
}

/// Page that needs the monitor.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Live {
    Metrics,
    Report,
}

/// Question for the thread that has the monitor.
struct Question {
    page: Live,
    reply: SyncSender<Arc<Reply>>,
}

/// Answer of the thread that has the monitor.
enum Reply {
    Metrics(String),
    Report(Box<Report>),
}

/// Makes each page once for all who wait for it: many who ask cost no more than one.
fn answer_all(inbox: &Receiver<Question>, monitor: &mut Monitor, beside: &Beside<'_, '_>) {
    let questions: Vec<Question> = inbox.try_iter().collect();
    for page in [Live::Metrics, Live::Report] {
        let mut asked = questions.iter().filter(|question| question.page == page).peekable();
        if asked.peek().is_none() {
            continue;
        }
        let reply = Arc::new(match page {
            Live::Metrics => Reply::Metrics(monitor.exposition(&beside.of_process())),
            Live::Report => Reply::Report(Box::new(monitor.report(None))),
        });
        // There is room for one answer, and whoever gave up waiting needs none.
        asked.for_each(|question| drop(question.reply.try_send(reply.clone())));
    }
}

/// What the server's threads have.
struct Site {
    names: Names,
    questions: Sender<Question>,
    /// Wakes the thread that has the monitor.
    bell: UnixStream,
    /// The history, read by one at a time, so that its writer never waits long.
    history: Option<Mutex<PathBuf>>,
}

impl Site {
    fn answer(&self, request: &Request) -> Response {
        let mut is_busy = false;
        let page = |request: &Request| match request.path.as_str() {
            "/" => Ok(Some(Page { kind: TEXT, body: format!("counts are at {PAGES}\n") })),
            "/metrics" | "/api/report" => {
                let page = if request.path == "/metrics" { Live::Metrics } else { Live::Report };
                match self.ask(page).as_deref() {
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
                self.of_history(|store| {
                    let period = store.period(&Choice::of(span)).map_err(|error| error.to_string())?;
                    json(&period.report())
                })
            }
            "/api/maxima" => {
                let span = span(request)?;
                self.of_history(|store| {
                    let mut found = Maxima::of(span);
                    let told = store.maxima(&Choice::of(span), |longest| found.add(&longest));
                    told.map_err(|error| error.to_string())?;
                    json(&found.series())
                })
            }
            _ => Ok(None),
        };
        let response = exporter::respond(request, &self.names, page);
        if is_busy { Response::new(503, TEXT, "the monitor is busy or shutting down\n") } else { response }
    }

    /// Asks the thread that has the monitor. Nothing if it is busy for too long, or ends.
    fn ask(&self, page: Live) -> Option<Arc<Reply>> {
        let (reply, answer) = mpsc::sync_channel(1);
        self.questions.send(Question { page, reply }).ok()?;
        // Where there is no room, it is awake.
        let _ = (&self.bell).write(&[0]);
        answer.recv_timeout(REPLY_TIMEOUT).ok()
    }

    /// Makes a page of the history, which it opens anew: who writes it has a connection of its own.
    fn of_history(
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

/// From when until when, in milliseconds since 1970; the last day where nothing is said.
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
