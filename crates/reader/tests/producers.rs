//! Peculiarities of other CTF producers, in traces with the layout of theirs. Each is read as by
//! babeltrace2, where that supports it.
//!
//! Real traces of most producers are tested in `corpus`; these traces have what those lack.

use std::fs;
use std::process::Command;

use tompion_reader::text::{ClockFormat, HeaderFields, PrintOptions, TimeFormat};
use tompion_reader::{TraceSet, open, stat, text};
use tompion_testing::TestDir;

const MAGIC: u32 = 0xc1fc_1fc1;
const UUID: &str = "2a6422d0-6cee-11e0-8c08-cb07d7b3a564";
const UUID_BYTES: [u8; 16] =
    [0x2a, 0x64, 0x22, 0xd0, 0x6c, 0xee, 0x11, 0xe0, 0x8c, 0x08, 0xcb, 0x07, 0xd7, 0xb3, 0xa5, 0x64];

/// Builder of a little-endian stream.
#[derive(Clone, Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn put(mut self, value: u64, size: usize) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes()[..size]);
        self
    }

    fn words(self, values: &[u64], size: usize) -> Self {
        values.iter().fold(self, |bytes, &value| bytes.put(value, size))
    }

    fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn aligned(mut self, to: usize) -> Self {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
        self
    }

    fn magic(self) -> Self {
        self.put(MAGIC.into(), 4)
    }

    /// Writes the packet's size in bits at these positions, once it is known.
    fn sized(mut self, places: &[usize]) -> Self {
        let size = (self.0.len() as u64 * 8).to_le_bytes();
        places.iter().for_each(|&place| self.0[place..place + 8].copy_from_slice(&size));
        self
    }
}

/// Trace in a folder that is removed on drop.
struct TestTrace(TestDir);

impl TestTrace {
    fn new(name: &str, metadata: &str, streams: &[(&str, &Bytes)]) -> Self {
        let folder = TestDir::new(&format!("producer-{name}"));
        fs::write(folder.join("metadata"), metadata).unwrap();
        for (file, bytes) in streams {
            fs::write(folder.join(file), &bytes.0).unwrap();
        }
        Self(folder)
    }

    fn opened(&self) -> TraceSet {
        open(std::slice::from_ref(self.0.path())).unwrap()
    }

    /// Returns the text with times in seconds, and the corruptions.
    fn text(&self) -> (String, Vec<String>) {
        let mut traces = self.opened();
        let time = TimeFormat { clock: ClockFormat::Seconds, utc: true, ..TimeFormat::default() };
        let options =
            PrintOptions { time, no_delta: true, fields: HeaderFields::NONE, ..PrintOptions::default() };
        let mut output = Vec::new();
        text::print(&mut traces, &options, &mut output).unwrap();
        let corruptions = traces.corruptions().iter().map(|corruption| corruption.message.clone()).collect();
        (String::from_utf8(output).unwrap(), corruptions)
    }

    /// Asserts that these are the lines, that nothing is corrupt, and that babeltrace2 prints the
    /// same.
    fn is(&self, expected: &[&str]) {
        let (text, corruptions) = self.text();
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
        assert_eq!(corruptions, [""; 0]);
        assert_eq!(stat::summarize(&mut self.opened()).events, expected.len() as u64);
        let mut command = Command::new("babeltrace2");
        command.args(["--clock-seconds", "--clock-gmt", "--no-delta", "--fields="]).arg(self.0.path());
        match command.output() {
            Ok(theirs) => assert_eq!(String::from_utf8_lossy(&theirs.stdout), text),
            Err(_) => println!("not compared: babeltrace2 is not installed"),
        }
    }
}

