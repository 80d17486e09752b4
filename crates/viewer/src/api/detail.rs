//! One slice: its description, its neighbours, and the events with which it began and ended.

use std::collections::HashMap;

use tompion_reader::{Event, Selection, text};
use tompion_schema::{Kind, base_name};

use super::answers::{
    Blockers, NoSlice, NoStep, Relations, SliceAnswer, SliceBrief, SliceDetail, Step, StepAnswer, ThreadInfo,
    ThreadLink,
};
use super::{ApiError, ApiRequest, ApiResult, counter_value};
use tompion_index::entry::Entry;
use tompion_index::extra::{Extra, WakeupSource};
use tompion_index::lane::Slice;
use tompion_index::slice_kind;
use tompion_index::store::Store;
use tompion_index::{Index, Lane, LaneKind, Track, TrackKind};

/// Maximum number of events that are read in search of one.
const MAX_EVENTS_READ: usize = 1000;

/// Maximum number of threads that are listed with the time for which each ran while another waited.
const MAX_SHARES: usize = 12;

/// Share in percent that is shown as 100 %.
const ALL_PERCENT: f64 = 99.5;
/// Threads of these that are named in a sentence.
const SHARES_IN_WORDS: usize = 3;

/// Entries of a lane around a time.
pub struct Around {
    /// Entries by their begin.
    pub entries: Vec<Entry>,
    /// Index of the first entry that begins after the time.
    pub after: usize,
    /// Clock offset of the lane's trace in nanoseconds.
    pub offset: i64,
}

impl Around {
    /// Reads the entries of a lane around a time of the page.
    pub fn find(request: &ApiRequest<'_>, id: u32, time: i64) -> Result<Self, ApiError> {
        let (store, slice, offset, known, kind) = {
            let index = request.opened.index();
            let lane =
                index.lanes.get(id as usize).ok_or_else(|| ApiError::bad_request("there is no such lane"))?;
            let offset = request.offset(lane.trace as usize);
            let slice = lane.levels.slice_around(time.saturating_sub(offset));
            (index.store.clone(), slice, offset, index.known(), lane.kind)
        };
        let mut entries = Vec::new();
        slice.read(&store, (i64::MIN, i64::MAX), &mut |entry| {
            entries.push(*entry);
            true
        })?;
        let time = time.saturating_sub(offset);
        if let Some(prefetcher) = request.opened.prefetcher.as_ref().filter(|_| time > known) {
            prefetcher.read_at(time);
            entries.extend(prefetcher.preview((time, time), known, false).around((id, kind), time));
        }
        let after = entries.partition_point(|entry| entry.begin <= time);
        Ok(Self { entries, after, offset })
    }

    /// Returns the entry at a time: it began before, and has not ended.
    fn at(&self, time: i64) -> Option<usize> {
        let index = self.after.checked_sub(1)?;
        let entry = self.entries.get(index)?;
        let time = time.saturating_sub(self.offset);
        (entry.end > time || entry.begin == time).then_some(index)
    }
}

/// Answers with the slice of a lane at a time.
pub fn at(request: &ApiRequest<'_>) -> ApiResult<SliceAnswer> {
    let time = request.number("time")?;
    let id =
        request.number("lane")?.try_into().map_err(|_| ApiError::bad_request("there is no such lane"))?;
    match kind_of(request, id) {
        Some(LaneKind::Counter) => return counter_value::counter(request, id, time),
        Some(LaneKind::Density) => return counter_value::channel(request, id, time),
        _ => {}
    }
    let around = Around::find(request, id, time)?;
    let nearest =
        around.at(time).or_else(|| nearest(&around, time, request.optional("near").ok()?.unwrap_or(0)));
    match nearest.and_then(|place| Some((place, *around.entries.get(place)?))) {
        Some(found) => slice(request, id, (&around, found)),
        None => {
            let index = request.opened.index();
            let one = |place: usize| Some(brief(&index, around.entries.get(place)?, around.offset));
            let before = around.after.checked_sub(1).and_then(one);
            Ok(SliceAnswer::None(NoSlice { before, after: one(around.after), ..NoSlice::of(id) }))
        }
    }
}

