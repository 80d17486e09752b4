//! Spans that a trigger watches and that have not ended: their begins are copied, since the end has
//! neither their fields nor their time.
//!
//! A table of fixed size, without a lock. An entry belongs to the thread that has changed its state
//! from [`FREE`], or from its key, to [`CLAIMED`]. Safe in signal handlers.

use std::{
    cell::UnsafeCell,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use tompion_layout::triggers::{CAPTURE, TriggerNumber};
use tompion_ring::{
    captures::Match,
    producer::{Event, Retention},
};

/// Number of entries.
const ENTRIES: usize = 256;
/// Entries that one span can have.
const PROBES: usize = 16;

/// State of an entry without a span, and of one that a thread is changing. Else it is a key.
const FREE: u64 = 0;
const CLAIMED: u64 = 1;
/// Bit of all keys.
const IS_KEY: u64 = 1 << 63;
/// Bits of a key, from its thread's id up: trigger, name of the span, recording.
const TRIGGER_SHIFT: u32 = 32;
const NAME_SHIFT: u32 = 40;
const SLOT_SHIFT: u32 = 56;

/// Time that no span lasts longer than. A begin that is of no interest is noted with it, so that
/// its end finds no other one.
pub const NEVER: u64 = u64::MAX;

/// Whether the table was ever used, so that children need not look at it.
static IS_USED: AtomicBool = AtomicBool::new(false);

static TABLE: [Entry; ENTRIES] = [const { Entry::new() }; ENTRIES];

struct Entry {
    state: AtomicU64,
    /// Time of the begin: CLOCK_MONOTONIC in nanoseconds.
    begin: AtomicU64,
    copy: UnsafeCell<Copy>,
}

/// The begin of a span.
struct Copy {
    id: u16,
    /// Size of its payload, of which `len` bytes are here.
    size: usize,
    len: usize,
    /// Duration of which it must have more, in nanoseconds.
    over: u64,
    /// Epoch of the trigger: the end is that of the same one.
    epoch: u16,
    payload: [u8; CAPTURE.next_multiple_of(8)],
}

// SAFETY: the copy is only reached by the thread that has claimed the entry.
unsafe impl Sync for Entry {}

impl Entry {
    const fn new() -> Self {
        let copy = Copy { id: 0, size: 0, len: 0, over: 0, epoch: 0, payload: [0; CAPTURE] };
        Self { state: AtomicU64::new(FREE), begin: AtomicU64::new(0), copy: UnsafeCell::new(copy) }
    }

    /// Changes the state to claimed, if it is still this one.
    fn claim(&self, state: u64) -> bool {
        // Ordering: acquire, pairs with the release store of the state.
        self.state.compare_exchange(state, CLAIMED, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn state(&self) -> u64 {
        // Ordering: a claim follows before anything is read.
        self.state.load(Ordering::Relaxed)
    }

    fn begin(&self) -> u64 {
        // Ordering: of a thread's own entries; of others it is a hint.
        self.begin.load(Ordering::Relaxed)
    }
}

impl Copy {
    /// Copies the begin of a span.
    ///
    /// # Safety
    /// The event's parts are readable.
    unsafe fn fill(&mut self, event: &Event<'_>) {
        self.id = event.id;
        self.size = Match::from(*event).size;
        let mut used = event.image_len.min(CAPTURE);
        // SAFETY: the event's parts are readable as the caller promises, and the copy has room for
        // `CAPTURE` bytes.
        unsafe {
            self.payload.as_mut_ptr().copy_from_nonoverlapping(event.image, used);
            for tail in event.tails {
                let len = tail.size.min(CAPTURE - used);
                self.payload.as_mut_ptr().add(used).copy_from_nonoverlapping(tail.data, len);
                used += len;
            }
        }
        self.len = used;
    }
}

/// Spans of a name in a thread that a trigger of a recording watches. They end in reverse order.
#[derive(Clone, Copy, Debug)]
pub struct Spans {
    /// The recording, below 128.
    pub slot: usize,
    /// The trigger, of a number below 256.
    pub trigger: TriggerNumber,
    /// Number of the spans' name, the same for begin and end.
    pub name: u16,
    /// Their thread.
    pub tid: u32,
}

impl Spans {
    fn key(self) -> u64 {
        let slot = (self.slot as u64) << SLOT_SHIFT;
        let trigger = (self.trigger.index as u64) << TRIGGER_SHIFT;
        IS_KEY | slot | u64::from(self.name) << NAME_SHIFT | trigger | u64::from(self.tid)
    }
}

/// Recording of an entry's key; none if the entry has no span.
fn slot_of(state: u64) -> Option<usize> {
    (state & IS_KEY != 0).then_some((state & !IS_KEY) as usize >> SLOT_SHIFT)
}

/// Entries that spans of a key can have.
fn entries(key: u64) -> impl Iterator<Item = &'static Entry> + Clone {
    let first = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
    (0..PROBES).map(move |probe| &TABLE[(first + probe) % ENTRIES])
}

/// Claims the oldest of these entries, which has been left without its end, probably. Returns also
/// its recording, unless it could never have fired. An entry that is claimed has no age: a signal
/// handler may have left it by `longjmp`, and then it stays so.
fn claim_oldest(entries: impl Iterator<Item = &'static Entry>) -> Option<(&'static Entry, Option<usize>)> {
    let spans = entries.filter_map(|entry| {
        let state = entry.state();
        Some((entry, state, slot_of(state)?))
    });
    let (oldest, state, slot) = spans.min_by_key(|(entry, ..)| entry.begin())?;
    if !oldest.claim(state) {
        return None;
    }
    // SAFETY: this thread has claimed the entry.
    let could_fire = unsafe { (*oldest.copy.get()).over } != NEVER;
    Some((oldest, could_fire.then_some(slot)))
}

/// Notes that a span has begun that a trigger watches, if it lasts longer than `over` nanoseconds.
/// Returns the recording of another span that had to give way, if one had.
///
/// # Safety
/// The event's parts are readable.
pub unsafe fn open(spans: Spans, event: &Event<'_>, over: u64) -> Option<usize> {
    // Ordering: the child of this thread sees it. Others find a table that they may clear, or not.
    IS_USED.store(true, Ordering::Relaxed);
    let key = spans.key();
    let entries = entries(key);
    let free = entries.clone().find(|entry| entry.state() == FREE && entry.claim(FREE));
    let claimed = free.map(|entry| (entry, None)).or_else(|| claim_oldest(entries));
    // Another thread, or the code that this signal handler interrupts, is using all of them. The
    // end of this span will be taken for that of one around it.
    let Some((entry, given_way)) = claimed else { return Some(spans.slot) };
    // SAFETY: this thread has claimed the entry.
    let copy = unsafe { &mut *entry.copy.get() };
    (copy.over, copy.epoch) = (over, spans.trigger.epoch);
    if over != NEVER {
        // SAFETY: as the caller promises.
        unsafe { copy.fill(event) };
    }
    entry.begin.store(event.time, Ordering::Relaxed);
    // Ordering: release, pairs with the acquire in `claim`.
    entry.state.store(key, Ordering::Release);
    given_way
}

/// Ends the newest of these spans. Passes it on if it has lasted too long.
pub fn close(spans: Spans, now: u64, pass: impl FnOnce(&Match<'_>)) {
    let key = spans.key();
    let newest = entries(key).filter(|entry| entry.state() == key).max_by_key(|entry| entry.begin());
    let Some(entry) = newest.filter(|entry| entry.claim(key)) else { return };
    let duration = now.saturating_sub(entry.begin());
    // SAFETY: this thread has claimed the entry.
    let copy = unsafe { &*entry.copy.get() };
    // A span that began under another trigger of the number is none of this one's.
    if duration > copy.over && copy.epoch == spans.trigger.epoch {
        let (image, image_len) = (copy.payload.as_ptr(), copy.len);
        let (id, tid) = (copy.id, spans.tid);
        let event = Event { id, tid, time: now, image, image_len, tails: &[], retention: Retention::Ring };
        pass(&Match { event, size: copy.size, duration });
    }
    // Ordering: release, pairs with the acquire in `claim`: the next span is written behind this.
    entry.state.store(FREE, Ordering::Release);
}

/// Forgets the spans that triggers of a recording watch.
pub fn forget(slot: usize) {
    // Ordering: a hint; a span that begins now is forgotten with the slot's next recording.
    if !IS_USED.load(Ordering::Relaxed) {
        return;
    }
    for entry in &TABLE {
        let state = entry.state();
        if slot_of(state) == Some(slot) && entry.claim(state) {
            // Ordering: release, pairs with the acquire in `claim`.
            entry.state.store(FREE, Ordering::Release);
        }
    }
}

/// In the child of a fork: forgets the spans of the parent's threads.
pub fn forget_all() {
    // A store would copy the pages in each forked child. Ordering: the child has one thread.
    if IS_USED.load(Ordering::Relaxed) {
        IS_USED.store(false, Ordering::Relaxed);
        TABLE.iter().for_each(|entry| entry.state.store(FREE, Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tompion_ring::producer::Tail;

    use super::*;

    /// Tests share the table.
    static ALONE: Mutex<()> = Mutex::new(());

    fn spans(slot: usize, tid: u32) -> Spans {
        Spans { slot, trigger: TriggerNumber { index: 3, epoch: 0 }, name: 12, tid }
    }

    fn begin_of(spans: Spans, time: u64, text: &[u8], over: u64) -> Option<usize> {
        let (image, tails) = ([7u64], [Tail { data: text.as_ptr(), size: text.len() }]);
        let (image, tid) = (image.as_ptr().cast(), spans.tid);
        let event =
            Event { id: 20, tid, time, image, image_len: 8, tails: &tails, retention: Retention::Ring };
        // SAFETY: the parts are locals.
        unsafe { open(spans, &event, over) }
    }

    fn begin(slot: usize, tid: u32, time: u64, text: &[u8], over: u64) -> Option<usize> {
        begin_of(spans(slot, tid), time, text, over)
    }

    fn end_of(spans: Spans, now: u64) -> Option<(u64, usize, Vec<u8>)> {
        let mut found = None;
        close(spans, now, |it| {
            // SAFETY: the parts are readable while this is called.
            let bytes = unsafe { std::slice::from_raw_parts(it.event.image, it.event.image_len) };
            found = Some((it.duration, it.size, bytes.to_vec()));
        });
        found
    }

    fn end(slot: usize, tid: u32, now: u64) -> Option<(u64, usize, Vec<u8>)> {
        end_of(spans(slot, tid), now)
    }

    #[test]
    fn nested_spans_end_in_the_reverse_order_with_their_own_fields() {
        let _alone = ALONE.lock();
        assert_eq!([begin(0, 5, 100, b"outer", 50), begin(0, 5, 110, b"inner", 5)], [None, None]);
        assert_eq!((end(0, 6, 500), end(1, 5, 500)), (None, None), "of others");
        let with = |text: &[u8]| [&7u64.to_le_bytes(), text].concat();
        assert_eq!(end(0, 5, 120), Some((10, 13, with(b"inner"))));
        assert_eq!(end(0, 5, 160), Some((60, 13, with(b"outer"))));
        assert_eq!(end(0, 5, 170), None);
        begin(0, 5, 200, b"short", 50);
        assert_eq!((end(0, 5, 250), end(0, 5, 900)), (None, None), "not longer, and gone");
    }

    #[test]
    fn abandoned_spans_give_way_and_long_ones_are_cut() {
        let _alone = ALONE.lock();
        let given_way = (0..40).filter(|number| begin(2, 9, 100 + number, b"left", 0) == Some(2)).count();
        assert_eq!(given_way, 40 - PROBES);
        begin(2, 9, 1000, &[1; 5000], 0);
        let (duration, size, payload) = end(2, 9, 1001).expect("the newest");
        assert_eq!((duration, size, payload.len()), (1, 5008, CAPTURE));
        forget(2);
        assert_eq!(end(2, 9, 2000), None);
        begin(2, 9, 3000, b"", 0);
        forget_all();
        assert_eq!(end(2, 9, 4000), None);
    }

    #[test]
    fn spans_of_several_names_end_in_any_order() {
        let _alone = ALONE.lock();
        let duration = |name, now| end_of(Spans { name, ..spans(3, 5) }, now).map(|(duration, ..)| duration);
        for (name, time) in [(1, 100), (2, 110), (u16::MAX, 120)] {
            begin_of(Spans { name, ..spans(3, 5) }, time, b"", 5);
        }
        assert_eq!(
            end_of(Spans { trigger: TriggerNumber { index: 4, epoch: 0 }, name: 1, ..spans(3, 5) }, 130),
            None,
            "of another trigger"
        );
        assert_eq!(
            (duration(1, 130), duration(u16::MAX, 140), duration(2, 150)),
            (Some(30), Some(20), Some(40))
        );
        assert_eq!((duration(1, 160), duration(2, 160)), (None, None));
    }

    #[test]
    fn begins_of_no_interest_have_their_ends_and_give_way_unnoticed() {
        let _alone = ALONE.lock();
        begin(4, 5, 100, b"outer", 50);
        begin(4, 5, 110, b"inner", NEVER);
        assert_eq!(end(4, 5, 900), None);
        assert_eq!(end(4, 5, 1000).map(|(duration, ..)| duration), Some(900));
        let given_way = (0..40).filter(|number| begin(4, 9, 100 + number, b"", NEVER).is_some()).count();
        assert_eq!(given_way, 0);
        forget(4);
        assert!(entries(spans(4, 9).key()).all(|entry| entry.state() == FREE));
    }

    #[test]
    fn a_span_that_began_under_another_trigger_ends_unnoticed() {
        let _alone = ALONE.lock();
        let next = Spans { trigger: TriggerNumber { index: 3, epoch: 1 }, ..spans(6, 5) };
        begin(6, 5, 100, b"before", 5);
        begin_of(next, 110, b"behind", 5);
        assert_eq!(end_of(next, 120).map(|(duration, ..)| duration), Some(10));
        assert_eq!((end_of(next, 900), end_of(next, 900)), (None, None));
        assert!(entries(next.key()).all(|entry| entry.state() == FREE));
    }

    #[test]
    fn an_entry_that_stays_claimed_is_passed_over() {
        let _alone = ALONE.lock();
        let key = spans(5, 9).key();
        let left = entries(key).next().expect("an entry");
        assert!(left.claim(FREE));
        left.begin.store(0, Ordering::Relaxed);
        let noted = |time| begin(5, 9, time, b"", 0);
        let given_way = (0..40).filter(|number| noted(100 + number) == Some(5)).count();
        assert_eq!(given_way, 40 - (PROBES - 1));
        assert_eq!(end(5, 9, 1000).map(|(duration, ..)| duration), Some(1000 - 139), "the newest");
        assert!(entries(key).skip(1).all(|entry| entry.claim(entry.state())));
        assert_eq!((noted(2000), end(5, 9, 3000)), (Some(5), None), "counted where none is left");
        forget_all();
    }
}
