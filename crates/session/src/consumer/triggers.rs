//! The consumer's part of triggers and of snapshots that go on: what comes is saved before it is
//! overwritten, losses are counted, firings are noted, and history is dropped.

use std::{sync::Arc, time::Instant};

use tompion_firings::Sightings;
use tompion_manifest::{self as manifest, Firing};
use tompion_triggers::{Count, Counts, Trigger, event_triggers};

use tompion_kernel_trace::MAX_UNSAVED_PERCENT;

use super::{Backlog, Consumer};
use crate::process::Process;

/// Maximum number of firings in the manifest.
const MAX_FIRINGS: usize = 256;
/// Maximum size of their texts together, in bytes.
const MAX_FIRINGS_TEXT: usize = 64 << 10;

/// Triggers on events, and where their matches go.
pub struct EventWatch {
    sightings: Arc<Sightings>,
    /// Fields that each trigger tells.
    fields: Vec<Vec<String>>,
}

impl EventWatch {
    /// Watches events for these triggers.
    pub fn new(sightings: Arc<Sightings>, triggers: &[Trigger]) -> Self {
        let fields = event_triggers(triggers).map(|(trigger, _)| trigger.fields.clone()).collect();
        Self { sightings, fields }
    }

    /// Takes the new matches of a process.
    fn look(&self, process: &mut Process, clock_offset_ns: i64) {
        process.take_matches(&self.fields, clock_offset_ns, |matches| self.sightings.add(matches));
    }
}

impl Consumer {
    /// Looks for matches of triggers on events, if there are such triggers.
    pub fn with_event_watch(self, event_watch: Option<EventWatch>) -> Self {
        Self { event_watch, ..self }
    }

    /// Looks for matches of triggers on events.
    pub(super) fn look_for_matches(&mut self) {
        let Some(watch) = &self.event_watch else { return };
        let offset = self.manifest.session.clock.realtime_offset_ns;
        let mut problems = Vec::new();
        for process in &mut self.processes {
            problems.extend(process.problem_of_triggers(watch.fields.len()));
            watch.look(process, offset);
        }
        problems.into_iter().for_each(|problem| self.report_once(problem));
    }

    /// Looks for the last matches of a process that has ended.
    pub(super) fn look_for_matches_of(&mut self, process: &mut Process) {
        let Some(watch) = &self.event_watch else { return };
        watch.look(process, self.manifest.session.clock.realtime_offset_ns);
        let problems = [process.problem_of_triggers(watch.fields.len()), process.problem_of_matches()];
        problems.into_iter().flatten().for_each(|problem| self.report_once(problem));
    }

    /// Counts for triggers, if one asks for it.
    pub fn with_counts(self, counts: Option<Arc<Counts>>) -> Self {
        Self { counts, ..self }
    }

    /// Notes how full rings are, if a trigger asks for it: before they are read.
    pub(super) fn note_fill(&mut self) {
        if self.counts.as_ref().is_some_and(|counts| counts.wants_fill()) {
            let fill = self.processes.iter().map(Process::fill_percent).max();
            self.fullest = self.fullest.max(fill.unwrap_or(0));
        }
    }

    /// Counts again, if a trigger asks for it.
    pub(super) fn count_for_triggers(&mut self) {
        let fill_percent = std::mem::take(&mut self.fullest).min(100);
        if let Some(counts) = &self.counts {
            let running = self.processes.iter().map(Process::appended);
            let appended = running.fold(self.appended_by_ended, u64::saturating_add);
            let count = Count { at: Instant::now(), lost: self.lost_events(), appended, fill_percent };
            counts.renew(count);
        }
    }

    /// Number of events that programs have lost, since the recording began.
    pub(super) fn lost_events(&self) -> u64 {
        let programs = self.manifest.sources.iter().filter(|source| source.kind != manifest::KERNEL);
        let ended = programs.flat_map(|source| source.lost.values().copied());
        let running = self.processes.iter().map(Process::lost_so_far);
        let all = ended.chain(running).chain([self.manifest.beyond_limits.lost]);
        all.fold(0, u64::saturating_add)
    }

    /// Notes in the manifest that a trigger has fired.
    pub(super) fn note_firing(&mut self, firing: Firing) {
        if !has_room(&self.manifest.firings, &firing) {
            self.manifest.beyond_limits.firings += 1;
            return;
        }
        self.manifest.firings.push(firing);
        if self.stopped.is_none() {
            self.write_manifest("the trigger");
        }
    }

    /// Saves what flight recorders have recorded since the last time, if a snapshot goes on and a
    /// ring is a quarter full of it.
    pub(super) fn save_what_comes(&mut self) {
        if self.copy_what_comes() {
            self.place_all();
            self.sample();
            self.convert(Backlog::All);
        }
    }

    /// Copies what [`Self::save_what_comes`] saves. The disk, and whatever else takes time, has to
    /// wait for it. Returns whether there was something. Where much waits already, a gap remains,
    /// which packets show.
    pub(super) fn copy_what_comes(&mut self) -> bool {
        let now = Instant::now();
        if self.saves_until.take_if(|until| *until <= now).is_some() || self.saves_until.is_none() {
            return false;
        }
        let most = self.pending_limit();
        let mut has_copied = false;
        for process in self.processes.iter_mut().filter(|process| process.pending_bytes() < most) {
            has_copied |= process.save_full_rings(MAX_UNSAVED_PERCENT);
        }
        has_copied
    }

    /// Drops the open chunk, or the history of flight recorders.
    pub(super) fn clear(&mut self) {
        if self.manifest.session.channel.mode == manifest::OVERWRITE {
            // What was copied is in the trace; only what was not is dropped.
            self.sample();
            self.convert(Backlog::All);
            self.processes.iter_mut().for_each(Process::drop_history);
        }
        self.drop_chunk();
    }
}

/// Whether a manifest with these firings has room for one more.
fn has_room(firings: &[Firing], more: &Firing) -> bool {
    let text = |firing: &Firing| {
        let captures = firing.captures.iter().filter_map(|capture| serde_json::to_string(capture).ok());
        captures.fold(firing.trigger.len() + firing.cause.len(), |sum, text| sum + text.len())
    };
    let all = firings.iter().map(text).fold(text(more), usize::saturating_add);
    firings.len() < MAX_FIRINGS && all <= MAX_FIRINGS_TEXT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn firings_in_the_manifest_are_limited_by_number_and_by_text() {
        let firing = |bytes| Firing { trigger: "x".repeat(bytes), ..Firing::default() };
        let half = MAX_FIRINGS_TEXT / 2;
        assert!(has_room(&vec![firing(10); MAX_FIRINGS - 1], &firing(10)));
        assert!(!has_room(&vec![firing(10); MAX_FIRINGS], &firing(10)));
        assert!(has_room(&[firing(half)], &firing(half)));
        assert!(!has_room(&[firing(half)], &firing(half + 1)));
        assert!(!has_room(&[], &firing(MAX_FIRINGS_TEXT + 1)));
    }
}
