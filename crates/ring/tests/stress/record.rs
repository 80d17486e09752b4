//! Records of varied length that carry their own proof, cheap to make and to check.

use tompion_layout::record;
use tompion_ring::producer::{Event, Outcome, Retention, Tail};

use crate::support::Bench;

/// Bytes that tails are cut out of.
static PATTERN: [u8; 4096] = pattern();

const fn pattern() -> [u8; 4096] {
    let mut bytes = [0; 4096];
    let mut index = 0;
    while index < bytes.len() {
        bytes[index] = (mix(index as u64) >> 24) as u8;
        index += 1;
    }
    bytes
}

const fn mix(value: u64) -> u64 {
    let value = (value ^ value >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (value ^ value >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// Most words of an image.
const MAX_WORDS: usize = 8;

/// Composition of the record of a source with a number.
struct Shape {
    proof: u64,
    words: usize,
    tails: [&'static [u8]; 2],
}

impl Shape {
    fn new(source: u16, number: u64) -> Self {
        let proof = mix(u64::from(source) << 48 | number);
        // Every fourth has a tail, and few have long ones.
        let first = if proof % 4 == 0 { (proof >> 8) as usize % 100 } else { 0 };
        let second = if proof % 128 == 0 { (proof >> 16) as usize % 1500 } else { 0 };
        let at = (proof >> 32) as usize % 2048;
        let tails = [&PATTERN[at..at + first], &PATTERN[at + 100..at + 100 + second]];
        Self { proof, words: 1 + (proof >> 40) as usize % MAX_WORDS, tails }
    }

    fn word(&self, index: usize) -> u64 {
        self.proof.rotate_left(index as u32 * 7) ^ index as u64
    }
}

/// Function that appends an event.
pub type Append = fn(&Bench, &Event<'_>) -> Outcome;

/// Appends in the way of the recording: by a section, or by reserving.
pub fn as_recorded(bench: &Bench, event: &Event<'_>) -> Outcome {
    // SAFETY: the callers that make events here keep their image and tails.
    unsafe { bench.recording.append(event) }
}

/// Appends record `number` of a source. Safe in signal handlers.
#[inline]
pub fn append(bench: &Bench, append: Append, source: u16, number: u64) -> Outcome {
    let shape = Shape::new(source, number);
    let mut image = [number; MAX_WORDS];
    for (index, word) in image[..shape.words].iter_mut().enumerate().skip(1) {
        *word = shape.word(index);
    }
    let tails = shape.tails.map(|tail| Tail { data: tail.as_ptr(), size: tail.len() });
    let count = shape.tails.iter().position(|tail| tail.is_empty()).unwrap_or(tails.len());
    let event = Event {
        id: record::FIRST_EVENT + source,
        tid: number as u32,
        time: 0,
        image: image.as_ptr().cast(),
        image_len: shape.words * 8,
        tails: &tails[..count],
        retention: Retention::Ring,
    };
    append(bench, &event)
}

/// The number of a record of a source, if all of it is as it was appended.
#[inline]
pub fn number_of(source: u16, payload: &[u8]) -> Option<u64> {
    let word = |index: usize| Some(u64::from_le_bytes(payload.get(index * 8..)?.get(..8)?.try_into().ok()?));
    let number = word(0)?;
    let shape = Shape::new(source, number);
    let is_sound = (1..shape.words).all(|index| word(index) == Some(shape.word(index)));
    let mut rest = payload.get(shape.words * 8..)?;
    for tail in shape.tails {
        rest = rest.strip_prefix(tail)?;
        if tail.is_empty() {
            break;
        }
    }
    (is_sound && rest.len() < 8).then_some(number)
}
