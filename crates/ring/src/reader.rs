//! Reading a ring: what lies below the write position, or a copy of one that goes on being overwritten.
//!
//! A reader copies first and looks at its private copy afterwards. It never believes a number in shared
//! memory: a position that cannot be is refused, counted, and reading goes on from where the writer
//! claims to be.

use std::sync::atomic::{Ordering, fence};

use tompion_layout::{
    loss::Cause,
    ring::{self, Geometry},
};
use tompion_os::SharedMap;

/// One ring of a ring file, seen from the session's side.
#[derive(Debug)]
pub struct RingReader<'a> {
    map: &'a SharedMap,
    geometry: Geometry,
    /// Offset of the ring's header in the file.
    offset: usize,
}

/// A write position that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadPosition {
    /// Up to where the reader had read.
    pub read: u64,
    /// What the writer claims.
    pub claimed: u64,
}

/// A run of bytes that was copied out of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Position of the first byte; a record or a sub-buffer begins there.
    pub begin: u64,
    /// Position behind the last byte.
    pub end: u64,
}

impl Span {
    /// Whether there is nothing in it.
    pub const fn is_empty(&self) -> bool {
        self.begin == self.end
    }
}

impl<'a> RingReader<'a> {
    /// The ring of a CPU in a buffer.
    ///
    /// # Panics
    /// If the geometry has no such ring, or the mapping is smaller than the geometry says.
    pub fn new(map: &'a SharedMap, geometry: Geometry, buffer: u32, cpu: u32) -> Self {
        assert!(buffer < geometry.buffers() && cpu < geometry.cpus());
        assert!(map.len() as u64 >= geometry.file_size());
        let offset = u64::from(buffer) * geometry.buffer_stride() + u64::from(cpu) * geometry.cpu_stride();
        Self { map, geometry, offset: offset as usize }
    }

    /// Everything appended so far, as a position.
    pub fn written(&self) -> u64 {
        // Ordering: pairs with the committing stores of the sections (plain ones on x86-64, where each is a
        // release): who sees the position sees the records below it.
        self.map.word(self.offset + ring::WRITE).load(Ordering::Acquire)
    }

    /// How many events were appended so far.
    pub fn events(&self) -> u64 {
        // Ordering: a counter by itself.
        self.map.word(self.offset + ring::EVENTS).load(Ordering::Relaxed)
    }

    /// How many events the ring has lost for a reason.
    pub fn lost(&self, cause: Cause) -> u64 {
        // Ordering: a counter by itself.
        self.map.word(self.offset + ring::LOST + cause as usize * 8).load(Ordering::Relaxed)
    }

    /// Copies what was appended since position `read` to the end of `bytes`, and gives the room back.
    ///
    /// For discard mode: nobody overwrites the bytes until this returns.
    ///
    /// # Errors
    /// When the writer's position cannot be; the room is given back up to it all the same.
    pub fn take(&self, read: u64, bytes: &mut Vec<u8>) -> Result<Span, BadPosition> {
        let claimed = self.written();
        if claimed == read {
            return Ok(Span { begin: read, end: read });
        }
        let sound = claimed > read && claimed - read <= self.geometry.ring_size() && claimed % 8 == 0;
        if sound {
            self.copy(read, claimed, bytes);
        }
        // Ordering: pairs with the acquire load in the producer's `make_room`: the copy is complete before
        // the writer may overwrite it.
        self.map.word(self.offset + ring::CONSUMED).store(claimed, Ordering::Release);
        if sound { Ok(Span { begin: read, end: claimed }) } else { Err(BadPosition { read, claimed }) }
    }

    /// Copies the newest history of a ring that goes on being written in overwrite mode, and returns
    /// which part of the copy stayed intact.
    ///
    /// Bytes up to one record past the write position may be dirty (from a section that was abandoned and
    /// went on elsewhere), so everything up to the end of the sub-buffer that holds the position, one lap
    /// earlier, is dropped. `bytes` is replaced.
    pub fn copy_history(&self, bytes: &mut Vec<u8>) -> Result<Span, BadPosition> {
        let size = self.geometry.ring_size();
        let before = self.written();
        if before % 8 != 0 {
            return Err(BadPosition { read: 0, claimed: before });
        }
        let begin = before.saturating_sub(size).next_multiple_of(self.geometry.subbuf_size());
        bytes.clear();
        self.copy(begin.min(before), before, bytes);
        // Ordering: the copy's loads come before the second look at the position; a writer stores what it
        // dirties only after the position that leads there. (On aarch64, pairs with the barrier before a
        // record's first store.)
        fence(Ordering::Acquire);
        let after = self.written();
        if after < before {
            return Err(BadPosition { read: before, claimed: after });
        }
        let intact = self.geometry.subbuf_end(after).saturating_sub(size).max(begin).min(before);
        bytes.drain(..(intact - begin.min(before)) as usize);
        Ok(Span { begin: intact, end: before })
    }

    /// Appends the bytes of `begin..end`, at most one lap, to `bytes`.
    fn copy(&self, begin: u64, end: u64, bytes: &mut Vec<u8>) {
        let data = self.offset + ring::DATA;
        let len = (end - begin) as usize;
        let place = self.geometry.place(begin);
        let first = len.min(self.geometry.ring_size() as usize - place);
        let old = bytes.len();
        bytes.resize(old + len, 0);
        self.map.copy_out(data + place, &mut bytes[old..old + first]);
        self.map.copy_out(data, &mut bytes[old + first..]);
    }

    /// Which bytes of the ring file hold the sub-buffers up to `ahead` bytes after the write position,
    /// as (offset, length) in the file; for making them present in time.
    pub fn data_range(&self) -> (u64, u64) {
        ((self.offset + ring::DATA) as u64, self.geometry.ring_size())
    }
}
