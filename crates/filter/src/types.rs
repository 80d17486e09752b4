//! Type checker: whether operators fit their operands.

use std::borrow::Cow;

use tompion_schema::Label;

use crate::error::{FilterError, Span};
use crate::expression::{Binary, Expression, Node, Unary};
use crate::literal::{quoted, shown};
use crate::name::Name;
use crate::pattern::Pattern;
use crate::program::TextTest;
use crate::schema::{Found, Kind};
use crate::value::{Comparison, Repr};

type Result<T> = std::result::Result<T, FilterError>;

/// Type of a part of a filter.
#[derive(Clone)]
enum Type<'a> {
    Integer,
    Float,
    /// Number of an unknown kind.
    Number,
    Literal(&'a Pattern),
    Text,
    Labels(Cow<'a, [Label]>),
    Unusable(String),
    /// Field or context of unknown type.
    Any,
}

type Typed<'a> = (Type<'a>, Span);

impl<'a> From<Kind<'a>> for Type<'a> {
    fn from(kind: Kind<'a>) -> Self {
        match kind {
            Kind::Integer => Self::Integer,
            Kind::Float => Self::Float,
            Kind::Text => Self::Text,
            Kind::Enumeration(labels) => Self::Labels(labels),
            Kind::Unusable(why) => Self::Unusable(why),
            Kind::Any => Self::Any,
        }
    }
}

/// Finds the first operator that doesn't fit its operands.
pub(crate) fn check<'a>(expression: &'a Expression, find: &dyn Fn(&Name) -> Found<'a>) -> Result<()> {
    let mut checker = Checker { text: &expression.text, stack: Vec::new() };
    for (node, span) in &expression.nodes {
        let typed = match node {
            Node::Number(value) if matches!(value.0, Repr::Float(_)) => (Type::Float, *span),
            Node::Number(_) => (Type::Integer, *span),
            Node::Text(pattern) => (Type::Literal(pattern), *span),
            Node::Name(index) => {
                let found = expression.names.get(*index).map(find);
                let ty = found.map_or(Type::Any, |found| found.kind.into());
                checker.usable(&ty, *span)?;
                (ty, *span)
            }
            Node::Between(_) => continue,
            Node::Unary(unary) => checker.unary(*unary, *span)?,
            Node::Binary(binary) => checker.binary(*binary)?,
        };
        checker.stack.push(typed);
    }
    let whole = checker.pop();
    checker.number(&whole, "a condition")
}

struct Checker<'a> {
    text: &'a str,
    stack: Vec<Typed<'a>>,
}

