//! Made-up traces of a kernel.

use std::fs;
use std::path::Path;

/// Metadata of the kernel, also of the traces of `benches/view/generate.mjs`.
const METADATA: &str = include_str!("kernel.tsdl");

/// An event: when, and its class with its fields.
pub struct TestEvent(pub u64, pub Fields);

pub enum Fields {
    /// From one thread, in a state, to another one.
    Switch(&'static str, i32, i32, String, i32),
    Entry(i32),
    Exit(i32),
    Waking(String, i32),
}

impl TestEvent {
    fn write(&self, bytes: &mut Vec<u8>) {
        let (id, fields): (u8, Vec<u8>) = match &self.1 {
            Fields::Switch(from, from_tid, state, to, to_tid) => {
                let from = [from.as_bytes(), &[0], &from_tid.to_le_bytes(), &state.to_le_bytes()].concat();
                (0, [&from[..], to.as_bytes(), &[0], &to_tid.to_le_bytes()].concat())
            }
            Fields::Entry(fd) => (1, fd.to_le_bytes().into()),
            Fields::Exit(ret) => (2, ret.to_le_bytes().into()),
            Fields::Waking(name, tid) => (3, [name.as_bytes(), &[0], &tid.to_le_bytes()].concat()),
        };
        bytes.push(id);
        bytes.extend(self.0.to_le_bytes());
        bytes.extend(fields);
    }
}

/// A packet of processor 0.
pub fn packet(events: &[TestEvent], discarded: u64) -> Vec<u8> {
    let mut content = Vec::new();
    events.iter().for_each(|event| event.write(&mut content));
    let times = (events.first().map_or(0, |it| it.0), events.last().map_or(0, |it| it.0));
    packet_of(&content, times, discarded)
}

/// The same of events that are written already.
pub fn packet_of(content: &[u8], (begin, end): (u64, u64), discarded: u64) -> Vec<u8> {
    let size = (1 + 5 * 8 + 1 + content.len() as u64) * 8;
    let mut bytes = vec![0];
    [begin, end, size, size, discarded].iter().for_each(|number| bytes.extend(number.to_le_bytes()));
    bytes.push(0);
    bytes.extend(content);
    bytes
}

/// Writes a trace of one stream.
pub fn write(folder: &Path, stream: &[u8]) {
    write_of("box", folder, stream);
}

/// Writes a trace of one stream, of a machine.
pub fn write_of(host: &str, folder: &Path, stream: &[u8]) {
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("metadata"), METADATA.replace("\"box\"", &format!("\"{host}\""))).unwrap();
    fs::write(folder.join("channel0_0"), stream).unwrap();
}

/// Writes a program with one thread and nested callbacks, with an event in each microsecond.
pub fn callbacks(folder: &Path, events: u64) {
    let (mut bytes, mut content, mut first) = (Vec::new(), Vec::new(), 0);
    for number in 0..events {
        content.push((number / 2 % 2) as u8);
        content.extend((number * 1000).to_le_bytes());
        content.extend(7i32.to_le_bytes());
        content.extend(b"what a callback says of itself, which is much\0");
        if number % 2000 == 1999 || number == events - 1 {
            bytes.extend(packet_of(&content, (first * 1000, number * 1000), 0));
            (content, first) = (Vec::new(), number + 1);
        }
    }
    write(folder, &bytes);
    fs::write(folder.join("metadata"), include_str!("program.tsdl")).unwrap();
}

/// Writes a program with one thread whose steps of half a microsecond have no fields: events of 13
/// bytes. `events` is a multiple of 2000.
pub fn steps(folder: &Path, events: u64) {
    let (mut bytes, mut content, mut first) = (Vec::new(), Vec::new(), 0);
    for number in 0..events {
        content.push(5 + (number % 2) as u8);
        content.extend((number * 500).to_le_bytes());
        content.extend(7i32.to_le_bytes());
        if number % 2000 == 1999 {
            bytes.extend(packet_of(&content, (first * 500, number * 500), 0));
            (content, first) = (Vec::new(), number + 1);
        }
    }
    write(folder, &bytes);
    fs::write(folder.join("metadata"), include_str!("program.tsdl")).unwrap();
}

