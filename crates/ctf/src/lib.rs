//! The Common Trace Format: what traces say about themselves, and how their bytes become events.
//!
//! ```text
//! metadata text ──► tsdl::parse, json::parse ──► metadata::Trace ──► decode::Decoder ──► values of events
//!                   tsdl::write, json::write ◄──      │                         │
//!                                     transcribe ◄─────┴─────────────────────────┘
//! ```
//!
//! [`metadata`] is the model of a trace, the same for every version of the format. [`tsdl`] reads and
//! writes the description language of CTF 1.8, [`json`] that of CTF 2. [`decode`] compiles the model into flat plans, once for
//! each class, and runs these over the bytes of packets. [`transcribe`] writes what was decoded as another trace,
//! of whichever version.
//!
//! Every byte of a trace is hostile until one of these has checked it: nothing here panics, reads
//! unchecked or allocates by a size that was not compared with what is there. Files, folders and the
//! order of events of several streams are the business of `tompion-reader`.
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

/// Why a description, of whatever version, could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DescriptionError {
    /// One of CTF 1.8.
    #[error(transparent)]
    One(#[from] tsdl::Error),
    /// One of CTF 2.
    #[error(transparent)]
    Two(#[from] json::Error),
}

/// Reads a `metadata` file of either version: plain text, or text in packets of either byte order.
///
/// # Errors
///
/// If its text is none of a description.
pub fn parse(bytes: &[u8]) -> Result<metadata::Trace, DescriptionError> {
    let text = tsdl::text(bytes)?;
    Ok(if json::is_json(&text) { json::parse_text(&text)? } else { tsdl::parse_text(&text)? })
}
