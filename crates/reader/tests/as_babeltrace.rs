//! Fields that other tracers describe in their own ways, printed as by babeltrace2; compared with
//! babeltrace2 where it is installed.

use std::fs;
use std::process::Command;

use tompion_reader::open;
use tompion_reader::text::{self, HeaderFields, PrintOptions, TimeFormat};
use tompion_testing::TestDir;

const CLOCK: &str = "freq = 1000000000;";

/// Output of both tools for an event of a class with these fields and attributes, and this clock.
fn check(name: &str, (clock, attributes, fields): (&str, &str, &str), event: (u64, &[u8]), expected: &str) {
    let folder = TestDir::new(&format!("as-babeltrace-{name}"));
    let description = format!(
        "/* CTF 1.8 */
        typealias integer {{ size = 8; align = 8; signed = false; }} := uint8_t;
        typealias integer {{ size = 32; align = 8; signed = false; }} := uint32_t;
        typealias integer {{ size = 64; align = 8; signed = false; map = clock.c.value; }} := time_t;
        typealias integer {{ size = 32; align = 8; signed = false; }} := void *;
        trace {{ major = 1; minor = 8; byte_order = le; packet.header := struct {{ uint32_t magic; }}; }};
        clock {{ name = c; {clock} }};
        stream {{ event.header := struct {{ time_t timestamp; }}; }};
        event {{ name = e; {attributes} fields := struct {{ {fields} }}; }};
        /* what a tracer that was killed had no time to end"
    );
    fs::write(folder.join("metadata"), description).unwrap();
    let (time, payload) = event;
    let stream = [&0xc1fc_1fc1_u32.to_le_bytes()[..], &time.to_le_bytes(), payload].concat();
    fs::write(folder.join("stream"), stream).unwrap();

    let options = PrintOptions {
        time: TimeFormat { utc: true, ..TimeFormat::default() },
        no_delta: true,
        fields: HeaderFields { log_level: true, ..HeaderFields::NONE },
        ..PrintOptions::default()
    };
    let mut traces = open(std::slice::from_ref(&folder)).unwrap();
    let mut ours = Vec::new();
    text::print(&mut traces, &options, &mut ours).unwrap();
    assert_eq!(traces.corruptions(), []);
    let theirs = Command::new("babeltrace2")
        .args(["--clock-gmt", "--no-delta", "--fields=loglevel"])
        .arg(&folder)
        .output();
    assert_eq!(String::from_utf8_lossy(&ours), format!("[{expected}\n"), "{name}");
    match theirs {
        Ok(theirs) => {
            assert_eq!(String::from_utf8_lossy(&theirs.stdout), format!("[{expected}\n"), "{name}, theirs")
        }
        Err(_) => println!("skipped: babeltrace2 is not installed"),
    }
}

#[test]
fn negative_numbers_fill_whole_digits() {
    let fields = "integer { size = 5; base = 16; signed = true; } a; integer { size = 9; base = 16; signed = true; } b;
        integer { size = 13; base = 8; signed = true; } c; integer { size = 5; base = 2; signed = true; } d;
        enum : integer { size = 6; base = 16; signed = true; } { A = -3 } e;
        integer { size = 2; base = 16; signed = true; } f;";
    // All bits of -3 except those of the last field, from the lowest on.
    let mut bits = Vec::new();
    for (size, value) in [(5, -3_i32), (9, -3), (13, -3), (5, -3), (6, -3), (2, -1)] {
        bits.extend((0..size).map(|bit| value >> bit & 1));
    }
    let payload: Vec<u8> =
        bits.chunks(8).map(|byte| byte.iter().rev().fold(0, |sum, bit| sum << 1 | *bit as u8)).collect();
    let expected = "00:00:00.000000005] e: { a = 0xFD, b = 0xFFD, c = 077775, d = 0b11101, \
                    e = ( \"A\" : container = 0xFD ), f = 0xF }";
    check("negative", (CLOCK, "", fields), (5, &payload), expected);
}

#[test]
fn pointers_are_hexadecimal_and_unknown_levels_are_none() {
    let shown = "00:00:00.000000005] e: { a = 0x1F4, b = 7 }";
    let payload = [0xf4, 1, 0, 0, 7];
    check("pointer", (CLOCK, "loglevel = 99;", "void * a; uint8_t b;"), (5, &payload), shown);
    let shown = "00:00:00.000000005] TRACE_DEBUG_LINE (13) e: { b = 7 }";
    check("level", (CLOCK, "loglevel = 13;", "uint8_t b;"), (5, &[7]), shown);
}

#[test]
fn times_among_the_fields_are_not_shown() {
    let fields =
        "time_t first; uint8_t a; struct { time_t x; uint8_t y; } s; struct { time_t x; } q; time_t array[1];
        uint8_t b;";
    let mut payload = Vec::new();
    for (time, byte) in [(1, Some(1)), (2, Some(2)), (3, None), (4, Some(5))] {
        payload.extend_from_slice(&u64::to_le_bytes(time));
        payload.extend(byte);
    }
    check(
        "times",
        (CLOCK, "", fields),
        (5, &payload),
        "00:00:00.000000005] e: { a = 1, s = { y = 2 }, b = 5 }",
    );
    let payload = [1_u64, 2].iter().flat_map(|time| time.to_le_bytes()).collect::<Vec<_>>();
    let only = (CLOCK, "", "time_t first; struct { time_t x; } s;");
    check("only-times", only, (5, &payload), "00:00:00.000000005] e: ");
}

#[test]
fn cycles_become_the_same_nanoseconds() {
    for (number, (clock, cycles, shown)) in [
        ("freq = 27000000;", 1_000_000_007, "00:00:37.037037296"),
        ("freq = 2399998000;", 98_765_432_109_876_543, "07:11:37.672696624"),
        ("freq = 3; offset = 7; offset_s = 10;", 5, "00:00:13.999999999"),
    ]
    .into_iter()
    .enumerate()
    {
        check(
            &format!("cycles-{number}"),
            (clock, "", "uint8_t b;"),
            (cycles, &[7]),
            &format!("{shown}] e: {{ b = 7 }}"),
        );
    }
}
