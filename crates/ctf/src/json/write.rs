//! Writes the model as a description of CTF 2.

use super::attributes::annotate;
use super::fields::{BIT_ORDERS, BYTE_ORDERS, ENCODINGS, ORIGINS};
use super::resolver::LOG_LEVELS;
use super::value::Json;
use super::{OWN_NAMESPACE, RECORD_SEPARATOR};
use crate::metadata::{
    Base, BitArray, Blob, ByteOrder, Clock, Details, Encoding, EnvironmentValue, Event, Field, Float, Form,
    Identity, Integer, Length, Mapping, Optional, Reference, Role, Scope, Selection, Stream, Struct, Text,
    Trace, Type, Variant,
};

/// Writes the description of a trace for readers of CTF 2: fragments after record separators.
///
/// [`super::parse`] reads it back to the same model. The model must be of that version: purposes
/// are given by roles, and options of variants have ranges.
pub fn write(trace: &Trace) -> String {
    let mut text = String::new();
    let mut fragment = |json: Json| {
        text.push(char::from(RECORD_SEPARATOR));
        // Serialization can't fail: keys are texts, and numbers are integers.
        text.push_str(&serde_json::to_string(&json).unwrap_or_default());
        text.push('\n');
    };
    fragment(preamble(trace));
    fragment(trace_class(trace));
    trace.clocks.iter().for_each(|clock| fragment(clock_class(clock)));
    for stream in &trace.streams {
        fragment(stream_class(stream));
        stream.events.iter().for_each(|event| fragment(event_class(stream.id, event)));
    }
    text
}

/// Builder of an object.
struct Entries(Vec<(String, Json)>);

impl Entries {
    fn new(kind: &str) -> Self {
        Self(vec![("type".into(), text(kind))])
    }

    fn with(mut self, name: &str, value: impl Into<Option<Json>>) -> Self {
        self.0.extend(value.into().map(|value| (name.to_owned(), value)));
        self
    }

    fn build(self) -> Json {
        Json::Object(self.0)
    }
}

fn text(text: &str) -> Json {
    Json::Text(text.into())
}

fn number(number: impl Into<i128>) -> Json {
    Json::Integer(number.into())
}

/// Returns the word for a value.
fn word<T: PartialEq>(words: &[(&str, T)], value: &T) -> Option<Json> {
    words.iter().find(|(_, other)| other == value).map(|(word, _)| text(word))
}

fn preamble(trace: &Trace) -> Json {
    let uuid = trace.uuid.map(|uuid| Json::Array(uuid.0.iter().map(|&byte| number(byte)).collect()));
    Entries::new("preamble").with("version", number(2)).with("uuid", uuid).build()
}

fn identity(entries: Entries, identity: Option<&Identity>) -> Entries {
    let part = |part: fn(&Identity) -> &Option<String>| identity.and_then(|it| part(it).as_deref()).map(text);
    entries
        .with("namespace", part(|it| &it.namespace))
        .with("name", part(|it| &it.name))
        .with("uid", part(|it| &it.uid))
}

fn trace_class(trace: &Trace) -> Json {
    let environment = trace.environment.iter().map(|(name, value)| (name.clone(), literal(value)));
    let environment = (!trace.environment.is_empty()).then(|| Json::Object(environment.collect()));
    identity(Entries::new("trace-class"), trace.identity.as_ref())
        .with("attributes", stored(trace.attributes.as_deref()))
        .with("environment", environment)
        .with("packet-header-field-class", root(&trace.packet_header, Scope::PacketHeader))
        .build()
}

fn literal(value: &EnvironmentValue) -> Json {
    match value {
        EnvironmentValue::Integer(value) => number(*value),
        EnvironmentValue::Text(value) => text(value),
    }
}

fn clock_class(clock: &Clock) -> Json {
    let origin = match &clock.origin {
        Some(origin) => Some(identity(Entries(Vec::new()), Some(origin)).build()),
        None => clock.absolute.then(|| text("unix-epoch")),
    };
    // The number of cycles must be less than a second.
    let frequency = i128::from(clock.frequency.max(1));
    let cycles = i128::from(clock.offset_cycles);
    let seconds = i128::from(clock.offset_seconds) + cycles.div_euclid(frequency);
    let offset = Entries(Vec::new())
        .with("seconds", number(seconds.clamp(i64::MIN.into(), i64::MAX.into())))
        .with("cycles", number(cycles.rem_euclid(frequency)));
    let of_one = Identity {
        name: Some(clock.name.clone()),
        uid: clock.uuid.map(|uuid| uuid.to_string()),
        namespace: None,
    };
    let details = clock.details.as_ref();
    identity(Entries::new("clock-class"), Some(details.map_or(&of_one, |details| &details.identity)))
        .with("id", text(&clock.name))
        .with("attributes", stored(details.and_then(|details| details.attributes.as_deref())))
        .with("description", clock.description.as_deref().map(text))
        .with("frequency", number(clock.frequency))
        .with("precision", clock.precision.map(number))
        .with("accuracy", clock.accuracy.map(number))
        .with("offset-from-origin", offset.build())
        .with("origin", origin)
        .build()
}

