//! Kinds of slices: the states of threads and CPUs, and what else lanes draw.
//!
//! This is their only definition. A test of `viewer` generates the page's from it, in
//! `web/src/data/wire.ts`.

/// Kind of slice with its names.
#[derive(Clone, Copy, Debug)]
pub struct SliceKind {
    /// Number in the index and in answers.
    pub number: u8,
    /// Name in the page's source.
    pub key: &'static str,
    /// Name for people.
    pub name: &'static str,
    /// Explanation for people, as the legend has it.
    pub explanation: &'static str,
}

macro_rules! slice_kinds {
    ($(#[doc = $doc:literal] $constant:ident = $number:literal, $key:literal, $name:literal, $explanation:literal;)*) => {
        $(
            #[doc = $doc]
            pub const $constant: u8 = $number;
        )*

        /// All kinds by number.
        pub const ALL: &[SliceKind] = &[
            $(SliceKind { number: $number, key: $key, name: $name, explanation: $explanation },)*
        ];
    };
}

slice_kinds! {
    /// State that no event tells.
    UNKNOWN = 0, "unknown", "unknown", "not observed: lost, overwritten, or before the first event";
    /// CPU without a thread to run.
    IDLE = 1, "idle", "idle", "no thread to run";
    /// Thread on a CPU, or CPU that runs a thread.
    RUNNING = 2, "running", "running", "on a CPU";
    /// Thread that was woken and waits for a CPU.
    RUNNABLE = 3, "runnable", "runnable", "woken, waiting for a CPU";
    /// Thread that is ready to run and had its CPU taken by another one.
    RUNNABLE_PREEMPTED = 4, "runnablePreempted", "runnable (preempted)", "ready to run, but another thread took the CPU";
    /// Thread in interruptible sleep.
    SLEEPING = 5, "sleeping", "sleeping", "asleep until an event wakes it: a timer, a lock, input";
    /// Thread in a sleep that signals do not end.
    UNINTERRUPTIBLE = 6, "uninterruptible", "uninterruptible sleep", "asleep, and signals don't wake it: a disk, a lock, memory";
    /// Thread that is stopped or traced.
    STOPPED = 7, "stopped", "stopped", "by a signal or a debugger";
    /// Thread that was created and not yet woken.
    NEW = 8, "created", "new", "created, has not run yet";
    /// System call.
    SYSCALL = 9, "syscall", "system call", "the thread is in the kernel";
    /// Interrupt handler.
    INTERRUPT = 10, "interrupt", "interrupt", "hardware interrupt handler";
    /// Softirq.
    SOFTIRQ = 11, "softirq", "softirq", "deferred work of interrupts";
    /// Span.
    SPAN = 12, "span", "span", "from a begin event to its end event";
    /// Function.
    FUNCTION = 13, "function", "function", "from entry to exit";
    /// Event.
    MARK = 14, "mark", "event", "an instant, without duration";
    /// Discarded events.
    LOST = 15, "lost", "lost", "events were discarded here";
    /// Events that a flight recorder overwrote.
    OVERWRITTEN = 16, "overwritten", "overwritten", "history that the flight recorder replaced";
    /// Job that met its deadline.
    JOB = 17, "job", "job", "one activation that met its deadline";
    /// Job that missed its deadline.
    LATE_JOB = 18, "lateJob", "late job", "missed its deadline";
    /// Values of a counter; not sent as slices.
    COUNTER = 19, "counter", "counter", "value over time, scaled between its minimum and maximum";
    /// Event counts; not sent as slices.
    DENSITY = 20, "density", "events", "event count; heights are square roots";
    /// Wakeup, from one lane to another; not sent as slices.
    WAKEUP = 21, "wakeup", "wakeup", "from waker to woken thread";
    /// Flow, from one lane to another; not sent as slices.
    FLOW = 22, "flow", "flow", "to the next step of a flow";
}

/// Returns the name of a kind, as people read it.
pub fn name(kind: u8) -> &'static str {
    ALL.get(usize::from(kind)).map_or("unknown", |kind| kind.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_stand_at_their_numbers() {
        for (number, kind) in ALL.iter().enumerate() {
            assert_eq!(usize::from(kind.number), number, "{}", kind.name);
        }
    }
}
