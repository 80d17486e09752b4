//! Synthetic traces: unusual times, byte orders, packetized descriptions, cut and empty files.

use std::fs;
use std::path::Path;

use tompion_reader::text::{self, ClockFormat, PrintOptions, TimeFormat};
use tompion_reader::{Selection, TraceSet, follow, open};
use tompion_testing::TestDir;

/// Folder that is removed on drop.
struct Folder(TestDir);

impl Folder {
    /// Creates a trace with one file.
    fn new(name: &str, metadata: &[u8], stream: &[u8]) -> Self {
        let path = TestDir::new(&format!("made-{name}"));
        fs::write(path.join("metadata"), metadata).unwrap();
        fs::write(path.join("stream"), stream).unwrap();
        Self(path)
    }
}

/// Creates a description: byte order, properties of the clock, bits of timestamps.
fn description(order: &str, clock: &str, bits: u32) -> String {
    format!(
        "/* CTF 1.8 */
        typealias integer {{ size = 32; align = 8; signed = false; }} := uint32_t;
        typealias integer {{ size = 64; align = 8; signed = false; }} := uint64_t;
        typealias integer {{ size = 64; align = 8; signed = false; map = clock.c.value; }} := time_t;
        typealias integer {{ size = {bits}; align = 8; signed = false; map = clock.c.value; }} := short_t;
        trace {{ major = 1; minor = 8; byte_order = {order};
                 packet.header := struct {{ uint32_t magic; uint32_t stream_id; }}; }};
        clock {{ name = c; {clock} }};
        clock {{ name = other; freq = 1000; offset_s = 77; }};
        stream {{ id = 0;
            packet.context := struct {{ time_t timestamp_begin; time_t timestamp_end; uint64_t content_size;
                                        uint64_t packet_size; }};
            event.header := struct {{ uint32_t id; short_t timestamp; }}; }};
        event {{ name = e; id = 0; stream_id = 0; fields := struct {{ uint32_t v; }}; }};"
    )
}

const CLOCK: &str = "freq = 1000000000; offset_s = 1000;";

/// Layout of integers.
#[derive(Clone, Copy)]
struct Layout {
    big: bool,
    bits: u32,
}

const LITTLE: Layout = Layout { big: false, bits: 64 };

impl Layout {
    fn put(self, value: u64, bits: u32, bytes: &mut Vec<u8>) {
        let size = (bits / 8) as usize;
        match self.big {
            true => bytes.extend_from_slice(&value.to_be_bytes()[8 - size..]),
            false => bytes.extend_from_slice(&value.to_le_bytes()[..size]),
        }
    }

    /// Creates a packet of events at these times, with the values 1, 2, 3, …
    fn packet(self, times: &[u64], (begin, end): (u64, u64)) -> Vec<u8> {
        let mut bytes = Vec::new();
        let content = 40 + times.len() as u64 * u64::from(4 + self.bits / 8 + 4);
        [0xc1fc_1fc1, 0].iter().for_each(|&word| self.put(word, 32, &mut bytes));
        [begin, end, content * 8, content * 8].iter().for_each(|&word| self.put(word, 64, &mut bytes));
        for (&time, value) in times.iter().zip(1..) {
            self.put(0, 32, &mut bytes);
            self.put(time, self.bits, &mut bytes);
            self.put(value, 32, &mut bytes);
        }
        bytes
    }

    /// Splits a description into packets of 256 bytes.
    fn packets(self, text: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        for part in text.as_bytes().chunks(200) {
            let begin = bytes.len();
            self.put(0x75d1_1d57, 32, &mut bytes);
            bytes.extend_from_slice(&[0; 16]);
            [0, (37 + part.len() as u64) * 8, 256 * 8].iter().for_each(|&it| self.put(it, 32, &mut bytes));
            bytes.extend_from_slice(&[0, 0, 0, 1, 8]);
            bytes.extend_from_slice(part);
            bytes.resize(begin + 256, 0);
        }
        bytes
    }
}

/// Returns nanoseconds since the clock's offset and values, as `time:value`.
fn shown(traces: &mut TraceSet) -> String {
    let time = TimeFormat { clock: ClockFormat::Seconds, utc: true, ..TimeFormat::default() };
    let options = PrintOptions { time, no_delta: true, ..PrintOptions::default() };
    let mut output = Vec::new();
    text::print(traces, &options, &mut output).unwrap();
    let text = String::from_utf8(output).unwrap();
    let short = |line: &str| {
        let (time, value) = line.strip_prefix('[')?.strip_suffix(" }")?.split_once("] e: { v = ")?;
        Some(format!("{}:{value}", time.replacen("1000.", "", 1).trim_start_matches('0')))
    };
    text.lines().map(|line| short(line).unwrap_or_else(|| line.into())).collect::<Vec<_>>().join(" ")
}

