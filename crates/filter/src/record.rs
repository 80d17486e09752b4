//! Values from records of a ring, before they are written or after.
//!
//! A record's payload is its fixed part and its tails (see `tompion_layout::record`). An agent has both
//! before it writes anything: the image on the event's stack, and pointers to the rest.

use tompion_schema::{Event, Integer, Type};

use crate::name::{Name, Scope, Segment};
use crate::program::{Operand, Values};
use crate::schema::{Encoding, Found, Kind, Place, Scalar, Schema};
use crate::value::Value;

/// The variable-length and array fields of a record, in order.
pub trait Tails {
    /// The bytes of the tail with this number; nothing if there is none.
    fn tail(&self, number: usize) -> Option<&[u8]>;
}

impl Tails for [&[u8]] {
    #[inline]
    fn tail(&self, number: usize) -> Option<&[u8]> {
        self.get(number).copied()
    }
}

/// Context that an evaluator has at hand, by the numbers that its schema gave out ([`Place::Context`]).
pub trait Contexts {
    /// The number of a context.
    fn number(&self, context: u16) -> Value;
    /// The text of a context.
    fn text(&self, context: u16) -> Option<&[u8]>;
}

/// An evaluator without any context.
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

/// The values of one record. Places that the record does not have are unknown.
#[derive(Clone, Copy, Debug)]
pub struct RecordValues<'a, T: ?Sized = [&'a [u8]], C: ?Sized = NoContexts> {
    fixed: &'a [u8],
    tails: &'a T,
    contexts: &'a C,
}

impl<'a, T: Tails + ?Sized> RecordValues<'a, T> {
    /// A record by its fixed part and its tails, without context.
    pub fn new(fixed: &'a [u8], tails: &'a T) -> Self {
        Self { fixed, tails, contexts: &NoContexts }
    }
}

impl<'a, T: Tails + ?Sized, C: Contexts + ?Sized> RecordValues<'a, T, C> {
    /// The same record with context.
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

/// The fields of an event's records, with contexts of the evaluator's own.
#[derive(Clone, Copy)]
pub struct EventSchema<'a> {
    event: &'a Event,
    contexts: &'a dyn Fn(&Name) -> Found<'a>,
}

impl<'a> EventSchema<'a> {
    /// An event's fields. `contexts` says what the evaluator knows about names that begin with `$`.
    pub fn new(event: &'a Event, contexts: &'a dyn Fn(&Name) -> Found<'a>) -> Self {
        Self { event, contexts }
    }

    /// An event's fields, where no context is known: a later place may know it.
    pub fn without_contexts(event: &'a Event) -> Self {
        Self { event, contexts: &|_| Found::ELSEWHERE }
    }
}

impl Schema for EventSchema<'_> {
    fn find(&self, name: &Name) -> Found<'_> {
        match name.scope {
            Scope::Field => self.field(name),
            Scope::Context | Scope::Application => (self.contexts)(name),
        }
    }
}

impl EventSchema<'_> {
    fn field(&self, name: &Name) -> Found<'_> {
        let (mut offset, mut tail) = (0u32, 0u16);
        for field in &self.event.fields {
            if field.name == name.head() {
                return place(&field.ty, name.path.get(1..).unwrap_or_default(), offset, tail);
            }
            offset += field.ty.fixed_size() as u32;
            tail += u16::from(has_tail(&field.ty));
        }
        Found::ABSENT
    }
}

fn has_tail(ty: &Type) -> bool {
    matches!(ty, Type::String | Type::Bytes | Type::Array(..) | Type::Sequence(_))
}

/// Where a field lies whose fixed part begins at `offset` and whose tail is number `tail`.
fn place<'a>(ty: &'a Type, rest: &[Segment], offset: u32, tail: u16) -> Found<'a> {
    let fixed = |scalar, kind| Found { place: Place::Fixed { offset, scalar }, kind };
    match (ty, rest) {
        (Type::Integer(integer), []) => fixed(scalar(integer), Kind::Integer),
        (Type::Float(bits), []) => {
            let scalar = Scalar { size: bits / 8, encoding: Encoding::Float, network: false };
            fixed(scalar, Kind::Float)
        }
        (Type::Bool, []) => {
            fixed(Scalar { size: 1, encoding: Encoding::Bool, network: false }, Kind::Integer)
        }
        (Type::Enum(.., enumeration), []) => {
            let scalar = Scalar { size: ty.fixed_size() as u8, encoding: Encoding::Signed, network: false };
            fixed(scalar, Kind::Enumeration(&enumeration.labels))
        }
        (Type::String, []) => Found { place: Place::Text { tail }, kind: Kind::Text },
        (Type::Array(element, count), [Segment::Index(index)]) if index < count => {
            element_at(scalar(element), tail, *index)
        }
        (Type::Sequence(element), [Segment::Index(index)]) => element_at(scalar(element), tail, *index),
        (Type::Bytes, [Segment::Index(index)]) => {
            element_at(Scalar { size: 1, encoding: Encoding::Unsigned, network: false }, tail, *index)
        }
        (Type::Array(_, count), [Segment::Index(_)]) => unusable(format!("of an array of {count}")),
        (Type::Array(..) | Type::Sequence(_) | Type::Bytes, []) => unusable("several numbers".into()),
        _ => unusable("which is no part of that field".into()),
    }
}

fn scalar(integer: &Integer) -> Scalar {
    let encoding = if integer.signed { Encoding::Signed } else { Encoding::Unsigned };
    Scalar { size: integer.size() as u8, encoding, network: false }
}

fn element_at<'a>(scalar: Scalar, tail: u16, index: u32) -> Found<'a> {
    Found { place: Place::Element { tail, index, scalar }, kind: Kind::Integer }
}

fn unusable<'a>(why: String) -> Found<'a> {
    Found { place: Place::Absent, kind: Kind::Unusable(why) }
}
