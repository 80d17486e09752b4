//! Recordings in chunks: each chunk is a trace in itself, and all of them together are the
//! recording, event for event.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use rustix::process::Signal;
use serde_json::Value;
use tompion_reader::LossKind;

use crate::{
    recovery::kill_session,
    support::{Event, Finished, TestDir, Trace, finish, run, start, wait_until},
};

/// Variable with the folder of the sockets: tests don't see each other's recordings.
pub const CONTROL: &str = "TOMPION_CONTROL";
/// Rings that lose nothing when the machine is busy.
const LARGE_RINGS: [&str; 4] = ["--subbuf-size", "1M", "--subbufs", "8"];

/// Numbers of the threads of all processes, by process and thread.
pub type Numbers = BTreeMap<(u64, u64), BTreeSet<u64>>;

fn tompion(dir: &TestDir, arguments: &[&str]) -> Finished {
    run(dir.tompion(arguments).env(CONTROL, dir.path("control")))
}

/// `tompion record -o trace OPTIONS` of processes that count beside each other.
fn record(dir: &TestDir, options: &[&str], (processes, milliseconds, burst): (u32, u32, u32)) -> Command {
    let program = dir.program("paced");
    let script = format!(
        "for i in $(seq {processes}); do {} 2 {milliseconds} {burst} & done; wait",
        program.display()
    );
    let options = [&LARGE_RINGS[..], options].concat();
    let mut command = dir.recording("trace", &options, &[&"sh", &"-c", &script]);
    command.env(CONTROL, dir.path("control"));
    command
}

/// Chunks of the recording that are committed, the oldest first.
pub fn chunks(dir: &TestDir) -> Vec<Trace> {
    let entries = fs::read_dir(dir.path("trace")).into_iter().flatten();
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let is_chunk = |path: &PathBuf| path.is_dir() && path.extension().is_none();
    let mut chunks: Vec<PathBuf> = paths.filter(is_chunk).collect();
    chunks.sort();
    chunks.into_iter().map(|folder| Trace { folder }).collect()
}

/// The numbers in a list of events; each is there once.
pub fn numbers_of(events: &[Event]) -> Numbers {
    let mut numbers = Numbers::new();
    for event in events.iter().filter(|event| event.name == "paced:step") {
        let key = (event.number("process"), event.number("thread"));
        let is_new = numbers.entry(key).or_default().insert(event.number("number"));
        assert!(is_new, "twice: {event:?}");
    }
    numbers
}

/// The numbers that the programs say they have recorded.
fn said(output: &str) -> Numbers {
    let line = |line: &str| {
        let words: Vec<u64> = line.split(' ').map(|word| word.parse().expect("a number")).collect();
        ((words[0], words[1]), (1..=words[2]).collect())
    };
    output.lines().map(line).collect()
}

/// Number of events of a name.
pub fn count(events: &[Event], name: &str) -> usize {
    events.iter().filter(|event| event.name == name).count()
}

pub fn sum(chunks: &[Trace], of: impl Fn(&Value) -> u64) -> u64 {
    let sources = |chunk: &Trace| chunk.manifest()["sources"].as_array().cloned().expect("sources");
    chunks.iter().flat_map(sources).map(|source| of(&source)).sum()
}

#[test]
fn chunks_together_have_each_event_once() {
    let dir = TestDir::new();
    let finished = run(&mut record(&dir, &["--rotate", "200ms"], (3, 1500, 20))).succeeded();
    assert!(finished.err.contains("none lost"), "{}", finished.err);
    let (trace, chunks, said) = (dir.trace("trace"), chunks(&dir), said(&finished.out));
    assert!(chunks.len() >= 6, "{} chunks", chunks.len());
    let events = trace.events();
    assert!(numbers_of(&events) == said, "the union is what the programs have recorded");
    assert_eq!(count(&events, "paced:settings"), 3, "the initial state is there once");
    assert_eq!(trace.agreed_count(), events.len() as u64);
    let mut union = Numbers::new();
    for (index, chunk) in chunks.iter().enumerate() {
        if !chunk.folder.join("user").exists() {
            assert_eq!(index, chunks.len() - 1, "only the last one can be empty");
            continue;
        }
        let (events, manifest) = (chunk.events(), chunk.manifest());
        assert_eq!(manifest["state"], "complete");
        assert_eq!(manifest["chunk"]["number"], index + 1);
        let (begin, end) = (&manifest["chunk"]["begin_ns"], &manifest["chunk"]["end_ns"]);
        assert!(begin.as_i64().expect("a begin") < end.as_i64().expect("an end"));
        for (key, numbers) in numbers_of(&events) {
            assert!(union.entry(key).or_default().is_disjoint(&numbers), "chunk {} repeats some", index + 1);
            union.entry(key).or_default().extend(numbers);
        }
        let recorded: BTreeSet<&str> = events.iter().map(|event| &*event.source).collect();
        assert_eq!(count(&events, "paced:settings"), recorded.len(), "each process has its initial state");
        assert!(manifest["clock"]["samples"].as_array().expect("samples").len() >= 2);
        assert_eq!(chunk.stat()["lost"]["total"], 0);
        assert_eq!(chunk.agreed_count(), events.len() as u64);
    }
    assert!(union == said);
    assert_eq!(sum(&chunks, |source| source["events"].as_u64().unwrap_or(0)), events.len() as u64);
    let stat = trace.stat();
    assert_eq!((stat["lost"]["total"].as_u64(), &stat["lost_packets"]), (Some(0), &0.into()));
    let processes = stat["processes"].as_array().expect("processes");
    let names: Vec<&Value> = processes.iter().filter(|it| it["name"] == "paced").collect();
    assert_eq!(names.len(), 3, "one process is one, in however many chunks: {processes:?}");
    assert!(names.iter().all(|process| process["end"] != "running"), "{names:?}");
    let moved = dir.path("moved");
    fs::rename(&chunks[1].folder, &moved).expect("a chunk");
    assert_eq!(Trace { folder: moved }.stat()["commands"][0]["command_line"][0], "sh");
}

