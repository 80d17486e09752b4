//! Sessions and names of other users: they get nothing from a program, and keep it from nothing.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    os::unix::{fs::MetadataExt as _, fs::PermissionsExt as _, process::CommandExt as _},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::Duration,
};

use rustix::process::Signal;
use tompion_os::PacketSocket;
use tompion_protocol::{message::ToAgent, names};

use crate::{
    attach::{Ticker, gathered, wait_for_events, wait_for_process},
    monitor::Own,
    support::{TestDir, beside, finish, rounds, run, signal, start, wait_until},
};

/// A user that every machine has, with no rights.
const UNPRIVILEGED_UID: u32 = 65534;
/// Path at which no folder for join sockets can be made, so that abstract names are left.
const NO_FOLDER: &str = "/proc/none";

/// Sessions of `programs/hostile_session.py`, in one process.
struct Hostile {
    child: Child,
    input: Option<ChildStdin>,
    words: BufReader<ChildStdout>,
}

impl Hostile {
    /// Takes the names as this user, and misbehaves.
    fn start(user: u32, how: &[&str], names: &[String]) -> Self {
        let mut command = Command::new("python3");
        command.arg(beside("programs/hostile_session.py")).args(how).args(names);
        command.uid(user).gid(user).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python3");
        let mut words = BufReader::new(child.stdout.take().expect("its words"));
        let mut line = String::new();
        words.read_line(&mut line).expect("a word");
        assert_eq!(line, "ready\n");
        Self { input: child.stdin.take(), child, words }
    }

    /// Ends the session; returns how many programs have introduced themselves.
    fn end(mut self) -> u64 {
        drop(self.input.take());
        let mut line = String::new();
        self.words.read_to_string(&mut line).expect("its last word");
        assert!(self.child.wait().expect("its end").success());
        line.trim().strip_prefix("heard ").expect("a count").parse().expect("a number")
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        let _ = self.child.kill();
    }
}

/// Enters a network namespace of its own, whose socket names no other test uses. Needs root, as
/// other users do in these tests.
fn has_own_names() -> bool {
    const CLONE_NEWNET: i32 = 0x4000_0000;
    let is_root = rustix::process::geteuid().is_root();
    let has = is_root && tompion_os::unshare(CLONE_NEWNET) == 0;
    if !has {
        eprintln!("SKIPPED, only root can be two users and have names of its own");
    }
    has
}

/// Returns a new name.
fn new_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("tompion-strangers-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The memory that a process shares with others, in KiB.
fn shared_memory(pid: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("its status");
    let line = status.lines().find_map(|line| line.strip_prefix("RssShmem:")).expect("a size");
    line.split_whitespace().next().expect("a number").parse().expect("a number")
}

/// Returns all abstract socket names of this thread's network namespace.
fn all_names() -> Vec<String> {
    let table = fs::read_to_string("/proc/thread-self/net/unix").expect("the table of names");
    table
        .lines()
        .filter_map(|line| Some(line.split(' ').next_back()?.strip_prefix('@')?.to_owned()))
        .collect()
}

fn pid_namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").expect("a namespace").ino()
}

/// The attach socket of a process.
fn attach_socket(pid: &str) -> String {
    let prefix = format!("tompion-bell-{}-{pid}-", pid_namespace());
    let mut found = None;
    wait_until("an attach socket", || {
        found = all_names().into_iter().find(|name| name.starts_with(&prefix));
        found.is_some()
    });
    found.expect("a name")
}

/// The name of the only session of this network namespace.
fn session_name() -> String {
    let is_sessions = |name: &String| name.starts_with("tompion-") && !name.starts_with("tompion-bell-");
    all_names().into_iter().find(is_sessions).expect("the session's name")
}

/// Waits for a while, in which a session could act.
fn let_it_be() {
    thread::sleep(Duration::from_millis(300));
}

/// Runs a program with a hostile session of this user in its environment: it ends as ever, without
/// much memory. Returns how often it has introduced itself.
#[track_caller]
fn heard_by_session(user: u32, how: &str, program: &Path) -> u64 {
    let name = new_name();
    let session = Hostile::start(user, &[how], std::slice::from_ref(&name));
    let ticker = Ticker::start(Command::new(program).env("TOMPION_SESSION", &name));
    let_it_be();
    let memory = shared_memory(&ticker.pid());
    ticker.end();
    assert!(memory < 64 << 10, "{how}: {memory} KiB");
    session.end()
}

