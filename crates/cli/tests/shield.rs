//! `tompion shield` and `tompion doctor --rt`: in a made-up tree, whose files only keep what is
//! written, and when it is asked for on this machine itself.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command},
};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Finished, TestDir, finish, run, signal, start, tompion, wait_until};

/// Four CPUs, and an interrupt that may come to each.
const TREE: &[(&str, &str)] = &[
    ("sys/devices/system/cpu/online", "0-3"),
    ("proc/self/mountinfo", "30 22 0:26 / /cg rw - cgroup2 cgroup2 rw"),
    ("cg/cgroup.controllers", "cpuset"),
    ("cg/cgroup.subtree_control", "cpuset"),
    (INTERRUPT, "0-3"),
    ("proc/irq/24/eth0/any", ""),
];
const INTERRUPT: &str = "proc/irq/24/smp_affinity_list";

/// A folder with the tree.
fn tree() -> TestDir {
    let dir = TestDir::new();
    for (path, text) in TREE {
        let place = dir.path(path);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(place, text).unwrap();
    }
    dir
}

fn shield(dir: &TestDir, words: &[&str]) -> Command {
    let mut command = tompion();
    command.arg("shield").arg("--root").arg(dir.path("")).args(words);
    command
}

fn is_as_before(dir: &TestDir) -> bool {
    fs::read_to_string(dir.path(INTERRUPT)).unwrap() == "0-3" && !dir.path("cg/tompion-shield").exists()
}

/// A shield of CPU 3 whose command says its number, and ends with code 9 when it is asked to.
fn with_stubborn_command(dir: &TestDir) -> (Child, u32) {
    let script = "trap 'exit 9' TERM; echo $$; for i in $(seq 5000); do sleep 0.02; done";
    let mut running = start(&mut shield(dir, &["3", "--", "sh", "-c", script]));
    let mut line = String::new();
    BufReader::new(running.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (running, line.trim().parse().unwrap())
}

/// The number of the process that watches this shield.
fn guardian(dir: &TestDir) -> Option<u32> {
    let tree = dir.path("").canonicalize().unwrap();
    let is_guardian = |folder: &Path| {
        let words = fs::read(folder.join("cmdline")).unwrap_or_default();
        let words: Vec<String> =
            words.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into()).collect();
        let root =
            words.iter().find_map(|word| Path::new(word).canonicalize().ok().filter(|path| *path == tree));
        root.is_some() && words.iter().any(|word| word == "--guard")
    };
    let processes = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    let mut guardians = processes.filter(|folder| is_guardian(folder));
    guardians.find_map(|folder| number_of(&folder))
}

fn number_of(folder: &Path) -> Option<u32> {
    folder.file_name()?.to_str()?.parse().ok()
}

#[test]
fn the_command_runs_in_the_group_and_its_exit_code_is_passed_on() {
    let dir = tree();
    let interrupt = dir.path(INTERRUPT).display().to_string();
    let script = format!("cat {interrupt} {}/cg/tompion-shield/cpuset.cpus; exit 7", dir.path("").display());
    let finished = run(&mut shield(&dir, &["2-3", "--", "sh", "-c", &script])).exited(7);
    assert_eq!(finished.out, "0-12-3");
    assert_eq!(finished.err, "tompion: CPUs 2-3 are free: 1 interrupt and 0 kernel threads moved away\n");
    assert!(is_as_before(&dir));

    run(&mut shield(&dir, &["3", "--", "sh", "-c", "kill -KILL $$"])).exited(137);
    let missing = run(&mut shield(&dir, &["3", "--", "no-such-program"])).exited(127);
    assert!(missing.err.contains("can't run no-such-program: "), "{}", missing.err);
    run(&mut shield(&dir, &["3", "--", "/"])).exited(126);
    assert!(is_as_before(&dir));
}

#[test]
fn signals_are_passed_on() {
    let dir = tree();
    let (running, _) = with_stubborn_command(&dir);
    signal(running.id(), Signal::TERM);
    finish(running, "shield").exited(9);
    assert!(is_as_before(&dir));
}

#[test]
fn when_the_tool_is_killed_everything_is_put_back() {
    let dir = tree();
    let (mut running, command) = with_stubborn_command(&dir);
    assert!(!is_as_before(&dir));
    signal(running.id(), Signal::KILL);
    running.wait().unwrap();
    wait_until("the guardian puts everything back", || is_as_before(&dir));
    wait_until("the guardian ends", || guardian(&dir).is_none());
    // The command continues on the CPUs of the other processes.
    signal(command, Signal::TERM);
    let restored = run(&mut shield(&dir, &["--restore"])).succeeded();
    assert_eq!(restored.err, "tompion: nothing to restore\n");
}

