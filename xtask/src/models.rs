//! The Promela models in `models/`: Spin explores each of them to the end, and must find the fault
//! in each variant that has one.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result, bail};

use tompion_tasks::shell;
use tompion_tasks::workspace::Workspace;

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
    Run {
        model: "reserve",
        definitions: &["FILLED"],
        broken: &["UNANNOUNCED", "DECIDED_EARLY", "COUNT_OF_LAP", "OPEN"],
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
        model: "giveback",
        definitions: &[],
        broken: &["NO_WITHDRAWAL", "NO_LOOK", "NEAR", "RETURNED_EARLY"],
    },
    Run {
        model: "restart",
        definitions: &[],
        broken: &["RAISED_EARLY", "RAISED_UNSYNCED", "FROM_CONSUMED", "TORN", "BELIEVED"],
    },
];

/// Result of Spin.
struct Found {
    errors: u64,
    states: u64,
    /// The claim that was violated, and after how many steps.
    violation: Option<String>,
}

/// `xtask models`: as many at a time as there are processors, for none uses more than one.
pub fn command(workspace: &Workspace) -> Result<()> {
    let explorations: Vec<_> = RUNS.iter().flat_map(Run::explorations).collect();
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    report("model", "with", "states", "found");
    let explore = || {
        // Ordering: each number is given out once, whatever else others see.
        while let Some((run, broken)) = explorations.get(next.fetch_add(1, Ordering::Relaxed)) {
            let found = run.explore(workspace, *broken);
            if let Err(error) = found.and_then(|found| run.judge(*broken, &found)) {
                wrong.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{error:#}"));
            }
        }
    };
    let processors = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| (0..processors).for_each(|_| drop(scope.spawn(explore))));
    let wrong = wrong.into_inner().unwrap_or_else(PoisonError::into_inner);
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n"));
    }
    Ok(())
}

fn report(model: &str, with: &str, states: &str, found: &str) {
    println!("  {model:<9}  {with:<42}  {states:>9}  {found}");
}

impl Run {
    /// Itself, and each variant with a fault.
    fn explorations(&'static self) -> impl Iterator<Item = (&'static Self, Option<&'static str>)> {
        let broken = self.broken.iter().map(|broken| Some(*broken));
        std::iter::once(None).chain(broken).map(move |broken| (self, broken))
    }

    /// Reports what was found, which is an error where it should not be so.
    fn judge(&self, broken: Option<&str>, found: &Found) -> Result<()> {
        let fault = broken.map(|broken| format!("BROKEN_{broken}"));
        let with = [self.definitions, fault.as_deref().as_slice()].concat().join(" ");
        let violation = found.violation.as_deref();
        let nothing = if broken.is_none() { "nothing" } else { "" };
        report(self.model, &with, &found.states.to_string(), violation.unwrap_or(nothing));
        match (broken, found.errors) {
            (None, 0) | (Some(_), 1..) => Ok(()),
            (None, _) => bail!("{} {with}: {}", self.model, violation.unwrap_or("an error")),
            (Some(_), _) => bail!("{} {with} was not noticed", self.model),
        }
    }

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
        // A fault is found long before a better program would be compiled.
        let optimized = if broken.is_some() { "-O0" } else { "-O2" };
        // Only what can be violated by a finite run is looked for; states are stored whole, but
        // packed.
        compiler.args([optimized, "-w", "-DSAFETY", "-DCOLLAPSE", "-o", "pan", "pan.c"]);
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
