//! Reports as text: one frame of a terminal, or the whole report.

use crate::screen::{self, BOLD, CYAN, DIM, END, GREEN, RED, YELLOW};
use std::fmt::Write;

use tompion_latency::{CpuReport, Kind, KindReport, Late, MAX_THREADS, Report, ThreadReport, of_all_cpus};

use super::{
    groups, job_table,
    table::{
        KindRow, Width, format_maximum, format_phases, format_span, format_time, format_us, write_kind_row,
    },
};
use crate::messages::{escape_control, pluralize, with_thousands};

/// Returns as much of a report as a terminal has room for. Exited threads share one line.
pub fn frame(report: &Report, (columns, rows): (u16, u16)) -> String {
    let width = Width::of(columns);
    let mut text = String::new();
    head(&mut text, report);
    write_kinds(&mut text, &report.cpus, width);
    let mut foot = String::new();
    write_accounting(&mut foot, report);
    // Groups may take half of the remaining lines; threads need the other half.
    let mut tables = String::new();
    groups::write_tables(&mut tables, report, width);
    let left = usize::from(rows).saturating_sub(text.lines().count() + foot.lines().count());
    text.push_str(&groups::shorten(&tables, left / 2));
    report.jobs.iter().for_each(|found| job_table::write_jobs(&mut text, found, width));
    let (exited, running): (Vec<_>, Vec<_>) = report.threads.iter().partition(|thread| thread.has_ended);
    // Two lines above the threads, one that counts omitted threads, an empty one; one for exited
    // threads.
    let used = text.lines().count() + foot.lines().count() + 4 + usize::from(!exited.is_empty());
    write_threads(&mut text, &running, width, usize::from(rows).saturating_sub(used));
    write_exited_threads(&mut text, &exited);
    text.push_str(&foot);
    let _ = write!(text, "{DIM}Ctrl-C ends the display; counting continues{END}");
    screen::fit(&text, (columns, rows))
}

/// Returns the whole report, with the maximum of each kind in detail.
pub fn report_text(report: &Report) -> String {
    let mut text = String::new();
    head(&mut text, report);
    write_kinds(&mut text, &report.cpus, Width::Wide);
    groups::write_tables(&mut text, report, Width::Wide);
    write_maxima(&mut text, &report.cpus, "%H:%M:%S%.6f");
    groups::write_maxima(&mut text, &report.groups);
    report.jobs.iter().for_each(|found| job_table::write_jobs(&mut text, found, Width::Wide));
    write_threads(&mut text, &report.threads.iter().collect::<Vec<_>>(), Width::Wide, usize::MAX);
    write_accounting(&mut text, report);
    text
}

/// Returns the number of wakeups, the time span and its begin.
pub fn title(report: &Report) -> String {
    let woken = pluralize(report.wakeups.woken, "wakeup");
    let lasted = format_span(report.to_ns.saturating_sub(report.from_ns));
    format!("{woken} in {lasted}, since {}", format_time(report.from_ns, "%-d %b %H:%M:%S"))
}

fn head(text: &mut String, report: &Report) {
    let _ = writeln!(text, "{BOLD}real-time wakeups{END}  {}", title(report));
    let off: Vec<&str> =
        Kind::ALL.iter().filter(|kind| !report.kinds.contains(kind)).map(|kind| kind.name()).collect();
    if !off.is_empty() {
        let _ = writeln!(text, "{YELLOW}not counted: {}{END}", off.join(", "));
    }
}

/// Writes a table of all kinds, of all CPUs together.
pub fn write_kinds(text: &mut String, cpus: &[CpuReport], width: Width) {
    let shares = width.unless_narrow(format!("{:>11}{:>11}", "50 %", "99 %"));
    let _ = writeln!(
        text,
        "\n{BOLD}{:<21}{:>13}{shares}{:>11}{:>11}{END}  {DIM}{}{END}",
        "",
        "count",
        "99.9 %",
        "max",
        width.scale()
    );
    for (kind, histogram) in of_all_cpus(cpus) {
        let of_cpus = || cpus.iter().filter_map(|cpu| cpu.kinds.get(&kind));
        let Some(max) = of_cpus().max_by(|one, other| one.max_us.total_cmp(&other.max_us)) else { continue };
        let (max_us, max_is) = (max.max_us, max.max_is);
        write_kind_row(text, &KindRow { name: kind.words(), histogram: &histogram, max_us, max_is }, width);
    }
    if cpus.is_empty() {
        let _ = writeln!(text, "no real-time thread has woken yet");
    }
}

