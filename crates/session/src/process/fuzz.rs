//! Fuzz test: whatever stands in a program's shared memory, it becomes packets that can be read, or
//! is refused.
//!
//! An execution takes a sound ring, or one that is left from the execution before, damages it, and
//! sends it the whole way: positions, copy, records, classes, conversion, packet. What must hold is
//! checked each time. The same in every run; see `docs/design/trust.md` for how to run more of it.

use tompion_ctf::{
    decode::{Decoder, Input},
    metadata::{Event as EventClass, Uuid},
    tsdl,
};
use tompion_layout::{record::WriteProtocol, ring};
use tompion_os::{ClockPair, DirHandle, create_memfd};
use tompion_protocol::message::Origin;
use tompion_ring::records::{Records, UntrustedRecord};

use super::*;
use tompion_clock::ClockMap;

mod sound;

use sound::Image;
use tompion_testing::{Random, executions, seed};

/// Number of executions in normal tests.
const FEW: u64 = 100_000;
/// Number of executions with `TOMPION_FULL=1`.
const MANY: u64 = 2_000_000;
/// Number of executions after which the process is a new one.
const OF_ONE_PROCESS: u64 = 16_384;
/// Numbers that programs count wrong with.
const ODD: [u64; 16] = [
    0,
    1,
    7,
    8,
    16,
    4095,
    4096,
    8192,
    u16::MAX as u64,
    1 << 31,
    u32::MAX as u64,
    1 << 32,
    1 << 62,
    1 << 63,
    u64::MAX - 7,
    u64::MAX,
];

/// Number of executions, and their seed: `TOMPION_FUZZ=100000000`, `TOMPION_FUZZ_SEED=7`.
fn wanted() -> (u64, u64) {
    (executions(FEW, MANY), seed())
}

/// Says which execution it was if it fails.
struct Execution(u64, u64);

impl Drop for Execution {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("execution {} of seed {}", self.1, self.0);
        }
    }
}

/// Counts of the executions' outcomes.
#[derive(Debug, Default)]
struct Tally {
    executions: u64,
    sound: u64,
    reserved: u64,
    unfinished: u64,
    events: u64,
    refusals: u64,
    filtered: u64,
    decoded: u64,
    bytes: u64,
    catalogs: u64,
    classes: u64,
    kept: u64,
}

/// A made-up process, and what is expected of it.
struct Fixture {
    process: Process,
    clock: ClockMap,
    images: Vec<Image>,
    form: WriteProtocol,
    decoder: Decoder,
    /// The trace goes with it.
    _folder: Folder,
}

/// A folder that is taken away at the end.
struct Folder(DirHandle);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = self.0.remove_all();
    }
}

fn map(name: &std::ffi::CStr, size: u64) -> SharedMap {
    use std::os::fd::AsFd;
    let file = create_memfd(name, size).unwrap();
    SharedMap::new(file.as_fd(), size).unwrap()
}

fn source() -> encode::Source {
    encode::Source {
        uuid: Uuid([3; 16]),
        environment: Vec::new(),
        clock_uuid: None,
        clock_offset_ns: 1,
        clock_precision_ns: 1,
        numbers_streams: false,
        tid: true,
        context: Vec::new(),
    }
}

fn decoder_of(classes: Vec<EventClass>) -> Decoder {
    let text = tsdl::write(&encode::metadata_of_classes(&source(), classes));
    let trace = tsdl::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {text}"));
    Decoder::new(trace).unwrap_or_else(|error| panic!("{error}: {text}"))
}

