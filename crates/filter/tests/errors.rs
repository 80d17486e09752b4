//! Error messages of invalid filters. Messages and carets are stored in `errors.txt`, so that a
//! change is a conscious decision: `TOMPION_BLESS=1 cargo test -p tompion-filter` writes the file
//! again.

mod support;

use std::fmt::Write;

use support::{Sample, find_context};
use tompion_filter::{
    EventSchema, MAX_LITERAL, MAX_NESTING, MAX_OPERANDS, MAX_STACK, MAX_TEXT, compile, parse,
};

const WRONG: &[&str] = &[
    // Invalid syntax.
    "",
    "   ",
    "rows >",
    "rows > )",
    "(rows > 100",
    "rows > 100)",
    "rows 100",
    "rows = 100",
    "rows > 100 & & ret",
    "rows > 100 and ret < 0",
    "rows ? 1",
    "größe > 1",
    "a.5",
    "a.",
    "a[",
    "a[x]",
    "a[-1]",
    "a[4294967296]",
    "a[1.5]",
    "a[0",
    "$",
    "$ 5",
    "$app.",
    "$app.pool",
    "$app.pool:",
    "$app.\"pool\"",
    "$app.\"po*:x\"",
    // Invalid literals.
    "rows > 18446744073709551616",
    "rows > 0x1ffffffffffffffff",
    "rows > 0x",
    "rows > 0b12",
    "rows > 089",
    "rows > 10sec",
    "rows > 010K",
    "rows > 1e3ms",
    "rows > 1.0001K",
    "rows > 99999999999h",
    "rows > 1e999",
    "rows > 5é",
    "bytes[0] == ''",
    "bytes[0] == 'ab'",
    "bytes[0] == 'é'",
    "bytes[0] == 'a",
    "bytes[0] == '\\q'",
    "table == \"orders",
    "table == \"\\d\"",
    "table == \"\\xg0\"",
    "table == \"a\\0\"",
    "table == \"\\",
    // Operators that don't fit their operands.
    "table",
    "\"x\"",
    "rows == \"x\"",
    "\"x\" == rows",
    "table == 5",
    "5 != table",
    "table < \"x\"",
    "rows < \"x\"",
    "table > host",
    "table == rows",
    "rows == table",
    "\"a\" == \"a*\"",
    "table && rows",
    "rows > 1 || table",
    "!table",
    "-table",
    "table + 1 > 0",
    "ms % 2 == 0",
    "1 << ms",
    "~ms",
    "(ms | 1) == 1",
    "rows + 1 == \"x\"",
    "state == \"runing\"",
    "mode == \"x*\" || mode == \"bad\"",
    "array == 1",
    "array[3] == 1",
    "nest == 1",
    "nest.inner == 1",
    "table[0] == 'o'",
    "rows.x == 1",
    "rows[0] == 1",
    "rows == 1 &&\n  table == 7 &&\n  ok",
    "\"größe\" == table && größe",
];

fn message(text: &str) -> Option<String> {
    let sample = Sample::new();
    let schema = EventSchema::new(&sample.event, &find_context);
    parse(text).and_then(|filter| compile(&filter, &schema)).err().map(|error| {
        let end = error.at.offset + error.at.length;
        assert!(text.len() > MAX_TEXT || end <= text.len(), "{error:?} is within the text");
        error.render()
    })
}

