//! The `tompion` command. It is thin: arguments become the libraries' configurations, and results
//! become text. Decisions that another program could need are made in the libraries.
#![forbid(unsafe_code)]

mod commands;
#[cfg(test)]
mod documents;
mod filter;
mod selection;
mod units;

use std::{io::Write as _, process::ExitCode};

use clap::{CommandFactory, Parser, Subcommand};
use tompion_protocol::names::LOG_VARIABLE;
use tompion_terminal::{exit_status, messages, screen};

/// Always-on flight recorder for Linux programs and the kernel.
///
/// Records events of programs and the kernel into per-CPU ring buffers, and writes CTF traces that
/// babeltrace2 and Trace Compass read. Recording programs needs no daemon and no root.
#[derive(Parser)]
#[command(name = "tompion", version, max_term_width = 100, disable_help_subcommand = true)]
#[command(after_help = "Examples:\n  \
    tompion record --preload malloc -- find /usr -name '*.h'\n  \
    tompion record -e 'db:*' -- ./server\n  \
    sudo tompion record -k -- ./server      # with the kernel\n  \
    tompion view                            # the newest trace in this folder\n  \
    tompion stat --json")]
struct Cli {
    /// Print the whole chain of causes when something fails
    #[arg(short, long, global = true)]
    verbose: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Record a command, running processes, or every program
    Record(commands::record::Arguments),
    /// Print the events of a trace, in babeltrace2's layout
    Print(commands::print::Arguments),
    /// Summarize a trace: events, losses, processes
    Stat(commands::stat::Arguments),
    /// Show traces in the browser: CPUs, threads and events on one timeline
    View(commands::view::Arguments),
    /// Save the history of a running flight recorder to its trace
    Snapshot(commands::snapshot::Arguments),
    /// Show running recordings: programs, events, losses, problems
    Status(commands::status::Arguments),
    /// Show rates, losses and memory of running recordings, refreshed
    Top(commands::top::Arguments),
    /// Show what programs of a running recording have counted in place
    Counts(commands::counts::Arguments),
    /// Show or change which events of programs a running recording records
    Rules(commands::rules::Arguments),
    /// End the open chunk of a running recording, and begin the next one
    Rotate(commands::rotate::Arguments),
    /// Drop the open chunk of a running recording, or the history of a flight recorder
    Clear(commands::clear::Arguments),
    /// Fire an external trigger of a running recording, or watch its triggers
    Trigger(commands::trigger::Arguments),
    /// Start a session that a file describes, or change a running one
    Apply(commands::apply::Arguments),
    /// Supervise sessions that files describe: start their recorders, and start them again
    Serve(commands::serve::Arguments),
    #[command(flatten)]
    Remote(tompion_remote::Command),
    /// End a running recording or session
    Stop(commands::stop::Arguments),
    /// Convert traces to another format: CTF 1.8 or CTF 2
    Export(commands::export::Arguments),
    /// Copy a part of traces, chosen by time, name or filter
    Trim(commands::trim::Arguments),
    /// Combine several traces in one folder
    Merge(commands::merge::Arguments),
    /// Complete the trace of a recording after a kill or a power loss
    Recover(commands::recover::Arguments),
    /// List the events of a program, a process or the kernel
    List(commands::list::Arguments),
    /// Check whether this machine is ready to record, and suggest changes
    Doctor(commands::doctor::Arguments),
    /// Reserve CPUs for one command: move interrupts and other threads away, and back at its end
    Shield(commands::shield::Arguments),
    /// Monitor the wakeup latency of all real-time threads
    ///
    /// Counting continues in the kernel after this command ends, until `tompion monitor stop` or
    /// shutdown. The next command shows all of it.
    Monitor(commands::monitor::Arguments),
    /// Measure the real-time behaviour of this machine and the overhead of recording
    Test(commands::test::Arguments),
    /// Hold a recording's descriptors
    #[command(hide = true, name = tompion_keeper::COMMAND)]
    Keep(commands::keep::Arguments),
    /// Write the manual pages into a folder
    #[command(hide = true)]
    Man(commands::manual::ManArguments),
    /// Write the completions of a shell into a folder
    #[command(hide = true)]
    Completions(commands::manual::CompletionArguments),
}

