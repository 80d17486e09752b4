//! A real-time program to which recorders come and go.

use std::{fs, process::Command};

use rustix::process::Signal;

use crate::{
    attach::Ticker,
    support::{TestDir, finish, rounds, signal, start, wait_until},
};

/// Memory of a process by the kernel's count, and its number of mappings.
#[derive(Debug, PartialEq)]
struct Occupied {
    kilobytes: Vec<(String, u64)>,
    mappings: usize,
}

fn maps(pid: &str) -> String {
    fs::read_to_string(format!("/proc/{pid}/maps")).expect("a process that runs")
}

/// Locked, resident and mapped memory of a process.
fn occupied(pid: &str) -> Occupied {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("a process that runs");
    let value = |name: &str| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line of the status");
        line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().expect("a number")
    };
    let kilobytes = ["VmLck", "VmRSS", "VmSize"].map(|name| (name.to_owned(), value(name))).to_vec();
    Occupied { kilobytes, mappings: maps(pid).lines().count() }
}

/// Attaches a recorder to a process, and detaches it once the process takes part.
fn attach_and_detach(dir: &TestDir, pid: &str, options: &[&str]) {
    let mut command = dir.tompion(&["record", "-o", "trace", "-p", pid]);
    let recording = start(command.args(options));
    wait_until("rings in the process", || maps(pid).contains("tompion-rings"));
    signal(recording.id(), Signal::INT);
    // It may have recorded nothing in this moment.
    finish(recording, "record -p");
    wait_until("no rings in the process", || !maps(pid).contains("/memfd:tompion-"));
    let _ = fs::remove_dir_all(dir.path("trace"));
}

#[test]
fn a_process_occupies_the_same_memory_after_a_thousand_attaches_as_before() {
    let dir = TestDir::new();
    let program = dir.program("locked_loop");
    let ticker = Ticker::start(&mut Command::new(program));
    let pid = ticker.pid();
    // The first attaches let the agent's heap grow to what it needs.
    let options: [&[&str]; 2] = [&["--subbuf-size", "16K"], &["--subbuf-size", "64K", "--mode", "overwrite"]];
    for options in options.iter().cycle().take(4) {
        attach_and_detach(&dir, &pid, options);
    }
    let before = occupied(&pid);
    for options in options.iter().cycle().take(rounds(30, 1000) as usize) {
        attach_and_detach(&dir, &pid, options);
    }
    assert_eq!(occupied(&pid), before);
    ticker.end();
}
