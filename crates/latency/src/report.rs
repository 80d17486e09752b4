//! What two snapshots say: by CPU and kind, by thread, and whether the sums agree.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    balance::Balance,
    groups::Group,
    histogram::Histogram,
    jobs::JobsReport,
    kinds::{Kind, Kinds},
    living::Living,
    memory::{MaxSample, RawThread},
    snapshot::{GroupState, Snapshot, State},
    witness::Unseen,
};

/// What was counted between two moments. Times of day are nanoseconds since 1970.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// The version of this structure.
    pub schema: u32,
    /// When counting began.
    pub counting_since_ns: u64,
    /// The same by CLOCK_MONOTONIC, which nobody sets: by it a monitor is told from one that counted before it.
    pub counting_since_monotonic_ns: u64,
    /// From when on this report is.
    pub from_ns: u64,
    /// Until when.
    pub to_ns: u64,
    /// What is counted now.
    pub kinds: Vec<Kind>,
    /// The longest latencies, in microseconds, by CPU and kind.
    pub max_us: BTreeMap<u32, BTreeMap<Kind, f64>>,
    /// By CPU and kind, where anything was counted.
    pub cpus: Vec<CpuReport>,
    /// Real-time threads, the one with the longest latency first.
    pub threads: Vec<ThreadReport>,
    /// Groups of threads that are counted by themselves, too, as they were asked for.
    pub groups: Vec<GroupReport>,
    /// Cgroups that are in no group, because there was no room for them.
    pub cgroups_without_room: u32,
    /// Wake-ups, by how they ended.
    pub wakeups: Balance,
    /// What the kernel counts by itself, where that is known.
    pub unseen: Option<Unseen>,
    /// How often the kernel did not start one of the programs, since counting began.
    pub not_started: u64,
    /// Jobs, where they are watched: since that began.
    pub jobs: Option<JobsReport>,
}

/// A CPU's part.
#[derive(Clone, Debug, Serialize)]
pub struct CpuReport {
    /// Its number.
    pub cpu: u32,
    /// By kind, where anything was counted.
    pub kinds: BTreeMap<Kind, KindReport>,
}

/// How a longest latency is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Maximum {
    /// To the nanosecond.
    Exact,
    /// By the histogram: it was shorter than this.
    Below,
    /// By the histogram's last place: it was at least this long.
    AtLeast,
}

/// A kind's part.
#[derive(Clone, Debug, Serialize)]
pub struct KindReport {
    /// How many.
    pub count: u64,
    /// Of these longer than the histogram tells apart.
    pub overflow: u64,
    /// Their mean, in microseconds.
    pub mean_us: f64,
    /// What half of them, 99 % and 99.9 % don't reach, in microseconds.
    pub p50_us: f64,
    /// See `p50_us`.
    pub p99_us: f64,
    /// See `p50_us`.
    pub p999_us: f64,
    /// The longest, in microseconds.
    pub max_us: f64,
    /// How that is known.
    pub max_is: Maximum,
    /// The longest in detail, where it is known exactly.
    pub worst: Option<Late>,
    /// Beginnings of places, in microseconds, and how many; places without any are left out.
    pub histogram: Vec<(u64, u64)>,
    /// The same, to be computed with.
    #[serde(skip)]
    pub places: Histogram,
}

/// A latency in its parts. Those that don't belong to its kind, or to no timer, are none.
#[derive(Clone, Debug, Serialize)]
pub struct Late {
    /// When it ended.
    pub time_ns: u64,
    /// All of it, in microseconds.
    pub latency_us: f64,
    /// From the timer's intended expiry to its handler.
    pub timer_us: Option<f64>,
    /// From the handler to the wake-up.
    pub handler_us: Option<f64>,
    /// From the wake-up to running.
    pub wakeup_us: Option<f64>,
    /// Whose.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// Its priority, in words.
    pub priority: String,
    /// Who had the CPU until then.
    pub other_tid: u32,
    /// Its name.
    pub other_name: String,
    /// Its priority, in words.
    pub other_priority: String,
    /// The code that held the CPU, where that is known: functions of the kernel's, the innermost first. Of a timer what its interrupt
    /// interrupted; of a wake-up where the other one left the CPU.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub code: Vec<String>,
    /// The same as the programs have it.
    #[serde(skip)]
    pub(crate) stack: Vec<u64>,
}

