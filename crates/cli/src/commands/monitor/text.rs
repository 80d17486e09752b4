//! Reports as text: one frame of a terminal, or all of it.

use std::fmt::Write;

use jiff::{Timestamp, tz::TimeZone};
use tompion_latency::{
    CpuReport, Histogram, Kind, KindReport, Late, MAX_THREADS, Maximum, Report, ThreadReport, of_all_cpus,
    steps,
};

use super::{groups, job_table};
use crate::{
    messages::{escape_control, pluralize, with_thousands},
    units,
};

pub const BOLD: &str = "\x1b[1m";
pub const DIM: &str = "\x1b[2m";
pub const RED: &str = "\x1b[31m";
pub const GREEN: &str = "\x1b[32m";
pub const YELLOW: &str = "\x1b[33m";
pub const CYAN: &str = "\x1b[36m";
pub const END: &str = "\x1b[0m";

/// Everything that colours.
pub const STYLES: [&str; 7] = [BOLD, DIM, RED, GREEN, YELLOW, CYAN, END];

/// Where distributions are divided, in nanoseconds: 1, 2, 5, 10 µs … 10 ms.
const BOUNDS: [u64; 13] = steps(1000);

/// How much room tables have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// For names, the longest, and what counts as late.
    Narrow,
    /// For percentages, too.
    Usual,
    /// For distributions, too.
    Wide,
}

impl Width {
    const fn of(columns: u16) -> Self {
        match columns {
            ..80 => Self::Narrow,
            80..98 => Self::Usual,
            _ => Self::Wide,
        }
    }

    /// What stands above distributions.
    pub const fn scale(self) -> &'static str {
        match self {
            Self::Wide => " 1µs      10ms",
            _ => "",
        }
    }

    /// Those of a line.
    pub fn bars(self, histogram: &Histogram) -> String {
        if self == Self::Wide { distribution(histogram) } else { String::new() }
    }

    /// What a narrow table leaves out.
    pub fn unless_narrow(self, columns: String) -> String {
        if self == Self::Narrow { String::new() } else { columns }
    }
}

/// As much as a terminal has room for: columns and rows. Threads that have ended are a line,
/// however long their latencies were.
pub fn frame(report: &Report, (columns, rows): (u16, u16)) -> String {
    let width = Width::of(columns);
    let mut text = String::new();
    head(&mut text, report);
    kinds(&mut text, &report.cpus, width);
    let mut foot = String::new();
    sums(&mut foot, report);
    // Threads keep half of what is left.
    let mut tables = String::new();
    groups::tables(&mut tables, report, width);
    let left = usize::from(rows).saturating_sub(text.lines().count() + foot.lines().count());
    text.push_str(&groups::shortened(&tables, left / 2));
    report.jobs.iter().for_each(|found| job_table::jobs(&mut text, found, width));
    let (ended, living): (Vec<_>, Vec<_>) = report.threads.iter().partition(|thread| thread.has_ended);
    // Two lines above the threads, those that say how many are left out and have ended, and one
    // that stays empty.
    let used = text.lines().count() + foot.lines().count() + 4 + usize::from(!ended.is_empty());
    threads(&mut text, &living, width, usize::from(rows).saturating_sub(used));
    threads_that_ended(&mut text, &ended);
    text.push_str(&foot);
    let _ = write!(text, "{DIM}Ctrl-C ends the display; counting continues{END}");
    let kept: Vec<String> =
        text.lines().take(usize::from(rows)).map(|line| cut(line, usize::from(columns))).collect();
    kept.join("\n")
}

/// So many letters of a line, and all that colours it.
fn cut(line: &str, most: usize) -> String {
    let (mut left, mut is_style) = (most, false);
    line.chars()
        .filter(|letter| {
            let belongs = is_style || *letter == '\x1b';
            if belongs {
                is_style = *letter != 'm';
                return true;
            }
            let has_room = left > 0;
            left = left.saturating_sub(1);
            has_room
        })
        .collect()
}

