//! Writer of one data stream: its file, its index, and the packet in the making.

use std::{
    io::{self, Write},
    sync::Arc,
};

use tompion_ctf::encode::{self, Origin, Packet, Tally};
use tompion_os::DirHandle;

use crate::disk::{PacketFile, WholePacket};

/// File of the events that tell of the initial state. Readers look for it.
pub const INITIAL_STREAM: &str = "stream_initial";

/// Way in which packets are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// By a thread of its own, which [`SourceWriter::settle`][settle] waits for.
    ///
    /// [settle]: crate::SourceWriter::settle
    Deferred,
    /// Written at once, before the call returns.
    Immediate,
    /// At once; [`SourceWriter::sync`][sync] brings it to the disk, where it outlasts the machine.
    ///
    /// [sync]: crate::SourceWriter::sync
    Durable,
}

/// Writes one data stream.
#[derive(Debug)]
pub struct StreamWriter {
    /// The file and its index.
    pub file: Arc<PacketFile>,
    /// Bytes of whole packets.
    pub size: u64,
    /// The packet in the making.
    pub packet: Packet,
    /// Origin of its events.
    pub origin: Origin,
    /// Lost events that the last whole packet tells of.
    pub reported: u64,
    /// Time of the last event that was written.
    pub last_moment: u64,
    /// Position in the ring up to which the last whole packet accounts for it.
    pub ring_end: u64,
    /// Whether something was written since the file was last synchronised.
    pub unsynced: bool,
}

/// Up to where a ring was converted, and what became of its events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Position in the ring's byte stream.
    pub ring_end: u64,
    /// The events; `written` is the writer's own business.
    pub tally: Tally,
}

/// Part of a process's initial state that the packets of its stream have. A recorder that comes
/// back goes on there. It stands in a packet's trailer, where packets of rings have their tally.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InitialMark {
    /// Bytes of the process's catalog that were taken.
    pub catalog: u64,
    /// Bytes of its pinned events that were.
    pub pinned: u64,
    /// Number of events of rings that are repeated in each chunk.
    pub repeated: u64,
    /// Their bytes.
    pub repeated_bytes: u64,
    /// Position in the ring of the packet's CPU up to which such events are in this packet or
    /// earlier ones; 0 if the packet has none.
    pub repeated_until: u64,
    /// Whether more packets of the same batch follow. Without them it has to be written again.
    pub is_within_batch: bool,
}

impl From<InitialMark> for Mark {
    fn from(mark: InitialMark) -> Self {
        let InitialMark { catalog, pinned, repeated, repeated_bytes, repeated_until, is_within_batch } = mark;
        Self {
            ring_end: repeated_until,
            tally: Tally {
                accounted: catalog,
                unfinished: pinned,
                missing: repeated,
                overwritten: repeated_bytes,
                refused: is_within_batch.into(),
                ..Tally::default()
            },
        }
    }
}

impl From<Mark> for InitialMark {
    fn from(Mark { ring_end, tally }: Mark) -> Self {
        Self {
            catalog: tally.accounted,
            pinned: tally.unfinished,
            repeated: tally.missing,
            repeated_bytes: tally.overwritten,
            repeated_until: ring_end,
            is_within_batch: tally.refused != 0,
        }
    }
}

impl StreamWriter {
    /// Creates the files of a ring's stream, or of the initial state's.
    pub fn create(
        folder: &DirHandle,
        source: &encode::Source,
        ring: Option<u32>,
        durable: bool,
    ) -> io::Result<Self> {
        let indexes = folder.join("index");
        indexes.make()?;
        let name = ring.map_or_else(|| INITIAL_STREAM.into(), |ring| format!("stream_{ring}"));
        let data = folder.create_new(&name)?;
        let mut index = indexes.create_new(name + ".idx")?;
        index.write_all(&encode::index_header())?;
        if durable {
            // The file, its folder, `user`, and the recording's own folder.
            folder.sync_up()?;
        }
        let origin = Origin { ring_id: ring.unwrap_or(u32::MAX), ..Origin::default() };
        Ok(Self {
            file: PacketFile::new(data, index),
            size: 0,
            packet: Packet::new(source),
            origin,
            reported: 0,
            last_moment: 0,
            ring_end: 0,
            unsynced: false,
        })
    }

    /// Number of events in whole packets.
    pub fn written(&self) -> u64 {
        self.origin.tally.written.saturating_sub(self.file.dropped())
    }

    /// Writes the packet, which accounts for the ring up to the mark.
    pub fn write_packet(&mut self, mark: Mark, mode: WriteMode) -> io::Result<()> {
        let Self { file, size, packet, origin, reported, last_moment, ring_end, unsynced } = self;
        let (before, events) = (origin.tally.written, packet.events());
        *unsynced = true;
        origin.ring_end = mark.ring_end;
        origin.tally = Tally { written: before.saturating_add(events), ..mark.tally };
        if *last_moment == 0 && packet.is_empty() {
            *last_moment = tompion_os::monotonic_ns();
        }
        let result = packet.finish(*origin, *last_moment, |bytes, info| {
            let entry = encode::index_entry(*size, info, origin.ring_id.into());
            let mut whole = WholePacket { bytes, size: info.size as usize, at: *size, entry, events };
            let result =
                if mode == WriteMode::Deferred { file.write_soon(whole) } else { file.write(&mut whole) };
            *last_moment = info.end;
            *size = size.saturating_add(info.size);
            result.inspect_err(|_| *size = size.saturating_sub(info.size))
        });
        origin.sequence = origin.sequence.wrapping_add(1);
        match result {
            Ok(()) => (*ring_end, *reported) = (mark.ring_end, origin.discarded),
            Err(_) => origin.tally.written = before,
        }
        result
    }
}
