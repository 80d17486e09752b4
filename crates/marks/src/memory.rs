//! Memory in which libraries of a process keep descriptions of events that they have made.

use std::{fs::File, io, os::unix::fs::FileExt};

use tompion_schema::Event;

use crate::file::events_in;

/// Name of that memory in `/proc/PID/maps`, as `crates/agent/preload/arena.h` gives it. The file
/// has no name elsewhere, so the kernel calls it deleted.
const NAME: &[u8] = b"/memfd:tompion-events (deleted)";
/// Maximum number of bytes that are read of a process.
const MAX_READ: usize = 64 << 20;
/// Maximum number of events that are read of a process.
pub const MAX_EVENTS: usize = 100_000;

/// Events that a process has described in memory.
#[derive(Debug, Default)]
pub struct InMemory {
    /// Those that were read.
    pub events: Vec<Event>,
    /// Whether there is more than is read of a process.
    pub is_cut: bool,
    /// Number of pieces of memory that could not be read.
    pub unread: usize,
}

/// Reads the events that libraries of a process have described in memory. What they say is the
/// process's claim. A piece of memory that can't be read is counted, and hides no other.
///
/// # Errors
/// If the process is not there, or the caller must not read its memory.
pub fn described_in_memory(pid: &str) -> io::Result<InMemory> {
    let maps = std::fs::read(format!("/proc/{pid}/maps"))?;
    let ranges: Vec<_> = maps.split(|byte| *byte == b'\n').filter_map(range_of).collect();
    if ranges.is_empty() {
        return Ok(InMemory::default());
    }
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    Ok(events_in_ranges(&ranges, |bytes, at| memory.read_exact_at(bytes, at)))
}

fn events_in_ranges(
    ranges: &[(u64, u64)],
    mut read: impl FnMut(&mut [u8], u64) -> io::Result<()>,
) -> InMemory {
    let mut found = InMemory::default();
    let mut left = MAX_READ;
    for (start, end) in ranges {
        let whole = usize::try_from(end.saturating_sub(*start)).unwrap_or(usize::MAX);
        let size = whole.min(left);
        found.is_cut |= size < whole;
        let mut bytes = vec![0; size];
        if read(&mut bytes, *start).is_err() {
            found.unread += 1;
            continue;
        }
        left -= size;
        // One more, to see that there are too many.
        let most = (MAX_EVENTS + 1).saturating_sub(found.events.len());
        found.events.extend(events_in(&|_| None, 0, &bytes, most));
        if found.events.len() > MAX_EVENTS {
            found.events.truncate(MAX_EVENTS);
            found.is_cut = true;
            break;
        }
    }
    found
}

/// The addresses of a mapping with such memory. Names of other mappings may be any bytes.
fn range_of(line: &[u8]) -> Option<(u64, u64)> {
    // Addresses, permissions, offset, device, inode; then the name, behind spaces.
    let mut fields = line.splitn(6, |byte| *byte == b' ');
    let range = std::str::from_utf8(fields.next()?).ok()?;
    if fields.nth(4)?.trim_ascii_start() != NAME {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some((number(start)?, number(end)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mappings_of_that_name_are_read() {
        let line = b"7f00a000-7f00b000 rw-p 00000000 00:01 12   /memfd:tompion-events (deleted)";
        assert_eq!(range_of(line), Some((0x7f00_a000, 0x7f00_b000)));
        let others: [&[u8]; 7] = [
            b"7f00a000-7f00b000 rw-p 00000000 00:01 12 /memfd:other (deleted)",
            b"7f00a000-7f00b000 rw-p 00000000 00:01 12 /memfd:tompion-events2 (deleted)",
            b"7f00a000-7f00b000 rw-p 00000000 00:01 12 /tmp/\xff\xfe/memfd:tompion-events (deleted)",
            b"7f00a000-7f00b000 rw-p 00000000 00:00 0",
            b"7f00a000-7f00b000 rw-p 00000000 00:00 0 ",
            b"x-y rw-p 00000000 00:00 0 /memfd:tompion-events (deleted)",
            b"",
        ];
        for other in others {
            assert_eq!(range_of(other), None, "{}", other.escape_ascii());
        }
    }

    /// A description as libraries make it, of one event without fields.
    fn description() -> Vec<u8> {
        let event = Event {
            provider: "app".into(),
            name: "parse".into(),
            level: tompion_schema::Level::DEFAULT,
            kind: tompion_schema::Kind::Instant,
            init: false,
            format: None,
            attributes: tompion_schema::Attributes::default(),
            fields: Vec::new(),
        };
        let mut bytes = tompion_schema::encode(&event);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    #[test]
    fn memory_that_cannot_be_read_hides_no_other() {
        let description = description();
        let size = description.len() as u64;
        let read = |bytes: &mut [u8], at: u64| {
            if at == 0x2000 {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            bytes.copy_from_slice(&description);
            Ok(())
        };
        let ranges = [0x1000, 0x2000, 0x3000].map(|start| (start, start + size));
        let found = events_in_ranges(&ranges, read);
        assert_eq!((found.events.len(), found.unread, found.is_cut), (2, 1, false));
        assert_eq!(found.events[1].full_name(), "app:parse");
    }

    #[test]
    fn a_process_has_a_limited_number_of_events() {
        let description = description();
        let many = description.repeat(MAX_EVENTS + 1);
        let read = |bytes: &mut [u8], _| {
            bytes.copy_from_slice(&many[..bytes.len()]);
            Ok(())
        };
        let found = events_in_ranges(&[(0, many.len() as u64), (1 << 30, 2 << 30)], read);
        assert_eq!((found.events.len(), found.unread, found.is_cut), (MAX_EVENTS, 0, true));
    }

    #[test]
    fn a_process_without_such_memory_has_none() {
        assert!(described_in_memory("self").unwrap().events.is_empty());
        assert!(described_in_memory("0").is_err());
    }
}
