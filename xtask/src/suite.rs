//! The crates' tests. Each test program runs by itself, so that one that hangs is ended and named,
//! and a test that failed among others can be run again alone.
//!
//! Many tests record programs that race with the machine's other work. A test that fails among
//! others and then passes twice alone is *flaky*: the summary names it, and a quick run passes.
//! `--full` retries nothing, and more than [`MAX_FLAKY`] of them fail the run.
//!
//! A test that can't run here prints a line that begins with `SKIPPED`. It counts as skipped, and
//! the summary has its name and reason.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use tompion_tasks::shell;
use tompion_tasks::workspace::Workspace;

/// Flaky tests that a run may have.
pub const MAX_FLAKY: usize = 4;

/// Results of a run.
#[derive(Default)]
pub struct Results {
    pub passed: u64,
    pub ignored: u64,
    /// Failed tests, as `PROGRAM: TEST`.
    pub failed: Vec<String>,
    /// Flaky tests, as `PROGRAM: TEST`; they count as passed.
    pub flaky: Vec<String>,
    /// Skipped tests, as `PROGRAM: TEST: REASON`.
    pub skipped: Vec<String>,
}

/// Options of a run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Time after which a test program is ended.
    pub limit: Duration,
    /// Whether a failed test is run again alone.
    pub retry_flaky: bool,
    /// Whether tests run their long form (`TOMPION_FULL=1`).
    pub full: bool,
    /// Tests to be built and run.
    pub scope: Scope,
}

/// Scope of the tests to be built and run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every test of the workspace.
    Workspace,
    /// The unit tests of every crate, which need nothing installed.
    Units,
    /// The tests of one crate whose name has the pattern; all of them if it is empty.
    Package { name: String, pattern: String },
}

impl Scope {
    /// Cargo's words that choose these tests.
    fn cargo_words(&self) -> Vec<String> {
        match self {
            Self::Workspace => vec!["--workspace".into()],
            Self::Units => ["--workspace", "--lib", "--bins"].map(String::from).into(),
            Self::Package { name, .. } => vec!["--package".into(), name.clone()],
        }
    }

    fn pattern(&self) -> Option<&str> {
        match self {
            Self::Package { pattern, .. } if !pattern.is_empty() => Some(pattern),
            _ => None,
        }
    }
}

/// Test program.
struct Program {
    /// Crate and file of tests, as in `cli main`.
    name: String,
    executable: PathBuf,
    /// Folder in which cargo would start it.
    folder: PathBuf,
}

