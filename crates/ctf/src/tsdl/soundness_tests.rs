//! Descriptions that follow the grammar but are unsound or odd.

use super::{describe_text, parse_text};
use crate::metadata::Type;

/// Description with a place for further text, and for a field.
fn with(top: &str, field: &str) -> String {
    format!(
        "/* CTF 1.8 */
        trace {{ major = 1; minor = 8; byte_order = le; }};
        env {{ length = 3; below = -1; name = \"x\"; same = 1; same = 1; twice = 1; twice = 2; }};
        clock {{ name = c; }};
        typealias integer {{ size = 8; }} := u8;
        {top}
        event {{ name = e; fields := struct {{ u8 n; {field} }}; }};"
    )
}

fn refusal(text: &str) -> String {
    parse_text(text).map_or_else(|error| error.to_string(), |_| String::from("nothing"))
}

#[test]
fn a_type_is_checked_where_it_is_declared() {
    for (ty, expected) in [
        ("integer { size = 0; }", "expected an integer of 1 to 64 bits, found 0"),
        ("integer { size = -8; }", "-8 is out of range"),
        ("integer { size = 65; }", "expected an integer of 1 to 64 bits, found 65"),
        ("integer { }", "expected the size of an integer in bits, found none"),
        ("integer { size = \"8\"; }", "expected a number, found \"8\""),
        ("integer { size = '8'; }", "expected a number, found \"8\""),
        ("integer { size = many; }", "expected a number, found \"many\""),
        ("integer { size = 8; align = 3; }", "expected an alignment that is a power of two, found 3"),
        ("integer { size = 8; align = 0; }", "expected an alignment that is a power of two, found 0"),
        ("integer { size = 8; base = 7; }", "expected a base of 2, 8, 10 or 16, found \"7\""),
        ("integer { size = 8; byte_order = middle; }", "expected a byte order"),
        ("integer { size = 8; encoding = klingon; }", "expected an encoding"),
        ("integer { size = 8; signed = maybe; }", "expected `true` or `false`"),
        ("integer { size = 8; map = 3; }", "expected `clock.NAME.value`"),
        ("integer { size = 8; size = 16; }", "expected `size` once, found it again"),
        ("integer { size = 8; align = 8; align = 8; }", "expected `align` once, found it again"),
        ("floating_point { exp_dig = 5; mant_dig = 11; }", "expected 8 and 24 or 11 and 53 digits"),
        ("floating_point { exp_dig = 8; }", "expected 8 and 24 or 11 and 53 digits"),
        ("floating_point { exp_dig = 8; mant_dig = 24; align = 7; }", "expected an alignment"),
        ("string { encoding = 3; }", "expected an encoding"),
        ("string { encoding = UTF8; encoding = ASCII; }", "expected `encoding` once"),
        ("enum : u8 { }", "expected a label of the enumeration, found none"),
        ("enum : nosuch { A }", "no type has the name `nosuch`"),
        ("enum { A }", "no type has the name `int`"),
        ("struct { u8 a; u8 a; }", "expected one field named `a`, found another"),
        ("struct { enum : u8 { A } t; variant <t> { u8 A; string A; } v; }", "expected one field named `A`"),
        ("struct { u8 a; } align(3)", "expected an alignment"),
        ("struct { u8 a; } align(-8)", "expected an alignment"),
        ("struct nosuch", "no type has the name `struct nosuch`"),
        ("nosuch", "no type has the name `nosuch`"),
    ] {
        let unused = [format!("typealias {ty} := unused;"), format!("struct unused {{ {ty} x; }};")];
        for text in unused.iter().map(|unused| with(unused, "")).chain([with("", &format!("{ty} x;"))]) {
            let found = refusal(&text);
            assert!(found.starts_with(expected), "{ty}: {found}");
        }
    }
}

#[test]
fn contradictions_are_refused() {
    for (top, expected) in [
        ("trace { major = 1; minor = 8; byte_order = le; };", "expected one `trace` block, found another"),
        ("clock { name = d; freq = 1000; freq = 2000; };", "expected `freq` once, found it again"),
        ("clock { name = d; offset_s = 1; offset_s = 1; };", "expected `offset_s` once"),
        ("clock { name = d; name = f; };", "expected `name` once"),
        ("clock { name = 3; };", "expected a name, found a number"),
        ("clock { name = \"\"; };", "expected a name"),
        ("clock { name = d; freq = 18446744073709551615; };", "clock d has the frequency 1844"),
        ("clock { name = d; freq = 1e9; };", "expected a number of at most 64 bits"),
        ("clock { name = d; freq := u8; };", "expected an attribute `name = value;`, found a type"),
        ("typealias integer { size = 16; } := u8;", "expected one type named `u8`, found another"),
        ("struct s { u8 a; }; struct s { u8 b; };", "expected one type named `struct s`"),
        ("enum s : u8 { a }; enum s : u8 { b };", "expected one type named `enum s`"),
        ("stream { id = 0; id = 1; };", "expected `id` once"),
        (
            "stream { event.header := struct { }; event.header := struct { }; };",
            "expected `event.header` once",
        ),
        ("stream { event.head := struct { u8 id; }; };", "expected one of the structures packet.context"),
        ("stream { u8 id; };", "expected the declaration of a type here, found a field"),
        ("stream { event.header := struct { string id; }; };", "expected an unsigned integer as the header"),
        (
            "stream { packet.context := struct { integer { size = 8; signed = true; } content_size; }; };",
            "expected an unsigned integer as the header field `content_size`",
        ),
        ("event { name = f; name = g; id = 1; };", "expected `name` once"),
        ("event { name = 3; id = 1; };", "expected a name, found a number"),
        (
            "event { name = f; id = 1; fields := struct { }; fields := struct { }; };",
            "expected `fields` once",
        ),
        (
            "event { name = f; id = 1; field := struct { }; };",
            "expected one of the structures context or fields",
        ),
    ] {
        let found = refusal(&with(top, ""));
        assert!(found.starts_with(expected), "{top}: {found}");
    }
    let text = with("", "");
    for (part, other, expected) in [
        ("byte_order = le;", "", "expected `byte_order` in the trace, found none"),
        ("byte_order = le;", "byte_order = native;", "expected the byte order of the trace"),
        ("byte_order = le;", "byte_order = le; byte_order = be;", "expected `byte_order` once"),
        ("name = e;", "na\0me = e;", "expected a word, a number, a string or a symbol"),
        ("name = e;", "name = \"a\0b\";", "expected `\"`, found a NUL character"),
        ("minor = 8;", "minor = 8; packet.header := struct { u8 uuid[16]; };", "no type has the name `u8`"),
        (
            "minor = 8;",
            "minor = 8; packet.header := struct { integer { size = 3; } uuid[16]; };",
            "expected an array of 16 bytes as the header field `uuid`",
        ),
        (
            "minor = 8;",
            "minor = 8; packet.header := struct { integer { size = 16; } magic; };",
            "expected an unsigned integer of 32 bits as the header field `magic`",
        ),
    ] {
        let found = refusal(&text.replace(part, other));
        assert!(found.starts_with(expected), "{other:?}: {found}");
    }
    let start = text.find("trace").unwrap();
    let end = text.find("env").unwrap();
    let found = refusal(&[&text[..start], &text[end..]].concat());
    assert!(found.starts_with("expected a `trace` block, found none"), "{found}");
}

#[test]
fn what_leaves_the_decoding_clear_is_remarked_upon() {
    let twice = "expected one value \"twice\" in the environment, found several, line 3, column 82";
    assert_eq!(describe_text(&with("", "")).unwrap().warnings, [twice]);
    for (top, field, expected) in [
        ("typealias integer { size = 8; bogus = 3; } := x;", "", "ignored `bogus`"),
        ("typealias integer { size = 8; map = clock.none.value; } := x;", "", "expected a clock named none"),
        ("", "u8 x; u8 _x;", "two fields, `x` and `_x`, are both shown as \"x\""),
        ("", "u8 int;", "expected a name that is no keyword, found `int`"),
        ("clock { name = d; offset = -1; };", "", "expected an `offset` of at least 0 cycles, found -1"),
        ("clock { name = d; description = 3; };", "", "expected a text as the description of a clock"),
        ("clock { name = d; bogus = 3; };", "", "ignored `bogus`"),
        ("event { id = 1; };", "", "expected the name of an event, found none"),
        ("event { id = 1; name = f; loglevel = -1; };", "", "expected a number of at least 0 as log level"),
        ("event { id = 1; name = f; model.emf.uri = 3; };", "", "expected a text as `model.emf.uri`"),
        ("event { id = 1; name = \"a\\qb\"; };", "", "expected an escape of C, found `\\q`"),
        ("event { id = 1; name = \"a\\0b\"; };", "", "expected a text without a NUL character"),
        ("env { typealias u8 := x; };", "", "expected values in the environment"),
        ("#include <x>\n", "", "expected no line of a preprocessor"),
    ] {
        let warnings =
            describe_text(&with(top, field)).unwrap_or_else(|error| panic!("{top}: {error}")).warnings;
        let is_there = warnings.iter().any(|warning| warning.contains(expected));
        assert!(is_there && warnings.len() == 2, "{top} {field}: {warnings:?}");
    }
    for (part, other, expected) in [
        ("u8 n;  }; };", "u8 n;  }; };\0\0\n\0", "expected the end of the text, ignored NUL characters"),
        ("major = 1; minor = 8;", "", "expected `major = 1; minor = 8;` in the trace"),
        ("n;  }; };", "n;  }; };\0\0\n\0", "expected the end of the text, ignored NUL characters"),
    ] {
        let text = with("", "");
        assert!(text.contains(part), "{part}");
        let warnings = describe_text(&text.replace(part, other)).unwrap().warnings;
        assert!(warnings.iter().any(|warning| warning.contains(expected)), "{other:?}: {warnings:?}");
    }
}

#[test]
fn remarks_are_kept_once_and_within_limits() {
    let many: String =
        (0..100).map(|number| format!("clock {{ name = c{number}; x{number} = 1; y = 1; }};")).collect();
    let warnings = describe_text(&with(&many, "")).unwrap().warnings;
    assert_eq!(warnings.len(), 17, "{warnings:?}");
    assert_eq!(warnings[16], "86 further remarks on the description");
}

#[test]
fn lengths_refer_to_the_environment() {
    let text = with("", "u8 a[env.length]; u8 b[env.below_zero];").replace(" u8 b[env.below_zero];", "");
    let trace = parse_text(&text).unwrap();
    let fields = &trace.streams[0].events[0].payload.as_ref().unwrap().fields;
    let Type::Array(array) = &fields[1].ty else { panic!("{fields:?}") };
    assert_eq!(array.length, 3);
    for (name, expected) in [
        ("below", "-1 is out of range"),
        ("name", "expected a number, found \"x\""),
        ("twice", "expected one value \"twice\" in the environment, found several"),
        ("none", "expected a value \"none\" in the environment, found none"),
    ] {
        let found = refusal(&with("", &format!("u8 a[env.{name}];")));
        assert!(found.starts_with(expected), "{name}: {found}");
    }
    assert_eq!(refusal(&with("", "u8 a[env.same];")), "nothing");
}

#[test]
fn what_is_no_text_of_ctf_1_8_is_named() {
    let text = with("", "");
    let utf16: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let marked = [&[0xff, 0xfe][..], &utf16].concat();
    let expected = "expected a description in UTF-8 without a byte order mark, found";
    for (bytes, found) in [
        (&b""[..], "an empty file"),
        (b" \n", "an empty file"),
        (&[b"\xef\xbb\xbf", text.as_bytes()].concat(), "a byte order mark"),
        (&utf16, "text in UTF-16"),
        (&marked, "text in UTF-16"),
    ] {
        let error = crate::parse(bytes).unwrap_err().to_string();
        assert_eq!(error, format!("{expected} {found}"));
    }
    let found = refusal(&text.replace("CTF 1.8", "CTF 1.7"));
    assert!(found.starts_with("expected version 1.8 in the first comment, found \"1.7\""), "{found}");
}
