//! `docs/monitor-report/`: whether the monitor is right, what it costs and whether it lasts, from
//! the newest results.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::super::budgets::{Budget, table};
use super::super::plot::{Panel, Scatter};
use super::super::results::{Figure, Results, digits, distinct};
use super::super::statistics::{Series, Statistic};
use super::super::{Options, programs};
use super::accuracy::{
    ALONE_INTERCEPT, ALONE_R, GROUP, INTERCEPT, INTERRUPTED, MATCHED, R, SAME, SLOPE, SLOW, UNMATCHED,
};
use super::comparison::Pairs;
use super::overhead::{ADDED, FTRACE, MONITOR, PAIR, PLACES, RUN_TIME, TAKEN, WITHOUT};
use super::{budgets, soak};
use tompion_tasks::table::Table;
use tompion_tasks::workspace::Workspace;

/// Ends of the plot's axes, in microseconds.
const MAX_US: f64 = 450.0;

const INTRODUCTION: &str = "\
# The latency monitor, measured

Is `tompion monitor` correct, what does it cost, and is it stable? `./x bench monitor-accuracy`,
`./x bench monitor-overhead` and `./x bench monitor-soak --minutes 30` write this page from the
newest run of each. The data are in [benches/results](../../benches/results).
[docs/design/latency.md](../design/latency.md) describes the monitor.
";

const ACCURACY: &str = "\
\n## Is it correct?

A program like cyclictest measures its own wakeup latency. The monitor measures the same wakeups in
the kernel, from timer expiry to the switch to the thread. Here both are compared wakeup by wakeup.
The thread and the intended time identify each one.

A thread on each CPU (SCHED_FIFO 95) sleeps until the next multiple of an interval and reads the
clock when it runs. *Under load*: hackbench runs at the same time. *Interrupts off*, *preemption
off*: with intervals of 500 \u{b5}s, a BPF program keeps a lower-priority thread on the CPU for 0 to 400
\u{b5}s, at every second or third expiry. It does so in `hrtimer_start` (interrupts off) or at a system
call's entry (preemption off).

The program's value is larger by the return to user space: the rest of the switch, the return from
the system call, and the clock read. That takes 1.3 \u{b5}s with warm caches, and several \u{b5}s if the
caches are cold. An interrupt on that path adds its own duration. Other programs count such
interrupts, and the table has fits of all wakeups and of those without one.

![The program's latencies over the monitor's, in three panels: points on a line](accuracy.svg)
";

const AFTER_ACCURACY: &str = "\
\nUnmatched wakeups were seen by the program and not by the monitor, or their timer was armed after
its expiry. *Same longest*: share of tenths of a second in which both have the same wakeup as the
longest, or one as long within 3 \u{b5}s or 3 %.
";

const OVERHEAD: &str = "\
\n## What does it cost?

Two processes on one CPU wake each other through a pipe, so the CPU never idles and no other CPU is
involved. Many short rounds run in random order: without anything, with the monitor, with the
monitor and `--threshold`, and with ftrace. ftrace records four events from which wakeup latency can
be computed, as a flight recorder: `sched_waking`, `sched_switch`, `hrtimer_start` and
`hrtimer_expire_entry`. Only the first two occur here.

Under SCHED_OTHER the woken process runs at once, before the other one sleeps and needs a wakeup: a
switch has about half a wakeup. Under SCHED_BATCH, and SCHED_FIFO for real-time tasks, each switch
has one.

Disturbances only lengthen a round, so shorter rounds are more reliable. The table has the added
time by the shortest rounds, by the lower quartiles, and by the median of the differences within
rounds. If half of the switches have no wakeup, the three differ much: rounds vary by more than what
is added.
";

const RUN_TIMES: &str = "\
\nDuration of each BPF program in nanoseconds, as measured by the kernel (`kernel.bpf_stats_enabled`).
The measurement itself takes about 45 ns of each: `switched` between ordinary tasks does little
else. The call of a program is not included.
";

const TAKEN_BY_ITSELF: &str = "\
\nCPU time and memory: the time in BPF programs as measured by the kernel, for the wakeups of four
threads of 1 kHz, and the process that Prometheus scrapes every five seconds.
";

const SOAK: &str = "\
\n## Is it stable?

