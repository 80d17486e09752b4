//! Merges many streams into one order of time.
//!
//! A source is one data stream: one file, or the files of a stream that was rotated. Rotated files
//! are read one after the other, or packet by packet in the order of time where their times
//! overlap. A heap holds the time of each source's next event. Only the header of that event is
//! decoded while it waits; the rest is decoded when it is delivered.

pub(crate) mod growing;
mod index;
mod parts;
mod pieces;
mod ranges;
mod source;
pub(crate) mod tally;
mod walk;
pub(crate) mod windows;

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tompion_ctf::metadata::{self, Uuid};
use tompion_protocol::rules::matches_event;

use crate::discover::{self, Opened, Trace};
use crate::event::Event;
use crate::file::StreamFile;
use crate::filter::Filter;
use crate::symbols::Symbols;
use crate::{Corruption, Error};

pub use parts::{PacketSummary, Parts};
pub use walk::{PacketView, Visitor};

use pieces::{FileId, Piece};
use source::Source;

/// Approximate number of bytes that all windows take together.
const WINDOWS_BYTES: usize = 32 << 20;

/// Number of streams above which files are closed between reads. A process may often have no more
/// than 1024 descriptors.
const MAX_OPEN_FILES: usize = 256;

/// Traces with fewer bytes are read by one thread.
const PARALLEL_MIN_BYTES: u64 = 1 << 20;

/// Tolerance in nanoseconds by which events may be later than the end of their packet: old tracers
/// took the end time too early.
const PACKET_END_SLACK_NS: i64 = 1_000_000_000;

/// Set of traces that is read as one.
pub struct TraceSet {
    roots: Vec<PathBuf>,
    traces: Arc<[Trace]>,
    sources: Vec<Source>,
    heap: BinaryHeap<Reverse<(i64, u32)>>,
    started: bool,
    /// Time from which on events belong to another reader.
    until: Option<i64>,
    /// Number of corruptions after which reading stops. Only a reader that has read everything
    /// before knows the limit for a file.
    max_corruptions: usize,
    /// Whether reading stopped at that number.
    is_halted: bool,
    /// Whether the event on top of the heap was returned to the caller.
    given: bool,
    /// Size of each source's window in bytes.
    window: usize,
    selection: Selection,
    /// Whether the selection accepts every event, apart from its filter.
    takes_all: bool,
    /// Whether the selection accepts each event class: by trace, stream class and event class.
    selected: Arc<[Vec<Vec<bool>>]>,
    corruptions: Vec<Corruption>,
    losses: Vec<Loss>,
    /// Names for addresses, if they are wanted and available.
    pub(crate) symbols: Option<Symbols>,
}

/// Choice of events to read.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Globs over `provider:name`; an empty list accepts all.
    pub events: Vec<String>,
    /// Earliest time in nanoseconds since the epoch.
    pub from: Option<i64>,
    /// Latest time in nanoseconds since the epoch.
    pub to: Option<i64>,
    /// Filter that must be true for an event.
    pub filter: Option<Filter>,
    /// Predicate for conditions that a filter cannot express, because the event lacks the data.
    pub predicate: Option<EventPredicate>,
}

/// Predicate that is evaluated for each event, possibly on several threads at once.
#[derive(Clone)]
pub struct EventPredicate(Arc<Takes>);

type Takes = dyn Fn(&Event<'_>) -> bool + Send + Sync;

impl EventPredicate {
    /// Creates a predicate that accepts the events for which the function returns true.
    pub fn new(takes: impl Fn(&Event<'_>) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(takes))
    }
}

impl fmt::Debug for EventPredicate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("EventPredicate(…)")
    }
}

impl Selection {
    /// Whether the selection takes events of a class, by its name.
    pub fn takes_name(&self, event: &metadata::Event) -> bool {
        let names = event.names();
        self.events.is_empty() || self.events.iter().any(|glob| matches_event(glob, &names))
    }
}

