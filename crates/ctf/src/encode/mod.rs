//! Encodes Tompion's own traces: from an event's description and a record's payload to compact CTF
//! 1.8.
//!
//! ```text
//! packet:  header  magic u32 │ uuid [16] │ stream_id u32
//!          context timestamp_begin u64 │ timestamp_end u64 │ content_size u64 │ packet_size u64 │
//!                  packet_seq_num u64 │ events_discarded u64 │ cpu_id u32
//!          events  4 bytes: id 5 bits, timestamp 27 bits; or, where these don't suffice,
//!                  1 byte: 31, then id u32 │ timestamp u64.
//!                  Then vtid i32 (if wanted) │ context fields │ other fields
//!          trailer "TRNG" │ ring_id u32 │ ring_begin u64 │ ring_end u64 │ accounted u64 │
//!                  written u64 │ overwritten u64 │ refused u64 │ missing u64 │ unfinished u64 │
//!                  checksum u64
//! ```
//!
//! Everything is byte-aligned and little-endian, except fields in network order.
//!
//! The trailer states which bytes of which ring a packet contains, and what became of the ring's
//! events up to its end. Recovery after a crash reads it to continue the stream ([`Resumed`]). It
//! is located between the end of the content and the end of the packet, which readers ignore; a
//! field would be printed with every event, or cause a warning.
//!
//! This module creates bytes; writing files is left to the session.

mod packet;
mod payload;
mod resume;

use tompion_schema::{self as schema, Event};

use crate::event_kind::EventKindInfo;
use crate::metadata::{
    self, Base, ByteOrder, Clock, Details, Encoding, Enum, EnvironmentValue, Field, Float, Integer, Mapping,
    Reference, Scope, Stream, Struct, Trace, Type, Uuid, Variant, Version,
};

pub use packet::{Origin, PACKET_MAGIC, Packet, PacketInfo, Record, Tally, index_entry, index_header};
pub use payload::{Misfit, Plan};
pub use resume::{
    Broken, HEAD_SIZE, Head, PacketChecksum, Resumed, TRAILER_SIZE, is_intact, is_trailer, read_head,
    read_trailer, seal,
};

/// Event numbers from this one on need the long header.
pub const COMPACT_IDS: u32 = 31;
/// Number of timestamp bits in a short header.
pub const COMPACT_BITS: u32 = 27;
/// Name of the clock in the metadata.
const CLOCK: &str = "monotonic";
/// Byte order of everything that is written.
const ORDER: ByteOrder = ByteOrder::Little;

/// Source of events, as described by its metadata.
#[derive(Clone, Debug)]
pub struct Source {
    /// Unique id of the trace.
    pub uuid: Uuid,
    /// Environment, in order.
    pub environment: Vec<(String, EnvironmentValue)>,
    /// Id of this boot of this machine, by which readers recognize the same clock.
    pub clock_uuid: Option<Uuid>,
    /// CLOCK_REALTIME minus CLOCK_MONOTONIC, in nanoseconds.
    pub clock_offset_ns: i64,
    /// Precision of timestamps, in nanoseconds.
    pub clock_precision_ns: u64,
    /// Whether packets have the number of their stream, by which readers join files of several
    /// folders.
    pub numbers_streams: bool,
    /// Whether events have the id of their thread.
    pub tid: bool,
    /// Further context fields of the thread, in order.
    pub context: Vec<ContextField>,
}

/// Context field that precedes the fields of all events of a source.
#[derive(Clone, Debug)]
pub struct ContextField(Field);

impl ContextField {
    /// Creates a signed integer field of this many bits.
    pub fn signed(name: &str, bits: u32) -> Self {
        Self(Field::new(name, Type::signed(bits, ORDER)))
    }

    /// Creates an unsigned integer field of this many bits.
    pub fn unsigned(name: &str, bits: u32) -> Self {
        Self(unsigned(name, bits))
    }

    /// Creates a NUL-terminated text field.
    pub fn text(name: &str) -> Self {
        Self(Field::new(name, Type::String(Encoding::Utf8)))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }
}

/// Creates the metadata of a source whose event classes are numbered 0, 1, 2, … in this order.
pub fn metadata(source: &Source, events: &[Event]) -> Trace {
    metadata_of_classes(source, events.iter().zip(0..).map(|(event, id)| event_class(event, id)).collect())
}

