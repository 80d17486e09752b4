//! Reader of the rings that programs in the kernel write.
//!
//! ```text
//! rings   one entry for each CPU:  0 write │ 8 events │ 16 lost [16] │ 144 losing │ …
//!                                  192 consumed │ … │ 256 commit [1024] │ 8448 lost before [2048]
//! data    one entry for each sub-buffer: 64 KiB of records │ 8256 bytes that are never used
//! ```
//!
//! `write` is free-running and moved by the writer that reserves. A sub-buffer's commit counter is
//! what was committed to it over all laps: in lap k (from 0) it is between k and k + 1 times the
//! sub-buffer's size, and at the latter all of it is there. The reader is `models/reserve.pml`'s:
//!
//! - A full sub-buffer is taken when its counter says so. In discard mode no writer enters it
//!   before `consumed` has passed its *end*, so what was there when the counter was read is there
//!   while it is copied.
//! - A part is taken when the counter is what the position says, and the position is the same when
//!   it is read once more: then no writer has reserved in between, so the sum is made of all that
//!   lies below the position and of nothing else.
//! - In overwrite mode the position is read again behind the copy. What writers may have come to is
//!   dropped.
//!
//! In discard mode a full ring loses events only between two sub-buffers: a writer without room
//! closes the one in which it stands, and counts the loss in front of the next. It announces the
//! loss in `losing` before it decides on it. So once writers are in the next sub-buffer and nothing
//! is announced, that count is complete; the reader takes no first record before.
//!
//! The reader polls and is never woken; it never waits for a writer.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use tompion_layout::loss::Cause;
use tompion_os::SharedMap;

/// Bytes of a sub-buffer: a constant, by which the kernel's verifier sees that all accesses are
/// inside.
pub const SUBBUF_SIZE: u64 = 1 << 16;
/// Most sub-buffers of a ring.
pub const MAX_SUBBUFS: u32 = 1024;
/// Distance of two sub-buffers in memory.
const STRIDE: usize = SUBBUF_SIZE as usize + 8256;

const WRITE: usize = 0;
const EVENTS: usize = 8;
const LOST: usize = 16;
const LOSING: usize = 144;
const CONSUMED: usize = 192;
const COMMIT: usize = 256;
const LOST_BEFORE: usize = COMMIT + MAX_SUBBUFS as usize * 8;
/// Bytes of a ring's entry.
const RING: usize = LOST_BEFORE + 2 * MAX_SUBBUFS as usize * 8;
/// Maximum number of attempts to find a position at which no writer is active.
const ATTEMPTS: usize = 10_000;
/// Maximum number of attempts to find a moment at which no loss is announced. One takes a writer
/// less than a microsecond, unless it is interrupted.
const LOSS_ATTEMPTS: usize = 1000;

/// Number and size of rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Rings.
    pub cpus: u32,
    /// Sub-buffers of each, a power of two from 2 to [`MAX_SUBBUFS`].
    pub subbufs: u32,
}

impl Geometry {
    /// Geometry with rings of about this many bytes for each CPU.
    pub fn of_size(cpus: u32, bytes: u64) -> Self {
        let subbufs = (bytes / SUBBUF_SIZE).clamp(2, MAX_SUBBUFS.into()) as u32;
        Self { cpus, subbufs: 1 << subbufs.ilog2() }
    }

    /// Bytes of a ring.
    pub fn ring_size(self) -> u64 {
        u64::from(self.subbufs) * SUBBUF_SIZE
    }

    /// Entries of `data`.
    pub fn all_subbufs(self) -> u32 {
        self.cpus * self.subbufs
    }

    /// Bytes of `rings`.
    pub fn rings_bytes(self) -> u64 {
        u64::from(self.cpus) * RING as u64
    }

    /// Bytes of `data`.
    pub fn data_bytes(self) -> u64 {
        u64::from(self.all_subbufs()) * STRIDE as u64
    }
}

/// Bytes of a ring's stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Position of the first.
    pub begin: u64,
    /// Position behind the last.
    pub end: u64,
}

impl Span {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.begin == self.end
    }
}

/// Outcome of taking what a ring holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Bytes that were copied.
    pub span: Span,
    /// Sub-buffers that begin among them.
    pub openings: Vec<Opening>,
}

/// Beginning of a sub-buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// Position of its first byte.
    pub position: u64,
    /// Events that the ring lost for want of room between the events before it and those in it.
    pub lost: u64,
}

/// Reads one ring.
#[derive(Clone, Copy, Debug)]
pub struct RingReader<'a> {
    rings: &'a SharedMap,
    data: &'a SharedMap,
    geometry: Geometry,
    cpu: u32,
}

