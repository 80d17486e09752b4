//! Reports: the difference of two snapshots by CPU and kind and by thread, with checked sums.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    accounting::WakeupAccounting,
    groups::Group,
    histogram::Histogram,
    jobs::JobsReport,
    kinds::{Kind, Kinds},
    mapped_counters::{MaxSample, RawThread},
    sched_crosscheck::MissedWakeups,
    snapshot::{GroupState, Snapshot, State},
    thread_identity::ThreadIdentity,
};

/// Counts of an interval. Times of day are in nanoseconds since 1970.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Version of this structure.
    pub schema: u32,
    /// Start of counting.
    pub counting_since_ns: u64,
    /// Start of counting by CLOCK_MONOTONIC, which is never set: it distinguishes monitors.
    pub counting_since_monotonic_ns: u64,
    /// Begin of the interval.
    pub from_ns: u64,
    /// End of the interval.
    pub to_ns: u64,
    /// Kinds that are counted now.
    pub kinds: Vec<Kind>,
    /// Longest latency of each CPU and kind, in microseconds.
    pub max_us: BTreeMap<u32, BTreeMap<Kind, f64>>,
    /// Statistics of each CPU and kind that has counts.
    pub cpus: Vec<CpuReport>,
    /// Real-time threads, the longest latency first.
    pub threads: Vec<ThreadReport>,
    /// Groups that are also counted separately, in the requested order.
    pub groups: Vec<GroupReport>,
    /// Number of cgroups that did not fit into the groups' table.
    pub cgroups_without_room: u32,
    /// Wakeups by outcome.
    pub wakeups: WakeupAccounting,
    /// Crosscheck with the scheduler's own count, if known.
    pub unseen: Option<MissedWakeups>,
    /// Number of runs of the programs that the kernel skipped, since counting began.
    pub not_started: u64,
    /// Jobs, if watched: since that began.
    pub jobs: Option<JobsReport>,
}

/// Statistics of a CPU.
#[derive(Clone, Debug, Serialize)]
pub struct CpuReport {
    /// Number of the CPU.
    pub cpu: u32,
    /// Statistics of each kind that has counts.
    pub kinds: BTreeMap<Kind, KindReport>,
}

/// Precision of a maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Maximum {
    /// Exact to the nanosecond.
    Exact,
    /// Upper bound, from a histogram.
    Below,
    /// Lower bound, from the histogram's last bucket.
    AtLeast,
}

/// Statistics of a kind.
#[derive(Clone, Debug, Serialize)]
pub struct KindReport {
    /// Number of latencies.
    pub count: u64,
    /// Number of these beyond the histogram's range.
    pub overflow: u64,
    /// Mean in microseconds.
    pub mean_us: f64,
    /// Upper bound of the median, in microseconds.
    pub p50_us: f64,
    /// Upper bound of the 99th percentile, in microseconds.
    pub p99_us: f64,
    /// Upper bound of the 99.9th percentile, in microseconds.
    pub p999_us: f64,
    /// Maximum in microseconds.
    pub max_us: f64,
    /// Precision of the maximum.
    pub max_is: Maximum,
    /// Details of the maximum, if it is exact.
    pub worst: Option<Late>,
    /// Lower bounds of the filled buckets, in microseconds, with their counts.
    pub histogram: Vec<(u64, u64)>,
    /// Same histogram for arithmetic.
    #[serde(skip)]
    pub places: Histogram,
}

/// Latency with its parts. Parts that its kind or timer doesn't have are none.
#[derive(Clone, Debug, Serialize)]
pub struct Late {
    /// End of the latency.
    pub time_ns: u64,
    /// Latency as a whole, in microseconds.
    pub latency_us: f64,
    /// Time from the timer's intended expiry to its handler.
    pub timer_us: Option<f64>,
    /// Time from the handler to the wakeup.
    pub handler_us: Option<f64>,
    /// Time from the wakeup to running.
    pub wakeup_us: Option<f64>,
    /// Late thread.
    pub tid: u32,
    /// Name of the thread.
    pub name: String,
    /// Priority of the thread, in words.
    pub priority: String,
    /// Thread that had the CPU before.
    pub other_tid: u32,
    /// Name of that thread.
    pub other_name: String,
    /// Priority of that thread, in words.
    pub other_priority: String,
    /// Kernel functions on the CPU, if known, the innermost first. For a timer, the code
    /// interrupted by it; for a wakeup, the code at which the other thread left the CPU.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub code: Vec<String>,
    /// Same stack as addresses.
    #[serde(skip)]
    pub(crate) stack: Vec<u64>,
}

