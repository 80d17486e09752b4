use super::*;
use crate::tsdl;

/// Creates a decoder of a trace without packet headers whose only event has these fields.
fn decoder(fields: &str) -> Decoder {
    let text = format!(
        "typealias integer {{ size = 8; }} := u8;
         typealias integer {{ size = 32; }} := u32;
         trace {{ major = 1; minor = 8; byte_order = le; }};
         event {{ fields := struct {{ {fields} }}; }};"
    );
    Decoder::new(tsdl::parse_text(&text).unwrap()).unwrap()
}

/// Decodes the first event; returns its fields formatted by `Debug`, and the bit position after it.
fn first(fields: &str, bytes: &[u8]) -> Result<(Vec<String>, u64), DecodeError> {
    let decoder = decoder(fields);
    let (mut state, input) = (decoder.state(), Input::new(bytes, u64::MAX));
    let head = decoder.event_header(0, input, 0, &mut state)?;
    let body = decoder.event_body(0, head.class, input, (head.end, &mut state))?;
    let fields = decoder.payload((0, 0), body, input, &state);
    Ok((fields.map(|(name, value)| format!("{name}={}", show(value))).collect(), body.end))
}

fn show(value: Value<'_>) -> String {
    match value {
        Value::Unsigned(value, _) => value.to_string(),
        Value::Signed(value, _) => value.to_string(),
        Value::Float(value) => value.to_string(),
        Value::Text(text) => String::from_utf8_lossy(text).into_owned(),
        Value::Enum(value, _) => format!("#{value}"),
        Value::Boolean(value) => value.to_string(),
        Value::Bits(value, _) => format!("{value:#b}"),
        Value::Blob(bytes) => format!("{bytes:02x?}"),
        Value::Optional(inner) => inner.and_then(Inner::value).map_or("none".into(), show),
        Value::Struct(fields) => {
            let shown: Vec<String> = fields.map(|(name, value)| format!("{name}:{}", show(value))).collect();
            format!("({})", shown.join(" "))
        }
        Value::Variant(_, mut option) => {
            option.next().map_or(String::new(), |(name, value)| format!("{name}!{}", show(value)))
        }
        Value::Array(elements) => format!("[{}]", elements.map(show).collect::<Vec<_>>().join(" ")),
    }
}

fn check(fields: &str, bytes: &[u8], expected: &[&str], bytes_taken: u64) {
    let (found, end) = first(fields, bytes).unwrap_or_else(|error| panic!("{fields}: {error}"));
    assert_eq!(found, expected, "{fields}");
    assert_eq!(end, bytes_taken * 8, "{fields}");
}

fn check_error(fields: &str, bytes: &[u8], expected: &str, bit: u64) {
    let error = first(fields, bytes).unwrap_err();
    assert_eq!((error.to_string().as_str(), error.bit), (expected, bit), "{fields}");
}

#[test]
fn fields_are_located_by_their_alignment() {
    check("u8 a; u32 b;", &[1, 2, 0, 0, 0], &["a=1", "b=2"], 5);
    let wide = "integer { size = 32; align = 32; }";
    check(&format!("u8 a; {wide} b; u8 c;"), &[1, 9, 9, 9, 2, 0, 0, 0, 3], &["a=1", "b=2", "c=3"], 9);
    check(&format!("u8 n; {wide} e[n]; u8 c;"), &[0, 9, 9, 9, 3], &["n=0", "e=[]", "c=3"], 5);
    check(&format!("string s; {wide} b;"), b"ab\0\x09\x05\0\0\0", &["s=ab", "b=5"], 8);
}

