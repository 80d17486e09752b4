//! Tables from event numbers to what the event path needs for these events. They are read without a
//! lock; what was put into them is never freed, because a thread may use it at any time.

use std::{
    ptr,
    sync::atomic::{AtomicPtr, Ordering},
};

/// Entries of 256 events each.
type Chunk<T> = [AtomicPtr<T>; 256];

/// Entries of all event numbers.
pub struct Table<T: 'static>([AtomicPtr<Chunk<T>>; 256]);

impl<T: Sync> Table<T> {
    /// A table without entries.
    pub const fn new() -> Self {
        Self([const { AtomicPtr::new(ptr::null_mut()) }; 256])
    }

    /// Replaces the entry of an event. The caller holds the registry's lock.
    pub fn set(&self, number: u32, entry: Option<&'static T>) {
        let Some(place) = self.0.get(number as usize / 256) else { return };
        // Ordering: only changed under the registry's lock.
        let mut chunk = place.load(Ordering::Relaxed);
        if chunk.is_null() {
            if entry.is_none() {
                return;
            }
            chunk = Box::leak(Box::new([const { AtomicPtr::new(ptr::null_mut()) }; 256]));
            // Ordering: pairs with the acquire load in `get`.
            place.store(chunk, Ordering::Release);
        }
        let entry = entry.map_or(ptr::null_mut(), |entry| ptr::from_ref(entry).cast_mut());
        // SAFETY: chunks are never freed.
        let chunk = unsafe { &*chunk };
        // Ordering: pairs with the acquire load in `get`.
        chunk[number as usize % 256].store(entry, Ordering::Release);
    }

    /// Removes all entries. The caller holds the registry's lock.
    pub fn clear(&self) {
        // Ordering: only changed under the registry's lock.
        let chunks = self.0.iter().map(|place| place.load(Ordering::Relaxed));
        // SAFETY: null, or a chunk that was leaked.
        for chunk in chunks.filter_map(|chunk| unsafe { chunk.as_ref() }) {
            // Ordering: a thread that still finds an entry can use it.
            chunk.iter().for_each(|entry| entry.store(ptr::null_mut(), Ordering::Relaxed));
        }
    }

    /// All entries. The caller holds the registry's lock.
    pub fn iter(&self) -> impl Iterator<Item = &'static T> {
        // Ordering: only changed under the registry's lock.
        let chunks = self.0.iter().map(|place| place.load(Ordering::Relaxed));
        // SAFETY: null, or a chunk that was leaked.
        let chunks = chunks.filter_map(|chunk| unsafe { chunk.as_ref() });
        // SAFETY: null, or an entry that lives for ever.
        chunks.flatten().filter_map(|entry| unsafe { entry.load(Ordering::Relaxed).as_ref() })
    }

    /// The entry of an event. Safe in signal handlers.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&'static T> {
        let place = self.0.get(number as usize / 256)?;
        // Ordering: pairs with the release store in `set`.
        let chunk = place.load(Ordering::Acquire);
        // SAFETY: null, or a chunk that was leaked.
        let chunk = unsafe { chunk.as_ref()? };
        // Ordering: pairs with the release store in `set`.
        let entry = chunk[number as usize % 256].load(Ordering::Acquire);
        // SAFETY: null, or an entry that lives for ever.
        unsafe { entry.as_ref() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_replaced_and_cleared() {
        static TABLE: Table<u32> = Table::new();
        assert_eq!(TABLE.get(70_000), None);
        TABLE.set(70_000, Some(&1));
        TABLE.set(300, None);
        TABLE.set(300, Some(&1));
        TABLE.set(301, Some(&2));
        TABLE.set(300, Some(&3));
        assert_eq!([300, 301, 302, 5].map(|number| TABLE.get(number)), [Some(&3), Some(&2), None, None]);
        TABLE.set(301, None);
        assert_eq!((TABLE.get(300), TABLE.get(301)), (Some(&3), None));
        assert_eq!(TABLE.iter().collect::<Vec<_>>(), [&3]);
        TABLE.clear();
        assert_eq!((TABLE.get(300), TABLE.get(70_000)), (None, None));
    }
}
