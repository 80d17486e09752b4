//! Mapped arrays of the counting programs. Offsets and sizes are those of `src/bpf/monitor.h`,
//! which draws them. `groups/mapped_groups.rs` reads the arrays of groups.
//!
//! Programs write concurrently: counters are loaded one by one; records are read again if a program
//! wrote meanwhile.

use std::{os::fd::BorrowedFd, sync::atomic::Ordering};

use serde::{Deserialize, Serialize};
use tompion_os::SharedMap;

use crate::{
    groups::GroupArrays,
    histogram::Histogram,
    kinds::{Kind, Kinds},
    raw_record::{half, text, word},
};

/// `LAYOUT_VERSION`.
pub const VERSION: u32 = 7;

pub(crate) const KINDS: usize = Kind::ALL.len();
/// Number of buckets of a histogram: one per microsecond, and one for longer latencies.
pub const BUCKETS: usize = 10_242;
/// Slots of maxima: soft timers have one of their own.
pub(crate) const SLOTS: usize = KINDS + 1;
/// Sets of maxima: since the reset, and two alternating intervals of the history.
const SETS: usize = 3;
const WAKES: usize = 65_536;
/// Maximum number of threads with a slot.
pub const THREADS: usize = 1024;
const PLACES: usize = 384;

pub(crate) const CONTROL: usize = 64;
const PROCESSOR: usize = 536;
pub(crate) const WORST: usize = 232;
/// Maximum number of addresses in a stack.
const DEPTH: usize = 16;
const WAKE: usize = 32;
const THREAD: usize = 3168;

const BEGUN: usize = 0;
const LAYOUT: usize = 8;
pub(crate) const EPOCH: usize = 12;
const SETTINGS: usize = 16;
const INTERVAL: usize = 20;
/// Offset of `control`'s last unused word, which the programs don't use.
const BUILD: usize = CONTROL - 4;
const FIRST_COUNT: usize = 216;
const FIRST_SUM: usize = 344;
const FIRST_PLACE: usize = 96;
const SLEPT: usize = 72;

/// Number of counts (`enum count`).
pub const COUNTS: usize = 9;

/// Names of the pinned arrays, in the order of [`MappedCounters`].
pub const ARRAYS: [&str; 6] = ["control", "processors", "histograms", "worsts", "wakes", "threads"];

/// Numbers of entries of the arrays whose size depends on the machine.
pub fn entries(cpus: u32) -> [(&'static str, u32); 3] {
    let each = |number: usize| cpus * number as u32;
    [("processors", cpus), ("histograms", each(KINDS * BUCKETS)), ("worsts", each(SETS * SLOTS))]
}

/// Mapped arrays in which the BPF programs count, readable at any time.
pub struct MappedCounters {
    cpus: usize,
    control: SharedMap,
    processors: SharedMap,
    histograms: SharedMap,
    worsts: SharedMap,
    wakes: SharedMap,
    threads: SharedMap,
    groups: GroupArrays,
}

/// Longest latency of a CPU and slot, as the BPF program stored it. Times are CLOCK_MONOTONIC in
/// nanoseconds; 0 is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaxSample {
    /// Latency in nanoseconds.
    pub latency: u64,
    /// End of the latency.
    pub end: u64,
    /// Intended expiry of the timer.
    pub intended: u64,
    /// Start of the timer's handler.
    pub fired: u64,
    /// Time of the wakeup.
    pub woken: u64,
    /// Late thread.
    pub tid: u32,
    /// Priority in the kernel's numbers.
    pub priority: i32,
    /// Thread that ran before.
    pub other_tid: u32,
    /// Priority of that thread.
    pub other_priority: i32,
    /// Name of the late thread.
    pub name: String,
    /// Name of the thread that ran before.
    pub other_name: String,
    /// Stack of the end: kernel addresses, the innermost first.
    #[serde(default)]
    pub stack: Vec<u64>,
}

#[cfg(test)]
impl MaxSample {
    /// Makes a sample for tests, without details.
    pub fn made_up(latency: u64, end: u64) -> Self {
        Self {
            latency,
            end,
            intended: 0,
            fired: 0,
            woken: 0,
            tid: 7,
            priority: 19,
            other_tid: 0,
            other_priority: 120,
            name: "robot".into(),
            other_name: "swapper/0".into(),
            stack: Vec::new(),
        }
    }
}

