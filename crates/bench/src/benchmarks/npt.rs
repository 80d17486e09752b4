//! `x bench npt`: the papers' experiment, what recording adds to a real-time loop's gaps, by all
//! recorders in turns.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::results::{Figure, Results, Who};
use super::statistics::curve;
use super::tompion::Tompion;
use super::{Options, Report, lttng, progress, rt_report};
use tompion_tasks::shell;
use tompion_tasks::workspace::Workspace;

const METHOD: &str = "\
`tompion test npt`: a loop under SCHED_FIFO 80 on a CPU of its own, memory locked, reads the counter, records an event, \
and reads the counter again; a gap is what lies between. Two million loops a run at 500,000 a second, recorders in turns, \
each run a process of its own, equal buffers (four sub-buffers of 1 MiB for each CPU; of 4 MiB where the kernel is \
recorded). Undisturbed gaps are those without interrupts, other threads and the hypervisor, left out alike for all. \
Traces were counted: as many events as loops, or the difference is reported as lost.\n";

const REPETITIONS: usize = 20;
const LOOPS: &str = "2M";
const QUICK_LOOPS: &str = "100k";
const RATE: &str = "500k";
/// A run that takes longer hangs.
const MAX_SECONDS: u64 = 300;

/// Tables: what is left out, and where that stands in a result.
pub const UNDISTURBED: &str = "undisturbed gaps";
pub const ALL: &str = "all gaps";
/// The table of the counter itself.
const CLOCK: &str = "reading the counter";
/// Events that are not in the traces, by recorder.
pub const LOST: &str = "lost";

/// Measures of a run, and their names there.
const MEASURES: [(&str, &str); 8] = [
    ("mean", "mean_ns"),
    ("50 %", "50"),
    ("99 %", "99"),
    ("99.9 %", "99.9"),
    ("99.99 %", "99.99"),
    ("99.999 %", "99.999"),
    ("99.9999 %", "99.9999"),
    ("longest", "max_ns"),
];

/// Command lines of a round. The fourth measures LTTng, with its read timer and without, after
/// Tompion.
const TURNS: [&[&str]; 6] = [
    &["--trace", "none"],
    &["--trace", "clock"],
    &["--trace", "disabled"],
    &["--trace", "user", "--peer", "lttng"],
    &["--trace", "kernel", "--subbuf-size", "4M"],
    &["--trace", "both", "--subbuf-size", "4M"],
];

/// All runs of a recorder.
#[derive(Default)]
struct Recorder {
    /// Values in nanoseconds, by table and measure.
    values: BTreeMap<(&'static str, &'static str), Vec<f64>>,
    /// Number of gaps by whole nanoseconds, for each table.
    histograms: BTreeMap<&'static str, BTreeMap<u64, u64>>,
    read_ns: Vec<f64>,
    lost: u64,
    events: u64,
}

/// Runs the benchmark.
pub fn run(workspace: &Workspace, options: &Options) -> Result<Report> {
    let tompion = Tompion::build(workspace)?.context("Tompion is not there")?;
    let daemon = lttng::Daemon::if_installed();
    let rounds = if options.quick { 1 } else { options.repetitions.max(REPETITIONS) };
    let loops = if options.quick { QUICK_LOOPS } else { LOOPS };
    let mut found: Vec<(String, Recorder)> = Vec::new();
    for round in 1..=rounds {
        for turn in TURNS {
            progress(&format!("round {round}/{rounds}: {}", turn.join(" ")));
            let words = turn.iter().filter(|word| daemon.is_some() || !["--peer", "lttng"].contains(word));
            let mut command = tompion.command();
            command.args(["test", "npt", "--json", "--loops", loops, "--rate", RATE]).args(words);
            let text = shell::capture(&mut shell::limited(MAX_SECONDS, &command))?;
            take(&text, &mut found)?;
        }
    }
    progress("");
    let figures = found.iter().flat_map(|(name, recorder)| recorder.figures(name)).collect();
    let results = Results::new("npt", rounds, figures)?;
    let markdown = results.markdown("What recording adds to a real-time loop", METHOD);
    if !options.quick {
        rt_report::write(workspace, Some(&results))?;
    }
    Ok(Report { text: results.text(), markdown, results })
}

/// Takes in what a command has printed: its own figures, and those of other tracers.
fn take(text: &str, found: &mut Vec<(String, Recorder)>) -> Result<()> {
    let result: Value = serde_json::from_str(text).context("`tompion test npt` wrote no JSON")?;
    let peers = result["peers"].as_array().into_iter().flatten();
    for run in std::iter::once(&result).chain(peers) {
        let name = run["recorder"].as_str().context("no recorder's name")?;
        let place = found.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
            found.push((name.to_owned(), Recorder::default()));
            found.len() - 1
        });
        found[place].1.take(run).with_context(|| format!("in the result of {name}"))?;
    }
    Ok(())
}

