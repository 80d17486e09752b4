//! The state of the machine when recording begins, in the kernel's trace.

use std::{fs, process::Command};

use crate::{
    kernel::{both_readers_agree, permitted, text},
    support::{Event, TestDir, start, wait_until},
};

fn named<'a>(events: &'a [Event], kind: &str) -> Vec<&'a Event> {
    let name = format!("lttng_statedump_{kind}");
    events.iter().filter(|event| event.name == name).collect()
}

#[test]
fn a_flight_recorder_knows_who_was_there_and_what_they_had_open() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    fs::write(dir.path("held open"), "").expect("a file");
    let mut holder = start(
        Command::new("sh").args(["-c", "exec 7>>'held open'; exec sleep 100"]).current_dir(dir.path("")),
    );
    let comm = format!("/proc/{}/comm", holder.id());
    wait_until("it sleeps", || fs::read_to_string(&comm).is_ok_and(|name| name == "sleep\n"));
    let script = "for i in $(seq 300); do /bin/true; done";
    let options = ["-k", "--mode", "overwrite", "--subbuf-size", "64K", "--subbufs", "2"];
    let trace = dir.record(&options, &[&"sh", &"-c", &script]);
    let pid = u64::from(holder.id());
    holder.kill().and_then(|()| holder.wait().map(drop)).expect("a child of this test");
    let events = trace.events();
    let overwritten = &trace.manifest()["sources"][0]["overwritten"];
    assert!(overwritten.as_u64() > Some(0), "{overwritten}");
    let state: Vec<Event> =
        events.iter().filter(|event| event.name.starts_with("lttng_statedump_")).cloned().collect();
    assert_eq!(state.first().map(|event| &*event.name), Some("lttng_statedump_start"));
    assert_eq!(state.last().map(|event| &*event.name), Some("lttng_statedump_end"));
    let processes = named(&state, "process_state");
    let own: Vec<_> = processes.iter().filter(|event| event.number("tid") == pid).collect();
    let [process] = own[..] else { panic!("{own:?}") };
    assert_eq!((process.number("pid"), process.number("ppid")), (pid, u64::from(std::process::id())));
    assert_eq!((text(process, "name"), process.number("type")), ("sleep", 0));
    // Its threads, too: this test's.
    let threads = processes.iter().filter(|event| event.number("pid") == u64::from(std::process::id()));
    assert!(threads.count() > 1);
    let files = named(&state, "file_descriptor");
    let held = files.iter().find(|event| event.number("pid") == pid && event.number("fd") == 7);
    let held = held.expect("the file that is held open");
    assert!(text(held, "filename").ends_with("/held open"), "{held:?}");
    assert_eq!(held.number("fmode"), 2);
    assert_eq!(held.number("flags") & 0o3, 1);
    let actions = fs::read_dir("/sys/kernel/irq").into_iter().flatten().flatten();
    let actions = actions.filter_map(|irq| fs::read_to_string(irq.path().join("actions")).ok());
    let actions: usize =
        actions.map(|it| it.trim().split(',').filter(|action| !action.is_empty()).count()).sum();
    assert_eq!(named(&state, "interrupt").len(), actions);
    both_readers_agree(&trace);
}

#[test]
fn the_state_is_there_when_it_is_asked_for() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let trace = dir.record(&["-klttng_statedump_*,syscall_entry_execve"], &[&"true"]);
    let events = trace.events();
    assert!(named(&events, "end").len() == 1 && !named(&events, "process_state").is_empty());
}
