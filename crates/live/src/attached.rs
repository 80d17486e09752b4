//! One session, as one reader sees it: traces and streams that it was told of, and how far it has
//! read them.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    os::unix::fs::FileExt,
    time::{Duration, Instant},
};

use tompion_ctf::{
    encode::{self, HEAD_SIZE, Head, TRAILER_SIZE},
    metadata::Uuid,
};
use tompion_manifest as manifest;
use tompion_os::DirHandle;

use crate::protocol::{Index, News, Next, Stream};

/// Largest packet that is taken for one, in bytes; as recovery does.
const MAX_PACKET: u64 = 64 << 20;
/// Maximum number of bytes of a description in one answer.
const MAX_METADATA: u64 = 1 << 20;
/// Maximum number of streams of a session.
const MAX_STREAMS: usize = 100_000;
/// Maximum depth of folders below a recording.
const MAX_DEPTH: usize = 6;
/// Time between two looks for new streams.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// Time after which all streams have delivered what is older than a packet of one of them.
/// A packet behind losses waits for two seconds, and each for half a second.
const IDLE_TIME: Duration = Duration::from_millis(3500);
/// Begin of descriptions of CTF 1.8: the protocol's version 2.4 has no others.
const SIGNATURE: &[u8] = b"/* CTF 1.8";
/// End of a declaration: inner ones are indented. A description is sent up to one.
const DECLARATION_END: &[u8] = b"\n};\n";
/// Bit of the ids of streams that are descriptions.
const IS_METADATA: u64 = 1 << 32;

/// Session that a reader is attached to.
#[derive(Debug)]
pub(crate) struct Attached {
    folder: DirHandle,
    traces: Vec<Trace>,
    /// Numbers of traces by their folders.
    numbers: BTreeMap<String, usize>,
    streams: Vec<StreamFile>,
    looked: Option<Instant>,
    is_complete: bool,
    /// Another machine's: its streams come one behind the other after a break.
    is_received: bool,
    /// Number of traces and streams that the reader was told of.
    announced: (usize, usize),
    newest: Newest,
}

/// Trace: the folder of a process, or of the kernel.
#[derive(Debug)]
struct Trace {
    /// Path below the recording.
    below: String,
    /// Bytes of the description that were sent.
    sent: u64,
    /// Names of its streams that are known.
    names: Vec<String>,
}

#[derive(Debug)]
struct StreamFile {
    trace: usize,
    name: String,
    /// Offset behind the last packet that was sent.
    sent: u64,
    class: u64,
    /// Time that was said to be before all later events.
    idle_until: u64,
}

/// End of the newest packet of all streams, now and a while ago.
#[derive(Debug, Default)]
struct Newest {
    latest: u64,
    waiting: Option<(Instant, u64)>,
    settled: u64,
}

impl Newest {
    fn note(&mut self, end: u64) {
        self.latest = self.latest.max(end);
    }

    /// Time before which no stream has events that are still to come.
    fn settled(&mut self, now: Instant) -> u64 {
        match self.waiting {
            Some((since, _)) if now.duration_since(since) < IDLE_TIME => {}
            waiting => {
                self.settled = waiting.map_or(0, |(_, time)| time);
                self.waiting = Some((now, self.latest));
            }
        }
        self.settled
    }
}

impl Attached {
    /// Attaches to the recording in a folder.
    pub(crate) fn new(folder: DirHandle) -> Self {
        let is_received = folder.has_directory(tompion_manifest::RECEIVED_FOLDER);
        Self {
            folder,
            is_received,
            traces: Vec::new(),
            numbers: BTreeMap::new(),
            streams: Vec::new(),
            looked: None,
            is_complete: false,
            announced: (0, 0),
            newest: Newest::default(),
        }
    }

    /// Streams that the reader was not told of yet; `None` if nothing more comes.
    pub(crate) fn new_streams(&mut self) -> Option<Vec<Stream>> {
        self.look(Instant::now());
        let (traces, streams) = self.announced;
        let mut new = Vec::new();
        for (number, trace) in self.traces.iter().enumerate().skip(traces) {
            let id = IS_METADATA | number as u64;
            new.push(Self::stream(id, number, &trace.below, "metadata"));
        }
        for (number, stream) in self.streams.iter().enumerate().skip(streams) {
            let below = self.traces.get(stream.trace).map_or("", |trace| &trace.below);
            new.push(Self::stream(number as u64, stream.trace, below, &stream.name));
        }
        self.announced = (self.traces.len(), self.streams.len());
        if new.is_empty() && self.is_complete { None } else { Some(new) }
    }

