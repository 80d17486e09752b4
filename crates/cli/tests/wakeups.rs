//! `tompion test cyclic`, `preempt` and `hwgap`: as often as asked, on the CPUs that were asked
//! for; what could not be had is told.

use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    kernel::permitted,
    support::{TestDir, finish, run, signal, start, tompion, wait_until},
};

fn test(arguments: &[&str]) -> Command {
    let mut command = tompion();
    command.arg("test").args(arguments);
    command
}

fn json(out: &str) -> Value {
    serde_json::from_str(out).unwrap_or_else(|error| panic!("{error}: {out}"))
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("no list: {value}"))
}

/// The last CPU that this process may use.
fn last_cpu() -> String {
    tompion_os::allowed_cpus().last().expect("a CPU").to_string()
}

#[test]
fn wake_ups_are_as_many_as_asked_on_each_cpu() {
    for (wakeup, policy) in
        [("nanosleep", "fifo"), ("timerfd", "rr"), ("timer", "deadline"), ("futex", "other")]
    {
        let words =
            ["cyclic", "--loops", "40", "-i", "500us", "--wakeup", wakeup, "--policy", policy, "--json"];
        let result = json(&run(&mut test(&words)).succeeded().out);
        let cpus = list(&result["cpus"]);
        assert_eq!(cpus.len(), tompion_os::allowed_cpus().len(), "{result}");
        for cpu in cpus {
            let late = &cpu["late"];
            assert_eq!(number(&late["count"]), 40, "{cpu}");
            let counted: u64 = list(&late["histogram"]).iter().map(|pair| number(&pair[1])).sum();
            assert_eq!(counted, 40);
            assert!(late["min_ns"].as_f64() <= late["max_ns"].as_f64());
        }
        assert!(result["broken"].is_null() && result["wakeup"] == wakeup);
    }
}

#[test]
fn the_table_has_a_row_for_each_cpu() {
    let last = last_cpu();
    let words = ["cyclic", "--cpus", &last, "--loops", "20", "--policy", "other", "--histogram"];
    let out = run(&mut test(&words)).succeeded().out;
    assert!(out.starts_with("1 CPU, woken every 1.00 ms by clock_nanosleep, ordinary threads\n"), "{out}");
    let rows = out.lines().map(|line| line.split_whitespace().take(2).collect::<Vec<_>>());
    assert_eq!(rows.filter(|row| *row == [last.as_str(), "20"]).count(), 1, "{out}");
    assert!(out.contains("from µs"), "{out}");
}

#[test]
fn an_interrupt_ends_it_with_a_result() {
    let mut command = test(&["cyclic", "--duration", "1h", "--policy", "other", "--json"]);
    let running = start(&mut command);
    // It takes signals once its threads are there.
    let tasks = format!("/proc/{}/task", running.id());
    wait_until("the threads", || std::fs::read_dir(&tasks).is_ok_and(|tasks| tasks.count() > 1));
    signal(running.id(), Signal::INT);
    let result = json(&finish(running, "cyclic").succeeded().out);
    assert!(!list(&result["cpus"]).is_empty());
}

#[test]
fn a_late_wakeup_ends_the_test_and_is_reported() {
    let words = ["cyclic", "--break-trace", "1ns", "--policy", "other", "--json"];
    let finished = run(&mut test(&words)).exited(1);
    let broken = &json(&finished.out)["broken"];
    assert!(number(&broken["late_ns"]) > 1 && broken["asked"].is_null(), "{broken}");
    let lines: Vec<&str> = finished.err.lines().collect();
    assert!(
        matches!(lines[..], [warning, late] if warning.contains("no recording") && late.contains(" late, expected at ")),
        "{}",
        finished.err
    );
}

#[test]
fn a_late_wake_up_has_the_recording_saved() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let command: [&dyn AsRef<std::ffi::OsStr>; 6] =
        [&crate::support::TOMPION, &"test", &"cyclic", &"--json", &"--break-trace", &"1ns"];
    let recorded = run(&mut dir.recording("trace", &["-k", "sched_*", "--mode", "overwrite"], &command));
    assert!(recorded.err.contains("saves a snapshot"), "{}", recorded.err);
    let result = json(recorded.out.split_inclusive("\n}\n").next().expect("a result"));
    assert!(number(&result["broken"]["asked"]) > 1);
    assert!(recorded.err.contains("tompion: saved "), "{}", recorded.err);
}

#[test]
fn preemption_is_tried_as_often_as_asked() {
    let finished = run(&mut test(&["preempt", "--rounds", "30", "--json"]));
    let result = json(&finished.out);
    let mut always = true;
    for way in ["by_thread", "by_timer"] {
        let way = &result[way];
        assert_eq!((number(&way["rounds"]), number(&way["until_running"]["count"])), (30, 30), "{way}");
        always &= number(&way["preempted"]) == 30;
    }
    finished.exited(i32::from(!always));
    let text = run(&mut test(&["preempt", "--rounds", "5"])).out;
    assert!(text.contains("the lower thread") && text.contains("a timer"), "{text}");
}

#[test]
fn gaps_are_reported_by_cause() {
    let words = ["hwgap", "--duration", "300ms", "--threshold", "1us", "--json"];
    let result = json(&run(&mut test(&words)).succeeded().out);
    let cpus = list(&result["cpus"]);
    assert_eq!(cpus.len(), tompion_os::allowed_cpus().len());
    for cpu in cpus {
        assert!(number(&cpu["looked_ns"]) >= 200_000_000, "{cpu}");
    }
    for gap in list(&result["gaps"]) {
        assert!(gap["cause"] == "unknown" || gap["cause"] == "steal", "{gap}");
    }
    let text = run(&mut test(&["hwgap", "--duration", "100ms", "--width", "10ms"])).succeeded().out;
    assert!(text.contains("CPU  cause ") && text.contains("gaps above 10.0 µs"), "{text}");
}

#[test]
fn errors_are_one_line() {
    let failed = |words: &[&str]| run(&mut test(words)).exited(1).err;
    for test in ["cyclic", "hwgap"] {
        let said = failed(&[test, "--cpus", "8191"]);
        assert!(said.starts_with("tompion: no CPU 8191 for this process; it may use "), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    assert!(failed(&["preempt", "--cpu", "8191"]).starts_with("tompion: no CPU 8191 "));
    assert!(failed(&["hwgap", "--width", "2s"]).contains("expected a --width above zero"));
    let usage = |words: &[&str], expected: &str| {
        let said = run(&mut test(words)).exited(2).err;
        assert!(said.contains(expected), "{said}");
    };
    usage(&["cyclic", "--interval", "1ns"], "expected 10us to 60s, found `1ns`");
    usage(&["cyclic", "--priority", "100"], "100");
    usage(&["cyclic", "--cpus", "x"], "expected CPUs such as 2-3,5, found `x`");
    usage(&["preempt", "--priority", "99"], "99");
}
