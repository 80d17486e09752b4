//! Types of fields.

use super::ByteOrder;

/// Type of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    /// Integer of any size.
    Integer(Integer),
    /// IEEE 754 floating-point number.
    Float(Float),
    /// Boolean stored in an integer: false is 0.
    Boolean(Integer),
    /// Bit array, with names for some of its bits.
    Bits(BitArray),
    /// Text up to a NUL, which is not part of it.
    String(Encoding),
    /// Text whose size in bytes is given elsewhere, or up to a NUL in them.
    Text(Text),
    /// Uninterpreted bytes.
    Blob(Blob),
    /// Integer with names for its values.
    Enum(Enum),
    /// Structure of consecutive fields.
    Struct(Struct),
    /// One of several fields.
    Variant(Variant),
    /// Field that may be absent.
    Optional(Optional),
    /// Array whose length is part of the type.
    Array(Array),
    /// Array whose length is another field.
    Sequence(Sequence),
}

/// Integer type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Integer {
    /// Size in bits, 1 to 64; of the value, if the encoded size varies.
    pub bits: u32,
    /// Layout of the bits.
    pub form: Form,
    /// Whether it is signed, in two's complement.
    pub signed: bool,
    /// Byte order.
    pub byte_order: ByteOrder,
    /// Alignment in bits, a power of two.
    pub alignment: u32,
    /// Preferred display base.
    pub base: Base,
    /// Encoding, if arrays of this type are text.
    pub encoding: Encoding,
    /// Name of the clock whose value this is.
    pub clock: Option<String>,
    /// Roles of the value, if stated by the description; in CTF 1.8 they follow from the field's
    /// name.
    pub roles: Roles,
}

/// Layout of the bits of an integer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Form {
    /// Fixed size, in the bit order that belongs to the byte order.
    #[default]
    Fixed,
    /// Fixed size, in the opposite bit order.
    Reversed,
    /// Variable size (LEB128): seven bits in each byte, the lowest first, and a continuation bit.
    Variable,
}

/// Role of a special field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Role {
    /// Magic number at the beginning of each packet.
    Magic = 0,
    /// Unique id of the trace.
    Uuid = 1,
    /// Number of the stream class.
    StreamId = 2,
    /// Number of the stream within its class.
    StreamInstance = 3,
    /// Begin time of the packet.
    TimestampBegin = 4,
    /// End time of the packet.
    TimestampEnd = 5,
    /// Size of the packet's header, context and events in bits.
    ContentSize = 6,
    /// Size of the packet in bits.
    PacketSize = 7,
    /// Number of discarded events in the stream so far.
    EventsDiscarded = 8,
    /// Sequence number of the packet in its stream.
    SequenceNumber = 9,
    /// Number of the event class.
    EventId = 10,
}

impl Role {
    /// Number of roles.
    pub const COUNT: u16 = 11;

    /// All roles.
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

    /// Returns the role that a field has by its name in CTF 1.8.
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

/// Set of roles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Roles(u16);

impl Roles {
    /// Empty set.
    pub const NONE: Self = Self(0);

    /// Returns the set with this role added.
    #[must_use]
    pub const fn with(self, role: Role) -> Self {
        Self(self.0 | 1 << role as u16)
    }

    /// Whether the role is in the set.
    pub const fn has(self, role: Role) -> bool {
        self.0 & 1 << role as u16 != 0
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the roles in the set.
    pub fn iter(self) -> impl Iterator<Item = Role> {
        Role::ALL.into_iter().filter(move |&role| self.has(role))
    }
}

impl Integer {
    /// Creates an unsigned integer, byte-aligned if its size is a multiple of a byte.
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

    /// Creates an integer of variable size.
    pub fn variable(signed: bool) -> Self {
        Self { signed, form: Form::Variable, ..Self::unsigned(64, ByteOrder::Little) }
    }

    /// Creates a signed integer, byte-aligned if its size is a multiple of a byte.
    pub fn signed(bits: u32, byte_order: ByteOrder) -> Self {
        Self { signed: true, ..Self::unsigned(bits, byte_order) }
    }

    /// Returns the type with this display base.
    pub fn with_base(self, base: Base) -> Self {
        Self { base, ..self }
    }

    /// Returns the type as a value of this clock.
    pub fn with_clock(self, clock: &str) -> Self {
        Self { clock: Some(clock.into()), ..self }
    }

    /// Returns the type with this alignment in bits.
    pub fn with_alignment(self, alignment: u32) -> Self {
        Self { alignment, ..self }
    }

    /// Returns the type with this role added.
    pub fn with_role(self, role: Role) -> Self {
        Self { roles: self.roles.with(role), ..self }
    }

    /// Whether an array of this type is text: bytes with an encoding.
    pub fn is_text(&self) -> bool {
        self.encoding != Encoding::None && self.bits == 8 && self.alignment == 8
    }

