//! Appends by reserve and commit, for processes without restartable sequences.
//!
//! ```text
//! reserve   one 16-byte compare-and-swap moves `write` over the record (with the padding of the
//!           old sub-buffer and the header of the new one, where it opens one) and counts it in
//!           `events`: the place is the writer's
//! fill      plain stores
//! commit    the record's first word becomes the stamp of its position: the record is there
//! count     the sub-buffer's counter grows by what was committed
//! ```
//!
//! A reader sees of each record whether it is complete. A thread that is killed between reserving
//! and committing leaves a place that never is: it is skipped, and counted, once the process has
//! died. Until then readers wait for it, because its thread may only have been preempted.
//!
//! | word | written by | ordering, and what it pairs with |
//! |---|---|---|
//! | `write`, `events` | any writer, compare-and-swap | acquires and releases: the next writer's clock is read after this one's |
//! | a record | thread that reserved it | behind a release fence after its reservation, for `copy_history`'s second look |
//! | its commit word | thread that reserved it | release, pairs with the reader's acquiring loads in order |
//! | a sub-buffer's counter | thread that committed in it | release, pairs with the acquire load of the thread that enters the next lap |
//! | `consumed` | the reader | release, pairs with the acquire load of the thread that enters (discard mode) |
//!
//! Safe in signal handlers: an append that interrupts another one takes the place behind it, and
//! the interrupted one has either its place already or takes a later one. No system call, lock or
//! allocation; bounded. `docs/design/ring.md` has the argument.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tompion_layout::{
    loss::Cause,
    record::{self, Head, SubbufferHeader, WriteProtocol},
    ring::{self, Geometry},
};
use tompion_os::Processor;

use crate::{
    event::{Event, MAX_TAILS, Outcome, Retention},
    memory::{self, Clock, Fault, Part},
    pinned_events,
};

/// Maximum number of times that an append finds other threads faster, or itself on another CPU,
/// before its event is lost.
const MAX_ATTEMPTS: u32 = if cfg!(loom) { 8 } else { 10_000 };

/// Rings in reserve form, as their writers see them. Nothing here ever changes, so that a thread
/// that has found one knows all of it, even if the recording ends meanwhile.
#[derive(Debug)]
pub struct ReserveRings<'a> {
    rings: Part<'a>,
    geometry: Geometry,
    overwrite: bool,
    clock: Clock,
    processor: Processor,
    selector: *const AtomicU32,
    lost: *const AtomicU64,
    pinned: Part<'a>,
}

// SAFETY: immutable; the pointers lead to words that are only used atomically and stay as long as
// the rings.
unsafe impl Send for ReserveRings<'_> {}
// SAFETY: as above.
unsafe impl Sync for ReserveRings<'_> {}

/// Parts of rings in reserve form.
#[derive(Clone, Copy, Debug)]
pub struct ReserveParts {
    /// Sizes of the rings.
    pub geometry: Geometry,
    /// Whether old records are overwritten; else new ones are discarded when a ring is full.
    pub overwrite: bool,
    /// Source of timestamps.
    pub clock: Clock,
    /// Abilities of the processor.
    pub processor: Processor,
    /// Word with the number of the active buffer.
    pub selector: *const AtomicU32,
    /// Counters of losses that no ring can count, [`Cause::SLOTS`] words, with the number of
    /// requested snapshots behind them.
    pub lost: *const AtomicU64,
}

/// Space reserved for a record.
#[derive(Clone, Copy, Debug)]
struct Reservation {
    /// `write` as it was before.
    position: u64,
    /// `events` as it was before.
    events: u64,
    /// Position at which a sub-buffer begins, if one is opened.
    opened: Option<u64>,
    /// Position at which the record begins.
    begin: u64,
    /// Position at which it ends.
    end: u64,
    time: u64,
}

