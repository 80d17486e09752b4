//! Sessions: recordings of commands, processes and the kernel.
//!
//! ```text
//! record ─┬─ control thread: starts the command, admits clients, takes signals, watches processes
//!         └─ consumer thread: drains rings by timer, converts time, makes packets
//!            ├─ stall watchdog: moves it to another CPU when its own stands still
//!            └─ disk thread: writes them
//! connections of other programs ──requests──► control thread
//! ```
//!
//! The two talk by `consumer::ConsumerCommand`s only. The control thread answers an agent within
//! microseconds, because programs wait for it when they start; the consumer may take its time.
//! Reading traces is left to others, and so is what a ring looks like inside.
#![forbid(unsafe_code)]

mod acceptor;
mod backing;
mod consumer;
mod control;
mod memory;
mod messages;
mod process;
mod record;
mod recover;
mod session_config;
mod target;
mod targets;

use tompion_context as context;
use tompion_context::filter;
use tompion_intake::{attach, budget, entrances, handshakes, listening, newcomers, pace, ring_budget, rseq};

pub use consumer::RecordingSummary;
pub use record::{Config, Error, Mode, Outcome, RingLimit, record};
pub use recover::{Recovered, incomplete, recover};
pub use target::{ProcessTree, Target};
pub use tompion_context::{
    Context,
    filter::{check_filter, filter_contexts, unknown_contexts},
};
pub use tompion_kernel_trace::{ChoiceError, KernelChoice};
pub use tompion_lineage::proc_files::{process_names, processes_named};
pub use tompion_programs::{ProgramSets, SetError};
