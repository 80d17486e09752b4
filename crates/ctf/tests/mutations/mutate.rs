//! Mutations of descriptions and packets, and the number of executions.

use std::time::{Duration, Instant};

use tompion_testing::Random;

/// Maximum CPU time of one execution. CPU time doesn't depend on other load.
const MAX_CPU_TIME: Duration = Duration::from_secs(5);
/// Number of executions after which the CPU time is read.
const EXECUTIONS_PER_CHECK: u64 = 4096;
/// Words with a meaning in TSDL, and numbers that programs handle wrongly.
pub const TSDL: &[&str] = &[
    "struct",
    "variant",
    "enum",
    "integer",
    "floating_point",
    "string",
    "{",
    "}",
    "[",
    "]",
    "<",
    ">",
    ";",
    ":=",
    ",",
    ":",
    "=",
    "...",
    "typealias",
    "typedef",
    "align",
    "size",
    "signed",
    "map",
    "clock",
    "event.fields._n",
    "trace",
    "stream",
    "env",
    "event",
    "byte_order",
    "be",
    "encoding",
    "UTF8",
    "id",
    "_n",
    "0",
    "1",
    "31",
    "63",
    "64",
    "65",
    "-1",
    "255",
    "4294967295",
    "18446744073709551615",
    "18446744073709551616",
    "-9223372036854775808",
    "0x7f",
    "017",
    "stream.event.header.id",
    "callsite",
    "/*",
    "//",
    "\"",
    "align(8)",
    "struct { u8 a; }",
];
/// Words with a meaning in CTF 2 descriptions.
pub const JSON: &[&str] = &[
    "null",
    "true",
    "false",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "0",
    "1",
    "-1",
    "7",
    "63",
    "64",
    "65",
    "1e400",
    "1.5",
    "18446744073709551615",
    "18446744073709551616",
    "-9223372036854775809",
    "\"type\"",
    "\"structure\"",
    "\"length\"",
    "\"path\"",
    "\"u8\"",
    "\"roles\"",
    "\"alignment\"",
    "\"default-clock-timestamp\"",
    "\"event-record-class-id\"",
    "\"variant\"",
    "\"optional\"",
    "\"dynamic-length-array\"",
    "\"static-length-array\"",
    "\"n\"",
    "\"base\"",
    "\"field-class\"",
    "\"element-field-class\"",
    "\"big-endian\"",
    "\"minimum-alignment\"",
    "\"\"",
    "\"\\ud800\"",
    "\"packet-total-length\"",
    "\"encoding\"",
    "\"utf-16be\"",
    "\n{\"type\": \"event-record-class\"}\n",
];

/// Counter of executions, which reports the one that failed or took too long.
pub struct Rounds {
    seed: u64,
    wanted: u64,
    next: u64,
    begin: Instant,
    /// CPU time at a recent execution; the executions since then take negligible time.
    used: Option<Duration>,
}

/// Returns the CPU time of this thread, if it is available.
fn used() -> Option<Duration> {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(Duration::from_nanos(schedstat.split(' ').next()?.parse().ok()?))
}

impl Rounds {
    /// Number of executions: `TOMPION_FUZZ`, or ten million with `TOMPION_FULL=1`, or a few.
    pub fn new(few: u64) -> Self {
        let (wanted, seed) = (tompion_testing::executions(few, 10_000_000), tompion_testing::seed());
        Self { seed, wanted, next: 0, begin: Instant::now(), used: used() }
    }

    /// Creates a generator of random numbers; each seed gives others.
    pub fn random(&self, start: u64) -> Random {
        // The generator would stay at zero forever.
        Random(start.wrapping_add(self.seed.wrapping_mul(0x2545_f491_4f6c_dd1d)).max(1))
    }

