//! Real memory, with the processor's atomics.

pub use tompion_os::SharedMap;

use std::{
    marker::PhantomData,
    sync::atomic::{AtomicU64, Ordering},
};

use tompion_layout::ring;
use tompion_os::{Processor, cpu_by_rdpid, cpu_or_thread, tsc_and_cpu};

use super::{Clock, Fault, Moment};

pub(crate) use std::sync::atomic::fence;

/// Whether the code has this mistake: never.
#[inline(always)]
pub(crate) const fn has(_: Fault) -> bool {
    false
}

/// A part of shared memory.
///
/// Offsets that are used are inside, and those of words multiples of 8, as is promised where a part
/// is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    base: *mut u8,
    len: usize,
    memory: PhantomData<&'a SharedMap>,
}

// SAFETY: plain memory; all access is atomic, or by copies of bytes that callers expect to change.
unsafe impl Send for Part<'_> {}
// SAFETY: as above.
unsafe impl Sync for Part<'_> {}

impl<'a> Part<'a> {
    /// The part with this address and length.
    ///
    /// # Safety
    /// It is shared memory that stays as long as the part, begins at a page, and its users keep to
    /// offsets inside it.
    pub(crate) const unsafe fn new(base: *mut u8, len: usize) -> Self {
        Self { base, len, memory: PhantomData }
    }

    /// Part of a mapping. Its users keep to offsets inside it.
    ///
    /// # Panics
    /// If the mapping doesn't have it.
    pub(crate) fn of(map: &'a SharedMap, offset: usize, len: usize) -> Self {
        assert!(offset.checked_add(len).is_some_and(|end| end <= map.len()));
        Self { base: map.base().wrapping_add(offset), len, memory: PhantomData }
    }

    /// The part of this part that begins at an offset.
    pub(crate) fn from(&self, offset: usize, len: usize) -> Self {
        debug_assert!(offset + len <= self.len);
        Self { base: self.base.wrapping_add(offset), len, memory: PhantomData }
    }

    #[inline(always)]
    fn word(&self, offset: usize) -> &AtomicU64 {
        debug_assert!(offset % 8 == 0 && offset + 8 <= self.len);
        // SAFETY: inside the memory and aligned, as users of the part promise; only used
        // atomically.
        unsafe { AtomicU64::from_ptr(self.base.add(offset).cast()) }
    }

    #[inline(always)]
    pub(crate) fn load(&self, offset: usize, ordering: Ordering) -> u64 {
        self.word(offset).load(ordering)
    }

    #[inline(always)]
    pub(crate) fn store(&self, offset: usize, value: u64, ordering: Ordering) {
        self.word(offset).store(value, ordering);
    }

    #[inline(always)]
    pub(crate) fn add(&self, offset: usize, value: u64, ordering: Ordering) {
        self.word(offset).fetch_add(value, ordering);
    }

