//! Marks of other tracers. Programs with those of ITT and NVTX find the libraries as these tracers'
//! own headers do; those with Tracy's include Tompion's headers.

use std::{collections::BTreeMap, path::PathBuf, process::Command};

use serde_json::Value;

use crate::support::{
    Event, TestDir, Trace, beside, compiler, finish, installed, libraries, repository, run, start, wait_until,
};

fn program(dir: &TestDir, name: &str) -> PathBuf {
    let output = dir.path(&format!("marks_{name}"));
    let mut cc = compiler();
    cc.args(["-std=gnu11", "-pthread"]).arg(beside("programs/marks").join(format!("{name}.c")));
    run(cc.args(["-ldl", "-o"]).arg(&output)).succeeded();
    output
}

fn count(events: &[Event], name: &str) -> usize {
    events.iter().filter(|event| event.name == name).count()
}

/// Names of some events, in order.
fn names<'a>(events: &'a [Event], provider: &str) -> Vec<&'a str> {
    let of = |event: &'a Event| event.name.strip_prefix(provider)?.strip_prefix(':');
    events.iter().filter_map(of).collect()
}

/// Checks that spans of each thread begin and end in order, and returns how many there are of each.
fn spans(events: &[Event], thread: impl Fn(&Event) -> u64) -> BTreeMap<String, usize> {
    let mut open = BTreeMap::<(u64, String), u64>::new();
    let mut found = BTreeMap::new();
    for event in events {
        let key = |name: &str| (thread(event), name.to_owned());
        if let Some(name) = event.name.strip_suffix("_begin") {
            *open.entry(key(name)).or_default() += 1;
        } else if let Some(name) = event.name.strip_suffix("_end") {
            let left = open.get_mut(&key(name)).filter(|left| **left > 0);
            *left.unwrap_or_else(|| panic!("{event:?} ends what did not begin")) -= 1;
            *found.entry(name.to_owned()).or_default() += 1;
        }
    }
    assert!(open.values().all(|left| *left == 0), "all end: {open:?}");
    found
}

fn thread(event: &Event) -> u64 {
    event.context["vtid"].as_u64().unwrap_or_else(|| panic!("no thread in {event:?}"))
}

#[test]
fn marks_of_itt_are_spans_counters_and_flows() {
    let dir = TestDir::new();
    let trace = dir.record(&["--marks", "itt"], &[&program(&dir, "itt")]);
    let events = trace.events();
    let found = spans(&events, thread);
    assert_eq!((found["app:load data"], found["app:parse"]), (4 * 3 + 1, 4 * 3));
    assert_eq!((found["app:frame"], found["Other..Domain:parse"]), (1, 1));
    assert_eq!(found.get("Other..Domain:load data"), None, "that was in a pause");
    let parse: Vec<u64> = events
        .iter()
        .filter(|event| event.name == "app:parse_begin")
        .map(|event| event.number("id_extra"))
        .collect();
    assert_eq!(parse, [7; 12]);
    let values: Vec<u64> = events
        .iter()
        .filter(|event| event.name == "app:requests")
        .map(|event| event.number("value"))
        .collect();
    assert_eq!(values, [5, 4]);
    let heat = events.iter().find(|event| event.name == "app:heat").unwrap();
    assert_eq!(heat.fields["value"], 36.5);
    let flow = |event: &Event| (event.number("id"), event.fields["step"].clone());
    let flows: Vec<_> = events.iter().filter(|event| event.name == "app:job").map(flow).collect();
    let ids: Vec<u64> = flows.iter().map(|(id, _)| *id).collect();
    assert_eq!(ids, [11, 22, 11, 22]);
    let metadata: Vec<&Value> =
        events.iter().filter(|event| event.name == "app:key").map(|event| &event.fields["value"]).collect();
    assert_eq!(metadata, [&serde_json::json!([1, -2, 3]), &36.5.into(), &"text".into()]);
    assert_eq!(count(&events, "itt:thread_name"), 4);
    assert_eq!(names(&events, "itt").iter().filter(|name| name.contains("u")).count(), 2, "pause, resume");
}

