//! Variant of a measurement: a tracer, an event, its surroundings, and how many threads at once.

use std::fmt;

use super::super::Mode;
use super::super::results::Who;

/// Context of an event besides its fields, and whether it has to pass a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// Nothing.
    None,
    /// Its thread.
    Thread,
    /// Its thread and a value that the program defines (Tompion).
    Application,
    /// Process and the program's name with each event (LTTng; Tompion has both once for each
    /// process).
    Process,
    /// Nothing, behind a filter that all pass.
    FilterTrue,
    /// Nothing, behind a filter that only the first event of a batch passes.
    FilterFalse,
}

impl Context {
    /// Whether Tompion records the thread.
    pub const fn has_tid(self) -> bool {
        matches!(self, Self::Thread | Self::Application)
    }

    /// LTTng's names for it.
    pub const fn lttng(self) -> &'static [&'static str] {
        match self {
            Self::Thread => &["vtid"],
            Self::Process => &["vpid", "procname"],
            _ => &[],
        }
    }

    /// The filter, which both understand.
    pub const fn filter(self) -> Option<&'static str> {
        match self {
            Self::FilterTrue => Some("a < 1000000000"),
            Self::FilterFalse => Some("a == 0"),
            _ => None,
        }
    }

    /// Name in tables.
    const fn name(self, who: Who) -> &'static str {
        match (self, who) {
            (Self::None, _) => "",
            (Self::Thread, Who::Lttng) => ", vtid",
            (Self::Thread, _) => ", tid",
            (Self::Application, _) => ", tid and a value of the program",
            (Self::Process, _) => ", vpid and procname",
            (Self::FilterTrue, _) => ", filter that is true",
            (Self::FilterFalse, _) => ", filter that is false",
        }
    }
}

/// Settings of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recording {
    /// Treatment of new events when the buffers are full.
    pub mode: Mode,
    /// Context of each event.
    pub context: Context,
}

impl Recording {
    /// A flight recorder.
    pub const fn overwrite(context: Context) -> Self {
        Self { mode: Mode::Overwrite, context }
    }
}

/// Tracer in the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tracer {
    /// No tracer: a body of `plain.c`.
    Plain(&'static str),
    /// Linked with Tompion, not recorded.
    TompionDisabled,
    /// Recorded by Tompion.
    Tompion(Recording),
    /// Recorded by Tompion, without restartable sequences.
    Fallback(Recording),
    /// Linked with LTTng-UST, not recorded.
    LttngDisabled,
    /// Recorded by LTTng-UST.
    Lttng(Recording),
}

/// Surroundings of the event.
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
    /// Name in the bench loop.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tight => "tight",
            Self::Work => "work",
            Self::Burst => "burst",
        }
    }
}

/// The event that stands for all in most tables: two 8-byte fields.
pub const USUAL_EVENT: &str = "fields_2";

/// One thing to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Tracer in the loop.
    pub tracer: Tracer,
    /// Event.
    pub event: &'static str,
    /// Surroundings of the event.
    pub surroundings: Surroundings,
    /// Threads at once, each on a CPU of its own, as long as there are CPUs.
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
    /// The usual event on one thread, with nothing around it.
    pub const fn tight(tracer: Tracer) -> Self {
        Self { tracer, event: USUAL_EVENT, surroundings: Surroundings::Tight, threads: 1 }
    }

    /// Project of the tracer.
    pub const fn who(&self) -> Who {
        match self.tracer {
            Tracer::Plain(_) => Who::Plain,
            Tracer::TompionDisabled | Tracer::Tompion(_) => Who::Tompion,
            Tracer::Fallback(_) => Who::Fallback,
            Tracer::LttngDisabled | Tracer::Lttng(_) => Who::Lttng,
        }
    }

    /// The body's name in the C program.
    pub const fn body(&self) -> &'static str {
        match self.tracer {
            Tracer::Plain(body) => body,
            _ => self.event,
        }
    }

    /// Whether the event has a field `a`, not the last one, with the number of the round.
    pub fn is_numbered(&self) -> bool {
        let fields = self.event.strip_prefix("fields_").and_then(|number| number.parse::<u32>().ok());
        fields.is_some_and(|number| number > 1)
    }

    /// Events of a batch, and batches.
    pub fn size(&self, quick: bool) -> (u64, u64) {
        let large = matches!(self.event, "str_512" | "str_4096" | "fields_32");
        let (events, batches) = match (self.surroundings, quick) {
            (Surroundings::Burst, false) => (4_000, 100),
            (Surroundings::Burst, true) => (4_000, 10),
            (_, false) => (1_000_000, 5),
            (_, true) => (100_000, 2),
        };
        (if large { events / 8 } else { events }, batches)
    }

    /// Name in tables.
    pub fn label(&self) -> String {
        let recorded = |name: &str, recording: Recording| {
            format!("{name}, {}{}", recording.mode.name(), recording.context.name(self.who()))
        };
        match self.tracer {
            Tracer::Plain("empty") => "empty loop".into(),
            Tracer::Plain("counter") => "bare cycle counter (rdtsc)".into(),
            Tracer::Plain("clock") => "clock_gettime".into(),
            Tracer::Plain("queue") => "per-thread queue, plain stores".into(),
            Tracer::Plain(other) => other.into(),
            Tracer::TompionDisabled => "Tompion, disabled".into(),
            Tracer::Tompion(recording) => recorded("Tompion", recording),
            Tracer::Fallback(recording) => recorded("Tompion without rseq", recording),
            Tracer::LttngDisabled => "LTTng-UST, disabled".into(),
            Tracer::Lttng(recording) => recorded("LTTng-UST", recording),
        }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let event = if self.event == USUAL_EVENT { "" } else { self.event };
        write!(f, "{} ({event} {}, {} threads)", self.label(), self.surroundings.name(), self.threads)
    }
}

/// All variants of `x bench event`, in the order in which they are interleaved.
pub fn all(most_threads: usize) -> Vec<Variant> {
    use Surroundings::{Burst, Tight, Work};
    let mut variants = Vec::new();
    let mut add = |tracer, surroundings, threads| {
        if threads <= most_threads {
            variants.push(Variant { surroundings, threads, ..Variant::tight(tracer) });
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
    let without_tid = Recording::overwrite(Context::None);
    let at_work = [EMPTY, COUNTER, CLOCK, QUEUE, Tracer::Tompion(without_tid), Tracer::Lttng(without_tid)];
    at_work.into_iter().for_each(|tracer| add(tracer, Work, 1));
    variants
}

fn recorded(mode: Mode) -> [Tracer; 5] {
    let recording = |context| Recording { mode, context };
    [
        Tracer::Tompion(recording(Context::None)),
        Tracer::Lttng(recording(Context::None)),
        Tracer::Tompion(recording(Context::Thread)),
        Tracer::Lttng(recording(Context::Thread)),
        Tracer::Fallback(recording(Context::Thread)),
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

    #[test]
    fn only_events_with_several_fields_are_found_by_their_number() {
        let of = |event| Variant { event, ..Variant::tight(EMPTY) }.is_numbered();
        assert!(of("fields_2") && of("fields_16"));
        assert!(!of("fields_0") && !of("fields_1") && !of("u64") && !of("str_8"));
    }
}
