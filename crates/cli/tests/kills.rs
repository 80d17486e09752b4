//! Programs that are killed at any instant: every append that had returned is in the trace, whole
//! and exactly once.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    fallback::WITHOUT_RSEQ,
    support::{self, TestDir, Trace, finish, rounds, run, start, tompion, wait_until},
};

/// Rings so large that nothing is lost.
pub const ROOMY: &[&str] = &["--subbuf-size", "16M", "--subbufs", "4"];
/// Rings so small that the consumer can't keep up.
pub const TIGHT: &[&str] = &["--subbuf-size", "4K", "--subbufs", "2"];
/// Options of a flight recorder that overwrites nothing.
const LONG_MEMORY: &[&str] = &["--mode", "overwrite", "--subbuf-size", "8M", "--subbufs", "4"];
/// Options of a flight recorder with small rings.
pub const SHORT_MEMORY: &[&str] = &["--mode", "overwrite", "--subbuf-size", "4K", "--subbufs", "4"];

/// Programs of one recording. Each is killed by itself.
const PROGRAMS: u32 = 10;

/// Starts a program for every three words behind its name, and waits for their ends.
const ALL_AT_ONCE: &str =
    r#"program=$1; shift; while [ $# -gt 0 ]; do "$program" "$1" "$2" "$3" 0 & shift 3; done; wait"#;

/// Write protocol of the programs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Producer {
    Rseq,
    /// Without restartable sequences.
    Reserve,
}

impl Producer {
    /// Makes the command's programs append in this way.
    pub fn choose(self, command: &mut Command) {
        if self == Self::Reserve {
            command.env(WITHOUT_RSEQ.0, WITHOUT_RSEQ.1);
        }
    }
}

/// Two threads and their handlers.
pub const SOURCES: usize = 4;

/// The file in which the program tells what it has appended, see `programs/emitter.c`.
pub struct Progress(PathBuf);

impl Progress {
    pub fn new(path: PathBuf) -> Self {
        fs::write(&path, [0; 4096]).expect("a file for the progress");
        Self(path)
    }

    fn word(&self, index: usize) -> u64 {
        let bytes = fs::read(&self.0).expect("the progress");
        u64::from_le_bytes(bytes[index * 8..][..8].try_into().expect("eight bytes"))
    }

    /// The program, once it has appended something.
    pub fn pid(&self) -> u32 {
        wait_until("the first event", || self.word(0) != 0);
        self.word(0) as u32
    }

    /// Returns whether the program came to its end.
    pub fn is_done(&self) -> bool {
        self.word(1) == 1
    }

    /// The last number of each source.
    pub fn returned(&self) -> [u64; SOURCES] {
        std::array::from_fn(|source| self.word(8 * (1 + source)))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

/// Complete record of the trace.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    pub pid: u32,
    pub time: u64,
    pub cpu: u64,
    pub source: usize,
    pub number: u64,
}

/// Returns the value after `name = ` in a line of text.
fn field<'a>(line: &'a str, name: &str) -> &'a str {
    let rest = line.split_once(&format!(" {name} = ")).map_or("", |(_, rest)| rest);
    rest.split([',', ' ']).next().unwrap_or_default()
}

fn number(line: &str, name: &str) -> u64 {
    field(line, name).parse().unwrap_or_else(|_| panic!("no number `{name}` in {line}"))
}

/// Computes the same as `proof` in `programs/emitter.c`.
fn proof(number: u64) -> String {
    let length = if number % 97 == 0 { 700 - number % 50 } else { 1 + number % 48 };
    char::from(b'a' + (number % 26) as u8).to_string().repeat(length as usize)
}

fn parse(line: &str) -> Found {
    let time = line.get(1..21).unwrap_or_default().replace('.', "").parse().expect("a time");
    let (source, count) = (number(line, "source"), number(line, "number"));
    let sum = (count + source).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    assert_eq!(field(line, "sum"), format!("{sum:#X}").replacen("0X", "0x", 1), "torn: {line}");
    assert_eq!(field(line, "text"), format!("\"{}\"", proof(count)), "torn: {line}");
    let pid = line.split_once("emitter:(").and_then(|(_, rest)| rest.split_once(')')?.0.parse().ok());
    let pid = pid.unwrap_or_else(|| panic!("no process in {line}"));
    Found { pid, time, cpu: number(line, "cpu_id"), source: source as usize, number: count }
}

