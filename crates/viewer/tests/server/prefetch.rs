//! Previews of parts that are not indexed yet.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tompion_index::entry::Entry;
use tompion_index::foreground_gate::ForegroundGate;
use tompion_index::indexer::{Indexer, Outline, Prefetcher};
use tompion_index::preview::Window;
use tompion_index::slice_kind;
use tompion_index::store::Store;
use tompion_index::{LaneKind, Shared};

use super::fixtures;

/// Time after which a test gives up.
const TEST_TIMEOUT: Duration = Duration::from_secs(120);
const EVENTS: u64 = 340_000;

/// Threads that take turns, in more parts than are indexed at once.
struct Trace {
    folder: TempDir,
}

impl Trace {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fixtures::turns(folder.path(), EVENTS);
        Self { folder }
    }

    fn of_program() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fixtures::callbacks(folder.path(), EVENTS);
        Self { folder }
    }

    fn open(&self) -> (Shared, Indexer) {
        let path = [self.folder.path().to_owned()];
        let outline = Outline::new(&tompion_reader::open(&path).unwrap());
        let store = Store::new(tempfile::tempfile().unwrap(), 0);
        let (index, indexer) = Indexer::new(tompion_reader::open(&path).unwrap(), outline, (store, None));
        (Shared::new(index), indexer)
    }
}

/// A scout that reads in a thread of its own until it is dropped.
struct Running(Arc<Prefetcher>);

impl Running {
    fn new(prefetcher: Prefetcher, index: &Arc<Shared>) -> Self {
        let prefetcher = Arc::new(prefetcher);
        let (reader, index) = (prefetcher.clone(), index.clone());
        thread::spawn(move || reader.run(&index, &ForegroundGate::default()));
        Self(prefetcher)
    }

