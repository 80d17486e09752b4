//! Thread that derives states from decoded events.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};

use tompion_analysis::state::{Engine, Instant, Interval, Visitor};
use tompion_reader::{AddressNames, Loss, LossKind, TraceSet};

use super::annotate::{Annotator, Occurrence};
use super::decode::{DecodedBatch, EventDecoder, EventRef, Step};
use super::{BATCH, Outline};
use crate::PartRows;
use crate::apply::Finding;
use crate::foreground_gate::ForegroundGate;
use crate::lane::{RATIO, Widths};

/// Number of events between two reports of the progress.
const PROGRESS_INTERVAL: u64 = 1 << 14;
/// Bytes below which an event is small: its density takes a large share of the index.
const SMALL_EVENT_BYTES: u64 = 20;
/// Minimum number of small events that a density cell counts, unless it is as wide as the cells of
/// the next level.
const MIN_SMALL_EVENTS: u64 = 16;

/// Pipeline from decoded events to batches of findings.
pub struct IndexPipeline<'t> {
    outline: &'t Outline,
    /// Files of the streams with the index of their trace.
    streams: Vec<(usize, Vec<std::path::PathBuf>)>,
    annotator: Annotator,
    gate: Arc<ForegroundGate>,
    batch: Batch,
    /// Open density cell of each channel.
    cells: Vec<DensityCell>,
    /// Width of these cells in nanoseconds.
    cell: i64,
    /// Number of these cells in a cell of the next level.
    ratio: i64,
    /// Number of events up to which cells are joined within a cell of the next level.
    min_events: u64,
    /// Current part, its first row, and its events by class.
    part: usize,
    first: u64,
    counts: Vec<u64>,
    rows: u64,
    now: i64,
    /// Events, first and last time of each trace.
    bounds: Vec<(u64, Option<(i64, i64)>)>,
}

/// Events of a channel that are counted together.
#[derive(Clone, Copy, Default)]
struct DensityCell {
    number: i64,
    first: i64,
    last: i64,
    count: u64,
}

impl DensityCell {
    /// Whether events of another cell are counted here too: in the same cell of the next level,
    /// which has `ratio` of these, up to a minimum number of events.
    fn is_joined(&self, number: i64, ratio: i64, min_events: u64) -> bool {
        self.count < min_events && self.number.div_euclid(ratio) == number.div_euclid(ratio)
    }
}

/// Findings that are sent together.
struct Batch {
    findings: Vec<Finding>,
    sender: SyncSender<Vec<Finding>>,
    is_over: bool,
}

impl Batch {
    fn push(&mut self, finding: Finding) {
        self.findings.push(finding);
        if self.findings.len() >= BATCH {
            self.send();
        }
    }

    fn send(&mut self) {
        let batch = mem::replace(&mut self.findings, Vec::with_capacity(BATCH));
        // The receiver is gone if the index could not be written.
        self.is_over |= self.sender.send(batch).is_err();
    }
}

impl Visitor for Batch {
    fn interval(&mut self, interval: &Interval) {
        self.push(Finding::Interval(interval.clone()));
    }

    fn instant(&mut self, instant: &Instant) {
        self.push(Finding::Instant(instant.clone()));
    }
}

