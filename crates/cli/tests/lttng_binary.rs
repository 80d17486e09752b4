//! Programs that were compiled for LTTng-UST, with its own headers and against its own libraries.
//!
//! They are left out where LTTng-UST's headers are not installed.

use std::{collections::BTreeMap, path::PathBuf, process::Command, time::Duration};

use crate::{
    lttng_source::{SOURCES, contents, source},
    support::{TestDir, Trace, beside, finish, libraries, rounds, run, signal, start},
};
use rustix::process::Signal;

/// Whether LTTng-UST's own headers are there.
fn has_lttng() -> bool {
    let folders = std::fs::read_dir("/usr/include").into_iter().flatten().flatten();
    folders.map(|entry| entry.path().join("lttng/tracepoint.h")).any(|header| header.exists())
}

/// Compiles as a user of LTTng-UST does.
fn compile(dir: &TestDir, output: &str, sources: &[PathBuf], flags: &[&str]) -> PathBuf {
    let output = dir.path(output);
    let mut cc = Command::new("gcc");
    cc.args(["-O2", "-pthread", "-I"]).arg(beside("programs/lttng")).args(["-I", "."]).args(sources);
    run(cc.args(flags).args(["-llttng-ust", "-ldl", "-o"]).arg(&output).current_dir(dir.path("")))
        .succeeded();
    output
}

fn record(dir: &TestDir, options: &[&str], command: &[&dyn AsRef<std::ffi::OsStr>]) -> Trace {
    dir.record(&[&["--lttng"], options].concat(), command)
}

#[test]
fn a_program_of_lttng_is_recorded_with_the_same_text() {
    if !has_lttng() {
        return;
    }
    let dir = TestDir::new();
    for name in SOURCES {
        std::fs::copy(source(name), dir.path(name)).unwrap();
    }
    let program = compile(&dir, "lttng_compiled", &SOURCES.map(PathBuf::from), &[]);
    let trace = record(&dir, &[], &[&program]);
    let expected = std::fs::read_to_string(beside("golden/lttng_program.txt")).unwrap();
    assert_eq!(contents(&trace), expected.lines().collect::<Vec<_>>());
}

#[test]
fn levels_and_filters_choose_its_tracepoints() {
    if !has_lttng() {
        return;
    }
    let dir = TestDir::new();
    let program = compile(&dir, "lttng_compiled", &SOURCES.map(source), &[]);
    let trace = record(&dir, &["--level", "warning"], &[&program]);
    let names: Vec<String> = trace.events().into_iter().map(|event| event.name).collect();
    assert_eq!(names, ["shapes:nothing", "lttng_ust_tracelog:LTTNG_UST_TRACEPOINT_LOGLEVEL_ERR"]);
}

#[test]
fn a_provider_that_is_loaded_later_is_recorded_and_stays() {
    if !has_lttng() {
        return;
    }
    let dir = TestDir::new();
    let provider = compile(&dir, "libloaded.so", &[source("loaded_provider.c")], &["-shared", "-fPIC"]);
    let program = compile(&dir, "lttng_loader", &[source("loader.c")], &[]);
    let trace = record(&dir, &[], &[&program, &provider, &"300"]);
    let found: Vec<_> = trace.events().iter().map(|event| event.number("n")).collect();
    assert_eq!(found, (0..300).collect::<Vec<u64>>());
}

/// Checks that each record is whole, and that those of a thread follow one another.
fn check_threads(trace: &Trace) -> usize {
    let mut next = BTreeMap::<u64, u64>::new();
    let events = trace.events();
    for event in &events {
        let (thread, i, length) = (event.number("thread"), event.number("i"), event.number("length"));
        let letter = char::from(b'a' + thread as u8);
        assert_eq!(length, i % 2001, "{event:?}");
        assert_eq!(event.fields["text"].as_str().unwrap(), letter.to_string().repeat(length as usize));
        let bytes = event.fields["bytes"].as_array().unwrap();
        assert!(
            bytes.len() as u64 == length
                && bytes.iter().all(|byte| byte.as_u64() == Some(u64::from(letter as u32)))
        );
        let expected = next.entry(thread).or_default();
        assert!(i >= *expected, "{event:?} came twice or late");
        *expected = i + 1;
    }
    events.len()
}

