//! One recorded process: its shared memory, its rings, and the trace they go into.
//!
//! Everything in the shared memory comes from the process and is not trusted: descriptions are
//! parsed, records are checked while they are walked, positions are held against what can be, and
//! what is refused is counted under its own cause.

use std::{
    collections::{BTreeMap, HashSet, VecDeque, btree_map::Entry},
    io,
    sync::Arc,
    sync::atomic::Ordering,
};

use tompion_counting::ProcessCounts;
use tompion_ctf::encode;
use tompion_firings::MatchCounts;
use tompion_jobs::ProcessJobs;
use tompion_layout::{catalog, control, record::WriteProtocol, ring::Geometry};
use tompion_lineage::Lineage;
use tompion_os::{DirHandle, PacketSocket, Peer, SharedMap};
use tompion_protocol::message::{Hello, ToAgent};
use tompion_ring::{
    idle_pages::IdleRings,
    pinned_events::UntrustedPinned,
    reader::{RingReader, Span},
};
use tompion_schema::{Event, Field};
use tompion_writer::{ClassId, Mark, SourceWriter, WriteMode};

use crate::{
    backing::ProcessBacking,
    budget::Budget,
    context::Threads,
    filter::{self, SessionFilter},
    ring_budget::RingShare,
    session_config::SessionConfig,
};

mod backlog;
mod buffer_pool;
mod chunk;
mod convert;
mod durable;

#[cfg(test)]
mod fuzz;
mod jobs;
mod losses;
mod matches;
mod placement;
mod recovery;
mod rules;

pub use backlog::Backlog;
use buffer_pool::BufferPool;
use chunk::ChunkState;
use losses::Participation;
use placement::Placement;
pub use placement::SHARED_FOLDER;
pub use recovery::{Adoption, TracePlace};

/// Later than any event can be, in nanoseconds; readers add the time since 1970 to it.
const LATEST: u64 = 1 << 62;
/// Maximum number of bytes of one process that may wait to be converted. Beyond it they stay in its
/// rings: a process that claims to write faster than can be read loses events of its own, and the
/// session no memory.
const MAX_PENDING_BYTES: u64 = 64 << 20;

/// A process as the session knows it.
#[derive(Debug)]
pub struct Process {
    /// Number in the session.
    pub key: u64,
    /// Id in the session's pid namespace.
    pub pid: u32,
    /// Its `Hello`.
    pub hello: Hello,
    /// Origin of the process, as far as it could be read.
    pub lineage: Lineage,
    /// Reason of its end, if it has ended.
    pub end: Option<String>,
    control: SharedMap,
    rings: SharedMap,
    /// Events that it counts in place.
    pub counts: Option<Arc<ProcessCounts>>,
    /// Backing files, if it is to outlast the machine.
    kept_in: Option<ProcessBacking>,
    /// Its share of the rings' memory, which it has until its rings are unmapped.
    pub ring_share: Option<RingShare>,
    geometry: Geometry,
    form: WriteProtocol,
    overwrite: bool,
    given_time: bool,
    socket: Option<Arc<PacketSocket>>,
    writer: SourceWriter,
    placement: Placement,
    states: Vec<RingState>,
    /// Rings whose pages may be given back.
    idle_rings: IdleRings,
    /// Bytes of the catalog that were read.
    catalog_read: usize,
    /// Whether the medium is known to have the files of a process that is kept.
    files_settled: bool,
    /// Bytes of the catalog that are known to be on the medium.
    catalog_synced: usize,
    /// Class of each event number, as far as its description was taken.
    classes: BTreeMap<u32, Class>,
    /// Room for descriptions.
    budget: Budget,
    /// Descriptions for which there was none.
    beyond_budget: u64,
    /// Class ids by event number, of classes that were recorded.
    ready: Vec<Option<ClassId>>,
    /// Spans whose begins have the fields that the filter asks for.
    spans_with_fields: HashSet<String>,
    /// Records of the initial state that wait to be converted.
    initial: Vec<Initial>,
    /// Position up to which pinned events were read.
    kept_read: usize,
    /// Position up to which pinned events are known to be on the medium.
    kept_synced: usize,
    /// Places in their list that did not reach the medium.
    pinned_missing: u64,
    /// Number of refused events that came from no ring.
    refused: u64,
    context_sources: ThreadContextSources,
    /// Events that the session's part of the filter did not let through.
    filtered: u64,
    /// Whether the machine has stopped since the rings were written: see
    /// [`tompion_ring::torn_pages`].
    may_have_torn_pages: bool,
    /// Changes found in the files that its session left, one line each.
    damage_on_medium: Vec<String>,
    /// Number of snapshots that the process asked for, as far as that was read.
    snapshots: u64,
    /// Whether writing was given up.
    given_up: bool,
    /// Matches of triggers on events that were read.
    match_counts: MatchCounts,
    /// Time of its participation, which bounds what it can have lost.
    participation: Participation,
    /// State of a recording in chunks.
    chunk: Option<ChunkState>,
    /// Buffers for copies, used before: fresh memory would cost a page fault for each page.
    buffers: BufferPool,
}

