//! Contents of lanes: slices, points and bins, and arrows between lanes.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::answers::{ArrowList, LaneShape, LanesHead};
use super::{ApiError, ApiRequest, ApiResult};
use tompion_index::entry::Entry;
use tompion_index::extra::Extra;
use tompion_index::indexer::OUTLINE_CELLS;
use tompion_index::lane::{Merge, Slice};
use tompion_index::preview::{PreviewRange, Window};
use tompion_index::slice_kind;
use tompion_index::store::Store;
use tompion_index::{Index, LaneKind};

/// Maximum number of lanes in an answer.
const MAX_LANES: usize = 1000;
/// Maximum number of arrows in an answer.
const MAX_ARROWS: usize = 2000;
/// Maximum number of arrows that are read one by one for an answer.
const MAX_ENTRIES_READ: u64 = 200_000;
/// Bytes of an event, where nothing better is known.
const EVENT: u32 = 32;

/// Sources of entries that all lanes of an answer share.
struct Sources<'s> {
    store: &'s Store,
    preview: &'s PreviewRange,
    /// Time up to which the index has everything, and the end of the traces.
    known: i64,
    end: i64,
}

/// Source of a lane's answer that needs no lock on the index.
struct LaneReader {
    id: u32,
    kind: LaneKind,
    offset: i64,
    slice: Slice,
    /// Entries around the window's begin: a counter keeps the value that it had before.
    before: Slice,
    /// Lost and overwritten events of a channel.
    beside: Vec<Slice>,
    outline: Option<Vec<u32>>,
}

/// Answers with slices, points and bins, as bytes:
///
/// ```text
/// length of the head   4 bytes; all numbers are little-endian
/// head                 JSON: { "from", "to", "known", "labels": [...],
///                              "lanes": [[id, shape, count], ...] }
///                      and spaces up to a multiple of 8 bytes; `known` is the time up to which
///                      everything is known
/// each lane            boxes:  begin and end of each (f64), label numbers (i32, -1 for none),
///                              counts (u32), styles (u8)
///                      points: time, minimum, maximum and last value of each (f64)
///                      bins:   time, events, lost and overwritten events of each (f64)
///                      zeros up to a multiple of 8 bytes
/// ```
///
/// A screen has some fifty thousand slices: as text, writing and parsing them would take longest.
pub fn lanes(request: &ApiRequest<'_>) -> ApiResult<Vec<u8>> {
    let (from, to) = request.window()?;
    let ids = request.ids()?;
    if ids.len() > MAX_LANES {
        return Err(ApiError::bad_request(format!(
            "expected at most {MAX_LANES} lanes, found {}",
            ids.len()
        )));
    }
    let window = Window { from, to, pixel: ((to - from) / request.width()?).max(1) };
    let offsets = &request.offsets;
    let (store, readings, (known, shown_known), end) = {
        let index = request.opened.index();
        let reading = |id: &u32| LaneReader::new(&index, *id, window, offsets);
        let known = (index.known(), request.known(&index));
        (index.store.clone(), ids.iter().filter_map(reading).collect::<Vec<_>>(), known, index.end)
    };
    // Event counts of unread parts are known from packet headers.
    let has_more = readings.iter().any(|reading| reading.kind != LaneKind::Density);
    let preview = request.preview((from, to), (known, has_more && !request.is_again()));
    let (mut labels, mut body, mut heads) = (Labels::default(), Vec::new(), Vec::new());
    let sources = Sources { store: &store, preview: &preview, known, end };
    for reading in readings {
        let (shape, count) = match reading.kind {
            LaneKind::Counter => (LaneShape::Points, reading.points(window, &sources, &mut body)?),
            LaneKind::Density => (LaneShape::Bins, reading.bins(window, &sources, &mut body)?),
            _ => (LaneShape::Boxes, reading.boxes(window, &sources, &mut labels, &mut body)?),
        };
        heads.push((reading.id, shape, count));
        pad(&mut body, 0);
    }
    let index = request.opened.index();
    let labels = labels.numbers.into_iter().map(|label| &**index.labels.text(label)).collect();
    let head = LanesHead { from, to, known: shown_known, lanes: heads, labels };
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, &head)?;
    pad(&mut bytes, b' ');
    let length = (bytes.len() - 4) as u32;
    bytes.splice(..4, length.to_le_bytes());
    bytes.append(&mut body);
    if has_more {
        request.opened.gate.page_shown();
    }
    Ok(bytes)
}

