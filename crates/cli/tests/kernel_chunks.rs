//! Recordings of the kernel in chunks: each chunk is a trace in itself, with its initial state and
//! its stacks, and all of them together are the recording.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs,
    path::PathBuf,
    process::Command,
    time::Duration,
};

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    chunks::{CONTROL, chunks, count, has_open, sum},
    kernel::{lost, permitted, source},
    kernel_stacks,
    recovery::kill_session,
    support::{Event, Finished, TestDir, Trace, finish, run, signal, start, wait_until},
};

fn tompion(dir: &TestDir, arguments: &[&str]) -> Finished {
    run(dir.tompion(arguments).env(CONTROL, dir.path("control")))
}

fn record(dir: &TestDir, options: &[&str], command: &[&dyn AsRef<OsStr>]) -> Command {
    let mut recording = dir.recording("trace", options, command);
    recording.env(CONTROL, dir.path("control"));
    recording
}

/// `CALLS` times getpgid(), some milliseconds nothing, and that again, `ROUNDS` times.
fn calls_in_rounds(dir: &TestDir, calls: u64, rounds: u64) -> String {
    let program = dir.program("known_counts");
    let program = program.display();
    format!("for i in $(seq {rounds}); do {program} only {calls}; sleep 0.02; done")
}

fn losses_of(source: &Value) -> u64 {
    lost(source)
}

fn events_of(source: &Value) -> u64 {
    source["events"].as_u64().unwrap_or(0)
}

/// Counts of events by name.
fn by_name(events: &[Event]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    events.iter().for_each(|event| *counts.entry(event.name.as_str()).or_default() += 1);
    counts
}

#[test]
fn chunks_together_have_each_call_once_and_each_has_the_initial_state() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let script = calls_in_rounds(&dir, 5000, 40);
    let kernel = "-ksyscall_*_getpgid,sched_process_*,lttng_statedump_*";
    let options = [kernel, "--subbuf-size", "1M", "--subbufs", "4", "--rotate", "150ms"];
    run(&mut record(&dir, &options, &[&"sh", &"-c", &script])).succeeded();
    let (trace, chunks) = (dir.trace("trace"), chunks(&dir));
    assert!(chunks.len() >= 5, "{} chunks", chunks.len());
    let union = trace.events();
    let counts = by_name(&union);
    for name in ["syscall_entry_getpgid", "syscall_exit_getpgid"] {
        assert_eq!(counts[name], 200_000, "{counts:?}");
    }
    // Each round executes two programs, and the shell is one. Others' are recorded, too.
    assert!(counts["sched_process_exec"] > 2 * 40);
    assert_eq!((counts["lttng_statedump_start"], counts["lttng_statedump_end"]), (1, 1));
    assert_eq!(trace.agreed_count(), union.len() as u64);
    assert_eq!(trace.stat()["lost"]["total"], 0);
    assert_eq!(sum(&chunks, events_of), union.len() as u64, "manifests have each event once");
    let mut of_chunks = BTreeMap::<String, usize>::new();
    for (number, chunk) in chunks.iter().enumerate() {
        let manifest = chunk.manifest();
        assert_eq!(manifest["state"], "complete");
        if !chunk.folder.join("kernel/metadata").exists() {
            let others = &chunks[number..];
            let is_empty = |chunk: &Trace| !chunk.folder.join("kernel").exists();
            assert!(others.iter().all(is_empty), "only the last ones can be empty");
            break;
        }
        assert_eq!(losses_of(&source(&manifest)), 0);
        let events = chunk.events();
        assert_eq!(count(&events, "lttng_statedump_start"), 1, "chunk {}", number + 1);
        let state = counts.get("lttng_statedump_process_state").copied();
        assert_eq!(Some(count(&events, "lttng_statedump_process_state")), state, "all of it");
        assert_eq!(chunk.agreed_count(), events.len() as u64);
        assert_eq!((&chunk.stat()["lost"]["total"], &chunk.stat()["lost_packets"]), (&0.into(), &0.into()));
        for (name, count) in by_name(&events).iter().filter(|(name, _)| !name.starts_with("lttng_")) {
            *of_chunks.entry((*name).to_owned()).or_default() += count;
        }
    }
    let state = |name: &str| name.starts_with("lttng_");
    let of_union = counts.iter().filter(|(name, _)| !state(name));
    assert_eq!(of_chunks, of_union.map(|(name, count)| ((*name).to_owned(), *count)).collect());
}

