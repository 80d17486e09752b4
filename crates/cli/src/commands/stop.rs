//! `tompion stop`: ends a running recording.

use std::{
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use clap::Args;
use tompion_control::{ControlError, Recording};

use crate::messages::print_status;

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    tompion stop flight      # the recording that was started with --session flight\n  \
    tompion stop 4711        # the one whose recorder has this process id\n\n\
Asks the recorded command to end, as Ctrl-C does, and returns when the trace is complete. Processes that ran before \
the recording run on.\n\n\
Exit status: 0 ended, 1 refused, or not ended within a minute.")]
pub struct Arguments {
    /// Name of the session, or process id of the recorder
    #[arg(value_name = "SESSION")]
    session: String,
}

/// Time for a recording to end. Its command has five seconds, its disk may be slow.
const END_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval between two looks.
const END_INTERVAL: Duration = Duration::from_millis(5);

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let recording = Recording::find(&arguments.session)?;
    let before = recording.status()?;
    let folder = &before.folder;
    recording.stop()?;
    let deadline = Instant::now() + END_TIMEOUT;
    loop {
        match recording.status() {
            // It answers nothing more once the trace is complete.
            Err(ControlError::NotFound(_)) => break,
            // Another one has its name by now.
            Ok(now) if now.pid != before.pid || now.begin_ns != before.begin_ns => break,
            _ if Instant::now() >= deadline => {
                anyhow::bail!("{} has not ended within {} s", recording.name(), END_TIMEOUT.as_secs());
            }
            _ => thread::sleep(END_INTERVAL),
        }
    }
    print_status(format!("{} has ended; next: tompion stat {folder}", recording.name()));
    Ok(ExitCode::SUCCESS)
}
