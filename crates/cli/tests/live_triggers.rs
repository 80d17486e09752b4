//! Triggers that change while a recording runs.

use std::{
    fs,
    io::Write as _,
    process::{Child, Stdio},
};

use serde_json::Value;

use crate::{
    recovery::kill_session,
    support::{Finished, TestDir, finish, run, wait_until},
};

/// Variable with the folder of the sockets: tests don't see each other's recordings.
const CONTROL: &str = "TOMPION_CONTROL";

fn tompion(dir: &TestDir, arguments: &[&str]) -> Finished {
    run(dir.tompion(arguments).env(CONTROL, dir.path("control")))
}

/// Changes triggers of the session `s`.
fn trigger(dir: &TestDir, arguments: &[&str]) -> Finished {
    tompion(dir, &[&["trigger", "s"], arguments].concat())
}

/// The same, and waits until the programs follow, which takes longer on a busy machine.
fn change(dir: &TestDir, arguments: &[&str]) {
    let said = trigger(dir, arguments).err;
    assert!(said.contains("triggers changed"), "{said}");
    wait_until("programs that follow", || processes(dir).iter().all(|it| it["triggers"] == "current"));
}

/// Records a program as the session `s`, until its input ends.
fn record(dir: &TestDir, options: &[&str], program: &[&str]) -> Child {
    let name = dir.program(program[0]).to_string_lossy().into_owned();
    let command =
        [&["record", "--session", "s", "-o", "trace"], options, &["--", &name], &program[1..]].concat();
    let mut command = dir.tompion(&command);
    command.env(CONTROL, dir.path("control")).stdin(Stdio::piped());
    let recorder = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a recorder");
    wait_until("a process", || !processes(dir).is_empty());
    recorder
}

fn end(mut recorder: Child) -> Finished {
    drop(recorder.stdin.take());
    finish(recorder, "record")
}

fn status(dir: &TestDir) -> Value {
    let shown = tompion(dir, &["status", "--json"]).out;
    let answers: Value = serde_json::from_str(&shown).unwrap_or_default();
    answers["recordings"][0].clone()
}

fn processes(dir: &TestDir) -> Vec<Value> {
    status(dir)["processes"].as_array().cloned().unwrap_or_default()
}

