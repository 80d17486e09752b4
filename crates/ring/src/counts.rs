//! Producer's side of events that are counted in place: cells of each CPU, added to by restartable
//! sections.
//!
//! A cell is a pair of words: how many events, and a value of them. A section replaces both by one
//! store, or adds one to the first. So at any kill, signal or move to another CPU an event is
//! counted once, with its value, or not yet at all. A thread without restartable sections, or one
//! that is restarted too often, exchanges the pair of a cell in the last area, which no section
//! touches.
//!
//! Memory that was counted in is never unmapped, so nothing has to know whether a thread is about
//! to use it. A section counts only while the area stands in its recording's slot, which a fork
//! wipes: a child never counts for its parent.

use std::{
    ptr,
    sync::atomic::{AtomicPtr, AtomicU64, Ordering},
};

use tompion_layout::counts::{AggregationPlace, CountGeometry, KEY_SLOT, OFFSET_LOST, OVERFLOWS};
use tompion_os::RseqArea;

pub use crate::keys::Key;
use crate::{keys, memory::Part, section};

/// Maximum number of times that a CPU's cell may change under an exchange.
const MAX_EXCHANGES: usize = 64;
/// The same of a cell for all CPUs, before the event is counted as lost.
const MAX_SHARED_EXCHANGES: usize = 10_000;

/// Place of a recording's count memory; zeros: there is none. Lives in memory that a fork wipes.
#[repr(C)]
#[derive(Debug, Default)]
pub struct CountSlot {
    area: AtomicPtr<CountArea>,
}

/// Count memory of one recording. Lives for ever.
#[repr(C)]
#[derive(Debug)]
pub struct CountArea {
    /// CPUs that have areas of their own; 0 in a process without restartable sections.
    pub(crate) cpus: u32,
    pub(crate) stride: u64,
    /// The first CPU's area.
    pub(crate) first: *mut u8,
    /// The area for threads without sections.
    shared: *mut u8,
    /// The file's first byte.
    base: *mut u8,
    can_exchange: bool,
    /// Number by which the caller knows what is where.
    layout: u32,
}

// SAFETY: addresses of memory that stays for ever, and is only used atomically or by sections.
unsafe impl Send for CountArea {}
// SAFETY: as above.
unsafe impl Sync for CountArea {}

/// The exchange of a cell as the section sees it.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) cpu: u32,
    pub(crate) cell: *mut u64,
    pub(crate) old: [u64; 2],
    pub(crate) new: [u64; 2],
}

/// Change of a cell's value by an event's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Their sum. One that overflows stays at the end of the range; so does the sum with a value
    /// that is there itself, because it may be one that does not fit.
    Add,
    /// The smaller one.
    Min,
    /// The larger one.
    Max,
}

impl Operation {
    /// Returns the cell with one more event.
    #[inline(always)]
    fn apply(self, [count, value]: [u64; 2], new: i64) -> [u64; 2] {
        let old = value as i64;
        let value = match self {
            Self::Add if OVERFLOWS.contains(&old) => old,
            Self::Add if OVERFLOWS.contains(&new) => new,
            Self::Add => old.saturating_add(new),
            _ if count == 0 => new,
            Self::Min => old.min(new),
            Self::Max => old.max(new),
        };
        [count.wrapping_add(1), value as u64]
    }
}

impl CountArea {
    /// Describes the memory of a recording that begins at `base`. Threads use restartable sections
    /// if `rseq` says where. `layout` is for the caller.
    ///
    /// # Safety
    /// The memory has [`CountGeometry::file_size`] bytes, begins at a page, and stays mapped and
    /// writable for ever (though other memory may take its place).
    pub unsafe fn new(geometry: &CountGeometry, base: *mut u8, rseq: Option<RseqArea>, layout: u32) -> Self {
        if let Some(rseq) = rseq {
            section::set_rseq_offset(rseq.offset);
        }
        let first = base.wrapping_add(geometry.areas() as usize);
        let shared = first.wrapping_add(geometry.area_stride() as usize * geometry.cpus() as usize);
        let cpus = if rseq.is_some() { geometry.cpus() } else { 0 };
        let can_exchange = tompion_os::processor().exchanges_16_bytes;
        Self { cpus, stride: geometry.area_stride(), first, shared, base, can_exchange, layout }
    }

