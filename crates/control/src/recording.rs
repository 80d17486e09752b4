//! Running recordings, as another program sees them.

use std::{
    io,
    os::fd::AsFd as _,
    thread,
    time::{Duration, Instant},
};

use serde::Deserialize;
use serde_json::json;
use tompion_os::DirHandle;
use tompion_varlink::{CallError, Client, ClientError};

use crate::{
    place::{self, SOCKET},
    qualified,
    types::{Chunk, EventCounts, Firing, RuleChange, Rules, Status},
};

/// Time for a reply. A snapshot of large rings on a slow disk takes the longest.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);
/// Time for a reply of a recorder that may be stopped.
const STATUS_TIMEOUT: Duration = Duration::from_secs(3);

/// Time for a recording to end. Its command has five seconds, its disk may be slow.
const END_TIMEOUT: Duration = Duration::from_secs(60);
/// Time for a change of kernel events: the kernel checks each program that it has not loaded yet.
const KERNEL_TIMEOUT: Duration = Duration::from_secs(120);
/// Interval between two looks whether it has.
const END_INTERVAL: Duration = Duration::from_millis(5);

/// Reason why a recorder didn't do what it was told.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// There is no such recording.
    #[error("no recording of this user is named {0}; tompion status lists them")]
    NotFound(String),
    /// The recorder is stopped, or hangs.
    #[error("the recorder {0} does not answer; it may be stopped")]
    Silent(String),
    /// The user may not do that.
    #[error("the recorder {name} takes this from {needs} only")]
    NotPermitted {
        /// The recording.
        name: String,
        /// User or users that may.
        needs: String,
    },
    /// The rules can't be.
    #[error("the recorder {name} refused the rules: {problem}")]
    InvalidRules {
        /// The recording.
        name: String,
        /// Reason.
        problem: String,
    },
    /// The triggers can't be.
    #[error("the recorder {name} refused the trigger: {problem}")]
    InvalidTrigger {
        /// The recording.
        name: String,
        /// Reason, with the trigger.
        problem: String,
    },
    /// It has no trigger of this text.
    #[error("{name} has no trigger `{trigger}`; tompion trigger {name} --list shows them")]
    UnknownTrigger {
        /// The recording.
        name: String,
        /// Text of the trigger.
        trigger: String,
    },
    /// It is no flight recorder.
    #[error("{0} is recorded in discard mode, which writes everything as it comes")]
    NoFlightRecorder(String),
    /// It is not in chunks.
    #[error("{0} is recorded into one trace; chunks take: tompion record --rotate manual")]
    NotInChunks(String),
    /// It counts nothing.
    #[error("{0} counts no events; start it with --count 'count GLOB by FIELD'")]
    NoCounts(String),
    /// It has no such trigger.
    #[error("{name} has no external trigger {word}; start it with --trigger 'external:{word} -> …'")]
    NoTrigger {
        /// The recording.
        name: String,
        /// Word of the trigger.
        word: String,
    },
    /// No incident can have this id.
    #[error("expected an incident of at most 64 letters, digits and characters of -_.:, found `{0}`")]
    InvalidIncident(String),
    /// It is about to end.
    #[error("the recording {0} is about to end")]
    Ending(String),
    /// It goes on, although it was asked to end.
    #[error("{0} has not ended within {timeout} s", timeout = END_TIMEOUT.as_secs())]
    NotEnded(String),
    /// Something else.
    #[error("the recorder {name}: {error}")]
    Other {
        /// The recording.
        name: String,
        /// Failure of the call.
        error: ClientError,
    },
}

/// Connection to the recorder of a running recording.
#[derive(Debug)]
pub struct Recording {
    name: String,
    folder: DirHandle,
    /// Process id of the only recorder that is talked to; any without one.
    recorder: Option<u32>,
}

/// Finds the recordings of the user who owns what this program writes. Those of killed recorders
/// are left out.
pub fn recordings() -> Vec<Recording> {
    let folders = place::folders().into_iter();
    let found = folders.map(|(name, folder)| Recording { name, folder, recorder: None });
    found.filter(|recording| recording.folder.connect(SOCKET).is_ok()).collect()
}

