//! Protocol between an application and a session, apart from the memory that they share.
//!
//! They communicate over a Unix socket of sequenced packets; each packet is one [`message`]. The
//! agent begins ([`message::Hello`]). The session answers with [`message::ToAgent::Welcome`] and
//! two memory files, or refuses. The [`rules`] in the shared control file state which events to
//! record, so that an agent decides about an event without asking.
#![forbid(unsafe_code)]

pub mod glob;
pub mod message;
pub mod names;
pub mod rules;
pub mod triggers;

/// Version of the messages. Both sides must agree on it before anything is shared.
pub const PROTOCOL_VERSION: u32 = 1;

/// Maximum number of recordings that one process can take part in at a time.
pub const MAX_RECORDINGS: usize = 8;