/// Message of cargo that names a built program.
#[derive(Deserialize)]
struct Message {
    reason: String,
    executable: Option<PathBuf>,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Output of a test program, and how it ended.
struct Ran {
    output: String,
    succeeded: bool,
    timed_out: bool,
}

/// Builds the tests and runs them.
pub fn run(workspace: &Workspace, options: &RunOptions) -> Result<Results> {
    let mut results = Results::default();
    for program in programs(workspace, &options.scope)? {
        let begin = Instant::now();
        let before = (results.passed, results.failed.len());
        run_program(&program, options, &mut results);
        let (passed, failed) = (results.passed - before.0, results.failed.len() - before.1);
        if passed + failed as u64 > 0 {
            let seconds = begin.elapsed().as_secs_f64();
            println!("{:<28} {passed:>4} passed, {failed} failed  {seconds:>6.1} s", program.name);
        }
    }
    Ok(results)
}

fn programs(workspace: &Workspace, scope: &Scope) -> Result<Vec<Program>> {
    let mut cargo = shell::cargo();
    cargo.args(["test", "--quiet", "--no-run", "--message-format=json"]).args(scope.cargo_words());
    let output =
        cargo.current_dir(&workspace.root).stderr(Stdio::inherit()).output().context("cannot run cargo")?;
    if !output.status.success() {
        bail!("the tests do not build:\n{}", rendered(&output.stdout));
    }
    let lines = output.stdout.split(|byte| *byte == b'\n');
    Ok(lines.filter_map(|line| program(&serde_json::from_slice(line).ok()?)).collect())
}

/// Returns the compiler's texts in cargo's messages.
fn rendered(messages: &[u8]) -> String {
    let texts = messages.split(|byte| *byte == b'\n').filter_map(|line| {
        let message: serde_json::Value = serde_json::from_slice(line).ok()?;
        Some(message.get("message")?.get("rendered")?.as_str()?.to_owned())
    });
    texts.collect()
}

fn program(message: &Message) -> Option<Program> {
    if message.reason != "compiler-artifact" || !message.profile.as_ref()?.test {
        return None;
    }
    let folder = message.manifest_path.as_ref()?.parent()?.to_path_buf();
    let package = folder.file_name()?.to_string_lossy().into_owned();
    let name = format!("{package} {}", message.target.as_ref()?.name);
    Some(Program { name, executable: message.executable.clone()?, folder })
}

fn run_program(program: &Program, options: &RunOptions, results: &mut Results) {
    // A pattern in the program's own name takes all of its tests.
    let pattern = options.scope.pattern().filter(|pattern| !program.name.contains(pattern));
    let ran = match start(program, pattern.as_slice(), options.limit, options.full) {
        Ok(ran) => ran,
        Err(error) => return results.failed.push(format!("{}: {error:#}", program.name)),
    };
    let report = Report::parse(&ran.output);
    results.passed += report.passed.saturating_sub(report.skipped.len() as u64);
    results.ignored += report.ignored;
    let skipped = report.skipped.iter();
    results.skipped.extend(skipped.map(|(test, reason)| format!("{}: {test}: {reason}", program.name)));
    if ran.succeeded {
        return;
    }
    println!("{}", failures_in(&ran.output).trim_end());
    let mut bad: Vec<String> = report.failed.iter().cloned().collect();
    if ran.timed_out {
        println!("{}: ended after {} s", program.name, options.limit.as_secs());
        bad.extend(unfinished(program, &report));
    }
    if bad.is_empty() {
        return results.failed.push(format!("{}: died", program.name));
    }
    for test in bad {
        let failed = !options.retry_flaky || !passes_alone(program, &test);
        let list = if failed { &mut results.failed } else { &mut results.flaky };
        list.push(format!("{}: {test}", program.name));
        results.passed += u64::from(!failed);
    }
}

/// Whether a test passes alone. It runs twice, so that one that fails every other time is no noise.
fn passes_alone(program: &Program, test: &str) -> bool {
    println!("{}: {test} failed; again, alone", program.name);
    (0..2).all(|_| {
        let ran = start(program, &["--exact", test], Duration::from_secs(240), false);
        let passed = ran.as_ref().is_ok_and(|ran| ran.succeeded && Report::parse(&ran.output).passed == 1);
        if let (false, Ok(ran)) = (passed, &ran) {
            println!("{}", failures_in(&ran.output).trim_end());
        }
        passed
    })
}

/// The part of the output about failures; all of it if the harness printed no such part.
fn failures_in(output: &str) -> &str {
    output.find("\nfailures:\n").map_or(output, |at| &output[at..])
}

/// Runs a program. Its output goes into a file: a process that a test left behind would keep a pipe
/// open.
fn start(program: &Program, arguments: &[&str], limit: Duration, full: bool) -> Result<Ran> {
    let mut command = Command::new(&program.executable);
    command
        .arg("--show-output")
        .args(arguments)
        .current_dir(&program.folder)
        .env("CARGO_MANIFEST_DIR", &program.folder);
    if full {
        command.env("TOMPION_FULL", "1");
    }
    let path = program.executable.with_extension("output");
    let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    let mut limited = shell::limited(limit.as_secs(), &command);
    let errors = file.try_clone().context("cannot share the output's file")?;
    let status =
        limited.stdin(Stdio::null()).stdout(file).stderr(errors).status().context("cannot run `timeout`")?;
    let output = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    // Exit codes of `timeout` after SIGTERM and after SIGKILL.
    let timed_out = matches!(status.code(), Some(124 | 137));
    Ok(Ran { output: String::from_utf8_lossy(&output).into_owned(), succeeded: status.success(), timed_out })
}

/// Returns the tests that had printed no result.
fn unfinished(program: &Program, report: &Report) -> Vec<String> {
    let mut list = Command::new(&program.executable);
    let Ok(all) = shell::capture(list.args(["--list", "--format", "terse"])) else { return Vec::new() };
    let names = all.lines().filter_map(|line| line.strip_suffix(": test"));
    names.filter(|name| !report.finished.contains(*name)).map(str::to_owned).collect()
}

/// Report of Rust's test harness.
#[derive(Default)]
struct Report {
    passed: u64,
    ignored: u64,
    failed: BTreeSet<String>,
    finished: BTreeSet<String>,
    /// Names and reasons of passed tests that printed a line with `SKIPPED`.
    skipped: Vec<(String, String)>,
}

impl Report {
    fn parse(output: &str) -> Self {
        let mut report = Self::default();
        // The test whose output the lines are, once the harness prints that.
        let mut printing: Option<&str> = None;
        let mut lines = output.lines();
        while let Some(line) = lines.next() {
            if let Some((passed, ignored)) = counts(line) {
                report.passed += passed;
                report.ignored += ignored;
            } else if line == "failures:" {
                printing = None;
                // Twice: the output of failed tests, and their names, each behind four spaces.
                let names = lines.by_ref().map_while(|line| line.strip_prefix("    "));
                report.failed.extend(names.map(str::to_owned));
            } else if let Some(name) = output_of(line) {
                printing = Some(name);
            } else if let Some((name, _)) =
                line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... "))
            {
                report.finished.insert(name.trim_end_matches(" - should panic").to_owned());
            } else if let (Some(name), Some(reason)) = (printing, line.strip_prefix("SKIPPED")) {
                let reason = reason.trim_start_matches([',', ':', ' ']).to_owned();
                report.skipped.push((name.to_owned(), reason));
                printing = None;
            }
        }
        // A failed test's output may have such a line as well.
        let failed = &report.failed;
        report.skipped.retain(|(name, _)| !failed.contains(name));
        report
    }
}

/// Reads the heading of a test's output, `---- NAME stdout ----`.
fn output_of(line: &str) -> Option<&str> {
    line.strip_prefix("---- ")?.strip_suffix(" stdout ----")
}

/// Reads `test result: ok. 5 passed; 0 failed; 1 ignored; …`. Returns passed and ignored.
pub fn counts(line: &str) -> Option<(u64, u64)> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let count = |what: &str| {
        let part = counts.split(';').find(|part| part.trim().ends_with(what))?;
        part.split_whitespace().next()?.parse().ok()
    };
    Some((count("passed")?, count("ignored")?))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_harness_output_is_parsed() {
        let report = Report::parse(
            "running 4 tests\ntest a::b ... ok\ntest c ... FAILED\ntest d ... ignored, needs a disk\n\
             test e - should panic ... ok\n\nfailures:\n\n---- c stdout ----\nno\n\n\nfailures:\n    c\n\n\
             test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n",
        );
        assert_eq!((report.passed, report.ignored), (2, 1));
        assert_eq!(report.failed.into_iter().collect::<Vec<_>>(), ["c"]);
        assert_eq!(report.finished.into_iter().collect::<Vec<_>>(), ["a::b", "c", "d", "e"]);
        assert!(counts("running 3 tests").is_none());
    }

