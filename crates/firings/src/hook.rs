//! Program that a trigger runs.

use std::{
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use tompion_manifest::Firing;
use tompion_os::{Inheritance, User};

/// Signal that ends a process at once.
const KILL_SIGNAL: i32 = 9;
/// Time for which a program runs that another user chooses by a grant.
const COMMAND_TIME: Duration = Duration::from_secs(60);

/// Programs that triggers run, one at a time.
#[derive(Debug)]
pub struct Hook {
    running: Option<Child>,
    /// User that they run as, and settings that they inherit.
    user: Option<User>,
    inheritance: Inheritance,
    /// Folder of the trace.
    folder: PathBuf,
    /// Whether another user chooses them, by a grant.
    is_granted: bool,
    /// Time at which one of another user's choice is killed.
    end: Option<Instant>,
}

impl Hook {
    /// No program runs so far.
    pub fn new(user: Option<User>, inheritance: Inheritance, folder: PathBuf) -> Self {
        Self { running: None, user, inheritance, folder, is_granted: false, end: None }
    }

    /// Another user chooses the programs: they have limits, and do not get this process's standard
    /// error, which is root's file.
    #[must_use]
    pub fn by_grant(self) -> Self {
        Self { is_granted: true, ..self }
    }

    /// Starts a program, unless the last one still runs.
    ///
    /// # Errors
    /// The reason why it isn't run.
    pub fn run(&mut self, words: &[String], firing: &Firing) -> Result<(), String> {
        let [program, arguments @ ..] = words else { return Ok(()) };
        if self.is_running() {
            return Err("the last one still runs".into());
        }
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
        command.env("TOMPION_TRIGGER", &firing.trigger).env("TOMPION_TRACE", &self.folder);
        command.env("TOMPION_INCIDENT", &firing.incident).env_remove("TOMPION_CAPTURE");
        if let Some(capture) = firing.captures.first() {
            // Control characters are escaped, and the size is bounded where events are decoded.
            command.env("TOMPION_CAPTURE", serde_json::to_string(capture).unwrap_or_default());
        }
        if self.is_granted {
            command.stderr(Stdio::null()).process_group(0);
        }
        self.inheritance.hand_on(&mut command);
        match &self.user {
            Some(user) => user.run(&mut command),
            None => tompion_os::run_with_rights_of_process(&mut command),
        }
        if self.is_granted {
            // Behind the change of the user: of that user's processes, a limit counts.
            tompion_os::limit_command(&mut command);
        }
        self.running = Some(command.spawn().map_err(|error| error.to_string())?);
        self.end = self.is_granted.then(|| Instant::now() + COMMAND_TIME);
        Ok(())
    }

    /// Whether a program runs. It does not wait. A program by a grant is killed when its time is
    /// over, with all of its process group.
    pub fn is_running(&mut self) -> bool {
        if let (Some(child), true) = (&mut self.running, self.end.is_some_and(|end| end <= Instant::now())) {
            // One that has just ended has no group.
            let _ = tompion_os::kill_group(child.id(), KILL_SIGNAL);
        }
        let is_running = self.running.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)));
        if !is_running {
            self.running = None;
        }
        is_running
    }
}