fn opened(folder: &Path) -> TraceSet {
    open(&[folder.to_owned()]).unwrap()
}

fn of(name: &str, stream: &[u8]) -> (Folder, TraceSet) {
    let folder = Folder::new(name, description("le", CLOCK, 64).as_bytes(), stream);
    let traces = opened(&folder.0);
    (folder, traces)
}

#[test]
fn timestamp_regressions_are_read_and_reported() {
    let stream = [LITTLE.packet(&[100, 90, 200], (80, 200)), LITTLE.packet(&[150, 300], (150, 300))].concat();
    let (folder, mut traces) = of("back", &stream);
    assert_eq!(shown(&mut traces), "100:1 90:2 200:3 150:1 300:2");
    assert_eq!(traces.corruptions(), []);
    let reported: Vec<String> = traces.timestamp_regressions().map(ToString::to_string).collect();
    let expected = "stream: byte 56: time goes back in this stream, 2 times by up to 0.000000050 s";
    assert_eq!(reported, [folder.0.join(expected).display().to_string()]);
    let summary = tompion_reader::stat::summarize(&mut opened(&folder.0));
    assert_eq!(summary.timestamp_regressions, reported);
    // A time range selects all events within it.
    let mut traces = opened(&folder.0);
    traces.select(Selection { to: Some(1_000_000_000_095), ..Selection::default() });
    assert_eq!(shown(&mut traces), "90:2");
    let (_folder, mut traces) = of("forth", &LITTLE.packet(&[100, 100, 200], (80, 200)));
    assert_eq!(
        (shown(&mut traces).as_str(), traces.timestamp_regressions().count()),
        ("100:1 100:2 200:3", 0)
    );
}

#[test]
fn times_in_corrupt_bytes_do_not_affect_the_order() {
    // An event at a remote time, then an invalid one. Another stream continues meanwhile.
    let mut damaged = LITTLE.packet(&[100, 1 << 50, 110], (80, 120));
    let last = damaged.len() - 16;
    damaged[last] = 9;
    let stream = [damaged, LITTLE.packet(&[200, 300], (200, 300))].concat();
    let (folder, _) = of("far", &stream);
    fs::write(folder.0.join("other"), LITTLE.packet(&[105, 205, 305], (80, 310))).unwrap();
    let mut traces = opened(&folder.0);
    let far = "1126899.906842624:2";
    let expected = format!("100:1 {far} 105:1 200:1 205:2 300:2 305:3").replace("1126899", "1126899");
    assert_eq!(shown(&mut traces), expected);
    assert_eq!((traces.corruptions().len(), traces.timestamp_regressions().count()), (1, 0));
    let summary = tompion_reader::stat::summarize(&mut opened(&folder.0));
    assert_eq!((summary.events, summary.timestamp_regressions.len()), (7, 0));
    // Without corruption, the packet's end is wrong.
    let (folder, _) = of("late", &LITTLE.packet(&[100, 1 << 50], (80, 120)));
    fs::write(folder.0.join("other"), LITTLE.packet(&[105], (80, 310))).unwrap();
    assert_eq!(shown(&mut opened(&folder.0)), format!("100:1 105:1 {far}"));
}

#[test]
fn a_growing_trace_is_printed_incrementally() {
    let (folder, _) = of("growing", &[]);
    let description = fs::read(folder.0.join("metadata")).unwrap();
    fs::remove_file(folder.0.join("metadata")).unwrap();
    let first = LITTLE.packet(&[100, 200], (80, 250));
    let second = [LITTLE.packet(&[300, 500], (300, 500)), LITTLE.packet(&[1000], (900, 1000))].concat();
    let other = LITTLE.packet(&[150, 400, 450], (80, 450));
    let write = |name: &str, bytes: &[u8]| fs::write(folder.0.join(name), bytes).unwrap();
    let time = TimeFormat { clock: ClockFormat::Seconds, utc: true, ..TimeFormat::default() };
    let format = follow::Format::Text(PrintOptions { time, ..PrintOptions::default() });
    let mut follow = follow::Follow::new(std::slice::from_ref(folder.0.path()), Selection::default());
    let (mut text, mut counts) = (Vec::new(), Vec::new());
    let mut round = |is_last| {
        let found = follow.round(is_last, &format, &mut text).unwrap();
        assert_eq!((found.corruptions.len(), found.losses.len()), (0, 0));
        counts.push(found.events);
    };
    // No description, half of one, all of it without a complete packet.
    round(false);
    write("metadata", &description[..description.len() / 2]);
    round(false);
    write("metadata", &description);
    write("stream", &first[..first.len() - 1]);
    round(false);
    // One stream is ahead of the other; the next packet is incomplete.
    write("stream", &[&first[..], &second[..50]].concat());
    round(false);
    round(false);
    write("other", &other);
    write("stream", &[&first[..], &second[..]].concat());
    round(false);
    round(false);
    round(true);
    assert_eq!(counts, [0, 0, 0, 0, 2, 1, 5, 0]);
    let text = String::from_utf8(text).unwrap();
    let times: Vec<&str> = text.lines().map(|line| &line[8..34]).collect();
    let expected =
        ["100] (+?.?", "200] (+0.0", "150] (+-0.0", "300] (+0.0", "400] (+0.0", "450] (+0.0", "500] (+0.0"];
    assert!(times.len() == 8, "{text}");
    for (time, expected) in times.iter().zip(expected) {
        assert!(time.contains(expected), "{text}");
    }
}

