//! What `tompion monitor` says of an incident whose folder is opened: what was late, and when.

use std::path::PathBuf;

use serde::Deserialize;

use crate::recording;

/// The file in an incident's folder, and its largest size in bytes.
const NAME: &str = "incident.json";
const MAX_SIZE: u64 = 4 << 20;

/// Most culprits that are shown.
const MAX_BLOCKERS: usize = 12;

/// What was late.
#[derive(Clone, Debug, PartialEq)]
pub struct Incident {
    /// From when to when, in nanoseconds since the epoch: from what it should have followed to what came late.
    pub span: (i64, i64),
    /// How long it may have taken.
    pub limit: i64,
    /// The thread and its name.
    pub thread: (i32, String),
    /// The job that missed its deadline; nothing for a late wake-up.
    pub job: Option<String>,
    /// What most of it was, and of how much of it, in percent.
    pub verdict: Option<Verdict>,
    /// Who had how much of it, the largest part first.
    pub culprits: Vec<Blocker>,
}

/// What most of it was.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Verdict {
    /// In percent of all.
    pub percent: f64,
    /// In a sentence.
    pub words: String,
}

/// Who had a part of it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Blocker {
    /// What it did, in words.
    pub words: String,
    /// Its thread; 0 if it is none.
    pub tid: i32,
    /// In percent of all.
    pub percent: f64,
    /// When it had the longest part, in nanoseconds since the epoch.
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

/// Of the folders that are opened, if they are one incident's; what can't be read is none.
pub fn incident(paths: &[PathBuf]) -> Option<Incident> {
    let [path] = paths else { return None };
    let file: IncidentFile = serde_json::from_slice(&recording::read(&path.join(NAME), MAX_SIZE)?).ok()?;
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
