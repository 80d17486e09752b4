//! Triggers on events: which events they wait for, and what happens when one matches.
//!
//! A session writes its triggers into the control file. For each event that one of them wants there
//! is an entry with the compiled filters. The event path evaluates them, counts matches and copies
//! the first ones into the control file ([`tompion_ring::captures`]).

use std::collections::BTreeMap;

use tompion_protocol::{
    MAX_RECORDINGS,
    triggers::{EventTriggers, Over, Role},
};
use tompion_ring::{captures::Match, producer::Event};
use tompion_schema::Names;

use crate::{
    event,
    filters::{self, Filter},
    open_spans,
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
    /// Role of the event.
    role: Role,
    /// Time that a span must last, if it is for spans.
    over: Option<Over>,
    /// Filter that the event must pass; none accepts all.
    filter: Option<&'static Filter>,
}

impl Watched {
    /// Duration of which a span that begins with this image must have more, in nanoseconds.
    fn limit(&self, image: &[u8]) -> Option<u64> {
        match self.over? {
            Over::Time(ns) => Some(ns),
            // The first field of a job. Without a deadline it can't miss one.
            Over::Deadline => {
                let deadline = u64::from_le_bytes(*image.first_chunk()?);
                (deadline != 0).then_some(deadline)
            }
        }
    }
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
        if !EventTriggers(text).iter().any(|trigger| trigger.role(names).is_some()) {
            return None;
        }
        let key = (Box::from(text), Box::from(description), crate::context::count());
        *self.0.entry(key).or_insert_with(|| {
            let watched = EventTriggers(text).iter().filter_map(|trigger| {
                let role = trigger.role(names)?;
                // A filter is on the begin of a span.
                let filter = match trigger.filter.filter(|_| role != Role::End) {
                    None => None,
                    // A filter that can't be true for the event makes no match.
                    Some(filter) => Some(filters.program(filter, description)?),
                };
                Some(Watched { index: trigger.index, role, over: trigger.over, filter })
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
    open_spans::forget(slot);
}

/// Has the triggers look at an event. `image` is its fixed part.
pub fn run(number: u32, event: Event<'_>, image: &[u8]) {
    let mut time = None;
    for (slot, table) in TABLES.iter().enumerate() {
        let Some(Watch(watched)) = table.get(number) else { continue };
        let passes = |it: &&Watched| it.filter.is_none_or(|it| it.is_true(event.tid, image, event.tails));
        for watched in watched.iter().filter(passes) {
            let event = Event { time: *time.get_or_insert_with(event::given_time), ..event };
            follow(slot, watched, event, image);
        }
    }
}

/// Has a trigger follow an event that passes its filter.
fn follow(slot: usize, watched: &Watched, event: Event<'_>, image: &[u8]) {
    // SAFETY: null, or valid.
    let Some(recording) = (unsafe { event::place(slot).as_ref() }) else { return };
    // SAFETY: the parts of an event are readable while it is recorded, and a span's copy while it
    // is passed on. They are not read beyond `CAPTURE`.
    let note = |found: &Match<'_>| unsafe { recording.note_match(watched.index, found) };
    match watched.role {
        Role::Event => note(&event.into()),
        Role::End => open_spans::close(slot, watched.index, (event.tid, event.time), note),
        Role::Begin => {
            let Some(over) = watched.limit(image) else { return };
            // SAFETY: as above.
            let given_way = unsafe { open_spans::open(slot, watched.index, &event, over) };
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
