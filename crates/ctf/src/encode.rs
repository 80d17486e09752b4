//! Writing: from an event's description and a record's payload to compact CTF 1.8.
//!
//! ```text
//! packet:  header  magic u32 │ uuid [16] │ stream_id u32
//!          context timestamp_begin u64 │ timestamp_end u64 │ content_size u64 │ packet_size u64 │
//!                  packet_seq_num u64 │ events_discarded u64 │ cpu_id u32
//!          events  4 bytes: id 5 bits, timestamp 27 bits; or, where these don't suffice,
//!                  1 byte: 31, then id u32 │ timestamp u64. Then vtid i32 (if wanted) │ fields
//!          trailer "TRNG" │ ring_id u32 │ ring_begin u64
//! ```
//!
//! Everything is little-endian and aligned to bytes. The trailer says which bytes of which ring a packet
//! holds, so that whoever goes on after a crash knows where; it lies between the content's end and the
//! packet's, where readers look at nothing (a field of its own would be printed with every event, or
//! warned of). This module makes bytes; files are somebody else's.

use tompion_schema::{self as schema, Event};

use crate::metadata::{
    self, Base, ByteOrder, Clock, Encoding, Enum, EnvironmentValue, Field, Float, Integer, Mapping,
    Reference, Scope, Stream, Struct, Trace, Type, Uuid, Variant,
};

/// First word of every packet (CTF 1.8, section 5.1).
const PACKET_MAGIC: u32 = 0xc1fc_1fc1;
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
        attributes: Vec::new(),
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

/// How to encode one event's payload: compiled once, followed for each record.
#[derive(Clone, Debug)]
pub struct Plan {
    steps: Vec<(Step, bool)>,
    fixed_size: usize,
    /// Whether some fields are context, which a trace has before the others.
    context: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// These bytes of the fixed part stand as they are.
    Fixed(usize),
    /// Text, from the tails; its length from the fixed part.
    Text,
    /// Elements of this size from the tails, behind their number, from the fixed part.
    Sequence(usize),
    /// These bytes from the tails.
    Array(usize),
}

/// A payload that doesn't fit its description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misfit;

impl Plan {
    /// Compiles the plan of an event.
    pub fn new(event: &Event) -> Self {
        let mut plan = Self {
            steps: Vec::new(),
            fixed_size: event.fixed_size(),
            context: event.fields.iter().any(|field| field.context),
        };
        for field in &event.fields {
            plan.push(&field.ty, field.context);
        }
        plan
    }

    fn push(&mut self, ty: &schema::Type, context: bool) {
        let step = match ty {
            schema::Type::String => Step::Text,
            schema::Type::Bytes | schema::Type::TextSequence => Step::Sequence(1),
            schema::Type::Sequence(element) => Step::Sequence(element.size()),
            schema::Type::Array(element, count) => {
                Step::Array(element.size().saturating_mul(*count as usize))
            }
            schema::Type::TextArray(count) => Step::Array(*count as usize),
            schema::Type::Struct(members) => {
                return members.iter().for_each(|member| self.push(&member.ty, context));
            }
            fixed => Step::Fixed(fixed.fixed_size()),
        };
        match (self.steps.last_mut(), step) {
            (Some((Step::Fixed(before), of)), Step::Fixed(size)) if *of == context => *before += size,
            (_, step) => self.steps.push((step, context)),
        }
    }

    /// Appends a record's payload to `out`. Nothing is appended on error.
    #[inline]
    pub fn encode(&self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), Misfit> {
        let (fixed, tails) = payload.split_at_checked(self.fixed_size).ok_or(Misfit)?;
        if let [(Step::Fixed(_), _)] = self.steps[..] {
            out.extend_from_slice(fixed);
            return Ok(());
        }
        let start = out.len();
        let parts: &[bool] = if self.context { &[true, false] } else { &[false] };
        let mut parts = parts.iter();
        parts
            .try_for_each(|&part| self.encode_part(part, fixed, tails, out))
            .inspect_err(|_| out.truncate(start))
    }

    /// Appends the context, or the other fields.
    fn encode_part(
        &self,
        part: bool,
        mut fixed: &[u8],
        mut tails: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Misfit> {
        for &(step, context) in &self.steps {
            let (count, bytes) = match step {
                Step::Fixed(size) => (None, take(&mut fixed, size)?),
                Step::Array(size) => (None, take(&mut tails, size)?),
                Step::Text => {
                    let text = take(&mut tails, take_count(&mut fixed)?)?;
                    // The program may have put a NUL into the text after its length was taken.
                    let end = memchr::memchr(0, text).unwrap_or(text.len());
                    (None, &text[..end])
                }
                Step::Sequence(element) => {
                    let count = take_count(&mut fixed)?;
                    (Some(count), take(&mut tails, count.checked_mul(element).ok_or(Misfit)?)?)
                }
            };
            if context != part {
                continue;
            }
            if let Some(count) = count {
                out.extend_from_slice(&(count as u32).to_le_bytes());
            }
            out.extend_from_slice(bytes);
            if step == Step::Text {
                out.push(0);
            }
        }
        Ok(())
    }
}

#[inline]
fn take<'a>(bytes: &mut &'a [u8], size: usize) -> Result<&'a [u8], Misfit> {
    let (head, rest) = bytes.split_at_checked(size).ok_or(Misfit)?;
    *bytes = rest;
    Ok(head)
}

