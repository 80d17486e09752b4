//! Recordings in chunks that outlast their recorder: it is killed at any instant, also within the
//! steps of a rotation, and all chunks together have each event once.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Child,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use rustix::process::Signal;

use crate::{
    chunks::{CONTROL, chunks, count, has_open, sum},
    kills::{Found, Progress, SHORT_MEMORY, SOURCES, found_in, numbers_of},
    recovery::{kept, kill_session},
    restart::{
        LINGER, Random, history_is_sound, kill_again_and_again, nothing_is_lost, record_emitter,
        record_emitters, resume, there_are_no_gaps, wait_for_recorder,
    },
    support::{self, Event, TestDir, Trace, finish, rounds, run, start, tompion, wait_until},
};

/// Chunks as short as they may be.
pub const OFTEN: [&str; 2] = ["--rotate", "100ms"];

fn events_in(trace: &Trace) -> u64 {
    trace.stat()["events"].as_u64().unwrap_or(0)
}

/// Asserts that the chunks, each alone, have what they have together: no event is in two of them,
/// and the manifests count each once.
pub fn chunks_agree(dir: &TestDir, together: &[Found]) {
    let chunks = chunks(dir);
    let trace = dir.path("trace");
    assert!(!has_open(&trace), "the last one is committed");
    let mut all: Vec<(u32, usize, u64)> = Vec::new();
    for chunk in chunks.iter().filter(|chunk| chunk.folder.join("user").exists()) {
        let found = found_in(chunk);
        assert_eq!(chunk.agreed_count(), found.len() as u64, "{}", chunk.folder.display());
        all.extend(found.iter().map(|found| (found.pid, found.source, found.number)));
    }
    all.sort_unstable();
    let mut expected: Vec<_> = together.iter().map(|found| (found.pid, found.source, found.number)).collect();
    expected.sort_unstable();
    assert_eq!(all.len(), expected.len());
    assert!(all == expected, "each event is in one chunk");
    let counted = sum(&chunks, |source| source["events"].as_u64().unwrap_or(0));
    assert_eq!(counted, events_in(&dir.trace("trace")), "manifests and packets");
    let numbers: Vec<u64> =
        chunks.iter().map(|chunk| chunk.manifest()["chunk"]["number"].as_u64().unwrap_or(0)).collect();
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
}

pub fn no_packet_is_missing(dir: &TestDir) {
    assert_eq!(dir.trace("trace").stat()["lost_packets"], 0, "{:#}", dir.trace("trace").stat());
}

#[test]
fn chunks_of_a_recorder_that_is_killed_again_and_again_have_each_event_once() {
    let dir = TestDir::new();
    let (recorder, all) = record_emitters(&dir, &[LINGER, &OFTEN].concat());
    let pids: Vec<u32> = all.iter().map(Progress::pid).collect();
    let recorder = kill_again_and_again(&dir, recorder, rounds(30, 500), 0x0bad_cafe);
    wait_for_chunks(&dir, 6);
    // One program ends while there is no recorder, the others while there is one.
    kill_session(recorder);
    support::signal(pids[0], Signal::KILL);
    wait_until("its end", || !Path::new(&format!("/proc/{}/maps", pids[0])).exists());
    let recorder = start(&mut resume(&dir));
    thread::sleep(Duration::from_millis(300));
    pids[1..].iter().for_each(|pid| support::signal(*pid, Signal::KILL));
    nothing_is_lost(&dir, recorder);
    no_packet_is_missing(&dir);
    let found = found_in(&dir.trace("trace"));
    for (progress, pid) in all.iter().zip(&pids) {
        there_are_no_gaps(&found, progress, *pid);
    }
    chunks_agree(&dir, &found);
}

/// Waits until so many chunks are committed.
pub fn wait_for_chunks(dir: &TestDir, count: usize) {
    wait_until("chunks", || chunks(dir).len() >= count);
}

