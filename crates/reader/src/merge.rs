//! Many streams, one order of time.
//!
//! A source is one data stream: one file, or the files of a stream that was rotated, one after the
//! other, or packet by packet in the order of time where their times overlap. A heap holds the time of each source's next event. Only the header of that event is decoded
//! while it waits; the rest is decoded when its turn has come.

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
use crate::{Damage, Error};

pub use parts::{PacketSummary, Parts};
pub use walk::{PacketView, Visitor};

use pieces::Piece;
use source::Source;

/// Bytes that all windows take together, about.
const WINDOWS: usize = 32 << 20;

/// Traces with fewer bytes are read by one thread.
const MUCH: u64 = 1 << 20;

/// How long after the end of a packet its events may have happened, by their times: old tracers took the time of
/// the end too early.
const LATE: i64 = 1_000_000_000;

/// Traces that are read as one.
pub struct TraceSet {
    roots: Vec<PathBuf>,
    traces: Arc<[Trace]>,
    sources: Vec<Source>,
    heap: BinaryHeap<Reverse<(i64, u32)>>,
    started: bool,
    /// From which time on events belong to others.
    until: Option<i64>,
    /// After how many damages to stop: nobody but who has read all before knows what is too much.
    most_damages: usize,
    /// Whether it was stopped for that.
    is_halted: bool,
    /// Whether the event on top of the heap was given to the caller.
    given: bool,
    /// Bytes of each source's window.
    window: usize,
    selection: Selection,
    /// Whether the selection takes every event, but for its filter.
    takes_all: bool,
    /// For each trace, stream class and event class: whether the selection takes it.
    selected: Arc<[Vec<Vec<bool>>]>,
    damages: Vec<Damage>,
    losses: Vec<Loss>,
    /// Names for addresses, if they are wanted and there are some.
    pub(crate) symbols: Option<Symbols>,
}

/// Which events to read.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Globs over `provider:name`; none takes all.
    pub events: Vec<String>,
    /// Earliest time in nanoseconds since the epoch.
    pub from: Option<i64>,
    /// Latest time in nanoseconds since the epoch.
    pub to: Option<i64>,
    /// Events of which it doesn't say true are passed over.
    pub filter: Option<Filter>,
    /// The same for what no filter can say, since it isn't in the event.
    pub only: Option<Only>,
}

/// A question that is asked of each event. It may be asked by several threads at once.
#[derive(Clone)]
pub struct Only(Arc<Takes>);

type Takes = dyn Fn(&Event<'_>) -> bool + Send + Sync;

impl Only {
    /// Takes the events of which this is true.
    pub fn new(takes: impl Fn(&Event<'_>) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(takes))
    }
}

impl fmt::Debug for Only {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Only(…)")
    }
}

impl Selection {
    fn takes_name(&self, event: &metadata::Event) -> bool {
        let names = event.names();
        self.events.is_empty() || self.events.iter().any(|glob| matches_event(glob, &names))
    }
}

/// Something that was not recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Events or whole packets.
    pub kind: LossKind,
    /// How many, or how many at most.
    pub count: u64,
    /// Between which times, in nanoseconds since the epoch.
    pub between: (Option<i64>, Option<i64>),
    /// The trace's index in [`TraceSet::traces`].
    pub trace: usize,
    /// The stream's file.
    pub path: PathBuf,
    /// Number of the stream class.
    pub stream_class: u64,
    /// Number of the stream, if it has one.
    pub stream: Option<u64>,
    /// The CPU of the stream's packets, if they say one.
    pub cpu: Option<u64>,
}

/// Events of a stream that happened, by their times, before others that stand before them. They are read where they
/// stand.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: byte {offset}: time goes back in this stream, {} by up to {}.{:09} s",
    path.display(), if *events == 1 { "once".into() } else { format!("{events} times") },
    back / 1_000_000_000, back % 1_000_000_000)]
pub struct Disorder {
    /// The file of the first one.
    pub path: PathBuf,
    /// Where it stands, in bytes from the file's beginning.
    pub offset: u64,
    /// How many there are.
    pub events: u64,
    /// How far back the farthest goes, in nanoseconds.
    pub back: i64,
}

impl Disorder {
    /// Adds what was found later in the same stream.
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

/// An index file that was not used, for it contradicts itself or the stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct IndexProblem {
    /// The index file.
    pub path: PathBuf,
    /// What was expected and what was found.
    pub problem: String,
}

/// What was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossKind {
    /// Events that the tracer discarded and counted.
    Events,
    /// Events that the tracer may have discarded, at most so many: it counted them before the first packet that is here
    /// was ended, perhaps before that was begun.
    EventsAtMost,
    /// Packets whose numbers are missing.
    Packets,
}

