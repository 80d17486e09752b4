//! Index of a trace at every level of detail.
//!
//! ```text
//!     a thread per CPU    one thread                        one thread
//! TraceSet ─windows► facts ─in order► Engine, marks, counters ─batches► Index ─► Levels ─► Store
//!                                                                         ▲
//!                                       answers, also while it is built ──┘
//! ```
#![forbid(unsafe_code)]

pub mod apply;
mod columns;
pub mod directory;
mod disk_space;
pub mod entry;
pub mod extra;
pub mod foreground_gate;
pub mod index_storage;
pub mod indexer;
pub mod labels;
pub mod lane;
pub mod preview;
mod private_dir;
pub mod recorded_losses;
pub mod size_estimate;
pub mod slice_kind;
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

/// Maximum bytes of unwritten entries, after which all are written, full blocks or not.
const MAX_OPEN_BYTES: usize = 48 << 20;
/// Number of lanes that are written in one step.
const LANES_PER_STEP: usize = 512;
/// Maximum number of times that a writer yields to readers.
const MAX_YIELDS: usize = 1000;
/// Maximum number of lanes and tracks: a hostile trace could have a thread in each event. Tracks
/// above it are not drawn.
const MAX_LANES: usize = 2 << 20;
const MAX_TRACKS: usize = 1 << 19;
/// Number of tracks up to which each thread has its own; later threads with a reused number share
/// one.
const MAX_OWN_THREAD_TRACKS: usize = 100_000;

/// Range of a counter without values.
const NO_RANGE: (f64, f64) = (f64::INFINITY, f64::NEG_INFINITY);

/// Content of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum LaneKind {
    /// Interrupt handlers on a CPU.
    Interrupt = 0,
    /// Softirqs on a CPU.
    SoftInterrupt = 1,
    /// Threads on a CPU.
    Cpu = 2,
    /// States of a thread.
    Thread = 3,
    /// System calls of a thread.
    Syscall = 4,
    /// Spans of one depth of a thread.
    Span = 5,
    /// Events.
    Marks = 6,
    /// Values of a counter.
    Counter = 7,
    /// Event counts of a channel.
    Density = 8,
    /// Lost events of a channel; shown with its density.
    Lost = 9,
    /// Overwritten events of a channel; shown with its density.
    Overwritten = 10,
}

impl LaneKind {
    /// All kinds by number.
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

    /// Returns the page's name of the kind; `None` if it is not sent.
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

/// Lane: a row of a track.
#[derive(Clone, Debug)]
pub struct Lane {
    /// Number of its track.
    pub track: u32,
    /// Content of the lane.
    pub kind: LaneKind,
    /// Depth among the track's lanes of this kind.
    pub depth: u16,
    /// Trace whose clock the entries have.
    pub trace: u32,
    /// Minimum and maximum of a counter.
    pub range: (f64, f64),
    /// Entries.
    pub levels: Levels,
}

/// Kind of a track.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum TrackKind {
    /// Group of tracks.
    Group = 0,
    /// CPU.
    Cpu = 1,
    /// Process; its threads stand below it.
    Process = 2,
    /// Thread.
    Thread = 3,
    /// Counter.
    Counter = 4,
    /// Channel of a trace.
    Channel = 5,
}

impl TrackKind {
    /// All kinds by number.
    pub const ALL: [Self; 6] =
        [Self::Group, Self::Cpu, Self::Process, Self::Thread, Self::Counter, Self::Channel];

    /// Returns the page's name of the kind.
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

/// Track of the time line.
#[derive(Clone, Debug)]
pub struct Track {
    /// Track above it, if there is one.
    pub parent: Option<u32>,
    /// Kind of the track.
    pub kind: TrackKind,
    /// Number of its name among the labels.
    pub name: u32,
    /// Machine that it belongs to.
    pub machine: u16,
    /// Number of its CPU, process or thread.
    pub number: i64,
    /// Process of a thread, if it is known.
    pub pid: Option<i32>,
    /// Numbers of its lanes.
    pub lanes: Vec<u32>,
    /// Time for which it ran, in nanoseconds.
    pub busy: i64,
}

/// Events of one part of the trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartRows {
    /// Number of events before the part.
    pub first: u64,
    /// Number of events by class; classes without events are left out.
    pub counts: Vec<(u32, u64)>,
}

