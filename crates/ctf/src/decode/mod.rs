//! Decodes bytes to values.
//!
//! A [`Decoder`] is compiled once from a trace's description. It decodes packet headers and
//! contexts ([`Decoder::packet`]), event headers ([`Decoder::event_header`]) and the rest of events
//! ([`Decoder::event_body`]), each from a bit position on, and stores the result in a [`State`].
//! [`Fields`] then iterates over the values; strings and arrays of integers are not copied.
//!
//! ```text
//! packet:  header │ context │ event │ event │ …  (content size) │ padding (packet size)
//! event:   header │ context of the stream's events │ context of the event class │ payload
//! ```
//!
//! Nothing here reads files. A caller that has only a part of a packet passes that part. It must
//! begin at a multiple of [`WINDOW_ALIGNMENT`] bytes from the beginning of the packet. If
//! [`DecodeError::is_cut`] says so, the caller tries again with a larger part.

mod bits;
mod compile;
mod header;
mod packet;
mod pass;
mod plan;
mod run;
mod tally;
#[cfg(test)]
mod tests;
mod text;
mod value;

pub use compile::{CompileError, clock_name};
pub use packet::Packet;
pub use run::{Input, State};
pub use tally::{Back, News, Tally, Watch};
pub use value::{Elements, Fields, Inner, Value, Values, is_characters};

use std::collections::HashMap;

use compile::{Compiler, Filled, Slots};
use header::ShortHeader;
use pass::Pass;
use plan::Plan;
use run::{advance_clock, run};
use value::Bytes;

use crate::metadata::{ByteOrder, Clock, Event, Form, Role, Scope, Stream, Struct, Trace, Version};

/// Required alignment of parts of packets, in bytes.
pub const WINDOW_ALIGNMENT: u64 = 4096;

/// Error in bytes, with its bit position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct DecodeError {
    /// Problem.
    pub problem: Problem,
    /// Position in bits from the beginning of the input.
    pub bit: u64,
}

impl DecodeError {
    /// Whether more bytes could resolve the problem.
    pub fn is_cut(&self) -> bool {
        matches!(self.problem, Problem::Cut { .. } | Problem::NoEnd)
    }
}

/// Describes sizes of a packet in bits that contradict each other.
fn sizes(least: u64, content: u64, packet: u64) -> String {
    if packet < least || packet % 8 != 0 || packet == 0 {
        return format!(
            "expected a packet of whole bytes with at least {least} bits of header and context, found {packet} bits"
        );
    }
    format!("expected content of {least} to {packet} bits (the packet's size), found {content}")
}

/// Problem with bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The content ends inside a value.
    #[error("expected {expected} more bits, found {found}")]
    Cut {
        /// Size of the value in bits.
        expected: u64,
        /// Number of bits left.
        found: u64,
    },
    /// The content ends inside a string.
    #[error("expected the end of a string, found the end of the content")]
    NoEnd,
    /// No event class has this number.
    #[error("expected the number of an event class, found {0}")]
    NoEvent(u64),
    /// No stream class has this number.
    #[error("expected the number of a stream class, found {0}")]
    NoStream(u64),
    /// An integer of variable size has more than 64 bits.
    #[error("expected an integer of at most 64 bits, found a longer one")]
    TooLong,
    /// No option of a variant is selected by this value.
    #[error("expected a value that selects an option, found {0}")]
    NoOption(u64),
    /// Two integers in one byte have different byte orders.
    #[error("expected an integer in {} byte order beside one in the same byte, found the other order", order_name(*expected))]
    MixedByteOrder {
        /// Byte order of the first one.
        expected: ByteOrder,
    },
    /// A text without an end stops inside a code unit of its encoding.
    #[error("expected a text of a multiple of {unit} bytes, or its end, found {size}")]
    HalfUnit {
        /// Size of a code unit in bytes.
        unit: u64,
        /// Size of the text in bytes.
        size: u64,
    },
    /// An array has too many elements without content.
    #[error("expected fewer elements without content, found {0}")]
    TooManyEmpty(u64),
    /// An event has no content, so decoding would repeat it without end.
    #[error("expected an event, found one without a single bit")]
    EmptyEvent,
    /// The packet has another magic number.
    #[error("expected the magic number 0xc1fc1fc1, found {0:#x}")]
    Magic(u64),
    /// A packet of a CTF 2 trace has the UUID of another trace.
    #[error("expected the UUID of the trace, found another one: a packet of another trace")]
    Foreign,
    /// Sizes in the packet's context contradict each other or the size of header and context.
    #[error("{}", sizes(*least, *content, *packet))]
    Sizes {
        /// Size of header and context in bits.
        least: u64,
        /// Size of the content in bits.
        content: u64,
        /// Size of the packet in bits.
        packet: u64,
    },
}

