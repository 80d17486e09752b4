//! Real-time tests: is this machine fit, and what does recording cost it?
//!
//! ```text
//! npt, maxrate ──start──► `tompion record` ──starts──► `tompion test` as the program under test
//!      ▲                        └─► trace ──counted──┐        └─► measurements, in a file
//!      └─────────────────────────────────────────────┴────────────────┘
//! ```
//!
//! The measured code runs in a process of its own, so that it is recorded as any program is, and so
//! that it is the same under each recorder. [`cyclic`], [`preempt`] and [`hwgap`] measure the
//! machine alone, in threads of the command. The modules that every test needs:
//!
//! - [`prepare`]: a CPU of its own, SCHED_FIFO, locked memory, and words for what could not be had;
//! - [`ticks`]: how long a tick of the counter is, and what reading it takes;
//! - [`accumulator`]: statistics of very many values in fixed memory;
//! - [`witness`]: what came between, interrupts, switches, a hypervisor;
//! - [`counters`]: what the kernel has counted meanwhile.
//!
//! How results are shown is the command's affair. docs/design/rttest.md has the reasons.
#![forbid(unsafe_code)]

pub mod accumulator;
pub mod campaign;
pub mod counters;
pub mod cyclic;
pub mod hwgap;
pub mod load;
pub mod maxrate;
pub mod npt;
pub mod peer;
pub mod preempt;
pub mod prepare;
mod recording;
pub mod ticks;
pub mod witness;

use std::{io, path::PathBuf};

pub use recording::{Arrived, Buffers, SAYS};

/// Reason for having no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The machine has no such CPU, or it is not for this process.
    #[error("no CPU {cpu} for this process; it may use {}", list(.allowed))]
    NoCpu {
        /// Requested CPU.
        cpu: u32,
        /// CPUs that the process may use.
        allowed: Vec<u32>,
    },
    /// The clock can't be read, so nothing can be measured.
    #[error("the loop measures with {name}, which is not usable here: {0}", name = tompion_os::COUNTER_NAME)]
    Counter(String),
    /// A program that is needed can't be run.
    #[error("can't run {0}")]
    Program(String, #[source] io::Error),
    /// The program under test, or its recorder, has failed.
    #[error("{0}")]
    Failed(String),
    /// A requirement of another tracer's measurement is missing.
    #[error("LTTng is left out: {0}")]
    NoPeer(String),
    /// A file can't be read or written.
    #[error("can't use {}", .0.display())]
    File(PathBuf, #[source] io::Error),
    /// The trace can't be read.
    #[error("can't read the trace")]
    Trace(#[from] tompion_reader::Error),
    /// A rate that nothing bears.
    #[error("not even {0} events a second arrive without loss")]
    NothingBorne(u64),
}

/// Numbers of CPUs in words.
fn list(cpus: &[u32]) -> String {
    cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
