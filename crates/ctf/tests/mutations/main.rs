//! Mutated descriptions and packets: whatever the bytes are, reading ends with events or an error.
//!
//! A few rounds run in normal tests. Ten million packets and descriptions each run with
//! `TOMPION_FULL=1`, and any number with `./x fuzz`. They are the same in every run.

mod mutate;

use mutate::{Rounds, Words};
use tompion_ctf::decode::{Decoder, Input, State, Tally, Value};
use tompion_ctf::encode::{ContextField, Origin, Packet, Plan, Record, Source, metadata};
use tompion_ctf::metadata::Uuid;
use tompion_ctf::{json, tsdl};
use tompion_schema::{self as schema, Enumeration, Integer, Kind, Label, Level, Type};

/// Description with every feature that makes decoding depend on data.
const METADATA: &str = r#"/* CTF 1.8 */
typealias integer { size = 8; } := u8;
typealias integer { size = 32; align = 32; } := u32;
trace { major = 1; minor = 8; byte_order = le; uuid = "624b19d9-19cd-4eae-bab8-8342e1b96a5d";
    packet.header := struct { u32 magic; u8 uuid[16]; u8 stream_id; }; };
env { hostname = "box"; vpid = 3208; };
clock { name = "mono"; freq = 1000; offset_s = 5; offset = 17; };
typealias integer { size = 27; align = 1; map = clock.mono.value; } := u27;
typealias integer { size = 64; map = clock.mono.value; } := u64;
stream { id = 0;
    packet.context := struct { u64 timestamp_begin; u64 timestamp_end; u32 content_size; u32 packet_size;
        u32 events_discarded; u8 cpu_id; };
    event.header := struct {
        enum : integer { size = 5; align = 1; } { compact = 0 ... 30, extended = 31 } id;
        variant <id> { struct { u27 timestamp; } compact; struct { u32 id; u64 timestamp; } extended; } v;
    } align(8);
    event.context := struct { integer { size = 32; signed = true; } _vtid; };
};
event { name = "a:first"; id = 0; stream_id = 0; fields := struct { u8 _n; string _s; u8 _d[_n]; }; };
event { name = "a:second"; id = 1; stream_id = 0; fields := struct {
    u32 _n; struct { u8 m; struct { string t; floating_point { exp_dig = 8; mant_dig = 24; } f; } x[m]; } _l[_n];
    enum : u8 { A, B = 1 ... 7 } _k; variant <_k> { u8 A; struct { } B; } _v[2]; struct { } _e[_n]; }; };
event { name = "a:third"; id = 40; stream_id = 0; fields := struct {
    integer { size = 3; signed = true; } _b; integer { size = 13; byte_order = be; align = 8; } _c; }; };
"#;

/// Creates a packet of the stream, with events of all three classes.
fn packet() -> Vec<u8> {
    let mut bytes = 0xc1fc_1fc1u32.to_le_bytes().to_vec();
    bytes.extend([
        0x62, 0x4b, 0x19, 0xd9, 0x19, 0xcd, 0x4e, 0xae, 0xba, 0xb8, 0x83, 0x42, 0xe1, 0xb9, 0x6a, 0x5d,
    ]);
    bytes.push(0);
    bytes.resize(24, 0);
    let context = bytes.len();
    bytes.resize(context + 16 + 13, 0);
    for round in 0..4u32 {
        let header = |id: u32, time: u32| (id | time << 5).to_le_bytes();
        bytes.extend(header(0, 100 * round));
        bytes.extend([1, 0, 0, 0, 3, b'h', b'i', 0, 7, 8, 9]);
        bytes.extend(header(1, 100 * round + 1));
        bytes.extend([2, 0, 0, 0]);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes.extend([2, 0, 0, 0, 1, b'x', 0, 0, 0, 128, 63, 0, 0, 9, 5]);
        bytes.push(31);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes.extend([40, 0, 0, 0]);
        bytes.extend(u64::from(100 * round + 2).to_le_bytes());
        bytes.extend([3, 0, 0, 0, 0b101, 1, 2]);
    }
    let size = (bytes.len() as u32 * 8).to_le_bytes();
    for place in [context + 16, context + 20] {
        bytes[place..place + 4].copy_from_slice(&size);
    }
    bytes
}

