//! Programs that a recording wants: sets of them, and the socket by which they find it when they
//! start.
//!
//! Membership is decided by what the kernel says of a process, never by what the process says. The
//! session records the programs.
#![forbid(unsafe_code)]

mod join_socket;
mod sets;

pub use join_socket::JoinSocket;
pub use sets::{Program, ProgramSets, SetError, process_user};
