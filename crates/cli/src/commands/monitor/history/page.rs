//! A report as an HTML page without other files.

use std::fmt::Write as _;

use tompion_history::{HistoryJob, HistoryJobs, HistoryReport, Incident};
use tompion_latency::{CpuReport, Kind, KindReport, Late, of_all_cpus};
use tompion_report::html::{self, escape, figure};

use super::{
    labels::{counted_percent, format_event, system_name},
    times::{format_length, format_time},
};
use crate::{
    commands::monitor::{
        job_table,
        table::{format_maximum, format_phases, format_time as format_ns, format_us},
    },
    messages::{pluralize, with_thousands},
};

/// Maximum number of rows of a table.
const MAX_ROWS: usize = 100;

/// Pictures of a page, as SVG documents.
pub struct Pictures {
    /// Maximum latencies over time.
    pub maxima: String,
    /// Histograms of all latencies.
    pub histograms: String,
    /// Maximum response times of jobs over time, if there are jobs.
    pub jobs: Option<String>,
}

/// Returns the page of a report.
pub fn report_page(report: &HistoryReport, pictures: &Pictures) -> String {
    let title =
        format!("Real-time latencies from {} to {}", format_time(report.from_ms), format_time(report.to_ms));
    let sections = [
        head(&title, report),
        tiles(report),
        accuracy(report),
        "<h2>Maximum latencies</h2>\n".into(),
        figure(
            &pictures.maxima,
            "Max of each CPU, in steps of at least five minutes; where a step has several, the band \
             reaches down to the shortest of their maxima.",
        ),
        maxima(&report.cpus),
        "<h2>All latencies</h2>\n".into(),
        figure(
            &pictures.histograms,
            "Number of wakeups by latency and CPU; both axes are logarithmic, dashed lines mark the max.",
        ),
        kinds(&report.cpus),
        report.jobs.as_ref().map_or_else(String::new, |found| jobs(found, pictures.jobs.as_deref())),
        incidents(&report.incidents),
        events(report),
        systems(report),
    ];
    html::document(&title, &sections.concat())
}

fn head(title: &str, report: &HistoryReport) -> String {
    let system = report.systems.last().map(system_name).unwrap_or_default();
    format!("<h1>{}</h1>\n<p class=\"soft\">{}</p>\n", escape(title), escape(&system))
}

/// Returns the most important figures.
fn tiles(report: &HistoryReport) -> String {
    let all = of_all_cpus(&report.cpus);
    let by = [Kind::TimerWakeupAll, Kind::TimerWakeup, Kind::Wakeup];
    let kind = by.into_iter().find(|kind| all.contains_key(kind));
    let max = |kind: Kind| {
        let of_cpus = report.cpus.iter().filter_map(|cpu| Some((cpu.cpu, cpu.kinds.get(&kind)?)));
        of_cpus.max_by(|one, other| one.1.max_us.total_cmp(&other.1.max_us))
    };
    let mut tiles = Vec::new();
    if let Some((kind, (cpu, found))) = kind.and_then(|kind| Some((kind, max(kind)?))) {
        let meaning = format!("{}, on CPU {cpu}", kind.long_words());
        tiles.push(("max latency", format_maximum(found.max_us, found.max_is), meaning));
        let below = all.get(&kind).and_then(|places| places.below(999)).unwrap_or(0);
        let below = format_us((below as f64 / 1000.0).min(found.max_us));
        tiles.push(("99.9 %", below, kind.long_words().into()));
    }
    tiles.push(("wakeups", with_thousands(report.wakeups.woken), "of all real-time threads".into()));
    let counted_ms = report.coverage.counted_ms;
    let share = format!("{} %", counted_percent(counted_ms, report.to_ms - report.from_ms));
    tiles.push(("of the time counted", share, format!("{} in all", format_length(counted_ms))));
    let tile = |(what, figure, meaning): (&str, String, String)| {
        format!(
            "<div class=\"point\"><div class=\"what\">{what}</div><div class=\"figure\">{}</div>\
             <div class=\"meaning\">{}</div></div>\n",
            escape(&figure),
            escape(&meaning)
        )
    };
    format!("<div class=\"points\">\n{}</div>\n", tiles.into_iter().map(tile).collect::<String>())
}

