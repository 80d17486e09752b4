//! Keeper of a recording: a small process that holds duplicates of its recorder's descriptors, so
//! that they outlast the recorder.
//!
//! ```text
//! recorder ──Hold, Release──► keeper ──Held for each entry, Complete──► next recorder
//!    │ killed: its connection ends       │ no recorder for `linger`: the keeper exits,
//!    ▼                                   ▼ and the programs see their connections end
//! ```
//!
//! It holds listening sockets, and for each process its connection, its memory files and a
//! watch of its end; of the kernel, maps, programs and links. It reads and writes none of them.
//! Because it holds the connections and the listening sockets, programs notice nothing: they go on,
//! and those that start wait in the socket's queue.
//!
//! The keeper trusts one user only, its own. A recorder checks all that it is given ([`HandOver`]
//! says what comes of that). What is in the memory files is left to the session.
#![forbid(unsafe_code)]

mod client;
mod message;
mod server;

pub use client::{HandOver, HeldProcess, Keeper, TakeError};
pub use server::serve;

/// Hidden command of `tompion` that runs [`serve`].
pub const COMMAND: &str = "keep";
