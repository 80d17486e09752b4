//! Terminals: messages, exit codes, what is escaped in them, and displays that are refreshed.
#![forbid(unsafe_code)]

pub mod exit_status;
pub mod messages;
pub mod screen;
