//! Filters on the kernel's events, from the command line. Where the kernel can't be recorded, a
//! line says so.

use crate::{
    kernel::{lost, permitted, source, text},
    support::{TestDir, run},
};

#[test]
fn calls_of_a_child_are_recorded_if_the_filter_wants_them() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    // The last condition is one for the session: a pattern with a star inside.
    let filter = r#"filename == "/nowhere" || ret == -2 || filename == "/*/passwd""#;
    let script = "cat /nowhere /etc/passwd /etc/hostname 2> /dev/null; true";
    let arguments = ["-k", "syscall_*_openat", "--filter", filter, "--subbuf-size", "4M"];
    let trace = dir.record(&arguments, &[&"sh", &"-c", &script]);
    assert_eq!(lost(&source(&trace.manifest())), 0);
    let events = trace.events();
    let paths: Vec<&str> = events.iter().map(|event| text(event, "filename")).collect();
    for wanted in ["/nowhere", "/etc/passwd"] {
        assert!(paths.contains(&wanted), "{wanted} in {paths:?}");
    }
    for event in &events {
        let path = text(event, "filename");
        let taken = event.fields["ret"] == -2 || path == "/nowhere" || path.ends_with("/passwd");
        assert!(taken, "{event:?}");
    }
}

#[test]
fn undecidable_filters_are_rejected_in_one_line() {
    let filter = r#"$comm == "sh" && prev_comm == "*sh""#;
    let arguments = ["record", "-k", "sched_switch", "--filter", filter, "--", "true"];
    let dir = TestDir::new();
    let output = run(&mut dir.tompion(&arguments)).exited(125);
    assert_eq!(output.err.lines().count(), 1, "{}", output.err);
    assert!(output.err.contains("$comm") && output.err.contains("sched_switch"), "{}", output.err);
}
