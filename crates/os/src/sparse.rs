//! Sparse files: their size, and where they have data.

use std::{
    io,
    ops::Range,
    os::fd::{AsRawFd, BorrowedFd},
};

use crate::check;

/// Size of a file in bytes.
pub fn file_size(file: BorrowedFd<'_>) -> io::Result<u64> {
    // SAFETY: all-zero bytes are a valid `stat`.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is a writable structure of the right type.
    check(unsafe { libc::fstat(file.as_raw_fd(), &raw mut stat) })?;
    u64::try_from(stat.st_size).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// The next part of a range in which a file has pages of its own; none if there is no further one.
/// To look makes no page present. Moves the descriptor's offset.
///
/// Source: `SEEK_DATA` in `lseek(2)`.
pub fn data_ranges(file: BorrowedFd<'_>, within: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let mut at = within.start;
    let seek = move |from: u64, whence| {
        let from = libc::off_t::try_from(from).ok()?;
        // SAFETY: a plain system call on an open descriptor.
        u64::try_from(unsafe { libc::lseek(file.as_raw_fd(), from, whence) }).ok()
    };
    std::iter::from_fn(move || {
        let start = seek(at, libc::SEEK_DATA).filter(|start| *start < within.end)?;
        let end = seek(start, libc::SEEK_HOLE)?.min(within.end);
        at = end;
        (end > start).then_some(start..end)
    })
}

#[cfg(test)]
mod tests {
    use std::{os::fd::AsFd, sync::atomic::Ordering};

    use super::*;
    use crate::{SharedMap, create_memfd};

    #[test]
    fn only_pages_that_were_written_are_data() {
        let file = create_memfd(c"test", 64 * 4096).expect("a file");
        let map = SharedMap::new(file.as_fd(), 64 * 4096).expect("a map");
        let ranges = |within| data_ranges(file.as_fd(), within).collect::<Vec<_>>();
        assert!(ranges(0..64 * 4096).is_empty());
        for page in [3, 4, 9] {
            map.word(page * 4096 + 8).store(1, Ordering::Relaxed);
        }
        assert_eq!(ranges(0..64 * 4096), [3 * 4096..5 * 4096, 9 * 4096..10 * 4096]);
        assert_eq!(ranges(4 * 4096..9 * 4096).first(), Some(&(4 * 4096..5 * 4096)));
        assert!(ranges(10 * 4096..64 * 4096).is_empty());
        assert_eq!(file_size(file.as_fd()).expect("a size"), 64 * 4096);
    }
}
