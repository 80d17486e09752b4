//! Given threads that append all the time, when their recording ends and no thread is in flight any
//! more, then its memory can be unmapped beneath them.
#![cfg(not(loom))]

#[path = "support/mod.rs"]
mod support;

use std::{
    cell::UnsafeCell,
    os::fd::AsFd,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use tompion_layout::{control, record, ring::Geometry};
use tompion_os::{SharedMap, create_memfd};
use tompion_ring::{
    in_flight,
    producer::{Event, Outcome, Recording, Retention, RseqSetup},
};

/// A recording that begins and ends again and again.
struct Place(UnsafeCell<Recording>);

// SAFETY: as in the agent: one thread begins recordings, while there is none; all others append.
unsafe impl Sync for Place {}

impl Place {
    /// Appends an event that flight recorders pin, or one that they overwrite.
    fn append(&self, is_pinned: bool) -> Outcome {
        let image = [1u64, 2];
        let event = Event {
            id: record::FIRST_EVENT,
            tid: tompion_os::gettid(),
            time: 0,
            image: image.as_ptr().cast(),
            image_len: size_of_val(&image),
            tails: &[],
            retention: if is_pinned { Retention::Pinned } else { Retention::Ring },
        };
        // SAFETY: the image is alive. Of the recording's words only `cpus` is read while it isn't
        // active.
        unsafe { (*self.0.get()).append(&event) }
    }
}

/// Memory of a recording with rings so small that nearly every append leaves the section.
fn map(geometry: &Geometry) -> (SharedMap, SharedMap) {
    let of = |name, size| SharedMap::new(create_memfd(name, size).unwrap().as_fd(), size).unwrap();
    (of(c"rings", geometry.file_size()), of(c"control", control::FILE_SIZE))
}

#[test]
fn memory_is_unmapped_beneath_threads_that_append() {
    let rounds = if tompion_testing::is_full() { 20_000 } else { 200 };
    tompion_os::prepare_section_barrier().expect("a kernel with restartable sections");
    let rseq = tompion_os::rseq_area().expect("these tests need glibc 2.35 with rseq");
    let geometry = Geometry::new(4096, 2, tompion_os::possible_cpus(), 1).unwrap();
    let place = Place(UnsafeCell::new(Recording::none()));
    let (stop, appended) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for number in 0..3 {
            let (place, stop, appended) = (&place, &stop, &appended);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let outcome = place.append(number == 0);
                    appended.fetch_add(u64::from(outcome != Outcome::NotRecording), Ordering::Relaxed);
                }
            });
        }
        for round in 0..rounds {
            let (rings, control) = map(&geometry);
            let overwrite = round % 2 == 0;
            let setup = RseqSetup { geometry, overwrite, given_time: false, rseq, selector: None };
            let before = appended.load(Ordering::Relaxed);
            // SAFETY: there is no recording, and no thread in flight in an earlier one. The maps
            // are dropped behind the recording's end, when no thread uses them.
            unsafe { Recording::begin(place.0.get(), &setup, rings.base(), &control) };
            while appended.load(Ordering::Relaxed) < before + 1000 {
                thread::yield_now();
            }
            // SAFETY: the place is valid.
            unsafe { (*place.0.get()).end() };
            tompion_os::barrier_all_sections().expect("a barrier");
            while in_flight::is_any() {
                thread::yield_now();
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(appended.load(Ordering::Relaxed) >= 1000 * rounds);
}
