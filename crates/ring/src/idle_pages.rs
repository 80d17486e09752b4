//! Pages of rings that nothing was written to for a while: they are given back to the system.
//!
//! For discard mode, in memory files. All pages that were read and that no writer may touch before
//! the reader sees the position move:
//!
//! ```text
//!          kept                 kept                 emptied piece by piece, from the right
//! ┌──────────┬───────┬─────────────────┬──────────────────────────────────────┬──────────┐
//! │ emptied  │ read  │ next sub-buffer │ sub-buffer         … sub-buffer      │ emptied  │
//! │ (end ►)  ▲       │                 │ ▲                                    │ (◄ begin)│
//! └──────────┴───────┴─────────────────┴─┴────────────────────────────────────┴──────────┘
//!          position                      a writer that comes here meanwhile finds the ring full
//! ```
//!
//! For each piece, [`RingReader::while_withdrawn`] takes the room from there on back from the
//! writers, and looks whether they have moved meanwhile. The argument is in docs/design/ring.md.

use std::time::{Duration, Instant};

use tompion_os::SharedMap;

use crate::reader::RingReader;

/// Time for which a ring is not written before its pages go.
const IDLE_TIME: Duration = Duration::from_secs(5);
/// Maximum number of bytes that are emptied at a time: some tens of microseconds, for which the
/// room behind is withdrawn.
const PIECE: u64 = 256 << 10;
/// Bytes behind the position that writers have all the time, at least. To come to the end of them
/// while a piece is emptied, a program would have to write several gigabytes a second.
const KEPT_AHEAD: u64 = 256 << 10;
const PAGE: u64 = tompion_layout::PAGE;

/// Maximum number of pieces of all rings that are emptied at a time: less than a millisecond.
pub const MAX_PIECES: u32 = 8;

/// Rings of a process, with the state of each.
#[derive(Clone, Debug, Default)]
pub struct IdleRings(Vec<IdlePages>);

impl IdleRings {
    /// Rings that nothing was written to, so many.
    pub fn new(count: usize) -> Self {
        Self(vec![IdlePages::new(Instant::now()); count])
    }

    /// Gives back pages of the rings of a process, in at most `pieces`, which become fewer.
    /// `ring` returns up to where one was read, and its reader.
    pub fn give_back<'a>(
        &mut self,
        (pid, map): (u32, &SharedMap),
        pieces: &mut u32,
        ring: impl Fn(usize) -> (u64, RingReader<'a>),
    ) {
        let now = Instant::now();
        for (number, idle) in self.0.iter_mut().enumerate() {
            let (read, reader) = ring(number);
            if *pieces == 0 || !idle.is_due(read, now) {
                continue;
            }
            if tompion_os::has_locked_memory(pid) {
                // It has asked for memory without page faults.
                self.0.clear();
                return;
            }
            *pieces -= 1;
            idle.give_back(&reader, map, now);
        }
    }
}

/// State of a ring with respect to idleness.
#[derive(Clone, Debug)]
pub struct IdlePages {
    /// Position at which the ring was seen last.
    read: u64,
    /// Time at which it was seen there first.
    since: Instant,
    /// Position of the end of what is still to be given back; none before the ring is idle.
    left: Option<u64>,
}

impl IdlePages {
    /// State of a ring that nothing was written to.
    pub fn new(now: Instant) -> Self {
        Self { read: 0, since: now, left: None }
    }

    /// Notes that the ring is read up to a position, at which it was before. Returns whether
    /// [`IdlePages::give_back`] has something to do.
    pub fn is_due(&mut self, read: u64, now: Instant) -> bool {
        if read != self.read {
            *self = Self { read, since: now, left: None };
        }
        // Sound programs stay far below such a position.
        let is_sound = self.read != 0 && self.read < u64::MAX / 2;
        is_sound && self.left != Some(0) && now.duration_since(self.since) >= IDLE_TIME
    }

