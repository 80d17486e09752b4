//! Counts by key, as they are added up: over CPUs, processes, and equal keys.

use std::collections::BTreeMap;

use tompion_counts::{Function, Rule};
use tompion_histogram::LogLinear;
use tompion_layout::counts::{EXACT_BITS, NEGATIVE_BUCKET, OVERFLOWS, STEP_BITS};

use crate::{
    document::{Bucket, Entry, KeyValue},
    saved::SavedSum,
};

/// Buckets of histograms.
pub(crate) const BUCKETS: LogLinear = LogLinear::new(EXACT_BITS, STEP_BITS);
/// Maximum number of keys of an aggregation. Each process may bring others.
const MAX_ENTRIES: usize = 1 << 16;
/// Room for all keys and buckets of a recording: less than any reader of the document accepts.
const RECORDING_BYTES: u64 = 40 << 20;
/// The same of one process, so that none takes all.
const PROCESS_BYTES: u64 = 5 << 20;
/// Most bytes of an entry, of a part of its key, and of a bucket in a document.
const ENTRY_BYTES: u64 = 256;
const PART_BYTES: u64 = 48;
const BUCKET_BYTES: u64 = 192;

/// Room that is left for keys and buckets: as many bytes as a document has of them, at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room(u64);

impl Room {
    /// Room for one process's counts.
    pub const fn of_process() -> Self {
        Self(PROCESS_BYTES)
    }

    /// Room for all counts of a recording.
    pub const fn of_recording() -> Self {
        Self(RECORDING_BYTES)
    }

    /// Takes some of it. False if so much is not left.
    fn take(&mut self, bytes: u64) -> bool {
        let left = self.0.checked_sub(bytes);
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }
}

/// Bytes of a key in a document, at most.
fn key_bytes(key: &[KeyValue]) -> u64 {
    let text_bytes = |text: &str| {
        // JSON has six bytes for a control character.
        text.bytes().fold(0, |sum, byte| sum + if byte.is_ascii_control() { 6 } else { 2 })
    };
    key.iter().fold(0, |sum, value| {
        sum + PART_BYTES + if let KeyValue::Text(text) = value { text_bytes(text) } else { 0 }
    })
}

/// Sum of the events that have equal keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    pub count: u64,
    /// Sum, smallest or largest value; none without one.
    value: Option<i128>,
    /// Whether the value is at the end of its range, where all stand that do not fit.
    overflowed: bool,
    /// Count of each bucket.
    buckets: BTreeMap<u32, u64>,
}

/// Sums of an aggregation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AggregationSums {
    pub entries: BTreeMap<Vec<KeyValue>, Sum>,
    pub other: Sum,
    pub lost: u64,
    pub refused: u64,
    pub not_counting: u64,
    pub unfit: u64,
}

impl From<SavedSum> for Sum {
    fn from(SavedSum { count, value, overflowed, buckets }: SavedSum) -> Self {
        Self { count, value, overflowed, buckets: buckets.into_iter().collect() }
    }
}

impl Sum {
    /// The sum as it is saved.
    pub fn to_saved(&self) -> SavedSum {
        let Self { count, value, overflowed, buckets } = self;
        let buckets = buckets.iter().map(|(bucket, count)| (*bucket, *count)).collect();
        SavedSum { count: *count, value: *value, overflowed: *overflowed, buckets }
    }

    /// Adds a cell: a number of events and their value. `bucket` is the cell's in a histogram.
    pub fn add_cell(&mut self, function: &Function, bucket: u32, [count, value]: [u64; 2]) {
        let value = value as i64;
        self.count = self.count.saturating_add(count);
        match function {
            Function::Count => {}
            Function::Min(_) | Function::Max(_) => {
                self.join(function, Some(value.into()));
                // A smaller value is known beside one that does not fit.
                self.overflowed = self.value == Some(i64::MAX.into());
            }
            Function::Sum(_) | Function::Histogram(_) => {
                self.overflowed |= OVERFLOWS.contains(&value);
                self.join(function, Some(value.into()));
            }
        }
        if matches!(function, Function::Histogram(_)) {
            let total = self.buckets.entry(bucket).or_default();
            *total = total.saturating_add(count);
        }
    }

    fn join(&mut self, function: &Function, other: Option<i128>) {
        let Some(other) = other else { return };
        let value = self.value.unwrap_or(other);
        self.value = Some(match (function, self.value) {
            (Function::Min(_), _) => value.min(other),
            (Function::Max(_), _) => value.max(other),
            (_, None) => other,
            (_, Some(value)) => value.saturating_add(other),
        });
    }

