//! `tompion snapshot`: saves the history of a running flight recorder.

use std::{path::Path, process::ExitCode, time::Duration};

use clap::Args;
use tompion_control::{Recording, save_by_grant};
use tompion_os::User;
use tompion_running::{Running, Saved};

use crate::messages::{self, pluralize, print_status};

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    tompion snapshot             # this user's only running flight recorder\n  \
    tompion snapshot crash       # the one that writes to the folder crash\n  \
    tompion snapshot flight      # the one that was started with --session flight\n  \
    tompion snapshot 4711        # the one whose recorder has this process id\n  \
    tompion snapshot flight --after 5s    # and the 5 s that come now\n  \
    sudo tompion snapshot 4711   # of another user, or started by sudo\n\n\
For recordings with --mode overwrite. Adds the contents of their rings to the trace, each event once, and returns when \
they are on disk. The recording continues. Exit status: 0 saved, 1 not saved, 2 several recordings to choose from.")]
pub struct Arguments {
    /// Process id of the recorder, folder of its trace, or name of the session [default: the only
    /// running one]
    #[arg(value_name = "PID|TRACE|SESSION")]
    recording: Option<String>,
    /// Also save what comes within this time, without a gap, and return then
    #[arg(long, value_name = "DURATION", value_parser = crate::units::duration)]
    after: Option<Duration>,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let after = arguments.after.unwrap_or_default();
    let granted = arguments.recording.as_deref().map_or(Ok(None), |named| save_by_grant(named, after))?;
    if let Some((folder, events)) = granted {
        print_saved(events, &folder);
        return Ok(ExitCode::SUCCESS);
    }
    let running = match &arguments.recording {
        Some(named) => find(named)?,
        None => {
            let mut all = Running::of_users(&users());
            all.retain(Running::is_flight_recorder);
            match all.len() {
                0 => anyhow::bail!(
                    "no flight recorder of this user is running; start one: tompion record --mode overwrite -- CMD{}",
                    hint()
                ),
                1 => all.remove(0),
                _ => return Ok(choose(&all)),
            }
        }
    };
    let folder = running.folder.display();
    let saved = match arguments.after {
        Some(_) if !running.is_flight_recorder() => running.save()?,
        Some(after) => Saved::Events(Recording::find(&running.pid.to_string())?.save_snapshot_after(after)?),
        None => running.save()?,
    };
    match saved {
        Saved::Events(events) => print_saved(events, &folder.to_string()),
        Saved::Ended => print_status(format!("the recording has ended; {folder} has all of it")),
    }
    Ok(ExitCode::SUCCESS)
}

fn print_saved(events: u64, folder: &str) {
    print_status(format!("saved {} in {folder}; next: tompion print {folder}", pluralize(events, "event")));
}

/// Finds the recording that the user named: `4711` is a process, `./4711` a folder. A name that is
/// neither may be that of a session.
fn find(named: &str) -> anyhow::Result<Running> {
    if let Ok(pid) = named.parse() {
        return Ok(Running::of_process(pid)?);
    }
    let session =
        (!Path::new(named).exists()).then(|| Recording::find(named).and_then(|it| it.status()).ok());
    Ok(match session.flatten() {
        Some(status) => Running::of_process(status.pid)?,
        None => Running::of_trace(Path::new(named))?,
    })
}

/// Returns the users whose recordings are searched: under sudo also the user behind it.
fn users() -> Vec<u32> {
    let behind = User::behind_sudo().map(|user| user.uid());
    [tompion_os::effective_user()].into_iter().chain(behind).collect()
}

fn hint() -> &'static str {
    match tompion_os::effective_user() {
        0 => "",
        _ => " (for one started by sudo: sudo tompion snapshot)",
    }
}

/// Lists the commands that choose one of several recordings.
fn choose(all: &[Running]) -> ExitCode {
    print_status(format!("{} are running; choose one:", pluralize(all.len() as u64, "recording")));
    for running in all {
        let folder = running.folder.display();
        let what = match &running.manifest.command[..] {
            [] => String::new(),
            words => format!(" ({})", words.join(" ")),
        };
        print_status(format!("tompion snapshot {}    # {folder}{what}", running.pid));
    }
    ExitCode::from(messages::WRONG_USAGE)
}
