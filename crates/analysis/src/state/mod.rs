//! States: what threads, processors, interrupts, system calls and spans do from when to when.
//!
//! An [`Engine`] takes events in order of time and calls a [`Visitor`] with each [`Interval`] when it has ended, and
//! with each [`Instant`]. It remembers what is going on now and nothing else: a few hundred bytes for each thread that
//! lives, whatever the length of the trace.
//!
//! | track | its intervals | they |
//! |---|---|---|
//! | [`Track::Cpu`] | what the scheduler put on it | cover the time from the first event of the machine's kernel to the last |
//! | [`Track::Thread`] | running, ready, blocked… | cover the time from the first event that tells of the thread to its end |
//! | [`Track::Syscall`] | the system call that the thread is in | leave the rest of the time out |
//! | [`Track::Interrupt`], [`Track::SoftInterrupt`] | handlers on a processor | the same |
//! | [`Track::Span`] | what the thread's program says it does, one track for each depth | the same |
//!
//! Intervals of a track never overlap and come in order of time. Those of different tracks come in the order in
//! which they ended.
//!
//! Events are known by the names that LTTng's tracers, Tompion and perf give them. **At the start** nothing is known but
//! what the events of a state dump say; what an event shows to have been going on, such as a system call's return,
//! says nothing about when it began. **Where events were lost**, what they could have changed becomes
//! [`State::Unknown`], until an event shows it again; [`Interval::seen`] says whether an interval's ends were seen.
//! Unknown means unknown: nothing is guessed.

mod classes;
mod engine;
mod facts;
mod machine;
mod spans;

use std::sync::Arc;

pub use engine::{Engine, Overwritten, Recorded, run};
pub use facts::{Fact, Facts, Says, Threads};

/// A machine, by the order in which the engine met its name: traces of one host are of one machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MachineId(pub u16);

/// A thread of a machine. Numbers are used again when a thread is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadId {
    /// Its machine.
    pub machine: MachineId,
    /// Its number, as the kernel has it; as its namespace has it in traces of programs.
    pub tid: i32,
}

/// What an interval is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Track {
    /// A processor.
    Cpu(MachineId, u32),
    /// Handlers of interrupts on a processor. An interrupt that interrupts another one stands at depth 1.
    Interrupt(MachineId, u32, u8),
    /// Soft interrupts on a processor.
    SoftInterrupt(MachineId, u32),
    /// A thread, as the scheduler sees it. Idle threads have none.
    Thread(ThreadId),
    /// What the thread asked the kernel for.
    Syscall(ThreadId),
    /// What the thread's program does, by its own events; the outermost at depth 0.
    Span(ThreadId, u16),
}

/// What is going on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Nobody saw it: before the first event that tells, or after lost ones.
    Unknown,
    /// A processor has nothing to run.
    Idle,
    /// A processor runs this thread. Interrupts have tracks of their own.
    Runs {
        /// The thread's number.
        tid: i32,
    },
    /// A thread was made and not woken yet.
    New,
    /// A thread runs.
    Running {
        /// On which processor.
        cpu: u32,
    },
    /// A thread could run, and waits for a processor.
    Ready(Why),
    /// A thread waits for something else.
    Blocked {
        /// How it waits.
        sleep: Sleep,
        /// The system call that it is in, by name; none if it is in none, or none was seen.
        syscall: Option<Arc<str>>,
    },
    /// A system call, by name.
    Syscall(Arc<str>),
    /// An interrupt's number.
    Interrupt(i64),
    /// A soft interrupt's number.
    SoftInterrupt(i64),
    /// A span, by name.
    Span(Arc<str>),
    /// A function, by its address.
    Function(u64),
}

/// Why a thread could run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It was woken.
    Woken(Waker),
    /// It was put aside for this thread; 0 is the idle thread.
    Preempted {
        /// The number of the thread that ran instead.
        by: i32,
    },
    /// A state dump says so.
    Told,
}

