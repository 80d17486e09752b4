//! A small recording in Tompion's own format, read in every output format, intact and corrupt.

use std::fs;
use std::path::Path;

use tompion_reader::text::{ClockFormat, PrintOptions, TimeFormat};
use tompion_reader::{Error, LossKind, Selection, TraceSet, json, open, stat, text};
use tompion_testing::{Random, TestDir};

const METADATA: &str = r#"/* CTF 1.8 */
typealias integer { size = 8; } := u8;
typealias integer { size = 32; } := u32;
typealias integer { size = 64; } := u64;
trace { major = 1; minor = 8; byte_order = le; };
env { hostname = "box"; };
clock { name = mono; offset_s = 100; };
typealias integer { size = 64; map = clock.mono.value; } := time;
stream {
    packet.context := struct { time timestamp_begin; time timestamp_end; u64 content_size; u64 packet_size;
        u64 packet_seq_num; u64 events_discarded; u32 cpu_id; };
    event.header := struct { u8 id; time timestamp; };
    event.context := struct { integer { size = 32; signed = true; } _vpid; };
};
event { id = 0; name = "db:query"; fields := struct { u64 _rows; string _table; }; };
event { id = 1; name = "db:state"; fields := struct {
    enum : u8 { idle = 0, busy = 1 ... 9 } _state; u8 _bytes[2];
    floating_point { exp_dig = 11; mant_dig = 53; } _load; }; };
"#;

/// Folder that is removed on drop.
struct Folder(TestDir);

impl Folder {
    fn new(name: &str) -> Self {
        let path = TestDir::new(&format!("recording-{name}"));
        fs::create_dir_all(path.join("user/db-7")).unwrap();
        fs::write(path.join("user/db-7/metadata"), METADATA).unwrap();
        Self(path)
    }

    fn stream(&self, name: &str, bytes: &[u8]) {
        fs::write(self.0.join("user/db-7").join(name), bytes).unwrap();
    }

    fn open(&self) -> TraceSet {
        open(std::slice::from_ref(self.0.path())).unwrap()
    }
}

fn query(time: u64, rows: u64, table: &str) -> Vec<u8> {
    let mut bytes = vec![0];
    bytes.extend(time.to_le_bytes());
    bytes.extend(7i32.to_le_bytes());
    bytes.extend(rows.to_le_bytes());
    bytes.extend(table.as_bytes());
    bytes.push(0);
    bytes
}

fn state(time: u64, state: u8, load: f64) -> Vec<u8> {
    let mut bytes = vec![1];
    bytes.extend(time.to_le_bytes());
    bytes.extend(7i32.to_le_bytes());
    bytes.extend([state, 1, 2]);
    bytes.extend(load.to_le_bytes());
    bytes
}

/// Creates a packet from one time to another, with its number, its count of discarded events, and
/// padding.
fn packet(times: (u64, u64), sequence: u64, discarded: u64, events: &[Vec<u8>]) -> Vec<u8> {
    let events = events.concat();
    let content = 52 + events.len() as u64;
    let size = content.next_multiple_of(64);
    let mut bytes = Vec::new();
    for word in [times.0, times.1, content * 8, size * 8, sequence, discarded] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(2u32.to_le_bytes());
    bytes.extend(events);
    bytes.resize(size as usize, 0xee);
    bytes
}

/// Creates two streams. The first lost three events and, later, two packets and one more event.
fn recording(name: &str) -> Folder {
    let folder = Folder::new(name);
    let mut first = packet((10, 30), 0, 3, &[query(10, 1, "a"), query(30, 2, "b \"x\", y")]);
    first.extend(packet((50, 60), 3, 4, &[state(55, 4, 0.5)]));
    folder.stream("first", &first);
    folder.stream("second", &packet((5, 40), 0, 0, &[state(20, 77, f64::NAN), query(40, u64::MAX, "é")]));
    folder
}

