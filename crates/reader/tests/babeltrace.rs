//! Every type and unusual value, printed as by babeltrace2. Both tools read our description of the
//! trace. Where babeltrace2 is not installed, its stored output is used.

use std::fs;
use std::path::Path;
use std::process::Command;

use tompion_ctf::metadata::{
    Base, ByteOrder, Clock, Details, Encoding, Enum, EnvironmentValue, Event, Field, Float, Integer, Mapping,
    Reference, Stream, Struct, Trace, Type, Uuid, Variant, Version,
};
use tompion_ctf::tsdl;
use tompion_reader::text::{PrintOptions, TimeFormat};
use tompion_reader::{open, text};
use tompion_testing::TestDir;

const LITTLE: ByteOrder = ByteOrder::Little;

fn unsigned(bits: u32) -> Type {
    Type::unsigned(bits, LITTLE)
}

fn event(id: u64, name: &str, fields: Vec<Field>) -> Event {
    Event {
        id,
        name: name.into(),
        log_level: Some(13),
        payload: Some(Struct::new(fields)),
        ..Event::default()
    }
}

fn based(name: &str, bits: u32, signed: bool, base: Base) -> Field {
    let integer = Integer { signed, ..Integer::unsigned(bits, LITTLE) };
    Field::new(name, Type::Integer(integer.with_base(base)))
}

fn label(label: &str, low: i128, high: i128) -> Mapping {
    Mapping { label: label.into(), low, high }
}

fn text_of_bytes() -> Type {
    Type::Integer(Integer { encoding: Encoding::Utf8, ..Integer::unsigned(8, LITTLE) })
}

fn events() -> Vec<Event> {
    let state = Enum {
        integer: Integer::unsigned(8, LITTLE),
        mappings: vec![label("a", 0, 5), label("b", 3, 3), label("c\"q?\n", 4, 5), label("_d", 6, 6)],
    };
    let choice = Enum {
        integer: Integer::unsigned(8, LITTLE),
        mappings: vec![label("first", 0, 0), label("second", 1, 9)],
    };
    let negative = Enum {
        integer: Integer::signed(8, LITTLE).with_base(Base::Hexadecimal),
        mappings: vec![label("neg", -5, -1)],
    };
    let options = vec![Field::new("first", unsigned(8)), Field::new("second", Type::STRING)];
    let nested = vec![
        Field::new(
            "st",
            Type::Struct(Struct::new(vec![
                Field::new("a", unsigned(8)),
                Field::new("e", Type::Struct(Struct::new(vec![]))),
            ])),
        ),
        Field::new("none", unsigned(8).array(0)),
        Field::new("two", Type::signed(16, ByteOrder::Big).array(2)),
        Field::new("_len", unsigned(8)),
        Field::new("seq", Type::STRING.sequence(Reference::payload("_len"))),
        Field::new("txt", text_of_bytes().array(4)),
        Field::new("tag", Type::Enum(choice)),
        Field::new("v", Type::Variant(Variant::of_labels(Reference::payload("tag"), options))),
        Field::new("sa", Type::Struct(Struct::new(vec![Field::new("z", unsigned(8))])).array(1)),
        Field::new("t2", text_of_bytes().sequence(Reference::payload("_len"))),
    ];
    vec![
        event(0, "odd:string", vec![Field::new("s", Type::STRING)]),
        event(
            1,
            "odd:float",
            vec![
                Field::new("d", Type::Float(Float::new(64, LITTLE))),
                Field::new("f", Type::Float(Float::new(32, ByteOrder::Big))),
            ],
        ),
        event(
            2,
            "odd:bases",
            vec![
                based("b", 16, true, Base::Binary),
                based("o", 16, true, Base::Octal),
                based("x", 16, true, Base::Hexadecimal),
                based("d", 16, true, Base::Decimal),
                based("uo", 16, false, Base::Octal),
                based("o64", 64, true, Base::Octal),
                based("x64", 64, false, Base::Hexadecimal),
            ],
        ),
        event(3, "odd:enum", vec![Field::new("e", Type::Enum(state)), Field::new("n", Type::Enum(negative))]),
        event(4, "odd:nested", nested),
        event(5, "odd:nothing", vec![]),
    ]
}

fn trace() -> Trace {
    let clock = Clock {
        uuid: Uuid::parse("c19b5ac9-b8e6-4f78-be95-a605d04e34c6"),
        ..Clock::nanoseconds("monotonic", 1_351_530_929_945_824_323)
    };
    let timestamp = Type::Integer(Integer::unsigned(32, LITTLE).with_clock("monotonic"));
    Trace {
        version: Version::One,
        identity: None,
        attributes: None,
        byte_order: LITTLE,
        uuid: Uuid::parse("624b19d9-19cd-4eae-bab8-8342e1b96a5d"),
        environment: vec![
            ("hostname".into(), EnvironmentValue::from("box")),
            ("procname".into(), EnvironmentValue::from("find")),
            ("vpid".into(), EnvironmentValue::from(77)),
        ],
        clocks: vec![clock],
        packet_header: Some(Struct::new(vec![
            Field::new("magic", unsigned(32)),
            Field::new("uuid", unsigned(8).array(16)),
            Field::new("stream_id", unsigned(8)),
        ])),
        streams: vec![Stream {
            id: 0,
            name: None,
            details: Details::default(),
            packet_context: Some(Struct::new(vec![
                Field::new(
                    "timestamp_begin",
                    Type::Integer(Integer::unsigned(64, LITTLE).with_clock("monotonic")),
                ),
                Field::new("content_size", unsigned(64)),
                Field::new("packet_size", unsigned(64)),
                Field::new("cpu_id", unsigned(32)),
            ])),
            event_header: Some(Struct::new(vec![
                Field::new("id", unsigned(8)),
                Field::new("timestamp", timestamp),
            ])),
            event_context: Some(Struct::new(vec![Field::new("vtid", Type::signed(32, LITTLE))])),
            events: events(),
        }],
    }
}