#[test]
fn short_timestamps_continue_after_an_overflow() {
    let layout = Layout { bits: 32, ..LITTLE };
    let begin = (5 << 32) - 10;
    let stream = layout.packet(&[0xffff_fffb, 3, 7], (begin, (5 << 32) + 7));
    let folder = Folder::new("wrap", description("le", CLOCK, 32).as_bytes(), &stream);
    let mut traces = opened(&folder.0);
    assert_eq!(shown(&mut traces), "1021.474836475:1 1021.474836483:2 1021.474836487:3");
    assert_eq!(traces.timestamp_regressions().count(), 0);
}

#[test]
fn clocks_may_have_any_offset() {
    for (clock, expected) in [
        ("freq = 4; offset_s = -30; offset = 2;", -4_500_000_000),
        ("freq = 1000000000; offset_s = -1;", -999_999_900),
        ("freq = 18446744073709551614;", 0),
        ("freq = 1; offset_s = 9223372036854775807;", i64::MAX),
    ] {
        let stream = LITTLE.packet(&[100], (1, 100));
        let folder = Folder::new("offset", description("le", clock, 64).as_bytes(), &stream);
        let mut traces = opened(&folder.0);
        assert_eq!(traces.next_event().and_then(|event| event.timestamp()), Some(expected), "{clock}");
    }
    let folder = Folder::new("zero", description("le", "freq = 0;", 64).as_bytes(), &[]);
    let error = open(std::slice::from_ref(folder.0.path())).err().unwrap().to_string();
    assert!(error.contains("clock c has the frequency 0, line "), "{error}");
}

#[test]
fn both_byte_orders_are_read_with_descriptions_in_packets_of_either() {
    let big = Layout { big: true, ..LITTLE };
    for (name, order, stream, metadata) in [
        ("le", "le", LITTLE, LITTLE),
        ("be", "be", big, big),
        ("le-be", "le", LITTLE, big),
        ("be-le", "be", big, LITTLE),
    ] {
        let metadata = metadata.packets(&description(order, CLOCK, 64));
        let folder = Folder::new(name, &metadata, &stream.packet(&[100, 200], (80, 200)));
        assert_eq!(shown(&mut opened(&folder.0)), "100:1 200:2", "{name}");
    }
}

#[test]
fn complete_packets_of_a_file_are_read() {
    let packet = LITTLE.packet(&[100, 200], (80, 200));
    let cases: [(&str, Vec<u8>, &str, usize); 7] = [
        ("empty", vec![], "", 0),
        ("header", packet[..30].to_vec(), "", 1),
        ("event", packet[..packet.len() - 3].to_vec(), "100:1", 1),
        ("zeros", [&packet[..], &[0; 512]].concat(), "100:1 200:2", 1),
        ("noise", [&[7; 512], &packet[..]].concat(), "100:1 200:2", 1),
        ("twice", [&packet[..], &packet[..30], &packet[..]].concat(), "100:1 200:2 100:1 200:2", 1),
        // A crash leaves no time for the end of packets.
        (
            "ends",
            [LITTLE.packet(&[100], (80, 0)), LITTLE.packet(&[300], (250, 0))].concat(),
            "100:1 300:1",
            0,
        ),
    ];
    for (name, stream, expected, corruptions) in cases {
        let (_folder, mut traces) = of(name, &stream);
        assert_eq!(shown(&mut traces), expected, "{name}");
        assert_eq!(traces.corruptions().len(), corruptions, "{name}: {:?}", traces.corruptions());
    }
}
