//! State of the session in the manifest: machine, clock, buffers, recorder.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// State that a session keeps in the manifest for snapshots and recovery.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Session {
    /// Version of Tompion that wrote the file.
    pub tompion: String,
    /// The command line of `tompion` itself.
    pub invocation: Vec<String>,
    /// Machine on which it was recorded.
    pub host: Host,
    /// Source of timestamps.
    pub clock: Clock,
    /// Buffers of events.
    pub channel: Channel,
    /// Whether the kernel is recorded, too. It is among the sources when its trace is complete.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kernel: bool,
    /// Problems that did not end the recording, one line each.
    pub problems: Vec<String>,
    /// Process that records, while it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorder: Option<Recorder>,
    /// Last snapshot that was requested from the recorder, while it records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Snapshot>,
    /// Folder of the rings, while it is recorded with `--backing`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backing: Option<PathBuf>,
    /// Whether that folder has only descriptions, and a keeper holds the rings: with `--linger`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keeper: bool,
    /// Number of times that a recorder was killed and another one continued the recording.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub restarts: u64,
    /// Id of the recording, made by chance; with `--backing`, a file beside its rings has it, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

impl Session {
    /// Whether the recording is to outlast the machine, as far as it is written.
    pub fn is_durable(&self) -> bool {
        self.backing.is_some() && !self.keeper
    }
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Process that records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorder {
    /// Its id in its own pid namespace.
    pub pid: u32,
    /// Start time, in clock ticks since the machine was started. Source: `starttime` in
    /// `proc_pid_stat(5)`.
    pub start_ticks: u64,
}

/// Last snapshot that was requested.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Begin of the snapshot, by CLOCK_MONOTONIC in nanoseconds.
    pub begun_ns: u64,
    /// Number of events that it saved.
    pub events: u64,
    /// Incident that it is of, if a trigger asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incident: Option<String>,
}

/// Machine on which it was recorded.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Host {
    /// Its hostname.
    pub name: String,
    /// Kernel release and version.
    pub kernel: String,
    /// Number of possible CPUs.
    pub cpus: u32,
    /// Id of the boot.
    pub boot_id: String,
}

/// Source of timestamps.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Clock {
    /// `tsc` or `monotonic`.
    pub source: String,
    /// CLOCK_REALTIME minus CLOCK_MONOTONIC at the beginning, in nanoseconds.
    pub realtime_offset_ns: i64,
    /// Bound of a timestamp's error against CLOCK_MONOTONIC, in nanoseconds.
    pub error_bound_ns: u64,
    /// Pairs of TSC ticks and CLOCK_MONOTONIC by which ticks were converted.
    pub samples: Vec<(u64, u64)>,
}

/// Buffers of events.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Channel {
    /// `discard` or `overwrite`.
    pub mode: String,
    /// Bytes of a sub-buffer.
    pub subbuf_size: u64,
    /// Sub-buffers of each CPU.
    pub subbufs: u64,
    /// Bytes that all rings may take, of which programs get shares; then the sizes are those of the
    /// first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
}
