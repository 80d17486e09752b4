//! Recordings whose packets were changed after they were written: no event is invented, whatever
//! byte was hit, and each changed packet is named.

use std::fs;
use std::path::Path;

use tompion_ctf::encode::{self, Origin, Plan, Record, Source, metadata, seal};
use tompion_ctf::metadata::{EnvironmentValue, Uuid};
use tompion_ctf::tsdl;
use tompion_reader::{Corruption, Event, PacketView, TraceSet, Visitor, open, stat};
use tompion_schema::{Event as Class, Field, Integer, Kind, Level, Type};
use tompion_testing::TestDir;

fn class() -> Class {
    Class {
        provider: "p".into(),
        name: "e".into(),
        level: Level::DEFAULT,
        kind: Kind::Instant,
        init: false,
        format: None,
        attributes: Default::default(),
        fields: vec![Field::new("number", Type::Integer(Integer::unsigned(64)))],
    }
}

fn source() -> Source {
    let producer = EnvironmentValue::from("tompion 0.1.0");
    Source {
        uuid: Uuid([7; 16]),
        environment: vec![("producer".into(), producer)],
        clock_uuid: None,
        clock_offset_ns: 0,
        clock_precision_ns: 1,
        numbers_streams: false,
        tid: true,
        context: Vec::new(),
    }
}

/// Creates a stream of packets with this many events each. Events are numbered from 1 on.
fn packets(events: &[u64]) -> Vec<Vec<u8>> {
    let (class, source) = (class(), source());
    let (plan, mut packet, mut number) = (Plan::new(&class), encode::Packet::new(&source), 0u64);
    let mut packets = Vec::new();
    for (sequence, &count) in events.iter().enumerate() {
        for _ in 0..count {
            number += 1;
            let payload = &number.to_le_bytes();
            let record = Record { id: 0, time: 1000 * number, tid: 5, context: &[], payload };
            packet.push(&record, &plan).unwrap();
        }
        let origin = Origin { sequence: sequence as u64, ..Origin::default() };
        packets.push(packet.finish(origin, 0, |bytes, info| {
            let mut bytes = bytes[..info.size as usize].to_vec();
            seal(&mut bytes);
            bytes
        }));
    }
    packets
}

fn recording(name: &str, packets: &[Vec<u8>]) -> TestDir {
    let path = TestDir::new(&format!("checksums-{name}"));
    let trace = metadata(&source(), &[class()]);
    fs::write(path.join("metadata"), tsdl::write(&trace)).unwrap();
    fs::write(path.join("stream_0"), packets.concat()).unwrap();
    path
}

fn number(event: &Event<'_>) -> u64 {
    event.field("number").unwrap().as_integer().unwrap() as u64
}

/// Events and corruptions that a reader found.
type Found = (Vec<u64>, Vec<Corruption>);

fn merged(path: &Path) -> Found {
    let mut traces = open(&[path.into()]).unwrap();
    let mut numbers = Vec::new();
    while let Some(event) = traces.next_event() {
        numbers.push(number(&event));
    }
    assert_eq!(traces.losses(), [], "a changed packet is not missing");
    (numbers, traces.corruptions().to_vec())
}

fn walked(path: &Path) -> Found {
    struct Numbers(Vec<u64>);
    impl Visitor for Numbers {
        type Error = std::convert::Infallible;
        fn file(&mut self, _: usize, _: usize, _: &Path) -> Result<(), Self::Error> {
            Ok(())
        }
        fn packet(&mut self, _: &PacketView<'_>) -> Result<bool, Self::Error> {
            Ok(true)
        }
        fn event(&mut self, event: &Event<'_>) -> Result<(), Self::Error> {
            self.0.push(number(event));
            Ok(())
        }
    }
    let mut traces: TraceSet = open(&[path.into()]).unwrap();
    let mut numbers = Numbers(Vec::new());
    let Ok(()) = traces.walk(&mut numbers);
    (numbers.0, traces.corruptions().to_vec())
}

/// Number of events, and corruptions as lines.
fn summarized(path: &Path) -> (u64, Vec<String>) {
    let summary = stat::summarize(&mut open(&[path.into()]).unwrap());
    (summary.events, summary.corruptions)
}

