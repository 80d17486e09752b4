use super::*;
use crate::decode::{Decoder, Input, Value};
use crate::metadata::{Encoding, EnvironmentValue};

/// Creates a description of one stream class and one event class with this payload.
fn description(members: &str) -> String {
    format!(
        r#"{{"type": "preamble", "version": 2}}
           {{"type": "field-class-alias", "name": "u8", "field-class":
             {{"type": "fixed-length-unsigned-integer", "length": 8, "byte-order": "little-endian"}}}}
           {{"type": "data-stream-class"}}
           {{"type": "event-record-class", "payload-field-class":
             {{"type": "structure", "member-classes": [{members}]}}}}"#
    )
}

/// Returns the decoded fields of the first event.
fn decoded(members: &str, bytes: &[u8]) -> String {
    let decoder = Decoder::new(parse_text(&description(members)).unwrap()).unwrap();
    let (mut state, input) = (decoder.state(), Input::new(bytes, u64::MAX));
    let head = decoder.event_header(0, input, 0, &mut state).unwrap();
    let body = match decoder.event_body(0, head.class, input, (head.end, &mut state)) {
        Ok(body) => body,
        Err(error) => return error.to_string(),
    };
    let fields = decoder.payload((0, 0), body, input, &state);
    let shown: Vec<_> = fields.map(|(name, value)| format!("{name}={}", show(value))).collect();
    shown.join(" ")
}

fn show(value: Value<'_>) -> String {
    match value {
        Value::Unsigned(value, _) => value.to_string(),
        Value::Signed(value, _) => value.to_string(),
        Value::Text(text) => String::from_utf8_lossy(text).into_owned(),
        Value::Optional(None) => "none".into(),
        Value::Optional(Some(inner)) => show(inner.value().unwrap()),
        Value::Variant(_, mut option) => show(option.next().unwrap().1),
        Value::Struct(fields) => {
            let shown: Vec<_> = fields.map(|(name, value)| format!("{name}={}", show(value))).collect();
            format!("({})", shown.join(" "))
        }
        Value::Array(elements) => elements.map(show).collect::<Vec<_>>().join(","),
        other => format!("{other:?}"),
    }
}

#[test]
fn fragments_are_separated_or_consecutive() {
    let plain = description("");
    let separated: String = plain.split_inclusive('\n').collect::<String>();
    let trace = parse(plain.as_bytes()).unwrap();
    let with_separators =
        format!("\x1e{}", separated.replace("\n           {\"type\": \"", "\n\x1e{\"type\": \""));
    assert_eq!(parse(with_separators.as_bytes()).unwrap(), trace);
    assert_eq!(trace.streams.len(), 1);
    assert!(is_json(&with_separators) && is_json(&plain) && !is_json("/* CTF 1.8 */"));
}

#[test]
fn known_attributes_are_stored_and_others_ignored() {
    let text = r#"{"type": "preamble", "version": 2, "attributes": {"a": {"b": [1, null, 1.5]}}}
        {"type": "trace-class", "environment": {"z": 1, "a": "x"}, "uid": "u"}
        {"type": "data-stream-class"}
        {"type": "event-record-class", "name": "n", "attributes":
            {"x": 5, "lttng.org,2009": {"log-level": "warning", "emf-uri": "tompion:begin"}}}"#;
    let trace = parse_text(text).unwrap();
    assert_eq!(trace.environment[0], ("z".into(), EnvironmentValue::Integer(1)));
    assert_eq!(trace.identity.as_ref().unwrap().uid.as_deref(), Some("u"));
    let event = &trace.streams[0].events[0];
    assert_eq!((event.name.as_str(), event.log_level), ("n", Some(4)));
    assert_eq!(event.attributes, [("model.emf.uri".into(), EnvironmentValue::from("tompion:begin"))]);
}

