//! Extracts metadata from packets, the form used by tracers that extend it while they record.
//!
//! ```text
//! magic u32 │ uuid [16] │ checksum u32 │ content bits u32 │ packet bits u32 │
//! compression u8 │ encryption u8 │ checksum scheme u8 │ major u8 │ minor u8 │ text │ padding
//! ```
//!
//! Headers of version 2.0 continue with `reserved u8 [3] │ header bits u32` (CTF2-PMETA-1.0). Some
//! tracers write this version without these fields.

use std::borrow::Cow;

use super::Error;
use crate::metadata::Uuid;

const MAGIC: u32 = 0x75d1_1d57;
const HEADER: usize = 37;
/// Position of the UUID.
const UUID: std::ops::Range<usize> = 4..20;

/// Returns the text of a `metadata` file, extracted from its packets if necessary.
///
/// Bytes that are not UTF-8 are replaced: they can occur only in comments and strings.
pub fn text(bytes: &[u8]) -> Result<Cow<'_, str>, Error> {
    let magic = bytes.first_chunk::<4>();
    let read: fn([u8; 4]) -> u32 = match magic {
        Some(&magic) if u32::from_le_bytes(magic) == MAGIC => u32::from_le_bytes,
        Some(&magic) if u32::from_be_bytes(magic) == MAGIC => u32::from_be_bytes,
        _ => return plain(bytes),
    };
    let mut text = Vec::new();
    let mut offset = 0;
    // Fewer bytes than a header behind the last packet are ignored: tracers leave such bytes.
    while let Some(rest) = bytes.get(offset..).filter(|rest| rest.len() >= HEADER || offset == 0) {
        let (content, size) = packet(rest, offset, read)?;
        if rest.get(UUID) != bytes.get(UUID) {
            return Err(Error::Packet {
                offset,
                expected: "the UUID of the preceding packets".into(),
                found: "another: packets of several traces".into(),
            });
        }
        text.extend_from_slice(content);
        offset += size;
    }
    Ok(String::from_utf8_lossy(&text).into_owned().into())
}

/// Returns the text of a file without packets.
fn plain(bytes: &[u8]) -> Result<Cow<'_, str>, Error> {
    let wrong = |found| Err(Error::Text { found });
    match bytes {
        [0xef, 0xbb, 0xbf, ..] => wrong("a byte order mark"),
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => wrong("text in UTF-16"),
        [0, first, ..] | [first, 0, ..] if matches!(first, b'/' | b'{' | b't') => wrong("text in UTF-16"),
        bytes if bytes.trim_ascii().is_empty() => wrong("an empty file"),
        bytes => Ok(String::from_utf8_lossy(bytes)),
    }
}

/// Returns the UUID in the packets of a `metadata` file; `None` for plain text.
pub fn uuid(bytes: &[u8]) -> Option<Uuid> {
    let is_magic =
        |magic: &&[u8; 4]| [u32::from_le_bytes(**magic), u32::from_be_bytes(**magic)].contains(&MAGIC);
    bytes.first_chunk::<4>().filter(is_magic)?;
    bytes.get(UUID)?.try_into().ok().map(Uuid)
}

/// Returns the header size in bytes that a header states.
fn sized_header(bytes: &[u8], read: fn([u8; 4]) -> u32) -> usize {
    let size = bytes.get(HEADER + 3..).and_then(|rest| rest.first_chunk());
    size.map_or(0, |&size| read(size) as usize / 8)
}

/// Returns the text of the packet at the beginning of `bytes`, and the packet's size in bytes.
fn packet(bytes: &[u8], offset: usize, read: fn([u8; 4]) -> u32) -> Result<(&[u8], usize), Error> {
    let wrong = |expected: String, found: String| Error::Packet { offset, expected, found };
    let Some(header) = bytes.first_chunk::<HEADER>() else {
        return Err(wrong(format!("a header of {HEADER} bytes"), format!("{} bytes", bytes.len())));
    };
    let word = |at: usize| header.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |&word| read(word));
    if word(0) != MAGIC {
        return Err(wrong(format!("the magic number {MAGIC:#x}"), format!("{:#x}", word(0))));
    }
    let [.., compression, encryption, _, major, minor] = *header;
    // Descriptions of both versions of the format use the same packets.
    if !matches!((major, minor), (1, 8) | (2, 0)) {
        return Err(wrong("a packet of version 1.8 or 2.0".into(), format!("{major}.{minor}")));
    }
    if (compression, encryption) != (0, 0) {
        return Err(wrong("plain text".into(), "compression or encryption".into()));
    }
    let (content, size) = (word(24) as usize / 8, word(28) as usize / 8);
    if content < HEADER || size < content || size > bytes.len() {
        let found = format!("content of {content} in a packet of {size}");
        return Err(wrong(format!("sizes from {HEADER} to {} bytes", bytes.len()), found));
    }
    // A description can't begin with the three reserved bytes, which are 0.
    let has_rest = major == 2 && bytes.get(HEADER..HEADER + 3) == Some(&[0; 3]);
    let header = if has_rest { sized_header(bytes, read) } else { HEADER };
    if header < HEADER || header > content {
        return Err(wrong(format!("a header of {HEADER} to {content} bytes"), format!("{header}")));
    }
    Ok((bytes.get(header..content).unwrap_or_default(), size))
}
