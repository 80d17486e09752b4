//! What is measured: a tracer, its surroundings, and how many threads at once.

use std::fmt;

use super::Mode;

/// How a tracer records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recording {
    /// What happens when the buffers are full.
    pub mode: Mode,
    /// Whether each event carries its thread.
    pub tid: bool,
}

/// What stands in the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tracer {
    /// No tracer: a body of `plain.c`.
    Plain(&'static str),
    /// Linked with Tompion, not recorded.
    TompionDisabled,
    /// Recorded by Tompion.
    Tompion(Recording),
    /// Linked with LTTng-UST, not recorded.
    LttngDisabled,
    /// Recorded by LTTng-UST.
    Lttng(Recording),
}

/// What stands around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surroundings {
    /// Nothing.
    Tight,
    /// Dependent work, so that only what cannot hide behind it shows.
    Work,
    /// Nothing, but pauses between bursts, so that a consumer keeps up.
    Burst,
}

impl Surroundings {
    /// What the bench loop calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tight => "tight",
            Self::Work => "work",
            Self::Burst => "burst",
        }
    }
}

/// One thing to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// What stands in the loop.
    pub tracer: Tracer,
    /// What stands around it.
    pub surroundings: Surroundings,
    /// Threads at once, each on a CPU of its own.
    pub threads: usize,
}

/// The body that only loops.
pub const EMPTY: Tracer = Tracer::Plain("empty");
/// The body that reads the cycle counter.
pub const COUNTER: Tracer = Tracer::Plain("counter");
/// The body that calls clock_gettime.
pub const CLOCK: Tracer = Tracer::Plain("clock");
/// The body that stores into a per-thread queue.
pub const QUEUE: Tracer = Tracer::Plain("queue");

impl Variant {
    /// The body's name in the C program.
    pub const fn body(&self) -> &'static str {
        match self.tracer {
            Tracer::Plain(body) => body,
            _ => "event",
        }
    }

    /// Events of a batch, and batches.
    pub const fn size(&self, quick: bool) -> (u64, u64) {
        match (self.surroundings, quick) {
            (Surroundings::Burst, false) => (4_000, 100),
            (Surroundings::Burst, true) => (4_000, 10),
            (_, false) => (1_000_000, 5),
            (_, true) => (200_000, 3),
        }
    }

    /// What the tables call it.
    pub fn label(&self) -> String {
        let recorded = |name: &str, recording: Recording, tid: &str| {
            let context = if recording.tid { format!(", {tid}") } else { String::new() };
            format!("{name}, {}{context}", recording.mode.name())
        };
        match self.tracer {
            Tracer::Plain("empty") => "empty loop".into(),
            Tracer::Plain("counter") => "bare cycle counter (rdtsc)".into(),
            Tracer::Plain("clock") => "clock_gettime".into(),
            Tracer::Plain("queue") => "per-thread queue, plain stores".into(),
            Tracer::Plain(other) => other.into(),
            Tracer::TompionDisabled => "Tompion, disabled".into(),
            Tracer::Tompion(recording) => recorded("Tompion", recording, "tid"),
            Tracer::LttngDisabled => "LTTng-UST, disabled".into(),
            Tracer::Lttng(recording) => recorded("LTTng-UST", recording, "vtid"),
        }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {} thread)", self.label(), self.surroundings.name(), self.threads)
    }
}

/// All variants, in the order in which they are interleaved.
pub fn all(most_threads: usize) -> Vec<Variant> {
    use Surroundings::{Burst, Tight, Work};
    let mut variants = Vec::new();
    let mut add = |tracer, surroundings, threads| {
        if threads <= most_threads {
            variants.push(Variant { tracer, surroundings, threads });
        }
    };
    for tracer in [EMPTY, COUNTER, CLOCK, QUEUE, Tracer::TompionDisabled, Tracer::LttngDisabled] {
        add(tracer, Tight, 1);
    }
    for threads in [1, 2] {
        if threads == 2 {
            [COUNTER, QUEUE].into_iter().for_each(|tracer| add(tracer, Tight, 2));
        }
        recorded(Mode::Overwrite).into_iter().for_each(|tracer| add(tracer, Tight, threads));
        [COUNTER, QUEUE].into_iter().for_each(|tracer| add(tracer, Burst, threads));
        recorded(Mode::Discard).into_iter().for_each(|tracer| add(tracer, Burst, threads));
    }
    let without_tid = Recording { mode: Mode::Overwrite, tid: false };
    let at_work = [EMPTY, COUNTER, CLOCK, QUEUE, Tracer::Tompion(without_tid), Tracer::Lttng(without_tid)];
    at_work.into_iter().for_each(|tracer| add(tracer, Work, 1));
    variants
}

fn recorded(mode: Mode) -> [Tracer; 4] {
    let recording = |tid| Recording { mode, tid };
    [
        Tracer::Tompion(recording(false)),
        Tracer::Lttng(recording(false)),
        Tracer::Tompion(recording(true)),
        Tracer::Lttng(recording(true)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cpu_has_no_variants_with_two_threads() {
        assert!(all(1).iter().all(|variant| variant.threads == 1));
        assert!(all(8).iter().any(|variant| variant.threads == 2));
    }

    #[test]
    fn no_variant_is_measured_twice() {
        let variants = all(2);
        for (index, variant) in variants.iter().enumerate() {
            assert!(!variants[..index].contains(variant), "{variant}");
        }
    }
}
