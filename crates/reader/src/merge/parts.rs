//! Splits traces into parts of time, for readers that begin anywhere: a viewer's table, a backward
//! search.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::windows::{Scan, Window, Windows};
use super::{Selection, TraceSet};

/// Maximum number of start positions, over all parts and streams; each takes some 70 bytes.
const MAX_STARTS: usize = 1 << 20;

/// Maximum number of threads that read packet headers. They wait for the disk more than they
/// compute.
const MAX_THREADS: usize = 16;

/// Parts of traces in order of time. Only positions of packets are stored, not their content.
pub struct Parts {
    traces: TraceSet,
    windows: Vec<Window>,
}

/// Properties of a packet, read from its header alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketSummary {
    /// Index of its stream among all streams of the set, as [`crate::Event::source`] returns it.
    pub source: usize,
    /// Index of the trace in [`TraceSet::traces`].
    pub trace: usize,
    /// CPU of the stream's packets, if they state one.
    pub cpu: Option<u64>,
    /// Begin time in nanoseconds since the epoch, if the packet states it or has an event.
    pub begin: Option<i64>,
    /// End time in nanoseconds since the epoch, if the packet states it.
    pub end: Option<i64>,
    /// Size in bytes.
    pub bytes: u64,
    /// Sequence number, if the packet states one.
    pub sequence: Option<u64>,
}

impl TraceSet {
    /// Visits the headers of all packets, stream after stream. Several streams are read in
    /// parallel: in a file that is not cached, each header waits for the disk, and only its
    /// predecessor gives its position.
    pub fn packets(&self, visit: &mut dyn FnMut(&PacketSummary)) {
        let (next, found) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
        let read = || loop {
            let source = next.fetch_add(1, Ordering::Relaxed);
            let Some(stream) = self.sources.get(source) else { return };
            let packets = self.packets_of(source, super::Source::new(stream.files.clone()));
            found.lock().unwrap_or_else(PoisonError::into_inner).insert(source, packets);
        };
        thread::scope(|scope| {
            for _ in 1..self.sources.len().min(MAX_THREADS) {
                // If no more threads can be created, the existing ones do all the work.
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
                    sequence: scan.sequence(),
                });
            }
        }
        packets
    }

    /// Returns the file names of each stream, in the order of [`crate::Event::source`], each with
    /// the index of its trace.
    pub fn streams(&self) -> Vec<(usize, Vec<std::path::PathBuf>)> {
        let paths = |source: &super::Source| {
            let files = 0..source.files.count();
            let paths = files.filter_map(|file| Some(source.files.get(file)?.0.to_owned()));
            // A file may be split into several pieces.
            paths.collect::<std::collections::BTreeSet<_>>().into_iter().collect()
        };
        self.sources.iter().map(|source| (source.trace, paths(source))).collect()
    }
}

impl Parts {
    /// Finds parts of about this many bytes by the headers of packets. Nothing of the traces may
    /// have been read before.
    pub fn new(traces: &TraceSet, bytes: u64) -> Self {
        let traces = traces.unread();
        let most = (MAX_STARTS / traces.sources.len().max(1)).max(1) as u64;
        let bytes = bytes.max(traces.size() / most);
        let mut finder = Windows::new(&traces);
        let mut windows = Vec::new();
        while let Some(window) = finder.next(bytes) {
            windows.push(window);
        }
        Self { traces, windows }
    }

    /// Returns the number of parts; at least one.
    pub fn count(&self) -> usize {
        self.windows.len().max(1)
    }

    /// Returns the approximate size of a part in bytes; 0 if there is no such part.
    pub fn bytes(&self, part: usize) -> u64 {
        self.windows.get(part).map_or(0, |window| window.bytes)
    }

    /// Returns the time from which on events belong to a part, in nanoseconds since the epoch;
    /// `None` for the first part.
    pub fn begin(&self, part: usize) -> Option<i64> {
        self.windows.get(part)?.begin()
    }

    /// Returns the part to which events of a time belong.
    pub fn at(&self, time: i64) -> usize {
        let after = self.windows.partition_point(|window| window.begin().is_none_or(|begin| begin <= time));
        after.saturating_sub(1)
    }

    /// Returns a reader for the selected events of one part, in order of time; `None` if there is
    /// no such part.
    ///
    /// If a stream has timestamp regressions, an event near a border may be missed or belong to
    /// both parts.
    pub fn read(&self, part: usize, selection: Selection) -> Option<TraceSet> {
        let window = self.windows.get(part)?;
        let mut traces = self.traces.unread();
        // With an end time in the selection, the reader would read to the end of the streams to
        // find nothing.
        let until = selection.to.map(|to| to.saturating_add(1));
        traces.select(Selection { to: None, ..selection });
        let mut part = traces.take_up(window, 1, &mut Vec::new()).going_on();
        part.until = [part.until, until].into_iter().flatten().min();
        Some(part)
    }
}

impl TraceSet {
    /// Continues whatever the number of corruptions.
    fn going_on(mut self) -> Self {
        self.resume();
        self
    }
}