/// Opens all traces at or below some paths.
///
/// ```no_run
/// let mut traces = tompion_reader::open(&["/tmp/my-trace".into()])?;
/// while let Some(event) = traces.next_event() {
///     println!("{:?} {}", event.timestamp(), event.name());
/// }
/// traces.damages().iter().for_each(|damage| eprintln!("{damage}"));
/// # Ok::<(), tompion_reader::Error>(())
/// ```
///
/// # Errors
///
/// If there is no trace at one of the paths, or none of all the descriptions can be read. Where others can,
/// [`TraceSet::damages`] tells of those that cannot.
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

fn beyond_time(path: &Path, cycles: u64) -> Damage {
    let expected = "expected times up to the year 2262";
    let message = format!("{expected}, found a packet begun at {cycles} cycles: later times cannot be shown");
    Damage { path: path.into(), offset: Some(0), message }
}

/// Bytes of each of so many windows.
fn window_size(windows: usize) -> usize {
    (WINDOWS / windows.max(1)).clamp(16 << 10, 128 << 10)
}

/// What makes a stream of its files, which are in the order of the times at which they begin.
type NewSource = fn(Vec<(i64, Piece)>, &Arc<[Trace]>) -> Source;

/// Whose stream a file is: of which trace, class and instance.
type Identity = (Uuid, u64, u64);

/// Files by when they begin, with the traces that they are of.
type Begun = Vec<(i64, PathBuf, usize)>;

/// Which of several streams' events of one time come first, as babeltrace2 has it: by the UUIDs of traces, those without one
/// last, by traces, by the numbers of stream classes and of streams.
type Rank = (bool, Option<Uuid>, usize, u64, Option<u64>);

/// What the first packet of a file says of it.
struct First {
    identity: Option<Identity>,
    /// When it begins; the clock's value for a time that cannot be told.
    begin: Result<i64, u64>,
    rank: Rank,
}

impl TraceSet {
    /// Of traces whose streams are made of pieces as `new_source` says.
    fn new(roots: Vec<PathBuf>, mut opened: Opened, new_source: NewSource) -> Result<Self, Error> {
        let damages = opened.damages()?;
        let mut set = Self {
            roots,
            window: 0,
            traces: opened.traces.into(),
            sources: Vec::new(),
            heap: BinaryHeap::new(),
            started: false,
            until: None,
            most_damages: usize::MAX,
            is_halted: false,
            given: false,
            selection: Selection::default(),
            takes_all: true,
            selected: Arc::new([]),
            damages,
            losses: Vec::new(),
            symbols: None,
        };
        set.sources = set.group(opened.files, new_source);
        set.window = window_size(set.sources.len());
        set.select(Selection::default());
        Ok(set)
    }

    /// Puts the files of one stream together, in order of time, and streams in the order of their events of one time.
    fn group(&mut self, files: Vec<(PathBuf, usize)>, new_source: NewSource) -> Vec<Source> {
        let mut groups: BTreeMap<Identity, usize> = BTreeMap::new();
        let mut sources: Vec<(Rank, Begun)> = Vec::new();
        for (path, trace) in files {
            let Some(First { identity, begin, rank }) = self.first_packet(&path, trace) else { continue };
            let begin = begin.unwrap_or_else(|cycles| {
                self.damages.push(beyond_time(&path, cycles));
                i64::MAX
            });
            let next = sources.len();
            let index = identity.map_or(next, |identity| *groups.entry(identity).or_insert(next));
            match sources.get_mut(index) {
                Some((_, source)) => source.push((begin, path, trace)),
                None => sources.push((rank, vec![(begin, path, trace)])),
            }
        }
        sources.sort_by_key(|(rank, _)| *rank);
        let source = |(_, mut files): (Rank, Begun)| {
            files.sort();
            let files = files.into_iter().map(|(begin, path, trace)| (begin, Piece::whole(path, trace)));
            new_source(files.collect(), &self.traces)
        };
        sources.into_iter().map(source).collect()
    }

    /// What the first packet of a file says of it. Nothing for an empty file; a damaged one is a stream
    /// of its own, whose damage is found when it is read.
    fn first_packet(&self, path: &Path, trace: usize) -> Option<First> {
        let decoder = &self.traces.get(trace)?.decoder;
        let uuid = decoder.trace().uuid;
        let rank = |class, instance| (uuid.is_none(), uuid, trace, class, instance);
        let unknown = Some(First { identity: None, begin: Ok(i64::MIN), rank: rank(u64::MAX, None) });
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
        // Nobody knows which of several files comes first that don't say when they begin.
        let of = uuid.filter(|_| begin.is_some());
        let identity = of.and_then(|uuid| Some((uuid, class, packet.instance?)));
        Some(First { identity, begin: begin.unwrap_or(Ok(i64::MIN)), rank: rank(class, packet.instance) })
    }