/// Numbers of one thread in events of a name.
fn numbers(events: &[Event], name: &str, thread: u64) -> Vec<u64> {
    let own = events.iter().filter(|event| event.name == name && event.number("thread") == thread);
    let mut numbers: Vec<u64> = own.map(|event| event.number("number")).collect();
    if name.ends_with("state") {
        // Events of two CPUs can be a little out of order there, as in every recording in chunks.
        numbers.sort_unstable();
    }
    numbers
}

#[test]
fn each_chunk_has_the_initial_state_once_also_what_came_while_the_recorder_was_killed() {
    let dir = TestDir::new();
    let (program, stop) = (dir.program("restated"), dir.path("stop"));
    let recorder = start(&mut dir.recording("trace", &[LINGER, &OFTEN].concat(), &[&program, &stop]));
    wait_until("a recording", || dir.path("trace/.restart/session.json").exists());
    let recorder = kill_again_and_again(&dir, recorder, rounds(30, 300), 0x00c0_ffee);
    thread::sleep(Duration::from_millis(250));
    fs::write(&stop, "").expect("a file");
    nothing_is_lost(&dir, recorder);
    no_packet_is_missing(&dir);
    let events = dir.trace("trace").events();
    let mut states = BTreeMap::new();
    for thread in 0..2 {
        let steps = numbers(&events, "restated:step", thread);
        assert!(steps.iter().copied().eq(1..=steps.len() as u64), "thread {thread}: {} steps", steps.len());
        let all = numbers(&events, "restated:state", thread);
        assert!(!all.is_empty() && all.iter().copied().eq(1..=all.len() as u64), "thread {thread}: {all:?}");
        states.insert(thread, all.len() as u64);
    }
    let mut before = BTreeMap::new();
    for chunk in chunks(&dir).iter().filter(|chunk| chunk.folder.join("user").exists()) {
        let events = chunk.events();
        assert_eq!(chunk.agreed_count(), events.len() as u64);
        for thread in 0..2 {
            let own = numbers(&events, "restated:state", thread);
            let last = own.len() as u64;
            assert!(own.iter().copied().eq(1..=last), "{}: {own:?}", chunk.folder.display());
            let earlier = before.insert(thread, last).unwrap_or(0);
            assert!(last >= earlier && last <= states[&thread], "{last} after {earlier}");
        }
    }
    assert_eq!(before, states, "the last chunk has all");
}

#[test]
fn old_chunks_are_removed_also_by_the_next_recorder() {
    let dir = TestDir::new();
    let options = [LINGER, &OFTEN, &["--keep", "count=3"]].concat();
    let (recorder, progress, pid) = record_emitter(&dir, &options);
    let recorder = kill_again_and_again(&dir, recorder, rounds(10, 100), 99);
    let number = |chunk: &Trace| chunk.manifest()["chunk"]["number"].as_u64();
    wait_until("a fifth chunk", || chunks(&dir).last().and_then(number) >= Some(5));
    support::signal(pid, Signal::KILL);
    nothing_is_lost(&dir, recorder);
    let chunks = chunks(&dir);
    assert_eq!(chunks.len(), 3, "the others were removed");
    let found = found_in(&dir.trace("trace"));
    for (source, returned) in progress.returned().into_iter().enumerate().take(SOURCES) {
        let numbers = numbers_of(&found, source);
        assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "source {source} has holes");
        assert!(numbers.last().is_none_or(|last| (returned..=returned + 1).contains(last)));
    }
    assert!(!found.is_empty());
}