/// `perf data convert --to-ctf`: contexts are among the fields, numbers are aligned to bits, the
/// packet's times have no clock, and call chains and raw data are sequences.
const PERF: &str = r#"/* CTF 1.8 */
trace { major = 1; minor = 8; uuid = "2a6422d0-6cee-11e0-8c08-cb07d7b3a564"; byte_order = le;
    packet.header := struct {
        integer { size = 32; align = 8; signed = false; encoding = none; base = decimal; byte_order = le; } magic;
        integer { size = 8; align = 8; signed = false; encoding = none; base = decimal; byte_order = le; } uuid[16];
        integer { size = 32; align = 8; signed = false; encoding = none; base = decimal; byte_order = le; } stream_id;
    } align(8); };
env { host = "box"; sysname = "Linux"; release = "6.1.0"; version = "6.1"; machine = "x86_64"; domain = "kernel";
    tracer_name = "perf"; };
clock { name = perf_clock; uuid = "feb610dc-c9fe-409d-bf67-5602768f258e"; description = "perf clock";
    freq = 1000000000; precision = 10; offset_s = 0; offset = 0; absolute = FALSE; };
typealias integer { size = 64; align = 8; signed = false; } := stamp_t;
typealias integer { size = 64; align = 1; signed = false; base = hexadecimal; } := hex64_t;
typealias integer { size = 32; align = 1; signed = false; base = hexadecimal; } := hex32_t;
typealias integer { size = 64; align = 1; signed = false; } := u64_t;
typealias integer { size = 32; align = 1; signed = false; } := u32_t;
typealias integer { size = 32; align = 1; signed = true; } := s32_t;
stream { id = 0;
    event.header := struct {
        integer { size = 32; align = 8; signed = false; } id;
        integer { size = 64; align = 8; signed = false; map = clock.perf_clock.value; } timestamp;
    } align(8);
    packet.context := struct { stamp_t timestamp_begin; stamp_t timestamp_end; stamp_t content_size;
        stamp_t packet_size; stamp_t events_discarded; integer { size = 32; align = 1; signed = false; } cpu_id;
    } align(8); };
event { id = 0; name = "cycles:u"; stream_id = 0; fields := struct { hex64_t perf_ip; s32_t perf_tid; s32_t perf_pid;
    u64_t perf_period; u32_t perf_callchain_size; hex64_t perf_callchain[perf_callchain_size]; } align(1); };
event { id = 1; name = "evt:bpf"; stream_id = 0; fields := struct { s32_t perf_tid; u32_t raw_len;
    hex32_t raw_data[raw_len]; } align(1); };
event { id = 2; name = "perf_comm"; stream_id = 0; fields := struct { u32_t pid; u32_t tid;
    string { encoding = UTF8; } comm; } align(1); };
"#;

#[test]
fn perf_converted() {
    let header = |id: u64, time: u64| Bytes::default().put(id, 4).put(time, 8).0;
    let stream = Bytes::default().magic().raw(&UUID_BYTES).put(0, 4);
    let stream = stream.words(&[1_000, 9_000, 0, 0, 0], 8).put(3, 4);
    let stream = stream.raw(&header(2, 1_000)).words(&[7, 8], 4).raw(b"find\0");
    let stream = stream.raw(&header(0, 2_000)).put(0xffff_ffff_8100_0010, 8).words(&[8, 7], 4);
    let stream = stream.put(100, 8).put(2, 4).words(&[0xffff_ffff_ffff_fe00, 0x40_1000], 8);
    let stream = stream.raw(&header(1, 9_000)).words(&[8, 3, 0xdead_beef, 0, 5], 4);
    let made = TestTrace::new("perf", PERF, &[("perf_stream_0", &stream.sized(&[40, 48]))]);
    made.is(&[
        "[0.000001000] perf_comm: { cpu_id = 3 }, { pid = 7, tid = 8, comm = \"find\" }",
        "[0.000002000] cycles:u: { cpu_id = 3 }, { perf_ip = 0xFFFFFFFF81000010, perf_tid = 8, perf_pid = 7, \
         perf_period = 100, perf_callchain_size = 2, perf_callchain = [ [0] = 0xFFFFFFFFFFFFFE00, [1] = 0x401000 ] }",
        "[0.000009000] evt:bpf: { cpu_id = 3 }, { perf_tid = 8, raw_len = 3, raw_data = [ [0] = 0xDEADBEEF, \
         [1] = 0x0, [2] = 0x5 ] }",
    ]);
}

