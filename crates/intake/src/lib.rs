//! Programs that are asked to take part in a recording, sockets by which others find it, and limits
//! on those that ask: how many connect at once, how long they may take, how much memory their names
//! cost, and how often the recorder looks for them.
#![forbid(unsafe_code)]

pub mod attach;
pub mod budget;
pub mod entrances;
pub mod handshakes;
pub mod listening;
pub mod newcomers;
pub mod pace;
pub mod ring_budget;
pub mod rseq;
