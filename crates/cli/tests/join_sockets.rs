//! Recordings that are always there: programs that start later join them by themselves, without a
//! word in their environment, if a set of `--programs` has them.

use std::{
    fs,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    attach::Ticker,
    support::{
        Finished, TOMPION, TestDir, Trace, finish, installed, libraries, rounds, run, signal, start,
        wait_until,
    },
};

/// A user that every machine has, with no rights.
pub const UNPRIVILEGED_UID: u32 = 65534;

/// A recording of programs, whose join socket is in a folder of the test's.
pub struct Recorder<'a> {
    dir: &'a TestDir,
    child: Child,
    name: String,
}

impl<'a> Recorder<'a> {
    /// Starts `tompion record --session NAME --programs SET… OPTIONS` and waits until it listens.
    pub fn start(dir: &'a TestDir, name: &str, sets: &[&str], options: &[&str]) -> Self {
        let recorder = Self::begin(dir, name, sets, options, |command| {
            command.env("TOMPION_SOCKET", folder(dir));
        });
        wait_until("a join socket", || names(&folder(dir)).iter().any(|it| it.starts_with(name)));
        recorder
    }

    /// Starts one in namespaces of its own.
    pub fn start_in(dir: &'a TestDir, name: &str, sets: &[&str], namespaces: &[&str]) -> Self {
        let mut command = Command::new("unshare");
        command.args(namespaces).arg(TOMPION).current_dir(dir.path("."));
        command.args(["record", "--session", name, "-o", name]).env("LD_LIBRARY_PATH", libraries());
        command.args(sets.iter().flat_map(|set| ["--programs", set]));
        command.env("TOMPION_SOCKET", folder(dir)).env("TOMPION_CONTROL", dir.path("control"));
        Self::started(dir, name, start(&mut command))
    }

    fn begin(
        dir: &'a TestDir,
        name: &str,
        sets: &[&str],
        options: &[&str],
        prepare: impl FnOnce(&mut Command),
    ) -> Self {
        let mut command = dir.tompion(&["record", "--session", name, "-o", name]);
        command.args(sets.iter().flat_map(|set| ["--programs", set])).args(options);
        command.env("TOMPION_CONTROL", dir.path("control"));
        prepare(&mut command);
        Self::started(dir, name, start(&mut command))
    }

    fn started(dir: &'a TestDir, name: &str, child: Child) -> Self {
        let recorder = Self { dir, child, name: name.to_owned() };
        wait_until("a recorder", || recorder.status().is_some());
        recorder
    }

    pub fn status(&self) -> Option<Value> {
        let mut status = self.dir.tompion(&["status", "--json", &self.name]);
        let shown = run(status.env("TOMPION_CONTROL", self.dir.path("control")));
        let mut answer: Value = serde_json::from_str(&shown.out).ok()?;
        Some(answer["recordings"][0].take())
    }

    /// Number of processes that are recorded, and that were.
    pub fn processes(&self) -> u64 {
        let status = self.status().expect("a status");
        let now = status["processes"].as_array().map_or(0, Vec::len) as u64;
        now + status["ended_processes"].as_u64().expect("a number")
    }

    /// Number of programs that were refused for a reason. Programs of other tests, which look for
    /// abstract names, are among them.
    pub fn refused(&self, reason: &str) -> u64 {
        let status = self.status().expect("a status");
        let refused = status["refused"].as_array().cloned().unwrap_or_default();
        let of_reason =
            refused.iter().filter(|it| it["reason"].as_str().is_some_and(|it| it.contains(reason)));
        of_reason.filter_map(|it| it["programs"].as_u64()).sum()
    }

    /// Ends the recording by its name.
    pub fn stop(self) -> Finished {
        let mut stop = self.dir.tompion(&["stop", &self.name]);
        run(stop.env("TOMPION_CONTROL", self.dir.path("control")));
        finish(self.child, "record --programs")
    }
}

/// Folder of the join sockets of a test.
pub fn folder(dir: &TestDir) -> PathBuf {
    dir.path("join")
}

pub fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// A program with events, under a name of its own.
pub fn program(dir: &TestDir, source: &str, name: &str) -> PathBuf {
    dir.link(name, &[&format!("{source}.c")], &[])
}

/// A command that looks into the test's folder for recorders.
fn looking(dir: &TestDir, program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("TOMPION_SOCKET", folder(dir));
    command
}

