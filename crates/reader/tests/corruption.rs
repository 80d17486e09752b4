//! Corrupt stream files: everything except the corrupt packets is read, and the corruption is
//! reported.

use std::fs;
use std::path::PathBuf;

use tompion_reader::{
    Corruption, Event, EventPredicate, PacketView, Selection, TraceSet, Visitor, open, stat,
};

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
fn streams_that_are_no_files_are_reported_and_not_opened() {
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
    symlink("nowhere", trace.join("to_nothing")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(trace.join("a_pipe")).status().unwrap().success());
    let _socket = std::os::unix::net::UnixListener::bind(trace.join("a_socket")).unwrap();

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
    let lost = "No such file or directory (os error 2): the link leads to nowhere, which does not exist";
    let mut expected =
        ["a_pipe", "a_socket", "to_device", "to_pipe"].map(|name| (name.as_ref(), expected)).to_vec();
    expected.insert(3, ("to_nothing".as_ref(), lost));
    assert_eq!(found.collect::<Vec<_>>(), expected);
}

/// Number of times that the five packets are repeated in a long stream.
const REPETITIONS: usize = 8000;

/// Opens a long stream that is cut while it is read; returns the set and the function that cuts.
fn shrinking(name: &str, size: usize) -> (TraceSet, impl Fn() + Clone + Send + Sync + 'static) {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("shrinking-{name}"));
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("metadata"), METADATA).unwrap();
    fs::write(folder.join("stream"), stream().repeat(REPETITIONS)).unwrap();
    let traces = open(std::slice::from_ref(&folder)).unwrap();
    let file = fs::OpenOptions::new().write(true).open(folder.join("stream")).unwrap();
    let file = std::sync::Arc::new(file);
    (traces, move || file.set_len(size as u64).unwrap())
}

/// Runs a reader that may not end; returns the number of events and the corruptions.
fn ends(read: impl FnOnce() -> (u64, Vec<Corruption>) + Send + 'static) -> (u64, Vec<Corruption>) {
    let (ended, end) = std::sync::mpsc::channel();
    std::thread::spawn(move || ended.send(read()));
    end.recv_timeout(std::time::Duration::from_secs(120)).expect("reading does not end")
}

/// Checks that the packets before the cut were read once, and that the cut is reported.
fn check_cut((count, corruptions): (u64, Vec<Corruption>), size: usize) {
    // What was in memory already may be read as well.
    let least = (size / PACKET * EVENTS) as u64;
    assert!(
        (least..least + (EVENTS * (256 << 10) / PACKET) as u64).contains(&count),
        "{count} {corruptions:?}"
    );
    let [cut] = &corruptions[..] else { panic!("{corruptions:?}") };
    let expected =
        format!("the file was cut from {} to {size} bytes while it was read", 5 * REPETITIONS * PACKET);
    assert!(cut.message.ends_with(&expected), "{cut}");
}

/// Positions between packets and within one.
const CUTS: [usize; 3] = [PACKET * 20_000, PACKET * 20_000 + HEADER + 5, PACKET * 20_000 + 3];

#[test]
fn a_stream_that_shrinks_is_merged_to_its_end() {
    for size in CUTS {
        let (mut traces, cut) = shrinking("merged", size);
        let found = ends(move || {
            assert!(traces.step());
            cut();
            let mut count = 1;
            while traces.next_event().is_some() {
                count += 1;
            }
            (count, traces.corruptions().to_vec())
        });
        check_cut(found, size);
    }
}

#[test]
fn a_stream_that_shrinks_is_summarized_and_printed_to_its_end() {
    for size in CUTS {
        let cutting = move |name: &str| {
            let (mut traces, cut) = shrinking(name, size);
            let once = std::sync::Once::new();
            let predicate = EventPredicate::new(move |_| {
                once.call_once(&cut);
                true
            });
            traces.select(Selection { predicate: Some(predicate), ..Selection::default() });
            traces
        };
        let mut traces = cutting("summarized");
        check_cut(ends(move || (stat::summarize(&mut traces).events, traces.corruptions().to_vec())), size);
        let mut traces = cutting("printed");
        let printed = ends(move || {
            let mut text = Vec::new();
            tompion_reader::text::print(&mut traces, &Default::default(), &mut text).unwrap();
            let lines = text.iter().filter(|&&byte| byte == b'\n').count();
            (lines as u64, traces.corruptions().to_vec())
        });
        check_cut(printed, size);
    }
}

#[test]
fn a_stream_that_shrinks_is_walked_to_its_end() {
    struct Walk<C> {
        cut: C,
        events: u64,
    }
    impl<C: Fn()> Visitor for Walk<C> {
        type Error = std::convert::Infallible;
        fn file(&mut self, _: usize, _: usize, _: &std::path::Path) -> Result<(), Self::Error> {
            Ok(())
        }
        fn packet(&mut self, _: &PacketView<'_>) -> Result<bool, Self::Error> {
            Ok(true)
        }
        fn event(&mut self, _: &Event<'_>) -> Result<(), Self::Error> {
            (self.cut)();
            self.events += 1;
            Ok(())
        }
    }
    for size in CUTS {
        let (mut traces, cut) = shrinking("walked", size);
        let found = ends(move || {
            let mut walk = Walk { cut, events: 0 };
            let Ok(()) = traces.walk(&mut walk);
            (walk.events, traces.corruptions().to_vec())
        });
        check_cut(found, size);
    }
}

#[test]
fn a_cut_before_what_was_read_is_reported_as_it_is() {
    const SIZE: usize = 100;
    let (mut traces, cut) = shrinking("read-already", SIZE);
    let found = ends(move || {
        assert!(traces.step());
        cut();
        while traces.next_event().is_some() {}
        (0, traces.corruptions().to_vec())
    });
    let [reported] = &found.1[..] else { panic!("{found:?}") };
    let expected =
        format!("the file was cut from {} to {SIZE} bytes while it was read", 5 * REPETITIONS * PACKET);
    assert!(reported.message.ends_with(&expected), "{reported}");
}