/// DPDK's trace library: one packet per file without size or times, no stream number, a quoted
/// clock name, 48 bits of time before the event's number, headers aligned to 64 bits, numbers
/// padded with spaces.
const DPDK: &str = r#"/* CTF 1.8 */
typealias integer {size = 8; base = x;}:= uint8_t;
typealias integer {size = 16; base = x;} := uint16_t;
typealias integer {size = 32; base = x;} := uint32_t;
typealias integer {size = 64; base = x;} := uint64_t;
typealias integer {size = 32; signed = true;} := int32_t;
typealias integer {size = 64; base = x;} := uintptr_t;
typealias integer {size = 64; base = x;} := long;
typealias integer {size = 8; signed = false; encoding = ASCII; } := string_bounded_t;
typealias integer {size = 64; base = x;} := size_t;
typealias floating_point { exp_dig = 8; mant_dig = 24; } := float;
typealias floating_point { exp_dig = 11; mant_dig = 53; } := double;
trace { major = 1; minor = 8; uuid = "2a6422d0-6cee-11e0-8c08-cb07d7b3a564"; byte_order = le;
    packet.header := struct { uint32_t magic; uint8_t  uuid[16]; }; };
env { dpdk_version = "DPDK 24.11.0"; tracer_name = "dpdk"; };
clock { name = "dpdk"; freq =           2000000000; offset_s =           1700000000; offset =            500; };
typealias integer { size = 48; align = 1; signed = false; map = clock.dpdk.value; } := uint48_clock_dpdk_t;
stream {
    packet.context := struct { uint32_t cpu_id; string_bounded_t name[32]; };
    event.header := struct { uint48_clock_dpdk_t timestamp; uint16_t id; } align(64); };
event { id = 0; name = "lib.eal.generic.float"; fields := struct { float in; }; };
event { id = 1; name = "lib.eal.mem.zmalloc"; fields := struct { string_bounded_t type[32]; size_t size;
    uint32_t _align; int32_t socket; uintptr_t ptr; }; };
event { id = 512; name = "lib.eal.generic.void"; fields := struct { }; };
"#;

#[test]
fn dpdk() {
    let named = |name: &str| Bytes::default().raw(name.as_bytes()).aligned(32).0;
    let header = |id: u64, time: u64| Bytes::default().put(id << 48 | time, 8).0;
    let stream = Bytes::default().magic().raw(&UUID_BYTES).put(2, 4).raw(&named("lcore/2"));
    let stream = stream.aligned(8).raw(&header(1, 100)).raw(&named("rte_ring")).put(4096, 8);
    let stream = stream.words(&[64, u64::MAX], 4).put(0x1_0020_0000, 8);
    let stream = stream.aligned(8).raw(&header(0, 1 << 40)).put(1.5f32.to_bits().into(), 4);
    // The clock's 48 bits have wrapped around.
    let stream = stream.aligned(8).raw(&header(512, 50));
    let made = TestTrace::new("dpdk", DPDK, &[("channel0_2", &stream)]);
    made.is(&[
        "[1700000000.000000300] lib.eal.mem.zmalloc: { cpu_id = 0x2, name = \"lcore/2\" }, { type = \"rte_ring\", \
         size = 0x1000, align = 0x40, socket = -1, ptr = 0x100200000 }",
        "[1700000549.755814138] lib.eal.generic.float: { cpu_id = 0x2, name = \"lcore/2\" }, { in = 1.5 }",
        "[1700140737.488355603] lib.eal.generic.void: { cpu_id = 0x2, name = \"lcore/2\" }, { }",
    ]);
}

