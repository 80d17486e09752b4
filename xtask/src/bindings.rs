//! `x bindings`: packages of other languages, and the step that tests them.
//!
//! Python's package is compiled by `bindings/python/build/backend.py` for each interpreter that is
//! installed: an extension for one version can't be loaded by another.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use tompion_tasks::artifacts::Profile;
use tompion_tasks::shell;
use tompion_tasks::workspace::Workspace;

/// Versions of Python 3 that the package is for.
const PYTHON_VERSIONS: std::ops::RangeInclusive<u32> = 9..=14;
/// Seconds after which a run of the tests is ended.
const TESTS_TIMEOUT: u64 = 600;

/// `x bindings`
pub fn command(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    if !arguments.is_empty() {
        bail!("usage: ./x bindings");
    }
    let wheels = workspace.target.join("bindings");
    for python in pythons() {
        let backend = workspace.root.join("bindings/python/build/backend.py");
        let name = shell::capture(Command::new(&python).arg(backend).arg("wheel").arg(&wheels))?;
        println!("{}", wheels.join(name.trim()).display());
    }
    for profile in [Profile::Debug, Profile::Release] {
        let folder = profile.folder(workspace);
        if folder.join("tompion").exists() {
            stage_python(workspace, &folder.join("python"))?;
        }
    }
    Ok(())
}

/// Returns the interpreters that work: `python3` and those named by their versions.
fn pythons() -> Vec<PathBuf> {
    let numbered = PYTHON_VERSIONS.map(|minor| format!("python3.{minor}"));
    let names = std::iter::once("python3".to_owned()).chain(numbered);
    let code = "import sys, sysconfig; print(sysconfig.get_config_var('EXT_SUFFIX'), sys.executable, \
                sys.version_info >= (3, 9), sep='\\n')";
    let mut suffixes = BTreeSet::new();
    let mut found = Vec::new();
    for name in names {
        // A version manager may have a name for an interpreter that is not there.
        let mut command = Command::new(&name);
        let Ok(text) = shell::capture(command.args(["-c", code]).stderr(Stdio::null())) else { continue };
        let mut lines = text.lines();
        let (suffix, path, is_new) = (lines.next(), lines.next(), lines.next());
        if is_new == Some("True") && suffixes.insert(suffix.unwrap_or_default().to_owned()) {
            found.extend(path.map(PathBuf::from));
        }
    }
    found
}

/// Puts the package with an extension for each interpreter into a folder, where `--preload python`
/// finds it. Returns the number of extensions.
pub fn stage_python(workspace: &Workspace, folder: &Path) -> Result<usize> {
    let source = workspace.root.join("bindings/python");
    let package = folder.join("tompion");
    for part in ["tompion", "preload"] {
        let (from, to) = (source.join(part), folder.join(part));
        fs::create_dir_all(&to).with_context(|| format!("cannot make {}", to.display()))?;
        for entry in fs::read_dir(&from).with_context(|| format!("cannot list {}", from.display()))? {
            let path = entry?.path();
            if let (true, Some(name)) = (path.is_file(), path.file_name()) {
                fs::copy(&path, to.join(name)).with_context(|| format!("cannot copy {}", path.display()))?;
            }
        }
    }
    let pythons = pythons();
    for python in &pythons {
        let backend = source.join("build/backend.py");
        shell::capture(Command::new(python).arg(backend).arg("extension").arg(&package))?;
    }
    Ok(pythons.len())
}

/// Counts of the tests of bindings.
#[derive(Clone, Copy, Default)]
pub struct Counts {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed, and runs that could not be made.
    pub failed: u64,
    /// Tests that were left out.
    pub skipped: u64,
}

/// Says why Python can't be tested here.
pub fn python_unavailable() -> Option<String> {
    let version = "import sys; sys.exit(sys.version_info < (3, 11))";
    let works = Command::new("python3").args(["-c", version]).stderr(Stdio::null()).status();
    if works.is_ok_and(|status| status.success()) {
        return None;
    }
    Some("python3 from 3.11 on is missing (apt install python3 libpython3-dev)".into())
}

/// Runs the conformance suite for C and Python, and the tests of Python's package.
pub fn test_python(workspace: &Workspace) -> Result<Counts> {
    let folder = Profile::Debug.folder(workspace);
    stage_python(workspace, &folder.join("python"))?;
    let mut suite = Command::new("python3");
    suite.arg(workspace.root.join("bindings/conformance/run.py")).arg(&folder);
    let mut own = Command::new("python3");
    own.args(["-m", "unittest", "discover", "-s"]).arg(workspace.root.join("bindings/python/tests"));
    own.env("TOMPION_BUILD", &folder);
    let mut total = Counts::default();
    for command in [suite, own] {
        let counts = unittest(&command)?;
        total.passed += counts.passed;
        total.failed += counts.failed;
        total.skipped += counts.skipped;
    }
    Ok(total)
}

/// Runs tests of Python's unittest, which reports on its standard error.
fn unittest(command: &Command) -> Result<Counts> {
    let mut limited = shell::limited(TESTS_TIMEOUT, command);
    let output = limited.stdin(Stdio::null()).output().context("cannot run python3")?;
    let text = String::from_utf8_lossy(&output.stderr);
    let mut counts = counts(&text);
    if !output.status.success() {
        counts.failed = counts.failed.max(1);
    }
    if counts.failed > 0 {
        eprint!("{}{text}", String::from_utf8_lossy(&output.stdout));
    }
    Ok(counts)
}

/// Reads `Ran 28 tests in 9.9s` and `FAILED (failures=1, errors=2, skipped=3)`.
fn counts(text: &str) -> Counts {
    let number_behind = |line: &str, word: &str| {
        let rest = line.split_once(word).map_or("", |(_, rest)| rest);
        rest.split(|letter: char| !letter.is_ascii_digit()).next().and_then(|digits| digits.parse().ok())
    };
    let mut counts = Counts::default();
    let mut ran = 0;
    for line in text.lines() {
        ran = number_behind(line, "Ran ").unwrap_or(ran);
        if line.starts_with("OK") || line.starts_with("FAILED (") {
            counts.skipped = number_behind(line, "skipped=").unwrap_or(0);
            counts.failed =
                ["failures=", "errors="].iter().filter_map(|word| number_behind(line, word)).sum();
        }
    }
    counts.passed = u64::saturating_sub(ran, counts.skipped + counts.failed);
    counts
}

#[cfg(test)]
mod tests {
    use super::counts;

    #[test]
    fn unittests_summary_is_read() {
        let of = |text| {
            let found = counts(text);
            (found.passed, found.failed, found.skipped)
        };
        assert_eq!(of("...\nRan 28 tests in 9.912s\n\nOK\n"), (28, 0, 0));
        assert_eq!(of("Ran 9 tests in 0.1s\n\nFAILED (failures=1, errors=2, skipped=3)\n"), (3, 3, 3));
        assert_eq!(of("Ran 2 tests in 0.1s\n\nOK (skipped=2)\n"), (0, 0, 2));
        assert_eq!(of("Traceback\n"), (0, 0, 0));
    }
}