/// Statistics of a thread: from the intended expiry to running if a timer woke it, else from the
/// wakeup to running.
#[derive(Clone, Debug, Serialize)]
pub struct ThreadReport {
    /// Number of the thread.
    pub tid: u32,
    /// Name of the thread.
    pub name: String,
    /// Whether it has ended.
    pub has_ended: bool,
    /// Priority when it last ran, in words.
    pub priority: String,
    /// CPU on which it last ran.
    pub cpu: u32,
    /// Number of wakeups.
    pub count: u64,
    /// Last latency in microseconds.
    pub last_us: f64,
    /// Median in microseconds, rounded up by at most a sixteenth.
    pub p50_us: f64,
    /// 99.9th percentile, rounded likewise.
    pub p999_us: f64,
    /// Maximum in microseconds.
    pub max_us: f64,
    /// Precision of the maximum.
    pub max_is: Maximum,
    /// Number of timers that it armed after their intended expiry: it overran its period.
    pub misses: u64,
    /// Histogram of all its latencies.
    #[serde(skip)]
    pub places: Histogram,
}

/// Statistics of a group over all CPUs.
#[derive(Clone, Debug, Serialize)]
pub struct GroupReport {
    /// Threads of the group.
    #[serde(flatten)]
    pub group: Group,
    /// Start of counting for the group, if later than the report's begin.
    pub from_ns: u64,
    /// Statistics of each kind that has counts.
    pub kinds: BTreeMap<Kind, KindReport>,
}

