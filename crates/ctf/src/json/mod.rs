//! Reads and writes JSON, the description language of CTF 2: [`parse`] reads it, [`write()`] writes
//! it.
//!
//! ```text
//! bytes ──packets──► text ──fragments──► values ──resolver──► metadata::Trace
//! ```
//!
//! A description is a sequence of JSON objects, called fragments. Each is preceded by a record
//! separator (0x1e) or simply follows its predecessor. The first is the preamble. Named field
//! classes are built again at every place where they are used, because locations of fields are
//! relative to it.
//!
//! Attributes of unknown namespaces are ignored. Extensions are refused: a description with one may
//! have any meaning.
//!
//! The following deviations are accepted, because there are traces with them:
//!
//! - a comma after the last element or property
//! - two members with one name
//! - names from a draft of the format (CTF2-SPEC-7.0): classes of enumerations, locations that are
//!   arrays, clocks with a name and no number, the UUID of the trace class, `user-attributes`

mod attributes;
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
use crate::{Description, tsdl};

/// Separator before each fragment.
const RECORD_SEPARATOR: u8 = 0x1e;

/// Namespace of attributes that have no common name.
const OWN_NAMESPACE: &str = "tompion";

/// Reason why a description could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A fragment is not valid JSON.
    #[error("{message}, fragment at byte {offset}")]
    Syntax {
        /// Position of the fragment, in bytes from the beginning of the text.
        offset: usize,
        /// Problem.
        message: String,
    },
    /// A fragment is valid JSON, but its content is invalid.
    #[error("{}{message}, fragment {number} at byte {offset}", path_text(path))]
    Invalid {
        /// Position of the fragment, in bytes from the beginning of the text.
        offset: usize,
        /// Number of the fragment, from 1.
        number: usize,
        /// Names of properties from the fragment to the problem.
        path: Vec<String>,
        /// Problem.
        message: String,
    },
    /// The text comes in packets, and one of them is corrupt.
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

/// Reads a `metadata` file: plain text, or packets of either byte order.
///
/// # Errors
///
/// Fails if the text is not a valid description of CTF 2.
pub fn parse(bytes: &[u8]) -> Result<Trace, Error> {
    let text: Cow<'_, str> = tsdl::text(bytes).map_err(Error::Packet)?;
    parse_text(&text)
}

/// Reads the text of a description.
///
/// # Errors
///
/// Fails like [`parse`].
pub fn parse_text(text: &str) -> Result<Trace, Error> {
    describe_text(text).map(|description| description.trace)
}

/// Reads the text of a description, with warnings about what is odd but leaves the decoding clear.
///
/// # Errors
///
/// Fails like [`parse`].
pub fn describe_text(text: &str) -> Result<Description, Error> {
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
            let fragment = fragment.map_err(|error| wrong(problem_of(&error)))?;
            number += 1;
            let invalid = |wrong: fragment::Wrong| Error::Invalid {
                offset: begin,
                number,
                path: wrong.path,
                message: wrong.message,
            };
            resolver.fragment(&fragment, number).map_err(invalid)?;
        }
    }
    if number == 0 {
        return Err(Error::Syntax { offset: 0, message: "expected a preamble, found nothing".into() });
    }
    Ok(Description { trace: resolver.trace, warnings: resolver.remarks })
}

/// Describes why a fragment is no JSON.
fn problem_of(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.strip_prefix("recursion limit exceeded") {
        Some(place) => format!("expected arrays and objects nested at most 127 deep, found more{place}"),
        None => format!("expected JSON: {text}"),
    }
}

/// Splits a text at record separators; each part comes with its position.
fn parts(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut offset = 0;
    text.split(char::from(RECORD_SEPARATOR)).map(move |part| {
        let begin = offset;
        offset += part.len() + 1;
        (begin, part)
    })
}
