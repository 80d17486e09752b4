//! Events that are counted in place: which aggregations count an event, by which of its values.
//!
//! Plans are made when an event is enabled, and never freed, because a thread may run one at any
//! time; the same rules for the same event have one plan. Tables are read without a lock.
//!
//! Rules come in the session's count file and are checked as if they could be wrong. The file's
//! memory is never unmapped, so that nothing has to know which threads are about to use it.

mod plan;
mod quick;
mod text;

use std::{
    collections::BTreeMap,
    os::fd::BorrowedFd,
    ptr,
    sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering},
};

use tompion_counts::Rule;
use tompion_layout::{
    counts::{self as layout, AggregationSize, CountGeometry},
    record,
};
use tompion_os::{Retired, RseqArea, SharedMap};
use tompion_protocol::{MAX_RECORDINGS, rules};
use tompion_ring::{
    counts::{CountArea, CountSlot},
    producer::Tail,
};
use tompion_schema::Names;

use crate::{context, filters, table::Table, trust};
use plan::Plan;
pub use quick::Fields;
use quick::Quick;

/// Plans of one event in one recording.
#[derive(Debug)]
struct Plans {
    /// Layout of the memory that they are for.
    layout: u32,
    plans: Vec<Plan>,
}

static TABLES: [Table<Plans>; MAX_RECORDINGS] = [const { Table::new() }; MAX_RECORDINGS];

/// Shortest ways of events that one aggregation counts, by their ids in records: [`IDS`] pointers,
/// or null before an event was counted.
static QUICK: AtomicPtr<AtomicPtr<Quick>> = AtomicPtr::new(ptr::null_mut());
/// Bound of the ids that have had one.
static HIGHEST: AtomicUsize = AtomicUsize::new(0);
/// Number of ids.
const IDS: usize = 1 << 16;

/// Recordings that count, a bit each.
static ACTIVE: AtomicU32 = AtomicU32::new(0);

/// Places of the recordings' memory, which are wiped in the child of any kind of fork.
static SLOTS: AtomicPtr<CountSlot> = AtomicPtr::new(ptr::null_mut());

/// All that plans follow from.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PlanKey {
    layout: u32,
    number: u32,
    description: Box<[u8]>,
    /// Contexts of the application that filters may ask for.
    contexts: u32,
}

/// Number of CPUs, rules, and the sizes of their tables, of a layout.
type LayoutKey = (u32, Vec<String>, Vec<[u32; 3]>);

/// Layouts and plans, kept for ever.
#[derive(Debug, Default)]
pub struct Cache {
    /// Numbers of layouts.
    layouts: BTreeMap<LayoutKey, u32>,
    /// Plans by what they follow from.
    plans: BTreeMap<PlanKey, Option<&'static Plans>>,
    /// Shortest ways by the place of the plans and the recording's slot.
    quick: BTreeMap<(usize, usize), Option<&'static Quick>>,
}

/// Counting of a recording that this process is part of.
#[derive(Debug)]
pub struct Counting {
    map: SharedMap,
    geometry: CountGeometry,
    /// Rule of each aggregation; none if this agent does not understand it.
    rules: Vec<Option<Rule>>,
    layout: u32,
}

impl Cache {
    /// Nothing made yet.
    pub const fn new() -> Self {
        Self { layouts: BTreeMap::new(), plans: BTreeMap::new(), quick: BTreeMap::new() }
    }
}

