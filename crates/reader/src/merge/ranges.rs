//! Reads streams in ranges of packets, in parallel and in no order.
//!
//! ```text
//! source 0   │ packet │ packet │ packet │ packet │ packet │
//! ranges     └── 0 ────────────┘── 1 ────────────┘── 2 ───┘
//! source 1   │ packet │ packet │
//! ranges     └── 3 ────────────┘
//! ```
//!
//! Packets are independent with two exceptions. The number of events lost before a packet follows
//! from the counters of its predecessor; these are known, because headers are read to find the
//! ranges. Whether time goes back depends on the latest time before the packet; this is checked
//! when ranges are joined.
//!
//! A range is read again if corruption moved its beginning away from the end of its predecessor, or
//! if it begins before the latest time. So the result is the same with any number of threads.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::source::{Place, Source};
use super::tally::{Order, Run};
use super::windows::{Scan, Start};
use super::{Corruption, Loss, TimestampRegression, TraceSet};
use crate::discover::Trace;
use crate::file::MAX_CORRUPTIONS;

/// Minimum size of a range in bytes, if the stream is that large.
const MIN_RANGE_BYTES: u64 = if cfg!(test) { 4 << 10 } else { 1 << 20 };
/// Approximate number of ranges for each thread. A thread that finishes first waits for the others
/// at most for the time of one range.
const RANGES_PER_THREAD: u64 = 32;

/// Consecutive packets of a stream.
#[derive(Clone)]
struct Range {
    source: usize,
    start: Start,
    /// Beginning of the next range; `None` for the last range of a stream.
    end: Option<Place>,
}

/// Result of reading a range.
pub(super) struct Part<F> {
    pub found: F,
    /// Counted events, if the order of their times matters.
    pub runs: Vec<Run>,
    losses: Vec<Loss>,
    corruptions: Vec<Corruption>,
    regression: Option<TimestampRegression>,
    /// Final position of the reader.
    end: Start,
}

/// Function that reads a set of one stream, or a range of one. It gets the order state of the
/// events before.
pub(super) type Read<'r, F> = dyn Fn(&mut TraceSet, Option<Order>) -> (F, Vec<Run>) + Sync + 'r;

/// Iterator that finds ranges by packet headers.
struct Ranges<'t> {
    traces: &'t Arc<[Trace]>,
    sources: &'t [Source],
    /// Source of the next range.
    source: usize,
    /// Position of the next range, if ranges of this source were found.
    scan: Option<Scan>,
    /// Size of a range in bytes.
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
        // Bytes before the first intact packet belong to the first range.
        let start = if is_first { Start::default() } else { scan.peek()?.0 };
        let mut bytes = 0;
        while let Some((next, size)) = scan.peek() {
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

/// Ranges in their order, with their results.
type Found<F> = Vec<(Range, Option<Part<F>>)>;

impl TraceSet {
    /// Reads all streams on several threads, range by range; nothing may have been read before.
    /// Results are returned in the order of streams. Losses, corruptions and timestamp regressions
    /// are added to the set.
    pub(super) fn read_ranges<F: Send>(&mut self, threads: usize, read: &Read<'_, F>) -> Vec<Part<F>> {
        let found = if threads > 1 { self.find_in_ranges(threads, read) } else { Vec::new() };
        let mut found = found.into_iter().peekable();
        let mut all = Vec::new();
        for source in 0..self.sources.len() {
            let ranges = std::iter::from_fn(|| found.next_if(|(range, _)| range.source == source)).collect();
            let mut parts = self.join_ranges(source, ranges, read);
            for part in &mut parts {
                self.losses.append(&mut part.losses);
                self.corruptions.append(&mut part.corruptions);
                if let Some((regression, source)) = part.regression.take().zip(self.sources.get_mut(source)) {
                    regression.add_to(&mut source.regression);
                }
            }
            all.append(&mut parts);
        }
        self.sort_findings();
        all
    }

    fn find_in_ranges<F: Send>(&self, threads: usize, read: &Read<'_, F>) -> Found<F> {
        let size = (self.size() / (threads as u64 * RANGES_PER_THREAD)).max(MIN_RANGE_BYTES);
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

    /// Joins the ranges of a source. Reads ranges again where necessary, and ranges that were not
    /// read.
    fn join_ranges<F>(&self, source: usize, ranges: Found<F>, read: &Read<'_, F>) -> Vec<Part<F>> {
        let corruptions =
            |(_, part): &(_, Option<Part<F>>)| part.as_ref().map_or(0, |part| part.corruptions.len());
        // Only a single pass over the whole stream can decide that there are too many corruptions.
        let is_sound = ranges.iter().map(corruptions).sum::<usize>() <= MAX_CORRUPTIONS as usize / 2;
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
                None => order.filter(|_| part.corruptions.is_empty()),
            };
            joined.push(part);
        }
        joined
    }

    /// Reads a range behind events with this order state.
    fn read_range<F>(&self, range: &Range, order: Option<Order>, read: &Read<'_, F>) -> Part<F> {
        let mut set = self.part(Vec::new());
        if let Some(of) = self.sources.get(range.source) {
            let mut source = Source::new(of.files.clone());
            source.limit = range.end;
            if range.start != Start::default() {
                source.take_up(&range.start, (&self.traces, self.window), &mut set.corruptions);
            }
            set.sources.push(source);
        }
        let (found, runs) = read(&mut set, order);
        let source = set.sources.pop();
        let end = source.as_ref().and_then(|source| {
            let (file, packet) = source.end?;
            Some(Start { file, packet, before: source.before })
        });
        // The rest of a file that cannot be read is skipped.
        let skipped =
            range.end.map_or(Start::default(), |(file, packet)| Start { file, packet, before: None });
        Part {
            found,
            runs,
            losses: set.losses,
            corruptions: set.corruptions,
            regression: source.and_then(|source| source.regression),
            end: end.unwrap_or(skipped),
        }
    }
}

impl<F> Part<F> {
    /// Whether the result would be the same behind events with this order state.
    fn goes_on(&self, order: Option<Order>) -> bool {
        let Some((order, first)) = order.zip(self.runs.first()) else { return true };
        (order.trace, order.stream) != (first.trace, first.stream)
            // Behind corruption, the order is unknown.
            || self.corruptions.is_empty() && first.least.is_some_and(|least| least >= order.latest)
    }
}