fn printed(traces: &mut TraceSet) -> String {
    let time = TimeFormat { clock: ClockFormat::Seconds, utc: true, ..TimeFormat::default() };
    let mut output = Vec::new();
    text::print(traces, &PrintOptions { time, no_delta: false, ..PrintOptions::default() }, &mut output)
        .unwrap();
    String::from_utf8(output).unwrap()
}

/// Returns the losses that readers find between two times in nanoseconds.
fn losses_between(folder: &Folder, from: Option<i64>, to: Option<i64>) -> Vec<(LossKind, u64)> {
    let mut traces = folder.open();
    let epoch = 100_000_000_000;
    let time = |time: Option<i64>| time.map(|time| time + epoch);
    traces.select(Selection { from: time(from), to: time(to), ..Selection::default() });
    while traces.next_event().is_some() {}
    traces.losses().iter().map(|loss| (loss.kind, loss.count)).collect()
}

#[test]
fn losses_outside_the_selected_times_are_not_reported() {
    let folder = recording("outside");
    let (early, packets, late) = ((LossKind::Events, 3), (LossKind::Packets, 2), (LossKind::Events, 1));
    assert_eq!(losses_between(&folder, None, None), [early, packets, late]);
    // Three events were lost up to 30, two packets between 30 and 50, and an event up to 60.
    assert_eq!(losses_between(&folder, Some(31), None), [packets, late]);
    assert_eq!(losses_between(&folder, Some(51), None), [late]);
    assert_eq!(losses_between(&folder, Some(61), None), []);
    assert_eq!(losses_between(&folder, None, Some(29)), [early]);
    assert_eq!(losses_between(&folder, None, Some(9)), []);
}

#[test]
fn counters_that_cannot_be_are_unknown_losses() {
    for discarded in [u64::MAX, 1 << 40] {
        let folder = Folder::new(&format!("impossible-{discarded}"));
        let mut stream = packet((10, 30), 0, 3, &[query(10, 1, "a")]);
        stream.extend(packet((50, 60), 1, discarded, &[query(55, 2, "b")]));
        folder.stream("stream", &stream);
        let mut traces = folder.open();
        printed(&mut traces);
        let options = PrintOptions::default();
        let warnings = text::loss_warnings(&traces, &options);
        assert!(warnings[0].starts_with("Tracer discarded 3 events between"), "{warnings:?}");
        assert!(
            warnings[1].starts_with("Tracer discarded an unknown number of events between"),
            "{warnings:?}"
        );
        let summary = stat::summarize(&mut folder.open());
        assert!(summary.losses_unknown);
        assert_eq!(summary.lost.total, 3);
    }
}

#[test]
fn streams_are_merged_by_time_into_text() {
    let folder = recording("text");
    let mut traces = folder.open();
    let expected = r#"
[100.000000010] (+?.?????????) box db:query: { cpu_id = 2 }, { vpid = 7 }, { rows = 1, table = "a" }
[100.000000020] (+0.000000010) box db:state: { cpu_id = 2 }, { vpid = 7 }, { state = ( <unknown> : container = 77 ), bytes = [ [0] = 1, [1] = 2 ], load = nan }
[100.000000030] (+0.000000010) box db:query: { cpu_id = 2 }, { vpid = 7 }, { rows = 2, table = "b \"x\", y" }
[100.000000040] (+0.000000010) box db:query: { cpu_id = 2 }, { vpid = 7 }, { rows = 18446744073709551615, table = "é" }
[100.000000055] (+0.000000015) box db:state: { cpu_id = 2 }, { vpid = 7 }, { state = ( "busy" : container = 4 ), bytes = [ [0] = 1, [1] = 2 ], load = 0.5 }
"#;
    assert_eq!(printed(&mut traces), expected.trim_start());
    let losses: Vec<_> = traces.losses().iter().map(|loss| (loss.kind, loss.count)).collect();
    assert_eq!(losses, [(LossKind::Events, 3), (LossKind::Packets, 2), (LossKind::Events, 1)]);
    let options = PrintOptions {
        time: TimeFormat { utc: true, ..TimeFormat::default() },
        no_delta: false,
        ..PrintOptions::default()
    };
    let path = folder.0.join("user/db-7/first");
    assert_eq!(
        text::loss_warnings(&traces, &options)[1],
        format!(
            "Tracer discarded 2 packets between [00:01:40.000000030] and [00:01:40.000000050] in trace \
             \"box/user/db-7\" within stream \"{}\" (stream class ID: 0).",
            path.display()
        )
    );
}