    fn add(&mut self, function: &Function, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.join(function, other.value);
        self.overflowed = match function {
            Function::Min(_) | Function::Max(_) => self.value == Some(i64::MAX.into()),
            _ => self.overflowed || other.overflowed,
        };
        for (bucket, count) in &other.buckets {
            let total = self.buckets.entry(*bucket).or_default();
            *total = total.saturating_add(*count);
        }
    }

    fn to_entry(&self, key: Vec<KeyValue>) -> Entry {
        let known = self.value.filter(|_| !self.overflowed);
        let bucket = |(&bucket, &count): (&u32, &u64)| {
            let range = (bucket != NEGATIVE_BUCKET).then_some(bucket as usize);
            let (first, last) = (range.map(|it| BUCKETS.first(it)), range.map(|it| BUCKETS.last(it)));
            Bucket { first, last, count }
        };
        let (negative, others): (Vec<_>, Vec<_>) =
            self.buckets.iter().partition(|(bucket, _)| **bucket == NEGATIVE_BUCKET);
        let buckets = negative.into_iter().chain(others).map(bucket).collect();
        Entry { key, count: self.count, value: known.and_then(|value| i64::try_from(value).ok()), buckets }
    }
}

impl AggregationSums {
    /// Adds what was counted for a key. What has no room is added to what all other keys have.
    pub fn add(&mut self, rule: &Rule, key: Vec<KeyValue>, sum: &Sum, room: &mut Room) {
        if sum.count == 0 {
            return;
        }
        let has_room = match self.entries.get(&key) {
            Some(before) => {
                let new = sum.buckets.keys().filter(|bucket| !before.buckets.contains_key(bucket)).count();
                room.take(new as u64 * BUCKET_BYTES)
            }
            None => {
                let buckets = sum.buckets.len() as u64 * BUCKET_BYTES;
                self.entries.len() < MAX_ENTRIES && room.take(ENTRY_BYTES + key_bytes(&key) + buckets)
            }
        };
        let place = if has_room { self.entries.entry(key).or_default() } else { &mut self.other };
        place.add(&rule.function, sum);
    }

    /// Adds what was counted for keys without room.
    pub fn add_other(&mut self, rule: &Rule, sum: &Sum) {
        if sum.count != 0 {
            self.other.add(&rule.function, sum);
        }
    }

    /// Adds the sums of another process, or of many.
    pub fn add_all(&mut self, rule: &Rule, other: &Self, room: &mut Room) {
        other.entries.iter().for_each(|(key, sum)| self.add(rule, key.clone(), sum, room));
        self.add_other(rule, &other.other);
        self.lost = self.lost.saturating_add(other.lost);
        self.refused = self.refused.saturating_add(other.refused);
        self.not_counting = self.not_counting.saturating_add(other.not_counting);
        self.unfit = self.unfit.saturating_add(other.unfit);
    }

