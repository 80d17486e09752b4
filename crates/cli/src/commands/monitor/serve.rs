//! Pages for Prometheus and other programs, until Ctrl-C.

use std::{
    io::{self, Write},
    net::{SocketAddr, TcpListener},
    os::fd::AsFd as _,
};

use anyhow::Context as _;
use clap::Args;
use tompion_latency::{
    Monitor,
    exporter::{self, JSON, METRICS, Names, PAGES, Page, Request, TEXT},
    history::{Choice, Span},
    plot::Maxima,
};
use tompion_os::Interest;

use super::{End, keep::Beside};

/// By which requests are told from the user's wish to end.
const REQUEST: Interest = 1;

#[derive(Args)]
#[group(skip)]
pub struct Wish {
    /// Serve what is counted to Prometheus at this address, until Ctrl-C; anybody who reaches it can read the names of your threads
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with_all = ["once", "duration", "json"])]
    pub listen: Option<SocketAddr>,
    /// With --listen: answer to those, too, who ask for this name, as Prometheus may call this machine. Numbers, localhost and the
    /// machine's own name are known. May be given more than once
    #[arg(long = "host", value_name = "NAME", requires = "listen")]
    hosts: Vec<String>,
}

/// Answers one request after another, and does what is done beside it.
pub fn run(
    monitor: &mut Monitor,
    mut beside: Beside<'_, '_>,
    (address, wish, end): (SocketAddr, &Wish, &End),
) -> anyhow::Result<()> {
    let names = Names::new(&wish.hosts);
    let listener = TcpListener::bind(address).with_context(|| format!("can't listen at {address}"))?;
    listener.set_nonblocking(true).context("can't wait for requests")?;
    end.poller.add(listener.as_fd(), REQUEST).context("can't wait for requests")?;
    let mut output = io::stdout().lock();
    writeln!(output, "http://{}/metrics", listener.local_addr()?)?;
    output.flush()?;
    // The scheduler's count is compared from the first look on.
    monitor.look();
    loop {
        end.poller.wait(Some(beside.rest())).context("can't wait")?;
        if end.has_come() {
            return Ok(());
        }
        beside.look(monitor)?;
        // One who asked and went away is none of our business.
        if let Ok((connection, _)) = listener.accept() {
            let _ = exporter::answer(connection, &names, |request| page(monitor, &beside, request));
        }
    }
}

/// What is asked for.
fn page(
    monitor: &mut Monitor,
    beside: &Beside<'_, '_>,
    request: &Request<'_>,
) -> Result<Option<Page>, String> {
    fn json(value: &impl serde::Serialize) -> Result<Option<Page>, String> {
        let body = serde_json::to_string(value).map_err(|error| error.to_string())?;
        Ok(Some(Page { kind: JSON, body }))
    }
    let store = || beside.keeping.as_ref().map(|keeping| keeping.store());
    let history =
        || store().ok_or("there is no history; begin with: tompion monitor --history --listen ADDRESS:PORT");
    match request.path {
        "/metrics" => Ok(Some(Page { kind: METRICS, body: monitor.exposition(&beside.of_process()) })),
        "/" => Ok(Some(Page { kind: TEXT, body: format!("what was counted is at {PAGES}\n") })),
        "/api/report" => json(&monitor.report(None)),
        "/api/history" => {
            let period = history()?.period(&Choice::of(span(request)?)).map_err(|error| error.to_string())?;
            json(&period.report())
        }
        "/api/maxima" => {
            let span = span(request)?;
            let mut found = Maxima::of(span);
            let told = history()?.maxima(&Choice::of(span), |longest| found.add(&longest));
            told.map_err(|error| error.to_string())?;
            json(&found.series())
        }
        _ => Ok(None),
    }
}

/// From when until when, in milliseconds since 1970; the last day where nothing is said.
fn span(request: &Request<'_>) -> Result<Span, String> {
    const DAY: i64 = 86_400_000;
    let time = |name: &str| match request.value(name) {
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
