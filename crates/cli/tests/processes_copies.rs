//! Children that begin with a copy of their parent's memory: `fork` and its relatives, wherever
//! they are called.

use crate::{
    emit_log::{Recording, record},
    support::{TestDir, rounds},
};

fn lineage(how: &str, number: u32) -> Recording {
    let dir = TestDir::new();
    let recording = record(&dir, &[], &[&dir.program("lineage"), &how, &number.to_string()]);
    assert_eq!(recording.lost()["total"], 0, "{how}");
    recording
}

#[test]
fn a_long_line_of_descendants_is_recorded_one_by_one() {
    let depth = rounds(30, 300);
    let recording = lineage("chain", depth);
    assert_eq!(recording.count("begins"), depth as usize + 1);
    assert_eq!(recording.count("ends"), depth as usize);
}

#[test]
fn a_hundred_quick_forks_are_recorded_each_by_itself() {
    for _ in 0..rounds(1, 20) {
        let recording = lineage("brood", 100);
        assert_eq!((recording.count("child"), recording.count("child again")), (100, 100));
        assert_eq!((recording.count("parent"), recording.count("parent again")), (1, 1));
    }
}

#[test]
fn children_of_bare_fork_and_of_clone_are_recorded_and_their_children() {
    for how in ["_Fork", "clone"] {
        let recording = lineage(how, 0);
        for role in ["parent", "parent again", "child", "child again", "grandchild"] {
            assert_eq!(recording.count(role), 1, "{role} by {how}");
        }
    }
}

/// A child that bypasses libc is not recorded and does no harm. Programs that it executes are
/// recorded again.
#[test]
fn children_by_bare_system_calls_keep_out_until_they_execute_something() {
    for how in ["raw fork", "raw clone", "raw clone3"] {
        let recording = lineage(how, 0);
        let roles: Vec<&str> = recording.emitted.iter().map(|emitted| emitted.role.as_str()).collect();
        assert_eq!(roles.len(), 3, "{how}: {roles:?}");
        assert_eq!(recording.count("leaf"), 1, "{how}");
    }
}

#[test]
fn a_daemon_is_followed_through_both_forks_without_its_descriptors() {
    let recording = lineage("daemon", 0);
    for role in ["starter", "leader", "daemon", "daemon again", "worker"] {
        assert_eq!(recording.count(role), 1, "{role}");
    }
}

/// The signal may come while its thread, or another one, is inside the library.
#[test]
fn a_signal_handler_may_fork_at_any_time() {
    for how in ["fork in handlers", "_Fork in handlers"] {
        let forks = rounds(40, 2000);
        let recording = lineage(how, forks);
        assert_eq!(recording.count("child of a handler"), forks as usize, "{how}");
    }
}

#[test]
fn a_program_may_fork_while_its_threads_trace_and_load_modules() {
    let forks = rounds(40, 1000);
    let recording = lineage("threads", forks);
    assert_eq!(recording.count("child"), forks as usize);
    assert_eq!(recording.count("parent"), forks as usize);
    assert!(recording.count("thread") >= 5);
}