fn manifest(dir: &TestDir) -> Value {
    let text = fs::read_to_string(dir.path("trace/tompion.json")).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// Firings of a trigger so far.
fn firings_of(dir: &TestDir, trigger: &str) -> Vec<Value> {
    let all = manifest(dir)["firings"].as_array().cloned().unwrap_or_default();
    all.into_iter().filter(|firing| firing["trigger"] == trigger).collect()
}

fn has_fired(dir: &TestDir, trigger: &str) -> bool {
    !firings_of(dir, trigger).is_empty()
}

/// Names of the events that firings of a trigger tell.
fn captured(dir: &TestDir, trigger: &str) -> Vec<String> {
    let captures = firings_of(dir, trigger).into_iter();
    let captures = captures.flat_map(|firing| firing["captures"].as_array().cloned().unwrap_or_default());
    captures.map(|capture| capture["event"].as_str().unwrap_or_default().to_owned()).collect()
}

const LEFT: &str = "event:swapper:left -> notify limit 3/1h";
const RIGHT: &str = "event:swapper:right -> notify limit 3/1h";

#[test]
fn triggers_are_added_removed_and_replaced_while_a_program_runs() {
    let dir = TestDir::new();
    let recorder = record(&dir, &["--trigger", LEFT], &["swapper", "1"]);
    wait_until("a firing", || has_fired(&dir, LEFT));
    change(&dir, &["--add", RIGHT]);
    wait_until("a firing of the new trigger", || has_fired(&dir, RIGHT));
    assert_eq!(trigger(&dir, &["--list"]).succeeded().out, format!("{LEFT}\n{RIGHT}\n"));
    assert_eq!(status(&dir)["triggers"].as_array().map(Vec::len), Some(2));
    assert_eq!(processes(&dir)[0]["triggers"], "current");
    let external = "external:slow -> notify";
    change(&dir, &["--remove", LEFT, "--remove", RIGHT, "--add", external]);
    trigger(&dir, &["slow"]).succeeded();
    let long = "span:swapper:turn > 1us -> notify limit 1/1h";
    change(&dir, &["--set", long]);
    wait_until("a span", || has_fired(&dir, long));
    let unknown = trigger(&dir, &["slow"]).exited(1).err;
    assert!(unknown.contains("no external trigger slow"), "{unknown}");
    change(&dir, &["--remove", "all"]);
    assert_eq!(trigger(&dir, &["--list"]).succeeded().out, "");
    end(recorder).succeeded();
    let changes = manifest(&dir)["trigger_changes"].as_array().cloned().unwrap_or_default();
    let numbers: Vec<usize> =
        changes.iter().filter_map(|it| Some(it["triggers"].as_array()?.len())).collect();
    assert_eq!(numbers, [2, 1, 1, 0]);
    assert!(firings_of(&dir, LEFT).len() <= 3, "its limit is kept by the change");
    let stat = tompion(&dir, &["stat", "trace"]).succeeded().out;
    assert!(stat.contains("triggers     changed 4 times"), "{stat}");
}

#[test]
fn matches_never_fire_the_trigger_that_has_got_the_number() {
    let dir = TestDir::new();
    // Each firing has a line, which is read at the end.
    let left = "event:swapper:left -> notify limit 5/1h";
    let right = "event:swapper:right ? number >= 0 -> notify limit 5/1h";
    let span = "span:swapper:turn > 1us -> notify limit 5/1h";
    let recorder = record(&dir, &[], &["swapper", "4"]);
    for round in 0..30 {
        change(&dir, &["--set", [left, right, span][round % 3]]);
    }
    for (text, event) in [(left, "swapper:left"), (right, "swapper:right"), (span, "swapper:turn")] {
        change(&dir, &["--set", text]);
        wait_until("a firing", || has_fired(&dir, text));
        let found = captured(&dir, text);
        assert!(!found.is_empty() && found.iter().all(|name| name == event), "{text}: {found:?}");
    }
    let said = end(recorder).succeeded().err;
    assert!(!said.contains("can't be"), "no count was impossible: {said}");
}

#[test]
fn triggers_that_can_not_be_change_nothing() {
    let dir = TestDir::new();
    let recorder = record(&dir, &["--trigger", LEFT], &["swapper", "1"]);
    let many = ["--add", "event:a:b -> notify"].repeat(17);
    for (arguments, expected) in [
        (vec!["--add", "killed"], "expected WHEN -> DO"),
        (vec!["--add", "killed -> snapshot"], "needs --mode overwrite"),
        (vec!["--set", "loss -> rotate"], "needs --rotate manual"),
        (vec!["--remove", "killed -> notify"], "no trigger `killed -> notify`"),
        (many, "at most 16 triggers on events"),
    ] {
        let refused = trigger(&dir, &arguments).exited(1).err;
        assert!(refused.contains(expected), "{refused}");
    }
    assert_eq!(trigger(&dir, &["--list"]).succeeded().out, format!("{LEFT}\n"));
    end(recorder).succeeded();
    assert_eq!(manifest(&dir)["trigger_changes"], Value::Null);
}

#[test]
fn children_have_the_newest_triggers() {
    let dir = TestDir::new();
    let recorder = record(&dir, &[], &["ticker", "fork"]);
    let child = "event:ticker:child -> notify";
    change(&dir, &["--set", "event:ticker:tock -> notify limit 1/1h"]);
    change(&dir, &["--set", child]);
    end(recorder).succeeded();
    assert_eq!(captured(&dir, child), ["ticker:child"]);
}

#[test]
fn changed_triggers_survive_a_recorder_that_is_killed() {
    let dir = TestDir::new();
    let [left, right] = ["left", "right"].map(|name| format!("event:swapper:{name} -> notify limit 50/1h"));
    let (left, right) = (left.as_str(), right.as_str());
    let mut recorder = record(&dir, &["--linger", "20s", "--trigger", left], &["swapper", "1"]);
    change(&dir, &["--set", right]);
    wait_until("a firing", || has_fired(&dir, right));
    let input = recorder.stdin.take();
    kill_session(recorder);
    let before = (firings_of(&dir, left).len(), firings_of(&dir, right).len());
    let mut next = dir.tompion(&["record", "--resume", "-o", "trace"]);
    next.env(CONTROL, dir.path("control")).stdout(Stdio::piped()).stderr(Stdio::piped());
    let next = next.spawn().expect("a recorder");
    wait_until("a firing of the next recorder", || firings_of(&dir, right).len() > before.1);
    assert_eq!(trigger(&dir, &["--list"]).succeeded().out, format!("{right}\n"));
    change(&dir, &["--add", left]);
    wait_until("a firing of a trigger that is there again", || firings_of(&dir, left).len() > before.0);
    drop(input);
    finish(next, "record --resume").succeeded();
    assert!(captured(&dir, left).iter().all(|name| name == "swapper:left"));
    assert!(captured(&dir, right).iter().all(|name| name == "swapper:right"));
}

/// Tells the program something.
fn say(recorder: &mut Child, word: &str) {
    let input = recorder.stdin.as_mut().expect("an input");
    input.write_all(word.as_bytes()).and_then(|()| input.flush()).expect("a reader");
}

#[test]
fn an_event_that_stays_away_fires_once_until_it_comes_again() {
    let dir = TestDir::new();
    let rule = "silence:swapper:left for 300ms -> notify";
    let mut recorder = record(&dir, &["--trigger", rule], &["swapper", "2"]);
    say(&mut recorder, "p");
    wait_until("a silence", || has_fired(&dir, rule));
    let first = firings_of(&dir, rule);
    let cause = first[0]["cause"].as_str().unwrap_or_default().to_owned();
    assert!(cause.starts_with("no swapper:left for ") && cause.contains(" s in swapper ("), "{cause}");
    let seconds: f64 = cause.split(' ').nth(3).and_then(|it| it.parse().ok()).expect("seconds");
    assert!(seconds >= 0.3, "{cause}");
    assert_eq!((first.len(), &first[0]["captures"]), (1, &Value::Null));
    say(&mut recorder, "g");
    wait_until("events", || {
        // They end the silence, which can come again.
        say(&mut recorder, "gp");
        firings_of(&dir, rule).len() > 1
    });
    end(recorder).succeeded();
}

#[test]
fn programs_that_end_are_not_silent() {
    let dir = TestDir::new();
    let rule = "silence:swapper:* for 10s -> notify";
    let recorder = record(&dir, &["--trigger", rule], &["swapper", "1"]);
    wait_until("events", || processes(&dir).iter().any(|it| it["appended"].as_u64() > Some(0)));
    std::thread::sleep(std::time::Duration::from_millis(100));
    let said = end(recorder).succeeded().err;
    assert!(said.contains("has gone, so that swapper:* is not missed there"), "{said}");
    assert!(!has_fired(&dir, rule));
}

#[test]
fn a_program_killed_by_a_signal_fires_though_it_is_not_the_command() {
    let dir = TestDir::new();
    let program = dir.program("swapper").to_string_lossy().into_owned();
    // Without a shell that waits for it, the program stays a zombie.
    let script = "\"$0\" 1 < /dev/zero & child=$!; sleep 1; kill -9 $child; exec sleep 1";
    let (rule, other) = ("killed:swap* -> notify", "killed:other -> notify");
    let options = ["record", "-o", "trace", "--trigger", rule, "--trigger", other, "--", "sh", "-c", script];
    tompion(&dir, &[&options[..], &[&program]].concat()).succeeded();
    let fired = firings_of(&dir, rule);
    assert_eq!((fired.len(), firings_of(&dir, other).len()), (1, 0));
    let cause = fired[0]["cause"].as_str().unwrap_or_default();
    assert!(cause.starts_with("swapper (") && cause.ends_with(") killed by signal 9"), "{cause}");
    assert_eq!(manifest(&dir)["sources"][0]["end"], "killed by signal 9");
}

#[test]
fn firings_are_events_of_the_trace() {
    let dir = TestDir::new();
    let external = "external:slow -> notify";
    let options = ["--rotate", "manual", "--trigger", external];
    let recorder = record(&dir, &options, &["swapper", "1"]);
    trigger(&dir, &["slow", "--incident", "web-1"]).succeeded();
    tompion(&dir, &["rotate", "s"]).succeeded();
    trigger(&dir, &["slow", "--incident", "web-2"]).succeeded();
    end(recorder).succeeded();
    let printed = tompion(&dir, &["print", "trace", "-e", "tompion:firing"]).succeeded().out;
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines.len(), 2, "{printed}");
    for (line, incident) in lines.iter().zip(["web-1", "web-2"]) {
        let fields =
            format!("trigger = \"{external}\", cause = \"external:slow\", incident = \"{incident}\"");
        assert!(line.contains(":tompion:(") && line.contains(&fields), "{line}");
    }
    let stat = dir.trace("trace").stat();
    let processes = stat["processes"].as_array().expect("processes");
    assert!(
        processes.iter().all(|process| process["name"] == "swapper"),
        "the recorder is no program: {stat}"
    );
}

