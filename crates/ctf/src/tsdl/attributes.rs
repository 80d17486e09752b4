//! Attributes of blocks and types: each at most once, and with a value of the right kind.

use std::collections::HashSet;

use super::Position;
use super::remarks::Remarks;
use super::resolver::{Result, wrong};
use super::syntax::{Item, Value};
use crate::metadata::{Base, ByteOrder, Encoding, Uuid};

/// Names in a block so far.
#[derive(Default)]
pub(super) struct Names<'a>(HashSet<&'a str>);

impl<'a> Names<'a> {
    /// Refuses a second value: which of the two holds would be a guess.
    pub fn once(&mut self, name: &'a str, at: Position) -> Result<()> {
        match self.0.insert(name) {
            true => Ok(()),
            false => wrong(at, format!("expected `{name}` once, found it again")),
        }
    }

    /// Whether a name has occurred.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains(name)
    }
}

/// Returns the assignments of a block that has nothing else, of known attributes.
pub(super) fn assignments<'a>(
    items: &'a [Item],
    known: &[&str],
    remarks: &mut Remarks,
) -> Result<Vec<(&'a str, &'a Value, Position)>> {
    let mut names = Names::default();
    let mut found = Vec::with_capacity(items.len());
    for item in items {
        let Item::Assign { name, value, at } = item else {
            return wrong(position(item), "expected an attribute `name = value;`, found a type");
        };
        names.once(name, *at)?;
        if known.contains(&name.as_str()) {
            found.push((name.as_str(), value, *at));
        } else {
            unknown(name, known, (remarks, *at));
        }
    }
    Ok(found)
}

/// Remarks on an attribute that is ignored.
pub(super) fn unknown(name: &str, known: &[&str], (remarks, at): (&mut Remarks, Position)) {
    let known: Vec<_> = known.iter().map(|name| format!("`{name}`")).collect();
    remarks.add(at, format!("expected one of the attributes {}, ignored `{name}`", known.join(", ")));
}

/// Returns the position of an item.
pub(super) fn position(item: &Item) -> Position {
    match item {
        Item::Block { at, .. } | Item::Assign { at, .. } => *at,
        Item::Bind { ty, .. } | Item::Declare { ty } => ty.at,
        Item::Aliases { ty, .. } | Item::Field { ty, .. } => ty.at,
    }
}

pub(super) fn byte_order(value: &Value, native: Option<ByteOrder>, at: Position) -> Result<ByteOrder> {
    match (text(value).as_deref(), native) {
        (Some("le"), _) => Ok(ByteOrder::Little),
        (Some("be" | "network"), _) => Ok(ByteOrder::Big),
        (Some("native"), Some(native)) => Ok(native),
        (_, Some(_)) => wrong(at, "expected a byte order: `le`, `be`, `network` or `native`"),
        (_, None) => wrong(at, "expected the byte order of the trace: `le`, `be` or `network`"),
    }
}

/// Returns a word or a string.
pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::Text(text) | Value::Word(text) => Some(text.clone()),
        Value::Number(_) => None,
    }
}

/// Returns a name, which is not empty.
pub(super) fn name(value: &Value, at: Position) -> Result<String> {
    match text(value).filter(|name| !name.is_empty()) {
        Some(name) => Ok(name),
        None => wrong(at, "expected a name, found a number or nothing"),
    }
}

pub(super) fn boolean(value: &Value, at: Position) -> Result<bool> {
    match value {
        Value::Number(number) => Ok(*number != 0),
        Value::Word(word) | Value::Text(word) if word.eq_ignore_ascii_case("true") => Ok(true),
        Value::Word(word) | Value::Text(word) if word.eq_ignore_ascii_case("false") => Ok(false),
        _ => wrong(at, "expected `true` or `false`"),
    }
}

/// Returns a number that fits the requested type.
pub(super) fn number<N: TryFrom<i128>>(value: &Value, at: Position) -> Result<N> {
    match value {
        Value::Number(number) => {
            N::try_from(*number).or_else(|_| wrong(at, format!("{number} is out of range")))
        }
        Value::Text(text) | Value::Word(text) => wrong(at, format!("expected a number, found {text:?}")),
    }
}

pub(super) fn uuid(value: &Value, at: Position) -> Result<Uuid> {
    let text = text(value).unwrap_or_default();
    Uuid::parse(&text).map_or_else(|| wrong(at, format!("expected a UUID, found {text:?}")), Ok)
}

pub(super) fn base(value: &Value, at: Position) -> Result<Base> {
    let word = match value {
        Value::Number(number) => number.to_string(),
        Value::Text(word) | Value::Word(word) => word.clone(),
    };
    match word.as_str() {
        "binary" | "b" | "2" => Ok(Base::Binary),
        "octal" | "oct" | "o" | "8" => Ok(Base::Octal),
        "decimal" | "dec" | "d" | "i" | "u" | "10" => Ok(Base::Decimal),
        "hexadecimal" | "hex" | "x" | "X" | "p" | "16" => Ok(Base::Hexadecimal),
        _ => wrong(at, format!("expected a base of 2, 8, 10 or 16, found {word:?}")),
    }
}

pub(super) fn encoding(value: &Value, at: Position) -> Result<Encoding> {
    let word = text(value).unwrap_or_default();
    match word.to_ascii_uppercase().as_str() {
        "NONE" => Ok(Encoding::None),
        "UTF8" | "UTF-8" => Ok(Encoding::Utf8),
        "ASCII" => Ok(Encoding::Ascii),
        _ => wrong(at, format!("expected an encoding: `none`, `UTF8` or `ASCII`, found {word:?}")),
    }
}

pub(super) fn alignment(alignment: u64, at: Position) -> Result<u32> {
    match u32::try_from(alignment) {
        Ok(alignment) if alignment.is_power_of_two() => Ok(alignment),
        _ => wrong(at, format!("expected an alignment that is a power of two, found {alignment}")),
    }
}

/// Returns the clock name in `clock.NAME.value`.
pub(super) fn clock_name(value: &Value, at: Position) -> Result<String> {
    let path = text(value).unwrap_or_default();
    match path.strip_prefix("clock.").and_then(|rest| rest.strip_suffix(".value")) {
        Some(name) => Ok(name.into()),
        None => wrong(at, format!("expected `clock.NAME.value`, found {path:?}")),
    }
}
