//! Indexing of a trace in one pass: threads on all CPUs decode events, one derives states in their
//! order, and one adds them to lanes.

mod annotate;
mod classes;
mod decode;
mod pipeline;
mod prefetch;

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use tompion_analysis::state::Engine;
use tompion_ctf::metadata::EnvironmentValue;
use tompion_reader::coverage::Coverage;
use tompion_reader::{Parts, TraceSet};

use super::apply::{Applier, Finding, new_track};
use super::store::Store;
use super::{Index, LaneKind, Shared, TrackKind};
use crate::foreground_gate::ForegroundGate;
use crate::recorded_losses::{self, RecordedLosses};
use annotate::Annotator;
pub use classes::{Classes, is_of_kernel, trace_of_class};
use pipeline::IndexPipeline;
pub use prefetch::Prefetcher;

/// Number of findings in a batch.
const BATCH: usize = 8192;
/// Maximum number of batches in the queue.
const MAX_QUEUED_BATCHES: usize = 4;
/// Minimum bytes of a part.
const PART_BYTES: u64 = 2 << 20;
/// Maximum number of parts.
const MAX_PARTS: u64 = 1 << 13;
/// Number of cells of an outline.
pub const OUTLINE_CELLS: usize = 1024;
/// Maximum duration that packet headers are believed to have, in nanoseconds: some ten years.
const MAX_DURATION_NS: i64 = 1 << 58;

/// Channel of a trace.
#[derive(Clone, Debug)]
pub struct Channel {
    /// Index of the trace.
    pub trace: usize,
    /// Name of the channel.
    pub name: String,
}

impl Channel {
    fn name_of_track(&self, traces: &TraceSet) -> String {
        format!("{}/{}", trace_name(traces, self.trace), self.name)
    }
}

/// Properties of a trace that are known before its events are read.
#[derive(Clone)]
pub struct Outline {
    /// Parts of the trace.
    pub parts: Arc<Parts>,
    /// Bytes of a part.
    pub part_bytes: u64,
    /// Bytes of the trace.
    size: u64,
    /// Channel of each stream.
    channel_of: Vec<u32>,
    channels: Vec<Channel>,
    /// Bytes of each channel in each cell of the outline.
    bytes: Vec<Vec<u32>>,
    coverage: Coverage,
    base: i64,
    duration: i64,
}

impl Outline {
    /// Reads the headers of all packets of unread traces.
    pub fn new(traces: &TraceSet) -> Self {
        let mut size = 0u64;
        let mut packets = Vec::new();
        traces.packets(&mut |packet| {
            size = size.saturating_add(packet.bytes);
            packets.push(*packet);
        });
        let part_bytes = PART_BYTES.max(size / MAX_PARTS);
        let parts = Arc::new(Parts::new(traces, part_bytes));
        let (channel_of, channels) = channels(traces);
        let first = parts.read(0, tompion_reader::Selection::default());
        let first = first.and_then(|mut first| first.next_event().and_then(|event| event.timestamp()));
        let begin = packets.iter().filter_map(|packet| packet.begin).min();
        let base = first.or(begin).unwrap_or(0);
        // Where a packet doesn't state its end, its begin is better than nothing.
        let ends = packets.iter().filter_map(|packet| packet.end.or(packet.begin));
        let end = ends.filter(|end| end.saturating_sub(base) < MAX_DURATION_NS).max().unwrap_or(base);
        let duration = end.saturating_sub(base).max(1);
        let mut bytes = vec![Vec::new(); channels.len()];
        for packet in &packets {
            let Some(begin) = packet.begin else { continue };
            let Some(&channel) = channel_of.get(packet.source) else { continue };
            let Some(bytes) = bytes.get_mut(channel as usize) else { continue };
            bytes.resize(OUTLINE_CELLS, 0);
            spread(
                (begin - base, packet.end.unwrap_or(begin).saturating_sub(base)),
                duration,
                packet.bytes,
                bytes,
            );
        }
        let coverage = Coverage::new(&packets, traces.traces().len());
        Self { parts, part_bytes, size, channel_of, channels, bytes, coverage, base, duration }
    }

    /// Returns the traces whose recordings report overwritten events.
    fn overwriting(traces: &TraceSet, recorded: &RecordedLosses) -> Vec<u32> {
        let is_recorded = |path| recorded.overwritten.iter().any(|(recorded, _)| recorded == path);
        let all = traces.traces().iter().zip(0..);
        all.filter(|(trace, _)| is_recorded(&trace.path)).map(|(_, number)| number).collect()
    }

    /// Returns the name of the channel's track of each stream.
    pub fn channel_tracks(&self, traces: &TraceSet) -> Vec<String> {
        let names: Vec<String> = self.channels.iter().map(|channel| channel.name_of_track(traces)).collect();
        let name = |channel: &u32| names.get(*channel as usize).cloned().unwrap_or_default();
        self.channel_of.iter().map(name).collect()
    }

    /// Returns the trace's begin in nanoseconds since the epoch, and its duration.
    pub fn range(&self) -> (i64, i64) {
        (self.base, self.duration)
    }
}

