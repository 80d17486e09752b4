//! Sources of wakeups, as entries of runnable threads store them in `extra`.

/// Bits of the kind.
const BITS: u32 = 3;

/// Thread; its track plus 1 is stored with it.
pub const THREAD: u64 = 1;
/// Interrupt handler or softirq; its CPU is stored with it.
pub const INTERRUPT: u64 = 2;
/// Timer; its CPU is stored with it.
pub const TIMER: u64 = 3;
/// Timer of the thread's own sleep; its CPU is stored with it.
pub const OWN_TIMER: u64 = 4;
/// A thread or an interrupt within it, events don't tell which; the thread's track plus 1 is stored
/// with it.
pub const DURING: u64 = 5;

/// Returns the stored number of a source.
pub fn number(kind: u64, value: u64) -> u64 {
    value << BITS | kind
}

/// Returns the kind and the value of a stored number; kind 0 is unknown.
pub fn parts(number: u64) -> (u64, u64) {
    (number & ((1 << BITS) - 1), number >> BITS)
}