/// A thread's part: from the intended expiry to running where a timer woke it, else from the wake-up to running.
#[derive(Clone, Debug, Serialize)]
pub struct ThreadReport {
    /// Its number.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// Whether it is gone.
    pub has_ended: bool,
    /// Its priority when it ran last, in words.
    pub priority: String,
    /// Where it ran last.
    pub cpu: u32,
    /// How many wake-ups.
    pub count: u64,
    /// The last latency, in microseconds.
    pub last_us: f64,
    /// What half of them don't reach, in microseconds; a sixteenth too long at most.
    pub p50_us: f64,
    /// The same of 99.9 %.
    pub p999_us: f64,
    /// The longest, in microseconds.
    pub max_us: f64,
    /// How that is known.
    pub max_is: Maximum,
    /// How often it set itself a time that had passed: it was too late for its own plan.
    pub misses: u64,
    /// All its latencies.
    #[serde(skip)]
    pub places: Histogram,
}

/// A group's part: of all CPUs together.
#[derive(Clone, Debug, Serialize)]
pub struct GroupReport {
    /// Which threads.
    #[serde(flatten)]
    pub group: Group,
    /// From when on, if that is later than the report's beginning.
    pub from_ns: u64,
    /// By kind, where anything was counted.
    pub kinds: BTreeMap<Kind, KindReport>,
}

/// A kernel's priority in the words of `chrt`: `deadline`, `rt 80`, `nice 0`; `stop` is that of the threads which stop a CPU.
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

/// The longest of some latencies, in nanoseconds. What the programs kept counts only if it ended after `from`: it may be of
/// an earlier time, and longer than all since.
fn longest(histogram: &Histogram, kept: Option<(u64, u64)>, from: u64) -> (u64, Maximum) {
    match (kept, histogram.bound()) {
        (Some((latency, end)), _) if end >= from => (latency, Maximum::Exact),
        (_, Some(u64::MAX)) => (histogram.places().last().map_or(0, |place| place.0), Maximum::AtLeast),
        (_, bound) => (bound.unwrap_or(0), Maximum::Below),
    }
}

/// What a share doesn't reach, in microseconds; not more than the longest.
fn below(histogram: &Histogram, share: u64, longest: u64) -> f64 {
    us(histogram.below(share).unwrap_or(0).min(longest))
}

impl Report {
    /// What came between two snapshots of one monitor.
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

/// What came since a time, by kind, where anything was counted.
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

/// All CPUs together, by kind.
pub fn of_all_cpus(cpus: &[CpuReport]) -> BTreeMap<Kind, Histogram> {
    let mut all: BTreeMap<Kind, Histogram> = BTreeMap::new();
    for (kind, report) in cpus.iter().flat_map(|cpu| &cpu.kinds) {
        all.entry(*kind).or_default().merge(&report.places);
    }
    all
}

/// The longest of each CPU and kind, in microseconds.
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

    /// Of latencies, their sum and the longest, in nanoseconds; none of none.
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
    /// `ahead` is what the time of the day is ahead of the worst one's.
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
        // Threads get their names after they began; what has ended has the name that the programs saw.
        let name =
            Living::read(thread.tid).filter(|living| living.has_begun_at(thread.begun())).map(|it| it.name);
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

    /// One CPU with latencies of one kind, in microseconds, of which the longest is kept.
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
    fn the_longest_is_told_in_parts() {
        let now = snapshot(90_000_000, &[3, 4, 5, 17], worst(17_300, 80_000_000));
        let report = Report::between(&now.of_the_beginning(), &now, Kinds::ALL);
        let kind = kind(&report);
        assert_eq!((kind.count, kind.max_us, kind.max_is), (4, 17.3, Maximum::Exact));
        // A half of four are two, which are below 5 us; no share is longer than the longest.
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
    fn a_group_that_began_anew_has_nothing_of_before() {
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
