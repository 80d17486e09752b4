//! Calls of other programs, by the interface `io.tompion.Recording1`.
//!
//! ```text
//! client ──call──► connection's thread ──Request──► control thread ──► consumer
//!                        ▲                               │
//!                        └──────────── reply ────────────┘
//! ```
//!
//! A connection's thread checks the call and its user, and waits for the control thread's answer.
//! The control thread does the work between its other tasks; it never waits for a client.
#![forbid(unsafe_code)]

use std::{
    collections::BTreeSet,
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Receiver, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use serde::Deserialize;
use serde_json::{Value, json};
use tompion_context::filter;
use tompion_control::{
    self as control, Call, CallError, Caller, ControlSocket, DESCRIPTION, EventCounts, Following, INTERFACE,
    Identity, Permissions, PlaceError, RuleChange, Server, Service, Status, qualified,
};
use tompion_counting::Collector;
use tompion_firings::{ChangeError, TriggerChange, Watchers};
use tompion_kernel_trace::{ChangeableChoice, Selection};
use tompion_manifest::Firing;
use tompion_os::{DirHandle, Peer};
use tompion_protocol::rules::Rules;
use tompion_schema::Level;
use tompion_triggers::{Condition, EventCondition, MAX_AFTER, Trigger, TriggerError};

/// Time for which a change of the rules waits for the programs.
const RULES_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval between two looks at whether they follow.
const RULES_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum number of different filters of one recording: programs keep each that they compiled.
const MAX_FILTERS: usize = 256;
/// Maximum number of patterns of kernel events, and of their bytes.
const MAX_KERNEL_WORDS: usize = 1024;
const MAX_KERNEL_BYTES: usize = 64 << 10;
/// Maximum size of a filter in bytes.
const MAX_FILTER: usize = 4096;

/// Work for the control thread, and where its answer goes.
#[derive(Debug)]
pub enum Request {
    /// Say what is recorded.
    Status(Sender<Status>),
    /// Replace the rules, which were checked.
    SetRules(Rules, Sender<()>),
    /// Say how many events of each name were converted.
    CountEvents(Sender<EventCounts>),
    /// Change the triggers, which were checked one by one.
    ChangeTriggers(TriggerChange, Sender<Result<(), ChangeError>>),
    /// Record other kernel events, which were checked, and say what of them can't be.
    SetKernelEvents(KernelEvents, Sender<Vec<String>>),
    /// Save what the flight recorder holds, and what comes within a time; then say how many events
    /// that were.
    Snapshot(Duration, Sender<u64>),
    /// Drop what was recorded since the last rotation or snapshot.
    Clear(Sender<()>),
    /// Fire external triggers by a word, with the incident's id if it has one already, and say
    /// whether one did; none if no trigger has the word.
    Fire(String, Option<String>, Sender<Option<bool>>),
    /// End the open chunk, and describe it.
    Rotate(Sender<CommittedChunk>),
    /// End the recording.
    Stop(Sender<()>),
}

/// Choice of kernel events.
#[derive(Debug)]
pub struct KernelEvents {
    /// Words by which they were chosen.
    pub words: Vec<String>,
    /// The events.
    pub selection: Selection,
}

/// Requests of other programs, as the control thread receives them.
#[derive(Debug)]
pub struct Requests {
    receiver: Receiver<Request>,
    /// Readable when there are requests.
    bell: UnixStream,
    /// Part of the recording's state that never changes; the rest is empty.
    pub frame: Status,
    socket: ControlSocket,
    watchers: Arc<Watchers>,
}

impl Requests {
    /// Tells those that watch triggers of a firing.
    pub fn notify(&self, firing: &Firing) {
        // The manifest leaves out what is empty.
        let firing = serde_json::to_value(firing).and_then(serde_json::from_value::<control::Firing>);
        firing.into_iter().for_each(|firing| self.watchers.send(&json!({ "firing": firing })));
    }

    /// Listens for calls, as a session of a name or by the process id. `frame` gets the name.
    ///
    /// # Errors
    /// If there is no place for the socket, or the name is taken.
    pub fn open(session: Option<&str>, facts: Facts, frame: Status) -> Result<Self, PlaceError> {
        let (socket, listener) = ControlSocket::listen(session)?;
        let frame = Status { name: socket.name().to_owned(), ..frame };
        let (sender, receiver) = mpsc::channel();
        let watchers = Arc::<Watchers>::default();
        let for_service = Arc::clone(&watchers);
        let start = || -> io::Result<UnixStream> {
            let (bell, ringer) = UnixStream::pair()?;
            bell.set_nonblocking(true)?;
            ringer.set_nonblocking(true)?;
            let service =
                RecordingService { watchers: for_service, ..RecordingService::new(sender, ringer, facts) };
            let server = Server::new(listener, Arc::new(service));
            thread::Builder::new().name("control".into()).spawn(move || server.run())?;
            Ok(bell)
        };
        let bell = start().map_err(|error| PlaceError::Folder(frame.folder.clone().into(), error))?;
        Ok(Self { receiver, bell, frame, socket, watchers })
    }

    /// Takes no more requests: those that wait and come are told that the recording ends. The name
    /// is kept.
    pub fn close(self) -> ControlSocket {
        self.socket
    }

    /// Takes the next request. There is a ring for each: with one taken at a time, other work comes
    /// in between.
    pub fn next_request(&mut self) -> Option<Request> {
        let _ = self.bell.read(&mut [0]);
        self.receiver.try_recv().ok()
    }
}

impl AsFd for Requests {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

/// A chunk that was committed.
#[derive(Clone, Debug)]
pub struct CommittedChunk {
    /// Its number.
    pub number: u64,
    /// Its folder.
    pub folder: DirHandle,
    /// Number of its events.
    pub events: u64,
}

/// Facts about a recording by which calls are checked.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Whether events carry the contexts that applications define.
    pub application_contexts: bool,
    /// Whether events are converted long after they were written, or by another process.
    pub is_late: bool,
    /// Filter at the beginning.
    pub filter: Option<String>,
    /// Whether it is a flight recorder.
    pub is_flight_recorder: bool,
    /// Whether it is in chunks.
    pub is_in_chunks: bool,
    /// Counts of events, if some are counted in place.
    pub counting: Option<Arc<Collector>>,
    /// Choice of kernel events, if they are recorded.
    pub kernel: Option<ChangeableChoice>,
    /// Whether another user records by a grant. The trace's owner may then do everything, as
    /// nothing that a method does goes beyond the grant.
    pub is_granted: bool,
}

/// Limits of what the rules of a recording can become while it runs.
#[derive(Clone, Copy, Debug)]
struct RuleLimits {
    /// Whether events carry the contexts that applications define.
    application_contexts: bool,
    /// Whether events are converted long after they were written, or by another process.
    is_late: bool,
}

/// Answers calls.
struct RecordingService {
    requests: Sender<Request>,
    ringer: UnixStream,
    limits: RuleLimits,
    /// Filter at the beginning.
    filter: Option<String>,
    /// All filters that there have been.
    filters: Mutex<BTreeSet<String>>,
    is_flight_recorder: bool,
    is_in_chunks: bool,
    counting: Option<Arc<Collector>>,
    watchers: Arc<Watchers>,
    /// Choice of kernel events, if they are recorded.
    kernel: Option<ChangeableChoice>,
    /// The trace's owner may call `GetStatus`; the recorder's user and root, every method.
    permissions: Permissions,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SetRules {
    rules: control::Rules,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SetKernelEvents {
    events: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SetTriggers {
    triggers: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeTriggers {
    add: Vec<String>,
    remove: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SaveAfter {
    after_ns: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FireTrigger {
    word: String,
    #[serde(default)]
    incident: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoParameters {}

impl RecordingService {
    fn new(requests: Sender<Request>, ringer: UnixStream, facts: Facts) -> Self {
        let Facts { application_contexts, is_late, filter, is_flight_recorder, .. } = facts;
        let Facts { is_in_chunks, counting, kernel, is_granted, .. } = facts;
        let permissions = Permissions::of_this_process();
        Self {
            requests,
            ringer,
            limits: RuleLimits { application_contexts, is_late },
            filters: Mutex::new(filter.iter().cloned().collect()),
            filter,
            is_flight_recorder,
            is_in_chunks,
            counting,
            watchers: Arc::default(),
            kernel,
            permissions: if is_granted { permissions.for_owner() } else { permissions },
        }
    }

    /// Has the control thread do something.
    fn ask<T>(&self, request: impl FnOnce(Sender<T>) -> Request) -> Result<T, CallError> {
        let (sender, receiver) = mpsc::channel();
        let ending = || CallError { name: qualified("Ending"), parameters: Default::default() };
        self.requests.send(request(sender)).map_err(|_| ending())?;
        // There is room for the rings of all connections.
        let _ = (&self.ringer).write(&[0]);
        receiver.recv().map_err(|_| ending())
    }

    /// Counts a filter, unless it was there before.
    fn remember_filter(&self, filter: Option<&str>) -> Result<(), String> {
        let Some(filter) = filter else { return Ok(()) };
        let mut filters = self.filters.lock().unwrap_or_else(PoisonError::into_inner);
        if !filters.contains(filter) && filters.len() >= MAX_FILTERS {
            return Err(format!("expected at most {MAX_FILTERS} different filters of one recording"));
        }
        filters.insert(filter.to_owned());
        Ok(())
    }

    fn save_snapshot(&self, after: Duration) -> Result<Value, CallError> {
        Ok(json!({ "events": self.ask(|done| Request::Snapshot(after, done))? }))
    }

    fn set_kernel_events(&self, call: &Call) -> Result<Value, CallError> {
        let SetKernelEvents { events } = call.parameters()?;
        let choice = check_words(events, self.kernel.as_ref());
        let choice =
            choice.map_err(|problem| CallError::new(&qualified("InvalidRules"), "problem", problem))?;
        let problems = self.ask(|done| Request::SetKernelEvents(choice, done))?;
        Ok(json!({ "problems": problems }))
    }

    /// Removes triggers, all without a list, adds others, and waits for the programs.
    fn change_triggers(&self, remove: Option<Vec<String>>, add: &[String]) -> Result<Value, CallError> {
        let invalid = |trigger: &str, problem: String| CallError {
            name: qualified("InvalidTrigger"),
            parameters: [("trigger".into(), trigger.into()), ("problem".into(), problem.into())]
                .into_iter()
                .collect(),
        };
        let mut triggers = Vec::new();
        for text in add {
            let trigger = text.parse().map_err(|error: TriggerError| invalid(text, error.to_string()))?;
            if let Trigger { condition: Condition::Event(EventCondition { filter, .. }), .. } = &trigger {
                self.remember_filter(filter.as_deref()).map_err(|problem| invalid(text, problem))?;
            }
            triggers.push(trigger);
        }
        let change = TriggerChange { remove, add: triggers };
        match self.ask(|done| Request::ChangeTriggers(change, done))? {
            Ok(()) => self.wait_for_programs(|process| process.triggers),
            Err(ChangeError::Unknown(text)) => {
                Err(CallError::new(&qualified("UnknownTrigger"), "trigger", text))
            }
            Err(ChangeError::Invalid { trigger, problem }) => Err(invalid(&trigger, problem)),
        }
    }

    fn set_rules(&self, call: &Call) -> Result<Value, CallError> {
        let SetRules { rules } = call.parameters()?;
        let refused = |problem: String| CallError::new(&qualified("InvalidRules"), "problem", problem);
        let rules = check_rules(rules, self.limits, self.filter.as_deref()).map_err(refused)?;
        self.remember_filter(rules.filter.as_deref()).map_err(refused)?;
        self.ask(|done| Request::SetRules(rules, done))?;
        self.wait_for_programs(|process| process.rules)
    }

    /// Waits until programs follow a change, as they say by this, and sorts them.
    fn wait_for_programs(&self, following: fn(&control::Process) -> Following) -> Result<Value, CallError> {
        let deadline = Instant::now() + RULES_TIMEOUT;
        loop {
            let status = self.ask(Request::Status)?;
            let is_pending = |process: &control::Process| following(process) == Following::Pending;
            if !status.processes.iter().any(is_pending) || Instant::now() >= deadline {
                return Ok(json!(change_of(status.processes, following)));
            }
            thread::sleep(RULES_INTERVAL);
        }
    }
}

/// Checks words for kernel events that another program sent. `present` is what is recorded.
fn check_words(words: Vec<String>, present: Option<&ChangeableChoice>) -> Result<KernelEvents, String> {
    let bytes: usize = words.iter().map(String::len).sum();
    if words.len() > MAX_KERNEL_WORDS || bytes > MAX_KERNEL_BYTES {
        return Err(format!(
            "expected at most {MAX_KERNEL_WORDS} patterns of {MAX_KERNEL_BYTES} bytes in all, found {} of {bytes}",
            words.len()
        ));
    }
    if words.iter().any(|word| word.chars().any(char::is_control)) {
        return Err("expected patterns without control characters".into());
    }
    let present = present.ok_or("the kernel is not recorded; start the recording with -k")?;
    let selection = present.select(&words)?;
    Ok(KernelEvents { words, selection })
}

/// Sorts processes by whether they follow.
fn change_of(processes: Vec<control::Process>, following: fn(&control::Process) -> Following) -> RuleChange {
    let mut change = RuleChange { current: 0, pending: Vec::new(), fixed: Vec::new() };
    for process in processes {
        match following(&process) {
            Following::Current => change.current += 1,
            Following::Pending => change.pending.push(process),
            Following::Fixed => change.fixed.push(process),
            Following::Unreachable => {}
        }
    }
    change
}

/// Checks rules that another program sent. `before` is the filter that the recording began with.
fn check_rules(rules: control::Rules, limits: RuleLimits, before: Option<&str>) -> Result<Rules, String> {
    let control::Rules { include, exclude, level, filter: text } = rules;
    if level > Level::LOWEST.number() {
        return Err(format!("expected a level of 0 to 14, found {level}"));
    }
    let level = Level::from_number(level);
    if include.iter().chain(&exclude).any(|glob| glob.chars().any(char::is_control)) {
        return Err("expected globs without control characters".into());
    }
    let mut filter = None;
    if let Some(text) = &text {
        if text.len() > MAX_FILTER {
            return Err(format!("expected a filter of at most {MAX_FILTER} bytes, found {}", text.len()));
        }
        let expression = tompion_filter::parse(text).map_err(|error| error.to_string())?;
        filter::check_filter(&expression).map_err(|error| error.to_string())?;
        if let Some((name, _)) = filter::unknown_contexts(&expression).next() {
            return Err(format!("no recording knows the context ${} of the filter", name.head()));
        }
        if filter::needs_application(text) && !limits.application_contexts {
            return Err(
                "the filter asks for contexts that programs define, which are not recorded; start the \
                        recording with -c app"
                    .into(),
            );
        }
        // As programs read it, on one line.
        filter = Some(expression.to_text());
    }
    let needs_session = [before, text.as_deref()].into_iter().flatten().any(filter::needs_session);
    if limits.is_late && needs_session {
        return Err(
            "the filter asks for contexts that the recorder reads ($comm, for example); these can't change \
                    in a flight recorder or with --backing or --linger, where events are judged later"
                .into(),
        );
    }
    let rules = Rules { include, exclude, level, filter };
    match rules.to_text().len() as u64 {
        ..=tompion_layout::control::RULES_SIZE => Ok(rules),
        size => {
            let most = tompion_layout::control::RULES_SIZE;
            Err(format!("expected at most {most} bytes of globs and filter, found {size}"))
        }
    }
}

impl Service for RecordingService {
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

    fn subscribe(
        &self,
        _peer: Peer,
        method: &str,
        call: &Call,
    ) -> Option<Result<Receiver<Value>, CallError>> {
        if method != "WatchTriggers" {
            return None;
        }
        let busy = || CallError { name: qualified("TooManyWatchers"), parameters: Default::default() };
        let watch = |NoParameters {}| self.watchers.add().ok_or_else(busy);
        Some(call.parameters().and_then(watch))
    }

    fn call(&self, caller: &Caller, method: &str, call: &Call) -> Result<Value, CallError> {
        if method == "GetStatus" {
            let NoParameters {} = call.parameters()?;
            return Ok(json!({ "status": self.ask(Request::Status)? }));
        }
        if method == "GetEventCounts" {
            let NoParameters {} = call.parameters()?;
            return Ok(json!({ "counts": self.ask(Request::CountEvents)? }));
        }
        if method == "GetCounts" {
            let NoParameters {} = call.parameters()?;
            // Read by this thread: no ring waits for it.
            let missing = || CallError { name: qualified("NoCounts"), parameters: Default::default() };
            let counting = self.counting.as_ref().ok_or_else(missing)?;
            return Ok(json!({ "counts": counting.document() }));
        }
        self.permissions.check_may_change(caller.peer, &qualified("NotPermitted"))?;
        match method {
            "SetRules" => self.set_rules(call),
            "SetTriggers" => {
                let SetTriggers { triggers } = call.parameters()?;
                self.change_triggers(None, &triggers)
            }
            "ChangeTriggers" => {
                let ChangeTriggers { add, remove } = call.parameters()?;
                self.change_triggers(Some(remove), &add)
            }
            "SetKernelEvents" => self.set_kernel_events(call),
            "SaveSnapshot" | "SaveSnapshotAfter" if !self.is_flight_recorder => {
                Err(CallError { name: qualified("NoFlightRecorder"), parameters: Default::default() })
            }
            "SaveSnapshot" => {
                let NoParameters {} = call.parameters()?;
                self.save_snapshot(Duration::ZERO)
            }
            "SaveSnapshotAfter" => {
                let SaveAfter { after_ns } = call.parameters()?;
                self.save_snapshot(Duration::from_nanos(after_ns).min(MAX_AFTER))
            }
            "FireTrigger" => {
                let FireTrigger { word, incident } = call.parameters()?;
                if let Some(id) = incident.as_ref().filter(|id| !tompion_firings::is_incident(id)) {
                    return Err(CallError::new(&qualified("InvalidIncident"), "incident", id.clone()));
                }
                match self.ask(|done| Request::Fire(word.clone(), incident, done))? {
                    Some(fired) => Ok(json!({ "fired": fired })),
                    None => Err(CallError::new(&qualified("NoTrigger"), "word", word)),
                }
            }
            "Clear" if self.is_in_chunks || self.is_flight_recorder => {
                let NoParameters {} = call.parameters()?;
                self.ask(Request::Clear).map(|()| Value::Null)
            }
            "Clear" | "Rotate" if !self.is_in_chunks => {
                Err(CallError { name: qualified("NotInChunks"), parameters: Default::default() })
            }
            "Rotate" => {
                let NoParameters {} = call.parameters()?;
                let chunk = self.ask(Request::Rotate)?;
                Ok(json!({ "chunk": control::Chunk {
                    number: chunk.number,
                    folder: chunk.folder.path().to_string_lossy().into_owned(),
                    events: chunk.events,
                } }))
            }
            "Stop" => {
                let NoParameters {} = call.parameters()?;
                self.ask(Request::Stop).map(|()| Value::Null)
            }
            _ => Err(CallError::method_not_found(&call.method)),
        }
    }
}

/// Rules as calls and replies have them.
pub fn describe_rules(rules: &Rules) -> control::Rules {
    control::Rules {
        include: rules.include.clone(),
        exclude: rules.exclude.clone(),
        level: rules.level.number(),
        filter: rules.filter.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(filter: Option<&str>) -> control::Rules {
        control::Rules {
            include: vec!["*".into()],
            exclude: Vec::new(),
            level: 14,
            filter: filter.map(str::to_owned),
        }
    }

    #[test]
    fn rules_that_can_not_be_are_refused_with_the_reason() {
        let any = RuleLimits { application_contexts: false, is_late: false };
        let late = RuleLimits { is_late: true, ..any };
        let check = |rules, limits, before| check_rules(rules, limits, before).map(drop);
        assert_eq!(check(rules(None), any, None), Ok(()));
        let lines = check_rules(rules(Some("a > 1 &&\n b < 2")), any, None).expect("a filter");
        assert_eq!(lines.filter.as_deref().map(|filter| filter.lines().count()), Some(1));
        assert_eq!(check(rules(Some("rows > 1")), late, Some("rows > 2")), Ok(()));
        assert_eq!(check(rules(Some("$comm == \"a\"")), any, None), Ok(()));
        for (rules, limits, before, expected) in [
            (control::Rules { include: vec!["a\n".into()], ..rules(None) }, any, None, "control characters"),
            (rules(Some(&format!("rows > {}", "1".repeat(5000)))), any, None, "at most 4096 bytes"),
            (control::Rules { level: 15, ..rules(None) }, any, None, "0 to 14, found 15"),
            (rules(Some("rows >")), any, None, "expected"),
            (rules(Some("$nothing == 1")), any, None, "$nothing"),
            (rules(Some("$app.db:user == 1 && $comm == \"a\"")), any, None, "-c app"),
            (rules(Some("$comm == \"a\"")), late, None, "flight recorder"),
            (rules(None), late, Some("$comm == \"a\""), "flight recorder"),
            (
                control::Rules { include: vec!["x".repeat(1 << 17)], ..rules(None) },
                any,
                None,
                "at most 65536",
            ),
        ] {
            let refused = check(rules, limits, before).expect_err(expected);
            assert!(refused.contains(expected), "{refused}");
        }
    }
}
