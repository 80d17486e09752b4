//! Packets and their index.

use super::{
    COMPACT_BITS, COMPACT_IDS, Misfit, Plan, Source,
    payload::Out,
    resume::{TRAILER_SIZE, trailer},
};
use crate::metadata::Uuid;

/// First word of every packet (CTF 1.8, section 5.1).
pub(crate) const PACKET_MAGIC: u32 = 0xc1fc_1fc1;

/// One event to be encoded.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Number of the event class.
    pub id: u32,
    /// Nanoseconds of CLOCK_MONOTONIC, not before the event before.
    pub time: u64,
    /// The writing thread.
    pub tid: u32,
    /// Values of the source's context fields, packed.
    pub context: &'a [u8],
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
    /// Position up to which everything of the ring is in this packet or those before it, or was left out for a
    /// reason.
    pub ring_end: u64,
    /// What became of the ring's events up to there.
    pub tally: Tally,
    /// The CPU.
    pub cpu: u32,
    /// Number of the packet in its stream.
    pub sequence: u64,
    /// Events lost in this stream until the end of the packet.
    pub discarded: u64,
}

/// What became of a ring's events, from its beginning to the end of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Events that were met or are known to be overwritten: as many as the ring had taken.
    pub accounted: u64,
    /// Events that are in packets.
    pub written: u64,
    /// Events that a flight recorder overwrote by design.
    pub overwritten: u64,
    /// Records and other bytes that were refused.
    pub refused: u64,
    /// Events that recovery found missing on the medium.
    pub missing: u64,
    /// Events whose records were reserved and never completed.
    pub unfinished: u64,
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
    /// Room, of which the first `len` bytes are used.
    bytes: Vec<u8>,
    len: usize,
    uuid: Uuid,
    tid: bool,
    begin: u64,
    last: u64,
    events: u64,
}

/// Sizes of a packet's first two parts.
pub(super) const HEADER_SIZE: usize = 4 + 16 + 4;
pub(super) const CONTEXT_SIZE: usize = 6 * 8 + 4;
/// The longest that an event can have before its context fields: long header and thread.
const MOST_HEADER: usize = 1 + 4 + 8 + 4;

impl Packet {
    /// An empty packet for streams of this source.
    pub fn new(source: &Source) -> Self {
        Self {
            bytes: vec![0; HEADER_SIZE + CONTEXT_SIZE],
            len: HEADER_SIZE + CONTEXT_SIZE,
            uuid: source.uuid,
            tid: source.tid,
            begin: 0,
            last: 0,
            events: 0,
        }
    }

    /// Bytes so far.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the packet has no events.
    pub fn is_empty(&self) -> bool {
        self.events == 0
    }

    /// Sees to it that no event is older than this moment: that of the last packet of a stream that is
    /// continued.
    pub fn not_before(&mut self, moment: u64) {
        self.last = self.last.max(moment);
    }

    /// Number of events so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Appends an event; nothing is appended if its payload doesn't fit the plan.
    #[inline]
    pub fn push(&mut self, record: &Record<'_>, plan: &Plan) -> Result<(), Misfit> {
        let most = MOST_HEADER + record.context.len() + record.payload.len();
        if self.bytes.len() - self.len < most {
            self.grow(most);
        }
        // Not before the last event of the packet before, either.
        let time = record.time.max(self.last);
        let last = if self.events == 0 { time } else { self.last };
        let mut out = Out { bytes: &mut self.bytes[self.len..], at: 0 };
        if record.id < COMPACT_IDS && time - last < 1 << COMPACT_BITS {
            let header = record.id | (time as u32) << (32 - COMPACT_BITS);
            out.put(&header.to_le_bytes())?;
        } else {
            out.put(&[COMPACT_IDS as u8])?;
            out.put(&record.id.to_le_bytes())?;
            out.put(&time.to_le_bytes())?;
        }
        if self.tid {
            out.put(&record.tid.to_le_bytes())?;
        }
        out.put(record.context)?;
        let Out { bytes, at } = out;
        self.len += at + plan.encode(record.payload, bytes.get_mut(at..).ok_or(Misfit)?)?;
        if self.events == 0 {
            self.begin = time;
        }
        self.last = time;
        self.events += 1;
        Ok(())
    }

