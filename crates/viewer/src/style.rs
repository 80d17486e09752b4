//! What boxes are, by the numbers that the page knows them by.

/// Nobody knows.
pub const UNKNOWN: u8 = 0;
/// A processor has nothing to run.
pub const IDLE: u8 = 1;
/// A thread runs; a processor runs a thread.
pub const RUNNING: u8 = 2;
/// Ready since it was woken.
pub const WOKEN: u8 = 3;
/// Ready since another thread took its place.
pub const PREEMPTED: u8 = 4;
/// Waits, and a signal would wake it.
pub const BLOCKED: u8 = 5;
/// Waits, whatever signals come.
pub const UNINTERRUPTIBLE: u8 = 6;
/// Stopped, or traced.
pub const STOPPED: u8 = 7;
/// Made, and not woken yet.
pub const NEW: u8 = 8;
/// In a system call.
pub const SYSCALL: u8 = 9;
/// A handler of an interrupt.
pub const INTERRUPT: u8 = 10;
/// A soft interrupt.
pub const SOFT_INTERRUPT: u8 = 11;
/// A span.
pub const SPAN: u8 = 12;
/// A function.
pub const FUNCTION: u8 = 13;
/// An event.
pub const MARK: u8 = 14;
/// Lost events.
pub const LOST: u8 = 15;
/// Events that a flight recorder overwrote.
pub const OVERWRITTEN: u8 = 16;
/// A job.
pub const JOB: u8 = 17;
/// A job that took longer than it may.
pub const LATE: u8 = 18;
/// Values of a counter; not sent as boxes.
pub const COUNTER: u8 = 19;
/// How many events there are; not sent as boxes.
pub const DENSITY: u8 = 20;
/// A wake-up, from one lane to another; not sent as boxes.
pub const WAKEUP: u8 = 21;
/// A flow, from one lane to another; not sent as boxes.
pub const FLOW: u8 = 22;
/// One more than the greatest.
pub const COUNT: u8 = 23;

/// What boxes of a style are called.
pub fn name(style: u8) -> &'static str {
    const NAMES: [&str; COUNT as usize] = [
        "unknown",
        "idle",
        "running",
        "ready: woken",
        "ready: preempted",
        "blocked",
        "blocked, uninterruptible",
        "stopped",
        "new",
        "system call",
        "interrupt",
        "soft interrupt",
        "span",
        "function",
        "event",
        "lost",
        "overwritten",
        "job",
        "late job",
        "counter",
        "density",
        "wake-up",
        "flow",
    ];
    NAMES.get(usize::from(style)).copied().unwrap_or("unknown")
}
