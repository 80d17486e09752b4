//! States of threads, CPUs, interrupts, system calls and spans, with their begin and end times.
//!
//! An [`Engine`] takes events in order of time. It calls a [`Visitor`] with each [`Interval`] when
//! it has ended, and with each [`Instant`]. It stores only current states: a few hundred bytes for
//! each live thread, whatever the length of the trace.
//!
//! | track | intervals | coverage |
//! |---|---|---|
//! | [`Track::Cpu`] | scheduled thread | from the first event of the machine's kernel to the last |
//! | [`Track::Thread`] | running, runnable, blocked… | from the first event about the thread to its end |
//! | [`Track::Syscall`] | current system call of the thread | gaps between calls |
//! | [`Track::Interrupt`], [`Track::SoftInterrupt`] | handlers on a CPU | gaps between handlers |
//! | [`Track::Span`] | spans of the thread's program, one track for each depth | gaps between spans |
//!
//! Intervals of a track never overlap and come in order of time. Those of different tracks come in
//! the order of their ends.
//!
//! Events are recognized by the names that LTTng's tracers, Tompion and perf use.
//!
//! - **At the start**, only states in a state dump are known. An event that implies an earlier
//!   state, such as a system call's return, doesn't tell when it began.
//! - **After lost events**, states that may have changed are [`State::Unknown`] until an event
//!   shows them again. [`Interval::seen`] states whether an interval's ends were observed.
//! - Unknown means unknown: nothing is guessed.

mod classes;
mod engine;
mod facts;
mod machine;
mod numbered_spans;
mod spans;

use std::sync::Arc;

pub use engine::{Engine, run};
pub use facts::{Fact, FactExtractor, Facts, Role, Threads};

/// Number of a machine, in the order in which the engine met its hostname. Traces with one hostname
/// belong to one machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MachineId(pub u16);

/// Thread of a machine. Ids are reused after a thread has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadId {
    /// Machine of the thread.
    pub machine: MachineId,
    /// Thread id: the kernel's, or the one in its namespace in traces of programs.
    pub tid: i32,
}

/// Subject of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Track {
    /// CPU.
    Cpu(MachineId, u32),
    /// Interrupt handlers on a CPU. An interrupt that interrupts another one has depth 1.
    Interrupt(MachineId, u32, u8),
    /// Softirqs on a CPU.
    SoftInterrupt(MachineId, u32),
    /// Thread, as seen by the scheduler. Idle threads have no track.
    Thread(ThreadId),
    /// System call of a thread.
    Syscall(ThreadId),
    /// Spans of a thread's program, by its own events; the outermost has depth 0. Spans that the
    /// thread began and that belong to no thread have depths from 1024 on.
    Span(ThreadId, u16),
}

/// State of a track.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// State that was not observed: before the thread's first event, or after lost events.
    Unknown,
    /// The CPU is idle.
    Idle,
    /// The CPU runs this thread. Interrupts have their own tracks.
    Runs {
        /// Id of the thread.
        tid: i32,
    },
    /// The thread was created, but not woken yet.
    New,
    /// The thread is running.
    Running {
        /// CPU on which it runs.
        cpu: u32,
    },
    /// The thread is runnable and waits for a CPU.
    Ready(Why),
    /// The thread sleeps.
    Blocked {
        /// Kind of sleep.
        sleep: Sleep,
        /// Name of the current system call; `None` if there is none, or none was observed.
        syscall: Option<Arc<str>>,
    },
    /// System call, by name.
    Syscall(Arc<str>),
    /// Number of an interrupt.
    Interrupt(i64),
    /// Number of a softirq.
    SoftInterrupt(i64),
    /// Span, by name.
    Span(Arc<str>),
    /// Function, by address.
    Function(u64),
}

/// Reason why a thread is runnable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The thread was woken.
    Woken(Waker),
    /// The thread was preempted by this one; 0 is the idle thread.
    Preempted {
        /// Id of the preempting thread.
        by: i32,
    },
    /// A state dump says that it is runnable, without the reason.
    Unspecified,
}

