//! Real traces, which are outside the repository in `../shared/ctf-corpus`; without them these
//! tests are skipped and say so.

use std::{collections::BTreeSet, path::PathBuf};

use tompion_analysis::state::{self, Happening, Interval, Sleep, State, Track, Waker, Why};

use crate::checked::Checked;

fn states(name: &str) -> Option<Checked> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/ctf-corpus")).join(name);
    if !folder.is_dir() {
        eprintln!("not checked: {} is not there", folder.display());
        return None;
    }
    let mut traces = tompion_reader::open(&[folder]).unwrap();
    let mut checked = Checked::default();
    state::run(&mut traces, &mut checked);
    Some(checked)
}

/// Asserts that CPUs ran threads as long as threads ran.
fn assert_balanced(checked: &Checked) {
    let of_cpus = checked.total(|it| matches!(it.state, State::Runs { .. }));
    let of_threads = checked.total(|it| matches!(it.state, State::Running { .. }));
    assert_eq!(of_cpus, of_threads);
}

/// Returns the number of system calls observed from entry to return.
fn syscalls(checked: &Checked) -> usize {
    checked.of(|it| matches!(it.track, Track::Syscall(_)) && it.seen.begin && it.seen.end).len()
}

// The numbers of calls and times were computed by a script from babeltrace2's text of the trace.

#[test]
fn a_kernel_trace_with_many_short_threads() {
    let Some(checked) = states("many-threads") else { return };
    assert_balanced(&checked);
    assert_eq!(checked.count(|what| matches!(what, Happening::Fork { .. })), 8003);
    assert_eq!(checked.count(|what| matches!(what, Happening::Exit { .. })), 8003);
    assert_eq!(checked.of(|it| matches!(it.state, State::SoftInterrupt(_)) && it.seen.begin).len(), 6042);
    assert_eq!(checked.of(|it| matches!(it.state, State::Interrupt(_)) && it.seen.end).len(), 153);
    assert_eq!(syscalls(&checked), 70_056);
    assert_eq!(checked.total(|it| matches!(it.state, State::Running { .. })), 1_874_247_076);
    let in_poll =
        |it: &Interval| matches!(&it.state, State::Blocked { syscall: Some(name), .. } if &**name == "poll");
    assert!(!checked.of(in_poll).is_empty());
    let disk = |it: &Interval| matches!(it.state, State::Blocked { sleep: Sleep::Uninterruptible, .. });
    assert!(!checked.of(disk).is_empty());
    let preempted = |it: &Interval| matches!(it.state, State::Ready(Why::Preempted { by }) if by != 0);
    assert!(!checked.of(preempted).is_empty());
    let by_interrupt =
        |what: &Happening| matches!(what, Happening::Wakeup { waker: Waker::Interrupt { .. }, .. });
    assert!(checked.count(by_interrupt) > 100);
    let unspecified = |it: &Interval| matches!(it.state, State::Blocked { sleep: Sleep::Unspecified, .. });
    assert!(checked.of(unspecified).len() > 300, "threads in the state dump");
}

#[test]
fn a_kernel_trace_of_an_old_tracer() {
    let Some(checked) = states("bug446190") else { return };
    assert_balanced(&checked);
    assert_eq!(syscalls(&checked), 1801);
    assert_eq!(checked.total(|it| matches!(it.state, State::Running { .. })), 96_568_100);
}

#[test]
fn perf_calls_threads_pid() {
    let Some(checked) = states("perf-taskset2") else { return };
    assert_balanced(&checked);
    assert!(checked.of(|it| matches!(it.state, State::Running { .. })).len() > 100);
    // `ls` waits for the disk in its exit (TASK_KILLABLE), and is one thread all the same.
    let tracks = checked.intervals.iter().map(|it| it.track);
    let of_ls: BTreeSet<Track> =
        tracks.filter(|track| matches!(track, Track::Thread(id) if id.tid == 1834)).collect();
    assert_eq!(of_ls.len(), 1, "{of_ls:?}");
}

#[test]
fn functions_call_each_other() {
    let Some(checked) = states("glxgears-cyg-profile") else { return };
    let functions = checked.of(|it| matches!(it.state, State::Function(_)));
    assert!(functions.len() > 2000, "{}", functions.len());
    assert!(functions.iter().any(|it| matches!(it.track, Track::Span(_, 2))));
    let unseen = functions.iter().filter(|it| !it.seen.end).count();
    assert!(unseen < 10, "what was open at the end: {unseen}");
}

#[test]
fn programs_without_spans_have_no_states() {
    for name in ["wk-heartbeat-u", "smalltrace"] {
        let Some(checked) = states(name) else { continue };
        assert!(checked.intervals.is_empty(), "{name}: {:?}", checked.intervals.first());
    }
}

#[test]
fn callbacks_of_ros_nodes_are_spans() {
    let Some(checked) = states("ros2") else { return };
    let callbacks = checked.of(|it| matches!(&it.state, State::Span(name) if &**name == "ros2:callback"));
    // babeltrace2 prints as many starts and as many ends.
    assert_eq!(callbacks.len(), 6065);
    assert!(callbacks.iter().all(|it| it.seen.begin && it.seen.end));
}
