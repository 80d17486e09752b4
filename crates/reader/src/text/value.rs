//! Formats values as babeltrace2 does.

use std::io::Write;

use tompion_ctf::decode::{Elements, Fields, Inner, Value};
use tompion_ctf::metadata::{Base, BitArray, Enum, Integer};

use super::digits;

/// Writes `{ a = 1, b = "x" }`, or without names `{ 1, "x" }`.
fn fields(fields: Fields<'_>, names: bool, line: &mut Vec<u8>) {
    line.push(b'{');
    let mut separator: &[u8] = b" ";
    for (name, value) in fields.filter(|(_, value)| !is_of_clock(value)) {
        line.extend_from_slice(separator);
        separator = b", ";
        field(name, value, names, line);
    }
    line.extend_from_slice(b" }");
}

/// Whether a value is a clock timestamp, which babeltrace2 doesn't print.
fn is_of_clock(value: &Value<'_>) -> bool {
    match value {
        Value::Unsigned(_, ty) | Value::Signed(_, ty) => ty.clock.is_some(),
        Value::Enum(_, ty) => ty.integer.clock.is_some(),
        _ => false,
    }
}

/// Writes `a = 1`, or without names `1`.
pub(super) fn field(name: &str, value: Value<'_>, names: bool, line: &mut Vec<u8>) {
    if names {
        line.extend_from_slice(name.as_bytes());
        line.extend_from_slice(b" = ");
    }
    self::value(value, names, line);
}

/// Writes a value, with or without the names of its members.
pub(super) fn value(value: Value<'_>, names: bool, line: &mut Vec<u8>) {
    match value {
        Value::Unsigned(value, ty) => unsigned(value, ty, line),
        Value::Signed(value, ty) => signed(value, ty, line),
        Value::Float(value) => float(value, line),
        Value::Text(value) => text(value, line),
        Value::Boolean(value) => line.extend_from_slice(if value { b"true" } else { b"false" }),
        Value::Bits(value, ty) => bits(value, ty, line),
        Value::Blob(value) => blob(value, line),
        Value::Optional(value) => optional(value, names, line),
        Value::Enum(value, ty) => enumeration(value, ty, line),
        Value::Struct(value) => fields(value, names, line),
        Value::Variant(_, value) => variant(value, names, line),
        Value::Array(value) => array(value, names, line),
    }
}

fn unsigned(value: u64, ty: &Integer, line: &mut Vec<u8>) {
    if ty.base == Base::Decimal {
        digits::unsigned(value, line);
    } else {
        based(value, ty, line);
    }
}

fn signed(value: i64, ty: &Integer, line: &mut Vec<u8>) {
    if ty.base == Base::Decimal {
        digits::signed(value, line);
    } else {
        based(value as u64, ty, line);
    }
}

/// Returns the number of bits that an integer's base shows. It is rounded up to whole digits, so
/// that negative numbers fill them.
pub(super) fn shown_bits(ty: &Integer) -> u32 {
    match ty.base {
        Base::Octal => ty.bits.next_multiple_of(3),
        Base::Hexadecimal => ty.bits.next_multiple_of(4),
        Base::Binary | Base::Decimal => ty.bits,
    }
}

fn based(value: u64, ty: &Integer, line: &mut Vec<u8>) {
    let bits = shown_bits(ty);
    let value = if bits < 64 { value & ((1 << bits) - 1) } else { value };
    let (shift, digits) = match ty.base {
        Base::Binary => (1, bits),
        Base::Octal => (3, (64 - value.leading_zeros()).div_ceil(3).max(1)),
        _ => return hexadecimal(value, line),
    };
    line.extend_from_slice(if shift == 1 { b"0b" } else { b"0" });
    line.extend((0..digits).rev().map(|digit| b'0' + (value >> (digit * shift) & ((1 << shift) - 1)) as u8));
}

/// Writes `0x5F`.
#[inline]
pub(super) fn hexadecimal(value: u64, line: &mut Vec<u8>) {
    line.extend_from_slice(b"0x");
    digits::hexadecimal(value, line);
}

