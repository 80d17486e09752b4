//! Fields of an event as a [`Schema`], with their positions in records.

use tompion_schema::{Event, Field, Integer, Type};

use crate::name::{Name, Scope, Segment};
use crate::schema::{Encoding, Found, Kind, Place, Scalar, Schema};

/// Schema of an event's records, with additional contexts of the evaluator.
#[derive(Clone, Copy)]
pub struct EventSchema<'a> {
    event: &'a Event,
    contexts: &'a dyn Fn(&Name) -> Found<'static>,
}

impl<'a> EventSchema<'a> {
    /// Creates the schema of an event. `contexts` resolves names that begin with `$` and are not
    /// context fields of the event itself.
    pub fn new(event: &'a Event, contexts: &'a dyn Fn(&Name) -> Found<'static>) -> Self {
        Self { event, contexts }
    }

    /// Creates the schema of an event without other contexts, which are left to a later evaluator.
    pub fn without_contexts(event: &'a Event) -> Self {
        Self { event, contexts: &|_| Found::ELSEWHERE }
    }
}

impl Schema for EventSchema<'_> {
    fn find(&self, name: &Name) -> Found<'_> {
        let rest = name.path.get(1..).unwrap_or_default();
        let fields = &self.event.fields;
        let found = match name.scope {
            Scope::Field => find(fields, name.head(), rest, Origin::default(), &|_| true),
            Scope::Context | Scope::Application => {
                find(fields, &name.context_field(), rest, Origin::default(), &|field| field.context)
            }
        };
        match (found, name.scope) {
            (Some(found), _) => found,
            (None, Scope::Field) => Found::ABSENT,
            (None, Scope::Context | Scope::Application) => (self.contexts)(name),
        }
    }
}

/// Positions in the fixed part and the tails where a sequence of fields begins.
#[derive(Clone, Copy, Default)]
struct Origin {
    offset: u32,
    tail: u16,
}

impl Origin {
    fn advance(&mut self, ty: &Type) {
        match ty {
            Type::Struct(members) => return members.iter().for_each(|member| self.advance(&member.ty)),
            Type::String | Type::Bytes | Type::TextSequence | Type::TextArray(_) => self.tail += 1,
            Type::Array(..) | Type::Sequence(_) => self.tail += 1,
            Type::Integer(_) | Type::Float(_) | Type::Bool | Type::Enum(..) => {}
        }
        self.offset += ty.fixed_size() as u32;
    }
}

/// Finds the first field with this name.
fn find<'a>(
    fields: &'a [Field],
    name: &str,
    rest: &[Segment],
    mut origin: Origin,
    taken: &dyn Fn(&Field) -> bool,
) -> Option<Found<'a>> {
    for field in fields {
        if field.name == name && taken(field) {
            return Some(place(&field.ty, rest, origin));
        }
        origin.advance(&field.ty);
    }
    None
}

/// Returns the place of a field, or of the part of it that the rest of a path refers to.
fn place<'a>(ty: &'a Type, rest: &[Segment], origin: Origin) -> Found<'a> {
    let Origin { offset, tail } = origin;
    let fixed = |scalar, kind| Found { place: Place::Fixed { offset, scalar }, kind };
    let element =
        |scalar, index: u32| Found { place: Place::Element { tail, index, scalar }, kind: Kind::Integer };
    match (ty, rest) {
        (Type::Struct(members), [Segment::Name(name), rest @ ..]) => {
            find(members, name, rest, origin, &|_| true).unwrap_or(Found::ABSENT)
        }
        (Type::Integer(integer), []) => fixed(scalar(*integer), Kind::Integer),
        (Type::Bool, []) => fixed(scalar(Integer::unsigned(8)), Kind::Integer),
        (Type::Float(bits), []) => {
            fixed(Scalar { size: bits / 8, encoding: Encoding::Float, network: false }, Kind::Float)
        }
        (Type::Enum(integer, enumeration), []) => {
            fixed(scalar(*integer), Kind::Enumeration(enumeration.labels.as_slice().into()))
        }
        (Type::String | Type::TextArray(_) | Type::TextSequence, []) => {
            Found { place: Place::Text { tail }, kind: Kind::Text }
        }
        (Type::Array(integer, count), [Segment::Index(index)]) if index < count => {
            element(scalar(*integer), *index)
        }
        (Type::Sequence(integer), [Segment::Index(index)]) => element(scalar(*integer), *index),
        (Type::Bytes, [Segment::Index(index)]) => element(scalar(Integer::unsigned(8)), *index),
        (Type::Array(_, count), [Segment::Index(_)]) => unusable(format!("beyond an array of {count}")),
        (Type::Array(..) | Type::Sequence(_) | Type::Bytes, []) => unusable("several numbers".into()),
        (Type::Struct(_), []) => unusable("a structure".into()),
        _ => unusable("no part of that field".into()),
    }
}

fn scalar(integer: Integer) -> Scalar {
    let encoding = if integer.signed { Encoding::Signed } else { Encoding::Unsigned };
    Scalar { size: integer.size() as u8, encoding, network: integer.network }
}

fn unusable<'a>(why: String) -> Found<'a> {
    Found { place: Place::Absent, kind: Kind::Unusable(why) }
}