#[test]
fn a_chunk_alone_has_the_stacks_of_its_events() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    kernel_stacks::program(&dir);
    let options = ["-k", "syscall_*_getpgid", "-c", "kstack,ustack", "--rotate", "100ms"];
    let script = "for i in 1 2 3 4 5; do ./stacks 100 linger; done";
    run(&mut record(&dir, &options, &[&"sh", &"-c", &script])).succeeded();
    let mut calls = 0;
    for chunk in chunks(&dir).iter().filter(|chunk| chunk.folder.join("kernel/metadata").exists()) {
        let lines = kernel_stacks::lines(chunk);
        for (event, stacks) in lines.iter().filter(|(event, _)| event.name.starts_with("syscall_")) {
            let user = kernel_stacks::functions(stacks, "user");
            assert_eq!(user[..4], ["inner", "middle", "outer", "main"], "{event:?}");
            assert!(!kernel_stacks::functions(stacks, "kernel").is_empty(), "{event:?}");
            calls += 1;
        }
        kernel_stacks::each_stack_is_described_once(&lines);
    }
    assert_eq!(calls, 1000);
    kernel_stacks::each_stack_is_described_once(&kernel_stacks::lines(&dir.trace("trace")));
}

#[test]
fn losses_are_in_one_chunk_each() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let script = calls_in_rounds(&dir, 100_000, 8);
    let options = ["-ksyscall_entry_getpgid", "--subbuf-size", "64K", "--subbufs", "2", "--rotate", "100ms"];
    run(&mut record(&dir, &options, &[&"sh", &"-c", &script])).succeeded();
    let (trace, chunks) = (dir.trace("trace"), chunks(&dir));
    assert!(chunks.len() >= 3, "{} chunks", chunks.len());
    let found = trace.agreed_count();
    let lost = sum(&chunks, losses_of);
    println!("{found} calls in {} chunks, {lost} lost", chunks.len());
    assert_eq!(found + lost, 800_000);
    assert_eq!((sum(&chunks, events_of), trace.stat()["lost"]["total"].as_u64()), (found, Some(lost)));
    // Packets tell of the same losses as the manifests.
    let mut traces = tompion_reader::open(std::slice::from_ref(&trace.folder)).expect("traces");
    tompion_reader::stat::summarize(&mut traces);
    let is_events = |loss: &&tompion_reader::Loss| loss.kind == tompion_reader::LossKind::Events;
    let in_packets: u64 = traces.losses().iter().filter(is_events).map(|loss| loss.count).sum();
    assert_eq!(in_packets, lost);
}

#[test]
fn chunks_of_a_size_go_on_although_the_initial_state_is_larger() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let script = calls_in_rounds(&dir, 20_000, 20);
    let options = ["-k", "syscall_*_getpgid,lttng_statedump_*", "--subbuf-size", "1M", "--rotate", "size=1M"];
    run(&mut record(&dir, &options, &[&"sh", &"-c", &script])).succeeded();
    let (trace, chunks) = (dir.trace("trace"), chunks(&dir));
    let bytes = 2 * 400_000 * 20;
    assert!((4..=2 + bytes / 1_000_000).contains(&chunks.len()), "{} chunks", chunks.len());
    let events = trace.events();
    let found = count(&events, "syscall_entry_getpgid") + count(&events, "syscall_exit_getpgid");
    assert_eq!(found as u64 + sum(&chunks, losses_of), 800_000);
}

