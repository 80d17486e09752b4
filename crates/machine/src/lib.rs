//! Real-time setup of a machine: checks ([`fitness`]), description ([`description`]), and CPUs kept
//! free while a command runs ([`shield`]).
//!
//! Everything is read and written below a [`Root`]: `/`, or a fixture in tests. Measurements are
//! left to other crates.
#![forbid(unsafe_code)]

mod cpus;
pub mod description;
pub mod fitness;
mod root;
pub mod shield;

pub use cpus::{CpuSet, NoCpus};
pub use root::{Root, Unread};
