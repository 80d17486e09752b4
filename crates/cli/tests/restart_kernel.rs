//! Recorders of kernel events that are killed and started again (`--linger`, `--resume`): each call
//! of a program is in the trace exactly once, or counted as lost.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs,
    process::Child,
    thread,
    time::Duration,
};

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    calls::installed_strace,
    chunks::{CONTROL, chunks, sum},
    kernel::{lost, permitted, source},
    kills::Progress,
    recovery::kill_session,
    restart::{keepers, kill_again_and_again, nothing_is_lost, restarts_of, resume, wait_for_recorder},
    restart_chunks::{Requests, no_packet_is_missing, wait_for_chunks},
    restart_syscalls::{self, KillAt},
    support::{self, Event, Finished, TestDir, finish, rounds, run, start, wait_until},
};

/// Rings that hold what comes while there is no recorder, and a time in which it is back.
const LINGER: [&str; 6] = ["--linger", "20s", "--subbuf-size", "1M", "--subbufs", "8"];
/// Calls of both threads of the program: entries and exits.
const CALLS: &str = "syscall_*_getpgid";
/// The same, and the initial state.
const CALLS_AND_STATE: &str = "syscall_*_getpgid,lttng_statedump_*";
/// As in `programs/numbered_calls.c`.
const FIRST: u64 = 1 << 23;
const NUMBERS_OF_THREAD: u64 = 1 << 24;

/// Begins to record a program that makes calls until it is killed.
fn begin(dir: &TestDir, options: &[&str], burst: &str) -> (Child, Progress, u32) {
    let program = dir.program("numbered_calls");
    let progress = Progress::new(dir.path("progress"));
    let command: [&dyn AsRef<OsStr>; 3] = [&program, &progress.path(), &burst];
    let mut recording = dir.recording("trace", options, &command);
    let recorder = start(recording.env(CONTROL, dir.path("control")));
    let pid = progress.pid();
    thread::sleep(Duration::from_millis(200));
    (recorder, progress, pid)
}

/// Numbers of both threads' calls, of their entries in the order of the trace.
fn numbers(events: &[Event]) -> [Vec<u64>; 2] {
    let entries = events.iter().filter(|event| event.name == "syscall_entry_getpgid");
    let all: Vec<u64> = entries.map(|event| event.number("pid")).filter(|number| *number >= FIRST).collect();
    let of = |thread: u64| {
        let first = FIRST + thread * NUMBERS_OF_THREAD;
        let own = all.iter().filter(|number| (first..first + NUMBERS_OF_THREAD).contains(number));
        own.map(|number| number - first).collect()
    };
    [of(0), of(1)]
}

fn count(events: &[Event], name: &str) -> u64 {
    events.iter().filter(|event| event.name == name).count() as u64
}

/// Asserts that each call is there once, with its exit.
fn each_call_is_there_once(events: &[Event], progress: &Progress) {
    let returned = progress.returned();
    for (thread, numbers) in numbers(events).into_iter().enumerate() {
        let last = numbers.len() as u64;
        let wrong = numbers.iter().copied().zip(1..).find(|(found, expected)| found != expected);
        assert_eq!(wrong, None, "thread {thread}: found and expected");
        assert!((returned[thread]..=returned[thread] + 1).contains(&last), "thread {thread}: {last}");
    }
    let (entries, exits) = (count(events, "syscall_entry_getpgid"), count(events, "syscall_exit_getpgid"));
    assert!((entries - 2..=entries).contains(&exits), "{entries} entries, {exits} exits");
}

/// Ends the program, and with it the recording.
fn end(dir: &TestDir, recorder: Child, pid: u32) -> (Finished, Vec<Event>) {
    thread::sleep(Duration::from_millis(300));
    support::signal(pid, Signal::KILL);
    let said = nothing_is_lost(dir, recorder);
    no_packet_is_missing(dir);
    let trace = dir.trace("trace");
    let events = trace.events();
    assert_eq!(trace.babeltrace().out.lines().count(), events.len());
    assert_eq!(trace.stat()["events"], events.len());
    (said, events)
}

#[test]
fn kernel_events_of_a_recorder_that_is_killed_again_and_again_are_there_once() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let (recorder, progress, pid) = begin(&dir, &[&LINGER[..], &["-k", CALLS_AND_STATE]].concat(), "4");
    let recorder = kill_again_and_again(&dir, recorder, rounds(10, 300), 0x9e37_79b9);
    let (said, events) = end(&dir, recorder, pid);
    each_call_is_there_once(&events, &progress);
    let manifest = dir.trace("trace").manifest();
    assert_eq!(source(&manifest)["events"], events.len(), "{}", said.err);
    assert!(count(&events, "lttng_statedump_process_state") > 0);
    assert_eq!(manifest["problems"].as_array().map_or(0, Vec::len), 0, "{manifest:#}");
}

