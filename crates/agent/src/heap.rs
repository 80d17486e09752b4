//! The agent's own heap: the host's may be traced, replaced, broken or in use.
//!
//! It is guarded by the agent's lock and by no other, so that a fork, which keeps that lock, never copies a
//! heap that somebody is changing.

use std::{
    alloc::{GlobalAlloc, Layout},
    cell::UnsafeCell,
};

use dlmalloc::Dlmalloc;

use crate::lock;

/// All memory that the agent allocates.
pub struct Heap(UnsafeCell<Dlmalloc>);

// SAFETY: the allocator is only reached by who has the agent's lock.
unsafe impl Sync for Heap {}

impl Heap {
    /// An empty heap.
    pub const fn new() -> Self {
        Self(UnsafeCell::new(Dlmalloc::new()))
    }
}

// SAFETY: all four pass on to an allocator that keeps the contract of `GlobalAlloc`, and the lock lets one
// thread at a time in.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _held = lock::hold();
        // SAFETY: nobody else has the heap.
        unsafe { (*self.0.get()).malloc(layout.size(), layout.align()) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        let _held = lock::hold();
        // SAFETY: as above; the caller got `start` here, with this layout.
        unsafe { (*self.0.get()).free(start, layout.size(), layout.align()) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let _held = lock::hold();
        // SAFETY: nobody else has the heap.
        unsafe { (*self.0.get()).calloc(layout.size(), layout.align()) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let _held = lock::hold();
        // SAFETY: as in `dealloc`.
        unsafe { (*self.0.get()).realloc(start, layout.size(), layout.align(), new_size) }
    }
}
