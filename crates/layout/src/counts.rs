//! Count file: values of events that are counted in place, see `docs/design/counts.md`.
//!
//! A third memory file of a process, beside control and rings, in recordings that count. It is
//! sparse: what was not counted has no pages.
//!
//! ```text
//! header page
//!    0 magic u64   8 version u32  12 aggregations u32  16 cpus u32   session → agent
//!   64 accepted u64: a bit for each aggregation that is counted      agent → session
//!   72 unfit u64: a bit for each aggregation with an event that      agent → session
//!      lacks an integer value
//!  128 lost[16] u64: events that an aggregation could not count      agent → session
//!  512 aggregations[16]: slots u32, cells u32, text length u32, 0    session → agent
//! texts    [16] of 8 KiB: rules                                      session → agent
//! keys     of each aggregation: slots of 64 bytes                    agent → session
//! areas    of each CPU, and one for all: cells of 16 bytes           agent → session
//!
//! key      0 state u64: EMPTY, or a hash in its upper half with CLAIMED → READY
//!          8 shape u64: a byte for the kind and one for the length of each part
//!         16 words[6] u64
//! cell     0 count u64   8 value i64
//! ```
//!
//! An area has `(slots + 1) * cells` cells for each aggregation: the last slot is for keys that the
//! table has no room for.

use crate::PAGE;

/// First word of a count file: `TOMPCNT1`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"TOMPCNT1");
/// Version of the layout, and of the rules in it.
pub const VERSION: u32 = 1;

/// Offset of the magic word.
pub const OFFSET_MAGIC: usize = 0;
/// Offset of the version.
pub const OFFSET_VERSION: usize = 8;
/// Offset of the number of aggregations.
pub const OFFSET_AGGREGATIONS: usize = 12;
/// Offset of the number of CPUs.
pub const OFFSET_CPUS: usize = 16;
/// Offset of the aggregations that the process counts, a bit each.
pub const OFFSET_ACCEPTED: usize = 64;
/// Offset of the aggregations that met an event without an integer value, a bit each.
pub const OFFSET_UNFIT: usize = 72;
/// Offset of the number of events that each aggregation could not count.
pub const OFFSET_LOST: usize = 128;
/// Offset of the aggregations' sizes.
const OFFSET_TABLE: usize = 512;
/// Size of an entry there.
const TABLE_ENTRY: usize = 16;

/// Maximum number of aggregations.
pub const MAX_AGGREGATIONS: usize = 16;
/// Offset of the rules.
pub const TEXTS: usize = PAGE as usize;
/// Room for the rule of an aggregation in bytes.
pub const TEXT_SIZE: usize = 2 * PAGE as usize;
/// Offset of the keys of the first aggregation.
const KEYS: u64 = TEXTS as u64 + (MAX_AGGREGATIONS * TEXT_SIZE) as u64;

/// Size of a key's slot in bytes.
pub const KEY_SLOT: usize = 64;
/// Offset of a slot's state.
pub const STATE: usize = 0;
/// Offset of the kinds and lengths of the parts.
pub const SHAPE: usize = 8;
/// Offset of the key's words.
pub const WORDS: usize = 16;
/// Number of words of a key.
pub const KEY_WORDS: usize = (KEY_SLOT - WORDS) / 8;
/// Maximum number of parts of a key.
pub const MAX_PARTS: usize = 2;
/// State of a slot without a key.
pub const EMPTY: u64 = 0;
/// State, in the lower half, of a slot that a thread is filling.
pub const CLAIMED: u64 = 1;
/// State, in the lower half, of a slot with a key.
pub const READY: u64 = 2;
/// Number of slots that are looked at for a key.
pub const MAX_PROBES: u32 = 32;

