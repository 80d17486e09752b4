//! Splits text into tokens.

use super::remarks::Remarks;
use super::{Error, Position};

/// Token with its position.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token<'a> {
    pub kind: Kind<'a>,
    pub at: Position,
}

/// Kind of a token.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind<'a> {
    /// Identifier or keyword.
    Word(&'a str),
    /// String literal, without quotes and escapes.
    Text(String),
    /// Number without a sign.
    Number(u64),
    /// Symbol, as recognized by [`symbol`].
    Symbol(&'static str),
    /// End of the text.
    End,
    /// Invalid text.
    Wrong(Box<Error>),
}

impl Kind<'_> {
    /// Describes the token for an error message.
    pub fn describe(&self) -> String {
        match self {
            Self::Word(word) => format!("`{}`", shortened(word)),
            Self::Text(text) => format!("{:?}", shortened(text)),
            Self::Number(number) => number.to_string(),
            Self::Symbol(symbol) => format!("`{symbol}`"),
            Self::End => "the end of the text".into(),
            Self::Wrong(error) => error.to_string(),
        }
    }
}

/// Returns the beginning of a long text.
fn shortened(text: &str) -> String {
    text.chars().take(60).collect()
}

/// Lexer. Descriptions have megabytes, so ASCII is processed as bytes.
pub(super) struct Lexer<'a> {
    text: &'a str,
    /// Position of the remaining text in bytes.
    byte: usize,
    position: Position,
    /// Remarks on what is odd.
    pub remarks: Remarks,
}

impl<'a> Lexer<'a> {
    pub fn new(text: &'a str) -> Self {
        let position = Position { line: 1, column: 1 };
        Self { text, byte: 0, position, remarks: Remarks::default() }
    }