fn stream_class(stream: &Stream) -> Json {
    let clock = crate::decode::clock_name(stream).map(text);
    Entries::new("data-stream-class")
        .with("id", number(stream.id))
        .with("namespace", stream.details.identity.namespace.as_deref().map(text))
        .with("name", stream.name.as_deref().map(text))
        .with("uid", stream.details.identity.uid.as_deref().map(text))
        .with("attributes", stored(stream.details.attributes.as_deref()))
        .with("default-clock-class-id", clock)
        .with(
            "packet-context-field-class",
            root_of(&stream.details, &stream.packet_context, Scope::PacketContext),
        )
        .with("event-record-header-field-class", root(&stream.event_header, Scope::EventHeader))
        .with(
            "event-record-common-context-field-class",
            root_of(&stream.details, &stream.event_context, Scope::StreamEventContext),
        )
        .build()
}

fn event_class(stream: u64, event: &Event) -> Json {
    Entries::new("event-record-class")
        .with("id", number(event.id))
        .with("data-stream-class-id", number(stream))
        .with("namespace", event.details.identity.namespace.as_deref().map(text))
        .with("name", text(&event.name))
        .with("uid", event.details.identity.uid.as_deref().map(text))
        .with("attributes", attributes(event))
        .with("specific-context-field-class", root_of(&event.details, &event.context, Scope::EventContext))
        .with("payload-field-class", root_of(&event.details, &event.payload, Scope::Payload))
        .build()
}

/// Returns level and attributes: common ones in the namespace of other readers, the rest in
/// Tompion's.
fn attributes(event: &Event) -> Option<Json> {
    const KNOWN: &str = "babeltrace.org,2020";
    let level = |level: i64| {
        let name = LOG_LEVELS.iter().find(|(_, number)| *number == level).map(|(name, _)| text(name));
        name.unwrap_or_else(|| number(level))
    };
    let mut known = Entries(Vec::new()).with("log-level", event.log_level.map(level));
    let mut own = Entries(Vec::new());
    for (name, value) in &event.attributes {
        match name.as_str() {
            "model.emf.uri" => known = known.with("emf-uri", literal(value)),
            name => own = own.with(name, literal(value)),
        }
    }
    let mut namespaces = Entries(Vec::new());
    for (name, entries) in [(KNOWN, known), (OWN_NAMESPACE, own)] {
        namespaces = namespaces.with(name, (!entries.0.is_empty()).then(|| entries.build()));
    }
    if let Some(Json::Object(others)) = stored(event.details.attributes.as_deref()) {
        for (owner, values) in others {
            match (namespaces.0.iter_mut().find(|(name, _)| *name == owner), values) {
                (Some((_, Json::Object(known))), Json::Object(values)) => known.extend(values),
                (Some(_), _) => {}
                (None, values) => namespaces.0.push((owner, values)),
            }
        }
    }
    (!namespaces.0.is_empty()).then(|| namespaces.build())
}

/// Returns attributes that were stored as text.
fn stored(attributes: Option<&str>) -> Option<Json> {
    serde_json::from_str(attributes?).ok()
}

/// Position of a field class.
struct Place {
    scope: Scope,
    /// Names of the enclosing members from the outermost structure on, including its own.
    members: Vec<String>,
    /// Number of these outside of the innermost array.
    before_array: usize,
}

fn root(structure: &Option<Struct>, scope: Scope) -> Option<Json> {
    let mut place = Place { scope, members: Vec::new(), before_array: 0 };
    structure.as_ref().map(|structure| self::structure(structure, &mut place))
}

/// Returns one of the outermost structures with the attributes of its field classes.
fn root_of(details: &Details, structure: &Option<Struct>, scope: Scope) -> Option<Json> {
    let mut class = root(structure, scope)?;
    annotate(&mut class, scope, &details.fields);
    Some(class)
}

