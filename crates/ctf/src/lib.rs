//! The Common Trace Format (CTF): descriptions of traces, and decoding and encoding of their bytes.
//!
//! ```text
//! metadata text ──► tsdl::parse, json::parse ──► metadata::Trace ──► decode::Decoder ──► values
//!                   tsdl::write, json::write ◄──      │                     │
//!                                       transcribe ◄──┴─────────────────────┘
//! ```
//!
//! [`metadata`] is the model of a trace, the same for every version of the format. [`tsdl`] reads
//! and writes the description language of CTF 1.8, [`json`] that of CTF 2. [`decode`] compiles the
//! model into flat plans, once for each class, and runs them over the bytes of packets. [`encode`]
//! writes Tompion's own traces. [`transcribe`] writes decoded events as another trace, of either
//! version.
//!
//! Every byte of a trace is untrusted until one of these modules has checked it. Nothing here
//! panics, reads unchecked, or allocates by a size that was not compared with the available bytes.
//! Files, folders and the order of events of several streams are the job of `tompion-reader`.
#![forbid(unsafe_code)]

pub mod decode;
pub mod encode;
pub mod event_kind;
pub mod json;
mod lint;
pub mod metadata;
pub mod transcribe;
pub mod tsdl;

pub use lint::lint;

/// Reason why a description of either version could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DescriptionError {
    /// Error in a description of CTF 1.8.
    #[error(transparent)]
    One(#[from] tsdl::Error),
    /// Error in a description of CTF 2.
    #[error(transparent)]
    Two(#[from] json::Error),
}

/// Reads a `metadata` file of either version: plain text, or packets of either byte order.
///
/// # Errors
///
/// Fails if the text is not a valid description.
pub fn parse(bytes: &[u8]) -> Result<metadata::Trace, DescriptionError> {
    let text = tsdl::text(bytes)?;
    Ok(if json::is_json(&text) { json::parse_text(&text)? } else { tsdl::parse_text(&text)? })
}