fn order_name(order: ByteOrder) -> &'static str {
    match order {
        ByteOrder::Little => "little-endian",
        ByteOrder::Big => "big-endian",
    }
}

/// Decoder, compiled from a description.
#[derive(Debug)]
pub struct Decoder {
    trace: Trace,
    packet_header: Option<Plan>,
    streams: Vec<StreamDecoder>,
    slots: usize,
}

#[derive(Debug)]
struct StreamDecoder {
    packet_context: Option<Plan>,
    header: Option<Plan>,
    short_header: Option<ShortHeader>,
    context: Option<Plan>,
    events: Vec<EventDecoder>,
    numbers: Numbers,
    clock: Option<usize>,
    carries_clock: bool,
}

#[derive(Debug)]
struct EventDecoder {
    context: Option<Plan>,
    payload: Option<Plan>,
    /// Steps that skip everything after an event's header.
    pass: Pass,
}

/// Map of event classes by number: a table for small numbers, a hash map beyond.
#[derive(Debug, Default)]
struct Numbers {
    table: Vec<u32>,
    map: HashMap<u64, u32>,
}

impl Numbers {
    const TABLE: u64 = 1 << 14;

    fn new(events: &[Event]) -> Self {
        let mut numbers = Self::default();
        for (index, event) in events.iter().enumerate() {
            if event.id >= Self::TABLE {
                numbers.map.insert(event.id, index as u32);
                continue;
            }
            let place = event.id as usize;
            if numbers.table.len() <= place {
                numbers.table.resize(place + 1, u32::MAX);
            }
            if let Some(entry) = numbers.table.get_mut(place) {
                *entry = index as u32;
            }
        }
        numbers
    }

    #[inline]
    fn get(&self, id: u64) -> Option<usize> {
        let found = match usize::try_from(id).ok().and_then(|id| self.table.get(id)) {
            Some(&index) => Some(index).filter(|&index| index != u32::MAX),
            None => self.map.get(&id).copied(),
        };
        found.map(|index| index as usize)
    }
}

/// Decoded header of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventHead {
    /// Index of the event class in [`Stream::events`].
    pub class: usize,
    /// Bit position after the header.
    pub end: u64,
}

/// Positions of the words of an event's structures, and the bit position after the event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventBody {
    context: usize,
    payload: usize,
    /// Bit position after the event.
    pub end: u64,
}

impl Decoder {
    /// Compiles a description.
    pub fn new(trace: Trace) -> Result<Self, CompileError> {
        let slots = Slots::new(&trace);
        let count = slots.count();
        let mut filled = Filled::new();
        let packet_header = plan(&slots, &mut filled, (Scope::PacketHeader, None), &trace.packet_header)?;
        let streams = trace.streams.iter().map(|stream| stream_decoder(&slots, &filled, &trace, stream));
        let streams = streams.collect::<Result<_, _>>()?;
        drop(slots);
        Ok(Self { trace, packet_header, streams, slots: count })
    }

    /// Returns the description.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Returns the first bytes of each packet, if the description has a magic number.
    pub fn magic(&self) -> Option<[u8; 4]> {
        let first = self.trace.packet_header.as_ref()?.fields.first()?;
        let integer = first.ty.as_integer().filter(|integer| integer.bits == 32)?;
        let is_magic = match self.trace.version {
            Version::One => first.name == "magic",
            Version::Two => integer.roles.has(Role::Magic),
        };
        let bytes = match integer.byte_order {
            ByteOrder::Little => packet::MAGIC.to_le_bytes(),
            ByteOrder::Big => packet::MAGIC.to_be_bytes(),
        };
        (is_magic && integer.form == Form::Fixed).then_some(bytes)
    }

