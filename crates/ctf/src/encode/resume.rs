//! Reads back the beginning and the trailer of packets, to continue a stream.
//!
//! Events of a packet are not read. A packet is complete if its beginning and its trailer are where
//! they belong and agree. One that may not have reached the medium is also checked by its checksum.

use super::packet::{CONTEXT_SIZE, HEADER_SIZE, Origin, PACKET_MAGIC, PacketInfo, Tally};
use crate::metadata::Uuid;

/// Size of a packet before its first event, in bytes.
pub const HEAD_SIZE: usize = HEADER_SIZE + CONTEXT_SIZE;
/// Size of a packet's trailer, in bytes.
pub const TRAILER_SIZE: usize = 80;
/// First word of a packet's trailer.
const TRAILER_MAGIC: [u8; 4] = *b"TRNG";
/// Position of the checksum in the trailer.
const CHECKSUM: usize = TRAILER_SIZE - 8;

/// Beginning of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Sizes, times and counts.
    pub info: PacketInfo,
    /// CPU.
    pub cpu: u32,
}

/// Packet after which a stream is continued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resumed {
    /// Beginning of the packet.
    pub head: Head,
    /// Ring bytes of the packet; `sequence`, `cpu` and `discarded` as in its beginning.
    pub origin: Origin,
}

/// Reason why bytes are not a packet of the expected trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// No magic number at the beginning.
    Magic,
    /// The UUID is that of another trace.
    Uuid,
    /// The sizes are impossible.
    Size,
    /// The trailer is missing, or belongs to another packet.
    Trailer,
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Magic => "no packet begins here",
            Self::Uuid => "a packet of another trace",
            Self::Size => "a packet of an impossible size",
            Self::Trailer => "a packet without its trailer",
        })
    }
}

impl std::error::Error for Broken {}

