//! Registry of the modules, sites, events and recordings of this process.
//!
//! The agent's lock guards it. It is taken to load or unload a module, and to join or leave a
//! session.

use std::{
    cell::UnsafeCell,
    collections::BTreeMap,
    ops::{Deref, DerefMut},
    sync::atomic::{AtomicBool, Ordering},
};

use tompion_layout::{catalog, record};
use tompion_os::Retired;
use tompion_protocol::{MAX_RECORDINGS, rules};
use tompion_ring::in_flight;
use tompion_schema::Kind;

use crate::{
    actions, context, counts, filters, heap, lock,
    objects::{self, Object, Objects},
    open_spans,
    pending::{Pending, RetryLater},
    recording::{InheritedConnection, JoinedRecording, ParentEvents},
    site::{
        ACTIONS, COUNTED, END_SHIFT, Module, OTHERS, PINNED, RECORDINGS_MASK, SITE_ASKS, SITE_PROVIDED,
        SITE_RECORDS, SITE_TRACEPOINT, SLOW, Site,
    },
    state_dump::StateDumps,
    thread_state::Background,
    tracepoints::{Providers, sized_bytes},
    triggers, writer,
};

/// Events beyond this number cannot be recorded in a record.
const MAX_EVENTS: u32 = (u16::MAX - record::FIRST_EVENT) as u32;

/// The agent's state.
#[derive(Debug)]
pub struct Registry {
    modules: Vec<*mut Module>,
    /// Number of each event, by its description. The same in all recordings.
    numbers: BTreeMap<Box<[u8]>, u32>,
    /// The next event's number.
    next_number: u32,
    /// Number of the application's contexts that events with numbers have.
    numbered_contexts: u32,
    /// Events of providers of tracepoints.
    providers: Providers,
    /// Whether some module has had sites that ask whether events are enabled.
    has_questions: bool,
    /// Compiled filters.
    filters: filters::Cache,
    /// Layouts and plans of events that are counted.
    pub counts: counts::Cache,
    /// Events for which triggers wait.
    triggers: triggers::Cache,
    /// Executables and libraries whose addresses stand in events.
    pub objects: Objects,
    /// The recordings, by slot.
    pub recordings: [Option<JoinedRecording>; MAX_RECORDINGS],
    /// Memory of ended recordings that some thread may still write, to be unmapped when there is
    /// none.
    pub retired: Vec<Retired>,
    /// Conversations that have begun, without a welcome yet.
    pub pending: Vec<Pending>,
    /// Whether the background thread must probe the sessions that are open to all programs.
    pub probe_due: bool,
    /// Whether the process has looked for join sockets, which it does once.
    pub has_looked: bool,
    /// Whether the user's own recorders have a folder for their join sockets.
    pub has_own_folder: bool,
    /// Sessions that are being started for this process, or had no room for it.
    pub retries: Vec<RetryLater>,
    /// The name under which the session of the environment's folder is, or would be.
    pub shared_folder_session: Option<String>,
    /// The background thread.
    pub background: Background,
    /// Functions that record the program's state.
    pub state_dumps: StateDumps,
    /// Whether the process follows its forks already.
    pub follows_forks: bool,
    /// Whether the process can be asked to take part, for which it has a background thread.
    pub reachable: bool,
    /// Whether the process began as the child of a fork, with a copy of its parent's memory.
    pub is_fork_child: bool,
    /// Whether the agent keeps out of this process.
    pub disabled: bool,
}

struct Guarded {
    /// Whether some [`Guard`] exists.
    borrowed: AtomicBool,
    registry: UnsafeCell<Registry>,
}

// SAFETY: the registry is only reached through `lock`, which lets one thread in at a time, and
// once.
unsafe impl Sync for Guarded {}

