//! Answers about the traces as a whole: their description, tracks, lanes and arrows.

use serde::Serialize;
#[cfg(test)]
use ts_rs::TS;

use crate::incident::Verdict;
use crate::recording::RecordedProcess;

/// The open traces as one, and how much of them is indexed. Answer of `/api/trace`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct TraceOverview {
    /// Version of the API.
    pub version: u32,
    /// Increases when the traces are indexed again; tracks and lanes may change then.
    pub generation: u64,
    /// Time 0 in nanoseconds since the epoch; as text, since it exceeds the page's numbers.
    pub base: String,
    /// Begin of the traces.
    pub begin: i64,
    /// End of the traces, as far as it is known.
    pub end: i64,
    /// Indexed share, from 0 to 1.
    pub progress: f64,
    /// Whether the recording is running.
    pub growing: bool,
    /// Number of prefetches while the traces are indexed.
    pub glimpses: u64,
    /// Ranges that prefetches read completely: begin and end of each.
    pub seen: Vec<(i64, i64)>,
    /// Number of lanes.
    pub lanes: usize,
    /// Name for the page's title.
    pub name: String,
    /// The single traces.
    pub traces: Vec<TracePart>,
    /// Number of events.
    pub events: u64,
    /// Missing data.
    pub losses: Losses,
    /// Corrupt parts, a line each.
    pub damages: Vec<String>,
    /// Streams with timestamp regressions, a line each.
    pub disorders: Vec<String>,
    /// Offset of local time from UTC at the base, in seconds.
    pub timezone_offset_s: i32,
    /// Message that files are gone, in one line.
    pub gone: Option<String>,
    /// Reason why the index can't be completed, in one line.
    pub error: Option<String>,
    /// Incident of the open folder, saved by a monitor.
    pub incident: Option<IncidentSummary>,
    /// Names of programs that the recordings started.
    pub commands: Vec<String>,
    /// Processes that the recordings describe.
    pub processes: Vec<RecordedProcess>,
    /// Folder of the notes and the index; `null` if none is writable.
    pub kept: Option<String>,
}

/// One of the open traces.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct TracePart {
    /// Number, which clock offsets name.
    pub id: usize,
    /// Its folder.
    pub path: String,
    /// Its name.
    pub name: String,
    /// Tracer that recorded it.
    pub tracer: String,
    /// Host on which it was recorded.
    pub host: String,
    /// First time; `null` while no event is known.
    pub begin: Option<i64>,
    /// Last time; `null` while no event is known.
    pub end: Option<i64>,
    /// Clock offset.
    pub offset: i64,
    /// Number of events.
    pub events: u64,
}

/// Missing data of the traces.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct Losses {
    /// Discarded events.
    pub events: u64,
    /// Missing packets.
    pub packets: u64,
    /// Events that a flight recorder overwrote.
    pub overwritten: u64,
}

/// Late interval of an incident.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct IncidentSummary {
    /// Begin of the interval.
    pub begin: i64,
    /// End of the interval.
    pub end: i64,
    /// Permitted duration.
    pub limit: i64,
    /// Late thread.
    pub tid: i32,
    /// Its name.
    pub name: String,
    /// Job that missed its deadline; `null` for a late wakeup.
    pub job: Option<String>,
    /// Largest cause, in the words of `tompion explain`.
    pub verdict: Option<Verdict>,
    /// Causes with their shares, largest first.
    pub culprits: Vec<IncidentCause>,
}

/// Cause of a part of an incident's interval.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct IncidentCause {
    /// Description in words.
    pub words: String,
    /// Its thread; 0 if it is none.
    pub tid: i32,
    /// Share of the interval in percent.
    pub percent: f64,
    /// Begin of its longest part.
    pub time: i64,
}

/// Tracks in drawing order. Answer of `/api/tracks`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct TrackList {
    /// Tracks with something to show.
    pub tracks: Vec<TrackInfo>,
    /// Generation of the index that they are from.
    pub generation: u64,
    /// Progress of this index, from 0 to 1.
    pub progress: f64,
}

/// Track of the timeline.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(TS), ts(optional_fields))]
pub struct TrackInfo {
    /// Number of the track.
    pub id: u32,
    /// Number of the track above it; −1 for none.
    pub parent: i64,
    /// Kind of the track.
    #[cfg_attr(test, ts(type = "TrackKind"))]
    pub kind: &'static str,
    /// Name.
    pub name: String,
    /// Number of a CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<i64>,
    /// Process ID of a process, or of a thread if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<i64>,
    /// Number of a thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tid: Option<i64>,
    /// CPU time of a thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy: Option<i64>,
    /// Unit of a counter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<&'static str>,
    /// Host, if there are several: numbers of CPUs and threads are unique on one only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Trace that has the track's first lane, if there are several traces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<u32>,
    /// Lanes from top to bottom; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(test, ts(as = "Option<Vec<LaneInfo>>"))]
    pub lanes: Vec<LaneInfo>,
}

/// Lane of a track.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(TS), ts(optional_fields))]
pub struct LaneInfo {
    /// Number of the lane.
    pub id: u32,
    /// Content of the lane.
    #[cfg_attr(test, ts(type = "LaneKind"))]
    pub kind: &'static str,
    /// Depth of spans or interrupts, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<u16>,
    /// Minimum of a counter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// Maximum of a counter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
}

/// Head of an answer of `/api/lanes`; the arrays of the lanes follow.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct LanesHead<'a> {
    /// Begin of the window.
    pub from: i64,
    /// End of the window.
    pub to: i64,
    /// Time up to which everything is known.
    pub known: i64,
    /// Number of each lane, its shape and its number of elements.
    pub lanes: Vec<(u32, LaneShape, usize)>,
    /// Texts of the labels that slices name by their number.
    pub labels: Vec<&'a str>,
}

/// Shape of a lane's arrays.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
#[serde(rename_all = "lowercase")]
pub enum LaneShape {
    /// Slices.
    Boxes,
    /// Values of a counter.
    Points,
    /// Event counts of a channel.
    Bins,
}

/// Wakeups and flows between lanes. Answer of `/api/arrows`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct ArrowList {
    /// Five numbers for each arrow: begin and its lane, end and its lane, 1 for a flow, else 0.
    pub arrows: Vec<i64>,
    /// Whether there are more.
    pub more: bool,
}
