//! Every event of every thread, exactly once and in order; from the first instruction to the last.

use std::collections::BTreeMap;

use crate::support::{Event, TestDir, rounds};

const COUNT: u64 = 3000;

/// The numbers of each thread in the order of the trace.
fn numbers_by_thread(events: &[Event]) -> BTreeMap<u64, Vec<u64>> {
    let mut threads = BTreeMap::<u64, Vec<u64>>::new();
    for event in events {
        threads.entry(event.number("thread")).or_default().push(event.number("number"));
    }
    threads
}

#[test]
fn every_thread_counts_without_a_gap() {
    let dir = TestDir::new();
    let program = dir.program("numbered");
    for threads in 1..=8 {
        let name = format!("trace-{threads}");
        let sizes = ["--subbuf-size", "1M", "--subbufs", "8"];
        let command: [&dyn AsRef<std::ffi::OsStr>; 3] = [&program, &threads.to_string(), &COUNT.to_string()];
        crate::support::run(&mut dir.recording(&name, &sizes, &command)).succeeded();
        let trace = dir.trace(&name);

        let found = numbers_by_thread(&trace.events());
        assert_eq!(found.len() as u64, threads);
        for (thread, numbers) in found {
            assert!(numbers.iter().copied().eq(1..=COUNT), "thread {thread} of {threads}: {numbers:?}");
        }
        assert_eq!(trace.agreed_text(), threads * COUNT);
        assert_eq!(trace.stat()["lost"]["total"], 0);
        assert_eq!(trace.stat()["by_event"]["numbered:step"], threads * COUNT);
    }
}

#[test]
fn nothing_is_too_early_or_too_late_to_be_recorded() {
    let dir = TestDir::new();
    dir.link("libplaces.so", &["places_library.c"], &["-shared", "-fPIC"]);
    let here = format!("-Wl,-rpath,{}", dir.path("").display());
    let folder = format!("-L{}", dir.path("").display());
    let program = dir.link("places", &["places.c", "places_second.c"], &[&folder, "-lplaces", &here]);
    let trace = dir.record(&[], &[&program]);

    let names: Vec<String> = trace.events().into_iter().map(|event| event.name).collect();
    let expected = [
        "library_constructor",
        "constructor_200",
        "constructor",
        "main",
        "second_source",
        "shared",
        "library_function",
        "shared",
        "shared",
        "at_exit",
        "destructor",
        "library_destructor",
    ];
    assert_eq!(names, expected.map(|name| format!("places:{name}")));
    assert_eq!(trace.agreed_text(), 12);
}

#[test]
fn one_event_at_several_places_is_described_once() {
    let dir = TestDir::new();
    dir.link("libplaces.so", &["places_library.c"], &["-shared", "-fPIC"]);
    let (here, folder) =
        (format!("-Wl,-rpath,{}", dir.path("").display()), format!("-L{}", dir.path("").display()));
    let program = dir.link("places", &["places.c", "places_second.c"], &[&folder, "-lplaces", &here]);
    let trace = dir.record(&["-e", "places:shared"], &[&program]);

    let from: Vec<u64> = trace.events().iter().map(|event| event.number("from")).collect();
    assert_eq!(from, [2, 3, 1]);
    let source = trace.manifest()["sources"][0]["path"].as_str().unwrap().to_owned();
    let metadata = std::fs::read_to_string(trace.folder.join(source).join("metadata")).unwrap();
    assert_eq!(metadata.matches("places:shared").count(), 1);
}

#[test]
fn a_program_that_ends_at_once_is_recorded_whole() {
    let dir = TestDir::new();
    let program = dir.program("brief");
    for round in 0..rounds(50, 500) {
        let name = format!("trace-{round}");
        crate::support::run(&mut dir.recording(&name, &[], &[&program])).succeeded();
        let events = dir.trace(&name).events();
        let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
        assert_eq!(names, ["brief:first", "brief:last"], "round {round}");
    }
}
