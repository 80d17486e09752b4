//! Prefetch of visible parts of a trace before the indexer reaches them.
//!
//! Indexing runs from the trace's begin to its end, which takes a minute for a hundred million
//! events. So each requested window becomes a [`ViewportRequest`]. If it spans few parts they are
//! read whole, else the first events of parts spread evenly over it, at increasing density.
//!
//! A part is decoded as by the indexer, but by an engine that has seen nothing before. So earlier
//! states stay unknown, and spans that began earlier are missing, so that others may stand too
//! high.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tompion_analysis::state::{self, Engine, Happening, Interval, State, Visitor};
use tompion_reader::{Event, EventCollector, Loss, Parts, Selection};

use super::annotate::{Annotator, Occurrence};
use super::decode::{EventDecoder, Step};
use super::{BATCH, Outline};
use crate::Shared;
use crate::apply::{Applier, Finding};
use crate::entry::Entry;
use crate::foreground_gate::ForegroundGate;
use crate::preview::{Preview, PreviewCell, PreviewRange};

/// Maximum number of samples of the whole trace, and of a requested window.
const OVERVIEW_SAMPLES: usize = 256;
const WINDOW_SAMPLES: usize = 128;
/// Factor by which the first samples of a window are farther apart than the last.
const COARSEST_STEP: usize = 64;
/// Windows of at most this many parts are read whole, if they are at most this share of the trace.
const MAX_WHOLE_PARTS: usize = 8;
const SMALL_SHARE: usize = 8;
/// Number of chunks of a part; windows shorter than half a part are read in chunks.
const CHUNKS_PER_PART: i64 = 16;
/// Events in a sample. Of few parts, several places of each are sampled, so that the trace has at
/// least `MIN_SAMPLES`; the events of all of them together stay the same.
const SAMPLE_EVENTS: usize = 4096;
const MIN_SAMPLES: usize = 64;
const MAX_SAMPLES_PER_PART: usize = 16;
/// Maximum number of requests, and of those left when previews are evicted.
const MAX_REQUESTS: usize = 8;
const MAX_REQUESTS_LOW_MEMORY: usize = 3;
/// No sample stands for more than this share of the trace.
const MAX_SAMPLE_SHARE: i64 = 8;
/// Maximum bytes of all previews.
const MAX_PREVIEW_BYTES: usize = 96 << 20;
/// Minimum bytes of a trace that is prefetched: smaller ones are indexed as soon as the page is
/// loaded.
const PREFETCH_MIN_BYTES: u64 = 10_000_000;
/// Bytes of decoded events at which states are derived.
const DECODED_BATCH_BYTES: usize = 1 << 20;
/// Time that the index waits for the first previews and their page, a request for chunks of its
/// window, and a request for one point.
const FIRST_PREVIEW_TIMEOUT: Duration = Duration::from_secs(2);
const CHUNK_TIMEOUT: Duration = Duration::from_millis(30);
const POINT_TIMEOUT: Duration = Duration::from_millis(500);

/// Prefetcher of requested windows.
pub struct Prefetcher {
    parts: Arc<Parts>,
    channel_of: Vec<u32>,
    /// Base and duration of the traces.
    range: (i64, i64),
    engine: Engine,
    annotator: Annotator,
    applier: Applier,
    /// Number of samples per part.
    places: usize,
    state: Mutex<PrefetchState>,
    /// Number of requests that wait for chunks.
    chunk_waiters: AtomicUsize,
    /// Signals new work and completed work.
    changed: Condvar,
}

/// Previews and open requests.
#[derive(Default)]
struct PrefetchState {
    /// Samples by their begin.
    samples: BTreeMap<i64, Arc<Preview>>,
    /// Completely read ranges by their begin.
    whole: BTreeMap<i64, Arc<Preview>>,
    /// Jobs in progress.
    reading: BTreeSet<ReadJob>,
    /// Requests, the newest first.
    requests: VecDeque<ViewportRequest>,
    bytes: usize,
    /// Number of previews so far.
    count: u64,
    /// Counts requests, for eviction.
    stamp: u64,
    is_stopped: bool,
}

