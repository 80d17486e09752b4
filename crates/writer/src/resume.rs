//! Continuation of a trace that another session has begun: what is whole stays, what is torn is cut
//! off.
//!
//! A stream ends behind its last whole packet. A packet is whole if its beginning and trailer say
//! so; one whose bytes may not have reached the medium is compared with its checksum, too. Every
//! packet's checksum is computed, so that one that was changed is named: readers leave its events
//! out. Whole packets behind one that was changed are kept. The index is made from the packets.
//! Memory is bounded by the largest packet.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use tompion_ctf::{
    encode::{self, HEAD_SIZE, Packet, Resumed, TRAILER_SIZE},
    metadata::{Trace, Uuid},
    tsdl,
};

use tompion_os::DirHandle;

mod damage;
mod initial;
#[cfg(test)]
mod tests;

use damage::Damage;
pub(crate) use initial::{InitialCut, initial_stream};

use crate::{disk::PacketFile, stream_writer::StreamWriter};

/// Largest metadata file.
const MAX_METADATA: u64 = 256 << 20;
/// Largest packet that is taken for one.
const MAX_PACKET: u64 = 64 << 20;

/// Reason why a trace can't be continued.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system refused something.
    #[error("{path}: {error}")]
    Io {
        /// File that could not be used.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A file is not what it should be.
    #[error("{path}: byte {offset}: {what}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Offset in it.
        offset: u64,
        /// Expected and found data, and what to do.
        what: String,
    },
}

impl Error {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Io { path: path.to_owned(), error }
    }

    fn damaged(path: &Path, offset: u64, what: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), offset, what: what.into() }
    }
}

/// The metadata that is there, if any: of the trace with this id.
pub fn metadata(folder: &DirHandle, uuid: Uuid) -> Result<Option<Trace>, Error> {
    let Some(trace) = any_metadata(folder)? else { return Ok(None) };
    let found = trace.uuid.map_or("none".into(), |uuid| uuid.to_string());
    if trace.uuid != Some(uuid) {
        let what = format!("expected the trace {uuid}, found {found}: it is another recording's");
        return Err(Error::damaged(&folder.path().join("metadata"), 0, what));
    }
    Ok(Some(trace))
}

/// The metadata that is there, if any.
pub fn any_metadata(folder: &DirHandle) -> Result<Option<Trace>, Error> {
    let path = folder.path().join("metadata");
    let bytes = match folder.read_bounded("metadata", MAX_METADATA) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        bytes => bytes.map_err(Error::io(&path))?,
    };
    match tsdl::parse(&bytes) {
        Ok(trace) => Ok(Some(trace)),
        Err(error) => Err(Error::damaged(&path, 0, error.to_string())),
    }
}

/// Facts known of a stream's packets.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// Their trace's id.
    pub uuid: Uuid,
    /// Those that end at this position of their ring, or before, are known to be on the medium.
    /// `None`: not one is.
    pub trusted: Option<u64>,
    /// Maximum number of torn bytes at the end. Where there are more, the file is damaged in
    /// another way.
    pub most_torn: u64,
}

/// A ring's stream, cut behind its last whole packet and ready to be continued, with a line for
/// each damage before that; none if there is no such file.
pub fn stream(
    folder: &DirHandle,
    source: &encode::Source,
    ring: u32,
    expected: &Expected,
) -> Result<Option<(StreamWriter, Vec<String>)>, Error> {
    let Some(cut) = cut(folder, &format!("stream_{ring}"), expected)? else { return Ok(None) };
    continue_behind(folder, source, ring, cut).map(Some)
}

/// Continues a stream of a ring, or that of the initial state.
pub(crate) fn continue_behind(
    folder: &DirHandle,
    source: &encode::Source,
    ring: u32,
    cut: Cut,
) -> Result<(StreamWriter, Vec<String>), Error> {
    let Cut { data, index, size, last, damage } = cut;
    if let Some(last) = last.filter(|last| last.origin.ring_id != ring) {
        let what = format!("expected packets of ring {ring}, found ring {}", last.origin.ring_id);
        return Err(Error::damaged(folder.path(), 0, what));
    }
    let mut packet = Packet::new(source);
    let mut origin = last.map_or_else(encode::Origin::default, |last| last.origin);
    origin.ring_id = ring;
    origin.sequence = last.map_or(0, |last| last.origin.sequence.saturating_add(1));
    // Rings know their CPUs.
    let last_moment = last.map_or(0, |last| last.head.info.end);
    packet.not_before(last_moment);
    let ring_end = origin.ring_end;
    let file = PacketFile::new(data, index);
    let reported = origin.discarded;
    let writer = StreamWriter { file, size, packet, origin, reported, last_moment, ring_end, unsynced: true };
    Ok((writer, damage))
}

/// A stream file that ends behind a whole packet, its index, and that packet.
#[derive(Debug)]
pub struct Cut {
    /// The file, at its end.
    pub data: File,
    /// Its index, at its end.
    pub index: File,
    /// Bytes of the file.
    pub size: u64,
    /// The last packet.
    pub last: Option<Resumed>,
    /// Changes after it was written, before the end: one line each.
    pub damage: Vec<String>,
}

