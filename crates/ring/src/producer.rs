//! Producer's side of a ring: recordings, and appending to them.
//!
//! Ownership: a [`Recording`] is written by one thread while `cpus` is zero, then only read by the
//! event path. A ring's `write`, `events` and losses are written by sections on the ring's own CPU,
//! `consumed` by the reader alone. Everything is safe in signal handlers: an append that interrupts
//! another one completes first, and the interrupted one starts again.

use std::{
    ffi::c_void,
    mem::MaybeUninit,
    ptr,
    sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence},
};

use tompion_layout::{
    control::{OFFSET_ENDED, OFFSET_LOST, PINNED_SIZE},
    loss::Cause,
    record::{self, Head, SubbufferHeader},
    ring::{self, Geometry},
};
use tompion_os::{RseqArea, SharedMap};

pub use crate::event::{Event, MAX_TAILS, Outcome, Retention, Tail};
use crate::{
    in_flight::InFlight,
    memory::{Clock, Part},
    pinned_events,
    reserve::{ReserveParts, ReserveRings},
    section,
};

/// Maximum number of restarts of a section before the event is counted as lost.
pub(crate) const MAX_RESTARTS: u32 = 10_000;
/// Maximum number of times that an append may find its sub-buffer full and look again.
const MAX_SUBBUFFER_SWITCHES: usize = 1000;

/// Overwrite mode; else discard mode.
const FLAG_OVERWRITE: u32 = 1;
const FLAG_GIVEN_TIME: u32 = section::FLAG_GIVEN_TIME;

/// Description of one recording for the event path. All zero: there is none.
///
/// Lives in memory that a fork wipes, so that a child never writes into its parent's rings.
#[repr(C)]
#[derive(Debug)]
pub struct Recording {
    /// Number of rings; 0 says that there is no recording here, and guards all the rest.
    pub(crate) cpus: AtomicU32,
    pub(crate) flags: u32,
    /// Word with the number of the active buffer.
    pub(crate) selector: *const AtomicU32,
    pub(crate) selector_mask: u32,
    pub(crate) max_record: u32,
    /// First byte of each buffer.
    pub(crate) buffers: [*mut u8; 2],
    pub(crate) cpu_stride: u64,
    /// Ones above the bits of an offset inside a sub-buffer.
    pub(crate) subbuf_mask: u64,
    /// Ones in the bits of an offset inside a ring.
    pub(crate) ring_mask: u64,
    /// Counters of losses that no ring can count.
    pub(crate) lost: *const AtomicU64,
    /// List of the pinned events.
    pub(crate) pinned: *const AtomicU64,
    /// The control file, and its length.
    control: *mut u8,
    control_len: usize,
    /// The [`ReserveRings`], if the rings are in reserve form; null otherwise, and where there is
    /// no recording. Then `cpus` is 0: no section ever finds such a ring.
    reserve: AtomicPtr<c_void>,
}

/// Region of the control file, which stays mapped as long as this does.
pub(crate) struct Region<'a> {
    pub(crate) part: Part<'a>,
    _counted: Option<InFlight<'static>>,
}

/// Parts of a recording that appends by rseq sections.
#[derive(Clone, Copy, Debug)]
pub struct RseqSetup {
    /// Sizes of the rings.
    pub geometry: Geometry,
    /// Whether old records are overwritten; else new ones are discarded when a ring is full.
    pub overwrite: bool,
    /// Whether callers pass timestamps; else sections read the TSC.
    pub given_time: bool,
    /// Place of a thread's rseq area.
    pub rseq: RseqArea,
    /// The word that says which of two buffers is written, where that isn't the control file's. It
    /// stays as long as the rings do, see [`Recording::begin`].
    pub selector: Option<&'static AtomicU32>,
}

/// Parts of a recording in reserve form.
#[derive(Clone, Copy, Debug)]
pub struct ReserveSetup {
    /// Sizes of the rings.
    pub geometry: Geometry,
    /// Whether old records are overwritten; else new ones are discarded when a ring is full.
    pub overwrite: bool,
    /// Clock that gives the timestamps.
    pub clock: Clock,
    /// Word that selects the buffer, as in [`RseqSetup`].
    pub selector: Option<&'static AtomicU32>,
}

