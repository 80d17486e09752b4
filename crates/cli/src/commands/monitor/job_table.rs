//! The table of jobs.

use std::{collections::BTreeMap, fmt::Write};

use tompion_history::{HistoryJob, HistoryJobs};
use tompion_latency::{
    Histogram,
    jobs::{JobReport, JobsReport, Longest, Release},
};

use super::text::{BOLD, CYAN, DIM, END, RED, Width, YELLOW, microseconds, span, time};
use crate::messages::{escape_control, pluralize, with_thousands};

/// The line above jobs; `first` is the name of the first length.
fn head(text: &mut String, first: &str, width: Width) {
    let counts = width.unless_narrow(format!("{:>12}{first:>10}", "activations"));
    let _ = writeln!(
        text,
        "\n{BOLD}{:<20}{counts}{:>10}{:>10}{:>10}{:>8}{END}  {DIM}{}{END}",
        "job",
        "99.9 %",
        "max",
        "deadline",
        "misses",
        width.scale()
    );
}

/// A job's line.
struct Line<'a> {
    name: &'a str,
    activations: u64,
    /// The one that [`head`] names, what 99.9 % don't reach, and the longest, in microseconds.
    lengths: [f64; 3],
    deadline: String,
    misses: u64,
    places: &'a Histogram,
}

impl Line<'_> {
    fn write(&self, text: &mut String, width: Width) {
        let style = if self.misses > 0 { RED } else { "" };
        let length = |us: f64| if self.activations == 0 { "-".into() } else { microseconds(us) };
        let [first, below, longest] = self.lengths.map(length);
        let _ = writeln!(
            text,
            "{:<20}{}{below:>10}{BOLD}{longest:>10}{END}{:>10}{style}{:>8}{END}  {CYAN}{}{END}",
            escape_control(self.name),
            width.unless_narrow(format!("{:>12}{first:>10}", with_thousands(self.activations))),
            self.deadline,
            with_thousands(self.misses),
            width.bars(self.places)
        );
    }
}

/// Jobs, and in a wide one what they are made of.
pub fn jobs(text: &mut String, report: &JobsReport, width: Width) {
    head(text, "last", width);
    for job in &report.jobs {
        row(text, job, width);
    }
    if report.jobs.is_empty() {
        let _ = writeln!(text, "{DIM}none yet{END}");
    }
    let lost = report.lost_events.saturating_add(report.lost_messages);
    if lost > 0 {
        let lost = pluralize(lost, "begin, end or wakeup");
        let _ = writeln!(text, "{YELLOW}{lost} lost{END}: rings were full");
    }
    if report.losses_unknown > 0 {
        let processes = pluralize(report.losses_unknown, "process");
        let _ = writeln!(text, "{YELLOW}losses of {processes} unknown{END}: their counts are impossible");
    }
    if report.not_started > 0 {
        let times = pluralize(report.not_started, "wakeup");
        let _ = writeln!(text, "{YELLOW}{times} not seen{END}: their jobs are measured from their begin");
    }
    if let Some(failure) = &report.failure {
        let _ = writeln!(text, "{RED}{}{END}", escape_control(failure));
    }
}

fn row(text: &mut String, job: &JobReport, width: Width) {
    let line = Line {
        name: &job.name,
        activations: job.activations,
        lengths: [job.response.last_us, job.response.p999_us, job.response.max_us],
        deadline: job.deadline_us.map_or("-".into(), microseconds),
        misses: job.misses,
        places: &job.response.places,
    };
    line.write(text, width);
    if job.odd.across_losses > 0 {
        let across = pluralize(job.odd.across_losses, "activation");
        let _ = writeln!(text, "{YELLOW}  {across} across losses{END}: responses unknown");
    }
    if width != Width::Wide || job.activations == 0 {
        return;
    }
    let running = (job.until_running.count > 0).then_some(job.until_running.p999_us);
    let parts = parts(running, job.until_begin.p999_us, job.execution.p999_us);
    let _ = writeln!(text, "{DIM}  99.9 %   {parts}; from {}{END}", released(&job.released_by));
    if let Some(longest) = &job.longest {
        let _ = writeln!(text, "{DIM}  max      {}{END}", in_parts(longest, "%H:%M:%S%.3f"));
    }
    let odd = job.odd.without_begin + job.odd.without_end;
    if odd > 0 {
        let _ = writeln!(text, "{DIM}  {} without its counterpart{END}", pluralize(odd, "begin or end"));
    }
}

fn parts(until_running: Option<f64>, until_begin: f64, execution: f64) -> String {
    let running = until_running.map(|us| format!("{} to running, ", microseconds(us))).unwrap_or_default();
    format!("{running}{} to begin, {} to end", microseconds(until_begin), microseconds(execution))
}

/// The parts of a longest response.
pub fn parts_of(longest: &Longest) -> String {
    parts(longest.until_running_us, longest.until_begin_us, longest.execution_us)
}

/// The same with whose it was, and when in this format.
fn in_parts(longest: &Longest, format: &str) -> String {
    let (thread, when) = (escape_control(&longest.thread), time(longest.time_ns, format));
    format!("{}; {thread} {} at {when}", parts_of(longest), longest.tid)
}

/// What released how many.
pub fn released(by: &BTreeMap<Release, u64>) -> String {
    let words = by.iter().map(|(by, count)| format!("{} {}", by.words(), with_thousands(*count)));
    words.collect::<Vec<_>>().join(", ")
}

/// A job's deadline in a history; the shortest and the longest where there were several.
pub fn deadlines(job: &HistoryJob) -> String {
    match job.deadlines_us {
        None => "-".into(),
        Some([one, other]) if one.to_bits() == other.to_bits() => microseconds(one),
        Some(both) => both.map(microseconds).join(" – "),
    }
}

/// Jobs of a time of a history.
pub fn of_history(text: &mut String, found: &HistoryJobs) {
    head(text, "50 %", Width::Wide);
    for job in &found.jobs {
        let line = Line {
            name: &job.name,
            activations: job.activations,
            lengths: [job.p50_us, job.p999_us, job.max_us],
            deadline: deadlines(job),
            misses: job.misses,
            places: &job.places,
        };
        line.write(text, Width::Wide);
        let _ = writeln!(text, "{DIM}  all      from {}{END}", released(&job.released_by));
        if let Some(longest) = &job.longest {
            let _ = writeln!(text, "{DIM}  max      {}{END}", in_parts(longest, "%Y-%m-%d %H:%M:%S%.3f"));
        }
    }
    if found.jobs.is_empty() {
        let _ = writeln!(text, "{DIM}no activation{END}");
    }
    let watched = span(found.watched_ms.saturating_mul(1_000_000));
    let _ = writeln!(text, "{DIM}jobs were monitored for {watched}{END}");
    if found.lost > 0 {
        let lost = pluralize(found.lost, "begin, end or wakeup");
        let _ = writeln!(text, "{YELLOW}{lost} lost{END}: rings were full");
    }
}
