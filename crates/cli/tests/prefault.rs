//! `--prefault`: no event takes a page fault.

use crate::support::{TestDir, run};

/// A ring of 4 MiB, and events of 32 bytes or a little more that go once over it.
const RING: [&str; 6] = ["--mode", "overwrite", "--subbuf-size", "1M", "--subbufs", "4"];
const EVENTS: &str = "130000";

/// Page faults of the first pass over a ring.
fn faults(options: &[&str], environment: &[(&str, &str)]) -> u64 {
    let dir = TestDir::new();
    let program = dir.program("first_pass");
    let options = [&RING[..], options].concat();
    let mut record = dir.recording("trace", &options, &[&program, &EVENTS]);
    record.envs(environment.iter().copied());
    let finished = run(&mut record).succeeded();
    assert!(!finished.err.contains("page faults"), "{}", finished.err);
    let (faults, _longest) = finished.out.trim().split_once(' ').expect("two numbers");
    eprintln!("{options:?} {environment:?}: {}", finished.out.trim());
    faults.parse().expect("a number")
}

#[test]
fn no_event_takes_a_page_fault_on_the_first_pass_over_a_ring() {
    // Rings in reserve form, too. Without the option, the background thread makes some pages
    // present ahead of the program.
    for environment in [&[][..], &[("TOMPION_RSEQ", "0")]] {
        let (without, with) = (faults(&[], environment), faults(&["--prefault"], environment));
        assert!(without > 16, "{without} faults");
        assert!(with < 8, "{with} faults");
    }
}

#[test]
fn events_of_forked_children_take_no_page_faults_either() {
    let dir = TestDir::new();
    let program = dir.program("first_pass");
    let script = format!("{0} {EVENTS}; {0} {EVENTS}", program.display());
    let options = [&RING[..], &["--prefault", "--preload", "malloc"]].concat();
    let finished = run(&mut dir.recording("trace", &options, &[&"sh", &"-c", &script])).succeeded();
    for line in finished.out.lines() {
        let faults: u64 = line.split(' ').next().and_then(|word| word.parse().ok()).expect("a number");
        assert!(faults < 8, "{line}");
    }
    assert_eq!(finished.out.lines().count(), 2);
}