/// Formats a kernel priority as `chrt` does: `deadline`, `rt 80`, `nice 0`; `stop` for threads that
/// stop a CPU.
pub fn priority_words(priority: i32) -> String {
    match priority {
        ..-1 => "stop".into(),
        -1 => "deadline".into(),
        0..100 => format!("rt {}", 99 - priority),
        _ => format!("nice {}", priority - 120),
    }
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

/// Maximum in nanoseconds. The stored one counts only if it ended after `from`: an earlier one may
/// be longer than all since.
fn longest(histogram: &Histogram, kept: Option<(u64, u64)>, from: u64) -> (u64, Maximum) {
    match (kept, histogram.bound()) {
        (Some((latency, end)), _) if end >= from => (latency, Maximum::Exact),
        (_, Some(u64::MAX)) => (histogram.places().last().map_or(0, |place| place.0), Maximum::AtLeast),
        (_, bound) => (bound.unwrap_or(0), Maximum::Below),
    }
}

/// Upper bound of a quantile in microseconds, at most the maximum.
fn below(histogram: &Histogram, share: u64, longest: u64) -> f64 {
    us(histogram.below(share).unwrap_or(0).min(longest))
}

impl Report {
    /// Makes the report of the interval between two snapshots of one monitor.
    pub(crate) fn between(earlier: &Snapshot, now: &Snapshot, kinds: Kinds) -> Self {
        let mut cpus = Vec::new();
        for (cpu, states) in (0..).zip(&now.cpus) {
            let before = earlier.cpus.get(cpu as usize);
            let kinds = by_kind(before, states, (earlier.time, now.ahead));
            if !kinds.is_empty() {
                cpus.push(CpuReport { cpu, kinds });
            }
        }
        let before: BTreeMap<u64, &RawThread> =
            earlier.threads.iter().map(|thread| (thread.key, thread)).collect();
        let mut threads: Vec<ThreadReport> = now
            .threads
            .iter()
            .filter_map(|thread| ThreadReport::new(before.get(&thread.key).copied(), thread, earlier.time))
            .collect();
        threads.sort_by(|one, other| other.max_us.total_cmp(&one.max_us).then(one.tid.cmp(&other.tid)));
        Self {
            schema: 1,
            counting_since_ns: now.begun + now.ahead,
            counting_since_monotonic_ns: now.begun,
            from_ns: earlier.time + now.ahead,
            to_ns: now.time + now.ahead,
            kinds: Kind::ALL.into_iter().filter(|kind| kinds.has(*kind)).collect(),
            max_us: max_us(&cpus),
            cpus,
            threads,
            groups: now.groups.iter().map(|group| GroupReport::new(group, earlier, now.ahead)).collect(),
            cgroups_without_room: now.unlisted,
            wakeups: now.balance.since(&earlier.balance),
            unseen: None,
            not_started: 0,
            jobs: None,
        }
    }
}

/// Statistics since a time, of each kind that has counts.
pub(crate) fn by_kind(
    before: Option<&[State; Kind::ALL.len()]>,
    states: &[State],
    (from, ahead): (u64, u64),
) -> BTreeMap<Kind, KindReport> {
    let of_kind = |(kind, state): (Kind, &State)| {
        let before = before.and_then(|states| states.get(kind.number()));
        Some((kind, KindReport::new(before, state, from, ahead)?))
    };
    Kind::ALL.into_iter().zip(states).filter_map(of_kind).collect()
}

impl GroupReport {
    fn new(state: &GroupState, earlier: &Snapshot, ahead: u64) -> Self {
        let GroupState { group, begun, states } = state;
        let is_same = |before: &&GroupState| before.begun == *begun && before.group == *group;
        let before = earlier.groups.iter().find(is_same).map(|before| &before.states);
        let from = earlier.time.max(*begun);
        Self { group: group.clone(), from_ns: from + ahead, kinds: by_kind(before, states, (from, ahead)) }
    }
}

/// Sums all CPUs by kind.
pub fn of_all_cpus(cpus: &[CpuReport]) -> BTreeMap<Kind, Histogram> {
    let mut all: BTreeMap<Kind, Histogram> = BTreeMap::new();
    for (kind, report) in cpus.iter().flat_map(|cpu| &cpu.kinds) {
        all.entry(*kind).or_default().merge(&report.places);
    }
    all
}

/// Longest latency of each CPU and kind, in microseconds.
pub fn max_us(cpus: &[CpuReport]) -> BTreeMap<u32, BTreeMap<Kind, f64>> {
    let longest = |cpu: &CpuReport| cpu.kinds.iter().map(|(kind, report)| (*kind, report.max_us)).collect();
    cpus.iter().map(|cpu| (cpu.cpu, longest(cpu))).collect()
}

impl KindReport {
    fn new(before: Option<&State>, state: &State, from: u64, ahead: u64) -> Option<Self> {
        let nothing = Histogram::default();
        let places = state.histogram.since(before.map_or(&nothing, |state| &state.histogram));
        let sum = state.sum.saturating_sub(before.map_or(0, |state| state.sum));
        let kept = state.worst.as_ref().map(|worst| (worst.latency, worst.end));
        let longest = longest(&places, kept, from);
        let worst = state.worst.as_ref().filter(|_| longest.1 == Maximum::Exact);
        Self::of(places, sum, longest, worst.map(|worst| Late::new(worst, ahead)))
    }

    /// Makes statistics from a histogram, a sum and a maximum in nanoseconds; none without
    /// latencies.
    pub fn of(
        places: Histogram,
        sum: u64,
        (ns, max_is): (u64, Maximum),
        worst: Option<Late>,
    ) -> Option<Self> {
        let count = places.count();
        if count == 0 {
            return None;
        }
        Some(Self {
            count,
            overflow: places.overflow(),
            mean_us: us(sum) / count as f64,
            p50_us: below(&places, 500, ns),
            p99_us: below(&places, 990, ns),
            p999_us: below(&places, 999, ns),
            max_us: us(ns),
            max_is,
            worst,
            histogram: places.places().map(|(begin, count)| (begin / 1000, count)).collect(),
            places,
        })
    }
}

impl Late {
    /// Converts a sample; the time of day is `ahead` nanoseconds ahead of its clock.
    pub fn new(worst: &MaxSample, ahead: u64) -> Self {
        let by_timer = worst.intended != 0;
        let between = |from: u64, to: u64| us(to.saturating_sub(from));
        let woken = (worst.woken != 0).then_some(worst.woken);
        Self {
            time_ns: worst.end + ahead,
            latency_us: us(worst.latency),
            timer_us: by_timer.then(|| between(worst.intended, worst.fired)),
            handler_us: woken.filter(|_| by_timer).map(|woken| between(worst.fired, woken)),
            wakeup_us: woken.map(|woken| between(woken, worst.end)),
            tid: worst.tid,
            name: worst.name.clone(),
            priority: priority_words(worst.priority),
            other_tid: worst.other_tid,
            other_name: worst.other_name.clone(),
            other_priority: priority_words(worst.other_priority),
            code: Vec::new(),
            stack: worst.stack.clone(),
        }
    }
}

impl ThreadReport {
    fn new(before: Option<&RawThread>, thread: &RawThread, from: u64) -> Option<Self> {
        let nothing = Histogram::default();
        let places = thread.histogram.since(before.map_or(&nothing, |thread| &thread.histogram));
        let misses = thread.misses.saturating_sub(before.map_or(0, |thread| thread.misses));
        let count = places.count();
        if count == 0 {
            return None;
        }
        let (ns, max_is) = longest(&places, thread.worst, from);
        // Threads get their names after their start; an ended one has the name that the programs
        // saw.
        let name = ThreadIdentity::read(thread.tid)
            .filter(|living| living.has_begun_at(thread.begun()))
            .map(|it| it.name);
        Some(Self {
            tid: thread.tid,
            has_ended: name.is_none(),
            name: name.unwrap_or_else(|| thread.name.clone()),
            priority: priority_words(thread.priority),
            cpu: thread.cpu,
            count,
            last_us: us(thread.last),
            p50_us: below(&places, 500, ns),
            p999_us: below(&places, 999, ns),
            max_us: us(ns),
            max_is,
            misses,
            places,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::OVERFLOW_US;

    fn worst(latency: u64, end: u64) -> MaxSample {
        let (intended, fired, woken) = (end - latency, end - latency + 2_000, end - 1_000);
        MaxSample { intended, fired, woken, ..MaxSample::made_up(latency, end) }
    }

    /// Makes a snapshot of one CPU with latencies of one kind in microseconds, whose maximum is
    /// stored.
    fn snapshot(time: u64, latencies: &[u64], kept: MaxSample) -> Snapshot {
        let mut states: [State; Kind::ALL.len()] = Default::default();
        let state = &mut states[Kind::TimerWakeup.number()];
        for latency in latencies {
            let end = if *latency >= OVERFLOW_US { u64::MAX } else { latency * 1000 + 1000 };
            state.histogram.add(latency.min(&OVERFLOW_US) * 1000, end, 1);
        }
        state.sum = latencies.iter().map(|latency| latency * 1000 + 250).sum();
        state.worst = Some(kept);
        Snapshot { time, ahead: 1_000_000, cpus: vec![states], ..Snapshot::default() }
    }

    fn kind(report: &Report) -> &KindReport {
        &report.cpus[0].kinds[&Kind::TimerWakeup]
    }

    #[test]
    fn the_maximum_has_parts() {
        let now = snapshot(90_000_000, &[3, 4, 5, 17], worst(17_300, 80_000_000));
        let report = Report::between(&now.of_the_beginning(), &now, Kinds::ALL);
        let kind = kind(&report);
        assert_eq!((kind.count, kind.max_us, kind.max_is), (4, 17.3, Maximum::Exact));
        // Half of four is two, which are below 5 µs; no quantile exceeds the maximum.
        assert_eq!((kind.p50_us, kind.p999_us, kind.mean_us), (5.0, 17.3, 7.5));
        assert_eq!(kind.histogram, [(3, 1), (4, 1), (5, 1), (17, 1)]);
        let late = kind.worst.as_ref().unwrap();
        assert_eq!((late.timer_us, late.handler_us, late.wakeup_us), (Some(2.0), Some(14.3), Some(1.0)));
        assert_eq!((late.priority.as_str(), late.other_priority.as_str()), ("rt 80", "nice 0"));
        assert_eq!(report.max_us[&0][&Kind::TimerWakeup], 17.3);
    }

    #[test]
    fn what_was_before_is_no_maximum_of_what_came_since() {
        let before = snapshot(50, &[3, 900], worst(900_000, 40_000_000));
        let before = Snapshot { time: 50_000_000, ..before };
        let now = snapshot(90_000_000, &[3, 900, 5, 17], worst(900_000, 40_000_000));
        let report = Report::between(&before, &now, Kinds::ALL);
        let kind = kind(&report);
        assert_eq!((kind.count, kind.max_us, kind.max_is), (2, 18.0, Maximum::Below));
        assert!(kind.worst.is_none());
    }

    #[test]
    fn a_latency_beyond_the_histogram_has_been_at_least_so_long() {
        let before = Snapshot { time: 50_000_000, ..snapshot(50, &[], worst(20_000_000, 40_000_000)) };
        let now = snapshot(90_000_000, &[3, 15_000], worst(20_000_000, 40_000_000));
        let report = Report::between(&before, &now, Kinds::ALL);
        assert_eq!((kind(&report).max_us, kind(&report).max_is), (10_241.0, Maximum::AtLeast));
        assert_eq!((kind(&report).overflow, kind(&report).p999_us), (1, 10_241.0));
    }

    #[test]
    fn a_restarted_group_starts_at_zero() {
        let of_group = |snapshot: Snapshot, begun| {
            let states = snapshot.cpus[0].clone();
            let group = GroupState { group: Group::Cgroup("/robot".into()), begun, states };
            Snapshot { groups: vec![group], ..snapshot }
        };
        let count = |before: &Snapshot, now: &Snapshot| {
            let report = Report::between(before, now, Kinds::ALL);
            let group = &report.groups[0];
            (group.kinds[&Kind::TimerWakeup].count, group.from_ns)
        };
        let before = of_group(snapshot(50_000_000, &[3, 900], worst(900_000, 40_000_000)), 7);
        let now = snapshot(90_000_000, &[3, 900, 5], worst(900_000, 40_000_000));
        assert_eq!(count(&before, &of_group(now.clone(), 7)), (1, 51_000_000));
        assert_eq!(count(&before, &of_group(now, 60_000_000)), (3, 61_000_000));
    }

    #[test]
    fn given_a_number_that_another_thread_has_now_then_the_row_keeps_its_name_and_has_ended() {
        let row = |begun: u64| RawThread {
            key: begun << 22 | u64::from(tompion_os::gettid()),
            tid: tompion_os::gettid(),
            priority: 19,
            cpu: 0,
            count: 1,
            not_slept: 0,
            last: 3_000,
            worst: Some((3_000, 80_000_000)),
            misses: 0,
            name: "robot".into(),
            histogram: [(3_000, 4_000, 1)].into_iter().fold(
                Histogram::default(),
                |mut all, (from, to, count)| {
                    all.add(from, to, count);
                    all
                },
            ),
        };
        let name = move |begun: u64| {
            let thread = ThreadReport::new(None, &row(begun), 0).expect("a wake-up");
            (thread.name, thread.has_ended)
        };
        let thread = std::thread::Builder::new().name("stranger".into());
        let looked = thread.spawn(move || {
            let now = tompion_os::monotonic_ns();
            [name(now - 60_000_000_000), name(now)]
        });
        assert_eq!(
            looked.expect("a thread").join().expect("it ends"),
            [("robot".into(), true), ("stranger".into(), false)]
        );
    }

    #[test]
    fn priorities_are_those_of_chrt() {
        assert_eq!([-2, -1, 0, 19, 98, 120, 139].map(priority_words).join(" "), {
            "stop deadline rt 99 rt 80 rt 1 nice 0 nice 19"
        });
    }
}
