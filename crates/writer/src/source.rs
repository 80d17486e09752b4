//! CTF trace of one process: metadata, one data stream for each ring, their indexes.

use std::{
    io,
    time::{Duration, Instant},
};

use tompion_ctf::{
    encode::{self, Packet, Plan, Record},
    metadata::{Event as EventClass, Trace},
    tsdl,
};
use tompion_os::DirHandle;
use tompion_schema::Event;

use crate::{
    resume,
    stream_writer::{INITIAL_STREAM, Mark, StreamWriter, WriteMode},
};

mod saved;
mod shared;
mod succession;

pub use saved::{ResumedTrace, SavedState, SavedTrace};
pub use shared::IdentityFields;
use shared::Shared;
use succession::Succession;

/// A packet is written when it has this many bytes.
const PACKET_SIZE: usize = 256 * 1024;

/// After the metadata was written, a ring's losses end no packet with new classes for this long: a
/// program that makes up losses and classes would have the metadata written for each of them.
const METADATA_PAUSE: Duration = Duration::from_millis(100);

/// Number of an event class in the metadata.
pub type ClassId = u32;

/// Writes the trace of one process. Nothing is on disk before there is an event.
#[derive(Debug)]
pub struct SourceWriter {
    folder: DirHandle,
    description: encode::Source,
    classes: Vec<EventClass>,
    /// Encodings of the classes' events; none for a class of a trace that is continued, until it is
    /// met.
    plans: Vec<Option<Plan>>,
    /// Number of events of each class that packets have taken.
    counts: Vec<u64>,
    /// Number of classes in the metadata file.
    described: usize,
    /// Time at which it was written.
    described_at: Option<Instant>,
    mode: WriteMode,
    /// Time at which the writer was made: no event is older.
    begun: u64,
    /// One for each ring, and one for the initial state.
    streams: Vec<Option<StreamWriter>>,
    /// Streams whose ring has overwritten events since the last packet.
    interrupted: Vec<bool>,
    /// State of a trace that processes share.
    shared: Option<Shared>,
    /// State that earlier folders have left.
    succession: Succession,
}

/// Outcome of appending an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// The event is in the packet.
    Taken,
    /// The event is in the packet, and the packet should be written.
    Full,
    /// Its payload doesn't fit its description.
    Misfit,
}

/// A packet to which events can be appended.
#[derive(Debug)]
pub struct OpenPacket<'a> {
    packet: &'a mut Packet,
    plans: &'a [Option<Plan>],
    counts: &'a mut [u64],
}

impl OpenPacket<'_> {
    /// Appends an event, which comes behind the others of the packet in its ring.
    #[inline(always)]
    pub fn push(&mut self, record: &Record<'_>) -> Pushed {
        let Some(Some(plan)) = self.plans.get(record.id as usize) else { return Pushed::Misfit };
        if self.packet.push(record, plan).is_err() {
            return Pushed::Misfit;
        }
        self.count(record.id, 1);
        if self.packet.len() >= PACKET_SIZE { Pushed::Full } else { Pushed::Taken }
    }

    /// Appends events of one class that come behind the others of the packet in its ring, as many
    /// as can be in a short way and fit. Returns how many.
    #[inline(always)]
    pub fn push_run<'a, const PAYLOAD: usize>(
        &mut self,
        id: ClassId,
        events: impl Iterator<Item = (u32, u64, &'a [u8; PAYLOAD])>,
    ) -> usize {
        let Some(Some(plan)) = self.plans.get(id as usize) else { return 0 };
        let pushed = self.packet.push_run((id, plan), PACKET_SIZE, events);
        self.count(id, pushed as u64);
        pushed
    }

    #[inline(always)]
    fn count(&mut self, id: ClassId, events: u64) {
        if let Some(count) = self.counts.get_mut(id as usize) {
            *count = count.wrapping_add(events);
        }
    }
}

impl SourceWriter {
    /// A trace in a folder that doesn't exist yet, with a stream for each of so many rings.
    pub fn new(folder: DirHandle, description: encode::Source, rings: usize, mode: WriteMode) -> Self {
        Self {
            folder,
            description,
            classes: Vec::new(),
            plans: Vec::new(),
            counts: Vec::new(),
            described: 0,
            described_at: None,
            mode,
            begun: tompion_os::monotonic_ns(),
            streams: (0..=rings).map(|_| None).collect(),
            interrupted: vec![false; rings + 1],
            shared: None,
            succession: Succession::default(),
        }
    }

