//! JSON, the description language of CTF 2: [`parse`] reads it, [`write()`] writes it.
//!
//! ```text
//! bytes ──packets──► text ──fragments──► values ──resolver──► metadata::Trace
//! ```
//!
//! A description is a row of JSON objects, fragments, each behind a record separator (0x1e) or simply one
//! behind the other. The first is the preamble. Names of field classes stand for what they were defined as;
//! the class is built anew at every place where it is used, because locations of fields are relative to it.
//!
//! Attributes of namespaces that nobody here knows are passed over, extensions are refused: a description
//! with one may mean anything.
//!
//! Read as well, because there are traces of it: a comma behind the last element or property, two members of one name, and
//! what a draft of the format (CTF2-SPEC-7.0) calls otherwise: classes of enumerations, locations that are arrays, clocks
//! that have a name and no number, the UUID of the trace class, `user-attributes`.

mod fields;
mod fragment;
mod relaxed;
mod resolver;
#[cfg(test)]
mod tests;
mod value;
mod write;

pub use write::write;

use std::borrow::Cow;

use crate::metadata::Trace;
use crate::tsdl;

/// Stands before each fragment.
const RECORD_SEPARATOR: u8 = 0x1e;

/// Whose attributes those are that nobody else has a name for.
const OWN_NAMESPACE: &str = "tompion";

/// Why a description could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A fragment is no JSON.
    #[error("{message}, fragment at byte {offset}")]
    Syntax {
        /// Where the fragment begins, in bytes from the beginning of the text.
        offset: usize,
        /// What is wrong.
        message: String,
    },
    /// A fragment is JSON, but says something that cannot be.
    #[error("{}{message}, fragment {number} at byte {offset}", path_text(path))]
    Meaning {
        /// Where the fragment begins, in bytes from the beginning of the text.
        offset: usize,
        /// The fragment's number, from 1.
        number: usize,
        /// Names of properties from the fragment to what is wrong.
        path: Vec<String>,
        /// What is wrong.
        message: String,
    },
    /// The text comes in packets, and one of them is damaged.
    #[error(transparent)]
    Packet(tsdl::Error),
}

fn path_text(path: &[String]) -> String {
    if path.is_empty() { String::new() } else { format!("{}: ", path.join(".")) }
}

/// Whether a text is a description of CTF 2.
pub fn is_json(text: &str) -> bool {
    matches!(text.trim_ascii_start().as_bytes(), [RECORD_SEPARATOR | b'{', ..])
}

/// Reads a `metadata` file: plain text, or text in packets of either byte order.
///
/// # Errors
///
/// If it is no description of CTF 2, or asks for what the format does not allow.
pub fn parse(bytes: &[u8]) -> Result<Trace, Error> {
    let text: Cow<'_, str> = tsdl::text(bytes).map_err(Error::Packet)?;
    parse_text(&text)
}

/// Reads the text of a description.
///
/// # Errors
///
/// As [`parse`].
pub fn parse_text(text: &str) -> Result<Trace, Error> {
    let text = &relaxed::without_last_commas(text);
    let mut resolver = resolver::Resolver::default();
    let mut number = 0;
    for (offset, part) in parts(text) {
        let mut fragments = value::fragments(part);
        loop {
            let rest = part.get(fragments.byte_offset()..).unwrap_or_default();
            let begin = offset + part.len() - rest.trim_ascii_start().len();
            let Some(fragment) = fragments.next() else { break };
            let wrong = |message: String| Error::Syntax { offset: begin, message };
            let fragment = fragment.map_err(|error| wrong(format!("expected JSON: {error}")))?;
            number += 1;
            let meaning = |wrong: fragment::Wrong| Error::Meaning {
                offset: begin,
                number,
                path: wrong.path,
                message: wrong.message,
            };
            resolver.fragment(&fragment, number).map_err(meaning)?;
        }
    }
    if number == 0 {
        return Err(Error::Syntax { offset: 0, message: "expected a preamble, found nothing".into() });
    }
    Ok(resolver.trace)
}

/// The parts between record separators, each with its place.
fn parts(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut offset = 0;
    text.split(char::from(RECORD_SEPARATOR)).map(move |part| {
        let begin = offset;
        offset += part.len() + 1;
        (begin, part)
    })
}
