//! Writer of the history: appends a row every five minutes.

use std::{fs, path::Path, time::Duration};

use tompion_latency::{Kind, MappedCounters, MaxSample, Maximum, MissedWakeups, Monitor, StackSymbols};
use tompion_os::{boottime_ns, monotonic_ns, realtime_ns};

use super::{
    Error,
    bucket_counts::{BucketCounts, bounds},
    job::JobsBody,
    row_codec::{Body, Cell, Cells, FUNCTIONS, Longest},
    store::{self, Counters, Event, EventKind, FIVE_MINUTES, Fact, Failure, Incident, Row, Store},
};

const IN_MS: u64 = 1_000_000;
/// Tolerated drift of the clocks between two rows. Slewing changes a clock by at most 1/2000, so
/// more is a step.
const CLOCK_SLACK_NS: i64 = 1_000_000_000;
/// Maximum interval between two checks of the clocks and of the monitor.
const MAX_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Readings of all clocks at one time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Clocks {
    monotonic: u64,
    /// CLOCK_MONOTONIC plus suspended time.
    boottime: u64,
    realtime: u64,
}

/// Clock step and suspended time between two readings, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ClockChange {
    /// Amount by which the time of day was set.
    step: i64,
    suspended: i64,
}

impl Clocks {
    fn now() -> Self {
        Self { monotonic: monotonic_ns(), boottime: boottime_ns(), realtime: realtime_ns() }
    }

    fn since(&self, earlier: &Self) -> ClockChange {
        let passed = |now: u64, before: u64| now.wrapping_sub(before) as i64;
        let boottime = passed(self.boottime, earlier.boottime);
        let significant = |ns: i64| if ns.abs() < CLOCK_SLACK_NS { 0 } else { ns };
        ClockChange {
            step: significant(passed(self.realtime, earlier.realtime).saturating_sub(boottime)),
            suspended: significant(boottime.saturating_sub(passed(self.monotonic, earlier.monotonic))),
        }
    }

    /// Number of the current five minutes.
    const fn slot(&self) -> u64 {
        self.realtime / (FIVE_MINUTES as u64 * IN_MS)
    }
}

/// Writer of a monitor's history.
#[derive(Debug)]
pub struct HistoryWriter {
    store: Store,
    system: i64,
    boot: String,
    checked: Clocks,
    /// Number of the five minutes written last.
    slot: u64,
    /// Scheduler counts of the last check; none before the first, because earlier counts are in
    /// another writer's rows.
    sched_counts: Option<MissedWakeups>,
    /// Time of the last row, in nanoseconds since 1970; before the first row, time of the start.
    written_ns: u64,
    /// Statistics of jobs not written yet. They exist only in this process, which receives the
    /// programs' reports.
    jobs: JobsBody,
    names: StackSymbols,
}

impl HistoryWriter {
    /// Opens or creates the history of a monitor and records the system's properties. The first row
    /// has everything counted since the last row of an earlier writer.
    ///
    /// # Errors
    /// As [`Store::open`], and if it is another monitor's history.
    pub fn begin(path: &Path, monitor: &str, facts: &[Fact]) -> Result<Self, Error> {
        let mut store = Store::open(path)?;
        let boot =
            fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned();
        let checked = Clocks::now();
        let time_ms = store::saturated(checked.realtime / IN_MS);
        let system = store.begin(monitor, facts, (&boot, time_ms))?;
        let written = store.change(|transaction| match store::counters(transaction) {
            // Reported when the first row is written.
            Err(Failure::Damaged(..)) => Ok(None),
            counters => counters,
        })?;
        Ok(Self {
            store,
            system,
            boot,
            checked,
            slot: checked.slot(),
            written_ns: written.map_or(checked.realtime, |counters| counters.realtime),
            sched_counts: None,
            jobs: JobsBody::default(),
            names: StackSymbols::default(),
        })
    }

