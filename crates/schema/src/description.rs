//! Serializes event descriptions.
//!
//! ```text
//! event:     magic u32 "TEV1" │ size u32 │ version u16 │ kind u8 │ level u8 │ flags u16
//!            │ fields u16 │ provider_size u16 │ name_size u16 │ provider, NUL │ name, NUL
//!            │ field, … │ attribute, …
//! field:     size u16 │ type u8 │ element u8 │ count u32 │ flags u16 │ name_size u16 │ name, NUL
//! attribute: size u16 │ key u8 │ value
//! enum:      magic u32 "TEN1" │ size u32 │ version u16 │ labels u16 │ name_size u16 │ name, NUL
//!            │ label, …
//! label:     low i64 │ high i64 │ name_size u16 │ name, NUL
//! ```
//!
//! Everything is packed, numbers are little-endian, sizes of names include the NUL, and sizes of
//! structures include themselves, so that later versions can append. The event is followed by the
//! enumerations of its `enum` fields, one for each, in order. `include/tompion/tompion.h` creates
//! the same bytes with the help of the compiler.
//!
//! - `fields` counts fields that are not members of structures. `count` of a structure counts its
//!   own members, whose records come next, each followed by its members in turn.
//! - `element` is the type of an array's or sequence's elements, and of an enumeration's integer (0
//!   is `i64`).
//! - Flags of a field: 1, the integer or the elements have the most significant byte first; 2, the
//!   elements are bytes of text; 4, the field is context. Flags of an event: 1, it belongs to the
//!   initial state.
//! - Attribute 1 is the printf format of a mark, with a NUL. A mark's fields are called `arg1`,
//!   `arg2`, … here, and get their names from the format. Attribute 2 is the URI of a model of the
//!   event, 3 the tracer that the event was made for. Unknown attributes are ignored.
//! - Labels of an unsigned integer of 64 bits are its own 64 bits.

use crate::{
    Attributes, Enumeration, Event, Field, Integer, Kind, Label, Level, MAX_DEPTH, MAX_FIELDS, MAX_NAME,
    Names, Type, format,
};

/// First word of an event's description.
pub const EVENT_MAGIC: u32 = u32::from_le_bytes(*b"TEV1");
pub(crate) const ENUM_MAGIC: u32 = u32::from_le_bytes(*b"TEN1");
pub(crate) const VERSION: u16 = 1;
const EVENT_INIT: u16 = 1;
const FIELD_NETWORK: u16 = 1;
const FIELD_TEXT: u16 = 2;
const FIELD_CONTEXT: u16 = 4;
const ATTRIBUTE_FORMAT: u8 = 1;
pub(crate) const ATTRIBUTE_MODEL: u8 = 2;
pub(crate) const ATTRIBUTE_ORIGIN: u8 = 3;
const EVENT_HEADER: usize = 20;
const ENUM_HEADER: usize = 14;
const FIELD_HEADER: usize = 12;

/// Type codes, shared with the C header.
mod code {
    pub const I8: u8 = 1;
    pub const I64: u8 = 4;
    pub const X64: u8 = 12;
    pub const F32: u8 = 13;
    pub const F64: u8 = 14;
    pub const BOOL: u8 = 15;
    pub const STR: u8 = 16;
    pub const STRN: u8 = 17;
    pub const BYTES: u8 = 18;
    pub const ARRAY: u8 = 19;
    pub const SEQUENCE: u8 = 20;
    pub const ENUM: u8 = 21;
    pub const STRUCT: u8 = 22;
}

