//! Events of `--preload`, compared with the programs' own output.

use std::{collections::BTreeMap, ffi::OsStr, process::Command};

use crate::support::{Event, TestDir, Trace, beside, installed, run};

/// The status of a wait in which the thread was cancelled.
const ECANCELED: i64 = 125;

/// Room for everything.
const ROOMY: [&str; 4] = ["--subbuf-size", "1M", "--subbufs", "8"];

fn with<'a>(preloads: &[&'a str]) -> Vec<&'a str> {
    preloads.iter().flat_map(|&preload| ["--preload", preload]).chain(ROOMY).collect()
}

/// Calls that a thread printed, or that were recorded of it: names, with a status if there is one.
type Calls = Vec<(String, Option<i64>)>;

/// The events that a call makes.
fn events_of(call: &str, status: i64) -> Calls {
    let waits = ["_wait", "timedwait", "clockwait", "_join", "timedjoin_np", "clockjoin_np"];
    let locks = ["mutex_lock", "rdlock", "wrlock", "timedlock", "clocklock"];
    let silent = ["_signal", "_broadcast", "sem_post", "_cancel", "_start", "_exit"];
    let ends_with = |words: &[&str]| words.iter().any(|word| call.ends_with(word));
    let pair =
        |first, second| vec![(format!("{call}_{first}"), None), (format!("{call}_{second}"), Some(status))];
    if call.contains("_try") {
        vec![(call.to_owned(), Some(status))]
    } else if ends_with(&waits) {
        pair("begin", "end")
    } else if ends_with(&locks) {
        pair("req", "acq")
    } else if ends_with(&silent) {
        vec![(call.to_owned(), None)]
    } else {
        vec![(call.to_owned(), Some(status))]
    }
}

/// Returns the program's output by thread id, and the lines without their thread ids.
fn said(text: &str) -> (BTreeMap<u64, Calls>, Vec<String>) {
    let (mut threads, mut lines) = (BTreeMap::<u64, Calls>::new(), Vec::new());
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            [thread, tid, call, status] => {
                let calls = events_of(call, status.parse().expect("a status"));
                threads.entry(tid.parse().expect("a thread id")).or_default().extend(calls);
                lines.push(format!("{thread} {call} {status}"));
            }
            _ => lines.push(line.to_owned()),
        }
    }
    // Threads that end at the same time say so in any order.
    lines.sort();
    (threads, lines)
}

fn recorded(events: &[Event]) -> BTreeMap<u64, Calls> {
    let mut threads = BTreeMap::<u64, Calls>::new();
    for event in events.iter().filter(|event| event.name.starts_with("lttng_ust_pthread:")) {
        let (name, mut status) = (&event.name["lttng_ust_pthread:".len()..], event.fields["status"].as_i64());
        if name == "pthread_barrier_wait_end" && status == Some(-1) {
            status = Some(0); // PTHREAD_BARRIER_SERIAL_THREAD
        }
        let tid = event.context["vtid"].as_u64().expect("a thread id");
        threads.entry(tid).or_default().push((name.to_owned(), status));
    }
    threads
}

#[test]
fn every_call_of_threads_is_recorded_and_does_what_it_does_without() {
    let dir = TestDir::new();
    let program = dir.link("calls", &["pthread_calls.c"], &[]);
    let plain = run(&mut Command::new(&program)).succeeded();
    let finished = run(&mut dir.recording("trace", &with(&["pthread"]), &[&program])).succeeded();

    let ((threads, lines), (_, plain_lines)) = (said(&finished.out), said(&plain.out));
    assert_eq!(lines, plain_lines);
    let trace = dir.trace("trace");
    let events = trace.events();
    let recorded = recorded(&events);
    assert_eq!(recorded.keys().collect::<Vec<_>>(), threads.keys().collect::<Vec<_>>());
    for (tid, calls) in &threads {
        assert_eq!(&recorded[tid], calls);
    }
    assert_eq!(trace.agreed_text(), events.len() as u64);
    creations_and_ends_belong_together(&events);
}

/// Each thread that started was created by a thread, and ended. Each joined thread had started.
fn creations_and_ends_belong_together(events: &[Event]) {
    let all = |name: &str| {
        let name = format!("lttng_ust_pthread:{name}");
        events.iter().filter(move |event| event.name == name).collect::<Vec<_>>()
    };
    let starts = all("pthread_start");
    let created = all("pthread_create");
    let created: Vec<_> = created.iter().filter(|event| event.fields["status"] == 0).collect();
    assert_eq!(starts.len(), created.len());
    for start in &starts {
        let same = |other: &Event, field: &str| other.fields[field] == start.fields[field];
        assert!(created.iter().any(|create| same(create, "start_routine") && same(create, "arg")));
        assert_eq!(start.fields["creator"], starts[0].fields["creator"]);
        let exit = all("pthread_exit")
            .into_iter()
            .find(|exit| exit.fields["thread"] == start.fields["thread"] && exit.context == start.context);
        assert!(exit.expect("an end").time >= start.time);
    }
    let results: Vec<u64> = all("pthread_exit").iter().map(|exit| exit.number("result")).collect();
    for result in [0x77, 0x42, u64::MAX] {
        assert!(results.contains(&result), "{result:#x} in {results:x?}");
    }
    let named = all("pthread_setname_np");
    assert_eq!(named[0].fields["name"], "sleeper");
}

