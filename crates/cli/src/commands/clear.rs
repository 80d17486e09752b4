//! `tompion clear`: drops what a running recording has recorded last.

use std::process::ExitCode;

use clap::Args;
use tompion_control::Recording;

use crate::messages::print_status;

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    tompion clear flight     # the history of a flight recorder: the next snapshot begins here\n  \
    tompion clear night      # the open chunk of a recording with --rotate\n\n\
Committed chunks and saved snapshots stay. Programs are not asked.\n\n\
Exit status: 0 cleared, 1 refused.")]
pub struct Arguments {
    /// Name of the session, or process id of the recorder
    #[arg(value_name = "SESSION")]
    session: String,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let recording = Recording::find(&arguments.session)?;
    recording.clear()?;
    print_status(format!("{}: cleared", recording.name()));
    Ok(ExitCode::SUCCESS)
}
