//! The `tompion` command: thin. Arguments become the libraries' configurations, their results become
//! text; nothing is decided here that another program could want to decide, too.
#![forbid(unsafe_code)]

mod commands;
mod exit_status;
mod filter;
mod messages;
mod selection;
mod units;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// A flight recorder for Linux that real-time people can trust.
///
/// Records events of applications into per-CPU rings at about the cost of reading the clock, and writes
/// CTF traces that babeltrace2 and Trace Compass open as they are. No daemon, no root.
#[derive(Parser)]
#[command(name = "tompion", version, max_term_width = 100, disable_help_subcommand = true)]
#[command(after_help = "Examples:\n  \
    tompion record --preload malloc -- find /usr -name '*.h'\n  \
    tompion record -e 'db:*' -- ./server\n  \
    tompion print\n  \
    tompion stat --json")]
struct Cli {
    /// Show the whole chain of causes when something fails
    #[arg(short, long, global = true)]
    verbose: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Record a command, running processes, or every program
    Record(commands::record::Arguments),
    /// Print a trace's events, in babeltrace2's layout
    Print(commands::print::Arguments),
    /// Sum up a trace: events, losses, processes
    Stat(commands::stat::Arguments),
    /// Show traces in the browser: processors, threads, events on one time line
    View(commands::view::Arguments),
    /// Save what the flight recorder of a running recording holds
    Snapshot(commands::snapshot::Arguments),
    /// Write traces in another format: CTF 1.8 or CTF 2
    Export(commands::export::Arguments),
    /// Write a part of traces: times, names, a filter
    Trim(commands::trim::Arguments),
    /// Put several traces into one folder
    Merge(commands::merge::Arguments),
    /// Complete the trace of a recording that was killed, or whose machine stopped
    Recover(commands::recover::Arguments),
    /// List the events that a program or a process has
    List(commands::list::Arguments),
    /// Say whether this machine is fit for recording, and what to change
    Doctor(commands::doctor::Arguments),
    /// Keep CPUs free for one command: interrupts, kernel threads and all else moved away, and put back
    Shield(commands::shield::Arguments),
    /// Watch every wake-up of real-time threads: how late, how often, whose
    Monitor(commands::monitor::Arguments),
    /// Measure what this machine can do in real time, and what recording costs it
    Test(commands::test::Arguments),
    /// Write the manual pages into a folder
    #[command(hide = true)]
    Man(commands::manual::ManArguments),
    /// Write the completions of a shell into a folder
    #[command(hide = true)]
    Completions(commands::manual::CompletionArguments),
}

/// Signals that mean something to some commands, which take them ([`tompion_os::Signals`]), and nothing to all others. Who
/// sends them to every `tompion` that there is must end none.
const MEANINGLESS_SIGNALS: [i32; 2] = [10, 12];

fn main() -> ExitCode {
    tompion_os::ignore_until_exec(&MEANINGLESS_SIGNALS);
    // Before any argument is looked at: whatever path comes, the user who named it could have gone there alone.
    if let Err(error) = tompion_os::act_as_invoking_user() {
        messages::say(format!("can't take on the rights of the user who started sudo: {error}"));
        return ExitCode::from(messages::FAILED);
    }
    let words = commands::record::separate_command(std::env::args_os().collect(), Cli::command);
    let cli = match Cli::try_parse_from(words) {
        Ok(cli) => cli,
        Err(error) => {
            commands::record::prepare_for_usage_error();
            let code = messages::usage(&error);
            return if error.use_stderr() { commands::record::usage_status().unwrap_or(code) } else { code };
        }
    };
    let is_recording = matches!(cli.command, Command::Record(_));
    let result = match cli.command {
        Command::Record(arguments) => commands::record::run(arguments),
        Command::Print(arguments) => commands::print::run(&arguments),
        Command::Stat(arguments) => commands::stat::run(&arguments),
        Command::View(arguments) => commands::view::run(&arguments),
        Command::Snapshot(arguments) => commands::snapshot::run(&arguments),
        Command::Export(arguments) => commands::export::run(&arguments),
        Command::Trim(arguments) => commands::trim::run(&arguments),
        Command::Merge(arguments) => commands::merge::run(&arguments),
        Command::Recover(arguments) => commands::recover::run(&arguments),
        Command::List(arguments) => commands::list::run(&arguments),
        Command::Doctor(arguments) => commands::doctor::run(&arguments),
        Command::Shield(arguments) => commands::shield::run(&arguments),
        Command::Monitor(arguments) => commands::monitor::run(&arguments),
        Command::Test(arguments) => commands::test::run(&arguments),
        Command::Man(arguments) => commands::manual::write_pages(&arguments, Cli::command()),
        Command::Completions(arguments) => commands::manual::write_completions(&arguments, Cli::command()),
    };
    result.unwrap_or_else(|error| {
        let code = messages::failure(&error, cli.verbose);
        if is_recording { commands::record::failure_status(&error) } else { code }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }
}
