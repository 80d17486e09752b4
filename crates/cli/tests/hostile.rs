//! Programs that lie to their session in every way that they have: through the memory that they
//! share with it, and over its socket.

use std::{collections::BTreeMap, fs, process::Child, time::Duration};

use crate::{
    fallback::WITHOUT_RSEQ,
    support::{Finished, TestDir, Trace, finish, rounds, run, start, tompion},
};

/// Damages of one recording.
const CORRUPTIONS: u32 = 20_000;

/// Waits for the end of a recording; also says how much memory it took at most, in KiB.
fn finish_and_measure(recording: Child) -> (Finished, u64) {
    let status = format!("/proc/{}/status", recording.id());
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    let most = std::thread::spawn(move || {
        let mut most = 0;
        while receiver.recv_timeout(Duration::from_millis(20)).is_err_and(|error| {
            // Nothing is sent; the other end is closed when the recording has ended.
            error == std::sync::mpsc::RecvTimeoutError::Timeout
        }) {
            let text = fs::read_to_string(&status).unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            let size = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
            most = most.max(size.unwrap_or(0));
        }
        most
    });
    let finished = finish(recording, "record");
    drop(sender);
    (finished, most.join().expect("the measuring thread"))
}

/// Returns whether a text can be sent to a terminal.
fn is_harmless(text: &str) -> bool {
    text.chars().all(|letter| letter == '\n' || letter == '\t' || !letter.is_control())
}

/// Asserts that all tools read the trace, and that each innocent process has all its records, in
/// order. `out` is their output.
fn innocents_are_whole(trace: &Trace, out: &str, what: &str) {
    let reported = out.lines().filter_map(|line| line.strip_prefix("innocent ")?.split_once(' '));
    let reported: BTreeMap<&str, u64> =
        reported.map(|(pid, count)| (pid, count.parse().expect("a count"))).collect();
    let json = run(tompion().args(["print", "--format", "json", "-e", "innocent:*"]).arg(&trace.folder));
    let mut counts = BTreeMap::<&str, u64>::new();
    for line in json.succeeded().out.lines() {
        let event = crate::support::event(line);
        // The others may say that they are innocent.
        let Some(pid) = reported.keys().find(|pid| event.source.ends_with(&format!("-{pid}"))) else {
            continue;
        };
        let count = counts.entry(pid).or_default();
        *count += 1;
        assert_eq!(event.number("number"), *count, "{what}: {line}");
    }
    assert!(reported.len() > 1, "{what}: {out}");
    assert_eq!(counts, reported, "{what}");
}

/// Returns whether print, stat and babeltrace2 read the trace.
fn is_readable(trace: &Trace, what: &str) {
    let printed = run(tompion().arg("print").arg(&trace.folder)).succeeded();
    assert!(is_harmless(&printed.out) && is_harmless(&printed.err), "{what}");
    let stat = run(tompion().arg("stat").arg(&trace.folder)).succeeded();
    assert!(is_harmless(&stat.out) && is_harmless(&stat.err), "{what}: {}{}", stat.out, stat.err);
    let theirs = trace.babeltrace().out;
    assert_eq!(theirs.lines().count(), printed.out.lines().count(), "{what}");
    assert_eq!(trace.stat()["events"], printed.out.lines().count(), "{what}");
}

#[test]
fn a_program_that_damages_shared_memory_harms_no_other() {
    let dir = TestDir::new();
    let program = dir.program("hostile");
    let (mut refused, mut corruptions) = (0, 0);
    for seed in 1..=rounds(4, 56) {
        let name = format!("trace-{seed}");
        let mode = if seed % 2 == 0 { "discard" } else { "overwrite" };
        let mut options = vec!["--mode", mode, "--subbuf-size", "64K", "--subbufs", "32"];
        // Sealed memory or files, by sections or without; each in both modes in eight seeds.
        let in_files = (seed % 4 >= 2) != (seed % 8 >= 5);
        let has_rseq = (1..=2).contains(&(seed % 4));
        if in_files {
            options.extend(["--backing", "rings"]);
        }
        let what = format!("seed {seed}, {mode}, in files: {in_files}, rseq: {has_rseq}");
        let command: [&dyn AsRef<std::ffi::OsStr>; 3] =
            [&program, &seed.to_string(), &CORRUPTIONS.to_string()];
        let mut recording = dir.recording(&name, &options, &command);
        if !has_rseq {
            recording.env(WITHOUT_RSEQ.0, WITHOUT_RSEQ.1);
        }
        let (finished, memory) = finish_and_measure(start(&mut recording));
        let finished = finished.succeeded();
        assert!(finished.out.contains(&format!("corruptions {CORRUPTIONS}\n")), "{what}: {}", finished.err);
        assert!(!finished.err.contains("panicked") && is_harmless(&finished.err), "{what}: {}", finished.err);
        assert!(memory < 400 << 10, "{what}: {memory} KiB");
        corruptions += CORRUPTIONS;

        let trace = dir.trace(&name);
        innocents_are_whole(&trace, &finished.out, &what);
        is_readable(&trace, &what);
        let count = trace.stat()["lost"]["refused"].as_u64().unwrap_or(0);
        println!("{what}: {count} refused, {memory} KiB, {} events", trace.stat()["events"]);
        refused += u64::from(count > 0);
        fs::remove_dir_all(&trace.folder).expect("the trace");
    }
    println!("{corruptions} corruptions; refused something in {refused} recordings");
    assert!(refused > 0);
}