/// Creates a trace as Tompion writes it: a description with every type of a program's events, and a
/// packet.
fn written() -> (String, Vec<u8>) {
    let label = |low, high, name: &str| Label { low, high, name: name.into() };
    let labels = vec![label(0, 3, "few"), label(-9, -1, "below")];
    let enumeration = Enumeration { name: "e".into(), labels };
    let types = [
        Type::Integer(Integer::signed(16).network()),
        Type::Float(64),
        Type::Enum(Integer::signed(8), enumeration),
        Type::TextArray(3),
        Type::Bytes,
        Type::Sequence(Integer::hex(16).network()),
        Type::TextSequence,
    ];
    let fields = |prefix: &str| -> Vec<schema::Field> {
        let named = types.iter().zip(0..);
        named.map(|(ty, number)| schema::Field::new(&format!("{prefix}{number}"), ty.clone())).collect()
    };
    let context = vec![schema::Field::new("id", Type::Bool), schema::Field::new("name", Type::String)];
    let context = schema::Field { context: true, ..schema::Field::new("user", Type::Struct(context)) };
    let nested = schema::Field::new("in", Type::Struct(fields("x")));
    let event = schema::Event {
        provider: "mark".into(),
        name: "all".into(),
        level: Level::DEFAULT,
        kind: Kind::Mark,
        init: true,
        format: Some("rows %d of \"%s\"".into()),
        attributes: Default::default(),
        fields: fields("f").into_iter().chain([context, nested]).collect(),
    };
    let fixed = [&[1, 2], &[0; 7][..], &[64, 1], &[2, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0]].concat();
    let tails = b"abc\x01\x02\x03\x04text";
    let payload = [&*fixed, &[1, 2, 0, 0, 0], &*fixed, tails, b"me", tails].concat();
    let (uuid, plan) = (Uuid([3; 16]), Plan::new(&event));
    let source = Source {
        uuid,
        environment: Vec::new(),
        clock_uuid: Some(uuid),
        clock_offset_ns: 1,
        clock_precision_ns: 1,
        numbers_streams: false,
        tid: true,
        context: vec![ContextField::signed("vpid", 32), ContextField::text("procname")],
    };
    let mut packet = Packet::new(&source);
    let context = b"\x02\0\0\0find\0";
    for time in [5, 6, 1 << 40] {
        packet.push(&Record { id: 0, time, tid: 7, context, payload: &payload }, &plan).unwrap();
    }
    let bytes = packet.finish(Origin::default(), 0, |bytes, info| bytes[..info.size as usize].to_vec());
    (tsdl::write(&metadata(&source, &[event])), bytes)
}

/// Two descriptions, each with a packet.
fn samples() -> [(String, Vec<u8>); 2] {
    [(METADATA.into(), packet()), written()]
}

/// Decodes a packet to its end or to the first error; returns the number of events.
fn decode(decoder: &Decoder, bytes: &[u8]) -> usize {
    let mut state = decoder.state();
    let Ok(packet) = decoder.packet(Input::new(bytes, u64::MAX), &mut state) else { return 0 };
    let input = Input::new(bytes, packet.content_bits.unwrap_or(u64::MAX));
    let (mut bit, mut events, mut values) = (packet.header_bits, 0, 0);
    let counted = tally(decoder, packet.stream, input, (bit, &mut state.clone()));
    while bit < input.bits() {
        let Ok(head) = decoder.event_header(packet.stream, input, bit, &mut state) else { break };
        let place = (packet.stream, head.class);
        let Ok(skipped) = decoder.skip_event_body(place.0, place.1, input, (head.end, &mut state.clone()))
        else {
            break;
        };
        let Ok(body) = decoder.event_body(place.0, place.1, input, (head.end, &mut state)) else {
            panic!("what can be skipped can be decoded");
        };
        assert_eq!(skipped.end, body.end);
        if body.end == bit {
            break;
        }
        bit = body.end;
        events += 1;
        for (_, value) in decoder.payload(place, body, input, &state) {
            values += count(value);
        }
        decoder.stream_context(packet.stream, input, &state).for_each(drop);
        decoder.packet_context(&packet, input).for_each(drop);
        assert!(values < 10_000_000);
    }
    assert_eq!(counted, events as u64, "what can be decoded can be counted");
    events
}

