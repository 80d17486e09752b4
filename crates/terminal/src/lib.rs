//! Lines on a terminal: messages, exit codes, and what is escaped in them.
#![forbid(unsafe_code)]

pub mod exit_status;
pub mod messages;
