use std::fs;
use std::path::{Path, PathBuf};

use tompion_export::{Plan, Rewritten, rewrite};
use tompion_reader::Version;

use super::{babeltrace, corpus, opened, read, test_dir};

/// Intact traces, with their numbers of events.
const INTACT: [(&str, u64); 14] = [
    ("many-threads", 240_644),
    ("bug446190", 31_556),
    ("glxgears-cyg-profile", 4977),
    ("ros2", 99_338),
    ("multi-domains", 4272),
    ("session-rotation", 266),
    ("trace-with-index", 4000),
    ("trace-with-index.ctf2", 4000),
    ("wk-heartbeat-u", 20),
    ("smalltrace", 2),
    ("perf-taskset2", 1500),
    ("2-streams-lost-in-2", 8),
    ("3eventsintersect", 8),
    ("philo.ctf2", 141),
];

fn written(from: &Path, version: Version, to: PathBuf) -> (PathBuf, Rewritten) {
    let mut traces = opened(from);
    let plan = Plan { version: Some(version), part: None };
    let rewritten =
        rewrite(&mut traces, plan, &to).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
    assert_eq!(traces.corruptions(), []);
    let new = opened(&to);
    assert_eq!(new.traces().len(), traces.traces().len());
    for (old, new) in traces.traces().iter().zip(new.traces()) {
        let (old, new) = (old.metadata(), new.metadata());
        assert_eq!((new.version, new.uuid), (version, old.uuid));
        assert_eq!(&new.environment[..old.environment.len()], &old.environment[..]);
        let clocks = |trace: &tompion_ctf::metadata::Trace| -> Vec<(i64, u64)> {
            trace.clocks.iter().map(|clock| (clock.to_nanoseconds(7), clock.frequency)).collect()
        };
        assert_eq!(clocks(new), clocks(old));
    }
    (to, rewritten)
}

#[test]
fn traces_are_equal_in_either_format_and_back() {
    let Some(folder) = corpus() else { return };
    let shop = test_dir();
    for (name, events) in INTACT {
        let original = folder.join(name);
        let expected = read(&original);
        let (two, rewritten) = written(&original, Version::Two, shop.path().join(format!("{name}.2")));
        assert_eq!((rewritten.events, rewritten.notes.len()), (events, 0), "{name}");
        assert!(read(&two) == expected, "{name} in CTF 2");
        let (one, _) = written(&two, Version::One, shop.path().join(format!("{name}.1")));
        assert!(read(&one) == expected, "{name} in CTF 1.8 again");
        let Some(found) = babeltrace(&one) else { continue };
        // babeltrace2 must misread the rewritten trace in the same way as the original. It doesn't
        // read CTF 2.
        let expected = if name.ends_with(".ctf2") { expected.0 } else { babeltrace(&original).unwrap() };
        assert!(found == expected, "{name} as babeltrace2 reads it");
    }
}

/// Types that CTF 1.8 doesn't have, including variants without option names.
const ONLY_TWO: [&str; 8] =
    ["bool", "bit-array", "bit-map", "blob", "optional", "variant", "of-variant", "var-len"];

#[test]
fn each_type_is_expressed_in_either_format() {
    let Some(folder) = corpus().map(|folder| folder.join("field-cases")) else { return };
    let shop = test_dir();
    let (mut same, mut mapped, mut unread) = (0, 0, Vec::new());
    for row in fs::read_to_string(folder.join("INDEX.tsv")).unwrap().lines().skip(1) {
        let Some(name) = row.strip_suffix("\tpass").and_then(|row| row.split('\t').next()) else { continue };
        let original = folder.join(name);
        let expected = read(&original).0;
        let (two, _) = written(&original, Version::Two, shop.path().join(format!("{name}.2")));
        assert_eq!(read(&two).0, expected, "{name} in CTF 2");
        let (one, rewritten) = written(&original, Version::One, shop.path().join(format!("{name}.1")));
        let found = read(&one).0;
        if rewritten.notes.is_empty() {
            assert_eq!(found, expected, "{name} in CTF 1.8");
            same += 1;
        } else {
            assert!(ONLY_TWO.iter().any(|part| name.contains(part)), "{name}: {:?}", rewritten.notes);
            mapped += 1;
        }
        match babeltrace(&one) {
            Some(text) if text == found => {}
            Some(_) => unread.push(name.to_owned()),
            None => {}
        }
    }
    assert_eq!((same, mapped, unread), (235, 96, vec![]));
}

#[test]
fn an_existing_folder_is_not_changed() {
    let Some(folder) = corpus() else { return };
    let shop = test_dir();
    let mut traces = opened(&folder.join("smalltrace"));
    let error = rewrite(&mut traces, Plan::default(), shop.path()).unwrap_err().to_string();
    assert!(error.contains(" exists already; choose another folder"), "{error}");
    assert!(shop.path().is_dir());
}
