//! Plugins that come and go while they are recorded.

use crate::support::{TestDir, rounds, run};

/// Maximum bytes that a plugin leaves each time that it is loaded. It leaves nothing itself; this
/// is room for fragments of the C library, and for pages of the rings that are touched for the
/// first time.
const SLACK_KIB: i64 = 2048;

#[test]
fn plugins_come_and_go_without_a_crash_or_growth() {
    let dir = TestDir::new();
    let times = rounds(3000, 100_000);
    let plugin = dir.link("plugin.so", &["plugin.c"], &["-shared", "-fPIC"]);
    let host = dir.link("plugin_host", &["plugin_host.c"], &["-ldl"]);
    let recorded = run(&mut dir.recording(
        "trace",
        &["--subbuf-size", "64K", "--subbufs", "16"],
        &[&host, &plugin, &times.to_string()],
    ))
    .succeeded();
    let (growth, enabled_unloaded) = recorded.out.trim().split_once(' ').expect("two numbers");
    assert!(growth.parse::<i64>().expect("a number") < SLACK_KIB, "grew by {growth} KiB");
    assert_eq!(enabled_unloaded, "0", "the event of an unloaded plugin was said to be enabled");
    let trace = dir.trace("trace");
    trace.agreed_count();
    let calls: Vec<u64> = trace
        .events()
        .iter()
        .filter(|event| event.name == "plugin:called")
        .map(|event| event.number("round"))
        .collect();
    assert_eq!(calls, (0..u64::from(times)).collect::<Vec<_>>());
}
