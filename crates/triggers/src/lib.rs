//! Triggers of a recording: conditions, what they cause, and limits of their rates.
//!
//! ```text
//! killed -> rotate, notify limit 5/h
//! killed:worker* -> notify
//! silence:app:beat for 5s -> snapshot
//! rate:100k/s -> notify
//! external:slow -> snapshot, run ./collect.sh --now after 2s
//! span:app:request > 10ms -> snapshot after 5s
//! late:motor:control -> notify
//! event:app:request ? ns > 10ms -> snapshot, notify capture ns, url after 5s limit 5/h
//! ```
//!
//! Pure: conditions are observed and actions are done by the recorder.
#![forbid(unsafe_code)]

mod check;
mod event;
mod parse;
mod rate;
mod table;
mod threshold;

use std::time::Duration;

pub use check::{Abilities, obstacle};
pub use event::{EventCondition, MAX_EVENT_TRIGGERS};
pub use parse::{MAX_AFTER, TriggerError};
pub use rate::{Decision, RateLimiter};
pub use table::EventTable;
pub use threshold::{Count, Counts, Threshold};

/// Rule that one thing causes others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// Its text, by which people know it.
    pub text: String,
    /// Cause.
    pub condition: Condition,
    /// Effects, in order.
    pub actions: Vec<Action>,
    /// Fields of the event that a firing tells; empty for all.
    pub fields: Vec<String>,
    /// Time for which a snapshot goes on.
    pub after: Duration,
    /// Limit of its rate; it fires as often as its condition holds without.
    pub limit: Option<Limit>,
}

impl Trigger {
    /// Whether it runs a command.
    pub fn runs_command(&self) -> bool {
        self.actions.iter().any(|action| matches!(action, Action::Run(_)))
    }
}

/// Cause of a firing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// A program or a user says this word.
    External(String),
    /// The recorded command was killed by a signal.
    Killed,
    /// A recorded program of a name that matches the glob was killed by a signal.
    KilledProgram(String),
    /// Events of programs were lost.
    Loss,
    /// So many percent of a program's ring came to wait to be written.
    Fill(u32),
    /// Programs came to record so many events per second.
    Rate(u64),
    /// A program came to an event.
    Event(EventCondition),
}

/// Effect of a firing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Save what the flight recorder holds.
    Snapshot,
    /// End the open chunk.
    Rotate,
    /// End the recording.
    Stop,
    /// Tell those that watch.
    Notify,
    /// Run a program with its arguments.
    Run(Vec<String>),
}

/// Maximum number of firings within any time of this length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Number of firings, at least 1.
    pub count: u32,
    /// Length of time.
    pub per: Duration,
}