    /// Replaces a value, if it is still this one. Release, if it is. May fail without a reason.
    #[inline(always)]
    pub(crate) fn replace(&self, offset: usize, old: u64, new: u64) -> bool {
        // Ordering: of a failure: the caller looks again.
        self.word(offset).compare_exchange_weak(old, new, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Loads a word that this thread may change next.
    #[inline(always)]
    pub(crate) fn load_to_change(&self, offset: usize) -> u64 {
        // Ordering: nothing is read by it; the change decides.
        self.load(offset, Ordering::Relaxed)
    }

    /// Puts a value in the place of another. Release.
    pub(crate) fn exchange(&self, offset: usize, value: u64) {
        self.word(offset).swap(value, Ordering::Release);
    }

    pub(crate) fn raise(&self, offset: usize, value: u64, ordering: Ordering) {
        self.word(offset).fetch_max(value, ordering);
    }

    /// Turns a zero into a value. Fails with what stood there.
    pub(crate) fn claim(&self, offset: usize, value: u64) -> Result<u64, u64> {
        // Ordering: a place belongs to the thread that claimed it; nothing else depends on seeing
        // it.
        self.word(offset).compare_exchange(0, value, Ordering::Relaxed, Ordering::Relaxed)
    }

    /// Turns a zero into a value, behind what the thread did that made it zero. Fails with what
    /// stood there.
    pub(crate) fn claim_behind(&self, offset: usize, value: u64) -> Result<u64, u64> {
        // Ordering: acquire, pairs with the release store of the zero.
        self.word(offset).compare_exchange(0, value, Ordering::Acquire, Ordering::Relaxed)
    }

    /// A ring's `write`, with the ordering, and its `events`.
    #[inline(always)]
    pub(crate) fn appended(&self, ordering: Ordering) -> (u64, u64) {
        // Ordering: of `events`: a caller that needs both of one moment compares them again.
        (self.load(ring::WRITE, ordering), self.load(ring::EVENTS, Ordering::Relaxed))
    }

    /// Moves a ring's `write` and `events` at once, unless they have changed. Acquires and
    /// releases.
    #[inline(always)]
    pub(crate) fn advance(&self, old: (u64, u64), new: (u64, u64)) -> bool {
        let words = self.word(ring::WRITE).as_ptr();
        // SAFETY: the two words begin a page. Rings in reserve form are only written where the
        // processor can.
        unsafe { tompion_os::exchange_pair(words, old, new) }
    }

    /// Copies bytes in, which others may see in parts and in any order.
    ///
    /// # Safety
    /// `from` is readable.
    #[inline(always)]
    pub(crate) unsafe fn copy_in(&self, offset: usize, from: *const u8, len: usize) {
        debug_assert!(offset + len <= self.len);
        // SAFETY: the place is inside the memory, as users of the part promise, and its writer's
        // own until a word says otherwise; readers that come sooner copy plain bytes, and throw
        // them away.
        unsafe { self.base.add(offset).copy_from(from, len) };
    }

    /// Copies bytes out, in any order: what others change meanwhile comes in parts.
    pub(crate) fn copy_out(&self, offset: usize, to: &mut [u8]) {
        debug_assert!(offset + to.len() <= self.len);
        // SAFETY: inside the memory, as users of the part promise; the destination is private. See
        // `SharedMap::copy_out`.
        unsafe { self.base.add(offset).copy_to(to.as_mut_ptr(), to.len()) };
    }

    /// Copies whole words out, the first one first, each with an acquiring load.
    pub(crate) fn copy_out_in_order(&self, offset: usize, to: &mut [u8]) {
        for (index, bytes) in to.chunks_exact_mut(8).enumerate() {
            // Ordering: pairs with the release store of a commit word: what is copied after it is
            // as its writer left it.
            bytes.copy_from_slice(&self.load(offset + index * 8, Ordering::Acquire).to_le_bytes());
        }
    }
}

/// CPU on which the thread seems to run, for choosing a ring before the clock is read.
#[inline(always)]
pub(crate) fn likely_cpu(clock: Clock, processor: Processor) -> u32 {
    match clock {
        _ if processor.has_rdpid => cpu_by_rdpid(),
        Clock::Tsc => tsc_and_cpu().1,
        _ => cpu_or_thread(),
    }
}

/// Reads a clock after all loads before it.
#[inline(always)]
pub(crate) fn now(clock: Clock, _: &Part<'_>) -> Moment {
    match clock {
        Clock::Tsc => {
            let (time, cpu) = tsc_and_cpu();
            Moment { time, cpu }
        }
        Clock::TscAlone => Moment { time: tompion_os::tsc_in_order(), cpu: cpu_or_thread() },
        // The library's way to the clock waits for loads before it, as the kernel's does.
        Clock::Monotonic => Moment { time: tompion_os::monotonic_ns(), cpu: cpu_or_thread() },
        Clock::MonotonicWithoutTsc => {
            Moment { time: tompion_os::monotonic_ns_without_tsc(), cpu: cpu_or_thread() }
        }
    }
}
