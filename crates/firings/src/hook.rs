//! Program that a trigger runs.

use std::{
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use tompion_manifest::Firing;
use tompion_os::{Inheritance, User};

/// Programs that triggers run, one at a time.
#[derive(Debug)]
pub struct Hook {
    running: Option<Child>,
    /// User that they run as, and settings that they inherit.
    user: Option<User>,
    inheritance: Inheritance,
    /// Folder of the trace.
    folder: PathBuf,
    /// Whether they write to this process's standard error.
    has_messages: bool,
}

impl Hook {
    /// No program runs so far.
    pub fn new(user: Option<User>, inheritance: Inheritance, folder: PathBuf) -> Self {
        Self { running: None, user, inheritance, folder, has_messages: true }
    }

    /// Keeps this process's standard error from the programs: it is another user's file.
    #[must_use]
    pub fn without_messages(self) -> Self {
        Self { has_messages: false, ..self }
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
        if !self.has_messages {
            command.stderr(Stdio::null());
        }
        self.inheritance.hand_on(&mut command);
        match &self.user {
            Some(user) => user.run(&mut command),
            None => tompion_os::run_with_rights_of_process(&mut command),
        }
        self.running = Some(command.spawn().map_err(|error| error.to_string())?);
        Ok(())
    }

    /// Whether a program runs. Waits for none.
    pub fn is_running(&mut self) -> bool {
        let is_running = self.running.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)));
        if !is_running {
            self.running = None;
        }
        is_running
    }
}