/// Returns all records, after checking their proofs and the order of times.
pub fn found_in(trace: &Trace) -> Vec<Found> {
    let text =
        run(tompion().args(["print", "--clock-seconds", "--no-delta"]).arg(&trace.folder)).succeeded().out;
    let found: Vec<Found> = text.lines().map(parse).collect();
    // The reader merges streams by their next events: a stream out of order makes the whole so.
    assert!(found.windows(2).all(|pair| pair[0].time <= pair[1].time), "time goes backwards");
    found
}

pub fn numbers_of(found: &[Found], source: usize) -> Vec<u64> {
    found.iter().filter(|found| found.source == source).map(|found| found.number).collect()
}

/// A killed program, and its records.
struct Killed {
    /// The trace of its own.
    trace: Trace,
    found: Vec<Found>,
    returned: [u64; SOURCES],
    /// Whether any program of the recording lost anything.
    others_lost: bool,
}

impl Killed {
    fn lost(&self) -> u64 {
        if self.others_lost { lost_in(&self.trace.stat()) } else { 0 }
    }
}

fn lost_in(stat: &Value) -> u64 {
    stat["lost"]["total"].as_u64().expect("a number")
}

/// A round's choices; different in every round, the same in every run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub storm_us: u64,
    pub pause: u64,
    pub delay: Duration,
}

impl Plan {
    pub fn new(round: u32, storm: bool) -> Self {
        let mut state = u64::from(round) * 2 + u64::from(storm) + 0x9e37_79b9_7f4a_7c15;
        let mut random = |below: u64| {
            for shift in [13, 7, 17] {
                state ^= if shift == 7 { state >> shift } else { state << shift };
            }
            state % below
        };
        let pause = [0, 100, 400, 2000][random(4) as usize];
        // Without a pause there are soon more events than a failed test can show.
        let longest = if pause == 0 { 4_000 } else { 30_000 };
        let delay = Duration::from_micros(random(longest));
        Self { storm_us: if storm { 20 + random(31) } else { 0 }, pause, delay }
    }
}

/// A program that is to be killed.
struct Victim {
    plan: Plan,
    progress: Progress,
    pid: u32,
}

impl Victim {
    /// Its words for the script.
    fn words(&self) -> [String; 3] {
        let path = self.progress.path().to_str().expect("a path of letters");
        [path.to_owned(), self.plan.pause.to_string(), self.plan.storm_us.to_string()]
    }
}

/// Kills each program at its time, counted from its first event.
fn kill_all(victims: &mut [Victim]) {
    let mut left: Vec<(&mut Victim, Option<Instant>)> =
        victims.iter_mut().map(|victim| (victim, None)).collect();
    wait_until("the programs' ends", || {
        left.retain_mut(|(victim, end)| {
            if end.is_none() && victim.progress.word(0) != 0 {
                victim.pid = victim.progress.pid();
                *end = Some(Instant::now() + victim.plan.delay);
            }
            let is_due = end.is_some_and(|end| end <= Instant::now());
            if is_due {
                support::signal(victim.pid, Signal::KILL);
            }
            !is_due
        });
        left.is_empty()
    });
}

/// Kills programs in the middle of their work, as often as asked for, and hands each case to the
/// check.
fn kill_rounds(times: (u32, u32), options: &[&str], storm: bool, check: fn(&Plan, &Killed)) {
    kill_rounds_of(Producer::Rseq, times, options, storm, check);
}

