//! State of the recording as the consumer knows it, for calls of other programs.

use tompion_control::{self as control, EventCount, EventCounts, Following, Status};
use tompion_manifest::{self as manifest, RuleChange, Source};
use tompion_protocol::rules::Rules;

use super::{Backlog, Consumer, MAX_NOTICES};
use crate::{filter, process::Process};

/// Maximum number of bytes of rules in the manifest, for which room is kept on the disk.
const MAX_CHANGE_BYTES: usize = 128 << 10;
/// Largest `int` of varlink: programs could write any number into their rings.
const MAX_INT: u64 = i64::MAX as u64;
/// Cause of losses of processes that the manifest has no room for.
const BEYOND_LIMITS: &str = "beyond_limits";

impl Consumer {
    /// Adds to the state of the recording what the consumer knows of it.
    pub(super) fn complete_status(&self, mut status: Status) -> Status {
        let beyond = &self.manifest.beyond_limits;
        let is_recorder = |source: &&Source| source.kind == manifest::RECORDER;
        let sources: Vec<&Source> = self.manifest.sources.iter().filter(|it| !is_recorder(it)).collect();
        let more = (beyond.lost != 0).then_some((BEYOND_LIMITS, beyond.lost));
        let ended_lost = self.manifest.lost_by_cause().into_iter().chain(more);
        let events = sources.iter().map(|source| source.events).chain([beyond.events]);
        status.processes = self.processes.iter().map(|process| self.describe(process)).collect();
        status.ended_processes = (sources.len() as u64).saturating_add(beyond.processes);
        status.ended_events = events.fold(0, u64::saturating_add);
        status.ended_lost = losses(ended_lost);
        status.rejected_processes = self.manifest.rejected_processes;
        status.problems.extend(self.manifest.session.problems.iter().chain(&self.stopped).cloned());
        status
    }

    /// Counts the events that were converted so far, by name.
    pub(super) fn count_events(&self) -> EventCounts {
        let mut counts = self.ended_names.clone();
        self.processes.iter().for_each(|process| counts.add_trace(process.writer()));
        self.shared.iter().for_each(|shared| counts.add_trace(shared));
        let (by_name, other) = counts.into_parts();
        EventCounts {
            is_live: self.manifest.session.channel.mode != manifest::OVERWRITE,
            kernel: self.manifest.session.kernel,
            events: by_name.into_iter().map(|(event, events)| EventCount { event, events }).collect(),
            other,
        }
    }

    fn describe(&self, process: &Process) -> control::Process {
        let Source { name, command_line, events, lost, overwritten, losses_unknown, .. } =
            process.summary(self.root().path());
        control::Process {
            pid: process.pid,
            name: name.unwrap_or_default(),
            command_line,
            events,
            overwritten,
            lost: losses(lost.iter().map(|(cause, count)| (cause.as_str(), *count))),
            losses_unknown,
            rules: process.following(),
            triggers: self
                .event_watch
                .as_ref()
                .map_or(Following::Current, |watch| process.follows_triggers(watch.table())),
            appended: process.appended().min(MAX_INT),
            appended_bytes: process.appended_bytes().map(|bytes| bytes.min(MAX_INT)).collect(),
            fill_percent: process.fill_percent(),
            ring_bytes_in_all: process.ring_sizes().file_size(),
            ring_bytes: process.ring_sizes().ring_size(),
        }
    }

    /// Replaces the rules of all processes, and notes in the manifest that and when.
    pub(super) fn set_rules(&mut self, rules: &Rules) {
        let is_judged_here = rules.filter.as_deref().is_some_and(filter::needs_session)
            || self.processes.iter().any(Process::has_session_filter);
        if is_judged_here {
            // What was recorded by the old rules is judged by them.
            self.collect();
            self.place_all();
            self.sample();
            self.convert(Backlog::All);
        }
        self.processes.iter_mut().for_each(|process| process.set_rules(rules));
        self.note_rules(rules, None);
    }

    /// Notes in the manifest that rules have changed, and when; of the kernel's events, if there
    /// are words for them.
    pub(super) fn note_rules(&mut self, rules: &Rules, kernel: Option<Vec<String>>) {
        let realtime = self.manifest.session.clock.realtime_offset_ns;
        let change = RuleChange {
            time_ns: realtime.saturating_add_unsigned(tompion_os::monotonic_ns()),
            include: rules.include.clone(),
            exclude: rules.exclude.clone(),
            level: rules.level.number(),
            filter: rules.filter.clone(),
            kernel,
        };
        let changes = &self.manifest.rule_changes;
        let bytes = changes.iter().chain([&change]).map(RuleChange::size_in_manifest).sum::<usize>();
        if changes.len() >= MAX_NOTICES || bytes > MAX_CHANGE_BYTES {
            self.manifest.beyond_limits.rule_changes += 1;
            return;
        }
        self.manifest.rule_changes.push(change);
        if self.stopped.is_some() {
            return;
        }
        self.write_manifest("the new rules");
    }
}

fn losses<'a>(by_cause: impl IntoIterator<Item = (&'a str, u64)>) -> Vec<control::Loss> {
    let losses = by_cause.into_iter().map(|(cause, events)| control::Loss { cause: cause.into(), events });
    losses.collect()
}