/// Problem of a description.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DescriptionError {
    /// The bytes end too early, or a size inside them points beyond their end.
    #[error("a description is cut off in its {0}")]
    Cut(&'static str),
    /// The first word is not the expected one.
    #[error("expected a description, found the word {0:#010x}")]
    Magic(u32),
    /// The description has a newer version than this reader supports.
    #[error("description version {0}, this reader knows {VERSION}")]
    Version(u16),
    /// A name is empty, too long, not UTF-8, or has invalid characters.
    #[error("a {0} name that is no name: {1:?}")]
    Name(&'static str, String),
    /// A type code is unknown.
    #[error("unknown type code {0} of field {1}")]
    Type(u8, String),
    /// The event has more than [`MAX_FIELDS`] fields.
    #[error("{0} fields, more than {MAX_FIELDS}")]
    Fields(usize),
    /// Structures are nested more than [`MAX_DEPTH`] deep.
    #[error("structure {0} stands more than {MAX_DEPTH} deep in others")]
    Depth(String),
    /// A label has an empty range of values.
    #[error("label {0:?} has the empty range {1} to {2}")]
    Label(String, i64, i64),
}

pub(crate) type Result<T> = std::result::Result<T, DescriptionError>;

/// Reader of numbers and names that never reads beyond the end.
pub(crate) struct Cursor<'a> {
    pub(crate) rest: &'a [u8],
    pub(crate) what: &'static str,
}

impl<'a> Cursor<'a> {
    pub(crate) fn take(&mut self, size: usize) -> Result<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(size).ok_or(DescriptionError::Cut(self.what))?;
        self.rest = rest;
        Ok(head)
    }

    fn number<const N: usize>(&mut self) -> Result<[u8; N]> {
        let bytes = self.take(N)?;
        bytes.try_into().map_err(|_| DescriptionError::Cut(self.what))
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        self.number::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16> {
        self.number().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        self.number().map(u32::from_le_bytes)
    }

    pub(crate) fn i64(&mut self) -> Result<i64> {
        self.number().map(i64::from_le_bytes)
    }

    /// Reads a name of `size` bytes, including its NUL.
    pub(crate) fn name(&mut self, size: u16, what: &'static str) -> Result<&'a str> {
        let bytes = self.take(usize::from(size))?;
        let bytes = bytes.strip_suffix(&[0]).unwrap_or(bytes);
        let wrong = || DescriptionError::Name(what, String::from_utf8_lossy(bytes).into_owned());
        let text = std::str::from_utf8(bytes).map_err(|_| wrong())?;
        let sound = !text.is_empty() && text.len() <= MAX_NAME && !text.chars().any(char::is_control);
        if sound { Ok(text) } else { Err(wrong()) }
    }

    /// Reads the structure that begins here and has its u32 size at byte 4.
    pub(crate) fn structure(&mut self, magic: u32, what: &'static str) -> Result<Cursor<'a>> {
        let mut head = Cursor { rest: self.rest, what };
        let found = head.u32()?;
        if found != magic {
            return Err(DescriptionError::Magic(found));
        }
        let size = head.u32()? as usize;
        let body = self.take(size)?.get(8..).ok_or(DescriptionError::Cut(what))?;
        Ok(Cursor { rest: body, what })
    }
}

fn event_head<'a>(cursor: &mut Cursor<'a>) -> Result<(Names<'a>, usize)> {
    let version = cursor.u16()?;
    if version != VERSION {
        return Err(DescriptionError::Version(version));
    }
    let kind = Kind::from_number(cursor.u8()?);
    let level = Level::from_number(cursor.u8()?);
    let init = cursor.u16()? & EVENT_INIT != 0;
    let fields = usize::from(cursor.u16()?);
    if fields > MAX_FIELDS {
        return Err(DescriptionError::Fields(fields));
    }
    let (provider_size, name_size) = (cursor.u16()?, cursor.u16()?);
    let provider = cursor.name(provider_size, "provider")?;
    let name = cursor.name(name_size, "event")?;
    Ok((Names { provider, name, level, kind, init }, fields))
}

/// Returns the size in bytes of the description that begins here, without its enumerations.
pub fn description_size(bytes: &[u8]) -> Result<usize> {
    let mut cursor = Cursor { rest: bytes, what: "event" };
    cursor.structure(EVENT_MAGIC, "event")?;
    Ok(bytes.len() - cursor.rest.len())
}

/// Decodes names, level and kind only, without allocating: what an agent needs to match rules.
pub fn decode_names(bytes: &[u8]) -> Result<Names<'_>> {
    let mut cursor = Cursor { rest: bytes, what: "event" }.structure(EVENT_MAGIC, "event")?;
    event_head(&mut cursor).map(|(names, _)| names)
}

