//! Pages of rings to which little or nothing was written for a while: they are given back to the
//! system.
//!
//! For discard mode, in memory files. All pages that were read and that no writer may touch before
//! the reader sees the position move:
//!
//! ```text
//!          kept             a quarter, kept          emptied piece by piece, from the right
//! ┌──────────┬───────┬─────────────────┬──────────────────────────────────────┬──────────┐
//! │ emptied  │ read  │ next ones       │ sub-buffer         … sub-buffer      │ emptied  │
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

/// Time within which a ring is written a sixteenth at most before its pages go, and that share. A
/// sixteenth is also what is worth another pass.
const IDLE_TIME: Duration = Duration::from_secs(5);
const IDLE_SHARE: u64 = 16;
/// Maximum number of bytes that are emptied at a time: some tens of microseconds, for which the
/// room behind is withdrawn.
const PIECE: u64 = 256 << 10;
/// Bytes behind the position that writers have all the time, at least; and share of the ring. To
/// come to the end of the bytes while a piece is emptied, a program would have to write several
/// gigabytes a second. While the recorder does not run in between, the share makes the ring full
/// after a quarter of what does so without this.
const KEPT_AHEAD: u64 = 256 << 10;
const KEPT_SHARE: u64 = 4;
/// Time that a piece takes in a program that maps its rings as the library does, by far. Others, as
/// those that map a file some thousand times, can make it longer: the rings of such a process are
/// left alone after so many pieces.
const SLOW_PIECE: Duration = Duration::from_millis(5);
const MAX_SLOW_PIECES: u32 = 3;
const PAGE: u64 = tompion_layout::PAGE;

/// Maximum number of pieces of all rings that are emptied at a time: less than a millisecond.
pub const MAX_PIECES: u32 = 8;

/// Rings of a process, with the state of each.
#[derive(Clone, Debug, Default)]
pub struct IdleRings {
    rings: Vec<IdlePages>,
    /// Number of pieces that took long.
    slow_pieces: u32,
}

impl IdleRings {
    /// Rings that nothing was written to, so many.
    pub fn new(count: usize) -> Self {
        Self { rings: vec![IdlePages::new(Instant::now()); count], slow_pieces: 0 }
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
        for (number, idle) in self.rings.iter_mut().enumerate() {
            let (read, reader) = ring(number);
            if *pieces == 0 || !idle.is_due(read, reader.geometry().ring_size(), now) {
                continue;
            }
            if tompion_os::has_locked_memory(pid) {
                // It has asked for memory without page faults.
                self.rings.clear();
                return;
            }
            *pieces -= 1;
            let begin = Instant::now();
            idle.give_back(&reader, map);
            let took = begin.elapsed();
            if took >= SLOW_PIECE {
                // All programs wait for the recorder meanwhile.
                *pieces = 0;
                return self.note_slow_piece();
            }
        }
    }

    /// Notes that a piece took long. The recorder may have been preempted, or the process maps its
    /// rings so often that this takes as long.
    fn note_slow_piece(&mut self) {
        self.slow_pieces += 1;
        if self.slow_pieces >= MAX_SLOW_PIECES {
            self.rings.clear();
        }
    }
}

/// State of a ring with respect to idleness.
#[derive(Clone, Debug)]
pub struct IdlePages {
    /// Position at the begin of the present interval.
    from: u64,
    /// Begin of that interval.
    since: Instant,
    /// Position up to which the ring is read.
    read: u64,
    /// The pass that gives pages back, if there is one.
    pass: Option<Pass>,
    /// Position up to which pages were given back, of the lap that comes.
    emptied: u64,
}

/// Positions of the lap that comes.
#[derive(Clone, Copy, Debug)]
struct Pass {
    /// End of what is still to be given back.
    left: u64,
    /// End of all that is given back.
    end: u64,
}

impl IdlePages {
    /// State of a ring that nothing was written to.
    pub fn new(now: Instant) -> Self {
        Self { from: 0, since: now, read: 0, pass: None, emptied: 0 }
    }

    /// Notes that a ring of a size is read up to a position. Returns whether
    /// [`IdlePages::give_back`] has something to do.
    pub fn is_due(&mut self, read: u64, ring: u64, now: Instant) -> bool {
        self.read = read;
        // Sound programs stay far below such a position.
        if read == 0 || read >= u64::MAX / 2 {
            return false;
        }
        if read.checked_sub(self.from).is_none_or(|written| written > ring / IDLE_SHARE) {
            (self.from, self.since, self.pass) = (read, now, None);
            return false;
        }
        if self.pass.is_none() && now.saturating_duration_since(self.since) >= IDLE_TIME {
            (self.from, self.since) = (read, now);
            let end = read - read % PAGE + ring;
            let is_worth = self.emptied == 0 || end.saturating_sub(self.emptied) >= ring / IDLE_SHARE;
            self.pass = is_worth.then_some(Pass { left: end, end });
        }
        self.pass.is_some()
    }

