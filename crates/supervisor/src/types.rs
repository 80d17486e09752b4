//! Replies of the interface.

use serde::{Deserialize, Serialize};

use crate::session_file::Start;

/// State of a channel's recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecorderState {
    /// It was not started, or has ended in order.
    Stopped,
    /// It runs.
    Running,
    /// It has failed, and will be started again.
    Waiting,
    /// It has failed, and will not be started again.
    Failed,
}

/// A channel and its recorder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelStatus {
    /// Name of the channel.
    pub name: String,
    /// Name of the recording.
    pub recording: String,
    /// State of the recorder.
    pub state: RecorderState,
    /// Its process id.
    pub pid: Option<u32>,
    /// Folder of the newest trace.
    pub folder: Option<String>,
    /// Number of times that it was started again after a failure.
    pub restarts: u32,
    /// Reason of the last failure.
    pub failure: Option<String>,
    /// Nanoseconds until it is started again.
    pub retry_ns: Option<u64>,
}

/// A session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionStatus {
    /// Name.
    pub name: String,
    /// The user that it records for by a grant, if that is not the supervisor's own.
    #[serde(default)]
    pub user: Option<u32>,
    /// Whether it begins with the supervisor.
    pub start: Start,
    /// Files that describe it, those of lowest priority first.
    pub files: Vec<String>,
    /// Reason why the files can't be used.
    pub problem: Option<String>,
    /// Channels by their names.
    pub channels: Vec<ChannelStatus>,
}

/// All sessions of a supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sessions {
    /// Process id of the supervisor.
    pub pid: u32,
    /// Its version.
    pub version: String,
    /// Sessions by their names.
    pub sessions: Vec<SessionStatus>,
}

/// Changes that were made, and those that need a start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// One line for each change that was made.
    pub changes: Vec<String>,
    /// One line for each change that needs a recorder to start again.
    pub pending: Vec<String>,
}