static REGISTRY: Guarded = Guarded {
    borrowed: AtomicBool::new(false),
    registry: UnsafeCell::new(Registry {
        modules: Vec::new(),
        numbers: BTreeMap::new(),
        next_number: 0,
        numbered_contexts: 0,
        providers: Providers::new(),
        has_questions: false,
        filters: filters::Cache::new(),
        counts: counts::Cache::new(),
        triggers: triggers::Cache::new(),
        objects: Objects::new(),
        recordings: [const { None }; MAX_RECORDINGS],
        retired: Vec::new(),
        pending: Vec::new(),
        probe_due: false,
        has_looked: false,
        has_own_folder: false,
        retries: Vec::new(),
        shared_folder_session: None,
        background: Background::new(),
        state_dumps: StateDumps::new(),
        follows_forks: false,
        reachable: false,
        is_fork_child: false,
        disabled: false,
    }),
};

/// The registry, locked.
pub struct Guard {
    _held: lock::Held,
}

/// Waits for the registry.
///
/// # Panics
/// If the calling thread has it already.
pub fn lock() -> Guard {
    let held = lock::hold();
    // Ordering: only used under the lock.
    assert!(!REGISTRY.borrowed.swap(true, Ordering::Relaxed), "the registry is taken twice");
    Guard { _held: held }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Ordering: as above; the lock is released after this.
        REGISTRY.borrowed.store(false, Ordering::Relaxed);
    }
}

impl Deref for Guard {
    type Target = Registry;
    fn deref(&self) -> &Registry {
        // SAFETY: the guard proves that this thread has the lock.
        unsafe { &*REGISTRY.registry.get() }
    }
}

impl DerefMut for Guard {
    fn deref_mut(&mut self) -> &mut Registry {
        // SAFETY: as above.
        unsafe { &mut *REGISTRY.registry.get() }
    }
}

/// The description of a site's event with its enumerations, as it goes into the catalog.
///
/// # Safety
/// The site's pointers are those that its module was compiled with.
unsafe fn description(site: &Site, providers: &Providers) -> Option<Box<[u8]>> {
    if site.kind != SITE_RECORDS {
        return providers.description(site).map(Box::from);
    }
    // SAFETY: a description says its size in its second word; the bytes are a static of the module.
    let bytes = unsafe { sized_bytes(site.description)? };
    let mut all = bytes.to_vec();
    let enums = tompion_schema::enum_field_count(bytes).ok()?;
    for index in 0..if site.enums.is_null() { 0 } else { enums } {
        // SAFETY: the module has one pointer for each enum field.
        all.extend(unsafe { sized_bytes(*site.enums.add(index))? });
    }
    Some(all.into_boxed_slice())
}

/// Whether the site is that of an event, which can be recorded.
fn has_event(site: &Site) -> bool {
    matches!(site.kind, SITE_RECORDS | SITE_PROVIDED)
}

impl Registry {
    /// Adds a module, and connects tracepoints with the events of providers. Returns modules that
    /// must not be unloaded any more, because others call them; none if the module is known.
    pub fn add_module(&mut self, module: *mut Module) -> Option<Vec<*mut Module>> {
        if self.modules.contains(&module) {
            return None;
        }
        self.modules.push(module);
        // SAFETY: the module was just loaded.
        self.has_questions |= unsafe { (*module).sites() }.any(|site| site.kind == SITE_ASKS);
        // SAFETY: as above.
        Some(if heap::is_short() { Vec::new() } else { unsafe { self.providers.add(module) } })
    }

    /// Enables the sites of a module that was just added.
    pub fn enable_module(&mut self, module: *mut Module) {
        if !self.is_recording() {
            return;
        }
        self.enable_events(module);
        // SAFETY: modules in the list are loaded.
        unsafe { self.providers.enable_tracepoints_of(module) };
        self.update_query_sites();
    }

    fn enable_events(&mut self, module: *mut Module) {
        // SAFETY: modules in the list are loaded.
        for site in unsafe { (*module).sites() }.filter(|site| has_event(site)) {
            self.enable_site(site);
        }
    }