/// Counts a packet's events without decoding them.
fn tally(decoder: &Decoder, stream: usize, input: Input<'_>, (bit, state): (u64, &mut State)) -> u64 {
    let classes = decoder.stream(stream).map_or(0, |stream| stream.events.len());
    let mut tally = Tally::new(classes, decoder.watch(stream, "_vtid"));
    decoder.tally(stream, input, (bit, state), (&mut tally, &mut |_, context| context.for_each(drop)));
    tally.counts.iter().sum()
}

/// Visits a value and all within it.
fn count(value: Value<'_>) -> usize {
    match value {
        Value::Struct(fields) | Value::Variant(_, fields) => fields.map(|(_, value)| 1 + count(value)).sum(),
        Value::Array(elements) => elements.map(|element| 1 + count(element)).sum(),
        Value::Optional(Some(inner)) => inner.value().map_or(0, |value| 1 + count(value)),
        _ => 1,
    }
}

fn decoder(metadata: &str) -> Decoder {
    Decoder::new(tsdl::parse(metadata.as_bytes()).unwrap()).unwrap()
}

#[test]
fn the_original_packets_can_be_decoded() {
    let events = samples().map(|(metadata, packet)| {
        let decoder = Decoder::new(tsdl::parse(metadata.as_bytes()).unwrap()).unwrap();
        decode(&decoder, &packet)
    });
    assert_eq!(events, [12, 3]);
}

/// Number of packets after which the mutated description that can still be read is replaced.
const PACKETS_PER_DESCRIPTION: u64 = 256;

#[test]
fn mutated_packets_end_in_events_or_an_error() {
    let samples = samples();
    let words = samples.each_ref().map(|(metadata, _)| Words::of(metadata, mutate::TSDL));
    let sound = samples.each_ref().map(|(metadata, packet)| (decoder(metadata), packet));
    let mut rounds = Rounds::new(50_000);
    let mut random = rounds.random(0x9e37_79b9_7f4a_7c15);
    let (mut events, mut other) = (0, None);
    while let Some(round) = rounds.next() {
        let which = random.index(sound.len());
        let (decoder, packet) = &sound[which];
        let mut bytes = packet.to_vec();
        random.mutate(&mut bytes, &mutate::SPECIAL);
        events += decode(decoder, &bytes);
        // The same bytes are decoded with another description.
        if round % PACKETS_PER_DESCRIPTION == 0 {
            let text = words[which].mutated(&mut random);
            other = tsdl::parse(&text).ok().and_then(|trace| Decoder::new(trace).ok()).or(other);
        }
        if let Some(other) = &other {
            decode(other, &bytes);
        }
    }
    assert!(events as u64 > rounds.done() / 4, "most mutations leave something to read: {events}");
}

/// CTF 2 description with every field class, and an event of it.
const FIELD_CLASSES: &str = r#"
{"type": "preamble", "version": 2}
{"type": "clock-class", "id": "c", "frequency": 1000, "offset-from-origin": {"seconds": 5}, "origin": "unix-epoch"}
{"type": "field-class-alias", "name": "u8", "field-class":
    {"type": "fixed-length-unsigned-integer", "length": 8, "byte-order": "little-endian", "alignment": 8}}
{"type": "data-stream-class", "default-clock-class-id": "c",
 "event-record-header-field-class": {"type": "structure", "member-classes": [
    {"name": "t", "field-class": {"type": "variable-length-unsigned-integer", "roles": ["default-clock-timestamp"]}}]}}
{"type": "event-record-class", "name": "all", "payload-field-class": {"type": "structure", "member-classes": [
    {"name": "n", "field-class": "u8"},
    {"name": "on", "field-class": {"type": "fixed-length-boolean", "length": 3, "byte-order": "big-endian"}},
    {"name": "map", "field-class": {"type": "fixed-length-bit-map", "length": 5, "byte-order": "big-endian",
        "bit-order": "first-to-last", "flags": {"low": [[0, 1]], "high": [[4, 4]]}}},
    {"name": "text", "field-class": {"type": "dynamic-length-string", "encoding": "utf-16be",
        "length-field-location": {"path": ["n"]}}},
    {"name": "wide", "field-class": {"type": "null-terminated-string", "encoding": "utf-32le"}},
    {"name": "blob", "field-class": {"type": "dynamic-length-blob", "length-field-location": {"path": ["n"]}}},
    {"name": "few", "field-class": {"type": "dynamic-length-array", "length-field-location": {"path": ["n"]},
        "minimum-alignment": 16, "element-field-class": {"type": "structure", "member-classes": [
            {"name": "i", "field-class": {"type": "variable-length-signed-integer", "mappings": {"x": [[-3, 3]]}}},
            {"name": "o", "field-class": {"type": "optional", "selector-field-location": {"path": ["i"]},
                "selector-field-ranges": [[-9, -1], [1, 1]], "field-class": "u8"}},
            {"name": "p", "field-class": {"type": "optional", "selector-field-location": {"path": [null, "on"]},
                "field-class": {"type": "static-length-string", "length": 2}}},
            {"name": "v", "field-class": {"type": "variant", "selector-field-location": {"path": ["i"]}, "options": [
                {"selector-field-ranges": [[-99, 0]], "field-class": {"type": "structure"}},
                {"selector-field-ranges": [[1, 5]], "field-class":
                    {"type": "fixed-length-floating-point-number", "length": 32, "byte-order": "big-endian"}}]}}]}}}]}}
