//! Words by which users choose kernel events, as `record -k` takes them.

use crate::{AvailableEvents, Selection, UnknownEvent, probes::ProbeSpec};

/// Word for no event at all: others can be added later.
const NONE: &str = "none";

/// Words that choose kernel events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words {
    /// Texts of probes.
    pub probes: Vec<String>,
    /// Patterns of events.
    pub patterns: Vec<String>,
    /// Whether the usual events are chosen, too.
    pub wants_usual: bool,
}

impl Words {
    /// Tells probes from patterns of events. An empty word asks for the usual events, and so does
    /// no word at all.
    pub fn parse(words: &[String]) -> Self {
        let (probes, mut patterns): (Vec<String>, Vec<String>) =
            join_arguments(words).into_iter().partition(|word| ProbeSpec::is_one(word));
        let is_empty = probes.is_empty() && patterns.is_empty();
        let wants_usual = is_empty || patterns.iter().any(String::is_empty);
        patterns.retain(|pattern| !pattern.is_empty() && pattern != NONE);
        Self { probes, patterns, wants_usual }
    }

    /// Selects the events, without probes. `follows` says whether system calls of some processes
    /// are recorded: then the usual events have them.
    ///
    /// # Errors
    /// If no event matches a pattern.
    pub fn select(&self, available: &AvailableEvents, follows: bool) -> Result<Selection, UnknownEvent> {
        let mut selection = Selection::default();
        if self.wants_usual {
            selection = Selection::usual(&available.calls, follows);
        }
        if !self.patterns.is_empty() {
            selection.merge(Selection::matching(available, &self.patterns)?);
        }
        Ok(selection)
    }
}

/// Joins words that were split at the commas between a probe's arguments.
fn join_arguments(words: &[String]) -> Vec<String> {
    let mut joined: Vec<String> = Vec::new();
    for word in words {
        match joined.last_mut() {
            Some(last) if ProbeSpec::is_one(last) && last.contains('(') && !last.ends_with(')') => {
                *last += ",";
                *last += word;
            }
            _ => joined.push(word.trim().to_owned()),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> (Vec<String>, Vec<String>, bool) {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let Words { probes, patterns, wants_usual } = Words::parse(&words);
        (probes, patterns, wants_usual)
    }

    fn texts(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn words_are_probes_and_patterns() {
        assert_eq!(parse(&[""]), (Vec::new(), Vec::new(), true));
        assert_eq!(parse(&[]), (Vec::new(), Vec::new(), true));
        assert_eq!(parse(&["none"]), (Vec::new(), Vec::new(), false));
        assert_eq!(parse(&["sched_*", " irq_*"]), (Vec::new(), texts(&["sched_*", "irq_*"]), false));
        let (probes, patterns, wants_usual) = parse(&["kprobe:do_exit(code: u64", "x: u32)", ""]);
        assert_eq!(probes, ["kprobe:do_exit(code: u64,x: u32)"]);
        assert_eq!((patterns, wants_usual), (Vec::new(), true));
    }
}
