//! `--exec`: runs a command for each incident. Commands may hang; they must neither pile up nor
//! delay the monitor's end.

use std::{
    io,
    path::Path,
    process::{Child, Command},
    thread,
    time::{Duration, Instant},
};

use tompion_latency::incident::Incident;
use tompion_os::Inheritance;

use crate::messages::{pluralize, print_status};

/// Maximum number of commands that run at once.
const MAX_COMMANDS: usize = 8;
/// Time that running commands have to end when the monitor ends.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// Running commands.
#[derive(Debug, Default)]
pub struct ExecCommands {
    running: Vec<Child>,
}

impl ExecCommands {
    /// Runs a command for an incident in a folder, unless too many run.
    pub fn run(&mut self, command: &str, incident: &Incident, folder: &Path, inheritance: Inheritance) {
        let text = command;
        let mut command = Command::new("/bin/sh");
        command.args(["-c", text]).env("TOMPION_INCIDENT", folder);
        command.env("TOMPION_LATENCY_NS", incident.latency_ns.to_string());
        command.env("TOMPION_THREAD", incident.thread.label());
        if let Some(job) = &incident.job {
            command.env("TOMPION_JOB", &job.name);
        }
        inheritance.hand_on(&mut command);
        match self.start(&mut command) {
            Ok(true) => {}
            Ok(false) => print_status(format!(
                "`{text}` is not run for {}: {MAX_COMMANDS} are running",
                folder.display()
            )),
            Err(error) => print_status(format!("can't run `{text}`: {error}")),
        }
    }

    /// Starts a command. Returns false if too many run.
    fn start(&mut self, command: &mut Command) -> io::Result<bool> {
        self.reap();
        let has_room = self.running.len() < MAX_COMMANDS;
        if has_room {
            self.running.push(command.spawn()?);
        }
        Ok(has_room)
    }

    fn reap(&mut self) {
        self.running.retain_mut(|command| !matches!(command.try_wait(), Ok(Some(_))));
    }

    /// Waits for running commands, for a bounded time, and reports those that are left.
    pub fn finish(&mut self) {
        self.wait(END_TIMEOUT);
        if !self.running.is_empty() {
            let left = pluralize(self.running.len() as u64, "command");
            print_status(format!(
                "{left} of --exec did not end within {} and continue",
                pluralize(END_TIMEOUT.as_secs(), "second")
            ));
        }
    }

    fn wait(&mut self, timeout: Duration) {
        let until = Instant::now() + timeout;
        self.reap();
        while !self.running.is_empty() && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
            self.reap();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_commands_that_hang_then_no_more_start_and_the_end_does_not_wait_for_them() {
        let mut commands = ExecCommands::default();
        let started: Vec<bool> = (0..MAX_COMMANDS + 2)
            .map(|_| commands.start(Command::new("sleep").arg("600")).unwrap())
            .collect();
        assert_eq!(started.iter().filter(|started| **started).count(), MAX_COMMANDS);
        commands.wait(Duration::from_millis(20));
        assert_eq!(commands.running.len(), MAX_COMMANDS, "they continue");
        for command in &mut commands.running {
            command.kill().unwrap();
            command.wait().unwrap();
        }
        commands.wait(Duration::from_secs(60));
        assert!(commands.running.is_empty() && commands.start(&mut Command::new("true")).unwrap());
        commands.wait(Duration::from_secs(60));
        assert!(commands.running.is_empty(), "ended commands are removed");
    }
}
