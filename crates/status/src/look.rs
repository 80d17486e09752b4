//! Answers of recorders, and one look at all of them.

use std::time::{Duration, Instant};

use serde::Serialize;
use tompion_control::{ControlError, Recording, Status};

/// A recorder that did not answer.
#[derive(Clone, Debug, Serialize)]
pub struct Silent {
    /// Name of the recording.
    pub name: String,
    /// Reason, in a line.
    pub error: String,
}

/// Asks the recorders of these recordings, one after the other. Returns those that did not answer;
/// one that has ended in the meantime is left out.
pub fn ask(recordings: impl IntoIterator<Item = Recording>, mut answered: impl FnMut(Status)) -> Vec<Silent> {
    let mut silent = Vec::new();
    for recording in recordings {
        match recording.status() {
            Ok(status) => answered(status),
            Err(ControlError::NotFound(_) | ControlError::Ending(_)) => {}
            Err(error) => silent.push(Silent { name: recording.name().into(), error: error.to_string() }),
        }
    }
    silent
}

/// State of all recordings at one time.
#[derive(Debug)]
pub struct Look {
    /// Time of its begin.
    pub(crate) at: Instant,
    pub(crate) recordings: Vec<Answer>,
    pub(crate) silent: Vec<Silent>,
}

/// Answer of a recorder, and what that costs.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// Time of the reply: a recorder before it may have been slow.
    pub(crate) at: Instant,
    pub(crate) status: Status,
    /// CPU time that the recorder has taken; none if it can't be read.
    pub(crate) cpu: Option<Duration>,
}

impl Look {
    /// Asks the recorders of these recordings.
    pub fn at(recordings: impl IntoIterator<Item = Recording>) -> Self {
        let (at, mut answers) = (Instant::now(), Vec::new());
        let silent = ask(recordings, |status| {
            let (at, cpu) = (Instant::now(), tompion_os::cpu_time(status.pid));
            answers.push(Answer { at, status, cpu });
        });
        Self { at, recordings: answers, silent }
    }
}