    /// Returns the smallest and largest value.
    pub fn range(&self) -> (i128, i128) {
        match (self.signed, self.bits.clamp(1, 64)) {
            (false, bits) => (0, (1 << bits) - 1),
            (true, bits) => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
        }
    }
}

/// Display base of an integer.
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

/// Text encoding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// No text.
    #[default]
    None,
    /// UTF-8.
    Utf8,
    /// ASCII.
    Ascii,
    /// UTF-16 without a byte order mark.
    Utf16(ByteOrder),
    /// UTF-32 without a byte order mark.
    Utf32(ByteOrder),
}

impl Encoding {
    /// Returns the size of a code unit in bytes; a NUL has this size.
    pub fn unit(self) -> usize {
        match self {
            Self::None | Self::Utf8 | Self::Ascii => 1,
            Self::Utf16(_) => 2,
            Self::Utf32(_) => 4,
        }
    }
}

/// Bit array, with names for some of its bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitArray {
    /// Layout of the bits; unsigned.
    pub integer: Integer,
    /// Names of bits: ranges of bit numbers, where 0 is the least significant bit.
    pub flags: Vec<Mapping>,
}

/// Length given by the type or by an earlier field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Length {
    /// Fixed length.
    Fixed(u64),
    /// Value of this unsigned integer.
    Field(Reference),
}

/// Text with a size in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// Size in bytes.
    pub length: Length,
    /// Encoding.
    pub encoding: Encoding,
}

/// Uninterpreted bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    /// Size in bytes.
    pub length: Length,
    /// IANA media type of the content.
    pub media_type: Option<String>,
    /// Roles.
    pub roles: Roles,
}

/// Field that may be absent.
#[derive(Clone, Debug, PartialEq)]
pub struct Optional {
    /// Boolean or integer that selects.
    pub selector: Reference,
    /// Values of the integer for which the field is present; `None` for a boolean selector.
    pub ranges: Option<Vec<(i128, i128)>>,
    /// Type of the field.
    pub element: Box<Type>,
}

/// Floating-point type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Float {
    /// Size in bits, 32 or 64.
    pub bits: u32,
    /// Byte order.
    pub byte_order: ByteOrder,
    /// Alignment in bits, a power of two.
    pub alignment: u32,
    /// Whether the bit order is opposite to that of the byte order.
    pub reversed: bool,
}

impl Float {
    /// Creates a byte-aligned number of 32 or 64 bits.
    pub fn new(bits: u32, byte_order: ByteOrder) -> Self {
        Self { bits, byte_order, alignment: 8, reversed: false }
    }
}

/// Enumeration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enum {
    /// Type of its values.
    pub integer: Integer,
    /// Labels, in order. Ranges may overlap, and labels may repeat.
    pub mappings: Vec<Mapping>,
}

impl Enum {
    /// Returns the labels of a value, each once, although its ranges may overlap.
    pub fn labels_of(&self, value: i128) -> impl Iterator<Item = &str> {
        let has = move |mapping: &&Mapping| (mapping.low..=mapping.high).contains(&value);
        let mut before = 0;
        self.mappings.iter().enumerate().filter(move |(_, mapping)| has(mapping)).filter_map(
            move |(index, mapping)| {
                before += 1;
                let mut earlier = self.mappings.iter().take(index).filter(has);
                let is_twice = before > 1 && earlier.any(|other| other.label == mapping.label);
                (!is_twice).then_some(mapping.label.as_str())
            },
        )
    }
}

/// Label for the values `low..=high`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Label of these values.
    pub label: String,
    /// Smallest value.
    pub low: i128,
    /// Largest value.
    pub high: i128,
}

/// Structure: consecutive fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Struct {
    /// Fields, in order.
    pub fields: Vec<Field>,
    /// Minimum alignment in bits, a power of two; fields may require more. 0 counts as 1.
    pub alignment: u32,
}

impl Struct {
    /// Creates a byte-aligned structure.
    pub fn new(fields: Vec<Field>) -> Self {
        Self { fields, alignment: 8 }
    }

    /// Returns the type of the field with this name.
    pub fn field(&self, name: &str) -> Option<&Type> {
        self.fields.iter().find(|field| field.name == name).map(|field| &field.ty)
    }
}

/// Field of a structure, or option of a variant.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Name of the field.
    pub name: String,
    /// Type of the field.
    pub ty: Type,
}

impl Field {
    /// Creates a field.
    pub fn new(name: &str, ty: Type) -> Self {
        Self { name: name.into(), ty }
    }
}

/// One of several fields, selected by the label of an enumeration elsewhere, or by an integer.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// Enumeration or integer that selects.
    pub selector: Reference,
    /// Options.
    pub options: Vec<Field>,
    /// Values of the selector for each option.
    pub selection: Selection,
}

