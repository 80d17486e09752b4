//! `x bench cyclic`: how late threads are woken, by `tompion test cyclic` and by cyclictest in
//! turns.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::results::{Figure, Results, Who};
use super::statistics::{curve, quantile};
use super::tompion::Tompion;
use super::{Options, Report, programs, progress, rt_report};
use tompion_tasks::shell;
use tompion_tasks::workspace::Workspace;

const METHOD: &str = "\
A thread on each CPU under SCHED_FIFO 80 with locked memory is woken each millisecond by clock_nanosleep, and accounts how \
much later it goes on: by `tompion test cyclic` and by cyclictest in turns, ten seconds each, while hackbench keeps \
the machine busy. Both count in nanoseconds (cyclictest up to a millisecond; later ones are among the largest only).\n";

const SECONDS: u64 = 10;
const QUICK_SECONDS: u64 = 1;
/// A run that takes longer than it should by this hangs.
const GRACE: u64 = 60;
const INTERVAL_US: &str = "1000";
const PRIORITY: &str = "80";
/// cyclictest has a place for each nanosecond below this.
const MAX_NS: &str = "1000000";
/// The table, and the shares in it.
pub const GROUP: &str = "wake-ups are late by";
const SHARES: [(&str, f64); 4] = [("median", 0.5), ("99 %", 0.99), ("99.9 %", 0.999), ("99.99 %", 0.9999)];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Tool {
    Tompion,
    Cyclictest,
}

impl Tool {
    const ALL: [Self; 2] = [Self::Tompion, Self::Cyclictest];

    const fn who(self) -> Who {
        match self {
            Self::Tompion => Who::Tompion,
            Self::Cyclictest => Who::Cyclictest,
        }
    }

    const fn label(self) -> &'static str {
        match self {
            Self::Tompion => "tompion test cyclic",
            Self::Cyclictest => "cyclictest",
        }
    }
}

/// Result of one run: nanoseconds and how many, and the latest of all.
#[derive(Debug, PartialEq)]
struct Run {
    histogram: BTreeMap<u64, u64>,
    latest: f64,
}

/// A program and the processes that it starts, until this is dropped.
pub struct Load(Child);

impl Load {
    /// Processes that send each other messages.
    pub fn start() -> Result<Self> {
        let mut hackbench = Command::new("hackbench");
        hackbench.args(["-g", "2", "-l", "1000000000"]);
        Self::of(hackbench).context("cannot run hackbench (apt install rt-tests)")
    }

    /// Starts a program.
    pub fn of(mut command: Command) -> Result<Self> {
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self(command.spawn().with_context(|| format!("cannot run `{}`", shell::describe(&command)))?))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let group = format!("-{}", self.0.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.0.wait();
    }
}

/// Runs the benchmark.
pub fn run(workspace: &Workspace, options: &Options) -> Result<Report> {
    ensure!(shell::exists("cyclictest"), "cyclictest is missing (apt install rt-tests)");
    let tompion = Tompion::build(workspace)?.context("Tompion is not there")?;
    let seconds = if options.quick { QUICK_SECONDS } else { SECONDS };
    let mut found = Tool::ALL.map(|_| Vec::new());
    let load = Load::start()?;
    for repetition in 1..=options.repetitions {
        for (tool, runs) in Tool::ALL.into_iter().zip(&mut found) {
            progress(&format!("repetition {repetition}/{}: {}", options.repetitions, tool.label()));
            runs.push(measure(workspace, &tompion, tool, seconds)?);
        }
    }
    drop(load);
    progress("");
    let figures = Tool::ALL.into_iter().zip(&found).flat_map(|(tool, runs)| figures(tool, runs)).collect();
    let results = Results::new("cyclic", options.repetitions, figures)?;
    let markdown = results.markdown("Wake-ups beside cyclictest", METHOD);
    if !options.quick {
        rt_report::write(workspace, Some(&results))?;
    }
    Ok(Report { text: results.text(), markdown, results })
}

fn measure(workspace: &Workspace, tompion: &Tompion, tool: Tool, seconds: u64) -> Result<Run> {
    match tool {
        Tool::Tompion => {
            let mut command = tompion.command();
            command.args(["test", "cyclic", "--json", "--interval", "1ms", "--priority", PRIORITY]);
            command.arg("--duration").arg(format!("{seconds}s"));
            let text = shell::capture(&mut shell::limited(seconds + GRACE, &command))?;
            of_tompion(&text)
        }
        Tool::Cyclictest => {
            let file = programs::folder(workspace)?.join("cyclictest.json");
            let mut command = Command::new("cyclictest");
            command.args(["-m", "-S", "-q", "-N", "-p", PRIORITY, "-i", INTERVAL_US, "-h", MAX_NS]);
            command.args(["-D", &seconds.to_string()]).arg(format!("--json={}", file.display()));
            shell::run_quietly(&mut shell::limited(seconds + GRACE, &command))?;
            let text = std::fs::read_to_string(&file).context("cyclictest left no JSON")?;
            of_cyclictest(&text)
        }
    }
}

