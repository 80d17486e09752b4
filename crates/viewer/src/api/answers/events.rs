//! Answers about events: the table, search, counts by class.

use serde::Serialize;
#[cfg(test)]
use ts_rs::TS;

/// Nearest event that matches. Answer of `/api/search`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
#[serde(untagged)]
pub enum SearchAnswer {
    /// There is one.
    Found(SearchHit),
    /// There is none, or none yet.
    None(NoHit),
}

/// Event that matches a search.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(TS), ts(optional_fields))]
pub struct SearchHit {
    /// The event.
    #[serde(flatten)]
    pub event: EventRow,
    /// Remark on the search text, if it is an invalid filter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bad: Option<String>,
}

/// Search without a match so far.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(TS), ts(optional_fields))]
pub struct NoHit {
    /// Always true.
    #[cfg_attr(test, ts(type = "true"))]
    pub none: bool,
    /// Number of events that were searched.
    pub scanned: u64,
    /// Remark on the search text, if it is an invalid filter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bad: Option<String>,
    /// Time from which another request continues; absent if all is searched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#continue: Option<i64>,
}

/// Rows of the table of events. Answer of `/api/events`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct EventRows {
    /// Requested rows.
    pub rows: Vec<EventRow>,
    /// Number of rows in the range; `null` as long as it is unknown.
    pub total: Option<u64>,
    /// Present, and true, if only a part of the range was searched: another request continues.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[cfg_attr(test, ts(as = "Option<bool>", optional))]
    pub r#continue: bool,
    /// Share of the range that was searched, from 0 to 1; present together with `continue`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub scanned: Option<f64>,
    /// Message about an invalid filter.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub bad: Option<String>,
}

impl EventRows {
    /// No rows, of a range that has none.
    pub fn none() -> Self {
        Self { rows: Vec::new(), total: Some(0), r#continue: false, scanned: None, bad: None }
    }
}

/// Event of the table.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct EventRow {
    /// Number among all events.
    pub row: u64,
    /// Time.
    pub time: i64,
    /// CPU on which the event happened.
    pub cpu: Option<u64>,
    /// Thread in which it happened.
    pub tid: Option<i64>,
    /// Name of its class.
    pub name: String,
    /// Fields as text.
    pub text: String,
    /// Lane of the thread.
    pub lane: Option<u32>,
    /// Number of its trace.
    pub trace: usize,
}

/// Event counts of some tracks by class. Answer of `/api/counts`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct EventCounts {
    /// Names of classes with their counts so far, the largest first.
    pub events: Vec<(String, u64)>,
    /// Time up to which everything is known and counted.
    pub known: i64,
    /// Whether another request continues the count.
    pub r#continue: bool,
    /// Counted share of the area, from 0 to 1.
    pub scanned: f64,
}
