//! The CTF trace of one process: metadata, one data stream for each ring, their indexes.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use tompion_ctf::{
    encode::{self, Origin, Packet, Plan, Record},
    tsdl,
};
use tompion_schema::Event;

use crate::manifest::replace_file;

/// A packet is written when it has this many bytes.
const PACKET_SIZE: usize = 256 * 1024;

/// After the metadata was written, a ring's losses end no packet with new classes for this long: whoever makes up
/// losses and classes would have the metadata written for each of them.
const METADATA_PAUSE: Duration = Duration::from_millis(100);

/// File of the events that tell of the initial state. Readers look for it.
const INITIAL_STREAM: &str = "stream_initial";

/// Number of an event class in the metadata.
pub type ClassId = u32;

/// Writes the trace of one process. Nothing is on disk before there is an event.
#[derive(Debug)]
pub struct SourceWriter {
    folder: PathBuf,
    description: encode::Source,
    events: Vec<Event>,
    plans: Vec<Plan>,
    /// How many classes the metadata file has.
    described: usize,
    /// When it was written.
    described_at: Option<Instant>,
    /// One for each ring, and one for the initial state.
    streams: Vec<Option<StreamWriter>>,
}

/// Writes one data stream.
#[derive(Debug)]
struct StreamWriter {
    data: File,
    index: File,
    size: u64,
    packet: Packet,
    origin: Origin,
    last_moment: u64,
    /// Events in packets that were written whole.
    written: u64,
}

impl SourceWriter {
    /// A trace in a folder that doesn't exist yet, with a stream for each of so many rings.
    pub fn new(folder: PathBuf, description: encode::Source, rings: usize) -> Self {
        Self {
            folder,
            description,
            events: Vec::new(),
            plans: Vec::new(),
            described: 0,
            described_at: None,
            streams: (0..=rings).map(|_| None).collect(),
        }
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
        rings.iter().flatten().map(|stream| stream.written).sum()
    }

    /// The trace's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Events in packets that were written whole.
    pub fn written(&self) -> u64 {
        self.streams.iter().flatten().map(|stream| stream.written).sum()
    }

    /// Adds an event class.
    pub fn add_class(&mut self, event: Event) -> ClassId {
        self.plans.push(Plan::new(&event));
        self.events.push(event);
        (self.events.len() - 1) as ClassId
    }

    /// Appends an event to a stream. `Ok(false)` if its payload doesn't fit the description.
    #[inline]
    pub fn push(&mut self, stream: usize, cpu: u32, position: u64, record: &Record<'_>) -> io::Result<bool> {
        if self.streams[stream].is_none() {
            let ring = (stream != self.initial_stream()).then_some(stream as u32);
            self.streams[stream] = Some(StreamWriter::create(&self.folder, &self.description, ring)?);
        }
        if self.streams[stream].as_ref().is_some_and(|writer| writer.origin.cpu != cpu) {
            self.flush(stream)?;
        }
        let Some(plan) = self.plans.get(record.id as usize) else { return Ok(false) };
        let Some(writer) = &mut self.streams[stream] else { return Ok(false) };
        writer.origin.cpu = cpu;
        if writer.packet.is_empty() {
            writer.origin.ring_begin = position;
        }
        let fits = writer.packet.push(record, plan).is_ok();
        if writer.packet.len() >= PACKET_SIZE {
            self.flush(stream)?;
        }
        Ok(fits)
    }

    /// Ends the stream's packet and says how many events the ring had lost until after it.
    pub fn set_discarded(&mut self, stream: usize, discarded: u64) -> io::Result<()> {
        let Some(writer) = &mut self.streams[stream] else { return Ok(()) };
        if discarded > writer.origin.discarded {
            let just_described = self.described_at.is_some_and(|time| time.elapsed() < METADATA_PAUSE);
            if self.described == self.events.len() || !just_described {
                self.flush(stream)?;
            }
            if let Some(writer) = &mut self.streams[stream] {
                writer.origin.discarded = discarded;
            }
        }
        Ok(())
    }

    /// Writes the stream's packet, if it has events.
    pub fn flush(&mut self, stream: usize) -> io::Result<()> {
        // Without a stream nothing passed the session's filter yet, and there is no folder.
        if self.streams[stream].is_some() && self.described < self.events.len() {
            self.write_metadata()?;
        }
        match &mut self.streams[stream] {
            Some(writer) if !writer.packet.is_empty() => writer.write_packet(),
            _ => Ok(()),
        }
    }

    /// Completes the stream; `discarded` is what its ring has lost altogether.
    pub fn finish(&mut self, stream: usize, discarded: u64) -> io::Result<()> {
        self.flush(stream)?;
        match &mut self.streams[stream] {
            Some(writer) if discarded > writer.origin.discarded => {
                writer.origin.discarded = discarded;
                writer.write_packet()
            }
            _ => Ok(()),
        }
    }

    fn write_metadata(&mut self) -> io::Result<()> {
        let trace = encode::metadata(&self.description, &self.events);
        replace_file(&self.folder.join("metadata"), tsdl::write(&trace).as_bytes())?;
        self.described = self.events.len();
        self.described_at = Some(Instant::now());
        Ok(())
    }
}

impl StreamWriter {
    fn create(folder: &Path, source: &encode::Source, ring: Option<u32>) -> io::Result<Self> {
        let indexes = folder.join("index");
        fs::create_dir_all(&indexes)?;
        let name = ring.map_or_else(|| INITIAL_STREAM.into(), |ring| format!("stream_{ring}"));
        let data = File::create_new(folder.join(&name))?;
        let mut index = File::create_new(indexes.join(name + ".idx"))?;
        index.write_all(&encode::index_header())?;
        let origin = Origin { ring_id: ring.unwrap_or(u32::MAX), ..Origin::default() };
        Ok(Self { data, index, size: 0, packet: Packet::new(source), origin, last_moment: 0, written: 0 })
    }

    fn write_packet(&mut self) -> io::Result<()> {
        let Self { data, index, size, packet, origin, last_moment, written } = self;
        let events = packet.events();
        let result = packet.finish(*origin, *last_moment, |bytes, info| {
            data.write_all(bytes)?;
            *last_moment = info.end;
            let entry = encode::index_entry(*size, info, origin.ring_id.into());
            *size += info.size;
            index.write_all(&entry)
        });
        origin.sequence += 1;
        *written += if result.is_ok() { events } else { 0 };
        // What a full disk left of the packet is taken away, so that the file ends with a whole one.
        result.inspect_err(|_| drop(data.set_len(*size)))
    }
}

#[cfg(test)]
impl SourceWriter {
    /// The classes, in the order of their numbers.
    pub fn classes(&self) -> &[Event] {
        &self.events
    }

    /// Events of a stream, in packets that were written and in the one that wasn't yet.
    pub fn events_of(&self, stream: usize) -> u64 {
        self.streams[stream].as_ref().map_or(0, |writer| writer.written + writer.packet.events())
    }

    /// The packet of a stream that would be written next; another one is begun.
    pub fn take_packet(&mut self, stream: usize) -> Vec<u8> {
        let Some(writer) = &mut self.streams[stream] else { return Vec::new() };
        writer.written += writer.packet.events();
        writer.packet.finish(writer.origin, 0, |bytes, _| bytes.to_vec())
    }
}
