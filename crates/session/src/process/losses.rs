//! Losses of a process: those that it counts itself in memory that it shares, and those that this
//! side finds.
//!
//! A process can write any number over its counters. What no process can have lost in the time that
//! it took part is not counted: its losses are then unknown, and said to be.

use std::sync::atomic::Ordering;

use tompion_layout::{control, loss::Cause, ring::Geometry};
use tompion_manifest as manifest;

use super::Process;

/// More than any program can lose. A reader takes the largest number for a mistake of its own.
pub(super) const MAX_DISCARDED: u64 = 1 << 62;
/// Tolerance for clocks and the time of joining, in nanoseconds.
const CLOCK_SLACK_NS: u64 = 1_000_000_000;
/// The same for a recording that was not ended by its session: the last samples of the clock may be
/// missing.
const RECOVERY_SLACK_NS: u64 = 3_600_000_000_000;

/// The time in which a process can have lost events, in nanoseconds of CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug)]
pub(super) struct Participation {
    begin: u64,
    /// None while it goes on.
    end: Option<u64>,
    /// Whether a ring said once that more was lost than can be.
    pub says_what_cannot_be: bool,
}

impl Participation {
    /// Begins now.
    pub(super) fn begin() -> Self {
        Self { begin: tompion_os::monotonic_ns(), end: None, says_what_cannot_be: false }
    }

    /// Began at this time of CLOCK_MONOTONIC, at the earliest, and goes on.
    pub(super) fn since(begin: u64) -> Self {
        Self { begin, end: None, says_what_cannot_be: false }
    }

    /// Lay within a recording that is over, between two samples of its clock.
    pub(super) fn between(first: u64, last: u64) -> Self {
        let end = Some(last.saturating_add(RECOVERY_SLACK_NS));
        Self { begin: first, end, says_what_cannot_be: false }
    }

    /// Maximum number of events that so many processors can have lost: to count one takes more than
    /// a nanosecond.
    fn max_losses(self, cpus: u32) -> u64 {
        let end = self.end.unwrap_or_else(tompion_os::monotonic_ns);
        let span = end.saturating_sub(self.begin).saturating_add(CLOCK_SLACK_NS);
        span.saturating_mul(cpus.into()).min(MAX_DISCARDED)
    }
}

/// The losses of a process that can be.
#[derive(Debug)]
pub(super) struct Losses {
    /// Losses of all causes together.
    pub total: u64,
    /// Whether some of the process's counts are impossible, so that its losses are unknown.
    pub unknown: bool,
}

impl Process {
    /// The number, unless it can't be.
    pub(super) fn possible(&self, count: u64) -> Option<u64> {
        (count <= self.participation.max_losses(self.geometry.cpus())).then_some(count)
    }

    /// Losses for these causes.
    pub(super) fn losses(&self, causes: impl Fn(Cause) -> bool) -> Losses {
        let mut losses = Losses { total: 0, unknown: self.participation.says_what_cannot_be };
        for cause in Cause::ALL.into_iter().filter(|cause| causes(*cause)) {
            match self.lost(cause) {
                Some(count) => losses.total = losses.total.saturating_add(count),
                None => losses.unknown = true,
            }
        }
        losses
    }

    /// Number of events that the process has lost until now, as far as its counts are possible.
    pub fn lost_so_far(&self) -> u64 {
        self.losses(|_| true).total
    }

    /// Number of events that a ring has lost until now; none if the ring's count is impossible.
    pub(super) fn lost_in(&self, ring: usize) -> Option<u64> {
        let reader = self.reader(ring);
        let counts = Cause::ALL.into_iter().map(|cause| reader.lost(cause));
        self.possible(counts.fold(self.states[ring].unmet(), u64::saturating_add))
    }

    /// Events that reached the rings but not the disk, after writing was given up.
    fn not_written(&self) -> u64 {
        if !self.given_up {
            return 0;
        }
        let known = self.written_of_rings().saturating_add(self.overwritten());
        let known = known.saturating_add(self.refused()).saturating_add(self.filtered);
        let repeated = self.chunk.as_ref().map_or(0, |chunk| chunk.repeated);
        let dropped = self.states.iter().map(|state| state.dropped).fold(repeated, u64::saturating_add);
        let known = known.saturating_add(self.unfinished()).saturating_add(dropped);
        self.appended().saturating_sub(known)
    }

