//! Layout of a ring: one header page, then its data, for each CPU of each buffer.
//!
//! ```text
//! header page                                   data: `subbuf_count` × `subbuf_size` bytes
//!   0  write      u64  agent   appended so far    ┌─────────┬─────────┬─────────┬─────────┐
//!   8  events     u64  agent   appended so far    │ sub 0   │ sub 1   │ sub 2   │ sub 3   │
//!  16  lost[16]   u64  agent   by cause           └─────────┴─────────┴─────────┴─────────┘
//! 192  consumed   u64  session read so far
//! ```
//!
//! Positions are free-running byte counts; a position modulo the data's size is the offset in the
//! data. `write` and `events` are stored together, 16 bytes at once, and only by the last
//! instruction of a restartable section on the ring's own CPU: a record is counted exactly when it
//! is present.
//!
//! In reserve form ([`WriteProtocol::ReserveCommit`](record::WriteProtocol)), any thread moves the
//! two together by a 16-byte compare-and-swap. They count *reserved* records; the records' commit
//! words show which are present.

use crate::{PAGE, loss::Cause, record};

/// Offset of `write`, the number of bytes appended so far.
pub const WRITE: usize = 0;
/// Offset of the number of event records appended so far.
pub const EVENTS: usize = 8;
/// Offset of the loss counters, [`Cause::SLOTS`] words.
pub const LOST: usize = 16;
/// Offset of `consumed`, the number of bytes the session has consumed. On its own cache line.
pub const CONSUMED: usize = 192;
/// Offset of the data from the ring's start.
pub const DATA: usize = if cfg!(loom) { 256 } else { PAGE as usize };

const _: () = assert!(LOST + Cause::SLOTS * 8 <= CONSUMED);

/// Minimum and maximum size of a sub-buffer in bytes. (Loom explores tiny ones.)
pub const SUBBUF_SIZE: std::ops::RangeInclusive<u64> = (if cfg!(loom) { 128 } else { 4096 })..=256 << 20;
/// Minimum and maximum number of sub-buffers of a ring.
pub const SUBBUF_COUNT: std::ops::RangeInclusive<u64> = 2..=4096;
/// Maximum number of bytes of data in one ring.
pub const MAX_RING: u64 = 1 << 32;
/// Maximum number of bytes of a ring that are populated ahead of the writer.
pub const MAX_AHEAD: u64 = 16 << 20;
/// Bytes of a CPU's ring that are made present for the child of a fork, with the header. Most such
/// children are short, and a page costs as much as some fifty events.
pub const FIRST_OF_CHILD: usize = 4 * PAGE as usize;
/// Maximum number of CPUs.
pub const MAX_CPUS: u32 = 8192;

/// Geometry of a ring file: number, sizes and positions of rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    subbuf_size: u64,
    subbuf_count: u64,
    cpus: u32,
    buffers: u32,
}

/// Reason why requested sizes are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GeometryError {
    /// The sub-buffer's size is not a power of two in [`SUBBUF_SIZE`].
    SubbufSize(u64),
    /// The number of sub-buffers is not a power of two in [`SUBBUF_COUNT`].
    SubbufCount(u64),
    /// The ring would be larger than [`MAX_RING`].
    RingSize(u64),
    /// There is no CPU, or more than [`MAX_CPUS`].
    Cpus(u32),
    /// The number of buffers is neither one nor two.
    Buffers(u32),
}

impl std::fmt::Display for GeometryError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::SubbufSize(size) => {
                write!(f, "a sub-buffer has a power of two from 4K to 256M bytes, not {size}")
            }
            Self::SubbufCount(count) => {
                write!(f, "a ring has a power of two from 2 to 4096 sub-buffers, not {count}")
            }
            Self::RingSize(size) => write!(f, "a ring has at most 4G bytes, not {size}"),
            Self::Cpus(cpus) => write!(f, "a recording has 1 to {MAX_CPUS} CPUs, not {cpus}"),
            Self::Buffers(buffers) => write!(f, "a recording has 1 or 2 buffers, not {buffers}"),
        }
    }
}

impl std::error::Error for GeometryError {}

impl Geometry {
    /// Checks the sizes: powers of two within bounds. `buffers` is 1, or 2 where rings are
    /// switched.
    pub fn new(subbuf_size: u64, subbuf_count: u64, cpus: u32, buffers: u32) -> Result<Self, GeometryError> {
        if !SUBBUF_SIZE.contains(&subbuf_size) || !subbuf_size.is_power_of_two() {
            return Err(GeometryError::SubbufSize(subbuf_size));
        }
        if !SUBBUF_COUNT.contains(&subbuf_count) || !subbuf_count.is_power_of_two() {
            return Err(GeometryError::SubbufCount(subbuf_count));
        }
        if subbuf_size * subbuf_count > MAX_RING {
            return Err(GeometryError::RingSize(subbuf_size * subbuf_count));
        }
        if cpus == 0 || cpus > MAX_CPUS {
            return Err(GeometryError::Cpus(cpus));
        }
        if !(1..=2).contains(&buffers) {
            return Err(GeometryError::Buffers(buffers));
        }
        Ok(Self { subbuf_size, subbuf_count, cpus, buffers })
    }

    /// Returns the size of one sub-buffer in bytes.
    pub const fn subbuf_size(&self) -> u64 {
        self.subbuf_size
    }

    /// Returns the number of sub-buffers of one ring.
    pub const fn subbuf_count(&self) -> u64 {
        self.subbuf_count
    }

    /// Returns the number of rings of one buffer.
    pub const fn cpus(&self) -> u32 {
        self.cpus
    }

    /// Returns the number of buffers that the selector chooses from.
    pub const fn buffers(&self) -> u32 {
        self.buffers
    }

