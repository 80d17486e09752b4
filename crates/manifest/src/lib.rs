//! Manifest `tompion.json`, which stands beside the CTF traces of a recording and states what they
//! cannot: commands, programs, the ends of processes, and losses.
//!
//! The file has two groups of keys side by side. [`Manifest`] is what readers of traces need: every
//! key may be absent, and unknown keys are ignored, so that older and newer files are read as well.
//! [`Session`] is what only a session needs that completes or continues the recording: readers of
//! traces neither require it nor check it. What the values mean for events is left to others.
#![forbid(unsafe_code)]

use std::{collections::BTreeMap, io};

use serde::{Deserialize, Serialize};
use tompion_layout::{loss::Cause, record::WriteProtocol};
use tompion_os::DirHandle;

mod beyond_limits;
mod counted;
mod dropped;
mod join;
mod session;
#[cfg(test)]
mod tests;

pub use beyond_limits::BeyondLimits;
pub use counted::{REFUSED, add_counted};
pub use dropped::{DROPPED_FILE, DroppedChunk, RECEIVED_FOLDER};
pub use session::{Channel, Clock, Host, Recorder, Session, Snapshot};

/// Name of the file in a recording's folder.
pub const FILE: &str = "tompion.json";
/// Version of its schema.
pub const SCHEMA: u64 = 1;
/// Largest manifest that is read, in bytes.
pub const MAX_BYTES: u64 = 64 << 20;

/// State of a recording that goes on, or that a killed session left behind.
pub const RECORDING: &str = "recording";
/// State of a recording that has ended.
pub const COMPLETE: &str = "complete";
/// State of a recording that a killed session left behind, and that was completed afterwards.
pub const RECOVERED: &str = "recovered";
/// End of a process of which the session saw only that it was gone.
pub const ENDED: &str = "ended";

/// Kind of the source that has the recorder's own events, and the name of its folder.
pub const RECORDER: &str = "recorder";
/// End of a process that runs on: in the manifest of a chunk, or where it was given up.
pub const RUNNING: &str = "running";
/// Mode of a flight recorder, which overwrites its oldest events until a snapshot is requested.
pub const OVERWRITE: &str = "overwrite";
/// Kind of the kernel's source, its name, and that of its folder.
pub const KERNEL: &str = "kernel";
/// Kind of a process's source.
pub const USER: &str = "user";
/// Cause under which a source counts events of children that run on their parent's memory.
pub const VFORK_CHILD: &str = "vfork_child";

/// Manifest of a recording, as readers of its traces need it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the file's schema.
    #[serde(default)]
    pub schema: u64,
    /// `recording`, `complete` or `recovered`.
    #[serde(default)]
    pub state: String,
    /// Recorded command and its arguments; empty if processes were recorded that ran already.
    #[serde(default)]
    pub command: Vec<String>,
    /// End of the command; absent if it was not waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_end: Option<CommandEnd>,
    /// Processes that ran already and were named to be recorded, and their descendants of that
    /// time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<Target>,
    /// Programs that the recorded processes and their descendants executed, as far as seen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<Program>,
    /// Descendants of the recorded processes, as far as the kernel's events told of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<Child>,
    /// Sources of the recorded events, in the order in which they joined.
    #[serde(default)]
    pub sources: Vec<Source>,
    /// Whether an unknown number of further events was lost: rings went with the session, or with
    /// the machine's memory.
    #[serde(default, skip_serializing_if = "is_default")]
    pub losses_unknown: bool,
    /// Number of processes that asked to take part and could not: they had given up waiting, or had
    /// no memory or descriptors left. Their events are in no count.
    #[serde(default, rename = "left_out", alias = "rejected_processes", skip_serializing_if = "is_default")]
    pub rejected_processes: u64,
    /// Changes of the rules that choose events of programs, in the order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rule_changes: Vec<RuleChange>,
    /// Changes of the triggers, in the order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trigger_changes: Vec<TriggerChange>,
    /// Occurrences that made triggers fire, in the order of time; those of one trigger beyond its
    /// limit are counted in its next one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub firings: Vec<Firing>,
    /// Counts of data that programs sent beyond the limits of one recording.
    #[serde(default, skip_serializing_if = "is_default")]
    pub beyond_limits: BeyondLimits,
    /// Place in a recording, if this is one of its chunks. The recording's own manifest, in the
    /// folder above, has no sources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk: Option<Chunk>,
    /// Whether the recording is in chunks, in folders below the manifest's.
    #[serde(default, rename = "in_chunks", skip_serializing_if = "is_default")]
    pub is_in_chunks: bool,
    /// State of the session; empty if the manifest was parsed for a reader of traces.
    #[serde(flatten, skip_deserializing)]
    pub session: Session,
}

