//! Values of records, before or after they are written to a ring.
//!
//! A record's payload consists of a fixed part and tails (see `tompion_layout::record`). An agent
//! has both before it writes anything: the image on the event's stack, and pointers to the rest.

use tompion_schema::{Event, Field, Type};

use crate::program::{Operand, Values};
use crate::schema::{Place, Scalar};
use crate::value::Value;

/// Variable-length and array fields of a record, in order.
pub trait Tails {
    /// Returns the bytes of the tail with this number; `None` if there is none.
    fn tail(&self, number: usize) -> Option<&[u8]>;
}

impl Tails for [&[u8]] {
    #[inline]
    fn tail(&self, number: usize) -> Option<&[u8]> {
        self.get(number).copied()
    }
}

/// Contexts of an evaluator, by the numbers that its schema assigned ([`Place::Context`]).
pub trait Contexts {
    /// Returns the number of a context.
    fn number(&self, context: u16) -> Value;
    /// Returns the text of a context.
    fn text(&self, context: u16) -> Option<&[u8]>;
}

/// Evaluator without any context.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoContexts;

impl Contexts for NoContexts {
    fn number(&self, _context: u16) -> Value {
        Value::UNKNOWN
    }

    fn text(&self, _context: u16) -> Option<&[u8]> {
        None
    }
}

/// Values of one record. Places that the record does not have are unknown.
#[derive(Clone, Copy, Debug)]
pub struct RecordValues<'a, T: ?Sized = [&'a [u8]], C: ?Sized = NoContexts> {
    fixed: &'a [u8],
    tails: &'a T,
    contexts: &'a C,
}

impl<'a, T: Tails + ?Sized> RecordValues<'a, T> {
    /// Creates the values of a record from its fixed part and its tails, without contexts.
    pub fn new(fixed: &'a [u8], tails: &'a T) -> Self {
        Self { fixed, tails, contexts: &NoContexts }
    }
}

impl<'a, T: Tails + ?Sized, C: Contexts + ?Sized> RecordValues<'a, T, C> {
    /// Adds contexts to the values.
    pub fn with_contexts<D: Contexts + ?Sized>(self, contexts: &'a D) -> RecordValues<'a, T, D> {
        RecordValues { fixed: self.fixed, tails: self.tails, contexts }
    }
}

impl<T: Tails + ?Sized, C: Contexts + ?Sized> Values for RecordValues<'_, T, C> {
    #[inline]
    fn number(&self, operand: &Operand) -> Value {
        let value = match operand.place {
            Place::Fixed { offset, scalar } => scalar.load(self.fixed, offset as usize),
            Place::Context(number) => Some(self.contexts.number(number)),
            Place::Element { tail, index, scalar } => self.element(tail, index, scalar),
            Place::Text { .. } | Place::ByName | Place::Absent | Place::Elsewhere => None,
        };
        value.unwrap_or(Value::UNKNOWN)
    }

    #[inline(always)]
    fn fixed_part(&self) -> Option<&[u8]> {
        Some(self.fixed)
    }

    #[inline]
    fn text(&self, operand: &Operand) -> Option<&[u8]> {
        match operand.place {
            Place::Text { tail } => self.tails.tail(tail.into()),
            Place::Context(number) => self.contexts.text(number),
            _ => None,
        }
    }
}

impl<T: Tails + ?Sized, C: ?Sized> RecordValues<'_, T, C> {
    fn element(&self, tail: u16, index: u32, scalar: Scalar) -> Option<Value> {
        let offset = (index as usize).checked_mul(scalar.size.into())?;
        scalar.load(self.tails.tail(tail.into())?, offset)
    }
}

/// Layout of an event's payloads, by which contiguous payloads are split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    fixed_size: usize,
    tails: Vec<TailSize>,
}

/// Size of a tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TailSize {
    /// Constant number of bytes.
    Constant(usize),
    /// Number of elements of this size, given by the u32 at this offset of the fixed part.
    Counted { offset: usize, element: usize },
}

impl Shape {
    /// Determines the layout of an event's records.
    pub fn new(event: &Event) -> Self {
        let mut shape = Self { fixed_size: 0, tails: Vec::new() };
        shape.add(&event.fields);
        shape
    }

    fn add(&mut self, fields: &[Field]) {
        for field in fields {
            let offset = self.fixed_size;
            match &field.ty {
                Type::Struct(members) => {
                    self.add(members);
                    continue;
                }
                Type::String | Type::Bytes | Type::TextSequence => {
                    self.tails.push(TailSize::Counted { offset, element: 1 });
                }
                Type::Sequence(element) => {
                    self.tails.push(TailSize::Counted { offset, element: element.size() });
                }
                Type::Array(element, count) => {
                    self.tails.push(TailSize::Constant(element.size().saturating_mul(*count as usize)));
                }
                Type::TextArray(count) => self.tails.push(TailSize::Constant(*count as usize)),
                Type::Integer(_) | Type::Float(_) | Type::Bool | Type::Enum(..) => {}
            }
            self.fixed_size += field.ty.fixed_size();
        }
    }

    /// Splits a payload into its fixed part and its tails. Tails beyond its end are absent.
    pub fn split<'a>(&'a self, payload: &'a [u8]) -> (&'a [u8], Packed<'a>) {
        let (fixed, rest) = payload.split_at_checked(self.fixed_size).unwrap_or((payload, &[]));
        (fixed, Packed { shape: self, fixed, rest })
    }
}

/// Tails of a contiguous payload.
#[derive(Clone, Copy, Debug)]
pub struct Packed<'a> {
    shape: &'a Shape,
    fixed: &'a [u8],
    rest: &'a [u8],
}

impl Tails for Packed<'_> {
    fn tail(&self, number: usize) -> Option<&[u8]> {
        let mut begin = 0usize;
        for (index, size) in self.shape.tails.iter().enumerate() {
            let size = match *size {
                TailSize::Constant(size) => size,
                TailSize::Counted { offset, element } => {
                    let count = u32::from_le_bytes(*self.fixed.get(offset..)?.first_chunk()?);
                    element.checked_mul(count as usize)?
                }
            };
            let end = begin.checked_add(size)?;
            if index == number {
                return self.rest.get(begin..end);
            }
            begin = end;
        }
        None
    }
}
