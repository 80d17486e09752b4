//! Events that are counted in place.
//!
//! Given programs whose events are counted and recorded at once, when they have ended, in whatever
//! way, then the counts are those of the recorded events, key by key.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    process::{Child, Stdio},
};

use serde_json::{Value, json};

use crate::support::{Event, Finished, TestDir, Trace, beside, finish, rounds, run, wait_until};

/// Variable with the folder of the sockets: tests don't see each other's recordings.
const CONTROL: &str = "TOMPION_CONTROL";
/// Rings that hold all events of a test, so that none is lost while the machine is busy.
const LARGE: [&str; 4] = ["--subbuf-size", "4M", "--subbufs", "16"];
/// Variables by which a program has no restartable sections.
const WITHOUT_SECTIONS: [(&str, &str); 2] =
    [("TOMPION_RSEQ", "0"), ("GLIBC_TUNABLES", "glibc.pthread.rseq=0")];
/// Rules whose values can be computed from a trace.
const RULES: [&str; 7] = [
    "status = count counted:request by status, path",
    "all = count by event, tid",
    "changes = sum of change counted:many by key limit 5000",
    "least = min of size counted:request by status",
    "most = max of size by comm",
    "sizes = histogram of size counted:request by status",
    "few = count counted:request by path if status >= 400 && size < 5000",
];

/// Options that count by all rules.
fn counting(rules: &[&str]) -> Vec<String> {
    rules.iter().map(|rule| format!("--count={rule}")).collect()
}

fn record(dir: &TestDir, options: &[&str], arguments: &[&str]) -> Finished {
    let rules = counting(&RULES);
    let options: Vec<&str> = rules.iter().map(String::as_str).chain(options.iter().copied()).collect();
    let program = dir.program("counted");
    let words: Vec<&dyn AsRef<OsStr>> =
        [&program as &dyn AsRef<OsStr>].into_iter().chain(arguments.iter().map(|it| it as _)).collect();
    run(&mut dir.recording("trace", &options, &words))
}

/// `counts.json`.
pub fn counts(trace: &Trace) -> Value {
    serde_json::from_slice(&fs::read(trace.folder.join("counts.json")).expect("counts")).expect("JSON")
}

fn aggregation<'a>(counts: &'a Value, name: &str) -> &'a Value {
    let aggregations = counts["aggregations"].as_array().expect("aggregations");
    aggregations.iter().find(|aggregation| aggregation["name"] == name).expect("an aggregation")
}

/// Entries of an aggregation by their keys: number and value.
pub fn entries(counts: &Value, name: &str) -> BTreeMap<String, (u64, Option<i64>)> {
    let entries = aggregation(counts, name)["entries"].as_array().expect("entries");
    let entry = |entry: &Value| {
        let count = entry["count"].as_u64().expect("a number");
        (entry["key"].to_string(), (count, entry["value"].as_i64()))
    };
    entries.iter().map(entry).collect()
}

/// Adds up events as a rule does.
fn expected(
    events: &[Event],
    name: &str,
    key: impl Fn(&Event) -> Value,
    value: impl Fn(&Event) -> Option<i64>,
    join: fn(i64, i64) -> i64,
) -> BTreeMap<String, (u64, Option<i64>)> {
    let mut sums = BTreeMap::<String, (u64, Option<i64>)>::new();
    for event in events.iter().filter(|event| event.name == name || name == "*") {
        let (count, sum) = sums.entry(key(event).to_string()).or_default();
        *count += 1;
        *sum = match (*sum, value(event)) {
            (Some(before), Some(value)) => Some(join(before, value)),
            (before, value) => before.or(value),
        };
    }
    sums
}

/// The text of a path as a key of two parts has it, or alone: 24 or 48 bytes of it.
fn cut(event: &Event, room: usize) -> Value {
    let path = event.fields["path"].as_str().expect("a path");
    if path.len() > room { json!(format!("{}…", &path[..room])) } else { json!(path) }
}