    /// The number that [`CountArea::new`] was given.
    #[inline(always)]
    pub fn layout(&self) -> u32 {
        self.layout
    }

    /// Returns the slot of a key, or that of all others where there is no room.
    pub fn slot_of(&self, place: &AggregationPlace, key: &Key) -> u32 {
        let slots = place.size.slots;
        keys::find(&self.table(place), slots, key).unwrap_or(slots)
    }

    /// Returns the offset of the slot of a key of these words in the table at `keys`, if it is the
    /// first one that is looked at. `mask` has the bits that such an offset can have.
    ///
    /// # Safety
    /// The table is there by the area's geometry.
    #[inline(always)]
    pub unsafe fn first_slot(
        &self,
        keys: u64,
        mask: usize,
        shape: u64,
        words: impl Iterator<Item = u64> + Clone,
    ) -> Option<usize> {
        // SAFETY: as the caller promises.
        let table = unsafe { Part::new(self.base.wrapping_add(keys as usize), mask + KEY_SLOT) };
        keys::first(&table, mask, shape, words)
    }

    #[inline(always)]
    fn table(&self, place: &AggregationPlace) -> Part<'_> {
        let table = self.base.wrapping_add(place.keys as usize);
        // SAFETY: the table is inside the memory by its geometry, which the caller of `new` has
        // vouched for.
        unsafe { Part::new(table, place.size.slots as usize * KEY_SLOT) }
    }

    /// Counts an event that an aggregation could not count.
    #[cold]
    pub fn lose(&self, aggregation: usize) {
        let offset = OFFSET_LOST + aggregation % tompion_layout::counts::MAX_AGGREGATIONS * 8;
        // SAFETY: a word of the header.
        let word = unsafe { AtomicU64::from_ptr(self.base.add(offset).cast()) };
        // Ordering: a counter by itself.
        word.fetch_add(1, Ordering::Relaxed);
    }
}

impl CountSlot {
    /// Begins or ends the counting of a recording.
    pub fn set(&self, area: Option<&'static CountArea>) {
        let area = area.map_or(ptr::null_mut(), |area| ptr::from_ref(area).cast_mut());
        // Ordering: pairs with the acquire load in `area`.
        self.area.store(area, Ordering::Release);
    }

