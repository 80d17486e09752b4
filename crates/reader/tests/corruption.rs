//! Corrupt stream files: everything except the corrupt packets is read, and the corruption is
//! reported.

use std::fs;
use std::path::PathBuf;

use tompion_reader::{Corruption, open};

const METADATA: &str = r#"/* CTF 1.8 */
trace { major = 1; minor = 8; byte_order = le; uuid = "01010101-0101-0101-0101-010101010101";
    packet.header := struct { integer { size = 32; } magic; integer { size = 8; } uuid[16]; }; };
stream { packet.context := struct { integer { size = 32; } content_size; integer { size = 32; } packet_size; };
    event.header := struct { integer { size = 8; } id; }; };
event { id = 7; name = "seven"; fields := struct { integer { size = 8; } n; }; };
"#;

/// Size of a packet and of its header and context in bytes, and number of its events.
const PACKET: usize = 64;
const HEADER: usize = 28;
const EVENTS: usize = 10;

/// Creates a stream of five packets; each event has the packet's number and its own.
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

/// Reads a stream; returns the numbers in its events, and the corruptions.
fn read(name: &str, stream: &[u8]) -> (Vec<u64>, Vec<Corruption>) {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("damage-{name}"));
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("metadata"), METADATA).unwrap();
    fs::write(folder.join("stream"), stream).unwrap();
    let mut traces = open(&[folder]).unwrap();
    let mut numbers = Vec::new();
    while let Some(event) = traces.next_event() {
        numbers.push(event.payload().get("n").unwrap().as_integer().unwrap() as u64);
    }
    (numbers, traces.corruptions().to_vec())
}

/// Returns the numbers of these packets' events.
fn events(packets: &[u64]) -> Vec<u64> {
    packets.iter().flat_map(|packet| (0..EVENTS as u64).map(move |event| 16 * packet + event)).collect()
}

/// Reads a stream whose second packet was changed at some positions, and checks the result.
fn check(name: &str, change: &[(usize, u8)], expected: &[u64], corruption: (u64, &str)) {
    let mut bytes = stream();
    change.iter().for_each(|&(place, byte)| bytes[PACKET + place] = byte);
    let (found, corruptions) = read(name, &bytes);
    assert_eq!(found, expected, "{name}");
    let [found] = &corruptions[..] else { panic!("{name}: {corruptions:?}") };
    assert_eq!((found.offset.unwrap(), found.message.as_str()), corruption, "{name}");
    assert!(found.path.ends_with("stream"));
}

#[test]
fn intact_streams_have_no_corruption() {
    assert_eq!(read("none", &stream()), (events(&[0, 1, 2, 3, 4]), vec![]));
    // A copied description has the UUID of its source; the packets are still read.
    let mut foreign = stream();
    foreign.chunks_mut(PACKET).for_each(|packet| packet[4] = 2);
    assert_eq!(read("foreign", &foreign).0.len(), 5 * EVENTS);
}

#[test]
fn packets_after_a_corrupt_one_are_read() {
    let others = events(&[0, 2, 3, 4]);
    let packet = PACKET as u64;
    check("magic", &[(0, 0)], &others, (packet, "expected the magic number 0xc1fc1fc1, found 0xc1fc1f00"));
    let sizes = "expected content of 224 to 256 bits (the packet's size), found 384";
    check("size", &[(24, 0), (25, 1)], &others, (packet, sizes));
    // The first three events of the packet are intact.
    let some = [events(&[0]), vec![16, 17, 18], events(&[2, 3, 4])].concat();
    let place = packet + (HEADER + 6) as u64;
    let no_class = "expected the number of an event class, found 9";
    check("event", &[(HEADER + 6, 9)], &some, (place, no_class));
    // The packet also claims a larger size: the others are found by their magic numbers.
    check("event-and-size", &[(HEADER + 6, 9), (25, 3)], &some, (place, no_class));
}

#[test]
fn a_cut_stream_is_read_up_to_its_end() {
    let bytes = stream();
    let (found, corruptions) = read("cut", &bytes[..2 * PACKET + HEADER + 5]);
    assert_eq!(found, [events(&[0, 1]), vec![32, 33]].concat());
    assert_eq!(corruptions.len(), 1, "{corruptions:?}");
    assert_eq!(corruptions[0].offset.unwrap(), (2 * PACKET + HEADER + 5) as u64);
}

#[test]
fn a_stream_of_corruption_alone_ends() {
    let bytes = [0xc1, 0x1f, 0xfc, 0xc1].repeat(20_000);
    let (found, corruptions) = read("noise", &bytes);
    assert_eq!((found.len(), corruptions.len()), (0, 1));
    let bytes: Vec<u8> = (0..100_000).flat_map(|_| stream()[..HEADER].to_vec()).collect();
    let (found, corruptions) = read("headers", &bytes);
    assert!(
        found.is_empty() && (1..=2000).contains(&corruptions.len()),
        "{} {}",
        found.len(),
        corruptions.len()
    );
}

#[test]
fn streams_that_lead_to_pipes_or_devices_are_reported_and_not_opened() {
    use std::os::unix::fs::symlink;
    use std::sync::mpsc;
    use std::time::Duration;

    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("leading-elsewhere");
    let _ = fs::remove_dir_all(&folder);
    let trace = folder.join("trace");
    fs::create_dir_all(&trace).unwrap();
    fs::write(trace.join("metadata"), METADATA).unwrap();
    fs::write(trace.join("stream"), stream()).unwrap();
    // Nothing writes to it: opening it for reading would wait.
    let pipe = folder.join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    symlink(&pipe, trace.join("to_pipe")).unwrap();
    symlink("/dev/tty", trace.join("to_device")).unwrap();

    let (ended, end) = mpsc::channel();
    std::thread::spawn(move || {
        let mut traces = open(&[trace]).unwrap();
        let count = std::iter::from_fn(|| traces.next_event().map(drop)).count();
        let _ = ended.send((count, traces.corruptions().to_vec()));
    });
    let (count, corruptions) = end.recv_timeout(Duration::from_secs(60)).expect("reading waits");
    assert_eq!(count, 5 * EVENTS);
    let found = corruptions.iter().map(|one| (one.path.file_name().unwrap(), one.message.as_str()));
    let expected = "expected a regular file, found something else";
    assert_eq!(found.collect::<Vec<_>>(), [("to_device".as_ref(), expected), ("to_pipe".as_ref(), expected)]);
}
