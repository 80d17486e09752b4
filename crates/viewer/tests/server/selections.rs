//! Answers about areas, tables and searches.

use serde_json::Value;

use crate::client::{Client, TestDir};
use crate::fixtures::{self, Fields, TestEvent};

/// Returns the number of events of all classes.
fn events(measured: &Value) -> i64 {
    measured["events"].as_array().unwrap().iter().map(|one| one[1].as_i64().unwrap()).sum()
}

fn count(measured: &Value, what: &str) -> usize {
    measured[what].as_array().unwrap().len()
}

/// The number of the first track of which something is so.
fn track(client: &Client, is_it: impl Fn(&Value) -> bool) -> i64 {
    let tracks = client.get("/api/tracks");
    tracks["tracks"].as_array().unwrap().iter().find(|track| is_it(track)).unwrap()["id"].as_i64().unwrap()
}

#[test]
fn an_area_of_a_trace_that_is_being_read_is_of_what_is_known() {
    let dir = TestDir::new();
    // An event each microsecond, in more parts than one.
    fixtures::turns(&dir.trace(), 200_000);
    let end = 199_999_000;
    let client = dir.open();
    loop {
        let measured = client.get(&format!("/api/select?from=0&to={end}"));
        let known = measured["known"].as_i64().expect("up to when all is known").min(end);
        assert_eq!(events(&measured), known / 1000 + 1, "as many as there are up to {known}, and no others");
        let behind = client.get(&format!("/api/select?from={end}&to={end}"));
        let is_known = behind["known"].as_i64().unwrap() >= end;
        assert_eq!(events(&behind), i64::from(is_known));
        assert!(client.get(&format!("/api/flame?from=0&to={end}"))["known"].is_i64());
        if known == end {
            break;
        }
    }
    client.trace();
    let measured = client.get(&format!("/api/select?from=0&to={end}"));
    assert!(measured["known"].as_i64().unwrap() > end);
    let busy: i64 =
        measured["cpus"].as_array().unwrap().iter().map(|cpu| cpu["busy"].as_i64().unwrap()).sum();
    assert_eq!(busy, end, "it was never idle");
}

#[test]
fn an_area_of_some_tracks_has_all_that_stands_below_them_and_nothing_else() {
    let dir = TestDir::new();
    fixtures::write(&dir.trace(), &fixtures::story("worker"));
    let client = dir.open();
    client.trace();
    let of = |tracks: &str| client.get(&format!("/api/select?from=0&to=4100{tracks}"));
    let counts = |measured: &Value| {
        let losses = measured["losses"]["events"].as_i64().unwrap();
        (count(measured, "threads"), count(measured, "cpus"), count(measured, "syscalls"), losses)
    };
    assert_eq!(counts(&of("")), (2, 1, 1, 12));
    let threads =
        track(&client, |track| track["name"].as_str().is_some_and(|name| name.starts_with("Threads")));
    assert_eq!(counts(&of(&format!("&tracks={threads}"))), (2, 0, 1, 0), "a folded one has all its threads");
    let late = track(&client, |track| track["tid"] == 8);
    assert_eq!(counts(&of(&format!("&tracks={late}"))), (1, 0, 0, 0));
    let cpu = track(&client, |track| track["kind"] == "cpu");
    assert_eq!(counts(&of(&format!("&tracks={cpu}"))), (0, 1, 0, 0));
    let channel = track(&client, |track| track["kind"] == "channel");
    assert_eq!(counts(&of(&format!("&tracks={channel}"))), (0, 0, 0, 12), "losses stand in a channel");
    assert_eq!(counts(&of(&format!("&tracks={late},{channel}"))), (1, 0, 0, 12));
    assert_eq!(counts(&of("&tracks=")), (0, 0, 0, 0), "none is not all");
    assert_eq!(client.ask("/api/select?from=0&to=4100&tracks=x").status, 400);
    // Its events have to be read, and are asked for by themselves.
    assert!(of(&format!("&tracks={late}"))["events"].is_null());
}