/// Creates the metadata of a source with these event classes, which are numbered 0, 1, 2, …
pub fn metadata_of_classes(source: &Source, classes: Vec<metadata::Event>) -> Trace {
    let clock = Clock {
        uuid: source.clock_uuid,
        description: Some("CLOCK_MONOTONIC, from CLOCK_REALTIME's origin".into()),
        precision: Some(source.clock_precision_ns),
        absolute: true,
        ..Clock::nanoseconds(CLOCK, source.clock_offset_ns)
    };
    let stream = Stream {
        name: None,
        details: Details::default(),
        id: 0,
        packet_context: Some(packet_context()),
        event_header: Some(event_header()),
        event_context: event_context(source),
        events: classes,
    };
    Trace {
        version: Version::One,
        identity: None,
        attributes: None,
        byte_order: ORDER,
        uuid: Some(source.uuid),
        environment: source.environment.clone(),
        clocks: vec![clock],
        packet_header: Some(packet_header(source.numbers_streams)),
        streams: vec![stream],
    }
}

fn event_context(source: &Source) -> Option<Struct> {
    let tid = source.tid.then(|| Field::new("vtid", Type::signed(32, ORDER)));
    let others = source.context.iter().map(|ContextField(field)| field.clone());
    let fields: Vec<Field> = tid.into_iter().chain(others).collect();
    (!fields.is_empty()).then(|| Struct::new(fields))
}

fn unsigned(name: &str, bits: u32) -> Field {
    Field::new(name, Type::unsigned(bits, ORDER))
}

fn timestamp(name: &str, bits: u32) -> Field {
    let alignment = if bits % 8 == 0 { 8 } else { 1 };
    let integer = Integer::unsigned(bits, ORDER).with_clock(CLOCK).with_alignment(alignment);
    Field::new(name, Type::Integer(integer))
}

/// The header has the same size in both forms.
fn packet_header(numbers_streams: bool) -> Struct {
    let mut fields = vec![unsigned("magic", 32), Field::new("uuid", Type::unsigned(8, ORDER).array(16))];
    match numbers_streams {
        true => fields.extend([unsigned("stream_id", 8), unsigned("stream_instance_id", 24)]),
        false => fields.push(unsigned("stream_id", 32)),
    }
    Struct::new(fields)
}

fn packet_context() -> Struct {
    Struct::new(vec![
        timestamp("timestamp_begin", 64),
        timestamp("timestamp_end", 64),
        unsigned("content_size", 64),
        unsigned("packet_size", 64),
        unsigned("packet_seq_num", 64),
        unsigned("events_discarded", 64),
        unsigned("cpu_id", 32),
    ])
}

fn event_header() -> Struct {
    let id = Enum {
        integer: Integer::unsigned(5, ORDER),
        mappings: vec![
            Mapping { label: "compact".into(), low: 0, high: i128::from(COMPACT_IDS) - 1 },
            Mapping { label: "extended".into(), low: COMPACT_IDS.into(), high: COMPACT_IDS.into() },
        ],
    };
    let compact = Struct { fields: vec![timestamp("timestamp", COMPACT_BITS)], alignment: 1 };
    let extended = Struct::new(vec![unsigned("id", 32), timestamp("timestamp", 64)]);
    let variant = Variant::of_labels(
        Reference { scope: Scope::EventHeader, path: vec!["id".into()] },
        vec![Field::new("compact", Type::Struct(compact)), Field::new("extended", Type::Struct(extended))],
    );
    Struct::new(vec![Field::new("id", Type::Enum(id)), Field::new("v", Type::Variant(variant))])
}

/// Converts an event's description to an event class with this number.
pub fn event_class(event: &Event, id: u64) -> metadata::Event {
    let part = |context| {
        let scope = if context { Scope::EventContext } else { Scope::Payload };
        let fields: Vec<_> = event.fields.iter().filter(|field| is_context(field) == context).collect();
        Members { scope, path: Vec::new(), all: &fields, fields: Vec::new() }.build()
    };
    let context = part(true);
    metadata::Event {
        id,
        details: Details::default(),
        name: event.full_name(),
        log_level: Some(event.level.number().into()),
        attributes: EventKindInfo::attribute_of(event).into_iter().collect(),
        context: Some(context).filter(|context| !context.fields.is_empty()),
        payload: Some(part(false)),
    }
}

/// Whether a field belongs to the event's context. Sequences don't: babeltrace2 2.0.4 aborts with a
/// failed assertion if a sequence refers to a length in the same context.
fn is_context(field: &schema::Field) -> bool {
    fn has_sequence(ty: &schema::Type) -> bool {
        match ty {
            schema::Type::Bytes | schema::Type::Sequence(_) => true,
            schema::Type::Struct(members) => members.iter().any(|member| has_sequence(&member.ty)),
            _ => false,
        }
    }
    field.context && !has_sequence(&field.ty)
}

