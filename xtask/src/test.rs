//! `x test`: the checks that a commit must pass, in order, with their times.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::suite::{RunOptions, Scope};
use crate::{aarch64, advisories, bindings, go, layers, links, models, musl, page, suite};
use tompion_tasks::artifacts::{self, Profile};
use tompion_tasks::shell;
use tompion_tasks::workspace::Workspace;

/// Counts of a step.
#[derive(Clone, Copy, Default)]
struct Outcome {
    passed: u64,
    failed: u64,
    ignored: u64,
    /// Number of flaky tests among those that passed: see [`suite`].
    flaky: u64,
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
        self.flaky += other.flaky;
    }

    fn text(self) -> String {
        let ignored = if self.ignored > 0 { format!(", {} skipped", self.ignored) } else { String::new() };
        format!("{} passed, {} failed{ignored}", self.passed, self.failed)
    }
}

struct Options {
    full: bool,
    /// Names of the steps to run; empty means the commit tier, all of [`STEPS`].
    steps: Vec<String>,
    /// Crate and pattern of `-p`, which runs these tests alone.
    package: Option<Scope>,
}

/// Steps of the quick tier, which needs nothing installed.
const QUICK: [&str; 5] = ["layers", "links", "format", "clippy", "units"];

/// Steps that run only if they are named, or for the quick tier: `tests` has all of them.
const PARTS_OF_TESTS: [Step; 2] = [("units", units), ("real", real_programs)];

/// Step that only the full tier, which is run on a schedule, and its name run: its result changes
/// with the day.
const ADVISORIES: (&str, StepFunction) = ("advisories", |workspace, _| advisories(workspace));

