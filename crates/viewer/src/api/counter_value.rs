//! Values of counters and counts of channels at one time. Neither has slices: a counter keeps its
//! value until the next one, and a channel has so many events, or lost so many, in an interval.

use super::answers::{EventTotals, NoSlice, SliceAnswer, SliceBrief, SliceDetail};
use super::detail::{Around, fields_at};
use super::{ApiError, ApiRequest, ApiResult, MAX_TIME_NS};
use tompion_index::entry::Entry;
use tompion_index::slice_kind;
use tompion_index::{Index, Lane, LaneKind};

/// Maximum number of cells into which an interval is divided when its events are counted.
const CELLS: i64 = 1000;

/// Answers with the value of a counter at a time, and the time up to which it has that value.
pub fn counter(request: &ApiRequest<'_>, id: u32, time: i64) -> ApiResult<SliceAnswer> {
    let around = Around::find(request, id, time)?;
    let point = |place: Option<usize>| around.entries.get(place?).copied();
    let before = around.after.checked_sub(1);
    let Some(entry) = point(before) else { return Ok(SliceAnswer::None(NoSlice::of(id))) };
    let next = point(Some(around.after));
    let fields = fields_at(request, (id, &entry));
    let index = request.opened.index();
    let Some(lane) = index.lanes.get(id as usize) else { return Ok(SliceAnswer::None(NoSlice::of(id))) };
    let end = next.map_or_else(|| index.end.max(entry.begin), |next| next.begin);
    let neighbour = |entry: Option<Entry>, end: i64| {
        entry.map(|entry| {
            let label = entry.values.last.to_string();
            brief((label, slice_kind::COUNTER), (entry.begin, end), around.offset)
        })
    };
    let earlier = point(before.and_then(|place| place.checked_sub(1)));
    let later = point(Some(around.after + 1)).map_or(index.end, |entry| entry.begin);
    Ok(SliceAnswer::Found(Box::new(SliceDetail {
        lane: id,
        track: lane.track,
        style: slice_kind::COUNTER,
        state: slice_kind::name(slice_kind::COUNTER),
        label: name(&index, lane),
        begin: entry.begin.saturating_add(around.offset),
        end: end.saturating_add(around.offset),
        seen: [true, next.is_some()],
        fields,
        before: neighbour(earlier, entry.begin),
        after: neighbour(next, later),
        value: Some(entry.values.last),
        range: Some([lane.range.0, lane.range.1]),
        ..SliceDetail::default()
    })))
}

/// Answers with the number of events of a channel around a time, and the number of missing ones.
/// Where events are missing, the whole interval of the loss is counted; else as much as the request
/// calls near.
pub fn channel(request: &ApiRequest<'_>, id: u32, time: i64) -> ApiResult<SliceAnswer> {
    let near = request.optional("near")?.unwrap_or(0).clamp(0, MAX_TIME_NS);
    let (lanes, store, offset, chosen) = {
        let index = request.opened.index();
        let lane =
            index.lanes.get(id as usize).ok_or_else(|| ApiError::bad_request("there is no such lane"))?;
        let offset = request.offset(lane.trace as usize);
        let lanes = [id].into_iter().chain(missing_lanes(&index, lane)).collect::<Vec<_>>();
        let time = time.saturating_sub(offset);
        let window = (time.saturating_sub(near), time.saturating_add(near));
        let slices: Vec<_> = lanes.iter().skip(1).map(|lane| index.slice(*lane, window, near / 8)).collect();
        (lanes, index.store.clone(), offset, (slices, window))
    };
    let (slices, window) = chosen;
    let moment = time.saturating_sub(offset);
    let away =
        |entry: &Entry| entry.begin.saturating_sub(moment).max(moment.saturating_sub(entry.end)).max(0);
    let mut missing: Option<Entry> = None;
    for slice in slices {
        slice.read(&store, window, &mut |entry| {
            // A loss tells more than what a flight recorder overwrites on purpose.
            let rank = |entry: &Entry| (entry.style != slice_kind::LOST, away(entry));
            if missing.as_ref().is_none_or(|known| rank(entry) < rank(known)) {
                missing = Some(*entry);
            }
            true
        })?;
    }
    let span = missing.map_or(window, |entry| (entry.begin, entry.end.max(entry.begin)));
    let style = missing.map_or(slice_kind::DENSITY, |entry| entry.style);
    let counts = counts(request, &lanes, span)?;
    let neighbours = match missing.and(lanes.get(1)) {
        Some(_) => neighbours(request, &lanes, span, offset)?,
        None => [None, None],
    };
    let index = request.opened.index();
    let Some(lane) = index.lanes.get(id as usize) else { return Ok(SliceAnswer::None(NoSlice::of(id))) };
    let [before, after] = neighbours;
    Ok(SliceAnswer::Found(Box::new(SliceDetail {
        lane: id,
        track: lane.track,
        style,
        state: slice_kind::name(style),
        label: name(&index, lane),
        begin: span.0.saturating_add(offset),
        end: span.1.saturating_add(offset),
        seen: [true, true],
        before,
        after,
        counts: Some(counts),
        ..SliceDetail::default()
    })))
}

