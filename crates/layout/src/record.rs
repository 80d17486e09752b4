//! Layout of an event record in a ring.
//!
//! ```text
//! byte  0        2        4                8                16
//!       ├────────┼────────┼────────────────┼────────────────┼─ fixed part ─┬─ tails ─┬─ pad ─┤
//!       │ id     │ words  │ tid            │ timestamp      │
//! ```
//!
//! - `id`: [`PADDING`], [`SUBBUFFER`], or [`FIRST_EVENT`] plus the event's number in the catalog.
//! - `words`: length of the whole record in units of 8 bytes, including header and padding.
//! - `tid`: the writing thread's id in its own pid namespace.
//! - `timestamp`: TSC ticks, or nanoseconds of CLOCK_MONOTONIC, as the control page says.
//! - fixed part: every fixed-size field in order, packed without alignment. A field of variable
//!   length has its number of elements (u32) there, an array has nothing, an enumeration its
//!   integer.
//! - tails: the bytes of the variable-length and array fields, in order, packed.
//!
//! A structure has no bytes of its own: its members are stored in both parts in its place, depth
//! first.
//!
//! Records start at multiples of 8 bytes and never cross a sub-buffer's end. All numbers are
//! little-endian (the native order on every supported platform), except fields that their
//! description declares in network order.

/// WriteProtocol of the records in a ring.
///
/// In *section* form, a record is present as soon as the ring's write position is behind it: the
/// writer is restarted as a whole. Without restartable sequences in a process, rings are in
/// *reserve* form: a writer first moves the position, and then fills the space. So each record has
/// an additional word at its beginning, which is written last:
///
/// ```text
/// byte  0                8                16               24
///       ├────────────────┼────────────────┼────────────────┼─ fixed part ─┬─ tails ─┬─ pad ─┤
///       │ commit         │ id words tid   │ timestamp      │
/// ```
///
/// - `commit`: [`stamp`] of the record's position in the ring's byte stream, once the rest is
///   complete. The remains of an earlier lap are another number. So a commit word also shows where
///   a record begins after one that was never finished. `words` includes this word.
/// - Padding is the single word [`padding_stamp`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteProtocol {
    /// Records of restartable sections, which are complete as soon as they are present.
    #[default]
    Rseq,
    /// Records that are reserved, filled, and committed.
    ReserveCommit,
}

impl WriteProtocol {
    /// Returns the number of bytes before a record's head.
    pub const fn commit_len(self) -> usize {
        match self {
            Self::Rseq => 0,
            Self::ReserveCommit => 8,
        }
    }

    /// Returns the number of bytes before an event's payload.
    pub const fn header_len(self) -> usize {
        self.commit_len() + HEADER
    }

    /// Returns the length of an event's record with this many bytes of payload, padded, in bytes.
    pub const fn record_len(self, payload: usize) -> usize {
        (self.header_len() + payload + 7) & !7
    }

    /// Returns the length of a sub-buffer's header in bytes.
    pub const fn subbuffer_header_len(self) -> usize {
        match self {
            Self::Rseq => SubbufferHeader::LEN,
            Self::ReserveCommit => SubbufferHeader::RESERVE_LEN,
        }
    }
}

/// Mixes the bits of a position (the finalizer of SplitMix64), and clears the lowest two bits.
const fn mixed(position: u64) -> u64 {
    let word = position.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (word ^ (word >> 31)) << 2
}

/// Returns the commit word of a complete record that begins at a position. Never 0.
pub const fn stamp(position: u64) -> u64 {
    mixed(position) | 1
}

/// Returns the word that marks the rest of a sub-buffer as padding. Never 0, never a [`stamp`].
pub const fn padding_stamp(position: u64) -> u64 {
    mixed(position) | 2
}

/// Size of a record's header in bytes.
pub const HEADER: usize = 16;
/// Maximum size of a record, including header and padding, in bytes.
pub const MAX_RECORD: usize = 64 * 1024;
/// Maximum size of an image (fixed part with coalesced tails) that is built on the stack, in bytes.
pub const MAX_IMAGE: usize = 512;

/// Id of padding up to the end of the sub-buffer. Only its first 8 bytes are present.
pub const PADDING: u16 = 0;
/// Id of the first record of every sub-buffer, see [`SubbufferHeader`].
pub const SUBBUFFER: u16 = 1;
/// Id of the event with number 0 in the catalog.
pub const FIRST_EVENT: u16 = 16;

