//! Loom tests of this crate's code: all ways in which threads can take turns, and all values that
//! their loads may return.
//!
//! Given rings of two sub-buffers with room for three small records each, when writers, readers and
//! takers meet, then every record is found whole and once, in the order of time, or is counted.
//! Each known mistake is noticed.
//!
//! `TOMPION_FULL` has more tried: one more preemption in a run, of which there are too many to try
//! them all. So it ends after a time.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use loom::thread;
use tompion_layout::{
    loss::Cause,
    pinned,
    record::{self, Head, SubbufferHeader, WriteProtocol},
    ring::{self, Geometry},
    triggers,
};
use tompion_os::Processor;

use crate::{
    captures,
    event::{Event, Outcome, Retention},
    memory::{Clock, Fault, Part, SharedMap, break_by},
    pinned_events as list,
    reader::RingReader,
    records::{Records, UntrustedRecord},
    reserve::{ReserveParts, ReserveRings},
    rules_text::{self, Places},
    versioned::VersionedWords,
};

const SUBBUF: u64 = 128;
static NO_SELECTOR: AtomicU32 = AtomicU32::new(0);

/// Maximum time of each exploration of the long form.
const LONGEST: Duration = Duration::from_secs(240);

/// Explores all executions with at most this many preemptions.
fn explore(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let full = tompion_testing::is_full();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions + usize::from(full));
    builder.max_branches = 100_000;
    builder.max_duration = full.then_some(LONGEST);
    builder.check(body);
}

/// Explores the same with a mistake in the code, which must be noticed.
fn must_fail(fault: Fault, preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    break_by(Some(fault));
    let result = catch_unwind(AssertUnwindSafe(|| explore(preemptions, body)));
    break_by(None);
    let Err(said) = result else { panic!("{fault:?} was not noticed") };
    let said =
        said.downcast_ref::<String>().cloned().or(said.downcast_ref::<&str>().map(|text| (*text).into()));
    let said = said.unwrap_or_default();
    // Loom's own limit is no finding.
    assert!(!said.contains("maximum number of branches"), "{fault:?} was not noticed: {said}");
}

/// A ring in reserve form.
#[derive(Clone)]
struct Ring {
    map: SharedMap,
    geometry: Geometry,
    lost: Arc<[AtomicU64; Cause::SLOTS]>,
    overwrite: bool,
}

/// An event of one word; the image must outlive its append.
fn event(number: u16, image: &[u64; 1], retention: Retention) -> Event<'static> {
    Event {
        id: record::FIRST_EVENT + number,
        tid: 7,
        time: 0,
        image: image.as_ptr().cast(),
        image_len: 8,
        tails: &[],
        retention,
    }
}

impl Ring {
    fn new(overwrite: bool) -> Self {
        Self::of(Self::geometry().subbuf_count(), overwrite)
    }

    fn geometry() -> Geometry {
        Geometry::new(SUBBUF, 2, 1, 1).unwrap()
    }

    fn of(subbufs: u64, overwrite: bool) -> Self {
        let geometry = Geometry::new(SUBBUF, subbufs, 1, 1).unwrap();
        let map = SharedMap::for_ring(geometry.file_size() as usize);
        Self { map, geometry, lost: Arc::default(), overwrite }
    }

    fn append(&self, number: u16) -> Outcome {
        let image = [u64::from(number) * 3 + 1];
        let event = event(number, &image, Retention::Ring);
        let setup = ReserveParts {
            geometry: self.geometry,
            overwrite: self.overwrite,
            clock: Clock::Tsc,
            processor: Processor { exchanges_16_bytes: true, has_rdtscp: true, has_rdpid: false },
            selector: &raw const NO_SELECTOR,
            lost: self.lost.as_ptr(),
        };
        let rings = ReserveRings::new(self.map.whole(), self.map.whole(), &setup);
        // SAFETY: the image is a live local.
        unsafe { rings.append(&event) }
    }

    fn reader(&self) -> RingReader<'_> {
        RingReader::new(&self.map, self.geometry, 0, 0).in_form(WriteProtocol::ReserveCommit)
    }

    fn lost(&self, cause: Cause) -> u64 {
        self.reader().lost(cause)
    }
}