#[test]
fn chunks_end_on_request_and_the_command_names_them() {
    let dir = TestDir::new();
    let options = ["--session", "night", "--rotate", "manual"];
    let recording = start(&mut record(&dir, &options, (1, 1500, 5)));
    wait_until("the session", || dir.path("control/night/control").exists());
    for number in 1..=3 {
        std::thread::sleep(Duration::from_millis(200));
        let line = tompion(&dir, &["rotate", "night"]).succeeded().err;
        let folder = format!("/trace/chunk-00000{number}");
        assert!(line.contains(&folder) && !line.contains(" 0 events"), "{line}");
        let open = dir.path(&format!("trace/chunk-00000{}.open", number + 1));
        assert!(open.is_dir(), "the next one is begun");
    }
    let finished = finish(recording, "record").succeeded();
    assert_eq!(chunks(&dir).len(), 4);
    assert!(numbers_of(&dir.trace("trace").events()) == said(&finished.out));
    let line = tompion(&dir, &["rotate", "night"]).exited(1).err;
    assert!(line.contains("no recording of this user is named night"), "{line}");
}

#[test]
fn a_chunk_whose_manifest_can_not_be_written_keeps_its_counts() {
    let dir = TestDir::new();
    let program = dir.program("numbered");
    let (program, go) = (program.display(), dir.path("go"));
    let go_shown = go.display();
    let script = format!(
        "{program} 1 1000; {program} 1 500; while [ ! -e {go_shown} ]; do sleep 0.05; done; {program} 1 7"
    );
    let options = ["--session", "night", "--rotate", "manual"];
    let mut recording = dir.recording("trace", &options, &[&"sh", &"-c", &script]);
    recording.env(CONTROL, dir.path("control"));
    let recording = start(&mut recording);
    let ended = || {
        let status = tompion(&dir, &["status", "--json", "night"]).out;
        let status: Value = serde_json::from_str(&status).unwrap_or_default();
        status["recordings"][0]["ended_events"].as_u64()
    };
    wait_until("both programs", || ended() == Some(1500));
    // A manifest can't replace a folder.
    let obstacle = dir.path("trace/chunk-000001.open/tompion.json");
    fs::create_dir(&obstacle).expect("a folder");
    tompion(&dir, &["rotate", "night"]);
    fs::remove_dir(&obstacle).expect("a folder");
    fs::write(&go, "").expect("a file");
    finish(recording, "record");
    let chunks = chunks(&dir);
    assert_eq!(chunks.len(), 1);
    assert_eq!(sum(&chunks, |source| source["events"].as_u64().unwrap_or(0)), 1500);
}

#[test]
fn a_recording_that_is_one_trace_does_not_rotate() {
    let dir = TestDir::new();
    let recording = start(&mut record(&dir, &["--session", "plain"], (1, 700, 1)));
    wait_until("the session", || dir.path("control/plain/control").exists());
    let line = tompion(&dir, &["rotate", "plain"]).exited(1).err;
    assert!(line.contains("--rotate manual"), "{line}");
    finish(recording, "record").succeeded();
}

