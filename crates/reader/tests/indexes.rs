//! Index files speed up seeking, and never change the events that are read.

use std::fs;
use std::path::{Path, PathBuf};

use tompion_reader::text::{self, PrintOptions, TimeFormat};
use tompion_reader::{Selection, TraceSet, open};
use tompion_testing::{Random, TestDir};

const METADATA: &str = r#"/* CTF 1.8 */
typealias integer { size = 64; } := u64;
typealias integer { size = 64; map = clock.c.value; } := time_t;
trace { major = 1; minor = 8; byte_order = le; packet.header := struct { integer { size = 32; } magic;
    integer { size = 32; } stream_id; }; };
clock { name = c; freq = 1000; offset_s = 1000; };
stream { id = 4; packet.context := struct { time_t timestamp_begin; time_t timestamp_end; u64 content_size;
    u64 packet_size; u64 events_discarded; u64 packet_seq_num; u64 cpu_id; };
    event.header := struct { time_t timestamp; }; };
event { name = e; stream_id = 4; fields := struct { u64 n; }; };
"#;

const PACKETS: u64 = 200;

/// Trace with two streams in a folder that is removed on drop. Each packet covers a second, with an
/// event every tenth of it. Events were lost before every thirtieth packet.
struct TestTrace(TestDir);

impl TestTrace {
    fn new(name: &str, index_version: u32) -> Self {
        let folder = TestDir::new(&format!("indexed-{name}"));
        fs::create_dir_all(folder.join("index")).unwrap();
        fs::write(folder.join("metadata"), METADATA).unwrap();
        let made = Self(folder);
        for cpu in 0..2 {
            let (stream, index) = stream(cpu, index_version);
            fs::write(made.0.join(format!("channel_{cpu}")), stream).unwrap();
            fs::write(made.index(cpu), index).unwrap();
        }
        made
    }

    fn index(&self, cpu: u64) -> PathBuf {
        self.0.join(format!("index/channel_{cpu}.idx"))
    }

    fn opened(&self) -> TraceSet {
        open(std::slice::from_ref(self.0.path())).unwrap()
    }
}

/// Creates a stream and its index.
fn stream(cpu: u64, index_version: u32) -> (Vec<u8>, Vec<u8>) {
    let entry = if index_version == 0 { 56u32 } else { 72 };
    let mut index: Vec<u8> =
        [0xc1f1_dcc1, 1, index_version, entry].iter().flat_map(|word: &u32| word.to_be_bytes()).collect();
    let (mut stream, mut lost) = (Vec::new(), 0);
    for packet in 0..PACKETS {
        lost += u64::from(packet % 30 == 7) * (packet + cpu);
        let (begin, end) = (packet * 1000 + cpu, packet * 1000 + 950 + cpu);
        let size = (8 + 7 * 8 + 10 * 16 + packet % 3 * 8) * 8;
        let content = (8 + 7 * 8 + 10 * 16) * 8;
        let place = stream.len() as u64;
        let words = [place, size, content, begin, end, lost, 4, cpu, packet];
        index.extend(words.iter().flat_map(|word| word.to_be_bytes()).take(entry as usize));
        stream.extend(0xc1fc_1fc1u32.to_le_bytes());
        stream.extend(4u32.to_le_bytes());
        let context = [begin, end, content, size, lost, packet, cpu];
        stream.extend(context.iter().flat_map(|word| word.to_le_bytes()));
        for number in 0..10 {
            stream.extend((begin + number * 100).to_le_bytes());
            stream.extend((packet * 10 + number).to_le_bytes());
        }
        stream.resize((place + size / 8) as usize, 0);
    }
    (stream, index)
}

/// Returns text and losses from a time on.
fn printed(mut traces: TraceSet, from: i64) -> (String, String, usize) {
    traces.select(Selection { from: Some(from), ..Selection::default() });
    let mut text = Vec::new();
    let options =
        PrintOptions { time: TimeFormat { utc: true, ..TimeFormat::default() }, ..PrintOptions::default() };
    text::print(&mut traces, &options, &mut text).unwrap();
    let reported = format!("{:?} {:?}", traces.losses(), traces.corruptions());
    (String::from_utf8(text).unwrap(), reported, traces.index_problems().count())
}

