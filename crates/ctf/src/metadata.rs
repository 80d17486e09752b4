//! What a trace says about itself: clocks, streams, events, and the types of all their fields.
//!
//! ```text
//! Trace ─┬─ environment, clocks
//!        ├─ packet header                         once in every packet
//!        └─ Stream ─┬─ packet context             once in every packet of the stream
//!                   ├─ event header, context      in every event of the stream
//!                   └─ Event ── context, payload  in every event of this class
//! ```
//!
//! The model is the same for all versions of the format. Names are those that users see: where the
//! CTF 1.8 language puts `_` before a name, the name here is without it. Numbers are not checked here;
//! whoever compiles the model refuses what cannot be decoded.

use std::fmt;

use tompion_schema::{Level, Names};

use crate::meaning::Meaning;

/// A whole trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// Byte order of values which don't say theirs.
    pub byte_order: ByteOrder,
    /// What distinguishes this trace from all others; also in the header of each packet.
    pub uuid: Option<Uuid>,
    /// Facts about the machine and the tracer, in order.
    pub environment: Vec<(String, EnvironmentValue)>,
    /// Clocks that fields refer to by name.
    pub clocks: Vec<Clock>,
    /// First structure of each packet: magic number, UUID, stream class.
    pub packet_header: Option<Struct>,
    /// Classes of data streams.
    pub streams: Vec<Stream>,
}

impl Trace {
    /// The environment's value of this name.
    pub fn environment_value(&self, name: &str) -> Option<&EnvironmentValue> {
        self.environment.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// The clock of this name.
    pub fn clock(&self, name: &str) -> Option<&Clock> {
        self.clocks.iter().find(|clock| clock.name == name)
    }

    /// The stream class with this number.
    pub fn stream(&self, id: u64) -> Option<&Stream> {
        self.streams.iter().find(|stream| stream.id == id)
    }
}

/// Least or most significant byte first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// Least significant byte first.
    #[default]
    Little,
    /// Most significant byte first, as on networks.
    Big,
}

/// A UUID, shown as `624b19d9-19cd-4eae-bab8-8342e1b96a5d`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// Reads 32 hexadecimal digits, with hyphens or without.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 16];
        let mut digits = text.chars().filter(|&character| character != '-');
        for byte in &mut bytes {
            let high = digits.next()?.to_digit(16)?;
            let low = digits.next()?.to_digit(16)?;
            *byte = (high * 16 + low) as u8;
        }
        digits.next().is_none().then_some(Self(bytes))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                formatter.write_str("-")?;
            }
            write!(formatter, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// One value of the environment or of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnvironmentValue {
    /// A number.
    Integer(i64),
    /// A text.
    Text(String),
}

impl EnvironmentValue {
    /// The text, unless it is a number.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Integer(_) => None,
        }
    }

    /// The number, unless it is a text.
    pub fn as_integer(&self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(*number),
            Self::Text(_) => None,
        }
    }
}

impl From<&str> for EnvironmentValue {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for EnvironmentValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for EnvironmentValue {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl fmt::Display for EnvironmentValue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(number) => write!(formatter, "{number}"),
            Self::Text(text) => formatter.write_str(text),
        }
    }
}

/// A clock. Its value of `c` cycles is the moment
/// `offset_seconds + (offset_cycles + c) / frequency` seconds after its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clock {
    /// The name by which integers refer to it.
    pub name: String,
    /// What distinguishes this clock (of this boot of this machine) from all others.
    pub uuid: Option<Uuid>,
    /// What it is, in words.
    pub description: Option<String>,
    /// Cycles per second, never 0.
    pub frequency: u64,
    /// How exact it is, in cycles.
    pub precision: Option<u64>,
    /// Seconds from the origin to the clock's zero.
    pub offset_seconds: i64,
    /// Cycles to add to the seconds.
    pub offset_cycles: i64,
    /// Whether clocks of other traces with the same origin can be compared with it.
    pub absolute: bool,
}

