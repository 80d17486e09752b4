//! `tompion keep`: the process that holds a recording's descriptors, started by `tompion record`.

use std::{process::ExitCode, time::Duration};

use anyhow::Context as _;
use clap::Args;

#[derive(Args)]
pub struct Arguments {
    /// Name of the socket
    name: String,
    /// Time to wait for the next recorder, in milliseconds
    milliseconds: u64,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let linger = Duration::from_millis(arguments.milliseconds);
    tompion_keeper::serve(&arguments.name, linger).context("the keeper of a recording ended early")?;
    Ok(ExitCode::SUCCESS)
}
