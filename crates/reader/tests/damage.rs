//! Damaged stream files: everything but the damaged packets is read, and the damage is named.

use std::fs;
use std::path::PathBuf;

use tompion_reader::{Damage, open};

const METADATA: &str = r#"/* CTF 1.8 */
trace { major = 1; minor = 8; byte_order = le; uuid = "01010101-0101-0101-0101-010101010101";
    packet.header := struct { integer { size = 32; } magic; integer { size = 8; } uuid[16]; }; };
stream { packet.context := struct { integer { size = 32; } content_size; integer { size = 32; } packet_size; };
    event.header := struct { integer { size = 8; } id; }; };
event { id = 7; name = "seven"; fields := struct { integer { size = 8; } n; }; };
"#;

/// Size of a packet in bytes, of its header and context, and number of its events.
const PACKET: usize = 64;
const HEADER: usize = 28;
const EVENTS: usize = 10;

/// A stream of five packets; each event has the packet's number and its own.
fn stream() -> Vec<u8> {
    let mut bytes = Vec::new();
    for packet in 0..5u8 {
        bytes.extend(0xc1fc_1fc1u32.to_le_bytes());
        bytes.extend([1; 16]);
        bytes.extend((8 * (HEADER + 2 * EVENTS) as u32).to_le_bytes());
        bytes.extend((8 * PACKET as u32).to_le_bytes());
        (0..EVENTS as u8).for_each(|event| bytes.extend([7, 16 * packet + event]));
        bytes.resize(PACKET * (usize::from(packet) + 1), 0xaa);
    }
    bytes
}

/// Reads a stream; the numbers in its events, and the damage.
fn read(name: &str, stream: &[u8]) -> (Vec<u64>, Vec<Damage>) {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("damage-{name}"));
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("metadata"), METADATA).unwrap();
    fs::write(folder.join("stream"), stream).unwrap();
    let mut traces = open(&[folder]).unwrap();
    let mut numbers = Vec::new();
    while let Some(event) = traces.next_event() {
        numbers.push(event.payload().get("n").unwrap().as_integer().unwrap() as u64);
    }
    (numbers, traces.damages().to_vec())
}

/// The numbers of these packets' events.
fn events(packets: &[u64]) -> Vec<u64> {
    packets.iter().flat_map(|packet| (0..EVENTS as u64).map(move |event| 16 * packet + event)).collect()
}

/// Reads a stream in which the second packet was changed at some places.
fn check(name: &str, change: &[(usize, u8)], expected: &[u64], damage: (u64, &str)) {
    let mut bytes = stream();
    change.iter().for_each(|&(place, byte)| bytes[PACKET + place] = byte);
    let (found, damages) = read(name, &bytes);
    assert_eq!(found, expected, "{name}");
    let [found] = &damages[..] else { panic!("{name}: {damages:?}") };
    assert_eq!((found.offset.unwrap(), found.message.as_str()), damage, "{name}");
    assert!(found.path.ends_with("stream"));
}

#[test]
fn sound_streams_have_no_damage() {
    assert_eq!(read("none", &stream()), (events(&[0, 1, 2, 3, 4]), vec![]));
    // A copied description has the UUID of its source; the packets are read all the same.
    let mut foreign = stream();
    foreign.chunks_mut(PACKET).for_each(|packet| packet[4] = 2);
    assert_eq!(read("foreign", &foreign).0.len(), 5 * EVENTS);
}

#[test]
fn what_is_behind_a_damaged_packet_is_read() {
    let others = events(&[0, 2, 3, 4]);
    let packet = PACKET as u64;
    check("magic", &[(0, 0)], &others, (packet, "expected the magic number 0xc1fc1fc1, found 0xc1fc1f00"));
    let sizes = "expected content of 224 to 256 bits (the packet's size), found 384";
    check("size", &[(24, 0), (25, 1)], &others, (packet, sizes));
    // The first three events of the packet are sound.
    let some = [events(&[0]), vec![16, 17, 18], events(&[2, 3, 4])].concat();
    let place = packet + (HEADER + 6) as u64;
    let no_class = "expected the number of an event class, found 9";
    check("event", &[(HEADER + 6, 9)], &some, (place, no_class));
    // The packet also claims to be larger than it is: the others are found by their magic numbers.
    check("event-and-size", &[(HEADER + 6, 9), (25, 3)], &some, (place, no_class));
}

#[test]
fn a_cut_stream_is_read_up_to_its_end() {
    let bytes = stream();
    let (found, damages) = read("cut", &bytes[..2 * PACKET + HEADER + 5]);
    assert_eq!(found, [events(&[0, 1]), vec![32, 33]].concat());
    assert_eq!(damages.len(), 1, "{damages:?}");
    assert_eq!(damages[0].offset.unwrap(), (2 * PACKET + HEADER + 5) as u64);
}

#[test]
fn a_stream_of_nothing_but_damage_ends() {
    let bytes = [0xc1, 0x1f, 0xfc, 0xc1].repeat(20_000);
    let (found, damages) = read("noise", &bytes);
    assert_eq!((found.len(), damages.len()), (0, 1));
    let bytes: Vec<u8> = (0..100_000).flat_map(|_| stream()[..HEADER].to_vec()).collect();
    let (found, damages) = read("headers", &bytes);
    assert!(found.is_empty() && (1..=2000).contains(&damages.len()), "{} {}", found.len(), damages.len());
}
