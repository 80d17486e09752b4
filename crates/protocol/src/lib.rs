//! What an application and a session say to each other, beside the memory that they share.
//!
//! They talk over a Unix socket of sequenced packets; one packet is one [`message`]. The agent speaks
//! first ([`message::Hello`]); the session answers with [`message::ToAgent::Welcome`] and two memory
//! files, or refuses. Which events to record is told by [`rules`] in the shared control file, so that an
//! agent can decide about an event by itself, without asking.
#![forbid(unsafe_code)]

pub mod glob;
pub mod message;
pub mod names;
pub mod rules;

/// Version of the messages. Both sides must agree on it before anything is shared.
pub const PROTOCOL_VERSION: u32 = 1;

/// Most recordings that one process can be part of at a time.
pub const MAX_RECORDINGS: usize = 8;
