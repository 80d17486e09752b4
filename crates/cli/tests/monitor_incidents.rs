//! Wake-ups that were too late: what is kept of them, and what is said of it.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    monitor::Own,
    support::{TestDir, event, finish, installed, run, signal, start, tompion, wait_until},
};

const NAME: &str = "late-cli";

/// Runs a sleeping real-time thread of that name until a condition holds.
fn sleep_until(what: &str, is_so: impl FnMut() -> bool) {
    sleep_as(NAME, what, is_so);
}

/// The same by another name: tests run in parallel, and a monitor sees the threads of all. The
/// thread only sleeps: one that reads folders also waits for disks and locks, and no timer wakes it
/// then.
pub fn sleep_as(name: &str, what: &str, is_so: impl FnMut() -> bool) {
    let is_over = Over::default();
    let over = is_over.0.clone();
    let sleeper = thread::Builder::new().name(name.into()).spawn(move || {
        tompion_os::run_fifo(60).expect("a real-time priority");
        while !over.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
    });
    let sleeper = sleeper.expect("a thread");
    wait_until(what, is_so);
    drop(is_over);
    sleeper.join().expect("a thread that sleeps");
}

/// Ends a thread, also when the test fails.
#[derive(Default)]
struct Over(Arc<AtomicBool>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub fn folders(parent: &Path) -> Vec<PathBuf> {
    let names = fs::read_dir(parent).unwrap().flatten().map(|entry| entry.path());
    names
        .filter(|path| path.to_string_lossy().contains("tompion-incident-") && path.extension().is_none())
        .collect()
}

#[test]
fn a_late_wake_up_becomes_a_folder_that_says_why() {
    let Some(own) = Own::new("late") else { return };
    let folder = tempfile::tempdir().unwrap();
    let parent = folder.path().to_owned();
    // Every wake-up takes longer than that.
    let rule = format!("{NAME}=10ns");
    let reported = parent.join("told");
    let exec =
        format!("echo $TOMPION_THREAD $TOMPION_LATENCY_NS $TOMPION_INCIDENT >> {}", reported.display());
    let mut command =
        own.monitor(&["--threshold", &rule, "--cooldown", "0s", "--max-incidents", "2", "--exec", &exec]);
    let catcher = start(command.arg("--incidents").arg(&parent));
    let looked_at = parent.clone();
    sleep_until("two folders", move || folders(&looked_at).len() == 2);
    let finished = finish(catcher, "monitor --threshold").succeeded();
    assert!(finished.out.lines().count() == 2 && finished.out.contains(NAME), "{}", finished.out);
    assert!(finished.err.contains("2 incidents saved of "), "{}", finished.err);
    assert_eq!(
        fs::read_to_string(&reported).unwrap().lines().filter(|line| line.starts_with(NAME)).count(),
        2
    );
    for incident in folders(&parent) {
        explains(&incident);
    }
    explains_the_newest(&parent);
}

/// The one that was late last, whatever the folders are called: the local time goes back once a
/// year.
fn explains_the_newest(parent: &Path) {
    let time = |folder: &Path| -> u64 {
        let incident: Value =
            serde_json::from_slice(&fs::read(folder.join("incident.json")).unwrap()).unwrap();
        incident["time_ns"].as_u64().unwrap()
    };
    let mut folders = folders(parent);
    folders.sort_by_key(|folder| time(folder));
    let newest = time(&folders[1]);
    for (folder, name) in folders.iter().zip(["tompion-incident-2", "tompion-incident-1"]) {
        fs::rename(folder, parent.join(name)).unwrap();
    }
    let reported = run(tompion().args(["monitor", "explain", "--json"]).current_dir(parent)).succeeded().out;
    let reported: Value = serde_json::from_str(&reported).unwrap();
    assert_eq!(reported["time_ns"].as_u64(), Some(newest));
}

#[test]
fn no_more_folders_are_kept_than_were_asked_for() {
    let Some(own) = Own::new("fewer") else { return };
    let folder = tempfile::tempdir().unwrap();
    let parent = folder.path().to_owned();
    // It isn't ours.
    fs::create_dir(parent.join("tompion-incident-of-somebody")).unwrap();
    let arguments =
        ["--threshold", "fewer-cli=10ns", "--cooldown", "0s", "--max-incidents", "4", "--retain", "2"];
    let mut command = own.monitor(&arguments);
    let mut catcher = start(command.arg("--incidents").arg(&parent));
    let looked_at = parent.clone();
    sleep_as("fewer-cli", "four folders", || catcher.try_wait().unwrap().is_some());
    let finished = finish(catcher, "monitor --retain").succeeded();
    assert!(finished.err.contains("4 incidents saved of "), "{}", finished.err);
    let reported: Vec<&str> =
        finished.out.lines().filter_map(|line| line.split_once(": ")).map(|line| line.0).collect();
    assert_eq!(reported.len(), 4, "{}", finished.out);
    for (folder, stays) in reported.iter().zip([false, false, true, true]) {
        assert_eq!(Path::new(folder).exists(), stays, "{reported:?}");
    }
    assert_eq!(folders(&looked_at).len(), 3);
}

#[test]
fn lost_program_events_are_reported_and_the_incident_is_saved() {
    let Some(own) = Own::new("without") else { return };
    let folder = tempfile::tempdir().unwrap();
    let parent = folder.path().to_owned();
    let mut command =
        own.monitor(&["--threshold", "without-cli=10ns", "--capture", "*", "--cooldown", "100ms"]);
    let catcher = start(command.arg("--incidents").arg(&parent));
    wait_until("a recording", || recording(&parent).is_some());
    // Nothing can be recorded any more, as on a disk that is full.
    let manifest = recording(&parent).expect("a recording");
    let recorder = manifest.parent().and_then(Path::parent).expect("the recorder's folder").to_owned();
    fs::remove_dir_all(&recorder).unwrap();
    // A recorder that is just beginning would make its folders again.
    fs::write(&recorder, "").unwrap();
    let looked_at = parent.clone();
    sleep_as("without-cli", "two folders", move || folders(&looked_at).len() >= 2);
    signal(catcher.id(), Signal::INT);
    let finished = finish(catcher, "monitor --capture").succeeded();
    assert!(finished.err.contains("can't save program events: "), "{}", finished.err);
    assert!(finished.out.lines().count() >= 2, "each is told: {}", finished.out);
}

/// Everything that a folder should have.
fn explains(folder: &Path) {
    let path = folder.to_str().unwrap();
    let json = run(tompion().args(["monitor", "explain", "--json", path])).succeeded().out;
    let incident: Value = serde_json::from_str(&json).unwrap();
    let segments = incident["segments"].as_array().expect("segments");
    let length = |segment: &Value| segment["end"].as_u64().unwrap() - segment["begin"].as_u64().unwrap();
    let sum: u64 = segments.iter().map(length).sum();
    assert_eq!(Some(sum), incident["latency_ns"].as_u64(), "{json}");
    assert!(incident["thread"]["name"] == NAME && incident["thread"]["priority"] == "rt 60", "{json}");
    let text = run(tompion().args(["monitor", "explain", path])).succeeded().out;
    for words in ["ran ", "late on CPU", " % ", "timer due", "running", "the trace: tompion view"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(!text.contains('\u{1b}'), "colours are for terminals: {text}");
    // The segments are spans of the thread, and the kernel's events lead up to them.
    let printed = run(tompion().args(["print", "--format", "json", path])).succeeded().out;
    let begins = printed.matches("_begin\"").count();
    assert_eq!(
        (segments.len() + 1, segments.len() + 1),
        (begins, printed.matches("_end\"").count()),
        "{printed}"
    );
    assert!(printed.contains("\"sched_switch\"") && printed.contains("sched_waking"), "{printed}");
    if installed("babeltrace2") {
        let lines = run(Command::new("babeltrace2").arg(path)).succeeded().out.lines().count();
        assert_eq!(lines, printed.lines().count());
    }
}

#[test]
fn wakeups_below_the_limit_or_within_the_cooldown_are_not_saved() {
    let Some(own) = Own::new("early") else { return };
    let folder = tempfile::tempdir().unwrap();
    let parent = folder.path().to_owned();
    // The first matching rule decides: the limit of an hour never applies.
    let (never, always) = (format!("{NAME}=3600s"), "*=10ns");
    let arguments = ["--threshold", &never, "--threshold", always, "--cooldown", "1h"];
    let mut command = own.monitor(&arguments);
    let catcher = start(command.arg("--incidents").arg(&parent));
    let others = thread::spawn({
        let parent = parent.clone();
        move || {
            tompion_os::run_fifo(50).expect("a real-time priority");
            let begun = Instant::now();
            while folders(&parent).is_empty() && begun.elapsed() < Duration::from_secs(60) {
                thread::sleep(Duration::from_millis(1));
            }
            (0..50).for_each(|_| thread::sleep(Duration::from_millis(1)));
        }
    });
    let looked_at = parent.clone();
    sleep_until("a folder", move || !folders(&looked_at).is_empty());
    others.join().unwrap();
    signal(catcher.id(), Signal::INT);
    let finished = finish(catcher, "monitor --threshold").succeeded();
    assert!(finished.err.contains("1 incident saved of "), "{}", finished.err);
    assert!(!finished.err.contains("; 0 not saved"), "{}", finished.err);
    assert!(!finished.out.contains(NAME) && folders(&parent).len() == 1, "{}", finished.out);
}

#[test]
fn a_folder_that_is_no_incident_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let error = run(tompion().args(["monitor", "explain", path])).exited(1).err;
    assert!(error.contains("incident.json") && error.lines().count() == 1, "{error}");
    let nothing = run(tompion().args(["monitor", "explain"]).current_dir(folder.path())).exited(1).err;
    assert!(nothing.contains("no incident in this folder"), "{nothing}");
    fs::write(folder.path().join("incident.json"), "{}").unwrap();
    run(tompion().args(["monitor", "explain", path])).exited(1);
    let wrong = run(tompion().args(["monitor", "--threshold", "soon"])).exited(2).err;
    assert!(wrong.contains("expected a duration"), "{wrong}");
    run(tompion().args(["monitor", "--cooldown", "1s"])).exited(2);
    let rules = ["--threshold", "1ms"].repeat(17);
    let many = run(tompion().arg("monitor").args(rules)).exited(2).err;
    assert!(many.contains("expected at most 16 limits (--threshold), found 17"), "{many}");
}

#[test]
fn program_events_are_saved_with_the_incident() {
    let Some(own) = Own::new("with") else { return };
    let dir = TestDir::new();
    let program = dir.link("hello", &["../../../../examples/hello.c"], &[]);
    let parent = dir.path("incidents");
    fs::create_dir(&parent).unwrap();
    let mut command =
        own.monitor(&["--threshold", "with-cli=10ns", "--capture", "*", "--max-incidents", "1"]);
    let catcher = start(command.arg("--incidents").arg(&parent));
    // The recorder is there a moment after the command has begun.
    wait_until("a recording", || recording(&parent).is_some());
    thread::sleep(Duration::from_millis(500));
    // Some programs are recorded before the first late wakeup: they run for long enough to join,
    // also on a busy machine.
    (0..2).for_each(|_| drop(run(Command::new(&program).arg("1000"))));
    let looked_at = parent.clone();
    sleep_as("with-cli", "a folder", move || !folders(&looked_at).is_empty());
    finish(catcher, "monitor --capture").succeeded();
    let folder = folders(&parent).remove(0);
    let stat = run(tompion().args(["stat", "--json"]).arg(&folder)).succeeded().out;
    assert!(folder.join("programs/tompion.json").exists(), "{stat}");
    let printed = run(tompion().arg("print").arg(&folder)).succeeded().out;
    assert!(printed.contains("sched_switch") && printed.contains(":hello:("), "{stat}");
    // Nothing is left beside it.
    assert_eq!(fs::read_dir(&parent).unwrap().count(), 1);
}

/// A ring lasts a few milliseconds in a flood of events. Until the command hears of a late wakeup,
/// and the recorder of the command, it takes longer.
#[test]
fn events_before_a_late_wakeup_are_saved_whatever_programs_write_later() {
    let Some(own) = Own::new("flood") else { return };
    let dir = TestDir::new();
    let program = dir.link("flood", &["flood.c"], &[]);
    for (name, tunables) in [("section", ""), ("reserve", "glibc.pthread.rseq=0")] {
        let parent = dir.path(name);
        fs::create_dir(&parent).unwrap();
        let mut command =
            own.monitor(&["--threshold", "flood-cli=10ns", "--capture", "flood:*", "--max-incidents", "1"]);
        let catcher = start(command.arg("--incidents").arg(&parent));
        wait_until("a recording", || recording(&parent).is_some());
        let mut flood = Command::new(&program);
        flood.env("GLIBC_TUNABLES", tunables).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut flood = flood.spawn().unwrap();
        let said = BufReader::new(flood.stdout.take().unwrap()).lines().next();
        assert_eq!(said.expect("a word").unwrap(), "recorded");
        // That may have been by the recorder of another test; this one's comes a moment later.
        thread::sleep(Duration::from_millis(300));
        let maps = fs::read_to_string(format!("/proc/{}/maps", flood.id())).unwrap();
        let selector = maps.lines().find(|line| line.contains("bpf-map")).expect("the kernel's selector");
        assert!(selector.contains(" r--s "), "programs may only read it: {selector}");
        let looked_at = parent.clone();
        sleep_as("flood-cli", "a folder", move || !folders(&looked_at).is_empty());
        finish(catcher, "monitor --capture").succeeded();
        drop(flood.stdin.take());
        assert!(flood.wait().unwrap().success());
        led_to_it(&folders(&parent).remove(0));
    }
}

/// The programs' events reach up to the end of the latency, and continue after it.
fn led_to_it(folder: &Path) {
    let incident = fs::read_to_string(folder.join("incident.json")).unwrap();
    let incident: Value = serde_json::from_str(&incident).unwrap();
    let end = incident["question"]["end"].as_u64().expect("when the latency ended");
    let programs = folder.join("programs");
    let printed = run(tompion().args(["print", "--format", "json"]).arg(&programs)).succeeded().out;
    let times = printed.lines().map(|line| event(line).fields["time"].as_u64().expect("a time"));
    let (before, after): (Vec<u64>, Vec<u64>) = times.partition(|time| *time <= end);
    assert!(!before.is_empty(), "{} events, all behind it", after.len());
    assert!(!after.is_empty(), "{} events, none behind it", before.len());
    let stat = run(tompion().args(["stat", "--json"]).arg(&programs)).succeeded().out;
    let stat: Value = serde_json::from_str(&stat).unwrap();
    assert_eq!(stat["lost"].as_u64().unwrap_or(0), 0, "{stat}");
}

/// The manifest of what is being recorded.
fn recording(parent: &Path) -> Option<PathBuf> {
    let manifests = fs::read_dir(parent).ok()?.flatten().map(|entry| entry.path().join("0/tompion.json"));
    manifests.into_iter().find(|manifest| manifest.exists())
}
