//! State dumps: functions of programs that record their present state when a recording begins.

use std::{
    collections::BTreeSet,
    process::{Child, Command},
};

use rustix::process::Signal;

use crate::{
    attach::{Ticker, wait_for_events},
    chunks::{CONTROL, chunks, count},
    support::{Event, TestDir, Trace, finish, rounds, run, signal, start, wait_until},
};

const SETTINGS: usize = 40;

/// The program, which counts until it is told to end.
fn ticking(dir: &TestDir) -> Ticker {
    Ticker::start(Command::new(dir.program("stateful")).args(["ticks", &SETTINGS.to_string()]))
}

fn attach(dir: &TestDir, name: &str, ticker: &Ticker, options: &[&str]) -> Child {
    start(dir.tompion(&["record", "-o", name, "-p", &ticker.pid()]).args(options))
}

/// Checks that a dump is there, whole and once. Returns which call of the program's it was.
#[track_caller]
fn assert_dumped_once(events: &[Event]) -> u64 {
    let of = |name: &str| events.iter().filter(|event| event.name == name).cloned().collect::<Vec<_>>();
    let (settings, dumped) = (of("stateful:setting"), of("stateful:dumped"));
    assert_eq!(dumped.len(), 1, "dumps");
    let call = dumped[0].number("call");
    let numbers: Vec<u64> = settings.iter().map(|event| event.number("number")).collect();
    assert_eq!(numbers, (0..SETTINGS as u64).collect::<Vec<_>>());
    for (number, event) in settings.iter().enumerate() {
        assert_eq!(event.fields["value"], format!("value of {number}"));
        assert_eq!(event.number("call"), call, "events of another recording's dump");
    }
    call
}

#[test]
fn each_recording_that_attaches_gets_the_state_and_the_others_do_not_get_it_again() {
    let dir = TestDir::new();
    let ticker = ticking(&dir);
    let first = attach(&dir, "first", &ticker, &[]);
    wait_for_events(&dir.path("first"));
    let second = attach(&dir, "second", &ticker, &["--context", "app"]);
    wait_for_events(&dir.path("second"));
    let last = ticker.end();
    let mut calls = BTreeSet::new();
    for (name, recording) in [("first", first), ("second", second)] {
        finish(recording, "record -p").succeeded();
        let trace = dir.trace(name);
        trace.agreed_text();
        let events = trace.events();
        calls.insert(assert_dumped_once(&events));
        let mut ticks = events.iter().filter(|event| event.name == "stateful:tick");
        assert_eq!(ticks.next_back().expect("ticks").number("number"), last);
    }
    assert_eq!(calls.len(), 2, "each has a dump of its own");
}

#[test]
fn a_recording_that_was_there_before_gets_the_state_of_what_it_records() {
    let dir = TestDir::new();
    for (filter, expected) in [(None, SETTINGS), (Some("number < 5"), 5)] {
        let program = dir.program("stateful");
        let name = format!("trace-{expected}");
        let options: Vec<&str> = filter.iter().flat_map(|filter| ["--filter", filter]).collect();
        let mut record = dir.recording(&name, &options, &[&program, &"fork", &SETTINGS.to_string()]);
        run(&mut record).succeeded();
        let events = dir.trace(&name).events();
        let mut sources: Vec<&str> = events.iter().map(|event| event.source.as_str()).collect();
        sources.sort_unstable();
        sources.dedup();
        assert_eq!(sources.len(), 2, "the parent and its child: {sources:?}");
        for source in sources {
            let own = events.iter().filter(|event| event.source == source).cloned().collect::<Vec<_>>();
            assert_eq!(count(&own, "stateful:setting"), expected, "{source}");
        }
    }
}

#[test]
fn rules_choose_among_the_events_of_a_dump() {
    let dir = TestDir::new();
    let ticker = ticking(&dir);
    let recording = attach(&dir, "trace", &ticker, &["-e", "stateful:tick"]);
    wait_for_events(&dir.path("trace"));
    ticker.end();
    finish(recording, "record -p").succeeded();
    let events = dir.trace("trace").events();
    assert!(events.iter().all(|event| event.name == "stateful:tick"));
}

