//! The event path: from a site to the rings of every recording that takes the event.
//!
//! No system call, no lock, no allocation, nothing that could panic. Safe in signal handlers.

use std::{
    cell::UnsafeCell,
    mem::MaybeUninit,
    ptr,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering},
};

use tompion_layout::{
    loss::Cause,
    record::{self, WriteProtocol},
};
use tompion_os::{TidOffset, monotonic_ns, monotonic_ns_without_tsc};
use tompion_protocol::MAX_RECORDINGS;
use tompion_ring::{
    memory::Clock,
    producer::{Event, Recording, Retention, Tail},
};

use crate::{
    actions,
    context::{self, EventWithContexts},
    counts, filters, lock,
    site::{ACTIONS, CHOSEN, COUNTED, END_SHIFT, OTHERS, PINNED, RECORDINGS_MASK, Site},
    state_dump,
    writer::{self, Writer},
};

/// The recordings of this process, in memory that is wiped in the child of any kind of fork.
static RECORDINGS: AtomicPtr<Recording> = AtomicPtr::new(ptr::null_mut());

/// Whether this process may not read the TSC.
static TSC_FORBIDDEN: AtomicBool = AtomicBool::new(false);

/// Makes room for the recordings, once in the life of the program.
pub fn prepare() -> std::io::Result<()> {
    // Ordering: callers hold the registry's lock; the event path only follows a site's bit.
    if RECORDINGS.load(Ordering::Relaxed).is_null() {
        let page = tompion_os::open_private_page(size_of::<Recording>() * MAX_RECORDINGS)?;
        writer::set_tid_offset(common_tid_offset());
        TSC_FORBIDDEN.store(!tompion_os::tsc_is_usable(), Ordering::Relaxed);
        // Ordering: pairs with the acquire load in `place`.
        RECORDINGS.store(page.as_ptr().cast(), Ordering::Release);
    }
    Ok(())
}

/// The thread that [`common_tid_offset`] asks: 0 without one, [`STARTING`] before it has said
/// its id.
static PROBE_THREAD: AtomicU32 = AtomicU32::new(0);
const STARTING: u32 = u32::MAX;

/// Whether the thread that was asked where ids are is still there. Its answer comes a little before
/// its end.
pub fn probe_thread_exists() -> bool {
    // Ordering: callers look again until it is gone.
    match PROBE_THREAD.load(Ordering::Relaxed) {
        0 => false,
        STARTING => true,
        thread => tompion_os::thread_exists(thread),
    }
}

/// Forgets the thread that runs a probe, in the child of a fork, which doesn't have that thread.
pub fn forget_probe_thread() {
    // A store would copy the page in each forked child.
    if PROBE_THREAD.load(Ordering::Relaxed) != 0 {
        PROBE_THREAD.store(0, Ordering::Relaxed);
    }
}

/// Offset at which the thread that started the agent's thread keeps its id: 0 before, and if it is
/// unknown.
static STARTER_TID_OFFSET: AtomicUsize = AtomicUsize::new(0);

/// Before the agent's thread is started: looks where its starter keeps its id.
pub fn note_starter() {
    // Ordering: the thread that reads it is started behind this.
    STARTER_TID_OFFSET.store(tompion_os::tid_offset().map_or(0, |place| place.offset), Ordering::Relaxed);
}

/// Returns where threads keep their ids, compared with the real id of this thread. Where the C
/// library doesn't describe the place, another thread compares it as well.
fn common_tid_offset() -> Option<usize> {
    static ANSWER: AtomicUsize = AtomicUsize::new(UNKNOWN);
    const UNKNOWN: usize = usize::MAX;
    let TidOffset { offset: here, is_documented } = tompion_os::tid_offset()?;
    if is_documented {
        return Some(here);
    }
    if lock::is_agent_thread() {
        // A new thread's memory would come from libc, which would reserve 64 MiB for this thread
        // (an arena).
        return (STARTER_TID_OFFSET.load(Ordering::Relaxed) == here).then_some(here);
    }
    ANSWER.store(UNKNOWN, Ordering::Relaxed);
    // Ordering: relaxed; the answer is all there is to see.
    let ask = || {
        PROBE_THREAD.store(tompion_os::gettid(), Ordering::Relaxed);
        ANSWER.store(tompion_os::tid_offset().map_or(0, |place| place.offset), Ordering::Relaxed);
    };
    // Ordering: the thread is made behind this, and says its id behind that.
    PROBE_THREAD.store(STARTING, Ordering::Relaxed);
    if tompion_os::spawn_background(ask).is_err() {
        forget_probe_thread();
        return None;
    }
    let pause = || std::thread::sleep(std::time::Duration::from_micros(10));
    // Until it is gone, too: a program may count its threads as the first thing that it does.
    for _ in 0..1000 {
        if ANSWER.load(Ordering::Relaxed) != UNKNOWN && !probe_thread_exists() {
            break;
        }
        pause();
    }
    let answer = ANSWER.load(Ordering::Relaxed);
    (answer != UNKNOWN && answer != 0).then_some(answer)
}

