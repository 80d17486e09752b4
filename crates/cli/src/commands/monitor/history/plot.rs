//! `tompion monitor plot` of the history: the longest latencies over a time, or histograms of it.

use anyhow::bail;
use clap::Args;
use jiff::tz::TimeZone;
use tompion_history::{
    Choice, HistoryReport, Span, Store,
    plot::{self, Curve, Mark, Maxima, Theme, Tick},
};

use super::{Part, axis, nothing, times::format_time};
use crate::{
    commands::monitor::picture::Output,
    messages::{pluralize, print_status},
};

/// Which picture of which part of the history.
#[derive(Args)]
// The commands' own arguments are a group of this name.
#[group(skip)]
pub struct Wish {
    #[command(flatten)]
    part: Part,
    /// Draw histograms of the period instead of the max of each five minutes
    #[arg(long)]
    histograms: bool,
}

impl Wish {
    /// Whether the history is meant, and not what is counted now.
    pub fn is_of_history(&self) -> bool {
        self.part.is_asked_for()
    }

    /// Draws it.
    pub fn draw(&self, output: &Output) -> anyhow::Result<()> {
        let _rights = self.part.rights();
        let store = self.part.open()?;
        let choice = self.part.choice()?;
        let picture = if self.histograms {
            let report = not_empty(&store, choice.span, store.period(&choice)?.report())?;
            let title = title("Latencies", span(choice.span, &report), report.wakeups.woken);
            plot::histograms(&Curve::of_each(&report.cpus), &title, output.theme())
        } else {
            let (found, about) = gather(&store, &choice)?;
            let what =
                if found.has_jobs() { "Maximum latencies and response times" } else { "Maximum latencies" };
            draw(&found, what, &about, output.theme())
        };
        output.write(&picture)?;
        if output.output != std::path::Path::new("-") {
            print_status(format!("{}: {}", output.output.display(), self.what()));
        }
        Ok(())
    }

    fn what(&self) -> &'static str {
        if self.histograms { "histograms" } else { "maximum latencies" }
    }
}

/// What a picture is of: the time that was asked for, or what of it there is.
pub fn span(asked: Span, report: &HistoryReport) -> Span {
    Span {
        from_ms: if asked.from_ms == Span::ALL.from_ms { report.from_ms } else { asked.from_ms },
        to_ms: if asked.to_ms == Span::ALL.to_ms { report.to_ms } else { asked.to_ms },
    }
}

/// A report, if anything is in it.
fn not_empty(store: &Store, asked: Span, report: HistoryReport) -> anyhow::Result<HistoryReport> {
    if report.coverage.rows == 0 {
        bail!("{}", nothing(store, asked)?);
    }
    Ok(report)
}

fn title(what: &str, span: Span, woken: u64) -> String {
    let woken = pluralize(woken, "wakeup");
    format!("{what} from {} to {}: {woken}", format_time(span.from_ms), format_time(span.to_ms))
}

/// The longest of a time, and what else is known of it.
fn gather(store: &Store, choice: &Choice) -> anyhow::Result<(Maxima, About)> {
    let report = not_empty(store, choice.span, store.outline(choice)?.report())?;
    let span = span(choice.span, &report);
    let mut found = Maxima::of(span);
    store.maxima(choice, |longest| found.add(&longest))?;
    Ok((found, About { span, ticks: axis::ticks(span, &TimeZone::system()), marks: marks(&report) }))
}

/// What a picture over a time has beside its lines.
struct About {
    span: Span,
    ticks: Vec<Tick>,
    marks: Vec<Mark>,
}

/// An SVG document.
fn draw(found: &Maxima, what: &str, about: &About, theme: Theme) -> String {
    let (from, to) = (format_time(about.span.from_ms), format_time(about.span.to_ms));
    plot::maxima(found, &format!("{what} from {from} to {to}"), (&about.ticks, &about.marks), theme)
}

/// The longest over a time, for pages: of latencies, and of jobs if there are any.
pub fn pictures(store: &Store, choice: &Choice) -> anyhow::Result<(String, Option<String>)> {
    let (mut latencies, about) = gather(store, choice)?;
    let jobs = latencies.split_jobs();
    let jobs = jobs.has_jobs().then(|| draw(&jobs, "Maximum response times of jobs", &about, Theme::Reader));
    Ok((draw(&latencies, "Maximum latencies", &about, Theme::Reader), jobs))
}

/// Maximum number of marks: more can't be told apart.
const MAX_MARKS: usize = 500;

/// Where the system became another one, and incidents.
fn marks(about: &HistoryReport) -> Vec<Mark> {
    let name = |number: i64| {
        let system = about.systems.iter().find(|system| system.system == number);
        let kernel = system.and_then(|system| system.fact("kernel"));
        kernel.map_or_else(|| format!("system {number}"), ToOwned::to_owned)
    };
    let pairs = about.starts.windows(2).filter_map(|pair| match pair {
        [before, now] if before.system != now.system => Some(Mark::System(now.time_ms, name(now.system))),
        _ => None,
    });
    let incidents =
        about.incidents.iter().map(|incident| Mark::Incident((incident.time_ns / 1_000_000) as i64));
    pairs.chain(incidents).take(MAX_MARKS).collect()
}
