//! `x test go`: the binding for Go, with the command of this build.

use std::path::PathBuf;
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

/// Checks the sources for both processors, and runs the tests: with restartable sequences, and as a
/// program with cgo, which has none.
pub fn test(workspace: &Workspace, full: bool) -> Result<()> {
    let module = workspace.root.join("bindings/go");
    let go = |words: &[&str], cgo: &str| {
        let mut command = command("go");
        command.args(words).current_dir(&module).env("CGO_ENABLED", cgo).env("GOFLAGS", "-buildvcs=false");
        command
    };
    let unformatted = shell::capture(command("gofmt").args(["-l", "."]).current_dir(&module))?;
    ensure!(unformatted.is_empty(), "run gofmt -w on {unformatted}");
    shell::run(&mut go(&["vet", "./..."], "0"))?;
    shell::run(go(&["vet", "./..."], "0").env("GOARCH", "arm64"))?;
    shell::run(go(&["vet", ".", "./internal/filter"], "0").env("GOOS", "darwin"))?;
    let limit = if full { TESTS_TIMEOUT_FULL } else { TESTS_TIMEOUT };
    for (words, cgo) in
        [(&["test", "./..."][..], "0"), (&["test", "-run", "Goroutines|Killed|Outlive", "."], "1")]
    {
        let mut tests = go(words, cgo);
        tests.arg("-count=1").env("TOMPION_COMMAND", Profile::Debug.folder(workspace).join("tompion"));
        if full {
            tests.env("TOMPION_FULL", "1").arg("-timeout=1h");
        }
        let status = shell::limited(limit, &tests).status()?;
        ensure!(status.success(), "the tests of Go's binding: {status}");
    }
    Ok(())
}
