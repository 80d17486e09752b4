//! Open traces with their index, kept up to date while the traces change.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::thread;
use std::time::{Duration, Instant};

use tompion_ctf::metadata::EnvironmentValue;
use tompion_reader::{Parts, Selection, Trace, TraceSet};

use crate::api::Shifted;
use crate::incident::{Incident, incident};
use crate::recording::RecordedProcess;
use crate::{Error, recording};
use tompion_index::foreground_gate::ForegroundGate;
use tompion_index::index_storage::{IndexStorage, fingerprint};
use tompion_index::indexer::{Classes, Indexer, Outline, Prefetcher, trace_name, trace_of_class};
use tompion_index::store::Store;
use tompion_index::{Index, Shared, directory};

/// Interval between two checks whether a trace has grown.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of prefetching threads.
const MAX_PREFETCHERS: usize = 8;
/// Nice values of the indexing threads, which no request waits for, and of the prefetching ones.
const INDEXER_NICE: i32 = 10;
const PREFETCH_NICE: i32 = 5;

/// Traces that are shown, with the state of the server.
pub struct Workspace {
    paths: Vec<PathBuf>,
    /// Storage of the index and the notes.
    pub storage: IndexStorage,
    /// Incident whose folder is shown.
    pub incident: Option<Incident>,
    /// Names of the programs that the recordings started.
    pub commands: Vec<String>,
    /// Processes that the recording names.
    pub processes: Vec<RecordedProcess>,
    opened: RwLock<Arc<OpenTrace>>,
    /// Clock offset of each trace in nanoseconds.
    offsets: Mutex<Vec<i64>>,
    /// Shifted traces of the last request.
    shifted: Mutex<Option<Arc<Shifted>>>,
    /// Cached results of requests.
    query_cache: Mutex<crate::api::QueryCache>,
    /// Exports and their progress.
    exports: Mutex<crate::api::Exports>,
    /// Held while notes are written.
    notes: Mutex<()>,
}

/// Trace as it was when it was opened last.
pub struct OpenTrace {
    /// Counts how often it was opened.
    pub generation: u64,
    /// Description of each trace.
    pub traces: Vec<TraceInfo>,
    /// Parts of the traces.
    pub parts: Arc<Parts>,
    /// Bytes of a part.
    pub part_bytes: u64,
    /// Trace of each event class, by the class's number in the index.
    pub trace_of_class: Vec<u32>,
    /// Event classes by their places.
    pub classes: Classes,
    /// Name of the channel's track of each stream.
    pub channel_tracks: Vec<String>,
    /// Unread traces, for their descriptions.
    pub set: TraceSet,
    /// The index.
    pub index: Shared,
    /// Prefetcher, while a large trace is indexed.
    pub prefetcher: Option<Prefetcher>,
    /// Gate at which indexing yields to requests.
    pub gate: Arc<ForegroundGate>,
    /// Whether the recording is running.
    pub is_growing: bool,
    /// Names, sizes and times of the files when they were opened.
    fingerprint: String,
    stop: AtomicBool,
    /// Message about files that have vanished since.
    gone: Mutex<Option<String>>,
}

/// Description of a trace.
pub struct TraceInfo {
    /// Its folder.
    pub path: String,
    /// Its name.
    pub name: String,
    /// Tracer that recorded it.
    pub tracer: String,
    /// Host on which it was recorded.
    pub host: String,
}

impl OpenTrace {
    /// Whether something is shown before the index is complete, so that indexing yields to
    /// requests. A small trace has nothing else: its requests wait for the index, and pauses would
    /// only delay it.
    pub fn is_shown_before_index(&self) -> bool {
        self.prefetcher.is_some() || self.is_growing
    }

    /// Locks the index for reading.
    pub fn index(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read()
    }

    /// Returns the selected events of a part.
    pub fn read(&self, part: usize, selection: Selection) -> Option<TraceSet> {
        self.parts.read(part, selection)
    }

    /// Returns a message about files that no longer exist. A running recording may remove its
    /// oldest files.
    fn missing(&self) -> Option<String> {
        let descriptions = self.set.traces().iter().map(|trace| trace.path.join("metadata"));
        let streams = self.set.streams().into_iter().flat_map(|(_, paths)| paths);
        let (mut count, mut missing) = (0, Vec::new());
        for path in descriptions.chain(streams) {
            count += 1;
            if !path.exists() {
                missing.push(path);
            }
        }
        let (first, others) = missing.split_first()?;
        if self.is_growing && missing.len() < count {
            return None;
        }
        let (path, is) = (first.display(), if others.is_empty() { "is" } else { "are" });
        let others = match others.len() {
            0 => String::new(),
            others => format!(" and {others} more of {count} files"),
        };
        Some(format!("{path}{others} {is} not there any more; what is known of them is shown"))
    }

