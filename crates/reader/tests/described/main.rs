//! From a program's event description and its record in a ring to the printed line: events of every
//! kind, read by Tompion and by babeltrace2.
//!
//! Where babeltrace2 is not installed, only Tompion's own text is checked.

mod filters;
mod random;
mod ring;

use std::fs;
use std::process::Command;

use ring::{Part, payload};
use tompion_ctf::encode::{self, Origin, Packet, Plan, Record, Source};
use tompion_ctf::metadata::{EnvironmentValue, Uuid};
use tompion_ctf::tsdl;
use tompion_reader::text::{PrintOptions, TimeFormat};
use tompion_reader::{json, open, text};
use tompion_schema::{Enumeration, Event, Field, Integer, Kind, Label, Level, Type};
use tompion_testing::{Random, TestDir, is_full};

/// Recording in a folder that is removed on drop.
struct Recording(TestDir);

impl Recording {
    /// Writes events: class number and payload each.
    fn new(name: &str, events: &[Event], records: &[(u32, Vec<u8>)]) -> Self {
        let folder = TestDir::new(&format!("described-{name}"));
        let source = Source {
            uuid: Uuid([7; 16]),
            environment: vec![("hostname".into(), EnvironmentValue::from("box"))],
            clock_uuid: None,
            clock_offset_ns: 1_700_000_000_000_000_000,
            clock_precision_ns: 1,
            numbers_streams: false,
            tid: true,
            context: Vec::new(),
        };
        // As in a session, descriptions are serialized and parsed.
        let events: Vec<Event> = events
            .iter()
            .map(|event| tompion_schema::decode(&tompion_schema::encode(event)).unwrap())
            .collect();
        let plans: Vec<Plan> = events.iter().map(Plan::new).collect();
        let mut packet = Packet::new(&source);
        for (time, (id, payload)) in (1..).zip(records) {
            let record = Record { id: *id, time, tid: 42, context: &[], payload };
            packet.push(&record, &plans[*id as usize]).unwrap();
        }
        let metadata = encode::metadata(&source, &events);
        let written = tsdl::write(&metadata);
        assert_eq!(tsdl::parse(written.as_bytes()).unwrap(), metadata);
        fs::write(folder.join("metadata"), written).unwrap();
        let origin = Origin { cpu: 3, ..Origin::default() };
        packet
            .finish(origin, 0, |bytes, info| fs::write(folder.join("stream"), &bytes[..info.size as usize]))
            .unwrap();
        Self(folder)
    }

    fn text(&self) -> Vec<u8> {
        let mut traces = open(std::slice::from_ref(self.0.path())).unwrap();
        let mut output = Vec::new();
        let time = TimeFormat { utc: true, ..TimeFormat::default() };
        text::print(
            &mut traces,
            &PrintOptions { time, no_delta: true, ..PrintOptions::default() },
            &mut output,
        )
        .unwrap();
        assert_eq!(traces.corruptions(), []);
        output
    }

    fn json(&self) -> Vec<serde_json::Value> {
        let mut output = Vec::new();
        json::print(
            &mut open(std::slice::from_ref(self.0.path())).unwrap(),
            json::JsonOptions::default(),
            &mut output,
        )
        .unwrap();
        serde_json::Deserializer::from_slice(&output).into_iter().map(Result::unwrap).collect()
    }

    /// Asserts that babeltrace2 prints the same, and nothing else.
    fn assert_as_babeltrace2_prints_it(&self) {
        let mut command = Command::new("babeltrace2");
        let Ok(theirs) = command.args(["--clock-gmt", "--no-delta"]).arg(self.0.path()).output() else {
            println!("skipped: babeltrace2 is not installed");
            return;
        };
        assert_eq!(String::from_utf8_lossy(&theirs.stderr), "", "babeltrace2 opens it without a warning");
        let ours = self.text();
        let lines = |text: &[u8]| {
            let lines = text.split(|&byte| byte == b'\n');
            lines.map(|line| String::from_utf8_lossy(line).into_owned()).collect::<Vec<_>>()
        };
        for (ours, theirs) in lines(&ours).iter().zip(&lines(&theirs.stdout)) {
            assert_eq!(ours, theirs);
        }
        assert_eq!(ours, theirs.stdout);
    }
}