/// A record from the catalog, or an event of the program that is kept.
#[derive(Debug)]
struct Initial {
    /// Whether it is the program's.
    own: bool,
    number: u32,
    time: u64,
    tid: u32,
    cpu: u32,
    payload: Vec<u8>,
    /// Position in its ring behind it, if it was in one.
    position: u64,
}

/// Destination of a record in the trace, and its origin.
#[derive(Clone, Copy, Debug)]
struct Place {
    stream: usize,
    cpu: u32,
    /// Position in the ring's byte stream.
    position: u64,
}

#[derive(Debug)]
struct Class {
    event: Event,
    /// Filter that decides where the agent could not.
    filter: Option<SessionFilter>,
    /// Number in the metadata, once there was a record.
    id: Option<ClassId>,
}

/// State of one ring.
#[derive(Clone, Debug, Default)]
struct RingState {
    /// Position up to which the ring was read.
    read: u64,
    /// Whether that was all there was.
    is_whole: bool,
    /// Up to where it had been read when the clock was sampled last, and the time before that.
    sampled_until: u64,
    bracketed_until: u64,
    /// Position up to which the ring's pages were made present.
    populated: u64,
    /// Position up to which bytes were converted.
    converted: u64,
    /// Whether records were overwritten that are not yet accounted for.
    has_gap: bool,
    /// Events that were dropped on request, until they are accounted for as overwritten.
    dropped: u64,
    /// Position up to which room was given back to the producer.
    consumed: u64,
    /// A position that can't be, and was refused.
    refused_at: Option<u64>,
    /// Beginning of the history that recovery reads.
    history_begin: u64,
    /// Up to where it was converted, and what became of the events: recorded, overwritten by
    /// design, refused.
    mark: Mark,
    /// Bytes that were copied. Those of the span, which are the last ones, wait to be converted.
    pending: VecDeque<(Span, Vec<u8>)>,
}

/// Parameters of a process's recording.
#[derive(Debug)]
pub struct Recording {
    /// Sizes of its rings.
    pub geometry: Geometry,
    /// Its share of the rings' memory, where that is limited.
    pub ring_share: Option<RingShare>,
    /// Protocol of records: in processes without restartable sequences they are reserved.
    pub form: WriteProtocol,
    /// Overwrite mode; else discard mode.
    pub overwrite: bool,
    /// Timestamps are CLOCK_MONOTONIC already.
    pub given_time: bool,
    /// Control file, mapped.
    pub control: SharedMap,
    /// Ring file, mapped.
    pub rings: SharedMap,
    /// Events that it counts in place.
    pub counts: Option<Arc<ProcessCounts>>,
    /// Triggers on events in its memory, and their matches.
    pub match_counts: MatchCounts,
    /// Folder of its trace.
    pub folder: DirHandle,
    /// Description of its trace.
    pub description: encode::Source,
    /// Sources of its threads' context.
    pub context_sources: ThreadContextSources,
    /// Backing files, if it is to outlast the machine.
    pub kept_in: Option<ProcessBacking>,
    /// Room for its descriptions.
    pub budget: Budget,
    /// Whether pages of rings that are not written are given back.
    pub gives_pages_back: bool,
}

/// Sources of context besides the rings.
#[derive(Debug, Default)]
pub struct ThreadContextSources {
    /// The process's threads, if the trace or the filter has something of them.
    threads: Option<Threads>,
    /// The filter, if agents leave the last word to the session.
    filter: Option<String>,
    /// Sink of its jobs; then nothing of it is written.
    jobs: Option<ProcessJobs>,
}

