use super::*;
use crate::metadata::{
    Base, ByteOrder, Clock, Details, Encoding, Enum, EnvironmentValue, Event, Field, Float, Integer, Mapping,
    Reference, Scope, Stream, Struct, Trace, Type, Uuid, Variant, Version,
};

const LITTLE: ByteOrder = ByteOrder::Little;

fn unsigned(bits: u32) -> Type {
    Type::unsigned(bits, LITTLE)
}

fn label(label: &str, low: i128, high: i128) -> Mapping {
    Mapping { label: label.into(), low, high }
}

/// Header like LTTng's: a number that selects a short or a long form.
fn header() -> Struct {
    let short = Integer::unsigned(27, LITTLE).with_clock("monotonic");
    let long = Integer::unsigned(64, LITTLE).with_clock("monotonic");
    let id = Enum {
        integer: Integer::unsigned(5, LITTLE),
        mappings: vec![label("compact", 0, 30), label("extended", 31, 31)],
    };
    let variant = Variant::of_labels(
        Reference { scope: Scope::EventHeader, path: vec!["id".into()] },
        vec![
            Field::new(
                "compact",
                Type::Struct(Struct {
                    fields: vec![Field::new("timestamp", Type::Integer(short))],
                    alignment: 1,
                }),
            ),
            Field::new(
                "extended",
                Type::Struct(Struct {
                    fields: vec![
                        Field::new("id", unsigned(32)),
                        Field::new("timestamp", Type::Integer(long)),
                    ],
                    alignment: 8,
                }),
            ),
        ],
    );
    Struct::new(vec![Field::new("id", Type::Enum(id)), Field::new("v", Type::Variant(variant))])
}

/// Fields of every type.
fn payload() -> Struct {
    let text = Integer { encoding: Encoding::Utf8, ..Integer::unsigned(8, LITTLE) };
    let state = Enum {
        integer: Integer::signed(32, ByteOrder::Big),
        mappings: vec![label("a \"quoted\"\nlabel", -5, -1), label("struct", 0, 0), label("struct", 7, 9)],
    };
    let far = Reference { scope: Scope::StreamEventContext, path: vec!["vtid".into()] };
    Struct::new(vec![
        Field::new("int", Type::signed(16, LITTLE)),
        Field::new("_odd", Type::Integer(Integer::unsigned(64, LITTLE).with_base(Base::Hexadecimal))),
        Field::new("port", Type::unsigned(16, ByteOrder::Big)),
        Field::new("ratio", Type::Float(Float::new(64, LITTLE))),
        Field::new("small", Type::Float(Float::new(32, ByteOrder::Big))),
        Field::new("text", Type::STRING),
        Field::new("ascii", Type::String(Encoding::Ascii)),
        Field::new("state", Type::Enum(state)),
        Field::new("grid", unsigned(8).array(3).array(2)),
        Field::new("name", Type::Integer(text).array(16)),
        Field::new("_count", unsigned(32)),
        Field::new("numbers", unsigned(64).sequence(Reference::payload("_count"))),
        Field::new("far", unsigned(8).sequence(far)),
        Field::new(
            "inner",
            Type::Struct(Struct {
                alignment: 64,
                fields: vec![
                    Field::new("n", unsigned(8)),
                    Field::new(
                        "list",
                        unsigned(1).sequence(Reference {
                            scope: Scope::Payload,
                            path: vec!["inner".into(), "n".into()],
                        }),
                    ),
                    Field::new("outer", unsigned(8).sequence(Reference::payload("_count"))),
                ],
            }),
        ),
    ])
}

/// Trace with every feature of the model.
pub(crate) fn example() -> Trace {
    let event = Event {
        id: 3,
        name: "db:query \\ done".into(),
        log_level: Some(-13),
        attributes: vec![("model.emf.uri".into(), EnvironmentValue::from("http://example.org/?a=\"b\""))],
        context: Some(Struct::new(vec![Field::new("prio", Type::signed(32, LITTLE))])),
        payload: Some(payload()),
        details: Details::default(),
    };
    let empty = Event { id: 4, name: "empty".into(), payload: Some(Struct::default()), ..Event::default() };
    Trace {
        version: Version::One,
        identity: None,
        attributes: None,
        byte_order: LITTLE,
        uuid: Uuid::parse("624b19d9-19cd-4eae-bab8-8342e1b96a5d"),
        environment: vec![
            ("hostname".into(), EnvironmentValue::from("box é\t\u{1b}")),
            ("tracer_major".into(), EnvironmentValue::from(-2)),
        ],
        clocks: vec![Clock {
            uuid: Uuid::parse("c19b5ac9-b8e6-4f78-be95-a605d04e34c6"),
            description: Some("Monotonic Clock".into()),
            precision: Some(10),
            offset_seconds: -3,
            ..Clock::nanoseconds("monotonic", 1_351_530_929_945_824_323)
        }],
        packet_header: Some(Struct::new(vec![
            Field::new("magic", unsigned(32)),
            Field::new("uuid", unsigned(8).array(16)),
            Field::new("stream_id", unsigned(32)),
        ])),
        streams: vec![Stream {
            id: 1,
            name: None,
            details: Details::default(),
            packet_context: Some(Struct::new(vec![
                Field::new("content_size", unsigned(64)),
                Field::new("packet_size", unsigned(64)),
                Field::new("cpu_id", unsigned(32)),
            ])),
            event_header: Some(header()),
            event_context: Some(Struct::new(vec![Field::new("vtid", unsigned(32))])),
            events: vec![event, empty],
        }],
    }
}

