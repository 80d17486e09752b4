//! Durations in `tompion stat`, held against an independent computation from the printed events.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::kernel::permitted;
use crate::support::{Event, TestDir, Trace, run, tompion};

/// Name, durations, number of late ones.
type Computed = BTreeMap<String, (Vec<i64>, u64)>;
/// Trace, thread and name.
type Key = (String, i64, String);
/// Time of a begin, and the deadline of a job.
type Begin = (i64, Option<i64>);

/// Pairs begins and ends of each thread by a stack, from printed events.
fn pairs(events: &[Event], begin: &str, end: &str) -> Computed {
    let mut open: BTreeMap<Key, Vec<Begin>> = BTreeMap::new();
    let mut found = Computed::new();
    for event in events {
        let thread = ["vtid", "tid"].iter().find_map(|name| event.context[*name].as_i64()).expect("a thread");
        let key = |name: &str| (event.source.clone(), thread, name.to_owned());
        if let Some(name) = base(&event.name, begin) {
            open.entry(key(&name)).or_default().push((event.time, event.fields["deadline_ns"].as_i64()));
        } else if let Some(name) = base(&event.name, end) {
            let Some((since, deadline)) = open.get_mut(&key(&name)).and_then(Vec::pop) else { continue };
            let (durations, late) = found.entry(name).or_default();
            durations.push(event.time - since);
            *late += u64::from(deadline.is_some_and(|deadline| event.time - since > deadline));
        }
    }
    found.values_mut().for_each(|(durations, _)| durations.sort_unstable());
    found
}

/// The name without this prefix or suffix.
fn base(name: &str, part: &str) -> Option<String> {
    match part.strip_prefix('_') {
        Some(_) => name.strip_suffix(part),
        None => name.strip_prefix(part),
    }
    .map(str::to_owned)
}

#[track_caller]
fn assert_equal(reported: &Value, computed: &Computed) {
    let rows = reported.as_array().expect("a list");
    assert_eq!(rows.len(), computed.len(), "{reported}");
    for row in rows {
        let (durations, late) = &computed[row["name"].as_str().expect("a name")];
        assert_eq!(row["count"], durations.len(), "{row}");
        assert_eq!(row["total_ns"], durations.iter().sum::<i64>(), "{row}");
        assert_eq!(row["max_ns"].as_i64(), durations.last().copied(), "{row}");
        if !row["late"].is_null() {
            assert_eq!(row["late"], *late, "{row}");
        }
        for (percentile, percent) in [("p50_ns", 50), ("p99_ns", 99)] {
            let exact = durations[(durations.len() * percent).div_ceil(100) - 1];
            let reported = row[percentile].as_i64().expect("a percentile");
            assert!(exact <= reported && reported <= exact + exact / 128, "{row}: {exact}");
        }
    }
}

#[test]
fn jobs_and_spans_agree_with_the_printed_events() {
    let dir = TestDir::new();
    let program = dir.link("jobs", &["jobs.c"], &["-DJOB=durations"]);
    let trace = dir.record(&[], &[&program]);
    let (stat, events) = (trace.stat(), trace.events());
    let mut computed = pairs(&events, "_begin", "_end");
    let jobs = computed.remove("motor:durations").expect("jobs");
    assert_eq!(stat["durations"]["jobs"][0]["late"], jobs.1);
    assert!(jobs.1 >= 2, "two sleep past their deadlines");
    assert_equal(&stat["durations"]["jobs"], &Computed::from([("motor:durations".into(), jobs)]));
    assert_equal(&stat["durations"]["spans"], &computed);

    let text = of_stat(&trace, &[]);
    assert!(text.contains("\njobs\n       count      late       total"), "{text}");
    assert!(text.contains("  motor:inner\n") && !text.contains("system calls"), "{text}");
    // What is left out is not told.
    assert!(!of_stat(&trace, &["--no-durations"]).contains("late"));
    assert!(!of_stat(&trace, &["--filter", "number > 5"]).contains("late"));
    let selected = of_stat(&trace, &["-e", "motor:inner_end"]);
    assert!(selected.contains("\nspans\n") && !selected.contains("\njobs\n"), "{selected}");
}

fn of_stat(trace: &Trace, options: &[&str]) -> String {
    run(tompion().arg("stat").args(options).arg(&trace.folder)).succeeded().out
}

#[test]
fn system_calls_agree_with_the_printed_events() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let options = ["-k", "syscall_*", "--subbuf-size", "1M"];
    // The child sleeps on when the recording ends with the command.
    let script = "ls -R /usr/include > list; wc list; sleep 3 > /dev/null 2>&1 & sleep 0.1";
    let trace = dir.record(&options, &[&"sh", &"-c", &script]);
    let stat = trace.stat();
    assert_eq!(stat["lost"]["total"], 0, "{stat}");
    let mut events = trace.events();
    // The kernel has forgotten which call it was.
    for event in events.iter_mut().filter(|event| event.name == "syscall_exit_unknown") {
        assert_eq!(event.fields["id"], -1);
        event.name = "syscall_exit_rt_sigreturn".into();
    }
    let computed = pairs(&events, "syscall_entry_", "syscall_exit_");
    let rows = stat["durations"]["syscalls"].as_array().expect("a list");
    let finished: Vec<Value> = rows.iter().filter(|row| row["count"] != 0).cloned().collect();
    assert!(finished.len() > 5, "{stat}");
    assert_equal(&finished.into(), &computed);
    // A call that never returns lacks no return.
    assert!(events.iter().any(|event| event.name == "syscall_entry_exit_group"));
    assert!(rows.iter().all(|row| row["name"] != "exit_group"), "{stat}");
    let sleep = rows.iter().find(|row| row["name"] == "clock_nanosleep").expect("sleeps");
    assert_eq!(sleep["unfinished"], 1, "{stat}");
    assert!(of_stat(&trace, &[]).contains("unfinished: begin or end not seen"));
}
