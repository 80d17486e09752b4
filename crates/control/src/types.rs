//! Parameters of calls and replies.

use serde::{Deserialize, Serialize};
pub use tompion_manifest::Capture;

/// Rules that choose events of programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// Globs of events to record.
    pub include: Vec<String>,
    /// Globs of events to exclude.
    #[serde(default)]
    pub exclude: Vec<String>,
    /// Least severe level that is recorded, 0 to 14.
    pub level: u8,
    /// Filter that events must pass.
    #[serde(default)]
    pub filter: Option<String>,
}

/// Number of lost events by cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// Cause: `full`, for example.
    pub cause: String,
    /// Number of events.
    pub events: u64,
}

/// Chunk that is complete in itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    /// Its number, from 1 on.
    pub number: u64,
    /// Its folder, a trace.
    pub folder: String,
    /// Number of its events.
    pub events: u64,
}

/// Occurrence that made a trigger fire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Firing {
    /// Time in nanoseconds since 1970.
    pub time_ns: i64,
    /// The trigger's text.
    pub trigger: String,
    /// Cause.
    pub cause: String,
    /// Number of occurrences since the trigger last fired that were beyond its limit.
    #[serde(default)]
    pub suppressed: u64,
    /// Id of the incident, which other programs can share.
    #[serde(default)]
    pub incident: String,
    /// Number of events that matched and that this firing stands for; 0 if the trigger is on none.
    #[serde(default)]
    pub matches: u64,
    /// The first ones of these events.
    #[serde(default)]
    pub captures: Vec<Capture>,
}

/// Whether a process follows the newest rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Following {
    /// It does.
    #[default]
    Current,
    /// It was told and has not answered yet.
    Pending,
    /// It keeps the rules that it began with: it has no thread that could be told.
    Fixed,
    /// Its connection is closed: it has executed another program, is about to end, or has closed
    /// the descriptor.
    Unreachable,
}

/// Treatment of new events when a ring is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// They are lost, and counted.
    Discard,
    /// They replace the oldest: a flight recorder.
    Overwrite,
}

/// A process that is recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its id, in the recorder's pid namespace.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Command line when it joined, cut to a bounded length; empty if unknown.
    pub command_line: Vec<String>,
    /// Events on disk.
    pub events: u64,
    /// Events that a flight recorder has overwritten by design.
    pub overwritten: u64,
    /// Lost events.
    pub lost: Vec<Loss>,
    /// Whether its loss counters are impossible.
    pub losses_unknown: bool,
    /// Whether it follows the newest rules.
    pub rules: Following,
    /// Whether it follows the newest triggers on events; not if its library knows none of them.
    #[serde(default)]
    pub triggers: Following,
    /// Events that its rings have taken, saved or not. The process's own count, which is checked
    /// where events are read.
    #[serde(default)]
    pub appended: u64,
    /// Bytes that these took in each of its rings.
    #[serde(default)]
    pub appended_bytes: Vec<u64>,
    /// Share of the fullest ring that waits to be written, or that holds a flight recorder's
    /// history, in percent.
    #[serde(default)]
    pub fill_percent: u64,
    /// Bytes of memory that its rings may take; 0 if the recorder doesn't say.
    #[serde(default)]
    pub ring_bytes_in_all: u64,
    /// Size of one of its rings in bytes; 0 if the recorder doesn't say.
    #[serde(default)]
    pub ring_bytes: u64,
}

/// State of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Name under which it is found.
    pub name: String,
    /// The recorder's process id.
    pub pid: u32,
    /// Version of the recorder.
    pub version: String,
    /// Folder of the trace.
    pub folder: String,
    /// The recorded command; empty if it records processes that ran already.
    pub command: Vec<String>,
    /// Treatment of new events when a ring is full.
    pub mode: Mode,
    /// Begin, in nanoseconds since 1970.
    pub begin_ns: u64,
    /// Present rules.
    pub rules: Rules,
    /// Number of times that they were changed.
    pub rule_changes: u32,
    /// Texts of the triggers.
    #[serde(default)]
    pub triggers: Vec<String>,
    /// Whether kernel events are recorded, too.
    pub kernel: bool,
    /// Words that choose kernel events.
    #[serde(default)]
    pub kernel_events: Vec<String>,
    /// Processes that are recorded.
    pub processes: Vec<Process>,
    /// Number of recorded processes that have ended.
    pub ended_processes: u64,
    /// Their events.
    pub ended_events: u64,
    /// Their losses.
    pub ended_lost: Vec<Loss>,
    /// Number of processes that asked to take part and could not.
    pub rejected_processes: u64,
    /// Sets of programs that are recorded when they start; empty without any.
    #[serde(default)]
    pub programs: Vec<String>,
    /// Programs that the recording does not want, and refused.
    #[serde(default)]
    pub refused: Vec<Refusal>,
    /// Bytes of memory that the rings of a process may take, at most.
    pub ring_bytes_per_process: u64,
    /// Size of one ring in bytes, at most; 0 if the recorder doesn't say.
    #[serde(default)]
    pub ring_bytes: u64,
    /// Bytes that the rings of all programs may take; none without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Refused and unreachable programs, and all else that went wrong, one line each.
    pub problems: Vec<String>,
}

