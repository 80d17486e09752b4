//! The Common Trace Format (CTF): descriptions of traces, and decoding and encoding of their bytes.
//!
//! ```text
//! metadata text ──► tsdl::parse, json::parse ──► metadata::Trace ──► decode::Decoder ──► values
//!                   tsdl::write, json::write ◄──      │
//! ```
//!
//! [`metadata`] is the model of a trace, the same for every version of the format. [`tsdl`] reads
//! and writes the description language of CTF 1.8, [`json`] that of CTF 2. [`decode`] compiles the
//! model into flat plans, once for each class, and runs them over the bytes of packets. [`encode`]
//! writes Tompion's own traces.
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
pub mod tsdl;

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

/// Description of a trace, and what is odd about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    /// Description.
    pub trace: metadata::Trace,
    /// Warnings about oddities that leave the decoding clear, one line each.
    pub warnings: Vec<String>,
}

/// Reads a `metadata` file of either version: plain text, or packets of either byte order.
///
/// # Errors
///
/// Fails if the text is not a valid description, or leaves open how events are decoded.
///
/// ```
/// let text = b"/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = le; };
///     clock { name = c; offset_s = 9223372036; }; stream { };
///     event { name = e; fields := struct { string s; }; };";
/// let expected = "expected clock c to begin in a year up to 2262, \
///     found an offset of 9223372036 s: later times cannot be shown";
/// assert_eq!(tompion_ctf::describe(text).unwrap().warnings, [expected]);
/// ```
pub fn describe(bytes: &[u8]) -> Result<Description, DescriptionError> {
    let text = tsdl::text(bytes)?;
    let mut description = match json::is_json(&text) {
        true => json::describe_text(&text)?,
        false => tsdl::describe_text(&text)?,
    };
    description.warnings.extend(lint::lint(bytes, &description.trace));
    Ok(description)
}

/// Reads a `metadata` file like [`describe`], without warnings.
///
/// # Errors
///
/// Fails like [`describe`].
pub fn parse(bytes: &[u8]) -> Result<metadata::Trace, DescriptionError> {
    describe(bytes).map(|description| description.trace)
}
