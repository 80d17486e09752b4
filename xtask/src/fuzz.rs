//! `x fuzz [EXECUTIONS]`: untrusted rings through the consumer, on all processors, with overflow checks.
//!
//! The executions themselves are a test of `tompion-session` (`process/fuzz.rs`), which does a few of them whenever
//! the tests run.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::shell;
use crate::workspace::Workspace;

/// How many executions there are unless somebody says.
const EXECUTIONS: u64 = 100_000_000;

pub fn command(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    let executions = match arguments {
        [] => EXECUTIONS,
        [number] => number.replace('_', "").parse().context("expected a number of executions")?,
        _ => bail!("usage: ./x fuzz [EXECUTIONS]"),
    };
    let cargo = || -> Command {
        let mut cargo = shell::cargo();
        cargo.current_dir(&workspace.root);
        cargo.args(["test", "--quiet", "--release", "--package", "tompion-session", "--lib"]);
        cargo.env("CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS", "true");
        cargo.env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true");
        cargo.arg("--target-dir").arg(workspace.target.join("fuzz"));
        cargo
    };
    shell::run(cargo().arg("--no-run"))?;
    let workers = std::thread::available_parallelism().map_or(1, |number| number.get() as u64);
    // Different from the seed of the tests, and the same each time.
    let start = |worker: u64| {
        let mut cargo = cargo();
        cargo.args(["whatever_stands_in_shared_memory", "--", "--nocapture"]);
        cargo.env("TOMPION_FUZZ", executions.div_ceil(workers).to_string());
        cargo.env("TOMPION_FUZZ_SEED", (worker + 2).to_string());
        cargo.spawn().context("cannot run cargo")
    };
    let running = (0..workers).map(start).collect::<Result<Vec<_>>>()?;
    let mut failed = 0;
    for mut worker in running {
        failed += u64::from(!worker.wait()?.success());
    }
    if failed != 0 {
        bail!("{failed} of {workers} workers failed; each says above which execution of which seed it was");
    }
    println!("{executions} executions, nothing found");
    Ok(())
}