/// Source of a wakeup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waker {
    /// Thread with this id.
    Thread(i32),
    /// This thread or an interrupt within it, while it ran: the trace doesn't tell which.
    During(i32),
    /// Interrupt handler or softirq on this CPU.
    Interrupt {
        /// CPU of the handler.
        cpu: u32,
    },
    /// Timer that expired on this CPU.
    Timer {
        /// CPU of the timer's interrupt.
        cpu: u32,
    },
    /// Timer that ends the thread's own sleep.
    OwnTimer {
        /// CPU of the timer's interrupt.
        cpu: u32,
    },
    /// Unknown: the state of the CPU was unknown.
    Unknown,
}

/// Kind of sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// Interruptible: signals wake the thread.
    Interruptible,
    /// Uninterruptible: only the awaited event wakes the thread, such as a disk or a kernel lock.
    Uninterruptible,
    /// Stopped or traced.
    Stopped,
    /// Unspecified: a state dump says only that the thread sleeps.
    Unspecified,
}

/// Observed ends of an interval. The others are where knowledge begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Whether an event marks the beginning.
    pub begin: bool,
    /// Whether an event marks the end.
    pub end: bool,
}

/// State between two times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Subject.
    pub track: Track,
    /// State.
    pub state: State,
    /// Begin time in nanoseconds since the epoch.
    pub begin: i64,
    /// End time; never before `begin`. Scheduling states without duration are omitted.
    pub end: i64,
    /// Whether the ends were observed.
    pub seen: Seen,
}

/// Event at one time, without duration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instant {
    /// Time in nanoseconds since the epoch.
    pub time: i64,
    /// Machine.
    pub machine: MachineId,
    /// Kind of event.
    pub what: Happening,
}

/// Kind of an instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// A thread was woken.
    Wakeup {
        /// Id of the thread.
        tid: i32,
        /// Source of the wakeup.
        waker: Waker,
    },
    /// A thread was created.
    Fork {
        /// Id of the creating thread.
        parent: i32,
        /// Id of the new thread.
        child: i32,
    },
    /// A thread began to exit: it makes no more system calls.
    Exit {
        /// Id of the thread.
        tid: i32,
    },
    /// A thread has ended; its id can be reused.
    Gone {
        /// Id of the thread.
        tid: i32,
    },
    /// The name or process of a thread became known or changed.
    Named {
        /// Id of the thread.
        tid: i32,
        /// Name of the thread; empty if only the process is known.
        name: String,
        /// Process of the thread, if stated.
        pid: Option<i32>,
    },
    /// Events were lost up to this time: states that they may have changed are unknown.
    Loss {
        /// CPU of the kernel's lost events; `None` for losses of programs.
        cpu: Option<u32>,
        /// Beginning of the loss.
        since: i64,
        /// Number of lost events or packets.
        count: u64,
    },
}

/// Receiver of intervals and instants.
pub trait Visitor {
    /// Visits an interval that has ended.
    fn interval(&mut self, interval: &Interval);

    /// Visits an instant.
    fn instant(&mut self, instant: &Instant) {
        let _ = instant;
    }
}

/// State that has not ended yet.
#[derive(Clone, Debug)]
struct OpenState {
    state: State,
    since: i64,
    /// Whether an event marks the beginning.
    seen: bool,
}

impl OpenState {
    /// Creates an unknown state.
    fn unknown(since: i64) -> Self {
        Self { state: State::Unknown, since, seen: false }
    }

    /// Ends the state; `seen` states whether an event marks the end.
    fn end(self, track: Track, end: i64, seen: bool) -> Interval {
        let seen = Seen { begin: self.seen, end: seen };
        Interval { track, state: self.state, begin: self.since, end: end.max(self.since), seen }
    }

    /// Changes to another state. Reports the previous one, unless it has no duration.
    fn turn(&mut self, track: Track, next: OpenState, visitor: &mut dyn Visitor) {
        if next.state == State::Unknown && self.state == State::Unknown {
            return;
        }
        let (now, seen) = (next.since.max(self.since), next.seen);
        let before = std::mem::replace(self, OpenState { since: now, ..next });
        if before.since < now {
            visitor.interval(&before.end(track, now, seen));
        }
    }

    /// Reports the state at the end of the trace, unless it has no duration.
    fn finish(self, track: Track, now: i64, visitor: &mut dyn Visitor) {
        if self.since < now {
            visitor.interval(&self.end(track, now, false));
        }
    }
}
