//! Parses a filter's text to an [`Expression`].
//!
//! ```text
//! filter   = operand { operator operand }         by C's precedence, from left to right
//! operand  = { "!" | "~" | "-" } ( "(" filter ")" | literal | name )
//! literal  = number | character | text | "true" | "false"
//! name     = word { "." word | "[" number "]" }
//!          | "$" word { "." word | "[" number "]" }
//!          | "$app." ( word ":" word | text )
//! ```

use crate::error::{FilterError, Span};
use crate::expression::{Binary, Expression, Node, Unary, binary_of};
use crate::literal::quoted;
use crate::name::{Name, Scope, Segment};
use crate::token::{Lexer, Token, application_name};
use crate::value::Value;
use crate::{MAX_NAME, MAX_NESTING, MAX_OPERANDS, MAX_SEGMENTS, MAX_STACK, MAX_TEXT};

type Result<T> = std::result::Result<T, FilterError>;

/// Parses a filter.
///
/// The time is linear in the text's length. Depth and size are bounded ([`MAX_TEXT`],
/// [`MAX_NESTING`], [`MAX_STACK`], [`MAX_OPERANDS`]); a text beyond the bounds is an error like any
/// other.
pub fn parse(text: &str) -> Result<Expression> {
    if text.len() > MAX_TEXT {
        let at = Span::between(MAX_TEXT, text.len());
        let found = format!("{} bytes", text.len());
        // The text itself would only obscure the message.
        return Err(FilterError::new("", at, format!("a filter of at most {MAX_TEXT} bytes"), found));
    }
    let mut lexer = Lexer::new(text);
    let (token, span) = lexer.next()?;
    let mut parser = Parser {
        text,
        lexer,
        token,
        span,
        end: 0,
        names: Vec::new(),
        nodes: Vec::new(),
        nesting: 0,
        height: 0,
    };
    parser.binary(0)?;
    match parser.token {
        Token::End => Ok(Expression { text: text.into(), names: parser.names, nodes: parser.nodes }),
        _ => Err(parser.unexpected("an operator or the end")),
    }
}

struct Parser<'a> {
    text: &'a str,
    lexer: Lexer<'a>,
    /// Next token and its position.
    token: Token<'a>,
    span: Span,
    /// End of the previous token.
    end: usize,
    names: Vec<Name>,
    nodes: Vec<(Node, Span)>,
    /// Number of enclosing parentheses and unary operators.
    nesting: usize,
    /// Number of values that a stack machine would have at this point.
    height: usize,
}

impl<'a> Parser<'a> {
    /// Advances to the next token, and returns the position of the current one.
    fn advance(&mut self) -> Result<Span> {
        let span = self.span;
        self.end = span.offset + span.length;
        (self.token, self.span) = self.lexer.next()?;
        Ok(span)
    }

    fn error(&self, at: Span, expected: impl Into<String>, found: impl Into<String>) -> FilterError {
        FilterError::new(self.text, at, expected, found)
    }

    fn unexpected(&self, expected: &str) -> FilterError {
        let found = match self.token {
            Token::End => "the end".into(),
            _ => quoted(&self.text[self.span.offset..self.span.offset + self.span.length]),
        };
        self.error(self.span, expected, found)
    }

    fn expect(&mut self, sign: &str) -> Result<Span> {
        if self.token.is(sign) { self.advance() } else { Err(self.unexpected(&format!("`{sign}`"))) }
    }

    fn push(&mut self, node: Node, span: Span) -> Result<()> {
        match node {
            Node::Binary(_) => self.height -= 1,
            Node::Unary(_) | Node::Between(_) => {}
            Node::Number(_) | Node::Text(_) | Node::Name(_) => self.height += 1,
        }
        if self.height > MAX_STACK {
            let expected = format!("a filter that needs at most {MAX_STACK} values at a time");
            return Err(self.error(span, expected, "one more"));
        }
        self.nodes.push((node, span));
        Ok(())
    }

    /// Parses operands and operators of at least the precedence `least`.
    fn binary(&mut self, least: u8) -> Result<()> {
        self.operand()?;
        while let Token::Sign(sign) = self.token {
            let Some((operator, _, power)) = binary_of(sign).filter(|(.., power)| *power >= least) else {
                break;
            };
            let span = self.advance()?;
            if let Binary::Logic(logic) = operator {
                self.push(Node::Between(logic), span)?;
            }
            self.binary(power + 1)?;
            self.push(Node::Binary(operator), span)?;
        }
        Ok(())
    }

