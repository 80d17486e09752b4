//! Reader's side of a ring: copies of what lies below the write position, also while the ring goes
//! on being overwritten.
//!
//! A reader copies first and looks at its private copy afterwards. It never believes a number in
//! shared memory: a position that cannot be is refused, counted, and reading goes on from where the
//! writer claims to be.

use std::sync::atomic::Ordering;

use tompion_layout::{
    loss::Cause,
    record::{WriteProtocol, padding_stamp, stamp},
    ring::{self, Geometry},
};

use crate::{
    memory::{Fault, Part, SharedMap, fence, has},
    records::Records,
};

/// Maximum number of reads of the position and of the number of events until both are of one
/// moment.
const MAX_REREADS: usize = 1000;

/// Maximum number of attempts to copy a history that its producer overwrites meanwhile.
const MAX_COPY_ATTEMPTS: u32 = 16;

/// One ring of a ring file, seen from the session's side.
#[derive(Debug)]
pub struct RingReader<'a> {
    ring: Part<'a>,
    geometry: Geometry,
    form: WriteProtocol,
    /// Offset of the ring's header in the file.
    offset: usize,
}

/// A write position that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadPosition {
    /// Position up to which the reader had read.
    pub read: u64,
    /// Position or length that the writer claims.
    pub claimed: u64,
}

/// A run of bytes that was copied out of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Position of the first byte; a record or a sub-buffer begins there.
    pub begin: u64,
    /// Position behind the last byte.
    pub end: u64,
    /// Number of events that were appended to the ring before `end` since it was made, where that
    /// is known.
    pub events: Option<u64>,
}

impl Span {
    /// Whether there is nothing in it.
    pub const fn is_empty(&self) -> bool {
        self.begin == self.end
    }
}

impl<'a> RingReader<'a> {
    /// The ring of a CPU in a buffer, in section form.
    ///
    /// # Panics
    /// If the geometry has no such ring, or the mapping is smaller than the geometry says.
    pub fn new(map: &'a SharedMap, geometry: Geometry, buffer: u32, cpu: u32) -> Self {
        assert!(buffer < geometry.buffers() && cpu < geometry.cpus());
        assert!(map.len() as u64 >= geometry.file_size());
        let offset = u64::from(buffer) * geometry.buffer_stride() + u64::from(cpu) * geometry.cpu_stride();
        let offset = offset as usize;
        // All offsets below are inside the ring, because places are positions modulo its size.
        let ring = Part::of(map, offset, geometry.cpu_stride() as usize);
        Self { ring, geometry, form: WriteProtocol::Rseq, offset }
    }

    /// Returns the reader for a ring of another write protocol.
    pub fn in_form(self, form: WriteProtocol) -> Self {
        Self { form, ..self }
    }

    /// Everything appended so far, as a position. In reserve form: everything reserved.
    pub fn written(&self) -> u64 {
        // Ordering: pairs with the committing stores of the sections (plain ones on x86-64, where
        // each is a release): a reader that sees the position sees the records below it.
        self.ring.appended(Ordering::Acquire).0
    }

    /// Number of events that were appended so far.
    pub fn events(&self) -> u64 {
        // Ordering: a counter by itself.
        self.ring.appended(Ordering::Relaxed).1
    }

    /// The position up to which all is appended, with the number of events before it; none if the
    /// writer is too fast for both to be read together.
    pub fn written_with_events(&self) -> (u64, Option<u64>) {
        let (mut written, mut events) = self.ring.appended(Ordering::Acquire);
        for _ in 0..MAX_REREADS {
            // Ordering: keeps the loads in order. Positions only grow: if this one is still the
            // same, it was so when the number was read.
            fence(Ordering::Acquire);
            let again = self.ring.appended(Ordering::Acquire);
            if again.0 == written {
                return (written, Some(events));
            }
            (written, events) = again;
        }
        (written, None)
    }

    /// Number of events that the ring has lost for a reason.
    pub fn lost(&self, cause: Cause) -> u64 {
        // Ordering: a counter by itself.
        self.ring.load(ring::LOST + cause as usize * 8, Ordering::Relaxed)
    }

