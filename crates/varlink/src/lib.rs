//! Varlink over Unix sockets: a server for hostile clients, and a client.
//!
//! ```text
//! accept thread ──peer's user?──► connections ──room──► thread per connection ──call──► Service
//!                                     │ full: the longest idle one is closed
//! ```
//!
//! A message is a JSON object that ends with a NUL byte. Each interface describes itself in text,
//! which `varlinkctl introspect` shows. Source: <https://varlink.org>.
//!
//! Every wait has an end: a message must be complete a few seconds after its first byte, a reply
//! must be taken as fast. So a client that is slow, stopped or sends garbage holds up itself only.
#![forbid(unsafe_code)]

mod client;
mod connection;
mod message;
mod server;

pub use client::{Client, ClientError};
pub use message::{Call, CallError, MAX_CALL, MAX_REPLY};
pub use server::{Caller, Identity, Server, Service};