    /// Lets a module's sites go.
    pub fn unload(&mut self, module: *mut Module) {
        self.modules.retain(|&known| known != module);
        // SAFETY: the module is still loaded; it says that it is about to go. Those that were
        // called from elsewhere are never unloaded.
        unsafe { self.providers.remove(module) };
        self.recordings.iter_mut().flatten().for_each(JoinedRecording::forget_descriptions);
        // SAFETY: the module is still loaded; it says that it is about to go.
        for site in unsafe { (*module).sites() } {
            site.enabled.store(0, Ordering::Relaxed);
        }
        if self.is_recording() {
            // Others may ask for events that were only there. Their tracepoints call other events.
            // SAFETY: the module is still loaded.
            unsafe { self.providers.enable_tracepoints_of(module) };
            self.update_query_sites();
        }
    }

    fn is_recording(&self) -> bool {
        self.recordings.iter().any(Option::is_some)
    }

    /// Decides about every site again, after recordings or their rules have changed.
    pub fn enable_all(&mut self) {
        for module in self.modules.clone() {
            self.enable_events(module);
        }
        // SAFETY: modules in the list are loaded.
        unsafe { self.providers.enable_tracepoints() };
        self.update_query_sites();
        // Sites keep their old state if there is no memory for descriptions.
        if !heap::is_short() {
            self.recordings.iter().flatten().for_each(JoinedRecording::acknowledge_rules);
        }
        if self.background.running {
            self.acknowledge_listening();
        }
    }

    /// Tells all sessions that the background thread receives what they say. Returns whether rules
    /// have changed before: then sites are to be enabled again.
    pub fn acknowledge_listening(&mut self) -> bool {
        let recordings = self.recordings.iter_mut().flatten();
        recordings.fold(false, |changed, joined| joined.acknowledge_listening() | changed)
    }

    /// A site that asks answers for the events of its name, wherever they are: a module that comes
    /// or goes can change what others are recorded.
    fn update_query_sites(&mut self) {
        if !self.has_questions {
            return;
        }
        let mut recording_mask = BTreeMap::<(String, String), u32>::new();
        let sites = |wanted: bool| {
            // SAFETY: modules in the list are loaded.
            let sites = self.modules.iter().flat_map(|&module| unsafe { (*module).sites() });
            sites.filter(move |site| if wanted { site.kind == SITE_ASKS } else { has_event(site) })
        };
        let name = |site: &Site| {
            let provided = self.providers.description(site);
            // SAFETY: the site's module is loaded.
            let bytes = provided.or_else(|| unsafe { sized_bytes(site.description) })?;
            let names = tompion_schema::decode_names(bytes).ok()?;
            Some((names.provider.to_owned(), names.name.to_owned(), names.base().to_owned()))
        };
        if sites(true).next().is_none() {
            return;
        }
        let bits = |site: &Site| site.recording_mask() & (RECORDINGS_MASK | OTHERS);
        for site in sites(false).filter(|site| bits(site) != 0) {
            if heap::is_short() {
                break;
            }
            if let Some((provider, name, base)) = name(site) {
                // A span is asked for by its own name.
                *recording_mask.entry((provider.clone(), base)).or_default() |= bits(site);
                *recording_mask.entry((provider, name)).or_default() |= bits(site);
            }
        }
        for site in sites(true) {
            let name = name(site).map(|(provider, name, _)| (provider, name));
            let mask = name.and_then(|name| recording_mask.get(&name)).copied().unwrap_or(0);
            site.enabled.store(mask, Ordering::Relaxed);
        }
    }