    /// Returns the file.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Appends an incident.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn record_incident(&self, incident: &Incident) -> Result<(), Error> {
        self.store.record_incident(incident)
    }

    /// Time of the last row, in nanoseconds since 1970; without a row, time of the start.
    pub fn written_ns(&self) -> u64 {
        self.written_ns
    }

    /// Returns the time until [`HistoryWriter::write_if_due`] should be called.
    pub fn time_until_due(&self) -> Duration {
        let five_minutes = FIVE_MINUTES as u64 * IN_MS;
        let rest = five_minutes - realtime_ns() % five_minutes;
        Duration::from_nanos(rest + IN_MS).min(MAX_CHECK_INTERVAL)
    }

    /// Writes a row if five minutes have passed, the clock was set or the machine was suspended.
    /// Call it when [`HistoryWriter::time_until_due`] has passed, or more often. Returns whether it
    /// wrote a row.
    ///
    /// # Errors
    /// If the file can't be written. Nothing is lost: the next row has these counts.
    pub fn write_if_due(&mut self, monitor: &mut Monitor) -> Result<bool, Error> {
        let now = Clocks::now();
        let happened = now.since(&self.checked);
        self.checked = now;
        if now.slot() == self.slot && happened == (ClockChange { step: 0, suspended: 0 }) {
            return Ok(false);
        }
        self.slot = now.slot();
        let written = self.write(monitor);
        tompion_os::release_unused_memory();
        written.map(|()| true)
    }

    /// Writes a row immediately.
    ///
    /// # Errors
    /// As [`HistoryWriter::write_if_due`].
    pub fn write(&mut self, monitor: &mut Monitor) -> Result<(), Error> {
        let sched_counts = monitor.tidy();
        let last = self.sched_counts.unwrap_or(sched_counts);
        let slept = sched_counts.slept.saturating_sub(last.slept);
        let unseen = sched_counts.unseen.saturating_sub(last.unseen);
        let (boot, system) = (self.boot.clone(), self.system);
        if let Some(jobs) = monitor.jobs() {
            let ahead = realtime_ns().saturating_sub(monotonic_ns());
            self.jobs.merge(JobsBody::new(&jobs.take_recent(), ahead));
        }
        let (jobs, names) = (&self.jobs, &mut self.names);
        let (memory, balance) = (monitor.counters(), monitor.balance());
        let now = self.store.change(|transaction| {
            let begun = memory.begun();
            let before = match store::counters(transaction) {
                Err(Failure::Damaged(..)) => {
                    let (now, _, counters) = read_counters(memory, None);
                    let time_ms = store::saturated(now.realtime / IN_MS);
                    // It is unknown how much was written; counting restarts from here.
                    store::note(transaction, Event { time_ms, kind: EventKind::Damaged, amount_ms: 0 })?;
                    Some(Counters { boot: boot.clone(), begun, woken: balance.woken, ..counters })
                }
                counters => counters?,
            };
            let known = before.as_ref().filter(|it| it.boot == boot && it.begun == begun);
            let (now, longest, counters) = read_counters(memory, known);
            let mut row = row(memory, known, (&now, &counters), &longest);
            name_stacks(&mut row.body.cells, names);
            row.system = system;
            row.body.woken = balance.woken.saturating_sub(known.map_or(0, |it| it.woken));
            row.body.difference = balance.difference;
            (row.body.slept, row.body.unseen) = (slept, unseen);
            row.body.jobs = jobs.clone();
            for event in events(before.as_ref(), known, &now, row.start) {
                store::note(transaction, event)?;
            }
            store::append(transaction, &row)?;
            let counters = Counters { boot, begun, woken: balance.woken, ..counters };
            store::set_counters(transaction, &counters)?;
            Ok(now)
        })?;
        self.written_ns = now.realtime;
        self.sched_counts = Some(sched_counts);
        self.jobs = JobsBody::default();
        Ok(())
    }
}

type Longests = std::collections::BTreeMap<(u32, Kind), MaxSample>;