/// All of it, with the longest of each kind in detail.
pub fn whole(report: &Report) -> String {
    let mut text = String::new();
    head(&mut text, report);
    kinds(&mut text, &report.cpus, Width::Wide);
    groups::tables(&mut text, report, Width::Wide);
    worst(&mut text, &report.cpus, "%H:%M:%S%.6f");
    groups::worst(&mut text, &report.groups);
    report.jobs.iter().for_each(|found| job_table::jobs(&mut text, found, Width::Wide));
    threads(&mut text, &report.threads.iter().collect::<Vec<_>>(), Width::Wide, usize::MAX);
    sums(&mut text, report);
    text
}

/// A time of the day.
pub fn time(ns: u64, format: &str) -> String {
    let time = Timestamp::from_nanosecond(ns.into()).map(|time| time.to_zoned(TimeZone::system()));
    time.map_or_else(|_| "?".into(), |time| time.strftime(format).to_string())
}

/// `12 s`, `3 min 5 s`, `2 d 4 h`.
pub fn span(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

pub fn microseconds(us: f64) -> String {
    units::format_duration(us * 1000.0)
}

/// With a sign where it is not known exactly.
pub fn longest(us: f64, known: Maximum) -> String {
    match known {
        Maximum::Exact => microseconds(us),
        Maximum::Below => format!("<{}", microseconds(us)),
        Maximum::AtLeast => format!("≥{}", microseconds(us)),
    }
}

/// How many wake-ups, and since when.
pub fn title(report: &Report) -> String {
    let woken = pluralize(report.wakeups.woken, "wakeup");
    let lasted = span(report.to_ns.saturating_sub(report.from_ns));
    format!("{woken} in {lasted}, since {}", time(report.from_ns, "%-d %b %H:%M:%S"))
}

fn head(text: &mut String, report: &Report) {
    let _ = writeln!(text, "{BOLD}real-time wakeups{END}  {}", title(report));
    let off: Vec<&str> =
        Kind::ALL.iter().filter(|kind| !report.kinds.contains(kind)).map(|kind| kind.name()).collect();
    if !off.is_empty() {
        let _ = writeln!(text, "{YELLOW}not counted: {}{END}", off.join(", "));
    }
}

/// How many latencies lie between the bounds, logarithmically: the rare ones are what matters.
pub fn distribution(histogram: &Histogram) -> String {
    let mut counts = [0u64; BOUNDS.len() + 1];
    for (begin, count) in histogram.places() {
        if let Some(sum) = counts.get_mut(BOUNDS.partition_point(|bound| *bound <= begin)) {
            *sum += count;
        }
    }
    let most = counts.iter().copied().max().unwrap_or(0);
    let bar = |count: u64| match count {
        0 => '·',
        _ => {
            let height = (count as f64 + 1.0).ln() / (most as f64 + 1.0).ln() * 8.0;
            ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'][(height.ceil() as usize).clamp(1, 8) - 1]
        }
    };
    counts.into_iter().map(bar).collect()
}

/// How many functions are told of a stack.
const FUNCTIONS: usize = 3;

/// A table of all kinds, of all CPUs together.
pub fn kinds(text: &mut String, cpus: &[CpuReport], width: Width) {
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
        let Some(most) = of_cpus().max_by(|one, other| one.max_us.total_cmp(&other.max_us)) else { continue };
        kind_row(text, (kind.words(), &histogram), (most.max_us, most.max_is), width);
    }
    if cpus.is_empty() {
        let _ = writeln!(text, "no real-time thread has woken yet");
    }
}

/// A line of such a table.
pub fn kind_row(
    text: &mut String,
    (name, histogram): (&str, &Histogram),
    (max_us, max_is): (f64, Maximum),
    width: Width,
) {
    let below = |share: u64| {
        let ns = histogram.below(share).unwrap_or(0) as f64;
        microseconds((ns / 1000.0).min(max_us))
    };
    let _ = writeln!(
        text,
        "{name:<21}{:>13}{}{:>11}{BOLD}{:>11}{END}  {CYAN}{}{END}",
        with_thousands(histogram.count()),
        width.unless_narrow(format!("{:>11}{:>11}", below(500), below(990))),
        below(999),
        longest(max_us, max_is),
        width.bars(histogram)
    );
}

