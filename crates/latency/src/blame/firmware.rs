//! System management interrupts: the processor's own firmware, which the kernel can't see but by their counter.
//!
//! It is read when a local timer's interrupt begins, and when a latency ends that is too long; so what is known is that so many
//! came between two such moments on a CPU.

use super::{
    History, Noted,
    moments::{Moment, What},
};

/// How long before a piece of time the counter may have been read last, in nanoseconds: beyond that, nobody knows whether they came
/// in that piece.
const LONGEST_LOOK: u64 = 10_000_000;

/// How many may have come on a CPU in a piece of time.
pub fn interrupts(noted: &Noted, begin: u64, end: u64) -> u64 {
    let came = |moment: &Moment| match moment.what {
        What::Firmware { count, since } => {
            let is_near = since.saturating_add(LONGEST_LOOK) >= begin;
            (since < end && moment.time > begin && is_near).then_some(u64::from(count))
        }
        _ => None,
    };
    noted.moments.iter().filter_map(came).sum()
}

/// How many may have come in a piece of time: each comes to all CPUs at once, so that of the CPU which has most.
pub fn interrupts_of_all(history: &History, begin: u64, end: u64) -> u64 {
    history.cpus.iter().map(|noted| interrupts(noted, begin, end)).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_long_before_does_not_count() {
        let noted = |since, time| Noted {
            moments: vec![Moment { time, what: What::Firmware { count: 2, since } }],
            ..Noted::default()
        };
        let (begin, end) = (50_000_000, 51_000_000);
        assert_eq!(interrupts(&noted(49_000_000, 51_200_000), begin, end), 2);
        assert_eq!(interrupts(&noted(50_100_000, 50_200_000), begin, end), 2);
        // The counter was read before, behind it, and 11 ms before.
        assert_eq!(interrupts(&noted(49_000_000, 50_000_000), begin, end), 0);
        assert_eq!(interrupts(&noted(51_000_000, 52_000_000), begin, end), 0);
        assert_eq!(interrupts(&noted(39_000_000, 51_200_000), begin, end), 0);
        let history = History { cpus: vec![noted(49_000_000, 51_200_000); 3], ..History::default() };
        assert_eq!(interrupts_of_all(&history, begin, end), 2);
    }
}
