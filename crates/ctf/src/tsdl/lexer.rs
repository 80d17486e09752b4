//! Text to tokens.

use std::iter::Peekable;
use std::str::Chars;

use super::{Error, Position};

/// A token and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token {
    pub kind: Kind,
    pub at: Position,
}

/// What a token is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    /// An identifier or a keyword.
    Word(String),
    /// A string literal, without its quotes and escapes.
    Text(String),
    /// A number without its sign.
    Number(u64),
    /// One of [`SYMBOLS`].
    Symbol(&'static str),
    /// The end of the text.
    End,
}

/// All symbols; longer ones before their own beginnings.
const SYMBOLS: [&str; 19] =
    ["...", ":=", "->", "{", "}", "[", "]", "(", ")", "<", ">", ";", ":", ",", ".", "=", "*", "-", "+"];

impl Kind {
    /// The token as an error message calls it.
    pub fn describe(&self) -> String {
        match self {
            Self::Word(word) => format!("`{}`", shortened(word)),
            Self::Text(text) => format!("{:?}", shortened(text)),
            Self::Number(number) => number.to_string(),
            Self::Symbol(symbol) => format!("`{symbol}`"),
            Self::End => "the end of the text".into(),
        }
    }
}

/// The beginning of a long text.
fn shortened(text: &str) -> String {
    text.chars().take(60).collect()
}

/// All tokens of a text; the last one is [`Kind::End`].
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, Error> {
    let mut lexer =
        Lexer { rest: text.chars().peekable(), text, position: Position { line: 1, column: 1 }, byte: 0 };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_space()?;
        let at = lexer.position;
        let kind = lexer.token()?;
        let last = kind == Kind::End;
        tokens.push(Token { kind, at });
        if last {
            return Ok(tokens);
        }
    }
}

struct Lexer<'a> {
    text: &'a str,
    rest: Peekable<Chars<'a>>,
    position: Position,
    byte: usize,
}

impl Lexer<'_> {
    fn advance(&mut self) -> Option<char> {
        let character = self.rest.next()?;
        self.byte += character.len_utf8();
        if character == '\n' {
            self.position.line += 1;
            self.position.column = 1;
        } else {
            self.position.column += 1;
        }
        Some(character)
    }

    fn starts_with(&self, prefix: &str) -> bool {
        self.text.get(self.byte..).is_some_and(|rest| rest.starts_with(prefix))
    }

    fn wrong(&self, expected: &str, found: String) -> Error {
        Error::Syntax { at: self.position, expected: expected.into(), found }
    }

    /// Passes over white space, comments, preprocessor leftovers and NULs (padding).
    fn skip_space(&mut self) -> Result<(), Error> {
        loop {
            if self.starts_with("/*") {
                while !self.starts_with("*/") {
                    if self.advance().is_none() {
                        return Err(self.wrong("`*/`", Kind::End.describe()));
                    }
                }
                self.advance();
                self.advance();
            } else if self.starts_with("//") || self.starts_with("#") {
                while self.rest.peek().is_some_and(|&character| character != '\n') {
                    self.advance();
                }
            } else if self
                .rest
                .peek()
                .is_some_and(|&character| character.is_whitespace() || character == '\0')
            {
                self.advance();
            } else {
                return Ok(());
            }
        }
    }

    fn token(&mut self) -> Result<Kind, Error> {
        let Some(&first) = self.rest.peek() else { return Ok(Kind::End) };
        if first == '"' || self.starts_with("L\"") {
            return self.string();
        }
        if first == '\'' {
            return self.character();
        }
        if first.is_ascii_digit() {
            return self.number();
        }
        if is_word(first) {
            return Ok(Kind::Word(self.word()));
        }
        match SYMBOLS.into_iter().find(|symbol| self.starts_with(symbol)) {
            Some(symbol) => {
                for _ in symbol.chars() {
                    self.advance();
                }
                Ok(Kind::Symbol(symbol))
            }
            None => Err(self.wrong("a word, a number, a string or a symbol", format!("{first:?}"))),
        }
    }

    fn word(&mut self) -> String {
        let mut word = String::new();
        while let Some(character) = self.rest.next_if(|&character| is_word(character)) {
            word.push(character);
            self.byte += character.len_utf8();
            self.position.column += 1;
        }
        word
    }

    fn number(&mut self) -> Result<Kind, Error> {
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
            found: format!("`{}`", shortened(&word)),
        })
    }

    fn string(&mut self) -> Result<Kind, Error> {
        while self.advance() != Some('"') {}
        let mut bytes = Vec::new();
        loop {
            match self.advance() {
                Some('"') => return Ok(Kind::Text(String::from_utf8_lossy(&bytes).into_owned())),
                Some('\\') => self.escape(&mut bytes)?,
                Some(character) => bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
                None => return Err(self.wrong("`\"`", Kind::End.describe())),
            }
        }
    }

    fn character(&mut self) -> Result<Kind, Error> {
        self.advance();
        let mut bytes = Vec::new();
        match self.advance() {
            Some('\\') => self.escape(&mut bytes)?,
            Some(character) => bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
            None => {}
        }
        match (self.advance(), bytes.first()) {
            (Some('\''), Some(&byte)) => Ok(Kind::Number(byte.into())),
            _ => Err(self.wrong("one character and `'`", "more or less".into())),
        }
    }

    /// What follows a backslash, as in C.
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
                bytes.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
        };
        bytes.push(byte);
        Ok(())
    }

    /// A number of at most `most` further digits.
    fn digits(&mut self, first: u32, radix: u32, most: usize) -> u8 {
        let mut value = first;
        for _ in 0..most {
            let Some(digit) = self.rest.peek().and_then(|character| character.to_digit(radix)) else { break };
            self.advance();
            value = value * radix + digit;
        }
        value as u8
    }
}

fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_' || !character.is_ascii()
}
