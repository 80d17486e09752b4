//! Consistent names: gives each thread of an incident its newest name. A thread's name changes when
//! it executes another program, and events have the names of their time.

use std::collections::BTreeMap;

use crate::{
    attribution::{EventKind, SchedEvent, Thread},
    threshold::Capture,
};

/// Returns the capture with the newest name of each thread everywhere.
pub(super) fn with_newest(caught: &Capture) -> Capture {
    let names = newest(caught);
    let mut named = caught.clone();
    for event in named.history.cpus.iter_mut().flat_map(|cpu| &mut cpu.events) {
        for thread in threads_of(&mut event.kind).into_iter().flatten() {
            if let Some(name) = names.get(&thread.tid) {
                thread.name.clone_from(name);
            }
        }
    }
    let crossing = &mut named.crossing;
    for (tid, name) in [(crossing.tid, &mut crossing.name), (crossing.other_tid, &mut crossing.other_name)] {
        if let Some(newest) = names.get(&tid) {
            name.clone_from(newest);
        }
    }
    named
}

/// Newest names by thread. Idle threads share a number and have many names.
fn newest(caught: &Capture) -> BTreeMap<u32, String> {
    let mut newest: BTreeMap<u32, (u64, &str)> = BTreeMap::new();
    let mut see = |tid: u32, time: u64, name| {
        if tid != 0 && newest.get(&tid).is_none_or(|known| known.0 <= time) {
            newest.insert(tid, (time, name));
        }
    };
    for SchedEvent { time, kind } in caught.history.cpus.iter().flat_map(|cpu| &cpu.events) {
        let thread = match kind {
            EventKind::Switch { next, .. } => next,
            EventKind::Woken { thread, .. } | EventKind::Migration { thread, .. } => thread,
            _ => continue,
        };
        if !thread.name.is_empty() {
            see(thread.tid, *time, thread.name.as_str());
        }
    }
    // These were read last.
    let crossing = &caught.crossing;
    for (tid, name) in [(crossing.other_tid, &crossing.other_name), (crossing.tid, &crossing.name)] {
        if !name.is_empty() {
            see(tid, u64::MAX, name.as_str());
        }
    }
    newest.into_iter().map(|(tid, (_, name))| (tid, name.to_owned())).collect()
}

fn threads_of(kind: &mut EventKind) -> [Option<&mut Thread>; 2] {
    match kind {
        EventKind::Switch { next, previous, .. } => [Some(next), Some(previous)],
        EventKind::Woken { thread, .. } | EventKind::Migration { thread, .. } => [Some(thread), None],
        _ => [None, None],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        attribution::{CpuLog, EventLog},
        incident::{Incident, tests::caught, trace},
    };

    fn switch((time, next, name): (u64, u32, &str), previous: u32) -> SchedEvent {
        let next = Thread { tid: next, priority: 9, name: name.into() };
        let previous = Thread { tid: previous, priority: 9, name: String::new() };
        SchedEvent { time, kind: EventKind::Switch { next, previous, state: 0 } }
    }

    fn history(cpus: &[&[SchedEvent]]) -> EventLog {
        let noted = |events: &&[SchedEvent]| CpuLog { events: events.to_vec(), ..CpuLog::default() };
        EventLog { cpus: cpus.iter().map(noted).collect(), ..EventLog::default() }
    }

    #[test]
    fn given_a_thread_that_executed_another_program_then_it_has_one_name_everywhere() {
        let first = [switch((30, 5, "taskset"), 0), switch((100, 7, "ctl"), 5)];
        let mut caught = caught((7, "ctl"), history(&[&first, &[switch((10, 5, "bash"), 0)]]));
        (caught.question.woken, caught.question.end, caught.question.priority) = (40, 100, 19);
        (caught.crossing.other_tid, caught.crossing.other_name) = (5, "python3".into());
        let incident = Incident::of(&caught, 0);
        assert_eq!(incident.before.name, "python3");
        let parties: Vec<&str> = incident.segments.iter().map(|segment| segment.who.as_str()).collect();
        assert_eq!(parties, ["python3"]);
        // Also in the trace.
        let events = trace::of(&incident, &with_newest(&caught)).remove(0).events;
        let has = |name: &str| {
            events
                .iter()
                .filter(|event| event.payload.windows(name.len()).any(|part| part == name.as_bytes()))
                .count()
        };
        assert_eq!((has("python3"), has("taskset"), has("bash")), (3, 0, 0));
    }

    #[test]
    fn given_no_message_about_a_thread_then_the_newest_moment_has_its_name() {
        let cpus = history(&[&[switch((20, 5, "new"), 0)], &[switch((10, 5, "old"), 0)]]);
        let named = with_newest(&caught((7, "ctl"), cpus));
        let names = named.history.cpus.iter().flat_map(|cpu| &cpu.events).map(|event| &event.kind);
        for kind in names {
            assert!(matches!(kind, EventKind::Switch { next, .. } if next.name == "new"), "{kind:?}");
        }
    }

    #[test]
    fn given_a_thread_that_has_ended_then_its_name_is_that_of_the_moments() {
        let ended = caught((7, ""), history(&[&[switch((20, 7, "motor"), 0)]]));
        assert_eq!(Incident::of(&ended, 0).thread.name, "motor");
        let unknown = Incident::of(&caught((7, ""), EventLog::default()), 0);
        assert_eq!((unknown.thread.name.as_str(), unknown.thread.label().as_str()), ("", "thread-7"));
    }
}
