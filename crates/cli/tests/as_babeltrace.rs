//! `print` with all options for what is shown, and its order of events of the same time, held
//! against babeltrace2's text. Most traces stand outside the repository; without them, or without
//! babeltrace2, these tests pass and say that they did nothing.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tompion_testing::Random;

use crate::support::{TestDir, installed, repository, run, tompion};

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

/// Sets of traces with events of the same times.
const TIED_SETS: u64 = 20;
/// Times of their events, in nanoseconds: few, so that most events share one.
const TIED_TIMES: u64 = 6;

/// Metadata of a trace, in which streams may have numbers.
fn tied_metadata(random: &mut Random, classes: &[u64], numbers_streams: bool) -> String {
    let mut uuid = String::new();
    if random.below(3) > 0 {
        write!(uuid, "uuid = \"00000000-0000-4000-8000-{:012x}\";", random.below(1 << 40)).unwrap();
    }
    let instance = if numbers_streams { "u64 stream_instance_id;" } else { "" };
    let mut text = format!(
        "/* CTF 1.8 */
        typealias integer {{ size = 64; align = 8; }} := u64;
        typealias integer {{ size = 32; align = 8; }} := u32;
        trace {{ major = 1; minor = 8; {uuid} byte_order = le;
            packet.header := struct {{ u32 magic; u32 stream_id; {instance} }}; }};
        clock {{ name = c; freq = 1000000000; offset = 0; absolute = true; }};
        typealias integer {{ size = 64; align = 8; map = clock.c.value; }} := time;\n"
    );
    for class in classes {
        writeln!(
            text,
            "stream {{ id = {class}; event.header := struct {{ u32 id; time timestamp; }}; packet.context :=
                struct {{ time timestamp_begin; time timestamp_end; u64 content_size; u64 packet_size; }}; }};
            event {{ id = 0; stream_id = {class}; name = \"tied\"; fields := struct {{ u32 number; }}; }};"
        )
        .unwrap();
    }
    text
}

/// A stream of one packet, with events that are numbered.
fn tied_stream(random: &mut Random, class: u64, instance: Option<u64>, number: &mut u32) -> Vec<u8> {
    let mut times: Vec<u64> = (0..1 + random.below(6)).map(|_| random.below(TIED_TIMES)).collect();
    times.sort_unstable();
    let mut header = [0xc1fc_1fc1, class as u32].map(u32::to_le_bytes).concat();
    header.extend(instance.into_iter().flat_map(u64::to_le_bytes));
    let bits = 8 * (header.len() as u64 + 4 * 8 + 16 * times.len() as u64);
    let context = [times[0], times[times.len() - 1], bits, bits].map(u64::to_le_bytes).concat();
    let mut bytes = [header, context].concat();
    for time in times {
        *number += 1;
        bytes.extend([&[0; 4][..], &time.to_le_bytes(), &number.to_le_bytes()].concat());
    }
    bytes
}

/// Writes traces into a folder. Their names and those of their files are in random order.
fn write_tied_traces(random: &mut Random, folder: &Path) {
    let mut number = 0;
    for _ in 0..1 + random.below(4) {
        let trace = folder.join(format!("{:08x}", random.below(1 << 32)));
        std::fs::create_dir_all(&trace).expect("a folder");
        let classes = [7, 3].into_iter().take(1 + random.index(2)).collect::<Vec<_>>();
        let numbers_streams = random.below(2) == 0;
        let metadata = tied_metadata(random, &classes, numbers_streams);
        std::fs::write(trace.join("metadata"), metadata).expect("its metadata");
        for class in classes {
            for instance in (0..1 + random.below(3)).rev() {
                let instance = numbers_streams.then_some(instance);
                let bytes = tied_stream(random, class, instance, &mut number);
                let name = format!("stream_{:08x}", random.below(1 << 32));
                std::fs::write(trace.join(name), bytes).expect("a stream");
            }
        }
    }
}

#[test]
fn events_of_the_same_time_are_in_the_same_order() {
    if !installed("babeltrace2") {
        return println!("skipped: no babeltrace2");
    }
    let dir = TestDir::new();
    for seed in 1..=TIED_SETS {
        let folder = dir.path(&format!("set-{seed}"));
        // Small seeds have similar first numbers.
        write_tied_traces(&mut Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)), &folder);
        let options = ["--clock-seconds", "--clock-gmt", "--no-delta"];
        let ours = run(tompion().arg("print").args(options).arg(&folder)).succeeded().out;
        let theirs = run(Command::new("babeltrace2").args(options).arg(&folder)).succeeded().out;
        assert!(ours.lines().count() > 1 && ours == theirs, "set {seed}:\nours\n{ours}theirs\n{theirs}");
    }
}
