//! `tompion trigger`: fires external triggers of a running recording, or watches all.

use std::{io::Write as _, process::ExitCode};

use clap::Args;
use tompion_control::{Firing, Recording};

use crate::messages::{self, escape_control, print_status};

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    tompion trigger flight slow              # --trigger 'external:slow -> …' of the recording\n  \
    tompion trigger flight slow --incident req-17\n  \
    tompion trigger flight --watch           # a line for each firing, until the recording ends\n  \
    tompion trigger flight --watch --json\n\n\
Exit status: 0 fired, or watched until the end; 1 not fired: the trigger is at its limit, or there is none.")]
pub struct Arguments {
    /// Name of the session, or process id of the recorder
    #[arg(value_name = "SESSION")]
    session: String,
    /// Word of the external trigger
    #[arg(value_name = "WORD", required_unless_present = "watch")]
    word: Option<String>,
    /// Id of the incident, if another program knows it by one: letters, digits and -_.: [default: a
    /// new one]
    #[arg(long, value_name = "ID", requires = "word")]
    incident: Option<String>,
    /// Print each firing of a trigger that notifies
    #[arg(long, conflicts_with = "word")]
    watch: bool,
    /// Print JSON, an object per line
    #[arg(long, requires = "watch")]
    json: bool,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let recording = Recording::find(&arguments.session)?;
    let Some(word) = &arguments.word else { return watch(recording, arguments.json) };
    if recording.fire_trigger(word, arguments.incident.as_deref())? {
        print_status(format!("{}: {word} has fired", recording.name()));
        return Ok(ExitCode::SUCCESS);
    }
    print_status(format!("{}: {word} is at its limit; it was counted", recording.name()));
    Ok(ExitCode::from(messages::FAILED))
}

/// Prints firings until the recording ends.
fn watch(recording: Recording, as_json: bool) -> anyhow::Result<ExitCode> {
    let name = recording.name().to_owned();
    let mut watch = recording.watch_triggers()?;
    print_status(format!("watches the triggers of {name}"));
    let mut output = std::io::stdout().lock();
    while let Some(firing) = watch.next_firing()? {
        let line = if as_json { serde_json::to_string(&firing)? } else { line_of(&firing) };
        writeln!(output, "{line}")?;
        output.flush()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Describes a firing in a line.
fn line_of(firing: &Firing) -> String {
    let Firing { trigger, cause, suppressed, captures, .. } = firing;
    let fields = captures.first().map(|capture| serde_json::Value::Object(capture.fields.clone()));
    let fields = fields.map_or_else(String::new, |fields| format!(" {fields}"));
    let more = if *suppressed == 0 { String::new() } else { format!(" ({suppressed} suppressed before)") };
    escape_control(&format!("{cause}{fields}: {trigger}{more}")).into_owned()
}