impl Clock {
    /// A clock that counts nanoseconds, whose zero is `offset_ns` after the Unix epoch.
    pub fn nanoseconds(name: &str, offset_ns: i64) -> Self {
        Self {
            name: name.into(),
            uuid: None,
            description: None,
            frequency: NANOSECONDS,
            precision: None,
            offset_seconds: 0,
            offset_cycles: offset_ns,
            absolute: false,
        }
    }

    /// The moment of a value, in nanoseconds after the origin; beyond the range of `i64`, its end.
    pub fn to_nanoseconds(&self, cycles: u64) -> i64 {
        let cycles = i128::from(self.offset_cycles) + i128::from(cycles);
        let frequency = i128::from(self.frequency.max(1));
        let nanoseconds = match self.frequency {
            NANOSECONDS => cycles,
            _ => cycles.div_euclid(frequency) * NS + cycles.rem_euclid(frequency) * NS / frequency,
        };
        let total = nanoseconds + i128::from(self.offset_seconds) * NS;
        total.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
    }
}

const NANOSECONDS: u64 = 1_000_000_000;
const NS: i128 = NANOSECONDS as i128;

/// A class of data streams.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stream {
    /// The number by which packet headers refer to it.
    pub id: u64,
    /// Second structure of each packet: sizes, timestamps, counters.
    pub packet_context: Option<Struct>,
    /// First structure of each event: event class and timestamp.
    pub event_header: Option<Struct>,
    /// Context fields that every event of the stream has.
    pub event_context: Option<Struct>,
    /// Event classes.
    pub events: Vec<Event>,
}

impl Stream {
    /// The event class with this number.
    pub fn event(&self, id: u64) -> Option<&Event> {
        self.events.iter().find(|event| event.id == id)
    }
}

/// A class of events.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Event {
    /// The number by which event headers refer to it.
    pub id: u64,
    /// Its whole name, `provider:name` or `name`.
    pub name: String,
    /// How important the event is; LTTng-UST's numbers.
    pub log_level: Option<i64>,
    /// Anything else that is said of it, `model.emf.uri` for example. babeltrace2 2.0.4 knows only
    /// this one and warns of others.
    pub attributes: Vec<(String, EnvironmentValue)>,
    /// Context fields of this class alone.
    pub context: Option<Struct>,
    /// Its fields.
    pub payload: Option<Struct>,
}

impl Event {
    /// `provider:name`, taken apart; the provider is empty when there is none.
    pub fn provider_and_name(&self) -> (&str, &str) {
        self.name.split_once(':').unwrap_or(("", &self.name))
    }

    /// What kind of event it is and, for a mark, its format: an instant, where nothing is said.
    pub fn meaning(&self) -> Meaning {
        Meaning::from_attributes(&self.attributes)
    }

    /// The names and what else rules are matched against.
    pub fn names(&self) -> Names<'_> {
        let (provider, name) = self.provider_and_name();
        let level = self.log_level.and_then(|level| u8::try_from(level).ok());
        let level = level.map_or(Level::DEFAULT, Level::from_number);
        let Meaning { kind, init, .. } = self.meaning();
        Names { provider, name, level, kind, init }
    }
}

/// The type of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    /// A number of any number of bits.
    Integer(Integer),
    /// An IEEE 754 number.
    Float(Float),
    /// Bytes up to a NUL, which is not part of the text.
    String(Encoding),
    /// An integer with names for its values.
    Enum(Enum),
    /// Fields one after the other.
    Struct(Struct),
    /// One of several fields.
    Variant(Variant),
    /// As many elements as the type says.
    Array(Array),
    /// As many elements as another field says.
    Sequence(Sequence),
}

/// An integer type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Integer {
    /// Size in bits, 1 to 64.
    pub bits: u32,
    /// Two's complement.
    pub signed: bool,
    /// Which end comes first.
    pub byte_order: ByteOrder,
    /// Alignment in bits, a power of two.
    pub alignment: u32,
    /// How values are shown.
    pub base: Base,
    /// Whether arrays of this are text.
    pub encoding: Encoding,
    /// The clock whose value this is.
    pub clock: Option<String>,
}

impl Integer {
    /// An unsigned integer, aligned to a byte if it has whole bytes.
    pub fn unsigned(bits: u32, byte_order: ByteOrder) -> Self {
        Self {
            bits,
            signed: false,
            byte_order,
            alignment: if bits % 8 == 0 { 8 } else { 1 },
            base: Base::Decimal,
            encoding: Encoding::None,
            clock: None,
        }
    }

