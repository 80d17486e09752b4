//! Values of counters and channels, and statistics of durations and states.

use std::fs;

use serde_json::{Value, json};
use tompion_index::slice_kind;

use crate::client::{Client, TestDir};
use crate::fixtures::{self, Fields, TestEvent};

/// A program whose queue is three long, seventeen, and five.
fn queue(dir: &TestDir) -> Client {
    fixtures::queue(&dir.trace(), &[(1000, 3), (2000, 17), (9000, 5)], 40);
    let client = dir.open();
    client.trace();
    client
}

#[test]
fn a_counter_tells_its_value_until_it_has_another_one() {
    let dir = TestDir::new();
    let client = queue(&dir);
    let lane = client.lanes("counter")[0];
    let at = client.get(&format!("/api/at?lane={lane}&time=4500&near=1"));
    assert_eq!((&at["value"], &at["range"]), (&json!(17.0), &json!([3.0, 17.0])), "{at}");
    assert_eq!((&at["begin"], &at["end"], &at["seen"]), (&json!(1000), &json!(8000), &json!([true, true])));
    assert_eq!((&at["label"], &at["style"]), (&json!("app:queue"), &json!(slice_kind::COUNTER)));
    assert_eq!((&at["before"]["label"], &at["after"]["label"]), (&json!("3"), &json!("5")));
    let fields: Vec<&Value> = at["fields"].as_array().unwrap().iter().collect();
    assert!(fields.contains(&&json!(["event", "app:queue"])), "{fields:?}");
    assert!(fields.contains(&&json!(["length", "17"])), "{fields:?}");
    // The last one goes on to the unobserved end; before the first one nothing is known.
    let last = client.get(&format!("/api/at?lane={lane}&time=8000"));
    assert_eq!((&last["value"], &last["seen"]), (&json!(5.0), &json!([true, false])));
    assert_eq!(client.get(&format!("/api/at?lane={lane}&time=-1"))["none"], true);
    // From point to point.
    assert_eq!(client.get(&format!("/api/step?lane={lane}&time=1000&dir=1"))["begin"], 8000);
}

#[test]
fn between_two_points_a_counter_is_drawn_with_the_value_that_it_has() {
    let dir = TestDir::new();
    let client = queue(&dir);
    let lane = client.lanes("counter")[0];
    let drawn = client.drawn(&format!("ids={lane}&from=3000&to=4000&width=100"));
    assert_eq!(drawn["lanes"][0]["points"], json!([1000, 17, 17, 17]));
    let all = client.drawn(&format!("ids={lane}&from=500&to=9000&width=8500"));
    assert_eq!(all["lanes"][0]["points"], json!([0, 3, 3, 3, 1000, 17, 17, 17, 8000, 5, 5, 5]));
}

#[test]
fn a_channel_tells_how_many_events_there_are_and_how_many_were_lost() {
    let dir = TestDir::new();
    let client = queue(&dir);
    let lane = client.lanes("density")[0];
    let there = client.get(&format!("/api/at?lane={lane}&time=900&near=200"));
    assert_eq!((&there["style"], &there["label"]), (&json!(slice_kind::DENSITY), &json!("trace/channel0")));
    assert_eq!(there["counts"], json!({ "events": 1, "lost": 0, "overwritten": 0 }));
    // Lost since the last event: all that is known of that while.
    let bins = client.drawn(&format!("ids={lane}&from=0&to=9000&width=9000"));
    let bins = bins["lanes"][0]["bins"].as_array().unwrap().clone();
    let lost = bins.chunks(4).find(|bin| bin[2].as_i64() > Some(0)).unwrap()[0].as_i64().unwrap();
    let missing = client.get(&format!("/api/at?lane={lane}&time={lost}&near=1"));
    assert_eq!((&missing["style"], &missing["counts"]["lost"]), (&json!(slice_kind::LOST), &json!(40)));
    assert!(missing["begin"].as_i64() < missing["end"].as_i64(), "{missing}");
    // The next place where something is missing.
    let step = client.get(&format!("/api/step?lane={lane}&time=0&dir=1"));
    assert_eq!(step["begin"], missing["begin"]);
    assert_eq!(client.get(&format!("/api/step?lane={lane}&time=999999&dir=1"))["none"], true);
}