"#;

const ALL_FIELDS: &[u8] = b"\xac\x02\x02\xf1\0h\x78\0\0\0\0\0\0\0ab\x01\x07zz\x3f\x80\0\0\x7f\x08yy";

/// Short CTF 2 field classes, each with another feature, for a description with one field.
const SHORT_CLASSES: [&str; 8] = [
    r#"{"type": "static-length-array", "length": 3, "element-field-class":
        {"type": "fixed-length-unsigned-integer", "length": 12, "byte-order": "big-endian", "preferred-display-base": 16}}"#,
    r#"{"type": "null-terminated-string", "encoding": "utf-16le"}"#,
    r#"{"type": "static-length-blob", "length": 5, "media-type": "image/png"}"#,
    r#"{"type": "fixed-length-signed-integer", "length": 7, "byte-order": "little-endian", "alignment": 4,
        "bit-order": "last-to-first", "mappings": {"few": [[-3, 3], [5, 5]]}}"#,
    r#"{"type": "structure", "minimum-alignment": 32, "member-classes": [
        {"name": "n", "field-class": {"type": "variable-length-unsigned-integer"}},
        {"name": "s", "field-class": {"type": "dynamic-length-string", "length-field-location": {"path": ["n"]}}}]}"#,
    r#"{"type": "structure", "member-classes": [{"name": "on", "field-class":
        {"type": "fixed-length-boolean", "length": 8, "byte-order": "little-endian"}},
        {"name": "o", "field-class": {"type": "optional", "selector-field-location": {"origin": "event-record-payload",
        "path": ["x", "on"]}, "field-class": {"type": "variable-length-signed-integer"}}}]}"#,
    r#"{"type": "structure", "member-classes": [{"name": "k", "field-class":
        {"type": "fixed-length-unsigned-integer", "length": 8, "byte-order": "little-endian"}},
        {"name": "v", "field-class": {"type": "variant", "selector-field-location": {"path": ["k"]}, "options": [
        {"selector-field-ranges": [[0, 127]], "field-class": {"type": "static-length-string", "length": 2}}]}}]}"#,
    r#"{"type": "fixed-length-floating-point-number", "length": 64, "byte-order": "little-endian",
        "attributes": {"x": [null, true]}}"#,
];

/// Creates a complete description with one field `x` of this class.
fn with_class(class: &str) -> String {
    format!(
        r#"{{"type": "preamble", "version": 2}}
{{"type": "data-stream-class"}}
{{"type": "event-record-class", "name": "e", "payload-field-class": {{"type": "structure", "member-classes": [
    {{"name": "x", "field-class": {class}}}]}}}}
"#
    )
}

#[test]
fn short_descriptions_of_ctf_2_can_be_read() {
    for class in SHORT_CLASSES {
        let decoder = Decoder::new(json::parse_text(&with_class(class)).unwrap()).unwrap();
        assert!(decode(&decoder, &[0; 64]) > 0, "{class}");
    }
}

