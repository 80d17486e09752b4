//! Overwrite mode while it runs; and recordings that end before their program, or the other way
//! round.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, ChildStderr},
};

use rustix::process::{Pid, Signal, kill_process_group};

use tompion_analysis::state::{self, Interval, Track, Visitor};
use tompion_reader::{Loss, LossKind};

use crate::{
    kills::Progress,
    support::{TestDir, Trace, finish, run, signal, start, start_group, tompion, wait_until},
};

/// Options for a memory that holds all events of these tests.
const LONG_MEMORY: [&str; 6] = ["--mode", "overwrite", "--subbuf-size", "1M", "--subbufs", "8"];
const SHORT_MEMORY: [&str; 6] = ["--mode", "overwrite", "--subbuf-size", "4K", "--subbufs", "4"];

/// The emitter under a recording, at a leisurely pace.
struct Running {
    recording: Child,
    progress: Progress,
    trace: Trace,
}

fn emitter(dir: &TestDir, options: &[&str], count: &str) -> Running {
    let (program, progress) = (dir.program("emitter"), Progress::new(dir.path("progress")));
    // The test's parent may ignore SIGINT, as shells do in the background.
    let reset: [&dyn AsRef<OsStr>; 2] = [&"env", &"--default-signal=INT"];
    let own: [&dyn AsRef<OsStr>; 5] = [&program, &progress.path(), &"20000", &"0", &count];
    let command = [&reset[..], &own].concat();
    let recording = start_group(&mut dir.recording("trace", options, &command));
    progress.pid();
    Running { recording, progress, trace: dir.trace("trace") }
}

/// The numbers of a thread in the trace; each is there once.
fn numbers_of(trace: &Trace, source: u64) -> BTreeSet<u64> {
    let events = trace.events();
    let numbers: Vec<u64> = events
        .iter()
        .filter(|event| event.number("source") == source)
        .map(|event| event.number("number"))
        .collect();
    let set: BTreeSet<u64> = numbers.iter().copied().collect();
    assert_eq!(set.len(), numbers.len(), "source {source}: some numbers stand there twice");
    set
}

/// The next line that says how many events were saved.
fn saved(lines: &mut impl Iterator<Item = std::io::Result<String>>) -> u64 {
    let line =
        lines.find_map(|line| line.ok().filter(|line| line.contains("saved"))).expect("`saved N events`");
    let number = line.split(' ').nth(2).and_then(|number| number.parse().ok());
    number.unwrap_or_else(|| panic!("expected `tompion: saved N events`, found `{line}`"))
}

fn stderr_of(recording: &mut Child) -> std::io::Lines<BufReader<ChildStderr>> {
    BufReader::new(recording.stderr.take().expect("standard error")).lines()
}

#[test]
fn snapshots_and_the_end_together_save_everything_once() {
    let dir = TestDir::new();
    let Running { mut recording, progress, trace } = emitter(&dir, &LONG_MEMORY, "20000");
    let mut lines = stderr_of(&mut recording);
    let mut first = 0;
    for mark in [500, 1000, 2000] {
        wait_until("some events", || progress.returned()[0] >= mark);
        signal(recording.id(), Signal::USR1);
        first += saved(&mut lines);
        assert!(first >= mark);
        assert!(trace.printed().lines().count() as u64 >= mark, "what was saved can be read at once");
    }
    finish(recording, "record").succeeded();

    for source in 0..2 {
        assert!(numbers_of(&trace, source).into_iter().eq(1..=20_000));
    }
    assert_eq!(trace.stat()["overwritten"], 0);
}

#[test]
fn snapshots_of_a_short_memory_never_repeat_an_event() {
    let dir = TestDir::new();
    let Running { mut recording, progress, trace } = emitter(&dir, &SHORT_MEMORY, "20000");
    let mut lines = stderr_of(&mut recording);
    for mark in [1000, 1010, 5000] {
        wait_until("some events", || progress.returned()[0] >= mark);
        signal(recording.id(), Signal::USR1);
        saved(&mut lines);
    }
    finish(recording, "record").succeeded();

    let found = numbers_of(&trace, 0).len() + numbers_of(&trace, 1).len();
    let stat = trace.stat();
    assert_eq!(stat["events"], found);
    assert_eq!(found as u64 + stat["overwritten"].as_u64().unwrap(), 40_000);
    assert_eq!(trace.agreed_count(), found as u64);
}