    /// The recording's count memory, if it counts.
    #[inline(always)]
    pub fn area(&self) -> Option<&'static CountArea> {
        // SAFETY: null, or an area that lives for ever.
        // Ordering: pairs with the release store in `set`.
        unsafe { self.area.load(Ordering::Acquire).as_ref() }
    }

    /// Counts an event in the cell at an offset of an area, or as one that the aggregation could
    /// not count.
    ///
    /// No system call, lock or allocation; bounded; safe in signal handlers.
    ///
    /// # Safety
    /// The area lives for ever, and the offset is that of a cell by its geometry; nothing is
    /// counted unless the area is that of this slot. The thread is one of this process's own (no
    /// vfork child).
    #[inline(always)]
    pub unsafe fn increment(&self, area: &'static CountArea, offset: u64, aggregation: usize) {
        // SAFETY: as the caller promises. A section begins with a store to the thread's rseq area;
        // where there is none, the store would hit the C library's own words.
        unsafe {
            match area.cpus {
                0 => tompion_increment_otherwise(self, area, offset, aggregation),
                _ => section::tompion_section_increment(self, area, offset, aggregation),
            }
        }
    }

    /// The same with a value. False if the event could not be counted.
    ///
    /// # Safety
    /// As [`CountSlot::increment`].
    #[inline(always)]
    pub unsafe fn update(
        &self,
        area: &'static CountArea,
        offset: u64,
        operation: Operation,
        value: i64,
    ) -> bool {
        for _ in 0..MAX_EXCHANGES {
            let cpu = section::current_cpu();
            if cpu >= area.cpus {
                break;
            }
            let cell =
                area.first.wrapping_add(cpu as usize * area.stride as usize + offset as usize).cast::<u64>();
            // SAFETY: the cell is inside the CPU's area. Ordering: the section compares both words
            // again.
            let old =
                unsafe { [cell, cell.add(1)].map(|word| AtomicU64::from_ptr(word).load(Ordering::Relaxed)) };
            let request = Exchange { cpu, cell, old, new: operation.apply(old, value) };
            // SAFETY: the request is a local; its cell is inside the area.
            match unsafe { section::tompion_section_exchange(self, area, &raw const request) } {
                section::WRITTEN => return true,
                section::CHANGED if !ptr::eq(self.area.load(Ordering::Relaxed), area) => return true,
                section::CHANGED => {}
                _ => break,
            }
        }
        // SAFETY: as the caller promises.
        unsafe { self.exchange_shared(area, offset, |cell| operation.apply(cell, value)) }
    }

    /// Changes a cell of the area that no section touches.
    ///
    /// # Safety
    /// As [`CountSlot::increment`].
    #[cold]
    #[inline(never)]
    unsafe fn exchange_shared(
        &self,
        area: &'static CountArea,
        offset: u64,
        change: impl Fn([u64; 2]) -> [u64; 2],
    ) -> bool {
        if !area.can_exchange {
            return false;
        }
        let cell = area.shared.wrapping_add(offset as usize).cast::<u64>();
        for _ in 0..MAX_SHARED_EXCHANGES {
            // Ordering: a recording that has ended, or a wiped slot, counts nothing.
            if !ptr::eq(self.area.load(Ordering::Relaxed), area) {
                return true;
            }
            // SAFETY: the cell is inside the area. Ordering: the exchange compares both words
            // again.
            let old =
                unsafe { [cell, cell.add(1)].map(|word| AtomicU64::from_ptr(word).load(Ordering::Relaxed)) };
            let new = change(old);
            // SAFETY: an aligned cell, and the processor exchanges 16 bytes. Where it fails,
            // another thread has counted.
            if unsafe { tompion_os::exchange_pair(cell, (old[0], old[1]), (new[0], new[1])) } {
                return true;
            }
        }
        false
    }
}

/// Goes on where the section could not: counts in the area that no section touches.
///
/// # Safety
/// As [`CountSlot::increment`], which calls it where there are no sections. The section jumps to it
/// with its operands.
#[cold]
pub(crate) unsafe extern "C" fn tompion_increment_otherwise(
    slot: &CountSlot,
    area: &'static CountArea,
    offset: u64,
    aggregation: usize,
) {
    let change = |[count, value]: [u64; 2]| [count.wrapping_add(1), value];
    // SAFETY: as the caller promises.
    if !unsafe { slot.exchange_shared(area, offset, change) } {
        area.lose(aggregation);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_stay_where_they_overflow() {
        let add = |cell, value| Operation::Add.apply(cell, value);
        assert_eq!(add([3, 5], -7), [4, -2i64 as u64]);
        assert_eq!(add([1, i64::MAX as u64 - 1], 2), [2, i64::MAX as u64]);
        assert_eq!(add([2, i64::MAX as u64], -100), [3, i64::MAX as u64]);
        assert_eq!(add([0, i64::MIN as u64 + 1], -5), [1, i64::MIN as u64]);
        assert_eq!(add([1, i64::MIN as u64], 1), [2, i64::MIN as u64]);
        assert_eq!(add([1, -5i64 as u64], i64::MAX), [2, i64::MAX as u64]);
    }

    #[test]
    fn the_first_value_is_the_smallest_and_the_largest() {
        assert_eq!(Operation::Min.apply([0, 0], 7), [1, 7]);
        assert_eq!(Operation::Min.apply([1, 7], -1), [2, u64::MAX]);
        assert_eq!(Operation::Max.apply([0, 0], -7), [1, -7i64 as u64]);
        assert_eq!(Operation::Max.apply([1, 7], 3), [2, 7]);
    }
}