fn event(name: &str, kind: Kind, fields: Vec<Field>) -> Event {
    Event {
        provider: "p".into(),
        name: name.into(),
        level: Level::DEFAULT,
        kind,
        init: false,
        format: None,
        attributes: Default::default(),
        fields,
    }
}

fn context(name: &str, ty: Type) -> Field {
    Field { context: true, ..Field::new(name, ty) }
}

fn label(low: i128, high: i128, name: &str) -> Label {
    Label { low, high, name: name.into() }
}

fn enumeration(integer: Integer, labels: Vec<Label>) -> Type {
    Type::Enum(integer, Enumeration { name: "e".into(), labels })
}

/// Returns the line of a class's only event, without time and common parts.
fn line(name: &str, class: Event, parts: &[Part]) -> String {
    let recording = Recording::new(name, std::slice::from_ref(&class), &[(0, payload(parts))]);
    recording.assert_as_babeltrace2_prints_it();
    let text = String::from_utf8(recording.text()).unwrap();
    let begin = "[22:13:20.000000001] box p:e: { cpu_id = 3 }, { vtid = 42 }, ";
    text.strip_prefix(begin).unwrap_or_else(|| panic!("{text}")).trim_end().to_owned()
}

#[test]
fn numbers_in_network_order_are_converted() {
    use Part::{Array, Fixed, Sequence};
    let fields = vec![
        Field::new("port", Type::Integer(Integer::unsigned(16).network())),
        Field::new("depth", Type::Integer(Integer::signed(32).network())),
        Field::new("address", Type::Integer(Integer::hex(64).network())),
        Field::new("after", Type::Integer(Integer::unsigned(16))),
        Field::new("two", Type::Array(Integer::signed(16).network(), 2)),
        Field::new("more", Type::Sequence(Integer::hex(32).network())),
    ];
    let parts = [
        Fixed(80u16.to_be_bytes().into()),
        Fixed((-2i32).to_be_bytes().into()),
        Fixed(0xabcd_u64.to_be_bytes().into()),
        Fixed(80u16.to_le_bytes().into()),
        Array(vec![0, 1, 0xff, 0xff]),
        Sequence(1, vec![0, 0, 1, 0]),
    ];
    assert_eq!(
        line("network", event("e", Kind::Instant, fields), &parts),
        "{ port = 80, depth = -2, address = 0xABCD, after = 80, two = [ [0] = 1, [1] = -1 ], \
         _more_length = 1, more = [ [0] = 0x100 ] }"
    );
}

#[test]
fn byte_arrays_of_text_are_text() {
    use Part::{Array, Sequence};
    let fields = vec![
        Field::new("name", Type::TextArray(8)),
        Field::new("full", Type::TextArray(3)),
        Field::new("path", Type::TextSequence),
        Field::new("raw", Type::Bytes),
    ];
    let parts = [
        Array(b"k\xc3\xa4se\0xx".to_vec()),
        Array(b"a\"b".to_vec()),
        Sequence(5, b"/tmp\0".to_vec()),
        Sequence(2, vec![0, 171]),
    ];
    assert_eq!(
        line("text", event("e", Kind::Instant, fields), &parts),
        "{ name = \"käse\", full = \"a\\\"b\", path = \"/tmp\", _raw_length = 2, \
         raw = [ [0] = 0x0, [1] = 0xAB ] }"
    );
}

