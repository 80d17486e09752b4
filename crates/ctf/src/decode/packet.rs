//! Decodes packet headers and contexts.

use super::run::{Input, State, run};
use super::value::Bytes;
use super::{DecodeError, Decoder, Fields, Problem, fields};
use crate::metadata::{Role, Struct, Version};

pub(super) const MAGIC: u32 = 0xc1fc_1fc1;

/// Properties of a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    /// Index of its class in `Trace::streams`.
    pub stream: usize,
    /// Number of the stream within its class.
    pub instance: Option<u64>,
    /// Position of the first event in bits.
    pub header_bits: u64,
    /// Position after the last event in bits; `None` if the packet fills the file.
    pub content_bits: Option<u64>,
    /// Size in bits; `None` if the packet fills the file.
    pub packet_bits: Option<u64>,
    /// Begin time in cycles: the full clock value, of which the packet may store only the lowest
    /// bits.
    pub begin: Option<u64>,
    /// End time in cycles, likewise the full clock value.
    pub end: Option<u64>,
    /// Number of events of the stream discarded before the packet's end.
    pub discarded: Option<u64>,
    /// Sequence number in the stream.
    pub sequence: Option<u64>,
    /// Whether the packet has the UUID of another trace.
    pub is_foreign: bool,
    context: usize,
    words: Vec<u64>,
    texts: Vec<u8>,
}

impl Decoder {
    /// Decodes header and context of the packet at the beginning of the input, and sets the clock
    /// to its begin time. If [`Self::carries_clock`], the previous clock value supplies the missing
    /// bits.
    pub fn packet(&self, input: Input<'_>, state: &mut State) -> Result<Packet, DecodeError> {
        state.begin_header();
        let mut packet = Packet::default();
        let mut end = 0;
        let mut id = None;
        if let Some(plan) = &self.packet_header {
            end = run::<true>(plan, input, 0, state)?;
            let role = |role: Role| state.role(role);
            if let Some(magic) = role(Role::Magic).filter(|&magic| magic != u64::from(MAGIC)) {
                return Err(DecodeError { problem: Problem::Magic(magic), bit: 0 });
            }
            packet.is_foreign = role(Role::Uuid).is_some_and(|place| self.is_foreign(place, input));
            // In CTF 1.8, readers ignore the UUID, so traces with wrong ones may exist.
            if packet.is_foreign && self.trace.version == Version::Two {
                return Err(DecodeError { problem: Problem::Foreign, bit: 0 });
            }
            id = role(Role::StreamId);
            packet.instance = role(Role::StreamInstance);
        }
        let stream = match id {
            Some(id) => self.trace.streams.iter().position(|stream| stream.id == id),
            None if self.streams.len() == 1 => Some(0),
            None => self.trace.streams.iter().position(|stream| stream.id == 0),
        };
        let Some(stream) = stream else {
            return Err(DecodeError { problem: Problem::NoStream(id.unwrap_or(0)), bit: end });
        };
        packet.stream = stream;
        packet.context = state.words.len();
        if !self.carries_clock(stream) {
            state.clock = 0;
        }
        if let Some(plan) = self.streams.get(stream).and_then(|stream| stream.packet_context.as_ref()) {
            end = run::<true>(plan, input, end, state)?;
            let role = |role: Role| state.role(role);
            packet.begin = role(Role::TimestampBegin);
            packet.end = role(Role::TimestampEnd);
            packet.content_bits = role(Role::ContentSize).or(role(Role::PacketSize));
            packet.packet_bits = role(Role::PacketSize).or(packet.content_bits.map(whole_bytes));
            packet.discarded = role(Role::EventsDiscarded);
            packet.sequence = role(Role::SequenceNumber);
        }
        state.moment = state.clock;
        packet.header_bits = end;
        packet.check_sizes()?;
        packet.words.clone_from(&state.words);
        packet.texts.clone_from(&state.texts);
        Ok(packet)
    }

    /// Whether times of a stream's events depend on the clock value after the preceding packet. A
    /// caller that doesn't read all packets in order must set it ([`State::set_clock`]).
    pub fn carries_clock(&self, stream: usize) -> bool {
        self.streams.get(stream).is_some_and(|stream| stream.carries_clock)
    }

    /// Whether the UUID at a position is not that of the trace.
    fn is_foreign(&self, place: u64, input: Input<'_>) -> bool {
        let begin = (place >> 32) as usize;
        let found = input.bytes().get(begin..).and_then(|rest| rest.first_chunk::<16>());
        self.trace.uuid.is_some_and(|expected| found != Some(&expected.0))
    }

    /// Returns the fields of a packet's context; `input` must be the same as when the packet was
    /// decoded.
    pub fn packet_context<'a>(&'a self, packet: &'a Packet, input: Input<'a>) -> Fields<'a> {
        let root: Option<&Struct> =
            self.stream(packet.stream).and_then(|stream| stream.packet_context.as_ref());
        let bytes = Bytes { packet: input.bytes(), texts: &packet.texts };
        fields(root, &packet.words, packet.context, bytes)
    }
}

/// Rounds a size in bits up to bytes.
fn whole_bytes(bits: u64) -> u64 {
    bits.checked_next_multiple_of(8).unwrap_or(bits)
}

impl Packet {
    fn check_sizes(&self) -> Result<(), DecodeError> {
        let (Some(content), Some(packet)) = (self.content_bits, self.packet_bits) else { return Ok(()) };
        let least = self.header_bits;
        if least <= content && content <= packet && packet % 8 == 0 && packet > 0 {
            return Ok(());
        }
        Err(DecodeError { problem: Problem::Sizes { least, content, packet }, bit: 0 })
    }
}
