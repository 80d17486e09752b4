//! The table of jobs.

use std::fmt::Write;

use tompion_latency::jobs::{JobReport, JobsReport, Longest, Release};

use super::text::{BOLD, CYAN, DIM, END, RED, SCALE, YELLOW, distribution, microseconds, time};
use crate::messages::{counted, grouped, harmless};

/// Jobs, and in a wide one what they are made of.
pub fn jobs(text: &mut String, report: &JobsReport, wide: bool) {
    let scale = if wide { SCALE } else { "" };
    let _ = writeln!(
        text,
        "\n{BOLD}{:<20}{:>12}{:>10}{:>10}{:>10}{:>10}{:>8}{END}  {DIM}{scale}{END}",
        "job", "activations", "last", "99.9 %", "longest", "deadline", "misses"
    );
    for job in &report.jobs {
        row(text, job, wide);
    }
    if report.jobs.is_empty() {
        let _ = writeln!(text, "{DIM}none yet{END}");
    }
    let lost = report.lost_events + report.lost_messages;
    if lost > 0 {
        let lost = counted(lost, "begin, end or wake-up");
        let _ = writeln!(text, "{YELLOW}{lost} lost{END}: rings were full");
    }
    if report.not_started > 0 {
        let times = counted(report.not_started, "wake-up");
        let _ = writeln!(text, "{YELLOW}{times} not seen{END}: their jobs count from their begins");
    }
    if let Some(failure) = &report.failure {
        let _ = writeln!(text, "{RED}{}{END}", harmless(failure));
    }
}

fn row(text: &mut String, job: &JobReport, wide: bool) {
    let style = if job.misses > 0 { RED } else { "" };
    let bars = if wide { distribution(&job.response.places) } else { String::new() };
    let response = |us: f64| if job.activations == 0 { "-".into() } else { microseconds(us) };
    let _ = writeln!(
        text,
        "{:<20}{:>12}{:>10}{:>10}{BOLD}{:>10}{END}{:>10}{style}{:>8}{END}  {CYAN}{bars}{END}",
        harmless(&job.name),
        grouped(job.activations),
        response(job.response.last_us),
        response(job.response.p999_us),
        response(job.response.max_us),
        job.deadline_us.map_or("-".into(), microseconds),
        grouped(job.misses),
    );
    if !wide || job.activations == 0 {
        return;
    }
    let running = (job.until_running.count > 0).then_some(job.until_running.p999_us);
    let parts = parts(running, job.until_begin.p999_us, job.execution.p999_us);
    let released: Vec<String> = Release::ALL
        .iter()
        .filter_map(|by| Some(format!("{} {}", by.words(), grouped(*job.released_by.get(by)?))))
        .collect();
    let _ = writeln!(text, "{DIM}  99.9 %   {parts}; from {}{END}", released.join(", "));
    if let Some(longest) = &job.longest {
        let _ = writeln!(text, "{DIM}  longest  {}{END}", in_parts(longest));
    }
    let odd = job.odd.without_begin + job.odd.without_end;
    if odd > 0 {
        let _ = writeln!(text, "{DIM}  {} without the other{END}", counted(odd, "begin or end"));
    }
}

fn parts(until_running: Option<f64>, until_begin: f64, execution: f64) -> String {
    let running = until_running.map(|us| format!("{} to running, ", microseconds(us))).unwrap_or_default();
    format!("{running}{} to begin, {} to end", microseconds(until_begin), microseconds(execution))
}

fn in_parts(longest: &Longest) -> String {
    let parts = parts(longest.until_running_us, longest.until_begin_us, longest.execution_us);
    let (thread, when) = (harmless(&longest.thread), time(longest.time_ns, "%H:%M:%S%.3f"));
    format!("{parts}; {thread} {} at {when}", longest.tid)
}
