//! Words that one thread replaces while others read all of them in one version.
//!
//! A reader never waits: where the words are being replaced, it finds none. Safe in signal
//! handlers, also in one that interrupts the thread that replaces them.

#[cfg(loom)]
use loom::sync::atomic::AtomicU64;
#[cfg(not(loom))]
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use crate::memory::{Fault, fence, has};

/// Some words, or none.
#[derive(Debug)]
pub struct VersionedWords<const WORDS: usize> {
    /// Number of the version: odd while there are no words. It never comes back.
    version: AtomicU64,
    words: [AtomicU64; WORDS],
}

impl<const WORDS: usize> Default for VersionedWords<WORDS> {
    /// No words.
    fn default() -> Self {
        Self { version: AtomicU64::new(1), words: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

impl<const WORDS: usize> VersionedWords<WORDS> {
    /// Replaces the words. Only one thread at a time does that.
    pub fn set(&self, words: Option<[u64; WORDS]>) {
        // Ordering: only this thread changes the version.
        let odd = self.version.load(Ordering::Relaxed) | 1;
        self.version.store(odd, Ordering::Relaxed);
        let Some(words) = words else { return };
        if !has(Fault::NoReleaseFence) {
            // Ordering: pairs with the acquire fence in `get`: a reader that sees one of the new
            // words finds the odd version, or a later one.
            fence(Ordering::Release);
        }
        for (place, word) in self.words.iter().zip(words) {
            place.store(word, Ordering::Relaxed);
        }
        // Ordering: release, pairs with the acquire load in `get`: a reader that sees the version
        // sees its words, and what the thread did before.
        self.version.store(odd + 1, Ordering::Release);
    }

    /// The words of one version. None if there are none, or they are being replaced.
    #[inline]
    pub fn get(&self) -> Option<[u64; WORDS]> {
        // Ordering: pairs with the release store in `set`.
        let version = self.version.load(Ordering::Acquire);
        if version % 2 != 0 {
            return None;
        }
        // Ordering: of the words: the fence follows.
        let words = std::array::from_fn(|index| self.words[index].load(Ordering::Relaxed));
        // Ordering: pairs with the release fence in `set`.
        fence(Ordering::Acquire);
        let is_same = self.version.load(Ordering::Relaxed) == version;
        (is_same || has(Fault::NoSecondLook)).then_some(words)
    }

    /// Whether there are words, or were a moment ago.
    #[inline]
    pub fn is_set(&self) -> bool {
        // Ordering: a hint.
        self.version.load(Ordering::Relaxed) % 2 == 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn words_are_replaced_and_removed() {
        let words = VersionedWords::<2>::default();
        assert_eq!((words.get(), words.is_set()), (None, false));
        for value in [[1, 2], [3, 4]] {
            words.set(Some(value));
            assert_eq!((words.get(), words.is_set()), (Some(value), true));
        }
        for _ in 0..2 {
            words.set(None);
            assert_eq!((words.get(), words.is_set()), (None, false));
        }
        words.set(Some([5, 6]));
        assert_eq!(words.get(), Some([5, 6]));
    }
}
