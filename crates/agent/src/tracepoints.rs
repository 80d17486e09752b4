//! Tracepoints of LTTng-UST's interface, and the events that providers have for them.
//!
//! A program says that something happens (a tracepoint), and a provider says what is recorded of it
//! (an event). Both may be in different objects, and come and go at different times. This module
//! composes the descriptions of providers' events, and finds the event of each tracepoint.

use std::{
    collections::BTreeMap,
    ffi::{CStr, c_char},
    ptr,
    sync::atomic::{AtomicI32, AtomicPtr, Ordering},
};

use tompion_schema::provider::{self, Attributes};

use crate::debug_log;
use crate::site::{Module, SITE_ATTRIBUTE, SITE_PROVIDED, SITE_TRACEPOINT, Site};

/// An event of a provider, as `include/tompion/private/abi.h` declares it.
#[repr(C)]
#[derive(Debug)]
pub struct Provided {
    site: Site,
    class: *const u8,
    probe: Option<unsafe extern "C" fn()>,
    signature: *const c_char,
    reserved: [usize; 2],
}

/// A tracepoint, as `include/tompion/private/abi.h` declares it.
#[repr(C)]
#[derive(Debug)]
pub struct Tracepoint {
    site: Site,
    event: AtomicPtr<Provided>,
    signature: *const c_char,
    state: *const AtomicI32,
    reserved: usize,
}

impl Tracepoint {
    /// Enables or disables the tracepoint.
    fn enable(&self, recording_mask: u32) {
        // Ordering: release for a mask that is not zero, as for the site of the event.
        self.site.enabled.store(recording_mask, Ordering::Release);
        // SAFETY: null, or a word of the tracepoint's module, which is loaded.
        if let Some(state) = unsafe { self.state.as_ref() } {
            state.store((recording_mask != 0).into(), Ordering::Release);
        }
    }
}

/// Events and tracepoints of one name, with their modules, in the order in which they came.
#[derive(Debug, Default)]
struct Named {
    events: Vec<(*mut Module, *const Provided)>,
    tracepoints: Vec<(*mut Module, *const Tracepoint)>,
}

/// The events of all providers of the process, and the tracepoints that may call them.
#[derive(Debug)]
pub struct Providers {
    /// Composed descriptions with their enumerations, by site.
    composed: BTreeMap<*const Site, Box<[u8]>>,
    /// By `PROVIDER:NAME`.
    by_name: BTreeMap<Box<str>, Named>,
}

impl Providers {
    pub const fn new() -> Self {
        Self { composed: BTreeMap::new(), by_name: BTreeMap::new() }
    }

    /// The description of a provider's event.
    pub fn description(&self, site: &Site) -> Option<&[u8]> {
        self.composed.get(&ptr::from_ref(site)).map(|bytes| &**bytes)
    }

    /// Adds a module: composes the descriptions of its events, and connects tracepoints of their
    /// names, and its own. Returns modules that must not be unloaded any more, because tracepoints
    /// of others call their events.
    ///
    /// # Safety
    /// The module is loaded, and was not added before.
    pub unsafe fn add(&mut self, module: *mut Module) -> Vec<*mut Module> {
        // SAFETY: as the caller promises.
        let sites = || unsafe { (*module).sites() };
        let mut said = BTreeMap::<(&str, &str), Attributes<'_>>::new();
        for site in sites().filter(|site| site.kind == SITE_ATTRIBUTE) {
            // SAFETY: the module is loaded.
            let attribute = unsafe { sized_bytes(site.description) }.map(provider::decode_attribute);
            if let Some(Ok((provider, name, attributes))) = attribute {
                let known = said.entry((provider, name)).or_default();
                *known = known.or(attributes);
            }
        }
        for site in sites() {
            // SAFETY: the module is loaded.
            let Some(name) = (unsafe { name_of(site) }) else { continue };
            if site.kind == SITE_TRACEPOINT {
                self.by_name.entry(name).or_default().tracepoints.push((module, ptr::from_ref(site).cast()));
                continue;
            }
            // SAFETY: the kind says that the site is the first member of this structure.
            let event = unsafe { &*ptr::from_ref(site).cast::<Provided>() };
            // SAFETY: the module is loaded.
            match unsafe { compose(event, &said) } {
                Some(bytes) => {
                    self.composed.insert(site, bytes);
                    self.by_name.entry(name).or_default().events.push((module, event));
                }
                None => {
                    debug_log::debug(format_args!("{name} is not recorded: its description is not sound"))
                }
            }
        }
        // SAFETY: as the caller promises.
        unsafe { self.connect(module) }
    }

