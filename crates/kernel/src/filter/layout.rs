//! Layout of an event's fields for filters in the kernel: in an image of its fixed part, or as a
//! text beside it.

use tompion_filter::{EventSchema, Found, Kind, Name, Place, Schema, Scope};
use tompion_schema::{Event, Type};

use crate::{
    decode::{Call, Class, Vocabulary},
    syscalls::MAX_PATHS,
    tracepoints::{self, Tracepoint},
};

/// Numbers of contexts in bound filters.
pub(super) const TID: u16 = 0;
pub(super) const PID: u16 = 1;
pub(super) const CPU: u16 = 2;
pub(super) const COMM: u16 = 3;

/// Bytes of a tracepoint's fixed part that the image has (`FILTERED_BYTES` in `src/bpf/generic.h`).
pub(super) const TRACEPOINT_BYTES: usize = 512;

/// Place of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Text {
    /// Text in an array of the record's image.
    Array { offset: i16, length: usize },
    /// First text beside the image.
    First,
    /// Second text beside the image.
    Second,
}

/// Place of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Where {
    /// A number at this offset of the image.
    Number(u32),
    Text(Text),
    /// The value is in the record, where only the reader can see it.
    Record,
    /// The value is in no record.
    Nowhere,
}

/// An event, and where its fields are.
pub(super) struct Layout {
    event: Event,
    /// Place of each field.
    places: Vec<Where>,
}

impl Layout {
    /// The layout of a class. That of a call's exit is the one with all paths that may have been
    /// read again.
    pub(super) fn of(vocabulary: &Vocabulary, class: Class) -> Self {
        match class {
            Class::Exit(call, _) => {
                let event = vocabulary.event(Class::Exit(call, (1 << MAX_PATHS) - 1));
                Self::by_field(event, |_, name| if name == "ret" { Where::Number(0) } else { Where::Record })
            }
            Class::Entry(call) => Self::of_entry(vocabulary.event(class), call),
            Class::Tracepoint(place) => Self::of_tracepoint(&vocabulary.tracepoints[place]),
            // The address of a probe's place stands first, and not in the image.
            Class::Probe(_) => Self::by_field(vocabulary.event(class), |place, _| match place {
                0 => Where::Record,
                place => Where::Number(8 * (place as u32 - 1)),
            }),
            Class::Known(_) | Class::State(_) | Class::Stacks(_) => Self::of_payload(vocabulary.event(class)),
        }
    }

    /// An event whose numbers are where `place` says.
    fn by_field(event: Event, place: impl Fn(usize, &str) -> Where) -> Self {
        let fields = event.fields.iter().enumerate();
        let place = |(at, field): (usize, &tompion_schema::Field)| match field.ty {
            Type::Integer(_) | Type::Enum(..) => place(at, &field.name),
            _ => Where::Record,
        };
        Self { places: fields.map(place).collect(), event }
    }

    /// The image is the record's payload; there is one text at most that has no fixed size.
    fn of_payload(event: Event) -> Self {
        let mut number = 0;
        let mut array = event.fixed_size();
        let mut places = Vec::new();
        for field in &event.fields {
            places.push(match field.ty {
                Type::String => Where::Text(Text::First),
                Type::TextArray(length) => {
                    let offset = array as i16;
                    array += length as usize;
                    Where::Text(Text::Array { offset, length: length as usize })
                }
                _ => Where::Number(number),
            });
            number += field.ty.fixed_size() as u32;
        }
        Self { event, places }
    }

    /// The image is the call's six arguments; behind the number that a call without a name has.
    fn of_entry(event: Event, call: Call) -> Self {
        let unnamed = usize::from(!matches!(call, Call::Known(_)));
        let mut texts = [Text::First, Text::Second].into_iter();
        let fields = event.fields.iter().enumerate();
        let places = fields.map(|(at, field)| match (&field.ty, at.checked_sub(unnamed)) {
            (Type::String, _) => texts.next().map_or(Where::Record, Where::Text),
            (_, Some(argument)) => Where::Number(8 * argument as u32),
            (_, None) => Where::Record,
        });
        Self { places: places.collect(), event }
    }

    /// The image is what a record has behind the bytes that all have.
    fn of_tracepoint(tracepoint: &Tracepoint) -> Self {
        let format = &tracepoint.format;
        let places = format.event.fields.iter().zip(&format.places).map(|(field, place)| {
            let tracepoints::Place::Fixed { offset, size } = *place else { return Where::Record };
            let Some(offset) = offset.checked_sub(tracepoints::COMMON) else { return Where::Record };
            match field.ty {
                _ if offset + size > TRACEPOINT_BYTES => Where::Record,
                Type::Integer(_) | Type::Enum(..) => Where::Number(offset as u32),
                Type::TextArray(length) => {
                    Where::Text(Text::Array { offset: offset as i16, length: length as usize })
                }
                _ => Where::Record,
            }
        });
        Self { places: places.collect(), event: format.event.clone() }
    }

    /// Marks fields that only the reader can see as absent.
    pub(super) fn without_reader(mut self) -> Self {
        let hidden = self.places.iter_mut().filter(|place| **place == Where::Record);
        hidden.for_each(|place| *place = Where::Nowhere);
        self
    }

    /// Places of the numbered texts: those of the fields with these numbers.
    pub(super) fn texts(&self) -> Vec<Option<Text>> {
        let text = |place: &Where| match place {
            Where::Text(text) => Some(*text),
            _ => None,
        };
        self.places.iter().map(text).collect()
    }
}

impl Schema for Layout {
    fn find(&self, name: &Name) -> Found<'_> {
        if name.scope != Scope::Field {
            return context(name);
        }
        let contexts = |_: &Name| Found::ABSENT;
        let schema = EventSchema::new(&self.event, &contexts);
        let Found { place, kind } = schema.find(name);
        // That schema is gone in a moment and can't lend what it found.
        let kind = owned(kind);
        let field = self.event.fields.iter().position(|field| field.name == name.head());
        let place = match (field.map(|field| (field, self.places[field])), place) {
            (_, Place::Absent) | (None, _) | (Some((_, Where::Nowhere)), _) => Place::Absent,
            (Some((_, Where::Number(offset))), Place::Fixed { scalar, .. }) => {
                Place::Fixed { offset, scalar }
            }
            (Some((field, Where::Text(_))), Place::Text { .. }) => Place::Text { tail: field as u16 },
            _ => Place::Elsewhere,
        };
        Found { place, kind }
    }
}

fn owned(kind: Kind<'_>) -> Kind<'static> {
    match kind {
        Kind::Integer => Kind::Integer,
        Kind::Float => Kind::Float,
        Kind::Text => Kind::Text,
        Kind::Enumeration(labels) => Kind::Enumeration(labels.into_owned().into()),
        Kind::Unusable(why) => Kind::Unusable(why),
        Kind::Any => Kind::Any,
    }
}

/// Facts known of a thread and a processor where a program runs.
fn context(name: &Name) -> Found<'static> {
    let known = |number, kind| Found { place: Place::Context(number), kind };
    match (name.scope, name.head(), name.path.len()) {
        (Scope::Context, "tid", 1) => known(TID, Kind::Integer),
        (Scope::Context, "pid", 1) => known(PID, Kind::Integer),
        (Scope::Context, "cpu", 1) => known(CPU, Kind::Integer),
        (Scope::Context, "comm" | "procname", 1) => known(COMM, Kind::Text),
        _ => Found::ABSENT,
    }
}
