//! Limits on programs that ask to take part in a recording: how many connect at once, how long they
//! may take, how much memory their names cost, and how often the recorder looks for them.
#![forbid(unsafe_code)]

pub mod budget;
pub mod handshakes;
pub mod listening;
pub mod pace;
