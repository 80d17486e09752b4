//! Sessions that are killed: what the programs had appended is in the trace all the same, once
//! `tompion recover` has been there, whole and exactly once.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Child,
    time::Duration,
};

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    kernel,
    kills::{Found, Plan, Producer, Progress, ROOMY, SHORT_MEMORY, SOURCES, TIGHT, found_in, numbers_of},
    support::{self, Finished, TestDir, Trace, finish, rounds, run, start, wait_until},
};

/// A killed recording of `emitter` with rings on disk.
pub struct Killed {
    pub dir: TestDir,
    /// Events that were certainly appended when the session was killed.
    pub before: [u64; SOURCES],
    /// Events that were appended when the program was killed.
    pub after: [u64; SOURCES],
}

/// Process that is killed first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Victim {
    /// The program, and the session right after it.
    Both,
    /// The session; the program goes on for a while.
    Session,
}

pub fn kill(options: &[&str], plan: &Plan, victim: Victim) -> Killed {
    kill_of(Producer::Rseq, options, plan, victim)
}

/// Kills a recording, of a program that appends in this way.
fn kill_of(producer: Producer, options: &[&str], plan: &Plan, victim: Victim) -> Killed {
    let dir = TestDir::new();
    let program = dir.program("emitter");
    let progress = Progress::new(dir.path("progress"));
    let words = [plan.pause.to_string(), plan.storm_us.to_string()];
    let command: [&dyn AsRef<OsStr>; 5] = [&program, &progress.path(), &words[0], &words[1], &"0"];
    let mut recording = dir.recording("trace", options, &command);
    producer.choose(&mut recording);
    let recording = start(&mut recording);
    let pid = progress.pid();
    std::thread::sleep(plan.delay);
    let mut before = progress.returned();
    if victim == Victim::Both {
        support::signal(pid, Signal::KILL);
        before = progress.returned();
    }
    kill_session(recording);
    if victim == Victim::Session {
        // It notices, and goes on unrecorded.
        std::thread::sleep(Duration::from_millis(20));
        support::signal(pid, Signal::KILL);
        wait_until("the program's end", || !Path::new(&format!("/proc/{pid}/maps")).exists());
    }
    let after = progress.returned();
    Killed { dir, before, after }
}

pub fn kill_session(mut recording: Child) {
    support::signal(recording.id(), Signal::KILL);
    recording.wait().expect("a child of this test");
}

pub fn kept<'a>(options: &[&'a str]) -> Vec<&'a str> {
    [&["--backing", "rings"], options].concat()
}

impl Killed {
    pub fn recover(&self) -> Finished {
        run(&mut self.dir.tompion(&["recover", "trace"]))
    }

    pub fn trace(&self) -> Trace {
        self.dir.trace("trace")
    }

    pub fn rings(&self) -> PathBuf {
        self.dir.path("rings")
    }
}

fn count(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}

/// Neither recovery, nor a second one, nor `stat` claims that nothing was lost.
pub fn losses_are_not_known(dir: &TestDir, recovered: &Finished) {
    let again = run(&mut dir.tompion(&["recover", "trace"])).succeeded();
    for said in [&recovered.err, &again.err] {
        let last = said.lines().last().unwrap_or_default();
        assert!(last.contains(", losses not known; next: ") || last.contains(" or more LOST ("), "{said}");
    }
    let stat = run(&mut dir.tompion(&["stat", "trace"])).succeeded();
    let line = stat.out.lines().find(|line| line.starts_with("lost  ")).unwrap_or_default();
    assert!(line.contains("not known") || line.contains(" or more"), "{}", stat.out);
    assert_eq!(dir.trace("trace").stat()["losses_unknown"], true);
}

/// Changes a recording's file as if it were of an earlier boot.
pub fn boot_again(file: &Path) {
    let text = fs::read_to_string(file).expect("a description");
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("the boot's id");
    let other = "00000000-0000-4000-8000-000000000000";
    assert!(text.contains(boot_id.trim()), "{text}");
    fs::write(file, text.replace(boot_id.trim(), other)).expect("a changed description");
}

