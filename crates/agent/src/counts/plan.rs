//! Plan of an aggregation for the events of one kind: where keys and value are in a record.

use tompion_counts::{Function, Key as RuleKey, Rule};
use tompion_filter::{
    Encoding, EventSchema, Name, Operand, Place, RecordValues, Scalar, Schema, Tails, Values,
};
use tompion_histogram::LogLinear;
use tompion_layout::counts::{
    self as layout, AggregationPlace, AggregationSize, KEY_WORDS, KIND_ABSENT, KIND_CUT, KIND_EVENT,
    KIND_NATURAL, KIND_NEGATIVE, KIND_TEXT, MAX_PARTS, NEGATIVE_BUCKET,
};
use tompion_ring::{
    counts::{CountArea, CountSlot, Key, Operation},
    producer::Tail,
};
use tompion_schema::Event;

use crate::filters::{Filter, TailBytes};

const BUCKETS: LogLinear = LogLinear::new(layout::EXACT_BITS, layout::STEP_BITS);

/// Origin of a key or a value.
#[derive(Clone, Debug)]
enum Source {
    /// The event has no such value.
    Absent,
    /// The event's number.
    Event(u32),
    /// The thread's id.
    Thread,
    /// An integer in the fixed part.
    Fixed(usize, Scalar),
    /// An element of an array.
    Element(Operand),
    /// A text.
    Text(usize),
}

/// Change of the cell.
#[derive(Clone, Debug)]
enum Change {
    Count,
    Update(Operation, Source),
    Histogram(Source),
}

/// Plan of an aggregation for events of one kind.
#[derive(Debug)]
pub struct Plan {
    aggregation: usize,
    place: AggregationPlace,
    filter: Option<&'static Filter>,
    keys: [Source; MAX_PARTS],
    key_count: usize,
    change: Change,
}

/// Integer of an event: its bits, and whether it is below 0.
#[derive(Clone, Copy, Debug)]
struct Integer {
    bits: u64,
    is_negative: bool,
}

impl Integer {
    /// Its value; one that is too large is the largest.
    #[inline(always)]
    fn to_i64(self) -> i64 {
        if self.is_negative { self.bits as i64 } else { i64::try_from(self.bits).unwrap_or(i64::MAX) }
    }

    fn of(value: i128) -> Option<Self> {
        match value {
            ..0 => Some(Self { bits: i64::try_from(value).ok()? as u64, is_negative: true }),
            _ => Some(Self { bits: u64::try_from(value).ok()?, is_negative: false }),
        }
    }
}

/// Loads an integer of the fixed part.
#[inline(always)]
fn load(image: &[u8], offset: usize, scalar: Scalar) -> Option<Integer> {
    let bytes = image.get(offset..)?;
    let size = usize::from(scalar.size);
    let word = match size {
        8 => u64::from_le_bytes(*bytes.first_chunk()?),
        4 => u64::from(u32::from_le_bytes(*bytes.first_chunk()?)),
        2 => u64::from(u16::from_le_bytes(*bytes.first_chunk()?)),
        _ => u64::from(*bytes.first()?),
    };
    let spare = 64 - 8 * u32::from(scalar.size);
    let high = if scalar.network { word.swap_bytes() } else { word << (spare & 63) };
    Some(match scalar.encoding {
        Encoding::Signed => {
            let value = high as i64 >> (spare & 63);
            Integer { bits: value as u64, is_negative: value < 0 }
        }
        _ => Integer { bits: high >> (spare & 63), is_negative: false },
    })
}

impl Source {
    /// Finds a field of an event.
    fn of_field(name: &Name, event: &Event) -> Self {
        let found = EventSchema::without_contexts(event).find(name).place;
        let is_integer = |scalar: Scalar| scalar.encoding != Encoding::Float;
        match found {
            Place::Fixed { offset, scalar } if is_integer(scalar) => Self::Fixed(offset as usize, scalar),
            Place::Element { scalar, .. } if is_integer(scalar) => {
                Self::Element(Operand { name: name.clone(), place: found, index: 0 })
            }
            Place::Text { tail } => Self::Text(tail.into()),
            _ => Self::Absent,
        }
    }

    fn of_key(key: &RuleKey, event: &Event, number: u32) -> Self {
        match key {
            RuleKey::Field(name) => Self::of_field(name, event),
            RuleKey::Event => Self::Event(number),
            RuleKey::Thread => Self::Thread,
            RuleKey::Command | RuleKey::Process | RuleKey::Cgroup => Self::Absent,
        }
    }

    #[inline(always)]
    fn integer(&self, (image, tails): (&[u8], &[Tail])) -> Option<Integer> {
        match self {
            Self::Fixed(offset, scalar) => load(image, *offset, *scalar),
            Self::Element(operand) => element(operand, image, tails),
            _ => None,
        }
    }
}

#[inline(never)]
fn element(operand: &Operand, image: &[u8], tails: &[Tail]) -> Option<Integer> {
    let tails = TailBytes(tails);
    Integer::of(RecordValues::new(image, &tails).number(operand).as_integer()?)
}

/// A key that is being made.
struct KeyBuilder(Key, usize);

impl KeyBuilder {
    #[inline(always)]
    fn shape(&mut self, kind: u8, len: usize) {
        self.0.shape |= (u64::from(kind) | (len as u64) << 8) << (16 * self.1);
        self.1 += 1;
    }

