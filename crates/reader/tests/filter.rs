//! Filters on a trace with every kind of value that names can refer to.

use std::fs;

use tompion_filter::parse;
use tompion_reader::filter::{Filter, check, missing, names};
use tompion_reader::{EventPredicate, Selection, TraceSet, open, stat};
use tompion_testing::TestDir;

const METADATA: &str = r#"/* CTF 1.8 */
typealias integer { size = 8; } := u8;
typealias integer { size = 16; byte_order = be; } := n16;
typealias integer { size = 32; } := u32;
typealias integer { size = 64; } := u64;
typealias integer { size = 8; encoding = UTF8; } := char;
trace { major = 1; minor = 8; byte_order = le; };
env { hostname = "box"; vpid = 4711; procname = "server"; };
clock { name = mono; };
typealias integer { size = 64; map = clock.mono.value; } := time;
stream {
    packet.context := struct { time timestamp_begin; time timestamp_end; u64 content_size; u64 packet_size;
        u32 cpu_id; };
    event.header := struct { u8 id; time timestamp; };
    event.context := struct { integer { size = 32; signed = true; } _vtid; };
};
event { id = 0; name = "db:query"; context := struct { u32 _app_pool_user; }; fields := struct {
    u64 _rows; string _table; char _host[4]; n16 _ports[2]; u8 __list_length; u8 _list[__list_length];
    struct { u8 x; struct { u8 y; } inner; } _nest;
    enum : u8 { idle = 0, busy = 1 ... 9, burst = 5 } _state;
    enum : u8 { one = 1, two = 2 } _tag; variant <_tag> { u8 one; string two; } _choice;
    floating_point { exp_dig = 8; mant_dig = 24; } _load; }; };
event { id = 1; name = "db:other"; fields := struct { string _rows; u8 _only_here; u8 perf_prio; }; };
"#;

struct Folder(TestDir);

impl Folder {
    fn new(name: &str) -> Self {
        let path = TestDir::new(&format!("filter-{name}"));
        fs::write(path.join("metadata"), METADATA).unwrap();
        let events =
            [query(1, 100, "orders_1", 5, None), query(2, 200, "users", 0, Some("x")), other(3, "many")];
        fs::write(path.join("stream"), packet(&events.concat())).unwrap();
        Self(path)
    }

    fn open(&self) -> TraceSet {
        open(std::slice::from_ref(self.0.path())).unwrap()
    }
}

fn head(id: u8, time: u64) -> Vec<u8> {
    let mut bytes = vec![id];
    bytes.extend(time.to_le_bytes());
    bytes.extend((70 + time as i32).to_le_bytes());
    bytes
}

fn query(time: u64, rows: u64, table: &str, state: u8, choice: Option<&str>) -> Vec<u8> {
    let mut bytes = head(0, time);
    bytes.extend((time as u32 * 10).to_le_bytes());
    bytes.extend(rows.to_le_bytes());
    bytes.extend(table.as_bytes());
    bytes.extend(b"\0ab\0\0\0\x50\x01\xbb\x03\x07\x08\x09\x05\x06");
    bytes.push(state);
    match choice {
        Some(text) => bytes.extend([&[2], text.as_bytes(), &[0]].concat()),
        None => bytes.extend([1, 42]),
    }
    bytes.extend(0.5f32.to_le_bytes());
    bytes
}

fn other(time: u64, rows: &str) -> Vec<u8> {
    [&head(1, time)[..], rows.as_bytes(), &[0, 1, 33]].concat()
}

fn packet(events: &[u8]) -> Vec<u8> {
    let size = 36 + events.len() as u64;
    let mut bytes: Vec<u8> = [1, 3, size * 8, size * 8].into_iter().flat_map(u64::to_le_bytes).collect();
    bytes.extend(2u32.to_le_bytes());
    bytes.extend(events);
    bytes
}

fn selection(text: &str) -> Selection {
    let filter =
        parse(text).and_then(|filter| Filter::new(&filter)).unwrap_or_else(|error| panic!("{error}"));
    Selection { filter: Some(filter), ..Selection::default() }
}

/// Returns the times of the events that pass a filter.
fn passing(folder: &Folder, text: &str) -> Vec<i64> {
    let mut traces = folder.open();
    traces.select(selection(text));
    let mut times = Vec::new();
    while let Some(event) = traces.next_event() {
        times.extend(event.timestamp());
    }
    let mut traces = folder.open();
    traces.select(selection(text));
    assert_eq!(stat::summarize(&mut traces).events, times.len() as u64, "{text}: in the summary");
    times
}