#[test]
fn errors_are_reported_with_their_position() {
    let mut all = String::new();
    for text in WRONG {
        let message = message(text).unwrap_or_else(|| panic!("{text:?} is no error"));
        assert_eq!(message.lines().count(), 2, "{message}");
        writeln!(all, "{message}\n").unwrap();
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/errors.txt");
    if std::env::var_os("TOMPION_BLESS").is_some() {
        std::fs::write(path, &all).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap();
    for (kept, found) in kept.split("\n\n").zip(all.split("\n\n")) {
        assert_eq!(kept, found);
    }
    assert_eq!(kept.len(), all.len());
}

#[test]
fn limits_are_reported() {
    let found = |text: &str| message(text).unwrap().lines().last().unwrap().trim_start().to_owned();
    let reports = |text: &str, expected: &str| {
        let found = found(text);
        assert!(found.contains(expected), "{found}");
    };
    reports(
        &"(".repeat(1 << 20),
        &format!("expected a filter of at most {MAX_TEXT} bytes, found 1048576 bytes"),
    );
    reports(&"(".repeat(MAX_TEXT), &format!("at most {MAX_NESTING} parentheses"));
    reports(&"!".repeat(MAX_TEXT), &format!("at most {MAX_NESTING} parentheses"));
    reports(&format!("a == \"{}\"", "x".repeat(MAX_LITERAL + 1)), "a text of at most 255 bytes");
    reports(&format!("{} > 1", "x".repeat(256)), "a name of at most 255 bytes");
    reports(&format!("x{} > 1", ".y".repeat(16)), "a name of at most 16 parts");
    let many: Vec<_> = (0..=MAX_OPERANDS).map(|index| format!("x{index}")).collect();
    reports(&many.join("+"), &format!("at most {MAX_OPERANDS} different fields"));
    let nested = format!("{}1{}", "1+2*(3|4&(".repeat(26), "))".repeat(26));
    reports(&nested, &format!("at most {MAX_STACK} values"));
    let large = vec!["rows==1"; 300].join("||");
    assert!(large.len() < MAX_TEXT);
    reports(&large, "a filter whose program has at most 4096 bytes, found more than 4096 bytes");
}

#[test]
fn filters_at_the_limits_are_accepted() {
    let nested = format!("{}1{}", "(".repeat(MAX_NESTING), ")".repeat(MAX_NESTING));
    assert_eq!(message(&nested), None);
    assert_eq!(message(&format!("{}1", "!".repeat(MAX_NESTING))), None);
    let chain = vec!["rows"; (MAX_TEXT + 1) / 5].join("|");
    assert!(parse(&chain).is_ok());
    assert_eq!(message(&format!("table == \"{}\"", "x".repeat(MAX_LITERAL))), None);
    let many: Vec<_> = (0..MAX_OPERANDS).map(|index| format!("x{index}")).collect();
    assert_eq!(message(&many.join("+")), None);
}

/// The agent parses on its own thread, whose stack is small.
#[test]
fn the_deepest_filters_need_little_stack() {
    const STACK: usize = 96 * 1024;
    let levels = ["(", "!", "(1||1&&1|1^1&1==1<1<<1+1*", "(1*!", "-(1+", "!(x.y[3]||\"a\"=="];
    let deepest = |level: &str, fill: &str, end: &str| {
        let nested = |count: usize, filled: usize| {
            let closing = ")".repeat(count * level.matches('(').count() + filled * fill.matches('(').count());
            format!("{}{}{end}{closing}", level.repeat(count), fill.repeat(filled))
        };
        let most = (0..=MAX_NESTING).rev().find(|&count| parse(&nested(count, 0)).is_ok()).unwrap();
        let filled = (0..=MAX_NESTING).rev().find(|&filled| parse(&nested(most, filled)).is_ok()).unwrap();
        nested(most, filled)
    };
    let filters: Vec<_> = levels.iter().map(|level| deepest(level, "(", "x == 1")).collect();
    assert!(filters.iter().all(|filter| filter.len() > MAX_NESTING));
    let all_in = move || filters.iter().for_each(|filter| drop(message(filter)));
    std::thread::Builder::new().stack_size(STACK).spawn(all_in).unwrap().join().unwrap();
}

/// Labels come from traces and from untrusted programs.
#[test]
fn labels_in_messages_are_harmless() {
    let mut sample = Sample::new();
    let long = "x".repeat(1000);
    let labels = [("\u{1b}[31mred", 0), (long.as_str(), 1)];
    let labels = labels.map(|(name, value)| support::label(value, value, name)).to_vec();
    let enumeration = tompion_schema::Enumeration { name: String::new(), labels };
    let ty = tompion_schema::Type::Enum(tompion_schema::Integer::unsigned(8), enumeration);
    sample.event.fields.push(tompion_schema::Field::new("color", ty));
    let schema = EventSchema::new(&sample.event, &find_context);
    let error = compile(&parse("color == \"blue\"").unwrap(), &schema).unwrap_err().to_string();
    assert!(error.contains("( [31mred, xxx") && error.len() < 200, "{error}");
}
