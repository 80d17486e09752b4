//! Shields in made-up trees, whose files only keep what is written.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::symlink,
    path::Path,
    time::{Duration, Instant},
};

use super::{notes::Change, *};

/// A tree with four CPUs, three interrupts, and four threads.
struct Tree(tempfile::TempDir);

const VERSION_2: &[(&str, &str)] = &[
    ("/proc/self/mountinfo", "30 22 0:26 / /cg rw - cgroup2 cgroup2 rw\n"),
    ("/proc/self/cgroup", "0::/user/one\n"),
    ("/cg/cgroup.controllers", "cpuset cpu\n"),
    ("/cg/cgroup.subtree_control", "cpu cpuset\n"),
    ("/cg/user/one/cgroup.type", "domain\n"),
];
const VERSION_1: &[(&str, &str)] = &[
    ("/proc/self/mountinfo", "30 22 0:26 / /cg rw - cgroup cgroup rw,cpuset\n"),
    ("/cg/cpuset.cpus", "0-3\n"),
    ("/cg/cpuset.mems", "0-1\n"),
    ("/cg/cpuset.sched_load_balance", "1\n"),
    ("/cg/other/cpuset.cpus", "2\n"),
    ("/cg/tasks", "2\n11\n50\n60\n"),
];
const BOTH: &[(&str, &str)] = &[
    ("/sys/devices/system/cpu/online", "0-3\n"),
    ("/proc/irq/24/smp_affinity_list", "0-3\n"),
    ("/proc/irq/24/eth0/any", ""),
    ("/proc/irq/25/smp_affinity_list", "3\n"),
    ("/proc/irq/25/disk/any", ""),
    ("/proc/irq/26/smp_affinity_list", "0-3\n"),
    ("/proc/irq/default_smp_affinity", "f\n"),
    ("/sys/devices/virtual/workqueue/cpumask", "f\n"),
    ("/proc/sys/kernel/watchdog_cpumask", "0-3\n"),
];
/// Number, name, flags, CPUs.
const THREADS: &[(u32, &str, u64, &str)] = &[
    (2, "kthreadd", 0x0020_8040, "0-3"),
    (11, "kworker/3:0", 0x0420_8060, "3"),
    (50, "kdevtmpfs", 0x0020_8040, "2-3"),
    (60, "a) program", 0x0040_0000, "1,3"),
];

impl Tree {
    fn new(version: &[(&str, &str)]) -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        for (path, text) in version.iter().chain(BOTH) {
            tree.put(path, text);
        }
        for (tid, name, flags, cpus) in THREADS {
            let middle = "0 0 0 0 0 0 0 0 20 0 1 0";
            tree.put(
                &format!("/proc/{tid}/stat"),
                &format!("{tid} ({name}) S 0 0 0 0 -1 {flags} {middle} 4711 0\n"),
            );
            tree.put(&format!("/proc/{tid}/status"), &format!("Name:\t{name}\nCpus_allowed_list:\t{cpus}\n"));
        }
        tree
    }

    fn put(&self, path: &str, text: &str) {
        let place = self.root().place(path);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(place, text).unwrap();
    }

    fn root(&self) -> Root {
        Root::new(self.0.path())
    }

    fn raise(&self, cpus: &str) -> Result<Shield, Error> {
        let cpus = CpuSet::from_list(cpus).unwrap();
        Shield::raise(&Config { root: self.root(), cpus, guardian: None })
    }

    /// Raises a shield where one was: a test beside this one that has just forked may hold its lock
    /// for a moment more.
    #[track_caller]
    fn raise_again(&self, cpus: &str) -> Shield {
        when_free(|| self.raise(cpus))
    }

    #[track_caller]
    fn restore(&self) -> Restored {
        when_free(|| restore(&self.root()))
    }

    /// With one raised on CPUs 2 and 3.
    #[track_caller]
    fn raised(version: &[(&str, &str)]) -> (Self, BTreeMap<String, String>, Shield) {
        let tree = Self::new(version);
        let before = tree.settings();
        let shield = tree.raise("2-3").unwrap();
        (tree, before, shield)
    }

    #[track_caller]
    fn has(&self, path: &str, text: &str) {
        assert_eq!(self.root().read(path).ok().as_deref(), Some(text), "{path}");
    }

    /// All settings, by their paths: not the notes, and not lists of members, which are no lists
    /// here.
    fn settings(&self) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        collect(self.0.path(), &mut found);
        let is_setting =
            |path: &String| !["/run", "tasks", "/affinity"].iter().any(|word| path.contains(word));
        found.into_iter().filter(|(path, _)| is_setting(path)).collect()
    }
}

