//! Events that a flight recorder keeps: a list that only grows, for many writers and one reader.

use std::sync::atomic::{AtomicU64, Ordering};

use tompion_layout::{
    control::{KEPT, KEPT_SIZE},
    kept, record,
};
use tompion_os::SharedMap;

use crate::producer::Event;

/// How many entries of others a writer passes before it gives up.
const MOST_PASSED: usize = 1 << 16;

/// An event that was kept. Nothing of it was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UntrustedKept {
    /// Number of the event in the catalog.
    pub number: u32,
    /// The writing thread, as it says.
    pub tid: u32,
    /// Where it ran, as it says.
    pub cpu: u32,
    /// Timestamp.
    pub time: u64,
    /// Fixed part and tails.
    pub payload: Vec<u8>,
}

/// The word at an offset of the list.
///
/// # Safety
/// `list` points to `KEPT_SIZE` bytes of shared memory that stay; the offset is a multiple of 8 and inside.
unsafe fn word<'a>(list: *const AtomicU64, offset: usize) -> &'a AtomicU64 {
    // SAFETY: as the caller promises.
    unsafe { &*list.byte_add(offset) }
}

/// Appends an event. False if there is no room.
///
/// # Safety
/// `list` points to `KEPT_SIZE` bytes of shared memory that stay; the event's parts are readable.
pub(crate) unsafe fn append(list: *const AtomicU64, event: &Event<'_>, (cpu, time): (u32, u64)) -> bool {
    let tails = event.tails.iter().fold(0, |sum: usize, tail| sum.saturating_add(tail.size));
    let payload = event.image_len.saturating_add(tails);
    if payload > record::MAX_RECORD {
        return false;
    }
    let len = kept::entry_len(payload);
    // SAFETY: as the caller promises.
    let Some(at) = (unsafe { reserve(list, len) }) else { return false };
    let number = u32::from(event.id.wrapping_sub(record::FIRST_EVENT));
    let header =
        [u64::from(number) | u64::from(cpu) << 32, time, u64::from(event.tid) | (payload as u64) << 32];
    // SAFETY: `reserve` gave `len` bytes at `at` to this thread alone, and `len` has room for the header and
    // the parts, which are readable as the caller promises.
    unsafe {
        for (index, value) in header.into_iter().enumerate() {
            // Ordering: published by the commit below.
            word(list, at + 8 + index * 8).store(value, Ordering::Relaxed);
        }
        let mut place = list.cast_mut().cast::<u8>().add(at + kept::HEADER);
        place.copy_from(event.image, event.image_len);
        place = place.add(event.image_len);
        for tail in event.tails {
            place.copy_from(tail.data, tail.size);
            place = place.add(tail.size);
        }
        // Ordering: release, pairs with the reader's acquire load: who sees the commit sees the entry.
        word(list, at).store(len as u64 | kept::COMMITTED, Ordering::Release);
        // Ordering: a hint.
        word(list, kept::HINT).fetch_max((at + len) as u64, Ordering::Relaxed);
    }
    true
}

/// Makes the first free `len` bytes the caller's.
///
/// # Safety
/// As [`append`].
unsafe fn reserve(list: *const AtomicU64, len: usize) -> Option<usize> {
    let size = KEPT_SIZE as usize;
    // SAFETY: inside the list.
    let hint = unsafe { word(list, kept::HINT) }.load(Ordering::Relaxed);
    let mut at = usize::try_from(hint).ok().filter(|hint| hint % 8 == 0)?.max(kept::ENTRIES);
    for _ in 0..MOST_PASSED {
        if at.checked_add(len).is_none_or(|end| end > size) {
            return None;
        }
        // SAFETY: `at` is a multiple of 8, and inside.
        let first = unsafe { word(list, at) };
        // Ordering: the entry belongs to who sets its length; nothing else depends on seeing it.
        match first.compare_exchange(0, len as u64, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return Some(at),
            Err(taken) => at += kept::length(taken, size - at)?,
        }
    }
    None
}