/// Asserts the end of a recording that lost nothing, or counted its losses.
fn check(killed: &Killed, victim: Victim, plan: &Plan) {
    let trace = killed.trace();
    let found = found_in(&trace);
    let stat = trace.stat();
    let lost = count(&stat["lost"]["total"]);
    for source in 0..SOURCES {
        let numbers = numbers_of(&found, source);
        assert!(
            numbers.windows(2).all(|pair| pair[0] < pair[1]),
            "{plan:?}: source {source} is out of order"
        );
        if lost == 0 {
            let last = numbers.len() as u64;
            assert!(numbers.into_iter().eq(1..=last), "{plan:?}: source {source} has gaps");
            let (before, after) = (killed.before[source], killed.after[source]);
            let expected = if victim == Victim::Both { before..=before + 1 } else { before..=after + 1 };
            assert!(expected.contains(&last), "{plan:?}: source {source} ends at {last}, {expected:?}");
        }
    }
    let (known, before): (u64, u64) = (found.len() as u64 + lost, killed.before.iter().sum());
    let most = if victim == Victim::Both { before } else { killed.after.iter().sum() } + SOURCES as u64;
    assert!((before..=most).contains(&known), "{plan:?}: {known} are known of {before} to {most}");
    assert!(!killed.rings().exists(), "the rings are not needed any more");
    assert_eq!(trace.manifest()["state"], "recovered");
    if found.len() < 100_000 {
        trace.agreed_count();
    }
}

/// The newest history of each ring is unbroken and ends with the last append.
fn check_history(killed: &Killed, plan: &Plan) {
    let found = found_in(&killed.trace());
    let stat = killed.trace().stat();
    let lost = count(&stat["lost"]["total"]);
    let known = found.len() as u64 + count(&stat["overwritten"]) + lost;
    let before: u64 = killed.before.iter().sum();
    assert!((before..=before + SOURCES as u64).contains(&known), "{plan:?}: {known} are known of {before}");
    if lost > 0 {
        // Without restartable sequences: what was never completed, and what came upon it a lap
        // later.
        let unfinished = count(&stat["lost"]["unfinished"]);
        return assert_eq!(lost, unfinished, "{plan:?}: {}", stat["lost"]);
    }
    let last = |source: usize| found.iter().rfind(|found: &&Found| found.source == source);
    let newest = (0..SOURCES).filter_map(last).max_by_key(|found| found.time).expect("some event");
    let returned = killed.before[newest.source];
    assert!(
        (returned..=returned + 1).contains(&newest.number),
        "{plan:?}: the newest is {newest:?} of {returned}"
    );
}

fn kill_rounds(options: &[&str], victim: Victim, quick: u32) {
    kill_rounds_of(Producer::Rseq, options, victim, quick);
}

fn kill_rounds_of(producer: Producer, options: &[&str], victim: Victim, quick: u32) {
    for round in 0..rounds(quick, 10 * quick) {
        let mut plan = Plan::new(round, round % 2 == 1);
        // Some end before the first packet is written, some long after.
        plan.delay *= [1, 40][round as usize % 2];
        let killed = kill_of(producer, &kept(options), &plan, victim);
        killed.recover().succeeded();
        check(&killed, victim, &plan);
    }
}

#[test]
fn a_killed_session_loses_nothing_that_its_rings_hold() {
    kill_rounds(ROOMY, Victim::Session, 4);
}

#[test]
fn a_session_killed_with_its_program_loses_nothing_that_its_rings_hold() {
    kill_rounds(ROOMY, Victim::Both, 4);
}

#[test]
fn a_killed_session_with_full_rings_has_its_losses_counted() {
    kill_rounds(TIGHT, Victim::Both, 4);
    kill_rounds(TIGHT, Victim::Session, 2);
}

#[test]
fn a_killed_flight_recorder_keeps_the_last_moments() {
    flight_recorder_rounds(Producer::Rseq, rounds(4, 60));
}

fn flight_recorder_rounds(producer: Producer, rounds: u32) {
    for round in 0..rounds {
        let plan = Plan::new(round, round % 2 == 1);
        let killed = kill_of(producer, &kept(SHORT_MEMORY), &plan, Victim::Both);
        killed.recover().succeeded();
        check_history(&killed, &plan);
    }
}

#[test]
fn without_rseq_too_a_killed_session_loses_nothing_that_its_rings_hold() {
    kill_rounds_of(Producer::Reserve, ROOMY, Victim::Session, 3);
    kill_rounds_of(Producer::Reserve, ROOMY, Victim::Both, 3);
    kill_rounds_of(Producer::Reserve, TIGHT, Victim::Both, 2);
    flight_recorder_rounds(Producer::Reserve, rounds(3, 60));
}

