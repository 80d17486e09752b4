//! `tompion stop`: ends a running recording.

use std::{path::Path, process::ExitCode};

use clap::Args;
use tompion_control::Recording;
use tompion_supervisor::client;

use crate::messages::print_status;

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    tompion stop flight      # the recording that was started with --session flight\n  \
    tompion stop 4711        # the one whose recorder has this process id\n  \
    tompion stop flight --user 1000    # as root: that of a user with a grant\n\n\
Asks the recorded command to end, as Ctrl-C does, and returns when the trace is complete. Processes that ran before \
the recording run on. A session of `tompion serve` ends with all its channels, and is not started again; \
a recording of its name that was started by hand ends, too.\n\n\
Exit status: 0 ended, 1 refused, or not ended within a minute.")]
pub struct Arguments {
    /// Name of the session, or process id of the recorder
    #[arg(value_name = "SESSION")]
    session: String,
    /// As root, end the session of this user, by number or name, which runs by a grant
    #[arg(long, value_name = "USER", value_parser = user)]
    user: Option<u32>,
}

/// Parses a user's number or name.
fn user(text: &str) -> Result<u32, String> {
    let user = text.parse().ok().or_else(|| tompion_os::user_named(text));
    user.ok_or_else(|| format!("no user is named `{text}`"))
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let name = &arguments.session;
    if let Some(user) = arguments.user {
        let folders = client::stop_of_user(user, name)?;
        folders.iter().for_each(|folder| print_end(name, folder));
        if folders.is_empty() {
            print_status(format!("{name} of user {user} does not run"));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let Some(folders) = client::stop_session(name)? else {
        stop_recording(&Recording::find(name)?)?;
        return Ok(ExitCode::SUCCESS);
    };
    folders.iter().for_each(|folder| print_end(name, folder));
    match Recording::find_by_name(name) {
        // It was started by hand, beside the session.
        Some(recording) => stop_recording(&recording)?,
        None if folders.is_empty() => print_status(format!("{name} does not run")),
        None => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Ends a recording.
fn stop_recording(recording: &Recording) -> anyhow::Result<()> {
    print_end(recording.name(), &recording.stop_and_wait()?);
    Ok(())
}

/// Says that a recording has ended. One without events has left no folder.
fn print_end(name: &str, folder: &str) {
    print_status(match Path::new(folder).exists() {
        true => format!("{name} has ended; next: tompion stat {folder}"),
        false => format!("{name} has ended; it has recorded nothing"),
    });
}