    /// A signed integer, aligned to a byte if it has whole bytes.
    pub fn signed(bits: u32, byte_order: ByteOrder) -> Self {
        Self { signed: true, ..Self::unsigned(bits, byte_order) }
    }

    /// The same, shown in this base.
    pub fn with_base(self, base: Base) -> Self {
        Self { base, ..self }
    }

    /// The same, a value of this clock.
    pub fn with_clock(self, clock: &str) -> Self {
        Self { clock: Some(clock.into()), ..self }
    }

    /// The same, with this alignment in bits.
    pub fn with_alignment(self, alignment: u32) -> Self {
        Self { alignment, ..self }
    }

    /// Whether an array of this is text: bytes with an encoding.
    pub fn is_text(&self) -> bool {
        self.encoding != Encoding::None && self.bits == 8 && self.alignment == 8
    }

    /// Smallest and largest value.
    pub fn range(&self) -> (i128, i128) {
        match (self.signed, self.bits.clamp(1, 64)) {
            (false, bits) => (0, (1 << bits) - 1),
            (true, bits) => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
        }
    }
}

/// How an integer is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Base {
    /// Base 2.
    Binary,
    /// Base 8.
    Octal,
    /// Base 10.
    #[default]
    Decimal,
    /// Base 16.
    Hexadecimal,
}

/// What bytes of text mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// Not text.
    #[default]
    None,
    /// UTF-8.
    Utf8,
    /// ASCII.
    Ascii,
}

/// A floating-point type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Float {
    /// Size in bits, 32 or 64.
    pub bits: u32,
    /// Which end comes first.
    pub byte_order: ByteOrder,
    /// Alignment in bits, a power of two.
    pub alignment: u32,
}

impl Float {
    /// A number of 32 or 64 bits, aligned to a byte.
    pub fn new(bits: u32, byte_order: ByteOrder) -> Self {
        Self { bits, byte_order, alignment: 8 }
    }
}

/// An enumeration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enum {
    /// The type of its values.
    pub integer: Integer,
    /// Its labels, in order. Ranges may overlap, labels may come more than once.
    pub mappings: Vec<Mapping>,
}

/// A label for the values `low..=high`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// What these values are called.
    pub label: String,
    /// Smallest value.
    pub low: i128,
    /// Largest value.
    pub high: i128,
}

/// Fields one after the other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Struct {
    /// The fields, in order.
    pub fields: Vec<Field>,
    /// Least alignment in bits, a power of two; the fields may demand more. 0 counts as 1.
    pub alignment: u32,
}

impl Struct {
    /// A structure that begins at a byte.
    pub fn new(fields: Vec<Field>) -> Self {
        Self { fields, alignment: 8 }
    }

    /// The field of this name.
    pub fn field(&self, name: &str) -> Option<&Type> {
        self.fields.iter().find(|field| field.name == name).map(|field| &field.ty)
    }
}

/// A field of a structure, or an option of a variant.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: Type,
}

impl Field {
    /// A field.
    pub fn new(name: &str, ty: Type) -> Self {
        Self { name: name.into(), ty }
    }
}

/// One of several fields, selected by the label of an enumeration elsewhere.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// The enumeration that selects.
    pub selector: Reference,
    /// The options; each has the name of a label.
    pub options: Vec<Field>,
}

/// As many elements as the type says.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Type of the elements.
    pub element: Box<Type>,
    /// How many there are.
    pub length: u64,
}

/// As many elements as another field says.
#[derive(Clone, Debug, PartialEq)]
pub struct Sequence {
    /// Type of the elements.
    pub element: Box<Type>,
    /// The unsigned integer that says how many there are.
    pub length: Reference,
}

/// Where an earlier field stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reference {
    /// The outermost structure.
    pub scope: Scope,
    /// Names of fields, and of options of variants, from there. Arrays on the way are passed through
    /// without a name: the element is the one that is being decoded.
    pub path: Vec<String>,
}