/// Names of the processes that have events in a trace.
fn recorded(trace: &Trace) -> Vec<String> {
    let manifest = trace.manifest();
    let sources = manifest["sources"].as_array().expect("sources").iter();
    let with_events = sources.filter(|source| source["events"].as_u64() != Some(0));
    let mut names: Vec<String> =
        with_events.map(|source| source["name"].as_str().expect("a name").to_owned()).collect();
    names.sort_unstable();
    names
}

pub fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("SKIPPED, only root can be two users and make namespaces");
    }
    is_root
}

#[test]
fn programs_that_start_later_and_those_that_run_are_recorded_from_their_first_event() {
    let dir = TestDir::new();
    let (early, brief) = (program(&dir, "ticker", "early-ticker"), program(&dir, "brief", "late-brief"));
    let running = Ticker::start(&mut looking(&dir, &early));
    let recorder = Recorder::start(&dir, "flight", &["*"], &[]);
    wait_until("the program that ran", || recorder.processes() == 1);
    run(&mut looking(&dir, &brief)).succeeded();
    assert_eq!(recorder.processes(), 2);
    let last = running.end();
    recorder.stop().succeeded();
    let events = dir.trace("flight").events();
    let brief: Vec<_> = events.iter().filter(|event| event.name.starts_with("brief:")).collect();
    assert_eq!(brief.iter().map(|event| event.number("number")).collect::<Vec<_>>(), [1, 2]);
    let ticks = events.iter().filter(|event| event.name == "ticker:tick");
    assert_eq!(ticks.map(|event| event.number("number")).max(), Some(last));
    assert_eq!(recorded(&dir.trace("flight")), ["early-ticker", "late-brief"]);
    // Nothing is left of the recorder but the folder that the test has named.
    assert!(names(&folder(&dir)).is_empty());
}

#[test]
fn a_program_without_any_environment_finds_its_recorder() {
    let dir = TestDir::new();
    let own = std::process::id();
    let (name, session) = (format!("lone-{own}"), format!("flight-{own}"));
    let brief = program(&dir, "brief", &name);
    let usual = match tompion_os::effective_user() {
        0 => PathBuf::from("/run/tompion/join"),
        user => PathBuf::from(format!("/run/user/{user}/tompion/join")),
    };
    let run_folder = usual.parent().and_then(Path::parent).expect("a folder");
    if !run_folder.is_dir() {
        return eprintln!("SKIPPED, this user has no {}", run_folder.display());
    }
    let sets = [format!("name={name}")];
    let recorder = Recorder::begin(&dir, &session, &[&sets[0]], &[], |command| {
        command.env_remove("TOMPION_SOCKET");
    });
    wait_until("a join socket", || names(&usual).iter().any(|it| it.starts_with(&session)));
    run(Command::new(&brief).env_clear()).succeeded();
    recorder.stop().succeeded();
    assert_eq!(dir.trace(&session).agreed_count(), 2);
    assert!(!names(&usual).iter().any(|it| it.starts_with(&session)));
}

#[test]
fn sets_choose_programs_by_name_user_and_process_and_refusals_are_counted() {
    let dir = TestDir::new();
    let [shop, admin, other] =
        ["shop-server", "shop-admin", "other"].map(|name| program(&dir, "brief", name));
    let user = tompion_os::effective_user();
    let sets = ["name=shop-*".to_owned(), "!name=*-admin".to_owned(), format!("uid={},name=o*", user + 1)];
    let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
    let recorder = Recorder::start(&dir, "shop", &sets, &[]);
    for program in [&shop, &admin, &other, &shop] {
        run(&mut looking(&dir, program)).succeeded();
    }
    assert!(recorder.processes() == 2 && recorder.refused("not among") >= 2);
    let status = recorder.status().expect("a status");
    assert_eq!(status["programs"], json!([sets[0], sets[2], sets[1]]));
    assert_eq!((&status["problems"], &status["rejected_processes"]), (&json!([]), &json!(0)));
    let shown =
        run(dir.tompion(&["status", "shop"]).env("TOMPION_CONTROL", dir.path("control"))).succeeded().out;
    assert!(shown.contains("programs: name=shop-* or ") && shown.contains(" programs (not among"), "{shown}");
    recorder.stop().succeeded();
    assert_eq!(recorded(&dir.trace("shop")), ["shop-server", "shop-server"]);
}