#[test]
fn a_program_that_claims_endless_events_fills_no_memory() {
    let dir = TestDir::new();
    let program = dir.program("hostile");
    let fills = rounds(100, 500).to_string();
    let options = ["--subbuf-size", "64K", "--subbufs", "8", "-c", "comm,prio"];
    let recording = start(&mut dir.recording("trace", &options, &[&program, &"1", &fills, &"flood"]));
    let (finished, memory) = finish_and_measure(recording);
    let finished = finished.succeeded();
    assert!(!finished.err.contains("panicked") && is_harmless(&finished.err), "{}", finished.err);
    println!("{fills} times a full ring: {memory} KiB, {}", finished.err);
    assert!(memory < 400 << 10, "{memory} KiB");
    innocents_are_whole(&dir.trace("trace"), &finished.out, "flood");
}

#[test]
fn a_client_that_sends_nonsense_harms_no_other() {
    let dir = TestDir::new();
    let program = dir.program("hostile_talk");
    for (mode, seed) in ["overwrite", "discard"].into_iter().zip(1..) {
        let connections = rounds(2000, 20_000).to_string();
        let options = ["--mode", mode, "--subbuf-size", "64K", "--subbufs", "32"];
        let command: [&dyn AsRef<std::ffi::OsStr>; 3] = [&program, &seed.to_string(), &connections];
        let recording = start(&mut dir.recording(mode, &options, &command));
        let (finished, memory) = finish_and_measure(recording);
        let finished = finished.succeeded();
        assert!(finished.out.contains(&format!("connections {connections}\n")), "{mode}: {}", finished.err);
        assert!(!finished.err.contains("panicked") && is_harmless(&finished.err), "{mode}: {}", finished.err);
        assert!(finished.err.lines().count() < 300, "{mode}: {}", finished.err);
        // Each of the conversations that go on at the same time has memory of its own.
        assert!(memory < 1 << 20, "{mode}: {memory} KiB");

        let numbers = |line: &str| line.split(' ').filter_map(|word| word.parse().ok()).collect::<Vec<u64>>();
        let heard = finished.out.lines().filter(|line| line.starts_with("heard ")).map(numbers);
        let heard = heard.fold(vec![0; 3], |sum, line| sum.iter().zip(line).map(|(a, b)| a + b).collect());
        println!("{mode}: refusals, welcomes and resized files {heard:?}, {memory} KiB");
        assert!(heard[0] > 0 && heard[1] > 0 && heard[2] == 0, "{mode}: {heard:?}");

        let trace = dir.trace(mode);
        innocents_are_whole(&trace, &finished.out, mode);
        is_readable(&trace, mode);
        let made = finished.out.lines().find_map(|line| line.strip_prefix("newcomers ")?.parse().ok());
        assert_eq!(trace.stat()["by_event"]["newcomer:here"].as_u64(), made, "{mode}: {}", finished.err);
    }
}

/// Each time that it joins, it has tens of thousands of new event names.
#[test]
fn a_program_with_endless_names_fills_no_memory() {
    let dir = TestDir::new();
    let program = dir.program("hostile_names");
    let times = rounds(300, 3000);
    let options = ["--subbuf-size", "64K", "--subbufs", "4"];
    let recording = start(&mut dir.recording("trace", &options, &[&program, &times.to_string()]));
    let (finished, memory) = finish_and_measure(recording);
    let finished = finished.succeeded();
    assert!(!finished.err.contains("panicked") && is_harmless(&finished.err), "{}", finished.err);
    assert!(finished.out.contains(&format!("took part {times}\n")), "{}{}", finished.out, finished.err);
    println!("{times} times: {memory} KiB, {}", finished.err);
    // Without limits it was 4.6 MB each time.
    assert!(memory < 500 << 10, "{memory} KiB");
    assert!(finished.err.contains("beyond the limits of one recording"), "{}", finished.err);
    let trace = dir.trace("trace");
    innocents_are_whole(&trace, &finished.out, "names");
    let not_kept = &trace.stat()["beyond_limits"];
    assert!(not_kept["event_names"].as_u64() > Some(u64::from(times) * 1000), "{not_kept}");
    // Descriptions count while their participation lasts, and how many last at a time is not the
    // program's choice: `budget.rs` has the tests of that limit.
    is_readable(&trace, "names");
}