/// SIGUSR1 and SIGUSR2, which some commands handle ([`tompion_os::Signals`]) and all others ignore:
/// a signal to every `tompion` process must end none.
const IGNORED_SIGNALS: [i32; 2] = [10, 12];

fn main() -> ExitCode {
    tompion_os::ignore_until_exec(&IGNORED_SIGNALS);
    // Before any argument is parsed, so that each path is opened with the rights of the user who
    // gave it.
    if let Err(error) = tompion_os::act_as_invoking_user() {
        messages::print_status(format!("can't act as the user who called sudo: {error}"));
        return ExitCode::from(messages::FAILED);
    }
    start_log();
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
        Command::Status(arguments) => commands::status::run(&arguments),
        Command::Top(arguments) => commands::top::run(&arguments),
        Command::Counts(arguments) => commands::counts::run(&arguments),
        Command::Rules(arguments) => commands::rules::run(&arguments),
        Command::Rotate(arguments) => commands::rotate::run(&arguments),
        Command::Clear(arguments) => commands::clear::run(&arguments),
        Command::Trigger(arguments) => commands::trigger::run(&arguments),
        Command::Apply(arguments) => commands::apply::run(&arguments),
        Command::Serve(arguments) => commands::serve::run(&arguments),
        Command::Remote(command) => command.run(),
        Command::Stop(arguments) => commands::stop::run(&arguments),
        Command::Export(arguments) => commands::export::run(&arguments),
        Command::Trim(arguments) => commands::trim::run(&arguments),
        Command::Merge(arguments) => commands::merge::run(&arguments),
        Command::Recover(arguments) => commands::recover::run(&arguments),
        Command::List(arguments) => commands::list::run(&arguments),
        Command::Doctor(arguments) => commands::doctor::run(&arguments),
        Command::Shield(arguments) => commands::shield::run(&arguments),
        Command::Monitor(arguments) => commands::monitor::run(&arguments),
        Command::Test(arguments) => commands::test::run(&arguments),
        Command::Keep(arguments) => commands::keep::run(&arguments),
        Command::Man(arguments) => commands::manual::write_pages(&arguments, Cli::command()),
        Command::Completions(arguments) => commands::manual::write_completions(&arguments, Cli::command()),
    };
    result.unwrap_or_else(|error| {
        let code = messages::failure(&error, cli.verbose);
        if is_recording { commands::record::failure_status(&error) } else { code }
    })
}

/// Shows debug messages of Tompion's own crates on standard error, as `TOMPION_LOG` asks for.
fn start_log() {
    let Some(level) = std::env::var_os(LOG_VARIABLE).filter(|level| !level.is_empty()) else { return };
    let level = level.to_string_lossy();
    let Ok(level) = level.parse() else {
        let found = messages::escape_control(&level);
        return messages::print_status(format!(
            "expected off, error, warn, info, debug or trace in {LOG_VARIABLE}, found {found}"
        ));
    };
    let mut builder = env_logger::Builder::new();
    builder.filter_module("tompion", level).format(|line, record| {
        let text = record.args().to_string();
        let (process, target) = (std::process::id(), record.target());
        writeln!(line, "tompion[{process}] {target}: {}", messages::escape_control(&text))
    });
    builder.init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    /// Parses a command line of words without spaces.
    fn parse(line: &str) -> clap::ArgMatches {
        Cli::command().try_get_matches_from(line.split(' ')).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    #[test]
    fn old_names_of_flags_mean_the_new_ones() {
        let late = "tompion monitor --threshold 100us";
        for (old, new) in [
            ("tompion record --for 10s", "tompion record --duration 10s"),
            ("tompion test maxrate --for 1s", "tompion test maxrate --duration 1s"),
            ("tompion monitor --job a --misses", "tompion monitor --job a --deadline-misses"),
            (&format!("{late} --pause 1s"), &format!("{late} --cooldown 1s")),
            (&format!("{late} --most 2"), &format!("{late} --max-incidents 2")),
            (&format!("{late} --keep 3"), &format!("{late} --retain 3")),
            (&format!("{late} --with app:*"), &format!("{late} --capture app:*")),
        ] {
            assert_eq!(parse(old), parse(new), "{old}");
        }
    }
}