/// The place of a recording; null before [`prepare`].
pub fn place(slot: usize) -> *mut Recording {
    // Ordering: pairs with the release store in `prepare`.
    let first = RECORDINGS.load(Ordering::Acquire);
    if first.is_null() || slot >= MAX_RECORDINGS { ptr::null_mut() } else { first.wrapping_add(slot) }
}

/// The recording in a slot, which may have none.
#[inline]
fn recording<'a>(slot: u32) -> Option<&'a Recording> {
    // SAFETY: null, or memory for `MAX_RECORDINGS` recordings that stays for ever; zeros are a
    // recording that takes nothing.
    unsafe { place(slot as usize).as_ref() }
}

/// Asks every session to save what its flight recorder holds of this process. Returns 0, or -1 if
/// there is none. Safe in signal handlers.
pub fn request_snapshot() -> i32 {
    let asked =
        (0..MAX_RECORDINGS as u32).filter_map(recording).filter(|recording| recording.request_snapshot());
    if asked.count() != 0 { 0 } else { -1 }
}

/// CLOCK_MONOTONIC, in a process that may not read the TSC as well.
pub fn given_time() -> u64 {
    if TSC_FORBIDDEN.load(Ordering::Relaxed) { monotonic_ns_without_tsc() } else { monotonic_ns() }
}

/// Recording mask of an event that goes the shortest way: the recording in the first place, and no
/// other.
const FAST: u32 = 1;

/// Bits of a site that say what is done with its event.
const EVERYTHING: u32 = RECORDINGS_MASK | OTHERS;

/// Whether a recording may have the first place, whose events go the shortest way: by restartable
/// sections, with timestamps from the TSC.
pub fn may_be_first(form: WriteProtocol, given_time: bool) -> bool {
    form == WriteProtocol::Rseq && !given_time
}

/// Clock of a recording's timestamps where writers read it inside an append.
pub fn clock(given_time: bool) -> Clock {
    match given_time {
        false => Clock::Tsc,
        true if TSC_FORBIDDEN.load(Ordering::Relaxed) => Clock::MonotonicWithoutTsc,
        true => Clock::Monotonic,
    }
}

/// Records an event whose fields all have a fixed size.
///
/// # Safety
/// `image` is readable for `size` bytes, rounded up to a multiple of 8; `size` is at most
/// [`record::MAX_IMAGE`].
pub unsafe extern "C" fn append(site: *const Site, image: *const u8, size: usize) {
    // SAFETY: the site is a static of the calling module.
    let site = unsafe { &*site };
    let tid = fast_writer(site);
    if tid == 0 {
        deliver(site, image, size, ptr::null(), 0);
        return;
    }
    // SAFETY: only recordings that `may_be_first` are in the first place, and no site is enabled
    // before there are places. The image is readable as the caller promises; a guest has no noted
    // id.
    unsafe { (*place(0)).append_image(head(site), tid, image, size) };
}

/// The calling thread, if the site's events go the shortest way and it may take it; else 0.
#[inline(always)]
fn fast_writer(site: &Site) -> u32 {
    if site.recording_mask() == FAST { writer::noted_thread_id() } else { 0 }
}

/// Half of the head of the site's records, see [`record::Head::empty`].
#[inline(always)]
fn head(site: &Site) -> u32 {
    site.head.load(Ordering::Relaxed)
}

