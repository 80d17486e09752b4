//! The number of instructions on the event path, held to a stored figure.

use anyhow::{Result, bail};

use crate::workspace::Workspace;

/// Why instructions cannot be counted here, if they cannot.
pub fn unavailable(workspace: &Workspace) -> Option<String> {
    let _ = workspace;
    Some("not written yet".into())
}

/// `xtask instructions`
pub fn command(_: &Workspace, _: &[String]) -> Result<()> {
    bail!("not written yet")
}
