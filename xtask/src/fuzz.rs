//! `x fuzz [rings | streams | tsdl | json]… [EXECUTIONS]`: untrusted bytes through what reads them,
//! on all processors, with overflow checks and little memory.
//!
//! The executions themselves are tests, which do a few of them whenever the tests run.

use std::process::Command;

use anyhow::{Context, Result, bail};

use tompion_tasks::shell;
use tompion_tasks::workspace::Workspace;

/// Number of executions of each target, by default.
const EXECUTIONS: u64 = 100_000_000;
/// Address space of a worker in KiB: one that asks for more is ended.
const MEMORY: u64 = 2 << 20;

/// Fuzz target.
struct Target {
    name: &'static str,
    package: &'static str,
    /// Test binary of the package.
    binary: &'static [&'static str],
    test: &'static str,
}

const TARGETS: [Target; 4] = [
    Target {
        name: "rings",
        package: "tompion-session",
        binary: &["--lib"],
        test: "whatever_stands_in_shared_memory",
    },
    Target {
        name: "streams",
        package: "tompion-ctf",
        binary: &["--test", "mutations"],
        test: "damaged_packets_end_in_events_or_an_error",
    },
    Target {
        name: "tsdl",
        package: "tompion-ctf",
        binary: &["--test", "mutations"],
        test: "damaged_descriptions_are_refused_or_describe_something_else",
    },
    Target {
        name: "json",
        package: "tompion-ctf",
        binary: &["--test", "mutations"],
        test: "damaged_descriptions_and_events_of_ctf_2_end_in_events_or_an_error",
    },
];

const USAGE: &str = "usage: ./x fuzz [rings | streams | tsdl | json]… [EXECUTIONS]";

pub fn command(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    let mut wanted: Vec<&Target> = Vec::new();
    let mut executions = EXECUTIONS;
    for word in arguments {
        match TARGETS.iter().find(|target| target.name == word) {
            Some(target) => wanted.push(target),
            None => executions = word.replace('_', "").parse().context(USAGE)?,
        }
    }
    if wanted.is_empty() {
        wanted = TARGETS.iter().collect();
    }
    wanted.into_iter().try_for_each(|target| target.run(workspace, executions))
}

impl Target {
    fn cargo(&self, workspace: &Workspace) -> Command {
        let mut cargo = shell::cargo();
        cargo.current_dir(&workspace.root);
        cargo.args(["test", "--quiet", "--release", "--package", self.package]).args(self.binary);
        cargo.env("CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS", "true");
        cargo.env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true");
        cargo.arg("--target-dir").arg(workspace.target.join("fuzz"));
        cargo
    }

    fn run(&self, workspace: &Workspace, executions: u64) -> Result<()> {
        shell::run(self.cargo(workspace).arg("--no-run"))?;
        let workers = std::thread::available_parallelism().map_or(1, |number| number.get() as u64);
        // Different from the seed of the tests, and the same each time.
        let start = |worker: u64| {
            let mut cargo = self.cargo(workspace);
            cargo.args([self.test, "--", "--nocapture"]);
            cargo.env("TOMPION_FUZZ", executions.div_ceil(workers).to_string());
            cargo.env("TOMPION_FUZZ_SEED", (worker + 2).to_string());
            with_memory(MEMORY, &cargo).spawn().context("cannot run cargo")
        };
        let running = (0..workers).map(start).collect::<Result<Vec<_>>>()?;
        let mut failed = 0;
        for mut worker in running {
            failed += u64::from(!worker.wait()?.success());
        }
        if failed != 0 {
            let each = "each says above which execution of which seed it was";
            bail!("{}: {failed} of {workers} workers failed; {each}", self.name);
        }
        println!("{}: {executions} executions, nothing found", self.name);
        Ok(())
    }
}

/// Returns the command with a limit on its address space.
fn with_memory(kibibytes: u64, command: &Command) -> Command {
    let mut limited = Command::new("sh");
    limited.args(["-c", &format!("ulimit -v {kibibytes} && exec \"$@\""), "sh"]);
    shell::wrapped(limited, command)
}