/// Returns the lane with the losses of a channel.
pub fn missing(request: &ApiRequest<'_>, id: u32) -> Option<u32> {
    let index = request.opened.index();
    missing_lanes(&index, index.lanes.get(id as usize)?).next()
}

/// Returns the lanes with a channel's missing events: lost ones first.
fn missing_lanes<'i>(index: &'i Index, lane: &Lane) -> impl Iterator<Item = u32> + use<'i> {
    let track = lane.track;
    [LaneKind::Lost, LaneKind::Overwritten].into_iter().filter_map(move |kind| index.lane_of(track, kind))
}

/// Counts the events of an interval: recorded, lost and overwritten ones.
fn counts(request: &ApiRequest<'_>, lanes: &[u32], span: (i64, i64)) -> Result<EventTotals, ApiError> {
    let (store, slices) = {
        let index = request.opened.index();
        let width = span.1.saturating_sub(span.0) / CELLS;
        let slices: Vec<_> = lanes.iter().map(|lane| index.slice(*lane, span, width)).collect();
        (index.store.clone(), slices)
    };
    let mut sums = [0u64; 3];
    for slice in slices {
        slice.read(&store, span, &mut |entry| {
            let which = match entry.style {
                slice_kind::LOST => 1,
                slice_kind::OVERWRITTEN => 2,
                _ => 0,
            };
            if let Some(sum) = sums.get_mut(which) {
                *sum = sum.saturating_add(share(entry, span));
            }
            true
        })?;
    }
    let [events, lost, overwritten] = sums;
    Ok(EventTotals { events, lost, overwritten })
}

/// Returns how many of an entry's events are in an interval, if they are spread evenly over it.
fn share(entry: &Entry, (from, to): (i64, i64)) -> u64 {
    let whole = i128::from(entry.end.max(entry.begin)) - i128::from(entry.begin) + 1;
    let inside = i128::from(entry.end.max(entry.begin).min(to)) - i128::from(entry.begin.max(from)) + 1;
    let share = i128::from(entry.count) * inside.clamp(0, whole) / whole;
    u64::try_from(share).unwrap_or(u64::MAX).max(u64::from(entry.count > 0))
}

/// Returns the intervals with missing events before and after an interval.
fn neighbours(
    request: &ApiRequest<'_>,
    lanes: &[u32],
    (from, to): (i64, i64),
    offset: i64,
) -> Result<[Option<SliceBrief>; 2], ApiError> {
    let (mut before, mut after): (Option<Entry>, Option<Entry>) = (None, None);
    for lane in lanes.iter().skip(1) {
        for time in [from, to] {
            for entry in Around::find(request, *lane, time.saturating_add(offset))?.entries {
                if entry.end.max(entry.begin) < from && before.is_none_or(|known| known.begin < entry.begin) {
                    before = Some(entry);
                }
                if entry.begin > to && after.is_none_or(|known| known.begin > entry.begin) {
                    after = Some(entry);
                }
            }
        }
    }
    let brief = |entry: Option<Entry>| {
        entry.map(|entry| {
            let label = format!("{} {}", entry.count, slice_kind::name(entry.style));
            brief((label, entry.style), (entry.begin, entry.end), offset)
        })
    };
    Ok([brief(before), brief(after)])
}

fn name(index: &Index, lane: &Lane) -> String {
    let name = index.tracks.get(lane.track as usize).map_or(0, |track| track.name);
    index.label(name).map(ToString::to_string).unwrap_or_default()
}

fn brief((label, style): (String, u8), (begin, end): (i64, i64), offset: i64) -> SliceBrief {
    SliceBrief { label, style, begin: begin.saturating_add(offset), end: end.saturating_add(offset) }
}
