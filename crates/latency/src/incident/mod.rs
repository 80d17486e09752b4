//! Incidents: a late wakeup or a missed deadline with its attribution and the trace of what
//! preceded it.
//!
//! ```text
//! FOLDER/  incident.json   the latency, its segments, problems ([`Incident`])
//!          report.json     the monitor's report at that time
//!          tompion.json    a trace: kernel/ has the recorded events, user/… the segments as spans
//! ```

mod names;
mod trace;
mod words;

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use tompion_os::{BoundedFile, DirHandle};
use tompion_writer::write_synthetic_trace;

pub use words::{Culprit, Verdict};

use crate::{
    Error, Kind,
    attribution::{Cause, LatencyInterval, Segment, attribute, attribute_job, interrupts_of_all},
    jobs::{Release, Wake},
    report::{Report, priority_words},
    threshold::Capture,
};

/// Name of the incident's file in its folder.
pub const FILE: &str = "incident.json";
/// Maximum size of that file that is read, in bytes.
const MAX_READ: u64 = 256 << 20;
/// Version of the file's schema.
const SCHEMA: u32 = 1;

/// Thread of an incident.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Party {
    /// Number of the thread.
    pub tid: u32,
    /// Name of the thread.
    pub name: String,
    /// Priority in words: `rt 80`.
    pub priority: String,
}

impl Party {
    /// Name of the thread, or `thread-18568` if it is unknown.
    pub fn label(&self) -> String {
        if self.name.is_empty() { format!("thread-{}", self.tid) } else { self.name.clone() }
    }
}

/// Activation of a job that missed its deadline. Times are CLOCK_MONOTONIC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissedJob {
    /// Name of the job.
    pub name: String,
    /// Kind of release; `question` has its time.
    pub released_by: Release,
    /// Wakeup that was the release, if one was.
    pub wake: Option<Wake>,
    /// Begin of the job's code.
    pub begin_ns: u64,
}

/// Sum of the segments with one cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// Cause of the segments.
    pub cause: Cause,
    /// Sum of their lengths, in nanoseconds.
    pub ns: u64,
    /// Percentage of the latency.
    pub percent: f64,
}

/// Late wakeup or missed deadline.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Incident {
    /// Version of the schema of this file.
    pub schema: u32,
    /// Version of Tompion that wrote it.
    pub tompion: String,
    /// End of the latency by CLOCK_REALTIME, in nanoseconds.
    pub time_ns: u64,
    /// Difference of CLOCK_REALTIME and CLOCK_MONOTONIC at that time, in nanoseconds.
    pub ahead_ns: u64,
    /// Latency in nanoseconds.
    pub latency_ns: u64,
    /// Threshold in nanoseconds.
    pub limit_ns: u64,
    /// Time from the wakeup to running in nanoseconds, if the threshold applies to it instead of to
    /// the whole latency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_waking_ns: Option<u64>,
    /// Late thread.
    pub thread: Party,
    /// Process of the thread.
    pub pid: u32,
    /// Thread that had the CPU before.
    pub before: Party,
    /// Class of the wakeup: `wakeup`, `shared` or `preempted`; `job` for a missed deadline.
    pub class: String,
    /// Job that missed its deadline, if this is no wakeup: then the latency is its response time
    /// and the threshold its deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<MissedJob>,
    /// Times of the latency.
    pub question: LatencyInterval,
    /// Causes, the largest first.
    pub causes: Vec<Share>,
    /// Segments; they add up to the latency.
    pub segments: Vec<Segment>,
    /// Main cause in words, as `explain` shows it, for readers that compute nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Parties with their shares, the largest first, for readers that compute nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub culprits: Vec<Culprit>,
    /// Number of system management interrupts (firmware) that may have occurred; none if they
    /// aren't counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smis: Option<u64>,
    /// Number of late wakeups without an incident, because they came within the cooldown.
    pub not_saved_before: u64,
    /// Missing data, one line each.
    pub problems: Vec<String>,
}

