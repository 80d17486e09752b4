//! Triggers on events: which events they wait for, and what happens when one matches.
//!
//! A session writes its triggers into the control file. For each event that one of them wants there
//! is an entry with the compiled filters. The event path evaluates them, counts matches and copies
//! the first ones into the control file ([`tompion_ring::captures`]).

use std::collections::BTreeMap;

use tompion_protocol::{MAX_RECORDINGS, triggers::EventTriggers};
use tompion_ring::producer::Event;
use tompion_schema::Names;

use crate::{
    event,
    filters::{self, Filter},
    table::Table,
};

static TABLES: [Table<Watch>; MAX_RECORDINGS] = [const { Table::new() }; MAX_RECORDINGS];

/// Triggers that wait for an event.
#[derive(Debug)]
pub struct Watch(Box<[Watched]>);

/// A trigger that waits for an event.
#[derive(Clone, Copy, Debug)]
struct Watched {
    /// Number of the trigger in the session.
    index: usize,
    /// Filter that the event must pass; none accepts all.
    filter: Option<&'static Filter>,
}

/// Entries of events by the triggers' text, the description and the number of contexts that filters
/// may ask for. Kept for ever.
#[derive(Debug, Default)]
pub struct Cache(BTreeMap<(Box<str>, Box<[u8]>, u32), Option<&'static Watch>>);

impl Cache {
    /// Nothing compiled yet.
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// The entry of an event; none if no trigger of the text waits for it.
    pub fn watch(
        &mut self,
        text: &str,
        names: &Names<'_>,
        description: &[u8],
        filters: &mut filters::Cache,
    ) -> Option<&'static Watch> {
        if !EventTriggers(text).iter().any(|trigger| trigger.wants(names)) {
            return None;
        }
        let key = (Box::from(text), Box::from(description), crate::context::count());
        *self.0.entry(key).or_insert_with(|| {
            let wanting = EventTriggers(text).iter().filter(|trigger| trigger.wants(names));
            let watched = wanting.filter_map(|trigger| {
                let filter = match trigger.filter {
                    None => None,
                    // A filter that can't be true for the event makes no match.
                    Some(filter) => Some(filters.program(filter, description)?),
                };
                Some(Watched { index: trigger.index, filter })
            });
            let watched: Box<[Watched]> = watched.collect();
            (!watched.is_empty()).then(|| &*Box::leak(Box::new(Watch(watched))))
        })
    }
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
}

/// Has the triggers look at an event. `image` is its fixed part.
pub fn run(number: u32, event: Event<'_>, image: &[u8]) {
    let mut time = None;
    for (slot, table) in TABLES.iter().enumerate() {
        let Some(Watch(watched)) = table.get(number) else { continue };
        let is_match = |it: &&Watched| it.filter.is_none_or(|it| it.is_true(event.tid, image, event.tails));
        for Watched { index, .. } in watched.iter().filter(is_match) {
            let event = Event { time: *time.get_or_insert_with(event::given_time), ..event };
            // SAFETY: a place of a slot is null or valid; the parts of the event are readable while
            // it is recorded. What is too large to be read is not read beyond `CAPTURE`.
            unsafe { event::place(slot).as_ref().iter().for_each(|it| it.note_match(*index, &event)) };
        }
    }
}

/// Counts an event that the triggers can't look at.
pub fn skip(number: u32) {
    for (slot, _) in TABLES.iter().enumerate().filter(|(_, table)| table.get(number).is_some()) {
        // SAFETY: as in `run`.
        unsafe { event::place(slot).as_ref() }.iter().for_each(|recording| recording.note_unjudged());
    }
}
