//! Table of the keys by which events are counted: open addressing in shared memory, without locks.
//!
//! ```text
//!            claim (CAS)             words, then READY (release)
//!   EMPTY ────────────────► CLAIMED ─────────────────────────────► READY
//! ```
//!
//! - A slot that is READY never changes again. So a thread that finds its key there may use the
//!   slot's cells for ever.
//! - A thread that finds a slot CLAIMED does not wait: it may be the handler of a signal that has
//!   interrupted the thread which fills the slot. It passes on, and may add the same key a second
//!   time. Readers add up the cells of equal keys.
//! - A process that is killed leaves CLAIMED slots behind. No event was counted in them: a thread
//!   counts only in slots that it has seen READY, or made so.
//! - The number of slots that are looked at is bounded. Where none is free, events are counted in
//!   the slot that is for all other keys.

use std::sync::atomic::Ordering;

use tompion_layout::counts::{CLAIMED, EMPTY, KEY_SLOT, KEY_WORDS, MAX_PROBES, READY, SHAPE, STATE, WORDS};

use crate::memory::Part;

/// Key of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Kinds and lengths of the parts, see [`tompion_layout::counts`].
    pub shape: u64,
    /// Bytes of the parts; those that are not used are zero.
    pub words: [u64; KEY_WORDS],
    /// Number of words that can differ from zero.
    pub used: usize,
}

impl Key {
    /// A key without parts.
    pub const EMPTY: Self = Self { shape: 0, words: [0; KEY_WORDS], used: 0 };

    /// Hash of the words: its lower half goes into the slot, its upper half says where to look.
    /// Small numbers differ in both.
    fn hash(&self) -> u64 {
        hash(self.shape, self.used_words())
    }

    #[inline(always)]
    fn used_words(&self) -> impl Iterator<Item = u64> {
        self.words.iter().take(self.used).copied()
    }
}

#[inline(always)]
fn hash(shape: u64, words: impl Iterator<Item = u64>) -> u64 {
    words.fold(shape, mix)
}

/// Mixes a word into a hash. The upper half of the product is folded into the lower one: a lower
/// half alone has nothing of the word's last bytes in its own lower bits.
#[inline(always)]
const fn mix(hash: u64, word: u64) -> u64 {
    let product = (hash.rotate_left(29) ^ word) as u128 * 0x9e37_79b9_7f4a_7c15;
    product as u64 ^ (product >> 64) as u64
}

/// The slot that [`find`] looks at first, if it has the key of these words, which are at most
/// [`KEY_WORDS`]. Returns its offset in the table; `mask` has the bits that such an offset can
/// have.
#[inline(always)]
pub(crate) fn first(
    table: &Part<'_>,
    mask: usize,
    shape: u64,
    words: impl Iterator<Item = u64> + Clone,
) -> Option<usize> {
    let hash = hash(shape, words.clone());
    let place = (hash >> (32 - KEY_SLOT.trailing_zeros())) as usize & mask;
    // Ordering: pairs with the release store in `add`; the words don't change behind it.
    let is_ready = table.load(place + STATE, Ordering::Acquire) == (hash << 32 | READY);
    (is_ready && has(table, place, shape, words)).then_some(place)
}

/// Returns the slot of a key in a table of this many slots, a power of two, and adds it if it is
/// not there. None if there is no room.
///
/// The table is as large as that.
#[inline(never)]
pub(crate) fn find(table: &Part<'_>, slots: u32, key: &Key) -> Option<u32> {
    let hash = key.hash();
    let state = |state: u64| hash << 32 | state;
    let mask = slots - 1;
    let mut slot = (hash >> 32) as u32 & mask;
    for step in 1..=slots.min(MAX_PROBES) {
        let place = slot as usize * KEY_SLOT;
        // Ordering: pairs with the release store in `add`: a thread that sees READY sees the key.
        let found = table.load(place + STATE, Ordering::Acquire);
        if found == state(READY) && has(table, place, key.shape, key.used_words())
            || found == EMPTY && add(table, place, key, state)
        {
            return Some(slot);
        }
        // Steps that grow: keys of neighbouring slots part. They come to every slot of a power of
        // two.
        slot = (slot + step) & mask;
    }
    None
}

#[inline(always)]
fn has(table: &Part<'_>, place: usize, shape: u64, words: impl Iterator<Item = u64>) -> bool {
    // Ordering: the words don't change behind the state that was seen.
    let load = |offset| table.load(place + offset, Ordering::Relaxed);
    load(SHAPE) == shape
        && words.enumerate().fold(true, |same, (index, word)| same & (load(WORDS + index * 8) == word))
}

