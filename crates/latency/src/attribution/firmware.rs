//! System management interrupts: firmware that stops the CPU. The kernel sees only their counter.
//!
//! The counter is read when a local timer interrupt starts and when a late interval ends. So their
//! number between two such events on a CPU is known, but not their times.

use super::{
    CpuLog, EventLog,
    sched_events::{EventKind, SchedEvent},
};

/// Maximum age of the counter's previous reading before an interval, in nanoseconds. If it is
/// older, the interrupts may well have occurred before.
const MAX_COUNTER_AGE_NS: u64 = 10_000_000;

/// Number of interrupts that may have occurred on a CPU in an interval.
pub fn interrupts(noted: &CpuLog, begin: u64, end: u64) -> u64 {
    let came = |event: &SchedEvent| match event.kind {
        EventKind::Firmware { count, since } => {
            let is_near = since.saturating_add(MAX_COUNTER_AGE_NS) >= begin;
            (since < end && event.time > begin && is_near).then_some(u64::from(count))
        }
        _ => None,
    };
    noted.events.iter().filter_map(came).sum()
}

/// Number of interrupts that may have occurred in an interval. Each stops all CPUs, so it is the
/// maximum over the CPUs.
pub fn interrupts_of_all(history: &EventLog, begin: u64, end: u64) -> u64 {
    history.cpus.iter().map(|noted| interrupts(noted, begin, end)).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_long_before_does_not_count() {
        let noted = |since, time| CpuLog {
            events: vec![SchedEvent { time, kind: EventKind::Firmware { count: 2, since } }],
            ..CpuLog::default()
        };
        let (begin, end) = (50_000_000, 51_000_000);
        assert_eq!(interrupts(&noted(49_000_000, 51_200_000), begin, end), 2);
        assert_eq!(interrupts(&noted(50_100_000, 50_200_000), begin, end), 2);
        // Read before the interval, after it, and 11 ms before it.
        assert_eq!(interrupts(&noted(49_000_000, 50_000_000), begin, end), 0);
        assert_eq!(interrupts(&noted(51_000_000, 52_000_000), begin, end), 0);
        assert_eq!(interrupts(&noted(39_000_000, 51_200_000), begin, end), 0);
        let history = EventLog { cpus: vec![noted(49_000_000, 51_200_000); 3], ..EventLog::default() };
        assert_eq!(interrupts_of_all(&history, begin, end), 2);
    }
}