/// Returns the number of enumeration fields, whose descriptions follow the event's.
pub fn enum_field_count(bytes: &[u8]) -> Result<usize> {
    let mut cursor = Cursor { rest: bytes, what: "event" }.structure(EVENT_MAGIC, "event")?;
    let (_, mut left) = event_head(&mut cursor)?;
    let mut count = 0;
    while left > 0 {
        let field = FieldRecord::read(&mut cursor)?;
        let members = if field.code == code::STRUCT { field.count as usize } else { 0 };
        left = (left - 1).saturating_add(members);
        count += usize::from(field.code == code::ENUM);
    }
    Ok(count)
}

/// Decodes a description with the enumerations after it. Never panics, whatever the bytes are.
pub fn decode(bytes: &[u8]) -> Result<Event> {
    decode_with(bytes, decode_enum)
}

/// Decodes a description without its enumerations, as stored in a program's file: they have no
/// labels.
pub fn decode_outline(bytes: &[u8]) -> Result<Event> {
    decode_with(bytes, |_, _| Ok(Enumeration { name: String::new(), labels: Vec::new() }))
}

type ReadEnum = fn(&mut Cursor<'_>, Integer) -> Result<Enumeration>;

fn decode_with(bytes: &[u8], read_enum: ReadEnum) -> Result<Event> {
    let mut enums = Cursor { rest: bytes, what: "event" };
    let mut cursor = enums.structure(EVENT_MAGIC, "event")?;
    let (names, count) = event_head(&mut cursor)?;
    let mut decoder = Decoder { cursor, enums, read_enum, left: MAX_FIELDS };
    let mut fields = decoder.fields(count, 0)?;
    let (format, attributes) = decode_attributes(&mut decoder.cursor)?;
    if let (Kind::Mark, Some(format)) = (names.kind, &format) {
        format::name_fields(format, &mut fields);
    }
    Ok(Event {
        provider: names.provider.to_owned(),
        name: names.name.to_owned(),
        level: names.level,
        kind: names.kind,
        init: names.init,
        format,
        attributes,
        fields,
    })
}

/// Reads the format of a mark and what else is said of the event; the first of each counts, in any
/// encoding.
fn decode_attributes(cursor: &mut Cursor<'_>) -> Result<(Option<String>, Attributes)> {
    cursor.what = "attributes";
    let (mut format, mut attributes) = (None, Attributes::default());
    while !cursor.rest.is_empty() {
        let size = usize::from(cursor.u16()?).checked_sub(2).ok_or(DescriptionError::Cut(cursor.what))?;
        let (key, value) = cursor.take(size)?.split_first().ok_or(DescriptionError::Cut(cursor.what))?;
        let to = match *key {
            ATTRIBUTE_FORMAT => &mut format,
            ATTRIBUTE_MODEL => &mut attributes.model,
            ATTRIBUTE_ORIGIN => &mut attributes.origin,
            _ => continue,
        };
        if to.is_none() {
            let text = value.split(|&byte| byte == 0).next().unwrap_or_default();
            *to = Some(String::from_utf8_lossy(text).into_owned());
        }
    }
    Ok((format, attributes))
}

/// Encoded field.
struct FieldRecord<'a> {
    code: u8,
    element: u8,
    count: u32,
    flags: u16,
    name: &'a str,
}

impl<'a> FieldRecord<'a> {
    fn read(cursor: &mut Cursor<'a>) -> Result<Self> {
        cursor.what = "field";
        let size = usize::from(cursor.u16()?).checked_sub(2).ok_or(DescriptionError::Cut("field"))?;
        let mut body = Cursor { rest: cursor.take(size)?, what: "field" };
        let (code, element) = (body.u8()?, body.u8()?);
        let (count, flags) = (body.u32()?, body.u16()?);
        let name_size = body.u16()?;
        let name = body.name(name_size, "field")?;
        if !is_identifier(name) {
            return Err(DescriptionError::Name("field", name.to_owned()));
        }
        Ok(Self { code, element, count, flags, name })
    }

    fn unknown(&self, code: u8) -> DescriptionError {
        DescriptionError::Type(code, self.name.to_owned())
    }