    /// Creates a state for one data stream.
    pub fn state(&self) -> State {
        State::new(self.slots)
    }

    /// Returns the class of a stream, by its index in [`Trace::streams`].
    pub fn stream(&self, stream: usize) -> Option<&Stream> {
        self.trace.streams.get(stream)
    }

    /// Returns the clock of a stream's timestamps.
    pub fn clock(&self, stream: usize) -> Option<&Clock> {
        self.trace.clocks.get(self.streams.get(stream)?.clock?)
    }

    /// Whether a stream's events have timestamps.
    pub fn has_clock(&self, stream: usize) -> bool {
        self.clock(stream).is_some()
    }

    /// Decodes the header of the event at `bit` and advances the clock.
    #[inline]
    pub fn event_header(
        &self,
        stream: usize,
        input: Input<'_>,
        bit: u64,
        state: &mut State,
    ) -> Result<EventHead, DecodeError> {
        let Some(decoder) = self.streams.get(stream) else {
            return Err(DecodeError { problem: Problem::NoStream(stream as u64), bit });
        };
        let Some(short) = decoder.short_header.as_ref().and_then(|header| header.read(input, bit)) else {
            return decoder.planned_header(input, bit, state);
        };
        let Some(class) = decoder.numbers.get(short.id) else {
            return Err(DecodeError { problem: Problem::NoEvent(short.id), bit });
        };
        state.clock = advance_clock(state.clock, short.time, short.time_bits);
        state.moment = state.clock;
        Ok(EventHead { class, end: short.end })
    }

    /// Decodes contexts and payload of an event whose header ends at `bit`.
    pub fn event_body(
        &self,
        stream: usize,
        class: usize,
        input: Input<'_>,
        (bit, state): (u64, &mut State),
    ) -> Result<EventBody, DecodeError> {
        self.body::<true>((stream, class), input, bit, state)
    }

    /// Skips contexts and payload of an event like [`Self::event_body`]; its values cannot be read.
    pub fn skip_event_body(
        &self,
        stream: usize,
        class: usize,
        input: Input<'_>,
        (bit, state): (u64, &mut State),
    ) -> Result<EventBody, DecodeError> {
        let event = self.streams.get(stream).and_then(|stream| stream.events.get(class));
        match event.and_then(|event| event.pass.end(input, bit, &mut state.slots)) {
            Some(end) => Ok(EventBody { end, ..EventBody::default() }),
            // The plans handle all other cases and report errors.
            None => self.body::<false>((stream, class), input, bit, state),
        }
    }

    #[inline]
    fn body<const KEEP: bool>(
        &self,
        (stream, class): (usize, usize),
        input: Input<'_>,
        bit: u64,
        state: &mut State,
    ) -> Result<EventBody, DecodeError> {
        let missing = |number: usize| DecodeError { problem: Problem::NoEvent(number as u64), bit };
        let decoder = self.streams.get(stream).ok_or_else(|| missing(class))?;
        let event = decoder.events.get(class).ok_or_else(|| missing(class))?;
        state.begin_event();
        let mut body = EventBody { end: bit, ..EventBody::default() };
        if let Some(plan) = &decoder.context {
            body.end = run::<KEEP>(plan, input, body.end, state)?;
        }
        body.context = state.words.len();
        if let Some(plan) = &event.context {
            body.end = run::<KEEP>(plan, input, body.end, state)?;
        }
        body.payload = state.words.len();
        if let Some(plan) = &event.payload {
            body.end = run::<KEEP>(plan, input, body.end, state)?;
        }
        Ok(body)
    }

    /// Returns the clock value at the last decoded header, in cycles.
    #[inline]
    pub fn cycles(&self, state: &State) -> u64 {
        state.moment
    }