impl Variant {
    /// Creates a variant of CTF 1.8 whose options have the names of their labels.
    pub fn of_labels(selector: Reference, options: Vec<Field>) -> Self {
        let labels = options.iter().map(|option| option.name.clone()).collect();
        Self { selector, options, selection: Selection::Labels(labels) }
    }
}

/// Values of a selector for each option of a variant.
#[derive(Clone, Debug, PartialEq)]
pub enum Selection {
    /// Labels of an enumeration, one for each option. CTF 1.8 text has them as names of the
    /// options, `_` included.
    Labels(Vec<String>),
    /// Ranges of integers.
    Ranges(Vec<OptionRange>),
}

impl Selection {
    /// Returns the option that a label selects: the one with exactly this label. An option whose
    /// label the enumeration lacks is also selected by a label that differs in a `_` at the
    /// beginning.
    pub fn option_of(&self, label: &str, mappings: &[Mapping]) -> Option<usize> {
        let Self::Labels(labels) = self else { return None };
        let plain = |label: &str| label.strip_prefix('_').unwrap_or(label).to_owned();
        let is_known = |option: &String| mappings.iter().any(|mapping| mapping.label == *option);
        let exact = labels.iter().position(|option| option == label);
        exact.or_else(|| labels.iter().position(|option| plain(option) == plain(label) && !is_known(option)))
    }
}

/// Integers `low..=high` that select an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionRange {
    /// Smallest value.
    pub low: i128,
    /// Largest value.
    pub high: i128,
    /// Index of the option.
    pub option: usize,
}

/// Array whose length is part of the type.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Type of the elements.
    pub element: Box<Type>,
    /// Number of elements.
    pub length: u64,
    /// Minimum alignment in bits of the first element, a power of two; 0 counts as 1.
    pub alignment: u32,
}

/// Array whose length is another field.
#[derive(Clone, Debug, PartialEq)]
pub struct Sequence {
    /// Type of the elements.
    pub element: Box<Type>,
    /// Unsigned integer with the number of elements.
    pub length: Reference,
    /// Minimum alignment in bits of the first element, a power of two; 0 counts as 1.
    pub alignment: u32,
}

/// Location of an earlier field.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reference {
    /// Outermost structure.
    pub scope: Scope,
    /// Names of fields from there. Arrays on the way have no name: the element is the one that is
    /// being decoded. Options of variants are named in CTF 1.8; in CTF 2 the selected option is
    /// implied.
    pub path: Vec<String>,
}

impl Reference {
    /// Refers to a field of the event's payload.
    pub fn payload(name: &str) -> Self {
        Self { scope: Scope::Payload, path: vec![name.into()] }
    }
}

/// Outermost structures of packets and events, in decoding order.
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
    /// UTF-8 string.
    pub const STRING: Self = Self::String(Encoding::Utf8);

    /// Creates an unsigned integer.
    pub fn unsigned(bits: u32, byte_order: ByteOrder) -> Self {
        Self::Integer(Integer::unsigned(bits, byte_order))
    }

    /// Creates a signed integer.
    pub fn signed(bits: u32, byte_order: ByteOrder) -> Self {
        Self::Integer(Integer::signed(bits, byte_order))
    }

    /// Creates an array of this type.
    pub fn array(self, length: u64) -> Self {
        Self::Array(Array { element: Box::new(self), length, alignment: 1 })
    }

    /// Creates a sequence of this type.
    pub fn sequence(self, length: Reference) -> Self {
        Self::Sequence(Sequence { element: Box::new(self), length, alignment: 1 })
    }

    /// Returns the type as an integer; for an enumeration, the type of its values.
    pub fn as_integer(&self) -> Option<&Integer> {
        match self {
            Self::Integer(integer) => Some(integer),
            Self::Enum(enumeration) => Some(&enumeration.integer),
            _ => None,
        }
    }

    /// Returns the alignment in bits. A variant has none: its options have their own.
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
    /// Returns the alignment in bits: the maximum of its own and its fields'.
    pub fn effective_alignment(&self) -> u32 {
        let fields = self.fields.iter().map(|field| field.ty.alignment());
        fields.fold(self.alignment.max(1), u32::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_whose_ranges_overlap_is_one_label() {
        let label = |label: &str, low, high| Mapping { label: label.into(), low, high };
        let mappings = vec![label("a", 0, 5), label("b", 3, 3), label("a", 2, 9), label("a", 3, 3)];
        let integer = Integer::unsigned(8, ByteOrder::Little);
        let labels = |value| {
            Enum { integer: integer.clone(), mappings: mappings.clone() }
                .labels_of(value)
                .map(String::from)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (labels(3), labels(7), labels(10)),
            (vec!["a".into(), "b".into()], vec!["a".into()], vec![])
        );
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