/// Translator of the fields of one structure.
struct Members<'a> {
    scope: Scope,
    /// Names of the enclosing structures.
    path: Vec<String>,
    all: &'a [&'a schema::Field],
    /// Fields translated so far.
    fields: Vec<Field>,
}

impl Members<'_> {
    fn build(mut self) -> Struct {
        for field in self.all {
            let name = self.name(field);
            let ty = self.ty(field, &name);
            self.fields.push(Field { name, ty });
        }
        Struct::new(self.fields)
    }

    fn ty(&mut self, field: &schema::Field, name: &str) -> Type {
        match &field.ty {
            schema::Type::Integer(integer) => Type::Integer(integer_type(*integer)),
            schema::Type::Float(bits) => Type::Float(Float::new((*bits).into(), ORDER)),
            schema::Type::Bool => Type::unsigned(8, ORDER),
            // Text up to its NUL is a string, which needs no length and is allowed in a context.
            schema::Type::String | schema::Type::TextSequence => Type::STRING,
            schema::Type::Bytes => self.sequence(name, schema::Integer::hex(8)),
            schema::Type::Sequence(element) => self.sequence(name, *element),
            schema::Type::Array(element, count) => {
                Type::Integer(integer_type(*element)).array((*count).into())
            }
            schema::Type::TextArray(count) => {
                let byte = Integer { encoding: Encoding::Utf8, ..Integer::unsigned(8, ORDER) };
                Type::Integer(byte).array((*count).into())
            }
            schema::Type::Enum(integer, enumeration) => enum_type(*integer, enumeration),
            schema::Type::Struct(members) => {
                let all: Vec<_> = members.iter().collect();
                let path = self.inside(name);
                Type::Struct(Members { scope: self.scope, path, all: &all, fields: Vec::new() }.build())
            }
        }
    }

    fn inside(&self, name: &str) -> Vec<String> {
        self.path.iter().cloned().chain([name.to_owned()]).collect()
    }

    /// Adds a length field, and returns the sequence that refers to it.
    fn sequence(&mut self, name: &str, element: schema::Integer) -> Type {
        let length = self.length_name(name);
        self.fields.push(unsigned(&length, 32));
        let reference = Reference { scope: self.scope, path: self.inside(&length) };
        Type::Integer(integer_type(element)).sequence(reference)
    }

    /// Returns a field's name. babeltrace2 2.0.4 confuses `x` with a preceding `_x`, and then
    /// refuses the trace.
    fn name(&self, field: &schema::Field) -> String {
        let mut name = field.name.clone();
        let is_twin = |name: &str| self.fields.iter().any(|other| is_twin(&other.name, name));
        let is_taken = |name: &str| {
            self.fields.iter().any(|other| other.name == name)
                || self.all.iter().any(|other| other.name == name)
        };
        while is_twin(&name) || name != field.name && is_taken(&name) {
            name.push('_');
        }
        name
    }

    /// Returns the name of a sequence's length field: LTTng's, unless another field has it.
    fn length_name(&self, name: &str) -> String {
        let mut length = format!("_{name}_length");
        let clash =
            |other: &str, length: &str| other == length || is_twin(other, length) || is_twin(length, other);
        while self.fields.iter().any(|other| clash(&other.name, &length))
            || self.all.iter().any(|other| clash(&other.name, &length))
        {
            length.push('_');
        }
        length
    }
}

/// Whether the first name is the second with a `_` prefix.
fn is_twin(first: &str, second: &str) -> bool {
    first.strip_prefix('_') == Some(second)
}

/// Converts an enumeration, or an integer if no label remains, because readers refuse an
/// enumeration without labels.
fn enum_type(integer: schema::Integer, enumeration: &schema::Enumeration) -> Type {
    let integer = integer_type(integer);
    let mappings = enumeration.labels.iter().filter_map(|label| mapping(label, &integer));
    let mappings: Vec<Mapping> = mappings.collect();
    if mappings.is_empty() { Type::Integer(integer) } else { Type::Enum(Enum { integer, mappings }) }
}

/// Limits a label to the integer's range; readers refuse other values.
fn mapping(label: &schema::Label, integer: &Integer) -> Option<Mapping> {
    let (least, most) = integer.range();
    let (low, high) = (label.low.max(least), label.high.min(most));
    (low <= high).then(|| Mapping { label: label.name.clone(), low, high })
}

fn integer_type(integer: schema::Integer) -> Integer {
    let base = if integer.hex { Base::Hexadecimal } else { Base::Decimal };
    let order = if integer.network { ByteOrder::Big } else { ORDER };
    let bits = u32::from(integer.bits);
    let ty = if integer.signed { Integer::signed(bits, order) } else { Integer::unsigned(bits, order) };
    ty.with_base(base)
}