/// First 8 bytes of a record: id, length and thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Id: [`PADDING`], [`SUBBUFFER`] or [`FIRST_EVENT`] plus the event's number.
    pub id: u16,
    /// Length of the record in units of 8 bytes.
    pub words: u16,
    /// Id of the writing thread.
    pub tid: u32,
}

impl Head {
    /// Packs the three into the record's first word.
    #[inline]
    pub const fn to_word(self) -> u64 {
        self.id as u64 | (self.words as u64) << 16 | (self.tid as u64) << 32
    }

    /// Returns the lower half of the first word of a record that consists of a header only.
    #[inline]
    pub const fn empty(id: u16) -> u32 {
        id as u32 | (HEADER as u32 / 8) << 16
    }

    /// Unpacks a record's first word.
    #[inline]
    pub const fn from_word(word: u64) -> Self {
        Self { id: word as u16, words: (word >> 16) as u16, tid: (word >> 32) as u32 }
    }

    /// Returns the length of the record in bytes.
    #[inline]
    pub const fn len(self) -> usize {
        self.words as usize * 8
    }

    /// Whether the record claims no length, which no valid record does.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.words == 0
    }
}

/// Returns the length of a record with `payload` bytes after its header, padded, in bytes.
#[inline]
pub const fn record_len(payload: usize) -> usize {
    (HEADER + payload + 7) & !7
}

/// First record of a sub-buffer: header, then three words.
///
/// - `position` is where the sub-buffer begins in the ring's endless byte stream. By it, a copy
///   from a dead machine's file can be distinguished from the remains of an earlier lap.
/// - `lost` is the number of losses of the ring when the sub-buffer was opened, so that losses are
///   located where they happened.
/// - `events` is the number of events that the ring had accepted then, so that the number of events
///   that a flight recorder overwrote is exact.
///
/// In reserve form, `lost` is read when the header is written, a little after the sub-buffer was
/// opened, so the next one's may be smaller. As with every record, a commit word precedes it. One
/// more word follows it: the number of bytes of the sub-buffer that were committed in all laps
/// together. After `k` complete laps, that is `k` times the sub-buffer's size; it is never reset.
pub struct SubbufferHeader;

impl SubbufferHeader {
    /// Length of the record in bytes.
    pub const LEN: usize = 40;
    /// Offset of the free-running position of the sub-buffer's first byte.
    pub const POSITION: usize = 16;
    /// Offset of the number of events lost in this ring so far.
    pub const LOST: usize = 24;
    /// Offset of the number of events appended to this ring so far.
    pub const EVENTS: usize = 32;

    /// Length of the record in reserve form, in bytes.
    pub const RESERVE_LEN: usize = Self::LEN + 16;
    /// Offset of the committed bytes in reserve form. (All other offsets are relative to
    /// [`WriteProtocol::commit_len`].)
    pub const COMMITTED: usize = 8 + Self::LEN;

    /// Returns the record's first word.
    pub const fn head() -> Head {
        Head { id: SUBBUFFER, words: (Self::LEN / 8) as u16, tid: 0 }
    }

    /// Returns the word after the commit word in reserve form.
    pub const fn reserve_head() -> Head {
        Head { id: SUBBUFFER, words: (Self::RESERVE_LEN / 8) as u16, tid: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_survives_the_round_trip() {
        for head in [
            Head { id: PADDING, words: 0, tid: 0 },
            Head { id: 0xfffe, words: 0xabcd, tid: 0x8765_4321 },
            SubbufferHeader::head(),
        ] {
            assert_eq!(Head::from_word(head.to_word()), head);
        }
    }

    #[test]
    fn stamps_distinguish_positions_and_kinds() {
        let mut seen = std::collections::HashSet::new();
        for position in (0..1 << 20).step_by(8).chain([1 << 40, u64::MAX - 7]) {
            assert!(seen.insert(stamp(position)) && seen.insert(padding_stamp(position)));
        }
        assert!(!seen.contains(&0));
    }

    #[test]
    fn the_largest_record_fits_the_word_count() {
        assert!(MAX_RECORD / 8 <= u16::MAX as usize);
        assert_eq!(record_len(0), HEADER);
        assert_eq!(record_len(1), HEADER + 8);
        assert_eq!(record_len(MAX_RECORD - HEADER), MAX_RECORD);
    }
}
