//! Pinned events of a flight recorder: a list that only grows, for many writers and one reader.

use std::sync::atomic::Ordering;

use tompion_layout::{
    control::{PINNED, PINNED_SIZE},
    pinned, record,
};

use crate::{
    event::{Event, Retention},
    memory::{Part, SharedMap},
};

/// Maximum number of words that are searched for intact entries behind a missing page.
const MAX_SEARCHED_WORDS: usize = 1 << 24;
/// Maximum number of other threads' entries that a writer passes before it gives up.
const MAX_SKIPPED_ENTRIES: usize = 1 << 16;

/// An event that was kept. Nothing of it was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UntrustedPinned {
    /// Number of the event in the catalog.
    pub number: u32,
    /// The writing thread, as it says.
    pub tid: u32,
    /// CPU on which it was written, by the writer's account.
    pub cpu: u32,
    /// Timestamp.
    pub time: u64,
    /// Fixed part and tails.
    pub payload: Vec<u8>,
}

/// Bytes of the list that an event may use; none if it is not for the list.
pub(crate) fn room(retention: Retention, is_overwritten: bool) -> Option<usize> {
    match retention {
        Retention::Pinned if is_overwritten => Some(PINNED_SIZE as usize),
        Retention::StateDump => Some(pinned::STATE_DUMP_ROOM),
        Retention::Pinned | Retention::Ring => None,
    }
}

/// Appends an event to the first `size` bytes of a list. False if there is no room.
///
/// # Safety
/// The event's parts are readable.
pub(crate) unsafe fn append(
    list: &Part<'_>,
    size: usize,
    event: &Event<'_>,
    (cpu, time): (u32, u64),
) -> bool {
    let payload = event.payload_len();
    if payload > record::MAX_RECORD {
        return false;
    }
    let len = pinned::entry_len(payload);
    let Some(at) = reserve(list, size, len) else { return false };
    let number = u32::from(event.id.wrapping_sub(record::FIRST_EVENT));
    let header =
        [u64::from(number) | u64::from(cpu) << 32, time, u64::from(event.tid) | (payload as u64) << 32];
    for (index, value) in header.into_iter().enumerate() {
        // Ordering: published by the commit below.
        list.store(at + 8 + index * 8, value, Ordering::Relaxed);
    }
    let mut place = at + pinned::HEADER;
    // SAFETY: `reserve` gave `len` bytes at `at` to this thread alone, and `len` has room for the
    // header and the parts, which are readable as the caller promises.
    unsafe {
        list.copy_in(place, event.image, event.image_len);
        place += event.image_len;
        for tail in event.tails {
            list.copy_in(place, tail.data, tail.size);
            place += tail.size;
        }
    }
    // Ordering: this thread's own stores, as far as the bytes are its own; published by the commit.
    list.store(at + pinned::CHECK, check_of(list, at, len), Ordering::Relaxed);
    // Ordering: release, pairs with the reader's acquire load: a reader that sees the commit sees
    // the entry.
    list.store(at, len as u64 | pinned::COMMITTED, Ordering::Release);
    // Ordering: a hint.
    list.raise(pinned::HINT, (at + len) as u64, Ordering::Relaxed);
    true
}

/// The check of what stands in `len` bytes at `at`.
fn check_of(list: &Part<'_>, at: usize, len: usize) -> u64 {
    let offsets = (8..len).step_by(8).filter(|&offset| offset != pinned::CHECK);
    pinned::check(at, offsets.map(|offset| list.load(at + offset, Ordering::Relaxed)))
}

/// Makes the first free `len` bytes the caller's.
fn reserve(list: &Part<'_>, size: usize, len: usize) -> Option<usize> {
    let hint = list.load(pinned::HINT, Ordering::Relaxed);
    let mut at = usize::try_from(hint).ok().filter(|hint| hint % 8 == 0)?.max(pinned::ENTRIES);
    for _ in 0..MAX_SKIPPED_ENTRIES {
        if at.checked_add(len).is_none_or(|end| end > size) {
            return None;
        }
        match list.claim(at, len as u64) {
            Ok(_) => return Some(at),
            Err(taken) => at += pinned::length(taken, size - at)?,
        }
    }
    None
}