    fn stream(id: u64, trace: usize, below: &str, name: &str) -> Stream {
        let is_metadata = id & IS_METADATA != 0;
        Stream { id, trace: trace as u64, is_metadata, path: below.into(), channel: name.into() }
    }

    /// State of a stream behind the last packet that was sent; `None` if there is no such stream.
    pub(crate) fn next(&mut self, id: u64) -> (Option<Next>, News) {
        let now = Instant::now();
        self.look(now);
        let known = usize::try_from(id).ok().filter(|id| *id < self.announced.1);
        let Some((number, stream)) = known.and_then(|id| Some((id, self.streams.get(id)?))) else {
            return (None, News::default());
        };
        let trace = stream.trace;
        let streams = self.announced != (self.traces.len(), self.streams.len());
        let (opened, sent) = (self.open(trace, &stream.name), stream.sent);
        // A recording may be removed at any time.
        let packet = opened.and_then(|file| packet_at(&file, sent));
        // Read behind the packet, which may have new events.
        let metadata = self.metadata_from(trace).is_ok_and(|bytes| !bytes.is_empty());
        let news = News { metadata, streams };
        let settled = self.newest.settled(now);
        let Some(stream) = self.streams.get_mut(number) else { return (None, news) };
        let next = match packet {
            Ok(Some(index)) => {
                stream.sent = index.offset.saturating_add(index.size);
                stream.class = index.class;
                stream.idle_until = stream.idle_until.max(index.end);
                self.newest.note(index.end);
                Next::Packet(index)
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                log::debug!("{}: {error}", stream.name);
                Next::Over
            }
            Err(_) => Next::Over,
            Ok(None) if self.is_complete => Next::Over,
            Ok(None) if settled > stream.idle_until && !self.is_received => {
                stream.idle_until = settled;
                Next::Idle { until: settled, class: stream.class }
            }
            Ok(None) => Next::Retry,
        };
        (Some(next), news)
    }

    /// Bytes of a packet that was sent as next one; `None` if they can't be read.
    pub(crate) fn packet(&self, id: u64, offset: u64, length: u32) -> Option<Vec<u8>> {
        let stream = self.streams.get(usize::try_from(id).ok()?)?;
        let end = offset.checked_add(length.into())?;
        if end > stream.sent || u64::from(length) > MAX_PACKET {
            return None;
        }
        let mut bytes = vec![0; length as usize];
        self.open(stream.trace, &stream.name).ok()?.read_exact_at(&mut bytes, offset).ok()?;
        Some(bytes)
    }

    /// New declarations of a description, whole ones; `None` if there is no such stream.
    pub(crate) fn metadata(&mut self, id: u64) -> Option<Vec<u8>> {
        let trace = usize::try_from(id ^ IS_METADATA).ok().filter(|trace| *trace < self.announced.0)?;
        let bytes = self.metadata_from(trace).unwrap_or_default();
        self.traces.get_mut(trace)?.sent += bytes.len() as u64;
        Some(bytes)
    }

    fn metadata_from(&self, trace: usize) -> io::Result<Vec<u8>> {
        let sent = self.traces.get(trace).map_or(0, |trace| trace.sent);
        let file = self.open(trace, "metadata")?;
        let left = file.metadata()?.len().saturating_sub(sent);
        let mut bytes = vec![0; left.min(MAX_METADATA) as usize];
        file.read_exact_at(&mut bytes, sent)?;
        let last = bytes.windows(DECLARATION_END.len()).rposition(|window| window == DECLARATION_END);
        bytes.truncate(last.map_or(0, |at| at + DECLARATION_END.len()));
        Ok(bytes)
    }

    fn open(&self, trace: usize, name: &str) -> io::Result<File> {
        let below = self.traces.get(trace).map_or("", |trace| &trace.below);
        self.folder.join(below).read(name)
    }