    /// Events whose records this side has found to be incomplete for ever.
    fn unfinished(&self) -> u64 {
        self.states.iter().map(|state| state.mark.tally.unfinished).fold(0, u64::saturating_add)
    }

    fn overwritten(&self) -> u64 {
        self.states.iter().map(|state| state.mark.tally.overwritten).fold(0, u64::saturating_add)
    }

    pub(super) fn refused(&self) -> u64 {
        let rings = self.states.iter().map(|state| state.mark.tally.refused);
        rings.fold(self.refused.saturating_add(u64::from(self.was_cut())), u64::saturating_add)
    }

    /// Number of events that the process lost for a reason; none if its count is impossible.
    fn lost(&self, cause: Cause) -> Option<u64> {
        let count = match cause {
            // Counted by this side alone.
            Cause::Invalid => return Some(self.refused()),
            Cause::NotPersisted => {
                let missing = self.states.iter().map(|state| state.mark.tally.missing);
                missing.fold(self.pinned_missing, u64::saturating_add)
            }
            Cause::NotWritten => self.not_written(),
            _ => self.lost_in_shared(cause),
        };
        self.possible(count)
    }

    /// Value of the counters that it shares.
    fn lost_in_shared(&self, cause: Cause) -> u64 {
        let without_ring = control::OFFSET_LOST + cause as usize * 8;
        let rings = (0..self.states.len()).map(|ring| self.reader(ring).lost(cause));
        let found = if cause == Cause::Unfinished { self.unfinished() } else { 0 };
        let shared = rings.fold(found, u64::saturating_add);
        // Ordering: a counter by itself.
        shared.saturating_add(self.control.word(without_ring).load(Ordering::Relaxed))
    }

    /// Number of events that its rings have taken, by its own count.
    pub fn appended(&self) -> u64 {
        (0..self.states.len()).map(|ring| self.reader(ring).events()).fold(0, u64::saturating_add)
    }

    /// Bytes that each of its rings has taken, by its own count.
    pub fn appended_bytes(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.states.len()).map(|ring| self.reader(ring).written())
    }

    /// Sizes of its rings.
    pub fn ring_sizes(&self) -> Geometry {
        self.geometry
    }

    /// Share of its fullest ring that waits to be read, or that holds history, in percent. The
    /// process could have changed the counters.
    pub fn fill_percent(&self) -> u64 {
        let size = self.geometry.ring_size().max(1);
        let fill = |ring| {
            let reader = self.reader(ring);
            // A flight recorder gives no room back.
            reader.written().saturating_sub(reader.released()).min(size).saturating_mul(100) / size
        };
        (0..self.states.len()).map(fill).max().unwrap_or(0)
    }

    /// The process in the manifest.
    pub fn summary(&self, root: &std::path::Path) -> manifest::Source {
        let folder = self.trace_folder();
        let path = folder.strip_prefix(root).unwrap_or(&folder).to_string_lossy().into_owned();
        let overwritten = self.possible(self.overwritten());
        manifest::Source {
            path,
            kind: manifest::USER.into(),
            pid: Some(self.pid.into()).filter(|pid| *pid != 0),
            name: Some(self.hello.name.clone()),
            executable: Some(self.hello.executable.clone()).filter(|path| !path.is_empty()),
            inner_pid: self.lineage.inner_pid.map(i64::from),
            parent: self.lineage.parent.into(),
            command_line: self.lineage.command_line.clone(),
            producer: Some(manifest::producer(self.form).into()),
            end: Some(self.end.clone().unwrap_or_else(|| manifest::RUNNING.into())),
            events: self.written(),
            lost: manifest::losses(|cause| self.lost(cause).unwrap_or(0)),
            overwritten: overwritten.unwrap_or(0),
            losses_unknown: overwritten.is_none()
                || self.losses(|_| true).unknown
                || !self.damage_on_medium.is_empty(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_processor_loses_more_than_one_event_in_a_nanosecond() {
        let over = Participation::between(1_000, 2_000);
        let span = 1_000 + RECOVERY_SLACK_NS + CLOCK_SLACK_NS;
        assert_eq!((over.max_losses(1), over.max_losses(4)), (span, 4 * span));
        assert_eq!(Participation::between(0, u64::MAX).max_losses(u32::MAX), MAX_DISCARDED);
        let most = Participation::begin().max_losses(2);
        assert!((2 * CLOCK_SLACK_NS..MAX_DISCARDED).contains(&most), "{most}");
    }
}