impl<'a> RingReader<'a> {
    /// The ring of a CPU below `geometry.cpus`, in mappings of the geometry's sizes.
    pub fn new(rings: &'a SharedMap, data: &'a SharedMap, geometry: Geometry, cpu: u32) -> Self {
        Self { rings, data, geometry, cpu }
    }

    fn load(&self, offset: usize) -> u64 {
        // Ordering: pairs with the writers' fetching additions and compare-and-swaps, which are
        // full barriers: a reader that sees a sum sees the bytes that were added before it; one
        // that sees a position sees the older sums.
        self.rings.word(self.cpu as usize * RING + offset).load(Ordering::Acquire)
    }

    /// The write position.
    pub fn written(&self) -> u64 {
        self.load(WRITE)
    }

    /// Events that were committed; only counted in overwrite mode.
    pub fn events(&self) -> u64 {
        self.load(EVENTS)
    }

    /// Events lost for a reason that the programs count.
    pub fn lost(&self, cause: Cause) -> u64 {
        self.load(LOST + cause as usize * 8)
    }

    fn index(&self, position: u64) -> usize {
        (position / SUBBUF_SIZE % u64::from(self.geometry.subbufs)) as usize
    }

    /// Whether all is committed from the beginning of the position's sub-buffer up to `end` in it.
    fn is_committed(&self, end: u64) -> bool {
        let subbuf = (end - 1) / SUBBUF_SIZE * SUBBUF_SIZE;
        let laps = subbuf / self.geometry.ring_size() * SUBBUF_SIZE;
        self.load(COMMIT + self.index(subbuf) * 8) == laps + (end - subbuf)
    }

    fn copy(&self, span: Span, to: &mut Vec<u8>) {
        let place = self.cpu as usize * self.geometry.subbufs as usize + self.index(span.begin);
        let offset = place * STRIDE + (span.begin % SUBBUF_SIZE) as usize;
        let from = to.len();
        to.resize(from + (span.end - span.begin) as usize, 0);
        self.data.copy_out(offset, &mut to[from..]);
    }

    /// A position below which everything is committed, if there is one in the sub-buffer in which
    /// it stands.
    fn quiet_position(&self, attempts: usize) -> Option<u64> {
        (0..attempts).find_map(|_| {
            let written = self.written();
            let whole = written % SUBBUF_SIZE == 0 || self.is_committed(written);
            (whole && self.written() == written).then_some(written)
        })
    }

    /// Word with the number of losses in front of the sub-buffer that begins at a position.
    fn losses_before(&self, position: u64) -> &AtomicU64 {
        let subbuf = (position / SUBBUF_SIZE % (2 * u64::from(self.geometry.subbufs))) as usize;
        self.rings.word(self.cpu as usize * RING + LOST_BEFORE + subbuf * 8)
    }

    /// Number of losses in front of the sub-buffer that begins at a position and that writers have
    /// entered; `None` while one of them may still be uncounted.
    fn count_losses(&self, position: u64) -> Option<u64> {
        if position == 0 {
            return Some(0);
        }
        let is_counted = || {
            std::hint::spin_loop();
            self.load(LOSING) == 0
        };
        if !(0..LOSS_ATTEMPTS).any(|_| is_counted()) {
            return None;
        }
        // Ordering: the writers that count here next do so behind a look at `consumed` that finds
        // the store in `release`, which is a release.
        Some(self.losses_before(position).load(Ordering::Acquire))
    }

    /// Discard mode: copies what is committed behind `read` and gives its room back.
    ///
    /// It ends before bytes that are still being written. Positions that can't be are an error.
    pub fn take(&self, read: u64, to: &mut Vec<u8>) -> Result<Taken, UntrustedPosition> {
        let taken = self.look(read, to)?;
        self.release(taken.span);
        Ok(taken)
    }

    /// Discard mode: the position up to which room was given back.
    pub fn released(&self) -> u64 {
        self.load(CONSUMED)
    }

    /// Discard mode: gives the room of a span back, in which all was read. It may be done again:
    /// the losses that are removed are those in front of sub-buffers that begin in it, and no
    /// writer counts any there before `consumed` has passed them.
    pub fn release(&self, Span { begin, end }: Span) {
        let begin = begin.max(end.saturating_sub(self.geometry.ring_size()));
        let mut subbuf = begin.next_multiple_of(SUBBUF_SIZE);
        while subbuf < end {
            // Ordering: before the store below.
            self.losses_before(subbuf).store(0, Ordering::Relaxed);
            subbuf += SUBBUF_SIZE;
        }
        // Ordering: pairs with the programs' look at `consumed` before they enter a sub-buffer: the
        // copy is made, and the losses are removed.
        self.rings.word(self.cpu as usize * RING + CONSUMED).store(end, Ordering::Release);
    }

