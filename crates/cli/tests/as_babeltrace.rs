//! `print` with all options for what is shown, held against babeltrace2's text. The traces stand
//! outside the repository; without them, or without babeltrace2, these tests pass and say that they
//! did nothing.

use std::path::PathBuf;
use std::process::Command;

use crate::support::{installed, repository, run, tompion};

/// Options for what is shown; both programs have them.
const OPTIONS: [&str; 25] = [
    "",
    "--clock-seconds",
    "--clock-date",
    "--clock-date --clock-seconds --no-delta",
    "--clock-cycles",
    "--clock-cycles --no-delta",
    "--names none",
    "--names all",
    "--names scope",
    "--names header --no-delta",
    "--names payload,scope",
    "--names ctx",
    "--names args,header --clock-cycles",
    "-f all",
    "-f trace,loglevel --no-delta",
    "-f trace:hostname,trace:domain",
    "-f trace:vpid,emf",
    "-f trace:procname,trace:vpid,loglevel -n all",
    "-f all -n all",
    "-f all -n header --clock-cycles",
    "-f trace -n header",
    "-f emf",
    "-f callsite",
    "--clock-offset=3600 --clock-offset-ns=5",
    "--clock-offset=-500 --clock-offset-ns=-5 --clock-date",
];

/// Traces, and whether they are printed with all options.
const TRACES: [(&str, bool); 12] = [
    ("many-threads", false),
    ("bug446190", false),
    ("glxgears-cyg-profile", false),
    ("ros2", false),
    ("multi-domains", true),
    ("session-rotation", true),
    ("trace-with-index", true),
    ("wk-heartbeat-u", true),
    ("smalltrace", true),
    ("perf-taskset2", true),
    ("2-streams-lost-in-2", true),
    ("3eventsintersect", true),
];

fn corpus() -> Option<PathBuf> {
    let folder = repository().join("../shared/ctf-corpus");
    let is_there = folder.is_dir() && installed("babeltrace2");
    if !is_there {
        println!("skipped: no babeltrace2, or no folder {}", folder.display());
    }
    is_there.then_some(folder)
}

fn words(options: &str) -> Vec<&str> {
    options.split_whitespace().collect()
}

/// Returns whether it is the same line. Where a text is empty, babeltrace2 2.0.4 prints that of an
/// earlier event.
fn is_same(ours: &str, theirs: &str) -> bool {
    let begin = |line: &str| line.split(&['{', '"'][..]).next().map(str::to_owned);
    ours == theirs || ours.contains("\"\"") && begin(ours) == begin(theirs)
}

fn compare(trace: &str, options: &str) {
    let Some(folder) = corpus().map(|folder| folder.join(trace)) else { return };
    let ours =
        run(tompion().args(["print", "--clock-gmt"]).args(words(options)).arg(&folder)).succeeded().out;
    let theirs = run(Command::new("babeltrace2").arg("--clock-gmt").args(words(options)).arg(&folder));
    let theirs = theirs.succeeded().out;
    for (ours, theirs) in ours.lines().zip(theirs.lines()) {
        assert!(is_same(ours, theirs), "{trace} {options}:\nours   {ours}\ntheirs {theirs}");
    }
    assert_eq!(ours.lines().count(), theirs.lines().count(), "{trace} {options}");
}

#[test]
fn small_traces_are_printed_alike_with_all_options() {
    for (trace, _) in TRACES.iter().filter(|(_, is_small)| *is_small) {
        OPTIONS.iter().for_each(|options| compare(trace, options));
    }
}

#[test]
fn large_traces_are_printed_alike() {
    for (trace, _) in TRACES.iter().filter(|(_, is_small)| !is_small) {
        ["--clock-date", "-f all -n all --clock-cycles"].iter().for_each(|options| compare(trace, options));
    }
}

#[test]
fn colours_are_for_those_who_ask() {
    let Some(folder) = corpus().map(|folder| folder.join("wk-heartbeat-u")) else { return };
    let printed = |color: &str| run(tompion().args(["print", color]).arg(&folder)).succeeded().out;
    let (plain, coloured) = (printed("--color=auto"), printed("--color=always"));
    assert_eq!(printed("--color=never"), plain);
    assert!(!plain.contains('\u{1b}'));
    let line = coloured.lines().next().unwrap();
    assert!(line.contains("\u{1b}[1;32mheartbeat:msg\u{1b}[0m: { "), "{line:?}");
    let mut without = coloured;
    for sequence in ["\u{1b}[1;32m", "\u{1b}[36m", "\u{1b}[0m"] {
        without = without.replace(sequence, "");
    }
    assert_eq!(without, plain);
}
