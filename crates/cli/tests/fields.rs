//! Every type of field with the values at its edges.

use crate::support::{TestDir, Trace, beside};

/// Events as babeltrace2 prints them, from the name on and without the thread's id.
fn contents(trace: &Trace) -> Vec<String> {
    let name = |line: &str| line.split_once(") edge:").map(|(_, rest)| rest.to_owned());
    let without_context = |text: String| -> Option<String> {
        let (name, rest) = text.split_once(": { cpu_id")?;
        Some(format!("{name}: {}", rest.split_once(" }, { vtid")?.1.split_once(" }, ")?.1))
    };
    trace
        .printed()
        .lines()
        .map(|line| name(line).and_then(without_context).expect("an event's line"))
        .collect()
}

fn long_text() -> String {
    (b'a'..=b'z').cycle().take(60 * 1024).map(char::from).collect()
}

#[test]
fn values_at_the_edges_are_recorded_as_given() {
    let dir = TestDir::new();
    let trace = dir.record(&[], &[&dir.program("fields")]);

    let mut found = contents(&trace);
    assert_eq!(
        found.pop().unwrap(),
        format!(r#"long_text: {{ before = 7, text = "{}", after = 8 }}"#, long_text())
    );
    let expected = std::fs::read_to_string(beside("golden/fields.txt")).unwrap();
    for (found, expected) in found.iter().zip(expected.lines()) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.len(), expected.lines().count());
}

#[test]
fn babeltrace_prints_the_same_text_without_a_warning() {
    let dir = TestDir::new();
    let trace = dir.record(&[], &[&dir.program("fields")]);

    assert_eq!(trace.agreed_text(), 16);
    assert_eq!(trace.babeltrace().err, "");
}

#[test]
fn a_record_that_is_too_large_is_counted_and_harms_no_other() {
    let dir = TestDir::new();
    let trace = dir.record(&[], &[&dir.program("fields"), &"large"]);

    assert_eq!(trace.agreed_text(), 17);
    assert_eq!(contents(&trace).last().unwrap(), "last: { }");
    assert_eq!(trace.stat()["lost"], serde_json::json!({"total": 1, "too_large": 1}));
    let warning = trace.babeltrace().err;
    assert!(warning.starts_with("WARNING: Tracer discarded 1 event "), "{warning}");
    assert_eq!(warning.trim().lines().count(), 1, "{warning}");
}

#[test]
fn small_subbuffers_bound_the_largest_record() {
    let dir = TestDir::new();
    let trace = dir.record(&["--subbuf-size", "4K", "--subbufs", "16"], &[&dir.program("fields")]);

    assert_eq!(trace.agreed_count(), 15);
    assert_eq!(trace.stat()["lost"], serde_json::json!({"total": 1, "too_large": 1}));
}