/// Writes `( "label" : container = 1 )`.
fn enumeration(value: u64, ty: &Enum, line: &mut Vec<u8>) {
    let number = if ty.integer.signed { i128::from(value as i64) } else { i128::from(value) };
    let mut separator: &[u8] = b"( ";
    for label in ty.labels_of(number) {
        line.extend_from_slice(separator);
        separator = b", ";
        text(label.as_bytes(), line);
    }
    if separator == b"( " {
        line.extend_from_slice(b"( <unknown>");
    }
    line.extend_from_slice(b" : container = ");
    match ty.integer.signed {
        true => signed(value as i64, &ty.integer, line),
        false => unsigned(value, &ty.integer, line),
    }
    line.extend_from_slice(b" )");
}

/// Writes `[ [0] = 1, [1] = 2 ]`, or without names `[ 1, 2 ]`.
fn array(elements: Elements<'_>, names: bool, line: &mut Vec<u8>) {
    line.push(b'[');
    let mut separator: &[u8] = b" ";
    for (index, element) in elements.enumerate() {
        line.extend_from_slice(separator);
        separator = b", ";
        if names {
            line.push(b'[');
            digits::unsigned(index as u64, line);
            line.extend_from_slice(b"] = ");
        }
        value(element, names, line);
    }
    line.extend_from_slice(b" ]");
}

/// Writes `{ 1 }`: the option without its name.
fn variant(option: Fields<'_>, names: bool, line: &mut Vec<u8>) {
    line.extend_from_slice(b"{ ");
    for (_, value) in option {
        self::value(value, names, line);
    }
    line.extend_from_slice(b" }");
}

/// Writes `0x5 { "first", "third" }`: the bits, and the names of those that are set.
fn bits(value: u64, ty: &BitArray, line: &mut Vec<u8>) {
    based(value, &Integer { base: Base::Hexadecimal, ..ty.integer.clone() }, line);
    let is_set = |low: i128, high: i128| (low.max(0)..=high.min(63)).any(|bit| value >> bit & 1 == 1);
    let flags = ty.flags.iter().filter(|flag| is_set(flag.low, flag.high));
    let mut labels: Vec<&str> = flags.map(|flag| flag.label.as_str()).collect();
    labels.sort_unstable();
    labels.dedup();
    let mut separator: &[u8] = b" { ";
    for label in &labels {
        line.extend_from_slice(separator);
        separator = b", ";
        text(label.as_bytes(), line);
    }
    if !labels.is_empty() {
        line.extend_from_slice(b" }");
    }
}

/// Writes `{ 0a ff }`.
fn blob(bytes: &[u8], line: &mut Vec<u8>) {
    line.extend_from_slice(b"{ ");
    for byte in bytes {
        let _ = write!(line, "{byte:02x} ");
    }
    line.push(b'}');
}

/// Writes `{ 1 }` or `<none>`.
fn optional(value: Option<Inner<'_>>, names: bool, line: &mut Vec<u8>) {
    match value.and_then(Inner::value) {
        Some(value) => {
            line.extend_from_slice(b"{ ");
            self::value(value, names, line);
            line.extend_from_slice(b" }");
        }
        None => line.extend_from_slice(b"<none>"),
    }
}

/// Writes `"a\tb"`.
#[inline]
pub(super) fn text(text: &[u8], line: &mut Vec<u8>) {
    line.push(b'"');
    if is_plain(text) {
        append(text, line);
    } else {
        escaped(text, line);
    }
    line.push(b'"');
}

/// Whether a text needs no escapes. Eight bytes are checked together; the last two words may
/// overlap.
#[inline]
fn is_plain(text: &[u8]) -> bool {
    let (Some(mut rest), Some(last)) = (Some(text), text.last_chunk::<8>()) else {
        return !text.iter().any(|&byte| needs_escape(byte));
    };
    let mut has_escape = has_escaped(last);
    while let Some((word, behind)) = rest.split_first_chunk::<8>() {
        has_escape |= has_escaped(word);
        rest = behind;
    }
    !has_escape
}

