//! Prometheus exposition of reports, in its text format.
//!
//! Source: <https://prometheus.io/docs/instrumenting/exposition_formats/>, version 0.0.4.

mod deprecated;

use std::fmt::Write;

use crate::{
    jobs::{BOUNDS, JobReport, JobsReport, Part},
    recent::Longest,
    report::{GroupReport, KindReport, Report, ThreadReport},
};

/// Bucket bounds in nanoseconds: 1, 2, 3, 5, 7 µs and so on, up to 10 ms. Histograms have buckets
/// of whole microseconds, so no bound divides one.
fn bounds() -> impl Iterator<Item = u64> {
    let steps = (0..4).flat_map(|power| [1, 2, 3, 5, 7].map(|digit| digit * 1000 * 10u64.pow(power)));
    steps.chain([10_000_000])
}

/// Numbers of incidents since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Incidents {
    /// Number of saved incidents.
    pub kept: u64,
    /// Number of late wakeups not saved because they came too soon after a saved one.
    pub too_soon: u64,
    /// Number of incidents that could not be written.
    pub failed: u64,
}

/// Activities of the exporting process beside counting.
#[derive(Clone, Copy, Debug, Default)]
pub struct OfProcess {
    /// Time of the history's last row, in nanoseconds since 1970; none without a history.
    pub history_written_ns: Option<u64>,
    /// Incidents, if they are saved.
    pub incidents: Option<Incidents>,
}

/// Content of the page, of one time.
pub struct Exposition<'a> {
    /// Report since counting began: its counters never go back.
    pub total: &'a Report,
    /// Report since the last reset.
    pub since_reset: &'a Report,
    /// Maxima of the last minutes.
    pub recent: &'a Longest,
    /// See [`OfProcess`].
    pub process: &'a OfProcess,
}

/// Formats the page.
pub fn exposition(content: &Exposition<'_>) -> String {
    let Exposition { total, since_reset, recent, process } = content;
    let mut text = String::new();
    // Writing to a string never fails.
    let _ = histograms(&mut text, total);
    let _ = longest(&mut text, &since_reset.max_us, recent);
    let _ = wakeups(&mut text, total);
    let _ = groups(&mut text, total, since_reset);
    let _ = threads(&mut text, total, since_reset);
    let _ = since_reset.jobs.iter().try_for_each(|found| jobs(&mut text, found));
    let _ = of_process(&mut text, process);
    let old_names = deprecated::families(&text);
    text + &old_names
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) -> std::fmt::Result {
    writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}")
}