impl Incident {
    /// Attributes a captured latency. `not_saved_before` is the number of late wakeups not saved
    /// before it.
    pub fn of(caught: &Capture, not_saved_before: u64) -> Self {
        let caught = &names::with_newest(caught);
        let Capture { crossing, question, history, .. } = caught;
        let segments = match &caught.job {
            Some(job) => attribute_job(question, job.wake.as_ref(), history),
            None => attribute(question, history),
        };
        let latency_ns = question.end - question.begin();
        let now = tompion_os::monotonic_ns();
        let ahead_ns = tompion_os::realtime_ns().saturating_sub(now);
        let party =
            |tid, name: &str, priority| Party { tid, name: name.into(), priority: priority_words(priority) };
        let mut incident = Self {
            schema: SCHEMA,
            tompion: env!("CARGO_PKG_VERSION").into(),
            time_ns: crossing.end + ahead_ns,
            ahead_ns,
            latency_ns,
            limit_ns: crossing.limit,
            from_waking_ns: crossing.is_from_waking.then(|| crossing.end.saturating_sub(crossing.woken)),
            thread: party(crossing.tid, &crossing.name, crossing.priority),
            pid: crossing.pid,
            before: party(crossing.other_tid, &crossing.other_name, crossing.other_priority),
            class: match &caught.job {
                Some(_) => "job".into(),
                None => Kind::ALL.get(crossing.kind as usize).map_or("unknown", |kind| kind.name()).into(),
            },
            job: caught.job.clone(),
            question: question.clone(),
            smis: caught.counts_firmware.then(|| interrupts_of_all(history, question.begin(), question.end)),
            causes: shares(&segments, latency_ns),
            segments,
            not_saved_before,
            problems: problems(caught),
            verdict: None,
            culprits: Vec::new(),
        };
        incident.verdict = incident.verdict();
        incident.culprits = incident.culprits();
        incident
    }

    /// Fills a missing name from a report, which keeps the names of ended threads.
    pub fn look_up_name(&mut self, report: &Report) {
        let row = report.threads.iter().find(|row| row.tid == self.thread.tid);
        if let Some(row) = row.filter(|_| self.thread.name.is_empty()) {
            self.thread.name.clone_from(&row.name);
        }
    }

    /// Saves the incident in a new folder, which gets its name when it is complete.
    ///
    /// # Errors
    /// If the folder exists or can't be written.
    pub fn save(
        &self,
        folder: &DirHandle,
        caught: &Capture,
        report: &Report,
        invocation: &[String],
    ) -> Result<(), Error> {
        let failed = |error| Error::file("can't write", folder.path(), error);
        if folder.exists() {
            return Err(failed(io::ErrorKind::AlreadyExists.into()));
        }
        let unfinished = folder.with_suffix(".unfinished");
        let write = || -> io::Result<()> {
            unfinished.make()?;
            unfinished.replace(FILE, &serde_json::to_vec_pretty(self)?, false)?;
            unfinished.replace("report.json", &serde_json::to_vec_pretty(report)?, false)?;
            write_synthetic_trace(
                &unfinished,
                &trace::of(self, &names::with_newest(caught)),
                invocation,
                &self.problems,
            )?;
            unfinished.rename_to(folder)
        };
        write().inspect_err(|_| drop(unfinished.remove_all())).map_err(failed)
    }

    /// Reads an incident from its folder.
    ///
    /// # Errors
    /// If there is none, or it has another schema.
    pub fn read(folder: &Path) -> Result<Self, Error> {
        let path = folder.join(FILE);
        let failed = |error| Error::file("can't read", &path, error);
        let mut bytes = Vec::new();
        let mut file = BoundedFile::open(&path, MAX_READ).map_err(failed)?;
        file.read_to_end(&mut bytes).map_err(failed)?;
        let incident: Self = serde_json::from_slice(&bytes).map_err(|error| failed(error.into()))?;
        if incident.schema != SCHEMA {
            let text = format!("expected schema {SCHEMA}, found {}", incident.schema);
            return Err(failed(io::Error::other(text)));
        }
        if !is_whole(&incident) {
            return Err(failed(io::Error::other("its segments don't make up the latency")));
        }
        Ok(incident)
    }
}

/// Prefix of the names of incident folders.
pub const FOLDER: &str = "tompion-incident-";

/// Lists folders with such a name, unordered and without symbolic links.
pub fn candidates(parent: &Path) -> Vec<PathBuf> {
    let is_one = |name: &str| name.starts_with(FOLDER) && !name.ends_with(".unfinished");
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.filter(|entry| is_one(&entry.file_name().to_string_lossy())).map(|entry| entry.path()).collect()
}

