//! The index: what a trace looks like, at every level of detail.
//!
//! ```text
//!           a thread a processor       one thread                     one thread
//! TraceSet ──windows──► facts ──in order──► Engine, marks, counters ──batches──► Index: tracks, lanes ──► Levels ──► Store
//!                                                                                   ▲
//!                                                             answers of the server ┘ also while it is built
//! ```

pub mod apply;
pub mod directory;
mod disk_space;
pub mod entry;
pub mod index_storage;
pub mod indexer;
pub mod labels;
pub mod lane;
pub mod preview;
mod private_dir;
mod stable_ids;
pub mod store;
mod write_batch;

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread;

use tompion_analysis::quick::QuickMap;

use entry::Entry;
use labels::Labels;
use lane::{Levels, Slice, Widths};
use stable_ids::StableIds;
use store::Store;
use write_batch::WriteBatch;

/// Bytes of entries in memory at which they are written, whatever blocks are full.
const MAX_OPEN_BYTES: usize = 48 << 20;
/// Lanes of which that is done in one step, and all is written at the end.
const LANES_PER_STEP: usize = 512;
/// How often who writes gives way to those who read.
const MAX_YIELDS: usize = 1000;
/// Most lanes and tracks: a hostile trace could have a thread in each event. What has none is not drawn.
const MAX_LANES: usize = 2 << 20;
const MAX_TRACKS: usize = 1 << 19;
/// Tracks up to which each thread has its own; of later ones, those that have a number one after the other share one.
const MAX_OWN_THREAD_TRACKS: usize = 100_000;

/// The values of a counter that has none.
const NO_RANGE: (f64, f64) = (f64::INFINITY, f64::NEG_INFINITY);

/// What a lane shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum LaneKind {
    /// Handlers of interrupts on a processor.
    Interrupt = 0,
    /// Soft interrupts on a processor.
    SoftInterrupt = 1,
    /// What a processor runs.
    Cpu = 2,
    /// What a thread does.
    Thread = 3,
    /// What system call it is in.
    Syscall = 4,
    /// Its spans of one depth.
    Span = 5,
    /// Events.
    Marks = 6,
    /// Values of a counter.
    Counter = 7,
    /// How many events a channel has.
    Density = 8,
    /// How many it lost; shown with its density.
    Lost = 9,
    /// How many were overwritten; shown with its density.
    Overwritten = 10,
}

impl LaneKind {
    /// All of them, by their numbers.
    pub const ALL: [Self; 11] = [
        Self::Interrupt,
        Self::SoftInterrupt,
        Self::Cpu,
        Self::Thread,
        Self::Syscall,
        Self::Span,
        Self::Marks,
        Self::Counter,
        Self::Density,
        Self::Lost,
        Self::Overwritten,
    ];

    /// As the page knows it; nothing if the page doesn't.
    pub fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::Interrupt => "interrupt",
            Self::SoftInterrupt => "softirq",
            Self::Cpu => "cpu",
            Self::Thread => "thread",
            Self::Syscall => "syscall",
            Self::Span => "span",
            Self::Marks => "marks",
            Self::Counter => "counter",
            Self::Density => "density",
            Self::Lost | Self::Overwritten => return None,
        })
    }
}

/// A lane: a row of a track.
#[derive(Clone, Debug)]
pub struct Lane {
    /// Its track.
    pub track: u32,
    /// What it shows.
    pub kind: LaneKind,
    /// How deep it stands among those of its kind.
    pub depth: u16,
    /// The trace whose clock it goes by.
    pub trace: u32,
    /// Least and greatest value of a counter.
    pub range: (f64, f64),
    /// What stands in it.
    pub levels: Levels,
}

/// What a track is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum TrackKind {
    /// Others stand below it.
    Group = 0,
    /// A processor.
    Cpu = 1,
    /// A process; its threads stand below it.
    Process = 2,
    /// A thread.
    Thread = 3,
    /// A counter.
    Counter = 4,
    /// A channel of a trace.
    Channel = 5,
}

impl TrackKind {
    /// All of them, by their numbers.
    pub const ALL: [Self; 6] =
        [Self::Group, Self::Cpu, Self::Process, Self::Thread, Self::Counter, Self::Channel];

    /// As the page knows it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Group => "group",
            Self::Cpu => "cpu",
            Self::Process => "process",
            Self::Thread => "thread",
            Self::Counter => "counter",
            Self::Channel => "channel",
        }
    }
}