impl Fixture {
    fn new(random: &mut Random, number: u64) -> Self {
        let geometry = Geometry::new(4096, [2, 4][random.index(2)], 1, 1).unwrap();
        let name = format!("tompion-fuzz-{}-{number}-{:x}", std::process::id(), random.number());
        let folder = DirHandle::create(&std::env::temp_dir().join(name)).unwrap();
        let hello = Hello {
            pid: 1,
            origin: Origin::Exec,
            rseq: true,
            tsc: true,
            agent_version: String::new(),
            name: "fuzz".into(),
            executable: String::new(),
            has_listener: true,
            prepared: None,
            cpu: None,
            counts: false,
            follows_triggers: true,
            notices_withdrawal: false,
            control_size: control::FILE_SIZE,
        };
        let filter = (random.index(4) == 0).then(|| "$cpu == 0 && f1 < 9 || $tid == 3".to_owned());
        let form = [WriteProtocol::Rseq, WriteProtocol::Rseq, WriteProtocol::ReserveCommit][random.index(3)];
        let recording = Recording {
            geometry,
            ring_share: None,
            form,
            overwrite: random.index(2) == 0,
            given_time: random.index(4) == 0,
            control: map(c"control", control::FILE_SIZE),
            rings: map(c"rings", geometry.file_size()),
            counts: None,
            match_counts: Default::default(),
            folder: folder.clone(),
            description: source(),
            context_sources: ThreadContextSources {
                threads: filter.as_ref().map(|_| Threads::new(std::process::id(), 1, Vec::new())),
                filter,
                jobs: None,
            },
            kept_in: None,
            budget: Default::default(),
            gives_pages_back: false,
        };
        let mut process = Process::new(number, 1, hello, None, recording);
        let clock = ClockMap::new(
            ClockPair { tsc: sound::EPOCH, ns: sound::EPOCH },
            ClockPair { tsc: sound::EPOCH + 2_000_000, ns: sound::EPOCH + 1_000_000 },
        );
        sound::write_catalog(&process.control);
        // The trace's classes get the numbers that the program gave them.
        for number in 0..sound::classes().len() as u32 {
            assert_eq!(process.class_id(number), Some(number));
        }
        let images = (0..24).map(|_| Image::new(random, geometry, form)).collect();
        let decoder = decoder_of(process.writer.classes().to_vec());
        Self { process, clock, images, form, decoder, _folder: Folder(folder) }
    }

    /// One execution.
    fn execute(&mut self, random: &mut Random, tally: &mut Tally) {
        let is_fresh = random.index(4) != 0;
        let image = &self.images[random.index(self.images.len())];
        if is_fresh {
            image.put(&self.process.rings);
            self.process.states[0] = RingState { read: image.read, populated: 1, ..RingState::default() };
        }
        let damages = random.index(5);
        for _ in 0..damages {
            damage(&self.process.rings, image, self.process.geometry, random);
        }
        if random.index(64) == 0 {
            sound::damage_kept(&self.process.control, random);
        }
        let sound_events = (is_fresh && damages == 0).then_some(image.events);
        let before = self.process.states[0].read;
        tally.executions += 1;
        if self.form == WriteProtocol::ReserveCommit {
            return self.execute_reserve(sound_events, random, tally);
        }
        if self.process.overwrite {
            self.process.save_history();
        } else {
            self.process.collect(u64::MAX);
        }
        self.check_span(before);
        self.check_conversion(sound_events, random, tally);
    }

    /// An execution with a ring in reserve form, as far as its records.
    fn execute_reserve(&mut self, sound_events: Option<u64>, random: &mut Random, tally: &mut Tally) {
        let geometry = self.process.geometry;
        let before = self.process.states[0].read;
        let reader =
            RingReader::new(&self.process.rings, geometry, 0, 0).in_form(WriteProtocol::ReserveCommit);
        let mut bytes = Vec::new();
        let way = random.index(3);
        let copied = match way {
            0 => reader.consume(before, &mut bytes),
            1 => reader.consume_final(before, &mut bytes),
            _ => reader.copy_history(&mut bytes),
        };
        tally.reserved += 1;
        tally.bytes += bytes.len() as u64;
        let Ok(span) = copied else {
            assert!(sound_events.is_none());
            // As `Process::collect` goes on.
            self.process.states[0].read = geometry.subbuf_end(reader.written() & !7);
            return;
        };
        assert!(span.begin <= span.end && span.end - span.begin <= geometry.ring_size());
        assert_eq!(span.end - span.begin, bytes.len() as u64);
        assert!(way == 2 || span.begin == before);
        self.process.states[0].read = span.end;
        let walked = walk(span, &bytes, geometry, WriteProtocol::ReserveCommit);
        assert!(way != 0 || walked.unfinished == 0, "what isn't complete is left in the ring");
        if let (Some(expected), 0 | 1) = (sound_events, way) {
            assert_eq!((walked.events, walked.refusals, walked.unfinished), (expected, 0, 0));
            tally.sound += 1;
        }
        tally.events += walked.events;
        tally.refusals += walked.refusals;
        tally.unfinished += walked.unfinished;
    }

    /// Checks that copied bytes lie inside the possible range.
    fn check_span(&self, before: u64) {
        let geometry = self.process.geometry;
        let state = &self.process.states[0];
        assert!(state.pending.len() <= 1);
        let Some((span, bytes)) = state.pending.front() else { return };
        assert!(span.begin < span.end && span.end - span.begin <= geometry.ring_size());
        assert_eq!(span.end - span.begin, bytes.len() as u64);
        assert_eq!(state.read, span.end);
        assert!(self.process.overwrite || span.begin == before);
        assert!(span.begin >= before, "nothing is read twice");
    }

