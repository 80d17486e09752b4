//! `tompion monitor report`: summarizes a period of the history.

use crate::screen::{BOLD, DIM, END, GREEN, RED, YELLOW};
use std::{fmt::Write as _, io::Write as _, path::PathBuf};

use anyhow::bail;
use clap::Args;
use tompion_history::{
    HistoryReport, Incident, Span, System,
    plot::{self, Curve, Theme},
};

use super::{
    labels::{counted_percent, format_event, system_name},
    page::{Pictures, report_page},
    plot::pictures,
    selection::{HistorySelection, describe_empty, describe_excess},
    times::{format_length, format_time},
};
use crate::{
    commands::monitor::{
        job_table,
        table::{self, Width, format_us},
        text,
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
    selection: HistorySelection,
    /// Print JSON
    #[arg(long, conflicts_with = "output")]
    json: bool,
    /// Write an HTML page with plots to this file instead
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Maximum number of rows of a list.
const MAX_ROWS: usize = 20;

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let _rights = arguments.selection.rights();
    let store = arguments.selection.open()?;
    let choice = arguments.selection.choice()?;
    let report = store.period(&choice)?.report();
    let is_empty = report.coverage.rows == 0;
    if let Some(path) = &arguments.output {
        if is_empty {
            bail!("{}", describe_empty(&store, choice.span)?);
        }
        let title = format!("Latencies: {}", pluralize(report.wakeups.woken, "wakeup"));
        let histograms = plot::histograms(&Curve::of_each(&report.cpus), &title, Theme::Reader);
        let (maxima, jobs) = pictures(&store, &choice)?;
        let page = report_page(&report, &Pictures { maxima, histograms, jobs });
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
        writeln!(output, "{}", describe_empty(&store, choice.span)?)?;
    } else {
        write!(output, "{}", report_text(&report, choice.span))?;
    }
    Ok(())
}

fn report_text(report: &HistoryReport, asked: Span) -> String {
    let mut text = String::new();
    write_head(&mut text, report);
    if let Some(excess) = describe_excess(asked, report) {
        let _ = writeln!(text, "{DIM}{excess}{END}");
    }
    text::write_kinds(&mut text, &report.cpus, Width::Wide);
    text::write_maxima(&mut text, &report.cpus, "%Y-%m-%d %H:%M:%S%.3f");
    report.jobs.iter().for_each(|found| job_table::write_history(&mut text, found));
    write_incidents(&mut text, &report.incidents);
    write_events(&mut text, report);
    write_systems(&mut text, report);
    write_accounting(&mut text, report);
    text
}

fn span(report: &HistoryReport) -> String {
    format!("from {} to {}", format_time(report.from_ms), format_time(report.to_ms))
}

fn write_head(text: &mut String, report: &HistoryReport) {
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
        format_length(covered.counted_ms),
        counted_percent(covered.counted_ms, report.to_ms - report.from_ms),
        pluralize(covered.rows, "interval")
    );
}

fn write_incidents(text: &mut String, incidents: &[Incident]) {
    if incidents.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{BOLD}{}{END}", pluralize(incidents.len() as u64, "incident"));
    for incident in incidents.iter().rev().take(MAX_ROWS) {
        let _ = writeln!(
            text,
            "{}  CPU {:<3} {BOLD}{:>9}{END}  {} {}: {}  {DIM}{}{END}",
            table::format_time(incident.time_ns, "%Y-%m-%d %H:%M:%S"),
            incident.cpu,
            format_us(incident.latency_ns as f64 / 1000.0),
            escape_control(&incident.thread),
            incident.tid,
            escape_control(&incident.cause),
            escape_control(&incident.folder.to_string_lossy())
        );
    }
    write_omitted(text, incidents.len());
}

fn write_omitted(text: &mut String, all: usize) {
    if all > MAX_ROWS {
        let _ = writeln!(
            text,
            "{DIM}and {} earlier ones; --json has all{END}",
            with_thousands((all - MAX_ROWS) as u64)
        );
    }
}

fn write_events(text: &mut String, report: &HistoryReport) {
    if report.events.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{BOLD}interruptions of counting{END}");
    for found in report.events.iter().rev().take(MAX_ROWS) {
        let _ = writeln!(text, "{}  {}", format_time(found.time_ms), format_event(found));
    }
    write_omitted(text, report.events.len());
}

fn write_systems(text: &mut String, report: &HistoryReport) {
    let title = if report.systems.len() == 1 { "on" } else { "on several systems, the last one at the end" };
    let _ = writeln!(text, "\n{BOLD}{title}{END}");
    for system in &report.systems {
        let starts = report.starts.iter().filter(|start| start.system == system.system).count();
        let _ = writeln!(text, "{}  {DIM}{}{END}", system_name(system), pluralize(starts as u64, "start"));
        if report.systems.len() > 1 {
            write_differences(text, report, system);
        }
    }
}

/// Writes the facts in which a system differs from the first one.
fn write_differences(text: &mut String, report: &HistoryReport, system: &System) {
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

fn write_accounting(text: &mut String, report: &HistoryReport) {
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
