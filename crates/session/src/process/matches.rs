//! Matches of triggers on events, taken from a process's memory.

use std::collections::BTreeMap;

use tompion_firings::{EventSource, MatchCounts, Matches};
use tompion_manifest::Capture;
use tompion_ring::captures;
use tompion_schema::Event;

use super::{Class, Process};

/// The process as its captured events see it.
struct Source<'a> {
    classes: &'a BTreeMap<u32, Class>,
    program: &'a str,
    pid: u32,
    clock_offset_ns: i64,
}

impl EventSource for Source<'_> {
    fn event(&mut self, number: u32) -> Option<&Event> {
        self.classes.get(&number).map(|class| &class.event)
    }

    fn frame(&self, tid: u32, time: u64) -> Capture {
        let time_ns = i64::try_from(time).unwrap_or(i64::MAX).saturating_add(self.clock_offset_ns);
        Capture { program: self.program.into(), pid: self.pid, tid, time_ns, ..Capture::default() }
    }
}

impl Process {
    /// Takes the new matches of triggers on events, which tell these fields.
    pub fn take_matches(
        &mut self,
        fields: &[Vec<String>],
        clock_offset_ns: i64,
        mut take: impl FnMut(Matches),
    ) {
        let found = self.match_counts.find_new(&self.control, fields.len());
        if found.is_empty() {
            return;
        }
        // The events are described there before they can match.
        self.read_catalog();
        let Self { classes, hello, pid, control, match_counts, .. } = self;
        let mut source = Source { classes, program: &hello.name, pid: *pid, clock_offset_ns };
        for trigger in found {
            let Some(fields) = fields.get(trigger) else { continue };
            let matches = match_counts.read(control, trigger, fields, &mut source);
            if matches.count != 0 {
                take(matches);
            }
        }
    }

    /// Whether its agent looks for triggers on events.
    pub fn supports_triggers(&self) -> bool {
        captures::is_supported(&self.control)
    }

    /// A line about triggers on events that its agent doesn't know, for the first time.
    pub fn problem_of_triggers(&mut self, triggers: usize) -> Option<String> {
        let unknown = self.match_counts.take_unknown(&self.control, triggers)?;
        let (name, version) = (&self.hello.name, &self.hello.agent_version);
        let of_it = format!("of {name} ({}): its libtompion {version} doesn't know them", self.pid);
        Some(format!("{unknown} of the triggers on events see nothing {of_it}"))
    }

    /// Goes on with the matches where a recorder that was killed has stopped.
    pub(super) fn resume_matches(&mut self) {
        self.match_counts = MatchCounts::resume(&self.control);
    }

    /// A line about matches of the process that are unknown, if there are any.
    pub fn problem_of_matches(&mut self) -> Option<String> {
        let refused = self.match_counts.refused();
        let unjudged = self.match_counts.take_unjudged(&self.control).unwrap_or(0);
        let name = format!("{} ({})", self.hello.name, self.pid);
        match (refused, unjudged) {
            (0, 0) => None,
            (0, _) => Some(format!("triggers could not look at {unjudged} of the events of {name}")),
            _ => Some(format!("{name} has claimed matches of triggers that can't be, {refused} times")),
        }
    }
}
