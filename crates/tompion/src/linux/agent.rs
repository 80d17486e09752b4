//! The one agent of the process: finding it, and handing it this object's sites.
//!
//! The crate is linked into every program and plugin that has events, the agent into none of them.
//! It is in the process already (something was linked with `-ltompion`, or `LD_PRELOAD` brought
//! it), or it is loaded because the environment asks for a recording, or it is absent and nothing
//! is recorded.
//!
//! [`OBJECT`] is handed over by a constructor of the object, before the program's own, and taken
//! back by a destructor, after the program's own. The agent's functions come in it.

use std::{
    arch::{asm, global_asm},
    cell::UnsafeCell,
    ffi::{CStr, c_char, c_int, c_void},
    mem,
    ops::Range,
    ptr,
    sync::atomic::{AtomicPtr, AtomicU32, Ordering},
};

use super::loader;
use crate::{field::Tail, site::Site};

/// Version of the structures that the agent and this crate share.
const ABI: u32 = 1;

/// The agent's function.
pub type AgentFunction = unsafe extern "C" fn(*const Module, u32) -> c_int;
type AppendFunction = unsafe extern "C" fn(*const Site, *const u8, usize);
type AppendTailsFunction = unsafe extern "C" fn(*const Site, *const u8, usize, *const Tail, usize);
type AppendBeginFunction = unsafe extern "C" fn(*const Site, *const u8, usize, *const Tail, usize) -> u32;
type AppendEndFunction = unsafe extern "C" fn(*const Site, u32);
/// A program's function that records its state.
pub type DumpFunction = unsafe extern "C" fn(*mut c_void);
type StateDumpFunction = unsafe extern "C" fn(*const Module, u32, DumpFunction, *mut c_void) -> c_int;
type ContextFunction = unsafe extern "C" fn(*const c_char, u32, *mut c_void) -> c_int;

/// Bits of recordings in a site's `enabled`.
const RECORDINGS: u32 = 0xffff;
/// Shift of the bits of recordings that take the event only as the end of a span.
const END_SHIFT: u32 = 16;
/// Bit of a copy's `enabled`: its recordings are chosen, and their filters are not asked. An agent
/// that does not know it asks them. `PINNED` and the other bits stay the agent's.
const CHOSEN: u32 = 1 << 29;
/// Bit of `enabled`: flight recorders never overwrite the event.
const PINNED: u32 = 1 << 30;
/// Bits of `enabled`: something else is done with the event, whether or not it is recorded. The
/// begin of a span returns them with its recordings.
const OTHERS: u32 = 1 << 27 | 1 << 28;

/// Verb: the object goes away.
const UNLOAD: u32 = 0;
/// Verb: the object was loaded.
const LOAD: u32 = 1;
/// Verb: the flight recorders that the program is part of are to be saved.
const SNAPSHOT: u32 = 2;

/// Verb of state dumps: the function is not to be called any more.
const REMOVE_STATE_DUMP: u32 = 0;
/// Verb of state dumps: the function is to be called when a recording begins.
const ADD_STATE_DUMP: u32 = 1;

/// A place that the agent writes.
#[repr(transparent)]
struct Place<T>(UnsafeCell<T>);

impl<T: Copy> Place<T> {
    /// Value that the agent put there.
    ///
    /// # Safety
    /// The agent doesn't write it at the same time.
    #[inline(always)]
    unsafe fn get(&self) -> T {
        // SAFETY: as the caller promises.
        unsafe { *self.0.get() }
    }
}

/// One executable or shared object: `struct tompion_module`.
#[repr(C)]
pub struct Module {
    abi: u32,
    registered: u32,
    sites_begin: *const *const Site,
    sites_end: *const *const Site,
    append: Place<Option<AppendFunction>>,
    append_tails: Place<Option<AppendTailsFunction>>,
    append_begin: Place<Option<AppendBeginFunction>>,
    append_end: Place<Option<AppendEndFunction>>,
    flags: usize,
    reserved: Place<[*mut c_void; 1]>,
}

