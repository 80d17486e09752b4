//! Which events a recording wants, from names with wildcards.

use tompion_protocol::rules::matches_name;

use crate::{
    events::{FIRST, Group, KNOWN, Known},
    syscalls::Calls,
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
}

impl Selection {
    /// Scheduling, interrupts, the lives of processes and I/O; with `syscalls`, all system calls, too.
    pub fn usual(calls: &Calls, syscalls: bool) -> Self {
        let wanted = |known: &Known| known.group != Group::OnRequest;
        let all: Vec<u32> = if syscalls { calls.numbers().collect() } else { Vec::new() };
        Self { events: bits(wanted), entries: all.clone(), exits: all }
    }

    /// What matches one of the patterns.
    pub fn matching(calls: &Calls, patterns: &[String]) -> Result<Self, UnknownEvent> {
        let mut selection = Self::default();
        for pattern in patterns {
            let takes = |name: &str| matches_name(pattern, PROVIDER, name);
            let events = bits(|known| takes(known.name));
            let of = |kind: &str| -> Vec<u32> {
                calls.numbers().filter(|&number| takes(&calls.event_name(kind, number))).collect()
            };
            let (entries, exits) = (of("entry"), of("exit"));
            if events == 0 && entries.is_empty() && exits.is_empty() {
                return Err(UnknownEvent(pattern.clone()));
            }
            selection.events |= events;
            selection.entries.extend(entries);
            selection.exits.extend(exits);
        }
        Ok(selection)
    }

    /// Whether the event with this number in rings is chosen.
    pub fn has(&self, number: u16) -> bool {
        self.events >> number & 1 == 1
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
        Selection::matching(&Calls::without_formats(), &patterns)
    }

    #[test]
    fn patterns_choose_by_name() {
        let selection = matching(&["sched_switch", "syscall_entry_openat"]).unwrap();
        assert!(selection.has(FIRST) && !selection.has(FIRST + 1));
        assert_eq!((selection.entries.len(), selection.exits.len()), (1, 0));
        assert!(matching(&["kernel:irq_*"]).unwrap().has(FIRST + 9));
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
