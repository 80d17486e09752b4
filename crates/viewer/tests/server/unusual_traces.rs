//! Traces that are hard to show.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Value, json};

use crate::client::{Client, TestDir};
use crate::fixtures::{self, Fields, TestEvent};

#[test]
fn the_story_of_a_thread() {
    let dir = TestDir::new();
    fixtures::write(&dir.trace(), &fixtures::story("worker"));
    let client = dir.open();
    let trace = client.trace();
    assert_eq!((&trace["base"], &trace["events"]), (&"1000".into(), &9.into()));
    assert_eq!(trace["losses"]["events"], 12);
    let lane = client.lanes("thread")[0];
    let boxes = client.boxes(lane, (0, 4100), 4100);
    // Woken, running, sleeping in read, woken, running, and unknown since events were lost.
    let styles: Vec<i64> = boxes.iter().map(|it| it.2).collect();
    assert_eq!(styles[..5], [3, 2, 5, 3, 2], "{boxes:?}");
    assert_eq!((boxes[0].0, boxes[0].1), (0, 500));
    assert_eq!(boxes[2].3, "read");
    let at = client.get(&format!("/api/at?lane={lane}&time=800"));
    assert_eq!(
        (&at["label"], &at["why"]),
        (&"read".into(), &"sleeping in read, woken by an interrupt on CPU 0".into())
    );
    assert_eq!(at["thread"]["name"], "worker");
    let lost = client.lanes("density")[0];
    let bins = client.drawn(&format!("ids={lost}&from=0&to=4100&width=10"));
    let bins = bins["lanes"][0]["bins"].as_array().unwrap().clone();
    assert!(bins.chunks(4).any(|bin| bin[2].as_i64() > Some(0)), "{bins:?}");
}

#[test]
fn names_with_html_are_text() {
    let dir = TestDir::new();
    let name = "<img src=x onerror=alert(1)>\u{202e}\"";
    fixtures::write(&dir.trace(), &fixtures::story(name));
    let client = dir.open();
    client.trace();
    let answer = client.ask("/api/tracks");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let tracks = answer.json();
    let names = tracks["tracks"].as_array().unwrap().iter().map(|track| track["name"].as_str().unwrap());
    assert!(names.into_iter().any(|known| known == name));
    let found = client.get("/api/events?from=0&to=5000&count=3");
    assert!(found["rows"][0]["text"].as_str().unwrap().contains("<img"));
}

#[test]
fn huge_names_are_cut() {
    let dir = TestDir::new();
    let name = "é".repeat(40_000);
    fixtures::write(&dir.trace(), &fixtures::story(&name));
    let client = dir.open();
    client.trace();
    assert!(client.ask("/api/tracks").body.len() < 100_000);
    assert!(client.ask("/api/events?from=0&to=5000&count=100").body.len() < 100_000);
}

#[test]
fn a_hundred_thousand_threads() {
    let dir = TestDir::new();
    fixtures::write(&dir.trace(), &fixtures::crowd(100_000));
    let client = dir.open();
    let trace = client.trace();
    assert_eq!(trace["events"], 100_000);
    let end = trace["end"].as_i64().unwrap();
    let tracks = client.get("/api/tracks");
    let threads = tracks["tracks"].as_array().unwrap().iter().filter(|track| track["kind"] == "thread");
    assert!(threads.count() >= 99_999);
    let cpu = client.lanes("cpu")[0];
    let boxes = client.boxes(cpu, (0, end), 1000);
    assert!(boxes.len() <= 2003, "{}", boxes.len());
    assert!(boxes.iter().map(|it| it.4).sum::<i64>() >= 99_999);
    let all = client.get(&format!("/api/select?from=0&to={end}"));
    assert_eq!(all["threads"].as_array().unwrap().len(), 1000, "those that ran longest");
    let count = all["counts"]["threads"].as_u64().unwrap();
    assert!(count >= 99_999, "{count}");
    // The others can be requested.
    let most = client.get(&format!("/api/select?from=0&to={end}&most=1000000"));
    assert_eq!(most["threads"].as_array().unwrap().len() as u64, count);
}

#[test]
fn a_trace_that_grows_is_shown_as_it_grows() {
    let dir = TestDir::new();
    let mut stream = fixtures::story("worker");
    fixtures::write(&dir.trace(), &stream);
    fs::write(dir.trace().join("tompion.json"), "{\"schema\":1,\"state\":\"recording\"}").unwrap();
    let client = dir.open();
    let trace = client.trace();
    assert_eq!((&trace["growing"], &trace["events"]), (&true.into(), &9.into()));
    stream
        .extend(fixtures::packet(&[TestEvent(9000, Fields::Entry(1)), TestEvent(9100, Fields::Exit(1))], 12));
    fs::write(dir.trace().join("channel0_0"), &stream).unwrap();
    let grown = client.trace_when(|trace| trace["events"] == 11);
    assert!(grown["generation"].as_i64() > trace["generation"].as_i64());
    assert_eq!(grown["end"], 8100);
    fs::write(dir.trace().join("tompion.json"), "{\"schema\":1,\"state\":\"complete\"}").unwrap();
    client.trace_when(|trace| trace["growing"] == false);
}