#[test]
fn overwritten_history_reaches_up_to_the_channels_first_event() {
    let dir = TestDir::new();
    fixtures::queue(&dir.trace().join("early"), &[(1000, 3), (9000, 5)], 0);
    fixtures::queue(&dir.trace().join("late"), &[(6000, 3), (9000, 5)], 0);
    let manifest =
        json!({ "schema": 1, "state": "complete", "sources": [{ "path": "late", "overwritten": 700 }] });
    fs::write(dir.trace().join("tompion.json"), manifest.to_string()).unwrap();
    let client = dir.open();
    assert_eq!(client.trace()["losses"]["overwritten"], 700);
    let lanes = client.lanes("density");
    let drawn = |lane: u64| -> Vec<i64> {
        let bins = client.drawn(&format!("ids={lane}&from=0&to=8000&width=8"));
        let bins = bins["lanes"][0]["bins"].as_array().unwrap().clone();
        bins.chunks(4).filter(|bin| bin[3].as_i64() > Some(0)).map(|bin| bin[0].as_i64().unwrap()).collect()
    };
    let of_lane: Vec<Vec<i64>> = lanes.iter().map(|lane| drawn(*lane)).collect();
    let late = of_lane.iter().position(|drawn| !drawn.is_empty()).unwrap();
    assert_eq!(of_lane[late], [0, 1000, 2000, 3000, 4000, 5000], "{of_lane:?}");
    assert!(of_lane.iter().enumerate().all(|(lane, drawn)| lane == late || drawn.is_empty()));
    let at = client.get(&format!("/api/at?lane={}&time=2500&near=10", lanes[late]));
    assert_eq!((&at["style"], &at["counts"]["overwritten"]), (&json!(slice_kind::OVERWRITTEN), &json!(700)));
}

#[test]
fn what_overwritten_events_could_have_changed_is_unknown() {
    let dir = TestDir::new();
    let worker = |time| TestEvent(time, Fields::Switch("swapper/0", 0, 0, "worker".into(), 7));
    fixtures::write(&dir.trace(), &fixtures::packet(&[worker(1000), TestEvent(2000, Fields::Entry(3))], 0));
    let later = fixtures::packet(&[TestEvent(6000, Fields::Waking("other".into(), 8)), worker(7000)], 0);
    fs::write(dir.trace().join("channel0_1"), later).unwrap();
    let manifest = json!({ "schema": 1, "state": "complete", "sources": [{ "path": "", "overwritten": 9 }] });
    fs::write(dir.trace().join("tompion.json"), manifest.to_string()).unwrap();
    let client = dir.open();
    client.trace();
    let boxes = client.boxes(client.lanes("cpu")[0], (0, 6000), 6000);
    let found: Vec<_> = boxes.iter().map(|it| (it.0, it.2)).collect();
    let of = |style: u8| i64::from(style);
    assert_eq!(found, [(0, of(slice_kind::UNKNOWN))], "{boxes:?}");
}

#[test]
fn between_two_recordings_of_a_machine_its_processors_are_unknown() {
    let dir = TestDir::new();
    let worker = |time| TestEvent(time, Fields::Switch("swapper/0", 0, 0, "worker".into(), 7));
    let call = |time| TestEvent(time, Fields::Entry(3));
    fixtures::write(&dir.trace().join("a"), &fixtures::packet(&[worker(1000), call(2000)], 0));
    fixtures::write(&dir.trace().join("b"), &fixtures::packet(&[worker(9000), call(9500)], 0));
    let client = dir.open();
    client.trace();
    let boxes = client.boxes(client.lanes("cpu")[0], (0, 8500), 8500);
    let found: Vec<_> = boxes.iter().map(|it| (it.0, it.1, it.2)).collect();
    let (running, unknown) = (slice_kind::RUNNING.into(), slice_kind::UNKNOWN.into());
    assert_eq!(found, [(0, 1000, running), (1000, 8000, unknown), (8000, 8500, running)], "{boxes:?}");
    // Their boxes are on the same lanes: one can't be shifted alone.
    let shift = |offset: i64| client.post("/api/offset", &format!("{{\"trace\":1,\"offset_ns\":{offset}}}"));
    let refused = shift(-500);
    assert_eq!(refused.status, 400);
    let said = String::from_utf8_lossy(&refused.body).into_owned();
    assert!(said.contains("the kernel of one machine recorded this and") && said.contains("/a"), "{said}");
    assert_eq!(shift(0).status, 200);
}

