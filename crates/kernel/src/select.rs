//! Selection of a recording's events, from names with wildcards.

use std::collections::BTreeSet;

use tompion_protocol::rules::matches_name;

use crate::{
    events::{FIRST, Group, KNOWN, Known},
    probes::Probe,
    state,
    syscalls::Calls,
    tracepoints::{Catalog, Listed, Tracepoint},
};

/// The provider's name in patterns: `kernel:sched_*`.
const PROVIDER: &str = "kernel";

/// A pattern that no event has.
#[derive(Debug, thiserror::Error)]
#[error("no kernel event matches `{0}`")]
pub struct UnknownEvent(pub String);

/// The chosen events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Bits by the events' numbers in rings, without system calls.
    pub events: u64,
    /// Numbers of the calls whose entries are recorded.
    pub entries: Vec<u32>,
    /// Numbers of the calls whose exits are recorded.
    pub exits: Vec<u32>,
    /// Probes that were asked for.
    pub probes: Vec<Probe>,
    /// Whether the state at the start is.
    pub state: bool,
    /// Tracepoints without programs of their own, in the order of their numbers in records.
    pub tracepoints: Vec<Tracepoint>,
    /// Reasons why tracepoints that match are left out, in lines for people.
    pub unreadable: Vec<String>,
}

/// Events from which a selection is made.
#[derive(Clone, Debug)]
pub struct AvailableEvents {
    /// The system calls.
    pub calls: Calls,
    /// The tracepoints.
    pub catalog: Catalog,
}

impl AvailableEvents {
    /// Events of the running kernel.
    pub fn of_this_kernel() -> Self {
        Self { calls: Calls::of_this_kernel(), catalog: Catalog::of_this_kernel() }
    }

    /// Whether a pattern takes an event with a program of its own.
    ///
    /// Names are those of traces, or those of tracefs behind their folder's, as in
    /// `sched:sched_switch`.
    fn takes_known(&self, pattern: &str, known: &Known) -> bool {
        let system = self.catalog.system_of(known.tracepoint);
        takes(pattern, known.name) || system.is_some_and(|system| takes_of(pattern, system, known.tracepoint))
    }

    /// The tracepoints without programs of their own that a pattern takes. A star alone takes none
    /// of them: it means what is known, and not the thousand that there are.
    fn listed<'a>(&'a self, pattern: &'a str) -> impl Iterator<Item = &'a Listed> {
        let listed = self.catalog.listed().iter().filter(move |_| pattern != "*");
        listed.filter(move |listed| {
            let Listed { system, tracepoint, name } = listed;
            takes(pattern, name) || takes_of(pattern, system, tracepoint) || takes_of(pattern, system, name)
        })
    }
}

/// Whether a pattern takes an event by its name in traces. Only with a colon a pattern says
/// something of providers.
fn takes(pattern: &str, name: &str) -> bool {
    matches_name(pattern, if pattern.contains(':') { PROVIDER } else { "" }, name)
}

/// Whether a pattern takes an event by its folder in tracefs, `ext4`, or by that and its name,
/// `ext4:ext4_da_*`.
fn takes_of(pattern: &str, system: &str, name: &str) -> bool {
    if pattern.contains(':') { matches_name(pattern, system, name) } else { pattern == system }
}

impl Selection {
    /// Scheduling, interrupts, the lives of processes and block devices; with `syscalls`, all
    /// system calls, too.
    pub fn usual(calls: &Calls, syscalls: bool) -> Self {
        let wanted = |known: &Known| known.group != Group::OnRequest;
        let all: Vec<u32> = if syscalls { calls.numbers().collect() } else { Vec::new() };
        Self { events: bits(wanted), entries: all.clone(), exits: all, state: true, ..Self::default() }
    }

