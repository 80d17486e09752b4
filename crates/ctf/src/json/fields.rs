//! Builds field classes, as a part of the resolver.

use std::collections::HashSet;

use super::fragment::{Object, Result, array, inside, mappings, number, ranges, text, word, wrong};
use super::resolver::Resolver;
use super::value::Json;
use crate::metadata::{
    Array, Base, BitArray, Blob, ByteOrder, Encoding, Enum, Field, Float, Form, Integer, Length, Mapping,
    OptionRange, Optional, Reference, Role, Roles, Scope, Selection, Sequence, Struct, Text, Type, Variant,
};

/// Maximum number of field classes in one trace.
const MAX_TYPES: usize = 1 << 19;
/// Maximum nesting of field classes, aliases included.
const MAX_DEPTH: usize = 64;

pub(super) const BYTE_ORDERS: [(&str, ByteOrder); 2] =
    [("little-endian", ByteOrder::Little), ("big-endian", ByteOrder::Big)];
/// Bit orders, with the byte order that each belongs to.
pub(super) const BIT_ORDERS: [(&str, ByteOrder); 2] =
    [("first-to-last", ByteOrder::Little), ("last-to-first", ByteOrder::Big)];
pub(super) const ENCODINGS: [(&str, Encoding); 5] = [
    ("utf-8", Encoding::Utf8),
    ("utf-16le", Encoding::Utf16(ByteOrder::Little)),
    ("utf-16be", Encoding::Utf16(ByteOrder::Big)),
    ("utf-32le", Encoding::Utf32(ByteOrder::Little)),
    ("utf-32be", Encoding::Utf32(ByteOrder::Big)),
];
pub(super) const ORIGINS: [(&str, Scope); 6] = [
    ("packet-header", Scope::PacketHeader),
    ("packet-context", Scope::PacketContext),
    ("event-record-header", Scope::EventHeader),
    ("event-record-common-context", Scope::StreamEventContext),
    ("event-record-specific-context", Scope::EventContext),
    ("event-record-payload", Scope::Payload),
];

/// Parses a location in the form of a draft: the origin of the path, then names.
fn of_draft(elements: &[Json]) -> Result<Reference> {
    let names = elements.iter().map(|element| text(element).map(String::from)).collect::<Result<Vec<_>>>()?;
    match names.split_first() {
        Some((origin, path)) if !path.is_empty() => {
            Ok(Reference { scope: word(origin, &ORIGINS)?, path: path.to_vec() })
        }
        _ => wrong("expected the origin of the path and names of members"),
    }
}

/// Properties of integers, bits and floats: everything with a fixed number of bits.
const FIXED: &[&str] = &["length", "byte-order", "bit-order", "alignment"];
const NUMBER: &[&str] = &["preferred-display-base", "mappings", "roles"];

/// Position where a field class is being built.
pub(super) struct Place<'a> {
    pub scope: Scope,
    /// Clock of the stream, to which timestamps refer.
    clock: Option<&'a str>,
    /// Names of the enclosing members, from the outermost structure on.
    members: Vec<String>,
    depth: usize,
    /// Whether the position is real. Otherwise the class is only validated, and unresolved
    /// locations are accepted.
    is_placed: bool,
}

impl<'a> Place<'a> {
    pub fn new(scope: Scope, clock: Option<&'a str>) -> Self {
        Self { scope, clock, members: Vec::new(), depth: 0, is_placed: true }
    }

    /// Resolves a location to a field.
    fn reference(&self, location: &Json) -> Result<Reference> {
        if let Json::Array(elements) = location {
            return of_draft(elements);
        }
        let location = Object::of(location)?;
        location.check(&[&["origin", "path"]])?;
        let path = inside("path", array(location.need("path")?))?;
        if !matches!(path.last(), Some(Json::Text(_))) {
            return inside("path", wrong("expected the name of a member at its end"));
        }
        let origin = location.word("origin", &ORIGINS)?;
        // A location without an origin starts at the closest enclosing structure.
        let mut names = match origin {
            Some(_) => Vec::new(),
            None => self.members.split_last().map_or(Vec::new(), |(_, parents)| parents.to_vec()),
        };
        for element in path {
            match element {
                Json::Text(name) => names.push(name.clone()),
                Json::Null if names.pop().is_some() || !self.is_placed => {}
                Json::Null => return inside("path", wrong("the outermost structure has no parent")),
                other => {
                    return inside("path", wrong(format!("expected a text or null, found {}", other.kind())));
                }
            }
        }
        Ok(Reference { scope: origin.unwrap_or(self.scope), path: names })
    }

    fn location(&self, object: Object<'_>, name: &str) -> Result<Reference> {
        inside(name, object.need(name).and_then(|location| self.reference(location)))
    }