impl Cache {
    /// Has an event take the shortest way, if it can. The caller holds the registry's lock.
    pub fn update_quick(&mut self, number: u32) {
        let mut all = TABLES.iter().enumerate().filter_map(|(slot, table)| Some((slot, table.get(number)?)));
        let quick = match (all.next(), all.next(), slots()) {
            (Some((slot, plans)), None, Some(slots)) => {
                let make = || match &plans.plans[..] {
                    [plan] => Some(&*Box::leak(Box::new(Quick::new(plan, slots.get(slot)?)?))),
                    _ => None,
                };
                let key = (ptr::from_ref(plans) as usize, slot);
                let quick = *self.quick.entry(key).or_insert_with(make);
                let area = slots.get(slot).and_then(CountSlot::area);
                area.filter(|area| area.layout() == plans.layout).zip(quick).map(|(area, quick)| {
                    quick.set_area(area);
                    quick
                })
            }
            _ => None,
        };
        if let Some(place) = quick_places(true).get(usize::from(record::FIRST_EVENT) + number as usize) {
            let quick = quick.map_or(ptr::null_mut(), |quick| ptr::from_ref(quick).cast_mut());
            // Ordering: only used under the registry's lock.
            HIGHEST.fetch_max(usize::from(record::FIRST_EVENT) + number as usize + 1, Ordering::Relaxed);
            // Ordering: pairs with the acquire load in `quick`.
            place.store(quick, Ordering::Release);
        }
    }
}

/// The places of all ids; none if there are none yet, and none are to be made.
fn quick_places(make: bool) -> &'static [AtomicPtr<Quick>] {
    // Ordering: only changed under the registry's lock.
    let mut first = QUICK.load(Ordering::Relaxed);
    if first.is_null() && make {
        // Zeros, which take no memory before they are used.
        first = Box::leak(vec![0usize; IDS].into_boxed_slice()).as_mut_ptr().cast();
        // Ordering: pairs with the acquire load in `quick`.
        QUICK.store(first, Ordering::Release);
    }
    // SAFETY: null, or so many words that live for ever, of which zeros are null pointers.
    if first.is_null() { &[] } else { unsafe { std::slice::from_raw_parts(first, IDS) } }
}