    /// Counts by key, as a document has them, and the count of all other keys.
    pub fn to_entries(&self) -> (Vec<Entry>, Option<Entry>) {
        let entries = self.entries.iter().map(|(key, sum)| sum.to_entry(key.clone())).collect();
        (entries, (self.other.count != 0).then(|| self.other.to_entry(Vec::new())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Aggregation, Document};

    fn function(text: &str) -> Function {
        text.parse::<Rule>().expect("a rule").function
    }

    fn sum(function: &Function, cells: &[[i64; 2]]) -> Sum {
        let mut sum = Sum::default();
        cells.iter().for_each(|[count, value]| sum.add_cell(function, 0, [*count as u64, *value as u64]));
        sum
    }

    #[test]
    fn cells_of_cpus_are_added_by_the_function() {
        let entry = |text, cells: &[[i64; 2]]| sum(&function(text), cells).to_entry(Vec::new());
        let values = |entry: Entry| (entry.count, entry.value);
        assert_eq!(values(entry("count", &[[1, 9], [2, 9]])), (3, None));
        assert_eq!(values(entry("sum of x", &[[1, -9], [2, 20]])), (3, Some(11)));
        assert_eq!(values(entry("min of x", &[[1, -9], [2, 20]])), (3, Some(-9)));
        assert_eq!(values(entry("max of x", &[[1, -9], [2, 20]])), (3, Some(20)));
        assert_eq!(values(entry("max of x", &[[1, i64::MAX - 1]])), (1, Some(i64::MAX - 1)));
    }

    /// Programs store values that do not fit as the largest that does.
    #[test]
    fn values_that_do_not_fit_are_unknown() {
        let value = |text, cells: &[[i64; 2]]| {
            let (function, mut joined) = (function(text), Sum::default());
            joined.add(&function, &sum(&function, cells));
            joined.to_entry(Vec::new()).value
        };
        assert_eq!(value("max of x", &[[1, 5], [1, i64::MAX]]), None);
        assert_eq!(value("min of x", &[[1, i64::MAX]]), None);
        assert_eq!(value("min of x", &[[1, i64::MAX], [1, 5]]), Some(5));
    }

    #[test]
    fn a_sum_that_overflows_is_unknown() {
        let overflow = |cells: &[[i64; 2]]| sum(&function("sum of x"), cells).to_entry(Vec::new()).value;
        assert_eq!(overflow(&[[5, i64::MAX]]), None);
        assert_eq!(overflow(&[[5, i64::MIN], [1, 3]]), None);
        assert_eq!(overflow(&[[1, i64::MAX - 1], [1, 2]]), None);
        assert_eq!(overflow(&[[1, i64::MAX - 1], [1, 2], [1, -2]]), Some(i64::MAX - 1));
    }

    #[test]
    fn buckets_are_added_one_by_one() {
        let histogram = function("histogram of x");
        let mut sum = Sum::default();
        for (bucket, cell) in [(0, [2, 0]), (NEGATIVE_BUCKET, [1, -5i64 as u64]), (9, [1, 10])] {
            sum.add_cell(&histogram, bucket, cell);
        }
        let mut twice = sum.clone();
        twice.add(&histogram, &sum);
        let entry = twice.to_entry(vec![KeyValue::Natural(1)]);
        assert_eq!((entry.count, entry.value), (8, Some(10)));
        let bucket = |first, last, count| Bucket { first, last, count };
        let first = BUCKETS.first(9);
        let last = BUCKETS.last(9);
        assert_eq!(
            entry.buckets,
            [bucket(None, None, 2), bucket(Some(0), Some(0), 4), bucket(Some(first), Some(last), 2)]
        );
    }

    #[test]
    fn too_many_keys_are_added_up() {
        let rule: Rule = "count by pid".parse().expect("a rule");
        let mut sums = AggregationSums::default();
        let one = sum(&rule.function, &[[1, 0]]);
        let mut room = Room::of_recording();
        for key in 0..MAX_ENTRIES as u64 + 5 {
            sums.add(&rule, vec![KeyValue::Natural(key)], &one, &mut room);
        }
        sums.add(&rule, vec![KeyValue::Natural(0)], &one, &mut room);
        let (entries, other) = sums.to_entries();
        assert_eq!((entries.len(), entries[0].count), (MAX_ENTRIES, 2));
        assert_eq!(other.map(|other| other.count), Some(5));
    }

    /// Each process fills all buckets of keys of its own, with texts that JSON makes longer.
    #[test]
    fn processes_cannot_make_a_document_that_is_too_large_to_read() {
        let rule: Rule = "histogram of x by name, other".parse().expect("a rule");
        let mut histogram = Sum::default();
        for bucket in (0..NEGATIVE_BUCKET).chain([NEGATIVE_BUCKET]) {
            histogram.add_cell(&rule.function, bucket, [u64::MAX / 10_000_000, i64::MAX as u64 / 10_000_000]);
        }
        let (mut all, mut room) = (AggregationSums::default(), Room::of_recording());
        let mut given = 0u64;
        for process in 0..40 {
            let mut sums = AggregationSums::default();
            let mut own = Room::of_process();
            for key in 0..256u64 {
                let text = |part: &str| KeyValue::Text(format!("{part}{:24}", process << 8 | key));
                sums.add(&rule, vec![text("\u{1}\"\\"), text("\u{fffd}")], &histogram, &mut own);
                given += histogram.count;
            }
            let one = sums.clone().into_document(&rule).to_json().len() as u64;
            assert!(one <= PROCESS_BYTES + 256 * BUCKET_BYTES, "{one} bytes of one process");
            all.add_all(&rule, &sums, &mut room);
        }
        let document = all.into_document(&rule);
        let bytes = document.to_json().len() as u64;
        assert!((RECORDING_BYTES / 2..RECORDING_BYTES + (1 << 20)).contains(&bytes), "{bytes} bytes");
        assert_eq!(document.total(), given);
        assert!(document.gaps()[0].contains("events of keys without room"), "{:?}", document.gaps());
    }

    impl AggregationSums {
        fn into_document(self, rule: &Rule) -> Document {
            let (entries, other) = self.to_entries();
            let aggregation =
                Aggregation { name: rule.name.clone(), entries, other, ..Aggregation::default() };
            Document { aggregations: vec![aggregation], ..Document::default() }
        }
    }
}
