//! Given rings that hold a few records only, when threads append to them without restartable
//! sequences, and timer signals interrupt them to append more, then every event is read once, or is
//! counted as lost or overwritten.
#![cfg(not(loom))]

use std::{
    os::fd::AsFd,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering},
    thread,
};

use tompion_layout::{
    control,
    loss::Cause,
    record::{self, WriteProtocol},
    ring::Geometry,
};
use tompion_os::{SharedMap, create_memfd};
use tompion_ring::{
    memory::Clock,
    producer::{Event, Outcome, Recording, ReserveSetup, Retention},
    reader::RingReader,
    records::{Records, UntrustedRecord},
};

const SUBBUF: u64 = 4096;
const WRITERS: u64 = 3;

struct Rings {
    recording: Recording,
    map: SharedMap,
    geometry: Geometry,
    _control: SharedMap,
    appended: AtomicU64,
    written: AtomicU64,
}

// SAFETY: the recording is only read after `new`; its pointers stay valid as long as the maps
// beside it.
unsafe impl Sync for Rings {}

/// Rings that the signal handler appends to.
static RINGS: AtomicPtr<Rings> = AtomicPtr::new(std::ptr::null_mut());

impl Rings {
    /// Leaked: a late signal may still come.
    fn new(overwrite: bool, clock: Clock) -> &'static Self {
        let geometry = Geometry::new(SUBBUF, 2, tompion_os::possible_cpus(), 1).unwrap();
        let file = create_memfd(c"rings", geometry.file_size()).unwrap();
        let map = SharedMap::new(file.as_fd(), geometry.file_size()).unwrap();
        let file = create_memfd(c"control", control::FILE_SIZE).unwrap();
        let control = SharedMap::new(file.as_fd(), control::FILE_SIZE).unwrap();
        let mut recording = Recording::none();
        // SAFETY: the place is a fresh local, the rings have the geometry's size and stay with it.
        unsafe {
            let setup = ReserveSetup { geometry, overwrite, clock, selector: None };
            Recording::begin_reserve(&raw mut recording, &setup, map.base(), &control).expect("cmpxchg16b");
        }
        let (appended, written) = (AtomicU64::new(0), AtomicU64::new(0));
        Box::leak(Box::new(Self { recording, map, geometry, _control: control, appended, written }))
    }

    /// Appends an event with a key of its own.
    fn append(&self, number: u16) {
        let key = self.appended.fetch_add(1, Ordering::Relaxed);
        let image = [key, !key, key.rotate_left(32), key ^ 0x5555];
        let image_len = if key % 3 == 0 { 16 } else { 32 };
        let image = image.as_ptr().cast();
        let id = record::FIRST_EVENT + number;
        let event = Event { id, tid: 1, time: 0, image, image_len, tails: &[], retention: Retention::Ring };
        // SAFETY: the image is a live local, and larger than told.
        if unsafe { self.recording.append(&event) } == Outcome::Written {
            self.written.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn readers(&self) -> Vec<RingReader<'_>> {
        let reader =
            |cpu| RingReader::new(&self.map, self.geometry, 0, cpu).in_form(WriteProtocol::ReserveCommit);
        (0..self.geometry.cpus()).map(reader).collect()
    }

    fn lost(&self, cause: Cause) -> u64 {
        self.readers().iter().map(|reader| reader.lost(cause)).sum()
    }
}

extern "C" fn on_timer(_: libc::c_int) {
    // SAFETY: null, or leaked.
    if let Some(rings) = unsafe { RINGS.load(Ordering::Acquire).as_ref() } {
        rings.append(9);
    }
}

/// Has the process's threads interrupted, while the body runs, as often as the kernel likes.
fn with_timer_signals(rings: &'static Rings, body: impl FnOnce()) {
    RINGS.store(std::ptr::from_ref(rings).cast_mut(), Ordering::Release);
    let every = |microseconds| libc::timeval { tv_sec: 0, tv_usec: microseconds };
    let set = |microseconds| {
        let timer = libc::itimerval { it_interval: every(microseconds), it_value: every(microseconds) };
        // SAFETY: a plain system call with live arguments.
        unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
    };
    // SAFETY: the handler only appends, which is safe in handlers.
    unsafe { libc::signal(libc::SIGALRM, on_timer as extern "C" fn(libc::c_int) as libc::sighandler_t) };
    set(50);
    body();
    set(0);
    RINGS.store(std::ptr::null_mut(), Ordering::Release);
}

/// Events and losses found in a ring so far.
#[derive(Default)]
struct Seen {
    read: u64,
    time: u64,
    accounted: u64,
    missed: u64,
}

