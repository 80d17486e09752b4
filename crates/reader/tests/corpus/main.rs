//! Traces of other tracers, with the outcomes that babeltrace2 2.0.4 and their authors state.
//!
//! The traces are outside the repository, in `../shared/ctf-corpus`; without them these tests are
//! skipped and say so.

mod field_cases;
mod filters;

use std::fs;
use std::path::PathBuf;

use sha2::{Digest, Sha256};
use tompion_reader::text::{ClockFormat, PrintOptions, TimeFormat};
use tompion_reader::{Corruption, LossKind, Selection, TraceSet, open, stat, text};

/// Lines that babeltrace2 2.0.4 prints wrongly: for an empty string it repeats the last string of
/// that field. Our output, and theirs.
const KNOWN_DEFECTS: [(&str, &str, &str); 4] = [
    (
        "many-threads",
        "[1457113583.226574671] wilbrod syscall_entry_access: { cpu_id = 4 }, { filename = \"\", mode = 4 }",
        "[1457113583.226574671] wilbrod syscall_entry_access: { cpu_id = 4 }, { filename = \"/var/run/utmpx\", mode = 4 }",
    ),
    (
        "bug446190",
        "[1412670963.203641639] lager sys_open: { cpu_id = 3 }, { filename = \"\", flags = 524288, mode = 1 }",
        "[1412670963.203641639] lager sys_open: { cpu_id = 3 }, { filename = \"/usr/local/lib/v7l/neon/vfp/libc.so.6\", flags = 524288, mode = 1 }",
    ),
    (
        "bug446190",
        "[1412670963.205312939] lager sys_stat64: { cpu_id = 3 }, { filename = \"\", statbuf = 0xBEA29AF0 }",
        "[1412670963.205312939] lager sys_stat64: { cpu_id = 3 }, { filename = \"/lib/vfp\", statbuf = 0xBEA29AF0 }",
    ),
    (
        "bug446190",
        "[1412670967.211708539] lager sys_open: { cpu_id = 3 }, { filename = \"\", flags = 524288, mode = 1 }",
        "[1412670967.211708539] lager sys_open: { cpu_id = 3 }, { filename = \"/usr/local/lib/neon/liblttng-ctl.so.0\", flags = 524288, mode = 1 }",
    ),
];

/// Returns the folder of the traces, if it exists.
pub fn corpus() -> Option<PathBuf> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/ctf-corpus"));
    if folder.is_dir() {
        return Some(folder);
    }
    println!("skipped: no folder {}", folder.display());
    None
}

fn opened(name: &str) -> Option<TraceSet> {
    Some(open(&[corpus()?.join(name)]).unwrap_or_else(|error| panic!("{name}: {error}")))
}

/// Returns the whole text with times in seconds and without deltas, and the corruptions.
fn printed(mut traces: TraceSet) -> (String, Vec<Corruption>) {
    let time = TimeFormat { clock: ClockFormat::Seconds, utc: true, ..TimeFormat::default() };
    let mut output = Vec::new();
    text::print(&mut traces, &PrintOptions { time, no_delta: true, ..PrintOptions::default() }, &mut output)
        .unwrap();
    (String::from_utf8(output).unwrap(), traces.corruptions().to_vec())
}

fn time_of(line: Option<&str>) -> &str {
    let time = line.and_then(|line| line.strip_prefix('[')?.split_once(']'));
    time.map_or("none", |(time, _)| time)
}

fn lost(traces: &TraceSet, kind: LossKind) -> u64 {
    traces.losses().iter().filter(|loss| loss.kind == kind).map(|loss| loss.count).sum()
}

#[test]
fn traces_are_read_as_their_index_states() {
    let Some(folder) = corpus() else { return };
    let index = fs::read_to_string(folder.join("INDEX.tsv")).unwrap();
    let mut checked = 0;
    for row in index.lines().skip(1) {
        let columns: Vec<&str> = row.split('\t').collect();
        let [name, _, _, _, events, first, last, lost, exit, _, _, sha] = columns[..] else {
            panic!("a row of {} columns: {row}", columns.len());
        };
        checked += 1;
        // babeltrace2 2.0.4 doesn't read CTF 2; there the index has the outcomes of other readers.
        match exit {
            _ if name == "philo.ctf2" => {}
            "1 (CTF 2)" => check_sound(name, "4000", (first, last), ("0 ev, 0 pkt", sha)),
            "0" => check_sound(name, events, (first, last), (lost, sha)),
            _ => check_damaged(name, events.parse().unwrap()),
        }
    }
    assert_eq!(checked, 16);
}

fn check_sound(name: &str, events: &str, (first, last): (&str, &str), (expected_lost, sha): (&str, &str)) {
    let mut traces = opened(name).unwrap();
    let summary = stat::summarize(&mut traces);
    assert_eq!(summary.events.to_string(), events, "{name}");
    assert_eq!(summary.by_event.values().sum::<u64>(), summary.events, "{name}");
    let found = format!("{} ev, {} pkt", lost(&traces, LossKind::Events), lost(&traces, LossKind::Packets));
    assert_eq!(found, expected_lost, "{name}");
    assert_eq!(format!("{} ev, {} pkt", summary.lost.total, summary.lost_packets), expected_lost, "{name}");

    let (mut text, corruptions) = printed(opened(name).unwrap());
    assert_eq!(corruptions, [], "{name}");
    assert_eq!(text.lines().count().to_string(), events, "{name}");
    assert_eq!((time_of(text.lines().next()), time_of(text.lines().last())), (first, last), "{name}");
    for (_, ours, theirs) in KNOWN_DEFECTS.iter().filter(|(trace, ..)| *trace == name) {
        assert_eq!(text.matches(ours).count(), 1, "{name}: {ours}");
        text = text.replace(ours, theirs);
    }
    let digest = Sha256::digest(text.as_bytes());
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(digest, sha, "the text of {name}");
}