    fn operand(&mut self) -> Result<()> {
        if self.nesting > MAX_NESTING {
            let expected = format!("at most {MAX_NESTING} parentheses and signs in each other");
            return Err(self.error(self.span, expected, "one more"));
        }
        let unary = Unary::ALL.iter().find(|(_, sign)| self.token.is(sign));
        if let Some((unary, _)) = unary {
            let span = self.advance()?;
            self.nesting += 1;
            self.operand()?;
            self.nesting -= 1;
            return self.push(Node::Unary(*unary), span);
        }
        if self.token.is("(") {
            self.advance()?;
            self.nesting += 1;
            self.binary(0)?;
            self.nesting -= 1;
            return self.expect(")").map(drop);
        }
        self.leaf()
    }

    fn leaf(&mut self) -> Result<()> {
        let node = match &self.token {
            Token::Number(value) => Node::Number(*value),
            Token::Text(pattern) => Node::Text(pattern.clone()),
            Token::Word("true") => Node::Number(Value::from(true)),
            Token::Word("false") => Node::Number(Value::from(false)),
            Token::Word(_) => return self.name(),
            token if token.is("$") => return self.name(),
            _ => return Err(self.unexpected("a value")),
        };
        let span = self.advance()?;
        self.push(node, span)
    }

    fn name(&mut self) -> Result<()> {
        let begin = self.span;
        let scope = if self.token.is("$") { Scope::Context } else { Scope::Field };
        if scope == Scope::Context {
            self.advance()?;
        }
        let first = self.word("the name of a context, as in `$tid`")?;
        let is_application = scope == Scope::Context && first == "app" && self.token.is(".");
        let name = if is_application { self.application()? } else { self.path(scope, first)? };
        let span = Span::between(begin.offset, self.end);
        let index = match self.names.iter().position(|known| *known == name) {
            Some(index) => index,
            None if self.names.len() < MAX_OPERANDS => {
                self.names.push(name);
                self.names.len() - 1
            }
            None => {
                let expected = format!("at most {MAX_OPERANDS} different fields and contexts");
                return Err(self.error(span, expected, "one more"));
            }
        };
        self.push(Node::Name(index), span)
    }

    fn word(&mut self, expected: &str) -> Result<String> {
        match self.token {
            Token::Word(word) if word.len() > MAX_NAME => {
                Err(self.error(self.span, format!("a name of at most {MAX_NAME} bytes"), quoted(word)))
            }
            Token::Word(word) => self.advance().map(|_| word.into()),
            _ => Err(self.unexpected(expected)),
        }
    }

    /// Parses the rest of a path after its first word.
    fn path(&mut self, scope: Scope, first: String) -> Result<Name> {
        let mut path = vec![Segment::Name(first)];
        loop {
            let segment = if self.token.is(".") {
                self.advance()?;
                Segment::Name(self.word("the name of a member")?)
            } else if self.token.is("[") {
                self.advance()?;
                let segment = Segment::Index(self.index()?);
                self.expect("]")?;
                segment
            } else {
                return Ok(Name { scope, path });
            };
            if path.len() == MAX_SEGMENTS {
                let expected = format!("a name of at most {MAX_SEGMENTS} parts");
                return Err(self.error(Span::between(self.end - 1, self.end), expected, "one more"));
            }
            path.push(segment);
        }
    }

    fn index(&mut self) -> Result<u32> {
        let index = match self.token {
            Token::Number(value) => value.as_integer().and_then(|index| index.try_into().ok()),
            _ => None,
        };
        let index = index.ok_or_else(|| self.unexpected("the number of an element"))?;
        self.advance()?;
        Ok(index)
    }

    /// Parses the name after `$app`.
    fn application(&mut self) -> Result<Name> {
        const EXPECTED: &str = "the name of an application's context, as in `$app.provider:name`";
        self.advance()?;
        let name = if let Token::Text(pattern) = &self.token {
            let name = application_name(pattern).ok_or_else(|| self.unexpected(EXPECTED))?;
            self.advance()?;
            name
        } else {
            let provider = self.word(EXPECTED)?;
            self.expect(":")?;
            format!("{provider}:{}", self.word(EXPECTED)?)
        };
        if name.len() > MAX_NAME {
            let at = Span::between(self.end, self.end);
            return Err(self.error(at, format!("a name of at most {MAX_NAME} bytes"), quoted(&name)));
        }
        Ok(Name { scope: Scope::Application, path: vec![Segment::Name(name)] })
    }
}