#[inline]
fn take_count(fixed: &mut &[u8]) -> Result<usize, Misfit> {
    let bytes = take(fixed, 4)?.try_into().map_err(|_| Misfit)?;
    Ok(u32::from_le_bytes(bytes) as usize)
}

/// One event to be encoded.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Number of the event class.
    pub id: u32,
    /// Nanoseconds of CLOCK_MONOTONIC, not before the event before.
    pub time: u64,
    /// The writing thread.
    pub tid: u32,
    /// Fixed part and tails.
    pub payload: &'a [u8],
}

/// Where a packet's bytes come from, and what was lost until its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Number of the ring.
    pub ring_id: u32,
    /// Position of the packet's first byte in the ring.
    pub ring_begin: u64,
    /// The CPU.
    pub cpu: u32,
    /// Number of the packet in its stream.
    pub sequence: u64,
    /// Events lost in this stream until the end of the packet.
    pub discarded: u64,
}

/// What an index says about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketInfo {
    /// Size in bytes, with the trailer.
    pub size: u64,
    /// Size in bytes up to the end of the last event.
    pub content: u64,
    /// First moment.
    pub begin: u64,
    /// Last moment.
    pub end: u64,
    /// Lost until the end of the packet.
    pub discarded: u64,
    /// Number in the stream.
    pub sequence: u64,
}

/// A packet in the making.
#[derive(Debug)]
pub struct Packet {
    bytes: Vec<u8>,
    uuid: Uuid,
    tid: bool,
    begin: u64,
    last: u64,
    events: u64,
}

/// Sizes of a packet's first two parts.
const HEADER_SIZE: usize = 4 + 16 + 4;
const CONTEXT_SIZE: usize = 6 * 8 + 4;
/// First word of a packet's trailer.
const TRAILER_MAGIC: [u8; 4] = *b"TRNG";
/// Size of the trailer.
const TRAILER_SIZE: u64 = 16;

impl Packet {
    /// An empty packet for streams of this source.
    pub fn new(source: &Source) -> Self {
        let mut packet =
            Self { bytes: Vec::new(), uuid: source.uuid, tid: source.tid, begin: 0, last: 0, events: 0 };
        packet.clear();
        packet
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.resize(HEADER_SIZE + CONTEXT_SIZE, 0);
        self.events = 0;
    }

    /// Bytes so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether the packet has no events.
    pub fn is_empty(&self) -> bool {
        self.events == 0
    }

    /// Number of events so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Appends an event; nothing is appended if its payload doesn't fit the plan.
    #[inline]
    pub fn push(&mut self, record: &Record<'_>, plan: &Plan) -> Result<(), Misfit> {
        let start = self.bytes.len();
        // Not before the last event of the packet before, either.
        let time = record.time.max(self.last);
        let last = if self.events == 0 { time } else { self.last };
        if record.id < COMPACT_IDS && time - last < 1 << COMPACT_BITS {
            let header = record.id | (time as u32) << (32 - COMPACT_BITS);
            self.bytes.extend_from_slice(&header.to_le_bytes());
        } else {
            self.bytes.push(COMPACT_IDS as u8);
            self.bytes.extend_from_slice(&record.id.to_le_bytes());
            self.bytes.extend_from_slice(&time.to_le_bytes());
        }
        if self.tid {
            self.bytes.extend_from_slice(&record.tid.to_le_bytes());
        }
        plan.encode(record.payload, &mut self.bytes).inspect_err(|_| self.bytes.truncate(start))?;
        if self.events == 0 {
            self.begin = time;
        }
        self.last = time;
        self.events += 1;
        Ok(())
    }

    /// Completes the packet, hands its bytes over, and begins the next one.
    ///
    /// `moment` is the time of a packet without events.
    pub fn finish<T>(
        &mut self,
        origin: Origin,
        moment: u64,
        write: impl FnOnce(&[u8], PacketInfo) -> T,
    ) -> T {
        let begin = if self.events == 0 { moment } else { self.begin };
        let end = if self.events == 0 { moment } else { self.last };
        let content = self.bytes.len() as u64;
        let size = content + TRAILER_SIZE;
        self.bytes.extend_from_slice(&TRAILER_MAGIC);
        self.bytes.extend_from_slice(&origin.ring_id.to_le_bytes());
        self.bytes.extend_from_slice(&origin.ring_begin.to_le_bytes());
        let mut place = Place { bytes: &mut self.bytes, at: 0 };
        place.put(&PACKET_MAGIC.to_le_bytes());
        place.put(&self.uuid.0);
        place.put(&0u32.to_le_bytes());
        for word in [begin, end, content * 8, size * 8, origin.sequence, origin.discarded] {
            place.put(&word.to_le_bytes());
        }
        place.put(&origin.cpu.to_le_bytes());
        debug_assert_eq!(place.at, HEADER_SIZE + CONTEXT_SIZE);
        let info =
            PacketInfo { size, content, begin, end, discarded: origin.discarded, sequence: origin.sequence };
        let result = write(&self.bytes, info);
        self.clear();
        result
    }
}

