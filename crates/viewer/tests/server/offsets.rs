//! Several traces, shifted against each other.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::client::{Client, TestDir};
use crate::fixtures;

/// By how much the second trace is shifted: its events come before all of the first.
const EARLIER: i64 = -10_000;

/// Two traces of the same times, of two machines.
fn two(dir: &TestDir) -> (Client, Vec<PathBuf>) {
    let paths = vec![dir.cache().join("first"), dir.cache().join("second")];
    fixtures::write_of("one", &paths[0], &fixtures::story("worker"));
    fixtures::write_of("two", &paths[1], &fixtures::story("other"));
    let client = Client::open(&paths, &dir.cache());
    client.trace();
    (client, paths)
}

fn shift(client: &Client, trace: usize, offset: i64) {
    let answer = client.post("/api/offset", &format!("{{\"trace\":{trace},\"offset_ns\":{offset}}}"));
    assert_eq!(answer.status, 200);
}

fn rows(answer: &Value) -> Vec<(i64, i64, String)> {
    let row = |row: &Value| {
        (row["time"].as_i64().unwrap(), row["trace"].as_i64().unwrap(), row["name"].as_str().unwrap().into())
    };
    answer["rows"].as_array().unwrap().iter().map(row).collect()
}

#[test]
fn the_table_has_them_in_the_order_in_which_they_are_shown() {
    let dir = TestDir::new();
    let (client, _) = two(&dir);
    shift(&client, 1, EARLIER);
    let trace = client.trace();
    assert_eq!((&trace["begin"], &trace["end"]), (&EARLIER.into(), &4100.into()));
    let all = client.get("/api/events?from=-20000&to=20000&count=100");
    let found = rows(&all);
    assert_eq!((found.len(), &all["total"]), (18, &18.into()));
    assert!(found.is_sorted_by_key(|row| row.0), "{found:?}");
    assert!(found[..9].iter().all(|row| row.1 == 1) && found[9..].iter().all(|row| row.1 == 0), "{found:?}");
    assert_eq!((found[0].0, found[9].0), (EARLIER, 0));
    let numbers: Vec<i64> =
        all["rows"].as_array().unwrap().iter().map(|row| row["row"].as_i64().unwrap()).collect();
    assert_eq!(numbers, (0..18).collect::<Vec<_>>());
    // A window, and rows in the middle of it.
    let window = client.get(&format!("/api/events?from={}&to=-1&row=2&count=3", EARLIER));
    assert_eq!((&window["total"], rows(&window)), (&9.into(), found[2..5].to_vec()));
    // The same by a filter, which counts otherwise.
    let chosen = client.get("/api/events?from=-20000&to=20000&count=100&e=sched_switch");
    let switches: Vec<_> = found.iter().filter(|row| row.2 == "sched_switch").cloned().collect();
    assert_eq!(rows(&chosen), switches);
    assert_eq!(client.get("/api/events?from=-20000&to=-1&count=0&filter=fd==3")["total"], 1);
    // And back again.
    shift(&client, 1, 0);
    let back = client.get("/api/events?from=-20000&to=20000&count=100");
    assert!(rows(&back).is_sorted_by_key(|row| row.0) && back["total"] == 18 && rows(&back)[0].0 == 0);
}

#[test]
fn rows_of_many_parts_are_found_too() {
    let dir = TestDir::new();
    let paths = vec![dir.cache().join("first"), dir.cache().join("second")];
    fixtures::write_of("one", &paths[0], &fixtures::crowd(90_000));
    fixtures::write_of("two", &paths[1], &fixtures::crowd(90_000));
    let client = Client::open(&paths, &dir.cache());
    client.trace();
    // The second one's events stand between those of the first.
    shift(&client, 1, 20_000_500);
    for row in [0, 19_999, 20_000, 70_001, 150_000, 179_990] {
        let some = client.get(&format!("/api/events?from=0&to=1000000000&row={row}&count=5"));
        assert_eq!(some["total"], 180_000);
        // Until the first event of the second trace all are of the first, then they take turns.
        let expected = |row: i64| match row {
            ..20_000 => row * 1000,
            20_000..160_000 if row % 2 == 0 => 20_000_000 + (row - 20_000) / 2 * 1000,
            20_000..160_000 => 20_000_500 + (row - 20_001) / 2 * 1000,
            _ => 20_000_500 + (row - 90_000) * 1000,
        };
        let found: Vec<i64> = rows(&some).into_iter().map(|row| row.0).collect();
        assert_eq!(found, (row..row + 5).map(expected).collect::<Vec<_>>(), "from row {row}");
    }
    // Counts of an area are sums of what each trace has there.
    let counts = client.get("/api/select?from=10000000&to=29999999")["events"].clone();
    assert_eq!(counts, serde_json::json!([["sched_switch", 30_000]]));
}

