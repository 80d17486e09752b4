//! `x test go`: the binding for Go, with the command of this build.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use tompion_tasks::artifacts::Profile;
use tompion_tasks::shell;
use tompion_tasks::workspace::Workspace;

/// Place of Go's own packages, where the command is not on the path.
const USUAL_PLACE: &str = "/usr/local/go/bin";
/// Oldest version of Go that the binding is for.
const GO_NEEDED: (u32, u32) = (1, 22);
/// Seconds after which the tests are ended.
const TESTS_TIMEOUT: u64 = 300;
const TESTS_TIMEOUT_FULL: u64 = 3600;

/// Says why Go can't be tested here.
pub fn unavailable() -> Option<String> {
    let missing = format!("Go ≥ {}.{} is missing (https://go.dev/dl)", GO_NEEDED.0, GO_NEEDED.1);
    let Ok(version) = shell::capture(command("go").args(["env", "GOVERSION"])) else { return Some(missing) };
    let mut numbers = version.trim().trim_start_matches("go").split('.').map(|number| number.parse().ok());
    let is_new = match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(major), Some(minor)) => (major, minor) >= GO_NEEDED,
        _ => false,
    };
    (!is_new).then_some(missing)
}

/// Returns one of Go's commands.
fn command(name: &str) -> Command {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain([PathBuf::from(USUAL_PLACE)]);
    let found = places.map(|place| place.join(name)).find(|program| program.is_file());
    Command::new(found.unwrap_or_else(|| name.into()))
}

/// Module for what the run-time has recorded. It needs another one, from a proxy.
const GOROUTINES: &str = "bindings/go/goroutines";

/// Checks the sources for both processors, and runs the tests: of programs without cgo, where the
/// binding registers restartable sequences, and with it, where the C library does.
pub fn test(workspace: &Workspace, full: bool) -> Result<()> {
    let binding = workspace.root.join("bindings/go");
    let unformatted =
        shell::capture(command("gofmt").args(["-l", ".", "../../benches/go"]).current_dir(&binding))?;
    ensure!(unformatted.is_empty(), "run gofmt -w on {unformatted}");
    shell::run(go(&binding, "0").args(["vet", "./..."]))?;
    shell::run(go(&binding, "0").args(["vet", "./..."]).env("GOARCH", "arm64"))?;
    shell::run(go(&binding, "0").args(["vet", ".", "./internal/filter"]).env("GOOS", "darwin"))?;
    shell::run(go(&workspace.root.join("benches/go"), "0").args(["vet", "."]))?;
    run_tests(workspace, full, go(&binding, "0").args(["test", "./..."]))?;
    run_tests(workspace, full, go(&binding, "1").args(["test", "-run", "Goroutines|Killed|Outlive", "."]))?;
    let goroutines = workspace.root.join(GOROUTINES);
    if shell::capture(go(&goroutines, "0").args(["mod", "download"])).is_err() {
        eprintln!("left out: {GOROUTINES} needs golang.org/x/exp, which can't be had here");
        return Ok(());
    }
    shell::run(go(&goroutines, "0").args(["vet", "."]))?;
    run_tests(workspace, full, go(&goroutines, "0").args(["test", "."]))
}

/// Returns Go's command for a module, with cgo or without.
fn go(module: &Path, cgo: &str) -> Command {
    let mut go = command("go");
    go.current_dir(module).env("CGO_ENABLED", cgo).env("GOFLAGS", "-buildvcs=false");
    go
}

fn run_tests(workspace: &Workspace, full: bool, tests: &mut Command) -> Result<()> {
    tests.arg("-count=1").env("TOMPION_COMMAND", Profile::Debug.folder(workspace).join("tompion"));
    if full {
        tests.env("TOMPION_FULL", "1").arg("-timeout=1h");
    }
    let limit = if full { TESTS_TIMEOUT_FULL } else { TESTS_TIMEOUT };
    let folder = tests.get_current_dir().map(Path::to_owned).unwrap_or_default();
    let status = shell::limited(limit, tests).current_dir(folder).status()?;
    ensure!(status.success(), "the tests of Go's binding: {status}");
    Ok(())
}