#[test]
fn sets_that_can_not_be_are_refused() {
    let dir = TestDir::new();
    for (set, expected) in [("nginx", "found `nginx`"), ("uid=no such user", "no user is named")] {
        let refused = run(&mut dir.tompion(&["record", "-o", "none", "--programs", set])).exited(125).err;
        assert!(refused.contains(expected) && refused.lines().count() == 1, "{refused}");
    }
    assert!(!dir.path("none").exists());
}

#[test]
fn programs_are_chosen_by_their_cgroup() {
    let root = Path::new("/sys/fs/cgroup");
    let group = root.join(format!("tompion-test-{}", std::process::id()));
    if !root.join("cgroup.procs").exists() || fs::create_dir(&group).is_err() {
        return eprintln!("SKIPPED, this user can make no cgroup");
    }
    let dir = TestDir::new();
    let brief = program(&dir, "brief", "grouped");
    let set = format!("cgroup=*/{}", group.file_name().expect("a name").to_string_lossy());
    let recorder = Recorder::start(&dir, "group", &[&set], &[]);
    run(&mut looking(&dir, &brief)).succeeded();
    let script = format!("echo $$ > {}/cgroup.procs && exec {}", group.display(), brief.display());
    run(looking(&dir, Path::new("sh")).args(["-c", &script])).succeeded();
    assert!(recorder.processes() == 1 && recorder.refused("not among") >= 1);
    recorder.stop().succeeded();
    fs::remove_dir(&group).expect("an empty group");
}

#[test]
fn a_program_joins_all_recordings_that_want_it() {
    let dir = TestDir::new();
    let [a, b] = ["one-a", "one-b"].map(|name| program(&dir, "brief", name));
    let first = Recorder::start(&dir, "first", &["name=one-*"], &[]);
    let second = Recorder::start(&dir, "second", &["name=one-b"], &["--mode", "overwrite"]);
    for program in [&a, &b] {
        run(&mut looking(&dir, program)).succeeded();
    }
    assert_eq!((first.processes(), second.processes()), (2, 1));
    assert!(second.refused("not among") >= 1);
    first.stop().succeeded();
    second.stop().succeeded();
    assert_eq!(recorded(&dir.trace("first")), ["one-a", "one-b"]);
    assert_eq!(recorded(&dir.trace("second")), ["one-b"]);
}

#[test]
fn a_ninth_recording_of_a_program_says_that_there_are_too_many() {
    let dir = TestDir::new();
    let brief = program(&dir, "brief", "crowded");
    let labels: Vec<String> = (1..=9).map(|number| format!("r{number}")).collect();
    let options = ["--subbuf-size", "4K"];
    let recorders: Vec<_> =
        labels.iter().map(|label| Recorder::start(&dir, label, &["name=crowded"], &options)).collect();
    run(&mut looking(&dir, &brief)).succeeded();
    let problems = |recorder: &Recorder<'_>| recorder.status().expect("a status")["problems"].to_string();
    wait_until("the ninth's problem", || {
        recorders.iter().any(|recorder| problems(recorder).contains("too many recordings"))
    });
    let crowded = recorders.iter().filter(|it| problems(it).contains("too many recordings")).count();
    assert_eq!(crowded, 1);
    recorders.into_iter().for_each(|recorder| drop(recorder.stop()));
}

#[test]
fn a_recorder_that_was_killed_is_passed_over_and_its_successor_found() {
    let dir = TestDir::new();
    let (ticker, brief) = (program(&dir, "ticker", "lasting"), program(&dir, "brief", "after"));
    let mut killed = Recorder::start(&dir, "flight", &["*"], &[]);
    let lasting = Ticker::start(&mut looking(&dir, &ticker));
    wait_until("the program", || killed.processes() == 1);
    signal(killed.child.id(), Signal::KILL);
    killed.child.wait().expect("its end");
    assert_eq!(names(&folder(&dir)).len(), 1);
    // A dead socket is refused at once.
    let begun = Instant::now();
    run(&mut looking(&dir, &brief)).succeeded();
    assert!(begun.elapsed() < Duration::from_secs(1));
    fs::rename(dir.path("flight"), dir.path("killed")).expect("a trace");
    let recorder = Recorder::start(&dir, "flight", &["*"], &[]);
    assert_eq!(names(&folder(&dir)).len(), 1, "the dead socket is gone");
    wait_until("the program that ran", || recorder.processes() == 1);
    run(&mut looking(&dir, &brief)).succeeded();
    let last = lasting.end();
    recorder.stop().succeeded();
    assert_eq!(recorded(&dir.trace("flight")), ["after", "lasting"]);
    let ticks = dir.trace("flight").events().into_iter().filter(|event| event.name == "ticker:tick");
    assert_eq!(ticks.map(|event| event.number("number")).max(), Some(last));
}