    /// Checks that copied bytes become events, or are refused, or are filtered; packets hold as
    /// many, and can be read.
    fn check_conversion(&mut self, sound_events: Option<u64>, random: &mut Random, tally: &mut Tally) {
        let process = &mut self.process;
        let counts = |process: &Process| (process.writer.events_of(0), process.refused(), process.filtered);
        let before = counts(process);
        let pending = process.states[0].pending.front();
        let walked = pending.map(|(span, bytes)| walk(*span, bytes, process.geometry, WriteProtocol::Rseq));
        let walked = walked.unwrap_or_default();
        let size = process.pending_bytes();
        while process.convert_some(Backlog::All, &mut self.clock).unwrap() != 0 {}
        let after = counts(process);
        let (events, refused, filtered) = (after.0 - before.0, after.1 - before.1, after.2 - before.2);
        assert_eq!(events + refused + filtered, walked.events + walked.refusals);
        if let (Some(expected), false) = (sound_events, process.overwrite) {
            assert_eq!((events + filtered, refused), (expected, 0));
            tally.sound += 1;
        }
        let packet = process.writer.take_packet(0);
        assert!(packet.len() as u64 <= 256 + 2 * size, "{} bytes of {size}", packet.len());
        if random.index(8) == 0 {
            tally.decoded += decode(&self.decoder, &packet, events);
        }
        tally.events += events;
        tally.refusals += refused;
        tally.filtered += filtered;
        tally.bytes += size;
    }

    /// Kept events, and a catalog that was damaged; the process is not used again.
    fn end(mut self, random: &mut Random, tally: &mut Tally) {
        let initial = self.process.writer.initial_stream();
        self.process.end = Some(tompion_manifest::ENDED.into());
        self.process.convert_initial(&mut self.clock).unwrap();
        assert!(self.process.kept_read <= control::PINNED_SIZE as usize);
        let events = self.process.writer.events_of(initial);
        let packet = self.process.writer.take_packet(initial);
        tally.kept += decode(&self.decoder, &packet, events);
        for _ in 0..64 {
            self.process.catalog_read = 0;
            self.process.classes = BTreeMap::new();
            self.process.ready = Vec::new();
            sound::damage_catalog(&self.process.control, random);
            let before = (self.process.refused(), self.process.initial.len());
            self.process.read_catalog();
            tally.catalogs += 1;
            let classes: Vec<_> = self.process.classes.values().collect();
            let read = self.process.classes.len() + self.process.initial.len() - before.1;
            assert!(read as u64 + self.process.refused() - before.0 <= control::CATALOG_SIZE / 8);
            tally.classes += classes.len() as u64;
            let events: Vec<Event> = classes.iter().map(|class| class.event.clone()).collect();
            for event in &events {
                assert_eq!(tompion_schema::decode(&tompion_schema::encode(event)).as_ref(), Ok(event));
            }
            let classes = events.iter().zip(0..).map(|(event, id)| encode::event_class(event, id));
            decoder_of(classes.collect());
            self.process.conflicts();
            let with_span = events.iter().filter(|event| event.base_name() != event.name).count();
            assert_eq!(self.process.event_names().count(), events.len() + with_span);
        }
        self.process.finish().unwrap();
    }
}

/// Records in a span.
#[derive(Default)]
struct Walked {
    events: u64,
    refusals: u64,
    unfinished: u64,
}

/// Walks a span. All of it is an event, refused, unfinished, padding, or the header of a
/// sub-buffer.
fn walk(span: Span, bytes: &[u8], geometry: Geometry, form: WriteProtocol) -> Walked {
    let mut records = Records::new(bytes, span.begin, geometry.subbuf_size()).in_form(form);
    let (mut at, mut walked) = (span.begin, Walked::default());
    while let Some(record) = records.next() {
        let end = records.stream_position();
        let begin = match record {
            Ok(UntrustedRecord::Event { payload, .. }) => {
                walked.events += 1;
                assert!(bytes.as_ptr_range().contains(&payload.as_ptr()) || payload.is_empty());
                end - (form.header_len() + payload.len()) as u64
            }
            Ok(UntrustedRecord::Subbuffer { .. }) => end - form.subbuffer_header_len() as u64,
            Ok(UntrustedRecord::Unfinished { position, skipped }) => {
                walked.unfinished += 1;
                assert_eq!(position + skipped, end);
                position
            }
            Err(refusal) => {
                walked.refusals += 1;
                assert_eq!(refusal.position + refusal.skipped, end);
                refusal.position
            }
        };
        assert!(at <= begin && begin < end && end <= span.end, "{at} {begin} {end} of {span:?}");
        assert!(at == begin || geometry.subbuf_start(begin) == begin, "padding ends with its sub-buffer");
        assert_eq!(geometry.subbuf_start(begin), geometry.subbuf_start(end - 1));
        at = end;
    }
    assert_eq!(records.stream_position(), span.end);
    walked
}