/// Fills up to a multiple of eight bytes.
fn pad(bytes: &mut Vec<u8>, with: u8) {
    bytes.resize(bytes.len().next_multiple_of(8), with);
}

/// Labels of an answer, numbered by their first use in it.
#[derive(Default)]
struct Labels {
    numbers: Vec<u32>,
    known: HashMap<u32, i32>,
}

impl Labels {
    fn number(&mut self, label: u32) -> i32 {
        if label == 0 {
            return -1;
        }
        *self.known.entry(label).or_insert_with(|| {
            self.numbers.push(label);
            (self.numbers.len() - 1) as i32
        })
    }
}

impl LaneReader {
    fn new(index: &Index, id: u32, window: Window, offsets: &[i64]) -> Option<Self> {
        let lane = index.lanes.get(id as usize)?;
        let offset = offsets.get(lane.trace as usize).copied().unwrap_or(0);
        let times = (window.from.saturating_sub(offset), window.to.saturating_sub(offset));
        let slice = index.slice(id, times, window.pixel);
        let before = match lane.kind {
            LaneKind::Counter => lane.levels.slice_around(times.0),
            _ => Slice::default(),
        };
        let mut beside = Vec::new();
        if lane.kind == LaneKind::Density {
            let track = index.tracks.get(lane.track as usize)?;
            let others = track.lanes.iter().filter(|&&other| {
                index
                    .lanes
                    .get(other as usize)
                    .is_some_and(|it| matches!(it.kind, LaneKind::Lost | LaneKind::Overwritten))
            });
            beside.extend(others.map(|&other| index.slice(other, times, window.pixel)));
        }
        let outline = index.outlines.get(&id).cloned();
        Some(Self { id, kind: lane.kind, offset, slice, before, beside, outline })
    }

    fn times(&self, window: Window) -> (i64, i64) {
        (window.from.saturating_sub(self.offset), window.to.saturating_sub(self.offset))
    }

    /// Returns the entries of the slice, narrow ones merged one per pixel, and the previews behind
    /// them.
    fn merged(&self, window: Window, sources: &Sources<'_>) -> std::io::Result<Vec<Entry>> {
        let (mut merge, mut entries) = (Merge::default(), Vec::new());
        self.slice.read(sources.store, self.times(window), &mut |entry| {
            merge.push(entry, window.pixel, &mut |entry| entries.push(entry));
            true
        })?;
        merge.finish(&mut |entry| entries.push(entry));
        let (from, to) = self.times(window);
        let own = Window { from, to, ..window };
        sources.preview.merged((self.id, self.kind), own, &mut |entry| entries.push(entry));
        Ok(entries)
    }

    fn boxes(
        &self,
        window: Window,
        sources: &Sources<'_>,
        labels: &mut Labels,
        bytes: &mut Vec<u8>,
    ) -> Result<usize, ApiError> {
        let entries = self.merged(window, sources)?;
        for entry in &entries {
            let times = [entry.begin.saturating_add(self.offset), entry.end.saturating_add(self.offset)];
            bytes.extend(times.into_iter().flat_map(|time| (time as f64).to_le_bytes()));
        }
        bytes.extend(entries.iter().flat_map(|entry| labels.number(entry.label).to_le_bytes()));
        let count = |entry: &Entry| u32::try_from(entry.count).unwrap_or(u32::MAX);
        bytes.extend(entries.iter().flat_map(|entry| count(entry).to_le_bytes()));
        bytes.extend(entries.iter().map(|entry| entry.style));
        Ok(entries.len())
    }

