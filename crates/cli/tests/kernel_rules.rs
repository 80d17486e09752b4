//! Kernel events that are chosen again while they are recorded: each event is there from the reply
//! of one change to the call of the next, and not before or after.

use std::{
    fs,
    path::PathBuf,
    process::{Child, Command},
};

use serde_json::Value;

use crate::{
    chunks::{CONTROL, count},
    kernel::{lost, permitted, source},
    support::{Finished, TestDir, finish, run, start, wait_until},
};

fn tompion(dir: &TestDir, arguments: &[&str]) -> Finished {
    run(dir.tompion(arguments).env(CONTROL, dir.path("control")))
}

/// A recording of a shell that makes a known number of calls in each of some parts.
struct Parts<'a> {
    dir: &'a TestDir,
    recording: Child,
}

impl<'a> Parts<'a> {
    /// In part N, the shell calls getpgid() N thousand times and creates N processes. It begins a
    /// part once it is told to.
    fn start(dir: &'a TestDir, parts: u32, options: &[&str]) -> Self {
        let program = dir.program("known_counts").display().to_string();
        let mut script = String::new();
        for part in 1..=parts {
            let go = dir.path(&format!("go-{part}")).display().to_string();
            script += &format!("while [ ! -e {go} ]; do sleep 0.01; done; {program} only {}; ", 1000 * part);
            script += &format!("for i in $(seq {part}); do /bin/true; done; touch {go}.done; ");
        }
        let options = [&["--session", "night", "--subbuf-size", "1M"], options].concat();
        let mut command: Command = dir.recording("trace", &options, &[&"sh", &"-c", &script]);
        command.env(CONTROL, dir.path("control"));
        let recording = start(&mut command);
        wait_until("the session", || dir.path("control/night/control").exists());
        Self { dir, recording }
    }

    /// Has a part done.
    fn run(&self, part: u32) {
        let go = self.dir.path(&format!("go-{part}"));
        fs::write(&go, "").expect("a file");
        let done = PathBuf::from(format!("{}.done", go.display()));
        wait_until("the part", || done.exists());
    }

    fn choose(&self, events: &str) -> Finished {
        tompion(self.dir, &["rules", "night", "-k", events])
    }

    fn end(self) -> Finished {
        finish(self.recording, "record")
    }
}

#[test]
fn calls_and_events_come_and_go_while_they_are_recorded() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let parts = Parts::start(&dir, 5, &["-k", "syscall_entry_getpgid"]);
    parts.run(1);
    let said = parts.choose("syscall_exit_getpgid,sched_process_exec").succeeded().err;
    assert!(said.contains("kernel events syscall_exit_getpgid, sched_process_exec"), "{said}");
    parts.run(2);
    parts.choose("none").succeeded();
    parts.run(3);
    parts.choose("syscall_*_getpgid").succeeded();
    parts.run(4);
    parts.choose("sched_process_exec,lttng_statedump_*").succeeded();
    parts.run(5);
    parts.end().succeeded();
    let trace = dir.trace("trace");
    let manifest = trace.manifest();
    assert_eq!(lost(&source(&manifest)), 0);
    let events = trace.events();
    assert_eq!(trace.agreed_count(), events.len() as u64);
    assert_eq!(count(&events, "syscall_entry_getpgid"), 1000 + 4000);
    assert_eq!(count(&events, "syscall_exit_getpgid"), 2000 + 4000);
    assert_eq!(count(&events, "lttng_statedump_end"), 1, "the state was read when it was asked for");
    let trues = events.iter().filter(|event| event.name == "sched_process_exec");
    let trues = trues.filter(|event| event.fields["filename"] == "/bin/true").count();
    assert!(trues >= 2 + 5, "{trues}");
    let changes = manifest["rule_changes"].as_array().expect("changes");
    let words: Vec<&Value> = changes.iter().map(|change| &change["kernel"]).collect();
    assert_eq!(words.len(), 4);
    assert_eq!(words[1], &serde_json::json!(["none"]));
}

