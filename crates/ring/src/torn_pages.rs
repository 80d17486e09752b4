//! Check of a ring's bytes after a power cut: each page is from the moment at which it was last
//! written to the medium.
//!
//! So between sound records there may be pages that were never written (zeros), and pages of an
//! earlier lap or, in a flight recorder, of a later one. What can be told apart, and by what:
//!
//! * a sub-buffer's beginning, by the position in its header;
//! * a record, by its time, the last of its words to be stored: it lies between the openings of its
//!   own and the next sub-buffer, and where the clock was read inside the section it is not less
//!   than the one before;
//! * zeros, which look like padding, by the number of events that the next header counts.
//!
//! In reserve form each record has a word that tells its position and lap, and which was stored
//! last: a record within one page is believed by that word alone, and one that reaches into another
//! page never.
//!
//! Otherwise, a record that begins in one page and ends in the next is believed only if another
//! sound one begins behind it in that page: the next page's part of it could be an earlier lap's
//! otherwise. So a record may be counted as missing although it is there; none is shown that isn't.
//! What can't be told is a page in the middle of a record that is longer than a page.

use std::ops::Range;

use tompion_layout::{PAGE, record::WriteProtocol};

use crate::records::{Records, UntrustedRecord};

/// Knowledge of what comes behind a sub-buffer's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing: the ring ends with these bytes, and had taken so many events.
    End {
        /// Number of events.
        events: u64,
    },
    /// The next sub-buffer's header.
    Subbuffer {
        /// Time at which it was opened.
        time: u64,
        /// Number of events that the ring had taken until then.
        events: u64,
    },
    /// Another sub-buffer, whose header is not on the medium.
    Unreadable,
}

/// Format in which a ring was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingFormat {
    /// Protocol by which records were written.
    pub form: WriteProtocol,
    /// Bytes of a sub-buffer.
    pub subbuf_size: u64,
    /// Whether times never decrease from record to record.
    pub ordered: bool,
    /// Whether laps are overwritten unread: pages may be from later laps than the position.
    pub overwrite: bool,
}

struct Walked {
    begin: u64,
    end: u64,
    time: u64,
}

/// Returns the intact ranges of the sub-buffer that begins at `begin`, as positions in order. Each
/// range begins with a record.
pub fn intact_ranges(bytes: &[u8], begin: u64, format: RingFormat, next: Next) -> Vec<Range<u64>> {
    if format.form == WriteProtocol::ReserveCommit {
        return committed_parts(bytes, begin, format.subbuf_size);
    }
    let Some(walk) = walk(bytes, begin, format, next) else { return Vec::new() };
    if format.overwrite && !matches!(next, Next::Subbuffer { .. }) {
        // Nothing tells when this lap ended, so any page may be of a later one.
        let mut parts = Vec::new();
        add_part(&mut parts, begin..walk.header_end);
        walk.records.iter().for_each(|record| add_part(&mut parts, record.begin..record.end));
        return parts;
    }
    let end = sound_end(&walk, begin + bytes.len() as u64, format.subbuf_size);
    Vec::from_iter(Some(begin..end))
}

/// Adds a record that lies in one page to the part that it continues; leaves out one that doesn't.
fn add_part(parts: &mut Vec<Range<u64>>, record: Range<u64>) {
    if !is_in_one_page(&record) {
        return;
    }
    match parts.last_mut() {
        Some(part) if part.end == record.start => part.end = record.end,
        _ => parts.push(record),
    }
}

fn is_in_one_page(record: &Range<u64>) -> bool {
    record.start / PAGE == (record.end - 1) / PAGE
}

/// The complete records in reserve form that lie in one page each.
///
/// A commit word is of one position and lap, and was stored after its record: a page that has it
/// has all of the record that lies in that page. The next page may be older than the commit word,
/// even if it has later records: writers complete theirs in any order.
fn committed_parts(bytes: &[u8], begin: u64, subbuf_size: u64) -> Vec<Range<u64>> {
    let mut records = Records::new(bytes, begin, subbuf_size).in_form(WriteProtocol::ReserveCommit);
    let mut parts: Vec<Range<u64>> = Vec::new();
    loop {
        // Where padding comes before it, this is not the next record's beginning, and there is none
        // in this sub-buffer.
        let begin = records.stream_position();
        let Some(record) = records.next() else { return parts };
        let end = records.stream_position();
        let is_complete =
            matches!(record, Ok(UntrustedRecord::Event { .. } | UntrustedRecord::Subbuffer { .. }));
        if is_complete {
            add_part(&mut parts, begin..end);
        }
    }
}

/// Beginning of a sub-buffer: its header, and the first records, as far as they are of its lap.
struct Walk {
    header_end: u64,
    records: Vec<Walked>,
    /// Whether nothing else stands there, and the next known count of events says the same.
    is_all: bool,
}

