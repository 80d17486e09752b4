//! Triggers on events: which events they wait for, and what happens when one matches.
//!
//! A session writes its triggers into the control file. For each event that one of them wants there
//! is an entry with the compiled filters. The event path evaluates them, counts matches and copies
//! the first ones into the control file ([`tompion_ring::captures`]).

use std::collections::BTreeMap;

use tompion_layout::triggers::{Epochs, TRIGGERS, TriggerNumber};
use tompion_os::SharedMap;
use tompion_protocol::{
    MAX_RECORDINGS,
    triggers::{EventTrigger, EventTriggers, Over, Role},
};
use tompion_ring::{
    captures::{self, Match},
    producer::Event,
};
use tompion_schema::Names;

use crate::{
    event,
    filters::{self, Filter},
    open_spans::{self, NEVER, Spans},
    table::Table,
};

static TABLES: [Table<Watch>; MAX_RECORDINGS] = [const { Table::new() }; MAX_RECORDINGS];

/// Triggers of a recording, as its session has written them.
#[derive(Clone, Debug, Default)]
pub struct Triggers {
    /// Their text.
    pub text: String,
    /// Their generation.
    pub generation: u32,
    /// Epochs of their numbers.
    epochs: Epochs,
}

impl Triggers {
    /// Reads them from a control file. None if the session is being stopped while it replaces them,
    /// or has no such region.
    pub fn read(control: &SharedMap) -> Option<Self> {
        let read = captures::read(control)?;
        let text = String::from_utf8_lossy(&read.text).into_owned();
        Some(Self { text, generation: read.generation, epochs: read.epochs })
    }

    /// Whether others are the same, in another control file.
    pub fn are_those_of(&self, other: &Self) -> bool {
        (&self.text, self.epochs) == (&other.text, other.epochs)
    }
}

/// Triggers that wait for an event.
#[derive(Debug)]
pub struct Watch(Box<[Watched]>);

/// A trigger that waits for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Watched {
    /// Number of the trigger in the session.
    trigger: TriggerNumber,
    /// Role of the event.
    role: Role,
    /// Time that a span must last, if it is for spans.
    over: Option<Over>,
    /// Number of the span's name, which its begin and its end have.
    name: u16,
    /// Events that it accepts.
    accepts: Accepts,
}

/// Events that a trigger accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Accepts {
    All,
    /// Those that pass the filter.
    Some(&'static Filter),
    /// Begins of spans of which the filter can't be true. Their ends are not those of others.
    None,
}

impl Watched {
    /// Whether it accepts an event with this fixed part.
    fn accepts(&self, event: &Event<'_>, image: &[u8]) -> bool {
        match self.accepts {
            Accepts::All => true,
            Accepts::Some(filter) => filter.is_true(event.tid, image, event.tails),
            Accepts::None => false,
        }
    }

    /// Duration of which a span that begins with this image must have more, in nanoseconds.
    fn limit(&self, image: &[u8]) -> u64 {
        match self.over {
            Some(Over::Time(ns)) => ns,
            // The first field of a job. Without a deadline it can't miss one.
            Some(Over::Deadline) => match image.first_chunk() {
                Some(&deadline) if deadline != [0; 8] => u64::from_le_bytes(deadline),
                _ => NEVER,
            },
            None => NEVER,
        }
    }
}

/// Entries of events by their descriptions, and the names of spans by which ends find their begins.
/// Never freed: a change of triggers costs an event that it concerns an entry more.
#[derive(Debug, Default)]
pub struct Cache {
    watches: BTreeMap<Box<[u8]>, Vec<&'static Watch>>,
    names: BTreeMap<Box<str>, u16>,
}

impl Cache {
    /// Nothing compiled yet.
    pub const fn new() -> Self {
        Self { watches: BTreeMap::new(), names: BTreeMap::new() }
    }

