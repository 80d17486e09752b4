//! Triggers on events: which events they wait for, and what happens when one matches.
//!
//! A session writes its triggers into the control file. Each event that they want has a list with
//! an entry for each of them. The event path evaluates their filters, counts matches and copies the
//! first ones into the control file ([`tompion_ring::captures`]).
//!
//! Lists are never freed, because a thread may use one at any time. When triggers change, entries
//! are used again: a list is as long as the largest number of triggers that its event ever had.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicPtr, Ordering},
};

use tompion_layout::triggers::{Epochs, TRIGGERS, TriggerNumber};
use tompion_os::SharedMap;
use tompion_protocol::{
    MAX_RECORDINGS,
    triggers::{EventTrigger, EventTriggers, Over, Role},
};
use tompion_ring::{
    captures::{self, Match},
    producer::Event,
    versioned::VersionedWords,
};
use tompion_schema::Names;

use crate::{
    event,
    filters::{self, Filter},
    open_spans::{self, NEVER, Spans},
    table::Table,
};

static TABLES: [Table<Entry>; MAX_RECORDINGS] = [const { Table::new() }; MAX_RECORDINGS];

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

/// Place in the list of the triggers that wait for an event in a recording.
#[derive(Debug, Default)]
struct Entry {
    /// The trigger, as [`Watched::to_words`] has it; none while the entry is unused.
    words: VersionedWords<3>,
    /// The next entry of the list.
    next: AtomicPtr<Entry>,
}

impl Entry {
    /// A new one, for ever.
    fn leak() -> &'static Self {
        Box::leak(Box::default())
    }

    fn next(&self) -> Option<&'static Self> {
        // SAFETY: null, or an entry that was leaked. Ordering: pairs with the release store in
        // `next_or_new`.
        unsafe { self.next.load(Ordering::Acquire).as_ref() }
    }

    /// The next entry, which is made if there is none. The caller holds the registry's lock.
    fn next_or_new(&self) -> &'static Self {
        self.next().unwrap_or_else(|| {
            let new = Self::leak();
            // Ordering: pairs with the acquire load in `next`.
            self.next.store(std::ptr::from_ref(new).cast_mut(), Ordering::Release);
            new
        })
    }

    /// This entry and those behind it.
    fn list(&'static self) -> impl Iterator<Item = &'static Self> {
        std::iter::successors(Some(self), |entry| entry.next())
    }

    /// The trigger. None if there is none, or it is being replaced: the session counts no match of
    /// the one before any more.
    fn watched(&self) -> Option<Watched> {
        // SAFETY: words of one version, which `Watched::to_words` has made.
        self.words.get().map(|words| unsafe { Watched::from_words(words) })
    }
}

/// A trigger that waits for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
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

/// Forms in words: of roles, of times that spans must last, and of what is accepted.
const ROLES: [Role; 3] = [Role::Event, Role::Begin, Role::End];
const NO_TIME: u64 = 0;
const TIME: u64 = 1;
const DEADLINE: u64 = 2;
const ACCEPTS_ALL: u64 = 0;
const ACCEPTS_NONE: u64 = 1;
/// Bits of the first word, from the trigger's number up.
const ROLE_SHIFT: u32 = 8;
const OVER_SHIFT: u32 = 12;
const NAME_SHIFT: u32 = 16;
const EPOCH_SHIFT: u32 = 32;

impl Watched {
    /// Its words.
    fn to_words(self) -> [u64; 3] {
        let Self { trigger, role, over, name, accepts } = self;
        let role = ROLES.iter().position(|known| *known == role).unwrap_or_default() as u64;
        let (over, time) = match over {
            None => (NO_TIME, 0),
            Some(Over::Time(time)) => (TIME, time),
            Some(Over::Deadline) => (DEADLINE, 0),
        };
        let accepts = match accepts {
            Accepts::All => ACCEPTS_ALL,
            Accepts::None => ACCEPTS_NONE,
            Accepts::Some(filter) => std::ptr::from_ref(filter).expose_provenance() as u64,
        };
        let (index, epoch) = (trigger.index as u64, u64::from(trigger.epoch));
        let name = u64::from(name) << NAME_SHIFT;
        [index | role << ROLE_SHIFT | over << OVER_SHIFT | name | epoch << EPOCH_SHIFT, time, accepts]
    }

