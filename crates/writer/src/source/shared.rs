//! One trace for many short processes.
//!
//! A folder with metadata, streams and indexes costs a process that lives for a millisecond more
//! than its events do: file systems search for a free inode for longer than the process runs. So
//! the events of processes that end before anything of theirs was written go to a trace that they
//! share. In it events say their process themselves, by the contexts `vpid` and `procname`, as in
//! LTTng's traces of all processes of a user.
//!
//! A stream of that trace is a *lane*. It has packets of one process after another, never of two at
//! the same time, so times in it don't go back. There are as many lanes as rings of such processes
//! had events at the same time.

use std::collections::HashMap;

use tompion_ctf::encode::{self, ContextField, Origin, Tally};
use tompion_os::DirHandle;
use tompion_schema::Event;

use super::{ClassId, SourceWriter};
use crate::stream_writer::{Mark, StreamWriter, WriteMode};

/// State of a writer whose trace is shared.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Event classes by their descriptions: processes run the same programs.
    classes: HashMap<Vec<u8>, ClassId>,
    /// Lanes that no process has.
    idle: Vec<StreamWriter>,
    /// Lanes that were created.
    lanes: u32,
    /// Events that all lanes had when the present process came.
    events_before: u64,
}

/// Fields by which each event of a shared trace says its process, of those that the trace lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdentityFields {
    pid: bool,
    name: bool,
}

impl IdentityFields {
    /// Returns the identity fields that are not among the fields of a context.
    pub fn beside(context: &[ContextField]) -> Self {
        let lacks = |name: &str| !context.iter().any(|field| field.name() == name);
        Self { pid: lacks("vpid"), name: lacks("procname") }
    }

    /// Returns these fields as context fields.
    pub fn fields(self) -> impl Iterator<Item = ContextField> {
        let pid = self.pid.then(|| ContextField::signed("vpid", 32));
        pid.into_iter().chain(self.name.then(|| ContextField::text("procname")))
    }

    /// A process's values, as they stand in the trace.
    pub fn encode(self, pid: u32, name: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        if self.pid {
            bytes.extend(pid.to_le_bytes());
        }
        if self.name {
            bytes.extend(name.bytes().filter(|byte| *byte != 0));
            bytes.push(0);
        }
        bytes
    }
}

impl SourceWriter {
    /// A trace for many processes, one at a time: see [`SourceWriter::begin_process`].
    pub fn shared(folder: DirHandle, description: encode::Source) -> Self {
        let mut writer = Self::new(folder, description, 0, WriteMode::Deferred);
        writer.shared = Some(Shared::default());
        writer
    }

    /// From now on events come from the rings of another process, so many.
    pub fn begin_process(&mut self, rings: usize) {
        self.end_process();
        self.streams = (0..=rings).map(|_| None).collect();
        self.interrupted = vec![false; rings + 1];
        let events_before = self.written();
        if let Some(shared) = &mut self.shared {
            shared.events_before = events_before;
        }
    }

    /// Ends the process's part and returns how many events it has in whole packets. Events in a
    /// packet that could not be written are forgotten.
    pub fn end_process(&mut self) -> u64 {
        let written = self.written();
        let Some(shared) = &mut self.shared else { return 0 };
        for mut lane in self.streams.drain(..).flatten() {
            lane.packet.finish(lane.origin, 0, |_, _| ());
            shared.idle.push(lane);
        }
        written.saturating_sub(shared.events_before)
    }

    /// Events that lanes were given and that could not be written.
    pub fn dropped(&self) -> u64 {
        self.all_streams().map(|lane| lane.file.dropped()).sum()
    }

    /// The streams of the present process and, of a shared trace, all the others.
    pub(super) fn all_streams(&self) -> impl Iterator<Item = &StreamWriter> {
        let idle = self.shared.iter().flat_map(|shared| &shared.idle);
        self.streams.iter().flatten().chain(idle)
    }

    /// The lane for events from this time on: of those that end before, the one that ends last.
    /// Nothing if there is none, or the trace isn't shared.
    pub(super) fn take_lane(&mut self, time: u64) -> Option<StreamWriter> {
        let idle = &mut self.shared.as_mut()?.idle;
        let fits = idle.iter().enumerate().filter(|(_, lane)| lane.last_moment <= time);
        let index = fits.max_by_key(|(_, lane)| lane.last_moment)?.0;
        Some(idle.swap_remove(index))
    }

