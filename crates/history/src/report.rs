//! What a history says of a time, as reports say it.

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

/// What was counted in a time of a history. Times of day are nanoseconds since 1970 where a name ends with `_ns`, milliseconds
/// where it ends with `_ms`.
#[derive(Clone, Debug, Serialize)]
pub struct HistoryReport {
    /// The version of this structure.
    pub schema: u32,
    /// From when on it is: where the first row of the time begins; where there is none, as was asked for.
    pub from_ms: i64,
    /// Until when: where the last row ends. Rows are not divided.
    pub to_ms: i64,
    /// How much of that was counted.
    pub coverage: Coverage,
    /// Maximum latencies, in microseconds, by CPU and kind.
    pub max_us: BTreeMap<u32, BTreeMap<Kind, f64>>,
    /// By CPU and kind, where anything was counted.
    pub cpus: Vec<CpuReport>,
    /// Wake-ups, and whether they can be believed.
    pub wakeups: Wakeups,
    /// Systems that it was counted on, the latest at the end.
    pub systems: Vec<System>,
    /// When whoever wrote it began.
    pub starts: Vec<Start>,
    /// What happened to the clock and to counting.
    pub events: Vec<Event>,
    /// Latencies that crossed their thresholds.
    pub incidents: Vec<Incident>,
    /// Jobs, if any were watched.
    pub jobs: Option<HistoryJobs>,
}

/// What a history has of jobs.
#[derive(Clone, Debug, Serialize)]
pub struct HistoryJobs {
    /// How long jobs were watched, in milliseconds: a history is written also while nobody watches them.
    pub watched_ms: u64,
    /// Begins, ends and wake-ups that were lost meanwhile.
    pub lost: u64,
    /// By name.
    pub jobs: Vec<HistoryJob>,
}

/// A job's part. Lengths are responses, from the release to the end, in microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct HistoryJob {
    /// Its name.
    pub name: String,
    /// How many activations.
    pub activations: u64,
    /// Responses that were longer than their deadline.
    pub misses: u64,
    /// Of these, how many would have been even if they had begun at their release.
    pub overruns: u64,
    /// The shortest and the longest deadline there were; they are the same unless it was changed.
    pub deadlines_us: Option<[f64; 2]>,
    /// The mean.
    pub mean_us: f64,
    /// What half of them don't reach; a sixteenth too long at most.
    pub p50_us: f64,
    /// The same of 99 %.
    pub p99_us: f64,
    /// The same of 99.9 %.
    pub p999_us: f64,
    /// The longest, exactly.
    pub max_us: f64,
    /// What began the activations.
    pub released_by: BTreeMap<Release, u64>,
    /// The longest in detail.
    pub longest: Option<Longest>,
    /// Beginnings of places, in microseconds, and how many; places without any are left out.
    pub histogram: Vec<(f64, u64)>,
    /// The same, to be computed with.
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

/// Wake-ups, and whether they can be believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Wakeups {
    /// Threads that were woken.
    pub woken: u64,
    /// What the sums disagreed by, the most.
    pub difference: i64,
    /// How often threads slept, by the scheduler's own count, while somebody looked.
    pub slept: u64,
    /// Of these without a wake-up that was seen.
    pub unseen: u64,
}

impl HistoryReport {
    /// What it is of.
    pub const fn span(&self) -> Span {
        Span { from_ms: self.from_ms, to_ms: self.to_ms }
    }
}

impl Period {
    /// All of it as a report.
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
