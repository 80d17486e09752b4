//! Programs that speak to `tracing`: the example of the crate `tompion-tracing`.

use std::{
    io::Read,
    path::PathBuf,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::{
    attach::wait_for_events,
    rust::{assert_same, contents, example, golden, lines},
    support::{TestDir, Trace, finish, libraries, run, start},
};

fn everything() -> PathBuf {
    example("tompion-tracing", "everything")
}

fn record(dir: &TestDir, options: &[&str], mode: &str) -> Trace {
    dir.record(options, &[&everything(), &mode])
}

/// As [`contents`]; events that are called by their place have no line, so that the example may
/// change.
fn without_lines(trace: &Trace) -> Vec<Value> {
    let mut events = contents(trace);
    for event in &mut events {
        if let Some((place, _)) = event["event"].as_str().and_then(|name| name.split_once(".rs:")) {
            event["event"] = json!(format!("{place}.rs"));
        }
    }
    events
}

#[test]
fn every_type_is_recorded_as_given() {
    let dir = TestDir::new();
    let trace = record(&dir, &[], "fields");
    assert_same(&without_lines(&trace), &golden("rust_tracing_fields.jsonl"));
    assert_eq!(trace.agreed_text() as usize, golden("rust_tracing_fields.jsonl").len());
    assert_eq!(trace.babeltrace().err, "");
}

#[test]
fn spans_begin_and_end_with_their_fields() {
    let dir = TestDir::new();
    let trace = record(&dir, &[], "spans");
    assert_eq!(
        lines(&trace),
        [
            "everything:transaction_begin number=7",
            r#"everything:query_begin table="orders""#,
            "everything:plan_begin",
            "everything:plan_end",
            "everything:query_end",
            "everything:inside rows=6",
            "everything:transaction_end",
            "everything:transaction_begin number=7",
            r#"everything:elsewhere message="another thread""#,
            "everything:transaction_end rows=6",
            "everything:transaction_begin number=7",
            "everything:transaction_end ok=1 rows=8",
            // Polled twice, and dropped within the span.
            "everything:twice_begin",
            "everything:twice_end",
            "everything:twice_begin",
            "everything:twice_end",
            "everything:twice_begin",
            "everything:twice_end",
        ]
    );
}

#[test]
fn triggers_see_spans_that_are_not_recorded() {
    let dir = TestDir::new();
    let trigger = "span:everything:transaction > 1ns ? number == 7 -> notify capture number";
    let options = ["-e", "everything:elsewhere", "--trigger", trigger];
    let trace = record(&dir, &options, "spans");
    let is_firing = |line: &String| line.starts_with("tompion:firing ");
    let (firings, recorded): (Vec<_>, Vec<_>) = lines(&trace).into_iter().partition(is_firing);
    assert_eq!(recorded, [r#"everything:elsewhere message="another thread""#]);
    assert!(!firings.is_empty());
    let manifest = trace.manifest();
    let firings = manifest["firings"].as_array().expect("firings");
    let matches: u64 = firings.iter().filter_map(|firing| firing["matches"].as_u64()).sum();
    let capture = &firings[0]["captures"][0];
    assert_eq!((matches, &capture["event"]), (3, &"everything:transaction".into()), "{firings:?}");
    assert_eq!(capture["fields"], json!({"number": 7}));
}

#[test]
fn rules_and_filters_take_what_they_name() {
    let dir = TestDir::new();
    let trace = record(&dir, &["-e", "everything:query"], "spans");
    assert_eq!(lines(&trace), [r#"everything:query_begin table="orders""#, "everything:query_end"]);
    let dir = TestDir::new();
    let trace = record(&dir, &["--level", "warning"], "levels");
    assert_eq!(lines(&trace), [r#"everything:error message="1""#, r#"everything:warn message="2""#]);
}

/// A filter on a field of the begin, then on one that only an end has.
#[test]
fn spans_have_their_ends_where_their_begins_passed_the_filter() {
    let dir = TestDir::new();
    let trace = record(&dir, &["--filter", "number == 7"], "spans");
    assert_eq!(
        lines(&trace),
        [
            "everything:transaction_begin number=7",
            "everything:transaction_end",
            "everything:transaction_begin number=7",
            "everything:transaction_end rows=6",
            "everything:transaction_begin number=7",
            "everything:transaction_end ok=1 rows=8",
        ]
    );
    let dir = TestDir::new();
    let trace = record(&dir, &["--filter", "rows == 6"], "spans");
    assert_eq!(lines(&trace), ["everything:inside rows=6"]);
}

#[test]
fn a_filter_on_a_field_that_is_sometimes_there_finds_it() {
    let dir = TestDir::new();
    let trace = record(&dir, &["--filter", "rows > 100"], "optional");
    assert_eq!(lines(&trace), ["everything:optional rows=200"]);
    let dir = TestDir::new();
    let trace = record(&dir, &[], "optional");
    assert_eq!(
        lines(&trace),
        [
            "everything:optional",
            "everything:optional rows=1",
            "everything:optional",
            "everything:optional rows=200"
        ]
    );
}

#[test]
fn threads_lose_nothing() {
    let dir = TestDir::new();
    let trace = record(&dir, &["--subbuf-size", "1M"], "threads");
    assert_eq!(trace.stat()["lost"], json!({"total": 0}));
    let mut next = [[0; 3]; 4];
    for event in trace.events() {
        let kind = ["everything:round_begin", "everything:numbered", "everything:round_end"];
        let kind = kind.iter().position(|name| *name == event.name).expect("one of these");
        // The end says nothing but which thread's it is, and that is the one that has begun.
        let thread = match kind {
            2 => continue,
            _ => &mut next[event.number("thread") as usize],
        };
        assert_eq!(event.fields["number"].as_f64(), Some(f64::from(thread[kind])));
        thread[kind] += 1;
    }
    assert!(next.iter().all(|counts| counts[..2] == [1000, 1000]), "{next:?}");
}

#[test]
fn nothing_is_allocated_after_the_first_time() {
    let dir = TestDir::new();
    let trace = record(&dir, &["--preload", "malloc"], "steady");
    let names: Vec<_> = trace.events().into_iter().map(|event| event.name).collect();
    let marks: Vec<_> = (0..names.len()).filter(|&at| names[at] == "steady:mark").collect();
    let between = &names[marks[0]..=marks[1]];
    let allocations: Vec<_> = between.iter().filter(|name| name.starts_with("lttng_ust_libc:")).collect();
    assert!(allocations.is_empty(), "{allocations:?}");
    assert_eq!(between.iter().filter(|name| *name == "everything:work").count(), 98);
    assert_eq!(between.iter().filter(|name| *name == "everything:round_end").count(), 98);
}

#[test]
fn a_recording_may_come_later() {
    let dir = TestDir::new();
    let mut command = Command::new(everything());
    command.arg("late").env("TOMPION_LIBRARY", libraries().join("libtompion.so.0"));
    let mut program = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program");
    let mut ready = [0; 6];
    program.stdout.as_mut().expect("a pipe").read_exact(&mut ready).expect("a word");
    let recording =
        start(&mut dir.tompion(&["record", "-o", "trace", "-e", "tick", "-p", &program.id().to_string()]));
    wait_for_events(&dir.path("trace"));
    drop(program.stdin.take());
    assert!(program.wait().expect("a child of this test").success());
    finish(recording, "record -p").succeeded();
    let numbers: Vec<u64> = dir.trace("trace").events().iter().map(|event| event.number("number")).collect();
    let expected: Vec<u64> = (numbers[0]..).take(numbers.len()).collect();
    assert_eq!(numbers, expected);
}

#[test]
fn without_the_library_nothing_is_asked() {
    let mut command = Command::new(everything());
    command.arg("absent").env_remove("TOMPION_SESSION").env_remove("TOMPION_RECORD");
    assert_eq!(run(&mut command).succeeded().out, "computed 0, enabled false\n");
}