#[test]
fn top_shows_events_by_name() {
    let dir = TestDir::new();
    let recorder = record(&dir, &["-e", "swapper:left,swapper:right"], &["swapper", "1"]);
    let top = |arguments: &[&str]| {
        tompion(&dir, &[&["top", "s", "--by", "event"], arguments].concat()).succeeded().out
    };
    let events = || -> Vec<Value> {
        let shown = top(&["--json", "--once", "--interval", "300ms"]);
        let table: Value = serde_json::from_str(&shown).expect("JSON");
        table["recordings"][0]["events"].as_array().cloned().unwrap_or_default()
    };
    wait_until("rates", || events().iter().any(|event| event["per_s"].as_f64() > Some(0.0)));
    let names: Vec<Value> = events().iter().map(|event| event["event"].clone()).collect();
    assert!(names.len() == 2 && names.contains(&"swapper:left".into()), "{names:?}");
    assert!(top(&["--once", "--interval", "100ms"]).contains("  swapper:right "));
    end(recorder).succeeded();
    let dir = TestDir::new();
    let flight = record(&dir, &["--mode", "overwrite"], &["swapper", "1"]);
    let shown = || {
        let arguments = ["top", "s", "--by", "event", "--once", "--interval", "100ms"];
        tompion(&dir, &arguments).succeeded().out
    };
    assert!(shown().contains("counted when they are saved"), "{}", shown());
    tompion(&dir, &["snapshot", "s"]).succeeded();
    wait_until("events that were saved", || shown().contains("swapper:left"));
    assert!(shown().contains("unknown"), "rates are not made up: {}", shown());
    end(flight).succeeded();
}
