use std::{fs, io::Read};

use tompion_ctf::encode::{Origin, Plan, Record, Source, seal};
use tompion_schema::{Event, Field, Integer, Kind, Level, Type};
use tompion_testing::TestDir;

use super::*;

const UUID: Uuid = Uuid([7; 16]);
const TRUSTED: Expected = Expected { uuid: UUID, trusted: Some(u64::MAX), most_torn: 1 << 20 };
const UNTRUSTED: Expected = Expected { trusted: None, ..TRUSTED };

/// Four packets of 20 events.
fn packets() -> Vec<Vec<u8>> {
    let source = Source {
        uuid: UUID,
        environment: Vec::new(),
        clock_uuid: None,
        clock_offset_ns: 0,
        clock_precision_ns: 1,
        numbers_streams: false,
        tid: false,
        context: Vec::new(),
    };
    let plan = Plan::new(&Event {
        provider: "p".into(),
        name: "e".into(),
        level: Level::DEFAULT,
        kind: Kind::Instant,
        init: false,
        format: None,
        attributes: Default::default(),
        fields: vec![Field::new("number", Type::Integer(Integer::unsigned(64)))],
    });
    let mut packet = Packet::new(&source);
    let packet = |sequence: u64| {
        for number in 1..=20u64 {
            let record = Record { id: 0, time: number, tid: 0, context: &[], payload: &number.to_le_bytes() };
            packet.push(&record, &plan).expect("an event");
        }
        let origin = Origin { sequence, ring_end: 100 * (sequence + 1), ..Origin::default() };
        packet.finish(origin, 0, |bytes, info| {
            let mut bytes = bytes[..info.size as usize].to_vec();
            seal(&mut bytes);
            bytes
        })
    };
    (0..4).map(packet).collect()
}

/// Cuts a stream of these packets; returns how many bytes are left, the last packet's number, and
/// the damage.
fn cut_stream(name: &str, packets: &[Vec<u8>], expected: &Expected) -> (u64, Option<u64>, Vec<String>) {
    let folder = TestDir::new(&format!("resume-{name}"));
    fs::write(folder.join("stream_0"), packets.concat()).expect("a stream");
    let handle = DirHandle::open(&folder).expect("the folder");
    let cut = cut(&handle, "stream_0", expected).expect("it can be read").expect("it is there");
    let mut index = Vec::new();
    fs::File::open(folder.join("index/stream_0.idx")).expect("an index").read_to_end(&mut index).expect("it");
    let named = (index.len() - 16) / 72;
    let whole =
        packets.iter().filter(|packet| encode::read_head(packet.first_chunk().unwrap(), UUID).is_ok());
    assert!(named <= whole.count());
    let place = format!("{}/", folder.display());
    let damage = cut.damage.iter().map(|line| line.replace(&place, "")).collect();
    (cut.size, cut.last.map(|last| last.origin.sequence), damage)
}

fn changed(number: usize) -> String {
    let at = number * packets()[0].len();
    format!(
        "stream_0: byte {at}: packet {number} was changed after it was written: its checksum is wrong, and readers \
         leave its events out"
    )
}

#[test]
fn packets_as_written_are_kept() {
    let packets = packets();
    let size = packets.concat().len() as u64;
    assert_eq!(cut_stream("sound", &packets, &TRUSTED), (size, Some(3), vec![]));
    assert_eq!(cut_stream("sound-doubtful", &packets, &UNTRUSTED), (size, Some(3), vec![]));
}

#[test]
fn changed_packets_are_named_and_those_behind_them_kept() {
    for expected in [&TRUSTED, &UNTRUSTED] {
        let mut packets = packets();
        packets[1][200] ^= 1;
        packets[2][120..160].fill(0);
        let size = packets.concat().len() as u64;
        let name = format!("changed-{}", expected.trusted.is_some());
        let found = cut_stream(&name, &packets, expected);
        assert_eq!(found, (size, Some(3), vec![changed(1) + "; and 1 more place in this file"]));
    }
}

#[test]
fn packets_behind_bytes_that_are_none_are_kept() {
    for expected in [&TRUSTED, &UNTRUSTED] {
        let mut packets = packets();
        packets[1][..160].fill(0);
        let size = packets.concat().len() as u64;
        let name = format!("holes-{}", expected.trusted.is_some());
        let (at, bytes) = (packets[0].len(), packets[1].len());
        let line =
            format!("stream_0: byte {at}: expected a packet, found {bytes} other bytes: readers skip them");
        assert_eq!(cut_stream(&name, &packets, expected), (size, Some(3), vec![line]));
    }
}

#[test]
fn what_may_not_have_been_written_ends_the_stream() {
    let mut torn = packets();
    torn[3][200] ^= 1;
    let size = torn[..3].concat().len() as u64;
    assert_eq!(cut_stream("torn", &torn, &UNTRUSTED), (size, Some(2), vec![]));
    // It was written for certain, and changed later.
    assert_eq!(
        cut_stream("changed-end", &torn, &TRUSTED),
        (torn.concat().len() as u64, Some(3), vec![changed(3)])
    );
    let mut cut = packets();
    cut[3].truncate(100);
    assert_eq!(cut_stream("cut", &cut, &TRUSTED), (size, Some(2), vec![]));
}