/// Kernel tracer of LTTng 2.0 to 2.5 with a single channel: no stream number, system calls without
/// `entry`, all exits with one name. Without a UUID in the description, packets have none either.
fn old_lttng(uuid: Option<&str>, header: &str) -> String {
    let uuid = uuid.map(|uuid| format!("uuid = \"{uuid}\";")).unwrap_or_default();
    format!(
        r#"/* CTF 1.8 */
typealias integer {{ size = 8; align = 8; signed = false; }} := uint8_t;
typealias integer {{ size = 32; align = 32; signed = false; }} := uint32_t;
typealias integer {{ size = 64; align = 64; signed = false; }} := uint64_t;
typealias integer {{ size = 64; align = 64; signed = false; }} := unsigned long;
typealias integer {{ size = 5; align = 1; signed = false; }} := uint5_t;
trace {{ major = 1; minor = 8; {uuid} byte_order = le; packet.header := struct {{ {header} }}; }};
env {{ domain = "kernel"; sysname = "Linux"; kernel_release = "3.2.0"; tracer_name = "lttng-modules";
    tracer_major = 2; tracer_minor = 0; tracer_patchlevel = 0; }};
clock {{ name = monotonic; description = "Monotonic Clock"; freq = 1000000000; offset = 1351532897586558519; }};
typealias integer {{ size = 27; align = 1; signed = false; map = clock.monotonic.value; }} := uint27_clock_t;
typealias integer {{ size = 64; align = 64; signed = false; map = clock.monotonic.value; }} := uint64_clock_t;
struct packet_context {{ uint64_clock_t timestamp_begin; uint64_clock_t timestamp_end; uint64_t content_size;
    uint64_t packet_size; unsigned long events_discarded; uint32_t cpu_id; }};
struct event_header_compact {{
    enum : uint5_t {{ compact = 0 ... 30, extended = 31 }} id;
    variant <id> {{ struct {{ uint27_clock_t timestamp; }} compact;
        struct {{ uint32_t id; uint64_clock_t timestamp; }} extended; }} v;
}} align(32);
stream {{ event.header := struct event_header_compact; packet.context := struct packet_context; }};
event {{ name = sys_open; id = 0; fields := struct {{ string filename;
    integer {{ size = 32; align = 32; signed = true; }} flags; }}; }};
event {{ name = exit_syscall; id = 1; fields := struct {{ integer {{ size = 64; align = 64; signed = true; }} _ret; }}; }};
event {{ name = "sched_switch"; id = 33; fields := struct {{ uint8_t __prev_comm[2]; uint32_t _next_tid; }}; }};
"#
    )
}

/// Creates the packets of [`old_lttng`]'s stream: the header of each, and the end time and claimed
/// size of the second one.
fn old_lttng_stream(header: &Bytes, end: u64, size: Option<u64>) -> Bytes {
    let begin = |header: &Bytes, begin: u64, end: u64| {
        let stream = header.clone().aligned(8);
        let sizes = [stream.0.len() + 16, stream.0.len() + 24];
        (stream.words(&[begin, end, 0, 0, 4], 8).put(1, 4), sizes)
    };
    let compact = |id: u64, time: u64| id | time << 5;
    let (first, sizes) = begin(header, 100, 400);
    let first = first.put(compact(0, 100), 4).raw(b"/etc/passwd\0").aligned(4).put(0o2_000_000, 4);
    let first = first.put(compact(1, 300), 4).aligned(8).put(u64::MAX - 1, 8).sized(&sizes);
    let (second, sizes) = begin(header, 400, end);
    let second = second.put(31, 4).put(33, 4).aligned(8).put(1 << 40, 8).raw(b"sh").aligned(4).put(77, 4);
    let mut second = second.aligned(8).sized(&sizes);
    if let Some(size) = size {
        sizes.iter().for_each(|&place| second.0[place..place + 8].copy_from_slice(&size.to_le_bytes()));
    }
    first.aligned(8).raw(&second.0)
}

const OLD_LTTNG_LINES: [&str; 3] = [
    "[1351532897.586558619] sys_open: { cpu_id = 1 }, { filename = \"/etc/passwd\", flags = 524288 }",
    "[1351532897.586558819] exit_syscall: { cpu_id = 1 }, { ret = -2 }",
    "[1351533997.098186295] sched_switch: { cpu_id = 1 }, { _prev_comm = [ [0] = 115, [1] = 104 ], next_tid = 77 }",
];