#[test]
fn a_recorder_that_is_killed_leaves_an_open_chunk_of_the_kernel_to_recover() {
    if !permitted() {
        return;
    }
    for delay in [320, 470] {
        let dir = TestDir::new();
        let script = calls_in_rounds(&dir, 2000, 1000);
        let options = ["-k", "syscall_entry_getpgid,lttng_statedump_*", "--rotate", "100ms"];
        let recording = start(&mut record(&dir, &options, &[&"sh", &"-c", &script]));
        wait_until("two chunks", || chunks(&dir).len() >= 2);
        std::thread::sleep(Duration::from_millis(delay));
        kill_session(recording);
        let before: BTreeMap<PathBuf, Value> =
            chunks(&dir).into_iter().map(|chunk| (chunk.folder.clone(), chunk.manifest())).collect();
        run(&mut dir.tompion(&["recover", "trace"])).succeeded();
        let trace = dir.trace("trace");
        assert!(!has_open(&trace.folder), "the last one is committed");
        for (folder, manifest) in &before {
            assert_eq!(&Trace { folder: folder.clone() }.manifest(), manifest, "it was complete");
        }
        assert_eq!(trace.manifest()["state"], "recovered");
        assert_eq!(trace.stat()["losses_unknown"], true);
        let events = trace.events();
        assert_eq!(trace.agreed_count(), events.len() as u64);
        assert_eq!(count(&events, "lttng_statedump_start"), 1);
        let after = chunks(&dir);
        assert!(sum(&after, events_of) >= events.len() as u64);
        let newest = after.last().expect("chunks");
        if newest.folder.join("kernel/metadata").exists() {
            let manifest = newest.manifest();
            assert!(events_of(&source(&manifest)) > 0 && losses_of(&source(&manifest)) == 0, "{manifest}");
        }
    }
}

#[test]
fn a_flight_recorder_saves_the_kernel_into_the_open_chunk_and_clears_it() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let program = dir.program("known_counts").display().to_string();
    let go = |number: u32| dir.path(&format!("go-{number}"));
    let script: Vec<String> = (1..=4)
        .map(|number| {
            let calls = 1000 * number;
            let go = go(number).display().to_string();
            format!("{program} only {calls}; touch {go}.done; while [ ! -e {go} ]; do sleep 0.02; done")
        })
        .collect();
    let options =
        ["-ksyscall_entry_getpgid", "--mode", "overwrite", "--session", "night", "--rotate", "manual"];
    let recording = start(&mut record(&dir, &options, &[&"sh", &"-c", &script.join("; ")]));
    let done = |number: u32| {
        let path = PathBuf::from(format!("{}.done", go(number).display()));
        wait_until("the calls", || path.exists());
    };
    let go_on = |number: u32| fs::write(go(number), "").expect("a file");
    done(1);
    let saved = tompion(&dir, &["snapshot", "night"]).succeeded().err;
    assert!(saved.contains("1,000 events") || saved.contains("1000 events"), "{saved}");
    go_on(1);
    done(2);
    // What was not saved stays in the rings, for the next chunk.
    tompion(&dir, &["rotate", "night"]).succeeded();
    tompion(&dir, &["snapshot", "night"]).succeeded();
    tompion(&dir, &["rotate", "night"]).succeeded();
    go_on(2);
    done(3);
    tompion(&dir, &["snapshot", "night"]).succeeded();
    tompion(&dir, &["clear", "night"]).succeeded();
    go_on(3);
    done(4);
    tompion(&dir, &["snapshot", "night"]).succeeded();
    go_on(4);
    finish(recording, "record").succeeded();
    let (trace, chunks) = (dir.trace("trace"), chunks(&dir));
    let events: Vec<u64> = chunks.iter().map(|chunk| sum(std::slice::from_ref(chunk), events_of)).collect();
    assert_eq!(events, [1000, 2000, 4000], "the third thousands were dropped");
    assert_eq!(trace.agreed_count(), 7000);
    let stat = trace.stat();
    assert_eq!((&stat["lost"]["total"], &stat["lost_packets"]), (&0.into(), &0.into()), "{stat}");
}