/// Lists incidents by the end of their latency, in nanoseconds since 1970, the newest last. Names
/// have the local time, which may go back.
pub fn folders(parent: &Path) -> Vec<(u64, PathBuf)> {
    let read = |folder: PathBuf| Some((Incident::read(&folder).ok()?.time_ns, folder));
    let mut folders: Vec<(u64, PathBuf)> = candidates(parent).into_iter().filter_map(read).collect();
    folders.sort();
    folders
}

/// Checks that the segments make up the latency; a file may contain anything.
fn is_whole(incident: &Incident) -> bool {
    let mut at = incident.question.begin();
    for segment in &incident.segments {
        if segment.begin != at || segment.end < at {
            return false;
        }
        at = segment.end;
    }
    at == incident.question.end
}

fn shares(segments: &[Segment], latency: u64) -> Vec<Share> {
    let mut sums: BTreeMap<Cause, u64> = BTreeMap::new();
    for segment in segments {
        *sums.entry(segment.cause).or_default() += segment.length();
    }
    let percent = |ns: u64| ns as f64 * 100.0 / latency.max(1) as f64;
    let mut shares: Vec<Share> =
        sums.into_iter().map(|(cause, ns)| Share { cause, ns, percent: percent(ns) }).collect();
    shares.sort_by_key(|share| std::cmp::Reverse(share.ns));
    shares
}

fn problems(caught: &Capture) -> Vec<String> {
    let mut problems = Vec::new();
    let begin = caught.question.begin();
    for (noted, cpu) in caught.history.cpus.iter().zip(0..) {
        if noted.known_from > begin {
            let missing = (noted.known_from - begin) / 1000;
            let why = if caught.overwritten.get(cpu).is_some_and(|number| *number > 0) {
                "events were overwritten"
            } else {
                "the watch had just restarted"
            };
            problems.push(format!("CPU {cpu}: the first {missing} µs are unknown: {why}"));
        }
    }
    if caught.refused > 0 {
        problems.push(format!("{} events were not whole", caught.refused));
    }
    if caught.not_started > 0 {
        problems.push(format!(
            "{} events are missing since watching began: the kernel did not start the program that notes them",
            caught.not_started
        ));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{attribution::EventLog, threshold::Crossing};

    /// Makes a capture of a thread with these events.
    pub(super) fn caught((tid, name): (u32, &str), history: EventLog) -> Capture {
        let crossing = Crossing {
            woken: 0,
            intended: 0,
            fired: 0,
            end: 0,
            limit: 0,
            tid,
            pid: tid,
            priority: 19,
            cpu: 0,
            kind: 0,
            side: 0,
            other_tid: 0,
            other_priority: 120,
            name: name.into(),
            other_name: String::new(),
            is_from_waking: false,
            stack: Vec::new(),
        };
        let question = LatencyInterval { tid, ..LatencyInterval::default() };
        let (overwritten, refused, not_started, counts_firmware) = (Vec::new(), 0, 0, false);
        Capture { crossing, question, history, overwritten, refused, not_started, job: None, counts_firmware }
    }

    /// Makes an incident of these segments.
    pub(super) fn incident(segments: Vec<Segment>) -> Incident {
        let latency_ns = segments.iter().map(Segment::length).sum();
        let causes = shares(&segments, latency_ns);
        let incident = Incident::of(&caught((7, "ctl"), EventLog::default()), 0);
        Incident { latency_ns, causes, segments, ..incident }
    }

    fn segment(begin: u64, end: u64, cause: Cause) -> Segment {
        Segment {
            begin,
            end,
            cpu: 0,
            cause,
            who: "hog".into(),
            tid: 7,
            code: vec!["bpf_loop+0x1".into(), "spin+0x2".into()],
        }
    }

    #[test]
    fn causes_are_sorted_by_size() {
        let segments = [
            segment(0, 10, Cause::KernelOverhead),
            segment(10, 90, Cause::PreemptionOff),
            segment(90, 100, Cause::KernelOverhead),
        ];
        let shares = shares(&segments, 100);
        assert_eq!(
            shares.iter().map(|share| (share.cause, share.ns)).collect::<Vec<_>>(),
            [(Cause::PreemptionOff, 80), (Cause::KernelOverhead, 20)]
        );
        assert!((shares[0].percent - 80.0).abs() < 1e-9);
    }
}
