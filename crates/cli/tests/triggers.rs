//! Triggers of recordings, and snapshots that go on after their request.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    kills::{Progress, SOURCES},
    support::{Finished, TestDir, beside, finish, run, signal, wait_until},
};

/// Variable with the folder of the sockets: tests don't see each other's recordings.
const CONTROL: &str = "TOMPION_CONTROL";
/// Rings that hold all of the ticker's events of a test.
const FLIGHT: [&str; 6] = ["--mode", "overwrite", "--subbuf-size", "256K", "--subbufs", "8"];
/// Rings that hold some hundreds of them.
const SMALL_FLIGHT: [&str; 6] = ["--mode", "overwrite", "--subbuf-size", "4K", "--subbufs", "4"];

fn tompion(dir: &TestDir, arguments: &[&str]) -> Finished {
    run(dir.tompion(arguments).env(CONTROL, dir.path("control")))
}

/// A program that counts until its input ends, recorded as the session `s`.
fn start(dir: &TestDir, options: &[&str]) -> Child {
    start_program(dir, options, &[&dir.program("ticker").to_string_lossy()])
}

fn start_program(dir: &TestDir, options: &[&str], program: &[&str]) -> Child {
    let options = [&["record", "--session", "s", "-o", "trace"], options, &["--"], program].concat();
    let mut command = dir.tompion(&options);
    command.env(CONTROL, dir.path("control"));
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    tompion_os::Inheritance::current().hand_on_to_companion(&mut command);
    let recorder = command.spawn().expect("a recorder");
    wait_until("the process", || {
        let shown = tompion(dir, &["status", "--json", "s"]);
        let answer: Value = serde_json::from_str(&shown.out).unwrap_or_default();
        answer["recordings"][0]["processes"].as_array().is_some_and(|list| !list.is_empty())
    });
    recorder
}

fn end(mut recorder: Child) -> Finished {
    drop(recorder.stdin.take());
    finish(recorder, "record")
}

/// Numbers of the ticker's events; each is there once.
fn ticks(dir: &TestDir) -> BTreeSet<u64> {
    let events = dir.trace("trace").events();
    let numbers: Vec<u64> = events
        .iter()
        .filter(|event| event.name == "ticker:tick")
        .map(|event| event.number("number"))
        .collect();
    let set: BTreeSet<u64> = numbers.iter().copied().collect();
    assert_eq!(set.len(), numbers.len(), "some are there twice");
    set
}

/// Number of the first tick at a time or later.
fn first_tick_since(dir: &TestDir, time_ns: i64) -> u64 {
    let events = dir.trace("trace").events();
    let first = events.iter().find(|event| event.name == "ticker:tick" && event.time >= time_ns);
    first.expect("ticks after the request").number("number")
}

fn firings(dir: &TestDir) -> Vec<Value> {
    dir.trace("trace").manifest()["firings"].as_array().cloned().unwrap_or_default()
}

#[test]
fn a_snapshot_that_goes_on_has_both_sides_of_its_request_without_a_gap() {
    let dir = TestDir::new();
    // Rings that are overwritten several times in the time after the request.
    let recorder = start(&dir, &SMALL_FLIGHT);
    std::thread::sleep(Duration::from_secs(3));
    let (asked, asked_ns) = (Instant::now(), tompion_os::realtime_ns() as i64);
    let saved = tompion(&dir, &["snapshot", "s", "--after", "3s"]).succeeded().err;
    assert!(asked.elapsed() >= Duration::from_secs(3), "{saved}");
    let snapshot = ticks(&dir);
    std::thread::sleep(Duration::from_secs(3));
    end(recorder).succeeded();
    let (first, last) = (snapshot.first().copied().unwrap_or(0), snapshot.last().copied().unwrap_or(0));
    assert!(first > 1, "the oldest events were overwritten before");
    // Before the request, each CPU's ring holds what it can. From the request on, all is there.
    let at_request = first_tick_since(&dir, asked_ns);
    let missing: Vec<u64> = (at_request - 1..=last).filter(|number| !snapshot.contains(number)).collect();
    assert!(missing.is_empty(), "{} from {at_request} to {last}, {:?}…", missing.len(), missing.first());
    // 3 s are some 2,800 ticks; the rings hold a part of that.
    assert!(last - at_request > 1000, "{at_request} to {last}");
    assert!(saved.contains("saved"), "{saved}");
    let all = ticks(&dir);
    assert!(snapshot.is_subset(&all) && all.len() < *all.last().expect("ticks") as usize);
}

