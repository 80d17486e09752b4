//! Plan of an aggregation for the events of one kind: where keys and value are in a record.

use tompion_counts::{Function, Key as RuleKey, Rule};
use tompion_filter::{
    Encoding, EventSchema, Name, Operand, Place, RecordValues, Scalar, Schema, Tails, Values,
};
use tompion_histogram::LogLinear;
use tompion_layout::counts::{
    self as layout, AggregationPlace, AggregationSize, KEY_SLOT, KEY_WORDS, KIND_ABSENT, KIND_CUT,
    KIND_EVENT, KIND_NATURAL, KIND_NEGATIVE, KIND_TEXT, MAX_PARTS, NEGATIVE_BUCKET,
};
use tompion_ring::{
    counts::{CountArea, CountSlot, Key, Operation},
    producer::Tail,
};
use tompion_schema::Event;

use super::{
    quick::{Fields, QuickKey},
    text::TextWords,
};
use crate::filters::{Filter, TailBytes};

const BUCKETS: LogLinear = LogLinear::new(layout::EXACT_BITS, layout::STEP_BITS);

/// Origin of a key or a value.
#[derive(Clone, Debug)]
pub enum Source {
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
pub enum Change {
    /// One more event.
    Count,
    /// The same with a value.
    Update(Operation, Source),
    /// One more event in the bucket of its value.
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
    quick_key: Option<QuickKey>,
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
    fn add(&mut self, source: &Source, tid: u32, event: (&[u8], &[Tail]), words: usize) {
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
            Source::Text(tail) => self.text(*tail, event.1, words),
            Source::Absent => self.shape(KIND_ABSENT, 0),
        }
    }

    #[inline(never)]
    fn text(&mut self, tail: usize, tails: &[Tail], words: usize) {
        let tails = TailBytes(tails);
        match tails.tail(tail) {
            None => self.shape(KIND_ABSENT, 0),
            Some(text) if words == layout::part_words(1) => self.add_text(&TextWords::<KEY_WORDS>::of(text)),
            Some(text) => self.add_text(&TextWords::<{ layout::part_words(MAX_PARTS) }>::of(text)),
        }
    }

    #[inline(always)]
    fn add_text<const WORDS: usize>(&mut self, text: &TextWords<WORDS>) {
        text.used().iter().for_each(|word| self.word(*word));
        self.shape(if text.is_cut { KIND_CUT } else { KIND_TEXT }, text.len);
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
        let key_count = rule.event_keys().count();
        let (filter, quick_key) = (None, None);
        Some(Self { aggregation: 0, place, filter, keys, key_count, quick_key, change })
    }

    /// The plan of an aggregation at this place.
    pub fn at(self, aggregation: usize, place: AggregationPlace) -> Self {
        let placed = Self { aggregation, place, ..self };
        let keys = placed.keys.get(..placed.key_count).unwrap_or(&placed.keys);
        Self { quick_key: QuickKey::of(keys, &place), ..placed }
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
        let (image, size, tails) = (event.0.as_ptr(), event.0.len(), event.1);
        // SAFETY: as the caller promises.
        let first = |key: &QuickKey| unsafe { key.first_slot(area, Fields { image, size, tails }) };
        let key_slot = match self.quick_key.as_ref().and_then(first) {
            Some(slot) => (slot / KEY_SLOT) as u32,
            None => self.slot_by_key(area, tid, event),
        };
        let cell = self.place.cell(key_slot);
        // SAFETY: as the caller promises; the cell is one of the aggregation's.
        unsafe {
            match &self.change {
                Change::Count => slot.increment(area, cell, self.aggregation),
                change if update(change, (slot, area), cell, event) => {}
                _ => area.lose(self.aggregation),
            }
        }
    }

    /// The key, if it is of a kind that the shortest way knows.
    pub fn quick_key(&self) -> Option<&QuickKey> {
        self.quick_key.as_ref()
    }

    /// Filter of the aggregation.
    #[inline(always)]
    pub fn filter(&self) -> Option<&'static Filter> {
        self.filter
    }

    /// Change of the cell.
    #[inline(always)]
    pub fn change(&self) -> &Change {
        &self.change
    }

    /// Place of the aggregation's table and cells.
    #[inline(always)]
    pub fn place(&self) -> &AggregationPlace {
        &self.place
    }

    #[inline(never)]
    fn slot_by_key(&self, area: &CountArea, tid: u32, event: (&[u8], &[Tail])) -> u32 {
        area.slot_of(&self.place, &self.key(tid, event))
    }

    #[inline(always)]
    fn key(&self, tid: u32, event: (&[u8], &[Tail])) -> Key {
        let words = layout::part_words(self.key_count);
        let mut key = KeyBuilder(Key::EMPTY, 0);
        for source in self.keys.iter().take(self.key_count) {
            key.add(source, tid, event, words);
        }
        debug_assert!(key.0.used <= KEY_WORDS);
        key.0
    }
}

/// Counts an event with its value in the cell of its key. False if it could not be counted.
///
/// # Safety
/// As [`Plan::count`]; the cell is one of the aggregation's.
#[inline(never)]
pub unsafe fn update(
    change: &Change,
    (slot, area): (&CountSlot, &'static CountArea),
    cell: u64,
    event: (&[u8], &[Tail]),
) -> bool {
    let (Change::Update(_, source) | Change::Histogram(source)) = change else { return false };
    // None: an element beyond the end of a sequence.
    let Some(value) = source.integer(event) else { return false };
    let (cell, operation) = match change {
        Change::Update(operation, _) => (cell, *operation),
        _ => {
            let bucket =
                if value.is_negative { NEGATIVE_BUCKET as usize } else { BUCKETS.bucket(value.bits) };
            (cell + (bucket * layout::CELL) as u64, Operation::Add)
        }
    };
    // SAFETY: as the caller promises; buckets are cells of the slot.
    unsafe { slot.update(area, cell, operation, value.to_i64()) }
}