/// Reads the counters, and the maxima since the saved counters. Starts a new interval, unless the
/// last one isn't written yet: the BPF programs keep two.
fn read_counters(memory: &MappedCounters, known: Option<&Counters>) -> (Clocks, Longests, Counters) {
    let (first, since) = known.map_or((0, 0), |it| (it.interval, it.monotonic));
    let open = memory.interval();
    let mut longest = Longests::new();
    let mut keep = |interval: Option<u32>| {
        for cpu in 0..memory.cpus() {
            for kind in Kind::ALL {
                let worst = match interval {
                    Some(interval) => memory.worst_of_interval(cpu, kind, interval),
                    None => memory.worst(cpu, kind),
                };
                // An older maximum is already in a row.
                let Some(worst) = worst.filter(|worst| worst.end >= since) else { continue };
                let place = (cpu as u32, kind);
                if longest.get(&place).is_none_or(|known| known.latency < worst.latency) {
                    longest.insert(place, worst);
                }
            }
        }
    };
    // An interval started by an earlier writer that was killed, or failed, before it wrote. Older
    // ones are overwritten.
    if let Some(closed) = open.checked_sub(1).filter(|closed| *closed >= first) {
        keep(Some(closed));
    }
    let interval = if open <= first { memory.next_interval() } else { open };
    let now = Clocks::now();
    let mut cells = Cells::new();
    for cpu in 0..memory.cpus() {
        for kind in Kind::ALL {
            let mut places = BucketCounts::default();
            memory.each_place(cpu, kind, |place, count| places.add(place, count));
            if places.count() > 0 {
                let cell = Cell { sum: memory.sum(cpu, kind), places, ..Cell::default() };
                cells.insert((cpu as u32, kind), cell);
            }
        }
    }
    keep(Some(open));
    // If an interval was overwritten, the maximum since the reset may be from this time.
    keep(None);
    let Clocks { monotonic, boottime, realtime } = now;
    (now, longest, Counters { interval, monotonic, boottime, realtime, cells, ..Counters::default() })
}

/// Computes a row: the counts since the saved counters.
fn row(
    memory: &MappedCounters,
    known: Option<&Counters>,
    (now, counters): (&Clocks, &Counters),
    longest: &Longests,
) -> Row {
    let awake = now.monotonic.saturating_sub(known.map_or(memory.begun(), |it| it.monotonic));
    let passed = known.map_or(awake, |it| now.boottime.saturating_sub(it.boottime));
    let ahead = now.realtime.saturating_sub(now.monotonic);
    let mut cells = Cells::new();
    for (place, cell) in &counters.cells {
        let before = known.and_then(|it| it.cells.get(place));
        let places = before.map_or_else(|| cell.places.clone(), |before| cell.places.since(&before.places));
        let Some(last) = places.last() else { continue };
        let longest = longest_of(last, longest.get(place), ahead);
        let sum = cell.sum.saturating_sub(before.map_or(0, |before| before.sum));
        cells.insert(*place, Cell { sum, longest, places });
    }
    Row {
        start: store::saturated(now.realtime.saturating_sub(passed) / IN_MS),
        duration: store::saturated(awake / IN_MS),
        body: Body { cells, ..Body::default() },
        ..Row::default()
    }
}

/// Returns the longest latency: the programs' sample, unless the histogram has a longer one.
fn longest_of(last: usize, kept: Option<&MaxSample>, ahead: u64) -> Longest {
    let (begin, end) = bounds(last);
    if let Some(kept) = kept.filter(|kept| kept.latency >= begin) {
        let on_the_day = |time: u64| if time == 0 { 0 } else { time + ahead };
        let worst = MaxSample {
            end: on_the_day(kept.end),
            intended: on_the_day(kept.intended),
            fired: on_the_day(kept.fired),
            woken: on_the_day(kept.woken),
            ..kept.clone()
        };
        return Longest { ns: kept.latency, is: Maximum::Exact, worst: Some(worst), code: Vec::new() };
    }
    match end {
        u64::MAX => Longest { ns: begin, is: Maximum::AtLeast, ..Longest::default() },
        _ => Longest { ns: end, is: Maximum::Below, ..Longest::default() },
    }
}

/// Stores the stacks of maxima by function names, as addresses are valid until the next boot only.
/// Offsets are dropped, so that equal names are stored once.
fn name_stacks(cells: &mut Cells, names: &mut StackSymbols) {
    names.name(cells.values_mut().map(|cell| {
        let Longest { worst, code, .. } = &mut cell.longest;
        (worst.as_ref().map_or(&[][..], |worst| &worst.stack), code)
    }));
    for code in cells.values_mut().map(|cell| &mut cell.longest.code) {
        code.truncate(FUNCTIONS);
        code.iter_mut().for_each(|function| *function = without_offset(function));
    }
}

/// Drops the offset: `ext4_map_blocks+0x1f0 [ext4]` becomes `ext4_map_blocks [ext4]`.
fn without_offset(function: &str) -> String {
    let (name, rest) = function.split_once('+').unwrap_or((function, ""));
    let module = rest.split_once(' ').map_or(String::new(), |(_, module)| format!(" {module}"));
    format!("{name}{module}")
}

