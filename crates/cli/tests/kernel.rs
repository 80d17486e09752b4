//! The kernel's events: in one trace with programs', on one clock. Where the kernel can't be
//! recorded, a line says so and the test is skipped.

use std::{collections::BTreeSet, fs, process::Command};

use serde_json::Value;

use crate::support::{Event, TestDir, Trace, installed, rounds, run, start, tompion};

/// Returns whether the kernel can be recorded here.
pub fn permitted() -> bool {
    let obstacles = tompion_kernel::obstacles();
    let found: Vec<String> = obstacles.into_iter().filter(|it| !it.bearable).map(|it| it.found).collect();
    if !found.is_empty() {
        eprintln!("SKIPPED, the kernel can't be recorded here: {}", found.join("; "));
    }
    found.is_empty()
}

/// Returns the kernel's source in the manifest.
pub fn source(manifest: &Value) -> Value {
    let sources = manifest["sources"].as_array().expect("sources");
    sources.iter().find(|source| source["kind"] == "kernel").expect("the kernel").clone()
}

pub fn lost(source: &Value) -> u64 {
    source["lost"].as_object().expect("losses").values().filter_map(Value::as_u64).sum()
}

/// Both readers print the same, but where a program gave an empty path: babeltrace2 2.0.4 shows an
/// earlier text there.
pub fn both_readers_agree(trace: &Trace) {
    let (ours, theirs) = (trace.printed(), trace.babeltrace().out);
    for (ours, theirs) in ours.lines().zip(theirs.lines()).filter(|(ours, _)| !ours.contains("= \"\"")) {
        assert_eq!(ours, theirs, "babeltrace2 prints other text");
    }
    trace.agreed_count();
}

pub fn text<'a>(event: &'a Event, field: &str) -> &'a str {
    event.fields[field].as_str().unwrap_or_default()
}

#[test]
fn a_call_lies_between_the_events_around_it() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let count = u64::from(rounds(20_000, 1_000_000));
    let trace = dir.record(
        &["-k", "syscall_*_getpgid", "--subbuf-size", "4M", "--subbufs", "4"],
        &[&dir.program("order"), &count.to_string()],
    );
    assert_in_order(&trace, count);
}

/// The same while the clock's rate is changed: BPF programs see that at once, the session only in
/// samples.
#[test]
fn a_call_lies_between_the_events_around_it_while_the_clock_changes_its_rate() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let (count, legs) = (u64::from(rounds(20_000, 300_000)), rounds(12, 60));
    let mut record = dir.recording(
        "trace",
        &["-k", "syscall_*_getpgid", "--subbuf-size", "4M", "--subbufs", "4"],
        &[&dir.program("order"), &count.to_string(), &legs.to_string()],
    );
    let finished = run(&mut record);
    if finished.status.code() == Some(77) {
        eprintln!("SKIPPED, the clock's rate can't be changed here");
        return;
    }
    finished.succeeded();
    assert_in_order(&dir.trace("trace"), count);
}

/// Asserts this number of rounds of the program `order`, with all events in order.
fn assert_in_order(trace: &Trace, count: u64) {
    let manifest = trace.manifest();
    assert_eq!(lost(&source(&manifest)), 0, "{manifest}");
    let expected = ["order:before", "syscall_entry_getpgid", "syscall_exit_getpgid", "order:after"];
    let events = trace.events();
    assert_eq!(events.len() as u64, 4 * count);
    for (round, events) in events.chunks_exact(4).enumerate() {
        let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
        assert_eq!(names, expected, "round {round}: {events:#?}");
        assert!(events.windows(2).all(|pair| pair[0].time <= pair[1].time));
        assert_eq!((events[0].number("round"), events[3].number("round")), (round as u64, round as u64));
        assert_eq!(events[1].context["tid"], events[0].context["vtid"]);
    }
    let cpus: BTreeSet<u32> = events.iter().map(|event| event.cpu).collect();
    assert!(cpus.len() > 1 || tompion_os::possible_cpus() == 1, "the thread was not moved");
    assert_eq!(trace.agreed_text(), 4 * count);
}

