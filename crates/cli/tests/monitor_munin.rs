//! The plugin for Munin, told what monitors have counted.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command};

use serde_json::json;

use crate::support::{repository, run};

/// Returns the plugin's value of CPU 0's timer wakeups for a report of the monitor.
fn munin_value(
    folder: &Path,
    (begun, reset): (u64, u64),
    (max_us, histogram): (f64, &[(u64, u64)]),
) -> String {
    let report = json!({
        "counting_since_ns": 1_000_000 + begun,
        "counting_since_monotonic_ns": begun,
        "from_ns": 1_000_000 + begun + reset,
        "cpus": [{ "cpu": 0, "kinds": { "timer-wakeup-all": { "max_us": max_us, "histogram": histogram } } }],
    });
    fs::write(folder.join("report.json"), report.to_string()).unwrap();
    let command = folder.join("tompion");
    fs::write(&command, format!("#!/bin/sh\ncat {}\n", folder.join("report.json").display())).unwrap();
    fs::set_permissions(&command, fs::Permissions::from_mode(0o755)).unwrap();
    let mut plugin = Command::new("python3");
    plugin.arg(repository().join("integrations/munin/tompion_latency"));
    let out = run(plugin.env("tompion", &command).env("MUNIN_PLUGSTATE", folder)).succeeded().out;
    let value = out.lines().find_map(|line| line.strip_prefix("cpu0.value "));
    value.unwrap_or_else(|| panic!("no value: {out}")).to_owned()
}

#[test]
fn given_another_monitor_in_its_place_then_nothing_of_the_first_is_subtracted() {
    let folder = tempfile::tempdir().unwrap();
    let value = |of, counted: (f64, &[(u64, u64)])| munin_value(folder.path(), of, counted);
    let first = (5_000, 0);
    assert_eq!(value(first, (90.5, &[(4, 1000), (71, 9), (90, 1)])), "U", "that may be of any time");
    assert_eq!(value(first, (90.5, &[(4, 2000), (71, 12), (90, 1)])), "71.0");
    assert_eq!(value(first, (90.5, &[(4, 2000), (71, 12), (90, 1)])), "0.0");
    // Stopped and begun again: fewer of each length.
    let second = (800_000, 0);
    assert_eq!(value(second, (71.2, &[(4, 100), (71, 1)])), "71.2");
    // A reset.
    assert_eq!(value((800_000, 40), (17.3, &[(4, 700), (17, 1)])), "17.3");
    // Whatever restarted: lower counts are not those of before.
    assert_eq!(value((800_000, 40), (16.1, &[(4, 100), (16, 1)])), "16.1");
}
