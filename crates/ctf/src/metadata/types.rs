//! Types of fields.

use super::ByteOrder;

/// The type of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    /// A number of any number of bits.
    Integer(Integer),
    /// An IEEE 754 number.
    Float(Float),
    /// A bit that is kept in an integer: false is 0.
    Boolean(Integer),
    /// Bits, some of them with names.
    Bits(BitArray),
    /// Text up to a NUL, which is not part of it.
    String(Encoding),
    /// Text in as many bytes as are said elsewhere, or up to a NUL in them.
    Text(Text),
    /// Bytes that mean nothing here.
    Blob(Blob),
    /// An integer with names for its values.
    Enum(Enum),
    /// Fields one after the other.
    Struct(Struct),
    /// One of several fields.
    Variant(Variant),
    /// A field, or none.
    Optional(Optional),
    /// As many elements as the type says.
    Array(Array),
    /// As many elements as another field says.
    Sequence(Sequence),
}

/// An integer type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Integer {
    /// Size in bits, 1 to 64; of the value, where the size varies.
    pub bits: u32,
    /// How the bits are laid out.
    pub form: Form,
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
    /// What the value is for, where the description says it; in CTF 1.8 the field's name does.
    pub roles: Roles,
}

/// How the bits of an integer are laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Form {
    /// As many bits as the type says, in the order that belongs to the byte order.
    #[default]
    Fixed,
    /// As many bits, in the opposite order.
    Reversed,
    /// Seven bits in each byte, the lowest first, and a bit that says whether more follow (LEB128).
    Variable,
}

/// What a value is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Role {
    /// The number with which each packet begins.
    Magic = 0,
    /// What distinguishes the trace from all others.
    Uuid = 1,
    /// Number of the stream class.
    StreamId = 2,
    /// Which stream of its class.
    StreamInstance = 3,
    /// When the packet was begun.
    TimestampBegin = 4,
    /// When the packet was ended.
    TimestampEnd = 5,
    /// Size of the packet's header, context and events in bits.
    ContentSize = 6,
    /// Size of the packet in bits.
    PacketSize = 7,
    /// How many events of the stream were discarded so far.
    EventsDiscarded = 8,
    /// The packet's number in its stream.
    SequenceNumber = 9,
    /// Number of the event class.
    EventId = 10,
}

impl Role {
    /// Number of roles.
    pub const COUNT: u16 = 11;

    /// All of them.
    pub const ALL: [Self; Self::COUNT as usize] = [
        Self::Magic,
        Self::Uuid,
        Self::StreamId,
        Self::StreamInstance,
        Self::TimestampBegin,
        Self::TimestampEnd,
        Self::ContentSize,
        Self::PacketSize,
        Self::EventsDiscarded,
        Self::SequenceNumber,
        Self::EventId,
    ];

    /// The role that a field's name gives it in CTF 1.8.
    pub fn of_name(scope: Scope, name: &str) -> Option<Self> {
        Some(match (scope, name) {
            (Scope::PacketHeader, "magic") => Self::Magic,
            (Scope::PacketHeader, "uuid") => Self::Uuid,
            (Scope::PacketHeader, "stream_id") => Self::StreamId,
            (Scope::PacketHeader, "stream_instance_id") => Self::StreamInstance,
            (Scope::PacketContext, "timestamp_begin") => Self::TimestampBegin,
            (Scope::PacketContext, "timestamp_end") => Self::TimestampEnd,
            (Scope::PacketContext, "content_size") => Self::ContentSize,
            (Scope::PacketContext, "packet_size") => Self::PacketSize,
            (Scope::PacketContext, "events_discarded") => Self::EventsDiscarded,
            (Scope::PacketContext, "packet_seq_num") => Self::SequenceNumber,
            (Scope::EventHeader, "id") => Self::EventId,
            _ => return None,
        })
    }
}

/// A set of roles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Roles(u16);

impl Roles {
    /// No role.
    pub const NONE: Self = Self(0);

    /// The set with this one too.
    #[must_use]
    pub const fn with(self, role: Role) -> Self {
        Self(self.0 | 1 << role as u16)
    }

