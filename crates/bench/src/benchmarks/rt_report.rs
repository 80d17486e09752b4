//! `docs/rt-report/`: the papers' experiment and the wake-ups, as tables and plots, from the newest
//! results.

use std::fs;

use anyhow::{Context, Result};

use super::page::plots;
use super::results::{Results, digits};
use super::{cyclic, npt};
use tompion_tasks::table::Table;
use tompion_tasks::workspace::Workspace;

const INTRODUCTION: &str = "\
How much recording adds to a real-time loop, and how late threads wake. It repeats the experiment of
Beamonte and Dagenais, \u{201c}Linux Low-Latency Tracing for Multicore Hard Real-Time Systems\u{201d} (2015), and
cyclictest. `./x bench npt` and `./x bench cyclic` write this page from the newest run of each. The
data are in [benches/results](../../benches/results). [docs/design/rttest.md](../design/rttest.md)
has the method.

**This machine is virtual.** Its hypervisor stops CPUs for micro- or milliseconds, and provides its
timers. So nothing here bounds what the same system does on real hardware: the maxima are the
machine's. Differences between recorders that ran in turn in the same loop are meaningful, because
the machine treats all alike. The first table leaves out gaps with an interrupt, another thread or
stolen time. Stops that the hypervisor does not report remain, for all alike.
";

/// Writes what was found now, if anything was, and what was kept otherwise.
pub fn write(workspace: &Workspace, fresh: Option<&Results>) -> Result<()> {
    let of = |name: &str| match fresh.filter(|fresh| fresh.benchmark == name) {
        Some(fresh) => Ok(Some(fresh.clone())),
        None => Results::newest(workspace, name),
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
        "\n## The loop (npt)\n\n{}\nTwo million iterations per run, 500,000 per second, with one event each; recorders \
         in turn. Medians\nof the rounds, with minimum and maximum, in nanoseconds.\n",
        machine(results)
    );
    text += &format!("\n### Targets\n\n{}\n{DOUBTS}", aims(results).markdown());
    for (group, file, title) in NPT_PLOTS {
        let table = results.table_by_label(group).markdown();
        text += &format!("\n### {title}\n\n![{title}]({file})\n\n{table}");
    }
    text += &format!("\n### Events in the traces\n\n{}", traces(results).markdown());
    text + &results.failures()
}