/// Describes a slice with its neighbours.
fn slice(
    request: &ApiRequest<'_>,
    id: u32,
    (around, (place, entry)): (&Around, (usize, Entry)),
) -> ApiResult<SliceAnswer> {
    let fields = fields_at(request, (id, &entry));
    let next = around.entries.get(place + 1);
    let before = place.checked_sub(1).and_then(|place| around.entries.get(place));
    // The runnable state behind a sleep tells what ended the sleep.
    let woken = next.filter(|next| is_asleep(entry.style) && next.style == slice_kind::RUNNABLE);
    let others = match woken {
        Some(woken) => others(request, id, Wait { before: Some(&entry), entry: woken, next: None })?,
        None => others(request, id, Wait { before, entry: &entry, next })?,
    };
    let index = request.opened.index();
    let Some(lane) = index.lanes.get(id as usize) else { return Ok(SliceAnswer::None(NoSlice::of(id))) };
    let mut relations = relations(&index, (lane, &entry), around.offset);
    if let Some(woken) = woken {
        tell_waker(&index, (lane, woken), around.offset, &mut relations);
    }
    if entry.style == slice_kind::RUNNABLE_PREEMPTED && !others.ran.is_empty() {
        relations.why = Some(preempted_words(&index, &others, &entry));
    }
    if let Some(interrupt) = others.interrupt {
        let name = index.label(interrupt.label).map_or_else(|| "interrupt".into(), ToString::to_string);
        let time = Some(woken.unwrap_or(&entry).begin.saturating_add(around.offset));
        relations.waker =
            Some(ThreadLink { tid: None, name, pid: None, track: None, lane: None, time, ns: None });
    }
    let one = |entry: &Entry| brief(&index, entry, around.offset);
    let SliceBrief { label, style, begin, end } = one(&entry);
    Ok(SliceAnswer::Found(Box::new(SliceDetail {
        lane: id,
        track: lane.track,
        style,
        state: slice_kind::name(style),
        label,
        begin,
        end,
        seen: [entry.seen & 1 != 0, entry.seen & 2 != 0],
        fields,
        before: before.map(one),
        after: next.map(one),
        relations,
        blockers: blockers(&index, &others, around.offset),
        ..SliceDetail::default()
    })))
}

fn is_asleep(style: u8) -> bool {
    matches!(style, slice_kind::SLEEPING | slice_kind::UNINTERRUPTIBLE | slice_kind::STOPPED)
}

/// Adds to a sleep what ended it.
fn tell_waker(index: &Index, (lane, woken): (&Lane, &Entry), offset: i64, sleep: &mut Relations) {
    if let (Some(words), Some(why)) = (wakeup_words(index, woken.extra), &mut sleep.why) {
        why.push_str(&format!(", {words}"));
    }
    let Relations { waker, during, .. } = relations(index, (lane, woken), offset);
    (sleep.waker, sleep.during) = (waker, during);
}

fn kind_of(request: &ApiRequest<'_>, id: u32) -> Option<LaneKind> {
    request.opened.index().lanes.get(id as usize).map(|lane| lane.kind)
}

/// Facts about a runnable thread from other lanes.
#[derive(Default)]
struct Others {
    /// CPU on which the thread ran next; of a preempted thread, only if it is the CPU that it left.
    cpu: Option<u64>,
    /// Threads that this CPU ran in the meantime and for how long, the longest first.
    ran: Vec<(Entry, i64)>,
    /// Interrupt that woke the thread.
    interrupt: Option<Entry>,
}

/// Wait of a thread for a CPU, with the entries before and after it.
#[derive(Clone, Copy)]
struct Wait<'e> {
    before: Option<&'e Entry>,
    entry: &'e Entry,
    next: Option<&'e Entry>,
}