/// Slot of a thread.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RawThread {
    pub key: u64,
    pub tid: u32,
    pub priority: i32,
    pub cpu: u32,
    pub count: u64,
    pub not_slept: u64,
    pub last: u64,
    /// Maximum of this epoch, and its end.
    pub worst: Option<(u64, u64)>,
    pub misses: u64,
    pub name: String,
    pub histogram: Histogram,
}

/// Sleeps and wakeups of a thread's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slept {
    /// Key of the slot.
    pub key: u64,
    /// Number of the thread.
    pub tid: u32,
    /// Counted wakeups after a sleep.
    pub seen: u64,
    /// Sleeps before the first of these, by the scheduler's count.
    pub before: u64,
}

/// Number of a key's bits with the thread's number; the others are its start.
const NUMBER_BITS: u32 = 22;
/// Number of bits of a thread's start.
pub const BEGUN_BITS: u32 = 64 - NUMBER_BITS;

impl RawThread {
    /// Start of the thread: the lowest [`BEGUN_BITS`] of CLOCK_MONOTONIC, in nanoseconds.
    pub fn begun(&self) -> u64 {
        self.key >> NUMBER_BITS
    }
}

impl MappedCounters {
    /// Maps the arrays, in the order of `ARRAYS`, and those of groups.
    pub fn map(arrays: [BorrowedFd<'_>; 6], groups: [BorrowedFd<'_>; 3], cpus: u32) -> std::io::Result<Self> {
        let cpus = cpus as usize;
        let [of_groups, places, longest] = groups;
        let groups = GroupArrays::map([arrays[0], of_groups, places, longest], cpus)?;
        let [control, processors, histograms, worsts, wakes, threads] = arrays;
        let map = |array, size: usize| SharedMap::of_bpf_array(array, size as u64);
        Ok(Self {
            cpus,
            control: map(control, CONTROL)?,
            processors: map(processors, cpus * PROCESSOR)?,
            histograms: map(histograms, cpus * KINDS * BUCKETS * 8)?,
            worsts: map(worsts, cpus * SETS * SLOTS * WORST)?,
            wakes: map(wakes, WAKES * WAKE)?,
            threads: map(threads, THREADS * THREAD)?,
            groups,
        })
    }

    /// Arrays of the separately counted groups.
    pub fn groups(&self) -> &GroupArrays {
        &self.groups
    }

    /// Number of CPUs in the arrays.
    pub fn cpus(&self) -> usize {
        self.cpus
    }

    /// Initializes the arrays before the programs run. `build` identifies the programs.
    pub fn begin(&self, now: u64, kinds: Kinds, build: u32) {
        self.set_kinds(kinds);
        self.control.half(BUILD).store(build, Ordering::Relaxed);
        self.control.word(BEGUN).store(now, Ordering::Relaxed);
        self.control.half(LAYOUT).store(VERSION, Ordering::Relaxed);
    }

    /// Start of counting.
    pub fn begun(&self) -> u64 {
        self.control.word(BEGUN).load(Ordering::Relaxed)
    }

    /// Build of the programs; 0 if they don't visit it.
    pub fn build(&self) -> u32 {
        self.control.half(BUILD).load(Ordering::Relaxed)
    }

    /// Reads the layout version from the first array alone: other versions may have other arrays.
    pub fn version_of(control: BorrowedFd<'_>) -> std::io::Result<u32> {
        let control = SharedMap::of_bpf_array(control, LAYOUT as u64 + 4)?;
        Ok(control.half(LAYOUT).load(Ordering::Relaxed))
    }

    /// Restarts all maxima.
    pub fn next_epoch(&self) {
        self.control.half(EPOCH).fetch_add(1, Ordering::Relaxed);
    }

    /// Current interval of the history.
    pub fn interval(&self) -> u32 {
        self.control.half(INTERVAL).load(Ordering::Relaxed)
    }