/// Reason for having no reservation.
#[derive(Clone, Copy, Debug)]
enum Failure {
    /// Others were faster, or the thread has moved to this CPU: try again.
    Again(u32),
    Lost(Cause),
}

impl<'a> ReserveRings<'a> {
    /// Rings in memory of the geometry's size, with a list of pinned events.
    pub(crate) const fn new(rings: Part<'a>, pinned: Part<'a>, setup: &ReserveParts) -> Self {
        let ReserveParts { geometry, overwrite, clock, processor, selector, lost } = *setup;
        Self { rings, geometry, overwrite, clock, processor, selector, lost, pinned }
    }

    /// Appends an event. As [`crate::producer::Recording::append`].
    ///
    /// # Safety
    /// The event's image and tails are readable.
    pub unsafe fn append(&self, event: &Event<'_>) -> Outcome {
        let stored = match event.retention {
            Retention::Ring => None,
            // SAFETY: as the caller promises.
            _ => unsafe { self.append_pinned(event) },
        };
        if let Some(outcome) = stored {
            return outcome;
        }
        let mut cpu = memory::likely_cpu(self.clock, self.processor);
        let payload = event.payload_len();
        if event.tails.len() > MAX_TAILS
            || payload > self.geometry.max_record().saturating_sub(WriteProtocol::ReserveCommit.header_len())
        {
            return self.lose(cpu, Cause::TooLarge);
        }
        let len = WriteProtocol::ReserveCommit.record_len(payload) as u64;
        for _ in 0..MAX_ATTEMPTS {
            let Some(ring) = self.ring(cpu) else {
                self.count_without_ring(Cause::NoRseq);
                return Outcome::Lost(Cause::NoRseq);
            };
            match self.reserve(&ring, cpu, len) {
                Ok(reservation) => {
                    // SAFETY: the parts are readable, as the caller promises, and have the length
                    // that was reserved.
                    unsafe { self.fill(&ring, &reservation, event) };
                    return Outcome::Written;
                }
                Err(Failure::Again(now_at)) => cpu = now_at,
                Err(Failure::Lost(cause)) => return self.lose(cpu, cause),
            }
        }
        self.lose(cpu, Cause::Retries)
    }

