//! Counts of each job: its activations, their durations and missed deadlines.

use std::{collections::BTreeMap, fs, mem};

use serde::Serialize;

use super::joiner::{Activation, Release, Unmatched};
use crate::histogram::{Histogram, steps};

/// Report of all jobs. Times of day are nanoseconds since 1970.
#[derive(Clone, Debug, Default, Serialize)]
pub struct JobsReport {
    /// Time from which jobs are monitored.
    pub from_ns: u64,
    /// Jobs, sorted by name.
    pub jobs: Vec<JobReport>,
    /// Begins and ends that programs lost, for example because their rings were full.
    pub lost_events: u64,
    /// Wakeups, begins and ends that were lost because the kernel's ring was full.
    pub lost_messages: u64,
    /// Number of processes that report impossible losses: how many events they lost is unknown.
    pub losses_unknown: u64,
    /// Number of times that the kernel did not start one of the programs that see wakeups, because
    /// it already ran on that CPU. Activations after such a wakeup count from their begins.
    pub not_started: u64,
    /// Reason why programs that use `TOMPION_JOB` are no longer heard, if so.
    pub failure: Option<String>,
}

/// Report of a job.
#[derive(Clone, Debug, Serialize)]
pub struct JobReport {
    /// Name of the job, followed by the user's number for another user's programs.
    pub name: String,
    /// Number of threads that had activations.
    pub threads: usize,
    /// Number of activations.
    pub activations: u64,
    /// Deadline of the last activation, in microseconds.
    pub deadline_us: Option<f64>,
    /// Time from the release to the end.
    pub response: Part,
    /// Time from the release until the thread runs.
    pub until_running: Part,
    /// Time from when the thread runs to the begin of the job's code; from the release if the
    /// thread did not sleep.
    pub until_begin: Part,
    /// Time from the begin to the end.
    pub execution: Part,
    /// Number of responses that were longer than the deadline.
    pub misses: u64,
    /// Number of these whose execution alone was longer than the deadline.
    pub overruns: u64,
    /// Number of activations by the origin of their release.
    pub released_by: BTreeMap<Release, u64>,
    /// Activation with the longest response.
    pub longest: Option<Longest>,
    /// Begins and ends without each other.
    #[serde(flatten)]
    pub unmatched: Unmatched,
}

/// Upper bounds of the buckets of metrics, in nanoseconds: 10, 20, 50, 100 µs … 10 s.
pub const BOUNDS: [u64; 19] = steps(10_000);

/// Statistics of one phase of all activations, in microseconds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Part {
    /// Number of activations that have this phase.
    pub count: u64,
    /// Mean.
    pub mean_us: f64,
    /// Last value.
    pub last_us: f64,
    /// Median, at most a sixteenth too long.
    pub p50_us: f64,
    /// 99th percentile, at most a sixteenth too long.
    pub p99_us: f64,
    /// 99.9th percentile, at most a sixteenth too long.
    pub p999_us: f64,
    /// Exact maximum.
    pub max_us: f64,
    /// Number of values up to each of [`BOUNDS`].
    #[serde(skip)]
    pub within: [u64; BOUNDS.len()],
    /// Histogram of all values.
    #[serde(skip)]
    pub places: Histogram,
}

/// Activation with the longest response.
#[derive(Clone, Debug, Serialize)]
pub struct Longest {
    /// Time at which it ended.
    pub time_ns: u64,
    /// Process number.
    pub pid: u32,
    /// Thread number.
    pub tid: u32,
    /// Name of the thread.
    pub thread: String,
    /// Origin of the release.
    pub released_by: Release,
    /// Time from the release to the end, in microseconds.
    pub response_us: f64,
    /// Time from the release until the thread runs, if it slept before.
    pub until_running_us: Option<f64>,
    /// Time from there to the begin.
    pub until_begin_us: f64,
    /// Time from the begin to the end.
    pub execution_us: f64,
    /// Deadline, if it had one.
    pub deadline_us: Option<f64>,
}

/// Durations of one phase, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Durations {
    /// Histogram of the durations.
    pub places: Histogram,
    within: [u64; BOUNDS.len()],
    count: u64,
    /// Sum of all durations.
    pub sum: u64,
    last: u64,
    longest: u64,
}

impl Durations {
    fn add(&mut self, ns: u64) {
        self.places.count_length(ns);
        self.within.iter_mut().zip(BOUNDS).for_each(|(count, bound)| *count += u64::from(ns <= bound));
        self.count += 1;
        self.sum = self.sum.saturating_add(ns);
        self.last = ns;
        self.longest = self.longest.max(ns);
    }

    fn part(&self) -> Part {
        let below = |share| us(self.places.below(share).unwrap_or(0).min(self.longest));
        Part {
            count: self.count,
            mean_us: us(self.sum) / self.count.max(1) as f64,
            last_us: us(self.last),
            p50_us: below(500),
            p99_us: below(990),
            p999_us: below(999),
            max_us: us(self.longest),
            within: self.within,
            places: self.places.clone(),
        }
    }
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

fn deadline_us(ns: u64) -> Option<f64> {
    (ns != 0).then(|| us(ns))
}

/// Counts of activations over an interval.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Number of activations.
    pub activations: u64,
    /// Response times.
    pub response: Durations,
    /// Number of responses that were longer than the deadline.
    pub misses: u64,
    /// Number of these whose execution alone was longer than the deadline.
    pub overruns: u64,
    /// Deadline of the last activation, in nanoseconds; 0 for none.
    pub deadline: u64,
    /// Number of activations by the origin of their release.
    pub released_by: BTreeMap<Release, u64>,
    /// Activation with the longest response, and its thread's name.
    pub longest: Option<(Activation, String)>,
}

