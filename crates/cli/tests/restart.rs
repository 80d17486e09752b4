//! Recorders that are killed and started again (`--linger`, `--resume`): each event is in the trace
//! exactly once, whatever the programs did meanwhile.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command},
    thread,
    time::Duration,
};

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    kills::{Found, Progress, SHORT_MEMORY, SOURCES, found_in, numbers_of},
    recovery::{kill_session, losses_are_not_known},
    support::{self, Finished, TestDir, finish, rounds, run, start, wait_until},
};

/// Rings that hold what comes while there is no recorder, and a time in which it is back.
pub const LINGER: &[&str] = &["--linger", "20s", "--subbuf-size", "1M", "--subbufs", "8"];
/// Programs that record at once.
pub const PROGRAMS: usize = 3;
/// Starts a program for each file behind its name, and waits for their ends.
const ALL_AT_ONCE: &str =
    r#"program=$1; shift; for file in "$@"; do "$program" "$file" 60000 0 0 & done; wait"#;
/// Runs a program again and again until the last file is there, and writes the number of runs into
/// it, and of those that took less than 400 ms: the others may have waited in vain for a recorder.
const ONE_BY_ONE: &str = r#"
    all=0; short=0
    while [ ! -e "$3" ]; do
        begin=$(date +%s%N)
        "$1" "$2" 0 0 100
        [ $(($(date +%s%N) - begin)) -lt 400000000 ] && short=$((short + 1))
        all=$((all + 1))
    done
    echo "$all $short" > "$3"
"#;

/// Numbers that are different in every test, and the same in every run.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        for shift in [13, 7, 17] {
            self.0 ^= if shift == 7 { self.0 >> shift } else { self.0 << shift };
        }
        self.0 % limit
    }
}

/// Variable with the folder of the join sockets.
const JOIN: &str = "TOMPION_SOCKET";

pub fn resume(dir: &TestDir) -> Command {
    let mut command = dir.tompion(&["record", "--resume", "-o", "trace"]);
    command.env(JOIN, dir.path("join")).env("TOMPION_CONTROL", dir.path("control"));
    command
}

/// Starts a recording of several emitters at once, which run until they are killed.
pub fn record_emitters(dir: &TestDir, options: &[&str]) -> (Child, Vec<Progress>) {
    let program = dir.program("emitter");
    let all: Vec<Progress> =
        (0..PROGRAMS).map(|index| Progress::new(dir.path(&format!("progress-{index}")))).collect();
    let mut command: Vec<&dyn AsRef<OsStr>> = vec![&"sh", &"-c", &ALL_AT_ONCE, &"sh", &program];
    let files: Vec<&Path> = all.iter().map(Progress::path).collect();
    command.extend(files.iter().map(|file| file as &dyn AsRef<OsStr>));
    let recorder = start(&mut dir.recording("trace", options, &command));
    (recorder, all)
}

/// Starts a recording of an emitter that runs until it is killed, and lets it record for a while.
pub fn record_emitter(dir: &TestDir, options: &[&str]) -> (Child, Progress, u32) {
    let program = dir.program("emitter");
    let progress = Progress::new(dir.path("progress"));
    let command: [&dyn AsRef<OsStr>; 5] = [&program, &progress.path(), &"60000", &"0", &"0"];
    let recorder = start(&mut dir.recording("trace", options, &command));
    let pid = progress.pid();
    thread::sleep(Duration::from_millis(700));
    (recorder, progress, pid)
}

/// Number of times that the recording was continued.
pub fn restarts_of(dir: &TestDir) -> u64 {
    let manifest: Value =
        serde_json::from_slice(&fs::read(dir.path("trace/tompion.json")).expect("a manifest"))
            .expect("JSON in the manifest");
    manifest["restarts"].as_u64().unwrap_or(0)
}

/// Waits until a recorder that was started works, so many times in all.
pub fn wait_for_recorder(dir: &TestDir, restarts: u64) {
    wait_until("the recorder", || restarts_of(dir) >= restarts);
}

/// Kills the recorder at random instants, so many times, and starts it again after each.
pub fn kill_again_and_again(dir: &TestDir, mut recorder: Child, times: u32, seed: u64) -> Child {
    let (mut random, mut before) = (Random(seed), 0);
    for round in 0..times {
        // Some kills meet it while it begins, some while it works.
        if round % 2 == 1 {
            wait_for_recorder(dir, before + 1);
        }
        thread::sleep(Duration::from_micros(random.below(100_000)));
        kill_session(recorder);
        before = restarts_of(dir);
        thread::sleep(Duration::from_micros(random.below(20_000)));
        recorder = start(&mut resume(dir));
    }
    wait_for_recorder(dir, before + 1);
    recorder
}