#[test]
fn given_a_strangers_session_in_the_environment_then_it_hears_nothing() {
    if !has_own_names() {
        return;
    }
    let dir = TestDir::new();
    let program = dir.program("ticker");
    for how in ["silent", "full", "deaf", "unsealed", "populate"] {
        assert_eq!(heard_by_session(UNPRIVILEGED_UID, how, &program), 0, "{how}");
    }
}

#[test]
fn given_a_killed_recorder_whose_name_a_stranger_took_then_later_children_tell_it_nothing() {
    if !has_own_names() {
        return;
    }
    let dir = TestDir::new();
    let program = dir.program("ticker");
    for child in ["fork", "exec"] {
        let mut recording = dir.recording(child, &[], &[&program, &child]);
        let ticker = Ticker::start(&mut recording);
        wait_for_events(&dir.path(child));
        let name = session_name();
        signal(ticker.pid().parse().expect("the recorder"), Signal::KILL);
        wait_until("the name's end", || !all_names().contains(&name));
        let session = Hostile::start(UNPRIVILEGED_UID, &["unsealed"], &[name]);
        ticker.end_orphan();
        assert_eq!(session.end(), 0, "{child}");
    }
}

/// A silent client has a second for its handshake; a client of another user has none.
#[test]
fn given_a_stranger_that_connects_all_the_time_then_the_recording_ends() {
    if !has_own_names() {
        return;
    }
    let dir = TestDir::new();
    let mut recording = dir.recording("trace", &[], &[&dir.program("ticker")]);
    let ticker = Ticker::start(&mut recording);
    wait_for_events(&dir.path("trace"));
    let stranger = Hostile::start(UNPRIVILEGED_UID, &["knock"], &[session_name()]);
    let_it_be();
    ticker.end();
    assert_eq!(stranger.end(), 0);
}

#[test]
fn given_a_strangers_name_from_whom_asks_then_it_hears_nothing() {
    if !has_own_names() {
        return;
    }
    let dir = TestDir::new();
    let ticker = Ticker::start(&mut Command::new(dir.program("ticker")));
    let (attach, name) = (attach_socket(&ticker.pid()), new_name());
    let session = Hostile::start(UNPRIVILEGED_UID, &["unsealed"], std::slice::from_ref(&name));
    // The recorder that asked has ended, and its name has gone to another user.
    let asker = PacketSocket::connect_at_once(&attach).expect("the attach socket");
    asker.send(&ToAgent::Join(name).encode(), &[]).expect("a request");
    let_it_be();
    ticker.end();
    assert_eq!(session.end(), 0);
}

/// Root's own sessions are believed, and yet the program trusts no file that they hand over.
#[test]
fn given_a_believed_session_then_it_can_neither_end_the_program_nor_fill_its_memory() {
    if !has_own_names() {
        return;
    }
    let dir = TestDir::new();
    let program = dir.program("ticker");
    for how in ["unsealed", "file", "foreign", "populate", "silent"] {
        assert_eq!(heard_by_session(0, how, &program), 1, "{how}");
    }
}

#[test]
fn given_900_names_like_an_attach_sockets_then_the_process_is_recorded() {
    if !has_own_names() {
        return;
    }
    let dir = TestDir::new();
    let program = dir.program("ticker");
    let namespace = pid_namespace();
    // Beforehand, for all processes that come next; then for the one that has come.
    let next = std::process::id()..;
    let before: Vec<_> = next.take(900).map(|pid| format!("tompion-bell-{namespace}-{pid}")).collect();
    let before = Hostile::start(UNPRIVILEGED_UID, &["silent"], &before);
    let ticker = Ticker::start(&mut Command::new(&program));
    let pid = ticker.pid();
    attach_socket(&pid);
    let own = pid.parse().expect("a number");
    let alike: Vec<_> = (0..900).map(|random| names::attach_socket(namespace, own, random)).collect();
    let alike = Hostile::start(UNPRIVILEGED_UID, &["silent"], &alike);
    let recording = start(&mut dir.tompion(&["record", "-o", "trace", "-p", &pid]));
    wait_for_events(&dir.path("trace"));
    ticker.end();
    finish(recording, "record -p").succeeded();
    assert!(!dir.trace("trace").events().is_empty());
    assert_eq!(before.end() + alike.end(), 0);
}