/// Intervals of a trace, and the losses that its packets tell.
fn states_and_losses(trace: &Trace) -> (Vec<Interval>, Vec<Loss>) {
    #[derive(Default)]
    struct Collected(Vec<Interval>);
    impl Visitor for Collected {
        fn interval(&mut self, interval: &Interval) {
            self.0.push(interval.clone());
        }
    }
    let mut traces = tompion_reader::open(std::slice::from_ref(&trace.folder)).expect("traces");
    let mut kept = Collected::default();
    state::run(&mut traces, &mut kept);
    (kept.0, traces.losses().to_vec())
}

/// A program that requests snapshots while its jobs continue has gaps between them, and no job
/// extends over one.
#[test]
fn overwritten_events_between_snapshots_are_a_gap_for_every_reader() {
    let shop = TestDir::new();
    let trace = shop.record(&SHORT_MEMORY, &[&shop.program("late_cycles")]);
    let numbers: Vec<_> = trace
        .events()
        .iter()
        .filter(|event| event.name == "motor:cycle_begin")
        .map(|event| (event.time, event.number("number")))
        .collect();
    let jumps: Vec<_> = numbers.windows(2).filter(|pair| pair[0].1 + 1 != pair[1].1).collect();
    assert!(!jumps.is_empty(), "no snapshot found overwritten events: {} jobs", numbers.len());
    let (intervals, losses) = states_and_losses(&trace);
    let gaps: Vec<(i64, i64)> = losses
        .iter()
        .map(|loss| {
            assert_eq!((loss.kind, loss.count), (LossKind::Packets, 1), "{loss:?}");
            (loss.between.0.expect("a begin"), loss.between.1.expect("an end"))
        })
        .collect();
    for jump in &jumps {
        let is_in = |&&(from, to): &&(i64, i64)| jump[0].0 <= from && to <= jump[1].0;
        assert_eq!(gaps.iter().filter(is_in).count(), 1, "{jump:?} in {gaps:?}");
    }
    assert_eq!(gaps.len(), jumps.len(), "{gaps:?}");
    for span in intervals.iter().filter(|it| matches!(it.track, Track::Span(..))) {
        let is_over = |&(from, to): &(i64, i64)| span.begin < to && from < span.end;
        assert!(!gaps.iter().copied().any(|gap| is_over(&gap)), "{span:?} lasts over a gap");
    }
    assert_eq!(trace.stat()["overwritten_gaps"], gaps.len());
    assert_eq!(trace.stat()["lost_packets"], 0);
    let warned = run(tompion().arg("print").arg(&trace.folder)).succeeded().err;
    assert_eq!(warned.matches("Tracer discarded 1 packet between [").count(), gaps.len(), "{warned}");
    let theirs = trace.babeltrace().err;
    assert_eq!(theirs.matches("Tracer discarded 1 packet between [").count(), gaps.len(), "{theirs}");
}

#[test]
fn an_interrupt_ends_the_command_and_leaves_a_readable_trace() {
    for whole_group in [false, true] {
        let dir = TestDir::new();
        let Running { recording, progress, trace } = emitter(&dir, &[], "0");
        wait_until("some events", || progress.returned()[0] >= 100);
        if whole_group {
            let group = Pid::from_raw(recording.id() as i32).unwrap();
            kill_process_group(group, Signal::INT).unwrap();
        } else {
            signal(recording.id(), Signal::INT);
        }
        let finished = finish(recording, "record").killed_by(Signal::INT);

        assert!(finished.err.contains("ended with signal: 2"), "{}", finished.err);
        let lost = trace.stat()["lost"]["total"].as_u64().unwrap();
        let returned: u64 = progress.returned().iter().sum();
        let known = trace.agreed_count() + lost;
        assert!((returned..=returned + 2).contains(&known), "{known} of {returned}");
    }
}

