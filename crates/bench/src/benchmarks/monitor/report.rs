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

/// Where the plot's axes end, in microseconds.
const MAX_US: f64 = 450.0;

const INTRODUCTION: &str = "\
# The latency monitor, measured

Whether `tompion monitor` is right, what it costs, and whether it lasts. This page is written by `./x bench monitor-accuracy`,
`./x bench monitor-overhead` and `./x bench monitor-soak --minutes 30` from the newest run of each; the data are in
[benches/results](../../benches/results), how the monitor works stands in [docs/design/latency.md](../design/latency.md).
";

const ACCURACY: &str = "\
\n## Is it right?

A program like cyclictest measures how late its own wake-ups are; the monitor measures the same ones in the kernel, from
the intended expiry to the switch to the thread. Here both are held against each other, wake-up by wake-up: they are matched
by thread and intended time, which name one wake-up each.

A thread on each CPU (SCHED_FIFO 95) sleeps until the next multiple of an interval and reads the clock when it goes on. *Under load*:
hackbench sends messages meanwhile. *Interrupts off*, *preemption off*: with intervals of 500 \u{b5}s, a thread of lower priority is kept on the
CPU for 0 to 400 \u{b5}s by a BPF program in `hrtimer_start` (interrupts are off there) or at the entry of a system call (preemption is off),
over every second or third of these moments.

The program's value is the larger one by the way back to user space, which begins where the monitor's latency ends: the rest of
the switch, the return from the system call, the clock. That takes 1.3 \u{b5}s where caches are warm, and several where
a thread comes after a long time and others have had the caches. An interrupt on that way makes it as long as it takes; whether
one came is counted by other programs. Both lines are told: of all, and of those that were not interrupted there.

![The program's latencies over the monitor's, in three panels: points on a line](accuracy.svg)
";

const AFTER_ACCURACY: &str = "
Unmatched are wake-ups that the program saw and the monitor did not, or whose timer was armed when it should have gone off already.
*Same longest*: of all tenths of a second of a thread, those whose longest wake-up is the same one by both, or as long within
3 \u{b5}s or 3 %.
";

const OVERHEAD: &str = "\
\n## What does it cost?

Two processes on one CPU wake each other by a byte through a pipe: the CPU never idles in between, and no other CPU is asked. In each
of many short rounds, in random order: nothing, the monitor, the monitor with `--threshold`, and ftrace with four events from
which wake-up latencies are computed (`sched_waking`, `sched_switch`, `hrtimer_start`, `hrtimer_expire_entry`; the first two of them happen
here), as a flight recorder. Under SCHED_OTHER the woken process runs at once, before the other one sleeps, which then needs no wake-up: a switch
has about half a one there. Under SCHED_BATCH, and under SCHED_FIFO for real-time tasks, each switch has one.

What is added, in nanoseconds. Whatever disturbs makes a round longer, so shorter ones say more: differences of the shortest
rounds and of the lower quartiles of all rounds; beside them the median of the differences within each round. Where half of the switches
have no wake-up, the three are far apart: what is added there is less than what rounds differ by.
";

const RUN_TIMES: &str = "
How long each program runs, in nanoseconds, by the kernel's own measure (`kernel.bpf_stats_enabled`), which is free of what happens
elsewhere. Some 45 ns of each are that measuring itself: a program that has nothing to do, such as `switched` between
ordinary tasks, shows little else. How the kernel gets to a program isn't in it.
";

const TAKEN_BY_ITSELF: &str = "
What it takes by itself: the time in its programs as the kernel measures it, for as many wake-ups as four threads of 1 kHz have;
and the process that Prometheus asks, where it asks each five seconds.
";

const SOAK: &str = "\
\n## Does it last?

Two threads on each CPU sleep a millisecond again and again under SCHED_FIFO, hackbench and stress-ng keep the machine busy in turns, and the
process that keeps the history and answers to requests is killed and begins again, over and over. In the end the
sums must agree, and all wake-ups must be in the history, each once. What the scheduler counted and the monitor did not see is
told as far as a process lived long enough to write it; why a kernel hides some is in
[the kernel's design](../design/kernel.md#what-no-counter-tells).
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

/// What is added to a pair: a row for each place and statistic.
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
    format!("\nWhat was aimed at:\n\n{table}\nThe machine, {}:\n\n{machine}", results.date)
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