/// Events and losses that a reader has found.
#[derive(Default)]
struct Found {
    read: u64,
    time: u64,
    /// Events that were found, or that a header says are gone.
    accounted: u64,
    numbers: Vec<u16>,
    unfinished: bool,
}

impl Found {
    fn look(&mut self, form: WriteProtocol, bytes: &[u8], begin: u64) {
        for found in Records::new(bytes, begin, SUBBUF).in_form(form) {
            match found.expect("a sound record") {
                UntrustedRecord::Event { number, tid, time, payload } => {
                    assert!(time > self.time, "time goes on");
                    assert_eq!((tid, payload), (7, &(u64::from(number) * 3 + 1).to_le_bytes()[..]));
                    assert!(!self.numbers.contains(&number), "{number} twice");
                    self.numbers.push(number);
                    self.time = time;
                    self.accounted += 1;
                }
                UntrustedRecord::Subbuffer { time, events, .. } => {
                    assert!(time > self.time && events >= self.accounted);
                    self.accounted = events;
                }
                UntrustedRecord::Unfinished { .. } => self.unfinished = true,
            }
        }
    }

    fn take(&mut self, ring: &Ring, last: bool) {
        let mut bytes = Vec::new();
        let reader = ring.reader();
        let taken = if last {
            reader.consume_final(self.read, &mut bytes)
        } else {
            reader.consume(self.read, &mut bytes)
        };
        let span = taken.expect("a sound position");
        self.read = span.end;
        self.look(WriteProtocol::ReserveCommit, &bytes, span.begin);
        assert!(!self.unfinished, "what is not complete is left alone");
    }
}

/// Two writers of one event each and a reader, behind `before` events of which `taken` says whether
/// they were read.
fn discarding(before: u16, taken: bool) -> impl Fn() + Sync + Send + Clone + 'static {
    move || {
        let ring = Ring::new(false);
        let mut found = Found::default();
        for number in 0..before {
            assert_eq!(ring.append(100 + number), Outcome::Written);
        }
        if taken {
            found.take(&ring, false);
        }
        let writers = [0, 1].map(|number| {
            let ring = ring.clone();
            thread::spawn(move || ring.append(number))
        });
        found.take(&ring, false);
        let outcomes = writers.map(|writer| writer.join().unwrap());
        found.take(&ring, true);
        let written = outcomes.iter().filter(|&&outcome| outcome == Outcome::Written).count();
        assert_eq!(found.numbers.len(), written + usize::from(before));
        assert_eq!(ring.lost(Cause::Full) as usize, 2 - written);
        assert_eq!(ring.reader().events(), found.accounted);
    }
}

#[test]
fn writers_and_a_taker_in_discard_mode() {
    // In a sub-buffer, into the next one, and into a full ring that the taker makes room in.
    explore(2, discarding(0, false));
    explore(2, discarding(1, true));
    explore(2, discarding(4, false));
}

#[test]
fn mistakes_in_discard_mode_are_noticed() {
    must_fail(Fault::CommitEarly, 2, discarding(1, true));
    must_fail(Fault::NoRelease, 2, discarding(1, true));
    must_fail(Fault::CopyInAnyOrder, 2, discarding(1, true));
    must_fail(Fault::TimeOutside, 2, discarding(1, true));
    must_fail(Fault::FullIgnored, 2, discarding(4, false));
    must_fail(Fault::ReleasedEarly, 2, discarding(4, false));
}

/// A writer of some events in the second lap of a ring, while the sub-buffer behind the one that it
/// opens next is emptied.
fn emptying(events: u16) -> impl Fn() + Sync + Send + Clone + 'static {
    move || {
        let ring = Ring::of(4, false);
        let lap = ring.geometry.ring_size();
        ring.map.publish(lap, 0);
        ring.reader().release(lap);
        let mut found = Found { read: lap, ..Found::default() };
        assert_eq!(ring.append(100), Outcome::Written);
        found.take(&ring, false);
        let writer = {
            let ring = ring.clone();
            thread::spawn(move || {
                (0..events).filter(|&number| ring.append(number) == Outcome::Written).count()
            })
        };
        let emptied = lap + 2 * SUBBUF;
        let was_emptied = ring.reader().while_withdrawn(found.read, emptied, || {
            for offset in (0..SUBBUF as usize).step_by(8) {
                let place = ring::DATA + ring.geometry.place(emptied) + offset;
                // Ordering: as the kernel's, which nothing orders but the room.
                ring.map.whole().store(place, 0, Ordering::Relaxed);
            }
        });
        let written = writer.join().unwrap();
        found.take(&ring, true);
        assert_eq!(found.numbers.len(), written + 1, "emptied: {was_emptied}");
        assert_eq!(ring.lost(Cause::Full) as usize, usize::from(events) - written);
        assert_eq!(ring.reader().released(), found.read);
    }
}