impl Seen {
    /// Looks at copied bytes; each key comes once, each event before the next is counted.
    fn look(&mut self, bytes: &[u8], begin: u64, keys: &mut std::collections::HashSet<u64>) -> bool {
        let mut has_unfinished = false;
        for found in Records::new(bytes, begin, SUBBUF).in_form(WriteProtocol::ReserveCommit) {
            match found.unwrap() {
                UntrustedRecord::Event { time, payload, .. } => {
                    assert!(time >= self.time, "time went from {} to {time}", self.time);
                    self.time = time;
                    let word = |at: usize| u64::from_le_bytes(payload[at..][..8].try_into().unwrap());
                    assert_eq!(word(8), !word(0));
                    assert!(payload.len() == if word(0) % 3 == 0 { 16 } else { 32 });
                    assert!(payload.len() == 16 || word(24) == word(0) ^ 0x5555);
                    assert!(keys.insert(word(0)), "{} twice", word(0));
                    self.accounted += 1;
                }
                UntrustedRecord::Subbuffer { time, events, .. } => {
                    assert!(time >= self.time && events >= self.accounted);
                    self.time = time;
                    self.missed += events - self.accounted;
                    self.accounted = events;
                }
                UntrustedRecord::Unfinished { .. } => has_unfinished = true,
            }
        }
        has_unfinished
    }
}

fn write_from_threads(rings: &'static Rings, each: u64, look: &mut dyn FnMut(bool)) {
    let running = AtomicU64::new(WRITERS);
    with_timer_signals(rings, || {
        thread::scope(|scope| {
            for writer in 0..WRITERS {
                let running = &running;
                scope.spawn(move || {
                    (0..each).for_each(|_| rings.append(writer as u16));
                    running.fetch_sub(1, Ordering::Release);
                });
            }
            while running.load(Ordering::Acquire) != 0 {
                look(false);
            }
        });
    });
    look(true);
}

#[test]
fn threads_and_handlers_append_to_tiny_rings() {
    // One after the other: they have the process's timer.
    for clock in [Clock::Tsc, Clock::TscAlone, Clock::Monotonic, Clock::MonotonicWithoutTsc] {
        let each = if clock == Clock::Tsc { 150_000 } else { 30_000 };
        discarding(clock, each);
        overwriting(clock, each);
    }
}

fn discarding(clock: Clock, each: u64) {
    let rings = Rings::new(false, clock);
    let readers = rings.readers();
    let mut seen: Vec<Seen> = readers.iter().map(|_| Seen::default()).collect();
    let mut keys = std::collections::HashSet::new();
    let mut bytes = Vec::new();
    write_from_threads(rings, each, &mut |_| {
        for (reader, seen) in readers.iter().zip(&mut seen) {
            bytes.clear();
            let span = reader.consume(seen.read, &mut bytes).unwrap();
            assert_eq!(span.end - span.begin, bytes.len() as u64);
            assert!(!seen.look(&bytes, span.begin, &mut keys), "something unfinished was taken");
            seen.read = span.end;
        }
    });
    let (appended, written) = (rings.appended.load(Ordering::Relaxed), rings.written.load(Ordering::Relaxed));
    assert_eq!(keys.len() as u64, written);
    assert_eq!(written + rings.lost(Cause::Full) + rings.lost(Cause::Retries), appended);
    for (reader, seen) in readers.iter().zip(&seen) {
        assert_eq!((reader.events(), reader.written(), 0), (seen.accounted, seen.read, seen.missed));
    }
}

fn overwriting(clock: Clock, each: u64) {
    let rings = Rings::new(true, clock);
    let readers = rings.readers();
    let mut seen: Vec<Seen> = readers.iter().map(|_| Seen::default()).collect();
    let mut keys = std::collections::HashSet::new();
    let (mut bytes, looked) = (Vec::new(), AtomicBool::new(false));
    write_from_threads(rings, each, &mut |_| {
        for (reader, seen) in readers.iter().zip(&mut seen) {
            let span = reader.copy_history(&mut bytes).unwrap();
            let known = seen.read.saturating_sub(span.begin).min(bytes.len() as u64);
            seen.look(&bytes[known as usize..], span.begin + known, &mut keys);
            seen.read = seen.read.max(span.end);
            looked.store(true, Ordering::Relaxed);
        }
    });
    let (appended, written) = (rings.appended.load(Ordering::Relaxed), rings.written.load(Ordering::Relaxed));
    assert_eq!(written + rings.lost(Cause::Unfinished) + rings.lost(Cause::Retries), appended);
    assert_eq!(readers.iter().map(RingReader::events).sum::<u64>(), written);
    assert!(looked.load(Ordering::Relaxed) && keys.len() as u64 <= written);
    // No thread is in the midst of an append any more: the last lap is whole.
    for (reader, seen) in readers.iter().zip(&seen) {
        let span = reader.copy_history(&mut bytes).unwrap();
        let mut last = Seen { accounted: 0, ..Seen::default() };
        assert!(!last.look(&bytes, span.begin, &mut Default::default()));
        assert_eq!((span.events, last.accounted), (Some(reader.events()), reader.events()));
        assert!(seen.accounted <= last.accounted);
    }
}
