//! `tompion top`: rates, losses and memory of running recordings, refreshed.

use std::{
    io::{IsTerminal, Write},
    process::ExitCode,
    time::Duration,
};

use clap::Args;
use tompion_control::{Recording, recordings};
use tompion_status::{Look, Table, frame};

use super::monitor::StopSignals;
use crate::{
    messages,
    screen::{self, Screen},
    units,
};

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    tompion top                        # this user's recordings, each second until Ctrl-C\n  \
    tompion top flight                 # the one that was started with --session flight\n  \
    tompion top --once --interval 10s  # one table, on standard output\n  \
    tompion top --json | jq -c '.recordings[] | {name, events_per_s, lost_per_s}'\n\n\
Rates are of processes that run at the end of an interval. `full` is the share of the fullest ring that waits to be \
written, or that holds a flight recorder's history; `history` is how far back the ring \
with the highest rate reaches, once it is full. `rings` is memory that rings may take at most, `CPU` the recorder's own share of one CPU.\n\n\
Exit status: 0 shown, 1 there is no recording of that name.")]
pub struct Arguments {
    /// Name of the session, or process id of the recorder [default: all of this user]
    #[arg(value_name = "SESSION")]
    session: Option<String>,
    /// Time between two looks: 500ms, 10s
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// Print one table after one interval, and end; the default where the output is no terminal
    #[arg(long)]
    once: bool,
    /// Print a JSON object for each interval, one a line
    #[arg(long)]
    json: bool,
}

/// Shortest interval: asking must not load the recorders.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

fn interval(text: &str) -> Result<Duration, String> {
    let interval = units::duration(text)?;
    if interval < MIN_INTERVAL {
        return Err(format!("expected at least 100ms, found {text}"));
    }
    Ok(interval)
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if let Some(name) = &arguments.session {
        Recording::find(name)?;
    }
    let stop = StopSignals::new()?;
    let mut before = look(arguments);
    let mut next = || -> anyhow::Result<Option<Table>> {
        if stop.wait(arguments.interval)? {
            return Ok(None);
        }
        let after = look(arguments);
        let table = Table::between(&before, &after);
        before = after;
        Ok(Some(table))
    };
    let output = std::io::stdout();
    if arguments.json {
        while let Some(table) = next()? {
            let mut output = output.lock();
            serde_json::to_writer(&mut output, &table)?;
            writeln!(output)?;
            if arguments.once {
                break;
            }
        }
    } else if arguments.once || !output.is_terminal() {
        if let Some(table) = next()? {
            writeln!(anstream::stdout(), "{}", frame(&table, (u16::MAX, u16::MAX)))?;
            return Ok(exit_status(arguments, &table));
        }
    } else {
        let mut screen = Screen::enter(output)?;
        screen.draw(&format!("{}first rates in {:?}{}", screen::DIM, arguments.interval, screen::END))?;
        while let Some(table) = next()? {
            let (columns, rows) = screen.size();
            let shown = frame(&table, (columns, rows.saturating_sub(1)));
            screen.draw(&format!(
                "{shown}\n{}Ctrl-C ends the display; recording goes on{}",
                screen::DIM,
                screen::END
            ))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Looks at the named recording, or at all of the user.
fn look(arguments: &Arguments) -> Look {
    match &arguments.session {
        Some(name) => Look::at(Recording::find(name)),
        None => Look::at(recordings()),
    }
}

fn exit_status(arguments: &Arguments, table: &Table) -> ExitCode {
    let has_ended = arguments.session.is_some() && table.recordings.is_empty();
    ExitCode::from(if has_ended { messages::FAILED } else { 0 })
}
