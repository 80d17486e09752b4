//! Assignment of events to tracks.
//!
//! An event belongs to the thread in its context, or else to the thread that ran on its CPU at its
//! time. It also belongs to the threads that it is about: both threads of a switch, the woken
//! thread of a wakeup. It belongs to its CPU and its channel, and a counter's value to its counter.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use tompion_analysis::state::FactExtractor;
use tompion_reader::{Event, EventPredicate};

use super::{ApiError, ApiRequest};
use crate::workspace::OpenTrace;
use tompion_index::slice_kind;
use tompion_index::{Index, LaneKind, TrackKind};

/// Maximum number of cached run intervals: 16 bytes each.
const MAX_RUN_INTERVALS: usize = 1 << 20;

/// Set of tracks with the events that belong to them.
pub struct TrackFilter {
    opened: Arc<OpenTrace>,
    says: FactExtractor,
    /// Clock offset of each trace: the index has unshifted times.
    offsets: Vec<i64>,
    base: i64,
    /// Machine of each trace.
    machines: Vec<u16>,
    /// Tracks of the wanted threads, and of others that reused their numbers.
    threads: HashMap<(u16, i64), Vec<Candidate>>,
    tracks: HashSet<u32>,
    cpus: HashSet<(u16, i64)>,
    /// Whether each stream's channel is wanted.
    channels: Vec<bool>,
    /// Numbers of the counters' event classes.
    counters: HashSet<u32>,
    /// Lane of what each CPU ran, and its trace.
    lanes: HashMap<(u16, i64), (u32, usize)>,
    intervals: Mutex<RunIntervalCache>,
}

/// Track of a thread number.
struct Candidate {
    /// Times of its first and last entry.
    bounds: Option<(i64, i64)>,
    is_among: bool,
}

/// Begin and end of a thread's run on a CPU.
type RunInterval = (i64, i64);

/// Lane of a CPU, and part of the trace.
type CacheKey = (u32, usize);

/// Run intervals of the wanted threads on CPUs, for some parts of the trace.
#[derive(Default)]
struct RunIntervalCache {
    known: HashMap<CacheKey, Arc<[RunInterval]>>,
    /// Keys in insertion order.
    order: VecDeque<CacheKey>,
    count: usize,
}

impl TrackFilter {
    /// Builds the filter of the requested tracks with all below them; `None` if no tracks are
    /// named.
    pub fn new(request: &ApiRequest<'_>) -> Result<Option<Arc<Self>>, ApiError> {
        let index = request.opened.index();
        let wanted = request.tracks(&index)?;
        Ok(wanted.map(|wanted| Self::of(request, &index, &wanted)))
    }

    /// Builds the filter of the threads whose names, or whose processes' names, contain a text in
    /// lower case; `None` if there are none.
    pub fn named(request: &ApiRequest<'_>, text: &str) -> Option<Arc<Self>> {
        let index = request.opened.index();
        let is_named = |id: u32| {
            let name = index.tracks.get(id as usize).and_then(|track| index.label(track.name));
            name.is_some_and(|name| name.to_lowercase().contains(text))
        };
        let threads = index.tracks.iter().enumerate().filter(|(_, track)| track.kind == TrackKind::Thread);
        let named = threads.filter(|(id, track)| is_named(*id as u32) || track.parent.is_some_and(is_named));
        let wanted: Vec<u32> = named.map(|(id, _)| id as u32).collect();
        (!wanted.is_empty()).then(|| Self::of(request, &index, &wanted))
    }

    fn of(request: &ApiRequest<'_>, index: &Index, wanted: &[u32]) -> Arc<Self> {
        let opened = request.opened;
        let tracks: HashSet<u32> = wanted.iter().copied().collect();
        let mut found = Self {
            opened: opened.clone(),
            says: FactExtractor::new(opened.set.traces()),
            offsets: request.offsets.clone(),
            base: index.base,
            machines: index.machines.clone(),
            threads: HashMap::new(),
            tracks,
            cpus: HashSet::new(),
            channels: Vec::new(),
            counters: HashSet::new(),
            lanes: HashMap::new(),
            intervals: Mutex::default(),
        };
        found.find(index, wanted);
        Arc::new(found)
    }

    fn find(&mut self, index: &Index, wanted: &[u32]) {
        let mut channels: HashSet<&str> = HashSet::new();
        for track in wanted.iter().filter_map(|id| index.tracks.get(*id as usize)) {
            let key = (track.machine, track.number);
            match track.kind {
                TrackKind::Thread => drop(self.threads.insert(key, Vec::new())),
                TrackKind::Cpu => drop(self.cpus.insert(key)),
                TrackKind::Counter => self.counters.extend(u32::try_from(track.number)),
                TrackKind::Channel => channels.extend(index.label(track.name).map(|name| &**name)),
                TrackKind::Group | TrackKind::Process => {}
            }
        }
        let tracks = &self.opened.channel_tracks;
        self.channels = tracks.iter().map(|name| channels.contains(name.as_str())).collect();
        for (id, track) in index.tracks.iter().enumerate() {
            let (id, key) = (id as u32, (track.machine, track.number));
            if track.kind == TrackKind::Cpu {
                let lane = index.lane_of(id, LaneKind::Cpu).filter(|_| !self.threads.is_empty());
                let trace =
                    lane.and_then(|lane| index.lanes.get(lane as usize)).map(|lane| lane.trace as usize);
                self.lanes.extend(lane.zip(trace).map(|lane| (key, lane)));
            }
            if let (TrackKind::Thread, Some(candidates)) = (track.kind, self.threads.get_mut(&key)) {
                candidates.push(Candidate {
                    bounds: bounds(index, &track.lanes),
                    is_among: self.tracks.contains(&id),
                });
            }
        }
    }