#[test]
fn enumerations_can_have_any_integer() {
    use Part::Fixed;
    let small =
        || vec![label(-3, -1, "neg"), label(0, 5, "few"), label(4, 9, "some"), label(200, 900, "many")];
    let large = vec![label(0, 1, "one"), label(1 << 63, u64::MAX.into(), "huge")];
    let fields = vec![
        Field::new("a", enumeration(Integer::signed(8), small())),
        Field::new("b", enumeration(Integer::unsigned(8), small())),
        Field::new("c", enumeration(Integer::unsigned(64), large)),
        Field::new("d", enumeration(Integer::hex(16).network(), small())),
        Field::new("e", enumeration(Integer::unsigned(8), vec![label(-2, -1, "none is left")])),
        Field::new("f", enumeration(Integer::unsigned(8), Vec::new())),
    ];
    let parts = [
        Fixed(vec![0xfe]),
        Fixed(vec![255]),
        Fixed(vec![0xff; 8]),
        Fixed(vec![0, 4]),
        Fixed(vec![255]),
        Fixed(vec![7]),
    ];
    assert_eq!(
        line("enum", event("e", Kind::Instant, fields), &parts),
        "{ a = ( \"neg\" : container = -2 ), b = ( \"many\" : container = 255 ), \
         c = ( \"huge\" : container = 18446744073709551615 ), \
         d = ( \"few\", \"some\" : container = 0x4 ), e = 255, f = 7 }"
    );
}

#[test]
fn structures_can_be_nested() {
    use Part::{Array, Fixed, Sequence};
    let inner = vec![
        Field::new("a", Type::Integer(Integer::unsigned(16).network())),
        Field::new("s", Type::Sequence(Integer::unsigned(8))),
        Field::new("none", Type::Struct(Vec::new())),
        Field::new("_s_length", Type::Bool),
    ];
    let outer = vec![
        Field::new("a", Type::String),
        Field::new("in", Type::Struct(inner)),
        Field::new("s", Type::Array(Integer::unsigned(8), 2)),
    ];
    let fields = vec![
        Field::new("a", Type::Bool),
        Field::new("out", Type::Struct(outer)),
        Field::new("s", Type::TextSequence),
    ];
    let parts = [
        Fixed(vec![1]),
        Sequence(2, b"hi".to_vec()),
        Fixed(vec![1, 0]),
        Sequence(2, vec![5, 6]),
        Fixed(vec![9]),
        Array(vec![7, 8]),
        Sequence(3, b"end".to_vec()),
    ];
    assert_eq!(
        line("struct", event("e", Kind::Instant, fields), &parts),
        "{ a = 1, out = { a = \"hi\", in = { a = 256, _s_length_ = 2, s = [ [0] = 5, [1] = 6 ], none = { }, \
         _s_length = 9 }, s = [ [0] = 7, [1] = 8 ] }, s = \"end\" }"
    );
}

#[test]
fn context_precedes_the_fields_wherever_the_record_has_it() {
    use Part::{Fixed, Sequence};
    let user = vec![Field::new("id", Type::Integer(Integer::unsigned(16))), Field::new("name", Type::String)];
    let fields = vec![
        Field::new("rows", Type::Integer(Integer::unsigned(8))),
        context("user", Type::Struct(user)),
        Field::new("table", Type::String),
        context("tag", Type::TextSequence),
        context("list", Type::Sequence(Integer::unsigned(8))),
        Field::new("ok", Type::Bool),
    ];
    let parts = [
        Fixed(vec![5]),
        Fixed(vec![1, 0]),
        Sequence(3, b"ann".to_vec()),
        Sequence(6, b"orders".to_vec()),
        Sequence(1, b"x".to_vec()),
        Sequence(1, vec![9]),
        Fixed(vec![1]),
    ];
    // babeltrace2 doesn't support sequences in a context.
    assert_eq!(
        line("context", event("e", Kind::Instant, fields), &parts),
        "{ user = { id = 1, name = \"ann\" }, tag = \"x\" }, \
         { rows = 5, table = \"orders\", _list_length = 1, list = [ [0] = 9 ], ok = 1 }"
    );
    let alone = vec![context("vpid", Type::Integer(Integer::signed(32)))];
    assert_eq!(
        line("context-alone", event("e", Kind::Instant, alone), &[Fixed(vec![1, 0, 0, 0])]),
        "{ vpid = 1 }, { }"
    );
}

