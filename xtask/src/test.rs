//! `x test`: every check that must hold for a commit, in order, with its time.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::artifacts::{self, Profile};
use crate::workspace::Workspace;
use crate::{aarch64, instructions, layers, links, models, musl, shell};

/// What a step of the test came to.
#[derive(Clone, Copy, Default)]
struct Outcome {
    passed: u64,
    failed: u64,
    ignored: u64,
}

impl Outcome {
    fn of(result: Result<()>) -> Self {
        match result {
            Ok(()) => Self { passed: 1, ..Self::default() },
            Err(error) => {
                eprintln!("{error:#}");
                Self { failed: 1, ..Self::default() }
            }
        }
    }

    fn left_out(why: &str) -> Self {
        eprintln!("left out: {why}");
        Self { ignored: 1, ..Self::default() }
    }

    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }

    fn text(self) -> String {
        let ignored = if self.ignored > 0 { format!(", {} left out", self.ignored) } else { String::new() };
        format!("{} passed, {} failed{ignored}", self.passed, self.failed)
    }
}

struct Options {
    full: bool,
    /// Empty means all.
    steps: Vec<String>,
}

type Step = (&'static str, fn(&Workspace, &Options) -> Outcome);

const STEPS: &[Step] = &[
    ("layers", |workspace, _| Outcome::of(layers::command(workspace))),
    ("links", |workspace, _| Outcome::of(links::command(workspace))),
    ("format", |workspace, _| format(workspace)),
    ("clippy", |workspace, _| clippy(workspace)),
    ("docs", |workspace, _| Outcome::of(docs(workspace))),
    ("build", |workspace, _| Outcome::of(artifacts::build(workspace, Profile::Debug))),
    ("tests", tests),
    ("loom", loom),
    ("models", |workspace, _| models(workspace)),
    ("scripts", scripts),
    ("instructions", |workspace, _| event_path(workspace)),
    ("aarch64", |workspace, _| on_aarch64(workspace)),
    ("musl", |workspace, _| with_musl(workspace)),
];

/// `x test [--full] [STEP…]`
pub fn command(workspace: &Workspace, arguments: &[String]) -> Result<ExitCode> {
    let options = parse(arguments)?;
    let chosen = STEPS
        .iter()
        .filter(|(name, _)| options.steps.is_empty() || options.steps.iter().any(|step| step == name));
    let mut total = Outcome::default();
    let mut times = Vec::new();
    for (name, step) in chosen {
        println!("── {name}");
        let begin = Instant::now();
        let outcome = step(workspace, &options);
        times.push((*name, begin.elapsed(), outcome));
        total.add(outcome);
    }
    println!("── summary");
    for (name, time, outcome) in times {
        println!("{name:<13} {:>7}  {}", seconds(time), outcome.text());
    }
    println!("{}", total.text());
    Ok(if total.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn parse(arguments: &[String]) -> Result<Options> {
    let mut options = Options { full: false, steps: Vec::new() };
    for argument in arguments {
        match argument.as_str() {
            "--full" => options.full = true,
            name if STEPS.iter().any(|(step, _)| *step == name) => options.steps.push(name.into()),
            _ => {
                let names: Vec<_> = STEPS.iter().map(|(name, _)| *name).collect();
                bail!("usage: ./x test [--full] [STEP…]; steps: {}", names.join(" "));
            }
        }
    }
    Ok(options)
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

fn cargo(workspace: &Workspace, arguments: &[&str]) -> Command {
    let mut command = shell::cargo();
    command.args(arguments).current_dir(&workspace.root);
    command
}

fn has_component(name: &str) -> bool {
    shell::capture(shell::cargo().args([name, "--version"])).is_ok()
}

fn format(workspace: &Workspace) -> Outcome {
    if !has_component("fmt") {
        return Outcome::left_out("cargo fmt is missing (rustup component add rustfmt)");
    }
    Outcome::of(shell::run(&mut cargo(workspace, &["fmt", "--all", "--", "--check"])))
}

fn clippy(workspace: &Workspace) -> Outcome {
    if !has_component("clippy") {
        return Outcome::left_out("cargo clippy is missing (rustup component add clippy)");
    }
    let words = ["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"];
    Outcome::of(shell::run(&mut cargo(workspace, &words)))
}

/// The documentation is for those who work on the crates, so private items belong to it.
fn docs(workspace: &Workspace) -> Result<()> {
    // The agent's library has the name of the crate for users, so it is documented apart.
    [&["--workspace"][..], &["--package", "tompion-agent", "--lib"]].iter().try_for_each(|which| {
        let mut doc = cargo(workspace, &["doc", "--quiet", "--no-deps", "--document-private-items"]);
        doc.args(*which).env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private_intra_doc_links");
        if which.contains(&"--lib") {
            doc.arg("--target-dir").arg(workspace.target.join("agent-doc"));
        }
        shell::run(&mut doc)
    })
}

/// What loom tries on the ring's own code: see `crates/ring/src/explored.rs`. Built apart, because all of it has
/// other atomics, and optimized, because it is run a million times.
fn loom(workspace: &Workspace, options: &Options) -> Outcome {
    let words = ["test", "--quiet", "--release", "--package", "tompion-ring", "--lib", "explored::"];
    let mut command = cargo(workspace, &words);
    command.arg("--target-dir").arg(workspace.target.join("loom")).env("RUSTFLAGS", "--cfg loom");
    if options.full {
        command.env("TOMPION_FULL", "1");
    }
    counted(&mut command).unwrap_or_else(|error| Outcome::of(Err(error)))
}

fn models(workspace: &Workspace) -> Outcome {
    if !shell::exists("spin") {
        return Outcome::left_out("spin is missing (apt install spin)");
    }
    Outcome::of(models::command(workspace))
}

/// `cargo test`, its output passed on and its results counted.
fn tests(workspace: &Workspace, options: &Options) -> Outcome {
    let mut command = cargo(workspace, &["test", "--quiet", "--workspace", "--no-fail-fast"]);
    if options.full {
        command.env("TOMPION_FULL", "1");
    }
    match counted(&mut command) {
        Ok(outcome) => outcome,
        Err(error) => Outcome::of(Err(error)),
    }
}

fn counted(command: &mut Command) -> Result<Outcome> {
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot run cargo")?;
    let output = child.stdout.take().context("cargo's output is piped")?;
    let mut outcome = Outcome::default();
    let mut screen = std::io::stdout().lock();
    for line in BufReader::new(output).split(b'\n') {
        let line = line?;
        if let Some(result) = test_result(&String::from_utf8_lossy(&line)) {
            outcome.add(result);
        }
        screen.write_all(&line)?;
        screen.write_all(b"\n")?;
    }
    // A failure without a failed test: something did not compile, or died.
    if !child.wait()?.success() && outcome.failed == 0 {
        outcome.failed = 1;
    }
    Ok(outcome)
}

/// Reads `test result: ok. 5 passed; 0 failed; 1 ignored; …`.
fn test_result(line: &str) -> Option<Outcome> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let count = |what: &str| {
        let part = counts.split(';').find(|part| part.trim().ends_with(what))?;
        part.split_whitespace().next()?.parse().ok()
    };
    Some(Outcome { passed: count("passed")?, failed: count("failed")?, ignored: count("ignored")? })
}

/// Every program in `tests/`: passed when it exits with 0, left out when with 77.
fn scripts(workspace: &Workspace, options: &Options) -> Outcome {
    let mut total = Outcome::default();
    for script in script_files(workspace) {
        let name = script.strip_prefix(&workspace.root).unwrap_or(&script).display().to_string();
        let mut command = Command::new(&script);
        command.current_dir(&workspace.root);
        command.env("TOMPION_BUILD", Profile::Debug.folder(workspace));
        if options.full {
            command.env("TOMPION_FULL", "1");
        }
        let outcome = match command.status() {
            Ok(status) if status.success() => Outcome::of(Ok(())),
            Ok(status) if status.code() == Some(77) => Outcome::left_out(&name),
            Ok(status) => Outcome::of(Err(anyhow::anyhow!("{name}: {status}"))),
            Err(error) => Outcome::of(Err(anyhow::anyhow!("{name}: {error}"))),
        };
        println!("{name}: {}", outcome.text());
        total.add(outcome);
    }
    total
}

fn script_files(workspace: &Workspace) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(workspace.root.join("tests")) else { return Vec::new() };
    let is_program = |path: &PathBuf| {
        path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    let mut files: Vec<PathBuf> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_program).collect();
    files.sort();
    files
}

fn on_aarch64(workspace: &Workspace) -> Outcome {
    match aarch64::unavailable() {
        Some(why) => Outcome::left_out(&why),
        None => Outcome::of(aarch64::command(workspace)),
    }
}

fn with_musl(workspace: &Workspace) -> Outcome {
    match musl::unavailable() {
        Some(why) => Outcome::left_out(&why),
        None => Outcome::of(musl::command(workspace)),
    }
}

fn event_path(workspace: &Workspace) -> Outcome {
    match instructions::unavailable(workspace) {
        Some(why) => Outcome::left_out(&why),
        None => Outcome::of(instructions::command(workspace, &[])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_cargo_test_are_counted() {
        let line = "test result: FAILED. 5 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        let outcome = test_result(line).unwrap();
        assert_eq!((outcome.passed, outcome.failed, outcome.ignored), (5, 2, 1));
        assert_eq!(outcome.text(), "5 passed, 2 failed, 1 left out");
        assert!(test_result("running 3 tests").is_none());
    }
}
