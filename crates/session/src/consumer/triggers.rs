//! The consumer's part of triggers and of snapshots that go on: what comes is saved before it is
//! overwritten, losses are counted, firings are noted, and history is dropped.

use std::{sync::Arc, time::Instant};

use tompion_firings::{FiringTrace, Origin, Sightings};
use tompion_manifest::{self as manifest, Firing, TriggerChange};
use tompion_triggers::{Count, Counts, EventTable};

use tompion_kernel_trace::MAX_UNSAVED_PERCENT;

use super::{Backlog, Consumer, MAX_NOTICES, chunks::Chunks, completion::STILL_RUNNING};
use crate::{messages::reason, process::Process};

/// Triggers on events, and where their matches go.
#[derive(Debug)]
pub struct EventWatch {
    sightings: Arc<Sightings>,
    /// The triggers.
    table: EventTable,
    /// Whether some are on events that do not come.
    has_silences: bool,
}

/// Triggers that replace others.
#[derive(Debug)]
pub struct NewTriggers {
    /// Texts of all.
    pub texts: Vec<String>,
    /// Those on events, if there are or have been any.
    pub event_watch: Option<EventWatch>,
    /// Counts for them, if one asks for it.
    pub counts: Option<Arc<Counts>>,
}

impl EventWatch {
    /// Watches events for these triggers.
    pub fn new(sightings: Arc<Sightings>, table: EventTable) -> Self {
        let has_silences = table.has_silences();
        Self { sightings, table, has_silences }
    }

    /// The triggers.
    pub fn table(&self) -> &EventTable {
        &self.table
    }

    /// Takes the new matches of a process.
    fn look(&self, process: &mut Process, clock_offset_ns: i64) {
        process.take_matches(&self.table, clock_offset_ns, |matches| self.sightings.add(matches));
        if self.has_silences {
            process.take_silent(&self.table).into_iter().for_each(|silent| self.sightings.add_silent(silent));
        }
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
            problems.extend(process.problem_of_triggers());
            watch.look(process, offset);
        }
        problems.into_iter().for_each(|problem| self.report_once(problem));
    }

    /// Looks for the last matches of a process that has ended.
    pub(super) fn look_for_matches_of(&mut self, process: &mut Process) {
        let Some(watch) = &self.event_watch else { return };
        watch.look(process, self.manifest.session.clock.realtime_offset_ns);
        let waited = process.end_silences(&watch.table);
        let problems = [process.problem_of_triggers(), process.problem_of_matches()];
        problems.into_iter().flatten().for_each(|problem| self.report_once(problem));
        if process.end.as_deref() != Some(STILL_RUNNING) {
            self.tell_unwatched(waited);
        }
    }

    /// Says that silences are not looked for any more, with the lines of a process.
    fn tell_unwatched(&mut self, lines: Vec<String>) {
        for line in lines.into_iter().take(MAX_NOTICES.saturating_sub(self.reported_silences)) {
            self.reported_silences += 1;
            (self.notice)(&line);
        }
    }

    /// A process has closed its connection: it is about to end, or has become another program.
    pub(super) fn disconnect(&mut self, key: u64) {
        let Some(process) = self.processes.iter_mut().find(|process| process.key == key) else { return };
        process.disconnect();
        let table = self.event_watch.as_ref().map(|watch| &watch.table);
        let waited = table.map(|table| process.end_silences(table)).unwrap_or_default();
        self.tell_unwatched(waited);
    }

    /// Replaces the triggers: those on events in all processes. Matches of the ones before are
    /// taken first. Notes the change in the manifest.
    pub(super) fn set_triggers(&mut self, new: NewTriggers) {
        self.look_for_matches();
        let NewTriggers { texts, event_watch, counts } = new;
        (self.event_watch, self.counts) = (event_watch, counts);
        if let Some(watch) = &self.event_watch {
            self.processes.iter_mut().for_each(|process| process.set_triggers(watch.table()));
        }
        // What was lost before is no loss for them.
        self.count_for_triggers();
        self.note_triggers(texts);
    }

    fn note_triggers(&mut self, triggers: Vec<String>) {
        let realtime = self.manifest.session.clock.realtime_offset_ns;
        let change =
            TriggerChange { time_ns: realtime.saturating_add_unsigned(tompion_os::monotonic_ns()), triggers };
        if !tompion_firings::has_room_for_change(&self.manifest.trigger_changes, &change) {
            self.manifest.beyond_limits.trigger_changes += 1;
            return;
        }
        self.manifest.trigger_changes.push(change);
        if self.stopped.is_none() {
            self.write_manifest("the new triggers");
        }
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

    /// Notes in the trace and in the manifest that a trigger has fired.
    pub(super) fn note_firing(&mut self, firing: Firing) {
        self.write_firing(&firing);
        if !tompion_firings::has_room_for_firing(&self.manifest.firings, &firing) {
            self.manifest.beyond_limits.firings += 1;
            return;
        }
        self.manifest.firings.push(firing);
        if self.stopped.is_none() {
            self.write_manifest("the trigger");
        }
    }

    /// Writes a firing into the recorder's own trace.
    fn write_firing(&mut self, firing: &Firing) {
        if self.stopped.is_some() || self.jobs.is_some() {
            return;
        }
        let root = self.chunks.as_ref().map_or(&self.folder, Chunks::open);
        let clock_offset_ns = self.manifest.session.clock.realtime_offset_ns;
        let host = &self.host;
        let trace = self
            .firing_trace
            .get_or_insert_with(|| FiringTrace::begin(root, Origin { host, clock_offset_ns }));
        if let Err(error) = trace.write(firing) {
            self.manifest.beyond_limits.firing_events += 1;
            self.report_once(format!("a firing is not in the trace: {}", reason(&error)));
        }
    }

    /// Ends the trace of firings, and adds it to the manifest: the recording, or a chunk, ends.
    pub(super) fn end_firing_trace(&mut self) {
        let Some(trace) = self.firing_trace.take() else { return };
        match trace.finish() {
            Ok((source, beyond)) => {
                self.manifest.beyond_limits.firing_events += beyond;
                if let Some(source) = source {
                    self.chunks.iter_mut().for_each(|chunks| chunks.add_source(source.clone()));
                    self.add_source(source);
                }
            }
            Err(error) => {
                self.report_once(format!("the trace of firings is not complete: {}", reason(&error)))
            }
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
