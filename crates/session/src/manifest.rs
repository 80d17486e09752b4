//! Manifest `tompion.json`, which stands beside the CTF traces of a recording and says what they
//! cannot.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use tompion_layout::{loss::Cause, record::WriteProtocol};
use tompion_os::DirHandle;

use crate::{
    budget::BeyondLimits,
    files::{path_in, read_bounded},
    target::stat_field,
};

/// Name of the file in a trace's folder.
pub const FILE: &str = "tompion.json";
/// Version of its schema.
const SCHEMA: u32 = 1;

/// State of a recording that has not ended, or whose session was killed.
pub const RECORDING: &str = "recording";
/// State of a recording that has ended.
pub const COMPLETE: &str = "complete";
/// State of a recording whose session was killed, and that was completed afterwards.
pub const RECOVERED: &str = "recovered";
/// Mode of a flight recorder, which holds back what it has until a snapshot is requested.
pub const OVERWRITE: &str = "overwrite";
/// Kind of the kernel's source, its name, and that of its folder.
pub const KERNEL: &str = "kernel";
/// Largest manifest that is read.
const MAX_BYTES: u64 = 64 << 20;

/// A recording as a whole.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the schema of this file.
    pub schema: u32,
    /// Version of Tompion that wrote it.
    pub tompion: String,
    /// `recording`, `complete` or `recovered`.
    pub state: String,
    /// The recorded command and its arguments.
    pub command: Vec<String>,
    /// End of the command; absent if it was not waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_end: Option<CommandEnd>,
    /// The command line of `tompion` itself.
    pub invocation: Vec<String>,
    /// Machine on which it was recorded.
    pub host: Host,
    /// Source of timestamps.
    pub clock: Clock,
    /// Buffering of events.
    pub channel: Channel,
    /// Programs that the recorded processes and their descendants executed, as far as seen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<Program>,
    /// Descendants of the recorded processes, as far as the kernel's events told of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<Child>,
    /// Processes, in the order of their coming.
    pub sources: Vec<Source>,
    /// Whether the kernel is a source, too; it stands among them when its trace is complete.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kernel: bool,
    /// Whether an unknown number of further events was lost: rings went with the session, or with
    /// the machine's memory.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub losses_unknown: bool,
    /// Processes that asked to take part and could not: they had given up waiting, or had no memory
    /// or descriptors left. What they would have recorded is in no count.
    #[serde(default, rename = "left_out", skip_serializing_if = "is_zero")]
    pub rejected_processes: u64,
    /// Counts of data that programs sent beyond the limits of one recording.
    #[serde(default, skip_serializing_if = "BeyondLimits::is_nothing")]
    pub beyond_limits: BeyondLimits,
    /// Problems that did not end the recording, one line each.
    pub problems: Vec<String>,
    /// While it is recorded: the process that records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorder: Option<Recorder>,
    /// While it is recorded: the last snapshot that was requested from the recorder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Snapshot>,
    /// While it is recorded with `--backing`: where the rings are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backing: Option<PathBuf>,
    /// The recording's id, which stands beside the rings too, if it was recorded with `--backing`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// End of the recorded command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandEnd {
    /// Its process id.
    pub pid: u32,
    /// Its end in words: `exited with 7`, `killed by signal 9`.
    pub end: String,
}

/// Descendant of the recorded processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Child {
    /// Process id.
    pub pid: u32,
    /// Process that forked it.
    pub parent: u32,
    /// Its end in words, as of [`CommandEnd`]; absent if it was not seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
}

/// Program that a process executed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Process id.
    pub pid: u32,
    /// The program's file, cut to a bounded length.
    pub file: String,
}

/// Process that records, as its manifest names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorder {
    /// Its id in its own pid namespace.
    pub pid: u32,
    /// Start time, in clock ticks since the machine was started. Source: `starttime` in
    /// `proc_pid_stat(5)`.
    pub start_ticks: u64,
}

impl Recorder {
    /// The calling process.
    pub(crate) fn own() -> Option<Self> {
        Self::of("self")
    }

    /// A process by its name below `/proc`.
    pub(crate) fn of(process: &str) -> Option<Self> {
        let start_ticks = stat_field(Path::new(&format!("/proc/{process}")), 22)?;
        let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let pids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        Some(Self { pid: pids.split_whitespace().next_back()?.parse().ok()?, start_ticks })
    }
}

/// Last snapshot that was requested, as the manifest has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Begin of the snapshot, by CLOCK_MONOTONIC in nanoseconds.
    pub begun_ns: u64,
    /// Number of events that it saved.
    pub events: u64,
}

