//! Calls of `io.tompion.Supervisor1`.

use std::{
    sync::{Arc, PoisonError},
    thread,
    time::{Duration, Instant},
};

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tompion_control::{Call, CallError, ControlError, Identity, Recording, Rules, Service, is_session_name};
use tompion_os::{DirHandle, Peer};
use tompion_schema::Level;

use crate::{
    DESCRIPTION, INTERFACE,
    difference::{Change, difference},
    qualified,
    recorder::Recorder,
    session_file::{Channel, SessionFile, Start},
    supervisor::Shared,
    types::{Applied, SessionStatus, Sessions},
};

/// Time for a recorder to answer after its start.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Time for a recording to end: its disk may be slow.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval between two looks.
const INTERVAL: Duration = Duration::from_millis(5);

/// Answers calls.
pub struct SupervisorService {
    shared: Arc<Shared>,
    /// Owner of the sessions' traces, which may look.
    owner: u32,
    /// User that the supervisor runs as, which may do everything, as root may.
    user: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoParameters {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ByName {
    name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Apply {
    name: String,
    restart: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Create {
    name: String,
    session: Map<String, Value>,
}

impl SupervisorService {
    pub fn new(shared: Arc<Shared>) -> Self {
        Self { shared, owner: tompion_os::file_user(), user: tompion_os::effective_user() }
    }

    fn check_may_change(&self, peer: Peer) -> Result<(), CallError> {
        if peer.uid == 0 || peer.uid == self.user {
            return Ok(());
        }
        let needs = if self.user == 0 { "root".to_owned() } else { format!("user {}", self.user) };
        Err(CallError::new(&qualified("NotPermitted"), "needs", needs))
    }

    fn list(&self) -> Sessions {
        let mut names = self.shared.files.names();
        names.extend(self.shared.state().sessions.keys().cloned());
        let sessions = names.into_iter().map(|name| self.describe(name)).collect();
        Sessions { pid: std::process::id(), version: env!("CARGO_PKG_VERSION").into(), sessions }
    }

    fn describe(&self, name: String) -> SessionStatus {
        let described = self.shared.files.read(&name);
        let files = described.iter().flat_map(|described| &described.files);
        let files = files.map(|file| file.to_string_lossy().into_owned()).collect();
        let (session, problem) = match described.map(|described| described.session) {
            Some(Ok(session)) => (Some(session), None),
            Some(Err(problem)) => (None, Some(problem)),
            None => (None, None),
        };
        let state = self.shared.state();
        let recorders = state.sessions.get(&name);
        let mut channels: Vec<_> = recorders.into_iter().flatten().map(|(_, it)| it.status()).collect();
        for channel in session.iter().flat_map(|session| session.channel.keys()) {
            if channels.iter().all(|known| known.name != *channel) {
                let session = session.clone().unwrap_or_default();
                channels.push(Recorder::new(&name, channel, session).status());
            }
        }
        let start = session.map_or(Start::Demand, |session| session.start);
        SessionStatus { name, start, files, problem, channels }
    }

    /// Does what a session's files say.
    fn apply(&self, name: &str, restart: bool) -> Result<Applied, CallError> {
        let _operation = self.shared.operation.lock().unwrap_or_else(PoisonError::into_inner);
        self.apply_files(name, restart)
    }

    fn apply_files(&self, name: &str, restart: bool) -> Result<Applied, CallError> {
        let described = self.shared.files.read(name).ok_or_else(|| no_such_session(name))?;
        let wanted = described.session.map_err(|problem| invalid(&problem))?;
        let rules: Vec<(&String, Rules)> = wanted
            .channel
            .iter()
            .map(|(channel, it)| Ok((channel, rules_of(it).map_err(|problem| invalid(&problem))?)))
            .collect::<Result<_, CallError>>()?;
        let changes = difference(&self.shared.state().running(name), &wanted);
        let mut applied = Applied::default();
        for (channel, change) in changes {
            let line = match change {
                Change::Stop => {
                    self.stop_channel(name, &channel)?;
                    self.shared.state().sessions.get_mut(name).and_then(|it| it.remove(&channel));
                    format!("{channel}: stopped")
                }
                Change::Restart(keys) if !restart => {
                    applied.pending.push(format!("{channel}: {}", keys.join(", ")));
                    continue;
                }
                Change::Restart(_) => {
                    self.stop_channel(name, &channel)?;
                    self.start_channel(name, &channel, &wanted)?
                }
                Change::Start => self.start_channel(name, &channel, &wanted)?,
                Change::Rules => {
                    let rules = rules.iter().find(|(of, _)| **of == channel).map(|(_, rules)| rules);
                    let Some(rules) = rules else { continue };
                    self.change_rules(name, &channel, &wanted, rules)?
                }
            };
            applied.changes.push(line);
        }
        let state = self.shared.state();
        self.shared.save(&state, name);
        Ok(applied)
    }

    /// Starts a channel's recorder, and waits until it answers.
    fn start_channel(&self, name: &str, channel: &str, wanted: &SessionFile) -> Result<String, CallError> {
        let mut recorder = Recorder::new(name, channel, wanted.clone());
        let recording = recorder.recording.clone();
        let started = recorder.start(&self.shared.launcher);
        if let Err(error) = &started {
            recorder.give_up(error.to_string());
        }
        let mut state = self.shared.state();
        let folder = recorder.folder().map(|folder| folder.display().to_string()).unwrap_or_default();
        state.sessions.entry(name.to_owned()).or_default().insert(channel.to_owned(), recorder);
        self.shared.save(&state, name);
        drop(state);
        started.map_err(|error| failed(&recording, &error.to_string()))?;
        self.wait_for_answer(name, channel, &recording)?;
        Ok(format!("{channel}: started, records into {folder}"))
    }

    fn wait_for_answer(&self, name: &str, channel: &str, recording: &str) -> Result<(), CallError> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            {
                let mut state = self.shared.state();
                let recorder = state.sessions.get_mut(name).and_then(|session| session.get_mut(channel));
                let Some(recorder) = recorder else { return Err(failed(recording, "it was removed")) };
                recorder.look(&self.shared.launcher);
                // The caller is there to see it, and to try again.
                if let Some(failure) = recorder.failure().map(str::to_owned) {
                    recorder.give_up(failure.clone());
                    self.shared.save(&state, name);
                    return Err(failed(recording, &failure));
                }
                if recorder.pid().is_none() {
                    return Ok(());
                }
            }
            if Recording::find(recording).and_then(|recording| recording.status()).is_ok() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(failed(recording, "it was started, and does not answer"));
            }
            thread::sleep(INTERVAL);
        }
    }

    /// Has a running recorder follow new rules.
    fn change_rules(
        &self,
        name: &str,
        channel: &str,
        wanted: &SessionFile,
        rules: &Rules,
    ) -> Result<String, CallError> {
        let recording = wanted.recording(name, channel);
        let change = Recording::find(&recording).and_then(|recording| recording.set_rules(rules));
        let change = change.map_err(|error| failed(&recording, &error.to_string()))?;
        let mut state = self.shared.state();
        let recorder = state.sessions.get_mut(name).and_then(|session| session.get_mut(channel));
        if let (Some(recorder), Some(wanted)) = (recorder, wanted.channel.get(channel)) {
            recorder.session.channel.insert(channel.to_owned(), wanted.clone());
        }
        let others = change.pending.len() + change.fixed.len();
        let others = if others == 0 { String::new() } else { format!(", {others} did not") };
        Ok(format!("{channel}: new rules, {} processes followed{others}", change.current))
    }

    fn stop(&self, name: &str) -> Result<Vec<String>, CallError> {
        let _operation = self.shared.operation.lock().unwrap_or_else(PoisonError::into_inner);
        self.stop_all(name)
    }

    /// Ends all recordings of a session. Returns the folders of their traces.
    fn stop_all(&self, name: &str) -> Result<Vec<String>, CallError> {
        let channels: Vec<String> = {
            let state = self.shared.state();
            let Some(session) = state.sessions.get(name) else {
                let is_described = self.shared.files.read(name).is_some();
                return if is_described { Ok(Vec::new()) } else { Err(no_such_session(name)) };
            };
            session.keys().cloned().collect()
        };
        let mut folders = Vec::new();
        for channel in &channels {
            folders.extend(self.stop_channel(name, channel)?);
        }
        let mut state = self.shared.state();
        state.sessions.remove(name);
        self.shared.save(&state, name);
        Ok(folders)
    }

    /// Ends a channel's recording, and waits until its trace is complete. Returns its folder, if
    /// it ran.
    fn stop_channel(&self, name: &str, channel: &str) -> Result<Option<String>, CallError> {
        let (recording, folder, pid) = {
            let mut state = self.shared.state();
            let recorder = state.sessions.get_mut(name).and_then(|session| session.get_mut(channel));
            let Some(recorder) = recorder else { return Ok(None) };
            let pid = recorder.pid();
            if !recorder.begin_stop() {
                return Ok(None);
            }
            let folder = recorder.folder().map(|folder| folder.to_string_lossy().into_owned());
            (recorder.recording.clone(), folder, pid)
        };
        let outcome = stop_recording(&recording, pid, || {
            let mut state = self.shared.state();
            let recorder = state.sessions.get_mut(name).and_then(|session| session.get_mut(channel));
            recorder.is_none_or(|recorder| {
                recorder.look(&self.shared.launcher);
                recorder.pid() != pid
            })
        });
        if let Err(problem) = outcome {
            let mut state = self.shared.state();
            let recorder = state.sessions.get_mut(name).and_then(|session| session.get_mut(channel));
            recorder.into_iter().for_each(Recorder::cancel_stop);
            return Err(failed(&recording, &problem));
        }
        Ok(folder)
    }

    /// Writes a file that lasts until the machine starts again, and does what it says.
    fn create(&self, create: Create) -> Result<Applied, CallError> {
        let Create { name, session } = create;
        if !is_session_name(&name) {
            return Err(invalid(&format!(
                "expected a name of letters, digits, `.`, `_` and `-` that begins with a letter, found `{name}`"
            )));
        }
        let session: SessionFile =
            serde_json::from_value(Value::Object(session)).map_err(|error| invalid(&error.to_string()))?;
        session.check().map_err(|problem| invalid(&problem))?;
        let text = toml::to_string(&session).map_err(|error| invalid(&error.to_string()))?;
        let _operation = self.shared.operation.lock().unwrap_or_else(PoisonError::into_inner);
        let write =
            || DirHandle::open(&self.shared.transient)?.replace(file_name(&name), text.as_bytes(), false);
        write().map_err(|error| failed(&name, &format!("its file can't be written: {error}")))?;
        self.apply_files(&name, false)
    }

    /// Undoes what [`Self::create`] did.
    fn remove(&self, name: &str) -> Result<Vec<String>, CallError> {
        if !is_session_name(name) {
            return Err(no_such_session(name));
        }
        let _operation = self.shared.operation.lock().unwrap_or_else(PoisonError::into_inner);
        let folders = self.stop_all(name)?;
        // A session of other files has none there.
        let _ = DirHandle::open(&self.shared.transient).and_then(|folder| folder.remove(file_name(name)));
        Ok(folders)
    }
}

/// Asks a recording to end, and waits for it.
fn stop_recording(name: &str, pid: Option<u32>, mut has_ended: impl FnMut() -> bool) -> Result<(), String> {
    let stop = || -> Result<(), ControlError> {
        let recording = Recording::find(name)?;
        if Some(recording.status()?.pid) == pid { recording.stop() } else { Ok(()) }
    };
    match stop() {
        // It has ended, or is about to.
        Ok(()) | Err(ControlError::NotFound(_) | ControlError::Ending(_)) => {}
        Err(error) => return Err(error.to_string()),
    }
    let deadline = Instant::now() + STOP_TIMEOUT;
    while !has_ended() {
        if Instant::now() >= deadline {
            return Err(format!("it has not ended within {} s", STOP_TIMEOUT.as_secs()));
        }
        thread::sleep(INTERVAL);
    }
    Ok(())
}

/// Returns the rules of a channel.
fn rules_of(channel: &Channel) -> Result<Rules, String> {
    let level = match &channel.level {
        Some(text) => Level::parse(text).ok_or_else(|| {
            format!("expected a level of {}, or 0 to 14, found `{text}`", Level::names().join(", "))
        })?,
        None => Level::LOWEST,
    };
    let include = if channel.events.is_empty() { vec!["*".into()] } else { channel.events.clone() };
    let (exclude, filter) = (channel.exclude.clone(), channel.filter.clone());
    Ok(Rules { include, exclude, level: level.number(), filter })
}

fn file_name(name: &str) -> String {
    format!("{name}.toml")
}

fn no_such_session(name: &str) -> CallError {
    CallError::new(&qualified("NoSuchSession"), "name", name)
}

fn invalid(problem: &str) -> CallError {
    CallError::new(&qualified("InvalidSession"), "problem", problem)
}

fn failed(recording: &str, problem: &str) -> CallError {
    let parameters = [("recording", recording), ("problem", problem)];
    let parameters = parameters.map(|(key, value)| (key.to_owned(), Value::from(value)));
    CallError { name: qualified("Failed"), parameters: Map::from_iter(parameters) }
}

impl Service for SupervisorService {
    fn identity(&self) -> Identity {
        Identity { product: "Tompion", version: env!("CARGO_PKG_VERSION"), url: env!("CARGO_PKG_REPOSITORY") }
    }

    fn interface(&self) -> &'static str {
        INTERFACE
    }

    fn description(&self) -> &'static str {
        DESCRIPTION
    }

    fn admits(&self, user: u32) -> bool {
        user == 0 || [self.owner, self.user].contains(&user) && tompion_os::is_one_user(user)
    }

    fn call(&self, peer: Peer, method: &str, call: &Call) -> Result<Value, CallError> {
        if method == "List" {
            let NoParameters {} = call.parameters()?;
            return Ok(json!(self.list()));
        }
        self.check_may_change(peer)?;
        match method {
            "Apply" => {
                let Apply { name, restart } = call.parameters()?;
                self.apply(&name, restart).map(|applied| json!(applied))
            }
            "Stop" => {
                let ByName { name } = call.parameters()?;
                self.stop(&name).map(|folders| json!({ "folders": folders }))
            }
            "Create" => self.create(call.parameters()?).map(|applied| json!(applied)),
            "Remove" => {
                let ByName { name } = call.parameters()?;
                self.remove(&name).map(|folders| json!({ "folders": folders }))
            }
            _ => Err(CallError::method_not_found(&call.method)),
        }
    }
}