#[test]
fn levels_are_read_by_any_name_and_written_for_babeltrace2() {
    let level = |name: &str| {
        let text = format!(
            r#"{{"type": "preamble", "version": 2}} {{"type": "trace-class"}} {{"type": "data-stream-class"}}
            {{"type": "event-record-class", "attributes": {{"babeltrace.org,2020": {{"log-level": {name}}}}}}}"#
        );
        let trace = parse_text(&text).unwrap();
        (trace.streams[0].events[0].log_level, write(&trace))
    };
    for name in ["\"debug:line\"", "\"debug-line\"", "13"] {
        let (found, written) = level(name);
        assert_eq!(found, Some(13));
        let written: String = written.split_whitespace().collect();
        assert!(written.contains(r#""babeltrace.org,2020":{"log-level":"debug:line"}"#), "{written}");
    }
    assert_eq!(level("\"debug\"").0, Some(14));
    assert_eq!(level("\"nonsense\"").0, None);
}

#[test]
fn locations_enter_options_and_leave_structures() {
    // The length is in the selected option, whichever it is.
    let members = r#"{"name": "tag", "field-class": "u8"},
        {"name": "v", "field-class": {"type": "variant", "selector-field-location": {"path": ["tag"]}, "options": [
            {"selector-field-ranges": [[0, 0]], "field-class": "u8"},
            {"selector-field-ranges": [[1, 3], [9, 9]], "field-class": {"type": "structure", "member-classes":
                [{"name": "len", "field-class": "u8"}, {"name": "x", "field-class": "u8"}]}}]}},
        {"name": "s", "field-class": {"type": "structure", "member-classes": [{"name": "a", "field-class":
            {"type": "dynamic-length-array", "element-field-class": "u8",
             "length-field-location": {"path": [null, "v", "len"]}}}]}}"#;
    assert_eq!(decoded(members, &[9, 2, 7, 5, 6]), "tag=9 v=(len=2 x=7) s=(a=5,6)");
    assert_eq!(decoded(members, &[4, 2]), "expected a value that selects an option, found 4");
    // The length field is in an option, or may be absent.
    let members = r#"{"name": "flag", "field-class":
            {"type": "fixed-length-boolean", "length": 8, "byte-order": "big-endian"}},
        {"name": "n", "field-class": {"type": "optional", "field-class": "u8",
            "selector-field-location": {"origin": "event-record-payload", "path": ["flag"]}}},
        {"name": "t", "field-class": {"type": "dynamic-length-string", "length-field-location": {"path": ["n"]}}}"#;
    assert_eq!(decoded(members, b"\x80\x02hi"), "flag=Boolean(true) n=2 t=hi");
}

#[test]
fn texts_of_all_encodings_become_utf8() {
    let text = |encoding: &str| {
        format!(
            r#"{{"name": "t", "field-class": {{"type": "null-terminated-string", "encoding": "{encoding}"}}}}"#
        )
    };
    assert_eq!(decoded(&text("utf-16le"), b"h\0\x3d\xd8\0\xde\0\0"), "t=h😀");
    assert_eq!(decoded(&text("utf-16be"), b"\xd8\0\0x\0\0"), "t=\u{fffd}x");
    assert_eq!(decoded(&text("utf-32be"), b"\0\0\0h\0\x11\0\0\0\0\0\0"), "t=h\u{fffd}");
    assert_eq!(
        decoded(&text("utf-32le"), b"h\0\0"),
        "expected the end of a string, found the end of the content"
    );
    assert_eq!(Encoding::Utf32(crate::metadata::ByteOrder::Big).unit(), 4);
}

#[test]
fn integers_of_variable_size_have_at_most_64_bits() {
    let class = |kind: &str| {
        format!(r#"{{"name": "n", "field-class": {{"type": "variable-length-{kind}-integer"}}}}"#)
    };
    assert_eq!(decoded(&class("unsigned"), &[0xe5, 0x8e, 0x26]), "n=624485");
    assert_eq!(decoded(&class("signed"), &[0xc0, 0xbb, 0x78]), "n=-123456");
    assert_eq!(decoded(&class("signed"), &[0x7f]), "n=-1");
    assert_eq!(decoded(&class("unsigned"), &[&[0xff; 9][..], &[1]].concat()), format!("n={}", u64::MAX));
    let long = "expected an integer of at most 64 bits, found a longer one";
    assert_eq!(decoded(&class("unsigned"), &[&[0xff; 9][..], &[2]].concat()), long);
    assert_eq!(decoded(&class("unsigned"), &[0x80; 20]), long);
    assert_eq!(decoded(&class("unsigned"), &[0x80; 3]), "expected 32 more bits, found 24");
}

#[test]
fn errors_state_their_location() {
    let preamble = r#"{"type": "preamble", "version": 2}"#;
    for (text, expected) in [
        ("", "expected a preamble, found nothing, fragment at byte 0"),
        ("{", "expected JSON: EOF while parsing an object at line 1 column 1, fragment at byte 0"),
        (
            r#"{"type": "preamble", "version": 3}"#,
            "preamble: expected version 2 of the format, found 3, fragment 1 at byte 0",
        ),
        (
            r#"{"type": "trace-class"}"#,
            "expected a preamble as the first fragment, found \"trace-class\", fragment 1 at byte 0",
        ),
        (
            r#"{"type": "preamble", "version": 2, "extensions": {"x": {}}}"#,
            "preamble.extensions: expected no extension, found \"x\", fragment 1 at byte 0",
        ),
        (
            &format!(r#"{preamble}{{"type": "event-record-class"}}"#),
            "event-record-class: no stream class 0 precedes it, fragment 2 at byte 34",
        ),
        (
            &description(r#"{"name": "x", "field-class": "u9"}"#),
            "event-record-class.payload-field-class.x: no field class has the name \"u9\", fragment 4 at byte 257",
        ),
        (
            &description(r#"{"name": "x", "field-class": {"type": "structure", "minimum-alignment": 3}}"#),
            "event-record-class.payload-field-class.x.minimum-alignment: expected a power of two, found 3, fragment 4 at byte 257",
        ),
        (
            &description(
                r#"{"name": "x", "field-class": {"type": "dynamic-length-blob", "length-field-location": {"path": [null, null, "y"]}}}"#,
            ),
            "event-record-class.payload-field-class.x.length-field-location.path: the outermost structure has no parent, fragment 4 at byte 257",
        ),
    ] {
        assert_eq!(parse_text(text).unwrap_err().to_string(), expected, "{text}");
    }
    let deep = format!("{preamble}{}", "[".repeat(100_000));
    assert!(
        parse_text(&deep).unwrap_err().to_string().contains("nested at most 127 deep, found more at line")
    );
}

#[test]
fn classes_cannot_grow_without_end() {
    let mut text = description("");
    let structure = |name: &str, of: &str| {
        format!(
            r#"{{"type": "field-class-alias", "name": "{name}", "field-class": {{"type": "structure", "member-classes":
               [{{"name": "a", "field-class": "{of}"}}, {{"name": "b", "field-class": "{of}"}}]}}}}"#
        )
    };
    let mut before = String::from("u8");
    for level in 0..40 {
        let name = format!("t{level}");
        text += &structure(&name, &before);
        before = name;
    }
    let error = parse_text(&text).unwrap_err().to_string();
    assert!(error.contains("more than 524288 field classes"), "{error}");
}

#[test]
fn names_of_a_draft_are_accepted() {
    let text = r#"{"type": "preamble", "version": 2}
        {"type": "trace-class", "uuid": [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]}
        {"type": "clock-class", "name": "c", "frequency": 1000, "uuid": [2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2]}
        {"type": "data-stream-class", "default-clock-class-name": "c"}
        {"type": "event-record-class", "name": "e", "user-attributes": {"any": {"log-level": "debug-line"}},
         "payload-field-class": {"type": "structure", "member-classes": [
            {"name": "tag", "field-class": {"type": "fixed-length-unsigned-enumeration", "length": 8,
                "byte-order": "little-endian", "mappings": {"NUMBER": [[0, 0]], "TEXT": [[1, 1]]}}},
            {"name": "v", "field-class": {"type": "variant", "selector-field-location": ["event-record-payload", "tag"],
                "options": [
                    {"name": "NUMBER", "selector-field-ranges": [[0, 0]],
                     "field-class": {"type": "variable-length-signed-enumeration", "mappings": {"ONE": [[1, 1]]}}},
                    {"name": "TEXT", "selector-field-ranges": [[1, 1]], "field-class": {"type": "null-terminated-string"}}
                ]}}]}}"#;
    let trace = parse_text(text).unwrap();
    assert_eq!(trace.uuid.map(|uuid| uuid.0), Some([1; 16]));
    assert_eq!(trace.clock("c").and_then(|clock| clock.uuid).map(|uuid| uuid.0), Some([2; 16]));
    assert_eq!(trace.streams[0].events[0].log_level, Some(13));
    let decoder = Decoder::new(trace).unwrap();
    let shown = |bytes: &[u8]| {
        let (mut state, input) = (decoder.state(), Input::new(bytes, u64::MAX));
        let body = decoder.event_body(0, 0, input, (0, &mut state)).unwrap();
        decoder
            .payload((0, 0), body, input, &state)
            .map(|(_, value)| format!("{value:?}"))
            .collect::<Vec<_>>()
    };
    assert!(shown(b"\x01hi\0")[0].contains("TEXT"), "{:?}", shown(b"\x01hi\0"));
    assert_eq!(shown(b"\x01hi\0").len(), 2);
    let wrong = text.replace(r#"["event-record-payload", "tag"]"#, r#"["event-record-payload"]"#);
    let error = parse_text(&wrong).unwrap_err().to_string();
    assert!(error.contains("expected the origin of the path and names of members"), "{error}");
}

#[test]
fn unambiguous_deviations_are_accepted() {
    let twice = r#"{"name": "n", "field-class": "u8",}, {"name": "n", "field-class": "u8"},"#;
    assert_eq!(decoded(twice, &[1, 2]), "n=1 n=2");
    let ranges = r#"{"name": "flag", "field-class":
            {"type": "fixed-length-boolean", "length": 8, "byte-order": "big-endian"}},
        {"name": "n", "field-class": {"type": "optional", "field-class": "u8", "selector-field-ranges": [[5, 6]],
            "selector-field-location": {"origin": "event-record-payload", "path": ["flag"]}}}"#;
    assert_eq!(decoded(ranges, &[1, 2]), "flag=Boolean(true) n=2");
    assert_eq!(decoded(ranges, &[0, 2]), "flag=Boolean(false) n=none");
    let based = r#"{"name": "b", "field-class": {"type": "fixed-length-bit-array", "length": 8,
        "byte-order": "big-endian", "preferred-display-base": 8}}"#;
    assert!(parse_text(&description(based)).is_ok());
}

