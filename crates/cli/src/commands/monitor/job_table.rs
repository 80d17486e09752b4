//! Tables of jobs.

use crate::screen::{BOLD, CYAN, DIM, END, RED, YELLOW};
use std::{collections::BTreeMap, fmt::Write};

use tompion_history::{HistoryJob, HistoryJobs};
use tompion_latency::{
    Histogram,
    jobs::{JobReport, JobsReport, Longest, Release},
};

use super::table::{Width, format_span, format_time, format_us};
use crate::messages::{escape_control, pluralize, with_thousands};

/// Writes the heading; `first` names the first time.
fn write_head(text: &mut String, first: &str, width: Width) {
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

/// Row of a job.
struct Row<'a> {
    name: &'a str,
    activations: u64,
    /// The time that [`write_head`] names, the 99.9th percentile and the maximum, in format_us.
    times: [f64; 3],
    deadline: String,
    misses: u64,
    places: &'a Histogram,
}

impl Row<'_> {
    fn write(&self, text: &mut String, width: Width) {
        let style = if self.misses > 0 { RED } else { "" };
        let format = |us: f64| if self.activations == 0 { "-".into() } else { format_us(us) };
        let [first, below, longest] = self.times.map(format);
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

/// Writes the jobs of a report; a wide table has their phases, too.
pub fn write_jobs(text: &mut String, report: &JobsReport, width: Width) {
    write_head(text, "last", width);
    for job in &report.jobs {
        write_job(text, job, width);
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

fn write_job(text: &mut String, job: &JobReport, width: Width) {
    let row = Row {
        name: &job.name,
        activations: job.activations,
        times: [job.response.last_us, job.response.p999_us, job.response.max_us],
        deadline: job.deadline_us.map_or("-".into(), format_us),
        misses: job.misses,
        places: &job.response.places,
    };
    row.write(text, width);
    if job.unmatched.across_losses > 0 {
        let across = pluralize(job.unmatched.across_losses, "activation");
        let _ = writeln!(text, "{YELLOW}  {across} across losses{END}: responses unknown");
    }
    let odd = job.unmatched.without_begin + job.unmatched.without_end;
    if odd > 0 && (width == Width::Wide || job.activations == 0) {
        let _ = writeln!(text, "{DIM}  {} without its counterpart{END}", pluralize(odd, "begin or end"));
    }
    if width != Width::Wide || job.activations == 0 {
        return;
    }
    let running = (job.until_running.count > 0).then_some(job.until_running.p999_us);
    let phases = format_phases(running, job.until_begin.p999_us, job.execution.p999_us);
    let _ = writeln!(text, "{DIM}  99.9 %   {phases}; from {}{END}", released(&job.released_by));
    if let Some(longest) = &job.longest {
        let _ = writeln!(text, "{DIM}  max      {}{END}", describe_longest(longest, "%H:%M:%S%.3f"));
    }
}

fn format_phases(until_running: Option<f64>, until_begin: f64, execution: f64) -> String {
    let running = until_running.map(|us| format!("{} to running, ", format_us(us))).unwrap_or_default();
    format!("{running}{} to begin, {} to end", format_us(until_begin), format_us(execution))
}

/// Formats the phases of a longest response.
pub fn longest_phases(longest: &Longest) -> String {
    format_phases(longest.until_running_us, longest.until_begin_us, longest.execution_us)
}

/// Formats the phases of a longest response, its thread, and its time in this format.
fn describe_longest(longest: &Longest, format: &str) -> String {
    let (thread, when) = (escape_control(&longest.thread), format_time(longest.time_ns, format));
    format!("{}; {thread} {} at {when}", longest_phases(longest), longest.tid)
}

/// Formats the numbers of activations by what released them.
pub fn released(by: &BTreeMap<Release, u64>) -> String {
    let words = by.iter().map(|(by, count)| format!("{} {}", by.words(), with_thousands(*count)));
    words.collect::<Vec<_>>().join(", ")
}

/// Formats a job's deadline in a history; the minimum and maximum if there were several.
pub fn deadlines(job: &HistoryJob) -> String {
    match job.deadlines_us {
        None => "-".into(),
        Some([one, other]) if one.to_bits() == other.to_bits() => format_us(one),
        Some(both) => both.map(format_us).join(" – "),
    }
}

/// Writes the jobs of a period of a history.
pub fn write_history(text: &mut String, found: &HistoryJobs) {
    write_head(text, "50 %", Width::Wide);
    for job in &found.jobs {
        let row = Row {
            name: &job.name,
            activations: job.activations,
            times: [job.p50_us, job.p999_us, job.max_us],
            deadline: deadlines(job),
            misses: job.misses,
            places: &job.places,
        };
        row.write(text, Width::Wide);
        let _ = writeln!(text, "{DIM}  all      from {}{END}", released(&job.released_by));
        if let Some(longest) = &job.longest {
            let _ =
                writeln!(text, "{DIM}  max      {}{END}", describe_longest(longest, "%Y-%m-%d %H:%M:%S%.3f"));
        }
    }
    if found.jobs.is_empty() {
        let _ = writeln!(text, "{DIM}no activation{END}");
    }
    let watched = format_span(found.watched_ms.saturating_mul(1_000_000));
    let _ = writeln!(text, "{DIM}jobs were monitored for {watched}{END}");
    if found.lost > 0 {
        let lost = pluralize(found.lost, "begin, end or wakeup");
        let _ = writeln!(text, "{YELLOW}{lost} lost{END}: rings were full");
    }
}