#[test]
fn old_lttng_modules() {
    let with_uuid = Bytes::default().magic().raw(&UUID_BYTES);
    let stream = old_lttng_stream(&with_uuid, 1 << 40, None);
    let metadata = old_lttng(Some(UUID), "uint32_t magic; uint8_t uuid[16];");
    TestTrace::new("old-lttng", &metadata, &[("channel0_0", &stream)]).is(&OLD_LTTNG_LINES);

    let stream = old_lttng_stream(&Bytes::default().magic(), 1 << 40, None);
    let metadata = old_lttng(None, "uint32_t magic;");
    TestTrace::new("old-lttng-plain", &metadata, &[("channel0_0", &stream)]).is(&OLD_LTTNG_LINES);
}

#[test]
fn lttng_crash() {
    let header = Bytes::default().magic().raw(&UUID_BYTES);
    let metadata = old_lttng(Some(UUID), "uint32_t magic; uint8_t uuid[16];");
    // Sizes are corrected when the rings are read out, the end time is not.
    let stream = old_lttng_stream(&header, 0, None);
    let made = TestTrace::new("crash", &metadata, &[("channel0_0", &stream)]);
    let (text, corruptions) = made.text();
    assert_eq!((text.lines().collect::<Vec<_>>(), corruptions.len()), (OLD_LTTNG_LINES.to_vec(), 0));
    // Uncorrected sizes don't tell where events end. The rest of the trace is read.
    for size in [0, u64::MAX] {
        let unset = old_lttng_stream(&header, 0, Some(size));
        let made =
            TestTrace::new("crash-unset", &metadata, &[("channel0_0", &unset), ("channel0_1", &stream)]);
        let (text, corruptions) = made.text();
        assert_eq!(text.lines().count(), 5, "{text}");
        assert_eq!(corruptions.len(), 1, "{corruptions:?}");
        let expected = "expected a packet of whole bytes with at least 544 bits";
        assert!(corruptions[0].starts_with(expected), "{corruptions:?}");
    }
}

/// barectf: packet numbers, times before event numbers, fields of any bit size in big-endian order,
/// and packets without events.
const BARECTF: &str = r#"/* CTF 1.8 */
trace { major = 1; minor = 8; byte_order = be; uuid = "2a6422d0-6cee-11e0-8c08-cb07d7b3a564";
    packet.header := struct {
        integer { signed = false; size = 32; align = 32; byte_order = be; base = 10; } magic;
        integer { signed = false; size = 8; align = 8; byte_order = be; base = 10; } uuid[16];
        integer { signed = false; size = 8; align = 8; byte_order = be; base = 10; } stream_id;
    } align(8); };
env { domain = "bare"; tracer_name = "barectf"; tracer_major = 3; tracer_minor = 1; tracer_patch = 0;
    barectf_gen_date = "2021-01-01T00:00:00"; };
clock { name = default; freq = 1000; precision = 0; offset_s = 10; offset = 0; absolute = false; };
stream { id = 0;
    packet.context := struct {
        integer { signed = false; size = 32; align = 8; } packet_size;
        integer { signed = false; size = 32; align = 8; } content_size;
        integer { signed = false; size = 32; align = 8; map = clock.default.value; } timestamp_begin;
        integer { signed = false; size = 32; align = 8; map = clock.default.value; } timestamp_end;
        integer { signed = false; size = 16; align = 8; } events_discarded;
        integer { signed = false; size = 8; align = 8; } packet_seq_num;
    } align(8);
    event.header := struct {
        integer { signed = false; size = 32; align = 8; map = clock.default.value; } timestamp;
        integer { signed = false; size = 8; align = 8; } id;
    } align(8); };
