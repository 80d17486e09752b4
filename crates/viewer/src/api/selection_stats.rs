//! Statistics of an area: times by state, durations by name, events by class.

use std::collections::{BTreeMap, HashMap};

use tompion_reader::Selection;
use tompion_reader::calls::never_returns;

use super::answers::{
    AreaLosses, CpuTimes, ListLengths, SliceLocation, StateTimes, Statistics, ThreadInfo, ThreadTimes, Wait,
};
use super::row_reader::Shift;
use super::statistics::Durations;
use super::{ApiError, ApiRequest, ApiResult, detail};
use tompion_index::entry::Entry;
use tompion_index::lane::{Levels, Slice};
use tompion_index::slice_kind;
use tompion_index::{Index, LaneKind, TrackKind};

/// Maximum number of slices of an area that are read one by one; larger areas are read from a
/// coarser level.
pub const MAX_ENTRIES_READ: u64 = 1_500_000;
/// Maximum number of slices that are read and skipped: those outside the area, in blocks that reach
/// into it.
const MAX_ENTRIES_SKIPPED: u64 = 8 * MAX_ENTRIES_READ;
/// Minimum number of cells into which a coarser level divides the area.
const CELLS: i64 = 2000;
/// Default number of threads in the list: those that ran longest.
const THREADS: usize = 1000;
/// Default number of names in lists of durations: those that took most time.
const NAMES: usize = 500;
/// Maximum length of a list that a request may ask for.
const MAX_LIST: usize = 1 << 20;
/// Maximum number of waits in the list.
const MAX_WAITS: usize = 20;

/// Lanes of an area, ready to be read.
pub struct Area {
    /// Time window as far as everything is known. Slices that go on at its end have not ended, so
    /// they are unknown.
    pub window: (i64, i64),
    /// Time up to which everything is known.
    pub known: i64,
    /// Its lanes.
    pub lanes: Vec<AreaLane>,
    /// Whether entries stand for several slices.
    pub is_partial: bool,
    /// Slices narrower than this, in nanoseconds, may be merged with others; 0 if none are.
    pub narrow: i64,
    /// Approximate length in nanoseconds of an area here in which nothing is merged.
    pub exact: i64,
}

/// Lane of an area with its slices.
pub struct AreaLane {
    /// Number of the lane.
    pub id: u32,
    /// Number of its track.
    pub track: u32,
    /// Content of the lane.
    pub kind: LaneKind,
    /// Depth among the track's lanes of this kind.
    pub depth: u16,
    /// Clock offset in nanoseconds.
    pub offset: i64,
    /// Slices to read.
    pub slice: Slice,
}

impl AreaLane {
    /// Converts a time window of the page to the clock of the lane.
    pub fn times(&self, (from, to): (i64, i64)) -> (i64, i64) {
        (from.saturating_sub(self.offset), to.saturating_sub(self.offset))
    }
}

/// Lanes of an area, and how many slices are read for them.
#[derive(Default)]
struct FoundLanes {
    lanes: Vec<AreaLane>,
    /// Estimated number of slices inside the area.
    inside: u64,
    /// Number in all blocks that are read.
    in_blocks: u64,
}

impl Area {
    /// Finds the lanes of some kinds, of the requested tracks or all.
    pub fn new(
        request: &ApiRequest<'_>,
        index: &Index,
        wanted: &dyn Fn(LaneKind) -> bool,
    ) -> Result<Self, ApiError> {
        let (from, to) = request.window()?;
        let known = request.known(index);
        let window = (from, to.min(known).max(from));
        let all = request.lanes(index)?;
        let slices = |width: i64| {
            let mut found = FoundLanes::default();
            for &id in &all {
                let Some(lane) = index.lanes.get(id as usize).filter(|lane| wanted(lane.kind)) else {
                    continue;
                };
                let offset = request.offset(lane.trace as usize);
                let times = (window.0.saturating_sub(offset), window.1.saturating_sub(offset));
                let slice = lane.levels.slice(times, (width, &index.widths));
                if slice.count > 0 {
                    let outside = outside(&lane.levels, times, index.widths.level(width));
                    found.inside += slice.count.saturating_sub(outside);
                    found.in_blocks += slice.count;
                    let (track, kind, depth) = (lane.track, lane.kind, lane.depth);
                    found.lanes.push(AreaLane { id, track, kind, depth, offset, slice });
                }
            }
            found
        };
        let is_too_much =
            |found: &FoundLanes| found.inside > MAX_ENTRIES_READ || found.in_blocks > MAX_ENTRIES_SKIPPED;
        let mut found = slices(0);
        let exact =
            i128::from(window.1 - window.0) * i128::from(MAX_ENTRIES_READ) / i128::from(found.inside.max(1));
        let exact = i64::try_from(exact).unwrap_or(i64::MAX);
        let mut is_partial = false;
        let widest = ((window.1 - window.0) / CELLS).max(1);
        let mut width = index.widths.0.first().copied().unwrap_or(1);
        let mut narrow = 0;
        while is_too_much(&found) {
            is_partial = true;
            found = slices(width);
            narrow = index.widths.0.iter().copied().filter(|cell| *cell <= width).max().unwrap_or(width);
            if width >= widest {
                break;
            }
            width = width.saturating_mul(8);
        }
        Ok(Self { window, known, lanes: found.lanes, is_partial, narrow, exact })
    }
}