#[test]
fn texts_end_between_units_of_their_encoding() {
    let sized = r#"{"name": "l", "field-class": "u8"}, {"name": "t", "field-class":
        {"type": "dynamic-length-string", "encoding": "utf-16le", "length-field-location": {"path": ["l"]}}}"#;
    assert_eq!(decoded(sized, b"\x04h\0i\0"), "l=4 t=hi");
    let half = "expected a text of a multiple of 2 bytes, or its end, found 3";
    assert_eq!(decoded(sized, b"\x03h\0i\0"), half);
    // Bytes after the end are ignored.
    assert_eq!(decoded(sized, b"\x05h\0\0\0i"), "l=5 t=h");
}

#[test]
fn packets_with_the_uuid_of_another_trace_are_refused() {
    let text = r#"{"type": "preamble", "version": 2, "uuid": [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]}
        {"type": "trace-class", "packet-header-field-class": {"type": "structure", "member-classes": [
            {"name": "u", "field-class": {"type": "static-length-blob", "length": 16, "roles": ["metadata-stream-uuid"]}}]}}
        {"type": "data-stream-class"}"#;
    let decoder = Decoder::new(parse_text(text).unwrap()).unwrap();
    let packet = |uuid: u8| {
        let packet = decoder.packet(Input::new(&[uuid; 16], u64::MAX), &mut decoder.state());
        packet.map(drop).map_err(|error| error.problem)
    };
    assert_eq!(packet(1), Ok(()));
    assert_eq!(packet(2), Err(crate::decode::Problem::Foreign));
}