/// Runs rounds of kills, of programs that append in this way.
fn kill_rounds_of(
    producer: Producer,
    (quick, full): (u32, u32),
    options: &[&str],
    storm: bool,
    check: fn(&Plan, &Killed),
) {
    let dir = TestDir::new();
    let program = dir.program("emitter");
    let (mut kills, mut records) = (0, 0);
    for round in 0..rounds(quick, full) / PROGRAMS {
        let victim = |index| {
            let progress = Progress::new(dir.path(&format!("progress-{index}")));
            Victim { plan: Plan::new(round * PROGRAMS + index, storm), progress, pid: 0 }
        };
        let mut victims: Vec<Victim> = (0..PROGRAMS).map(victim).collect();
        let words: Vec<[String; 3]> = victims.iter().map(Victim::words).collect();
        let mut command: Vec<&dyn AsRef<OsStr>> = vec![&"sh", &"-c", &ALL_AT_ONCE, &"sh", &program];
        command.extend(words.iter().flatten().map(|word| word as &dyn AsRef<OsStr>));
        let mut record = dir.recording("trace", options, &command);
        producer.choose(&mut record);
        let recording = start(&mut record);
        kill_all(&mut victims);
        let said = finish(recording, "tompion record").succeeded().err;

        let trace = dir.trace("trace");
        let stat = trace.stat();
        assert_eq!(stat["processes"].as_array().map(Vec::len), Some(PROGRAMS as usize), "{said}");
        assert_eq!(stat["damages"].as_array().map(Vec::len), Some(0), "{stat:#}");
        let mut found: BTreeMap<u32, Vec<Found>> = BTreeMap::new();
        for record in found_in(&trace) {
            found.entry(record.pid).or_default().push(record);
        }
        for Victim { plan, progress, pid } in &victims {
            assert!(!progress.is_done());
            let killed = Killed {
                trace: Trace { folder: trace.folder.join(format!("user/emitter-{pid}")) },
                found: found.remove(pid).unwrap_or_default(),
                returned: progress.returned(),
                others_lost: lost_in(&stat) > 0,
            };
            check(plan, &killed);
            kills += 1;
            records += killed.returned.iter().sum::<u64>();
        }
        assert!(found.is_empty(), "events of unknown programs: {:?}", found.keys());
        fs::remove_dir_all(&trace.folder).expect("the trace can be removed");
    }
    println!("{kills} kills, {records} appends had returned");
}

fn each_number_once_and_in_order(plan: &Plan, found: &[Found]) {
    for source in 0..SOURCES {
        let numbers = numbers_of(found, source);
        assert!(
            numbers.windows(2).all(|pair| pair[0] < pair[1]),
            "{plan:?}: source {source} is out of order"
        );
    }
}

/// Asserts that all records up to the last append are there; that one may not have returned.
fn there_are_no_gaps(plan: &Plan, killed: &Killed) {
    for (source, returned) in killed.returned.into_iter().enumerate() {
        let numbers = numbers_of(&killed.found, source);
        let last = numbers.len() as u64;
        assert!(numbers.iter().copied().eq(1..=last), "{plan:?}: source {source} has gaps");
        assert!(
            (returned..=returned + 1).contains(&last),
            "{plan:?}: source {source} ends at {last} of {returned}"
        );
    }
}

/// Nothing may be lost.
fn everything_is_there(plan: &Plan, killed: &Killed) {
    if killed.lost() != 0 && plan.pause == 0 {
        // On a busy machine the kill may come so late that a program in a hurry has filled any
        // ring.
        return losses_are_counted(plan, killed);
    }
    assert_eq!(killed.lost(), 0, "{plan:?}");
    there_are_no_gaps(plan, killed);
}

/// Missing events are counted.
fn losses_are_counted(plan: &Plan, killed: &Killed) {
    each_number_once_and_in_order(plan, &killed.found);
    let returned: u64 = killed.returned.iter().sum();
    let known = killed.found.len() as u64 + killed.lost();
    let most = returned + SOURCES as u64;
    assert!((returned..=most).contains(&known), "{plan:?}: {known} are known of {returned}");
}

/// The newest history is unbroken from the moment on from which every ring has its own.
fn the_last_moments_are_there(plan: &Plan, killed: &Killed) {
    let mut first = BTreeMap::new();
    killed.found.iter().for_each(|found| {
        first.entry(found.cpu).or_insert(found.time);
    });
    let begin = first.into_values().max().expect("some event");
    let recent: Vec<Found> = killed.found.iter().copied().filter(|found| found.time >= begin).collect();
    for (source, returned) in killed.returned.into_iter().enumerate() {
        let numbers = numbers_of(&recent, source);
        let Some((first, last)) = numbers.first().zip(numbers.last()) else { continue };
        assert!(
            numbers.iter().copied().eq(*first..=*last),
            "{plan:?}: source {source} has gaps: {numbers:?}"
        );
        assert!(
            (returned..=returned + 1).contains(last),
            "{plan:?}: source {source} ends at {last} of {returned}"
        );
    }
    each_number_once_and_in_order(plan, &killed.found);
}

#[test]
fn a_kill_loses_nothing() {
    kill_rounds((60, 1000), ROOMY, false, everything_is_there);
}

#[test]
fn a_kill_in_a_storm_of_signals_loses_nothing() {
    kill_rounds((60, 1000), ROOMY, true, everything_is_there);
}

#[test]
fn a_kill_with_full_rings_leaves_all_losses_counted() {
    kill_rounds((60, 2000), TIGHT, true, losses_are_counted);
}

#[test]
fn a_flight_recorder_with_room_keeps_all_before_a_kill() {
    kill_rounds((60, 2000), LONG_MEMORY, true, the_last_moments_are_there);
}