#[test]
fn children_are_followed_and_strangers_are_not() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let mut stranger = start(Command::new("sh").args(["-c", "while :; do /bin/true; done"]));
    let script = "for i in $(seq 40); do cat /dev/null; done; (sh -c 'cat /proc/self/stat >/dev/null')";
    let options = ["-k", "--subbuf-size", "4M", "--subbufs", "4"];
    let trace = dir.record(&options, &[&"sh", &"-c", &script]);
    stranger.kill().and_then(|()| stranger.wait().map(drop)).expect("a child of this test");
    let events = trace.events();
    let manifest = trace.manifest();
    assert_eq!(lost(&source(&manifest)), 0);
    let calls = |name: &str| events.iter().filter(|event| event.name == name).collect::<Vec<_>>();
    let opened: Vec<&str> = calls("syscall_entry_openat").iter().map(|it| text(it, "filename")).collect();
    assert_eq!(opened.iter().filter(|name| **name == "/dev/null").count(), 41);
    assert!(opened.contains(&"/proc/self/stat") && !opened.contains(&""), "{opened:?}");
    // All that made calls are descendants of the command.
    let mut family = BTreeSet::new();
    for event in &events {
        let pid = event.context["pid"].as_u64().expect("a process");
        match event.name.as_str() {
            "sched_process_fork" if family.contains(&pid) => {
                family.insert(event.number("child_pid"));
            }
            name if name.starts_with("syscall_") => {
                if family.is_empty() {
                    family.insert(pid);
                }
                assert!(family.contains(&pid), "{event:?}");
            }
            _ => {}
        }
    }
    assert!(family.len() >= 42);
    // Events of all processes are there all the same.
    let switched: BTreeSet<u64> = calls("sched_switch").iter().map(|it| it.number("next_tid")).collect();
    assert!(switched.len() > family.len() && calls("sched_process_exec").len() > 41);
    let environment = fs::read_to_string(trace.folder.join("kernel/metadata")).expect("metadata");
    assert!(environment.contains("domain = \"kernel\"") && environment.contains("lttng-modules"));
    both_readers_agree(&trace);
}

#[test]
fn flags_and_errors_are_explained() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let script = "cat /no/such/file 2>/dev/null; kill -USR1 99999999 2>/dev/null; : > written";
    let trace = dir.record(&["-ksyscall_*"], &[&"sh", &"-c", &script]);
    let explain = |more: &[&str]| {
        run(tompion().args(["print", "--explain"]).args(more).arg(&trace.folder)).succeeded().out
    };
    let text = explain(&[]);
    let line = |what: &str| text.lines().find(|line| line.contains(what)).unwrap_or_else(|| panic!("{what}"));
    assert!(line("\"/no/such/file\"").ends_with("# dfd = AT_FDCWD, flags = O_RDONLY"), "{text}");
    assert!(line("\"written\"").contains("flags = O_WRONLY|O_CREAT|O_TRUNC"));
    assert!(line("ret = -2 }").ends_with("# ret = ENOENT"));
    assert!(line("syscall_entry_mmap").contains("prot = PROT_"));
    // Nothing else has changed.
    let plain: Vec<&str> = text.lines().map(|line| line.split(" # ").next().unwrap_or_default()).collect();
    assert_eq!(plain, trace.printed().lines().collect::<Vec<_>>());
    let json = explain(&["--format", "json"]);
    let failed = json.lines().find(|line| line.contains("\"ret\":-2")).expect("a failed call");
    let failed: Value = serde_json::from_str(failed).expect("JSON");
    assert_eq!(failed["meanings"]["ret"], "ENOENT");
    run(tompion().args(["print", "--explain", "--format", "csv"]).arg(&trace.folder)).exited(2);
}

#[test]
fn a_process_that_is_not_there_is_an_error() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let refused = run(&mut dir.tompion(&["record", "-k", "-o", "trace", "-p", "4194305"])).exited(125);
    assert!(refused.err.contains("there is no process 4194305"), "{}", refused.err);
    assert!(!dir.path("trace").exists());
}

#[test]
fn tiny_rings_lose_and_say_so() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let children = rounds(200, 2000);
    let script = format!("for i in $(seq {children}); do /bin/true & done; wait");
    let trace =
        dir.record(&["--kernel=*", "--subbuf-size", "64K", "--subbufs", "2"], &[&"sh", &"-c", &script]);
    let source = source(&trace.manifest());
    let stat = trace.stat();
    assert_eq!(stat["lost"]["total"].as_u64(), Some(lost(&source)));
    assert!(stat["damages"].as_array().is_some_and(Vec::is_empty), "{stat}");
    assert_eq!(source["lost"].get("refused"), None);
    let forks = trace.events().iter().filter(|event| event.name == "sched_process_fork").count() as u64;
    assert!(forks + lost(&source) >= u64::from(children), "{forks} forks, {source}");
    both_readers_agree(&trace);
}