#[test]
fn a_killed_recovery_is_done_again() {
    for round in 0..rounds(2, 40) {
        let plan = Plan { delay: Duration::from_millis(200), pause: 100, storm_us: 0 };
        let killed = kill(&kept(ROOMY), &plan, Victim::Both);
        for attempt in 0..12 {
            let recovery = start(&mut killed.dir.tompion(&["recover", "trace"]));
            std::thread::sleep(Duration::from_micros(u64::from(round * 37 % 200 + attempt * 700)));
            kill_session(recovery);
        }
        killed.recover().succeeded();
        check(&killed, Victim::Both, &plan);
    }
}

#[test]
fn a_second_recovery_changes_nothing_and_says_so() {
    let plan = Plan { delay: Duration::from_millis(700), pause: 2000, storm_us: 0 };
    let killed = kill(&kept(ROOMY), &plan, Victim::Both);
    let said = run(&mut killed.dir.tompion(&["stat", "trace"])).succeeded();
    assert!(
        said.err.contains("trace is incomplete: its session was killed; tompion recover trace"),
        "{}",
        said.err
    );
    assert!(said.out.contains("lost         not known"), "{}", said.out);
    assert_eq!(killed.trace().stat()["incomplete"], true);
    // By the folder of the rings.
    let first = run(&mut killed.dir.tompion(&["recover", "rings"])).succeeded();
    assert!(first.err.contains(" none lost; next: tompion print "), "{}", first.err);
    let bytes = |folder: &Path| {
        let mut files = Vec::new();
        let mut folders = vec![folder.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if entry.is_dir() {
                    folders.push(entry)
                } else {
                    files.push((fs::read(&entry).unwrap(), entry))
                }
            }
        }
        files.sort();
        files
    };
    let before = bytes(&killed.trace().folder);
    let second = killed.recover().succeeded();
    assert!(second.err.contains("nothing to recover, recovered already: "), "{}", second.err);
    assert!(before == bytes(&killed.trace().folder));
    assert_eq!(killed.trace().stat().get("incomplete"), None);
}

#[test]
fn without_backing_what_was_written_is_completed() {
    let plan = Plan { delay: Duration::from_millis(700), pause: 2000, storm_us: 0 };
    let killed = kill(ROOMY, &plan, Victim::Both);
    let said = killed.recover().succeeded();
    assert!(said.err.contains("recorded without --backing: what the rings held"), "{}", said.err);
    losses_are_not_known(&killed.dir, &said);
    let found = found_in(&killed.trace());
    assert!(!found.is_empty());
    for source in 0..SOURCES {
        let numbers = numbers_of(&found, source);
        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]));
    }
    killed.trace().agreed_count();
    assert_eq!(killed.trace().manifest()["sources"][0]["events"], found.len());
    assert!(killed.recover().succeeded().err.contains("nothing to recover"));
}

#[test]
fn after_a_power_cut_losses_are_not_known() {
    let plan = Plan { delay: Duration::from_millis(700), pause: 2000, storm_us: 0 };
    let killed = kill(&kept(ROOMY), &plan, Victim::Both);
    boot_again(&killed.rings().join("session.json"));
    let said = killed.recover().succeeded();
    assert!(said.err.contains("the machine has stopped since"), "{}", said.err);
    losses_are_not_known(&killed.dir, &said);
}

/// The terms are there before the clock, and processes after it.
#[test]
fn a_session_that_was_killed_as_it_began_is_recovered_as_nothing() {
    let dir = TestDir::new();
    let words = ["record", "--backing", "rings", "-o", "trace"];
    let session = start(&mut dir.tompion(&words));
    let kept = dir.path("rings/clock");
    wait_until("the clock is kept", || kept.exists());
    wait_until("the trace has begun", || dir.path("trace/tompion.json").exists());
    kill_session(session);
    fs::remove_file(&kept).expect("the clock");
    let said = run(&mut dir.tompion(&["recover", "trace"])).succeeded();
    assert!(!said.err.contains("No such file"), "{}", said.err);
    let again = run(&mut dir.tompion(&["recover", "trace"])).succeeded();
    assert!(again.err.contains("nothing to recover, recovered already"), "{}", again.err);
    assert!(!dir.path("rings").exists());
}