/// Takes all names where programs of root look for sessions.
fn take_open_names(how: &str) -> Hostile {
    let names: Vec<_> = (0..names::MAX_OPEN_SESSIONS).map(|number| names::open_session(0, number)).collect();
    Hostile::start(UNPRIVILEGED_UID, &[how], &names)
}

#[test]
fn given_all_open_names_taken_then_programs_are_recorded_and_it_is_said() {
    if !has_own_names() {
        return;
    }
    let dir = TestDir::new();
    let program = dir.program("ticker");
    for how in ["silent", "deaf", "full"] {
        let strangers = take_open_names(how);
        let before = Ticker::start(&mut Command::new(&program));
        let recording = start(dir.tompion(&["record", "-o", how]).env(names::SOCKET_VARIABLE, NO_FOLDER));
        wait_for_process_in(&dir.path(how), &before.pid());
        let after = Ticker::start(&mut Command::new(&program));
        wait_for_process_in(&dir.path(how), &after.pid());
        before.end();
        after.end();
        signal(recording.id(), Signal::INT);
        let said = finish(recording, "record").succeeded().err;
        let expected = "8 of the 8 names where programs of user 0 look for sessions \
                        (tompion-open-0-0 to 7) are taken by ";
        assert!(said.contains(expected), "{said}");
        assert!(how != "silent" || said.contains("by user 65534, process "), "{said}");

        // The same of processes that are named, and of those that they start.
        let named = Ticker::start(Command::new(&program).arg("exec"));
        let trace = format!("{how}-named");
        let recording = start(
            dir.tompion(&["record", "-o", &trace, "-p", &named.pid()]).env(names::SOCKET_VARIABLE, NO_FOLDER),
        );
        wait_for_process_in(&dir.path(&trace), &named.pid());
        named.end();
        let said = finish(recording, "record -p").succeeded().err;
        assert!(said.contains(expected), "{said}");
        assert_eq!(strangers.end(), 0, "{how}");
    }
}

fn wait_for_process_in(trace: &Path, pid: &str) {
    wait_until("the process's events", || {
        let sources = fs::read_dir(trace.join("user")).into_iter().flatten().flatten();
        sources.into_iter().any(|source| {
            source.path().to_string_lossy().ends_with(&format!("-{pid}"))
                && source.path().join("metadata").exists()
        })
    });
}

#[test]
fn given_some_open_names_taken_then_the_next_free_one_is_used() {
    if !has_own_names() {
        return;
    }
    let dir = TestDir::new();
    let names: Vec<_> = (0..7).map(|number| names::open_session(0, number)).collect();
    let strangers = Hostile::start(UNPRIVILEGED_UID, &["deaf"], &names);
    let recording = start(&mut dir.tompion(&["record", "-o", "trace"]));
    wait_until("the last name", || all_names().contains(&names::open_session(0, 7)));
    let ticker = Ticker::start(&mut Command::new(dir.program("ticker")));
    wait_for_process_in(&dir.path("trace"), &ticker.pid());
    ticker.end();
    signal(recording.id(), Signal::INT);
    let said = finish(recording, "record").succeeded().err;
    assert!(!said.contains("are taken"), "{said}");
    assert_eq!(strangers.end(), 0);
}

/// The monitor's session hears programs of the whole machine.
#[test]
fn given_all_open_names_taken_then_jobs_are_watched() {
    if !has_own_names() {
        return;
    }
    let Some(own) = Own::new("strangers") else { return };
    let strangers = take_open_names("silent");
    let mut monitor = own.monitor(&["--job", "motor:*", "--duration", "1s"]);
    let watched = run(monitor.env(names::SOCKET_VARIABLE, NO_FOLDER)).succeeded();
    assert!(watched.err.contains("are taken by user 65534, process "), "{}", watched.err);
    strangers.end();
}

