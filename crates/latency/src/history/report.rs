//! What a history says of a time, as reports say it.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    body::Body,
    period::{Coverage, Period, Start, System},
    store::{Event, Incident},
};
use crate::{
    kinds::Kind,
    report::{CpuReport, KindReport, Late, max_us},
};

/// What was counted in a time of a history. Times of day are nanoseconds since 1970 where a name ends with `_ns`, milliseconds
/// where it ends with `_ms`.
#[derive(Clone, Debug, Serialize)]
pub struct HistoryReport {
    /// The version of this structure.
    pub schema: u32,
    /// From when on it is: as was asked for, or where the history begins.
    pub from_ms: i64,
    /// Until when.
    pub to_ms: i64,
    /// How much of that was counted.
    pub coverage: Coverage,
    /// The longest latencies, in microseconds, by CPU and kind.
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

impl Period {
    /// All of it as a report.
    pub fn report(self) -> HistoryReport {
        let Body { woken, difference, slept, unseen, cells } = self.body;
        let mut cpus: BTreeMap<u32, BTreeMap<Kind, KindReport>> = BTreeMap::new();
        for ((cpu, kind), cell) in cells {
            let worst = cell.longest.worst.as_ref().map(|worst| Late::new(worst, 0));
            let longest = (cell.longest.ns, cell.longest.is);
            if let Some(report) = KindReport::of(cell.places.histogram(), cell.sum, longest, worst) {
                cpus.entry(cpu).or_default().insert(kind, report);
            }
        }
        let cpus: Vec<CpuReport> = cpus.into_iter().map(|(cpu, kinds)| CpuReport { cpu, kinds }).collect();
        HistoryReport {
            schema: 1,
            from_ms: self.span.from_ms.max(self.coverage.first_ms),
            to_ms: self.span.to_ms.min(self.coverage.last_ms.max(self.span.from_ms)),
            coverage: self.coverage,
            max_us: max_us(&cpus),
            cpus,
            wakeups: Wakeups { woken, difference, slept, unseen },
            systems: self.systems,
            starts: self.starts,
            events: self.events,
            incidents: self.incidents,
        }
    }
}