impl Wait<'_> {
    /// Returns the number of the CPU for which the thread waited. A preempted thread waits for the
    /// CPU that it left. If it runs on another one next, no event tells since when it waited for
    /// that one.
    fn cpu(&self) -> Option<u64> {
        let of = |entry: &Entry| entry.extra.cpu().map(u64::from);
        let next = self.next.and_then(of)?;
        let is_preempted = self.entry.style == slice_kind::RUNNABLE_PREEMPTED;
        (!is_preempted || self.before.and_then(of) == Some(next)).then_some(next)
    }
}

/// Reads the CPU for which a thread waited, and the CPU on which it was woken.
fn others(request: &ApiRequest<'_>, id: u32, wait: Wait<'_>) -> Result<Others, ApiError> {
    let entry = wait.entry;
    let mut others = Others::default();
    let (store, slices, interrupts) = {
        let index = request.opened.index();
        let Some(lane) = index.lanes.get(id as usize) else { return Ok(others) };
        let is_ready = lane.kind == LaneKind::Thread
            && matches!(entry.style, slice_kind::RUNNABLE | slice_kind::RUNNABLE_PREEMPTED);
        if !is_ready {
            return Ok(others);
        }
        let machine = index.tracks.get(lane.track as usize).map_or(0, |track| track.machine);
        let cpu = |number: u64| {
            let is_it = |track: &Track| {
                (track.kind, track.machine, track.number as u64) == (TrackKind::Cpu, machine, number)
            };
            index.tracks.iter().position(is_it).map(|track| track as u32)
        };
        let ran = wait.cpu().and_then(cpu);
        let ran = ran.and_then(|track| index.lane_of(track, LaneKind::Cpu));
        let window = (entry.begin, entry.end);
        let slices = ran.map(|lane| index.slice(lane, window, 0));
        let woken_at = match entry.extra {
            Extra::WokenBy(WakeupSource::Interrupt(number)) => cpu(number.into()),
            _ => None,
        };
        let lanes =
            woken_at.and_then(|track| index.tracks.get(track as usize)).map_or(&[][..], |track| &track.lanes);
        let is_interrupt = |lane: &&u32| {
            let kind = index.lanes.get(**lane as usize).map(|lane| lane.kind);
            matches!(kind, Some(LaneKind::Interrupt | LaneKind::SoftInterrupt))
        };
        let moment = (entry.begin, entry.begin);
        let interrupts: Vec<_> =
            lanes.iter().filter(is_interrupt).map(|lane| index.slice(*lane, moment, 0)).collect();
        (index.store.clone(), slices, interrupts)
    };
    if let Some(slice) = slices {
        others.cpu = wait.cpu();
        others.ran = shares(&slice, &store, (entry.begin, entry.end))?;
    }
    for slice in interrupts {
        slice.read(&store, (entry.begin, entry.begin), &mut |interrupt| {
            others.interrupt = Some(*interrupt);
            true
        })?;
    }
    Ok(others)
}

/// Adds up for how long each thread ran on a CPU in an interval; the longest comes first.
fn shares(slice: &Slice, store: &Store, (from, to): (i64, i64)) -> std::io::Result<Vec<(Entry, i64)>> {
    let mut times: Vec<(Entry, i64)> = Vec::new();
    let mut places: HashMap<Extra, usize> = HashMap::new();
    slice.read(store, (from, to), &mut |ran| {
        let time = ran.end.min(to).saturating_sub(ran.begin.max(from));
        if ran.style == slice_kind::RUNNING && time > 0 {
            let place = *places.entry(ran.extra).or_insert(times.len());
            match times.get_mut(place) {
                Some((_, sum)) => *sum += time,
                None => times.push((*ran, time)),
            }
        }
        true
    })?;
    times.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
    Ok(times)
}

/// Says which threads had the CPU while an entry's thread was preempted; `None` if it was not, or
/// if no event tells on which CPU it waited.
pub fn preemptors(
    request: &ApiRequest<'_>,
    id: u32,
    (wait, offset): (&Entry, i64),
) -> Result<Option<String>, ApiError> {
    if wait.style != slice_kind::RUNNABLE_PREEMPTED {
        return Ok(None);
    }
    let around = Around::find(request, id, wait.begin.saturating_add(offset))?;
    let next = around.entries.iter().find(|entry| entry.begin >= wait.end);
    let before = around.entries.iter().rev().find(|entry| entry.end <= wait.begin);
    let others = others(request, id, Wait { before, entry: wait, next })?;
    let index = request.opened.index();
    Ok((!others.ran.is_empty()).then(|| preempted_words(&index, &others, wait)))
}