#[test]
fn lanes_keep_their_numbers_while_a_trace_grows() {
    let dir = TestDir::new();
    let switch_to =
        |time, tid| TestEvent(time, Fields::Switch("swapper/0", 0, 0, format!("thread {tid}"), tid));
    fixtures::write(
        &dir.trace(),
        &fixtures::packet(&[switch_to(5000, 7), switch_to(6000, 8), switch_to(7000, 7)], 0),
    );
    fs::write(dir.trace().join("tompion.json"), "{\"schema\":1,\"state\":\"recording\"}").unwrap();
    let client = dir.open();
    let generation = client.trace()["generation"].as_i64();
    let lanes = || -> BTreeMap<String, (Value, Value)> {
        let tracks = client.get("/api/tracks")["tracks"].take();
        let shown = tracks.as_array().unwrap().iter().filter(|track| track["lanes"].is_array());
        let lane = |track: &Value| {
            (track["name"].to_string(), (track["id"].clone(), track["lanes"][0]["id"].clone()))
        };
        shown.map(lane).collect()
    };
    let before = lanes();
    assert!(before.len() >= 4, "{before:?}");
    // What another stream tells is earlier, of another processor and other threads.
    let mut earlier = fixtures::packet(&[switch_to(1000, 9), switch_to(2000, 7), switch_to(3000, 10)], 0);
    earlier[41] = 1;
    fs::write(dir.trace().join("channel0_1"), earlier).unwrap();
    client.trace_when(|trace| trace["generation"].as_i64() > generation);
    let after = lanes();
    assert!(after.len() >= before.len() + 3, "{after:?}");
    for (name, numbers) in &before {
        assert_eq!(after.get(name), Some(numbers), "{name}");
    }
    let mut numbers: Vec<_> = after.values().map(|(_, lane)| lane.as_i64()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), after.len());
    // What a thread did first is there as well, under the number that it had.
    let thread = after["\"thread 7\""].1.as_u64().unwrap();
    let first = client.boxes(thread, (0, 5000), 500);
    assert!(!first.is_empty() && first[0].0 <= 1000, "{first:?}");
}

#[test]
fn of_a_trace_that_vanished_there_is_what_is_known() {
    let dir = TestDir::new();
    fixtures::write(&dir.trace(), &fixtures::story("worker"));
    let client = dir.open();
    client.trace();
    let lane = client.lanes("thread")[0];
    let before = client.boxes(lane, (0, 4100), 100);
    fs::remove_dir_all(dir.trace()).unwrap();
    let trace = client.trace_when(|trace| trace["gone"].is_string());
    assert!(!trace["gone"].as_str().unwrap().contains('\n'));
    assert!(trace["kept"].is_null(), "nothing is kept in a folder that was removed: {trace}");
    assert_eq!(client.boxes(lane, (0, 4100), 100), before);
    let counts =
        format!("/api/counts?from=0&to=5000&tracks={}", client.get("/api/tracks")["tracks"][0]["id"]);
    for path in [
        "/api/events?from=0&to=5000",
        "/api/events?from=0&to=5000&filter=fd%3D%3D3",
        "/api/search?q=worker&from=0",
        &counts,
        "/api/export?format=csv&from=0&to=5000",
    ] {
        let answer = client.ask(path);
        let line = answer.json()["error"].as_str().unwrap_or_default().to_owned();
        assert_eq!(answer.status, 410, "{path}: {line}");
        assert!(line.contains("not there any more") || path.contains("export"), "{path}: {line}");
    }
    let version = client.get("/api/notes")["version"].clone();
    let written = client.post("/api/notes", &json!({ "version": version, "notes": [] }).to_string());
    assert_eq!(written.status, 410, "{}", written.json());
}

