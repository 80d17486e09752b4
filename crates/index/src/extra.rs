//! Data of entries beside label and times, by the kind of the entry.
//!
//! The kind of an entry tells which data it has, so a number without a tag is stored. Only a
//! running slice has two meanings: the thread on a CPU, or the CPU of a thread. Its lowest bit
//! tells them apart. Numbers of tracks and CPUs are stored plus 1, since 0 is no data.

use crate::slice_kind;

/// Bits of the kind of a wakeup source.
const SOURCE_BITS: u32 = 3;

/// Data of an entry, by its kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Extra {
    /// No data, or unknown data.
    #[default]
    None,
    /// Track of the thread that a CPU runs, or of the first thread that preempted another one.
    Thread(u32),
    /// CPU on which a thread runs.
    Cpu(u32),
    /// Source of the wakeup of a runnable thread.
    WokenBy(WakeupSource),
    /// Number of an interrupt or a softirq.
    Interrupt(i64),
    /// Address of a function.
    Address(u64),
    /// Deadline of a job in nanoseconds; never 0.
    Deadline(u64),
    /// Lane in which an arrow ends.
    Lane(u32),
}

/// Source of a wakeup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WakeupSource {
    /// Thread with this track.
    Thread(u32),
    /// Interrupt handler or softirq on this CPU.
    Interrupt(u32),
    /// Timer on this CPU.
    Timer(u32),
    /// Timer of the thread's own sleep, on this CPU.
    OwnTimer(u32),
    /// The thread of this track or an interrupt in it woke the thread; events don't tell which.
    During(u32),
}

impl Extra {
    /// Returns the number that an entry of this kind stores.
    pub fn encode(self, kind: u8) -> u64 {
        let is_running = kind == slice_kind::RUNNING;
        match self {
            Self::None => 0,
            Self::Thread(track) if is_running => (u64::from(track) << 1) + 1,
            Self::Cpu(cpu) => (u64::from(cpu) << 1 | 1) + 1,
            Self::Thread(track) => u64::from(track) + 1,
            Self::WokenBy(source) => source.encode(),
            Self::Interrupt(number) => number as u64,
            Self::Address(number) | Self::Deadline(number) => number,
            Self::Lane(lane) => lane.into(),
        }
    }

    /// Returns the data of an entry of this kind; `None` if the number is invalid.
    pub fn decode(kind: u8, number: u64) -> Option<Self> {
        let small = |number: u64| u32::try_from(number).ok();
        Some(match (kind, number) {
            (slice_kind::INTERRUPT | slice_kind::SOFTIRQ, _) => Self::Interrupt(number as i64),
            (slice_kind::FUNCTION, _) => Self::Address(number),
            (slice_kind::WAKEUP | slice_kind::FLOW, _) => Self::Lane(small(number)?),
            (_, 0) => Self::None,
            (slice_kind::RUNNING, _) if (number - 1) & 1 == 1 => Self::Cpu(small((number - 1) >> 1)?),
            (slice_kind::RUNNING, _) => Self::Thread(small((number - 1) >> 1)?),
            (slice_kind::RUNNABLE_PREEMPTED, _) => Self::Thread(small(number - 1)?),
            (slice_kind::RUNNABLE, _) => Self::WokenBy(WakeupSource::decode(number)?),
            (slice_kind::JOB | slice_kind::LATE_JOB, _) => Self::Deadline(number),
            _ => return None,
        })
    }

    /// Returns the track of a thread that ran.
    pub fn thread(self) -> Option<u32> {
        match self {
            Self::Thread(track) => Some(track),
            _ => None,
        }
    }

    /// Returns the CPU on which a thread runs.
    pub fn cpu(self) -> Option<u32> {
        match self {
            Self::Cpu(cpu) => Some(cpu),
            _ => None,
        }
    }
}

impl WakeupSource {
    fn encode(self) -> u64 {
        let (kind, value) = match self {
            Self::Thread(track) => (1, track),
            Self::Interrupt(cpu) => (2, cpu),
            Self::Timer(cpu) => (3, cpu),
            Self::OwnTimer(cpu) => (4, cpu),
            Self::During(track) => (5, track),
        };
        u64::from(value) << SOURCE_BITS | kind
    }

    fn decode(number: u64) -> Option<Self> {
        let value = u32::try_from(number >> SOURCE_BITS).ok()?;
        Some(match number & ((1 << SOURCE_BITS) - 1) {
            1 => Self::Thread(value),
            2 => Self::Interrupt(value),
            3 => Self::Timer(value),
            4 => Self::OwnTimer(value),
            5 => Self::During(value),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_comes_back_as_it_was() {
        let all = [
            (slice_kind::RUNNING, Extra::Thread(0)),
            (slice_kind::RUNNING, Extra::Thread(u32::MAX)),
            (slice_kind::RUNNING, Extra::Cpu(0)),
            (slice_kind::RUNNING, Extra::Cpu(u32::MAX)),
            (slice_kind::RUNNING, Extra::None),
            (slice_kind::RUNNABLE_PREEMPTED, Extra::Thread(7)),
            (slice_kind::RUNNABLE, Extra::WokenBy(WakeupSource::Thread(0))),
            (slice_kind::RUNNABLE, Extra::WokenBy(WakeupSource::Interrupt(3))),
            (slice_kind::RUNNABLE, Extra::WokenBy(WakeupSource::Timer(3))),
            (slice_kind::RUNNABLE, Extra::WokenBy(WakeupSource::OwnTimer(3))),
            (slice_kind::RUNNABLE, Extra::WokenBy(WakeupSource::During(u32::MAX))),
            (slice_kind::INTERRUPT, Extra::Interrupt(0)),
            (slice_kind::SOFTIRQ, Extra::Interrupt(-1)),
            (slice_kind::FUNCTION, Extra::Address(u64::MAX)),
            (slice_kind::LATE_JOB, Extra::Deadline(5_000_000)),
            (slice_kind::WAKEUP, Extra::Lane(0)),
            (slice_kind::SLEEPING, Extra::None),
        ];
        for (kind, extra) in all {
            assert_eq!(Extra::decode(kind, extra.encode(kind)), Some(extra), "kind {kind}");
        }
    }

    #[test]
    fn invalid_numbers_have_no_data() {
        for (kind, number) in [
            (slice_kind::RUNNING, u64::MAX),
            (slice_kind::RUNNABLE, 6),
            (slice_kind::RUNNABLE_PREEMPTED, 1 << 40),
            (slice_kind::FLOW, 1 << 32),
            (slice_kind::IDLE, 1),
        ] {
            assert_eq!(Extra::decode(kind, number), None, "kind {kind}");
        }
    }
}
