//! Processes that end as soon as they have begun, many of them: all are recorded, and the trace has
//! few files.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs,
    path::Path,
    process::Command,
};

use crate::{
    recovery::kill_session,
    support::{TOMPION, TestDir, installed, rounds, run, start, wait_until},
};

/// Files and folders of a recording may be so many, however many processes there were.
const MAX_FILES: usize = 200;

/// Files and folders below a folder.
fn files_below(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    entries.map(|path| 1 + if path.is_dir() { files_below(&path) } else { 0 }).sum()
}

/// Returns a script that starts this many short processes, one after another.
fn script(count: u32) -> String {
    format!("i=0; while [ $i -lt {count} ]; do x=$(echo hi); i=$((i+1)); done")
}

#[test]
fn hundreds_of_short_processes_are_recorded_in_few_files() {
    let dir = TestDir::new();
    let count = rounds(200, 800);
    let trace = dir.record(&["--preload", "malloc"], &[&"bash", &"-c", &script(count)]);

    let sources = trace.manifest()["sources"].as_array().expect("sources").clone();
    assert_eq!(sources.len(), count as usize + 1, "the shell and its children");
    assert_eq!((trace.left_out(), &trace.stat()["lost"]["total"]), (0, &0.into()));
    let files = files_below(&trace.folder);
    assert!(files <= MAX_FILES, "{files} files for {} processes", sources.len());

    // Each event says whose it is, by itself or by its trace, as often as the recording says.
    let mut by_pid = BTreeMap::<u64, u64>::new();
    for event in trace.events() {
        let of_trace = event.source.rsplit('-').next().and_then(|pid| pid.parse().ok());
        let pid = event.context["vpid"].as_u64().or(of_trace).expect("a process");
        *by_pid.entry(pid).or_default() += 1;
        if event.context["vpid"].is_u64() {
            assert_eq!(event.context["procname"], "bash");
            assert_eq!(event.context["vpid"], event.context["vtid"], "it has one thread with events");
        }
    }
    let reported = sources.iter().map(|source| (source["pid"].as_u64(), source["events"].as_u64()));
    let reported: BTreeMap<u64, u64> =
        reported.map(|(pid, events)| (pid.expect("a pid"), events.unwrap_or(0))).collect();
    assert_eq!(by_pid, reported);
    if installed("babeltrace2") {
        trace.agreed_count();
    }
}

/// The recorder has prepared memory for the children of a shell that forks. They neither wait for
/// its answer nor need it: they have ended and been waited for before it hears of them.
#[test]
fn given_a_stopped_recorder_then_forked_children_are_recorded_without_its_answer() {
    let dir = TestDir::new();
    let pids = dir.path("pids");
    let script = format!(
        "x=$(echo hi); sleep 0.5; kill -STOP $PPID; \
         x=$(echo $BASHPID); y=$(echo $BASHPID); kill -CONT $PPID; echo $x $y >{}",
        pids.display()
    );
    let trace = dir.record(&["--preload", "malloc"], &[&"bash", &"-c", &script]);

    let sources = trace.manifest()["sources"].as_array().expect("sources").clone();
    let pids = fs::read_to_string(&pids).expect("the children's ids");
    let pids: Vec<u64> = pids.split_whitespace().map(|pid| pid.parse().expect("a number")).collect();
    assert_eq!(pids.len(), 2);
    for pid in pids {
        let mut of_child = sources.iter().filter(|source| source["pid"] == pid);
        let events = of_child.next().and_then(|source| source["events"].as_u64());
        assert!(events.is_some_and(|events| events > 0), "process {pid} in {sources:?}");
    }
    assert_eq!((trace.left_out(), &trace.stat()["lost"]["total"]), (0, &0.into()));
}

/// Children in prepared memory take over what their parent has described and enabled.
#[test]
fn forked_children_record_the_events_that_their_parent_records() {
    let dir = TestDir::new();
    let options = ["--preload", "malloc", "-e", "lttng_ust_libc:malloc", "--filter", "size > 64"];
    let trace = dir.record(&options, &[&"bash", &"-c", &script(20)]);

    let sources = trace.manifest()["sources"].as_array().expect("sources").clone();
    assert_eq!(sources.len(), 21);
    for source in &sources {
        assert!(source["events"].as_u64().is_some_and(|events| events > 0), "{source}");
    }
    for event in trace.events() {
        assert_eq!(event.name, "lttng_ust_libc:malloc");
        assert!(event.number("size") > 64, "{event:?}");
    }
    assert_eq!(trace.stat()["lost"]["total"], 0);
}

/// A child has its parent's filters, and an id of its own.
#[test]
fn forked_children_filter_by_their_own_id() {
    let allowed = Command::new("unshare").args(["--pid", "--fork", "true"]).status();
    if !allowed.is_ok_and(|status| status.success()) {
        return eprintln!("SKIPPED, this user can make no pid namespace (unshare)");
    }
    let dir = TestDir::new();
    let script = script(20);
    let command: [&dyn AsRef<OsStr>; 6] = [&"unshare", &"--pid", &"--fork", &"bash", &"-c", &script];
    let trace = dir.record(&["--preload", "malloc", "--filter", "$pid > 1"], &command);

    let sources = trace.manifest()["sources"].as_array().expect("sources").clone();
    let shell: Vec<u64> = sources
        .iter()
        .filter(|source| source["name"] == "bash")
        .map(|source| source["events"].as_u64().unwrap_or(0))
        .collect();
    let silent = shell.iter().filter(|events| **events == 0).count();
    assert_eq!((shell.len(), silent), (21, 1), "only the shell itself has the id 1: {sources:?}");
}

