//! Running processes that are named by id or by name, and their children that run already.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command},
};

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    attach::{Ticker, wait_for_events},
    kernel::permitted,
    support::{Finished, TestDir, finish, run, signal, start, wait_until},
};

#[test]
fn workers_that_run_already_are_recorded_with_their_parent() {
    let dir = TestDir::new();
    let ticker = Ticker::start(Command::new(dir.program("ticker")).arg("worker"));
    let mut recording = start(&mut dir.tompion(&["record", "-o", "trace", "-p", &ticker.pid()]));
    let mut said = BufReader::new(recording.stderr.take().expect("its lines"));
    let mut first = String::new();
    said.read_line(&mut first).expect("a line");
    assert!(first.contains("and 1 running child"), "{first}");
    // A script that waits for this line finds the trace.
    assert!(dir.path("trace/tompion.json").exists());
    wait_for_events(&dir.path("trace"));
    ticker.end();
    finish(recording, "record -p").succeeded();
    assert!(dir.trace("trace").events().iter().any(|event| event.name == "ticker:tick"));
}

#[test]
fn a_name_stands_for_all_processes_that_have_it() {
    let dir = TestDir::new();
    // Other tests' programs have other names.
    let program = dir.path("a_twin");
    std::fs::copy(dir.program("ticker"), &program).expect("a copy");
    let twins = [(); 2].map(|()| Ticker::start(&mut Command::new(&program)));
    let mut recording = start(&mut dir.tompion(&["record", "-o", "trace", "-p", "a_twin"]));
    let mut said = BufReader::new(recording.stderr.take().expect("its lines"));
    let mut first = String::new();
    said.read_line(&mut first).expect("a line");
    let mut pids = twins.each_ref().map(Ticker::pid);
    pids.sort_by_key(|pid| pid.parse::<u32>().expect("an id"));
    let [one, two] = &pids;
    assert_eq!(first.trim_end(), format!("tompion: recording a_twin ({one}), a_twin ({two})"));
    let user = dir.path("trace/user");
    wait_until("both in the trace", || std::fs::read_dir(&user).is_ok_and(|sources| sources.count() == 2));
    for twin in twins {
        twin.end();
    }
    finish(recording, "record -p").succeeded();
    let manifest = dir.trace("trace").manifest();
    for pid in &pids {
        let number: u32 = pid.parse().expect("an id");
        let is_of = |source: &&Value| source["pid"] == number;
        let source = manifest["sources"].as_array().expect("sources").iter().find(is_of);
        assert!(source.is_some_and(|source| source["events"] != 0), "{pid}: {manifest}");
    }
}

#[test]
fn workers_that_run_already_can_be_left_out() {
    let dir = TestDir::new();
    let ticker = Ticker::start(Command::new(dir.program("ticker")).arg("worker"));
    let words = ["record", "-o", "trace", "--no-children", "--duration", "300ms", "-p", &ticker.pid()];
    run(&mut dir.tompion(&words)).exited(125);
    ticker.end();
}

#[test]
fn processes_are_found_by_their_names() {
    let dir = TestDir::new();
    let (program, other) = (dir.link("one-named-ticker", &["ticker.c"], &[]), dir.path("other-named-ticker"));
    std::fs::copy(&program, &other).unwrap();
    let tickers = [&program, &other].map(|program| Ticker::start(&mut Command::new(program)));
    let list = format!("one-named-ticker,{}", tickers[1].pid());
    let recording = start(&mut dir.tompion(&["record", "-o", "trace", "-p", &list]));
    wait_until("both in the trace", || {
        dir.path("trace/user").read_dir().is_ok_and(|entries| entries.count() == 2)
    });
    for ticker in tickers {
        ticker.end();
    }
    finish(recording, "record -p").succeeded();
    let wrong = run(&mut dir.tompion(&["record", "-o", "none", "-p", "no-process-of-this-name"])).exited(125);
    assert!(wrong.err.contains("no process is named `no-process-of-this-name`"), "{}", wrong.err);
}

/// A shell whose child starts programs all the time, as a server's worker does.
fn server() -> Child {
    let mut command = Command::new("sh");
    let server = start(command.args(["-c", "while :; do sleep 0.01; done & wait"]));
    wait_until("a worker", || !children(server.id()).is_empty());
    server
}

fn children(pid: u32) -> Vec<u32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

fn record_calls(dir: &TestDir, server: &Child, trace: &str, options: &[&str]) -> Finished {
    let mut record = dir.tompion(&["record", "-o", trace, "-k", "syscall_entry_clock_nanosleep"]);
    run(record.args(["--duration", "500ms", "-p", &server.id().to_string()]).args(options))
}

#[test]
fn system_calls_of_workers_that_run_already_are_recorded() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let server = server();
    let with = record_calls(&dir, &server, "trace", &[]);
    let without = record_calls(&dir, &server, "none", &["--no-children"]);
    for pid in children(server.id()).into_iter().chain([server.id()]) {
        signal(pid, Signal::KILL);
    }
    finish(server, "the server");
    assert!(!with.succeeded().err.contains("libtompion"));
    assert!(dir.trace("trace").events().len() > 5);
    assert!(without.exited(125).err.contains("nothing recorded"));
}