    fn integer(&self, code: u8) -> Result<Integer> {
        let integer = integer(code).ok_or_else(|| self.unknown(code))?;
        Ok(Integer { network: self.flags & FIELD_NETWORK != 0, ..integer })
    }

    /// Returns the type of an array's or sequence's elements, unless they are text.
    fn element(&self) -> Result<Option<Integer>> {
        let element = self.integer(self.element)?;
        Ok(Some(element).filter(|element| element.bits != 8 || self.flags & FIELD_TEXT == 0))
    }
}

/// Decoder of fields and of their enumerations.
struct Decoder<'a> {
    cursor: Cursor<'a>,
    enums: Cursor<'a>,
    read_enum: ReadEnum,
    /// Number of fields that are still allowed.
    left: usize,
}

impl Decoder<'_> {
    /// Decodes `count` fields, whose structures are at this depth.
    fn fields(&mut self, count: usize, depth: usize) -> Result<Vec<Field>> {
        self.left = self.left.checked_sub(count).ok_or(DescriptionError::Fields(count))?;
        let mut fields = Vec::with_capacity(count.min(64));
        for _ in 0..count {
            let field = self.field(depth)?;
            if fields.iter().any(|other: &Field| other.name == field.name) {
                return Err(DescriptionError::Name("second field of one", field.name));
            }
            fields.push(field);
        }
        Ok(fields)
    }

    fn field(&mut self, depth: usize) -> Result<Field> {
        let record = FieldRecord::read(&mut self.cursor)?;
        let ty = match record.code {
            code::F32 => Type::Float(32),
            code::F64 => Type::Float(64),
            code::BOOL => Type::Bool,
            code::STR | code::STRN => Type::String,
            code::BYTES => Type::Bytes,
            code::ARRAY => match record.element()? {
                Some(element) => Type::Array(element, record.count),
                None => Type::TextArray(record.count),
            },
            code::SEQUENCE => record.element()?.map_or(Type::TextSequence, Type::Sequence),
            code::ENUM => {
                let integer = record.integer(if record.element == 0 { code::I64 } else { record.element })?;
                Type::Enum(integer, (self.read_enum)(&mut self.enums, integer)?)
            }
            code::STRUCT if depth >= MAX_DEPTH => {
                return Err(DescriptionError::Depth(record.name.to_owned()));
            }
            code::STRUCT => Type::Struct(self.fields(record.count as usize, depth + 1)?),
            code => Type::Integer(record.integer(code)?),
        };
        let context = depth == 0 && record.flags & FIELD_CONTEXT != 0;
        Ok(Field { name: record.name.to_owned(), ty, context })
    }
}