    /// Discard mode: copies what is committed behind `read`, and leaves it in the ring.
    ///
    /// It ends before bytes that are still being written. Positions that can't be are an error.
    pub fn look(&self, read: u64, to: &mut Vec<u8>) -> Result<Taken, UntrustedPosition> {
        let mut span = Span { begin: read, end: read };
        let mut openings = Vec::new();
        let written = self.written();
        if written < read || written - read > self.geometry.ring_size() {
            return Err(UntrustedPosition(written));
        }
        while span.end < written {
            let subbuf_end = (span.end / SUBBUF_SIZE + 1) * SUBBUF_SIZE;
            let end = if subbuf_end <= written {
                if !self.is_committed(subbuf_end) {
                    break;
                }
                subbuf_end
            } else {
                match self.quiet_position(2).filter(|end| (span.end + 1..subbuf_end).contains(end)) {
                    Some(end) => end,
                    None => break,
                }
            };
            if span.end % SUBBUF_SIZE == 0 {
                let Some(lost) = self.count_losses(span.end) else { break };
                openings.push(Opening { position: span.end, lost });
            }
            self.copy(Span { begin: span.end, end }, to);
            span.end = end;
        }
        Ok(Taken { span, openings })
    }

    /// Overwrite mode: copies the history behind `read`, as one span for each sub-buffer.
    pub fn copy_history(&self, read: u64, to: &mut Vec<(Span, Vec<u8>)>) {
        let written = self.quiet_position(ATTEMPTS).unwrap_or_else(|| self.written());
        let current = written / SUBBUF_SIZE * SUBBUF_SIZE;
        let oldest = current.saturating_sub(self.geometry.ring_size() - SUBBUF_SIZE);
        let mut at = read.max(oldest);
        while at < written {
            let subbuf_end = (at / SUBBUF_SIZE + 1) * SUBBUF_SIZE;
            let span = Span { begin: at, end: subbuf_end.min(written) };
            at = span.end;
            let mut bytes = Vec::new();
            // A writer may have gone on in the last one since; then its sum is another.
            if span.end == subbuf_end && !self.is_committed(span.end) {
                continue;
            }
            if span.end != subbuf_end && self.quiet_position(1).is_none_or(|quiet| quiet < span.end) {
                continue;
            }
            self.copy(span, &mut bytes);
            // Ordering: the copy is made before the position is looked at again.
            fence(Ordering::Acquire);
            let begin = span.begin / SUBBUF_SIZE * SUBBUF_SIZE;
            if self.written() <= begin + self.geometry.ring_size() {
                to.push((span, bytes));
            }
        }
    }
}

