//! Splits a filter's text into words, literals and signs.

use crate::error::{FilterError, Span};
use crate::literal::{self, Wrong, quoted};
use crate::name::Name;
use crate::pattern::Pattern;
use crate::value::Value;

/// Token of a filter.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token<'a> {
    Number(Value),
    Text(Pattern),
    Word(&'a str),
    Sign(&'static str),
    End,
}

/// All signs; a longer sign precedes its own prefix.
const SIGNS: &[&str] = &[
    "||", "&&", "==", "!=", "<=", ">=", "<<", ">>", "|", "^", "&", "<", ">", "+", "-", "*", "/", "%", "!",
    "~", "(", ")", "[", "]", ".", ":", "$",
];

/// Lexer of a text.
pub(crate) struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// Returns the next token with its position; [`Token::End`] repeatedly at the end.
    pub(crate) fn next(&mut self) -> Result<(Token<'a>, Span), FilterError> {
        let rest = self.text[self.at..].trim_start();
        let begin = self.text.len() - rest.len();
        let (token, length) = take(rest).map_err(|wrong| self.error(begin, wrong))?;
        self.at = begin + length;
        Ok((token, Span { offset: begin, length }))
    }

    fn error(&self, begin: usize, wrong: Wrong) -> FilterError {
        let at = Span { offset: begin + wrong.at.offset, length: wrong.at.length };
        FilterError::new(self.text, at, wrong.expected, wrong.found)
    }
}

/// Returns the token at the beginning of `rest`, and its length.
fn take(rest: &str) -> Result<(Token<'_>, usize), Wrong> {
    let Some(first) = rest.chars().next() else { return Ok((Token::End, 0)) };
    if first.is_ascii_digit() {
        return literal::number(rest).map(|(value, length)| (Token::Number(value), length));
    }
    if first.is_ascii_alphabetic() || first == '_' {
        let word = |character: char| character.is_ascii_alphanumeric() || character == '_';
        let length = rest.find(|character| !word(character)).unwrap_or(rest.len());
        return Ok((Token::Word(&rest[..length]), length));
    }
    match first {
        '"' => return literal::text_literal(rest).map(|(pattern, length)| (Token::Text(pattern), length)),
        '\'' => {
            return literal::character_literal(rest).map(|(value, length)| (Token::Number(value), length));
        }
        _ => {}
    }
    if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
        return Ok((Token::Sign(sign), sign.len()));
    }
    let length = first.len_utf8();
    let expected = if first == '=' { "`==`" } else { "a name, a number, a text or an operator" };
    Err(Wrong { at: Span { offset: 0, length }, expected, found: quoted(&rest[..length]) })
}

impl Token<'_> {
    /// Whether it is this sign.
    pub(crate) fn is(&self, sign: &str) -> bool {
        matches!(self, Token::Sign(found) if *found == sign)
    }
}

/// Returns `text` as a quoted name of an application context, if it has the form `provider:name`.
pub(crate) fn application_name(pattern: &Pattern) -> Option<String> {
    let text = String::from_utf8(pattern.bytes().to_vec()).ok()?;
    let (provider, name) = text.split_once(':')?;
    let sound = |part: &str| {
        !part.is_empty()
            && !part.chars().any(|character| character.is_control() || "*?\\\"".contains(character))
    };
    (sound(provider) && sound(name)).then_some(text)
}

/// Formats the name of an application context for a filter.
pub(crate) fn quote_application_name(name: &str) -> String {
    match name.split_once(':') {
        Some((provider, rest)) if Name::is_word(provider) && Name::is_word(rest) => name.into(),
        _ => format!("\"{name}\""),
    }
}