#[test]
fn rules_and_filters_choose_marks_by_their_names() {
    let dir = TestDir::new();
    let program = program(&dir, "itt");
    let options = ["--marks", "itt", "-e", "app:parse", "--filter", "id > 2"];
    let found = spans(&dir.record(&options, &[&program]).events(), thread);
    assert_eq!(found, BTreeMap::from([("app:parse".to_owned(), 4)]), "the third of each thread");
}

#[test]
fn marks_of_nvtx_are_spans_with_their_attributes() {
    let dir = TestDir::new();
    let trace = dir.record(&["--marks", "nvtx", "--subbuf-size", "1M"], &[&program(&dir, "nvtx")]);
    let events = trace.events();
    let found = spans(&events, thread);
    assert_eq!((found["nvtx:outer"], found["nvtx:inner"]), (400, 400));
    assert_eq!(found["My..Lib:kernel launch"], 400);
    let launch = events.iter().find(|event| event.name == "My..Lib:kernel launch_begin").unwrap();
    assert_eq!((launch.number("category"), launch.number("color")), (4, 0xff00_ff00));
    assert_eq!(launch.fields["payload"], -3);
    let once: Vec<&str> = names(&events, "nvtx").into_iter().filter(|name| !name.contains('n')).collect();
    assert_eq!(once, ["category", "here", "wide €", "mark", "request", "request"], "{events:?}");
    let here = events.iter().find(|event| event.name == "nvtx:here").unwrap();
    assert_eq!(here.fields["payload"], 2.5);
    let transfer: Vec<_> = events.iter().filter(|event| event.name == "nvtx:transfer").collect();
    assert_eq!(transfer.len(), 2, "its start and its end");
    assert_eq!(transfer[0].number("id"), transfer[1].number("id"));
    assert_eq!((transfer[0].number("color"), &transfer[1].fields["color"]), (0xff00_00ff, &Value::Null));
    assert!(!trace.manifest().to_string().contains("kept apart"), "ends without attributes are no conflict");
}

#[test]
fn names_without_end_become_a_field() {
    let dir = TestDir::new();
    let options = ["--marks", "nvtx", "--subbuf-size", "4M"];
    let trace: Trace = dir.record(&options, &[&program(&dir, "nvtx"), &"9000"]);
    let events = trace.events();
    let begins = events.iter().filter(|event| event.name.ends_with("_begin"));
    let named = begins.clone().filter(|event| event.name.starts_with("nvtx:batch ")).count();
    let messages: Vec<&str> = begins.filter_map(|event| event.fields["message"].as_str()).collect();
    assert!(named < 9000 && named + messages.len() == 9000, "{named} names, {} fields", messages.len());
    assert_eq!(messages.last(), Some(&"batch 8999"));
}

#[test]
fn programs_with_marks_run_as_before_without_a_recording_and_with_an_old_api() {
    let dir = TestDir::new();
    let (itt, nvtx) = (program(&dir, "itt"), program(&dir, "nvtx"));
    assert_eq!(run(&mut Command::new(&itt)).succeeded().out, "no library\n");
    assert_eq!(run(&mut Command::new(&nvtx)).succeeded().out, "no library\n");
    let library = |name: &str| libraries().join(name);
    run(Command::new(&itt).env("INTEL_LIBITTNOTIFY64", library("libtompion-itt.so"))).succeeded();
    run(Command::new(&nvtx).env("NVTX_INJECTION64_PATH", library("libtompion-nvtx.so"))).succeeded();
    let mut old = Command::new(&itt);
    old.arg("old").env("INTEL_LIBITTNOTIFY64", library("libtompion-itt.so")).env("TOMPION_DEBUG", "1");
    let old = run(&mut old).succeeded();
    assert_eq!(old.out, "not recorded\n");
    let line = "tompion: ITT marks are not recorded: expected ittnotify 3 of build 20111111 or later, \
                found 3 of build 20101001";
    assert_eq!(old.err.lines().filter(|text| *text == line).count(), 1, "{}", old.err);
}