fn structure(structure: &Struct, place: &mut Place) -> Json {
    let mut member = |field: &Field| {
        place.members.push(field.name.clone());
        let class = class(&field.ty, place);
        place.members.pop();
        Entries(Vec::new()).with("name", text(&field.name)).with("field-class", class).build()
    };
    Entries::new("structure")
        .with("minimum-alignment", alignment(structure.alignment))
        .with("member-classes", Json::Array(structure.fields.iter().map(&mut member).collect()))
        .build()
}

/// Returns an alignment, unless it is the default.
fn alignment(bits: u32) -> Option<Json> {
    (bits > 1).then(|| number(bits))
}

fn class(ty: &Type, place: &mut Place) -> Json {
    match ty {
        Type::Integer(integer) => self::integer(integer, &[]),
        Type::Enum(enumeration) => self::integer(&enumeration.integer, &enumeration.mappings),
        Type::Boolean(integer) => fixed("fixed-length-boolean", integer).build(),
        Type::Bits(array) => bits(array),
        Type::Float(Float { bits, byte_order, alignment, reversed }) => {
            let form = if *reversed { Form::Reversed } else { Form::Fixed };
            let integer = Integer::unsigned(*bits, *byte_order).with_alignment(*alignment);
            fixed("fixed-length-floating-point-number", &Integer { form, ..integer }).build()
        }
        Type::String(encoding) => {
            Entries::new("null-terminated-string").with("encoding", word_of(*encoding)).build()
        }
        Type::Text(Text { length, encoding }) => {
            sized("string", length, place).with("encoding", word_of(*encoding)).build()
        }
        Type::Blob(Blob { length, media_type, roles }) => {
            let roles: Vec<Json> = roles.iter().filter_map(role_name).map(text).collect();
            sized("blob", length, place)
                .with("media-type", media_type.as_deref().map(text))
                .with("roles", (!roles.is_empty()).then_some(Json::Array(roles)))
                .build()
        }
        Type::Struct(structure) => self::structure(structure, place),
        Type::Variant(variant) => self::variant(variant, place),
        Type::Optional(optional) => self::optional(optional, place),
        Type::Array(array) => sized("array", &Length::Fixed(array.length), place)
            .with("minimum-alignment", alignment(array.alignment))
            .with("element-field-class", element(&array.element, place))
            .build(),
        Type::Sequence(sequence) => sized("array", &Length::Field(sequence.length.clone()), place)
            .with("minimum-alignment", alignment(sequence.alignment))
            .with("element-field-class", element(&sequence.element, place))
            .build(),
    }
}

fn element(element: &Type, place: &mut Place) -> Json {
    let before_array = std::mem::replace(&mut place.before_array, place.members.len());
    let class = class(element, place);
    place.before_array = before_array;
    class
}

fn word_of(encoding: Encoding) -> Option<Json> {
    word(&ENCODINGS, &encoding).filter(|_| encoding != Encoding::Utf8)
}

/// Creates a string, blob or array with its length.
fn sized(kind: &str, length: &Length, place: &Place) -> Entries {
    match length {
        Length::Fixed(length) => {
            Entries::new(&format!("static-length-{kind}")).with("length", number(*length))
        }
        Length::Field(reference) => {
            let location = location(reference, place);
            Entries::new(&format!("dynamic-length-{kind}")).with("length-field-location", location)
        }
    }
}

/// Writes an absolute location. For a field in the same array element, it is relative to the
/// enclosing structure.
fn location(reference: &Reference, place: &Place) -> Json {
    let Place { scope, members, before_array } = place;
    let around = members.split_last().map_or(&[][..], |(_, around)| around);
    let shared = around.iter().zip(&reference.path).take_while(|(one, other)| one == other).count();
    let is_in_element = *before_array > 0 && reference.scope == *scope && shared >= *before_array;
    let (origin, up, down) = match is_in_element {
        true => (None, around.len() - shared, reference.path.get(shared..).unwrap_or_default()),
        false => (word(&ORIGINS, &reference.scope), 0, reference.path.as_slice()),
    };
    let names = std::iter::repeat_n(Json::Null, up).chain(down.iter().map(|name| text(name)));
    Entries(Vec::new()).with("origin", origin).with("path", Json::Array(names.collect())).build()
}