/// Returns times and names of the events of some tracks in the table; counts and exports must have
/// the same.
fn events_of(client: &Client, tracks: &str, to: i64) -> Vec<(i64, String)> {
    let table = client.get(&format!("/api/events?from=0&to={to}&count=2000{tracks}"));
    let row = |row: &Value| (row["time"].as_i64().unwrap(), row["name"].as_str().unwrap().to_owned());
    let rows: Vec<(i64, String)> = table["rows"].as_array().unwrap().iter().map(row).collect();
    assert_eq!(table["total"], rows.len(), "{tracks}");
    assert_eq!(events(&client.get(&format!("/api/counts?from=0&to={to}{tracks}"))), rows.len() as i64);
    let csv = client.ask(&format!("/api/export?format=csv&from=0&to={to}{tracks}"));
    let text = String::from_utf8(csv.body).unwrap();
    assert_eq!(text.lines().count(), rows.len() + 1, "{tracks}: {text}");
    rows
}

#[test]
fn events_of_some_tracks_are_those_that_happen_there_or_are_about_them() {
    let dir = TestDir::new();
    fixtures::write(&dir.trace(), &fixtures::story("worker"));
    let client = dir.open();
    client.trace();
    let times = |tracks: &str| -> Vec<i64> {
        events_of(&client, &format!("&tracks={tracks}"), 9000).into_iter().map(|(time, _)| time).collect()
    };
    let worker = track(&client, |track| track["tid"] == 7);
    let late = track(&client, |track| track["tid"] == 8);
    // From its wake-up to what it does last: also the switch with which it leaves.
    assert_eq!(times(&worker.to_string()), [0, 500, 600, 700, 1700, 1900, 2000]);
    assert_eq!(times(&late.to_string()), [4000, 4100]);
    assert_eq!(times(&format!("{worker},{late}")).len(), 9);
    assert_eq!(times(""), [0; 0], "of none is not of all");
    for kind in ["cpu", "channel"] {
        let all = track(&client, |track| track["kind"] == kind);
        assert_eq!(times(&all.to_string()).len(), 9, "{kind}");
    }
    // Only what is asked for of it.
    let entries = client.get(&format!("/api/events?from=0&to=9000&e=syscall_*&tracks={worker}"));
    assert_eq!(entries["total"], 2);
    let filtered = client.get(&format!("/api/events?from=600&to=9000&filter=fd%3D%3D3&tracks={worker}"));
    assert_eq!((&filtered["total"], &filtered["rows"][0]["time"]), (&1.into(), &600.into()));
    assert_eq!(client.get(&format!("/api/events?from=0&to=9000&filter=fd%3D%3D3&tracks={late}"))["total"], 0);
    // What ran where is known by the trace's own clock, whatever it is shifted by.
    assert_eq!(client.post("/api/offset", r#"{"trace":0,"offset_ns":50}"#).status, 200);
    assert_eq!(times(&worker.to_string()), [50, 550, 650, 750, 1750, 1950, 2050]);
    assert_eq!(client.ask("/api/events?from=0&to=9&tracks=x").status, 400);
    assert_eq!(client.ask("/api/counts?from=0&to=9&tracks=x").status, 400);
}

#[test]
fn a_part_of_a_trace_has_the_events_of_the_chosen_tracks_alone() {
    let dir = TestDir::new();
    fixtures::write(&dir.trace(), &fixtures::story("worker"));
    let client = dir.open();
    client.trace();
    let late = track(&client, |track| track["tid"] == 8);
    let written = client.post(&format!("/api/export?format=ctf&from=0&to=9000&tracks={late}"), "").json();
    assert_eq!(written["events"], 2);
    let part = Client::open(&[written["path"].as_str().unwrap().into()], &dir.cache());
    part.trace();
    let all = part.get("/api/events?from=-9000&to=9000");
    assert_eq!(all["total"], 2);
    assert_eq!(all["rows"][0]["name"], "sched_waking");
}

#[test]
fn what_is_saved_says_how_far_it_is_and_how_large() {
    let dir = TestDir::new();
    fixtures::write(&dir.trace(), &fixtures::story("worker"));
    let client = dir.open();
    client.trace();
    let unknown = client.get("/api/exporting?id=nobody");
    assert_eq!(unknown, serde_json::json!({ "share": 0.0, "bytes": null, "failed": false }));
    let csv = client.ask("/api/export?format=csv&from=600&to=9000&id=table");
    let progress = client.get("/api/exporting?id=table");
    assert_eq!((&progress["share"], &progress["bytes"]), (&1.0.into(), &csv.body.len().into()));
    let written = client.post("/api/export?format=ctf&from=0&to=9000&id=trace", "").json();
    assert!(written["bytes"].as_u64().is_some_and(|bytes| bytes > 200), "{written}");
    assert_eq!(client.get("/api/exporting?id=trace")["share"], 1.0);
    assert_eq!(client.post("/api/export?format=exe&from=0&to=9000&id=wrong", "").status, 400);
    assert_eq!(client.get("/api/exporting?id=wrong")["failed"], true);
    // Of some tracks, all events are looked at.
    let late = track(&client, |track| track["tid"] == 8);
    client.ask(&format!("/api/export?format=csv&from=0&to=9000&id=late&tracks={late}"));
    assert_eq!(client.get("/api/exporting?id=late")["share"], 1.0);
}

#[test]
fn a_search_finds_contexts_and_the_events_of_threads_by_their_names() {
    let dir = TestDir::new();
    fixtures::write(&dir.trace(), &fixtures::story("worker"));
    let client = dir.open();
    client.trace();
    let next = |client: &Client, text: &str, from: i64| {
        client.get(&format!("/api/search?from={from}&q={text}"))["time"].clone()
    };
    // Neither the system call nor its end has a name in it.
    assert_eq!(next(&client, "WORK", 500), 600);
    assert_eq!(next(&client, "work", 1900), 2000);
    assert_eq!(next(&client, "nobody", -1), Value::Null);
    let dir = TestDir::new();
    fixtures::queue(&dir.trace(), &[(1000, 5), (2000, 6)], 0);
    let client = dir.open();
    client.trace();
    assert_eq!(next(&client, "vtid%20%3D%207", 0), 1000);
}

#[test]
fn threads_that_take_turns_have_the_events_of_their_turns() {
    let dir = TestDir::new();
    // Several parts, with a switch between two threads in each microsecond.
    fixtures::turns(&dir.trace(), 60_000);
    let client = dir.open();
    client.trace();
    let threads = client.get("/api/tracks");
    let threads = threads["tracks"].as_array().unwrap().iter().filter(|track| track["kind"] == "thread");
    let mut sum = 0;
    let ids: Vec<String> = threads.map(|track| track["id"].to_string()).collect();
    for id in &ids {
        let counted = client.get(&format!("/api/counts?from=0&to=60000000&patience=10000&tracks={id}"));
        sum += events(&counted);
    }
    assert!(ids.len() > 10);
    // Each switch belongs to two threads, except from a thread to itself, and the first, from idle.
    let all = client.get(&format!("/api/counts?from=0&to=60000000&patience=10000&tracks={}", ids.join(",")));
    assert_eq!(events(&all), 60_000);
    let to_itself =
        (1..60_000u64).filter(|number| thread_of(*number) == thread_of(number - 1)).count() as i64;
    assert_eq!(sum, 2 * 60_000 - 1 - to_itself);
    // Piece by piece it is the same.
    let mut pieces = 0;
    loop {
        let counted = client.get(&format!("/api/counts?from=0&to=60000000&patience=0&tracks={}", ids[0]));
        pieces += 1;
        if counted["continue"] == false {
            let whole =
                client.get(&format!("/api/counts?from=0&to=60000000&patience=10000&tracks={}", ids[0]));
            assert_eq!(counted["events"], whole["events"]);
            break;
        }
        assert!(pieces < 100, "it never ends: {counted}");
    }
    assert!(pieces > 1);
}

/// The thread to which a switch leads in [`fixtures::turns`].
fn thread_of(number: u64) -> u64 {
    1 + ((number * 2_654_435_761) >> 7) % 50
}

#[test]
fn spans_of_some_tracks_are_those_below_them() {
    let dir = TestDir::new();
    fixtures::callbacks(&dir.trace(), 4000);
    let client = dir.open();
    client.trace();
    let nodes = |tracks: &str| count(&client.get(&format!("/api/flame?from=0&to=4000000{tracks}")), "nodes");
    assert!(nodes("") > 0);
    let channel = track(&client, |track| track["kind"] == "channel");
    assert_eq!(nodes(&format!("&tracks={channel}")), 0);
    assert_eq!(nodes("&tracks="), 0);
    let thread = track(&client, |track| track["tid"] == 7);
    assert_eq!(nodes(&format!("&tracks={thread}")), nodes(""));
}

#[test]
fn rows_that_a_filter_takes_come_piece_by_piece_also_when_they_were_counted() {
    let dir = TestDir::new();
    let mut stream = Vec::new();
    // Each packet is larger than a part, and has two of the events that are looked for.
    for packet in 0..4u64 {
        let mut made: Vec<TestEvent> = (0..600)
            .map(|number| TestEvent(packet * 1_000_000 + number, Fields::Waking("x".repeat(4000), 7)))
            .collect();
        made.extend(
            (0..2).map(|number| TestEvent(packet * 1_000_000 + 700 + number, Fields::Entry(packet as i32))),
        );
        stream.extend(fixtures::packet(&made, 0));
    }
    fixtures::write(&dir.trace(), &stream);
    let client = dir.open();
    client.trace();
    let ask = |row: usize, timeout: &str| {
        client.get(&format!("/api/events?from=0&to=9000000&e=syscall_entry_read&row={row}&count=50{timeout}"))
    };
    // All of them, by repeated requests for the rest.
    let all = |timeout: &str| {
        let (mut found, mut pieces) = (Vec::new(), 0);
        loop {
            let answer = ask(found.len(), timeout);
            found.extend(answer["rows"].as_array().unwrap().iter().map(|row| row["time"].as_i64().unwrap()));
            pieces += 1;
            if answer.get("continue").is_none() {
                assert_eq!(answer["total"], found.len());
                return (found, pieces);
            }
            assert!(pieces < 100, "it never ends: {answer}");
        }
    };
    let (found, pieces) = all("&patience=0");
    assert_eq!(found.len(), 8);
    assert!(found.is_sorted() && pieces > 1, "{found:?} in {pieces}");
    // Now it is known how many each part has, and still no answer reads more than it has time for.
    let first = ask(0, "&patience=0");
    assert_eq!((&first["total"], &first["continue"]), (&8.into(), &true.into()));
    assert!(count(&first, "rows") < 8);
    assert_eq!(all("&patience=0").0, found);
    assert_eq!(all("").0, found);
}

#[test]
fn an_invalid_condition_is_searched_as_text_with_a_message() {
    let dir = TestDir::new();
    fixtures::write(&dir.trace(), &fixtures::story("vector<int>"));
    let client = dir.open();
    client.trace();
    let search = |text: &str| client.get(&format!("/api/search?from=-1&q={text}"));
    assert_eq!(search("fd%3D%3D3")["name"], "syscall_entry_read");
    for (wrong, line) in [
        ("nothing_has_this%3D%3D3", "no event has `nothing_has_this`"),
        ("nothing_has_this%3C3", "no event has `nothing_has_this`"),
        ("fd%3D%3D", ""),
        ("fd%3D%3D3%20%26%26", ""),
    ] {
        let answer = search(wrong);
        let bad = answer["bad"].as_str().unwrap_or_else(|| panic!("{wrong}: {answer}"));
        assert!(bad.contains(line) && !bad.is_empty() && !bad.contains('\n'), "{wrong}: {bad}");
    }
    // A name with a sign in it is none.
    assert_eq!(search("vector%3Cint%3E")["name"], "sched_waking");
    assert_eq!(search("operator%3C")["bad"], Value::Null);
}

#[test]
fn names_that_look_like_conditions_are_found() {
    let dir = TestDir::new();
    fixtures::write(&dir.trace(), &fixtures::story("wk<i>3"));
    let client = dir.open();
    client.trace();
    let search = |text: &str| client.get(&format!("/api/search?from=-1&q={text}"));
    let found = search("wk%3Ci%3E3");
    assert_eq!(found["name"], "sched_waking", "{found}");
    let line = found["bad"].as_str().unwrap_or_else(|| panic!("{found}"));
    assert!(line.contains("no event has `wk`") && line.ends_with("looked for as text"), "{line}");

    let dir = TestDir::new();
    fixtures::write(&dir.trace(), &fixtures::story("operator=="));
    let client = dir.open();
    client.trace();
    assert_eq!(client.get("/api/search?from=-1&q=operator%3D%3D")["name"], "sched_waking");
}
