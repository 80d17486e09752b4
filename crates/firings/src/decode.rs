//! Fields of a copied event as JSON.

use serde_json::{Map, Number, Value};
use tompion_schema::{Enumeration, Event, Field, Integer, Type};

/// Maximum number of fields, members of structures among them.
const MAX_FIELDS: usize = 64;
/// Maximum size of all names and values as JSON, in bytes.
const MAX_TEXT: usize = 4096;

/// Decodes the fields that the payload has. `payload` is the beginning of one of `size` bytes; of a
/// field that is cut off there is nothing, or the beginning of its text. Returns the fields, those
/// of `names` or all if there are none, and whether something is missing.
pub fn fields(event: &Event, payload: &[u8], size: u32, names: &[String]) -> (Map<String, Value>, bool) {
    let (fixed, tails) = payload.split_at(event.fixed_size().min(payload.len()));
    let mut reader = Reader { fixed, tails, left: MAX_FIELDS, is_cut: payload.len() < size as usize };
    let mut all = reader.members(&event.fields);
    let is_asked = |name: &str| names.is_empty() || names.iter().any(|it| it == name);
    all.retain(|name, _| is_asked(name));
    let has_all_asked = !names.is_empty() && names.iter().all(|name| all.contains_key(name));
    let mut is_cut = reader.is_cut && !has_all_asked;
    let (mut room, mut fitting) = (MAX_TEXT, Map::new());
    for (name, value) in all {
        match room.checked_sub(name.len() + value.to_string().len()) {
            Some(rest) => {
                room = rest;
                fitting.insert(name, value);
            }
            None => is_cut = true,
        }
    }
    (fitting, is_cut)
}

/// Reader of a payload's two parts.
struct Reader<'a> {
    fixed: &'a [u8],
    tails: &'a [u8],
    /// Number of further fields.
    left: usize,
    is_cut: bool,
}

impl<'a> Reader<'a> {
    fn members(&mut self, fields: &[Field]) -> Map<String, Value> {
        let mut map = Map::new();
        for field in fields {
            if self.left == 0 {
                self.is_cut = true;
                break;
            }
            self.left -= 1;
            if let Some(value) = self.value(&field.ty) {
                map.insert(field.name.clone(), value);
            } else {
                self.is_cut = true;
            }
        }
        map
    }

    /// The next field's value; none if it is cut off.
    fn value(&mut self, ty: &Type) -> Option<Value> {
        match ty {
            Type::Integer(integer) => self.integer(*integer).map(number),
            Type::Float(bits) => self.float(*bits),
            Type::Bool => self.take_fixed(1).map(|bytes| Value::Bool(bytes.iter().any(|byte| *byte != 0))),
            Type::Enum(integer, enumeration) => Some(label(self.integer(*integer)?, enumeration)),
            Type::String | Type::TextSequence => self.count().map(|count| text(self.take_tail(count))),
            Type::TextArray(count) => Some(text(self.take_tail(*count as usize))),
            Type::Bytes => self.count().map(|count| Value::String(hexadecimal(self.take_tail(count)))),
            Type::Sequence(element) => self.count().map(|count| self.elements(*element, count)),
            Type::Array(element, count) => Some(self.elements(*element, *count as usize)),
            Type::Struct(members) => Some(Value::Object(self.members(members))),
        }
    }

    fn take_fixed(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.fixed.split_at_checked(len)?;
        self.fixed = rest;
        Some(head)
    }

    /// The next bytes of variable parts, as many of these as there are.
    fn take_tail(&mut self, len: usize) -> &'a [u8] {
        self.is_cut |= len > self.tails.len();
        let (head, rest) = self.tails.split_at(len.min(self.tails.len()));
        self.tails = rest;
        head
    }

    /// Number of elements or bytes of a field with a variable part.
    fn count(&mut self) -> Option<usize> {
        let bytes = self.take_fixed(4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
    }

    fn integer(&mut self, integer: Integer) -> Option<i128> {
        self.take_fixed(integer.size()).map(|bytes| read(bytes, integer))
    }

    fn float(&mut self, bits: u8) -> Option<Value> {
        let bytes = self.take_fixed(bits as usize / 8)?;
        let value = match *bytes {
            [a, b, c, d] => f32::from_le_bytes([a, b, c, d]).into(),
            [a, b, c, d, e, f, g, h] => f64::from_le_bytes([a, b, c, d, e, f, g, h]),
            _ => return None,
        };
        // JSON has no other numbers.
        Some(Number::from_f64(value).map_or_else(|| Value::String(value.to_string()), Value::Number))
    }

    fn elements(&mut self, element: Integer, count: usize) -> Value {
        let bytes = self.take_tail(count.saturating_mul(element.size()));
        bytes.chunks_exact(element.size().max(1)).map(|bytes| number(read(bytes, element))).collect()
    }
}

