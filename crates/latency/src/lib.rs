//! Latency monitor: counts every wakeup of every real-time thread, for as long as the machine runs.
//!
//! ```text
//! src/bpf/monitor.bpf.c ─► pinned arrays ─mmap─► MappedCounters ─► Snapshot ─► Report
//!
//! BPF programs count ([`kinds`]). [`Monitor`] starts and stops them, and reads the counters at any
//! time and from any process. Nothing is lost when the reader ends: programs and arrays are pinned.
//! A [`Report`] is the difference of two [`Snapshot`]s with checked sums; it is displayed
//! elsewhere.
#![forbid(unsafe_code)]

mod accounting;
pub mod attribution;
mod bpffs;
pub mod exporter;
mod groups;
mod histogram;
pub mod incident;
pub mod jobs;
pub mod kinds;
mod log;
mod mapped_counters;
mod monitor;
mod programs;
mod prometheus;
mod raw_record;
mod recent;
mod report;
mod sched_crosscheck;
mod snapshot;
mod stack_symbols;
pub mod syslog;
#[cfg(test)]
mod test_monitor;
mod thread_identity;
pub mod threshold;

pub use accounting::WakeupAccounting;
pub use groups::{Cgroups, Found, Group, MAX_GROUPS};
pub use histogram::{Histogram, LENGTH_PLACES, length_bounds, length_place, steps};
pub use kinds::{Kind, Kinds};
pub use log::{Log, Wakeup};
pub use mapped_counters::{BUCKETS, MappedCounters, MaxSample, THREADS as MAX_THREADS};
pub use monitor::{Begun, Fate, Monitor, obstacles};
pub use prometheus::{Incidents, OfProcess};
pub use report::{
    CpuReport, GroupReport, KindReport, Late, Maximum, Report, ThreadReport, max_us, of_all_cpus,
};
pub use sched_crosscheck::{MissedWakeups, SchedCrosscheck};
pub use snapshot::Snapshot;
pub use stack_symbols::StackSymbols;

/// Error of the monitor.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A known requirement is missing.
    #[error("{found} ({mend})")]
    Obstacle {
        /// Missing requirement.
        found: String,
        /// Remedy.
        mend: &'static str,
    },
    /// The kernel rejected a program or map.
    #[error(transparent)]
    Kernel(#[from] tompion_kernel::Error),
    /// A system call on a file failed.
    #[error("{what} {path}")]
    File {
        /// Operation that failed.
        what: &'static str,
        /// The file.
        path: String,
        /// Error of the system call.
        source: std::io::Error,
    },
    /// The running monitor is of another version of Tompion.
    #[error(
        "{found} counts already, in a layout of another version (found {version}, expected {expected}); \
         read it with that version, or end it: tompion monitor stop"
    )]
    OtherVersion {
        /// Folder of its pinned files.
        found: String,
        /// Version of its layout.
        version: u32,
        /// Version of this layout.
        expected: u32,
    },
    /// The running monitor is incomplete.
    #[error(
        "some of the programs in {0} are not attached any more (end it and begin again: tompion monitor stop; \
         tompion monitor)"
    )]
    NotWhole(String),
    /// No monitor is running.
    #[error("nothing is counted yet; begin with: tompion monitor")]
    NotCounting,
    /// The name is invalid for a monitor.
    #[error("expected a name of letters, digits, `-` and `_`, found `{0}`")]
    Name(String),
}

impl Error {
    /// Returns whether only a restart helps: neither this nor an older Tompion can read the
    /// monitor.
    pub fn calls_for_a_new_beginning(&self) -> bool {
        match self {
            Self::OtherVersion { version, expected, .. } => version < expected,
            Self::NotWhole(_) => true,
            _ => false,
        }
    }

    pub(crate) fn file(what: &'static str, path: &std::path::Path, source: std::io::Error) -> Self {
        Self::File { what, path: path.display().to_string(), source }
    }
}
