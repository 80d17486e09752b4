//! Synthetic traces for tests: intact streams and streams with anomalies.

use std::fs;

use crate::{Selection, TraceSet, open};

use tompion_testing::{Random, TestDir};

/// Stream class with short times, and one without sizes or times of packets.
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

/// Anomaly of a stream.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Anomaly {
    Nothing,
    /// Occasionally an event has an impossible class number.
    Corruption,
    /// Every packet is corrupt.
    AllCorrupt,
    /// Occasionally a packet begins before its predecessor.
    Back,
    /// Packets have no end time.
    NoEnd,
    /// The end time of packets is before their last events.
    EarlyEnd,
    /// Every packet begins and ends at the same time as all of its events.
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

/// Creates a stream of packets of different sizes.
pub(crate) fn stream(instance: u64, packets: u64, anomaly: Anomaly) -> Vec<u8> {
    let mut random = Random(instance * 77 + 5);
    let (mut bytes, mut time, mut lost) = (Vec::new(), random.below(90_000), 0);
    for packet in 0..packets {
        if anomaly == Anomaly::Back && packet % 11 == 5 {
            time -= random.below(time.min(60_000));
        }
        let (begin, mut events) = (time, Vec::new());
        for number in 0..1 + random.below(250) {
            time += if anomaly == Anomaly::Still { 0 } else { random.below(900) };
            let is_bad = anomaly == Anomaly::AllCorrupt && number == 3
                || anomaly == Anomaly::Corruption && random.below(900) == 0;
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
        let end = match anomaly {
            Anomaly::NoEnd => 0,
            Anomaly::EarlyEnd => time - (time - begin) / 3,
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

/// Creates a stream of one packet without a packet context.
pub(crate) fn plain(instance: u64, events: u64) -> Vec<u8> {
    let mut bytes = header(1, instance);
    for number in 0..events {
        bytes.push(9);
        put(number * 5000, 8, &mut bytes);
        put(number, 2, &mut bytes);
    }
    bytes
}

/// Folder with these streams, removed on drop.
pub(crate) struct Folder(TestDir);

impl Folder {
    pub(crate) fn new(name: &str, streams: &[Vec<u8>]) -> Self {
        let path = TestDir::new(&format!("anomaly-{name}"));
        fs::write(path.join("metadata"), METADATA).unwrap();
        for (number, stream) in streams.iter().enumerate() {
            fs::write(path.join(format!("stream{number}")), stream).unwrap();
        }
        Self(path)
    }

    /// Opens the trace with a selection.
    pub(crate) fn opened(&self, selection: &Selection) -> TraceSet {
        let mut traces = open(std::slice::from_ref(self.0.path())).unwrap();
        traces.select(selection.clone());
        traces
    }
}
