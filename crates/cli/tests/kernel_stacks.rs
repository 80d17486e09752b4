//! Stacks, names, priorities and control groups beside the kernel's events.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::MetadataExt,
};

use serde_json::Value;

use crate::{
    kernel::{lost, permitted, source},
    support::{Event, TestDir, Trace, beside, compiler, run, tompion},
};

/// The program, with frame pointers and calls that are calls.
pub fn program(dir: &TestDir) {
    let options = ["-std=gnu11", "-O1", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls"];
    let mut cc = compiler();
    cc.args(options).arg(beside("programs/stacks.c")).arg("-o").arg(dir.path("stacks"));
    run(&mut cc).succeeded();
}

/// The events with their stacks.
pub fn lines(trace: &Trace) -> Vec<(Event, Value)> {
    let json = run(tompion().args(["print", "--format", "json"]).arg(&trace.folder)).succeeded().out;
    let stacks = |line: &str| serde_json::from_str::<Value>(line).expect("JSON")["stacks"].clone();
    json.lines().map(|line| (crate::support::event(line), stacks(line))).collect()
}

/// The functions of a stack, without where in them.
pub fn functions(stacks: &Value, whose: &str) -> Vec<String> {
    let names = stacks[whose].as_array().into_iter().flatten().filter_map(Value::as_str);
    names.map(|name| name.split('+').next().unwrap_or_default().to_owned()).collect()
}

/// Text without stacks is babeltrace2's.
fn text_agrees(trace: &Trace) {
    let ours = run(tompion().args(["print", "--no-symbols"]).arg(&trace.folder)).succeeded().out;
    assert!(ours == trace.babeltrace().out, "babeltrace2 prints other text");
}

#[test]
fn stacks_lead_through_the_program_into_the_kernel() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    program(&dir);
    let options = ["-k", "syscall_*_getpgid,uprobe:./stacks:middle", "-c", "kstack,ustack,comm,prio,cgroup"];
    // Two programs, one after the other, in one process.
    let script = "./stacks 300 linger; exec ./stacks 300 linger";
    run(&mut dir.recording("trace", &options, &[&"sh", &"-c", &script])).succeeded();
    let trace = dir.trace("trace");
    assert_eq!(lost(&source(&trace.manifest())), 0);
    let lines = lines(&trace);
    let of = |name: &str| lines.iter().filter(|line| line.0.name == name).collect::<Vec<_>>();
    let (entries, exits, probes) =
        (of("syscall_entry_getpgid"), of("syscall_exit_getpgid"), of("stacks:middle"));
    assert_eq!((entries.len(), exits.len(), probes.len()), (600, 600, 600));
    for (event, stacks) in entries.iter().chain(&exits) {
        let user = functions(stacks, "user");
        assert_eq!(user[..4], ["inner", "middle", "outer", "main"], "{event:?}");
        assert!(stacks["user"][0].as_str().is_some_and(|name| name.ends_with(" (stacks)")), "{stacks}");
        let kernel = functions(stacks, "kernel");
        assert!(!kernel.is_empty() && !kernel[0].starts_with("bpf_"), "{kernel:?}");
        if cfg!(target_arch = "x86_64") {
            assert_eq!(kernel.last().map(String::as_str), Some("entry_SYSCALL_64_after_hwframe"));
        }
    }
    for (event, stacks) in &probes {
        // It has no frame yet: its caller is what its caller returns to.
        let user = functions(stacks, "user");
        assert!(user[0].starts_with("middle") && user.contains(&"main".into()), "{event:?}: {user:?}");
    }
    has_its_context(&entries);
    each_stack_is_described_once(&lines);
    text_agrees(&trace);
}

fn has_its_context(entries: &[&(Event, Value)]) {
    let stat = fs::read_to_string("/proc/self/stat").expect("this process");
    let priority: i64 =
        stat.rsplit_once(") ").expect("a name").1.split(' ').nth(15).unwrap().parse().unwrap();
    let groups = fs::read_to_string("/proc/self/cgroup").expect("groups");
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"));
    let group = group.and_then(|group| fs::metadata(format!("/sys/fs/cgroup{group}")).ok());
    for (event, _) in entries {
        assert_eq!(event.context["procname"], "stacks");
        assert_eq!(event.context["prio"].as_i64(), Some(priority), "{event:?}");
        if let Some(group) = &group {
            assert_eq!(event.context["cgroup_id"].as_u64(), Some(group.ino()), "{event:?}");
        }
    }
}

pub fn each_stack_is_described_once(lines: &[(Event, Value)]) {
    let mut reported = BTreeMap::<u64, String>::new();
    for (event, _) in lines.iter().filter(|(event, _)| event.name.starts_with("tompion_stack_")) {
        let addresses =
            event.fields["callstack_kernel"].as_array().or(event.fields["callstack_user"].as_array());
        let same = format!("{}: {:?}", event.name, addresses.expect("addresses"));
        assert!(!reported.values().any(|other| *other == same), "{same}");
        assert!(reported.insert(event.number("id"), same).is_none(), "{event:?}");
    }
    let numbers = |field: &str| {
        let numbers = lines.iter().filter_map(|(event, _)| event.context[field].as_u64());
        numbers.filter(|number| *number != 0).collect::<BTreeSet<_>>()
    };
    let (kernel, user) = (numbers("stack_kernel"), numbers("stack_user"));
    assert!(kernel.union(&user).all(|number| reported.contains_key(number)));
    assert!(kernel.is_disjoint(&user));
}

#[test]
fn a_flight_recorder_keeps_the_stacks_of_what_it_keeps() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    program(&dir);
    let options = ["-k", "syscall_*_getpgid", "-c", "kstack,ustack", "--mode", "overwrite"];
    let rings = ["--subbuf-size", "64K", "--subbufs", "16"];
    let words = [&options[..], &rings].concat();
    run(&mut dir.recording("trace", &words, &[&"./stacks", &"60000", &"linger"])).succeeded();
    let trace = dir.trace("trace");
    let source = source(&trace.manifest());
    assert!(source["overwritten"].as_u64() > Some(10_000), "{source}");
    let lines = lines(&trace);
    for cpu in lines.iter().map(|line| line.0.cpu).collect::<BTreeSet<_>>() {
        let calls = lines.iter().filter(|line| line.0.cpu == cpu && line.0.name.starts_with("syscall_"));
        let calls: Vec<_> = calls.collect();
        // A stack is told again when it lies an eighth of the ring back.
        for (event, stacks) in &calls[calls.len() / 2..] {
            assert_eq!(functions(stacks, "user")[0], "inner", "{event:?} of {}", calls.len());
            assert!(!functions(stacks, "kernel").is_empty(), "{event:?}");
        }
    }
    text_agrees(&trace);
}

#[test]
fn stacks_are_shown_a_function_a_line() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    program(&dir);
    let options = ["-k", "syscall_entry_getpgid", "-c", "ustack"];
    run(&mut dir.recording("trace", &options, &[&"./stacks", &"1", &"linger"])).succeeded();
    let trace = dir.trace("trace");
    let text =
        run(tompion().args(["print", "-e", "syscall_entry_getpgid"]).arg(&trace.folder)).succeeded().out;
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].ends_with(" }") && lines[1].starts_with("\tuser    inner+0x"), "{text}");
    assert!(lines[2].starts_with("\t        middle+0x") && lines[2].ends_with(" (stacks)"), "{text}");
    let wrong = run(&mut dir.recording("wrong", &["-c", "kstack"], &[&"true"])).exited(125);
    assert!(wrong.err.contains("stacks (kstack, ustack) need kernel events: add -k"), "{}", wrong.err);
}