    fn points(&self, window: Window, sources: &Sources<'_>, bytes: &mut Vec<u8>) -> Result<usize, ApiError> {
        let mut entries = self.merged(window, sources)?;
        let from = self.times(window).0;
        let first = entries.first().map_or(from, |entry| entry.begin.min(from));
        let mut before = None;
        self.before.read(sources.store, (i64::MIN, first.saturating_sub(1)), &mut |entry| {
            before = Some(*entry);
            true
        })?;
        entries.splice(..0, before);
        for entry in &entries {
            let time = entry.begin.saturating_add(self.offset) as f64;
            let values = [time, entry.values.min, entry.values.max, entry.values.last];
            bytes.extend(values.into_iter().flat_map(f64::to_le_bytes));
        }
        Ok(entries.len())
    }

    fn bins(
        &self,
        window: Window,
        &Sources { store, known, end, .. }: &Sources<'_>,
        bytes: &mut Vec<u8>,
    ) -> Result<usize, ApiError> {
        let mut bins: BTreeMap<i64, [u64; 3]> = BTreeMap::new();
        let cell = |time: i64| (time - window.from).div_euclid(window.pixel);
        for slice in std::iter::once(&self.slice).chain(&self.beside) {
            slice.read(store, self.times(window), &mut |entry| {
                let which = match entry.style {
                    slice_kind::LOST => 1,
                    slice_kind::OVERWRITTEN => 2,
                    _ => 0,
                };
                let (begin, end) =
                    (entry.begin.saturating_add(self.offset), entry.end.saturating_add(self.offset));
                if which == 0 {
                    spread((begin, end, entry.count), window, &mut |cell, count| {
                        bins.entry(cell).or_default()[0] += count;
                    });
                    return true;
                }
                let first = cell(begin.clamp(window.from, window.to));
                let last = cell(end.clamp(window.from, window.to));
                let each = (entry.count / (last - first + 1).max(1) as u64).max(1);
                for cell in first..=last {
                    if let Some(sum) = bins.entry(cell).or_default().get_mut(which) {
                        *sum += each;
                    }
                }
                true
            })?;
        }
        // For unread parts, packet headers give the amount of data.
        if let Some(outline) = &self.outline {
            let width = (end / OUTLINE_CELLS as i64).max(1);
            for (part, bytes) in outline.iter().enumerate().filter(|(_, bytes)| **bytes > 0) {
                let begin = width.saturating_mul(part as i64).saturating_add(self.offset);
                let middle = begin.saturating_add(width / 2);
                if middle > known && middle >= window.from && middle <= window.to {
                    let bin = bins.entry(cell(begin.max(window.from))).or_default();
                    bin[0] += u64::from((bytes / EVENT).max(1));
                }
            }
        }
        for (cell, counts) in &bins {
            let time = window.from.saturating_add(cell.saturating_mul(window.pixel));
            bytes.extend((time as f64).to_le_bytes());
            bytes.extend(counts.iter().flat_map(|count| (*count as f64).to_le_bytes()));
        }
        Ok(bins.len())
    }
}

/// Spreads the events of an entry over the pixels of its interval, in proportion to their time. All
/// events are assigned, except to pixels outside the window.
fn spread((begin, end, count): (i64, i64, u64), window: Window, give: &mut dyn FnMut(i64, u64)) {
    let end = end.max(begin).saturating_add(1);
    let whole = i128::from(end) - i128::from(begin);
    let before = |time: i64| {
        let passed = i128::from(time.clamp(begin, end)) - i128::from(begin);
        u64::try_from(i128::from(count) * passed / whole.max(1)).unwrap_or(count)
    };
    let cell = |time: i64| (time - window.from).div_euclid(window.pixel);
    let edge = |cell: i64| window.from.saturating_add(cell.saturating_mul(window.pixel));
    if end <= window.from || begin > window.to {
        return;
    }
    for cell in cell(begin.max(window.from))..=cell((end - 1).min(window.to)) {
        let share = before(edge(cell + 1)).saturating_sub(before(edge(cell)));
        if share > 0 {
            give(cell, share);
        }
    }
}

