//! Descriptions of events as bytes, built while the program is compiled.
//!
//! The bytes are those of `tompion-schema` (`crates/schema/src/description.rs`), which the tests
//! hold against these. An event's names come from the macro ([`Outline`]), its types from the
//! values' types ([`Shapes`]); here the two are joined by const functions. What is wrong with an
//! event stops the compiler.
//!
//! ```text
//! unit 0           event description │ 0… │ first enumeration │ 0… │ second enumeration │ 0…
//!                                         └ offsets[0]              └ offsets[1]
//! ```
//!
//! A unit is 16 bytes, and each part begins at one.

use crate::{Level, mark};

/// Kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Something happened at one moment.
    Instant = 0,
    /// A span begins.
    Begin = 1,
    /// A span ends.
    End = 2,
    /// A quantity has a new value.
    Counter = 3,
    /// One step of a flow.
    Flow = 4,
    /// A span begins that is one activation of a periodic job.
    Job = 5,
    /// A format with its arguments.
    Mark = 6,
}

/// Event as a use of a macro declares it.
#[derive(Clone, Copy, Debug)]
pub struct Outline {
    /// Provider that defines the event.
    pub provider: &'static str,
    /// The event's own name, as the macro was given it.
    pub name: &'static str,
    /// Suffix of the event's full name.
    pub suffix: &'static str,
    /// Kind of the event.
    pub kind: Kind,
    /// Level of the event.
    pub level: Level,
    /// Whether it belongs to the initial state.
    pub init: bool,
    /// Whether the use only asks if the event is recorded.
    pub asks: bool,
    /// The names of its fields.
    pub names: Names,
    /// A mark's format, as Rust writes it.
    pub format: Option<&'static str>,
}

impl Kind {
    /// Suffix of the names of such events.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Begin | Self::Job => "_begin",
            Self::End => "_end",
            _ => "",
        }
    }
}

impl Outline {
    /// An event of the usual level.
    pub const fn new(kind: Kind, provider: &'static str, name: &'static str) -> Self {
        Self {
            provider,
            name,
            suffix: kind.suffix(),
            kind,
            level: Level::DebugLine,
            init: false,
            asks: false,
            names: Names::Given(None),
            format: None,
        }
    }
}

/// An event that a macro describes.
pub trait Described {
    /// Names and kind of the event.
    const OUTLINE: Outline;
}

/// The names of an event's fields.
#[derive(Clone, Copy, Debug)]
pub enum Names {
    /// These names, in order.
    Given(Option<&'static Name>),
    /// `arg1`, `arg2`, …
    Numbered,
}

/// The name of a field, and of those behind it.
#[derive(Debug)]
pub struct Name {
    /// An identifier of Rust.
    pub name: &'static str,
    /// Names of the members of a structure.
    pub members: Option<&'static Name>,
    /// The next field.
    pub next: Option<&'static Name>,
}

/// Shape of a type in a description.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    code: u8,
    element: u8,
    count: u32,
    flags: u16,
    members: Option<&'static Shapes>,
    enumeration: Option<&'static Enumeration>,
}

/// The type of a field, and of those behind it.
#[derive(Debug)]
pub struct Shapes {
    /// Type of this field.
    pub head: Shape,
    /// Types of the following fields.
    pub next: Option<&'static Shapes>,
}

impl Shapes {
    /// Number of fields.
    pub const fn count(mut shapes: Option<&Self>) -> usize {
        let mut count = 0;
        while let Some(shape) = shapes {
            count += 1;
            shapes = shape.next;
        }
        count
    }
}

/// Names for an integer's values.
#[derive(Clone, Copy, Debug)]
pub struct Enumeration {
    /// Its own name.
    pub name: &'static str,
    /// Its labels; a value that none covers is shown as a number.
    pub labels: &'static [Label],
}

/// A name for the values from `low` to `high`.
#[derive(Clone, Copy, Debug)]
pub struct Label {
    /// First value, for unsigned integers of 64 bits by its bits.
    pub low: i64,
    /// Last value.
    pub high: i64,
    /// The name.
    pub name: &'static str,
}

/// Type codes of `tompion-schema`.
pub mod code {
    pub const I8: u8 = 1;
    pub const I16: u8 = 2;
    pub const I32: u8 = 3;
    pub const I64: u8 = 4;
    pub const U8: u8 = 5;
    pub const U16: u8 = 6;
    pub const U32: u8 = 7;
    pub const U64: u8 = 8;
    pub const X64: u8 = 12;
    pub const F32: u8 = 13;
    pub const F64: u8 = 14;
    pub const BOOL: u8 = 15;
    pub const STR: u8 = 16;
    pub const BYTES: u8 = 18;
    pub const ARRAY: u8 = 19;
    pub const SEQUENCE: u8 = 20;
    pub const ENUM: u8 = 21;
    pub const STRUCT: u8 = 22;
    /// Distance from an unsigned integer's code to the code of the same in hexadecimal.
    pub const TO_HEX: u8 = X64 - U64;
}

