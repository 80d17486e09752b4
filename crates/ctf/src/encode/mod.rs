//! Writing: from an event's description and a record's payload to compact CTF 1.8.
//!
//! ```text
//! packet:  header  magic u32 │ uuid [16] │ stream_id u32
//!          context timestamp_begin u64 │ timestamp_end u64 │ content_size u64 │ packet_size u64 │
//!                  packet_seq_num u64 │ events_discarded u64 │ cpu_id u32
//!          events  4 bytes: id 5 bits, timestamp 27 bits; or, where these don't suffice,
//!                  1 byte: 31, then id u32 │ timestamp u64.
//!                  Then vtid i32 (if wanted) │ context fields │ other fields
//!          trailer "TRNG" │ ring_id u32 │ ring_begin u64
//! ```
//!
//! Everything is aligned to bytes and, but for fields of network order, little-endian. The trailer says which bytes of which ring a packet
//! holds, so that whoever goes on after a crash knows where; it lies between the content's end and the
//! packet's, where readers look at nothing (a field of its own would be printed with every event, or
//! warned of). This module makes bytes; files are somebody else's.

mod packet;
mod payload;

use tompion_schema::{self as schema, Event};

use crate::meaning::Meaning;
use crate::metadata::{
    self, Base, ByteOrder, Clock, Encoding, Enum, EnvironmentValue, Field, Float, Integer, Mapping,
    Reference, Scope, Stream, Struct, Trace, Type, Uuid, Variant,
};

pub use packet::{Origin, Packet, PacketInfo, Record, index_entry, index_header};
pub use payload::{Misfit, Plan};

/// Event numbers from here on need the long header.
const COMPACT_IDS: u32 = 31;
/// Bits of a short header's timestamp.
const COMPACT_BITS: u32 = 27;
/// Name of the clock in the metadata.
const CLOCK: &str = "monotonic";
/// Byte order of everything that is written.
const ORDER: ByteOrder = ByteOrder::Little;

/// A source of events, as its metadata describes it.
#[derive(Clone, Debug)]
pub struct Source {
    /// Distinguishes this trace from all others.
    pub uuid: Uuid,
    /// The environment, in order.
    pub environment: Vec<(String, EnvironmentValue)>,
    /// Distinguishes this boot of this machine, so that readers know which clocks are one.
    pub clock_uuid: Option<Uuid>,
    /// CLOCK_REALTIME minus CLOCK_MONOTONIC, in nanoseconds.
    pub clock_offset_ns: i64,
    /// How exact timestamps are, in nanoseconds.
    pub clock_precision_ns: u64,
    /// Whether events carry the id of their thread.
    pub tid: bool,
}

/// The metadata of a source whose event classes have the numbers 0, 1, 2, … in this order.
pub fn metadata(source: &Source, events: &[Event]) -> Trace {
    let clock = Clock {
        uuid: source.clock_uuid,
        description: Some("CLOCK_MONOTONIC, from CLOCK_REALTIME's origin".into()),
        precision: Some(source.clock_precision_ns),
        absolute: true,
        ..Clock::nanoseconds(CLOCK, source.clock_offset_ns)
    };
    let stream = Stream {
        id: 0,
        packet_context: Some(packet_context()),
        event_header: Some(event_header()),
        event_context: source.tid.then(|| Struct::new(vec![Field::new("vtid", Type::signed(32, ORDER))])),
        events: events.iter().zip(0..).map(|(event, id)| event_class(event, id)).collect(),
    };
    Trace {
        byte_order: ORDER,
        uuid: Some(source.uuid),
        environment: source.environment.clone(),
        clocks: vec![clock],
        packet_header: Some(packet_header()),
        streams: vec![stream],
    }
}

fn unsigned(name: &str, bits: u32) -> Field {
    Field::new(name, Type::unsigned(bits, ORDER))
}