/// Who woke a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waker {
    /// The thread of this number, or an interrupt amidst it for which there is no event: that of the processor's own
    /// timer, for one.
    Thread(i32),
    /// A handler of an interrupt, on this processor.
    Interrupt {
        /// The processor.
        cpu: u32,
    },
    /// Whatever ran on a processor where that was not known.
    Unknown,
}

/// How a blocked thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// A signal would wake it.
    Interruptible,
    /// Nothing but what it waits for wakes it: a disk, a lock of the kernel.
    Uninterruptible,
    /// It was stopped, or is traced.
    Stopped,
    /// A state dump says no more than that it waits.
    Told,
}

/// Which ends of an interval were seen. The others are where knowledge begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// An event was the beginning.
    pub begin: bool,
    /// An event was the end.
    pub end: bool,
}

/// A state from one moment to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Whose state.
    pub track: Track,
    /// What was going on.
    pub state: State,
    /// From when, in nanoseconds since the epoch.
    pub begin: i64,
    /// To when; never before `begin`. Scheduling states of no duration are left out.
    pub end: i64,
    /// Whether these moments were seen.
    pub seen: Seen,
}

/// Something that happened at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instant {
    /// When, in nanoseconds since the epoch.
    pub time: i64,
    /// Where.
    pub machine: MachineId,
    /// What.
    pub what: Happening,
}

/// What can happen at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// A thread was woken.
    Wakeup {
        /// Its number.
        tid: i32,
        /// By whom.
        waker: Waker,
    },
    /// A thread was made.
    Fork {
        /// By the thread of this number.
        parent: i32,
        /// The new thread.
        child: i32,
    },
    /// A thread has begun to end: it calls nobody any more.
    Exit {
        /// Its number.
        tid: i32,
    },
    /// A thread is no more; its number can be used again.
    Gone {
        /// Its number.
        tid: i32,
    },
    /// The name, or the process, of a thread is known, or is another one than before.
    Named {
        /// The thread's number.
        tid: i32,
        /// Its name.
        name: String,
        /// The process to which it belongs, if that was told.
        pid: Option<i32>,
    },
    /// Events were lost up to now: what they could have changed is unknown.
    Loss {
        /// On this processor, of the kernel; nothing for losses of programs.
        cpu: Option<u32>,
        /// Since when.
        since: i64,
        /// How many events, or packets.
        count: u64,
    },
}

/// What is made of intervals and instants.
pub trait Visitor {
    /// An interval has ended.
    fn interval(&mut self, interval: &Interval);

    /// Something has happened.
    fn instant(&mut self, instant: &Instant) {
        let _ = instant;
    }
}

/// A state that lasts.
#[derive(Clone, Debug)]
struct Going {
    state: State,
    since: i64,
    /// Whether an event was its beginning.
    seen: bool,
}

impl Going {
    /// Unknown from a moment on.
    fn unknown(since: i64) -> Self {
        Self { state: State::Unknown, since, seen: false }
    }

    /// Ends it; `seen` says whether by an event.
    fn end(self, track: Track, end: i64, seen: bool) -> Interval {
        let seen = Seen { begin: self.seen, end: seen };
        Interval { track, state: self.state, begin: self.since, end: end.max(self.since), seen }
    }

    /// Goes on with another state. Reports the one before, unless it took no time.
    fn turn(&mut self, track: Track, next: Going, visitor: &mut dyn Visitor) {
        if next.state == State::Unknown && self.state == State::Unknown {
            return;
        }
        let (now, seen) = (next.since.max(self.since), next.seen);
        let before = std::mem::replace(self, Going { since: now, ..next });
        if before.since < now {
            visitor.interval(&before.end(track, now, seen));
        }
    }

    /// Reports it as it stands at the end, unless it took no time.
    fn finish(self, track: Track, now: i64, visitor: &mut dyn Visitor) {
        if self.since < now {
            visitor.interval(&self.end(track, now, false));
        }
    }
}
