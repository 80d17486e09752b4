//! `x test page`: the viewer's page. Its types hold, what is committed is what its sources make, it
//! does in a browser what it should.
//!
//! Cargo needs none of this: the page is committed as it was built, and embedded. Only a change of
//! it needs Node.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use tompion_tasks::artifacts::Profile;
use tompion_tasks::shell;
use tompion_tasks::workspace::Workspace;

/// The oldest Node that Vite works with: 20.19.
const NODE: (u32, u32) = (20, 19);

/// The browser of the tests.
const CHROMIUM: &str = "chromium";

/// Time limit for all of it: a browser that hangs must not keep us.
const LIMIT: Duration = Duration::from_secs(360);

/// Reason why the page can't be tested here, if it can't.
pub fn unavailable(workspace: &Workspace) -> Option<String> {
    let Ok(version) = shell::capture(Command::new("node").arg("--version")) else {
        return Some("Node is missing (20.19 or newer: https://nodejs.org)".into());
    };
    if node_version(&version).is_none_or(|version| version < NODE) {
        return Some(format!("Node {} is too old (20.19 or newer: https://nodejs.org)", version.trim()));
    }
    if !shell::exists("npm") {
        return Some("npm is missing, which comes with Node".into());
    }
    if !shell::exists(CHROMIUM) {
        return Some("Chromium is missing (apt install chromium)".into());
    }
    // A lock file that doesn't fit package.json is a mistake of ours: `command` meets it again, and
    // fails.
    install(workspace).err().filter(|error| !error.to_string().contains("EUSAGE")).map(|error| {
        let line = format!("{error:#}").replace('\n', " ");
        format!("what the page is built with can't be had: {}", line.chars().take(300).collect::<String>())
    })
}

/// Reads `v20.19.1`.
fn node_version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.trim().trim_start_matches('v').split('.').map(|part| part.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// Installs the packages of `package-lock.json` from npm's registry: once again if it fails, since
/// networks do. What is there from an earlier time is as good, where the lock file is still the
/// same.
fn install(workspace: &Workspace) -> Result<()> {
    let web = folder(workspace);
    let lock = fs::read(web.join("package-lock.json")).context("cannot read web/package-lock.json")?;
    let stamp = web.join("node_modules/.tompion-lock");
    if fs::read(&stamp).is_ok_and(|installed| installed == lock) {
        return Ok(());
    }
    let mut npm = Command::new("npm");
    npm.args(["ci", "--no-audit", "--no-fund", "--prefer-offline"]).current_dir(&web);
    let once = || shell::run_quietly(&mut shell::limited(120, &npm));
    once().or_else(|_| once())?;
    fs::write(stamp, lock).context("cannot write into web/node_modules")
}

/// `x page --dev ADDRESS`: serves the page's sources with Vite, in front of a running viewer.
pub fn dev_command(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    let address = match arguments {
        [flag, address] if flag == "--dev" && address.starts_with("http") => address,
        _ => bail!("usage: x page --dev ADDRESS, the address that `tompion view --no-open TRACE` prints"),
    };
    install(workspace)?;
    let web = folder(workspace);
    let mut vite = Command::new(web.join("node_modules/.bin/vite"));
    shell::run(vite.current_dir(&web).env("TOMPION_VIEWER", address))
}

/// Checks, builds, compares and tests the page.
pub fn command(workspace: &Workspace) -> Result<()> {
    install(workspace)?;
    let mut cargo = shell::cargo();
    cargo
        .args(["build", "--quiet", "--package", "tompion-cli", "--package", "tompion-agent"])
        .current_dir(&workspace.root);
    shell::run(&mut cargo)?;
    let begin = Instant::now();
    run(workspace, begin, "the page's types", &["tsc", "--noEmit"])?;
    is_as_committed(workspace, begin)?;
    run(workspace, begin, "the page's tests", &["vitest", "run"])?;
    run(
        workspace,
        begin,
        "the page's tests in a browser",
        &["vitest", "run", "--config", "vitest.browser.config.ts"],
    )
}

/// Builds the page apart, and finds the committed files equal byte for byte.
fn is_as_committed(workspace: &Workspace, begin: Instant) -> Result<()> {
    let built = workspace.target.join("page");
    run(workspace, begin, "building the page", &["vite", "build", "--logLevel", "warn"])?;
    let committed = workspace.root.join("crates/viewer/page");
    let (here, there) = (files(&built)?, files(&committed)?);
    if here != there {
        bail!(
            "crates/viewer/page has other files than its sources make: build it with `npm run build` in web/"
        );
    }
    for name in here {
        if fs::read(built.join(&name))? != fs::read(committed.join(&name))? {
            let name = name.display();
            bail!(
                "crates/viewer/page/{name} is not what its sources make: build it with `npm run build` in web/"
            );
        }
    }
    Ok(())
}

/// The files of a built page, by their paths in it.
fn files(page: &Path) -> Result<Vec<PathBuf>> {
    let mut names = Vec::new();
    for folder in ["", "assets"] {
        let listed =
            fs::read_dir(page.join(folder)).with_context(|| format!("cannot read {}", page.display()))?;
        for entry in listed {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                names.push(Path::new(folder).join(entry.file_name()));
            }
        }
    }
    names.sort();
    Ok(names)
}

/// A program of `web/node_modules`, as long as there is time.
fn run(workspace: &Workspace, begin: Instant, what: &str, words: &[&str]) -> Result<()> {
    let left = LIMIT.saturating_sub(begin.elapsed()).as_secs();
    if left == 0 {
        bail!("{what}: no time is left of {} seconds", LIMIT.as_secs());
    }
    let [program, arguments @ ..] = words else { bail!("nothing to run") };
    let web = folder(workspace);
    let mut command = Command::new(web.join("node_modules/.bin").join(program));
    command.args(arguments).current_dir(&web);
    command.env("TOMPION_PAGE", workspace.target.join("page"));
    command.env("TOMPION_BINARY", Profile::Debug.folder(workspace).join("tompion"));
    command.env("NO_COLOR", "1");
    shell::run(&mut shell::limited(left, &command)).with_context(|| what.to_owned())
}

fn folder(workspace: &Workspace) -> PathBuf {
    workspace.root.join("web")
}

#[cfg(test)]
mod tests {
    use super::node_version;

    #[test]
    fn versions_of_node_are_compared_as_numbers() {
        assert_eq!(node_version("v20.19.2\n"), Some((20, 19)));
        assert!(node_version("v9.1.0").unwrap() < node_version("v20.19.0").unwrap());
        assert_eq!(node_version("none"), None);
    }
}
