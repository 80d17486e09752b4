//! The supervisor, as another program sees it.

use std::{io, os::unix::net::UnixStream, time::Duration};

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tompion_control::{
    CallError, Client, ClientError, connect_to_supervisor, connect_to_system, control_folder,
};

use crate::{
    files::SessionFiles,
    qualified,
    types::{Applied, Sessions},
};

/// Time for a look.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for a change: recordings end and begin, and others' changes come first.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(300);

/// A supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instance {
    /// That of the user who owns what this program writes.
    Own,
    /// Root's, which serves this user by a grant.
    System,
}

/// Reason why the supervisor didn't do what it was told.
#[derive(Debug, thiserror::Error)]
pub enum SupervisorError {
    /// None runs.
    #[error("no supervisor of this user runs; start one: tompion serve")]
    NotRunning,
    /// Root has none.
    #[error("no supervisor of root runs, which records by grants; as root: systemctl start tompion")]
    NoSystem,
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
    /// The user's grant is not enough.
    #[error("not permitted; it needs {0}")]
    NotGranted(String),
    /// It takes more than is left of the user's grant.
    #[error("it needs {wanted} {what}, and {left} are left of your grant")]
    WouldExceed {
        /// Thing of which it takes too much.
        what: String,
        /// Amount that it needs.
        wanted: u64,
        /// Amount that is left.
        left: u64,
    },
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
    connect(Instance::Own).is_ok()
}

/// Lists the sessions of a supervisor: of root's, those of this user.
///
/// # Errors
/// If there is none, or it does not answer.
pub fn list(instance: Instance) -> Result<Sessions, SupervisorError> {
    call(instance, "List", &json!({}), LIST_TIMEOUT)
}

/// Has the user's supervisor do what a session's files say.
///
/// # Errors
/// If it refuses, or a recorder fails.
pub fn apply(name: &str, restart: bool) -> Result<Applied, SupervisorError> {
    call(Instance::Own, "Apply", &json!({ "name": name, "restart": restart }), CHANGE_TIMEOUT)
}

/// Has root's supervisor do what the user's files of a session say, within the user's grant. This
/// process reads the files, with its own rights.
///
/// # Errors
/// If there are no files, it refuses, or a recorder fails.
pub fn apply_by_grant(name: &str, restart: bool) -> Result<Applied, SupervisorError> {
    let described = SessionFiles::of_user(&control_folder()).read(name);
    let described = described.ok_or_else(|| SupervisorError::NoSuchSession(name.to_owned()))?;
    let session = described.session.map_err(SupervisorError::InvalidSession)?;
    let parameters = json!({ "name": name, "session": session, "restart": restart });
    call(Instance::System, "Run", &parameters, CHANGE_TIMEOUT)
}

/// Has a supervisor end a session of this user. Returns the folders of the traces.
///
/// # Errors
/// If it refuses, or a recorder does not end.
pub fn stop(instance: Instance, name: &str) -> Result<Vec<String>, SupervisorError> {
    let stopped = call(instance, "Stop", &json!({ "name": name }), CHANGE_TIMEOUT);
    stopped.map(|Folders { folders }| folders)
}

/// Has a supervisor end a session, if one has one of this name: the user's own, or root's, which
/// records by grants. Returns the folders of the traces.
///
/// # Errors
/// If it refuses, or a recorder does not end.
pub fn stop_session(name: &str) -> Result<Option<Vec<String>>, SupervisorError> {
    let instances = [Instance::Own, Instance::System];
    // Root's own is the system's.
    let number = if tompion_os::effective_user() == 0 { 1 } else { 2 };
    for instance in instances.into_iter().take(number) {
        match stop(instance, name) {
            Ok(folders) => return Ok(Some(folders)),
            // The name may be that of a recording, which answers for itself. A user without a grant
            // has no session there.
            Err(
                SupervisorError::NotRunning
                | SupervisorError::NoSystem
                | SupervisorError::NoSuchSession(_)
                | SupervisorError::NotGranted(_),
            ) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Has root's supervisor end a session of a user with a grant, as root. Returns the folders of the
/// traces.
///
/// # Errors
/// If it refuses, or a recorder does not end.
pub fn stop_of_user(user: u32, name: &str) -> Result<Vec<String>, SupervisorError> {
    let stopped = call(Instance::Own, "Stop", &json!({ "name": name, "user": user }), CHANGE_TIMEOUT);
    stopped.map(|Folders { folders }| folders)
}

fn connect(instance: Instance) -> Result<UnixStream, SupervisorError> {
    let (connected, none) = match instance {
        Instance::Own => (connect_to_supervisor(), SupervisorError::NotRunning),
        Instance::System => (connect_to_system(), SupervisorError::NoSystem),
    };
    connected.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => none,
        _ => SupervisorError::Unreachable(error),
    })
}

fn call<T: DeserializeOwned>(
    instance: Instance,
    method: &str,
    parameters: &Value,
    timeout: Duration,
) -> Result<T, SupervisorError> {
    let mut client = Client::new(connect(instance)?, timeout);
    client.call(&qualified(method), parameters).map_err(|error| explain(instance, error))
}

fn explain(instance: Instance, error: ClientError) -> SupervisorError {
    let text = |error: &CallError, key: &str| {
        error.parameters.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let number =
        |error: &CallError, key: &str| error.parameters.get(key).and_then(Value::as_u64).unwrap_or_default();
    let ClientError::Refused(refused) = &error else { return SupervisorError::Other(error) };
    match refused.name.rsplit('.').next() {
        Some("NoSuchSession") => SupervisorError::NoSuchSession(text(refused, "name")),
        Some("InvalidSession") => SupervisorError::InvalidSession(text(refused, "problem")),
        Some("Failed") => SupervisorError::Failed {
            recording: text(refused, "recording"),
            problem: text(refused, "problem"),
        },
        Some("NotPermitted") if instance == Instance::System => {
            SupervisorError::NotGranted(text(refused, "needs"))
        }
        Some("NotPermitted") => SupervisorError::NotPermitted(text(refused, "needs")),
        Some("WouldExceed") => SupervisorError::WouldExceed {
            what: match text(refused, "what").as_str() {
                "memory" => "bytes of memory".into(),
                what => what.to_owned(),
            },
            wanted: number(refused, "wanted"),
            left: number(refused, "left"),
        },
        _ => SupervisorError::Other(error),
    }
}