/// Events before the corruption are read, and the corruption is reported.
fn check_damaged(name: &str, events: usize) {
    let folder = corpus().unwrap().join(name);
    match open(&[folder]) {
        Ok(traces) => {
            let (text, corruptions) = printed(traces);
            assert_eq!(text.lines().count(), events, "{name}");
            assert_eq!(corruptions.len(), 1, "{name}");
        }
        Err(error) => {
            assert_eq!(events, 0, "{name}: {error}");
            let error = error.to_string();
            assert!(error.ends_with("found `]`, line 3, column 58"), "{error}");
        }
    }
}

#[test]
fn a_trace_without_clock_origin_is_read_as_by_another_reader() {
    let Some(folder) = corpus().map(|folder| folder.join("philo.ctf2")) else { return };
    let expected = fs::read_to_string(folder.join("refs/out.ref")).unwrap();
    let mut traces = open(&[folder]).unwrap();
    let time = TimeFormat { clock: ClockFormat::Seconds, utc: true, ..TimeFormat::default() };
    let mut output = Vec::new();
    text::print(&mut traces, &PrintOptions { time, no_delta: true, ..PrintOptions::default() }, &mut output)
        .unwrap();
    let text = String::from_utf8(output).unwrap();
    let mut lines = 0;
    for (found, expected) in text.lines().zip(expected.lines()) {
        let part = |name: &str| expected.split_once(name).unwrap().1.split_once(" }").unwrap().0;
        let name = expected.split_once("] ").unwrap().1.split_once(": ").unwrap().0;
        let time: u64 = part("event-header: { tstamp: ").split_once(',').unwrap().0.parse().unwrap();
        let shown = |part: &str| part.replace(": ", " = ");
        let (context, payload) = (part("event-common-context: "), part("event-payload: "));
        let expected = format!(
            "[{}.{:09}] {name}: {} }}, {} }}",
            time / 1_000_000_000,
            time % 1_000_000_000,
            shown(context),
            shown(payload)
        );
        assert_eq!(found, expected);
        lines += 1;
    }
    assert_eq!((lines, text.lines().count(), traces.corruptions().len()), (141, 141, 0));
}

#[test]
fn an_event_without_a_class_is_corruption_after_intact_events() {
    let Some(traces) = opened("valid-events-then-invalid-events") else { return };
    let (text, corruptions) = printed(traces);
    assert_eq!(text.lines().count(), 2);
    let [corruption] = &corruptions[..] else { panic!("{corruptions:?}") };
    assert_eq!(corruption.offset, Some(2));
    assert_eq!(corruption.message, "expected the number of an event class, found 255");
}

#[test]
fn time_ranges_include_their_bounds() {
    let second = 1_351_532_897_000_000_000;
    for (from, to, expected) in [
        (Some(second + 587_029_529), None, 18),
        (None, Some(second + 588_680_018), 9),
        (Some(second + 587_029_529), Some(second + 588_680_018), 7),
        (None, Some(0), 0),
        (Some(i64::MAX), None, 0),
    ] {
        let Some(mut traces) = opened("wk-heartbeat-u") else { return };
        traces.select(Selection { from, to, ..Selection::default() });
        let (text, corruptions) = printed(traces);
        assert_eq!((text.lines().count(), corruptions.len()), (expected, 0), "{from:?} {to:?}");
    }
}

#[test]
fn globs_select_events_by_name() {
    let Some(mut traces) = opened("many-threads") else { return };
    traces.select(Selection { events: vec!["sched_sw*".into()], ..Selection::default() });
    let summary = stat::summarize(&mut traces);
    assert_eq!(summary.events, 28325);
    assert_eq!(summary.by_event.keys().collect::<Vec<_>>(), ["sched_switch"]);
}

#[test]
fn a_rotated_stream_is_one_stream_and_its_processes_are_named() {
    let Some(mut traces) = opened("session-rotation") else { return };
    let summary = stat::summarize(&mut traces);
    let processes: Vec<_> = summary.processes.iter().map(|process| (process.pid, &*process.name)).collect();
    assert_eq!(processes, [(10352, "hello-ust"), (10353, "hello-ust")]);
}

#[test]
fn fields_are_found_by_name_and_have_types() {
    let Some(mut traces) = opened("many-threads") else { return };
    traces.select(Selection { events: vec!["sched_switch".into()], ..Selection::default() });
    let event = traces.next_event().unwrap();
    assert_eq!(event.name(), "sched_switch");
    assert_eq!(event.cpu(), Some(5));
    assert_eq!(event.field("next_comm").unwrap().as_text(), Some(&b"lttng-consumerd"[..]));
    assert_eq!(event.field("next_tid").unwrap().as_integer(), Some(4297));
    assert!(event.field("no_such_field").is_none());
}
