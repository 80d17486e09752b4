//! Formats messages of marks: the output that printf would have produced from a mark's format and
//! its recorded values.
//!
//! ```text
//! "rows %5d of %s"  +  { rows = 17, of = "orders" }   ──►   rows    17 of orders
//! ```
//!
//! Numbers are printed as by glibc in the C locale. If a trace has no value for a conversion, or
//! one of another type, the message shows what is available; corrupt and hostile traces contain
//! such values. `%m` is not replaced: the error number was not recorded.

#[cfg(test)]
mod tests;

use std::io::Write;

use tompion_ctf::decode::{Fields, Value};
use tompion_ctf::metadata::{Event, Field, Type};
use tompion_schema::Kind;
use tompion_schema::format::{Conversion, Piece, Size, pieces};

/// Maximum width and precision: a format from a hostile program could ask for gigabytes.
const MAX_SIZE: usize = 4096;
/// Size in bytes at which a message is cut off, for the same reason.
const MAX_MESSAGE: usize = 256 << 10;

/// Format of a mark, prepared to format messages of events.
#[derive(Clone, Debug)]
pub struct Message {
    format: String,
    /// Index of each argument's field in the payload.
    arguments: Vec<usize>,
}

impl Message {
    /// Creates the formatter of an event class; `None` if it is not a mark.
    pub fn of(class: &Event) -> Option<Self> {
        let info = class.kind_info();
        let format = info.format.filter(|_| info.kind == Kind::Mark)?;
        let fields = class.payload.as_ref().map_or(&[][..], |payload| &payload.fields);
        let arguments = (0..fields.len()).filter(|&index| !is_length(fields, index)).collect();
        Some(Self { format, arguments })
    }

    /// Appends the message of an event with these fields. It is text in the program's encoding.
    pub fn write(&self, payload: Fields<'_>, message: &mut Vec<u8>) {
        let values: Vec<Value<'_>> = payload.map(|(_, value)| value).collect();
        let argument = |number: u32| {
            let index = usize::try_from(number).ok()?.checked_sub(1)?;
            values.get(*self.arguments.get(index)?).map(Argument::of)
        };
        print(&self.format, argument, message);
    }
}

fn print<'a>(format: &str, argument: impl Fn(u32) -> Option<Argument<'a>> + Copy, message: &mut Vec<u8>) {
    let begin = message.len();
    for piece in pieces(format) {
        if message.len() - begin > MAX_MESSAGE {
            message.extend_from_slice("…".as_bytes());
            return;
        }
        match piece {
            Piece::Text(text) => message.extend_from_slice(text.as_bytes()),
            Piece::Conversion(conversion) => {
                let value = conversion.argument.and_then(argument);
                Printed::new(&conversion, argument).value(value, message);
            }
        }
    }
}

/// Whether a field is only the length of the following sequence.
fn is_length(fields: &[Field], index: usize) -> bool {
    let (Some(field), Some(Field { ty: Type::Sequence(sequence), .. })) =
        (fields.get(index), fields.get(index + 1))
    else {
        return false;
    };
    sequence.length.path.last() == Some(&field.name)
}

/// Argument of printf, from a recorded value.
#[derive(Clone, Copy, Debug)]
enum Argument<'a> {
    /// Integer: its value extended to 64 bits, whether it is signed, and its own size in bits.
    Integer(u64, bool, u32),
    Float(f64),
    Text(&'a [u8]),
    Other,
}

impl<'a> Argument<'a> {
    fn of(value: &Value<'a>) -> Self {
        match *value {
            Value::Unsigned(value, ty) => Self::Integer(value, false, ty.bits),
            Value::Signed(value, ty) => Self::Integer(value as u64, true, ty.bits),
            Value::Enum(value, ty) => Self::Integer(value, ty.integer.signed, ty.integer.bits),
            Value::Float(value) => Self::Float(value),
            Value::Text(text) => Self::Text(text),
            Value::Boolean(value) => Self::Integer(value.into(), false, 8),
            Value::Bits(value, ty) => Self::Integer(value, false, ty.integer.bits),
            Value::Optional(Some(inner)) => inner.value().map_or(Self::Other, |value| Self::of(&value)),
            Value::Struct(_)
            | Value::Variant(..)
            | Value::Array(_)
            | Value::Blob(_)
            | Value::Optional(None) => Self::Other,
        }
    }

    /// Returns the value as a width or precision.
    fn as_int(self) -> Option<i64> {
        match self {
            Self::Integer(value, ..) => Some(i64::from(value as i32)),
            _ => None,
        }
    }
}

/// Conversion with resolved width and precision.
#[derive(Clone, Copy, Debug)]
struct Printed<'c> {
    conversion: &'c Conversion,
    width: usize,
    precision: Option<usize>,
    left: bool,
}