/// The word that selects the buffer.
fn selector_in(control: &SharedMap, other: Option<&'static AtomicU32>) -> *const AtomicU32 {
    other.map_or(control.half(tompion_layout::control::OFFSET_SELECTOR), |other| other)
}

/// Inputs of an append beside the image, as the section sees them.
#[repr(C, align(2))]
#[derive(Debug)]
pub(crate) struct Extras {
    pub(crate) parts: *const Tail,
    pub(crate) parts_end: *const Tail,
    pub(crate) time: u64,
    pub(crate) saved_recording: *const Recording,
    pub(crate) saved_image: *const u8,
    pub(crate) saved_head: u64,
}

/// The opening or padding of a sub-buffer as the section sees it.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Put {
    pub(crate) ring: *mut u8,
    pub(crate) cpu: u32,
    pub(crate) expected: u64,
    pub(crate) new: u64,
    pub(crate) head: u64,
    pub(crate) position: u64,
    pub(crate) lost: u64,
    pub(crate) time: u64,
}

/// Goes on where the section could not: makes room and tries again, or counts the loss.
///
/// # Safety
/// Only jumped to by the section, with its operands.
#[cold]
pub(crate) unsafe extern "C" fn tompion_append_otherwise(
    recording: &Recording,
    image: *const u8,
    extras: *const Extras,
    head: u64,
    len: u64,
    mut outcome: u32,
) -> u32 {
    let _counted = InFlight::enter();
    // SAFETY: null, or the extras of the append that is going on.
    let time = unsafe { extras.as_ref() }.map_or(0, |extras| extras.time);
    for _ in 0..MAX_SUBBUFFER_SWITCHES {
        let lost = match outcome {
            section::WRITTEN => return section::WRITTEN,
            section::NEEDS_SUBBUFFER => recording.make_room(len + record::HEADER as u64, time).err(),
            section::RESTARTED_TOO_OFTEN => Some(Cause::Retries),
            _ => return recording.lose_without_ring().to_number(),
        };
        if let Some(cause) = lost {
            return recording.lose(cause).to_number();
        }
        // SAFETY: the same operands.
        outcome = unsafe { section::tompion_append_again(recording, image, extras, head, len) };
    }
    recording.lose(Cause::Retries).to_number()
}

