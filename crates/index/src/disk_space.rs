//! Disk space that an index needs, and the reserve that it leaves to recordings on the same file
//! system.

use std::io;
use std::os::fd::AsFd;

use tompion_reader::TraceSet;

/// Maximum bytes of the reserve.
const MAX_RESERVE: u64 = 256 << 20;
/// On a small file system, the reserve is one of this many parts.
const RESERVE_SHARE: u64 = 10;
/// Bytes of a small index.
const BASE: u64 = 1 << 20;

/// Returns the bytes that an index takes at most: half of the trace's, of which it took 7 to 42 %
/// where that was measured. [`size_estimate`](crate::size_estimate) is closer, and takes longer.
pub fn upper_bound(set: &TraceSet) -> u64 {
    let folders = set.traces().iter().filter_map(|trace| std::fs::read_dir(&trace.path).ok());
    let files = folders.flat_map(|folder| folder.filter_map(Result::ok));
    let sizes = files.filter_map(|file| file.metadata().ok()).filter(std::fs::Metadata::is_file);
    let trace: u64 = sizes.map(|metadata| metadata.len()).fold(0, u64::saturating_add);
    BASE + trace / 2
}

/// Checks that a file system has free space for some bytes besides the reserve.
pub fn check_for(file: &impl AsFd, bytes: u64) -> io::Result<()> {
    let system = rustix::fs::fstatvfs(file)?;
    let size = |blocks: u64| blocks.saturating_mul(system.f_frsize);
    let reserve = (size(system.f_blocks) / RESERVE_SHARE).min(MAX_RESERVE);
    let free = size(system.f_bavail);
    if free >= bytes.saturating_add(reserve) {
        return Ok(());
    }
    let text = format!(
        "its disk has {} MiB free, of which {} MiB are left to recordings; the index takes up to {} MiB",
        free >> 20,
        reserve >> 20,
        bytes.div_ceil(1 << 20)
    );
    Err(io::Error::new(io::ErrorKind::StorageFull, text))
}

/// Checks while an index is written that the reserve is free, and as many bytes.
pub fn check(file: &impl AsFd, bytes: u64) -> io::Result<()> {
    check_for(file, bytes).map_err(|error| match error.kind() {
        io::ErrorKind::StorageFull => io::Error::new(
            error.kind(),
            "its disk is nearly full, and the rest is left to recordings; free space, and open the trace again",
        ),
        _ => error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_asked_for_and_some_is_left() {
        let file = tempfile::tempfile().unwrap();
        let system = rustix::fs::fstatvfs(&file).unwrap();
        let free = system.f_bavail * system.f_frsize;
        let all = check_for(&file, free).unwrap_err();
        assert_eq!(all.kind(), io::ErrorKind::StorageFull);
        assert!(all.to_string().contains("are left to recordings"), "{all}");
        assert_eq!(check(&file, 0).is_ok(), check_for(&file, 0).is_ok());
    }
}
