//! A supervisor that is killed at its Nth system call, before the kernel has done it, for many N:
//! its recorders go on, and the next supervisor finds each of them. strace does it.

use std::{
    collections::BTreeSet,
    fs,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    calls::installed_strace,
    restart::Random,
    supervisor::{Supervisor, apart, describe, pid},
    support::{TestDir, rounds, signal, wait_until},
};

/// Calls of a supervisor from its start until it waits, about.
const MANY_CALLS: u64 = 700;
/// Time after which a supervisor is killed that makes fewer calls.
const CALLS_TIMEOUT: Duration = Duration::from_millis(1500);

/// Starts a supervisor under strace, which kills it as its main thread makes its `number`th call.
/// The recorders that it starts are not traced.
fn start_killed_at(dir: &TestDir, number: u64) -> Child {
    let mut command = Command::new("unshare");
    command.args(["--net", "strace", "-qqq", "-e", "signal=none", "-o", "/dev/null"]);
    command.arg(format!("--inject=all:signal=KILL:when={number}"));
    command.arg(dir.tompion(&[]).get_program()).arg("serve");
    command.current_dir(dir.path("")).stdin(Stdio::null()).stderr(Stdio::null());
    apart(&mut command, dir);
    command.spawn().expect("unshare")
}

/// Waits until strace has killed the supervisor; kills one that goes on for long.
fn wait_for_death(mut strace: Child) {
    let begin = Instant::now();
    while strace.try_wait().expect("a child of this test").is_none() {
        if begin.elapsed() > CALLS_TIMEOUT {
            let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", strace.id()));
            let children = children.unwrap_or_default();
            children.split_whitespace().filter_map(|pid| pid.parse().ok()).for_each(|pid: u32| {
                signal(pid, Signal::KILL);
            });
            strace.wait().expect("a child of this test");
            return;
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// Process ids of all recorders of a test, by what they were started with.
fn recorders(dir: &TestDir) -> Vec<(u32, String)> {
    let output = dir.path("traces").display().to_string();
    let entries = fs::read_dir("/proc").expect("processes").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let recorder = |pid: u32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        let session = words.split(" --session ").nth(1)?.split(' ').next()?.to_owned();
        (words.contains(" record ") && words.contains(&output)).then_some((pid, session))
    };
    pids.filter_map(recorder).collect()
}

#[test]
fn a_supervisor_that_is_killed_at_its_system_calls_leaves_its_recorders_to_the_next() {
    if !installed_strace() {
        eprintln!("not tried: strace is not there or may not trace");
        return;
    }
    let dir = TestDir::new();
    let channel = "programs = ['name=none-of-this-name']\nstart = 'boot'\n[channel.main]";
    describe(&dir, "first", channel);
    let supervisor = Supervisor::start(&dir);
    let first = pid(&supervisor.wait_for("first", "main", "running"));
    supervisor.kill();
    let mut random = Random(0x5e4e);
    let times = u64::from(rounds(12, MANY_CALLS as u32));
    let mut sessions: BTreeSet<String> = ["first".to_owned()].into();
    for round in 0..times {
        let number = if times >= MANY_CALLS { round + 1 } else { random.below(MANY_CALLS) + 1 };
        // Now and then there is another recorder to be started.
        if round % 4 == 0 && sessions.len() < 8 {
            let name = format!("session{round}");
            describe(&dir, &name, channel);
            sessions.insert(name);
        }
        wait_for_death(start_killed_at(&dir, number));
        assert!(recorders(&dir).iter().any(|(pid, _)| *pid == first), "the first recorder goes on");
    }
    let supervisor = Supervisor::start(&dir);
    for name in &sessions {
        supervisor.wait_for(name, "main", "running");
    }
    assert_eq!(pid(&supervisor.channel("first", "main")), first, "it is the same one");
    let known: BTreeSet<u32> = sessions.iter().map(|name| pid(&supervisor.channel(name, "main"))).collect();
    wait_until("one recorder of each session", || recorders(&dir).len() == sessions.len());
    let found: BTreeSet<u32> = recorders(&dir).into_iter().map(|(pid, _)| pid).collect();
    assert_eq!(found, known, "each has one recorder, which the supervisor knows");
    let list: Value = supervisor.list();
    assert_eq!(list["sessions"].as_array().map(Vec::len), Some(sessions.len()), "{list:#}");
    for name in &sessions {
        supervisor.command(&["stop", name]).succeeded();
    }
    wait_until("the recorders' ends", || recorders(&dir).is_empty());
    supervisor.end().succeeded();
}
