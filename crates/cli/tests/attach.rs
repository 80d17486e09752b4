//! Programs that run already, that start later, and that record themselves; several recordings of
//! one.

use std::{
    io::{BufRead, BufReader, Read},
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use rustix::process::Signal;

use crate::support::{Event, TestDir, Trace, finish, libraries, run, signal, start, wait_until};

/// A program that counts until it is told to end.
pub struct Ticker {
    child: Child,
    words: BufReader<ChildStdout>,
    input: Option<ChildStdin>,
}

impl Ticker {
    /// Starts the program, and waits until it counts.
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the ticker");
        let mut words = BufReader::new(child.stdout.take().expect("its words"));
        let mut line = String::new();
        words.read_line(&mut line).expect("a word");
        assert_eq!(line, "ready\n");
        let input = child.stdin.take();
        Self { child, words, input }
    }

    pub fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// Ends a program whose parent was killed.
    pub fn end_orphan(mut self) {
        drop(self.input.take());
        let mut rest = String::new();
        self.words.read_to_string(&mut rest).expect("its last word");
        self.child.wait().expect("its starter's end");
        assert!(rest.trim().parse::<u64>().is_ok(), "{rest}");
    }

    /// Ends the program, and returns its last number.
    pub fn end(mut self) -> u64 {
        drop(self.input.take());
        let mut rest = String::new();
        self.words.read_to_string(&mut rest).expect("its last word");
        assert!(self.child.wait().expect("its end").success());
        rest.trim().parse().expect("a number")
    }
}

/// Waits until the process is part of the recording, as it shows in the trace's folder.
pub fn wait_for_events(trace: &Path) {
    wait_until("events in the trace", || {
        let sources = std::fs::read_dir(trace.join("user")).into_iter().flatten().flatten();
        sources.into_iter().any(|source| source.path().join("metadata").exists())
    });
}

/// The numbers of a kind of event follow each other without a gap, up to the last. Returns the
/// first.
#[track_caller]
fn assert_counted(events: &[Event], name: &str, last: u64) -> u64 {
    let numbers: Vec<u64> =
        events.iter().filter(|event| event.name == name).map(|event| event.number("number")).collect();
    let first = *numbers.first().unwrap_or_else(|| panic!("no {name}"));
    assert_eq!(numbers, (first..=last).collect::<Vec<_>>(), "{name}");
    first
}

#[track_caller]
fn names(events: &[Event]) -> Vec<&str> {
    let mut names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[test]
fn a_running_process_is_recorded_from_now_to_its_end() {
    let dir = TestDir::new();
    let ticker = Ticker::start(&mut Command::new(dir.program("ticker")));
    let recording = start(&mut dir.tompion(&["record", "-o", "trace", "-p", &ticker.pid()]));
    wait_for_events(&dir.path("trace"));
    let last = ticker.end();
    finish(recording, "record -p").succeeded();
    let trace = dir.trace("trace");
    trace.agreed_text();
    let events = trace.events();
    assert!(assert_counted(&events, "ticker:tick", last) > 1);
    assert_counted(&events, "ticker:tock", last);
}

#[test]
fn a_recording_is_printed_while_it_runs() {
    let dir = TestDir::new();
    let ticker = Ticker::start(&mut Command::new(dir.program("ticker")));
    let recording = start(&mut dir.tompion(&["record", "-o", "trace", "-p", &ticker.pid()]));
    wait_until("a trace", || dir.path("trace").join("tompion.json").exists());
    let mut follower = start(&mut dir.tompion(&["print", "--follow", "--no-delta", "trace"]));
    let mut words = BufReader::new(follower.stdout.take().expect("its words"));
    let mut text = String::new();
    words.read_line(&mut text).expect("a line while it runs");
    assert!(text.contains("ticker:t"), "{text}");
    ticker.end();
    finish(recording, "record -p").succeeded();
    // The recording has ended, and so does `print --follow`.
    words.read_to_string(&mut text).expect("the other lines");
    assert_eq!(finish(follower, "print --follow").succeeded().err, "");
    let whole = run(&mut dir.tompion(&["print", "--no-delta", "trace"])).succeeded().out;
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(String::from).collect();
        lines.sort_unstable();
        lines
    };
    assert_eq!(sorted(&text), sorted(&whole));
}

