//! `x bench monitor-accuracy` and `x bench monitor-overhead`: whether the latency monitor is right, and what it costs.

pub mod accuracy;
pub mod budgets;
mod comparison;
pub mod overhead;
mod report;

use std::path::PathBuf;

use anyhow::Result;

use crate::shell;
use crate::workspace::Workspace;

/// Builds one of the programs in `crates/latency/examples/`, and returns its path.
fn build(workspace: &Workspace, example: &str) -> Result<PathBuf> {
    let mut cargo = shell::cargo();
    cargo.args(["build", "--release", "--quiet", "--package", "tompion-latency", "--example", example]);
    shell::run(cargo.current_dir(&workspace.root))?;
    Ok(workspace.target.join("release/examples").join(example))
}