/// Records an event with fields of variable size: small ones by way of a copy on the stack, so that
/// the section is short.
///
/// # Safety
/// As [`append`]; and `tails` points to `count` tails, whose bytes are readable.
pub unsafe extern "C" fn append_tails(
    site: *const Site,
    image: *const u8,
    size: usize,
    tails: *const Tail,
    count: usize,
) {
    // SAFETY: the site is a static of the calling module, the tails are a local of its event.
    let (site, tails) = unsafe { (&*site, std::slice::from_raw_parts(tails, count)) };
    let total = total_len(size, tails);
    let tid = fast_writer(site);
    if total > record::MAX_IMAGE || tid == 0 {
        deliver(site, image, size, tails.as_ptr(), tails.len());
        return;
    }
    let buffer = Buffer::new();
    // SAFETY: what the event's caller promised; `total` is the length of both together.
    unsafe { buffer.fill((image, size), tails, total) };
    // SAFETY: as in `append`; the buffer's bytes are initialised up to the next multiple of 8.
    unsafe { (*place(0)).append_image(head(site), tid, buffer.start(), total) };
}

/// Records the begin of a span. Returns the recordings whose filters let it through.
///
/// # Safety
/// As [`append_tails`]; `count` may be 0, and then `tails` is not looked at.
pub unsafe extern "C" fn append_begin(
    site: *const Site,
    image: *const u8,
    size: usize,
    tails: *const Tail,
    count: usize,
) -> u32 {
    if count == 0 {
        // SAFETY: the site is a static of the calling module.
        let site = unsafe { &*site };
        let tid = fast_writer(site);
        if tid == 0 {
            return deliver(site, image, size, tails, 0);
        }
        // SAFETY: as in `append`.
        unsafe { (*place(0)).append_image(head(site), tid, image, size) };
        return FAST;
    }
    // SAFETY: the site is a static of the calling module, the tails are a local of its event.
    let (site, tails) = unsafe { (&*site, std::slice::from_raw_parts(tails, count)) };
    let total = total_len(size, tails);
    let tid = fast_writer(site);
    if total > record::MAX_IMAGE || tid == 0 {
        return deliver(site, image, size, tails.as_ptr(), tails.len());
    }
    let buffer = Buffer::new();
    // SAFETY: as in `append_tails`.
    unsafe {
        buffer.fill((image, size), tails, total);
        (*place(0)).append_image(head(site), tid, buffer.start(), total);
    }
    FAST
}

/// Records the end of a span in those of the recordings that still take it, whatever their filters:
/// they have let the begin through.
///
/// # Safety
/// The site is one of a loaded module, whose event has no fields.
pub unsafe extern "C" fn append_end(site: *const Site, recordings: u32) {
    // SAFETY: the site is a static of the calling module.
    let site = unsafe { &*site };
    let image = [0u64; 1];
    let tid = fast_writer(site);
    if recordings & FAST == 0 || tid == 0 {
        return deliver_end(site, recordings, image.as_ptr().cast());
    }
    // SAFETY: as in `append`; the image has no bytes.
    unsafe { (*place(0)).append_image(head(site), tid, image.as_ptr().cast(), 0) };
}

/// Bytes of an event's image and tails.
#[inline(always)]
fn total_len(image_len: usize, tails: &[Tail]) -> usize {
    tails.iter().fold(image_len, |sum, tail| sum.saturating_add(tail.size))
}

/// Room for an image with its tails.
struct Buffer(UnsafeCell<MaybeUninit<[u64; record::MAX_IMAGE / 8]>>);

impl Buffer {
    #[inline(always)]
    const fn new() -> Self {
        Self(UnsafeCell::new(MaybeUninit::uninit()))
    }

    #[inline(always)]
    fn start(&self) -> *const u8 {
        self.0.get().cast()
    }

    /// Copies image and tails, one behind the other.
    ///
    /// # Safety
    /// They have `total` bytes, at most [`record::MAX_IMAGE`], and are readable.
    #[inline(always)]
    unsafe fn fill(&self, (image, image_len): (*const u8, usize), tails: &[Tail], total: usize) {
        let start = self.0.get().cast::<u8>();
        let mut at = image_len;
        // SAFETY: `total` bytes fit into the buffer, which is a local of the caller. Sources are
        // readable as the caller promises; if another thread changes a string meanwhile, only its
        // text is affected.
        unsafe {
            start.add(total & !7 & (record::MAX_IMAGE - 8)).cast::<u64>().write(0);
            ptr::copy_nonoverlapping(image, start, image_len);
            for tail in tails {
                ptr::copy_nonoverlapping(tail.data, start.add(at), tail.size);
                at += tail.size;
            }
        }
    }
}