#[test]
fn list_names_the_origin_of_marks_in_files_and_processes() {
    let dir = TestDir::new();
    let itt = program(&dir, "itt");
    let file = run(dir.tompion(&["list"]).arg(&itt)).succeeded().out;
    assert_eq!(file, "ITT  [marks]  named while it runs, with record --marks itt  (ITT)\n");
    let go = dir.path("go");
    let recorder = start(&mut dir.recording("trace", &["--marks", "itt"], &[&itt, &"1", &go]));
    let child = || {
        let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", recorder.id())).ok()?;
        children.split_whitespace().next().map(str::to_owned)
    };
    let listed = || {
        let text = run(&mut dir.tompion(&["list", "--json", &child()?])).out;
        let rows: Vec<Value> = serde_json::from_str(&text).ok()?;
        rows.into_iter().find(|row| row["name"] == "app:parse_begin")
    };
    wait_until("a named event", || listed().is_some());
    let row = listed().unwrap();
    assert_eq!((&row["origin"], &row["kind"]), (&"ITT".into(), &"begin".into()));
    assert_eq!(row["fields"][0], "x64 id");
    std::fs::write(go, "").unwrap();
    finish(recorder, "record").succeeded();
}

/// Compiles a program with Tracy's marks.
fn tracy(dir: &TestDir, source: &str, (compiler, standard): (&str, &str)) -> PathBuf {
    let output = dir.path(&format!("tracy_{standard}"));
    let mut cc = Command::new(compiler);
    cc.arg(format!("-std={standard}"))
        .args(["-O1", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-pthread", "-I"]);
    cc.arg(repository().join("include/tracy")).arg(beside("programs/marks").join(source));
    cc.arg("-L").arg(libraries()).args(["-ltompion-tracy", "-o"]).arg(&output);
    run(cc.arg(format!("-Wl,-rpath,{}", libraries().display()))).succeeded();
    output
}

#[test]
fn zones_frames_plots_and_locks_of_tracy_are_recorded() {
    let compilers = [("g++", "c++11"), ("g++", "c++20"), ("clang++", "c++17")];
    for compiler in compilers.into_iter().filter(|(name, _)| installed(name)) {
        let dir = TestDir::new();
        let events = dir.record(&[], &[&tracy(&dir, "tracy.cpp", compiler), &"4"]).events();
        let found = spans(&events, thread);
        let names = ["work", "inner", "lambda", "typed", "audio frame", "made at 4"];
        let counts = names.map(|name| found[&format!("tracy:{name}")]);
        assert_eq!(counts, [16, 16, 8, 2, 4, 1], "{compiler:?}: {found:?}");
        let locks = ["lock_wait", "lock_acquired", "lock_released"];
        assert_eq!(locks.map(|name| count(&events, &format!("tracy:{name}"))), [16; 3]);
        assert_eq!((count(&events, "tracy:frame"), count(&events, "tracy:queue")), (5, 4));
        let load: Vec<&Value> = events
            .iter()
            .filter(|event| event.name == "tracy:load")
            .map(|event| &event.fields["value"])
            .collect();
        assert_eq!(load, [&Value::from(0.0), &0.5.into(), &1.0.into(), &1.5.into()]);
        let inner = events.iter().find(|event| event.name == "tracy:inner_begin").unwrap();
        assert_eq!(inner.number("color"), 0xff_8800);
        let texts = events.iter().filter(|event| event.fields["text"] == "round 3").count();
        assert_eq!((texts, count(&events, "tracy:zone_text")), (4, 32));
    }
}

#[test]
fn zones_of_tracys_c_interface_are_recorded() {
    for compiler in
        [("gcc", "c99"), ("gcc", "gnu11"), ("clang", "c17")].into_iter().filter(|(name, _)| installed(name))
    {
        let dir = TestDir::new();
        let program = tracy(&dir, "tracy.c", compiler);
        assert_eq!(run(&mut Command::new(&program)).succeeded().err, "", "without a recording");
        let events = dir.record(&[], &[&program]).events();
        assert_eq!(spans(&events, thread), [("tracy:outer".into(), 1), ("tracy:worked".into(), 1)].into());
        assert_eq!(count(&events, "tracy:lock_acquired"), 1);
        assert_eq!(count(&events, "tracy:zone_text"), 2);
    }
}