    /// The entry of an event; none if no trigger waits for it.
    pub fn watch(
        &mut self,
        triggers: &Triggers,
        names: &Names<'_>,
        description: &[u8],
        filters: &mut filters::Cache,
    ) -> Option<&'static Watch> {
        let text = EventTriggers(&triggers.text);
        if !text.iter().any(|trigger| trigger.role(names).is_some()) {
            return None;
        }
        // There are fewer events than numbers.
        let more = u16::try_from(self.names.len()).unwrap_or(u16::MAX);
        let name = format!("{}:{}", names.provider, names.base());
        let name = *self.names.entry(name.into()).or_insert(more);
        let watched = text.iter().filter_map(|trigger| {
            let role = trigger.role(names)?;
            // A filter is on the begin of a span.
            let filter = trigger.filter.filter(|_| role != Role::End);
            let accepts = match filter.map(|filter| filters.program(filter, description)) {
                None => Accepts::All,
                Some(Some(filter)) => Accepts::Some(filter),
                Some(None) if role == Role::Begin => Accepts::None,
                // A filter that can't be true for the event makes no match.
                Some(None) => return None,
            };
            let epoch = *triggers.epochs.get(trigger.index)?;
            let number = TriggerNumber { index: trigger.index, epoch };
            Some(Watched { trigger: number, role, over: trigger.over, name, accepts })
        });
        let watched: Box<[Watched]> = watched.collect();
        if watched.is_empty() {
            return None;
        }
        let known = self.watches.entry(description.into()).or_default();
        if let Some(same) = known.iter().find(|known| known.0 == watched) {
            return Some(same);
        }
        let watch: &Watch = Box::leak(Box::new(Watch(watched)));
        known.push(watch);
        Some(watch)
    }
}

/// Number of triggers of a text that can be looked for. A later session may know other forms.
pub fn understood(text: &str) -> u32 {
    let is_known = |trigger: &EventTrigger<'_>| {
        trigger.index < TRIGGERS && trigger.filter.is_none_or(filters::is_understood)
    };
    EventTriggers(text).iter().filter(is_known).count() as u32
}

/// Has triggers of a recording wait for the events of a number. The caller holds the registry's
/// lock.
pub fn set(slot: usize, number: u32, watch: Option<&'static Watch>) {
    if watch.is_some() {
        filters::note_pid();
    }
    TABLES.iter().skip(slot).take(1).for_each(|table| table.set(number, watch));
}

/// Whether a trigger waits for the events of a number.
pub fn any(number: u32) -> bool {
    TABLES.iter().any(|table| table.get(number).is_some())
}

/// Forgets the triggers of a recording that ends. The caller holds the registry's lock.
pub fn forget(slot: usize) {
    TABLES.iter().skip(slot).take(1).for_each(Table::clear);
    open_spans::forget(slot);
}

/// Has the triggers look at an event. `image` is its fixed part.
pub fn run(number: u32, event: Event<'_>, image: &[u8]) {
    let mut time = None;
    for (slot, table) in TABLES.iter().enumerate() {
        let Some(Watch(watched)) = table.get(number) else { continue };
        for watched in watched.iter() {
            // The end of a span doesn't say whether its begin was accepted, so each has an entry.
            let limit = match watched.accepts(&event, image) {
                true => watched.limit(image),
                false if watched.role == Role::Begin => NEVER,
                false => continue,
            };
            let event = Event { time: *time.get_or_insert_with(event::given_time), ..event };
            follow(slot, watched, event, limit);
        }
    }
}

/// Has a trigger follow an event: a span that begins has to last longer than `limit` nanoseconds.
fn follow(slot: usize, watched: &Watched, event: Event<'_>, limit: u64) {
    // SAFETY: null, or valid.
    let Some(recording) = (unsafe { event::place(slot).as_ref() }) else { return };
    // SAFETY: the parts of an event are readable while it is recorded, and a span's copy while it
    // is passed on. They are not read beyond `CAPTURE`.
    let note = |found: &Match<'_>| unsafe { recording.note_match(watched.trigger, found) };
    let spans = Spans { slot, trigger: watched.trigger, name: watched.name, tid: event.tid };
    match watched.role {
        Role::Event => note(&event.into()),
        Role::End => open_spans::close(spans, event.time, note),
        Role::Begin => {
            // SAFETY: as above.
            let given_way = unsafe { open_spans::open(spans, &event, limit) };
            given_way.into_iter().for_each(note_unjudged);
        }
    }
}

/// Counts an event that the triggers can't look at.
pub fn skip(number: u32) {
    let waiting = TABLES.iter().enumerate().filter(|(_, table)| table.get(number).is_some());
    waiting.for_each(|(slot, _)| note_unjudged(slot));
}

fn note_unjudged(slot: usize) {
    // SAFETY: null, or valid.
    unsafe { event::place(slot).as_ref() }.iter().for_each(|recording| recording.note_unjudged());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_unknown_forms_are_not_understood() {
        assert_eq!(understood(""), 0);
        assert_eq!(understood("0 a:b\n1 >5 a:b\n2 >deadline a:b ? x > 1\n15 a:b ? x == \"y\"\n"), 4);
        assert_eq!(understood("0 >later a:b\n1 !5 a:b ? x ~~~ 1\n16 a:b\n3 a:b\n"), 1);
    }
}