#[test]
fn threads_do_not_mix_their_records() {
    if !has_lttng() {
        return;
    }
    let dir = TestDir::new();
    let program = compile(&dir, "lttng_threads", &["threads.c", "threads_provider.c"].map(source), &[]);
    let trace = record(&dir, &["--subbuf-size", "4M"], &[&program, &"2500"]);
    let lost = trace.stat()["lost"]["total"].as_u64().unwrap_or(0);
    assert_eq!(check_threads(&trace) as u64 + lost, 4 * 2500);
}

#[test]
fn a_kill_at_any_instant_leaves_no_torn_record() {
    if !has_lttng() {
        return;
    }
    let dir = TestDir::new();
    let program = compile(&dir, "lttng_threads", &["threads.c", "threads_provider.c"].map(source), &[]);
    for round in 0..rounds(5, 500) {
        let name = format!("trace-{round}");
        let recorder = start(&mut dir.recording(&name, &["--lttng"], &[&program]));
        let child = first_child(recorder.id());
        std::thread::sleep(Duration::from_micros(u64::from(round) * 7919 % 40_000));
        signal(child, Signal::KILL);
        finish(recorder, "record");
        if dir.path(&name).exists() {
            check_threads(&dir.trace(&name));
            std::fs::remove_dir_all(dir.path(&name)).unwrap();
        }
    }
}

/// The process that a recorder has started, once it runs the program.
fn first_child(recorder: u32) -> u32 {
    let find = || {
        let children = std::fs::read_to_string(format!("/proc/{recorder}/task/{recorder}/children"));
        let child = children.ok()?.split_whitespace().next()?.parse::<u32>().ok()?;
        let exe = std::fs::read_link(format!("/proc/{child}/exe")).ok()?;
        exe.ends_with("lttng_threads").then_some(child)
    };
    tompion_testing::wait_until("the program", || find().is_some());
    find().expect("the program runs on")
}

#[test]
fn a_provider_of_an_unknown_version_is_refused_in_one_line() {
    let dir = TestDir::new();
    let output = dir.path("lttng_unknown");
    let folder = libraries().join("lttng-ust");
    let mut cc = Command::new("gcc");
    cc.arg(source("unknown.c")).arg(folder.join("liblttng-ust.so.1")).arg("-o").arg(&output);
    cc.arg(format!("-Wl,-rpath,{}", libraries().display()));
    run(cc.arg("-L").arg(libraries()).arg(format!("-Wl,-rpath-link,{}", libraries().display()))).succeeded();
    let mut program = Command::new(&output);
    program.env("TOMPION_DEBUG", "1").env("LD_LIBRARY_PATH", &folder);
    let refused = run(&mut program).succeeded();
    let lines: Vec<&str> = refused.err.lines().filter(|line| line.contains("not recorded")).collect();
    assert_eq!(lines.len(), 3, "{}", refused.err);
    assert_eq!(lines[0], "tompion: not recorded: newer (expected one of LTTng-UST 2.13 to 2.16)");
}

#[test]
fn a_provider_that_comes_back_is_recorded_each_time_beside_many_events() {
    let dir = TestDir::new();
    let output = dir.path("lttng_reload");
    let folder = libraries().join("lttng-ust");
    let mut cc = Command::new("gcc");
    cc.arg(source("reload.c")).arg(folder.join("liblttng-ust.so.1")).arg("-o").arg(&output);
    cc.arg(format!("-Wl,-rpath,{}", libraries().display()));
    run(cc.arg("-L").arg(libraries()).arg(format!("-Wl,-rpath-link,{}", libraries().display()))).succeeded();
    let reloads = rounds(500, 10_000);
    let trace = record(&dir, &["--subbuf-size", "1M"], &[&output, &reloads.to_string(), &"10000"]);
    let found: Vec<_> = trace.events().iter().map(|event| event.number("n")).collect();
    assert_eq!(found, (0..u64::from(reloads)).collect::<Vec<_>>());
}

#[test]
fn a_program_without_tracepoints_runs_as_without_the_flag() {
    let dir = TestDir::new();
    let nothing = run(&mut dir.recording("trace", &["--lttng"], &[&"/bin/true"])).exited(125);
    assert!(nothing.err.contains("nothing recorded"), "{}", nothing.err);
}
