//! Everything that was counted, at one moment.

use serde::{Deserialize, Serialize};
use tompion_os::{monotonic_ns, realtime_ns};

use crate::{
    balance::Balance,
    groups::Group,
    histogram::Histogram,
    kinds::Kind,
    memory::{MaxSample, Memory, RawThread},
};

/// All counts, histograms and rows at a moment. What came between two is their difference.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// CLOCK_MONOTONIC, in nanoseconds.
    pub(crate) time: u64,
    /// What CLOCK_REALTIME was ahead of it, in nanoseconds.
    pub(crate) ahead: u64,
    /// When counting began, by CLOCK_MONOTONIC.
    pub(crate) begun: u64,
    pub(crate) balance: Balance,
    /// By CPU and kind.
    pub(crate) cpus: Vec<[State; Kind::ALL.len()]>,
    pub(crate) threads: Vec<RawThread>,
    pub(crate) groups: Vec<GroupState>,
    /// Cgroups that are in no group for want of room.
    pub(crate) unlisted: u32,
}

/// What a group has, by kind, since it began (CLOCK_MONOTONIC, in nanoseconds).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GroupState {
    pub(crate) group: Group,
    pub(crate) begun: u64,
    pub(crate) states: [State; Kind::ALL.len()],
}

/// A histogram, the sum of its latencies in nanoseconds, and the longest of the epoch.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct State {
    pub(crate) sum: u64,
    pub(crate) histogram: Histogram,
    pub(crate) worst: Option<MaxSample>,
}

impl Snapshot {
    /// Of now.
    pub(crate) fn take(memory: &Memory) -> Self {
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
            balance: Balance::read(memory),
            cpus,
            threads,
            groups,
            unlisted: memory.groups().unlisted(),
        }
    }

    /// Before anything was counted by who began at the same time.
    pub fn of_the_beginning(&self) -> Self {
        Self { time: self.begun, ahead: self.ahead, begun: self.begun, ..Self::default() }
    }
}
