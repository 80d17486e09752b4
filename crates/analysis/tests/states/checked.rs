//! Visitor that checks the guarantees about intervals.

use std::collections::{HashMap, HashSet};

use tompion_analysis::state::{Happening, Instant, Interval, ThreadId, Track, Visitor};

/// Stores intervals and instants, and fails if intervals overlap, leave gaps, or come too late.
#[derive(Default)]
pub struct Checked {
    pub intervals: Vec<Interval>,
    pub instants: Vec<Instant>,
    /// End of each track's last interval.
    ends: HashMap<Track, i64>,
    /// Threads that have ended since their last interval.
    ended: HashSet<ThreadId>,
    /// Latest end of all intervals.
    latest: i64,
}

impl Visitor for Checked {
    fn interval(&mut self, interval: &Interval) {
        let Interval { track, begin, end, .. } = *interval;
        assert!(begin <= end, "{interval:?}");
        // That a span may have ended in a gap is known when the gap ends.
        if !matches!(track, Track::Span(..)) || interval.seen.end {
            assert!(
                self.latest <= end,
                "ended before another one was reported: {interval:?}, {}",
                self.latest
            );
            self.latest = end;
        }
        let before = self.ends.insert(track, end);
        if let Some(before) = before {
            assert!(before <= begin, "overlaps the one before, which ends at {before}: {interval:?}");
        }
        match track {
            Track::Cpu(..) => {
                assert!(before.is_none_or(|before| before == begin), "a gap before {interval:?}")
            }
            Track::Thread(thread) => {
                let may_begin = self.ended.remove(&thread);
                assert!(
                    may_begin || before.is_none_or(|before| before == begin),
                    "a gap before {interval:?}"
                );
                assert!(begin < end, "{interval:?}");
            }
            _ => {}
        }
        self.intervals.push(interval.clone());
    }

    fn instant(&mut self, instant: &Instant) {
        if let Happening::Gone { tid } = instant.what {
            self.ended.insert(ThreadId { machine: instant.machine, tid });
        }
        self.instants.push(instant.clone());
    }
}

impl Checked {
    /// Returns the number of instants of a kind.
    pub fn count(&self, is_wanted: impl Fn(&Happening) -> bool) -> usize {
        self.instants.iter().filter(|instant| is_wanted(&instant.what)).count()
    }

    /// Returns the total duration of intervals of a kind, in nanoseconds.
    pub fn total(&self, is_wanted: impl Fn(&Interval) -> bool) -> i64 {
        self.intervals.iter().filter(|interval| is_wanted(interval)).map(|it| it.end - it.begin).sum()
    }

    /// Returns the intervals of a kind.
    pub fn of(&self, is_wanted: impl Fn(&Interval) -> bool) -> Vec<&Interval> {
        self.intervals.iter().filter(|interval| is_wanted(interval)).collect()
    }
}
