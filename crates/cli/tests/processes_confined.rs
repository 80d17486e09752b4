//! Programs that give up what the agent might need: descriptors, namespaces, the root folder,
//! users.

use std::{
    ffi::OsStr,
    io::Read,
    os::unix::fs::{MetadataExt, PermissionsExt},
    process::{Command, Stdio},
};

use rustix::process::Signal;

use crate::{
    emit_log::{Recording, record},
    support::{TestDir, finish, installed, libraries, rounds, run, signal, start, wait_until},
};

fn confined(dir: &TestDir, words: &[&str]) -> Recording {
    let program = dir.program("confined");
    let mut command: Vec<&dyn AsRef<OsStr>> = vec![&program];
    command.extend(words.iter().map(|word| word as &dyn AsRef<OsStr>));
    let recording = record(dir, &[], &command);
    assert_eq!(recording.lost()["total"], 0, "{words:?}");
    assert!(!recording.said.err.contains("ended with"), "{words:?}: {}", recording.said.err);
    recording
}

fn roles(recording: &Recording) -> Vec<&str> {
    let mut roles: Vec<&str> = recording.emitted.iter().map(|emitted| emitted.role.as_str()).collect();
    roles.sort_unstable();
    roles
}

/// Returns whether the tests run as root.
fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

#[test]
fn a_program_that_closes_everything_by_any_means_is_recorded_on() {
    for how in ["closefrom", "close_range", "one by one"] {
        let recording = confined(&TestDir::new(), &["closing", how]);
        assert_eq!(roles(&recording), ["after", "before", "child"], "{how}");
    }
}

/// Sessions come and go, and let the program in while it closes what it didn't open and uses the
/// numbers.
#[test]
fn a_program_that_is_let_in_keeps_its_descriptors() {
    let dir = TestDir::new();
    let (children, confined) = (dir.program("children"), dir.program("confined"));
    let everything = start(&mut dir.tompion(&["record", "-o", "everything"]));
    wait_until("a session of everything", || dir.path("everything/tompion.json").exists());
    for _ in 0..rounds(15, 500) {
        let words = run(Command::new(&children).arg("closing all")).succeeded().out;
        assert_eq!(words, "closing all\n");
        run(Command::new(&confined).args(["numbers", "2000"])).succeeded();
    }
    signal(everything.id(), Signal::INT);
    finish(everything, "record").succeeded();
}

#[test]
fn namespaces_can_be_left_and_entered() {
    for what in ["user", "mount", "net", "pid", "time", "all"] {
        let dir = TestDir::new();
        let program = dir.program("confined");
        let alone = Command::new(&program).args(["unsharing", what]).output().expect("the program");
        if !alone.status.success() {
            println!("left out here: {what}: {}", String::from_utf8_lossy(&alone.stderr));
            continue;
        }
        let recording = confined(&dir, &["unsharing", what]);
        assert_eq!(roles(&recording), ["after", "before", "child"], "{what}");
        if ["net", "all"].contains(&what) {
            assert!(recording.said.err.contains("a child of confined"), "{}", recording.said.err);
            assert_eq!(recording.trace.left_out(), 1, "{what}");
        }
    }
    let dir = TestDir::new();
    if Command::new(dir.program("confined")).arg("entering").status().is_ok_and(|status| status.success()) {
        let recording = confined(&dir, &["entering"]);
        for role in ["before", "child", "user", "time_for_children", "mnt", "net", "uts", "pid", "after"] {
            assert_eq!(recording.count(role), 1, "{role}");
        }
    }
}

#[test]
fn a_program_with_threads_is_refused_a_user_namespace_as_ever() {
    assert_eq!(roles(&confined(&TestDir::new(), &["refused"])), ["after", "before"]);
}

/// The thread that makes way takes its conversations with it and brings them back.
#[test]
fn a_recording_that_was_asked_for_survives_a_new_user_namespace() {
    let dir = TestDir::new();
    let program = dir.program("confined");
    if !Command::new(&program).args(["unsharing", "user"]).status().is_ok_and(|status| status.success()) {
        return;
    }
    for _ in 0..rounds(3, 50) {
        let everything = start(&mut dir.tompion(&["record", "-o", "everything"]));
        wait_until("a session of everything", || dir.path("everything/tompion.json").exists());
        let recording = confined(&dir, &["unsharing", "user"]);
        assert_eq!(roles(&recording), ["after", "before", "child"]);
        signal(everything.id(), Signal::INT);
        finish(everything, "record");
        std::fs::remove_dir_all(dir.path("everything")).ok();
    }
}

