//! `tompion serve`: sessions from files, their recorders, and the deaths of both.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::net::{UnixDatagram, UnixStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::{Finished, TestDir, finish, run, signal, wait_until};

/// Interval between the looks of tests that wait for nothing to happen.
const QUIET_TIME: Duration = Duration::from_millis(300);

/// Longer than a supervisor waits for the state of a recorder.
const SILENT_TIME: Duration = Duration::from_secs(4);

/// A supervisor in a network of its own: programs of other tests don't find its recorders.
pub struct Supervisor<'dir> {
    dir: &'dir TestDir,
    process: Option<Child>,
}

/// A failed test leaves nothing behind.
impl Drop for Supervisor<'_> {
    fn drop(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        let sessions = self.list()["sessions"].take();
        process.kill().and_then(|()| process.wait()).expect("an end");
        for session in sessions.as_array().into_iter().flatten() {
            let channels = session["channels"].as_array().into_iter().flatten();
            channels.filter(|channel| channel["pid"].is_u64()).for_each(|it| signal(pid(it), Signal::KILL));
        }
    }
}

/// Adds what keeps the supervisor and its commands apart from others.
pub fn apart(command: &mut Command, dir: &TestDir) {
    command.env("TOMPION_CONTROL", dir.path("control")).env("TOMPION_SESSIONS", dir.path("sessions"));
    command.env("TOMPION_SOCKET", dir.path("join"));
    command.env("TOMPION_SYSTEM", dir.path("system")).env("TOMPION_GRANTS", dir.path("grants"));
}

pub fn describe(dir: &TestDir, name: &str, text: &str) {
    fs::create_dir_all(dir.path("sessions")).expect("a folder");
    let output = dir.path("traces");
    let text = format!("output = \"{}\"\n{text}", output.display());
    fs::write(dir.path("sessions").join(format!("{name}.toml")), text).expect("a file");
}

impl<'dir> Supervisor<'dir> {
    pub fn start(dir: &'dir TestDir) -> Self {
        Self::start_with(dir, &dir.path("sessions"))
    }

    /// Starts one with its sessions in a folder.
    fn start_with(dir: &'dir TestDir, sessions: &Path) -> Self {
        fs::create_dir_all(dir.path("sessions")).expect("a folder");
        let mut command = Command::new("unshare");
        command.arg("--net").arg(dir.tompion(&[]).get_program()).arg("serve");
        command.current_dir(dir.path("")).stdin(Stdio::null()).stderr(Stdio::piped());
        apart(&mut command, dir);
        command.env("TOMPION_SESSIONS", sessions);
        let mut process = command.spawn().expect("unshare");
        let mut lines = BufReader::new(process.stderr.take().expect("messages")).lines();
        let is_ready = |line: std::io::Result<String>| line.is_ok_and(|line| line.contains("supervises"));
        assert!(lines.by_ref().any(is_ready), "the supervisor has ended");
        thread::spawn(move || lines.for_each(drop));
        Self { dir, process: Some(process) }
    }

    pub fn command(&self, arguments: &[&str]) -> Finished {
        let mut command = self.dir.tompion(arguments);
        apart(&mut command, self.dir);
        run(&mut command)
    }

    pub fn list(&self) -> Value {
        let shown = self.command(&["status", "--json"]).succeeded();
        serde_json::from_str::<Value>(&shown.out).expect("JSON")["supervisor"].take()
    }

    /// Returns a channel of a session.
    pub fn channel(&self, session: &str, channel: &str) -> Value {
        let list = self.list();
        let named = |values: &Value, name: &str| {
            values.as_array().into_iter().flatten().find(|value| value["name"] == name).cloned()
        };
        named(&list["sessions"], session).and_then(|it| named(&it["channels"], channel)).unwrap_or_default()
    }

    pub fn wait_for(&self, session: &str, channel: &str, state: &str) -> Value {
        wait_until("the state of a channel", || self.channel(session, channel)["state"] == state);
        self.channel(session, channel)
    }

    /// Starts a program where recorders are found.
    fn program(&self, name: &str) -> Child {
        let mut command = Command::new("nsenter");
        command.arg("--net").arg("--target").arg(self.id().to_string());
        command.arg(self.dir.program(name)).stdin(Stdio::piped()).stdout(Stdio::null());
        apart(&mut command, self.dir);
        command.spawn().expect("nsenter")
    }

    pub fn id(&self) -> u32 {
        self.process.as_ref().map_or(0, Child::id)
    }

    pub fn kill(mut self) {
        let mut process = self.process.take().expect("a process");
        process.kill().and_then(|()| process.wait()).expect("an end");
    }

    pub fn end(mut self) -> Finished {
        signal(self.id(), Signal::TERM);
        finish(self.process.take().expect("a process"), "serve")
    }

