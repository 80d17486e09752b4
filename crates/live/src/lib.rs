//! Server of LTTng's live protocol 2.4, by which an unmodified babeltrace2 reads recordings along:
//! of this machine's recorders, and those that a receiver stores.
//!
//! ```text
//! babeltrace2 ──requests──► Server ──► Attached (one session of one reader) ──► files of the trace
//! ```
//!
//! It only reads. A reader may be slow, absent, or one of many: nothing waits for it. How
//! recordings get here is left to others.
#![forbid(unsafe_code)]

mod attached;
pub mod protocol;
mod server;

pub use server::{LiveServer, Refusal};