    /// Looks for new traces and streams, unless that was a moment ago.
    fn look(&mut self, now: Instant) {
        if self.is_complete || self.looked.is_some_and(|time| now.duration_since(time) < LOOK_INTERVAL) {
            return;
        }
        self.looked = Some(now);
        // First of all: what is written after a final manifest was read is in no file.
        let is_complete = is_complete(&self.folder);
        let mut found = Vec::new();
        collect(&self.folder, "", 0, &mut found);
        for (below, folder) in found {
            self.add(below, &folder);
        }
        self.is_complete = is_complete;
    }

    /// Adds the streams of a trace's folder that have a packet.
    fn add(&mut self, below: String, folder: &DirHandle) {
        let mut names: Vec<String> = folder
            .names()
            .unwrap_or_default()
            .into_iter()
            .filter_map(|name| name.into_string().ok().filter(|name| name.starts_with("stream_")))
            .collect();
        names.sort();
        for name in names {
            let known = self.numbers.get(&below).copied();
            let is_known = known
                .and_then(|trace| self.traces.get(trace))
                .is_some_and(|trace| trace.names.contains(&name));
            if is_known || self.streams.len() >= MAX_STREAMS {
                continue;
            }
            let packet = folder.read(&name).and_then(|file| packet_at(&file, 0));
            if !matches!(packet, Ok(Some(_))) {
                continue;
            }
            let trace = known.unwrap_or_else(|| {
                self.traces.push(Trace { below: below.clone(), sent: 0, names: Vec::new() });
                self.numbers.insert(below.clone(), self.traces.len() - 1);
                self.traces.len() - 1
            });
            self.traces.iter_mut().skip(trace).take(1).for_each(|trace| trace.names.push(name.clone()));
            self.streams.push(StreamFile { trace, name, sent: 0, class: 0, idle_until: 0 });
        }
    }
}

/// Whether a recording has ended, by its manifest.
fn is_complete(folder: &DirHandle) -> bool {
    let bytes = folder.read_bounded(manifest::FILE, manifest::MAX_BYTES);
    let manifest = bytes.ok().and_then(|bytes| manifest::Manifest::parse(&bytes).ok());
    manifest.is_some_and(|manifest| !manifest.is_recording())
}

/// Finds folders with a description of CTF 1.8, and their paths.
fn collect(folder: &DirHandle, below: &str, depth: usize, found: &mut Vec<(String, DirHandle)>) {
    let mut begin = [0; SIGNATURE.len()];
    let has_description = folder.read("metadata").and_then(|file| file.read_exact_at(&mut begin, 0)).is_ok();
    if has_description && begin == SIGNATURE {
        found.push((below.to_owned(), folder.clone()));
    }
    let mut names: Vec<String> =
        folder.names().unwrap_or_default().into_iter().filter_map(|name| name.into_string().ok()).collect();
    names.sort();
    for name in names {
        if depth < MAX_DEPTH && !name.starts_with('.') && folder.has_directory(&name) {
            let path = if below.is_empty() { name.clone() } else { format!("{below}/{name}") };
            collect(&folder.join(&name), &path, depth + 1, found);
        }
    }
}

/// The whole packet at an offset, if one is there.
fn packet_at(file: &File, offset: u64) -> io::Result<Option<Index>> {
    let left = file.metadata()?.len().saturating_sub(offset);
    if left < (HEAD_SIZE + TRAILER_SIZE) as u64 {
        return Ok(None);
    }
    let mut head = [0; HEAD_SIZE];
    file.read_exact_at(&mut head, offset)?;
    // The id of its trace, whatever that is: the first bytes behind the magic number.
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&head[4..20]);
    let class = u32::from_le_bytes([head[20], head[21], head[22], head[23]]);
    let Ok(Head { info, .. }) = encode::read_head(&head, Uuid(uuid)) else { return Ok(None) };
    if info.size > left.min(MAX_PACKET) {
        return Ok(None);
    }
    let mut bytes = vec![0; info.size as usize];
    file.read_exact_at(&mut bytes, offset)?;
    let encode::PacketInfo { size, content, begin, end, discarded, .. } = info;
    let index = Index { offset, size, content, begin, end, discarded, class: class.into() };
    Ok(encode::is_intact(&bytes).then_some(index))
}