/// Spreads the bytes of a packet over the cells of its time.
fn spread((begin, end): (i64, i64), duration: i64, size: u64, bytes: &mut [u32]) {
    let part = |time: i64| {
        let part = i128::from(time.clamp(0, duration)) * OUTLINE_CELLS as i128 / i128::from(duration.max(1));
        (part as usize).min(OUTLINE_CELLS - 1)
    };
    let (first, last) = (part(begin), part(end.max(begin)));
    let each = (size / (last - first + 1) as u64).min(u32::MAX.into()) as u32;
    for part in bytes.get_mut(first..=last).unwrap_or_default() {
        *part = part.saturating_add(each.max(1));
    }
}

/// Returns the channel of each stream, and the channels: files of one trace whose names differ only
/// in the number behind `_`.
fn channels(traces: &TraceSet) -> (Vec<u32>, Vec<Channel>) {
    let mut known = HashMap::new();
    let mut channels: Vec<Channel> = Vec::new();
    let channel_of = traces.streams().into_iter().map(|(trace, paths)| {
        let name = paths.first().map(|path| channel_name(path)).unwrap_or_default();
        *known.entry((trace, name.clone())).or_insert_with(|| {
            channels.push(Channel { trace, name });
            (channels.len() - 1) as u32
        })
    });
    (channel_of.collect(), channels)
}

