//! `tompion snapshot`.

use std::{path::Path, process::ExitCode};

use clap::Args;
use tompion_os::User;
use tompion_session::{Running, Saved};

use crate::messages::{self, counted, say};

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    tompion snapshot             # the only recording of this user that goes on\n  \
    tompion snapshot crash       # the one that writes into the folder crash\n  \
    tompion snapshot 4711        # the one whose recorder has this process id\n  \
    sudo tompion snapshot 4711   # another user's, or one that was begun by sudo\n\n\
For recordings with --mode overwrite: what their buffers hold is added to the trace, each event once, and the \
recording goes on. Ends when it is on disk. Exit status: 0 saved, 1 not saved, 2 several recordings to choose from.")]
pub struct Arguments {
    /// The recorder's process id, or the folder of its trace [default: the only recording that goes on]
    #[arg(value_name = "PID|TRACE")]
    recording: Option<String>,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let running = match &arguments.recording {
        Some(named) => find(named)?,
        None => {
            let mut all = Running::of_users(&users());
            all.retain(Running::is_flight_recorder);
            match all.len() {
                0 => anyhow::bail!(
                    "nothing is recorded in overwrite mode by this user; begin with: tompion record --mode overwrite -- CMD{}",
                    hint()
                ),
                1 => all.remove(0),
                _ => return Ok(choose(&all)),
            }
        }
    };
    let folder = running.folder.display();
    match running.save()? {
        Saved::Events(events) => {
            say(format!("saved {} in {folder}; next: tompion print {folder}", counted(events, "event")));
        }
        Saved::Ended => say(format!("the recording has ended meanwhile; {folder} has all of it")),
    }
    Ok(ExitCode::SUCCESS)
}

/// The recording that a user named. A folder whose name is a number is named by `./4711`.
fn find(named: &str) -> anyhow::Result<Running> {
    Ok(match named.parse() {
        Ok(pid) => Running::of_process(pid)?,
        Err(_) => Running::of_trace(Path::new(named))?,
    })
}

/// Whose recordings are looked for: under sudo, those of the user behind it, too.
fn users() -> Vec<u32> {
    let behind = User::behind_sudo().map(|user| user.uid());
    [tompion_os::effective_user()].into_iter().chain(behind).collect()
}

fn hint() -> &'static str {
    match tompion_os::effective_user() {
        0 => "",
        _ => " (recordings that were begun by sudo: sudo tompion snapshot)",
    }
}

/// Says what to type for each of several recordings.
fn choose(all: &[Running]) -> ExitCode {
    say(format!("{} go on; choose one:", counted(all.len() as u64, "recording")));
    for running in all {
        let folder = running.folder.display();
        let what = match &running.manifest.command[..] {
            [] => String::new(),
            words => format!(" ({})", words.join(" ")),
        };
        say(format!("tompion snapshot {}    # {folder}{what}", running.pid));
    }
    ExitCode::from(messages::WRONG_USAGE)
}
