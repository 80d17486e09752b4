//! The rules in the control file: a text that the session replaces while agents read it.
//!
//! A generation tells whether the text was whole: it is odd while the text is replaced, and
//! different afterwards. Generation and length are the two halves of one word.

use std::sync::atomic::Ordering;

use tompion_layout::control::{OFFSET_GENERATION, OFFSET_RULES_SEEN, RULES, RULES_SIZE};

use crate::memory::{Fault, Part, SharedMap, fence, has};

/// Maximum number of attempts to read a text that is being replaced. Between two, the reader gives
/// up its CPU.
pub(crate) const MAX_ATTEMPTS: u32 = 1000;
const LENGTH_SHIFT: u32 = 32;

/// Places of the two words and of the text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    pub(crate) word: usize,
    pub(crate) text: usize,
    pub(crate) size: usize,
}

const PLACES: Places = Places { word: OFFSET_GENERATION, text: RULES as usize, size: RULES_SIZE as usize };

/// Rules that were read whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RulesText {
    /// The text. Nothing of it was checked.
    pub text: Vec<u8>,
    /// Its generation.
    pub generation: u32,
}

/// Replaces the rules, cut to the space that there is for them. Only the session does that, and one
/// thread of it.
pub fn publish(control: &SharedMap, text: &[u8]) {
    publish_at(&Part::of(control, 0, control.len()), PLACES, text, || ());
}

/// Replaces a text. What `beside` stores, with any ordering, belongs to the same generation.
pub(crate) fn publish_at(part: &Part<'_>, places: Places, text: &[u8], beside: impl FnOnce()) {
    let text = text.get(..places.size).unwrap_or(text);
    let mut padded = text.to_vec();
    padded.resize(text.len().next_multiple_of(8), 0);
    // Ordering: only this thread changes the word.
    let old = part.load(places.word, Ordering::Relaxed);
    part.store(places.word, old | 1, Ordering::Relaxed);
    if !has(Fault::NoReleaseFence) {
        // Ordering: pairs with the acquire fence in `read_at`: a reader that sees a byte of the new
        // text finds the odd generation, or a later one.
        fence(Ordering::Release);
    }
    beside();
    // SAFETY: the source is a live local; its length was cut to the space, which is a multiple of
    // 8.
    unsafe { part.copy_in(places.text, padded.as_ptr(), padded.len()) };
    let generation = (old as u32 & !1).wrapping_add(2);
    let word = u64::from(generation) | (text.len() as u64) << LENGTH_SHIFT;
    // Ordering: release, pairs with the acquire load in `read_at`: a reader that sees the
    // generation sees the text.
    part.store(places.word, word, Ordering::Release);
}

/// Reads the rules. `None` if they never stood still, or can't be: then there are none to go by.
pub fn read(control: &SharedMap) -> Option<RulesText> {
    let part = Part::of(control, 0, control.len());
    (0..MAX_ATTEMPTS).find_map(|attempt| {
        if attempt != 0 {
            std::thread::yield_now();
        }
        read_at(&part, PLACES)
    })
}

/// Reads the rules once. `None` if they were replaced meanwhile.
pub(crate) fn read_at(part: &Part<'_>, places: Places) -> Option<RulesText> {
    read_with(part, places, || ()).map(|(text, ())| text)
}

/// Reads a text once, with what `beside` loads, with any ordering, of the same generation.
pub(crate) fn read_with<T>(
    part: &Part<'_>,
    places: Places,
    beside: impl FnOnce() -> T,
) -> Option<(RulesText, T)> {
    // Ordering: pairs with the release store in `publish_at`.
    let before = part.load(places.word, Ordering::Acquire);
    let (generation, len) = (before as u32, (before >> LENGTH_SHIFT) as usize);
    if generation % 2 != 0 || len > places.size {
        return None;
    }
    let mut text = vec![0; len.next_multiple_of(8)];
    part.copy_out(places.text, &mut text);
    let loaded = beside();
    // Ordering: pairs with the release fence in `publish_at`.
    fence(Ordering::Acquire);
    let after = part.load(places.word, Ordering::Relaxed);
    text.truncate(len);
    (after == before || has(Fault::NoSecondLook)).then_some((RulesText { text, generation }, loaded))
}

/// Says that the process goes by the rules of a generation.
pub fn acknowledge(control: &SharedMap, generation: u32) {
    let part = Part::of(control, 0, control.len());
    // Ordering: release, pairs with the acquire load in `is_acknowledged`: sites are enabled by the
    // rules before this.
    part.store(OFFSET_RULES_SEEN, generation.into(), Ordering::Release);
}

/// Whether the process has said that it goes by the newest rules.
pub fn is_acknowledged(control: &SharedMap) -> bool {
    let part = Part::of(control, 0, control.len());
    // Ordering: the session's own word; the process's pairs with the release store in
    // `acknowledge`.
    let newest = part.load(OFFSET_GENERATION, Ordering::Relaxed) as u32;
    part.load(OFFSET_RULES_SEEN, Ordering::Acquire) == u64::from(newest)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::os::fd::AsFd as _;

    use tompion_layout::control;
    use tompion_os::create_memfd;

    use super::*;

    fn control() -> SharedMap {
        let file = create_memfd(c"rules", control::FILE_SIZE).expect("a file");
        SharedMap::new(file.as_fd(), control::FILE_SIZE).expect("a mapping")
    }

    #[test]
    fn rules_are_replaced_and_acknowledged() {
        let map = control();
        for (text, generation) in [(&b"+14 *\n"[..], 2), (b"+6 db:*\n-14 db:noise\n", 4), (b"", 6)] {
            publish(&map, text);
            assert_eq!(read(&map), Some(RulesText { text: text.to_vec(), generation }));
            assert!(!is_acknowledged(&map));
            acknowledge(&map, generation);
            assert!(is_acknowledged(&map));
        }
        publish(&map, &vec![b'x'; RULES_SIZE as usize + 1]);
        assert_eq!(read(&map).map(|rules| rules.text.len()), Some(RULES_SIZE as usize));
    }

    #[test]
    fn rules_that_can_not_be_are_not_read() {
        let map = control();
        // A length beyond the space, and a text whose replacement never ends.
        for word in [u64::from(u32::MAX) << LENGTH_SHIFT | 2, 4 << LENGTH_SHIFT | 3] {
            map.word(OFFSET_GENERATION).store(word, Ordering::Relaxed);
            assert_eq!(read(&map), None);
        }
    }
}