#[test]
fn search_counts_and_threads_know_of_it() {
    let dir = TestDir::new();
    let (client, _) = two(&dir);
    shift(&client, 1, EARLIER);
    let first = client.get("/api/search?q=sched_waking&from=-20000&dir=1");
    assert_eq!((&first["time"], &first["trace"]), (&EARLIER.into(), &1.into()));
    let last = client.get("/api/search?q=sched_waking&from=0&dir=-1");
    assert_eq!((&last["time"], &last["trace"]), (&(EARLIER + 4000).into(), &1.into()));
    let next = client.get(&format!("/api/search?q=sched_waking&from={}&dir=1", EARLIER + 4000));
    assert_eq!((&next["time"], &next["trace"], &next["row"]), (&0.into(), &0.into(), &9.into()));
    let counts = client.get("/api/select?from=-20000&to=-1")["events"].clone();
    assert_eq!(counts, client.get("/api/select?from=0&to=9999")["events"]);
    assert_eq!(counts.as_array().unwrap().iter().map(|count| count[1].as_i64().unwrap()).sum::<i64>(), 9);
    // What ran where an event happened is known of the trace that is shifted, too.
    let of = |from: i64| {
        let found = client.get(&format!("/api/search?q=syscall_entry_read&from={from}&dir=1"));
        found["tid"].clone()
    };
    assert_eq!((of(-20_000), of(0)), (7.into(), 7.into()));
}

#[test]
fn boxes_and_arrows_are_drawn_before_the_others_begin() {
    let dir = TestDir::new();
    let (client, _) = two(&dir);
    let lanes = client.lanes("thread");
    let before: Vec<_> = lanes.iter().map(|lane| client.boxes(*lane, (0, 4100), 4100)).collect();
    let arrows = client.get("/api/arrows?from=0&to=4100&ids=")["arrows"].clone();
    shift(&client, 1, EARLIER);
    let moved: Vec<_> =
        lanes.iter().map(|lane| client.boxes(*lane, (EARLIER, EARLIER + 4100), 4100)).collect();
    assert_eq!(moved.iter().filter(|boxes| !boxes.is_empty()).count(), 2, "of both threads of one trace");
    let shifted = moved.iter().zip(&before).filter(|(moved, _)| !moved.is_empty());
    for (moved, before) in shifted {
        let back: Vec<_> =
            moved.iter().map(|it| (it.0 - EARLIER, it.1 - EARLIER, it.2, it.3.clone(), it.4)).collect();
        assert_eq!(&back, before);
    }
    let elsewhere = client.get(&format!("/api/arrows?from={EARLIER}&to=-1&ids="))["arrows"].clone();
    assert_eq!(
        2 * elsewhere.as_array().unwrap().len(),
        arrows.as_array().unwrap().len(),
        "of one trace of two"
    );
    assert!(elsewhere.as_array().unwrap().chunks(5).all(|arrow| arrow[0].as_i64() < Some(0)), "{elsewhere}");
}

#[test]
fn what_is_exported_is_what_was_shown() {
    let dir = TestDir::new();
    let (client, paths) = two(&dir);
    shift(&client, 1, EARLIER);
    let csv = client.ask("/api/export?format=csv&from=-20000&to=-1");
    let text = String::from_utf8(csv.body).unwrap();
    assert_eq!(text.lines().count(), 1 + 9, "{text}");
    let written = client.post("/api/export?format=ctf&from=-20000&to=500", "").json();
    assert_eq!(written["events"], 9 + 2);
    let folder = PathBuf::from(written["path"].as_str().unwrap());
    let part = Client::open(&[folder], &dir.cache().join("other"));
    let trace = part.trace();
    assert_eq!((&trace["events"], &trace["begin"]), (&11.into(), &0.into()));
    let found = rows(&part.get("/api/events?from=0&to=20000&count=100"));
    // The same distances, without a shift: its clock is another one.
    assert_eq!(found[9].0 - found[0].0, -EARLIER);
    assert!(fs::metadata(&paths[1]).is_ok());
}

#[test]
fn who_opens_the_same_traces_again_finds_them_shifted() {
    let dir = TestDir::new();
    let (client, paths) = two(&dir);
    shift(&client, 1, EARLIER);
    let offsets = |client: &Client| -> Vec<Value> {
        let trace = client.trace();
        trace["traces"].as_array().unwrap().iter().map(|trace| trace["offset"].clone()).collect()
    };
    assert_eq!(offsets(&Client::open(&paths, &dir.cache())), [0, EARLIER]);
    // Of others, nothing is known.
    let others = [paths[1].clone(), paths[0].clone()];
    assert_eq!(offsets(&Client::open(&others, &dir.cache())), [0, 0]);
    shift(&client, 1, 0);
    assert_eq!(offsets(&Client::open(&paths, &dir.cache())), [0, 0]);
}
