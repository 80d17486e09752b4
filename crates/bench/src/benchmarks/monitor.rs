//! `x bench monitor-accuracy`, `x bench monitor-overhead` and `x bench monitor-soak`: whether the
//! latency monitor is right, what it costs, and whether it lasts.

pub mod accuracy;
pub mod budgets;
mod comparison;
mod counting;
pub mod overhead;
mod report;
pub mod soak;

use std::path::PathBuf;

use anyhow::Result;

use tompion_tasks::shell;
use tompion_tasks::workspace::Workspace;

/// Builds one of the programs in `crates/latency/examples/`, and returns its path.
fn build(workspace: &Workspace, example: &str) -> Result<PathBuf> {
    let mut cargo = shell::cargo();
    cargo.args(["build", "--release", "--quiet", "--package", "tompion-latency", "--example", example]);
    shell::run(cargo.current_dir(&workspace.root))?;
    Ok(workspace.target.join("release/examples").join(example))
}
