//! The agent's own heap: the host's may be traced, replaced, broken or in use.
//!
//! It is guarded by the agent's lock and by no other. A fork keeps that lock, so it never copies a
//! heap that is being changed.
//!
//! Rust aborts a program that gets no memory, with a message; the host must not be aborted. So
//! there is a reserve, which costs nothing before it is used: allocations that the kernel refuses
//! get a piece of it. Work that would need more of it checks first ([`is_short`]), and is left
//! undone.

use std::{
    alloc::{GlobalAlloc, Layout},
    arch::global_asm,
    cell::UnsafeCell,
    ptr,
};

use dlmalloc::Dlmalloc;

use crate::lock;

/// Bytes of the reserve: several times what is needed between two checks by [`is_short`].
const RESERVE: usize = 256 * 1024;
/// Bytes that must be available for the heap to be no longer short.
const ENOUGH: usize = 64 * 1024;

#[global_allocator]
static HEAP: Heap = Heap::new();

/// Returns whether hardly any memory is left: work that can be left undone should not begin.
pub fn is_short() -> bool {
    HEAP.is_short()
}

/// All memory that the agent allocates.
struct Heap(UnsafeCell<Inside>);

struct Inside {
    usual: Dlmalloc,
    reserve: Reserve,
    /// Whether the kernel had no memory when it was last asked.
    is_short: bool,
}

// Zeros that stand in no file, in a section of their own behind `.bss`. Between the lock and the
// registry they would keep these apart, and a forked child copies each page that it writes.
global_asm!(
    r#"
    .pushsection .tompion_reserve, "aw", @nobits
    .balign 16
    .hidden tompion_reserve
    .globl tompion_reserve
    .type tompion_reserve, @object
    .size tompion_reserve, {size}
    tompion_reserve: .zero {size}
    .popsection
    "#,
    size = const RESERVE,
);

unsafe extern "C" {
    /// The reserve, only reached through the heap.
    static tompion_reserve: UnsafeCell<[u8; RESERVE]>;
}

/// Use of the reserve.
struct Reserve {
    /// Bytes from the beginning that were given away.
    used: usize,
    /// Allocations that have not come back.
    living: usize,
}

// SAFETY: the allocator is only reached under the agent's lock.
unsafe impl Sync for Heap {}

impl Heap {
    /// An empty heap.
    const fn new() -> Self {
        let reserve = Reserve { used: 0, living: 0 };
        Self(UnsafeCell::new(Inside { usual: Dlmalloc::new(), reserve, is_short: false }))
    }

    /// Whether there is hardly any memory left, so that what can be left undone should be.
    fn is_short(&self) -> bool {
        let _held = lock::hold();
        // SAFETY: the lock is held.
        let inside = unsafe { &mut *self.0.get() };
        if inside.is_short {
            // SAFETY: what was allocated is given back as it was.
            unsafe {
                let probe = inside.usual.malloc(ENOUGH, 16);
                inside.is_short = probe.is_null();
                if !probe.is_null() {
                    inside.usual.free(probe, ENOUGH, 16);
                }
            }
        }
        inside.is_short
    }
}

impl Inside {
    /// Memory of the heap, or else a piece of the reserve.
    fn or_reserve(&mut self, usual: *mut u8, layout: Layout) -> *mut u8 {
        if !usual.is_null() {
            return usual;
        }
        self.is_short = true;
        self.reserve.take(layout)
    }
}

impl Reserve {
    fn take(&mut self, layout: Layout) -> *mut u8 {
        let begin = Self::begin();
        let at = self.used + begin.wrapping_add(self.used).align_offset(layout.align());
        match at.checked_add(layout.size()) {
            Some(end) if end <= RESERVE => {
                self.used = end;
                self.living += 1;
                begin.wrapping_add(at)
            }
            _ => ptr::null_mut(),
        }
    }

    fn begin() -> *mut u8 {
        UnsafeCell::raw_get(&raw const tompion_reserve).cast()
    }

    fn has(start: *mut u8) -> bool {
        start.addr().wrapping_sub(Self::begin().addr()) < RESERVE
    }

    /// Takes a piece back. Once all have come back, the reserve is whole again.
    fn give_back(&mut self) {
        self.living -= 1;
        if self.living == 0 {
            self.used = 0;
        }
    }
}

// SAFETY: memory comes from an allocator that keeps the contract of `GlobalAlloc`, or is a piece of
// the reserve that is given away once; the lock admits one thread at a time.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _held = lock::hold();
        // SAFETY: the lock is held.
        let inside = unsafe { &mut *self.0.get() };
        // SAFETY: as above.
        let usual = unsafe { inside.usual.malloc(layout.size(), layout.align()) };
        inside.or_reserve(usual, layout)
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        let _held = lock::hold();
        // SAFETY: the lock is held.
        let inside = unsafe { &mut *self.0.get() };
        if Reserve::has(start) {
            return inside.reserve.give_back();
        }
        // SAFETY: the caller got `start` here, with this layout.
        unsafe { inside.usual.free(start, layout.size(), layout.align()) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let _held = lock::hold();
        // SAFETY: the lock is held.
        let inside = unsafe { &mut *self.0.get() };
        // SAFETY: as above.
        let usual = unsafe { inside.usual.calloc(layout.size(), layout.align()) };
        if !usual.is_null() {
            return usual;
        }
        let piece = inside.or_reserve(usual, layout);
        if !piece.is_null() {
            // SAFETY: the piece is as large as the layout says.
            unsafe { piece.write_bytes(0, layout.size()) };
        }
        piece
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let _held = lock::hold();
        // SAFETY: the lock is held.
        let inside = unsafe { &mut *self.0.get() };
        // SAFETY: the caller promises that the size is fit for a layout of this alignment.
        let new_layout = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        let is_reserved = Reserve::has(start);
        // SAFETY: as in `dealloc`; a piece of the reserve can't be resized, so it gets a new place.
        let usual = unsafe {
            if is_reserved {
                inside.usual.malloc(new_size, layout.align())
            } else {
                inside.usual.realloc(start, layout.size(), layout.align(), new_size)
            }
        };
        if !usual.is_null() && !is_reserved {
            return usual;
        }
        let place = inside.or_reserve(usual, new_layout);
        if !place.is_null() {
            // SAFETY: both places are as large as their layouts say, and unlike each other; the old
            // one is the caller's, with `layout`.
            unsafe {
                place.copy_from_nonoverlapping(start, layout.size().min(new_size));
                if is_reserved {
                    inside.reserve.give_back();
                } else {
                    inside.usual.free(start, layout.size(), layout.align());
                }
            }
        }
        place
    }
}