#[test]
fn a_flight_recorder_keeps_the_last_moments_before_a_kill() {
    kill_rounds((60, 1000), SHORT_MEMORY, false, the_last_moments_are_there);
}

#[test]
fn a_flight_recorder_keeps_the_last_moments_in_a_storm_of_signals() {
    kill_rounds((60, 1000), SHORT_MEMORY, true, the_last_moments_are_there);
}

impl Killed {
    fn unfinished(&self) -> u64 {
        self.trace.stat()["lost"]["unfinished"].as_u64().unwrap_or(0)
    }
}

/// Asserts that all completed records are there, and that the others are counted.
fn everything_complete_is_there(plan: &Plan, killed: &Killed) {
    let unfinished = if killed.lost() == 0 { 0 } else { killed.unfinished() };
    if killed.lost() != unfinished {
        // As in `everything_is_there`.
        assert_eq!(plan.pause, 0, "{plan:?}: {}", killed.trace.stat()["lost"]);
        return losses_are_counted(plan, killed);
    }
    assert!(unfinished <= SOURCES as u64, "{plan:?}: {unfinished} unfinished");
    there_are_no_gaps(plan, killed);
}

/// In a flight recorder, events are also lost if others of the previous lap were not completed.
fn the_last_moments_are_there_or_counted(plan: &Plan, killed: &Killed) {
    let lost = killed.lost();
    if lost == 0 {
        return the_last_moments_are_there(plan, killed);
    }
    let stat = killed.trace.stat();
    assert_eq!(lost, killed.unfinished(), "{plan:?}: {}", stat["lost"]);
    each_number_once_and_in_order(plan, &killed.found);
    let known = killed.found.len() as u64 + lost + stat["overwritten"].as_u64().expect("a number");
    let returned: u64 = killed.returned.iter().sum();
    let most = returned + SOURCES as u64;
    assert!((returned..=most).contains(&known), "{plan:?}: {known} are known of {returned}");
}

#[test]
fn without_rseq_a_kill_loses_nothing_that_was_complete() {
    kill_rounds_of(Producer::Reserve, (40, 1000), ROOMY, false, everything_complete_is_there);
    kill_rounds_of(Producer::Reserve, (40, 1000), ROOMY, true, everything_complete_is_there);
}

#[test]
fn without_rseq_a_kill_with_full_rings_leaves_all_losses_counted() {
    kill_rounds_of(Producer::Reserve, (40, 1000), TIGHT, true, losses_are_counted);
}

#[test]
fn without_rseq_a_flight_recorder_keeps_the_last_moments_before_a_kill() {
    let check = the_last_moments_are_there_or_counted;
    kill_rounds_of(Producer::Reserve, (30, 1000), SHORT_MEMORY, false, check);
    kill_rounds_of(Producer::Reserve, (30, 1000), SHORT_MEMORY, true, check);
    kill_rounds_of(Producer::Reserve, (20, 1000), LONG_MEMORY, true, check);
}

#[test]
fn in_runs_that_end_normally_every_event_is_accounted_for() {
    every_event_is_accounted_for(Producer::Rseq);
}

#[test]
fn without_rseq_too_every_event_is_accounted_for_in_runs_that_end_normally() {
    every_event_is_accounted_for(Producer::Reserve);
}

fn every_event_is_accounted_for(producer: Producer) {
    let dir = TestDir::new();
    let program = dir.program("emitter");
    for (index, options) in
        [ROOMY, TIGHT, SHORT_MEMORY].into_iter().cycle().take(rounds(12, 90) as usize).enumerate()
    {
        let (progress, name) = (Progress::new(dir.path("progress")), format!("trace-{index}"));
        let storm = if index % 2 == 0 { "0" } else { "30" };
        let mut record =
            dir.recording(&name, options, &[&program, &progress.path(), &"20", &storm, &"20000"]);
        producer.choose(&mut record);
        assert_eq!(run(&mut record).succeeded().out, "all appended\n");

        assert!(progress.is_done());
        let emitted: u64 = progress.returned().iter().sum();
        let (trace, count) = (dir.trace(&name), |value: &Value| value.as_u64().expect("a number"));
        let stat = trace.stat();
        let known = count(&stat["events"]) + count(&stat["overwritten"]) + count(&stat["lost"]["total"]);
        assert_eq!(known, emitted, "{options:?}, storm {storm}: {stat:#}");
        assert_eq!(found_in(&trace).len() as u64, count(&stat["events"]));
    }
}
