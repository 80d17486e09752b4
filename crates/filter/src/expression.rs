//! Parsed filters.

use crate::error::Span;
use crate::name::{Name, Scope};
use crate::pattern::Pattern;
use crate::value::{Arithmetic, Comparison, Repr, Value};

/// Filter that was parsed, but not bound to any event.
///
/// It is stored in postfix order, so that no operation on it needs recursion.
#[derive(Clone, Debug)]
pub struct Expression {
    pub(crate) text: String,
    pub(crate) names: Vec<Name>,
    pub(crate) nodes: Vec<(Node, Span)>,
}

/// Operand, or operator that takes the preceding operands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    Number(Value),
    Text(Pattern),
    /// Name, by its index in the list of names.
    Name(usize),
    Unary(Unary),
    Binary(Binary),
    /// Point between both sides of `&&` or `||`, where the right side may be skipped.
    Between(Logic),
}

/// Logical operator, `&&` or `||`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Logic {
    And,
    Or,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unary {
    Not,
    Complement,
    Negate,
}

impl Unary {
    pub(crate) const ALL: [(Self, &'static str); 3] =
        [(Self::Not, "!"), (Self::Complement, "~"), (Self::Negate, "-")];

    #[inline(never)]
    pub(crate) fn apply(self, value: Value) -> Value {
        match self {
            Self::Not => value.not(),
            Self::Complement => value.complement(),
            Self::Negate => value.negated(),
        }
    }

    fn sign(self) -> &'static str {
        Self::ALL.iter().find(|(unary, _)| *unary == self).map_or("", |(_, sign)| sign)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    Logic(Logic),
    Comparison(Comparison),
    Arithmetic(Arithmetic),
}

/// Binary operator with its sign and its precedence, as in C.
pub(crate) type BinarySign = (Binary, &'static str, u8);

const BINARY_SIGNS: &[BinarySign] = &[
    (Binary::Logic(Logic::Or), "||", 1),
    (Binary::Logic(Logic::And), "&&", 2),
    (Binary::Arithmetic(Arithmetic::BitOr), "|", 3),
    (Binary::Arithmetic(Arithmetic::BitXor), "^", 4),
    (Binary::Arithmetic(Arithmetic::BitAnd), "&", 5),
    (Binary::Comparison(Comparison::Equal), "==", 6),
    (Binary::Comparison(Comparison::NotEqual), "!=", 6),
    (Binary::Comparison(Comparison::Less), "<", 7),
    (Binary::Comparison(Comparison::LessEqual), "<=", 7),
    (Binary::Comparison(Comparison::Greater), ">", 7),
    (Binary::Comparison(Comparison::GreaterEqual), ">=", 7),
    (Binary::Arithmetic(Arithmetic::ShiftLeft), "<<", 8),
    (Binary::Arithmetic(Arithmetic::ShiftRight), ">>", 8),
    (Binary::Arithmetic(Arithmetic::Add), "+", 9),
    (Binary::Arithmetic(Arithmetic::Subtract), "-", 9),
    (Binary::Arithmetic(Arithmetic::Multiply), "*", 10),
    (Binary::Arithmetic(Arithmetic::Divide), "/", 10),
    (Binary::Arithmetic(Arithmetic::Remainder), "%", 10),
];
/// Precedence of unary operators.
const UNARY_POWER: u8 = 11;
/// Precedence of names, literals and parentheses.
const OPERAND_POWER: u8 = 12;

/// Returns the binary operator with this sign.
pub(crate) fn binary_of(sign: &str) -> Option<BinarySign> {
    BINARY_SIGNS.iter().copied().find(|(_, found, _)| *found == sign)
}

fn sign_of(binary: Binary) -> (&'static str, u8) {
    let found = BINARY_SIGNS.iter().find(|(found, ..)| *found == binary);
    found.map_or(("", 0), |(_, sign, power)| (sign, *power))
}

impl Expression {
    /// Returns the text that was parsed.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns all names in the filter, each once, with its first position.
    pub fn names(&self) -> impl Iterator<Item = (&Name, Span)> {
        self.names.iter().enumerate().map(|(index, name)| {
            let place = self.nodes.iter().find(|(node, _)| *node == Node::Name(index));
            (name, place.map(|(_, span)| *span).unwrap_or_default())
        })
    }

    /// Returns the event fields that the filter uses.
    pub fn fields(&self) -> impl Iterator<Item = &Name> {
        self.names.iter().filter(|name| name.scope == Scope::Field)
    }

    /// Returns the contexts that the filter uses, including the application's.
    pub fn contexts(&self) -> impl Iterator<Item = &Name> {
        self.names.iter().filter(|name| name.scope != Scope::Field)
    }

    /// Formats the filter canonically: numbers in decimal, no redundant parentheses. Parsing it
    /// gives the same filter.
    pub fn to_text(&self) -> String {
        let mut stack: Vec<(String, u8)> = Vec::new();
        for (node, _) in &self.nodes {
            let item = match node {
                Node::Between(_) => continue,
                Node::Number(value) => (number_text(*value), OPERAND_POWER),
                Node::Text(pattern) => (pattern_text(pattern), OPERAND_POWER),
                Node::Name(index) => {
                    (self.names.get(*index).map(Name::to_string).unwrap_or_default(), OPERAND_POWER)
                }
                Node::Unary(unary) => {
                    let operand = parenthesized(stack.pop(), UNARY_POWER);
                    (format!("{}{operand}", unary.sign()), UNARY_POWER)
                }
                Node::Binary(binary) => {
                    let (sign, power) = sign_of(*binary);
                    let right = parenthesized(stack.pop(), power + 1);
                    let left = parenthesized(stack.pop(), power);
                    (format!("{left} {sign} {right}"), power)
                }
            };
            stack.push(item);
        }
        stack.pop().map(|(text, _)| text).unwrap_or_default()
    }

    /// Whether both are the same filter, ignoring positions in the text.
    pub fn is_same_as(&self, other: &Self) -> bool {
        let nodes =
            |expression: &Self| expression.nodes.iter().map(|(node, _)| node.clone()).collect::<Vec<_>>();
        self.names == other.names && nodes(self) == nodes(other)
    }
}

fn parenthesized(item: Option<(String, u8)>, power: u8) -> String {
    let (text, own) = item.unwrap_or_default();
    if own < power { format!("({text})") } else { text }
}

fn number_text(value: Value) -> String {
    match value.0 {
        Repr::Natural(number) => number.to_string(),
        Repr::Negative(number) => number.to_string(),
        // The shortest digits that parse to the same number, with a point or an exponent.
        Repr::Float(bits) => format!("{:?}", f64::from_bits(bits)),
        Repr::Unknown => String::new(),
    }
}

fn pattern_text(pattern: &Pattern) -> String {
    let mut text = String::from("\"");
    // Invalid UTF-8 is written byte by byte.
    for chunk in pattern.bytes().utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '"' => text.push_str("\\\""),
                character if character.is_ascii_control() => {
                    text.push_str(&format!("\\x{:02x}", character as u8))
                }
                character => text.push(character),
            }
        }
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    text.push('"');
    text
}
