//! Pages of rings that nothing is written to are given back while the program runs.

use std::{
    io::{BufRead, BufReader, Read, Write},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use crate::support::{Event, TestDir, finish, start, wait_until};

/// A ring of 4 MiB of which each part of the program writes more than one lap.
const RING: [&str; 4] = ["--subbuf-size", "512K", "--subbufs", "8"];
const EVENTS: u64 = 200_000;
/// Milliseconds for it, so that the recorder keeps pace.
const PACE: &str = "200";

/// Kilobytes of a process's mappings of ring files.
fn ring_memory(pid: u32) -> u64 {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap_or_default();
    let (mut is_rings, mut sum) = (false, 0);
    for line in maps.lines() {
        if line.contains("/memfd:tompion-rings") {
            is_rings = true;
        } else if line.contains("-") && line.contains(" r") {
            is_rings = false;
        } else if let (true, Some(size)) = (is_rings, line.strip_prefix("Rss:")) {
            sum += size.trim().trim_end_matches(" kB").parse::<u64>().expect("a number");
        }
    }
    sum
}

/// A program between its two parts, and its recording.
struct Lull {
    program: Child,
    words: BufReader<std::process::ChildStdout>,
    recording: Child,
}

fn begin(dir: &TestDir, options: &[&str], name: &str) -> Lull {
    let program = dir.link(name, &["lull.c"], &[]);
    let mut program = Command::new(&program)
        .args([&EVENTS.to_string(), PACE])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program");
    let pid = program.id().to_string();
    let options = [&["record", "-o", "trace"], &RING[..], options, &["-p", &pid]].concat();
    let recording = start(&mut dir.tompion(&options));
    let mut words = BufReader::new(program.stdout.take().expect("its words"));
    let mut line = String::new();
    words.read_line(&mut line).expect("a word");
    assert_eq!(line, "ready\n");
    Lull { program, words, recording }
}

impl Lull {
    fn say(&mut self, word: &str) {
        let input = self.program.stdin.as_mut().expect("its input");
        input.write_all(format!("{word}\n").as_bytes()).expect("a word");
    }

    /// Has the program write its second part, and checks that each of its events is there.
    fn end(mut self, dir: &TestDir) {
        self.say("go");
        let mut rest = String::new();
        self.words.read_to_string(&mut rest).expect("its last word");
        assert!(self.program.wait().expect("its end").success());
        finish(self.recording, "record").succeeded();
        let trace = dir.trace("trace");
        let numbers: Vec<u64> = trace.events().iter().map(|event: &Event| event.number("number")).collect();
        let last: u64 = rest.trim().parse().expect("a number");
        assert_eq!(trace.stat()["lost"]["total"], 0);
        assert!(numbers.into_iter().eq(1..=last), "each event, once");
    }
}

#[test]
fn an_idle_ring_gives_its_pages_back_and_loses_nothing() {
    let dir = TestDir::new();
    let mut lull = begin(&dir, &[], "lull_idle");
    let full = ring_memory(lull.program.id());
    assert!(full >= 4096, "{full} KiB: the ring was full");
    // The header, what is left of the current sub-buffer, and a quarter of the ring.
    // It may have filled those of several CPUs.
    let kept = full * 3 / 8 + 64;
    wait_until("its pages are given back", || ring_memory(lull.program.id()) <= kept);
    // A little is written: the ring is idle again.
    (0..100).for_each(|_| lull.say("more"));
    thread::sleep(Duration::from_millis(200));
    let left = ring_memory(lull.program.id());
    assert!(left <= kept + 64, "{left} KiB of {full}");
    lull.end(&dir);
}

#[test]
fn prefaulted_and_overwritten_rings_keep_their_pages() {
    let cases = [("lull_prefault", "--prefault", "--tid"), ("lull_flight", "--mode", "overwrite")];
    thread::scope(|scope| {
        for (name, option, value) in cases {
            scope.spawn(move || {
                let dir = TestDir::new();
                let mut lull = begin(&dir, &[option, value], name);
                let full = ring_memory(lull.program.id());
                assert!(full >= 4096, "{name}: {full} KiB");
                thread::sleep(Duration::from_secs(8));
                assert!(ring_memory(lull.program.id()) >= full, "{name}");
                lull.program.kill().and_then(|()| lull.program.wait()).expect("its end");
                finish(lull.recording, "record").succeeded();
            });
        }
    });
}