#[test]
fn flight_recorders_in_chunks_keep_their_history_over_restarts() {
    let dir = TestDir::new();
    let program = dir.program("emitter");
    let progress = Progress::new(dir.path("progress"));
    let options = [SHORT_MEMORY, &["--linger", "20s"], &OFTEN].concat();
    let command: [&dyn AsRef<OsStr>; 5] = [&program, &progress.path(), &"2000", &"0", &"0"];
    let mut recorder = start(&mut dir.recording("trace", &options, &command));
    let pid = progress.pid();
    for round in 0..rounds(3, 30) {
        recorder = kill_again_and_again(&dir, recorder, 2, 77 + u64::from(round));
        run(&mut dir.tompion(&["snapshot", "trace"])).succeeded();
        thread::sleep(Duration::from_millis(120));
    }
    support::signal(pid, Signal::KILL);
    finish(recorder, "tompion record --resume").succeeded();
    let found = history_is_sound(&dir, &progress);
    chunks_agree(&dir, &found);
}

/// Thread that asks for something again and again.
pub struct Requests {
    thread: JoinHandle<()>,
    succeeded: Arc<AtomicUsize>,
    done: PathBuf,
}

impl Requests {
    pub fn begin(dir: &TestDir, arguments: &[&str]) -> Self {
        let (control, done) = (dir.path("control"), dir.path("done"));
        let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
        let succeeded = Arc::new(AtomicUsize::new(0));
        let (count, end) = (succeeded.clone(), done.clone());
        let thread = thread::spawn(move || {
            while !end.exists() {
                let finished = run(tompion().args(&arguments).env(CONTROL, &control));
                count.fetch_add(usize::from(finished.status.success()), Ordering::SeqCst);
                thread::sleep(Duration::from_millis(5));
            }
        });
        Self { thread, succeeded, done }
    }

    /// Ends it once a request has succeeded. Returns how many have.
    pub fn end(self) -> usize {
        wait_until("a request that succeeds", || self.succeeded.load(Ordering::SeqCst) > 0);
        fs::write(&self.done, "").expect("a file");
        self.thread.join().expect("no panic");
        self.succeeded.load(Ordering::SeqCst)
    }
}

fn begin_named(dir: &TestDir, options: &[&str]) -> (Child, Progress, u32) {
    let program = dir.program("emitter");
    let progress = Progress::new(dir.path("progress"));
    let command: [&dyn AsRef<OsStr>; 5] = [&program, &progress.path(), &"60000", &"0", &"0"];
    let options = [LINGER, &["--session", "chunked"], options].concat();
    let recorder = start(dir.recording("trace", &options, &command).env(CONTROL, dir.path("control")));
    let pid = progress.pid();
    (recorder, progress, pid)
}

#[test]
fn a_recorder_that_is_killed_while_it_clears_doubles_nothing_and_drops_whole_chunks() {
    let dir = TestDir::new();
    let (recorder, progress, pid) = begin_named(&dir, &["--rotate", "manual"]);
    let clears = Requests::begin(&dir, &["clear", "chunked"]);
    let recorder = kill_again_and_again(&dir, recorder, rounds(20, 300), 4242);
    clears.end();
    thread::sleep(Duration::from_millis(200));
    support::signal(pid, Signal::KILL);
    nothing_is_lost(&dir, recorder);
    no_packet_is_missing(&dir);
    let found = found_in(&dir.trace("trace"));
    for (source, returned) in progress.returned().into_iter().enumerate().take(SOURCES) {
        let numbers = numbers_of(&found, source);
        assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "source {source} has holes");
        assert!(numbers.last().is_none_or(|last| (returned..=returned + 1).contains(last)));
    }
    assert_eq!(chunks(&dir).len(), 1);
    chunks_agree(&dir, &found);
}

#[test]
fn a_recorder_that_is_killed_while_it_rotates_on_request_goes_on_in_the_right_chunk() {
    let dir = TestDir::new();
    let (recorder, progress, pid) = begin_named(&dir, &["--rotate", "manual"]);
    let rotations = Requests::begin(&dir, &["rotate", "chunked"]);
    let recorder = kill_again_and_again(&dir, recorder, rounds(20, 300), 2424);
    let rotations = rotations.end();
    support::signal(pid, Signal::KILL);
    nothing_is_lost(&dir, recorder);
    no_packet_is_missing(&dir);
    assert!(chunks(&dir).len() > rotations, "{rotations} rotations");
    let found = found_in(&dir.trace("trace"));
    there_are_no_gaps(&found, &progress, pid);
    chunks_agree(&dir, &found);
}