/// Asserts that a recovery finds all that a program has appended.
fn recovers_all(dir: &TestDir, progress: &Progress, pid: u32) {
    let said = run(&mut dir.tompion(&["recover", "trace"])).succeeded();
    assert!(said.err.contains(" none lost; next: tompion print "), "{}", said.err);
    there_are_no_gaps(&found_in(&dir.trace("trace")), progress, pid);
}

/// Asserts that each source's numbers go from 1 to what was appended.
pub fn there_are_no_gaps(found: &[Found], progress: &Progress, pid: u32) {
    let own: Vec<Found> = found.iter().copied().filter(|found| found.pid == pid).collect();
    for (source, returned) in progress.returned().into_iter().enumerate().take(SOURCES) {
        let numbers = numbers_of(&own, source);
        let last = numbers.len() as u64;
        let wrong = numbers.iter().copied().zip(1..).find(|(found, expected)| found != expected);
        assert_eq!(wrong, None, "process {pid}, source {source}: found and expected");
        assert!((returned..=returned + 1).contains(&last), "{pid}: {source} ends at {last} of {returned}");
    }
}

pub fn nothing_is_lost(dir: &TestDir, recorder: Child) -> Finished {
    let said = finish(recorder, "tompion record --resume").succeeded();
    let stat = dir.trace("trace").stat();
    assert_eq!(stat["lost"]["total"], 0, "{}{stat:#}", said.err);
    assert_eq!(stat["damages"].as_array().map(Vec::len), Some(0), "{stat:#}");
    assert_eq!(dir.trace("trace").left_out(), 0, "{}", said.err);
    let manifest = dir.trace("trace").manifest();
    assert_eq!(manifest["state"], "complete");
    assert!(!manifest["losses_unknown"].as_bool().unwrap_or(false), "{}", said.err);
    assert!(!dir.path("trace/.restart").exists(), "the descriptions are not needed any more");
    said
}

#[test]
fn a_recorder_that_is_killed_and_started_again_loses_and_doubles_nothing() {
    let dir = TestDir::new();
    let (recorder, all) = record_emitters(&dir, LINGER);
    let pids: Vec<u32> = all.iter().map(Progress::pid).collect();
    let times = rounds(20, 1000);
    let recorder = kill_again_and_again(&dir, recorder, times, 0x9e37_79b9);

    // One program ends while there is no recorder, the others while there is one.
    kill_session(recorder);
    support::signal(pids[0], Signal::KILL);
    wait_until("its end", || !Path::new(&format!("/proc/{}/maps", pids[0])).exists());
    let recorder = start(&mut resume(&dir));
    thread::sleep(Duration::from_millis(300));
    pids[1..].iter().for_each(|pid| support::signal(*pid, Signal::KILL));

    nothing_is_lost(&dir, recorder);
    let found = found_in(&dir.trace("trace"));
    for (progress, pid) in all.iter().zip(&pids) {
        there_are_no_gaps(&found, progress, *pid);
    }
    let restarts = dir.trace("trace").manifest()["restarts"].as_u64().unwrap_or(0);
    // One that is killed before it has begun has restarted nothing.
    assert!(restarts > 1 && restarts <= u64::from(times) + 1, "{restarts} restarts");
}

/// Starts a recording of programs that come one after the other until the returned file is there.
pub fn record_one_by_one(dir: &TestDir, options: &[&str]) -> (Child, PathBuf) {
    let program = dir.program("emitter");
    let progress = Progress::new(dir.path("progress"));
    let runs = dir.path("runs");
    let command: [&dyn AsRef<OsStr>; 7] =
        [&"sh", &"-c", &ONE_BY_ONE, &"sh", &program, &progress.path(), &runs];
    let recorder = start(&mut dir.recording("trace", &[LINGER, options].concat(), &command));
    progress.pid();
    (recorder, runs)
}

