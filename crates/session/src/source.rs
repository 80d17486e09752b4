//! The CTF trace of one process: metadata, one data stream for each ring, their indexes.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use tompion_ctf::{
    encode::{self, Origin, Packet, Plan, Record},
    tsdl,
};
use tompion_schema::Event;

use crate::manifest::replace_file;

/// A packet is written when it has this many bytes.
const PACKET_SIZE: usize = 256 * 1024;

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
    /// A trace in a folder that doesn't exist yet, with room for so many streams.
    pub fn new(folder: PathBuf, description: encode::Source, streams: usize) -> Self {
        Self {
            folder,
            description,
            events: Vec::new(),
            plans: Vec::new(),
            described: 0,
            streams: (0..streams).map(|_| None).collect(),
        }
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
        let Some(plan) = self.plans.get(record.id as usize) else { return Ok(false) };
        if self.streams[stream].is_none() {
            self.streams[stream] = Some(StreamWriter::create(&self.folder, &self.description, stream, cpu)?);
        }
        let Some(writer) = &mut self.streams[stream] else { return Ok(false) };
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
            self.flush(stream)?;
            if let Some(writer) = &mut self.streams[stream] {
                writer.origin.discarded = discarded;
            }
        }
        Ok(())
    }

    /// Writes the stream's packet, if it has events.
    pub fn flush(&mut self, stream: usize) -> io::Result<()> {
        if self.described < self.events.len() {
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
        Ok(())
    }
}

impl StreamWriter {
    fn create(folder: &Path, source: &encode::Source, stream: usize, cpu: u32) -> io::Result<Self> {
        let indexes = folder.join("index");
        fs::create_dir_all(&indexes)?;
        let name = format!("stream_{stream}");
        let data = File::create_new(folder.join(&name))?;
        let mut index = File::create_new(indexes.join(name + ".idx"))?;
        index.write_all(&encode::index_header())?;
        let origin = Origin { ring_id: stream as u32, cpu, ..Origin::default() };
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