    /// Events of a recording that are on disk.
    fn events(&self, recording: &str) -> u64 {
        let shown = self.command(&["status", "--json"]).succeeded();
        let answers: Value = serde_json::from_str(&shown.out).expect("JSON");
        let all = answers["recordings"].as_array().cloned().unwrap_or_default();
        let of_it = all.iter().filter(|status| status["name"] == recording);
        let processes = of_it.flat_map(|status| status["processes"].as_array().cloned().unwrap_or_default());
        processes.filter_map(|process| process["events"].as_u64()).sum()
    }
}

pub fn pid(channel: &Value) -> u32 {
    channel["pid"].as_u64().and_then(|pid| pid.try_into().ok()).expect("a process")
}

#[test]
fn a_session_begins_records_changes_and_ends() {
    let dir = TestDir::new();
    let flight = |events: &str, history: &str| {
        let programs = "programs = ['name=tick*', 'name=none']";
        format!("start = 'boot'\n{programs}\n[channel.main]\nevents = ['{events}']\n{history}")
    };
    let file = |events: &str, mode: &str| {
        describe(&dir, "flight", &flight(events, &format!("[channel.history]\nmode = '{mode}'")));
    };
    file("ticker:tick", "overwrite");
    let supervisor = Supervisor::start(&dir);
    let main = supervisor.wait_for("flight", "main", "running");
    let history = supervisor.wait_for("flight", "history", "running");
    let mut ticker = supervisor.program("ticker");
    wait_until("events", || supervisor.events("flight.main") > 100);
    file("ticker:tock", "discard");
    let applied = supervisor.command(&["apply", "flight"]).exited(1).err;
    assert!(applied.contains("flight: main: new rules, 1 processes followed"), "{applied}");
    assert!(applied.contains("flight: history: mode not changed yet"), "{applied}");
    assert_eq!(supervisor.channel("flight", "history")["pid"], history["pid"]);
    // Rules change at once also where another key needs a start.
    describe(&dir, "flight", &flight("ticker:tock", "[channel.history]\nmode = 'discard'\nlevel = 'info'"));
    let applied = supervisor.command(&["apply", "flight"]).exited(1).err;
    assert!(applied.contains("flight: history: new rules"), "{applied}");
    assert!(applied.contains("flight: history: mode not changed yet"), "{applied}");
    let applied = supervisor.command(&["apply", "flight"]).exited(1).err;
    assert!(!applied.contains("new rules"), "{applied}");
    assert_eq!(supervisor.channel("flight", "history")["pid"], history["pid"]);
    let applied = supervisor.command(&["apply", "--restart", "flight"]).succeeded().err;
    assert!(applied.contains("flight: history: started, records into "), "{applied}");
    assert_ne!(supervisor.channel("flight", "history")["pid"], history["pid"]);
    assert_eq!(supervisor.channel("flight", "main")["pid"], main["pid"]);
    let applied = supervisor.command(&["apply", "flight"]).succeeded().err;
    assert!(applied.contains("flight: nothing to change"), "{applied}");
    let before = supervisor.events("flight.main");
    wait_until("events by the new rules", || supervisor.events("flight.main") > before + 100);
    let stopped = supervisor.command(&["stop", "flight"]).succeeded().err;
    assert!(stopped.contains("flight has ended; next: tompion stat "), "{stopped}");
    let trace = dir.trace(main["folder"].as_str().expect("a folder"));
    let events = trace.events();
    let (ticks, tocks): (Vec<_>, Vec<_>) = events.iter().partition(|event| event.name == "ticker:tick");
    assert!(
        ticks.len() > 100
            && tocks.len() > 100
            && ticks.last().map(|it| it.time) < tocks.last().map(|it| it.time)
    );
    assert_eq!(supervisor.channel("flight", "main")["state"], "stopped");
    drop(ticker.stdin.take());
    ticker.kill().and_then(|()| ticker.wait()).expect("an end");
    supervisor.end().succeeded();
}

#[test]
fn triggers_of_a_channel_change_while_its_recorder_runs() {
    let dir = TestDir::new();
    let file = |keys: &str| {
        describe(&dir, "t", &format!("programs = ['name=ticker*']\n[channel.main]\n{keys}\n"));
    };
    file("trigger = ['event:ticker:tock -> notify limit 1/1h']");
    let supervisor = Supervisor::start(&dir);
    supervisor.command(&["apply", "t"]).succeeded();
    let before = supervisor.wait_for("t", "main", "running");
    let ticker = supervisor.program("ticker");
    let folder = Path::new(before["folder"].as_str().expect("a folder")).to_owned();
    let has_fired = |trigger: &str| {
        let manifest = fs::read_to_string(folder.join("tompion.json")).unwrap_or_default();
        let manifest: Value = serde_json::from_str(&manifest).unwrap_or_default();
        let firings = manifest["firings"].as_array().cloned().unwrap_or_default();
        firings.iter().any(|firing| firing["trigger"] == trigger)
    };
    wait_until("a firing", || has_fired("event:ticker:tock -> notify limit 1/1h"));
    let next = "event:ticker:tick -> notify limit 1/1h";
    file(&format!("trigger = ['{next}']"));
    let applied = supervisor.command(&["apply", "t"]).succeeded().err;
    assert!(applied.contains("t: main: new triggers, 1 processes followed"), "{applied}");
    assert!(!applied.contains("new rules"), "{applied}");
    wait_until("a firing of the new trigger", || has_fired(next));
    let applied = supervisor.command(&["apply", "t"]).succeeded().err;
    assert!(applied.contains("t: nothing to change"), "{applied}");
    // One that needs another kind of recording waits for the start.
    file("mode = 'overwrite'\ntrigger = ['killed -> snapshot']");
    let applied = supervisor.command(&["apply", "t"]).exited(1).err;
    assert!(applied.contains("t: main: mode, trigger not changed yet"), "{applied}");
    assert_eq!(supervisor.channel("t", "main")["pid"], before["pid"], "the same recorder");
    supervisor.command(&["stop", "t"]).succeeded();
    finish(ticker, "ticker").succeeded();
    supervisor.end().succeeded();
}

