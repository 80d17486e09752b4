//! What is wrong with a filter, and where.

use std::fmt;

/// A part of a filter's text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Where it begins, in bytes.
    pub offset: usize,
    /// How long it is, in bytes.
    pub length: usize,
}

impl Span {
    pub(crate) fn between(begin: usize, end: usize) -> Self {
        Self { offset: begin, length: end.saturating_sub(begin) }
    }

    /// The smallest part that has both in it.
    pub(crate) fn with(self, other: Self) -> Self {
        let end = (self.offset + self.length).max(other.offset + other.length);
        Self::between(self.offset.min(other.offset), end)
    }
}

/// A filter that does not parse, or that does not fit the events.
///
/// `Display` says it in a line; [`FilterError::render`] shows the place as well.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}, found {found}")]
pub struct FilterError {
    /// Where in the text.
    pub at: Span,
    /// What would have been right there.
    pub expected: String,
    /// What is there.
    pub found: String,
    text: String,
}

impl FilterError {
    /// An error at a place of a filter's text. For those who look names up at run time and find none.
    pub fn new(text: &str, at: Span, expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self { at, expected: expected.into(), found: found.into(), text: text.into() }
    }

    /// Two lines: the filter's text (of several lines, the one that is meant), and below it a caret with
    /// what is wrong.
    ///
    /// ```
    /// let error = tompion_filter::parse("rows > )").unwrap_err();
    /// assert_eq!(error.render(), "rows > )\n       ^ expected a value, found `)`");
    /// ```
    pub fn render(&self) -> String {
        let offset = floor_boundary(&self.text, self.at.offset);
        let begin = self.text[..offset].rfind('\n').map_or(0, |newline| newline + 1);
        let line = self.text[begin..].split('\n').next().unwrap_or("");
        let end = floor_boundary(&self.text, offset.saturating_add(self.at.length)).min(begin + line.len());
        let printable = |text: &str| text.replace(char::is_control, " ");
        let before = self.text[begin..offset].chars().count();
        let marked = self.text.get(offset..end).map_or(0, |marked| marked.chars().count()).max(1);
        Mark { line: &printable(line), before, marked, error: self }.to_string()
    }
}

struct Mark<'a> {
    line: &'a str,
    before: usize,
    marked: usize,
    error: &'a FilterError,
}

impl fmt::Display for Mark<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.line)?;
        write!(
            f,
            "{:before$}{:^<marked$} {}",
            "",
            "^",
            self.error,
            before = self.before,
            marked = self.marked
        )
    }
}

/// The largest boundary between characters that is not behind `offset`.
fn floor_boundary(text: &str, offset: usize) -> usize {
    (0..=offset.min(text.len())).rev().find(|&offset| text.is_char_boundary(offset)).unwrap_or(0)
}