/// Reads what was kept since the offset `read` (0 at first), and moves that on.
///
/// At an entry that isn't complete yet it stops, unless this is the `last` time: then its writer is
/// gone.
pub fn take(control: &SharedMap, read: &mut usize, last: bool, out: &mut Vec<UntrustedPinned>) {
    let size = PINNED_SIZE as usize;
    take_from(&Part::of(control, PINNED as usize, size), size, (read, last), out);
}

pub(crate) fn take_from(
    list: &Part<'_>,
    size: usize,
    (read, last): (&mut usize, bool),
    out: &mut Vec<UntrustedPinned>,
) {
    let mut at = (*read).max(pinned::ENTRIES);
    while at + pinned::HEADER <= size {
        // Ordering: pairs with the release store in `append`.
        let first = list.load(at, Ordering::Acquire);
        let Some(len) = pinned::length(first, size - at) else { break };
        let is_complete = first & pinned::COMMITTED != 0;
        if !is_complete && !last {
            break;
        }
        if is_complete {
            out.push(entry(list, at, len));
        }
        at += len;
    }
    *read = at;
}

/// The entry of `len` bytes at `at`.
fn entry(list: &Part<'_>, at: usize, len: usize) -> UntrustedPinned {
    let word = |index: usize| list.load(at + index * 8, Ordering::Relaxed);
    let (ids, time, tail) = (word(1), word(2), word(3));
    let mut payload = vec![0; ((tail >> 32) as usize).min(len - pinned::HEADER)];
    list.copy_out(at + pinned::HEADER, &mut payload);
    let (number, cpu, tid) = (ids as u32, (ids >> 32) as u32, tail as u32);
    UntrustedPinned { number, tid, cpu, time, payload }
}