#[test]
fn kernel_events_of_a_channel_change_while_its_recorder_runs() {
    if !crate::kernel::permitted() {
        return;
    }
    let dir = TestDir::new();
    let kernel = |events: &str| describe(&dir, "k", &format!("[channel.main]\nkernel = [{events}]\n"));
    kernel("'sched_process_exec'");
    let supervisor = Supervisor::start(&dir);
    supervisor.command(&["apply", "k"]).succeeded();
    let before = supervisor.wait_for("k", "main", "running");
    run(Command::new("true").arg("first")).succeeded();
    kernel("'sched_process_exec', 'sched_process_fork'");
    let applied = supervisor.command(&["apply", "k"]).succeeded().err;
    assert!(applied.contains("k: main: new rules"), "{applied}");
    assert_eq!(supervisor.channel("k", "main")["pid"], before["pid"], "the same recorder");
    run(Command::new("true").arg("second")).succeeded();
    let applied = supervisor.command(&["apply", "k"]).succeeded().err;
    assert!(applied.contains("k: nothing to change"), "{applied}");
    supervisor.command(&["stop", "k"]).succeeded();
    let trace = dir.trace(before["folder"].as_str().expect("a folder"));
    let words = trace.manifest()["rule_changes"][1]["kernel"].clone();
    assert_eq!(words, json!(["sched_process_exec", "sched_process_fork"]));
    let events = trace.events();
    let first = events.iter().find(|event| event.name == "sched_process_fork").expect("a fork");
    let is_exec = |event: &&crate::support::Event| event.name == "sched_process_exec";
    assert!(events.iter().filter(is_exec).any(|event| event.time < first.time));
    supervisor.end().succeeded();
}

#[test]
fn recorders_and_supervisors_that_are_killed_come_back() {
    let dir = TestDir::new();
    describe(&dir, "flight", "[channel.main]\n[channel.other]");
    let supervisor = Supervisor::start(&dir);
    assert_eq!(supervisor.channel("flight", "main")["state"], "stopped");
    supervisor.command(&["apply", "flight"]).succeeded();
    let first = supervisor.channel("flight", "main");
    let other = supervisor.channel("flight", "other");
    signal(pid(&first), Signal::KILL);
    wait_until("another recorder", || {
        let now = supervisor.channel("flight", "main");
        now["state"] == "running" && now["pid"] != first["pid"]
    });
    let second = supervisor.channel("flight", "main");
    assert_eq!((&second["restarts"], &second["failure"]), (&json!(1), &json!("it was killed by signal 9")));
    assert_eq!(supervisor.channel("flight", "other"), other);
    // Without a supervisor, recorders run on; a second one takes them over.
    supervisor.kill();
    signal(pid(&second), Signal::KILL);
    thread::sleep(QUIET_TIME);
    let supervisor = Supervisor::start(&dir);
    let adopted = supervisor.channel("flight", "other");
    assert_eq!((&adopted["state"], &adopted["pid"]), (&json!("running"), &other["pid"]));
    let third = supervisor.wait_for("flight", "main", "running");
    assert_ne!(third["pid"], second["pid"]);
    assert_eq!(third["restarts"], 2);
    // The end of a recorder that another supervisor has started is seen, too.
    signal(pid(&adopted), Signal::KILL);
    wait_until("another recorder", || {
        let now = supervisor.channel("flight", "other");
        now["state"] == "running" && now["pid"] != adopted["pid"]
    });
    supervisor.command(&["stop", "flight"]).succeeded();
    thread::sleep(QUIET_TIME);
    assert_eq!(supervisor.channel("flight", "main")["state"], "stopped");
    supervisor.end().succeeded();
    // What was stopped stays so.
    let supervisor = Supervisor::start(&dir);
    assert_eq!(supervisor.channel("flight", "main")["state"], "stopped");
    supervisor.end().succeeded();
}

#[test]
fn a_channel_that_lingers_continues_its_trace() {
    for programs in ["", "programs = ['name=ticker']\n"] {
        its_trace_is_continued(programs);
    }
}