#[test]
fn threads_that_end_in_cpp_code_run_its_destructors() {
    let dir = TestDir::new();
    let program = dir.path("unwind");
    let mut cc = dir.compile("c++", &program);
    run(cc.arg(beside("programs/pthread_unwind.cc"))).succeeded();
    let plain = run(&mut Command::new(&program)).succeeded();
    let finished = run(&mut dir.recording("trace", &with(&["pthread"]), &[&program])).succeeded();

    assert_eq!(finished.out, plain.out);
    let trace = dir.trace("trace");
    let ends: Vec<_> =
        trace.events().into_iter().filter(|event| event.fields["status"] == ECANCELED).collect();
    assert_eq!(ends.len(), 1);
    assert_eq!(ends[0].name, "lttng_ust_pthread:pthread_cond_wait_end");
}

/// Locks and waits of each thread that belong together follow each other, whatever the program is.
fn pairs_are_whole(trace: &Trace) -> usize {
    let mut pairs = 0;
    for (tid, calls) in recorded(&trace.events()) {
        let mut open: Option<&str> = None;
        for (name, _) in &calls {
            let base = |ends: [&'static str; 2]| ends.iter().find_map(|end| name.strip_suffix(end));
            if let Some(base) = base(["_req", "_begin"]) {
                assert_eq!(open.replace(base), None, "thread {tid}");
            } else if let Some(base) = base(["_acq", "_end"]) {
                assert_eq!(open.take(), Some(base), "thread {tid}");
                pairs += 1;
            }
        }
    }
    pairs
}

#[test]
fn real_programs_with_threads_do_the_same_under_all_preloads() {
    let dir = TestDir::new();
    let text: String = (0..400_000u64).map(|number| format!("{}\n", number * 7919 % 10007)).collect();
    std::fs::write(dir.path("text"), &text).expect("a file to compress");
    let commands = [
        ("xz", &["xz", "-T2", "-0", "--block-size=256KiB", "-c", "text"][..]),
        ("zstd", &["zstd", "-q", "-T2", "-c", "text"][..]),
    ];
    for (name, words) in commands.into_iter().filter(|(name, _)| installed(name)) {
        let shell = format!("{} > compressed", words.join(" "));
        let command: [&dyn AsRef<OsStr>; 3] = [&"sh", &"-c", &shell];
        let trace = format!("trace-{name}");
        let options = with(&["pthread", "malloc"]);
        run(&mut dir.recording(&trace, &options, &command)).succeeded();

        let unpacked = run(Command::new(name).args(["-dc"]).arg(dir.path("compressed")));
        assert!(unpacked.succeeded().out == text, "{name} packed something else");
        let trace = dir.trace(&trace);
        assert!(pairs_are_whole(&trace) > 10, "{name}");
        let events = trace.events();
        let some = |prefix: &str| events.iter().filter(|event| event.name.starts_with(prefix)).count();
        assert!(some("lttng_ust_pthread:pthread_start") >= 1, "{name}");
        assert!(some("lttng_ust_libc:") > 10, "{name}");
    }
}

/// Constructors of libraries run before what is preloaded can record: their calls are counted.
#[test]
fn allocations_before_the_recording_are_counted() {
    let dir = TestDir::new();
    let library = dir.link("libearly.so", &["early_library.c"], &["-shared", "-fPIC"]);
    let library = library.to_str().expect("a path in UTF-8");
    let program = dir.link("early", &["early.c"], &[library]);
    run(&mut dir.recording("trace", &with(&["malloc"]), &[&program])).succeeded();
    let events = dir.trace("trace").events();
    let recorded = |name: &str, field: &str, value: u64| {
        let is_it = |event: &&Event| event.name == name && event.fields[field].as_u64() == Some(value);
        events.iter().filter(is_it).count() as u64
    };
    let unrecorded: Vec<&Event> =
        events.iter().filter(|event| event.name == "lttng_ust_libc:unrecorded").collect();
    let [unrecorded] = unrecorded[..] else { panic!("{unrecorded:?}") };
    assert_eq!(recorded("lttng_ust_libc:malloc", "size", 7777), 10);
    assert_eq!(recorded("lttng_ust_libc:calloc", "size", 7777), 0);
    // The loader and the C library may have called some, too.
    assert!((100..200).contains(&unrecorded.number("mallocs")), "{unrecorded:?}");
    assert!((40..140).contains(&unrecorded.number("frees")), "{unrecorded:?}");
    assert!((1..50).contains(&unrecorded.number("callocs")), "{unrecorded:?}");
}