    /// Gives back one piece of the ring, which is in `map`. Nothing if more is written by now than
    /// was read.
    pub fn give_back(&mut self, reader: &RingReader<'_>, map: &SharedMap) {
        let Some(Pass { left: end, end: all }) = self.pass else { return };
        let geometry = reader.geometry();
        let (ring, subbuf) = (geometry.ring_size(), geometry.subbuf_size());
        let ahead = KEPT_AHEAD.max(ring / KEPT_SHARE);
        let far = self.read.saturating_add(ahead).next_multiple_of(subbuf);
        // In the first lap there is nothing behind the position.
        let begin = far.max(reader.next_opened(self.read).saturating_add(subbuf)).max(ring);
        let begin = begin.max(self.emptied);
        if end <= begin {
            (self.pass, self.emptied) = (None, all);
            return;
        }
        let piece = geometry.subbuf_start(end - 1).max(end.saturating_sub(PIECE)).max(begin);
        let offset = reader.data_range().0 as usize + geometry.place(piece);
        let empty = || map.give_back(offset, (end - piece) as usize);
        if reader.while_withdrawn(self.read, geometry.subbuf_start(piece), empty) {
            self.pass = Some(Pass { left: piece, end: all });
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
        let ring = geometry.ring_size();
        assert!(!idle.is_due(read, ring, start), "it has just been written");
        let later = start + IDLE_TIME;
        for _ in 0..1000 {
            if !idle.is_due(read, ring, later) {
                break;
            }
            idle.give_back(&reader, &map);
            assert_eq!(reader.released(), read, "room is withdrawn for a moment only");
        }
        for time in [later, later + IDLE_TIME] {
            assert!(!idle.is_due(read, ring, time), "there is an end");
        }
        map.resident_bytes()
    }

    #[test]
    fn an_idle_ring_keeps_what_writers_may_touch() {
        let geometry = Geometry::new(256 << 10, 8, 1, 1).unwrap();
        let (ring, all) = (geometry.ring_size(), geometry.file_size());
        assert_eq!(kept(geometry, 0), all, "an unused ring has no pages anyway");
        assert_eq!(kept(geometry, 4096), all - 4096, "nothing but the first page was ever written");
        // The header, what is left of the current sub-buffer, and those of a quarter.
        let inside = 3 * ring + (256 << 10) + 10 * 4096 + 8;
        assert_eq!(kept(geometry, inside), 4096 + (768 << 10) - 10 * 4096);
        assert_eq!(kept(geometry, 3 * ring), 4096 + ring / 4);
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
        let (start, ring) = (Instant::now(), geometry.ring_size());
        let mut idle = IdlePages::new(start);
        assert!(!idle.is_due(read, ring, start) && idle.is_due(read, ring, start + IDLE_TIME));
        idle.give_back(&reader, &map);
        assert_eq!((map.resident_bytes(), reader.released()), (geometry.file_size(), read));
        let busy = read + ring / IDLE_SHARE + 1;
        assert!(!idle.is_due(busy, ring, start + IDLE_TIME), "it begins to wait again");
    }

    #[test]
    fn a_ring_that_is_written_a_little_all_the_time_gives_pages_back() {
        let geometry = Geometry::new(256 << 10, 8, 1, 1).unwrap();
        let map = filled(geometry);
        let reader = RingReader::new(&map, geometry, 0, 0).in_form(WriteProtocol::Rseq);
        let (ring, step) = (geometry.ring_size(), 4096u64);
        let mut now = Instant::now();
        let mut idle = IdlePages::new(now);
        let mut read = 3 * ring;
        let mut most = 0;
        for round in 0..2000 {
            // A page each second, which is written and read: over two laps.
            let place = reader.data_range().0 as usize + geometry.place(read);
            map.word(place).store(1, std::sync::atomic::Ordering::Relaxed);
            read += step;
            now += Duration::from_secs(1);
            map.word(tompion_layout::ring::WRITE).store(read, std::sync::atomic::Ordering::Relaxed);
            reader.release(read);
            if idle.is_due(read, ring, now) {
                idle.give_back(&reader, &map);
                assert_eq!(reader.released(), read);
            }
            most = if round < 100 { 0 } else { map.resident_bytes().max(most) };
        }
        // A quarter ahead once, and what was written since the last pass.
        assert!(most <= 4096 + ring / 4 + (256 << 10) + 3 * ring / IDLE_SHARE, "{most} of {ring}");
        assert!(idle.pass.is_none() || idle.emptied > 4 * ring, "passes end");
    }

    #[test]
    fn a_process_in_which_pieces_take_long_is_left_alone() {
        let mut rings = IdleRings::new(4);
        for _ in 1..MAX_SLOW_PIECES {
            rings.note_slow_piece();
            assert_eq!(rings.rings.len(), 4, "the recorder may have been preempted");
        }
        rings.note_slow_piece();
        assert!(rings.rings.is_empty());
    }
}
