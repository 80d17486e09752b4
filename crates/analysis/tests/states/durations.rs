//! Durations of what was seen whole, and numbers of what was not.

use std::convert::Infallible;
use std::path::Path;

use tompion_analysis::durations::{self, Duration, Durations};

use crate::fixtures::{EVENTS, Folder, Made, class, metadata, numbered_packet, packet};

const OF_KERNEL: &str = "event.context := struct { i32 _tid; };";
const OF_PROGRAM: &str = "event.context := struct { i32 _vtid; };";

fn measured(folder: &Path, events: &[&str]) -> Durations {
    let events: Vec<String> = events.iter().map(|&glob| glob.into()).collect();
    let open = || Ok::<_, Infallible>(tompion_reader::open(&[folder.to_owned()]).unwrap());
    durations::measure(&open, &events).unwrap()
}

fn row(name: &str, durations: &[u64], unfinished: u64) -> Duration {
    let count = durations.len() as u64;
    let rank = |percent: usize| durations.get((durations.len() * percent).div_ceil(100).max(1) - 1).copied();
    Duration {
        name: name.into(),
        count,
        late: None,
        total_ns: durations.iter().sum(),
        p50_ns: rank(50),
        p99_ns: rank(99),
        max_ns: durations.last().copied(),
        unfinished,
    }
}

fn call(time: u64, name: &str, tid: i32) -> Made {
    (time, class(name), vec![tid, 0])
}

#[test]
fn a_call_that_is_open_at_the_end_has_no_duration() {
    let folder = Folder::new("durations-open");
    let events = [
        call(100, "syscall_exit_read", 6),
        call(110, "syscall_entry_read", 7),
        call(130, "syscall_entry_read", 8),
        call(150, "syscall_exit_read", 7),
        call(160, "syscall_entry_read", 7),
        call(220, "syscall_exit_read", 7),
        call(230, "syscall_entry_read", 7),
        call(240, "syscall_exit_write", 7),
        call(900, "irq_handler_entry", 0),
    ];
    let path = folder.trace("kernel", &metadata("kernel", &EVENTS, OF_KERNEL), &[packet(0, &events, 0)]);
    // Another call returned than was entered; one never returned.
    assert_eq!(measured(path, &[]).syscalls, [row("read", &[40, 60], 2)]);
    // One of the two events is enough to select a call.
    assert_eq!(measured(path, &["*exit_read"]).syscalls, [row("read", &[40, 60], 2)]);
    assert_eq!(measured(path, &["sched_*"]), Durations::default());
}

#[test]
fn the_return_from_a_signal_handler_ends_with_a_call_without_a_name() {
    let folder = Folder::new("durations-sigreturn");
    let events = [
        call(100, "syscall_entry_rt_sigreturn", 7),
        call(130, "syscall_exit_unknown", 7),
        call(140, "syscall_entry_read", 7),
        call(150, "syscall_exit_unknown", 7),
    ];
    let path = folder.trace("kernel", &metadata("kernel", &EVENTS, OF_KERNEL), &[packet(0, &events, 0)]);
    assert_eq!(measured(path, &[]).syscalls, [row("rt_sigreturn", &[30], 0), row("read", &[], 1)]);
}

#[test]
fn a_call_of_a_thread_that_takes_its_leaders_id_has_a_duration() {
    let folder = Folder::new("durations-exec");
    let events = [
        call(100, "syscall_entry_execve", 8),
        (120, class("sched_process_exec"), vec![7, 7, 8]),
        call(140, "syscall_exit_execve", 7),
    ];
    let path = folder.trace("kernel", &metadata("kernel", &EVENTS, OF_KERNEL), &[packet(0, &events, 0)]);
    assert_eq!(measured(path, &[]).syscalls, [row("execve", &[40], 0)]);
}

#[test]
fn a_call_across_a_loss_has_no_duration() {
    let folder = Folder::new("durations-loss");
    let before = [call(100, "syscall_entry_read", 7), call(130, "syscall_exit_read", 7)];
    let before = [&before[..], &[call(140, "syscall_entry_read", 7)]].concat();
    let behind = [call(900, "syscall_exit_read", 7), call(950, "syscall_entry_read", 7)];
    let behind = [&behind[..], &[call(990, "syscall_exit_read", 7)]].concat();
    let stream = [packet(0, &before, 0), numbered_packet((0, 2), &behind, 0)].concat();
    let path = folder.trace("kernel", &metadata("kernel", &EVENTS, OF_KERNEL), &[stream]);
    assert_eq!(measured(path, &[]).syscalls, [row("read", &[30, 40], 1)]);
}

#[test]
fn jobs_are_late_where_they_take_longer_than_their_deadline() {
    let folder = Folder::new("durations-jobs");
    let events = [
        ("motor:cycle job", "deadline_ns"),
        ("motor:cycle end", ""),
        ("motor:step begin", ""),
        ("motor:step end", ""),
    ];
    let begin = |time, deadline| (time, 0, vec![5, deadline]);
    let event = |time, class| (time, class, vec![5]);
    let events_of_thread = [
        begin(100, 50),
        event(110, 2),
        event(120, 3),
        event(150, 1),
        begin(200, 50),
        event(251, 1),
        // Without a deadline, and open at the end.
        begin(300, 0),
        event(400, 1),
        begin(500, 10),
        event(900, 2),
    ];
    let streams = [packet(0, &events_of_thread, 0)];
    let path = folder.trace("user", &metadata("ust", &events, OF_PROGRAM), &streams);
    let found = measured(path, &[]);
    assert_eq!(found.jobs, [Duration { late: Some(1), ..row("motor:cycle", &[50, 51, 100], 1) }]);
    assert_eq!(found.spans, [row("motor:step", &[10], 1)]);
    assert_eq!(measured(path, &["motor:step_begin"]).jobs, []);
}

#[test]
fn jobs_that_begin_at_the_same_time_have_their_own_deadlines() {
    let folder = Folder::new("durations-same-time");
    let events = [
        ("motor:cycle job", "deadline_ns"),
        ("motor:cycle end", ""),
        ("motor:step job", "deadline_ns"),
        ("motor:step end", ""),
    ];
    let event = |time, class, values: &[i32]| (time, class, values.to_vec());
    let events_of_thread =
        [event(100, 0, &[5, 90]), event(100, 2, &[5, 10]), event(150, 3, &[5]), event(180, 1, &[5])];
    let streams = [packet(0, &events_of_thread, 0)];
    let path = folder.trace("user", &metadata("ust", &events, OF_PROGRAM), &streams);
    let job = |name, duration, late| Duration { late: Some(late), ..row(name, &[duration], 0) };
    assert_eq!(measured(path, &[]).jobs, [job("motor:cycle", 80, 0), job("motor:step", 50, 1)]);
}

/// Complete calls, and their time, as an independent script finds them in babeltrace2's text.
#[test]
fn calls_of_a_real_trace_agree_with_its_text() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/ctf-corpus/bug446190");
    if !folder.is_dir() {
        eprintln!("not checked: {} is not there", folder.display());
        return;
    }
    let calls = measured(&folder, &[]).syscalls;
    let sum = |number: fn(&Duration) -> u64| calls.iter().map(number).sum::<u64>();
    assert_eq!((sum(|it| it.count), (sum(|it| it.total_ns) + 500_000) / 1_000_000), (1801, 28_146));
}
