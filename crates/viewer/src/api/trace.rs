//! Description of the traces, and the tree of tracks.

use std::collections::HashMap;
use std::fmt::Write;

use serde_json::{Value, json};

use super::{ApiError, ApiRequest, ApiResult};
use tompion_index::{Index, LaneKind, Track, TrackKind};

/// Answers with the traces and how much of them is indexed.
pub fn trace(request: &ApiRequest<'_>) -> ApiResult {
    let (workspace, opened) = (request.workspace, request.opened);
    let index = opened.index();
    let of_trace = |(id, trace): (usize, &crate::workspace::TraceInfo)| {
        let bounds = index.bounds.get(id).copied().flatten();
        let offset = request.offset(id);
        json!({
            "id": id, "path": trace.path, "name": trace.name, "tracer": trace.tracer, "host": trace.host,
            "begin": bounds.map(|(begin, _)| begin.saturating_add(offset)), "end": bounds.map(|(_, end)| end.saturating_add(offset)),
            "offset": offset, "events": index.events.get(id).copied().unwrap_or(0),
        })
    };
    let traces: Vec<Value> = opened.traces.iter().enumerate().map(of_trace).collect();
    let shifted = index.bounds.iter().enumerate().filter_map(|(trace, bounds)| {
        let ((begin, end), offset) = ((*bounds)?, request.offset(trace));
        Some((begin.saturating_add(offset), end.saturating_add(offset)))
    });
    let (first, last) =
        shifted.fold((i64::MAX, i64::MIN), |(first, last), (begin, end)| (first.min(begin), last.max(end)));
    // Until everything is read, packet headers know the end better than events do.
    let is_whole = index.progress >= 1.0 && first <= last;
    let (begin, end) = if is_whole { (first, last) } else { (first.min(0), index.end.max(last)) };
    let [events, packets, overwritten] = index.losses;
    // Ranges that are known behind the indexed part.
    let prefetcher = opened.prefetcher.as_ref().filter(|_| !is_whole);
    let (previews, seen) =
        prefetcher.map(|prefetcher| (prefetcher.count(), prefetcher.whole())).unwrap_or_default();
    let zone = jiff::tz::TimeZone::system();
    let moment = jiff::Timestamp::from_nanosecond(index.base.into()).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    Ok(json!({
        "version": 1, "generation": opened.generation, "base": index.base.to_string(),
        "begin": begin, "end": end, "progress": index.progress, "growing": opened.is_growing,
        "glimpses": previews, "seen": seen, "lanes": index.lanes.len(),
        "name": workspace.name(), "traces": traces, "events": index.event_count(),
        "losses": { "events": events, "packets": packets, "overwritten": overwritten },
        "damages": index.damages, "disorders": index.disorders,
        "timezone_offset_s": zone.to_offset(moment).seconds(),
        "gone": opened.gone(), "error": index.error,
        "incident": incident(request, index.base), "commands": workspace.commands,
        "processes": workspace.processes,
        // The kernel appends words to the name of a removed folder.
        "kept": workspace.storage.path().filter(|path| path.exists()).map(|path| path.display().to_string()),
    }))
}

/// Describes the incident, if one is shown.
fn incident(request: &ApiRequest<'_>, base: i64) -> Option<Value> {
    let incident = request.workspace.incident.as_ref()?;
    let offset = request.offset(0);
    let time = |time: i64| time.saturating_sub(base).saturating_add(offset);
    let ((begin, end), (tid, name)) = (incident.span, &incident.thread);
    Some(json!({
        "begin": time(begin), "end": time(end), "limit": incident.limit, "tid": tid, "name": name,
        "job": incident.job, "verdict": incident.verdict.as_ref().map(|verdict| json!({
            "percent": verdict.percent, "words": verdict.words,
        })),
        "culprits": incident.culprits.iter().map(|culprit| json!({
            "words": culprit.words, "tid": culprit.tid, "percent": culprit.percent,
            "time": time(culprit.time_ns),
        })).collect::<Vec<_>>(),
    }))
}

/// Writes the tree of tracks in drawing order, as text: there may be a hundred thousand.
pub fn tracks(request: &ApiRequest<'_>) -> Result<String, ApiError> {
    let from = request.optional("from")?.unwrap_or(0);
    let index = request.opened.index();
    let hosts = hosts(request, &index);
    let mut text = String::from("{\"tracks\":[");
    for (id, is_shown) in in_order(&index) {
        let Some(track) = index.tracks.get(id as usize).filter(|_| is_shown && i64::from(id) >= from) else {
            continue;
        };
        write_track(&index, (id, track), &hosts, &mut text);
        text.push(',');
    }
    if text.ends_with(',') {
        text.pop();
    }
    let (generation, progress) = (request.opened.generation, Value::from(index.progress));
    let _ = write!(text, "],\"generation\":{generation},\"progress\":{progress}}}");
    Ok(text)
}

/// Returns the names of all machines, if there is more than one.
fn hosts(request: &ApiRequest<'_>, index: &Index) -> Vec<Value> {
    let machines = index.machines.iter().map(|machine| usize::from(*machine) + 1).max().unwrap_or(0);
    let mut hosts = vec![Value::from(""); machines];
    for (machine, trace) in index.machines.iter().zip(&request.opened.traces) {
        if let Some(host) = hosts.get_mut(usize::from(*machine)) {
            *host = trace.host.as_str().into();
        }
    }
    if machines > 1 { hosts } else { Vec::new() }
}