impl Reference {
    /// A field of the event's payload.
    pub fn payload(name: &str) -> Self {
        Self { scope: Scope::Payload, path: vec![name.into()] }
    }
}

/// The outermost structures of packets and events, in the order in which they are decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// [`Trace::packet_header`].
    PacketHeader,
    /// [`Stream::packet_context`].
    PacketContext,
    /// [`Stream::event_header`].
    EventHeader,
    /// [`Stream::event_context`].
    StreamEventContext,
    /// [`Event::context`].
    EventContext,
    /// [`Event::payload`].
    Payload,
}

impl Type {
    /// A string in UTF-8.
    pub const STRING: Self = Self::String(Encoding::Utf8);

    /// An unsigned integer.
    pub fn unsigned(bits: u32, byte_order: ByteOrder) -> Self {
        Self::Integer(Integer::unsigned(bits, byte_order))
    }

    /// A signed integer.
    pub fn signed(bits: u32, byte_order: ByteOrder) -> Self {
        Self::Integer(Integer::signed(bits, byte_order))
    }

    /// An array of this.
    pub fn array(self, length: u64) -> Self {
        Self::Array(Array { element: Box::new(self), length })
    }

    /// A sequence of this.
    pub fn sequence(self, length: Reference) -> Self {
        Self::Sequence(Sequence { element: Box::new(self), length })
    }

    /// The integer that this is or, for an enumeration, that its values are.
    pub fn as_integer(&self) -> Option<&Integer> {
        match self {
            Self::Integer(integer) => Some(integer),
            Self::Enum(enumeration) => Some(&enumeration.integer),
            _ => None,
        }
    }

    /// Alignment in bits. A variant has none: its options have their own.
    pub fn alignment(&self) -> u32 {
        match self {
            Self::Integer(integer) => integer.alignment,
            Self::Float(float) => float.alignment,
            Self::String(_) => 8,
            Self::Enum(enumeration) => enumeration.integer.alignment,
            Self::Struct(structure) => structure.effective_alignment(),
            Self::Variant(_) => 1,
            Self::Array(array) => array.element.alignment(),
            Self::Sequence(sequence) => sequence.element.alignment(),
        }
    }
}

impl Struct {
    /// Alignment in bits: the largest of its own and its fields'.
    pub fn effective_alignment(&self) -> u32 {
        let fields = self.fields.iter().map(|field| field.ty.alignment());
        fields.fold(self.alignment.max(1), u32::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_read_and_shown() {
        let text = "624b19d9-19cd-4eae-bab8-8342e1b96a5d";
        assert_eq!(Uuid::parse(text).unwrap().to_string(), text);
        assert_eq!(Uuid::parse(&text.replace('-', "")), Uuid::parse(text));
        assert_eq!(Uuid::parse("624b19d9"), None);
        assert_eq!(Uuid::parse(&format!("{text}0")), None);
        assert_eq!(Uuid::parse("zz4b19d9-19cd-4eae-bab8-8342e1b96a5d"), None);
    }

    #[test]
    fn a_clock_counts_from_its_origin() {
        let clock = Clock::nanoseconds("monotonic", 1_000_000_007);
        assert_eq!(clock.to_nanoseconds(3), 1_000_000_010);
        let clock = Clock { frequency: 3, offset_seconds: -2, offset_cycles: 1, ..clock };
        assert_eq!(clock.to_nanoseconds(3), -666_666_667);
        let clock = Clock { frequency: 1, offset_seconds: i64::MAX, ..clock };
        assert_eq!(clock.to_nanoseconds(u64::MAX), i64::MAX);
    }

    #[test]
    fn a_structure_is_aligned_as_its_strictest_field() {
        let little = ByteOrder::Little;
        let inner = Struct {
            alignment: 0,
            fields: vec![
                Field::new("flag", Type::unsigned(1, little)),
                Field::new("wide", Type::Integer(Integer::unsigned(64, little).with_alignment(64))),
            ],
        };
        assert_eq!(inner.effective_alignment(), 64);
        assert_eq!(Type::Struct(inner).array(0).alignment(), 64);
        assert_eq!(Struct::default().effective_alignment(), 1);
    }
}
