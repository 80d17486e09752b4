//! Sites: places of events in a program, which the agent enables, and the way from there into a
//! record.
//!
//! ```text
//! tompion_sites        pointers to sites; the linker knows the section's bounds
//! tompion_site_data    sites, each with the addresses of its enumerations behind it
//! tompion_events       descriptions, each with its enumerations behind it
//! ```
//!
//! A site's description depends on the types of the values, which the compiler infers, and so may
//! be another one in each instance of a generic function. Rust has no statics that are generic, but
//! an instance of a generic function can contain assembler text, and that can fill other sections.
//! So a site is born where [`site_of`] is instantiated: the description's bytes are constants of
//! the instance and become operands of one `asm!`, whose result is the site's address. Wherever the
//! compiler copies the code it copies the site too, and where it drops the code there is no site;
//! both are right, because many sites of one event are one event. docs/design/rust.md weighs the
//! alternatives.

use std::{
    marker::PhantomData,
    mem::MaybeUninit,
    ptr::NonNull,
    sync::atomic::{AtomicU32, Ordering, fence},
};

use crate::{
    description::Described,
    field::{Fields, Nil, Tail},
    platform::{self, site_of},
};

/// A use of a macro: `struct tompion_site`.
///
/// Only the agent writes it.
#[repr(C)]
#[derive(Debug)]
pub struct Site {
    /// Bit n: recording n takes the event.
    pub enabled: AtomicU32,
    /// The agent's number of the event.
    pub number: AtomicU32,
    /// The event's description.
    pub description: *const u8,
    /// Descriptions of the enumerations among the fields, or null.
    pub enumerations: *const *const u8,
    /// 0, or 1 for a site that only asks.
    pub kind: u32,
    /// Zero.
    pub reserved: u32,
}

// SAFETY: only the atomics ever change; the description is constant.
unsafe impl Sync for Site {}

/// Largest fixed part of a record, in bytes.
const MAX_IMAGE: usize = 512;
/// Most fields with bytes behind the fixed part.
const MAX_TAILS: usize = 64;

impl Site {
    /// Whether a recording takes the event.
    #[inline(always)]
    pub fn is_enabled(&self) -> bool {
        // Ordering: relaxed for the many that find it disabled; `Probe::taken` has a fence.
        self.enabled.load(Ordering::Relaxed) != 0
    }
}

/// Hints that the caller is seldom here.
#[cold]
#[inline(always)]
const fn seldom() {}

/// An event at its place, before it is known whether a recording takes it.
///
/// `F` is what the values turn out to be: the compiler infers it from the call of `Taken::record`.
#[derive(Debug)]
pub struct Probe<D, F>(PhantomData<fn(D) -> F>);

impl<D: Described, F: Fields> Probe<D, F> {
    /// The event that `D` describes.
    #[inline(always)]
    #[expect(clippy::new_without_default, reason = "made by macros only")]
    pub const fn new() -> Self {
        Self(PhantomData)
    }

    /// The event, if a recording takes it.
    #[inline(always)]
    pub fn taken(self) -> Option<Taken<F>> {
        let site = site_of::<D, F>();
        if !site.is_enabled() {
            return None;
        }
        seldom();
        // Ordering: pairs with the agent's release store of `enabled`, so that the module's
        // functions and the event's number are there.
        fence(Ordering::Acquire);
        Some(Taken { site, fields: PhantomData })
    }

    /// Whether a recording takes the event.
    #[inline(always)]
    pub fn is_enabled(self) -> bool {
        site_of::<D, F>().is_enabled()
    }
}

/// An event that a recording takes.
#[derive(Debug)]
pub struct Taken<F> {
    site: &'static Site,
    fields: PhantomData<fn(F)>,
}

/// Memory for an image: aligned, and readable up to a multiple of 8 bytes.
#[repr(C, align(8))]
struct Padded<I>(I);

impl<F: Fields> Taken<F> {
    /// Records the event.
    #[inline(always)]
    pub fn record(self, fields: &F) {
        // SAFETY: the site is enabled, and `with_image` makes the image and the tails.
        Self::with_image(fields, |image, size, tails, count| unsafe {
            if count == 0 {
                platform::append(self.site, image, size);
            } else {
                platform::append_tails(self.site, image, size, tails, count);
            }
        });
    }

    /// Records the begin of a span. Returns the recordings whose filters let it through, a bit
    /// each.
    #[inline(always)]
    pub fn begin(self, fields: &F) -> u32 {
        // SAFETY: as in `record`.
        Self::with_image(fields, |image, size, tails, count| unsafe {
            platform::append_begin(self.site, image, size, tails, count)
        })
    }

    /// Calls a function with the fields' image, readable up to a multiple of 8 bytes, its size, the
    /// tails and their count.
    #[inline(always)]
    fn with_image<R>(fields: &F, append: impl FnOnce(*const u8, usize, *const Tail, usize) -> R) -> R {
        let size = const {
            let size = size_of::<F::Image>();
            assert!(size <= MAX_IMAGE, "tompion: the fields of fixed size take more than 512 bytes");
            size
        };
        let mut scratch = F::Scratch::default();
        let (image, tails) = fields.capture(&mut scratch);
        let mut place = MaybeUninit::<Padded<F::Image>>::uninit();
        let start = place.as_mut_ptr().cast::<u8>();
        // SAFETY: the place is as large as the image and up to a multiple of 8 bytes; what remains
        // of the last word is 0.
        unsafe {
            if size % 8 != 0 {
                start.add(size - size % 8).cast::<u64>().write(0);
            }
            start.cast::<F::Image>().write_unaligned(image);
        }
        let count = const {
            let count = size_of::<F::Tails>() / size_of::<Tail>();
            assert!(count <= MAX_TAILS, "tompion: more than 64 fields are text, slices or arrays");
            count
        };
        // The tails are `count` tails, whose bytes live as long as `fields` and `scratch`, as
        // `Field` promises.
        append(start, size, (&raw const tails).cast(), count)
    }
}

/// A span, which ends when this is dropped: made by [`span!`](crate::span) and
/// [`job!`](crate::job).
///
/// It stays on its thread, because a span belongs to the thread that begins it. Its end is recorded
/// where its begin was, whatever the filters say of an event without fields.
#[must_use = "the span ends when this is dropped, here at once; write `let _span = …`"]
#[derive(Debug)]
pub struct Span {
    /// The site of its end.
    end: Option<&'static Site>,
    /// Recordings that have its begin, a bit each.
    recordings: u32,
    on_one_thread: PhantomData<NonNull<()>>,
}

impl Span {
    /// A span that has begun in these recordings, with the event that ends it.
    #[inline(always)]
    #[doc(hidden)]
    pub fn begun<D: Described>(recordings: u32, _end: Probe<D, Nil>) -> Self {
        Self { end: Some(site_of::<D, Nil>()), recordings, on_one_thread: PhantomData }
    }

    /// A span that nothing records.
    #[inline(always)]
    pub const fn none() -> Self {
        Self { end: None, recordings: 0, on_one_thread: PhantomData }
    }

    /// Whether something recorded its beginning, or waits for its end.
    #[inline(always)]
    pub const fn is_recorded(&self) -> bool {
        self.recordings != 0
    }

    /// Ends the span now.
    #[inline(always)]
    pub fn end(self) {}
}

impl Drop for Span {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(site) = self.end.filter(|_| self.recordings != 0) {
            seldom();
            // SAFETY: `append_begin` returned these recordings, and an end has no fields.
            unsafe { platform::append_end(site, self.recordings) };
        }
    }
}