#[test]
fn a_program_that_changes_its_root_is_recorded_on() {
    if !is_root() {
        return;
    }
    let dir = TestDir::new();
    let place = dir.path("root");
    std::fs::create_dir(&place).unwrap();
    let recording = confined(&dir, &["chroot", &place.display().to_string()]);
    assert_eq!(roles(&recording), ["after", "before", "child"]);
}

/// Makes the folder readable to all users.
fn open_to_all(dir: &TestDir) {
    let open = |path: &std::path::Path| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("an open folder");
    };
    open(&dir.path(""));
    let mut folder = Some(libraries());
    while let Some(place) = folder.filter(|place| place.parent().is_some()) {
        assert!(place.metadata().unwrap().mode() & 5 == 5, "{} is closed to others", place.display());
        folder = place.parent();
    }
}

#[test]
fn a_program_that_gives_up_its_rights_is_recorded_on_with_its_children() {
    if !is_root() {
        return;
    }
    let dir = TestDir::new();
    open_to_all(&dir);
    let recording = confined(&dir, &["dropping"]);
    assert_eq!(roles(&recording), ["leaf", "leaf", "nobody", "nobody's child", "root"]);
}

/// Copies the program to a set-user-ID file of root's.
fn set_user_id(dir: &TestDir) -> std::path::PathBuf {
    open_to_all(dir);
    let program = dir.program("confined");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755))
        .expect("a set-user-ID program");
    program
}

const AS_UNPRIVILEGED: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

#[test]
fn a_set_user_id_program_does_not_follow_its_starter() {
    if !is_root() || !installed("setpriv") {
        return;
    }
    let dir = TestDir::new();
    let program = set_user_id(&dir);
    let mut words: Vec<&dyn AsRef<OsStr>> =
        AS_UNPRIVILEGED.iter().map(|word| word as &dyn AsRef<OsStr>).collect();
    words.extend([&program as &dyn AsRef<OsStr>, &"unheard"]);
    let finished = run(&mut dir.recording("trace", &[], &words)).exited(125);
    assert!(finished.err.contains("nothing recorded"), "{}", finished.err);
    // Started by its owner it has no more rights than its starter.
    assert_eq!(roles(&record(&dir, &[], &[&program, &"leaf"])), ["leaf"]);
}

#[test]
fn a_set_user_id_program_is_recorded_if_root_asks() {
    if !is_root() || !installed("setpriv") {
        return;
    }
    let dir = TestDir::new();
    let program = set_user_id(&dir);
    let mut command = Command::new(AS_UNPRIVILEGED[0]);
    command
        .args(&AS_UNPRIVILEGED[1..])
        .arg(&program)
        .arg("asked")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    // The starter's wishes, and sessions of everything, don't count.
    let folder = dir.path("traces");
    let everything = start(&mut dir.tompion(&["record", "-o", "everything"]));
    wait_until("a session of everything", || dir.path("everything/tompion.json").exists());
    let mut program = command.env("TOMPION_RECORD", &folder).spawn().expect("the program");
    let mut byte = [0; 6];
    program.stdout.as_mut().expect("its words").read_exact(&mut byte).expect("a word");
    let maps = format!("/proc/{}/maps", program.id());
    let takes_part = || std::fs::read_to_string(&maps).expect("its maps").contains("tompion-rings");
    assert!(!takes_part());
    let pid = program.id().to_string();
    let recording = start(&mut dir.tompion(&["record", "-o", "trace", "-p", &pid]));
    wait_until("the program is recorded", || {
        dir.path("trace/user").read_dir().is_ok_and(|mut dir| dir.next().is_some())
    });
    drop(program.stdin.take());
    assert!(program.wait().expect("its end").success());
    finish(recording, "record -p").succeeded();
    let events = dir.trace("trace").events();
    assert_eq!(events.last().expect("events").fields["role"], "after");
    signal(everything.id(), Signal::INT);
    finish(everything, "record");
    assert!(!folder.exists());
}

/// libc has all threads change the user, and aborts a program whose threads aren't granted it
/// alike.
#[test]
fn a_program_that_has_rights_for_its_one_thread_only_changes_its_user() {
    if !is_root() {
        return;
    }
    let words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "id", "-u"];
    let dir = TestDir::new();
    let command: Vec<&dyn AsRef<OsStr>> = words.iter().map(|word| word as &dyn AsRef<OsStr>).collect();
    let recorded = run(&mut dir.recording("trace", &["--preload", "malloc"], &command)).succeeded();
    assert_eq!(recorded.out, "65534\n");
    assert!(dir.trace("trace").agreed_count() > 0);
    let mut alone = Command::new(words[0]);
    alone.args(&words[1..]).env("LD_PRELOAD", libraries().join("libtompion-malloc.so"));
    assert_eq!(run(&mut alone).succeeded().out, "65534\n");
}