/// Writes the maximum of each CPU and kind, with its time in this format.
pub fn write_maxima(text: &mut String, cpus: &[CpuReport], format: &str) {
    let all = cpus.iter().flat_map(|cpu| cpu.kinds.iter().map(move |(kind, found)| (cpu.cpu, *kind, found)));
    let mut lines: Vec<(Kind, u32, &KindReport, &Late)> =
        all.filter_map(|(cpu, kind, found)| Some((kind, cpu, found, found.worst.as_ref()?))).collect();
    if lines.is_empty() {
        return;
    }
    lines.sort_by_key(|line| (line.0, line.1));
    let _ = writeln!(text, "\n{BOLD}{:<21}{:>3} {:>11}  thread, time and phases{END}", "maxima", "CPU", "");
    for (kind, cpu, found, late) in lines {
        let thread = format!("{} {} ({})", escape_control(&late.name), late.tid, late.priority);
        let when = format_time(late.time_ns, format);
        let _ = writeln!(
            text,
            "{:<21}{cpu:>3} {BOLD}{:>11}{END}  {thread} at {when}",
            kind.words(),
            format_maximum(found.max_us, found.max_is)
        );
        let _ = writeln!(text, "{:<38}{DIM}{}{END}", "", format_phases(late));
    }
}

/// Writes threads, that with the highest latency first, at most `max`.
fn write_threads(text: &mut String, threads: &[&ThreadReport], width: Width, max: usize) {
    if threads.is_empty() {
        return;
    }
    let counts = width.unless_narrow(format!("{:>10}{:>9}{:>9}", "wakeups", "last", "99.9 %"));
    let _ = writeln!(
        text,
        "\n{BOLD}{:<15}{:>7}  {:<8}{:>4}{counts}{:>9}{:>7}{END}  {DIM}{}{END}",
        "thread",
        "tid",
        "priority",
        "CPU",
        "max",
        "misses",
        width.scale()
    );
    for thread in threads.iter().take(max) {
        write_thread(text, thread, width);
    }
    let left_out = threads.len().saturating_sub(max);
    if left_out > 0 {
        let _ = writeln!(text, "{DIM}and {} with lower max{END}", pluralize(left_out as u64, "thread"));
    }
}

fn write_thread(text: &mut String, thread: &ThreadReport, width: Width) {
    let style = if thread.misses > 0 { YELLOW } else { "" };
    let (last, below) = (format_us(thread.last_us), format_us(thread.p999_us));
    let _ = writeln!(
        text,
        "{:<15}{:>7}  {:<8}{:>4}{}{BOLD}{:>9}{END}{style}{:>7}{END}  {CYAN}{}{END}",
        escape_control(&thread.name),
        thread.tid,
        thread.priority,
        thread.cpu,
        width.unless_narrow(format!("{:>10}{last:>9}{below:>9}", with_thousands(thread.count))),
        format_maximum(thread.max_us, thread.max_is),
        with_thousands(thread.misses),
        width.bars(&thread.places)
    );
}

/// Writes the number of exited threads, and the one with the maximum.
fn write_exited_threads(text: &mut String, exited: &[&ThreadReport]) {
    // They are sorted by maximum.
    let Some(latest) = exited.first() else { return };
    let _ = writeln!(
        text,
        "{DIM}{} exited (--once has them), max {} in {} {}{END}",
        pluralize(exited.len() as u64, "thread"),
        format_maximum(latest.max_us, latest.max_is),
        escape_control(&latest.name),
        latest.tid
    );
}

/// Describes wakeups that the monitor missed according to the scheduler, if there are any.
pub fn describe_missed(report: &Report) -> Option<String> {
    let unseen = report.unseen.filter(|unseen| unseen.unseen > 0)?;
    let (unseen, slept) = (with_thousands(unseen.unseen), with_thousands(unseen.slept));
    Some(format!("{unseen} of {slept} wakeups were not seen, according to the scheduler"))
}