    /// The ring of a CPU in the buffer that is chosen now.
    #[inline(always)]
    fn ring(&self, cpu: u32) -> Option<Part<'a>> {
        if cpu >= self.geometry.cpus() {
            return None;
        }
        // SAFETY: a word that stays, as was promised where the rings were made.
        // Ordering: which of the two it is, is all there is to see.
        let buffer = unsafe { (*self.selector).load(Ordering::Relaxed) } & (self.geometry.buffers() - 1);
        let offset =
            u64::from(buffer) * self.geometry.buffer_stride() + u64::from(cpu) * self.geometry.cpu_stride();
        Some(self.rings.from(offset as usize, self.geometry.cpu_stride() as usize))
    }

    /// Offset of a position's place in a ring.
    #[inline(always)]
    fn place(&self, position: u64) -> usize {
        ring::DATA + self.geometry.place(position)
    }

    /// Takes `len` bytes, with a sub-buffer's header before them where one begins.
    #[inline(always)]
    fn reserve(&self, ring: &Part<'_>, cpu: u32, len: u64) -> Result<Reservation, Failure> {
        let early = memory::has(Fault::TimeOutside).then(|| memory::now(self.clock, ring));
        // Ordering: pairs with the compare-and-swap of the thread that moved the position here: the
        // clock is read after that thread's.
        let (position, events) = ring.appended(Ordering::Acquire);
        if position % 8 != 0 {
            // The program has damaged its ring: what is written must stay inside it all the same.
            // (All sums here wrap, for a position may be any number.)
            return Err(Failure::Lost(Cause::Retries));
        }
        let start = self.geometry.subbuf_start(position);
        let inside = position - start;
        let opened = match inside {
            0 => Some(position),
            _ if inside + len > self.geometry.subbuf_size() => {
                Some(start.wrapping_add(self.geometry.subbuf_size()))
            }
            _ => None,
        };
        let mut begin = position;
        if let Some(opened) = opened {
            if let Err(cause) = self.may_open(ring, opened) {
                // Or has it been opened, and read, since the position was loaded?
                let is_stale =
                    !memory::has(Fault::RefusedStale) && ring.appended(Ordering::Acquire).0 != position;
                return Err(if is_stale { Failure::Again(cpu) } else { Failure::Lost(cause) });
            }
            begin = opened.wrapping_add(SubbufferHeader::RESERVE_LEN as u64);
        }
        let now = early.unwrap_or_else(|| memory::now(self.clock, ring));
        if now.cpu != cpu {
            return Err(Failure::Again(now.cpu));
        }
        // The position waits for the clock, so that the processor can't move it before the clock
        // was read. (No clock shows 2^63.)
        let end = begin.wrapping_add(len + (now.time >> 63));
        if !ring.advance((position, events), (end, events.wrapping_add(1))) {
            return Err(Failure::Again(cpu));
        }
        if !memory::has(Fault::NoReleaseFence) {
            // Ordering: pairs with the fence in `copy_history`: a reader that has copied any of
            // what is stored from here on sees the position that allowed it.
            memory::fence(Ordering::Release);
        }
        Ok(Reservation { position, events, opened, begin, end, time: now.time })
    }

    /// Whether the sub-buffer that begins at a position may be written.
    #[inline(always)]
    fn may_open(&self, ring: &Part<'_>, start: u64) -> Result<(), Cause> {
        let subbuf_size = self.geometry.subbuf_size();
        if self.overwrite {
            // Ordering: pairs with the release additions of all threads that committed there: their
            // stores come before ours.
            let committed = ring.load(self.place(start) + SubbufferHeader::COMMITTED, Ordering::Acquire);
            let laps = start / self.geometry.ring_size();
            if committed != laps.wrapping_mul(subbuf_size) && !memory::has(Fault::CounterIgnored) {
                return Err(Cause::Unfinished);
            }
        } else {
            if !memory::has(Fault::NoRoomFence) {
                // Ordering: as in `Recording::make_room`.
                memory::fence(Ordering::SeqCst);
            }
            // Ordering: pairs with the reader's release store: what it has taken may be
            // overwritten.
            let behind =
                start.wrapping_add(subbuf_size).wrapping_sub(ring.load(ring::CONSUMED, Ordering::Acquire));
            if behind > self.geometry.ring_size() && !memory::has(Fault::FullIgnored) {
                return Err(Cause::Full);
            }
        }
        Ok(())
    }

    /// Writes what was reserved, and commits it.
    ///
    /// # Safety
    /// The event's parts are readable, and `reservation` is for a record of their length.
    #[inline(always)]
    unsafe fn fill(&self, ring: &Part<'_>, reservation: &Reservation, event: &Event<'_>) {
        let Reservation { position, events, opened, begin, end, time } = *reservation;
        let mut committed = end.wrapping_sub(begin);
        if let Some(start) = opened {
            if start != position {
                self.commit(ring, position, record::padding_stamp(position));
                self.count(ring, position, start.wrapping_sub(position));
            }
            let place = self.place(start);
            let words = [SubbufferHeader::reserve_head().to_word(), time, start, lost_in(ring), events];
            for (index, word) in words.into_iter().enumerate() {
                // Ordering: published by the commit word.
                ring.store(place + 8 + index * 8, word, Ordering::Relaxed);
            }
            self.commit(ring, start, record::stamp(start));
            committed += SubbufferHeader::RESERVE_LEN as u64;
        }
        if memory::has(Fault::CommitEarly) {
            self.commit(ring, begin, record::stamp(begin));
        }
        let head = Head { id: event.id, words: (end.wrapping_sub(begin) / 8) as u16, tid: event.tid };
        let place = self.place(begin);
        let mut at = place + WriteProtocol::ReserveCommit.header_len();
        // Ordering: all of it is published by the commit word. (The last word may have padding in
        // it.)
        ring.store(self.place(end.wrapping_sub(8)), 0, Ordering::Relaxed);
        ring.store(place + 8, head.to_word(), Ordering::Relaxed);
        ring.store(place + 16, time, Ordering::Relaxed);
        // SAFETY: image and tails are readable; they fit between header and end, which are in one
        // sub-buffer.
        unsafe {
            ring.copy_in(at, event.image, event.image_len);
            at += event.image_len;
            for tail in event.tails {
                ring.copy_in(at, tail.data, tail.size);
                at += tail.size;
            }
        }
        self.commit(ring, begin, record::stamp(begin));
        self.count(ring, begin, committed);
    }

    #[inline(always)]
    fn commit(&self, ring: &Part<'_>, position: u64, stamp: u64) {
        // Ordering: pairs with the acquiring loads of `Part::copy_out_in_order`: a reader that sees
        // the stamp sees the record.
        ring.store(self.place(position), stamp, Ordering::Release);
    }

    /// Counts bytes that were committed in the sub-buffer that holds a position.
    #[inline(always)]
    fn count(&self, ring: &Part<'_>, position: u64, len: u64) {
        let header = self.place(self.geometry.subbuf_start(position));
        // Ordering: pairs with the acquire load of the thread that enters this sub-buffer in the
        // next lap.
        ring.add(header + SubbufferHeader::COMMITTED, len, Ordering::Release);
    }

    #[cold]
    fn lose(&self, cpu: u32, cause: Cause) -> Outcome {
        match self.ring(cpu) {
            // Ordering: a counter by itself.
            Some(ring) => ring.add(ring::LOST + cause as usize * 8, 1, Ordering::Relaxed),
            None => self.count_without_ring(cause),
        }
        Outcome::Lost(cause)
    }

    /// Counts a loss that no ring counts.
    pub(crate) fn count_without_ring(&self, cause: Cause) {
        // SAFETY: a table of `Cause::SLOTS` words that stays.
        // Ordering: a counter by itself.
        unsafe { (*self.lost.add(cause as usize)).fetch_add(1, Ordering::Relaxed) };
    }

    /// Asks the session to save what the rings hold.
    #[cfg(not(loom))]
    pub(crate) fn request_snapshot(&self) {
        // SAFETY: the word stands behind the table of losses, see `layout::control`. Ordering:
        // release, pairs with the session's acquire load: a session that sees the request sees what
        // was appended before it.
        unsafe { (*self.lost.add(Cause::SLOTS)).fetch_add(1, Ordering::Release) };
    }

    /// Stores an event where no ring overwrites it. None if it is to go to the ring.
    ///
    /// # Safety
    /// As [`ReserveRings::append`].
    #[cold]
    unsafe fn append_pinned(&self, event: &Event<'_>) -> Option<Outcome> {
        let size = pinned_events::room(event.retention, self.overwrite)?;
        let now = memory::now(self.clock, &self.rings);
        // SAFETY: as the caller promises; the list has `PINNED_SIZE` bytes, and `size` is no more.
        let is_stored = unsafe { pinned_events::append(&self.pinned, size, event, (now.cpu, now.time)) };
        if !is_stored && event.retention == Retention::StateDump {
            self.count_without_ring(Cause::StateDumpFull);
            return Some(Outcome::Lost(Cause::StateDumpFull));
        }
        is_stored.then_some(Outcome::Written)
    }
}

/// Number of events that the ring has lost so far.
fn lost_in(ring: &Part<'_>) -> u64 {
    // Ordering: counters by themselves.
    let counter = |cause: &Cause| ring.load(ring::LOST + *cause as usize * 8, Ordering::Relaxed);
    Cause::ALL.iter().map(counter).fold(0, u64::wrapping_add)
}