/// A track of the picture.
#[derive(Clone, Debug)]
pub struct Track {
    /// The track above, if there is one.
    pub parent: Option<u32>,
    /// What it is.
    pub kind: TrackKind,
    /// Number of its name among the labels.
    pub name: u32,
    /// The machine that it is of.
    pub machine: u16,
    /// Its processor, process or thread.
    pub number: i64,
    /// The process of a thread, if that is known.
    pub pid: Option<i32>,
    /// Its lanes.
    pub lanes: Vec<u32>,
    /// How long it ran, in nanoseconds.
    pub busy: i64,
}

/// Events of one part of the trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartRows {
    /// How many events stand before it.
    pub first: u64,
    /// How many it has of each class, by the class's number; classes without events are left out.
    pub counts: Vec<(u32, u64)>,
}

/// An index that is read while it is built.
#[derive(Debug)]
pub struct Shared {
    index: RwLock<Index>,
    /// How many wait to read.
    waiting: AtomicUsize,
}

impl Shared {
    /// An index that others may read.
    pub fn new(index: Index) -> Self {
        Self { index: RwLock::new(index), waiting: AtomicUsize::new(0) }
    }

    /// The index as it is now.
    pub fn read(&self) -> RwLockReadGuard<'_, Index> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        index
    }

    /// The index, to be written to. Who builds it asks again and again, so that those who read it come first.
    pub fn write(&self) -> RwLockWriteGuard<'_, Index> {
        for _ in 0..MAX_YIELDS {
            if self.waiting.load(Ordering::Relaxed) == 0 {
                break;
            }
            thread::yield_now();
        }
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is known of a trace.
#[derive(Clone, Debug)]
pub struct Index {
    /// Time 0 of all entries, in nanoseconds since the epoch.
    pub base: i64,
    /// The latest time, from the base.
    pub end: i64,
    /// Widths of cells.
    pub widths: Widths,
    /// Where blocks are.
    pub store: Store,
    /// Lanes by their numbers.
    pub lanes: Vec<Lane>,
    /// Tracks by their numbers.
    pub tracks: Vec<Track>,
    /// Texts.
    pub labels: Labels,
    /// Wake-ups and flows: from the lane `label` to the lane `extra`.
    pub arrows: Levels,
    /// Rows of parts.
    pub parts: Vec<PartRows>,
    /// Names of event classes, by their numbers.
    pub classes: Vec<Arc<str>>,
    /// Events of each trace.
    pub events: Vec<u64>,
    /// The machine of each trace.
    pub machines: Vec<u16>,
    /// First and last time of each trace, from the base.
    pub bounds: Vec<Option<(i64, i64)>>,
    /// Lost events, lost packets, overwritten events.
    pub losses: [u64; 3],
    /// What could not be read, a line each.
    pub damages: Vec<String>,
    /// Streams in which time goes back, a line each.
    pub disorders: Vec<String>,
    /// How much is there: 1 is all.
    pub progress: f64,
    /// Why it could not be completed.
    pub error: Option<String>,
    /// For channels of which nothing is known yet but their packets: where bytes are, in 1024 parts of the time.
    pub outlines: HashMap<u32, Vec<u32>>,
    open_bytes: usize,
    /// Bytes in memory at which they are written.
    max_open_bytes: usize,
    /// The lane from which on memory is being emptied.
    next_to_flush: Option<usize>,
    known: Known,
    stable_ids: StableIds,
    batch: WriteBatch,
    /// How much is there once what is pending is written.
    queued_progress: f64,
    /// Where entries go whose turn is not yet.
    preview_entries: Option<Vec<(u32, Entry)>>,
    is_finished: bool,
    /// Lanes of which everything is written.
    finished: usize,
}

/// What tracks there are, while they are made.
#[derive(Clone, Debug, Default)]
struct Known {
    /// Each with whether it is gone: what is told of it later is of another one with the same number.
    threads: QuickMap<(u16, i32), (u32, bool)>,
    /// Those that were seen before their turn and that the index has not met.
    preview_threads: QuickMap<(u16, i32), u32>,
    counters: QuickMap<u32, u32>,
    processes: QuickMap<(u16, i32), u32>,
    cpus: QuickMap<(u16, u32), u32>,
    groups: QuickMap<(u16, u8), u32>,
    interrupts: QuickMap<i64, u32>,
    functions: QuickMap<u64, u32>,
    /// What the lanes of each track are: of hundreds of thousands, few are in a cache.
    lanes: Vec<Vec<(LaneKind, u16, u32)>>,
}