/// Requested window from the base. Where it has many parts, one of `step` parts is sampled. The
/// step stays the same when the index has passed some parts: otherwise ever more would be read.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ViewportRequest {
    from: i64,
    to: i64,
    step: usize,
}

/// Part of the trace to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ReadJob {
    /// Samples of a part.
    Sample(usize),
    /// Whole part.
    Part(usize),
    /// Chunk of a part.
    Chunk(usize, i64),
}

impl Prefetcher {
    /// Makes a prefetcher; `None` for traces that are indexed as fast.
    pub fn new(
        outline: &Outline,
        (engine, annotator, applier): (Engine, Annotator, Applier),
    ) -> Option<Self> {
        if outline.size < PREFETCH_MIN_BYTES {
            return None;
        }
        let parts = outline.parts.clone();
        let places = (MIN_SAMPLES / parts.count()).next_power_of_two().min(MAX_SAMPLES_PER_PART);
        let prefetcher = Self {
            parts,
            channel_of: outline.channel_of.clone(),
            range: outline.range(),
            engine,
            annotator,
            applier,
            places,
            state: Mutex::default(),
            chunk_waiters: AtomicUsize::new(0),
            changed: Condvar::new(),
        };
        let whole = prefetcher.viewport_request((0, prefetcher.range.1), OVERVIEW_SAMPLES);
        prefetcher.state().add_request(whole);
        Some(prefetcher)
    }

    /// Makes the request for a window with a number of samples.
    fn viewport_request(&self, (from, to): (i64, i64), cells: usize) -> ViewportRequest {
        let count = self.at(to).saturating_sub(self.at(from)) + 1;
        ViewportRequest { from, to, step: count.div_ceil(cells).next_power_of_two() }
    }

