//! Stream of the initial state of a recording in chunks that another recorder goes on with.
//!
//! Its packets say which part of the state they have ([`InitialMark`]). A batch of events may be in
//! several packets. The stream is cut behind the last one that ends a batch; the next recorder
//! writes the rest again.

use std::io::{Seek as _, SeekFrom};

use tompion_ctf::encode::{HEAD_SIZE, TRAILER_SIZE, index_header};
use tompion_os::DirHandle;

use super::{Cut, Error, Expected, cut, packet_at};
use crate::stream_writer::{INITIAL_STREAM, InitialMark, Mark};

/// Size of an index entry in bytes.
const INDEX_ENTRY: u64 = 72;

/// The stream of an initial state, ready to be continued.
#[derive(Debug)]
pub(crate) struct InitialCut {
    /// Its file, cut behind the last complete batch.
    pub cut: Cut,
    /// The position up to which each CPU's ring is repeated in it.
    pub repeated: Vec<(u32, u64)>,
}

/// Cuts the stream of the initial state behind its last complete batch; none if there is no such
/// file.
pub(crate) fn initial_stream(folder: &DirHandle, expected: &Expected) -> Result<Option<InitialCut>, Error> {
    let Some(mut found) = cut(folder, INITIAL_STREAM, expected)? else { return Ok(None) };
    let path = folder.path().join(INITIAL_STREAM);
    let (mut at, mut packets) = (0, 0);
    let (mut size, mut complete, mut last) = (0, 0, None);
    let (mut repeated, mut of_batch) = (Vec::new(), Vec::new());
    while at + ((HEAD_SIZE + TRAILER_SIZE) as u64) < found.size {
        let packet = packet_at(&found.data, at, found.size, expected).map_err(Error::io(&path))?;
        // What was changed on the medium is written again, and all that follows it.
        let Some(packet) = packet.filter(|packet| packet.is_intact) else { break };
        let origin = packet.resumed.origin;
        at += packet.resumed.head.info.size;
        packets += 1;
        let mark = InitialMark::from(Mark { ring_end: origin.ring_end, tally: origin.tally });
        if mark.repeated_until != 0 {
            of_batch.push((origin.cpu, mark.repeated_until));
        }
        if !mark.is_within_batch {
            (size, complete, last) = (at, packets, Some(packet.resumed));
            repeated.append(&mut of_batch);
        }
    }
    if size < found.size {
        found.data.set_len(size).map_err(Error::io(&path))?;
        found.data.seek(SeekFrom::Start(size)).map_err(Error::io(&path))?;
        let end = index_header().len() as u64 + INDEX_ENTRY * complete;
        found.index.set_len(end).map_err(Error::io(&path))?;
        found.index.seek(SeekFrom::Start(end)).map_err(Error::io(&path))?;
        (found.size, found.last) = (size, last);
    }
    Ok(Some(InitialCut { cut: found, repeated }))
}