/// Kind behind the last part.
pub const KIND_END: u8 = 0;
/// Kind of a part: an integer from 0.
pub const KIND_NATURAL: u8 = 1;
/// Kind of a part: an integer below 0.
pub const KIND_NEGATIVE: u8 = 2;
/// Kind of a part: a text.
pub const KIND_TEXT: u8 = 3;
/// Kind of a part: the beginning of a longer text.
pub const KIND_CUT: u8 = 4;
/// Kind of a part: the number of an event in the catalog.
pub const KIND_EVENT: u8 = 5;
/// Kind of a part: the event has no such value.
pub const KIND_ABSENT: u8 = 6;

/// Size of a cell in bytes.
pub const CELL: usize = 16;
/// Exact values and steps of a histogram's buckets, as `tompion-histogram` has them.
pub const EXACT_BITS: u32 = 3;
/// Buckets of a histogram for each power of two, as an exponent.
pub const STEP_BITS: u32 = 2;
/// Bucket of values below 0.
pub const NEGATIVE_BUCKET: u32 = 255;
/// Cells of a histogram: a page.
pub const HISTOGRAM_CELLS: u32 = 256;
/// Maximum number of slots of an aggregation.
pub const MAX_SLOTS: u32 = 1 << 17;
/// Maximum size of an area in bytes.
pub const MAX_AREA: u64 = 64 << 20;
/// Largest number of CPUs that there can be.
const MAX_CPUS: u32 = 1 << 14;

/// Value of a cell that has overflowed upwards or downwards: it stays.
pub const OVERFLOWS: [i64; 2] = [i64::MIN, i64::MAX];

/// Number of words that a part of a key has.
pub const fn part_words(parts: usize) -> usize {
    if parts <= 1 { KEY_WORDS } else { KEY_WORDS / MAX_PARTS }
}

/// Sizes of an aggregation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AggregationSize {
    /// Slots for keys: a power of two; 1 without keys.
    pub slots: u32,
    /// Cells of each key.
    pub cells: u32,
}

impl AggregationSize {
    const fn is_sound(self) -> bool {
        self.slots.is_power_of_two() && self.slots <= MAX_SLOTS && matches!(self.cells, 1 | HISTOGRAM_CELLS)
    }

    /// Bytes of the aggregation's cells in an area.
    const fn cell_bytes(self) -> u64 {
        (self.slots as u64 + 1) * self.cells as u64 * CELL as u64
    }
}

/// Place of an aggregation in a count file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AggregationPlace {
    /// Its sizes.
    pub size: AggregationSize,
    /// Offset of its keys in the file.
    pub keys: u64,
    /// Offset of its cells in an area.
    pub cells: u64,
}

impl AggregationPlace {
    /// Offset of a slot's first cell in an area; slot `slots` is for keys without room.
    pub const fn cell(&self, slot: u32) -> u64 {
        self.cells + slot as u64 * self.size.cells as u64 * CELL as u64
    }

    /// Offset of a slot's key in the file.
    pub const fn key(&self, slot: u32) -> u64 {
        self.keys + slot as u64 * KEY_SLOT as u64
    }
}

/// Places of everything in a count file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountGeometry {
    aggregations: Vec<AggregationPlace>,
    cpus: u32,
    areas: u64,
    area_stride: u64,
}

impl CountGeometry {
    /// Lays aggregations out. None if there are too many, or a size can't be.
    pub fn new(sizes: &[AggregationSize], cpus: u32) -> Option<Self> {
        let is_sound = sizes.iter().all(|size| size.is_sound());
        if sizes.is_empty() || sizes.len() > MAX_AGGREGATIONS || !is_sound || !(1..=MAX_CPUS).contains(&cpus)
        {
            return None;
        }
        let (mut keys, mut cells) = (KEYS, 0u64);
        let mut aggregations = Vec::new();
        for &size in sizes {
            aggregations.push(AggregationPlace { size, keys, cells });
            keys += u64::from(size.slots) * KEY_SLOT as u64;
            // So that a histogram's buckets of one key share a page with no other.
            cells = (cells + size.cell_bytes()).next_multiple_of(PAGE);
        }
        let areas = keys.next_multiple_of(PAGE);
        (cells <= MAX_AREA).then_some(Self { aggregations, cpus, areas, area_stride: cells })
    }

