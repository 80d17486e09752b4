//! `tompion trigger`: fires external triggers of a running recording, watches all, or changes them.

use std::{io::Write as _, process::ExitCode};

use clap::Args;
use tompion_control::Recording;
use tompion_status::{describe_change, describe_firing};

use crate::messages::{self, escape_control, print_status};

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    tompion trigger flight slow              # --trigger 'external:slow -> …' of the recording\n  \
    tompion trigger flight slow --incident req-17\n  \
    tompion trigger flight --watch           # a line for each firing, until the recording ends\n  \
    tompion trigger flight --watch --json\n  \
    tompion trigger flight --list            # the recording's triggers\n  \
    tompion trigger flight --add 'span:app:request > 10ms -> snapshot after 5s'\n  \
    tompion trigger flight --remove 'killed -> notify' --add 'killed -> rotate, notify'\n  \
    tompion trigger flight --set 'loss -> notify' --set 'external:slow -> snapshot'\n  \
    tompion trigger flight --remove all\n\n\
Triggers change while programs run, as `tompion record --trigger` takes them. Those that stay keep their limits and \
counts. Programs without a Tompion thread (with --preload, for example) see none of the new triggers on events; their \
children do.\n\n\
Exit status: 0 fired, watched until the end, shown, or all programs follow; 1 not fired (the trigger is at its limit, \
or there is none), refused, or some programs don't follow (yet).")]
pub struct Arguments {
    /// Name of the session, or process id of the recorder
    #[arg(value_name = "SESSION")]
    session: String,
    /// Word of the external trigger
    #[arg(value_name = "WORD", required_unless_present_any = ["watch", "list", "set", "add", "remove"])]
    word: Option<String>,
    /// Id of the incident, if another program knows it by one: letters, digits and -_.: [default: a
    /// new one]
    #[arg(long, value_name = "ID", requires = "word")]
    incident: Option<String>,
    /// Print each firing of a trigger that notifies
    #[arg(long, conflicts_with = "word")]
    watch: bool,
    /// Print the recording's triggers, one a line
    #[arg(long, conflicts_with_all = ["word", "watch"])]
    list: bool,
    /// Replace all triggers by this one (repeatable)
    #[arg(long, value_name = "RULE", conflicts_with_all = ["word", "watch", "list"])]
    set: Vec<String>,
    /// Add a trigger (repeatable)
    #[arg(long, value_name = "RULE", conflicts_with_all = ["word", "watch", "list", "set"])]
    add: Vec<String>,
    /// Remove the trigger with this text, as --list prints it, or all (repeatable)
    #[arg(long, value_name = "RULE", conflicts_with_all = ["word", "watch", "list", "set"])]
    remove: Vec<String>,
    /// Print JSON, an object per line
    #[arg(long, requires = "watch")]
    json: bool,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let recording = Recording::find(&arguments.session)?;
    if arguments.list {
        for trigger in recording.status()?.triggers {
            writeln!(std::io::stdout(), "{}", escape_control(&trigger))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let Arguments { set, add, remove, .. } = arguments;
    if !(set.is_empty() && add.is_empty() && remove.is_empty()) {
        let change = match (set.is_empty(), remove.iter().any(|text| text == "all")) {
            (true, false) => recording.change_triggers(add, remove)?,
            (is_empty, _) => recording.set_triggers(if is_empty { add } else { set })?,
        };
        print_status(format!(
            "{}: triggers changed; {}",
            recording.name(),
            describe_change(&change, "triggers")
        ));
        let follows = change.pending.is_empty() && change.fixed.is_empty();
        return Ok(if follows { ExitCode::SUCCESS } else { ExitCode::from(messages::FAILED) });
    }
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
        let line = if as_json { serde_json::to_string(&firing)? } else { describe_firing(&firing) };
        writeln!(output, "{line}")?;
        output.flush()?;
    }
    Ok(ExitCode::SUCCESS)
}
