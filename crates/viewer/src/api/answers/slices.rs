//! Answers about one place of a lane: a slice, a counter's value, the events of a channel.

use serde::Serialize;
#[cfg(test)]
use ts_rs::TS;

/// Slice, value or event counts of a lane at a time. Answer of `/api/at`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
#[serde(untagged)]
pub enum SliceAnswer {
    /// There is one.
    Found(Box<SliceDetail>),
    /// There is none.
    None(NoSlice),
}

/// Absence of a slice at a time.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct NoSlice {
    /// Number of the lane.
    pub lane: u32,
    /// Always true.
    #[cfg_attr(test, ts(type = "true"))]
    pub none: bool,
    /// Slice before the time.
    pub before: Option<SliceBrief>,
    /// Slice after the time.
    pub after: Option<SliceBrief>,
}

impl NoSlice {
    /// No slice on a lane, and no neighbours.
    pub fn of(lane: u32) -> Self {
        Self { lane, none: true, before: None, after: None }
    }
}

/// Everything known about a slice, a counter's value, or the events of a channel around a time.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct SliceDetail {
    /// Number of the lane.
    pub lane: u32,
    /// Number of the track.
    pub track: u32,
    /// Kind of the slice, by its number.
    pub style: u8,
    /// Kind of the slice, by its name.
    pub state: &'static str,
    /// Text of the slice, or name of the counter or channel.
    pub label: String,
    /// Begin.
    pub begin: i64,
    /// End.
    pub end: i64,
    /// Whether begin and end were observed.
    pub seen: [bool; 2],
    /// Fields of the events with which it began and ended: names and values.
    pub fields: Vec<(String, String)>,
    /// Slice before it.
    pub before: Option<SliceBrief>,
    /// Slice after it.
    pub after: Option<SliceBrief>,
    /// Thread, CPU and cause.
    #[serde(flatten)]
    pub relations: Relations,
    /// Threads that ran while its thread waited.
    #[serde(flatten)]
    pub blockers: Blockers,
    /// Value of a counter; `null` if it is no number.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional = nullable))]
    pub value: Option<f64>,
    /// Minimum and maximum of a counter in the whole trace; `null` if it has no finite value.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional, type = "[number | null, number | null]"))]
    pub range: Option<[f64; 2]>,
    /// Event counts of a channel between begin and end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub counts: Option<EventTotals>,
}

/// Thread, CPU and cause of a slice, as far as events tell.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(TS), ts(optional_fields))]
pub struct Relations {
    /// Thread of the slice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<ThreadLink>,
    /// CPU on which it ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u64>,
    /// Cause in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// First thread that preempted it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<ThreadLink>,
    /// Thread or interrupt that woke it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waker: Option<ThreadLink>,
    /// Thread that ran at the wakeup, if the trace does not say whether it or an interrupt woke.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub during: Option<ThreadLink>,
}

/// Threads that ran during a wait, on the CPU where the waiting thread ran next.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(TS), ts(optional_fields))]
pub struct Blockers {
    /// The one that ran longest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub culprit: Option<ThreadLink>,
    /// The ones that ran longest, the longest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ran: Option<Vec<ThreadLink>>,
    /// Number of others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ran_others: Option<usize>,
}

/// Thread with its place in the timeline.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct ThreadInfo {
    /// Thread ID.
    pub tid: i64,
    /// Name.
    pub name: String,
    /// Process ID, if it is known.
    pub pid: Option<i32>,
    /// Number of its track.
    pub track: u32,
    /// Number of the lane that shows it.
    pub lane: Option<u32>,
}

/// Thread at a time, or an interrupt, which has a name only.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct ThreadLink {
    /// Thread ID; `null` for an interrupt.
    pub tid: Option<i64>,
    /// Name.
    pub name: String,
    /// Process ID, if it is known.
    pub pid: Option<i32>,
    /// Number of its track.
    pub track: Option<u32>,
    /// Number of the lane that shows it.
    pub lane: Option<u32>,
    /// Time to go to.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub time: Option<i64>,
    /// CPU time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub ns: Option<i64>,
}

/// Slice beside another one.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct SliceBrief {
    /// Text of the slice.
    pub label: String,
    /// Kind of the slice, by its number.
    pub style: u8,
    /// Begin.
    pub begin: i64,
    /// End.
    pub end: i64,
}

impl From<ThreadInfo> for ThreadLink {
    fn from(thread: ThreadInfo) -> Self {
        let ThreadInfo { tid, name, pid, track, lane } = thread;
        Self { tid: Some(tid), name, pid, track: Some(track), lane, time: None, ns: None }
    }
}

/// Event counts of a channel in an interval.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct EventTotals {
    /// Recorded events.
    pub events: u64,
    /// Discarded events.
    pub lost: u64,
    /// Events that a flight recorder overwrote.
    pub overwritten: u64,
}

/// Next or previous slice of a lane. Answer of `/api/step`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
#[serde(untagged)]
pub enum StepAnswer {
    /// There is one.
    Found(Step),
    /// There is none.
    None(NoStep),
}

/// Times of a slice.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct Step {
    /// Begin.
    pub begin: i64,
    /// End.
    pub end: i64,
}

/// Absence of a further slice.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct NoStep {
    /// Always true.
    #[cfg_attr(test, ts(type = "true"))]
    pub none: bool,
}
