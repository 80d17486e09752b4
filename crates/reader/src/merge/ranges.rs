//! Streams in ranges of packets, which are read side by side, in no order.
//!
//! ```text
//! source 0   │ packet │ packet │ packet │ packet │ packet │
//! ranges     └── 0 ────────────┘── 1 ────────────┘── 2 ───┘
//! source 1   │ packet │ packet │
//! ranges     └── 3 ────────────┘
//! ```
//!
//! Packets stand for themselves but for two things: how much was lost before a packet is told by the counters of the
//! packet before it, and whether time goes back by the latest time before it. The former is known, for headers are read
//! to find the ranges. The latter is looked at when the ranges are put together. A range that doesn't begin where the
//! one before it ended, since there was damage, or that goes on before the latest time, is read again from there on:
//! what is found is the same on any number of processors.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::source::{Place, Source};
use super::tally::{Order, Run};
use super::windows::{Scan, Start};
use super::{Damage, Disorder, Loss, TraceSet};
use crate::discover::Trace;
use crate::file::MAX_DAMAGES;

/// A range has at least so many bytes, if the stream has them.
const LEAST: u64 = if cfg!(test) { 4 << 10 } else { 1 << 20 };
/// How many ranges each thread is to count, about: who is ready first waits for the others at most as long as one takes.
const OF_A_THREAD: u64 = 32;

/// Some packets of a stream that follow each other.
#[derive(Clone)]
struct Range {
    source: usize,
    start: Start,
    /// Where the next range begins; nothing for the last one of a stream.
    end: Option<Place>,
}

/// What was found in a range.
pub(super) struct Part<F> {
    pub found: F,
    /// The events that were counted, if the order of their times is of interest.
    pub runs: Vec<Run>,
    losses: Vec<Loss>,
    damages: Vec<Damage>,
    disorder: Option<Disorder>,
    /// Where its reader was in the end.
    end: Start,
}

/// Reads all of a set that has one stream, or a range of one, behind events with this order.
pub(super) type Read<'r, F> = dyn Fn(&mut TraceSet, Option<Order>) -> (F, Vec<Run>) + Sync + 'r;

/// Finds ranges, by packets' headers.
struct Ranges<'t> {
    traces: &'t Arc<[Trace]>,
    sources: &'t [Source],
    /// The source of the next range.
    source: usize,
    /// Where that is, if ranges of this source were found.
    scan: Option<Scan>,
    /// Bytes of a range.
    size: u64,
}

impl Iterator for Ranges<'_> {
    type Item = Range;

    fn next(&mut self) -> Option<Range> {
        let source = self.source;
        let of = self.sources.get(source)?;
        let is_first = self.scan.is_none();
        let scan = self.scan.get_or_insert_with(|| {
            let mut scan = Scan::new(&of.files);
            scan.step(self.traces);
            scan
        });
        // What is before the first sound packet belongs to the first range.
        let start = if is_first { Start::default() } else { scan.ahead()?.0 };
        let mut bytes = 0;
        while let Some((next, size)) = scan.ahead() {
            if bytes >= self.size {
                return Some(Range { source, start, end: Some((next.file, next.packet)) });
            }
            bytes += size;
            scan.step(self.traces);
        }
        (self.source, self.scan) = (source + 1, None);
        Some(Range { source, start, end: None })
    }
}

/// Ranges in their order, and what was found in them.
type Found<F> = Vec<(Range, Option<Part<F>>)>;

impl TraceSet {
    /// Reads all streams on so many processors, range by range, before anything was read. What was found comes in the
    /// order of streams; losses, damages and disorders are taken over.
    pub(super) fn read_ranges<F: Send>(&mut self, threads: usize, read: &Read<'_, F>) -> Vec<Part<F>> {
        let found = if threads > 1 { self.find_in_ranges(threads, read) } else { Vec::new() };
        let mut found = found.into_iter().peekable();
        let mut all = Vec::new();
        for source in 0..self.sources.len() {
            let ranges = std::iter::from_fn(|| found.next_if(|(range, _)| range.source == source)).collect();
            let mut parts = self.join_ranges(source, ranges, read);
            for part in &mut parts {
                self.losses.append(&mut part.losses);
                self.damages.append(&mut part.damages);
                if let Some((disorder, source)) = part.disorder.take().zip(self.sources.get_mut(source)) {
                    disorder.add_to(&mut source.disorder);
                }
            }
            all.append(&mut parts);
        }
        self.sort_findings();
        all
    }

