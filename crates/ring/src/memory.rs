//! Memory that rings live in: words that several threads and processes use at once.
//!
//! Under `--cfg loom` it is a model: words that remember their last values, and which threads may
//! still see which value. Rings are then so small that loom tries all ways in which threads can
//! take turns. It also tries all values that each load may return by the language's memory model,
//! which is weaker than the processor's. The code above it is the same in both cases. [`Fault`]
//! puts known mistakes into it, for tests of these tests.

#[cfg(loom)]
mod model;
#[cfg(not(loom))]
mod real;

#[cfg(loom)]
pub(crate) use model::{Part, fence, has, likely_cpu, now};
#[cfg(loom)]
pub use model::{SharedMap, break_by};
#[cfg(not(loom))]
pub use real::SharedMap;
#[cfg(not(loom))]
pub(crate) use real::{Part, fence, has, likely_cpu, now};

/// A moment, and where it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    /// Time, in the recording's clock.
    pub(crate) time: u64,
    /// The CPU at this moment.
    pub(crate) cpu: u32,
}

/// Source of timestamps of rings in reserve form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The TSC, read by `rdtscp`.
    Tsc,
    /// The TSC, on a processor without `rdtscp`, or where that doesn't tell the CPU.
    TscAlone,
    /// CLOCK_MONOTONIC.
    Monotonic,
    /// CLOCK_MONOTONIC by a real system call: this process may not read the TSC.
    MonotonicWithoutTsc,
}

/// A mistake that the code can be given, to see that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The commit word is stored before the record.
    CommitEarly,
    /// Release stores, and release in additions, are relaxed.
    NoRelease,
    /// The stores that overwrite a lap aren't ordered behind the reservation.
    NoReleaseFence,
    /// The history's reader doesn't look again at the position.
    NoSecondLook,
    /// The reader gives room back before it has copied.
    ReleasedEarly,
    /// Sub-buffers are entered whatever was committed of an earlier lap.
    CounterIgnored,
    /// Sub-buffers are entered whatever the reader has taken.
    FullIgnored,
    /// An event is refused without another look at the position.
    RefusedStale,
    /// The clock is read before the position.
    TimeOutside,
    /// Writers look at the room without a fence before.
    NoRoomFence,
    /// Pages are emptied without another look at the position.
    EmptiedUnlooked,
    /// The reader's copy is made without an order.
    CopyInAnyOrder,
}