/// Description of one field class, without the field's name.
fn of_class(class: &str) -> String {
    format!(
        r#"{{"type": "preamble", "version": 2}} {{"type": "data-stream-class"}}
        {{"type": "event-record-class", "payload-field-class":
            {{"type": "structure", "member-classes": [{{"name": "x", "field-class": {class}}}]}}}}"#
    )
}

#[test]
fn names_that_occur_twice_are_remarked_upon_once() {
    let member = r#"{"name": "a", "field-class": {"type": "null-terminated-string"}}"#;
    let members = [member; 4].join(", ");
    let description =
        describe_text(&of_class(&format!(r#"{{"type": "structure", "member-classes": [{members}]}}"#)))
            .unwrap();
    let expected = "expected one field named \"a\" in a structure or variant, found several";
    assert_eq!(description.warnings, [expected]);
    assert_eq!(parse_text(&of_class(r#"{"type": "null-terminated-string"}"#)).map(|_| ()), Ok(()));
    let nul = r#"{"type": "structure", "member-classes": [{"name": "a\u0000", "field-class": {"type": "structure"}}]}"#;
    assert_eq!(describe_text(&of_class(nul)).unwrap().warnings.len(), 1);
}

#[test]
fn numbers_of_the_wrong_kind_or_size_are_refused() {
    let integer = r#""type": "fixed-length-unsigned-integer", "byte-order": "little-endian""#;
    for (rest, expected) in [
        (r#""length": 0"#, "expected 1 to 64 bits, found 0"),
        (r#""length": -8"#, "-8 is out of range"),
        (r#""length": "8""#, "expected an integer, found \"8\""),
        (r#""length": 8.5"#, "expected an integer, found a number with a fraction"),
        (r#""length": 8, "alignment": 0"#, "expected a power of two, found 0"),
        (r#""length": 8, "alignment": 3"#, "expected a power of two, found 3"),
        (r#""length": 8, "preferred-display-base": 7"#, "expected 2, 8, 10 or 16, found 7"),
        (r#""length": 8, "bit-order": "sideways""#, "expected one of first-to-last, last-to-first"),
        (r#""length": 8, "length": 16"#, "duplicate property"),
    ] {
        let error = parse_text(&of_class(&format!("{{{integer}, {rest}}}"))).unwrap_err().to_string();
        assert!(error.contains(expected), "{rest}: {error}");
    }
    let draft = r#"{"type": "fixed-length-unsigned-enumeration", "length": 8, "byte-order": "big-endian", "mappings": {}}"#;
    let error = parse_text(&of_class(draft)).unwrap_err().to_string();
    assert!(error.contains("expected a label of the enumeration, found none"), "{error}");
    let magic = format!(
        r#"{{"type": "preamble", "version": 2}} {{"type": "trace-class", "packet-header-field-class":
            {{"type": "structure", "member-classes": [{{"name": "m", "field-class":
                {{{integer}, "length": 16, "roles": ["packet-magic-number"]}}}}]}}}}"#
    );
    let error = parse_text(&magic).unwrap_err().to_string();
    assert!(error.contains("expected 32 bits of a magic number, found 16"), "{error}");
}

/// An alias can repeat attributes any number of times.
#[test]
fn attributes_of_field_classes_are_kept_within_limits() {
    let class = format!(
        r#"{{"type": "fixed-length-unsigned-integer", "length": 8, "byte-order": "little-endian",
            "attributes": {{"me": "{}"}}}}"#,
        "x".repeat(100_000)
    );
    let members: Vec<_> =
        (0..20).map(|number| format!(r#"{{"name": "m{number}", "field-class": "a"}}"#)).collect();
    let text = format!(
        r#"{{"type": "preamble", "version": 2}} {{"type": "trace-class"}}
        {{"type": "field-class-alias", "name": "a", "field-class": {class}}} {{"type": "data-stream-class"}}
        {{"type": "event-record-class", "payload-field-class": {{"type": "structure",
            "member-classes": [{}]}}}}"#,
        members.join(",")
    );
    let description = crate::describe(text.as_bytes()).unwrap();
    assert_eq!(description.trace.streams[0].events[0].details.fields.len(), 10);
    assert!(description.warnings[0].contains("1 MiB of attributes"), "{:?}", description.warnings);
}
