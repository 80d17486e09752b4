//! Support of the ring's tests: a recording into rings of their own.

#![allow(dead_code, reason = "each test program uses its part")]

use std::os::fd::AsFd;

use tompion_layout::{
    control,
    loss::Cause,
    record::{self, WriteProtocol},
    ring::Geometry,
};
use tompion_os::{SharedMap, create_memfd};
use tompion_ring::{
    memory::Clock,
    producer::{Event, Outcome, Recording, ReserveSetup, Retention, RseqSetup, Tail},
    reader::RingReader,
};

/// Both ways to append: by restartable sections, and by reserving.
pub const FORMS: [WriteProtocol; 2] = [WriteProtocol::Rseq, WriteProtocol::ReserveCommit];

/// A recording into rings of its own, as an agent would have it.
pub struct Bench {
    pub form: WriteProtocol,
    pub recording: Recording,
    pub rings: SharedMap,
    pub control: SharedMap,
    pub geometry: Geometry,
}

// SAFETY: the recording is only read after `new`; its pointers stay valid as long as the maps
// beside it.
unsafe impl Sync for Bench {}

impl Bench {
    /// Rings for each CPU, in which sections read the clock.
    pub fn new(subbuf_size: u64, subbuf_count: u64, overwrite: bool, buffers: u32) -> Self {
        let cpus = tompion_os::possible_cpus();
        Self::with(Geometry::new(subbuf_size, subbuf_count, cpus, buffers).unwrap(), overwrite, false)
    }

    /// Makes rings for either write protocol.
    pub fn of(
        form: WriteProtocol,
        subbuf_size: u64,
        subbuf_count: u64,
        overwrite: bool,
        buffers: u32,
    ) -> Self {
        let cpus = tompion_os::possible_cpus();
        let geometry = Geometry::new(subbuf_size, subbuf_count, cpus, buffers).unwrap();
        if form == WriteProtocol::Rseq {
            return Self::with(geometry, overwrite, false);
        }
        let (rings, control) = Self::memory(&geometry);
        let mut recording = Recording::none();
        let setup = ReserveSetup { geometry, overwrite, clock: Clock::Tsc, selector: None };
        // SAFETY: the place is a fresh local, the rings have the geometry's size and live as long
        // as `Bench`.
        let begun = unsafe { Recording::begin_reserve(&raw mut recording, &setup, rings.base(), &control) };
        begun.expect("a processor with cmpxchg16b");
        Self { form, recording, rings, control, geometry }
    }

    fn memory(geometry: &Geometry) -> (SharedMap, SharedMap) {
        let file = create_memfd(c"rings", geometry.file_size()).unwrap();
        let rings = SharedMap::new(file.as_fd(), geometry.file_size()).unwrap();
        let file = create_memfd(c"control", control::FILE_SIZE).unwrap();
        (rings, SharedMap::new(file.as_fd(), control::FILE_SIZE).unwrap())
    }

    /// Rings of this geometry, with or without given times.
    pub fn with(geometry: Geometry, overwrite: bool, given_time: bool) -> Self {
        let (rings, control) = Self::memory(&geometry);
        let rseq = tompion_os::rseq_area().expect("these tests need glibc 2.35 with rseq");
        let mut recording = Recording::none();
        let setup = RseqSetup { geometry, overwrite, given_time, rseq, selector: None };
        // SAFETY: the place is a fresh local, the rings have the geometry's size and live as long
        // as `Bench`.
        unsafe { Recording::begin(&raw mut recording, &setup, rings.base(), &control) };
        Self { form: WriteProtocol::Rseq, recording, rings, control, geometry }
    }

    /// Appends an image of whole words and tails.
    pub fn append(&self, number: u16, image: &[u64], tails: &[Tail]) -> Outcome {
        let event = Event {
            id: record::FIRST_EVENT + number,
            tid: tompion_os::gettid(),
            time: 0,
            image: image.as_ptr().cast(),
            image_len: size_of_val(image),
            tails,
            retention: Retention::Ring,
        };
        // SAFETY: image and tails are live slices.
        unsafe { self.recording.append(&event) }
    }

    /// Readers of a buffer's rings, by CPU.
    pub fn readers(&self, buffer: u32) -> Vec<RingReader<'_>> {
        (0..self.geometry.cpus())
            .map(|cpu| RingReader::new(&self.rings, self.geometry, buffer, cpu).in_form(self.form))
            .collect()
    }

    /// Number of events that were lost, and counted, in rings and without one.
    pub fn lost(&self) -> u64 {
        let of = |reader: RingReader<'_>| Cause::ALL.iter().map(|&cause| reader.lost(cause)).sum::<u64>();
        let in_rings: u64 =
            (0..self.geometry.buffers()).flat_map(|buffer| self.readers(buffer)).map(of).sum();
        let without = |cause: &Cause| self.control.word(control::OFFSET_LOST + *cause as usize * 8);
        // Ordering: a counter by itself.
        let without = |cause| without(cause).load(std::sync::atomic::Ordering::Relaxed);
        in_rings + Cause::ALL.iter().map(without).sum::<u64>()
    }
}
