//! Options of variants whose names need care in CTF 1.8: babeltrace2 aborts where an option does
//! not have exactly the name of its label.

use std::fs;
use std::path::{Path, PathBuf};

use tompion_export::{Plan, rewrite};
use tompion_reader::Version;

use super::{babeltrace, opened, read, test_dir};

/// Packets with the same fields as LTTng's network events: labels and options begin with a `_`.
const NETWORK: &str = "/* CTF 1.8 */
    trace { major = 1; minor = 8; byte_order = le; };
    event { name = net_if_rx; fields := struct {
        enum : integer { size = 8; } { \"_unknown\" = 0, \"_ipv4\" = 4, \"__odd\" = 5 } _network_type;
        variant <_network_type> {
            struct { } _unknown;
            struct { integer { size = 8; } _ttl; } _ipv4;
            struct { integer { size = 8; } _ttl; } __odd;
        } _network;
    }; };";

/// Options with names that CTF 1.8 reserves, selected by an enumeration and by an integer.
const RESERVED: &str = r#"{"type": "preamble", "version": 2}
{"type": "data-stream-class"}
{"type": "event-record-class", "name": "reserved", "payload-field-class": {"type": "structure", "member-classes": [
    {"name": "kind", "field-class": {"type": "fixed-length-unsigned-enumeration", "length": 8,
        "byte-order": "little-endian", "alignment": 8,
        "mappings": {"int": [[0, 0]], "struct": [[4, 4]], "_Bool": [[5, 5]]}}},
    {"name": "of", "field-class": {"type": "variant", "selector-field-location": {"path": ["kind"]}, "options": [
        {"name": "int", "selector-field-ranges": [[0, 0]], "field-class": {"type": "structure"}},
        {"name": "struct", "selector-field-ranges": [[4, 4]], "field-class": "u8"},
        {"name": "_Bool", "selector-field-ranges": [[5, 5]], "field-class": "u8"}]}}]}}
"#;

/// Writes a trace of events without headers.
fn source(folder: PathBuf, description: &str) -> PathBuf {
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("metadata"), description).unwrap();
    fs::write(folder.join("stream"), [0, 4, 64, 5, 65, 0]).unwrap();
    folder
}

/// Returns a trace written in CTF 1.8.
fn in_one(from: &Path, to: PathBuf) -> PathBuf {
    rewrite(&mut opened(from), Plan { version: Some(Version::One), part: None }, &to).unwrap();
    to
}

#[test]
fn options_keep_the_labels_that_select_them() {
    let desk = test_dir();
    let class = r#"{"type": "fixed-length-unsigned-integer", "length": 8, "byte-order": "little-endian", "alignment": 8}"#;
    // The option's name differs from its label in the `_`.
    let plain = NETWORK.replace("\"_ipv4\"", "\"ipv4\"");
    let reserved = RESERVED.replace("\"u8\"", class);
    for (name, description) in [("network", NETWORK), ("reserved", &reserved), ("plain", &plain)] {
        let from = source(desk.path().join(name), description);
        let expected = read(&from).0;
        assert_eq!(expected.lines().count(), 4, "{expected}");
        let one = in_one(&from, desk.path().join(format!("{name}.1")));
        let found = read(&one).0;
        if name == "network" {
            assert_eq!(found, expected);
            assert!(found.contains("_ipv4"), "{found}");
        } else if name == "plain" {
            assert_eq!(found, expected);
        }
        assert_eq!(babeltrace(&one).unwrap_or_else(|| found.clone()), found, "{name}");
        let again = in_one(&one, desk.path().join(format!("{name}.2")));
        assert_eq!(read(&again).0, found, "{name} written twice");
    }
}

#[test]
fn a_label_selects_the_option_with_exactly_its_name() {
    let desk = test_dir();
    let text = NETWORK.replace("\"_ipv4\" = 4, \"__odd\" = 5", "\"__ttl\" = 4, \"_ttl\" = 5");
    let text = text.replace("struct { integer { size = 8; } _ttl; } _ipv4;", "string __ttl;");
    let text = text.replace("struct { integer { size = 8; } _ttl; } __odd;", "integer { size = 16; } _ttl;");
    let folder = source(desk.path().join("twins"), &text);
    let found = read(&folder).0;
    assert!(found.contains("\"__ttl\" : container = 4 ), network = { \"@\\x05A\" }"), "{found}");
}