    #[inline(always)]
    fn word(&mut self, word: u64) {
        if let Some(place) = self.0.words.get_mut(self.0.used) {
            *place = word;
            self.0.used += 1;
        }
    }

    #[inline(always)]
    fn add(&mut self, source: &Source, tid: u32, event: (&[u8], &[Tail]), room: usize) {
        match source {
            Source::Thread => {
                self.word(tid.into());
                self.shape(KIND_NATURAL, 0);
            }
            Source::Event(number) => {
                self.word((*number).into());
                self.shape(KIND_EVENT, 0);
            }
            Source::Fixed(..) | Source::Element(_) => match source.integer(event) {
                Some(Integer { bits, is_negative }) => {
                    self.word(bits);
                    self.shape(if is_negative { KIND_NEGATIVE } else { KIND_NATURAL }, 0);
                }
                None => self.shape(KIND_ABSENT, 0),
            },
            Source::Text(tail) => self.text(*tail, event.1, room),
            Source::Absent => self.shape(KIND_ABSENT, 0),
        }
    }

    #[inline(never)]
    fn text(&mut self, tail: usize, tails: &[Tail], room: usize) {
        let tails = TailBytes(tails);
        let Some(bytes) = tails.tail(tail) else { return self.shape(KIND_ABSENT, 0) };
        // One byte more tells whether it is cut.
        let bytes = bytes.get(..bytes.len().min(room + 1)).unwrap_or(bytes);
        let len = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        let (kind, len) = if len > room { (KIND_CUT, room) } else { (KIND_TEXT, len) };
        for chunk in bytes.get(..len).unwrap_or(&[]).chunks(8) {
            let mut word = [0; 8];
            // Another thread may change the text: what is copied here is what is compared.
            word.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
            self.word(u64::from_le_bytes(word));
        }
        self.shape(kind, len);
    }
}

impl Plan {
    /// Plan of a rule for an event, without its place. None if the event has no such value as the
    /// function is about.
    pub fn new(rule: &Rule, event: &Event, number: u32) -> Option<Self> {
        let value = |name| match Source::of_field(name, event) {
            source @ (Source::Fixed(..) | Source::Element(_)) => Some(source),
            _ => None,
        };
        let change = match &rule.function {
            Function::Count => Change::Count,
            Function::Sum(name) => Change::Update(Operation::Add, value(name)?),
            Function::Min(name) => Change::Update(Operation::Min, value(name)?),
            Function::Max(name) => Change::Update(Operation::Max, value(name)?),
            Function::Histogram(name) => Change::Histogram(value(name)?),
        };
        let mut keys = [Source::Absent, Source::Absent];
        let sources = rule.event_keys().map(|key| Source::of_key(key, event, number));
        keys.iter_mut().zip(sources).for_each(|(place, source)| *place = source);
        let place = AggregationPlace { size: AggregationSize { slots: 1, cells: 1 }, keys: 0, cells: 0 };
        Some(Self { aggregation: 0, place, filter: None, keys, key_count: rule.event_keys().count(), change })
    }

    /// The plan of an aggregation at this place.
    pub fn at(self, aggregation: usize, place: AggregationPlace) -> Self {
        Self { aggregation, place, ..self }
    }

    /// The plan with a filter.
    pub fn filtered(self, filter: Option<&'static Filter>) -> Self {
        Self { filter, ..self }
    }

    /// Number of the aggregation.
    pub fn aggregation(&self) -> usize {
        self.aggregation
    }

    /// Counts an event.
    ///
    /// # Safety
    /// The area is one of the plan's layout, found in the slot. Image and tails are readable. The
    /// thread is one of this process's own (no vfork child).
    #[inline(always)]
    pub unsafe fn count(
        &self,
        slot: &CountSlot,
        area: &'static CountArea,
        tid: u32,
        event: (&[u8], &[Tail]),
    ) {
        // Unknown counts as false: no evaluator comes after this one.
        if self.filter.is_some_and(|filter| !filter.is_true(tid, event.0, event.1)) {
            return;
        }
        let key_slot = if self.key_count == 0 { 0 } else { area.slot_of(&self.place, &self.key(tid, event)) };
        let cell = self.place.cell(key_slot);
        // SAFETY: as the caller promises; the cell is one of the aggregation's.
        let is_counted = unsafe {
            match &self.change {
                Change::Count => slot.increment(area, cell),
                Change::Update(operation, source) => match source.integer(event) {
                    Some(value) => slot.update(area, cell, *operation, value.to_i64()),
                    // An element beyond the end of a sequence.
                    None => false,
                },
                Change::Histogram(source) => match source.integer(event) {
                    Some(value) => {
                        let bucket = if value.is_negative {
                            NEGATIVE_BUCKET as usize
                        } else {
                            BUCKETS.bucket(value.bits)
                        };
                        let bucket = cell + (bucket * layout::CELL) as u64;
                        slot.update(area, bucket, Operation::Add, value.to_i64())
                    }
                    None => false,
                },
            }
        };
        if !is_counted {
            area.lose(self.aggregation);
        }
    }

    #[inline(always)]
    fn key(&self, tid: u32, event: (&[u8], &[Tail])) -> Key {
        let room = layout::part_words(self.key_count) * 8;
        let mut key = KeyBuilder(Key::EMPTY, 0);
        for source in self.keys.iter().take(self.key_count) {
            key.add(source, tid, event, room);
        }
        debug_assert!(key.0.used <= KEY_WORDS);
        key.0
    }
}