/// Delivers the event to all that want it. Returns the recordings that have it, and the bits of
/// what else is done with it.
#[inline(never)]
extern "C" fn deliver(
    site: &Site,
    image: *const u8,
    image_len: usize,
    tails: *const Tail,
    count: usize,
) -> u32 {
    let tid = writer::noted_thread_id();
    if site.recording_mask() & EVERYTHING == COUNTED && tid != 0 {
        // SAFETY: the site is counted. Image and tails are the event's; a guest has no noted id.
        let is_counted = unsafe {
            let event = counts::Fields { image, size: image_len, tails: tails_of(tails, count) };
            counts::quick(site.id()).is_some_and(|quick| quick.count(tid, event))
        };
        if is_counted {
            return COUNTED;
        }
    }
    deliver_to_each(site, image, image_len, tails, count)
}

/// The tails of an event.
///
/// # Safety
/// `tails` points to `count` tails, which live as long as the event, or `count` is 0.
#[inline(always)]
unsafe fn tails_of<'a>(tails: *const Tail, count: usize) -> &'a [Tail] {
    // SAFETY: as the caller promises.
    if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(tails, count) } }
}

/// Appends the event to each recording that takes it, if its filter lets it through. Returns those,
/// and the bits of what else is done with the event.
#[inline(never)]
extern "C" fn deliver_to_each(
    site: &Site,
    image: *const u8,
    image_len: usize,
    tails: *const Tail,
    count: usize,
) -> u32 {
    let (enabled, recording_mask) = (site.recording_mask(), site.recordings());
    let tid = match writer::current() {
        Writer::Thread(tid) => tid,
        Writer::StateDump(tid) => {
            // SAFETY: as below.
            return unsafe { deliver_state(site, tid, (image, image_len), (tails, count)) };
        }
        Writer::SharedVmChild => {
            skip_others(site, enabled);
            return count_shared_vm_child(recording_mask);
        }
    };
    // SAFETY: the image and the tails of the event that is being recorded, or no tails.
    let (fixed, tails) = unsafe { (std::slice::from_raw_parts(image, image_len), tails_of(tails, count)) };
    if enabled & COUNTED != 0 {
        counts::count(site.number(), tid, fixed, tails);
        if enabled & EVERYTHING == COUNTED {
            return COUNTED;
        }
    }
    let recording_mask = match enabled & CHOSEN {
        0 => filters::passing(recording_mask, site.number(), tid, (fixed, tails)),
        _ => recording_mask,
    };
    let retention = if enabled & PINNED != 0 { Retention::Pinned } else { Retention::Ring };
    let event = Event { id: site.id(), tid, time: 0, image, image_len, tails, retention };
    append_chosen(recording_mask, site, event, fixed);
    if enabled & ACTIONS != 0 {
        actions::run(site.number(), event, fixed);
    }
    recording_mask | enabled & OTHERS
}

/// Appends an event of a state dump to the recording that the dump is for. Returns that recording.
///
/// The event describes a state and is no occurrence: it is not counted in place, and no trigger
/// waits for it.
///
/// # Safety
/// `image` is readable for `image_len` bytes, rounded up to a multiple of 8, and `tails` points to
/// `count` tails, whose bytes are readable, unless `count` is 0.
#[cold]
#[inline(never)]
unsafe fn deliver_state(
    site: &Site,
    tid: u32,
    (image, image_len): (*const u8, usize),
    (tails, count): (*const Tail, usize),
) -> u32 {
    let recording_mask = site.recordings() & state_dump::recording_mask();
    // SAFETY: as the caller promises.
    let (fixed, tails) = unsafe { (std::slice::from_raw_parts(image, image_len), tails_of(tails, count)) };
    let recording_mask = match site.recording_mask() & CHOSEN {
        0 => filters::passing(recording_mask, site.number(), tid, (fixed, tails)),
        _ => recording_mask,
    };
    let retention = Retention::StateDump;
    append_chosen(
        recording_mask,
        site,
        Event { id: site.id(), tid, time: 0, image, image_len, tails, retention },
        fixed,
    );
    recording_mask
}

