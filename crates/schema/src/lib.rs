//! Model of event descriptions, as programs provide them.
//!
//! A program has one description for each event: a sequence of bytes that needs no relocation. It
//! can be read from the program's file, from its memory, and from the catalog that an agent shares
//! with a session. [`decode`] is the only place where such bytes become trusted; [`encode`] writes
//! them.
//!
//! The layout of an event's records in a ring follows from the description: see
//! [`Event::fixed_size`] and `tompion_layout::record`.
#![forbid(unsafe_code)]

mod description;
pub mod format;
mod level;
mod names;
pub mod provider;

pub use description::{
    DescriptionError, EVENT_MAGIC, decode, decode_names, decode_outline, description_size, encode,
    enum_field_count,
};
pub use level::Level;
pub use names::{Names, base_name, context_field};

/// Maximum number of fields of an event, including members of structures.
pub const MAX_FIELDS: usize = 1024;
/// Maximum nesting of structures.
pub const MAX_DEPTH: usize = 8;
/// Maximum length of the name of a provider, event, field or label in bytes.
pub const MAX_NAME: usize = 255;

/// Event: its names, kind and fields.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    /// Provider that defines the event, `db` in `db:query_done`.
    pub provider: String,
    /// Name without the provider, `query_done` in `db:query_done`.
    pub name: String,
    /// Log level.
    pub level: Level,
    /// Kind of the event.
    pub kind: Kind,
    /// Whether the event belongs to the initial state, which a flight recorder never overwrites.
    pub init: bool,
    /// Format of a mark, in the syntax of printf, by which its fields form a message.
    pub format: Option<String>,
    /// Further properties, which no record depends on.
    pub attributes: Attributes,
    /// Fields, in order.
    pub fields: Vec<Field>,
}

/// Attributes of an event that change nothing in its records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Attributes {
    /// URI of a model of the event, as LTTng-UST's providers state it.
    pub model: Option<String>,
    /// Tracer that the event was made for, such as `NVTX`; none if it was made for Tompion.
    pub origin: Option<String>,
}

impl Attributes {
    /// Returns whether all uses of the event should have the same fields. Marks of other tracers
    /// have those that the program gives each time; LTTng-UST's providers declare theirs.
    pub fn has_one_form(&self) -> bool {
        self.origin.as_deref().is_none_or(|origin| origin == provider::ORIGIN)
    }
}

/// Kind of an event, so that viewers and exporters need not guess.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Something happened at one time.
    #[default]
    Instant = 0,
    /// A span begins on this thread.
    Begin = 1,
    /// The thread's innermost span with this name ends.
    End = 2,
    /// A quantity has a new value.
    Counter = 3,
    /// One step of a flow across threads and processes.
    Flow = 4,
    /// A span begins that is one activation of a periodic job. Its first field, `deadline_ns`, is
    /// the number of nanoseconds within which it must end; 0 means no deadline. It ends like other
    /// spans.
    Job = 5,
    /// A printf-like mark, whose fields are the arguments of its format.
    Mark = 6,
}

impl Kind {
    /// Returns the kind with this number; an unknown one counts as an instant, so that old readers
    /// accept it.
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

    /// Returns the name of the kind in traces and reports.
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

    /// Returns the kind with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        (0..=Self::Mark as u8).map(Self::from_number).find(|kind| kind.name() == name)
    }
}

/// Field of an event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Field {
    /// Name, a C identifier.
    pub name: String,
    /// Type of the values.
    pub ty: Type,
    /// Whether the field is context that the application defines: circumstances of the event.
    /// Members of structures inherit this from their structure.
    pub context: bool,
}

impl Field {
    /// Creates a field that is not context.
    pub fn new(name: &str, ty: Type) -> Self {
        Self { name: name.into(), ty, context: false }
    }
}

