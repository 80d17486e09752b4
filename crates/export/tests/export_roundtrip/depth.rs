//! Structures nested so deeply that a new description could not be read.

use std::fs;

use tompion_export::{Plan, rewrite};
use tompion_reader::Version;

use super::{opened, read, test_dir};

/// Writes a trace of structures nested this deeply.
fn nested(folder: &std::path::Path, depth: usize) {
    let (open, close) = ("struct { ".repeat(depth), "} a; ".repeat(depth));
    let description = format!(
        "/* CTF 1.8 */ trace {{ major = 1; minor = 8; byte_order = le; }};
        event {{ name = deep; fields := struct {{ {open} integer {{ size = 8; }} n; {close} }}; }};"
    );
    fs::create_dir(folder).unwrap();
    fs::write(folder.join("metadata"), description).unwrap();
    fs::write(folder.join("stream"), [7]).unwrap();
}

#[test]
fn a_description_that_could_not_be_read_is_not_written() {
    let desk = test_dir();
    for (depth, is_readable) in [(20, true), (60, false)] {
        let (from, to) = (desk.path().join(depth.to_string()), desk.path().join(format!("{depth}.2")));
        nested(&from, depth);
        let plan = Plan { version: Some(Version::Two), part: None };
        match rewrite(&mut opened(&from), plan, &to) {
            Ok(_) if is_readable => assert_eq!(read(&to).0, read(&from).0),
            Err(error) if !is_readable => {
                assert!(error.to_string().contains("no reader takes back"), "{error}");
                assert!(!to.exists(), "no folder is left");
            }
            other => panic!("{depth} deep: {other:?}"),
        }
    }
}
