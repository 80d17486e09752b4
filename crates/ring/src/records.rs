//! Walk over a private copy of ring bytes, none of which is trusted.

use tompion_layout::record::{self, Head, SubbufferHeader, WriteProtocol};

/// A record in copied bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UntrustedRecord<'a> {
    /// Event with its fields.
    Event {
        /// Number of the event in the catalog, unchecked: the catalog may lack it.
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
        /// Number of events that the ring had lost until then.
        lost: u64,
        /// Number of events that the ring had taken until then.
        events: u64,
    },
    /// Bytes of records that were reserved and never completed, in reserve form. How many records
    /// they are, the number of events in the next sub-buffer's header tells.
    Unfinished {
        /// Position of the first byte.
        position: u64,
        /// Number of bytes that were passed over.
        skipped: u64,
    },
}

/// An event's record, as [`UntrustedRecord::Event`] has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UntrustedEvent<'a> {
    /// Number of the event in the catalog, unchecked: the catalog may lack it.
    pub number: u16,
    /// The writing thread, as it says.
    pub tid: u32,
    /// Timestamp.
    pub time: u64,
    /// Fixed part and tails, with up to seven bytes of padding.
    pub payload: &'a [u8],
    /// Offset at which the next record begins.
    next: usize,
}

/// Events of one kind and length: thread, timestamp and payload of each, none of which is trusted.
#[derive(Clone, Debug)]
pub struct SameSizeRun<'a, const PAYLOAD: usize> {
    records: std::slice::ChunksExact<'a, u8>,
    /// The lower half of each record's first word.
    kind: u32,
}

impl<'a, const PAYLOAD: usize> Iterator for SameSizeRun<'a, PAYLOAD> {
    type Item = (u32, u64, &'a [u8; PAYLOAD]);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let record = self.records.next()?;
        let (head, rest) = record.split_first_chunk::<8>()?;
        let (time, payload) = rest.split_first_chunk::<8>()?;
        let head = u64::from_le_bytes(*head);
        (head as u32 == self.kind).then_some(())?;
        Some(((head >> 32) as u32, u64::from_le_bytes(*time), payload.first_chunk()?))
    }
}

/// Bytes that are no record. Reading goes on at the next sub-buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Position in the ring's byte stream.
    pub position: u64,
    /// Number of bytes that were passed over.
    pub skipped: u64,
    /// Reason for skipping them.
    pub what: &'static str,
}

/// The records of a run of ring bytes.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
    begin: u64,
    at: usize,
    subbuf_size: u64,
    form: WriteProtocol,
}

impl<'a> Records<'a> {
    /// Walks `bytes`, which stood at position `begin` of a ring with sub-buffers of this size, in
    /// section form.
    ///
    /// `begin` is where a record or a sub-buffer begins.
    pub fn new(bytes: &'a [u8], begin: u64, subbuf_size: u64) -> Self {
        Self { bytes, begin, at: 0, subbuf_size, form: WriteProtocol::Rseq }
    }

    /// Returns the records of a ring of another write protocol.
    pub fn in_form(self, form: WriteProtocol) -> Self {
        Self { form, ..self }
    }

