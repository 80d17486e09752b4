//! Calls of `io.tompion.Supervisor1`.

use std::{
    collections::BTreeSet,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tompion_control::{
    Call, CallError, Caller, ControlError, Identity, Permissions, Recording, RuleChange, Rules, Service,
    check_session_name,
};
use tompion_os::DirHandle;
use tompion_schema::Level;

use crate::{
    DESCRIPTION, INTERFACE,
    difference::{Change, difference},
    files::Described,
    grantee::Grantee,
    key::SessionKey,
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
/// Time for a process to end that was killed.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for a disk to say how a recorder has ended: its trace may be one to continue.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// Reason for the end of a user's session.
const ENDED_BY_ROOT: &str = "root has ended it";
/// Interval between two looks.
const INTERVAL: Duration = Duration::from_millis(5);

/// Answers calls.
pub struct SupervisorService {
    shared: Arc<Shared>,
    permissions: Permissions,
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
struct Stop {
    name: String,
    /// A user with a grant; none for the supervisor's own.
    #[serde(default)]
    user: Option<u32>,
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

/// A channel that is to become as its session's files say.
#[derive(Clone, Copy)]
struct ChangedChannel<'a> {
    /// The session.
    key: &'a SessionKey,
    /// The user that it records for, if that is by a grant.
    grantee: Option<&'a Grantee>,
    channel: &'a str,
    wanted: &'a SessionFile,
    /// The channel's rules in it.
    rules: &'a Rules,
}

/// Outcome of waiting for a recorder's answer.
enum Answer {
    /// It runs, with this process id, and answers.
    Running(u32, Recording),
    /// It has ended: in order, or for a reason.
    Ended(Option<String>),
}

impl SupervisorService {
    pub fn new(shared: Arc<Shared>) -> Self {
        Self { shared, permissions: Permissions::of_this_process() }
    }

    fn list(&self) -> Sessions {
        let files = self.shared.files.names().into_iter().map(SessionKey::own);
        let mut keys: BTreeSet<_> = files.collect();
        keys.extend(self.shared.state().sessions.keys().cloned());
        self.list_of(keys)
    }

    /// Describes some sessions.
    pub fn list_of(&self, keys: impl IntoIterator<Item = SessionKey>) -> Sessions {
        let sessions = keys.into_iter().map(|key| self.describe(&key)).collect();
        Sessions { pid: std::process::id(), version: env!("CARGO_PKG_VERSION").into(), sessions }
    }

    /// Reads a session's files; those of the supervisor's user describe none of others.
    fn files_of(&self, key: &SessionKey) -> Option<Described> {
        if key.user.is_some() { None } else { self.shared.files.read(&key.name) }
    }

    fn describe(&self, key: &SessionKey) -> SessionStatus {
        let described = self.files_of(key);
        let files = described.iter().flat_map(|described| &described.files);
        let files = files.map(|file| file.to_string_lossy().into_owned()).collect();
        let (session, problem) = match described.map(|described| described.session) {
            Some(Ok(session)) => (Some(session), None),
            Some(Err(problem)) => (None, Some(problem)),
            None => (None, None),
        };
        let state = self.shared.state();
        let recorders = state.sessions.get(key);
        let mut channels: Vec<_> = recorders.into_iter().flatten().map(|(_, it)| it.status()).collect();
        for channel in session.iter().flat_map(|session| session.channel.keys()) {
            if channels.iter().all(|known| known.name != *channel) {
                let session = session.clone().unwrap_or_default();
                channels.push(Recorder::new(key, channel, session).status());
            }
        }
        let start = session.map_or(Start::Demand, |session| session.start);
        let SessionKey { user, name } = key.clone();
        SessionStatus { name, user, start, files, problem, channels }
    }

    /// Does what a session's files say.
    fn apply(&self, name: &str, restart: bool) -> Result<Applied, CallError> {
        self.shared.read_start_triggers();
        let described = self.shared.files.read(name).ok_or_else(|| no_such_session(name))?;
        let wanted = described.session.map_err(|problem| invalid(&problem))?;
        self.apply_described(&SessionKey::own(name), &wanted, None, restart)
    }

    /// Does what a description says, which was checked.
    pub fn apply_described(
        &self,
        key: &SessionKey,
        wanted: &SessionFile,
        grantee: Option<&Grantee>,
        restart: bool,
    ) -> Result<Applied, CallError> {
        let rules: Vec<(&String, Rules)> = wanted
            .channel
            .iter()
            .map(|(channel, it)| Ok((channel, rules_of(it).map_err(|problem| invalid(&problem))?)))
            .collect::<Result<_, CallError>>()?;
        if grantee.is_none() {
            return self.apply_to_channels(key, (wanted, None), &rules, restart);
        }
        self.shared.state().begin_change(key);
        let applied = self.apply_to_channels(key, (wanted, grantee), &rules, restart);
        self.shared.state().end_change(key);
        applied
    }

    /// Does what a description says with the rules of its channels.
    fn apply_to_channels(
        &self,
        key: &SessionKey,
        (wanted, grantee): (&SessionFile, Option<&Grantee>),
        rules: &[(&String, Rules)],
        restart: bool,
    ) -> Result<Applied, CallError> {
        let mut applied = Applied::default();
        // Before others start: what is left of a grant is for one or the other.
        for channel in self.channels(key, wanted).iter().filter(|it| !wanted.channel.contains_key(*it)) {
            let was_active = self.shared.state().recorder(key, channel).is_some_and(|it| it.is_active());
            self.stop_channel(key, channel)?;
            self.shared.state().take_idle(key, channel);
            applied.changes.extend(was_active.then(|| format!("{channel}: stopped")));
        }
        for (channel, rules) in rules {
            let changed = ChangedChannel { key, grantee, channel, wanted, rules };
            self.apply_to_channel(&changed, restart, &mut applied)?;
        }
        Ok(applied)
    }

    /// Returns the channels of a session that have a recorder or are to have one.
    fn channels(&self, key: &SessionKey, wanted: &SessionFile) -> BTreeSet<String> {
        let state = self.shared.state();
        let known = state.sessions.get(key).into_iter().flat_map(|recorders| recorders.keys());
        known.chain(wanted.channel.keys()).cloned().collect()
    }

    fn apply_to_channel(
        &self,
        changed: &ChangedChannel<'_>,
        restart: bool,
        applied: &mut Applied,
    ) -> Result<(), CallError> {
        let ChangedChannel { key, channel, .. } = *changed;
        loop {
            let (change, idle) = self.change_of(changed);
            match change {
                None => return Ok(()),
                Some(Change::Stop) => return self.stop_channel(key, channel).map(drop),
                Some(Change::Start) => {
                    applied.changes.push(self.start_channel(changed, idle)?);
                    return Ok(());
                }
                Some(Change::Restart { .. }) if restart => {
                    self.stop_channel(key, channel)?;
                    let idle = self.shared.state().take_idle(key, channel);
                    applied.changes.push(self.start_channel(changed, idle)?);
                    return Ok(());
                }
                Some(Change::Rules) => {
                    if let Some(line) = self.change_rules(changed)? {
                        applied.changes.push(line);
                        return Ok(());
                    }
                }
                Some(Change::Restart { keys, rules }) => {
                    let line = if rules { self.change_rules(changed)? } else { None };
                    // Without an answer in time, it runs nevertheless.
                    let runs = line.is_some()
                        || !rules && !matches!(self.wait_for_answer(key, channel), Ok(Answer::Ended(_)));
                    if runs {
                        applied.changes.extend(line);
                        applied.pending.push(format!("{channel}: {}", keys.join(", ")));
                        return Ok(());
                    }
                }
            }
            // It has ended meanwhile: one that fails in a loop runs for moments only. It is started
            // as one that waits. One of a user that root has ended is not.
            if self.shared.state().is_ended_by_root(key) {
                return Err(failed(channel, ENDED_BY_ROOT));
            }
        }
    }

    /// Returns the change that a channel needs. If it is a start, also its recorder, if it has one,
    /// which no other thread starts any more.
    fn change_of(&self, changed: &ChangedChannel<'_>) -> (Option<Change>, Option<Recorder>) {
        let ChangedChannel { key, channel, wanted, .. } = *changed;
        let deadline = Instant::now() + END_TIMEOUT;
        let mut state = self.shared.state();
        while state.has_open_end(key, channel, &self.shared.launcher) && Instant::now() < deadline {
            drop(state);
            thread::sleep(INTERVAL);
            state = self.shared.state();
        }
        let change = difference(&state.running(key), wanted).remove(channel);
        // Under the same lock: the loop may start it otherwise.
        let idle = (change == Some(Change::Start)).then(|| state.take_idle(key, channel)).flatten();
        (change, idle)
    }

    /// Starts a channel's recorder and waits until it answers. `idle` is the one that it had: it
    /// may have waited to be started again.
    fn start_channel(
        &self,
        changed: &ChangedChannel<'_>,
        idle: Option<Recorder>,
    ) -> Result<String, CallError> {
        let ChangedChannel { key, channel, wanted, .. } = *changed;
        // One that was killed goes on with its trace, if it can follow what is wanted.
        let continuing = idle.filter(|before| {
            let follows = difference(&[(channel.to_owned(), before.session.clone())].into(), wanted);
            before.is_to_continue() && matches!(follows.get(channel), None | Some(Change::Rules))
        });
        let new = || Recorder::new(key, channel, wanted.clone()).for_grantee(changed.grantee.cloned());
        let mut recorder = continuing.unwrap_or_else(new);
        let recording = recorder.recording.clone();
        let started = recorder.start_for_caller(&self.shared.launcher);
        let folder = recorder.folder().map(|folder| folder.display().to_string()).unwrap_or_default();
        let mut state = self.shared.state();
        if state.is_ended_by_root(key) {
            recorder.revoke(ENDED_BY_ROOT, &self.shared.launcher);
        }
        state.insert(key, channel, recorder);
        self.shared.save(&state, key);
        drop(state);
        started.map_err(|error| failed(&recording, &error.to_string()))?;
        let answer = self.wait_for_answer(key, channel);
        if let Answer::Ended(Some(failure)) = answer? {
            return Err(failed(&recording, &failure));
        }
        // One that continues a trace keeps the rules that it had.
        let follows = difference(&self.shared.state().running(key), wanted).remove(channel);
        if follows == Some(Change::Rules) && self.change_rules(changed)?.is_none() {
            return Err(failed(&recording, "it has ended meanwhile"));
        }
        Ok(format!("{channel}: started, records into {folder}"))
    }

    /// Waits until a channel's recorder answers, or has ended.
    fn wait_for_answer(&self, key: &SessionKey, channel: &str) -> Result<Answer, CallError> {
        let deadline = Instant::now() + START_TIMEOUT;
        let mut answered = None;
        loop {
            let is_last = Instant::now() >= deadline;
            let (recording, pid) = {
                let mut state = self.shared.state();
                let recorder = state.recorder(key, channel);
                let Some(recorder) = recorder else { return Err(failed(channel, "it was removed")) };
                recorder.look(&self.shared.launcher);
                let Some(pid) = recorder.pid() else {
                    recorder.end_wait();
                    let failure = recorder.failure().map(str::to_owned);
                    self.shared.save(&state, key);
                    return Ok(Answer::Ended(failure));
                };
                let answered = answered.take().filter(|(of, _)| *of == pid);
                // Under the lock that has found it running: a failure before this is the caller's,
                // after one it is started again.
                if is_last || answered.is_some() {
                    recorder.end_wait();
                }
                if let Some((pid, recording)) = answered {
                    return Ok(Answer::Running(pid, recording));
                }
                (recorder.recording.clone(), pid)
            };
            if is_last {
                return Err(failed(&recording, "it was started, and does not answer"));
            }
            let found = Recording::of_recorder(&recording, pid, key.user).ok();
            answered = found.filter(|found| found.status().is_ok()).map(|found| (pid, found));
            if answered.is_none() {
                thread::sleep(INTERVAL);
            }
        }
    }

    /// Has a running recorder follow new rules and triggers. `None` if it has ended meanwhile.
    fn change_rules(&self, changed: &ChangedChannel<'_>) -> Result<Option<String>, CallError> {
        let ChangedChannel { key, channel, wanted, .. } = *changed;
        // It may just have been started.
        let Answer::Running(pid, recording) = self.wait_for_answer(key, channel)? else { return Ok(None) };
        let change = self.send_changes(changed, &recording);
        let mut state = self.shared.state();
        let mut recorder = state.recorder(key, channel);
        recorder.iter_mut().for_each(|recorder| recorder.look(&self.shared.launcher));
        let recorder = recorder.filter(|recorder| recorder.pid() == Some(pid));
        let Some(recorder) = recorder else {
            self.shared.save(&state, key);
            return Ok(None);
        };
        let change = change.map_err(|error| failed(recording.name(), &error.to_string()))?;
        let follows = recorder.session.channel.get_mut(channel);
        if let Some((follows, wanted)) = follows.zip(wanted.channel.get(channel)) {
            follows.take_rules_of(wanted);
        }
        self.shared.save(&state, key);
        Ok(Some(format!("{channel}: {change}")))
    }

    /// Tells a channel's running recorder what is to change. Returns in words what has.
    fn send_changes(
        &self,
        changed: &ChangedChannel<'_>,
        recording: &Recording,
    ) -> Result<String, ControlError> {
        let mut words = Vec::new();
        let triggers = self.new_triggers(changed);
        // First: what can't be changes nothing else.
        if let Some(triggers) = &triggers {
            words.push(format!("new triggers, {}", describe(&recording.set_triggers(triggers)?)));
        }
        if triggers.is_none() || self.has_new_rules(changed) {
            words.push(format!("new rules, {}", describe(&recording.set_rules(changed.rules)?)));
        }
        if let Some(events) = self.new_kernel_events(changed) {
            recording.set_kernel_events(&events)?;
        }
        Ok(words.join("; "))
    }

    /// A channel as its running recorder follows it, and as it is wanted.
    fn both<'c>(&self, changed: &ChangedChannel<'c>) -> Option<(Channel, &'c Channel)> {
        let ChangedChannel { key, channel, wanted, .. } = *changed;
        let running = self.shared.state().running(key);
        let before = running.get(channel)?.channel.get(channel)?.clone();
        Some((before, wanted.channel.get(channel)?))
    }

    /// Whether a channel's running recorder is to have other rules.
    fn has_new_rules(&self, changed: &ChangedChannel<'_>) -> bool {
        self.both(changed).is_some_and(|(before, wanted)| !before.has_rules_of(wanted))
    }

    /// Triggers that a channel's running recorder is to have from now on, if others.
    fn new_triggers(&self, changed: &ChangedChannel<'_>) -> Option<Vec<String>> {
        let (before, wanted) = self.both(changed)?;
        let differs = before.trigger != wanted.trigger && before.can_take_triggers_of(wanted);
        differs.then(|| wanted.trigger.clone())
    }

    /// Kernel events that a channel's running recorder is to record from now on, if others.
    fn new_kernel_events(&self, changed: &ChangedChannel<'_>) -> Option<Vec<String>> {
        let (before, wanted) = self.both(changed)?;
        let differs = before.kernel != wanted.kernel && before.can_take_kernel_of(wanted);
        differs.then(|| wanted.kernel.clone()).flatten()
    }

    /// Ends all recordings of a session. Returns the folders of their traces.
    pub fn stop(&self, key: &SessionKey) -> Result<Vec<String>, CallError> {
        let known = self.shared.state().sessions.get(key).map(|it| it.keys().cloned().collect::<Vec<_>>());
        let Some(channels) = known else {
            let described = self.files_of(key);
            return described.map(|_| Vec::new()).ok_or_else(|| no_such_session(&key.name));
        };
        let mut folders = Vec::new();
        for channel in &channels {
            folders.extend(self.stop_channel(key, channel)?);
        }
        let mut state = self.shared.state();
        // A call that waits for no turn may find one that has been started since, and ends.
        if !state.is_active(key) {
            self.shared.forget(&mut state, key);
        }
        Ok(folders)
    }

    /// Ends a channel's recording, and waits until its trace is complete. Returns its folder, if
    /// it ran.
    fn stop_channel(&self, key: &SessionKey, channel: &str) -> Result<Option<String>, CallError> {
        let (recording, folder, pid) = {
            let mut state = self.shared.state();
            let Some(recorder) = state.recorder(key, channel) else { return Ok(None) };
            let pid = recorder.pid();
            let (true, Some(pid)) = (recorder.begin_stop(), pid) else {
                self.shared.save(&state, key);
                return Ok(None);
            };
            let folder = recorder.folder().map(|folder| folder.to_string_lossy().into_owned());
            (recorder.recording.clone(), folder, pid)
        };
        let has_ended = || {
            let mut state = self.shared.state();
            state.recorder(key, channel).is_none_or(|recorder| {
                recorder.look(&self.shared.launcher);
                recorder.pid() != Some(pid)
            })
        };
        let outcome = match key.user {
            Some(_) => self.end_granted(key, channel, has_ended),
            None => stop_recording(&recording, pid, has_ended),
        };
        let mut state = self.shared.state();
        if let Err(problem) = outcome {
            state.recorder(key, channel).into_iter().for_each(Recorder::cancel_stop);
            return Err(failed(&recording, &problem));
        }
        // At once: the next channel may refuse its end.
        self.shared.save(&state, key);
        Ok(folder)
    }

    /// Writes a file that lasts until the machine starts again, and does what it says.
    fn create(&self, name: &str, session: Map<String, Value>) -> Result<Applied, CallError> {
        check_session_name(name).map_err(|error| invalid(&error.to_string()))?;
        let session: SessionFile =
            serde_json::from_value(Value::Object(session)).map_err(|error| invalid(&error.to_string()))?;
        session.check().map_err(|problem| invalid(&problem))?;
        let text = toml::to_string(&session).map_err(|error| invalid(&error.to_string()))?;
        self.shared.files.check_place(name, &self.shared.transient).map_err(|problem| invalid(&problem))?;
        let write =
            || DirHandle::open(&self.shared.transient)?.replace(file_name(name), text.as_bytes(), false);
        write().map_err(|error| failed(name, &format!("its file can't be written: {error}")))?;
        self.apply(name, false)
    }

    /// Ends the recorder of a user with a grant by signals, which the user can't hold up.
    fn end_granted(
        &self,
        key: &SessionKey,
        channel: &str,
        mut has_ended: impl FnMut() -> bool,
    ) -> Result<(), String> {
        for (is_at_once, timeout) in [(false, STOP_TIMEOUT), (true, KILL_TIMEOUT)] {
            let signal = |recorder: &mut Recorder| recorder.signal_end(is_at_once);
            let sent = self.shared.state().recorder(key, channel).map_or(Ok(()), signal);
            let deadline = Instant::now() + timeout;
            while !has_ended() {
                sent.as_ref().map_err(ToString::to_string)?;
                if Instant::now() >= deadline {
                    break;
                }
                thread::sleep(INTERVAL);
            }
            if has_ended() {
                return Ok(());
            }
        }
        Err(format!("it has not ended within {} s, although it was killed", STOP_TIMEOUT.as_secs()))
    }

    /// Undoes what [`Self::create`] did.
    fn remove(&self, name: &str) -> Result<Vec<String>, CallError> {
        check_session_name(name).map_err(|_| no_such_session(name))?;
        let folders = self.stop(&SessionKey::own(name))?;
        // A session of other files has none there.
        let _ = DirHandle::open(&self.shared.transient).and_then(|folder| folder.remove(file_name(name)));
        self.shared.read_start_triggers();
        Ok(folders)
    }
}

/// Says how many processes follow.
fn describe(change: &RuleChange) -> String {
    let others = change.pending.len() + change.fixed.len();
    let others = if others == 0 { String::new() } else { format!(", {others} did not") };
    format!("{} processes followed{others}", change.current)
}

/// Asks a recorder to end, as soon as it listens, and waits for its end.
fn stop_recording(name: &str, pid: u32, mut has_ended: impl FnMut() -> bool) -> Result<(), String> {
    let stop = || -> Result<(), ControlError> {
        let recording = Recording::of_recorder(name, pid, None)?;
        // A recorder that is stopped does not answer this, which is known sooner.
        recording.status()?;
        recording.stop()
    };
    let deadline = Instant::now() + STOP_TIMEOUT;
    let mut is_asked = false;
    let mut is_silent = false;
    while !has_ended() {
        match if is_asked { Ok(()) } else { stop() } {
            Ok(()) | Err(ControlError::Ending(_)) => is_asked = true,
            // It does not listen yet, or no more.
            Err(ControlError::NotFound(_)) => is_silent = false,
            // A disk lets it wait, or it is stopped and may go on.
            Err(ControlError::Silent(_)) => is_silent = true,
            Err(error) if has_ended() => log::debug!("{name} has ended while it was asked to: {error}"),
            Err(error) => return Err(error.to_string()),
        }
        if Instant::now() >= deadline {
            let answers = if is_silent { "; it does not answer, and may be stopped" } else { "" };
            return Err(format!("it has not ended within {} s{answers}", STOP_TIMEOUT.as_secs()));
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

pub fn no_such_session(name: &str) -> CallError {
    CallError::new(&qualified("NoSuchSession"), "name", name)
}

pub fn invalid(problem: &str) -> CallError {
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

    fn admit(&self, caller: &Caller) -> Result<(), CallError> {
        self.permissions.admit(caller.peer.uid)
    }

    fn call(&self, caller: &Caller, method: &str, call: &Call) -> Result<Value, CallError> {
        if method == "List" {
            let NoParameters {} = call.parameters()?;
            return Ok(json!(self.list()));
        }
        self.permissions.check_may_change(caller.peer, &qualified("NotPermitted"))?;
        match method {
            "Apply" => {
                let Apply { name, restart } = call.parameters()?;
                self.shared.operate(&name, || self.apply(&name, restart)).map(|applied| json!(applied))
            }
            "Stop" => {
                let Stop { name, user } = call.parameters()?;
                let stopped = match user {
                    // Without a turn: the user can make its own operations last.
                    Some(user) => {
                        let key = SessionKey::of(user, name);
                        self.shared.state().note_end_by_root(&key);
                        self.stop(&key)
                    }
                    None => self.shared.operate(&name, || self.stop(&SessionKey::own(&name))),
                };
                stopped.map(|folders| json!({ "folders": folders }))
            }
            "Create" => {
                let Create { name, session } = call.parameters()?;
                self.shared.operate(&name, || self.create(&name, session)).map(|applied| json!(applied))
            }
            "Remove" => {
                let ByName { name } = call.parameters()?;
                self.shared.operate(&name, || self.remove(&name)).map(|folders| json!({ "folders": folders }))
            }
            _ => Err(CallError::method_not_found(&call.method)),
        }
    }
}