#[test]
fn json_lines_have_the_same_content() {
    let folder = recording("json");
    let mut output = Vec::new();
    assert_eq!(json::print(&mut folder.open(), json::JsonOptions::default(), &mut output).unwrap(), 5);
    let lines: Vec<serde_json::Value> =
        serde_json::Deserializer::from_slice(&output).into_iter().map(Result::unwrap).collect();
    let trace = folder.0.join("user/db-7");
    let expected = serde_json::json!({
        "timestamp_ns": 100_000_000_020u64, "event": "db:state", "cpu": 2, "trace": trace,
        "context": {"vpid": 7},
        "fields": {"state": {"value": 77, "labels": []}, "bytes": [1, 2], "load": "NaN"},
    });
    assert_eq!(lines[1], expected);
    assert_eq!(lines[4]["fields"]["state"], serde_json::json!({"value": 4, "labels": ["busy"]}));
    assert_eq!(lines[3]["fields"], serde_json::json!({"rows": u64::MAX, "table": "é"}));
}

#[test]
fn comma_separated_values_are_quoted() {
    let folder = recording("csv");
    let mut output = Vec::new();
    json::print_csv(&mut folder.open(), &mut output).unwrap();
    let text = String::from_utf8(output).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "timestamp_ns,event,cpu,trace,context,fields,packet");
    let trace = folder.0.join("user/db-7");
    let context = "{\"vpid\":7}";
    let fields = r#""{""rows"":2,""table"":""b \""x\"", y""}""#;
    let quoted = format!("\"{}\"", context.replace('"', "\"\""));
    assert_eq!(lines[3], format!("100000000030,db:query,2,{},{quoted},{fields},{{}}", trace.display()));
}

#[test]
fn a_summary_without_manifest_counts_by_packets() {
    let folder = recording("stat");
    let summary = stat::summarize(&mut folder.open());
    let summary = serde_json::to_value(&summary).unwrap();
    let expected = serde_json::json!({
        "events": 5, "lost": {"total": 4, "discarded": 4}, "lost_packets": 2, "overwritten": 0,
        "begin_ns": 100_000_000_010u64, "end_ns": 100_000_000_055u64,
        "by_event": {"db:query": 3, "db:state": 2},
        "processes": [{"pid": 7, "name": ""}], "damages": [],
    });
    assert_eq!(summary, expected);
}

#[test]
fn a_summary_uses_the_recordings_manifest() {
    let folder = recording("manifest");
    let manifest = serde_json::json!({"schema": 1, "host": "box", "sources": [
        {"path": "user/db-7", "kind": "user", "pid": 7, "name": "db", "executable": "/usr/bin/db",
         "end": "killed by signal 9", "events": 5, "lost": {"full": 3, "too_large": 1, "retries": 0}, "overwritten": 12},
        {"path": "user/silent-8", "kind": "user", "pid": 8, "name": "silent", "lost": {"full": 2}},
        {"path": "../elsewhere", "kind": "user", "pid": 9, "name": "other", "lost": {"full": 100}},
    ]});
    fs::write(folder.0.join("tompion.json"), manifest.to_string()).unwrap();
    for paths in [vec![folder.0.clone()], vec![folder.0.join("user/db-7"), folder.0.join("./user")]] {
        let summary = stat::summarize(&mut open(&paths[..1]).unwrap());
        let whole = paths.len() == 1;
        assert_eq!(summary.lost.causes["full"], if whole { 5 } else { 3 });
        assert_eq!((summary.lost.total, summary.overwritten), (if whole { 6 } else { 4 }, 12));
        let first = &summary.processes[0];
        assert_eq!((first.pid, &*first.name, first.end.as_deref()), (7, "db", Some("killed by signal 9")));
        assert_eq!(summary.processes.len(), if whole { 2 } else { 1 });
    }
    fs::write(folder.0.join("tompion.json"), "{\"schema\": 2}").unwrap();
    let summary = stat::summarize(&mut folder.open());
    assert!(
        summary.corruptions[0].ends_with("tompion.json: expected schema 1, found 2"),
        "{:?}",
        summary.corruptions
    );
    assert_eq!(summary.lost.total, 4);
}