#[test]
fn programs_that_start_and_end_while_the_recorder_is_killed_are_recorded() {
    let dir = TestDir::new();
    let (recorder, runs) = record_one_by_one(&dir, &[]);
    let recorder = kill_again_and_again(&dir, recorder, rounds(10, 200), 0x1234_5678);
    fs::write(&runs, "").expect("a file");
    nothing_is_lost(&dir, recorder);
    let found = found_in(&dir.trace("trace"));
    let mut pids: Vec<u32> = found.iter().map(|found| found.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    let runs = fs::read_to_string(&runs).expect("numbers of runs");
    let runs: Vec<usize> = runs.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    let [all, short] = runs[..] else { panic!("two numbers: {runs:?}") };
    assert!((short.max(3)..=all).contains(&pids.len()), "{} of {all}, {short} short ones", pids.len());
    for pid in pids {
        let own: Vec<Found> = found.iter().copied().filter(|found| found.pid == pid).collect();
        for source in 0..2 {
            assert!(numbers_of(&own, source).into_iter().eq(1..=100), "process {pid}, source {source}");
        }
    }
}

/// Programs of a set find the recording by its join socket, before and after the restarts, and
/// while there is no recorder.
#[test]
fn a_recording_of_sets_of_programs_goes_on_with_those_that_start_later() {
    let dir = TestDir::new();
    let [program, other] = ["set-emitter", "other-emitter"].map(|name| dir.link(name, &["emitter.c"], &[]));
    let begin = |program: &Path, name: &str| {
        let progress = Progress::new(dir.path(name));
        let mut command = Command::new(program);
        let begins_alone = Some("alone").filter(|_| name == "stranger");
        command.arg(progress.path()).args(["60000", "0", "0"]).args(begins_alone);
        command.env(JOIN, dir.path("join"));
        (start(&mut command), progress)
    };
    let mut recording = dir.tompion(&["record", "--session", "sets", "-o", "trace"]);
    // Each program has rings of a size of its own.
    recording.args(["--programs", "name=set-emitter", "--linger", "20s", "--memory", "128M"]);
    recording.env(JOIN, dir.path("join")).env("TOMPION_CONTROL", dir.path("control"));
    let recorder = start(&mut recording);
    let sockets = || fs::read_dir(dir.path("join")).map_or(0, Iterator::count);
    wait_until("a join socket", || sockets() == 1);
    let mut all = vec![begin(&program, "before")];
    all[0].1.pid();
    let recorder = kill_again_and_again(&dir, recorder, 5, 1234);
    all.push(begin(&program, "between"));
    all[1].1.pid();
    kill_session(recorder);
    all.push(begin(&program, "meanwhile"));
    let mut stranger = begin(&other, "stranger");
    let recorder = start(&mut resume(&dir));
    all[2].1.pid();
    stranger.1.pid();
    thread::sleep(Duration::from_millis(300));
    assert_eq!(sockets(), 1, "the same socket");
    let pids: Vec<u32> = all.iter().map(|(_, progress)| progress.pid()).collect();
    for (child, _) in all.iter_mut().chain([&mut stranger]) {
        child.kill().and_then(|()| child.wait()).expect("an end");
    }
    let stop = || run(dir.tompion(&["stop", "sets"]).env("TOMPION_CONTROL", dir.path("control")));
    stop().succeeded();
    nothing_is_lost(&dir, recorder);
    let found = found_in(&dir.trace("trace"));
    for ((_, progress), pid) in all.iter().zip(&pids) {
        there_are_no_gaps(&found, progress, *pid);
    }
    assert!(found.iter().all(|found| pids.contains(&found.pid)), "only those of the set");
    assert_eq!(sockets(), 0, "it goes with the recording");
}

#[test]
fn a_flight_recorder_that_is_killed_and_started_again_keeps_its_history() {
    for round in 0..rounds(2, 40) {
        let dir = TestDir::new();
        let program = dir.program("emitter");
        let progress = Progress::new(dir.path("progress"));
        let options = [SHORT_MEMORY, &["--linger", "20s"]].concat();
        let command: [&dyn AsRef<OsStr>; 5] = [&program, &progress.path(), &"2000", &"0", &"0"];
        let recorder = start(&mut dir.recording("trace", &options, &command));
        let pid = progress.pid();
        let recorder = kill_again_and_again(&dir, recorder, 4, 77 + u64::from(round));
        run(&mut dir.tompion(&["snapshot", "trace"])).succeeded();
        support::signal(pid, Signal::KILL);
        finish(recorder, "tompion record --resume").succeeded();
        let found = history_is_sound(&dir, &progress);
        let newest = found.last().expect("some event");
        let last = progress.returned()[newest.source];
        assert!((last..=last + 1).contains(&newest.number), "{newest:?} of {last}");
    }
}

/// Asserts that a flight recorder has each event once and in order, and counts those that it has
/// overwritten. Returns what it has.
pub fn history_is_sound(dir: &TestDir, progress: &Progress) -> Vec<Found> {
    let stat = dir.trace("trace").stat();
    assert_eq!(stat["lost"]["total"], 0, "{stat:#}");
    let found = found_in(&dir.trace("trace"));
    let returned = progress.returned();
    for (source, returned) in returned.into_iter().enumerate() {
        let numbers = numbers_of(&found, source);
        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "source {source} is out of order");
        assert!(numbers.last().is_none_or(|last| *last <= returned + 1));
    }
    let known = stat["events"].as_u64().unwrap_or(0) + stat["overwritten"].as_u64().unwrap_or(0);
    let all: u64 = returned.iter().sum();
    assert!((all..=all + SOURCES as u64).contains(&known), "{known} are known of {all}");
    found
}

