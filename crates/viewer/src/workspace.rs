//! What is shown: traces, their index, and who looks after both while they change.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::thread;
use std::time::{Duration, Instant};

use tompion_ctf::metadata::EnvironmentValue;
use tompion_reader::{Parts, Selection, Trace, TraceSet};

use crate::api::Shifted;
use crate::foreground_gate::ForegroundGate;
use crate::incident::{Incident, incident};
use crate::index::index_storage::{IndexStorage, fingerprint};
use crate::index::indexer::{Classes, Indexer, Outline, Prefetcher, trace_name, trace_of_class};
use crate::index::store::Store;
use crate::index::{Index, Shared, directory};
use crate::recording::RecordedProcess;
use crate::{Error, recording};

/// How often is looked whether a trace has grown.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// Most threads that read before its turn what is looked at.
const MAX_PREFETCHERS: usize = 8;
/// The niceness of threads that make the index, which nobody waits for who looks at what is there, and of the others.
const INDEXER_NICE: i32 = 10;
const PREFETCH_NICE: i32 = 5;

/// Traces that are shown.
pub struct Workspace {
    paths: Vec<PathBuf>,
    /// Where the index and notes are kept.
    pub storage: IndexStorage,
    /// What is said of the incident whose folder is shown.
    pub incident: Option<Incident>,
    /// Names of the programs that the recordings started.
    pub commands: Vec<String>,
    /// Processes that the recording names.
    pub processes: Vec<RecordedProcess>,
    opened: RwLock<Arc<OpenTrace>>,
    /// By how much each trace is shifted, in nanoseconds.
    offsets: Mutex<Vec<i64>>,
    /// The traces as they were shifted last.
    shifted: Mutex<Option<Arc<Shifted>>>,
    /// What is remembered of questions that were asked.
    query_cache: Mutex<crate::api::QueryCache>,
    /// What is being exported, or was.
    exports: Mutex<crate::api::Exports>,
    /// Held by who writes notes.
    notes: Mutex<()>,
}

/// A trace as it was when it was opened last.
pub struct OpenTrace {
    /// How often it was opened.
    pub generation: u64,
    /// What is said of each trace.
    pub traces: Vec<TraceInfo>,
    /// Parts of the traces.
    pub parts: Arc<Parts>,
    /// Bytes of a part.
    pub part_bytes: u64,
    /// The trace of each event class, by its number in the index.
    pub trace_of_class: Vec<u32>,
    /// Event classes by their places.
    pub classes: Classes,
    /// The name of the channel's track of each stream.
    pub channel_tracks: Vec<String>,
    /// The traces, unread, for questions about their descriptions.
    pub set: TraceSet,
    /// What is known.
    pub index: Shared,
    /// What reads parts before their turn, while the index is made.
    pub prefetcher: Option<Prefetcher>,
    /// Lets those who look at it come before those who read it.
    pub gate: Arc<ForegroundGate>,
    /// Whether the recording goes on.
    pub is_growing: bool,
    /// The files as they were.
    fingerprint: String,
    stop: AtomicBool,
    /// Whether files have vanished since.
    gone: Mutex<Option<String>>,
}

/// What is said of a trace.
pub struct TraceInfo {
    /// Its folder.
    pub path: String,
    /// What to call it.
    pub name: String,
    /// What recorded it.
    pub tracer: String,
    /// Where.
    pub host: String,
}

impl OpenTrace {
    /// Whether something is there to be shown while the index is made, for which its makers pause. A small trace has
    /// nothing else: whoever asks waits for the index, and to pause would only make it later.
    pub fn is_shown_before_index(&self) -> bool {
        self.prefetcher.is_some() || self.is_growing
    }

    /// The index, for reading.
    pub fn index(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read()
    }

    /// The selected events of a part.
    pub fn read(&self, part: usize, selection: Selection) -> Option<TraceSet> {
        self.parts.read(part, selection)
    }

    /// What is to be said of files that were there and aren't any more. Recordings that go on may remove their oldest
    /// ones.
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