    /// Whether the role is in the set.
    pub const fn has(self, role: Role) -> bool {
        self.0 & 1 << role as u16 != 0
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those that are in the set.
    pub fn iter(self) -> impl Iterator<Item = Role> {
        Role::ALL.into_iter().filter(move |&role| self.has(role))
    }
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
            form: Form::Fixed,
            roles: Roles::NONE,
        }
    }

    /// An integer of as many bytes as its value needs.
    pub fn variable(signed: bool) -> Self {
        Self { signed, form: Form::Variable, ..Self::unsigned(64, ByteOrder::Little) }
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

    /// The same, for this.
    pub fn with_role(self, role: Role) -> Self {
        Self { roles: self.roles.with(role), ..self }
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
    /// UTF-16 without a mark of its byte order.
    Utf16(ByteOrder),
    /// UTF-32 without a mark of its byte order.
    Utf32(ByteOrder),
}

impl Encoding {
    /// Size in bytes of what characters are made of; a NUL has this size.
    pub fn unit(self) -> usize {
        match self {
            Self::None | Self::Utf8 | Self::Ascii => 1,
            Self::Utf16(_) => 2,
            Self::Utf32(_) => 4,
        }
    }
}

/// Bits, some of them with names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitArray {
    /// How the bits are laid out; unsigned.
    pub integer: Integer,
    /// Names of bits: ranges of numbers from the least significant bit, which is 0.
    pub flags: Vec<Mapping>,
}

/// A length that the type says, or an earlier field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Length {
    /// Always the same.
    Fixed(u64),
    /// The value of this unsigned integer.
    Field(Reference),
}

/// Text in a number of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// How many bytes.
    pub length: Length,
    /// What they mean.
    pub encoding: Encoding,
}

/// Bytes that mean nothing here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    /// How many.
    pub length: Length,
    /// What they are, for others: an IANA media type.
    pub media_type: Option<String>,
    /// What they are for.
    pub roles: Roles,
}

/// A field, or none.
#[derive(Clone, Debug, PartialEq)]
pub struct Optional {
    /// The boolean or integer that selects.
    pub selector: Reference,
    /// The integers for which there is a field; nothing where a boolean says it.
    pub ranges: Option<Vec<(i128, i128)>>,
    /// The field.
    pub element: Box<Type>,
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
    /// Whether the bits are in the order opposite to that of the byte order.
    pub reversed: bool,
}

impl Float {
    /// A number of 32 or 64 bits, aligned to a byte.
    pub fn new(bits: u32, byte_order: ByteOrder) -> Self {
        Self { bits, byte_order, alignment: 8, reversed: false }
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

/// One of several fields, selected by the label of an enumeration elsewhere, or by an integer.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// The enumeration or integer that selects.
    pub selector: Reference,
    /// The options; each has the name of a label, unless there are ranges.
    pub options: Vec<Field>,
    /// Which integers select which option, where that is not said by labels.
    pub ranges: Option<Vec<OptionRange>>,
}

/// The integers `low..=high` select an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionRange {
    /// Smallest value.
    pub low: i128,
    /// Largest value.
    pub high: i128,
    /// Index of the option.
    pub option: usize,
}

/// As many elements as the type says.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Type of the elements.
    pub element: Box<Type>,
    /// How many there are.
    pub length: u64,
    /// Least alignment in bits of the first element, a power of two; 0 counts as 1.
    pub alignment: u32,
}

/// As many elements as another field says.
#[derive(Clone, Debug, PartialEq)]
pub struct Sequence {
    /// Type of the elements.
    pub element: Box<Type>,
    /// The unsigned integer that says how many there are.
    pub length: Reference,
    /// Least alignment in bits of the first element, a power of two; 0 counts as 1.
    pub alignment: u32,
}

/// Where an earlier field stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reference {
    /// The outermost structure.
    pub scope: Scope,
    /// Names of fields from there. Arrays on the way are passed through without a name: the element is the
    /// one that is being decoded. Options of variants are named in CTF 1.8; in CTF 2 the selected one is
    /// passed through.
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
    /// [`super::Trace::packet_header`].
    PacketHeader,
    /// [`super::Stream::packet_context`].
    PacketContext,
    /// [`super::Stream::event_header`].
    EventHeader,
    /// [`super::Stream::event_context`].
    StreamEventContext,
    /// [`super::Event::context`].
    EventContext,
    /// [`super::Event::payload`].
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
        Self::Array(Array { element: Box::new(self), length, alignment: 1 })
    }

    /// A sequence of this.
    pub fn sequence(self, length: Reference) -> Self {
        Self::Sequence(Sequence { element: Box::new(self), length, alignment: 1 })
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
            Self::Integer(integer) | Self::Boolean(integer) => integer.alignment,
            Self::Bits(array) => array.integer.alignment,
            Self::Float(float) => float.alignment,
            Self::String(_) | Self::Text(_) | Self::Blob(_) => 8,
            Self::Enum(enumeration) => enumeration.integer.alignment,
            Self::Struct(structure) => structure.effective_alignment(),
            Self::Variant(_) | Self::Optional(_) => 1,
            Self::Array(array) => array.element.alignment().max(array.alignment),
            Self::Sequence(sequence) => sequence.element.alignment().max(sequence.alignment),
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