impl<'t> IndexPipeline<'t> {
    /// Makes a pipeline for unread traces.
    pub fn new(
        traces: &TraceSet,
        (outline, annotator, gate): (&'t Outline, Annotator, Arc<ForegroundGate>),
        sender: SyncSender<Vec<Finding>>,
    ) -> Self {
        let count = annotator.classes.count();
        let cell = Widths::new(outline.duration).0.first().copied().unwrap_or(1);
        Self {
            outline,
            streams: traces.streams(),
            annotator,
            gate,
            batch: Batch { findings: Vec::with_capacity(BATCH), sender, is_over: false },
            cells: vec![DensityCell::default(); outline.channels.len()],
            cell: (cell / RATIO).max(1),
            ratio: cell.min(RATIO),
            min_events: 1,
            part: 0,
            first: 0,
            counts: vec![0; count],
            rows: 0,
            now: i64::MIN,
            bounds: vec![(0, None); traces.traces().len()],
        }
    }

    /// Reads all events with a fresh engine.
    pub fn run(mut self, traces: &mut TraceSet, mut engine: Engine, stop: &AtomicBool) {
        let names = AddressNames::read(traces).map(|names| Arc::new(Mutex::new(names)));
        let (facts_of, classes) = (engine.fact_extractor().clone(), self.annotator.classes.clone());
        let gate = self.gate.clone();
        let new =
            || EventDecoder::new(facts_of.clone(), classes.clone(), names.clone()).with_gate(gate.clone());
        traces.collect(&new, &mut |found| {
            self.gate.yield_to_requests();
            self.take_batch(found, &mut engine);
            !self.batch.is_over && !stop.load(Ordering::Relaxed)
        });
        if self.batch.is_over || stop.load(Ordering::Relaxed) {
            return;
        }
        engine.finish(&mut self.batch);
        for channel in 0..self.cells.len() {
            self.end_cell(channel);
        }
        self.end_part();
        self.report_progress();
        self.batch.send();
    }

    /// Processes a batch of decoded events.
    fn take_batch(&mut self, found: DecodedBatch, engine: &mut Engine) {
        found.each(|facts, step| {
            let decoded = match step {
                Step::Loss(loss) => return self.loss(&loss, engine),
                Step::Event(decoded) => decoded,
            };
            let fact = decoded.fact;
            let time = fact.time().unwrap_or(self.now.max(self.outline.base));
            let channel = self.count(decoded.event, time);
            if let Some(count) = decoded.event.class.and_then(|class| self.counts.get_mut(class as usize)) {
                *count += 1;
            }
            let time = time.saturating_sub(self.outline.base);
            self.annotator
                .annotate(decoded, Occurrence { time, channel }, &mut |finding| self.batch.push(finding));
            engine.fact(facts, fact, &mut self.batch);
            self.rows += 1;
            if self.rows % PROGRESS_INTERVAL == 0 {
                self.report_progress();
            }
        });
    }

    /// Reports the progress.
    fn report_progress(&mut self) {
        let gone = self.now.saturating_sub(self.outline.base) as f64 / self.outline.duration.max(1) as f64;
        self.batch.push(Finding::Progress(gone, self.bounds.clone()));
        self.batch.send();
    }

    /// Counts an event; returns its channel.
    fn count(&mut self, event: &EventRef, time: i64) -> u32 {
        self.now = self.now.max(time);
        while self.outline.parts.begin(self.part + 1).is_some_and(|begin| self.now >= begin) {
            self.end_part();
        }
        let time = time.saturating_sub(self.outline.base);
        if let Some((events, bounds)) = self.bounds.get_mut(event.trace as usize) {
            *events += 1;
            let (first, last) = bounds.unwrap_or((time, time));
            *bounds = Some((first.min(time), last.max(time)));
        }
        let channel = self.outline.channel_of.get(event.source as usize).copied().unwrap_or(0);
        self.density(channel, time);
        channel
    }

    fn density(&mut self, channel: u32, time: i64) {
        let Some(cell) = self.cells.get_mut(channel as usize) else { return };
        let number = time.div_euclid(self.cell);
        if cell.number != number && !cell.is_joined(number, self.ratio, self.min_events) {
            self.end_cell(channel as usize);
        }
        if let Some(cell) = self.cells.get_mut(channel as usize) {
            if cell.count == 0 {
                *cell = DensityCell { number, first: time, last: time, count: 0 };
            }
            cell.first = cell.first.min(time);
            cell.last = cell.last.max(time);
            cell.count += 1;
        }
    }

    fn end_cell(&mut self, channel: usize) {
        let Some(cell) = self.cells.get_mut(channel) else { return };
        let DensityCell { first, last, count, .. } = mem::take(cell);
        if count > 0 {
            self.batch.push(Finding::Density(channel as u32, (first, last), count));
        }
    }

    fn loss(&mut self, loss: &Loss, engine: &mut Engine) {
        engine.loss(loss);
        let is_it = |(_, paths): &(usize, Vec<std::path::PathBuf>)| paths.contains(&loss.path);
        let Some(source) = self.streams.iter().position(is_it) else { return };
        let channel = self.outline.channel_of.get(source).copied().unwrap_or(0);
        let (from, to) = loss.between;
        let base = self.outline.base;
        let to = to.or(from).unwrap_or(base);
        let from = from.unwrap_or(to).min(to);
        let times = (from.saturating_sub(base), to.saturating_sub(base));
        self.batch.push(match loss.kind {
            LossKind::Packets => Finding::Gap(channel, loss.trace as u32, times, loss.count),
            _ => Finding::Lost(channel, times, loss.count),
        });
    }

    fn end_part(&mut self) {
        let counts = self.counts.iter_mut().enumerate().filter(|(_, count)| **count > 0);
        let counts = counts.map(|(class, count)| (class as u32, mem::take(count))).collect();
        self.batch.push(Finding::Part(self.part, PartRows { first: self.first, counts }));
        let rows = self.rows - self.first;
        let is_small = rows.saturating_mul(SMALL_EVENT_BYTES) > self.outline.part_bytes;
        self.min_events = if is_small { MIN_SMALL_EVENTS } else { 1 };
        self.part += 1;
        self.first = self.rows;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_joined_within_a_cell_of_the_next_level() {
        let is_joined = |number, other, ratio| {
            DensityCell { number, count: 1, ..Default::default() }.is_joined(other, ratio, MIN_SMALL_EVENTS)
        };
        assert!(is_joined(8, 15, RATIO) && is_joined(-8, -1, RATIO));
        assert!(!is_joined(7, 8, RATIO), "they are in two cells");
        assert!(!is_joined(-1, 1, RATIO), "zero is the begin of a cell");
        assert!(!is_joined(0, 1, 1), "the next level's cells are as narrow");
        let full = DensityCell { count: MIN_SMALL_EVENTS, ..Default::default() };
        assert!(!full.is_joined(1, RATIO, MIN_SMALL_EVENTS));
    }
}