fn its_trace_is_continued(programs: &str) {
    let dir = TestDir::new();
    let channel = "[channel.main]\nevents = ['ticker:tick']\nlinger = '20s'";
    describe(&dir, "flight", &format!("{programs}{channel}"));
    let supervisor = Supervisor::start(&dir);
    supervisor.command(&["apply", "flight"]).succeeded();
    let mut ticker = supervisor.program("ticker");
    wait_until("events", || supervisor.events("flight") > 100);
    let first = supervisor.channel("flight", "main");
    signal(pid(&first), Signal::KILL);
    wait_until("the next recorder", || {
        let now = supervisor.channel("flight", "main");
        now["state"] == "running" && now["pid"] != first["pid"]
    });
    let second = supervisor.channel("flight", "main");
    assert_eq!(second["folder"], first["folder"]);
    let before = supervisor.events("flight");
    wait_until("more events", || supervisor.events("flight") > before + 100);
    supervisor.command(&["stop", "flight"]).succeeded();
    ticker.kill().and_then(|()| ticker.wait()).expect("an end");
    let events = dir.trace(second["folder"].as_str().expect("a folder")).events();
    let numbers: Vec<u64> = events.iter().map(|event| event.number("number")).collect();
    assert!(numbers.len() > 200);
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "each number once, in order");
    supervisor.end().succeeded();
}

#[test]
fn an_orderly_end_leaves_recorders_to_the_next_supervisor() {
    let dir = TestDir::new();
    describe(&dir, "flight", "start = 'boot'\n[channel.main]");
    let supervisor = Supervisor::start(&dir);
    let before = supervisor.wait_for("flight", "main", "running");
    supervisor.end().succeeded();
    let supervisor = Supervisor::start(&dir);
    assert_eq!(supervisor.channel("flight", "main")["pid"], before["pid"]);
    let mut second = dir.tompion(&["serve"]);
    apart(&mut second, &dir);
    let refused = run(&mut second).exited(1).err;
    assert!(refused.contains("a supervisor of this user is running already"), "{refused}");
    // SIGHUP begins what is new.
    describe(&dir, "more", "start = 'boot'\n[channel.main]");
    signal(supervisor.id(), Signal::HUP);
    supervisor.wait_for("more", "main", "running");
    for name in ["flight", "more"] {
        supervisor.command(&["stop", name]).succeeded();
    }
    supervisor.end().succeeded();
    assert!(!dir.path("control").join(".supervisor/flight.json").exists());
}

#[test]
fn mistakes_are_named_and_concern_their_session_only() {
    let dir = TestDir::new();
    describe(&dir, "wrong", "evnts = []\n[channel.main]");
    describe(&dir, "refused", "start = 'boot'\n[channel.main]\nfilter = 'rows >'");
    describe(&dir, "sound", "start = 'boot'\n[channel.main]");
    let supervisor = Supervisor::start(&dir);
    supervisor.wait_for("sound", "main", "running");
    let refused = supervisor.wait_for("refused", "main", "waiting");
    assert!(refused["failure"].as_str().is_some_and(|it| it.contains("rows >")), "{refused}");
    let shown = supervisor.command(&["status"]).succeeded().out;
    assert!(
        shown.contains("UNUSABLE") && shown.contains("wrong.toml: line 2: unknown field `evnts`"),
        "{shown}"
    );
    let error = supervisor.command(&["apply", "wrong"]).exited(1).err;
    assert!(error.contains("wrong.toml: line 2: unknown field `evnts`"), "{error}");
    let error = supervisor.command(&["apply", "none"]).exited(1).err;
    assert!(error.contains("no file describes a session named none"), "{error}");
    // A caller sees the reason, and nothing is tried again behind its back.
    describe(&dir, "refused", "[channel.main]\nmode = 'sometimes'");
    let error = supervisor.command(&["apply", "--restart", "refused"]).exited(1).err;
    assert!(error.contains("invalid value 'sometimes'"), "{error}");
    assert_eq!(supervisor.channel("refused", "main")["state"], "failed");
    describe(&dir, "refused", "[channel.main]");
    supervisor.command(&["apply", "refused"]).succeeded();
    for name in ["refused", "sound"] {
        supervisor.command(&["stop", name]).succeeded();
    }
    supervisor.end().succeeded();
    let mut alone = dir.tompion(&["apply", "sound"]);
    apart(&mut alone, &dir);
    let error = run(&mut alone).exited(1).err;
    assert!(error.contains("no supervisor of this user runs; start one: tompion serve"), "{error}");
}

#[test]
fn a_recorder_that_waits_is_mended_by_a_rule_alone() {
    let dir = TestDir::new();
    describe(
        &dir,
        "flight",
        "start = 'boot'\n[channel.main]\nfilter = 'rows >'\n[channel.gone]\nfilter = 'a >'",
    );
    let supervisor = Supervisor::start(&dir);
    supervisor.wait_for("flight", "main", "waiting");
    describe(&dir, "flight", "start = 'boot'\n[channel.main]\nfilter = 'rows > 1'\n[channel.more]");
    let applied = supervisor.command(&["apply", "flight"]).succeeded().err;
    assert!(applied.contains("flight: main: started, records into "), "{applied}");
    assert!(applied.contains("flight: gone: stopped"), "{applied}");
    assert_eq!(supervisor.channel("flight", "main")["state"], "running");
    assert_eq!(supervisor.channel("flight", "gone"), Value::Null);
    supervisor.command(&["stop", "flight"]).succeeded();
    supervisor.end().succeeded();
}

