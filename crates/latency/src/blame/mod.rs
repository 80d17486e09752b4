//! Who made a thread late? From the moments that the kernel noted on each CPU to the segments of one latency, each charged
//! to a cause: a pure function ([`charge()`]), of which tests make up the moments.
//!
//! ```text
//!  intended          handler      woken                                running
//!     │ irqs off, idle  │  wake-up  │ preemption off, higher one, interrupts │
//!     └── CPU of the timer ─────────┴── CPU on which the thread waits ───────┘
//! ```
//!
//! A timer that is late is looked at on the CPU on which it went off, a thread that waits on the one where it was queued.
//! Segments leave no gap and overlap nowhere, so their sum is the latency, to the nanosecond. What nobody knows is
//! [`Cause::Unknown`], and says so.

mod charge;
mod firmware;
mod job;
mod moments;
mod timeline;

use serde::{Deserialize, Serialize};

pub use charge::charge;
pub(crate) use charge::code_of;
pub use firmware::interrupts_of_all;
pub use job::{charge_job, place_of};
pub use moments::{Decoded, MOMENT_SIZE, MOMENTS, Moment, SIDE_HEAD, Thread, What, decode};
pub use timeline::SOFT_INTERRUPTS;

/// Why a thread did not run in a segment of its latency; what else the time of a job's activation is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The processor took no interrupts.
    InterruptsOff,
    /// A thread of a lower priority ran, and could not be preempted.
    PreemptionOff,
    /// A thread of a higher priority ran, or one of the same.
    HigherPriority,
    /// A handler of another interrupt ran.
    HardInterrupt,
    /// A soft interrupt ran.
    SoftInterrupt,
    /// The processor did nothing of the kernel's: the timer's interrupt came late from hardware, or the hypervisor had it.
    LateTimer,
    /// The processor's firmware had it: system management interrupts came meanwhile.
    Firmware,
    /// The processor was idle, and had to wake up.
    IdleExit,
    /// What the kernel needs to handle the interrupt, to wake the thread and to switch to it.
    OwnPath,
    /// It ran: the job's own work.
    Work,
    /// It slept: for a lock, for data, until a time.
    Waiting,
    /// It was not noted, or was overwritten.
    Unknown,
}

impl Cause {
    /// All, in the order in which tables have them.
    pub const ALL: [Self; 12] = [
        Self::InterruptsOff,
        Self::PreemptionOff,
        Self::HigherPriority,
        Self::HardInterrupt,
        Self::SoftInterrupt,
        Self::LateTimer,
        Self::Firmware,
        Self::IdleExit,
        Self::OwnPath,
        Self::Work,
        Self::Waiting,
        Self::Unknown,
    ];

    /// The name by which programs know it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::InterruptsOff => "interrupts-off",
            Self::PreemptionOff => "preemption-off",
            Self::HigherPriority => "higher-priority",
            Self::HardInterrupt => "hard-interrupt",
            Self::SoftInterrupt => "soft-interrupt",
            Self::LateTimer => "late-timer",
            Self::Firmware => "firmware",
            Self::IdleExit => "idle-exit",
            Self::OwnPath => "own-path",
            Self::Work => "work",
            Self::Waiting => "waiting",
            Self::Unknown => "unknown",
        }
    }

    /// What people read.
    pub const fn words(self) -> &'static str {
        match self {
            Self::InterruptsOff => "interrupts off",
            Self::PreemptionOff => "preemption off",
            Self::HigherPriority => "higher priority",
            Self::HardInterrupt => "interrupt",
            Self::SoftInterrupt => "soft interrupt",
            Self::LateTimer => "hardware or hypervisor",
            Self::Firmware => "firmware (SMI)",
            Self::IdleExit => "idle exit",
            Self::OwnPath => "wakeup and context switch",
            Self::Work => "its own work",
            Self::Waiting => "it waited",
            Self::Unknown => "unknown",
        }
    }
}

/// A part of a latency. Times are CLOCK_MONOTONIC, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// When it begins.
    pub begin: u64,
    /// When it ends, and the next one begins.
    pub end: u64,
    /// The CPU that was looked at.
    pub cpu: u32,
    /// Why the thread did not run, or what it did.
    pub cause: Cause,
    /// Which interrupt, soft interrupt or thread; empty if nobody.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub who: String,
    /// The thread that ran, or was interrupted; 0 is none, or idle.
    #[serde(default)]
    pub tid: u32,
    /// The code that ran, where it is known: functions, the innermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub code: Vec<String>,
}

impl Segment {
    /// How long it takes, in nanoseconds.
    pub fn length(&self) -> u64 {
        self.end - self.begin
    }
}

/// Which latency is asked about. Times are CLOCK_MONOTONIC, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// When the timer was to go off that woke the thread; 0 if it was woken otherwise.
    pub intended: u64,
    /// When the timer's handler began; 0 if there is none.
    pub fired: u64,
    /// When the thread was woken.
    pub woken: u64,
    /// When it ran.
    pub end: u64,
    /// The thread.
    pub tid: u32,
    /// Its priority, as the kernel counts: the lower the sooner, below 100 real-time.
    pub priority: i32,
    /// The CPU on which it ran.
    pub cpu: u32,
    /// Where the switch to it was made: functions, the innermost first.
    #[serde(default)]
    pub stack: Vec<String>,
}

impl Question {
    /// When the latency begins.
    pub fn begin(&self) -> u64 {
        let begin = if self.intended != 0 { self.intended } else { self.woken };
        begin.min(self.end)
    }
}

/// What was noted on all CPUs, by their numbers.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The CPUs.
    pub cpus: Vec<Noted>,
    /// Names of the handlers of timers, by address.
    pub functions: std::collections::BTreeMap<u64, String>,
}

/// What was noted on a CPU.
#[derive(Clone, Debug, Default)]
pub struct Noted {
    /// In the order of time.
    pub moments: Vec<Moment>,
    /// From when on nothing is missing.
    pub known_from: u64,
    /// Stacks that moments name by number: functions, the innermost first.
    pub stacks: std::collections::BTreeMap<u32, Vec<String>>,
}