/// The state in the end, when no process holds the lock any more.
#[track_caller]
fn when_free<T>(mut attempt: impl FnMut() -> Result<T, Error>) -> T {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        match attempt() {
            Err(Error::Busy(_)) if Instant::now() < until => std::thread::yield_now(),
            had => break had.unwrap(),
        }
    }
}

fn collect(folder: &Path, found: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            found.insert(entry.display().to_string(), String::new());
            collect(&entry, found);
        } else {
            found.insert(entry.display().to_string(), fs::read_to_string(&entry).unwrap().trim().to_owned());
        }
    }
}

#[test]
fn version_2_isolates_and_lowering_puts_everything_back() {
    let (tree, before, shield) = Tree::raised(VERSION_2);
    tree.has("/cg/tompion-shield/cpuset.cpus", "2-3");
    tree.has("/cg/tompion-shield/cpuset.cpus.partition", "isolated");
    tree.has("/proc/irq/24/smp_affinity_list", "0-1");
    tree.has("/proc/irq/25/smp_affinity_list", "0-1");
    tree.has("/proc/irq/26/smp_affinity_list", "0-3");
    tree.has("/proc/irq/default_smp_affinity", "00000003");
    tree.has("/sys/devices/virtual/workqueue/cpumask", "00000003");
    tree.has("/proc/sys/kernel/watchdog_cpumask", "0-1");
    tree.has("/proc/50/affinity", "0-1");
    assert!(!tree.root().place("/proc/11/affinity").exists(), "a thread that is bound");
    assert!(!tree.root().place("/proc/60/affinity").exists(), "no thread of the kernel");
    assert_eq!((shield.moved.interrupts, shield.moved.kernel_threads), (2, 2));
    assert_eq!(shield.moved.problems, [""; 0]);

    assert_eq!(shield.lower(), [""; 0]);
    assert_eq!(tree.settings(), before);
    tree.has("/proc/50/affinity", "2-3");
    tree.has("/run/tompion/shield/changes", "");
}

#[test]
fn version_1_moves_everybody_else() {
    let (tree, before, shield) = Tree::raised(VERSION_1);
    tree.has("/cg/tompion-rest/cpuset.cpus", "0-1");
    tree.has("/cg/tompion-rest/cpuset.mems", "0-1");
    tree.has("/cg/tompion-rest/cpuset.sched_load_balance", "1");
    tree.has("/cg/tompion-shield/cpuset.cpus", "2-3");
    tree.has("/cg/tompion-shield/cpuset.sched_load_balance", "0");
    tree.has("/cg/cpuset.sched_load_balance", "0");
    tree.has("/cg/tompion-rest/tasks", "60");
    assert_eq!(shield.moved.problems, ["control group /cg/other has CPUs 2, and keeps them"]);

    assert_eq!(shield.lower(), [""; 0]);
    assert_eq!(tree.settings(), before);
    tree.has("/cg/tasks", "60");
    // What a thread had chosen is chosen again: the kernel may have forgotten it.
    tree.has("/proc/60/affinity", "1,3");
    assert!(!tree.root().place("/proc/11/affinity").exists());
}

#[test]
fn what_a_killed_shield_left_is_put_back() {
    for version in [VERSION_1, VERSION_2] {
        let tree = Tree::new(version);
        let before = tree.settings();
        assert_eq!(tree.restore(), Restored::Nothing);

        drop(tree.raise("3").unwrap());
        assert_ne!(tree.settings(), before);
        // A kill can cut the last note short.
        let changes = tree.root().place("/run/tompion/shield/changes");
        fs::write(&changes, fs::read_to_string(&changes).unwrap() + "{\"setting\":{\"pa").unwrap();

        assert_eq!(tree.restore(), Restored::AllBut(Vec::new()));
        assert_eq!(tree.settings(), before);
        assert_eq!(tree.restore(), Restored::Nothing);
    }
}

#[test]
fn the_next_shield_puts_back_first() {
    let tree = Tree::new(VERSION_2);
    let before = tree.settings();
    drop(tree.raise("3").unwrap());
    let next = tree.raise_again("1");
    tree.has("/proc/irq/24/smp_affinity_list", "0,2-3");
    tree.has("/proc/irq/25/smp_affinity_list", "3");
    assert_eq!(next.lower(), [""; 0]);
    assert_eq!(tree.settings(), before);
}