impl Known {
    fn lane(&self, track: u32, (kind, depth): (LaneKind, u16)) -> Option<u32> {
        let mut lanes = self.lanes.get(track as usize)?.iter();
        lanes.find(|(of_kind, of_depth, _)| (*of_kind, *of_depth) == (kind, depth)).map(|(.., lane)| *lane)
    }

    fn add_lane(&mut self, track: u32, (kind, depth, lane): (LaneKind, u16, u32)) {
        let track = track as usize;
        if self.lanes.len() <= track {
            self.lanes.resize(track + 1, Vec::new());
        }
        if let Some(lanes) = self.lanes.get_mut(track) {
            lanes.push((kind, depth, lane));
        }
    }
}

impl Index {
    /// Of a trace from a base on, that lasts about so long.
    pub fn new((base, duration): (i64, i64), store: Store) -> Self {
        Self {
            base,
            end: duration.max(1),
            widths: Widths::new(duration),
            store,
            lanes: Vec::new(),
            tracks: Vec::new(),
            labels: Labels::default(),
            arrows: Levels::default(),
            parts: Vec::new(),
            classes: Vec::new(),
            events: Vec::new(),
            machines: Vec::new(),
            bounds: Vec::new(),
            losses: [0; 3],
            damages: Vec::new(),
            disorders: Vec::new(),
            progress: 0.0,
            error: None,
            outlines: HashMap::new(),
            open_bytes: 0,
            max_open_bytes: MAX_OPEN_BYTES,
            next_to_flush: None,
            known: Known::default(),
            stable_ids: StableIds::default(),
            batch: WriteBatch::default(),
            queued_progress: 0.0,
            preview_entries: None,
            is_finished: false,
            finished: 0,
        }
    }

    /// Adds what is read before its turn: tracks, lanes and names to the index, entries with their lanes to a list. Nothing if
    /// that can't be, or the index knows everything.
    pub fn apply_preview(
        &mut self,
        entries: Vec<(u32, Entry)>,
        apply: impl FnOnce(&mut Self) -> io::Result<()>,
    ) -> Option<Vec<(u32, Entry)>> {
        if self.is_finished {
            return None;
        }
        self.preview_entries = Some(entries);
        let applied = apply(self);
        self.preview_entries.take().filter(|_| applied.is_ok())
    }

    /// Whether what is added now is read before its turn.
    fn is_preview(&self) -> bool {
        self.preview_entries.is_some()
    }

    /// Up to when everything is known, from the base.
    pub fn known(&self) -> i64 {
        if self.progress < 1.0 { (self.progress * self.end as f64) as i64 } else { i64::MAX }
    }

    /// Tracks and lanes that an index of the same traces had when they were shorter get the numbers that they had there.
    /// To be called before any is added.
    pub fn keep_numbers(&mut self, before: &Self) {
        self.stable_ids = StableIds::of(before);
        let nameless =
            |track: &Track| Track { parent: None, name: 0, lanes: Vec::new(), busy: 0, ..track.clone() };
        self.tracks = before.tracks.iter().map(nameless).collect();
        let empty = |lane: &Lane| Lane { levels: Levels::default(), range: NO_RANGE, ..*lane };
        self.lanes = before.lanes.iter().map(empty).collect();
    }

    /// Adds an entry to a lane, once it is [written](Self::write_some).
    pub fn push(&mut self, lane: u32, entry: &Entry) {
        match &mut self.preview_entries {
            Some(entries) => entries.push((lane, *entry)),
            None => self.batch.push(lane, entry),
        }
    }

    /// Whether it is time to [write](Self::write_some).
    pub fn is_batch_full(&self) -> bool {
        self.batch.is_full()
    }

    /// Says how much is read: 1 is all.
    pub fn set_progress(&mut self, progress: f64) {
        self.queued_progress = progress;
    }