/// Index that is read while it is built.
#[derive(Debug)]
pub struct Shared {
    index: RwLock<Index>,
    /// Number of waiting readers.
    waiting: AtomicUsize,
}

impl Shared {
    /// Shares an index.
    pub fn new(index: Index) -> Self {
        Self { index: RwLock::new(index), waiting: AtomicUsize::new(0) }
    }

    /// Locks the index for reading.
    pub fn read(&self) -> RwLockReadGuard<'_, Index> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        index
    }

    /// Locks the index for writing. The indexer calls it in short intervals, so waiting readers go
    /// first.
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

/// Index of a trace.
#[derive(Clone, Debug)]
pub struct Index {
    /// Time 0 of all entries, in nanoseconds since the epoch.
    pub base: i64,
    /// Latest time, from the base.
    pub end: i64,
    /// Widths of cells.
    pub widths: Widths,
    /// File of the blocks.
    pub store: Store,
    /// Lanes by number.
    pub lanes: Vec<Lane>,
    /// Tracks by number.
    pub tracks: Vec<Track>,
    /// Labels.
    pub labels: Labels,
    /// Wakeups and flows, from the lane `label` to the lane in `extra`.
    pub arrows: Levels,
    /// Rows of the parts.
    pub parts: Vec<PartRows>,
    /// Names of event classes by number.
    pub classes: Vec<Arc<str>>,
    /// Number of events of each trace.
    pub events: Vec<u64>,
    /// Machine of each trace.
    pub machines: Vec<u16>,
    /// First and last time of each trace, from the base.
    pub bounds: Vec<Option<(i64, i64)>>,
    /// Lost events, lost packets, overwritten events.
    pub losses: [u64; 3],
    /// Corrupt parts, a line each.
    pub damages: Vec<String>,
    /// Streams with timestamp regressions, a line each.
    pub disorders: Vec<String>,
    /// Indexed share: 1 when complete.
    pub progress: f64,
    /// Reason why it can't be completed.
    pub error: Option<String>,
    /// Bytes in each cell of the outline of channels that are known only from packet headers.
    pub outlines: HashMap<u32, Vec<u32>>,
    open_bytes: usize,
    /// Bytes in memory at which entries are written.
    max_open_bytes: usize,
    /// First lane that is still to be flushed.
    next_to_flush: Option<usize>,
    known: Known,
    stable_ids: StableIds,
    batch: WriteBatch,
    /// Progress once the batch is written.
    queued_progress: f64,
    /// Entries of a preview that is being added.
    preview_entries: Option<Vec<(u32, Entry)>>,
    is_finished: bool,
    /// Number of completely written lanes.
    finished: usize,
}

/// Tracks by identity, while the index is built.
#[derive(Clone, Debug, Default)]
struct Known {
    /// Track of each thread, and whether the thread has exited: later events belong to another
    /// thread with the same number.
    threads: QuickMap<(u16, i32), (u32, bool)>,
    /// Tracks of previewed threads that the index has not reached.
    preview_threads: QuickMap<(u16, i32), u32>,
    counters: QuickMap<u32, u32>,
    processes: QuickMap<(u16, i32), u32>,
    cpus: QuickMap<(u16, u32), u32>,
    groups: QuickMap<(u16, u8), u32>,
    interrupts: QuickMap<i64, u32>,
    functions: QuickMap<u64, u32>,
    /// Lanes of each track. Of hundreds of thousands of tracks, few are in the CPU's cache.
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
    /// Makes an empty index of a trace with a base and an approximate duration.
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

    /// Adds a preview: tracks, lanes and names to the index, entries to a list. `None` if it fails
    /// or the index is complete.
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

    /// Whether a preview is being added.
    fn is_preview(&self) -> bool {
        self.preview_entries.is_some()
    }

