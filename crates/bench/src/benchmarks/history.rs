//! `x bench monitor-history`: what ten years of the latency monitor's history take on the disk, and
//! how long reading them takes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::results::{Figure, Results, Who};
use super::tompion::Tompion;
use super::{Options, Report, programs, progress};
use tompion_tasks::artifacts::Profile;
use tompion_tasks::shell;
use tompion_tasks::workspace::Workspace;

const METHOD: &str = "\
`crates/history/examples/long_history.rs` writes a history up to now: four CPUs, six kinds, four jobs, a row every five minutes, \
a thousand wake-ups a second on each CPU, the load changing by hour and by chance, a new kernel each year. Rows are those that \
`tompion monitor --history` writes, and are thinned by the same code. Then each command reads it, the wall time of the \
whole process, medians beside the smallest and the largest.\n";

const DAYS: &str = "3652";
const QUICK_DAYS: &str = "40";
const CPUS: &str = "4";

/// Tables.
const SIZE: &str = "size of the file";
const TIME: &str = "time of a command";

/// Commands that are measured: name and words.
const COMMANDS: [(&str, &[&str]); 9] = [
    ("report of a week", &["report", "--last", "week"]),
    ("report of all", &["report"]),
    ("page of a year", &["report", "--last", "year", "-o", "OUT.html"]),
    ("plot of 30 hours, PNG", &["plot", "--last", "30h", "-o", "OUT.png"]),
    ("plot of a week, SVG", &["plot", "--last", "week", "-o", "OUT.svg"]),
    ("plot of a year, PNG", &["plot", "--last", "year", "-o", "OUT.png"]),
    ("plot of all, PNG", &["plot", "--from", "2000-01-01", "-o", "OUT.png"]),
    ("histograms of a year, SVG", &["plot", "--last", "year", "--histograms", "-o", "OUT.svg"]),
    ("comparison of two times", &["compare", "..BEFORE", "BEFORE.."]),
];

/// Runs the benchmark.
pub fn run(workspace: &Workspace, options: &Options) -> Result<Report> {
    let tompion = Tompion::build(workspace)?.context("Tompion is not there")?;
    let folder = programs::folder(workspace)?;
    let path = folder.join("history.sqlite");
    if path.exists() {
        fs::remove_file(&path)?;
    }
    let mut figures = Vec::new();
    let days = if options.quick { QUICK_DAYS } else { DAYS };
    progress(&format!("writing {days} days"));
    for (days, bytes) in write(workspace, &path, days)? {
        let place = if days == 1 { "1 day".into() } else { format!("{days} days") };
        let mut figure = Figure::new(SIZE, Who::Tompion, "4 CPUs, 6 kinds, 4 jobs", &place, "MB");
        figure.note(Ok(bytes / 1e6));
        figures.push(figure);
    }
    let before = middle(&tompion, &path)?;
    for (name, words) in COMMANDS {
        progress(name);
        let mut figure = Figure::new(TIME, Who::Tompion, name, "", "ms");
        for _ in 0..options.repetitions {
            figure.note(time(&tompion, &path, (words, &folder, &before)));
        }
        figures.push(figure);
    }
    progress("");
    fs::remove_file(&path)?;
    let results = Results::new("monitor-history", options.repetitions, figures)?;
    Ok(Report {
        text: results.text(),
        markdown: results.markdown("History of the latency monitor", METHOD),
        results,
    })
}

/// Writes a history; how large it was after how many days.
fn write(workspace: &Workspace, path: &Path, days: &str) -> Result<Vec<(u64, f64)>> {
    let mut cargo = shell::cargo();
    cargo.args([
        "build",
        "--quiet",
        "--release",
        "--package",
        "tompion-history",
        "--example",
        "long_history",
    ]);
    shell::run(cargo.current_dir(&workspace.root))?;
    let program = Profile::Release.folder(workspace).join("examples/long_history");
    let reported = shell::capture(Command::new(program).arg(path).args([days, CPUS]))?;
    let size = |line: &str| -> Result<(u64, f64)> {
        let line: Value = serde_json::from_str(line).context("long_history told no JSON")?;
        Ok((line["days"].as_u64().context("no days")?, line["bytes"].as_f64().context("no size")?))
    };
    reported.lines().map(size).collect()
}

/// The middle of the history, as a day.
fn middle(tompion: &Tompion, path: &Path) -> Result<String> {
    let mut report = tompion.command();
    report.args(["monitor", "report", "--json", "--history"]).arg(path);
    let report: Value =
        serde_json::from_str(&shell::capture(&mut report)?).context("the report is no JSON")?;
    let time = |name: &str| report[name].as_i64().with_context(|| format!("the report has no {name}"));
    // Seconds since 1970 are a time, too.
    Ok(((time("from_ms")? + time("to_ms")?) / 2000).to_string())
}

/// Milliseconds of a command.
fn time(tompion: &Tompion, path: &Path, (words, folder, before): (&[&str], &PathBuf, &str)) -> Result<f64> {
    let output = folder.join("history").display().to_string();
    let mut command = tompion.command();
    command.arg("monitor");
    command.args(words.iter().map(|word| word.replace("OUT", &output).replace("BEFORE", before)));
    command.arg("--history").arg(path);
    let begin = Instant::now();
    let done = command.output()?;
    let took = begin.elapsed().as_secs_f64() * 1e3;
    ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    Ok(took)
}
