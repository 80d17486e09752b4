//! Snapshots: all counters at one time.

use serde::{Deserialize, Serialize};
use tompion_os::{monotonic_ns, realtime_ns};

use crate::{
    accounting::WakeupAccounting,
    groups::Group,
    histogram::Histogram,
    kinds::Kind,
    mapped_counters::{MappedCounters, MaxSample, RawThread},
};

/// All counts, histograms and slots at a time. The difference of two snapshots is what happened
/// between.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// CLOCK_MONOTONIC, in nanoseconds.
    pub(crate) time: u64,
    /// Difference of CLOCK_REALTIME and CLOCK_MONOTONIC, in nanoseconds.
    pub(crate) ahead: u64,
    /// Start of counting, by CLOCK_MONOTONIC.
    pub(crate) begun: u64,
    pub(crate) balance: WakeupAccounting,
    /// State by CPU and kind.
    pub(crate) cpus: Vec<[State; Kind::ALL.len()]>,
    pub(crate) threads: Vec<RawThread>,
    pub(crate) groups: Vec<GroupState>,
    /// Number of cgroups that did not fit into the groups' table.
    pub(crate) unlisted: u32,
}

/// State of a group by kind, since its start (CLOCK_MONOTONIC, in nanoseconds).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GroupState {
    pub(crate) group: Group,
    pub(crate) begun: u64,
    pub(crate) states: [State; Kind::ALL.len()],
}

/// Histogram, sum of its latencies in nanoseconds, and maximum of the epoch.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct State {
    pub(crate) sum: u64,
    pub(crate) histogram: Histogram,
    pub(crate) worst: Option<MaxSample>,
}

impl Snapshot {
    /// Takes a snapshot now.
    pub(crate) fn take(memory: &MappedCounters) -> Self {
        let state = |cpu: usize, kind: Kind| State {
            sum: memory.sum(cpu, kind),
            worst: memory.worst(cpu, kind),
            histogram: memory.histogram(cpu, kind),
        };
        let cpus = (0..memory.cpus()).map(|cpu| Kind::ALL.map(|kind| state(cpu, kind))).collect();
        let (threads, groups) = (memory.threads(), memory.groups().states());
        let time = monotonic_ns();
        Self {
            time,
            ahead: realtime_ns().saturating_sub(time),
            begun: memory.begun(),
            balance: WakeupAccounting::read(memory),
            cpus,
            threads,
            groups,
            unlisted: memory.groups().unlisted(),
        }
    }

    /// Returns the empty snapshot of the start of counting.
    pub fn of_the_beginning(&self) -> Self {
        Self { time: self.begun, ahead: self.ahead, begun: self.begun, ..Self::default() }
    }
}