impl Counting {
    /// Maps a count file and reads its rules. [`Counting::begin`] can't fail afterwards.
    ///
    /// The caller holds the registry's lock.
    ///
    /// # Errors
    /// It is no such file, or there is no memory for the slots; in words.
    pub fn open(file: BorrowedFd<'_>, cache: &mut Cache) -> Result<Self, String> {
        prepare().map_err(|error| error.to_string())?;
        let size = tompion_os::file_size(file).map_err(|error| error.to_string())?;
        let map = SharedMap::received(file, size, trust::believes).map_err(|error| error.to_string())?;
        // Ordering: the session wrote the file before it was passed on.
        let half = |offset| map.half(offset).load(Ordering::Relaxed);
        if size < layout::TEXTS as u64
            || map.word(layout::OFFSET_MAGIC).load(Ordering::Relaxed) != layout::MAGIC
        {
            return Err("expected a count file".into());
        }
        if half(layout::OFFSET_VERSION) != layout::VERSION {
            return Err(format!("expected counts of version {}", layout::VERSION));
        }
        let aggregations =
            half(layout::OFFSET_AGGREGATIONS).min(layout::MAX_AGGREGATIONS as u32 + 1) as usize;
        let entries = (0..aggregations.min(layout::MAX_AGGREGATIONS))
            .map(|aggregation| layout::table_entry(aggregation).map(half));
        let entries: Vec<[u32; 3]> = entries.collect();
        let sizes: Vec<_> =
            entries.iter().map(|&[slots, cells, _]| AggregationSize { slots, cells }).collect();
        let cpus = half(layout::OFFSET_CPUS);
        let geometry = CountGeometry::new(&sizes, cpus)
            .filter(|geometry| geometry.file_size() == size && aggregations <= layout::MAX_AGGREGATIONS)
            .ok_or("the sizes of the count file disagree")?;
        let text = |(aggregation, &[_, _, len]): (usize, &[u32; 3])| {
            let mut bytes = vec![0; (len as usize).min(layout::TEXT_SIZE)];
            map.copy_out(layout::text(aggregation), &mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let texts: Vec<String> = entries.iter().enumerate().map(text).collect();
        let rules = texts
            .iter()
            .zip(&sizes)
            .map(|(text, size)| text.parse::<Rule>().ok().filter(|rule| rule.size() == *size));
        let rules: Vec<_> = rules.collect();
        let next = cache.layouts.len() as u32;
        let layout = *cache.layouts.entry((cpus, texts, entries)).or_insert(next);
        Ok(Self { map, geometry, rules, layout })
    }

    /// Begins to count in a slot, in memory of a process that has restartable sections or not.
    pub fn begin(&self, slot: usize, rseq: Option<RseqArea>) {
        let Some(place) = slots().and_then(|slots| slots.get(slot)) else { return };
        quick_places(true);
        // SAFETY: the map is as large as the geometry says, and is never unmapped: see `end`.
        let area = unsafe { CountArea::new(&self.geometry, self.map.base(), rseq, self.layout) };
        place.set(Some(Box::leak(Box::new(area))));
        let accepted = self.rules.iter().enumerate().filter(|(_, rule)| rule.is_some());
        let accepted = accepted.fold(0u64, |bits, (aggregation, _)| bits | 1 << aggregation);
        // Ordering: a fact by itself.
        self.map.word(layout::OFFSET_ACCEPTED).fetch_or(accepted, Ordering::Relaxed);
        // Ordering: pairs with the acquire load in `count`.
        ACTIVE.fetch_or(1 << slot, Ordering::Release);
    }

    /// Ends the counting of a slot. Private memory takes the place of the count file, for ever: a
    /// thread may be about to write there.
    pub fn end(self, slot: usize) {
        // Ordering: as in `begin`.
        ACTIVE.fetch_and(!(1 << slot), Ordering::Release);
        if let Some(place) = slots().and_then(|slots| slots.get(slot)) {
            place.set(None);
        }
        let _stays = Retired::new(self.map);
    }

    /// Decides which aggregations count an event. Returns whether one does.
    ///
    /// The caller holds the registry's lock.
    pub fn enable(
        &self,
        slot: usize,
        event: &EventToCount<'_>,
        caches: (&mut Cache, &mut filters::Cache),
    ) -> bool {
        let (cache, filters) = caches;
        let (layout, contexts) = (self.layout, context::count());
        let key = PlanKey { layout, number: event.number, description: event.description.into(), contexts };
        let plans = *cache.plans.entry(key).or_insert_with(|| {
            let plans = self.plans(event, filters);
            let plans = Plans { layout: self.layout, plans };
            (!plans.plans.is_empty()).then(|| &*Box::leak(Box::new(plans)))
        });
        TABLES.iter().skip(slot).take(1).for_each(|table| table.set(event.number, plans));
        plans.is_some()
    }

    fn plans(&self, event: &EventToCount<'_>, filters: &mut filters::Cache) -> Vec<Plan> {
        let Ok(described) = tompion_schema::decode(event.description) else { return Vec::new() };
        let mut plans = Vec::new();
        for (aggregation, (rule, place)) in self.rules.iter().zip(self.geometry.aggregations()).enumerate() {
            let Some(rule) = rule else { continue };
            let is_chosen = rule.globs.is_empty()
                || rule.globs.iter().any(|glob| rules::matches_event(glob, &event.names));
            if !is_chosen {
                continue;
            }
            let filter = rule.filter.as_deref().map(|filter| filters.program(filter, event.description));
            if matches!(filter, Some(None)) {
                // It can't be true for this event.
                continue;
            }
            filters::note_pid();
            match Plan::new(rule, &described, event.number) {
                Some(plan) => plans.push(plan.at(aggregation, *place).filtered(filter.flatten())),
                None => {
                    // Ordering: a fact by itself.
                    self.map.word(layout::OFFSET_UNFIT).fetch_or(1 << aggregation, Ordering::Relaxed);
                }
            }
        }
        plans
    }
}

/// An event of which aggregations are to decide.
#[derive(Clone, Copy, Debug)]
pub struct EventToCount<'a> {
    /// Its number.
    pub number: u32,
    /// Its names.
    pub names: Names<'a>,
    /// Its description.
    pub description: &'a [u8],
}

/// The slots, which are made once in the life of the program.
fn prepare() -> std::io::Result<()> {
    if slots().is_none() {
        let page = tompion_os::open_private_page(size_of::<CountSlot>() * MAX_RECORDINGS)?;
        // Ordering: pairs with the acquire load in `slots`. Callers hold the registry's lock.
        SLOTS.store(page.as_ptr().cast(), Ordering::Release);
    }
    Ok(())
}

#[inline(always)]
fn slots() -> Option<&'static [CountSlot]> {
    // Ordering: pairs with the release store in `prepare`.
    let first = SLOTS.load(Ordering::Acquire);
    // SAFETY: null, or memory for so many slots that stays for ever; zeros are slots without an
    // area.
    (!first.is_null()).then(|| unsafe { std::slice::from_raw_parts(first, MAX_RECORDINGS) })
}

