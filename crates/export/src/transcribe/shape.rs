//! Encodes values: the new trace's types, reduced to what is needed once decoded values are
//! available.

use super::bits::Bits;
use tompion_ctf::decode::{Fields, Value};
use tompion_ctf::metadata::{ByteOrder, Form, Integer};

/// Error for a value that does not have the expected type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a value of the described type, found another")]
pub struct Misfit;

/// Encoding of the events and packets of a stream class.
#[derive(Debug)]
pub(super) struct StreamShape {
    /// Headers and packet properties.
    pub frame: super::frame::Frame,
    /// Other fields of packet contexts; `None` for those in the frame.
    pub packet_context: Vec<Option<Shape>>,
    /// Alignment of packet contexts in bits.
    pub packet_context_alignment: u32,
    pub event_context: Option<Shape>,
    /// Number, context and fields of each event class.
    pub events: Vec<(u64, Option<Shape>, Option<Shape>)>,
}

/// Encoding of a value.
#[derive(Debug)]
pub(super) enum Shape {
    /// Integer, or a value stored in one.
    Number(Integer),
    /// Float of this size in bits.
    Float { bits: u32, byte_order: ByteOrder, alignment: u32 },
    /// Text up to a NUL.
    Text,
    /// Text of this size in bytes.
    TextArray(u64),
    /// Bytes.
    Blob,
    /// Fields, aligned to this many bits.
    Struct { alignment: u32, fields: Vec<Shape> },
    /// One of several, after a tag with its index.
    Variant { tag: Option<Integer>, options: Vec<Shape> },
    /// Optional value, after a tag.
    Optional { tag: Option<Integer>, element: Box<Shape> },
    /// Elements, aligned to this many bits.
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

/// Returns the 64 bits of a value stored in an integer.
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