/// Walks the bytes of one sub-buffer, which begins at `begin`. None if it has no header.
fn walk(bytes: &[u8], begin: u64, format: RingFormat, next: Next) -> Option<Walk> {
    let mut records = Records::new(bytes, begin, format.subbuf_size);
    let Some(Ok(UntrustedRecord::Subbuffer { time: opened, events: before, .. })) = records.next() else {
        return None;
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
    let sound = count_of_this_lap(&walked, opened..=closed, format.ordered);
    let is_counted = match next {
        Next::End { events } | Next::Subbuffer { events, .. } => {
            before.checked_add(sound as u64) == Some(events)
        }
        Next::Unreadable => false,
    };
    let is_all = is_clean && is_counted && sound == walked.len();
    walked.truncate(sound);
    Some(Walk { header_end, records: walked, is_all })
}

/// Up to which position, at most `end`, the bytes of a sub-buffer can be believed.
fn sound_end(walk: &Walk, end: u64, subbuf_size: u64) -> u64 {
    let last = walk.records.last().map(|last| last.begin..last.end);
    let last_end = last.as_ref().map_or(walk.header_end, |last| last.end);
    // Nothing but padding may come behind the last one, and that only where a sub-buffer ends.
    let is_whole = walk.is_all && (last_end == end || end % subbuf_size == 0);
    match last {
        Some(last) if !is_in_one_page(&last) => last.start,
        _ if is_whole => end,
        _ => last_end,
    }
}

/// Number of the first records that are of the lap whose sub-buffer was open during these times.
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
    // A preempted thread may have appended an older time, and opened a sub-buffer with one. But a
    // page of another lap is foreign to its end.
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
    const FORMAT: RingFormat =
        RingFormat { form: WriteProtocol::Rseq, subbuf_size: SIZE, ordered: true, overwrite: false };
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
        let [ordered, unordered] =
            [true, false].map(|ordered| end_of(bytes, RingFormat { ordered, ..FORMAT }, next));
        assert_eq!(ordered, unordered);
        ordered
    }

    /// Number of intact bytes of a sub-buffer of the first lap, which are one range.
    fn end_of(bytes: &[u8], format: RingFormat, next: Next) -> u64 {
        match &intact_ranges(bytes, 4 * SIZE, format, next)[..] {
            [] => 0,
            [part] => part.end - 4 * SIZE,
            parts => panic!("{parts:?}"),
        }
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
                    let end = end_of(&bytes, RingFormat { ordered, ..FORMAT }, next(1, count));
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

    #[test]
    fn where_any_page_may_be_of_a_later_lap_no_record_of_two_pages_is_believed() {
        let (mut bytes, count) = subbuffer(1);
        // As many records, at the same places.
        let page = PAGE as usize..2 * PAGE as usize;
        bytes[page.clone()].copy_from_slice(&subbuffer(2).0[page]);
        let format = RingFormat { overwrite: true, ..FORMAT };
        let next = Next::End { events: 10_000 + count };
        let parts = intact_ranges(&bytes, 4 * SIZE, format, next);
        let lens: Vec<u64> = parts.iter().map(|part| part.end - part.start).collect();
        assert!(parts.iter().all(is_in_one_page), "{parts:?}");
        // What follows the later page would go back in time.
        assert_eq!(lens, [40 + 126 * LEN, 127 * LEN]);
        // In discard mode there are no such pages: all is believed up to where the record across
        // the page's end begins.
        assert_eq!(end_of(&bytes, FORMAT, next), 2 * PAGE - 24);
    }

    /// A sub-buffer of a lap in reserve form, full of records of 48 bytes.
    fn reserved_subbuffer(lap: u64) -> Vec<u8> {
        let begin = lap * 4 * SIZE;
        let stamp = |bytes: &[u8]| record::stamp(begin + bytes.len() as u64);
        let header = [record::stamp(begin), SubbufferHeader::reserve_head().to_word(), 1, begin, 0, lap, 0];
        let mut bytes: Vec<u8> = header.into_iter().flat_map(u64::to_le_bytes).collect();
        while bytes.len() as u64 + 48 <= SIZE {
            let head = Head { id: record::FIRST_EVENT, words: 6, tid: 7 }.to_word();
            let words = [stamp(&bytes), head, 2, lap, lap, lap];
            bytes.extend(words.into_iter().flat_map(u64::to_le_bytes));
        }
        let padding = record::padding_stamp(begin + bytes.len() as u64);
        bytes.extend(padding.to_le_bytes());
        bytes.resize(SIZE as usize, 0xee);
        bytes
    }

    #[test]
    fn in_reserve_form_each_record_of_a_page_is_believed_by_itself() {
        let format = RingFormat { form: WriteProtocol::ReserveCommit, ..FORMAT };
        let begin = 4 * SIZE;
        let straddles = |place: u64| place / PAGE != (place + 47) / PAGE;
        for old in 0..5 {
            let mut bytes = reserved_subbuffer(1);
            if old < 4 {
                let page = (old * PAGE) as usize..((old + 1) * PAGE) as usize;
                bytes[page.clone()].copy_from_slice(&reserved_subbuffer(0)[page]);
            }
            let believed: Vec<u64> = intact_ranges(&bytes, begin, format, Next::Unreadable)
                .into_iter()
                .flat_map(|part| {
                    let first = if part.start == begin { begin + 56 } else { part.start };
                    (first..part.end).step_by(48).map(|position| position - begin)
                })
                .collect();
            let sound = |place: &u64| place / PAGE != old && !straddles(*place);
            let expected: Vec<u64> = (56..SIZE - 47).step_by(48).filter(sound).collect();
            assert_eq!(believed, expected, "page {old}");
        }
    }
}
