//! Packets and their index.

use super::{
    COMPACT_BITS, COMPACT_IDS, Misfit, Plan, Source,
    payload::Out,
    resume::{TRAILER_SIZE, trailer},
};
use crate::metadata::Uuid;

/// First word of every packet (CTF 1.8, section 5.1).
pub const PACKET_MAGIC: u32 = 0xc1fc_1fc1;

/// Event to encode.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Number of the event class.
    pub id: u32,
    /// Nanoseconds of CLOCK_MONOTONIC, not less than the preceding event's.
    pub time: u64,
    /// Id of the writing thread.
    pub tid: u32,
    /// Values of the source's context fields, packed.
    pub context: &'a [u8],
    /// Fixed part and tails.
    pub payload: &'a [u8],
}

/// Ring bytes in a packet, and losses up to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Number of the ring.
    pub ring_id: u32,
    /// Position of the packet's first byte in the ring.
    pub ring_begin: u64,
    /// Position up to which all bytes of the ring are in this packet or earlier ones, or were
    /// accounted for otherwise.
    pub ring_end: u64,
    /// Account of the ring's events up to that position.
    pub tally: Tally,
    /// CPU.
    pub cpu: u32,
    /// Sequence number of the packet in its stream.
    pub sequence: u64,
    /// Number of events lost in this stream up to the end of the packet.
    pub discarded: u64,
}

/// Account of a ring's events, from its beginning to the end of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Events that were read or are known to be overwritten: all that the ring had accepted.
    pub accounted: u64,
    /// Events in packets.
    pub written: u64,
    /// Events that a flight recorder overwrote by design.
    pub overwritten: u64,
    /// Invalid records and other bytes.
    pub refused: u64,
    /// Events that recovery found missing on the medium.
    pub missing: u64,
    /// Events whose records were reserved and never completed.
    pub unfinished: u64,
}

/// Properties of a packet for an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketInfo {
    /// Size in bytes, with the trailer.
    pub size: u64,
    /// Size in bytes up to the end of the last event.
    pub content: u64,
    /// Begin time.
    pub begin: u64,
    /// End time.
    pub end: u64,
    /// Number of events lost up to the end of the packet.
    pub discarded: u64,
    /// Sequence number in the stream.
    pub sequence: u64,
}

/// Builder of packets.
#[derive(Debug)]
pub struct Packet {
    /// Buffer, of which the first `len` bytes are used.
    bytes: Vec<u8>,
    len: usize,
    uuid: Uuid,
    numbers_streams: bool,
    tid: bool,
    begin: u64,
    last: u64,
    events: u64,
}

/// Sizes of a packet's header and context.
pub(super) const HEADER_SIZE: usize = 4 + 16 + 4;
pub(super) const CONTEXT_SIZE: usize = 6 * 8 + 4;
/// Maximum size of an event before its context fields: long header and thread.
const MAX_HEADER_BYTES: usize = 1 + 4 + 8 + 4;

impl Packet {
    /// Creates an empty packet for streams of this source.
    pub fn new(source: &Source) -> Self {
        Self {
            bytes: vec![0; HEADER_SIZE + CONTEXT_SIZE],
            len: HEADER_SIZE + CONTEXT_SIZE,
            uuid: source.uuid,
            numbers_streams: source.numbers_streams,
            tid: source.tid,
            begin: 0,
            last: 0,
            events: 0,
        }
    }

    /// Returns the number of bytes so far.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the packet has no events.
    pub fn is_empty(&self) -> bool {
        self.events == 0
    }

    /// Ensures that no event is older than this time: that of the last packet of a stream that is
    /// continued.
    pub fn not_before(&mut self, moment: u64) {
        self.last = self.last.max(moment);
    }

