//! Attribution of latencies: splits one latency into segments and gives each a cause. A pure
//! function ([`attribute()`]) of the events recorded on each CPU, tested with synthetic events.
//!
//! ```text
//!  intended          handler      woken                                running
//!     │ irqs off, idle  │  wake-up  │ preemption off, higher one, interrupts │
//!     └── CPU of the timer ─────────┴── CPU on which the thread waits ───────┘
//! ```
//!
//! A late timer is attributed on the CPU of the timer, a waiting thread on the CPU of its queue.
//! Segments leave no gap and don't overlap, so they add up to the latency exactly. What is not
//! known is [`Cause::Unknown`].

mod attribute;
mod firmware;
mod job;
mod sched_events;
mod timeline;

use serde::{Deserialize, Serialize};

pub use attribute::attribute;
pub(crate) use attribute::code_of;
pub use firmware::interrupts_of_all;
pub use job::{attribute_job, place_of};
pub use sched_events::{Decoded, EVENT_SIZE, EventKind, MAX_EVENTS, SIDE_HEAD, SchedEvent, Thread, decode};
pub use timeline::SOFT_INTERRUPTS;

/// Cause of a segment: why a thread did not run, or what else a job's response time consists of.
///
/// The names are rtla's. Those of earlier incidents are read as aliases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The CPU took no interrupts.
    InterruptsOff,
    /// A thread of lower priority ran and could not be preempted.
    PreemptionOff,
    /// A thread of higher or equal priority ran.
    #[serde(alias = "higher-priority")]
    ThreadInterference,
    /// The handler of another interrupt ran.
    #[serde(alias = "hard-interrupt")]
    IrqInterference,
    /// A softirq ran.
    #[serde(alias = "soft-interrupt")]
    SoftirqInterference,
    /// No software ran: the timer interrupt was delayed by hardware or by the hypervisor.
    LateTimer,
    /// Firmware ran: system management interrupts occurred.
    Firmware,
    /// The CPU was leaving an idle state.
    IdleExit,
    /// The kernel handled the interrupt, woke the thread and switched to it.
    #[serde(alias = "own-path")]
    KernelOverhead,
    /// The job itself ran.
    #[serde(alias = "work")]
    Running,
    /// The job slept: for a lock, for data, until a time.
    Waiting,
    /// The events are missing or were overwritten.
    Unknown,
}

impl Cause {
    /// All causes, in the order of tables.
    pub const ALL: [Self; 12] = [
        Self::InterruptsOff,
        Self::PreemptionOff,
        Self::ThreadInterference,
        Self::IrqInterference,
        Self::SoftirqInterference,
        Self::LateTimer,
        Self::Firmware,
        Self::IdleExit,
        Self::KernelOverhead,
        Self::Running,
        Self::Waiting,
        Self::Unknown,
    ];

    /// Name in files and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::InterruptsOff => "interrupts-off",
            Self::PreemptionOff => "preemption-off",
            Self::ThreadInterference => "thread-interference",
            Self::IrqInterference => "irq-interference",
            Self::SoftirqInterference => "softirq-interference",
            Self::LateTimer => "late-timer",
            Self::Firmware => "firmware",
            Self::IdleExit => "idle-exit",
            Self::KernelOverhead => "kernel-overhead",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Unknown => "unknown",
        }
    }

    /// Name for people.
    pub const fn words(self) -> &'static str {
        match self {
            Self::InterruptsOff => "interrupts off",
            Self::PreemptionOff => "preemption off",
            Self::ThreadInterference => "higher priority",
            Self::IrqInterference => "interrupt",
            Self::SoftirqInterference => "soft interrupt",
            Self::LateTimer => "hardware or hypervisor",
            Self::Firmware => "firmware (SMI)",
            Self::IdleExit => "idle exit",
            Self::KernelOverhead => "wakeup and context switch",
            Self::Running => "its own work",
            Self::Waiting => "it waited",
            Self::Unknown => "unknown",
        }
    }
}

/// Part of a latency. Times are CLOCK_MONOTONIC, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// Begin of the segment.
    pub begin: u64,
    /// End of the segment and begin of the next one.
    pub end: u64,
    /// CPU whose events decided the cause.
    pub cpu: u32,
    /// Reason why the thread did not run, or what it did.
    pub cause: Cause,
    /// Name of the interrupt, softirq or thread; empty for none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub who: String,
    /// Thread that ran or was interrupted; 0 for none or the idle thread.
    #[serde(default)]
    pub tid: u32,
    /// Functions that ran, if known, the innermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub code: Vec<String>,
}

impl Segment {
    /// Length in nanoseconds.
    pub fn length(&self) -> u64 {
        self.end - self.begin
    }
}

/// Latency to be attributed. Times are CLOCK_MONOTONIC, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyInterval {
    /// Intended expiry of the timer that woke the thread; 0 if no timer did.
    pub intended: u64,
    /// Start of the timer's handler; 0 for none.
    pub fired: u64,
    /// Time of the wakeup.
    pub woken: u64,
    /// Time at which the thread ran.
    pub end: u64,
    /// Number of the thread.
    pub tid: u32,
    /// Priority in the kernel's numbers: lower runs first, below 100 is real-time.
    pub priority: i32,
    /// CPU on which it ran.
    pub cpu: u32,
    /// Stack of the switch to it: functions, the innermost first.
    #[serde(default)]
    pub stack: Vec<String>,
}

impl LatencyInterval {
    /// Begin of the latency.
    pub fn begin(&self) -> u64 {
        let begin = if self.intended != 0 { self.intended } else { self.woken };
        begin.min(self.end)
    }
}

/// Events of all CPUs.
#[derive(Clone, Debug, Default)]
pub struct EventLog {
    /// CPUs by their numbers.
    pub cpus: Vec<CpuLog>,
    /// Names of timer handlers by address.
    pub functions: std::collections::BTreeMap<u64, String>,
}

/// Events of one CPU.
#[derive(Clone, Debug, Default)]
pub struct CpuLog {
    /// Events in time order.
    pub events: Vec<SchedEvent>,
    /// Time from which on no event is missing.
    pub known_from: u64,
    /// Stacks by the number in their events: functions, the innermost first.
    pub stacks: std::collections::BTreeMap<u32, Vec<String>>,
}

#[cfg(test)]
mod tests {
    use super::Cause;

    fn parse(name: &str) -> Option<Cause> {
        serde_json::from_str(&format!("\"{name}\"")).ok()
    }

    #[test]
    fn names_are_those_in_files() {
        for cause in Cause::ALL {
            assert_eq!(parse(cause.name()), Some(cause));
            assert_eq!(serde_json::to_string(&cause).unwrap(), format!("\"{}\"", cause.name()));
        }
        assert_eq!(parse("interference"), None);
    }

    #[test]
    fn incidents_with_earlier_names_are_read() {
        for (earlier, cause) in [
            ("higher-priority", Cause::ThreadInterference),
            ("hard-interrupt", Cause::IrqInterference),
            ("soft-interrupt", Cause::SoftirqInterference),
            ("own-path", Cause::KernelOverhead),
            ("work", Cause::Running),
        ] {
            assert_eq!(parse(earlier), Some(cause), "{earlier}");
        }
    }
}