    /// Has a trace that nothing was written of be in another folder.
    pub fn set_folder(&mut self, folder: DirHandle) {
        self.folder = folder;
    }

    /// Says when the trace was begun, if another recorder has begun it: no event is older.
    pub fn begun_at(&mut self, time: u64) {
        self.begun = time;
    }

    /// Continues the trace that another session has left in the folder, if any: streams end behind
    /// their last whole packet, classes keep their numbers. `expected` is what is known of each
    /// ring's packets. The initial state is written again. Returns a line for each damage that was
    /// found.
    pub fn resume(&mut self, expected: &[resume::Expected]) -> Result<Vec<String>, resume::Error> {
        let Some(trace) = resume::metadata(&self.folder, self.description.uuid)? else {
            // It comes before the first packet.
            let names = (0..expected.len()).map(|ring| format!("stream_{ring}"));
            return names
                .chain([INITIAL_STREAM.into()])
                .try_for_each(|name| resume::remove_stream(&self.folder, &name))
                .map(|()| Vec::new());
        };
        self.classes = trace.streams.into_iter().next().map_or(Vec::new(), |stream| stream.events);
        self.plans = self.classes.iter().map(|_| None).collect();
        self.counts = vec![0; self.classes.len()];
        self.described = self.classes.len();
        let mut damage = Vec::new();
        for (ring, expected) in expected.iter().enumerate() {
            let resumed = resume::stream(&self.folder, &self.description, ring as u32, expected)?;
            self.streams[ring] = resumed.map(|(stream, found)| {
                damage.extend(found);
                stream
            });
        }
        resume::remove_stream(&self.folder, INITIAL_STREAM)?;
        Ok(damage)
    }

    /// Mark of a ring as written before; empty if there is no stream of it.
    pub fn mark(&self, ring: usize) -> Mark {
        let stream = self.streams[ring].as_ref();
        let here = stream.map(|stream| Mark { ring_end: stream.ring_end, tally: stream.origin.tally });
        here.or_else(|| self.suspended_mark(ring)).unwrap_or_default()
    }

    /// The stream of the initial state, which comes from no ring.
    pub fn initial_stream(&self) -> usize {
        self.streams.len() - 1
    }

    /// Whether there was an event in some ring.
    pub fn has_events(&self) -> bool {
        self.streams[..self.initial_stream()].iter().any(Option::is_some)
    }

    /// Events of the rings in packets that were written whole.
    pub fn written_of_rings(&self) -> u64 {
        let rings = &self.streams[..self.initial_stream()];
        let here: u64 = rings.iter().flatten().map(StreamWriter::written).sum();
        here.saturating_add(self.succession.written_of_rings())
    }

    /// Description of the trace.
    pub fn description(&self) -> &encode::Source {
        &self.description
    }

    /// Number of event classes of the trace.
    pub fn classes_count(&self) -> usize {
        self.classes.len()
    }

    /// The trace's folder.
    pub fn folder(&self) -> &DirHandle {
        &self.folder
    }

    /// Events in packets that were written whole.
    pub fn written(&self) -> u64 {
        let here: u64 = self.all_streams().map(StreamWriter::written).sum();
        here.saturating_add(self.succession.written())
    }

    /// Names of the classes, and how many events of each this writer's packets have taken.
    pub fn class_counts(&self) -> impl Iterator<Item = (&str, u64)> {
        self.classes.iter().zip(&self.counts).map(|(class, count)| (class.name.as_str(), *count))
    }

    /// Bytes of packets in the folder's files.
    pub fn bytes(&self) -> u64 {
        self.all_streams().map(|stream| stream.size).fold(0, u64::saturating_add)
    }

    /// Adds an event class, or finds the one that a trace which is continued has of it.
    pub fn add_class(&mut self, event: &Event) -> ClassId {
        if let Some(id) = self.shared_class(event) {
            return id;
        }
        let known = self.plans.iter().any(Option::is_none).then(|| self.find_class(event)).flatten();
        let id = known.unwrap_or(self.classes.len());
        if known.is_none() {
            self.classes.push(encode::event_class(event, id as u64));
            self.plans.push(None);
            self.counts.push(0);
        }
        self.plans[id] = Some(Plan::new(event));
        self.share_class(event, id as ClassId);
        id as ClassId
    }

