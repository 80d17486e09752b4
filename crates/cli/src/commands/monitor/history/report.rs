//! `tompion monitor report`: a time of the history in figures.

use std::{fmt::Write as _, io::Write as _, path::PathBuf};

use anyhow::bail;
use clap::Args;
use tompion_history::{
    Event, EventKind, HistoryReport, Incident, Span, System,
    plot::{self, Curve, Theme},
};

use super::{
    Part, beyond, nothing,
    page::{self, Pictures},
    plot::pictures,
    times::{format_time, length},
};
use crate::{
    commands::monitor::{
        job_table,
        text::{self, BOLD, DIM, END, GREEN, RED, Width, YELLOW},
    },
    messages::{escape_control, pluralize, print_status, with_thousands},
};

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    tompion monitor report                                   # the whole history\n  \
    tompion monitor report --last week                       # the last seven days\n  \
    tompion monitor report --from 2026-10-01 --to 2026-11-01 # a month\n  \
    tompion monitor report --last week -o week.html         # as a page with pictures
  \
    tompion monitor report --last 30h --json | jq '.max_us'  # the max by CPU and kind")]
pub struct Arguments {
    #[command(flatten)]
    part: Part,
    /// Print JSON
    #[arg(long, conflicts_with = "output")]
    json: bool,
    /// Write an HTML page with plots to this file instead
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// As many as are shown of what there may be thousands of.
const MOST: usize = 20;

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let _rights = arguments.part.rights();
    let store = arguments.part.open()?;
    let choice = arguments.part.choice()?;
    let report = store.period(&choice)?.report();
    let is_empty = report.coverage.rows == 0;
    if let Some(path) = &arguments.output {
        if is_empty {
            bail!("{}", nothing(&store, choice.span)?);
        }
        let title = format!("Latencies: {}", pluralize(report.wakeups.woken, "wakeup"));
        let histograms = plot::histograms(&Curve::of_each(&report.cpus), &title, Theme::Reader);
        let (maxima, jobs) = pictures(&store, &choice)?;
        let page = page::of(&report, &Pictures { maxima, histograms, jobs });
        crate::commands::write_file(path, page.as_bytes())?;
        print_status(format!(
            "{}: {} {}",
            path.display(),
            pluralize(report.wakeups.woken, "wakeup"),
            span(&report)
        ));
        return Ok(());
    }
    let mut output = anstream::stdout().lock();
    if arguments.json {
        serde_json::to_writer_pretty(&mut output, &report)?;
        writeln!(output)?;
    } else if is_empty {
        writeln!(output, "{}", nothing(&store, choice.span)?)?;
    } else {
        write!(output, "{}", whole(&report, choice.span))?;
    }
    Ok(())
}

fn whole(report: &HistoryReport, asked: Span) -> String {
    let mut text = String::new();
    head(&mut text, report);
    if let Some(beyond) = beyond(asked, report) {
        let _ = writeln!(text, "{DIM}{beyond}{END}");
    }
    text::kinds(&mut text, &report.cpus, Width::Wide);
    text::worst(&mut text, &report.cpus, "%Y-%m-%d %H:%M:%S%.3f");
    report.jobs.iter().for_each(|found| job_table::of_history(&mut text, found));
    incidents(&mut text, &report.incidents);
    events(&mut text, report);
    systems(&mut text, report);
    believed(&mut text, report);
    text
}

fn span(report: &HistoryReport) -> String {
    format!("from {} to {}", format_time(report.from_ms), format_time(report.to_ms))
}

/// The share of a time that was counted, in hundredths of a percent: never 100 % of less than all.
pub fn share(covered: i64, all: i64) -> f64 {
    if all <= 0 { 100.0 } else { (covered as f64 / all as f64 * 10_000.0).floor().min(10_000.0) / 100.0 }
}

fn head(text: &mut String, report: &HistoryReport) {
    let covered = report.coverage;
    let _ = writeln!(
        text,
        "{BOLD}history of real-time wakeups{END}  {} {}",
        pluralize(report.wakeups.woken, "wakeup"),
        span(report)
    );
    let _ = writeln!(
        text,
        "{DIM}counted for {}, {} % of this time, in {}{END}",
        length(covered.counted_ms),
        share(covered.counted_ms, report.to_ms - report.from_ms),
        pluralize(covered.rows, "interval")
    );
}

