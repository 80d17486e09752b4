//! Actions of events besides being recorded. A site whose event has any has the bit
//! [`ACTIONS`](crate::site::ACTIONS), which leads it off the shortest way.
//!
//! No system call, no lock, no allocation, nothing that could panic. Safe in signal handlers.

use tompion_ring::producer::Event;

use crate::triggers;

/// Runs the actions of an event, once the recordings that take it have it.
#[cold]
#[inline(never)]
pub fn run(number: u32, event: Event<'_>, image: &[u8]) {
    triggers::run(number, event, image);
}

/// Counts an event whose actions can't run: its thread shares the memory of its parent.
#[cold]
#[inline(never)]
pub fn skip(number: u32) {
    triggers::skip(number);
}

/// Whether an event has actions in a recording.
pub fn any(number: u32) -> bool {
    triggers::any(number)
}

/// Forgets the actions of a recording that ends. The caller holds the registry's lock.
pub fn forget(slot: usize) {
    triggers::forget(slot);
}
