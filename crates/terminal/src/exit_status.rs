//! Exit statuses of commands that run another command: its own is passed on, and failures of
//! Tompion have numbers that env(1) and timeout(1) use for theirs.

use std::{
    io,
    os::unix::process::ExitStatusExt as _,
    process::{ExitCode, ExitStatus},
};

/// Exit status: Tompion failed, not the command.
pub const OWN_FAILURE: u8 = 125;
/// Exit status: the command was found and can't be run.
const NOT_RUN: u8 = 126;
/// Exit status: the command was not found.
pub const NOT_FOUND: u8 = 127;
/// Number that shells add to that of the signal which ended a command.
const SIGNAL_BASE: i32 = 128;

/// Returns the exit status that stands for the end of a command.
pub fn of_command(status: ExitStatus) -> ExitCode {
    let code = status.code().or(status.signal().map(|signal| SIGNAL_BASE + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(OWN_FAILURE))
}

/// Ends this process as the command ended: by the same signal, or returns its exit status. So
/// shells and systemd see no difference.
pub fn pass_on(status: ExitStatus) -> ExitCode {
    if let Some(signal) = status.signal() {
        tompion_os::end_by_signal(signal);
    }
    of_command(status)
}

/// Returns the exit status that stands for a signal before the command was run.
pub fn of_signal(signal: i32) -> ExitCode {
    ExitCode::from(u8::try_from(SIGNAL_BASE + signal).unwrap_or(OWN_FAILURE))
}

/// Returns the exit status for a command that could not be run.
pub fn of_spawn_error(error: &io::Error) -> ExitCode {
    ExitCode::from(if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_RUN })
}