/// Counts an event that a child on this process's memory can't have counted, nor its actions run.
#[cold]
fn skip_others(site: &Site, enabled: u32) {
    if enabled & ACTIONS != 0 {
        actions::skip(site.number());
    }
    if enabled & COUNTED != 0 {
        counts::lose(site.number());
    }
}

/// Appends the end of a span to those recordings that have its begin.
#[cold]
#[inline(never)]
extern "C" fn deliver_end(site: &Site, recordings: u32, image: *const u8) {
    let enabled = site.recording_mask();
    let recording_mask = (enabled | enabled >> END_SHIFT) & recordings & RECORDINGS_MASK;
    match writer::current() {
        Writer::Thread(tid) => {
            let event = Event {
                id: site.id(),
                tid,
                time: 0,
                image,
                image_len: 0,
                tails: &[],
                retention: Retention::Ring,
            };
            if enabled & COUNTED != 0 {
                counts::count(site.number(), tid, &[], &[]);
            }
            append_chosen(recording_mask, site, event, &[]);
            if enabled & ACTIONS != 0 {
                actions::run(site.number(), event, &[]);
            }
        }
        Writer::StateDump(tid) => {
            let retention = Retention::StateDump;
            let event = Event { id: site.id(), tid, time: 0, image, image_len: 0, tails: &[], retention };
            append_chosen(recording_mask & state_dump::recording_mask(), site, event, &[]);
        }
        Writer::SharedVmChild => {
            skip_others(site, enabled);
            count_shared_vm_child(recording_mask);
        }
    }
}

/// Appends the event to these recordings, with the application's contexts where they are wanted.
#[inline(always)]
fn append_chosen(recording_mask: u32, site: &Site, event: Event<'_>, fixed: &[u8]) {
    let extended = recording_mask & context::wanted();
    if extended != 0 {
        append_extended(extended, site.number(), event, fixed);
    }
    if recording_mask & !extended != 0 {
        append_to_all(recording_mask & !extended, event);
    }
}

/// Appends the event with the application's contexts.
#[cold]
#[inline(never)]
fn append_extended(recording_mask: u32, number: u32, event: Event<'_>, fixed: &[u8]) {
    match EventWithContexts::new(number, fixed, event.tails) {
        Some(mut extended) => {
            let (image, image_len, tails) = extended.parts(event.tails.len());
            append_to_all(recording_mask, Event { image, image_len, tails, ..event });
        }
        None => {
            for slot in (0..MAX_RECORDINGS as u32).filter(|slot| recording_mask & (1 << slot) != 0) {
                if let Some(recording) = recording(slot) {
                    recording.count_without_ring(Cause::TooLarge);
                }
            }
        }
    }
}

fn append_to_all(mut recording_mask: u32, mut event: Event<'_>) {
    let buffer = Buffer::new();
    let total = total_len(event.image_len, event.tails);
    if !event.tails.is_empty() && total <= record::MAX_IMAGE {
        // SAFETY: the parts of the event that is being recorded.
        unsafe { buffer.fill((event.image, event.image_len), event.tails, total) };
        event = Event { image: buffer.start(), image_len: total, tails: &[], ..event };
    }
    while recording_mask != 0 {
        if let Some(recording) = recording(recording_mask.trailing_zeros()) {
            if recording.wants_given_time() {
                event.time = given_time();
            }
            // SAFETY: image and tails are readable, as the callers were promised; this is no guest.
            // What was lost has been counted.
            let _ = unsafe { recording.append(&event) };
        }
        recording_mask &= recording_mask - 1;
    }
}

/// Counts an event that a guest can't record. Returns that no recording has it.
#[cold]
fn count_shared_vm_child(recording_mask: u32) -> u32 {
    for slot in (0..MAX_RECORDINGS as u32).filter(|slot| recording_mask & (1 << slot) != 0) {
        if let Some(recording) = recording(slot) {
            recording.count_without_ring(Cause::VforkChild);
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A short program would pay some tenths of a millisecond for the thread.
    #[test]
    fn no_thread_is_started_where_the_library_describes_the_place() {
        let documented = tompion_os::tid_offset().filter(|place| place.is_documented);
        let Some(documented) = documented else {
            eprintln!("SKIPPED, the C library doesn't say where it keeps a thread's id");
            return;
        };
        assert_eq!(common_tid_offset(), Some(documented.offset));
        assert_eq!(PROBE_THREAD.load(Ordering::Relaxed), 0, "a thread was started");
    }
}