/// Returns notes on errors of the figures, if there are any.
fn accuracy(report: &HistoryReport) -> String {
    let sums = report.wakeups;
    let mut notes = String::new();
    if sums.difference != 0 {
        let _ = write!(
            notes,
            "<b>The accounting is wrong</b> by up to {}: this is a bug of the monitor.  ",
            sums.difference
        );
    }
    if sums.unseen > 0 {
        let (unseen, slept) = (with_thousands(sums.unseen), with_thousands(sums.slept));
        let _ = write!(notes, "{unseen} of {slept} wakeups were not seen, according to the scheduler.");
    }
    if notes.is_empty() { notes } else { format!("<div class=\"note\">{notes}</div>\n") }
}

fn table(heads: &[&str], rows: &[Vec<String>]) -> String {
    let cells = |name: &str, row: &[String]| -> String {
        row.iter().map(|cell| format!("<{name}>{}</{name}>", escape(cell))).collect()
    };
    let heads: Vec<String> = heads.iter().map(|head| (*head).to_owned()).collect();
    let rows: String = rows.iter().map(|row| format!("<tr>{}</tr>\n", cells("td", row))).collect();
    format!("<div class=\"wide\"><table>\n<tr>{}</tr>\n{rows}</table></div>\n", cells("th", &heads))
}

fn kinds(cpus: &[CpuReport]) -> String {
    let row = |(cpu, kind, found): (u32, Kind, &KindReport)| {
        let figures = [found.mean_us, found.p50_us, found.p99_us, found.p999_us].map(format_us);
        let mut row = vec![kind.long_words().to_owned(), cpu.to_string(), with_thousands(found.count)];
        row.extend(figures);
        row.push(format_maximum(found.max_us, found.max_is));
        row
    };
    let rows: Vec<Vec<String>> = by_kind(cpus).into_iter().map(row).collect();
    table(&["kind", "CPU", "count", "mean", "50 %", "99 %", "99.9 %", "max"], &rows)
}

/// Returns the kinds of all CPUs, sorted by kind.
fn by_kind(cpus: &[CpuReport]) -> Vec<(u32, Kind, &KindReport)> {
    let all = cpus.iter().flat_map(|cpu| cpu.kinds.iter().map(move |(kind, found)| (cpu.cpu, *kind, found)));
    let mut all: Vec<_> = all.collect();
    all.sort_by_key(|(cpu, kind, _)| (*kind, *cpu));
    all
}

fn maxima(cpus: &[CpuReport]) -> String {
    let row = |(cpu, kind, found): (u32, Kind, &KindReport)| -> Option<Vec<String>> {
        let late: &Late = found.worst.as_ref()?;
        Some(vec![
            kind.long_words().to_owned(),
            cpu.to_string(),
            format_maximum(found.max_us, found.max_is),
            format!("{} {} ({})", late.name, late.tid, late.priority),
            format_ns(late.time_ns, "%Y-%m-%d %H:%M:%S%.3f"),
            format_phases(late),
        ])
    };
    let rows: Vec<Vec<String>> = by_kind(cpus).into_iter().filter_map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    let table = table(&["kind", "CPU", "max", "thread", "when", "phases, and thread on the CPU"], &rows);
    table.replace("<table>", "<table class=\"narrow prose\">")
}