#[test]
fn the_oldest_chunks_are_removed_and_the_rest_is_a_trace() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let script = calls_in_rounds(&dir, 3000, 60);
    let options = ["-k", "syscall_entry_getpgid,lttng_statedump_*", "--rotate", "100ms", "--keep", "count=6"];
    run(&mut record(&dir, &options, &[&"sh", &"-c", &script])).succeeded();
    let (trace, chunks) = (dir.trace("trace"), chunks(&dir));
    // The last ones may be empty: the recording ends some time after the program.
    assert_eq!(chunks.len(), 6);
    assert!(chunks[0].manifest()["chunk"]["number"].as_u64() > Some(1));
    let events = trace.events();
    assert_eq!(count(&events, "lttng_statedump_start"), 1, "the state is still there");
    assert_eq!(trace.agreed_count(), events.len() as u64);
    assert_eq!(trace.stat()["lost"]["total"], 0, "what was removed is no loss");
}

#[test]
fn programs_and_the_kernel_rotate_together() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let program = dir.program("order").display().to_string();
    let script = format!("for i in $(seq 15); do {program} 400; sleep 0.02; done");
    let options = ["-k", "syscall_*_getpgid", "-e", "order:*", "--subbuf-size", "1M", "--rotate", "100ms"];
    let recording = start(&mut record(&dir, &options, &[&"sh", &"-c", &script]));
    finish(recording, "record").succeeded();
    let trace = dir.trace("trace");
    let counts = trace.events();
    for name in ["order:before", "order:after", "syscall_entry_getpgid", "syscall_exit_getpgid"] {
        assert_eq!(count(&counts, name), 15 * 400, "{name}");
    }
    let numbers: BTreeSet<u64> =
        chunks(&dir).iter().filter_map(|chunk| chunk.manifest()["chunk"]["number"].as_u64()).collect();
    assert!(numbers.len() >= 4, "{numbers:?}");
    assert_eq!(trace.agreed_count(), 4 * 15 * 400);
}

#[test]
fn an_interrupt_ends_the_last_chunk() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let script = calls_in_rounds(&dir, 1000, 1000);
    let options = ["-k", "syscall_entry_getpgid", "--rotate", "100ms"];
    let recording = start(&mut record(&dir, &options, &[&"sh", &"-c", &script]));
    wait_until("chunks", || chunks(&dir).len() >= 3);
    signal(recording.id(), Signal::INT);
    finish(recording, "record");
    let trace = dir.trace("trace");
    assert!(!has_open(&trace.folder));
    assert_eq!(sum(&chunks(&dir), events_of), trace.agreed_count());
}

#[test]
fn a_chunk_of_the_kernel_whose_manifest_can_not_be_written_keeps_its_counts() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let program = dir.program("known_counts").display().to_string();
    let (first, go) = (dir.path("first"), dir.path("go"));
    let script = format!(
        "{program} only 1000; touch {}; while [ ! -e {} ]; do sleep 0.02; done; {program} only 500",
        first.display(),
        go.display()
    );
    let options = ["-k", "syscall_entry_getpgid", "--session", "night", "--rotate", "manual"];
    let recording = start(&mut record(&dir, &options, &[&"sh", &"-c", &script]));
    wait_until("the first calls", || first.exists());
    // A manifest can't replace a folder.
    let obstacle = dir.path("trace/chunk-000001.open/tompion.json");
    fs::create_dir(&obstacle).expect("a folder");
    tompion(&dir, &["rotate", "night"]);
    fs::remove_dir(&obstacle).expect("a folder");
    fs::write(&go, "").expect("a file");
    let finished = finish(recording, "record");
    assert!(finished.err.contains("stopped"), "{}", finished.err);
    let chunks = chunks(&dir);
    assert_eq!(chunks.len(), 1);
    let source = source(&chunks[0].manifest());
    assert_eq!((events_of(&source), losses_of(&source)), (1000, 500), "{source}");
}