/// Estimates how many entries of a lane's level are outside an interval, but in blocks that reach
/// into it, if they are spread evenly over their blocks.
fn outside(levels: &Levels, (from, to): (i64, i64), level: usize) -> u64 {
    let level = level.min(levels.0.len().saturating_sub(1));
    let Some(level) = levels.0.get(level) else { return 0 };
    let first = level.blocks.partition_point(|block| block.end < from);
    let behind = level.blocks.get(first..).unwrap_or_default();
    let touched = behind.iter().take_while(|block| block.begin <= to);
    let outside = touched.filter(|block| block.begin < from || block.end > to).map(|block| {
        let whole = i128::from(block.end) - i128::from(block.begin) + 1;
        let inside = i128::from(block.end.min(to)) - i128::from(block.begin.max(from)) + 1;
        i128::from(block.count) * (whole - inside.clamp(0, whole)) / whole.max(1)
    });
    u64::try_from(outside.sum::<i128>()).unwrap_or(0)
}

/// Times of a CPU, in nanoseconds.
#[derive(Default)]
struct CpuSums {
    busy: i64,
    idle: i64,
    unknown: i64,
    /// Several merged states.
    mixed: i64,
    interrupts: i64,
    /// Whether interrupts were merged, so that their time is unknown.
    has_merged_interrupts: bool,
}

#[derive(Default)]
struct Sums {
    threads: HashMap<u32, StateTimes>,
    cpus: BTreeMap<u32, CpuSums>,
    spans: Durations,
    syscalls: Durations,
    interrupts: Durations,
    waits: Vec<(i64, u32, Entry)>,
    losses: [u64; 2],
}

impl Sums {
    /// Adds an entry of a lane, of which `time` nanoseconds are inside the area.
    fn add(&mut self, lane: &AreaLane, entry: &Entry, time: i64) {
        let AreaLane { id, track, kind, offset, .. } = *lane;
        match kind {
            LaneKind::Thread => {
                let times = self.threads.entry(track).or_default();
                let sum = match entry.style {
                    _ if entry.count > 1 => &mut times.mixed,
                    slice_kind::RUNNING => &mut times.running,
                    slice_kind::RUNNABLE => &mut times.ready,
                    slice_kind::RUNNABLE_PREEMPTED => &mut times.preempted,
                    slice_kind::UNKNOWN => &mut times.unknown,
                    slice_kind::UNINTERRUPTIBLE => &mut times.io,
                    slice_kind::STOPPED | slice_kind::NEW => &mut times.stopped,
                    _ => &mut times.blocked,
                };
                *sum = sum.saturating_add(time);
                if matches!(entry.style, slice_kind::RUNNABLE | slice_kind::RUNNABLE_PREEMPTED)
                    && entry.count == 1
                {
                    self.wait(id, entry);
                }
            }
            LaneKind::Cpu => {
                let times = self.cpus.entry(track).or_default();
                let sum = match entry.style {
                    _ if entry.count > 1 => &mut times.mixed,
                    slice_kind::RUNNING => &mut times.busy,
                    slice_kind::IDLE => &mut times.idle,
                    _ => &mut times.unknown,
                };
                *sum = sum.saturating_add(time);
            }
            LaneKind::Interrupt | LaneKind::SoftInterrupt => {
                let times = self.cpus.entry(track).or_default();
                if entry.count > 1 {
                    times.has_merged_interrupts = true;
                } else {
                    times.interrupts = times.interrupts.saturating_add(time);
                }
                self.interrupts.add(id, (entry, time), offset);
            }
            LaneKind::Syscall => self.syscalls.add(id, (entry, time), offset),
            LaneKind::Span => self.spans.add(id, (entry, time), offset),
            LaneKind::Lost => self.losses[0] = self.losses[0].saturating_add(entry.count),
            LaneKind::Overwritten => self.losses[1] = self.losses[1].saturating_add(entry.count),
            LaneKind::Marks | LaneKind::Counter | LaneKind::Density => {}
        }
    }