/// Events since the last row: clock step, suspend or gap.
fn events(before: Option<&Counters>, known: Option<&Counters>, now: &Clocks, start: i64) -> Vec<Event> {
    let time_ms = store::saturated(now.realtime / IN_MS);
    let event = |kind, ns: i64| Event { time_ms, kind, amount_ms: ns / IN_MS as i64 };
    let (Some(before), None) = (before, known) else {
        let Some(known) = known else { return Vec::new() };
        let Counters { monotonic, boottime, realtime, .. } = *known;
        let happened = now.since(&Clocks { monotonic, boottime, realtime });
        let both = [(EventKind::ClockStep, happened.step), (EventKind::Suspended, happened.suspended)];
        return both.into_iter().filter(|(_, ns)| *ns != 0).map(|(kind, ns)| event(kind, ns)).collect();
    };
    let amount_ms = start.saturating_sub(store::saturated(before.realtime / IN_MS)).max(0);
    vec![Event { time_ms: start, kind: EventKind::NotCounted, amount_ms }]
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn clocks(monotonic: u64, suspended: u64, realtime: u64) -> Clocks {
        let (monotonic, boottime) = (monotonic * SECOND, (monotonic + suspended) * SECOND);
        Clocks { monotonic, boottime, realtime: realtime * SECOND }
    }

    #[test]
    fn clock_steps_and_suspends_are_detected() {
        let before = clocks(100, 0, 5000);
        let since = |now: Clocks| {
            let happened = now.since(&before);
            (happened.step / SECOND as i64, happened.suspended / SECOND as i64)
        };
        assert_eq!(since(clocks(400, 0, 5300)), (0, 0));
        assert_eq!(since(clocks(400, 0, 8900)), (3600, 0));
        assert_eq!(since(clocks(400, 0, 1000)), (-4300, 0));
        assert_eq!(since(clocks(400, 7200, 12_500)), (0, 7200));
        assert_eq!(since(clocks(400, 7200, 12_600)), (100, 7200));
        // Slewing is no step.
        let slewed = Clocks { realtime: 5300 * SECOND + SECOND / 5, ..clocks(400, 0, 0) };
        assert_eq!(since(slewed), (0, 0));
    }

    #[test]
    fn a_longer_latency_in_the_histogram_wins() {
        let kept = |latency| MaxSample { latency, woken: 8000, end: 9000, ..MaxSample::default() };
        let exact = longest_of(17, Some(&kept(17_300)), 50);
        assert_eq!((exact.ns, exact.is), (17_300, Maximum::Exact));
        let worst = exact.worst.unwrap();
        assert_eq!((worst.end, worst.woken, worst.intended), (9050, 8050, 0));
        let below = Longest { ns: 18_000, is: Maximum::Below, ..Longest::default() };
        assert_eq!(longest_of(17, Some(&kept(16_999)), 50), below);
        assert_eq!(longest_of(17, None, 50), below);
        let at_least = longest_of(10_241, None, 0);
        assert_eq!((at_least.ns, at_least.is), (10_241_000, Maximum::AtLeast));
        // Beyond the histogram, the sample is exact.
        assert_eq!(longest_of(10_241, Some(&kept(30_000_000)), 0).ns, 30_000_000);
    }

    #[test]
    fn a_gap_is_noted_when_counting_restarts() {
        let before = Counters { realtime: 1000 * SECOND, ..Counters::default() };
        let now = clocks(60, 0, 5000);
        let gap = events(Some(&before), None, &now, 4_940_000);
        let expected = Event { time_ms: 4_940_000, kind: EventKind::NotCounted, amount_ms: 3_940_000 };
        assert_eq!(gap, [expected]);
        assert_eq!(events(None, None, &now, 0), []);
        let known =
            Counters { monotonic: 10 * SECOND, boottime: 10 * SECOND, realtime: 4950 * SECOND, ..before };
        assert_eq!(events(Some(&known), Some(&known), &now, 0), []);
        let stepped = Clocks { realtime: 9000 * SECOND, ..now };
        let step = events(Some(&known), Some(&known), &stepped, 0);
        assert_eq!(step, [Event { time_ms: 9_000_000, kind: EventKind::ClockStep, amount_ms: 4_000_000 }]);
    }
}