#[test]
fn arrays_sequences_and_variants_nest() {
    check(
        "u8 n; struct { u8 m; string s[m]; } l[n]; u8 z;",
        b"\x02\x01a\0\x02b\0c\0\x07",
        &["n=2", "l=[(m:1 s:[a]) (m:2 s:[b c])]", "z=7"],
        10,
    );
    check(
        "enum : u8 { A, B = 1 ... 3 } k; variant <k> { u32 A; struct { u8 x; string y; } B; } v[2];",
        b"\x02\x05p\0\x06q\0",
        &["k=#2", "v=[B!(x:5 y:p) B!(x:6 y:q)]"],
        7,
    );
    check(
        "enum : integer { size = 8; signed = true; } { N = -3 ... -1, P = 0 } k; variant <k> { u8 N; u32 P; } v;",
        &[0xfe, 4],
        &["k=#18446744073709551614", "v=N!4"],
        2,
    );
    check("integer { size = 8; encoding = UTF8; } t[5]; u8 z;", b"hi\0xx\x01", &["t=hi", "z=1"], 6);
}

#[test]
fn errors_name_the_bit_and_what_was_expected() {
    check_error("u8 a; u32 b;", &[1, 2], "expected 40 more bits, found 16", 0);
    check_error("u8 n; u32 e[n];", &[255, 0, 0, 0, 0], "expected 8160 more bits, found 32", 8);
    check_error(
        "u8 a; string s;",
        b"\x01abc",
        "expected the end of a string, found the end of the content",
        8,
    );
    check_error(
        "enum : u8 { A } k; variant <k> { u8 A; } v;",
        &[9, 9],
        "expected a value that selects an option, found 9",
        8,
    );
    check_error(
        "u32 n; struct { } e[n];",
        &[255; 4],
        "expected fewer elements without content, found 4294967295",
        32,
    );
    check_error(
        "integer { size = 3; } a; integer { size = 5; byte_order = be; } b;",
        &[0],
        "expected an integer in little-endian byte order beside one in the same byte, found the other order",
        3,
    );
}