    /// Chooses which events to read. To be called before the first event is read.
    pub fn select(&mut self, selection: Selection) {
        let classes = |stream: &metadata::Stream| {
            stream.events.iter().map(|event| selection.takes_name(event)).collect()
        };
        let streams = |trace: &Trace| trace.metadata().streams.iter().map(classes).collect();
        self.selected = self.traces.iter().map(streams).collect();
        self.takes_all = selection.is_open();
        self.selection = selection;
    }

    /// Names the addresses that stand in events, as far as the traces and the files that they name allow: text
    /// and JSON show the names from now on.
    pub fn name_addresses(&mut self) {
        self.symbols = Symbols::read(self);
    }

    /// The traces, in the order of their paths.
    pub fn traces(&self) -> &[Trace] {
        &self.traces
    }

    /// The paths that were opened.
    pub fn roots(&self) -> &[PathBuf] {
        &self.roots
    }

    /// What could not be read, so far.
    pub fn damages(&self) -> &[Damage] {
        &self.damages
    }

    /// Streams in which time went back, so far.
    pub fn disorders(&self) -> impl Iterator<Item = &Disorder> {
        self.sources.iter().filter_map(|source| source.disorder.as_ref())
    }

    /// Index files that turned out to be of no use, so far: nothing is missing for that.
    pub fn index_problems(&self) -> impl Iterator<Item = IndexProblem> {
        self.sources.iter().flat_map(|source| source.files.index_problems())
    }

    /// What was lost, so far.
    pub fn losses(&self) -> &[Loss] {
        &self.losses
    }

