//! Counts of a recording at one moment, as JSON has them.

use std::{
    io::{self, Read as _},
    path::Path,
};

use serde::{Deserialize, Serialize};

use crate::table::thousands;

/// Name of the document in a trace's folder.
pub const FILE_NAME: &str = "counts.json";
/// Version of the document.
pub(crate) const SCHEMA: u32 = 1;
/// Maximum size of a document in bytes.
const MAX_DOCUMENT: u64 = 256 << 20;

/// Counts of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// Version of the document.
    pub schema: u32,
    /// Time at which they were read, in nanoseconds since 1970.
    pub time_ns: i64,
    /// Processes that count.
    pub processes: Processes,
    /// Aggregations, one for each rule.
    pub aggregations: Vec<Aggregation>,
    /// Whether a recording could not write it into its folder.
    #[serde(skip)]
    pub is_unwritten: bool,
}

/// Processes of a recording, by whether they count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Processes {
    /// Processes that count now.
    pub counting: u64,
    /// Processes that have counted and have ended.
    pub ended: u64,
    /// Processes that can't count, so that their events are unknown.
    pub unable: u64,
    /// Some of their names, with their ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unable_names: Vec<String>,
}

/// Counts of one rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aggregation {
    /// Name of the rule.
    pub name: String,
    /// The rule as text.
    pub rule: String,
    /// `count`, `sum`, `min`, `max` or `histogram`.
    pub function: String,
    /// Names of the keys.
    pub keys: Vec<String>,
    /// Counts by key.
    pub entries: Vec<Entry>,
    /// Count of all keys that there was no room for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other: Option<Entry>,
    /// Events that could not be counted.
    pub lost: u64,
    /// Parts of programs' memory that can't be, and were refused.
    pub refused: u64,
    /// Processes that count other aggregations, but not this one.
    pub not_counting: u64,
    /// Processes with events that the rule chooses, and that lack its integer field. These are not
    /// counted.
    pub unfit: u64,
}

/// Count of the events that have equal keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Their keys, in the aggregation's order; empty for those without room.
    pub key: Vec<KeyValue>,
    /// Their number.
    pub count: u64,
    /// Their sum, smallest or largest value. Unknown for the function `count`, and if it does
    /// not fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<i64>,
    /// Buckets of a histogram that are not empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buckets: Vec<Bucket>,
}

/// Bucket of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// Smallest value; none for that of the values below 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<u64>,
    /// Largest value; none for that of the values below 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<u64>,
    /// Number of its values.
    pub count: u64,
}

/// Value of a key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum KeyValue {
    /// The event has none.
    Absent,
    /// An integer below 0.
    Negative(i64),
    /// An integer from 0.
    Natural(u64),
    /// A text; one that was cut ends with `…`.
    Text(String),
}

impl KeyValue {
    /// The value as text.
    pub fn to_text(&self) -> String {
        match self {
            Self::Absent => "(none)".into(),
            Self::Negative(value) => value.to_string(),
            Self::Natural(value) => value.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

impl Document {
    /// Reads the counts in a trace's folder. None if it has none.
    ///
    /// # Errors
    /// They can't be read, in words.
    pub fn of_trace(folder: &Path) -> Result<Option<Self>, String> {
        let path = folder.join(FILE_NAME);
        let mut bytes = Vec::new();
        let read = tompion_os::BoundedFile::open(&path, MAX_DOCUMENT)
            .and_then(|mut file| file.read_to_end(&mut bytes));
        match read {
            Ok(_) => Self::parse(&bytes).map(Some).map_err(|error| format!("{}: {error}", path.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("can't read {}: {error}", path.display())),
        }
    }

    /// Parses a document.
    ///
    /// # Errors
    /// It is none, or of a later version; in words.
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let document: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        match document.schema {
            SCHEMA => Ok(document),
            found => Err(format!("expected counts of version {SCHEMA}, found {found}")),
        }
    }

    /// The document as JSON, with a line break at its end.
    pub fn to_json(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec_pretty(self).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }

    /// Number of events that were counted. An event that several aggregations count has several.
    pub fn total(&self) -> u64 {
        let entries = self
            .aggregations
            .iter()
            .flat_map(|aggregation| aggregation.entries.iter().chain(&aggregation.other));
        entries.fold(0, |sum, entry| sum.saturating_add(entry.count))
    }

    /// Number of counted events in words, with the command that shows those in a trace's folder.
    pub fn summary(&self, folder: &Path) -> String {
        let total = self.total();
        let events = format!("counted {} event{}", thousands(total), if total == 1 { "" } else { "s" });
        let rules = match self.aggregations.len() {
            0 | 1 => String::new(),
            rules => format!(" by {rules} rules, an event once for each rule"),
        };
        let next = format!("; next: tompion stat {}", folder.display());
        events + &rules + if total == 0 { "" } else { &next }
    }

    /// Gaps in the counts, one line each.
    pub fn gaps(&self) -> Vec<String> {
        let mut gaps = Vec::new();
        let Processes { unable, unable_names, .. } = &self.processes;
        if *unable != 0 {
            let names = unable_names.join(", ");
            gaps.push(format!("{unable} processes CAN'T COUNT, their events are unknown: {names}"));
        }
        for Aggregation { name, other, lost, refused, not_counting, unfit, .. } in &self.aggregations {
            let mut add = |number: u64, text: &str| {
                if number != 0 {
                    gaps.push(format!("{name}: {number} {text}"));
                }
            };
            add(*lost, "events NOT COUNTED");
            add(*refused, "parts of programs' memory REFUSED");
            add(*not_counting, "processes DON'T COUNT this, their events are unknown");
            add(*unfit, "processes have chosen events without the integer field, which are not counted");
            add(other.as_ref().map_or(0, |other| other.count), "events of keys without room, as (other)");
        }
        gaps
    }
}