    /// Returns the previews of a lane as soon as a condition holds.
    fn when(
        &self,
        lane: (u32, LaneKind),
        window: (i64, i64),
        is_so: impl Fn(&[Entry]) -> bool,
    ) -> Vec<Entry> {
        let begun = Instant::now();
        loop {
            let mut entries = Vec::new();
            let preview = self.0.preview(window, 0, true);
            let window = Window { from: window.0, to: window.1, pixel: 1 };
            preview.merged(lane, window, &mut |entry| entries.push(entry));
            if is_so(&entries) {
                return entries;
            }
            assert!(begun.elapsed() < TEST_TIMEOUT, "it never came to it: {} entries", entries.len());
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The first lane of a kind.
fn lane_of(index: &Shared, kind: LaneKind) -> Option<(u32, LaneKind)> {
    let index = index.read();
    index.lanes.iter().position(|lane| lane.kind == kind).map(|lane| (lane as u32, kind))
}

fn until<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = ask() {
            return found;
        }
        assert!(begun.elapsed() < TEST_TIMEOUT);
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_is_looked_at_closely_is_what_the_index_says_later() {
    let trace = Trace::new();
    let (index, indexer) = trace.open();
    let index = Arc::new(index);
    let running = Running::new(indexer.prefetcher().unwrap(), &index);
    let middle = EVENTS as i64 / 2 * 1000;
    let window = (middle, middle + 300_000);
    // Its lanes are there when the first place was looked at.
    let lane = until(|| {
        running.0.preview(window, 0, true);
        lane_of(&index, LaneKind::Cpu)
    });
    let is_exact = |entries: &[Entry]| !entries.is_empty() && entries.iter().all(|entry| entry.count == 1);
    let seen = running.when(lane, window, is_exact);
    drop(running);
    indexer.run(&index, &AtomicBool::new(false), &Arc::default());
    let (slice, store) = {
        let index = index.read();
        (index.slice(lane.0, window, 0), index.store.clone())
    };
    let mut expected = Vec::new();
    slice
        .read(&store, window, &mut |entry| {
            expected.push(*entry);
            true
        })
        .unwrap();
    assert_eq!(seen.len(), expected.len());
    for (seen, expected) in seen.iter().zip(&expected) {
        // What goes on at a border of what was read is cut there.
        assert!(seen.begin >= expected.begin && seen.end <= expected.end, "{seen:?} {expected:?}");
        assert_eq!((seen.style, seen.extra), (expected.style, expected.extra));
        let label = |entry: &Entry| index.read().label(entry.label).cloned();
        assert_eq!(label(seen), label(expected));
    }
    assert!(expected.len() >= 300, "{}", expected.len());
}

#[test]
fn the_whole_is_sampled_and_says_so() {
    let trace = Trace::new();
    let (index, indexer) = trace.open();
    let index = Arc::new(index);
    let running = Running::new(indexer.prefetcher().unwrap(), &index);
    let window = (0, EVENTS as i64 * 1000);
    let lane = until(|| lane_of(&index, LaneKind::Cpu));
    // More than there are parts: of a trace of a few, several places of each are looked at.
    let entries = running.when(lane, window, |entries| entries.len() >= 64);
    for (entry, next) in entries.iter().zip(entries.iter().skip(1)) {
        assert_eq!((entry.style, entry.count), (slice_kind::RUNNING, 0));
        assert!(entry.end <= next.begin && entry.end - entry.begin <= window.1 / 8, "{entry:?} {next:?}");
    }
    let is_up_to_next = |(entry, next): (&Entry, &Entry)| entry.end == next.begin;
    assert!(entries.iter().zip(entries.iter().skip(1)).filter(|it| is_up_to_next(*it)).count() >= 48);
    assert!(running.0.whole().is_empty());
}

#[test]
fn spans_are_sampled_but_never_shown_as_what_all_is() {
    let trace = Trace::of_program();
    let (index, indexer) = trace.open();
    let index = Arc::new(index);
    let running = Running::new(indexer.prefetcher().unwrap(), &index);
    let whole = (0, EVENTS as i64 * 1000);
    let lane = until(|| lane_of(&index, LaneKind::Span));
    let entries = running.when(lane, whole, |entries| entries.len() >= 8);
    assert!(entries.iter().all(|entry| (entry.style, entry.count) == (slice_kind::SPAN, 0)), "{entries:?}");
    // Closer, all is read; but which spans these ones stand in began before.
    let middle = whole.1 / 2;
    let window = (middle, middle + 100_000);
    until(|| {
        running.0.preview(window, 0, true);
        running.0.whole().iter().any(|(from, to)| *from <= window.0 && window.1 <= *to).then_some(())
    });
    assert!(running.when(lane, window, |_| true).is_empty());
}

#[test]
fn an_index_is_the_same_whatever_was_looked_at() {
    for trace in [Trace::new(), Trace::of_program()] {
        is_the_same_whatever_was_looked_at(&trace);
    }
}

fn is_the_same_whatever_was_looked_at(trace: &Trace) {
    let build = |is_looked_at: bool| {
        let (index, indexer) = trace.open();
        let index = Arc::new(index);
        let running = is_looked_at.then(|| Running::new(indexer.prefetcher().unwrap(), &index));
        if let Some(running) = &running {
            until(|| (running.0.count() >= 8).then_some(()));
        }
        indexer.run(&index, &AtomicBool::new(false), &Arc::default());
        drop(running);
        let index = index.read();
        let mut lanes: Vec<(i64, LaneKind, u64)> = Vec::new();
        for lane in &index.lanes {
            let track = &index.tracks[lane.track as usize];
            lanes.push((track.number, lane.kind, lane.levels.count()));
        }
        lanes.sort_by_key(|(number, kind, _)| (*number, *kind as u8));
        let mut tracks: Vec<(i64, i64, Option<String>)> = Vec::new();
        for track in &index.tracks {
            tracks.push((track.number, track.busy, index.label(track.name).map(ToString::to_string)));
        }
        tracks.sort();
        (lanes, tracks, index.event_count())
    };
    assert_eq!(build(true), build(false));
}