#[test]
fn names_that_babeltrace2_would_confuse_get_an_underscore() {
    use Part::{Fixed, Sequence};
    let byte = |name| Field::new(name, Type::Integer(Integer::unsigned(8)));
    let bytes = |name| Field::new(name, Type::Sequence(Integer::unsigned(8)));
    let fields = vec![byte("_x"), byte("x"), bytes("s"), byte("s_length"), byte("y"), byte("_y"), byte("x_")];
    let number = |value| Fixed(vec![value]);
    let parts = [number(1), number(2), Sequence(0, vec![]), number(3), number(4), number(5), number(6)];
    assert_eq!(
        line("names", event("e", Kind::Instant, fields), &parts),
        "{ _x = 1, x__ = 2, _s_length_ = 0, s = [ ], s_length = 3, y = 4, _y = 5, x_ = 6 }"
    );
}

/// One event of each kind.
fn kinds() -> (Vec<Event>, Vec<(u32, Vec<u8>)>) {
    use Part::{Fixed, Sequence};
    let deadline = vec![Field::new("deadline_ns", Type::Integer(Integer::unsigned(64)))];
    let value = vec![Field::new("value", Type::Float(64))];
    let id = vec![Field::new("id", Type::Integer(Integer::hex(64)))];
    let arguments = vec![
        Field::new("arg1", Type::Integer(Integer::signed(32))),
        Field::new("arg2", Type::String),
        Field::new("arg3", Type::Integer(Integer::unsigned(64))),
        Field::new("arg4", Type::Float(64)),
    ];
    let format = "100%% of rows %05d, table \"%s\" at 0x%lx? %.1f\n";
    let events = vec![
        event("load_begin", Kind::Begin, vec![]),
        event("load_end", Kind::End, vec![]),
        event("cycle_begin", Kind::Job, deadline),
        Event { init: true, ..event("temperature", Kind::Counter, value) },
        event("request", Kind::Flow, id),
        Event {
            provider: "mark".into(),
            format: Some(format.into()),
            attributes: Default::default(),
            ..event("done", Kind::Mark, arguments)
        },
        event("plain_begin", Kind::Instant, vec![]),
        Event { init: true, ..event("state", Kind::Instant, vec![]) },
    ];
    let eight = |value: u64| Fixed(value.to_le_bytes().into());
    let mark = [
        Fixed((-17i32).to_le_bytes().into()),
        Sequence(6, b"orders".to_vec()),
        eight(0xdead_beef),
        eight(0.25f64.to_bits()),
    ];
    let records = [
        payload(&[]),
        payload(&[]),
        payload(&[eight(1_000_000)]),
        payload(&[eight(36.6f64.to_bits())]),
        payload(&[eight(0xabc)]),
        payload(&mark),
        payload(&[]),
        payload(&[]),
    ];
    (events, (0..).zip(records).collect())
}

#[test]
fn kinds_names_and_formats_are_preserved() {
    let (events, records) = kinds();
    let recording = Recording::new("kinds", &events, &records);
    recording.assert_as_babeltrace2_prints_it();
    let mut traces = open(std::slice::from_ref(recording.0.path())).unwrap();
    let mut found = Vec::new();
    while let Some(event) = traces.next_event() {
        let (meaning, names) = (event.class().kind_info(), event.class().names());
        found.push((meaning.kind, names.base().to_owned(), meaning.init, meaning.format));
    }
    let expected = events
        .iter()
        .map(|event| (event.kind, event.base_name().to_owned(), event.init, event.format.clone()));
    assert_eq!(found, expected.collect::<Vec<_>>());
    let bases: Vec<&str> = found.iter().map(|(_, base, ..)| base.as_str()).collect();
    assert_eq!(bases, ["load", "load", "cycle", "temperature", "request", "done", "plain_begin", "state"]);
}

