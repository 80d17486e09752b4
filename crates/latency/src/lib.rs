//! The latency monitor: every wake-up of every real-time thread, for as long as the machine runs.
//!
//! ```text
//! src/bpf/monitor.bpf.c ──► arrays, pinned ──mmap──► Memory ──► Snapshot ──► Report
//! ```
//!
//! Programs in the kernel count ([`kinds`]); [`Monitor`] begins and ends that, and reads what was counted, at any time and
//! from any process. Nothing is lost when the reader ends: the programs and their arrays are pinned, and go on.
//! A [`Report`] is the difference of two [`Snapshot`]s with the sums checked. How it is shown is somebody else's business.
#![forbid(unsafe_code)]

mod balance;
pub mod blame;
pub mod exporter;
mod groups;
mod histogram;
pub mod incident;
pub mod jobs;
pub mod journal;
pub mod kinds;
mod living;
mod log;
mod memory;
mod monitor;
#[cfg(test)]
mod own;
mod pins;
mod programs;
mod prometheus;
mod recent;
mod report;
mod snapshot;
mod stack_symbols;
pub mod watch;
mod witness;

pub use balance::Balance;
pub use groups::{Cgroups, Found, Group, MOST_GROUPS};
pub use histogram::{Histogram, LENGTH_PLACES, length_bounds, length_place, steps};
pub use kinds::{Kind, Kinds};
pub use log::{Log, Wakeup};
pub use memory::{BUCKETS, MaxSample, Memory, THREADS as MAX_THREADS};
pub use monitor::{Begun, Fate, Monitor, obstacles};
pub use prometheus::{Incidents, OfProcess};
pub use report::{
    CpuReport, GroupReport, KindReport, Late, Maximum, Report, ThreadReport, max_us, of_all_cpus,
};
pub use snapshot::Snapshot;
pub use stack_symbols::StackSymbols;
pub use witness::{Unseen, Witness};

/// Why the monitor can't do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something is missing that is known.
    #[error("{found} ({mend})")]
    Obstacle {
        /// What was found.
        found: String,
        /// What to do.
        mend: &'static str,
    },
    /// The kernel refused something.
    #[error(transparent)]
    Kernel(#[from] tompion_kernel::Error),
    /// A file can't be used.
    #[error("{what} {path}")]
    File {
        /// What was to be done.
        what: &'static str,
        /// To which file.
        path: String,
        /// Why not.
        source: std::io::Error,
    },
    /// Another version of Tompion counts.
    #[error(
        "{found} counts already, in a layout of another version (found {version}, expected {expected}); \
         read it with that version, or end it: tompion monitor stop"
    )]
    OtherVersion {
        /// Where.
        found: String,
        /// Which one was found.
        version: u32,
        /// Which one this is.
        expected: u32,
    },
    /// Something counts that has lost a part.
    #[error(
        "some of the programs in {0} are not attached any more (end it and begin again: tompion monitor stop; \
         tompion monitor)"
    )]
    NotWhole(String),
    /// Nothing counts.
    #[error("nothing is counted yet; begin with: tompion monitor")]
    NotCounting,
    /// A name that can't be a monitor's.
    #[error("expected a name of letters, digits, `-` and `_`, found `{0}`")]
    Name(String),
}

impl Error {
    /// Whether what counts can be read by no Tompion that is not older than this one: nothing helps but to end it and to begin anew.
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