const FLAG_NETWORK: u16 = 1;
const FLAG_TEXT: u16 = 2;
const EVENT_INIT: u16 = 1;
const ATTRIBUTE_FORMAT: u8 = 1;
const EVENT_MAGIC: u32 = u32::from_le_bytes(*b"TEV1");
const ENUM_MAGIC: u32 = u32::from_le_bytes(*b"TEN1");
const VERSION: u16 = 1;
const FIELD_HEADER: usize = 12;
const MAX_NAME: usize = 255;
const MAX_DEPTH: usize = 8;

impl Shape {
    const fn new(code: u8, element: u8, count: u32) -> Self {
        Self { code, element, count, flags: 0, members: None, enumeration: None }
    }

    /// A type that its code says all about.
    pub const fn plain(code: u8) -> Self {
        Self::new(code, 0, 0)
    }

    /// Always this many integers.
    pub const fn array(element: u8, count: usize) -> Self {
        assert!(count <= u32::MAX as usize, "tompion: an array of more than 4,294,967,295 elements");
        Self::new(code::ARRAY, element, count as u32)
    }

    /// Sequence of any number of these integers.
    pub const fn sequence(element: u8) -> Self {
        Self::new(code::SEQUENCE, element, 0)
    }

    /// An integer with names for its values.
    pub const fn enumeration(container: u8, enumeration: &'static Enumeration) -> Self {
        Self { enumeration: Some(enumeration), ..Self::new(code::ENUM, container, 0) }
    }

    /// Fields of their own.
    pub const fn structure(members: Option<&'static Shapes>) -> Self {
        Self { members, ..Self::new(code::STRUCT, 0, Shapes::count(members) as u32) }
    }

    /// Returns the type shown in hexadecimal. Takes integers and their arrays and sequences.
    pub const fn hexadecimal(mut self) -> Self {
        if self.code == code::BYTES {
            self = Self { flags: self.flags, ..Self::sequence(code::U8) };
        }
        if self.element == 0 {
            self.code = hexadecimal(self.code);
        } else {
            self.element = hexadecimal(self.element);
        }
        self
    }

    /// Returns the type with the most significant byte first.
    pub const fn network(mut self) -> Self {
        self.flags |= FLAG_NETWORK;
        self
    }

    /// Returns the type shown as text. Takes arrays and sequences of bytes.
    pub const fn text(mut self) -> Self {
        if self.code == code::BYTES {
            self = Self::sequence(code::U8);
        }
        self.flags |= FLAG_TEXT;
        self
    }

    /// The code of the type, or of a mark's argument.
    pub const fn code(&self) -> u8 {
        self.code
    }
}

/// The code of the same size that is shown in hexadecimal.
const fn hexadecimal(code: u8) -> u8 {
    match code {
        code::I8..=code::I64 => code + 2 * code::TO_HEX,
        code::U8..=code::U64 => code + code::TO_HEX,
        _ => code,
    }
}

/// Bytes of the unit in which descriptions are counted.
pub const UNIT: usize = 16;
/// Most enum fields that an event has.
pub const MAX_ENUMS: usize = 64;

/// Sizes of a description's parts.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Units of all parts.
    pub units: usize,
    /// Bytes of the event's part.
    event: usize,
    /// The number of enumerations.
    pub enums: usize,
    /// Offset of each part, in bytes.
    pub offsets: [usize; MAX_ENUMS],
}

/// Measures a description.
pub const fn measure(outline: &Outline, shapes: Option<&'static Shapes>) -> Sizes {
    check(outline);
    let mut writer = Writer::<0> {
        units: [],
        at: 0,
        sizes: Sizes { units: 0, event: 0, enums: 0, offsets: [0; MAX_ENUMS] },
    };
    writer.event(outline, shapes);
    writer.sizes
}

/// Writes a description whose sizes were measured.
pub const fn write<const UNITS: usize>(
    outline: &Outline,
    shapes: Option<&'static Shapes>,
    sizes: Sizes,
) -> [u128; UNITS] {
    let mut writer = Writer { units: [0; UNITS], at: 0, sizes: Sizes { units: 0, enums: 0, ..sizes } };
    writer.event(outline, shapes);
    writer.units
}