event { id = 0; stream_id = 0; name = "bit_packed_integers"; loglevel = 6; fields := struct {
    integer { signed = false; size = 3; align = 1; } uint3;
    integer { signed = true; size = 7; align = 1; } int7;
    enum : integer { signed = false; size = 2; align = 1; } { "NEW" = 0, "RUNNING" = 1 ... 2 } state;
    integer { signed = false; size = 12; align = 1; base = 16; } uint12;
    floating_point { exp_dig = 8; mant_dig = 24; align = 8; } f;
    string { encoding = UTF8; } str; } align(1); };
"#;

/// Creates a packet of 64 bytes of barectf's stream.
fn barectf_packet(number: u64, (begin, end): (u64, u64), discarded: u64, events: &[u8]) -> Bytes {
    let put = |mut bytes: Bytes, value: u64, size: usize| {
        bytes.0.extend_from_slice(&value.to_be_bytes()[8 - size..]);
        bytes
    };
    let content = (21 + 19 + events.len() as u64) * 8;
    let packet = put(Bytes::default(), MAGIC.into(), 4).raw(&UUID_BYTES).put(0, 1);
    let packet = [64 * 8, content, begin, end].iter().fold(packet, |packet, &word| put(packet, word, 4));
    put(put(packet, discarded, 2), number, 1).raw(events).aligned(64)
}

#[test]
fn barectf() {
    let event = |time: u8| {
        // 101 1111110 01 101010111100, then 1.25.
        [0, 0, 0, time, 0, 0b1011_1111, 0b1001_1010, 0b1011_1100, 0x3f, 0xa0, 0, 0, b'o', b'k', 0]
    };
    let stream = barectf_packet(0, (5, 20), 0, &event(9))
        .raw(&barectf_packet(1, (20, 30), 0, &[]).0)
        .raw(&barectf_packet(2, (30, 40), 0, &event(40)).0);
    let fields = "{ uint3 = 5, int7 = -2, state = ( \"RUNNING\" : container = 1 ), uint12 = 0xABC, f = 1.25, str = \"ok\" }";
    let lines =
        ["[10.009000000]", "[10.040000000]"].map(|time| format!("{time} bit_packed_integers: {fields}"));
    let made = TestTrace::new("barectf", BARECTF, &[("stream", &stream)]);
    made.is(&lines.each_ref().map(String::as_str));
    // An oversized file ends in zeros: its packets are read, and the rest is reported.
    let padded = TestTrace::new("barectf-padded", BARECTF, &[("stream", &stream.clone().raw(&[0; 256]))]);
    let (text, corruptions) = padded.text();
    assert_eq!(
        (text.lines().collect::<Vec<_>>(), corruptions.len()),
        (lines.iter().map(String::as_str).collect(), 1)
    );
    // Missing packets and discarded events are counted.
    let gap = barectf_packet(0, (5, 20), 2, &event(9)).raw(&barectf_packet(3, (30, 40), 5, &event(40)).0);
    let made = TestTrace::new("barectf-gap", BARECTF, &[("stream", &gap)]);
    let summary = stat::summarize(&mut made.opened());
    assert_eq!((summary.events, summary.lost.total, summary.lost_packets), (2, 5, 2));
}

#[test]
fn missing_and_empty_parts() {
    // Streams without a file, with an empty one, and empty folders, beside an intact one.
    let header = Bytes::default().magic();
    let stream = old_lttng_stream(&header, 1 << 40, None);
    let metadata = old_lttng(None, "uint32_t magic;");
    let made =
        TestTrace::new("missing", &metadata, &[("channel0_0", &stream), ("channel0_1", &Bytes::default())]);
    fs::create_dir_all(made.0.join("index")).unwrap();
    fs::create_dir_all(made.0.join("empty/index")).unwrap();
    let (text, corruptions) = made.text();
    assert_eq!((text.lines().collect::<Vec<_>>(), corruptions.len()), (OLD_LTTNG_LINES.to_vec(), 0));
    // A description alone is a trace without events.
    let made = TestTrace::new("nothing", &metadata, &[]);
    assert_eq!(made.text(), (String::new(), vec![]));
    assert_eq!(stat::summarize(&mut made.opened()).events, 0);
}
