//! Traces of other tracers, which are not in the repository: without them these tests are skipped.

use serde_json::Value;

use crate::client::{Client, TestDir};

fn sum(list: &Value, name: &str) -> i64 {
    list.as_array().unwrap().iter().map(|it| it[name].as_i64().unwrap()).sum()
}

/// Every lane has boxes of which there are not too many, in order, at each zoom.
fn assert_drawable(client: &Client, end: i64) {
    for kind in ["cpu", "thread", "syscall", "softirq", "span", "marks"] {
        for lane in client.lanes(kind).into_iter().take(20) {
            for (from, to) in [(0, end), (end / 3, end / 2), (end / 2, end / 2 + 1000)] {
                let boxes = client.boxes(lane, (from, to), 100);
                assert!(boxes.len() <= 203, "{kind} {lane}: {}", boxes.len());
                let in_order = boxes.windows(2).all(|two| two[0].0 <= two[1].0);
                assert!(in_order, "{kind} {lane}");
                assert!(boxes.iter().all(|it| it.0 <= it.1 && it.0 <= to && it.1 >= from), "{kind} {lane}");
            }
        }
    }
}

// The expected numbers are those of `tompion-analysis`, checked against babeltrace2's text.

#[test]
fn a_kernel_trace_with_many_short_threads() {
    let Some(dir) = TestDir::corpus("many-threads") else { return };
    let client = dir.open();
    let trace = client.trace();
    assert_eq!(trace["events"], 240_644);
    assert_eq!(trace["base"], "1457113582794565804");
    let end = trace["end"].as_i64().unwrap();
    let all = client.get(&format!("/api/select?from=0&to={end}"));
    assert_eq!(all["partial"], false);
    assert_eq!(sum(&all["cpus"], "busy"), 1_874_247_076);
    assert_eq!(client.lanes("cpu").len(), 8);
    let clone = all["syscalls"].as_array().unwrap().iter().find(|it| it["name"] == "clone").unwrap();
    assert_eq!(clone["count"], 8003);
    let longest = &clone["longest"];
    let duration = longest["end"].as_i64().unwrap() - longest["begin"].as_i64().unwrap();
    assert_eq!(clone["max"], duration);
    assert!(!all["waits"].as_array().unwrap().is_empty());
    let switches = all["events"].as_array().unwrap().iter().find(|it| it[0] == "sched_switch").unwrap();
    assert_eq!(switches[1], 28_325);
    assert_drawable(&client, end);
    // Lanes at full zoom have as many intervals as at the finest one.
    let lane = client.lanes("cpu")[0];
    let coarse: i64 = client.boxes(lane, (0, end), 50).iter().map(|it| it.4).sum();
    let fine: i64 = client.boxes(lane, (0, end), 16_000).iter().map(|it| it.4).sum();
    assert_eq!(coarse, fine);
    // It does not tell threads that wake from interrupts within them.
    assert!(client.get("/api/arrows?from=0&to=10000000&width=100")["arrows"].as_array().unwrap().is_empty());
}

#[test]
fn events_of_any_row_and_any_filter() {
    let Some(dir) = TestDir::corpus("many-threads") else { return };
    let client = dir.open();
    let trace = client.trace();
    let end = trace["end"].as_i64().unwrap();
    let first = client.get(&format!("/api/events?from=0&to={end}&row=0&count=3"));
    assert_eq!((&first["total"], &first["rows"][2]["name"]), (&240_644.into(), &"sched_switch".into()));
    let middle = client.get(&format!("/api/events?from=0&to={end}&row=120000&count=5"));
    let rows: Vec<i64> =
        middle["rows"].as_array().unwrap().iter().map(|row| row["row"].as_i64().unwrap()).collect();
    assert_eq!(rows, [120_000, 120_001, 120_002, 120_003, 120_004]);
    // The rows from a time on are the same ones.
    let time = middle["rows"][0]["time"].as_i64().unwrap();
    let again = client.get(&format!("/api/events?from={time}&to={end}&row=0&count=1"));
    assert_eq!(again["rows"][0]["time"], time);
    let filtered = |row: i64| loop {
        let query = format!("/api/events?from=0&to={end}&row={row}&count=2&filter=prev_tid%20%3D%3D%200");
        let answer = client.get(&query);
        if answer.get("continue").is_none() {
            return answer;
        }
    };
    let total = filtered(0)["total"].as_i64().unwrap();
    assert_eq!(total, 12_990);
    assert_eq!(filtered(total - 1)["rows"].as_array().unwrap().len(), 1);
    let wrong = client.get(&format!("/api/events?from=0&to={end}&filter=prev_tid%20%3D%3D"));
    assert!(wrong["bad"].is_string(), "{wrong}");
}