#[test]
fn models_that_cannot_be_decoded_are_refused() {
    for (fields, expected) in [
        (
            "u8 n; string s[event.fields.m];",
            "event fields.s: no integer \"m\" precedes it in the event fields",
        ),
        ("string n; string s[n];", "event fields.s: no integer \"n\" precedes it in the event fields"),
        (
            "integer { size = 8; signed = true; } n; u8 s[n];",
            "event fields.s: expected an unsigned integer as length, found a signed one",
        ),
        (
            "integer { size = 8; align = 65536; } n;",
            "event fields: expected an alignment that is a power of two up to 32768, found 65536",
        ),
    ] {
        let text = format!(
            "trace {{ byte_order = le; }}; typealias integer {{ size = 8; }} := u8;
            event {{ fields := struct {{ {fields} }}; }};"
        );
        let error = Decoder::new(tsdl::parse_text(&text).unwrap()).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn a_short_timestamp_continues_the_packets_time() {
    let text = "typealias integer { size = 64; map = clock.c.value; } := u64c;
        trace { major = 1; minor = 8; byte_order = le; };
        clock { name = c; };
        stream {
            packet.context := struct { u64c timestamp_begin; u64c timestamp_end; };
            event.header := struct {
                enum : integer { size = 5; align = 1; } { short = 0 ... 30, long = 31 } id;
                variant <id> {
                    struct { integer { size = 27; align = 1; map = clock.c.value; } timestamp; } short;
                    struct { integer { size = 32; } id; u64c timestamp; } long;
                } v;
            } align(8);
        };
        event { id = 2; name = two; }; event { id = 300; name = many; };";
    let decoder = Decoder::new(tsdl::parse_text(text).unwrap()).unwrap();
    let begin = (7u64 << 27) + 100;
    let mut bytes = begin.to_le_bytes().to_vec();
    bytes.extend(u64::MAX.to_le_bytes());
    bytes.extend((2 | 101u32 << 5).to_le_bytes());
    bytes.extend((2 | 3u32 << 5).to_le_bytes());
    bytes.push(31);
    bytes.extend(300u32.to_le_bytes());
    bytes.extend(42u64.to_le_bytes());
    bytes.extend((9 | 3u32 << 5).to_le_bytes());

    let (mut state, input) = (decoder.state(), Input::new(&bytes, u64::MAX));
    let packet = decoder.packet(input, &mut state).unwrap();
    assert_eq!((packet.begin, packet.end, packet.header_bits), (Some(begin), Some(u64::MAX), 128));
    let mut bit = packet.header_bits;
    for (class, cycles) in [(0, begin + 1), (0, (8 << 27) + 3), (1, 42)] {
        let head = decoder.event_header(0, input, bit, &mut state).unwrap();
        assert_eq!((head.class, decoder.cycles(&state)), (class, cycles));
        bit = head.end;
    }
    let error = decoder.event_header(0, input, bit, &mut state).unwrap_err();
    assert_eq!(error.problem, Problem::NoEvent(9));
}

#[test]
fn packets_of_other_traces_and_impossible_sizes_are_refused() {
    let text = "typealias integer { size = 32; } := u32; typealias integer { size = 8; } := u8;
        trace { major = 1; minor = 8; byte_order = le; uuid = \"01010101-0101-0101-0101-010101010101\";
            packet.header := struct { u32 magic; u8 uuid[16]; u8 stream_id; }; };
        stream { id = 3; packet.context := struct { u32 content_size; u32 packet_size; }; };";
    let decoder = Decoder::new(tsdl::parse_text(text).unwrap()).unwrap();
    let packet = |magic: u32, uuid: u8, stream: u8, content: u32, size: u32| {
        let mut bytes = magic.to_le_bytes().to_vec();
        bytes.extend([uuid; 16]);
        bytes.push(stream);
        bytes.extend(content.to_le_bytes());
        bytes.extend(size.to_le_bytes());
        decoder.packet(Input::new(&bytes, u64::MAX), &mut decoder.state()).map_err(|error| error.problem)
    };
    let sizes = |content, packet| Err(Problem::Sizes { least: 232, content, packet });
    assert_eq!(packet(0xc1fc_1fc1, 1, 3, 232, 256).unwrap().content_bits, Some(232));
    assert_eq!(packet(1, 1, 3, 232, 256), Err(Problem::Magic(1)));
    assert!(packet(0xc1fc_1fc1, 2, 3, 232, 256).unwrap().is_foreign);
    assert!(!packet(0xc1fc_1fc1, 1, 3, 232, 256).unwrap().is_foreign);
    assert_eq!(decoder.magic(), Some(0xc1fc_1fc1u32.to_le_bytes()));
    assert_eq!(packet(0xc1fc_1fc1, 1, 4, 232, 256), Err(Problem::NoStream(4)));
    assert_eq!(packet(0xc1fc_1fc1, 1, 3, 8, 256), sizes(8, 256));
    assert_eq!(packet(0xc1fc_1fc1, 1, 3, 264, 256), sizes(264, 256));
    assert_eq!(packet(0xc1fc_1fc1, 1, 3, 232, 250), sizes(232, 250));
}

/// The header has the time of an event. Later fields on the same clock move the clock for the next
/// event; those on another clock are only values.
#[test]
fn an_event_s_time_is_that_of_its_header() {
    let text = "clock { name = c; }; clock { name = d; };
        trace { major = 1; minor = 8; byte_order = le; };
        stream { event.header := struct { integer { size = 8; map = clock.c.value; } timestamp; }; };
        event { name = e; fields := struct {
            integer { size = 8; map = clock.c.value; } own; integer { size = 8; map = clock.d.value; } other;
        }; };";
    let decoder = Decoder::new(tsdl::parse_text(text).unwrap()).unwrap();
    let (mut state, input) = (decoder.state(), Input::new(&[10, 77, 200, 80, 90, 201], u64::MAX));
    let (mut bit, mut times) = (0, Vec::new());
    while bit < 48 {
        let head = decoder.event_header(0, input, bit, &mut state).unwrap();
        bit = decoder.event_body(0, head.class, input, (head.end, &mut state)).unwrap().end;
        times.push(decoder.cycles(&state));
    }
    assert_eq!(times, [10, 80]);
}
