//! Cgroups and named threads that the monitor counts by themselves, too.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::Command,
};

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    monitor::{Own, page, values},
    support::{TestDir, finish, installed, run, signal, start, wait_until},
};

/// Number of times that a napper sleeps.
const NAPS: u64 = 200;

/// Returns the mount point of cgroup v2; none if tests can't make cgroups.
fn top() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let top = mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        after.starts_with("cgroup2 ").then(|| PathBuf::from(before.split(' ').nth(4).unwrap_or_default()))
    });
    if top.is_none() {
        eprintln!("SKIPPED, cgroups of version 2 are not mounted here");
    }
    top
}

/// Cgroup of a test, removed at its end.
struct Tree {
    top: PathBuf,
    name: String,
}

impl Tree {
    fn new(test: &str) -> Option<Self> {
        let tree = Self { top: top()?, name: format!("tompion-{test}-{}", std::process::id()) };
        match tree.make("") {
            Ok(()) => Some(tree),
            Err(error) => {
                eprintln!("SKIPPED, {}: {error}", tree.folder("").display());
                None
            }
        }
    }

    fn folder(&self, below: &str) -> PathBuf {
        self.top.join(&self.name).join(below)
    }

    fn make(&self, below: &str) -> std::io::Result<()> {
        fs::create_dir(self.folder(below))
    }

    fn remove(&self, below: &str) {
        // A process that has ended is still there for a moment.
        wait_until("the cgroup is empty", || fs::remove_dir(self.folder(below)).is_ok());
    }

    /// Returns the path as users type it.
    fn path(&self, below: &str) -> String {
        format!("/{}/{below}", self.name).trim_end_matches('/').to_owned()
    }

    /// Runs a napping program in a cgroup.
    fn nap(&self, below: &str, napper: &Path) {
        let procs = File::options().write(true).open(self.folder(below).join("cgroup.procs")).unwrap();
        let mut command = Command::new(napper);
        tompion_os::begin_in_groups(&mut command, vec![procs.into()]);
        run(command.arg("robot").arg(NAPS.to_string())).succeeded();
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        fn remove(folder: &Path) {
            let below = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
            below.filter(|path| path.is_dir()).for_each(|path| remove(&path));
            let _ = fs::remove_dir(folder);
        }
        remove(&self.folder(""));
    }
}

fn report(own: &Own, arguments: &[&str]) -> Value {
    let out = run(own.monitor(arguments).args(["--once", "--json"])).succeeded().out;
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
}

/// Returns a group's number of wakeups by timers.
fn count(report: &Value, noun: &str, pattern: &str) -> u64 {
    let groups = report["groups"].as_array().expect("groups");
    let group = groups.iter().find(|group| group[noun] == pattern);
    let group = group.unwrap_or_else(|| panic!("no {noun} {pattern}: {}", report["groups"]));
    group["kinds"]["timer-wakeup-all"]["count"].as_u64().unwrap_or(0)
}

/// Returns whether a count is near: a few wakeups are missing where the kernel starts no BPF
/// program, and some come before the naps.
fn is_about(count: u64, naps: u64) -> bool {
    (naps - naps / 10..=naps + 20).contains(&count)
}

#[test]
fn a_cgroup_and_those_below_it_are_counted_by_themselves() {
    let (Some(own), Some(tree)) = (Own::new("cgroup"), Tree::new("cgroup")) else { return };
    let dir = TestDir::new();
    let napper = dir.program("napper");
    let path = tree.path("robot");
    let said = run(&mut own.monitor(&["--once", "--cgroup", &path])).succeeded();
    assert!(said.err.contains(&format!("no cgroup {path} yet")), "{}", said.err);
    assert!(said.out.contains("none of its real-time threads has woken yet"), "{}", said.out);
    // It is made later, as when a service starts; so is one below it.
    tree.make("robot").unwrap();
    tree.make("robot/arm").unwrap();
    tree.nap("robot", &napper);
    tree.nap("robot/arm", &napper);
    tree.nap("", &napper);
    let reported = report(&own, &[]);
    let two = count(&reported, "cgroup", &path);
    assert!(is_about(two, 2 * NAPS), "{two}: {reported}");
    let kinds = &reported["groups"][0]["kinds"];
    assert!(is_about(kinds["missed-timer"]["count"].as_u64().unwrap_or(0), 2 * NAPS), "{reported}");
    let (max, longest) = (&kinds["timer-wakeup-all"]["max_us"], &kinds["timer-wakeup-all"]["worst"]);
    assert!(longest["name"] == "robot" && longest["latency_us"] == *max, "{reported}");
    // The service starts again.
    tree.remove("robot/arm");
    tree.remove("robot");
    tree.make("robot").unwrap();
    tree.nap("robot", &napper);
    let three = count(&report(&own, &[]), "cgroup", &path);
    assert!(is_about(three, 3 * NAPS), "{three}");
    let text = run(&mut own.monitor(&["--once"])).succeeded().out;
    for words in [format!("cgroup {path}"), format!("of cgroup {path}"), "accounting is exact".into()] {
        assert!(text.contains(&words), "{words}: {text}");
    }
    // After a reset, all of it is of before.
    run(&mut own.monitor(&["reset"])).succeeded();
    assert_eq!(count(&report(&own, &[]), "cgroup", &path), 0);
}