/// Stops the compiler if the event could not be described. In the macros' own place, so that the
/// error points there.
pub const fn check(outline: &Outline) {
    check_name(outline.provider.as_bytes(), 0);
    check_has_no_colon(outline.provider.as_bytes());
    check_name(outline.name.as_bytes(), outline.suffix.len());
    if let Names::Given(names) = outline.names {
        check_fields(names, 0);
    }
}

const fn check_name(name: &[u8], suffix: usize) {
    assert!(!name.is_empty(), "tompion: a name is empty");
    assert!(name.len() + suffix <= MAX_NAME, "tompion: a name is longer than 255 bytes");
    let mut at = 0;
    while at < name.len() {
        let is_control = name[at] < b' ' || name[at] == 0x7f || is_c1(name, at);
        assert!(!is_control, "tompion: a name contains a control character");
        at += 1;
    }
}

/// Elsewhere an event is `provider:name`, and the first colon separates the two.
const fn check_has_no_colon(provider: &[u8]) {
    let mut at = 0;
    while at < provider.len() {
        assert!(provider[at] != b':', "tompion: a provider contains a colon; a module's path does, too");
        at += 1;
    }
}

/// Returns whether U+0080 to U+009F begins here.
const fn is_c1(name: &[u8], at: usize) -> bool {
    name[at] == 0xc2 && at + 1 < name.len() && name[at + 1] < 0xa0
}

const fn check_fields(mut names: Option<&Name>, depth: usize) {
    assert!(depth <= MAX_DEPTH, "tompion: structures stand more than 8 deep in each other");
    while let Some(name) = names {
        let bytes = identifier(name.name);
        check_name(bytes, 0);
        let mut at = 0;
        while at < bytes.len() {
            assert!(
                bytes[at].is_ascii_alphanumeric() || bytes[at] == b'_',
                "tompion: fields have ASCII names"
            );
            at += 1;
        }
        let mut others = name.next;
        while let Some(other) = others {
            let same = equal(bytes, identifier(other.name));
            assert!(!same, "tompion: two fields of one name");
            others = other.next;
        }
        check_fields(name.members, depth + 1);
        names = name.next;
    }
}

const fn equal(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// An identifier without the `r#` of a raw one.
const fn identifier(name: &str) -> &[u8] {
    match name.as_bytes() {
        [b'r', b'#', rest @ ..] => rest,
        name => name,
    }
}

/// Begin of a description: the event before its fields.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// Kind of the event.
    pub kind: Kind,
    /// Level of the event.
    pub level: Level,
    /// Whether it belongs to the initial state.
    pub init: bool,
    /// The number of its fields.
    pub fields: usize,
    /// Provider that defines it.
    pub provider: &'a str,
    /// Its own name.
    pub name: &'a str,
    /// Suffix of its name.
    pub suffix: &'a str,
}

/// The description of an event with fields of plain types; none if it takes more units. Names have
/// been checked.
pub fn describe<const UNITS: usize>(head: &Head<'_>, fields: &[(u8, String)]) -> Option<Box<[u128]>> {
    let mut sizes = Sizes { units: 0, event: 0, enums: 0, offsets: [0; MAX_ENUMS] };
    // First to measure.
    for _ in 0..2 {
        let mut writer = Writer { units: [0; UNITS], at: 0, sizes };
        writer.head(head);
        for (code, name) in fields {
            writer.field_head(&Shape::plain(*code), name.len());
            writer.bytes(name.as_bytes());
            writer.byte(0);
        }
        sizes.event = writer.at;
        writer.fill_unit();
        if sizes.units != 0 {
            return writer.units.get(..sizes.units).map(Box::from);
        }
        sizes.units = writer.sizes.units;
    }
    None
}

/// Writes bytes into units. One without units only counts.
struct Writer<const UNITS: usize> {
    units: [u128; UNITS],
    at: usize,
    sizes: Sizes,
}

impl<const UNITS: usize> Writer<UNITS> {
    const fn byte(&mut self, byte: u8) {
        if self.at / UNIT < UNITS {
            self.units[self.at / UNIT] |= (byte as u128) << (self.at % UNIT * 8);
        }
        self.at += 1;
    }

    const fn bytes(&mut self, bytes: &[u8]) {
        let mut at = 0;
        while at < bytes.len() {
            self.byte(bytes[at]);
            at += 1;
        }
    }

    const fn u16(&mut self, number: u16) {
        self.bytes(&number.to_le_bytes());
    }

    const fn u32(&mut self, number: u32) {
        self.bytes(&number.to_le_bytes());
    }

    const fn fill_unit(&mut self) {
        self.at = self.at.next_multiple_of(UNIT);
        self.sizes.units = self.at / UNIT;
    }

