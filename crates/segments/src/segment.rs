//! One segment as bytes.
//!
//! ```text
//! offset  bytes
//!      0      8  "TOMPSEG1"
//!      8      1  kind: 1 packets, 2 file, 3 commit, 4 dropped
//!      9      1  flags: bit 0 the file is whole, bit 1 the file was removed
//!     10      2  0
//!     12      4  length of the content
//!     16      8  sequence number, as in the name
//!     24      8  offset in the file: its present length, or 0 to begin it again
//!     32     32  SHA-256 of the name, of bytes 0 to 31, and of the content
//!     64         the content, as one zstd frame
//! ```
//!
//! Numbers are little-endian. The checksum covers the name, so a segment under another name is
//! refused. It protects against damage on the way, and not against a sender that may write.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::Name;

/// Size of the header in bytes.
pub const HEADER_SIZE: usize = 64;
/// Maximum length of the content in bytes.
pub const MAX_RAW: usize = 4 << 20;
/// Maximum length of a segment in bytes: incompressible content grows a little.
pub const MAX_ENCODED: usize = HEADER_SIZE + MAX_RAW + (MAX_RAW >> 7) + 1024;
const MAGIC: [u8; 8] = *b"TOMPSEG1";
/// Level of compression: fast, and two thirds of what the slow ones save.
const LEVEL: i32 = 3;
const IS_WHOLE: u8 = 1;
const IS_REMOVED: u8 = 2;

/// Kind of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Packets of a stream, which only grows.
    Packets,
    /// Part of a file that can be replaced as a whole: the manifest, metadata, an index.
    File,
    /// Commit of a chunk: all its files are there.
    Commit,
    /// Tombstone: the chunk was removed at the sender before all of it was sent.
    Dropped,
}

impl Kind {
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Packets => 1,
            Self::File => 2,
            Self::Commit => 3,
            Self::Dropped => 4,
        }
    }

    pub(crate) fn from_number(number: u8) -> Option<Self> {
        [Self::Packets, Self::File, Self::Commit, Self::Dropped]
            .into_iter()
            .find(|kind| kind.number() == number)
    }
}

/// Checksum of a segment, or of a file's content.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Checksum(pub [u8; 32]);

impl Checksum {
    /// Parses 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        if text.len() != 64 || !text.is_ascii() {
            return None;
        }
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{self}")
    }
}

/// Header of a segment, without its sequence number, which is in the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Kind.
    pub kind: Kind,
    /// Whether the file is whole with this segment. Packets leave a file whole; a file that is
    /// replaced is whole with its last segment.
    pub is_whole: bool,
    /// Whether the file is gone.
    pub is_removed: bool,
    /// Offset in the file.
    pub offset: u64,
    /// Length of the content.
    pub length: u32,
    /// Checksum of name, header and content.
    pub checksum: Checksum,
}

/// Segment that is refused, in words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SegmentError(String);

/// Segment: a header and the content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The name.
    pub name: Name,
    /// The header.
    pub header: Header,
    /// The content.
    pub content: Vec<u8>,
}

impl Header {
    /// Bytes before the checksum.
    fn begin(&self, sequence: u64) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8] = self.kind.number();
        bytes[9] = (u8::from(self.is_whole) * IS_WHOLE) | (u8::from(self.is_removed) * IS_REMOVED);
        bytes[12..16].copy_from_slice(&self.length.to_le_bytes());
        bytes[16..24].copy_from_slice(&sequence.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.offset.to_le_bytes());
        bytes
    }

    /// Returns the checksum that the segment has with this content.
    pub fn checksum_of(&self, name: &Name, content: &[u8]) -> Checksum {
        let mut sum = Sha256::new();
        sum.update(name.to_path().as_bytes());
        sum.update(self.begin(name.sequence));
        sum.update(content);
        Checksum(sum.finalize().into())
    }

    /// Reads the header of an encoded segment.
    ///
    /// # Errors
    /// If it is none, or claims too much.
    pub fn read(bytes: &[u8], sequence: u64) -> Result<Self, SegmentError> {
        let fail = |text: &str| Err(SegmentError(text.into()));
        let Some(bytes) = bytes.first_chunk::<HEADER_SIZE>() else {
            return fail("expected a header of 64 bytes, found fewer");
        };
        let word =
            |at: usize| bytes[at..at + 8].iter().rev().fold(0, |word, byte| (word << 8) | u64::from(*byte));
        let Some(kind) = Kind::from_number(bytes[8]) else { return fail("expected a known kind of segment") };
        if bytes[..8] != MAGIC || bytes[9] > IS_WHOLE | IS_REMOVED || bytes[10..12] != [0, 0] {
            return fail("expected a segment of version 1");
        }
        let (length, is_removed) = ((word(8) >> 32) as u32, bytes[9] & IS_REMOVED != 0);
        if length as usize > MAX_RAW {
            return fail("expected at most 4194304 bytes of content, found more");
        }
        if word(16) != sequence {
            return fail("expected the sequence number of its name, found another one");
        }
        let (mut checksum, offset) = ([0; 32], word(24));
        checksum.copy_from_slice(&bytes[32..]);
        if offset.checked_add(length.into()).is_none() || is_removed && (offset, length) != (0, 0) {
            return fail("expected an offset in a file, found one beyond");
        }
        Ok(Self {
            kind,
            is_whole: bytes[9] & IS_WHOLE != 0,
            is_removed,
            offset,
            length,
            checksum: Checksum(checksum),
        })
    }
}