/// Starts a recording by hand, without a supervisor.
fn record_by_hand(dir: &TestDir, name: &str, folder: &str) -> Child {
    let mut command = Command::new("unshare");
    command.arg("--net").arg(dir.tompion(&[]).get_program());
    command.args(["record", "--session", name, "-o", folder]).current_dir(dir.path(""));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    apart(&mut command, dir);
    tompion_os::Inheritance::current().hand_on_to_companion(&mut command);
    let child = command.spawn().expect("unshare");
    let socket = dir.path("control").join(name).join("control");
    wait_until("a recording", || UnixStream::connect(&socket).is_ok());
    child
}

#[test]
fn a_recording_of_the_same_name_that_was_started_by_hand_is_none_of_the_supervisors() {
    let dir = TestDir::new();
    describe(&dir, "flight", "[channel.main]");
    let supervisor = Supervisor::start(&dir);
    let by_hand = record_by_hand(&dir, "flight", "first");
    let error = supervisor.command(&["apply", "flight"]).exited(1).err;
    assert!(error.contains("a session named flight is running already"), "{error}");
    assert_eq!(supervisor.channel("flight", "main")["state"], "failed");
    // Other commands find it beside the session.
    let shown = supervisor.command(&["status", "--json", "flight"]).succeeded().out;
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!(shown["recordings"][0]["pid"], by_hand.id());
    let stopped = supervisor.command(&["stop", "flight"]).succeeded().err;
    assert!(stopped.contains("flight has ended"), "{stopped}");
    finish(by_hand, "record");
    let stopped = supervisor.command(&["stop", "flight"]).succeeded().err;
    assert!(stopped.contains("flight does not run"), "{stopped}");
    // The next supervisor takes over what this one has started, and nothing else of its name.
    supervisor.command(&["apply", "flight"]).succeeded();
    let killed = supervisor.channel("flight", "main");
    supervisor.kill();
    signal(pid(&killed), Signal::KILL);
    wait_until("a free name", || UnixStream::connect(dir.path("control/flight/control")).is_err());
    let by_hand = record_by_hand(&dir, "flight", "second");
    let supervisor = Supervisor::start(&dir);
    assert_ne!(supervisor.channel("flight", "main")["pid"], by_hand.id());
    supervisor.command(&["stop", "flight"]).succeeded();
    finish(by_hand, "record");
    supervisor.end().succeeded();
}

#[test]
fn a_process_that_has_the_number_of_a_recorder_is_left_alone() {
    let dir = TestDir::new();
    describe(&dir, "flight", "[channel.main]");
    let supervisor = Supervisor::start(&dir);
    supervisor.command(&["apply", "flight"]).succeeded();
    let killed = supervisor.channel("flight", "main");
    supervisor.kill();
    signal(pid(&killed), Signal::KILL);
    let mut other = Command::new("sleep").arg("600").spawn().expect("sleep");
    let file = dir.path("control").join(".supervisor/flight.json");
    let mut saved: Value = serde_json::from_slice(&fs::read(&file).expect("a file")).expect("JSON");
    saved["main"]["process"]["pid"] = json!(other.id());
    fs::write(&file, saved.to_string()).expect("a file");
    let supervisor = Supervisor::start(&dir);
    let running = supervisor.wait_for("flight", "main", "running");
    assert_ne!(running["pid"], other.id());
    supervisor.command(&["stop", "flight"]).succeeded();
    assert!(other.try_wait().expect("a state").is_none());
    other.kill().and_then(|()| other.wait()).expect("an end");
    supervisor.end().succeeded();
}

/// Stops a recorder of a session's channel `main` by SIGSTOP before it listens. One that listens
/// already is killed: the supervisor starts the next one.
fn stop_before_it_listens(dir: &TestDir, session: &str) -> u32 {
    let saved = dir.path("control/.supervisor").join(format!("{session}.json"));
    let socket = dir.path("control").join(session).join("control");
    let mut stopped = None;
    wait_until("a recorder that does not listen yet", || {
        let process = fs::read(&saved).ok().and_then(|saved| {
            let process = serde_json::from_slice::<Value>(&saved).ok()?["main"]["process"].take();
            Some((process["pid"].as_u64()?.try_into().ok()?, process["start_ticks"].as_u64()?))
        });
        let Some((pid, start_ticks)) = process else { return false };
        let id = Pid::from_raw(i32::try_from(pid).expect("an id")).expect("an id");
        if tompion_os::start_ticks(pid) != Some(start_ticks) || kill_process(id, Signal::STOP).is_err() {
            return false;
        }
        wait_until("the end of its turn", || "TZ".contains(state_of(pid)));
        if state_of(pid) == 'T' && UnixStream::connect(&socket).is_err() {
            stopped = Some(pid);
            return true;
        }
        let _ = kill_process(id, Signal::KILL);
        wait_until("its end", || tompion_os::start_ticks(pid) != Some(start_ticks));
        false
    });
    stopped.expect("a recorder")
}

