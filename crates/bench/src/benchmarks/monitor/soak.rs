//! `x bench monitor-soak [--minutes N]`: whether the monitor lasts, under load and with kills.

use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;

use super::super::cyclic::Load;
use super::super::programs;
use super::super::results::{Figure, Results, Who};
use super::super::tompion::Tompion;
use super::super::{Options, Report, progress};
use super::counting::{Counting, Serving};
use super::report;
use tompion_tasks::shell;
use tompion_tasks::workspace::Workspace;

const METHOD: &str = "\
Two threads on each CPU sleep a millisecond again and again under SCHED_FIFO 80; in turns hackbench and stress-ng keep the machine busy, \
and nothing does. `tompion monitor --listen --history` is asked for its page every five seconds; it is killed (SIGKILL) and begun \
again all the while, and interrupted in the end. What counts in the kernel goes on meanwhile.\n";

/// The group of figures, and their labels.
pub const GROUP: &str = "a soak";
const LASTED: &str = "it lasted";
const KILLED: &str = "killed and begun again";
const WOKEN: &str = "wake-ups of real-time threads";
/// Figures with budgets.
pub const DIFFERENCE: &str = "sums that disagree, the most";
pub const MISCOUNTED: &str = "wake-ups that are not in the history, or twice";
pub const MEMORY: &str = "memory of the process, the most";
const FIRST_MEMORY: &str = "memory of the process, in the beginning";
const LAST_MEMORY: &str = "memory of the process, in the end";
const SLEPT: &str = "times that threads slept, by the scheduler";
const UNSEEN: &str = "of these without a wake-up that was seen";
const NOT_STARTED: &str = "programs that the kernel did not start";

const MINUTES: u64 = 5;
const QUICK: Duration = Duration::from_secs(30);
/// Time between two looks.
const LOOK: Duration = Duration::from_secs(5);
/// Duration of a load.
const TURN: Duration = Duration::from_secs(20);
/// Kills in all, where there is time for them.
const KILLS: u32 = 40;
const MAX_TURN: Duration = Duration::from_secs(45);
/// Beside the CPUs: memory, disk and timers.
const STRESS: [&str; 12] =
    ["--cpu", "1", "--vm", "1", "--vm-bytes", "64M", "--io", "1", "--timer", "1", "--switch", "1"];

/// Runs the benchmark.
pub fn run(workspace: &Workspace, options: &Options) -> Result<Report> {
    let tompion = Tompion::build(workspace)?.context("Tompion is not there")?;
    let length = match options.minutes {
        None if options.quick => QUICK,
        minutes => Duration::from_secs(60 * minutes.unwrap_or(MINUTES)),
    };
    let file = programs::folder(workspace)?.join("soak.sqlite");
    let _ = std::fs::remove_file(&file);
    let figures = soak(&tompion, &file, length)?;
    progress("");
    let results = Results::new("monitor-soak", 1, figures)?;
    report::write(workspace, options, &results, None)?;
    let text = report::soak_table(&results).text();
    Ok(Report { text, markdown: results.markdown("The monitor under load", METHOD), results })
}

/// Observations on the way.
#[derive(Default)]
struct Seen {
    kills: u32,
    memory: Vec<f64>,
    difference: u64,
    /// Report while the threads were there: for those that are gone the scheduler's count is gone,
    /// too.
    beside: Value,
}

impl Seen {
    fn look(&mut self, serving: &Serving) -> Result<Value> {
        let report: Value = serde_json::from_str(&serving.ask("/api/report")?)?;
        self.difference = self.difference.max(difference(&report)?);
        self.memory.push(serving.memory("VmRSS")?);
        Ok(report)
    }
}

fn soak(tompion: &Tompion, file: &Path, length: Duration) -> Result<Vec<Figure>> {
    let counting = Counting::begin(tompion)?;
    let keep = format!("--history={}", file.display());
    let mut serving = counting.serve(&[&keep])?;
    let sleepers = [sleepers(tompion, length)?, sleepers(tompion, length)?];
    let (begin, mut seen) = (Instant::now(), Seen::default());
    let turn = (length / KILLS).clamp(LOOK, MAX_TURN);
    let mut load = None;
    let (mut turns, mut kill_at) = (0, turn);
    while begin.elapsed() < length {
        let passed = begin.elapsed();
        progress(&format!("{} of {} s, {} kills", passed.as_secs(), length.as_secs(), seen.kills));
        if passed >= TURN * turns {
            drop(load.take());
            load = next_load(turns)?;
            turns += 1;
        }
        if passed >= kill_at {
            // In the middle of its work.
            drop(serving);
            serving = counting.serve(&[&keep])?;
            seen.kills += 1;
            kill_at = passed + turn;
        }
        sleep(LOOK.min(length.saturating_sub(passed)));
        seen.look(&serving)?;
    }
    drop(load);
    seen.beside = seen.look(&serving)?;
    drop(sleepers);
    let before = seen.look(&serving)?;
    serving.finish()?;
    let text = shell::capture(&mut counting.command(&["--once", "--json"]))?;
    let after: Value = serde_json::from_str(&text).context("the monitor wrote no JSON")?;
    let mut report = tompion.command();
    report.args(["monitor", "report", "--json", "--history"]).arg(file);
    let history: Value = serde_json::from_str(&shell::capture(&mut report)?).context("no JSON")?;
    reported(&seen, begin.elapsed(), [&before, &after, &history])
}