    /// The class without a plan that is described as this event is.
    fn find_class(&self, event: &Event) -> Option<usize> {
        // As it reads in a file: types that the text can't tell apart compare equal.
        let written = |class: EventClass| tsdl::parse_text(&tsdl::write(&self.trace(vec![class]))).ok();
        let class = written(encode::event_class(event, 0))?.streams.into_iter().next()?.events.pop()?;
        let same = |(id, known): &(usize, &EventClass)| {
            self.plans[*id].is_none() && EventClass { id: 0, ..(*known).clone() } == class
        };
        self.classes.iter().enumerate().find(same).map(|(id, _)| id)
    }

    fn trace(&self, classes: Vec<EventClass>) -> Trace {
        encode::metadata_of_classes(&self.description, classes)
    }

    /// Appends an event that stands at a position of a ring to the ring's stream.
    pub fn push(
        &mut self,
        stream: usize,
        cpu: u32,
        position: u64,
        record: &Record<'_>,
    ) -> io::Result<Pushed> {
        if self.streams[stream].is_none() {
            self.create(stream, record.time)?;
        }
        if self.streams[stream].as_ref().is_some_and(|writer| writer.origin.cpu != cpu) {
            let mark = self.mark(stream);
            self.flush(stream, mark)?;
        }
        let Some(writer) = &mut self.streams[stream] else { return Ok(Pushed::Misfit) };
        writer.origin.cpu = cpu;
        if writer.packet.is_empty() {
            writer.origin.ring_begin = position;
            if std::mem::take(&mut self.interrupted[stream]) {
                writer.origin.sequence = writer.origin.sequence.wrapping_add(1);
            }
        }
        Ok(OpenPacket { packet: &mut writer.packet, plans: &self.plans, counts: &mut self.counts }
            .push(record))
    }