fn timestamp(name: &str, bits: u32) -> Field {
    let alignment = if bits % 8 == 0 { 8 } else { 1 };
    let integer = Integer::unsigned(bits, ORDER).with_clock(CLOCK).with_alignment(alignment);
    Field::new(name, Type::Integer(integer))
}

fn packet_header() -> Struct {
    Struct::new(vec![
        unsigned("magic", 32),
        Field::new("uuid", Type::unsigned(8, ORDER).array(16)),
        unsigned("stream_id", 32),
    ])
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
    let variant = Variant {
        selector: Reference { scope: Scope::EventHeader, path: vec!["id".into()] },
        options: vec![
            Field::new("compact", Type::Struct(compact)),
            Field::new("extended", Type::Struct(extended)),
        ],
    };
    Struct::new(vec![Field::new("id", Type::Enum(id)), Field::new("v", Type::Variant(variant))])
}

fn event_class(event: &Event, id: u64) -> metadata::Event {
    let part = |context| {
        let scope = if context { Scope::EventContext } else { Scope::Payload };
        let fields = event.fields.iter().filter(|field| field.context == context);
        Members { scope, path: Vec::new() }.all(fields)
    };
    let context = part(true);
    metadata::Event {
        id,
        name: event.full_name(),
        log_level: Some(event.level.number().into()),
        attributes: Meaning::of(event).to_attribute().into_iter().collect(),
        context: Some(context).filter(|context| !context.fields.is_empty()),
        payload: Some(part(false)),
    }
}

/// Translates the fields of one structure.
struct Members {
    scope: Scope,
    /// Names of the structures around them.
    path: Vec<String>,
}

impl Members {
    fn all<'a>(&self, members: impl Iterator<Item = &'a schema::Field> + Clone) -> Struct {
        let mut fields = Vec::new();
        for member in members.clone() {
            self.push(&mut fields, members.clone(), member);
        }
        Struct::new(fields)
    }

    fn push<'a>(
        &self,
        fields: &mut Vec<Field>,
        all: impl Iterator<Item = &'a schema::Field> + Clone,
        field: &schema::Field,
    ) {
        let text = Integer { encoding: Encoding::Utf8, ..Integer::unsigned(8, ORDER) };
        let mut sequence = |element: Type| {
            // A field of its own has the length, named as LTTng names it.
            let mut length = format!("_{}_length", field.name);
            while fields.iter().any(|field| field.name == length)
                || all.clone().any(|field| field.name == length)
            {
                length.insert(0, '_');
            }
            fields.push(unsigned(&length, 32));
            let path = self.path.iter().cloned().chain([length]).collect();
            element.sequence(Reference { scope: self.scope, path })
        };
        let ty = match &field.ty {
            schema::Type::Integer(integer) => Type::Integer(integer_type(*integer)),
            schema::Type::Float(bits) => Type::Float(Float::new((*bits).into(), ORDER)),
            schema::Type::Bool => Type::unsigned(8, ORDER),
            schema::Type::String => Type::String(Encoding::Utf8),
            schema::Type::Bytes => sequence(Type::Integer(integer_type(schema::Integer::hex(8)))),
            schema::Type::Array(element, count) => {
                Type::Integer(integer_type(*element)).array((*count).into())
            }
            schema::Type::Sequence(element) => sequence(Type::Integer(integer_type(*element))),
            schema::Type::TextArray(count) => Type::Integer(text).array((*count).into()),
            schema::Type::TextSequence => sequence(Type::Integer(text)),
            schema::Type::Enum(integer, enumeration) => {
                let integer = integer_type(*integer);
                let mappings = enumeration.labels.iter().filter_map(|label| mapping(label, &integer));
                Type::Enum(Enum { mappings: mappings.collect(), integer })
            }
            schema::Type::Struct(members) => {
                let path = self.path.iter().cloned().chain([field.name.clone()]).collect();
                Type::Struct(Self { scope: self.scope, path }.all(members.iter()))
            }
        };
        fields.push(Field::new(&field.name, ty));
    }
}

/// The label as far as the integer has its values; readers refuse others.
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