#[test]
fn a_histogram_has_a_bin_for_each_power_of_two() {
    let dir = TestDir::new();
    let mut events = Vec::new();
    for (begin, length) in [(0, 100), (1000, 120), (2000, 100_000)] {
        events.push(TestEvent(begin, Fields::Switch("swapper/0", 0, 0, "worker".into(), 7)));
        events.push(TestEvent(begin + 1, Fields::Entry(3)));
        events.push(TestEvent(begin + 1 + length, Fields::Exit(1)));
        events.push(TestEvent(begin + 2 + length, Fields::Switch("worker", 7, 1, "swapper/0".into(), 0)));
    }
    fixtures::write(&dir.trace(), &fixtures::packet(&events, 0));
    let client = dir.open();
    client.trace();
    let all = client.get("/api/select?from=0&to=200000");
    let bins = all["syscalls"][0]["histogram"].as_array().unwrap().clone();
    let number = |bin: &Value, at: usize| bin[at].as_u64().unwrap();
    assert_eq!((number(&bins[0], 0), number(bins.last().unwrap(), 1)), (64, 131_072), "{bins:?}");
    assert!(bins.windows(2).all(|two| number(&two[0], 1) == number(&two[1], 0)), "{bins:?}");
    assert_eq!(bins.iter().map(|bin| number(bin, 2)).collect::<Vec<_>>(), [2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    assert!(bins[3][3].is_null() && bins[0][3].is_object());
}

#[test]
fn a_total_has_what_lies_in_the_area() {
    let dir = TestDir::new();
    let events = [
        TestEvent(0, Fields::Switch("swapper/0", 0, 0, "worker".into(), 7)),
        TestEvent(1000, Fields::Entry(3)),
        TestEvent(9000, Fields::Exit(1)),
        TestEvent(10_000, Fields::Switch("worker", 7, 1, "swapper/0".into(), 0)),
    ];
    fixtures::write(&dir.trace(), &fixtures::packet(&events, 0));
    let client = dir.open();
    client.trace();
    let read = client.get("/api/select?from=2000&to=5000")["syscalls"][0].clone();
    assert_eq!((&read["count"], &read["total"]), (&json!(1), &json!(3000)), "{read}");
    assert_eq!((&read["p50"], &read["max"]), (&json!(8000), &json!(8000)), "it took that long: {read}");
    assert_eq!(read["longest"]["end"], 9000, "{read}");
}

#[test]
fn who_waits_for_a_disk_is_not_asleep() {
    let dir = TestDir::new();
    let switch = |time, from, from_tid, state, to: &str, to_tid| {
        TestEvent(time, Fields::Switch(from, from_tid, state, to.into(), to_tid))
    };
    let events = [
        switch(0, "swapper/0", 0, 0, "worker", 7),
        switch(1000, "worker", 7, 1, "swapper/0", 0),
        TestEvent(3000, Fields::Waking("worker".into(), 7)),
        switch(3000, "swapper/0", 0, 0, "worker", 7),
        switch(4000, "worker", 7, 2, "swapper/0", 0),
        TestEvent(9000, Fields::Waking("worker".into(), 7)),
        switch(9000, "swapper/0", 0, 0, "worker", 7),
        switch(9500, "worker", 7, 1, "swapper/0", 0),
    ];
    fixtures::write(&dir.trace(), &fixtures::packet(&events, 0));
    let client = dir.open();
    client.trace();
    let all = client.get("/api/select?from=0&to=9500");
    let worker = all["threads"].as_array().unwrap().iter().find(|thread| thread["tid"] == 7).unwrap().clone();
    assert_eq!(
        (&worker["blocked"], &worker["io"], &worker["stopped"]),
        (&json!(2000), &json!(5000), &json!(0))
    );
}

#[test]
fn tracks_of_several_machines_say_of_which_they_are() {
    let dir = TestDir::new();
    fixtures::write_of("left", &dir.trace().join("one"), &fixtures::story("worker"));
    fixtures::write_of("right", &dir.trace().join("two"), &fixtures::story("worker"));
    let client = dir.open();
    client.trace();
    let tracks = client.get("/api/tracks")["tracks"].take();
    let mut hosts: Vec<&str> = tracks
        .as_array()
        .unwrap()
        .iter()
        .filter(|track| track["tid"] == 7)
        .map(|track| track["host"].as_str().unwrap())
        .collect();
    hosts.sort_unstable();
    assert_eq!(hosts, ["left", "right"]);
}