#[test]
fn snapshots_that_go_on_can_overlap() {
    let dir = TestDir::new();
    let recorder = start(&dir, &FLIGHT);
    let ask = |after: &str| {
        let mut command = dir.tompion(&["snapshot", "s", "--after", after]);
        command.env(CONTROL, dir.path("control")).stderr(Stdio::piped()).spawn().expect("a request")
    };
    let mut long = ask("4s");
    let short = ask("300ms");
    finish(short, "short").succeeded();
    assert!(matches!(long.try_wait(), Ok(None)), "each has its own end");
    finish(long, "long").succeeded();
    end(recorder).succeeded();
    let all = ticks(&dir);
    assert_eq!(all.len() as u64, *all.last().expect("ticks"), "each is there once");
}

#[test]
fn an_external_trigger_saves_notifies_and_keeps_to_its_limit() {
    let dir = TestDir::new();
    let rule = "external:slow -> snapshot, notify after 200ms limit 1/1h";
    let recorder = start(&dir, &[&FLIGHT[..], &["--trigger", rule]].concat());
    let mut watch = dir.tompion(&["trigger", "s", "--watch", "--json"]);
    watch.env(CONTROL, dir.path("control")).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut watch = watch.spawn().expect("a watcher");
    let mut messages = BufReader::new(watch.stderr.take().expect("messages")).lines();
    let ready = messages.next().expect("a line").expect("text");
    assert!(ready.contains("watches the triggers of s"), "{ready}");
    tompion(&dir, &["trigger", "s", "slow"]).succeeded();
    let mut line = String::new();
    let mut lines = BufReader::new(watch.stdout.take().expect("an output"));
    lines.read_line(&mut line).expect("a line");
    let firing: Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!((&firing["cause"], &firing["trigger"]), (&"external:slow".into(), &rule.into()));
    assert!(tompion(&dir, &["trigger", "s", "slow"]).exited(1).err.contains("at its limit"));
    let unknown = tompion(&dir, &["trigger", "s", "fast"]).exited(1).err;
    assert!(unknown.contains("no external trigger fast"), "{unknown}");
    wait_until("the snapshot", || dir.path("trace/user").exists());
    let lines = end(recorder).succeeded().err;
    assert!(lines.contains(&format!("trigger `{rule}`: external:slow")), "{lines}");
    assert!(watch.wait().expect("its end").success(), "the watcher ends with the recording");
    let firings = firings(&dir);
    assert_eq!((firings.len(), &firings[0]["cause"]), (1, &"external:slow".into()));
}

#[test]
fn a_client_in_python_receives_a_trigger() {
    let dir = TestDir::new();
    let recorder = start(&dir, &["--trigger", "external:slow -> notify limit 1/1h"]);
    let mut client = Command::new("python3");
    client.arg(beside("programs/varlink_trigger.py")).arg(dir.path("control/s/control"));
    let out = run(&mut client).succeeded().out;
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines, ["True", "False", "io.tompion.Recording1.NoTrigger", "external:slow 0"]);
    end(recorder).succeeded();
    let client = fs::read_to_string(beside("programs/varlink_trigger.py")).expect("a client");
    assert!(client.lines().count() < 50);
}

#[test]
fn a_command_that_is_killed_fires_a_trigger_that_runs_a_program() {
    let dir = TestDir::new();
    let output = dir.path("output");
    let hook = dir.path("hook.sh");
    fs::write(&hook, format!("echo \"$1 $TOMPION_TRIGGER\" > {}\n", output.display())).expect("a script");
    let rule = format!("killed -> run sh {} now", hook.display());
    let script = format!("{} 1 100; kill -SEGV $$", dir.program("numbered").display());
    let mut recorder = dir.tompion(&["record", "-o", "trace", "--trigger", &rule, "--", "sh", "-c", &script]);
    let recorder = recorder.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("a recorder");
    wait_until("the program", || {
        fs::read_to_string(&output).is_ok_and(|text| text.contains("now killed -> run"))
    });
    finish(recorder, "record");
    let firings = firings(&dir);
    assert_eq!(firings[0]["cause"], "killed by signal 11", "{firings:?}");
}

