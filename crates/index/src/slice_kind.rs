//! Kinds of slices, by the numbers that the page knows them by (`Style` in `web/src/data/wire.ts`).

/// State that no event tells.
pub const UNKNOWN: u8 = 0;
/// CPU without a thread to run.
pub const IDLE: u8 = 1;
/// Thread on a CPU, or CPU that runs a thread.
pub const RUNNING: u8 = 2;
/// Thread that was woken and waits for a CPU.
pub const RUNNABLE: u8 = 3;
/// Thread that is ready to run and had its CPU taken by another one.
pub const RUNNABLE_PREEMPTED: u8 = 4;
/// Thread in interruptible sleep.
pub const SLEEPING: u8 = 5;
/// Thread in a sleep that signals do not end.
pub const UNINTERRUPTIBLE: u8 = 6;
/// Thread that is stopped or traced.
pub const STOPPED: u8 = 7;
/// Thread that was created and not yet woken.
pub const NEW: u8 = 8;
/// System call.
pub const SYSCALL: u8 = 9;
/// Interrupt handler.
pub const INTERRUPT: u8 = 10;
/// Softirq.
pub const SOFTIRQ: u8 = 11;
/// Span.
pub const SPAN: u8 = 12;
/// Function.
pub const FUNCTION: u8 = 13;
/// Event.
pub const MARK: u8 = 14;
/// Discarded events.
pub const LOST: u8 = 15;
/// Events that a flight recorder overwrote.
pub const OVERWRITTEN: u8 = 16;
/// Job that met its deadline.
pub const JOB: u8 = 17;
/// Job that missed its deadline.
pub const LATE_JOB: u8 = 18;
/// Values of a counter; not sent as slices.
pub const COUNTER: u8 = 19;
/// Event counts; not sent as slices.
pub const DENSITY: u8 = 20;
/// Wakeup, from one lane to another; not sent as slices.
pub const WAKEUP: u8 = 21;
/// Flow, from one lane to another; not sent as slices.
pub const FLOW: u8 = 22;
/// Number of kinds.
pub const COUNT: u8 = 23;

/// Returns the name of a kind, as people read it.
pub fn name(kind: u8) -> &'static str {
    const NAMES: [&str; COUNT as usize] = [
        "unknown",
        "idle",
        "running",
        "runnable",
        "runnable (preempted)",
        "sleeping",
        "uninterruptible sleep",
        "stopped",
        "new",
        "system call",
        "interrupt",
        "softirq",
        "span",
        "function",
        "event",
        "lost",
        "overwritten",
        "job",
        "late job",
        "counter",
        "density",
        "wakeup",
        "flow",
    ];
    NAMES.get(usize::from(kind)).copied().unwrap_or("unknown")
}