    #[test]
    fn skipped_tests_have_names_and_reasons() {
        let report = Report::parse(
            "running 3 tests\ntest a ... ok\ntest b ... ok\ntest c ... FAILED\n\nsuccesses:\n\n\
             ---- a stdout ----\nhello\nSKIPPED, no tracefs\nSKIPPED, again\n\n---- b stdout ----\nhello\n\n\n\
             successes:\n    a\n    b\n\nfailures:\n\n---- c stdout ----\nSKIPPED: no\n\n\nfailures:\n    c\n\n\
             test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n",
        );
        assert_eq!(report.skipped, [("a".to_owned(), "no tracefs".to_owned())]);
        assert_eq!(report.failed.len(), 1);
    }

    #[test]
    fn test_programs_differ_from_other_artifacts() {
        let message = |profile: &str| {
            let text = format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/w/crates/ring/Cargo.toml","executable":"/t/ring-1",
                "target":{{"name":"stress"}},"profile":{{"test":{profile}}}}}"#
            );
            program(&serde_json::from_str(&text).unwrap())
        };
        let found = message("true").unwrap();
        assert_eq!(
            (found.name.as_str(), found.folder.as_path()),
            ("ring stress", Path::new("/w/crates/ring"))
        );
        assert!(message("false").is_none());
    }
}
