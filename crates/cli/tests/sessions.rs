//! Running recordings are found, looked at, changed and ended by other programs.

use std::{
    io::Write as _,
    os::unix::{net::UnixStream, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{SystemTime, UNIX_EPOCH},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Finished, TestDir, finish, installed, libraries, run, signal, wait_until};

/// Variable with the folder of the sockets: tests don't see each other's recordings.
const CONTROL: &str = "TOMPION_CONTROL";

fn control(dir: &TestDir) -> PathBuf {
    dir.path("control")
}

fn tompion(dir: &TestDir, arguments: &[&str]) -> Finished {
    run(dir.tompion(arguments).env(CONTROL, control(dir)))
}

/// A program that is recorded by a session of a name.
struct Session {
    recorder: Child,
    name: &'static str,
}

impl Session {
    fn start(dir: &TestDir, name: &'static str, options: &[&str], program: &[&str]) -> Self {
        let mut all = vec!["record", "--session", name, "-o", name];
        all.extend(options);
        all.push("--");
        all.extend(program);
        let mut command = dir.tompion(&all);
        command.env(CONTROL, control(dir));
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        tompion_os::Inheritance::current().hand_on_to_companion(&mut command);
        let recorder = command.spawn().expect("a recorder");
        Self { recorder, name }
    }

    /// Waits until so many processes are recorded.
    fn wait_for(self, dir: &TestDir, processes: usize) -> Self {
        wait_until("the processes", || {
            status(dir, self.name)
                .is_some_and(|status| status["processes"].as_array().map_or(0, Vec::len) >= processes)
        });
        self
    }

    fn end(mut self) -> Finished {
        drop(self.recorder.stdin.take());
        finish(self.recorder, "record")
    }
}

fn status(dir: &TestDir, name: &str) -> Option<Value> {
    let shown = tompion(dir, &["status", "--json", name]);
    let mut answer: Value = serde_json::from_str(&shown.out).ok()?;
    Some(answer["recordings"][0].take())
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos() as i64
}

/// Times of the events of a name.
fn times(dir: &TestDir, trace: &str, name: &str) -> Vec<i64> {
    let events = dir.trace(trace).events();
    events.iter().filter(|event| event.name == name).map(|event| event.time).collect()
}

fn ticker(dir: &TestDir) -> String {
    dir.program("ticker").to_string_lossy().into_owned()
}

fn wait_for_events(dir: &TestDir, name: &str, more: u64) {
    let events = || {
        let status = status(dir, name).expect("a status");
        let processes = status["processes"].as_array().cloned().unwrap_or_default();
        processes.iter().filter_map(|process| process["events"].as_u64()).sum::<u64>()
    };
    let before = events();
    wait_until("more events", || events() >= before + more);
}

#[test]
fn rules_change_while_programs_run() {
    let dir = TestDir::new();
    let session = Session::start(&dir, "flight", &[], &[&ticker(&dir), "worker"]).wait_for(&dir, 2);
    wait_for_events(&dir, "flight", 100);
    let line = tompion(&dir, &["rules", "flight", "-e", "ticker:tock"]).succeeded().err;
    assert!(line.contains("flight: ticker:tock; 2 processes followed"), "{line}");
    let without_ticks = now();
    wait_for_events(&dir, "flight", 100);
    tompion(&dir, &["rules", "-x", "*"]).succeeded();
    let silent = now();
    std::thread::sleep(std::time::Duration::from_millis(50));
    let end_of_silence = now();
    // The recorder decides about names of threads, the program about numbers.
    tompion(&dir, &["rules", "--filter", "number > 1 && $comm == \"tick*\"", "flight"]).succeeded();
    wait_for_events(&dir, "flight", 100);
    tompion(&dir, &["rules", "--filter", "$comm == \"other\"", "flight"]).succeeded();
    let others_only = now();
    std::thread::sleep(std::time::Duration::from_millis(50));
    let shown = tompion(&dir, &["rules"]).succeeded().err;
    assert!(shown.contains("all events, if $comm == \"other\" (changed 4 times)"), "{shown}");
    session.end().succeeded();
    let (ticks, tocks) = (times(&dir, "flight", "ticker:tick"), times(&dir, "flight", "ticker:tock"));
    let between = |times: &[i64], from, to| times.iter().filter(|time| (from..to).contains(*time)).count();
    assert!(between(&ticks, 0, without_ticks) > 10);
    assert_eq!(between(&ticks, without_ticks, end_of_silence), 0);
    assert!(between(&tocks, without_ticks, silent) > 10);
    assert_eq!(between(&tocks, silent, end_of_silence), 0);
    assert!(between(&ticks, end_of_silence, others_only) > 10);
    assert_eq!(between(&ticks, others_only, i64::MAX) + between(&tocks, others_only, i64::MAX), 0);
    let manifest = dir.trace("flight").manifest();
    assert_eq!(manifest["rule_changes"].as_array().map(Vec::len), Some(4));
    assert_eq!(manifest["rule_changes"][0]["include"], json!(["ticker:tock"]));
    let line = dir.tompion(&["stat", "flight"]).output().expect("stat");
    let line = String::from_utf8_lossy(&line.stdout).into_owned();
    assert!(line.contains("rules        changed 4 times"), "{line}");
}

/// Rates of a flight recorder, which writes nothing, are those of its rings.
#[test]
fn rates_are_shown_while_programs_run() {
    let dir = TestDir::new();
    let session =
        Session::start(&dir, "flight", &["--mode", "overwrite"], &[&ticker(&dir)]).wait_for(&dir, 1);
    let shown = tompion(&dir, &["top", "flight", "--json", "--once", "--interval", "500ms"]).succeeded().out;
    let table: Value = serde_json::from_str(&shown).expect("one object");
    let (recording, process) = (&table["recordings"][0], &table["recordings"][0]["processes"][0]);
    assert_eq!((&recording["name"], &recording["mode"]), (&json!("flight"), &json!("overwrite")));
    assert_eq!((&process["name"], &process["lost"]), (&json!("ticker"), &json!(0)));
    // Two events a millisecond at most, as long as the machine has time for the program.
    let rate = process["events_per_s"].as_f64().expect("a rate");
    assert!(rate > 10.0 && rate <= 2200.0, "{rate}");
    assert!(process["bytes_per_s"].as_f64() >= Some(rate * 8.0), "{process}");
    assert!(process["history_s"].as_f64() > Some(1.0) && recording["cpu"].is_number(), "{table}");
    let text = tompion(&dir, &["top", "--interval", "200ms"]).succeeded().out;
    assert!(text.contains("1 recording, 1 process; rates of the last"), "{text}");
    assert!(text.contains("\n  ticker (") && text.contains(" MiB"), "{text}");
    assert!(!text.contains('\x1b'), "no terminal, no styles: {text}");
    let refused = tompion(&dir, &["top", "nosuch"]).exited(1).err;
    assert!(refused.contains("no recording of this user is named nosuch"), "{refused}");
    tompion(&dir, &["snapshot", "flight"]).succeeded();
    session.end().succeeded();
}

#[test]
fn processes_without_a_thread_keep_their_rules_and_their_children_follow() {
    let dir = TestDir::new();
    // Each line that it reads makes a child, which allocates.
    let script = "while read line; do x=$(printf '%s' \"$line\"); done";
    let mut session =
        Session::start(&dir, "shell", &["--preload", "malloc"], &["dash", "-c", script]).wait_for(&dir, 1);
    let mut say = |lines: &str| {
        let input = session.recorder.stdin.as_mut().expect("an input");
        input.write_all(lines.as_bytes()).expect("a reader");
    };
    say("a\nb\nc\n");
    wait_until("three children", || status(&dir, "shell").is_some_and(|it| it["ended_processes"] == 3));
    let line = tompion(&dir, &["rules", "shell", "-x", "*"]).exited(1).err;
    assert!(line.contains("keep their rules, having no Tompion thread"), "{line}");
    let changed = now();
    say("d\ne\nf\ng\n");
    wait_until("seven children", || status(&dir, "shell").is_some_and(|it| it["ended_processes"] == 7));
    session.end().succeeded();
    let manifest = dir.trace("shell").manifest();
    let sources = manifest["sources"].as_array().expect("sources");
    assert_eq!(sources.len(), 8);
    // The shell continues, and so do the children whose memory the shell had received before: the
    // rules in it were replaced.
    let shell = &manifest["command_end"]["pid"];
    let shell = sources.iter().find(|source| source["pid"] == *shell).expect("the shell");
    let later = dir.trace("shell").events().into_iter().filter(|event| event.time > changed);
    let sources_of_later: std::collections::BTreeSet<String> = later.map(|event| event.source).collect();
    let name = shell["path"].as_str().expect("a path");
    assert!(sources_of_later.iter().all(|source| source.ends_with(name)), "{sources_of_later:?}");
}

#[test]
fn forked_children_that_take_over_their_parents_events_follow_the_rules_of_the_time() {
    let dir = TestDir::new();
    let script =
        "for i in 1 2 3; do x=$(echo hi); done; (while :; do sleep 0.01; done) & read line; kill $!; :";
    let options = ["--preload", "malloc"];
    let session = Session::start(&dir, "loop", &options, &["dash", "-c", script]);
    let rules = || {
        let status = status(&dir, "loop")?;
        let processes = status["processes"].as_array()?.iter().filter(|it| it["name"] == "dash");
        Some(
            processes
                .map(|process| process["rules"].as_str().unwrap_or_default().to_owned())
                .collect::<Vec<_>>(),
        )
    };
    wait_until("the loop", || rules().is_some_and(|rules| rules == ["current", "current"]));
    let line = tompion(&dir, &["rules", "loop", "-e", "nothing:*"]).exited(1).err;
    assert!(line.contains("dash ("), "{line}");
    wait_until("the old rules", || rules().is_some_and(|rules| rules == ["fixed", "fixed"]));
    session.end().succeeded();
}

#[test]
fn a_program_that_was_executed_away_delays_no_change_of_rules() {
    let dir = TestDir::new();
    let script = format!("x=$(echo hi); exec '{}'", ticker(&dir));
    let session = Session::start(&dir, "exec", &["--preload", "malloc"], &["dash", "-c", &script]);
    let rules = || {
        let status = status(&dir, "exec")?;
        let processes = status["processes"].as_array()?.clone();
        Some(
            processes
                .iter()
                .map(|process| process["rules"].as_str().unwrap_or_default().to_owned())
                .collect::<Vec<_>>(),
        )
    };
    wait_until("both programs", || rules().is_some_and(|rules| rules == ["unreachable", "current"]));
    let line = tompion(&dir, &["rules", "exec", "-e", "ticker:tock"]).succeeded().err;
    assert!(line.contains("1 process followed"), "{line}");
    session.end().succeeded();
}

#[test]
fn a_name_is_of_one_recording_and_free_after_it() {
    let dir = TestDir::new();
    let program = ticker(&dir);
    let session = Session::start(&dir, "one", &[], &[&program]).wait_for(&dir, 1);
    let again = ["record", "--session", "one", "-o", "other", "--", program.as_str()];
    let refused = tompion(&dir, &again).exited(125).err;
    assert!(refused.contains("a session named one is running already"), "{refused}");
    assert!(!dir.path("other").exists());
    for (name, found) in [("9lives", "`9lives`"), ("a/b", "`a/b`"), ("", "``")] {
        let refused = tompion(&dir, &["record", "--session", name, "-o", "other", "--", &program]);
        let refused = refused.exited(125).err;
        assert!(refused.contains(found) && refused.lines().count() == 1, "{refused}");
    }
    signal(session.recorder.id(), Signal::KILL);
    let _ = session.end();
    let none = tompion(&dir, &["status"]).succeeded().err;
    assert!(none.contains("no recording of this user is running"), "{none}");
    let refused = tompion(&dir, &["status", "one"]).exited(1).err;
    assert!(refused.contains("no recording of this user is named one"), "{refused}");
    std::fs::rename(dir.path("one"), dir.path("killed")).expect("a trace");
    Session::start(&dir, "one", &[], &[&program]).wait_for(&dir, 1).end().succeeded();
    // Nothing is left of the killed one, either.
    assert_eq!(std::fs::read_dir(control(&dir)).expect("a folder").count(), 0);
}

#[test]
fn a_recording_is_ended_and_saved_by_its_name() {
    let dir = TestDir::new();
    let options = ["--mode", "overwrite"];
    let session = Session::start(&dir, "box", &options, &[&ticker(&dir)]).wait_for(&dir, 1);
    let shown = tompion(&dir, &["status"]).succeeded().out;
    assert!(shown.starts_with("box ") && shown.contains("flight recorder"), "{shown}");
    std::thread::sleep(std::time::Duration::from_millis(30));
    let saved = tompion(&dir, &["snapshot", "box"]).succeeded().err;
    assert!(saved.starts_with("tompion: saved ") && !saved.contains("saved 0 "), "{saved}");
    let by_pid = session.recorder.id().to_string();
    assert_eq!(status(&dir, &by_pid).expect("a status")["name"], "box");
    let ended = tompion(&dir, &["stop", "box"]).succeeded().err;
    assert!(ended.contains("box has ended; next: tompion stat "), "{ended}");
    // Its trace is complete before its recorder is gone.
    assert_eq!(dir.trace("box").manifest()["state"], "complete");
    session.end();
    assert_eq!(std::fs::read_dir(control(&dir)).expect("a folder").count(), 0);
}

#[test]
fn status_names_a_stopped_recorder_and_shows_the_others() {
    let dir = TestDir::new();
    let program = ticker(&dir);
    let silent = Session::start(&dir, "silent", &[], &[&program]).wait_for(&dir, 1);
    let other = Session::start(&dir, "other", &[], &[&program]).wait_for(&dir, 1);
    signal(silent.recorder.id(), Signal::STOP);
    let shown = tompion(&dir, &["status"]).exited(1);
    assert!(shown.out.starts_with("other "), "{}", shown.out);
    assert!(shown.err.contains("the recorder silent does not answer; it may be stopped"), "{}", shown.err);
    signal(silent.recorder.id(), Signal::CONT);
    silent.end().succeeded();
    other.end().succeeded();
}

#[test]
fn programs_that_are_not_ours_speak_the_documented_protocol() {
    if !installed("python3") {
        return;
    }
    let dir = TestDir::new();
    let session = Session::start(&dir, "py", &[], &[&ticker(&dir)]).wait_for(&dir, 1);
    let client = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/varlink_client.py");
    let printed = run(Command::new("python3").arg(client).arg(control(&dir).join("py/control"))).succeeded();
    assert_eq!(
        printed.out.lines().collect::<Vec<_>>(),
        [
            "io.tompion.Recording1",
            "py ticker",
            "InvalidRules",
            "1 [] []",
            "ticker:tock",
            "NoFlightRecorder",
            "stopped"
        ]
    );
    session.end();
    assert_eq!(dir.trace("py").manifest()["rule_changes"][0]["include"], json!(["ticker:tock"]));
}

#[test]
fn hostile_clients_hold_up_no_program_and_no_other_client() {
    let dir = TestDir::new();
    let script = "i=0; while [ $i -lt 200 ]; do x=$(echo hi); i=$((i+1)); done; read line || :";
    let session =
        Session::start(&dir, "busy", &["--preload", "malloc"], &["dash", "-c", script]).wait_for(&dir, 1);
    let socket = control(&dir).join("busy/control");
    let mut clients = Vec::new();
    for number in 0..200 {
        let mut client = UnixStream::connect(&socket).expect("a recorder");
        let call: &[u8] = match number % 5 {
            0 => b"",
            1 => b"{\"method\":\"io.tompion.Recording1.GetStatus\"",
            2 => b"\xff\xff\xff\0",
            3 => b"{\"method\":\"io.tompion.Recording1.SetRules\",\"parameters\":{\"rules\":7}}\0",
            // Its replies are never read.
            _ => b"{\"method\":\"io.tompion.Recording1.GetStatus\"}\0",
        };
        let _ = client.write_all(call);
        clients.push(client);
    }
    wait_until("all children", || status(&dir, "busy").is_some_and(|it| it["ended_processes"] == 200));
    drop(clients);
    let end = session.end().succeeded().err;
    assert!(end.contains("201 processes") && end.contains("none lost"), "{end}");
}

#[test]
fn other_users_neither_look_nor_change() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let dir = TestDir::new();
    let session = Session::start(&dir, "mine", &[], &[&ticker(&dir)]).wait_for(&dir, 1);
    let as_stranger = |arguments: &[&str]| {
        let mut command = Command::new(crate::support::TOMPION);
        command.args(arguments).env(CONTROL, control(&dir)).env("LD_LIBRARY_PATH", libraries());
        run(command.uid(65_534).gid(65_534))
    };
    assert!(as_stranger(&["status"]).err.contains("no recording of this user is running"));
    let refused = as_stranger(&["rules", "mine", "-x", "*"]).exited(1).err;
    assert!(refused.contains("no recording of this user is named mine"), "{refused}");
    let mut connect = Command::new("python3");
    connect.arg("-c").arg("import socket,sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])");
    let refused = run(connect.arg(control(&dir).join("mine/control")).uid(65_534).gid(65_534)).exited(1).err;
    assert!(refused.contains("PermissionError"), "{refused}");
    session.end().succeeded();
}
