//! Decoded values, read by their types.

use super::plan::{Kind, plain_kind};
use super::run::plain_element;
use crate::metadata::{BitArray, Encoding, Enum, Field, Integer, Type};

/// Decoded value. Texts and arrays borrow the packet's bytes.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// Unsigned integer, with its type.
    Unsigned(u64, &'a Integer),
    /// Signed integer, with its type.
    Signed(i64, &'a Integer),
    /// Floating-point number of either size.
    Float(f64),
    /// Boolean.
    Boolean(bool),
    /// Bit array, the least significant bit first, with its type.
    Bits(u64, &'a BitArray),
    /// Text without its NUL. UTF-8 is not validated; other encodings are converted to UTF-8, with
    /// replacement characters.
    Text(&'a [u8]),
    /// Uninterpreted bytes.
    Blob(&'a [u8]),
    /// Value of an enumeration, as 64 bits of its container, with its type.
    Enum(u64, &'a Enum),
    /// Structure.
    Struct(Fields<'a>),
    /// Index of the selected option, and the option.
    Variant(usize, Fields<'a>),
    /// Optional field.
    Optional(Option<Inner<'a>>),
    /// Array or sequence.
    Array(Elements<'a>),
}

/// Value inside another one.
#[derive(Clone, Copy, Debug)]
pub struct Inner<'a> {
    ty: &'a Type,
    words: &'a [u64],
    bytes: Bytes<'a>,
}

impl<'a> Inner<'a> {
    /// Returns the value.
    pub fn value(self) -> Option<Value<'a>> {
        let mut words = self.words;
        take(self.ty, &mut words, self.bytes)
    }
}

/// Bytes that words refer to: those of the packet, and converted texts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bytes<'a> {
    pub packet: &'a [u8],
    pub texts: &'a [u8],
}

impl<'a> Bytes<'a> {
    const EMPTY: Self = Self { packet: &[], texts: &[] };

    /// Returns the text at a word's position.
    fn text(self, word: u64, encoding: Encoding) -> &'a [u8] {
        let from = if encoding.unit() == 1 { self.packet } else { self.texts };
        slice(word, 1, from)
    }
}

impl<'a> Value<'a> {
    /// Returns the value of an integer, enumeration, boolean or bit array, also of a present
    /// optional one; `None` for others.
    pub fn as_integer(&self) -> Option<i128> {
        match *self {
            Self::Unsigned(value, _) => Some(value.into()),
            Self::Signed(value, _) => Some(value.into()),
            Self::Enum(value, ty) if ty.integer.signed => Some((value as i64).into()),
            Self::Enum(value, _) | Self::Bits(value, _) => Some(value.into()),
            Self::Boolean(value) => Some(value.into()),
            Self::Optional(Some(inner)) => inner.value()?.as_integer(),
            _ => None,
        }
    }

    /// Returns the text; `None` for others.
    pub fn as_text(&self) -> Option<&'a [u8]> {
        match *self {
            Self::Text(text) => Some(text),
            Self::Optional(Some(inner)) => inner.value()?.as_text(),
            _ => None,
        }
    }
}

/// Values in the order of their types, for callers that know these.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a> {
    words: &'a [u64],
    bytes: Bytes<'a>,
}

impl<'a> Values<'a> {
    pub(super) fn new(words: &'a [u64], bytes: Bytes<'a>) -> Self {
        Self { words, bytes }
    }

    /// Returns the value of an integer or enumeration, sign-extended; 0 after the last value.
    #[inline]
    pub fn word(&mut self) -> u64 {
        pop(&mut self.words).unwrap_or(0)
    }

    /// Returns the text of a UTF-8 string.
    #[inline]
    pub fn text(&mut self) -> &'a [u8] {
        slice(self.word(), 1, self.bytes.packet)
    }

    /// Returns the text in an array of bytes for which [`is_characters`] is true, up to its first
    /// NUL.
    #[inline]
    pub fn characters(&mut self) -> &'a [u8] {
        let text = self.text();
        match text.iter().position(|&byte| byte == 0) {
            Some(end) => text.get(..end).unwrap_or(text),
            None => text,
        }
    }

    /// Returns a value of any type.
    pub fn value(&mut self, ty: &'a Type) -> Option<Value<'a>> {
        take(ty, &mut self.words, self.bytes)
    }
}

/// Whether arrays of this type are texts whose bytes are in the packet.
pub fn is_characters(element: &Type) -> bool {
    matches!((element, plain_kind(element)), (Type::Integer(integer), Some((_, 1))) if integer.is_text())
}

/// Fields of a structure with their values, in order.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a> {
    names: &'a [Field],
    words: &'a [u64],
    bytes: Bytes<'a>,
}

impl<'a> Fields<'a> {
    pub(super) fn new(names: &'a [Field], words: &'a [u64], bytes: Bytes<'a>) -> Self {
        Self { names, words, bytes }
    }

    /// Empty list of fields.
    pub const EMPTY: Self = Self { names: &[], words: &[], bytes: Bytes::EMPTY };

    /// Returns the types of the remaining fields.
    pub fn types(&self) -> &'a [Field] {
        self.names
    }

    /// Whether no field is left.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Returns the value of the first field with this name.
    pub fn get(self, name: &str) -> Option<Value<'a>> {
        let mut fields = self;
        fields.find(|(found, _)| *found == name).map(|(_, value)| value)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (&'a str, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let (field, rest) = self.names.split_first()?;
        self.names = rest;
        let value = take(&field.ty, &mut self.words, self.bytes)?;
        Some((&field.name, value))
    }
}

