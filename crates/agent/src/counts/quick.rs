//! The shortest way of an event to its cell, where one aggregation counts it.
//!
//! A key that is built here is compared with the slot that is looked at first. Where another key is
//! there, or none yet, the event takes the long way.

use std::{
    ptr,
    sync::atomic::{AtomicPtr, Ordering},
};

use tompion_filter::{Encoding, Scalar, Tails};
use tompion_layout::counts::{self as layout, AggregationPlace, KEY_SLOT, KIND_NATURAL, KIND_TEXT};
use tompion_ring::{
    counts::{CountArea, CountSlot},
    producer::Tail,
};

use super::{
    plan::{self, Change, Plan, Source},
    text::PlainText,
};
use crate::filters::TailBytes;

/// Unsigned integer of the fixed part: bits of eight bytes that are loaded at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Word {
    /// Offset of these.
    offset: usize,
    shift: u32,
    mask: u64,
    /// Smallest size of an image that has the integer, and can be read there.
    min_size: usize,
}

impl Word {
    fn of(source: &Source) -> Option<Self> {
        let &Source::Fixed(offset, Scalar { size, encoding, network }) = source else { return None };
        if encoding != Encoding::Unsigned || network {
            return None;
        }
        let size = usize::from(size);
        let mask = u64::MAX >> (64 - 8 * size);
        // The image is readable up to the next multiple of 8.
        Some(match offset % 8 + size <= 8 {
            true => {
                let shift = 8 * (offset % 8) as u32;
                Self { offset: offset & !7, shift, mask, min_size: offset + size }
            }
            false => {
                let min_size = (offset + size).max(offset.div_ceil(8) * 8 + 1);
                Self { offset, shift: 0, mask, min_size }
            }
        })
    }

    /// Loads the integer.
    ///
    /// # Safety
    /// `image` is readable for `size` bytes, rounded up to a multiple of 8.
    #[inline(always)]
    unsafe fn load(&self, image: *const u8, size: usize) -> Option<u64> {
        if size < self.min_size {
            return None;
        }
        // SAFETY: eight bytes of the image, as was just checked.
        let bytes = unsafe { image.add(self.offset).cast::<u64>().read_unaligned() };
        Some(u64::from_le(bytes) >> self.shift & self.mask)
    }
}

/// Parts of a key that can be built here.
#[derive(Clone, Copy, Debug)]
enum Parts {
    None,
    One(Word),
    Two(Word, Word),
    /// A text, by the number of its tail.
    Text(usize),
}

impl Parts {
    fn of(keys: &[Source]) -> Option<Self> {
        Some(match keys {
            [] => Self::None,
            [Source::Text(tail)] => Self::Text(*tail),
            [key] => Self::One(Word::of(key)?),
            [first, second] => Self::Two(Word::of(first)?, Word::of(second)?),
            _ => return None,
        })
    }
}

/// Key of a kind that the shortest way knows, with its table.
#[derive(Clone, Copy, Debug)]
pub struct QuickKey {
    parts: Parts,
    /// Offset of the table, and the bits that the offset of a slot in it can have.
    keys: u64,
    slot_mask: usize,
}

/// An event: its image, which is readable up to the next multiple of 8 bytes, and its tails.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a> {
    /// First byte of the image.
    pub image: *const u8,
    /// Its size.
    pub size: usize,
    /// Fields of variable size, and arrays.
    pub tails: &'a [Tail],
}

impl QuickKey {
    /// Returns the key of these sources, if it is of such a kind.
    pub fn of(sources: &[Source], place: &AggregationPlace) -> Option<Self> {
        let slot_mask = (place.size.slots as usize - 1) * KEY_SLOT;
        Some(Self { parts: Parts::of(sources)?, keys: place.keys, slot_mask })
    }

    /// Returns the offset of the key's slot in its table, if it is where it is looked for first.
    ///
    /// # Safety
    /// The event's image and tails are readable. The area is one of the layout that the key is for.
    #[inline(always)]
    pub unsafe fn first_slot(&self, area: &CountArea, event: Fields<'_>) -> Option<usize> {
        const ONE: u64 = KIND_NATURAL as u64;
        const TWO: u64 = ONE | ONE << 16;
        // SAFETY: as the caller promises; the table is where this layout has it.
        unsafe {
            let word = |word: &Word| word.load(event.image, event.size);
            match &self.parts {
                Parts::None => Some(0),
                Parts::One(only) => {
                    area.first_slot(self.keys, self.slot_mask, ONE, [word(only)?].into_iter())
                }
                Parts::Two(first, second) => {
                    let words = [word(first)?, word(second)?];
                    area.first_slot(self.keys, self.slot_mask, TWO, words.into_iter())
                }
                Parts::Text(tail) => self.slot_of_text(area, TailBytes(event.tails).tail(*tail)?),
            }
        }
    }