    /// The next event in order of time.
    pub fn next_event(&mut self) -> Option<Event<'_>> {
        let index = self.next_source()?;
        self.event(index)
    }

    /// Goes to the next event in order of time, for [`Self::current`]. False if there is none.
    ///
    /// Does the same as [`Self::next_event`], for callers that want to know of losses and damages before the event.
    pub fn step(&mut self) -> bool {
        self.next_source().is_some()
    }

    /// The event to which [`Self::step`] or [`Self::next_event`] went last.
    pub fn current(&self) -> Option<Event<'_>> {
        let top = self.heap.peek().filter(|_| self.given)?;
        self.event(top.0.1 as usize)
    }

    /// Goes to the next event in order of time; returns the source that has it.
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
                Err(damage) => self.pass_over(index, damage),
            }
        }
    }

    /// The event that a source has reached.
    #[inline]
    pub(crate) fn event(&self, index: usize) -> Option<Event<'_>> {
        let source = self.sources.get(index)?;
        let file = source.file.as_ref()?;
        Event::new(self.traces.get(source.trace)?, (source.trace, index), file, source.timestamp)
    }

    /// Whether the selection passes over the event that a source has reached, for what is in it.
    fn is_filtered_out(&self, index: usize) -> bool {
        if !self.selection.looks_into_events() {
            return false;
        }
        let Selection { filter, only, .. } = &self.selection;
        self.event(index).is_some_and(|event| {
            filter.as_ref().is_some_and(|filter| !filter.takes(&event))
                || only.as_ref().is_some_and(|only| !(only.0)(&event))
        })
    }

    /// The event classes that the selection takes by their names.
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

    /// Reads all events, stream after stream. The values of events can be read only in those traces of
    /// which `keep` says so.
    pub fn for_each_unordered(&mut self, keep: &dyn Fn(usize) -> bool, visit: &mut dyn FnMut(&Event<'_>)) {
        for index in 0..self.sources.len() {
            while self.advance(index).is_some() {
                let Some(source) = self.sources.get_mut(index) else { break };
                let Some(file) = source.file.as_mut() else { break };
                let keep = self.selection.looks_into_events() || keep(source.trace);
                if let Err(damage) = file.finish_event(keep) {
                    self.pass_over(index, damage);
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

    /// Reads all events in no order on so many processors; each part of a stream with a visitor of its own. These come
    /// in the order of streams.
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

    /// How many processors to use: all, but for little only one.
    pub(crate) fn threads(&self) -> usize {
        match self.size() >= MUCH {
            true => std::thread::available_parallelism().map_or(1, usize::from),
            false => 1,
        }
    }

    /// Takes the streams apart, for as many readers at a time as asked for; [`Self::join`] puts together what they
    /// found out. For reading in no order, before anything was read.
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

    /// The same traces, not read so far, each with all its times so many nanoseconds later (negative: earlier), to
    /// within a cycle of its clock. Traces for which the list has no number stay as they are.
    ///
    /// # Errors
    ///
    /// If a description can't be compiled anew, which doesn't happen to one that was compiled.
    pub fn shifted(&self, nanoseconds: &[i64]) -> Result<Self, Error> {
        let of =
            |(index, trace): (usize, &Trace)| trace.shifted(nanoseconds.get(index).copied().unwrap_or(0));
        let traces = self.traces.iter().enumerate().map(of).collect::<Result<Vec<_>, _>>()?;
        let unopened = self.damages.iter().filter(|damage| damage.offset.is_none());
        Ok(Self {
            roots: self.roots.clone(),
            traces: traces.into(),
            damages: unopened.cloned().collect(),
            ..self.unread()
        })
    }

    /// The same, not read so far, but only those streams of which a file is wanted, by the trace's folder and that file.
    pub(crate) fn unread_where(&self, wanted: &dyn Fn(&Path, &Path) -> bool) -> Self {
        let is_wanted = |source: &&Source| {
            let mut files = (0..source.files.count()).filter_map(|file| source.files.get(file));
            files.any(|(file, trace)| self.traces.get(trace).is_some_and(|trace| wanted(&trace.path, file)))
        };
        let sources = self.sources.iter().filter(is_wanted);
        self.part(sources.map(|source| Source::new(source.files.clone())).collect())
    }

    /// A set of the same traces that reads other sources.
    fn part(&self, sources: Vec<Source>) -> Self {
        Self {
            roots: Vec::new(),
            traces: self.traces.clone(),
            sources,
            heap: BinaryHeap::new(),
            started: false,
            until: None,
            most_damages: usize::MAX,
            is_halted: false,
            given: false,
            window: self.window,
            selection: self.selection.clone(),
            takes_all: self.takes_all,
            selected: self.selected.clone(),
            damages: Vec::new(),
            losses: Vec::new(),
            symbols: None,
        }
    }

    /// Takes back what [`Self::split`] gave away, and what was found out.
    pub(crate) fn join(&mut self, parts: Vec<Self>) {
        for mut part in parts {
            self.sources.append(&mut part.sources);
            self.damages.append(&mut part.damages);
            self.losses.append(&mut part.losses);
        }
        self.sort_findings();
    }

    /// Puts damages and losses into an order that doesn't depend on who found them.
    fn sort_findings(&mut self) {
        self.damages.sort_by(|a, b| (&a.path, a.offset).cmp(&(&b.path, b.offset)));
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

    /// Moves the source on top of the heap to its next event; false if it was stopped on its way.
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
            if source.file.is_none() && !source.open_next(&self.traces, self.window, &mut self.damages) {
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
                Err(damage) => Err(damage),
            };
            match step {
                Ok(true) => {}
                Ok(false) => source.file = None,
                Err(damage) => {
                    self.pass_over(index, damage);
                    if self.damages.len() > self.most_damages {
                        self.is_halted = true;
                        return None;
                    }
                }
            }
        }
    }

    /// Remembers damage and goes to the next sound packet of the file, or behind the file.
    fn pass_over(&mut self, index: usize, damage: Damage) {
        self.damages.push(damage);
        let Some(source) = self.sources.get_mut(index) else { return };
        // Times that were read of damaged bytes say nothing of the order of what follows.
        source.latest = i64::MIN;
        match source.file.as_mut().map(StreamFile::recover) {
            Some(Ok(true)) => {}
            Some(Ok(false)) | None => source.file = None,
            Some(Err(damage)) => {
                self.damages.push(damage);
                source.file = None;
            }
        }
    }
}

impl Selection {
    /// Whether what is in events decides which it takes.
    pub(crate) fn looks_into_events(&self) -> bool {
        self.filter.is_some() || self.only.is_some()
    }

    /// Whether it takes events of every name and time.
    fn is_open(&self) -> bool {
        self.events.is_empty() && self.from.is_none() && self.to.is_none()
    }

    #[inline]
    fn takes_time(&self, time: Option<i64>) -> bool {
        time.is_none_or(|time| {
            self.from.is_none_or(|from| time >= from) && self.to.is_none_or(|to| time <= to)
        })
    }

    /// Whether no later event of the packet can be selected. Events may be out of order by a little.
    fn is_over(&self, time: Option<i64>) -> bool {
        matches!((time, self.to), (Some(time), Some(to)) if time > to.saturating_add(LATE))
    }
}
