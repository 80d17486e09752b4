//! Counts of recorders that are killed and started again: they are those of the recorded events.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, thread,
    time::Duration,
};

use crate::{
    counts::{counts, entries},
    kills::{Found, found_in},
    recovery::kill_session,
    restart::{kill_again_and_again, nothing_is_lost, record_one_by_one},
    support::{TestDir, rounds, run, wait_until},
};

/// Rules with values that can be computed from a trace.
const RULES: [&str; 4] = [
    "--count",
    "n = count emitter:step by source, pid",
    "--count",
    "s = sum of number emitter:step by source",
];

/// Asserts that the counts are those of the recorded events, key by key.
fn counts_agree(dir: &TestDir, found: &[Found]) {
    let counts = counts(&dir.trace("trace"));
    let (mut by_process, mut by_source) = (BTreeMap::new(), BTreeMap::new());
    for Found { source, pid, number, .. } in found {
        by_process.entry(format!("[{source},{pid}]")).or_insert((0_u64, None)).0 += 1;
        let (count, sum) = by_source.entry(format!("[{source}]")).or_insert((0_u64, Some(0_i64)));
        *count += 1;
        *sum = sum.map(|sum| sum + *number as i64);
    }
    assert_eq!(entries(&counts, "n"), by_process, "{counts:#}");
    assert_eq!(entries(&counts, "s"), by_source, "{counts:#}");
    assert_eq!((&counts["processes"]["unable"], &counts["processes"]["counting"]), (&0.into(), &0.into()));
    let pids: BTreeSet<u32> = found.iter().map(|found| found.pid).collect();
    assert_eq!(counts["processes"]["ended"], pids.len(), "{}", counts["processes"]);
}

/// Counts programs that come one after the other, while recorders are killed.
fn count_over_kills(options: &[&str], times: u32, seed: u64) {
    let dir = TestDir::new();
    let (recorder, runs) = record_one_by_one(&dir, &[&RULES, options].concat());
    let recorder = kill_again_and_again(&dir, recorder, times, seed);
    fs::write(&runs, "").expect("a file");
    nothing_is_lost(&dir, recorder);
    let found = found_in(&dir.trace("trace"));
    assert!(!found.is_empty());
    counts_agree(&dir, &found);
}

#[test]
fn counts_of_recorders_that_are_killed_are_those_of_the_recorded_events() {
    count_over_kills(&[], rounds(20, 300), 0xc0_47);
}

#[test]
fn counts_of_recorders_in_chunks_that_are_killed_are_those_of_the_recorded_events() {
    count_over_kills(&["--rotate", "100ms"], rounds(20, 300), 0x0dd);
}

#[test]
fn a_recovery_adds_what_was_counted_in_memory_to_what_had_been_added_up() {
    let dir = TestDir::new();
    let (recorder, runs) = record_one_by_one(&dir, &RULES);
    thread::sleep(Duration::from_millis(400));
    fs::write(&runs, "").expect("a file");
    // The last program has ended, and the recorder may not have seen it yet.
    wait_until("the script's end", || fs::metadata(&runs).is_ok_and(|file| file.len() != 0));
    kill_session(recorder);
    run(&mut dir.tompion(&["recover", "trace"])).succeeded();
    counts_agree(&dir, &found_in(&dir.trace("trace")));
}
