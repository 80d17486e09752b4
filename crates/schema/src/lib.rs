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
pub mod format;
mod level;
mod names;

pub use description::{
    DescriptionError, EVENT_MAGIC, decode, decode_names, decode_outline, description_size, encode,
    enum_field_count,
};
pub use level::Level;
pub use names::{Names, base_name, context_field};

/// Most fields that an event has, members of structures included.
pub const MAX_FIELDS: usize = 1024;
/// How deep structures may stand in each other.
pub const MAX_DEPTH: usize = 8;
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
    /// The printf format of a mark, which says how its fields make a message.
    pub format: Option<String>,
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
    /// A span begins that is one activation of a periodic job. Its first field, `deadline_ns`, says
    /// within how many nanoseconds it is to end; 0 is no deadline. It ends as other spans do.
    Job = 5,
    /// A printf-like marker, whose fields are the arguments of its format.
    Mark = 6,
}

impl Kind {
    /// The kind with this number; an unknown one counts as an instant, so that old readers go on.
    pub const fn from_number(number: u8) -> Self {
        match number {
            1 => Self::Begin,
            2 => Self::End,
            3 => Self::Counter,
            4 => Self::Flow,
            5 => Self::Job,
            6 => Self::Mark,
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
            Self::Job => "job",
            Self::Mark => "mark",
        }
    }

    /// The kind of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        (0..=Self::Mark as u8).map(Self::from_number).find(|kind| kind.name() == name)
    }
}

/// A field of an event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Field {
    /// A C identifier.
    pub name: String,
    /// What its values are.
    pub ty: Type,
    /// Whether it says under which circumstances the event happened, not what happened: context that
    /// the application defines. Members of structures are what their structure is.
    pub context: bool,
}

impl Field {
    /// A field of the event's own.
    pub fn new(name: &str, ty: Type) -> Self {
        Self { name: name.into(), ty, context: false }
    }
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
    /// Most significant byte first, as in network protocols.
    pub network: bool,
}

impl Integer {
    /// A signed integer, `i8` to `i64`.
    pub const fn signed(bits: u8) -> Self {
        Self { bits, signed: true, hex: false, network: false }
    }

    /// An unsigned integer, `u8` to `u64`.
    pub const fn unsigned(bits: u8) -> Self {
        Self { bits, signed: false, hex: false, network: false }
    }

    /// An unsigned integer shown in hexadecimal, `x8` to `x64`.
    pub const fn hex(bits: u8) -> Self {
        Self { bits, signed: false, hex: true, network: false }
    }

    /// The same with the most significant byte first.
    pub const fn network(self) -> Self {
        Self { network: true, ..self }
    }

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
    /// An array of bytes that are text in UTF-8, up to its end or a NUL.
    TextArray(u32),
    /// A sequence of bytes that are text in UTF-8, up to its end or a NUL.
    TextSequence,
    /// `enum`: an integer with names for its values.
    Enum(Integer, Enumeration),
    /// Fields of their own.
    Struct(Vec<Field>),
}

impl Type {
    /// Bytes that the field takes in the fixed part of a record.
    ///
    /// Values of variable length stand there with their number of elements (u32); an array, whose
    /// length is known, with nothing; a structure with what its members have there.
    pub fn fixed_size(&self) -> usize {
        match self {
            Self::Integer(integer) => integer.size(),
            Self::Float(bits) => *bits as usize / 8,
            Self::Bool => 1,
            Self::String | Self::Bytes | Self::Sequence(_) | Self::TextSequence => 4,
            Self::Array(..) | Self::TextArray(_) => 0,
            Self::Enum(integer, _) => integer.size(),
            Self::Struct(members) => members.iter().map(|member| member.ty.fixed_size()).sum(),
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

/// A name for the values `low..=high`, as far as the enumeration's integer has them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Label {
    /// Smallest value.
    pub low: i128,
    /// Largest value.
    pub high: i128,
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
            Self::TextArray(count) => write!(f, "text array {count}"),
            Self::TextSequence => f.write_str("text sequence"),
            Self::Enum(integer, enumeration) => {
                f.write_str("enum")?;
                let words = [(*integer != Integer::signed(64)).then(|| integer.to_string())];
                let name = Some(enumeration.name.clone()).filter(|name| !name.is_empty());
                words.into_iter().chain([name]).flatten().try_for_each(|word| write!(f, " {word}"))
            }
            Self::Struct(members) => {
                f.write_str("struct {")?;
                for (index, member) in members.iter().enumerate() {
                    let separator = if index == 0 { "" } else { ", " };
                    write!(f, "{separator}{} {}", member.ty, member.name)?;
                }
                f.write_str("}")
            }
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
        let order = if self.network { "network " } else { "" };
        write!(f, "{order}{family}{}", self.bits)
    }
}

impl Event {
    /// `provider:name`; the name alone where there is no provider, as the kernel's events have none.
    pub fn full_name(&self) -> String {
        if self.provider.is_empty() { self.name.clone() } else { format!("{}:{}", self.provider, self.name) }
    }

    /// The event's names and what else rules are matched against.
    pub fn names(&self) -> Names<'_> {
        Names {
            provider: &self.provider,
            name: &self.name,
            level: self.level,
            kind: self.kind,
            init: self.init,
        }
    }

    /// The name of the span that the event begins or ends; for others, the event's own.
    pub fn base_name(&self) -> &str {
        base_name(&self.name, self.kind)
    }

    /// Bytes of the fixed part of the event's records.
    pub fn fixed_size(&self) -> usize {
        self.fields.iter().map(|field| field.ty.fixed_size()).sum()
    }
}