/// State of a process as `proc_pid_stat(5)` has it; `Z` for one that has ended.
fn state_of(pid: u32) -> char {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()).unwrap_or('Z')
}

/// Calls the supervisor while a recorder is stopped, which goes on after a time.
fn call_beside_stopped(dir: &TestDir, pid: u32, after: Duration, method: &str, parameters: &Value) -> Value {
    thread::scope(|scope| {
        let reply = scope.spawn(|| call(dir, method, parameters));
        thread::sleep(after);
        let has_waited = !reply.is_finished();
        signal(pid, Signal::CONT);
        let reply = reply.join().expect("a reply");
        assert!(has_waited, "{reply}");
        reply
    })
}

#[test]
fn a_recorder_that_does_not_listen_yet_is_stopped_and_changed_all_the_same() {
    let dir = TestDir::new();
    describe(&dir, "flight", "start = 'boot'\n[channel.main]");
    describe(&dir, "other", "start = 'boot'\n[channel.main]");
    let supervisor = Supervisor::start(&dir);
    let stopped = stop_before_it_listens(&dir, "flight");
    let reply = call_beside_stopped(&dir, stopped, QUIET_TIME, "Stop", &json!({ "name": "flight" }));
    assert_eq!(reply["parameters"]["folders"].as_array().map(Vec::len), Some(1), "{reply}");
    let stopped = stop_before_it_listens(&dir, "other");
    describe(&dir, "other", "start = 'boot'\n[channel.main]\nlevel = 'info'");
    let apply = json!({ "name": "other", "restart": false });
    let reply = call_beside_stopped(&dir, stopped, QUIET_TIME, "Apply", &apply);
    assert_eq!(reply["parameters"]["pending"], json!([]), "{reply}");
    assert_eq!(pid(&supervisor.channel("other", "main")), stopped);
    assert_eq!(supervisor.channel("flight", "main")["state"], "stopped");
    supervisor.command(&["stop", "other"]).succeeded();
    supervisor.end().succeeded();
}

#[test]
fn a_recorder_that_fails_while_its_rules_change_is_started_with_the_new_ones() {
    let dir = TestDir::new();
    describe(&dir, "flight", "start = 'boot'\n[channel.main]\nfilter = 'rows >'");
    let supervisor = Supervisor::start(&dir);
    let stopped = stop_before_it_listens(&dir, "flight");
    describe(&dir, "flight", "start = 'boot'\n[channel.main]\nfilter = 'rows > 1'");
    let apply = json!({ "name": "flight", "restart": false });
    let reply = call_beside_stopped(&dir, stopped, QUIET_TIME, "Apply", &apply);
    let change = reply["parameters"]["changes"][0].as_str().unwrap_or_default();
    assert!(change.starts_with("main: started, records into "), "{reply}");
    assert_eq!(supervisor.channel("flight", "main")["state"], "running");
    supervisor.command(&["stop", "flight"]).succeeded();
    supervisor.end().succeeded();
}

#[test]
fn a_recorder_that_answers_late_is_stopped_all_the_same() {
    let dir = TestDir::new();
    describe(&dir, "flight", "[channel.main]");
    let supervisor = Supervisor::start(&dir);
    supervisor.command(&["apply", "flight"]).succeeded();
    let recorder = pid(&supervisor.channel("flight", "main"));
    signal(recorder, Signal::STOP);
    let reply = call_beside_stopped(&dir, recorder, SILENT_TIME, "Stop", &json!({ "name": "flight" }));
    assert_eq!(reply["parameters"]["folders"].as_array().map(Vec::len), Some(1), "{reply}");
    assert_eq!(supervisor.channel("flight", "main")["state"], "stopped");
    supervisor.end().succeeded();
}

#[test]
fn recorders_hand_on_no_signals_that_the_supervisor_has_blocked() {
    let dir = TestDir::new();
    let copy = dir.path("status");
    let trigger = format!("external:copy -> run cp /proc/self/status {}", copy.display());
    describe(&dir, "flight", &format!("[channel.main]\ntrigger = ['{trigger}']"));
    let supervisor = Supervisor::start(&dir);
    supervisor.command(&["apply", "flight"]).succeeded();
    supervisor.command(&["trigger", "flight", "copy"]).succeeded();
    let blocked = || {
        let status = fs::read_to_string(&copy).unwrap_or_default();
        status.lines().find_map(|line| line.strip_prefix("SigBlk:")).map(|digits| digits.trim().to_owned())
    };
    wait_until("the command of the trigger", || blocked().is_some());
    assert_eq!(blocked().as_deref(), Some("0000000000000000"));
    supervisor.command(&["stop", "flight"]).succeeded();
    supervisor.end().succeeded();
}