/// Writes whether accounting is exact, and the comparison with the scheduler's own count.
fn write_accounting(text: &mut String, report: &Report) {
    let sums = &report.wakeups;
    let mut classes = vec![
        format!("{} highest priority", with_thousands(sums.wakeup)),
        format!("{} same priority", with_thousands(sums.shared)),
        format!("{} preempted", with_thousands(sums.preempted)),
    ];
    let rare = [
        (sums.not_slept, "never slept"),
        (sums.replaced, "woken again"),
        (sums.displaced, "displaced"),
        (sums.open, "not running yet"),
    ];
    classes.extend(
        rare.iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, name)| format!("{} {name}", with_thousands(*count))),
    );
    let verdict = match sums.difference {
        0 => format!("{GREEN}accounting is exact{END}"),
        difference => format!("{RED}accounting is wrong by {difference}{END}"),
    };
    let _ = writeln!(text, "\n{verdict}; {} woken: {}", with_thousands(sums.woken), classes.join(", "));
    if let Some(missed) = describe_missed(report) {
        let _ = writeln!(text, "{YELLOW}{missed}{END}");
    }
    if sums.without_row > 0 {
        let without = pluralize(sums.without_row, "wakeup");
        let _ = writeln!(
            text,
            "{YELLOW}{without} without a thread's row{END}: more than {MAX_THREADS} real-time threads; the counts by CPU have all"
        );
    }
    if report.not_started > 0 {
        let times = pluralize(report.not_started, "time");
        let _ = writeln!(
            text,
            "{YELLOW}the kernel did not start a program {times}{END}: it ran on that CPU already"
        );
    }
}

#[cfg(test)]
mod tests {
    use tompion_latency::{Histogram, Maximum};

    use super::*;

    fn thread(tid: u32, us: u64, has_ended: bool) -> ThreadReport {
        let mut places = Histogram::default();
        places.add(us * 1000, us * 1000 + 1000, 1_234_567);
        ThreadReport {
            tid,
            name: format!("thread-{tid}"),
            has_ended,
            priority: "deadline".into(),
            cpu: 127,
            count: places.count(),
            last_us: us as f64,
            p50_us: us as f64,
            p999_us: us as f64,
            max_us: us as f64,
            max_is: Maximum::Exact,
            misses: 1234,
            places,
        }
    }

    /// Returns a frame without its colours.
    fn plain_lines(report: &Report, size: (u16, u16)) -> Vec<String> {
        screen::plain(&frame(report, size)).lines().map(ToOwned::to_owned).collect()
    }

    fn report(threads: Vec<ThreadReport>) -> Report {
        Report { threads, ..Report::default() }
    }

    #[test]
    fn given_any_terminal_then_no_line_is_longer_and_the_maximum_is_shown() {
        let report =
            report((1..40).map(|tid| thread(4_194_000 + tid, 100 * u64::from(tid), false)).rev().collect());
        for columns in [1, 40, 59, 60, 79, 80, 97, 98, 120, 250] {
            let lines = plain_lines(&report, (columns, 24));
            assert_eq!(lines.len(), 24, "{columns}: {lines:?}");
            for line in &lines {
                assert!(line.chars().count() <= usize::from(columns), "{columns}: {line}");
            }
            let all = lines.join("\n");
            assert!(columns < 60 || all.contains(" max") && all.contains("misses"), "{columns}: {all}");
            assert!(columns < 60 || all.contains("accounting is exact"), "{columns}: {all}");
        }
    }

    #[test]
    fn given_exited_threads_then_running_ones_have_the_room() {
        let ended = (1..80).map(|tid| thread(tid, 1000 - u64::from(tid), true));
        let report = report(ended.chain([thread(900, 5, false), thread(901, 4, false)]).collect());
        let lines = plain_lines(&report, (80, 24));
        let line = |words: &str| lines.iter().any(|line| line.starts_with(words));
        assert!(line("thread-900") && line("thread-901") && !line("thread-1 "), "{lines:?}");
        assert!(line("79 threads exited (--once has them), max 999 µs in thread-1 1"), "{lines:?}");
        assert!(report_text(&report).contains("\nthread-1 "), "the whole report has all threads");
    }
}