#[test]
fn packets_as_written_are_read_completely() {
    // The second packet is larger than what is read at once.
    let packets = packets(&[10, 40_000, 0, 10]);
    let folder = recording("intact", &packets);
    let all: Vec<u64> = (1..=40_020).collect();
    assert_eq!(merged(&folder), (all.clone(), vec![]));
    assert_eq!(walked(&folder), (all, vec![]));
    assert_eq!(summarized(&folder), (40_020, vec![]));
}

#[test]
fn no_flipped_bit_changes_an_event() {
    let packets = packets(&[3, 4, 3]);
    let written: Vec<u64> = (1..=10).collect();
    for byte in 0..packets[1].len() {
        for bit in 0..8 {
            let mut packets = packets.clone();
            packets[1][byte] ^= 1 << bit;
            let folder = recording("flipped", &packets);
            let (found, corruptions) = walked(&folder);
            let at = format!("byte {byte}, bit {bit}: {found:?} {corruptions:?}");
            assert!(
                !corruptions.is_empty() && corruptions.iter().all(|it| it.path.ends_with("stream_0")),
                "{at}"
            );
            assert!(found.iter().all(|number| written.contains(number)) && found.is_sorted(), "{at}");
            assert!(found.starts_with(&written[..3]) && found.ends_with(&written[7..]), "{at}");
        }
    }
}

#[test]
fn a_zeroed_page_invents_no_events() {
    let mut packets = packets(&[10, 40_000, 10]);
    let begin = packets[0].len() as u64;
    packets[1][8192..12288].fill(0);
    let size = packets[1].len();
    let folder = recording("zeroed", &packets);
    let expected: Vec<u64> = (1..=10).chain(40_011..=40_020).collect();
    let (found, corruptions) = merged(&folder);
    assert_eq!(found, expected);
    let [corruption] = &corruptions[..] else { panic!("{corruptions:?}") };
    assert_eq!(corruption.offset, Some(begin));
    let message = format!(
        "packet 1 of {size} bytes was changed after it was written: its checksum is wrong, so its events are \
         left out"
    );
    assert_eq!(corruption.message, message);
    let lines: Vec<String> = corruptions.iter().map(ToString::to_string).collect();
    assert_eq!(walked(&folder), (expected, corruptions));
    assert_eq!(summarized(&folder), (20, lines));
}

#[test]
fn copies_without_checksums_are_read() {
    let mut packets = packets(&[3, 4]);
    for packet in &mut packets {
        let content = packet.len() - encode::TRAILER_SIZE;
        packet.truncate(content);
        // The packet's size is that of its content.
        packet.copy_within(40..48, 48);
    }
    let folder = recording("copied", &packets);
    assert_eq!(merged(&folder), ((1..=7).collect(), vec![]));
}

/// Without its end, a packet has no checksum: nothing in it is told as a fact.
#[test]
fn a_packet_without_its_end_invents_no_events() {
    let intact = packets(&[10, 40_000]);
    let begin = intact[0].len() as u64;
    let size = intact[1].len();
    let damages: [fn(&mut Vec<u8>); 4] = [
        |_| {},
        |packet| packet[8192..12288].fill(0),
        |packet| packet[9001] ^= 0x10,
        // The size, then the content's size.
        |packet| packet[51] ^= 0x10,
    ];
    for (number, damage) in damages.into_iter().enumerate() {
        for end in [600_000, size - 1] {
            let mut packets = intact.clone();
            damage(&mut packets[1]);
            packets[1].truncate(end);
            let folder = recording("without-end", &packets);
            let at = format!("damage {number}, {end} of {size} bytes");
            let (found, corruptions) = merged(&folder);
            assert_eq!(found, (1..=10).collect::<Vec<_>>(), "{at}");
            let [corruption] = &corruptions[..] else { panic!("{at}: {corruptions:?}") };
            assert_eq!(corruption.offset, Some(begin + end as u64), "{at}");
            assert!(
                corruption.message.ends_with(&format!(
                    " bytes, found {end}: its checksum is missing, so its events are left out"
                )),
                "{at}: {corruption}"
            );
            let lines: Vec<String> = corruptions.iter().map(ToString::to_string).collect();
            assert_eq!(walked(&folder), (found, corruptions), "{at}");
            assert_eq!(summarized(&folder), (10, lines), "{at}");
        }
    }
}
