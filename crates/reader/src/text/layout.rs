//! Text that all lines of an event class share, built once.
//!
//! ```text
//! [17:46:22.794565804] box db:query: { cpu_id = 2 }, { vtid = 7 }, { rows = 1, name = "x" }
//! └── time ──────────┘ └── begin ─────────────────────────────┘ │  └ behind ┘ │        │ └ behind
//!                                                               value        value    value
//! ```

use tompion_ctf::decode::{Values, is_characters};
use tompion_ctf::metadata::{Array, Base, Event, Field, Sequence, Stream, Struct, Type};

use super::{FIELD_COLOUR, NO_COLOUR, PrintOptions, digits, value};

/// Lines of a class: a beginning, then values, each followed by constant text.
#[derive(Debug, Default)]
pub(super) struct Layout {
    /// Text between the packet's context and the first value.
    pub begin: Vec<u8>,
    values: Vec<(Form, Literal)>,
}

/// Constant text, appended by a copy of constant size if it is short.
#[derive(Debug, Default)]
struct Literal {
    short: [u8; 32],
    size: u8,
    long: Option<Box<[u8]>>,
}

impl Literal {
    /// Returns this text with another one appended.
    fn followed_by(&self, text: &[u8]) -> Self {
        let before =
            self.long.as_deref().unwrap_or_else(|| self.short.get(..self.size.into()).unwrap_or_default());
        let text = [before, text].concat();
        let mut short = [0; 32];
        match short.get_mut(..text.len()) {
            Some(place) => {
                place.copy_from_slice(&text);
                Self { short, size: text.len() as u8, long: None }
            }
            None => Self { long: Some(text.into()), ..Self::default() },
        }
    }

    #[inline]
    fn append(&self, line: &mut Vec<u8>) {
        match &self.long {
            None => {
                line.extend_from_slice(&self.short);
                line.truncate(line.len() - (self.short.len() - usize::from(self.size)));
            }
            Some(text) => line.extend_from_slice(text),
        }
    }
}

/// Access and format of a value; common types are handled without inspecting the type.
#[derive(Debug)]
enum Form {
    Unsigned,
    Signed,
    /// Hexadecimal, masked with this value.
    Hexadecimal(u64),
    Text,
    /// Text in an array of bytes.
    Characters,
    /// Any type, with or without the names of its members.
    Other(Type, bool),
    /// Skipped.
    Hidden(Type),
}

/// Whether a value consists only of clock timestamps, which babeltrace2 doesn't print.
fn is_of_clock(ty: &Type) -> bool {
    match ty {
        Type::Struct(structure) => is_all_of_clock(&structure.fields),
        Type::Variant(variant) => is_all_of_clock(&variant.options),
        Type::Array(array) => is_of_clock(&array.element),
        Type::Sequence(sequence) => is_of_clock(&sequence.element),
        other => other.as_integer().is_some_and(|integer| integer.clock.is_some()),
    }
}

fn is_all_of_clock(fields: &[Field]) -> bool {
    !fields.is_empty() && fields.iter().all(|field| is_of_clock(&field.ty))
}

impl Form {
    fn of(ty: &Type, names: bool) -> Self {
        match ty {
            Type::Integer(integer) if integer.base == Base::Decimal => match integer.signed {
                true => Self::Signed,
                false => Self::Unsigned,
            },
            Type::Integer(integer) if integer.base == Base::Hexadecimal => {
                Self::Hexadecimal(u64::MAX >> (64 - value::shown_bits(integer).clamp(1, 64)))
            }
            Type::String(encoding) if encoding.unit() == 1 => Self::Text,
            Type::Array(Array { element, .. }) | Type::Sequence(Sequence { element, .. })
                if is_characters(element) =>
            {
                Self::Characters
            }
            other => Self::Other(other.clone(), names),
        }
    }
}

fn hidden(ty: &Type) -> (Form, Literal) {
    (Form::Hidden(ty.clone()), Literal::default())
}

impl Layout {
    /// Builds the lines of a class. `after_context` states that a packet context precedes.
    pub fn new(stream: &Stream, event: &Event, after_context: bool, options: &PrintOptions) -> Self {
        let mut layout = Self::default();
        let names = options.names;
        let groups = [
            (&stream.event_context, "stream.event.context = ", names.context),
            (&event.context, "event.context = ", names.context),
            (&event.payload, "event.fields = ", names.payload),
        ];
        let mut separator = if after_context { ", " } else { "" };
        for (group, scope, has_names) in groups {
            let Some(group) = group else { continue };
            if is_all_of_clock(&group.fields) {
                layout.values.extend(group.fields.iter().map(|field| hidden(&field.ty)));
                continue;
            }
            layout.literal(separator);
            separator = ", ";
            layout.literal(if names.scope { scope } else { "" });
            layout.group(group, has_names, options.colour);
        }
        layout.literal("\n");
        layout
    }

    fn group(&mut self, group: &Struct, names: bool, colour: bool) {
        let mut separator = "{ ";
        for Field { name, ty } in &group.fields {
            if is_of_clock(ty) {
                self.values.push(hidden(ty));
                continue;
            }
            self.literal(separator);
            separator = ", ";
            if names {
                self.literal(if colour { FIELD_COLOUR } else { "" });
                self.literal(name);
                self.literal(if colour { NO_COLOUR } else { "" });
                self.literal(" = ");
            }
            self.values.push((Form::of(ty, names), Literal::default()));
        }
        self.literal(if group.fields.is_empty() { "{ }" } else { " }" });
    }

    /// Appends constant text to the last value, or to the beginning.
    fn literal(&mut self, text: &str) {
        match self.values.last_mut() {
            Some((_, behind)) => *behind = behind.followed_by(text.as_bytes()),
            None => self.begin.extend_from_slice(text.as_bytes()),
        }
    }

    /// Writes the values and the constant text after each.
    #[inline]
    pub fn write<'a>(&'a self, mut values: Values<'a>, line: &mut Vec<u8>) {
        for (form, behind) in &self.values {
            match form {
                Form::Unsigned => digits::unsigned(values.word(), line),
                Form::Signed => digits::signed(values.word() as i64, line),
                Form::Hexadecimal(mask) => value::hexadecimal(values.word() & mask, line),
                Form::Text => value::text(values.text(), line),
                Form::Characters => value::text(values.characters(), line),
                Form::Hidden(ty) => drop(values.value(ty)),
                Form::Other(ty, names) => {
                    if let Some(value) = values.value(ty) {
                        value::value(value, *names, line);
                    }
                }
            }
            behind.append(line);
        }
    }
}