/// Formats nanoseconds in seconds exactly, unlike a division: `0.000124956`.
fn seconds(ns: u64) -> String {
    let text = format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Formats microseconds that are whole nanoseconds.
fn seconds_of(us: f64) -> String {
    seconds((us * 1000.0).round() as u64)
}

fn histograms(text: &mut String, report: &Report) -> std::fmt::Result {
    let name = "tompion_latency_seconds";
    head(text, name, "histogram", "Latency of real-time wakeups and their timers, by CPU and kind.")?;
    for cpu in &report.cpus {
        for (kind, found) in &cpu.kinds {
            histogram(text, name, &format!("cpu=\"{}\",kind=\"{kind}\"", cpu.cpu), found)?;
        }
    }
    Ok(())
}

fn histogram(text: &mut String, name: &str, labels: &str, found: &KindReport) -> std::fmt::Result {
    let (mut places, mut below) = (found.places.places().peekable(), 0);
    for bound in bounds() {
        while let Some((_, count)) = places.next_if(|(begin, _)| *begin < bound) {
            below += count;
        }
        writeln!(text, "{name}_bucket{{{labels},le=\"{}\"}} {below}", seconds(bound))?;
    }
    writeln!(text, "{name}_bucket{{{labels},le=\"+Inf\"}} {}", found.count)?;
    writeln!(text, "{name}_sum{{{labels}}} {}", seconds_of(found.mean_us * found.count as f64))?;
    writeln!(text, "{name}_count{{{labels}}} {}", found.count)
}

/// Writes groups as metrics of their own: the metrics by CPU already have their wakeups, and a sum
/// must not count them twice.
fn groups(text: &mut String, total: &Report, since_reset: &Report) -> std::fmt::Result {
    let name = "tompion_group_latency_seconds";
    head(text, name, "histogram", "Latency of cgroups and named threads, by kind.")?;
    for group in &total.groups {
        let label = group_label(group);
        group.kinds.iter().try_for_each(|(kind, found)| {
            histogram(text, name, &format!("{label},kind=\"{kind}\""), found)
        })?;
    }
    let name = "tompion_group_latency_max_seconds";
    head(text, name, "gauge", "Maximum latency of a group since the last reset, by kind.")?;
    for group in &since_reset.groups {
        let label = group_label(group);
        for (kind, found) in &group.kinds {
            writeln!(text, "{name}{{{label},kind=\"{kind}\"}} {}", seconds_of(found.max_us))?;
        }
    }
    Ok(())
}

/// Label of a group: `cgroup="/robot.slice"`, `thread="ctl*"`.
fn group_label(found: &GroupReport) -> String {
    format!("{}=\"{}\"", found.group.noun(), escaped(found.group.pattern()))
}

fn longest(text: &mut String, since_reset: &Longest, recent: &Longest) -> std::fmt::Result {
    let each = [
        (
            "tompion_latency_max_seconds",
            "Maximum latency since the last reset, by CPU and kind.",
            since_reset,
        ),
        (
            "tompion_latency_recent_max_seconds",
            "Maximum latency of the last 5 to 10 minutes, or since the last scrape if that is longer, by CPU and kind.",
            recent,
        ),
    ];
    for (name, help, longest) in each {
        head(text, name, "gauge", help)?;
        for (cpu, kinds) in longest {
            for (kind, us) in kinds {
                writeln!(text, "{name}{{cpu=\"{cpu}\",kind=\"{kind}\"}} {}", seconds_of(*us))?;
            }
        }
    }
    Ok(())
}

fn of_process(text: &mut String, process: &OfProcess) -> std::fmt::Result {
    if let Some(ns) = process.history_written_ns {
        let name = "tompion_history_last_write_timestamp_seconds";
        head(text, name, "gauge", "Time of the last write to the history, in seconds since 1970.")?;
        writeln!(text, "{name} {}", seconds(ns))?;
    }
    let Some(Incidents { kept, too_soon, failed }) = process.incidents else { return Ok(()) };
    let name = "tompion_incidents_total";
    head(text, name, "counter", "Incidents saved: late wakeups and missed deadlines.")?;
    writeln!(text, "{name} {kept}")?;
    let name = "tompion_incidents_not_saved_total";
    head(
        text,
        name,
        "counter",
        "Incidents not saved: within the cooldown of another one (pause), or writing failed (failed).",
    )?;
    writeln!(text, "{name}{{reason=\"pause\"}} {too_soon}\n{name}{{reason=\"failed\"}} {failed}")
}

fn wakeups(text: &mut String, report: &Report) -> std::fmt::Result {
    let sums = &report.wakeups;
    head(text, "tompion_wakeups_total", "counter", "Real-time wakeups, by how they ended.")?;
    let ends = [
        ("highest", sums.wakeup),
        ("shared", sums.shared),
        ("preempted", sums.preempted),
        ("not-slept", sums.not_slept),
        ("replaced", sums.replaced),
        ("displaced", sums.displaced),
    ];
    for (end, count) in ends {
        writeln!(text, "tompion_wakeups_total{{end=\"{end}\"}} {count}")?;
    }
    let others = [
        (
            "tompion_wakeups_unattributed_total",
            "counter",
            "Wakeups not attributed to a thread, because all thread slots were in use.",
            sums.without_row as i64,
        ),
        ("tompion_wakeups_begun_total", "counter", "Real-time wakeups that began.", sums.woken as i64),
        (
            "tompion_wakeup_accounting_error",
            "gauge",
            "Wakeups started minus wakeups accounted for; non-zero is a bug.",
            sums.difference,
        ),
        (
            "tompion_bpf_recursion_misses_total",
            "counter",
            "Runs of the monitor's BPF programs that the kernel skipped, because they already ran on the CPU.",
            report.not_started as i64,
        ),
    ];
    for (name, kind, help, value) in others {
        head(text, name, kind, help)?;
        writeln!(text, "{name} {value}")?;
    }
    let Some(unseen) = report.unseen else { return Ok(()) };
    let name = "tompion_wakeups_unseen";
    head(text, name, "gauge", "Sleeps in tompion_sched_sleeps whose wakeup the monitor did not see.")?;
    writeln!(text, "{name} {}", unseen.unseen)?;
    let name = "tompion_sched_sleeps";
    head(
        text,
        name,
        "gauge",
        "Sleeps of real-time threads since each was first seen, counted by the scheduler.",
    )?;
    writeln!(text, "{name} {}", unseen.slept)
}

fn threads(text: &mut String, total: &Report, since_reset: &Report) -> std::fmt::Result {
    let labels =
        |thread: &ThreadReport| format!("tid=\"{}\",thread=\"{}\"", thread.tid, escaped(&thread.name));
    let each = since_reset
        .threads
        .iter()
        .map(|thread| (labels(thread), seconds_of(thread.max_us), seconds_of(thread.p999_us)));
    let each: Vec<_> = each.collect();
    let name = "tompion_thread_latency_max_seconds";
    head(text, name, "gauge", "Maximum latency of a thread since the last reset.")?;
    each.iter().try_for_each(|(labels, longest, ..)| writeln!(text, "{name}{{{labels}}} {longest}"))?;
    let name = "tompion_thread_latency_p999_seconds";
    head(text, name, "gauge", "99.9th percentile of a thread's latency since the last reset.")?;
    each.iter().try_for_each(|(labels, _, below)| writeln!(text, "{name}{{{labels}}} {below}"))?;
    let name = "tompion_thread_period_overruns_total";
    head(text, name, "counter", "Periods that a thread overran, by its own timer.")?;
    total
        .threads
        .iter()
        .try_for_each(|thread| writeln!(text, "{name}{{{}}} {}", labels(thread), thread.misses))
}

/// Writes counters of jobs since they are watched, which restart with the watching process. The
/// label isn't `job`, which Prometheus uses itself.
fn jobs(text: &mut String, found: &JobsReport) -> std::fmt::Result {
    let name = "tompion_job_response_seconds";
    head(text, name, "histogram", "Response time of jobs, from release to end.")?;
    for job in &found.jobs {
        let label = format!("name=\"{}\"", escaped(&job.name));
        for (bound, count) in BOUNDS.into_iter().zip(job.response.within) {
            writeln!(text, "{name}_bucket{{{label},le=\"{}\"}} {count}", seconds(bound))?;
        }
        let Part { count, mean_us, .. } = job.response;
        writeln!(text, "{name}_bucket{{{label},le=\"+Inf\"}} {count}")?;
        writeln!(text, "{name}_sum{{{label}}} {}", seconds_of(mean_us * count as f64))?;
        writeln!(text, "{name}_count{{{label}}} {count}")?;
    }
    type Value = fn(&JobReport) -> Option<String>;
    let each: [(&str, &str, &str, Value); 8] = [
        ("response_max_seconds", "gauge", "Maximum response time.", |job| {
            Some(seconds_of(job.response.max_us))
        }),
        ("until_running_max_seconds", "gauge", "Maximum time from a release until the thread runs.", |job| {
            (job.until_running.count > 0).then_some(seconds_of(job.until_running.max_us))
        }),
        (
            "until_begin_max_seconds",
            "gauge",
            "Maximum time from when the thread runs to the job's begin.",
            |job| Some(seconds_of(job.until_begin.max_us)),
        ),
        ("execution_max_seconds", "gauge", "Maximum time from a job's begin to its end.", |job| {
            Some(seconds_of(job.execution.max_us))
        }),
        ("deadline_seconds", "gauge", "Deadline of a job.", |job| job.deadline_us.map(seconds_of)),
        ("misses_total", "counter", "Missed deadlines.", |job| Some(job.misses.to_string())),
        ("unpaired_total", "counter", "Begins and ends without their counterpart.", |job| {
            Some((job.unmatched.without_end + job.unmatched.without_begin).to_string())
        }),
        (
            "across_losses_total",
            "counter",
            "Activations without a response, because a begin or an end was lost.",
            |job| Some(job.unmatched.across_losses.to_string()),
        ),
    ];
    for (name, kind, help, value) in each {
        let name = format!("tompion_job_{name}");
        head(text, &name, kind, help)?;
        for (job, value) in found.jobs.iter().filter_map(|job| Some((job, value(job)?))) {
            writeln!(text, "{name}{{name=\"{}\"}} {value}", escaped(&job.name))?;
        }
    }
    worst_response(text, found)?;
    let name = "tompion_job_activations_total";
    head(text, name, "counter", "Activations, by what released them.")?;
    for job in &found.jobs {
        for (by, count) in &job.released_by {
            let job = escaped(&job.name);
            writeln!(text, "{name}{{name=\"{job}\",released_by=\"{}\"}} {count}", by.name())?;
        }
    }
    let name = "tompion_job_events_lost_total";
    head(text, name, "counter", "Lost begins, ends and wakeups.")?;
    writeln!(text, "{name} {}", found.lost_events.saturating_add(found.lost_messages))?;
    let name = "tompion_job_processes_with_unknown_losses_total";
    head(text, name, "counter", "Processes with impossible counts of lost begins and ends.")?;
    writeln!(text, "{name} {}", found.losses_unknown)
}

/// Writes the phases of each job's longest response.
fn worst_response(text: &mut String, found: &JobsReport) -> std::fmt::Result {
    let name = "tompion_job_worst_response_seconds";
    head(text, name, "gauge", "Maximum response time of a job by phase: they add up to it.")?;
    for (job, longest) in found.jobs.iter().filter_map(|job| Some((job, job.longest.as_ref()?))) {
        let phases = [
            ("until-running", longest.until_running_us.unwrap_or(0.0)),
            ("until-begin", longest.until_begin_us),
            ("execution", longest.execution_us),
        ];
        for (phase, us) in phases {
            let job = escaped(&job.name);
            writeln!(text, "{name}{{name=\"{job}\",phase=\"{phase}\"}} {}", seconds_of(us))?;
        }
    }
    Ok(())
}

/// Escapes the value of a label: threads may have any name.
fn escaped(name: &str) -> String {
    name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        kinds::{Kind, Kinds},
        sched_crosscheck::MissedWakeups,
        snapshot::Snapshot,
    };

    #[test]
    fn bounds_are_whole_microseconds_and_rise() {
        let bounds: Vec<u64> = bounds().collect();
        assert_eq!((bounds.len(), bounds[0], bounds[20]), (21, 1000, 10_000_000));
        assert!(
            bounds.windows(2).all(|pair| pair[0] < pair[1]) && bounds.iter().all(|bound| bound % 1000 == 0)
        );
    }

    /// Finds all words that begin like our metrics.
    fn metrics(text: &str) -> impl Iterator<Item = &str> {
        let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        text.split(move |letter| !is_of_name(letter)).filter(|word| word.starts_with("tompion_"))
    }

    #[test]
    fn dashboard_and_alerts_ask_for_what_is_on_the_page() {
        let nothing = Snapshot::default();
        let report = Report {
            unseen: Some(MissedWakeups::default()),
            jobs: Some(JobsReport::default()),
            ..Report::between(&nothing, &nothing, Kinds::ALL)
        };
        let process =
            OfProcess { history_written_ns: Some(1_500_000_000), incidents: Some(Incidents::default()) };
        let content =
            Exposition { total: &report, since_reset: &report, recent: &Longest::new(), process: &process };
        let page = exposition(&content);
        assert!(page.contains("\ntompion_history_last_write_timestamp_seconds 1.5\n"), "{page}");
        let metrics_found: Vec<&str> =
            page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
        for (file, text) in [
            ("dashboard", include_str!("../../../integrations/grafana/tompion-monitor.json")),
            ("rules", include_str!("../../../integrations/prometheus/tompion-monitor.rules.yml")),
        ] {
            assert!(metrics(text).count() > 5, "{file}");
            assert!(!metrics(text).any(deprecated::is_old_name), "{file} asks for a deprecated metric");
            for metric in metrics(text) {
                let parts = ["_bucket", "_count", "_sum"];
                let whole = parts.iter().find_map(|part| metric.strip_suffix(part)).unwrap_or(metric);
                assert!(
                    metrics_found.contains(&metric) || metrics_found.contains(&whole),
                    "{file}: no {metric} on the page"
                );
            }
            for kind in text.split("kind=").skip(1) {
                // One name, or several with `=~`.
                let names = kind.trim_start_matches(['~', '\\', '"']).split(['\\', '"']).next();
                for name in names.unwrap_or_default().split('|') {
                    assert!(name == "$kind" || Kind::of_name(name).is_some(), "{file}: no kind {name}");
                }
            }
            for bound in text.split("le=").skip(1) {
                let bound = bound.trim_start_matches(['\\', '"']).split(['\\', '"']).next();
                let is_one = bounds().any(|known| Some(seconds(known).as_str()) == bound);
                assert!(is_one, "{file}: no bound {bound:?}");
            }
        }
    }

    #[test]
    fn seconds_are_exact() {
        let formatted = [0, 1, 124_956, 1_000_000_000, 10_500_000_000, u64::MAX].map(seconds);
        assert_eq!(formatted, ["0", "0.000000001", "0.000124956", "1", "10.5", "18446744073.709551615"]);
        for ns in (0..1_000_000).step_by(7) {
            assert_eq!(seconds_of(ns as f64 / 1000.0), seconds(ns));
        }
        // The mean of a million.
        assert_eq!(seconds_of(124_956_789_123.0 / 1000.0 / 1e6 * 1e6), "124.956789123");
    }

    #[test]
    fn names_are_no_syntax() {
        assert_eq!(escaped("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}