/// Events or packets that were not recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Kind of the loss: events or whole packets.
    pub kind: LossKind,
    /// Number of events or packets: exact, or an upper bound.
    pub count: u64,
    /// Times between which the loss happened, in nanoseconds since the epoch.
    pub between: (Option<i64>, Option<i64>),
    /// Index of the trace in [`TraceSet::traces`].
    pub trace: usize,
    /// Path of the stream file.
    pub path: PathBuf,
    /// Number of the stream class.
    pub stream_class: u64,
    /// Number of the stream, if it has one.
    pub stream: Option<u64>,
    /// CPU of the stream's packets, if they state one.
    pub cpu: Option<u64>,
}

/// Events of a stream that are older than their predecessors. They are read in file order.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: byte {offset}: time goes back in this stream, {} by up to {}.{:09} s",
    path.display(), if *events == 1 { "once".into() } else { format!("{events} times") },
    back / 1_000_000_000, back % 1_000_000_000)]
pub struct TimestampRegression {
    /// File of the first one.
    pub path: PathBuf,
    /// Position of the first one, in bytes from the beginning of the file.
    pub offset: u64,
    /// Number of such events.
    pub events: u64,
    /// Largest step back, in nanoseconds.
    pub back: i64,
}

impl TimestampRegression {
    /// Adds a regression that was found later in the same stream.
    fn add_to(self, found: &mut Option<Self>) {
        match found {
            Some(found) => {
                found.events += self.events;
                found.back = found.back.max(self.back);
            }
            none => *none = Some(self),
        }
    }
}

/// Index file that was not used, because it contradicts itself or the stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct IndexProblem {
    /// Path of the index file.
    pub path: PathBuf,
    /// Expected and actual content.
    pub problem: String,
}

/// Kind of a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossKind {
    /// Events that the tracer discarded and counted.
    Events,
    /// Upper bound of events that the tracer discarded. They were counted before the end of the
    /// first packet present, possibly before its beginning.
    EventsAtMost,
    /// Events in an unknown number. The count is what the packet says, which is more than there can
    /// have been.
    EventsUnknown,
    /// Packets whose sequence numbers are missing.
    Packets,
}

/// Opens all traces at or below some paths.
///
/// ```no_run
/// let mut traces = tompion_reader::open(&["/tmp/my-trace".into()])?;
/// while let Some(event) = traces.next_event() {
///     println!("{:?} {}", event.timestamp(), event.name());
/// }
/// traces.corruptions().iter().for_each(|corruption| eprintln!("{corruption}"));
/// # Ok::<(), tompion_reader::Error>(())
/// ```
///
/// # Errors
///
/// Fails if one of the paths has no trace, or if no description can be read. If only some cannot,
/// [`TraceSet::corruptions`] reports them.
pub fn open(paths: &[PathBuf]) -> Result<TraceSet, Error> {
    let mut opened = Opened::default();
    for path in paths {
        let folders = discover::find(path)?;
        opened.problems.extend(folders.unreadable);
        for found in folders.traces {
            opened.add(found.streams, discover::load(&found.path));
        }
    }
    TraceSet::new(paths.to_vec(), opened, Source::in_order_of_time)
}

fn beyond_time(path: &Path, cycles: u64) -> Corruption {
    let expected = "expected times up to the year 2262";
    let message = format!("{expected}, found a packet begun at {cycles} cycles: later times cannot be shown");
    Corruption { path: path.into(), offset: Some(0), message }
}

/// Returns the size in bytes of each of this many windows.
fn window_size(windows: usize) -> usize {
    (WINDOWS_BYTES / windows.max(1)).clamp(16 << 10, 320 << 10)
}

/// Function that creates a stream from its files, which are ordered by their begin times.
type NewSource = fn(Vec<(i64, Piece)>, &Arc<[Trace]>) -> Source;