/// The machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Kernel release and version.
    pub kernel: String,
    /// Number of CPU numbers.
    pub cpus: u32,
    /// Identifies the boot.
    pub boot_id: String,
}

/// The trace's clock.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Clock {
    /// Clock of timestamps: `tsc` or `monotonic`.
    pub source: String,
    /// CLOCK_REALTIME minus CLOCK_MONOTONIC at the beginning, in nanoseconds.
    pub realtime_offset_ns: i64,
    /// Bound of a timestamp's error against CLOCK_MONOTONIC, in nanoseconds.
    pub error_bound_ns: u64,
    /// (TSC, CLOCK_MONOTONIC) pairs by which ticks were converted.
    pub samples: Vec<(u64, u64)>,
}

/// Buffers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Channel {
    /// `discard` or `overwrite`.
    pub mode: String,
    /// Bytes of a sub-buffer.
    pub subbuf_size: u64,
    /// Sub-buffers of each CPU.
    pub subbufs: u64,
}

/// One process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Folder of its CTF trace, relative to this file; it isn't there if there are no events.
    pub path: String,
    /// `user` or `kernel`.
    pub kind: String,
    /// Process id; the kernel has none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pid: u32,
    /// Process name.
    pub name: String,
    /// Its executable.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub executable: String,
    /// Its parent when it joined; 0 if unknown.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub parent: u32,
    /// Its command line when it joined, cut to a bounded length; empty if unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command_line: Vec<String>,
    /// Protocol by which it writes events: `rseq`, or `reserve` where there are no restartable
    /// sequences; the kernel by `bpf`.
    #[serde(default)]
    pub producer: String,
    /// Reason of its end, in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub end: String,
    /// Recorded events.
    pub events: u64,
    /// Lost events by cause; only causes that occurred.
    pub lost: BTreeMap<String, u64>,
    /// Events that a flight recorder overwrote by design.
    pub overwritten: u64,
    /// Whether the process's counters say what can't be, so that it may have lost more than is told
    /// here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub losses_unknown: bool,
}

impl Source {
    /// At most so many bytes it takes in the file, but for what JSON makes longer: quotes and
    /// backslashes.
    pub fn size_in_manifest(&self) -> usize {
        /// Its keys, numbers and spaces, with one cause of losses.
        const OTHER: usize = 512;
        let texts = [&self.path, &self.name, &self.executable, &self.end];
        // Each argument has a line of its own.
        let arguments = self.command_line.iter().map(|argument| argument.len() + 16);
        let other = arguments.fold(OTHER, usize::saturating_add);
        texts.iter().map(|text| 2 * text.len()).fold(other, usize::saturating_add)
    }
}

/// Name in traces of the protocol by which a process with rings of this form writes its events.
pub const fn producer(form: WriteProtocol) -> &'static str {
    match form {
        WriteProtocol::Rseq => "rseq",
        WriteProtocol::ReserveCommit => "reserve",
    }
}

fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

/// A table of losses as the manifest has it.
pub fn losses(by_cause: impl Fn(Cause) -> u64) -> BTreeMap<String, u64> {
    let counts = Cause::ALL.into_iter().map(|cause| (cause.name().to_owned(), by_cause(cause)));
    counts.filter(|&(_, count)| count != 0).collect()
}

impl Manifest {
    /// The version that goes into new manifests.
    pub const fn schema() -> u32 {
        SCHEMA
    }

    /// Whether the recording has not ended, or was killed and not completed since.
    pub fn is_recording(&self) -> bool {
        self.state == RECORDING
    }

    /// Writes the file; readers see the old one or the new one, whole. `durable`: the medium has it
    /// on return.
    pub fn write(&self, folder: &DirHandle, durable: bool) -> io::Result<()> {
        let text = serde_json::to_string_pretty(self).map_err(io::Error::other)?;
        folder.replace(FILE, text.as_bytes(), durable)
    }

    /// Reads a trace folder's. Errors are lines for people.
    pub fn read(folder: &DirHandle) -> Result<Self, String> {
        let path = path_in(folder, FILE);
        let bytes =
            read_bounded(folder, FILE, MAX_BYTES).map_err(|error| format!("{}: {error}", path.display()))?;
        let manifest: Self =
            serde_json::from_slice(&bytes).map_err(|error| format!("{}: {error}", path.display()))?;
        if manifest.schema != SCHEMA {
            return Err(format!("{}: expected schema {SCHEMA}, found {}", path.display(), manifest.schema));
        }
        Ok(manifest)
    }
}