impl Segment {
    /// Makes a segment; the header's length and checksum are computed.
    pub fn new(name: Name, header: Header, content: Vec<u8>) -> Self {
        let header = Header { length: content.len() as u32, ..header };
        let checksum = header.checksum_of(&name, &content);
        Self { name, header: Header { checksum, ..header }, content }
    }

    /// Header of a segment at an offset, without length and checksum.
    pub fn header(kind: Kind, offset: u64, is_whole: bool) -> Header {
        Header { kind, is_whole, is_removed: false, offset, length: 0, checksum: Checksum([0; 32]) }
    }

    /// Encodes it.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.header.begin(self.name.sequence).to_vec();
        bytes.extend_from_slice(&self.header.checksum.0);
        // The library fails for levels and sizes that can't be here. Stored uncompressed, the frame
        // would be refused, and the error named.
        bytes.extend_from_slice(&zstd::bulk::compress(&self.content, LEVEL).unwrap_or_default());
        bytes
    }

    /// Decodes and checks what came under a name.
    ///
    /// # Errors
    /// If it is no segment, is damaged, or is another one.
    pub fn decode(name: Name, bytes: &[u8]) -> Result<Self, SegmentError> {
        let header = Header::read(bytes, name.sequence)?;
        let frame = bytes.get(HEADER_SIZE..).unwrap_or_default();
        let content = zstd::bulk::decompress(frame, header.length as usize).map_err(|error| {
            SegmentError(format!("expected a zstd frame of the length in the header: {error}"))
        })?;
        let is_reserved = matches!(header.kind, Kind::Commit | Kind::Dropped);
        if is_reserved != name.file.is_reserved() {
            return Err(SegmentError("expected a kind that fits the name, found another one".into()));
        }
        if content.len() != header.length as usize || header.checksum_of(&name, &content) != header.checksum {
            return Err(SegmentError(
                "expected the content that the checksum names, found another one".into(),
            ));
        }
        Ok(Self { name, header, content })
    }
}

#[cfg(test)]
mod tests {
    use tompion_testing::{Random, executions, seed};

    use super::*;

    fn name(sequence: u64) -> Name {
        Name::parse(&format!("/v1/h/b/s/whole/user/a-1/stream_0/{sequence}")).unwrap()
    }

    #[test]
    fn segments_come_out_as_they_went_in() {
        for content in [vec![], b"packets".to_vec(), vec![7; MAX_RAW]] {
            let segment = Segment::new(name(3), Segment::header(Kind::Packets, 4096, true), content);
            assert_eq!(Segment::decode(name(3), &segment.encode()), Ok(segment));
        }
    }

    #[test]
    fn another_name_number_or_content_is_refused() {
        let segment = Segment::new(name(3), Segment::header(Kind::Packets, 0, true), b"packets".to_vec());
        let bytes = segment.encode();
        let other = Name::parse("/v1/h/b/s/whole/user/b-1/stream_0/3").unwrap();
        assert!(Segment::decode(other, &bytes).unwrap_err().to_string().contains("checksum"));
        assert!(Segment::decode(name(4), &bytes).unwrap_err().to_string().contains("sequence"));
        let mut terabyte = bytes.clone();
        terabyte[15] = 0xff;
        assert!(Segment::decode(name(3), &terabyte).unwrap_err().to_string().contains("at most"));
        let mut beyond = bytes;
        beyond[24..32].fill(0xff);
        assert!(Segment::decode(name(3), &beyond).is_err());
    }

    #[test]
    fn a_frame_that_claims_more_than_its_header_is_refused() {
        let mut segment = Segment::new(name(1), Segment::header(Kind::File, 0, true), vec![0; 1 << 20]);
        segment.header.length = 10;
        assert!(Segment::decode(name(1), &segment.encode()).unwrap_err().to_string().contains("zstd"));
    }

    #[test]
    fn changed_bytes_are_refused() {
        let mut random = Random(seed());
        let content: Vec<u8> = (0..3000).map(|_| random.below(7) as u8).collect();
        let sound = Segment::new(name(9), Segment::header(Kind::File, 17, true), content);
        let encoded = sound.encode();
        let mut refused = 0;
        for _ in 0..executions(2_000, 100_000_000) {
            let mut bytes = encoded.clone();
            random.mutate(&mut bytes, b"\0\xff\x28\xb5");
            match Segment::decode(name(9), &bytes) {
                Ok(segment) => assert_eq!(segment, sound),
                Err(_) => refused += 1,
            }
        }
        assert!(refused > 1_000, "{refused}");
    }
}
