//! Any number of threads writes what one writes: sound streams and odd ones, whole and in part.

use std::path::PathBuf;

use super::print_with;
use crate::filter::Filter;
use crate::odd::{Folder, Odd, plain, stream};
use crate::text::{self, ClockFormat, PrintOptions, TimeFormat};
use crate::{Selection, TraceSet, open};

/// The text of all events, and what there is to be told of them.
fn printed(mut traces: TraceSet, options: &PrintOptions, threads: usize) -> (String, String) {
    let mut text = Vec::new();
    let new = text::lines(&mut traces, options);
    let events = print_with(&mut traces, &new, threads, &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert_eq!(text.lines().count() as u64, events);
    assert!(traces.next_event().is_none());
    let disorders: Vec<_> = traces.disorders().collect();
    let told = format!("{:#?}\n{:#?}\n{disorders:#?}", traces.losses(), traces.damages());
    (text, told)
}

fn filter(text: &str) -> Option<Filter> {
    Some(Filter::new(&tompion_filter::parse(text).unwrap()).unwrap())
}

/// Holds two and three threads against one, for several selections and options.
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
        let told = crate::stat::summarize(&mut opened(selection)).disorders;
        let mut traces = opened(selection);
        while traces.step() {}
        let mut found: Vec<String> = traces.disorders().map(ToString::to_string).collect();
        found.sort_unstable();
        assert_eq!(told, found, "{name}: {selection:?}");
        for options in &options {
            let (text, told) = printed(opened(selection), options, 1);
            for threads in [2, 3] {
                let (found, found_told) = printed(opened(selection), options, threads);
                let place = text.lines().zip(found.lines()).position(|(one, many)| one != many);
                assert!(text == found, "{name}: {threads} threads, {selection:?}, line {place:?}");
                let place = told.lines().zip(found_told.lines()).find(|(one, many)| one != many);
                assert!(told == found_told, "{name}: {threads} threads, {selection:?}, {place:?}");
            }
        }
    }
}

#[test]
fn sound_streams() {
    check("sound", &[1, 2, 3].map(|instance| stream(instance, 60, Odd::Nothing)));
    check("one", &[stream(1, 100, Odd::Nothing)]);
    // One ends early, one has but one packet, one has neither sizes nor times of packets.
    check("ends", &[stream(1, 90, Odd::Nothing), stream(2, 9, Odd::Nothing), plain(1, 500), plain(2, 3000)]);
    check("still", &[stream(1, 40, Odd::Still), stream(2, 40, Odd::Nothing)]);
}

#[test]
fn odd_streams() {
    for (name, odd) in [
        ("damage", Odd::Damage),
        ("all-damaged", Odd::AllDamaged),
        ("back", Odd::Back),
        ("no-end", Odd::NoEnd),
        ("early-end", Odd::EarlyEnd),
    ] {
        check(name, &[stream(1, 60, odd), stream(2, 60, Odd::Nothing), stream(3, 40, odd)]);
    }
}

#[test]
fn too_much_damage() {
    check("given-up", &[stream(1, 1100, Odd::AllDamaged), stream(2, 60, Odd::Nothing)]);
}

#[test]
fn cut_and_empty_files() {
    let whole = stream(1, 50, Odd::Nothing);
    let cut = whole[..whole.len() * 3 / 5].to_vec();
    check("cut", &[cut, stream(2, 50, Odd::Nothing), Vec::new(), vec![0; 300]]);
}

/// As `-e`, `--filter` and `--last` select of other tracers' traces; without these, nothing is done.
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
            let (text, told) = printed(selected(), &PrintOptions::default(), 1);
            assert!(!text.is_empty(), "{name}: {selection:?}");
            assert!(text.len() < 20_000_000, "{name}: {selection:?}");
            let (found, found_told) = printed(selected(), &PrintOptions::default(), 3);
            let place = text.lines().zip(found.lines()).position(|(one, many)| one != many);
            assert!(text == found && told == found_told, "{name}: {selection:?}, line {place:?}");
        }
    }
}
