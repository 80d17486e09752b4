//! Parser of a tracepoint's `format` in tracefs: where the fields of its records stand, and what
//! they are.
//!
//! ```text
//! record   8 bytes that every record has │ fixed part: numbers, arrays, words of variable fields
//!          │ variable fields, in the order of their words
//! word     __data_loc: offset from the record's beginning (16 bits) │ length in bytes (16 bits)
//!          __rel_loc: the same, the offset from behind the word
//! ```

use tompion_schema::{Enumeration, Event, Field, Integer, Label, Type};

use super::print::{self, Look};
use crate::events::description;

/// Bytes at a record's beginning that programs get something else in the place of, and that are not
/// recorded.
pub const COMMON: usize = 8;
/// Size of a word that tells of a variable field.
pub const WORD: usize = 4;

/// Reason why a format can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// No line begins so.
    #[error("expected a line `{0}`, found none")]
    Missing(&'static str),
    /// A line of a field that isn't one.
    #[error("expected `field:TYPE NAME; offset:N; size:N; signed:N;`, found `{0}`")]
    Field(String),
    /// A field where none can be.
    #[error("the field {0} can't stand at byte {1} with {2} bytes")]
    Place(String, usize, usize),
}

/// Place of a field in records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Value in these bytes.
    Fixed {
        /// Offset of the first.
        offset: usize,
        /// Number of bytes.
        size: usize,
    },
    /// Value at the place that a word of the record gives.
    Variable {
        /// Offset of the word.
        word: usize,
        /// Whether the word counts from its own end.
        relative: bool,
    },
}

/// A tracepoint's records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// Number by which the kernel knows the tracepoint.
    pub id: u32,
    /// The event's description; its fields are those of `places`, in the same order.
    pub event: Event,
    /// Places of the fields.
    pub places: Vec<Place>,
}

impl Format {
    /// Reads a `format` file. `name` is the event's in traces; `rename` gives fields their names
    /// there.
    pub fn parse(text: &str, name: &str, rename: impl Fn(&str) -> String) -> Result<Self, FormatError> {
        let after = |key: &'static str| {
            text.lines().find_map(|line| line.strip_prefix(key)).ok_or(FormatError::Missing(key))
        };
        let id = after("ID:")?.trim().parse().map_err(|_| FormatError::Missing("ID: NUMBER"))?;
        let at = text.find("\nprint fmt:").ok_or(FormatError::Missing("print fmt:"))?;
        let looks = print::looks(text[at..].trim_start().trim_start_matches("print fmt:"));
        let (mut fields, mut places) = (Vec::new(), Vec::new());
        for line in text[..at].lines().filter_map(|line| line.trim().strip_prefix("field:")) {
            let declared = Declared::parse(line).ok_or_else(|| FormatError::Field(line.into()))?;
            if declared.name.starts_with("common_") || declared.size == 0 {
                continue;
            }
            let look = looks.get(declared.name).cloned().unwrap_or_default();
            places.push(declared.place()?);
            fields.push(Field::new(&rename(declared.name), declared.ty(look)));
        }
        Ok(Self { id, event: description(name, fields), places })
    }

    /// Returns what a program must know to copy a record: the end of the fixed part, and the last
    /// word, whose field ends the record.
    pub fn extent(&self) -> (usize, Option<(usize, bool)>) {
        let end = |place: &Place| match *place {
            Place::Fixed { offset, size } => offset + size,
            Place::Variable { word, .. } => word + WORD,
        };
        let word = |place: &Place| match *place {
            Place::Fixed { .. } => None,
            Place::Variable { word, relative } => Some((word, relative)),
        };
        let last = self.places.iter().filter_map(word).max();
        (self.places.iter().map(end).max().unwrap_or(COMMON), last)
    }
}

/// A field as the format declares it.
struct Declared<'a> {
    /// Words of the type, without `[]` and what says that it is variable.
    ty: &'a str,
    name: &'a str,
    /// The variable kind.
    variable: Option<bool>,
    /// Text in brackets behind the name.
    count: Option<&'a str>,
    offset: usize,
    size: usize,
    signed: bool,
}