    /// Describes the site's event to every session, wanted or not (so that a session can say which
    /// events there are), then enables it where it is wanted.
    fn enable_site(&mut self, site: &Site) {
        if heap::is_short() {
            for (slot, joined) in self.recordings.iter_mut().enumerate() {
                joined.iter_mut().for_each(|joined| joined.count_undescribed(slot));
            }
            return;
        }
        // SAFETY: the site's module is loaded.
        let Some(description) = (unsafe { description(site, &self.providers) }) else { return };
        let Ok(names) = tompion_schema::decode_names(&description) else { return };
        let number = self.number_of(&description);
        if number >= MAX_EVENTS {
            return;
        }
        site.head.store(record::Head::empty(record::FIRST_EVENT + number as u16), Ordering::Relaxed);
        let mut recording_mask = 0;
        let event = counts::EventToCount { number, names, description: &description };
        for (slot, joined) in self.recordings.iter_mut().enumerate() {
            let Some(joined) = joined else { continue };
            if let Some(counting) = &joined.counting {
                let is_counted = counting.enable(slot, &event, (&mut self.counts, &mut self.filters));
                recording_mask |= if is_counted { COUNTED } else { 0 };
            }
            if !joined.describe(number, &description, self.numbered_contexts) {
                joined.count_undescribed(slot);
                continue;
            }
            let watched = self.triggers.watched(&joined.triggers, &names, &description, &mut self.filters);
            triggers::set(slot, number, &watched);
            recording_mask |= if watched.is_empty() { 0 } else { ACTIONS };
            if rules::take(&joined.rules, &names) {
                let filter = rules::filter(&joined.rules);
                let program = filter.map(|filter| self.filters.program(filter, &description));
                filters::set(slot, number, program.flatten());
                recording_mask |= match program {
                    None if joined.contexts => 1 << slot | SLOW,
                    None => 1 << slot,
                    Some(Some(_)) => 1 << slot | SLOW,
                    // The filter can't be true for this event, but may have been for the span's
                    // begin.
                    Some(None) if names.kind == Kind::End => 1 << slot << END_SHIFT,
                    Some(None) => 0,
                };
            }
        }
        self.counts.update_quick(number);
        if recording_mask & !OTHERS != 0 && names.init {
            recording_mask |= SLOW | PINNED;
        }
        // Ordering: pairs with the acquire load in `Site::recording_mask`: a thread that sees a bit
        // finds the id.
        site.enabled.store(recording_mask, Ordering::Release);
    }

    fn number_of(&mut self, description: &[u8]) -> u32 {
        if let Some(number) = self.numbers.get(description) {
            return *number;
        }
        let number = self.next_number;
        if number < MAX_EVENTS {
            self.next_number += 1;
            self.numbers.insert(description.into(), number);
        }
        number
    }

    /// The application has more contexts than before, or a recording was joined, which may want
    /// them: gives events new numbers where the contexts are not those that their numbers stand
    /// for.
    pub fn contexts_changed(&mut self) {
        let contexts = context::count();
        if self.numbered_contexts != contexts && context::wanted() != 0 {
            self.numbered_contexts = contexts;
            self.numbers.clear();
            context::begin_epoch(self.next_number, contexts);
        }
        // Filters may know more than before, too.
        self.enable_all();
    }

    /// Tells all recordings of an object that was loaded, unless they know it.
    pub fn note_object(&mut self, object: Object) {
        let Some(object) = self.objects.add(object).cloned() else { return };
        let records = object.records(objects::LOADED);
        for slot in 0..MAX_RECORDINGS {
            if self.record_initial(slot, &records, catalog::INITIAL_ROOM) {
                continue;
            }
            // What was said of its place before must not be believed.
            let is_new =
                self.recordings[slot].as_mut().is_some_and(|joined| joined.invalidate(object.range()));
            if is_new {
                self.record_initial(slot, &[object.unknown_object()], catalog::DOUBT_ROOM);
            }
        }
    }

    /// Tells a recording that has just begun of the objects that are loaded.
    pub fn record_objects(&mut self, slot: usize) {
        let records: Vec<objects::Record> =
            self.objects.iter().flat_map(|object| object.records(objects::FOUND)).collect();
        self.record_initial(slot, &records, catalog::INITIAL_ROOM);
    }