    /// The event with its enumerations.
    const fn event(&mut self, outline: &Outline, shapes: Option<&'static Shapes>) {
        self.head(&Head {
            kind: outline.kind,
            level: outline.level,
            init: outline.init,
            fields: Shapes::count(shapes),
            provider: outline.provider,
            name: outline.name,
            suffix: outline.suffix,
        });
        match outline.names {
            Names::Given(names) => self.fields(names, shapes),
            Names::Numbered => self.arguments(shapes),
        }
        if let Some(format) = outline.format {
            self.format(format, shapes);
        }
        self.sizes.event = self.at;
        self.fill_unit();
        self.enumerations(shapes);
    }

    /// Description before the fields.
    const fn head(&mut self, head: &Head<'_>) {
        self.u32(EVENT_MAGIC);
        self.u32(self.sizes.event as u32);
        self.u16(VERSION);
        self.byte(head.kind as u8);
        self.byte(head.level as u8);
        self.u16(if head.init { EVENT_INIT } else { 0 });
        self.u16(head.fields as u16);
        self.u16(head.provider.len() as u16 + 1);
        self.u16((head.name.len() + head.suffix.len()) as u16 + 1);
        self.bytes(head.provider.as_bytes());
        self.byte(0);
        self.bytes(head.name.as_bytes());
        self.bytes(head.suffix.as_bytes());
        self.byte(0);
    }

    const fn fields(&mut self, mut names: Option<&'static Name>, mut shapes: Option<&'static Shapes>) {
        while let (Some(name), Some(shape)) = (names, shapes) {
            let text = identifier(name.name);
            self.field_head(&shape.head, text.len());
            self.bytes(text);
            self.byte(0);
            self.fields(name.members, shape.head.members);
            (names, shapes) = (name.next, shape.next);
        }
    }

    /// The fields of a mark.
    const fn arguments(&mut self, mut shapes: Option<&'static Shapes>) {
        let mut number = 1;
        while let Some(shape) = shapes {
            let digits = if number < 10 { 1 } else { 2 };
            self.field_head(&shape.head, "arg".len() + digits);
            self.bytes(b"arg");
            if digits == 2 {
                self.byte(b'0' + number / 10);
            }
            self.byte(b'0' + number % 10);
            self.byte(0);
            number += 1;
            assert!(number <= 100, "tompion: a mark has at most 99 arguments");
            shapes = shape.next;
        }
    }

    const fn field_head(&mut self, shape: &Shape, name: usize) {
        self.u16((FIELD_HEADER + name + 1) as u16);
        self.byte(shape.code);
        self.byte(shape.element);
        self.u32(shape.count);
        self.u16(shape.flags);
        self.u16(name as u16 + 1);
    }

    /// The attribute with a mark's format, as printf writes it.
    const fn format(&mut self, format: &str, shapes: Option<&'static Shapes>) {
        let text = mark::to_printf(format, shapes);
        self.u16(text.len() as u16 + 4);
        self.byte(ATTRIBUTE_FORMAT);
        let mut at = 0;
        while at < text.len() {
            self.byte(text.at(at));
            at += 1;
        }
        self.byte(0);
    }

    /// The enumerations of all fields, in order.
    const fn enumerations(&mut self, mut shapes: Option<&'static Shapes>) {
        while let Some(shape) = shapes {
            if let Some(enumeration) = shape.head.enumeration {
                let number = self.sizes.enums;
                assert!(number < MAX_ENUMS, "tompion: an event with more than 64 enumerations");
                self.sizes.offsets[number] = self.at;
                self.sizes.enums += 1;
                self.enumeration(enumeration);
                self.fill_unit();
            }
            self.enumerations(shape.head.members);
            shapes = shape.next;
        }
    }

    const fn enumeration(&mut self, enumeration: &Enumeration) {
        let name = identifier(enumeration.name);
        check_name(name, 0);
        let mut size = 4 + 4 + 2 + 2 + 2 + name.len() + 1;
        let mut at = 0;
        while at < enumeration.labels.len() {
            let label = &enumeration.labels[at];
            check_name(identifier(label.name), 0);
            size += 8 + 8 + 2 + identifier(label.name).len() + 1;
            at += 1;
        }
        self.u32(ENUM_MAGIC);
        self.u32(size as u32);
        self.u16(VERSION);
        self.u16(enumeration.labels.len() as u16);
        self.u16(name.len() as u16 + 1);
        self.bytes(name);
        self.byte(0);
        let mut at = 0;
        while at < enumeration.labels.len() {
            let label = &enumeration.labels[at];
            self.bytes(&label.low.to_le_bytes());
            self.bytes(&label.high.to_le_bytes());
            self.u16(identifier(label.name).len() as u16 + 1);
            self.bytes(identifier(label.name));
            self.byte(0);
            at += 1;
        }
    }
}