pub(crate) fn is_identifier(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Returns the integer type with this code: i8…i64 are 1…4, u8…u64 5…8, x8…x64 9…12.
fn integer(number: u8) -> Option<Integer> {
    if !(code::I8..=code::X64).contains(&number) {
        return None;
    }
    let index = number - code::I8;
    Some(Integer { bits: 8 << (index % 4), signed: index < 4, hex: index >= 8, network: false })
}

fn integer_code(integer: Integer) -> u8 {
    let width = match integer.bits {
        8 => 0,
        16 => 1,
        32 => 2,
        _ => 3,
    };
    let family = if integer.hex {
        8
    } else if integer.signed {
        0
    } else {
        4
    };
    code::I8 + family + width
}

fn decode_enum(cursor: &mut Cursor<'_>, integer: Integer) -> Result<Enumeration> {
    let mut cursor = cursor.structure(ENUM_MAGIC, "enumeration")?;
    let version = cursor.u16()?;
    if version != VERSION {
        return Err(DescriptionError::Version(version));
    }
    let count = cursor.u16()?;
    let name_size = cursor.u16()?;
    let name = cursor.name(name_size, "enumeration")?.to_owned();
    let mut labels = Vec::new();
    for _ in 0..count {
        let (low, high) = (cursor.i64()?, cursor.i64()?);
        let name_size = cursor.u16()?;
        let name = cursor.name(name_size, "label")?.to_owned();
        let bits = !integer.signed && integer.bits == 64 && low as u64 <= high as u64;
        let (low, high) = match bits {
            true => (i128::from(low as u64), i128::from(high as u64)),
            false if low > high => return Err(DescriptionError::Label(name, low, high)),
            false => (low.into(), high.into()),
        };
        labels.push(Label { low, high, name });
    }
    Ok(Enumeration { name, labels })
}

pub(crate) fn push_name(bytes: &mut Vec<u8>, name: &str) {
    bytes.extend(name.as_bytes());
    bytes.push(0);
}

/// Appends an attribute that is a text.
pub(crate) fn push_attribute(bytes: &mut Vec<u8>, key: u8, text: &str) {
    bytes.extend((text.len() as u16 + 4).to_le_bytes());
    bytes.push(key);
    push_name(bytes, text);
}

/// Encodes the description, followed by the enumerations of its fields.
pub fn encode(event: &Event) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(EVENT_MAGIC.to_le_bytes());
    bytes.extend(0u32.to_le_bytes());
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend([event.kind as u8, event.level.number()]);
    bytes.extend((if event.init { EVENT_INIT } else { 0 }).to_le_bytes());
    bytes.extend((event.fields.len() as u16).to_le_bytes());
    bytes.extend((event.provider.len() as u16 + 1).to_le_bytes());
    bytes.extend((event.name.len() as u16 + 1).to_le_bytes());
    debug_assert_eq!(bytes.len(), EVENT_HEADER);
    push_name(&mut bytes, &event.provider);
    push_name(&mut bytes, &event.name);
    let mut enums = Vec::new();
    for field in &event.fields {
        encode_field(&mut bytes, &mut enums, field);
    }
    let Attributes { model, origin } = &event.attributes;
    let attributes =
        [(ATTRIBUTE_FORMAT, &event.format), (ATTRIBUTE_MODEL, model), (ATTRIBUTE_ORIGIN, origin)];
    for (key, text) in attributes {
        text.iter().for_each(|text| push_attribute(&mut bytes, key, text));
    }
    let size = bytes.len() as u32;
    bytes[4..8].copy_from_slice(&size.to_le_bytes());
    bytes.extend(enums);
    bytes
}

/// Encodes a field with its members; the enumerations are collected separately.
fn encode_field(bytes: &mut Vec<u8>, enums: &mut Vec<u8>, field: &Field) {
    const BYTE: Integer = Integer::unsigned(8);
    let network = |integer: &Integer| if integer.network { FIELD_NETWORK } else { 0 };
    let (code, element, count, flags) = match &field.ty {
        Type::Integer(integer) => (integer_code(*integer), 0, 0, network(integer)),
        Type::Float(32) => (code::F32, 0, 0, 0),
        Type::Float(_) => (code::F64, 0, 0, 0),
        Type::Bool => (code::BOOL, 0, 0, 0),
        Type::String => (code::STR, 0, 0, 0),
        Type::Bytes => (code::BYTES, 0, 0, 0),
        Type::Array(element, count) => (code::ARRAY, integer_code(*element), *count, network(element)),
        Type::Sequence(element) => (code::SEQUENCE, integer_code(*element), 0, network(element)),
        Type::TextArray(count) => (code::ARRAY, integer_code(BYTE), *count, FIELD_TEXT),
        Type::TextSequence => (code::SEQUENCE, integer_code(BYTE), 0, FIELD_TEXT),
        Type::Enum(integer, _) => (code::ENUM, integer_code(*integer), 0, network(integer)),
        Type::Struct(members) => (code::STRUCT, 0, members.len() as u32, 0),
    };
    let context = if field.context { FIELD_CONTEXT } else { 0 };
    let name_size = field.name.len() as u16 + 1;
    bytes.extend((FIELD_HEADER as u16 + name_size).to_le_bytes());
    bytes.extend([code, element]);
    bytes.extend(count.to_le_bytes());
    bytes.extend((flags | context).to_le_bytes());
    bytes.extend(name_size.to_le_bytes());
    push_name(bytes, &field.name);
    match &field.ty {
        Type::Enum(_, enumeration) => encode_enum(enums, enumeration),
        Type::Struct(members) => members.iter().for_each(|member| encode_field(bytes, enums, member)),
        _ => {}
    }
}