    /// Returns the number of the next execution.
    pub fn next(&mut self) -> Option<u64> {
        let round = self.next;
        let now = Instant::now();
        let took = now - self.begin;
        if took >= MAX_CPU_TIME {
            let took = self.used.and_then(|before| used()?.checked_sub(before)).unwrap_or(took);
            assert!(took < MAX_CPU_TIME, "execution {} took {took:?}", round.wrapping_sub(1));
        }
        if round % EXECUTIONS_PER_CHECK == 0 {
            self.used = used();
        }
        self.begin = now;
        self.next += 1;
        (round < self.wanted).then_some(round)
    }

    /// Returns the number of executions.
    pub fn done(&self) -> u64 {
        self.wanted
    }
}

impl Drop for Rounds {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("execution {} of seed {}", self.next.wrapping_sub(1), self.seed);
        }
    }
}

/// Bytes that mean something in descriptions and packets.
pub const SPECIAL: [u8; 10] = [0, 1, 0x7f, 0x80, 0xff, b'{', b'}', b';', b'[', b'9'];

/// Puts a description into one or two packets, as tracers write it, some of them corrupt.
pub fn in_packets(random: &mut Random, text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len() + 100);
    let border = random.index(text.len());
    for part in [&text[..border], &text[border..]] {
        let size = (37 + part.len() as u32) * 8;
        bytes.extend(0x75d1_1d57u32.to_le_bytes());
        bytes.extend([0; 20]);
        bytes.extend(size.to_le_bytes());
        bytes.extend(size.to_le_bytes());
        bytes.extend([0, 0, 0, 1, 8]);
        bytes.extend(part);
    }
    if random.index(2) == 0 {
        let place = random.index(37);
        bytes[place] ^= 1 << random.index(8);
    }
    bytes
}

/// Words of a description, which are mutated as words, so that most results can be parsed.
pub struct Words<'t> {
    words: Vec<&'t [u8]>,
    others: &'static [&'static str],
}

impl<'t> Words<'t> {
    /// Splits a description into words. `others` are words that may be inserted.
    pub fn of(text: &'t str, others: &'static [&'static str]) -> Self {
        let kind = |byte: u8| match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'.' | b'-' | b'"' => 1,
            b' ' | b'\n' => 2,
            _ => 0,
        };
        let belong = |a: &u8, b: &u8| kind(*a) != 0 && kind(*a) == kind(*b);
        Self { words: text.as_bytes().chunk_by(belong).collect(), others }
    }

    /// Returns the description with some words, or occasionally some bytes, changed.
    pub fn mutated(&self, random: &mut Random) -> Vec<u8> {
        if random.index(8) == 0 {
            let mut bytes = self.words.concat();
            random.mutate(&mut bytes, &SPECIAL);
            return bytes;
        }
        let mut words = self.words.clone();
        for _ in 0..=random.index(3) {
            self.mutate(&mut words, random);
        }
        words.concat()
    }

    fn mutate(&self, words: &mut Vec<&'t [u8]>, random: &mut Random) {
        let place = random.index(words.len());
        let piece = |random: &mut Random, most| place..words.len().min(place + 1 + random.index(most));
        let other: &'static [u8] = self.others[random.index(self.others.len())].as_bytes();
        match random.index(8) {
            0..=2 => words.splice(place..place + 1, [other]).for_each(drop),
            3 => words.insert(place, other),
            4 => drop(words.drain(piece(random, 8))),
            5 => {
                let with = random.index(words.len());
                words.swap(place, with);
            }
            6 => {
                // Copies a piece of the description to the same or another place.
                let copy = words[piece(random, 60)].to_vec();
                let to = random.index(words.len());
                words.splice(to..to, copy);
            }
            _ => {
                // Copies it many times, for depth and length.
                let range = piece(random, 6);
                let most = if random.index(64) == 0 { 300 } else { 8 };
                let copies = words[range.clone()].repeat(2 + random.index(most));
                words.splice(range, copies);
            }
        }
        if words.is_empty() {
            words.push(other);
        }
    }
}