    /// Puts records where no ring overwrites them. False if some had no room.
    fn record_initial(&mut self, slot: usize, records: &[objects::Record], room: u64) -> bool {
        let Some(tid) = writer::current().thread() else { return true };
        let cpu = tompion_os::current_cpu();
        for record in records {
            let number = self.number_of(&record.description);
            let Some(joined) = &mut self.recordings[slot] else { return true };
            // Their descriptions have no contexts of the application, and neither have the records.
            let recorded = number < MAX_EVENTS
                && joined.describe(number, &record.description, 0)
                && joined.record_initial(number, (tid, cpu), &record.payload, room);
            if !recorded {
                joined.count_undescribed(slot);
                return false;
            }
        }
        true
    }

    /// Turns off one recording's bit at every site.
    pub fn disable(&self, slot: usize) {
        actions::forget(slot);
        counts::forget(slot);
        for &module in &self.modules {
            // SAFETY: modules in the list are loaded.
            for site in unsafe { (*module).sites() }.filter(|site| site.kind != SITE_TRACEPOINT) {
                let others = site.recording_mask() & !(1 << slot | 1 << slot << END_SHIFT);
                let is_done = others & ACTIONS != 0 && !actions::any(site.number());
                let others = if is_done { others & !ACTIONS } else { others };
                let is_done = others & COUNTED != 0 && !counts::any(site.number());
                let others = if is_done { others & !COUNTED } else { others };
                let recording_mask = if others & !(SLOW | PINNED) == 0 { 0 } else { others };
                // Ordering: only changed under the registry's lock; a thread that saw the bit finds
                // out later. Release for the bits that stay: pairs with the acquire load in
                // `Site::recording_mask`.
                site.enabled.store(recording_mask, Ordering::Release);
            }
        }
        // SAFETY: modules in the list are loaded.
        unsafe { self.providers.enable_tracepoints() };
    }

    /// In the child of a fork: begins a recording with the events that its parent had in the
    /// session. False if they have to be described and enabled again.
    ///
    /// The sites and the filters of the slot are as they were in the parent.
    pub fn resume_events(&mut self, slot: usize, parent: &ParentEvents) -> bool {
        let recording = self.recordings[slot].as_mut().filter(|_| parent.slot() == slot);
        let is_resumed = recording.is_some_and(|joined| joined.resume(parent));
        if is_resumed {
            filters::note_child();
            self.recordings[slot].iter().for_each(JoinedRecording::acknowledge_rules);
            self.record_objects(slot);
        }
        is_resumed
    }

    /// Ends a recording whose session is gone.
    pub fn end(&mut self, slot: usize) {
        self.disable(slot);
        self.state_dumps.recording_ended(slot);
        if let Some(joined) = self.recordings[slot].take() {
            self.retired.extend(joined.leave(slot));
        }
        self.unmap_retired();
        self.schedule_unmap_check();
    }

    /// Unmaps the memory of ended recordings, once no thread uses it any more.
    pub fn unmap_retired(&mut self) {
        if !self.retired.is_empty() && !in_flight::is_any() {
            for retired in std::mem::take(&mut self.retired) {
                // SAFETY: only the memory of ended recordings in section form is in the list, whose
                // sections were restarted. No thread is in the slow part of an append.
                unsafe { retired.unmap() };
            }
        }
    }

    /// Makes the background thread check a few times whether memory can be unmapped.
    pub fn schedule_unmap_check(&mut self) {
        let is_done = self.retired.is_empty();
        self.background.schedule_unmap_check(is_done);
    }

    /// In the child of a fork: the parent's recordings are not ours. Returns its conversations,
    /// which are to be closed.
    ///
    /// The sites stay as they are. Until others begin, events find the recordings' page wiped.
    pub fn forget_recordings(&mut self) -> Vec<InheritedConnection> {
        let mut conversations = Vec::new();
        open_spans::forget_all();
        for slot in 0..MAX_RECORDINGS {
            if let Some(joined) = self.recordings[slot].take() {
                // The only thread is in `fork`. One that is to go back into a section finds the
                // page wiped.
                let (conversation, retired) = joined.abandon(slot, true);
                conversations.push(conversation);
                self.retired.extend(retired);
            }
        }
        conversations
    }
}