/// Reads what of a list reached the medium: each page is from the moment at which it was last
/// written back. Returns in how many places something is missing, each of which may have been
/// several events. It begins at the offset `from`, which is 0 or that of an entry.
pub fn take_sound(control: &SharedMap, from: usize, out: &mut Vec<UntrustedPinned>) -> u64 {
    let size = PINNED_SIZE as usize;
    let list = Part::of(control, PINNED as usize, size);
    // The hint may be older than the list; what it tells of was there once.
    let hint = usize::try_from(list.load(pinned::HINT, Ordering::Relaxed)).unwrap_or(0).min(size);
    let mut at = from.max(pinned::ENTRIES);
    let (mut missing, mut is_gap, mut left) = (0, false, MAX_SEARCHED_WORDS);
    let mut sound_end = at;
    while at + pinned::HEADER <= size && left > 0 {
        let first = list.load(at, Ordering::Relaxed);
        let len = pinned::length(first, size - at).filter(|_| first & pinned::COMMITTED != 0);
        left = left.saturating_sub(len.unwrap_or(0) / 8 + 1);
        match len.filter(|&len| check_of(&list, at, len) == list.load(at + pinned::CHECK, Ordering::Relaxed))
        {
            Some(len) => {
                out.push(entry(&list, at, len));
                missing += u64::from(std::mem::take(&mut is_gap));
                at += len;
                sound_end = at;
            }
            None => {
                is_gap = true;
                at += 8;
            }
        }
    }
    missing + u64::from(sound_end < hint)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::os::fd::AsFd;

    use tompion_layout::control::FILE_SIZE;

    use super::*;
    use crate::event::Tail;

    fn control() -> SharedMap {
        let file = tompion_os::create_memfd(c"control", FILE_SIZE).unwrap();
        SharedMap::new(file.as_fd(), FILE_SIZE).unwrap()
    }

    fn list(control: &SharedMap) -> Part<'_> {
        Part::of(control, PINNED as usize, PINNED_SIZE as usize)
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
            retention: Retention::Pinned,
        };
        // SAFETY: the parts are locals.
        unsafe { append(&list(control), PINNED_SIZE as usize, &event, (3, 99)) }
    }

    fn all(control: &SharedMap, last: bool) -> Vec<UntrustedPinned> {
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
        assert_eq!(out[0], UntrustedPinned { number: 5, tid: 7, cpu: 3, time: 99, payload });
        assert_eq!((out.len(), out[1].number), (2, 6));
        take(&control, &mut read, false, &mut out);
        assert_eq!(out.len(), 2);
    }

    #[test]
    fn state_dumps_leave_room_for_other_events() {
        assert_eq!(room(Retention::Ring, true), None);
        assert_eq!(room(Retention::Pinned, false), None);
        let (all, of_dumps) = (room(Retention::Pinned, true), room(Retention::StateDump, true));
        assert_eq!(of_dumps, room(Retention::StateDump, false));
        let control = control();
        let image = [0u64; 100];
        let event = Event {
            id: record::FIRST_EVENT,
            tid: 7,
            time: 0,
            image: image.as_ptr().cast(),
            image_len: size_of_val(&image),
            tails: &[],
            retention: Retention::StateDump,
        };
        // SAFETY: the image is a local.
        let count =
            |size| (0..).take_while(|_| unsafe { append(&list(&control), size, &event, (0, 0)) }).count();
        let (dumped, rest) = (count(of_dumps.unwrap()), count(all.unwrap()));
        assert!(dumped > 500 && dumped.abs_diff(rest) <= 1, "{dumped} and {rest}");
    }

    #[test]
    fn a_writer_that_was_killed_leaves_a_gap() {
        let control = control();
        assert!(keep(&control, 1, 1, b""));
        let at = reserve(&list(&control), PINNED_SIZE as usize, 64).unwrap();
        assert_eq!(at, pinned::ENTRIES + pinned::entry_len(8));
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
        assert!(
            kept * pinned::entry_len(108) + pinned::entry_len(108) + pinned::ENTRIES > PINNED_SIZE as usize
        );
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
    fn after_a_power_cut_only_whole_entries_are_believed() {
        let control = control();
        let numbers = |control: &SharedMap| {
            let mut out = Vec::new();
            let missing = take_sound(control, 0, &mut out);
            assert!(out.iter().all(|event| event.payload[8..] == [event.number as u8; 1000]));
            (out.iter().map(|event| event.number).collect::<Vec<_>>(), missing)
        };
        assert_eq!(numbers(&control), (vec![], 0));
        (0..40).for_each(|number| assert!(keep(&control, number, 1, &[number as u8; 1000])));
        let all = (0..40).collect::<Vec<u32>>();
        assert_eq!(numbers(&control), (all.clone(), 0));
        // A thread killed amid an append looks the same, but its entry isn't missing on the medium.
        let len = pinned::entry_len(1008);
        let page = 4096;
        for gone in [1, 3, 9] {
            let mut bytes = vec![0; page];
            let place = PINNED as usize + gone * page;
            control.copy_out(place, &mut bytes);
            control.copy_in(place, &vec![0; page]);
            let touches = |number: &u32| {
                let begin = pinned::ENTRIES + *number as usize * len;
                begin < (gone + 1) * page && begin + len > gone * page
            };
            let (found, missing) = numbers(&control);
            assert_eq!(found, all.iter().copied().filter(|number| !touches(number)).collect::<Vec<_>>());
            assert_eq!(missing, 1);
            control.copy_in(place, &bytes);
        }
        let end = PINNED as usize + 10 * page;
        control.copy_in(end, &vec![0; 2 * page]);
        assert_eq!(numbers(&control).1, 1);
        assert_eq!(numbers(&control).0.len(), 39);
    }

    #[test]
    fn hostile_words_end_the_list() {
        let control = control();
        assert!(keep(&control, 1, 1, b""));
        for word in [1, 8, 31, u64::MAX, PINNED_SIZE, pinned::COMMITTED | 32] {
            control
                .word(PINNED as usize + pinned::ENTRIES + pinned::entry_len(8))
                .store(word, Ordering::Relaxed);
            control.word(PINNED as usize + pinned::HINT).store(0, Ordering::Relaxed);
            assert_eq!(all(&control, true).len(), 1);
            assert!(!keep(&control, 1, 1, b""));
            control.word(PINNED as usize + pinned::HINT).store(word, Ordering::Relaxed);
            keep(&control, 1, 1, b"");
        }
        let lies = pinned::ENTRIES + 24;
        control.word(PINNED as usize + lies).store(u64::MAX, Ordering::Relaxed);
        assert_eq!(all(&control, true)[0].payload.len(), 8);
    }
}