    /// The next record, if it is a sound event: not the first record of a sub-buffer, no padding
    /// and nothing that must be refused. It stays the next one until [`Records::pass`].
    #[inline(always)]
    pub fn next_event(&self) -> Option<UntrustedEvent<'a>> {
        let position = self.stream_position();
        let within = position & (self.subbuf_size - 1);
        let rest = self.bytes.get(self.at..)?;
        let left = rest.len().min((self.subbuf_size - within) as usize);
        let commit_len = self.form.commit_len();
        let (head, time) = rest.get(commit_len..commit_len + record::HEADER)?.split_first_chunk::<8>()?;
        let head = Head::from_word(u64::from_le_bytes(*head));
        let len = head.len();
        if within == 0 || len < self.form.header_len() || len > left {
            return None;
        }
        if self.form == WriteProtocol::ReserveCommit && self.word(self.at) != record::stamp(position) {
            return None;
        }
        let number = head.id.checked_sub(record::FIRST_EVENT)?;
        let time = u64::from_le_bytes(*time.first_chunk()?);
        let payload = rest.get(commit_len + record::HEADER..len)?;
        Some(UntrustedEvent { number, tid: head.tid, time, payload, next: self.at + len })
    }

    /// Goes on behind an event that [`Records::next_event`] has returned.
    #[inline(always)]
    pub fn pass(&mut self, event: &UntrustedEvent<'a>) {
        self.at = event.next;
    }

    /// The records that follow, as far as each is as long as an event that [`Records::next_event`]
    /// has returned and has its number: for many events of one kind and of a fixed size, which need
    /// not be looked at one by one. They begin below the position `until` and stay the next ones
    /// until [`Records::skip_run`].
    ///
    /// None where the event's payload has another length than `PAYLOAD`, and none in reserve form,
    /// whose records are told one by one.
    #[inline(always)]
    pub fn same_size_run<const PAYLOAD: usize>(
        &self,
        event: &UntrustedEvent<'a>,
        until: u64,
    ) -> SameSizeRun<'a, PAYLOAD> {
        let len = record::HEADER + PAYLOAD;
        let is_first = self.stream_position() & (self.subbuf_size - 1) == 0;
        let end =
            match is_first || self.form == WriteProtocol::ReserveCommit || event.payload.len() != PAYLOAD {
                true => self.at,
                false => self.subbuffer_end().min(until.saturating_sub(self.begin) as usize),
            };
        let records = self.bytes.get(self.at..end).unwrap_or_default().chunks_exact(len);
        let head = Head { id: event.number + record::FIRST_EVENT, words: (len / 8) as u16, tid: 0 };
        SameSizeRun { records, kind: head.to_word() as u32 }
    }

    /// Skips this many of the records that [`Records::same_size_run`] has returned.
    #[inline(always)]
    pub fn skip_run<const PAYLOAD: usize>(&mut self, count: usize) {
        self.at += count * (record::HEADER + PAYLOAD);
    }

    /// Position of the next record.
    #[inline(always)]
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

    /// Whether something complete begins at an index, in reserve form.
    fn is_committed(&self, at: usize) -> bool {
        let (position, word) = (self.begin + at as u64, self.word(at));
        word == record::stamp(position) || word == record::padding_stamp(position)
    }

    /// Passes over what was never completed, up to the next record that was.
    fn skip_unfinished(&mut self) -> UntrustedRecord<'a> {
        let (position, end) = (self.stream_position(), self.subbuffer_end());
        let next = (self.at + 8..end).step_by(8).find(|&at| at + 8 <= end && self.is_committed(at));
        self.at = next.unwrap_or(end);
        UntrustedRecord::Unfinished { position, skipped: self.stream_position() - position }
    }

    /// Returns the position up to which all records are complete.
    pub(crate) fn complete_until(mut self) -> u64 {
        let unfinished = self.find_map(|record| match record {
            Ok(UntrustedRecord::Unfinished { position, .. }) => Some(position),
            _ => None,
        });
        unfinished.unwrap_or(self.begin + self.bytes.len() as u64)
    }

    /// Whether only padding follows until the end of the sub-buffer; an error where that can't be.
    fn is_padding(&self) -> Result<bool, &'static str> {
        let word = self.word(self.at);
        match self.form {
            WriteProtocol::ReserveCommit => Ok(word == record::padding_stamp(self.stream_position())),
            WriteProtocol::Rseq => match Head::from_word(word) {
                Head { id: record::PADDING, words: 0, tid: 0 } => Ok(true),
                Head { id: record::PADDING, .. } => Err("padding with a length"),
                _ => Ok(false),
            },
        }
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

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(event) = self.next_event() {
                self.pass(&event);
                let UntrustedEvent { number, tid, time, payload, .. } = event;
                return Some(Ok(UntrustedRecord::Event { number, tid, time, payload }));
            }
            if self.bytes.len().saturating_sub(self.at) < 8 {
                return (self.at < self.bytes.len()).then(|| Err(self.refuse("less than a word")));
            }
            let end = self.subbuffer_end();
            match self.is_padding() {
                Ok(true) => {
                    self.at = end;
                    continue;
                }
                Ok(false) => {}
                Err(what) => return Some(Err(self.refuse(what))),
            }
            if self.form == WriteProtocol::ReserveCommit && !self.is_committed(self.at) {
                return Some(Ok(self.skip_unfinished()));
            }
            let at = self.at + self.form.commit_len();
            let head = Head::from_word(self.word(at));
            let first = self.stream_position() & (self.subbuf_size - 1) == 0;
            let len = head.len();
            if len < self.form.header_len() || self.at + len > end {
                return Some(Err(self.refuse("a length that cannot be")));
            }
            if first != (head.id == record::SUBBUFFER) {
                return Some(Err(self.refuse("no sub-buffer header where one belongs")));
            }
            if !first {
                return Some(Err(self.refuse("an unknown kind of record")));
            }
            if len != self.form.subbuffer_header_len()
                || self.word(at + SubbufferHeader::POSITION) != self.stream_position()
            {
                return Some(Err(self.refuse("a sub-buffer header of another place")));
            }
            self.at += len;
            let time = self.word(at + 8);
            let lost = self.word(at + SubbufferHeader::LOST);
            let events = self.word(at + SubbufferHeader::EVENTS);
            return Some(Ok(UntrustedRecord::Subbuffer { time, lost, events }));
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
    fn events_that_are_alike_come_together() {
        let others = [event(4, 1), event(3, 2)].concat();
        let mut bytes = [header(SUBBUF), event(3, 7), event(3, 8), event(3, 9), others].concat();
        let behind = |bytes: &[u8], until: u64| {
            let mut records = Records::new(bytes, SUBBUF, SUBBUF);
            records.next().unwrap().unwrap();
            let first = records.next_event().unwrap();
            assert_eq!(records.same_size_run::<16>(&first, until).next(), None, "another length");
            records.pass(&first);
            let found = records.same_size_run::<8>(&first, until).map(|(tid, time, payload)| {
                assert_eq!((tid, time), (77, 6));
                u64::from_le_bytes(*payload)
            });
            let found: Vec<u64> = found.collect();
            records.skip_run::<8>(found.len());
            let next = records.next_event().map(|event| event.number);
            (found, next)
        };
        assert_eq!(behind(&bytes, u64::MAX), (vec![8, 9], Some(4)));
        // A record that doesn't end below the position is left to others.
        assert_eq!(behind(&bytes, SUBBUF + 40 + 3 * 24), (vec![8, 9], Some(4)));
        assert_eq!(behind(&bytes, SUBBUF + 40 + 3 * 24 - 1), (vec![8], Some(3)));
        assert_eq!(behind(&bytes, 0), (vec![], Some(3)));
        // The sub-buffer's end: 169 events of 24 bytes fill it.
        bytes = [header(SUBBUF), (0..169).flat_map(|_| event(3, 1)).collect()].concat();
        assert_eq!(bytes.len() as u64, SUBBUF);
        bytes.extend(event(3, 2));
        assert_eq!(behind(&bytes, u64::MAX).0.len(), 168);
        bytes.truncate(SUBBUF as usize - 1);
        assert_eq!(behind(&bytes, u64::MAX).0.len(), 167);
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

    /// Puts commit words before records, each of which begins at its position.
    fn committed(mut position: u64, records: &[Vec<u64>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for words in records {
            for word in [&[record::stamp(position)][..], words].concat() {
                bytes.extend(word.to_le_bytes());
            }
            position += 8 + words.len() as u64 * 8;
        }
        bytes
    }

    fn reserved(number: u16, payload: u64) -> Vec<u64> {
        vec![Head { id: record::FIRST_EVENT + number, words: 4, tid: 7 }.to_word(), 6, payload]
    }

    fn reserved_header(position: u64) -> Vec<u64> {
        vec![SubbufferHeader::reserve_head().to_word(), 5, position, 2, 9, 77]
    }

    #[test]
    fn incomplete_records_are_skipped_and_reported() {
        let start = 5 * SUBBUF;
        let whole =
            committed(start, &[reserved_header(start), reserved(1, 1), reserved(2, 2), reserved(3, 3)]);
        let walk = |bytes: &[u8]| {
            let records = Records::new(bytes, start, SUBBUF).in_form(WriteProtocol::ReserveCommit);
            let numbers = records.clone().map(|record| match record.unwrap() {
                UntrustedRecord::Event { number, payload, .. } => {
                    i64::from(number) * 10 + i64::from(payload[0])
                }
                UntrustedRecord::Subbuffer { lost: 2, events: 9, .. } => 0,
                UntrustedRecord::Subbuffer { .. } => panic!("another header"),
                UntrustedRecord::Unfinished { skipped, .. } => -(skipped as i64),
            });
            (numbers.collect::<Vec<_>>(), records.complete_until() - start)
        };
        assert_eq!(walk(&whole), (vec![0, 11, 22, 33], whole.len() as u64));
        let without = |at: usize| [&whole[..at], &[0; 8][..], &whole[at + 8..]].concat();
        assert_eq!(walk(&without(0)), (vec![-56, 11, 22, 33], 0));
        assert_eq!(walk(&without(56)), (vec![0, -32, 22, 33], 56));
        assert_eq!(walk(&without(120)), (vec![0, 11, 22, -32], 120));
        // An earlier lap's commit word is none.
        let mut stale = whole.clone();
        stale[88..96].copy_from_slice(&record::stamp(start + 88 - 4 * SUBBUF).to_le_bytes());
        assert_eq!(walk(&stale), (vec![0, 11, -32, 33], 88));
        let mut padded = whole[..88].to_vec();
        padded.extend(record::padding_stamp(start + 88).to_le_bytes());
        padded.resize(SUBBUF as usize, 0xee);
        padded.extend(committed(start + SUBBUF, &[reserved_header(start + SUBBUF), reserved(4, 4)]));
        assert_eq!(walk(&padded), (vec![0, 11, 0, 44], padded.len() as u64));
        padded[88] ^= 1;
        assert_eq!(walk(&padded), (vec![0, 11, 88 - SUBBUF as i64, 0, 44], 88));
    }

    #[test]
    fn a_header_from_an_earlier_lap_is_refused() {
        let bytes = header(0);
        assert!(Records::new(&bytes, SUBBUF, SUBBUF).next().unwrap().is_err());
    }
}
