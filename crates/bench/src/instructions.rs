//! Check of the number of instructions on the event path against stored figures.
//!
//! Times differ from machine to machine and from minute to minute; instructions do not. They differ
//! a little between compilers, so a few more than stored are borne with.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::benchmarks::programs::{self, Program};
use crate::benchmarks::tompion::{Settings, Source, Tompion};
use tompion_tasks::artifacts::{self, Profile};
use tompion_tasks::shell;
use tompion_tasks::table::Table;
use tompion_tasks::workspace::Workspace;

/// Instructions above the stored figure that another compiler may add.
const SLACK: u64 = 4;

/// Growth that a count may have. A filter's way is long, and compilers see to it differently from
/// build to build.
fn slack(stored: u64) -> u64 {
    SLACK.max(stored / 25)
}

/// Events that are counted: name, and the number by which `counted.c` marks it.
const EVENTS: [(&str, u64); 2] = [("two-u64", 0), ("one-string-of-16", 1)];

/// Two comparisons, of which both must be made to find out that the event is not wanted.
const FILTER: &str = "a == 1 && b == 3";

/// Ways to count an event in place: a name, the number of the event, and the rule.
const COUNTED: [(&str, u64, &str); 5] = [
    ("two-u64 (counted)", 0, "count bench:two"),
    ("two-u64 (counted by a)", 0, "count bench:two by a"),
    ("two-u64 (counted by a, b)", 0, "count bench:two by a, b"),
    ("two-u64 (counted by a if b < 3)", 0, "count bench:two by a if b < 3"),
    ("one-string-of-16 (counted by text)", 1, "count bench:* by text"),
];

/// A name and its number of instructions.
type Count = (String, u64);

/// Counts the instructions and compares them with the stored figures, or stores them (`--store`).
pub fn command(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    let store = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => false,
        ["--store"] => true,
        _ => bail!("usage: tompion-bench instructions [--store]"),
    };
    alone()?;
    let counts = count(workspace)?;
    let file = stored_file(workspace);
    if store {
        return fs::write(&file, stored_text(&counts))
            .with_context(|| format!("cannot write {}", file.display()));
    }
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let stored = parse_stored(&text)?;
    print!("{}", table(&counts, &stored).text());
    judge(&counts, &stored)
}

fn stored_file(workspace: &Workspace) -> PathBuf {
    workspace.root.join("benches/event/instructions.txt")
}

/// An event that others record as well has more instructions.
fn alone() -> Result<()> {
    let sockets = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    if sockets.contains("@tompion-open-") {
        bail!(
            "a `tompion record` of every program is running here: its events would be counted; end it first"
        );
    }
    Ok(())
}

/// Counts each event, recorded and not recorded.
fn count(workspace: &Workspace) -> Result<Vec<Count>> {
    // What records them is not counted, and would take minutes to build optimized.
    let tompion = Tompion::build_with(workspace, Profile::Debug)?;
    let tompion = tompion.context("there is no command to record with")?;
    artifacts::library(workspace)?;
    let build = |name, source, flags: &[String]| {
        programs::build(workspace, &Program { name, sources: &[source], flags })
    };
    let steps = build("steps", "event/steps.c", &[])?;
    let counted = build("counted", "event/counted.c", &programs::tompion_flags(workspace))?;
    let folder = programs::folder(workspace)?.join("steps-trace");
    let settings = Settings::new(&folder, Source::Events("bench:*"));
    let mut recorded = tompion.record(&settings)?;
    recorded.arg(&steps).arg(&counted).arg("expect-enabled");
    let mut counts = run(&mut recorded, "")?;
    let mut filtered = tompion.record(&Settings { filter: Some(FILTER), ..settings })?;
    filtered.arg(&steps).arg(&counted).arg("expect-enabled");
    counts.extend(run(&mut filtered, " (filtered)")?);
    for (name, number, rule) in COUNTED {
        let mut command = tompion.count_in_place(&settings, rule)?;
        command.arg(&steps).arg(&counted).arg("expect-enabled");
        counts.push((name.to_owned(), smallest(&shell::capture(&mut command)?, number)?));
    }
    let mut disabled = Command::new(&steps);
    // Whatever else may be recording here.
    disabled.arg(&counted).arg("expect-disabled").env("TOMPION_DISABLE", "1");
    counts.extend(run(&mut disabled, " (disabled)")?);
    programs::remove(Path::new(&folder))?;
    Ok(counts)
}

