//! `docs/rt-report/`: the papers' experiment and the wake-ups, as tables and plots, from the newest results.

use std::fs;

use anyhow::{Context, Result};

use super::page::plots;
use super::results::{Results, digits};
use super::{cyclic, npt};
use crate::table::Table;
use crate::workspace::Workspace;

const INTRODUCTION: &str = "\
What recording adds to a real-time loop, and how late threads are woken: the experiment of Beamonte and Dagenais, \u{201c}Linux
Low-Latency Tracing for Multicore Hard Real-Time Systems\u{201d} (2015), and cyclictest's. This page is written by `./x bench npt`
and `./x bench cyclic` from the newest run of each; the data are in [benches/results](../../benches/results), how it is
measured stands in [docs/design/rttest.md](../design/rttest.md).

**This machine is virtual.** Its hypervisor stops processors when it likes, for micro- or milliseconds, and its
timers are the hypervisor's. So nothing here bounds what the same system does on hardware of its own: the
longest gaps and wake-ups are the machine's. What can be read off are differences between recorders in the same
loop, in turns: what the machine does to one, it does to all. Gaps in which an interrupt, another thread or the
hypervisor's stolen time was seen are left out alike for all in the first table; a hypervisor that stops the processor without saying
so stays in, for all alike.
";

/// Writes what was found now, and what was kept of the other one.
pub fn write(workspace: &Workspace, fresh: &Results) -> Result<()> {
    let of = |name: &str| {
        if fresh.benchmark == name { Ok(Some(fresh.clone())) } else { Results::newest(workspace, name) }
    };
    let folder = workspace.root.join("docs/rt-report");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut page = format!("# Real-time report\n\n{INTRODUCTION}");
    if let Some(results) = of("npt")? {
        page += &npt_section(&results);
        for (group, file, title) in NPT_PLOTS {
            let across = "length of a gap";
            write_file(&folder, file, &plots::shares(results.group(group), title, across))?;
        }
    }
    if let Some(results) = of("cyclic")? {
        page += &cyclic_section(&results);
        let title = "Wake-ups that are at least so late";
        let drawn = plots::shares(results.group(cyclic::GROUP), title, "later than asked for");
        write_file(&folder, "cyclic.svg", &drawn)?;
    }
    write_file(&folder, "README.md", &page)
}

const NPT_PLOTS: [(&str, &str, &str); 2] = [
    (npt::UNDISTURBED, "npt-undisturbed.svg", "Gaps that the machine did not make longer"),
    (npt::ALL, "npt-all.svg", "All gaps"),
];

fn write_file(folder: &std::path::Path, name: &str, text: &str) -> Result<()> {
    let file = folder.join(name);
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
}

fn machine(results: &Results) -> String {
    let lines: String = results.machine.iter().map(|line| format!("- {line}\n")).collect();
    format!("{lines}- rounds: {}\n", results.repetitions)
}

fn npt_section(results: &Results) -> String {
    let mut text = format!(
        "\n## The loop (npt)\n\n{}\nTwo million loops a run, 500,000 a second, one event in each; recorders in turns. Medians of the \
         rounds, beside the least and the most, in nanoseconds.\n",
        machine(results)
    );
    text += &format!("\n### What was aimed at\n\n{}", aims(results).markdown());
    for (group, file, title) in NPT_PLOTS {
        let table = results.table_by_label(group).markdown();
        text += &format!("\n### {title}\n\n![{title}]({file})\n\n{table}");
    }
    text += &format!("\n### Events in the traces\n\n{}", traces(results).markdown());
    text + &results.failures()
}

const NOBODY: &str = "nothing recorded";
/// What no recorder can do without.
const CLOCK: &str = "clock read, nothing recorded";
const TOMPION: &str = "Tompion";
const PEER: &str = "LTTng, read timer";

/// What a recorder adds to a measure of the undisturbed gaps: medians' difference.
fn addition(results: &Results, label: &str, measure: &str) -> Option<f64> {
    let median = |label| results.find(npt::UNDISTURBED, label, measure)?.median();
    Some(median(label)? - median(NOBODY)?)
}