    /// Returns the next token; [`Kind::End`] repeatedly at the end.
    pub fn next(&mut self) -> Token<'a> {
        self.skip_space();
        let at = self.position;
        let kind = self.token().unwrap_or_else(|error| Kind::Wrong(Box::new(error)));
        Token { kind, at }
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.byte..).unwrap_or_default()
    }

    fn bytes(&self) -> &'a [u8] {
        self.text.as_bytes().get(self.byte..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn advance(&mut self) -> Option<char> {
        let character = self.peek()?;
        self.byte += character.len_utf8();
        if character == '\n' {
            self.position.line += 1;
            self.position.column = 1;
        } else {
            self.position.column += 1;
        }
        Some(character)
    }

    fn wrong(&self, expected: &str, found: String) -> Error {
        Error::Syntax { at: self.position, expected: expected.into(), found }
    }

    /// Skips white space, comments, preprocessor leftovers, and NULs up to the end.
    fn skip_space(&mut self) {
        loop {
            match self.bytes() {
                [0, rest @ ..] if rest.iter().all(|byte| matches!(byte, 0 | b'\n' | b' ')) => {
                    self.remarks.add(self.position, "expected the end of the text, ignored NUL characters");
                    self.byte = self.text.len();
                }
                [b' ' | b'\t' | b'\r' | b'\x0b' | b'\x0c', ..] => {
                    self.byte += 1;
                    self.position.column += 1;
                }
                [b'\n', ..] => drop(self.advance()),
                [b'/', b'*', ..] => {
                    // The last comment may be unterminated: babeltrace2 accepts that too.
                    while !self.bytes().starts_with(b"*/") && self.advance().is_some() {}
                    self.advance();
                    self.advance();
                }
                [first @ (b'/' | b'#'), rest @ ..] if *first == b'#' || rest.first() == Some(&b'/') => {
                    if *first == b'#' {
                        self.remarks.add(self.position, "expected no line of a preprocessor, ignored one");
                    }
                    while self.bytes().first().is_some_and(|&byte| byte != b'\n') {
                        self.advance();
                    }
                }
                [0x80..=0xff, ..] if self.peek().is_some_and(char::is_whitespace) => drop(self.advance()),
                _ => return,
            }
        }
    }

    fn token(&mut self) -> Result<Kind<'a>, Error> {
        match self.bytes() {
            [] => Ok(Kind::End),
            [b'"', ..] | [b'L', b'"', ..] => self.string(),
            [b'\'', ..] => self.character(),
            [b'0'..=b'9', ..] => self.number(),
            [first, ..] if is_word(*first) => Ok(Kind::Word(self.word())),
            bytes => match symbol(bytes) {
                Some(symbol) => {
                    self.byte += symbol.len();
                    self.position.column += symbol.len() as u32;
                    Ok(Kind::Symbol(symbol))
                }
                None => {
                    let found = format!("{:?}", self.peek().unwrap_or_default());
                    Err(self.wrong("a word, a number, a string or a symbol", found))
                }
            },
        }
    }

    fn word(&mut self) -> &'a str {
        let rest = self.rest();
        let size = rest.bytes().position(|byte| !is_word(byte)).unwrap_or(rest.len());
        let word = rest.get(..size).unwrap_or_default();
        self.byte += word.len();
        self.position.column += word.chars().count() as u32;
        word
    }

    fn number(&mut self) -> Result<Kind<'a>, Error> {
        let (at, word) = (self.position, self.word());
        let digits = word.trim_end_matches(['u', 'U', 'l', 'L']);
        let (digits, radix) = match digits.as_bytes() {
            [b'0', b'x' | b'X', ..] => (digits.get(2..).unwrap_or_default(), 16),
            [b'0', b'b' | b'B', ..] => (digits.get(2..).unwrap_or_default(), 2),
            [b'0', _, ..] => (digits.get(1..).unwrap_or_default(), 8),
            _ => (digits, 10),
        };
        u64::from_str_radix(digits, radix).map(Kind::Number).map_err(|_| Error::Syntax {
            at,
            expected: "a number of at most 64 bits".into(),
            found: format!("`{}`", shortened(word)),
        })
    }

    fn string(&mut self) -> Result<Kind<'a>, Error> {
        let at = self.position;
        while self.advance() != Some('"') {}
        let mut bytes = Vec::new();
        loop {
            match self.advance() {
                Some('"') => {
                    if bytes.contains(&0) {
                        self.remarks.add(at, "expected a text without a NUL character, found one");
                    }
                    return Ok(Kind::Text(String::from_utf8_lossy(&bytes).into_owned()));
                }
                Some('\\') => self.escape(&mut bytes)?,
                Some('\0') => return Err(self.wrong("`\"`", "a NUL character".into())),
                Some(character) => bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
                None => return Err(self.wrong("`\"`", Kind::End.describe())),
            }
        }
    }

    fn character(&mut self) -> Result<Kind<'a>, Error> {
        self.advance();
        let mut bytes = Vec::new();
        match self.advance() {
            Some('\\') => self.escape(&mut bytes)?,
            Some(character) => bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
            None => {}
        }
        match (self.advance(), bytes.first()) {
            (Some('\''), Some(_)) => Ok(Kind::Text(String::from_utf8_lossy(&bytes).into_owned())),
            _ => Err(self.wrong("one character and `'`", "another number of characters".into())),
        }
    }

    /// Reads the escape after a backslash, as in C.
    fn escape(&mut self, bytes: &mut Vec<u8>) -> Result<(), Error> {
        let Some(character) = self.advance() else {
            return Err(self.wrong("an escape", Kind::End.describe()));
        };
        let byte = match character {
            'n' => b'\n',
            't' => b'\t',
            'r' => b'\r',
            'a' => 7,
            'b' => 8,
            'f' => 12,
            'v' => 11,
            'e' => 27,
            'x' => self.digits(0, 16, 2),
            '0'..='7' => self.digits(character.to_digit(8).unwrap_or(0), 8, 2),
            other => {
                if !matches!(other, '\'' | '"' | '?' | '\\') {
                    self.remarks.add(self.position, format!("expected an escape of C, found `\\{other}`"));
                }
                bytes.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
        };
        bytes.push(byte);
        Ok(())
    }

    /// Reads a number of at most `max_digits` further digits.
    fn digits(&mut self, first: u32, radix: u32, max_digits: usize) -> u8 {
        let mut value = first;
        for _ in 0..max_digits {
            let Some(digit) = self.peek().and_then(|character| character.to_digit(radix)) else { break };
            self.advance();
            value = value * radix + digit;
        }
        value as u8
    }
}

/// Whether a byte belongs to a word, including letters of all alphabets.
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

/// Returns the symbol at the beginning of a text.
fn symbol(text: &[u8]) -> Option<&'static str> {
    Some(match text {
        [b'.', b'.', b'.', ..] => "...",
        [b':', b'=', ..] => ":=",
        [b'-', b'>', ..] => "->",
        [b'{', ..] => "{",
        [b'}', ..] => "}",
        [b'[', ..] => "[",
        [b']', ..] => "]",
        [b'(', ..] => "(",
        [b')', ..] => ")",
        [b'<', ..] => "<",
        [b'>', ..] => ">",
        [b';', ..] => ";",
        [b':', ..] => ":",
        [b',', ..] => ",",
        [b'.', ..] => ".",
        [b'=', ..] => "=",
        [b'*', ..] => "*",
        [b'-', ..] => "-",
        [b'+', ..] => "+",
        _ => return None,
    })
}
