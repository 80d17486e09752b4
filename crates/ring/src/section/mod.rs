//! Restartable sections: the one place where an event reaches a ring.
//!
//! A section is a run of instructions that the kernel promises to abandon when the thread is
//! preempted, migrated or gets a signal inside it (`rseq(2)`,
//! `Documentation/userspace-api/rseq.rst`). So, between `start` and `commit`, the thread owns its
//! CPU's ring alone, without a lock and without an atomic instruction. The last instruction before
//! `commit` is the only store that others act upon.
//!
//! | function | its committing instruction |
//! |---|---|
//! | `tompion_append_image`, `tompion_append_parts` | stores `write` and `events` together: the record is there |
//! | `tompion_section_put` | stores `write`: a sub-buffer is padded, or a new one opened |
//! | `tompion_section_count` | adds one to a loss counter |
//! | `tompion_section_increment` | adds one to the count of a cell |
//! | `tompion_section_exchange` | stores both words of a cell |
//!
//! After an abort the registers are as they were, so whatever a restart needs is never changed
//! inside, and the stack pointer isn't touched at all.
//!
//! The append takes its operands in registers and leaves them there for the code that goes on where
//! it can't. The processor hides some ninety instructions behind the clock's, and every one more
//! costs.
//!
//! The sections are written for each architecture; `docs/design/ring.md` has the argument for both.

use core::sync::atomic::{AtomicI64, Ordering};

use crate::{
    counts::{CountArea, CountSlot, Exchange},
    producer::{Extras, Put, Recording},
};

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::current_cpu;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::current_cpu;

/// Flag in [`Recording`]: timestamps come with the request, not from the TSC.
pub(crate) const FLAG_GIVEN_TIME: u32 = 2;

/// The record was appended.
pub(crate) const WRITTEN: u32 = 0;
/// The record doesn't fit into what is left of the sub-buffer (or its ring has none open yet).
pub(crate) const NEEDS_SUBBUFFER: u32 = 1;
/// The section was restarted more often than allowed.
pub(crate) const RESTARTED_TOO_OFTEN: u32 = 2;
/// The thread has no CPU number that has a ring.
pub(crate) const NO_RING: u32 = 3;
/// The ring is no longer as the caller saw it.
pub(crate) const CHANGED: u32 = 4;

unsafe extern "C" {
    /// Appends a record that is an image of `len` bytes, a multiple of 8, and returns an
    /// [`crate::producer::Outcome`] as a number. (The third operand is in nobody's way.)
    pub(crate) fn tompion_append_image(
        recording: *const Recording,
        image: *const u8,
        unused: usize,
        head: u64,
        len: u64,
    ) -> u32;
    /// The same for a record that is made of the extras' parts, `len` bytes together with padding.
    pub(crate) fn tompion_append_parts(
        recording: *const Recording,
        image: *const u8,
        extras: *const Extras,
        head: u64,
        len: u64,
    ) -> u32;
    /// One more attempt at either; `extras` is null for an image. Returns [`WRITTEN`] or why not.
    pub(crate) fn tompion_append_again(
        recording: *const Recording,
        image: *const u8,
        extras: *const Extras,
        head: u64,
        len: u64,
    ) -> u32;
    pub(crate) fn tompion_section_put(recording: *const Recording, request: *mut Put) -> u32;
    pub(crate) fn tompion_section_count(recording: *const Recording, offset: u64) -> u32;
    /// Counts an event, unless the area is no longer that of the slot.
    pub(crate) fn tompion_section_increment(
        slot: *const CountSlot,
        area: *const CountArea,
        offset: u64,
        aggregation: usize,
    );
    /// Returns [`WRITTEN`], [`CHANGED`], or [`RESTARTED_TOO_OFTEN`].
    pub(crate) fn tompion_section_exchange(
        slot: *const CountSlot,
        area: *const CountArea,
        request: *const Exchange,
    ) -> u32;

    /// Distance of threads' rseq areas from their thread pointers. The same for the whole life of a
    /// process, and not among what a fork wipes: a section that begins in a child must still find
    /// it.
    static tompion_rseq_offset: AtomicI64;
}

/// Says where threads have their rseq areas; before any section runs.
pub(crate) fn set_rseq_offset(offset: isize) {
    // Ordering: relaxed; a thread that comes to a section has seen something that was published
    // after the first recording began (in the agent, a site's bit). SAFETY: a word of this
    // library's own, defined below, only used atomically.
    let known = unsafe { &tompion_rseq_offset };
    // A store would copy the page in each forked child.
    if known.load(Ordering::Relaxed) != offset as i64 {
        known.store(offset as i64, Ordering::Relaxed);
    }
}