/// Says which threads had the CPU of a preempted one, each with its share of the time.
fn preempted_words(index: &Index, others: &Others, wait: &Entry) -> String {
    let name = |entry: &Entry| {
        let track = entry.extra.thread();
        track.and_then(|track| describe(index, track)).unwrap_or_else(|| "a thread".into())
    };
    let ran: Vec<(String, i64)> = others.ran.iter().map(|(entry, ns)| (name(entry), *ns)).collect();
    shares_in_words(others.cpu.unwrap_or_default(), &ran, wait.duration())
}

/// Says how much of a wait each thread ran, the longest first. Only a thread that ran all of it has
/// no share beside its name.
fn shares_in_words(cpu: u64, ran: &[(String, i64)], wait: i64) -> String {
    let percent = |ns: i64| ns as f64 * 100.0 / wait.max(1) as f64;
    if let [(only, ns)] = ran
        && percent(*ns) >= ALL_PERCENT
    {
        return format!("preempted by {only}");
    }
    let shown = ran.iter().take(SHARES_IN_WORDS);
    let shown: Vec<String> = shown.map(|(name, ns)| format!("{name} {:.0} %", percent(*ns))).collect();
    let more = match ran.len().saturating_sub(SHARES_IN_WORDS) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    format!("preempted; meanwhile CPU {cpu} ran {}{more}", shown.join(", "))
}

/// Describes the threads that ran in the meantime.
fn blockers(index: &Index, others: &Others, offset: i64) -> Blockers {
    let link = |(entry, ns): &(Entry, i64)| {
        let time = Some(entry.begin.saturating_add(offset));
        Some(ThreadLink { time, ns: Some(*ns), ..thread_info(index, entry.extra.thread()?)?.into() })
    };
    let Some(first) = others.ran.first() else { return Blockers::default() };
    Blockers {
        culprit: link(first),
        ran: Some(others.ran.iter().take(MAX_SHARES).filter_map(link).collect()),
        ran_others: Some(others.ran.len().saturating_sub(MAX_SHARES)),
    }
}

/// Returns the entry nearest to a time, if it is near enough.
fn nearest(around: &Around, time: i64, near: i64) -> Option<usize> {
    let time = time.saturating_sub(around.offset);
    let distance = |place: usize| {
        let entry = around.entries.get(place)?;
        let distance = entry.begin.saturating_sub(time).max(time.saturating_sub(entry.end)).max(0);
        (distance <= near).then_some((distance, place))
    };
    let places = [around.after.checked_sub(1), Some(around.after)];
    places.into_iter().flatten().filter_map(distance).min().map(|(_, place)| place)
}

fn brief(index: &Index, entry: &Entry, offset: i64) -> SliceBrief {
    SliceBrief {
        label: index.label(entry.label).map(ToString::to_string).unwrap_or_default(),
        style: entry.style,
        begin: entry.begin.saturating_add(offset),
        end: entry.end.saturating_add(offset),
    }
}

/// Finds the threads, the CPU and the cause of an entry.
pub fn relations(index: &Index, (lane, entry): (&Lane, &Entry), offset: i64) -> Relations {
    let track = index.tracks.get(lane.track as usize);
    let own = track.filter(|track| track.kind == TrackKind::Thread).map(|_| lane.track);
    let link = |track: u32| thread_info(index, track).map(ThreadLink::from);
    let thread = match (lane.kind, entry.style) {
        (LaneKind::Cpu, slice_kind::RUNNING) => entry.extra.thread(),
        _ => own,
    };
    let cpu = match (lane.kind, entry.style) {
        (LaneKind::Thread, slice_kind::RUNNING) => entry.extra.cpu().map(u64::from),
        _ => track.filter(|track| track.kind == TrackKind::Cpu).map(|track| track.number as u64),
    };
    let mut found = Relations {
        thread: thread.and_then(link),
        cpu,
        why: cause(index, lane, entry),
        ..Relations::default()
    };
    match (lane.kind, entry.style) {
        (LaneKind::Thread, slice_kind::RUNNABLE_PREEMPTED) => found.by = entry.extra.thread().and_then(link),
        (LaneKind::Thread, slice_kind::RUNNABLE) => {
            let time = Some(entry.begin.saturating_add(offset));
            let woke = |track: u32| Some(ThreadLink { time, ..link(track)? });
            match entry.extra {
                Extra::WokenBy(WakeupSource::Thread(track)) => found.waker = woke(track),
                Extra::WokenBy(WakeupSource::During(track)) => found.during = woke(track),
                _ => {}
            }
        }
        _ => {}
    }
    found
}