impl RingState {
    /// Accounts for events that the ring had taken before a sub-buffer was opened, and that weren't
    /// met: a flight recorder has overwritten them by design, or they did not reach the medium.
    fn pass_over(&mut self, events: u64, position: u64, overwrite: bool, may_have_torn_pages: bool) {
        let tally = &mut self.mark.tally;
        let Some(passed) = events.checked_sub(tally.accounted) else { return };
        let by_design = overwrite && (!may_have_torn_pages || position == self.history_begin);
        if by_design {
            tally.overwritten = tally.overwritten.saturating_add(passed);
            self.dropped = 0;
        } else if may_have_torn_pages {
            tally.missing = tally.missing.saturating_add(passed);
        }
        if by_design || may_have_torn_pages {
            tally.accounted = events;
        }
    }

    /// Number of events that the ring had taken and that can't be read any more.
    fn unmet(&self) -> u64 {
        self.mark.tally.missing.saturating_add(self.mark.tally.unfinished)
    }
}

impl From<catalog::UntrustedInitial<'_>> for Initial {
    fn from(record: catalog::UntrustedInitial<'_>) -> Self {
        let catalog::UntrustedInitial { number, time, tid, cpu, payload } = record;
        Self { own: false, number, time, tid, cpu, payload: payload.to_vec(), position: 0 }
    }
}

impl From<UntrustedPinned> for Initial {
    fn from(event: UntrustedPinned) -> Self {
        let UntrustedPinned { number, time, tid, cpu, payload } = event;
        Self { own: true, number, time, tid, cpu, payload, position: 0 }
    }
}

impl ThreadContextSources {
    /// Sources that a session's configuration asks for, of a process that has this id in its own
    /// pid namespace; `given_time` as in [`Recording`].
    pub fn new(session_config: &SessionConfig, peer: Peer, inner_pid: u32, given_time: bool) -> Self {
        let filter = session_config.rules.filter.clone().filter(|filter| filter::needs_session(filter));
        let threads = (filter.is_some() || !session_config.contexts.is_empty())
            .then(|| Threads::new(peer.pid, inner_pid, session_config.contexts.clone()));
        let jobs = session_config.jobs.clone();
        let jobs = jobs.map(|sink| ProcessJobs::new(sink, peer, inner_pid, given_time));
        Self { threads, filter, jobs }
    }

    /// Stores the names and values of the threads, if they have changed.
    pub fn keep(&mut self, kept_in: &ProcessBacking) -> io::Result<()> {
        let news = self.threads.as_mut().and_then(Threads::news);
        news.map_or(Ok(()), |news| kept_in.keep_threads(&news))
    }
}

impl Process {
    /// A process that was just welcomed.
    pub fn new(
        key: u64,
        pid: u32,
        hello: Hello,
        socket: Option<Arc<PacketSocket>>,
        recording: Recording,
    ) -> Self {
        let Recording { geometry, ring_share, form, overwrite, given_time, control, rings, .. } = recording;
        let match_counts = recording.match_counts;
        let Recording { folder, description, context_sources, kept_in, budget, counts, .. } = recording;
        let mode = match &kept_in {
            None => WriteMode::Deferred,
            Some(files) if files.is_memory() => WriteMode::Immediate,
            Some(_) => WriteMode::Durable,
        };
        let rings_count = (geometry.cpus() * geometry.buffers()) as usize;
        Self {
            key,
            pid,
            hello,
            lineage: Lineage::default(),
            end: None,
            control,
            rings,
            counts,
            kept_in,
            ring_share,
            geometry,
            form,
            overwrite,
            given_time,
            socket,
            writer: SourceWriter::new(folder, description, rings_count, mode),
            placement: Placement::Undecided(None),
            states: vec![RingState::default(); rings_count],
            idle_rings: IdleRings::new(usize::from(recording.gives_pages_back) * rings_count),
            catalog_read: 0,
            files_settled: false,
            catalog_synced: 0,
            classes: BTreeMap::new(),
            budget,
            beyond_budget: 0,
            ready: Vec::new(),
            spans_with_fields: HashSet::new(),
            initial: Vec::new(),
            kept_read: 0,
            kept_synced: 0,
            pinned_missing: 0,
            refused: 0,
            context_sources,
            filtered: 0,
            may_have_torn_pages: false,
            damage_on_medium: Vec::new(),
            snapshots: 0,
            given_up: false,
            match_counts,
            participation: Participation::begin(),
            chunk: None,
            buffers: BufferPool::default(),
        }
    }

