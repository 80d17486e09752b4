//! Times by state, wakers, preemptors, durations and causes, held against what
//! `tests/independent.py` computes from the printed text alone.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::{
    kernel::permitted,
    monitor::Own,
    monitor_incidents::folders,
    support::{TOMPION, TestDir, finish, installed, repository, run, start},
};

/// Compares traces. Returns what the script printed: a line for each with the numbers of
/// comparisons.
fn compare(traces: &[PathBuf]) -> Option<String> {
    if !installed("python3") {
        eprintln!("SKIPPED, python3 is not installed");
        return None;
    }
    let mut script = Command::new("python3");
    script.arg(repository().join("tests/independent.py")).arg(TOMPION).args(traces).env("TZ", "UTC");
    Some(run(&mut script).succeeded().out)
}

/// Returns the number of comparisons of a kind in a script's output.
fn compared(output: &str, kind: &str) -> u64 {
    let counts = output.split([',', ':']).filter_map(|part| part.trim().strip_suffix(kind));
    counts.filter_map(|count| count.trim().parse::<u64>().ok()).sum()
}

#[test]
fn traces_of_other_tracers_say_what_their_printed_events_say() {
    let corpus = repository().join("../shared/ctf-corpus");
    let dir = TestDir::new();
    let mut traces = Vec::new();
    for name in ["bug446190", "perf-taskset2", "many-threads"] {
        let (from, to) = (corpus.join(name), dir.path(name));
        if !from.is_dir() {
            eprintln!("SKIPPED, {} is not there", from.display());
            continue;
        }
        // The index stands beside the trace.
        run(Command::new("cp").arg("-r").args([&from, &to])).succeeded();
        traces.push(to);
    }
    let Some(output) = compare(&traces).filter(|_| !traces.is_empty()) else { return };
    for kind in ["times of threads", "wakers", "preemptors", "system calls", "percentiles"] {
        assert!(compared(&output, kind) > 20, "{kind}: {output}");
    }
}

#[test]
fn own_traces_say_what_their_printed_events_say() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let work = "for i in 1 2 3 4 5 6 7 8; do (sleep 0.02; echo $i) | cat; done; echo";
    let snapshots = "i=0; while [ $i -lt 3 ]; do n=0; while [ $n -lt 400 ]; do /bin/true; n=$((n + 1)); done; \
                     kill -USR1 $PPID; sleep 0.2; i=$((i + 1)); done";
    // While the recorder stands still, its rings fill up.
    let losses = "kill -STOP $PPID; n=0; while [ $n -lt 300 ]; do /bin/true; n=$((n + 1)); done; \
                  kill -CONT $PPID; sleep 0.3";
    let small = ["-k", "--subbuf-size", "64K", "--subbufs", "2"];
    let overwrite = [&small[..], &["--mode", "overwrite"]].concat();
    for (name, options, script) in
        [("whole", &["-k"][..], work), ("gaps", &overwrite, snapshots), ("losses", &small, losses)]
    {
        run(&mut dir.recording(name, options, &[&"sh", &"-c", &script])).succeeded();
    }
    assert!(dir.trace("gaps").stat()["overwritten_gaps"].as_u64().unwrap_or(0) > 0, "no gaps");
    assert!(dir.trace("losses").stat()["lost"]["total"].as_u64().unwrap_or(0) > 0, "no losses");
    let Some(output) = compare(&["whole", "gaps", "losses"].map(|name| dir.path(name))) else { return };
    for kind in ["times of CPUs", "times of threads", "wakers", "preemptors", "system calls"] {
        assert!(compared(&output, kind) > 5, "{kind}: {output}");
    }
}

/// Runs a thread of this name on the last CPU with a priority: it sleeps for a millisecond, then is
/// busy for this time, again and again.
fn real_time(
    name: &str,
    priority: u32,
    busy: Duration,
    is_over: &'static AtomicBool,
) -> thread::JoinHandle<()> {
    let run = move || {
        let cpus = tompion_os::allowed_cpus();
        tompion_os::set_affinity(0, &cpus[cpus.len() - 1..]).expect("a CPU");
        tompion_os::run_fifo(priority).expect("a real-time priority");
        while !is_over.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(if busy.is_zero() { 1 } else { 20 }));
            let begun = Instant::now();
            while begun.elapsed() < busy {}
        }
    };
    thread::Builder::new().name(name.into()).spawn(run).expect("a thread")
}

#[test]
fn explain_and_the_viewer_say_of_late_wake_ups_what_the_events_say() {
    const INCIDENTS: usize = 20;
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    let Some(own) = Own::new("independent") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let parent: &Path = folder.path();
    let most = INCIDENTS.to_string();
    let rule = "late-check=1ms";
    let mut command = own.monitor(&["--threshold", rule, "--pause", "0s", "--most", &most]);
    let catcher = start(command.arg("--incidents").arg(parent));
    let threads = [
        real_time("late-check", 40, Duration::ZERO, &IS_OVER),
        real_time("hog-check", 50, Duration::from_millis(4), &IS_OVER),
    ];
    let finished = finish(catcher, "monitor --threshold");
    IS_OVER.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().expect("a thread that ends"));
    finished.succeeded();
    let incidents = folders(parent);
    assert_eq!(incidents.len(), INCIDENTS);
    let Some(output) = compare(&incidents) else { return };
    assert_eq!(compared(&output, "explain and viewer"), 3 * INCIDENTS as u64, "{output}");
    assert!(compared(&output, "causes") >= INCIDENTS as u64, "{output}");
}