/// Returns `1000 s` plus this many milliseconds.
fn moment(milliseconds: i64) -> i64 {
    1_000_000_000_000 + milliseconds * 1_000_000
}

const FROM: [i64; 5] = [-5, 30_020, 100_500, 198_950, 400_000];

fn without(folder: &Path) -> [(String, String, usize); 5] {
    fs::remove_dir_all(folder.join("index")).unwrap();
    FROM.map(|from| printed(open(&[folder.to_owned()]).unwrap(), moment(from)))
}

#[test]
fn an_index_does_not_change_the_output() {
    for version in [0, 1] {
        let made = TestTrace::new(&format!("sound{version}"), version);
        let with = FROM.map(|from| printed(made.opened(), moment(from)));
        let end = made.opened().end();
        let lines = with.each_ref().map(|(text, ..)| text.lines().count());
        assert_eq!(lines, [4000, 3398, 1990, 20, 0]);
        assert!(with.iter().all(|(.., problems)| *problems == 0));
        assert_eq!(with, without(&made.0));
        assert_eq!((end, made.opened().end()), (Some(moment(199_901)), Some(moment(199_901))));
    }
}

#[test]
fn packets_that_an_index_skips_are_not_read() {
    let made = TestTrace::new("passed", 1);
    let (stream, _) = stream(0, 1);
    let mut holey = stream.clone();
    // The skipped bytes may have any content. The losses are before other packets.
    holey[102 * 232..122 * 232].fill(0xee);
    fs::write(made.0.join("channel_0"), holey).unwrap();
    let (text, reported, problems) = printed(made.opened(), moment(198_950));
    assert_eq!((text.lines().count(), problems), (20, 0), "{reported}");
}

#[test]
fn a_wrong_index_is_reported_and_not_used() {
    let made = TestTrace::new("wrong", 1);
    let other = TestTrace::new("wrong-too", 1);
    let expected = without(&other.0);
    let sound = fs::read(made.index(0)).unwrap();
    let with = |bytes: &[u8]| {
        fs::write(made.index(0), bytes).unwrap();
        FROM.map(|from| printed(made.opened(), moment(from)))
    };
    let cases: [(&str, Vec<u8>, bool); 6] = [
        ("empty", vec![], true),
        ("no magic", vec![7; 500], true),
        ("a short one", sound[..sound.len() / 2 + 5].to_vec(), false),
        ("half an entry first", [&sound[..16], &sound[30..]].concat(), false),
        ("of another file", [&sound[..16], &sound[16 + 72..], &sound[16..16 + 72]].concat(), false),
        ("entries of no bytes", [&sound[..12], &[0; 4], &sound[16..]].concat(), true),
    ];
    let path = |trace: &TestTrace| trace.0.display().to_string();
    let place = |(text, reported, _): &(String, String, usize)| {
        (text.clone(), reported.replace(&path(&other), &path(&made)))
    };
    let expected = expected.each_ref().map(place);
    for (name, bytes, is_reported) in cases {
        let found = with(&bytes);
        let problems: usize = found.iter().map(|(.., problems)| problems).sum();
        assert!(found.each_ref().map(place) == expected, "{name}");
        assert!(!is_reported || problems > 0, "{name}");
    }
    // Events always come from the packets, whatever the index says.
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut reported = 0;
    for round in 0..120 {
        let mut bytes = sound.clone();
        for _ in 0..=round % 3 {
            let place = random.index(bytes.len());
            bytes[place] ^= 1 << random.index(8);
        }
        let found = with(&bytes);
        reported += found.iter().map(|(.., problems)| problems).sum::<usize>();
        assert!(found.each_ref().map(place) == expected, "round {round}");
    }
    assert!(reported > 30, "{reported}");
}
