//! Data that a sound program would have written: rings, catalogs, lists of pinned events, made from
//! random numbers; and damage to the latter two.

use std::sync::{OnceLock, atomic::Ordering};

use tompion_layout::{
    catalog, control, pinned,
    record::{FIRST_EVENT, Head, SubbufferHeader, WriteProtocol, padding_stamp, stamp},
    ring::{self, Geometry},
};
use tompion_os::SharedMap;
use tompion_schema::{Enumeration, Event, Field, Integer, Kind, Label, Level, Type};
use tompion_testing::Random;

/// Time at which the clocks begin.
pub const EPOCH: u64 = 1 << 40;

/// The events of the program: one of each shape.
pub fn classes() -> &'static [Event] {
    static CLASSES: OnceLock<Vec<Event>> = OnceLock::new();
    CLASSES.get_or_init(|| {
        let label = |low, high, name: &str| Label { low, high, name: name.into() };
        let labels = vec![label(0, 3, "few"), label(-9, -1, "below")];
        let enumeration = Enumeration { name: "e".into(), labels };
        let types = vec![
            Type::Integer(Integer::signed(16).network()),
            Type::Integer(Integer::unsigned(64)),
            Type::Float(64),
            Type::Enum(Integer::signed(8), enumeration),
            Type::TextArray(3),
            Type::Bytes,
            Type::Sequence(Integer::hex(16).network()),
            Type::Array(Integer::unsigned(32), 5),
            Type::TextSequence,
            Type::Bool,
            Type::String,
        ];
        let fields = |types: &[Type]| -> Vec<Field> {
            types
                .iter()
                .zip(0..)
                .map(|(ty, number): (_, u32)| Field::new(&format!("f{number}"), ty.clone()))
                .collect()
        };
        let nested = Field::new("in", Type::Struct(fields(&types)));
        let context =
            Field { context: true, ..Field::new("user", Type::Struct(fields(&[Type::Bool, Type::String]))) };
        let event = |number: usize, fields| Event {
            provider: "fuzz".into(),
            name: format!("event{number}"),
            level: Level::DEFAULT,
            kind: if number == 5 { Kind::Mark } else { Kind::Instant },
            init: number == 1,
            format: (number == 5).then(|| "rows %d of \"%s\"".into()),
            attributes: Default::default(),
            fields,
        };
        let bare = |ty| vec![Field::new("f0", ty)];
        let all = [
            Vec::new(),
            bare(Type::String),
            fields(&types[..4]),
            fields(&types),
            [fields(&types[5..9]), vec![context.clone(), nested]].concat(),
            fields(&[Type::Integer(Integer::signed(32)), Type::String]),
            [fields(&types[..2]), vec![context]].concat(),
            bare(Type::Sequence(Integer::unsigned(64))),
        ];
        let events = all.into_iter().enumerate().map(|(number, fields)| event(number, fields));
        // As they are when they were read: marks have other names then.
        events.map(|event| tompion_schema::decode(&tompion_schema::encode(&event)).unwrap()).collect()
    })
}

/// A payload that fits these fields.
fn payload(fields: &[Field], random: &mut Random) -> Vec<u8> {
    let (mut fixed, mut tails) = (Vec::new(), Vec::new());
    fill(fields, random, &mut fixed, &mut tails);
    fixed.extend(tails);
    fixed
}

fn fill(fields: &[Field], random: &mut Random, fixed: &mut Vec<u8>, tails: &mut Vec<u8>) {
    for field in fields {
        let (count, element) = match &field.ty {
            Type::Struct(members) => {
                fill(members, random, fixed, tails);
                continue;
            }
            Type::String | Type::Bytes | Type::TextSequence => (random.index(24), 1),
            Type::Sequence(integer) => (random.index(9), integer.size()),
            Type::Array(integer, count) => (*count as usize, integer.size()),
            Type::TextArray(count) => (*count as usize, 1),
            fixed_type => {
                fixed.extend((0..fixed_type.fixed_size()).map(|_| random.number() as u8));
                continue;
            }
        };
        if field.ty.fixed_size() == 4 {
            fixed.extend((count as u32).to_le_bytes());
        }
        tails.extend((0..count * element).map(|_| random.number() as u8));
    }
}

