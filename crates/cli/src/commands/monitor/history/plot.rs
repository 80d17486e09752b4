//! `tompion monitor plot` of the history: maximum latencies over time, or histograms of a period.

use anyhow::bail;
use clap::Args;
use jiff::tz::TimeZone;
use tompion_history::{
    Choice, HistoryReport, Span, Store,
    plot::{self, Curve, Mark, Maxima, Theme, Tick},
};

use super::{
    axis,
    selection::{HistorySelection, describe_empty},
    times::format_time,
};
use crate::{
    commands::monitor::picture::PictureArgs,
    messages::{pluralize, print_status},
};

/// Choice of a plot and of a part of the history.
#[derive(Args)]
// The commands' own arguments are a group of this name.
#[group(skip)]
pub struct HistoryPlotArgs {
    #[command(flatten)]
    selection: HistorySelection,
    /// Draw histograms of the period instead of the max of each five minutes
    #[arg(long)]
    histograms: bool,
}

impl HistoryPlotArgs {
    /// Returns whether the history is to be plotted, not the present counts.
    pub fn is_of_history(&self) -> bool {
        self.selection.is_requested()
    }

    /// Draws the plot.
    pub fn draw(&self, output: &PictureArgs) -> anyhow::Result<()> {
        let _rights = self.selection.rights();
        let store = self.selection.open()?;
        let choice = self.selection.choice()?;
        let picture = if self.histograms {
            let report = not_empty(&store, choice.span, store.period(&choice)?.report())?;
            let title = title("Latencies", span(choice.span, &report), report.wakeups.woken);
            plot::histograms(&Curve::of_each(&report.cpus), &title, output.theme())
        } else {
            let (found, context) = collect_maxima(&store, &choice)?;
            let title =
                if found.has_jobs() { "Maximum latencies and response times" } else { "Maximum latencies" };
            draw(&found, title, &context, output.theme())
        };
        output.write(&picture)?;
        if output.output != std::path::Path::new("-") {
            print_status(format!("{}: {}", output.output.display(), self.noun()));
        }
        Ok(())
    }

    fn noun(&self) -> &'static str {
        if self.histograms { "histograms" } else { "maximum latencies" }
    }
}

/// Returns the span of a plot: the requested one, limited to what the history has.
fn span(asked: Span, report: &HistoryReport) -> Span {
    Span {
        from_ms: if asked.from_ms == Span::ALL.from_ms { report.from_ms } else { asked.from_ms },
        to_ms: if asked.to_ms == Span::ALL.to_ms { report.to_ms } else { asked.to_ms },
    }
}

/// Returns the report unless it is empty.
fn not_empty(store: &Store, asked: Span, report: HistoryReport) -> anyhow::Result<HistoryReport> {
    if report.coverage.rows == 0 {
        bail!("{}", describe_empty(store, asked)?);
    }
    Ok(report)
}

fn title(noun: &str, span: Span, woken: u64) -> String {
    let woken = pluralize(woken, "wakeup");
    format!("{noun} from {} to {}: {woken}", format_time(span.from_ms), format_time(span.to_ms))
}

/// Collects the maxima of a period, with the axis and marks of its plot.
fn collect_maxima(store: &Store, choice: &Choice) -> anyhow::Result<(Maxima, PlotContext)> {
    let report = not_empty(store, choice.span, store.outline(choice)?.report())?;
    let span = span(choice.span, &report);
    let mut found = Maxima::of(span);
    store.maxima(choice, |longest| found.add(&longest))?;
    Ok((found, PlotContext { span, ticks: axis::ticks(span, &TimeZone::system()), marks: marks(&report) }))
}

/// Axis and marks of a plot over time.
struct PlotContext {
    span: Span,
    ticks: Vec<Tick>,
    marks: Vec<Mark>,
}

/// Draws maxima as an SVG document.
fn draw(found: &Maxima, noun: &str, context: &PlotContext, theme: Theme) -> String {
    let (from, to) = (format_time(context.span.from_ms), format_time(context.span.to_ms));
    plot::maxima(found, &format!("{noun} from {from} to {to}"), (&context.ticks, &context.marks), theme)
}

/// Draws the maxima of a period for pages: of latencies, and of jobs if there are any.
pub fn pictures(store: &Store, choice: &Choice) -> anyhow::Result<(String, Option<String>)> {
    let (mut latencies, context) = collect_maxima(store, choice)?;
    let jobs = latencies.split_jobs();
    let jobs =
        jobs.has_jobs().then(|| draw(&jobs, "Maximum response times of jobs", &context, Theme::Reader));
    Ok((draw(&latencies, "Maximum latencies", &context, Theme::Reader), jobs))
}

/// Maximum number of marks: more can't be told apart.
const MAX_MARKS: usize = 500;

/// Returns marks for changes of the system, and for incidents.
fn marks(report: &HistoryReport) -> Vec<Mark> {
    let name = |number: i64| {
        let system = report.systems.iter().find(|system| system.system == number);
        let kernel = system.and_then(|system| system.fact("kernel"));
        kernel.map_or_else(|| format!("system {number}"), ToOwned::to_owned)
    };
    let pairs = report.starts.windows(2).filter_map(|pair| match pair {
        [before, now] if before.system != now.system => Some(Mark::System(now.time_ms, name(now.system))),
        _ => None,
    });
    let incidents =
        report.incidents.iter().map(|incident| Mark::Incident((incident.time_ns / 1_000_000) as i64));
    pairs.chain(incidents).take(MAX_MARKS).collect()
}