#[test]
fn a_ring_is_emptied_where_no_writer_is() {
    explore(2, emptying(4));
}

#[test]
fn mistakes_in_emptying_are_noticed() {
    must_fail(Fault::EmptiedUnlooked, 2, emptying(4));
    must_fail(Fault::NoRoomFence, 2, emptying(4));
}

/// A writer and another one with two events, while a history is copied.
fn overwriting(before: u16, events: [u16; 2]) -> impl Fn() + Sync + Send + Clone + 'static {
    move || {
        let ring = Ring::new(true);
        for number in 0..before {
            assert_eq!(ring.append(100 + number), Outcome::Written);
        }
        let writers = [0, 1].map(|writer| {
            let ring = ring.clone();
            thread::spawn(move || {
                (0..events[usize::from(writer)])
                    .filter(|&event| ring.append(writer * 10 + event) == Outcome::Written)
                    .count()
            })
        });
        let mut bytes = Vec::new();
        let span = ring.reader().copy_history(&mut bytes).expect("a sound position");
        Found::default().look(WriteProtocol::ReserveCommit, &bytes, span.begin);
        let written =
            usize::from(before) + writers.map(|writer| writer.join().unwrap()).iter().sum::<usize>();
        // At rest everything is complete, and counted.
        let span = ring.reader().copy_history(&mut bytes).expect("a sound position");
        let mut found = Found::default();
        found.look(WriteProtocol::ReserveCommit, &bytes, span.begin);
        assert!(!found.unfinished);
        let appended = usize::from(before) + usize::from(events[0] + events[1]);
        assert_eq!(ring.lost(Cause::Unfinished) as usize, appended - written);
        // One event of each: none comes to where another one could have been unfinished a lap ago.
        assert!(events != [1, 1] || written == appended);
        assert_eq!((ring.reader().events(), span.events), (written as u64, Some(written as u64)));
        assert!(bytes.is_empty() || found.accounted == written as u64);
    }
}

#[test]
fn writers_and_a_history_in_overwrite_mode() {
    explore(1, overwriting(0, [1, 1]));
    explore(1, overwriting(4, [1, 1]));
    explore(1, overwriting(3, [1, 2]));
}

#[test]
fn mistakes_in_overwrite_mode_are_noticed() {
    must_fail(Fault::RefusedStale, 2, overwriting(4, [1, 1]));
    must_fail(Fault::CounterIgnored, 2, overwriting(1, [1, 4]));
    must_fail(Fault::NoSecondLook, 2, overwriting(3, [1, 1]));
    must_fail(Fault::NoReleaseFence, 2, overwriting(3, [1, 1]));
}

/// Does what a restartable section does: it stores a record, and then the position behind it.
struct Section {
    map: SharedMap,
    write: u64,
    events: u64,
    time: u64,
    overwrite: bool,
}

impl Section {
    fn put(&mut self, words: &[u64], events: u64) {
        let place = ring::DATA + Ring::geometry().place(self.write);
        for (index, word) in words.iter().enumerate() {
            self.map.put(place + index * 8, *word);
        }
        self.write += words.len() as u64 * 8;
        self.events += events;
        self.map.publish(self.write, self.events);
    }

    /// Appends an event, with a sub-buffer's header before it where that is due. False if the ring
    /// is full.
    fn append(&mut self, number: u16) -> bool {
        let inside = self.write % SUBBUF;
        if inside == 0 || inside + 24 > SUBBUF {
            let start = self.write.next_multiple_of(SUBBUF);
            let consumed = self.map.get(ring::CONSUMED, Ordering::Acquire);
            if !self.overwrite && start + SUBBUF - consumed > 2 * SUBBUF {
                return false;
            }
            if inside != 0 {
                self.map.put(ring::DATA + Ring::geometry().place(self.write), 0);
                self.write = start;
                self.map.publish(start, self.events);
            }
            self.time += 1;
            self.put(&[SubbufferHeader::head().to_word(), self.time, start, 0, self.events], 0);
        }
        self.time += 1;
        let head = Head { id: record::FIRST_EVENT + number, words: 3, tid: 7 }.to_word();
        self.put(&[head, self.time, u64::from(number) * 3 + 1], 1);
        true
    }
}

