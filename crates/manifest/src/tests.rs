//! The file as other versions and other programs may have written it.

use serde_json::json;
use tompion_testing::TestDir;

use super::*;

fn manifest() -> Manifest {
    Manifest {
        schema: SCHEMA,
        state: RECORDING.into(),
        sources: vec![Source { path: "user/db-7".into(), pid: Some(7), ..Source::default() }],
        session: Session {
            host: Host { name: "box".into(), ..Host::default() },
            clock: Clock { samples: vec![(1, 2)], ..Clock::default() },
            ..Session::default()
        },
        ..Manifest::default()
    }
}

#[test]
fn sessions_read_back_all_that_they_wrote_and_readers_their_part() {
    let dir = TestDir::new("manifest");
    let folder = DirHandle::open(&dir).unwrap();
    manifest().write(&folder, false).unwrap();
    let read = Manifest::read(&folder).unwrap();
    assert_eq!((&*read.session.host.name, &*read.session.clock.samples), ("box", &[(1, 2)][..]));
    assert!(read.is_recording());
    let parsed = Manifest::parse(&std::fs::read(dir.join(FILE)).unwrap()).unwrap();
    assert_eq!((parsed.sources, &*parsed.session.host.name), (manifest().sources, ""));
}

#[test]
fn keys_stand_side_by_side_as_in_the_first_version() {
    let mut manifest = manifest();
    manifest.rejected_processes = 2;
    manifest.beyond_limits.children = 3;
    let value = serde_json::to_value(&manifest).unwrap();
    let expected = json!({
        "schema": 1, "state": "recording", "command": [], "left_out": 2, "beyond_limits": {"children": 3},
        "sources": [{"path": "user/db-7", "kind": "", "pid": 7, "events": 0, "lost": {}, "overwritten": 0}],
        "tompion": "", "invocation": [], "problems": [],
        "host": {"name": "box", "kernel": "", "cpus": 0, "boot_id": ""},
        "clock": {"source": "", "realtime_offset_ns": 0, "error_bound_ns": 0, "samples": [[1, 2]]},
        "channel": {"mode": "", "subbuf_size": 0, "subbufs": 0},
    });
    assert_eq!(value, expected);
}

#[test]
fn readers_take_files_of_other_versions() {
    let parse = |value: serde_json::Value| Manifest::parse(value.to_string().as_bytes());
    // Keys that are missing, that a later version added, or that only sessions need.
    let other = parse(json!({"schema": 1, "host": "box", "later": [1], "rejected_processes": 4,
        "beyond_limits": {"problems": 1, "later": 2, "list": [3], "text": "4", "none": null, "negative": -5},
        "sources": [{"path": "user/db-7"}]}));
    let other = other.unwrap();
    assert_eq!((other.rejected_processes, other.sources[0].pid), (4, None));
    let counts: Vec<_> = other.beyond_limits.counts().filter(|(_, count)| *count > 0).collect();
    assert_eq!(counts, [("problems", 1), ("later", 2)]);
    let text = serde_json::to_value(&other.beyond_limits).unwrap();
    assert_eq!(text, json!({"problems": 1, "later": 2}), "a recovery keeps counts that it doesn't know");
    assert_eq!(parse(json!({"schema": 2})).unwrap_err(), "expected schema 1, found 2");
    assert_eq!(parse(json!({})).unwrap_err(), "expected schema 1, found 0");
}

#[test]
fn sessions_take_no_file_without_their_state() {
    let dir = TestDir::new("manifest-without-session");
    let folder = DirHandle::open(&dir).unwrap();
    std::fs::write(dir.join(FILE), "{\"schema\": 1, \"state\": \"recording\"}").unwrap();
    let error = Manifest::read(&folder).unwrap_err();
    assert!(error.contains("tompion.json: missing field `tompion`"), "{error}");
}
