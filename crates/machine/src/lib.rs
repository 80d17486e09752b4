//! How a machine is set up for real time: looked at ([`fitness`]), described ([`description`]), and
//! changed for as long as a command runs ([`shield`]).
//!
//! Everything is read and written below a [`Root`], `/` in life and a made-up tree in tests. What
//! is measured on the machine is somebody else's business.
#![forbid(unsafe_code)]

mod cpus;
pub mod description;
pub mod fitness;
mod root;
pub mod shield;

pub use cpus::{CpuSet, NoCpus};
pub use root::{Root, Unread};
