//! Ends of whole packets in a stream that is being written.

use std::{fs::File, io, os::unix::fs::FileExt};

use tompion_ctf::{
    encode::{self, HEAD_SIZE, Head, TRAILER_SIZE},
    metadata::Uuid,
};

/// Largest packet that is taken for one, in bytes; as recovery does.
const MAX_PACKET: u64 = 64 << 20;

/// Head of the packet at an offset, if one begins there.
fn head_at(file: &File, at: u64, len: u64) -> io::Result<Option<Head>> {
    let mut bytes = [0; HEAD_SIZE];
    if len.saturating_sub(at) < (HEAD_SIZE + TRAILER_SIZE) as u64 {
        return Ok(None);
    }
    file.read_exact_at(&mut bytes, at)?;
    // The id of its trace, whatever that is: the first bytes behind the magic number.
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&bytes[4..20]);
    Ok(encode::read_head(&bytes, Uuid(uuid)).ok())
}

/// Finds the end of the whole packets between two offsets, the first of which is a packet's begin.
/// It looks no further than the first packet that ends at `enough` or behind.
pub(crate) fn whole_end(file: &File, from: u64, len: u64, enough: u64) -> io::Result<u64> {
    let mut end = from;
    let mut bytes = Vec::new();
    while end < enough {
        let Some(head) = head_at(file, end, len)? else { break };
        let size = head.info.size;
        if size > MAX_PACKET.min(len - end) {
            break;
        }
        bytes.resize(size as usize, 0);
        file.read_exact_at(&mut bytes, end)?;
        if !encode::is_intact(&bytes) {
            break;
        }
        end += size;
    }
    Ok(end)
}

/// Finds the end of the packet in which an offset lies, by the sizes of those before; the offset
/// itself if a packet begins there.
pub(crate) fn packet_end(file: &File, offset: u64, len: u64) -> io::Result<Option<u64>> {
    let mut at = 0;
    while at < offset {
        match head_at(file, at, len)? {
            Some(head) if head.info.size <= len - at => at += head.info.size,
            _ => return Ok(None),
        }
    }
    Ok(Some(at))
}