/// Place of a chunk in its recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    /// Its number, from 1 on.
    pub number: u64,
    /// Time of its begin, in nanoseconds since 1970; absent if unknown. Events of the initial state
    /// are older, and a short-lived process's may be a little older.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin_ns: Option<i64>,
    /// Time of its end, in nanoseconds since 1970; absent if its recorder was killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_ns: Option<i64>,
}

/// Occurrence that made a trigger fire.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Firing {
    /// Time in nanoseconds since 1970.
    pub time_ns: i64,
    /// The trigger's text.
    pub trigger: String,
    /// Cause.
    pub cause: String,
    /// Number of occurrences since the trigger last fired that were beyond its limit.
    #[serde(default, skip_serializing_if = "is_default")]
    pub suppressed: u64,
    /// Id of the incident, which other programs can share.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub incident: String,
    /// Number of events that matched and that this firing stands for; 0 if the trigger is on none.
    #[serde(default, skip_serializing_if = "is_default")]
    pub matches: u64,
    /// The first ones of these events.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub captures: Vec<Capture>,
}

/// Event that made a trigger fire. All of it is the program's word, except the process id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capture {
    /// Name of the program.
    pub program: String,
    /// Process id, as the recorder sees it.
    pub pid: u32,
    /// Thread id in the program's own pid namespace.
    pub tid: u32,
    /// Time of the event, or of the end of the span, in nanoseconds since 1970.
    pub time_ns: i64,
    /// Duration in nanoseconds, if it is a span; else 0.
    #[serde(default)]
    pub duration_ns: u64,
    /// Name of the event or span, `provider:name`.
    pub event: String,
    /// Fields by name.
    pub fields: serde_json::Map<String, serde_json::Value>,
    /// Whether fields, or the end of a text, are missing: the event was too large to be copied.
    #[serde(default)]
    pub is_cut: bool,
}

/// Counts of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Recorded events.
    pub events: u64,
    /// Lost events by cause.
    pub lost: BTreeMap<String, u64>,
    /// Events that a flight recorder overwrote by design.
    pub overwritten: u64,
}

/// New rules that choose events of programs. Each program follows them a moment after they were
/// set, or keeps the old ones if it has no thread that can be told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleChange {
    /// Time in nanoseconds since 1970.
    pub time_ns: i64,
    /// Globs of events to record.
    pub include: Vec<String>,
    /// Globs of events to exclude.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// Least severe level that is recorded, 0 to 14.
    pub level: u8,
    /// Filter that events must pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// Words that choose kernel events, if those were changed: then the rest is as before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<Vec<String>>,
}

/// New triggers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriggerChange {
    /// Time in nanoseconds since 1970.
    pub time_ns: i64,
    /// Texts of all triggers from then on.
    pub triggers: Vec<String>,
}

/// End of the recorded command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandEnd {
    /// Process id.
    pub pid: i64,
    /// End in words: `exited with 7`, `killed by signal 9`.
    pub end: String,
}

/// Process that ran already when its recording began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Process id.
    pub pid: i64,
    /// Parent when the recording began; 0 if unknown.
    #[serde(default, skip_serializing_if = "is_default")]
    pub parent: i64,
    /// Name of the process; empty if unknown.
    #[serde(default)]
    pub name: String,
    /// Command line when the recording began, cut to a bounded length; empty if unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command_line: Vec<String>,
    /// Start time, in clock ticks since the machine was started; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_ticks: Option<u64>,
    /// State at the recording's end, in words; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
}

/// Descendant of the recorded processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Child {
    /// Process id.
    pub pid: i64,
    /// Process that forked it.
    pub parent: i64,
    /// End in words, as of [`CommandEnd`]; absent if it was not seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
}

/// Program that a process executed.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Program {
    /// Process id.
    pub pid: i64,
    /// The program's file, cut to a bounded length.
    pub file: String,
}

/// Source of events: a process, or the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Folder of its CTF trace, relative to the manifest's; it doesn't exist without events.
    pub path: String,
    /// `user`, `kernel`, or `recorder` for the recorder's own events.
    #[serde(default)]
    pub kind: String,
    /// Process id; the kernel has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i64>,
    /// Process id in its own pid namespace, where that isn't the recorder's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inner_pid: Option<i64>,
    /// Name of the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Path of its executable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executable: Option<String>,
    /// Parent of the process when it joined the recording; 0 if unknown.
    #[serde(default, skip_serializing_if = "is_default")]
    pub parent: i64,
    /// Command line when it joined, cut to a bounded length; empty if unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command_line: Vec<String>,
    /// Write protocol of the producer: `rseq`, or `reserve` where restartable sequences were
    /// unavailable; `bpf` for the kernel. Older recordings don't have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub producer: Option<String>,
    /// End in words: `exited`, `killed by signal 9`, `running`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// Number of recorded events.
    #[serde(default)]
    pub events: u64,
    /// Number of lost events by cause; only causes that occurred.
    #[serde(default)]
    pub lost: BTreeMap<String, u64>,
    /// Number of events that the flight recorder overwrote by design.
    #[serde(default)]
    pub overwritten: u64,
    /// Whether its loss counters are impossible, so that its losses are unknown.
    #[serde(default, skip_serializing_if = "is_default")]
    pub losses_unknown: bool,
}

