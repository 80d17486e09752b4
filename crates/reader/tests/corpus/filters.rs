//! Filters on traces of other tracers. The number of passing events must equal the number of
//! matching lines in the text that is compared with babeltrace2's.

use tompion_filter::parse;
use tompion_reader::filter::{Filter, check, missing};
use tompion_reader::{Selection, stat};

use crate::{opened, printed};

type Says = fn(&str) -> bool;

/// Trace, filter, and predicate on the line of an event that passes.
const CASES: &[(&str, &str, Says)] = &[
    ("many-threads", "ret < 0", |line| line.contains(" ret = -")),
    ("many-threads", "filename == \"/etc/*\"", |line| line.contains(" filename = \"/etc/")),
    ("many-threads", "filename == \"*.so.?\"", |line| {
        line.split_once(" filename = \"").and_then(|(_, rest)| rest.split_once('"')).is_some_and(
            |(text, _)| text.rsplit_once(".so.").is_some_and(|(_, version)| version.chars().count() == 1),
        )
    }),
    ("many-threads", "comm == \"fluffy\" && prio == 20", |line| {
        line.contains(" comm = \"fluffy\"") && line.contains(" prio = 20")
    }),
    ("many-threads", "next_prio - prev_prio == 0 && $cpu_id >= 6", |line| {
        let number = |name: &str| line.split_once(name)?.1.split([' ', ',']).next()?.parse::<i64>().ok();
        number(" next_prio = ").is_some_and(|next| Some(next) == number(" prev_prio = "))
            && number("{ cpu_id = ").is_some_and(|cpu| cpu >= 6)
    }),
    ("bug446190", "bytes_req != bytes_alloc && call_site == 0xC01010F8 || bytes_req == 1 << 12", |line| {
        line.contains(" bytes_req = 4096,")
            || line.contains(" call_site = 0xC01010F8,")
                && line.split_once(" bytes_req = ").is_some_and(|(_, rest)| {
                    let mut numbers = rest.split(", ").map(|part| part.rsplit(' ').next());
                    numbers.next() != numbers.next()
                })
    }),
    ("wk-heartbeat-u", "$tid == 3215 && $pid == 3208", |line| {
        line.contains(" vtid = 3215,") && line.contains(" vpid = 3208 ")
    }),
    ("ros2", "$comm == \"sink\" && $cpu == 2", |line| {
        line.contains(" procname = \"sink\"") && line.contains("{ cpu_id = 2 }")
    }),
    ("ros2", "$procname == \"s*\" && $vtid != $vpid", |line| {
        let number = |name: &str| line.split_once(name).and_then(|(_, rest)| rest.split([' ', ',']).next());
        line.contains(" procname = \"s") && number(" vtid = ") != number(" vpid = ")
    }),
    ("perf-taskset2", "$tid == 28 && $cpu == 3", |line| {
        line.contains(" perf_tid = 28,") && line.contains(" perf_cpu = 3,")
    }),
    // Network byte order, arrays and sequences of numbers and of text, enumerations.
    ("multi-domains", "netintfield > 120 && netintfieldhex == intfield && longfield % 2 == 0", |line| {
        let text = line.split_once(" netintfield = ").and_then(|(_, rest)| rest.split(',').next());
        text.and_then(|text| text.parse::<i64>().ok()).is_some_and(|number| number > 120 && number % 2 == 0)
    }),
    (
        "multi-domains",
        "arrfield1[2] == 3 && arrfield2 == \"te*\" && seqfield1[0] == 't' && seqfield2 == stringfield",
        |line| line.contains(" lttng_test_filter_event:"),
    ),
    ("multi-domains", "arrfield1[3] == 0 || seqfield3[3] == 0", |_| false),
    ("multi-domains", r#"stringfield2 == "\\\*" && intfield2 & 1"#, |line| {
        line.split_once(" intfield2 = 0x").is_some_and(|(_, rest)| {
            rest.split(',')
                .next()
                .and_then(|hex| u64::from_str_radix(hex, 16).ok())
                .is_some_and(|hex| hex & 1 == 1)
        })
    }),
    (
        "multi-domains",
        "enum23 == \"VALUE: *\" && enum202 == \"RANGE: 101 TO 303\" && enum27 == 27 && enum0 != \"VALUE*\"",
        |line| line.contains(" enum23 = "),
    ),
];

#[test]
fn filters_agree_with_the_printed_lines() {
    for (name, filter, says) in CASES {
        let Some(mut traces) = opened(name) else { return };
        let expression = parse(filter).unwrap();
        assert_eq!(
            (missing(&expression, &traces).len(), check(&expression, &traces)),
            (0, Ok(())),
            "{filter}"
        );
        let expected: Vec<_> =
            printed(opened(name).unwrap()).0.lines().filter(|line| says(line)).map(str::to_owned).collect();
        let select = || Selection { filter: Some(Filter::new(&expression).unwrap()), ..Selection::default() };
        traces.select(select());
        let (text, corruptions) = printed(traces);
        assert_eq!(corruptions, []);
        for (found, expected) in text.lines().zip(&expected) {
            assert_eq!(found, expected, "{name}: {filter}");
        }
        assert_eq!(text.lines().count(), expected.len(), "{name}: {filter}");
        assert!(expected.is_empty() == filter.starts_with("arrfield1[3]"), "{name}: {filter}");
        let mut traces = opened(name).unwrap();
        traces.select(select());
        assert_eq!(stat::summarize(&mut traces).events, expected.len() as u64, "{name}: {filter}");
    }
}

#[test]
fn mismatched_operators_are_reported() {
    let Some(traces) = opened("multi-domains") else { return };
    let error = |text: &str| check(&parse(text).unwrap(), &traces).unwrap_err().to_string();
    assert_eq!(error("intfield == \"1\""), "expected a number to compare with `intfield`, found `\"1\"`");
    assert!(error("enum23 == \"VALUE\"").starts_with("expected a label of `enum23` ("));
    assert_eq!(error("arrfield1 == 1"), "expected a number or a text, found `arrfield1`, several values");
    assert_eq!(
        error("stringfield > 1"),
        "expected a number (texts have no order), found `stringfield`, a text"
    );
    assert_eq!(missing(&parse("infield == 1").unwrap(), &traces)[0].0.to_string(), "infield");
}