/// Two recordings of the same children have different rules.
#[test]
fn forked_children_of_two_recordings_record_what_each_wants() {
    let dir = TestDir::new();
    let inner = dir.path("inner");
    let command: [&dyn AsRef<OsStr>; 11] = [
        &TOMPION,
        &"record",
        &"-o",
        &inner,
        &"-e",
        &"lttng_ust_libc:malloc",
        &"--preload",
        &"malloc",
        &"bash",
        &"-c",
        &script(20),
    ];
    let outer = dir.record(&["-e", "lttng_ust_libc:free"], &command);

    for (trace, name) in [(outer, "lttng_ust_libc:free"), (dir.trace("inner"), "lttng_ust_libc:malloc")] {
        let sources = trace.manifest()["sources"].as_array().expect("sources").clone();
        let recorded = sources.iter().filter(|source| source["events"].as_u64() > Some(0));
        assert_eq!((recorded.count(), trace.left_out()), (21, 0), "{name}");
        assert!(trace.events().iter().all(|event| event.name == name), "{name}");
    }
}

#[test]
fn short_processes_at_the_same_time_have_times_in_order() {
    let dir = TestDir::new();
    let count = rounds(40, 100);
    // Each has four children that run beside each other.
    let script = format!(
        "i=0; while [ $i -lt {count} ]; do for j in 1 2 3 4; do (echo $j >/dev/null) & done; wait; i=$((i+1)); done"
    );
    let trace = dir.record(&["--preload", "malloc"], &[&"bash", &"-c", &script]);

    let stat = trace.stat();
    let sources = trace.manifest()["sources"].as_array().expect("sources").len();
    assert_eq!(sources + trace.left_out() as usize, 4 * count as usize + 1);
    assert_eq!(stat["lost"]["total"], 0);
    let times: Vec<i64> = trace.events().iter().map(|event| event.time).collect();
    assert!(times.is_sorted(), "a stream in which time goes back would be read in its own order");
    if installed("babeltrace2") {
        let said = trace.babeltrace();
        assert!(!said.err.contains("rror"), "{}", said.err);
        trace.agreed_count();
    }
}

#[test]
fn a_flight_recorder_of_short_processes_makes_few_files() {
    let dir = TestDir::new();
    let options = ["--preload", "malloc", "--mode", "overwrite"];
    let trace = dir.record(&options, &[&"bash", &"-c", &script(100)]);

    let sources = trace.manifest()["sources"].as_array().expect("sources").clone();
    let processes: BTreeSet<u64> = sources.iter().filter_map(|source| source["pid"].as_u64()).collect();
    assert_eq!(processes.len(), 101);
    assert!(files_below(&trace.folder) <= MAX_FILES);
    let reported: u64 = sources.iter().filter_map(|source| source["events"].as_u64()).sum();
    assert_eq!(reported, trace.events().len() as u64);
}

/// A killed recorder did not write which processes share a trace. Their events have it; their
/// number is unknown.
#[test]
fn given_a_killed_recorder_then_processes_that_share_a_trace_are_named_by_their_events() {
    let dir = TestDir::new();
    let done = dir.path("done");
    let script = format!("{}; touch {}; sleep 10", script(60), done.display());
    let recording = start(&mut dir.recording("trace", &["--preload", "malloc"], &[&"bash", &"-c", &script]));
    wait_until("the last short process", || done.exists());
    let shared = dir.path("trace/user/short-lived");
    let has_packets = |file: fs::DirEntry| {
        let is_stream = file.file_name().to_string_lossy().starts_with("stream");
        is_stream && file.metadata().is_ok_and(|metadata| metadata.len() > 0)
    };
    wait_until("packets of short processes", || {
        fs::read_dir(&shared).is_ok_and(|files| files.flatten().any(has_packets))
    });
    kill_session(recording);

    let recovered = run(&mut dir.tompion(&["recover", "trace"])).succeeded();
    assert!(
        recovered.err.contains(" and an unknown number of short-lived processes in "),
        "{}",
        recovered.err
    );
    let trace = dir.trace("trace");
    let listed = trace.stat()["processes"].as_array().expect("processes").clone();
    let listed: BTreeSet<u64> = listed.iter().filter_map(|process| process["pid"].as_u64()).collect();
    let events = trace.events();
    let sharing: BTreeSet<u64> = events.iter().filter_map(|event| event.context["vpid"].as_u64()).collect();
    assert!(!sharing.is_empty() && sharing.is_subset(&listed), "{sharing:?} of {listed:?}");
}

/// A snapshot saves the processes that have ended. Recovery counts each process and each event in
/// the files once.
#[test]
fn given_a_recorder_killed_after_a_snapshot_then_recovery_counts_each_event_once() {
    let dir = TestDir::new();
    let options = ["--preload", "malloc", "--mode", "overwrite", "--subbuf-size", "4K"];
    let command = script(4000);
    let recording = start(&mut dir.recording("trace", &options, &[&"bash", &"-c", &command]));
    let folder = dir.path("trace");
    wait_until("a process that shares a trace", || folder.join("user/short-lived/stream_0").exists());
    run(&mut dir.tompion(&["snapshot", "trace"])).succeeded();
    kill_session(recording);
    run(&mut dir.tompion(&["recover", "trace"])).succeeded();

    let trace = dir.trace("trace");
    let sources = trace.manifest()["sources"].as_array().expect("sources").clone();
    let reported: u64 = sources.iter().filter_map(|source| source["events"].as_u64()).sum();
    assert_eq!(reported, trace.events().len() as u64);
    let pids: Vec<u64> = sources.iter().filter_map(|source| source["pid"].as_u64()).collect();
    assert_eq!(
        pids.iter().collect::<BTreeSet<_>>().len(),
        pids.len(),
        "a process is told of twice: {pids:?}"
    );
}