#[test]
fn kernel_events_in_chunks_of_a_recorder_that_is_killed_are_in_one_chunk_each() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let options = [&LINGER[..], &["--rotate", "100ms", "-k", CALLS_AND_STATE]].concat();
    let (recorder, progress, pid) = begin(&dir, &options, "4");
    let recorder = kill_again_and_again(&dir, recorder, rounds(12, 300), 0x0bad_cafe);
    wait_for_chunks(&dir, 4);
    let (_, together) = end(&dir, recorder, pid);
    each_call_is_there_once(&together, &progress);
    chunks_agree(&dir, &together);
}

/// Asserts that chunks, each alone, have what they have together, and that manifests count it once.
fn chunks_agree(dir: &TestDir, together: &[Event]) {
    let (chunks, mut all) = (chunks(dir), Vec::new());
    for chunk in chunks.iter().filter(|chunk| chunk.folder.join("kernel/metadata").exists()) {
        let events = chunk.events();
        assert_eq!(chunk.agreed_count(), events.len() as u64, "{}", chunk.folder.display());
        all.extend(numbers(&events).concat());
    }
    all.sort_unstable();
    let mut expected = numbers(together).concat();
    expected.sort_unstable();
    assert!(all == expected, "each call is in one chunk: {} and {}", all.len(), expected.len());
    let counted = sum(&chunks, |source| source["events"].as_u64().unwrap_or(0));
    assert_eq!(counted, together.len() as u64, "manifests and packets");
}

#[test]
fn kernel_events_of_a_recorder_that_is_killed_while_it_clears_are_not_doubled() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let options = [&LINGER[..], &["--session", "cleared-kernel", "--rotate", "manual", "-k", CALLS]].concat();
    let (recorder, progress, pid) = begin(&dir, &options, "4");
    let clears = Requests::begin(&dir, &["clear", "cleared-kernel"]);
    let recorder = kill_again_and_again(&dir, recorder, rounds(6, 200), 4242);
    clears.end();
    let (_, events) = end(&dir, recorder, pid);
    for (thread, numbers) in numbers(&events).into_iter().enumerate() {
        assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "thread {thread} has holes");
        let returned = progress.returned()[thread];
        assert!(numbers.last().is_none_or(|last| (returned..=returned + 1).contains(last)));
    }
    chunks_agree(&dir, &events);
}

#[test]
fn a_flight_recorder_of_the_kernel_that_is_killed_keeps_its_history() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let options = ["--mode", "overwrite", "--linger", "20s", "--subbuf-size", "1M", "--subbufs", "4"];
    let options = [&options[..], &["--session", "kernel-history", "-k", CALLS]].concat();
    let (recorder, progress, pid) = begin(&dir, &options, "4");
    let tompion = |arguments: &[&str]| {
        run(dir.tompion(arguments).env(CONTROL, dir.path("control"))).succeeded();
    };
    tompion(&["snapshot", "kernel-history"]);
    kill_session(recorder);
    let recorder = start(&mut resume(&dir));
    wait_for_recorder(&dir, 1);
    tompion(&["snapshot", "kernel-history"]);
    let cleared = progress.returned();
    tompion(&["clear", "kernel-history"]);
    kill_session(recorder);
    let recorder = start(&mut resume(&dir));
    wait_for_recorder(&dir, 2);
    thread::sleep(Duration::from_millis(300));
    support::signal(pid, Signal::KILL);
    finish(recorder, "tompion record --resume").succeeded();
    let trace = dir.trace("trace");
    let events = trace.events();
    assert_eq!(trace.agreed_count(), events.len() as u64);
    for (thread, numbers) in numbers(&events).into_iter().enumerate() {
        // What was cleared is passed over, and nothing is there twice.
        assert!(numbers.windows(2).all(|pair| pair[1] > pair[0]), "thread {thread}");
        let holes: Vec<_> = numbers.windows(2).filter(|pair| pair[1] != pair[0] + 1).collect();
        assert!(holes.iter().all(|pair| pair[1] >= cleared[thread]), "thread {thread}: {holes:?}");
        assert!(holes.len() <= 1, "thread {thread}: {holes:?}");
        assert!(numbers.last() >= Some(&progress.returned()[thread]), "thread {thread}");
    }
    let source = source(&trace.manifest());
    assert_eq!((lost(&source), source["events"].as_u64()), (0, Some(events.len() as u64)));
}