#[test]
fn children_say_how_processes_of_their_own_recording_ended() {
    let source = |end: &str| serde_json::json!({"path": "user/db-7", "kind": "user", "pid": 7, "name": "db", "end": end});
    let child = |end: &str| serde_json::json!({"pid": 7, "parent": 1, "end": end});
    let ends = |more: serde_json::Value| {
        let (folder, other) = (recording("children"), recording("without-children"));
        let mut manifest = serde_json::json!({"schema": 1, "sources": [source("ended")]});
        fs::write(other.0.join("tompion.json"), manifest.to_string()).unwrap();
        manifest.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        fs::write(folder.0.join("tompion.json"), manifest.to_string()).unwrap();
        let summary = stat::summarize(&mut open(&[folder.0.clone(), other.0.clone()]).unwrap());
        let mut ends: Vec<_> = summary.processes.into_iter().map(|process| process.end.unwrap()).collect();
        ends.sort();
        ends
    };
    let once = serde_json::json!({"children": [child("exited with 3")]});
    assert_eq!(ends(once), ["ended", "exited with 3"]);
    // Nothing says which of two, or of more than are named, it was.
    let twice = serde_json::json!({"children": [child("exited with 3"), child("exited with 4")]});
    assert_eq!(ends(twice), ["ended", "ended"]);
    let cut = serde_json::json!({"children": [child("exited with 3")], "beyond_limits": {"children": 1}});
    assert_eq!(ends(cut), ["ended", "ended"]);
    let known =
        serde_json::json!({"children": [child("exited with 3")], "sources": [source("killed by signal 9")]});
    assert_eq!(ends(known), ["ended", "killed by signal 9"]);
}

#[test]
fn a_cut_file_is_read_up_to_the_reported_cut() {
    let folder = recording("cut");
    let path = folder.0.join("user/db-7/first");
    let whole = fs::read(&path).unwrap();
    let sound = printed(&mut folder.open()).lines().count();
    for size in 0..whole.len() {
        fs::write(&path, &whole[..size]).unwrap();
        let mut traces = folder.open();
        let events = printed(&mut traces).lines().count();
        assert!((2..=sound).contains(&events), "{size}");
        let between_packets = size == 0 || size == 128;
        assert_eq!(traces.corruptions().len(), usize::from(!between_packets), "{size} bytes");
        for corruption in traces.corruptions() {
            assert_eq!(corruption.path, path);
            assert!(corruption.offset.is_some_and(|offset| offset <= size as u64), "{size}: {corruption}");
        }
    }
}

#[test]
fn events_larger_than_the_window_are_read() {
    let folder = Folder::new("large");
    let long = "x".repeat(3_000_000);
    let events: Vec<Vec<u8>> =
        (0..5).map(|time| query(time, time, if time % 2 == 0 { &long } else { "short" })).collect();
    folder.stream("one", &packet((0, 9), 0, 0, &events));
    let mut traces = folder.open();
    let mut rows = Vec::new();
    while let Some(event) = traces.next_event() {
        let table = event.field("table").unwrap().as_text().unwrap().len();
        rows.push((event.field("rows").unwrap().as_integer().unwrap(), table));
    }
    assert_eq!(traces.corruptions(), []);
    assert_eq!(rows, [(0, 3_000_000), (1, 5), (2, 3_000_000), (3, 5), (4, 3_000_000)]);
}