/// Adds the key to a slot that was empty. False if another thread has been quicker, and has not
/// just added the same key.
#[cold]
#[inline(never)]
fn add(table: &Part<'_>, place: usize, key: &Key, state: impl Fn(u64) -> u64) -> bool {
    if table.claim(place + STATE, state(CLAIMED)).is_err() {
        // Ordering: as in `find`.
        return table.load(place + STATE, Ordering::Acquire) == state(READY)
            && has(table, place, key.shape, key.used_words());
    }
    // Ordering: the words are seen by the state that is stored behind them.
    table.store(place + SHAPE, key.shape, Ordering::Relaxed);
    for (index, word) in key.words.iter().enumerate() {
        table.store(place + WORDS + index * 8, *word, Ordering::Relaxed);
    }
    // Ordering: pairs with the acquire loads in `find` and `add`, and with the session's.
    table.store(place + STATE, state(READY), Ordering::Release);
    true
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Slots for 1,024 keys.
    const SLOTS: u32 = 2048;

    fn key(words: &[u64]) -> Key {
        let mut all = [0; KEY_WORDS];
        all[..words.len()].copy_from_slice(words);
        Key { shape: 7, words: all, used: words.len() }
    }

    fn key_of_text(text: &str) -> Key {
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        key(&text.as_bytes().chunks(8).map(word).collect::<Vec<_>>())
    }

    /// Number of slots that keys get.
    fn slots_of(keys: impl Iterator<Item = Key>) -> usize {
        let mut memory = vec![0u64; SLOTS as usize * KEY_SLOT / 8];
        // SAFETY: memory of that size, which outlives the table.
        let table = unsafe { Part::new(memory.as_mut_ptr().cast(), SLOTS as usize * KEY_SLOT) };
        keys.filter_map(|key| find(&table, SLOTS, &key)).collect::<BTreeSet<_>>().len()
    }

    #[test]
    fn keys_that_differ_anywhere_have_room_up_to_the_limit() {
        let words: [fn(u64) -> u64; 10] = [
            |i| i,
            |i| i << 16,
            |i| i << 32,
            |i| i << 48,
            |i| i << 54,
            |i| i * 1000,
            |i| i * 4096,
            |i| 0x7f00_0000_1000 + i * 64,
            |i| !i,
            |i| (i as f64).to_bits(),
        ];
        for (family, word) in words.into_iter().enumerate() {
            assert_eq!(slots_of((0..1024).map(|i| key(&[word(i)]))), 1024, "words {family}");
            assert_eq!(slots_of((0..1024).map(|i| key(&[5, word(i)]))), 1024, "second words {family}");
            let pairs = (0..1024).map(|i| key(&[word(i % 32), word(i / 32)]));
            assert_eq!(slots_of(pairs), 1024, "pairs {family}");
        }
        let texts: [fn(u64) -> String; 6] = [
            |i| format!("{i}"),
            |i| format!("user-{i:03}"),
            |i| format!("user-{i:06}"),
            |i| format!("/api/v1/items/{i:02}"),
            |i| format!("/api/v1/items/{i:04}"),
            |i| format!("GET /orders/{i}/lines"),
        ];
        for (family, text) in texts.into_iter().enumerate() {
            assert_eq!(slots_of((0..1024).map(|i| key_of_text(&text(i)))), 1024, "texts {family}");
        }
    }
}

/// Loom's tests: their names begin as those in `loom_tests.rs`.
#[cfg(all(test, loom))]
mod loom_tests {
    use loom::thread;

    use super::*;
    use crate::memory::SharedMap;

    fn key(number: u64) -> Key {
        let mut words = [0; KEY_WORDS];
        (words[0], words[KEY_WORDS - 1]) = (number, !number);
        Key { shape: 7, words, used: KEY_WORDS }
    }

    fn find_in(map: &SharedMap, slots: u32, key: &Key) -> Option<u32> {
        find(&Part::of(map, 0, map.len()), slots, key)
    }

    /// Keys that are READY, as a reader sees them.
    fn keys_in(map: &SharedMap, slots: u32) -> Vec<u64> {
        let table = Part::of(map, 0, map.len());
        let ready = |slot: &usize| table.load(slot * KEY_SLOT, Ordering::Acquire) as u32 == READY as u32;
        let word = |slot, index| table.load(slot * KEY_SLOT + WORDS + index * 8, Ordering::Relaxed);
        let slots = (0..slots as usize).filter(ready);
        slots
            .map(|slot| {
                assert_eq!(word(slot, KEY_WORDS - 1), !word(slot, 0), "a key in parts");
                word(slot, 0)
            })
            .collect()
    }

    /// Two threads that find the same key, and a reader.
    fn explore() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(|| {
            let map = SharedMap::for_words(4 * KEY_SLOT);
            let threads = [[1], [1]].map(|numbers| {
                let map = map.clone();
                thread::spawn(move || {
                    for number in numbers {
                        let slot = find_in(&map, 4, &key(number)).expect("room");
                        // Another slot may have the key as well, but this one has it for ever.
                        let table = Part::of(&map, 0, map.len());
                        let place = slot as usize * KEY_SLOT;
                        assert!(
                            has(&table, place, key(number).shape, key(number).used_words()),
                            "a slot with another key"
                        );
                    }
                })
            });
            assert!(keys_in(&map, 4).iter().all(|key| *key == 1));
            threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
            let mut keys = keys_in(&map, 4);
            assert!((1..=2).contains(&keys.len()), "{keys:?}");
            keys.dedup();
            assert_eq!(keys, [1]);
        });
    }

    #[test]
    fn threads_that_add_the_same_keys_find_them_whole() {
        explore();
    }
}