fn incidents(text: &mut String, incidents: &[Incident]) {
    if incidents.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{BOLD}{}{END}", pluralize(incidents.len() as u64, "incident"));
    for incident in incidents.iter().rev().take(MOST) {
        let _ = writeln!(
            text,
            "{}  CPU {:<3} {BOLD}{:>9}{END}  {} {}: {}  {DIM}{}{END}",
            text::time(incident.time_ns, "%Y-%m-%d %H:%M:%S"),
            incident.cpu,
            text::microseconds(incident.latency_ns as f64 / 1000.0),
            escape_control(&incident.thread),
            incident.tid,
            escape_control(&incident.cause),
            escape_control(&incident.folder.to_string_lossy())
        );
    }
    left_out(text, incidents.len());
}

fn left_out(text: &mut String, all: usize) {
    if all > MOST {
        let _ = writeln!(
            text,
            "{DIM}and {} before them; --json has all{END}",
            with_thousands((all - MOST) as u64)
        );
    }
}

pub fn event(event: &Event) -> String {
    let amount = length(event.amount_ms.abs());
    match event.kind {
        EventKind::ClockStep if event.amount_ms < 0 => format!("the clock was set back by {amount}"),
        EventKind::ClockStep => format!("the clock was set forward by {amount}"),
        EventKind::Suspended => format!("the machine was suspended for {amount}"),
        EventKind::NotCounted => format!("nothing was counted for {amount} before"),
        EventKind::Damaged if event.amount_ms == 0 => {
            "the counters could not be read; the history continues from there".into()
        }
        EventKind::Damaged => format!("{amount} of the history could not be read and was taken out"),
    }
}

fn events(text: &mut String, report: &HistoryReport) {
    if report.events.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{BOLD}interruptions of counting{END}");
    for found in report.events.iter().rev().take(MOST) {
        let _ = writeln!(text, "{}  {}", format_time(found.time_ms), event(found));
    }
    left_out(text, report.events.len());
}

/// What a system is in a line: its processor and its kernel.
pub fn system_name(system: &System) -> String {
    let facts = ["kernel", "processor", "distribution"].into_iter().filter_map(|name| system.fact(name));
    let words: Vec<_> = facts.map(|fact| escape_control(fact).into_owned()).collect();
    if words.is_empty() { "a system of which nothing is known".into() } else { words.join(", ") }
}

fn systems(text: &mut String, report: &HistoryReport) {
    let title = if report.systems.len() == 1 { "on" } else { "on several systems, the last one at the end" };
    let _ = writeln!(text, "\n{BOLD}{title}{END}");
    for system in &report.systems {
        let starts = report.starts.iter().filter(|start| start.system == system.system).count();
        let _ = writeln!(text, "{}  {DIM}{}{END}", system_name(system), pluralize(starts as u64, "start"));
        if report.systems.len() > 1 {
            differences(text, report, system);
        }
    }
}

/// What one system has that the first one hasn't.
fn differences(text: &mut String, report: &HistoryReport, system: &System) {
    let Some(first) = report.systems.first().filter(|first| first.system != system.system) else { return };
    for fact in &system.facts {
        let before = first.fact(&fact.name);
        if before != Some(&fact.value)
            && !["kernel", "processor", "distribution"].contains(&fact.name.as_str())
        {
            let before = before.map_or("unknown".into(), |before| escape_control(before).into_owned());
            let _ = writeln!(
                text,
                "{DIM}  {}: {}, first {before}{END}",
                escape_control(&fact.name),
                escape_control(&fact.value)
            );
        }
    }
}

fn believed(text: &mut String, report: &HistoryReport) {
    let sums = report.wakeups;
    let verdict = match sums.difference {
        0 => format!("{GREEN}accounting is exact{END}"),
        difference => format!("{RED}accounting is wrong by up to {difference}{END}"),
    };
    let _ = writeln!(text, "\n{} woken; {verdict}", with_thousands(sums.woken));
    if sums.unseen > 0 {
        let (unseen, slept) = (with_thousands(sums.unseen), with_thousands(sums.slept));
        let _ = writeln!(
            text,
            "{YELLOW}{unseen} of {slept} wakeups were not seen{END}, according to the scheduler"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_than_all_is_never_called_all() {
        assert_eq!(
            (share(100, 100), share(99_999, 100_000), share(1, 3), share(5, 0)),
            (100.0, 99.99, 33.33, 100.0)
        );
        assert_eq!(share(120, 100), 100.0);
    }
}
