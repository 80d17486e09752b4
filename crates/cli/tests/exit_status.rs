//! The exit status of `record`: the command's own, and numbers apart for Tompion's failures.

use std::os::unix::process::ExitStatusExt as _;

use crate::support::{Finished, TestDir, run};

/// Records a shell's script with its allocations.
fn record(dir: &TestDir, options: &[&str], script: &str) -> Finished {
    let options = [&["--preload", "malloc"], options].concat();
    run(&mut dir.recording("trace", &options, &[&"sh", &"-c", &script]))
}

#[test]
fn the_commands_exit_status_is_passed_on() {
    for code in [0, 1, 3, 126, 255] {
        let dir = TestDir::new();
        record(&dir, &[], &format!("exit {code}")).exited(code);
        assert!(dir.trace("trace").agreed_count() > 0);
    }
}

#[test]
fn a_commands_death_by_a_signal_is_passed_on() {
    for signal in [15, 9, 6] {
        let dir = TestDir::new();
        let finished = record(&dir, &[], &format!("kill -{signal} $$"));
        assert_eq!(finished.status.signal(), Some(signal), "{finished:?}");
        assert!(!finished.status.core_dumped(), "the command's core is enough");
    }
}

#[test]
fn a_command_that_ended_in_time_has_succeeded() {
    record(&TestDir::new(), &["--duration", "100ms"], "exec sleep 60").succeeded();
    record(&TestDir::new(), &["--duration", "100ms"], "trap 'exit 4' TERM; sleep 2 & wait").exited(4);
}

#[test]
fn own_failures_have_numbers_of_their_own() {
    let dir = TestDir::new();
    std::fs::write(dir.path("data"), "no program\n").unwrap();
    run(&mut dir.recording("trace", &[], &[&"./nothing"])).exited(127);
    run(&mut dir.recording("trace", &[], &[&"./data"])).exited(126);
    run(&mut dir.recording("missing/trace", &[], &[&"true"])).exited(125);
    run(&mut dir.recording("trace", &["--modes"], &[&"true"])).exited(125);
    run(&mut dir.recording("trace", &["--subbufs", "3"], &[&"true"])).exited(125);
    // Nothing recorded: the command's own failure says more.
    run(&mut dir.recording("trace", &[], &[&"true"])).exited(125);
    run(&mut dir.recording("trace", &[], &[&"false"])).exited(1);
    run(&mut dir.tompion(&["record", "--help"])).succeeded();
}

#[test]
fn a_command_needs_no_dashes_before_it() {
    let dir = TestDir::new();
    let words = ["record", "--preload", "malloc", "-o", "trace", "sh", "-c", "echo $0 $1", "-o", "--x"];
    let finished = run(&mut dir.tompion(&words)).succeeded();
    assert_eq!(finished.out, "-o --x\n");
    assert_eq!(dir.trace("trace").manifest()["command"][0], "sh");
}

#[test]
fn a_command_behind_the_option_for_the_kernel_is_run() {
    let dir = TestDir::new();
    // Whether the kernel can be recorded or not, the command is.
    let words = ["record", "--preload", "malloc", "-o", "trace", "-k", "sh", "-c", "echo ran; exit 5"];
    let finished = run(&mut dir.tompion(&words)).exited(5);
    assert_eq!(finished.out, "ran\n");
    let command = dir.trace("trace").manifest()["command"].clone();
    assert_eq!(command, serde_json::json!(["sh", "-c", "echo ran; exit 5"]));
    // A word that is no program is a pattern, and wrong.
    let words = ["record", "-o", "trace2", "-k", "shed_switch", "true"];
    let wrong = run(&mut dir.tompion(&words)).exited(125);
    assert!(wrong.err.contains("no kernel event matches `shed_switch`"), "{}", wrong.err);
}
