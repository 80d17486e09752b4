//! Descriptions as bytes.
//!
//! ```text
//! event:  magic u32 "TEV1" │ size u32 │ version u16 │ kind u8 │ level u8 │ flags u16 │ fields u16 │
//!         provider_size u16 │ name_size u16 │ provider, NUL │ name, NUL │ field, field, …
//! field:  size u16 │ type u8 │ element u8 │ count u32 │ flags u16 │ name_size u16 │ name, NUL
//! enum:   magic u32 "TEN1" │ size u32 │ version u16 │ labels u16 │ name_size u16 │ name, NUL │ label, …
//! label:  low i64 │ high i64 │ name_size u16 │ name, NUL
//! ```
//!
//! Everything is packed, numbers are little-endian, sizes of names include the NUL, and sizes of
//! structures include themselves, so that later versions can append. Behind the event stand the
//! enumerations of its `enum` fields, one for each, in order. `include/tompion/tompion.h` lays the same
//! bytes out with the compiler's help.

use crate::{Enumeration, Event, Field, Integer, Kind, Label, Level, MAX_FIELDS, MAX_NAME, Type};

/// First word of an event's description.
pub const EVENT_MAGIC: u32 = u32::from_le_bytes(*b"TEV1");
const ENUM_MAGIC: u32 = u32::from_le_bytes(*b"TEN1");
const VERSION: u16 = 1;
const FLAG_INIT: u16 = 1;
const EVENT_HEADER: usize = 20;
const ENUM_HEADER: usize = 14;
const FIELD_HEADER: usize = 12;

/// Type codes, shared with the header.
mod code {
    pub const I8: u8 = 1;
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
}