#[test]
fn losses_are_in_the_chunk_in_which_they_happened() {
    let dir = TestDir::new();
    let program = dir.program("numbered");
    let script = format!(
        "{program} 1 300000; sleep 0.5; {program} 1 10; sleep 0.4; {program} 1 300000",
        program = program.display()
    );
    let options = ["--subbuf-size", "4K", "--subbufs", "2", "--rotate", "100ms"];
    let finished = run(&mut dir.recording("trace", &options, &[&"sh", &"-c", &script])).succeeded();
    let (trace, chunks) = (dir.trace("trace"), chunks(&dir));
    let stat = trace.stat();
    let (events, lost) = (stat["events"].as_u64().unwrap_or(0), stat["lost"]["total"].as_u64().unwrap_or(0));
    assert!(lost > 0, "{}", finished.err);
    assert_eq!(events + lost, 600_010, "what was not recorded is counted once");
    let total = |source: &Value| -> u64 {
        source["lost"].as_object().expect("losses").values().filter_map(Value::as_u64).sum()
    };
    assert_eq!(sum(&chunks, total), lost);
    let quiet = chunks.iter().filter(|chunk| sum(std::slice::from_ref(*chunk), total) == 0).count();
    assert!(quiet >= 3, "chunks without a loss say so");
    // Packets tell of the same losses as the manifests.
    let mut traces = tompion_reader::open(std::slice::from_ref(&trace.folder)).expect("traces");
    tompion_reader::stat::summarize(&mut traces);
    let losses = traces.losses().iter().filter(|loss| loss.kind == LossKind::Events);
    let in_packets: u64 = losses.map(|loss| loss.count).sum();
    assert_eq!(in_packets, lost);
}

#[test]
fn the_oldest_chunks_are_removed() {
    let dir = TestDir::new();
    let options = ["--rotate", "100ms", "--keep", "count=2"];
    let finished = run(&mut record(&dir, &options, (1, 900, 5))).succeeded();
    let chunks = chunks(&dir);
    assert_eq!(chunks.len(), 2, "{}", finished.err);
    assert!(chunks[0].manifest()["chunk"]["number"].as_u64() > Some(5));
    let (kept, said) = (numbers_of(&dir.trace("trace").events()), said(&finished.out));
    for (key, numbers) in &kept {
        assert!(numbers.is_subset(&said[key]), "nothing is invented");
        let newest = numbers.last().copied().unwrap_or(0);
        let oldest = numbers.first().copied().unwrap_or(0);
        assert_eq!(numbers.len() as u64, newest - oldest + 1, "no hole in what is left");
        assert_eq!(Some(&newest), said[key].last());
    }
    assert_eq!(dir.trace("trace").stat()["lost"]["total"], 0, "what was removed is no loss");
}

#[test]
fn a_recorder_that_is_killed_leaves_committed_chunks_and_one_to_recover() {
    for delay in [350, 420, 510, 605] {
        let dir = TestDir::new();
        let recording = start(&mut record(&dir, &["--rotate", "100ms"], (2, 3000, 20)));
        wait_until("two chunks", || chunks(&dir).len() >= 2);
        std::thread::sleep(Duration::from_millis(delay));
        kill_session(recording);
        let before: BTreeMap<PathBuf, Value> =
            chunks(&dir).into_iter().map(|chunk| (chunk.folder.clone(), chunk.manifest())).collect();
        run(&mut dir.tompion(&["recover", "trace"])).succeeded();
        let after = chunks(&dir);
        assert!(after.len() >= before.len() && after.len() <= before.len() + 1);
        for (folder, manifest) in &before {
            assert_eq!(&Trace { folder: folder.clone() }.manifest(), manifest, "it was complete");
        }
        assert!(!has_open(&dir.path("trace")), "the last one is committed");
        let trace = dir.trace("trace");
        assert_eq!(trace.manifest()["state"], "recovered");
        assert_eq!(trace.stat()["losses_unknown"], true);
        for numbers in numbers_of(&trace.events()).values() {
            assert_eq!(numbers.len() as u64, *numbers.last().expect("a number"), "no hole before the end");
        }
        let events = sum(&after, |source| source["events"].as_u64().unwrap_or(0));
        assert!(events >= trace.events().len() as u64);
        run(&mut dir.tompion(&["recover", "trace"])).succeeded();
    }
}

pub fn has_open(trace: &Path) -> bool {
    let mut entries = fs::read_dir(trace).expect("a folder");
    entries.any(|entry| entry.expect("an entry").file_name().to_string_lossy().ends_with(".open"))
}

#[test]
fn an_open_chunk_can_be_read() {
    let dir = TestDir::new();
    let recording = start(&mut record(&dir, &["--rotate", "300ms"], (1, 2500, 5)));
    wait_until("two chunks", || chunks(&dir).len() >= 2);
    // The open chunk has what is older than half a second at the latest; the rest is committed.
    std::thread::sleep(Duration::from_millis(100));
    let numbers = numbers_of(&dir.trace("trace").events());
    for numbers in numbers.values() {
        assert_eq!(numbers.len() as u64, *numbers.last().expect("a number"), "no hole before the end");
    }
    assert!(!numbers.is_empty());
    crate::support::signal(recording.id(), Signal::INT);
    finish(recording, "record");
}
