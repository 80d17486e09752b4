//! Values as babeltrace2 prints them.

use tompion_ctf::decode::{Elements, Fields, Value};
use tompion_ctf::metadata::{Base, Enum, Integer};

/// `{ a = 1, b = "x" }`
pub(crate) fn fields(fields: Fields<'_>, line: &mut Vec<u8>) {
    line.push(b'{');
    let mut separator: &[u8] = b" ";
    for (name, value) in fields {
        line.extend_from_slice(separator);
        separator = b", ";
        field(name, value, line);
    }
    line.extend_from_slice(b" }");
}

/// `a = 1`
pub(crate) fn field(name: &str, value: Value<'_>, line: &mut Vec<u8>) {
    line.extend_from_slice(name.as_bytes());
    line.extend_from_slice(b" = ");
    self::value(value, line);
}

fn value(value: Value<'_>, line: &mut Vec<u8>) {
    match value {
        Value::Unsigned(value, ty) => unsigned(value, ty, line),
        Value::Signed(value, ty) => signed(value, ty, line),
        Value::Float(value) => float(value, line),
        Value::Text(value) => text(value, line),
        Value::Enum(value, ty) => enumeration(value, ty, line),
        Value::Struct(value) => fields(value, line),
        Value::Variant(_, value) => fields(value, line),
        Value::Array(value) => array(value, line),
    }
}

fn unsigned(value: u64, ty: &Integer, line: &mut Vec<u8>) {
    if ty.base == Base::Decimal {
        line.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    } else {
        based(value, ty, line);
    }
}

fn signed(value: i64, ty: &Integer, line: &mut Vec<u8>) {
    if ty.base == Base::Decimal {
        line.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    } else {
        based(value as u64, ty, line);
    }
}

/// Bases other than ten show the bits that the integer has.
fn based(value: u64, ty: &Integer, line: &mut Vec<u8>) {
    let value = if ty.bits < 64 { value & ((1 << ty.bits) - 1) } else { value };
    let (prefix, shift, digits): (&[u8], u32, u32) = match ty.base {
        Base::Binary => (b"0b", 1, ty.bits),
        Base::Octal => (b"0", 3, significant(value, 3)),
        _ => (b"0x", 4, significant(value, 4)),
    };
    line.extend_from_slice(prefix);
    for digit in (0..digits).rev() {
        let digit = value >> (digit * shift) & ((1 << shift) - 1);
        line.push(b"0123456789ABCDEF".get(digit as usize).copied().unwrap_or(b'?'));
    }
}

/// Number of digits of `shift` bits each, at least one.
fn significant(value: u64, shift: u32) -> u32 {
    (64 - value.leading_zeros()).div_ceil(shift).max(1)
}

/// `( "label" : container = 1 )`
fn enumeration(value: u64, ty: &Enum, line: &mut Vec<u8>) {
    let number = if ty.integer.signed { i128::from(value as i64) } else { i128::from(value) };
    let mut labels = ty.mappings.iter().filter(|mapping| (mapping.low..=mapping.high).contains(&number));
    line.extend_from_slice(b"( ");
    match (labels.next(), labels.next()) {
        (None, _) => line.extend_from_slice(b"<unknown>"),
        (Some(label), None) => quoted(label.label.as_bytes(), line),
        (Some(first), Some(second)) => {
            line.extend_from_slice(b"{ ");
            quoted(first.label.as_bytes(), line);
            for label in std::iter::once(second).chain(labels) {
                line.extend_from_slice(b", ");
                quoted(label.label.as_bytes(), line);
            }
            line.extend_from_slice(b" }");
        }
    }
    line.extend_from_slice(b" : container = ");
    match ty.integer.signed {
        true => signed(value as i64, &ty.integer, line),
        false => unsigned(value, &ty.integer, line),
    }
    line.extend_from_slice(b" )");
}

/// `[ [0] = 1, [1] = 2 ]`
fn array(elements: Elements<'_>, line: &mut Vec<u8>) {
    line.push(b'[');
    let mut separator: &[u8] = b" ";
    for (index, element) in elements.enumerate() {
        line.extend_from_slice(separator);
        separator = b", ";
        line.push(b'[');
        line.extend_from_slice(itoa::Buffer::new().format(index).as_bytes());
        line.extend_from_slice(b"] = ");
        value(element, line);
    }
    line.extend_from_slice(b" ]");
}

fn text(text: &[u8], line: &mut Vec<u8>) {
    quoted(text, line);
}

fn quoted(text: &[u8], line: &mut Vec<u8>) {
    line.push(b'"');
    for &byte in text {
        match byte {
            b'"' | b'\\' | b'\'' | b'?' => line.extend_from_slice(&[b'\\', byte]),
            _ => line.push(byte),
        }
    }
    line.push(b'"');
}

fn float(value: f64, line: &mut Vec<u8>) {
    line.extend_from_slice(value.to_string().as_bytes());
}
