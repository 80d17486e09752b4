//! One look at all recordings of a user.

use std::time::{Duration, Instant};

use tompion_control::{ControlError, Recording, Status};

/// State of all recordings at one time.
#[derive(Debug)]
pub struct Look {
    /// Time of its begin.
    pub(crate) at: Instant,
    pub(crate) recordings: Vec<Found>,
    /// Recorders that did not answer, one line each.
    pub(crate) silent: Vec<String>,
}

/// A recording, and what its recorder costs.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// Time of the reply: a recorder before it may have been slow.
    pub(crate) at: Instant,
    pub(crate) status: Status,
    /// CPU time that the recorder has taken; none if it can't be read.
    pub(crate) cpu: Option<Duration>,
}

impl Look {
    /// Asks the recorders of these recordings. One that has ended in the meantime is left out.
    pub fn at(recordings: impl IntoIterator<Item = Recording>) -> Self {
        let mut look = Self { at: Instant::now(), recordings: Vec::new(), silent: Vec::new() };
        for recording in recordings {
            match recording.status() {
                Ok(status) => {
                    let (at, cpu) = (Instant::now(), tompion_os::cpu_time(status.pid));
                    look.recordings.push(Found { at, status, cpu });
                }
                Err(ControlError::NotFound(_) | ControlError::Ending(_)) => {}
                Err(error) => look.silent.push(error.to_string()),
            }
        }
        look
    }
}