    /// The aggregations.
    pub fn aggregations(&self) -> &[AggregationPlace] {
        &self.aggregations
    }

    /// Number of CPUs.
    pub fn cpus(&self) -> u32 {
        self.cpus
    }

    /// Offset of the first CPU's area.
    pub fn areas(&self) -> u64 {
        self.areas
    }

    /// Distance of areas.
    pub fn area_stride(&self) -> u64 {
        self.area_stride
    }

    /// Number of areas: one of each CPU, and behind them the one for threads without restartable
    /// sections.
    pub fn area_count(&self) -> u32 {
        self.cpus + 1
    }

    /// Size of the file.
    pub fn file_size(&self) -> u64 {
        self.areas + self.area_stride * u64::from(self.area_count())
    }
}

/// Offset of the words of an aggregation in the header: slots, cells, length of its rule.
pub const fn table_entry(aggregation: usize) -> [usize; 3] {
    let entry = OFFSET_TABLE + aggregation * TABLE_ENTRY;
    [entry, entry + 4, entry + 8]
}

/// Offset of an aggregation's rule.
pub const fn text(aggregation: usize) -> usize {
    TEXTS + aggregation * TEXT_SIZE
}

const _: () = assert!(OFFSET_LOST + 8 * MAX_AGGREGATIONS <= OFFSET_TABLE);
const _: () = assert!(OFFSET_TABLE + TABLE_ENTRY * MAX_AGGREGATIONS <= PAGE as usize);
const _: () = assert!(HISTOGRAM_CELLS as usize * CELL == PAGE as usize);
const _: () = assert!((1 << EXACT_BITS) + ((64 - EXACT_BITS) << STEP_BITS) <= NEGATIVE_BUCKET);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_file_do_not_overlap() {
        let plain = AggregationSize { slots: 2048, cells: 1 };
        let histogram = AggregationSize { slots: 1, cells: HISTOGRAM_CELLS };
        let geometry = CountGeometry::new(&[plain, histogram, plain], 3).expect("a layout");
        let [first, second, third] = geometry.aggregations() else { panic!("three aggregations") };
        assert_eq!(first.keys, KEYS);
        assert_eq!(second.keys, KEYS + 2048 * 64);
        assert_eq!(third.keys, second.keys + 64);
        assert!(geometry.areas() >= third.key(2048) && geometry.areas() % PAGE == 0);
        assert_eq!((first.cells, second.cells), (0, 9 * PAGE));
        assert_eq!(second.cell(1), second.cells + PAGE);
        assert_eq!(third.cells, second.cells + 2 * PAGE);
        assert!(geometry.area_stride() >= third.cell(2049));
        assert_eq!(geometry.file_size(), geometry.areas() + 4 * geometry.area_stride());
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        let size = |slots, cells| AggregationSize { slots, cells };
        let fits = |sizes: &[AggregationSize], cpus| CountGeometry::new(sizes, cpus).is_some();
        assert!(fits(&[size(1, 1)], 1) && fits(&[size(MAX_SLOTS, 1)], 1024));
        for wrong in [size(0, 1), size(3, 1), size(MAX_SLOTS * 2, 1), size(1, 2), size(1, 0)] {
            assert!(!fits(&[wrong], 1), "{wrong:?}");
        }
        assert!(!fits(&[], 1) && !fits(&[size(1, 1); MAX_AGGREGATIONS + 1], 1));
        assert!(!fits(&[size(1, 1)], 0) && !fits(&[size(1, 1)], MAX_CPUS + 1));
        assert!(!fits(&[size(1 << 14, HISTOGRAM_CELLS)], 1), "an area of more than 64 MiB");
    }
}