/// A program whose queue has these lengths from these times on. So many events are lost after them.
pub fn queue(folder: &Path, lengths: &[(u64, i32)], lost: u64) {
    let mut content = Vec::new();
    for (time, length) in lengths {
        content.push(2);
        content.extend(time.to_le_bytes());
        content.extend(7i32.to_le_bytes());
        content.extend(length.to_le_bytes());
    }
    let (first, last) = (lengths.first().map_or(0, |it| it.0), lengths.last().map_or(0, |it| it.0));
    let mut bytes = packet_of(&content, (first, last), 0);
    if lost > 0 {
        bytes.extend(packet_of(&[], (last, last + 1000), lost));
    }
    write(folder, &bytes);
    fs::write(folder.join("metadata"), include_str!("program.tsdl")).unwrap();
}

/// A program whose job begins in the same nanosecond as a step within it, and is late.
pub fn job_with_step(folder: &Path) {
    let mut content = Vec::new();
    let mut add = |id: u8, time: u64, fields: &[u8]| {
        content.push(id);
        content.extend(time.to_le_bytes());
        content.extend(7i32.to_le_bytes());
        content.extend(fields);
    };
    add(3, 1000, &500u64.to_le_bytes());
    add(5, 1000, &[]);
    add(6, 1200, &[]);
    add(4, 2000, &[]);
    write(folder, &packet_of(&content, (1000, 2000), 0));
    fs::write(folder.join("metadata"), include_str!("program.tsdl")).unwrap();
}

/// Makes a thread of this name that is woken, runs, and sleeps in `read`, with lost events.
pub fn story(name: &str) -> Vec<u8> {
    let switch = |time, to: &str, tid| TestEvent(time, Fields::Switch("swapper/0", 0, 0, to.into(), tid));
    let first = [
        TestEvent(1000, Fields::Waking(name.into(), 7)),
        switch(1500, name, 7),
        TestEvent(1600, Fields::Entry(3)),
        TestEvent(1700, Fields::Switch("worker", 7, 1, "swapper/0".into(), 0)),
        TestEvent(2700, Fields::Waking(name.into(), 7)),
        switch(2900, name, 7),
        TestEvent(3000, Fields::Exit(1)),
    ];
    let second = [TestEvent(5000, Fields::Waking("late".into(), 8)), switch(5100, "late", 8)];
    [packet(&first, 0), packet(&second, 12)].concat()
}

/// Writes fifty threads that take turns in each microsecond; `events` is a multiple of 2000.
pub fn turns(folder: &Path, events: u64) {
    let (mut bytes, mut content, mut running) = (Vec::new(), Vec::new(), 0);
    for number in 0..events {
        let next = 1 + ((number * 2_654_435_761) >> 7) % 50;
        let (from, to) = ("one of many threads", "one of many threads".into());
        let what = Fields::Switch(from, running as i32, (number % 2) as i32, to, next as i32);
        content.push(TestEvent(number * 1000, what));
        running = next;
        if content.len() == 2000 {
            bytes.extend(packet(&content, 0));
            content.clear();
        }
    }
    write(folder, &bytes);
}

/// So many threads, each of which runs once.
pub fn crowd(threads: i32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut events = Vec::new();
    for tid in 1..=threads {
        let time = u64::from(tid.unsigned_abs()) * 1000;
        let before = if tid == 1 { 0 } else { tid - 1 };
        events.push(TestEvent(time, Fields::Switch("one of many", before, 1, format!("thread {tid}"), tid)));
        if events.len() == 1000 {
            bytes.extend(packet(&events, 0));
            events.clear();
        }
    }
    bytes.extend(packet(&events, 0));
    bytes
}