/// Identity of the stream that a file belongs to: trace, class and instance.
type Identity = (Uuid, u64, u64);

/// Files with their begin times, the indexes of their traces, and what tells them from others.
type Begun = Vec<(i64, PathBuf, usize, Option<FileId>)>;

/// Order of streams for events of the same time, as in babeltrace2: by the UUIDs of traces, by
/// their names (traces without one come last), by the numbers of stream classes and of streams.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    has_no_uuid: bool,
    uuid: Option<Uuid>,
    has_no_name: bool,
    name: Arc<str>,
    trace: usize,
    class: u64,
    instance: Option<u64>,
}

/// Properties of a file's first packet.
struct First {
    identity: Option<Identity>,
    id: Option<FileId>,
    /// Begin time; the clock value if the time cannot be represented.
    begin: Result<i64, u64>,
    rank: Rank,
}

impl TraceSet {
    /// Creates a set from opened traces. `new_source` creates each stream from its pieces.
    fn new(roots: Vec<PathBuf>, mut opened: Opened, new_source: NewSource) -> Result<Self, Error> {
        let corruptions = opened.corruptions()?;
        discover::set_names(&mut opened.traces, &roots);
        let mut set = Self {
            roots,
            window: 0,
            traces: opened.traces.into(),
            sources: Vec::new(),
            heap: BinaryHeap::new(),
            started: false,
            until: None,
            max_corruptions: usize::MAX,
            is_halted: false,
            given: false,
            selection: Selection::default(),
            takes_all: true,
            selected: Arc::new([]),
            corruptions,
            losses: Vec::new(),
            symbols: None,
        };
        set.sources = set.group(opened.files, new_source);
        let keeps_open = set.sources.len() <= MAX_OPEN_FILES;
        for files in set.sources.iter_mut().filter_map(|source| Arc::get_mut(&mut source.files)) {
            files.keeps_open = keeps_open;
        }
        set.window = window_size(set.sources.len());
        set.select(Selection::default());
        Ok(set)
    }

    /// Groups the files of each stream in order of time, and orders streams for events of the same
    /// time.
    fn group(&mut self, files: Vec<(PathBuf, usize)>, new_source: NewSource) -> Vec<Source> {
        let mut groups: BTreeMap<Identity, usize> = BTreeMap::new();
        let mut sources: Vec<(Rank, Begun)> = Vec::new();
        for (path, trace) in files {
            let Some(First { identity, id, begin, rank }) = self.first_packet(&path, trace) else { continue };
            let begin = begin.unwrap_or_else(|cycles| {
                self.corruptions.push(beyond_time(&path, cycles));
                i64::MAX
            });
            let next = sources.len();
            let index = identity.map_or(next, |identity| *groups.entry(identity).or_insert(next));
            match sources.get_mut(index) {
                Some((_, source)) => source.push((begin, path, trace, id)),
                None => sources.push((rank, vec![(begin, path, trace, id)])),
            }
        }
        sources.sort_by(|(one, _), (other, _)| one.cmp(other));
        let source = |(_, mut files): (Rank, Begun)| {
            files.sort_by(|one, other| (one.0, &one.1, one.2).cmp(&(other.0, &other.1, other.2)));
            let piece = |(begin, path, trace, id)| (begin, Piece::whole(path, trace, id));
            let files = files.into_iter().map(piece);
            new_source(files.collect(), &self.traces)
        };
        sources.into_iter().map(source).collect()
    }

