//! `--exec`: a command for each late wake-up that was kept. They may hang, and must neither pile up
//! nor keep the monitor from its end.

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

/// Those that run.
#[derive(Debug, Default)]
pub struct Commands {
    running: Vec<Child>,
}

impl Commands {
    /// Runs one for an incident in a folder, unless too many run.
    pub fn run(
        &mut self,
        text: &Option<String>,
        (incident, folder): (&Incident, &Path),
        inheritance: Inheritance,
    ) {
        let Some(text) = text else { return };
        let mut command = Command::new("/bin/sh");
        command.args(["-c", text]).env("TOMPION_INCIDENT", folder);
        command.env("TOMPION_LATENCY_NS", incident.latency_ns.to_string());
        command.env("TOMPION_THREAD", incident.thread.label());
        if let Some(job) = &incident.job {
            command.env("TOMPION_JOB", &job.name);
        }
        inheritance.hand_on(&mut command);
        match self.begin(&mut command) {
            Ok(true) => {}
            Ok(false) => print_status(format!(
                "`{text}` is not run for {}: {MAX_COMMANDS} are running",
                folder.display()
            )),
            Err(error) => print_status(format!("can't run `{text}`: {error}")),
        }
    }

    /// False if too many run.
    fn begin(&mut self, command: &mut Command) -> io::Result<bool> {
        self.forget_ended();
        let has_room = self.running.len() < MAX_COMMANDS;
        if has_room {
            self.running.push(command.spawn()?);
        }
        Ok(has_room)
    }

    fn forget_ended(&mut self) {
        self.running.retain_mut(|command| !matches!(command.try_wait(), Ok(Some(_))));
    }

    /// Waits a while for those that run.
    pub fn finish(&mut self) {
        self.wait(END_TIMEOUT);
        if !self.running.is_empty() {
            let left = pluralize(self.running.len() as u64, "command");
            print_status(format!(
                "{left} of --exec did not end within {} and run on",
                pluralize(END_TIMEOUT.as_secs(), "second")
            ));
        }
    }

    fn wait(&mut self, patience: Duration) {
        let until = Instant::now() + patience;
        self.forget_ended();
        while !self.running.is_empty() && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
            self.forget_ended();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_commands_that_hang_then_no_more_are_begun_and_the_end_does_not_wait_for_them() {
        let mut commands = Commands::default();
        let begun: Vec<bool> = (0..MAX_COMMANDS + 2)
            .map(|_| commands.begin(Command::new("sleep").arg("600")).unwrap())
            .collect();
        assert_eq!(begun.iter().filter(|begun| **begun).count(), MAX_COMMANDS);
        commands.wait(Duration::from_millis(20));
        assert_eq!(commands.running.len(), MAX_COMMANDS, "they run on");
        for command in &mut commands.running {
            command.kill().unwrap();
            command.wait().unwrap();
        }
        commands.wait(Duration::from_secs(60));
        assert!(commands.running.is_empty() && commands.begin(&mut Command::new("true")).unwrap());
        commands.wait(Duration::from_secs(60));
        assert!(commands.running.is_empty(), "what has ended is forgotten");
    }
}