impl Module {
    /// One with the sites that pointers in this range point to.
    const fn new(sites: Range<*const *const Site>) -> Self {
        Self {
            abi: ABI,
            registered: 1,
            sites_begin: sites.start,
            sites_end: sites.end,
            append: Place(UnsafeCell::new(None)),
            append_tails: Place(UnsafeCell::new(None)),
            append_begin: Place(UnsafeCell::new(None)),
            append_end: Place(UnsafeCell::new(None)),
            flags: 0,
            reserved: Place(UnsafeCell::new([ptr::null_mut(); 1])),
        }
    }
}

/// An event that is described while the program runs: a module of one site.
struct Described {
    site: Site,
    sites: [*const Site; 1],
    module: Module,
}

/// The module, with what the linker would leave away if nothing pointed to it.
pub struct Object {
    module: Module,
    _hooks: [&'static Hook; 2],
}

// SAFETY: the places are written by the agent while the object is loaded, before it enables the
// first site, and read only where a site was found enabled. The rest never changes.
unsafe impl Sync for Object {}

type Hook = extern "C" fn();

unsafe extern "C" {
    // The linker defines them where there is a section of this name.
    static __start_tompion_sites: [*const Site; 0];
    static __stop_tompion_sites: [*const Site; 0];
}

// One null pointer, which the agent passes over, so that the section exists in programs without
// events. With the flags that `super::site` uses.
global_asm!(".pushsection tompion_sites,\"awR\",@progbits", ".balign 8", ".quad 0", ".popsection",);

/// This object.
pub static OBJECT: Object = Object {
    module: Module::new((&raw const __start_tompion_sites).cast()..(&raw const __stop_tompion_sites).cast()),
    _hooks: [&CONSTRUCTOR, &DESTRUCTOR],
};

/// The agent that has [`OBJECT`]; null without one.
static AGENT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

#[used]
// SAFETY: the loader calls the functions of this section once, with arguments that this one
// ignores. The number puts it before the program's own, where the C header has its constructor,
// too.
#[unsafe(link_section = ".init_array.00101")]
static CONSTRUCTOR: Hook = construct;

#[used]
// SAFETY: the same at the object's end, after the program's own.
#[unsafe(link_section = ".fini_array.00101")]
static DESTRUCTOR: Hook = destruct;

extern "C" fn construct() {
    if let Some(agent) = find() {
        hand_over(agent);
    }
}

extern "C" fn destruct() {
    // Ordering: pairs with the release in `hand_over`, which may have been another thread's.
    let agent = AGENT.swap(ptr::null_mut(), Ordering::Acquire);
    if let Some(agent) = function::<AgentFunction>(agent) {
        // SAFETY: the module was handed over to this agent.
        unsafe { agent(&OBJECT.module, UNLOAD) };
    }
}

/// Gives the module to the agent, unless one has it.
pub fn hand_over(agent: AgentFunction) -> bool {
    let address = agent as *mut c_void;
    // Ordering: release and acquire pair among callers, so that one that comes second finds the
    // module handed over or being so; the agent has a lock of its own.
    let before = AGENT.compare_exchange(ptr::null_mut(), address, Ordering::AcqRel, Ordering::Acquire);
    if before.is_err() {
        return true;
    }
    // SAFETY: the module is a static, and its sites are this object's.
    let taken = unsafe { agent(&OBJECT.module, LOAD) } == 0;
    if !taken {
        // Ordering: relaxed; an agent that refused leaves nothing behind.
        AGENT.store(ptr::null_mut(), Ordering::Relaxed);
    }
    taken
}

/// The library's function, if the library is here or the environment asks for it.
fn find() -> Option<AgentFunction> {
    function(linked())
        .or_else(|| function(loader::symbol(c"tompion_agent_v1")))
        .or_else(loader::open_if_asked)
}

/// The address of the library's function in a program that was linked with the library, else null:
/// a weak reference, which Rust has no words for.
fn linked() -> *mut c_void {
    let place: *const *mut c_void;
    // SAFETY: the instructions compute an address. The section is data that nothing else defines.
    unsafe {
        asm!(
            super::site::address_of_label_2!(),
            ".weak tompion_agent_v1",
            ".pushsection .data.rel.ro.tompion,\"aw\",@progbits",
            ".balign 8",
            "2:",
            ".quad tompion_agent_v1",
            ".popsection",
            address = out(reg) place,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    // SAFETY: the word behind the label, which the linker or the loader has filled in.
    unsafe { place.read() }
}

/// An address as a function; nothing if it is null.
pub fn function<F: Copy>(address: *mut c_void) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) }
    // SAFETY: of the same size, and `F` is a type of function; the address is that of the function
    // of this type, as the symbol's name says.
    (!address.is_null()).then(|| unsafe { mem::transmute_copy(&address) })
}

