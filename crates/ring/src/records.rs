//! Walking a private copy of ring bytes, none of which is trusted.

use tompion_layout::record::{self, Head, SubbufferHeader};

/// A record in copied bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UntrustedRecord<'a> {
    /// An event.
    Event {
        /// Number of the event in the catalog; nobody has checked that it is there.
        number: u16,
        /// The writing thread, as it says.
        tid: u32,
        /// Timestamp.
        time: u64,
        /// Fixed part and tails, with up to seven bytes of padding.
        payload: &'a [u8],
    },
    /// A sub-buffer begins.
    Subbuffer {
        /// Timestamp of its opening.
        time: u64,
        /// What the ring had lost until then.
        lost: u64,
        /// How many events it had taken until then.
        events: u64,
    },
}

/// Bytes that are no record. Reading goes on at the next sub-buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Position in the ring's byte stream.
    pub position: u64,
    /// How many bytes were passed over.
    pub skipped: u64,
    /// What is wrong.
    pub what: &'static str,
}

/// The records of a run of ring bytes.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
    begin: u64,
    at: usize,
    subbuf_size: u64,
}

impl<'a> Records<'a> {
    /// Walks `bytes`, which stood at position `begin` of a ring with sub-buffers of this size.
    ///
    /// `begin` is where a record or a sub-buffer begins.
    pub fn new(bytes: &'a [u8], begin: u64, subbuf_size: u64) -> Self {
        Self { bytes, begin, at: 0, subbuf_size }
    }

    /// Position of the next record.
    pub fn stream_position(&self) -> u64 {
        self.begin + self.at as u64
    }

    /// Index in the bytes where the current sub-buffer ends, or where the bytes do.
    fn subbuffer_end(&self) -> usize {
        let rest = self.subbuf_size - (self.stream_position() & (self.subbuf_size - 1));
        self.bytes.len().min(self.at.saturating_add(rest as usize))
    }

    fn word(&self, at: usize) -> u64 {
        let bytes = self.bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_le_bytes)
    }

    fn refuse(&mut self, what: &'static str) -> Refusal {
        let (position, end) = (self.stream_position(), self.subbuffer_end());
        let skipped = (end - self.at) as u64;
        self.at = end;
        Refusal { position, skipped, what }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<UntrustedRecord<'a>, Refusal>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.bytes.len().saturating_sub(self.at) < 8 {
                return (self.at < self.bytes.len()).then(|| Err(self.refuse("less than a word")));
            }
            let end = self.subbuffer_end();
            let head = Head::from_word(self.word(self.at));
            if head.id == record::PADDING {
                if head.words != 0 || head.tid != 0 {
                    return Some(Err(self.refuse("padding with a length")));
                }
                self.at = end;
                continue;
            }
            let first = self.stream_position() & (self.subbuf_size - 1) == 0;
            let len = head.len();
            if len < record::HEADER || self.at + len > end {
                return Some(Err(self.refuse("a length that cannot be")));
            }
            if first != (head.id == record::SUBBUFFER) {
                return Some(Err(self.refuse("no sub-buffer header where one belongs")));
            }
            let at = self.at;
            let time = self.word(at + 8);
            if first {
                if len != SubbufferHeader::LEN
                    || self.word(at + SubbufferHeader::POSITION) != self.stream_position()
                {
                    return Some(Err(self.refuse("a sub-buffer header of another place")));
                }
                self.at += len;
                let lost = self.word(at + SubbufferHeader::LOST);
                let events = self.word(at + SubbufferHeader::EVENTS);
                return Some(Ok(UntrustedRecord::Subbuffer { time, lost, events }));
            }
            let Some(number) = head.id.checked_sub(record::FIRST_EVENT) else {
                return Some(Err(self.refuse("an unknown kind of record")));
            };
            self.at += len;
            let payload = self.bytes.get(at + record::HEADER..at + len).unwrap_or(&[]);
            return Some(Ok(UntrustedRecord::Event { number, tid: head.tid, time, payload }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUBBUF: u64 = 4096;

    fn header(position: u64) -> Vec<u8> {
        [SubbufferHeader::head().to_word(), 5, position, 2, 9].map(u64::to_le_bytes).concat()
    }

    fn event(number: u16, payload: u64) -> Vec<u8> {
        let head = Head { id: record::FIRST_EVENT + number, words: 3, tid: 77 };
        [head.to_word(), 6, payload].map(u64::to_le_bytes).concat()
    }

    #[test]
    fn events_follow_the_header_and_padding_ends_the_subbuffer() {
        let mut bytes = [header(SUBBUF), event(3, 8)].concat();
        bytes.resize(SUBBUF as usize, 0);
        bytes.extend(header(2 * SUBBUF));
        let records: Vec<_> = Records::new(&bytes, SUBBUF, SUBBUF).map(Result::unwrap).collect();
        assert_eq!(
            records,
            [
                UntrustedRecord::Subbuffer { time: 5, lost: 2, events: 9 },
                UntrustedRecord::Event { number: 3, tid: 77, time: 6, payload: &8u64.to_le_bytes() },
                UntrustedRecord::Subbuffer { time: 5, lost: 2, events: 9 },
            ]
        );
    }

    #[test]
    fn garbage_costs_its_own_subbuffer_only() {
        for garbage in [u64::MAX, 1, 16, 0x0001_0010, 0xffff_0010, 0x0003_0002] {
            let mut bytes = [header(0), garbage.to_le_bytes().to_vec()].concat();
            bytes.resize(SUBBUF as usize, 0xff);
            bytes.extend(header(SUBBUF));
            bytes.extend(event(0, 1));
            let records: Vec<_> = Records::new(&bytes, 0, SUBBUF).collect();
            assert_eq!(records.len(), 4, "{garbage:#x}: {records:?}");
            assert_eq!(records[1].unwrap_err().position, SubbufferHeader::LEN as u64);
            assert!(records[3].is_ok());
        }
    }

    #[test]
    fn a_header_from_an_earlier_lap_is_refused() {
        let bytes = header(0);
        assert!(Records::new(&bytes, SUBBUF, SUBBUF).next().unwrap().is_err());
    }
}
