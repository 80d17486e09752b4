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

/// The events of all providers of the process.
#[derive(Debug)]
pub struct Providers {
    /// Composed descriptions with their enumerations, by site.
    composed: BTreeMap<*const Site, Box<[u8]>>,
    /// Events by `PROVIDER:NAME`, with their modules, in the order in which they came.
    by_name: BTreeMap<Box<str>, Vec<(*mut Module, *const Provided)>>,
    /// Whether some module has tracepoints.
    has_tracepoints: bool,
}

impl Providers {
    pub const fn new() -> Self {
        Self { composed: BTreeMap::new(), by_name: BTreeMap::new(), has_tracepoints: false }
    }

    /// The description of a provider's event.
    pub fn description(&self, site: &Site) -> Option<&[u8]> {
        self.composed.get(&ptr::from_ref(site)).map(|bytes| &**bytes)
    }

    /// Composes the descriptions of a module's events.
    ///
    /// # Safety
    /// The module is loaded, and was not added before.
    pub unsafe fn add(&mut self, module: *mut Module) {
        // SAFETY: as the caller promises.
        let sites = || unsafe { (*module).sites() };
        self.has_tracepoints |= sites().any(|site| site.kind == SITE_TRACEPOINT);
        if !sites().any(|site| site.kind == SITE_PROVIDED) {
            return;
        }
        let mut said = BTreeMap::<(&str, &str), Attributes<'_>>::new();
        for site in sites().filter(|site| site.kind == SITE_ATTRIBUTE) {
            // SAFETY: the module is loaded.
            let attribute = unsafe { sized_bytes(site.description) }.map(provider::decode_attribute);
            if let Some(Ok((provider, name, attributes))) = attribute {
                let known = said.entry((provider, name)).or_default();
                *known = known.or(attributes);
            }
        }
        for site in sites().filter(|site| site.kind == SITE_PROVIDED) {
            // SAFETY: the kind says that the site is the first member of this structure.
            let event = unsafe { &*ptr::from_ref(site).cast::<Provided>() };
            // SAFETY: the module is loaded.
            let Some((name, bytes)) = (unsafe { compose(event, &said) }) else { continue };
            self.composed.insert(site, bytes);
            self.by_name.entry(name).or_default().push((module, event));
        }
    }

    /// Forgets a module's events. Its tracepoints and others' have to be connected again.
    pub fn remove(&mut self, module: *mut Module) {
        let composed = &mut self.composed;
        self.by_name.retain(|_, events| {
            events.retain(|&(of, event)| {
                let is_kept = of != module;
                if !is_kept {
                    composed.remove(&event.cast());
                }
                is_kept
            });
            !events.is_empty()
        });
    }

    /// Connects the tracepoints of these modules with the events of their names: one in the same
    /// module before one in another, then the one that came first. Returns modules with events that
    /// other modules' tracepoints call: those must not be unloaded.
    ///
    /// # Safety
    /// The modules are loaded.
    pub unsafe fn connect(&self, modules: &[*mut Module]) -> Vec<*mut Module> {
        let mut called = Vec::new();
        for &module in if self.has_tracepoints { modules } else { &[] } {
            // SAFETY: as the caller promises.
            for tracepoint in unsafe { tracepoints(module) } {
                // SAFETY: the module is loaded.
                let found = unsafe { self.find(module, tracepoint) };
                let (of, event) = found.unwrap_or((ptr::null_mut(), ptr::null()));
                if event.is_null() {
                    tracepoint.enable(0);
                }
                // Ordering: pairs with the acquire load in `tompion_lttng_call_…`: a thread that
                // sees the event sees what it is made of.
                tracepoint.event.store(event.cast_mut(), Ordering::Release);
                // SAFETY: null, or a loaded module.
                let is_in_file = unsafe { of.as_ref() }.is_some_and(|of| !of.is_anonymous());
                if is_in_file && of != module && !called.contains(&of) {
                    called.push(of);
                }
            }
        }
        called
    }

    /// # Safety
    /// The tracepoint's module is loaded.
    unsafe fn find(
        &self,
        module: *mut Module,
        tracepoint: &Tracepoint,
    ) -> Option<(*mut Module, *const Provided)> {
        // SAFETY: as the caller promises.
        let bytes = unsafe { sized_bytes(tracepoint.site.description)? };
        let (provider, name) = provider::decode_tracepoint(bytes).ok()?;
        let events = self.by_name.get(&*format!("{provider}:{name}"))?;
        // SAFETY: events in the list are those of loaded modules.
        let agrees = |event: *const Provided| unsafe {
            is_same_signature(text((*event).signature), text(tracepoint.signature))
        };
        let fits = || events.iter().copied().filter(|&(_, event)| agrees(event));
        fits().find(|&(of, _)| of == module).or_else(|| fits().next())
    }

    /// Enables the tracepoints of these modules with enabled events, and no others.
    ///
    /// # Safety
    /// The modules are loaded, and connected.
    pub unsafe fn enable_tracepoints(&self, modules: &[*mut Module]) {
        for &module in if self.has_tracepoints { modules } else { &[] } {
            // SAFETY: as the caller promises.
            for tracepoint in unsafe { tracepoints(module) } {
                // SAFETY: an event that is connected is that of a loaded module. Ordering: only
                // changed under the registry's lock.
                let event = unsafe { tracepoint.event.load(Ordering::Relaxed).as_ref() };
                let enabled = event.map_or(0, |event| event.site.recording_mask());
                tracepoint.enable(enabled);
            }
        }
    }
}

/// # Safety
/// The module is loaded.
unsafe fn tracepoints<'a>(module: *mut Module) -> impl Iterator<Item = &'a Tracepoint> {
    // SAFETY: as the caller promises.
    let sites = unsafe { (*module).sites() }.filter(|site| site.kind == SITE_TRACEPOINT);
    // SAFETY: the kind says that the site is the first member of this structure.
    sites.map(|site: &'a Site| unsafe { &*ptr::from_ref(site).cast::<Tracepoint>() })
}

/// The name and the description of an event; none if the description is not sound.
///
/// # Safety
/// The event's module is loaded.
unsafe fn compose(
    event: &Provided,
    said: &BTreeMap<(&str, &str), Attributes<'_>>,
) -> Option<(Box<str>, Box<[u8]>)> {
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
    let bytes = provider::compose(instance, class, &labels, attributes).ok()?;
    Some((format!("{}:{}", names.provider, names.name).into(), bytes.into()))
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
