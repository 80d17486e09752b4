//! Kinds of slices: the states of threads and CPUs, and what else lanes draw.
//!
//! This is their only definition. The page's is generated from it: `web/src/data/slice_kinds.ts`.

/// Kind of slice with its names.
#[derive(Clone, Copy, Debug)]
pub struct SliceKind {
    /// Number in the index and in answers.
    pub number: u8,
    /// Name in the page's source.
    pub key: &'static str,
    /// Name for people.
    pub name: &'static str,
    /// Meaning.
    pub meaning: &'static str,
}

macro_rules! slice_kinds {
    ($(#[doc = $meaning:literal] $constant:ident = $number:literal, $key:literal, $name:literal;)*) => {
        $(
            #[doc = $meaning]
            pub const $constant: u8 = $number;
        )*

        /// All kinds by number.
        pub const ALL: &[SliceKind] = &[
            $(SliceKind { number: $number, key: $key, name: $name, meaning: $meaning },)*
        ];
    };
}

slice_kinds! {
    /// State that no event tells.
    UNKNOWN = 0, "unknown", "unknown";
    /// CPU without a thread to run.
    IDLE = 1, "idle", "idle";
    /// Thread on a CPU, or CPU that runs a thread.
    RUNNING = 2, "running", "running";
    /// Thread that was woken and waits for a CPU.
    RUNNABLE = 3, "runnable", "runnable";
    /// Thread that is ready to run and had its CPU taken by another one.
    RUNNABLE_PREEMPTED = 4, "runnablePreempted", "runnable (preempted)";
    /// Thread in interruptible sleep.
    SLEEPING = 5, "sleeping", "sleeping";
    /// Thread in a sleep that signals do not end.
    UNINTERRUPTIBLE = 6, "uninterruptible", "uninterruptible sleep";
    /// Thread that is stopped or traced.
    STOPPED = 7, "stopped", "stopped";
    /// Thread that was created and not yet woken.
    NEW = 8, "created", "new";
    /// System call.
    SYSCALL = 9, "syscall", "system call";
    /// Interrupt handler.
    INTERRUPT = 10, "interrupt", "interrupt";
    /// Softirq.
    SOFTIRQ = 11, "softirq", "softirq";
    /// Span.
    SPAN = 12, "span", "span";
    /// Function.
    FUNCTION = 13, "function", "function";
    /// Event.
    MARK = 14, "mark", "event";
    /// Discarded events.
    LOST = 15, "lost", "lost";
    /// Events that a flight recorder overwrote.
    OVERWRITTEN = 16, "overwritten", "overwritten";
    /// Job that met its deadline.
    JOB = 17, "job", "job";
    /// Job that missed its deadline.
    LATE_JOB = 18, "lateJob", "late job";
    /// Values of a counter; not sent as slices.
    COUNTER = 19, "counter", "counter";
    /// Event counts; not sent as slices.
    DENSITY = 20, "density", "density";
    /// Wakeup, from one lane to another; not sent as slices.
    WAKEUP = 21, "wakeup", "wakeup";
    /// Flow, from one lane to another; not sent as slices.
    FLOW = 22, "flow", "flow";
}

/// Returns the name of a kind, as people read it.
pub fn name(kind: u8) -> &'static str {
    ALL.get(usize::from(kind)).map_or("unknown", |kind| kind.name)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;
    use std::fs;
    use std::path::Path;

    use super::*;

    /// Returns the page's definition. Arrows have numbers of their own there.
    fn typescript() -> String {
        let mut text = String::from(
            "// Kinds of slices. Generated from crates/index/src/slice_kind.rs by its test; do not edit.\n\n\
             /** Kind of slice, by its number in answers. */\nexport const Style = {\n",
        );
        for SliceKind { number, key, meaning, .. } in ALL.iter().filter(|kind| kind.number <= DENSITY) {
            let _ = write!(text, "  /**{meaning} */\n  {key}: {number},\n");
        }
        text + "} as const;\n"
    }

    #[test]
    fn kinds_stand_at_their_numbers() {
        for (number, kind) in ALL.iter().enumerate() {
            assert_eq!(usize::from(kind.number), number, "{}", kind.name);
        }
    }

    #[test]
    fn the_pages_definition_is_generated_from_this_one() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web/src/data/slice_kinds.ts");
        if std::env::var_os("TOMPION_BLESS").is_some() {
            fs::write(&path, typescript()).unwrap();
        }
        let found = fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(found, typescript(), "run this test with TOMPION_BLESS=1");
    }
}