#[test]
fn each_chunk_has_the_state() {
    let dir = TestDir::new();
    let ticker = ticking(&dir);
    let mut record = dir.tompion(&["record", "-o", "trace", "--rotate", "100ms", "-p", &ticker.pid()]);
    let recording = start(record.env(CONTROL, dir.path("control")));
    wait_until("some chunks", || chunks(&dir).len() >= 4);
    ticker.end();
    finish(recording, "record --rotate").succeeded();
    assert_dumped_once(&dir.trace("trace").events());
    let chunks = chunks(&dir);
    let recorded: Vec<&Trace> = chunks.iter().filter(|chunk| chunk.folder.join("user").exists()).collect();
    assert!(recorded.len() >= 3, "{} chunks", recorded.len());
    for chunk in recorded {
        let events = chunk.events();
        assert_dumped_once(&events);
        assert_eq!(chunk.agreed_count(), events.len() as u64);
    }
}

#[test]
fn a_flight_recorder_keeps_the_state() {
    let dir = TestDir::new();
    let ticker = ticking(&dir);
    let options = ["--mode", "overwrite", "--subbuf-size", "4K", "--subbufs", "2"];
    let recording = attach(&dir, "trace", &ticker, &options);
    // A tick takes 24 bytes: each CPU's ring is overwritten several times.
    wait_until("the rings are overwritten", || {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", ticker.pid())).unwrap_or_default();
        maps.contains("rings")
    });
    std::thread::sleep(std::time::Duration::from_millis(1500));
    let last = ticker.end();
    finish(recording, "record -p").succeeded();
    let trace = dir.trace("trace");
    let (events, stat) = (trace.events(), trace.stat());
    assert!(stat["overwritten"].as_u64().expect("a number") > 300, "{} of {last}", stat["overwritten"]);
    assert_dumped_once(&events);
}

#[test]
fn what_a_dump_records_beyond_its_room_is_counted() {
    for mode in ["discard", "overwrite"] {
        let dir = TestDir::new();
        let many = rounds(200_000, 1_000_000);
        let mut program = Command::new(dir.program("stateful"));
        let ticker = Ticker::start(program.args(["ticks", &many.to_string()]));
        let recording = attach(&dir, "trace", &ticker, &["--mode", mode]);
        // The process ends behind the dump: its end waits for a call.
        wait_until("it takes part", || {
            let maps = std::fs::read_to_string(format!("/proc/{}/maps", ticker.pid())).unwrap_or_default();
            maps.contains("rings")
        });
        std::thread::sleep(std::time::Duration::from_millis(500));
        ticker.end();
        finish(recording, "record -p");
        let (events, stat) = (dir.trace("trace").events(), dir.trace("trace").stat());
        let kept = count(&events, "stateful:setting") + count(&events, "stateful:dumped");
        assert!(kept > 1000, "{kept} kept");
        assert_eq!(stat["lost"]["state_dump_full"], many as usize + 1 - kept, "{mode}: {}", stat["lost"]);
        assert!(count(&events, "stateful:tick") > 0);
    }
}

/// Records the program in one of its ways; it checks itself. Returns its output and events.
fn recorded(how: &[&str], environment: &[(&str, &str)]) -> (String, Vec<Event>) {
    let dir = TestDir::new();
    let program = dir.program("stateful");
    let command = how.iter().map(|word| word as &dyn AsRef<std::ffi::OsStr>);
    let command: Vec<_> = [&program as &dyn AsRef<std::ffi::OsStr>].into_iter().chain(command).collect();
    let mut record = dir.recording("trace", &[], &command);
    record.envs(environment.iter().copied());
    let out = run(&mut record).succeeded().out;
    (out, dir.trace("trace").events())
}

#[test]
fn a_program_ends_whatever_its_dump_does() {
    let (_, events) = recorded(&["blocked"], &[]);
    assert_eq!(count(&events, "stateful:end"), 1);
    assert_eq!(recorded(&["faulty"], &[]).0, "handled\n");
}

#[test]
fn a_removal_waits_for_the_call_unless_it_is_its_own() {
    let (_, events) = recorded(&["removed"], &[]);
    assert_eq!(count(&events, "stateful:left"), 1);
}