type StepFunction = fn(&Workspace, &Options) -> Outcome;
type Step = (&'static str, StepFunction);

const STEPS: &[Step] = &[
    ("layers", |workspace, _| Outcome::of(layers::command(workspace))),
    ("links", |workspace, _| Outcome::of(links::command(workspace))),
    ("format", |workspace, _| format(workspace)),
    ("clippy", |workspace, _| clippy(workspace)),
    ("docs", |workspace, _| Outcome::of(docs(workspace))),
    ("build", |workspace, _| Outcome::of(artifacts::build_with_tests(workspace))),
    // Before anything is recorded.
    ("instructions", |workspace, _| event_path(workspace)),
    ("tests", tests),
    ("loom", loom),
    ("models", |workspace, _| models(workspace)),
    ("scripts", scripts),
    ("go", with_go),
    ("python", python),
    ("page", the_page),
    ("aarch64", on_aarch64),
    ("musl", |workspace, _| with_musl(workspace)),
];

/// `x test [--full] [quick | STEP…]`, `x test -p CRATE [PATTERN]`
pub fn command(workspace: &Workspace, arguments: &[String]) -> Result<ExitCode> {
    let options = parse(arguments)?;
    if let Some(scope) = &options.package {
        let outcome = package(workspace, scope, options.full);
        if outcome.passed + outcome.failed + outcome.ignored == 0 {
            bail!("expected a test of that name, found none; `cargo test -p CRATE -- --list` lists them");
        }
        println!("{}", outcome.text());
        return Ok(if outcome.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let is_chosen = |name: &str| options.steps.iter().any(|step| step == name);
    let all = options.steps.is_empty();
    let chosen = STEPS.iter().filter(|(name, _)| all || is_chosen(name));
    let chosen = chosen.chain(PARTS_OF_TESTS.iter().filter(|(name, _)| is_chosen(name)));
    let with_advisories = is_chosen(ADVISORIES.0) || all && options.full;
    let chosen = chosen.chain([ADVISORIES].iter().filter(|_| with_advisories));
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
    if total.flaky > 0 {
        println!("{} of the passed tests are flaky: they passed only when run again alone", total.flaky);
    }
    println!("{}", total.text());
    Ok(if total.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn parse(arguments: &[String]) -> Result<Options> {
    let mut options = Options { full: false, steps: Vec::new(), package: None };
    let names = || STEPS.iter().chain(&PARTS_OF_TESTS).chain([&ADVISORIES]).map(|(step, _)| *step);
    let mut arguments = arguments.iter().map(String::as_str);
    while let Some(argument) = arguments.next() {
        match argument {
            "--full" => options.full = true,
            "quick" => options.steps.extend(QUICK.map(String::from)),
            "-p" | "--package" => {
                let name = arguments.next().context("expected -p CRATE, found nothing behind -p")?;
                let name = if name.starts_with("tompion") || name == "xtask" {
                    name.to_owned()
                } else {
                    format!("tompion-{name}")
                };
                let pattern = arguments.next().unwrap_or_default().to_owned();
                options.package = Some(Scope::Package { name, pattern });
            }
            name if names().any(|step| step == name) => options.steps.push(name.into()),
            _ => {
                let names: Vec<_> = names().collect();
                bail!(
                    "usage: ./x test [--full] [quick | STEP…], or ./x test -p CRATE [PATTERN]; found {argument}\n\
                     steps: {}",
                    names.join(" ")
                );
            }
        }
    }
    Ok(options)
}

/// Runs the tests of one crate. Those of the command need the libraries as well.
fn package(workspace: &Workspace, scope: &Scope, full: bool) -> Outcome {
    let needs_libraries = matches!(scope, Scope::Package { name, .. } if name == "tompion-cli");
    let built = if needs_libraries { artifacts::build(workspace, Profile::Debug) } else { Ok(()) };
    match built {
        Ok(()) => run_suite(workspace, scope.clone(), full),
        Err(error) => Outcome::of(Err(error)),
    }
}

/// Unit tests of every crate.
fn units(workspace: &Workspace, options: &Options) -> Outcome {
    run_suite(workspace, Scope::Units, options.full)
}

/// Tests that record programs of others: see `crates/cli/tests/real`.
fn real_programs(workspace: &Workspace, options: &Options) -> Outcome {
    let scope = Scope::Package { name: "tompion-cli".into(), pattern: "real::".into() };
    package(workspace, &scope, options.full)
}

fn run_suite(workspace: &Workspace, scope: Scope, full: bool) -> Outcome {
    let limit = Duration::from_secs(if full { 4200 } else { 1500 });
    match suite::run(workspace, &RunOptions { limit, retry_flaky: !full, full, scope }) {
        Ok(results) => summarize(&results),
        Err(error) => Outcome::of(Err(error)),
    }
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

/// Builds the documentation with private items: it is for those who work on the crates.
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

/// Runs loom's tests of the ring's own code: see `crates/ring/src/loom_tests.rs`. Built apart,
/// because all of it has other atomics, and optimized, because it is run a million times.
fn loom(workspace: &Workspace, options: &Options) -> Outcome {
    let words = ["test", "--quiet", "--release", "--package", "tompion-ring", "--lib", "loom_tests::"];
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

/// The crates' tests, and the examples in their documentation.
fn tests(workspace: &Workspace, options: &Options) -> Outcome {
    let mut outcome = run_suite(workspace, Scope::Workspace, options.full);
    let mut examples = cargo(workspace, &["test", "--quiet", "--workspace", "--doc", "--no-fail-fast"]);
    outcome.add(counted(&mut examples).unwrap_or_else(|error| Outcome::of(Err(error))));
    outcome
}

/// Names failed, flaky and skipped tests. A few flaky tests are noise of the machine; many are a
/// fault.
fn summarize(results: &suite::Results) -> Outcome {
    for name in &results.failed {
        println!("failed: {name}");
    }
    for name in &results.flaky {
        println!("flaky: {name} (failed among others, passed twice alone)");
    }
    for line in &results.skipped {
        println!("skipped: {line}");
    }
    let too_many = results.flaky.len() > suite::MAX_FLAKY;
    let flaky = results.flaky.len() as u64;
    Outcome {
        passed: results.passed - if too_many { flaky } else { 0 },
        failed: results.failed.len() as u64 + if too_many { flaky } else { 0 },
        ignored: results.ignored + results.skipped.len() as u64,
        flaky,
    }
}

fn counted(command: &mut Command) -> Result<Outcome> {
    let output = command.stderr(Stdio::inherit()).output().context("cannot run cargo")?;
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    let mut outcome = Outcome::default();
    for (passed, ignored) in text.lines().filter_map(suite::counts) {
        outcome.add(Outcome { passed, ignored, ..Outcome::default() });
    }
    // Also when something did not compile, or died.
    outcome.failed = u64::from(!output.status.success());
    Ok(outcome)
}

/// Every program in `tests/`: passed when it exits with 0, left out when with 77. All at a time:
/// most of them wait for a virtual machine, which has one processor.
fn scripts(workspace: &Workspace, options: &Options) -> Outcome {
    let run = |script: &Path| {
        let name = script.strip_prefix(&workspace.root).unwrap_or(script).display().to_string();
        let begin = Instant::now();
        let outcome = retry_once(options, &name, || run_script(workspace, options, script));
        println!("{name}: {}  {}", outcome.text(), seconds(begin.elapsed()));
        outcome
    };
    let died = |_| Outcome::of(Err(anyhow::anyhow!("a thread that ran a test panicked")));
    let (files, mut total) = (script_files(workspace), Outcome::default());
    thread::scope(|scope| {
        let running: Vec<_> = files.iter().map(|script| scope.spawn(move || run(script))).collect();
        for thread in running {
            total.add(thread.join().unwrap_or_else(died));
        }
    });
    total
}

/// Once more if it fails, unless everything is asked for: see [`suite`].
fn retry_once(options: &Options, name: &str, run: impl Fn() -> Outcome) -> Outcome {
    let first = run();
    if first.failed == 0 || options.full {
        return first;
    }
    println!("{name} failed; again");
    let second = run();
    Outcome { flaky: second.passed, ..second }
}

fn run_script(workspace: &Workspace, options: &Options, script: &Path) -> Outcome {
    let mut command = Command::new(script);
    command.current_dir(&workspace.root);
    command.env("TOMPION_BUILD", Profile::Debug.folder(workspace));
    if options.full {
        command.env("TOMPION_FULL", "1");
    }
    let limit = if options.full { 2400 } else { 600 };
    match shell::limited(limit, &command).stdin(Stdio::null()).status() {
        Ok(status) if status.success() => Outcome::of(Ok(())),
        Ok(status) if status.code() == Some(77) => Outcome::left_out(&script.display().to_string()),
        Ok(status) => Outcome::of(Err(anyhow::anyhow!("{}: {status}", script.display()))),
        Err(error) => Outcome::of(Err(anyhow::anyhow!("{}: {error}", script.display()))),
    }
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

fn the_page(workspace: &Workspace, options: &Options) -> Outcome {
    match page::unavailable(workspace) {
        Some(why) => Outcome::left_out(&why),
        None => retry_once(options, "page", || Outcome::of(page::command(workspace))),
    }
}

fn with_go(workspace: &Workspace, options: &Options) -> Outcome {
    match go::unavailable() {
        Some(why) => Outcome::left_out(&why),
        None => retry_once(options, "go", || Outcome::of(go::test(workspace, options.full))),
    }
}

/// Python's package, and the conformance suite of all bindings.
fn python(workspace: &Workspace, options: &Options) -> Outcome {
    if let Some(why) = bindings::python_unavailable() {
        return Outcome::left_out(&why);
    }
    retry_once(options, "python", || match bindings::test_python(workspace) {
        Ok(bindings::Counts { passed, failed, skipped }) => {
            Outcome { passed, failed, ignored: skipped, flaky: 0 }
        }
        Err(error) => Outcome::of(Err(error)),
    })
}

fn on_aarch64(workspace: &Workspace, options: &Options) -> Outcome {
    match aarch64::unavailable() {
        Some(why) => Outcome::left_out(&why),
        None => Outcome::of(aarch64::command(workspace, options.full)),
    }
}

fn with_musl(workspace: &Workspace) -> Outcome {
    match musl::unavailable() {
        Some(why) => Outcome::left_out(&why),
        None => Outcome::of(musl::command(workspace)),
    }
}

fn advisories(workspace: &Workspace) -> Outcome {
    match advisories::command(workspace) {
        advisories::Checked::LeftOut(why) => Outcome::left_out(&why),
        advisories::Checked::Done(result) => Outcome::of(result),
    }
}

fn event_path(workspace: &Workspace) -> Outcome {
    if !cfg!(target_arch = "x86_64") {
        return Outcome::left_out("instructions are counted on x86-64 only");
    }
    let mut count = shell::cargo();
    count.current_dir(&workspace.root);
    count.args(["run", "--quiet", "--package", "tompion-bench", "--", "instructions"]);
    Outcome::of(shell::run(&mut count))
}
