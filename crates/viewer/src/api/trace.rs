//! Description of the traces, and the tree of tracks.

use std::collections::HashMap;

use super::answers::{
    IncidentCause, IncidentSummary, LaneInfo, Losses, TraceOverview, TracePart, TrackInfo, TrackList,
};
use super::{ApiRequest, ApiResult};
use tompion_index::{Index, Lane, LaneKind, Track, TrackKind};

/// Answers with the traces and how much of them is indexed.
pub fn trace(request: &ApiRequest<'_>) -> ApiResult<TraceOverview> {
    let (workspace, opened) = (request.workspace, request.opened);
    let index = opened.index();
    let of_trace = |(id, trace): (usize, &crate::workspace::TraceInfo)| {
        let bounds = index.bounds.get(id).copied().flatten();
        let offset = request.offset(id);
        TracePart {
            id,
            path: trace.path.clone(),
            name: trace.name.clone(),
            tracer: trace.tracer.clone(),
            host: trace.host.clone(),
            begin: bounds.map(|(begin, _)| begin.saturating_add(offset)),
            end: bounds.map(|(_, end)| end.saturating_add(offset)),
            offset,
            events: index.events.get(id).copied().unwrap_or(0),
        }
    };
    let traces = opened.traces.iter().enumerate().map(of_trace).collect();
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
    let (glimpses, seen) =
        prefetcher.map(|prefetcher| (prefetcher.count(), prefetcher.whole())).unwrap_or_default();
    let zone = jiff::tz::TimeZone::system();
    let moment = jiff::Timestamp::from_nanosecond(index.base.into()).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    Ok(TraceOverview {
        version: 1,
        generation: opened.generation,
        base: index.base.to_string(),
        begin,
        end,
        progress: index.progress,
        growing: opened.is_growing,
        glimpses,
        seen,
        lanes: index.lanes.len(),
        name: workspace.name(),
        traces,
        events: index.event_count(),
        losses: Losses { events, packets, overwritten },
        damages: index.damages.clone(),
        disorders: index.disorders.clone(),
        timezone_offset_s: zone.to_offset(moment).seconds(),
        gone: opened.gone(),
        error: index.error.clone(),
        incident: incident(request, index.base),
        commands: workspace.commands.clone(),
        processes: workspace.processes.clone(),
        // The kernel appends words to the name of a removed folder.
        kept: workspace.storage.path().filter(|path| path.exists()).map(|path| path.display().to_string()),
    })
}

/// Describes the incident, if one is shown.
fn incident(request: &ApiRequest<'_>, base: i64) -> Option<IncidentSummary> {
    let incident = request.workspace.incident.as_ref()?;
    let offset = request.offset(0);
    let time = |time: i64| time.saturating_sub(base).saturating_add(offset);
    let culprits = incident.culprits.iter().map(|culprit| IncidentCause {
        words: culprit.words.clone(),
        tid: culprit.tid,
        percent: culprit.percent,
        time: time(culprit.time_ns),
    });
    let ((begin, end), (tid, name)) = (incident.span, incident.thread.clone());
    Some(IncidentSummary {
        begin: time(begin),
        end: time(end),
        limit: incident.limit,
        tid,
        name,
        job: incident.job.clone(),
        verdict: incident.verdict.clone(),
        culprits: culprits.collect(),
    })
}

/// Answers with the tree of tracks in drawing order.
pub fn tracks(request: &ApiRequest<'_>) -> ApiResult<TrackList> {
    let from = request.optional("from")?.unwrap_or(0);
    let index = request.opened.index();
    let hosts = hosts(request, &index);
    let shown = in_order(&index).into_iter().filter(|(id, is_shown)| *is_shown && i64::from(*id) >= from);
    let info = |(id, _): (u32, bool)| Some(track_info(&index, (id, index.tracks.get(id as usize)?), &hosts));
    let tracks = shown.filter_map(info).collect();
    Ok(TrackList { tracks, generation: request.opened.generation, progress: index.progress })
}

/// Returns the names of all machines, if there is more than one.
fn hosts(request: &ApiRequest<'_>, index: &Index) -> Vec<String> {
    let machines = index.machines.iter().map(|machine| usize::from(*machine) + 1).max().unwrap_or(0);
    let mut hosts = vec![String::new(); machines];
    for (machine, trace) in index.machines.iter().zip(&request.opened.traces) {
        if let Some(host) = hosts.get_mut(usize::from(*machine)) {
            host.clone_from(&trace.host);
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

fn track_info(index: &Index, (id, track): (u32, &Track), hosts: &[String]) -> TrackInfo {
    let name = match (index.label(track.name), track.kind) {
        (Some(name), _) => name.to_string(),
        (None, TrackKind::Thread) => format!("tid {}", track.number),
        (None, TrackKind::Process) => format!("pid {}", track.number),
        (None, _) => String::new(),
    };
    let trace = track.lanes.first().and_then(|lane| index.lanes.get(*lane as usize)).map(|lane| lane.trace);
    let mut info = TrackInfo {
        id,
        parent: track.parent.map_or(-1, i64::from),
        kind: track.kind.name(),
        name,
        host: hosts.get(usize::from(track.machine)).cloned(),
        trace: trace.filter(|_| index.events.len() > 1),
        lanes: lane_infos(index, track),
        ..TrackInfo::default()
    };
    match track.kind {
        TrackKind::Cpu => info.cpu = Some(track.number),
        TrackKind::Process => info.pid = Some(track.number),
        TrackKind::Thread => {
            (info.tid, info.busy) = (Some(track.number), Some(track.busy));
            info.pid = track.pid.map(i64::from);
        }
        TrackKind::Counter => info.unit = Some(""),
        TrackKind::Group | TrackKind::Channel => {}
    }
    info
}

/// Describes the drawn lanes of a track in their order.
fn lane_infos(index: &Index, track: &Track) -> Vec<LaneInfo> {
    let lane = |id: &u32| Some((*id, index.lanes.get(*id as usize)?));
    let mut lanes: Vec<(u32, &Lane)> = track.lanes.iter().filter_map(lane).collect();
    lanes.sort_by_key(|(_, lane)| lane_order(lane.kind, lane.depth));
    lanes.into_iter().filter_map(lane_info).collect()
}

/// Orders lanes: interrupts above what they interrupt, inner ones first; spans below their thread.
fn lane_order(kind: LaneKind, depth: u16) -> (u8, i32) {
    let depth = if kind == LaneKind::Interrupt { -i32::from(depth) } else { depth.into() };
    (kind as u8, depth)
}

fn lane_info((id, lane): (u32, &Lane)) -> Option<LaneInfo> {
    let mut info = LaneInfo { id, kind: lane.kind.name()?, ..LaneInfo::default() };
    let finite = |value: f64| if value.is_finite() { value } else { 0.0 };
    match lane.kind {
        LaneKind::Span | LaneKind::Interrupt => info.depth = Some(lane.depth),
        LaneKind::Counter => {
            (info.min, info.max) = (Some(finite(lane.range.0)), Some(finite(lane.range.1)));
        }
        _ => {}
    }
    Some(info)
}