/// Hands the module over to the library, which is loaded for that if need be.
pub fn load() -> bool {
    find().or_else(loader::open).is_some_and(hand_over)
}

/// Whether an agent has the module.
pub fn is_loaded() -> bool {
    // Ordering: relaxed; nothing is read because of it.
    !AGENT.load(Ordering::Relaxed).is_null()
}

/// A site for an event that is described while the program runs: a module of its own, which stays.
pub fn register(description: &'static [u128]) -> Option<&'static Site> {
    // Ordering: pairs with the release in `hand_over`.
    let agent = function::<AgentFunction>(AGENT.load(Ordering::Acquire))?;
    // In one piece, which the site's address keeps, as finders of leaks see it.
    let described = Box::leak(Box::new(Described {
        site: Site {
            enabled: AtomicU32::new(0),
            number: AtomicU32::new(0),
            description: description.as_ptr().cast(),
            enumerations: ptr::null(),
            kind: 0,
            reserved: 0,
        },
        sites: [ptr::null()],
        module: Module::new(ptr::null()..ptr::null()),
    }));
    described.sites = [&raw const described.site];
    described.module = Module::new(described.sites.as_ptr_range());
    let described: &Described = described;
    // SAFETY: all of it is static.
    (unsafe { agent(&described.module, LOAD) } == 0).then_some(&described.site)
}

/// Asks that flight recorders be saved.
pub fn request_snapshot() -> bool {
    // Ordering: pairs with the release in `hand_over`.
    let agent = function::<AgentFunction>(AGENT.load(Ordering::Acquire));
    // SAFETY: the agent has the module.
    agent.is_some_and(|agent| unsafe { agent(&OBJECT.module, SNAPSHOT) } == 0)
}

/// Offers context.
///
/// # Safety
/// `get` is a function of the type that `ty` says, for as long as the process lives.
pub unsafe fn provide_context(name: &CStr, ty: u32, get: *mut c_void) -> bool {
    let provide = function::<ContextFunction>(loader::symbol(c"tompion_context_v1"));
    // SAFETY: as the caller promises.
    provide.is_some_and(|provide| unsafe { provide(name.as_ptr(), ty, get) } == 0)
}

/// Has a function called when a recording begins, and for those that there are. Returns whether the
/// library does so.
///
/// # Safety
/// The function may be called with `data`, from any thread, until [`remove_state_dump`].
pub unsafe fn add_state_dump(dump: DumpFunction, data: *mut c_void) -> bool {
    // SAFETY: as the caller promises.
    change_state_dumps()
        .is_some_and(|change| unsafe { change(&OBJECT.module, ADD_STATE_DUMP, dump, data) } == 0)
}

/// Has a function not called any more, and waits for a call that is going on in another thread.
pub fn remove_state_dump(dump: DumpFunction, data: *mut c_void) {
    if let Some(change) = change_state_dumps() {
        // SAFETY: the agent compares the two and calls nothing.
        unsafe { change(&OBJECT.module, REMOVE_STATE_DUMP, dump, data) };
    }
}

/// The library's function for state dumps, if it has this object's module and knows state dumps.
fn change_state_dumps() -> Option<StateDumpFunction> {
    if is_loaded() { function(loader::symbol(c"tompion_state_dump_v1")) } else { None }
}

/// Records an event without tails.
///
/// # Safety
/// The site is enabled; `image` is readable for `size` bytes, rounded up to a multiple of 8.
#[inline(always)]
pub unsafe fn append(site: &Site, image: *const u8, size: usize) {
    // SAFETY: no site is enabled before the agent has set its functions, which it doesn't change;
    // the caller saw the site enabled, and put a fence behind it.
    unsafe { OBJECT.module.append.get().unwrap_unchecked()(site, image, size) }
}

/// Records an event with tails.
///
/// # Safety
/// As [`append`]; `tails` points to `count` tails, whose bytes are readable.
#[inline(always)]
pub unsafe fn append_tails(site: &Site, image: *const u8, size: usize, tails: *const Tail, count: usize) {
    // SAFETY: as in `append`.
    unsafe { OBJECT.module.append_tails.get().unwrap_unchecked()(site, image, size, tails, count) }
}

/// Records the begin of a span. Returns the recordings that have it, a bit each.
///
/// # Safety
/// As [`append_tails`]; `count` may be 0.
#[inline(always)]
pub unsafe fn append_begin(
    site: &Site,
    image: *const u8,
    size: usize,
    tails: *const Tail,
    count: usize,
) -> u32 {
    // SAFETY: as in `append`; an agent that doesn't know this function leaves it empty.
    unsafe {
        if let Some(append_begin) = OBJECT.module.append_begin.get() {
            return append_begin(site, image, size, tails, count);
        }
        // Ordering: relaxed, since the caller has seen the site enabled.
        let takers = site.enabled.load(Ordering::Relaxed) & RECORDINGS;
        match count {
            0 => append(site, image, size),
            _ => append_tails(site, image, size, tails, count),
        }
        takers
    }
}

/// Records the end of a span in those of the given recordings that still take it.
///
/// # Safety
/// [`append_begin`] has returned `recordings`, which is not 0, and the site's event has no fields.
#[cold]
pub unsafe fn append_end(site: &'static Site, recordings: u32) {
    // SAFETY: as in `append`: the begin was enabled.
    unsafe {
        if let Some(append_end) = OBJECT.module.append_end.get() {
            return append_end(site, recordings);
        }
    }
    let Some(copy) = chosen(site, recordings) else { return };
    let image = [0u64; 1];
    // SAFETY: as above; the image has no bytes, and the agent keeps no site.
    unsafe { OBJECT.module.append.get().unwrap_unchecked()(&raw const copy, image.as_ptr().cast(), 0) }
}

/// A copy of a site, for the end of a span in those of the given recordings that still take it,
/// whatever their filters; none if no recording does, and nothing else is done with it.
pub fn chosen(site: &Site, recordings: u32) -> Option<Site> {
    // Ordering: pairs with the agent's release store of `enabled`, so that the number is there.
    let enabled = site.enabled.load(Ordering::Acquire);
    let takers = (enabled | enabled >> END_SHIFT) & recordings & RECORDINGS;
    let others = enabled & recordings & OTHERS;
    (takers | others != 0).then(|| Site {
        enabled: AtomicU32::new(takers | others | CHOSEN | enabled & PINNED),
        // Ordering: read behind the load above.
        number: AtomicU32::new(site.number.load(Ordering::Relaxed)),
        description: site.description,
        enumerations: site.enumerations,
        kind: site.kind,
        reserved: site.reserved,
    })
}

#[cfg(test)]
impl Module {
    /// Does what an agent does first.
    ///
    /// # Safety
    /// No site of the module is enabled yet.
    pub unsafe fn set_functions(&self, append: AppendFunction, append_tails: AppendTailsFunction) {
        // SAFETY: as the caller promises, no thread reads it.
        unsafe {
            *self.append.0.get() = Some(append);
            *self.append_tails.0.get() = Some(append_tails);
        }
    }

    /// All sites of the object.
    pub fn sites(&self) -> impl Iterator<Item = &'static Site> {
        let count = (self.sites_end.addr() - self.sites_begin.addr()) / size_of::<*const Site>();
        let begin = self.sites_begin;
        // SAFETY: the linker laid the pointers out between the two addresses.
        (0..count).filter_map(move |index| unsafe { (*begin.add(index)).as_ref() })
    }
}
