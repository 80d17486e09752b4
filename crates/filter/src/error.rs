//! Errors in filters, with their positions.

use std::fmt;

/// Part of a filter's text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Position of the beginning in bytes.
    pub offset: usize,
    /// Length in bytes.
    pub length: usize,
}

impl Span {
    pub(crate) fn between(begin: usize, end: usize) -> Self {
        Self { offset: begin, length: end.saturating_sub(begin) }
    }

    /// Returns the smallest span that contains both.
    pub(crate) fn with(self, other: Self) -> Self {
        let end = (self.offset + self.length).max(other.offset + other.length);
        Self::between(self.offset.min(other.offset), end)
    }
}

/// Error of a filter that does not parse, or that does not fit the events.
///
/// `Display` formats it as one line; [`FilterError::render`] also shows the position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}, found {found}")]
pub struct FilterError {
    /// Position in the text.
    pub at: Span,
    /// Expected syntax or type.
    pub expected: String,
    /// Text or type found instead.
    pub found: String,
    text: String,
}

impl FilterError {
    /// Creates an error at a position of a filter's text, for callers that look up names
    /// themselves.
    pub fn new(text: &str, at: Span, expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self { at, expected: expected.into(), found: found.into(), text: text.into() }
    }

    /// Formats two lines: the filter's text (only the relevant line, if it has several), and below
    /// it a caret with the message.
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

/// Returns the largest character boundary that is not beyond `offset`.
fn floor_boundary(text: &str, offset: usize) -> usize {
    (0..=offset.min(text.len())).rev().find(|&offset| text.is_char_boundary(offset)).unwrap_or(0)
}
