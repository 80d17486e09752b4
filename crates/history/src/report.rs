//! Reports: a [`Period`] in the form that JSON and the command line show.

use std::collections::BTreeMap;

use serde::Serialize;
use tompion_latency::{
    CpuReport, Histogram, Kind, KindReport, Late,
    jobs::{Longest, Release},
    max_us,
};

use super::{
    job::{JobCell, JobsBody, LongestResponse, us},
    query::{Coverage, Period, Span, Start, System},
    row_codec::{self, Body},
    store::{Event, Incident},
};

/// Report of an interval of a history. Times of day whose name ends with `_ns` are in nanoseconds
/// since 1970, with `_ms` in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub struct HistoryReport {
    /// Version of this structure.
    pub schema: u32,
    /// Begin of the first row; without rows, begin of the requested interval.
    pub from_ms: i64,
    /// End of the last row. Rows are not divided.
    pub to_ms: i64,
    /// Part of the interval in which the monitor counted.
    pub coverage: Coverage,
    /// Longest latency of each CPU and kind, in microseconds.
    pub max_us: BTreeMap<u32, BTreeMap<Kind, f64>>,
    /// Statistics of each CPU and kind that has counts.
    pub cpus: Vec<CpuReport>,
    /// Wakeups and checks of their counts.
    pub wakeups: Wakeups,
    /// Systems on which the monitor counted, the newest last.
    pub systems: Vec<System>,
    /// Starts of the processes that wrote the history.
    pub starts: Vec<Start>,
    /// Clock steps, suspends and gaps.
    pub events: Vec<Event>,
    /// Latencies that exceeded their threshold.
    pub incidents: Vec<Incident>,
    /// Statistics of jobs; none if no job was watched.
    pub jobs: Option<HistoryJobs>,
}

/// Statistics of jobs.
#[derive(Clone, Debug, Serialize)]
pub struct HistoryJobs {
    /// Time for which jobs were watched, in milliseconds: shorter than the interval, since a
    /// history is also written without watching jobs.
    pub watched_ms: u64,
    /// Number of begins, ends and wakeups lost in that time.
    pub lost: u64,
    /// Jobs, sorted by name.
    pub jobs: Vec<HistoryJob>,
}

/// Statistics of a job. Lengths are responses, from release to end, in microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct HistoryJob {
    /// Name of the job.
    pub name: String,
    /// Number of activations.
    pub activations: u64,
    /// Number of responses longer than their deadline.
    pub misses: u64,
    /// Number of these that would have missed it even if they had begun at their release.
    pub overruns: u64,
    /// Shortest and longest deadline; they differ if the deadline was changed.
    pub deadlines_us: Option<[f64; 2]>,
    /// Mean response.
    pub mean_us: f64,
    /// Median, rounded up by at most a sixteenth.
    pub p50_us: f64,
    /// 99th percentile, rounded likewise.
    pub p99_us: f64,
    /// 99.9th percentile, rounded likewise.
    pub p999_us: f64,
    /// Longest response, exact.
    pub max_us: f64,
    /// Number of activations by kind of release.
    pub released_by: BTreeMap<Release, u64>,
    /// Longest response in detail.
    pub longest: Option<Longest>,
    /// Lower bounds of the filled buckets, in microseconds, with their counts.
    pub histogram: Vec<(f64, u64)>,
    /// Same histogram for arithmetic.
    #[serde(skip)]
    pub places: Histogram,
}

impl HistoryJobs {
    fn of(body: JobsBody) -> Option<Self> {
        let JobsBody { watched, lost, cells } = body;
        let jobs = cells.into_iter().map(|(name, cell)| HistoryJob::of(name, &cell)).collect();
        (watched > 0).then_some(Self { watched_ms: watched, lost, jobs })
    }
}

impl HistoryJob {
    fn of(name: String, cell: &JobCell) -> Self {
        let places = cell.places.lengths();
        let most = cell.longest.as_ref().map_or(0, |longest| longest.response);
        let below = |share| us(places.below(share).unwrap_or(0).min(most));
        let released = Release::ALL.into_iter().zip(cell.released);
        Self {
            name,
            activations: cell.activations,
            misses: cell.misses,
            overruns: cell.overruns,
            deadlines_us: cell.deadlines.map(|(shortest, longest)| [us(shortest), us(longest)]),
            mean_us: us(cell.sum) / cell.activations.max(1) as f64,
            p50_us: below(500),
            p99_us: below(990),
            p999_us: below(999),
            max_us: us(most),
            released_by: released.filter(|(_, count)| *count > 0).collect(),
            longest: cell.longest.as_ref().map(LongestResponse::report),
            histogram: places.places().map(|(begin, count)| (us(begin), count)).collect(),
            places,
        }
    }
}

/// Wakeups and checks of their counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Wakeups {
    /// Number of wakeups.
    pub woken: u64,
    /// Largest accounting error: started minus accounted wakeups. Non-zero is a bug.
    pub difference: i64,
    /// Number of sleeps by the scheduler's own count, while a monitor process ran.
    pub slept: u64,
    /// Number of these whose wakeup was missed.
    pub unseen: u64,
}

impl HistoryReport {
    /// Interval that the report covers.
    pub const fn span(&self) -> Span {
        Span { from_ms: self.from_ms, to_ms: self.to_ms }
    }
}

impl Period {
    /// Converts the content of an interval into a report.
    pub fn report(self) -> HistoryReport {
        let Body { woken, difference, slept, unseen, cells, jobs } = self.body;
        let mut cpus: BTreeMap<u32, BTreeMap<Kind, KindReport>> = BTreeMap::new();
        for ((cpu, kind), cell) in cells {
            let row_codec::Longest { ns, is, worst, code } = cell.longest;
            let worst = worst.map(|worst| {
                let mut late = Late::new(&worst, 0);
                late.code = code;
                late
            });
            if let Some(report) = KindReport::of(cell.places.histogram(), cell.sum, (ns, is), worst) {
                cpus.entry(cpu).or_default().insert(kind, report);
            }
        }
        let cpus: Vec<CpuReport> = cpus.into_iter().map(|(cpu, kinds)| CpuReport { cpu, kinds }).collect();
        HistoryReport {
            schema: 1,
            from_ms: self.span.from_ms.max(self.coverage.first_ms),
            to_ms: if self.coverage.rows == 0 { self.span.to_ms } else { self.coverage.last_ms },
            coverage: self.coverage,
            max_us: max_us(&cpus),
            cpus,
            wakeups: Wakeups { woken, difference, slept, unseen },
            systems: self.systems,
            starts: self.starts,
            events: self.events,
            incidents: self.incidents,
            jobs: HistoryJobs::of(jobs),
        }
    }
}