/// Number of programs that were refused for a reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The reason in words.
    pub reason: String,
    /// Their number; one that asks several times counts as often.
    pub programs: u64,
}

/// Number of events of a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventCount {
    /// `provider:name`.
    pub event: String,
    /// Number of events.
    pub events: u64,
}

/// Events of a recording by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventCounts {
    /// Whether they are counted as they come; a flight recorder's are when they are saved.
    pub is_live: bool,
    /// Whether kernel events are recorded, too, which are in no count.
    pub kernel: bool,
    /// Numbers by name, without 0.
    pub events: Vec<EventCount>,
    /// Events of names that there is no room for.
    pub other: u64,
}

/// Outcome of changing the rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleChange {
    /// Number of processes that follow the new rules.
    pub current: u64,
    /// Processes that were told and have not answered yet.
    pub pending: Vec<Process>,
    /// Processes that keep the rules that they began with.
    pub fixed: Vec<Process>,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value, json};

    use super::*;
    use crate::DESCRIPTION;

    /// Names of the fields of a type in the description.
    fn described(name: &str) -> BTreeSet<String> {
        let text = DESCRIPTION.lines().filter(|line| !line.trim_start().starts_with('#'));
        let text = text.collect::<Vec<_>>().join("\n");
        let (_, rest) = text.split_once(&format!("type {name} (")).expect("a type");
        let body = rest.split("\n)").next().expect("an end");
        body.lines().filter_map(|line| Some(line.trim().split_once(": ")?.0.to_owned())).collect()
    }

    fn keys(value: &impl Serialize) -> BTreeSet<String> {
        let Ok(Value::Object(object)) = serde_json::to_value(value) else { panic!("no object") };
        object.keys().cloned().collect()
    }

    #[test]
    fn the_types_are_those_of_the_description() {
        let rules = Rules { include: vec!["*".into()], exclude: Vec::new(), level: 14, filter: None };
        let loss = Loss { cause: "full".into(), events: 1 };
        let refusal = Refusal { reason: "in no set".into(), programs: 1 };
        let process = Process {
            pid: 1,
            name: "a".into(),
            command_line: Vec::new(),
            events: 1,
            overwritten: 0,
            lost: vec![loss.clone()],
            losses_unknown: false,
            rules: Following::Current,
            triggers: Following::Current,
            appended: 1,
            appended_bytes: vec![1],
            fill_percent: 1,
            ring_bytes_in_all: 0,
            ring_bytes: 0,
        };
        let status = Status {
            name: "a".into(),
            pid: 1,
            version: "0".into(),
            folder: "/".into(),
            command: Vec::new(),
            mode: Mode::Discard,
            begin_ns: 1,
            rules: rules.clone(),
            rule_changes: 0,
            triggers: Vec::new(),
            kernel: false,
            kernel_events: Vec::new(),
            processes: vec![process.clone()],
            ended_processes: 0,
            ended_events: 0,
            ended_lost: Vec::new(),
            rejected_processes: 0,
            programs: vec!["*".into()],
            refused: vec![refusal.clone()],
            ring_bytes_per_process: 0,
            ring_bytes: 0,
            memory: Some(1),
            problems: Vec::new(),
        };
        let chunk = Chunk { number: 1, folder: "/".into(), events: 1 };
        assert_eq!(keys(&chunk), described("Chunk"));
        let capture = Capture {
            program: "a".into(),
            pid: 1,
            tid: 1,
            time_ns: 1,
            duration_ns: 1,
            event: "b:c".into(),
            fields: serde_json::Map::new(),
            is_cut: false,
        };
        assert_eq!(keys(&capture), described("Capture"));
        let firing = Firing {
            time_ns: 1,
            trigger: "a".into(),
            cause: "b".into(),
            suppressed: 0,
            incident: "d".into(),
            matches: 1,
            captures: vec![capture],
        };
        assert_eq!(keys(&firing), described("Firing"));
        assert_eq!(keys(&rules), described("Rules"));
        assert_eq!(keys(&loss), described("Loss"));
        assert_eq!(keys(&refusal), described("Refusal"));
        assert_eq!(keys(&process), described("Process"));
        assert_eq!(keys(&status), described("Status"));
        let count = EventCount { event: "a:b".into(), events: 1 };
        assert_eq!(keys(&count), described("EventCount"));
        let counts = EventCounts { is_live: true, kernel: false, events: vec![count], other: 0 };
        assert_eq!(keys(&counts), described("EventCounts"));
        let change = RuleChange { current: 1, pending: Vec::new(), fixed: Vec::new() };
        assert_eq!(keys(&change), BTreeSet::from(["current", "pending", "fixed"].map(str::to_owned)));
        assert_eq!(json!([Following::Fixed, Mode::Overwrite]), json!(["fixed", "overwrite"]));
    }

    #[test]
    fn rules_may_leave_out_what_is_optional() {
        let rules: Rules = serde_json::from_value(json!({ "include": ["a:*"], "level": 6 })).expect("rules");
        assert_eq!((rules.exclude.len(), rules.filter), (0, None));
    }
}