    fn wait(&mut self, id: u32, entry: &Entry) {
        let duration = entry.duration();
        if self.waits.len() == MAX_WAITS && self.waits.last().is_some_and(|least| least.0 >= duration) {
            return;
        }
        let place = self.waits.partition_point(|wait| wait.0 >= duration);
        self.waits.insert(place, (duration, id, *entry));
        self.waits.truncate(MAX_WAITS);
    }
}

/// Answers with the statistics of an area.
pub fn selection_stats(request: &ApiRequest<'_>) -> ApiResult<Statistics> {
    let wanted = |kind| !matches!(kind, LaneKind::Marks | LaneKind::Counter | LaneKind::Density);
    let (store, area) = {
        let index = request.opened.index();
        let area = Area::new(request, &index, &wanted)?;
        (index.store.clone(), area)
    };
    let (from, to) = area.window;
    let mut sums = Sums::default();
    for lane in &area.lanes {
        let times = lane.times((from, to));
        lane.slice.read(&store, times, &mut |entry| {
            let time = entry.end.min(times.1).saturating_sub(entry.begin.max(times.0)).max(0);
            sums.add(lane, entry, time);
            true
        })?;
    }
    {
        let index = request.opened.index();
        sums.syscalls
            .leave_out_unfinished(|label| index.label(label).is_some_and(|call| never_returns(call)));
    }
    // Events of some tracks must be read, which takes long; the page requests them separately.
    let is_of_all = request.query.text("tracks").is_none();
    let events = is_of_all.then(|| if from <= area.known { events(request, (from, to)) } else { Vec::new() });
    let most = request.optional("most")?.map(|most| usize::try_from(most).unwrap_or(0).clamp(1, MAX_LIST));
    let (most_threads, most_names) = (most.unwrap_or(THREADS), most.unwrap_or(NAMES));
    let names = (most_names, area.narrow);
    let counts = ListLengths {
        threads: sums.threads.len(),
        spans: sums.spans.len(),
        syscalls: sums.syscalls.len(),
        interrupts: sums.interrupts.len(),
    };
    let waits = waits(request, &sums.waits)?;
    let index = request.opened.index();
    let asked = request.window()?;
    Ok(Statistics {
        duration: asked.1 - asked.0,
        events,
        threads: threads(&index, sums.threads, most_threads),
        cpus: cpus(&index, sums.cpus),
        spans: sums.spans.into_stats(&index, names),
        syscalls: sums.syscalls.into_stats(&index, names),
        interrupts: sums.interrupts.into_stats(&index, names),
        counts,
        losses: AreaLosses { events: sums.losses[0], overwritten: sums.losses[1] },
        waits,
        partial: area.is_partial,
        narrow: area.narrow,
        exact: area.exact,
        known: area.known,
    })
}

/// Returns the longest waits for a CPU, each with its reason in the words of the entry's own panel.
fn waits(request: &ApiRequest<'_>, waits: &[(i64, u32, Entry)]) -> ApiResult<Vec<Wait>> {
    let offset = |lane: u32| {
        let trace = request.opened.index().lanes.get(lane as usize).map_or(0, |lane| lane.trace);
        request.offset(trace as usize)
    };
    let mut found = Vec::new();
    for (_, lane, entry) in waits {
        let offset = offset(*lane);
        // This call locks the index, so it must not be locked here.
        let preemptors = detail::preemptors(request, *lane, (entry, offset))?;
        let Some(wait) = wait(&request.opened.index(), (*lane, entry), offset) else { continue };
        found.push(Wait { why: preemptors.or(wait.why), ..wait });
    }
    Ok(found)
}

fn wait(index: &Index, (id, entry): (u32, &Entry), offset: i64) -> Option<Wait> {
    let lane = index.lanes.get(id as usize)?;
    let ThreadInfo { tid, name, pid, .. } = detail::thread_info(index, lane.track)?;
    let (begin, end) = (entry.begin.saturating_add(offset), entry.end.saturating_add(offset));
    let (style, why) = (entry.style, detail::cause(index, lane, entry));
    Some(Wait {
        tid,
        name,
        pid,
        track: lane.track,
        location: SliceLocation { lane: id, begin, end },
        style,
        why,
    })
}