/// Creates the trailer of a packet, without the checksum.
pub(super) fn trailer(origin: &Origin) -> [u8; TRAILER_SIZE] {
    let mut bytes = [0; TRAILER_SIZE];
    let Tally { accounted, written, overwritten, refused, missing, unfinished } = origin.tally;
    bytes[..4].copy_from_slice(&TRAILER_MAGIC);
    bytes[4..8].copy_from_slice(&origin.ring_id.to_le_bytes());
    let counts = [accounted, written, overwritten, refused, missing, unfinished];
    let words = [origin.ring_begin, origin.ring_end].into_iter().chain(counts);
    for (place, word) in bytes[8..CHECKSUM].chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// Writes the checksum into a complete packet, trailer included. This must be the last change
/// before the packet is stored.
pub fn seal(packet: &mut [u8]) {
    let Some(content) = packet.len().checked_sub(TRAILER_SIZE) else { return };
    let (content, trailer) = packet.split_at_mut(content);
    let (trailer, place) = trailer.split_at_mut(CHECKSUM);
    place.copy_from_slice(&checksum(checksum(SEED, content), trailer).to_le_bytes());
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
}

fn half(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// Reads a packet's first [`HEAD_SIZE`] bytes.
///
/// # Errors
///
/// Fails if they don't begin a packet of the trace with this id.
pub fn read_head(bytes: &[u8; HEAD_SIZE], uuid: Uuid) -> Result<Head, Broken> {
    if half(bytes, 0) != PACKET_MAGIC {
        return Err(Broken::Magic);
    }
    if bytes[4..20] != uuid.0 {
        return Err(Broken::Uuid);
    }
    let at = |index: usize| word(bytes, HEADER_SIZE + index * 8);
    let [begin, end, content, size, sequence, discarded] = std::array::from_fn(at);
    let (content_bytes, size_bytes) = (content / 8, size / 8);
    let least = HEAD_SIZE as u64;
    if content % 8 != 0 || size % 8 != 0 || content_bytes < least {
        return Err(Broken::Size);
    }
    if content_bytes.checked_add(TRAILER_SIZE as u64) != Some(size_bytes) {
        return Err(Broken::Size);
    }
    let info = PacketInfo { size: size_bytes, content: content_bytes, begin, end, discarded, sequence };
    Ok(Head { info, cpu: half(bytes, HEADER_SIZE + 48) })
}

/// Reads a packet's last [`TRAILER_SIZE`] bytes.
///
/// # Errors
///
/// Fails if they are not a trailer.
pub fn read_trailer(bytes: &[u8; TRAILER_SIZE], head: &Head) -> Result<Resumed, Broken> {
    if bytes[..4] != TRAILER_MAGIC {
        return Err(Broken::Trailer);
    }
    let at = |index: usize| word(bytes, 8 + index * 8);
    let [ring_begin, ring_end] = std::array::from_fn(at);
    let [accounted, written, overwritten, refused, missing, unfinished] =
        std::array::from_fn(|index| at(2 + index));
    let origin = Origin {
        ring_id: half(bytes, 4),
        ring_begin,
        ring_end,
        tally: Tally { accounted, written, overwritten, refused, missing, unfinished },
        cpu: head.cpu,
        sequence: head.info.sequence,
        discarded: head.info.discarded,
    };
    Ok(Resumed { head: *head, origin })
}

/// Whether the checksum of a complete packet, trailer included, is correct.
pub fn is_intact(packet: &[u8]) -> bool {
    PacketChecksum::new().is_correct(packet)
}

const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// Checksum that detects changes by accident; it does not protect against malice. Four sums run in
/// parallel, because each multiplication depends on the previous one.
struct Sums {
    lanes: [u64; 4],
    bytes: u64,
}

impl Sums {
    fn new(seed: u64) -> Self {
        Self { lanes: [seed, !seed, seed.rotate_left(16), seed.rotate_left(48)], bytes: 0 }
    }

    fn step(sum: u64, word: u64) -> u64 {
        let product = (sum ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
        product ^ product >> 32
    }

    /// Adds whole blocks and returns the bytes behind them.
    fn add<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let blocks = bytes.chunks_exact(BLOCK);
        let rest = blocks.remainder();
        self.bytes += (bytes.len() - rest.len()) as u64;
        for block in blocks {
            self.add_block(block);
        }
        rest
    }

    fn add_block(&mut self, block: &[u8]) {
        for (lane, sum) in self.lanes.iter_mut().enumerate() {
            *sum = Self::step(*sum, word(block, 8 * lane));
        }
    }

    /// Adds the last bytes and returns the sum of everything.
    fn finish(mut self, bytes: &[u8]) -> u64 {
        let rest = self.add(bytes);
        let mut last = [0; BLOCK];
        last[..rest.len()].copy_from_slice(rest);
        self.add_block(&last);
        Self::step(self.lanes.into_iter().fold(0, Self::step), self.bytes + rest.len() as u64)
    }
}

/// Number of bytes that are summed at once.
const BLOCK: usize = 32;

fn checksum(seed: u64, bytes: &[u8]) -> u64 {
    Sums::new(seed).finish(bytes)
}

/// Checksum of a packet that is read in pieces.
pub struct PacketChecksum(Sums);

impl PacketChecksum {
    /// Divisor of the size of every piece except the last one.
    pub const PIECE_ALIGNMENT: usize = BLOCK;

    /// Starts at the beginning of a packet.
    #[expect(clippy::new_without_default, reason = "an empty packet has no checksum")]
    pub fn new() -> Self {
        Self(Sums::new(SEED))
    }

    /// Adds a piece whose size is a multiple of [`Self::PIECE_ALIGNMENT`].
    pub fn add(&mut self, piece: &[u8]) {
        self.0.add(piece);
    }

    /// Adds the last piece, which contains the whole trailer. Returns whether the packet's checksum
    /// is correct.
    pub fn is_correct(self, last: &[u8]) -> bool {
        let Some(content) = last.len().checked_sub(TRAILER_SIZE) else { return false };
        let (content, trailer) = last.split_at(content);
        let found = word(trailer, CHECKSUM);
        found == checksum(self.0.finish(content), &trailer[..CHECKSUM])
    }
}

/// Whether these bytes begin like a packet's trailer.
pub fn is_trailer(bytes: &[u8]) -> bool {
    bytes.starts_with(&TRAILER_MAGIC)
}

#[cfg(test)]
mod tests {
    use super::super::{Packet, Source};
    use super::*;

    const UUID: Uuid = Uuid([7; 16]);

    fn origin() -> Origin {
        Origin {
            ring_id: 3,
            ring_begin: 40,
            ring_end: 4096,
            tally: Tally { accounted: 9, written: 7, overwritten: 1, refused: 2, missing: 3, unfinished: 4 },
            cpu: 1,
            sequence: 5,
            discarded: 6,
        }
    }

    fn packet() -> Vec<u8> {
        let source = Source {
            uuid: UUID,
            environment: Vec::new(),
            clock_uuid: None,
            clock_offset_ns: 0,
            clock_precision_ns: 1,
            numbers_streams: false,
            tid: false,
            context: Vec::new(),
        };
        let mut bytes = Packet::new(&source).finish(origin(), 77, |bytes, _| bytes.to_vec());
        assert!(!is_intact(&bytes));
        seal(&mut bytes);
        bytes
    }

    #[test]
    fn a_packet_states_where_to_continue() {
        let bytes = packet();
        let head = read_head(bytes.first_chunk().unwrap(), UUID).unwrap();
        assert_eq!((head.info.size, head.info.end, head.cpu), (bytes.len() as u64, 77, 1));
        let resumed = read_trailer(bytes.last_chunk().unwrap(), &head).unwrap();
        assert_eq!(resumed.origin, origin());
        assert!(is_intact(&bytes));
    }

    #[test]
    fn what_is_no_packet_is_refused() {
        let bytes = packet();
        let head = |bytes: &[u8]| read_head(bytes.first_chunk().unwrap(), UUID);
        assert_eq!(read_head(bytes.first_chunk().unwrap(), Uuid([8; 16])), Err(Broken::Uuid));
        assert_eq!(head(&bytes[1..]), Err(Broken::Magic));
        for (at, byte) in [(40, 1), (40, 0xff), (47, 0xff), (48, 1), (55, 0xff)] {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            assert_eq!(head(&bytes), Err(Broken::Size), "byte {at}");
        }
        assert_eq!(read_trailer(&[0; TRAILER_SIZE], &head(&bytes).unwrap()), Err(Broken::Trailer));
        assert!(!is_intact(&bytes[..TRAILER_SIZE - 1]));
    }

    #[test]
    fn a_flipped_bit_anywhere_is_found() {
        let bytes = packet();
        for at in 0..bytes.len() - 8 {
            let mut bytes = bytes.clone();
            bytes[at] ^= 4;
            assert!(!is_intact(&bytes), "byte {at}");
        }
    }

    #[test]
    fn pieces_have_the_checksum_of_the_whole() {
        let content = (0..1000u32).map(|byte| byte as u8).collect::<Vec<_>>();
        for size in 0..content.len() {
            let mut bytes = [&content[..size], &trailer(&origin())[..]].concat();
            seal(&mut bytes);
            let pieces = size / PacketChecksum::PIECE_ALIGNMENT * PacketChecksum::PIECE_ALIGNMENT;
            for first in [0, pieces / 2 / 32 * 32, pieces] {
                let mut sum = PacketChecksum::new();
                sum.add(&bytes[..first]);
                assert!(sum.is_correct(&bytes[first..]), "{first} of {size} bytes");
            }
        }
    }
}