#[test]
fn losses_fire_a_trigger() {
    let dir = TestDir::new();
    let program = dir.program("numbered");
    let script = format!("read line; {} 1 300000; sleep 1.5", program.display());
    let options = ["--subbuf-size", "4K", "--subbufs", "2", "--preload", "malloc", "-e", "numbered:*"];
    let rule = ["--rotate", "manual", "--trigger", "loss -> rotate limit 2/1h"];
    let mut recorder = start_program(&dir, &[&options[..], &rule].concat(), &["dash", "-c", &script]);
    let input = recorder.stdin.as_mut().expect("an input");
    input.write_all(b"go\n").expect("a reader");
    end(recorder).succeeded();
    let firings = firings(&dir);
    assert!(!firings.is_empty() && firings.len() <= 2, "{firings:?}");
    assert!(firings[0]["cause"].as_str().is_some_and(|cause| cause.ends_with("events lost")));
    assert!(dir.path("trace/chunk-000002").exists(), "it has rotated");
}

#[test]
fn losses_shortly_before_the_end_fire_a_trigger() {
    let dir = TestDir::new();
    let program = dir.program("numbered");
    let options = ["--subbuf-size", "4K", "--subbufs", "2", "--trigger", "loss -> notify"];
    run(&mut dir.recording("trace", &options, &[&program, &"1", &"300000"])).succeeded();
    let lost = dir.trace("trace").stat()["lost"]["total"].as_u64().unwrap_or(0);
    let in_firing = |firing: &Value| {
        let cause = firing["cause"].as_str().unwrap_or_default();
        cause.split(' ').next().and_then(|number| number.parse::<u64>().ok()).unwrap_or(0)
    };
    let fired: u64 = firings(&dir).iter().map(in_firing).sum();
    assert!(lost > 0 && fired == lost, "{fired} of {lost}");
}

#[test]
fn the_signal_by_which_the_recorder_ends_the_command_fires_no_trigger() {
    let dir = TestDir::new();
    let recorder = start(&dir, &["--trigger", "killed -> notify"]);
    tompion(&dir, &["stop", "s"]).succeeded();
    finish(recorder, "record");
    assert_eq!(dir.trace("trace").manifest()["command_end"]["end"], "killed by signal 15");
    assert_eq!(firings(&dir), Vec::<Value>::new());
}

#[test]
fn what_is_cleared_is_no_loss_where_the_disk_takes_nothing_afterwards() {
    let dir = TestDir::new();
    let progress = Progress::new(dir.path("progress"));
    let options = [&FLIGHT[..], &["--session", "s"]].concat();
    // The first program's events are in the trace: an empty one would be removed.
    let script = r#""$1" 1 10; exec "$2" "$3" 60000 0 0"#;
    let (first, emitter) = (dir.program("numbered"), dir.program("emitter"));
    let command: [&dyn AsRef<OsStr>; 7] = [&"sh", &"-c", &script, &"sh", &first, &emitter, &progress.path()];
    let mut recording = dir.recording("trace", &options, &command);
    let recorder = crate::support::start(recording.env(CONTROL, dir.path("control")));
    let pid = progress.pid();
    let appended = || progress.returned().iter().sum::<u64>();
    wait_until("some events", || appended() > 500);
    signal(pid, Signal::STOP);
    wait_until("the stop", || {
        fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|line| line.contains(") T "))
    });
    tompion(&dir, &["clear", "s"]).succeeded();
    let cleared = appended();
    // The folder of its trace can't be made.
    fs::write(dir.path(&format!("trace/user/emitter-{pid}")), "").expect("a file");
    signal(pid, Signal::CONT);
    wait_until("more events", || appended() > cleared);
    signal(pid, Signal::KILL);
    finish(recorder, "record");
    let manifest = dir.trace("trace").manifest();
    let sources = manifest["sources"].as_array().cloned().unwrap_or_default();
    let source = sources.iter().find(|source| source["pid"] == pid).expect("the program");
    let lost = source["lost"]["not_written"].as_u64().unwrap_or(0);
    let more = appended() - cleared;
    assert!((1..=more + SOURCES as u64).contains(&lost), "{lost} lost of {more}, {cleared} cleared");
}

