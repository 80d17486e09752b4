//! Answers about an area: times by state, durations by name, flame graph.

use serde::Serialize;
#[cfg(test)]
use ts_rs::TS;

use super::slices::ThreadInfo;

/// Statistics of an area. Answer of `/api/select`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct Statistics {
    /// Duration of the area.
    pub duration: i64,
    /// Event counts by class; `null` for an area of some tracks, which `/api/counts` counts.
    pub events: Option<Vec<(String, u64)>>,
    /// Threads, those that ran longest first.
    pub threads: Vec<ThreadTimes>,
    /// CPUs by number.
    pub cpus: Vec<CpuTimes>,
    /// Durations of spans by name.
    pub spans: Vec<DurationStats>,
    /// Durations of system calls by name.
    pub syscalls: Vec<DurationStats>,
    /// Durations of interrupt handlers by name.
    pub interrupts: Vec<DurationStats>,
    /// Lengths of the lists before they were cut.
    pub counts: ListLengths,
    /// Missing events.
    pub losses: AreaLosses,
    /// Longest waits for a CPU.
    pub waits: Vec<Wait>,
    /// Whether narrow slices were merged, since the area is large.
    pub partial: bool,
    /// Slices shorter than this may be merged; 0 if none are.
    pub narrow: i64,
    /// Approximate duration of an area in which none would be merged.
    pub exact: i64,
    /// Time up to which everything is known and counted.
    pub known: i64,
}

/// Lengths of the lists of statistics.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct ListLengths {
    /// Threads.
    pub threads: usize,
    /// Names of spans.
    pub spans: usize,
    /// Names of system calls.
    pub syscalls: usize,
    /// Names of interrupt handlers.
    pub interrupts: usize,
}

/// Missing events of an area.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct AreaLosses {
    /// Discarded events.
    pub events: u64,
    /// Events that a flight recorder overwrote.
    pub overwritten: u64,
}

/// Thread with its times by state.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct ThreadTimes {
    /// The thread.
    #[serde(flatten)]
    pub thread: ThreadInfo,
    /// Its times.
    #[serde(flatten)]
    pub times: StateTimes,
}

/// Times of a thread by state.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct StateTimes {
    /// On a CPU.
    pub running: i64,
    /// Runnable after a wakeup.
    pub ready: i64,
    /// Runnable after a preemption.
    pub preempted: i64,
    /// Interruptible sleep, also for a lock.
    pub blocked: i64,
    /// Uninterruptible sleep, mostly for I/O.
    pub io: i64,
    /// Stopped, or created and not started.
    pub stopped: i64,
    /// Not observed.
    pub unknown: i64,
    /// Several merged states, of which the single times are unknown.
    pub mixed: i64,
}

/// Times of a CPU.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct CpuTimes {
    /// Number of the CPU.
    pub cpu: i64,
    /// Number of its track.
    pub track: u32,
    /// With a thread.
    pub busy: i64,
    /// Without a thread.
    pub idle: i64,
    /// Not observed.
    pub unknown: i64,
    /// Several merged states.
    pub mixed: i64,
    /// In interrupt handlers; `null` if some were merged.
    pub interrupts: Option<i64>,
}

/// Durations of the slices of a name. Percentiles, totals and the histogram are of slices with both
/// ends observed, and `null` or empty if some were merged.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct DurationStats {
    /// The name.
    pub name: String,
    /// Number of slices with both ends observed.
    pub count: u64,
    /// Number of these that were merged, whose durations are unknown.
    pub merged: u64,
    /// Number of slices with an unobserved end.
    pub unfinished: u64,
    /// Minimum total duration of these inside the area.
    pub unfinished_total: u64,
    /// Minimum.
    pub min: Option<u64>,
    /// Median.
    pub p50: Option<u64>,
    /// 90th percentile.
    pub p90: Option<u64>,
    /// 99th percentile.
    pub p99: Option<u64>,
    /// Maximum.
    pub max: Option<u64>,
    /// Total inside the area.
    pub total: Option<u64>,
    /// Longest slice.
    pub longest: Option<SliceLocation>,
    /// Bins: minimum, end, count, and longest slice.
    pub histogram: Vec<(u64, u64, u64, Option<SliceLocation>)>,
}

/// Lane and times of a slice.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct SliceLocation {
    /// Number of the lane.
    pub lane: u32,
    /// Begin.
    pub begin: i64,
    /// End.
    pub end: i64,
}

/// Wait of a thread for a CPU.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct Wait {
    /// Thread ID.
    pub tid: i64,
    /// Name of the thread.
    pub name: String,
    /// Process ID, if it is known.
    pub pid: Option<i32>,
    /// Number of its track.
    pub track: u32,
    /// Location of the wait.
    #[serde(flatten)]
    pub location: SliceLocation,
    /// Kind of the slice, by its number.
    pub style: u8,
    /// Cause in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub why: Option<String>,
}

/// Spans of an area by their callers. Answer of `/api/flame`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct FlameGraph {
    /// Nodes; callers come before callees.
    pub nodes: Vec<FlameNode>,
    /// Whether narrow slices were merged, since the area is large.
    pub partial: bool,
    /// Whether there are more stacks than nodes.
    pub cut: bool,
    /// Time up to which everything is known.
    pub known: i64,
}

/// Span or function below its callers.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct FlameNode {
    /// Name.
    pub name: String,
    /// Number of callers above it.
    pub depth: usize,
    /// Duration with its callees.
    pub total: i64,
    /// Duration without its callees.
    #[serde(rename = "self")]
    pub own: i64,
    /// Number of calls.
    pub count: u64,
    /// Index of its caller; −1 for none.
    pub parent: i64,
}