impl<'a> Declared<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut parts = line.split(';').map(str::trim);
        let declaration = parts.next()?;
        let mut number = |key: &str| parts.next()?.strip_prefix(key)?.parse::<usize>().ok();
        let (offset, size, signed) = (number("offset:")?, number("size:")?, number("signed:")? == 1);
        let (declaration, count) = match declaration.strip_suffix(']').and_then(|text| text.rsplit_once('['))
        {
            Some((declaration, count)) => (declaration, Some(count)),
            None => (declaration, None),
        };
        let (ty, name) = declaration.trim_end().rsplit_once(|it: char| it.is_whitespace() || it == '*')?;
        let ty = &declaration
            [..declaration.len().min(ty.len() + usize::from(declaration[ty.len()..].starts_with('*')))];
        let variable = [("__data_loc ", false), ("__rel_loc ", true)];
        let (ty, variable) = variable
            .into_iter()
            .find_map(|(word, relative)| Some((ty.strip_prefix(word)?, Some(relative))))
            .unwrap_or((ty, None));
        let is_name = |it: char| it.is_ascii_alphanumeric() || it == '_';
        let sound = !name.is_empty() && name.chars().all(is_name);
        let ty = if variable.is_some() { ty.trim().trim_end_matches("[]").trim() } else { ty.trim() };
        sound.then_some(Self { ty, name, variable, count, offset, size, signed })
    }

    fn place(&self) -> Result<Place, FormatError> {
        let wrong = || FormatError::Place(self.name.into(), self.offset, self.size);
        let end = self.offset.checked_add(self.size).ok_or_else(wrong)?;
        // The kernel's offsets have 16 bits.
        let sound = self.offset >= COMMON && end <= usize::from(u16::MAX);
        match self.variable {
            _ if !sound => Err(wrong()),
            Some(relative) if self.size == WORD => Ok(Place::Variable { word: self.offset, relative }),
            Some(_) => Err(wrong()),
            None => Ok(Place::Fixed { offset: self.offset, size: self.size }),
        }
    }

    fn ty(&self, look: Look) -> Type {
        let element = Element::of(self.ty);
        match (self.variable.is_some(), self.count) {
            (true, _) => match element.map(|element| element.integer(self.signed, look.hex)) {
                _ if is_text(self.ty) => Type::String,
                Some(integer) => Type::Sequence(integer),
                None => Type::Bytes,
            },
            (false, Some(_)) if is_text(self.ty) => Type::TextArray(self.size as u32),
            (false, Some(count)) => {
                let counted =
                    count.trim().parse::<usize>().ok().filter(|count| *count > 0 && self.size % count == 0);
                let known =
                    element.map(|element| element.size).or_else(|| counted.map(|count| self.size / count));
                array(known.unwrap_or(1), self.size, element, self.signed && !look.hex)
            }
            (false, None) => self.scalar(element, look),
        }
    }

    fn scalar(&self, element: Option<Element>, look: Look) -> Type {
        let bits = match self.size {
            size @ (1 | 2 | 4 | 8) => size as u8 * 8,
            // A structure: its bytes.
            size => return array(1, size, None, false),
        };
        if self.ty == "bool" && bits == 8 {
            return Type::Bool;
        }
        let hex = look.hex || self.ty.ends_with('*');
        let network = element.is_some_and(|element| element.network);
        let integer = Integer { bits, signed: self.signed && !hex, hex, network };
        if look.labels.is_empty() {
            return Type::Integer(integer);
        }
        let labels = look.labels.into_iter().map(|(value, name)| {
            let value = wrapped(value, integer);
            Label { low: value, high: value, name }
        });
        Type::Enum(integer, Enumeration { name: String::new(), labels: labels.collect() })
    }
}

/// The value that an integer of this type has for a constant.
fn wrapped(value: i128, integer: Integer) -> i128 {
    let bits = u32::from(integer.bits);
    let low = value & ((1 << bits) - 1);
    if integer.signed && low >> (bits - 1) == 1 { low - (1 << bits) } else { low }
}

fn is_text(ty: &str) -> bool {
    matches!(ty, "char" | "const char")
}

/// An array of elements of this size.
fn array(element_size: usize, size: usize, element: Option<Element>, signed: bool) -> Type {
    let known = matches!(element_size, 1 | 2 | 4 | 8) && size % element_size == 0;
    let size_of = if known { element_size } else { 1 };
    let element = element.unwrap_or(Element { size: size_of, network: false, byte: size_of == 1 });
    let element = Element { size: size_of, ..element };
    Type::Array(element.integer(signed, false), (size / size_of) as u32)
}

/// An element of an array whose type is known by name.
#[derive(Clone, Copy)]
struct Element {
    size: usize,
    network: bool,
    /// A byte of anything.
    byte: bool,
}

impl Element {
    fn of(ty: &str) -> Option<Self> {
        let plain = ty.strip_prefix("const ").unwrap_or(ty);
        let (size, network, byte) = match plain {
            "u8" | "__u8" | "unsigned char" | "uint8_t" => (1, false, true),
            "s8" | "__s8" | "signed char" | "int8_t" | "char" | "bool" => (1, false, false),
            "u16" | "__u16" | "unsigned short" | "uint16_t" | "s16" | "__s16" | "short" => (2, false, false),
            "__be16" => (2, true, false),
            "u32" | "__u32" | "unsigned int" | "uint32_t" | "unsigned" | "s32" | "__s32" | "int"
            | "int32_t" | "__le32" | "dma_cookie_t" => (4, false, false),
            "__be32" => (4, true, false),
            "u64" | "__u64" | "unsigned long long" | "uint64_t" | "s64" | "__s64" | "long long"
            | "int64_t" | "unsigned long" | "long" | "size_t" | "dma_addr_t" | "phys_addr_t"
            | "cpumask_t" => (8, false, false),
            "__be64" => (8, true, false),
            pointer if pointer.ends_with('*') => (8, false, false),
            _ => return None,
        };
        Some(Self { size, network, byte })
    }

    fn integer(self, signed: bool, hex: bool) -> Integer {
        let hex = hex || self.byte;
        Integer { bits: self.size as u8 * 8, signed: signed && !hex, hex, network: self.network }
    }
}
