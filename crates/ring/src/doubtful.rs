//! A ring's bytes after a power cut: each page is from the moment at which it was last written to the medium.
//!
//! So between sound records there may be pages that were never written (zeros), and pages of an earlier lap or, in
//! a flight recorder, of a later one. What can be told apart, and by what:
//!
//! * a sub-buffer's beginning, by the position in its header;
//! * a record, by its time, the last of its words to be stored: it lies between the openings of its own and the next
//!   sub-buffer, and where the clock was read inside the section it is not less than the one before;
//! * zeros, which look like padding, by the number of events that the next header counts.
//!
//! A record that begins in one page and ends in the next is believed only if another sound one begins behind it
//! in that page: the next page's part of it could be an earlier lap's otherwise. So a record may be counted as
//! missing although it is there; none is shown that isn't. What can't be told is a page in the middle of a
//! record that is longer than a page.

use tompion_layout::PAGE;

use crate::records::{Records, UntrustedRecord};

/// What is known of what comes behind a sub-buffer's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing: the ring ends with these bytes, and had taken so many events.
    End {
        /// Number of events.
        events: u64,
    },
    /// The next sub-buffer's header.
    Subbuffer {
        /// When it was opened.
        time: u64,
        /// How many events the ring had taken until then.
        events: u64,
    },
    /// Another sub-buffer, whose header is not on the medium.
    Unreadable,
}

/// How a ring was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manner {
    /// Bytes of a sub-buffer.
    pub subbuf_size: u64,
    /// Whether times never decrease from record to record.
    pub ordered: bool,
}

struct Walked {
    begin: u64,
    end: u64,
    time: u64,
}

/// Up to which position the bytes of one sub-buffer, which begins at `begin`, can be believed. `begin` if not at all.
pub fn sound_end(bytes: &[u8], begin: u64, manner: Manner, next: Next) -> u64 {
    let mut records = Records::new(bytes, begin, manner.subbuf_size);
    let Some(Ok(UntrustedRecord::Subbuffer { time: opened, events: before, .. })) = records.next() else {
        return begin;
    };
    let header_end = records.stream_position();
    let mut walked = Vec::new();
    let is_clean = loop {
        let begin = records.stream_position();
        match records.next() {
            Some(Ok(UntrustedRecord::Event { time, .. })) => {
                walked.push(Walked { begin, end: records.stream_position(), time });
            }
            Some(_) => break false,
            None => break true,
        }
    };
    let closed = if let Next::Subbuffer { time, .. } = next { time } else { u64::MAX };
    let sound = count_of_this_lap(&walked, opened..=closed, manner.ordered);
    let is_counted = match next {
        Next::End { events } | Next::Subbuffer { events, .. } => {
            before.checked_add(sound as u64) == Some(events)
        }
        Next::Unreadable => false,
    };
    let end = begin + bytes.len() as u64;
    let last = walked[..sound].last().map_or(header_end, |last| last.end);
    // Nothing but padding may come behind the last one, and that only where a sub-buffer ends.
    let is_whole =
        is_clean && is_counted && sound == walked.len() && (last == end || end % manner.subbuf_size == 0);
    match walked[..sound].last() {
        Some(last) if last.begin / PAGE != (last.end - 1) / PAGE => last.begin,
        _ if is_whole => end,
        _ => last,
    }
}

/// How many of the first records are of the lap whose sub-buffer was open during these times.
fn count_of_this_lap(walked: &[Walked], open: std::ops::RangeInclusive<u64>, ordered: bool) -> usize {
    let is_foreign = |record: &Walked| !open.contains(&record.time);
    if ordered {
        let mut latest = 0;
        let follows = |record: &&Walked| {
            let follows = !is_foreign(record) && record.time >= latest;
            latest = record.time;
            follows
        };
        return walked.iter().take_while(follows).count();
    }
    // A preempted thread may have appended an older time, and opened a sub-buffer with one. But a page of another
    // lap is foreign to its end.
    let foreign_page = |(index, record): (usize, &Walked)| {
        let page = record.begin / PAGE;
        let mut rest = walked[index..].iter().take_while(|other| other.begin / PAGE == page);
        is_foreign(record) && rest.all(is_foreign)
    };
    walked.iter().enumerate().position(foreign_page).unwrap_or(walked.len())
}