/// Says why an entry's thread is in its state, or how long its job took.
pub fn cause(index: &Index, lane: &Lane, entry: &Entry) -> Option<String> {
    match (lane.kind, entry.style) {
        (LaneKind::Thread, slice_kind::RUNNABLE_PREEMPTED) => {
            let by = entry.extra.thread().and_then(|track| describe(index, track));
            Some(format!("preempted, first by {}", by.unwrap_or_else(|| "the idle thread".into())))
        }
        (LaneKind::Thread, slice_kind::RUNNABLE) => {
            let source =
                wakeup_words(index, entry.extra).map(|words| format!("{words}, ")).unwrap_or_default();
            Some(format!("{source}waiting for a CPU"))
        }
        (LaneKind::Thread, slice_kind::SLEEPING | slice_kind::UNINTERRUPTIBLE | slice_kind::STOPPED) => {
            let how = slice_kind::name(entry.style);
            Some(match index.label(entry.label) {
                Some(syscall) => format!("{how} in {syscall}"),
                None => how.into(),
            })
        }
        (_, slice_kind::JOB | slice_kind::LATE_JOB) => {
            let Extra::Deadline(deadline) = entry.extra else { return None };
            let took = duration(entry.duration().unsigned_abs());
            Some(format!("took {took} of the {} allowed", duration(deadline)))
        }
        (_, slice_kind::UNKNOWN) => Some("not observed: the trace starts later, or events were lost".into()),
        _ => None,
    }
}