    /// Returns the fields of the context that all events of the stream share.
    pub fn stream_context<'a>(&'a self, stream: usize, input: Input<'a>, state: &'a State) -> Fields<'a> {
        let root = self.stream(stream).and_then(|stream| stream.event_context.as_ref());
        fields(root, &state.words, 0, state.bytes(input))
    }

    /// Returns the values of both contexts and the payload, in order.
    #[inline]
    pub fn values<'a>(&self, input: Input<'a>, state: &'a State) -> Values<'a> {
        Values::new(&state.words, state.bytes(input))
    }

    /// Returns the fields of the context of the event's class.
    pub fn event_context<'a>(
        &'a self,
        (stream, class): (usize, usize),
        body: EventBody,
        input: Input<'a>,
        state: &'a State,
    ) -> Fields<'a> {
        let event = self.stream(stream).and_then(|stream| stream.events.get(class));
        fields(event.and_then(|event| event.context.as_ref()), &state.words, body.context, state.bytes(input))
    }

    /// Returns the event's own fields.
    pub fn payload<'a>(
        &'a self,
        (stream, class): (usize, usize),
        body: EventBody,
        input: Input<'a>,
        state: &'a State,
    ) -> Fields<'a> {
        let event = self.stream(stream).and_then(|stream| stream.events.get(class));
        fields(event.and_then(|event| event.payload.as_ref()), &state.words, body.payload, state.bytes(input))
    }
}

impl StreamDecoder {
    /// Decodes a header of any form.
    fn planned_header(
        &self,
        input: Input<'_>,
        bit: u64,
        state: &mut State,
    ) -> Result<EventHead, DecodeError> {
        state.begin_header();
        let mut end = bit;
        let mut id = None;
        if let Some(plan) = &self.header {
            end = run::<false>(plan, input, bit, state)?;
            id = state.role(Role::EventId);
            state.words.clear();
        }
        state.moment = state.clock;
        let class = match id {
            Some(id) => self.numbers.get(id),
            None if self.events.len() == 1 => Some(0),
            None => self.numbers.get(0),
        };
        match class {
            Some(class) => Ok(EventHead { class, end }),
            None => Err(DecodeError { problem: Problem::NoEvent(id.unwrap_or(0)), bit }),
        }
    }
}

fn fields<'a>(root: Option<&'a Struct>, words: &'a [u64], first: usize, bytes: Bytes<'a>) -> Fields<'a> {
    let names = root.map_or(&[][..], |structure| structure.fields.as_slice());
    Fields::new(names, words.get(first..).unwrap_or_default(), bytes)
}

fn plan<'t>(
    slots: &Slots<'t>,
    filled: &mut Filled<'t>,
    root: (Scope, Option<&'t str>),
    structure: &'t Option<Struct>,
) -> Result<Option<Plan>, CompileError> {
    structure.as_ref().map(|structure| Compiler::compile(slots, filled, root, structure)).transpose()
}

fn stream_decoder<'t>(
    slots: &Slots<'t>,
    filled: &Filled<'t>,
    trace: &'t Trace,
    stream: &'t Stream,
) -> Result<StreamDecoder, CompileError> {
    let mut filled = filled.clone();
    compile::check_clocks(stream)?;
    let clock = clock_name(stream);
    let packet_context = plan(slots, &mut filled, (Scope::PacketContext, clock), &stream.packet_context)?;
    let header = plan(slots, &mut filled, (Scope::EventHeader, clock), &stream.event_header)?;
    let context = plan(slots, &mut filled, (Scope::StreamEventContext, clock), &stream.event_context)?;
    let mut events = Vec::with_capacity(stream.events.len());
    for event in &stream.events {
        let mut filled = filled.clone();
        let own = plan(slots, &mut filled, (Scope::EventContext, clock), &event.context)?;
        let payload = plan(slots, &mut filled, (Scope::Payload, clock), &event.payload)?;
        let pass = Pass::over(&[context.as_ref(), own.as_ref(), payload.as_ref()]);
        events.push(EventDecoder { context: own, payload, pass });
    }
    let numbers = Numbers::new(&stream.events);
    let short_header = stream.event_header.as_ref().and_then(|header| ShortHeader::of(header, trace.version));
    let short_header = short_header.filter(|_| !slots.header_is_referred_to());
    let clock = clock.and_then(|name| trace.clocks.iter().position(|clock| clock.name == name));
    let carries_clock = compile::carries_clock(stream, trace.version);
    Ok(StreamDecoder { packet_context, header, short_header, context, events, numbers, clock, carries_clock })
}