#[test]
fn vanished_stream_files_are_reported_and_their_events_stay() {
    let dir = TestDir::new();
    fixtures::write(&dir.trace(), &fixtures::story("worker"));
    fs::write(dir.trace().join("channel0_1"), fixtures::story("another")).unwrap();
    let client = dir.open();
    let events = client.trace()["events"].clone();
    let lane = client.lanes("thread")[0];
    let before = client.boxes(lane, (0, 4100), 100);
    fs::remove_file(dir.trace().join("channel0_1")).unwrap();
    let trace = client.trace_when(|trace| trace["gone"].is_string());
    let line = trace["gone"].as_str().unwrap();
    assert!(line.contains("channel0_1 is not there any more") && !line.contains('\n'), "{line}");
    fs::remove_file(dir.trace().join("channel0_0")).unwrap();
    let trace =
        client.trace_when(|trace| trace["gone"].as_str().is_some_and(|line| line.contains(" 1 more of 3")));
    assert_eq!((&trace["events"], client.boxes(lane, (0, 4100), 100)), (&events, before));
}

#[test]
fn corruption_is_reported_and_the_rest_is_shown() {
    let dir = TestDir::new();
    let mut stream = fixtures::story("worker");
    stream.extend(b"this is no packet, and long enough to be none of a header that is cut off, either");
    fixtures::write(&dir.trace(), &stream);
    let client = dir.open();
    let trace = client.trace();
    assert_eq!(trace["events"], 9);
    assert!(!trace["damages"].as_array().unwrap().is_empty());
    // Nothing at all is a trace, too.
    let empty = TestDir::new();
    fixtures::write(&empty.trace(), b"");
    let client = empty.open();
    assert_eq!(client.trace()["events"], 0);
    assert_eq!(client.get("/api/events?from=0&to=100")["total"], 0);
}

#[test]
fn an_incidents_description_is_answered() {
    let dir = TestDir::new();
    fixtures::write(&dir.trace(), &fixtures::story("worker"));
    let kept = r#"{"schema":1,"time_ns":3900,"latency_ns":1200,"limit_ns":1000,
        "thread":{"tid":7,"name":"worker","priority":"rt 5"},"job":{"name":"motor:control","released_by":"timer"},
        "verdict":{"percent":99.5,"words":"hog (thread 9) ran, of a priority as high or higher"},
        "culprits":[{"words":"hog (thread 9) ran","tid":9,"percent":99.5,"time_ns":2700}]}"#;
    fs::write(dir.trace().join("incident.json"), kept).unwrap();
    // The trace begins at 1000.
    let expected = serde_json::json!({
        "begin": 1700, "end": 2900, "limit": 1000, "tid": 7, "name": "worker", "job": "motor:control",
        "verdict": { "percent": 99.5, "words": "hog (thread 9) ran, of a priority as high or higher" },
        "culprits": [{ "words": "hog (thread 9) ran", "tid": 9, "percent": 99.5, "time": 1700 }],
    });
    assert_eq!(dir.open().trace()["incident"], expected);
    for wrong in [
        "",
        "{}",
        "[1]",
        r#"{"time_ns":-9223372036854775808,"latency_ns":9223372036854775807,"limit_ns":0,"thread":{"tid":1,"name":""}}"#,
    ] {
        fs::write(dir.trace().join("incident.json"), wrong).unwrap();
        assert!(dir.open().trace()["incident"].is_null(), "{wrong}");
    }
    // A FIFO without a writer has no end.
    fs::remove_file(dir.trace().join("incident.json")).unwrap();
    let pipe = dir.trace().join("incident.json");
    rustix::fs::mknodat(rustix::fs::CWD, pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    assert!(dir.open().trace()["incident"].is_null());
}

#[test]
fn what_a_kernel_did_after_its_trace_has_ended_is_unknown() {
    let dir = TestDir::new();
    let (kernel, program) = (dir.cache().join("kernel"), dir.cache().join("program"));
    fixtures::write(&kernel, &fixtures::story("worker"));
    // A program of the same machine goes on for longer.
    fixtures::queue(&program, &[(2000, 5), (9000, 6)], 0);
    let client = Client::open(&[kernel, program], &dir.cache());
    assert_eq!(client.trace()["end"], 8000);
    let boxes = client.boxes(client.lanes("cpu")[0], (0, 8000), 8000);
    let (begin, end, style, ..) = boxes.last().unwrap();
    assert_eq!((*begin, *end, *style), (4100, 8000, 0), "{boxes:?}");
}

#[test]
fn a_span_that_begins_at_the_same_time_as_its_job_is_no_job() {
    const SPAN: i64 = 12;
    const LATE_JOB: i64 = 18;
    let dir = TestDir::new();
    fixtures::job_with_step(&dir.trace());
    let client = dir.open();
    client.trace();
    let lanes = client.lanes("span");
    let boxes: Vec<_> = lanes.iter().map(|lane| client.boxes(*lane, (0, 1000), 1000)).collect();
    let shown: Vec<_> = boxes.iter().flatten().map(|(.., style, label, _)| (*style, &**label)).collect();
    assert_eq!(shown, [(LATE_JOB, "app:control"), (SPAN, "app:step")], "{boxes:?}");
}