impl Recording {
    /// A place with no recording.
    pub const fn none() -> Self {
        Self {
            cpus: AtomicU32::new(0),
            flags: 0,
            selector: std::ptr::null(),
            selector_mask: 0,
            max_record: 0,
            buffers: [std::ptr::null_mut(); 2],
            cpu_stride: 0,
            subbuf_mask: 0,
            ring_mask: 0,
            lost: std::ptr::null(),
            pinned: std::ptr::null(),
            control: std::ptr::null_mut(),
            control_len: 0,
            reserve: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Whether there is a recording.
    pub fn is_active(&self) -> bool {
        // Ordering: a hint; the section loads it again.
        self.cpus.load(Ordering::Relaxed) != 0 || self.in_reserve().is_some()
    }

    /// The rings, if they are in reserve form. Load it once per append. A reserve-commit append is
    /// not restarted, so it must use one snapshot.
    #[inline(always)]
    fn in_reserve(&self) -> Option<&'static ReserveRings<'static>> {
        // SAFETY: null, or rings that stay for ever.
        // Ordering: pairs with the release store in `begin_reserve`.
        unsafe { self.reserve.load(Ordering::Acquire).cast::<ReserveRings<'static>>().as_ref() }
    }

    /// Whether events must bring their timestamps.
    pub fn wants_given_time(&self) -> bool {
        self.flags & FLAG_GIVEN_TIME != 0
    }

    /// Sets up the recording at `place`.
    ///
    /// # Safety
    /// `place` is valid and has no recording, and no other thread sets it up at the same time.
    /// `rings` is at least as large as the geometry says. Both mappings, and that of the selector,
    /// stay until the recording has ended, [`tompion_os::barrier_all_sections`] was called behind
    /// that, and [`crate::in_flight`] counts no thread any more. (Other memory that may be written
    /// can take their place before.)
    pub unsafe fn begin(place: *mut Recording, setup: &RseqSetup, rings: *mut u8, control: &SharedMap) {
        let RseqSetup { geometry, overwrite, given_time, rseq, selector } = *setup;
        section::set_rseq_offset(rseq.offset);
        let second = if geometry.buffers() == 2 { geometry.buffer_stride() as usize } else { 0 };
        let flags = if overwrite { FLAG_OVERWRITE } else { 0 } | if given_time { FLAG_GIVEN_TIME } else { 0 };
        // SAFETY: the caller promises a valid place that the event path doesn't read beyond `cpus`
        // while that is zero. `second` is inside the mapping by the geometry.
        unsafe {
            (*place).flags = flags;
            (*place).selector = selector_in(control, selector);
            (*place).selector_mask = geometry.buffers() - 1;
            (*place).max_record = geometry.max_record() as u32;
            (*place).buffers = [rings, rings.add(second)];
            (*place).cpu_stride = geometry.cpu_stride();
            (*place).subbuf_mask = !(geometry.subbuf_size() - 1);
            (*place).ring_mask = geometry.ring_size() - 1;
            (*place).lost = control.word(tompion_layout::control::OFFSET_LOST);
            (*place).pinned = control.word(tompion_layout::control::PINNED as usize);
            (*place).set_control(control);
            // Ordering: pairs with the acquire load in `append`: a thread that sees the number sees
            // the rest.
            (*place).cpus.store(geometry.cpus(), Ordering::Release);
        }
    }

    /// Sets up a recording at `place` in a process without restartable sequences, whose rings are
    /// in reserve form. Fails where the processor can't write such rings. Allocates a little, which
    /// stays for ever.
    ///
    /// # Safety
    /// `place` is valid and has no recording, and no other thread sets it up at the same time.
    /// `rings` is at least as large as the geometry says; its addresses, and `control`, stay mapped
    /// for as long as the process lives.
    pub unsafe fn begin_reserve(
        place: *mut Recording,
        setup: &ReserveSetup,
        rings: *mut u8,
        control: &SharedMap,
    ) -> Result<(), &'static str> {
        let ReserveSetup { geometry, overwrite, clock, selector } = *setup;
        let processor = tompion_os::processor();
        if !processor.exchanges_16_bytes {
            return Err("the processor can't exchange 16 bytes at once (cmpxchg16b)");
        }
        let clock = if clock == Clock::Tsc && !processor.has_rdtscp { Clock::TscAlone } else { clock };
        let setup = ReserveParts {
            geometry,
            overwrite,
            clock,
            processor,
            selector: selector_in(control, selector),
            lost: control.word(tompion_layout::control::OFFSET_LOST),
        };
        let pinned = control.word(tompion_layout::control::PINNED as usize).as_ptr().cast();
        // SAFETY: as the caller promises; the list is inside the control file. All offsets come
        // from the geometry and from the list's size.
        let rings = unsafe {
            let pinned = Part::new(pinned, tompion_layout::control::PINNED_SIZE as usize);
            ReserveRings::new(Part::new(rings, geometry.file_size() as usize), pinned, &setup)
        };
        let rings: *mut ReserveRings<'static> = Box::into_raw(Box::new(rings));
        // Ordering: pairs with the acquire load in `in_reserve`.
        // SAFETY: the caller promises a valid place, which nothing reads while there is no
        // recording.
        unsafe {
            (*place).set_control(control);
            (*place).reserve.store(rings.cast(), Ordering::Release);
        }
        Ok(())
    }

    fn set_control(&mut self, control: &SharedMap) {
        (self.control, self.control_len) = (control.base(), control.len());
    }

    /// A region of the control file, for use by the event path; none if there is no recording, or
    /// its session is older than the region.
    pub(crate) fn region(&self, offset: u64, len: u64) -> Option<Region<'_>> {
        let counted = match self.in_reserve() {
            // It stays for ever.
            Some(_) => None,
            None => {
                let counted = InFlight::enter();
                // Ordering: pairs with the release store in `begin`.
                if self.cpus.load(Ordering::Acquire) == 0 {
                    return None;
                }
                Some(counted)
            }
        };
        let (offset, len) = (usize::try_from(offset).ok()?, usize::try_from(len).ok()?);
        // A null pointer: a signal handler has forked meanwhile, and this is its child.
        if self.control.is_null() || offset.checked_add(len)? > self.control_len {
            return None;
        }
        // SAFETY: `begin` or `begin_reserve` set the pointer to a mapping of `control_len` bytes,
        // which begins at a page and stays while this is counted as in flight, or for ever.
        let part = unsafe { Part::new(self.control.add(offset), len) };
        Some(Region { part, _counted: counted })
    }

    /// Ends the recording: sections that begin from now on find no ring.
    ///
    /// Appends that already run are restarted by [`tompion_os::barrier_all_sections`];
    /// [`crate::in_flight`] tells when no thread uses the memory any more.
    pub fn end(&self) {
        // Ordering: sections load it themselves; the caller's barrier makes them see it.
        self.cpus.store(0, Ordering::Release);
        // Ordering: a thread that has found the rings may still write them; they stay.
        self.reserve.store(ptr::null_mut(), Ordering::Release);
    }

    /// Counts a loss that no ring counts.
    pub fn count_without_ring(&self, cause: Cause) {
        if let Some(rings) = self.in_reserve() {
            return rings.count_without_ring(cause);
        }
        let _counted = InFlight::enter();
        // Ordering: pairs with the release store in `begin`.
        if self.cpus.load(Ordering::Acquire) == 0 {
            return;
        }
        if self.lost.is_null() {
            // A signal handler has forked meanwhile, and we are its child.
            return;
        }
        // SAFETY: `begin` set the pointer to a table of `Cause::SLOTS` words in a mapping that
        // stays while this is counted as in flight.
        let counter = unsafe { &*self.lost.add(cause as usize) };
        // Ordering: a counter by itself.
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Asks the session to save what the rings hold. False if there is no recording.
    pub fn request_snapshot(&self) -> bool {
        if let Some(rings) = self.in_reserve() {
            rings.request_snapshot();
            return true;
        }
        let _counted = InFlight::enter();
        // Ordering: pairs with the release store in `begin`.
        if self.cpus.load(Ordering::Acquire) == 0 {
            return false;
        }
        // SAFETY: the word stands in the control file behind the table of losses, see
        // `layout::control`.
        let counter = unsafe { &*self.lost.add(Cause::SLOTS) };
        // Ordering: release, pairs with the session's acquire load: a session that sees the request
        // sees what was appended before it.
        counter.fetch_add(1, Ordering::Release);
        true
    }

    /// Appends an event.
    ///
    /// No system call, lock or allocation; bounded; safe in signal handlers.
    ///
    /// # Safety
    /// The event's image and tails are readable. The thread is one of this process's own (no vfork
    /// child).
    #[inline]
    pub unsafe fn append(&self, event: &Event<'_>) -> Outcome {
        if let Some(rings) = self.in_reserve() {
            // SAFETY: as the caller promises.
            return unsafe { rings.append(event) };
        }
        // A section begins with a store to the thread's area, which is there only once a recording
        // with sections has begun. Ordering: pairs with the release store in `begin`.
        if self.cpus.load(Ordering::Acquire) == 0 {
            return Outcome::NotRecording;
        }
        let stored = match event.retention {
            Retention::Ring => None,
            // SAFETY: as the caller promises.
            _ => unsafe { self.append_pinned(event) },
        };
        if let Some(outcome) = stored {
            return outcome;
        }
        if event.tails.is_empty() && event.image_len <= record::MAX_IMAGE && !self.wants_given_time() {
            // SAFETY: as the caller promises.
            Outcome::from_number(unsafe {
                self.append_image(Head::empty(event.id), event.tid, event.image, event.image_len)
            })
        } else {
            // SAFETY: as the caller promises.
            unsafe { self.append_with_extras(event) }
        }
    }

    /// Appends an event that is an image alone, by the shortest way; `empty` is [`Head::empty`] of
    /// its id. What the returned number means is this module's business; losses have been counted.
    ///
    /// # Safety
    /// As [`Recording::append`]; the image has at most [`record::MAX_IMAGE`] bytes, and the
    /// recording does not want given times.
    #[inline(always)]
    pub unsafe fn append_image(&self, empty: u32, tid: u32, image: *const u8, image_len: usize) -> u32 {
        // As `Head::to_word`, in fewer steps.
        let len = (image_len as u64 + 7) & !7;
        let head = ((tid as u64) << 32 | u64::from(empty)) + (len << 13);
        debug_assert_eq!(Head::from_word(head).len(), record::record_len(image_len));
        // SAFETY: a record of an image alone fits into every sub-buffer. The section looks itself
        // whether there is a recording, whose mappings then stay; the image is readable.
        unsafe { section::tompion_append_image(self, image, image_len, head, len) }
    }

    /// Appends an event that has tails, a timestamp, or a long image.
    ///
    /// # Safety
    /// As [`Recording::append`].
    #[inline(never)]
    unsafe fn append_with_extras(&self, event: &Event<'_>) -> Outcome {
        if !self.is_active() {
            return Outcome::NotRecording;
        }
        let Event { id, tid, image, image_len, tails, time, retention: _ } = *event;
        let payload = event.payload_len();
        if tails.len() > MAX_TAILS || payload > (self.max_record as usize).saturating_sub(record::HEADER) {
            return self.lose(Cause::TooLarge);
        }
        let mut parts = [const { MaybeUninit::<Tail>::uninit() }; MAX_TAILS + 1];
        parts[0].write(Tail { data: image, size: image_len });
        for (part, tail) in parts[1..].iter_mut().zip(tails) {
            part.write(*tail);
        }
        let first = parts.as_ptr().cast::<Tail>();
        let len = record::record_len(payload);
        let head = Head { id, words: (len / 8) as u16, tid }.to_word();
        let extras = Extras {
            parts: first,
            parts_end: first.wrapping_add(1 + tails.len()),
            time,
            saved_recording: self,
            saved_image: image,
            saved_head: head,
        };
        let len = (len - record::HEADER) as u64;
        // SAFETY: as in `append`; the payload was held against `max_record`; the parts up to
        // `parts_end` are initialised, and they and the extras outlive the call.
        let outcome = unsafe { section::tompion_append_parts(self, image, &raw const extras, head, len) };
        Outcome::from_number(outcome)
    }

    /// Stores an event where no ring overwrites it. None if it is to go to the ring.
    ///
    /// # Safety
    /// As [`Recording::append`].
    #[cold]
    unsafe fn append_pinned(&self, event: &Event<'_>) -> Option<Outcome> {
        let _counted = InFlight::enter();
        // Ordering: pairs with the release store in `begin`.
        if self.cpus.load(Ordering::Acquire) == 0 {
            return Some(Outcome::NotRecording);
        }
        let size = pinned_events::room(event.retention, self.flags & FLAG_OVERWRITE != 0)?;
        let time = if self.wants_given_time() { event.time } else { tompion_os::tsc() };
        // SAFETY: `begin` set the pointer to `PINNED_SIZE` bytes of a mapping that stays; the
        // event's parts are readable as the caller promises.
        let is_stored = unsafe {
            let list = Part::new(self.pinned.cast_mut().cast(), PINNED_SIZE as usize);
            pinned_events::append(&list, size, event, (section::current_cpu(), time))
        };
        if !is_stored && event.retention == Retention::StateDump {
            self.count_without_ring(Cause::StateDumpFull);
            return Some(Outcome::Lost(Cause::StateDumpFull));
        }
        is_stored.then_some(Outcome::Written)
    }

    /// Pads the current CPU's sub-buffer, or opens the next one, whichever is due. Whatever has
    /// changed meanwhile is left to the next attempt.
    fn make_room(&self, len: u64, time: u64) -> Result<(), Cause> {
        if len > u64::from(self.max_record) {
            // No sub-buffer has room for it: images aren't held against this where they are
            // appended.
            return Err(Cause::TooLarge);
        }
        let Some((cpu, ring)) = self.current_ring() else { return Ok(()) };
        if self.has_session_ended() {
            // The next attempt finds no recording.
            self.end();
            return Ok(());
        }
        // SAFETY: `ring` is the header of a ring inside the mapping; its words are aligned.
        let (write, consumed) = unsafe {
            (
                AtomicU64::from_ptr(ring.add(ring::WRITE).cast()),
                AtomicU64::from_ptr(ring.add(ring::CONSUMED).cast()),
            )
        };
        // Ordering: the section compares again; a stale value only costs another round.
        let position = write.load(Ordering::Relaxed);
        if position % 8 != 0 {
            // The program has written over it. Padding would reach beyond the sub-buffer.
            return Err(Cause::Full);
        }
        let inside = position & !self.subbuf_mask;
        let size = !self.subbuf_mask + 1;
        if inside != 0 && inside + len <= size {
            return Ok(());
        }
        // Positions of a sound program stay far below the largest number; others may end there.
        let start = position.wrapping_add(if inside == 0 { 0 } else { size - inside });
        // Ordering: pairs with the fence in `while_withdrawn`: a reader that has not seen the last
        // sub-buffer opened has its withdrawal of room seen here.
        fence(Ordering::SeqCst);
        // Ordering: pairs with the reader's release store: what it has taken may be overwritten.
        let behind = start.wrapping_add(size).wrapping_sub(consumed.load(Ordering::Acquire)) as i64;
        // Negative if the position was read so long ago that the reader is beyond it: then the
        // section finds the ring changed.
        if self.flags & FLAG_OVERWRITE == 0 && behind > (self.ring_mask + 1) as i64 {
            return Err(Cause::Full);
        }
        let padding = inside != 0;
        let mut put = Put {
            ring,
            cpu,
            expected: position,
            new: if padding { start } else { start + SubbufferHeader::LEN as u64 },
            head: if padding { 0 } else { SubbufferHeader::head().to_word() },
            position: start,
            lost: lost_in(ring),
            time,
        };
        // SAFETY: the ring is inside the mapping, which stays; the section checks that it is still
        // this CPU's and unchanged; padding and header lie inside the sub-buffer.
        match unsafe { section::tompion_section_put(self, &raw mut put) } {
            section::RESTARTED_TOO_OFTEN => Err(Cause::Retries),
            _ => Ok(()),
        }
    }

    /// Whether the session has said that the rings have no reader any more. For a session that was
    /// killed this is unknown.
    fn has_session_ended(&self) -> bool {
        if self.lost.is_null() {
            return false;
        }
        let distance = OFFSET_LOST - OFFSET_ENDED;
        // SAFETY: `begin` set the pointer to the table of losses; the word stands before it in the
        // same control file, which stays while this is counted as in flight.
        let ended = unsafe { &*self.lost.byte_sub(distance).cast::<AtomicU32>() };
        // Ordering: nothing else is read because of it.
        ended.load(Ordering::Relaxed) != 0
    }

    /// The ring of the CPU on which the caller runs now; it may run elsewhere a moment later.
    fn current_ring(&self) -> Option<(u32, *mut u8)> {
        let cpu = section::current_cpu();
        // Ordering: pairs with the release store in `begin`.
        if cpu >= self.cpus.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: null where a signal handler has forked and we are its child; else `begin` pointed
        // it at a word of the control file, whose mapping stays.
        let selector = unsafe { self.selector.as_ref()?.load(Ordering::Relaxed) } & self.selector_mask;
        // SAFETY: inside the buffer, because the number is below `cpus`.
        let ring =
            unsafe { self.buffers[selector as usize & 1].add(cpu as usize * self.cpu_stride as usize) };
        Some((cpu, ring))
    }

    #[cold]
    fn lose(&self, cause: Cause) -> Outcome {
        let offset = (ring::LOST + cause as usize * 8) as u64;
        // SAFETY: the offset is that of a counter in the ring's header.
        if unsafe { section::tompion_section_count(self, offset) } != section::WRITTEN {
            self.count_without_ring(cause);
        }
        Outcome::Lost(cause)
    }

    #[cold]
    fn lose_without_ring(&self) -> Outcome {
        if !self.is_active() {
            return Outcome::NotRecording;
        }
        self.count_without_ring(Cause::NoRseq);
        Outcome::Lost(Cause::NoRseq)
    }
}

/// Number of events that the ring has lost so far.
fn lost_in(ring: *mut u8) -> u64 {
    let counter = |cause: &Cause| {
        // SAFETY: the header of a ring inside the mapping; its counters are aligned words.
        let word = unsafe { AtomicU64::from_ptr(ring.add(ring::LOST + *cause as usize * 8).cast()) };
        // Ordering: a counter by itself.
        word.load(Ordering::Relaxed)
    };
    Cause::ALL.iter().map(counter).fold(0, u64::wrapping_add)
}
