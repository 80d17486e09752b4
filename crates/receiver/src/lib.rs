//! Receiver of segments: an HTTPS service and the store behind it.
//!
//! ```text
//! sender ──PUT /v1/…──► Service ──rights──► Store ──► data file ──sync──► journal ──sync──► answer
//!                          │ GET: state of a chunk, last segment of a file
//! ```
//!
//! The store's folders are traces that any reader opens, also while they grow, and that can be sent
//! on to the next receiver. An answer of 200 or 201 means that the medium has the segment. How
//! segments come to be is left to others.
#![forbid(unsafe_code)]

mod certificates;
mod service;
mod store;
mod tokens;

pub use certificates::{CertificateError, make_certificates, server_config};
pub use service::{Access, Config, ConnectionLimits, Receiver, ReceiverError};
pub use store::{Refusal, Store, StoreLimits, Taken};
pub use tokens::{Right, TokenError, Tokens, make_token};
