//! Description of an incident that `tompion monitor` saved: what was late, and when.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
#[cfg(test)]
use ts_rs::TS;

/// File in an incident's folder, and its maximum size in bytes.
const NAME: &str = "incident.json";
const MAX_SIZE: u64 = 4 << 20;

/// Maximum number of blockers that are shown.
const MAX_BLOCKERS: usize = 12;

/// Late wakeup or job.
#[derive(Clone, Debug, PartialEq)]
pub struct Incident {
    /// Late interval in nanoseconds since the epoch.
    pub span: (i64, i64),
    /// Allowed time in nanoseconds.
    pub limit: i64,
    /// Number and name of the late thread.
    pub thread: (i32, String),
    /// Job that missed its deadline; `None` for a late wakeup.
    pub job: Option<String>,
    /// Main cause, with its share in percent.
    pub verdict: Option<Verdict>,
    /// Shares of the interval by cause, the largest first.
    pub culprits: Vec<Blocker>,
}

/// Main cause of the late interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(TS))]
pub struct Verdict {
    /// Share of the interval in percent.
    pub percent: f64,
    /// Sentence that names the cause.
    pub words: String,
}

/// Cause of a part of the interval.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Blocker {
    /// Description in words.
    pub words: String,
    /// Its thread; 0 if it is none.
    pub tid: i32,
    /// Share of the interval in percent.
    pub percent: f64,
    /// Begin of its longest part in nanoseconds since the epoch.
    pub time_ns: i64,
}

#[derive(Deserialize)]
struct IncidentFile {
    time_ns: i64,
    latency_ns: i64,
    limit_ns: i64,
    thread: Thread,
    job: Option<Job>,
    verdict: Option<Verdict>,
    #[serde(default)]
    culprits: Vec<Blocker>,
}

#[derive(Deserialize)]
struct Thread {
    tid: i32,
    name: String,
}

#[derive(Deserialize)]
struct Job {
    name: String,
}

/// Returns the incident of the folder, if exactly one is open and it is a valid incident's.
pub fn incident(paths: &[PathBuf]) -> Option<Incident> {
    let [path] = paths else { return None };
    let file: IncidentFile =
        serde_json::from_slice(&tompion_index::recorded_losses::read(&path.join(NAME), MAX_SIZE)?).ok()?;
    let begin = file.time_ns.checked_sub(file.latency_ns.max(0))?;
    Some(Incident {
        span: (begin, file.time_ns),
        limit: file.limit_ns,
        thread: (file.thread.tid, file.thread.name),
        job: file.job.map(|job| job.name),
        verdict: file.verdict,
        culprits: file.culprits.into_iter().take(MAX_BLOCKERS).collect(),
    })
}