    /// The same for a text, unless it is a rare one.
    ///
    /// # Safety
    /// As [`QuickKey::first_slot`].
    #[inline(never)]
    unsafe fn slot_of_text(&self, area: &CountArea, text: &[u8]) -> Option<usize> {
        let text = PlainText::<{ layout::part_words(1) }>::of(text)?;
        let shape = u64::from(KIND_TEXT) | (text.len as u64) << 8;
        // SAFETY: as the caller promises.
        unsafe { area.first_slot(self.keys, self.slot_mask, shape, text.words()) }
    }
}

/// The shortest way of an event to its cell.
#[derive(Debug)]
pub struct Quick {
    slot: &'static CountSlot,
    /// The slot's memory: always one of the same layout.
    area: AtomicPtr<CountArea>,
    key: QuickKey,
    cells: u64,
    plan: &'static Plan,
}

impl Quick {
    /// The shortest way of a plan in a recording's slot, if its key is of a kind that is built
    /// here.
    pub fn new(plan: &'static Plan, slot: &'static CountSlot) -> Option<Self> {
        let key = *plan.quick_key()?;
        Some(Self { slot, area: AtomicPtr::new(ptr::null_mut()), key, cells: plan.place().cells, plan })
    }

    /// Counts in this memory of the slot from now on.
    pub fn set_area(&self, area: &'static CountArea) {
        // Ordering: pairs with the acquire load in `count`.
        self.area.store(ptr::from_ref(area).cast_mut(), Ordering::Release);
    }

    /// Counts an event, if its key is where it is looked for first. False if it has to take the
    /// long way.
    ///
    /// # Safety
    /// The event's image and tails are readable. The calling thread is one of this process's own,
    /// with this id.
    #[inline(always)]
    pub unsafe fn count(&self, tid: u32, event: Fields<'_>) -> bool {
        // SAFETY: an area that lives for ever, set before the event could come here.
        // Ordering: pairs with the release store in `set_area`.
        let area: &'static CountArea = unsafe { &*self.area.load(Ordering::Acquire) };
        if let Some(filter) = self.plan.filter() {
            // SAFETY: as the caller promises.
            let image = unsafe { std::slice::from_raw_parts(event.image, event.size) };
            if !filter.is_true(tid, image, event.tails) {
                return true;
            }
        }
        // SAFETY: as the caller promises; the area is one of this layout.
        let Some(slot) = (unsafe { self.key.first_slot(area, event) }) else { return false };
        match self.plan.change() {
            Change::Count => {
                let cell = self.cells + (slot / (KEY_SLOT / layout::CELL)) as u64;
                // SAFETY: the cell is one of the aggregation's, which has one for each key.
                unsafe { self.slot.increment(area, cell, self.plan.aggregation()) };
            }
            // SAFETY: as the caller promises.
            change => unsafe { self.change(change, area, slot, event) },
        }
        true
    }

    /// Changes the value of a key.
    ///
    /// # Safety
    /// As [`Quick::count`]; the slot is one of the aggregation's table.
    #[inline(always)]
    unsafe fn change(&self, change: &Change, area: &'static CountArea, slot: usize, event: Fields<'_>) {
        let cell = self.plan.place().cell((slot / KEY_SLOT) as u32);
        // SAFETY: as the caller promises; the cell is one of the aggregation's.
        let is_counted = unsafe {
            let image = std::slice::from_raw_parts(event.image, event.size);
            plan::update(change, (self.slot, area), cell, (image, event.tails))
        };
        if !is_counted {
            area.lose(self.plan.aggregation());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_loaded_within_the_image() {
        for size in [1, 2, 4, 8usize] {
            for offset in 0..24 {
                let scalar = Scalar { size: size as u8, encoding: Encoding::Unsigned, network: false };
                let word = Word::of(&Source::Fixed(offset, scalar)).expect("a plain integer");
                for image_len in 0..40usize {
                    // As large as an event's: reading more would be an error.
                    let image: Vec<u8> = (1..=image_len.next_multiple_of(8) as u8).collect();
                    let readable = image.len();
                    // SAFETY: as many bytes as it says, rounded up.
                    let found = unsafe { word.load(image.as_ptr(), image_len) };
                    let Some(found) = found else {
                        let is_at_end = offset + size > image_len || offset + 8 > readable;
                        assert!(is_at_end, "{size} bytes at {offset} of {image_len}");
                        continue;
                    };
                    assert!(offset + size <= image_len, "{size} bytes at {offset} of {image_len}");
                    let bytes = image[offset..offset + size].iter().rev();
                    let expected = bytes.fold(0, |word, byte| word << 8 | u64::from(*byte));
                    assert_eq!(found, expected, "{size} bytes at {offset} of {image_len}");
                    assert!(word.offset + 8 <= readable, "{size} bytes at {offset} of {image_len}");
                }
            }
        }
    }

    #[test]
    fn small_integers_at_the_end_are_loaded() {
        let scalar = Scalar { size: 4, encoding: Encoding::Unsigned, network: false };
        let word = Word::of(&Source::Fixed(4, scalar)).expect("a plain integer");
        let image = [0u32, 7];
        // SAFETY: eight bytes.
        assert_eq!(unsafe { word.load(image.as_ptr().cast(), 8) }, Some(7));
    }
}