/// Process ids of the keepers of a recording.
pub fn keepers(dir: &TestDir) -> Vec<u32> {
    let text = fs::read(dir.path("trace/.restart/session.json")).expect("the session's description");
    let saved: Value = serde_json::from_slice(&text).expect("JSON");
    let name = saved["restart"]["keeper"].as_str().expect("the keeper's name").to_owned();
    let entries = fs::read_dir("/proc").expect("processes").flatten();
    let is_keeper = |pid: &u32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&words).split('\0').any(|word| word == name)
    };
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_keeper).collect()
}

#[test]
fn without_a_recorder_for_longer_than_it_lingers_programs_leave_and_the_loss_is_said() {
    let dir = TestDir::new();
    let (recorder, _, pid) = record_emitter(&dir, &["--linger", "300ms"]);
    assert_eq!(keepers(&dir).len(), 1);
    kill_session(recorder);
    wait_until("the keeper's end", || keepers(&dir).is_empty());
    let rings =
        || fs::read_to_string(format!("/proc/{pid}/maps")).expect("a process").contains("tompion-rings");
    wait_until("the program's leave", || !rings());
    let said = run(&mut resume(&dir)).exited(125);
    assert!(said.err.contains("no keeper answers, so what the rings held is lost"), "{}", said.err);
    support::signal(pid, Signal::KILL);
    let recovered = run(&mut dir.tompion(&["recover", "trace"])).succeeded();
    losses_are_not_known(&dir, &recovered);
}

#[test]
fn what_is_no_descriptor_of_the_recording_is_refused_and_counted() {
    let dir = TestDir::new();
    let (recorder, _, pid) = record_emitter(&dir, LINGER);
    kill_session(recorder);
    let keepers = keepers(&dir);
    let text = fs::read(dir.path("trace/.restart/session.json")).expect("the session's description");
    let saved: Value = serde_json::from_slice(&text).expect("JSON");
    let word = |value: &Value| value.as_str().expect("a text").to_owned();
    keepers.iter().for_each(|keeper| support::signal(*keeper, Signal::KILL));
    wait_until("the keeper's end", || self::keepers(&dir).is_empty());
    support::signal(pid, Signal::KILL);
    let mut fake = Command::new("python3");
    fake.arg(support::beside("programs/fake_keeper.py"));
    fake.args([word(&saved["restart"]["keeper"]), word(&saved["id"])]);
    let fake = start(&mut fake);
    wait_until("the false keeper", || {
        fs::read_to_string("/proc/net/unix")
            .is_ok_and(|names| names.contains(&word(&saved["restart"]["keeper"])))
    });
    let said = finish(start(&mut resume(&dir)), "tompion record --resume").succeeded();
    finish(fake, "fake_keeper.py").succeeded();
    assert!(said.err.contains("refused 5 entries of the recording's keeper"), "{}", said.err);
    assert!(said.err.contains("what its rings held when the recorder was killed is lost"), "{}", said.err);
    let stat = dir.trace("trace").stat();
    assert_eq!(stat["losses_unknown"], true, "{stat:#}");
    assert_eq!(dir.trace("trace").left_out(), 5, "{stat:#}");
    assert!(!found_in(&dir.trace("trace")).is_empty());
}

