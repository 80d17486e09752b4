//! The trace of docs/guide/why-late.md has what the guide finds in it.

use serde_json::Value;

use crate::client::{Client, TestDir};
use crate::fixtures::{self, Fields, TestEvent};

const GUIDE: &str = include_str!("../../../../docs/guide/why-late.md");
const PREEMPTED: i64 = 4;
const BLOCKED: i64 = 5;
const JOB: i64 = 17;
const LATE: i64 = 18;

/// The number of the lane of a kind of the thread of this name.
fn lane(tracks: &Value, thread: &str, kind: &str) -> u64 {
    let mut all = tracks["tracks"].as_array().unwrap().iter();
    let track = all.find(|track| track["kind"] == "thread" && track["name"] == thread);
    let lanes = track.unwrap_or_else(|| panic!("no thread {thread}"))["lanes"].as_array().unwrap();
    lanes.iter().find(|lane| lane["kind"] == kind).unwrap()["id"].as_u64().unwrap()
}

/// Returns why a job took so long: the longest wait of its thread, and the thread that caused it.
fn reason(client: &Client, state: u64, (begin, end): (i64, i64)) -> (i64, String) {
    let boxes = client.boxes(state, (begin, end), 1000);
    let waits = boxes.iter().filter(|(.., style, _, _)| [PREEMPTED, BLOCKED].contains(style));
    let (from, _, style, ..) = waits.max_by_key(|(from, to, ..)| to - from).expect("it waited");
    let answer = client.get(&format!("/api/at?lane={state}&time={from}"));
    // The trace does not state the context of wakeups.
    let who = if *style == PREEMPTED { "culprit" } else { "during" };
    assert!(answer["waker"].is_null(), "{answer}");
    (*style, answer[who]["name"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn the_trace_in_the_repository_has_the_reasons_that_the_guide_finds() {
    let dir = TestDir::late();
    let client = dir.open();
    let trace = client.trace();
    let tracks = client.get("/api/tracks");
    let (jobs, state) = (lane(&tracks, "controller", "span"), lane(&tracks, "controller", "thread"));
    let jobs = client.boxes(jobs, (0, trace["end"].as_i64().unwrap()), 16_384);
    let of = |style: i64| -> Vec<(i64, i64)> {
        jobs.iter().filter(|job| job.2 == style).map(|(begin, end, ..)| (*begin, *end)).collect()
    };
    let late = of(LATE);
    assert_eq!((late.len(), of(JOB).len()), (7, 23));
    assert!(GUIDE.contains("30 activations, 7 of them late"));
    let first = late[0].1 - late[0].0;
    assert!(GUIDE.contains(&format!("{:.2} ms of the 5 ms", first as f64 / 1e6)), "{first}");
    let reasons: Vec<(i64, String)> = late.iter().map(|job| reason(&client, state, *job)).collect();
    let compressor = (PREEMPTED, "compressor".to_owned());
    let settings = (BLOCKED, "settings".to_owned());
    assert_eq!((&reasons[0], &reasons[1]), (&compressor, &settings));
    assert!(reasons.iter().all(|reason| [&compressor, &settings].contains(&reason)), "{reasons:?}");
    assert_eq!(reasons.iter().filter(|reason| **reason == compressor).count(), 4);
    assert!(
        GUIDE.contains("four of the seven") && GUIDE.contains("In the other three, such as the second one")
    );
    // Where the links lead: to what these threads did then.
    for (thread, span) in [("compressor", "log:compress"), ("settings", "settings:store")] {
        let spans = client.boxes(lane(&tracks, thread, "span"), (0, trace["end"].as_i64().unwrap()), 16_384);
        assert!(spans.len() > 3 && spans.iter().all(|(.., label, _)| label == span), "{spans:?}");
    }
}

#[test]
fn the_list_of_waits_names_preemptors_as_the_panel_does() {
    let dir = TestDir::late();
    let client = dir.open();
    let end = client.trace()["end"].as_i64().unwrap();
    let all = client.get(&format!("/api/select?from=0&to={end}"));
    let waits = all["waits"].as_array().unwrap().iter();
    let preempted: Vec<&Value> = waits.filter(|wait| wait["style"] == PREEMPTED).collect();
    let has_shares = |wait: &&&Value| wait["why"].as_str().unwrap().contains("meanwhile CPU ");
    assert!(preempted.iter().filter(has_shares).count() > 0, "{all}");
    for wait in preempted {
        let (lane, begin) = (&wait["lane"], &wait["begin"]);
        let panel = client.get(&format!("/api/at?lane={lane}&time={begin}"));
        assert_eq!(wait["why"], panel["why"], "at {begin}");
    }
}

/// It waited for the CPU that it left, and nothing tells since when for the other one.
#[test]
fn threads_of_a_cpu_to_which_a_thread_moved_did_not_preempt_it() {
    let switch = |time, from, tid, state, to: &str, next| {
        TestEvent(time, Fields::Switch(from, tid, state, to.into(), next))
    };
    let first = [
        switch(1000, "swapper/0", 0, 0, "worker", 7),
        switch(2000, "worker", 7, 0, "hog", 8),
        switch(9000, "hog", 8, 1, "swapper/0", 0),
    ];
    let mut second = fixtures::packet(
        &[
            switch(1500, "swapper/1", 0, 0, "other", 9),
            switch(8000, "other", 9, 1, "worker", 7),
            switch(9500, "worker", 7, 1, "swapper/1", 0),
        ],
        0,
    );
    // The packet's CPU.
    second[41] = 1;
    let dir = TestDir::new();
    fixtures::write(&dir.trace(), &fixtures::packet(&first, 0));
    std::fs::write(dir.trace().join("channel0_1"), second).unwrap();
    let client = dir.open();
    let end = client.trace()["end"].as_i64().unwrap();
    let waits = client.get(&format!("/api/select?from=0&to={end}"))["waits"].clone();
    assert_eq!((&waits[0]["tid"], &waits[0]["why"]), (&7.into(), &"preempted, first by hog (tid 8)".into()));
    let panel = client.get(&format!("/api/at?lane={}&time={}", waits[0]["lane"], waits[0]["begin"]));
    assert_eq!(panel["why"], waits[0]["why"]);
}

#[test]
fn the_answer_names_the_recorded_program() {
    let dir = TestDir::late();
    let path = dir.trace().join("tompion.json");
    let mut manifest: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    manifest["command"] = serde_json::json!(["/usr/sbin/nginx", "-g", "daemon off;"]);
    manifest["command_end"] = serde_json::json!({ "pid": 70, "end": "exited with 3" });
    manifest["programs"] =
        serde_json::json!([{ "pid": 71, "file": "/bin/true" }, { "pid": 72, "file": "/x" }]);
    manifest["sources"] = serde_json::json!([
        { "path": "user/a", "pid": 72, "parent": 70, "command_line": ["a b", ""], "end": "exited with 0" },
    ]);
    std::fs::write(&path, manifest.to_string()).unwrap();
    let expected = serde_json::json!([
        { "host": "vm", "pid": 70, "parent": null, "command": "/usr/sbin/nginx -g 'daemon off;'", "end": "exited with 3" },
        { "host": "vm", "pid": 71, "parent": null, "command": "/bin/true", "end": "" },
        { "host": "vm", "pid": 72, "parent": 70, "command": "'a b' ''", "end": "exited with 0" },
    ]);
    // Opening it again shows the same.
    for _ in 0..2 {
        let trace = dir.open().trace();
        assert_eq!(trace["commands"], serde_json::json!(["nginx"]));
        assert_eq!(trace["processes"], expected);
    }
}