/// Returns all tracks in the order of the tree, each with whether it has anything to show.
fn in_order(index: &Index) -> Vec<(u32, bool)> {
    let mut children: HashMap<Option<u32>, Vec<u32>> = HashMap::new();
    for (id, track) in index.tracks.iter().enumerate() {
        let parent = track.parent.filter(|&parent| (parent as usize) < index.tracks.len());
        children.entry(parent).or_default().push(id as u32);
    }
    let order = |id: &u32| {
        let track = index.tracks.get(*id as usize);
        // CPUs, processes, threads without a process, counters, channels.
        let rank = track.map(|track| match (track.kind, track.number) {
            (TrackKind::Group, 0) => 0,
            (TrackKind::Process, _) => 1,
            (TrackKind::Group, _) => 2,
            (TrackKind::Cpu | TrackKind::Thread, _) => 3,
            (TrackKind::Counter, _) => 4,
            (TrackKind::Channel, _) => 5,
        });
        (rank, track.map(|track| (track.machine, track.number)), *id)
    };
    children.values_mut().for_each(|ids| ids.sort_by_key(order));
    let mut list = Vec::with_capacity(index.tracks.len());
    let mut rest: Vec<u32> = children.remove(&None).unwrap_or_default();
    rest.reverse();
    // Each track is below at most one other; a track below itself is left out.
    while let Some(id) = rest.pop() {
        let below = children.remove(&Some(id)).unwrap_or_default();
        let is_shown = index.tracks.get(id as usize).is_some_and(|track| is_shown(index, track, &below));
        list.push((id, is_shown));
        rest.extend(below.into_iter().rev());
    }
    list
}

/// Whether a track or one below it has a lane.
fn is_shown(index: &Index, track: &Track, below: &[u32]) -> bool {
    let has_lane = |track: &Track| !track.lanes.is_empty();
    has_lane(track) || below.iter().any(|id| index.tracks.get(*id as usize).is_some_and(has_lane))
}

fn write_track(index: &Index, (id, track): (u32, &Track), hosts: &[Value], text: &mut String) {
    let name = match (index.label(track.name), track.kind) {
        (Some(name), _) => name.to_string(),
        (None, TrackKind::Thread) => format!("tid {}", track.number),
        (None, TrackKind::Process) => format!("pid {}", track.number),
        (None, _) => String::new(),
    };
    let (parent, kind, number) = (track.parent.map_or(-1, i64::from), track.kind.name(), track.number);
    // Writing to a string can't fail, here and below.
    let _ =
        write!(text, "{{\"id\":{id},\"parent\":{parent},\"kind\":\"{kind}\",\"name\":{}", Value::from(name));
    let _ = match track.kind {
        TrackKind::Cpu => write!(text, ",\"cpu\":{number}"),
        TrackKind::Process => write!(text, ",\"pid\":{number}"),
        TrackKind::Thread => write!(text, ",\"tid\":{number},\"busy\":{}", track.busy),
        TrackKind::Counter => write!(text, ",\"unit\":\"\""),
        TrackKind::Group | TrackKind::Channel => Ok(()),
    };
    if let Some(pid) = track.pid.filter(|_| track.kind == TrackKind::Thread) {
        let _ = write!(text, ",\"pid\":{pid}");
    }
    // Numbers of CPUs and threads are unique only on their machine.
    if let Some(host) = hosts.get(usize::from(track.machine)) {
        let _ = write!(text, ",\"host\":{host}");
    }
    let trace = track.lanes.first().and_then(|lane| index.lanes.get(*lane as usize)).map(|lane| lane.trace);
    if let Some(trace) = trace.filter(|_| index.events.len() > 1) {
        let _ = write!(text, ",\"trace\":{trace}");
    }
    let mut lanes: Vec<u32> = track.lanes.clone();
    lanes.sort_by_key(|lane| index.lanes.get(*lane as usize).map(|lane| lane_order(lane.kind, lane.depth)));
    if !lanes.is_empty() {
        text.push_str(",\"lanes\":[");
        lanes.into_iter().for_each(|id| write_lane(index, id, text));
        if text.ends_with(',') {
            text.pop();
        }
        text.push(']');
    }
    text.push('}');
}

/// Orders lanes: interrupts above what they interrupt, inner ones first; spans below their thread.
fn lane_order(kind: LaneKind, depth: u16) -> (u8, i32) {
    let depth = if kind == LaneKind::Interrupt { -i32::from(depth) } else { depth.into() };
    (kind as u8, depth)
}

fn write_lane(index: &Index, id: u32, text: &mut String) {
    let Some(lane) = index.lanes.get(id as usize) else { return };
    let Some(kind) = lane.kind.name() else { return };
    let _ = write!(text, "{{\"id\":{id},\"kind\":\"{kind}\"");
    let finite = |value: f64| if value.is_finite() { value } else { 0.0 };
    let _ = match lane.kind {
        LaneKind::Span | LaneKind::Interrupt => write!(text, ",\"depth\":{}", lane.depth),
        LaneKind::Counter => {
            let (min, max) = (Value::from(finite(lane.range.0)), Value::from(finite(lane.range.1)));
            write!(text, ",\"min\":{min},\"max\":{max}")
        }
        _ => Ok(()),
    };
    text.push_str("},");
}