#[test]
fn a_recovery_takes_what_the_keeper_holds_and_lets_the_programs_go() {
    let dir = TestDir::new();
    let (recorder, progress, pid) = record_emitter(&dir, LINGER);
    let keepers = keepers(&dir);
    kill_session(recorder);
    let before = progress.returned();
    let said = run(&mut dir.tompion(&["recover", "trace"])).succeeded();
    assert!(said.err.contains(" none lost; next: tompion print "), "{}", said.err);
    wait_until("the keeper's end", || {
        keepers.iter().all(|keeper| !Path::new(&format!("/proc/{keeper}/maps")).exists())
    });
    support::signal(pid, Signal::KILL);
    let found = found_in(&dir.trace("trace"));
    for (source, before) in before.into_iter().enumerate() {
        let numbers = numbers_of(&found, source);
        let last = numbers.len() as u64;
        assert!(numbers.into_iter().eq(1..=last) && last >= before, "{source}: {last} of {before}");
    }
    assert_eq!(dir.trace("trace").manifest()["state"], "recovered");
}

#[test]
fn a_recovery_that_fails_leaves_the_rings_with_the_keeper() {
    let dir = TestDir::new();
    let (recorder, progress, pid) = record_emitter(&dir, LINGER);
    kill_session(recorder);
    support::signal(pid, Signal::KILL);
    wait_until("its end", || !Path::new(&format!("/proc/{pid}/maps")).exists());
    // The traces can't be read.
    fs::rename(dir.path("trace/user"), dir.path("user")).expect("a folder");
    fs::write(dir.path("trace/user"), "").expect("a file");
    run(&mut dir.tompion(&["recover", "trace"]));
    assert_eq!(dir.trace("trace").manifest()["state"], "recording");
    fs::remove_file(dir.path("trace/user")).expect("a file");
    fs::rename(dir.path("user"), dir.path("trace/user")).expect("a folder");
    recovers_all(&dir, &progress, pid);
}

#[test]
fn a_recording_whose_manifest_can_not_be_written_can_be_recovered() {
    let dir = TestDir::new();
    let (recorder, progress, pid) = record_emitter(&dir, LINGER);
    // A manifest can't replace a folder.
    let manifest = dir.path("trace/tompion.json");
    fs::rename(&manifest, dir.path("manifest")).expect("a manifest");
    fs::create_dir(&manifest).expect("a folder");
    support::signal(pid, Signal::KILL);
    finish(recorder, "tompion record");
    fs::remove_dir(&manifest).expect("a folder");
    fs::rename(dir.path("manifest"), &manifest).expect("a manifest");
    assert!(dir.path("trace/.restart/session.json").exists(), "what describes the rings stays");
    recovers_all(&dir, &progress, pid);
}

#[test]
fn triggers_survive_a_restart_and_fire_for_new_losses_only() {
    let dir = TestDir::new();
    let program = dir.program("numbered");
    let (ended, go) = (dir.path("ended"), dir.path("go"));
    let script = r#""$1" 1 300000; touch "$2"; while [ ! -e "$3" ]; do sleep 0.1; done; "$1" 1 300000"#;
    let command: [&dyn AsRef<OsStr>; 7] = [&"sh", &"-c", &script, &"sh", &program, &ended, &go];
    let options = ["--linger", "20s", "--subbuf-size", "4K", "--subbufs", "2"];
    let options = [&options[..], &["--trigger", "loss -> notify"]].concat();
    let recorder = start(&mut dir.recording("trace", &options, &command));
    wait_until("the first losses", || ended.exists());
    let manifest = || -> Value {
        serde_json::from_slice(&fs::read(dir.path("trace/tompion.json")).expect("a manifest")).expect("JSON")
    };
    wait_until("a firing", || manifest()["firings"].as_array().is_some_and(|list| !list.is_empty()));
    kill_session(recorder);
    let before = manifest()["firings"].as_array().map_or(0, Vec::len);
    let recorder = start(&mut resume(&dir));
    wait_for_recorder(&dir, 1);
    fs::write(&go, "").expect("a file");
    finish(recorder, "tompion record --resume").succeeded();
    let firings = dir.trace("trace").manifest()["firings"].as_array().cloned().unwrap_or_default();
    let lost = dir.trace("trace").stat()["lost"]["total"].as_u64().unwrap_or(0);
    assert!(firings.len() > before, "{firings:?}");
    let number = |firing: &Value| -> u64 {
        let cause = firing["cause"].as_str().unwrap_or_default();
        cause.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
    };
    let fired: u64 = firings.iter().map(number).sum();
    assert!(fired <= lost, "{fired} of {lost}: {firings:?}");
}