/// Parses a text. An unstated alignment of a structure becomes 1, because the text can't
/// distinguish them.
fn parsed(text: &str) -> Trace {
    parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

#[test]
fn the_written_text_is_parsed_to_the_same_model() {
    let trace = example();
    let text = write(&trace);
    let mut read = parsed(&text);
    let empty = read.streams[0].events[1].payload.as_mut().unwrap();
    assert_eq!(empty.alignment, 1, "no alignment is an alignment of one bit");
    empty.alignment = 0;
    assert_eq!(read, trace, "{text}");
}

#[test]
fn negative_offsets_are_written_as_whole_seconds() {
    let trace = Trace { clocks: vec![Clock::nanoseconds("c", -1)], ..Trace::default() };
    let clock = parsed(&write(&trace)).clocks.remove(0);
    assert_eq!((clock.offset_seconds, clock.offset_cycles), (-1, 999_999_999));
    assert_eq!(clock.to_nanoseconds(0), -1);
}

#[test]
fn names_of_types_follow_scopes_and_references_follow_places() {
    let trace = parsed(
        "typealias integer { size = 32; } := unsigned int;
         typedef unsigned int one_t, pair_t[2];
         trace { major = 1; minor = 8; byte_order = be; };
         struct tail { string s[n]; };
         variant choice { unsigned int A; struct { unsigned int n; struct tail t; } B; };
         event { name = string; fields := struct {
             enum kind : integer { size = 8; } { A, B = 5 ... 6, C } kind;
             enum kind again;
             struct { pair_t p; variant choice <kind> v[3]; } inner;
             unsigned int x[event.fields.inner.p]; one_t y;
         }; };",
    );
    let payload = trace.streams[0].events[0].payload.as_ref().unwrap();
    let names: Vec<_> = payload.fields.iter().map(|field| field.name.as_str()).collect();
    assert_eq!(names, ["kind", "again", "inner", "x", "y"]);
    let Some(Type::Enum(kind)) = payload.field("again") else { panic!() };
    assert_eq!(kind.mappings, [label("A", 0, 0), label("B", 5, 6), label("C", 7, 7)]);
    let Some(Type::Struct(inner)) = payload.field("inner") else { panic!() };
    let number = Type::unsigned(32, ByteOrder::Big);
    assert_eq!(inner.field("p"), Some(&number.clone().array(2)));
    let Some(Type::Array(array)) = inner.field("v") else { panic!() };
    let Type::Variant(variant) = &*array.element else { panic!() };
    assert_eq!(variant.selector, Reference::payload("kind"));
    let Type::Struct(option) = &variant.options[1].ty else { panic!() };
    let Some(Type::Struct(tail)) = option.field("t") else { panic!() };
    let path = ["inner", "v", "B", "n"].map(String::from).to_vec();
    let length = Reference { scope: Scope::Payload, path };
    assert_eq!(tail.field("s"), Some(&Type::STRING.sequence(length)));
}

#[test]
fn errors_state_expectation_finding_and_position() {
    for (text, expected) in [
        ("\n\ntypealias integer { size = 8; ] := x;", "expected a name, found `]`, line 3, column 31"),
        ("trace { major = ; };", "expected a value, found `;`, line 1, column 17"),
        ("trace {", "expected a type, found the end of the text, line 1, column 8"),
        ("event { name = \"x };", "expected `\"`, found the end of the text, line 1, column 71"),
        ("$", "expected a word, a number, a string or a symbol, found '$', line 1, column 1"),
        (
            "trace { major = 2; byte_order = le; };",
            "expected version 1.8 of the format, found 2 instead of 1, line 1, column 9",
        ),
        ("event { fields := struct { u8 x; }; };", "no type has the name `u8`, line 1, column 28"),
        ("event { fields := string; };", "expected a structure, line 1, column 19"),
        (
            "event { fields := struct { string s[n]; }; };",
            "no field \"n\" precedes this one, line 1, column 35",
        ),
        ("event { stream_id = 1; };", "event \"\" belongs to a stream that is not defined, line 1, column 1"),
        (
            "event { id = 1; }; event { id = 1; };",
            "event number 1 is defined twice in its stream, line 1, column 20",
        ),
        ("stream { }; stream { };", "stream 0 is defined twice, line 1, column 13"),
        ("clock { freq = 0; name = x; };", "clock x has the frequency 0, line 1, column 1"),
        (
            "event { fields := struct { integer { size = 65; } x; }; };",
            "expected an integer of 1 to 64 bits, found 65, line 1, column 28",
        ),
        (
            "event { fields := struct { integer { size = 8; align = 3; } x; }; };",
            "expected an alignment that is a power of two, found 3, line 1, column 48",
        ),
        (
            "env { x = 99999999999999999999; };",
            "expected a number of at most 64 bits, found `99999999999999999999`, line 1, column 11",
        ),
    ] {
        let text = complete(text);
        assert_eq!(parse(text.as_bytes()).unwrap_err().to_string(), expected, "{text}");
    }
}

/// Adds a `trace` block to a description without one.
fn complete(text: &str) -> String {
    if text.contains("trace {") { text.into() } else { format!("{text} {TRACE}") }
}

const TRACE: &str = "trace { major = 1; minor = 8; byte_order = le; };";

#[test]
fn types_cannot_grow_without_end() {
    let mut text = String::from("typealias integer { size = 8; } := t0;");
    for level in 1..100 {
        let before = level - 1;
        text += &format!("typealias struct {{ t{before} a; t{before} b; }} := t{level};");
    }
    text += "event { fields := struct { t99 x; }; };";
    let error = parse(complete(&text).as_bytes()).unwrap_err().to_string();
    assert!(error.contains("more than"), "{error}");
    let circle = complete("typealias a := b; typealias b := a; event { fields := struct { a x; }; };");
    assert!(parse(circle.as_bytes()).unwrap_err().to_string().contains("no type has the name `a`"));
    let deep = "struct { ".repeat(100_000);
    assert!(parse(deep.as_bytes()).unwrap_err().to_string().contains("nested at most"));
}

#[test]
fn metadata_comes_in_packets_of_either_byte_order() {
    let text = write(&example());
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let word = |word: u32| if order == LITTLE { word.to_le_bytes() } else { word.to_be_bytes() };
        let mut bytes = Vec::new();
        for piece in text.as_bytes().chunks(100) {
            bytes.extend(word(0x75d1_1d57));
            bytes.extend([0; 20]);
            bytes.extend(word((37 + piece.len() as u32) * 8));
            bytes.extend(word(256 * 8));
            bytes.extend([0, 0, 0, 1, 8]);
            bytes.extend(piece);
            bytes.resize(bytes.len().next_multiple_of(256), 0);
        }
        assert_eq!(super::text(&bytes).unwrap(), text);
        bytes.truncate(bytes.len() - 1);
        let last = bytes.len() / 256 * 256;
        let error = parse(&bytes).unwrap_err().to_string();
        assert!(error.contains(&format!("metadata packet at byte {last}")), "{error}");
    }
}

/// Seven more bytes, with the size of the header.
#[test]
fn headers_of_metadata_packets_state_their_size_in_ctf_2() {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let word = |word: u32| if order == LITTLE { word.to_le_bytes() } else { word.to_be_bytes() };
        let packet = |text: &str, header: u32| {
            let bits = (44 + text.len() as u32) * 8;
            let mut bytes = word(0x75d1_1d57).to_vec();
            bytes.extend([0; 20]);
            [bits, bits].iter().for_each(|&bits| bytes.extend(word(bits)));
            bytes.extend([0, 0, 0, 2, 0, 0, 0, 0]);
            bytes.extend(word(header * 8));
            bytes.extend(text.as_bytes());
            bytes
        };
        let both = [packet("{\"type\": \"pre", 44), packet("amble\"}", 44)].concat();
        assert_eq!(super::text(&both).unwrap(), "{\"type\": \"preamble\"}");
        for header in [0, 36, 65] {
            let error = super::text(&packet("{\"type\": \"preamble\"}", header)).unwrap_err().to_string();
            assert!(error.contains("a header of 37 to 64 bytes"), "{error}");
        }
    }
}