#[test]
fn search_finds_the_next_and_the_one_before() {
    let Some(dir) = TestDir::corpus("many-threads") else { return };
    let client = dir.open();
    client.trace();
    let search = |query: &str, mut from: i64, dir: i64| loop {
        let answer = client.get(&format!("/api/search?q={query}&from={from}&dir={dir}"));
        match answer["continue"].as_i64() {
            Some(on) => from = on,
            None => return answer,
        }
    };
    let first = search("execve", -1, 1);
    let second = search("execve", first["time"].as_i64().unwrap(), 1);
    assert!(second["time"].as_i64() > first["time"].as_i64(), "{first} {second}");
    let back = search("execve", second["time"].as_i64().unwrap(), -1);
    assert!(back["time"].as_i64() < second["time"].as_i64(), "{back}");
    assert!(back["time"].as_i64() >= first["time"].as_i64(), "{back}");
    assert_eq!(search("nothing%20of%20the%20kind", 0, 1)["none"], true);
}

#[test]
fn a_box_tells_what_it_is() {
    let Some(dir) = TestDir::corpus("many-threads") else { return };
    let client = dir.open();
    let end = client.trace()["end"].as_i64().unwrap();
    let all = client.get(&format!("/api/select?from=0&to={end}"));
    let wait = &all["waits"][0];
    let (lane, begin) = (wait["lane"].as_i64().unwrap(), wait["begin"].as_i64().unwrap());
    let at = client.get(&format!("/api/at?lane={lane}&time={begin}"));
    assert_eq!((&at["begin"], &at["end"]), (&wait["begin"], &wait["end"]));
    for why in [&at["why"], &wait["why"]] {
        assert!(why.as_str().unwrap().starts_with("preempted"), "{why}");
    }
    // The threads that ran meanwhile ran no longer than it waited.
    let length = at["end"].as_i64().unwrap() - at["begin"].as_i64().unwrap();
    let ran: Vec<i64> = at["ran"].as_array().unwrap().iter().map(|it| it["ns"].as_i64().unwrap()).collect();
    assert!(!ran.is_empty() && ran.iter().sum::<i64>() <= length && ran.is_sorted_by(|a, b| a >= b), "{at}");
    assert_eq!(at["culprit"]["tid"], at["ran"][0]["tid"]);
    assert_eq!(at["thread"]["tid"], wait["tid"]);
    assert!(at["fields"].as_array().unwrap().iter().any(|field| field[0] == "event"), "{at}");
    let next = client.get(&format!("/api/step?lane={lane}&time={begin}&dir=1"));
    assert_eq!(next["begin"], at["after"]["begin"]);
    let before = client.get(&format!("/api/step?lane={lane}&time={begin}&dir=-1"));
    assert_eq!(before["begin"], at["before"]["begin"]);
}

#[test]
fn functions_have_a_flame_graph() {
    let Some(dir) = TestDir::corpus("glxgears-cyg-profile") else { return };
    let client = dir.open();
    let end = client.trace()["end"].as_i64().unwrap();
    let flame = client.get(&format!("/api/flame?from=0&to={end}"));
    let nodes = flame["nodes"].as_array().unwrap();
    assert!(nodes.iter().any(|node| node["depth"] == 2), "{nodes:?}");
    for node in nodes {
        assert!(node["self"].as_i64() <= node["total"].as_i64(), "{node}");
        if let Ok(parent) = usize::try_from(node["parent"].as_i64().unwrap()) {
            assert!(nodes[parent]["total"].as_i64() >= node["total"].as_i64(), "{node}");
        }
    }
    assert_drawable(&client, end);
}