    /// Starts another interval of the history with new maxima, and returns it. The previous one can
    /// be read until the next starts.
    pub fn next_interval(&self) -> u32 {
        self.control.half(INTERVAL).fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    /// Counted kinds.
    pub fn kinds(&self) -> Kinds {
        Kinds::of_bits(self.control.half(SETTINGS).load(Ordering::Relaxed))
    }

    /// Changes the counted kinds.
    pub fn set_kinds(&self, kinds: Kinds) {
        self.control.half(SETTINGS).store(kinds.bits(), Ordering::Relaxed);
    }

    /// Counts of all CPUs together, by `enum count`.
    pub fn counts(&self) -> [u64; COUNTS] {
        let mut sums = [0u64; COUNTS];
        for cpu in 0..self.cpus {
            for (number, sum) in sums.iter_mut().enumerate() {
                let place = cpu * PROCESSOR + FIRST_COUNT + number * 8;
                *sum += self.processors.word(place).load(Ordering::Relaxed);
            }
        }
        sums
    }

    /// Number of pending wakeups.
    pub fn open_wakes(&self) -> u64 {
        let is_open = |place: &usize| self.wakes.word(place * WAKE + 8).load(Ordering::Relaxed) != 0;
        (0..WAKES).filter(is_open).count() as u64
    }

    /// Sum of a CPU's latencies of a kind, in nanoseconds.
    pub fn sum(&self, cpu: usize, kind: Kind) -> u64 {
        self.processors.word(cpu * PROCESSOR + FIRST_SUM + kind.number() * 8).load(Ordering::Relaxed)
    }

    /// Histogram of a CPU and kind.
    pub fn histogram(&self, cpu: usize, kind: Kind) -> Histogram {
        histogram_at(&self.histograms, (cpu * KINDS + kind.number()) * BUCKETS * 8)
    }

    /// Passes each bucket of a CPU and kind, in microseconds, and its count to `visit`.
    pub fn each_place(&self, cpu: usize, kind: Kind, visit: impl FnMut(usize, u64)) {
        each_place_at(&self.histograms, (cpu * KINDS + kind.number()) * BUCKETS * 8, visit);
    }

    /// Longest latency of a CPU and kind in this epoch.
    pub fn worst(&self, cpu: usize, kind: Kind) -> Option<MaxSample> {
        self.worst_of_set(cpu * SETS, kind, self.control.half(EPOCH).load(Ordering::Relaxed))
    }

    /// Longest latency of a CPU and kind in an interval of the history: the current or the previous
    /// one. Before the first interval, programs store only the maximum of the epoch.
    pub fn worst_of_interval(&self, cpu: usize, kind: Kind, interval: u32) -> Option<MaxSample> {
        if interval == 0 {
            return self.worst(cpu, kind);
        }
        self.worst_of_set(cpu * SETS + 1 + (interval & 1) as usize, kind, interval)
    }

    fn worst_of_set(&self, set: usize, kind: Kind, epoch: u32) -> Option<MaxSample> {
        longer(kind, |slot| worst_at(&self.worsts, set * SLOTS + slot, epoch))
    }

    /// Reads all slots in use.
    pub fn threads(&self) -> Vec<RawThread> {
        let epoch = self.control.half(EPOCH).load(Ordering::Relaxed);
        (0..THREADS).filter_map(|row| self.thread(row, epoch)).collect()
    }

    fn thread(&self, row: usize, epoch: u32) -> Option<RawThread> {
        let mut bytes = [0; THREAD];
        self.threads.copy_out(row * THREAD, &mut bytes);
        let key = word(&bytes, 0);
        let mut histogram = Histogram::default();
        for place in 0..PLACES {
            histogram.add(begin_of(place), begin_of(place + 1), word(&bytes, FIRST_PLACE + place * 8));
        }
        (key != 0).then(|| RawThread {
            key,
            tid: half(&bytes, 8),
            priority: half(&bytes, 12) as i32,
            cpu: half(&bytes, 16),
            count: word(&bytes, 24),
            not_slept: word(&bytes, 32),
            last: word(&bytes, 40),
            worst: (half(&bytes, 20) == epoch).then(|| (word(&bytes, 48), word(&bytes, 56))),
            misses: word(&bytes, 64),
            name: text(bytes.get(80..96)),
            histogram,
        })
    }

    /// Reads sleeps and wakeups of all threads.
    pub fn slept(&self) -> impl Iterator<Item = Slept> + '_ {
        (0..THREADS).filter_map(|row| {
            let word = |offset: usize| self.threads.word(row * THREAD + offset).load(Ordering::Relaxed);
            let (key, seen) = (word(0), word(24).saturating_sub(word(32)));
            let tid = self.threads.half(row * THREAD + 8).load(Ordering::Relaxed);
            // A slot just taken has no thread yet.
            (key != 0 && tid != 0).then(|| Slept { key, tid, seen, before: word(SLEPT) })
        })
    }

    fn rows_taken(&self) -> usize {
        (0..THREADS).filter(|row| self.threads.word(row * THREAD).load(Ordering::Relaxed) != 0).count()
    }

