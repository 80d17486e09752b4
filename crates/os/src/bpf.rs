//! Maps of BPF programs, as descriptors.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

use crate::check;

/// Facts that the kernel states about a map.
///
/// Source: `/proc/PID/fdinfo` in `proc(5)`.
pub(crate) struct MapFacts(String);

impl MapFacts {
    pub(crate) fn of(map: BorrowedFd<'_>) -> io::Result<Self> {
        // A thread may have a table of descriptors of its own.
        std::fs::read_to_string(format!("/proc/thread-self/fdinfo/{}", map.as_raw_fd())).map(Self)
    }

    /// The number behind a key such as `map_id:`.
    pub(crate) fn number(&self, key: &str) -> Option<u64> {
        self.0.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok())
    }
}

/// The kernel's number of a map, which no other has as long as there is this one.
///
/// # Errors
/// If the descriptor is not one of a map.
pub fn bpf_map_id(map: BorrowedFd<'_>) -> io::Result<u32> {
    let id = MapFacts::of(map)?.number("map_id:").and_then(|id| u32::try_from(id).ok());
    id.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "expected a BPF map"))
}

/// Takes the right to change a map from user space, for ever: by what descriptor ever, it can then
/// only be read and mapped to be read. Programs in the kernel still change it.
///
/// A descriptor that can only be read (`BPF_F_RDONLY`) would be no use: it can't be mapped. Source:
/// `bpf(2)`, `BPF_MAP_FREEZE`; Linux 5.2.
///
/// # Errors
/// `EBUSY` if the map is mapped for writing, or was frozen before.
pub fn freeze_bpf_map(map: BorrowedFd<'_>) -> io::Result<()> {
    const MAP_FREEZE: libc::c_long = 22;
    let number = map.as_raw_fd() as u32;
    // SAFETY: the structure of this command is the number alone, which is live and as large as the
    // call is told.
    let result = unsafe { libc::syscall(libc::SYS_bpf, MAP_FREEZE, &raw const number, size_of::<u32>()) };
    check(result as libc::c_int).map(drop)
}
