//! Children that run in their parent's memory. Their events are counted as not traced, and do no
//! harm.

use std::process::Command;

use crate::{
    emit_log::{Recording, record},
    support::{TestDir, beside, libraries, rounds, run, tompion},
};

fn shared_vm(how: &str, rounds: u32) -> Recording {
    let dir = TestDir::new();
    let recording = record(&dir, &[], &[&dir.program("shared_vm"), &how, &rounds.to_string()]);
    let unrecorded = recording.printed("unrecorded ");
    assert_eq!((recording.not_traced(), &recording.lost()["total"]), (unrecorded, &0.into()), "{how}");
    recording
}

#[test]
fn a_vfork_child_and_its_signal_handlers_record_nothing() {
    let recording = shared_vm("vfork", 1);
    assert_eq!(recording.printed("unrecorded "), 3);
    assert_eq!((recording.count("parent"), recording.count("parent again")), (1, 1));
}

#[test]
fn a_clone_that_shares_memory_records_nothing_while_its_parent_waits() {
    let recording = shared_vm("clone and wait", 1);
    assert_eq!(recording.printed("unrecorded "), 1);
    assert_eq!((recording.count("parent"), recording.count("parent again")), (1, 1));
}

/// The library stands before libc although only a preloaded one needs it.
#[test]
fn a_vfork_child_of_a_program_without_the_library_records_nothing() {
    let (dir, folder) = (TestDir::new(), libraries());
    let (source, program) = (beside("programs").join("shared_vm_allocates.c"), dir.path("child"));
    run(Command::new("cc").arg(source).arg("-o").arg(&program)).succeeded();
    let trace = dir.record(&["--preload", "malloc"], &[&program]);
    assert_eq!(trace.stat()["not_traced"], 100);
    let events = trace.events();
    assert!(events.iter().all(|event| event.fields["size"] != 200));
    // The same if only that library is preloaded by the program's parent.
    let mut recording = dir.recording("by-hand", &[], &[&program]);
    run(recording.env("LD_PRELOAD", folder.join("libtompion-malloc.so"))).succeeded();
    assert_eq!(dir.trace("by-hand").stat()["not_traced"], 100);
}

/// The child has its parent's thread-local storage, its own, or is a thread that the C library
/// doesn't know.
#[test]
fn a_clone_that_shares_memory_records_nothing_while_its_parent_records() {
    for how in ["clone beside", "clone with storage", "thread by hand"] {
        let recording = shared_vm(how, 1);
        assert_eq!(recording.printed("unrecorded "), 2, "{how}");
        for role in ["parent", "parent beside", "parent again"] {
            assert_eq!(recording.count(role), 1, "{role}: {how}");
        }
    }
}

#[test]
fn posix_spawn_with_file_actions_system_and_popen_start_recorded_programs() {
    let recording = shared_vm("spawn", 5);
    assert_eq!(recording.count("leaf"), 7);
    assert_eq!(recording.count("parent beside"), 5);
    assert_eq!(recording.printed("unrecorded "), 0);
}

/// Guests, signals, migrations and other threads at once: every event of the parent exactly once.
#[test]
fn children_and_their_parents_threads_do_not_get_in_each_others_way() {
    let dir = TestDir::new();
    let milliseconds = rounds(1500, 60_000).to_string();
    let options = ["--subbuf-size", "1M", "--subbufs", "8"];
    let mut command = dir.recording("trace", &options, &[&dir.program("shared_vm"), &"crowd", &milliseconds]);
    let said = run(&mut command).succeeded();
    let trace = dir.trace("trace");

    // The text is walked by hand: a minute's events are some millions.
    let text = run(tompion().args(["print", "--no-delta"]).arg(&trace.folder)).succeeded().out;
    let mut counted = [0u64; 5];
    for line in text.lines() {
        let value = |name: &str| {
            let (_, rest) = line.split_once(&format!(" {name} = ")).expect("a field");
            rest.split([',', ' ']).next().and_then(|number| number.parse::<u64>().ok()).expect("a number")
        };
        let source = value("source") as usize;
        counted[source] += 1;
        assert_eq!(value("number"), counted[source], "source {source}: {line}");
    }
    let number = |words: &str| -> u64 {
        let line = said.out.lines().find_map(|line| line.strip_prefix(words));
        line.and_then(|number| number.trim().parse().ok()).unwrap_or_else(|| panic!("{words}: {}", said.out))
    };
    for (source, counted) in counted.into_iter().enumerate() {
        assert_eq!(counted, number(&format!("source {source} counted to ")), "source {source}");
    }
    let stat = trace.stat();
    assert_eq!(stat["not_traced"].as_u64().unwrap_or(0), number("unrecorded "), "{stat}");
    assert_eq!(stat["lost"]["total"], 0, "{stat}");
    println!("{} children, {} events of their parents", number("children "), text.lines().count());
}
