//! The Promela models in `models/`: Spin explores each of them to the end, and must find the fault in each
//! variant that has one.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::shell;
use crate::workspace::Workspace;

/// A model with the definitions that choose what is explored.
struct Run {
    model: &'static str,
    definitions: &'static [&'static str],
    /// Variants with a fault, and the definitions under which it shows.
    broken: &'static [&'static str],
}

const RUNS: &[Run] = &[
    Run {
        model: "append",
        definitions: &[],
        broken: &[
            "NO_RESTART",
            "COMMIT_EARLY",
            "COUNT_APART",
            "PUT_UNCHECKED",
            "NOT_FULL",
            "GIVEN_BACK_EARLY",
        ],
    },
    Run { model: "append", definitions: &["TIME", "EVENTS=1"], broken: &["TIME_OUTSIDE"] },
    Run { model: "append", definitions: &["CPUS=2", "TIME", "EVENTS=1"], broken: &["TIME_OUTSIDE"] },
    Run {
        model: "overwrite",
        definitions: &[],
        broken: &["NO_SECOND_LOOK", "NO_DIRT", "BOUNDARY", "COMMIT_EARLY"],
    },
    Run { model: "overwrite", definitions: &["SUBBUFS=4"], broken: &[] },
    Run { model: "switch", definitions: &[], broken: &["SELECTED_EARLY", "NO_BARRIER", "NO_RESTART"] },
    Run {
        model: "reserve",
        definitions: &[],
        broken: &[
            "NO_COMMIT",
            "NO_SECOND_LOOK",
            "PLAIN_RESERVE",
            "COMMIT_EARLY",
            "PADDING_UNCOUNTED",
            "NOT_FULL",
            "ROOM_BY_BYTES",
        ],
    },
    Run { model: "reserve", definitions: &["OVERWRITE"], broken: &["LAP", "NO_SECOND_LOOK"] },
    Run { model: "reserve", definitions: &["TIME"], broken: &["TIME_OUTSIDE"] },
    Run {
        model: "fallback",
        definitions: &[],
        broken: &["PLAIN_RESERVE", "STAMP_EARLY", "STAMP_LAPS", "NOT_FULL", "GIVEN_BACK_EARLY", "SKIPPED"],
    },
    Run {
        model: "fallback",
        definitions: &["OVERWRITE"],
        broken: &["STAMP_EARLY", "LAP", "STALE", "REST_UNCOUNTED", "NO_SECOND_LOOK"],
    },
    Run { model: "fallback", definitions: &["TIME"], broken: &["TIME_OUTSIDE"] },
    Run {
        model: "restart",
        definitions: &[],
        broken: &["RAISED_EARLY", "RAISED_UNSYNCED", "FROM_CONSUMED", "TORN", "BELIEVED"],
    },
];

/// What Spin found.
struct Found {
    errors: u64,
    states: u64,
    /// The claim that was violated, and after how many steps.
    violation: Option<String>,
}

/// `xtask models`
pub fn command(workspace: &Workspace) -> Result<()> {
    let mut wrong = Vec::new();
    report("model", "with", "states", "found");
    for run in RUNS {
        let sound = run.explore(workspace, None)?;
        let with = run.definitions.join(" ");
        if sound.errors != 0 {
            wrong.push(format!("{} {with}: {}", run.model, sound.violation.as_deref().unwrap_or("an error")));
        }
        report(run.model, &with, &sound.states.to_string(), sound.violation.as_deref().unwrap_or("nothing"));
        for broken in run.broken {
            let found = run.explore(workspace, Some(broken))?;
            if found.errors == 0 {
                wrong.push(format!("{} {with}: BROKEN_{broken} was not noticed", run.model));
            }
            let with = format!("{with} BROKEN_{broken}").trim().to_owned();
            let violation = found.violation.unwrap_or_default();
            report(run.model, &with, &found.states.to_string(), &violation);
        }
    }
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n"));
    }
    Ok(())
}

