//! Traces in parts of time, for those who want to begin anywhere: a viewer's table, a search backwards.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::windows::{Scan, Window, Windows};
use super::{Selection, TraceSet};

/// Most places to begin at, of all parts and streams together: what is remembered of one takes some 70 bytes.
const MOST_STARTS: usize = 1 << 20;

/// Most threads that read headers of packets, which wait for the disk more than they work.
const MOST_THREADS: usize = 16;

/// Parts of traces, in order of time. What is remembered are the places of packets, not what is in them.
pub struct Parts {
    traces: TraceSet,
    windows: Vec<Window>,
}

/// A packet, by its header alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketSummary {
    /// Index of its stream among all streams of the set, as [`crate::Event::source`] says it.
    pub source: usize,
    /// The trace's index in [`TraceSet::traces`].
    pub trace: usize,
    /// The CPU of the stream's packets, if they say one.
    pub cpu: Option<u64>,
    /// When it was begun, in nanoseconds since the epoch, if it says so or has an event.
    pub begin: Option<i64>,
    /// When it was ended, if it says so.
    pub end: Option<i64>,
    /// Its size in bytes.
    pub bytes: u64,
}

impl TraceSet {
    /// Goes through the headers of all packets, stream after stream. Several streams are read at once: where a file is not
    /// in memory, each header is a wait for the disk, and only the one before it says where it is.
    pub fn packets(&self, visit: &mut dyn FnMut(&PacketSummary)) {
        let (next, found) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
        let read = || loop {
            let source = next.fetch_add(1, Ordering::Relaxed);
            let Some(stream) = self.sources.get(source) else { return };
            let packets = self.packets_of(source, super::Source::new(stream.files.clone()));
            found.lock().unwrap_or_else(PoisonError::into_inner).insert(source, packets);
        };
        thread::scope(|scope| {
            for _ in 1..self.sources.len().min(MOST_THREADS) {
                // Where no more threads are allowed, those that are there do it all.
                let _ = thread::Builder::new().name("headers".into()).spawn_scoped(scope, read);
            }
            read();
        });
        let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        found.values().flatten().for_each(visit);
    }

    fn packets_of(&self, source: usize, stream: super::Source) -> Vec<PacketSummary> {
        let (mut scan, mut packets) = (Scan::of(stream), Vec::new());
        while scan.next_time(&self.traces).is_some() {
            if let Some((begin, end, bytes)) = scan.summary() {
                packets.push(PacketSummary {
                    source,
                    trace: scan.trace(),
                    cpu: scan.cpu(),
                    begin,
                    end,
                    bytes,
                });
            }
        }
        packets
    }

    /// The names of each stream's files, in the order of [`crate::Event::source`], each with its trace's index.
    pub fn streams(&self) -> Vec<(usize, Vec<std::path::PathBuf>)> {
        let paths = |source: &super::Source| {
            let files = 0..source.files.count();
            let paths = files.filter_map(|file| Some(source.files.get(file)?.0.to_owned()));
            // A file may be in several pieces.
            paths.collect::<std::collections::BTreeSet<_>>().into_iter().collect()
        };
        self.sources.iter().map(|source| (source.trace, paths(source))).collect()
    }
}

impl Parts {
    /// Finds parts of about so many bytes by the headers of packets. Of traces of which nothing was read.
    pub fn new(traces: &TraceSet, bytes: u64) -> Self {
        let traces = traces.unread();
        let most = (MOST_STARTS / traces.sources.len().max(1)).max(1) as u64;
        let bytes = bytes.max(traces.size() / most);
        let mut finder = Windows::new(&traces);
        let mut windows = Vec::new();
        while let Some(window) = finder.next(bytes) {
            windows.push(window);
        }
        Self { traces, windows }
    }

    /// How many there are; at least one.
    pub fn count(&self) -> usize {
        self.windows.len().max(1)
    }

    /// From which time on events belong to a part, in nanoseconds since the epoch. Nothing for the first.
    pub fn begin(&self, part: usize) -> Option<i64> {
        self.windows.get(part)?.begin()
    }

    /// The part to which events of a time belong.
    pub fn at(&self, time: i64) -> usize {
        let after = self.windows.partition_point(|window| window.begin().is_none_or(|begin| begin <= time));
        after.saturating_sub(1)
    }

    /// The selected events of one part, to be read in order of time. Nothing if there is no such part.
    ///
    /// Where times of streams are in disorder, an event near a border may be missed or belong to both parts.
    pub fn read(&self, part: usize, selection: Selection) -> Option<TraceSet> {
        let window = self.windows.get(part)?;
        let mut traces = self.traces.unread();
        // Who looks for events up to a time by selection goes on to the end of the streams to find none.
        let until = selection.to.map(|to| to.saturating_add(1));
        traces.select(Selection { to: None, ..selection });
        let mut part = traces.take_up(window, 1, &mut Vec::new()).going_on();
        part.until = [part.until, until].into_iter().flatten().min();
        Some(part)
    }
}

impl TraceSet {
    /// Goes on whatever the damage.
    fn going_on(mut self) -> Self {
        self.resume();
        self
    }
}
