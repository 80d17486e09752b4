//! How values are written: what is left of the new trace's types once values of the old ones are at hand.

use super::bits::Bits;
use crate::decode::{Fields, Value};
use crate::metadata::{ByteOrder, Form, Integer};

/// A value that is none of the type that it should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a value of the type that the description says, found another")]
pub struct Misfit;

/// How the events and packets of a stream class are written.
#[derive(Debug)]
pub(super) struct StreamShape {
    /// What packets say of themselves.
    pub frame: super::frame::Frame,
    /// The other fields of packet contexts, and nothing for those that are in the frame.
    pub packet_context: Vec<Option<Shape>>,
    /// Alignment of packet contexts in bits.
    pub packet_context_alignment: u32,
    pub event_context: Option<Shape>,
    /// Of each event class: its number, its context and its fields.
    pub events: Vec<(u64, Option<Shape>, Option<Shape>)>,
}

/// How a value is written.
#[derive(Debug)]
pub(super) enum Shape {
    /// An integer, or what is kept in one.
    Number(Integer),
    /// A float of so many bits.
    Float { bits: u32, byte_order: ByteOrder, alignment: u32 },
    /// Text up to a NUL.
    Text,
    /// Text in so many bytes.
    TextArray(u64),
    /// Bytes.
    Blob,
    /// Fields, one after the other, from a multiple of so many bits on.
    Struct { alignment: u32, fields: Vec<Shape> },
    /// One of several, behind a tag that is its index.
    Variant { tag: Option<Integer>, options: Vec<Shape> },
    /// None or one, behind a tag that says which.
    Optional { tag: Option<Integer>, element: Box<Shape> },
    /// Elements, from a multiple of so many bits on.
    Array { alignment: u32, element: Box<Shape> },
}

impl Shape {
    /// Appends a value.
    pub fn put(&self, value: Value<'_>, bits: &mut Bits) -> Result<(), Misfit> {
        match (self, value) {
            (Self::Float { bits: size, byte_order, alignment }, Value::Float(value)) => {
                bits.align(*alignment);
                let word = if *size == 32 { (value as f32).to_bits().into() } else { value.to_bits() };
                bits.put(word, *size, *byte_order);
            }
            (Self::Text, Value::Text(text)) => {
                bits.put_bytes(text);
                bits.put_bytes(&[0]);
            }
            (Self::TextArray(size), Value::Text(text)) => {
                bits.put_bytes(text);
                let padding = size.checked_sub(text.len() as u64).ok_or(Misfit)?;
                (0..padding).for_each(|_| bits.put_bytes(&[0]));
            }
            (Self::Blob, Value::Blob(bytes)) => bits.put_bytes(bytes),
            (Self::Struct { .. }, Value::Struct(fields)) => self.put_fields(fields, bits)?,
            (Self::Variant { tag, options }, Value::Variant(index, mut option)) => {
                put_tag(tag.as_ref(), index, bits);
                let (_, value) = option.next().ok_or(Misfit)?;
                options.get(index).ok_or(Misfit)?.put(value, bits)?;
            }
            (Self::Optional { tag, element }, Value::Optional(inner)) => {
                put_tag(tag.as_ref(), usize::from(inner.is_some()), bits);
                if let Some(value) = inner {
                    element.put(value.value().ok_or(Misfit)?, bits)?;
                }
            }
            (Self::Array { alignment, element }, Value::Array(elements)) => {
                bits.align(*alignment);
                elements.into_iter().try_for_each(|value| element.put(value, bits))?;
            }
            (Self::Number(integer), value) => put_number(integer, word(&value).ok_or(Misfit)?, bits),
            _ => return Err(Misfit),
        }
        Ok(())
    }

    /// Appends the fields of a structure.
    pub fn put_fields(&self, values: Fields<'_>, bits: &mut Bits) -> Result<(), Misfit> {
        let Self::Struct { alignment, fields } = self else { return Err(Misfit) };
        bits.align(*alignment);
        let mut shapes = fields.iter();
        for (_, value) in values {
            shapes.next().ok_or(Misfit)?.put(value, bits)?;
        }
        Ok(())
    }
}

/// The 64 bits of a value that is kept in an integer.
fn word(value: &Value<'_>) -> Option<u64> {
    match *value {
        Value::Unsigned(value, _) | Value::Enum(value, _) | Value::Bits(value, _) => Some(value),
        Value::Signed(value, _) => Some(value as u64),
        Value::Boolean(value) => Some(value.into()),
        _ => None,
    }
}

fn put_tag(tag: Option<&Integer>, index: usize, bits: &mut Bits) {
    if let Some(tag) = tag {
        put_number(tag, index as u64, bits);
    }
}

fn put_number(integer: &Integer, value: u64, bits: &mut Bits) {
    match integer.form {
        Form::Variable => bits.put_variable(value, integer.signed),
        Form::Fixed | Form::Reversed => {
            bits.align(integer.alignment);
            bits.put(value, integer.bits, integer.byte_order);
        }
    }
}
