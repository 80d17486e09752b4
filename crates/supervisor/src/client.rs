//! The supervisor, as another program sees it.

use std::{io, os::unix::net::UnixStream, time::Duration};

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tompion_control::{CallError, Client, ClientError, connect_to_supervisor};

use crate::{
    qualified,
    types::{Applied, Sessions},
};

/// Time for a look.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for a change: recordings end and begin, and others' changes come first.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(300);

/// Reason why the supervisor didn't do what it was told.
#[derive(Debug, thiserror::Error)]
pub enum SupervisorError {
    /// None runs.
    #[error("no supervisor of this user runs; start one: tompion serve")]
    NotRunning,
    /// Its socket can't be reached.
    #[error("can't reach the supervisor: {0}")]
    Unreachable(io::Error),
    /// There is no such session.
    #[error("no file describes a session named {0}, and none runs; tompion status lists them")]
    NoSuchSession(String),
    /// The session can't be as it is described.
    #[error("{0}")]
    InvalidSession(String),
    /// A recorder failed.
    #[error("the recorder {recording} failed: {problem}")]
    Failed {
        /// The recording.
        recording: String,
        /// Reason.
        problem: String,
    },
    /// The user may not do that.
    #[error("the supervisor takes this from {0} only")]
    NotPermitted(String),
    /// Something else.
    #[error("the supervisor: {0}")]
    Other(ClientError),
}

#[derive(Deserialize)]
struct Folders {
    folders: Vec<String>,
}

/// Whether the user who owns what this program writes has a supervisor.
pub fn is_running() -> bool {
    connect().is_ok()
}

/// Lists the sessions of the user's supervisor.
///
/// # Errors
/// If there is none, or it does not answer.
pub fn list() -> Result<Sessions, SupervisorError> {
    call("List", &json!({}), LIST_TIMEOUT)
}

/// Has the supervisor do what a session's files say.
///
/// # Errors
/// If it refuses, or a recorder fails.
pub fn apply(name: &str, restart: bool) -> Result<Applied, SupervisorError> {
    call("Apply", &json!({ "name": name, "restart": restart }), CHANGE_TIMEOUT)
}

/// Has the supervisor end a session. Returns the folders of the traces.
///
/// # Errors
/// If it refuses, or a recorder does not end.
pub fn stop(name: &str) -> Result<Vec<String>, SupervisorError> {
    call("Stop", &json!({ "name": name }), CHANGE_TIMEOUT).map(|Folders { folders }| folders)
}

fn connect() -> Result<UnixStream, SupervisorError> {
    connect_to_supervisor().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => SupervisorError::NotRunning,
        _ => SupervisorError::Unreachable(error),
    })
}

fn call<T: DeserializeOwned>(
    method: &str,
    parameters: &Value,
    timeout: Duration,
) -> Result<T, SupervisorError> {
    let mut client = Client::new(connect()?, timeout);
    client.call(&qualified(method), parameters).map_err(explain)
}

fn explain(error: ClientError) -> SupervisorError {
    let text = |error: &CallError, key: &str| {
        error.parameters.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let ClientError::Refused(refused) = &error else { return SupervisorError::Other(error) };
    match refused.name.rsplit('.').next() {
        Some("NoSuchSession") => SupervisorError::NoSuchSession(text(refused, "name")),
        Some("InvalidSession") => SupervisorError::InvalidSession(text(refused, "problem")),
        Some("Failed") => SupervisorError::Failed {
            recording: text(refused, "recording"),
            problem: text(refused, "problem"),
        },
        Some("NotPermitted") => SupervisorError::NotPermitted(text(refused, "needs")),
        _ => SupervisorError::Other(error),
    }
}