/// A stream's page that was not written back has no events: its packet is left out and named.
#[test]
fn without_backing_packets_that_a_stopped_machine_tore_are_not_believed() {
    let plan = Plan { delay: Duration::from_millis(1700), pause: 2000, storm_us: 0 };
    let killed = kill(ROOMY, &plan, Victim::Both);
    let folder = killed.trace().folder;
    let source =
        fs::read_dir(folder.join("user")).expect("sources").next().expect("a source").expect("an entry");
    let streams =
        (0..2).map(|ring| source.path().join(format!("stream_{ring}"))).filter(|stream| stream.exists());
    let len = |stream: &PathBuf| fs::metadata(stream).expect("a stream").len();
    let stream = streams.max_by_key(len).expect("a stream");
    let page = len(&stream) / 2 / 4096 * 4096;
    let file = fs::OpenOptions::new().write(true).open(&stream).expect("the stream");
    std::os::unix::fs::FileExt::write_all_at(&file, &[0; 4096], page).expect("an empty page");
    boot_again(&folder.join("tompion.json"));
    let said = killed.recover().succeeded();
    assert!(said.err.contains("the machine has stopped since"), "{}", said.err);
    let is_changed = said.err.contains("was changed after it was written");
    assert!(is_changed || said.err.contains("bytes that are none"), "the page is believed: {}", said.err);
    assert!(said.err.contains("losses not known"), "{}", said.err);
    let printed = run(&mut killed.dir.tompion(&["print", "trace"])).exited(1);
    assert!(!printed.out.is_empty(), "nothing is left");
    for source in 0..SOURCES {
        let number = |line: &str| {
            line.split_once(&format!("source = {source}, number = "))?.1.split_once(',')?.0.parse().ok()
        };
        let numbers: Vec<u64> = printed.out.lines().filter_map(number).collect();
        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "events were invented");
    }
}

/// The kernel's rings go with the session, so its trace ends with the last packet: one that is
/// whole.
#[test]
fn the_kernels_trace_is_completed_with_what_was_written() {
    if !kernel::permitted() {
        return;
    }
    for backing in [&["--backing", "rings"][..], &[]] {
        let dir = TestDir::new();
        let options = [&["-k"], backing].concat();
        let recording = start(&mut dir.recording("trace", &options, &[&"sleep", &"30"]));
        let stream = dir.path("trace/kernel/stream_0");
        let len = || fs::metadata(&stream).map_or(0, |file| file.len());
        wait_until("a packet of the kernel", || len() > 1 << 10);
        kill_session(recording);
        let torn = fs::OpenOptions::new().write(true).open(&stream).expect("the kernel's stream");
        torn.set_len(len() - 100).expect("a shorter file");
        let said = run(&mut dir.tompion(&["recover", "trace"])).succeeded();
        assert!(
            said.err.contains("kernel events still in the rings were lost with the session"),
            "{}",
            said.err
        );
        assert!(said.err.contains(" of the kernel in trace, "), "{}", said.err);
        losses_are_not_known(&dir, &said);
        let trace = dir.trace("trace");
        let (manifest, stat) = (trace.manifest(), trace.stat());
        let sources = manifest["sources"].as_array().expect("sources");
        let of_kernel: Vec<_> = sources.iter().filter(|source| source["kind"] == "kernel").collect();
        assert_eq!(of_kernel.len(), 1, "{manifest:#}");
        assert_eq!((&of_kernel[0]["path"], &of_kernel[0]["producer"]), (&"kernel".into(), &"bpf".into()));
        assert!(count(&of_kernel[0]["events"]) > 0 && of_kernel[0]["events"] == stat["events"], "{stat:#}");
        trace.agreed_count();
    }
}

#[test]
fn a_recording_that_goes_on_is_not_recovered() {
    let dir = TestDir::new();
    let progress = Progress::new(dir.path("progress"));
    let program = dir.program("emitter");
    let command: [&dyn AsRef<OsStr>; 5] = [&program, &progress.path(), &"2000", &"0", &"0"];
    let recording = start(&mut dir.recording("trace", &kept(ROOMY), &command));
    let pid = progress.pid();
    let said = run(&mut dir.tompion(&["recover", "trace"])).exited(1);
    assert!(said.err.contains("trace is still being recorded"), "{}", said.err);
    let mut second = dir.recording("other", &kept(ROOMY), &[&"true"]);
    assert!(
        run(&mut second).exited(125).err.contains("rings exists already; if a recording was killed there")
    );
    support::signal(pid, Signal::KILL);
    finish(recording, "tompion record").killed_by(Signal::KILL);
    assert!(!dir.path("rings").exists());
    assert_eq!(dir.trace("trace").manifest()["state"], "complete");
}