/// Loads come by turns: none, hackbench, stress-ng.
fn next_load(turn: u32) -> Result<Option<Load>> {
    Ok(match turn % 3 {
        1 => Some(Load::start()?),
        2 if shell::exists("stress-ng") => {
            let mut stress = Command::new("stress-ng");
            stress.args(STRESS);
            Some(Load::of(stress)?)
        }
        _ => None,
    })
}

/// A thread on each CPU, until this is dropped.
fn sleepers(tompion: &Tompion, length: Duration) -> Result<Load> {
    let mut cyclic = tompion.command();
    cyclic.args(["test", "cyclic", "--json", "-i", "1ms", "-p", "80"]);
    cyclic.arg("--duration").arg(format!("{}s", length.as_secs() + 60));
    Load::of(cyclic)
}

fn number(report: &Value, name: &str) -> Result<u64> {
    report["wakeups"][name].as_u64().with_context(|| format!("the report has no {name}"))
}

/// Wakeups that the scheduler counted, and those of them that were not seen.
fn by_scheduler(report: &Value, name: &str) -> Result<u64> {
    report["unseen"][name].as_u64().with_context(|| format!("no comparison with the scheduler: no {name}"))
}

fn difference(report: &Value) -> Result<u64> {
    Ok(report["wakeups"]["difference"].as_i64().context("the report has no difference")?.unsigned_abs())
}

/// All of it as figures. The history was written after the first report and before the second.
fn reported(seen: &Seen, lasted: Duration, [before, after, history]: [&Value; 3]) -> Result<Vec<Figure>> {
    let kept = number(history, "woken")?;
    let miscounted =
        number(before, "woken")?.saturating_sub(kept) + kept.saturating_sub(number(after, "woken")?);
    let most = seen.difference.max(difference(after)?).max(difference(history)?);
    let memory = |found: Option<&f64>| found.copied().context("the memory was not measured");
    let longest = seen.memory.iter().max_by(|one, other| one.total_cmp(other));
    let values = [
        (LASTED, lasted.as_secs_f64() / 60.0, "min"),
        (KILLED, f64::from(seen.kills), ""),
        (WOKEN, number(after, "woken")? as f64, ""),
        (DIFFERENCE, most as f64, ""),
        (MISCOUNTED, miscounted as f64, ""),
        (SLEPT, by_scheduler(&seen.beside, "slept")? as f64, ""),
        (UNSEEN, by_scheduler(&seen.beside, "unseen")? as f64, ""),
        (NOT_STARTED, after["not_started"].as_u64().context("no count of misses")? as f64, ""),
        (FIRST_MEMORY, memory(seen.memory.first())?, "MiB"),
        (LAST_MEMORY, memory(seen.memory.last())?, "MiB"),
        (MEMORY, memory(longest)?, "MiB"),
    ];
    let figure = |(label, value, unit): (&str, f64, &str)| {
        let mut figure = Figure::new(GROUP, Who::Tompion, label, "", unit);
        figure.note(Ok(value));
        figure
    };
    Ok(values.into_iter().map(figure).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::budgets::Budget;
    use super::super::budgets::of_soak;
    use super::*;

    fn kept(before: u64, history: u64, after: u64, difference: i64) -> Vec<bool> {
        let report = |woken: u64, difference: i64| json!({"wakeups": {"woken": woken, "difference": difference}, "unseen": {"slept": 9, "unseen": 1}, "not_started": 0});
        let seen =
            Seen { kills: 3, memory: vec![12.0, 14.0, 13.0], difference: 0, beside: report(before, 0) };
        let reports = [report(before, 0), report(after, difference), report(history, 0)];
        let figures = reported(&seen, Duration::from_secs(60), reports.each_ref()).unwrap();
        let results = Results {
            benchmark: "monitor-soak".into(),
            date: "2026-01-31".into(),
            machine: Vec::new(),
            repetitions: 1,
            figures,
        };
        of_soak(&results).iter().map(Budget::is_kept).collect()
    }

    #[test]
    fn a_wakeup_that_is_lost_or_counted_twice_is_found() {
        assert_eq!(kept(100, 102, 105, 0), [true, true, true]);
        assert_eq!(kept(100, 99, 105, 0), [true, false, true]);
        assert_eq!(kept(100, 106, 105, 0), [true, false, true]);
        assert_eq!(kept(100, 100, 100, -1), [false, true, true]);
    }
}