/// Asserts that each number of a stack is described once, and returns how many events have one.
fn stacks_are_described(events: &[Event]) -> usize {
    let mut described = BTreeMap::<u64, &Event>::new();
    for event in events.iter().filter(|event| event.name.starts_with("tompion_stack_")) {
        let before = described.insert(event.number("id"), event);
        assert!(before.is_none(), "{before:?} and {event:?}");
    }
    let numbers = |field: &str| {
        let calls = events.iter().filter(|event| event.name.starts_with("syscall_"));
        let all = calls.filter_map(|event| event.context[field].as_u64());
        all.filter(|number| *number != 0).collect::<Vec<_>>()
    };
    let (kernel, user) = (numbers("stack_kernel"), numbers("stack_user"));
    let used: BTreeSet<u64> = kernel.iter().chain(&user).copied().collect();
    assert!(used.iter().all(|number| described.contains_key(number)), "a stack without a description");
    kernel.len()
}

#[test]
fn stacks_are_described_again_by_the_next_recorder() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let options = [&LINGER[..], &["-c", "kstack,ustack", "-k", CALLS]].concat();
    let (recorder, progress, pid) = begin(&dir, &options, "2");
    let recorder = kill_again_and_again(&dir, recorder, rounds(5, 100), 77);
    let (_, events) = end(&dir, recorder, pid);
    each_call_is_there_once(&events, &progress);
    let calls = count(&events, "syscall_entry_getpgid") + count(&events, "syscall_exit_getpgid");
    let with_stack = stacks_are_described(&events) as u64;
    // Those that waited in the rings at a kill have none, which a problem counts.
    let problems = dir.trace("trace").manifest()["problems"].to_string();
    assert!(with_stack > calls / 4, "{with_stack} of {calls} have a stack");
    assert!(
        with_stack == calls || problems.contains("without a stack"),
        "{with_stack} of {calls}: {problems}"
    );
}

#[test]
fn calls_that_find_full_rings_are_counted_once_also_over_kills() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let options =
        ["--linger", "20s", "--subbuf-size", "64K", "--subbufs", "2", "-k", "syscall_entry_getpgid"];
    let (recorder, progress, pid) = begin(&dir, &options, "1000");
    let recorder = kill_again_and_again(&dir, recorder, rounds(4, 100), 99);
    support::signal(pid, Signal::KILL);
    finish(recorder, "tompion record --resume").succeeded();
    let trace = dir.trace("trace");
    let found = numbers(&trace.events());
    assert!(found.iter().all(|numbers| numbers.windows(2).all(|pair| pair[1] > pair[0])));
    let lost = lost(&source(&trace.manifest()));
    let made: u64 = progress.returned()[..2].iter().sum();
    let accounted = found.iter().map(|numbers| numbers.len() as u64).sum::<u64>() + lost;
    assert!((made..=made + 2).contains(&accounted), "{accounted} found and lost, {made} made, {lost} lost");
    assert!(lost > 0 && trace.stat()["lost"]["total"].as_u64() == Some(lost), "{lost}");
}

#[test]
fn rings_from_which_nothing_passes_have_room_all_the_same() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    // A pattern with a star inside is left to the reader.
    let options = ["--linger", "20s", "--subbuf-size", "64K", "--subbufs", "2"];
    let choice =
        ["-k", "syscall_entry_openat,syscall_entry_getpgid", "--filter", "filename == \"*no*such*\""];
    let script =
        r#"for i in $(seq 400); do cat /dev/null /dev/null /dev/null; done; cat /no/such/file || true"#;
    let trace = dir.record(&[&options[..], &choice].concat(), &[&"sh", &"-c", &script]);
    let source = source(&trace.manifest());
    assert_eq!((lost(&source), source["events"].as_u64()), (0, Some(1)), "{source}");
    assert_eq!(trace.agreed_count(), 1);
}

#[test]
fn a_recovery_completes_the_kernels_trace_from_the_rings() {
    if !permitted() {
        return;
    }
    for options in [&[][..], &["--rotate", "150ms"]] {
        let dir = TestDir::new();
        let (recorder, progress, pid) = begin(&dir, &[&LINGER[..], options, &["-k", CALLS]].concat(), "4");
        thread::sleep(Duration::from_millis(400));
        kill_session(recorder);
        thread::sleep(Duration::from_millis(200));
        support::signal(pid, Signal::KILL);
        run(&mut dir.tompion(&["recover", "trace"])).succeeded();
        let trace = dir.trace("trace");
        assert_eq!(trace.manifest()["state"], "recovered");
        assert!(!trace.manifest()["losses_unknown"].as_bool().unwrap_or(false), "{:#}", trace.manifest());
        let events = trace.events();
        each_call_is_there_once(&events, &progress);
        if !options.is_empty() {
            chunks_agree(&dir, &events);
        }
    }
}

