//! Numbers of events by name, of several traces.

use std::collections::BTreeMap;

use crate::SourceWriter;

/// Maximum number of names. Events of others are counted together.
const MAX_NAMES: usize = 4096;
/// Maximum length of a name in bytes.
const MAX_NAME: usize = 256;

/// Numbers of events by name.
#[derive(Clone, Debug, Default)]
pub struct NameCounts {
    by_name: BTreeMap<String, u64>,
    other: u64,
}

impl NameCounts {
    fn add(&mut self, name: &str, count: u64) {
        let Self { by_name, other } = self;
        let has_room = by_name.len() < MAX_NAMES && name.len() <= MAX_NAME;
        let total = match by_name.contains_key(name) || has_room {
            true => by_name.entry(name.to_owned()).or_default(),
            false => other,
        };
        *total = total.saturating_add(count);
    }

    /// Adds what a trace's packets have taken.
    pub fn add_trace(&mut self, writer: &SourceWriter) {
        writer
            .class_counts()
            .filter(|(_, count)| *count != 0)
            .for_each(|(name, count)| self.add(name, count));
    }

    /// Returns the numbers by name, and that of the events of names without room.
    pub fn into_parts(self) -> (BTreeMap<String, u64>, u64) {
        (self.by_name, self.other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beyond_the_limit_are_counted_together() {
        let mut counts = NameCounts::default();
        (0..MAX_NAMES + 10).for_each(|number| counts.add(&format!("a:{number}"), 2));
        counts.add("a:5", 3);
        counts.add(&"x".repeat(MAX_NAME + 1), 1);
        counts.add("a:6", u64::MAX);
        let (by_name, other) = counts.into_parts();
        assert_eq!((by_name.len(), by_name["a:5"], by_name["a:6"], other), (MAX_NAMES, 5, u64::MAX, 21));
    }
}