/// The longest of each CPU and kind; when it was in this format.
pub fn worst(text: &mut String, cpus: &[CpuReport], format: &str) {
    let all = cpus.iter().flat_map(|cpu| cpu.kinds.iter().map(move |(kind, found)| (cpu.cpu, *kind, found)));
    let mut lines: Vec<(Kind, u32, &KindReport, &Late)> =
        all.filter_map(|(cpu, kind, found)| Some((kind, cpu, found, found.worst.as_ref()?))).collect();
    if lines.is_empty() {
        return;
    }
    lines.sort_by_key(|line| (line.0, line.1));
    let _ = writeln!(text, "\n{BOLD}{:<21}{:>3} {:>11}  thread, time and phases{END}", "maxima", "CPU", "");
    for (kind, cpu, found, late) in lines {
        let describe_sources = format!("{} {} ({})", escape_control(&late.name), late.tid, late.priority);
        let when = time(late.time_ns, format);
        let _ = writeln!(
            text,
            "{:<21}{cpu:>3} {BOLD}{:>11}{END}  {describe_sources} at {when}",
            kind.words(),
            longest(found.max_us, found.max_is)
        );
        let _ = writeln!(text, "{:<38}{DIM}{}{END}", "", parts(late));
    }
}

pub fn parts(late: &Late) -> String {
    let parts =
        [("timer late", late.timer_us), ("until woken", late.handler_us), ("until running", late.wakeup_us)];
    let mut words: Vec<String> =
        parts.iter().filter_map(|(name, us)| Some(format!("{name} {}", microseconds((*us)?)))).collect();
    words.push(match late.other_tid {
        0 => "the CPU was idle".into(),
        tid if tid == late.tid => "it was running itself".into(),
        tid => format!(
            "{} {tid} ({}) had the CPU{}",
            escape_control(&late.other_name),
            late.other_priority,
            code(late)
        ),
    });
    words.join(", ")
}

/// Where that one was, if it is known: functions, the innermost first.
fn code(late: &Late) -> String {
    let names: Vec<&str> =
        late.code.iter().take(FUNCTIONS).filter_map(|function| function.split('+').next()).collect();
    if names.is_empty() { String::new() } else { format!(" in {}", escape_control(&names.join(" ← "))) }
}

/// Threads, the one with the longest latency first; no more than these.
fn threads(text: &mut String, threads: &[&ThreadReport], width: Width, most: usize) {
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
    for thread in threads.iter().take(most) {
        row(text, thread, width);
    }
    let left_out = threads.len().saturating_sub(most);
    if left_out > 0 {
        let _ = writeln!(text, "{DIM}and {} with lower max{END}", pluralize(left_out as u64, "thread"));
    }
}

fn row(text: &mut String, thread: &ThreadReport, width: Width) {
    let style = if thread.misses > 0 { YELLOW } else { "" };
    let (last, below) = (microseconds(thread.last_us), microseconds(thread.p999_us));
    let _ = writeln!(
        text,
        "{:<15}{:>7}  {:<8}{:>4}{}{BOLD}{:>9}{END}{style}{:>7}{END}  {CYAN}{}{END}",
        escape_control(&thread.name),
        thread.tid,
        thread.priority,
        thread.cpu,
        width.unless_narrow(format!("{:>10}{last:>9}{below:>9}", with_thousands(thread.count))),
        longest(thread.max_us, thread.max_is),
        with_thousands(thread.misses),
        width.bars(&thread.places)
    );
}

/// How many they are, and which was the latest.
fn threads_that_ended(text: &mut String, ended: &[&ThreadReport]) {
    // They are in order.
    let Some(latest) = ended.first() else { return };
    let _ = writeln!(
        text,
        "{DIM}{} exited (--once has them), max {} in {} {}{END}",
        pluralize(ended.len() as u64, "thread"),
        longest(latest.max_us, latest.max_is),
        escape_control(&latest.name),
        latest.tid
    );
}

