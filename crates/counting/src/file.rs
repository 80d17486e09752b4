//! Count files: made for a process, and read.
//!
//! A process may write anything into its file. What can't be is refused and counted; sizes come
//! from the recording's rules, never from the file.

use std::{
    collections::BTreeMap,
    io,
    ops::Range,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::atomic::Ordering,
};

use tompion_counts::{Key, Rule};
#[cfg(test)]
use tompion_layout::counts::CLAIMED;
use tompion_layout::{
    PAGE,
    counts::{
        self as layout, AggregationPlace, CELL, CountGeometry, EMPTY, KEY_SLOT, KEY_WORDS, KIND_ABSENT,
        KIND_CUT, KIND_END, KIND_EVENT, KIND_NATURAL, KIND_NEGATIVE, KIND_TEXT, READY, SHAPE, STATE, WORDS,
    },
};
use tompion_os::SharedMap;

use crate::{
    document::KeyValue,
    sums::{AggregationSums, Room, Sum},
};

/// Count file of one process.
#[derive(Debug)]
pub struct CountFile {
    file: OwnedFd,
    map: SharedMap,
}

/// Values of a key as a process has them: those that are equal in all of its events are missing.
type EventKeys = Vec<UntrustedKey>;

/// Part of a key in a count file.
#[derive(Clone, Debug, PartialEq, Eq)]
enum UntrustedKey {
    Value(KeyValue),
    /// Number of an event.
    Event(u32),
}

/// Completion of a process's keys.
pub(crate) struct Completion<'a> {
    /// Names of events by number.
    pub events: &'a BTreeMap<u32, String>,
    /// Value of a key that all events of the process have.
    pub of_process: &'a dyn Fn(&Key) -> KeyValue,
}

impl Completion<'_> {
    /// The whole key of a rule. None if the process has made another number of parts.
    fn complete(&self, rule: &Rule, parts: EventKeys) -> Option<Vec<KeyValue>> {
        let mut parts = parts.into_iter();
        let key = |key: &Key| match key.is_of_process() {
            true => Some((self.of_process)(key)),
            false => Some(match parts.next()? {
                UntrustedKey::Value(value) => value,
                UntrustedKey::Event(number) => {
                    let name = self.events.get(&number).cloned();
                    KeyValue::Text(name.unwrap_or_else(|| format!("(event {number})")))
                }
            }),
        };
        let keys: Option<Vec<_>> = rule.keys.iter().map(key).collect();
        keys.filter(|_| parts.next().is_none())
    }
}

impl CountFile {
    /// Makes the file of a process.
    ///
    /// # Errors
    /// The system has no memory for it.
    pub fn create(rules: &[Rule], geometry: &CountGeometry) -> io::Result<Self> {
        let size = geometry.file_size();
        let file = tompion_os::create_memfd(c"tompion-counts", size)?;
        let map = SharedMap::new(file.as_fd(), size)?;
        // Ordering: the file is passed on afterwards, by a system call.
        let half = |offset, value| map.half(offset).store(value, Ordering::Relaxed);
        map.word(layout::OFFSET_MAGIC).store(layout::MAGIC, Ordering::Relaxed);
        half(layout::OFFSET_VERSION, layout::VERSION);
        half(layout::OFFSET_AGGREGATIONS, rules.len() as u32);
        half(layout::OFFSET_CPUS, geometry.cpus());
        for (aggregation, (rule, place)) in rules.iter().zip(geometry.aggregations()).enumerate() {
            let text = rule.to_text();
            let [slots, cells, len] = layout::table_entry(aggregation);
            half(slots, place.size.slots);
            half(cells, place.size.cells);
            let bytes = text.as_bytes();
            let bytes = bytes.get(..bytes.len().min(layout::TEXT_SIZE)).unwrap_or(bytes);
            half(len, bytes.len() as u32);
            map.copy_in(layout::text(aggregation), bytes);
        }
        Ok(Self { file, map })
    }

