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
    pub(super) suspended: Vec<Option<Suspended>>,
    /// Events of rings in earlier folders, and in those before the last one.
    pub(super) events_of_rings: u64,
    pub(super) events_before: u64,
    /// Sequence number of each stream's next packet at the begin of the present folder and of the
    /// one before.
    pub(super) begins: Vec<u64>,
    begins_before: Vec<u64>,
    /// Events of the initial state in files that are not repeated any more.
    pub(super) initial_before: u64,
    /// Bytes of the present folder that are copies.
    copied: u64,
    /// Classes, and bytes of the initial state, that were copied for a recorder that comes back.
    pub(super) kept_classes: usize,
    pub(super) kept_initial: u64,
}

/// A stream between two files.
#[derive(Debug)]
pub(super) struct Suspended {
    pub origin: Origin,
    /// Lost events that its last packet tells of.
    pub reported: u64,
    pub last_moment: u64,
    pub ring_end: u64,
    pub initial: Option<InitialFile>,
}

/// File of the initial state, which the next folder repeats.
#[derive(Clone, Debug)]
pub(super) struct InitialFile {
    pub file: Arc<PacketFile>,
    pub size: u64,
    pub events: u64,
}

impl Succession {
    /// Events of rings in earlier folders.
    pub fn written_of_rings(&self) -> u64 {
        self.events_of_rings
    }

    /// All events that are in earlier folders alone.
    pub fn written(&self) -> u64 {
        let initial = self.suspended.iter().flatten().filter_map(|stream| stream.initial.as_ref());
        let before = self.events_of_rings.saturating_add(self.initial_before);
        initial.map(|file| file.events).fold(before, u64::saturating_add)
    }

    fn stream(&mut self, stream: usize) -> Option<&mut Suspended> {
        self.suspended.get_mut(stream)?.as_mut()
    }

    /// Events that a suspended stream's ring has lost.
    pub fn discarded(&self, stream: usize) -> u64 {
        let suspended = self.suspended.get(stream).and_then(Option::as_ref);
        suspended.map_or(0, |suspended| suspended.origin.discarded)
    }

    /// Lost events of its ring that a suspended stream's packets tell of; none if it is not
    /// suspended.
    pub fn reported(&self, stream: usize) -> Option<u64> {
        self.suspended.get(stream)?.as_ref().map(|suspended| suspended.reported)
    }

    /// Says how many events a suspended stream's ring has lost.
    pub fn set_discarded(&mut self, stream: usize, discarded: u64) {
        if let Some(suspended) = self.stream(stream) {
            suspended.origin.discarded = suspended.origin.discarded.max(discarded);
        }
    }
}

impl SourceWriter {
    /// Has the trace go on in another folder, which doesn't exist yet. All packets must be written,
    /// and synchronised if the trace is. A shared trace can't.
    pub fn continue_in(&mut self, folder: DirHandle) {
        let initial = self.initial_stream();
        self.succession.suspended.resize_with(self.streams.len(), || None);
        self.succession.events_before = self.succession.events_of_rings;
        for (number, stream) in self.streams.iter_mut().enumerate() {
            let Some(StreamWriter { file, size, mut origin, reported, last_moment, ring_end, .. }) =
                stream.take()
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
            let initial = is_initial.then_some(InitialFile { file, size, events: written });
            self.succession.suspended[number] =
                Some(Suspended { origin, reported, last_moment, ring_end, initial });
        }
        let sequence = |stream: &Option<Suspended>| stream.as_ref().map_or(0, |it| it.origin.sequence);
        let begins = self.succession.suspended.iter().map(sequence).collect();
        self.succession.begins_before = std::mem::replace(&mut self.succession.begins, begins);
        self.folder = folder;
        self.described = 0;
        self.described_at = None;
        self.succession.copied = 0;
    }

    /// Bytes of the initial state's packets, which the next folder repeats.
    pub fn initial_bytes(&self) -> u64 {
        let initial = self.initial_stream();
        let suspended = self.succession.suspended.get(initial).and_then(Option::as_ref);
        let suspended = suspended.and_then(|stream| stream.initial.as_ref()).map(|file| file.size);
        self.streams[initial].as_ref().map(|stream| stream.size).or(suspended).unwrap_or(0)
    }

    /// Bytes of packets in the folder's files that are no copies of the initial state.
    pub fn new_bytes(&self) -> u64 {
        self.bytes().saturating_sub(self.succession.copied)
    }

