//! `x bench monitor-blame`: whether `tompion monitor` names the cause of a late wakeup. Delays are
//! made on purpose; the test that does it in a few seconds (`crates/latency/tests/attribution.rs`)
//! goes round longer here.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::results::{Figure, Results, Who};
use super::{Options, Report, programs, progress};
use tompion_tasks::shell;
use tompion_tasks::workspace::Workspace;

const METHOD: &str = "\
A thread under SCHED_FIFO 80 sleeps until a time. Before that, another one on the same CPU has the kernel spin for 250 to 500 µs beyond \
it: with interrupts off, with preemption off, in a hard or a soft interrupt, or while the CPU leaves idling (BPF programs of the \
crate `injector`); or it runs itself, under SCHED_FIFO 90. Rows are what was done, columns the cause with the largest share of the \
latency. Cases of which less than half was done on purpose are left out: the hypervisor and other programs make threads late as well.\n";

/// Cases of each cause.
const CASES: u64 = 600;
const QUICK_CASES: u64 = 10;
/// A run that takes longer hangs.
const MAX_SECONDS: u64 = 3600;
/// The table.
pub const GROUP: &str = "late on purpose, and charged rightly";

type Matrix = BTreeMap<String, BTreeMap<String, u64>>;

/// Runs the benchmark.
pub fn run(workspace: &Workspace, options: &Options) -> Result<Report> {
    let file = programs::folder(workspace)?.join("blame.json");
    let _ = fs::remove_file(&file);
    let cases = if options.quick { QUICK_CASES } else { CASES };
    progress(&format!("{cases} delays of each cause"));
    let mut command = Command::new("cargo");
    command.current_dir(&workspace.root).args([
        "test",
        "--package",
        "tompion-latency",
        "--test",
        "attribution",
    ]);
    command.env("TOMPION_BLAME_CASES", cases.to_string()).env("TOMPION_BLAME_RESULT", &file);
    let output = shell::limited(MAX_SECONDS, &command).output().context("cannot run cargo")?;
    progress("");
    if !output.status.success() {
        bail!("the test failed:\n{}", String::from_utf8_lossy(&output.stdout));
    }
    let text =
        fs::read_to_string(&file).context("nothing can be delayed here: it needs root and Linux 5.17")?;
    let matrix: Matrix = serde_json::from_str(&text).context("the test wrote no JSON")?;
    ensure!(!matrix.is_empty(), "no delay was caught");
    let results = Results::new("monitor-blame", 1, figures(&matrix))?;
    let table = table(&matrix);
    let markdown = format!("{}\n{table}", results.markdown("Causes of late wakeups", METHOD));
    Ok(Report { text: format!("{}\n{table}", results.text()), markdown, results })
}

fn of_row(row: &BTreeMap<String, u64>, cause: &str) -> (u64, u64) {
    (row.get(cause).copied().unwrap_or(0), row.values().sum())
}

fn figures(matrix: &Matrix) -> Vec<Figure> {
    let mut all = (0, 0);
    let mut figures = Vec::new();
    let figure = |at: &str, (right, cases): (u64, u64)| {
        let mut figure = Figure::new(GROUP, Who::Tompion, "tompion monitor", at, "%");
        figure.note(Ok(right as f64 * 100.0 / cases.max(1) as f64));
        figure.counts.insert("cases".into(), cases as f64);
        figure
    };
    for (cause, row) in matrix {
        let found = of_row(row, cause);
        all = (all.0 + found.0, all.1 + found.1);
        figures.push(figure(cause, found));
    }
    figures.push(figure("all", all));
    figures
}

/// The confusion matrix.
fn table(matrix: &Matrix) -> String {
    let columns: BTreeSet<&str> = matrix.values().flat_map(BTreeMap::keys).map(String::as_str).collect();
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let head = ["done"].into_iter().chain(columns.iter().copied()).chain(["right"]).map(str::to_owned);
    let mut text = line(head.collect());
    text += &line(vec!["---".into(); columns.len() + 2]);
    for (cause, row) in matrix {
        let (right, cases) = of_row(row, cause);
        let cells = columns.iter().map(|column| of_row(row, column).0.to_string());
        let share = format!("{:.1} % of {cases}", right as f64 * 100.0 / cases.max(1) as f64);
        text += &line([cause.clone()].into_iter().chain(cells).chain([share]).collect());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_right_stands_on_the_diagonal() {
        let matrix: Matrix =
            serde_json::from_str(r#"{"a": {"a": 9, "b": 1}, "b": {"b": 10}}"#).expect("a matrix");
        assert_eq!(
            table(&matrix),
            "| done | a | b | right |\n| --- | --- | --- | --- |\n| a | 9 | 1 | 90.0 % of 10 |\n| b | 0 | 10 | 100.0 % of 10 |\n"
        );
        let figures = figures(&matrix);
        assert_eq!(figures.last().map(|figure| figure.values.clone()), Some(vec![95.0]));
    }
}