/// A sound ring.
pub struct Image {
    /// Words that were written last, with their places in the data. The rest of the ring stays as
    /// it is: of another lap.
    words: Vec<(usize, u64)>,
    write: u64,
    /// Position of the reader.
    pub read: u64,
    /// Number of events from there on.
    pub events: u64,
    /// Positions at which records begin, and the end.
    pub boundaries: Vec<u64>,
}

/// The header of a sub-buffer: its time, its position, what was lost, how many events there were.
fn header(form: WriteProtocol, words: [u64; 4]) -> Vec<u8> {
    let mut all = match form {
        WriteProtocol::Rseq => vec![SubbufferHeader::head().to_word()],
        WriteProtocol::ReserveCommit => vec![stamp(words[1]), SubbufferHeader::reserve_head().to_word()],
    };
    all.extend(words);
    if form == WriteProtocol::ReserveCommit {
        all.push(words[1]);
    }
    all.into_iter().flat_map(u64::to_le_bytes).collect()
}

/// An event's record at a position.
fn event(form: WriteProtocol, at: u64, time: u64, random: &mut Random) -> Vec<u8> {
    let number = random.index(classes().len());
    let payload = payload(&classes()[number].fields, random);
    let len = (form.header_len() + payload.len()).next_multiple_of(8);
    let id = FIRST_EVENT + number as u16;
    let head = Head { id, words: (len / 8) as u16, tid: random.index(4) as u32 };
    let commit = (form == WriteProtocol::ReserveCommit).then(|| stamp(at));
    let words = commit.into_iter().chain([head.to_word(), time]);
    let mut record: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    record.extend(payload);
    record.resize(len, 0);
    record
}

impl Image {
    pub fn new(random: &mut Random, geometry: Geometry, form: WriteProtocol) -> Self {
        let (size, subbuf) = (geometry.ring_size(), geometry.subbuf_size());
        let lap = [0, random.number() >> 50, random.number() >> 16][random.index(3)];
        let start = lap * size + random.index(geometry.subbuf_count() as usize) as u64 * subbuf;
        let mut bytes = vec![0; size as usize];
        let mut starts = Vec::new();
        let (mut at, mut events, mut time) = (start, lap, EPOCH);
        // Mostly short ones: what can go wrong goes wrong within a few records, or at the end of a
        // sub-buffer.
        let most = [200, 400, 600, 800, 1000, 1200, 1400, size][random.index(8)];
        let end = start + random.index(most as usize + 1) as u64;
        let put = |bytes: &mut Vec<u8>, at: u64, record: &[u8]| {
            let place = geometry.place(at);
            bytes[place..place + record.len()].copy_from_slice(record);
        };
        while at < end {
            time += random.number() >> 50;
            let record = match at % subbuf {
                0 => header(form, [time, at, lap / 3, events]),
                _ => event(form, at, time, random),
            };
            let next = at + record.len() as u64;
            if next > geometry.subbuf_end(at) {
                if at % subbuf != 0 && form == WriteProtocol::ReserveCommit {
                    put(&mut bytes, at, &padding_stamp(at).to_le_bytes());
                }
                at = geometry.subbuf_end(at);
                continue;
            }
            if next > start + size {
                break;
            }
            put(&mut bytes, at, &record);
            starts.push((at, at % subbuf != 0));
            events += u64::from(at % subbuf != 0);
            at = next;
        }
        let write = at.min(start + size);
        let first = random.index(starts.len() + 1);
        let read = starts.get(first).map_or(write, |(at, _)| *at);
        let events = starts[first..].iter().filter(|(_, is_event)| *is_event).count() as u64;
        let boundaries = starts.into_iter().map(|(at, _)| at).chain([write]).collect();
        let word = |at| {
            let place = geometry.place(at);
            (place, u64::from_le_bytes(bytes[place..place + 8].try_into().unwrap()))
        };
        let words = (start..write).step_by(8).map(word).collect();
        Self { words, write, read, events, boundaries }
    }

