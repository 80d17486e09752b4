//! Plan of an aggregation for the events of one kind: where keys and value are in a record.

use std::{
    ptr,
    sync::atomic::{AtomicPtr, Ordering},
};

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

/// A key that is one unsigned integer of the fixed part.
#[derive(Clone, Copy, Debug)]
struct WordKey {
    /// Smallest size of an image that has eight bytes at the offset.
    min_size: usize,
    /// Bits of the key in these.
    mask: u64,
    offset: usize,
    /// Offset of the table, and the bits that the offset of a slot in it can have.
    keys: u64,
    slot_mask: usize,
}

impl WordKey {
    /// Returns the offset of the key's slot in its table, if it is where it is looked for first.
    ///
    /// # Safety
    /// `image` is readable for `size` bytes, rounded up to a multiple of 8. The area is one of the
    /// layout that the key is for.
    #[inline(always)]
    unsafe fn first_slot(&self, area: &CountArea, image: *const u8, size: usize) -> Option<usize> {
        if size < self.min_size {
            return None;
        }
        // SAFETY: eight bytes of the image, as was just checked.
        let bytes = unsafe { image.add(self.offset).cast::<u64>().read_unaligned() };
        let word = u64::from_le(bytes) & self.mask;
        // SAFETY: the table is where this layout has it.
        unsafe { area.first_slot(self.keys, self.slot_mask, KIND_NATURAL.into(), word) }
    }
}

/// The shortest way of an event to its cell, where one aggregation counts it.
#[derive(Debug)]
pub struct Quick {
    slot: &'static CountSlot,
    /// The slot's memory: always one of the same layout.
    area: AtomicPtr<CountArea>,
    key: Option<WordKey>,
    cells: u64,
    aggregation: usize,
}

impl Quick {
    /// Counts in this memory of the slot from now on.
    pub fn set_area(&self, area: &'static CountArea) {
        // Ordering: pairs with the acquire load in `count`.
        self.area.store(ptr::from_ref(area).cast_mut(), Ordering::Release);
    }

    /// Counts an event, if its key is where it is looked for first. False if it has to take the
    /// long way.
    ///
    /// # Safety
    /// `image` is readable for `size` bytes, rounded up to a multiple of 8. The calling thread is
    /// one of this process's own.
    #[inline(always)]
    pub unsafe fn count(&self, image: *const u8, size: usize) -> bool {
        // SAFETY: an area that lives for ever, set before the event could come here.
        // Ordering: pairs with the release store in `set_area`.
        let area: &'static CountArea = unsafe { &*self.area.load(Ordering::Acquire) };
        let mut cell = self.cells;
        if let Some(key) = &self.key {
            // SAFETY: as the caller promises; the area is one of this layout.
            let Some(slot) = (unsafe { key.first_slot(area, image, size) }) else { return false };
            cell += (slot / (KEY_SLOT / layout::CELL)) as u64;
        }
        // SAFETY: the cell is one of the aggregation's, which has one for each key.
        unsafe { self.slot.increment(area, cell, self.aggregation) };
        true
    }
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
    word_key: Option<WordKey>,
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
        let key_count = rule.event_keys().count();
        let (filter, word_key) = (None, None);
        Some(Self { aggregation: 0, place, filter, keys, key_count, word_key, change })
    }

    /// The plan of an aggregation at this place.
    pub fn at(self, aggregation: usize, place: AggregationPlace) -> Self {
        let placed = Self { aggregation, place, ..self };
        Self { word_key: placed.find_word_key(), ..placed }
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
        let key_slot = match &self.word_key {
            _ if self.key_count == 0 => 0,
            // SAFETY: as the caller promises.
            Some(key) => match unsafe { key.first_slot(area, event.0.as_ptr(), event.0.len()) } {
                Some(slot) => (slot / KEY_SLOT) as u32,
                None => self.slot_by_key(area, tid, event),
            },
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

    /// The plan's shortest way, in a recording's slot, if it has one: that of a count without a
    /// key, or by one unsigned integer.
    pub fn quick(&self, slot: &'static CountSlot) -> Option<Quick> {
        if self.filter.is_some() || !matches!(self.change, Change::Count) {
            return None;
        }
        let key = self.word_key;
        if key.is_none() && self.key_count != 0 {
            return None;
        }
        let (area, cells) = (AtomicPtr::new(ptr::null_mut()), self.place.cells);
        Some(Quick { slot, area, key, cells, aggregation: self.aggregation })
    }

    /// The key, if it is one unsigned integer of the fixed part.
    fn find_word_key(&self) -> Option<WordKey> {
        let (1, &Source::Fixed(offset, scalar)) = (self.key_count, &self.keys[0]) else { return None };
        let is_plain = scalar.encoding == Encoding::Unsigned && !scalar.network;
        is_plain.then(|| WordKey {
            // The image is readable up to the next multiple of 8.
            min_size: offset.div_ceil(8) * 8 + 1,
            mask: u64::MAX >> (64 - 8 * u32::from(scalar.size)),
            offset,
            keys: self.place.keys,
            slot_mask: (self.place.size.slots as usize - 1) * KEY_SLOT,
        })
    }

    #[inline(never)]
    fn slot_by_key(&self, area: &CountArea, tid: u32, event: (&[u8], &[Tail])) -> u32 {
        area.slot_of(&self.place, &self.key(tid, event))
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

/// Counts an event with its value in the cell of its key. False if it could not be counted.
///
/// # Safety
/// As [`Plan::count`]; the cell is one of the aggregation's.
#[inline(never)]
unsafe fn update(
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