#[test]
fn children_of_a_process_that_was_asked_follow_it() {
    for (how, children) in [("fork", 1), ("exec", 3)] {
        let dir = TestDir::new();
        let ticker = Ticker::start(Command::new(dir.program("ticker")).arg(how));
        let recording = start(&mut dir.tompion(&["record", "-o", "trace", "-p", &ticker.pid()]));
        wait_for_events(&dir.path("trace"));
        let last = ticker.end();
        finish(recording, "record -p").succeeded();
        let events = dir.trace("trace").events();
        assert_counted(&events, "ticker:tick", last);
        let count = events.iter().filter(|event| event.name == "ticker:child").count();
        assert_eq!(count, children, "{how}");
    }
}

#[test]
fn a_recording_that_ends_first_leaves_the_process_alone() {
    let dir = TestDir::new();
    let ticker = Ticker::start(&mut Command::new(dir.program("ticker")));
    for round in 0..3 {
        let name = format!("trace-{round}");
        let recording = start(&mut dir.tompion(&["record", "-o", &name, "-p", &ticker.pid()]));
        wait_for_events(&dir.path(&name));
        signal(recording.id(), Signal::INT);
        finish(recording, "record -p").succeeded();
        let events = dir.trace(&name).events();
        let last = events.last().expect("events").number("number");
        assert_counted(&events, "ticker:tick", last);
    }
    ticker.end();
}

#[test]
fn three_recordings_of_one_process_get_each_what_they_asked_for() {
    let dir = TestDir::new();
    let ticker = Ticker::start(&mut Command::new(dir.program("ticker")));
    let pid = ticker.pid();
    let options: [&[&str]; 3] = [
        &["-e", "ticker:tick"],
        &["-e", "ticker:tock", "--mode", "overwrite", "--no-tid"],
        &["--subbuf-size", "64K", "--subbufs", "8"],
    ];
    let mut recordings = Vec::new();
    for (index, options) in options.iter().enumerate() {
        let name = index.to_string();
        let mut record = dir.tompion(&["record", "-o", &name, "-p", &pid]);
        recordings.push(start(record.args(*options)));
    }
    wait_for_events(&dir.path("0"));
    wait_for_events(&dir.path("2"));
    // The flight recorder writes nothing before its end.
    wait_until("all three in the process", || {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        maps.lines().filter(|line| line.contains("tompion-rings")).count() >= 3
    });
    let last = ticker.end();
    recordings.into_iter().for_each(|recording| drop(finish(recording, "record -p").succeeded()));
    let traces = ["0", "1", "2"].map(|name| dir.trace(name));
    for trace in &traces {
        trace.agreed_text();
    }
    let [ticks, tocks, all] = traces.map(|trace| trace.events());
    assert_eq!(names(&ticks), ["ticker:tick"]);
    assert_eq!(names(&tocks), ["ticker:tock"]);
    assert_eq!(names(&all), ["ticker:tick", "ticker:tock"]);
    assert_counted(&ticks, "ticker:tick", last);
    assert_counted(&tocks, "ticker:tock", last);
    assert_counted(&all, "ticker:tick", last);
    assert_counted(&all, "ticker:tock", last);
}

#[test]
fn programs_that_start_later_are_recorded_as_well() {
    let dir = TestDir::new();
    let program = dir.program("ticker");
    let before = Ticker::start(&mut Command::new(&program));
    let recording = start(&mut dir.tompion(&["record", "-o", "trace", "-e", "ticker:*"]));
    wait_for_events(&dir.path("trace"));
    let after = Ticker::start(&mut Command::new(&program));
    let (first_pid, second_pid) = (before.pid(), after.pid());
    wait_until("the second program in the trace", || {
        let sources = std::fs::read_dir(dir.path("trace/user")).into_iter().flatten().flatten();
        sources.into_iter().any(|source| source.path().to_string_lossy().ends_with(&format!("-{second_pid}")))
    });
    let (first_last, second_last) = (before.end(), after.end());
    signal(recording.id(), Signal::INT);
    finish(recording, "record").succeeded();
    let events = dir.trace("trace").events();
    for (pid, last) in [(first_pid, first_last), (second_pid, second_last)] {
        let own: Vec<Event> =
            events.iter().filter(|event| event.source.ends_with(&format!("-{pid}"))).cloned().collect();
        assert_counted(&own, "ticker:tick", last);
    }
}

