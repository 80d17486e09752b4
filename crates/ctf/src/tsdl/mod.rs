//! Reads and writes TSDL, the description language of CTF 1.8: [`parse`] reads it, [`write()`]
//! writes it.
//!
//! ```text
//! bytes ──packets──► text ──lexer──► tokens ──parser──► syntax ──resolver──► metadata::Trace
//! ```
//!
//! The parser knows only the grammar. The resolver resolves names. It builds a type again at every
//! place where it is used, so that references to other fields can be followed from there.

mod attributes;
mod lexer;
mod packets;
mod parser;
mod remarks;
mod resolver;
mod roles;
#[cfg(test)]
mod soundness_tests;
mod syntax;
#[cfg(test)]
mod tests;
mod types;
mod write;

pub use packets::text;
pub(crate) use packets::uuid;
pub use write::write;
pub use write::{escaped_name, is_plain};

use crate::Description;
use crate::metadata::Trace;

/// Reason why a description could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text does not follow the grammar.
    #[error("expected {expected}, found {found}, line {}, column {}", at.line, at.column)]
    Syntax {
        /// Position of the error.
        at: Position,
        /// Expected syntax.
        expected: String,
        /// Token found instead.
        found: String,
    },
    /// The text follows the grammar, but its content is invalid.
    #[error("{message}, line {}, column {}", at.line, at.column)]
    Invalid {
        /// Position of the error.
        at: Position,
        /// Problem.
        message: String,
    },
    /// The file is no text that any version has.
    #[error("expected a description in UTF-8 without a byte order mark, found {found}")]
    Text {
        /// Content found instead.
        found: &'static str,
    },
    /// The text comes in packets, and one of them is corrupt.
    #[error("expected {expected}, found {found}, metadata packet at byte {offset}")]
    Packet {
        /// Position of the packet, in bytes from the beginning of the file.
        offset: usize,
        /// Expected content.
        expected: String,
        /// Content found instead.
        found: String,
    },
}

/// Position in a text: line and column, both from 1. Columns count characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Line.
    pub line: u32,
    /// Column.
    pub column: u32,
}

/// Reads a `metadata` file: plain text, or packets of either byte order.
pub fn parse(bytes: &[u8]) -> Result<Trace, Error> {
    parse_text(&text(bytes)?)
}

/// Reads the text of a description.
pub fn parse_text(text: &str) -> Result<Trace, Error> {
    describe_text(text).map(|description| description.trace)
}

/// Reads the text of a description, with warnings about what is odd but leaves the decoding clear.
pub fn describe_text(text: &str) -> Result<Description, Error> {
    check_version(text)?;
    let (items, remarks) = parser::parse(text)?;
    resolver::resolve(&items, remarks)
}

/// Checks the version in the comment at the beginning. Text from packets has none.
fn check_version(text: &str) -> Result<(), Error> {
    let at = Position { line: 1, column: 1 };
    let comment = text.trim_start().strip_prefix("/* CTF ").and_then(|rest| rest.split_once("*/"));
    match comment.map(|(version, _)| version.trim()).filter(|version| *version != "1.8") {
        None => Ok(()),
        Some(version) => {
            let message = format!("expected version 1.8 in the first comment, found {version:?}");
            Err(Error::Invalid { at, message })
        }
    }
}