/// Whether a recording counts the events of a number.
pub fn any(number: u32) -> bool {
    TABLES.iter().any(|table| table.get(number).is_some())
}

/// Forgets the plans of a recording that ends. The caller holds the registry's lock.
pub fn forget(slot: usize) {
    TABLES.iter().skip(slot).take(1).for_each(Table::clear);
    // Events of other recordings take the long way, until they are enabled again. Ordering: a
    // thread that still finds a way counts nothing by it.
    quick_places(false).iter().take(HIGHEST.load(Ordering::Relaxed)).for_each(|place| {
        place.store(ptr::null_mut(), Ordering::Relaxed);
    });
}

/// The shortest way of an event of this id, if it has one.
///
/// # Safety
/// The event's site has had the bit [`crate::site::COUNTED`].
#[inline(always)]
pub unsafe fn quick(id: u16) -> Option<&'static Quick> {
    // Ordering: pairs with the release store in `quick_places`.
    let first = QUICK.load(Ordering::Acquire);
    // SAFETY: a site is counted only once a recording has begun to count, which makes the places: a
    // pointer for each id, all of which are null or to what lives for ever.
    // Ordering: pairs with the release store in `update_quick`.
    unsafe { (*first.add(id.into())).load(Ordering::Acquire).as_ref() }
}

/// The plans of an event in a recording, with its memory.
#[inline(always)]
fn plans_of(slot: u32, number: u32) -> Option<(&'static CountSlot, &'static CountArea, &'static [Plan])> {
    let plans = TABLES.get(slot as usize)?.get(number)?;
    let place = slots()?.get(slot as usize)?;
    let area = place.area().filter(|area| area.layout() == plans.layout)?;
    Some((place, area, &plans.plans))
}

/// Counts an event in all recordings that count it.
///
/// On the event path: no system call, lock or allocation.
#[inline(never)]
pub fn count(number: u32, tid: u32, image: &[u8], tails: &[Tail]) {
    // Ordering: pairs with the release in `Counting::begin`.
    let mut rest = ACTIVE.load(Ordering::Acquire);
    while rest != 0 {
        let slot = rest.trailing_zeros();
        rest &= rest - 1;
        let Some((place, area, plans)) = plans_of(slot, number) else { continue };
        for plan in plans {
            // SAFETY: the plan was made for this layout; the event's image and tails are readable.
            // The caller is a thread of this process.
            unsafe { plan.count(place, area, tid, (image, tails)) };
        }
    }
}

/// Counts an event as one that no aggregation could count.
#[cold]
pub fn lose(number: u32) {
    // Ordering: as in `count`.
    let active = ACTIVE.load(Ordering::Acquire);
    for slot in (0..MAX_RECORDINGS as u32).filter(|slot| active & (1 << slot) != 0) {
        if let Some((_, area, plans)) = plans_of(slot, number) {
            plans.iter().for_each(|plan| area.lose(plan.aggregation()));
        }
    }
}
