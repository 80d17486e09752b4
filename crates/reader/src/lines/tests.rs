//! Any number of threads writes the same lines as one: intact and corrupt streams, whole and in
//! part.

use std::path::PathBuf;

use super::print_with;
use crate::filter::Filter;
use crate::test_traces::{Anomaly, Folder, plain, stream};
use crate::text::{self, ClockFormat, PrintOptions, TimeFormat};
use crate::{Selection, TraceSet, open};

/// Returns the text of all events, and the findings about the traces.
fn printed(mut traces: TraceSet, options: &PrintOptions, threads: usize) -> (String, String) {
    let mut text = Vec::new();
    let new = text::lines(&mut traces, options);
    let events = print_with(&mut traces, &new, threads, &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert_eq!(text.lines().count() as u64, events);
    assert!(traces.next_event().is_none());
    let timestamp_regressions: Vec<_> = traces.timestamp_regressions().collect();
    let findings = format!("{:#?}\n{:#?}\n{timestamp_regressions:#?}", traces.losses(), traces.corruptions());
    (text, findings)
}

fn filter(text: &str) -> Option<Filter> {
    Some(Filter::new(&tompion_filter::parse(text).unwrap()).unwrap())
}

/// Compares two and three threads with one, for several selections and options.
fn check(name: &str, streams: &[Vec<u8>]) {
    let folder = Folder::new(name, streams);
    let opened = |selection: &Selection| folder.opened(selection);
    let time = |clock| TimeFormat { clock, ..TimeFormat::default() };
    let options = [ClockFormat::Seconds, ClockFormat::Cycles]
        .map(|clock| PrintOptions { time: time(clock), ..PrintOptions::default() });
    let moment = |nanoseconds: i64| Some(1_000_000_000_000 + nanoseconds);
    let selections = [
        Selection::default(),
        Selection { events: vec!["b:*".into()], ..Selection::default() },
        Selection { from: moment(700_000), to: moment(1_900_000), ..Selection::default() },
        Selection { from: moment(900_000), ..Selection::default() },
        Selection { filter: filter("n % 3 == 1 && n < 90"), ..Selection::default() },
        Selection {
            events: vec!["*:seven".into()],
            from: moment(900_000),
            filter: filter("s == \"text\" || $cpu == 2"),
            ..Selection::default()
        },
    ];
    for selection in &selections {
        let findings = crate::stat::summarize(&mut opened(selection)).timestamp_regressions;
        let mut traces = opened(selection);
        while traces.step() {}
        let mut found: Vec<String> = traces.timestamp_regressions().map(ToString::to_string).collect();
        found.sort_unstable();
        assert_eq!(findings, found, "{name}: {selection:?}");
        for options in &options {
            let (text, findings) = printed(opened(selection), options, 1);
            for threads in [2, 3] {
                let (found, found_findings) = printed(opened(selection), options, threads);
                let place = text.lines().zip(found.lines()).position(|(one, many)| one != many);
                assert!(text == found, "{name}: {threads} threads, {selection:?}, line {place:?}");
                let place = findings.lines().zip(found_findings.lines()).find(|(one, many)| one != many);
                assert!(findings == found_findings, "{name}: {threads} threads, {selection:?}, {place:?}");
            }
        }
    }
}

#[test]
fn intact_streams() {
    check("sound", &[1, 2, 3].map(|instance| stream(instance, 60, Anomaly::Nothing)));
    check("one", &[stream(1, 100, Anomaly::Nothing)]);
    // One stream ends early, one has a single packet, one has neither sizes nor times of packets.
    check(
        "ends",
        &[stream(1, 90, Anomaly::Nothing), stream(2, 9, Anomaly::Nothing), plain(1, 500), plain(2, 3000)],
    );
    check("still", &[stream(1, 40, Anomaly::Still), stream(2, 40, Anomaly::Nothing)]);
}

#[test]
fn streams_with_anomalies() {
    for (name, anomaly) in [
        ("damage", Anomaly::Corruption),
        ("all-damaged", Anomaly::AllCorrupt),
        ("back", Anomaly::Back),
        ("no-end", Anomaly::NoEnd),
        ("early-end", Anomaly::EarlyEnd),
    ] {
        check(name, &[stream(1, 60, anomaly), stream(2, 60, Anomaly::Nothing), stream(3, 40, anomaly)]);
    }
}

#[test]
fn too_much_corruption() {
    check("given-up", &[stream(1, 1100, Anomaly::AllCorrupt), stream(2, 60, Anomaly::Nothing)]);
}

#[test]
fn cut_and_empty_files() {
    let whole = stream(1, 50, Anomaly::Nothing);
    let cut = whole[..whole.len() * 3 / 5].to_vec();
    check("cut", &[cut, stream(2, 50, Anomaly::Nothing), Vec::new(), vec![0; 300]]);
}

/// Selections as by `-e`, `--filter` and `--last`, on traces of other tracers. Skipped without
/// these.
#[test]
fn real_traces_in_part() {
    let corpus = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/ctf-corpus"));
    for (name, events, condition) in [
        ("many-threads", "sched_*", "next_prio == 20 || prio < 20"),
        ("ros2", "ros2:*callback*", "$tid % 2 == 0"),
    ] {
        let folder = corpus.join(name);
        if !folder.is_dir() {
            println!("skipped: no folder {}", folder.display());
            continue;
        }
        let opened = || open(std::slice::from_ref(&folder)).unwrap();
        let end = opened().end();
        let selections = [
            Selection { events: vec![events.into()], ..Selection::default() },
            Selection { filter: filter(condition), ..Selection::default() },
            Selection { from: end.map(|end| end - 100_000_000), ..Selection::default() },
        ];
        for selection in &selections {
            let selected = || {
                let mut traces = opened();
                traces.select(selection.clone());
                traces
            };
            let (text, findings) = printed(selected(), &PrintOptions::default(), 1);
            assert!(!text.is_empty(), "{name}: {selection:?}");
            assert!(text.len() < 20_000_000, "{name}: {selection:?}");
            let (found, found_findings) = printed(selected(), &PrintOptions::default(), 3);
            let place = text.lines().zip(found.lines()).position(|(one, many)| one != many);
            assert!(text == found && findings == found_findings, "{name}: {selection:?}, line {place:?}");
        }
    }
}