    /// Reads the first packet of a file. Returns `None` for an empty file. A corrupt file becomes a
    /// stream of its own, whose corruption is found when it is read.
    fn first_packet(&self, path: &Path, trace: usize) -> Option<First> {
        let Trace { decoder, name, .. } = self.traces.get(trace)?;
        let uuid = decoder.trace().uuid;
        let rank = |class, instance| Rank {
            has_no_uuid: uuid.is_none(),
            uuid,
            has_no_name: name.is_empty(),
            name: name.clone(),
            trace,
            class,
            instance,
        };
        let unknown =
            Some(First { identity: None, id: None, begin: Ok(i64::MIN), rank: rank(u64::MAX, None) });
        let Ok(mut file) = StreamFile::open(path.into(), decoder.clone(), 4096) else { return unknown };
        match file.next_packet() {
            Ok(true) => {}
            Ok(false) => return None,
            Err(_) => return unknown,
        }
        let packet = file.packet.as_ref()?;
        let time = |cycles| Some(decoder.clock(packet.stream)?.checked_nanoseconds(cycles).ok_or(cycles));
        let begin = packet.begin.and_then(time);
        let class = decoder.stream(packet.stream)?.id;
        // Files without a begin time cannot be ordered.
        let of = uuid.filter(|_| begin.is_some());
        let identity = of.and_then(|uuid| Some((uuid, class, packet.instance?)));
        let id = file.metadata().map(|metadata| FileId::new(&metadata, identity, packet));
        Some(First { identity, id, begin: begin.unwrap_or(Ok(i64::MIN)), rank: rank(class, packet.instance) })
    }

    /// Selects the events to read. Must be called before the first event is read.
    pub fn select(&mut self, selection: Selection) {
        let classes = |stream: &metadata::Stream| {
            stream.events.iter().map(|event| selection.takes_name(event)).collect()
        };
        let streams = |trace: &Trace| trace.metadata().streams.iter().map(classes).collect();
        self.selected = self.traces.iter().map(streams).collect();
        self.takes_all = selection.is_open();
        self.selection = selection;
    }

    /// Resolves addresses in events to names, as far as the traces and the files that they name
    /// allow. Text and JSON output shows the names from now on.
    pub fn name_addresses(&mut self) {
        self.symbols = Symbols::read(self);
    }

    /// Returns the traces, ordered by path.
    pub fn traces(&self) -> &[Trace] {
        &self.traces
    }

    /// Returns the paths that were opened.
    pub fn roots(&self) -> &[PathBuf] {
        &self.roots
    }

    /// Returns the corruptions found so far.
    pub fn corruptions(&self) -> &[Corruption] {
        &self.corruptions
    }

    /// Returns the timestamp regressions found so far, at most one for each stream.
    pub fn timestamp_regressions(&self) -> impl Iterator<Item = &TimestampRegression> {
        self.sources.iter().filter_map(|source| source.regression.as_ref())
    }

    /// Returns the index files found unusable so far. No events are missing because of them.
    pub fn index_problems(&self) -> impl Iterator<Item = IndexProblem> {
        self.sources.iter().flat_map(|source| source.files.index_problems())
    }

    /// Returns the losses found so far.
    pub fn losses(&self) -> &[Loss] {
        &self.losses
    }

