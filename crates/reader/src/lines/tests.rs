//! Any number of threads writes what one writes: sound streams and odd ones, whole and in part.

use std::fs;
use std::path::PathBuf;

use super::print_with;
use crate::text::{self, ClockFormat, PrintOptions, TimeFormat};
use crate::{Selection, TraceSet, open};

/// A stream class with short times, and one without sizes or times of packets.
const METADATA: &str = r#"/* CTF 1.8 */
typealias integer { size = 64; map = clock.c.value; } := time_t;
trace { major = 1; minor = 8; byte_order = le; uuid = "01010101-0101-0101-0101-010101010101";
    packet.header := struct { integer { size = 32; } magic; integer { size = 8; } uuid[16];
        integer { size = 8; } stream_id; integer { size = 8; } stream_instance_id; }; };
clock { name = c; freq = 1000000000; offset_s = 1000; };
stream { id = 0; packet.context := struct { time_t timestamp_begin; time_t timestamp_end;
        integer { size = 32; } content_size; integer { size = 32; } packet_size;
        integer { size = 32; } events_discarded; integer { size = 8; } cpu_id; };
    event.header := struct { integer { size = 8; } id; integer { size = 16; map = clock.c.value; } timestamp; }; };
stream { id = 1; event.header := struct { integer { size = 8; } id; time_t timestamp; }; };
event { id = 7; stream_id = 0; name = "a:seven"; fields := struct { integer { size = 16; } n; string s; }; };
event { id = 8; stream_id = 0; name = "b:eight"; fields := struct { integer { size = 16; } n; }; };
event { id = 9; stream_id = 1; name = "b:nine"; fields := struct { integer { size = 16; } n; }; };
"#;

/// xorshift64
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// What is odd in a stream.
#[derive(Clone, Copy, PartialEq)]
enum Odd {
    Nothing,
    /// Now and then an event has an impossible number.
    Damage,
    /// Every packet is damaged.
    AllDamaged,
    /// Now and then a packet begins before the one before it.
    Back,
    /// Packets never end.
    NoEnd,
    /// Packets claim to have ended before their last events.
    EarlyEnd,
    /// Every packet begins and ends in the same moment, as do its events.
    Still,
}

fn put(value: u64, size: usize, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&value.to_le_bytes()[..size]);
}

fn header(class: u64, instance: u64) -> Vec<u8> {
    let mut bytes = 0xc1fc_1fc1u32.to_le_bytes().to_vec();
    bytes.extend([1; 16]);
    put(class, 1, &mut bytes);
    put(instance, 1, &mut bytes);
    bytes
}

/// A stream of so many packets of different sizes.
fn stream(instance: u64, packets: u64, odd: Odd) -> Vec<u8> {
    let mut random = Random(instance * 77 + 5);
    let (mut bytes, mut time, mut lost) = (Vec::new(), random.below(90_000), 0);
    for packet in 0..packets {
        if odd == Odd::Back && packet % 11 == 5 {
            time -= random.below(time.min(60_000));
        }
        let (begin, mut events) = (time, Vec::new());
        for number in 0..1 + random.below(250) {
            time += if odd == Odd::Still { 0 } else { random.below(900) };
            let is_bad =
                odd == Odd::AllDamaged && number == 3 || odd == Odd::Damage && random.below(900) == 0;
            let class = if is_bad { 99 } else { 7 + random.below(2) };
            put(class, 1, &mut events);
            put(time, 2, &mut events);
            put(number, 2, &mut events);
            events.extend_from_slice(if class == 7 {
                &b"some text\0"[random.below(9) as usize..]
            } else {
                b""
            });
        }
        lost += u64::from(random.below(9) == 0) * random.below(50);
        let end = match odd {
            Odd::NoEnd => 0,
            Odd::EarlyEnd => time - (time - begin) / 3,
            _ => time,
        };
        bytes.extend(header(0, instance));
        put(begin, 8, &mut bytes);
        put(end, 8, &mut bytes);
        let content = (22 + 29 + events.len()) as u64;
        let size = content + random.below(40);
        [content * 8, size * 8, lost].iter().for_each(|&it| put(it, 4, &mut bytes));
        put(instance, 1, &mut bytes);
        bytes.extend(events);
        bytes.resize(bytes.len() + (size - content) as usize, 0xaa);
    }
    bytes
}