#[test]
fn a_stopped_recorder_delays_programs_for_a_moment_only() {
    let dir = TestDir::new();
    let brief = program(&dir, "brief", "delayed");
    let recorder = Recorder::start(&dir, "flight", &["*"], &[]);
    signal(recorder.child.id(), Signal::STOP);
    let begun = Instant::now();
    run(&mut looking(&dir, &brief)).succeeded();
    let took = begun.elapsed();
    signal(recorder.child.id(), Signal::CONT);
    recorder.stop();
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[test]
fn a_command_is_recorded_beside_the_programs_and_ends_the_recording() {
    let dir = TestDir::new();
    let (ticker, brief, own) = (
        program(&dir, "ticker", "besides"),
        program(&dir, "brief", "besides-brief"),
        program(&dir, "ticker", "own"),
    );
    let mut command =
        dir.tompion(&["record", "-o", "both", "--session", "both", "--programs", "name=besides*"]);
    command
        .arg("--")
        .arg(&own)
        .env("TOMPION_SOCKET", folder(&dir))
        .env("TOMPION_CONTROL", dir.path("control"));
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("a recorder");
    wait_until("a join socket", || !names(&folder(&dir)).is_empty());
    let besides = Ticker::start(&mut looking(&dir, &ticker));
    run(&mut looking(&dir, &brief)).succeeded();
    drop(child.stdin.take());
    // The other program runs on.
    finish(child, "record").succeeded();
    besides.end();
    assert_eq!(recorded(&dir.trace("both")), ["besides", "besides-brief", "own"]);
}

#[test]
fn a_child_that_keeps_another_programs_connection_keeps_no_recording_open() {
    let dir = TestDir::new();
    let [besides, own] = ["besides", "own"].map(|name| program(&dir, "ticker", name));
    let mut command =
        dir.tompion(&["record", "-o", "both", "--session", "both", "--programs", "name=besides"]);
    command.arg("--").arg(&own).env("TOMPION_SOCKET", folder(&dir));
    command.env("TOMPION_CONTROL", dir.path("control"));
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("a recorder");
    wait_until("a join socket", || !names(&folder(&dir)).is_empty());
    // A file, since the heir would keep a pipe open.
    let said = fs::File::create(dir.path("said")).expect("a file");
    let mut with_heir = looking(&dir, &besides);
    with_heir.arg("heir").stdin(Stdio::null()).stdout(said);
    assert!(with_heir.status().expect("a program").success());
    let said = fs::read_to_string(dir.path("said")).expect("a text");
    let heir: u32 = said.lines().last().and_then(|line| line.parse().ok()).expect("a process id");
    drop(child.stdin.take());
    wait_until("the recording's end", || child.try_wait().expect("a recorder").is_some());
    signal(heir, Signal::KILL);
    assert_eq!(recorded(&dir.trace("both")), ["besides", "own"]);
}

#[test]
fn sets_and_rules_hold_for_children_too() {
    let dir = TestDir::new();
    let ticker = program(&dir, "ticker", "parent");
    let recorder = Recorder::start(&dir, "family", &["name=parent"], &["-x", "ticker:tock"]);
    Ticker::start(looking(&dir, &ticker).arg("fork")).end();
    assert_eq!(recorder.processes(), 2);
    recorder.stop().succeeded();
    let events = dir.trace("family").events();
    assert_eq!(events.iter().filter(|event| event.name == "ticker:child").count(), 1);
    assert!(events.iter().all(|event| event.name != "ticker:tock"));
}

#[test]
fn another_users_recorder_and_socket_get_nothing() {
    if !is_root() {
        return;
    }
    let dir = TestDir::new();
    let brief = program(&dir, "brief", "private");
    fs::set_permissions(dir.path("."), fs::Permissions::from_mode(0o777)).expect("own folder");
    // A folder of root's with a socket of another user's, and a folder of another user's.
    for (owner, place) in [(0, "roots"), (UNPRIVILEGED_UID, "theirs")] {
        let place = dir.path(place);
        fs::create_dir(&place).expect("a folder");
        fs::set_permissions(&place, fs::Permissions::from_mode(0o777)).expect("own folder");
        rustix::fs::chown(&place, Some(rustix::fs::Uid::from_raw(owner)), None).expect("root");
        let mut stranger = dir.tompion(&["record", "--session", "x", "--programs", "*", "-o"]);
        stranger.arg(place.with_extension("trace")).env("TOMPION_SOCKET", &place);
        stranger.env("TOMPION_CONTROL", place.with_extension("control"));
        let stranger = start(stranger.uid(UNPRIVILEGED_UID).gid(UNPRIVILEGED_UID));
        wait_until("a join socket", || !names(&place).is_empty());
        if installed("strace") {
            let mut strace = Command::new("strace");
            strace.args(["-f", "-e", "trace=sendmsg"]).arg(&brief).env("TOMPION_SOCKET", &place);
            let said = run(&mut strace).succeeded().err;
            assert!(!said.contains("sendmsg("), "{said}");
        }
        run(Command::new(&brief).env("TOMPION_SOCKET", &place)).succeeded();
        signal(stranger.id(), Signal::INT);
        let end = finish(stranger, "record").err;
        assert!(end.contains("no instrumented program ran"), "{end}");
    }
}

#[test]
fn roots_recorder_takes_programs_of_the_user_that_it_names_and_no_others() {
    if !is_root() {
        return;
    }
    let dir = TestDir::new();
    fs::set_permissions(dir.path("."), fs::Permissions::from_mode(0o755)).expect("own folder");
    let brief = program(&dir, "brief", "theirs");
    let set = format!("uid={UNPRIVILEGED_UID}");
    let recorder = Recorder::start(&dir, "users", &[&set], &[]);
    fs::set_permissions(folder(&dir), fs::Permissions::from_mode(0o755)).expect("own folder");
    run(&mut looking(&dir, &brief)).succeeded();
    run(looking(&dir, &brief).uid(UNPRIVILEGED_UID).gid(UNPRIVILEGED_UID)).succeeded();
    assert!(recorder.processes() == 1 && recorder.refused("not among") >= 1);
    recorder.stop().succeeded();
    assert_eq!(dir.trace("users").agreed_count(), 2);
}

#[test]
fn programs_that_start_and_end_all_the_time_leave_no_descriptors() {
    let dir = TestDir::new();
    let brief = program(&dir, "brief", "churn");
    let other = program(&dir, "brief", "unwanted");
    let recorder = Recorder::start(&dir, "always", &["name=churn"], &[]);
    let open = || names(&Path::new("/proc").join(recorder.child.id().to_string()).join("fd")).len();
    let script = format!(
        "i=0; while [ $i -lt 40 ]; do {} & {} & {} & {} & {} & wait; i=$((i+1)); done",
        brief.display(),
        other.display(),
        brief.display(),
        brief.display(),
        brief.display()
    );
    let churn = || drop(run(looking(&dir, Path::new("sh")).args(["-c", &script])).succeeded());
    churn();
    wait_until("their ends", || recorder.status().is_some_and(|status| status["processes"] == json!([])));
    let before = open();
    let begun = Instant::now();
    let more = rounds(2, 60);
    (0..more).for_each(|_| churn());
    let rate = f64::from(more * 200) / begun.elapsed().as_secs_f64();
    wait_until("their ends", || recorder.status().is_some_and(|status| status["processes"] == json!([])));
    assert!(open() <= before + 4, "{before} before, {} after", open());
    let (taken, refused) = (recorder.processes(), recorder.refused("not among"));
    println!("{rate:.0} programs a second, {taken} recorded, {refused} refused");
    assert!(refused >= u64::from(more + 1) * 40, "{refused}");
    let expected = u64::from(more + 1) * 160;
    let status = recorder.status().expect("a status");
    let missed = status["rejected_processes"].as_u64().expect("a number");
    assert!(
        taken <= expected && taken + missed + expected / 50 >= expected,
        "{taken} and {missed} of {expected}"
    );
    recorder.stop().succeeded();
}