/// Reads an integer of at most eight bytes.
fn read(bytes: &[u8], integer: Integer) -> i128 {
    let add = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
    let value = if integer.network { bytes.iter().fold(0, add) } else { bytes.iter().rev().fold(0, add) };
    let unused = 64 - 8 * bytes.len().clamp(1, 8) as u32;
    if integer.signed { i128::from((value << unused) as i64 >> unused) } else { value.into() }
}

fn number(value: i128) -> Value {
    u64::try_from(value).map_or_else(|_| Value::from(value as i64), Value::from)
}

/// The name of an enumeration's value; the value if it has none.
fn label(value: i128, enumeration: &Enumeration) -> Value {
    let label = enumeration.labels.iter().find(|label| (label.low..=label.high).contains(&value));
    label.map_or_else(|| number(value), |label| Value::String(label.name.clone()))
}

/// Text up to its NUL.
fn text(bytes: &[u8]) -> Value {
    let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    Value::String(String::from_utf8_lossy(bytes).into_owned())
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tompion_schema::{Kind, Label, Level};

    use super::*;

    fn event(fields: Vec<Field>) -> Event {
        Event {
            provider: "app".into(),
            name: "request".into(),
            level: Level::DEFAULT,
            kind: Kind::Instant,
            init: false,
            format: None,
            attributes: Default::default(),
            fields,
        }
    }

    fn all_types() -> Event {
        let label = |low, high, name: &str| Label { low, high, name: name.into() };
        let labels = vec![label(1, 3, "busy"), label(-1, -1, "failed")];
        let state = Enumeration { name: "state".into(), labels };
        let inner =
            vec![Field::new("x", Type::Integer(Integer::unsigned(16))), Field::new("s", Type::String)];
        event(vec![
            Field::new("ns", Type::Integer(Integer::unsigned(64))),
            Field::new("delta", Type::Integer(Integer::signed(16))),
            Field::new("port", Type::Integer(Integer::unsigned(16).network())),
            Field::new("load", Type::Float(64)),
            Field::new("done", Type::Bool),
            Field::new("state", Type::Enum(Integer::signed(8), state)),
            Field::new("url", Type::String),
            Field::new("raw", Type::Bytes),
            Field::new("list", Type::Array(Integer::signed(8), 2)),
            Field::new("more", Type::Sequence(Integer::unsigned(16))),
            Field::new("inner", Type::Struct(inner)),
            Field::new("tag", Type::TextArray(4)),
        ])
    }

    fn payload() -> Vec<u8> {
        let fixed = [
            &u64::MAX.to_le_bytes()[..],
            &(-2i16).to_le_bytes(),
            &80u16.to_be_bytes(),
            &1.5f64.to_le_bytes(),
            &[1, 2],
            &4u32.to_le_bytes(),
            &2u32.to_le_bytes(),
            &2u32.to_le_bytes(),
            &7u16.to_le_bytes(),
            &2u32.to_le_bytes(),
        ];
        let tails = [&b"/a\"b"[..], &[0xab, 1], &[0xff, 5], &[1, 0, 2, 0], b"hi", b"ab\0c"];
        fixed.concat().into_iter().chain(tails.concat()).collect()
    }

    #[test]
    fn all_types_have_their_values() {
        let payload = payload();
        let (decoded, is_cut) = fields(&all_types(), &payload, payload.len() as u32, &[]);
        let expected = json!({
            "ns": u64::MAX, "delta": -2, "port": 80, "load": 1.5, "done": true, "state": "busy",
            "url": "/a\"b", "raw": "ab01", "list": [-1, 5], "more": [1, 2],
            "inner": {"x": 7, "s": "hi"}, "tag": "ab",
        });
        assert_eq!((Value::Object(decoded), is_cut), (expected, false));
    }

    #[test]
    fn whatever_is_cut_off_is_missing_and_said_to_be() {
        let (event, payload) = (all_types(), payload());
        for len in 0..payload.len() {
            let (decoded, is_cut) = fields(&event, &payload[..len], payload.len() as u32, &[]);
            assert!(is_cut && decoded.len() <= 12, "{len}");
            assert_eq!(decoded.contains_key("ns"), len >= 8);
        }
        let (asked, is_cut) = fields(&event, &payload[..30], payload.len() as u32, &["ns".into()]);
        assert_eq!((Value::Object(asked), is_cut), (json!({"ns": u64::MAX}), false));
        // A length that is a lie.
        let mut lie = payload;
        lie[24..28].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(fields(&event, &lie, lie.len() as u32, &[]).1);
    }

    #[test]
    fn many_fields_and_long_names_are_bounded() {
        let name = |index: usize| format!("{}{index}", "x".repeat(200));
        let many: Vec<Field> = (0..1000).map(|index| Field::new(&name(index), Type::TextArray(0))).collect();
        let (decoded, is_cut) = fields(&event(many), &[], 0, &[]);
        assert!(is_cut && decoded.len() < 21 && Value::Object(decoded).to_string().len() < 2 * MAX_TEXT);
    }
}