#[test]
fn a_flight_recorder_keeps_the_last_moments() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let script = "for i in $(seq 300); do /bin/true; done; cat /proc/self/comm";
    // Of no other process, whatever the machine has to do.
    let options = ["-ksyscall_*", "--mode", "overwrite", "--subbuf-size", "64K", "--subbufs", "8"];
    let trace = dir.record(&options, &[&"sh", &"-c", &script]);
    let events = trace.events();
    let last = events.iter().rfind(|event| event.name == "syscall_entry_openat").expect("calls");
    assert_eq!(text(last, "filename"), "/proc/self/comm");
    let source = source(&trace.manifest());
    assert!(source["overwritten"].as_u64() > Some(0), "{source}");
    both_readers_agree(&trace);
}

#[test]
fn without_permission_programs_are_recorded_alone() {
    if !permitted() || !installed("setpriv") {
        return;
    }
    let dir = TestDir::new();
    let program = dir.program("brief");
    let record = |trace: &str, command: &[&str]| {
        let mut words = Command::new("setpriv");
        words.arg("--bounding-set=-sys_admin,-bpf,-perfmon");
        words.arg(crate::support::TOMPION).args(["record", "-o", trace, "-k", "--"]).args(command);
        run(words.current_dir(dir.path("")))
    };
    let line = "tompion: the kernel is not recorded: not permitted: loading programs takes root, or";
    let both = record("both", &[program.to_str().expect("a path")]).succeeded();
    assert_eq!(both.err.matches(line).count(), 1, "{}", both.err);
    assert_eq!(dir.trace("both").agreed_text(), 2);
    let alone = record("alone", &["true"]).exited(125);
    assert!(alone.err.contains(line) && alone.err.contains("nothing recorded"), "{}", alone.err);
}

/// Small systems and containers have no tracefs in any folder; the kernel describes itself all the
/// same.
#[test]
fn calls_have_names_and_paths_where_tracefs_is_not_mounted() {
    if !permitted() || !installed("unshare") {
        return;
    }
    let dir = TestDir::new();
    let mut record = Command::new("unshare");
    let alone = "for place in /sys/kernel/tracing /sys/kernel/debug; do while umount -R $place; do :; done; done \
                 2>/dev/null; test ! -e /sys/kernel/tracing/events && exec \"$@\"";
    record.args(["--mount", "sh", "-c", alone, "sh", crate::support::TOMPION]);
    record.args(["record", "-o", "trace", "-ksyscall_*,sched:sched_process_wait", "--", "sh", "-c"]);
    run(record.arg("cat /no/such/file; true").current_dir(dir.path(""))).succeeded();
    let trace = dir.trace("trace");
    let events = trace.events();
    let mut opened = events.iter().filter(|event| event.name == "syscall_entry_openat");
    assert!(opened.any(|event| text(event, "filename") == "/no/such/file"));
    assert!(events.iter().any(|event| event.name == "sched_process_wait"));
    both_readers_agree(&trace);
}

#[test]
fn events_are_chosen_by_name() {
    let dir = TestDir::new();
    let wrong = run(&mut dir.recording("wrong", &["-k", "shed_switch"], &[&"true"])).exited(125);
    assert!(
        wrong.err.contains("no kernel event matches `shed_switch`; nearest: sched_switch"),
        "{}",
        wrong.err
    );
    let list = run(&mut dir.tompion(&["list", "--kernel"])).succeeded().out;
    let switch = list.lines().find(|line| line.starts_with("sched_switch ")).expect("sched_switch");
    assert!(switch.contains("i32 prev_tid") && list.contains("syscall_entry_openat"), "{switch}");
    if permitted() {
        let trace = dir.record(&["-ksched_switch,syscall_exit_execve"], &[&"sleep", &"0.05"]);
        let names: BTreeSet<String> = trace.events().into_iter().map(|event| event.name).collect();
        assert_eq!(names, ["sched_switch", "syscall_exit_execve"].map(String::from).into());
    }
}

/// The default leaves out what comes many times a packet. A lone `-k` beside patterns adds the
/// default to them.
#[test]
fn a_lone_k_beside_patterns_adds_the_default_events() {
    if !permitted() {
        return;
    }
    let names = |options: &[&str]| -> BTreeSet<String> {
        let dir = TestDir::new();
        let trace = dir.record(options, &[&"sleep", &"0.1"]);
        trace.events().iter().map(|event| event.name.clone()).collect()
    };
    let (default, pattern) = (names(&["-k"]), names(&["-k", "irq_softirq_raise"]));
    assert!(default.contains("sched_switch") && default.contains("irq_softirq_entry"), "{default:?}");
    assert!(!default.contains("irq_softirq_raise"), "{default:?}");
    assert!(pattern.iter().all(|name| name == "irq_softirq_raise"), "{pattern:?}");
    let both = names(&["-k", "-k", "irq_softirq_raise"]);
    assert!(both.contains("sched_switch") && both.contains("irq_softirq_raise"), "{both:?}");
}