/// Checks that counts and recorded events agree.
#[track_caller]
fn agree(trace: &Trace) {
    let (counts, events) = (counts(trace), trace.events());
    let field = |event: &Event, name: &str| event.fields[name].clone();
    let integer = |event: &Event, name: &str| event.fields[name].as_i64();
    let none = |_: &Event| None;
    let add = |a: i64, b: i64| a + b;
    let request = "counted:request";
    assert_eq!(trace.stat()["lost"]["total"], 0);
    for name in ["status", "all", "changes", "least", "most", "sizes", "few"] {
        let aggregation = aggregation(&counts, name);
        let missing = ["lost", "refused", "not_counting"].map(|cause| aggregation[cause].as_u64());
        assert_eq!((missing, aggregation.get("other")), ([Some(0); 3], None), "{aggregation}");
    }
    let by_status = |event: &Event| json!([field(event, "status"), cut(event, 24)]);
    assert_eq!(entries(&counts, "status"), expected(&events, request, by_status, none, add));
    let by_event = |event: &Event| json!([event.name, event.context["vtid"]]);
    assert_eq!(entries(&counts, "all"), expected(&events, "*", by_event, none, add));
    let by_key = |event: &Event| json!([field(event, "key")]);
    let change = |event: &Event| integer(event, "change");
    assert_eq!(entries(&counts, "changes"), expected(&events, "counted:many", by_key, change, add));
    let size = |event: &Event| integer(event, "size");
    let status = |event: &Event| json!([field(event, "status")]);
    assert_eq!(entries(&counts, "least"), expected(&events, request, status, size, i64::min));
    let comm = |_: &Event| json!(["counted"]);
    assert_eq!(entries(&counts, "most"), expected(&events, request, comm, size, i64::max));
    assert_eq!(entries(&counts, "sizes"), expected(&events, request, status, size, add));
    let is_few = |event: &Event| {
        event.name == request && integer(event, "status") >= Some(400) && integer(event, "size") < Some(5000)
    };
    let few: Vec<Event> = events.iter().filter(|event| is_few(event)).cloned().collect();
    let path = |event: &Event| json!([cut(event, 48)]);
    assert_eq!(entries(&counts, "few"), expected(&few, request, path, none, add));
    check_buckets(&counts, &events);
}

/// Checks each bucket of the histogram of sizes.
fn check_buckets(counts: &Value, events: &[Event]) {
    let requests: Vec<&Event> = events.iter().filter(|event| event.name == "counted:request").collect();
    for entry in aggregation(counts, "sizes")["entries"].as_array().expect("entries") {
        let of_status = requests.iter().filter(|event| event.fields["status"] == entry["key"][0]);
        let sizes: Vec<u64> = of_status.map(|event| event.number("size")).collect();
        let mut total = 0;
        for bucket in entry["buckets"].as_array().expect("buckets") {
            let bound = |name: &str| bucket[name].as_u64().expect("a bound");
            let range = bound("first")..=bound("last");
            let inside = sizes.iter().filter(|size| range.contains(size)).count() as u64;
            assert_eq!(bucket["count"], inside, "{bucket}");
            total += inside;
        }
        assert_eq!(total, sizes.len() as u64);
    }
}

#[test]
fn counts_agree_with_the_recorded_events() {
    let dir = TestDir::new();
    let many = rounds(6000, 100_000).to_string();
    record(&dir, &LARGE, &["3", &many]).succeeded();
    agree(&dir.trace("trace"));
}

#[test]
fn children_count_for_themselves() {
    let dir = TestDir::new();
    record(&dir, &LARGE, &["2", "5000", "fork"]).succeeded();
    let trace = dir.trace("trace");
    agree(&trace);
    assert_eq!(counts(&trace)["processes"], json!({ "counting": 0, "ended": 2, "unable": 0 }));
}

#[test]
fn a_killed_program_has_counted_all_that_it_recorded() {
    let dir = TestDir::new();
    let finished = record(&dir, &LARGE, &["2", "5000", "kill"]);
    assert!(finished.err.contains("counted"), "{finished:?}");
    agree(&dir.trace("trace"));
}

#[test]
fn threads_without_restartable_sequences_count_as_well() {
    for variable in WITHOUT_SECTIONS {
        let dir = TestDir::new();
        let rules = counting(&RULES);
        let options: Vec<&str> = rules.iter().map(String::as_str).chain(LARGE).collect();
        let program = dir.program("counted");
        let mut recording = dir.recording("trace", &options, &[&program, &"3", &"5000"]);
        run(recording.env(variable.0, variable.1)).succeeded();
        agree(&dir.trace("trace"));
    }
}

#[test]
fn the_shortest_way_leaves_threads_without_restartable_sequences_whole() {
    for variable in WITHOUT_SECTIONS {
        let dir = TestDir::new();
        let program = dir.program("counted");
        let options = ["--count=n = count counted:many by key limit 5000", "-e", "none"];
        let mut recording = dir.recording("trace", &options, &[&program, &"3", &"10000"]);
        run(recording.env(variable.0, variable.1)).succeeded();
        let entries = entries(&counts(&dir.trace("trace")), "n");
        assert_eq!(entries.len(), 5000);
        assert!(entries.values().all(|entry| *entry == (6, None)), "{entries:?}");
    }
}