    /// Writes some of what was added: so little that whoever wants to read waits for a few milliseconds. Returns whether
    /// something is left.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn write_some(&mut self) -> io::Result<bool> {
        if let Some(first) = self.next_to_flush {
            return self.flush(first);
        }
        let (bytes, is_left) = self.batch.write(&mut self.lanes, (&self.widths, &self.store))?;
        self.open_bytes += bytes;
        if is_left {
            return Ok(true);
        }
        self.progress = self.queued_progress;
        self.next_to_flush = (self.open_bytes > self.max_open_bytes).then_some(0);
        Ok(self.next_to_flush.is_some())
    }

    /// Writes what is in memory of some lanes, from one on. Returns whether there are more.
    fn flush(&mut self, first: usize) -> io::Result<bool> {
        let behind = first.saturating_add(LANES_PER_STEP).min(self.lanes.len());
        for lane in self.lanes.get_mut(first..behind).unwrap_or_default() {
            lane.levels.flush((&self.widths, &self.store))?;
        }
        self.next_to_flush = (behind < self.lanes.len()).then_some(behind);
        if self.next_to_flush.is_none() {
            self.open_bytes = self.lanes.iter().map(|lane| lane.levels.open_bytes()).sum();
            // What stays are the blocks of upper levels, which grow ever more slowly.
            self.max_open_bytes = self.open_bytes + MAX_OPEN_BYTES;
        }
        Ok(self.next_to_flush.is_some())
    }

    /// Writes some of everything that is in memory, as [`Self::write_some`] does; nothing may be added any more. Returns
    /// whether something is left.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn finish_some(&mut self) -> io::Result<bool> {
        self.is_finished = true;
        if self.write_some()? {
            return Ok(true);
        }
        let behind = self.finished.saturating_add(LANES_PER_STEP).min(self.lanes.len());
        for lane in self.lanes.get_mut(self.finished..behind).unwrap_or_default() {
            lane.levels.finish((&self.widths, &self.store))?;
        }
        self.finished = behind;
        if behind < self.lanes.len() {
            return Ok(true);
        }
        self.arrows.finish((&self.widths, &self.store))?;
        (self.known, self.stable_ids, self.batch) =
            (Known::default(), StableIds::default(), WriteBatch::default());
        self.outlines.clear();
        Ok(false)
    }

    /// Adds a track. Of too many, the last one has no lanes and stands for all others.
    pub fn add_track(&mut self, track: Track) -> u32 {
        if let Some(number) = self.stable_ids.track(&track, &self.labels) {
            if let Some(known) = self.tracks.get_mut(number as usize) {
                *known = track;
                return number;
            }
        }
        if self.tracks.len() >= MAX_TRACKS {
            return (MAX_TRACKS - 1) as u32;
        }
        self.tracks.push(track);
        (self.tracks.len() - 1) as u32
    }

    /// The lane of a track; made if it isn't there. Nothing if there are too many lanes.
    pub fn lane(&mut self, track: u32, (kind, depth): (LaneKind, u16), trace: u32) -> Option<u32> {
        if let Some(known) = self.known.lane(track, (kind, depth)) {
            return Some(known);
        }
        let of_track = self.tracks.get_mut(track as usize)?;
        let lane = Lane { track, kind, depth, trace, range: NO_RANGE, levels: Levels::default() };
        let number = match self.stable_ids.lane(track, (kind, depth)) {
            Some(number) => {
                *self.lanes.get_mut(number as usize)? = lane;
                number
            }
            None if self.lanes.len() >= MAX_LANES || track as usize >= MAX_TRACKS - 1 => return None,
            None => {
                self.lanes.push(lane);
                (self.lanes.len() - 1) as u32
            }
        };
        of_track.lanes.push(number);
        self.known.add_lane(track, (kind, depth, number));
        Some(number)
    }

    /// What a lane's window is read from, with cells of at most `width` nanoseconds.
    pub fn slice(&self, lane: u32, window: (i64, i64), width: i64) -> Slice {
        let lane = self.lanes.get(lane as usize);
        lane.map(|lane| lane.levels.slice(window, (width, &self.widths))).unwrap_or_default()
    }

    /// The text of a label; nothing for none.
    pub fn label(&self, number: u32) -> Option<&Arc<str>> {
        Some(self.labels.text(number)).filter(|_| number != 0)
    }

    /// The first lane of a track of a kind.
    pub fn lane_of(&self, track: u32, kind: LaneKind) -> Option<u32> {
        let lanes = &self.tracks.get(track as usize)?.lanes;
        lanes
            .iter()
            .copied()
            .find(|lane| self.lanes.get(*lane as usize).is_some_and(|lane| lane.kind == kind))
    }

    /// When the first entry of a lane begins, be it written or pending.
    pub fn first_of(&self, lane: u32) -> Option<i64> {
        let written = self.lanes.get(lane as usize)?.levels.bounds().map(|(first, _)| first);
        written.or_else(|| self.batch.first_of(lane))
    }

    /// The machine of a trace.
    pub fn machine_of(&self, trace: usize) -> u16 {
        self.machines.get(trace).copied().unwrap_or(0)
    }

    /// Whether a thread that comes after one with the same number has a track of its own.
    fn has_room(&self) -> bool {
        self.tracks.len() < MAX_OWN_THREAD_TRACKS
    }

    /// How many events are known.
    pub fn event_count(&self) -> u64 {
        self.events.iter().sum()
    }
}