/// The limits that the project has set itself, and what came of them.
fn aims(results: &Results) -> Table {
    let mut table = Table::new(&["an event adds, in ns", TOMPION, PEER, "ratio", "aim", ""]);
    let cell = |value: Option<f64>| {
        value.map_or_else(|| "\u{2013}".into(), |value| format!("{value:.*}", digits(value)))
    };
    let mut row = |name: &str, values: (Option<f64>, Option<f64>), aim: f64, peer: Option<&str>| {
        let ratio =
            values.0.zip(values.1).filter(|(_, theirs)| *theirs > 0.0).map(|(ours, theirs)| ours / theirs);
        let verdict = match ratio {
            Some(ratio) if ratio <= aim => "kept",
            Some(_) => "missed",
            None => "can't be told",
        };
        let theirs = peer.map_or_else(|| cell(values.1), |peer| format!("{} ({peer})", cell(values.1)));
        table.row(vec![
            name.into(),
            cell(values.0),
            theirs,
            cell(ratio),
            format!("\u{2264} {aim}"),
            verdict.into(),
        ]);
    };
    for (name, measure) in [("to the longest gap", "longest"), ("to 99.9999 %", "99.9999 %")] {
        let values = (addition(results, TOMPION, measure), addition(results, PEER, measure));
        row(name, values, 0.5, None);
    }
    let values = (addition(results, TOMPION, "mean"), addition(results, CLOCK, "mean"));
    row("to the mean", values, 1.25, Some("a reading of the clock in its place"));
    table
}

fn traces(results: &Results) -> Table {
    let mut table = Table::new(&["", "events in the traces", "lost"]);
    for figure in results.group(npt::ALL).filter(|figure| figure.at == "longest") {
        let count = |name: &str| figure.counts.get(name).copied().unwrap_or_default();
        let events = count("events in the traces");
        if events > 0.0 {
            let cells = [events, count(npt::LOST)].map(|count| crate::table::grouped(count as u64));
            table.row(std::iter::once(figure.label.clone()).chain(cells).collect());
        }
    }
    table
}

fn cyclic_section(results: &Results) -> String {
    let median =
        |label| results.find(cyclic::GROUP, label, "median").and_then(super::results::Figure::median);
    let apart =
        median("tompion test cyclic").zip(median("cyclictest")).map(|(ours, theirs)| (ours - theirs).abs());
    let verdict = match apart {
        Some(apart) if apart <= 1.0 => format!("The medians lie {apart:.2} \u{b5}s apart (aim: 1 \u{b5}s)."),
        Some(apart) => format!("The medians lie {apart:.2} \u{b5}s apart, more than the aim of 1 \u{b5}s."),
        None => "The medians can't be told.".into(),
    };
    format!(
        "\n## Wake-ups (cyclic), beside cyclictest\n\n{}\n`tompion test cyclic` and cyclictest in turns, ten seconds each, under hackbench: \
         a thread on each CPU, woken each millisecond. {verdict}\n\n![Both distributions](cyclic.svg)\n\n{}{}",
        machine(results),
        results.table(cyclic::GROUP).markdown(),
        results.failures()
    )
}

#[cfg(test)]
mod tests {
    use super::super::results::{Figure, Who};
    use super::*;

    fn results(longest: [f64; 3]) -> Results {
        let figure = |label: &str, measure: &str, value: f64| {
            let mut figure = Figure::new(npt::UNDISTURBED, Who::Plain, label, measure, "ns");
            figure.note(Ok(value));
            figure
        };
        let mut figures = Vec::new();
        for (label, longest) in [NOBODY, TOMPION, PEER].into_iter().zip(longest) {
            figures.extend([figure(label, "longest", longest), figure(label, "mean", longest / 10.0)]);
        }
        figures.push(figure(CLOCK, "mean", 20.0));
        let machine = vec!["CPU: x".into()];
        Results { benchmark: "npt".into(), date: "2026-01-01".into(), machine, repetitions: 1, figures }
    }

    #[test]
    fn additions_are_held_against_each_other() {
        let text = aims(&results([100.0, 200.0, 400.0])).markdown();
        let rows: Vec<&str> = text.lines().collect();
        assert!(
            rows[2].starts_with("| to the longest gap | 100.0 | 300.0 | 0.33 | ")
                && rows[2].ends_with("kept |"),
            "{text}"
        );
        assert!(rows[3].contains("can't be told"), "{text}");
        assert!(
            rows[4]
                .starts_with("| to the mean | 10.0 | 10.0 (a reading of the clock in its place) | 1.00 | "),
            "{text}"
        );
        let missed = aims(&results([100.0, 300.0, 400.0])).markdown();
        assert!(missed.lines().nth(2).is_some_and(|row| row.ends_with("missed |")), "{missed}");
    }

    #[test]
    fn a_peer_that_adds_nothing_gives_no_ratio() {
        let text = aims(&results([100.0, 200.0, 90.0])).markdown();
        assert!(text.lines().nth(2).is_some_and(|row| row.ends_with("can't be told |")), "{text}");
    }
}
