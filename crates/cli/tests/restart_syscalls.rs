//! Recorders that are killed at their Nth system call, before the kernel has done it, for many N:
//! each event is in the trace exactly once. strace does it.

use std::{
    process::{Child, Command},
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use crate::{
    calls::installed_strace,
    kills::{Progress, found_in},
    recovery::kill_session,
    restart::{
        LINGER, Random, nothing_is_lost, record_emitters, restarts_of, resume, there_are_no_gaps,
        wait_for_recorder,
    },
    restart_chunks::{OFTEN, chunks_agree, no_packet_is_missing},
    support::{self, TestDir, rounds, start, wait_until},
};

/// Calls that change what the next recorder finds. Each thread counts its own.
const CHANGES: &str =
    "/^(write|pwrite64|rename|renameat|renameat2|mkdirat|openat|unlinkat|ftruncate|sendmsg|close)$";
/// Calls of a recorder from its start until it records, about.
const MANY_CALLS: u64 = 900;
/// Time after which a recorder is killed that makes fewer calls.
const CALLS_TIMEOUT: Duration = Duration::from_millis(1500);

/// The command under strace, which kills it as one of its threads makes its `number`th call of a
/// set.
fn killed_at(command: &Command, calls: &str, number: u64) -> Command {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qqq", "-e", "signal=none", "-o", "/dev/null"]);
    strace.arg(format!("--inject={calls}:signal=KILL:when={number}"));
    strace.arg(command.get_program()).args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        strace.current_dir(folder);
    }
    strace.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    strace
}

/// Waits for the end of a recorder under strace; kills one that goes on for long.
fn wait_for_death(mut strace: Child) {
    let begin = Instant::now();
    while strace.try_wait().expect("a child of this test").is_none() {
        if begin.elapsed() > CALLS_TIMEOUT {
            // The recorder, and not strace, which would leave it running.
            let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", strace.id()));
            let children = children.unwrap_or_default();
            let pids = children.split_whitespace().filter_map(|pid| pid.parse().ok());
            pids.for_each(|pid| support::signal(pid, Signal::KILL));
            strace.wait().expect("a child of this test");
            return;
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// Has a recorder work for a moment, so that rings don't become full.
fn empty_the_rings(dir: &TestDir) {
    let before = restarts_of(dir);
    let recorder = start(&mut resume(dir));
    wait_for_recorder(dir, before + 1);
    thread::sleep(Duration::from_millis(30));
    kill_session(recorder);
}

/// Kills of recorders at their system calls.
#[derive(Clone, Copy)]
pub struct KillAt {
    /// Number of kills.
    pub times: u32,
    /// Calls of a recorder until it records, about.
    pub most: u64,
    pub seed: u64,
}

/// Kills recorders that go on with a recording at their system calls.
pub fn kill_at_calls(dir: &TestDir, KillAt { times, most, seed }: KillAt) {
    let (mut random, times) = (Random(seed), u64::from(times));
    for round in 0..times {
        // All numbers in turn where there is time, else some.
        let number = match times > most {
            true => round / 2 + 1,
            false => random.below(most) + 1,
        };
        let (calls, number) = if round % 2 == 0 { ("all", number) } else { (CHANGES, number / 3 + 1) };
        wait_for_death(start(&mut killed_at(&resume(dir), calls, number)));
        if round % 2 == 1 {
            empty_the_rings(dir);
        }
    }
}

/// Records programs with these options, and kills recorders at their system calls.
fn kill_recorders(options: &[&str], seed: u64) -> (TestDir, Vec<Progress>, Vec<u32>) {
    let dir = TestDir::new();
    let (recorder, all) = record_emitters(&dir, &[LINGER, options].concat());
    wait_until("all programs", || all.iter().all(|progress| progress.pid() != 0));
    thread::sleep(Duration::from_millis(300));
    kill_session(recorder);
    let pids: Vec<u32> = all.iter().map(Progress::pid).collect();
    let times = rounds(16, 2 * MANY_CALLS as u32);
    kill_at_calls(&dir, KillAt { times, most: MANY_CALLS, seed });
    (dir, all, pids)
}

fn each_event_is_there_once(options: &[&str], seed: u64) {
    if !installed_strace() {
        eprintln!("not tried: strace is not there or may not trace");
        return;
    }
    let (dir, all, pids) = kill_recorders(options, seed);
    let before = restarts_of(&dir);
    let recorder = start(&mut resume(&dir));
    wait_for_recorder(&dir, before + 1);
    thread::sleep(Duration::from_millis(300));
    pids.iter().for_each(|pid| support::signal(*pid, Signal::KILL));
    nothing_is_lost(&dir, recorder);
    no_packet_is_missing(&dir);
    let found = found_in(&dir.trace("trace"));
    for (progress, pid) in all.iter().zip(&pids) {
        there_are_no_gaps(&found, progress, *pid);
    }
    if !options.is_empty() {
        chunks_agree(&dir, &found);
    }
}

#[test]
fn a_recorder_that_is_killed_at_its_system_calls_loses_and_doubles_nothing() {
    each_event_is_there_once(&[], 0x5eed);
}

#[test]
fn a_recorder_in_chunks_that_is_killed_at_its_system_calls_loses_and_doubles_nothing() {
    each_event_is_there_once(&OFTEN, 0xfeed);
}