/// Reads what was kept since the offset `read` (0 at first), and moves that on.
///
/// At an entry that isn't complete yet it stops, unless this is the `last` time: then its writer is gone.
pub fn take(control: &SharedMap, read: &mut usize, last: bool, out: &mut Vec<UntrustedKept>) {
    let (start, size) = (KEPT as usize, KEPT_SIZE as usize);
    let mut at = (*read).max(kept::ENTRIES);
    while at + kept::HEADER <= size {
        // Ordering: pairs with the release store in `append`.
        let first = control.word(start + at).load(Ordering::Acquire);
        let Some(len) = kept::length(first, size - at) else { break };
        let is_complete = first & kept::COMMITTED != 0;
        if !is_complete && !last {
            break;
        }
        if is_complete {
            let word = |index: usize| control.word(start + at + index * 8).load(Ordering::Relaxed);
            let (ids, time, tail) = (word(1), word(2), word(3));
            let mut payload = vec![0; ((tail >> 32) as usize).min(len - kept::HEADER)];
            control.copy_out(start + at + kept::HEADER, &mut payload);
            let (number, cpu, tid) = (ids as u32, (ids >> 32) as u32, tail as u32);
            out.push(UntrustedKept { number, tid, cpu, time, payload });
        }
        at += len;
    }
    *read = at;
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use tompion_layout::control::FILE_SIZE;

    use super::*;
    use crate::producer::Tail;

    fn control() -> SharedMap {
        let file = tompion_os::create_memfd(c"control", FILE_SIZE).unwrap();
        SharedMap::new(file.as_fd(), FILE_SIZE).unwrap()
    }

    fn keep(control: &SharedMap, number: u16, image: u64, tail: &[u8]) -> bool {
        let (image, tails) = (image.to_le_bytes(), [Tail { data: tail.as_ptr(), size: tail.len() }]);
        let event = Event {
            id: record::FIRST_EVENT + number,
            tid: 7,
            time: 0,
            image: image.as_ptr(),
            image_len: 8,
            tails: &tails,
            keep: true,
        };
        // SAFETY: the list is part of a mapping of the control file's size; the parts are locals.
        unsafe { append(control.word(KEPT as usize), &event, (3, 99)) }
    }

    fn all(control: &SharedMap, last: bool) -> Vec<UntrustedKept> {
        let mut out = Vec::new();
        take(control, &mut 0, last, &mut out);
        out
    }

    #[test]
    fn what_was_kept_is_found_once() {
        let control = control();
        assert!(keep(&control, 5, 1, b"abc") && keep(&control, 6, 2, b""));
        let (mut read, mut out) = (0, Vec::new());
        take(&control, &mut read, false, &mut out);
        let payload = [&1u64.to_le_bytes()[..], b"abc"].concat();
        assert_eq!(out[0], UntrustedKept { number: 5, tid: 7, cpu: 3, time: 99, payload });
        assert_eq!((out.len(), out[1].number), (2, 6));
        take(&control, &mut read, false, &mut out);
        assert_eq!(out.len(), 2);
    }

    #[test]
    fn a_writer_that_was_killed_leaves_a_gap() {
        let control = control();
        assert!(keep(&control, 1, 1, b""));
        // SAFETY: the list is inside the mapping.
        let at = unsafe { reserve(control.word(KEPT as usize), 64) }.unwrap();
        assert_eq!(at, kept::ENTRIES + kept::entry_len(8));
        assert!(keep(&control, 2, 2, b"x"));
        assert_eq!(all(&control, false).len(), 1);
        assert_eq!(all(&control, true).iter().map(|event| event.number).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn threads_keep_all_until_there_is_no_room() {
        let control = control();
        let kept: usize = std::thread::scope(|scope| {
            let one = |thread| {
                let keep = |round: &u64| keep(&control, thread, *round, &[thread as u8; 100]);
                (0..5000).take_while(keep).count()
            };
            let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || one(thread))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        let found = all(&control, false);
        assert_eq!(found.len(), kept);
        assert!(kept * kept::entry_len(108) + kept::entry_len(108) + kept::ENTRIES > KEPT_SIZE as usize);
        for thread in 0..4 {
            let own = found.iter().filter(|event| event.number == thread);
            let rounds = own.map(|event| {
                assert_eq!(event.payload[8..], [thread as u8; 100]);
                event.payload[0] as u64 | (event.payload[1] as u64) << 8
            });
            assert!(rounds.enumerate().all(|(index, round)| index as u64 == round));
        }
    }

    #[test]
    fn hostile_words_end_the_list() {
        let control = control();
        assert!(keep(&control, 1, 1, b""));
        for word in [1, 8, 31, u64::MAX, KEPT_SIZE, kept::COMMITTED | 24] {
            control.word(KEPT as usize + kept::ENTRIES + kept::entry_len(8)).store(word, Ordering::Relaxed);
            control.word(KEPT as usize + kept::HINT).store(0, Ordering::Relaxed);
            assert_eq!(all(&control, true).len(), 1);
            assert!(!keep(&control, 1, 1, b""));
            control.word(KEPT as usize + kept::HINT).store(word, Ordering::Relaxed);
            keep(&control, 1, 1, b"");
        }
        let lies = kept::ENTRIES + 24;
        control.word(KEPT as usize + lies).store(u64::MAX, Ordering::Relaxed);
        assert_eq!(all(&control, true)[0].payload.len(), 8);
    }
}