impl<'c> Printed<'c> {
    fn new<'a>(conversion: &'c Conversion, argument: impl Fn(u32) -> Option<Argument<'a>>) -> Self {
        let size = |size: Option<Size>| match size? {
            Size::Number(number) => Some(i64::from(number)),
            Size::Argument(number) => argument(number)?.as_int(),
        };
        let bounded = |size: i64| usize::try_from(size.unsigned_abs()).unwrap_or(MAX_SIZE).min(MAX_SIZE);
        let width = size(conversion.width).unwrap_or(0);
        // As in C, a negative width means left-aligned, and a negative precision means none.
        let precision = size(conversion.precision).filter(|&precision| precision >= 0);
        Self {
            conversion,
            width: bounded(width),
            precision: precision.map(bounded),
            left: conversion.left || width < 0,
        }
    }

    fn value(&self, argument: Option<Argument<'_>>, message: &mut Vec<u8>) {
        match (self.conversion.letter, argument) {
            (b'm', _) => message.extend_from_slice(b"%m"),
            (b'n', _) => {}
            (b'c' | b'C', Some(Argument::Integer(value, ..))) => self.character(value, message),
            (b's' | b'S', Some(Argument::Text(text))) => {
                let end = self.precision.map_or(text.len(), |precision| precision.min(text.len()));
                self.padded(b"", text.get(..end).unwrap_or_default(), false, message);
            }
            (b'p', Some(Argument::Integer(0, ..))) => self.padded(b"", b"(nil)", false, message),
            (
                b'd' | b'i' | b'o' | b'u' | b'x' | b'X' | b'b' | b'B' | b'p',
                Some(Argument::Integer(value, _, bits)),
            ) => {
                self.integer(value, bits, message);
            }
            (b'a' | b'A' | b'e' | b'E' | b'f' | b'F' | b'g' | b'G', Some(Argument::Float(value))) => {
                self.float(value, message);
            }
            (_, other) => self.by_value_type(other, message),
        }
    }

    /// Prints a value whose type does not match the conversion.
    fn by_value_type(&self, argument: Option<Argument<'_>>, message: &mut Vec<u8>) {
        let as_letter = |letter| Conversion { letter, ..Conversion::default() };
        let number = |letter, argument| {
            let mut text = Vec::new();
            let conversion = as_letter(letter);
            let plain = Printed { conversion: &conversion, width: 0, precision: None, left: false };
            plain.value(Some(argument), &mut text);
            text
        };
        let text = match argument {
            Some(integer @ Argument::Integer(_, true, _)) => number(b'd', integer),
            Some(integer @ Argument::Integer(..)) => number(b'u', integer),
            Some(float @ Argument::Float(_)) => number(b'g', float),
            Some(Argument::Text(text)) => text.to_vec(),
            Some(Argument::Other) | None => b"?".to_vec(),
        };
        self.padded(b"", &text, false, message);
    }

    fn character(&self, value: u64, message: &mut Vec<u8>) {
        let wide = self.conversion.letter == b'C' || self.conversion.long;
        if wide {
            let character = char::from_u32(value as u32).unwrap_or(char::REPLACEMENT_CHARACTER);
            self.padded(b"", character.encode_utf8(&mut [0; 4]).as_bytes(), false, message);
        } else {
            self.padded(b"", &[value as u8], false, message);
        }
    }

    fn integer(&self, value: u64, bits: u32, message: &mut Vec<u8>) {
        let Conversion { letter, alternate, .. } = *self.conversion;
        // Smaller integers were promoted to int.
        let unused = 64 - self.conversion.bits.map_or(bits.clamp(32, 64), u32::from);
        let (sign, value): (&[u8], u64) = match letter {
            b'd' | b'i' => {
                let value = ((value << unused) as i64) >> unused;
                (self.sign(value < 0), value.unsigned_abs())
            }
            _ => (b"", value << unused >> unused),
        };
        let (digits, prefix): (String, &[u8]) = match letter {
            b'x' => (format!("{value:x}"), b"0x"),
            b'p' => (format!("{value:x}"), b"0x"),
            b'X' => (format!("{value:X}"), b"0X"),
            b'b' => (format!("{value:b}"), b"0b"),
            b'B' => (format!("{value:b}"), b"0B"),
            b'o' => (format!("{value:o}"), b""),
            _ => (value.to_string(), b""),
        };
        let prefix = if (alternate && value != 0) || letter == b'p' { prefix } else { b"" };
        let digits = if value == 0 && self.precision == Some(0) { String::new() } else { digits };
        let least = self.precision.unwrap_or(1);
        let octal = letter == b'o' && alternate && !digits.starts_with('0') && least <= digits.len();
        let least = if octal { digits.len() + 1 } else { least };
        let digits = format!("{digits:0>least$}");
        let prefix = [sign, prefix].concat();
        self.padded(&prefix, digits.as_bytes(), self.precision.is_none(), message);
    }

    fn sign(&self, negative: bool) -> &'static [u8] {
        match self.conversion {
            _ if negative => b"-",
            Conversion { plus: true, .. } => b"+",
            Conversion { space: true, .. } => b" ",
            _ => b"",
        }
    }

    fn float(&self, value: f64, message: &mut Vec<u8>) {
        let letter = self.conversion.letter;
        let sign = self.sign(value.is_sign_negative());
        let positive = value.abs();
        let (prefix, mut digits): (&[u8], String) = match letter.to_ascii_lowercase() {
            _ if value.is_nan() => (b"", "nan".into()),
            _ if value.is_infinite() => (b"", "inf".into()),
            b'f' => (b"", self.fixed(positive, self.precision.unwrap_or(6))),
            b'e' => (b"", self.scientific(positive, self.precision.unwrap_or(6))),
            b'g' => (b"", self.general(positive)),
            _ => (b"0x", self.hexadecimal(positive)),
        };
        let mut prefix = [sign, prefix].concat();
        if letter.is_ascii_uppercase() {
            digits.make_ascii_uppercase();
            prefix.make_ascii_uppercase();
        }
        self.padded(&prefix, digits.as_bytes(), value.is_finite(), message);
    }

    fn fixed(&self, value: f64, precision: usize) -> String {
        let point = if precision == 0 && self.conversion.alternate { "." } else { "" };
        format!("{value:.precision$}{point}")
    }

    fn scientific(&self, value: f64, precision: usize) -> String {
        let (digits, exponent) = scientific_parts(value, precision);
        let point = if precision == 0 && self.conversion.alternate { "." } else { "" };
        format!("{digits}{point}{}", decimal_exponent(exponent))
    }

    /// Formats as `%g`: the shorter form, without trailing zeros.
    fn general(&self, value: f64) -> String {
        let digits = self.precision.unwrap_or(6).max(1);
        let (_, exponent) = scientific_parts(value, digits - 1);
        let place = i64::from(exponent);
        let is_fixed = place >= -4 && place < digits as i64;
        let (number, exponent) = match is_fixed {
            true => (self.fixed(value, (digits as i64 - 1 - place) as usize), String::new()),
            false => {
                let (number, exponent) = scientific_parts(value, digits - 1);
                let point = if digits == 1 && self.conversion.alternate { "." } else { "" };
                (format!("{number}{point}"), decimal_exponent(exponent))
            }
        };
        let number = match number.contains('.') && !self.conversion.alternate {
            true => number.trim_end_matches('0').trim_end_matches('.'),
            false => &number,
        };
        format!("{number}{exponent}")
    }

    /// Formats the part behind `0x`: `1.8p+1`.
    fn hexadecimal(&self, value: f64) -> String {
        const MANTISSA: u64 = (1 << 52) - 1;
        let bits = value.to_bits();
        let exponent = (bits >> 52 & 0x7ff) as i64;
        let normal = u64::from(exponent != 0);
        let mut mantissa = bits & MANTISSA | normal << 52;
        let exponent = match (exponent, mantissa) {
            (_, 0) => 0,
            (0, _) => -1022,
            (exponent, _) => exponent - 1023,
        };
        let kept = self.precision.unwrap_or(13).min(13);
        let dropped = 4 * (13 - kept) as u32;
        if dropped > 0 {
            let (rest, half) = (mantissa & ((1 << dropped) - 1), 1 << (dropped - 1));
            let kept_part = mantissa >> dropped;
            let up = rest > half || rest == half && kept_part & 1 == 1;
            mantissa = (kept_part + u64::from(up)) << dropped;
        }
        let fraction = format!("{:013x}", mantissa & MANTISSA);
        let fraction = match self.precision {
            None => fraction.trim_end_matches('0').to_owned(),
            Some(precision) => format!("{:0<precision$}", fraction.get(..kept).unwrap_or_default()),
        };
        let point = if fraction.is_empty() && !self.conversion.alternate { "" } else { "." };
        format!("{}{point}{fraction}p{exponent:+}", mantissa >> 52)
    }

    /// Pads to the width; zeros are inserted between the prefix and the digits.
    fn padded(&self, prefix: &[u8], text: &[u8], zeros: bool, message: &mut Vec<u8>) {
        let missing = self.width.saturating_sub(prefix.len() + text.len());
        let zeros = zeros && self.conversion.zero && !self.left;
        let pad = |byte, message: &mut Vec<u8>| message.resize(message.len() + missing, byte);
        if !self.left && !zeros {
            pad(b' ', message);
        }
        message.extend_from_slice(prefix);
        if zeros {
            pad(b'0', message);
        }
        message.extend_from_slice(text);
        if self.left {
            pad(b' ', message);
        }
    }
}

/// Splits into mantissa `1.25` and decimal exponent.
fn scientific_parts(value: f64, precision: usize) -> (String, i32) {
    let mut text = Vec::new();
    let _ = write!(text, "{value:.precision$e}");
    let text = String::from_utf8(text).unwrap_or_default();
    match text.split_once('e') {
        Some((digits, exponent)) => (digits.to_owned(), exponent.parse().unwrap_or(0)),
        None => (text, 0),
    }
}

/// Formats as `e+05`.
fn decimal_exponent(exponent: i32) -> String {
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("e{sign}{:02}", exponent.unsigned_abs())
}