impl Tally {
    /// Counts an activation. True if it missed its deadline.
    fn add(&mut self, activation: &Activation) -> bool {
        self.activations += 1;
        self.response.add(activation.response());
        *self.released_by.entry(activation.by).or_default() += 1;
        if self.longest.as_ref().is_none_or(|(longest, _)| activation.response() > longest.response()) {
            self.longest = Some((*activation, thread_name(activation.tid)));
        }
        self.deadline = activation.deadline;
        let is_late = activation.deadline != 0 && activation.response() > activation.deadline;
        self.misses += u64::from(is_late);
        self.overruns += u64::from(is_late && activation.execution() > activation.deadline);
        is_late
    }
}

/// Counts of a job.
#[derive(Clone, Debug, Default)]
pub struct JobCounts {
    name: String,
    threads: Vec<u32>,
    all: Tally,
    /// Counts since [`JobCounts::take_recent`] was last called.
    recent: Tally,
    until_running: Durations,
    until_begin: Durations,
    execution: Durations,
    unmatched: Unmatched,
}

/// Maximum threads of a job that are counted separately.
const MAX_THREADS: usize = 4096;

impl JobCounts {
    /// Returns empty counts of a job of this name.
    pub fn new(name: String) -> Self {
        Self { name, ..Self::default() }
    }

    /// Name of the job.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Counts an activation. True if it missed its deadline.
    pub fn add(&mut self, activation: &Activation) -> bool {
        self.until_begin.add(activation.until_begin());
        self.execution.add(activation.execution());
        if let Some(ns) = activation.until_running() {
            self.until_running.add(ns);
        }
        if !self.threads.contains(&activation.tid) && self.threads.len() < MAX_THREADS {
            self.threads.push(activation.tid);
        }
        self.recent.add(activation);
        self.all.add(activation)
    }

    /// Takes the counts since the last call.
    pub fn take_recent(&mut self) -> Tally {
        mem::take(&mut self.recent)
    }

    /// Sets the counts of begins and ends that did not become an activation.
    pub fn set_unmatched(&mut self, unmatched: Unmatched) {
        self.unmatched = unmatched;
    }

    /// Returns the report. CLOCK_REALTIME is ahead of CLOCK_MONOTONIC by `realtime_offset` ns.
    pub fn report(&self, realtime_offset: u64) -> JobReport {
        let all = &self.all;
        JobReport {
            name: self.name.clone(),
            threads: self.threads.len(),
            activations: all.activations,
            deadline_us: deadline_us(all.deadline),
            response: all.response.part(),
            until_running: self.until_running.part(),
            until_begin: self.until_begin.part(),
            execution: self.execution.part(),
            misses: all.misses,
            overruns: all.overruns,
            released_by: all.released_by.clone(),
            longest: all.longest.as_ref().map(|(longest, thread)| Longest {
                time_ns: longest.end.saturating_add(realtime_offset),
                pid: longest.pid,
                tid: longest.tid,
                thread: thread.clone(),
                released_by: longest.by,
                response_us: us(longest.response()),
                until_running_us: longest.until_running().map(us),
                until_begin_us: us(longest.until_begin()),
                execution_us: us(longest.execution()),
                deadline_us: deadline_us(longest.deadline),
            }),
            unmatched: self.unmatched,
        }
    }
}

/// Name of a thread; empty if it has exited.
pub fn thread_name(tid: u32) -> String {
    fs::read_to_string(format!("/proc/{tid}/comm")).unwrap_or_default().trim_end_matches('\n').to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::joiner::Wake;
    use super::*;

    fn activation(release: u64, begin: u64, end: u64, deadline: u64) -> Activation {
        let wake = Wake {
            running: begin - 1,
            woken: release + 1,
            asked: release,
            intended: release,
            fired: release,
        };
        Activation {
            job: 0,
            pid: 1,
            tid: 2,
            by: Release::Timer,
            release,
            wake: Some(wake),
            begin,
            end,
            deadline,
        }
    }

    #[test]
    fn a_response_longer_than_the_deadline_is_a_miss() {
        let mut counts = JobCounts::new("motor:control".into());
        // In time; late because it began late; late by its own execution; without a deadline.
        for (activation, is_late) in [
            (activation(1_000_000, 1_020_000, 1_500_000, 500_000), false),
            (activation(2_000_000, 2_100_000, 2_500_001, 500_000), true),
            (activation(3_000_000, 3_010_000, 3_900_000, 500_000), true),
            (activation(4_000_000, 4_010_000, 9_000_000, 0), false),
        ] {
            assert_eq!(counts.add(&activation), is_late, "{activation:?}");
        }
        let report = counts.report(1_000_000_000);
        assert_eq!((report.activations, report.misses, report.overruns, report.threads), (4, 2, 1, 1));
        // Recent counts are taken once; the totals continue.
        let recent = counts.take_recent();
        assert_eq!(
            (recent.activations, recent.misses, recent.overruns, recent.response.sum),
            (4, 2, 1, 6_900_001)
        );
        assert_eq!((counts.take_recent().activations, counts.report(0).activations), (0, 4));
        assert_eq!((report.response.last_us, report.response.max_us), (5000.0, 5000.0));
        assert_eq!(report.released_by, BTreeMap::from([(Release::Timer, 4)]));
        // All but the last are within 1 ms.
        assert_eq!((BOUNDS[6], report.response.within[6], BOUNDS[18]), (1_000_000, 3, 10_000_000_000));
        let longest = report.longest.expect("the longest");
        assert_eq!((longest.time_ns, longest.deadline_us), (1_009_000_000, None));
        assert_eq!(
            (longest.until_running_us, longest.until_begin_us, longest.execution_us),
            (Some(9.999), 0.001, 4990.0)
        );
    }
}