#[test]
fn another_version_does_not_read_on_and_says_so() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let (recorder, _, pid) = begin(&dir, &[&LINGER[..], &["-k", CALLS]].concat(), "4");
    let has_packet =
        |entry: fs::DirEntry| entry.metadata().is_ok_and(|file| file.is_file() && file.len() > 0);
    wait_until("a packet", || {
        let files = fs::read_dir(dir.path("trace/kernel")).into_iter().flatten().flatten();
        files.filter(|entry| entry.file_name().to_string_lossy().starts_with("stream_")).any(has_packet)
    });
    kill_session(recorder);
    let path = dir.path("trace/.restart/kernel/kernel.json");
    let mut saved: Value = serde_json::from_slice(&fs::read(&path).expect("a state")).expect("JSON");
    saved["tompion"] = "0.0.1".into();
    fs::write(&path, saved.to_string()).expect("another version");
    let recorder = start(&mut resume(&dir));
    wait_for_recorder(&dir, 1);
    support::signal(pid, Signal::KILL);
    let said = finish(recorder, "tompion record --resume").succeeded();
    let line = said.err.lines().filter(|line| line.contains("kernel events end")).collect::<Vec<_>>();
    assert_eq!(line.len(), 1, "{}", said.err);
    assert!(line[0].contains("found those of tompion 0.0.1"), "{}", line[0]);
    let manifest = dir.trace("trace").manifest();
    assert!(!manifest["kernel"].as_bool().unwrap_or(false), "{manifest:#}");
    assert_eq!(manifest["losses_unknown"], true);
    assert!(dir.trace("trace").agreed_count() > 0);
}

#[test]
fn other_kernel_events_can_not_be_chosen_after_a_restart() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let options = [&LINGER[..], &["--session", "kernel-rules", "-k", CALLS]].concat();
    let (recorder, progress, pid) = begin(&dir, &options, "4");
    let rules = |events: &str| {
        let kernel = format!("--kernel={events}");
        run(dir.tompion(&["rules", "kernel-rules", &kernel]).env(CONTROL, dir.path("control")))
    };
    rules("syscall_*_getpgid,timer_start").succeeded();
    kill_session(recorder);
    let recorder = start(&mut resume(&dir));
    wait_for_recorder(&dir, 1);
    let refused = rules("syscall_*_getpgid");
    assert!(!refused.status.success() && refused.err.contains("after a restart"), "{}", refused.err);
    let (_, events) = end(&dir, recorder, pid);
    each_call_is_there_once(&events, &progress);
    assert!(count(&events, "timer_start") > 0, "a tracepoint that was added before the kill");
}

#[test]
fn a_recorder_of_kernel_events_that_is_killed_at_its_system_calls_loses_and_doubles_nothing() {
    if !permitted() || !installed_strace() {
        return;
    }
    for options in [&[][..], &["--rotate", "100ms"]] {
        let dir = TestDir::new();
        let (recorder, progress, pid) = begin(&dir, &[&LINGER[..], options, &["-k", CALLS]].concat(), "1");
        kill_session(recorder);
        restart_syscalls::kill_at_calls(&dir, KillAt { times: rounds(5, 2000), most: 5000, seed: 0x5eed });
        let before = restarts_of(&dir);
        let recorder = start(&mut resume(&dir));
        wait_for_recorder(&dir, before + 1);
        let (_, events) = end(&dir, recorder, pid);
        each_call_is_there_once(&events, &progress);
    }
}

#[test]
fn kernel_events_end_with_the_keeper_and_the_loss_is_said() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let (recorder, _, pid) = begin(&dir, &["--linger", "300ms", "-k", CALLS], "1");
    kill_session(recorder);
    wait_until("the keeper's end", || keepers(&dir).is_empty());
    support::signal(pid, Signal::KILL);
    let said = run(&mut resume(&dir)).exited(125);
    assert!(said.err.contains("no keeper answers, so what the rings held is lost"), "{}", said.err);
    run(&mut dir.tompion(&["recover", "trace"])).succeeded();
    assert_eq!(dir.trace("trace").manifest()["losses_unknown"], true);
}