impl<'a> Checker<'a> {
    fn pop(&mut self) -> Typed<'a> {
        self.stack.pop().unwrap_or((Type::Any, Span::default()))
    }

    fn source(&self, span: Span) -> String {
        quoted(self.text.get(span.offset..span.offset + span.length).unwrap_or_default())
    }

    fn error<T>(&self, at: Span, expected: impl Into<String>, found: impl Into<String>) -> Result<T> {
        Err(FilterError::new(self.text, at, expected, found))
    }

    fn usable(&self, ty: &Type<'a>, span: Span) -> Result<()> {
        match ty {
            Type::Unusable(why) => {
                self.error(span, "a number or a text", format!("{}, {why}", self.source(span)))
            }
            _ => Ok(()),
        }
    }

    fn number(&self, (ty, span): &Typed<'a>, expected: &str) -> Result<()> {
        match ty {
            Type::Text => self.error(*span, expected, format!("{}, a text", self.source(*span))),
            Type::Literal(_) => self.error(*span, expected, self.source(*span)),
            _ => Ok(()),
        }
    }

    fn integer(&self, typed: &Typed<'a>) -> Result<()> {
        self.number(typed, "an integer")?;
        match typed {
            (Type::Float, span) => {
                self.error(*span, "an integer", format!("{}, a floating-point number", self.source(*span)))
            }
            _ => Ok(()),
        }
    }

    fn unary(&mut self, unary: Unary, operator: Span) -> Result<Typed<'a>> {
        let operand = self.pop();
        let span = operator.with(operand.1);
        let ty = match unary {
            Unary::Not => self.number(&operand, "a condition").map(|()| Type::Integer)?,
            Unary::Complement => self.integer(&operand).map(|()| Type::Integer)?,
            Unary::Negate => {
                self.number(&operand, "a number").map(|()| arithmetic_type(&operand.0, &Type::Integer))?
            }
        };
        Ok((ty, span))
    }

    fn binary(&mut self, binary: Binary) -> Result<Typed<'a>> {
        let (right, left) = (self.pop(), self.pop());
        let ty = match binary {
            Binary::Logic(_) => {
                self.number(&left, "a condition")?;
                self.number(&right, "a condition")?;
                Type::Integer
            }
            Binary::Comparison(comparison) => {
                self.comparison(comparison, &left, &right)?;
                Type::Integer
            }
            Binary::Arithmetic(arithmetic) if arithmetic.is_integral() => {
                self.integer(&left)?;
                self.integer(&right)?;
                Type::Integer
            }
            Binary::Arithmetic(_) => {
                self.number(&left, "a number")?;
                self.number(&right, "a number")?;
                arithmetic_type(&left.0, &right.0)
            }
        };
        Ok((ty, left.1.with(right.1)))
    }

    fn comparison(&self, comparison: Comparison, left: &Typed<'a>, right: &Typed<'a>) -> Result<()> {
        if !matches!(comparison, Comparison::Equal | Comparison::NotEqual) {
            self.number(left, "a number (texts have no order)")?;
            return self.number(right, "a number (texts have no order)");
        }
        match (&left.0, &right.0) {
            (Type::Literal(_), Type::Literal(_)) => {
                self.error(right.1, "a field or a context", self.source(right.1))
            }
            (Type::Literal(pattern), _) => self.text_literal(pattern, left.1, right),
            (_, Type::Literal(pattern)) => self.text_literal(pattern, right.1, left),
            (Type::Text, Type::Text | Type::Any) | (Type::Any, Type::Text) => Ok(()),
            (Type::Text, _) => self.error(right.1, "a text", format!("{}, a number", self.source(right.1))),
            (_, Type::Text) => self.error(right.1, "a number", format!("{}, a text", self.source(right.1))),
            _ => Ok(()),
        }
    }

    /// Checks a text literal against the other side of a comparison.
    fn text_literal(&self, pattern: &Pattern, at: Span, (ty, other): &Typed<'a>) -> Result<()> {
        match ty {
            Type::Text | Type::Any => Ok(()),
            Type::Labels(labels) => self.label(pattern, at, labels, *other),
            _ => {
                let expected = format!("a number to compare with {}", self.source(*other));
                self.error(at, expected, self.source(at))
            }
        }
    }

    fn label(&self, pattern: &Pattern, at: Span, labels: &[Label], field: Span) -> Result<()> {
        const SHOWN: usize = 8;
        let takes = |label: &Label| TextTest::Matches.takes(pattern.bytes(), label.name.as_bytes());
        if labels.iter().any(takes) {
            return Ok(());
        }
        let mut names: Vec<_> = labels.iter().take(SHOWN).map(|label| shown(&label.name)).collect();
        names.extend((labels.len() > SHOWN).then(|| "…".into()));
        let expected = format!("a label of {} ({})", self.source(field), names.join(", "));
        self.error(at, expected, self.source(at))
    }
}

/// Returns the type of `+ - * /` applied to two numbers.
fn arithmetic_type<'a>(left: &Type<'a>, right: &Type<'a>) -> Type<'a> {
    match (left, right) {
        (Type::Float, _) | (_, Type::Float) => Type::Float,
        (Type::Integer | Type::Labels(_), Type::Integer | Type::Labels(_)) => Type::Integer,
        _ => Type::Number,
    }
}
