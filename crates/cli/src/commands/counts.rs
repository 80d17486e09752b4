//! `tompion counts`: what programs of a running recording have counted in place.

use std::{
    io::{IsTerminal, Write},
    process::ExitCode,
    time::Duration,
};

use clap::Args;
use tompion_control::Recording;
use tompion_counting::Document;

use super::monitor::StopSignals;
use crate::screen::{DIM, END, Screen};

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    tompion counts                       # of this user's only recording\n  \
    tompion counts flight --watch        # each second, until Ctrl-C\n  \
    tompion counts flight --json | jq '.aggregations[].entries[] | {key, count}'\n  \
    tompion counts flight --prometheus > /var/lib/node_exporter/flight.prom\n\n\
Counts are those of `tompion record --count`, of programs that run and those that have ended. A finished recording has \
them in counts.json: `tompion stat TRACE`. (none) is a key that an event lacks, (other) all keys without room.\n\n\
Exit status: 0 shown, 1 there is no such recording, or it counts nothing.")]
pub struct Arguments {
    /// Name of the session, or process id of the recorder [default: this user's only recording]
    #[arg(value_name = "SESSION")]
    session: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print the text format of Prometheus (OpenMetrics)
    #[arg(long, conflicts_with = "json")]
    prometheus: bool,
    /// Refresh the table each second, until Ctrl-C
    #[arg(long, conflicts_with_all = ["json", "prometheus"])]
    watch: bool,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let Some(recording) = super::only_recording(arguments.session.as_deref())? else {
        return Ok(ExitCode::from(crate::messages::WRONG_USAGE));
    };
    let document = counts_of(&recording)?;
    let output = std::io::stdout();
    if !arguments.watch || !output.is_terminal() {
        let text = match (arguments.json, arguments.prometheus) {
            (true, _) => document.to_json(),
            (_, true) => document.to_prometheus().into_bytes(),
            _ => document.to_table(false).into_bytes(),
        };
        output.lock().write_all(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    let stop = StopSignals::new()?;
    let mut screen = Screen::enter(output)?;
    let mut document = document;
    loop {
        let table = document.to_table(true);
        screen.draw(&format!("{table}{DIM}Ctrl-C ends the display; counting goes on{END}"))?;
        if stop.wait(Duration::from_secs(1))? {
            return Ok(ExitCode::SUCCESS);
        }
        document = counts_of(&recording)?;
    }
}

fn counts_of(recording: &Recording) -> anyhow::Result<Document> {
    Ok(serde_json::from_value(recording.counts()?)?)
}