    fn find_in_ranges<F: Send>(&self, threads: usize, read: &Read<'_, F>) -> Found<F> {
        let size = (self.size() / (threads as u64 * OF_A_THREAD)).max(LEAST);
        let ranges = Ranges { traces: &self.traces, sources: &self.sources, source: 0, scan: None, size };
        let queue = Mutex::new((ranges, Found::new()));
        let lock = || queue.lock().unwrap_or_else(PoisonError::into_inner);
        let take = || {
            let (ranges, found) = &mut *lock();
            let range = ranges.next()?;
            found.push((range.clone(), None));
            Some((found.len() - 1, range))
        };
        let work = || {
            while let Some((number, range)) = take() {
                let part = self.read_range(&range, None, read);
                if let Some((_, place)) = lock().1.get_mut(number) {
                    *place = Some(part);
                }
            }
        };
        thread::scope(|scope| {
            (1..threads).for_each(|_| drop(scope.spawn(work)));
            work();
        });
        queue.into_inner().unwrap_or_else(PoisonError::into_inner).1
    }

    /// Puts the ranges of a source together; reads what has to be read again, and what was not read at all.
    fn join_ranges<F>(&self, source: usize, ranges: Found<F>, read: &Read<'_, F>) -> Vec<Part<F>> {
        let damages = |(_, part): &(_, Option<Part<F>>)| part.as_ref().map_or(0, |part| part.damages.len());
        // How much damage is too much can be told only by who reads all of it.
        let is_sound = ranges.iter().map(damages).sum::<usize>() <= MAX_DAMAGES as usize / 2;
        if !is_sound || ranges.is_empty() {
            let all = Range { source, start: Start::default(), end: None };
            return vec![self.read_range(&all, None, read)];
        }
        let (mut start, mut order): (Start, Option<Order>) = (Start::default(), None);
        let mut joined = Vec::with_capacity(ranges.len());
        for (range, part) in ranges {
            if range.end.is_some_and(|end| end <= start.place()) {
                continue;
            }
            let part = match part.filter(|part| range.start == start && part.goes_on(order)) {
                Some(part) => part,
                None => self.read_range(&Range { start, ..range }, order, read),
            };
            start = part.end;
            order = match part.runs.last() {
                Some(run) => Some(run.order()),
                None => order.filter(|_| part.damages.is_empty()),
            };
            joined.push(part);
        }
        joined
    }

    /// Reads a range behind events with this order.
    fn read_range<F>(&self, range: &Range, order: Option<Order>, read: &Read<'_, F>) -> Part<F> {
        let mut set = self.part(Vec::new());
        if let Some(of) = self.sources.get(range.source) {
            let mut source = Source::new(of.files.clone());
            source.limit = range.end;
            if range.start != Start::default() {
                source.take_up(&range.start, (&self.traces, self.window), &mut set.damages);
            }
            set.sources.push(source);
        }
        let (found, runs) = read(&mut set, order);
        let source = set.sources.pop();
        let end = source.as_ref().and_then(|source| {
            let (file, packet) = source.end?;
            Some(Start { file, packet, before: source.before })
        });
        Part {
            found,
            runs,
            losses: set.losses,
            damages: set.damages,
            disorder: source.and_then(|source| source.disorder),
            end: end.unwrap_or_default(),
        }
    }
}

impl<F> Part<F> {
    /// Whether the same would be found behind events with this order.
    fn goes_on(&self, order: Option<Order>) -> bool {
        let Some((order, first)) = order.zip(self.runs.first()) else { return true };
        (order.trace, order.stream) != (first.trace, first.stream)
            // Behind damage, no order is known.
            || self.damages.is_empty() && first.least.is_some_and(|least| least >= order.latest)
    }
}