/// Returns tables of response times of jobs and their maxima.
fn jobs(found: &HistoryJobs, picture: Option<&str>) -> String {
    const HEADS: [&str; 10] =
        ["job", "activations", "mean", "50 %", "99 %", "99.9 %", "max", "deadline", "misses", "released by"];
    let row = |job: &HistoryJob| {
        let mut row = vec![job.name.clone(), with_thousands(job.activations)];
        row.extend([job.mean_us, job.p50_us, job.p99_us, job.p999_us, job.max_us].map(format_us));
        row.extend([
            job_table::deadlines(job),
            with_thousands(job.misses),
            job_table::released(&job.released_by),
        ]);
        row
    };
    let late = |job: &HistoryJob| {
        let longest = job.longest.as_ref()?;
        Some(vec![
            job.name.clone(),
            format_us(longest.response_us),
            format!("{} {}", longest.thread, longest.tid),
            format_ns(longest.time_ns, "%Y-%m-%d %H:%M:%S%.3f"),
            job_table::longest_phases(longest),
        ])
    };
    let rows: Vec<Vec<String>> = found.jobs.iter().map(row).collect();
    let longest: Vec<Vec<String>> = found.jobs.iter().filter_map(late).collect();
    let lost = match found.lost {
        0 => String::new(),
        lost => format!(" {} lost: rings were full.", pluralize(lost, "begin, end or wakeup")),
    };
    let watched = format_length(i64::try_from(found.watched_ms).unwrap_or(i64::MAX));
    let figure = picture.map_or_else(String::new, |picture| {
        figure(
            picture,
            "The max response of each job, in steps of at least five minutes, beside its deadline; dots are steps in which \
             it was missed.",
        )
    });
    let longest_table = table(&["job", "max", "thread", "when", "phases"], &longest);
    format!(
        "<h2>Jobs and their deadlines</h2>\n<p class=\"soft\">From an activation's release to its end. Jobs were monitored for \
         {watched}.{lost}</p>\n{figure}{}{}",
        table(&HEADS, &rows).replace("<table>", "<table class=\"narrow\">"),
        longest_table.replace("<table>", "<table class=\"narrow prose\">")
    )
}

fn incidents(incidents: &[Incident]) -> String {
    if incidents.is_empty() {
        return String::new();
    }
    let row = |incident: &Incident| {
        vec![
            format_ns(incident.time_ns, "%Y-%m-%d %H:%M:%S%.3f"),
            incident.cpu.to_string(),
            format_us(incident.latency_ns as f64 / 1000.0),
            format!("{} {}", incident.thread, incident.tid),
            incident.cause.clone(),
            incident.folder.display().to_string(),
        ]
    };
    let rows: Vec<Vec<String>> = incidents.iter().rev().take(MAX_ROWS).map(row).collect();
    let table = table(&["when", "CPU", "latency", "thread", "causes", "trace"], &rows);
    let title = pluralize(incidents.len() as u64, "incident");
    format!("<h2>{title}</h2>\n{}", table.replace("<table>", "<table class=\"narrow prose\">"))
}

fn events(report: &HistoryReport) -> String {
    if report.events.is_empty() {
        return String::new();
    }
    let rows: Vec<Vec<String>> = report
        .events
        .iter()
        .rev()
        .take(MAX_ROWS)
        .map(|found| vec![format_time(found.time_ms), format_event(found)])
        .collect();
    let table = table(&["when", "what"], &rows).replace("<table>", "<table class=\"prose\">");
    format!("<h2>Interruptions of counting</h2>\n{table}")
}

fn systems(report: &HistoryReport) -> String {
    let mut text = String::from("<h2>Systems</h2>\n");
    for system in report.systems.iter().rev() {
        let rows: Vec<Vec<String>> =
            system.facts.iter().map(|fact| vec![fact.name.clone(), fact.value.clone()]).collect();
        if report.systems.len() > 1 {
            let _ = writeln!(text, "<h3>{}</h3>", escape(&system_name(system)));
        }
        text.push_str(&table(&["", ""], &rows).replace("<table>", "<table class=\"prose\">"));
    }
    text
}