fn encode_enum(bytes: &mut Vec<u8>, enumeration: &Enumeration) {
    let start = bytes.len();
    bytes.extend(ENUM_MAGIC.to_le_bytes());
    bytes.extend(0u32.to_le_bytes());
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend((enumeration.labels.len() as u16).to_le_bytes());
    bytes.extend((enumeration.name.len() as u16 + 1).to_le_bytes());
    debug_assert_eq!(bytes.len() - start, ENUM_HEADER);
    push_name(bytes, &enumeration.name);
    for label in &enumeration.labels {
        bytes.extend((label.low as i64).to_le_bytes());
        bytes.extend((label.high as i64).to_le_bytes());
        bytes.extend((label.name.len() as u16 + 1).to_le_bytes());
        push_name(bytes, &label.name);
    }
    let size = (bytes.len() - start) as u32;
    bytes[start + 4..start + 8].copy_from_slice(&size.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(low: i128, high: i128, name: &str) -> Label {
        Label { low, high, name: name.into() }
    }

    fn enumeration(name: &str, labels: Vec<Label>) -> Enumeration {
        Enumeration { name: name.into(), labels }
    }

    /// Event with every type, and nested structures.
    fn sample() -> Event {
        let color = enumeration("color", vec![label(0, 0, "red"), label(-5, i64::MAX.into(), "the others")]);
        let size =
            enumeration("size", vec![label(0, 1 << 40, "small"), label(1 << 63, u64::MAX.into(), "huge")]);
        let inner = vec![
            Field::new("f0", Type::Enum(Integer::unsigned(8), enumeration("bit", Vec::new()))),
            Field::new("f1", Type::Sequence(Integer::hex(16).network())),
            Field::new("none", Type::Struct(Vec::new())),
        ];
        let outer = vec![
            Field::new("f0", Type::TextSequence),
            Field::new("in", Type::Struct(inner)),
            Field::new("behind", Type::Integer(Integer::signed(16).network())),
        ];
        let types = [
            Type::Integer(Integer::signed(64)),
            Type::Integer(Integer::hex(16)),
            Type::Float(32),
            Type::Float(64),
            Type::Bool,
            Type::String,
            Type::Bytes,
            Type::Array(Integer::hex(16), 9),
            Type::Sequence(Integer::unsigned(8)),
            Type::Struct(outer),
            Type::Enum(Integer::signed(64), color),
            Type::TextArray(12),
            Type::Enum(Integer::hex(64).network(), size),
        ];
        let mut fields: Vec<Field> =
            types.into_iter().zip(0..).map(|(ty, number)| Field::new(&format!("f{number}"), ty)).collect();
        fields[1].context = true;
        fields[9].context = true;
        Event {
            provider: "db".into(),
            name: "query_begin".into(),
            level: Level::DEFAULT,
            kind: Kind::Job,
            init: true,
            format: Some("f %d".into()),
            attributes: Attributes { model: Some("http://m".into()), origin: Some("NVTX".into()) },
            fields,
        }
    }

    #[test]
    fn a_description_survives_the_round_trip() {
        let event = sample();
        let bytes = encode(&event);
        assert_eq!(decode(&bytes).as_ref(), Ok(&event));
        assert_eq!(decode_names(&bytes), Ok(event.names()));
        assert_eq!((event.names().base(), event.base_name()), ("query", "query"));
        assert_eq!(enum_field_count(&bytes), Ok(3));
        // i64 x16 f32 f64 bool str bytes, sequence, f0 in.f0 in.f1 behind, i64, x64
        assert_eq!(event.fixed_size(), 8 + 2 + 4 + 8 + 1 + 4 + 4 + 4 + (4 + 1 + 4 + 2) + 8 + 8);
    }

    #[test]
    fn types_are_shown_as_words() {
        let shown: Vec<String> = sample().fields.iter().map(|field| field.ty.to_string()).collect();
        let inner = "struct {enum u8 bit f0, sequence network x16 f1, struct {} none}";
        assert_eq!(shown[7..9], ["array x16 9", "sequence u8"]);
        assert_eq!(shown[9], format!("struct {{text sequence f0, {inner} in, network i16 behind}}"));
        assert_eq!(shown[10..], ["enum color", "text array 12", "enum network x64 size"]);
    }

    #[test]
    fn a_mark_names_its_fields_by_its_format() {
        let argument = |number, ty| Field::new(&format!("arg{number}"), ty);
        let event = Event {
            kind: Kind::Mark,
            format: Some("rows %d of %*.1f flags=0x%x".into()),
            attributes: Default::default(),
            fields: vec![
                argument(1, Type::Integer(Integer::signed(32))),
                argument(2, Type::Integer(Integer::signed(32))),
                argument(3, Type::Float(64)),
                argument(4, Type::Integer(Integer::unsigned(16))),
            ],
            ..sample()
        };
        let decoded = decode(&encode(&event)).unwrap();
        let shown: Vec<String> =
            decoded.fields.iter().map(|field| format!("{} {}", field.ty, field.name)).collect();
        assert_eq!(shown, ["i32 rows", "i32 arg2", "f64 of", "x16 flags"]);
        assert_eq!(decode(&encode(&decoded)), Ok(decoded), "names stay");
    }

    #[test]
    fn unknown_attributes_are_ignored() {
        let event = Event { format: None, fields: Vec::new(), ..sample() };
        let mut bytes = encode(&event);
        bytes.extend([3, 0, 77, 6, 0, 1, b'%', 0, b'x', 5, 0, 1, b'y', 0]);
        let size = bytes.len() as u32;
        bytes[4..8].copy_from_slice(&size.to_le_bytes());
        assert_eq!(decode(&bytes), Ok(Event { format: Some("%".into()), ..event }));
    }

    #[test]
    fn excessive_depth_and_size_are_refused() {
        let nested = |depth| {
            let ty = (0..depth).fold(Type::Bool, |ty, _| Type::Struct(vec![Field::new("in", ty)]));
            encode(&Event { fields: vec![Field::new("f", ty)], ..sample() })
        };
        assert!(decode(&nested(MAX_DEPTH)).is_ok());
        assert_eq!(decode(&nested(MAX_DEPTH + 1)), Err(DescriptionError::Depth("in".into())));
        let many = |count: usize| {
            let members = (0..count).map(|number| Field::new(&format!("m{number}"), Type::Bool)).collect();
            encode(&Event { fields: vec![Field::new("f", Type::Struct(members))], ..sample() })
        };
        assert!(decode(&many(MAX_FIELDS - 1)).is_ok());
        assert_eq!(decode(&many(MAX_FIELDS)), Err(DescriptionError::Fields(MAX_FIELDS)));
    }

    #[test]
    fn a_label_without_values_is_refused() {
        let event = |integer, low, high| Event {
            fields: vec![Field::new("e", Type::Enum(integer, enumeration("e", vec![label(low, high, "l")])))],
            ..sample()
        };
        let error = DescriptionError::Label("l".into(), 2, 1);
        assert_eq!(decode(&encode(&event(Integer::signed(64), 2, 1))), Err(error.clone()));
        assert_eq!(decode(&encode(&event(Integer::unsigned(64), 2, 1))), Err(error));
        // A C program may write -1 for all bits, or for everything from -1 on.
        for (low, high) in [(5, u64::MAX.into()), (-1, 5)] {
            let event = event(Integer::unsigned(64), low, high);
            assert_eq!(decode(&encode(&event)), Ok(event));
        }
    }

    #[test]
    fn every_cut_is_refused_and_no_changed_byte_panics() {
        let bytes = encode(&sample());
        for len in 0..bytes.len() {
            assert!(decode(&bytes[..len]).is_err(), "cut at {len}");
        }
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = bytes.clone();
                changed[at] = value;
                let _ = decode(&changed);
            }
        }
    }

    #[test]
    fn a_field_name_that_could_break_metadata_is_refused() {
        let mut event = sample();
        event.fields[0].name = "a;}".into();
        assert!(matches!(decode(&encode(&event)), Err(DescriptionError::Name("field", _))));
    }
}