impl RuleChange {
    /// Upper bound of the bytes that the change takes in the file, for texts without control
    /// characters.
    pub fn size_in_manifest(&self) -> usize {
        /// Its keys, numbers and spaces.
        const OTHER: usize = 256;
        let texts = self.include.iter().chain(&self.exclude).chain(&self.filter);
        let texts = texts.chain(self.kernel.iter().flatten());
        texts.map(|text| 2 * text.len() + 16).fold(OTHER, usize::saturating_add)
    }
}

impl TriggerChange {
    /// Upper bound of the bytes that the change takes in the file, for texts without control
    /// characters.
    pub fn size_in_manifest(&self) -> usize {
        /// Its keys, number and spaces.
        const OTHER: usize = 128;
        self.triggers.iter().map(|text| 2 * text.len() + 16).fold(OTHER, usize::saturating_add)
    }
}

impl Source {
    /// Present counts.
    pub fn counts(&self) -> Counts {
        Counts { events: self.events, lost: self.lost.clone(), overwritten: self.overwritten }
    }

    /// The source with what was counted since it had these counts.
    #[must_use]
    pub fn since(mut self, before: &Counts) -> Self {
        self.events = self.events.saturating_sub(before.events);
        self.overwritten = self.overwritten.saturating_sub(before.overwritten);
        for (cause, count) in &mut self.lost {
            *count = count.saturating_sub(before.lost.get(cause).copied().unwrap_or(0));
        }
        self.lost.retain(|_, count| *count != 0);
        self
    }

    /// Upper bound of the bytes that the source takes in the file, before JSON escapes quotes and
    /// backslashes.
    pub fn size_in_manifest(&self) -> usize {
        /// Its keys, numbers and spaces, with one cause of losses.
        const OTHER: usize = 512;
        let optional = [&self.name, &self.executable, &self.end].into_iter().flatten();
        // Each argument has a line of its own.
        let arguments = self.command_line.iter().map(|argument| argument.len() + 16);
        let other = arguments.fold(OTHER, usize::saturating_add);
        optional.chain([&self.path]).map(|text| 2 * text.len()).fold(other, usize::saturating_add)
    }
}

/// Returns the name of a write protocol, as manifests and traces have it.
pub const fn producer(protocol: WriteProtocol) -> &'static str {
    match protocol {
        WriteProtocol::Rseq => "rseq",
        WriteProtocol::ReserveCommit => "reserve",
    }
}

/// Returns the losses of a source by the names of their causes.
pub fn losses(by_cause: impl Fn(Cause) -> u64) -> BTreeMap<String, u64> {
    let counts = Cause::ALL.into_iter().map(|cause| (cause.name().to_owned(), by_cause(cause)));
    counts.filter(|&(_, count)| count != 0).collect()
}

impl Manifest {
    /// Parses the file's content for a reader of traces, without the state of the session.
    ///
    /// # Errors
    /// What is wrong with the content, in words.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let manifest: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        match manifest.schema {
            SCHEMA => Ok(manifest),
            other => Err(format!("expected schema {SCHEMA}, found {other}")),
        }
    }

    /// Sums of the sources' losses by cause. Programs may have set the counts to any value.
    pub fn lost_by_cause(&self) -> BTreeMap<&str, u64> {
        let mut causes = BTreeMap::<&str, u64>::new();
        for (cause, count) in self.sources.iter().flat_map(|source| &source.lost) {
            let sum = causes.entry(cause).or_default();
            *sum = sum.saturating_add(*count);
        }
        causes
    }

    /// Whether the recording has not ended, or was killed and not completed since.
    pub fn is_recording(&self) -> bool {
        self.state == RECORDING
    }

    /// Writes the file; readers see the old one or the new one, whole. `durable`: the medium has it
    /// on return.
    ///
    /// # Errors
    /// If the file system refuses.
    pub fn write(&self, folder: &DirHandle, durable: bool) -> io::Result<()> {
        let text = serde_json::to_string_pretty(self).map_err(io::Error::other)?;
        folder.replace(FILE, text.as_bytes(), durable)
    }

    /// Reads the manifest of a recording's folder with the state of its session. All keys of that
    /// state must be there.
    ///
    /// # Errors
    /// A line for users, with the path.
    pub fn read(folder: &DirHandle) -> Result<Self, String> {
        let in_words = |error: String| format!("{}: {error}", folder.path().join(FILE).display());
        let bytes = folder.read_bounded(FILE, MAX_BYTES).map_err(|error| in_words(error.to_string()))?;
        let session = serde_json::from_slice(&bytes).map_err(|error| in_words(error.to_string()))?;
        Ok(Self { session, ..Self::parse(&bytes).map_err(in_words)? })
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