    /// Copies what was appended since position `read` into `bytes`, instead of what is there, and
    /// gives the room back.
    ///
    /// For discard mode: no producer overwrites the bytes until this returns. In reserve form it
    /// ends before the first record that isn't complete.
    ///
    /// # Errors
    /// When the writer's position cannot be; the room is given back up to it all the same.
    pub fn consume(&self, read: u64, bytes: &mut Vec<u8>) -> Result<Span, BadPosition> {
        if has(Fault::ReleasedEarly) {
            self.release(self.written());
        }
        let copied = self.copy_new(read, bytes);
        match copied {
            Ok(span) if span.is_empty() => {}
            Ok(span) => self.release(span.end),
            Err(bad) => self.release(bad.claimed),
        }
        copied
    }

    /// As [`RingReader::consume`] for the last time: see [`RingReader::copy_final`].
    ///
    /// # Errors
    /// As [`RingReader::consume`].
    pub fn consume_final(&self, read: u64, bytes: &mut Vec<u8>) -> Result<Span, BadPosition> {
        let copied = self.copy_final(read, bytes);
        self.release(copied.map_or_else(|bad| bad.claimed, |span| span.end));
        copied
    }

    /// As [`RingReader::copy_new`] for the last time: no producer will complete a record any more.
    /// So incomplete ones are copied, too, for [`Records`] to skip.
    ///
    /// # Errors
    /// When the writer's position cannot be.
    pub fn copy_final(&self, read: u64, bytes: &mut Vec<u8>) -> Result<Span, BadPosition> {
        let (claimed, events) = self.written_with_events();
        let copied = self.copy_until(read, claimed, bytes);
        copied.map(|span| Span { events, ..span })
    }

    /// Copies what was appended since position `read`, as [`RingReader::consume`] does, and leaves
    /// the room to be given back later.
    ///
    /// # Errors
    /// When the writer's position cannot be.
    pub fn copy_new(&self, read: u64, bytes: &mut Vec<u8>) -> Result<Span, BadPosition> {
        let claimed = self.written();
        if self.form == WriteProtocol::ReserveCommit && claimed != read && !self.has_complete_at(read) {
            return Ok(Span { begin: read, end: read, events: None });
        }
        let mut span = self.copy_until(read, claimed, bytes)?;
        if self.form == WriteProtocol::ReserveCommit {
            let records = Records::new(bytes, read, self.geometry.subbuf_size()).in_form(self.form);
            span.end = records.complete_until();
            bytes.truncate((span.end - span.begin) as usize);
        }
        Ok(span)
    }

    /// Returns the position up to which room was released.
    pub fn released(&self) -> u64 {
        // Ordering: a word of the reader's own.
        self.ring.load(ring::CONSUMED, Ordering::Relaxed)
    }

    /// Lets writers have the room below a position, all of which was complete and is safe
    /// elsewhere.
    pub fn release(&self, position: u64) {
        // Ordering: pairs with the acquire loads in the producers' `make_room` and `may_open`: the
        // copy is complete before a writer may overwrite it.
        self.ring.store(ring::CONSUMED, position, Ordering::Release);
    }

    /// Runs a function while no writer can enter the sub-buffer that begins at `position`, or a
    /// later one. False, and nothing was run, if a writer may be too near.
    ///
    /// For discard mode, of a ring that was consumed up to `read`. The position is at least one
    /// sub-buffer behind the next one that writers open: a writer that looked at the room before
    /// may still open that one.
    pub fn while_withdrawn(&self, read: u64, position: u64, run: impl FnOnce()) -> bool {
        let Some(withdrawn) = position.checked_sub(self.geometry.ring_size()) else { return false };
        if position < self.next_opened(read).saturating_add(self.geometry.subbuf_size()) {
            return false;
        }
        // A writer that has begun needs its room.
        if self.written() != read {
            return false;
        }
        self.release(withdrawn);
        // Ordering: pairs with the fences in `make_room` and `may_open`, between a thread's opening
        // of a sub-buffer and its look at the room for the one behind it. Either that look finds
        // the room withdrawn, or the opening is seen here.
        fence(Ordering::SeqCst);
        let is_unmoved = has(Fault::EmptiedUnlooked) || self.written() == read;
        if is_unmoved {
            run();
        }
        // Its release also orders what was run before the next writer's stores.
        self.release(read);
        is_unmoved
    }

    /// Position of the sub-buffer that the next writer opens, if all is written up to `read`.
    pub fn next_opened(&self, read: u64) -> u64 {
        if read % self.geometry.subbuf_size() == 0 { read } else { self.geometry.subbuf_end(read) }
    }

