//! The commands that send recordings to other machines and receive them. They are thin, as all of
//! the `tompion` command: the work is in `shipper` and `receiver`.
#![forbid(unsafe_code)]

mod live;
mod receive;
mod ship;

use std::process::ExitCode;

/// A command.
#[derive(clap::Subcommand, Debug)]
pub enum Command {
    /// Send recordings to another machine, also while they are recorded
    Ship(ship::Arguments),
    /// Receive recordings of other machines
    Receive(receive::Arguments),
    /// Serve recordings to readers that speak LTTng's live protocol
    Live(live::Arguments),
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// If it can't be done, with the chain of causes.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Ship(arguments) => ship::run(arguments),
            Self::Receive(arguments) => receive::run(arguments),
            Self::Live(arguments) => live::run(arguments),
        }
    }
}
