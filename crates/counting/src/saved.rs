//! Counts of ended processes, as a recorder saves them for one that comes back.
//!
//! A process that has ended is in the sums once its memory is gone. Until then its counts stand
//! apart: a recorder that comes back, and finds the memory, reads it again and leaves these out.

use std::{collections::BTreeMap, io};

use serde::{Deserialize, Serialize};
use tompion_os::DirHandle;

use crate::{document::KeyValue, sums::AggregationSums};

/// Name of the file.
const FILE: &str = "counts.json";
/// Largest file: all keys of a recording, several times.
const MAX_BYTES: u64 = 512 << 20;

/// Counts of processes that have ended.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct SavedCounts {
    /// Sums of those without memory.
    pub(crate) sums: Vec<SavedSums>,
    /// Those with memory that is still there, by their numbers in the session.
    pub(crate) pending: BTreeMap<u64, Vec<SavedSums>>,
    /// Number of processes in the sums.
    pub(crate) ended: u64,
    /// Processes that can't count, and some of their names.
    pub(crate) unable: u64,
    pub(crate) unable_names: Vec<String>,
}

/// Sums of an aggregation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedSums {
    entries: Vec<(Vec<SavedKey>, SavedSum)>,
    other: SavedSum,
    lost: u64,
    refused: u64,
    not_counting: u64,
    unfit: u64,
}

/// Sum of the events that have equal keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedSum {
    pub count: u64,
    pub value: Option<i128>,
    pub overflowed: bool,
    pub buckets: Vec<(u32, u64)>,
}

/// Value of a key, with its kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum SavedKey {
    Absent,
    Negative(i64),
    Natural(u64),
    Text(String),
}

impl From<KeyValue> for SavedKey {
    fn from(value: KeyValue) -> Self {
        match value {
            KeyValue::Absent => Self::Absent,
            KeyValue::Negative(value) => Self::Negative(value),
            KeyValue::Natural(value) => Self::Natural(value),
            KeyValue::Text(text) => Self::Text(text),
        }
    }
}

impl From<SavedKey> for KeyValue {
    fn from(value: SavedKey) -> Self {
        match value {
            SavedKey::Absent => Self::Absent,
            SavedKey::Negative(value) => Self::Negative(value),
            SavedKey::Natural(value) => Self::Natural(value),
            SavedKey::Text(text) => Self::Text(text),
        }
    }
}

impl From<&AggregationSums> for SavedSums {
    fn from(sums: &AggregationSums) -> Self {
        let AggregationSums { entries, other, lost, refused, not_counting, unfit } = sums;
        let key = |key: &[KeyValue]| key.iter().cloned().map(SavedKey::from).collect();
        Self {
            entries: entries.iter().map(|(values, sum)| (key(values), sum.to_saved())).collect(),
            other: other.to_saved(),
            lost: *lost,
            refused: *refused,
            not_counting: *not_counting,
            unfit: *unfit,
        }
    }
}

impl From<SavedSums> for AggregationSums {
    fn from(saved: SavedSums) -> Self {
        let SavedSums { entries, other, lost, refused, not_counting, unfit } = saved;
        let key = |key: Vec<SavedKey>| key.into_iter().map(KeyValue::from).collect();
        Self {
            entries: entries.into_iter().map(|(values, sum)| (key(values), sum.into())).collect(),
            other: other.into(),
            lost,
            refused,
            not_counting,
            unfit,
        }
    }
}

impl SavedCounts {
    /// Reads what a recorder has saved in a folder; nothing if there is none. Errors are lines for
    /// people.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn read(folder: &DirHandle) -> Result<Self, String> {
        let shown = || folder.path().join(FILE).display().to_string();
        match folder.read_bounded(FILE, MAX_BYTES) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            bytes => {
                let bytes = bytes.map_err(|error| format!("{}: {error}", shown()))?;
                serde_json::from_slice(&bytes).map_err(|error| format!("{}: {error}", shown()))
            }
        }
    }

    /// Writes it into a folder.
    ///
    /// # Errors
    /// It can't be written.
    pub fn write(&self, folder: &DirHandle, is_durable: bool) -> io::Result<()> {
        let text = serde_json::to_vec(self).map_err(io::Error::other)?;
        folder.replace(FILE, &text, is_durable)
    }
}