    /// A stream's packet that has events of this CPU already.
    pub fn open_packet(&mut self, stream: usize, cpu: u32) -> Option<OpenPacket<'_>> {
        let writer = self.streams[stream].as_mut()?;
        let is_open = !writer.packet.is_empty() && writer.origin.cpu == cpu;
        is_open.then_some(OpenPacket {
            packet: &mut writer.packet,
            plans: &self.plans,
            counts: &mut self.counts,
        })
    }

    /// Bytes of a stream's packet in the making.
    pub fn packet_len(&self, stream: usize) -> usize {
        self.streams[stream].as_ref().map_or(0, |writer| writer.packet.len())
    }

    /// Creates a stream whose first event has this time, or takes one that is there.
    fn create(&mut self, stream: usize, time: u64) -> io::Result<()> {
        if let Some(lane) = self.take_lane(time) {
            self.streams[stream] = Some(lane);
            return Ok(());
        }
        if self.continue_stream(stream)? {
            return Ok(());
        }
        let is_ring = stream != self.initial_stream();
        let ring = is_ring.then(|| self.new_lane(stream as u32));
        let writer =
            StreamWriter::create(&self.folder, &self.description, ring, self.mode == WriteMode::Durable)?;
        self.streams[stream] = Some(writer);
        Ok(())
    }

    /// Number of events that the ring had lost until the end of the stream's packet, as it knows.
    pub fn discarded(&self, stream: usize) -> u64 {
        let here = self.streams[stream].as_ref().map(|writer| writer.origin.discarded);
        here.unwrap_or_else(|| self.succession.discarded(stream))
    }

    /// Ends the stream's packet and says how many events the ring had lost until after it.
    pub fn set_discarded(&mut self, stream: usize, discarded: u64, mark: Mark) -> io::Result<()> {
        let is_new = |writer: &StreamWriter| discarded > writer.origin.discarded;
        if self.streams[stream].as_ref().is_some_and(is_new) {
            let just_described = self.described_at.is_some_and(|time| time.elapsed() < METADATA_PAUSE);
            if self.described == self.classes.len() || !just_described {
                self.flush(stream, mark)?;
            }
        }
        self.raise_discarded(stream, discarded);
        Ok(())
    }

    /// Says how many events the ring had lost until after the stream's packet, without ending it:
    /// further ones may lie anywhere in it.
    pub fn raise_discarded(&mut self, stream: usize, discarded: u64) {
        if let Some(writer) = &mut self.streams[stream] {
            writer.origin.discarded = discarded.max(writer.origin.discarded);
        }
        self.succession.set_discarded(stream, discarded);
    }

    /// Ends the stream's packet, since the ring has overwritten what came behind it. The next
    /// packet's sequence number leaves one out, by which every reader knows that events are missing
    /// between them.
    pub fn interrupt(&mut self, stream: usize, mark: Mark) -> io::Result<()> {
        self.interrupted[stream] = true;
        self.flush(stream, mark)
    }

    /// Writes the stream's packet, if it has events.
    pub fn flush(&mut self, stream: usize, mark: Mark) -> io::Result<()> {
        // Without a stream nothing passed the session's filter yet, and there is no folder.
        if self.streams[stream].is_some() && self.described < self.classes.len() {
            self.write_metadata()?;
        }
        let (mode, mark) = (self.mode, self.mark_in_packet(stream, mark));
        match &mut self.streams[stream] {
            Some(writer) if !writer.packet.is_empty() => writer.write_packet(mark, mode),
            _ => Ok(()),
        }
    }

    /// Says in a packet without events that a ring was converted up to there, and nothing was
    /// taken: where all is left out, the ring's room would never be given back otherwise.
    pub fn say_passed(&mut self, stream: usize, mark: Mark) -> io::Result<()> {
        if self.streams[stream].is_none() {
            self.create(stream, self.begun)?;
            self.write_metadata()?;
        }
        let (begun, mode) = (self.begun, self.mode);
        match &mut self.streams[stream] {
            Some(writer) if writer.packet.is_empty() => {
                if writer.last_moment == 0 {
                    // Not the present: events that wait in the ring are older.
                    writer.last_moment = begun;
                }
                writer.write_packet(mark, mode)
            }
            _ => Ok(()),
        }
    }

    /// Completes the stream; `discarded` is what its ring has lost altogether. Losses behind its
    /// last packet get one without events.
    pub fn finish(&mut self, stream: usize, discarded: u64, mark: Mark) -> io::Result<()> {
        self.flush(stream, mark)?;
        if discarded > self.succession.reported(stream).unwrap_or(discarded) && self.streams[stream].is_none()
        {
            self.continue_stream(stream)?;
            self.write_metadata()?;
        }
        let mode = self.mode;
        match &mut self.streams[stream] {
            Some(writer) if discarded > writer.reported => {
                writer.origin.discarded = discarded;
                writer.write_packet(mark, mode)
            }
            _ => Ok(()),
        }
    }

    /// Sees to it that the medium has what was written of a stream, in [`WriteMode::Durable`];
    /// else that the system has. Returns up to where that accounts for the ring; nothing if that is
    /// known already.
    pub fn sync(&mut self, stream: usize) -> io::Result<Option<u64>> {
        let Some(writer) = self.streams[stream].as_mut().filter(|writer| writer.unsynced) else {
            return Ok(None);
        };
        if self.mode == WriteMode::Durable {
            writer.file.sync()?;
        }
        writer.unsynced = false;
        Ok(Some(writer.ring_end))
    }

    /// Whether no packet waits to be written.
    pub fn is_settled(&self) -> bool {
        self.all_streams().all(|stream| stream.file.is_settled())
    }

    /// Waits until all packets are written, or it is known why not.
    pub fn settle(&self) -> io::Result<()> {
        let mut result = Ok(());
        for stream in self.all_streams() {
            result = result.and(stream.file.settle());
        }
        result
    }

    /// Says whether writing a packet has failed.
    pub fn check(&self) -> io::Result<()> {
        self.all_streams().try_for_each(|stream| stream.file.check())
    }

    fn write_metadata(&mut self) -> io::Result<()> {
        let trace = self.trace(self.classes.clone());
        let text = tsdl::write(&trace);
        self.folder.replace("metadata", text.as_bytes(), self.mode == WriteMode::Durable)?;
        self.described = self.classes.len();
        self.described_at = Some(Instant::now());
        Ok(())
    }
}

#[cfg(any(test, feature = "testing"))]
impl SourceWriter {
    /// The classes, in the order of their numbers.
    pub fn classes(&self) -> &[EventClass] {
        &self.classes
    }

    /// Events of a stream, in packets that were written and in the one that wasn't yet.
    pub fn events_of(&self, stream: usize) -> u64 {
        self.streams[stream]
            .as_ref()
            .map_or(0, |writer| writer.written().saturating_add(writer.packet.events()))
    }

    /// The packet of a stream that would be written next; another one is begun.
    pub fn take_packet(&mut self, stream: usize) -> Vec<u8> {
        let Some(writer) = &mut self.streams[stream] else { return Vec::new() };
        writer.origin.tally.written = writer.origin.tally.written.saturating_add(writer.packet.events());
        writer.packet.finish(writer.origin, 0, |bytes, info| bytes[..info.size as usize].to_vec())
    }
}