    /// Returns the events that match one of the patterns.
    pub fn matching(available: &AvailableEvents, patterns: &[String]) -> Result<Self, UnknownEvent> {
        let mut selection = Self::default();
        let mut chosen = BTreeSet::new();
        for pattern in patterns {
            let events = bits(|known| available.takes_known(pattern, known));
            let of = |kind: &str| -> Vec<u32> {
                let calls = &available.calls;
                calls.numbers().filter(|&number| takes(pattern, &calls.event_name(kind, number))).collect()
            };
            let (entries, exits) = (of("entry"), of("exit"));
            let state = state::NAMES.iter().any(|name| takes(pattern, name));
            let listed: Vec<&Listed> = available.listed(pattern).collect();
            let calls = !entries.is_empty() || !exits.is_empty();
            if events == 0 && !calls && !state && listed.is_empty() {
                return Err(UnknownEvent(pattern.clone()));
            }
            chosen.extend(listed);
            selection.events |= events;
            selection.entries.extend(entries);
            selection.exits.extend(exits);
            selection.state |= state;
        }
        for listed in chosen {
            match available.catalog.read(listed) {
                Ok(tracepoint) => selection.tracepoints.push(tracepoint),
                Err(problem) => selection.unreadable.push(problem),
            }
        }
        Ok(selection)
    }

    /// Adds the events of another selection.
    pub fn merge(&mut self, other: Self) {
        let Self { events, entries, exits, state, tracepoints, probes, unreadable } = other;
        self.events |= events;
        self.state |= state;
        self.entries.extend(entries);
        self.exits.extend(exits);
        self.tracepoints.extend(tracepoints);
        self.probes.extend(probes);
        self.unreadable.extend(unreadable);
    }

    /// Takes these events, too.
    pub(crate) fn add(&mut self, wanted: impl Fn(&Known) -> bool) {
        self.events |= bits(wanted);
    }

    /// Whether the event with this number in rings is chosen.
    pub fn has(&self, number: u16) -> bool {
        self.events >> number & 1 == 1
    }

    /// Whether an event with a program of its own is chosen, by its name.
    pub fn takes(&self, name: &str) -> bool {
        KNOWN.iter().zip(FIRST..).any(|(known, number)| known.name == name && self.has(number))
    }

    /// Whether no event is chosen, but for the state at the start.
    pub fn is_empty(&self) -> bool {
        let listed = self.tracepoints.is_empty() && self.probes.is_empty();
        self.events == 0 && !self.has_syscalls() && listed
    }

    /// Whether any system call is.
    pub fn has_syscalls(&self) -> bool {
        !self.entries.is_empty() || !self.exits.is_empty()
    }
}

fn bits(wanted: impl Fn(&Known) -> bool) -> u64 {
    let chosen = KNOWN.iter().zip(FIRST..).filter(|(known, _)| wanted(known));
    chosen.fold(0, |bits, (_, number)| bits | 1 << number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matching(patterns: &[&str]) -> Result<Selection, UnknownEvent> {
        let patterns: Vec<String> = patterns.iter().map(|&pattern| pattern.into()).collect();
        let available = AvailableEvents { calls: Calls::without_formats(), catalog: Catalog::default() };
        Selection::matching(&available, &patterns)
    }

    #[test]
    fn patterns_choose_by_name() {
        let selection = matching(&["sched_switch", "syscall_entry_openat"]).unwrap();
        assert!(selection.has(FIRST) && !selection.has(FIRST + 1));
        assert_eq!((selection.entries.len(), selection.exits.len()), (1, 0));
        assert!(matching(&["kernel:irq_*"]).unwrap().has(FIRST + 9));
        assert!(matching(&["k*"]).is_err());
        assert_eq!(matching(&["irq_*", "shed_switch"]).unwrap_err().0, "shed_switch");
    }

    #[test]
    fn without_patterns_it_is_the_usual() {
        let usual = Selection::usual(&Calls::without_formats(), false);
        assert!(usual.has(FIRST) && !usual.has_syscalls());
        assert!(
            !KNOWN
                .iter()
                .zip(FIRST..)
                .any(|(known, number)| known.group == Group::OnRequest && usual.has(number))
        );
    }
}