const DOUBTS: &str = "\
\u{b1} is the uncertainty (95 %) of a difference of two medians, from the spread of the rounds. A smaller
difference can't be distinguished from zero, nor can a ratio to it. This machine sometimes stops a
loop for hundreds of microseconds, so the maxima of twenty rounds are its own, with any recorder.
[The design](../design/rttest.md#where-an-events-time-goes) explains why an event between two fenced
clock reads adds more than such a read.
";

const NO_FIGURE: &str = "nothing recorded";
/// Label of what every recorder needs.
const CLOCK: &str = "clock read, nothing recorded";
const TOMPION: &str = "Tompion";
const PEER: &str = "LTTng, read timer";

/// Difference that a recorder adds to a measure of the undisturbed gaps, in nanoseconds.
#[derive(Clone, Copy)]
struct Addition {
    /// Difference of the medians.
    ns: f64,
    /// Uncertainty.
    doubt: f64,
}

impl Addition {
    fn of(results: &Results, label: &str, measure: &str) -> Option<Self> {
        let found = |label| {
            let figure = results.find(npt::UNDISTURBED, label, measure)?;
            Some((figure.median()?, figure.doubt()?))
        };
        let ((median, doubt), (nothing, doubt_of_nothing)) = (found(label)?, found(NO_FIGURE)?);
        Some(Self { ns: median - nothing, doubt: doubt + doubt_of_nothing })
    }

    fn is_sure(&self) -> bool {
        self.ns > self.doubt
    }

    fn text(&self) -> String {
        let number = |value: f64| format!("{value:.*}", digits(value));
        let doubt = if self.doubt > 0.0 { format!(" \u{b1} {}", number(self.doubt)) } else { String::new() };
        number(self.ns) + &doubt
    }
}

/// Aims: the measure, the limit, and the peer that it is compared with.
const AIMS: [(&str, &str, f64, &str); 4] = [
    ("to the longest gap", "longest", 0.5, PEER),
    ("to 99.9999 %", "99.9999 %", 0.5, PEER),
    ("to the mean", "mean", 1.25, CLOCK),
    ("to half of the gaps", "50 %", 1.25, CLOCK),
];

/// Table of the project's own limits, and whether they were kept.
fn aims(results: &Results) -> Table {
    let mut table = Table::new(&["an event adds, in ns", TOMPION, "beside", "", "ratio", "aim", ""]);
    for (name, measure, aim, peer) in AIMS {
        let [ours, theirs] = [TOMPION, peer].map(|label| Addition::of(results, label, measure));
        let cell = |value: Option<Addition>| value.map_or_else(|| "\u{2013}".into(), |value| value.text());
        let sure = ours.zip(theirs).filter(|(ours, theirs)| ours.is_sure() && theirs.is_sure());
        let ratio = sure.map(|(ours, theirs)| ours.ns / theirs.ns);
        let verdict = match ratio {
            Some(ratio) if ratio <= aim => "kept",
            Some(_) => "missed",
            None => "can't be determined",
        };
        let ratio = ratio.map_or_else(|| "\u{2013}".into(), |ratio| format!("{ratio:.2}"));
        let aim = format!("\u{2264} {aim}");
        table.row(vec![name.into(), cell(ours), peer.into(), cell(theirs), ratio, aim, verdict.into()]);
    }
    table
}

fn traces(results: &Results) -> Table {
    let mut table = Table::new(&["", "events in the traces", "lost"]);
    for figure in results.group(npt::ALL).filter(|figure| figure.at == "longest") {
        let count = |name: &str| figure.counts.get(name).copied().unwrap_or_default();
        let events = count("events in the traces");
        if events > 0.0 {
            let cells = [events, count(npt::LOST)].map(|count| tompion_plot::with_thousands(count as u64));
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
        None => "The medians can't be determined.".into(),
    };
    format!(
        "\n## Wakeup latency (cyclic), compared with cyclictest\n\n{}\n`tompion test cyclic` and cyclictest in turn, ten \
         seconds each, under hackbench: one thread per CPU,\nwoken every millisecond. {verdict}\n\n![Both distributions](cyclic.svg)\n\n{}{}",
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
        for (label, longest) in [NO_FIGURE, TOMPION, PEER].into_iter().zip(longest) {
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
        let longest = format!("| to the longest gap | 100.0 | {PEER} | 300.0 | 0.33 | ");
        assert!(rows[2].starts_with(&longest) && rows[2].ends_with("kept |"), "{text}");
        assert!(rows[3].contains("can't be determined"), "{text}");
        assert!(rows[4].starts_with(&format!("| to the mean | 10.0 | {CLOCK} | 10.0 | 1.00 | ")), "{text}");
        let missed = aims(&results([100.0, 300.0, 400.0])).markdown();
        assert!(missed.lines().nth(2).is_some_and(|row| row.ends_with("missed |")), "{missed}");
    }

    #[test]
    fn what_rounds_differ_by_is_no_difference() {
        let mut noisy = results([100.0, 200.0, 400.0]);
        let figure = noisy.figures.iter_mut().find(|figure| figure.label == PEER && figure.at == "longest");
        figure.expect("a figure").values = vec![100.0, 400.0, 9000.0];
        let text = aims(&noisy).markdown();
        let row = text.lines().nth(2).unwrap_or_default();
        assert!(row.contains(" \u{b1} ") && row.ends_with("can't be determined |"), "{text}");
    }

    #[test]
    fn a_peer_that_adds_nothing_gives_no_ratio() {
        let text = aims(&results([100.0, 200.0, 90.0])).markdown();
        assert!(text.lines().nth(2).is_some_and(|row| row.ends_with("can't be determined |")), "{text}");
    }
}