fn of_tompion(text: &str) -> Result<Run> {
    let result: Value = serde_json::from_str(text).context("`tompion test cyclic` wrote no JSON")?;
    let mut run = Run { histogram: BTreeMap::new(), latest: 0.0 };
    for cpu in result["cpus"].as_array().context("no CPUs")? {
        ensure!(
            cpu["prepared"]["fifo"] == 80 && cpu["prepared"]["locked"] == true,
            "no SCHED_FIFO or no locked memory: run it as root"
        );
        for pair in cpu["late"]["histogram"].as_array().context("no histogram")? {
            let (ns, count) = pair[0].as_u64().zip(pair[1].as_u64()).context("no pair of numbers")?;
            *run.histogram.entry(ns).or_default() += count;
        }
        run.latest = run.latest.max(cpu["late"]["max_ns"].as_f64().context("no maximum")?);
    }
    Ok(run)
}

fn of_cyclictest(text: &str) -> Result<Run> {
    let result: Value = serde_json::from_str(text).context("cyclictest wrote no JSON")?;
    let mut run = Run { histogram: BTreeMap::new(), latest: 0.0 };
    for thread in result["thread"].as_object().context("no threads")?.values() {
        let mut counted = 0;
        for (ns, count) in thread["histogram"].as_object().context("no histogram")? {
            let (ns, count) = ns.parse().ok().zip(count.as_u64()).context("no pair of numbers")?;
            *run.histogram.entry(ns).or_default() += count;
            counted += count;
        }
        let latest = thread["max"].as_u64().context("no maximum")?;
        // What is beyond its places is as late as the latest one, for all that is known.
        let beyond = thread["cycles"].as_u64().unwrap_or(counted).saturating_sub(counted);
        if beyond != 0 {
            *run.histogram.entry(latest).or_default() += beyond;
        }
        run.latest = run.latest.max(latest as f64);
    }
    Ok(run)
}

fn figures(tool: Tool, runs: &[Run]) -> Vec<Figure> {
    let new = |at: &str| Figure::new(GROUP, tool.who(), tool.label(), at, "µs");
    let mut figures: Vec<Figure> = SHARES
        .into_iter()
        .map(|(name, share)| {
            let mut figure = new(name);
            runs.iter()
                .filter_map(|run| quantile(&run.histogram, share))
                .for_each(|ns| figure.note(Ok(ns / 1e3)));
            figure
        })
        .collect();
    let mut latest = new("latest");
    runs.iter().for_each(|run| latest.note(Ok(run.latest / 1e3)));
    let mut all = BTreeMap::<u64, u64>::new();
    for (ns, count) in runs.iter().flat_map(|run| &run.histogram) {
        *all.entry(*ns).or_default() += count;
    }
    latest.curve = curve(&all, 1.0);
    figures.push(latest);
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_tools_results_are_read_alike() {
        let ours = r#"{"cpus":[{"prepared":{"fifo":80,"locked":true},"late":{"histogram":[[5000,2],[7000,1]],"max_ns":7000.0}},
            {"prepared":{"fifo":80,"locked":true},"late":{"histogram":[[5000,1]],"max_ns":5000.0}}]}"#;
        let theirs = r#"{"thread":{"0":{"histogram":{"5000":2},"cycles":3,"max":7000},
            "1":{"histogram":{"5000":1},"cycles":1,"max":5000}}}"#;
        let run = of_tompion(ours).unwrap();
        assert_eq!(run, of_cyclictest(theirs).unwrap());
        assert_eq!((run.latest, run.histogram), (7000.0, BTreeMap::from([(5000, 3), (7000, 1)])));
        assert!(of_tompion("{}").is_err() && of_cyclictest("x").is_err());
        assert!(of_tompion(&ours.replace("80", "null")).is_err(), "an ordinary thread is another figure");
    }

    #[test]
    fn figures_have_a_value_of_each_run() {
        let run = |ns| Run { histogram: BTreeMap::from([(ns, 10)]), latest: ns as f64 };
        let figures = figures(Tool::Tompion, &[run(3000), run(1000)]);
        assert!(figures.iter().all(|figure| figure.values == [1.0, 3.0]), "{figures:?}");
        assert_eq!(figures.last().unwrap().curve, [(1000.0, 1.0), (3000.0, 0.5)]);
    }
}
