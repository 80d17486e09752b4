//! Rules by which events are counted in place: `count app:request by status`.
//!
//! ```text
//! [NAME =] FUNCTION [of FIELD] [GLOB,…] [by KEY,…] [limit N] [if FILTER]
//! ```
//!
//! A recording has up to [`MAX_AGGREGATIONS`] of them, each with a name of its own. Agents and
//! sessions parse the same text: an agent looks for fields in the events of its process, and a
//! session lays out the memory. What a rule leads to in memory is drawn in
//! `tompion_layout::counts`.
#![forbid(unsafe_code)]

mod key;
mod parse;

pub use key::Key;
pub use tompion_layout::counts::MAX_AGGREGATIONS;

use tompion_filter::Name;
use tompion_layout::counts::{AggregationSize, HISTOGRAM_CELLS, MAX_SLOTS};

/// Maximum number of keys of a rule.
pub const MAX_KEYS: usize = 4;
/// Maximum number of keys that differ from one event of a process to the next.
pub const MAX_EVENT_KEYS: usize = tompion_layout::counts::MAX_PARTS;
/// Largest limit of a rule.
pub const MAX_LIMIT: u32 = MAX_SLOTS / 2;
/// Maximum length of a rule in bytes.
pub const MAX_RULE: usize = tompion_layout::counts::TEXT_SIZE;
/// Maximum length of a name.
pub const MAX_NAME: usize = 64;

/// Function of the events that have equal keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Function {
    /// Their number.
    Count,
    /// Sum of an integer field, and number.
    Sum(Name),
    /// Smallest value of an integer field.
    Min(Name),
    /// Largest value of an integer field.
    Max(Name),
    /// Distribution of an integer field over log-linear buckets.
    Histogram(Name),
}

/// Rule of one aggregation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Name under which its values are shown: letters, digits and `_`.
    pub name: String,
    /// Function.
    pub function: Function,
    /// Globs of the events; all without any.
    pub globs: Vec<String>,
    /// Keys.
    pub keys: Vec<Key>,
    /// Number of keys for which there is room in each process.
    pub limit: u32,
    /// Filter that events must pass.
    pub filter: Option<String>,
}

/// Rule that can't be, in words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RuleError(String);

impl Function {
    /// Word of the function in rules.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Sum(_) => "sum",
            Self::Min(_) => "min",
            Self::Max(_) => "max",
            Self::Histogram(_) => "histogram",
        }
    }

    /// Field that it is about.
    pub const fn field(&self) -> Option<&Name> {
        match self {
            Self::Count => None,
            Self::Sum(field) | Self::Min(field) | Self::Max(field) | Self::Histogram(field) => Some(field),
        }
    }

    /// Room for keys where a rule sets no limit.
    const fn default_limit(&self) -> u32 {
        match self {
            Self::Histogram(_) => 128,
            _ => 1024,
        }
    }
}

impl Rule {
    /// Keys that differ from one event of a process to the next, in order.
    pub fn event_keys(&self) -> impl Iterator<Item = &Key> {
        self.keys.iter().filter(|key| !key.is_of_process())
    }

    /// Sizes of its aggregation: twice as many slots as keys, so that few have to be looked at.
    pub fn size(&self) -> AggregationSize {
        let slots = if self.event_keys().next().is_none() { 1 } else { (self.limit * 2).next_power_of_two() };
        let cells = if matches!(self.function, Function::Histogram(_)) { HISTOGRAM_CELLS } else { 1 };
        AggregationSize { slots, cells }
    }

    /// The rule as text, which parses to the same rule.
    pub fn to_text(&self) -> String {
        let mut text = format!("{} = {}", self.name, self.function.word());
        if let Some(field) = self.function.field() {
            text += &format!(" of {field}");
        }
        if !self.globs.is_empty() {
            text += &format!(" {}", self.globs.join(","));
        }
        if !self.keys.is_empty() {
            let keys: Vec<_> = self.keys.iter().map(Key::to_string).collect();
            text += &format!(" by {}", keys.join(", "));
        }
        if self.limit != self.function.default_limit() {
            text += &format!(" limit {}", self.limit);
        }
        if let Some(filter) = &self.filter {
            text += &format!(" if {filter}");
        }
        text
    }
}

/// Checks the rules of one recording together.
///
/// # Errors
/// There are too many, or two have the same name.
pub fn check(rules: &[Rule]) -> Result<(), RuleError> {
    if rules.len() > MAX_AGGREGATIONS {
        return Err(RuleError(format!("expected at most {MAX_AGGREGATIONS} counts, found {}", rules.len())));
    }
    for (index, rule) in rules.iter().enumerate() {
        let is_series = |other: &Rule| {
            let rest = rule.name.strip_prefix(&other.name).unwrap_or_default();
            ["_total", "_count", "_sum", "_bucket"].contains(&rest)
        };
        if let Some(other) = rules.iter().find(|other| is_series(other)) {
            return Err(RuleError(format!(
                "`{}` is a series of the metric `{}`; give one another name",
                rule.name, other.name
            )));
        }
        if rules.iter().take(index).any(|other| other.name == rule.name) {
            return Err(RuleError(format!(
                "two counts are named `{0}`; give one another name: 'NAME = {0} …'",
                rule.name
            )));
        }
    }
    Ok(())
}