    /// Returns the message about vanished files.
    pub fn gone(&self) -> Option<String> {
        self.gone.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Workspace {
    /// Finds the packets of traces and begins to index them.
    ///
    /// # Errors
    ///
    /// If no thread can be started.
    pub fn open(pending: PendingOpen) -> Result<Self, Error> {
        let PendingOpen { paths, discovered, storage, slot } = pending;
        let opened = open(discovered, (&storage, slot), None)?;
        let count = opened.traces.len();
        // Offsets that can't be read can be set again by the user.
        let offsets = storage.shifts().ok().and_then(|saved| shifts(&saved, &opened.traces));
        Ok(Self {
            incident: incident(&paths),
            commands: recording::commands(&paths),
            processes: recording::processes(&paths, &opened.traces),
            paths,
            storage,
            opened: RwLock::new(opened),
            offsets: Mutex::new(offsets.unwrap_or_else(|| vec![0; count])),
            shifted: Mutex::default(),
            query_cache: Mutex::default(),
            exports: Mutex::default(),
            notes: Mutex::default(),
        })
    }

    /// Returns the traces as they were opened last.
    pub fn opened(&self) -> Arc<OpenTrace> {
        self.opened.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Announces that the page is loading. Of large traces, something is shown before the index is
    /// complete.
    pub fn opening(&self) {
        let opened = self.opened();
        if opened.prefetcher.is_some() {
            opened.gate.begin_page_load();
        }
    }

    /// Returns the indexed share.
    pub fn progress(&self) -> f64 {
        self.opened().index().progress
    }

    /// Returns the clock offset of each trace in nanoseconds.
    pub fn offsets(&self) -> Vec<i64> {
        self.offsets.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets and saves the clock offset of a trace; false if there is no such trace.
    pub fn shift(&self, trace: usize, offset: i64) -> bool {
        let mut offsets = self.offsets.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = offsets.get_mut(trace) else { return false };
        *known = offset;
        let opened = self.opened();
        let names = opened.traces.iter().map(|trace| trace.name.as_str());
        let saved: Vec<(&str, i64)> = names.zip(offsets.iter().copied()).collect();
        // If it can't be saved, it applies until the command ends.
        let _ = serde_json::to_vec(&saved).map(|bytes| self.storage.write_shifts(&bytes));
        true
    }

    /// Returns the traces with their clock offsets.
    ///
    /// # Errors
    ///
    /// If they can't be described.
    pub fn shifted(
        &self,
        opened: &OpenTrace,
        offsets: &[i64],
    ) -> Result<Arc<Shifted>, tompion_reader::Error> {
        let mut known = self.shifted.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.as_ref().filter(|known| known.is_of(opened, offsets)) {
            return Ok(known.clone());
        }
        let shifted = Arc::new(Shifted::new(opened, offsets, opened.part_bytes)?);
        *known = Some(shifted.clone());
        Ok(shifted)
    }

    /// Locks the cached results of requests.
    pub fn query_cache(&self) -> MutexGuard<'_, crate::api::QueryCache> {
        self.query_cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the exports.
    pub fn exports(&self) -> MutexGuard<'_, crate::api::Exports> {
        self.exports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the notes for writing.
    pub fn notes(&self) -> MutexGuard<'_, ()> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the opened folders.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Returns the name of the workspace.
    pub fn name(&self) -> String {
        let name = |path: &PathBuf| {
            let path = path.canonicalize().unwrap_or_else(|_| path.clone());
            path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
        };
        self.paths.iter().map(name).collect::<Vec<_>>().join(", ")
    }

    /// Watches for traces that grow or vanish while the workspace exists. To be called in a thread
    /// of its own.
    pub fn watch(workspace: &std::sync::Weak<Self>) {
        let mut pause = REFRESH_INTERVAL;
        loop {
            thread::sleep(pause);
            let Some(workspace) = workspace.upgrade() else { return };
            let began = Instant::now();
            workspace.refresh();
            // Traces that take long to read are checked less often.
            pause = REFRESH_INTERVAL.max(began.elapsed() * 4).min(Duration::from_secs(60));
        }
    }

    fn refresh(&self) {
        let opened = self.opened();
        let now = fingerprint(&opened.set);
        let gone = self.paths.iter().find(|path| !path.exists()).map(|path| path.display().to_string());
        let gone = gone.map(|path| format!("{path} is not there any more; what is known of it is shown"));
        let gone = gone.or_else(|| opened.missing());
        opened.gone.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&gone);
        let has_changed =
            now != opened.fingerprint || opened.is_growing && !recording::is_recording(&self.paths);
        if gone.is_some() || !has_changed || opened.index().progress < 1.0 && opened.index().error.is_none() {
            return;
        }
        // A trace that is being written may be unreadable at this moment.
        let next = DiscoveredTraces::new(&self.paths).and_then(|discovered| {
            let (store, _) = self.storage.begin(&discovered.set).map_err(Error::Index)?;
            open(discovered, (&self.storage, IndexSlot::Empty(store)), Some(&opened))
        });
        let Ok(next) = next else { return };
        // The old index is better than one that has just begun.
        while next.index().progress < 1.0 && next.index().error.is_none() {
            thread::sleep(Duration::from_millis(20));
        }
        let before: HashMap<&str, i64> = opened
            .traces
            .iter()
            .zip(self.offsets())
            .map(|(trace, offset)| (trace.path.as_str(), offset))
            .collect();
        let shifts = next.traces.iter().map(|trace| before.get(trace.path.as_str()).copied().unwrap_or(0));
        *self.offsets.lock().unwrap_or_else(PoisonError::into_inner) = shifts.collect();
        *self.opened.write().unwrap_or_else(PoisonError::into_inner) = next;
    }
}

/// Returns the saved clock offsets, if they are of these traces.
fn shifts(saved: &[u8], traces: &[TraceInfo]) -> Option<Vec<i64>> {
    let saved: Vec<(String, i64)> = serde_json::from_slice(saved).ok()?;
    let are_these = saved.iter().map(|(name, _)| name).eq(traces.iter().map(|trace| &trace.name));
    let far = crate::api::MAX_TIME_NS;
    are_these.then(|| saved.into_iter().map(|(_, offset)| offset.clamp(-far, far)).collect())
}

/// Guard that ends prefetching, and reports a panic, when indexing ends for any reason.
struct IndexingGuard<'o> {
    index: &'o Shared,
    prefetcher: Option<&'o Prefetcher>,
}

impl Drop for IndexingGuard<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let mut index = self.index.write();
            if index.progress < 1.0 {
                let line = "the index can't be completed, since a thread that makes it failed; what it knows is shown";
                index.error.get_or_insert_with(|| line.into());
            }
        }
        // Prefetching threads wait for requests until then.
        self.prefetcher.into_iter().for_each(Prefetcher::end);
    }
}