    fn reader(&self, ring: usize) -> RingReader<'_> {
        let cpus = self.geometry.cpus();
        let reader = RingReader::new(&self.rings, self.geometry, ring as u32 / cpus, ring as u32 % cpus);
        reader.in_form(self.form)
    }

    /// Whether a thread of the process receives what is said to it. A program that is recorded from
    /// its start has none when it says `Hello`, and gets it with its first module with events.
    pub fn listens(&self) -> bool {
        // Ordering: a fact by itself.
        self.hello.has_listener || self.control.word(control::OFFSET_LISTENS).load(Ordering::Relaxed) != 0
    }

    /// Its trace, or the one that short processes share, while it writes there.
    pub fn writer(&self) -> &SourceWriter {
        &self.writer
    }

    /// Forgets the conversation, which is over.
    pub fn disconnect(&mut self) {
        self.socket = None;
    }

    /// Looks at what the kernel says of the threads.
    pub fn look_at_threads(&mut self) {
        if let Some(threads) = &mut self.context_sources.threads {
            threads.look();
        }
        if let Some(jobs) = &mut self.context_sources.jobs {
            jobs.look_at_threads();
        }
        if let Some(kept_in) = &self.kept_in {
            // A missing context is unknown to recovery, like that of threads that were never seen.
            let _ = self.context_sources.keep(kept_in);
        }
    }

    /// Whether the program has asked for a snapshot since the last time that this was asked.
    pub fn wants_snapshot(&mut self) -> bool {
        // Ordering: a counter by itself; what was recorded before is in the rings by their own
        // order.
        let asked = self.control.word(control::OFFSET_SNAPSHOTS).load(Ordering::Acquire);
        std::mem::replace(&mut self.snapshots, asked) != asked && self.overwrite
    }

    /// Copies what is new in the rings, unless so many bytes wait already. Returns the largest
    /// share of a ring that was filled, in percent.
    ///
    /// A flight recorder's rings are left alone until [`Process::save_history`].
    pub fn collect(&mut self, most: u64) -> u64 {
        if self.pending_bytes() < most.min(MAX_PENDING_BYTES) {
            return self.collect_all();
        }
        self.states.iter_mut().for_each(|state| state.is_whole = false);
        100
    }

    /// Copies all new bytes of the rings, however much waits.
    pub fn collect_all(&mut self) -> u64 {
        if self.given_up {
            return 0;
        }
        let mut fullest = 0;
        for ring in 0..self.states.len() {
            let (written, read) = (self.reader(ring).written(), self.states[ring].read);
            self.states[ring].is_whole = written == read;
            if written == read && self.states[ring].populated != 0 || written == 0 {
                continue;
            }
            self.populate_ahead(ring, written);
            if self.overwrite {
                continue;
            }
            let mut bytes =
                self.buffers.take(written.saturating_sub(read).min(self.geometry.ring_size()) as usize);
            let reader = self.reader(ring);
            // The room of backing files is given back once the medium has what was in it. Once the
            // process has ended, no thread completes a record any more.
            let taken = match (self.is_durable(), self.end.is_some()) {
                (true, false) => reader.copy_new(read, &mut bytes),
                (true, true) => reader.copy_final(read, &mut bytes),
                (false, false) => reader.consume(read, &mut bytes),
                (false, true) => reader.consume_final(read, &mut bytes),
            };
            let state = &mut self.states[ring];
            match taken {
                Ok(span) => {
                    let share = (span.end - span.begin) * 100 / self.geometry.ring_size();
                    fullest = fullest.max(share).max(u64::from(!span.is_empty()));
                    state.read = span.end;
                    state.is_whole = span.end >= written;
                    if span.is_empty() {
                        self.buffers.put(bytes);
                    } else {
                        state.pending.push_back((span, bytes));
                    }
                }
                // Said once, however often it is looked at.
                Err(bad) if state.refused_at == Some(bad.claimed) => {}
                Err(bad) => {
                    // Reading goes on where a record can begin for certain.
                    state.read =
                        self.geometry.subbuf_start(bad.claimed).saturating_add(self.geometry.subbuf_size());
                    state.refused_at = Some(bad.claimed);
                    state.mark.tally.refused += 1;
                    self.give_back(ring, bad.claimed);
                }
            }
        }
        fullest
    }

    /// Gives back pages of rings that were not written for a while.
    pub fn give_pages_back(&mut self, pieces: &mut u32) {
        let mut idle = std::mem::take(&mut self.idle_rings);
        idle.give_back((self.pid, &self.rings), pieces, |ring| (self.states[ring].read, self.reader(ring)));
        self.idle_rings = idle;
    }

    /// Asks the agent to make the ring's next pages present, on the ring's first lap.
    fn populate_ahead(&mut self, ring: usize, written: u64) {
        let (offset, size) = self.reader(ring).data_range();
        let subbuf = self.geometry.subbuf_size();
        let wanted = (written.saturating_add(subbuf / 2) / subbuf + 1).saturating_mul(subbuf).min(size);
        let state = &mut self.states[ring];
        if wanted > state.populated {
            let (from, len) = (offset + state.populated, wanted - state.populated);
            state.populated = wanted;
            // Without a thread that receives it, the request would only fill the connection.
            if let Some(socket) = self.socket.as_ref().filter(|_| self.listens()) {
                // If the agent doesn't hear it, the kernel supplies the pages when they are needed.
                let _ = socket.send(&ToAgent::Populate { offset: from, len }.encode(), &[]);
            }
        }
    }

    /// Copies the history of a flight recorder's rings, behind what was saved before.
    pub fn save_history(&mut self) {
        (0..self.states.len()).for_each(|ring| self.save_ring(ring));
    }

    /// The same for rings of which so many percent were written since they were last saved. Returns
    /// whether there was one.
    pub fn save_full_rings(&mut self, percent: u64) -> bool {
        let size = self.geometry.ring_size();
        let mut has_saved = false;
        for ring in 0..self.states.len() {
            let unsaved = self.reader(ring).written().saturating_sub(self.states[ring].read).min(size);
            if !self.given_up && unsaved.saturating_mul(100) / size >= percent {
                self.save_ring(ring);
                has_saved = true;
            }
        }
        has_saved
    }

    fn save_ring(&mut self, ring: usize) {
        if self.given_up {
            return;
        }
        let mut bytes = Vec::new();
        let copied = self.reader(ring).copy_history(&mut bytes);
        let state = &mut self.states[ring];
        let Ok(mut span) = copied else {
            state.mark.tally.refused += 1;
            return;
        };
        if span.begin < state.read {
            let known = (state.read - span.begin).min(bytes.len() as u64);
            bytes.drain(..known as usize);
            span.begin += known;
        }
        if !span.is_empty() {
            state.read = span.end;
            state.pending.push_back((span, bytes));
        }
    }

    /// Passes over what a flight recorder's rings hold: the next snapshot begins behind it. All
    /// that was copied must have been converted.
    pub fn drop_history(&mut self) {
        for ring in 0..self.states.len() {
            let (written, events) = self.reader(ring).written_with_events();
            // Of a writer that is too fast to be met between two events: all that it has written by
            // now, which is a few more.
            let events = events.unwrap_or_else(|| self.reader(ring).events());
            let state = &mut self.states[ring];
            // A program may claim any; what can't be is found when it is read.
            if written % 8 == 0 && written > state.read {
                state.read = written;
                state.dropped = events.saturating_sub(state.mark.tally.accounted);
            }
        }
    }

    /// Reads descriptions that the process has added.
    pub fn read_catalog(&mut self) {
        let start = control::CATALOG as usize;
        // Ordering: pairs with the agent's release store: the entries below it are complete.
        let used = self.control.word(start + catalog::USED).load(Ordering::Acquire);
        let room = control::CATALOG_SIZE as usize - catalog::ENTRIES;
        let used = usize::try_from(used).map_or(room, |used| used.min(room));
        if used <= self.catalog_read {
            return;
        }
        let mut bytes = vec![0; used - self.catalog_read];
        self.control.copy_out(start + catalog::ENTRIES + self.catalog_read, &mut bytes);
        // A recorder before this one has written the initial state up to there.
        let written = self.chunk.as_ref().map_or(0, |chunk| chunk.written_catalog());
        let is_written = written.saturating_sub(self.catalog_read);
        self.catalog_read = used;
        let mut at = 0;
        loop {
            let (entry, next) = match catalog::entry_at(&bytes, at) {
                Ok(Some(found)) => found,
                Ok(None) => return,
                Err(_) => {
                    self.refused += 1;
                    return;
                }
            };
            let is_written = at < is_written;
            at = next;
            if entry.description.is_empty() {
                // Nothing is described by nothing: a page that did not reach the medium, or a lie.
                self.refused += 1;
                return;
            }
            if entry.is_initial() {
                let cpus = self.geometry.cpus();
                let initial = entry.initial().filter(|initial| initial.cpu < cpus);
                self.refused += u64::from(initial.is_none());
                self.initial.extend(initial.filter(|_| !is_written).map(Initial::from));
                continue;
            }
            match tompion_schema::decode(entry.description) {
                Ok(event) => self.learn(entry.number, event),
                Err(_) => self.refused += 1,
            }
        }
    }

    /// Takes the description of an event number, if there is none yet and there is room for it.
    fn learn(&mut self, number: u32, event: Event) {
        let Entry::Vacant(place) = self.classes.entry(number) else { return };
        if !self.budget.take(&event) {
            self.refused += 1;
            self.beyond_budget += 1;
            return;
        }
        let filter = self.context_sources.filter.as_deref();
        let span = filter.and_then(|filter| filter::span_with_fields(filter, &event));
        self.spans_with_fields.extend(span);
        let filter = filter.map(|filter| SessionFilter::new(filter, &event));
        if let Some(counts) = &self.counts {
            counts.name_event(number, || event.full_name());
        }
        place.insert(Class { filter, event, id: None });
    }

    /// Number of descriptions that there was no room for.
    pub fn descriptions_beyond_budget(&self) -> u64 {
        self.beyond_budget
    }

    /// Names of all events and spans that the process has, recorded or not.
    pub fn event_names(&self) -> impl Iterator<Item = (&str, &str)> {
        let events = self.classes.values().map(|class| &class.event);
        events.flat_map(|event| {
            let (name, base) = (event.name.as_str(), event.base_name());
            let names = std::iter::once(name).chain(Some(base).filter(|base| *base != name));
            names.map(|name| (event.provider.as_str(), name))
        })
    }

    /// Names of recorded events that the process describes in more than one way, with the number of
    /// ways. The application's contexts, which come and go, do not count; neither do marks of other
    /// tracers, which may have other fields each time.
    pub fn conflicts(&self) -> BTreeMap<String, usize> {
        let recorded = self.classes.values().filter(|class| class.id.is_some());
        let mut ways = BTreeMap::<String, HashSet<(&Option<String>, Vec<&Field>)>>::new();
        for Class { event, .. } in recorded.filter(|class| class.event.attributes.has_one_form()) {
            let fields = event.fields.iter().filter(|field| !field.context).collect();
            ways.entry(event.full_name()).or_default().insert((&event.format, fields));
        }
        ways.into_iter().map(|(name, ways)| (name, ways.len())).filter(|&(_, count)| count > 1).collect()
    }

    /// Writes packets that have waited.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.given_up {
            return Ok(());
        }
        // The initial state comes first: it has events of rings that each chunk repeats.
        self.flush_stream(self.writer.initial_stream())?;
        (0..self.states.len()).try_for_each(|stream| self.flush_stream(stream))?;
        self.buffers.trim();
        self.writer.check()?;
        self.settle()
    }

    /// Completes the trace. Of a process that runs on, nothing is recorded from here on.
    pub fn finish(&mut self) -> io::Result<()> {
        // Ordering: nothing else is read because of it.
        self.control.half(control::OFFSET_ENDED).store(1, Ordering::Relaxed);
        self.read_catalog();
        if self.given_up {
            return Ok(());
        }
        self.flush_stream(self.writer.initial_stream())?;
        for ring in 0..self.states.len() {
            let lost = self.lost_in(ring).unwrap_or(0);
            self.flush_stream(ring)?;
            self.writer.finish(ring, lost, self.mark(ring))?;
        }
        self.writer.settle()?;
        self.settle()
    }

    /// Completes a process's part of the trace that it shares. It doesn't wait for the disk: a
    /// failure there is known when the recording ends, at the latest.
    pub fn finish_shared(&mut self) -> io::Result<()> {
        (0..self.states.len()).try_for_each(|ring| self.flush_stream(ring))
    }

    /// Whether no packet waits to be written.
    pub fn is_written(&self) -> bool {
        self.writer.is_settled()
    }

    /// Says whether writing a packet has failed.
    pub fn check_written(&self) -> io::Result<()> {
        self.writer.check()
    }

    /// Writes nothing more: the trace ends with the last whole packet.
    pub fn give_up(&mut self) {
        self.given_up = true;
        // Why it failed is known; how many events were not written is known then.
        let _ = self.writer.settle();
        self.buffers = BufferPool::default();
        for state in &mut self.states {
            state.pending = VecDeque::new();
        }
    }

    /// Whether writing was given up.
    pub fn is_given_up(&self) -> bool {
        self.given_up
    }
}