    /// Returns the time up to which the index is complete, in nanoseconds from its base.
    pub fn known(&self) -> i64 {
        if self.progress < 1.0 { (self.progress * self.end as f64) as i64 } else { i64::MAX }
    }

    /// Lets tracks and lanes keep the numbers of `before`, the index of the traces when they were
    /// shorter. To be called before any is added.
    pub fn keep_numbers(&mut self, before: &Self) {
        self.stable_ids = StableIds::of(before);
        let nameless =
            |track: &Track| Track { parent: None, name: 0, lanes: Vec::new(), busy: 0, ..track.clone() };
        self.tracks = before.tracks.iter().map(nameless).collect();
        let empty = |lane: &Lane| Lane { levels: Levels::default(), range: NO_RANGE, ..*lane };
        self.lanes = before.lanes.iter().map(empty).collect();
    }

    /// Adds an entry to a lane, which has it once it is [written](Self::write_some).
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

    /// Sets the share that was read: 1 when complete.
    pub fn set_progress(&mut self, progress: f64) {
        self.queued_progress = progress;
    }

    /// Writes some added entries, so few that readers wait for a few milliseconds only. Returns
    /// whether some are left.
    ///
    /// # Errors
    ///
    /// If the file can't be written.
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

    /// Writes the unwritten entries of some lanes. Returns whether there are more lanes.
    fn flush(&mut self, first: usize) -> io::Result<bool> {
        let behind = first.saturating_add(LANES_PER_STEP).min(self.lanes.len());
        for lane in self.lanes.get_mut(first..behind).unwrap_or_default() {
            lane.levels.flush((&self.widths, &self.store))?;
        }
        self.next_to_flush = (behind < self.lanes.len()).then_some(behind);
        if self.next_to_flush.is_none() {
            self.open_bytes = self.lanes.iter().map(|lane| lane.levels.open_bytes()).sum();
            // What remains are the blocks of upper levels, which grow ever more slowly.
            self.max_open_bytes = self.open_bytes + MAX_OPEN_BYTES;
        }
        Ok(self.next_to_flush.is_some())
    }

    /// Writes some of all entries in memory, as [`Self::write_some`] does; none may be added any
    /// more. Returns whether some are left.
    ///
    /// # Errors
    ///
    /// If the file can't be written.
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

    /// Adds a track. Beyond the maximum, the last one stands for all others and has no lanes.
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

    /// Returns the lane of a track, and creates it if it is missing; `None` beyond the maximum.
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

    /// Returns the source of a lane's window, with cells of at most `width` nanoseconds.
    pub fn slice(&self, lane: u32, window: (i64, i64), width: i64) -> Slice {
        let lane = self.lanes.get(lane as usize);
        lane.map(|lane| lane.levels.slice(window, (width, &self.widths))).unwrap_or_default()
    }

    /// Returns the text of a label; `None` for number 0.
    pub fn label(&self, number: u32) -> Option<&Arc<str>> {
        Some(self.labels.text(number)).filter(|_| number != 0)
    }

    /// Returns the first lane of a track of a kind.
    pub fn lane_of(&self, track: u32, kind: LaneKind) -> Option<u32> {
        let lanes = &self.tracks.get(track as usize)?.lanes;
        lanes
            .iter()
            .copied()
            .find(|lane| self.lanes.get(*lane as usize).is_some_and(|lane| lane.kind == kind))
    }

    /// Returns the begin of a lane's first entry, written or not.
    pub fn first_of(&self, lane: u32) -> Option<i64> {
        let written = self.lanes.get(lane as usize)?.levels.bounds().map(|(first, _)| first);
        written.or_else(|| self.batch.first_of(lane))
    }

    /// Returns the machine of a trace.
    pub fn machine_of(&self, trace: usize) -> u16 {
        self.machines.get(trace).copied().unwrap_or(0)
    }

    /// Whether a thread with a reused number gets its own track.
    fn has_room(&self) -> bool {
        self.tracks.len() < MAX_OWN_THREAD_TRACKS
    }

    /// Returns the number of known events.
    pub fn event_count(&self) -> u64 {
        self.events.iter().sum()
    }
}
