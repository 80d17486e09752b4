//! Writes packets of the new trace.

use super::Transcript;
use super::bits::Bits;
use super::shape::{Misfit, Shape, StreamShape};
use tompion_ctf::decode::{Fields, Packet};
use tompion_ctf::encode::{COMPACT_BITS, COMPACT_IDS, PACKET_MAGIC};
use tompion_ctf::metadata::{ByteOrder, Role};

const ORDER: ByteOrder = ByteOrder::Little;

/// Writer of packets.
#[derive(Debug)]
pub struct Writer<'t> {
    transcript: &'t Transcript,
    stream: Option<&'t StreamShape>,
    bits: Bits,
    /// Size of header and context in bits.
    head: u64,
    /// Byte position of the packet's own properties in the context.
    frame: usize,
    /// Clock value known to a reader at this point, if any.
    clock: Option<u64>,
    events: u64,
}

/// Properties of a new packet that are not taken from the source packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// Begin time in cycles, if already known.
    pub begin: Option<u64>,
    /// Number of the stream within its class.
    pub instance: Option<u64>,
}

/// Times and counters of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Begin time in cycles.
    pub begin: u64,
    /// End time in cycles.
    pub end: u64,
    /// Sequence number of the packet in its stream.
    pub sequence: u64,
    /// Number of discarded events in the stream up to the packet's end.
    pub discarded: u64,
}

impl Transcript {
    /// Creates a writer for the packets of this trace.
    pub fn writer(&self) -> Writer<'_> {
        Writer {
            transcript: self,
            stream: None,
            bits: Bits::default(),
            head: 0,
            frame: 0,
            clock: None,
            events: 0,
        }
    }
}

impl<'t> Writer<'t> {
    /// Begins a packet like one of the source trace, with the same context fields.
    ///
    /// # Errors
    ///
    /// Fails if the values don't have the types of the source trace's description.
    pub fn begin(&mut self, packet: &Packet, start: Start, context: Fields<'_>) -> Result<(), Misfit> {
        let stream = self.transcript.streams.get(packet.stream).ok_or(Misfit)?;
        self.stream = Some(stream);
        let frame = &stream.frame;
        let bits = &mut self.bits;
        bits.clear();
        bits.put(PACKET_MAGIC.into(), 32, ORDER);
        bits.put_bytes(frame.uuid.as_ref().map_or(&[][..], |uuid| uuid));
        bits.put(frame.id, 64, ORDER);
        if frame.has_instance {
            bits.put(start.instance.unwrap_or(0), 64, ORDER);
        }
        bits.align(stream.packet_context_alignment);
        self.frame = (bits.len() / 8) as usize;
        frame.context.iter().for_each(|_| bits.put(0, 64, ORDER));
        let mut shapes = stream.packet_context.iter();
        for (_, value) in context {
            if let Some(shape) = shapes.next().ok_or(Misfit)? {
                shape.put(value, bits)?;
            }
        }
        self.head = bits.len();
        self.restart(start.begin);
        Ok(())
    }

    /// Begins another packet with the header and context of the last one.
    pub fn begin_again(&mut self, begin: u64) {
        self.bits.truncate(self.head);
        self.restart(Some(begin));
    }

    fn restart(&mut self, begin: Option<u64>) {
        self.events = 0;
        let says_begin =
            self.stream.is_some_and(|stream| stream.frame.context.contains(&Role::TimestampBegin));
        self.clock = begin.filter(|_| says_begin);
    }

    /// Returns the size of the packet so far, in bytes.
    pub fn len(&self) -> u64 {
        self.bits.len().div_ceil(8)
    }

    /// Whether the packet has no events.
    pub fn is_empty(&self) -> bool {
        self.events == 0
    }

    /// Appends an event; nothing is appended on error.
    ///
    /// `class` is its index among the event classes of the packet's stream, and `time` is in cycles
    /// of its clock. The fields are those of the stream's context, of the event's context, and its
    /// own.
    ///
    /// # Errors
    ///
    /// Fails if the values don't have the types of the source trace's description.
    pub fn push(&mut self, class: usize, time: u64, fields: [Fields<'_>; 3]) -> Result<(), Misfit> {
        let stream = self.stream.ok_or(Misfit)?;
        let (id, context, payload) = stream.events.get(class).ok_or(Misfit)?;
        let begin = self.bits.len();
        self.header(*id, time, stream.frame.clock.is_some());
        let shapes = [&stream.event_context, context, payload];
        let put = |bits: &mut Bits, (shape, fields): (&Option<Shape>, Fields<'_>)| match shape {
            Some(shape) => shape.put_fields(fields, bits),
            None => Ok(()),
        };
        let result = shapes.into_iter().zip(fields).try_for_each(|part| put(&mut self.bits, part));
        if result.is_err() {
            self.bits.truncate(begin);
            return result;
        }
        self.clock = Some(time);
        self.events += 1;
        Ok(())
    }

    fn header(&mut self, id: u64, time: u64, has_clock: bool) {
        self.bits.align(8);
        if !has_clock {
            return self.bits.put(id, 64, ORDER);
        }
        let since = self.clock.and_then(|clock| time.checked_sub(clock));
        if id < COMPACT_IDS.into() && since.is_some_and(|since| since < 1 << COMPACT_BITS) {
            self.bits.put(id | (time << (32 - COMPACT_BITS)), 32, ORDER);
        } else {
            self.bits.put(COMPACT_IDS.into(), 8, ORDER);
            self.bits.put(id, 64, ORDER);
            self.bits.put(time, 64, ORDER);
        }
    }

    /// Completes the packet and returns its bytes, which are valid until the next one is begun.
    pub fn finish(&mut self, times: Times) -> &[u8] {
        let content = self.bits.len();
        self.bits.align(8);
        let packet = self.bits.len();
        let roles = self.stream.map_or(&[][..], |stream| &stream.frame.context);
        for (index, role) in roles.iter().enumerate() {
            let value = match role {
                Role::ContentSize => content,
                Role::PacketSize => packet,
                Role::TimestampBegin => times.begin,
                Role::TimestampEnd => times.end,
                Role::SequenceNumber => times.sequence,
                _ => times.discarded,
            };
            self.bits.patch(self.frame + index * 8, value);
        }
        self.bits.bytes()
    }
}
