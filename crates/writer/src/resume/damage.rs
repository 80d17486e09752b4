//! Damage to a stream after it was written, and the search for its next packet.

use std::{fmt, fs::File, io, os::unix::fs::FileExt, path::Path};

use tompion_ctf::{
    encode::{self, HEAD_SIZE, PACKET_MAGIC},
    metadata::Uuid,
};

/// Bytes that are searched at once.
const PIECE: usize = 1 << 20;

/// Part of a stream that is not what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// A packet whose checksum is wrong.
    Packet {
        /// Position of its first byte.
        at: u64,
        /// Its sequence number.
        number: u64,
    },
    /// Bytes that are no packet.
    Bytes {
        /// Position of the first one.
        at: u64,
        /// Number of bytes.
        bytes: u64,
    },
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packet { at, number } => write!(
                f,
                "byte {at}: packet {number} was changed after it was written: its checksum is wrong, and readers \
                 leave its events out"
            ),
            Self::Bytes { at, bytes } => {
                write!(f, "byte {at}: expected a packet, found {bytes} other bytes: readers skip them")
            }
        }
    }
}

/// Tells of a stream's damage: the first place, and how many more there are.
pub fn in_a_line(path: &Path, damage: &[Damage]) -> Option<String> {
    let (first, others) = damage.split_first()?;
    let more = match others.len() {
        0 => String::new(),
        1 => "; and 1 more place in this file".into(),
        count => format!("; and {count} more places in this file"),
    };
    Some(format!("{}: {first}{more}", path.display()))
}

/// The next position at which a packet of this trace may begin.
pub fn next_packet(data: &File, from: u64, len: u64, uuid: Uuid) -> io::Result<Option<u64>> {
    let begin = [&PACKET_MAGIC.to_le_bytes()[..], &uuid.0].concat();
    let mut bytes = vec![0; PIECE];
    let mut at = from;
    while at + HEAD_SIZE as u64 <= len {
        let size = PIECE.min(usize::try_from(len - at).unwrap_or(PIECE));
        let piece = &mut bytes[..size];
        data.read_exact_at(piece, at)?;
        let candidates = piece.windows(begin.len()).enumerate().filter(|(_, bytes)| *bytes == begin);
        for (candidate, _) in candidates {
            let candidate = at + candidate as u64;
            let mut head = [0; HEAD_SIZE];
            if candidate + HEAD_SIZE as u64 > len {
                break;
            }
            data.read_exact_at(&mut head, candidate)?;
            if encode::read_head(&head, uuid).is_ok_and(|head| head.info.size <= len - candidate) {
                return Ok(Some(candidate));
            }
        }
        if size < PIECE {
            break;
        }
        // A packet's first bytes may be in two pieces.
        at += (size - begin.len() + 1) as u64;
    }
    Ok(None)
}