/// Has a recorder of root save what it holds, which records for this user by a grant: it takes
/// calls and no signals. Returns the trace and the number of events; `None` if it is no such
/// recorder.
///
/// # Errors
/// If the recorder refuses.
pub fn save_by_grant(named: &str, after: Duration) -> Result<Option<(String, u64)>, ControlError> {
    let own = tompion_os::effective_user();
    let Ok(recording) = Recording::find(named) else { return Ok(None) };
    let Ok(status) = recording.status() else { return Ok(None) };
    if own == 0 || tompion_os::users_of(status.pid).get(1) == Some(&own) {
        return Ok(None);
    }
    match recording.save_snapshot_after(after) {
        Ok(events) => Ok(Some((status.folder, events))),
        Err(ControlError::NotPermitted { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

#[derive(Deserialize)]
struct KernelReply {
    problems: Vec<String>,
}

#[derive(Deserialize)]
struct StatusReply {
    status: Status,
}

#[derive(Deserialize)]
struct CountsReply {
    counts: serde_json::Value,
}

#[derive(Deserialize)]
struct EventCountsReply {
    counts: EventCounts,
}

#[derive(Deserialize)]
struct Saved {
    events: u64,
}

#[derive(Deserialize)]
struct Fired {
    fired: bool,
}

#[derive(Deserialize)]
struct Watched {
    firing: Option<Firing>,
}

/// Subscription to the firings of triggers.
#[derive(Debug)]
pub struct TriggerWatch {
    recording: Recording,
    client: Client,
    /// Firing that came with the first reply.
    first: Option<Firing>,
}

impl TriggerWatch {
    /// Waits for the next firing; none if the recording has ended.
    ///
    /// # Errors
    /// If the recorder refuses.
    pub fn next_firing(&mut self) -> Result<Option<Firing>, ControlError> {
        if let Some(firing) = self.first.take() {
            return Ok(Some(firing));
        }
        loop {
            match self.client.next_reply() {
                Ok(Watched { firing: Some(firing) }) => return Ok(Some(firing)),
                Ok(Watched { firing: None }) => {}
                Err(ClientError::Closed) => return Ok(None),
                Err(error) => return Err(self.recording.explain(error)),
            }
        }
    }
}

#[derive(Deserialize)]
struct Rotated {
    chunk: Chunk,
}

#[derive(Deserialize)]
struct Nothing {}

impl Recording {
    /// Finds a recording by its name: that of the session, or the recorder's process id.
    ///
    /// # Errors
    /// If there is none.
    pub fn find(name: &str) -> Result<Self, ControlError> {
        let mut all = recordings();
        if let Some(index) = all.iter().position(|recording| recording.name == name) {
            return Ok(all.swap_remove(index));
        }
        // A named one can be found by its recorder's process id, too.
        let is_it = |recording: &Recording| {
            name.parse().is_ok_and(|pid: u32| recording.status().is_ok_and(|status| status.pid == pid))
        };
        all.into_iter().find(is_it).ok_or_else(|| ControlError::NotFound(name.into()))
    }

    /// Finds the recording of one recorder by its name, among those of another user if one is
    /// given. Calls don't find it once another process has the name.
    ///
    /// # Errors
    /// If no recorder has the name: this one does not listen yet, or no more.
    pub fn of_recorder(name: &str, pid: u32, user: Option<u32>) -> Result<Self, ControlError> {
        let (name, folder) = user
            .map_or_else(place::folders, place::folders_of)
            .into_iter()
            .find(|(found, _)| found == name)
            .ok_or_else(|| ControlError::NotFound(name.into()))?;
        Ok(Self { name, folder, recorder: Some(pid) })
    }

    /// Finds a recording by its session's name, without asking the recorder anything.
    pub fn find_by_name(name: &str) -> Option<Self> {
        recordings().into_iter().find(|recording| recording.name == name)
    }

    /// Name under which it is found.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Asks for its state.
    ///
    /// # Errors
    /// If the recorder has ended, or does not answer.
    pub fn status(&self) -> Result<Status, ControlError> {
        let ask = || self.call("GetStatus", &json!({}), STATUS_TIMEOUT);
        let answer = match ask() {
            // It was killed meanwhile: there is none now, or the next one.
            Err(error) if is_cut(&error) => ask(),
            answer => answer,
        };
        answer.map(|StatusReply { status }| status)
    }

    /// Asks for what programs have counted in place, as JSON: the document of `tompion-counting`.
    ///
    /// # Errors
    /// If the recorder counts nothing, has ended, or does not answer.
    pub fn counts(&self) -> Result<serde_json::Value, ControlError> {
        self.call("GetCounts", &json!({}), REPLY_TIMEOUT).map(|CountsReply { counts }| counts)
    }

    /// Asks for its events by name.
    ///
    /// # Errors
    /// If the recorder has ended, does not answer, or is older than the method.
    pub fn event_counts(&self) -> Result<EventCounts, ControlError> {
        self.call("GetEventCounts", &json!({}), STATUS_TIMEOUT).map(|EventCountsReply { counts }| counts)
    }

    /// Replaces its rules.
    ///
    /// # Errors
    /// If the recorder refuses.
    pub fn set_rules(&self, rules: &Rules) -> Result<RuleChange, ControlError> {
        self.call("SetRules", &json!({ "rules": rules }), REPLY_TIMEOUT)
    }

    /// Replaces all triggers.
    ///
    /// # Errors
    /// If the recorder refuses.
    pub fn set_triggers(&self, triggers: &[String]) -> Result<RuleChange, ControlError> {
        self.call("SetTriggers", &json!({ "triggers": triggers }), REPLY_TIMEOUT)
    }

    /// Removes some triggers and adds others.
    ///
    /// # Errors
    /// If the recorder refuses.
    pub fn change_triggers(&self, add: &[String], remove: &[String]) -> Result<RuleChange, ControlError> {
        self.call("ChangeTriggers", &json!({ "add": add, "remove": remove }), REPLY_TIMEOUT)
    }

    /// Replaces the choice of kernel events. Returns lines about those that can't be recorded.
    ///
    /// # Errors
    /// If the recorder refuses.
    pub fn set_kernel_events(&self, events: &[String]) -> Result<Vec<String>, ControlError> {
        let parameters = json!({ "events": events });
        self.call("SetKernelEvents", &parameters, KERNEL_TIMEOUT).map(|KernelReply { problems }| problems)
    }

    /// Has what a flight recorder holds saved. Returns the number of events.
    ///
    /// # Errors
    /// If the recorder refuses.
    pub fn save_snapshot(&self) -> Result<u64, ControlError> {
        self.call("SaveSnapshot", &json!({}), REPLY_TIMEOUT).map(|Saved { events }| events)
    }

    /// The same, and again after a time, without a gap between.
    ///
    /// # Errors
    /// If the recorder refuses.
    pub fn save_snapshot_after(&self, after: Duration) -> Result<u64, ControlError> {
        let after_ns = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
        let timeout = REPLY_TIMEOUT.saturating_add(after);
        let parameters = json!({ "after_ns": after_ns });
        self.call("SaveSnapshotAfter", &parameters, timeout).map(|Saved { events }| events)
    }

    /// Drops the open chunk, or a flight recorder's history.
    ///
    /// # Errors
    /// If the recorder refuses.
    pub fn clear(&self) -> Result<(), ControlError> {
        self.call("Clear", &json!({}), REPLY_TIMEOUT).map(|Nothing {}| ())
    }

    /// Says the word of an external trigger, with the id of the incident if there is one already;
    /// returns whether one has fired.
    ///
    /// # Errors
    /// If the recorder refuses.
    pub fn fire_trigger(&self, word: &str, incident: Option<&str>) -> Result<bool, ControlError> {
        let mut parameters = json!({ "word": word });
        // Older recorders don't know it.
        incident.into_iter().for_each(|id| parameters["incident"] = id.into());
        self.call("FireTrigger", &parameters, REPLY_TIMEOUT).map(|Fired { fired }| fired)
    }

    /// Subscribes to the firings of its triggers: all that come after this.
    ///
    /// # Errors
    /// If the recorder can't be reached, or refuses.
    pub fn watch_triggers(self) -> Result<TriggerWatch, ControlError> {
        let mut client = self.connect(REPLY_TIMEOUT)?;
        let subscribed = client.subscribe(&qualified("WatchTriggers"), &json!({}));
        subscribed.map_err(|error| self.explain(error))?;
        // The first reply tells that it sends the others.
        match client.next_reply() {
            Ok(Watched { firing }) => Ok(TriggerWatch { recording: self, client, first: firing }),
            Err(error) => Err(self.explain(error)),
        }
    }

    /// Ends the open chunk, which is returned, and begins the next one.
    ///
    /// # Errors
    /// If the recorder refuses.
    pub fn rotate(&self) -> Result<Chunk, ControlError> {
        self.call("Rotate", &json!({}), REPLY_TIMEOUT).map(|Rotated { chunk }| chunk)
    }

    /// Ends it.
    ///
    /// # Errors
    /// If the recorder refuses.
    pub fn stop(&self) -> Result<(), ControlError> {
        match self.call("Stop", &json!({}), REPLY_TIMEOUT) {
            // It may end before its reply is on the way.
            Err(error) if is_cut(&error) && matches!(self.status(), Err(ControlError::NotFound(_))) => Ok(()),
            reply => reply.map(|Nothing {}| ()),
        }
    }

    /// Ends it, and waits until its trace is complete. Returns the trace's folder.
    ///
    /// # Errors
    /// If the recorder refuses, or does not end in time.
    pub fn stop_and_wait(&self) -> Result<String, ControlError> {
        let before = self.status()?;
        self.stop()?;
        let deadline = Instant::now() + END_TIMEOUT;
        loop {
            match self.status() {
                // It answers nothing more once the trace is complete.
                Err(ControlError::NotFound(_)) => return Ok(before.folder),
                // Another one has its name by now.
                Ok(now) if now.pid != before.pid || now.begin_ns != before.begin_ns => {
                    return Ok(before.folder);
                }
                _ if Instant::now() >= deadline => return Err(ControlError::NotEnded(self.name.clone())),
                _ => thread::sleep(END_INTERVAL),
            }
        }
    }

    fn call<T: serde::de::DeserializeOwned>(
        &self,
        method: &str,
        parameters: &serde_json::Value,
        timeout: Duration,
    ) -> Result<T, ControlError> {
        let mut client = self.connect(timeout)?;
        client.call(&qualified(method), parameters).map_err(|error| self.explain(error))
    }

    fn connect(&self, timeout: Duration) -> Result<Client, ControlError> {
        let not_found = || ControlError::NotFound(self.name.clone());
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => not_found(),
            _ => ControlError::Other { name: self.name.clone(), error: error.into() },
        };
        let connected = self.folder.connect(SOCKET).map_err(failed)?;
        let peer = tompion_os::peer_of(connected.as_fd()).map_err(failed)?;
        if self.recorder.is_some_and(|recorder| recorder != peer.pid) {
            return Err(not_found());
        }
        Ok(Client::new(connected, timeout))
    }

    fn explain(&self, error: ClientError) -> ControlError {
        let name = self.name.clone();
        let text = |error: &CallError, key: &str| {
            error.parameters.get(key).and_then(serde_json::Value::as_str).unwrap_or_default().to_owned()
        };
        let refused = match &error {
            ClientError::Timeout(_) => return ControlError::Silent(name),
            ClientError::Refused(refused) => refused,
            _ => return ControlError::Other { name, error },
        };
        match refused.name.rsplit('.').next() {
            Some("NotPermitted") => ControlError::NotPermitted { name, needs: text(refused, "needs") },
            Some("InvalidRules") => ControlError::InvalidRules { name, problem: text(refused, "problem") },
            Some("InvalidTrigger") => {
                let (trigger, problem) = (text(refused, "trigger"), text(refused, "problem"));
                // Problems of what a trigger wants name it already.
                let is_named = trigger.is_empty() || problem.contains(&trigger);
                let problem = if is_named { problem } else { format!("`{trigger}`: {problem}") };
                ControlError::InvalidTrigger { name, problem }
            }
            Some("UnknownTrigger") => {
                ControlError::UnknownTrigger { name, trigger: text(refused, "trigger") }
            }
            Some("NoFlightRecorder") => ControlError::NoFlightRecorder(name),
            Some("NoTrigger") => ControlError::NoTrigger { name, word: text(refused, "word") },
            Some("InvalidIncident") => ControlError::InvalidIncident(text(refused, "incident")),
            Some("NoCounts") => ControlError::NoCounts(name),
            Some("NotInChunks") => ControlError::NotInChunks(name),
            Some("Ending") => ControlError::Ending(name),
            _ => ControlError::Other { name, error },
        }
    }
}

/// Whether the connection ended without a reply: the recorder may be gone.
fn is_cut(error: &ControlError) -> bool {
    matches!(error, ControlError::Other { error: ClientError::Closed | ClientError::Connection(_), .. })
}

#[cfg(test)]
mod tests {
    use std::{os::unix::net::UnixListener, thread};

    use tompion_os::DirHandle;
    use tompion_testing::TestDir;

    use super::*;

    #[test]
    fn a_recorder_that_is_killed_while_it_is_asked_is_not_there() {
        let asked = ask_one_that_ends(Recording::status);
        assert!(matches!(asked, Err(ControlError::NotFound(_))), "{asked:?}");
    }

    #[test]
    fn a_recorder_that_ends_before_its_reply_has_been_stopped() {
        let stopped = ask_one_that_ends(Recording::stop);
        assert!(stopped.is_ok(), "{stopped:?}");
    }

    /// Calls a recorder that ends without a reply.
    fn ask_one_that_ends<T>(call: impl FnOnce(&Recording) -> T) -> T {
        let dir = TestDir::new("control-ends");
        let listener = UnixListener::bind(dir.join(SOCKET)).expect("a socket");
        let ends = thread::spawn(move || {
            let accepted = listener.accept().expect("a connection");
            drop(listener);
            drop(accepted);
        });
        let folder = DirHandle::open(dir.path()).expect("a folder");
        let answer = call(&Recording { name: "ends".into(), folder, recorder: None });
        ends.join().expect("its end");
        answer
    }
}