    /// Releases the slots of ended threads when most are taken.
    pub fn forget_threads(&self, has_ended: impl Fn(u32) -> bool) {
        const MANY: usize = THREADS / 4 * 3;
        if self.rows_taken() < MANY {
            return;
        }
        for row in 0..THREADS {
            let at = row * THREAD;
            let tid = self.threads.half(at + 8).load(Ordering::Relaxed);
            // A slot just taken has no thread yet.
            if tid == 0 || !has_ended(tid) {
                continue;
            }
            self.threads.copy_in(at + 8, &[0; THREAD - 8]);
            // Pairs with the program's compare-and-swap that takes the slot.
            self.threads.word(at).store(0, Ordering::Release);
        }
    }
}

/// Reads a histogram of whole microseconds at an offset of the array.
pub(crate) fn histogram_at(array: &SharedMap, begin: usize) -> Histogram {
    let mut histogram = Histogram::default();
    each_place_at(array, begin, |place, count| {
        let begin = place as u64 * 1000;
        histogram.add(begin, if place == BUCKETS - 1 { u64::MAX } else { begin + 1000 }, count);
    });
    histogram
}

fn each_place_at(array: &SharedMap, begin: usize, mut visit: impl FnMut(usize, u64)) {
    for place in 0..BUCKETS {
        visit(place, array.word(begin + place * 8).load(Ordering::Relaxed));
    }
}

/// Longest latency of a kind among its slots: soft timers have one of their own.
pub(crate) fn longer(kind: Kind, of_slot: impl Fn(usize) -> Option<MaxSample>) -> Option<MaxSample> {
    let second = (kind == Kind::MissedTimer).then_some(KINDS);
    let found = [Some(kind.number()), second].into_iter().flatten().filter_map(of_slot);
    found.max_by_key(|worst| worst.latency)
}

/// Longest latency of a slot in an epoch.
pub(crate) fn worst_at(array: &SharedMap, slot: usize, epoch: u32) -> Option<MaxSample> {
    /// A write takes less than a microsecond.
    const MAX_ATTEMPTS: usize = 1000;
    let place = slot * WORST;
    for _ in 0..MAX_ATTEMPTS {
        // Pairs with the programs' atomic additions to the sequence.
        let before = array.half(place).load(Ordering::Acquire);
        let mut bytes = [0; WORST];
        array.copy_out(place, &mut bytes);
        std::sync::atomic::fence(Ordering::Acquire);
        let after = array.half(place).load(Ordering::Relaxed);
        if before != after || before % 2 != 0 {
            continue;
        }
        let is_current = half(&bytes, 4) == epoch;
        return (is_current && before != 0).then(|| MaxSample {
            latency: word(&bytes, 8),
            end: word(&bytes, 16),
            intended: word(&bytes, 24),
            fired: word(&bytes, 32),
            woken: word(&bytes, 40),
            tid: half(&bytes, 48),
            priority: half(&bytes, 52) as i32,
            other_tid: half(&bytes, 56),
            other_priority: half(&bytes, 60) as i32,
            name: text(bytes.get(64..80)),
            other_name: text(bytes.get(80..96)),
            stack: stack(&bytes),
        });
    }
    None
}

/// Begin of a bucket of a thread's histogram, in nanoseconds (`place_of` in `monitor.bpf.c`).
fn begin_of(place: usize) -> u64 {
    const SHIFT: u32 = 7;
    const STEPS: u64 = 16;
    let place = place as u64;
    match place {
        0..STEPS => place << SHIFT,
        // The last bucket is unbounded.
        _ if place >= PLACES as u64 => u64::MAX,
        _ => (STEPS + place % STEPS) << (place / STEPS - 1) << SHIFT,
    }
}

/// Decodes the stack of a maximum.
fn stack(bytes: &[u8; WORST]) -> Vec<u64> {
    const SIZE: usize = 96;
    let frames = ((word(bytes, SIZE) as i64).max(0) as usize / 8).min(DEPTH);
    (1..=frames).map(|frame| word(bytes, SIZE + frame * 8)).collect()
}

#[cfg(test)]
mod rows_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_threads_leave_no_gap() {
        assert_eq!((begin_of(0), begin_of(1), begin_of(15), begin_of(16)), (0, 128, 1920, 2048));
        assert_eq!((begin_of(17), begin_of(32), begin_of(33)), (2176, 4096, 4352));
        for place in 0..PLACES {
            let (begin, end) = (begin_of(place), begin_of(place + 1));
            assert!(begin < end, "{place}: {begin} {end}");
            // At most a sixteenth wide.
            assert!(place < 16 || end == u64::MAX || end - begin <= begin / 16, "{place}");
        }
        assert_eq!(begin_of(PLACES - 1), 31 << 22 << 7);
    }
}
