//! Model of memory that loom explores.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicU64 as Counter, Ordering},
    },
};

use loom::sync::atomic::AtomicU64;
use tompion_layout::ring;

use super::{Clock, Fault, Moment};

pub(crate) use loom::sync::atomic::fence;

thread_local! {
    static FAULT: Cell<Option<Fault>> = const { Cell::new(None) };
}

/// Gives the code of all models that this thread explores from now on a mistake, or takes it back.
pub fn break_by(fault: Option<Fault>) {
    FAULT.set(fault);
}

/// Whether the code has this mistake. (All threads of a model are coroutines of one thread.)
pub(crate) fn has(fault: Fault) -> bool {
    FAULT.get() == Some(fault)
}

fn released(ordering: Ordering) -> Ordering {
    if ordering == Ordering::Release && has(Fault::NoRelease) { Ordering::Relaxed } else { ordering }
}

/// The words of a mapping. `write` and `events` of a ring are one of loom's words, since they are
/// changed at once.
#[derive(Debug)]
struct Words {
    /// None for counters.
    words: Vec<Option<AtomicU64>>,
    /// Losses: nothing depends on their order.
    counters: Vec<Counter>,
    clock: AtomicU64,
    /// For each word, loom remembers only the last thread that used it. It doesn't try the case
    /// that another thread moved the position before a second one looked, when a third has looked
    /// since. This word is never only looked at.
    turn: AtomicU64,
}

/// A mapping of one ring, or of a list of kept events.
#[derive(Clone, Debug)]
pub struct SharedMap(Arc<Words>);

const EVENTS_SHIFT: u32 = 32;

impl SharedMap {
    /// A mapping for one ring of a length in bytes, all zeros.
    pub fn for_ring(len: usize) -> Self {
        Self::new(len, |offset| offset == ring::WRITE || offset == ring::CONSUMED || offset >= ring::DATA)
    }

    /// A mapping of plain words.
    pub fn for_words(len: usize) -> Self {
        Self::new(len, |_| true)
    }

    fn new(len: usize, is_word: impl Fn(usize) -> bool) -> Self {
        let words = (0..len).step_by(8).map(|offset| is_word(offset).then(|| AtomicU64::new(0)));
        let counters = (0..len / 8).map(|_| Counter::new(0)).collect();
        let (clock, turn) = (AtomicU64::new(1), AtomicU64::new(0));
        Self(Arc::new(Words { words: words.collect(), counters, clock, turn }))
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.0.words.len() * 8
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.words.is_empty()
    }

    /// Does what a restartable section's last instruction does: says that everything below a
    /// position is there.
    pub fn publish(&self, write: u64, events: u64) {
        self.whole().take_turn();
        self.whole().store(ring::WRITE, write | events << EVENTS_SHIFT, Ordering::Release);
    }

    /// Stores a word as a restartable section does before its last instruction. (On x86-64 each
    /// store is seen behind those before it.)
    pub fn put(&self, offset: usize, value: u64) {
        self.whole().store(offset, value, Ordering::Release);
    }

    /// Reads a word.
    pub fn get(&self, offset: usize, ordering: Ordering) -> u64 {
        self.whole().load(offset, ordering)
    }

    pub(crate) fn whole(&self) -> Part<'_> {
        Part::of(self, 0, self.len())
    }
}

/// A part of a mapping.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    words: &'a Words,
    offset: usize,
}

impl<'a> Part<'a> {
    pub(crate) fn of(map: &'a SharedMap, offset: usize, len: usize) -> Self {
        assert!(offset + len <= map.len());
        Self { words: &map.0, offset }
    }

    pub(crate) fn from(&self, offset: usize, _len: usize) -> Self {
        Self { words: self.words, offset: self.offset + offset }
    }

    fn index(&self, offset: usize) -> usize {
        assert!(offset % 8 == 0);
        (self.offset + offset) / 8
    }

    fn word(&self, offset: usize) -> Option<&AtomicU64> {
        self.words.words[self.index(offset)].as_ref()
    }

    fn take_turn(&self) {
        // Ordering: relaxed, so that no thread sees more by it.
        self.words.turn.fetch_add(1, Ordering::Relaxed);
    }

    fn counter(&self, offset: usize) -> &Counter {
        &self.words.counters[self.index(offset)]
    }

