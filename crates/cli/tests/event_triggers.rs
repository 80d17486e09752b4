//! Triggers on events: conditions that the traced programs evaluate.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdout, Stdio},
    time::Duration,
};

use serde_json::{Value, json};

use crate::support::{Finished, TestDir, beside, finish, run, wait_until};

/// Variable with the folder of the sockets: tests don't see each other's recordings.
const CONTROL: &str = "TOMPION_CONTROL";
const FLIGHT: [&str; 6] = ["--mode", "overwrite", "--subbuf-size", "256K", "--subbufs", "8"];

fn tompion(dir: &TestDir, arguments: &[&str]) -> Finished {
    run(dir.tompion(arguments).env(CONTROL, dir.path("control")))
}

/// Recording of a program with triggers.
struct Recording {
    recorder: Child,
    output: BufReader<ChildStdout>,
}

impl Recording {
    /// Starts the session `s` with these triggers.
    fn start(dir: &TestDir, options: &[&str], triggers: &[&str], program: &[&str]) -> Self {
        let triggers: Vec<&str> = triggers.iter().flat_map(|trigger| ["--trigger", trigger]).collect();
        let options = [&["record", "--session", "s", "-o", "trace"], options, &triggers, &["--"], program];
        let mut command = dir.tompion(&options.concat());
        command.env(CONTROL, dir.path("control"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut recorder = command.spawn().expect("a recorder");
        let output = BufReader::new(recorder.stdout.take().expect("an output"));
        let mut recording = Self { recorder, output };
        recording.expect("ready");
        recording
    }

    /// The program `requests` as that session.
    fn requests(dir: &TestDir, options: &[&str], triggers: &[&str], how: &[&str]) -> Self {
        let program = dir.program("requests").to_string_lossy().into_owned();
        Self::start(dir, options, triggers, &[&[&program[..]], how].concat())
    }

    fn expect(&mut self, word: &str) {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        assert_eq!(line.trim(), word);
    }

    fn begin(&mut self) {
        self.recorder.stdin.as_mut().expect("an input").write_all(b"\n").expect("a reader");
    }

    /// Lets the program begin, and waits until it has done its work.
    fn work(&mut self) {
        self.begin();
        self.expect("done");
    }

    fn end(mut self) -> Finished {
        drop(self.recorder.stdin.take());
        finish(self.recorder, "record")
    }
}

fn firings(dir: &TestDir) -> Vec<Value> {
    dir.trace("trace").manifest()["firings"].as_array().cloned().unwrap_or_default()
}

fn firings_of(dir: &TestDir, trigger: &str) -> Vec<Value> {
    firings(dir).into_iter().filter(|firing| firing["trigger"] == trigger).collect()
}

/// Number of firings of a recording that runs.
fn firings_so_far(dir: &TestDir) -> usize {
    let manifest = fs::read_to_string(dir.path("trace/tompion.json")).unwrap_or_default();
    let manifest: Value = serde_json::from_str(&manifest).unwrap_or_default();
    manifest["firings"].as_array().map_or(0, Vec::len)
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn captures(firings: &[Value]) -> Vec<Value> {
    firings.iter().flat_map(|firing| firing["captures"].as_array().cloned().unwrap_or_default()).collect()
}

/// Matches that all firings stand for, and those beyond limits.
fn all_matches(dir: &TestDir) -> u64 {
    let each: u64 = firings(dir).iter().map(|it| number(&it["matches"]) + number(&it["suppressed"])).sum();
    each + number(&dir.trace("trace").manifest()["beyond_limits"]["occurrences"])
}

#[test]
fn an_event_saves_a_flight_recorder_with_the_time_after_it() {
    let dir = TestDir::new();
    let rule = "event:ticker:tick ? number == 500 -> snapshot, notify after 300ms limit 1/1h";
    let ticker = dir.program("ticker").to_string_lossy().into_owned();
    let recording = Recording::start(&dir, &FLIGHT, &[rule], &[&ticker]);
    let mut watch = dir.tompion(&["trigger", "s", "--watch", "--json"]);
    watch.env(CONTROL, dir.path("control")).stdout(Stdio::piped());
    let mut watch = watch.spawn().expect("a watcher");
    let mut line = String::new();
    BufReader::new(watch.stdout.take().expect("an output")).read_line(&mut line).expect("a line");
    let reply: Value = serde_json::from_str(&line).expect("JSON");
    let ticks = || {
        let events = dir.trace("trace").events().into_iter();
        events.filter(|event| event.name == "ticker:tick").collect::<Vec<_>>()
    };
    wait_until("what came behind the event", || {
        std::thread::sleep(Duration::from_millis(100));
        ticks().iter().any(|tick| tick.number("number") > 600)
    });
    let ticks = ticks();
    let numbers: Vec<u64> = ticks.iter().map(|tick| tick.number("number")).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>(), "both sides, without a gap");
    let lines = recording.end().succeeded().err;
    watch.wait().expect("its end");
    let firings = firings(&dir);
    assert_eq!((firings.len(), &firings[0]["matches"]), (1, &1.into()));
    let capture = &firings[0]["captures"][0];
    assert_eq!((&capture["event"], &capture["fields"]), (&"ticker:tick".into(), &json!({"number": 500})));
    assert_eq!((&capture["program"], &capture["tid"]), (&"ticker".into(), &capture["pid"]));
    let apart = ticks[499].time - capture["time_ns"].as_i64().expect("a time");
    assert!(apart.abs() < 1_000_000_000, "{apart} ns");
    assert_eq!((&reply["incident"], &reply["captures"][0]), (&firings[0]["incident"], capture));
    assert!(reply["incident"].as_str().is_some_and(|id| id.len() == 36));
    assert!(lines.contains(&format!("trigger `{rule}`: ticker:tick in ticker")), "{lines}");
    let stat = tompion(&dir, &["stat", "trace"]).succeeded().out;
    assert!(stat.contains("1 firing, last at") && stat.contains(r#"ticker:tick {"number":500}"#), "{stat}");
}

#[test]
fn filters_are_on_numbers_texts_and_enumerations_and_captures_are_what_was_emitted() {
    let dir = TestDir::new();
    let of = |filter: &str| format!("event:app:req* ? {filter} -> notify");
    let triggers = [
        of("ns > 10ms"),
        of("url == \"/orders/*\""),
        of("state == \"failed\""),
        of("load > 6e6 && $tid == $pid"),
        of("ns > 1h"),
        of("nothing == 1"),
        "event:app:request ? number == 1 -> notify capture url, ns".into(),
        "event:app:request ? number == 5 -> notify".into(),
        "event:app:other -> notify".into(),
        "event:app:request -> notify".into(),
    ];
    let triggers: Vec<&str> = triggers.iter().map(String::as_str).collect();
    let mut recording = Recording::requests(&dir, &[], &triggers, &["values"]);
    recording.work();
    recording.end().succeeded();
    let fields = |trigger: usize| {
        let captures = captures(&firings_of(&dir, triggers[trigger]));
        captures.into_iter().map(|capture| capture["fields"].clone()).collect::<Vec<_>>()
    };
    let request = |number: u32, ns: u64, url: &str, state: &str| json!({"number": number, "ns": ns, "url": url, "state": state, "load": ns as f64 / 4.0});
    let slow = request(2, 25_000_000, "/slow", "queued");
    assert_eq!(fields(0), std::slice::from_ref(&slow));
    assert_eq!(fields(1), [request(3, 0, "/orders/17", "served")]);
    assert_eq!(fields(2), [request(4, 0, "/", "failed")]);
    assert_eq!(fields(3), [slow]);
    assert_eq!((fields(4), fields(5)), (vec![], vec![]));
    assert_eq!(fields(6), [json!({"url": "/fast", "ns": 5_000_000})]);
    let cut = &firings_of(&dir, triggers[7])[0]["captures"][0];
    let url = cut["fields"]["url"].as_str().expect("a text");
    assert!(cut["is_cut"] == true && url.len() < 300 && url.bytes().all(|byte| byte == b'x'), "{cut}");
    assert_eq!(fields(8), [json!({"number": 6})]);
    let every: u64 = firings_of(&dir, triggers[9]).iter().map(|firing| number(&firing["matches"])).sum();
    assert_eq!(every, 5);
}

#[test]
fn threads_lose_no_match() {
    let dir = TestDir::new();
    let all = "event:app:request -> notify limit 3/1h";
    let third = "event:app:request ? number % 3 == 0 -> notify limit 1/1h";
    let mut recording = Recording::requests(&dir, &FLIGHT, &[all, third], &["flood", "4", "30000"]);
    recording.work();
    recording.end().succeeded();
    assert_eq!(all_matches(&dir), 4 * 30_000 + 4 * 10_000);
    assert!((1..=3).contains(&firings_of(&dir, all).len()) && firings_of(&dir, third).len() == 1);
    assert_eq!(dir.trace("trace").stat()["lost"]["total"], 0);
}

#[test]
fn events_need_not_be_recorded() {
    let dir = TestDir::new();
    let rule = "event:app:request ? ns > 10ms -> notify";
    let mut recording = Recording::requests(&dir, &["-e", "app:other"], &[rule], &["values"]);
    recording.work();
    recording.end().succeeded();
    assert_eq!(firings_of(&dir, rule).len(), 1);
    let events = dir.trace("trace").events();
    let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(names, ["app:other", "tompion:firing"]);
}

/// Numbers and durations of what a trigger has captured.
fn spans_of(dir: &TestDir, trigger: &str) -> Vec<(u64, u64)> {
    let captures = captures(&firings_of(dir, trigger));
    captures.iter().map(|it| (number(&it["fields"]["number"]), number(&it["duration_ns"]))).collect()
}

#[test]
fn spans_that_last_too_long_and_late_jobs_fire_whether_recorded_or_not() {
    for options in [&[][..], &["-e", "app:request"], &["--filter", "number == 3"]] {
        let dir = TestDir::new();
        let triggers = [
            "span:app:work > 10ms -> notify",
            "span:app:work > 10ms ? url == \"/fast\" -> notify",
            "late:app:* -> notify",
            "span:app:outer > 15ms -> notify",
            "span:app:* > 1h -> notify",
            "event:app:work -> notify capture number",
        ];
        let mut recording = Recording::requests(&dir, options, &triggers, &["spans"]);
        recording.work();
        recording.end();
        let slow = spans_of(&dir, triggers[0]);
        assert_eq!(slow.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [2, 8], "{options:?}");
        assert!(slow.iter().all(|(_, ns)| *ns >= 20_000_000), "{slow:?}");
        let first = &firings_of(&dir, triggers[0])[0];
        assert_eq!(first["captures"][0]["event"], "app:work");
        assert!(first["cause"].as_str().is_some_and(|cause| cause.starts_with("app:work took ")), "{first}");
        assert_eq!(spans_of(&dir, triggers[1]), []);
        let late = spans_of(&dir, triggers[2]);
        assert!(matches!(late[..], [(4, 5_000_000..)]), "{late:?}");
        let outer = spans_of(&dir, triggers[3]);
        assert!(matches!(outer[..], [(7, 20_000_000..)]), "{outer:?}");
        assert_eq!(spans_of(&dir, triggers[4]), []);
        let begins: u64 = firings_of(&dir, triggers[5]).iter().map(|firing| number(&firing["matches"])).sum();
        assert_eq!(begins, 4);
    }
}

#[test]
fn ends_are_those_of_their_own_begins() {
    for options in [&[][..], &["-e", "app:request"], &["--filter", "number == 31"]] {
        let dir = TestDir::new();
        let triggers = [
            "span:app:* > 10ms ? kind == 1 -> notify",
            "span:app:walk > 10ms ? depth == 0 -> notify",
            "late:app:* -> notify",
            "span:app:cross* > 10ms -> notify",
            "event:app:request -> notify",
        ];
        let mut recording = Recording::requests(&dir, options, &triggers, &["mixed"]);
        recording.work();
        recording.end();
        let durations = |trigger: usize| {
            let captures = captures(&firings_of(&dir, triggers[trigger]));
            let one = |it: &Value| (number(&it["fields"]["number"]), number(&it["duration_ns"]) / 1_000_000);
            captures.iter().map(one).collect::<Vec<_>>()
        };
        assert!(matches!(durations(0)[..], [(1, 45..)]), "{:?}", durations(0));
        let handle = &captures(&firings_of(&dir, triggers[0]))[0];
        assert_eq!(handle["event"], "app:handle");
        assert!(matches!(durations(1)[..], [(10, 45..)]), "{:?}", durations(1));
        assert!(matches!(durations(2)[..], [(20, 10..)]), "{:?}", durations(2));
        assert!(matches!(durations(3)[..], [(30, 30..), (31, 30..)]), "{:?}", durations(3));
    }
}

#[test]
fn a_killed_program_has_matched() {
    for _ in 0..5 {
        let dir = TestDir::new();
        let rule = "event:app:request ? ns > 10ms -> notify, snapshot";
        let mut recording = Recording::requests(&dir, &FLIGHT, &[rule], &["killed"]);
        recording.begin();
        recording.end();
        let firings = firings(&dir);
        assert_eq!(firings[0]["captures"][0]["fields"]["url"], "/last", "{firings:?}");
        assert_eq!(all_matches(&dir), 1);
        let names: Vec<String> = dir.trace("trace").events().into_iter().map(|event| event.name).collect();
        assert_eq!(names, ["app:request", "tompion:firing"]);
    }
}

#[test]
fn children_match_for_themselves() {
    let dir = TestDir::new();
    let rule = "event:app:request -> notify capture number";
    let mut recording = Recording::requests(&dir, &[], &[rule], &["children", "20"]);
    recording.work();
    recording.end().succeeded();
    assert_eq!(all_matches(&dir), 20);
    let mut pids: Vec<u64> = captures(&firings(&dir)).iter().map(|capture| number(&capture["pid"])).collect();
    let many = pids.len();
    pids.dedup();
    assert!(pids.len() == many && many > 1, "{pids:?}");
}

#[test]
fn an_event_of_a_vfork_child_is_said_to_be_unseen() {
    let dir = TestDir::new();
    let mut recording = Recording::requests(&dir, &[], &["event:app:request -> notify"], &["vfork"]);
    recording.work();
    // Its event is not traced either.
    let lines = recording.end().exited(125).err;
    assert!(lines.contains("triggers could not look at 1 of the events of requests"), "{lines}");
    assert!(!lines.contains("trigger `"), "{lines}");
}

#[test]
fn a_program_gets_the_event_and_the_id_of_the_incident() {
    let dir = TestDir::new();
    let hook = dir.path("hook.sh");
    let output = dir.path("output");
    let out = output.display();
    let script = format!("echo \"$TOMPION_INCIDENT $TOMPION_CAPTURE\" > {out}.new; mv {out}.new {out}");
    fs::write(&hook, script).expect("a script");
    let rule = format!("event:app:request ? number == 2 -> run sh {} capture url", hook.display());
    let mut recording = Recording::requests(&dir, &[], &[&rule], &["values"]);
    recording.work();
    wait_until("the program", || output.exists());
    recording.end().succeeded();
    let text = fs::read_to_string(&output).expect("text");
    let (incident, capture) = text.trim().split_once(' ').expect("two words");
    let capture: Value = serde_json::from_str(capture).expect("JSON");
    let firing = &firings(&dir)[0];
    assert_eq!((&firing["incident"], &firing["captures"][0]), (&incident.into(), &capture));
    assert_eq!(capture["fields"], json!({"url": "/slow"}));
}

#[test]
fn an_incident_of_another_program_keeps_its_id() {
    let dir = TestDir::new();
    let rule = "external:slow -> snapshot, notify";
    let mut recording = Recording::requests(&dir, &FLIGHT, &[rule], &["values"]);
    recording.work();
    tompion(&dir, &["trigger", "s", "slow", "--incident", "web-17"]).succeeded();
    wait_until("the snapshot", || {
        let manifest = fs::read_to_string(dir.path("trace/tompion.json")).unwrap_or_default();
        let manifest: Value = serde_json::from_str(&manifest).unwrap_or_default();
        manifest["snapshot"]["incident"] == "web-17"
    });
    tompion(&dir, &["trigger", "s", "slow"]).succeeded();
    let refused = tompion(&dir, &["trigger", "s", "slow", "--incident", "web 17"]).exited(1).err;
    assert!(refused.contains("at most 64 letters"), "{refused}");
    wait_until("the firings", || firings_so_far(&dir) == 2);
    recording.end().succeeded();
    let firings = firings(&dir);
    assert_eq!(firings[0]["incident"], "web-17");
    assert!(firings[1]["incident"].as_str().is_some_and(|id| id.len() == 36), "{firings:?}");
}

#[test]
fn a_program_that_overwrites_the_region_does_no_harm() {
    for seed in ["1", "2", "3"] {
        let dir = TestDir::new();
        let rules =
            ["event:app:request -> notify limit 1/1h", "event:app:* ? ns > 10ms -> snapshot limit 1/1h"];
        let mut recording = Recording::requests(&dir, &FLIGHT, &rules, &["scribble", seed]);
        recording.work();
        let shown = tompion(&dir, &["status", "--json", "s"]).succeeded().out;
        assert!(serde_json::from_str::<Value>(&shown).is_ok());
        recording.end().succeeded();
        assert!(firings(&dir).len() <= 2);
        let problems = dir.trace("trace").manifest()["problems"].to_string();
        assert!(problems.contains("matches of triggers that can't be"), "{problems}");
    }
}

#[test]
fn agents_of_before_are_said_to_see_nothing() {
    let dir = TestDir::new();
    let fake = beside("programs/fake_agent.py");
    let script = format!("{} values < /dev/null", dir.program("requests").display());
    let command: [&dyn AsRef<std::ffi::OsStr>; 6] = [&"python3", &fake, &"hello", &"/bin/sh", &"-c", &script];
    let options = ["--trigger", "event:app:request ? number == 2 -> notify"];
    let finished = run(&mut dir.recording("trace", &options, &command)).succeeded();
    // The memory is as the first agents expect it.
    assert!(finished.out.contains(&format!("control {}\n", 17 * 4096 + (3 << 20))), "{}", finished.out);
    let problem = "triggers on events see nothing of old";
    assert!(finished.err.contains(problem) && finished.err.contains("libtompion 0.0.9"), "{}", finished.err);
    assert_eq!(all_matches(&dir), 1, "of the other program");
}

#[test]
fn triggers_on_events_that_can_do_nothing_are_refused() {
    let dir = TestDir::new();
    let many: Vec<String> = (0..17).map(|number| format!("event:a:b{number} -> notify")).collect();
    let many: Vec<&str> = many.iter().flat_map(|trigger| ["--trigger", trigger]).collect();
    for (options, expected) in [
        (&["--trigger", "event:a:b -> snapshot"][..], "needs --mode overwrite"),
        (&["--trigger", "event:a:b ? $comm == \"x\" -> notify"], "don't know $comm"),
        (&["--trigger", "event:a:b ? n >< 1 -> notify"], "the filter `n >< 1`"),
        (&many, "at most 16 triggers on events"),
    ] {
        let refused = tompion(&dir, &[&["record"], options, &["--", "true"]].concat()).exited(125).err;
        assert!(refused.contains(expected), "{refused}");
    }
}