#[test]
fn a_program_that_is_killed_at_any_time_has_counted_what_it_recorded() {
    for round in 0..rounds(2, 20) {
        let dir = TestDir::new();
        let program = dir.program("counted");
        let rules = counting(&RULES);
        let options: Vec<&str> = rules.iter().map(String::as_str).chain(LARGE).collect();
        let time = format!("0.{}", 2 + round % 7);
        let words: [&dyn AsRef<OsStr>; 6] = [&"timeout", &"-sKILL", &time, &program, &"2", &"2000000"];
        run(&mut dir.recording("trace", &options, &words));
        let (trace, mut differences) = (dir.trace("trace"), 0);
        let counts = counts(&trace);
        let events = trace.events();
        let recorded = |name: &str| events.iter().filter(|event| event.name == name).count() as u64;
        for name in ["counted:request", "counted:many"] {
            let all = entries(&counts, "all");
            let of_event = all.iter().filter(|(key, _)| key.contains(&format!("\"{name}\"")));
            let counted: u64 = of_event.map(|(_, (count, _))| count).sum();
            differences += counted.abs_diff(recorded(name));
        }
        // An event is counted and then recorded: each of two threads may have been between.
        assert!(differences <= 2, "{differences}");
    }
}

#[test]
fn nothing_is_recorded_of_events_that_are_only_counted() {
    let dir = TestDir::new();
    let program = dir.program("counted");
    let options = ["--count=n = count counted:request by status", "-e", "none"];
    let finished = run(&mut dir.recording("trace", &options, &[&program, &"1", &"700"])).succeeded();
    assert!(finished.err.contains("counted 700 events; next: tompion stat trace"), "{}", finished.err);
    let trace = dir.trace("trace");
    let expected = (0..7).map(|status| (json!([status * 100 - 100]).to_string(), (100, None)));
    assert_eq!(entries(&counts(&trace), "n"), expected.collect());
    assert!(!trace.folder.join("user").exists(), "a trace of events that were not recorded");
    let shown = run(&mut dir.tompion(&["stat", "trace"])).succeeded().out;
    assert_eq!(
        shown,
        "n = count counted:request by status\n  status  count\n  -100      100\n  0         100\n  \
         100       100\n  200       100\n  300       100\n  400       100\n  500       100\n"
    );
}

/// The shortest way, which events take that one rule counts by one unsigned integer.
#[test]
fn events_that_are_only_counted_are_counted_once() {
    for (rule, keys, each) in
        [("count counted:many by key limit 5000", 5000, 6), ("count counted:many", 1, 30_000)]
    {
        let dir = TestDir::new();
        let program = dir.program("counted");
        let options = [&format!("--count=n = {rule}"), "-e", "none"];
        run(&mut dir.recording("trace", &options, &[&program, &"3", &"10000"])).succeeded();
        let entries = entries(&counts(&dir.trace("trace")), "n");
        assert_eq!(entries.len(), keys);
        assert!(entries.values().all(|entry| *entry == (each, None)), "{entries:?}");
    }
}

#[test]
fn keys_without_room_are_counted_together() {
    let dir = TestDir::new();
    let program = dir.program("counted");
    let options = ["--count=n = count counted:many by key limit 8", "-e", "none"];
    let finished = run(&mut dir.recording("trace", &options, &[&program, &"1", &"1000"])).succeeded();
    let counts = counts(&dir.trace("trace"));
    let entries = entries(&counts, "n");
    let other = aggregation(&counts, "n")["other"]["count"].as_u64().expect("others");
    assert!((8..=16).contains(&entries.len()), "{entries:?}");
    assert_eq!(entries.values().map(|(count, _)| count).sum::<u64>() + other, 1000);
    assert!(finished.err.contains(&format!("n: {other} events of keys without room")), "{}", finished.err);
}

/// Plans are made before the application has its contexts, and again when it has.
#[test]
fn filters_of_rules_ask_for_what_the_application_says() {
    let dir = TestDir::new();
    let program = dir.program("chooser");
    let options = ["--count=n = count chooser:step by i if $app.net:request >= 105"];
    run(&mut dir.recording("trace", &options, &[&program])).succeeded();
    let number = |i: u64| 1 + u64::from(i >= 5);
    let expected = (0..10).map(|i| (json!([i]).to_string(), (number(i), None)));
    assert_eq!(entries(&counts(&dir.trace("trace")), "n"), expected.collect());
}