    /// The file of a process that another recorder has made.
    ///
    /// # Errors
    /// It can't be mapped, or is not as large as these rules' files are.
    pub fn received(file: OwnedFd, geometry: &CountGeometry) -> io::Result<Self> {
        let map = SharedMap::new(file.as_fd(), geometry.file_size())?;
        Ok(Self { file, map })
    }

    /// The descriptor, to be passed on.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Stores a word, as a program would.
    #[cfg(test)]
    pub(crate) fn store(&self, offset: u64, value: u64) {
        self.map.word(offset as usize).store(value, Ordering::Relaxed);
    }

    fn word(&self, offset: u64) -> u64 {
        // Ordering: pairs with the release store of a key's state; a key that is seen is whole.
        self.map.word(offset as usize).load(Ordering::Acquire)
    }

    /// Reads all that was counted, into sums of each aggregation.
    pub(crate) fn read(
        &self,
        rules: &[Rule],
        geometry: &CountGeometry,
        completion: &Completion<'_>,
    ) -> Vec<AggregationSums> {
        let accepted = self.word(layout::OFFSET_ACCEPTED as u64);
        let unfit = self.word(layout::OFFSET_UNFIT as u64);
        let aggregations = rules.iter().zip(geometry.aggregations()).enumerate();
        let mut room = Room::of_process();
        let sums = aggregations.map(|(aggregation, (rule, place))| {
            let mut sums = AggregationSums::default();
            for (slot, sum) in self.read_cells(rule, place, geometry) {
                if slot >= place.size.slots {
                    sums.add_other(rule, &sum);
                    continue;
                }
                match self.key_of_slot(rule, place, slot, completion) {
                    Some(key) => sums.add(rule, key, &sum, &mut room),
                    // Events can't have been counted without their key.
                    None => {
                        sums.refused += 1;
                        sums.add_other(rule, &sum);
                    }
                }
            }
            sums.lost = self.word((layout::OFFSET_LOST + 8 * aggregation) as u64);
            sums.not_counting = u64::from(accepted >> aggregation & 1 == 0);
            sums.unfit = unfit >> aggregation & 1;
            sums
        });
        sums.collect()
    }

    /// The whole key of a slot. None if it can't be.
    fn key_of_slot(
        &self,
        rule: &Rule,
        place: &AggregationPlace,
        slot: u32,
        completion: &Completion<'_>,
    ) -> Option<Vec<KeyValue>> {
        let has_keys = rule.event_keys().next().is_some();
        let parts = if has_keys { self.read_key(place.key(slot))? } else { Vec::new() };
        completion.complete(rule, parts)
    }

    /// Reads the cells of all slots that were counted in. Pages that nothing was counted in are not
    /// looked at: that would make them present.
    fn read_cells(
        &self,
        rule: &Rule,
        place: &AggregationPlace,
        geometry: &CountGeometry,
    ) -> BTreeMap<u32, Sum> {
        let mut by_slot = BTreeMap::<u32, Sum>::new();
        let cells = u64::from(place.size.cells);
        let len = (u64::from(place.size.slots) + 1) * cells * CELL as u64;
        for area in 0..u64::from(geometry.area_count()) {
            let begin = geometry.areas() + area * geometry.area_stride() + place.cells;
            for part in self.pages(begin..begin + len) {
                for offset in part.step_by(CELL) {
                    let cell = [self.word(offset), self.word(offset + 8)];
                    let index = (offset - begin) / CELL as u64;
                    if cell[0] != 0 {
                        let sum = by_slot.entry((index / cells) as u32).or_default();
                        sum.add_cell(&rule.function, (index % cells) as u32, cell);
                    }
                }
            }
        }
        by_slot
    }

    /// Parts of a range that have pages.
    fn pages(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        debug_assert!(range.start % PAGE == 0 || range.start % CELL as u64 == 0);
        tompion_os::data_ranges(self.file.as_fd(), range)
    }

