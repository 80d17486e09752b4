//! `docs/monitor-report/`: whether the monitor is right and what it costs, from the newest results.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::super::budgets::{Budget, table};
use super::super::plot::{Panel, Scatter};
use super::super::results::{Figure, Results, distinct};
use super::super::{Options, programs};
use super::accuracy::{GROUP, HIGHEST_R, INTERCEPT, MATCHED, R, SAME, SLOPE, UNMATCHED};
use super::budgets;
use super::comparison::Pairs;
use super::overhead::{ADDED, TAKEN};
use crate::table::Table;
use crate::workspace::Workspace;

/// Where the plot's axes end, in microseconds.
const MOST_US: f64 = 450.0;

const INTRODUCTION: &str = "\
# The latency monitor, measured

Whether `tompion monitor` is right, and what it costs. This page is written by `./x bench monitor-accuracy` and `./x bench
monitor-overhead` from the newest run of each; the data are in [benches/results](../../benches/results), how the monitor works stands in
[docs/design/latency.md](../design/latency.md).
";

const ACCURACY: &str = "\
\n## Is it right?

A program like cyclictest measures how late its own wake-ups are; the monitor measures the same ones in the kernel, from
the intended expiry to the switch to the thread. Here both are held against each other, wake-up by wake-up: they are matched
by thread and intended time, which name one wake-up each.

A thread on each CPU (SCHED_FIFO 95) sleeps until the next millisecond and reads the clock when it goes on. *Under load*: hackbench
sends messages meanwhile. *Interrupts off*, *preemption off*: a thread of lower priority is kept on the CPU for 0 to 400 \u{b5}s
by a BPF program in `hrtimer_start` (interrupts are off there) or at the entry of a system call (preemption is off), over every second or
third of these moments. The program's value is the larger one by the way back to user space, which the kernel doesn't see.

![The program's latencies over the monitor's, in three panels: points on a line](accuracy.svg)
";

const AFTER_ACCURACY: &str = "
Unmatched are wake-ups that the program saw and the monitor did not, or whose timer was armed when it should have gone off already.
*Same longest*: of all tenths of a second of a thread, those whose longest wake-up is the same one by both, or as long within
3 \u{b5}s or 3 %.
";

const OVERHEAD: &str = "\
\n## What does it cost?

Two processes on one CPU wake each other by a byte through a pipe. In each round, in turns: nothing, the monitor, nothing, ftrace with
four events from which wake-up latencies are computed (`sched_waking`, `sched_switch`, `hrtimer_start`,
`hrtimer_expire_entry`), as a flight recorder; what is added is the difference to the run before. Real-time tasks: the same under SCHED_FIFO.

Medians of all rounds, beside the least and the most, in nanoseconds.
";

const TAKEN_BY_ITSELF: &str = "
What it takes by itself: the time in its programs as the kernel measures it, for as many wake-ups as four threads of 1 kHz have;
and the process that Prometheus asks, where it asks each five seconds.
";

/// A value with as many decimals as it deserves.
fn cell(label: &str, value: f64) -> String {
    match label {
        MATCHED | UNMATCHED => format!("{value:.0}"),
        INTERCEPT => format!("{value:.2}"),
        SAME => format!("{:.1} %", value * 100.0),
        _ => format!("{value:.5}"),
    }
}

/// A row for each phase.
pub fn accuracy_table(results: &Results) -> Table {
    let labels = [MATCHED, UNMATCHED, SLOPE, INTERCEPT, R, HIGHEST_R, SAME];
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

/// Writes what was found now, and what was kept of the other one; the plot, if there are wake-ups for it. A quick run shows
/// that the page can be made, elsewhere.
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
        let taken = results.table(TAKEN).markdown();
        page += &format!("{OVERHEAD}\n{}{TAKEN_BY_ITSELF}\n{taken}", results.table(ADDED).markdown());
        page += &aims(&results, budgets::of_overhead(&results));
        page += &results.failures();
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
        most: MOST_US,
        panels: phases.iter().filter_map(panel).collect(),
    }
    .svg()
}