#[test]
fn a_predicate_is_evaluated_for_events_that_pass_the_filter() {
    let folder = Folder::new("only");
    let only = EventPredicate::new(|event| event.timestamp() != Some(2));
    let chosen = |filter: Option<&str>| {
        let filter = filter.and_then(|text| selection(text).filter);
        Selection { filter, predicate: Some(only.clone()), ..Selection::default() }
    };
    for (filter, expected) in [(None, &[1, 3][..]), (Some("rows > 100"), &[]), (Some("only_here"), &[3])] {
        let mut traces = folder.open();
        traces.select(chosen(filter));
        let mut times = Vec::new();
        while let Some(event) = traces.next_event() {
            times.extend(event.timestamp());
        }
        assert_eq!(times, expected, "{filter:?}");
        let mut traces = folder.open();
        traces.select(chosen(filter));
        assert_eq!(stat::summarize(&mut traces).events, times.len() as u64, "{filter:?}: in the summary");
    }
}

#[test]
fn names_refer_to_values_of_all_kinds() {
    let folder = Folder::new("values");
    for (text, expected) in [
        ("rows > 100", &[2][..]),
        ("rows == \"many\"", &[3]),
        ("rows == 100 || rows == \"m*\"", &[1, 3]),
        ("table == \"orders*\" || table == \"users\"", &[1, 2]),
        ("host == \"ab\" && ports[1] == 443", &[1, 2]),
        ("list[2] == 9", &[1, 2]),
        ("list[3] == 0 || list == 7 || missing[1].x", &[]),
        ("nest.x == 5 && nest.inner.y == 6", &[1, 2]),
        ("state == \"bu*\"", &[1]),
        ("state == \"burst\" && state == \"busy\" && state == 5", &[1]),
        ("state != \"busy\"", &[2]),
        ("choice == 42", &[1]),
        ("choice.one == 42", &[1]),
        ("choice.two == \"x\"", &[2]),
        ("load == 0.5 && load * 4 < rows", &[1, 2]),
        ("app_pool_user == 20 && $app.pool:user == 20", &[2]),
        ("only_here", &[3]),
        ("!only_here", &[]),
        ("true", &[1, 2, 3]),
        ("missing == 1", &[]),
    ] {
        assert_eq!(passing(&folder, text), expected, "{text}");
    }
}

#[test]
fn contexts_have_the_names_that_tracers_give_them() {
    let folder = Folder::new("contexts");
    for (text, expected) in [
        ("$tid == 72", &[2][..]),
        ("$vtid >= 72", &[2, 3]),
        ("$cpu == 2 && $pid == 4711 && $procname == \"serv*\"", &[1, 2, 3]),
        ("$perf_prio == 33", &[3]),
        // The trace has the name of its process, not of its threads.
        ("$comm == \"*\"", &[]),
        ("$rows == 100", &[]),
        ("vtid == 72", &[]),
    ] {
        assert_eq!(passing(&folder, text), expected, "{text}");
    }
}

#[test]
fn a_filter_is_checked_against_the_descriptions() {
    let folder = Folder::new("check");
    let traces = folder.open();
    let missing = |text: &str| {
        let expression = parse(text).unwrap();
        let names = missing(&expression, &traces);
        names.into_iter().map(|(name, at)| format!("{name} at {}", at.offset)).collect::<Vec<_>>()
    };
    let check = |text: &str| check(&parse(text).unwrap(), &traces).map_err(|error| error.render());
    for text in ["rows > 100 && $tid == 1 && $pid && $app.pool:user == 1", "rows == \"x\" && only_here"] {
        assert_eq!((missing(text), check(text)), (vec![], Ok(())), "{text}");
    }
    let text = "rwos > 100 || $tdi == 1 || nest.z";
    assert_eq!(missing(text), ["rwos at 0", "$tdi at 14", "nest.z at 27"]);
    assert_eq!(missing("$perf_tid + $prio"), ["$perf_tid at 0", "$prio at 12"]);
    // Only one of the classes has both.
    assert_eq!(
        check("only_here && rows > 100"),
        Err("only_here && rows > 100\n             ^^^^ expected a number (texts have no order), found `rows`, a text".into())
    );
    let expected = "state == \"bussy\"\n         ^^^^^^^ expected a label of `state` (idle, busy, burst), found `\"bussy\"`";
    assert_eq!(check("state == \"bussy\""), Err(expected.into()));
    assert!(check("nest > 1").unwrap_err().contains("`nest`, a structure"));
    assert!(check("ports > 1").unwrap_err().contains("`ports`, several values"));
    assert_eq!(check("choice == 42 || choice == \"x\""), Ok(()));
    let names = names(&traces);
    assert!(
        ["rows", "nest", "$vtid", "$tid", "only_here"].iter().all(|name| names.contains(*name)),
        "{names:?}"
    );
}

#[test]
fn unselected_classes_do_not_affect_the_check_of_a_filter() {
    let folder = Folder::new("selected");
    let mut traces = folder.open();
    traces.select(Selection { events: vec!["db:query".into()], ..Selection::default() });
    let expression = parse("rows == \"many\" || only_here").unwrap();
    assert_eq!(missing(&expression, &traces).len(), 1);
    assert_eq!(check(&expression, &traces), Ok(()));
    assert!(check(&parse("rows == \"many\"").unwrap(), &traces).is_err());
}
