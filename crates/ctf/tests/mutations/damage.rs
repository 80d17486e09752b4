//! How descriptions and packets are damaged, and how often.

use std::time::{Duration, Instant};

/// No execution takes longer, by a processor's time: others may need the processors meanwhile.
const LONGEST: Duration = Duration::from_secs(5);
/// After so many executions it is asked how much of that this thread has had.
const BETWEEN: u64 = 4096;
/// Words that mean something in TSDL, and numbers that programs count wrong with.
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
/// The same for CTF 2.
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

/// Counts executions, and says which one it was that failed or took too long.
pub struct Rounds {
    seed: u64,
    wanted: u64,
    next: u64,
    begin: Instant,
    /// The processor's time that was used some executions ago, which together take no time worth mentioning.
    used: Option<Duration>,
}

/// The processor's time that this thread has used; nothing if nobody knows.
fn used() -> Option<Duration> {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(Duration::from_nanos(told.split(' ').next()?.parse().ok()?))
}

impl Rounds {
    /// So many as `TOMPION_FUZZ` says, else ten million with `TOMPION_FULL=1`, else a few.
    pub fn new(few: u64) -> Self {
        let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
        let full = std::env::var_os("TOMPION_FULL").is_some_and(|value| value == "1");
        let wanted = number("TOMPION_FUZZ").unwrap_or(if full { 10_000_000 } else { few });
        let seed = number("TOMPION_FUZZ_SEED").unwrap_or(1);
        Self { seed, wanted, next: 0, begin: Instant::now(), used: used() }
    }

    /// Random numbers, others for each seed.
    pub fn random(&self, start: u64) -> Random {
        // The generator stays at zero for ever.
        Random(start.wrapping_add(self.seed.wrapping_mul(0x2545_f491_4f6c_dd1d)).max(1))
    }

    /// The number of the next execution.
    pub fn next(&mut self) -> Option<u64> {
        let round = self.next;
        let now = Instant::now();
        let took = now - self.begin;
        if took >= LONGEST {
            let took = self.used.and_then(|before| used()?.checked_sub(before)).unwrap_or(took);
            assert!(took < LONGEST, "execution {} took {took:?}", round.wrapping_sub(1));
        }
        if round % BETWEEN == 0 {
            self.used = used();
        }
        self.begin = now;
        self.next += 1;
        (round < self.wanted).then_some(round)
    }

    /// How many executions there were.
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

/// xorshift64
pub struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    /// Changes, cuts, doubles or inserts a few bytes.
    pub fn mutate(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(4) {
            let place = self.below(bytes.len());
            let odd = [0, 1, 0x7f, 0x80, 0xff, b'{', b'}', b';', b'[', b'9'][self.below(10)];
            match self.below(7) {
                0 | 1 => bytes[place..].iter_mut().take(1).for_each(|byte| *byte ^= 1 << (self.0 & 7)),
                2 => bytes[place..].iter_mut().take(4).for_each(|byte| *byte = odd),
                3 if bytes.len() > 8 => bytes.truncate(place.max(8)),
                4 => bytes.insert(place, odd),
                5 => drop(bytes.drain(place..bytes.len().min(place + 7))),
                _ => {
                    let piece = bytes[place..bytes.len().min(place + 40)].to_vec();
                    let to = self.below(bytes.len());
                    bytes.splice(to..to, piece);
                }
            }
            if bytes.is_empty() {
                bytes.push(odd);
            }
        }
    }

    /// A description in one or two packets, as tracers write it, some of them damaged.
    pub fn in_packets(&mut self, text: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(text.len() + 100);
        let border = self.below(text.len());
        for part in [&text[..border], &text[border..]] {
            let size = (37 + part.len() as u32) * 8;
            bytes.extend(0x75d1_1d57u32.to_le_bytes());
            bytes.extend([0; 20]);
            bytes.extend(size.to_le_bytes());
            bytes.extend(size.to_le_bytes());
            bytes.extend([0, 0, 0, 1, 8]);
            bytes.extend(part);
        }
        if self.below(2) == 0 {
            let place = self.below(37);
            bytes[place] ^= 1 << self.below(8);
        }
        bytes
    }
}

/// The words of a description, which are damaged as words: most of what comes of it can be read.
pub struct Words<'t> {
    words: Vec<&'t [u8]>,
    others: &'static [&'static str],
}

impl<'t> Words<'t> {
    /// Takes a description apart. `others` are words that may stand in it.
    pub fn of(text: &'t str, others: &'static [&'static str]) -> Self {
        let kind = |byte: u8| match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'.' | b'-' | b'"' => 1,
            b' ' | b'\n' => 2,
            _ => 0,
        };
        let belong = |a: &u8, b: &u8| kind(*a) != 0 && kind(*a) == kind(*b);
        Self { words: text.as_bytes().chunk_by(belong).collect(), others }
    }

    /// The description with some words, or now and then some bytes, changed.
    pub fn damaged(&self, random: &mut Random) -> Vec<u8> {
        if random.below(8) == 0 {
            let mut bytes = self.words.concat();
            random.mutate(&mut bytes);
            return bytes;
        }
        let mut words = self.words.clone();
        for _ in 0..=random.below(3) {
            self.damage(&mut words, random);
        }
        words.concat()
    }

    fn damage(&self, words: &mut Vec<&'t [u8]>, random: &mut Random) {
        let place = random.below(words.len());
        let piece = |random: &mut Random, most| place..words.len().min(place + 1 + random.below(most));
        let other: &'static [u8] = self.others[random.below(self.others.len())].as_bytes();
        match random.below(8) {
            0..=2 => words.splice(place..place + 1, [other]).for_each(drop),
            3 => words.insert(place, other),
            4 => drop(words.drain(piece(random, 8))),
            5 => {
                let with = random.below(words.len());
                words.swap(place, with);
            }
            6 => {
                // A piece of the description a second time, here or elsewhere.
                let copy = words[piece(random, 60)].to_vec();
                let to = random.below(words.len());
                words.splice(to..to, copy);
            }
            _ => {
                // The same many times: depth, and length.
                let range = piece(random, 6);
                let most = if random.below(64) == 0 { 300 } else { 8 };
                let copies = words[range.clone()].repeat(2 + random.below(most));
                words.splice(range, copies);
            }
        }
        if words.is_empty() {
            words.push(other);
        }
    }
}