#[test]
fn a_command_that_takes_no_notice_does_not_hold_up_the_end() {
    let dir = TestDir::new();
    let program = dir.program("stubborn");
    let mut recording = start(&mut dir.recording("trace", &["--duration", "200ms"], &[&program]));
    let mut said = BufReader::new(recording.stdout.take().unwrap()).lines();
    let pid: u32 = said.next().unwrap().unwrap().parse().unwrap();
    let finished = finish(recording, "record").succeeded();

    assert!(finished.err.contains("killing it"), "{}", finished.err);
    assert!(!Path::new("/proc").join(pid.to_string()).exists());
    let trace = dir.trace("trace");
    assert!(trace.agreed_count() >= 1, "{}", finished.err);
    assert_eq!(trace.stat()["processes"][0]["end"], "running when the recording ended");
}

#[test]
fn a_recording_with_a_time_ends_by_itself() {
    let dir = TestDir::new();
    let Running { recording, progress, trace } = emitter(&dir, &["--duration", "1s"], "0");
    let finished = finish(recording, "record").succeeded();

    assert!(finished.err.contains("ended with signal: 15"), "{}", finished.err);
    assert!(!progress.is_done());
    assert!(trace.agreed_count() > 0);
}

#[test]
fn a_program_outlives_its_session_unharmed() {
    for mode in ["discard", "overwrite"] {
        let dir = TestDir::new();
        let options = ["--mode", mode, "--subbuf-size", "4K", "--subbufs", "2"];
        let Running { mut recording, progress, trace } = emitter(&dir, &options, "4000");
        let pid = progress.pid();
        wait_until("some events", || progress.returned()[0] >= 500);
        signal(recording.id(), Signal::KILL);
        recording.wait().unwrap();

        wait_until("the program's own end", || !std::path::Path::new(&format!("/proc/{pid}")).exists());
        assert!(progress.is_done());
        assert_eq!(progress.returned()[..2], [4000, 4000]);
        drop(trace);
    }
}

#[test]
fn packets_written_before_the_session_was_killed_can_be_read() {
    let dir = TestDir::new();
    let Running { mut recording, progress, trace } = emitter(&dir, &[], "0");
    let flushed = || run(crate::support::tompion().arg("print").arg(&trace.folder)).out.lines().count() > 0;
    wait_until("a first packet", flushed);
    signal(recording.id(), Signal::KILL);
    recording.wait().unwrap();
    signal(progress.pid(), Signal::KILL);

    assert!(trace.agreed_count() > 0);
}

/// Names and values of the settings in a trace of `settings`.
fn settings(options: &[&str], word: &str) -> Vec<(String, u64)> {
    let dir = TestDir::new();
    let program = dir.program("settings");
    let command: [&dyn AsRef<OsStr>; 2] = [&program, &word];
    let _ = run(&mut dir.recording("trace", options, &command));
    let trace = dir.trace("trace");
    trace.agreed_text();
    let events = trace.events();
    let settings = events.iter().filter(|event| event.name == "settings:value");
    let ticks = events.iter().filter(|event| event.name == "settings:tick").count();
    assert_eq!(options.contains(&"overwrite"), ticks < 100_000, "{ticks} ticks");
    settings
        .map(|event| (event.fields["name"].as_str().expect("text").to_owned(), event.number("value")))
        .collect()
}

#[test]
fn pinned_events_are_kept_however_old_they_are() {
    let all = [("gain".to_owned(), 3), ("a longer name".to_owned(), 4), ("end".to_owned(), 5)];
    let options = ["--mode", "overwrite", "--subbuf-size", "4K", "--subbufs", "2"];
    assert_eq!(settings(&options, ""), all);
    assert_eq!(settings(&options, "die"), all);
    assert_eq!(settings(&["--subbuf-size", "4M"], ""), all);
    let with_contexts = [&options[..], &["-c", "comm,app,prio"]].concat();
    assert_eq!(settings(&with_contexts, ""), all);
    let filtered = [&options[..], &["--filter", r#"value == 3 || $comm == "other" || i > 10"#]].concat();
    assert_eq!(settings(&filtered, ""), all[..1]);
}
