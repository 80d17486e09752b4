//! Trace that goes on in another folder: the next chunk of a recording.
//!
//! Streams keep their numbers, packets theirs, and the metadata grows only at its end. So readers
//! see the folders together as one trace, as after a rotation of LTTng's. The initial state is
//! copied packet by packet: each folder has all of it, and readers of several take each packet
//! once. A stream gets a file when it has a packet.

use std::{io, sync::Arc};

use tompion_ctf::encode::Origin;
use tompion_os::DirHandle;

use super::SourceWriter;
use crate::{
    disk::PacketFile,
    stream_writer::{StreamWriter, WriteMode},
};

/// State that earlier folders have left.
#[derive(Debug, Default)]
pub(super) struct Succession {
    /// Streams that have no file in the present folder, by their numbers.
    suspended: Vec<Option<Suspended>>,
    /// Events of rings in earlier folders, and in those before the last one.
    events_of_rings: u64,
    events_before: u64,
    /// Sequence number of each stream's next packet at the begin of the present folder and of the
    /// one before.
    begins: Vec<u64>,
    begins_before: Vec<u64>,
}

/// A stream between two files.
#[derive(Debug)]
struct Suspended {
    origin: Origin,
    last_moment: u64,
    ring_end: u64,
    /// File of the initial state, its bytes, and its events.
    initial: Option<(Arc<PacketFile>, u64, u64)>,
}

impl Succession {
    /// Events of rings in earlier folders.
    pub fn written_of_rings(&self) -> u64 {
        self.events_of_rings
    }

    /// All events that are in earlier folders alone.
    pub fn written(&self) -> u64 {
        let initial = self.suspended.iter().flatten().filter_map(|stream| stream.initial.as_ref());
        initial.map(|(_, _, events)| *events).fold(self.events_of_rings, u64::saturating_add)
    }

    fn stream(&mut self, stream: usize) -> Option<&mut Suspended> {
        self.suspended.get_mut(stream)?.as_mut()
    }

    /// Events that a suspended stream's ring has lost.
    pub fn discarded(&self, stream: usize) -> u64 {
        let suspended = self.suspended.get(stream).and_then(Option::as_ref);
        suspended.map_or(0, |suspended| suspended.origin.discarded)
    }

    /// Says how many events a suspended stream's ring has lost.
    pub fn set_discarded(&mut self, stream: usize, discarded: u64) {
        if let Some(suspended) = self.stream(stream) {
            suspended.origin.discarded = suspended.origin.discarded.max(discarded);
        }
    }
}

impl SourceWriter {
    /// Has the trace go on in another folder, which doesn't exist yet. All packets must be written.
    /// A trace that is synchronised or shared can't.
    pub fn continue_in(&mut self, folder: DirHandle) {
        let initial = self.initial_stream();
        self.succession.suspended.resize_with(self.streams.len(), || None);
        self.succession.events_before = self.succession.events_of_rings;
        for (number, stream) in self.streams.iter_mut().enumerate() {
            let Some(StreamWriter { file, size, mut origin, last_moment, ring_end, .. }) = stream.take()
            else {
                continue;
            };
            let written = origin.tally.written.saturating_sub(file.dropped());
            let is_initial = number == initial;
            if !is_initial {
                self.succession.events_of_rings = self.succession.events_of_rings.saturating_add(written);
                // What a killed recorder leaves in a folder is counted there.
                origin.tally.written = 0;
            }
            let initial = is_initial.then_some((file, size, written));
            self.succession.suspended[number] = Some(Suspended { origin, last_moment, ring_end, initial });
        }
        let sequence = |stream: &Option<Suspended>| stream.as_ref().map_or(0, |it| it.origin.sequence);
        let begins = self.succession.suspended.iter().map(sequence).collect();
        self.succession.begins_before = std::mem::replace(&mut self.succession.begins, begins);
        self.folder = folder;
        self.described = 0;
        self.described_at = None;
    }

    /// Forgets the folder before the present one, which is removed: packets are numbered as if it
    /// had not been. The initial state stays.
    pub fn forget_folder(&mut self) {
        let initial = self.initial_stream();
        self.succession.events_of_rings = self.succession.events_before;
        let Succession { suspended, begins, begins_before, .. } = &mut self.succession;
        for (number, stream) in suspended.iter_mut().enumerate().filter(|(number, _)| *number != initial) {
            if let Some(stream) = stream {
                stream.origin.sequence = begins_before.get(number).copied().unwrap_or(0);
            }
        }
        begins.clone_from(begins_before);
    }

    /// Creates the file of a stream that an earlier folder has, too. False if there is none.
    pub(super) fn continue_stream(&mut self, stream: usize) -> io::Result<bool> {
        let initial = self.initial_stream();
        if stream != initial && self.succession.stream(initial).is_some() {
            // The state at the begin comes before what follows from it.
            self.continue_stream(initial)?;
        }
        let Some(suspended) = self.succession.stream(stream) else { return Ok(false) };
        let ring = (stream != initial).then_some(stream as u32);
        let is_durable = self.mode == WriteMode::Durable;
        let mut writer = StreamWriter::create(&self.folder, &self.description, ring, is_durable)?;
        if let Some((file, size, _)) = &suspended.initial {
            file.copy_to(&writer.file)?;
            writer.size = *size;
        }
        let Suspended { origin, last_moment, ring_end, .. } = *suspended;
        (writer.origin, writer.last_moment, writer.ring_end) = (origin, last_moment, ring_end);
        self.streams[stream] = Some(writer);
        self.succession.suspended[stream] = None;
        Ok(true)
    }
}