    pub(crate) fn load(&self, offset: usize, ordering: Ordering) -> u64 {
        match self.word(offset) {
            Some(word) => word.load(ordering),
            None => self.counter(offset).load(ordering),
        }
    }

    pub(crate) fn store(&self, offset: usize, value: u64, ordering: Ordering) {
        match self.word(offset) {
            Some(word) => word.store(value, released(ordering)),
            None => self.counter(offset).store(value, ordering),
        }
    }

    pub(crate) fn add(&self, offset: usize, value: u64, ordering: Ordering) {
        match self.word(offset) {
            Some(word) => _ = word.fetch_add(value, released(ordering)),
            None => _ = self.counter(offset).fetch_add(value, ordering),
        }
    }

    pub(crate) fn replace(&self, offset: usize, old: u64, new: u64) -> bool {
        let word = self.word(offset).expect("a word");
        word.compare_exchange(old, new, released(Ordering::Release), Ordering::Relaxed).is_ok()
    }

    /// Not only a load: of each word, loom remembers only the last use. Behind a load by the same
    /// thread it would not try the change before what other threads loaded earlier.
    pub(crate) fn load_to_change(&self, offset: usize) -> u64 {
        // Ordering: relaxed, so that no thread sees more by it.
        self.word(offset).expect("a word").fetch_add(0, Ordering::Relaxed)
    }

    pub(crate) fn exchange(&self, offset: usize, value: u64) {
        self.word(offset).expect("a word").swap(value, released(Ordering::Release));
    }

    pub(crate) fn raise(&self, offset: usize, value: u64, ordering: Ordering) {
        if let Some(word) = self.word(offset) {
            word.fetch_max(value, ordering);
        }
    }

    pub(crate) fn claim(&self, offset: usize, value: u64) -> Result<u64, u64> {
        let word = self.word(offset).expect("a word");
        word.compare_exchange(0, value, Ordering::Relaxed, Ordering::Relaxed)
    }

    pub(crate) fn claim_behind(&self, offset: usize, value: u64) -> Result<u64, u64> {
        let word = self.word(offset).expect("a word");
        word.compare_exchange(0, value, Ordering::Acquire, Ordering::Relaxed)
    }

    pub(crate) fn appended(&self, ordering: Ordering) -> (u64, u64) {
        self.take_turn();
        let both = self.load(ring::WRITE, ordering);
        (both & ((1 << EVENTS_SHIFT) - 1), both >> EVENTS_SHIFT)
    }

    pub(crate) fn advance(&self, old: (u64, u64), new: (u64, u64)) -> bool {
        let [old, new] = [old, new].map(|(write, events)| write | events << EVENTS_SHIFT);
        let word = self.word(ring::WRITE).expect("a word");
        self.take_turn();
        word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// # Safety
    /// `from` is readable.
    pub(crate) unsafe fn copy_in(&self, offset: usize, from: *const u8, len: usize) {
        assert!(offset % 8 == 0 && len % 8 == 0, "models have whole words only");
        for index in 0..len / 8 {
            // SAFETY: as the caller promises.
            let word = unsafe { from.cast::<u64>().add(index).read_unaligned() };
            self.store(offset + index * 8, word, Ordering::Relaxed);
        }
    }

    /// Copies in the order that hurts most: the last word first.
    pub(crate) fn copy_out(&self, offset: usize, to: &mut [u8]) {
        for (index, bytes) in to.chunks_exact_mut(8).enumerate().rev() {
            bytes.copy_from_slice(&self.load(offset + index * 8, Ordering::Relaxed).to_le_bytes());
        }
    }

    pub(crate) fn copy_out_in_order(&self, offset: usize, to: &mut [u8]) {
        if has(Fault::CopyInAnyOrder) {
            return self.copy_out(offset, to);
        }
        for (index, bytes) in to.chunks_exact_mut(8).enumerate() {
            bytes.copy_from_slice(&self.load(offset + index * 8, Ordering::Acquire).to_le_bytes());
        }
    }
}

/// Time goes on by one with each look. There is one CPU.
pub(crate) fn now(_: Clock, part: &Part<'_>) -> Moment {
    // Ordering: a clock orders nothing itself; it only never goes backwards.
    Moment { time: part.words.clock.fetch_add(1, Ordering::Relaxed), cpu: 0 }
}

pub(crate) fn likely_cpu(_: Clock, _: tompion_os::Processor) -> u32 {
    0
}