/// Waits until a process is part of the recording in a folder: under load, the session may come
/// later than a start waits for it.
pub fn wait_for_process(folder: &Path, pid: &str) {
    let entries = |path: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    };
    wait_until("the process's events", || {
        let traces = entries(folder);
        let sources = traces.iter().flat_map(|trace| entries(&trace.join("user")));
        let is_this = |source: &PathBuf| source.to_string_lossy().ends_with(&format!("-{pid}"));
        sources.filter(is_this).any(|source| source.join("metadata").exists())
    });
}

/// The trace that appears below a folder, once it is complete.
pub fn gathered(folder: &Path) -> Trace {
    let mut found = None;
    wait_until("a complete trace", || {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        found = entries.map(|entry| entry.path()).find(|path| {
            let manifest = std::fs::read_to_string(path.join("tompion.json")).unwrap_or_default();
            manifest.contains("\"complete\"")
        });
        found.is_some()
    });
    Trace { folder: found.expect("a folder") }
}

#[test]
fn a_program_records_itself_into_a_folder() {
    let dir = TestDir::new();
    let (program, folder) = (dir.program("ticker"), dir.path("traces"));
    // The command is looked for on the path, because the library of a test stands somewhere else.
    let start = |options: &str| {
        let mut command = Command::new(&program);
        command.env("TOMPION_RECORD", &folder).env("TOMPION_RECORD_OPTIONS", options);
        Ticker::start(&mut command)
    };
    let (first, second) = (start("-x ticker:tock"), start("ignored, since the first one's session is used"));
    let (first_pid, second_pid) = (first.pid(), second.pid());
    wait_for_process(&folder, &first_pid);
    wait_for_process(&folder, &second_pid);
    let (first_last, second_last) = (first.end(), second.end());
    let events = gathered(&folder).events();
    assert_eq!(names(&events), ["ticker:tick"]);
    for (pid, last) in [(first_pid, first_last), (second_pid, second_last)] {
        let own: Vec<Event> =
            events.iter().filter(|event| event.source.ends_with(&format!("-{pid}"))).cloned().collect();
        assert_counted(&own, "ticker:tick", last);
    }
    wait_until("what the session says last", || {
        let log = std::fs::read_to_string(folder.join("tompion.log")).unwrap_or_default();
        log.contains("events of 2 processes")
    });
}

/// A service is not watched when it restarts after its recording was killed.
#[test]
fn rings_that_a_killed_recording_has_left_keep_no_program_from_recording_itself() {
    let dir = TestDir::new();
    let (program, folder, rings) = (dir.program("ticker"), dir.path("traces"), dir.path("rings"));
    std::fs::create_dir(&rings).expect("a folder");
    let mut command = Command::new(&program);
    command.env("TOMPION_RECORD", &folder);
    command.env("TOMPION_RECORD_OPTIONS", format!("--backing {}", rings.display()));
    let ticker = Ticker::start(&mut command);
    wait_for_process(&folder, &ticker.pid());
    assert!(dir.path("rings-2").exists());
    ticker.end();
    assert!(!gathered(&folder).events().is_empty());
    let log = || std::fs::read_to_string(folder.join("tompion.log")).unwrap_or_default();
    let said = format!("{} exists already, so the rings are in {0}-2; ", rings.display());
    wait_until("a word of it", || log().contains(&said));
    wait_until("the rings' end", || !dir.path("rings-2").exists());
}