#[test]
fn a_command_that_outlives_its_shield_goes_home() {
    let tree = Tree::new(VERSION_2);
    drop(tree.raise("3").unwrap());
    tree.put("/cg/tompion-shield/cgroup.procs", "4242\n");
    tree.restore();
    tree.has("/cg/user/one/cgroup.procs", "4242");
    assert!(!tree.root().place("/cg/tompion-shield").exists());
}

#[test]
fn a_controller_that_was_off_is_turned_off_again() {
    let tree = Tree::new(VERSION_2);
    tree.put("/cg/cgroup.subtree_control", "cpu\n");
    let shield = tree.raise("3").unwrap();
    tree.has("/cg/cgroup.subtree_control", "+cpuset");
    shield.lower();
    tree.has("/cg/cgroup.subtree_control", "-cpuset");
}

#[test]
fn what_the_kernel_refuses_leaves_everything_as_it_was() {
    let tree = Tree::new(VERSION_2);
    let before = tree.settings();
    fs::create_dir_all(tree.root().place("/cg/tompion-shield/cpuset.cpus.partition")).unwrap();
    let error = tree.raise("3").unwrap_err().to_string();
    assert!(error.starts_with("the kernel does not isolate CPUs 3: "), "{error}");
    assert_eq!(tree.settings(), before);
}

#[test]
fn an_interrupt_that_can_not_be_moved_is_named() {
    let tree = Tree::new(VERSION_2);
    let place = tree.root().place("/proc/irq/24/smp_affinity_list");
    fs::remove_file(&place).unwrap();
    // A file of the kernel's that can't be written, and that names CPU 0.
    symlink("/sys/devices/system/cpu/online", &place).unwrap();
    let shield = tree.raise("0").unwrap();
    let [problem] = &shield.moved.problems[..] else { panic!("{:?}", shield.moved) };
    assert!(problem.starts_with("interrupt 24 (eth0) stays: "), "{problem}");
    assert_eq!(shield.moved.interrupts, 0);
    assert_eq!(shield.lower(), [""; 0]);
}

#[test]
fn failed_restores_are_reported_and_retried() {
    let tree = Tree::new(VERSION_2);
    let shield = tree.raise("3").unwrap();
    let place = tree.root().place("/proc/irq/24/smp_affinity_list");
    fs::remove_file(&place).unwrap();
    symlink("/sys/devices/system/cpu/kernel_max", &place).unwrap();
    let shown = shield.lower();
    assert!(
        matches!(&shown[..], [line] if line.starts_with("/proc/irq/24/smp_affinity_list stays ")),
        "{shown:?}"
    );

    fs::remove_file(&place).unwrap();
    fs::write(&place, "0-2\n").unwrap();
    assert_eq!(tree.restore(), Restored::AllBut(Vec::new()));
    tree.has("/proc/irq/24/smp_affinity_list", "0-3");
}

#[test]
fn one_shield_at_a_time() {
    let tree = Tree::new(VERSION_2);
    let shield = tree.raise("3").unwrap();
    let own = std::process::id();
    for error in [tree.raise("2").unwrap_err(), restore(&tree.root()).unwrap_err()] {
        assert_eq!(error.to_string(), format!("process {own} keeps CPUs free already; one can at a time"));
    }
    shield.lower();
    tree.raise_again("2").lower();
}

#[test]
fn cpus_must_be_there_and_some_must_be_left() {
    let tree = Tree::new(VERSION_2);
    assert_eq!(tree.raise("3-5").unwrap_err().to_string(), "CPUs 4-5 are not online; there are 0-3");
    for cpus in ["0-3", ""] {
        assert!(matches!(tree.raise(cpus), Err(Error::NothingLeft(_))));
    }
}

#[test]
fn a_thread_number_that_is_used_again_is_left_alone() {
    let tree = Tree::new(VERSION_2);
    let mut notes = Notes::lock(&tree.root()).unwrap();
    notes.add(&Change::Thread { tid: 60, started: 4710, before: "0".into() }).unwrap();
    notes.add(&Change::Thread { tid: 61, started: 4711, before: "0".into() }).unwrap();
    assert_eq!(notes.undo(), [""; 0]);
    assert!(!tree.root().place("/proc/60/affinity").exists());
}

#[test]
fn the_guardian_of_a_process_that_is_gone_puts_back() {
    let tree = Tree::new(VERSION_2);
    let before = tree.settings();
    drop(tree.raise("3").unwrap());
    let mut gone = Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    let mut ready = false;
    when_free(|| guard(&tree.root(), gone.id(), || ready = true));
    assert!(ready);
    assert_eq!(tree.settings(), before);
}
