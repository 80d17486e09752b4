//! What is the same in every line of an event class, put together once.
//!
//! ```text
//! [17:46:22.794565804] (+0.000001868) box db:query: { cpu_id = 2 }, { vtid = 7 }, { rows = 1, name = "x" }
//! └── time ─────────────────────────┘ └── begin ─────────────────────────────┘ │  └ behind ┘ │        │ └ behind
//!                                                                              value        value    value
//! ```

use tompion_ctf::decode::Values;
use tompion_ctf::metadata::{Base, Event, Field, Stream, Struct, Type};

use super::value;

/// A class's lines: a beginning, then values, each with the text behind it.
#[derive(Debug, Default)]
pub(super) struct Layout {
    /// Text between the packet's context and the first value.
    pub begin: Vec<u8>,
    values: Vec<(Form, Box<[u8]>)>,
}

/// How a value is read and shown; the frequent ones without looking at their types.
#[derive(Debug)]
enum Form {
    Unsigned,
    Signed,
    Text,
    Other(Type),
}

impl Form {
    fn of(ty: &Type) -> Self {
        match ty {
            Type::Integer(integer) if integer.base == Base::Decimal => match integer.signed {
                true => Self::Signed,
                false => Self::Unsigned,
            },
            Type::String(encoding) if encoding.unit() == 1 => Self::Text,
            other => Self::Other(other.clone()),
        }
    }
}

impl Layout {
    /// The lines of a class. `after_context` says that the packet's context stands before them.
    pub fn new(stream: &Stream, event: &Event, after_context: bool) -> Self {
        let mut layout = Self::default();
        let groups = [&stream.event_context, &event.context, &event.payload];
        let mut separator = if after_context { ", " } else { "" };
        for group in groups.into_iter().flatten() {
            layout.literal(separator);
            separator = ", ";
            layout.group(group);
        }
        layout.literal("\n");
        layout
    }

    fn group(&mut self, group: &Struct) {
        let mut separator = "{ ";
        for Field { name, ty } in &group.fields {
            self.literal(separator);
            separator = ", ";
            self.literal(name);
            self.literal(" = ");
            self.values.push((Form::of(ty), Box::default()));
        }
        self.literal(if group.fields.is_empty() { "{ }" } else { " }" });
    }

    /// Adds text behind the last value, or to the beginning.
    fn literal(&mut self, text: &str) {
        match self.values.last_mut() {
            Some((_, behind)) => *behind = [&**behind, text.as_bytes()].concat().into(),
            None => self.begin.extend_from_slice(text.as_bytes()),
        }
    }

    /// Writes the values and what stands behind each.
    #[inline]
    pub fn write<'a>(&'a self, mut values: Values<'a>, line: &mut Vec<u8>) {
        for (form, behind) in &self.values {
            match form {
                Form::Unsigned => value::decimal(values.word(), line),
                Form::Signed => value::decimal(values.word() as i64, line),
                Form::Text => value::text(values.text(), line),
                Form::Other(ty) => {
                    if let Some(value) = values.value(ty) {
                        value::value(value, line);
                    }
                }
            }
            line.extend_from_slice(behind);
        }
    }
}