    /// Into a ring.
    pub fn put(&self, rings: &SharedMap) {
        for (place, word) in &self.words {
            rings.word(ring::DATA + place).store(*word, Ordering::Relaxed);
        }
        rings.word(ring::WRITE).store(self.write, Ordering::Relaxed);
    }
}

const CATALOG: usize = control::CATALOG as usize;
const PINNED: usize = control::PINNED as usize;

/// The catalog as it should be, as bytes.
fn sound_catalog() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut entry = |number: u32, body: &[u8]| {
        bytes.extend(number.to_le_bytes());
        bytes.extend((body.len() as u32).to_le_bytes());
        bytes.extend(body);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
    };
    for (event, number) in classes().iter().zip(0..) {
        entry(number, &tompion_schema::encode(event));
    }
    let text = [&EPOCH.to_le_bytes()[..], &[7, 0, 0, 0, 0, 0, 0, 0], &[3, 0, 0, 0], b"abc"].concat();
    entry(catalog::INITIAL | 1, &text);
    bytes
}

/// Writes the catalog.
pub fn write_catalog(control: &SharedMap) {
    let bytes = sound_catalog();
    control.copy_in(CATALOG + catalog::ENTRIES, &bytes);
    control.word(CATALOG + catalog::USED).store(bytes.len() as u64, Ordering::Release);
}

/// Writes a catalog with something wrong.
pub fn damage_catalog(control: &SharedMap, random: &mut Random) {
    let mut bytes = sound_catalog();
    for _ in 0..random.index(6) {
        let place = random.index(bytes.len());
        let odd = [0, 1, 2, 4, 0x7f, 0x80, 0xff, b'"', b'\\', b'\n', 19, 22][random.index(12)];
        match random.index(6) {
            0 | 1 => bytes[place] ^= 1 << random.index(8),
            2 => bytes[place] = odd,
            3 => bytes[place / 8 * 8] = odd,
            4 => drop(bytes.splice(place..place, [odd; 8])),
            _ => {
                let piece = bytes[place..bytes.len().min(place + 80)].to_vec();
                let to = random.index(bytes.len());
                bytes.splice(to..to, piece);
            }
        }
    }
    control.copy_in(CATALOG + catalog::ENTRIES, &bytes);
    let used = [bytes.len() as u64, random.index(bytes.len()) as u64, random.number() >> random.index(64)];
    let used = used[random.index(20).saturating_sub(17)];
    control.word(CATALOG + catalog::USED).store(used, Ordering::Release);
}

/// Appends an event to the kept ones, or something that is none.
pub fn damage_kept(control: &SharedMap, random: &mut Random) {
    let mut at = pinned::ENTRIES;
    let load = |at: usize| control.word(PINNED + at).load(Ordering::Relaxed);
    while let Some(len) = pinned::length(load(at), control::PINNED_SIZE as usize - at) {
        at += len;
        if at + 512 > control::PINNED_SIZE as usize {
            return;
        }
    }
    let number = random.index(classes().len() + 1);
    let payload = payload(classes().get(number).map_or(&[], |class| &class.fields), random);
    let len = pinned::entry_len(payload.len()) as u64;
    let header = [
        len | pinned::COMMITTED,
        number as u64 | (random.index(2) as u64) << 32,
        EPOCH + random.number() % 1000,
        7 | (payload.len() as u64) << 32,
    ];
    control.copy_in(PINNED + at, &header.map(u64::to_le_bytes).concat());
    control.copy_in(PINNED + at + pinned::HEADER, &payload);
    let lie = [len, u64::MAX, random.number() & 0xfff8 | pinned::COMMITTED, random.number()][random.index(4)];
    match random.index(40) {
        0 => control.word(PINNED + at).store(lie, Ordering::Relaxed),
        1..8 => {
            control.word(PINNED + at + 8 * (1 + random.index(5))).store(random.number(), Ordering::Relaxed)
        }
        _ => {}
    }
}
