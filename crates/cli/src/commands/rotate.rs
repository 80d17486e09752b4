//! `tompion rotate`: ends the open chunk of a running recording.

use std::process::ExitCode;

use clap::Args;
use tompion_control::Recording;

use crate::messages::{pluralize, print_status};

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    tompion rotate night     # the recording that was started with --session night --rotate 10min\n  \
    tompion rotate 4711      # the one whose recorder has this process id\n\n\
Returns when the chunk is complete. Programs are not asked; each event is in one chunk. The recording must have been \
started with --rotate.\n\n\
Exit status: 0 rotated, 1 refused.")]
pub struct Arguments {
    /// Name of the session, or process id of the recorder
    #[arg(value_name = "SESSION")]
    session: String,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let chunk = Recording::find(&arguments.session)?.rotate()?;
    let (events, folder) = (pluralize(chunk.events, "event"), chunk.folder);
    print_status(format!("{events} in {folder}; next: tompion print {folder}"));
    Ok(ExitCode::SUCCESS)
}
