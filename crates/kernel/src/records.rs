//! Records in bytes that were copied from a ring. The bytes are the kernel's, but untrusted: bytes
//! that are no record cost the rest of their sub-buffer, and are reported.

use crate::{context::STACK, ring::SUBBUF_SIZE};

/// Bytes before a record's payload (`struct head` in `src/bpf/ring.h`).
const HEAD: usize = 24;
/// Number of what fills a sub-buffer's end.
const PADDING: u16 = 0;

/// A record as it stands in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UntrustedRecord<'a> {
    /// Number of the event.
    pub number: u16,
    /// The thread.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// Nanoseconds of CLOCK_MONOTONIC.
    pub time: u64,
    /// The number of a system call.
    pub extra: u32,
    /// The rest, with up to 7 bytes behind its end.
    pub payload: &'a [u8],
    /// Context behind that of each event ([`crate::context`]).
    pub context: &'a [u8],
}

/// Bytes that are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Garbage;

/// Walks over the records of a copy.
#[derive(Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
    /// Position of the first byte in the ring.
    begin: u64,
    at: usize,
    /// Bytes of an event's context.
    context: usize,
}

impl<'a> Records<'a> {
    /// The records in bytes that begin at this position of the ring.
    pub fn new(bytes: &'a [u8], begin: u64) -> Self {
        Self { bytes, begin, at: 0, context: 0 }
    }

    /// Returns the records with this number of context bytes behind each event.
    #[must_use]
    pub fn with_context(self, context: usize) -> Self {
        Self { context, ..self }
    }

    /// Position in the ring of what comes next.
    pub fn position(&self) -> u64 {
        self.begin + self.at as u64
    }

    /// Bytes up to the end of the sub-buffer or of the copy.
    fn room(&self) -> usize {
        let left = SUBBUF_SIZE - self.position() % SUBBUF_SIZE;
        (self.bytes.len() - self.at).min(left as usize)
    }

    fn parse(&self) -> Option<(usize, UntrustedRecord<'a>)> {
        let rest = self.bytes.get(self.at..self.at + self.room())?;
        let half = |at: usize| Some(u16::from_le_bytes(*rest.get(at..)?.first_chunk()?));
        let word = |at: usize| Some(u32::from_le_bytes(*rest.get(at..)?.first_chunk()?));
        let (size, number) = (usize::from(half(0)?), half(2)?);
        if size == 0 || size % 8 != 0 || size > rest.len() {
            return None;
        }
        if number == PADDING {
            let payload = &rest[size..size];
            let nothing =
                UntrustedRecord { number, tid: 0, pid: 0, time: 0, extra: 0, payload, context: payload };
            return Some((size, nothing));
        }
        let context = if number == STACK { 0 } else { self.context };
        let payload = rest.get(HEAD..size.checked_sub(context)?)?;
        let context = rest.get(size - context..size)?;
        let time = u64::from_le_bytes(*rest.get(8..)?.first_chunk()?);
        Some((
            size,
            UntrustedRecord {
                number,
                tid: word(4)?,
                pid: word(16)?,
                time,
                extra: word(20)?,
                payload,
                context,
            },
        ))
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<UntrustedRecord<'a>, Garbage>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.at < self.bytes.len() {
            match self.parse() {
                Some((size, record)) => {
                    self.at += size;
                    if record.number != PADDING {
                        return Some(Ok(record));
                    }
                }
                None => {
                    self.at += self.room();
                    return Some(Err(Garbage));
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(number: u16, payload: &[u8]) -> Vec<u8> {
        let size = (HEAD + payload.len()).next_multiple_of(8);
        let mut bytes = [(size as u16).to_le_bytes(), number.to_le_bytes()].concat();
        bytes.extend(7u32.to_le_bytes());
        bytes.extend(1000u64.to_le_bytes());
        bytes.extend(6u32.to_le_bytes());
        bytes.extend(42u32.to_le_bytes());
        bytes.extend(payload);
        bytes.resize(size, 0);
        bytes
    }

    #[test]
    fn records_and_padding() {
        let mut bytes = record(3, b"abcdefgh");
        bytes.extend([16, 0, 0, 0]);
        bytes.extend([0xff; 12]);
        bytes.extend(record(4, b""));
        let found: Vec<_> = Records::new(&bytes, 0).map(|record| record.unwrap().number).collect();
        assert_eq!(found, [3, 4]);
        let first = Records::new(&bytes, 0).next().unwrap().unwrap();
        assert_eq!((first.tid, first.pid, first.time, first.extra), (7, 6, 1000, 42));
        assert_eq!(first.payload, b"abcdefgh");
    }

    #[test]
    fn context_stands_behind_events_and_not_behind_stacks() {
        let bytes =
            [record(3, b"abcdefgh--------"), record(STACK, b"abcdefgh"), record(3, b"short")].concat();
        let found: Vec<_> = Records::new(&bytes, 0).with_context(8).map(Result::unwrap).collect();
        assert_eq!((found[0].payload, found[0].context), (&b"abcdefgh"[..], &b"--------"[..]));
        assert_eq!((found[1].payload, found[1].context), (&b"abcdefgh"[..], &b""[..]));
        assert_eq!((found[2].payload, found[2].context), (&b""[..], &b"short\0\0\0"[..]));
        assert_eq!(Records::new(&record(3, b""), 0).with_context(8).next(), Some(Err(Garbage)));
    }

    #[test]
    fn garbage_costs_its_own_sub_buffer() {
        let mut bytes = record(3, b"");
        bytes.extend([0xff; 64]);
        bytes.resize(SUBBUF_SIZE as usize, 0xff);
        bytes.extend(record(4, b""));
        let found: Vec<_> = Records::new(&bytes, 0).map(|record| record.map(|it| it.number)).collect();
        assert_eq!(found, [Ok(3), Err(Garbage), Ok(4)]);
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let mut seed = 1u64;
        for length in 0..400 {
            let bytes: Vec<u8> = (0..length)
                .map(|_| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (seed >> 60) as u8
                })
                .collect();
            let _ = Records::new(&bytes, SUBBUF_SIZE - 200).with_context(16).count();
        }
    }
}
