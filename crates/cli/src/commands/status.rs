//! `tompion status`: shows running recordings, and the sessions of a supervisor.

use std::{io::Write, process::ExitCode};

use clap::Args;
use serde::Serialize;
use tompion_control::{Recording, Status, recordings};
use tompion_status::{Silent, sessions_of, write_recording, write_sessions};
use tompion_supervisor::{Instance, Sessions};

use crate::messages::{self, print_status};

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    tompion status               # this user's recordings, also those that were started by sudo\n  \
    tompion status flight        # the one that was started with --session flight\n  \
    tompion status 4711          # the one whose recorder has this process id\n  \
    tompion status --json | jq '.recordings[] | {name, events: ([.processes[].events] | add)}'\n\n\
Exit status: 0 shown, 1 a recorder did not answer, or there is none of that name.")]
pub struct Arguments {
    /// Name of the session, or process id of the recorder [default: all of this user]
    #[arg(value_name = "SESSION")]
    session: Option<String>,
    /// Print JSON, as the recorders reply
    #[arg(long)]
    json: bool,
}

/// All recorders' answers.
#[derive(Default, Serialize)]
struct Answers {
    recordings: Vec<Status>,
    /// Sessions of the user's supervisor, if one runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    supervisor: Option<Sessions>,
    /// Sessions of the user that root's supervisor records by a grant.
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<Sessions>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    silent: Vec<Silent>,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let answers = match &arguments.session {
        Some(named) => ask_for(named)?,
        None => ask_all(),
    };
    let mut output = anstream::stdout().lock();
    if arguments.json {
        serde_json::to_writer_pretty(&mut output, &answers)?;
        writeln!(output)?;
    } else {
        for (index, status) in answers.recordings.iter().enumerate() {
            if index != 0 {
                writeln!(output)?;
            }
            write_recording(status, &mut output)?;
        }
        let mut is_empty = answers.recordings.is_empty();
        for (title, supervisor) in [
            ("sessions of the supervisor", &answers.supervisor),
            ("sessions by a grant, of root's supervisor", &answers.system),
        ] {
            if let Some(supervisor) = supervisor.as_ref().filter(|it| !it.sessions.is_empty()) {
                if !is_empty {
                    writeln!(output)?;
                }
                is_empty = false;
                write_sessions(title, supervisor, &mut output)?;
            }
        }
        if is_empty && answers.silent.is_empty() {
            print_status("no recording of this user is running");
        }
    }
    answers.silent.iter().for_each(|silent| print_status(&silent.error));
    Ok(if answers.silent.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(messages::FAILED) })
}

/// Asks the recordings of a name, and the supervisors for the session.
fn ask_for(name: &str) -> anyhow::Result<Answers> {
    let of_name = |instance| -> Option<Sessions> {
        let mut supervisor = sessions_of(instance)?;
        supervisor.sessions.retain(|session| session.name == name);
        Some(supervisor)
    };
    let (mut supervisor, system) = (of_name(Instance::Own), of_name(Instance::System));
    let sessions: Vec<_> = [&supervisor, &system].into_iter().flatten().flat_map(|it| &it.sessions).collect();
    let channels = sessions.iter().flat_map(|session| &session.channels);
    let names: Vec<&str> =
        channels.filter(|channel| channel.pid.is_some()).map(|channel| channel.recording.as_str()).collect();
    let mut answers = if sessions.is_empty() {
        supervisor = None;
        Answers { recordings: vec![Recording::find(name)?.status()?], ..Answers::default() }
    } else {
        // One of the session's name may have been started by hand.
        let is_asked = |recording: &Recording| recording.name() == name || names.contains(&recording.name());
        ask(recordings().into_iter().filter(is_asked))
    };
    (answers.supervisor, answers.system) = (supervisor, system.filter(|it| !it.sessions.is_empty()));
    Ok(answers)
}

fn ask_all() -> Answers {
    let (supervisor, system) = (sessions_of(Instance::Own), sessions_of(Instance::System));
    Answers { supervisor, system, ..ask(recordings()) }
}

fn ask(recordings: impl IntoIterator<Item = Recording>) -> Answers {
    let mut answered = Vec::new();
    let silent = tompion_status::ask(recordings, |status| answered.push(status));
    Answers { recordings: answered, silent, ..Answers::default() }
}
