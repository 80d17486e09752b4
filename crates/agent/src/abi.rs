//! The face towards instrumented programs, as `include/tompion/tompion.h` declares it.
//!
//! One symbol, [`tompion_agent_v1`]; everything else goes through pointers that it hands out.
//! Structures only ever grow at their end, told by `abi`.

use std::{
    ffi::c_void,
    sync::atomic::{AtomicU32, Ordering},
};

use tompion_ring::producer::Tail;

use crate::{event, fork, registry, shielded};

/// Version of the structures in this module.
pub const ABI: u32 = 1;

/// One use of an event macro.
#[repr(C)]
#[derive(Debug)]
pub struct Site {
    /// Bit n: recording n takes the event. Bit [`event::END_SHIFT`] + n: it takes the event where
    /// that ends a span whose begin it has. The rest is [`event::SLOW`] and [`event::KEPT`].
    pub enabled: AtomicU32,
    /// Half of the head of the event's records, see [`tompion_layout::record::Head::empty`].
    pub head: AtomicU32,
    /// The event's description.
    pub description: *const u8,
    /// Descriptions of the enum fields' types, in order.
    pub enums: *const *const u8,
    /// 0, or [`SITE_ASKS`].
    pub kind: u32,
    /// Zero.
    pub reserved: u32,
}

/// A site that only asks whether the event is enabled; 0 is one that records.
pub const SITE_ASKS: u32 = 1;

/// Records an event without tails.
pub type AppendFunction = unsafe extern "C" fn(*const Site, *const u8, usize);
/// Records an event with tails.
pub type AppendTailsFunction = unsafe extern "C" fn(*const Site, *const u8, usize, *const Tail, usize);

/// Records a span's begin, with tails or without; returns the recordings that have it.
pub type AppendBeginFunction = unsafe extern "C" fn(*const Site, *const u8, usize, *const Tail, usize) -> u32;
/// Records a span's end in these recordings.
pub type AppendEndFunction = unsafe extern "C" fn(*const Site, u32);

/// An executable or a shared library that has sites.
#[repr(C)]
#[derive(Debug)]
pub struct Module {
    /// Version that the module was compiled for.
    pub abi: u32,
    /// The module's own.
    pub registered: u32,
    /// First pointer to a site.
    pub sites_begin: *const *const Site,
    /// Behind the last one.
    pub sites_end: *const *const Site,
    /// Filled in by the agent.
    pub append: Option<AppendFunction>,
    /// Filled in by the agent.
    pub append_tails: Option<AppendTailsFunction>,
    /// Filled in by the agent. The first headers know it as reserved, as the next one.
    pub append_begin: Option<AppendBeginFunction>,
    /// Filled in by the agent.
    pub append_end: Option<AppendEndFunction>,
    /// [`FLAG_PASSIVE`] or 0. The first headers know it as reserved, and leave it 0.
    pub flags: usize,
    /// The agent's.
    pub reserved: [*mut c_void; 1],
}

/// Flag of a module that a preloaded library brings, not the program: it is no reason to start a
/// thread.
const FLAG_PASSIVE: usize = 1;

/// Verb: the module's objects go away.
const UNLOAD: u32 = 0;
/// Verb: the module was loaded.
const LOAD: u32 = 1;
/// Verb: the program asks that its flight recorders be saved. The module doesn't matter.
const SNAPSHOT: u32 = 2;

/// Takes a module's sites, or lets them go; or asks for a snapshot, which may be done in signal
/// handlers. Returns 0, or -1 for what it doesn't understand, and for a snapshot where nobody
/// records.
///
/// # Safety
/// `module` and the sites it points to stay valid between the two calls.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tompion_agent_v1(module: *mut Module, verb: u32) -> i32 {
    if verb == SNAPSHOT {
        return event::request_snapshot();
    }
    shielded(-1, || {
        if module.is_null() {
            return -1;
        }
        // SAFETY: not null, and valid as the caller promises.
        if unsafe { (*module).abi } < ABI {
            return -1;
        }
        if fork::is_stray() {
            return 0;
        }
        match verb {
            LOAD => {
                crate::begin();
                // SAFETY: as above; the pointers are set before any site of the module is enabled.
                unsafe {
                    (*module).append = Some(event::append);
                    (*module).append_tails = Some(event::append_tails);
                    (*module).append_begin = Some(event::append_begin);
                    (*module).append_end = Some(event::append_end);
                }
                registry::lock().load(module);
            }
            UNLOAD => registry::lock().unload(module),
            _ => return -1,
        }
        0
    })
}

/// Whether the program has another agent than this library: one that was linked into it. Everybody
/// finds that one, so this one must not take its place in the sessions.
#[cfg(feature = "shared")]
pub fn another_agent_is_meant() -> bool {
    // Its own name may lead this library to the other one, too; the event path's address never
    // does.
    tompion_os::is_defined_elsewhere(c"tompion_agent_v1", event::append as *const c_void)
}

impl Module {
    /// Whether the program did not ask for this module: a preloaded library brought it.
    pub fn is_passive(&self) -> bool {
        self.flags & FLAG_PASSIVE != 0
    }

    /// The module's sites.
    ///
    /// # Safety
    /// The module is loaded.
    pub unsafe fn sites<'a>(&self) -> impl Iterator<Item = &'a Site> + use<'a> {
        let (begin, end) = (self.sites_begin, self.sites_end);
        let count = (end as usize).saturating_sub(begin as usize) / size_of::<*const Site>();
        let count = if begin.is_null() { 0 } else { count };
        // SAFETY: the linker laid the pointers out between the two addresses; a null one is passed
        // over.
        (0..count).filter_map(move |index| unsafe { (*begin.add(index)).as_ref() })
    }
}

impl Site {
    /// All bits of `enabled`.
    #[inline]
    pub fn takers(&self) -> u32 {
        // Ordering: pairs with the release stores of the registry: who sees a bit sees the event's
        // number, and what was made ready before: the recordings' page, and where threads have
        // their rseq areas.
        self.enabled.load(Ordering::Acquire)
    }

    /// The recordings that take the event, one bit each.
    pub fn recordings(&self) -> u32 {
        self.takers() & event::RECORDINGS_MASK
    }
}