/// Fills in the beginning of a packet.
struct Place<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl Place<'_> {
    fn put(&mut self, value: &[u8]) {
        self.bytes[self.at..self.at + value.len()].copy_from_slice(value);
        self.at += value.len();
    }
}

/// The beginning of an index file (LTTng's `ctf-index.h`, version 1.1; big-endian).
pub fn index_header() -> [u8; 16] {
    let mut bytes = [0; 16];
    for (place, word) in bytes.chunks_exact_mut(4).zip([0xc1f1_dcc1u32, 1, 1, 72]) {
        place.copy_from_slice(&word.to_be_bytes());
    }
    bytes
}

/// An index file's entry for a packet that begins at `offset` of its stream file.
pub fn index_entry(offset: u64, packet: PacketInfo, stream_instance: u64) -> [u8; 72] {
    let bits = packet.size * 8;
    let words =
        [offset, bits, bits, packet.begin, packet.end, packet.discarded, 0, stream_instance, packet.sequence];
    let mut bytes = [0; 72];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_be_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(types: Vec<schema::Type>) -> Event {
        let field = |(index, ty)| schema::Field::new(&format!("f{index}"), ty);
        Event {
            provider: "p".into(),
            name: "e".into(),
            level: schema::Level::DEFAULT,
            kind: schema::Kind::Instant,
            init: false,
            format: None,
            fields: types.into_iter().enumerate().map(field).collect(),
        }
    }

    const U16: schema::Integer = schema::Integer::unsigned(16);

    #[test]
    fn variable_fields_move_from_the_tails_to_their_places() {
        let types = vec![
            schema::Type::Integer(U16),
            schema::Type::String,
            schema::Type::Array(U16, 2),
            schema::Type::Bool,
            schema::Type::Sequence(U16),
        ];
        let plan = Plan::new(&event(types));
        let payload = b"\x01\x02\x03\0\0\0\x01\x02\0\0\0abcWXYZmnop\0\0";
        let mut out = Vec::new();
        plan.encode(payload, &mut out).unwrap();
        assert_eq!(out, b"\x01\x02abc\0WXYZ\x01\x02\0\0\0mnop");
    }

    #[test]
    fn a_text_that_was_changed_meanwhile_ends_at_its_nul() {
        let plan = Plan::new(&event(vec![schema::Type::String, schema::Type::String]));
        let mut out = Vec::new();
        plan.encode(b"\x03\0\0\0\x02\0\0\0a\0cde", &mut out).unwrap();
        assert_eq!(out, b"a\0de\0");
    }

    #[test]
    fn a_length_that_lies_is_refused_and_leaves_nothing() {
        let plan = Plan::new(&event(vec![schema::Type::Integer(U16), schema::Type::Sequence(U16)]));
        for count in [3u32, u32::MAX] {
            let payload = [&[1, 2][..], &count.to_le_bytes(), b"abcd"].concat();
            let mut out = vec![9];
            assert_eq!(plan.encode(&payload, &mut out), Err(Misfit));
            assert_eq!(out, [9]);
        }
    }

    #[test]
    fn the_long_header_stands_where_the_short_one_cannot() {
        let source = Source {
            uuid: Uuid([7; 16]),
            environment: Vec::new(),
            clock_uuid: None,
            clock_offset_ns: 0,
            clock_precision_ns: 1,
            tid: false,
        };
        let plan = Plan::new(&event(Vec::new()));
        let mut packet = Packet::new(&source);
        let empty = packet.len();
        let mut push = |id, time| {
            let before = packet.len();
            packet.push(&Record { id, time, tid: 0, payload: &[] }, &plan).unwrap();
            packet.len() - before
        };
        assert_eq!(push(0, 1 << 40), 4);
        assert_eq!(push(30, (1 << 40) + (1 << 27) - 1), 4);
        assert_eq!(push(30, (1 << 40) + (1 << 28) - 1), 13);
        assert_eq!(push(31, (1 << 40) + (1 << 28)), 13);
        let info = packet.finish(Origin::default(), 0, |bytes, info| {
            assert_eq!(bytes.len() as u64, empty as u64 + 34 + TRAILER_SIZE);
            assert_eq!(info.content, empty as u64 + 34);
            info
        });
        assert_eq!((info.begin, info.end), (1 << 40, (1 << 40) + (1 << 28)));
        assert!(packet.is_empty() && packet.len() == empty);
    }
}