#[test]
fn mutated_descriptions_and_events_of_ctf_2_end_in_events_or_an_error() {
    let sound = Decoder::new(json::parse_text(FIELD_CLASSES).unwrap()).unwrap();
    assert_eq!(decode(&sound, ALL_FIELDS), 1);
    let long = Words::of(FIELD_CLASSES, mutate::JSON);
    let texts = SHORT_CLASSES.map(with_class);
    let short = texts.each_ref().map(|text| Words::of(text, mutate::JSON));
    let mut rounds = Rounds::new(20_000);
    let mut random = rounds.random(0xa076_1d64_78bd_642f);
    let mut parsed = 0;
    while rounds.next().is_some() {
        let mut bytes = ALL_FIELDS.repeat(2);
        random.mutate(&mut bytes, &mutate::SPECIAL);
        decode(&sound, &bytes);
        // The long one takes as much time as ten short ones.
        let words = if random.index(32) == 0 { &long } else { &short[random.index(short.len())] };
        let text = words.mutated(&mut random);
        let Ok(trace) = json::parse(&text) else { continue };
        if let Ok(decoder) = Decoder::new(trace) {
            parsed += 1;
            decode(&decoder, ALL_FIELDS);
        }
    }
    assert!(parsed > rounds.done() / 1000, "some mutations are harmless: {parsed}");
}

/// Short descriptions, each with another feature: most mutations hit something relevant.
const SHORT: [&str; 7] = [
    "trace { byte_order = le; };
     event { fields := struct { integer { size = 8; } n; integer { size = 8; encoding = UTF8; } s[n]; string t; }; };",
    "trace { byte_order = le; };
     struct h { integer { size = 3; } a; enum : integer { size = 5; } { A, B = 2 ... 9 } k; } align(8);
     event { fields := struct { struct h h; variant <h.k> { string A; struct h B[2]; } v; }; };",
    "typealias integer { size = 32; align = 32; byte_order = be; } := u32; typedef u32 word[3];
     trace { byte_order = le; packet.header := struct { u32 magic; }; }; event { fields := struct { word w; }; };",
    "trace { byte_order = le; };
     clock { name = c; freq = 7; offset_s = 5; }; stream { event.header := struct {
     integer { size = 16; align = 8; } id; integer { size = 27; map = clock.c.value; } timestamp; }; };
     event { id = 3; fields := struct { }; }; event { id = 9; name = \"x:y\"; };",
    "trace { byte_order = le; };
     stream { id = 2; packet.context := struct { integer { size = 64; } packet_size; integer { size = 64; }
     content_size; }; event.context := struct { integer { size = 32; signed = true; } _vtid; }; };
     event { stream_id = 2; context := struct { string c; }; };",
    "trace { byte_order = le; };
     variant v { struct { } none; floating_point { exp_dig = 8; mant_dig = 24; align = 8; } f; };
     event { fields := struct { enum : integer { size = 8; } { none, f } tag; variant v <tag> v; integer { size = 1; } b[5]; }; };",
    "env { a = 1; b = \"x\\n\"; }; trace { major = 1; minor = 8; byte_order = be; uuid = \"624b19d9-19cd-4eae-bab8-8342e1b96a5d\"; };
     callsite { name = x; }; event { loglevel = 5; model.emf.uri = \"tompion:begin\"; };",
];

#[test]
fn short_descriptions_can_be_read() {
    SHORT.iter().for_each(|text| drop(decoder(text)));
}

#[test]
fn mutated_descriptions_are_refused_or_describe_something_else() {
    let samples = samples();
    let long =
        samples.iter().map(|(metadata, packet)| (Words::of(metadata, mutate::TSDL), packet.as_slice()));
    let short = SHORT.iter().map(|text| (Words::of(text, mutate::TSDL), ALL_FIELDS));
    let (long, short) = (long.collect::<Vec<_>>(), short.collect::<Vec<_>>());
    let mut rounds = Rounds::new(20_000);
    let mut random = rounds.random(0xd1b5_4a32_d192_ed03);
    let mut parsed = 0;
    while rounds.next().is_some() {
        let samples = if random.index(32) == 0 { &long } else { &short };
        let (words, packet) = &samples[random.index(samples.len())];
        let mut text = words.mutated(&mut random);
        if random.index(16) == 0 {
            text = mutate::in_packets(&mut random, &text);
        }
        let Ok(trace) = tompion_ctf::parse(&text) else { continue };
        for event in trace.streams.iter().flat_map(|stream| &stream.events) {
            assert!(event.names().base().len() <= event.name.len());
        }
        if let Ok(decoder) = Decoder::new(trace) {
            parsed += 1;
            decode(&decoder, packet);
        }
    }
    assert!(parsed > rounds.done() / 200, "some mutations are harmless: {parsed}");
}
