//! `tompion top`: rates, losses and memory of running recordings by process, or rates by event,
//! refreshed.

use std::{
    io::{IsTerminal, Write},
    process::ExitCode,
    time::Duration,
};

use clap::{Args, ValueEnum};
use tompion_control::{Recording, recordings};
use tompion_status::{Compared, EventTable, Table};

use super::monitor::StopSignals;
use crate::{
    messages,
    screen::{DIM, END, Screen},
    units,
};

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    tompion top                        # this user's recordings, each second until Ctrl-C\n  \
    tompion top flight                 # the one that was started with --session flight\n  \
    tompion top flight --by event      # its events by name\n  \
    tompion top --once --interval 10s  # one table, on standard output\n  \
    tompion top --json | jq -c '.recordings[] | {name, events_per_s, lost_per_s}'\n\n\
Rates are of processes that run at the end of an interval. `full` is the share of the fullest ring that waits to be \
written, or that holds a flight recorder's history; `history` is how far back the ring \
with the highest rate reaches, once it is full. `rings` is memory that rings may take at most, `CPU` the recorder's own share of one CPU.\n\n\
By event, numbers are of events that the recorder has converted: in discard mode within 50 ms or so, of a flight \
recorder only when they are saved, so that its rates are unknown. The kernel's events are in no number.\n\n\
Exit status: 0 shown, 1 there is no recording of that name, or it has ended.")]
pub struct Arguments {
    /// Name of the session, or process id of the recorder [default: all of this user]
    #[arg(value_name = "SESSION")]
    session: Option<String>,
    /// Show rates by process, or by the name of events
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = By::Process)]
    by: By,
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

/// Rows of the table.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    /// Processes.
    Process,
    /// Names of events.
    Event,
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
    match arguments.by {
        By::Process => show::<Table>(arguments),
        By::Event => show::<EventTable>(arguments),
    }
}

/// Shows a table after each interval.
fn show<T: Compared>(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let stop = StopSignals::new()?;
    let look = || match &arguments.session {
        Some(name) => T::look(Recording::find(name).into_iter().collect()),
        None => T::look(recordings()),
    };
    let mut before = look();
    let mut next = || -> anyhow::Result<Option<T>> {
        if stop.wait(arguments.interval)? {
            return Ok(None);
        }
        let after = look();
        let table = T::between(&before, &after);
        before = after;
        Ok(Some(table))
    };
    let output = std::io::stdout();
    if arguments.json || arguments.once || !output.is_terminal() {
        while let Some(table) = next()? {
            if arguments.json {
                let mut output = output.lock();
                serde_json::to_writer(&mut output, &table)?;
                writeln!(output)?;
            } else {
                writeln!(anstream::stdout(), "{}", table.frame((u16::MAX, u16::MAX)))?;
            }
            // The recording is there no more.
            if arguments.session.is_some() && table.is_empty() {
                return Ok(ExitCode::from(messages::FAILED));
            }
            if arguments.once || !arguments.json {
                break;
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut screen = Screen::enter(output)?;
    screen.draw(&format!("{DIM}first rates in {:?}{END}", arguments.interval))?;
    while let Some(table) = next()? {
        let (columns, rows) = screen.size();
        let shown = table.frame((columns, rows.saturating_sub(1)));
        screen.draw(&format!("{shown}\n{DIM}Ctrl-C ends the display; recording goes on{END}"))?;
    }
    Ok(ExitCode::SUCCESS)
}