#[test]
fn a_path_without_a_trace_is_an_error() {
    let Err(Error::NoTrace(path)) = open(&[Path::new(env!("CARGO_MANIFEST_DIR")).join("src")]) else {
        panic!()
    };
    assert!(path.ends_with("src"));
    assert!(matches!(open(&["/no/such/folder".into()]), Err(Error::Io { .. })));
}

#[test]
fn corrupt_recordings_are_read_without_panic() {
    let folder = recording("random");
    let trace = folder.0.join("user/db-7");
    let (metadata, stream) = (trace.join("metadata"), trace.join("first"));
    let sound = [fs::read(&metadata).unwrap(), fs::read(&stream).unwrap()];
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut next = |limit: usize| random.index(limit);
    let mut opened = 0;
    for _ in 0..1500 {
        let mut bytes = sound.clone();
        for _ in 0..=next(3) {
            // Streams twice as often: most corruption of a description only makes it unreadable.
            let target = &mut bytes[next(3).min(1)];
            let place = next(target.len());
            match next(3) {
                0 => target[place] ^= 1 << next(8),
                1 => target[place] = [0, 1, 0x7f, 0xff][next(4)],
                _ => target.truncate(place.max(1)),
            }
        }
        fs::write(&metadata, &bytes[0]).unwrap();
        fs::write(&stream, &bytes[1]).unwrap();
        let Ok(mut traces) = open(std::slice::from_ref(folder.0.path())) else { continue };
        opened += 1;
        let mut output = Vec::new();
        text::print(&mut traces, &PrintOptions::default(), &mut output).unwrap();
        text::loss_warnings(&traces, &PrintOptions::default());
        json::print_csv(&mut folder.open(), &mut output).unwrap();
        stat::summarize(&mut folder.open());
        assert!(output.len() < 1 << 20);
    }
    assert!(opened > 500, "{opened}");
}

/// The last chunk has nothing but a manifest.
#[test]
fn a_chunk_without_events_says_how_a_process_ended_and_what_it_lost() {
    let folder = TestDir::new("recording-chunks");
    let chunk = |number: u32| folder.join(format!("chunk-{number:06}"));
    fs::create_dir_all(chunk(1).join("user/db-7")).unwrap();
    fs::create_dir_all(chunk(2)).unwrap();
    fs::write(chunk(1).join("user/db-7/metadata"), METADATA).unwrap();
    let stream = packet((1000, 1000), 0, 0, &[query(1000, 1, "orders")]);
    fs::write(chunk(1).join("user/db-7/stream_0"), stream).unwrap();
    fs::write(folder.join("tompion.json"), r#"{"schema": 1, "state": "complete", "in_chunks": true}"#)
        .unwrap();
    for (number, events, end, lost) in [(1, 1, "running", 0), (2, 0, "killed by SIGKILL", 5)] {
        let manifest = serde_json::json!({
            "schema": 1, "state": "complete", "chunk": { "number": number, "begin_ns": 0, "end_ns": 1 },
            "sources": [{
                "kind": "user", "path": "user/db-7", "pid": 7, "name": "db", "events": events, "end": end,
                "lost": { "full": lost },
            }],
        });
        fs::write(chunk(number).join("tompion.json"), manifest.to_string()).unwrap();
    }
    let summary = |path: &Path| {
        let summary = stat::summarize(&mut open(&[path.to_owned()]).unwrap());
        serde_json::to_value(summary).unwrap()
    };
    let whole = summary(folder.path());
    assert_eq!(whole["processes"][0]["end"], "killed by SIGKILL", "{whole:#}");
    assert_eq!(whole["lost"]["total"], 5, "{whole:#}");
    let first = summary(&chunk(1));
    assert_eq!((&first["processes"][0]["end"], &first["lost"]["total"]), (&"running".into(), &0.into()));
}