    /// What is said where files have vanished.
    pub fn gone(&self) -> Option<String> {
        self.gone.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Workspace {
    /// Finds the packets of traces and begins to read them.
    ///
    /// # Errors
    ///
    /// If no thread can be begun.
    pub fn open(pending: PendingOpen) -> Result<Self, Error> {
        let PendingOpen { paths, discovered, storage, slot } = pending;
        let opened = open(discovered, (&storage, slot), None)?;
        let count = opened.traces.len();
        // What can't be read is nothing that anybody could not shift again.
        let offsets = storage.shifts().ok().and_then(|saved| shifts(&saved, &opened.traces));
        Ok(Self {
            incident: incident(&paths),
            commands: recording::commands(&paths),
            processes: recording::processes(&paths),
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

    /// The traces as they were opened last.
    pub fn opened(&self) -> Arc<OpenTrace> {
        self.opened.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The page is being opened; of large traces, something is there to be shown before the index is.
    pub fn opening(&self) {
        let opened = self.opened();
        if opened.prefetcher.is_some() {
            opened.gate.begin_page_load();
        }
    }

    /// How much is indexed.
    pub fn progress(&self) -> f64 {
        self.opened().index().progress
    }

    /// By how much each trace is shifted, in nanoseconds.
    pub fn offsets(&self) -> Vec<i64> {
        self.offsets.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Shifts a trace, and keeps that for who opens the traces again; false if there is no such one.
    pub fn shift(&self, trace: usize, offset: i64) -> bool {
        let mut offsets = self.offsets.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = offsets.get_mut(trace) else { return false };
        *known = offset;
        let opened = self.opened();
        let names = opened.traces.iter().map(|trace| trace.name.as_str());
        let saved: Vec<(&str, i64)> = names.zip(offsets.iter().copied()).collect();
        // Where nothing can be kept, they are shifted for as long as the command runs.
        let _ = serde_json::to_vec(&saved).map(|bytes| self.storage.write_shifts(&bytes));
        true
    }

    /// The traces as they are shifted.
    ///
    /// # Errors
    ///
    /// If they can't be described anew.
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

    /// What is remembered of questions that were asked.
    pub fn query_cache(&self) -> MutexGuard<'_, crate::api::QueryCache> {
        self.query_cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is being exported, or was.
    pub fn exports(&self) -> MutexGuard<'_, crate::api::Exports> {
        self.exports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nobody else writes notes until this is dropped.
    pub fn notes(&self) -> MutexGuard<'_, ()> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The folders that were opened.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Name of the whole.
    pub fn name(&self) -> String {
        let name = |path: &PathBuf| {
            let path = path.canonicalize().unwrap_or_else(|_| path.clone());
            path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
        };
        self.paths.iter().map(name).collect::<Vec<_>>().join(", ")
    }

    /// Looks after traces that grow or vanish, for as long as the view is there. To be called in a thread of its own.
    pub fn watch(workspace: &std::sync::Weak<Self>) {
        let mut pause = REFRESH_INTERVAL;
        loop {
            thread::sleep(pause);
            let Some(workspace) = workspace.upgrade() else { return };
            let began = Instant::now();
            workspace.refresh();
            // Traces that take long to read are read again less often.
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
        // What is being written may be no trace at this moment.
        let next = DiscoveredTraces::new(&self.paths).and_then(|discovered| {
            let (store, _) = self.storage.begin(&discovered.set).map_err(Error::Index)?;
            open(discovered, (&self.storage, IndexSlot::Empty(store)), Some(&opened))
        });
        let Ok(next) = next else { return };
        // The page had rather see what was there than an index that is just begun.
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

/// By how much traces were shifted when they were shown last, if these are the same.
fn shifts(saved: &[u8], traces: &[TraceInfo]) -> Option<Vec<i64>> {
    let saved: Vec<(String, i64)> = serde_json::from_slice(saved).ok()?;
    let are_these = saved.iter().map(|(name, _)| name).eq(traces.iter().map(|trace| &trace.name));
    let far = crate::api::MAX_TIME_NS;
    are_these.then(|| saved.into_iter().map(|(_, offset)| offset.clamp(-far, far)).collect())
}

/// The end of whoever makes an index, however it comes.
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
        // Who reads ahead waits for wishes until then.
        self.prefetcher.into_iter().for_each(Prefetcher::end);
    }
}

impl Drop for OpenTrace {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Traces of which nothing was read.
struct DiscoveredTraces {
    /// Whether the recording goes on.
    is_growing: bool,
    /// For questions about their descriptions, and for the index.
    set: TraceSet,
    traces: TraceSet,
}

impl DiscoveredTraces {
    fn new(paths: &[PathBuf]) -> Result<Self, Error> {
        let is_growing = recording::is_recording(paths);
        Ok(Self { is_growing, set: tompion_reader::open(paths)?, traces: tompion_reader::open(paths)? })
    }
}

/// Traces that were found, and room for their index: what can fail is done, and what takes long is not. The headers of packets of
/// which there are millions, or that are on a disk that is slow, take longer than anybody waits for an address.
pub struct PendingOpen {
    paths: Vec<PathBuf>,
    discovered: DiscoveredTraces,
    storage: IndexStorage,
    slot: IndexSlot,
}

/// An index that was kept, or where one is to be written.
enum IndexSlot {
    Saved(Box<Index>),
    Empty(Store),
}

impl PendingOpen {
    /// Finds traces at these paths.
    ///
    /// # Errors
    ///
    /// If they cannot be opened, or there is no place for an index.
    pub fn new(paths: &[PathBuf], cache: Option<&Path>) -> Result<Self, Error> {
        // Where no trace is, nothing is made.
        let discovered = DiscoveredTraces::new(paths)?;
        let mut storage = IndexStorage::new(paths, cache);
        let slot = match storage.load(&fingerprint(&discovered.set)) {
            Some(index) => IndexSlot::Saved(Box::new(index)),
            None => {
                let (store, line) = storage.begin(&discovered.set).map_err(Error::Index)?;
                storage.add_remark(line);
                IndexSlot::Empty(store)
            }
        };
        Ok(Self { paths: paths.to_vec(), discovered, storage, slot })
    }

    /// Where things are kept.
    pub fn storage(&self) -> &IndexStorage {
        &self.storage
    }
}

/// Opens what was found. `before` is what it was when it was shorter: what another one kept of the traces as they are now may
/// have other numbers.
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
    // What grows is shown when it is read.
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
            thread::scope(|scope| {
                let _guard = IndexingGuard { index: &opened.index, prefetcher: opened.prefetcher.as_ref() };
                if let Some(prefetcher) = &opened.prefetcher {
                    // One processor is the browser's, which is begun at the same time.
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
                    // Who looks at something comes first, and the browser that draws it. Threads inherit this.
                    let _ = rustix::process::setpriority_process(None, INDEXER_NICE);
                }
                indexer.run(&opened.index, &opened.stop, &opened.gate);
            });
            let index = opened.index();
            if index.progress >= 1.0 {
                // An index that can't be kept is made again the next time.
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

/// What a trace says of itself.
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
        let error = index.read().error.clone().expect("whoever waits for it is told");
        assert!(error.contains("failed") && !error.contains('\n'), "{error}");
        // One that was made says nothing.
        let store = Store::new(tempfile::tempfile().unwrap(), 0);
        let index = Shared::new(Index::new((0, 1000), store));
        drop(IndexingGuard { index: &index, prefetcher: None });
        assert_eq!(index.read().error, None);
    }
}
