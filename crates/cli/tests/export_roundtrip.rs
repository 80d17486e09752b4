//! Recordings in another format, in part, and together.

use crate::support::{TestDir, Trace, run};

/// Runs `tompion ARGUMENTS` and returns what it said.
fn tompion(dir: &TestDir, arguments: &[&str]) -> String {
    run(&mut dir.tompion(arguments)).succeeded().err
}

fn words(text: &str) -> Vec<&str> {
    text.split(' ').collect()
}

#[test]
fn a_recording_says_the_same_in_either_format() {
    let dir = TestDir::new();
    let trace = dir.record(&[], &[&dir.program("fields")]);
    let said = tompion(&dir, &words("export --to ctf2 trace -o two"));
    assert!(said.contains("tompion: 16 events in "), "{said}");
    let two = dir.trace("two");
    let metadata = |trace: &Trace| {
        let user = std::fs::read_dir(trace.folder.join("user")).unwrap().next().unwrap().unwrap();
        std::fs::read_to_string(user.path().join("metadata")).unwrap()
    };
    assert!(metadata(&two).starts_with("\u{1e}{\"type\":\"preamble\",\"version\":2,"));
    // It has none of what only CTF 2 can say, so nothing is said otherwise.
    let said = tompion(&dir, &words("export --to ctf1 two -o one"));
    assert!(!said.contains("note:"), "{said}");
    let one = dir.trace("one");
    assert!(metadata(&one).starts_with("/* CTF 1.8 */"));
    assert_eq!(two.printed(), trace.printed());
    assert_eq!(one.printed(), trace.printed());
    assert_eq!((two.stat(), one.stat()), (trace.stat(), trace.stat()));
    assert_eq!(one.agreed_text(), 16);
    // What events are, which CTF has no word for, is kept.
    assert_eq!(one.events().len(), 16);
}

#[test]
fn losses_stay_where_they_were() {
    let dir = TestDir::new();
    let trace = dir.record(&[], &[&dir.program("fields"), &"large"]);
    tompion(&dir, &words("export --to ctf2 trace -o two"));
    tompion(&dir, &words("export --to ctf1 two -o one"));
    let one = dir.trace("one");
    assert_eq!(one.stat()["lost"], serde_json::json!({"total": 1, "too_large": 1}));
    let warning = |trace: &Trace| trace.babeltrace().err.split(" in trace ").next().map(str::to_owned);
    assert_eq!(warning(&one), warning(&trace));
}

#[test]
fn a_part_and_all_together_are_traces_too() {
    let dir = TestDir::new();
    let hello = dir.link("hello", &["../../../../examples/hello.c"], &[]);
    let trace = dir.record(&[], &[&hello, &"20"]);
    let all = trace.events();
    let second = all[1].time;
    let from = format!("{}.{:09}", second / 1_000_000_000, second % 1_000_000_000);
    tompion(&dir, &["trim", "-e", "db:query_done", "--from", &from, "trace", "-o", "part"]);
    let expected: Vec<i64> = all
        .iter()
        .filter(|event| event.time >= second && event.name == "db:query_done")
        .map(|e| e.time)
        .collect();
    let part = dir.trace("part");
    assert_eq!(part.events().iter().map(|event| event.time).collect::<Vec<_>>(), expected);
    assert_eq!(part.agreed_count(), expected.len() as u64);

    tompion(&dir, &words("trim --last 1h trace -o all"));
    assert_eq!(dir.trace("all").printed(), trace.printed());

    let said = tompion(&dir, &words("merge trace part -o both"));
    assert!(said.ends_with("tompion: 2 traces in both; next: tompion print both\n"), "{said}");
    let both = dir.trace("both");
    assert_eq!(both.printed().lines().count(), all.len() + expected.len());
    let again = run(&mut dir.tompion(&words("merge trace part -o both"))).exited(1).err;
    assert_eq!(again, "tompion: both exists already; choose another folder with -o, or remove it\n");
    let twice = run(&mut dir.tompion(&words("merge trace trace/ -o other"))).exited(1).err;
    assert_eq!(twice, "tompion: expected each trace once, found trace/ twice\n");
}
