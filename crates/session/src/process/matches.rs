//! Matches of triggers on events, taken from a process's memory.

use std::{
    collections::BTreeMap,
    sync::atomic::{Ordering, fence},
};

use tompion_control::Following;
use tompion_firings::{EventSource, Matches, Silent};
use tompion_manifest::Capture;
use tompion_ring::captures;
use tompion_schema::Event;
use tompion_triggers::EventTable;

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
    /// Takes the new matches of triggers on events.
    pub fn take_matches(&mut self, table: &EventTable, clock_offset_ns: i64, mut take: impl FnMut(Matches)) {
        if !self.match_counts.has_new(&self.control) {
            return;
        }
        let found = self.match_counts.find_new(&self.control, table);
        // The events are described there before they can match.
        self.read_catalog();
        let Self { classes, hello, pid, control, match_counts, .. } = self;
        let mut source = Source { classes, program: &hello.name, pid: *pid, clock_offset_ns };
        for (trigger, fields) in found {
            let matches = match_counts.read(control, trigger, fields, &mut source);
            if matches.count != 0 {
                take(matches);
            }
        }
    }

    /// Takes silences of triggers that have just become too long.
    pub fn take_silent(&mut self, table: &EventTable) -> Vec<Silent> {
        self.match_counts.take_silent(table, (&self.hello.name, self.pid))
    }

    /// Ends the watch for silences. Returns a line for each event that was waited for.
    pub fn end_silences(&mut self, table: &EventTable) -> Vec<String> {
        let globs = self.match_counts.end_silences(table);
        let line = |glob: String| {
            let (name, pid) = (&self.hello.name, self.pid);
            format!("{name} ({pid}) has gone, so that {glob} is not missed there")
        };
        globs.into_iter().map(line).collect()
    }

    /// Whether its agent looks for triggers on events.
    pub fn supports_triggers(&self) -> bool {
        captures::is_supported(&self.control)
    }

    /// Replaces the triggers on events, and tells the agent, if it can follow.
    pub fn set_triggers(&mut self, table: &EventTable) {
        if self.match_counts.change(&self.control, table) {
            // Ordering: as in `set_rules`.
            fence(Ordering::SeqCst);
            self.announce_rules();
        }
    }

    /// Whether the process has all of these triggers.
    pub fn follows_triggers(&self, table: &EventTable) -> Following {
        let listens = self.has_announced_thread();
        let is_given = self.supports_triggers() && self.match_counts.has_all(table) || table.is_empty();
        match (&self.socket, is_given, captures::understood(&self.control).is_some(), listens) {
            (None, ..) => Following::Unreachable,
            (Some(_), false, ..) => Following::Fixed,
            (Some(_), true, true, _) => Following::Current,
            // Its agent knows no triggers, and there are none.
            (Some(_), true, ..) if !self.supports_triggers() => Following::Current,
            (Some(_), true, false, true) => Following::Pending,
            (Some(_), true, false, false) => Following::Fixed,
        }
    }

    /// A line about triggers on events that its agent doesn't know, for the first time.
    pub fn problem_of_triggers(&mut self) -> Option<String> {
        let unknown = self.match_counts.take_unknown(&self.control)?;
        let (name, version) = (&self.hello.name, &self.hello.agent_version);
        let of_it = format!("of {name} ({}): its libtompion {version} doesn't know them", self.pid);
        Some(format!("{unknown} of the triggers on events see nothing {of_it}"))
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
