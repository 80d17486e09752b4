//! The places in the program that `tracing` calls callsites, with the events that happen there.
//!
//! `tracing` says a callsite's names before its first event, but no types. So an event is described
//! when it first happens, and once more for each other combination of types that comes later: a
//! generic function has one callsite for all its instances, and a field that is `None` or `Empty`
//! isn't there at all.
//!
//! ```text
//! callsite's address ─► table of 256 places ─► … of 512 ─► …        nothing is ever moved or freed
//!                          └► Callsite ─► event ─► event of other types ─► …
//! ```
//!
//! Looking up is free of locks. A place or an event that is missing is filled in by a `OnceLock`: a
//! thread that comes at the same time waits until it is described.

use std::sync::{LazyLock, OnceLock};

use tompion::dynamic::{Event, Kind, Outline, Values};
use tracing_core::{Level, Metadata};

/// Places of the first table.
const FIRST_TABLE: usize = 256;
/// Places of a table that are looked at for one address.
const PROBES: usize = 16;

static TABLE: LazyLock<Table> = LazyLock::new(|| Table::new(FIRST_TABLE));

struct Table {
    /// A power of two.
    places: Box<[OnceLock<&'static Callsite>]>,
    /// A table of twice the size, for addresses that found no place here.
    next: OnceLock<Box<Table>>,
}

impl Table {
    fn new(size: usize) -> Self {
        Self { places: (0..size).map(|_| OnceLock::new()).collect(), next: OnceLock::new() }
    }

    /// The places where an address may be, in order.
    fn candidates(&self, address: usize) -> impl Iterator<Item = &OnceLock<&'static Callsite>> {
        // Fibonacci hashing: the upper bits depend on all of the address.
        let hash = (address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let mask = self.places.len() - 1;
        (0..PROBES).map(move |step| &self.places[(hash as usize + step) & mask])
    }

    /// The callsite at an address, if it is known.
    fn find(&self, address: usize) -> Option<&'static Callsite> {
        let mut table = self;
        loop {
            for place in table.candidates(address) {
                let callsite = place.get()?;
                if callsite.address == address {
                    return Some(callsite);
                }
            }
            table = table.next.get()?;
        }
    }

    /// The callsite at an address.
    fn find_or_add(&self, metadata: &'static Metadata<'static>) -> &'static Callsite {
        let address = address_of(metadata);
        let mut table = self;
        loop {
            for place in table.candidates(address) {
                let callsite = place.get_or_init(|| Box::leak(Box::new(Callsite::new(metadata))));
                if callsite.address == address {
                    return callsite;
                }
            }
            table = table.next.get_or_init(|| Box::new(Self::new(table.places.len() * 2)));
        }
    }
}

fn address_of(metadata: &Metadata<'_>) -> usize {
    std::ptr::from_ref(metadata).addr()
}

/// The callsite with this metadata.
pub fn callsite(metadata: &'static Metadata<'static>) -> &'static Callsite {
    TABLE.find(address_of(metadata)).unwrap_or_else(|| TABLE.find_or_add(metadata))
}

/// Whether a recording takes events or spans of a callsite, or could.
pub fn is_wanted(metadata: &Metadata<'_>) -> bool {
    // Metadata that are no static belong to no callsite.
    TABLE.find(address_of(metadata)).is_none_or(Callsite::is_wanted)
}

/// Role of an event at its callsite.
#[derive(Clone, Copy)]
pub enum Role {
    /// An event, or what begins a span.
    Main,
    /// Event that ends a span.
    End,
}

/// Callsite of the crate `tracing`, with its event here.
pub struct Callsite {
    address: usize,
    metadata: &'static Metadata<'static>,
    main: Chain,
    end: Chain,
}

impl Callsite {
    fn new(metadata: &'static Metadata<'static>) -> Self {
        Self { address: address_of(metadata), metadata, main: Chain::default(), end: Chain::default() }
    }

    /// Whether a recording takes any of its events.
    pub fn is_enabled(&self) -> bool {
        self.main.iter().any(Event::is_enabled)
    }

    /// Whether a recording takes one of its events, or could.
    fn is_wanted(&self) -> bool {
        let count = self.metadata.fields().len();
        let mut is_known = false;
        for event in self.main.iter() {
            if event.is_enabled() {
                return true;
            }
            // An event that lacks a field says nothing about those that have it, since a filter may
            // ask for the field. Spans mostly lack what they get later, always the same.
            is_known |= self.metadata.is_span() || event.fields() == count;
        }
        !is_known
    }

    /// Its event for values of these types.
    pub fn event(&self, role: Role, values: &Values) -> &'static Event {
        let chain = match role {
            Role::Main => &self.main,
            Role::End => &self.end,
        };
        chain.find(values, || self.describe(role, values))
    }

    /// Records the begin of a span without fields. Returns the recordings that have it.
    pub fn begin_empty(&self) -> u32 {
        let none = Values::new();
        self.event(Role::Main, &none).begin(&none)
    }

    /// Records the end of a span without fields in these recordings.
    pub fn end_empty(&self, recordings: u32) {
        let none = Values::new();
        self.event(Role::End, &none).end(&none, recordings);
    }

    fn describe(&self, role: Role, values: &Values) -> Event {
        let kind = match role {
            Role::End => Kind::End,
            Role::Main if self.metadata.is_span() => Kind::Begin,
            Role::Main => Kind::Instant,
        };
        let outline = Outline {
            kind,
            level: level(*self.metadata.level()),
            provider: self.metadata.target(),
            name: name(self.metadata),
        };
        let name_of =
            |key| self.metadata.fields().iter().nth(usize::from(key)).map_or("", |field| field.name());
        Event::describe(&outline, values, name_of)
    }
}

/// `FILE:LINE` for an event that was given no name, which `tracing` calls `event PATH/FILE:LINE`.
fn name(metadata: &'static Metadata<'static>) -> &'static str {
    let name = metadata.name();
    match (name.strip_prefix("event "), metadata.file()) {
        (Some(place), Some(file)) if place.starts_with(file) => {
            place.rsplit_once('/').map_or(place, |(_, file)| file)
        }
        _ => name,
    }
}

/// Returns the level of Tompion that corresponds to one of the crate `tracing`.
fn level(level: Level) -> tompion::Level {
    match level {
        Level::ERROR => tompion::Level::Error,
        Level::WARN => tompion::Level::Warning,
        Level::INFO => tompion::Level::Info,
        Level::DEBUG => tompion::Level::DebugModule,
        Level::TRACE => tompion::Level::DebugLine,
    }
}

/// Events that differ by their types.
#[derive(Default)]
struct Chain(OnceLock<&'static Link>);

struct Link {
    event: Event,
    next: Chain,
}

impl Chain {
    fn iter(&self) -> impl Iterator<Item = &'static Event> {
        let links = std::iter::successors(self.0.get(), |link| link.next.0.get());
        links.map(|link| &link.event)
    }

    /// The event that takes the values.
    fn find(&self, values: &Values, describe: impl Fn() -> Event) -> &'static Event {
        let mut chain = self;
        loop {
            let link: &'static Link = chain
                .0
                .get_or_init(|| Box::leak(Box::new(Link { event: describe(), next: Self::default() })));
            if link.event.takes(values) {
                return &link.event;
            }
            chain = &link.next;
        }
    }
}