/// Reads a packet to its end, in which there are at most so many events.
fn decode(decoder: &Decoder, bytes: &[u8], most: u64) -> u64 {
    if bytes.is_empty() {
        return 0;
    }
    let mut state = decoder.state();
    let packet = decoder.packet(Input::new(bytes, u64::MAX), &mut state).unwrap();
    let input = Input::new(bytes, packet.content_bits.unwrap());
    let (mut bit, mut events) = (packet.header_bits, 0);
    while bit < input.bits() {
        let head = decoder.event_header(packet.stream, input, bit, &mut state).unwrap();
        let place = (packet.stream, head.class);
        bit = decoder.event_body(place.0, place.1, input, (head.end, &mut state)).unwrap().end;
        events += 1;
    }
    // Others may stand in packets that were written before.
    assert!(events <= most, "{events} of {most}");
    events
}

/// Damages a ring.
fn damage(rings: &SharedMap, image: &Image, geometry: Geometry, random: &mut Random) {
    let set = |place: usize, value: u64| rings.word(place).store(value, Ordering::Relaxed);
    let get = |place: usize| rings.word(place).load(Ordering::Relaxed);
    let words = geometry.ring_size() as usize / 8;
    let somewhere = ring::DATA + random.index(words) * 8;
    let boundary = image.boundaries[random.index(image.boundaries.len())];
    let place = ring::DATA + geometry.place(boundary);
    let odd = if random.index(2) == 0 { ODD[random.index(ODD.len())] } else { random.number() };
    match random.index(12) {
        0 => set(ring::WRITE, odd),
        1 => set(ring::WRITE, get(ring::WRITE).wrapping_add([8, 1, 4096, 1 << 63, 8192][random.index(5)])),
        2 => set(ring::WRITE, get(ring::WRITE).wrapping_sub([8, 16, 4096, 3][random.index(4)])),
        // The head of a record: its kind, its length, its thread.
        3 => set(place, get(place) & !0xffff | odd & 0xffff),
        4 => set(place, get(place) & !0xffff_0000 | (odd & 0xffff) << 16),
        5 => set(place, get(place).wrapping_add(1 << [0, 16, 17, 32][random.index(4)])),
        // What stands behind it: times, positions, counts.
        6 | 7 => {
            let behind = ring::DATA + (geometry.place(boundary) + 8 * (1 + random.index(8))) % (words * 8);
            let half = 32 * random.index(2);
            match random.index(3) {
                0 => set(behind, odd),
                1 => set(behind, get(behind) & !(0xffff_ffff << half) | (odd & 0xffff_ffff) << half),
                _ => set(behind, get(behind) ^ 1 << random.index(64)),
            }
        }
        8 => set(somewhere, odd),
        9 => set(somewhere, get(somewhere) ^ 1 << random.index(64)),
        10 => {
            // A piece from elsewhere, as from another lap.
            let from = ring::DATA + random.index(words) * 8;
            for index in 0..random.index(32) * 8 {
                let inside = |at: usize| ring::DATA + (at - ring::DATA + index * 8) % (words * 8);
                set(inside(place), get(inside(from)));
            }
        }
        _ => {
            let (from, len) = ((somewhere - ring::DATA) / 8, random.index(64));
            (from..(from + len).min(words)).for_each(|word| set(ring::DATA + word * 8, random.number()));
        }
    }
}

/// Runs this many executions from a seed.
fn run(rounds: u64, seed: u64) -> Tally {
    let mut tally = Tally::default();
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut execution = Execution(seed, 0);
    let mut fixture = Fixture::new(&mut random, 0);
    for round in 0..rounds {
        execution.1 = round;
        if round % OF_ONE_PROCESS == OF_ONE_PROCESS - 1 {
            let next = Fixture::new(&mut random, round);
            std::mem::replace(&mut fixture, next).end(&mut random, &mut tally);
        }
        fixture.execute(&mut random, &mut tally);
    }
    fixture.end(&mut random, &mut tally);
    tally
}

#[test]
fn whatever_stands_in_shared_memory_becomes_packets_or_is_refused() {
    let (rounds, seed) = wanted();
    let tally = run(rounds, seed);
    println!("{tally:?}");
    assert_eq!(tally.executions, rounds);
    assert!(tally.sound > rounds / 30 && tally.events > rounds && tally.refusals > rounds / 30);
    assert!(tally.reserved > rounds / 10 && tally.unfinished > rounds / 200);
    assert!(tally.decoded > rounds / 20 && tally.classes > tally.catalogs && tally.kept > 0);
}