/// A stream of one packet that says nothing of itself.
fn plain(instance: u64, events: u64) -> Vec<u8> {
    let mut bytes = header(1, instance);
    for number in 0..events {
        bytes.push(9);
        put(number * 5000, 8, &mut bytes);
        put(number, 2, &mut bytes);
    }
    bytes
}

/// A folder with these streams, removed with its owner.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, streams: &[Vec<u8>]) -> Self {
        let path = std::env::temp_dir().join(format!("tompion-lines-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("metadata"), METADATA).unwrap();
        for (number, stream) in streams.iter().enumerate() {
            fs::write(path.join(format!("stream{number}")), stream).unwrap();
        }
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The text of all events, and what there is to be told of them.
fn printed(mut traces: TraceSet, options: &PrintOptions, threads: usize) -> (String, String) {
    let mut text = Vec::new();
    let new = text::lines(&mut traces, options);
    let events = print_with(&mut traces, &new, threads, &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert_eq!(text.lines().count() as u64, events);
    assert!(traces.next_event().is_none());
    let disorders: Vec<_> = traces.disorders().collect();
    let told = format!("{:#?}\n{:#?}\n{disorders:#?}", traces.losses(), traces.damages());
    (text, told)
}

/// Holds two and three threads against one, for several selections and options.
fn check(name: &str, streams: &[Vec<u8>]) {
    let folder = Folder::new(name, streams);
    let opened = |selection: &Selection| {
        let mut traces = open(std::slice::from_ref(&folder.0)).unwrap();
        traces.select(selection.clone());
        traces
    };
    let time = |clock| TimeFormat { clock, ..TimeFormat::default() };
    let options = [ClockFormat::Seconds, ClockFormat::Cycles]
        .map(|clock| PrintOptions { time: time(clock), ..PrintOptions::default() });
    let moment = |nanoseconds: i64| Some(1_000_000_000_000 + nanoseconds);
    let selections = [
        Selection::default(),
        Selection { events: vec!["b:*".into()], ..Selection::default() },
        Selection { from: moment(700_000), to: moment(1_900_000), ..Selection::default() },
        Selection { from: moment(900_000), ..Selection::default() },
    ];
    for selection in &selections {
        let told = crate::stat::summarize(&mut opened(selection)).disorders;
        let mut traces = opened(selection);
        while traces.step() {}
        let mut found: Vec<String> = traces.disorders().map(ToString::to_string).collect();
        found.sort_unstable();
        assert_eq!(told, found, "{name}: {selection:?}");
        for options in &options {
            let (text, told) = printed(opened(selection), options, 1);
            for threads in [2, 3] {
                let (found, found_told) = printed(opened(selection), options, threads);
                let place = text.lines().zip(found.lines()).position(|(one, many)| one != many);
                assert!(text == found, "{name}: {threads} threads, {selection:?}, line {place:?}");
                let place = told.lines().zip(found_told.lines()).find(|(one, many)| one != many);
                assert!(told == found_told, "{name}: {threads} threads, {selection:?}, {place:?}");
            }
        }
    }
}

#[test]
fn sound_streams() {
    check("sound", &[1, 2, 3].map(|instance| stream(instance, 60, Odd::Nothing)));
    check("one", &[stream(1, 100, Odd::Nothing)]);
    // One ends early, one has but one packet, one has neither sizes nor times of packets.
    check("ends", &[stream(1, 90, Odd::Nothing), stream(2, 9, Odd::Nothing), plain(1, 500), plain(2, 3000)]);
    check("still", &[stream(1, 40, Odd::Still), stream(2, 40, Odd::Nothing)]);
}

#[test]
fn odd_streams() {
    for (name, odd) in [
        ("damage", Odd::Damage),
        ("all-damaged", Odd::AllDamaged),
        ("back", Odd::Back),
        ("no-end", Odd::NoEnd),
        ("early-end", Odd::EarlyEnd),
    ] {
        check(name, &[stream(1, 60, odd), stream(2, 60, Odd::Nothing), stream(3, 40, odd)]);
    }
}

#[test]
fn too_much_damage() {
    check("given-up", &[stream(1, 1100, Odd::AllDamaged), stream(2, 60, Odd::Nothing)]);
}

#[test]
fn cut_and_empty_files() {
    let whole = stream(1, 50, Odd::Nothing);
    let cut = whole[..whole.len() * 3 / 5].to_vec();
    check("cut", &[cut, stream(2, 50, Odd::Nothing), Vec::new(), vec![0; 300]]);
}