/// What the monitor did not see, if there is anything.
pub fn unseen(report: &Report) -> Option<String> {
    let unseen = report.unseen.filter(|unseen| unseen.unseen > 0)?;
    let (unseen, slept) = (with_thousands(unseen.unseen), with_thousands(unseen.slept));
    Some(format!("{unseen} of {slept} wakeups were not seen, according to the scheduler"))
}

/// Whether accounting is exact, and what an independent count says.
fn sums(text: &mut String, report: &Report) {
    let sums = &report.wakeups;
    let mut ways = vec![
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
    ways.extend(
        rare.iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, name)| format!("{} {name}", with_thousands(*count))),
    );
    let verdict = match sums.difference {
        0 => format!("{GREEN}accounting is exact{END}"),
        difference => format!("{RED}accounting is wrong by {difference}{END}"),
    };
    let _ = writeln!(text, "\n{verdict}; {} woken: {}", with_thousands(sums.woken), ways.join(", "));
    if let Some(unseen) = unseen(report) {
        let _ = writeln!(text, "{YELLOW}{unseen}{END}");
    }
    if sums.without_row > 0 {
        let without = pluralize(sums.without_row, "wakeup");
        let _ = writeln!(
            text,
            "{YELLOW}{without} in no thread's line{END}: more than {MAX_THREADS} real-time threads; all are in the numbers by CPU"
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
    use super::*;

    #[test]
    fn distributions_are_logarithmic() {
        assert_eq!((BOUNDS[0], BOUNDS[1], BOUNDS[12]), (1000, 2000, 10_000_000));
        let mut histogram = Histogram::default();
        for (begin, count) in [(0, 1), (1000, 100_000), (4000, 300), (12_000_000, 1)] {
            histogram.add(begin, begin + 1000, count);
        }
        assert_eq!(distribution(&histogram), "▁█▄··········▁");
        assert_eq!(distribution(&Histogram::default()), "··············");
    }

    #[test]
    fn spans_have_two_units() {
        let spans = [5, 65, 3700, 200_000].map(|seconds| span(seconds * 1_000_000_000));
        assert_eq!(spans, ["5 s", "1 min 5 s", "1 h 1 min", "2 d 7 h"]);
    }

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

    /// A frame without its colours.
    fn shown(report: &Report, size: (u16, u16)) -> Vec<String> {
        let plain = STYLES.iter().fold(frame(report, size), |text, style| text.replace(style, ""));
        plain.lines().map(ToOwned::to_owned).collect()
    }

    fn report(threads: Vec<ThreadReport>) -> Report {
        Report { threads, ..Report::default() }
    }

    #[test]
    fn given_any_terminal_then_no_line_is_longer_and_the_longest_is_seen() {
        let report =
            report((1..40).map(|tid| thread(4_194_000 + tid, 100 * u64::from(tid), false)).rev().collect());
        for columns in [1, 40, 59, 60, 79, 80, 97, 98, 120, 250] {
            let lines = shown(&report, (columns, 24));
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
    fn given_threads_that_ended_then_those_that_live_have_the_room() {
        let ended = (1..80).map(|tid| thread(tid, 1000 - u64::from(tid), true));
        let report = report(ended.chain([thread(900, 5, false), thread(901, 4, false)]).collect());
        let lines = shown(&report, (80, 24));
        let line = |words: &str| lines.iter().any(|line| line.starts_with(words));
        assert!(line("thread-900") && line("thread-901") && !line("thread-1 "), "{lines:?}");
        assert!(line("79 threads exited (--once has them), max 999 µs in thread-1 1"), "{lines:?}");
        assert!(whole(&report).contains("\nthread-1 "), "all are in the whole");
    }

    #[test]
    fn what_colours_takes_no_room() {
        assert_eq!(cut(&format!("{BOLD}highest{END} µs"), 9), format!("{BOLD}highest{END} µ"));
        assert_eq!(cut(&format!("{RED}ab{END}"), 1), format!("{RED}a{END}"));
    }
}
