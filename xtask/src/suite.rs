//! The crates' tests: each program of tests run by itself, so that one that hangs is ended and named, and a test that
//! failed beside others can be asked again alone.
//!
//! Many tests record programs that race with the machine's other work. One that fails among others and then holds
//! twice alone is called *unsteady*: it is named in the summary and does not fail a quick run. `--full` forgives
//! nothing, and neither does more than [`FORGIVEN`] of them: that is no noise any more.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::shell;
use crate::workspace::Workspace;

/// So many tests may be unsteady in a run.
pub const FORGIVEN: usize = 4;

/// What a run of tests came to.
#[derive(Default)]
pub struct Results {
    pub passed: u64,
    pub ignored: u64,
    /// By program and name.
    pub failed: Vec<String>,
    pub unsteady: Vec<String>,
}

/// How the tests are run.
#[derive(Clone, Copy)]
pub struct Manner {
    /// A program of tests that takes longer is ended.
    pub limit: Duration,
    /// Whether a failed test is asked again.
    pub second_chance: bool,
}

/// A program of tests.
struct Program {
    /// `cli main`: the crate and the file of tests.
    name: String,
    executable: PathBuf,
    /// Where cargo would start it.
    folder: PathBuf,
}

/// One of cargo's messages; the others have none of these.
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

/// What a program of tests printed, and how it ended.
struct Ran {
    output: String,
    succeeded: bool,
    timed_out: bool,
}

/// Builds all tests of the workspace and runs them.
pub fn run(workspace: &Workspace, manner: Manner, full: bool) -> Result<Results> {
    let mut results = Results::default();
    for program in programs(workspace)? {
        let begin = Instant::now();
        let before = (results.passed, results.failed.len());
        run_program(&program, manner, full, &mut results);
        let (passed, failed) = (results.passed - before.0, results.failed.len() - before.1);
        if passed + failed as u64 > 0 {
            let seconds = begin.elapsed().as_secs_f64();
            println!("{:<28} {passed:>4} passed, {failed} failed  {seconds:>6.1} s", program.name);
        }
    }
    Ok(results)
}

fn programs(workspace: &Workspace) -> Result<Vec<Program>> {
    let mut cargo = shell::cargo();
    cargo.args(["test", "--quiet", "--workspace", "--no-run", "--message-format=json"]);
    let output =
        cargo.current_dir(&workspace.root).stderr(Stdio::inherit()).output().context("cannot run cargo")?;
    if !output.status.success() {
        bail!("the tests do not build:\n{}", rendered(&output.stdout));
    }
    let lines = output.stdout.split(|byte| *byte == b'\n');
    Ok(lines.filter_map(|line| program(&serde_json::from_slice(line).ok()?)).collect())
}

/// What the compiler had to say, of cargo's messages.
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

fn run_program(program: &Program, manner: Manner, full: bool, results: &mut Results) {
    let ran = match start(program, &[], manner.limit, full) {
        Ok(ran) => ran,
        Err(error) => return results.failed.push(format!("{}: {error:#}", program.name)),
    };
    let told = Told::of(&ran.output);
    results.passed += told.passed;
    results.ignored += told.ignored;
    if ran.succeeded {
        return;
    }
    println!("{}", ran.output.trim_end());
    let mut bad: Vec<String> = told.failed.iter().cloned().collect();
    if ran.timed_out {
        println!("{}: ended after {} s", program.name, manner.limit.as_secs());
        bad.extend(unfinished(program, &told));
    }
    if bad.is_empty() {
        return results.failed.push(format!("{}: died", program.name));
    }
    for test in bad {
        let steady = !manner.second_chance || !holds_alone(program, &test);
        let list = if steady { &mut results.failed } else { &mut results.unsteady };
        list.push(format!("{}: {test}", program.name));
        results.passed += u64::from(!steady);
    }
}

/// Asked twice, so that what fails every other time is not taken for noise.
fn holds_alone(program: &Program, test: &str) -> bool {
    println!("{}: {test} failed; again, alone", program.name);
    (0..2).all(|_| {
        let ran = start(program, &["--exact", test], Duration::from_secs(240), false);
        let held = ran.as_ref().is_ok_and(|ran| ran.succeeded && Told::of(&ran.output).passed == 1);
        if let (false, Ok(ran)) = (held, &ran) {
            println!("{}", ran.output.trim_end());
        }
        held
    })
}

/// Into a file and not a pipe: a process that a test left behind would keep a pipe open, and us waiting.
fn start(program: &Program, arguments: &[&str], limit: Duration, full: bool) -> Result<Ran> {
    let mut command = Command::new(&program.executable);
    command.args(arguments).current_dir(&program.folder).env("CARGO_MANIFEST_DIR", &program.folder);
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
    // What `timeout` says when it ended the program, by SIGTERM and by SIGKILL.
    let timed_out = matches!(status.code(), Some(124 | 137));
    Ok(Ran { output: String::from_utf8_lossy(&output).into_owned(), succeeded: status.success(), timed_out })
}

/// The tests of which nothing was heard.
fn unfinished(program: &Program, told: &Told) -> Vec<String> {
    let mut list = Command::new(&program.executable);
    let Ok(all) = shell::capture(list.args(["--list", "--format", "terse"])) else { return Vec::new() };
    let names = all.lines().filter_map(|line| line.strip_suffix(": test"));
    names.filter(|name| !told.finished.contains(*name)).map(str::to_owned).collect()
}

/// What the harness of Rust's tests said.
#[derive(Default)]
struct Told {
    passed: u64,
    ignored: u64,
    failed: BTreeSet<String>,
    finished: BTreeSet<String>,
}

impl Told {
    fn of(output: &str) -> Self {
        let mut told = Self::default();
        let mut lines = output.lines();
        while let Some(line) = lines.next() {
            if let Some((passed, ignored)) = counts(line) {
                told.passed += passed;
                told.ignored += ignored;
            } else if line == "failures:" {
                // Twice: what the tests printed, and their names, each behind four spaces.
                let names = lines.by_ref().map_while(|line| line.strip_prefix("    "));
                told.failed.extend(names.map(str::to_owned));
            } else if let Some((name, _)) =
                line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... "))
            {
                told.finished.insert(name.trim_end_matches(" - should panic").to_owned());
            }
        }
        told
    }
}

/// Reads `test result: ok. 5 passed; 0 failed; 1 ignored; …`: how many passed, how many were ignored.
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
    fn what_the_harness_says_is_read() {
        let told = Told::of(
            "running 4 tests\ntest a::b ... ok\ntest c ... FAILED\ntest d ... ignored, needs a disk\n\
             test e - should panic ... ok\n\nfailures:\n\n---- c stdout ----\nno\n\n\nfailures:\n    c\n\n\
             test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n",
        );
        assert_eq!((told.passed, told.ignored), (2, 1));
        assert_eq!(told.failed.into_iter().collect::<Vec<_>>(), ["c"]);
        assert_eq!(told.finished.into_iter().collect::<Vec<_>>(), ["a::b", "c", "d", "e"]);
        assert!(counts("running 3 tests").is_none());
    }

    #[test]
    fn programs_of_tests_are_told_from_other_artifacts() {
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
