//! `TOMPION_LOG`: debug messages of the recorder and of the programs that it records.

use crate::support::{Finished, TestDir, run};

/// Records the allocations of a program, with this level of messages.
fn record(dir: &TestDir, level: &str) -> Finished {
    let mut command = dir.recording("trace", &["--preload", "malloc"], &[&"true"]);
    command.env("TOMPION_LOG", level);
    run(&mut command)
}

#[test]
fn debug_messages_follow_a_process_from_joining_to_its_end() {
    let dir = TestDir::new();
    let finished = record(&dir, "debug");
    let session = "tompion_session::acceptor: process ";
    for expected in [session, "joined as number ", "joined, slot ", "left: "] {
        assert!(finished.err.contains(expected), "{expected:?} in {}", finished.err);
    }
    // The program's own line has its process and thread.
    let line = finished.err.lines().find(|line| line.contains("joined, slot ")).unwrap();
    assert!(line.starts_with("tompion[") && line.contains('.'), "{line}");
}

#[test]
fn without_a_level_there_are_no_debug_messages() {
    for level in ["", "off", "info"] {
        let finished = record(&TestDir::new(), level);
        assert!(!finished.err.contains("joined"), "{level:?}: {}", finished.err);
    }
}

#[test]
fn a_wrong_level_is_named_once() {
    let finished = record(&TestDir::new(), "chatty\u{1b}[31m");
    let expected = "expected off, error, warn, info, debug or trace in TOMPION_LOG, found chatty?[31m";
    assert_eq!(finished.err.matches(expected).count(), 1, "{}", finished.err);
}
