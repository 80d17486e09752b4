//! Events as their programs describe them.
//!
//! A program carries one description for each event, a run of bytes that needs no relocation, so that
//! it can be read in the program's file, in its memory, and in the catalog that an agent shares with a
//! session. [`decode`] is the one place where such bytes become trusted; [`encode`] writes them.
//!
//! What a record of the event looks like in a ring follows from the description: see
//! [`Event::fixed_size`] and `tompion_layout::record`.
#![forbid(unsafe_code)]

mod description;
mod level;

pub use description::{
    DescriptionError, EVENT_MAGIC, decode, decode_names, decode_outline, description_size, encode,
    enum_field_count,
};
pub use level::Level;

/// Most fields that an event has.
pub const MAX_FIELDS: usize = 1024;
/// Longest name of a provider, event, field or label in bytes.
pub const MAX_NAME: usize = 255;

/// An event: its names, what it is, and its fields.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    /// Who defines the event, `db` in `db:query_done`.
    pub provider: String,
    /// The event's own name, `query_done` in `db:query_done`.
    pub name: String,
    /// How important the event is.
    pub level: Level,
    /// What kind of thing happened.
    pub kind: Kind,
    /// Whether the event belongs to the initial state, which a flight recorder never overwrites.
    pub init: bool,
    /// The fields, in order.
    pub fields: Vec<Field>,
}

/// What an event says beyond its fields, so that viewers and exporters need no guessing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Something happened at one moment.
    #[default]
    Instant = 0,
    /// A span begins on this thread.
    Begin = 1,
    /// The thread's innermost span of this name ends.
    End = 2,
    /// A quantity has a new value.
    Counter = 3,
    /// One step of a flow across threads and processes.
    Flow = 4,
}

impl Kind {
    /// The kind with this number; an unknown one counts as an instant, so that old readers go on.
    pub const fn from_number(number: u8) -> Self {
        match number {
            1 => Self::Begin,
            2 => Self::End,
            3 => Self::Counter,
            4 => Self::Flow,
            _ => Self::Instant,
        }
    }

    /// The word by which traces and reports call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Instant => "instant",
            Self::Begin => "begin",
            Self::End => "end",
            Self::Counter => "counter",
            Self::Flow => "flow",
        }
    }
}

/// A field of an event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Field {
    /// A C identifier.
    pub name: String,
    /// What its values are.
    pub ty: Type,
}

/// An integer type, by itself or as an element of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Integer {
    /// 8, 16, 32 or 64.
    pub bits: u8,
    /// Two's complement.
    pub signed: bool,
    /// Shown in hexadecimal.
    pub hex: bool,
}

impl Integer {
    /// Size of a value in bytes.
    pub const fn size(self) -> usize {
        self.bits as usize / 8
    }
}

/// The type of a field.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// `i8` to `i64`, `u8` to `u64`, `x8` to `x64`.
    Integer(Integer),
    /// `f32` and `f64`: IEEE 754, by its bits.
    Float(u8),
    /// `bool`: one byte, 0 or 1.
    Bool,
    /// `str` and `strn`: text, as long as it is.
    String,
    /// `bytes`: anything, shown in hexadecimal.
    Bytes,
    /// `array`: always this many elements.
    Array(Integer, u32),
    /// `sequence`: as many elements as there are.
    Sequence(Integer),
    /// `enum`: an `i64` with names for its values.
    Enum(Enumeration),
}

impl Type {
    /// Bytes that the field takes in the fixed part of a record.
    ///
    /// Values of variable length stand there with their number of elements (u32); an array, whose
    /// length is known, with nothing.
    pub const fn fixed_size(&self) -> usize {
        match self {
            Self::Integer(integer) => integer.size(),
            Self::Float(bits) => *bits as usize / 8,
            Self::Bool => 1,
            Self::String | Self::Bytes | Self::Sequence(_) => 4,
            Self::Array(..) => 0,
            Self::Enum(_) => 8,
        }
    }
}

/// Names for an integer's values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Enumeration {
    /// The enumeration's name.
    pub name: String,
    /// Its labels, in the order of the program. Ranges may overlap.
    pub labels: Vec<Label>,
}

/// A name for the values `low..=high`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Label {
    /// Smallest value.
    pub low: i64,
    /// Largest value.
    pub high: i64,
    /// What these values are called.
    pub name: String,
}

impl std::fmt::Display for Type {
    /// The word by which a program declares the type: `u64`, `str`, `array u8 16`, …
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Integer(integer) => write!(f, "{integer}"),
            Self::Float(bits) => write!(f, "f{bits}"),
            Self::Bool => f.write_str("bool"),
            Self::String => f.write_str("str"),
            Self::Bytes => f.write_str("bytes"),
            Self::Array(element, count) => write!(f, "array {element} {count}"),
            Self::Sequence(element) => write!(f, "sequence {element}"),
            Self::Enum(enumeration) if enumeration.name.is_empty() => f.write_str("enum"),
            Self::Enum(enumeration) => write!(f, "enum {}", enumeration.name),
        }
    }
}

impl std::fmt::Display for Integer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let family = if self.hex {
            'x'
        } else if self.signed {
            'i'
        } else {
            'u'
        };
        write!(f, "{family}{}", self.bits)
    }
}

impl Event {
    /// `provider:name`.
    pub fn full_name(&self) -> String {
        format!("{}:{}", self.provider, self.name)
    }

    /// Bytes of the fixed part of the event's records.
    pub fn fixed_size(&self) -> usize {
        self.fields.iter().map(|field| field.ty.fixed_size()).sum()
    }
}