#[test]
fn the_number_of_counted_events_is_that_of_all_rules() {
    let dir = TestDir::new();
    let program = dir.program("counted");
    let options = ["--count=a = count counted:request", "--count=b = count counted:many", "-e", "none"];
    let err = run(&mut dir.recording("trace", &options, &[&program, &"1", &"700"])).succeeded().err;
    let expected = "counted 1,400 events by 2 rules, an event once for each rule; next: tompion stat trace";
    assert!(err.contains(expected), "{err}");
    let none = ["--count=a = count no:event", "-e", "none"];
    let err = run(&mut dir.recording("none", &none, &[&program, &"1", &"7"])).err;
    assert!(err.contains("counted 0 events\n"), "{err}");
    assert!(!dir.path("none").exists(), "a trace of nothing");
}

#[test]
fn programs_that_cannot_count_are_unknown() {
    let dir = TestDir::new();
    let script = beside("programs/old_agent.py");
    let words: [&dyn AsRef<OsStr>; 2] = [&"python3", &script];
    let finished = run(&mut dir.recording("trace", &["--count=count"], &words));
    // The files of before: control and rings.
    assert_eq!(finished.out, "101 2\n", "{finished:?}");
    assert!(
        finished.err.contains("1 processes CAN'T COUNT, their events are unknown: old ("),
        "{finished:?}"
    );
}

/// Records the program as the session `s`, until its input ends.
fn start(dir: &TestDir, options: &[&str]) -> Child {
    let program = dir.program("counted");
    let options = [&["--session", "s"], options].concat();
    let mut command = dir.recording("trace", &options, &[&program, &"1", &"700", &"wait"]);
    command.env(CONTROL, dir.path("control"));
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    tompion_os::Inheritance::current().hand_on_to_companion(&mut command);
    command.spawn().expect("a recorder")
}

fn shown(dir: &TestDir, options: &[&str]) -> Finished {
    run(dir.tompion(&[&["counts", "s"], options].concat()).env(CONTROL, dir.path("control")))
}

#[test]
fn counts_are_shown_while_programs_run() {
    let dir = TestDir::new();
    let options =
        ["--count=requests = count counted:request by status, comm", "--count=sizes = histogram of size"];
    let mut recorder = start(&dir, &[&options[..], &["-e", "none"]].concat());
    wait_until("all requests", || {
        let answer: Value = serde_json::from_str(&shown(&dir, &["--json"]).out).unwrap_or_default();
        answer["aggregations"][1]["entries"][0]["count"] == 700
    });
    let metrics = shown(&dir, &["--prometheus"]).succeeded().out;
    for line in [
        "# TYPE tompion_count_requests counter",
        "tompion_count_requests_total{status=\"-100\",comm=\"counted\"} 100",
        "# TYPE tompion_count_sizes histogram",
        "tompion_count_sizes_bucket{le=\"+Inf\"} 700",
        "tompion_count_sizes_count 700",
        "tompion_counts_processes{state=\"counting\"} 1",
        "tompion_counts_missing{count=\"requests\",cause=\"events_not_counted\"} 0",
    ] {
        assert!(metrics.lines().any(|found| found == line), "no {line} in\n{metrics}");
    }
    assert!(metrics.ends_with("# EOF\n"));
    let table = shown(&dir, &[]).succeeded().out;
    assert!(table.contains("  status  comm     count\n  -100    counted    100\n"), "{table}");
    drop(recorder.stdin.take());
    finish(recorder, "record").succeeded();
    assert_eq!(entries(&counts(&dir.trace("trace")), "sizes").len(), 1);
}

#[test]
fn a_recording_without_counts_says_so() {
    let dir = TestDir::new();
    let mut recorder = start(&dir, &[]);
    wait_until("the recording", || shown(&dir, &[]).err.contains("counts no events"));
    drop(recorder.stdin.take());
    finish(recorder, "record").succeeded();
}

#[test]
fn rules_that_cannot_be_are_named() {
    let dir = TestDir::new();
    for (options, expected) in [
        (&["--count=count by $prio"][..], "expected one of event, tid, comm, pid, cgroup"),
        (&["--count=n = count", "--count=n = count by tid"], "two counts are named `n`"),
        (&["--count=count", "--backing=rings"], "cannot be used with"),
    ] {
        let finished = run(&mut dir.recording("trace", options, &[&"true"]));
        assert!(finished.err.contains(expected), "{options:?}: {}", finished.err);
        assert!(!dir.path("trace").exists());
    }
}
