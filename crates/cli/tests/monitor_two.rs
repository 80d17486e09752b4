//! Two commands that look at one monitor at once, each with groups and limits of its own.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, ChildStdout},
    thread,
    time::Duration,
};

use rustix::process::Signal;

use crate::{
    monitor::{Own, page, values},
    monitor_incidents::folders,
    support::{finish, run, signal, start, wait_until},
};

const FIRST: &str = "peer-one";
const SECOND: &str = "peer-two";
/// Number of times that each thread sleeps in a round.
const NAPS: u64 = 200;

/// A command that serves its counts and saves incidents of threads of one name; each of their
/// wakeups exceeds its limit.
struct Watcher {
    child: Child,
    _output: BufReader<ChildStdout>,
    url: String,
}

impl Watcher {
    fn new(own: &Own, groups: &[&str], whose: &str, parent: &Path) -> Self {
        let rule = format!("{whose}=10ns");
        let mut command = own.monitor(&["--listen", "127.0.0.1:0", "--threshold", &rule, "--cooldown", "1h"]);
        command.arg("--incidents").arg(parent);
        for group in groups {
            command.args(["--thread", group]);
        }
        let mut child = start(&mut command);
        let (mut url, mut output) = (String::new(), BufReader::new(child.stdout.take().unwrap()));
        output.read_line(&mut url).unwrap();
        Self { child, _output: output, url }
    }

    /// Returns a value of its report.
    fn value(&self, name: &str) -> u64 {
        values(&page(&self.url), name).iter().sum::<f64>() as u64
    }

    fn wakeups_of(&self, group: &str) -> u64 {
        self.value(&format!(
            "tompion_group_latency_seconds_count{{thread=\"{group}\",kind=\"timer-wakeup-all\"}}"
        ))
    }

    /// Late ones, with a folder and without.
    fn late(&self) -> u64 {
        self.value("tompion_incidents_total ") + self.value("tompion_incidents_not_saved_total")
    }

    /// Waits for what its programs have told and it has not heard yet.
    fn has_heard(&self, rounds: u64) {
        wait_until("the late ones of its thread", || is_about(self.late(), rounds));
    }

    fn kill(mut self) {
        signal(self.child.id(), Signal::KILL);
        self.child.wait().unwrap();
    }
}

/// Returns whether a count is near: a few wakeups are missing where the kernel starts no BPF
/// program, and some come before the naps.
fn is_about(count: u64, rounds: u64) -> bool {
    let naps = rounds * NAPS;
    (naps - naps / 10..=naps + 20 * rounds).contains(&count)
}

/// Both threads sleep, one after the other.
fn nap() {
    for name in [FIRST, SECOND] {
        let sleeper = thread::Builder::new().name(name.into()).spawn(|| {
            tompion_os::run_fifo(60).expect("a real-time priority");
            (0..NAPS).for_each(|_| thread::sleep(Duration::from_micros(500)));
        });
        sleeper.expect("a thread").join().expect("a thread that sleeps");
    }
}

/// The folders below one are of this thread's.
fn is_of(parent: &Path, whose: &str) -> bool {
    let found = folders(parent);
    found.len() == 1 && found.iter().all(|folder| folder.to_string_lossy().ends_with(whose))
}

#[test]
fn given_two_commands_that_are_killed_in_turn_then_each_sees_its_own_and_nothing_is_lost() {
    let Some(own) = Own::new("two") else { return };
    let folder = tempfile::tempdir().unwrap();
    let parents = ["first", "second", "third"].map(|name| folder.path().join(name));
    parents.iter().for_each(|parent| fs::create_dir(parent).unwrap());
    let first = Watcher::new(&own, &[FIRST], FIRST, &parents[0]);
    nap();
    first.has_heard(1);
    // The second one counts one more group, and keeps what is of the first.
    let second = Watcher::new(&own, &[FIRST, SECOND], SECOND, &parents[1]);
    nap();
    first.has_heard(2);
    second.has_heard(1);
    for watcher in [&first, &second] {
        let counts = [watcher.wakeups_of(FIRST), watcher.wakeups_of(SECOND)];
        assert!(is_about(counts[0], 2) && is_about(counts[1], 1), "{counts:?}");
    }
    assert!(is_of(&parents[0], FIRST) && is_of(&parents[1], SECOND), "each by its own limit");
    // What the first one is killed over goes on for the second.
    first.kill();
    nap();
    second.has_heard(2);
    let counts = [second.wakeups_of(FIRST), second.wakeups_of(SECOND)];
    assert!(is_about(counts[0], 3) && is_about(counts[1], 2), "{counts:?}");
    // The kernel counts while no command runs.
    second.kill();
    nap();
    let third = Watcher::new(&own, &[], FIRST, &parents[2]);
    nap();
    third.has_heard(1);
    let counts = [third.wakeups_of(FIRST), third.wakeups_of(SECOND)];
    assert!(is_about(counts[0], 5) && is_about(counts[1], 4), "{counts:?}");
    assert_eq!(third.value("tompion_wakeup_accounting_error"), 0);
    assert!(is_of(&parents[2], FIRST));
    signal(third.child.id(), Signal::INT);
    finish(third.child, "monitor --listen --threshold").succeeded();
    run(&mut own.monitor(&["--once"])).succeeded();
}