fn run(command: &mut Command, suffix: &str) -> Result<Vec<Count>> {
    let output = shell::capture(command)?;
    EVENTS.iter().map(|(name, number)| Ok((format!("{name}{suffix}"), smallest(&output, *number)?))).collect()
}

/// The smallest count of a number: now and then an event opens a new sub-buffer.
fn smallest(output: &str, number: u64) -> Result<u64> {
    let mut least = None;
    for line in output.lines() {
        let line: Value = serde_json::from_str(line).with_context(|| format!("no JSON: {line}"))?;
        if line["number"] == number {
            least = least.into_iter().chain(line["instructions"].as_u64()).min();
        }
    }
    least.with_context(|| format!("nothing was counted for number {number}"))
}

fn stored_text(counts: &[Count]) -> String {
    let lines: String = counts.iter().map(|(name, count)| format!("{count:>4}  {name}\n")).collect();
    format!(
        "# Instructions from the site of an event and back. Written by `cargo run -p tompion-bench -- instructions --store`.\n{lines}"
    )
}

fn parse_stored(text: &str) -> Result<Vec<Count>> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let parse = |line: &str| {
        let (count, name) = line.trim().split_once("  ")?;
        Some((name.trim().to_owned(), count.parse().ok()?))
    };
    lines
        .map(|line| parse(line).with_context(|| format!("expected a count and a name, found: {line}")))
        .collect()
}

fn stored_count(stored: &[Count], name: &str) -> Option<u64> {
    stored.iter().find(|(known, _)| known == name).map(|(_, count)| *count)
}

fn table(counts: &[Count], stored: &[Count]) -> Table {
    let mut table = Table::new(&["event", "instructions", "stored"]);
    for (name, count) in counts {
        let stored = stored_count(stored, name).map_or_else(|| "–".into(), |count| count.to_string());
        table.row(vec![name.clone(), count.to_string(), stored]);
    }
    table
}

fn judge(counts: &[Count], stored: &[Count]) -> Result<()> {
    let mut dearer = Vec::new();
    for (name, count) in counts {
        let limit = stored_count(stored, name).with_context(|| format!("no figure is stored for {name}"))?;
        if *count > limit + slack(limit) {
            dearer.push(format!("{name}: {count}, stored {limit}"));
        } else if *count + slack(limit) < limit {
            println!("{name}: {count}, stored {limit}: cheaper now; keep it with instructions --store");
        }
    }
    ensure!(dearer.is_empty(), "the event path has grown: {}", dearer.join("; "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(count: u64) -> Vec<Count> {
        vec![("two-u64".into(), count)]
    }

    #[test]
    fn figures_are_stored_and_read_back() {
        let counts = vec![("two-u64".to_owned(), 61), ("two-u64 (disabled)".to_owned(), 5)];
        assert_eq!(parse_stored(&stored_text(&counts)).unwrap(), counts);
        assert!(parse_stored("many  two-u64").is_err());
    }

    #[test]
    fn growth_beyond_the_slack_fails() {
        assert!(judge(&counts(64), &counts(60)).is_ok());
        assert!(judge(&counts(65), &counts(60)).unwrap_err().to_string().contains("has grown"));
        assert!(judge(&counts(10), &counts(60)).is_ok());
        assert!(judge(&counts(10), &[]).is_err());
    }

    #[test]
    fn the_smallest_count_is_taken() {
        let output = "{\"number\":0,\"instructions\":90}\n{\"number\":0,\"instructions\":60}\n";
        assert_eq!(smallest(output, 0).unwrap(), 60);
        assert!(smallest(output, 1).is_err());
    }
}