/// A write position that can't be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the write position {0} can't be")]
pub struct UntrustedPosition(pub u64);

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    /// A writer that does what `src/bpf/ring.h` does, one step at a time.
    struct Writer {
        rings: SharedMap,
        data: SharedMap,
        geometry: Geometry,
    }

    impl Writer {
        fn new(subbufs: u32) -> Self {
            let geometry = Geometry { cpus: 1, subbufs };
            let map = |size: u64| {
                let file = tompion_os::create_memfd(c"ring", size).unwrap();
                SharedMap::new(file.as_fd(), size).unwrap()
            };
            Self { rings: map(geometry.rings_bytes()), data: map(geometry.data_bytes()), geometry }
        }

        fn reader(&self) -> RingReader<'_> {
            RingReader::new(&self.rings, &self.data, self.geometry, 0)
        }

        fn word(&self, offset: usize) -> &AtomicU64 {
            self.rings.word(offset)
        }

        /// Room for `size` bytes; `None` if there is none in discard mode.
        fn reserve(&self, size: u64) -> Option<u64> {
            let old = self.word(WRITE).load(Ordering::Relaxed);
            let left = SUBBUF_SIZE - old % SUBBUF_SIZE;
            let rest = if left < size { left } else { 0 };
            let end = (old + rest + size).next_multiple_of(SUBBUF_SIZE);
            let is_full = end - self.word(CONSUMED).load(Ordering::Relaxed) > self.geometry.ring_size();
            let reserved = if is_full { rest } else { rest + size };
            self.word(WRITE).store(old + reserved, Ordering::Relaxed);
            if rest > 0 {
                self.put(old, &[&(rest as u16).to_le_bytes()[..], &[0, 0]].concat());
                self.commit(old, rest);
            }
            if is_full {
                self.count_loss(old + rest);
                return None;
            }
            Some(old + rest)
        }

        fn count_loss(&self, boundary: u64) {
            let subbuf = boundary / SUBBUF_SIZE % (2 * u64::from(self.geometry.subbufs));
            self.word(LOST_BEFORE + subbuf as usize * 8).fetch_add(1, Ordering::Relaxed);
            self.word(LOST + Cause::Full as usize * 8).fetch_add(1, Ordering::Relaxed);
        }

        fn put(&self, position: u64, bytes: &[u8]) {
            let place = self.reader().index(position) * STRIDE + (position % SUBBUF_SIZE) as usize;
            self.data.copy_in(place, bytes);
        }

        fn commit(&self, position: u64, size: u64) {
            let index = self.reader().index(position);
            self.word(COMMIT + index * 8).fetch_add(size, Ordering::Release);
        }

        fn append(&self, size: u64) -> Option<u64> {
            let position = self.reserve(size)?;
            self.put(position, &[&(size as u16).to_le_bytes()[..], &[3, 0]].concat());
            self.commit(position, size);
            Some(position)
        }
    }

    /// Number of records, without those that only fill a sub-buffer's end.
    fn records(span: Span, bytes: &[u8]) -> usize {
        assert_eq!(span.end - span.begin, bytes.len() as u64);
        let half = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        let (mut at, mut count) = (0, 0);
        while at < bytes.len() {
            count += usize::from(half(at + 2) != 0);
            at += half(at).max(8);
        }
        count
    }

    #[test]
    fn what_is_committed_is_taken_and_nothing_else() {
        let writer = Writer::new(2);
        let mut bytes = Vec::new();
        writer.append(64).unwrap();
        let unfinished = writer.reserve(64).unwrap();
        writer.append(64).unwrap();
        assert!(writer.reader().take(0, &mut bytes).unwrap().span.is_empty());
        writer.put(unfinished, &[64, 0, 3, 0]);
        writer.commit(unfinished, 64);
        let span = writer.reader().take(0, &mut bytes).unwrap().span;
        assert_eq!((span.end, records(span, &bytes)), (192, 3));
    }

    #[test]
    fn room_is_given_by_whole_sub_buffers() {
        let writer = Writer::new(2);
        let mut count = 0;
        while writer.append(1000).is_some() {
            count += 1;
        }
        assert_eq!(count, 2 * (SUBBUF_SIZE / 1000));
        // All but the last bytes of the first sub-buffer have been read: that is no room.
        let word = writer.word(CONSUMED);
        word.store(SUBBUF_SIZE - 8, Ordering::Relaxed);
        assert_eq!(writer.append(1000), None);
        word.store(SUBBUF_SIZE, Ordering::Relaxed);
        assert_eq!(writer.append(1000), Some(2 * SUBBUF_SIZE));
    }

    #[test]
    fn a_full_ring_loses_events_between_two_sub_buffers() {
        let writer = Writer::new(2);
        while writer.append(1000).is_some() {}
        // 536 bytes are left, but an event behind a lost one is lost too.
        assert_eq!(writer.append(24), None);
        let mut bytes = Vec::new();
        let taken = writer.reader().take(0, &mut bytes).unwrap();
        assert_eq!(taken.span, Span { begin: 0, end: 2 * SUBBUF_SIZE });
        assert_eq!(writer.append(24), Some(2 * SUBBUF_SIZE));
        let opening = |position, lost| Opening { position, lost };
        assert_eq!(taken.openings, [opening(0, 0), opening(SUBBUF_SIZE, 0)]);
        let next = writer.reader().take(taken.span.end, &mut bytes).unwrap();
        assert_eq!(next.openings, [opening(2 * SUBBUF_SIZE, 2)]);
        writer.append(24).unwrap();
        let rest = writer.reader().take(next.span.end, &mut bytes).unwrap();
        assert_eq!((rest.span.end, rest.openings), (2 * SUBBUF_SIZE + 48, Vec::new()));
    }

    #[test]
    fn a_loss_that_is_counted_late_is_where_it_was_decided() {
        let writer = Writer::new(2);
        while writer.append(1000).is_some() {}
        let mut bytes = Vec::new();
        let end = 2 * SUBBUF_SIZE;
        // A second event finds the ring full, and an interrupt comes before it is counted.
        writer.word(LOSING).fetch_add(1, Ordering::Relaxed);
        assert_eq!(writer.reader().take(0, &mut bytes).unwrap().span.end, SUBBUF_SIZE);
        assert_eq!(writer.append(24), Some(end));
        let early = writer.reader().take(SUBBUF_SIZE, &mut bytes).unwrap();
        assert_eq!((early.span.end, early.openings), (SUBBUF_SIZE, Vec::new()));
        writer.count_loss(end);
        writer.word(LOSING).fetch_sub(1, Ordering::Relaxed);
        let taken = writer.reader().take(SUBBUF_SIZE, &mut bytes).unwrap();
        assert_eq!(taken.span.end, end + 24);
        let opening = |position, lost| Opening { position, lost };
        assert_eq!(taken.openings, [opening(SUBBUF_SIZE, 0), opening(end, 2)]);
    }

    #[test]
    fn losses_of_two_laps_are_apart() {
        let writer = Writer::new(2);
        while writer.append(1000).is_some() {}
        let mut bytes = Vec::new();
        let first = writer.reader().take(0, &mut bytes).unwrap().span.end;
        // The ring is full again before the reader takes the first sub-buffer behind the loss.
        while writer.append(1000).is_some() {}
        assert_eq!(writer.append(1000), None);
        let opening = |position, lost| Opening { position, lost };
        let second = writer.reader().take(first, &mut bytes).unwrap();
        assert_eq!(second.openings, [opening(first, 1), opening(first + SUBBUF_SIZE, 0)]);
        writer.append(24).unwrap();
        let third = writer.reader().take(second.span.end, &mut bytes).unwrap();
        assert_eq!(third.openings, [opening(2 * first, 2)]);
    }

    #[test]
    fn losses_stay_until_the_room_behind_them_is_given_back() {
        let writer = Writer::new(2);
        while writer.append(1000).is_some() {}
        let ring = 2 * SUBBUF_SIZE;
        let mut bytes = Vec::new();
        let first = writer.reader().look(0, &mut bytes).unwrap();
        assert_eq!((first.span.end, writer.append(24)), (ring, None), "its room is not given back");
        writer.reader().release(first.span);
        writer.append(24).unwrap();
        // A reader that is killed has given nothing back, and the next one finds the same.
        let opening = [Opening { position: ring, lost: 2 }];
        for _ in 0..2 {
            let seen = writer.reader().look(ring, &mut bytes).unwrap();
            assert_eq!((seen.span.end, &seen.openings[..]), (ring + 24, &opening[..]));
        }
        writer.reader().release(Span { begin: ring, end: ring });
        assert_eq!(writer.reader().look(ring, &mut bytes).unwrap().openings, opening);
        // One that was killed between the two stores is followed by one that does both again.
        (0..2).for_each(|_| writer.reader().release(Span { begin: ring, end: ring + 24 }));
        assert_eq!(writer.word(LOST_BEFORE + 2 * 8).load(Ordering::Relaxed), 0);
        assert_eq!((writer.reader().released(), writer.reader().lost(Cause::Full)), (ring + 24, 2));
    }

    #[test]
    fn many_laps_lose_nothing() {
        let writer = Writer::new(4);
        let (mut read, mut taken, mut appended) = (0, 0, 0);
        for round in 0..3000u64 {
            for step in 0..20 {
                appended += usize::from(writer.append(24 + (round * 7 + step) % 60 * 8).is_some());
            }
            let mut bytes = Vec::new();
            let span = writer.reader().take(read, &mut bytes).unwrap().span;
            assert_eq!((span.begin, span.end - span.begin), (read, bytes.len() as u64));
            taken += records(span, &bytes);
            read = span.end;
        }
        assert_eq!((taken, appended), (60_000, 60_000));
        assert!(read > 10 * writer.geometry.ring_size());
    }

    #[test]
    fn the_history_has_what_is_whole() {
        let writer = Writer::new(4);
        // Overwrite mode has no reader: room is always there.
        for _ in 0..10_000 {
            writer.word(CONSUMED).store(writer.reader().written(), Ordering::Relaxed);
            writer.append(64).unwrap();
        }
        let mut history = Vec::new();
        writer.reader().copy_history(0, &mut history);
        let found: usize = history.iter().map(|(span, bytes)| records(*span, bytes)).sum();
        let in_last = 10_000 % 1024;
        assert_eq!(found, 3 * 1024 + in_last);
        let mut more = Vec::new();
        writer.reader().copy_history(history.last().unwrap().0.end, &mut more);
        assert!(more.is_empty());
    }

    #[test]
    fn positions_that_cannot_be_are_refused() {
        let writer = Writer::new(2);
        writer.word(WRITE).store(u64::MAX - 7, Ordering::Relaxed);
        assert_eq!(writer.reader().take(0, &mut Vec::new()), Err(UntrustedPosition(u64::MAX - 7)));
        writer.word(WRITE).store(8, Ordering::Relaxed);
        assert!(writer.reader().take(16, &mut Vec::new()).is_err());
    }
}