/// Integer type, by itself or as an element of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Integer {
    /// Size in bits: 8, 16, 32 or 64.
    pub bits: u8,
    /// Whether it is signed, in two's complement.
    pub signed: bool,
    /// Whether it is displayed in hexadecimal.
    pub hex: bool,
    /// Whether the most significant byte comes first, as in network protocols.
    pub network: bool,
}

impl Integer {
    /// Creates a signed integer, `i8` to `i64`.
    pub const fn signed(bits: u8) -> Self {
        Self { bits, signed: true, hex: false, network: false }
    }

    /// Creates an unsigned integer, `u8` to `u64`.
    pub const fn unsigned(bits: u8) -> Self {
        Self { bits, signed: false, hex: false, network: false }
    }

    /// Creates an unsigned integer displayed in hexadecimal, `x8` to `x64`.
    pub const fn hex(bits: u8) -> Self {
        Self { bits, signed: false, hex: true, network: false }
    }

    /// Returns the type with the most significant byte first.
    pub const fn network(self) -> Self {
        Self { network: true, ..self }
    }

    /// Returns the size of a value in bytes.
    pub const fn size(self) -> usize {
        self.bits as usize / 8
    }
}

/// Type of a field.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// Integer: `i8` to `i64`, `u8` to `u64`, `x8` to `x64`.
    Integer(Integer),
    /// IEEE 754 number with this size in bits: `f32`, `f64`.
    Float(u8),
    /// Boolean: `bool`, one byte, 0 or 1.
    Bool,
    /// Text of any length: `str`, `strn`.
    String,
    /// Bytes displayed in hexadecimal: `bytes`.
    Bytes,
    /// Array with a constant number of elements: `array`.
    Array(Integer, u32),
    /// Array with a variable number of elements: `sequence`.
    Sequence(Integer),
    /// Array of bytes that are UTF-8 text, up to its end or a NUL.
    TextArray(u32),
    /// Sequence of bytes that are UTF-8 text, up to its end or a NUL.
    TextSequence,
    /// Integer with names for its values: `enum`.
    Enum(Integer, Enumeration),
    /// Structure of fields.
    Struct(Vec<Field>),
}

impl Type {
    /// Returns the size of the field in the fixed part of a record, in bytes.
    ///
    /// Values of variable length have their number of elements (u32) there. An array, whose length
    /// is constant, has nothing there. A structure has what its members have.
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
    /// Name of the enumeration.
    pub name: String,
    /// Labels, in the order of the program. Ranges may overlap.
    pub labels: Vec<Label>,
}

/// Name for the values `low..=high` that the enumeration's integer can have.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Label {
    /// Smallest value.
    pub low: i128,
    /// Largest value.
    pub high: i128,
    /// Name of these values.
    pub name: String,
}

impl std::fmt::Display for Type {
    /// Formats the type as a program declares it: `u64`, `str`, `array u8 16`, …
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
    /// Returns `provider:name`, or the name only if there is no provider, as for the kernel's
    /// events.
    pub fn full_name(&self) -> String {
        if self.provider.is_empty() { self.name.clone() } else { format!("{}:{}", self.provider, self.name) }
    }

    /// Returns the names and other properties against which rules are matched.
    pub fn names(&self) -> Names<'_> {
        Names {
            provider: &self.provider,
            name: &self.name,
            level: self.level,
            kind: self.kind,
            init: self.init,
        }
    }

    /// Returns the name of the span that the event begins or ends; for others, the event's own.
    pub fn base_name(&self) -> &str {
        base_name(&self.name, self.kind)
    }

    /// Returns the name of the span that the event begins or ends, with its provider:
    /// `provider:name`.
    pub fn span_name(&self) -> String {
        format!("{}:{}", self.provider, self.base_name())
    }

    /// Returns the size of the fixed part of the event's records in bytes.
    pub fn fixed_size(&self) -> usize {
        self.fields.iter().map(|field| field.ty.fixed_size()).sum()
    }
}