/// Cuts a stream behind its last whole packet and makes its index; none if there is no such file.
pub fn cut(folder: &DirHandle, name: &str, expected: &Expected) -> Result<Option<Cut>, Error> {
    let path = folder.path().join(name);
    let data = match folder.write(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(Error::io(&path))?,
    };
    let len = data.metadata().map_err(Error::io(&path))?.len();
    let indexes = folder.join("index");
    let (index_name, fresh_name) = (format!("{name}.idx"), format!(".{name}.idx.new"));
    let fresh = indexes.path().join(&fresh_name);
    indexes.make().map_err(Error::io(indexes.path()))?;
    let mut index = BufWriter::new(indexes.recreate(&fresh_name).map_err(Error::io(&fresh))?);
    index.write_all(&encode::index_header()).map_err(Error::io(&fresh))?;
    let mut found = StreamScan { index: &mut index, last: None, damage: Vec::new() };
    found.read(&data, len, expected).map_err(Error::io(&path))?;
    let StreamScan { last, damage, .. } = found;
    let size = last.map_or(0, |(at, packet)| at + packet.head.info.size);
    let last = last.map(|(_, packet)| packet);
    if len - size > expected.most_torn {
        let what = format!(
            "expected a packet, found {} bytes of something else; that is no torn packet: restore the file, or \
             cut it here",
            len - size
        );
        return Err(Error::damaged(&path, size, what));
    }
    if len > size {
        data.set_len(size).map_err(Error::io(&path))?;
    }
    io::Seek::seek(&mut &data, io::SeekFrom::Start(size)).map_err(Error::io(&path))?;
    let index = index.into_inner().map_err(|error| Error::io(&fresh)(error.into_error()))?;
    indexes.rename(&fresh_name, &indexes, &index_name).map_err(Error::io(&fresh))?;
    let damage = damage::in_a_line(&path, &damage).into_iter().collect();
    Ok(Some(Cut { data, index, size, last, damage }))
}

/// Scan of a stream up to its last whole packet.
struct StreamScan<'a> {
    index: &'a mut BufWriter<File>,
    /// That packet and its position.
    last: Option<(u64, Resumed)>,
    /// Changes before it.
    damage: Vec<Damage>,
}

impl StreamScan<'_> {
    /// Reads a stream and makes its index. What can't be believed is part of the stream only if a
    /// whole packet follows it.
    fn read(&mut self, data: &File, len: u64, expected: &Expected) -> io::Result<()> {
        let mut unconfirmed: Vec<(Option<(u64, Resumed)>, Damage)> = Vec::new();
        let (mut at, mut sequence) = (0, None::<u64>);
        while at < len {
            let packet = packet_at(data, at, len, expected)?;
            let follows = |packet: &FoundPacket| {
                let number = packet.resumed.origin.sequence;
                let next = sequence.map_or(number, |sequence| sequence.wrapping_add(1));
                is_next(number, next) || packet.is_intact && number > next && !unconfirmed.is_empty()
            };
            let Some(packet) = packet.filter(follows) else {
                let Some(next) = damage::next_packet(data, at + 1, len, expected.uuid)? else { break };
                unconfirmed.push((None, Damage::Bytes { at, bytes: next - at }));
                at = next;
                continue;
            };
            let FoundPacket { resumed, is_intact, is_trusted } = packet;
            sequence = Some(resumed.origin.sequence);
            if !is_intact {
                let number = resumed.origin.sequence;
                unconfirmed.push((Some((at, resumed)), Damage::Packet { at, number }));
            }
            if is_intact || is_trusted {
                for (packet, damage) in unconfirmed.drain(..) {
                    packet.map_or(Ok(()), |(at, packet)| self.keep(at, packet))?;
                    self.damage.push(damage);
                }
            }
            if is_intact {
                self.keep(at, resumed)?;
            }
            at += resumed.head.info.size;
        }
        Ok(())
    }

    fn keep(&mut self, at: u64, packet: Resumed) -> io::Result<()> {
        self.last = Some((at, packet));
        self.index.write_all(&encode::index_entry(at, packet.head.info, packet.origin.ring_id.into()))
    }
}

/// Whether a packet's sequence number is the expected one, or the one behind it, where a flight
/// recorder has overwritten events before the packet.
fn is_next(number: u64, expected: u64) -> bool {
    matches!(number.wrapping_sub(expected), 0 | 1)
}

/// A packet with its beginning and trailer.
struct FoundPacket {
    resumed: Resumed,
    /// Whether its checksum is correct.
    is_intact: bool,
    /// Whether all of it is known to have been written.
    is_trusted: bool,
}

/// The packet that begins there, if one does.
fn packet_at(data: &File, at: u64, len: u64, expected: &Expected) -> io::Result<Option<FoundPacket>> {
    let mut head = [0; HEAD_SIZE];
    let mut trailer = [0; TRAILER_SIZE];
    if len - at < (HEAD_SIZE + TRAILER_SIZE) as u64 {
        return Ok(None);
    }
    data.read_exact_at(&mut head, at)?;
    let Ok(head) = encode::read_head(&head, expected.uuid) else { return Ok(None) };
    if head.info.size > MAX_PACKET.min(len - at) {
        return Ok(None);
    }
    data.read_exact_at(&mut trailer, at + head.info.content)?;
    let Ok(resumed) = encode::read_trailer(&trailer, &head) else { return Ok(None) };
    let mut bytes = vec![0; head.info.size as usize];
    data.read_exact_at(&mut bytes, at)?;
    let is_intact = encode::is_intact(&bytes);
    let is_trusted = expected.trusted.is_some_and(|trusted| resumed.origin.ring_end <= trusted);
    Ok(Some(FoundPacket { resumed, is_intact, is_trusted }))
}

/// Takes a stream and its index away, if they are there.
pub fn remove_stream(folder: &DirHandle, name: &str) -> Result<(), Error> {
    for (folder, name) in [(folder.join("index"), format!("{name}.idx")), (folder.clone(), name.to_owned())] {
        match folder.remove(&name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Error::io(&folder.path().join(&name))(error));
            }
            _ => {}
        }
    }
    Ok(())
}