Two threads on each CPU sleep for a millisecond under SCHED_FIFO, in a loop. hackbench and stress-ng
load the machine in turn. The process that writes the history and serves requests is killed and
restarted again and again. At the end the accounting must be exact, and the history must have each
wakeup once. Wakeups that only the scheduler counted are reported if the process lived long enough
to write them. [The kernel's design](../design/kernel.md#what-no-counter-tells) explains why a
kernel hides some.
";

/// Of all rounds with something and all rounds without, or of the differences within rounds.
const STATISTICS: [(&str, Statistic); 2] =
    [("shortest round", Series::min), ("lower quartile", Series::lower_quartile)];

/// A value with as many decimals as it deserves.
fn cell(label: &str, value: f64) -> String {
    match label {
        MATCHED | UNMATCHED => format!("{value:.0}"),
        INTERCEPT | ALONE_INTERCEPT => format!("{value:.2}"),
        SAME | INTERRUPTED => format!("{:.1} %", value * 100.0),
        _ => format!("{value:.5}"),
    }
}

/// A row for each phase.
pub fn accuracy_table(results: &Results) -> Table {
    let labels = [MATCHED, UNMATCHED, SLOPE, INTERCEPT, R, INTERRUPTED, ALONE_INTERCEPT, ALONE_R, SAME];
    let mut headings = vec![""];
    headings.extend(labels);
    let mut table = Table::new(&headings);
    for phase in distinct(results.group(GROUP).map(|figure| figure.at.as_str())) {
        let value = |label: &&str| results.find(GROUP, label, phase).and_then(Figure::median);
        let cells = labels
            .iter()
            .map(|label| value(label).map_or_else(|| "\u{2013}".into(), |found| cell(label, found)));
        table.row(std::iter::once(phase.to_owned()).chain(cells).collect());
    }
    table
}

/// Table of what is added to a pair: a row for each place and statistic.
pub fn added_table(results: &Results) -> Table {
    let labels = distinct(results.group(PAIR).map(|figure| figure.label.as_str()));
    let mut headings = vec!["ns"];
    headings.extend(&labels);
    headings.push("\u{d7} ftrace");
    let mut table = Table::new(&headings);
    let shown = |value: Option<f64>| value.map_or_else(|| "\u{2013}".into(), |value| format!("{value:.0}"));
    let mut row = |name: String, of: &dyn Fn(&str) -> Option<f64>| {
        let mut cells = vec![name];
        cells.extend(labels.iter().map(|label| shown(of(label))));
        let ratio = of(MONITOR).zip(of(FTRACE)).map(|(ours, theirs)| format!("{:.2}", ours / theirs));
        cells.push(ratio.unwrap_or_else(|| "\u{2013}".into()));
        table.row(cells);
    };
    for (place, _) in PLACES {
        for (name, statistic) in STATISTICS {
            row(format!("{place}, {name}"), &|label| {
                if label != WITHOUT {
                    return budgets::added(results, (label, place), statistic);
                }
                Some(statistic(&results.find(PAIR, label, place)?.series()))
            });
        }
        row(format!("{place}, median"), &|label| {
            results.find(if label == WITHOUT { PAIR } else { ADDED }, label, place)?.median()
        });
    }
    table
}

/// A row for each thing that a soak tells.
pub fn soak_table(results: &Results) -> Table {
    let mut table = Table::new(&["", "found"]);
    for figure in results.group(soak::GROUP) {
        let value = figure.median().unwrap_or(f64::NAN);
        let digits = if figure.unit.is_empty() { 0 } else { digits(value) };
        table.row(vec![
            figure.label.clone(),
            format!("{value:.digits$} {}", figure.unit).trim_end().to_owned(),
        ]);
    }
    table
}

/// Writes what was found now, and what was kept of the other one; the plot, if there are wake-ups
/// for it. A quick run shows that the page can be made, elsewhere.
pub fn write(
    workspace: &Workspace,
    options: &Options,
    fresh: &Results,
    phases: Option<&[(&str, Pairs)]>,
) -> Result<()> {
    let above = if options.quick { programs::folder(workspace)? } else { workspace.root.join("docs") };
    let folder = above.join("monitor-report");
    let of = |name: &str| {
        if fresh.benchmark == name { Ok(Some(fresh.clone())) } else { Results::newest(workspace, name) }
    };
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    if let Some(phases) = phases {
        write_file(&folder, "accuracy.svg", &plot(phases))?;
    }
    let mut page = INTRODUCTION.to_owned();
    if let Some(results) = of("monitor-accuracy")? {
        page += &format!("{ACCURACY}\n{}{AFTER_ACCURACY}", accuracy_table(&results).markdown());
        page += &aims(&results, budgets::of_accuracy(&results));
    }
    if let Some(results) = of("monitor-overhead")? {
        let table = |group| results.table(group).markdown();
        page += &format!("{OVERHEAD}\n{}{RUN_TIMES}\n{}", added_table(&results).markdown(), table(RUN_TIME));
        page += &format!("{TAKEN_BY_ITSELF}\n{}", table(TAKEN));
        page += &aims(&results, budgets::of_overhead(&results));
        page += &results.failures();
    }
    if let Some(results) = of("monitor-soak")? {
        page += &format!("{SOAK}\n{}", soak_table(&results).markdown());
        page += &aims(&results, budgets::of_soak(&results));
    }
    write_file(&folder, "README.md", &page)
}

/// The limits that the project has set itself, what came of them, and on which machine.
fn aims(results: &Results, budgets: Vec<Budget>) -> String {
    let machine: String = results.machine.iter().map(|line| format!("- {line}\n")).collect();
    let table = table(&budgets).markdown();
    format!("\nBudgets:\n\n{table}\nThe machine, {}:\n\n{machine}", results.date)
}

fn write_file(folder: &Path, name: &str, text: &str) -> Result<()> {
    let file = folder.join(name);
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
}

fn plot(phases: &[(&str, Pairs)]) -> String {
    let panel = |(name, pairs): &(&str, Pairs)| {
        let fit = pairs.fit(false)?;
        Some(Panel {
            title: (*name).to_owned(),
            note: format!("Y = {:.2} + {:.4} X, r = {:.5}", fit.intercept, fit.slope, fit.r),
            points: pairs.matched.iter().map(|pair| (pair.monitor, pair.program)).collect(),
            line: (fit.slope, fit.intercept),
        })
    };
    Scatter {
        title: "The same wake-ups by a program and by the monitor".into(),
        axes: ["how late by the monitor, \u{b5}s".into(), "how late by the program, \u{b5}s".into()],
        most: MAX_US,
        panels: phases.iter().filter(|(name, _)| *name != SLOW).filter_map(panel).collect(),
    }
    .svg()
}
