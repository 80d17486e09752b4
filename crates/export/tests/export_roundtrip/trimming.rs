use std::path::Path;

use tompion_export::{Plan, rewrite};
use tompion_reader::{Selection, open};

use super::{babeltrace, corpus, opened, read, test_dir};

type Range = (Option<i64>, Option<i64>);

/// Returns the lines within a range of times.
fn within(text: &str, (from, to): Range) -> String {
    let time = |line: &str| -> i64 {
        line.strip_prefix('[')
            .and_then(|line| line.split_once(']'))
            .unwrap()
            .0
            .replace('.', "")
            .parse()
            .unwrap()
    };
    let is_within =
        |line: &&str| from.is_none_or(|from| time(line) >= from) && to.is_none_or(|to| time(line) <= to);
    text.lines().filter(is_within).map(|line| format!("{line}\n")).collect()
}

fn trim(from: &Path, (begin, end): Range, to: &Path) -> u64 {
    let mut traces = opened(from);
    traces.select(Selection { from: begin, to: end, ..Selection::default() });
    let plan = Plan { version: None, part: Some((begin, end)) };
    rewrite(&mut traces, plan, to).unwrap().events
}

#[test]
fn a_part_has_just_the_events_of_its_times() {
    let Some(folder) = corpus() else { return };
    let shop = test_dir();
    let (second, third) = (1_351_532_897_587_029_529, 1_351_532_897_588_680_018);
    // Numbers of events are given for traces whose authors state them.
    let cases: [(&str, Range, Option<u64>); 6] = [
        ("wk-heartbeat-u", (Some(second), None), Some(18)),
        ("wk-heartbeat-u", (None, Some(third)), Some(9)),
        ("wk-heartbeat-u", (Some(second), Some(third)), Some(7)),
        ("many-threads", (Some(1_457_113_583_000_000_000), Some(1_457_113_583_001_000_000)), None),
        ("trace-with-index.ctf2", (Some(1_565_033_465_300_000_000), None), None),
        ("ros2", (Some(1_649_361_410_000_000_000), Some(1_649_361_410_100_000_000)), None),
    ];
    for (index, (name, range, events)) in cases.into_iter().enumerate() {
        let part = shop.path().join(format!("{name}-{index}"));
        let count = trim(&folder.join(name), range, &part);
        let found = read(&part).0;
        assert_eq!(found, within(&read(&folder.join(name)).0, range), "{name}");
        assert_eq!(found.lines().count() as u64, count, "{name}");
        assert!(count > 0 && events.is_none_or(|events| events == count), "{name}: {count}");
        // babeltrace2 doesn't read CTF 2.
        let is_read = !name.ends_with(".ctf2");
        if let Some(text) = is_read.then(|| babeltrace(&part)).flatten() {
            assert_eq!(text, found, "{name}");
        }
    }
}

#[test]
fn losses_are_kept_where_they_happened() {
    let Some(folder) = corpus() else { return };
    let shop = test_dir();
    let trace = folder.join("multi-domains");
    let all = read(&trace).1;
    let [(false, 728, (Some(from), Some(to)), _)] = all[..] else { panic!("{all:?}") };
    let with = shop.path().join("with");
    trim(&trace, (Some(from), Some(to)), &with);
    assert_eq!(read(&with).1, all);
    for (name, range) in [("before", (None, Some(from - 1_000_000_000))), ("behind", (Some(to + 1), None))] {
        let part = shop.path().join(name);
        trim(&trace, range, &part);
        assert_eq!(read(&part).1, [], "{name}");
    }
}

#[test]
fn a_selection_of_names_keeps_the_packets() {
    let Some(folder) = corpus() else { return };
    let shop = test_dir();
    let part = shop.path().join("part");
    let mut traces = open(&[folder.join("many-threads")]).unwrap();
    traces.select(Selection { events: vec!["sched_switch".into()], ..Selection::default() });
    let rewritten = rewrite(&mut traces, Plan { version: None, part: Some((None, None)) }, &part).unwrap();
    assert_eq!((rewritten.events, rewritten.packets), (28_325, 40));
    let expected: String = read(&folder.join("many-threads")).0;
    let expected: Vec<&str> = expected.lines().filter(|line| line.contains(" sched_switch: ")).collect();
    assert_eq!(read(&part).0.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn a_part_without_events_is_still_a_trace() {
    let Some(folder) = corpus() else { return };
    let shop = test_dir();
    let part = shop.path().join("part");
    assert_eq!(trim(&folder.join("wk-heartbeat-u"), (Some(i64::MAX), None), &part), 0);
    assert_eq!(read(&part), (String::new(), vec![]));
}