    /// Returns the number of bytes of data of one ring.
    pub const fn ring_size(&self) -> u64 {
        self.subbuf_size * self.subbuf_count
    }

    /// Returns the distance of two CPUs' rings in the file.
    pub const fn cpu_stride(&self) -> u64 {
        DATA as u64 + self.ring_size()
    }

    /// Returns the distance of two buffers in the file.
    pub const fn buffer_stride(&self) -> u64 {
        self.cpu_stride() * self.cpus as u64
    }

    /// Returns the size of the whole ring file.
    pub const fn file_size(&self) -> u64 {
        self.buffer_stride() * self.buffers as u64
    }

    /// Returns the maximum size of a record in these sub-buffers, in bytes: 64 KiB or half a
    /// sub-buffer.
    pub const fn max_record(&self) -> usize {
        let half = (self.subbuf_size / 2) as usize;
        if half < record::MAX_RECORD { half } else { record::MAX_RECORD }
    }

    /// Returns the position at which the sub-buffer that holds `position` begins.
    pub const fn subbuf_start(&self, position: u64) -> u64 {
        position & !(self.subbuf_size - 1)
    }

    /// Returns the position at which the sub-buffer that holds `position` ends. The very last one
    /// ends at the largest number, because programs may claim such a position.
    pub const fn subbuf_end(&self, position: u64) -> u64 {
        self.subbuf_start(position).saturating_add(self.subbuf_size)
    }

    /// Returns where the ring begins in the file whose data has this offset; none for an offset in
    /// a header or behind the file.
    pub const fn ring_of(&self, offset: u64) -> Option<u64> {
        let inside = offset % self.cpu_stride();
        if offset < self.file_size() && inside >= DATA as u64 { Some(offset - inside) } else { None }
    }

    /// Returns how many bytes of a range may be made present, of `len` from an offset in the file.
    ///
    /// They are data of one ring, on the ring's first lap, in the sub-buffer that is written or the
    /// next one, and at most [`MAX_AHEAD`] ahead of the position. A ring that has not been written
    /// gets none: most processes use few CPUs.
    pub const fn ahead(&self, offset: u64, len: u64, write: u64) -> u64 {
        let Some(ring) = self.ring_of(offset) else { return 0 };
        let begin = offset - ring - DATA as u64;
        let mut end = begin.saturating_add(len);
        let next = self.subbuf_end(write.saturating_add(self.subbuf_size));
        if write == 0 || end > self.ring_size() || end > next {
            return 0;
        }
        if end > write.saturating_add(MAX_AHEAD) {
            end = write.saturating_add(MAX_AHEAD);
        }
        end.saturating_sub(begin)
    }

    /// Returns the offset of a position in a ring's data.
    pub const fn place(&self, position: u64) -> usize {
        (position & (self.ring_size() - 1)) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_written_next_is_ahead() {
        let geometry = Geometry::new(4096, 8, 2, 1).unwrap();
        let (data, stride) = (DATA as u64, geometry.cpu_stride());
        assert_eq!(geometry.ring_of(stride + data + 5), Some(stride));
        for outside in [0, data - 1, stride, 2 * stride, u64::MAX] {
            assert_eq!(geometry.ring_of(outside), None);
            assert_eq!(geometry.ahead(outside, 1, 1), 0);
        }
        // A session asks for up to one sub-buffer behind the one that is written.
        assert_eq!(geometry.ahead(data, 2 * 4096, 100), 2 * 4096);
        assert_eq!(geometry.ahead(data, 2 * 4096 + 1, 100), 0);
        assert_eq!(geometry.ahead(data, 4096, 0), 0);
        assert_eq!(geometry.ahead(stride + data + 7 * 4096, 4096, 6 * 4096), 4096);
        assert_eq!(geometry.ahead(stride + data + 7 * 4096, 4097, u64::MAX), 0);
        assert_eq!(geometry.ahead(data, u64::MAX, u64::MAX), 0);
        let large = Geometry::new(256 << 20, 2, 1, 1).unwrap();
        assert_eq!(large.ahead(data, 256 << 20, 8), MAX_AHEAD + 8);
        assert_eq!(large.ahead(data + MAX_AHEAD, 256 << 20, 8), 8);
        assert_eq!(large.ahead(data + 2 * MAX_AHEAD, 1 << 20, 8), 0);
    }

    #[test]
    fn sizes_that_are_no_powers_of_two_are_refused() {
        assert_eq!(Geometry::new(0, 4, 2, 1), Err(GeometryError::SubbufSize(0)));
        assert_eq!(Geometry::new(3, 4, 2, 1), Err(GeometryError::SubbufSize(3)));
        assert_eq!(Geometry::new(4096, 3, 2, 1), Err(GeometryError::SubbufCount(3)));
        assert_eq!(Geometry::new(256 << 20, 4096, 2, 1), Err(GeometryError::RingSize(1 << 40)));
        assert_eq!(Geometry::new(4096, 4, 0, 1), Err(GeometryError::Cpus(0)));
        assert_eq!(Geometry::new(4096, 4, 1, 3), Err(GeometryError::Buffers(3)));
    }

    #[test]
    fn places_and_bounds_follow_the_sizes() {
        let geometry = Geometry::new(4096, 4, 2, 2).unwrap();
        assert_eq!(geometry.cpu_stride(), 4096 + 16384);
        assert_eq!(geometry.file_size(), 4 * (4096 + 16384));
        assert_eq!(geometry.max_record(), 2048);
        assert_eq!(geometry.place(16384 + 5), 5);
        assert_eq!(geometry.subbuf_start(4096 + 8), 4096);
        assert_eq!(geometry.subbuf_end(4096), 8192);
        assert_eq!(geometry.subbuf_end(u64::MAX), u64::MAX);
    }
}