    /// Forgets a module's events and tracepoints, and connects others' tracepoints again.
    ///
    /// # Safety
    /// The module was added, and is still loaded.
    pub unsafe fn remove(&mut self, module: *mut Module) {
        // SAFETY: as the caller promises.
        for site in unsafe { (*module).sites() } {
            // SAFETY: as the caller promises.
            let Some(name) = (unsafe { name_of(site) }) else { continue };
            self.composed.remove(&ptr::from_ref(site));
            if site.kind == SITE_TRACEPOINT {
                // SAFETY: the kind says that the site is the first member of this structure.
                unsafe { (*ptr::from_ref(site).cast::<Tracepoint>()).enable(0) };
            }
            if let Some(named) = self.by_name.get_mut(&name) {
                named.events.retain(|&(of, _)| of != module);
                named.tracepoints.retain(|&(of, _)| of != module);
                // SAFETY: the others are loaded.
                unsafe { named.connect(&mut Vec::new()) };
                if named.events.is_empty() && named.tracepoints.is_empty() {
                    self.by_name.remove(&name);
                }
            }
        }
    }

    /// Connects all tracepoints that have the names of a module's events and tracepoints.
    ///
    /// # Safety
    /// The modules are loaded.
    unsafe fn connect(&self, module: *mut Module) -> Vec<*mut Module> {
        let mut called = Vec::new();
        // SAFETY: as the caller promises.
        for named in unsafe { self.named(module) } {
            // SAFETY: as the caller promises.
            unsafe { named.connect(&mut called) };
        }
        called
    }

    /// Returns events and tracepoints that have the names of a module's.
    ///
    /// # Safety
    /// The module is loaded.
    unsafe fn named(&self, module: *mut Module) -> impl Iterator<Item = &Named> {
        // SAFETY: as the caller promises.
        let names = unsafe { (*module).sites() }.filter_map(|site| unsafe { name_of(site) });
        names.filter_map(|name| self.by_name.get(&name))
    }

    /// Enables the tracepoints of enabled events, and no others, among those that have the names of
    /// a module's events and tracepoints.
    ///
    /// # Safety
    /// All modules are loaded.
    pub unsafe fn enable_tracepoints_of(&self, module: *mut Module) {
        // SAFETY: as the caller promises.
        unsafe { self.named(module).for_each(|named| named.enable()) };
    }

    /// Does so among all.
    ///
    /// # Safety
    /// All modules are loaded.
    pub unsafe fn enable_tracepoints(&self) {
        // SAFETY: as the caller promises.
        self.by_name.values().for_each(|named| unsafe { named.enable() });
    }
}

impl Named {
    /// Connects the tracepoints: with an event in the same module before one in another, then with
    /// the one that came first.
    ///
    /// # Safety
    /// The modules are loaded.
    unsafe fn connect(&self, called: &mut Vec<*mut Module>) {
        for &(module, tracepoint) in &self.tracepoints {
            // SAFETY: as the caller promises.
            let tracepoint = unsafe { &*tracepoint };
            // SAFETY: as the caller promises.
            let (of, event) =
                unsafe { self.find(module, tracepoint) }.unwrap_or((ptr::null_mut(), ptr::null()));
            if event.is_null() {
                tracepoint.enable(0);
            }
            // Ordering: pairs with the acquire load in `tompion_lttng_call_…`: a thread that sees
            // the event sees what it is made of.
            tracepoint.event.store(event.cast_mut(), Ordering::Release);
            // SAFETY: null, or a loaded module.
            let is_in_file = unsafe { of.as_ref() }.is_some_and(|of| !of.is_anonymous());
            if is_in_file && of != module && !called.contains(&of) {
                called.push(of);
            }
        }
    }