/// Payloads of events with the numbers of their classes.
fn payloads() -> Vec<(u8, Vec<u8>)> {
    let mut payloads = Vec::new();
    for byte in 1..=255u8 {
        payloads.push((0, vec![b'x', byte, b'y', 0]));
    }
    let floats = [
        0.0,
        -0.0,
        1.0,
        1.5,
        0.1,
        1e5,
        123_456.0,
        1_234_567.0,
        1e-4,
        1e-5,
        1e300,
        5e-324,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        -f64::NAN,
        1.0 / 3.0,
        999_999.5,
        99_999.95,
        0.000_123_456_78,
        1e22,
        -2.5,
        0.000_099_999_95,
        123_456.5,
    ];
    for value in floats {
        let mut payload = value.to_le_bytes().to_vec();
        payload.extend((value as f32).to_be_bytes());
        payloads.push((1, payload));
    }
    for value in [0, 1, -1, 5, -5, i16::MAX, i16::MIN, 8, 16] {
        let mut payload = value.to_le_bytes().repeat(5);
        payload.extend(i64::from(value).to_le_bytes().repeat(2));
        payloads.push((2, payload));
    }
    for value in 0..=8u8 {
        payloads.push((3, vec![value, value.wrapping_neg()]));
    }
    // The empty text comes first: babeltrace2 2.0.4 prints the preceding text instead of an empty
    // one.
    payloads.push((4, b"\x07\x01\x02\xff\xfe\x00text\x05hey\0\x03".to_vec()));
    payloads.push((4, b"\x07\x01\x02\xff\xfe\x02ab\0c\0te\0x\x00\x09\x03zq".to_vec()));
    payloads.push((5, vec![]));
    payloads
}

/// One packet with all payloads. The lower half of the clock wraps within it.
fn stream() -> Vec<u8> {
    let mut events = Vec::new();
    let mut time = 0xffff_ff00u32;
    for (class, payload) in payloads() {
        events.push(class);
        events.extend(time.to_le_bytes());
        events.extend((-3i32).to_le_bytes());
        events.extend(payload);
        time = time.wrapping_add(7);
    }
    let mut packet = 0xc1fc_1fc1u32.to_le_bytes().to_vec();
    packet.extend(trace().uuid.unwrap().0);
    packet.push(0);
    packet.extend(0xffff_0000u64.to_le_bytes());
    let bits = (packet.len() + 20 + events.len()) as u64 * 8;
    packet.extend(bits.to_le_bytes());
    packet.extend((bits + 64).to_le_bytes());
    packet.extend(3u32.to_le_bytes());
    packet.extend(events);
    packet.extend([0xee; 8]);
    packet
}

fn printed(folder: &Path) -> String {
    let mut traces = open(&[folder.into()]).unwrap();
    let mut output = Vec::new();
    let options = PrintOptions {
        time: TimeFormat { utc: true, ..TimeFormat::default() },
        no_delta: false,
        ..PrintOptions::default()
    };
    text::print(&mut traces, &options, &mut output).unwrap();
    assert_eq!(traces.corruptions(), []);
    // Strings contain every byte, also invalid UTF-8.
    String::from_utf8_lossy(&output).into_owned()
}

#[test]
fn unusual_values_are_printed_as_by_babeltrace2() {
    let folder = TestDir::new("odd");
    fs::write(folder.join("metadata"), tsdl::write(&trace())).unwrap();
    fs::write(folder.join("stream"), stream()).unwrap();
    let text = printed(&folder);
    assert_eq!(text.lines().count(), payloads().len());
    let golden = include_str!("unusual_values.txt");
    let samples = text.lines().filter(|line| !line.contains("odd:string") || line.contains("x\\"));
    assert_eq!(samples.collect::<Vec<_>>(), golden.lines().collect::<Vec<_>>());

    let Ok(theirs) = Command::new("babeltrace2").arg("--clock-gmt").arg(&folder).output() else {
        println!("skipped: babeltrace2 is not installed");
        return;
    };
    assert_eq!(String::from_utf8_lossy(&theirs.stderr), "", "babeltrace2 opens it without a warning");
    let theirs = String::from_utf8_lossy(&theirs.stdout).into_owned();
    for (ours, theirs) in text.lines().zip(theirs.lines()) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(text, theirs);
}