#[test]
fn when_the_guardian_is_killed_too_the_notes_are_left() {
    let dir = tree();
    let (mut running, command) = with_stubborn_command(&dir);
    signal(guardian(&dir).expect("a guardian"), Signal::KILL);
    wait_until("the guardian is gone", || guardian(&dir).is_none());
    let busy = run(&mut shield(&dir, &["--restore"])).exited(1);
    assert_eq!(
        busy.err,
        format!("tompion: process {} keeps CPUs free already; one can at a time\n", running.id())
    );
    signal(running.id(), Signal::KILL);
    running.wait().unwrap();
    signal(command, Signal::TERM);
    assert!(!is_as_before(&dir));
    let restored = run(&mut shield(&dir, &["--restore"])).succeeded();
    assert_eq!(restored.err, "tompion: everything was restored\n");
    assert!(is_as_before(&dir));
}

#[test]
fn errors_are_one_line() {
    let dir = tree();
    let said = |words: &[&str], code| run(&mut shield(&dir, words)).exited(code).err;
    assert_eq!(said(&["3-9", "--", "true"], 1), "tompion: CPUs 4-9 are not online; there are 0-3\n");
    assert_eq!(
        said(&["0-3", "--", "true"], 1),
        "tompion: of CPUs 0-3, name at least one to keep free, and leave at least one for everything else\n"
    );
    assert!(said(&["some", "--", "true"], 2).contains("expected CPUs such as 2-3,5, found `some`"));
    assert!(said(&["3"], 2).contains("<CMD>"));
    fs::write(dir.path("proc/self/mountinfo"), "").unwrap();
    assert!(
        said(&["3", "--", "true"], 1)
            .starts_with("tompion: no control groups with cpusets are mounted; mount")
    );
    assert!(is_as_before(&dir));
}

/// Files that a shield may change, by path.
fn settings() -> Vec<(PathBuf, String)> {
    let irqs = fs::read_dir("/proc/irq").into_iter().flatten().map(|entry| entry.unwrap().path());
    let irqs = irqs.map(|folder| folder.join("smp_affinity_list"));
    let others = [
        "/proc/irq/default_smp_affinity",
        "/sys/devices/virtual/workqueue/cpumask",
        "/proc/sys/kernel/watchdog_cpumask",
        "/sys/fs/cgroup/cgroup.subtree_control",
        "/sys/fs/cgroup/cpuset/cpuset.sched_load_balance",
        "/proc/self/status",
    ];
    let allowed = |path: &Path, text: String| match path.ends_with("status") {
        true => text.lines().filter(|line| line.starts_with("Cpus_allowed")).collect(),
        false => text,
    };
    let paths = irqs.chain(others.map(PathBuf::from));
    let mut found: Vec<(PathBuf, String)> = paths
        .filter_map(|path| Some((path.clone(), allowed(&path, fs::read_to_string(&path).ok()?))))
        .collect();
    found.sort();
    found
}

/// Only when it is asked for: it moves everything that runs on this machine, for a moment.
#[test]
fn on_this_machine() {
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let is_root = rustix::process::geteuid().is_root();
    let is_asked_for = std::env::var_os("TOMPION_SHIELD").is_some_and(|value| value == "1");
    if !is_asked_for || !is_root || !online.contains(['-', ',']) {
        eprintln!(
            "SKIPPED, moves everything on this machine: TOMPION_SHIELD=1, as root, with two CPUs or more"
        );
        return;
    }
    let last = online.trim().rsplit([',', '-']).next().unwrap().to_owned();
    let before = settings();
    let shown = |script: &str| -> Finished {
        run(tompion().args(["shield", &last, "--as-root", "--", "sh", "-c", script]))
    };
    let finished = shown("grep Cpus_allowed_list /proc/self/status /proc/$PPID/status; exit 3").exited(3);
    let cpus: Vec<&str> = finished.out.lines().filter_map(|line| line.rsplit('\t').next()).collect();
    assert!(
        matches!(cpus[..], [own, tool] if own == last && tool != last && !tool.contains(&last)),
        "{finished:?}"
    );
    assert_eq!(settings(), before, "{}", finished.err);
}

#[test]
fn the_doctor_tells_of_real_time() {
    let doctor = |words: &[&str]| run(tompion().args(["doctor", "--rt"]).args(words));
    let rows: Value = serde_json::from_str(&doctor(&["--json"]).out).unwrap();
    let rows = rows.as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    for name in ["preemption", "isolated CPUs", "irq affinity", "C-states", "rt throttling", "rtprio limit"] {
        assert!(names.contains(&name), "{names:?}");
    }
    for row in rows {
        let state = row["state"].as_str().unwrap();
        assert!(["good", "drawback", "bad", "unknown"].contains(&state), "{row}");
        assert!(row["mend"].is_null() == (state == "good"), "{row}");
        assert!(
            !row["found"].as_str().unwrap().is_empty() && !row["why"].as_str().unwrap().is_empty(),
            "{row}"
        );
    }
    let text = doctor(&[]);
    assert!(names.iter().all(|name| text.out.contains(name)), "{}", text.out);
    let bad = rows.iter().any(|row| row["state"] == "bad");
    assert_eq!(text.status.code(), Some(i32::from(bad)));
}