impl Drop for OpenTrace {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Unread traces.
struct DiscoveredTraces {
    /// Whether the recording is running.
    is_growing: bool,
    /// Traces for their descriptions, and for the index.
    set: TraceSet,
    traces: TraceSet,
}

impl DiscoveredTraces {
    fn new(paths: &[PathBuf]) -> Result<Self, Error> {
        let is_growing = recording::is_recording(paths);
        Ok(Self { is_growing, set: tompion_reader::open(paths)?, traces: tompion_reader::open(paths)? })
    }
}

/// Found traces with a slot for their index. Everything that can fail is done, and nothing that
/// takes long: headers of millions of packets, or on a slow disk, take longer than a user waits for
/// an address.
pub struct PendingOpen {
    paths: Vec<PathBuf>,
    discovered: DiscoveredTraces,
    storage: IndexStorage,
    slot: IndexSlot,
}

/// Saved index, or the file for a new one.
enum IndexSlot {
    Saved(Box<Index>),
    Empty(Store),
}

impl PendingOpen {
    /// Finds traces at these paths.
    ///
    /// # Errors
    ///
    /// If they can't be opened, or there is no space for an index.
    pub fn new(paths: &[PathBuf], cache: Option<&Path>) -> Result<Self, Error> {
        // Without a trace, no folder is created.
        let discovered = DiscoveredTraces::new(paths)?;
        let mut storage = IndexStorage::new(paths, cache);
        let slot = match storage.load(&fingerprint(&discovered.set)) {
            Some(index) => {
                log::debug!("saved index read: {} tracks, {} lanes", index.tracks.len(), index.lanes.len());
                IndexSlot::Saved(Box::new(index))
            }
            None => {
                let (store, line) = storage.begin(&discovered.set).map_err(Error::Index)?;
                storage.add_remark(line);
                log::debug!("no saved index of these files, so a new one is made");
                IndexSlot::Empty(store)
            }
        };
        Ok(Self { paths: paths.to_vec(), discovered, storage, slot })
    }