/// A section's events behind others, and a reader that takes them, or copies the history.
fn sections(before: u16, events: u16, overwrite: bool) -> impl Fn() + Sync + Send + Clone + 'static {
    move || {
        let map = SharedMap::for_ring(Ring::geometry().file_size() as usize);
        let mut section = Section { map: map.clone(), write: 0, events: 0, time: 0, overwrite };
        for number in 0..before {
            assert!(section.append(100 + number));
        }
        let writer = thread::spawn(move || (0..events).filter(|&number| section.append(number)).count());
        let reader = RingReader::new(&map, Ring::geometry(), 0, 0);
        let (mut found, mut bytes) = (Found::default(), Vec::new());
        if overwrite {
            let span = reader.copy_history(&mut bytes).expect("a sound position");
            found.look(WriteProtocol::Rseq, &bytes, span.begin);
            let _ = writer.join().unwrap();
            return;
        }
        for _ in 0..2 {
            bytes.clear();
            let span = reader.consume(found.read, &mut bytes).expect("a sound position");
            found.look(WriteProtocol::Rseq, &bytes, span.begin);
            found.read = span.end;
        }
        let written = writer.join().unwrap() + usize::from(before);
        bytes.clear();
        let span = reader.consume_final(found.read, &mut bytes).expect("a sound position");
        found.look(WriteProtocol::Rseq, &bytes, span.begin);
        assert_eq!((found.numbers.len(), span.events), (written, Some(written as u64)));
    }
}

#[test]
fn sections_and_readers() {
    explore(2, sections(0, 2, false));
    explore(2, sections(6, 2, false));
    explore(2, sections(0, 2, true));
    explore(2, sections(5, 2, true));
}

#[test]
fn mistakes_of_a_sections_reader_are_noticed() {
    must_fail(Fault::NoRelease, 2, sections(1, 1, false));
    must_fail(Fault::ReleasedEarly, 2, sections(6, 2, false));
    must_fail(Fault::NoSecondLook, 2, sections(5, 3, true));
}

/// The rules are replaced twice, while an agent reads them.
fn replacing() -> impl Fn() + Sync + Send + Clone + 'static {
    || {
        const PLACES: Places = Places { word: 0, text: 8, size: 16 };
        let map = SharedMap::for_words(24);
        rules_text::publish_at(&Part::of(&map, 0, 24), PLACES, &[1; 16], || ());
        let session = {
            let map = map.clone();
            thread::spawn(move || {
                rules_text::publish_at(&Part::of(&map, 0, 24), PLACES, &[2; 16], || ());
                rules_text::publish_at(&Part::of(&map, 0, 24), PLACES, &[3; 9], || ());
            })
        };
        if let Some(rules) = rules_text::read_at(&Part::of(&map, 0, 24), PLACES) {
            let expected = match rules.generation {
                2 => vec![1; 16],
                4 => vec![2; 16],
                _ => vec![3; 9],
            };
            assert_eq!(rules.text, expected, "generation {}", rules.generation);
        }
        session.join().unwrap();
        let last = rules_text::read_at(&Part::of(&map, 0, 24), PLACES).map(|rules| rules.text);
        assert_eq!(last, Some(vec![3; 9]));
    }
}

#[test]
fn rules_are_read_whole() {
    explore(3, replacing());
}

#[test]
fn torn_rules_are_noticed() {
    must_fail(Fault::NoSecondLook, 2, replacing());
    // `NoRelease` alone is not noticed: loom's clock does not tell stores behind a release fence
    // from those before it.
    must_fail(Fault::NoReleaseFence, 2, replacing());
}