    /// Reads the key of a slot that was counted in. None if it can't be.
    fn read_key(&self, at: u64) -> Option<EventKeys> {
        let state = self.word(at + STATE as u64);
        if state == EMPTY || state as u32 != READY as u32 {
            return None;
        }
        let shape = self.word(at + SHAPE as u64);
        let mut words = [0u64; KEY_WORDS];
        for (index, word) in words.iter_mut().enumerate() {
            *word = self.word(at + (WORDS + index * 8) as u64);
        }
        const { assert!(WORDS + KEY_WORDS * 8 == KEY_SLOT) };
        decode_key(shape, &words)
    }
}

/// Decodes the parts of a key. None if they can't be.
fn decode_key(shape: u64, words: &[u64]) -> Option<EventKeys> {
    let mut parts = Vec::new();
    let mut words = words.iter();
    for pair in shape.to_le_bytes().chunks_exact(2).take(layout::MAX_PARTS) {
        let &[kind, len] = pair else { return None };
        let len = usize::from(len);
        let value = match kind {
            KIND_END => break,
            KIND_ABSENT => KeyValue::Absent,
            KIND_NATURAL => KeyValue::Natural(*words.next()?),
            KIND_NEGATIVE => KeyValue::Negative(Some(*words.next()? as i64).filter(|value| *value < 0)?),
            KIND_EVENT => {
                parts.push(UntrustedKey::Event(u32::try_from(*words.next()?).ok()?));
                continue;
            }
            KIND_TEXT | KIND_CUT => {
                let mut bytes = Vec::new();
                for _ in 0..len.div_ceil(8) {
                    bytes.extend(words.next()?.to_le_bytes());
                }
                bytes.truncate(len);
                let text = String::from_utf8_lossy(&bytes);
                let end = if kind == KIND_CUT { "…" } else { "" };
                KeyValue::Text(
                    text.trim_end_matches(|c| kind == KIND_CUT && c == '\u{fffd}').to_owned() + end,
                )
            }
            _ => return None,
        };
        parts.push(UntrustedKey::Value(value));
    }
    Some(parts)
}

#[cfg(test)]
impl CountFile {
    /// Puts a key with an integer into a slot of the first aggregation, and counts an event in each
    /// of these cells.
    fn put(&self, geometry: &CountGeometry, slot: u32, key: u64, cells: Range<u64>) {
        let place = &geometry.aggregations()[0];
        let at = place.key(slot);
        self.store(at + SHAPE as u64, u64::from(KIND_NATURAL));
        self.store(at + WORDS as u64, key);
        self.store(at + STATE as u64, READY);
        self.count(geometry, slot, cells);
    }

    /// Counts an event in each of these cells of a slot of the first aggregation.
    fn count(&self, geometry: &CountGeometry, slot: u32, cells: Range<u64>) {
        let place = &geometry.aggregations()[0];
        let size = u64::from(place.size.cells) * CELL as u64;
        let begin = geometry.areas() + place.cells + u64::from(slot) * size;
        cells.for_each(|cell| self.store(begin + cell * CELL as u64, 1));
    }
}

#[cfg(test)]
mod tests {
    use tompion_testing::Random;

    use super::*;
    use crate::document::{Aggregation, Document};

    fn file(rule: &str) -> (CountFile, Vec<Rule>, CountGeometry) {
        let rules: Vec<Rule> = vec![rule.parse().expect("a rule")];
        let geometry = CountGeometry::new(&[rules[0].size()], 2).expect("room");
        (CountFile::create(&rules, &geometry).expect("memory"), rules, geometry)
    }

    fn read(file: &CountFile, rules: &[Rule], geometry: &CountGeometry) -> AggregationSums {
        let (events, of_process) = (BTreeMap::new(), |_: &Key| KeyValue::Absent);
        let mut sums = file.read(rules, geometry, &Completion { events: &events, of_process: &of_process });
        sums.pop().expect("a rule")
    }

    /// Counts by key, that of all other keys, and how much was refused.
    fn found(sums: &AggregationSums) -> (Vec<(Vec<KeyValue>, u64)>, u64, u64) {
        let (entries, other) = sums.to_entries();
        let entries = entries.into_iter().map(|entry| (entry.key, entry.count)).collect();
        (entries, other.map_or(0, |other| other.count), sums.refused)
    }