fn report(model: &str, with: &str, states: &str, found: &str) {
    println!("  {model:<9}  {with:<42}  {states:>9}  {found}");
}

impl Run {
    /// Has Spin write a program that explores the model, and runs that.
    fn explore(&self, workspace: &Workspace, broken: Option<&str>) -> Result<Found> {
        let name = [&[self.model], self.definitions, broken.as_slice()].concat().join("-").replace('=', "");
        let folder = workspace.target.join("models").join(name);
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        for file in ["section.h".to_owned(), format!("{}.pml", self.model)] {
            fs::copy(workspace.root.join("models").join(&file), folder.join(&file))
                .with_context(|| format!("cannot copy {file}"))?;
        }
        let mut spin = Command::new("spin");
        spin.current_dir(&folder).args(self.definitions.iter().map(|definition| format!("-D{definition}")));
        spin.args(broken.map(|broken| format!("-DBROKEN_{broken}")));
        shell::capture(spin.arg("-a").arg(format!("{}.pml", self.model)))?;
        let mut compiler = shell::c_compiler();
        // Only what can be violated by a finite run is looked for; states are stored whole, but packed.
        compiler.args(["-O2", "-w", "-DSAFETY", "-DCOLLAPSE", "-o", "pan", "pan.c"]);
        shell::run(compiler.current_dir(&folder))?;
        let mut explorer = Command::new(folder.join("pan"));
        let output = explorer
            .args(["-m200000", "-w24"])
            .current_dir(&folder)
            .output()
            .with_context(|| format!("cannot run {}", folder.join("pan").display()))?;
        let found = Found::read(&String::from_utf8_lossy(&output.stdout));
        let _ = tidy(&folder);
        found.with_context(|| format!("no result of exploring {}", folder.display()))
    }
}

/// Leaves what tells of a violation: the trail.
fn tidy(folder: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("pan")) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

impl Found {
    /// Reads what the explorer prints. Nothing if it didn't come to its end.
    fn read(output: &str) -> Option<Self> {
        let number = |line: &str| line.split_whitespace().next()?.parse().ok();
        let errors = output.lines().find_map(|line| number(line.split_once("errors: ")?.1))?;
        let states = output.lines().find(|line| line.ends_with("states, stored")).and_then(number)?;
        let cut = ["max search depth too small", "out of memory"];
        if errors == 0 && cut.iter().any(|words| output.contains(words)) {
            return None;
        }
        let violation = output.lines().find_map(|line| line.strip_prefix("pan:1: ")).map(str::to_owned);
        Some(Self { errors, states, violation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_spin_prints_is_read() {
        let found = Found::read(
            "pan:1: assertion violated (a==b) (at depth 69)\nState-vector 76 byte, depth reached 70, errors: 1\n\
             \x20    4447 states, stored\n",
        )
        .unwrap();
        assert_eq!((found.errors, found.states), (1, 4447));
        assert_eq!(found.violation.as_deref(), Some("assertion violated (a==b) (at depth 69)"));
        let cut = "error: max search depth too small\nState-vector 76 byte, errors: 0\n 9 states, stored\n";
        assert!(Found::read(cut).is_none());
        assert!(Found::read("killed").is_none());
    }

    #[test]
    fn each_variant_of_a_model_is_explored() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models");
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let model = path.file_stem().unwrap().to_string_lossy().into_owned();
            if path.extension().is_none_or(|extension| extension != "pml") {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let mut variants: Vec<&str> = text
                .split("BROKEN_")
                .skip(1)
                .map(|rest| rest.split(|c: char| !c.is_ascii_uppercase() && c != '_').next().unwrap())
                .collect();
            variants.sort_unstable();
            variants.dedup();
            let explored: Vec<&str> = RUNS
                .iter()
                .filter(|run| run.model == model)
                .flat_map(|run| run.broken.iter().copied())
                .collect();
            for variant in variants {
                assert!(explored.contains(&variant), "{model}: BROKEN_{variant}");
            }
        }
    }
}