/// Eight sessions are as many as there may be: that is another reason, and no success.
#[test]
fn given_eight_sessions_then_a_ninth_says_why_it_is_none() {
    if !has_own_names() {
        return;
    }
    let Some(own) = Own::new("ninth") else { return };
    let dir = TestDir::new();
    let names: Vec<_> = (0..names::MAX_OPEN_SESSIONS).map(|number| names::open_session(0, number)).collect();
    let sessions = Hostile::start(0, &["silent"], &names);
    let reason = "8 sessions already record the programs of user 0";
    let mut record = dir.tompion(&["record", "-o", "trace"]);
    let refused = run(record.env(names::SOCKET_VARIABLE, NO_FOLDER)).exited(125);
    assert!(refused.err.contains(reason), "{}", refused.err);
    let mut monitor = own.monitor(&["--job", "motor:*", "--duration", "1s"]);
    let refused = run(monitor.env(names::SOCKET_VARIABLE, NO_FOLDER)).exited(1);
    assert!(refused.err.contains(reason), "{}", refused.err);
    assert!(refused.err.contains("can't monitor jobs: the session"), "{}", refused.err);
    sessions.end();
}

#[test]
fn given_a_folders_names_taken_then_its_session_has_the_next_one() {
    if !has_own_names() {
        return;
    }
    let dir = TestDir::new();
    let (program, folder) = (dir.program("ticker"), dir.path("traces"));
    let first = names::folder_session(0, folder.as_os_str().as_encoded_bytes());
    let taken: Vec<_> = (0..3).map(|number| names::numbered(&first, number)).collect();
    let strangers = Hostile::start(UNPRIVILEGED_UID, &["silent"], &taken);
    let start = || Ticker::start(Command::new(&program).env("TOMPION_RECORD", &folder));
    let (one, two) = (start(), start());
    wait_for_process(&folder, &one.pid());
    wait_for_process(&folder, &two.pid());
    assert!(all_names().contains(&names::numbered(&first, 3)));
    one.end();
    two.end();
    let processes: Vec<_> = gathered(&folder).events().into_iter().map(|event| event.source).collect();
    assert!(processes.iter().any(|source| *source != processes[0]), "both in one trace");
    assert_eq!(strangers.end(), 0);
}

/// Sessions, clients and names of another user that misbehave at random, beside a recording.
#[test]
fn given_hostile_sessions_clients_and_names_then_nothing_crosses_to_another_user() {
    const EACH: u32 = 20;
    if !has_own_names() {
        return;
    }
    let dir = TestDir::new();
    fs::set_permissions(dir.path(""), fs::Permissions::from_mode(0o755)).expect("an open folder");
    let (ticker, brief) = (dir.program("ticker"), dir.program("brief"));
    let witness = Ticker::start(&mut Command::new(&ticker));
    let recording = start(&mut dir.tompion(&["record", "-o", "trace", "-p", &witness.pid()]));
    wait_for_events(&dir.path("trace"));
    let mut sessions = 0;
    for seed in 1..=rounds(2, 50) {
        let mut taken: Vec<_> = (0..EACH).map(|_| new_name()).collect();
        let environment = taken.clone();
        taken.extend((0..names::MAX_OPEN_SESSIONS).map(|number| names::open_session(0, number)));
        let strangers = Hostile::start(UNPRIVILEGED_UID, &["random", &(seed * 1000).to_string()], &taken);
        for name in environment {
            run(Command::new(&brief).env("TOMPION_SESSION", &name)).succeeded();
            sessions += 1;
        }
        let memory = shared_memory(&witness.pid());
        assert!(memory < 64 << 10, "seed {seed}: {memory} KiB");
        assert_eq!(strangers.end(), 0, "seed {seed}");
    }
    let last = witness.end();
    let finished = finish(recording, "record -p").succeeded();
    println!("{sessions} sessions; {}", finished.err);
    assert!(finished.err.lines().count() < 200, "{}", finished.err);
    let trace = dir.trace("trace");
    let events = trace.events();
    // Nothing is missing since the first, and nothing is there of any other process.
    let ticks: Vec<_> = events.iter().filter(|event| event.name == "ticker:tick").collect();
    let first = ticks[0].number("number");
    assert_eq!(
        ticks.iter().map(|event| event.number("number")).collect::<Vec<_>>(),
        (first..=last).collect::<Vec<_>>()
    );
    assert!(events.iter().all(|event| event.source == events[0].source && event.name.starts_with("ticker:")));
}