/// Creates a field class with a fixed number of bits.
fn fixed(kind: &str, integer: &Integer) -> Entries {
    let order = match integer.byte_order {
        ByteOrder::Little => ByteOrder::Big,
        ByteOrder::Big => ByteOrder::Little,
    };
    let bit_order = (integer.form == Form::Reversed).then(|| word(&BIT_ORDERS, &order)).flatten();
    Entries::new(kind)
        .with("length", number(integer.bits))
        .with("byte-order", word(&BYTE_ORDERS, &integer.byte_order))
        .with("bit-order", bit_order)
        .with("alignment", alignment(integer.alignment))
}

fn integer(integer: &Integer, mappings: &[Mapping]) -> Json {
    let sign = if integer.signed { "signed" } else { "unsigned" };
    let entries = match integer.form {
        Form::Variable => Entries::new(&format!("variable-length-{sign}-integer")),
        Form::Fixed | Form::Reversed => fixed(&format!("fixed-length-{sign}-integer"), integer),
    };
    let base = match integer.base {
        Base::Binary => Some(2),
        Base::Octal => Some(8),
        Base::Decimal => None,
        Base::Hexadecimal => Some(16),
    };
    let mut roles: Vec<Json> = integer.roles.iter().filter_map(role_name).map(text).collect();
    if integer.clock.is_some()
        && !integer.roles.has(Role::TimestampBegin)
        && !integer.roles.has(Role::TimestampEnd)
    {
        roles.push(text("default-clock-timestamp"));
    }
    entries
        .with("preferred-display-base", base.map(number))
        .with("mappings", (!mappings.is_empty()).then(|| self::mappings(mappings)))
        .with("roles", (!roles.is_empty()).then_some(Json::Array(roles)))
        .build()
}

fn role_name(role: Role) -> Option<&'static str> {
    Some(match role {
        Role::Magic => "packet-magic-number",
        Role::Uuid => "metadata-stream-uuid",
        Role::StreamId => "data-stream-class-id",
        Role::StreamInstance => "data-stream-id",
        Role::TimestampBegin => "default-clock-timestamp",
        Role::TimestampEnd => "packet-end-default-clock-timestamp",
        Role::ContentSize => "packet-content-length",
        Role::PacketSize => "packet-total-length",
        Role::EventsDiscarded => "discarded-event-record-counter-snapshot",
        Role::SequenceNumber => "packet-sequence-number",
        Role::EventId => "event-record-class-id",
    })
}

fn bits(array: &BitArray) -> Json {
    match array.flags.as_slice() {
        [] => fixed("fixed-length-bit-array", &array.integer).build(),
        flags => fixed("fixed-length-bit-map", &array.integer).with("flags", mappings(flags)).build(),
    }
}

/// Writes labels with their ranges, in the order of the first range of each.
fn mappings(mappings: &[Mapping]) -> Json {
    let mut labels: Vec<(String, Json)> = Vec::new();
    for Mapping { label, low, high } in mappings.iter().filter(|mapping| mapping.low <= mapping.high) {
        let range = range((*low, *high));
        match labels.iter_mut().find(|(name, _)| name == label) {
            Some((_, Json::Array(ranges))) => ranges.push(range),
            _ => labels.push((label.clone(), Json::Array(vec![range]))),
        }
    }
    Json::Object(labels)
}

fn range((low, high): (i128, i128)) -> Json {
    Json::Array(vec![number(low), number(high)])
}

fn variant(variant: &Variant, place: &mut Place) -> Json {
    let Selection::Ranges(ranges) = &variant.selection else { return Json::Null };
    let ranges_of = |index: usize| {
        let ranges = ranges.iter().filter(move |range| range.option == index);
        Json::Array(ranges.map(|it| range((it.low, it.high))).collect())
    };
    let selector = location(&variant.selector, place);
    let mut option = |(index, option): (usize, &Field)| {
        Entries(Vec::new())
            .with("name", text(&option.name))
            .with("selector-field-ranges", ranges_of(index))
            .with("field-class", class(&option.ty, place))
            .build()
    };
    Entries::new("variant")
        .with("selector-field-location", selector)
        .with("options", Json::Array(variant.options.iter().enumerate().map(&mut option).collect()))
        .build()
}

fn optional(optional: &Optional, place: &mut Place) -> Json {
    let ranges = optional.ranges.as_ref();
    let ranges = ranges.map(|ranges| Json::Array(ranges.iter().map(|&it| range(it)).collect()));
    Entries::new("optional")
        .with("selector-field-location", location(&optional.selector, place))
        .with("selector-field-ranges", ranges)
        .with("field-class", class(&optional.element, place))
        .build()
}