#[test]
fn groups_that_are_there_are_found_and_changed_while_it_counts() {
    let (Some(own), Some(tree)) = (Own::new("groups"), Tree::new("groups")) else { return };
    let dir = TestDir::new();
    let napper = dir.program("napper");
    tree.make("arm-1").unwrap();
    tree.make("arm-1/hand").unwrap();
    tree.make("leg").unwrap();
    let (arms, whole) = (tree.path("arm*"), tree.path(""));
    let mounted = tree.folder("").to_string_lossy().into_owned();
    report(&own, &["--cgroup", &arms, "--cgroup", &mounted, "--thread", "robo*", "--thread", "robots"]);
    tree.nap("arm-1/hand", &napper);
    tree.nap("leg", &napper);
    let reported = report(&own, &[]);
    for (noun, pattern, naps) in
        [("cgroup", &*arms, NAPS), ("cgroup", &*whole, 2 * NAPS), ("thread", "robo*", 2 * NAPS)]
    {
        let count = count(&reported, noun, pattern);
        assert!(is_about(count, naps), "{noun} {pattern}, {count}: {reported}");
    }
    assert_eq!(count(&reported, "thread", "robots"), 0);
    // One stays with what it has, one comes, others go.
    let leg = tree.path("leg");
    report(&own, &["--cgroup", &leg, "--cgroup", &whole]);
    tree.nap("leg", &napper);
    tree.nap("arm-1", &napper);
    let reported = report(&own, &[]);
    assert_eq!(reported["groups"].as_array().unwrap().len(), 2, "{reported}");
    let (of_leg, of_whole) = (count(&reported, "cgroup", &leg), count(&reported, "cgroup", &whole));
    assert!(is_about(of_leg, NAPS) && is_about(of_whole, 4 * NAPS), "{reported}");
    assert_eq!(report(&own, &["--cgroup", "none"])["groups"].to_string(), "[]");
}

#[test]
fn a_cgroup_may_be_called_anything() {
    let (Some(own), Some(tree)) = (Own::new("hostile"), Tree::new("hostile")) else { return };
    let dir = TestDir::new();
    let napper = dir.program("napper");
    let name = "\u{1b}]0;x\u{7}\"} 1\\";
    tree.make(name).unwrap();
    let path = tree.path(name);
    let mut server = start(&mut own.monitor(&["--listen", "127.0.0.1:0", "--cgroup", &path]));
    let mut url = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut url).unwrap();
    tree.nap(name, &napper);
    let page = page(&url);
    let label = format!("cgroup=\"{}\"", path.replace('\\', "\\\\").replace('"', "\\\""));
    let counts =
        values(&page, &format!("tompion_group_latency_seconds_count{{{label},kind=\"timer-wakeup-all\"}}"));
    assert!(counts.len() == 1 && is_about(counts[0] as u64, NAPS), "{counts:?}: {page}");
    let longest = values(&page, &format!("tompion_group_latency_max_seconds{{{label},"));
    assert!(longest.iter().any(|seconds| *seconds > 0.0), "{page}");
    signal(server.id(), Signal::INT);
    finish(server, "monitor --listen --cgroup").succeeded();
    assert!(is_about(count(&report(&own, &[]), "cgroup", &path), NAPS));
    let text = run(&mut own.monitor(&["--once"])).succeeded().out;
    assert!(text.contains("?]0;x?\"} 1\\") && !text.contains(['\u{1b}', '\u{7}']), "{text}");
}

#[test]
fn invalid_groups_are_reported() {
    let Some(own) = Own::new("nogroup") else { return };
    let wrong = run(&mut own.monitor(&["--cgroup", "/a/../b"])).exited(2);
    assert!(wrong.err.contains("expected a cgroup's path of at most 254 bytes"), "{}", wrong.err);
    let wrong = run(&mut own.monitor(&["--thread", "a*b"])).exited(2);
    assert!(wrong.err.contains("expected a thread's name of at most 15 bytes"), "{}", wrong.err);
    let many: Vec<String> = (0..9).flat_map(|number| ["--thread".into(), format!("t{number}")]).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let wrong = run(&mut own.monitor(&many)).exited(1);
    let expected =
        "tompion: found 9 groups of threads, expected at most 8 (name fewer with --cgroup and --thread)\n";
    assert_eq!(wrong.err, expected);
    let Some(top) = top().filter(|_| installed("unshare")) else { return };
    // Where only the first version is mounted, as this process sees it.
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", "umount -l \"$0\" && exec \"$@\""]).arg(top);
    let monitor = own.monitor(&["--once", "--cgroup", "robot"]);
    command.arg(monitor.get_program()).args(monitor.get_args());
    let without = run(&mut command).exited(1);
    assert!(without.err.contains("cgroups of version 2 are not mounted here"), "{}", without.err);
    assert_eq!(without.err.lines().count(), 1, "{}", without.err);
}