#[test]
fn a_mark_is_printed_with_its_names_and_in_json_with_its_message() {
    let (events, records) = kinds();
    let recording = Recording::new("mark", &events, &records);
    let text = String::from_utf8(recording.text()).unwrap();
    let line = text.lines().find(|line| line.contains("mark:done")).unwrap();
    assert!(line.ends_with("{ rows = -17, table = \"orders\", at = 0xDEADBEEF, arg4 = 0.25 }"), "{line}");
    let lines = recording.json();
    assert_eq!(lines[5]["message"], "100% of rows -0017, table \"orders\" at 0xdeadbeef? 0.2\n");
    assert_eq!(
        lines[5]["fields"],
        serde_json::json!({"rows": -17, "table": "orders", "at": 0xdead_beefu64, "arg4": 0.25})
    );
    assert!(lines.iter().enumerate().all(|(index, line)| (index == 5) == line.get("message").is_some()));
}

#[test]
fn a_conversion_by_babeltrace2_preserves_event_kinds() {
    let (events, records) = kinds();
    let recording = Recording::new("converted", &events, &records);
    let output = recording.0.with_extension("out");
    let _ = fs::remove_dir_all(&output);
    let mut command = Command::new("babeltrace2");
    command.arg(recording.0.path()).args(["-o", "ctf", "-w"]).arg(&output);
    let Ok(done) = command.output() else {
        println!("skipped: babeltrace2 is not installed");
        return;
    };
    assert!(done.status.success());
    let mut traces = open(std::slice::from_ref(&output)).unwrap();
    let mut kinds = Vec::new();
    while let Some(event) = traces.next_event() {
        kinds.push(event.class().kind_info());
    }
    fs::remove_dir_all(output).unwrap();
    let expected = events.iter().map(tompion_ctf::event_kind::EventKindInfo::of);
    assert_eq!(kinds, expected.collect::<Vec<_>>());
}

#[test]
fn corrupt_recordings_are_printed_without_panic() {
    let (events, records) = kinds();
    let recording = Recording::new("damaged", &events, &records);
    let files = ["metadata", "stream"].map(|name| recording.0.join(name));
    let sound = files.each_ref().map(|file| fs::read(file).unwrap());
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut printed = 0;
    for _ in 0..if is_full() { 200_000 } else { 1000 } {
        let mut bytes = sound.clone();
        for _ in 0..=random.below(3) {
            let target = &mut bytes[random.below(3).min(1) as usize];
            let place = random.below(target.len() as u64) as usize;
            match random.below(3) {
                0 => target[place] ^= 1 << random.below(8),
                1 => target[place] = random.pick(&[0, 1, 0x7f, 0xff, b'%', b'*', b'9', b's']),
                _ => target.truncate(place.max(1)),
            }
        }
        files.iter().zip(&bytes).for_each(|(file, bytes)| fs::write(file, bytes).unwrap());
        let open = || open(std::slice::from_ref(recording.0.path()));
        let Ok(mut traces) = open() else { continue };
        let mut output = Vec::new();
        text::print(&mut traces, &PrintOptions::default(), &mut output).unwrap();
        json::print(&mut open().unwrap(), json::JsonOptions::default(), &mut output).unwrap();
        json::print_csv(&mut open().unwrap(), &mut output).unwrap();
        assert!(output.len() < 1 << 20);
        printed += usize::from(!output.is_empty());
    }
    assert!(printed > 300, "{printed}");
}

#[test]
fn random_events_are_printed_as_babeltrace2_prints_them() {
    for seed in 1..=if is_full() { 400 } else { 8 } {
        let (events, records) = random::recording(seed);
        let recording = Recording::new(&format!("random-{seed}"), &events, &records);
        recording.assert_as_babeltrace2_prints_it();
        assert_eq!(recording.json().len(), records.len());
    }
}