#[test]
fn a_supervisor_by_sudo_is_refused() {
    let dir = TestDir::new();
    let mut command = dir.tompion(&["serve"]);
    apart(&mut command, &dir);
    let refused = run(command.env("SUDO_UID", "65534").env("SUDO_GID", "65534")).exited(1).err;
    assert!(refused.contains("run it as user 65534 without sudo"), "{refused}");
    assert_eq!(refused.lines().count(), 1, "{refused}");
}

fn call(dir: &TestDir, method: &str, parameters: &Value) -> Value {
    use std::io::Write as _;
    let socket = dir.path("control").join(".supervisor/control");
    let mut connection = UnixStream::connect(socket).expect("a supervisor");
    let call = json!({ "method": format!("io.tompion.Supervisor1.{method}"), "parameters": parameters });
    write!(connection, "{call}\0").expect("a call");
    let mut reply = Vec::new();
    BufReader::new(connection).read_until(0, &mut reply).expect("a reply");
    serde_json::from_slice(&reply[..reply.len() - 1]).expect("JSON")
}

#[test]
fn programs_create_and_remove_sessions() {
    let dir = TestDir::new();
    let session = json!({ "output": dir.path("traces"), "channel": { "main": { "events": ["a:*"] } } });
    let folders = std::env::join_paths([dir.path("control"), dir.path("sessions")]).expect("folders");
    let supervisor = Supervisor::start_with(&dir, Path::new(&folders));
    let reply = call(&dir, "Create", &json!({ "name": "made", "session": session }));
    assert_eq!(reply["parameters"]["changes"].as_array().map(Vec::len), Some(1), "{reply}");
    supervisor.wait_for("made", "main", "running");
    for (name, session, expected) in [
        ("made", json!({ "channel": { "main": { "modes": "x" } } }), "modes"),
        ("made", json!({}), "at least one"),
        ("a/b", json!({ "channel": { "main": {} } }), "a/b"),
    ] {
        let reply = call(&dir, "Create", &json!({ "name": name, "session": session }));
        assert_eq!(reply["error"], "io.tompion.Supervisor1.InvalidSession");
        assert!(reply["parameters"]["problem"].as_str().is_some_and(|it| it.contains(expected)), "{reply}");
    }
    // Another file's session is not replaced.
    describe(&dir, "described", "[channel.main]");
    let session = json!({ "channel": { "main": {} } });
    let reply = call(&dir, "Create", &json!({ "name": "described", "session": session }));
    assert_eq!(reply["error"], "io.tompion.Supervisor1.InvalidSession", "{reply}");
    let reply = call(&dir, "Remove", &json!({ "name": "made" }));
    assert_eq!(reply["parameters"]["folders"].as_array().map(Vec::len), Some(1), "{reply}");
    assert_eq!(supervisor.channel("made", "main"), Value::Null);
    let reply = call(&dir, "Remove", &json!({ "name": "made" }));
    assert_eq!(reply["error"], "io.tompion.Supervisor1.NoSuchSession");
    supervisor.end().succeeded();
}

#[test]
fn a_session_begins_when_a_trigger_of_another_notifies() {
    let dir = TestDir::new();
    let source = "start = 'boot'\nprograms = ['name=none-of-this-name']\n[channel.main]\n\
                  trigger = ['external:slow -> notify', 'external:quiet -> stop']";
    describe(&dir, "flight", source);
    let target = "start = 'trigger:flight'\nprograms = ['name=none-of-this-name']\n[channel.main]";
    describe(&dir, "detail", target);
    let supervisor = Supervisor::start(&dir);
    supervisor.wait_for("flight", "main", "running");
    assert_eq!(supervisor.channel("detail", "main")["state"], "stopped", "it waits");
    let fire = || supervisor.command(&["trigger", "flight", "slow"]);
    let begins = || supervisor.channel("detail", "main")["state"] == "running";
    // The supervisor may have begun to watch a moment later.
    wait_until("its begin", || {
        fire().succeeded();
        begins()
    });
    let first = pid(&supervisor.channel("detail", "main"));
    fire().succeeded();
    supervisor.wait_for("detail", "main", "running");
    assert_eq!(pid(&supervisor.channel("detail", "main")), first, "it runs already");
    supervisor.command(&["stop", "detail"]).succeeded();
    // One that was killed leaves the next supervisor to watch.
    supervisor.kill();
    let supervisor = Supervisor::start(&dir);
    wait_until("its begin", || {
        supervisor.command(&["trigger", "flight", "slow"]).succeeded();
        supervisor.channel("detail", "main")["state"] == "running"
    });
    assert_ne!(pid(&supervisor.wait_for("detail", "main", "running")), first);
    supervisor.command(&["stop", "detail"]).succeeded();
    supervisor.command(&["stop", "flight"]).succeeded();
    supervisor.end().succeeded();
}