/// Elements of an array or sequence, in order.
#[derive(Clone, Copy, Debug)]
pub struct Elements<'a> {
    ty: &'a Type,
    left: usize,
    source: Source<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Source<'a> {
    /// Integers as in the packet.
    Plain { kind: Kind, size: u8, bytes: &'a [u8], next: usize },
    /// Any other elements.
    Words { words: &'a [u64], bytes: Bytes<'a> },
}

impl<'a> Elements<'a> {
    /// Returns the number of remaining elements.
    pub fn len(&self) -> usize {
        self.left
    }

    /// Whether no element is left.
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        self.left = self.left.checked_sub(1)?;
        match &mut self.source {
            Source::Plain { kind, size, bytes, next } => {
                let word = plain_element(*kind, *size, bytes, *next);
                *next += 1;
                let Type::Integer(integer) = self.ty else { return None };
                Some(integer_value(word, integer))
            }
            Source::Words { words, bytes } => take(self.ty, words, *bytes),
        }
    }
}

fn integer_value(word: u64, integer: &Integer) -> Value<'_> {
    if integer.signed { Value::Signed(word as i64, integer) } else { Value::Unsigned(word, integer) }
}

fn pop(words: &mut &[u64]) -> Option<u64> {
    let (&word, rest) = words.split_first()?;
    *words = rest;
    Some(word)
}

/// Returns the bytes at a word's position.
fn slice(word: u64, size: u8, bytes: &[u8]) -> &[u8] {
    let begin = (word >> 32) as usize;
    let length = (word as u32 as usize).saturating_mul(size.into());
    bytes.get(begin..begin.saturating_add(length)).unwrap_or_default()
}

/// Returns the text before its first NUL.
fn until_nul(text: &[u8]) -> &[u8] {
    let end = memchr::memchr(0, text).unwrap_or(text.len());
    text.get(..end).unwrap_or(text)
}

/// Returns the value of a type, and consumes its words.
fn take<'a>(ty: &'a Type, words: &mut &'a [u64], bytes: Bytes<'a>) -> Option<Value<'a>> {
    Some(match ty {
        Type::Integer(integer) => integer_value(pop(words)?, integer),
        Type::Float(_) => Value::Float(f64::from_bits(pop(words)?)),
        Type::Boolean(_) => Value::Boolean(pop(words)? != 0),
        Type::Bits(array) => Value::Bits(pop(words)?, array),
        Type::String(encoding) => Value::Text(bytes.text(pop(words)?, *encoding)),
        Type::Text(text) => Value::Text(until_nul(bytes.text(pop(words)?, text.encoding))),
        Type::Blob(_) => Value::Blob(slice(pop(words)?, 1, bytes.packet)),
        Type::Enum(enumeration) => Value::Enum(pop(words)?, enumeration),
        Type::Struct(structure) => {
            let fields = Fields { names: &structure.fields, words, bytes };
            structure.fields.iter().try_for_each(|field| skip(&field.ty, words))?;
            Value::Struct(fields)
        }
        Type::Variant(variant) => {
            let option = pop(words)? as usize;
            let names = variant.options.get(option..option + 1)?;
            let fields = Fields { names, words, bytes };
            let [field] = names else { return None };
            skip(&field.ty, words)?;
            Value::Variant(option, fields)
        }
        Type::Optional(optional) => {
            let is_there = pop(words)? != 0;
            let inner = Inner { ty: &optional.element, words, bytes };
            if is_there {
                skip(&optional.element, words)?;
            }
            Value::Optional(is_there.then_some(inner))
        }
        Type::Array(array) => elements(&array.element, words, bytes)?,
        Type::Sequence(sequence) => elements(&sequence.element, words, bytes)?,
    })
}

fn elements<'a>(element: &'a Type, words: &mut &'a [u64], bytes: Bytes<'a>) -> Option<Value<'a>> {
    let word = pop(words)?;
    if let Some((kind, size)) = plain_kind(element) {
        let bytes = slice(word, size, bytes.packet);
        if is_characters(element) {
            return Some(Value::Text(until_nul(bytes)));
        }
        let left = bytes.len() / usize::from(size.max(1));
        return Some(Value::Array(Elements {
            ty: element,
            left,
            source: Source::Plain { kind, size, bytes, next: 0 },
        }));
    }
    let left = usize::try_from(word).ok()?;
    let value = Value::Array(Elements { ty: element, left, source: Source::Words { words, bytes } });
    (0..left).try_for_each(|_| skip(element, words))?;
    Some(value)
}

/// Consumes the words of a type.
fn skip(ty: &Type, words: &mut &[u64]) -> Option<()> {
    match ty {
        Type::Integer(_)
        | Type::Float(_)
        | Type::Boolean(_)
        | Type::Bits(_)
        | Type::String(_)
        | Type::Text(_)
        | Type::Blob(_)
        | Type::Enum(_) => pop(words).map(drop),
        Type::Optional(optional) => match pop(words)? {
            0 => Some(()),
            _ => skip(&optional.element, words),
        },
        Type::Struct(structure) => structure.fields.iter().try_for_each(|field| skip(&field.ty, words)),
        Type::Variant(variant) => {
            let option = pop(words)? as usize;
            skip(&variant.options.get(option)?.ty, words)
        }
        Type::Array(array) => skip_elements(&array.element, words),
        Type::Sequence(sequence) => skip_elements(&sequence.element, words),
    }
}

fn skip_elements(element: &Type, words: &mut &[u64]) -> Option<()> {
    let word = pop(words)?;
    if plain_kind(element).is_some() {
        return Some(());
    }
    (0..word).try_for_each(|_| skip(element, words))
}