    #[test]
    fn keys_that_never_became_ready_count_for_all_others() {
        let (file, rules, geometry) = file("count by n");
        file.put(&geometry, 0, 5, 0..1);
        for (slot, state) in [(1, CLAIMED), (2, EMPTY), (3, 9), (4, u64::MAX)] {
            file.put(&geometry, slot, 5, 0..1);
            file.store(geometry.aggregations()[0].key(slot) + STATE as u64, state);
        }
        assert_eq!(found(&read(&file, &rules, &geometry)), (vec![(vec![KeyValue::Natural(5)], 1)], 4, 4));
    }

    #[test]
    fn parts_that_claim_what_can_not_be_are_refused() {
        let (file, rules, geometry) = file("count by n");
        let shape = |parts: &[(u8, u8)]| {
            parts
                .iter()
                .rev()
                .fold(0, |shape, (kind, len)| shape << 16 | u64::from(*len) << 8 | u64::from(*kind))
        };
        let impossible = [
            shape(&[(KIND_TEXT, 255)]),
            shape(&[(KIND_CUT, 49)]),
            shape(&[(99, 0)]),
            shape(&[(KIND_NEGATIVE, 0)]),
            shape(&[(KIND_NATURAL, 0), (KIND_NATURAL, 0)]),
            shape(&[]),
            u64::MAX,
        ];
        for (slot, shape) in impossible.iter().enumerate() {
            file.put(&geometry, slot as u32, 5, 0..1);
            file.store(geometry.aggregations()[0].key(slot as u32) + SHAPE as u64, *shape);
        }
        let all = impossible.len() as u64;
        assert_eq!(found(&read(&file, &rules, &geometry)), (Vec::new(), all, all));
    }

    #[test]
    fn sizes_in_the_file_are_not_believed() {
        let (file, rules, geometry) = file("count by n");
        file.put(&geometry, 0, 5, 0..1);
        for offset in (0..PAGE).step_by(8).filter(|offset| *offset != layout::OFFSET_ACCEPTED as u64) {
            file.store(offset, u64::MAX);
        }
        let sums = read(&file, &rules, &geometry);
        assert_eq!(found(&sums).0, [(vec![KeyValue::Natural(5)], 1)]);
        assert_eq!(sums.lost, u64::MAX, "its own word, which is added without overflow");
        // Events without a key, behind the last slot.
        file.count(&geometry, geometry.aggregations()[0].size.slots, 0..1);
        assert_eq!(found(&read(&file, &rules, &geometry)).1, 1);
    }

    #[test]
    fn whatever_the_memory_has_is_read_without_harm() {
        for (seed, rule) in ["count by n, m", "sum of x by n", "histogram of x by n"].into_iter().enumerate()
        {
            let (file, rules, geometry) = file(rule);
            let place = &geometry.aggregations()[0];
            let mut random = Random(seed as u64 + 1);
            for round in 0..3000 {
                let slot = random.index(place.size.slots as usize) as u32;
                let cell = random.index(place.size.cells as usize) as u64;
                file.put(&geometry, slot, random.number(), cell..cell + 1);
                let word = [place.key(slot) + random.index(8) as u64 * 8, random.index(64) as u64 * 8];
                let values = [0, 1, 2, u64::MAX, i64::MIN as u64, random.number()];
                file.store(word[random.index(2)], values[random.index(values.len())]);
                let area = random.index(geometry.area_count() as usize) as u64 * geometry.area_stride();
                let offset = random.index((geometry.area_stride() / 8) as usize) as u64 * 8;
                file.store(geometry.areas() + area + offset, values[random.index(values.len())]);
                if round % 500 == 0 {
                    let sums = read(&file, &rules, &geometry);
                    let (entries, other) = sums.to_entries();
                    let aggregation = Aggregation { entries, other, ..Aggregation::default() };
                    let document = Document { aggregations: vec![aggregation], ..Document::default() };
                    assert!(document.to_json().len() < 8 << 20);
                }
            }
        }
    }
}