    /// Makes room for so many bytes more.
    #[cold]
    fn grow(&mut self, most: usize) {
        let size = (self.len + most).max(2 * self.bytes.len());
        self.bytes.resize(size, 0);
    }

    /// Completes the packet, hands its bytes over, of which as many are the packet's as the second argument says, and
    /// begins the next one, in the buffer that was left.
    ///
    /// `moment` is the time of a packet without events.
    pub fn finish<T>(
        &mut self,
        origin: Origin,
        moment: u64,
        write: impl FnOnce(&mut Vec<u8>, PacketInfo) -> T,
    ) -> T {
        let begin = if self.events == 0 { moment } else { self.begin };
        let end = if self.events == 0 { moment } else { self.last };
        self.not_before(end);
        let content = self.len as u64;
        let size = content + TRAILER_SIZE as u64;
        if self.bytes.len() - self.len < TRAILER_SIZE {
            self.grow(TRAILER_SIZE);
        }
        let (packet, room) = self.bytes.split_at_mut(self.len);
        let mut place = Place { bytes: packet, at: 0 };
        place.put(&PACKET_MAGIC.to_le_bytes());
        place.put(&self.uuid.0);
        place.put(&0u32.to_le_bytes());
        for word in [begin, end, content * 8, size * 8, origin.sequence, origin.discarded] {
            place.put(&word.to_le_bytes());
        }
        place.put(&origin.cpu.to_le_bytes());
        debug_assert_eq!(place.at, HEADER_SIZE + CONTEXT_SIZE);
        room[..TRAILER_SIZE].copy_from_slice(&trailer(packet, &origin));
        let info =
            PacketInfo { size, content, begin, end, discarded: origin.discarded, sequence: origin.sequence };
        let result = write(&mut self.bytes, info);
        let least = HEADER_SIZE + CONTEXT_SIZE;
        self.bytes.resize(self.bytes.len().max(least), 0);
        self.len = HEADER_SIZE + CONTEXT_SIZE;
        self.events = 0;
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
    use tompion_schema::{Event, Kind, Level};

    use super::*;

    #[test]
    fn the_long_header_stands_where_the_short_one_cannot() {
        let source = Source {
            uuid: Uuid([7; 16]),
            environment: Vec::new(),
            clock_uuid: None,
            clock_offset_ns: 0,
            clock_precision_ns: 1,
            tid: false,
            context: Vec::new(),
        };
        let event = Event {
            provider: "p".into(),
            name: "e".into(),
            level: Level::DEFAULT,
            kind: Kind::Instant,
            init: false,
            format: None,
            fields: Vec::new(),
        };
        let plan = Plan::new(&event);
        let mut packet = Packet::new(&source);
        let empty = packet.len();
        let mut push = |id, time| {
            let before = packet.len();
            packet.push(&Record { id, time, tid: 0, context: &[], payload: &[] }, &plan).unwrap();
            packet.len() - before
        };
        assert_eq!(push(0, 1 << 40), 4);
        assert_eq!(push(30, (1 << 40) + (1 << 27) - 1), 4);
        assert_eq!(push(30, (1 << 40) + (1 << 28) - 1), 13);
        assert_eq!(push(31, (1 << 40) + (1 << 28)), 13);
        let info = packet.finish(Origin::default(), 0, |bytes, info| {
            assert!(bytes.len() as u64 >= info.size);
            assert_eq!(info.size, empty as u64 + 34 + TRAILER_SIZE as u64);
            assert_eq!(info.content, empty as u64 + 34);
            info
        });
        assert_eq!((info.begin, info.end), (1 << 40, (1 << 40) + (1 << 28)));
        assert!(packet.is_empty() && packet.len() == empty);
    }
}