    /// The trigger of some words.
    ///
    /// # Safety
    /// [`Watched::to_words`] has made all of them together.
    unsafe fn from_words([first, time, accepts]: [u64; 3]) -> Self {
        let trigger = TriggerNumber { index: (first & 0xff) as usize, epoch: (first >> EPOCH_SHIFT) as u16 };
        let role = ROLES.get((first >> ROLE_SHIFT & 0xf) as usize).copied().unwrap_or(Role::Event);
        let over = match first >> OVER_SHIFT & 0xf {
            TIME => Some(Over::Time(time)),
            DEADLINE => Some(Over::Deadline),
            _ => None,
        };
        let accepts = match accepts {
            ACCEPTS_ALL => Accepts::All,
            ACCEPTS_NONE => Accepts::None,
            // SAFETY: the address of a filter, as the caller promises. Filters are never freed.
            filter => Accepts::Some(unsafe { &*std::ptr::with_exposed_provenance(filter as usize) }),
        };
        Self { trigger, role, over, name: (first >> NAME_SHIFT) as u16, accepts }
    }

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

/// Numbers of spans' names, by which ends find their begins.
#[derive(Debug, Default)]
pub struct Cache {
    names: BTreeMap<Box<str>, u16>,
}

impl Cache {
    /// No names yet.
    pub const fn new() -> Self {
        Self { names: BTreeMap::new() }
    }

