//! Streams with incomplete packet times, with packets spread over several files, or cut from longer
//! streams, and traces beside unreadable ones.

use std::fs;

use tompion_reader::text::{self, ClockFormat, PrintOptions, TimeFormat};
use tompion_reader::{LossKind, Parts, Selection, TraceSet, follow, json, open, stat};
use tompion_testing::TestDir;

/// Folder that is removed on drop.
struct Folder(TestDir);

impl Folder {
    fn new(name: &str) -> Self {
        let path = TestDir::new(&format!("streams-{name}"));
        Self(path)
    }

    /// Creates a trace with these files.
    fn with(name: &str, context: &str, files: &[(&str, Vec<u8>)]) -> Self {
        let folder = Self::new(name);
        fs::write(folder.0.join("metadata"), description(context)).unwrap();
        files.iter().for_each(|(name, bytes)| fs::write(folder.0.join(name), bytes).unwrap());
        folder
    }

    fn open(&self) -> TraceSet {
        open(std::slice::from_ref(self.0.path())).unwrap()
    }
}

const UUID: [u8; 16] = [7; 16];

/// Creates a description with 32-bit event times and additional fields of the packet context.
fn description(context: &str) -> String {
    format!(
        "/* CTF 1.8 */
        typealias integer {{ size = 8; align = 8; signed = false; }} := uint8_t;
        typealias integer {{ size = 32; align = 8; signed = false; }} := uint32_t;
        typealias integer {{ size = 64; align = 8; signed = false; }} := uint64_t;
        typealias integer {{ size = 64; align = 8; signed = false; map = clock.c.value; }} := time_t;
        typealias integer {{ size = 32; align = 8; signed = false; map = clock.c.value; }} := short_t;
        trace {{ major = 1; minor = 8; byte_order = le; uuid = \"07070707-0707-0707-0707-070707070707\";
                 packet.header := struct {{ uint32_t magic; uint8_t uuid[16]; uint32_t stream_id;
                                            uint64_t stream_instance_id; }}; }};
        clock {{ name = c; freq = 1000000000; }};
        stream {{ id = 0;
            packet.context := struct {{ uint64_t content_size; uint64_t packet_size; {context} }};
            event.header := struct {{ uint32_t id; short_t timestamp; }}; }};
        event {{ name = e; id = 0; stream_id = 0; fields := struct {{ uint32_t v; }}; }};"
    )
}

/// Creates a packet from the additional context fields and the times and values of its events.
fn packet(context: &[u8], events: &[(u64, u32)]) -> Vec<u8> {
    let mut bytes = 0xc1fc_1fc1_u32.to_le_bytes().to_vec();
    bytes.extend_from_slice(&UUID);
    bytes.extend_from_slice(&[0; 12]);
    let size = (bytes.len() + 16 + context.len() + events.len() * 12) as u64 * 8;
    [size, size].iter().for_each(|size| bytes.extend_from_slice(&size.to_le_bytes()));
    bytes.extend_from_slice(context);
    for &(time, value) in events {
        for word in [0, time as u32, value] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
    }
    bytes
}

