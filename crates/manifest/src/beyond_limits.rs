//! Counts of data beyond the limits of one recording.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use crate::is_default;

/// Counts of data that programs sent beyond the limits of one recording. The data was not kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BeyondLimits {
    /// Descriptions of events. The events themselves are lost as `refused`.
    #[serde(skip_serializing_if = "is_default")]
    pub descriptions: u64,
    /// Names of events that were not remembered for hints. The events are recorded.
    #[serde(skip_serializing_if = "is_default")]
    pub event_names: u64,
    /// Processes that the manifest does not list.
    #[serde(skip_serializing_if = "is_default")]
    pub processes: u64,
    /// Events of the processes that the manifest does not list. The events are recorded.
    #[serde(skip_serializing_if = "is_default")]
    pub events: u64,
    /// Events that these processes lost.
    #[serde(skip_serializing_if = "is_default")]
    pub lost: u64,
    /// Executed programs that the manifest does not list.
    #[serde(skip_serializing_if = "is_default")]
    pub programs: u64,
    /// Descendants that the manifest does not list.
    #[serde(skip_serializing_if = "is_default")]
    pub children: u64,
    /// Problems that were not reported.
    #[serde(skip_serializing_if = "is_default")]
    pub problems: u64,
    /// Changes of the rules that the manifest does not list.
    #[serde(skip_serializing_if = "is_default")]
    pub rule_changes: u64,
    /// Changes of the triggers that the manifest does not list.
    #[serde(skip_serializing_if = "is_default")]
    pub trigger_changes: u64,
    /// Firings of triggers that the manifest does not list.
    #[serde(skip_serializing_if = "is_default")]
    pub firings: u64,
    /// Firings of triggers that are no events of the trace.
    #[serde(skip_serializing_if = "is_default")]
    pub firing_events: u64,
    /// Occurrences beyond the limits of triggers that no later firing counts.
    #[serde(skip_serializing_if = "is_default")]
    pub occurrences: u64,
    /// Counts that only other versions of Tompion have, by name.
    #[serde(flatten, deserialize_with = "read_counts")]
    pub other: BTreeMap<String, u64>,
}

impl BeyondLimits {
    /// All counts, 0 as well, with the names that they have in the manifest.
    pub fn counts(&self) -> impl Iterator<Item = (&str, u64)> {
        let known = [
            ("descriptions", self.descriptions),
            ("event_names", self.event_names),
            ("processes", self.processes),
            ("events", self.events),
            ("lost", self.lost),
            ("programs", self.programs),
            ("children", self.children),
            ("problems", self.problems),
            ("rule_changes", self.rule_changes),
            ("trigger_changes", self.trigger_changes),
            ("firings", self.firings),
            ("firing_events", self.firing_events),
            ("occurrences", self.occurrences),
        ];
        known.into_iter().chain(self.other.iter().map(|(name, count)| (&**name, *count)))
    }
}

/// Reads the keys with counts as values. Other values, of later versions, are ignored.
fn read_counts<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, u64>, D::Error> {
    let values = BTreeMap::<String, serde_json::Value>::deserialize(from)?;
    Ok(values.into_iter().filter_map(|(name, value)| Some((name, value.as_u64()?))).collect())
}