fn channel_name(path: &Path) -> String {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    match name.rsplit_once('_') {
        Some((name, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => name.to_owned(),
        _ => name,
    }
}

/// Returns the name of a trace: its path below the opened folder, or the folder's name.
pub fn trace_name(traces: &TraceSet, trace: usize) -> String {
    let Some(trace) = traces.traces().get(trace) else { return String::new() };
    let below = traces.roots().iter().find_map(|root| trace.path.strip_prefix(root).ok());
    let below = below.filter(|below| !below.as_os_str().is_empty());
    let path = below.map(Path::to_owned).unwrap_or_else(|| trace.path.clone());
    let name = if below.is_some() {
        Some(path.to_string_lossy())
    } else {
        path.file_name().map(|name| name.to_string_lossy())
    };
    name.map(|name| name.into_owned()).unwrap_or_else(|| path.display().to_string())
}

/// Indexer of a trace: [`run`](Self::run) fills the index.
pub struct Indexer {
    traces: TraceSet,
    outline: Outline,
    recorded: RecordedLosses,
    engine: Engine,
    annotator: Annotator,
    applier: Applier,
}

impl Indexer {
    /// Returns an index with what is known before events are read, and the indexer that completes
    /// it. Tracks and lanes keep the numbers of `before`, the index of the traces when they were
    /// shorter.
    pub fn new(
        traces: TraceSet,
        outline: Outline,
        (store, before): (Store, Option<&Index>),
    ) -> (Index, Self) {
        let mut index = Index::new(outline.range(), store);
        if let Some(before) = before {
            index.keep_numbers(before);
        }
        let recorded = recorded_losses::recorded_losses(&traces);
        let mut engine = Engine::new(traces.traces());
        engine.recorded(outline.coverage.recorded().to_vec());
        let overwriting = Outline::overwriting(&traces, &recorded);
        engine.overwritten(outline.coverage.overwritten(&|trace| overwriting.contains(&(trace as u32))));
        let machine = |trace| engine.machine_of(trace).unwrap_or_default();
        let of_traces: Vec<_> = (0..traces.traces().len()).map(machine).collect();
        let machine_of: Vec<u16> = of_traces.iter().map(|machine| machine.0).collect();
        let machines = machines(&traces, &machine_of);
        let mut tracks = Vec::new();
        for (number, channel) in outline.channels.iter().enumerate() {
            let name = index.labels.number(&channel.name_of_track(&traces));
            let machine = machine_of.get(channel.trace).copied().unwrap_or(0);
            let track =
                index.add_track(new_track((TrackKind::Channel, None), (name, machine, channel.trace as i64)));
            if let Some(lane) = index.lane(track, (LaneKind::Density, 0), channel.trace as u32) {
                index.outlines.insert(lane, outline.bytes.get(number).cloned().unwrap_or_default());
            }
            tracks.push(track);
        }
        index.classes = classes::names(&traces);
        index.events = vec![0; traces.traces().len()];
        index.bounds = vec![None; traces.traces().len()];
        index.machines.clone_from(&machine_of);
        let applier = Applier::new(machines, machine_of, tracks).with_overwrites(overwriting);
        let annotator = Annotator::new(Arc::new(Classes::new(&traces)), of_traces);
        (index, Self { traces, outline, recorded, engine, annotator, applier })
    }

    /// Returns a prefetcher; `None` if the index is completed as fast.
    pub fn prefetcher(&self) -> Option<Prefetcher> {
        Prefetcher::new(&self.outline, (self.engine.fresh(), self.annotator.clone(), self.applier.clone()))
    }

    /// Reads the trace and completes the index. It yields to requests, and stops early when `stop`
    /// is set.
    pub fn run(mut self, index: &Shared, stop: &AtomicBool, gate: &Arc<ForegroundGate>) {
        let (sender, receiver) = sync_channel(MAX_QUEUED_BATCHES);
        let applier = &mut self.applier;
        let outline = &self.outline;
        let traces = &mut self.traces;
        let (annotator, engine) = (self.annotator.clone(), self.engine.fresh());
        let result = thread::scope(|scope| {
            let read = move || {
                IndexPipeline::new(traces, (outline, annotator, gate.clone()), sender)
                    .run(traces, engine, stop)
            };
            let watch = scope.spawn(read);
            let result = receive(&receiver, applier, (index, gate));
            // The pipeline ends when the receiver is gone.
            drop(receiver);
            result.and(watch.join().map_err(|_| io::Error::other("the trace's reader failed")))
        });
        self.report_damage(&mut index.write());
        let result =
            result.and_then(|()| if stop.load(Ordering::Relaxed) { Ok(()) } else { finish(index, gate) });
        let mut index = index.write();
        match result {
            _ if stop.load(Ordering::Relaxed) => {}
            Ok(()) => index.progress = 1.0,
            Err(error) => index.error = Some(format!("the index cannot be written: {error}")),
        }
    }

    /// Reports corruption, overwritten and lost events of the traces.
    fn report_damage(&self, index: &mut Index) {
        let recorded = &self.recorded;
        index.damages = self.traces.corruptions().iter().map(ToString::to_string).collect();
        index.disorders = self.traces.timestamp_regressions().map(ToString::to_string).collect();
        index.damages.extend(recorded.damages.iter().cloned());
        for (path, count) in &recorded.overwritten {
            let channel = self.outline.channels.iter().position(|channel| {
                self.traces.traces().get(channel.trace).is_some_and(|trace| trace.path == *path)
            });
            let Some(channel) = channel else { continue };
            let trace = self.outline.channels.get(channel).map_or(0, |channel| channel.trace);
            let history = self.outline.coverage.history(trace);
            // Where there are gaps, too, the number of events in each is unknown.
            let count = if history.between { 0 } else { *count };
            if history.before_first || !history.between {
                self.applier.overwritten(index, channel as u32, count);
            }
        }
        self.count_losses(index, recorded);
    }

    /// Counts losses as recordings report them, or else as packets count them.
    fn count_losses(&self, index: &mut Index, recorded: &RecordedLosses) {
        let mut losses = [recorded.lost, 0, recorded.overwritten.iter().map(|(_, count)| count).sum()];
        for loss in self.traces.losses() {
            let is_recorded = self
                .traces
                .traces()
                .get(loss.trace)
                .is_some_and(|trace| recorded.traces.contains(&trace.path));
            let path = self.traces.traces().get(loss.trace).map(|trace| &trace.path);
            let overwrites = recorded.overwritten.iter().any(|(recorded, _)| Some(recorded) == path);
            let which = match loss.kind {
                tompion_reader::LossKind::Packets if overwrites => continue,
                tompion_reader::LossKind::Packets => 1,
                tompion_reader::LossKind::Events if !is_recorded => 0,
                tompion_reader::LossKind::Events
                | tompion_reader::LossKind::EventsAtMost
                | tompion_reader::LossKind::EventsUnknown => continue,
            };
            if let Some(sum) = losses.get_mut(which) {
                *sum = u64::saturating_add(*sum, loss.count);
            }
        }
        index.losses = losses;
    }
}

fn receive(
    receiver: &Receiver<Vec<Finding>>,
    applier: &mut Applier,
    (index, gate): (&Shared, &ForegroundGate),
) -> io::Result<()> {
    while let Ok(batch) = receiver.recv() {
        gate.yield_to_requests();
        let mut is_left = {
            let mut index = index.write();
            batch.into_iter().try_for_each(|finding| applier.apply(&mut index, finding))?;
            index.is_batch_full()
        };
        // A reader waits for one step of this at most.
        while is_left {
            gate.yield_to_requests();
            is_left = index.write().write_some()?;
        }
    }
    Ok(())
}

/// Writes everything that is left, and yields to requests.
fn finish(index: &Shared, gate: &ForegroundGate) -> io::Result<()> {
    while index.write().finish_some()? {
        gate.yield_to_requests();
    }
    Ok(())
}

/// Returns the name and the kernel trace of each machine.
fn machines(traces: &TraceSet, machine_of: &[u16]) -> Vec<(String, u32)> {
    let mut machines: Vec<(String, u32, bool)> = Vec::new();
    for (number, (trace, &machine)) in traces.traces().iter().zip(machine_of).enumerate() {
        let host = trace.metadata().environment_value("hostname").and_then(EnvironmentValue::as_text);
        let is_kernel = classes::is_of_kernel(trace);
        match machines.get_mut(usize::from(machine)) {
            Some(known) if is_kernel && !known.2 => (known.1, known.2) = (number as u32, true),
            Some(_) => {}
            None => machines.push((host.unwrap_or_default().to_owned(), number as u32, is_kernel)),
        }
    }
    machines.into_iter().map(|(host, kernel, _)| (host, kernel)).collect()
}