    /// Parses the roles of a value, and the clock that they refer to.
    fn roles(&self, object: Object<'_>) -> Result<(Roles, Option<String>)> {
        let (mut roles, mut clock) = (Roles::NONE, None);
        for role in object.array("roles")?.unwrap_or_default() {
            let name = inside("roles", text(role))?;
            let role = match (self.scope, name) {
                (Scope::PacketContext | Scope::EventHeader, "default-clock-timestamp") => {
                    clock = self.clock.map(String::from);
                    (self.scope == Scope::PacketContext).then_some(Role::TimestampBegin)
                }
                (Scope::PacketHeader, "packet-magic-number") => Some(Role::Magic),
                (Scope::PacketHeader, "data-stream-class-id") => Some(Role::StreamId),
                (Scope::PacketHeader, "data-stream-id") => Some(Role::StreamInstance),
                (Scope::PacketHeader, "metadata-stream-uuid") => Some(Role::Uuid),
                (Scope::PacketContext, "packet-total-length") => Some(Role::PacketSize),
                (Scope::PacketContext, "packet-content-length") => Some(Role::ContentSize),
                (Scope::PacketContext, "packet-end-default-clock-timestamp") => Some(Role::TimestampEnd),
                (Scope::PacketContext, "discarded-event-record-counter-snapshot") => {
                    Some(Role::EventsDiscarded)
                }
                (Scope::PacketContext, "packet-sequence-number") => Some(Role::SequenceNumber),
                (Scope::EventHeader, "event-record-class-id") => Some(Role::EventId),
                _ if !self.is_placed => None,
                _ => {
                    return inside("roles", wrong(format!("expected a role of this scope, found {name:?}")));
                }
            };
            let needs_clock = name.ends_with("default-clock-timestamp");
            if needs_clock && self.clock.is_none() && self.is_placed {
                return inside("roles", wrong(format!("{name:?} in a stream class without a default clock")));
            }
            roles = role.map_or(roles, |role| roles.with(role));
        }
        Ok((roles, clock))
    }
}

impl Resolver {
    /// Builds a field class that is given a name, to validate it.
    pub fn build_unplaced(&mut self, class: &Json) -> Result<Type> {
        let place = Place::new(Scope::Payload, None);
        self.build(class, &mut Place { is_placed: false, ..place })
    }

    /// Builds a field class at a position.
    pub fn build(&mut self, class: &Json, place: &mut Place<'_>) -> Result<Type> {
        self.types += 1;
        if self.types > MAX_TYPES {
            return wrong(format!("more than {MAX_TYPES} field classes"));
        }
        if place.depth == MAX_DEPTH {
            return wrong(format!("field classes are nested more than {MAX_DEPTH} deep"));
        }
        place.depth += 1;
        let result = match class {
            Json::Text(name) => match self.aliases.get(name).cloned() {
                Some(class) => self.build(&class, place),
                None => wrong(format!("no field class has the name {name:?}")),
            },
            other => Object::of(other).and_then(|object| self.class(object, place)),
        };
        place.depth -= 1;
        result
    }

    fn class(&mut self, object: Object<'_>, place: &mut Place<'_>) -> Result<Type> {
        let kind = inside("type", text(object.need("type")?))?;
        match kind {
            "fixed-length-bit-array" => bit_array(object, false),
            "fixed-length-bit-map" => bit_array(object, true),
            "fixed-length-boolean" => boolean(object),
            "fixed-length-unsigned-integer" | "fixed-length-unsigned-enumeration" => {
                number_class(object, place, (false, false))
            }
            "fixed-length-signed-integer" | "fixed-length-signed-enumeration" => {
                number_class(object, place, (false, true))
            }
            "fixed-length-floating-point-number" => float(object),
            "variable-length-unsigned-integer" | "variable-length-unsigned-enumeration" => {
                number_class(object, place, (true, false))
            }
            "variable-length-signed-integer" | "variable-length-signed-enumeration" => {
                number_class(object, place, (true, true))
            }
            "null-terminated-string" => {
                object.check(&[&["encoding"]])?;
                Ok(Type::String(encoding(object)?))
            }
            "static-length-string" | "dynamic-length-string" => {
                object.check(&[&["encoding"], length_property(kind)])?;
                Ok(Type::Text(Text { length: length(object, kind, place)?, encoding: encoding(object)? }))
            }
            "static-length-blob" | "dynamic-length-blob" => blob(object, kind, place),
            "structure" => self.structure(object, place),
            "static-length-array" | "dynamic-length-array" => {
                object.check(&[&["element-field-class", "minimum-alignment"], length_property(kind)])?;
                let alignment = object.alignment("minimum-alignment")?;
                let length = length(object, kind, place)?;
                let element = object.need("element-field-class")?;
                let element = Box::new(inside("element-field-class", self.build(element, place))?);
                Ok(match length {
                    Length::Fixed(length) => Type::Array(Array { element, length, alignment }),
                    Length::Field(length) => Type::Sequence(Sequence { element, length, alignment }),
                })
            }
            "optional" => self.optional(object, place),
            "variant" => self.variant(object, place),
            _ => wrong(format!("expected a field class type of CTF 2, found {kind:?}")),
        }
    }

