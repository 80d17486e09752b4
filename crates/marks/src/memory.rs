//! Memory in which libraries of a process keep descriptions of events that they have made.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    os::unix::fs::FileExt,
};

use tompion_schema::Event;

use crate::file::events_in;

/// Name of that memory in `/proc/PID/maps`, as `crates/agent/preload/arena.h` gives it.
const NAME: &str = "/memfd:tompion-events";
/// Maximum number of bytes that are read of a process.
const MAX_READ: usize = 64 << 20;

/// Reads the events that libraries of a process have described in memory. What they say is the
/// process's claim.
///
/// # Errors
/// If the process is not there, or the caller must not read its memory.
pub fn described_in_memory(pid: &str) -> io::Result<Vec<Event>> {
    let maps = BufReader::new(File::open(format!("/proc/{pid}/maps"))?);
    let mut events = Vec::new();
    let mut left = MAX_READ;
    for line in maps.lines() {
        let Some((start, end)) = range_of(&line?) else { continue };
        let size = usize::try_from(end.saturating_sub(start)).unwrap_or(usize::MAX).min(left);
        left -= size;
        let mut bytes = vec![0; size];
        File::open(format!("/proc/{pid}/mem"))?.read_exact_at(&mut bytes, start)?;
        events.extend(events_in(&|_| None, 0, &bytes));
    }
    Ok(events)
}

/// The addresses of a mapping with such memory.
fn range_of(line: &str) -> Option<(u64, u64)> {
    let (range, rest) = line.split_once(' ')?;
    let path = &rest[rest.find('/')?..];
    let (start, end) = range.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    path.starts_with(NAME).then(|| Some((number(start)?, number(end)?)))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mappings_of_that_name_are_read() {
        let line = "7f00a000-7f00b000 rw-p 00000000 00:01 12   /memfd:tompion-events (deleted)";
        assert_eq!(range_of(line), Some((0x7f00_a000, 0x7f00_b000)));
        assert_eq!(range_of("7f00a000-7f00b000 rw-p 00000000 00:01 12 /memfd:other (deleted)"), None);
        assert_eq!(range_of("7f00a000-7f00b000 rw-p 00000000 00:00 0"), None);
        assert_eq!(range_of("x-y rw-p 00000000 00:00 0 /memfd:tompion-events"), None);
    }

    #[test]
    fn a_process_without_such_memory_has_none() {
        assert!(described_in_memory("self").unwrap().is_empty());
        assert!(described_in_memory("0").is_err());
    }
}