    /// Returns the number of events so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Appends an event; nothing is appended if its payload doesn't fit the plan.
    #[inline]
    pub fn push(&mut self, record: &Record<'_>, plan: &Plan) -> Result<(), Misfit> {
        let most = MAX_HEADER_BYTES + record.context.len() + record.payload.len();
        if self.bytes.len() - self.len < most {
            self.grow(most);
        }
        // Times must not decrease, even across packets.
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

    /// Appends events of one class like [`Packet::push`], as long as each qualifies for the short
    /// form. These events follow others, have a short header, a payload that is copied unchanged,
    /// and no context fields of the source. Stops before the packet would exceed `most` bytes.
    /// Returns the number of appended events.
    ///
    /// Each event is its thread, time and payload, which may be longer than the class's, as in
    /// [`Record`].
    #[inline(always)]
    pub fn push_run<'a, const PAYLOAD: usize>(
        &mut self,
        (id, plan): (u32, &Plan),
        most: usize,
        events: impl Iterator<Item = (u32, u64, &'a [u8; PAYLOAD])>,
    ) -> usize {
        let Some(size) = plan.plain_size().filter(|size| *size <= PAYLOAD) else { return 0 };
        let most = most.min(self.bytes.len());
        let Some(room) = self.bytes.get_mut(self.len..most) else { return 0 };
        if self.events == 0 || id >= COMPACT_IDS {
            return 0;
        }
        let behind = (id, self.last);
        let (count, last) = match self.tid {
            true => append_run::<8, PAYLOAD>(room, size, behind, events),
            false => append_run::<4, PAYLOAD>(room, size, behind, events),
        };
        self.len += count * (size + if self.tid { 8 } else { 4 });
        self.last = last;
        self.events += count as u64;
        count
    }

    /// Makes room for this many more bytes.
    #[cold]
    fn grow(&mut self, most: usize) {
        let size = (self.len + most).max(2 * self.bytes.len());
        self.bytes.resize(size, 0);
    }

    /// Completes the packet except for [`seal`](super::seal), and begins the next one. `hand_over`
    /// gets the buffer, of which the number of bytes in its second argument belongs to the packet,
    /// and returns the buffer for the next one.
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
        // The stream's number, behind the class's: the initial state's is 0.
        let number = if self.numbers_streams { origin.ring_id.wrapping_add(1) << 8 } else { 0 };
        place.put(&number.to_le_bytes());
        for word in [begin, end, content * 8, size * 8, origin.sequence, origin.discarded] {
            place.put(&word.to_le_bytes());
        }
        place.put(&origin.cpu.to_le_bytes());
        debug_assert_eq!(place.at, HEADER_SIZE + CONTEXT_SIZE);
        room[..TRAILER_SIZE].copy_from_slice(&trailer(&origin));
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

/// Writes events with short headers of `BEFORE` bytes, including the thread if they have one, and
/// payloads of `size` bytes. Returns the number of events that fit, and the last one's time.
#[inline(always)]
fn append_run<'a, const BEFORE: usize, const PAYLOAD: usize>(
    room: &mut [u8],
    size: usize,
    behind: (u32, u64),
    events: impl Iterator<Item = (u32, u64, &'a [u8; PAYLOAD])>,
) -> (usize, u64) {
    // Usually the whole payload is written, and then the compiler knows the size of an event.
    match size == PAYLOAD {
        true => append_each::<BEFORE, PAYLOAD>(room, BEFORE + PAYLOAD, behind, events),
        false => append_each::<BEFORE, PAYLOAD>(room, BEFORE + size, behind, events),
    }
}

/// Writes events with this total size and the header before their payload. It has no closures: a
/// compiler that calls one for each event doubles the cost.
#[inline(always)]
fn append_each<'a, const BEFORE: usize, const PAYLOAD: usize>(
    room: &mut [u8],
    len: usize,
    (id, mut last): (u32, u64),
    mut events: impl Iterator<Item = (u32, u64, &'a [u8; PAYLOAD])>,
) -> (usize, u64) {
    let (mut count, mut at) = (0, 0);
    // Bytes written beyond the event are overwritten by the next one, or unused.
    while let Some(place) = room.get_mut(at..at + BEFORE + PAYLOAD) {
        let Some((tid, time, payload)) = events.next() else { break };
        let time = time.max(last);
        if time - last >= 1 << COMPACT_BITS {
            break;
        }
        let header = id | (time as u32) << (32 - COMPACT_BITS);
        place[..4].copy_from_slice(&header.to_le_bytes());
        if BEFORE == 8 {
            place[4..8].copy_from_slice(&tid.to_le_bytes());
        }
        place[BEFORE..BEFORE + PAYLOAD].copy_from_slice(payload);
        last = time;
        count += 1;
        at += len;
    }
    (count, last)
}

/// Writer for the beginning of a packet.
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

/// Returns the header of an index file (LTTng's `ctf-index.h`, version 1.1; big-endian).
pub fn index_header() -> [u8; 16] {
    let mut bytes = [0; 16];
    for (place, word) in bytes.chunks_exact_mut(4).zip([0xc1f1_dcc1u32, 1, 1, 72]) {
        place.copy_from_slice(&word.to_be_bytes());
    }
    bytes
}

/// Returns the index entry for a packet that begins at `offset` of its stream file.
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
    use tompion_schema::{Event, Field, Integer, Kind, Level, Type};

    use super::*;

    fn source(tid: bool) -> Source {
        Source {
            uuid: Uuid([7; 16]),
            environment: Vec::new(),
            clock_uuid: None,
            clock_offset_ns: 0,
            clock_precision_ns: 1,
            numbers_streams: false,
            tid,
            context: Vec::new(),
        }
    }

    fn plan(types: &[Type]) -> Plan {
        let field = |ty: &Type| Field::new("f", ty.clone());
        Plan::new(&Event {
            provider: "p".into(),
            name: "e".into(),
            level: Level::DEFAULT,
            kind: Kind::Instant,
            init: false,
            format: None,
            attributes: Default::default(),
            fields: types.iter().map(field).collect(),
        })
    }

    #[test]
    fn runs_are_appended_as_single_events_are() {
        const U32: Type = Type::Integer(Integer::unsigned(32));
        let events: Vec<(u32, u64, [u8; 8])> =
            (0..60u64).map(|index| (index as u32, 1000 + index / 3 * 2, [index as u8; 8])).collect();
        for (tid, types) in [(true, vec![U32; 2]), (false, vec![U32]), (true, vec![]), (false, vec![U32; 2])]
        {
            let (source, plan) = (source(tid), plan(&types));
            let mut one_by_one = Packet::new(&source);
            for &(tid, time, ref payload) in &events {
                one_by_one.push(&Record { id: 3, time, tid, context: &[], payload }, &plan).unwrap();
            }
            let mut together = Packet::new(&source);
            let mut rest = &events[..];
            while let Some((&(tid, time, ref payload), behind)) = rest.split_first() {
                together.push(&Record { id: 3, time, tid, context: &[], payload }, &plan).unwrap();
                let alike = behind.iter().map(|(tid, time, payload)| (*tid, *time, payload));
                rest = &behind[together.push_run((3, &plan), 1 << 20, alike)..];
            }
            assert_eq!(together.events(), 60);
            let bytes = |mut packet: Packet| {
                packet.finish(Origin::default(), 0, |bytes, info| bytes[..info.size as usize].to_vec())
            };
            assert_eq!(bytes(together), bytes(one_by_one), "{types:?}");
        }
    }

    #[test]
    fn events_that_need_the_general_form_are_left() {
        const U64: Type = Type::Integer(Integer::unsigned(64));
        let numbers = plan(&[U64]);
        let mut packet = Packet::new(&source(false));
        packet.grow(4096);
        let event = |time: u64| (1, time, &[1; 8]);
        let push = |packet: &mut Packet, (id, plan): (u32, &Plan), most, time| {
            packet.push_run((id, plan), most, [event(time)].into_iter())
        };
        assert_eq!(push(&mut packet, (3, &numbers), 1 << 20, 5), 0, "the first event of a packet");
        packet.push(&Record { id: 3, time: 5, tid: 1, context: &[], payload: &[1; 8] }, &numbers).unwrap();
        assert_eq!(push(&mut packet, (31, &numbers), 1 << 20, 5), 0, "a large number");
        assert_eq!(push(&mut packet, (3, &plan(&[U64; 2])), 1 << 20, 5), 0, "too little payload");
        assert_eq!(push(&mut packet, (3, &plan(&[Type::String])), 1 << 20, 5), 0, "a text");
        assert_eq!(push(&mut packet, (3, &numbers), 1 << 20, 5 + (1 << 27)), 0, "much later");
        let len = packet.len();
        assert_eq!(push(&mut packet, (3, &numbers), len + 11, 5), 0, "a full packet");
        assert_eq!(packet.events(), 1);
        assert_eq!(push(&mut packet, (3, &numbers), 1 << 20, 4 + (1 << 27)), 1);
        assert_eq!(push(&mut packet, (3, &numbers), 1 << 20, 7), 1, "not before the one before");
    }

    #[test]
    fn the_long_header_is_used_where_the_short_one_cannot() {
        let plan = plan(&[]);
        let mut packet = Packet::new(&source(false));
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
