use tompion_ctf::decode::Decoder;
use tompion_ctf::json::parse_text;
use tompion_ctf::metadata::{Trace, Type, Version};
use tompion_ctf::tsdl;

use super::Transcript;

#[test]
fn features_of_ctf_1_8_are_expressed_in_ctf_2() {
    let text = "/* CTF 1.8 */
        typealias integer { size = 8; signed = false; } := uint8_t;
        trace { major = 1; minor = 8; byte_order = le; };
        event { name = e; fields := struct {
            uint8_t n;
            struct {
                uint8_t count;
                struct { uint8_t bytes[count]; } inner;
                enum : uint8_t { a = 0, b = 1 } tag;
                variant <tag> { uint8_t a; string b; } choice;
                struct { uint8_t of_all[n]; } more[1];
            } elements[n];
            enum : uint8_t { negative = -3 ... -1, low = -5 ... 4, high = 250 ... 999 } label;
            uint8_t twice;
            uint8_t _twice; }; };";
    let source = tsdl::parse_text(text).unwrap();
    let transcript = Transcript::new(&source, Version::Two).unwrap();
    let written = transcript.description();

    let read = parse_text(&written).unwrap();
    assert_eq!(read.streams, transcript.target().streams);
    assert!(Decoder::new(read.clone()).is_ok());
    let fields = &read.streams[0].events[0].payload.as_ref().unwrap().fields;
    let names: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
    assert_eq!(names, ["n", "elements", "label", "twice", "twice_"]);
    let Type::Enum(label) = &fields[2].ty else { panic!("{:?}", fields[2]) };
    let ranges: Vec<_> = label.mappings.iter().map(|it| (it.label.as_str(), it.low, it.high)).collect();
    assert_eq!(ranges, [("low", 0, 4), ("high", 250, 255)]);
    // Within an element, a location without origin can't reach its other members.
    let written: String = written.split_whitespace().collect();
    for location in [
        r#"{"path":[null,"count"]}"#,
        r#"{"path":["tag"]}"#,
        r#"{"origin":"event-record-payload","path":["n"]}"#,
    ] {
        assert!(written.contains(location), "{location} in {written}");
    }
}

#[test]
fn attributes_of_field_classes_are_handed_on() {
    let text = r#"{"type": "preamble", "version": 2} {"type": "trace-class"}
        {"type": "field-class-alias", "name": "byte", "field-class": {"type": "fixed-length-unsigned-integer",
            "length": 8, "byte-order": "little-endian", "attributes": {"me": {"unit": "m"}}}}
        {"type": "data-stream-class", "event-record-common-context-field-class": {"type": "structure",
            "attributes": {"me": 1}, "member-classes": [{"name": "c", "field-class": "byte"}]}}
        {"type": "event-record-class", "name": "e", "payload-field-class": {"type": "structure",
            "member-classes": [
                {"name": "a", "attributes": {"me": "member"}, "field-class": {"type": "static-length-array",
                    "length": 2, "element-field-class": "byte", "attributes": {"me": [2]}}},
                {"name": "v", "field-class": {"type": "variant",
                    "selector-field-location": {"origin": "event-record-common-context", "path": ["c"]},
                    "options": [{"selector-field-ranges": [[0, 9]], "attributes": {"me": "option"},
                        "field-class": "byte"}]}}]}}"#;
    let source = parse_text(text).unwrap();
    let transcript = Transcript::new(&source, Version::Two).unwrap();
    let read = parse_text(&transcript.description()).unwrap();
    let fields = |trace: &Trace| {
        let stream = &trace.streams[0];
        let all = [&stream.details, &stream.events[0].details].into_iter().flat_map(|it| it.fields.clone());
        let mut all: Vec<_> =
            all.map(|it| format!("{:?} {}: {}", it.scope, it.path.join("/"), it.attributes)).collect();
        all.sort();
        all
    };
    let expected = [
        r#"Payload a/field-class/element-field-class: {"me":{"unit":"m"}}"#,
        r#"Payload a/field-class: {"me":[2]}"#,
        r#"Payload a: {"me":"member"}"#,
        r#"Payload v/field-class/0/field-class: {"me":{"unit":"m"}}"#,
        r#"Payload v/field-class/0: {"me":"option"}"#,
        r#"StreamEventContext : {"me":1}"#,
        r#"StreamEventContext c/field-class: {"me":{"unit":"m"}}"#,
    ];
    assert_eq!(fields(&source), expected);
    assert_eq!(fields(&read), expected);
    let one = Transcript::new(&source, Version::One).unwrap();
    assert!(one.notes().iter().any(|note| note.contains("attributes are left out")), "{:?}", one.notes());
}

#[test]
fn identities_and_attributes_are_handed_on() {
    let text = r#"{"type": "preamble", "version": 2}
        {"type": "trace-class", "name": "t", "attributes": {"me": {"ratio": 0.5, "list": [1, null, true]}}}
        {"type": "clock-class", "id": "c0", "namespace": "n", "name": "monotonic", "uid": "boot 7",
            "frequency": 1000, "precision": 2, "accuracy": 3, "attributes": {"me": "x"}}
        {"type": "data-stream-class", "id": 1, "namespace": "n", "name": "s", "uid": "s1",
            "default-clock-class-id": "c0", "attributes": {"me": {"a": "b"}}}
        {"type": "event-record-class", "id": 2, "data-stream-class-id": 1, "namespace": "n", "name": "e",
            "uid": "e2", "attributes": {"babeltrace.org,2020": {"log-level": 4, "more": 1}, "me": [1]}}"#;
    let source = parse_text(text).unwrap();
    let transcript = Transcript::new(&source, Version::Two).unwrap();
    let read = parse_text(&transcript.description()).unwrap();
    assert_eq!((&read.identity, &read.attributes), (&source.identity, &source.attributes));
    assert_eq!(read.clocks, source.clocks);
    assert_eq!(read.clocks[0].details.as_ref().unwrap().identity.uid.as_deref(), Some("boot 7"));
    assert_eq!(
        (read.streams[0].name.as_deref(), &read.streams[0].details),
        (Some("s"), &source.streams[0].details)
    );
    let [found, expected] = [&read, &source].map(|trace| &trace.streams[0].events[0]);
    assert_eq!((&found.details, found.log_level), (&expected.details, Some(4)));
    assert_eq!(found.details.attributes.as_deref(), Some(r#"{"babeltrace.org,2020":{"more":1},"me":[1]}"#));

    let one = Transcript::new(&source, Version::One).unwrap();
    assert!(one.notes().iter().any(|note| note.contains("unique ids of classes")), "{:?}", one.notes());
}