#[cfg(test)]
mod tests {
    use tompion_layout::record::{self, Head, SubbufferHeader};

    use super::*;

    const SIZE: u64 = 4 * PAGE;
    const MANNER: Manner = Manner { subbuf_size: SIZE, ordered: true };
    /// Four words: 128 fill a page, and none crosses one but for the header's eight odd bytes.
    const LEN: u64 = 32;

    /// A sub-buffer of a lap, full of records at one time a nanosecond, and how many there are.
    fn subbuffer(lap: u64) -> (Vec<u8>, u64) {
        let (begin, mut time) = (lap * 4 * SIZE, lap * 1_000_000);
        let before = lap * 10_000;
        let header = [SubbufferHeader::head().to_word(), time, begin, 0, before];
        let mut bytes: Vec<u8> = header.into_iter().flat_map(u64::to_le_bytes).collect();
        let mut count = 0;
        while bytes.len() as u64 + LEN <= SIZE {
            time += 1;
            count += 1;
            let head = Head { id: record::FIRST_EVENT, words: 4, tid: 7 }.to_word();
            bytes.extend([head, time, lap, count].into_iter().flat_map(u64::to_le_bytes));
        }
        bytes.resize(SIZE as usize, 0);
        (bytes, count)
    }

    fn next(lap: u64, count: u64) -> Next {
        Next::Subbuffer { time: lap * 1_000_000 + count + 1, events: lap * 10_000 + count }
    }

    fn sound(bytes: &[u8], next: Next) -> u64 {
        [true, false].map(|ordered| sound_end(bytes, 4 * SIZE, Manner { ordered, ..MANNER }, next))[0]
            - 4 * SIZE
    }

    #[test]
    fn a_whole_subbuffer_is_believed() {
        let (bytes, count) = subbuffer(1);
        assert_eq!(sound(&bytes, next(1, count)), SIZE);
        assert_eq!(sound(&bytes, Next::End { events: 10_000 + count }), SIZE);
    }

    #[test]
    fn pages_of_other_laps_and_empty_ones_end_what_is_believed() {
        let (bytes, count) = subbuffer(1);
        for page in 0..4 {
            for other in [subbuffer(0).0, subbuffer(2).0, vec![0; SIZE as usize]] {
                for ordered in [true, false] {
                    let mut bytes = bytes.clone();
                    let place = (page * PAGE) as usize..((page + 1) * PAGE) as usize;
                    bytes[place.clone()].copy_from_slice(&other[place]);
                    let end = sound_end(&bytes, 4 * SIZE, Manner { ordered, ..MANNER }, next(1, count));
                    let end = end - 4 * SIZE;
                    // The record that reaches into the foreign page is not believed.
                    let expected = (page * PAGE).saturating_sub(LEN)..page * PAGE + 1;
                    assert!(expected.contains(&end), "page {page}: {end}");
                }
            }
        }
    }

    #[test]
    fn what_is_not_counted_is_padding_that_never_was() {
        let (bytes, count) = subbuffer(1);
        let part = &bytes[..1000 / 8 * 8];
        let records = (1000 - 40) / LEN;
        assert_eq!(sound(part, Next::End { events: 10_000 + records }), 40 + records * LEN);
        assert_eq!(sound(&bytes, Next::Unreadable), SIZE - (SIZE - 40) % LEN);
        assert!(sound(&bytes, next(1, count + 1)) < SIZE);
        assert_eq!(sound(&subbuffer(0).0, next(1, count)), 0);
    }
}
