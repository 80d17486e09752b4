//! Real-time tests: the loop is measured as it was asked to be, and what the trace lacks is told.

use std::{os::unix::process::CommandExt, process::Command};

use serde_json::Value;

use crate::{
    kernel::permitted,
    support::{TestDir, installed, libraries, run, tompion},
};

/// `tompion test …`, with the libraries where it finds them.
fn test(arguments: &[&str]) -> Command {
    libraries();
    let mut command = tompion();
    command.arg("test").args(arguments);
    command
}

fn json(command: &mut Command) -> Value {
    let out = run(command).succeeded().out;
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// Asserts the properties of every result of npt.
#[track_caller]
fn holds_together(result: &Value, loops: u64) {
    assert_eq!(number(&result["loops"]), loops);
    let counted: u64 =
        result["histogram"].as_array().expect("a histogram").iter().map(|pair| number(&pair[1])).sum();
    assert_eq!(counted, loops);
    let ns = |name: &str| result[name].as_f64().unwrap_or_else(|| panic!("no {name}"));
    let percentile = |name: &str| result["percentiles"][name].as_f64().unwrap_or_else(|| panic!("no {name}"));
    assert!(ns("min_ns") <= percentile("50") && percentile("50") <= percentile("99.99999"));
    assert!(percentile("99.99999") <= ns("max_ns") && ns("min_ns") <= ns("mean_ns"));
    assert!((ns("variance").sqrt() - ns("deviation_ns")).abs() <= 1e-6 * ns("deviation_ns"));
    assert!(number(&result["undisturbed"]["count"]) <= loops);
    assert!(result["clock"]["ticks_per_ns"].as_f64().expect("a rate") > 0.0);
}

#[test]
fn a_loop_without_events_is_measured_alone() {
    for trace in ["none", "clock", "disabled"] {
        let result = json(&mut test(&["npt", "--trace", trace, "--loops", "50k", "--rate", "max", "--json"]));
        holds_together(&result, 50_000);
        assert_eq!((number(&result["events"]), number(&result["lost"])), (0, 0));
        assert!(result["trace"] == trace, "{}", result["trace"]);
    }
}

#[test]
fn the_trace_has_an_event_for_each_loop() {
    let dir = TestDir::new();
    let words =
        ["test", "npt", "--trace", "user", "--loops", "100k", "--rate", "500k", "-o", "trace", "--json"];
    let result = json(&mut dir.tompion(&words));
    holds_together(&result, 100_000);
    assert_eq!((number(&result["events"]), number(&result["lost"])), (100_000, 0));
    let trace = dir.trace("trace");
    assert_eq!(number(&trace.stat()["by_event"]["npt:loop"]), 100_000);
    let mut numbers = trace.events().into_iter().filter(|event| event.name == "npt:loop");
    assert!(
        (1..=100_000).all(|expected| numbers.next().is_some_and(|event| event.number("number") == expected))
    );

    let again = run(&mut dir.tompion(&words)).exited(1);
    assert_eq!(again.err, "tompion: trace exists already; choose another folder with -o, or remove it\n");
}

#[test]
fn events_that_are_missing_are_the_result() {
    let small = ["--subbuf-size", "4K", "--subbufs", "2", "--rate", "max", "--loops", "300k"];
    let result = json(test(&["npt", "--trace", "user", "--json"]).args(small));
    holds_together(&result, 300_000);
    let (events, lost) = (number(&result["events"]), number(&result["lost"]));
    assert_eq!(events + lost, 300_000);
    // A ring of 8 KiB bears no burst of thousands.
    assert!(lost > 0, "{result}");
    let reported: u64 = result["trace_has"]["lost"].as_object().expect("causes").values().map(number).sum();
    assert!(reported >= lost, "{reported} of {lost}");

    let text = run(test(&["npt", "--trace", "user"]).args(small)).succeeded().out;
    assert!(text.contains(" LOST (a lower --rate or a larger --subbuf-size)"), "{text}");
}

#[test]
fn the_kernel_is_recorded_beside_the_loop_or_it_is_said_why_not() {
    let mut command = test(&["npt", "--trace", "both", "--loops", "100k", "--rate", "500k", "--json"]);
    command.args(["--subbuf-size", "4M"]);
    let finished = run(&mut command);
    if finished.status.code() == Some(1) {
        assert!(finished.err.starts_with("tompion: the kernel could not be recorded: "), "{}", finished.err);
        eprintln!("SKIPPED, the kernel can't be recorded here");
        return;
    }
    let result: Value = serde_json::from_str(&finished.succeeded().out).expect("JSON");
    holds_together(&result, 100_000);
    assert_eq!(number(&result["events"]) + number(&result["lost"]), 100_000);
    assert!(number(&result["trace_has"]["others"]) > 0);
}

#[test]
fn the_text_has_the_figures_and_what_came_between() {
    let out = run(&mut test(&["npt", "--loops", "1M", "--rate", "max"])).succeeded().out;
    for words in
        ["1,000,000 loops", "minimum", "99.99999 %", "maximum", "undisturbed", "interrupts  ", "stolen time"]
    {
        assert!(out.contains(words), "{words}: {out}");
    }
}

/// A user and group that every machine has, with no rights.
const UNPRIVILEGED_UID: u32 = 65534;

#[test]
fn without_rights_the_loop_runs_and_says_what_it_lacks() {
    // Root runs the command as an unprivileged user, if that user can reach it. Other users have no
    // rights already.
    let mut attempt = tompion();
    let can = attempt
        .arg("--version")
        .uid(UNPRIVILEGED_UID)
        .gid(UNPRIVILEGED_UID)
        .output()
        .is_ok_and(|output| output.status.success());
    let mut command = test(&["npt", "--trace", "user", "--loops", "50k", "--rate", "500k"]);
    command.current_dir("/tmp");
    if can {
        command.uid(UNPRIVILEGED_UID).gid(UNPRIVILEGED_UID);
    }
    let out = run(&mut command).succeeded().out;
    if !can && out.contains("SCHED_FIFO 80, ") {
        eprintln!("SKIPPED, the command is out of reach for users without rights");
        return;
    }
    assert!(out.contains("an ordinary thread"), "{out}");
    assert!(out.contains("could not run under SCHED_FIFO 80: "), "{out}");
    assert!(out.contains("50,000 events of 50,000 loops, none lost"), "{out}");
}

#[test]
fn bad_options_are_reported_in_a_line() {
    let line = |arguments: &[&str], code| {
        let err = run(&mut test(arguments)).exited(code).err;
        err.lines().next().unwrap_or_default().to_owned()
    };
    assert!(
        line(&["npt", "--cpu", "8191"], 1).starts_with("tompion: no CPU 8191 for this process; it may use ")
    );
    assert!(
        line(&["npt", "--rate", "fast"], 2)
            .ends_with("expected a rate such as 500k, 2M or max, found `fast`")
    );
    assert!(line(&["npt", "--loops", "0"], 2).ends_with("expected a number such as 500k or 100M, found `0`"));
    assert!(line(&["npt", "--priority", "100"], 2).contains("100 is not in 1..=99"));
    let peer = line(&["npt", "--peer", "lttng", "--trace", "kernel"], 2);
    assert_eq!(peer, "tompion: --peer lttng measures the event in the loop: it goes with --trace user");
    let geometry = line(&["npt", "--trace", "user", "--subbuf-size", "5000", "--loops", "1k"], 1);
    assert_eq!(geometry, "tompion: a sub-buffer has a power of two from 4K to 256M bytes, not 5000");
    let producers = line(&["maxrate", "--producers", "8000"], 2);
    assert!(producers.starts_with("tompion: expected --producers of at most "), "{producers}");
}

#[test]
fn another_tracer_that_is_not_there_is_left_out_with_a_line() {
    let mut command = test(&["npt", "--peer", "lttng", "--loops", "10k", "--json"]);
    let finished = run(command.env("PATH", "/nonexistent")).succeeded();
    assert_eq!(
        finished.err,
        "tompion: LTTng is left out: the command `lttng` is missing (apt install lttng-tools liblttng-ust-dev)\n"
    );
    let result: Value = serde_json::from_str(&finished.out).expect("JSON");
    assert!(number(&result["events"]) == 10_000 && result["peers"].is_null());
}

#[test]
fn another_tracer_records_the_same_loop() {
    if !installed("lttng") || !installed("lttng-sessiond") {
        eprintln!("SKIPPED, LTTng is not installed");
        return;
    }
    let words = ["npt", "--peer", "lttng", "--loops", "20k", "--rate", "100k", "--json"];
    let finished = run(&mut test(&words)).succeeded();
    if finished.err.contains("LTTng is left out") {
        eprintln!("SKIPPED, {}", finished.err);
        return;
    }
    let result: Value = serde_json::from_str(&finished.out).expect("JSON");
    assert_eq!(result["recorder"], "Tompion");
    let peers = result["peers"].as_array().expect("peers");
    let names: Vec<&str> = peers.iter().filter_map(|peer| peer["recorder"].as_str()).collect();
    assert_eq!(names, ["LTTng, read timer", "LTTng, wakeups"]);
    for peer in peers {
        holds_together(peer, 20_000);
        assert_eq!(number(&peer["events"]) + number(&peer["lost"]), 20_000);
        assert!(number(&peer["events"]) > 0);
    }
}

#[test]
fn the_highest_rate_is_found_between_two_trials() {
    let words = ["maxrate", "--duration", "50ms", "--near", "100", "--subbuf-size", "64K", "--json"];
    let result = json(&mut test(&words));
    let best = result["events_per_second"].as_f64().expect("a rate");
    let trials = result["trials"].as_array().expect("trials");
    let at = |trial: &Value| trial["rate"].as_f64().expect("a rate");
    assert!(trials.iter().any(|trial| at(trial) == best && trial["borne"] == true));
    for trial in trials {
        assert!(trial["borne"] == false || number(&trial["lost"]) == 0, "{trial}");
        assert!(number(&trial["events"]) > 0, "{trial}");
    }
}

#[test]
fn the_highest_rate_beside_the_kernels_events_is_found_too() {
    if !permitted() {
        return;
    }
    for what in ["syscalls", "all"] {
        let words = [
            "maxrate",
            "--trace",
            what,
            "--duration",
            "50ms",
            "--near",
            "100",
            "--subbuf-size",
            "1M",
            "--json",
        ];
        let result = json(&mut test(&words));
        assert!(result["load"] == what && result["events_per_second"].as_f64() > Some(0.0), "{result}");
        for trial in result["trials"].as_array().expect("trials") {
            assert!(number(&trial["kernel_events"]) > 0, "{trial}");
        }
    }
}