    fn structure(&mut self, object: Object<'_>, place: &mut Place<'_>) -> Result<Type> {
        object.check(&[&["member-classes", "minimum-alignment"]])?;
        let alignment = object.alignment("minimum-alignment")?;
        let mut fields: Vec<Field> = Vec::new();
        let mut names = HashSet::new();
        for member in object.array("member-classes")?.unwrap_or_default() {
            let member = inside("member-classes", Object::of(member))?;
            member.check(&[&["name", "field-class"]])?;
            let name = inside("name", text(member.need("name")?))?;
            place.members.push(name.into());
            let ty = inside(name, member.need("field-class").and_then(|class| self.build(class, place)));
            place.members.pop();
            self.check_name(name, names.insert(name));
            fields.push(Field::new(name, ty?));
        }
        Ok(Type::Struct(Struct { fields, alignment }))
    }

    /// Remarks on a name that others have, or that no reader of CTF 1.8 could show.
    fn check_name(&mut self, name: &str, is_new: bool) {
        if !is_new {
            self.remark(format!(
                "expected one field named {name:?} in a structure or variant, found several"
            ));
        }
        if name.contains('\0') {
            self.remark(format!("expected a name without a NUL character, found {name:?}"));
        }
    }

    fn optional(&mut self, object: Object<'_>, place: &mut Place<'_>) -> Result<Type> {
        object.check(&[&["selector-field-location", "selector-field-ranges", "field-class"]])?;
        let selector = place.location(object, "selector-field-location")?;
        let name = "selector-field-ranges";
        let ranges = object.get(name).map(|value| inside(name, ranges(value))).transpose()?;
        let element = Box::new(inside("field-class", self.build(object.need("field-class")?, place))?);
        Ok(Type::Optional(Optional { selector, ranges, element }))
    }

    fn variant(&mut self, object: Object<'_>, place: &mut Place<'_>) -> Result<Type> {
        object.check(&[&["selector-field-location", "options"]])?;
        let selector = place.location(object, "selector-field-location")?;
        let (mut options, mut all) = (Vec::new(), Vec::<OptionRange>::new());
        let mut names = HashSet::new();
        for (index, value) in inside("options", array(object.need("options")?))?.iter().enumerate() {
            let option = inside("options", Object::of(value))?;
            option.check(&[&["name", "selector-field-ranges", "field-class"]])?;
            let name = option.text("name")?.map_or_else(|| format!("option{index}"), String::from);
            let ranges =
                inside("selector-field-ranges", option.need("selector-field-ranges").and_then(ranges))?;
            for (low, high) in ranges {
                if all.iter().any(|other| other.option != index && low <= other.high && other.low <= high) {
                    return inside("options", wrong(format!("two options are selected by [{low}, {high}]")));
                }
                all.push(OptionRange { low, high, option: index });
            }
            let ty = inside("options", option.need("field-class").and_then(|class| self.build(class, place)));
            self.check_name(&name, names.insert(name.clone()));
            options.push(Field { name, ty: ty? });
        }
        if options.is_empty() {
            return inside("options", wrong("expected an option, found none"));
        }
        Ok(Type::Variant(Variant { selector, options, selection: Selection::Ranges(all) }))
    }
}

/// Parses an integer with a fixed number of bits, without its roles and mappings.
fn fixed(object: Object<'_>) -> Result<Integer> {
    let bits: u32 = inside("length", number(object.need("length")?))?;
    if !(1..=64).contains(&bits) {
        return inside("length", wrong(format!("expected 1 to 64 bits, found {bits}")));
    }
    object.need("byte-order")?;
    let byte_order = object.word("byte-order", &BYTE_ORDERS)?.unwrap_or_default();
    let is_reversed = object.word("bit-order", &BIT_ORDERS)?.is_some_and(|natural| natural != byte_order);
    Ok(Integer {
        alignment: object.alignment("alignment")?,
        form: if is_reversed { Form::Reversed } else { Form::Fixed },
        ..Integer::unsigned(bits, byte_order)
    })
}