    /// Returns the filter as a predicate for the reader.
    pub fn only(self: Arc<Self>) -> EventPredicate {
        EventPredicate::new(move |event| self.takes(event))
    }

    /// Whether an event belongs to one of the tracks.
    pub fn takes(&self, event: &Event<'_>) -> bool {
        if self.channels.get(event.source()).copied().unwrap_or(false) {
            return true;
        }
        let machine = self.machines.get(event.trace_index()).copied().unwrap_or(0);
        let cpu = event.cpu().and_then(|cpu| i64::try_from(cpu).ok());
        if cpu.is_some_and(|cpu| self.cpus.contains(&(machine, cpu))) {
            return true;
        }
        if !self.counters.is_empty() {
            let class = self.opened.classes.of(event.place());
            if class.is_some_and(|class| self.counters.contains(&class.number)) {
                return true;
            }
        }
        if self.threads.is_empty() {
            return false;
        }
        let Some(time) = event.timestamp().map(|time| time.saturating_sub(self.base)) else { return false };
        let threads = self.says.threads(event);
        let own = time.saturating_sub(self.offset(event.trace_index()));
        let is_among = |tid: i32| self.is_among((machine, tid.into()), own);
        if threads.about.into_iter().flatten().any(is_among) {
            return true;
        }
        match (threads.on, cpu) {
            (Some(tid), _) => is_among(tid),
            (None, Some(cpu)) => self.ran((machine, cpu), time),
            (None, None) => false,
        }
    }

    fn offset(&self, trace: usize) -> i64 {
        self.offsets.get(trace).copied().unwrap_or(0)
    }

    /// Whether the thread that had this number at a time is wanted.
    fn is_among(&self, key: (u16, i64), time: i64) -> bool {
        let Some(candidates) = self.threads.get(&key) else { return false };
        let was_there = |candidate: &&Candidate| {
            candidate.bounds.is_some_and(|(first, last)| first <= time && time <= last)
        };
        let candidate = candidates.iter().find(was_there).or(candidates.last());
        candidate.is_some_and(|candidate| candidate.is_among)
    }

    /// Whether one of the threads ran on a CPU at a time.
    fn ran(&self, cpu: (u16, i64), time: i64) -> bool {
        let Some(&(lane, trace)) = self.lanes.get(&cpu) else { return false };
        let time = time.saturating_sub(self.offset(trace));
        let part = self.opened.parts.at(time.saturating_add(self.base));
        let intervals = self.intervals(lane, part);
        let after = intervals.partition_point(|interval| interval.0 <= time);
        // The event at the end of a run is the switch, which belongs to both threads.
        after
            .checked_sub(1)
            .and_then(|before| intervals.get(before))
            .is_some_and(|interval| time <= interval.1)
    }

    /// Returns the run intervals of the wanted threads on a CPU that touch a part of the trace, in
    /// order.
    fn intervals(&self, lane: u32, part: usize) -> Arc<[RunInterval]> {
        let mut intervals = self.intervals.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = intervals.known.get(&(lane, part)) {
            return known.clone();
        }
        let border = |part: usize| self.opened.parts.begin(part).map(|begin| begin.saturating_sub(self.base));
        let window = (border(part).unwrap_or(i64::MIN), border(part + 1).unwrap_or(i64::MAX));
        let (store, slice) = {
            let index = self.opened.index();
            (index.store.clone(), index.slice(lane, window, 0))
        };
        let mut found: Vec<RunInterval> = Vec::new();
        // If the file can't be read, no run is known.
        let _ = slice.read(&store, window, &mut |entry| {
            let track = entry.extra.thread();
            if entry.style == slice_kind::RUNNING && track.is_some_and(|track| self.tracks.contains(&track)) {
                match found.last_mut().filter(|last| last.1 == entry.begin) {
                    Some(last) => last.1 = entry.end,
                    None => found.push((entry.begin, entry.end)),
                }
            }
            true
        });
        intervals.keep((lane, part), found.into())
    }
}

impl RunIntervalCache {
    fn keep(&mut self, key: CacheKey, intervals: Arc<[RunInterval]>) -> Arc<[RunInterval]> {
        // Empty lists take some memory, too.
        let size = |intervals: &[RunInterval]| intervals.len() + 16;
        self.count += size(&intervals);
        while self.count > MAX_RUN_INTERVALS {
            let Some(oldest) = self.order.pop_front() else { break };
            self.count -= self.known.remove(&oldest).map_or(0, |intervals| size(&intervals));
        }
        self.order.push_back(key);
        self.known.insert(key, intervals.clone());
        intervals
    }
}

/// Returns the first and the last time of a thread's lanes.
fn bounds(index: &Index, lanes: &[u32]) -> Option<(i64, i64)> {
    let lanes = lanes.iter().filter_map(|lane| index.lanes.get(*lane as usize));
    let all = lanes.filter_map(|lane| lane.levels.bounds());
    all.reduce(|(first, last), (begin, end)| (first.min(begin), last.max(end)))
}
