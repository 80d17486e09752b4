//! A program that writes random bytes over all that it shares with its session.

use crate::support::{Workshop, finish, rounds, run, start, tompion};

const INNOCENT_EVENTS: u64 = 20_001;

#[test]
fn who_scribbles_over_shared_memory_harms_nobody_else() {
    let shop = Workshop::new();
    let program = shop.program("hostile");
    let mut refused = 0;
    for seed in 1..=rounds(10, 200) {
        let name = format!("trace-{seed}");
        let mode = if seed % 2 == 0 { "discard" } else { "overwrite" };
        let options = ["--mode", mode, "--subbuf-size", "256K", "--subbufs", "16"];
        let command: [&dyn AsRef<std::ffi::OsStr>; 3] = [&program, &seed.to_string(), &"30000"];
        let recording = start(&mut shop.recording(&name, &options, &command));
        let finished = finish(recording, "record").succeeded();
        assert_eq!(finished.out, "2 places\n", "seed {seed}: {}", finished.err);
        assert!(!finished.err.contains("panicked"), "seed {seed}: {}", finished.err);

        let trace = shop.trace(&name);
        let innocent =
            run(tompion().args(["print", "--format", "json", "-e", "innocent:*"]).arg(&trace.folder));
        let numbers = innocent.succeeded().out;
        assert_eq!(numbers.lines().count() as u64, INNOCENT_EVENTS, "seed {seed}: {}", finished.err);
        for (line, number) in numbers.lines().zip(1..) {
            assert!(line.contains(&format!("\"number\":{number}}}")), "seed {seed}: {line} is not {number}");
        }
        refused += u64::from(trace.stat()["lost"]["refused"].as_u64() > Some(0));
    }
    println!("refused something in {refused} recordings");
    assert!(refused > 0);
}