#[test]
fn programs_without_a_scheduler_and_old_tracers() {
    for (name, events) in [("ros2", None), ("bug446190", None::<i64>)] {
        let Some(dir) = TestDir::corpus(name) else { continue };
        let client = dir.open();
        let trace = client.trace();
        let (end, count) = (trace["end"].as_i64().unwrap(), trace["events"].as_i64().unwrap());
        assert!(events.is_none_or(|events| events == count) && count > 1000, "{name}: {count}");
        let lanes = client.lanes("density");
        let ids: Vec<String> = lanes.iter().map(ToString::to_string).collect();
        let answer = client.drawn(&format!("ids={}&from=0&to={end}&width=200", ids.join(",")));
        let bins = answer["lanes"].as_array().unwrap().iter().flat_map(|lane| {
            lane["bins"].as_array().unwrap().chunks(4).map(|bin| bin[1].as_i64().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(bins.sum::<i64>(), count, "{name}: each event is in one bin");
        assert_drawable(&client, end);
        let rows = client.get(&format!("/api/events?from=0&to={end}&row={}&count=10", count - 1));
        assert_eq!(rows["rows"].as_array().unwrap().len(), 1, "{name}");
    }
}

/// Adds up the complete system calls of an old LTTng trace from its events alone: number and time.
fn calls_of(trace: &std::path::Path) -> (u64, i64) {
    let mut traces = tompion_reader::open(&[trace.into()]).unwrap();
    let mut begun = std::collections::HashMap::new();
    let (mut count, mut total) = (0, 0);
    // The trace has no thread beside each event: what runs on a CPU is known from its switches.
    let mut running = std::collections::HashMap::new();
    while let Some(event) = traces.next_event() {
        let time = event.timestamp().unwrap();
        let field = |name: &str| event.field(name).and_then(|value| value.as_integer());
        let cpu = field("cpu_id").unwrap();
        let name = event.name().to_owned();
        if name == "sched_switch" {
            running.insert(cpu, field("next_tid").unwrap());
            continue;
        }
        let Some(thread) = running.get(&cpu).copied() else { continue };
        // Idle threads share a number.
        let thread = if thread == 0 { -1 - cpu } else { thread };
        if name == "exit_syscall" {
            if let Some(since) = begun.remove(&thread) {
                (count, total) = (count + 1, total + time - since);
            }
        } else if name.starts_with("sys_") || name.starts_with("compat_sys_") {
            begun.insert(thread, time);
        }
    }
    (count, total)
}

#[test]
fn calls_that_do_not_end_are_in_no_percentile_and_no_total() {
    let Some(dir) = TestDir::corpus("bug446190") else { return };
    let expected = calls_of(&dir.trace());
    let client = dir.open();
    let end = client.trace()["end"].as_i64().unwrap();
    let found = client.get(&format!("/api/select?from=0&to={end}&most=1000"));
    let sum = |name: &str| {
        let calls = found["syscalls"].as_array().unwrap().iter();
        calls.map(|call| call[name].as_i64().unwrap_or(0)).sum::<i64>()
    };
    assert_eq!((sum("count") as u64, sum("total")), expected);
    assert!(sum("unfinished") > 0);
}

#[test]
fn several_traces_on_one_axis_and_one_of_them_shifted() {
    let (Some(one), Some(other)) = (TestDir::corpus("ros2"), TestDir::corpus("glxgears-cyg-profile")) else {
        return;
    };
    let client = Client::open(&[one.trace(), other.trace()], &one.cache());
    let trace = client.trace();
    let traces = trace["traces"].as_array().unwrap();
    assert!(traces.len() >= 2);
    let id = traces.len() - 1;
    let begin = traces[id]["begin"].as_i64().unwrap();
    assert_eq!(client.post("/api/offset", &format!("{{\"trace\":{id},\"offset_ns\":-5000}}")).status, 200);
    let shifted = client.get("/api/trace");
    assert_eq!(shifted["traces"][id]["begin"], begin - 5000);
    assert_eq!(shifted["traces"][id]["offset"], -5000);
    assert_eq!(client.post("/api/offset", "{\"trace\":99,\"offset_ns\":1}").status, 400);
}

#[test]
fn a_part_becomes_a_table_or_a_trace() {
    let Some(dir) = TestDir::corpus("glxgears-cyg-profile") else { return };
    let client = dir.open();
    let end = client.trace()["end"].as_i64().unwrap();
    let csv = client.ask(&format!("/api/export?format=csv&from=0&to={}", end / 2));
    assert_eq!(csv.status, 200);
    assert!(csv.header("content-disposition").unwrap().starts_with("attachment"));
    let lines = String::from_utf8_lossy(&csv.body).lines().count();
    let total = client.get(&format!("/api/events?from=0&to={}&count=1", end / 2))["total"].as_u64().unwrap();
    assert_eq!(lines as u64, total + 1);
    let ctf = client.post(&format!("/api/export?format=ctf&from=0&to={}", end / 2), "").json();
    let mut part = tompion_reader::open(&[ctf["path"].as_str().unwrap().into()]).unwrap();
    let events = std::iter::from_fn(|| part.next_event().map(drop)).count();
    assert_eq!(events as u64, total);
    assert_eq!(client.ask("/api/export?format=exe&from=0&to=1").status, 400);
}