/// What is wrong with a description.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DescriptionError {
    /// The bytes end too early, or a size inside them points beyond their end.
    #[error("a description is cut off in its {0}")]
    Cut(&'static str),
    /// The first word is not the expected one.
    #[error("expected a description, found the word {0:#010x}")]
    Magic(u32),
    /// Written by a newer program than this reader knows.
    #[error("description version {0}, this reader knows {VERSION}")]
    Version(u16),
    /// A name is empty, too long, not UTF-8, or has characters that no name has.
    #[error("a {0} name that is no name: {1:?}")]
    Name(&'static str, String),
    /// A type code that is not known.
    #[error("unknown type code {0} of field {1}")]
    Type(u8, String),
    /// More fields than [`MAX_FIELDS`].
    #[error("{0} fields, more than {MAX_FIELDS}")]
    Fields(usize),
}

type Result<T> = std::result::Result<T, DescriptionError>;

/// Reads numbers and names from bytes, never beyond their end.
struct Cursor<'a> {
    rest: &'a [u8],
    what: &'static str,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, size: usize) -> Result<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(size).ok_or(DescriptionError::Cut(self.what))?;
        self.rest = rest;
        Ok(head)
    }

    fn number<const N: usize>(&mut self) -> Result<[u8; N]> {
        let bytes = self.take(N)?;
        bytes.try_into().map_err(|_| DescriptionError::Cut(self.what))
    }

    fn u8(&mut self) -> Result<u8> {
        self.number::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Result<u16> {
        self.number().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32> {
        self.number().map(u32::from_le_bytes)
    }

    fn i64(&mut self) -> Result<i64> {
        self.number().map(i64::from_le_bytes)
    }

    /// A name of `size` bytes with its NUL.
    fn name(&mut self, size: u16, what: &'static str) -> Result<&'a str> {
        let bytes = self.take(usize::from(size))?;
        let bytes = bytes.strip_suffix(&[0]).unwrap_or(bytes);
        let wrong = || DescriptionError::Name(what, String::from_utf8_lossy(bytes).into_owned());
        let text = std::str::from_utf8(bytes).map_err(|_| wrong())?;
        let sound = !text.is_empty() && text.len() <= MAX_NAME && !text.chars().any(char::is_control);
        if sound { Ok(text) } else { Err(wrong()) }
    }

    /// The structure that begins here and whose u32 size stands at byte 4.
    fn structure(&mut self, magic: u32, what: &'static str) -> Result<Cursor<'a>> {
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

/// Header of an event's description, with its names.
struct EventHead<'a> {
    provider: &'a str,
    name: &'a str,
    level: Level,
    kind: Kind,
    flags: u16,
    fields: usize,
}

fn event_head<'a>(cursor: &mut Cursor<'a>) -> Result<EventHead<'a>> {
    let version = cursor.u16()?;
    if version != VERSION {
        return Err(DescriptionError::Version(version));
    }
    let kind = Kind::from_number(cursor.u8()?);
    let level = Level::from_number(cursor.u8()?);
    let flags = cursor.u16()?;
    let fields = usize::from(cursor.u16()?);
    if fields > MAX_FIELDS {
        return Err(DescriptionError::Fields(fields));
    }
    let (provider_size, name_size) = (cursor.u16()?, cursor.u16()?);
    let provider = cursor.name(provider_size, "provider")?;
    let name = cursor.name(name_size, "event")?;
    Ok(EventHead { provider, name, level, kind, flags, fields })
}

/// Length in bytes of the description that begins here, without its enumerations.
pub fn description_size(bytes: &[u8]) -> Result<usize> {
    let mut cursor = Cursor { rest: bytes, what: "event" };
    cursor.structure(EVENT_MAGIC, "event")?;
    Ok(bytes.len() - cursor.rest.len())
}

/// Provider, name and level alone, without allocating: what an agent needs to match rules.
pub fn decode_names(bytes: &[u8]) -> Result<(&str, &str, Level)> {
    let mut cursor = Cursor { rest: bytes, what: "event" }.structure(EVENT_MAGIC, "event")?;
    let head = event_head(&mut cursor)?;
    Ok((head.provider, head.name, head.level))
}

/// How many fields are enumerations, whose descriptions follow the event's.
pub fn enum_field_count(bytes: &[u8]) -> Result<usize> {
    let mut cursor = Cursor { rest: bytes, what: "event" }.structure(EVENT_MAGIC, "event")?;
    let head = event_head(&mut cursor)?;
    let mut count = 0;
    for _ in 0..head.fields {
        let size = usize::from(cursor.u16()?);
        let field = cursor.take(size.checked_sub(2).ok_or(DescriptionError::Cut("field"))?)?;
        count += usize::from(field.first() == Some(&code::ENUM));
    }
    Ok(count)
}

/// Reads a description with the enumerations behind it. Never panics, whatever the bytes are.
pub fn decode(bytes: &[u8]) -> Result<Event> {
    decode_with(bytes, decode_enum)
}

/// Reads a description that stands alone, as in a program's file: its enumerations have no labels.
pub fn decode_outline(bytes: &[u8]) -> Result<Event> {
    decode_with(bytes, |_| Ok(Enumeration { name: String::new(), labels: Vec::new() }))
}

type ReadEnum = fn(&mut Cursor<'_>) -> Result<Enumeration>;

fn decode_with(bytes: &[u8], read_enum: ReadEnum) -> Result<Event> {
    let mut rest = Cursor { rest: bytes, what: "event" };
    let mut cursor = rest.structure(EVENT_MAGIC, "event")?;
    let head = event_head(&mut cursor)?;
    let mut fields = Vec::with_capacity(head.fields.min(64));
    for _ in 0..head.fields {
        let field = decode_field(&mut cursor, &mut rest, read_enum)?;
        if fields.iter().any(|other: &Field| other.name == field.name) {
            return Err(DescriptionError::Name("second field of one", field.name));
        }
        fields.push(field);
    }
    Ok(Event {
        provider: head.provider.to_owned(),
        name: head.name.to_owned(),
        level: head.level,
        kind: head.kind,
        init: head.flags & FLAG_INIT != 0,
        fields,
    })
}

fn decode_field(cursor: &mut Cursor<'_>, enums: &mut Cursor<'_>, read_enum: ReadEnum) -> Result<Field> {
    cursor.what = "field";
    let size = usize::from(cursor.u16()?);
    let body = cursor.take(size.checked_sub(2).ok_or(DescriptionError::Cut("field"))?)?;
    let mut body = Cursor { rest: body, what: "field" };
    let (code, element) = (body.u8()?, body.u8()?);
    let count = body.u32()?;
    let _flags = body.u16()?;
    let name_size = body.u16()?;
    let name = body.name(name_size, "field")?;
    if !is_identifier(name) {
        return Err(DescriptionError::Name("field", name.to_owned()));
    }
    let unknown = |code| DescriptionError::Type(code, name.to_owned());
    let element = || integer(element).ok_or_else(|| unknown(element));
    let ty = match code {
        code::F32 => Type::Float(32),
        code::F64 => Type::Float(64),
        code::BOOL => Type::Bool,
        code::STR | code::STRN => Type::String,
        code::BYTES => Type::Bytes,
        code::ARRAY => Type::Array(element()?, count),
        code::SEQUENCE => Type::Sequence(element()?),
        code::ENUM => Type::Enum(read_enum(enums)?),
        code => Type::Integer(integer(code).ok_or_else(|| unknown(code))?),
    };
    Ok(Field { name: name.to_owned(), ty })
}

fn is_identifier(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// The integer type with this code: i8…i64 are 1…4, u8…u64 5…8, x8…x64 9…12.
fn integer(number: u8) -> Option<Integer> {
    if !(code::I8..=code::X64).contains(&number) {
        return None;
    }
    let index = number - code::I8;
    Some(Integer { bits: 8 << (index % 4), signed: index < 4, hex: index >= 8 })
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

fn decode_enum(cursor: &mut Cursor<'_>) -> Result<Enumeration> {
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
        labels.push(Label { low, high, name: cursor.name(name_size, "label")?.to_owned() });
    }
    Ok(Enumeration { name, labels })
}

fn push_name(bytes: &mut Vec<u8>, name: &str) {
    bytes.extend(name.as_bytes());
    bytes.push(0);
}

/// Writes the description, and behind it the enumerations of its fields.
pub fn encode(event: &Event) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(EVENT_MAGIC.to_le_bytes());
    bytes.extend(0u32.to_le_bytes());
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend([event.kind as u8, event.level.number()]);
    bytes.extend((if event.init { FLAG_INIT } else { 0 }).to_le_bytes());
    bytes.extend((event.fields.len() as u16).to_le_bytes());
    bytes.extend((event.provider.len() as u16 + 1).to_le_bytes());
    bytes.extend((event.name.len() as u16 + 1).to_le_bytes());
    debug_assert_eq!(bytes.len(), EVENT_HEADER);
    push_name(&mut bytes, &event.provider);
    push_name(&mut bytes, &event.name);
    for field in &event.fields {
        encode_field(&mut bytes, field);
    }
    let size = bytes.len() as u32;
    bytes[4..8].copy_from_slice(&size.to_le_bytes());
    for field in &event.fields {
        if let Type::Enum(enumeration) = &field.ty {
            encode_enum(&mut bytes, enumeration);
        }
    }
    bytes
}

fn encode_field(bytes: &mut Vec<u8>, field: &Field) {
    let (code, element, count) = match &field.ty {
        Type::Integer(integer) => (integer_code(*integer), 0, 0),
        Type::Float(32) => (code::F32, 0, 0),
        Type::Float(_) => (code::F64, 0, 0),
        Type::Bool => (code::BOOL, 0, 0),
        Type::String => (code::STR, 0, 0),
        Type::Bytes => (code::BYTES, 0, 0),
        Type::Array(element, count) => (code::ARRAY, integer_code(*element), *count),
        Type::Sequence(element) => (code::SEQUENCE, integer_code(*element), 0),
        Type::Enum(_) => (code::ENUM, 0, 0),
    };
    let name_size = field.name.len() as u16 + 1;
    bytes.extend((FIELD_HEADER as u16 + name_size).to_le_bytes());
    bytes.extend([code, element]);
    bytes.extend(count.to_le_bytes());
    bytes.extend(0u16.to_le_bytes());
    bytes.extend(name_size.to_le_bytes());
    push_name(bytes, &field.name);
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
        bytes.extend(label.low.to_le_bytes());
        bytes.extend(label.high.to_le_bytes());
        bytes.extend((label.name.len() as u16 + 1).to_le_bytes());
        push_name(bytes, &label.name);
    }
    let size = (bytes.len() - start) as u32;
    bytes[start + 4..start + 8].copy_from_slice(&size.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Event {
        let u16_hex = Integer { bits: 16, signed: false, hex: true };
        let label = |low, high, name: &str| Label { low, high, name: name.into() };
        let color = Enumeration {
            name: "color".into(),
            labels: vec![label(0, 0, "red"), label(-5, i64::MAX, "the others")],
        };
        let types = [
            Type::Integer(Integer { bits: 64, signed: true, hex: false }),
            Type::Integer(u16_hex),
            Type::Float(32),
            Type::Float(64),
            Type::Bool,
            Type::String,
            Type::Bytes,
            Type::Array(u16_hex, 9),
            Type::Sequence(Integer { bits: 8, signed: false, hex: false }),
            Type::Enum(color),
        ];
        let fields =
            types.into_iter().enumerate().map(|(i, ty)| Field { name: format!("f{i}"), ty }).collect();
        Event {
            provider: "db".into(),
            name: "query_done".into(),
            level: Level::DEFAULT,
            kind: Kind::Counter,
            init: true,
            fields,
        }
    }

    #[test]
    fn a_description_survives_the_round_trip() {
        let event = sample();
        let bytes = encode(&event);
        assert_eq!(decode(&bytes), Ok(event));
        assert_eq!(decode_names(&bytes), Ok(("db", "query_done", Level::DEFAULT)));
        assert_eq!(enum_field_count(&bytes), Ok(1));
    }

    #[test]
    fn every_cut_is_refused_and_every_changed_byte_is_survived() {
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