    fn state(&self) -> MutexGuard<'_, PrefetchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a condition holds, or for the timeout.
    fn wait_until(&self, timeout: Duration, is_so: impl Fn(&PrefetchState) -> bool) {
        let begun = Instant::now();
        let mut state = self.state();
        while !state.is_stopped && !is_so(&state) {
            let Some(left) = timeout.checked_sub(begun.elapsed()) else { return };
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Reads requested windows until [`Self::end`], and yields to requests. To be called by some
    /// threads.
    pub fn run(&self, index: &Shared, gate: &ForegroundGate) {
        while let Some(job) = self.next() {
            let outcome = self.read_job(job, (index, gate));
            let mut state = self.state();
            state.reading.remove(&job);
            match outcome {
                ReadOutcome::Previews(previews) => previews.into_iter().for_each(|it| state.add(job, it)),
                // An unreadable part must not be tried again and again.
                ReadOutcome::Nothing => state.add(job, Preview::new(self.times(job), Vec::new())),
                ReadOutcome::Interrupted => {}
            }
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Whether a request waits for chunks.
    fn is_chunk_awaited(&self) -> bool {
        self.chunk_waiters.load(Ordering::Relaxed) > 0
    }

    /// Waits for the next job; `None` after the end.
    fn next(&self) -> Option<ReadJob> {
        let mut state = self.state();
        loop {
            if state.is_stopped {
                return None;
            }
            let is_now = |job: &ReadJob| matches!(job, ReadJob::Chunk(..)) || !self.is_chunk_awaited();
            let mut jobs = state.requests.iter().filter_map(|request| self.next_job(&state, *request));
            if let Some(job) = jobs.find(is_now) {
                state.reading.insert(job);
                return Some(job);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits for the first request's previews and for the page that shows them, up to a timeout.
    pub fn wait(&self, gate: &ForegroundGate) {
        let until = Instant::now() + FIRST_PREVIEW_TIMEOUT;
        let is_done =
            |request: &ViewportRequest, state: &PrefetchState| self.next_job(state, *request).is_none();
        self.wait_until(FIRST_PREVIEW_TIMEOUT, |state| {
            state.reading.is_empty() && state.requests.iter().all(|request| is_done(request, state))
        });
        gate.wait_for_page(until);
    }

    /// Ends the prefetching: the index is complete.
    pub fn end(&self) {
        *self.state() = PrefetchState { is_stopped: true, ..PrefetchState::default() };
        self.changed.notify_all();
    }

    /// Returns the number of previews so far.
    pub fn count(&self) -> u64 {
        self.state().count
    }

    /// Returns the completely read ranges from the base, in order.
    pub fn whole(&self) -> Vec<(i64, i64)> {
        let mut ranges: Vec<(i64, i64)> = Vec::new();
        for preview in self.state().whole.values() {
            match ranges.last_mut() {
                Some((_, to)) if *to >= preview.from => *to = preview.to.max(*to),
                _ => ranges.push((preview.from, preview.to)),
            }
        }
        ranges
    }

    /// Returns the previews of a window (from the base) behind the indexed part. If the user looks
    /// at it, more is read.
    pub fn preview(&self, (from, to): (i64, i64), known: i64, is_looked_at: bool) -> PreviewRange {
        let (from, to) = (from.max(known), to.min(self.range.1));
        if from > to {
            return PreviewRange::default();
        }
        if is_looked_at {
            let request = self.viewport_request((from, to), WINDOW_SAMPLES);
            self.state().add_request(request);
            self.changed.notify_all();
            if self.is_small(request) {
                self.wait_for_chunks((from, to), CHUNK_TIMEOUT);
            }
        }
        let mut state = self.state();
        state.drop_before(known);
        state.stamp += 1;
        PreviewRange { known, cells: self.cells(&state, (from, to)) }
    }

    /// Reads the chunk at a time (from the base), up to a timeout.
    pub fn read_at(&self, time: i64) {
        let request = self.viewport_request((time, time), WINDOW_SAMPLES);
        self.state().add_request(request);
        self.changed.notify_all();
        self.wait_for_chunks((time, time.saturating_add(1)), POINT_TIMEOUT);
    }

    /// Waits for chunks, which precede all other work, up to a timeout.
    fn wait_for_chunks(&self, window: (i64, i64), timeout: Duration) {
        self.chunk_waiters.fetch_add(1, Ordering::Relaxed);
        self.wait_until(timeout, |state| state.has(window));
        let state = self.state();
        self.chunk_waiters.fetch_sub(1, Ordering::Relaxed);
        drop(state);
        self.changed.notify_all();
    }

    fn at(&self, time: i64) -> usize {
        self.parts.at(time.saturating_add(self.range.0))
    }

    /// Returns the range of a job, from the base.
    fn times(&self, job: ReadJob) -> (i64, i64) {
        let part = job.part();
        let begin = |part: usize| self.parts.begin(part).map(|begin| begin.saturating_sub(self.range.0));
        let from = begin(part).unwrap_or(0);
        // A part whose last packet begins after all ends is empty.
        let to = begin(part + 1).unwrap_or(self.range.1).max(from);
        let ReadJob::Chunk(_, chunk) = job else { return (from, to) };
        let begin = |chunk: i64| border((from, to), (chunk, CHUNKS_PER_PART));
        (begin(chunk), begin(chunk + 1))
    }

    /// Whether a request is for some chunks of parts.
    fn is_small(&self, ViewportRequest { from, to, .. }: ViewportRequest) -> bool {
        let (first, last) = (self.at(from), self.at(to));
        let length = self.times(ReadJob::Part(last)).1.saturating_sub(self.times(ReadJob::Part(first)).0);
        last - first < 2 && to.saturating_sub(from) < length / 2
    }

    /// Returns the next job of a request.
    fn next_job(&self, state: &PrefetchState, request: ViewportRequest) -> Option<ReadJob> {
        let (first, last) = (self.at(request.from), self.at(request.to));
        let count = last.checked_sub(first)? + 1;
        let is_missing = |job: &ReadJob| !state.reading.contains(job) && !state.has(self.times(*job));
        if self.is_small(request) {
            let chunks = (first..=last)
                .flat_map(|part| (0..CHUNKS_PER_PART).map(move |chunk| ReadJob::Chunk(part, chunk)));
            let is_in_sight = |job: &ReadJob| {
                let (from, to) = self.times(*job);
                from <= request.to && to > request.from
            };
            return chunks.filter(is_in_sight).find(is_missing);
        }
        if count <= MAX_WHOLE_PARTS.min(self.parts.count() / SMALL_SHARE) {
            // From the middle on: that is where users look.
            let mut parts: Vec<usize> = (first..=last).collect();
            parts.sort_by_key(|part| (2 * part).abs_diff(first + last));
            return parts.into_iter().map(ReadJob::Part).find(is_missing);
        }
        let mut step = request.step.saturating_mul(COARSEST_STEP);
        while step >= request.step {
            // Each step's parts include those of the step before.
            let parts = (first.next_multiple_of(step)..=last).step_by(step).map(ReadJob::Sample);
            let mut left = parts.filter(|job| !state.has_sample(self.times(*job)));
            if let Some(job) = left.find(|job| !state.reading.contains(job)) {
                return Some(job);
            }
            step /= 2;
        }
        None
    }

    /// Returns the previews of a window in time order.
    fn cells(&self, state: &PrefetchState, (from, to): (i64, i64)) -> Vec<PreviewCell> {
        let before = state.whole.range(..=from).next_back().map_or(from, |(begin, _)| *begin);
        let whole: Vec<&Arc<Preview>> = state.whole.range(before..=to).map(|(_, preview)| preview).collect();
        let cell = |preview: &Arc<Preview>, (begin, end): (i64, i64), is_exact: bool| {
            preview.use_at(state.stamp);
            PreviewCell { begin, end, is_exact, preview: preview.clone() }
        };
        let exact = whole.iter().map(|preview| cell(preview, (preview.from, preview.to), true));
        let mut cells: Vec<PreviewCell> = exact.collect();
        let before = state.samples.range(..=from).next_back().map_or(from, |(begin, _)| *begin);
        let mut samples = state.samples.range(before..).map(|(_, sample)| sample).peekable();
        while let Some(sample) = samples.next().filter(|sample| sample.from <= to) {
            let reach = samples.peek().map_or(self.range.1, |next| next.from);
            let reach =
                reach.min(sample.from.saturating_add(self.range.1 / MAX_SAMPLE_SHARE)).max(sample.from);
            // A sample that is most of its cell is shown as it is.
            let is_exact = (sample.to - sample.from).saturating_mul(2) >= reach.saturating_sub(sample.from);
            let end = if is_exact { sample.to.min(reach) } else { reach };
            let mut at = sample.from;
            for preview in whole.iter().filter(|preview| preview.from < end && preview.to > sample.from) {
                if preview.from > at {
                    cells.push(cell(sample, (at, preview.from), is_exact));
                }
                at = at.max(preview.to);
            }
            if at < end {
                cells.push(cell(sample, (at, end), is_exact));
            }
        }
        cells.sort_by_key(|cell| cell.begin);
        cells
    }

    /// Reads the range of a job.
    fn read_job(&self, job: ReadJob, (index, gate): (&Shared, &ForegroundGate)) -> ReadOutcome {
        let (base, _) = self.range;
        let (from, to) = self.times(job);
        let (mut places, mut events, mut selection) = (1, usize::MAX, Selection::default());
        match job {
            ReadJob::Sample(_) => (places, events) = (self.places, SAMPLE_EVENTS / self.places),
            ReadJob::Part(_) => {}
            // The states at its begin are derived from as much before it.
            ReadJob::Chunk(..) => {
                selection.from = Some(base.saturating_add(from.saturating_sub(to - from)));
                selection.to = Some(base.saturating_add(to));
            }
        }
        let Some(mut traces) = self.parts.read(job.part(), selection) else { return ReadOutcome::Nothing };
        let mut previews: Vec<Preview> = Vec::new();
        for place in 0..places {
            let begin = border((from, to), (place as i64, places as i64));
            // Places that were read already are skipped.
            let begin = previews.last().map_or(begin, |before| begin.max(before.to));
            let mut builder = PreviewBuilder::new(self);
            let (mut left, mut is_there) = (events, place == 0);
            while left > 0 && traces.step() {
                if !matches!(job, ReadJob::Chunk(..)) {
                    gate.yield_unless(&|| self.is_chunk_awaited());
                    if self.is_chunk_awaited() {
                        return ReadOutcome::Interrupted;
                    }
                }
                let Some(event) = traces.current() else { break };
                is_there |= event.timestamp().is_some_and(|time| time.saturating_sub(base) >= begin);
                if is_there {
                    builder.event(&event, traces.losses());
                    left -= 1;
                }
            }
            let end = if left == 0 { builder.now().clamp(begin, to) } else { to };
            match self.entries(builder.finish(), index) {
                Some(entries) => previews.push(Preview::new((begin, end), entries)),
                None => return ReadOutcome::Nothing,
            }
            if left > 0 {
                break;
            }
        }
        ReadOutcome::Previews(previews)
    }

    /// Converts findings into entries of the index's lanes, which are created if they are missing.
    fn entries(&self, findings: Vec<Finding>, index: &Shared) -> Option<Vec<(u32, Entry)>> {
        let mut applier = self.applier.clone();
        let mut findings = findings.into_iter().peekable();
        let mut entries = Vec::new();
        while findings.peek().is_some() {
            entries = index.write().apply_preview(entries, |index| {
                findings.by_ref().take(BATCH).try_for_each(|finding| applier.apply(index, finding))
            })?;
        }
        Some(entries)
    }
}

/// Returns the begin of one of several equal pieces of a range.
fn border((from, to): (i64, i64), (chunk, chunks): (i64, i64)) -> i64 {
    let length = i128::from(to) - i128::from(from);
    from.saturating_add((length * i128::from(chunk) / i128::from(chunks)) as i64)
}

/// Result of a job.
enum ReadOutcome {
    Previews(Vec<Preview>),
    /// The part can't be read, or the index is complete.
    Nothing,
    /// A more urgent job came in between.
    Interrupted,
}

/// Builder of previews from consecutive events.
struct PreviewBuilder<'s> {
    prefetcher: &'s Prefetcher,
    finder: EventDecoder,
    engine: Engine,
    annotator: Annotator,
    findings: PreviewFindings,
    /// Number of reported losses.
    losses: usize,
}

impl<'s> PreviewBuilder<'s> {
    fn new(prefetcher: &'s Prefetcher) -> Self {
        let (engine, annotator) = (prefetcher.engine.fresh(), prefetcher.annotator.clone());
        let finder = EventDecoder::new(engine.fact_extractor().clone(), annotator.classes.clone(), None);
        Self { prefetcher, finder, engine, annotator, findings: PreviewFindings::default(), losses: 0 }
    }

    fn event(&mut self, event: &Event<'_>, losses: &[Loss]) {
        losses.iter().skip(self.losses).for_each(|loss| self.finder.loss(loss));
        self.losses = losses.len();
        self.finder.event(event);
        if self.finder.size() >= DECODED_BATCH_BYTES {
            self.take();
        }
    }

    fn take(&mut self) {
        let Self { prefetcher, finder, engine, annotator, findings, .. } = self;
        let base = prefetcher.range.0;
        finder.take().each(|facts, step| match step {
            Step::Loss(loss) => engine.loss(&loss),
            Step::Event(decoded) => {
                let fact = decoded.fact;
                let time = fact.time().unwrap_or(base).saturating_sub(base);
                let channel = prefetcher.channel_of.get(decoded.event.source as usize).copied().unwrap_or(0);
                annotator
                    .annotate(decoded, Occurrence { time, channel }, &mut |finding| findings.push(finding));
                engine.fact(facts, fact, findings);
            }
        });
    }

    /// Returns the latest time, from the base.
    fn now(&mut self) -> i64 {
        self.take();
        self.engine.now().map_or(i64::MAX, |now| now.saturating_sub(self.prefetcher.range.0))
    }

    fn finish(mut self) -> Vec<Finding> {
        self.take();
        self.engine.finish(&mut self.findings);
        self.findings.0
    }
}

/// Findings that don't depend on earlier events.
#[derive(Default)]
struct PreviewFindings(Vec<Finding>);

impl PreviewFindings {
    fn push(&mut self, finding: Finding) {
        match finding {
            // An arrow or a deadline needs its other end.
            Finding::Flow(..) | Finding::Job(..) => {}
            finding => self.0.push(finding),
        }
    }
}

impl Visitor for PreviewFindings {
    fn interval(&mut self, interval: &Interval) {
        if !matches!(interval.state, State::Unknown) {
            self.0.push(Finding::Interval(interval.clone()));
        }
    }

    fn instant(&mut self, instant: &state::Instant) {
        if matches!(instant.what, Happening::Named { .. }) {
            self.0.push(Finding::Instant(instant.clone()));
        }
    }
}

impl ReadJob {
    /// Returns the part that the job reads.
    fn part(self) -> usize {
        let (Self::Sample(part) | Self::Part(part) | Self::Chunk(part, _)) = self;
        part
    }
}

impl PrefetchState {
    fn add_request(&mut self, request: ViewportRequest) {
        self.requests.retain(|known| *known != request);
        self.requests.push_front(request);
        self.requests.truncate(MAX_REQUESTS);
    }

    /// Whether a range was read completely.
    fn has(&self, (from, to): (i64, i64)) -> bool {
        let mut at = from;
        while at < to {
            match self.whole.range(..=at).next_back() {
                Some((_, preview)) if preview.to > at => at = preview.to,
                _ => return false,
            }
        }
        true
    }

    /// Whether a range of a part has a sample.
    fn has_sample(&self, (from, to): (i64, i64)) -> bool {
        self.samples.range(from..to.max(from.saturating_add(1))).next().is_some()
    }

    fn add(&mut self, job: ReadJob, preview: Preview) {
        if self.is_stopped {
            return;
        }
        self.count += 1;
        preview.use_at(self.stamp);
        self.bytes += preview.size();
        let (from, to) = (preview.from, preview.to);
        let preview = Arc::new(preview);
        if let ReadJob::Sample(_) = job {
            let before = self.samples.insert(from, preview);
            self.bytes -= before.map_or(0, |before| before.size());
        } else {
            let inside: Vec<i64> =
                self.whole.range(from..to.max(from + 1)).map(|(begin, _)| *begin).collect();
            for begin in inside {
                self.bytes -= self.whole.remove(&begin).map_or(0, |before| before.size());
            }
            self.whole.insert(from, preview);
        }
        if self.bytes > MAX_PREVIEW_BYTES {
            self.evict();
        }
    }

    fn evict(&mut self) {
        // The ranges of older requests would be read again and again.
        self.requests.truncate(MAX_REQUESTS_LOW_MEMORY);
        let mut uses: Vec<u64> =
            self.samples.values().chain(self.whole.values()).map(|it| it.used()).collect();
        uses.sort_unstable();
        let oldest = uses.get(uses.len() / 3).copied().unwrap_or(0);
        self.samples.retain(|_, preview| preview.used() > oldest);
        self.whole.retain(|_, preview| preview.used() > oldest);
        self.bytes = self.samples.values().chain(self.whole.values()).map(|it| it.size()).sum();
    }

    /// Drops everything before a time, up to which the index is complete.
    fn drop_before(&mut self, known: i64) {
        // The last sample also stands for the time behind it.
        let first = self.samples.range(..=known).next_back().map_or(known, |(begin, _)| *begin);
        self.samples = self.samples.split_off(&first);
        self.whole.retain(|_, preview| preview.to > known);
        self.bytes = self.samples.values().chain(self.whole.values()).map(|it| it.size()).sum();
        for request in &mut self.requests {
            request.from = request.from.max(known);
        }
        self.requests.retain(|request| request.from <= request.to);
    }
}