    /// Restarts the initial state in a folder in which nothing is written yet: it repeats
    /// nothing of it, and its packets go on with their numbers.
    pub fn restart_initial_state(&mut self) {
        let initial = self.initial_stream();
        let Some(stream) = self.succession.stream(initial) else { return };
        let Some(InitialFile { events, .. }) = stream.initial.take() else { return };
        stream.origin.tally.written = 0;
        self.succession.initial_before = self.succession.initial_before.saturating_add(events);
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
        if stream != initial && self.succession.stream(initial).is_some_and(|it| it.initial.is_some()) {
            // The state at the begin comes before what follows from it.
            self.continue_stream(initial)?;
        }
        let Some(suspended) = self.succession.stream(stream) else { return Ok(false) };
        let ring = (stream != initial).then_some(stream as u32);
        let is_durable = self.mode == WriteMode::Durable;
        let mut writer = StreamWriter::create(&self.folder, &self.description, ring, is_durable)?;
        let mut copied = 0;
        if let Some(InitialFile { file, size, .. }) = &suspended.initial {
            file.copy_to(&writer.file)?;
            (writer.size, writer.unsynced, copied) = (*size, true, *size);
        }
        let Suspended { origin, reported, last_moment, ring_end, .. } = *suspended;
        (writer.origin, writer.reported) = (origin, reported);
        (writer.last_moment, writer.ring_end) = (last_moment, ring_end);
        self.streams[stream] = Some(writer);
        self.succession.suspended[stream] = None;
        self.succession.copied = self.succession.copied.saturating_add(copied);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use tompion_ctf::encode::{self, Record};
    use tompion_testing::TestDir;

    use super::*;
    use crate::{
        source::shared::tests::{description, event},
        stream_writer::Mark,
    };

    fn writer(folder: DirHandle) -> SourceWriter {
        let description = encode::Source { numbers_streams: true, ..description() };
        SourceWriter::new(folder, description, 1, WriteMode::Immediate)
    }

    /// Writes one event to a stream, as a packet.
    fn write(writer: &mut SourceWriter, stream: usize, time: u64) {
        let id = match writer.classes_count() {
            0 => writer.add_class(&event()),
            _ => 0,
        };
        let record = Record { id, time, tid: 1, context: &[], payload: &[1] };
        writer.push(stream, 0, 0, &record).unwrap();
        writer.flush(stream, Mark::default()).unwrap();
    }

    #[test]
    fn losses_behind_the_last_event_are_in_the_last_folder() {
        let dir = TestDir::new("losses");
        let root = DirHandle::open(&dir).unwrap();
        let mut writer = writer(root.join("1"));
        write(&mut writer, 0, 1);
        writer.continue_in(root.join("2"));
        writer.finish(0, 0, Mark::default()).unwrap();
        assert!(!dir.join("2").exists(), "nothing is to be reported");
        // It was known before the recording ended.
        writer.raise_discarded(0, 3);
        writer.finish(0, 3, Mark::default()).unwrap();
        writer.finish(0, 3, Mark::default()).unwrap();
        let stream = writer.streams[0].as_ref().unwrap();
        assert_eq!((stream.reported, stream.origin.sequence, writer.written()), (3, 2, 1));
        assert!(dir.join("2/metadata").exists());
    }

    #[test]
    fn an_initial_state_that_is_restarted_is_not_copied_and_counts_once() {
        let dir = TestDir::new("succession");
        let root = DirHandle::open(&dir).unwrap();
        let mut writer = writer(root.join("1"));
        let initial = writer.initial_stream();
        write(&mut writer, initial, 1);
        write(&mut writer, 0, 2);
        let state = writer.initial_bytes();
        assert_eq!((writer.written(), writer.new_bytes()), (2, writer.bytes()));

        writer.continue_in(root.join("2"));
        assert_eq!((writer.written(), writer.new_bytes(), writer.initial_bytes()), (2, 0, state));
        write(&mut writer, 0, 3);
        assert_eq!((writer.written(), writer.bytes() - writer.new_bytes()), (3, state), "a copy");

        writer.continue_in(root.join("3"));
        writer.restart_initial_state();
        assert_eq!((writer.written(), writer.initial_bytes()), (3, 0));
        write(&mut writer, 0, 4);
        assert!(!dir.join("3/stream_initial").exists(), "there is no state yet");
        write(&mut writer, initial, 5);
        assert_eq!((writer.written(), writer.written_of_rings()), (5, 3));
        assert_eq!((writer.new_bytes(), writer.initial_bytes()), (writer.bytes(), state));
        assert_eq!(writer.streams[initial].as_ref().unwrap().origin.tally.written, 1, "of this file");

        writer.continue_in(root.join("4"));
        write(&mut writer, 0, 6);
        assert_eq!((writer.written(), writer.bytes() - writer.new_bytes()), (6, state), "a copy again");
    }
}