    /// Gives back one piece of the ring, all of which is read and which is in `map`.
    pub fn give_back(&mut self, reader: &RingReader<'_>, map: &SharedMap, now: Instant) {
        let geometry = reader.geometry();
        let (ring, subbuf) = (geometry.ring_size(), geometry.subbuf_size());
        let far = self.read.saturating_add(KEPT_AHEAD).next_multiple_of(subbuf);
        // In the first lap there is nothing behind the position.
        let begin = far.max(reader.next_opened(self.read).saturating_add(subbuf)).max(ring);
        let end = self.left.unwrap_or(self.read - self.read % PAGE + ring);
        if end <= begin {
            self.left = Some(0);
            return;
        }
        let piece = geometry.subbuf_start(end - 1).max(end.saturating_sub(PIECE)).max(begin);
        let offset = reader.data_range().0 as usize + geometry.place(piece);
        let empty = || map.give_back(offset, (end - piece) as usize);
        if reader.while_withdrawn(self.read, geometry.subbuf_start(piece), empty) {
            self.left = Some(piece);
        } else {
            (self.since, self.left) = (now, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use tompion_layout::{record::WriteProtocol, ring::Geometry};

    use super::*;

    fn filled(geometry: Geometry) -> SharedMap {
        let file = tompion_os::create_memfd(c"rings", geometry.file_size()).unwrap();
        let map = SharedMap::new(file.as_fd(), geometry.file_size()).unwrap();
        map.prefault(0).unwrap();
        map
    }

    /// Bytes that stay of a ring that was written and read up to a position.
    fn kept(geometry: Geometry, read: u64) -> u64 {
        let map = filled(geometry);
        let reader = RingReader::new(&map, geometry, 0, 0).in_form(WriteProtocol::Rseq);
        map.word(tompion_layout::ring::WRITE).store(read, std::sync::atomic::Ordering::Relaxed);
        reader.release(read);
        let start = Instant::now();
        let mut idle = IdlePages::new(start);
        assert!(!idle.is_due(read, start), "it has just been written");
        let later = start + IDLE_TIME;
        for _ in 0..1000 {
            if !idle.is_due(read, later) {
                break;
            }
            idle.give_back(&reader, &map, later);
            assert_eq!(reader.released(), read, "room is withdrawn for a moment only");
        }
        assert!(!idle.is_due(read, later), "there is an end");
        map.resident_bytes()
    }

    #[test]
    fn an_idle_ring_keeps_what_writers_may_touch() {
        let geometry = Geometry::new(256 << 10, 8, 1, 1).unwrap();
        let (ring, all) = (geometry.ring_size(), geometry.file_size());
        assert_eq!(kept(geometry, 0), all, "an unused ring has no pages anyway");
        assert_eq!(kept(geometry, 4096), all - 4096, "nothing but the first page was ever written");
        // The header, what is left of the current sub-buffer, and the next one.
        let inside = 3 * ring + (256 << 10) + 10 * 4096 + 8;
        assert_eq!(kept(geometry, inside), 4096 + (512 << 10) - 10 * 4096);
        assert_eq!(kept(geometry, 3 * ring), 4096 + (256 << 10));
    }

    #[test]
    fn small_rings_are_left_alone() {
        let geometry = Geometry::new(4096, 8, 1, 1).unwrap();
        assert_eq!(kept(geometry, 1 << 20), geometry.file_size());
    }

    #[test]
    fn nothing_is_given_back_where_a_writer_has_moved() {
        let geometry = Geometry::new(256 << 10, 8, 1, 1).unwrap();
        let map = filled(geometry);
        let reader = RingReader::new(&map, geometry, 0, 0);
        let read = 3 * geometry.ring_size();
        map.word(tompion_layout::ring::WRITE).store(read + 64, std::sync::atomic::Ordering::Relaxed);
        reader.release(read);
        let start = Instant::now();
        let mut idle = IdlePages::new(start);
        assert!(!idle.is_due(read, start) && idle.is_due(read, start + IDLE_TIME));
        idle.give_back(&reader, &map, start + IDLE_TIME);
        assert_eq!((map.resident_bytes(), reader.released()), (geometry.file_size(), read));
        assert!(!idle.is_due(read, start + IDLE_TIME), "it begins to wait again");
    }
}