#[test]
fn a_created_session_that_can_not_start_keeps_its_file_until_it_is_removed() {
    let dir = TestDir::new();
    let folders = std::env::join_paths([dir.path("control"), dir.path("sessions")]).expect("folders");
    let supervisor = Supervisor::start_with(&dir, Path::new(&folders));
    let output = dir.path("obstacle");
    fs::write(&output, "").expect("a file in the place of the folder");
    let session = json!({ "output": &output, "channel": { "main": { "events": ["a:*"] } } });
    let reply = call(&dir, "Create", &json!({ "name": "late", "session": session }));
    assert_eq!(reply["error"], "io.tompion.Supervisor1.Failed", "{reply}");
    let file = dir.path("control").join("late.toml");
    assert!(file.exists(), "it describes what is to be");
    let list = supervisor.list();
    assert_eq!(list["sessions"][0]["files"], json!([file]), "{list}");
    fs::remove_file(&output).expect("a file");
    let reply = call(&dir, "Apply", &json!({ "name": "late", "restart": false }));
    assert_eq!(reply["parameters"]["changes"].as_array().map(Vec::len), Some(1), "{reply}");
    supervisor.wait_for("late", "main", "running");
    let reply = call(&dir, "Remove", &json!({ "name": "late" }));
    assert_eq!(reply["parameters"]["folders"].as_array().map(Vec::len), Some(1), "{reply}");
    assert!(!file.exists());
    supervisor.end().succeeded();
}

#[test]
fn no_session_is_created_where_none_is_read() {
    let dir = TestDir::new();
    let supervisor = Supervisor::start(&dir);
    let session = json!({ "channel": { "main": {} } });
    let reply = call(&dir, "Create", &json!({ "name": "made", "session": session }));
    assert_eq!(reply["error"], "io.tompion.Supervisor1.InvalidSession", "{reply}");
    let problem = reply["parameters"]["problem"].as_str().unwrap_or_default();
    assert!(problem.contains("among the folders with sessions"), "{problem}");
    assert!(!dir.path("control").join("made.toml").exists());
    supervisor.end().succeeded();
}

/// Opens a socket as systemd does, and becomes the supervisor.
const ACTIVATE: &str = r#"
import os, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
listener.set_inheritable(True)
if listener.fileno() != 3:
    os.dup2(listener.fileno(), 3, inheritable=True)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1", WATCHDOG_USEC="200000")
os.execv(sys.argv[2], [sys.argv[2], "serve"])
"#;

#[test]
fn readiness_is_reported_and_an_inherited_socket_used() {
    use std::os::unix::fs::DirBuilderExt as _;
    let dir = TestDir::new();
    fs::create_dir_all(dir.path("sessions")).expect("a folder");
    let place = dir.path("control/.supervisor");
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&place).expect("a folder");
    let manager = UnixDatagram::bind(dir.path("notify")).expect("a socket");
    manager.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    let mut command = Command::new("python3");
    command.args(["-c", ACTIVATE]).arg(place.join("control")).arg(dir.tompion(&[]).get_program());
    command.env("NOTIFY_SOCKET", dir.path("notify")).stderr(Stdio::null());
    apart(&mut command, &dir);
    let process = command.spawn().expect("python3");
    let mut received = String::new();
    let mut receive = |expected: &str| {
        let mut buffer = [0; 1024];
        while !received.contains(expected) {
            let size = manager.recv(&mut buffer).expect("a message");
            received += &String::from_utf8_lossy(&buffer[..size]);
        }
    };
    receive("READY=1");
    receive("WATCHDOG=1\nSTATUS=0 recorders run");
    let supervisor = Supervisor { dir: &dir, process: Some(process) };
    assert_eq!(supervisor.list()["pid"], supervisor.id());
    // Comes again without anything to do.
    for _ in 0..3 {
        let mut buffer = [0; 1024];
        let size = manager.recv(&mut buffer).expect("a message");
        assert!(buffer[..size].starts_with(b"WATCHDOG=1"));
    }
    supervisor.end().succeeded();
    // The socket is the service manager's.
    assert!(place.join("control").exists());
}

#[test]
fn a_stopped_client_or_garbage_holds_up_nothing() {
    use std::io::Write as _;
    let dir = TestDir::new();
    describe(&dir, "flight", "start = 'boot'\n[channel.main]");
    let supervisor = Supervisor::start(&dir);
    supervisor.wait_for("flight", "main", "running");
    let socket: PathBuf = dir.path("control").join(".supervisor/control");
    let silent: Vec<UnixStream> =
        (0..64).map(|_| UnixStream::connect(&socket).expect("a connection")).collect();
    let mut garbage = UnixStream::connect(&socket).expect("a connection");
    garbage.write_all(&[0xff; 4096]).expect("a write");
    let mut half = UnixStream::connect(&socket).expect("a connection");
    half.write_all(b"{\"method\": ").expect("a write");
    assert_eq!(supervisor.channel("flight", "main")["state"], "running");
    supervisor.command(&["stop", "flight"]).succeeded();
    drop((silent, garbage, half));
    supervisor.end().succeeded();
}