    /// # Safety
    /// The tracepoint's module and those of the events are loaded.
    unsafe fn find(
        &self,
        module: *mut Module,
        tracepoint: &Tracepoint,
    ) -> Option<(*mut Module, *const Provided)> {
        // SAFETY: as the caller promises.
        let agrees = |event: *const Provided| unsafe {
            is_same_signature(text((*event).signature), text(tracepoint.signature))
        };
        let fits = || self.events.iter().copied().filter(|&(_, event)| agrees(event));
        fits().find(|&(of, _)| of == module).or_else(|| fits().next())
    }

    /// # Safety
    /// The modules are loaded.
    unsafe fn enable(&self) {
        for &(_, tracepoint) in &self.tracepoints {
            // SAFETY: as the caller promises. An event that is connected is that of a loaded
            // module. Ordering: only changed under the registry's lock.
            let (tracepoint, event) = unsafe {
                let tracepoint = &*tracepoint;
                (tracepoint, tracepoint.event.load(Ordering::Relaxed).as_ref())
            };
            tracepoint.enable(event.map_or(0, |event| event.site.recording_mask()));
        }
    }
}

/// The name `PROVIDER:NAME` of an event or a tracepoint; none of other sites.
///
/// # Safety
/// The site's module is loaded.
unsafe fn name_of(site: &Site) -> Option<Box<str>> {
    if !matches!(site.kind, SITE_PROVIDED | SITE_TRACEPOINT) {
        return None;
    }
    // SAFETY: as the caller promises.
    let bytes = unsafe { sized_bytes(site.description)? };
    let (provider, name) = match site.kind {
        SITE_PROVIDED => {
            let names = provider::decode_instance(bytes).ok()?;
            (names.provider, names.name)
        }
        _ => provider::decode_tracepoint(bytes).ok()?,
    };
    Some([provider, ":", name].concat().into())
}

/// The description of an event; none if it is not sound.
///
/// # Safety
/// The event's module is loaded.
unsafe fn compose(event: &Provided, said: &BTreeMap<(&str, &str), Attributes<'_>>) -> Option<Box<[u8]>> {
    // SAFETY: as the caller promises.
    let (instance, class) = unsafe { (sized_bytes(event.site.description)?, sized_bytes(event.class)?) };
    let names = provider::decode_instance(instance).ok()?;
    let mut labels = Vec::new();
    let mut next = event.site.enums;
    // SAFETY: the list ends with a null pointer.
    while let Some(bytes) = unsafe { next.as_ref().and_then(|&labels| sized_bytes(labels)) } {
        labels.push(bytes);
        // SAFETY: not at the end of the list.
        next = unsafe { next.add(1) };
    }
    let attributes = said.get(&(names.provider, names.name)).copied().unwrap_or_default();
    provider::compose(instance, class, &labels, attributes).ok().map(Into::into)
}

/// # Safety
/// The pointer is null, or to text of a loaded module.
unsafe fn text<'a>(start: *const c_char) -> Option<&'a CStr> {
    // SAFETY: as the caller promises.
    (!start.is_null()).then(|| unsafe { CStr::from_ptr(start) })
}

/// Whether two texts of arguments mean the same. `bool` is a macro in C and a type in C++.
fn is_same_signature(event: Option<&CStr>, tracepoint: Option<&CStr>) -> bool {
    let as_in_cxx = |text: &CStr| text.to_string_lossy().replace("_Bool", "bool");
    event == tracepoint
        || event.zip(tracepoint).is_some_and(|(event, other)| as_in_cxx(event) == as_in_cxx(other))
}

/// The bytes of a structure that has its size in the second word.
///
/// # Safety
/// The pointer is null, or to such a structure of a loaded module.
pub unsafe fn sized_bytes<'a>(start: *const u8) -> Option<&'a [u8]> {
    if start.is_null() {
        return None;
    }
    // SAFETY: as the caller promises.
    let size = unsafe { start.add(4).cast::<u32>().read_unaligned() };
    // SAFETY: as the caller promises.
    Some(unsafe { std::slice::from_raw_parts(start, size as usize) })
}