    /// Sizes of the ring.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Whether a record that begins at a position is complete, or padding stands there.
    fn has_complete_at(&self, position: u64) -> bool {
        // Ordering: a hint; the copy loads it again.
        let word = self.ring.load(ring::DATA + self.geometry.place(position & !7), Ordering::Relaxed);
        word == stamp(position) || word == padding_stamp(position)
    }

    fn copy_until(&self, read: u64, claimed: u64, bytes: &mut Vec<u8>) -> Result<Span, BadPosition> {
        if claimed < read || claimed - read > self.geometry.ring_size() || claimed % 8 != 0 {
            return Err(BadPosition { read, claimed });
        }
        self.copy(read, claimed, bytes);
        Ok(Span { begin: read, end: claimed, events: None })
    }

    /// Copies the newest history of a ring that goes on being written in overwrite mode, and
    /// returns which part of the copy stayed intact.
    ///
    /// In section form, bytes up to one record past the write position may be dirty (from a section
    /// that was abandoned and went on elsewhere), so everything up to the end of the sub-buffer
    /// that holds the position, one lap earlier, is dropped. In reserve form, writers may be
    /// anywhere below the position, which is less. `bytes` is replaced. Records that are not
    /// complete are left in it for [`Records`] to skip.
    ///
    /// Sub-buffers are copied from the newest to the oldest, and each is looked after by itself:
    /// writers that are fast, or a reader that is interrupted, cost the oldest ones only.
    ///
    /// # Errors
    /// When the writer's position cannot be.
    pub fn copy_history(&self, bytes: &mut Vec<u8>) -> Result<Span, BadPosition> {
        let mut copied = self.copy_newest(bytes)?;
        for _ in 1..MAX_COPY_ATTEMPTS {
            if !copied.is_empty() || copied.end == 0 {
                break;
            }
            copied = self.copy_newest(bytes)?;
        }
        Ok(copied)
    }

    /// As [`RingReader::copy_history`], which has nothing if even the newest sub-buffer was
    /// overwritten meanwhile.
    fn copy_newest(&self, bytes: &mut Vec<u8>) -> Result<Span, BadPosition> {
        let size = self.geometry.ring_size();
        let (before, events) = self.written_with_events();
        if before % 8 != 0 {
            return Err(BadPosition { read: 0, claimed: before });
        }
        let oldest = before.saturating_sub(size).next_multiple_of(self.geometry.subbuf_size()).min(before);
        bytes.clear();
        bytes.resize((before - oldest) as usize, 0);
        let mut begin = before;
        while begin > oldest {
            let start = self.geometry.subbuf_start(begin - 1);
            self.copy_to(start, &mut bytes[(start - oldest) as usize..(begin - oldest) as usize]);
            // Ordering: the copy's loads come before the second look at the position; a writer
            // stores what it dirties only after the position that leads there. (On aarch64, pairs
            // with the barrier before a record's first store; in reserve form, with the fence in
            // `ReserveRings::reserve`.)
            fence(Ordering::Acquire);
            let after = if has(Fault::NoSecondLook) { before } else { self.written() };
            if after < before {
                return Err(BadPosition { read: before, claimed: after });
            }
            if start < self.geometry.subbuf_end(after).saturating_sub(size) {
                break;
            }
            begin = start;
        }
        bytes.drain(..(begin - oldest) as usize);
        Ok(Span { begin, end: before, events })
    }

    /// Replaces `bytes` by those of `begin..end`, at most one lap, whatever they are by now.
    pub fn copy(&self, begin: u64, end: u64, bytes: &mut Vec<u8>) {
        let len = (end - begin) as usize;
        let first = len.min(self.geometry.ring_size() as usize - self.geometry.place(begin));
        // What was in it needn't be cleared before.
        bytes.resize(len, 0);
        self.copy_to(begin, &mut bytes[..first]);
        self.copy_to(begin + first as u64, &mut bytes[first..]);
    }

    /// Copies the bytes from a position on, up to the ring's end.
    fn copy_to(&self, begin: u64, to: &mut [u8]) {
        let place = ring::DATA + self.geometry.place(begin);
        match self.form {
            WriteProtocol::Rseq => self.ring.copy_out(place, to),
            // A commit word tells of what is copied after it.
            WriteProtocol::ReserveCommit => self.ring.copy_out_in_order(place, to),
        }
    }

    /// Range of the ring file that holds the sub-buffers up to `ahead` bytes after the write
    /// position, as (offset, length); for making them present in time.
    pub fn data_range(&self) -> (u64, u64) {
        ((self.offset + ring::DATA) as u64, self.geometry.ring_size())
    }
}