    /// Returns the storage.
    pub fn storage(&self) -> &IndexStorage {
        &self.storage
    }
}

/// Opens the traces. `before` is their shorter state: their index keeps its numbers, so a saved
/// index of another server is not used.
fn open(
    discovered: DiscoveredTraces,
    (storage, slot): (&IndexStorage, IndexSlot),
    before: Option<&OpenTrace>,
) -> Result<Arc<OpenTrace>, Error> {
    let DiscoveredTraces { is_growing, set, traces } = discovered;
    let fingerprint = fingerprint(&set);
    let outline = Outline::new(&set);
    let trace = (0..set.traces().len()).map(|trace| trace_info(&set, trace)).collect();
    let (parts, part_bytes) = (outline.parts.clone(), outline.part_bytes);
    let channel_tracks = outline.channel_tracks(&set);
    let (index, indexer) = match slot {
        IndexSlot::Saved(index) => (*index, None),
        IndexSlot::Empty(store) => {
            let known = before.map(OpenTrace::index);
            let (index, indexer) = Indexer::new(traces, outline, (store, known.as_deref()));
            (index, Some(indexer))
        }
    };
    // A growing trace is shown once it is read.
    let prefetcher = indexer.as_ref().filter(|_| before.is_none()).and_then(Indexer::prefetcher);
    let gate = before.map_or_else(Arc::default, |before| before.gate.clone());
    let opened = Arc::new(OpenTrace {
        generation: before.map_or(1, |before| before.generation + 1),
        traces: trace,
        parts,
        part_bytes,
        trace_of_class: trace_of_class(&set),
        classes: Classes::new(&set),
        channel_tracks,
        set,
        index: Shared::new(index),
        prefetcher,
        gate,
        is_growing,
        fingerprint,
        stop: AtomicBool::new(false),
        gone: Mutex::new(None),
    });
    if let Some(indexer) = indexer {
        let (opened, storage) = (opened.clone(), storage.clone());
        // Nothing of a small trace is shown before.
        let is_awaited = before.is_none() && opened.prefetcher.is_none();
        let build = move || {
            let begun = Instant::now();
            thread::scope(|scope| {
                let _guard = IndexingGuard { index: &opened.index, prefetcher: opened.prefetcher.as_ref() };
                if let Some(prefetcher) = &opened.prefetcher {
                    // One CPU is left to the browser, which starts at the same time.
                    let threads = thread::available_parallelism().map_or(1, usize::from) - 1;
                    for _ in 0..threads.clamp(1, MAX_PREFETCHERS) {
                        scope.spawn(|| {
                            let _ = rustix::process::setpriority_process(None, PREFETCH_NICE);
                            prefetcher.run(&opened.index, &opened.gate);
                        });
                    }
                    prefetcher.wait(&opened.gate);
                }
                if !is_awaited {
                    // Requests and the browser go first. Threads inherit this.
                    let _ = rustix::process::setpriority_process(None, INDEXER_NICE);
                }
                indexer.run(&opened.index, &opened.stop, &opened.gate);
            });
            let index = opened.index();
            log::debug!("indexing ended after {:?}: {} events", begun.elapsed(), index.event_count());
            if index.progress >= 1.0 {
                // An index that can't be saved is made again the next time.
                let _ = directory::write(&index, &opened.fingerprint)
                    .and_then(|()| storage.publish(&index.store));
            }
        };
        thread::Builder::new().name("index".into()).spawn(build).map_err(Error::Index)?;
    }
    Ok(opened)
}

fn trace_info(set: &TraceSet, trace: usize) -> TraceInfo {
    let name = trace_name(set, trace);
    let Some(trace) = set.traces().get(trace) else {
        return TraceInfo { path: String::new(), name, tracer: String::new(), host: String::new() };
    };
    let text = |name: &str| environment(trace, name);
    let version = [text("tracer_major"), text("tracer_minor")];
    let version = version.into_iter().flatten().collect::<Vec<_>>().join(".");
    let tracer = [text("tracer_name").unwrap_or_default(), version].join(" ").trim().to_owned();
    TraceInfo {
        path: trace.path.display().to_string(),
        name,
        tracer,
        host: text("hostname").unwrap_or_default(),
    }
}

/// Returns a value of the trace's environment.
fn environment(trace: &Trace, name: &str) -> Option<String> {
    match trace.metadata().environment_value(name)? {
        EnvironmentValue::Text(text) => Some(text.clone()),
        EnvironmentValue::Integer(number) => Some(number.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_whose_maker_fails_says_so() {
        let store = Store::new(tempfile::tempfile().unwrap(), 0);
        let index = Shared::new(Index::new((0, 1000), store));
        let failed = thread::scope(|scope| {
            let make = || {
                let _guard = IndexingGuard { index: &index, prefetcher: None };
                let _kept = index.write();
                std::panic::resume_unwind(Box::new(()));
            };
            scope.spawn(make).join()
        });
        assert!(failed.is_err());
        let error = index.read().error.clone().expect("the failure is reported");
        assert!(error.contains("failed") && !error.contains('\n'), "{error}");
        // A completed index has no error.
        let store = Store::new(tempfile::tempfile().unwrap(), 0);
        let index = Shared::new(Index::new((0, 1000), store));
        drop(IndexingGuard { index: &index, prefetcher: None });
        assert_eq!(index.read().error, None);
    }
}