impl Recorder {
    fn take(&mut self, run: &Value) -> Result<()> {
        ensure!(
            run["setup"]["fifo"] == 80 && run["setup"]["locked"] == true,
            "no SCHED_FIFO or no locked memory: run it as root"
        );
        for (group, summary) in [(UNDISTURBED, &run["undisturbed"]), (ALL, run)] {
            for (name, key) in MEASURES {
                let place = if key.ends_with("_ns") { &summary[key] } else { &summary["percentiles"][key] };
                let value = place.as_f64().with_context(|| format!("no {key}"))?;
                self.values.entry((group, name)).or_default().push(value);
            }
            let histogram = self.histograms.entry(group).or_default();
            for pair in summary["histogram"].as_array().context("no histogram")? {
                let (ns, count) = pair[0].as_u64().zip(pair[1].as_u64()).context("no pair of numbers")?;
                *histogram.entry(ns.max(1)).or_default() += count;
            }
        }
        self.read_ns.push(run["clock"]["read_ns"].as_f64().context("no clock")?);
        let reported = run["trace_has"]["lost"].as_object().into_iter().flatten();
        let reported: u64 = reported.filter_map(|(_, count)| count.as_u64()).sum();
        self.lost += reported.max(run["lost"].as_u64().unwrap_or(0));
        self.events +=
            ["loops", "others"].iter().filter_map(|key| run["trace_has"][key].as_u64()).sum::<u64>();
        Ok(())
    }

    fn figures(&self, name: &str) -> Vec<Figure> {
        let who = match name {
            "Tompion" => Who::Tompion,
            name if name.starts_with("LTTng") => Who::Lttng,
            name if name.starts_with("Tompion") => Who::Fallback,
            _ => Who::Plain,
        };
        let mut figures = Vec::new();
        for group in [UNDISTURBED, ALL] {
            for (measure, _) in MEASURES {
                let mut figure = Figure::new(group, who, name, measure, "ns");
                let values = self.values.get(&(group, measure)).into_iter().flatten();
                values.for_each(|value| figure.note(Ok(*value)));
                if measure == "longest" {
                    figure.curve =
                        self.histograms.get(group).map(|counts| curve(counts, 1.0)).unwrap_or_default();
                    figure.counts.insert(LOST.into(), self.lost as f64);
                    figure.counts.insert("events in the traces".into(), self.events as f64);
                }
                figures.push(figure);
            }
        }
        let mut clock = Figure::new(CLOCK, who, name, "once", "ns");
        self.read_ns.iter().for_each(|value| clock.note(Ok(*value)));
        figures.push(clock);
        figures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(recorder: &str, mean: f64) -> String {
        let percentiles = r#"{"50":20,"99":21,"99.9":22,"99.99":23,"99.999":24,"99.9999":25}"#;
        let gaps = format!(
            r#""mean_ns":{mean},"max_ns":26,"percentiles":{percentiles},"histogram":[[20,9],[26,1]]"#
        );
        format!(
            r#"{{"recorder":"{recorder}",{gaps},"undisturbed":{{{gaps}}},"setup":{{"fifo":80,"locked":true}},
            "clock":{{"read_ns":11.0}},"lost":0,"trace_has":{{"loops":8,"others":1,"lost":{{"x":2}}}}}}"#
        )
    }

    #[test]
    fn runs_of_a_recorder_come_together() {
        let mut found = Vec::new();
        take(&result("Tompion", 40.0), &mut found).unwrap();
        let with_peer = result("Tompion", 42.0);
        let (head, _) = with_peer.rsplit_once('}').unwrap();
        take(&format!("{head},\"peers\":[{}]}}", result("LTTng, read timer", 90.0)), &mut found).unwrap();
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["Tompion", "LTTng, read timer"]);
        let figures = found[0].1.figures("Tompion");
        let mean = figures.iter().find(|figure| figure.group == UNDISTURBED && figure.at == "mean").unwrap();
        assert_eq!((mean.values.as_slice(), mean.who), (&[40.0, 42.0][..], Who::Tompion));
        let longest = figures.iter().find(|figure| figure.group == ALL && figure.at == "longest").unwrap();
        assert_eq!(longest.curve, [(20.0, 1.0), (26.0, 0.1)]);
        assert_eq!((longest.counts[LOST], longest.counts["events in the traces"]), (4.0, 18.0));
    }

    #[test]
    fn an_ordinary_thread_is_refused() {
        let text = result("Tompion", 40.0).replace("\"fifo\":80", "\"fifo\":null");
        assert!(take(&text, &mut Vec::new()).is_err());
    }
}