/// Contexts of threads that the session had no time to read are unknown to a filter: all events are
/// there.
#[test]
fn events_of_threads_that_the_session_never_saw_are_recovered() {
    let by_name: &[&str] = &["-c", "comm", "--filter", "$comm == \"emitter\""];
    let plan = Plan { delay: Duration::from_millis(30), pause: 2000, storm_us: 0 };
    let killed = kill(&kept(&[ROOMY, by_name].concat()), &plan, Victim::Both);
    let mut processes =
        fs::read_dir(killed.rings()).expect("kept rings").map(|entry| entry.expect("an entry"));
    let process = processes.find(|entry| entry.path().is_dir()).expect("a process").path();
    fs::remove_file(process.join("threads.json")).expect("what was seen of the threads");
    killed.recover().succeeded();
    check(&killed, Victim::Both, &plan);
    assert!(!found_in(&killed.trace()).is_empty());
}

/// Processes that had ended are complete already; those that had not are completed.
#[test]
fn processes_that_come_and_go_are_all_there() {
    let dir = TestDir::new();
    let program = dir.program("emitter");
    let progress: Vec<Progress> =
        (0..3).map(|index| Progress::new(dir.path(&format!("progress-{index}")))).collect();
    let emit = |index: usize, count| {
        format!("{} {} 400 0 {count}", program.display(), progress[index].path().display())
    };
    let script = format!("{}; {} & {}; wait", emit(0, 3000), emit(1, 0), emit(2, 0));
    let options = kept(&["--subbuf-size", "16M", "-c", "comm,pid", "--filter", "$comm == \"emitter\""]);
    let recording = start(&mut dir.recording("trace", &options, &[&"sh", &"-c", &script]));
    let pids = [1, 2].map(|index: usize| progress[index].pid());
    std::thread::sleep(Duration::from_millis(300));
    pids.into_iter().for_each(|pid| support::signal(pid, Signal::KILL));
    kill_session(recording);
    run(&mut dir.tompion(&["recover", "trace"])).succeeded();
    let (trace, returned) = (dir.trace("trace"), progress.iter().flat_map(|progress| progress.returned()));
    let (found, stat) = (found_in(&trace), trace.stat());
    let (known, returned) = (found.len() as u64 + count(&stat["lost"]["total"]), returned.sum::<u64>());
    assert!((returned..=returned + 4).contains(&known), "{known} of {returned}: {stat:#}");
    assert_eq!(trace.manifest()["sources"].as_array().map(Vec::len), Some(3));
    trace.babeltrace();
}

/// Children that start faster than their files are made wait and are recorded. Each rejected one is
/// counted once.
#[test]
fn a_storm_of_children_is_recorded_into_files() {
    let dir = TestDir::new();
    let storm = dir.program("storm");
    let count = rounds(400, 2000);
    let command: [&dyn AsRef<std::ffi::OsStr>; 3] = [&storm, &count.to_string(), &"32"];
    let finished = run(&mut dir.recording("trace", &["--backing", "rings"], &command)).succeeded();
    println!("{}", finished.err);
    let trace = dir.trace("trace");
    let manifest = trace.manifest();
    let sources = manifest["sources"].as_array().expect("sources");
    let recorded = sources.iter().filter(|source| source["events"].as_u64() > Some(0)).count() as u64;
    let all = u64::from(count) + 1;
    // Without waiting it was a quarter to a half, and less of more.
    assert!(recorded >= all - all / 5, "{recorded} of {all}: {}", finished.err);
    assert_eq!(sources.len() as u64 + trace.left_out(), all, "{}", finished.err);
    assert_eq!(trace.agreed_count(), recorded);
    if trace.left_out() > 0 {
        assert!(finished.err.contains(" NOT RECORDED, none lost of the others"), "{}", finished.err);
    }
    assert!(!dir.path("rings").exists());
}