/// Formats nanoseconds in the unit that fits.
fn duration(nanoseconds: u64) -> String {
    let (divisor, unit) = match nanoseconds {
        0..=999 => (1.0, "ns"),
        1_000..=999_999 => (1e3, "µs"),
        1_000_000..=999_999_999 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    let text = format!("{:.3}", nanoseconds as f64 / divisor);
    format!("{} {unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Says what woke a thread, as far as events tell.
fn wakeup_words(index: &Index, extra: Extra) -> Option<String> {
    let Extra::WokenBy(source) = extra else { return None };
    let thread = |track| describe(index, track).unwrap_or_else(|| "a thread".into());
    Some(match source {
        WakeupSource::Thread(track) => format!("woken by {}", thread(track)),
        WakeupSource::Interrupt(cpu) => format!("woken by an interrupt on CPU {cpu}"),
        WakeupSource::Timer(cpu) => format!("woken by a timer on CPU {cpu}"),
        WakeupSource::OwnTimer(cpu) => format!("woken by its own timer on CPU {cpu}"),
        WakeupSource::During(track) => {
            format!("woken while {} ran, by it or by an interrupt", thread(track))
        }
    })
}

/// Names a thread: `name (tid 55)`.
fn describe(index: &Index, track: u32) -> Option<String> {
    let track = index.tracks.get(track as usize)?;
    Some(match index.label(track.name) {
        Some(name) => format!("{name} (tid {})", track.number),
        None => format!("tid {}", track.number),
    })
}

/// Describes a thread and the lane that shows it.
pub fn thread_info(index: &Index, id: u32) -> Option<ThreadInfo> {
    let track = index.tracks.get(id as usize).filter(|track| track.kind == TrackKind::Thread)?;
    let is_thread =
        |lane: &&u32| index.lanes.get(**lane as usize).is_some_and(|lane| lane.kind == LaneKind::Thread);
    let name =
        index.label(track.name).map_or_else(|| format!("tid {}", track.number), |name| name.to_string());
    let lane = track.lanes.iter().find(is_thread).or(track.lanes.first()).copied();
    Some(ThreadInfo { tid: track.number, name, pid: track.pid, track: id, lane })
}

/// Returns the fields of the event with which an entry began; for a system call or span, also of
/// the one with which it ended.
pub fn fields_at(request: &ApiRequest<'_>, (id, entry): (u32, &Entry)) -> Vec<(String, String)> {
    let (kind, label, number, base) = {
        let index = request.opened.index();
        let Some(lane) = index.lanes.get(id as usize) else { return Vec::new() };
        let track = index.tracks.get(lane.track as usize);
        let number = track.map_or(-1, |track| track.number);
        // Events of a counter have the counter's name; points of a counter have no label.
        let label =
            if lane.kind == LaneKind::Counter { track.map_or(0, |track| track.name) } else { entry.label };
        let label = index.label(label).map(ToString::to_string).unwrap_or_default();
        (lane.kind, label, number, index.base)
    };
    if entry.count != 1 {
        return Vec::new();
    }
    let wanted = Wanted { kind, label, number };
    let mut fields = Vec::new();
    if entry.seen & 1 != 0 {
        event_fields(request, entry.begin.saturating_add(base), (&wanted, false), &mut fields);
    }
    if entry.seen & 2 != 0 && matches!(kind, LaneKind::Syscall | LaneKind::Span) {
        event_fields(request, entry.end.saturating_add(base), (&wanted, true), &mut fields);
    }
    fields
}

/// Properties of the event with which an entry began or ended.
struct Wanted {
    kind: LaneKind,
    label: String,
    /// Number of the thread or CPU.
    number: i64,
}

impl Wanted {
    fn is(&self, event: &Event<'_>, is_end: bool) -> bool {
        let name = event.name();
        let plain = name.split_once(':').map_or(name, |(_, name)| name);
        let kind = event.class().kind_info().kind;
        let is_syscall = |prefixes: &[&str]| {
            let plain = plain.strip_prefix("compat_").unwrap_or(plain);
            prefixes.iter().any(|prefix| plain.strip_prefix(prefix) == Some(self.label.as_str()))
        };
        let fits = match self.kind {
            LaneKind::Marks | LaneKind::Counter => name == self.label,
            LaneKind::Span if is_end => {
                kind == Kind::End && base_name(name, kind) == self.label
                    || name.strip_suffix("_end") == Some(self.label.as_str())
            }
            LaneKind::Span => match kind {
                Kind::Begin | Kind::Job => base_name(name, kind) == self.label,
                _ => {
                    name.ends_with(":func_entry") || name.strip_suffix("_start") == Some(self.label.as_str())
                }
            },
            LaneKind::Syscall if is_end => {
                plain == "exit_syscall" || is_syscall(&["syscall_exit_", "sys_exit_"])
            }
            LaneKind::Syscall => is_syscall(&["syscall_entry_", "sys_enter_", "sys_"]),
            LaneKind::Interrupt => plain == "irq_handler_entry",
            LaneKind::SoftInterrupt => matches!(plain, "irq_softirq_entry" | "softirq_entry"),
            LaneKind::Cpu => plain == "sched_switch",
            LaneKind::Thread => {
                matches!(
                    plain,
                    "sched_switch"
                        | "sched_waking"
                        | "sched_wakeup"
                        | "sched_wakeup_new"
                        | "sched_process_fork"
                )
            }
            _ => false,
        };
        fits && self.is_here(event)
    }

    /// Whether an event belongs to the thread or happened on the CPU.
    fn is_here(&self, event: &Event<'_>) -> bool {
        let integer =
            |name: &str| event.field(name).and_then(|value| i64::try_from(value.as_integer()?).ok());
        match self.kind {
            LaneKind::Counter => true,
            LaneKind::Interrupt | LaneKind::SoftInterrupt | LaneKind::Cpu => {
                event.cpu().is_none_or(|cpu| cpu as i64 == self.number)
            }
            LaneKind::Thread => ["tid", "prev_tid", "next_tid", "pid", "prev_pid", "next_pid", "child_tid"]
                .iter()
                .any(|name| {
                    event.payload().get(name).and_then(|value| i64::try_from(value.as_integer()?).ok())
                        == Some(self.number)
                }),
            LaneKind::Marks => {
                let tid = integer("vtid").or_else(|| integer("tid"));
                tid.is_none_or(|tid| tid == self.number)
                    || event.cpu().is_some_and(|cpu| cpu as i64 == self.number)
            }
            _ => {
                let context = |name: &str| {
                    let fields = [event.stream_context(), event.context()];
                    fields
                        .iter()
                        .find_map(|fields| fields.get(name))
                        .and_then(|value| i64::try_from(value.as_integer()?).ok())
                };
                context("vtid").or_else(|| context("tid")).is_none_or(|tid| tid == self.number)
            }
        }
    }
}

/// Adds name and fields of the wanted event at a time.
fn event_fields(
    request: &ApiRequest<'_>,
    time: i64,
    (wanted, is_end): (&Wanted, bool),
    fields: &mut Vec<(String, String)>,
) {
    let selection = Selection { from: Some(time), to: Some(time), ..Selection::default() };
    let Some(mut traces) = request.opened.read(request.opened.parts.at(time), selection) else { return };
    for _ in 0..MAX_EVENTS_READ {
        let Some(event) = traces.next_event() else { return };
        if wanted.is(&event, is_end) {
            fields.push((if is_end { "ended by" } else { "event" }.into(), event.name().into()));
            fields.extend(text::fields(&event));
            return;
        }
    }
}

/// Answers with the next or previous slice of a lane.
pub fn step(request: &ApiRequest<'_>) -> ApiResult<StepAnswer> {
    let time = request.number("time")?;
    let id =
        request.number("lane")?.try_into().map_err(|_| ApiError::bad_request("there is no such lane"))?;
    let forward = request.optional("dir")?.unwrap_or(1) >= 0;
    // A channel's steps lead from one loss to the next.
    let id = match kind_of(request, id) {
        Some(LaneKind::Density) => counter_value::missing(request, id),
        _ => Some(id),
    };
    let Some(id) = id else { return Ok(StepAnswer::None(NoStep { none: true })) };
    let around = Around::find(request, id, time)?;
    let shifted = time.saturating_sub(around.offset);
    let found = if forward {
        around.entries.get(around.after)
    } else {
        around.entries.iter().rev().find(|entry| entry.begin < shifted)
    };
    Ok(match found {
        Some(entry) => StepAnswer::Found(Step {
            begin: entry.begin.saturating_add(around.offset),
            end: entry.end.saturating_add(around.offset),
        }),
        None => StepAnswer::None(NoStep { none: true }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_the_unit_that_fits() {
        let durations = [
            (0, "0 ns"),
            (850, "850 ns"),
            (2_074_161, "2.074 ms"),
            (5_000_000, "5 ms"),
            (1 << 40, "1099.512 s"),
        ];
        for (nanoseconds, expected) in durations {
            assert_eq!(duration(nanoseconds), expected);
        }
    }

    #[test]
    fn a_thread_that_had_a_part_of_a_wait_has_its_share() {
        let ran = |all: &[(&str, i64)]| {
            let all: Vec<(String, i64)> = all.iter().map(|(name, ns)| ((*name).to_owned(), *ns)).collect();
            shares_in_words(3, &all, 1000)
        };
        assert_eq!(ran(&[("hog", 1000)]), "preempted by hog");
        // The rest was idle, or is not known.
        assert_eq!(ran(&[("hog", 220)]), "preempted; meanwhile CPU 3 ran hog 22 %");
        let many = [("a", 500), ("b", 250), ("c", 100), ("d", 50)];
        assert_eq!(ran(&many), "preempted; meanwhile CPU 3 ran a 50 %, b 25 %, c 10 %, and 1 more");
    }
}