    /// The number of the lane to be created for a ring; of a trace that isn't shared, the ring's.
    pub(super) fn new_lane(&mut self, ring: u32) -> u32 {
        match &mut self.shared {
            None => ring,
            Some(shared) => {
                shared.lanes += 1;
                shared.lanes - 1
            }
        }
    }

    /// The class of an event that another process had, too.
    pub(super) fn shared_class(&self, event: &Event) -> Option<ClassId> {
        let shared = self.shared.as_ref()?;
        shared.classes.get(&tompion_schema::encode(event)).copied()
    }

    /// Remembers an event's class for other processes.
    pub(super) fn share_class(&mut self, event: &Event, id: ClassId) {
        if let Some(shared) = &mut self.shared {
            shared.classes.insert(tompion_schema::encode(event), id);
        }
    }

    /// Mark of a packet's ring. A lane has many rings, each read to its end and without a loss.
    pub(super) fn mark_in_packet(&self, stream: usize, mark: Mark) -> Mark {
        let Some(lane) = self.shared.as_ref().and(self.streams[stream].as_ref()) else { return mark };
        let Origin { tally: Tally { written, .. }, ring_end, .. } = lane.origin;
        let events = written.saturating_add(lane.packet.events());
        Mark { ring_end, tally: Tally { accounted: events, ..Tally::default() } }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use tompion_ctf::encode::Record;
    use tompion_schema::{Field, Integer, Kind, Level, Type};

    use super::*;

    /// Event with one number of a byte.
    pub fn event() -> Event {
        Event {
            provider: "p".into(),
            name: "e".into(),
            level: Level::DEFAULT,
            kind: Kind::Instant,
            init: false,
            format: None,
            attributes: Default::default(),
            fields: vec![Field::new("x", Type::Integer(Integer::unsigned(8)))],
        }
    }

    /// Description of a trace without contexts.
    pub fn description() -> encode::Source {
        encode::Source {
            uuid: tompion_ctf::metadata::Uuid([7; 16]),
            environment: Vec::new(),
            clock_uuid: None,
            clock_offset_ns: 0,
            clock_precision_ns: 1,
            numbers_streams: false,
            tid: true,
            context: Vec::new(),
        }
    }

    fn shared(folder: &std::path::Path) -> SourceWriter {
        let folder = DirHandle::open(folder).expect("a folder").join("shared");
        SourceWriter::shared(folder, description())
    }

    /// Writes a process's events, at these times, and returns how many it has.
    fn write(writer: &mut SourceWriter, times: &[u64]) -> u64 {
        writer.begin_process(2);
        let id = writer.add_class(&event());
        for &time in times {
            let record = Record { id, time, tid: 1, context: &[], payload: &[1] };
            writer.push(0, 0, 0, &record).unwrap();
        }
        writer.flush(0, Mark::default()).unwrap();
        writer.end_process()
    }

    #[test]
    fn processes_share_classes_and_lanes_unless_their_times_overlap() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = shared(folder.path());
        assert_eq!(write(&mut writer, &[10, 20]), 2);
        assert_eq!(write(&mut writer, &[20, 30, 40]), 3);
        assert_eq!(writer.all_streams().count(), 1, "one after the other");
        assert_eq!(write(&mut writer, &[35, 50]), 2);
        assert_eq!(writer.all_streams().count(), 2, "it began before the other's end");
        assert_eq!(write(&mut writer, &[45]), 1);
        let ends: Vec<u64> = writer.all_streams().map(|lane| lane.last_moment).collect();
        assert!(ends == [45, 50] || ends == [50, 45], "it took the lane that had ended: {ends:?}");
        assert_eq!((writer.classes().len(), writer.written(), writer.dropped()), (1, 8, 0));
        writer.settle().unwrap();
    }

    #[test]
    fn an_identity_leaves_out_what_the_context_says() {
        let both = IdentityFields::beside(&[]);
        assert_eq!(both.encode(0x0102, "a\0b"), b"\x02\x01\0\0ab\0");
        let name = IdentityFields::beside(&[ContextField::signed("vpid", 32)]);
        assert_eq!((name.encode(1, "a"), name.fields().count()), (b"a\0".to_vec(), 1));
    }
}