fn numbers(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// Returns all events as nanoseconds and values.
fn events(mut traces: TraceSet) -> Vec<(i64, i128)> {
    let mut events = Vec::new();
    while let Some(event) = traces.next_event() {
        let value = event.field("v").and_then(|value| value.as_integer()).unwrap();
        events.push((event.timestamp().unwrap(), value));
    }
    assert_eq!(traces.corruptions(), []);
    assert_eq!(traces.timestamp_regressions().count(), 0);
    events
}

/// Creates events of several packets, some of them empty, whose times overflow 32 bits many times.
fn long_stream(context: impl Fn(u64) -> Vec<u8>) -> (Vec<u8>, Vec<(i64, i128)>) {
    let (mut bytes, mut expected) = (Vec::new(), Vec::new());
    for number in 0..1500_u64 {
        let count = if number % 7 == 3 { 0 } else { 80 };
        let events: Vec<(u64, u32)> = (0..count)
            .map(|event| ((number * 100 + event) * 10_000_000, (number * 100 + event) as u32))
            .collect();
        expected.extend(events.iter().map(|&(time, value)| (time as i64, i128::from(value))));
        bytes.extend(packet(&context(number * 1_000_000_000), &events));
    }
    (bytes, expected)
}

/// Checks every way of reading: with one or several threads, from the beginning or from a later
/// time.
fn check_all_readers(folder: &Folder, expected: &[(i64, i128)]) {
    assert!(events(folder.open()) == expected, "read one after the other");

    let time = TimeFormat { clock: ClockFormat::Cycles, utc: true, ..TimeFormat::default() };
    let options = PrintOptions { time, no_delta: true, ..PrintOptions::default() };
    let mut text = Vec::new();
    text::print(&mut folder.open(), &options, &mut text).unwrap();
    let line = |(time, value): &(i64, i128)| format!("[{time:020}] e: {{ v = {value} }}\n");
    let lines: String = expected.iter().map(line).collect();
    assert!(String::from_utf8(text).unwrap() == lines, "printed");

    let summary = stat::summarize(&mut folder.open());
    assert_eq!(summary.events, expected.len() as u64);
    assert_eq!(
        (summary.begin_ns, summary.end_ns),
        (Some(expected[0].0), Some(expected[expected.len() - 1].0))
    );
    assert_eq!(folder.open().end(), summary.end_ns);

    let from = expected[expected.len() / 2].0;
    let mut late = folder.open();
    late.select(Selection { from: Some(from), ..Selection::default() });
    assert!(events(late) == expected[expected.len() / 2..], "from the middle on");

    let parts = Parts::new(&folder.open(), 100_000);
    assert!(parts.count() > 5);
    let of_parts = (0..parts.count()).map(|part| parts.read(part, Selection::default()).unwrap());
    assert!(of_parts.flat_map(events).collect::<Vec<_>>() == expected, "in parts");
}

#[test]
fn times_continue_across_packets_without_begin_time() {
    let (bytes, expected) = long_stream(|_| Vec::new());
    check_all_readers(&Folder::with("no-begin", "", &[("s", bytes)]), &expected);
}

#[test]
fn times_continue_across_packets_with_partial_begin_time() {
    let context = "short_t timestamp_begin; short_t timestamp_end;";
    let (bytes, expected) = long_stream(|begin| {
        [begin, begin + 990_000_000].iter().flat_map(|&time| (time as u32).to_le_bytes()).collect()
    });
    check_all_readers(&Folder::with("short-begin", context, &[("s", bytes)]), &expected);
}

#[test]
fn a_corrupt_packet_does_not_affect_later_times() {
    let good = packet(&[], &[(0xffff_fff0, 1)]);
    let mut bad = packet(&[], &[(0x10, 2), (0xf000_0000, 3)]);
    let event = bad.len() - 12;
    bad[event] = 9;
    let bytes = [good, bad, packet(&[], &[(0x20, 4)])].concat();
    let folder = Folder::with("damaged", "", &[("s", bytes)]);
    let mut traces = folder.open();
    let mut times = Vec::new();
    while let Some(event) = traces.next_event() {
        times.push(event.timestamp().unwrap());
    }
    assert_eq!(times, [0xffff_fff0, 0x1_0000_0010, 0x1_0000_0020]);
    assert_eq!(traces.corruptions().len(), 1);
}

#[test]
fn packets_of_one_stream_in_several_files_are_read_in_order_of_time() {
    let context = "time_t timestamp_begin; time_t timestamp_end; uint64_t packet_seq_num;";
    let (bytes, expected) =
        long_stream(|begin| numbers(&[begin, begin + 990_000_000, begin / 1_000_000_000]));
    // Given three files that share the packets of a stream in turns, in runs of one to three.
    let mut files = [("a", Vec::new()), ("b", Vec::new()), ("c", Vec::new())];
    let mut rest = bytes.as_slice();
    let mut number = 0;
    while !rest.is_empty() {
        let size = u64::from_le_bytes(rest[32..40].try_into().unwrap()) as usize / 8;
        files[[0, 1, 1, 0, 2, 2, 2, 0][number % 8]].1.extend_from_slice(&rest[..size]);
        (rest, number) = (&rest[size..], number + 1);
    }
    let folder = Folder::with("in-turns", context, &files);
    check_all_readers(&folder, &expected);
    let mut traces = folder.open();
    assert_eq!(stat::summarize(&mut traces).lost_packets, 0, "none is missing between them");
    assert_eq!(traces.streams().iter().map(|(_, files)| files.len()).collect::<Vec<_>>(), [3]);
}

#[test]
fn packets_in_several_snapshots_are_read_once() {
    let context = "time_t timestamp_begin; time_t timestamp_end; uint64_t packet_seq_num;";
    let of = |numbers_of: std::ops::Range<u64>| {
        let packets = numbers_of.map(|number| {
            let begin = number * 100;
            packet(
                &numbers(&[begin, begin + 50, number]),
                &[(begin + 1, number as u32), (begin + 2, number as u32)],
            )
        });
        packets.collect::<Vec<_>>().concat()
    };
    // Given snapshots that overlap by many packets, by one, and by all.
    let folder = Folder::new("snapshots");
    for (name, packets) in [("1", of(2..7)), ("2", of(4..10)), ("3", of(9..12)), ("4", of(5..8))] {
        let snapshot = folder.0.join(format!("snapshot-{name}"));
        fs::create_dir(&snapshot).unwrap();
        fs::write(snapshot.join("metadata"), description(context)).unwrap();
        fs::write(snapshot.join("channel_0"), packets).unwrap();
    }
    let expected: Vec<(i64, i128)> =
        (2..12).flat_map(|number| [1, 2].map(|event| (number * 100 + event, i128::from(number)))).collect();
    assert_eq!(events(folder.open()), expected);
    let summary = stat::summarize(&mut folder.open());
    assert_eq!((summary.events, summary.lost_packets, summary.lost.total), (20, 0, 0));
}

/// Returns kinds and numbers of losses.
fn losses(discarded: &[(u64, u64)]) -> (Vec<(LossKind, u64)>, u64) {
    let context = "uint64_t events_discarded; uint64_t packet_seq_num;";
    let packets =
        discarded.iter().map(|&(discarded, number)| packet(&numbers(&[discarded, number]), &[(1, 1)]));
    let name = format!("lost-{discarded:?}");
    let folder = Folder::with(&name, context, &[("s", packets.collect::<Vec<_>>().concat())]);
    let mut traces = folder.open();
    let summary = stat::summarize(&mut traces);
    let reported = text::loss_warnings(&traces, &PrintOptions::default());
    assert!(
        reported.iter().all(|reported| reported.contains(" events (unknown time range) in trace")),
        "{reported:?}"
    );
    let losses = traces.losses().iter().map(|loss| (loss.kind, loss.count)).collect();
    (losses, summary.lost.total)
}

#[test]
fn events_discarded_before_the_first_packet_are_not_counted() {
    let counted = losses(&[(5, 0), (5, 1), (7, 2)]);
    assert_eq!(
        counted,
        (vec![(LossKind::Events, 5), (LossKind::Events, 2)], 7),
        "from the stream's beginning on"
    );
    let counted = losses(&[(5, 3), (7, 4)]);
    assert_eq!(counted, (vec![(LossKind::EventsAtMost, 5), (LossKind::Events, 2)], 2), "cut out of a stream");
}

#[test]
fn traces_are_read_beside_unreadable_ones() {
    let folder = Folder::new("beside");
    for (name, metadata) in [("a", "nonsense"), ("b", "/* CTF 1.8 */ trace { major = 1;"), ("d", "")] {
        fs::create_dir(folder.0.join(name)).unwrap();
        fs::write(folder.0.join(name).join("metadata"), metadata).unwrap();
    }
    fs::create_dir(folder.0.join("c")).unwrap();
    fs::write(folder.0.join("c/metadata"), description("")).unwrap();
    fs::write(folder.0.join("c/s"), packet(&[], &[(1, 7)])).unwrap();
    fs::remove_file(folder.0.join("d/metadata")).unwrap();
    std::os::unix::fs::symlink("nothing", folder.0.join("d/metadata")).unwrap();

    let mut traces = folder.open();
    assert_eq!(traces.traces().len(), 1);
    let reported: Vec<String> = traces.corruptions().iter().map(ToString::to_string).collect();
    assert_eq!(reported.len(), 3, "{reported:?}");
    assert!(
        reported
            .iter()
            .zip(["a", "b", "d"])
            .all(|(reported, name)| reported.contains(&format!("/{name}/metadata: ")))
    );
    assert_eq!(traces.next_event().unwrap().field("v").and_then(|value| value.as_integer()), Some(7));
    assert_eq!(stat::summarize(&mut folder.open()).corruptions.len(), 3);

    // If no trace can be read, the first problem is the error.
    fs::remove_dir_all(folder.0.join("c")).unwrap();
    assert!(open(std::slice::from_ref(folder.0.path())).is_err());
}

#[test]
fn packet_context_is_in_json_and_csv() {
    let packets = [3, 4].map(|net| packet(&numbers(&[net]), &[(net, 7)])).concat();
    let folder = Folder::with("json", "uint64_t net;", &[("s", packets)]);
    let (mut lines, mut values) = (Vec::new(), Vec::new());
    json::print(&mut folder.open(), json::JsonOptions::default(), &mut lines).unwrap();
    json::print_csv(&mut folder.open(), &mut values).unwrap();
    let (lines, values) = (String::from_utf8(lines).unwrap(), String::from_utf8(values).unwrap());
    for (net, (line, values)) in [3, 4].into_iter().zip(lines.lines().zip(values.lines().skip(1))) {
        assert!(line.contains(&format!("\"packet\":{{\"net\":{net}}},\"context\":{{}}")), "{line}");
        assert!(
            values.ends_with(&format!(",{{}},\"{{\"\"v\"\":7}}\",\"{{\"\"net\"\":{net}}}\"")),
            "{values}"
        );
    }
}

/// The same order as in babeltrace2.
#[test]
fn simultaneous_events_are_ordered_by_uuid_and_stream() {
    let stream = |uuid: u8, instance: u8, value: u32| {
        let mut bytes = packet(&numbers(&[5]), &[(5, value)]);
        bytes[4..20].fill(uuid);
        bytes[24] = instance;
        bytes
    };
    let folder = Folder::new("one-time");
    let trace = |name: &str, uuid: u8, files: &[(&str, Vec<u8>)]| {
        let path = folder.0.join(name);
        fs::create_dir_all(&path).unwrap();
        let text = description("time_t timestamp_begin;").replace("07", &format!("{uuid:02}"));
        fs::write(path.join("metadata"), text).unwrap();
        files.iter().for_each(|(name, bytes)| fs::write(path.join(name), bytes).unwrap());
    };
    trace("a", 9, &[("stream_10", stream(9, 10, 4)), ("stream_2", stream(9, 2, 3))]);
    trace("b", 8, &[("stream_1", stream(8, 1, 2)), ("stream_5", stream(8, 0, 1))]);
    let expected = [(5, 1), (5, 2), (5, 3), (5, 4)];
    assert_eq!(events(folder.open()), expected);
}

/// The same order as in babeltrace2, which names a trace after its host and its folder.
#[test]
fn simultaneous_events_without_uuids_are_ordered_by_the_names_of_traces() {
    let folder = Folder::new("one-time-without-uuid");
    let uuid = "uuid = \"07070707-0707-0707-0707-070707070707\";";
    for (name, host, value) in [("a", "y", 4), ("b", "x", 3), ("c", "", 1), ("d", "", 2)] {
        let path = folder.0.join(name);
        fs::create_dir_all(&path).unwrap();
        let mut text = description("time_t timestamp_begin;").replace(uuid, "");
        if !host.is_empty() {
            text.push_str(&format!("env {{ hostname = \"{host}\"; }};"));
        }
        fs::write(path.join("metadata"), text).unwrap();
        fs::write(path.join("stream"), packet(&numbers(&[5]), &[(5, value)])).unwrap();
    }
    assert_eq!(events(folder.open()), [(5, 1), (5, 2), (5, 3), (5, 4)]);
}

/// Times and sequence number of packets.
const NUMBERED: &str = "time_t timestamp_begin; time_t timestamp_end; uint64_t packet_seq_num;";

/// Creates the packet with this number: ten events, one a second.
fn numbered(number: u64) -> Vec<u8> {
    let second = |event: u64| (number * 10 + event + 1) * 1_000_000_000;
    let events: Vec<(u64, u32)> =
        (0..10).map(|event| (second(event), (number * 10 + event) as u32)).collect();
    packet(&numbers(&[second(0), second(9), number]), &events)
}

fn numbered_packets(packets: std::ops::Range<u64>) -> Vec<u8> {
    packets.flat_map(numbered).collect()
}

/// Reader of a folder that changes, and what it found so far.
struct Following {
    follow: follow::Follow,
    text: Vec<u8>,
    losses: Vec<String>,
}

impl Following {
    fn of(folder: &Folder) -> Self {
        let follow = follow::Follow::new(std::slice::from_ref(folder.0.path()), Selection::default());
        Self { follow, text: Vec::new(), losses: Vec::new() }
    }

    fn round(&mut self, is_last: bool) {
        let format = follow::Format::Text(PrintOptions::default());
        let round = self.follow.round(is_last, &format, &mut self.text).unwrap();
        assert_eq!(round.corruptions, Vec::<String>::new());
        self.losses.extend(round.losses);
    }

    /// Reads to the end; returns the values of the events.
    fn finish(mut self) -> (Vec<u64>, Vec<String>) {
        self.round(true);
        let text = String::from_utf8(self.text).unwrap();
        let value = |line: &str| line.split_once("v = ")?.1.split(' ').next()?.parse().ok();
        (text.lines().filter_map(value).collect(), self.losses)
    }
}

#[test]
fn a_rotated_trace_is_followed_event_by_event() {
    // The new file is smaller than the old one, as large, or larger.
    for second in [2, 4, 6] {
        let folder = Folder::new(&format!("rotated-{second}"));
        let current = folder.0.join("kernel");
        let write = |packets| {
            fs::create_dir_all(&current).unwrap();
            fs::write(current.join("metadata"), description(NUMBERED)).unwrap();
            fs::write(current.join("stream_0"), numbered_packets(packets)).unwrap();
        };
        let mut following = Following::of(&folder);
        write(0..4);
        following.round(false);
        following.round(false);
        fs::create_dir_all(folder.0.join("archives/1")).unwrap();
        fs::rename(&current, folder.0.join("archives/1/kernel")).unwrap();
        write(4..4 + second);
        following.round(false);
        following.round(false);
        let (values, losses) = following.finish();
        assert_eq!(values, (0..(4 + second) * 10).collect::<Vec<_>>(), "{second}");
        assert_eq!(losses, Vec::<String>::new());
    }
}

/// Replaces a file as tracers do that write a ring of files.
fn replace(folder: &Folder, file: u64, packets: std::ops::Range<u64>) {
    let path = folder.0.join(format!("stream_0_{file}"));
    let _ = fs::remove_file(&path);
    fs::write(path, numbered_packets(packets)).unwrap();
}

#[test]
fn a_ring_of_files_is_followed_while_it_turns() {
    const FILES: u64 = 3;
    let folder = Folder::with("turning", NUMBERED, &[]);
    let mut following = Following::of(&folder);
    for number in 0..20 {
        replace(&folder, number % FILES, 2 * number..2 * number + 2);
        following.round(false);
    }
    let (values, losses) = following.finish();
    assert_eq!(losses, Vec::<String>::new());
    assert_eq!(values, (0..400).collect::<Vec<_>>());
}

#[test]
fn what_a_ring_of_files_overwrote_unread_is_reported() {
    let folder = Folder::with("overtaken", NUMBERED, &[]);
    let mut following = Following::of(&folder);
    replace(&folder, 0, 0..2);
    replace(&folder, 1, 2..4);
    following.round(false);
    following.round(false);
    // Everything that was read is gone, and four packets that were not.
    replace(&folder, 0, 8..10);
    replace(&folder, 1, 10..12);
    following.round(false);
    let (values, losses) = following.finish();
    assert_eq!(values, (0..40).chain(80..120).collect::<Vec<_>>());
    assert!(losses.len() == 1 && losses[0].contains("discarded 4 packets"), "{losses:?}");
}

/// Writes a trace with these packets in a folder.
fn write_chunk(folder: &Folder, chunk: &str, packets: std::ops::Range<u64>) {
    let chunk = folder.0.join(chunk);
    fs::create_dir_all(&chunk).unwrap();
    fs::write(chunk.join("metadata"), description(NUMBERED)).unwrap();
    // The file is the same one, as far as the follower can see.
    let file = fs::OpenOptions::new().create(true).append(true).open(chunk.join("stream_0"));
    std::io::Write::write_all(&mut file.unwrap(), &numbered_packets(packets)).unwrap();
}

#[test]
fn the_tail_of_a_chunk_is_followed_wherever_a_rotation_has_it() {
    // The old chunk's end is written late, and is out of sight for some rounds, or in LTTng's
    // folder for chunks that are being moved.
    for (hidden, rounds) in [(".elsewhere", 1), (".elsewhere", 4), (".tmp_old_chunk", 20)] {
        let folder = Folder::new(&format!("tail{hidden}-{rounds}"));
        let mut following = Following::of(&folder);
        write_chunk(&folder, "ust", 0..3);
        following.round(false);
        following.round(false);
        write_chunk(&folder, "ust", 3..7);
        fs::rename(folder.0.join("ust"), folder.0.join(hidden)).unwrap();
        write_chunk(&folder, "second", 7..9);
        (0..rounds).for_each(|_| following.round(false));
        fs::rename(folder.0.join(hidden), folder.0.join("first")).unwrap();
        write_chunk(&folder, "second", 9..11);
        (0..15).for_each(|_| following.round(false));
        assert_eq!(following.losses, Vec::<String>::new(), "{hidden} for {rounds}");
        let (mut values, losses) = following.finish();
        values.sort_unstable();
        assert_eq!(values, (0..110).collect::<Vec<_>>(), "{hidden} for {rounds}");
        assert_eq!(losses, Vec::<String>::new(), "{hidden} for {rounds}");
    }
}

#[test]
fn a_chunk_that_does_not_come_back_is_reported_while_following() {
    let folder = Folder::new("gone");
    let mut following = Following::of(&folder);
    write_chunk(&folder, "ust", 0..3);
    following.round(false);
    following.round(false);
    write_chunk(&folder, "ust", 3..7);
    fs::rename(folder.0.join("ust"), folder.0.join(".gone")).unwrap();
    write_chunk(&folder, "second", 7..9);
    (0..15).for_each(|_| following.round(false));
    assert!(
        following.losses.len() == 1 && following.losses[0].contains("discarded 4 packets"),
        "{:?}",
        following.losses
    );
}

#[test]
fn a_packet_that_was_overwritten_before_all_of_it_was_read_is_reported() {
    let folder = Folder::with("begun", NUMBERED, &[]);
    let mut following = Following::of(&folder);
    replace(&folder, 0, 0..2);
    following.round(false);
    // Packets 2 and 3 are seen, packet 2 is begun, and none of their events are due.
    replace(&folder, 1, 2..4);
    following.round(false);
    let read = |following: &Following| String::from_utf8(following.text.clone()).unwrap().lines().count();
    assert_eq!(read(&following), 20);
    replace(&folder, 1, 4..6);
    following.round(false);
    let (values, losses) = following.finish();
    assert_eq!(values, (0..20).chain(40..60).collect::<Vec<_>>());
    assert!(losses.len() == 1 && losses[0].contains("discarded 2 packets"), "{losses:?}");
}