fn bit_array(object: Object<'_>, is_map: bool) -> Result<Type> {
    // Bits are displayed in hexadecimal, whatever the preferred base.
    object.check(&[FIXED, &["preferred-display-base"], if is_map { &["flags"] } else { &[] }])?;
    let integer = fixed(object)?.with_base(Base::Hexadecimal);
    let mut flags = Vec::new();
    if is_map {
        flags = inside("flags", object.need("flags").and_then(Object::of).and_then(mappings))?;
        let is_beyond = |flag: &&Mapping| flag.low < 0 || flag.high >= integer.bits.into();
        if let Some(flag) = flags.iter().find(is_beyond) {
            return inside("flags", wrong(format!("{:?} is a bit beyond the last one", flag.label)));
        }
        if flags.is_empty() {
            return inside("flags", wrong("expected a flag, found none"));
        }
    }
    Ok(Type::Bits(BitArray { integer, flags }))
}

fn boolean(object: Object<'_>) -> Result<Type> {
    object.check(&[FIXED])?;
    Ok(Type::Boolean(fixed(object)?))
}

fn float(object: Object<'_>) -> Result<Type> {
    object.check(&[FIXED])?;
    let Integer { bits, byte_order, alignment, form, .. } = fixed(object)?;
    if !matches!(bits, 32 | 64) {
        return inside("length", wrong(format!("expected a float of 32 or 64 bits, found {bits}")));
    }
    Ok(Type::Float(Float { bits, byte_order, alignment, reversed: form == Form::Reversed }))
}

/// Parses an integer, of fixed or variable size, signed or unsigned.
fn number_class(object: Object<'_>, place: &Place<'_>, (variable, signed): (bool, bool)) -> Result<Type> {
    object.check(&[if variable { &[] } else { FIXED }, NUMBER])?;
    if signed && object.get("roles").is_some() {
        return wrong("expected no roles for a signed integer");
    }
    let base = match object.number("preferred-display-base")?.unwrap_or(10) {
        2 => Base::Binary,
        8 => Base::Octal,
        10 => Base::Decimal,
        16 => Base::Hexadecimal,
        other => {
            return inside(
                "preferred-display-base",
                wrong(format!("expected 2, 8, 10 or 16, found {other}")),
            );
        }
    };
    let integer = if variable { Integer::variable(signed) } else { Integer { signed, ..fixed(object)? } };
    let (roles, clock) = place.roles(object)?;
    let integer = Integer { base, roles, clock, ..integer };
    let mappings =
        object.object("mappings")?.map(|object| inside("mappings", mappings(object))).transpose()?;
    let kind = object.text("type")?.unwrap_or_default();
    if kind.ends_with("-enumeration") && mappings.as_ref().is_none_or(Vec::is_empty) {
        return wrong("expected a label of the enumeration, found none");
    }
    if integer.roles.has(Role::Magic) && integer.bits != 32 {
        return inside(
            "length",
            wrong(format!("expected 32 bits of a magic number, found {}", integer.bits)),
        );
    }
    Ok(match mappings.filter(|mappings| !mappings.is_empty()) {
        Some(mappings) => Type::Enum(Enum { integer, mappings }),
        None => Type::Integer(integer),
    })
}

fn encoding(object: Object<'_>) -> Result<Encoding> {
    Ok(object.word("encoding", &ENCODINGS)?.unwrap_or(Encoding::Utf8))
}

/// Returns the property that gives the length of a class of this type.
fn length_property(kind: &str) -> &'static [&'static str] {
    if kind.starts_with("static") { &["length"] } else { &["length-field-location"] }
}

fn length(object: Object<'_>, kind: &str, place: &Place<'_>) -> Result<Length> {
    if kind.starts_with("static") {
        return Ok(Length::Fixed(inside("length", number(object.need("length")?))?));
    }
    place.location(object, "length-field-location").map(Length::Field)
}

fn blob(object: Object<'_>, kind: &str, place: &Place<'_>) -> Result<Type> {
    object.check(&[&["media-type", "roles"], length_property(kind)])?;
    let length = length(object, kind, place)?;
    let mut roles = Roles::NONE;
    for role in object.array("roles")?.unwrap_or_default() {
        inside("roles", text(role).and_then(|name| word(name, &[("metadata-stream-uuid", ())])))?;
        if length != Length::Fixed(16) {
            return inside("roles", wrong("expected 16 bytes"));
        }
        if place.is_placed && place.scope != Scope::PacketHeader {
            return inside("roles", wrong("expected a UUID in the packet header alone"));
        }
        roles = roles.with(Role::Uuid);
    }
    let media_type = object.text("media-type")?.map(String::from);
    Ok(Type::Blob(Blob { length, media_type, roles }))
}
