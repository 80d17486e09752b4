//! A parsed filter.

use crate::error::Span;
use crate::name::{Name, Scope};
use crate::pattern::Pattern;
use crate::value::{Arithmetic, Comparison, Repr, Value};

/// A filter that was parsed, not yet bound to any event.
///
/// Kept as operands and operators in the order in which a stack machine takes them, so that nothing
/// that walks over it needs to recurse.
#[derive(Clone, Debug)]
pub struct Expression {
    pub(crate) text: String,
    pub(crate) names: Vec<Name>,
    pub(crate) nodes: Vec<(Node, Span)>,
}

/// An operand, or an operator that takes what stands before it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    Number(Value),
    Text(Pattern),
    /// By its index in the names.
    Name(usize),
    Unary(Unary),
    Binary(Binary),
    /// Between both sides of `&&` and `||`: here the right side may be passed over.
    Between(Logic),
}

/// `&&` or `||`.
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

/// An operator with its sign and how strongly it binds: C's order.
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
/// How strongly unary operators bind.
const UNARY_POWER: u8 = 11;
/// How strongly names, literals and parentheses hold together.
const OPERAND_POWER: u8 = 12;

/// The binary operator of this sign.
pub(crate) fn binary_of(sign: &str) -> Option<BinarySign> {
    BINARY_SIGNS.iter().copied().find(|(_, found, _)| *found == sign)
}

fn sign_of(binary: Binary) -> (&'static str, u8) {
    let found = BINARY_SIGNS.iter().find(|(found, ..)| *found == binary);
    found.map_or(("", 0), |(_, sign, power)| (sign, *power))
}

impl Expression {
    /// The text that was parsed.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// All names that the filter asks for, each once, with the place where it first stands.
    pub fn names(&self) -> impl Iterator<Item = (&Name, Span)> {
        self.names.iter().enumerate().map(|(index, name)| {
            let place = self.nodes.iter().find(|(node, _)| *node == Node::Name(index));
            (name, place.map(|(_, span)| *span).unwrap_or_default())
        })
    }

    /// The event's fields that the filter asks for.
    pub fn fields(&self) -> impl Iterator<Item = &Name> {
        self.names.iter().filter(|name| name.scope == Scope::Field)
    }

    /// What the filter asks of the context, the application's included.
    pub fn contexts(&self) -> impl Iterator<Item = &Name> {
        self.names.iter().filter(|name| name.scope != Scope::Field)
    }

    /// The filter in one way of writing: numbers in decimal, no more parentheses than it takes. Parsed
    /// again it is the same filter.
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

    /// Whether both are the same filter, wherever its parts stand in their texts.
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
        // Digits that come to the same number again, with a point or an exponent.
        Repr::Float(bits) => format!("{:?}", f64::from_bits(bits)),
        Repr::Unknown => String::new(),
    }
}

fn pattern_text(pattern: &Pattern) -> String {
    let mut text = String::from("\"");
    // What isn't UTF-8 is written byte by byte.
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
