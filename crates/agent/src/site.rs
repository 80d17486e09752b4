//! Event sites and the modules that bring them, as `include/tompion/tompion.h` declares them.
//!
//! Structures only grow at their end; `abi` says how far a module knows them.

use std::{
    ffi::c_void,
    sync::atomic::{AtomicU32, Ordering},
};

use tompion_layout::record;
use tompion_protocol::MAX_RECORDINGS;
use tompion_ring::producer::Tail;

/// Version of the structures in this module.
pub const ABI: u32 = 1;

/// One use of an event macro.
#[repr(C)]
#[derive(Debug)]
pub struct Site {
    /// Bit n: recording n records the event. Bit [`END_SHIFT`] + n: it records the event only as
    /// the end of a span that it has the begin of. The other bits are [`SLOW`], [`PINNED`],
    /// [`CHOSEN`], [`ACTIONS`] and [`COUNTED`].
    pub enabled: AtomicU32,
    /// Half of the head of the event's records, see [`tompion_layout::record::Head::empty`].
    pub head: AtomicU32,
    /// The event's description.
    pub description: *const u8,
    /// Descriptions of the enum fields' types, in order.
    pub enums: *const *const u8,
    /// [`SITE_RECORDS`], [`SITE_ASKS`], [`SITE_TRACEPOINT`], [`SITE_PROVIDED`] or
    /// [`SITE_ATTRIBUTE`].
    pub kind: u32,
    /// Zero.
    pub reserved: u32,
}

/// Kind of a site that records its event.
pub const SITE_RECORDS: u32 = 0;
/// Kind of a site that only queries whether the event is enabled.
pub const SITE_ASKS: u32 = 1;
/// Kind of a site that is the first member of a [`crate::tracepoints::Tracepoint`].
pub const SITE_TRACEPOINT: u32 = 2;
/// Kind of a site that is the first member of a [`crate::tracepoints::Provided`].
pub const SITE_PROVIDED: u32 = 3;
/// Kind of a site that only has a description: of something that is said of an event elsewhere.
pub const SITE_ATTRIBUTE: u32 = 4;

/// Bit of [`Site::enabled`]: the event must not take the fast path, because it is filtered, has
/// context or is pinned.
pub const SLOW: u32 = 1 << 31;
/// Bit of [`Site::enabled`]: flight recorders never overwrite the event.
pub const PINNED: u32 = 1 << 30;
/// Bit of [`Site::enabled`] in a copy of a site: the module has chosen the recordings, so that
/// their filters are not asked. The end of a span with fields goes where its begin went.
pub const CHOSEN: u32 = 1 << 29;
/// Bit of [`Site::enabled`]: the event has actions, whether or not it is recorded.
pub const ACTIONS: u32 = 1 << 28;
/// Bit of [`Site::enabled`]: the event is counted in place, whether or not it is recorded.
pub const COUNTED: u32 = 1 << 27;
/// Bits of [`Site::enabled`] that are no recordings, and that the begin of a span returns for its
/// end.
pub const OTHERS: u32 = ACTIONS | COUNTED;
/// Bits of [`Site::enabled`] that stand for recordings.
pub const RECORDINGS_MASK: u32 = (1 << MAX_RECORDINGS) - 1;
/// Shift of the bits of recordings that record the event only as the end of a span whose begin they
/// have: their filter needs fields that the end doesn't have.
pub const END_SHIFT: u32 = 16;

/// Records an event without tails.
pub type AppendFunction = unsafe extern "C" fn(*const Site, *const u8, usize);
/// Records an event with tails.
pub type AppendTailsFunction = unsafe extern "C" fn(*const Site, *const u8, usize, *const Tail, usize);

/// Records a span's begin, with or without tails; returns the recordings that have it.
pub type AppendBeginFunction = unsafe extern "C" fn(*const Site, *const u8, usize, *const Tail, usize) -> u32;
/// Records a span's end in these recordings.
pub type AppendEndFunction = unsafe extern "C" fn(*const Site, u32);

/// An executable or a shared library that has sites.
#[repr(C)]
#[derive(Debug)]
pub struct Module {
    /// Version that the module was compiled for.
    pub abi: u32,
    /// Reserved for the module.
    pub registered: u32,
    /// First pointer to a site.
    pub sites_begin: *const *const Site,
    /// End of the pointers to sites.
    pub sites_end: *const *const Site,
    /// Records an event without tails. The agent fills it in.
    pub append: Option<AppendFunction>,
    /// Records an event with tails. The agent fills it in.
    pub append_tails: Option<AppendTailsFunction>,
    /// Records the begin of a span. The agent fills it in; zero in the first headers.
    pub append_begin: Option<AppendBeginFunction>,
    /// Records the end of a span. The agent fills it in; zero in the first headers.
    pub append_end: Option<AppendEndFunction>,
    /// [`FLAG_PASSIVE`] or 0. Reserved in the first headers, which leave it 0.
    pub flags: usize,
    /// Reserved for the agent.
    pub reserved: [*mut c_void; 1],
}

/// Flag of a module that a preloaded library brings and not the program. It is no reason to start a
/// thread.
const FLAG_PASSIVE: usize = 1;
/// Flag of a module that is in no file.
const FLAG_ANONYMOUS: usize = 2;

impl Module {
    /// Returns whether a preloaded library brought the module, and not the program.
    pub fn is_passive(&self) -> bool {
        self.flags & FLAG_PASSIVE != 0
    }

    /// Returns whether the module is in no file, so that it can't be kept loaded.
    pub fn is_anonymous(&self) -> bool {
        self.flags & FLAG_ANONYMOUS != 0
    }

    /// The module's sites.
    ///
    /// # Safety
    /// The module is loaded.
    pub unsafe fn sites<'a>(&self) -> impl Iterator<Item = &'a Site> + use<'a> {
        let (begin, end) = (self.sites_begin, self.sites_end);
        let count = (end as usize).saturating_sub(begin as usize) / size_of::<*const Site>();
        let count = if begin.is_null() { 0 } else { count };
        // SAFETY: the linker laid the pointers out between the two addresses; null ones are
        // skipped.
        (0..count).filter_map(move |index| unsafe { (*begin.add(index)).as_ref() })
    }
}

impl Site {
    /// All bits of `enabled`.
    #[inline]
    pub fn recording_mask(&self) -> u32 {
        // Ordering: pairs with the release stores of the registry. A thread that sees a bit sees
        // the event's number, the recordings' page, and the offset of thread ids.
        self.enabled.load(Ordering::Acquire)
    }

    /// The id of the site's event in records, once it has one.
    pub fn id(&self) -> u16 {
        self.head.load(Ordering::Relaxed) as u16
    }

    /// The number of the site's event, once it has one.
    pub fn number(&self) -> u32 {
        u32::from(self.id().wrapping_sub(record::FIRST_EVENT))
    }

    /// The recordings that record the event, one bit each.
    pub fn recordings(&self) -> u32 {
        self.recording_mask() & RECORDINGS_MASK
    }
}