/// Answers with wakeups and flows between lanes.
pub fn arrows(request: &ApiRequest<'_>) -> ApiResult<ArrowList> {
    let (from, to) = request.window()?;
    let ids: HashSet<u32> = request.ids()?.into_iter().collect();
    let is_shifted = request.offsets.iter().any(|offset| *offset != 0);
    // Events that are shifted into the window have other times in the index.
    let least = request.offsets.iter().copied().min().unwrap_or(0);
    let most = request.offsets.iter().copied().max().unwrap_or(0);
    let window = (from.saturating_sub(most), to.saturating_sub(least));
    let (store, slice, is_whole, offsets) = {
        let index = request.opened.index();
        let exact = index.arrows.slice_unordered(window, (0, &index.widths));
        let pixel = ((to - from) / MAX_ARROWS as i64).max(1);
        let is_whole = exact.count <= MAX_ENTRIES_READ;
        let slice =
            if is_whole { exact } else { index.arrows.slice_unordered(window, (pixel, &index.widths)) };
        let lanes = index.lanes.iter().filter(|_| is_shifted);
        let offsets: Vec<i64> = lanes.map(|lane| request.offset(lane.trace as usize)).collect();
        (index.store.clone(), slice, is_whole, offsets)
    };
    let offset =
        |lane: u64| usize::try_from(lane).ok().and_then(|lane| offsets.get(lane)).copied().unwrap_or(0);
    let is_wanted = |lane: u64| ids.is_empty() || u32::try_from(lane).is_ok_and(|lane| ids.contains(&lane));
    let mut found = Arrows { all: Vec::new(), has_more: !is_whole, step: 1, passed: 0 };
    slice.read(&store, window, &mut |entry| {
        let Extra::Lane(to_lane) = entry.extra else { return true };
        if is_wanted(entry.label.into()) && is_wanted(to_lane.into()) {
            let begin = entry.begin.saturating_add(offset(entry.label.into()));
            let end = entry.end.saturating_add(offset(to_lane.into()));
            if !is_shifted || begin.max(end) >= from && begin.min(end) <= to {
                found.add(Entry { begin, end, ..*entry });
            }
        }
        true
    })?;
    let mut arrows: Vec<i64> = Vec::with_capacity(found.all.len() * 5);
    for entry in found.all {
        let Extra::Lane(to_lane) = entry.extra else { continue };
        let kind = i64::from(entry.style == slice_kind::FLOW);
        arrows.extend([entry.begin, entry.label.into(), entry.end, to_lane.into(), kind]);
    }
    Ok(ArrowList { arrows, more: found.has_more })
}

/// Arrows found so far. Where there are too many, every n-th is kept.
struct Arrows {
    all: Vec<Entry>,
    has_more: bool,
    step: usize,
    passed: usize,
}

impl Arrows {
    fn add(&mut self, entry: Entry) {
        self.passed += 1;
        if self.passed % self.step == 0 {
            self.all.push(entry);
        }
        if self.all.len() > MAX_ARROWS {
            self.has_more = true;
            self.step *= 2;
            let mut keep = false;
            self.all.retain(|_| {
                keep = !keep;
                keep
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(entry: (i64, i64, u64)) -> Vec<(i64, u64)> {
        let mut shares = Vec::new();
        spread(entry, Window { from: 1000, to: 1999, pixel: 100 }, &mut |cell, count| {
            shares.push((cell, count));
        });
        shares
    }

    #[test]
    fn events_of_a_cell_are_shared_among_its_pixels() {
        assert_eq!(shares((1200, 1200, 1)), [(2, 1)]);
        assert_eq!(shares((1150, 1249, 10)), [(1, 5), (2, 5)]);
        // None is lost where they can't be spread evenly.
        assert_eq!(shares((1050, 1349, 7)), [(0, 1), (1, 2), (2, 2), (3, 2)]);
        assert_eq!(shares((1000, 1999, 1000)).len(), 10);
    }

    #[test]
    fn events_beside_the_window_are_not_drawn_at_its_edge() {
        assert_eq!(shares((900, 1099, 100)), [(0, 50)]);
        assert_eq!(shares((1900, 2099, 100)), [(9, 50)]);
        assert_eq!(shares((0, 999, 100)), []);
        assert_eq!(shares((2000, 2999, 100)), []);
        assert_eq!(shares((i64::MIN, i64::MAX, 1)), []);
    }
}