#[test]
fn dumps_may_add_dumps() {
    let (_, events) = recorded(&["nested"], &[]);
    let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(names, ["stateful:first", "stateful:second"]);
    assert_eq!(events[1].number("number"), 7);
}

#[test]
fn without_a_thread_of_the_library_the_adding_thread_makes_the_call() {
    for (environment, expected) in [(&[][..], "other\n"), (&[("TOMPION_ATTACH", "0")], "same\n")] {
        let (out, events) = recorded(&["caller"], environment);
        assert_eq!(out, expected);
        assert_eq!((count(&events, "stateful:dumped"), count(&events, "stateful:tick")), (1, 10));
    }
}

#[test]
fn a_library_is_unloaded_behind_its_dump() {
    let dir = TestDir::new();
    let times = rounds(40, 2000);
    let plugin = dir.link("stateful_plugin.so", &["stateful_plugin.c"], &["-shared", "-fPIC"]);
    let program = dir.link("stateful", &["stateful.c"], &["-ldl"]);
    let times = times.to_string();
    let trace = dir.record(&[], &[&program, &"plugin", &plugin, &times]);
    let events = trace.events();
    assert!(count(&events, "stateful:plugin") > 0);
    assert!(events.iter().all(|event| event.number("number") == 7), "a dump ran on in another copy");
}

#[test]
fn the_thread_of_dumps_is_in_no_ones_way() {
    // Whether this user may at all.
    let mut probe = Command::new("unshare");
    if !probe.args(["--user", "true"]).status().is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED, this user can't make user namespaces");
        return;
    }
    let (_, events) = recorded(&["single"], &[]);
    assert_eq!((count(&events, "stateful:dumped"), count(&events, "stateful:end")), (1, 1));
}

#[test]
fn dumps_of_a_process_without_sections_are_kept() {
    let dir = TestDir::new();
    let program = dir.program("stateful");
    let mut record = dir.recording("trace", &["--mode", "overwrite"], &[&program, &"caller"]);
    run(record.env("TOMPION_RSEQ", "0")).succeeded();
    assert_eq!(count(&dir.trace("trace").events(), "stateful:dumped"), 1);
}

#[test]
fn the_example_tells_which_connections_are_open() {
    let dir = TestDir::new();
    let program = dir.link("state_example", &["../../../../examples/state.c"], &[]);
    let mut server = start(Command::new(&program).arg("60"));
    let recording = start(&mut dir.tompion(&["record", "-o", "trace", "-p", &server.id().to_string()]));
    wait_for_events(&dir.path("trace"));
    signal(recording.id(), Signal::INT);
    finish(recording, "record -p").succeeded();
    server.kill().and_then(|()| server.wait()).expect("the server's end");
    let events = dir.trace("trace").events();
    let peers = events.iter().filter(|event| event.name == "server:connection");
    let peers: Vec<_> = peers.map(|event| event.fields["peer"].clone()).collect();
    assert_eq!(peers, ["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
}

#[test]
fn in_cxx_a_dump_is_an_object() {
    let dir = TestDir::new();
    let program = dir.path("stateful");
    let mut compile = dir.compile("c++", &program);
    compile.arg("-std=c++17").arg(crate::support::beside("programs").join("stateful.cc")).arg("-ltompion");
    run(&mut compile).succeeded();
    let trace = dir.record(&[], &[&program]);
    let peers: Vec<_> = trace.events().iter().map(|event| event.fields["peer"].clone()).collect();
    assert_eq!(peers, ["10.0.0.1", "10.0.0.2"]);
}

#[test]
fn a_recording_that_ends_during_a_dump_leaves_nothing_behind() {
    let dir = TestDir::new();
    let ticker = ticking(&dir);
    for round in 0..rounds(5, 100) {
        let name = format!("trace-{round}");
        let recording = attach(&dir, &name, &ticker, &[]);
        wait_for_events(&dir.path(&name));
        signal(recording.id(), Signal::INT);
        finish(recording, "record -p").succeeded();
    }
    let recording = attach(&dir, "last", &ticker, &[]);
    wait_for_events(&dir.path("last"));
    ticker.end();
    finish(recording, "record -p").succeeded();
    assert_dumped_once(&dir.trace("last").events());
}