/// Whether one of eight bytes needs an escape.
#[inline]
fn has_escaped(word: &[u8; 8]) -> bool {
    word.iter().fold(false, |has_escape, &byte| has_escape | is_escaped(byte))
}

/// Appends a text; short ones by copies of constant size.
#[inline]
fn append(text: &[u8], line: &mut Vec<u8>) {
    match (text.first_chunk::<8>(), text.last_chunk::<8>()) {
        (Some(first), Some(last)) if text.len() <= 16 => {
            line.extend_from_slice(first);
            line.truncate(line.len() - (16 - text.len()));
            line.extend_from_slice(last);
        }
        _ => line.extend_from_slice(text),
    }
}

fn escaped(text: &[u8], line: &mut Vec<u8>) {
    let mut rest = text;
    while let Some(place) = rest.iter().position(|&byte| needs_escape(byte)) {
        let (plain, escaped) = rest.split_at(place);
        line.extend_from_slice(plain);
        if let Some((&byte, behind)) = escaped.split_first() {
            escape(byte, line);
            rest = behind;
        }
    }
    line.extend_from_slice(rest);
}

/// Whether a byte needs an escape.
#[inline]
const fn is_escaped(byte: u8) -> bool {
    matches!(byte, b'"' | b'\\' | b'\'' | b'?' | 0..=0x1f | 0x7f)
}

/// Table of bytes that need an escape.
const ESCAPED: [bool; 256] = {
    let mut escaped = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        escaped[byte] = is_escaped(byte as u8);
        byte += 1;
    }
    escaped
};

fn needs_escape(byte: u8) -> bool {
    ESCAPED.get(usize::from(byte)).copied().unwrap_or(true)
}

fn escape(byte: u8, line: &mut Vec<u8>) {
    let letter = match byte {
        b'"' | b'\\' | b'\'' | b'?' => byte,
        7 => b'a',
        8 => b'b',
        b'\t' => b't',
        b'\n' => b'n',
        11 => b'v',
        12 => b'f',
        b'\r' => b'r',
        27 => b'e',
        _ => {
            let digit = |value: u8| b"0123456789abcdef".get(usize::from(value & 15)).copied().unwrap_or(b'?');
            line.extend_from_slice(&[b'\\', b'x', digit(byte >> 4), digit(byte)]);
            return;
        }
    };
    line.extend_from_slice(&[b'\\', letter]);
}

/// Number of significant digits of a float, as in C's `%g`.
const DIGITS: i32 = 6;

/// Writes a float as `%g`.
fn float(value: f64, line: &mut Vec<u8>) {
    if !value.is_finite() {
        let sign: &[u8] = if value.is_sign_negative() { b"-" } else { b"" };
        line.extend_from_slice(sign);
        line.extend_from_slice(if value.is_nan() { b"nan" } else { b"inf" });
        return;
    }
    let mut scientific = [0; 32];
    let scientific = formatted(&mut scientific, format_args!("{value:.*e}", (DIGITS - 1) as usize));
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..DIGITS).contains(&exponent) {
        let mut fixed = [0; 32];
        let decimals = (DIGITS - 1 - exponent) as usize;
        line.extend_from_slice(without_zeros(formatted(&mut fixed, format_args!("{value:.decimals$}"))));
        return;
    }
    line.extend_from_slice(without_zeros(mantissa));
    line.extend_from_slice(if exponent < 0 { b"e-" } else { b"e+" });
    if exponent.abs() < 10 {
        line.push(b'0');
    }
    digits::unsigned(exponent.unsigned_abs().into(), line);
}

/// Formats into a buffer that is large enough.
fn formatted<'b>(buffer: &'b mut [u8; 32], arguments: std::fmt::Arguments<'_>) -> &'b str {
    let mut rest = &mut buffer[..];
    let _ = rest.write_fmt(arguments);
    let left = rest.len();
    let written = buffer.get(..buffer.len() - left).unwrap_or_default();
    std::str::from_utf8(written).unwrap_or_default()
}

/// Removes trailing zeros of a fraction.
fn without_zeros(number: &str) -> &[u8] {
    match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.').as_bytes(),
        false => number.as_bytes(),
    }
}