#[test]
fn what_is_cleared_is_gone_and_no_loss() {
    let dir = TestDir::new();
    let recorder = start(&dir, &FLIGHT);
    std::thread::sleep(Duration::from_millis(300));
    tompion(&dir, &["clear", "s"]).succeeded();
    std::thread::sleep(Duration::from_millis(300));
    end(recorder).succeeded();
    let kept = ticks(&dir);
    assert!(*kept.first().expect("ticks") > 1, "the history is dropped: {:?}", kept.first());
    assert_eq!(dir.trace("trace").stat()["lost"]["total"], 0);

    let dir = TestDir::new();
    let recorder = start(&dir, &["--rotate", "manual"]);
    std::thread::sleep(Duration::from_millis(300));
    tompion(&dir, &["rotate", "s"]).succeeded();
    std::thread::sleep(Duration::from_millis(700));
    tompion(&dir, &["clear", "s"]).succeeded();
    std::thread::sleep(Duration::from_millis(300));
    end(recorder).succeeded();
    let kept = ticks(&dir);
    let numbers: Vec<u64> = kept.iter().copied().collect();
    let gaps: Vec<u64> =
        numbers.windows(2).map(|pair| pair[1] - pair[0] - 1).filter(|missing| *missing > 0).collect();
    assert_eq!((gaps.len(), numbers[0]), (1, 1), "one hole, where the chunk was: {gaps:?}");
    let stat = dir.trace("trace").stat();
    assert_eq!((&stat["lost"]["total"], &stat["lost_packets"]), (&0.into(), &0.into()));
    assert_eq!(dir.trace("trace").agreed_count(), stat["events"].as_u64().unwrap_or(0));
}

#[test]
fn triggers_that_can_do_nothing_are_refused() {
    let dir = TestDir::new();
    for (rule, expected) in [
        ("loss -> snapshot", "needs --mode overwrite"),
        ("loss -> rotate", "needs --rotate manual"),
        (
            "sometimes -> notify",
            "expected event:GLOB, span:GLOB > TIME, late:GLOB, silence:GLOB for TIME, killed, killed:NAME, loss, \
             fill:PERCENT%, rate:EVENTS/s or external:WORD",
        ),
    ] {
        let refused = tompion(&dir, &["record", "--trigger", rule, "--", "true"]).exited(125).err;
        assert!(refused.contains(expected), "{refused}");
    }
}

/// Values that come to their thresholds fire once, until they were lower.
#[test]
fn rates_and_full_rings_fire() {
    let dir = TestDir::new();
    let triggers = ["rate:100/s -> notify", "rate:100M/s -> notify", "fill:90% -> notify"];
    let mut options = vec!["--subbuf-size", "4K", "--subbufs", "2"];
    triggers.iter().for_each(|trigger| options.extend(["--trigger", *trigger]));
    let recorder = start(&dir, &options);
    let firings = |of: &str| {
        let manifest = fs::read_to_string(dir.path("trace/tompion.json")).unwrap_or_default();
        let manifest: Value = serde_json::from_str(&manifest).unwrap_or_default();
        let all = manifest["firings"].as_array().cloned().unwrap_or_default();
        all.into_iter().filter(|firing| firing["trigger"] == of).collect::<Vec<_>>()
    };
    wait_until("the rate", || !firings(triggers[0]).is_empty());
    // What the program records while nothing reads it fills the ring.
    wait_until("a full ring", || {
        signal(recorder.id(), Signal::STOP);
        std::thread::sleep(Duration::from_millis(500));
        signal(recorder.id(), Signal::CONT);
        std::thread::sleep(Duration::from_millis(1500));
        !firings(triggers[2]).is_empty()
    });
    end(recorder).succeeded();
    let cause = |trigger| firings(trigger)[0]["cause"].as_str().unwrap_or_default().to_owned();
    assert!(cause(triggers[0]).ends_with(" events per second"), "{}", cause(triggers[0]));
    assert!(cause(triggers[2]).starts_with("a ring was "), "{}", cause(triggers[2]));
    assert_eq!(firings(triggers[1]), [Value::Null; 0]);
}

#[test]
fn flight_recorders_refuse_triggers_on_full_rings() {
    let dir = TestDir::new();
    let options = ["record", "--mode", "overwrite", "--trigger", "fill:90% -> notify", "--", "true"];
    let refused = tompion(&dir, &options).exited(125).err;
    assert!(refused.contains("become full by design"), "{refused}");
}