/// Kills a recorder and its program, which can't leave the recording before.
fn kill_both(recorder: Child, pid: u32) {
    support::signal(pid, Signal::STOP);
    let has_stopped = || {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("threads").flatten();
        let stat = |entry: fs::DirEntry| fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        threads.map(stat).all(|stat| stat.contains(") T "))
    };
    wait_until("its stop", has_stopped);
    kill_session(recorder);
    support::signal(pid, Signal::KILL);
}

/// Kills a recorder in chunks at some instant, and its program, and recovers the recording.
fn recovers_in_chunks(options: &[&str], delay: Duration) {
    let dir = TestDir::new();
    let (recorder, progress, pid) = record_emitter(&dir, options);
    wait_for_chunks(&dir, 3);
    thread::sleep(delay);
    kill_both(recorder, pid);
    wait_until("its end", || !Path::new(&format!("/proc/{pid}/maps")).exists());
    let said = run(&mut dir.tompion(&["recover", "trace"])).succeeded();
    assert!(said.err.contains("none lost"), "{}", said.err);
    let found = found_in(&dir.trace("trace"));
    there_are_no_gaps(&found, &progress, pid);
    chunks_agree(&dir, &found);
    assert_eq!(dir.trace("trace").manifest()["state"], "recovered");
    no_packet_is_missing(&dir);
    let stat = dir.trace("trace").stat();
    assert!(stat["lost"]["total"] == 0 && stat["losses_unknown"] != true, "{stat:#}");
    let left = dir.path("trace/.restart").exists() || dir.path("rings").exists();
    assert!(!left, "the descriptions are not needed any more");
}

#[test]
fn a_recovery_completes_the_chunk_that_was_open_with_what_the_rings_hold() {
    let mut random = Random(31);
    for _ in 0..rounds(3, 40) {
        let delay = Duration::from_micros(random.below(120_000));
        recovers_in_chunks(&[LINGER, &OFTEN].concat(), delay);
        let rings = kept(&["--subbuf-size", "1M", "--subbufs", "8", "--rotate", "100ms"]);
        recovers_in_chunks(&rings, delay);
    }
}

#[test]
fn a_recovery_of_chunks_that_is_killed_can_be_done_again() {
    let mut random = Random(7);
    let dir = TestDir::new();
    let options = kept(&["--subbuf-size", "1M", "--subbufs", "8", "--rotate", "100ms"]);
    let (recorder, progress, pid) = record_emitter(&dir, &options);
    kill_both(recorder, pid);
    for _ in 0..rounds(10, 100) {
        let mut recovery = start(&mut dir.tompion(&["recover", "trace"]));
        thread::sleep(Duration::from_micros(random.below(30_000)));
        recovery.kill().and_then(|()| recovery.wait()).expect("an end");
    }
    run(&mut dir.tompion(&["recover", "trace"])).succeeded();
    let found = found_in(&dir.trace("trace"));
    there_are_no_gaps(&found, &progress, pid);
    chunks_agree(&dir, &found);
    assert_eq!(count(&dir.trace("trace").events(), "emitter:step"), found.len());
}

#[test]
fn a_recorder_that_comes_back_says_how_often_and_keeps_the_limits_of_chunks() {
    let dir = TestDir::new();
    let (recorder, _, pid) = record_emitter(&dir, &[LINGER, &["--rotate", "size=1M"]].concat());
    kill_session(recorder);
    let recorder = start(&mut resume(&dir));
    wait_for_recorder(&dir, 1);
    let before = chunks(&dir).len();
    wait_until("another chunk", || chunks(&dir).len() > before);
    support::signal(pid, Signal::KILL);
    nothing_is_lost(&dir, recorder);
}