/// A trigger's number gets another trigger while threads match the old one, so many; an agent that
/// has read the new text matches the new one.
fn changing_trigger(late: u32) -> impl Fn() + Sync + Send + Clone + 'static {
    move || {
        const PLACES: Places = Places { word: 0, text: 8, size: 8 };
        const MATCHES: usize = 16;
        // Each other thread changes the word once.
        const TRIES: u32 = 3;
        let map = SharedMap::for_words(24);
        let session = {
            let map = map.clone();
            thread::spawn(move || {
                let part = Part::of(&map, 0, 24);
                let begin = || captures::begin_epoch(&part, MATCHES, 1);
                rules_text::publish_at(&part, PLACES, &[1; 8], begin);
            })
        };
        let begin = |_| {
            let map = map.clone();
            thread::spawn(move || captures::count_match(&Part::of(&map, 0, 24), MATCHES, 0, TRIES))
        };
        let late: Vec<_> = (0..late).map(begin).collect();
        let part = Part::of(&map, 0, 24);
        let epoch = || triggers::epoch(part.load(MATCHES, Ordering::Relaxed));
        let mut counted = 0;
        if let Some((text, epoch)) = rules_text::read_with(&part, PLACES, epoch) {
            assert_eq!(text.text.is_empty(), epoch == 0, "a text and its epoch");
            if epoch == 1 {
                assert!(captures::count_match(&part, MATCHES, epoch, TRIES));
                counted = 1;
            }
        }
        session.join().unwrap();
        assert!(late.into_iter().all(|late| late.join().unwrap()), "a try too few");
        assert_eq!(part.load(MATCHES, Ordering::Relaxed), triggers::first_word(1) + counted);
    }
}

#[test]
fn matches_are_counted_for_their_own_trigger() {
    explore(3, changing_trigger(0));
    explore(3, changing_trigger(1));
}

#[test]
fn triggers_of_two_generations_are_noticed() {
    must_fail(Fault::NoSecondLook, 2, changing_trigger(0));
    must_fail(Fault::NoSecondLook, 2, changing_trigger(1));
}

/// Words are replaced, removed and put again, while a thread reads them.
fn replacing_words() -> impl Fn() + Sync + Send + Clone + 'static {
    || {
        let words = Arc::new(VersionedWords::<2>::default());
        words.set(Some([1, 1]));
        let writer = {
            let words = Arc::clone(&words);
            thread::spawn(move || {
                words.set(Some([2, 2]));
                words.set(None);
                words.set(Some([3, 3]));
            })
        };
        for [first, second] in [words.get(), words.get()].into_iter().flatten() {
            assert_eq!(first, second, "words of two versions");
        }
        writer.join().unwrap();
        assert_eq!(words.get(), Some([3, 3]));
    }
}

#[test]
fn words_are_read_in_one_version() {
    explore(3, replacing_words());
    must_fail(Fault::NoSecondLook, 2, replacing_words());
    must_fail(Fault::NoReleaseFence, 2, replacing_words());
}

/// Two threads append a pinned event each, while the list is read.
fn keeping() -> impl Fn() + Sync + Send + Clone + 'static {
    || {
        const SIZE: usize = 160;
        let map = SharedMap::for_words(SIZE);
        let writers = [0u16, 1].map(|number| {
            let map = map.clone();
            thread::spawn(move || {
                let image = [u64::from(number) * 3 + 1];
                let event = event(number, &image, Retention::Pinned);
                // SAFETY: the image is a live local.
                assert!(unsafe { list::append(&Part::of(&map, 0, SIZE), SIZE, &event, (0, 5)) });
            })
        });
        let (mut read, mut found) = (0, Vec::new());
        list::take_from(&Part::of(&map, 0, SIZE), SIZE, (&mut read, false), &mut found);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        list::take_from(&Part::of(&map, 0, SIZE), SIZE, (&mut read, true), &mut found);
        let mut numbers: Vec<u32> = found.iter().map(|event| event.number).collect();
        numbers.sort_unstable();
        assert_eq!((numbers, read), (vec![0, 1], pinned::ENTRIES + 2 * pinned::entry_len(8)));
        for event in found {
            assert_eq!((event.tid, event.time), (7, 5));
            assert_eq!(event.payload, (u64::from(event.number) * 3 + 1).to_le_bytes());
        }
    }
}

#[test]
fn pinned_events_are_read_whole_and_once() {
    explore(3, keeping());
    must_fail(Fault::NoRelease, 3, keeping());
}