#[test]
fn tracepoints_without_a_program_of_their_own_keep_their_numbers() {
    if !permitted() || !std::path::Path::new("/sys/kernel/tracing/events").exists() {
        return;
    }
    let dir = TestDir::new();
    let parts = Parts::start(&dir, 4, &["-k", "task:task_newtask"]);
    parts.run(1);
    // The second is the first one's neighbour, so its number is another than in a new recording.
    parts.choose("task:task_rename,signal:signal_generate").succeeded();
    parts.run(2);
    parts.choose("task:task_rename,task:task_newtask").succeeded();
    parts.run(3);
    parts.choose("syscall_entry_getpgid").succeeded();
    parts.run(4);
    parts.end().succeeded();
    let trace = dir.trace("trace");
    assert_eq!(lost(&source(&trace.manifest())), 0);
    let events = trace.events();
    assert_eq!(trace.agreed_count(), events.len() as u64);
    let of = |name: &str| events.iter().filter(|event| event.name == name).collect::<Vec<_>>();
    let (created, renamed) = (of("task_newtask"), of("task_rename"));
    assert!(created.len() > 3 && created.iter().all(|event| event.fields["clone_flags"].is_number()));
    assert!(renamed.len() >= 2 + 3 && renamed.iter().all(|event| event.fields["newcomm"].is_string()));
    assert!(!of("signal_generate").is_empty(), "each child that ends sends a signal");
    assert_eq!(of("syscall_entry_getpgid").len(), 4000);
}

#[test]
fn switches_that_are_chosen_later_are_recorded_without_alarm() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let parts = Parts::start(&dir, 3, &["-k", "syscall_entry_getpgid"]);
    parts.run(1);
    parts.choose("sched_switch,sched_waking,irq_handler_*").succeeded();
    parts.run(2);
    parts.choose("sched_process_fork").succeeded();
    parts.run(3);
    let finished = parts.end().succeeded();
    assert!(!finished.err.contains("did not show"), "{}", finished.err);
    let trace = dir.trace("trace");
    let events = trace.events();
    assert!(count(&events, "sched_switch") > 10 && count(&events, "sched_process_fork") >= 3);
    let mut wakings = events.iter().filter(|event| event.name == "sched_waking").peekable();
    assert!(wakings.peek().is_some());
    assert!(wakings.all(|event| event.fields["waker_context"].to_string().contains("unknown")));
    assert_eq!(trace.agreed_count(), events.len() as u64);
}

#[test]
fn what_can_not_change_is_refused_with_the_reason_and_nothing_changes() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let filtered = ["-k", "syscall_entry_getpgid", "--filter", "pid >= 0"];
    let parts = Parts::start(&dir, 1, &filtered);
    let said = parts.choose("sched_switch").exited(1).err;
    assert!(said.contains("filter"), "{said}");
    parts.run(1);
    parts.end().succeeded();
    assert_eq!(dir.trace("trace").agreed_count(), 1000);

    let dir = TestDir::new();
    let parts = Parts::start(&dir, 1, &["-k", "syscall_entry_getpgid"]);
    for (events, reason) in [("shed_switch", "no kernel event matches"), ("kprobe:do_exit", "probes")] {
        let said = parts.choose(events).exited(1).err;
        assert!(said.contains(reason), "{said}");
    }
    let shown = tompion(&dir, &["rules", "night"]).succeeded().err;
    assert!(shown.contains("all events; kernel events syscall_entry_getpgid"), "{shown}");
    parts.run(1);
    parts.end().succeeded();
    assert_eq!(dir.trace("trace").agreed_count(), 1000);

    let dir = TestDir::new();
    let parts = Parts::start(&dir, 1, &[]);
    let said = parts.choose("sched_switch").exited(1).err;
    assert!(said.contains("start the recording with -k"), "{said}");
    parts.run(1);
    parts.end();
}

#[test]
fn changes_and_rotations_go_together() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let parts = Parts::start(&dir, 6, &["-k", "syscall_entry_getpgid", "--rotate", "100ms"]);
    for part in 1..=6 {
        let events = if part % 2 == 1 { "syscall_entry_getpgid" } else { "syscall_exit_getpgid" };
        parts.choose(events).succeeded();
        parts.run(part);
    }
    parts.end().succeeded();
    let trace = dir.trace("trace");
    let events = trace.events();
    assert_eq!(count(&events, "syscall_entry_getpgid"), 1000 * (1 + 3 + 5));
    assert_eq!(count(&events, "syscall_exit_getpgid"), 1000 * (2 + 4 + 6));
    assert_eq!(trace.agreed_count(), events.len() as u64);
    assert_eq!(trace.stat()["lost"]["total"], 0);
}