    /// The triggers that wait for an event.
    pub fn watched(
        &mut self,
        triggers: &Triggers,
        names: &Names<'_>,
        description: &[u8],
        filters: &mut filters::Cache,
    ) -> Vec<Watched> {
        let text = EventTriggers(&triggers.text);
        if !text.iter().any(|trigger| trigger.role(names).is_some()) {
            return Vec::new();
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
        watched.collect()
    }
}

/// Number of triggers of a text that can be looked for. A later session may know other forms.
pub fn understood(text: &str) -> u32 {
    let is_known = |trigger: &EventTrigger<'_>| {
        trigger.index < TRIGGERS && trigger.filter.is_none_or(filters::is_understood)
    };
    EventTriggers(text).iter().filter(is_known).count() as u32
}

/// Has these triggers of a recording, and no others, wait for the events of a number. Those that
/// wait already are not disturbed. The caller holds the registry's lock.
pub fn set(slot: usize, number: u32, watched: &[Watched]) {
    if !watched.is_empty() {
        filters::note_pid();
    }
    TABLES.iter().skip(slot).take(1).for_each(|table| set_in(table, number, watched));
}

fn set_in(table: &Table<Entry>, number: u32, watched: &[Watched]) {
    let first = match table.get(number) {
        Some(first) => first,
        None if watched.is_empty() => return,
        None => {
            let first = Entry::leak();
            table.set(number, Some(first));
            first
        }
    };
    let mut missing = watched.to_vec();
    for entry in first.list() {
        let known = entry.watched().and_then(|found| missing.iter().position(|it| *it == found));
        match known {
            Some(at) => _ = missing.swap_remove(at),
            None => entry.words.set(None),
        }
    }
    let mut entry = first;
    for watched in missing {
        while entry.words.is_set() {
            entry = entry.next_or_new();
        }
        entry.words.set(Some(watched.to_words()));
    }
}

/// Whether triggers wait for the events of a number in a table.
fn waits(table: &Table<Entry>, number: u32) -> bool {
    table.get(number).is_some_and(|first| first.list().any(|entry| entry.words.is_set()))
}

/// Whether a trigger waits for the events of a number.
pub fn any(number: u32) -> bool {
    TABLES.iter().any(|table| waits(table, number))
}

/// Forgets the triggers of a recording that ends. The caller holds the registry's lock.
pub fn forget(slot: usize) {
    let lists = TABLES.iter().skip(slot).take(1).flat_map(Table::iter);
    lists.flat_map(Entry::list).filter(|entry| entry.words.is_set()).for_each(|entry| entry.words.set(None));
    open_spans::forget(slot);
}

/// Has the triggers look at an event. `image` is its fixed part.
pub fn run(number: u32, event: Event<'_>, image: &[u8]) {
    let mut time = None;
    for (slot, table) in TABLES.iter().enumerate() {
        let Some(first) = table.get(number) else { continue };
        for watched in first.list().filter_map(Entry::watched) {
            // The end of a span doesn't say whether its begin was accepted, so each has an entry.
            let limit = match watched.accepts(&event, image) {
                true => watched.limit(image),
                false if watched.role == Role::Begin => NEVER,
                false => continue,
            };
            let event = Event { time: *time.get_or_insert_with(event::given_time), ..event };
            follow(slot, &watched, event, limit);
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
    let waiting = TABLES.iter().enumerate().filter(|(_, table)| waits(table, number));
    waiting.for_each(|(slot, _)| note_unjudged(slot));
}

fn note_unjudged(slot: usize) {
    // SAFETY: null, or valid.
    unsafe { event::place(slot).as_ref() }.iter().for_each(|recording| recording.note_unjudged());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(index: usize, epoch: u16, over: Option<Over>, accepts: Accepts) -> Watched {
        let trigger = TriggerNumber { index, epoch };
        Watched { trigger, role: Role::Begin, over, name: 7, accepts }
    }

    fn entries(table: &Table<Entry>, number: u32) -> usize {
        table.get(number).map_or(0, |first| first.list().count())
    }

    #[test]
    fn a_trigger_is_the_same_in_words() {
        for over in [None, Some(Over::Time(u64::MAX)), Some(Over::Deadline)] {
            for (role, accepts) in ROLES.into_iter().zip([Accepts::All, Accepts::None, Accepts::All]) {
                let trigger = TriggerNumber { index: TRIGGERS - 1, epoch: u16::MAX };
                let watched = Watched { trigger, role, over, name: u16::MAX, accepts };
                // SAFETY: words of one trigger.
                assert_eq!(unsafe { Watched::from_words(watched.to_words()) }, watched);
            }
        }
    }

    #[test]
    fn triggers_that_change_ten_thousand_times_take_no_more_memory() {
        static TABLE: Table<Entry> = Table::new();
        let stays = watched(15, 0, None, Accepts::All);
        for change in 0..10_000u16 {
            let changed = watched(3, change, Some(Over::Time(change.into())), Accepts::All);
            set_in(&TABLE, 5, &[changed, stays]);
            let mut found: Vec<_> = TABLE.get(5).expect("a list").list().filter_map(Entry::watched).collect();
            found.sort_by_key(|watched| watched.trigger);
            assert_eq!(found, [changed, stays]);
        }
        assert_eq!(entries(&TABLE, 5), 2);
        set_in(&TABLE, 5, &[]);
        assert!(!waits(&TABLE, 5) && !waits(&TABLE, 6));
        set_in(&TABLE, 5, &[watched(1, 0, None, Accepts::None)]);
        assert!(waits(&TABLE, 5) && entries(&TABLE, 5) == 2 && entries(&TABLE, 6) == 0);
    }

    #[test]
    fn lines_of_unknown_forms_are_not_understood() {
        assert_eq!(understood(""), 0);
        assert_eq!(understood("0 a:b\n1 >5 a:b\n2 >deadline a:b ? x > 1\n15 a:b ? x == \"y\"\n"), 4);
        assert_eq!(understood("0 >later a:b\n1 !5 a:b ? x ~~~ 1\n16 a:b\n3 a:b\n"), 1);
    }
}