#[test]
fn programs_that_start_together_share_one_recorder() {
    let dir = TestDir::new();
    let (program, folder) = (dir.program("ticker"), dir.path("traces"));
    let starting: Vec<Child> = (0..6)
        .map(|_| {
            let mut command = Command::new(&program);
            command.env("TOMPION_RECORD", &folder).stdin(Stdio::piped()).stdout(Stdio::null());
            command.spawn().expect("a ticker")
        })
        .collect();
    wait_for_programs(&folder, starting.len());
    for mut child in starting {
        drop(child.stdin.take());
        assert!(child.wait().expect("its end").success());
    }
    let log = folder.join("tompion.log");
    wait_until("its last word", || log.metadata().is_ok_and(|metadata| metadata.len() != 0));
    let log = std::fs::read_to_string(log).expect("what the session said");
    assert_eq!(log.lines().count(), 1, "those that came second say nothing: {log}");
    assert!(log.contains("events of 6 processes"), "{log}");
}

/// Waits until so many programs are in a trace below the folder.
fn wait_for_programs(folder: &Path, count: usize) {
    wait_until("all programs in the trace", || {
        let traces = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let sources = traces.filter_map(|trace| std::fs::read_dir(trace.path().join("user")).ok()).flatten();
        sources.count() == count
    });
}

/// User id without any rights.
const UNPRIVILEGED_UID: u32 = 65534;

#[test]
fn root_may_record_a_process_of_another_user() {
    let dir = TestDir::new();
    let program = dir.program("ticker");
    if !rustix::process::geteuid().is_root() {
        return eprintln!("left out: not root");
    }
    open_to_all(&dir.path(""));
    let reachable = libraries().ancestors().chain(program.ancestors()).all(is_open_to_all);
    if !reachable {
        return eprintln!("left out: the libraries stand where only root may read");
    }
    let ticker = Ticker::start(Command::new(&program).uid(UNPRIVILEGED_UID).gid(UNPRIVILEGED_UID));
    let recording = start(&mut dir.tompion(&["record", "-o", "trace", "-p", &ticker.pid()]));
    wait_for_events(&dir.path("trace"));
    let last = ticker.end();
    finish(recording, "record").succeeded();
    assert_counted(&dir.trace("trace").events(), "ticker:tick", last);
}

fn open_to_all(folder: &Path) {
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).expect("its mode");
}

fn is_open_to_all(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.mode() & 0o001 != 0)
}

#[test]
fn processes_that_must_not_be_recorded_are_not() {
    let dir = TestDir::new();
    let mut command = Command::new(dir.program("ticker"));
    let ticker = Ticker::start(command.env("TOMPION_DISABLE", "1").env("TOMPION_RECORD", dir.path("traces")));
    let refused = run(&mut dir.tompion(&["record", "-o", "trace", "-p", &ticker.pid()])).exited(125);
    let line = format!("ticker ({}) can't be asked to take part: expected its attach socket", ticker.pid());
    assert!(refused.err.contains(&line), "{}", refused.err);
    assert!(refused.err.contains("it was started with TOMPION_DISABLE=1"), "{}", refused.err);
    assert!(!refused.err.contains("TOMPION_ATTACH"), "{}", refused.err);
    ticker.end();
    assert!(!dir.path("trace").exists() && !dir.path("traces").exists());
    let ticker = Ticker::start(Command::new(dir.program("ticker")).env("TOMPION_ATTACH", "0"));
    let refused = run(&mut dir.tompion(&["record", "-o", "trace", "-p", &ticker.pid()])).exited(125);
    assert!(refused.err.contains("it was started with TOMPION_ATTACH=0"), "{}", refused.err);
    ticker.end();
    let refused = run(&mut dir.tompion(&["record", "-o", "trace", "-p", "4194305"])).exited(125);
    assert!(refused.err.contains("there is no process 4194305"), "{}", refused.err);
    let own = std::process::id().to_string();
    // Its children are those of other tests, which may take part.
    let refused = run(&mut dir.tompion(&["record", "-o", "trace", "--no-children", "-p", &own])).exited(125);
    assert!(refused.err.contains("has not loaded libtompion"), "{}", refused.err);
}