    /// Returns the next event in order of time.
    pub fn next_event(&mut self) -> Option<Event<'_>> {
        let index = self.next_source()?;
        self.event(index)
    }

    /// Moves to the next event in order of time, for [`Self::current`]. Returns false if there is
    /// none.
    ///
    /// Works like [`Self::next_event`], for callers that need losses and corruptions before the
    /// event.
    pub fn step(&mut self) -> bool {
        self.next_source().is_some()
    }

    /// Returns the event that [`Self::step`] or [`Self::next_event`] reached last.
    pub fn current(&self) -> Option<Event<'_>> {
        let top = self.heap.peek().filter(|_| self.given)?;
        self.event(top.0.1 as usize)
    }

    /// Moves to the next event in order of time and returns its source.
    #[inline]
    pub(crate) fn next_source(&mut self) -> Option<usize> {
        if !self.started {
            self.start();
        }
        loop {
            if self.given && !self.advance_top() {
                return None;
            }
            let &Reverse((time, index)) = self.heap.peek()?;
            if self.until.is_some_and(|until| time >= until) {
                return None;
            }
            let index = index as usize;
            self.given = true;
            match self.sources.get_mut(index)?.file.as_mut()?.finish_event(true) {
                Ok(()) if self.is_filtered_out(index) => {}
                Ok(()) => return Some(index),
                Err(corruption) => self.pass_over(index, corruption),
            }
        }
    }

    /// Returns the event that a source has reached.
    #[inline]
    pub(crate) fn event(&self, index: usize) -> Option<Event<'_>> {
        let source = self.sources.get(index)?;
        let file = source.file.as_ref()?;
        Event::new(self.traces.get(source.trace)?, (source.trace, index), file, source.timestamp)
    }

    /// Whether the filter or predicate rejects the event that a source has reached.
    fn is_filtered_out(&self, index: usize) -> bool {
        if !self.selection.looks_into_events() {
            return false;
        }
        let Selection { filter, predicate, .. } = &self.selection;
        self.event(index).is_some_and(|event| {
            filter.as_ref().is_some_and(|filter| !filter.takes(&event))
                || predicate.as_ref().is_some_and(|predicate| !(predicate.0)(&event))
        })
    }

    /// Returns the event classes that the selection accepts by name.
    pub(crate) fn selected_classes(
        &self,
    ) -> impl Iterator<Item = (&Trace, &metadata::Stream, &metadata::Event)> {
        let classes = |trace| move |stream| (trace, stream);
        let streams =
            self.traces.iter().flat_map(move |trace| trace.metadata().streams.iter().map(classes(trace)));
        streams
            .flat_map(|(trace, stream)| stream.events.iter().map(move |class| (trace, stream, class)))
            .filter(|(.., class)| self.selection.takes_name(class))
    }

    /// Reads all events, stream after stream. The values of events are readable only in traces for
    /// which `keep` returns true.
    pub fn for_each_unordered(&mut self, keep: &dyn Fn(usize) -> bool, visit: &mut dyn FnMut(&Event<'_>)) {
        for index in 0..self.sources.len() {
            while self.advance(index).is_some() {
                let Some(source) = self.sources.get_mut(index) else { break };
                let Some(file) = source.file.as_mut() else { break };
                let keep = self.selection.looks_into_events() || keep(source.trace);
                if let Err(corruption) = file.finish_event(keep) {
                    self.pass_over(index, corruption);
                    continue;
                }
                if self.is_filtered_out(index) {
                    continue;
                }
                if let Some(event) = self.event(index) {
                    visit(&event);
                }
            }
        }
    }

    /// Reads all events on several threads, in no order. Each part of a stream has a visitor of its
    /// own. Visitors are returned in the order of streams.
    pub(crate) fn visit_ranges<V: Send>(
        &mut self,
        threads: usize,
        new: &(dyn Fn() -> V + Sync),
        visit: &(dyn Fn(&mut V, &Event<'_>) + Sync),
    ) -> Vec<V> {
        let parts = self.read_ranges(threads, &|set, _| {
            let mut visitor = new();
            set.for_each_unordered(&|_| true, &mut |event| visit(&mut visitor, event));
            (visitor, Vec::new())
        });
        parts.into_iter().map(|part| part.found).collect()
    }

    /// Returns the number of threads to use: all CPUs, or one for small traces and for parts, which
    /// began somewhere.
    pub(crate) fn threads(&self) -> usize {
        match self.is_new() && self.size() >= PARALLEL_MIN_BYTES {
            true => std::thread::available_parallelism().map_or(1, usize::from),
            false => 1,
        }
    }

    /// Distributes the streams over several readers; [`Self::join`] collects their results. Only
    /// for reading in no order, before anything was read.
    pub(crate) fn split(&mut self, readers: usize) -> Vec<Self> {
        let readers = readers.clamp(1, self.sources.len().max(1));
        let mut parts: Vec<(u64, Vec<Source>)> = (0..readers).map(|_| (0, Vec::new())).collect();
        let mut sources: Vec<_> =
            self.sources.drain(..).map(|source| (source.files.size(), source)).collect();
        sources.sort_by_key(|(size, _)| Reverse(*size));
        for (size, source) in sources {
            if let Some((total, part)) = parts.iter_mut().min_by_key(|(total, _)| *total) {
                *total += size;
                part.push(source);
            }
        }
        parts.into_iter().map(|(_, sources)| self.part(sources)).collect()
    }

    /// Returns the same traces, unread, with each trace's times shifted by a number of nanoseconds.
    /// Negative numbers shift to earlier. The shift is exact to one cycle of the trace's clock.
    /// Traces beyond the end of the list keep their times.
    ///
    /// # Errors
    ///
    /// Fails if a description cannot be compiled again, which does not happen to one that was
    /// compiled.
    pub fn shifted(&self, nanoseconds: &[i64]) -> Result<Self, Error> {
        let of =
            |(index, trace): (usize, &Trace)| trace.shifted(nanoseconds.get(index).copied().unwrap_or(0));
        let traces = self.traces.iter().enumerate().map(of).collect::<Result<Vec<_>, _>>()?;
        let unopened = self.corruptions.iter().filter(|corruption| corruption.offset.is_none());
        Ok(Self {
            roots: self.roots.clone(),
            traces: traces.into(),
            corruptions: unopened.cloned().collect(),
            ..self.unread()
        })
    }

    /// Returns the same traces, unread, with only the streams that have a wanted file. `wanted`
    /// gets the trace's folder and the file.
    pub(crate) fn unread_where(&self, wanted: &dyn Fn(&Path, &Path) -> bool) -> Self {
        let is_wanted = |source: &&Source| {
            let mut files = (0..source.files.count()).filter_map(|file| source.files.get(file));
            files.any(|(file, trace)| self.traces.get(trace).is_some_and(|trace| wanted(&trace.path, file)))
        };
        let sources = self.sources.iter().filter(is_wanted);
        self.part(sources.map(|source| Source::new(source.files.clone())).collect())
    }

    /// Creates a set of the same traces that reads other sources.
    fn part(&self, sources: Vec<Source>) -> Self {
        Self {
            roots: Vec::new(),
            traces: self.traces.clone(),
            sources,
            heap: BinaryHeap::new(),
            started: false,
            until: None,
            max_corruptions: usize::MAX,
            is_halted: false,
            given: false,
            window: self.window,
            selection: self.selection.clone(),
            takes_all: self.takes_all,
            selected: self.selected.clone(),
            corruptions: Vec::new(),
            losses: Vec::new(),
            symbols: None,
        }
    }

    /// Collects the sources that [`Self::split`] distributed, and what was found in them.
    pub(crate) fn join(&mut self, parts: Vec<Self>) {
        for mut part in parts {
            self.sources.append(&mut part.sources);
            self.corruptions.append(&mut part.corruptions);
            self.losses.append(&mut part.losses);
        }
        self.sort_findings();
    }

    /// Sorts corruptions and losses, independent of the thread that found them.
    fn sort_findings(&mut self) {
        self.corruptions.sort_by(|a, b| (&a.path, a.offset).cmp(&(&b.path, b.offset)));
        // Several readers meet the end of a file that was cut.
        self.corruptions.dedup();
        self.losses.sort_by(|a, b| (&a.path, a.between).cmp(&(&b.path, b.between)));
    }

    fn start(&mut self) {
        self.started = true;
        for index in 0..self.sources.len() {
            if let Some(time) = self.advance(index) {
                self.heap.push(Reverse((time, index as u32)));
            }
        }
    }

    /// Moves the source on top of the heap to its next event; returns false if reading stopped on
    /// the way.
    fn advance_top(&mut self) -> bool {
        self.given = false;
        let Some(index) = self.heap.peek().map(|top| top.0.1) else { return true };
        let time = self.advance(index as usize);
        if self.is_halted {
            self.given = true;
            return false;
        }
        let Some(mut top) = self.heap.peek_mut() else { return true };
        match time {
            Some(time) => *top = Reverse((time, index)),
            None => {
                PeekMut::pop(top);
            }
        }
        true
    }

    /// Moves a source to its next selected event and returns that event's time.
    fn advance(&mut self, index: usize) -> Option<i64> {
        loop {
            let source = self.sources.get_mut(index)?;
            if source.file.is_none() && !source.open_next(&self.traces, self.window, &mut self.corruptions) {
                return None;
            }
            let file = source.file.as_mut()?;
            let step = match file.next_header() {
                Ok(true) => {
                    let time = source.time.nanoseconds(file.decoder.cycles(&file.state));
                    source.timestamp = time;
                    let order = source.order(time.unwrap_or(i64::MIN), self.window);
                    let file = source.file.as_mut()?;
                    if self.takes_all {
                        source.order = order;
                        return Some(order);
                    }
                    let taken = self
                        .selected
                        .get(source.trace)
                        .and_then(|streams| streams.get(file.stream())?.get(file.class))
                        .is_none_or(|&taken| taken);
                    if taken && self.selection.takes_time(time) {
                        source.order = order;
                        return Some(order);
                    }
                    match self.selection.is_over(time) {
                        true => {
                            file.leave_packet();
                            Ok(true)
                        }
                        false => file.finish_event(false).map(|()| true),
                    }
                }
                Ok(false) => source.next_packet(&self.selection, &mut self.losses),
                Err(corruption) => Err(corruption),
            };
            match step {
                Ok(true) => {}
                Ok(false) => source.file = None,
                Err(corruption) => {
                    self.pass_over(index, corruption);
                    if self.corruptions.len() > self.max_corruptions {
                        self.is_halted = true;
                        return None;
                    }
                }
            }
        }
    }

    /// Records corruption and moves to the next intact packet of the file, or past the file.
    fn pass_over(&mut self, index: usize, corruption: Corruption) {
        self.corruptions.push(corruption);
        let Some(source) = self.sources.get_mut(index) else { return };
        // Times read from corrupt bytes say nothing about the order of later events.
        source.latest = i64::MIN;
        source.finish_packet();
        let result = source.file.as_mut().map_or(Ok(false), StreamFile::recover);
        if let Ok(true) = result {
            return;
        }
        self.corruptions.extend(result.err());
        let size = source.file.as_ref().map(StreamFile::size);
        size.iter().for_each(|&size| source.note_progress(size, 0));
        source.file = None;
    }
}

impl Selection {
    /// Whether the selection depends on the content of events.
    pub(crate) fn looks_into_events(&self) -> bool {
        self.filter.is_some() || self.predicate.is_some()
    }

    /// Whether events of every name and time are accepted.
    fn is_open(&self) -> bool {
        self.events.is_empty() && self.from.is_none() && self.to.is_none()
    }

    #[inline]
    fn takes_time(&self, time: Option<i64>) -> bool {
        time.is_none_or(|time| {
            self.from.is_none_or(|from| time >= from) && self.to.is_none_or(|to| time <= to)
        })
    }

    /// Whether some time of an interval, each end of which may be unknown, can be selected.
    fn takes_interval(&self, (begin, end): (Option<i64>, Option<i64>)) -> bool {
        self.from.is_none_or(|from| end.is_none_or(|end| end >= from))
            && self.to.is_none_or(|to| begin.is_none_or(|begin| begin <= to))
    }

    /// Whether no later event of the packet can be selected. Events may be slightly out of order.
    fn is_over(&self, time: Option<i64>) -> bool {
        matches!((time, self.to), (Some(time), Some(to)) if time > to.saturating_add(PACKET_END_SLACK_NS))
    }
}