fn threads(index: &Index, threads: HashMap<u32, StateTimes>, most: usize) -> Vec<ThreadTimes> {
    let mut threads: Vec<(u32, StateTimes)> = threads.into_iter().collect();
    threads.sort_by_key(|(track, times)| (std::cmp::Reverse((times.running, times.mixed)), *track));
    let with_thread = |(id, times)| Some(ThreadTimes { thread: detail::thread_info(index, id)?, times });
    threads.into_iter().take(most).filter_map(with_thread).collect()
}

fn cpus(index: &Index, cpus: BTreeMap<u32, CpuSums>) -> Vec<CpuTimes> {
    let times = |(id, sums): (u32, CpuSums)| {
        let track = index.tracks.get(id as usize).filter(|track| track.kind == TrackKind::Cpu)?;
        let times = CpuTimes {
            cpu: track.number,
            track: id,
            busy: sums.busy,
            idle: sums.idle,
            unknown: sums.unknown,
            mixed: sums.mixed,
            interrupts: (!sums.has_merged_interrupts).then_some(sums.interrupts),
        };
        Some((track.machine, times))
    };
    let mut found: Vec<_> = cpus.into_iter().filter_map(times).collect();
    found.sort_by_key(|(machine, times)| (*machine, times.cpu));
    found.into_iter().map(|(_, times)| times).collect()
}

/// Counts the events of all tracks by class in an interval that is completely known. Whole parts
/// were counted by the index; the first and the last one are read.
fn events(request: &ApiRequest<'_>, (from, to): (i64, i64)) -> Vec<(String, u64)> {
    let opened = request.opened;
    let (base, classes, known) = {
        let index = opened.index();
        (index.base, index.classes.clone(), index.parts.clone())
    };
    let mut counts: HashMap<&str, u64> = HashMap::new();
    for shift in Shift::all(request) {
        let by = base.saturating_sub(shift.offset);
        let (from, to) = (from.saturating_add(by), to.saturating_add(by));
        let (first, last) = (opened.parts.at(from), opened.parts.at(to));
        for part in first..=last {
            let is_whole = part != first && part != last;
            match known.get(part).filter(|_| is_whole) {
                Some(rows) => {
                    for (class, count) in shift.counts(&rows.counts, &opened.trace_of_class) {
                        let name = classes.get(class as usize).map_or("", |name| name);
                        *counts.entry(name).or_default() += count;
                    }
                }
                None => {
                    let selection = Selection { from: Some(from), to: Some(to), ..Selection::default() };
                    let Some(mut traces) = opened.read(part, selection) else { continue };
                    while let Some(event) = traces.next_event() {
                        if !shift.has(event.trace_index()) {
                            continue;
                        }
                        let name =
                            classes.iter().find(|name| &***name == event.name()).map_or("", |name| name);
                        *counts.entry(name).or_default() += 1;
                    }
                }
            }
        }
    }
    sorted_counts(counts)
}

/// Sorts counts of event classes, the largest first.
pub fn sorted_counts(counts: HashMap<&str, u64>) -> Vec<(String, u64)> {
    let mut counts: Vec<(&str, u64)> = counts.into_iter().collect();
    counts.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
    counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tompion_index::lane::{Block, Level};

    #[test]
    fn times_of_merged_states_belong_to_none_of_them() {
        let mut sums = Sums::default();
        let running = |count| Entry { end: 100, style: slice_kind::RUNNING, count, ..Entry::default() };
        for kind in [LaneKind::Thread, LaneKind::Cpu, LaneKind::Interrupt] {
            let lane = AreaLane { id: 0, track: 1, kind, depth: 0, offset: 0, slice: Slice::default() };
            sums.add(&lane, &running(1), 100);
            sums.add(&lane, &running(30), 100);
        }
        let thread = &sums.threads[&1];
        assert_eq!((thread.running, thread.mixed), (100, 100));
        let cpu = &sums.cpus[&1];
        assert_eq!((cpu.busy, cpu.mixed, cpu.has_merged_interrupts), (100, 100, true));
    }

    #[test]
    fn what_stands_beside_an_area_makes_it_no_larger() {
        let block = |begin, end| Block { begin, end, place: 0, bytes: 4096, count: 500 };
        let blocks = vec![block(0, 999), block(1000, 1999), block(2000, 2999)];
        let levels = Levels(vec![Level::of(blocks)]);
        assert_eq!(outside(&levels, (0, 2999), 0), 0);
        assert_eq!(outside(&levels, (1500, 1509), 0), 495);
        assert_eq!(outside(&levels, (500, 2499), 4), 500);
    }
}
